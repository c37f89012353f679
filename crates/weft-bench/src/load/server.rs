//! `weft bench-server`: a gRPC server that echoes each request.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use rustc_hash::FxHashMap;
use weft_proto::session::http2::{Config, Connection, Event, Headers, HeadersBuilder, StreamId};

use super::wire::{Handler, Wire, since};

/// Open streams per connection.
const STREAMS_MAX: u32 = 1000;
/// Received bytes of a connection before they are echoed.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Readiness events per wait.
const EVENTS: usize = 256;
/// The interval between checks of the connections' timeouts.
const TICK: Duration = Duration::from_secs(1);

const LISTENER: Token = Token(usize::MAX);

/// The options of `weft bench-server`.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// The address to listen on; port 0 takes a free one. The address is printed once it listens.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Exit when standard input closes, so that the server does not outlive its parent process.
    #[arg(long)]
    end_with_stdin: bool,
}

/// Runs the server until it is killed, or until its standard input ends if requested.
///
/// # Errors
/// An error of the system, such as a port in use.
#[expect(clippy::disallowed_methods, reason = "who has started it wants its own error")]
pub(crate) fn run(args: &ServerArgs) -> io::Result<()> {
    let mut listener = TcpListener::bind(args.listen)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    if args.end_with_stdin {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut server = Server { poll, listener, wires: BTreeMap::new(), next: 0, start: Instant::now() };
    let mut events = Events::with_capacity(EVENTS);
    loop {
        match server.poll.poll(&mut events, Some(TICK)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            match event.token() {
                LISTENER => server.accept()?,
                Token(index) => server.serve(index, event.is_readable()),
            }
        }
        if events.is_empty() {
            server.handle_timeouts();
        }
    }
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    wires: BTreeMap<usize, (Wire, Echo)>,
    next: usize,
    start: Instant,
}

impl Server {
    /// Accepts all waiting connections.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            socket.set_nodelay(true)?;
            let config = Config {
                max_concurrent_streams: STREAMS_MAX,
                connection_window: CONNECTION_WINDOW,
                ..Config::server()
            };
            let token = Token(self.next);
            let mut wire = Wire::new(socket, self.poll.registry(), token, config, since(self.start))?;
            if wire.write().is_ok() {
                self.wires.insert(self.next, (wire, Echo::default()));
            }
            self.next += 1;
        }
    }

    /// Reads and writes a ready connection. Closes it if it fails; the others go on.
    fn serve(&mut self, index: usize, is_readable: bool) {
        let now = since(self.start);
        let Some((wire, echo)) = self.wires.get_mut(&index) else { return };
        let goes_on = !is_readable || wire.read(now, echo).unwrap_or(false);
        if wire.write().is_err() || !goes_on || wire.http2.is_closed() {
            self.wires.remove(&index);
        }
    }

    /// Handles the timers of all connections, and removes closed and failed ones.
    fn handle_timeouts(&mut self) {
        let now = since(self.start);
        self.wires.retain(|_, (wire, echo)| {
            let lives = wire.handle_timeout(now, echo).is_ok();
            lives && wire.write().is_ok() && !wire.http2.is_closed()
        });
    }
}

/// Answers each call with its own bytes, when all have come.
struct Echo {
    response: Rc<Headers>,
    trailers: Rc<Headers>,
    /// Incomplete bodies.
    parts: FxHashMap<StreamId, Vec<u8>>,
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            response: headers(&[(":status", "200"), ("content-type", "application/grpc")]),
            trailers: headers(&[("grpc-status", "0")]),
            parts: FxHashMap::default(),
        }
    }
}

impl Echo {
    /// Sends the response: headers, the request's bytes, trailers.
    fn answer(&self, http2: &mut Connection, stream: StreamId, earlier: &[u8], body: &[u8]) {
        // If the client has reset the stream meanwhile, no answer is needed.
        let _ = http2
            .send_headers(stream, &self.response, false)
            .and_then(|()| http2.send_data(stream, earlier, body, false))
            .and_then(|()| http2.send_headers(stream, &self.trailers, true));
    }
}

impl Handler for Echo {
    fn handle(&mut self, http2: &mut Connection, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Data { stream, data, flow_len, end_stream } => {
                if !end_stream {
                    self.parts.entry(stream).or_default().extend_from_slice(data);
                } else if self.parts.is_empty() {
                    self.answer(http2, stream, b"", data);
                } else {
                    let earlier = self.parts.remove(&stream).unwrap_or_default();
                    self.answer(http2, stream, &earlier, data);
                }
                http2.release(stream, flow_len);
            }
            Event::Headers { stream, end_stream: true, .. } => self.answer(http2, stream, b"", b""),
            Event::Reset { stream, .. } => {
                self.parts.remove(&stream);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Builds a header block from names and values.
pub(super) fn headers(fields: &[(&str, &str)]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::new();
    for (name, value) in fields {
        builder.push(name.as_bytes(), value.as_bytes()).expect("a well-formed field");
    }
    builder.build()
}
