//! The admin endpoint: HTTP on loopback, on a thread of its own.
//!
//! `/healthz` and `/metrics` are open to whoever reaches them; everything else asks for the token. A request whose
//! `Host` is a name other than `localhost` is refused, so that no web page can reach the endpoint through a
//! browser by a name of its own (DNS rebinding).

use crate::fault::Fault;
use crate::metrics;
use crate::running::{Refusal, Running};
use crate::token::TokenFile;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use weft_api::{ApplyRequest, REQUEST_BYTES_MAX};

/// The endpoint, until it is dropped.
pub(crate) struct Admin {
    address: SocketAddr,
    /// It is on the disk as long as the endpoint is there.
    _token: TokenFile,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    running: Running,
    token: Arc<str>,
}

/// Binds the endpoint, before anything else is started.
pub(crate) fn bind(address: SocketAddr, anywhere: bool) -> Result<TcpListener, Fault> {
    if !address.ip().is_loopback() && !anywhere {
        return Err(Fault::Input(format!(
            "the admin endpoint would be reachable from other machines at {address}; say --admin-anywhere if it shall"
        )));
    }
    TcpListener::bind(address).map_err(|error| {
        Fault::environment(format!("the admin endpoint cannot listen on {address}: {error}"))
            .with_help("another node may be running: choose another port with --admin 127.0.0.1:PORT")
    })
}

impl Admin {
    /// Serves on a bound socket.
    pub(crate) fn start(listener: TcpListener, running: Running) -> Result<Self, Fault> {
        let address = listener.local_addr().map_err(Fault::environment)?;
        let token = TokenFile::create(address)?;
        let shared = Shared { running, token: token.token.as_str().into() };
        let (stop, stopped) = oneshot::channel::<()>();
        listener.set_nonblocking(true).map_err(Fault::environment)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(2)
            .build()
            .map_err(Fault::environment)?;
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("the socket does not block");
            let app = router(shared);
            let server = axum::serve(listener, app).with_graceful_shutdown(async {
                let _ = stopped.await;
            });
            if let Err(error) = server.await {
                eprintln!("weft: the admin endpoint has ended: {error}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("weft-admin".to_owned())
            .spawn(move || runtime.block_on(serve))
            .map_err(Fault::environment)?;
        Ok(Self { address, _token: token, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(serve_metrics))
        .route("/v1/status", get(serve_status))
        .route("/v1/program", get(serve_program))
        .route("/v1/apply", post(apply))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(from_fn(check_host))
        .with_state(shared)
}

async fn check_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .map_or(host, |(name, port)| if port.bytes().all(|b| b.is_ascii_digit()) { name } else { host });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name == "localhost" || name.parse::<IpAddr>().is_ok() {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "this endpoint is known by its address or as localhost\n")
        .into_response()
}

async fn serve_metrics(State(shared): State<Shared>) -> Response {
    match shared.running.stats() {
        Some(stats) => {
            let text = metrics::render(&stats, &shared.running.sink_metrics());
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
        }
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn serve_status(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Err(refused) = authorize(&shared, &headers) {
        return *refused;
    }
    match shared.running.status() {
        Some(status) => Json(status).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn serve_program(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    match authorize(&shared, &headers) {
        Ok(()) => Json(shared.running.program()).into_response(),
        Err(refused) => *refused,
    }
}

async fn apply(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    if let Err(refused) = authorize(&shared, &headers) {
        return *refused;
    }
    let request: ApplyRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            return (StatusCode::BAD_REQUEST, format!("the request is not one: {error}\n")).into_response();
        }
    };
    let running = shared.running.clone();
    let done = tokio::task::spawn_blocking(move || running.apply(request.program, request.dry_run)).await;
    match done {
        Ok(Ok(applied)) => Json(applied).into_response(),
        Ok(Err(Refusal::Program(refused))) => {
            (StatusCode::UNPROCESSABLE_ENTITY, Json(refused)).into_response()
        }
        Ok(Err(Refusal::Node(error))) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
        Ok(Err(Refusal::Stopping)) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the node is stopping\n").into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The token must be there and right. The comparison takes the same time wherever it differs.
fn authorize(shared: &Shared, headers: &HeaderMap) -> Result<(), Box<Response>> {
    let given = headers.get(header::AUTHORIZATION).and_then(|h| h.to_str().ok()?.strip_prefix("Bearer "));
    let given = given.unwrap_or_default().as_bytes();
    let token = shared.token.as_bytes();
    let differs = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    if given.len() == token.len() && differs == 0 {
        return Ok(());
    }
    let text = "this needs the node's token: Authorization: Bearer TOKEN\n";
    Err((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response().into())
}
