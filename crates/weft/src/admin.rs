//! The admin endpoint: HTTP on loopback, on a thread of its own.
//!
//! `/healthz` and, unless [`Access`] says otherwise, `/metrics` need no token; all other paths do. A request whose
//! `Host` is a name other than `localhost` is refused, so that no web page can reach the endpoint through a browser by
//! its own name (DNS rebinding).

use crate::fault::Fault;
use crate::running::resident_bytes;
use crate::running::{Health, Refusal, Running};
use crate::token::TokenFile;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use connections::{Bodies, Times, take_body};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};
use weft_api::{
    ApplyRequest, AtFault, EndRecordingRequest, QueryRequest, RECORDING_RETENTION_SECONDS, RecordRequest,
    RowsRequest,
};
use weft_control::metrics;
use weft_core::text::escape_lines;

mod connections;

/// A node that does not answer within this time is unhealthy.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Threads that wait for the node, so that the endpoint's own thread never does.
const WAITING_THREADS_MAX: usize = 16;
/// At the end, threads that still wait for the node get this much time.
const END_MAX: Duration = Duration::from_millis(500);

/// The endpoint, until it is dropped.
pub(crate) struct Admin {
    address: SocketAddr,
    /// Keeps the file on the disk as long as the endpoint exists.
    _token: TokenFile,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the endpoint serves without a token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    /// `/metrics` needs the token, too.
    pub(crate) private_metrics: bool,
}

#[derive(Clone)]
struct Shared {
    running: Running,
    token: Arc<str>,
    /// Held while a program is applied. Later requests wait for this lock, not on a thread.
    turn: Arc<Mutex<()>>,
}

/// Checks the endpoint's address: other machines may reach it only if the user says so.
pub(crate) fn check_address(address: SocketAddr, anywhere: bool) -> Result<(), Fault> {
    if address.ip().is_loopback() || anywhere {
        return Ok(());
    }
    Err(Fault::usage(format!(
        "the admin endpoint would be open to other machines at {address}; say --admin-anywhere if it shall"
    )))
}

/// Binds the endpoint, before anything else starts.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address).map_err(|error| {
        Fault::environment(format!("the admin endpoint cannot listen on {address}: {error}"))
            .with_help("another node may be running: choose another port with --admin 127.0.0.1:PORT")
    })
}

impl Admin {
    /// Serves on a bound socket.
    pub(crate) fn start(listener: TcpListener, running: Running, access: Access) -> Result<Self, Fault> {
        let address = listener.local_addr().map_err(Fault::environment)?;
        let token = TokenFile::create(address)?;
        let shared = Shared { running, token: token.token.as_str().into(), turn: Arc::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        listener.set_nonblocking(true).map_err(Fault::environment)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WAITING_THREADS_MAX)
            .build()
            .map_err(Fault::environment)?;
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("the socket does not block");
            connections::serve(listener, router(shared, access), Times::default(), stopped).await;
        };
        let thread = std::thread::Builder::new()
            .name("weft-admin".to_owned())
            .spawn(move || {
                runtime.block_on(serve);
                runtime.shutdown_timeout(END_MAX);
            })
            .map_err(Fault::environment)?;
        Ok(Self { address, _token: token, stop: Some(stop), thread: Some(thread) })
    }

    /// The bound address.
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

/// The routes of the admin endpoint. The private ones check the token first.
fn router(shared: Shared, access: Access) -> Router {
    // Check the token before reading a byte of the body.
    let private = Router::new()
        .route("/v1/status", get(serve_status))
        .route("/v1/program", get(serve_program))
        .route("/v1/tables", get(serve_tables))
        .route("/v1/apply", post(apply))
        .route("/v1/query", post(query))
        .route("/v1/rows", post(put_rows))
        .route("/v1/recordings", get(serve_recordings).post(record))
        .route("/v1/recordings/take", post(take_recording))
        .route_layer(from_fn_with_state(Bodies::default(), take_body))
        .route_layer(from_fn_with_state(shared.clone(), check_token));
    let mut metrics = Router::new().route("/metrics", get(serve_metrics));
    if access.private_metrics {
        metrics = metrics.route_layer(from_fn_with_state(shared.clone(), check_token));
    }
    Router::new()
        .route("/healthz", get(serve_health))
        .merge(metrics)
        .merge(private)
        // `take_body` has the limit, and no other route reads a body.
        .layer(DefaultBodyLimit::disable())
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

/// Requires the right token. The comparison takes the same time for every wrong token.
async fn check_token(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|h| h.to_str().ok()?.strip_prefix("Bearer ")).unwrap_or_default().as_bytes();
    let token = shared.token.as_bytes();
    let differs = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    if given.len() == token.len() && differs == 0 {
        return next.run(request).await;
    }
    let text = "this needs the node's token: Authorization: Bearer TOKEN\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
}

async fn serve_health(State(shared): State<Shared>) -> Response {
    match ask(&shared, Running::health).await {
        Ok(Health::Serving) => "ok\n".into_response(),
        Ok(unwell) => unavailable(why(unwell)),
        Err(unanswered) => *unanswered,
    }
}

async fn serve_metrics(State(shared): State<Shared>) -> Response {
    let page = |running: &Running| {
        let stats = running.stats().ok_or_else(|| running.health())?;
        let sinks = running.sink_metrics().values();
        Ok(metrics::render(&stats, &sinks, &running.rows_refused(), resident_bytes()))
    };
    match ask(&shared, page).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Ok(Err(unwell)) => unavailable(why(unwell)),
        Err(unanswered) => *unanswered,
    }
}

async fn serve_status(State(shared): State<Shared>) -> Response {
    match ask(&shared, |running| running.status().ok_or_else(|| running.health())).await {
        Ok(Ok(status)) => json(&status),
        Ok(Err(unwell)) => unavailable(why(unwell)),
        Err(unanswered) => *unanswered,
    }
}

async fn serve_program(State(shared): State<Shared>) -> Response {
    json(&shared.running.program())
}

async fn serve_tables(State(shared): State<Shared>) -> Response {
    match ask(&shared, Running::tables).await {
        Ok(tables) => json(&tables),
        Err(unanswered) => *unanswered,
    }
}

async fn query(State(shared): State<Shared>, body: Bytes) -> Response {
    match serde_json::from_slice(&body) {
        Ok(QueryRequest { text }) => change(shared, move |running| running.query(&text)).await,
        Err(error) => bad_request(&error),
    }
}

async fn put_rows(State(shared): State<Shared>, body: Bytes) -> Response {
    match serde_json::from_slice::<RowsRequest>(&body) {
        Ok(request) => change(shared, move |running| running.put_rows(&request)).await,
        Err(error) => bad_request(&error),
    }
}

async fn serve_recordings(State(shared): State<Shared>) -> Response {
    match ask(&shared, Running::recordings).await {
        Ok(recordings) => json(&recordings),
        Err(unanswered) => *unanswered,
    }
}

/// Begins a recording. Drops it some time after its end if no client fetches it.
async fn record(State(shared): State<Shared>, body: Bytes) -> Response {
    let request = match serde_json::from_slice::<RecordRequest>(&body) {
        Ok(request) => request,
        Err(error) => return bad_request(&error),
    };
    let watched = shared.clone();
    let runtime = tokio::runtime::Handle::current();
    let begin = move |running: &Running| {
        let id = running.record(&request)?;
        let kept =
            Duration::from_secs_f64(request.seconds) + Duration::from_secs(RECORDING_RETENTION_SECONDS);
        runtime.spawn(async move {
            tokio::time::sleep(kept).await;
            let _ = ask(&watched, move |running| running.forget_recording(&request.link, id)).await;
        });
        Ok(())
    };
    change(shared, begin).await
}

async fn take_recording(State(shared): State<Shared>, body: Bytes) -> Response {
    let request = match serde_json::from_slice::<EndRecordingRequest>(&body) {
        Ok(request) => request,
        Err(error) => return bad_request(&error),
    };
    match ask(&shared, move |running| running.take_recording(&request.link)).await {
        Ok(Some(text)) => text.into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, "there is no such recording\n").into_response(),
        Err(unanswered) => *unanswered,
    }
}

async fn apply(State(shared): State<Shared>, body: Bytes) -> Response {
    match serde_json::from_slice::<ApplyRequest>(&body) {
        Ok(ApplyRequest { program, dry_run, by }) => {
            change(shared, move |running| running.apply(program, dry_run, &by)).await
        }
        Err(error) => bad_request(&error),
    }
}

/// Changes the node, one change after the other.
async fn change<T: serde::Serialize + Send + 'static>(
    shared: Shared,
    change: impl FnOnce(&Running) -> Result<T, Refusal> + Send + 'static,
) -> Response {
    let running = shared.running.clone();
    let turn = shared.turn.lock_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let done = change(&running);
        // Held until here even if the client has hung up.
        drop(turn);
        done
    });
    match done.await {
        Ok(Ok(done)) => json(&done),
        Ok(Err(Refusal::Refused(refused))) => {
            let status = match refused.at_fault {
                AtFault::Program => StatusCode::UNPROCESSABLE_ENTITY,
                AtFault::Environment => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, json(&refused)).into_response()
        }
        Ok(Err(Refusal::Stopping)) => unavailable("the node is stopping"),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Calls the node on a thread that may wait: the node may be applying a plan, and workers answer only between batches.
async fn ask<T: Send + 'static>(
    shared: &Shared,
    question: impl FnOnce(&Running) -> T + Send + 'static,
) -> Result<T, Box<Response>> {
    let running = shared.running.clone();
    let answer = tokio::task::spawn_blocking(move || question(&running));
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Box::new(unavailable(&error.to_string()))),
        Err(_) if shared.turn.try_lock().is_err() => Err(Box::new(unavailable(
            "it is busy with a query or another change; traffic goes on: ask again",
        ))),
        Err(_) => Err(Box::new(unavailable("the workers do not answer"))),
    }
}

/// JSON with control characters escaped, for a terminal.
fn json(data: &impl serde::Serialize) -> Response {
    let text = serde_json::to_string(data).expect("it is data");
    ([(header::CONTENT_TYPE, "application/json")], escape_lines(&text).into_owned()).into_response()
}

fn bad_request(error: &serde_json::Error) -> Response {
    (StatusCode::BAD_REQUEST, format!("the request is not one: {error}\n")).into_response()
}

/// Why a node does not answer.
fn why(health: Health) -> &'static str {
    match health {
        Health::WorkerLost => "a worker has ended",
        Health::Serving | Health::Stopping => "the node is stopping",
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
