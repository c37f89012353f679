//! Filters between a stock client and stock servers: their guarantees hold over all workers and connections.

use crate::node::{Folder, Node, runtime, serve};
use shop::pb::cart_client::CartClient;
use shop::pb::cart_server::Cart;
use shop::pb::{CartReply, CartRequest};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

const CONNECTIONS: usize = 8;

/// The calls of a server, by user.
type CallTimes = Arc<Mutex<BTreeMap<String, Vec<(i64, Instant, Instant)>>>>;

/// A cart whose behaviour depends on the name of the user.
#[derive(Clone, Default)]
struct Moody {
    seen: CallTimes,
}

impl Moody {
    /// The number of calls of a user.
    fn n_calls(&self, user: &str) -> usize {
        self.seen.lock().expect("no panic").get(user).map_or(0, Vec::len)
    }

    /// Serves in a thread of its own until the process ends; returns its address.
    fn serve(&self) -> String {
        serve(self.clone())
    }
}

#[tonic::async_trait]
impl Cart for Moody {
    type WatchStream = ReceiverStream<Result<CartReply, Status>>;
    type ChatStream = ReceiverStream<Result<CartReply, Status>>;

    async fn add(&self, request: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        let CartRequest { user, object_id, quantity, .. } = request.into_inner();
        let began = Instant::now();
        let takes = if user.starts_with("slow") { 20 } else { u64::from(quantity.unsigned_abs()) };
        if takes > 0 {
            tokio::time::sleep(Duration::from_millis(takes)).await;
        }
        let mut seen = self.seen.lock().expect("no panic");
        let calls = seen.entry(user.clone()).or_default();
        calls.push((object_id, began, Instant::now()));
        if user.starts_with("flaky") && !calls.len().is_multiple_of(3) {
            return Err(Status::unavailable("not now"));
        }
        Ok(Response::new(CartReply { server: calls.len().to_string(), object_id, quantity }))
    }

    async fn get(&self, _: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        Err(Status::unimplemented("get"))
    }

    async fn watch(&self, _: Request<CartRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("watch"))
    }

    async fn upload(&self, _: Request<Streaming<CartRequest>>) -> Result<Response<CartReply>, Status> {
        Err(Status::unimplemented("upload"))
    }

    async fn chat(&self, _: Request<Streaming<CartRequest>>) -> Result<Response<Self::ChatStream>, Status> {
        Err(Status::unimplemented("chat"))
    }
}

/// A node with one filter, and clients on separate connections, which the workers share.
struct Test {
    cart: Moody,
    node: Node,
    _folder: Folder,
}

impl Test {
    fn new(workers: &str, filter: &str, stage: &str) -> Self {
        let (cart, folder) = (Moody::default(), Folder::new());
        let server = cart.serve();
        let program = format!(
            "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE FILTER {filter}
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS {stage}; END;
"
        );
        let program = folder.write("network.weft", &program);
        let node = Node::start(&folder, &program, &["--workers", workers]);
        Self { cart, node, _folder: folder }
    }

    async fn clients(&self) -> Vec<CartClient<Channel>> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = CartClient::connect(format!("http://{}", self.node.listener)).await;
            clients.push(client.expect("it listens"));
        }
        clients
    }
}

async fn add(mut client: CartClient<Channel>, user: String, object_id: i64) -> Result<CartReply, Status> {
    let request = CartRequest { user, object_id, ..CartRequest::default() };
    client.add(request).await.map(Response::into_inner)
}

/// A client would have to retry transient failures itself although the network promises it.
#[test]
fn retry_is_hidden_from_client() {
    let retry = "retry ON rpc AS\n  RETRY UP TO 3 WHEN status = UNAVAILABLE BACKOFF CONSTANT '1 ms';";
    let test = Test::new("2", retry, "retry");
    runtime().block_on(async {
        let clients = test.clients().await;
        let calls = (0..120).map(|nth| add(clients[nth % CONNECTIONS].clone(), format!("flaky-{nth}"), 1));
        let set: tokio::task::JoinSet<_> = calls.collect();
        let answers = set.join_all().await;
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_ok_and(|reply| reply.server == "3")),
            "{answers:?}"
        );
    });
    assert_eq!(test.cart.n_calls("flaky-7"), 3);
    assert_eq!(test.node.stop(), Some(0));
}

/// Two workers with separate queues would run calls of one key at the same time.
#[test]
fn calls_of_one_key_never_overlap() {
    for workers in ["1", "4"] {
        let test =
            Test::new(workers, "order ON rpc (user TEXT) AS\n  ORDER PER user;", "order (user := req.user)");
        runtime().block_on(async {
            let clients = test.clients().await;
            let calls = (0..120).map(|nth| {
                let user = format!("key-{}", nth % 3);
                let mut client = clients[nth % CONNECTIONS].clone();
                async move {
                    let request = CartRequest { user, quantity: 2, ..CartRequest::default() };
                    client.add(request).await.map(drop)
                }
            });
            let answers = calls.collect::<tokio::task::JoinSet<_>>().join_all().await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        });
        let seen = test.cart.seen.lock().expect("no panic");
        for calls in seen.values() {
            assert_eq!(calls.len(), 40);
            assert!(calls.windows(2).all(|pair| pair[0].2 <= pair[1].1), "{workers} workers: calls overlap");
        }
    }
}

/// Two workers with separate records of calls would send one call twice.
#[test]
fn same_id_reaches_server_once() {
    for workers in ["1", "4"] {
        let once =
            "once ON rpc AS\n  RELIABILITY AT LEAST ONCE ID coalesce(header['x-id'], '') WINDOW '60 s';";
        let test = Test::new(workers, once, "once");
        runtime().block_on(async {
            let clients = test.clients().await;
            let calls = (0..160).map(|nth| {
                let mut client = clients[nth % CONNECTIONS].clone();
                async move {
                    let user = format!("slow-{}", nth % 10);
                    let mut request =
                        Request::new(CartRequest { user: user.clone(), ..CartRequest::default() });
                    request.metadata_mut().insert("x-id", user.parse().expect("it is ASCII"));
                    client.add(request).await.map(Response::into_inner)
                }
            });
            let answers = calls.collect::<tokio::task::JoinSet<_>>().join_all().await;
            assert!(
                answers.iter().all(|answer| answer.as_ref().is_ok_and(|reply| reply.server == "1")),
                "{answers:?}"
            );
        });
        (0..10).for_each(|nth| assert_eq!(test.cart.n_calls(&format!("slow-{nth}")), 1, "{workers} workers"));
    }
}

/// Two workers with separate schedules would allow twice the rate.
#[test]
fn pace_holds_over_all_workers() {
    for workers in ["1", "4"] {
        let test =
            Test::new(workers, "pace ON rpc AS\n  PACE TO 200 PER SECOND QUEUE 1000 WAIT '10 s';", "pace");
        runtime().block_on(async {
            let clients = test.clients().await;
            let calls =
                (0..200).map(|nth| add(clients[nth % CONNECTIONS].clone(), "ann".to_owned(), nth as i64));
            let answers = calls.collect::<tokio::task::JoinSet<_>>().join_all().await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        });
        let seen = test.cart.seen.lock().expect("no panic");
        let began: Vec<Instant> = seen["ann"].iter().map(|(_, began, _)| *began).collect();
        let (first, last) = (began.iter().min().expect("some came"), began.iter().max().expect("some came"));
        let rate = (began.len() - 1) as f64 / (*last - *first).as_secs_f64();
        // A busy machine may delay the first call, or the last; two schedules would give twice the rate.
        assert!((120.0..=260.0).contains(&rate), "{workers} workers: {rate:.1} calls a second");
    }
}

/// With a breaker per worker, each worker would go on failing until its own one opens.
#[test]
fn open_circuit_holds_on_all_workers() {
    let circuit = "circuit ON rpc AS\n  CIRCUIT AFTER 3 ERRORS OPEN FOR '60 s';";
    let test = Test::new("4", circuit, "circuit");
    runtime().block_on(async {
        let clients = test.clients().await;
        for nth in 0..40 {
            // A new user each time, whose first call fails.
            let answer = add(clients[nth % CONNECTIONS].clone(), format!("flaky-{nth}"), 1).await;
            let status = answer.expect_err("every call fails");
            assert_eq!(status.code(), Code::Unavailable);
            let is_open = status.message() == "filter `circuit`: the circuit is open";
            assert_eq!(is_open, nth >= 3, "call {nth}: {status}");
        }
    });
    let n_calls: usize = (0..40).map(|nth| test.cart.n_calls(&format!("flaky-{nth}"))).sum();
    assert_eq!(n_calls, 3);
}
