//! TCP and Unix stream sockets behind one type.

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use weft_engine::plan::Address;

/// A listening socket.
#[derive(Debug)]
pub enum ListenSocket {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a path; dropping the socket removes it.
    Unix(UnixListener, String),
}

/// A connected socket.
#[derive(Debug)]
pub enum StreamSocket {
    /// To an IP address.
    Tcp(TcpStream),
    /// To a path.
    Unix(UnixStream),
}

impl ListenSocket {
    /// Listens on an address. Replaces a socket file without a listener.
    ///
    /// # Errors
    /// The system's: the address is in use, or permission is denied.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(*address).map(Self::Tcp),
            Address::Name(_) => Err(unresolved()),
            Address::Unix(path) => {
                let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
                if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
                    std::fs::remove_file(path)?;
                }
                Ok(Self::Unix(UnixListener::bind(path)?, path.clone()))
            }
        }
    }

    /// The address it listens on, with the port that the system chose for port 0.
    pub fn address(&self) -> Address {
        match self {
            Self::Tcp(listener) => {
                Address::from(listener.local_addr().expect("a bound socket has an address"))
            }
            Self::Unix(_, path) => Address::Unix(path.clone()),
        }
    }

    /// Accepts a connection; returns it with its peer's address.
    pub(crate) fn accept(&self) -> io::Result<(StreamSocket, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // Small messages must not wait for acknowledgements of earlier ones.
                stream.set_nodelay(true)?;
                // On a dual-stack listener an IPv4 client comes as `::ffff:10.0.0.1`.
                Ok((StreamSocket::Tcp(stream), Address::from(peer).to_string()))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                Ok((StreamSocket::Unix(stream), "unix".to_owned()))
            }
        }
    }
}

/// A socket needs an address; the caller resolves names.
fn unresolved() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a name is no address")
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may be gone already, which is no error.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl StreamSocket {
    /// Starts to connect; once it is writable, [`StreamSocket::is_connected`] returns the result.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(*address)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Address::Name(_) => Err(unresolved()),
        }
    }

    /// Returns the peer's IP address, if it has one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Whether connecting has succeeded, or why it failed.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Self::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Self::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    /// Reads bytes without waiting; returns their number, 0 at the end.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    /// Writes bytes without waiting; returns the number written.
    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    /// Shuts down writing.
    pub(crate) fn end_output(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Its file descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Returns the socket as a source of events.
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }
}

impl ListenSocket {
    /// Registers the listener for connections to accept.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Self::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// Removes the listener from the poll.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => registry.deregister(listener),
            Self::Unix(listener, _) => registry.deregister(listener),
        }
    }
}
