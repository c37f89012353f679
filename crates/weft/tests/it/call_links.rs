//! Recordings of call links in a running node, with stock gRPC on both sides.

use crate::library::{Named, Test};
use crate::node::{Folder, Node, output, runtime, weft};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::Code;

/// A link whose queue serves tenants in turn, and drops calls of class 9 at its head.
const LINK: &str = "CREATE QUEUE picky AS
  LIMIT 1000 PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE
    IF p.class = 9 THEN DROP; END IF;
    SEND;
END;
CREATE QUEUE fair AS fq EACH USING picky; END;
CREATE LINK tenants ON CLUSTER cart CONCURRENCY 8 KEY header['x-tenant'] CLASS header['x-class'] QUEUE fair;
";
const PLACES: usize = 8;
const CONNECTIONS: usize = 16;
/// The number of calls of a tenant over its share; of another tenant, of which half are dropped; and of callers that
/// give up.
const FLOOD: usize = 48;
const OTHERS: usize = 40;
const BRIEF: usize = 20;
/// The longest wait for an event that is sure to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node with four workers in front of a server.
fn start(cart: &Named) -> Test {
    let program = format!(
        "IMPORT 'library/queues/fq.weft';
CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{}';
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS END;
{LINK}",
        cart.serve()
    );
    let folder = Folder::new();
    let program = folder.write("network.weft", &program);
    Test { node: Node::start(&folder, &program, &["--workers", "4"]), folder }
}

/// A running `weft link record`.
struct Recording<'t> {
    test: &'t Test,
    child: Child,
}

impl<'t> Recording<'t> {
    fn begin(test: &'t Test, file: &str, args: &[&str]) -> Self {
        let mut record = weft(&test.folder);
        record.args(["link", "record", "tenants", "--for", "2min", "-o", file, "--admin", &test.node.admin]);
        let child = record.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self { test, child: child.expect("the binary can be started") }
    }

    /// Whether the node has started it.
    fn has_begun(&self) -> bool {
        let admin = &self.test.node.admin;
        let port = admin.rsplit(':').next().unwrap_or_default();
        let namespace = fs::metadata("/proc/self/ns/net").expect("there is one").ino();
        let token = fs::read_to_string(self.test.folder.0.join(format!("weft/{port}.{namespace}.token")));
        let head = format!(
            "GET /v1/recordings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            token.expect("it is there").trim()
        );
        let mut stream = TcpStream::connect(admin).expect("the node answers");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut printed = String::new();
        stream.read_to_string(&mut printed).expect("it answers");
        assert!(printed.starts_with("HTTP/1.1 200"), "{printed}");
        printed.contains("\"tenants\"")
    }

    /// Ends it as Ctrl-C does; returns its output and its messages.
    fn end(self) -> (String, String) {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-INT", &id]).status().expect("kill is there");
        let done = self.child.wait_with_output().expect("it is ours");
        let [printed, errors] =
            [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(done.status.success(), "{errors}");
        (printed, errors)
    }
}

/// Waits until a condition holds, while calls go on.
async fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// If this fails, a recording of calls is not what happened: the calls that clients saw refused are not the ones that
/// it lists as dropped, with the right line, or calls that gave up are not the ones that it lists as left.
#[test]
fn live_call_link_is_recorded() {
    let cart = Named::new("cart-1");
    let test = start(&cart);
    let file = test.folder.0.join("tenants.rec").display().to_string();
    let ask = |args: &[&str]| {
        let done = output(weft(&test.folder).arg("link").args(args));
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let printed = data(&record_a_flood(&test, &cart, &file));
    assert_eq!(
        (printed["missed"].as_u64(), printed["ended"].as_str()),
        (Some(0), Some("asked")),
        "{printed}"
    );

    let shown = data(&ask(&["show", &file, "--json"]));
    assert_eq!((shown["workers"].as_u64(), shown["concurrency"].as_u64()), (Some(4), Some(8)));
    let calls = shown["calls"].as_array().expect("a list");
    assert_eq!(printed["calls"].as_u64(), Some((OTHERS + BRIEF) as u64), "{printed}");
    let ends = |end: &str| calls.iter().filter(|call| call["end"]["end"] == end).collect::<Vec<_>>();
    let [sent, dropped, left, waits] = ["sent", "dropped", "left", "waits"].map(ends);
    assert_eq!((dropped.len(), left.len(), waits.len()), (OTHERS / 2, BRIEF, 0), "{shown}");
    // Calls that waited at the beginning went on later, as did the other tenant's calls.
    let waited = sent.iter().filter(|call| call["came_ns"].as_i64() < Some(0)).count();
    assert_eq!((waited, sent.len() - waited), (FLOOD - PLACES, OTHERS / 2), "{shown}");
    assert!(dropped.iter().all(|call| call["flow"] == dropped[0]["flow"]));
    assert_eq!(sent.iter().filter(|call| call["flow"] == dropped[0]["flow"]).count(), OTHERS / 2);
    let workers: BTreeSet<_> = calls.iter().map(|call| call["worker"].as_u64()).collect();
    assert_eq!(workers.len(), 4, "{workers:?}");

    let number = |call: &Value| {
        let nth = calls.iter().position(|one| one == call);
        (nth.expect("it is one of them") + 1).to_string()
    };
    let (picture, dropped, left) = (format!("{file}.svg"), number(dropped[0]), number(left[0]));
    let chart = ask(&["show", &file, "--svg", &picture]);
    assert!(chart.contains("  8 calls under way  4 workers  "), "{chart}");
    assert!(chart.contains("20 dropped, 20 left") && chart.contains("calls that wait"), "{chart}");
    let picture = fs::read_to_string(picture).expect("it was drawn");
    assert!(picture.contains("calls that wait") && !picture.contains("packet"), "{picture}");
    let listed = ask(&["explain", &file]);
    assert!(listed.contains(": 20 dropped of ") && !listed.contains("packet"), "{listed}");
    let printed = ask(&["explain", &file, &dropped]);
    let is_value = |line: &str| line.trim().starts_with("p.class ") && line.trim().ends_with(" 9");
    assert!(printed.starts_with(&format!("call {dropped} of link tenants: at worker weft-")), "{printed}");
    assert!(printed.contains("IF p.class = 9 THEN DROP;") && printed.lines().any(is_value), "{printed}");
    let printed = ask(&["explain", &file, &left]);
    assert!(printed.contains("  left after ") && printed.contains(", before its turn: "), "{printed}");
    assert_eq!(test.node.stop(), Some(0));
}

/// Records a link from the time when many calls wait, until all are over; returns the output of `weft link record`.
fn record_a_flood(test: &Test, cart: &Named, file: &str) -> String {
    let query = |text: &str| {
        let printed =
            output(weft(&test.folder).args(["query", "--admin", &test.node.admin, "-o", "json", text]));
        String::from_utf8_lossy(&printed.stdout).replace([' ', '\n'], "")
    };
    runtime().block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(test.client().await);
        }
        let get = |nth: usize, header: (&'static str, &'static str)| {
            let mut client = clients[nth % CONNECTIONS].clone();
            async move { client.get_with("ann", Some(header)).await }
        };
        let is = |text: &'static str, values: String| {
            let query = &query;
            until(move || query(text).contains(&values))
        };
        cart.is_held.store(true, Relaxed);
        let flood: JoinSet<_> = (0..FLOOD).map(|nth| get(nth, ("x-tenant", "greedy"))).collect();
        is("SELECT arrived, in_flight FROM links", format!("[[{FLOOD},{PLACES}]]")).await;
        let record = Recording::begin(test, file, &["--json"]);
        until(|| record.has_begun()).await;
        let class = |nth: usize| if nth.is_multiple_of(2) { "9" } else { "1" };
        let others: JoinSet<_> = (0..OTHERS).map(|nth| get(nth, ("x-class", class(nth)))).collect();
        let mut brief: JoinSet<_> = (0..BRIEF).map(|nth| get(nth, ("x-tenant", "greedy"))).collect();
        is("SELECT arrived FROM links", format!("[[{}]]", FLOOD + OTHERS + BRIEF)).await;
        brief.shutdown().await;
        is("SELECT left FROM links", format!("[[{BRIEF}]]")).await;
        cart.is_held.store(false, Relaxed);
        let others = others.join_all().await;
        let of = |end: fn(&Result<String, Code>) -> bool| others.iter().filter(|one| end(one)).count();
        assert_eq!(of(|end| *end == Err(Code::ResourceExhausted)), OTHERS / 2);
        assert_eq!(of(Result::is_ok), OTHERS / 2);
        assert!(flood.join_all().await.iter().all(Result::is_ok));
        is("SELECT queued, in_flight FROM links", "[[0,0]]".to_owned()).await;
        record.end().0
    })
}

/// If this fails, a recording that several workers share exceeds its limit, or does not say what it lacks.
#[test]
fn workers_share_recording_limit() {
    let test = start(&Named::new("cart-1"));
    let file = test.folder.0.join("few.rec").display().to_string();
    let errors = runtime().block_on(async {
        let record = Recording::begin(&test, &file, &["--packets", "3"]);
        until(|| record.has_begun()).await;
        let mut calls = JoinSet::new();
        for _ in 0..10 {
            let mut client = test.client().await;
            calls.spawn(async move { client.get_with("ann", None).await });
        }
        assert!(calls.join_all().await.iter().all(Result::is_ok));
        record.end().1
    });
    assert!(
        errors.contains("3 calls of link tenants") && errors.contains("7 calls that came later"),
        "{errors}"
    );
    let shown = output(weft(&test.folder).args(["link", "show", &file]));
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("3 calls, 0 dropped, 0 left; 7 calls that came later"), "{shown}");
    let data_of = || {
        let shown = output(weft(&test.folder).args(["link", "show", "--json", &file]));
        let printed = data(&String::from_utf8_lossy(&shown.stdout));
        ["is_cut", "file_ends_in_line", "ended_early", "missed"].map(|name| printed[name].clone())
    };
    // The file itself is complete.
    assert_eq!(data_of(), [false.into(), Value::Null, "full".into(), 7.into()]);
    let alter = "ALTER LINK tenants USE QUEUE fq KEEP PACKETS";
    let errors = runtime().block_on(async {
        let record = Recording::begin(&test, &file, &[]);
        until(|| record.has_begun()).await;
        let altered = output(weft(&test.folder).args(["query", "--admin", &test.node.admin, alter]));
        assert!(altered.status.success(), "{}", String::from_utf8_lossy(&altered.stderr));
        record.end().1
    });
    assert!(errors.contains("the link got another queue"), "{errors}");
    assert_eq!(data_of(), [false.into(), Value::Null, "replaced".into(), 0.into()]);
    let mut other = weft(&test.folder);
    let other = output(other.args(["link", "record", "wan", "-o", &file, "--admin", &test.node.admin]));
    let errors = String::from_utf8_lossy(&other.stderr);
    assert!(errors.contains("there is no link `wan`; the node has tenants"), "{errors}");
    assert_eq!(test.node.stop(), Some(0));
}

fn data(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

/// A user would be sent to lines that are not in the program, see text that is not in the statement, or miss the list
/// of queues.
#[test]
fn alter_error_points_at_its_text() {
    let folder = Folder::new();
    // No line break at the end, where the node appends its IMPORTs.
    let text = "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Get' AS END;
CREATE LINK tenants ON CLUSTER cart CONCURRENCY 2 QUEUE mine (n = 5);
CREATE QUEUE mine (n U32) AS LIMIT n PACKETS ON OVERFLOW DROP TAIL; END; -- all";
    let node = Node::start(&folder, &folder.write("network.weft", text), &[]);
    let query = |text: &str| {
        let file = folder.write("query", text);
        let mut query = weft(&folder);
        let done = output(query.args(["query", "--admin", &node.admin, "--file"]).arg(file));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    for queue in ["fifo", "sfq", "codel", "mine (n = 6)"] {
        let (status, wanted) = query(&format!("ALTER LINK tenants USE QUEUE {queue} KEEP PACKETS"));
        assert_eq!(status, Some(0), "{wanted}");
    }
    let refused = |text: &str, wanted: &[&str]| {
        let (status, errors) = query(text);
        assert_eq!(status, Some(1), "{errors}");
        wanted.iter().for_each(|part| assert!(errors.contains(part), "{part}: {errors}"));
        errors
    };
    let broken = "-- why\nALTER LINK tenants\n  USE QUEUE codel ( -- so\n  target = '10 mss')\nKEEP PACKETS;";
    refused(broken, &["<query>:4:12", " 4 |   target = '10 mss')"]);
    let mine = refused("ALTER LINK tenants USE QUEUE mine KEEP PACKETS", &["<query>:1:30"]);
    assert!(mine.contains("network.weft:6:20"), "{mine}");
    let unknown = "ALTER LINK tenants USE QUEUE nosuch KEEP PACKETS";
    refused(unknown, &["<query>:1:30", "there are: codel, fifo, mine, sfq", "the library has: ", "htb"]);
    let more = "ALTER LINK tenants USE QUEUE codel ON FAILURE HOLD KEEP PACKETS";
    refused(more, &["changes the queue alone, and has no `ON FAILURE HOLD`", "weft apply"]);
    refused("ALTER LINK tenants RATE '30 calls/s'", &["ALTER LINK wan USE QUEUE", "weft apply"]);
    let printed = output(weft(&folder).args(["status", "--program", "--admin", &node.admin]));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains(&text.replace("(n = 5)", "(n = 6)")), "its author's lines stay: {printed}");
    assert_eq!(node.stop(), Some(0));
}
