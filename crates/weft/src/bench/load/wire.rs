//! One socket that speaks HTTP/2.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use weft_core::Time;
use weft_proto::session::http2::{Config, Connection, Event};

/// Bytes of a connection's input buffer: four of the largest frames that the default settings permit.
const INPUT_BYTES: usize = 64 << 10;

/// What the owner of a connection does with its events.
pub(super) trait Handler {
    /// Acts on one event. What it sends leaves when the whole batch has been handled.
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
    /// Takes on a socket that is connected, or about to be.
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

    /// Reads until the socket is empty, and hands each event on; false at the end of the stream.
    ///
    /// # Errors
    /// The socket's, the handler's, and `InvalidData` if the peer broke a rule of HTTP/2.
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

    /// Sends what the connection has to send, as far as the socket takes it.
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

    /// Does what the clock asks for. Without keep-alive that is nothing while both sides answer.
    pub(super) fn handle_timeout(&mut self, now: Time, handler: &mut impl Handler) -> io::Result<()> {
        if self.http2.poll_timeout().is_some_and(|at| at <= now) {
            self.http2.handle_timeout(now).map_err(invalid)?;
            self.handle_input(now, handler)?;
        }
        Ok(())
    }

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

/// The time since `start`, as connections take it.
pub(super) fn since(start: Instant) -> Time {
    Time(start.elapsed().as_nanos() as i64)
}

pub(super) fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}
