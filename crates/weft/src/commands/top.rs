//! `weft top`: shows a node's status until the user presses `q`.

use super::status::{data, page};
use crate::cli::TopArgs;
use crate::client::Client;
use crate::fault::Fault;
use crate::keys::Keys;
use crate::signals;
use crate::stdout;
use std::time::{Duration, Instant};

/// The key that ends it.
const QUIT: u8 = b'q';

/// Runs `weft top`.
pub(crate) fn run(args: &TopArgs) -> Result<(), Fault> {
    // Handle signals here, so that the terminal is restored.
    let stop = signals::stop_requests()?;
    let keys = Keys::new();
    let client = Client::new(&args.admin)?;
    let pause = Duration::try_from_secs_f64(args.every.max(0.1)).unwrap_or(Duration::from_secs(1));
    let mut last = None;
    loop {
        let status = client.status()?;
        let rate = last.map(|(begun, uptime)| {
            let (n, seconds): (u64, f64) = (status.calls.begun - begun, status.uptime_s - uptime);
            n as f64 / seconds.max(1e-9)
        });
        last = Some((status.calls.begun, status.uptime_s));
        let is_read = if args.json {
            stdout::offer(&data(&status))?
        } else {
            let rate = rate.map_or_else(|| "-".to_owned(), |r| weft_control::show::grouped(r as u64));
            stdout::refresh(&format!("{rate} calls/s   {}", page(&status)))?
        };
        if !is_read {
            return Ok(());
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if keys.wait() == Some(QUIT) || stop.try_recv().is_ok() {
                return Ok(());
            }
        }
    }
}
