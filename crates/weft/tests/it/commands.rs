//! What a person sees and a script reads: texts, exit statuses, the admin endpoint.

use crate::node::{Folder, Node, output, shop_server, weft};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

const NETWORK: &str = "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT only_alice ON rpc (user TEXT) AS
  ON REQUEST
    SELECT * FROM input WHERE user = 'alice' ELSE ABORT PERMISSION_DENIED 'only alice';
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS
  only_alice;
END;
";

/// A script must be able to tell whose fault it was: 0 nobody's, 1 the input's, 2 the command line's, 3 the machine's.
#[test]
fn exit_statuses_say_whose_fault_it_is() {
    let folder = Folder::new();
    let good = folder.write("good.weft", NETWORK);
    let bad = folder.write("bad.weft", &NETWORK.replace("user = 'alice'", "usr = 'alice'"));
    let status =
        |args: &[&str], file: &std::path::Path| output(weft(&folder).args(args).arg(file)).status.code();
    assert_eq!(status(&["check"], &good), Some(0));
    assert_eq!(status(&["check"], &bad), Some(1));
    assert_eq!(status(&["run", "--admin", "127.0.0.1:0"], &bad), Some(1));
    assert_eq!(status(&["check", "--no-such-option"], &good), Some(2));
    assert_eq!(status(&["check"], &folder.0.join("absent.weft")), Some(3));
    assert_eq!(status(&["run"], &folder.0.join("absent.weft")), Some(3));
    assert_eq!(status(&["apply", "--admin", "127.0.0.1:1"], &good), Some(3));
}

#[test]
fn a_mistake_is_shown_with_its_place_and_a_help() {
    let folder = Folder::new();
    let bad = folder.write("bad.weft", &NETWORK.replace("user = 'alice'", "usr = 'alice'"));
    let told = output(weft(&folder).arg("check").arg(&bad));
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(text.contains("error[W0") && text.contains("usr") && text.contains("help:"), "{text}");
    let told = output(weft(&folder).args(["check", "--json"]).arg(&bad));
    let data: serde_json::Value = serde_json::from_slice(&told.stdout).expect("one JSON value");
    assert!(data.to_string().contains("W0"), "{data}");
}

#[test]
fn fmt_says_what_would_change_and_changes_it_once() {
    let folder = Folder::new();
    let file = folder.write("network.weft", &NETWORK.replace("  SELECT", "select"));
    assert_eq!(output(weft(&folder).args(["fmt", "--check"]).arg(&file)).status.code(), Some(1));
    assert_eq!(output(weft(&folder).arg("fmt").arg(&file)).status.code(), Some(0));
    assert_eq!(output(weft(&folder).args(["fmt", "--check"]).arg(&file)).status.code(), Some(0));
}

/// A port that is taken is the machine's fault, in one line with a help, and nothing runs.
#[test]
fn a_taken_port_is_told_in_one_line() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let network = folder.write("network.weft", &NETWORK.replace("127.0.0.1:0", &address));
    let told = output(weft(&folder).args(["run", "--admin", "127.0.0.1:0"]).arg(&network));
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(3), "{text}");
    assert!(text.contains(&address) && text.contains("help:"), "{text}");
}

/// The admin endpoint must not be open to whoever can reach it, nor to web pages through a name of their own.
#[test]
fn the_admin_endpoint_asks_for_its_token() {
    let folder = Folder::new();
    let network = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &network, &[]);
    let get = |path: &str, host: &str, extra: &str| {
        let mut stream = TcpStream::connect(&node.admin).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{extra}\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    assert!(get("/healthz", "localhost", "").starts_with("HTTP/1.1 200"));
    assert!(get("/metrics", "127.0.0.1:9901", "").contains("weft_version 1\n"));
    assert!(get("/v1/program", "localhost", "").starts_with("HTTP/1.1 401"));
    assert!(get("/v1/status", "localhost", "Authorization: Bearer 00\r\n").starts_with("HTTP/1.1 401"));
    assert!(get("/healthz", "attacker.example", "").starts_with("HTTP/1.1 421"));
    let shown = output(weft(&folder).args(["status", "--program", "--admin", &node.admin]));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("only_alice"));
}

/// A server that is not there must not make callers hang.
#[test]
fn a_dead_upstream_is_unavailable_and_a_denied_call_is_denied() {
    let folder = Folder::new();
    let network = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &network, &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let target = format!("http://{}", node.listener);
        let mut client = shop::pb::cart_client::CartClient::connect(target).await.expect("it listens");
        let request = |user: &str| shop::pb::CartRequest { user: user.into(), ..Default::default() };
        let denied = client.add(request("mallory")).await.expect_err("mallory is denied");
        assert_eq!((denied.code(), denied.message()), (tonic::Code::PermissionDenied, "only alice"));
        let begun = std::time::Instant::now();
        let dead = client.add(request("alice")).await.expect_err("nobody serves alice");
        assert_eq!(dead.code(), tonic::Code::Unavailable, "{dead}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(3));
    });
    assert_eq!(node.stop(), Some(0));
}

/// A node that does nothing must not cost more than it is worth; `weft bench memory` has clients beside it.
#[test]
fn idle_memory_stays_small() {
    let folder = Folder::new();
    let server = shop_server("cart-1");
    let network = folder.write("network.weft", &NETWORK.replace("127.0.0.1:1'", &format!("{server}'")));
    let node = Node::start(&folder, &network, &[]);
    let idle = node.resident_bytes();
    // The budget is for a release build: an unoptimised one has several times the code.
    let limit = if cfg!(debug_assertions) { 80 << 20 } else { 20 << 20 };
    assert!(idle <= limit, "an idle node has {idle} bytes");
}
