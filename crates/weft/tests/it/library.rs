//! Elements of the library between a stock client and stock servers.

use crate::node::{Folder, Node, output, runtime, serve, weft};
use shop::pb::cart_client::CartClient;
use shop::pb::cart_server::Cart;
use shop::pb::{CartReply, CartRequest};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

/// A named cart server with a configurable delay, and with a configurable load report.
#[derive(Clone, Default)]
pub(crate) struct Named {
    name: &'static str,
    takes: Duration,
    /// It answers nothing while this is set.
    pub(crate) is_held: Arc<AtomicBool>,
    load: Option<&'static str>,
    /// The error that it answers with instead of a reply.
    fails: Option<Code>,
    /// Metadata of the calls, a line each.
    came: Arc<Mutex<Vec<String>>>,
    n_calls: Arc<AtomicUsize>,
    /// The payload of the last call.
    pub(crate) payload: Arc<Mutex<Vec<u8>>>,
}

impl Named {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn n_calls(&self) -> usize {
        self.n_calls.load(Relaxed)
    }

    /// Serves in a thread of its own until the process ends; returns its address.
    pub(crate) fn serve(&self) -> String {
        serve(self.clone())
    }

    async fn answer(&self, request: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        self.n_calls.fetch_add(1, Relaxed);
        self.came.lock().expect("no panic").push(format!("{:?}", request.metadata()));
        tokio::time::sleep(self.takes).await;
        while self.is_held.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if let Some(code) = self.fails {
            return Err(Status::new(code, "as told"));
        }
        let CartRequest { object_id, quantity, payload, .. } = request.into_inner();
        *self.payload.lock().expect("no panic") = payload.to_vec();
        let mut response = Response::new(CartReply { server: self.name.to_owned(), object_id, quantity });
        if let Some(load) = self.load {
            response.metadata_mut().insert("x-load", load.parse().expect("a header"));
        }
        Ok(response)
    }
}

#[tonic::async_trait]
impl Cart for Named {
    type WatchStream = ReceiverStream<Result<CartReply, Status>>;
    type ChatStream = ReceiverStream<Result<CartReply, Status>>;

    async fn add(&self, request: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        self.answer(request).await
    }

    async fn get(&self, request: Request<CartRequest>) -> Result<Response<CartReply>, Status> {
        self.answer(request).await
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

/// A node with a chain of these library elements, in front of the cluster `cart` of these servers.
pub(crate) struct Test {
    pub(crate) node: Node,
    pub(crate) folder: Folder,
}

impl Test {
    pub(crate) fn new(elements: &[&str], servers: &[String], stages: &str, more: &str) -> Self {
        let folder = Folder::new();
        let mut program = String::new();
        for element in elements {
            let _ = writeln!(program, "IMPORT 'library/elements/{element}.weft';");
        }
        let members = servers.iter().map(|server| format!("'{server}'")).collect::<Vec<_>>().join(", ");
        let _ = write!(
            program,
            "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO {members};
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS {stages}; END;
{}",
            more.replace("FOLDER", &folder.0.display().to_string())
        );
        Self::run(folder, &program)
    }

    fn run(folder: Folder, program: &str) -> Self {
        let program = folder.write("network.weft", program);
        let node = Node::start(&folder, &program, &["--workers", "2"]);
        Self { node, folder }
    }

    pub(crate) async fn client(&self) -> Client {
        Client(CartClient::connect(format!("http://{}", self.node.listener)).await.expect("it listens"))
    }
}

#[derive(Clone)]
pub(crate) struct Client(pub(crate) CartClient<Channel>);

impl Client {
    /// The server that answered.
    async fn get(&mut self, user: &str) -> Result<String, Code> {
        self.get_with(user, None).await
    }

    pub(crate) async fn get_with(
        &mut self,
        user: &str,
        header: Option<(&'static str, &str)>,
    ) -> Result<String, Code> {
        let message = CartRequest { user: user.to_owned(), object_id: 7, ..CartRequest::default() };
        let mut request = Request::new(message);
        if let Some((name, value)) = header {
            request.metadata_mut().insert(name, value.parse().expect("a header"));
        }
        let reply = self.0.get(request).await;
        reply.map(|reply| reply.into_inner().server).map_err(|status| status.code())
    }

    async fn add(&mut self, user: &str) -> Result<String, Code> {
        let message = CartRequest { user: user.to_owned(), ..CartRequest::default() };
        let reply = self.0.add(message).await;
        reply.map(|reply| reply.into_inner().server).map_err(|status| status.code())
    }

    /// The number of answers of each server for `n` calls, one after the other.
    async fn count(&mut self, n: usize, user: impl Fn(usize) -> String) -> BTreeMap<String, usize> {
        let mut by_server = BTreeMap::new();
        for nth in 0..n {
            let server = self.get(&user(nth)).await.expect("it is answered");
            *by_server.entry(server).or_default() += 1;
        }
        by_server
    }
}

/// A cache would still ask a server, or give one user the answer of another.
#[test]
fn cache_repeats_answers() {
    let cart = Named::new("cart-1");
    let stage = "cache (ttl = '400 ms', shared = TRUE, key := user)";
    let test = Test::new(&["cache"], &[cart.serve()], stage, "");
    runtime().block_on(async {
        let mut client = test.client().await;
        for _ in 0..5 {
            assert_eq!(client.get("ann").await, Ok("cart-1".to_owned()));
        }
        assert_eq!(cart.n_calls(), 1);
        assert_eq!(client.get("bob").await, Ok("cart-1".to_owned()));
        assert_eq!(cart.n_calls(), 2);
        tokio::time::sleep(Duration::from_millis(450)).await;
        assert_eq!(client.get("ann").await, Ok("cart-1".to_owned()));
        assert_eq!(cart.n_calls(), 3);
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// A balancer that does not know the members of the cluster would send nothing, or everything to one.
#[test]
fn balancers_spread_calls() {
    let servers = [Named::new("cart-1"), Named::new("cart-2")].map(|cart| cart.serve());
    let spread = |element: &str, stage: &str, users: fn(usize) -> String| {
        let test = Test::new(&[element], &servers, stage, "");
        let by_server = runtime().block_on(async { test.client().await.count(60, users).await });
        assert_eq!(test.node.stop(), Some(0));
        (by_server.get("cart-1").copied().unwrap_or(0), by_server.get("cart-2").copied().unwrap_or(0))
    };
    let one = |_| "ann".to_owned();
    let many = |nth| format!("user-{nth}");
    assert_eq!(spread("round_robin_lb", "round_robin_lb", one), (30, 30));
    assert_eq!(
        spread("least_loaded_lb", "least_loaded_lb", one),
        (60, 0),
        "nothing is under way between calls"
    );
    let (first, second) = spread("random_lb", "random_lb", one);
    assert!(first >= 10 && second >= 10, "{first} and {second}");
    for stage in [("hash_lb", "hash_lb (key := user)"), ("sticky_lb", "sticky_lb (session := user)")] {
        let (first, second) = spread(stage.0, stage.1, many);
        assert!(first >= 10 && second >= 10, "{stage:?}: {first} and {second}");
        let (first, second) = spread(stage.0, stage.1, one);
        assert_eq!((first.min(second), first + second), (0, 60), "{stage:?}: one user, two servers");
    }
}

/// A new server would get no calls without a second entry, and calls to a removed one would fail.
#[test]
fn cluster_members_join_and_leave() {
    let servers = ["cart-1", "cart-2", "cart-3"].map(|name| Named::new(name).serve());
    let program = |members: &[&str]| {
        let members = members.iter().map(|server| format!("'{server}'")).collect::<Vec<_>>().join(", ");
        format!(
            "IMPORT 'library/elements/round_robin_lb.weft';
CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO {members};
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS round_robin_lb; END;
"
        )
    };
    let test = Test::run(Folder::new(), &program(&[&servers[0], &servers[1]]));
    let names = |by_server: BTreeMap<String, usize>| by_server.into_keys().collect::<Vec<_>>();
    runtime().block_on(async {
        let mut client = test.client().await;
        assert_eq!(names(client.count(12, |_| "ann".to_owned()).await), ["cart-1", "cart-2"]);
        let next = test.folder.write("next.weft", &program(&[&servers[2], &servers[1]]));
        let applied = output(weft(&test.folder).args(["apply", "--admin", &test.node.admin]).arg(&next));
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        assert_eq!(names(client.count(12, |_| "ann".to_owned()).await), ["cart-2", "cart-3"]);
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// A busy server would get as many calls as an idle one.
#[test]
fn open_calls_count_as_load() {
    let slow = Named { takes: Duration::from_secs(1), ..Named::new("slow") };
    let quick = Named::new("quick");
    let servers = [slow.serve(), quick.serve()];
    for element in ["least_loaded_lb", "power_of_two_lb"] {
        let stage = if element == "power_of_two_lb" {
            "power_of_two_lb (said := header.\"x-load\")"
        } else {
            element
        };
        let test = Test::new(&[element], &servers, stage, "");
        runtime().block_on(async {
            let mut client = test.client().await;
            // This call keeps its server busy for a while; if it is the quick server, the next call goes to the other.
            let mut other = client.clone();
            let before = slow.n_calls();
            let busy = tokio::spawn(async move { while other.get("ann").await != Ok("slow".to_owned()) {} });
            while slow.n_calls() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(
                client.count(20, |_| "bob".to_owned()).await,
                BTreeMap::from([("quick".to_owned(), 20)])
            );
            busy.await.expect("no panic");
        });
        assert_eq!(test.node.stop(), Some(0));
    }
}

/// A server's own load report would be ignored.
#[test]
fn reported_load_counts() {
    let tired = Named { load: Some("12.5"), ..Named::new("tired") };
    let fresh = Named { load: Some("0.5"), ..Named::new("fresh") };
    let stage = "power_of_two_lb (said := header.\"x-load\")";
    let test = Test::new(&["power_of_two_lb"], &[tired.serve(), fresh.serve()], stage, "");
    let by_server = runtime().block_on(async { test.client().await.count(40, |_| "ann".to_owned()).await });
    assert!(by_server["fresh"] >= 38, "{by_server:?}");
    assert_eq!(test.node.stop(), Some(0));
}

/// A slow server would get half of the calls, or a server that fails at once all of them.
#[test]
fn prequal_avoids_slow_servers() {
    let slow = Named { takes: Duration::from_millis(150), ..Named::new("slow") };
    let quick = Named { takes: Duration::from_millis(1), ..Named::new("quick") };
    let broken = Named { fails: Some(Code::Unavailable), ..Named::new("broken") };
    let servers = [slow.serve(), broken.serve(), quick.serve()];
    let test = Test::new(&["prequal_lb"], &servers, "prequal_lb (explore = 0.02)", "");
    runtime().block_on(async {
        let mut client = test.client().await;
        for _ in 0..100 {
            let _ = client.get("ann").await;
        }
    });
    assert!(quick.n_calls() >= 75, "{} of 100 calls to the quick server", quick.n_calls());
    assert!(slow.n_calls() >= 1 && broken.n_calls() >= 1);
    assert_eq!(test.node.stop(), Some(0));
}

/// A user would move between versions from call to call, or stay on one that fails.
#[test]
fn canary_is_sticky_until_failure() {
    let (old, new) = (Named::new("old"), Named::new("new"));
    let bad = Named { fails: Some(Code::Internal), ..Named::new("bad") };
    let canary = |next: &Named| {
        let more = format!("CREATE CLUSTER cart_v2 TO '{}';", next.serve());
        let stage = "canary (percent = 50, target = 'cart_v2', errors_max = 3, user := user)";
        Test::new(&["canary"], &[old.serve()], stage, &more)
    };
    let test = canary(&new);
    let users = |nth: usize| format!("user-{}", nth % 20);
    runtime().block_on(async {
        let mut client = test.client().await;
        let mut homes = BTreeMap::new();
        for nth in 0..60 {
            let server = client.get(&users(nth)).await.expect("it is answered");
            let home = homes.entry(users(nth)).or_insert_with(|| server.clone());
            assert_eq!(*home, server, "{} was moved", users(nth));
        }
        let n_new = homes.values().filter(|home| *home == "new").count();
        assert!((5..=15).contains(&n_new), "{n_new} of 20 users on the new version");
    });
    assert_eq!(test.node.stop(), Some(0));
    let test = canary(&bad);
    runtime().block_on(async {
        let mut client = test.client().await;
        let mut failed = 0;
        for nth in 0..60 {
            failed += usize::from(client.get(&users(nth)).await.is_err());
        }
        assert_eq!((failed, bad.n_calls()), (3, 3));
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// A header would not lead to the other version, or every call would.
#[test]
fn header_selects_version() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let more = format!("CREATE CLUSTER cart_b TO '{}';", b.serve());
    let stage = "ab_header (value = 'b', target = 'cart_b', variant := header.\"x-variant\")";
    let test = Test::new(&["ab_header"], &[a.serve()], stage, &more);
    runtime().block_on(async {
        let mut client = test.client().await;
        assert_eq!(client.get_with("ann", Some(("x-variant", "b"))).await, Ok("b".to_owned()));
        assert_eq!(client.get_with("ann", Some(("x-variant", "a"))).await, Ok("a".to_owned()));
        assert_eq!(client.get("ann").await, Ok("a".to_owned()));
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// A failing server would get every call, or none after its recovery.
#[test]
fn circuit_opens_then_probes() {
    let cart = Named { fails: Some(Code::Unavailable), ..Named::new("cart-1") };
    let stage = "circuit_breaker (failures = 3, pause = '300 ms')";
    let test = Test::new(&["circuit_breaker"], &[cart.serve()], stage, "");
    runtime().block_on(async {
        let mut client = test.client().await;
        for _ in 0..20 {
            assert_eq!(client.get("ann").await, Err(Code::Unavailable));
        }
        assert_eq!(cart.n_calls(), 3);
        tokio::time::sleep(Duration::from_millis(350)).await;
        for _ in 0..5 {
            let _ = client.get("ann").await;
        }
        assert_eq!(cart.n_calls(), 4);
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// A server that refuses calls would still get all of them.
#[test]
fn admission_tracks_accepted_rate() {
    let cart = Named { fails: Some(Code::ResourceExhausted), ..Named::new("cart-1") };
    let test = Test::new(&["admission_control"], &[cart.serve()], "admission_control", "");
    runtime().block_on(async {
        let mut client = test.client().await;
        for _ in 0..200 {
            let _ = client.get("ann").await;
        }
    });
    // With none accepted the n-th call is sent with probability 1 / n: some six of 200.
    assert!(cart.n_calls() <= 30, "{} of 200 calls were sent", cart.n_calls());
    assert_eq!(test.node.stop(), Some(0));
}

/// A call would go to a server that has no state for it.
#[test]
fn session_affinity_keeps_server() {
    let servers = [Named::new("cart-1"), Named::new("cart-2")].map(|cart| cart.serve());
    let folder = Folder::new();
    // With one chain for both methods, streams would have to wait for a message: the shop's two methods stay out of it.
    let program = format!(
        "IMPORT 'library/elements/session_affinity_after.weft';
CREATE TYPE cart FROM PROTO 'two.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{}', '{}';
CREATE CHAIN shop ON frontend -> cart AS
  session_affinity_after (first = '/shop.Cart/Add', second = '/shop.Cart/Get', session := user);
END;
",
        servers[0], servers[1]
    );
    let proto = fs::read_to_string(crate::node::shop_proto()).expect("it is there");
    let unary = proto.lines().filter(|line| !line.contains("stream ")).collect::<Vec<_>>().join("\n");
    folder.write("two.proto", &unary);
    let test = Test::run(folder, &program);
    runtime().block_on(async {
        let mut client = test.client().await;
        assert_eq!(client.get("ann").await, Err(Code::FailedPrecondition));
        for nth in 0..6 {
            let user = format!("user-{nth}");
            let server = client.add(&user).await.expect("it is answered");
            for _ in 0..3 {
                assert_eq!(client.get(&user).await, Ok(server.clone()));
            }
        }
    });
    assert_eq!(test.node.stop(), Some(0));
}

/// A shadow's answer would reach the caller, or a different answer would not be noticed.
#[test]
fn shadow_answers_stay_hidden() {
    let (old, same, other) = (Named::new("old"), Named::new("old"), Named::new("new"));
    for (next, n_differ) in [(&same, 0), (&other, 8)] {
        let more = format!(
            "CREATE LISTENER shadows ON unix 'FOLDER/shadows.sock';
CREATE CLUSTER to_shadows TO 'unix:FOLDER/shadows.sock';
CREATE CLUSTER cart_v2 TO '{}';
CREATE CHAIN next ON shadows -> cart_v2 METHOD 'shop.Cart/Get' AS
  shadow_answer (path = 'FOLDER/differs');
END;",
            next.serve()
        );
        let folder = Folder::new();
        let path = folder.0.display().to_string();
        let program = format!(
            "IMPORT 'library/elements/shadow.weft';
CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{}';
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS
  shadow (target = 'to_shadows', path = 'FOLDER/differs');
END;
{more}",
            old.serve()
        );
        let test = Test::run(folder, &program.replace("FOLDER", &path));
        runtime().block_on(async {
            let mut client = test.client().await;
            assert_eq!(client.count(8, |_| "ann".to_owned()).await, BTreeMap::from([("old".to_owned(), 8)]));
            while next.n_calls() < 8 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        assert_eq!(test.node.stop(), Some(0));
        let rows = fs::read_to_string(test.folder.0.join("differs")).unwrap_or_default();
        assert_eq!(rows.lines().count(), n_differ, "{rows}");
        let came = next.came.lock().expect("no panic");
        assert!(came.iter().all(|metadata| !metadata.contains("x-shadow-id")), "{came:?}");
    }
}

/// The first policy that users read would admit strangers, retry in vain, or lose calls.
#[test]
fn mesh_example_works_as_written() {
    let (first, second, next) = (Named::new("cart-1"), Named::new("cart-2"), Named::new("new"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mesh/network.weft");
    let mut program = fs::read_to_string(path).expect("the example is there");
    let folder = Folder::new();
    let log = folder.0.join("mesh.log");
    for (from, to) in [
        ("../shop/proto/cart.proto", "cart.proto".to_owned()),
        ("127.0.0.1:7070", "127.0.0.1:0".to_owned()),
        ("127.0.0.1:7101", first.serve()),
        ("127.0.0.1:7102", second.serve()),
        ("127.0.0.1:7103", next.serve()),
        ("/tmp/weft-mesh.log", log.display().to_string()),
    ] {
        assert!(program.contains(from), "{from}");
        program = program.replace(from, &to);
    }
    let test = Test::run(folder, &program);
    let known = Some(("x-token", "shop-front-end"));
    runtime().block_on(async {
        let mut client = test.client().await;
        assert_eq!(client.get("ann").await, Err(Code::Unauthenticated));
        assert_eq!(client.get_with("ann", Some(("x-token", "guess"))).await, Err(Code::PermissionDenied));
        for nth in 0..40 {
            let server = client.get_with(&format!("user-{}", nth % 20), known).await.expect("it is answered");
            assert!(server.starts_with("cart-"), "{server}");
        }
        assert_eq!(first.n_calls() + second.n_calls(), 20, "half of the reads come from the cache");
        assert!(first.n_calls() > 0 && second.n_calls() > 0);
    });
    assert_eq!(test.node.stop(), Some(0));
    let rows = fs::read_to_string(&log).expect("calls are logged");
    assert_eq!(rows.lines().count(), 42, "{rows}");
}

/// One tenant of the example would delay all others.
#[test]
fn tenants_example_shares_fairly() {
    let cart = Named { takes: Duration::from_millis(20), ..Named::new("cart-1") };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tenants/network.weft");
    let mut program = fs::read_to_string(path).expect("the example is there");
    for (from, to) in [
        ("../shop/proto/cart.proto", "cart.proto".to_owned()),
        ("127.0.0.1:7070", "127.0.0.1:0".to_owned()),
        ("'127.0.0.1:7101', '127.0.0.1:7102'", format!("'{}'", cart.serve())),
    ] {
        assert!(program.contains(from), "{from}");
        program = program.replace(from, &to);
    }
    let test = Test::run(Folder::new(), &program);
    runtime().block_on(async {
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let client = test.client().await;
            for _ in 0..100 {
                let mut client = client.clone();
                flood.spawn(async move { client.get("greedy").await });
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut modest = test.client().await;
        for _ in 0..5 {
            assert_eq!(modest.get("modest").await, Ok("cart-1".to_owned()));
        }
        // 400 calls of 20 ms, eight at a time, take a second; without fairness each other call would wait for the rest.
        let n_waiting = 400 - cart.n_calls();
        assert!(n_waiting > 50, "only {n_waiting} of the flood had to wait for another tenant");
        assert!(flood.join_all().await.iter().all(Result::is_ok));
    });
    let mut query = weft(&test.folder);
    let text = "SELECT port, queue, sent, queued, concurrency, in_flight FROM links";
    let printed = output(query.args(["query", "--admin", &test.node.admin, "-o", "json", text]));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let row = printed.replace([' ', '\n'], "");
    assert!(row.contains(r#"["cart","drr",405,0,8,0]"#), "{printed}");
    assert_eq!(test.node.stop(), Some(0));
}

/// A call would wait for ever at a worker that is not woken, or a cancelled call would keep its slot.
#[test]
fn slots_rotate_over_workers() {
    let cart = Named { takes: Duration::from_millis(5), ..Named::new("cart-1") };
    let program = format!(
        "IMPORT 'library/queues/drr.weft';
CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{}';
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS END;
CREATE LINK tenants ON CLUSTER cart CONCURRENCY 2 QUEUE drr;
",
        cart.serve()
    );
    let folder = Folder::new();
    let program = folder.write("network.weft", &program);
    let node = Node::start(&folder, &program, &["--workers", "4"]);
    let test = Test { node, folder };
    let query = |text: &str| {
        let mut query = weft(&test.folder);
        let printed = output(query.args(["query", "--admin", &test.node.admin, "-o", "json", text]));
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        String::from_utf8_lossy(&printed.stdout).replace([' ', '\n'], "")
    };
    let n_answered = runtime().block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for nth in 0..16 {
            let client = test.client().await;
            for at in 0..20 {
                let mut client = client.clone();
                // A quarter of the callers give up before their turn.
                let patience = Duration::from_millis(if at % 4 == 0 { 20 + nth * at } else { 60_000 });
                calls.spawn(async move {
                    let call = tokio::time::timeout(patience, client.get("ann")).await;
                    call.is_ok_and(|answer| answer.is_ok())
                });
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let altered = query("ALTER LINK tenants USE QUEUE sfq KEEP PACKETS");
        assert!(altered.contains("tenants"), "{altered}");
        let refused = |text: &str| {
            let refused = output(weft(&test.folder).args(["query", "--admin", &test.node.admin, text]));
            assert_eq!(refused.status.code(), Some(1), "{text}");
            String::from_utf8_lossy(&refused.stderr).into_owned()
        };
        let lost = refused("ALTER LINK tenants USE QUEUE by_weight KEEP PACKETS");
        assert!(lost.contains("there are: ") && !lost.contains("IMPORT"), "{lost}");
        let slip = refused("ALTER LINK tenants USE QUEUE fq_codle KEEP PACKETS");
        assert!(slip.contains("write `fq_codel`"), "{slip}");
        let both = refused("ALTER LINK tenants USE QUEUE fifo KEEP PACKETS; SELECT name FROM links");
        assert!(both.contains("an ALTER stands alone"), "{both}");
        let nothing = refused("");
        assert!(nothing.contains("there is no statement"), "{nothing}");
        calls.join_all().await.into_iter().filter(|is_answered| *is_answered).count()
    });
    assert!(n_answered >= 240, "{n_answered} of those who waited were answered");
    // The node learns a little later that the last callers have left.
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let printed = query("SELECT arrived - sent - left, queue, queued, in_flight, dropped FROM links");
        if printed.contains(r#"[0,"sfq",0,0,0]"#) {
            break;
        }
        assert!(Instant::now() < until, "{printed}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(test.node.stop(), Some(0));
}

/// Equal calls of many clients would all reach the server, or a client would get the answer to another call.
#[test]
fn single_flight_merges_equal_calls() {
    let cart = Named { takes: Duration::from_millis(500), ..Named::new("cart-1") };
    let folder = Folder::new();
    let program = format!(
        "IMPORT 'library/filters/single_flight.weft';
CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{}';
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS single_flight (shared = TRUE, key := user); END;
",
        cart.serve()
    );
    let test = Test::run(folder, &program);
    runtime().block_on(async {
        // Separate connections, which both workers share.
        let mut clients = Vec::new();
        for _ in 0..16 {
            clients.push(test.client().await);
        }
        let mut calls = tokio::task::JoinSet::new();
        for (nth, mut client) in clients.into_iter().enumerate() {
            calls.spawn(async move { client.get(if nth % 4 == 0 { "bob" } else { "ann" }).await });
        }
        assert!(calls.join_all().await.iter().all(|answer| *answer == Ok("cart-1".to_owned())));
    });
    assert_eq!(cart.n_calls(), 2);
    assert_eq!(test.node.stop(), Some(0));
}

/// The line numbers in the guide's example would be wrong.
#[test]
fn guide_example_cites_library_lines() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let page = read("docs/src/guide/emulating.md");
    let queue = read("library/queues/codel.weft");
    let verdict = "MARK OR DROP;";
    let line = 1 + queue.lines().position(|line| line.trim() == verdict).expect("it drops");
    let is_told =
        |begins: &str, ends: &str| page.lines().any(|line| line.starts_with(begins) && line.ends_with(ends));
    for (begins, ends) in [
        (format!("down  codel    {line}  dropped "), String::new()),
        ("  was dropped after ".to_owned(), format!(" by line {line} of codel, at the head")),
        (format!("    {line} | {verdict}"), String::new()),
        ("ON DEQUEUE of codel after ".to_owned(), format!(": DROP, line {line}")),
    ] {
        assert!(is_told(&begins, &ends), "docs/src/guide/emulating.md has no `{begins}...{ends}`");
    }
}
