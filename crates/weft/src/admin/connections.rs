//! The connections of the admin endpoint: their number, and the time that each may take.
//!
//! Any peer that reaches the port can open connections, with or without a token. So their number and their memory are
//! bounded, and a new connection replaces the oldest one that waits for its client. Half-open requests cannot block
//! other clients.

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use weft_api::REQUEST_BYTES_MAX;

/// The maximum number of open connections. Each has one of the descriptors that the data plane leaves free
/// ([`weft_io::descriptors::RESERVED`]).
pub(super) const CONNECTIONS_MAX: usize = 32;
/// The largest head of a request, and the read buffer of a connection, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A connection without a complete request head after this time is closed.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// A client that has not read the whole answer after this time loses the rest.
const SEND_TIME_MAX: Duration = Duration::from_secs(60);
/// After a failed accept, the wait before the next one.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// At the end, requests in progress get this much time.
const END_MAX: Duration = Duration::from_millis(500);

/// A body that is incomplete after this time is refused.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// The maximum number of bodies in memory, each of at most [`REQUEST_BYTES_MAX`]; further ones wait in their sockets.
const BODIES_MAX: usize = 4;

/// Limits the number of bodies in memory, and the time to receive each.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    room: Arc<Semaphore>,
    time: Duration,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(BODIES_MAX)), time: BODY_TIME_MAX }
    }
}

/// The time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    head: Duration,
    send: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { head: HEAD_TIME_MAX, send: SEND_TIME_MAX }
    }
}

/// An open connection, with what is needed to close it early.
struct Open {
    task: AbortHandle,
    /// The node is working on the answer: the connection does not wait for its client.
    is_served: Arc<AtomicBool>,
}

/// Serves requests, one per connection, until `stop` completes.
pub(super) async fn serve(listener: TcpListener, app: Router, times: Times, stop: impl Future) {
    let (mut open, mut tasks) = (VecDeque::<Open>::new(), JoinSet::new());
    let mut stop = core::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        // Discard the results of finished connections.
        while tasks.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        open.retain(|connection| !connection.task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            match open.iter().position(|connection| !connection.is_served.load(Relaxed)) {
                Some(oldest) => open.remove(oldest).expect("it was found").task.abort(),
                // The node is working for all of them: close the new one.
                None => continue,
            }
        }
        assert!(open.len() < CONNECTIONS_MAX, "the number of connections is bounded");
        let is_served = Arc::new(AtomicBool::new(false));
        let task = tasks.spawn(converse(stream, app.clone(), times, Arc::clone(&is_served)));
        open.push_back(Open { task, is_served });
    }
    for connection in open.iter().filter(|connection| !connection.is_served.load(Relaxed)) {
        connection.task.abort();
    }
    let _ = tokio::time::timeout(END_MAX, async { while tasks.join_next().await.is_some() {} }).await;
}

/// Serves one request.
async fn converse(stream: TcpStream, app: Router, times: Times, is_served: Arc<AtomicBool>) {
    let answered = Notify::new();
    let app = TowerToHyperService::new(app);
    let answer = |request: Request<Incoming>| {
        is_served.store(true, Relaxed);
        let answer = app.call(request);
        async {
            let answer = answer.await;
            is_served.store(false, Relaxed);
            answered.notify_one();
            answer
        }
    };
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(times.head)
        .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer));
    let late = async {
        answered.notified().await;
        tokio::time::sleep(times.send).await;
    };
    tokio::select! {
        // A client that hangs up, or does not speak HTTP, is no error of ours.
        _ = connection => {}
        () = late => {}
    }
}

/// Reads the whole body before the request is handled.
pub(super) async fn take_body(State(bodies): State<Bodies>, request: Request, next: Next) -> Response {
    let bytes = request.body().size_hint().lower();
    if bytes > REQUEST_BYTES_MAX as u64 {
        return too_long();
    }
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // Held until the request is answered, as long as the body may be in memory.
    let _room = bodies.room.acquire().await.expect("it is never closed");
    let (head, body) = request.into_parts();
    match tokio::time::timeout(bodies.time, to_bytes(body, REQUEST_BYTES_MAX)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(_)) => too_long(),
        Err(_) => {
            let text = format!("the body did not come within {} s\n", bodies.time.as_secs_f64());
            (StatusCode::REQUEST_TIMEOUT, text).into_response()
        }
    }
}

fn too_long() -> Response {
    let text = format!("a body has {} MiB at most\n", REQUEST_BYTES_MAX >> 20);
    (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use axum::extract::DefaultBodyLimit;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;
    use tokio::sync::oneshot;

    /// A generous limit: with a correct server, no step takes this long.
    const SOON: Duration = Duration::from_secs(4);

    struct Server {
        address: SocketAddr,
        stop: oneshot::Sender<()>,
        thread: std::thread::JoinHandle<()>,
    }

    fn serve(times: Times) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("it may");
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let large = || async { "x".repeat(64 << 20) };
            let bodies = Bodies { time: times.head, ..Bodies::default() };
            let app = Router::new()
                .route("/", get(|| async { "ok\n" }).post(|body: Bytes| async move { body }))
                .route_layer(from_fn_with_state(bodies, take_body))
                .layer(DefaultBodyLimit::disable())
                .route("/large", get(large));
            runtime.expect("it starts").block_on(async move {
                let listener = TcpListener::from_std(listener).expect("it does not block");
                super::serve(listener, app, times, stopped).await;
            });
        });
        Server { address, stop, thread }
    }

    fn connect(server: &Server, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("it may");
        stream.write_all(text.as_bytes()).expect("it is open");
        stream
    }

    fn answer(server: &Server) -> String {
        let mut answer = String::new();
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        connect(server, request).read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[test]
    fn half_open_requests_leave_room() {
        // Any user of the machine could take all descriptors of a node, or lock its operator out.
        let hour = Duration::from_secs(3600);
        let server = serve(Times { head: hour, send: hour });
        let half: Vec<_> =
            (0..3 * CONNECTIONS_MAX).map(|_| connect(&server, "GET / HTTP/1.1\r\nHo")).collect();
        assert!(answer(&server).ends_with("ok\n"));
        let is_closed = |mut stream: &TcpStream| {
            stream.set_nonblocking(true).expect("it may");
            !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        };
        let n_open = half.iter().filter(|stream| !is_closed(stream)).count();
        assert!((1..CONNECTIONS_MAX).contains(&n_open), "{n_open} of {} are open", half.len());
        let begun = Instant::now();
        server.stop.send(()).expect("it runs");
        server.thread.join().expect("no panic");
        assert!(begun.elapsed() < SOON, "half a request holds up the end of the node");
    }

    #[test]
    fn late_head_closes_connection() {
        // Silent connections would stay for ever.
        let short = Duration::from_millis(100);
        let server = serve(Times { head: short, send: short });
        for text in ["", "GET / HTTP/1.1\r\nHo"] {
            let mut rest = Vec::new();
            connect(&server, text).read_to_end(&mut rest).expect("it is closed before the time is over");
        }
        assert!(answer(&server).ends_with("ok\n"));
    }

    #[test]
    fn slow_or_long_body_is_refused() {
        // A client could choose the memory and the time of a change.
        let server = serve(Times { head: Duration::from_millis(100), send: SOON });
        let post = |length: usize, body: &str| {
            let head = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
            let mut answer = String::new();
            let _ = connect(&server, &(head + body)).read_to_string(&mut answer);
            answer
        };
        assert!(post(4, "body").ends_with("\r\n\r\nbody"));
        let late = post(1_000_000, "x");
        assert!(late.starts_with("HTTP/1.1 408") && late.contains("within 0.1 s"), "{late}");
        assert!(post(REQUEST_BYTES_MAX + 1, "x").starts_with("HTTP/1.1 413"));
    }

    #[test]
    fn unread_answer_closes_connection() {
        // Clients that read nothing would keep the memory of their answers.
        let short = Duration::from_millis(100);
        let server = serve(Times { head: SOON, send: short });
        let mut stream = connect(&server, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
        std::thread::sleep(10 * short);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 64 << 20, "{} bytes", rest.len());
    }

    #[test]
    fn long_head_is_refused() {
        // A client could choose the memory of a connection.
        let server = serve(Times::default());
        let head =
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("it may");
        let _ = stream.write_all(head.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!String::from_utf8_lossy(&answer).contains(" 200 "), "{answer:?}");
    }
}
