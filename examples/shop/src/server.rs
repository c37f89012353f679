//! The cart service, on a TCP or a Unix socket.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::pb::cart_server::{Cart, CartServer};
use crate::pb::{CartReply, CartRequest};

/// Maximum number of concurrent streams per connection.
pub const STREAMS_MAX: u32 = 1024;
/// Maximum delay that a caller may request of `Get`, in milliseconds.
pub const DELAY_MS_MAX: i32 = 600_000;
/// Maximum number of replies that wait for a slow reader of `Watch` or `Chat`.
pub const REPLIES_MAX: usize = 16;

/// A bound socket that is not served yet. Binding is separate, so that a caller can learn the port.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket and the path to remove when it closes.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds `unix:PATH` or `HOST:PORT`; port 0 selects a free one. A dead socket at PATH is replaced; a live one is an
    /// error, and so is a port in use.
    pub async fn bind(address: &str) -> std::io::Result<Self> {
        let Some(path) = address.strip_prefix("unix:").map(Path::new) else {
            return TcpListener::bind(address).await.map(Self::Tcp);
        };
        let is_live = std::os::unix::net::UnixStream::connect(path).is_ok();
        if !is_live && path.exists() {
            std::fs::remove_file(path)?;
        }
        Ok(Self::Unix(UnixListener::bind(path)?, path.to_owned()))
    }

    /// The address in the form that `bind` accepts, with the actual port.
    pub fn address(&self) -> std::io::Result<String> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
            Self::Unix(_, path) => Ok(format!("unix:{}", path.display())),
        }
    }
}

/// Serves the cart on `listener` under `name` until `stop` resolves. Then accepts no new calls, and returns when those
/// in flight are answered.
pub async fn serve(
    listener: Listener,
    name: String,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let service = CartServer::new(CartService { name });
    let server = Server::builder().max_concurrent_streams(Some(STREAMS_MAX)).add_service(service);
    match listener {
        Listener::Tcp(listener) => {
            // The builder's `tcp_nodelay` reaches only sockets that tonic accepts itself; without it Nagle's
            // algorithm holds small replies back for up to 40 ms.
            let incoming = TcpListenerStream::new(listener).map(|socket| {
                socket.inspect(|socket| {
                    let _ = socket.set_nodelay(true);
                })
            });
            server.serve_with_incoming_shutdown(incoming, stop).await
        }
        Listener::Unix(listener, path) => {
            let served = server.serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop).await;
            let _ = std::fs::remove_file(path);
            served
        }
    }
}

/// Resolves at the first SIGTERM or SIGINT.
pub async fn stop_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

struct CartService {
    name: String,
}

impl CartService {
    fn reply(&self, request: &CartRequest) -> CartReply {
        CartReply { server: self.name.clone(), object_id: request.object_id, quantity: request.quantity }
    }
}

type Replies = Pin<Box<dyn Stream<Item = Result<CartReply, Status>> + Send>>;

#[tonic::async_trait]
impl Cart for CartService {
    type WatchStream = Replies;
    type ChatStream = Replies;

    async fn add(&self, request: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        Ok(Response::new(self.reply(request.get_ref())))
    }

    async fn get(&self, request: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        let delay_ms = request.get_ref().quantity.clamp(0, DELAY_MS_MAX);
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms as u64)).await;
        }
        Ok(Response::new(self.reply(request.get_ref())))
    }

    async fn watch(&self, request: Request<CartRequest>) -> Result<Response<Replies>, Status> {
        let reply = self.reply(request.get_ref());
        let (sender, receiver) = mpsc::channel(REPLIES_MAX);
        tokio::spawn(async move {
            for quantity in 1..=reply.quantity {
                if sender.send(Ok(CartReply { quantity, ..reply.clone() })).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn upload(&self, request: Request<Streaming<CartRequest>>) -> Result<Response<CartReply>, Status> {
        let mut requests = request.into_inner();
        let mut sum = CartReply { server: self.name.clone(), ..CartReply::default() };
        while let Some(request) = requests.message().await? {
            sum.object_id = request.object_id;
            sum.quantity = sum.quantity.saturating_add(request.quantity);
        }
        Ok(Response::new(sum))
    }

    async fn chat(&self, request: Request<Streaming<CartRequest>>) -> Result<Response<Replies>, Status> {
        let name = self.name.clone();
        let replies = request.into_inner().map(move |request| {
            request.map(|request| CartReply {
                server: name.clone(),
                object_id: request.object_id,
                quantity: request.quantity,
            })
        });
        Ok(Response::new(Box::pin(replies)))
    }
}
