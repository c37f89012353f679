//! A non-blocking socket with an HTTP/2 connection, for the client and the server of benchmarks.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use weft_core::Time;
use weft_proto::session::http2::{Config, Connection, Event};

/// The input buffer of a connection, in bytes: four of the largest frames that the default settings permit.
const INPUT_BYTES: usize = 64 << 10;

/// Handles the events of a connection.
pub(super) trait Handler {
    /// Handles one event. Output is sent after the whole batch of events.
    fn handle(&mut self, http2: &mut Connection, event: Event<'_>) -> io::Result<()>;
}

/// A connection and its socket, registered edge-triggered for reading and writing.
pub(super) struct Wire {
    socket: TcpStream,
    pub(super) http2: Connection,
    input: Box<[u8]>,
    filled: usize,
}

impl Wire {
    /// Takes a socket that is connected, or is connecting.
    pub(super) fn new(
        mut socket: TcpStream,
        registry: &Registry,
        token: Token,
        config: Config,
        now: Time,
    ) -> io::Result<Self> {
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let http2 = Connection::new(config, now);
        Ok(Self { socket, http2, input: vec![0; INPUT_BYTES].into_boxed_slice(), filled: 0 })
    }

    /// Reads until the socket is empty, and handles each event; false at the end of the stream.
    ///
    /// # Errors
    /// Errors of the socket and of the handler, and `InvalidData` if the peer violates HTTP/2.
    pub(super) fn read(&mut self, now: Time, handler: &mut impl Handler) -> io::Result<bool> {
        loop {
            let n = match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.filled += n;
            let was_full = self.filled == self.input.len();
            self.handle_input(now, handler)?;
            // epoll(7): a read that leaves room in the buffer has emptied the socket.
            if !was_full {
                return Ok(true);
            }
        }
    }

    /// Sends pending output, as far as the socket accepts it.
    pub(super) fn write(&mut self) -> io::Result<()> {
        loop {
            let output = self.http2.output();
            if output.is_empty() {
                return Ok(());
            }
            match self.socket.write(output) {
                Ok(n) => self.http2.advance_output(n),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles timers. Without keep-alive there are none while both sides answer.
    pub(super) fn handle_timeout(&mut self, now: Time, handler: &mut impl Handler) -> io::Result<()> {
        if self.http2.poll_timeout().is_some_and(|at| at <= now) {
            self.http2.handle_timeout(now).map_err(invalid)?;
            self.handle_input(now, handler)?;
        }
        Ok(())
    }

    /// Parses the received bytes and gives each event to the handler.
    fn handle_input(&mut self, now: Time, handler: &mut impl Handler) -> io::Result<()> {
        let mut at = 0;
        loop {
            let (n, event) = self.http2.handle_input(now, &self.input[at..self.filled]).map_err(invalid)?;
            at += n;
            match event {
                Some(event) => handler.handle(&mut self.http2, event)?,
                None if n == 0 => break,
                None => {}
            }
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

/// The time since `start`, in the connections' form.
pub(super) fn since(start: Instant) -> Time {
    Time(start.elapsed().as_nanos() as i64)
}

pub(super) fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}
