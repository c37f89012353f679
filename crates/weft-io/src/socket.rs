//! TCP and Unix stream sockets as one thing.

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use weft_engine::plan::Address;

/// A socket that accepts.
#[derive(Debug)]
pub enum ListenSocket {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a path, which is removed when the socket is dropped.
    Unix(UnixListener, String),
}

/// A connected socket.
#[derive(Debug)]
pub enum StreamSocket {
    /// Over IP.
    Tcp(TcpStream),
    /// Over a path.
    Unix(UnixStream),
}

impl ListenSocket {
    /// Listens on an address. A socket file that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// The system's: the port is taken, or not permitted.
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

    /// Where it listens: the port that the system chose, if 0 was asked for.
    pub fn address(&self) -> Address {
        match self {
            Self::Tcp(listener) => {
                Address::from(listener.local_addr().expect("a bound socket has an address"))
            }
            Self::Unix(_, path) => Address::Unix(path.clone()),
        }
    }

    /// The next connection and its peer's name.
    pub(crate) fn accept(&self) -> io::Result<(StreamSocket, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // Small messages must not wait for acknowledgements of earlier ones.
                stream.set_nodelay(true)?;
                // On a listener of both families a client of IPv4 comes as `::ffff:10.0.0.1`.
                Ok((StreamSocket::Tcp(stream), Address::from(peer).to_string()))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                Ok((StreamSocket::Unix(stream), "unix".to_owned()))
            }
        }
    }
}

/// A socket takes addresses; who has a name looks it up before.
fn unresolved() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a name is no address")
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Nothing can be done if it is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl StreamSocket {
    /// Begins to connect; [`StreamSocket::is_connected`] tells when it is writable.
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

    /// The address that it is connected to, if that is one of IP.
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

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn end_output(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Its number in this process.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

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
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Self::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => registry.deregister(listener),
            Self::Unix(listener, _) => registry.deregister(listener),
        }
    }
}
