//! Resident memory of a node: idle, and with idle connections.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::process::Running;
use super::progress;
use super::report::{Report, Row};
use super::rpc::{Folder, PLAIN, Proxy};
use weft_core::Time;
use weft_proto::session::http2::{Config, Connection};

/// Idle connections; half of the process's descriptors here.
const CONNECTIONS: usize = 10_000;
/// A connection releases its buffers after some idle seconds.
const SETTLE: Duration = Duration::from_secs(8);

/// Measures a node before its connections, and with them.
///
/// # Errors
/// A process could not be started, or the connections could not be made.
pub(super) fn run(quick: bool) -> Result<Report, String> {
    let n = if quick { CONNECTIONS / 10 } else { CONNECTIONS };
    let folder = Folder::new()?;
    let (_server, address) = Running::with_line(&["bench-server", "--end-with-stdin"])?;
    let server = address.parse().map_err(|_| format!("an address, not `{address}`"))?;
    let proxy = Proxy::start(&folder, "plain.weft", PLAIN, server)?;
    let resident = || proxy.process.resident_bytes().ok_or("the node's memory cannot be read".to_owned());
    let idle = resident()?;
    progress(&format!("{n} connections"));
    let connections = (0..n).map(|_| connect(proxy.address)).collect::<Result<Vec<_>, _>>();
    let connections = connections.map_err(|error| format!("cannot make {n} connections: {error}"))?;
    std::thread::sleep(SETTLE);
    let loaded = resident()?;
    drop(connections);
    let name = format!("{n} idle HTTP/2 connections");
    let rows = vec![
        Row::new("idle", "memory", "MB", &[idle as f64 / 1e6]),
        Row::new(&name, "memory", "MB", &[loaded as f64 / 1e6]),
        Row::new(&name, "each", "KiB", &[loaded.saturating_sub(idle) as f64 / n as f64 / 1024.0]),
    ];
    Ok(Report { bench: "memory", rows, notes: Vec::new(), failures: Vec::new() })
}

/// A connection after both sides have sent their settings.
fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let mut h2 = Connection::new(Config::client(), Time(0));
    stream.write_all(h2.output())?;
    h2.advance_output(h2.output().len());
    let mut buffer = [0; 512];
    let n = stream.read(&mut buffer)?;
    let mut taken = 0;
    while taken < n {
        match h2.handle_input(Time(0), &buffer[taken..n]) {
            Ok((0, None)) => break,
            Ok((used, _)) => taken += used,
            Err(error) => return Err(std::io::Error::other(error.to_string())),
        }
    }
    stream.write_all(h2.output())?;
    Ok(stream)
}
