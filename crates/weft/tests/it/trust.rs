//! What peers, other users of the machine and clients of the admin endpoint can do to a node and its operator.

use crate::node::{Folder, Node, output, runtime, shop_server, weft};
use serde_json::Value;
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft_core::text::Escape;

/// Sets a title, forges a line, clears a screen by one character, and turns text around.
const HOSTILE: &str = "ann\x1b]0;pwned\x07\r\nroot  999\u{9b}2J\x7f\u{202e}evil\u{2066}\u{2028}";

const NETWORK: &str = "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO 'SERVER';
CREATE ELEMENT log ON rpc (user TEXT) AS
  TABLE users (user TEXT(200) PRIMARY KEY, n U64 = 0) MAX 1000000 ROWS EVICT OLDEST;
  SINK text (user TEXT) TO FILE 'FOLDER/log.txt' FORMAT TEXT;
  SINK json (user TEXT) TO FILE 'FOLDER/log.json';
  SINK out (user TEXT) TO STDOUT FORMAT TEXT;
  SINK seen (user TEXT, n U64) TO METRICS;
  ON REQUEST
    UPSERT users KEY (user) SET n = n + 1;
    INSERT INTO text VALUES (user);
    INSERT INTO json VALUES (user);
    INSERT INTO out VALUES (user);
    INSERT INTO seen VALUES (user, 1);
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS log (user := req.user); END;
";

fn network(folder: &Folder, server: &str) -> std::path::PathBuf {
    let text = NETWORK.replace("SERVER", server).replace("FOLDER", &folder.0.display().to_string());
    folder.write("network.weft", &text)
}

/// `weft run` with this many descriptors.
fn start_with(folder: &Folder, network: &std::path::Path, descriptors: u32, args: &[&str]) -> Node {
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {descriptors}; exec \"$@\"");
    command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_weft")]).env("XDG_RUNTIME_DIR", &folder.0);
    command.stdout(Stdio::null());
    Node::start_as(command, network, args)
}

fn get(admin: &str, path: &str, extra: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("it may");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn call(node: &Node, user: &str) {
    runtime().block_on(async {
        let target = format!("http://{}", node.listener);
        let mut client = CartClient::connect(target).await.expect("it listens");
        client.add(CartRequest { user: user.into(), ..CartRequest::default() }).await.expect("it passes");
    });
}

/// Checks that only line feeds and tabs control the terminal.
fn assert_harmless(what: &str, shown: &[u8]) {
    let text = std::str::from_utf8(shown).unwrap_or_else(|_| panic!("{what} is no text"));
    let steers = |c: char| !matches!(c, '\n' | '\t') && Escape::of(c).is_some();
    assert!(!text.chars().any(steers), "{what}: {text:?}");
}

/// As [`assert_harmless`], for output with the peer's text on one line.
fn assert_one_line(what: &str, shown: &[u8]) {
    assert_harmless(what, shown);
    let text = String::from_utf8_lossy(shown);
    let line = text.lines().find(|line| line.contains("pwned")).unwrap_or_else(|| panic!("{what}: {text}"));
    for part in ["u001b]0;", "u0007", "root  999", "u009b2J", "u007f", "u202eevil", "u2066", "u2028"] {
        assert!(line.contains(part), "{what} lacks {part}: {line}");
    }
}

#[test]
fn peer_texts_are_escaped() {
    // A client could write to the terminal of an operator, and forge rows of tables and lines of logs.
    let folder = Folder::new();
    let mut command = weft(&folder);
    command.stdout(Stdio::piped());
    let mut node = Node::start_as(command, &network(&folder, &shop_server("cart-1")), &[]);
    let stdout = node.take_stdout();
    call(&node, HOSTILE);
    let stdout_of = |args: &[&str]| {
        let done = output(weft(&folder).args(args).args(["--admin", &node.admin]));
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert_harmless(&format!("{args:?}"), &done.stderr);
        done.stdout
    };
    assert_one_line("query", &stdout_of(&["query", "SELECT * FROM shop.log.users"]));
    let json = stdout_of(&["query", "SELECT * FROM shop.log.users", "-o", "json"]);
    assert_one_line("query -o json", &json);
    let data: Value = serde_json::from_slice(&json).expect("it is data");
    assert_eq!(data[0]["rows"][0][0], HOSTILE);
    for args in [&["status"][..], &["status", "--json"], &["status", "--program"], &["query"]] {
        assert_harmless(&format!("{args:?}"), &stdout_of(args));
    }
    let metrics = get(&node.admin, "/metrics", "");
    assert_harmless("/metrics", metrics.split_once("\r\n\r\n").expect("it has a head").1.as_bytes());
    assert!(
        metrics.contains("user=\"ann\\\\u001b]0;pwned\\\\u0007\\\\r\\nroot  999\\\\u009b2J"),
        "{metrics}"
    );
    assert_eq!(node.stop(), Some(0));
    assert_one_line("TO STDOUT", stdout.join().expect("no panic").as_bytes());
    let file = |name: &str| fs::read(folder.0.join(name)).expect("it is there");
    assert_one_line("FORMAT TEXT", &file("log.txt"));
    assert_one_line("FORMAT JSON", &file("log.json"));
    let row: Value = serde_json::from_slice(&file("log.json")).expect("it is a row");
    assert_eq!(row["user"], HOSTILE);
    for name in ["log.txt", "log.json"] {
        let mode = fs::metadata(folder.0.join(name)).expect("it is there").mode() & 0o777;
        assert_eq!(mode & !0o640, 0, "{name} has mode {mode:o}");
    }
}

/// Replaces every text in an answer.
fn replace_texts(value: &mut Value, by: &str) {
    match value {
        Value::String(text) => by.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(|value| replace_texts(value, by)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace_texts(value, by)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// An endpoint with these answers by path, until the test ends; returns its address.
fn endpoint(answers: Vec<(&'static str, u16, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let (mut head, mut length) = (String::new(), 0);
            while reader.read_line(&mut head).is_ok_and(|n| n > 2) {
                let line = head.lines().last().unwrap_or_default().to_ascii_lowercase();
                if let Some(n) = line.strip_prefix("content-length: ") {
                    length = n.parse().expect("a number");
                }
            }
            let _ = reader.read_exact(&mut vec![0; length]);
            let path = head.split(' ').nth(1).unwrap_or_default();
            let known = answers.iter().find(|(known, ..)| *known == path);
            let (_, status, body) = known.cloned().unwrap_or(("", 404, HOSTILE.to_owned()));
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    address
}

#[test]
fn endpoint_texts_are_escaped() {
    // A process at the address of a node could write to the terminal of its operator.
    let folder = Folder::new();
    let file = network(&folder, "127.0.0.1:1");
    let node = Node::start(&folder, &file, &["--private-metrics"]);
    let known = output(weft(&folder).args(["status", "--json", "--admin", &node.admin]));
    let mut status: Value = serde_json::from_slice(&known.stdout).expect("it is data");
    status["endpoints"][0]["cluster"] = "cart".into();
    status["refusals"][HOSTILE] = 1.into();
    status["rows_refused"][HOSTILE] = 1.into();
    status["calls"]["ended"][HOSTILE] = 1.into();
    replace_texts(&mut status, HOSTILE);
    let known = output(weft(&folder).args(["query", "-o", "json", "--admin", &node.admin]));
    let mut tables: Value = serde_json::from_slice(&known.stdout).expect("it is data");
    replace_texts(&mut tables, HOSTILE);
    let refused =
        serde_json::json!({ "text": HOSTILE, "diagnostics": [HOSTILE], "version": 1, "at_fault": "program" });
    let answers = vec![
        ("/v1/status", 200, status.to_string()),
        ("/v1/tables", 200, tables.to_string()),
        ("/v1/apply", 422, refused.to_string()),
        ("/v1/query", 503, HOSTILE.to_owned()),
        ("/v1/rows", 500, HOSTILE.to_owned()),
    ];
    let address = endpoint(answers);
    let token = folder.write_private("token", "00").display().to_string();
    let file = file.display().to_string();
    let rows = folder.write("rows.csv", "user,n\nann,1\n").display().to_string();
    for (args, code) in [
        (&["status"][..], 0),
        (&["status", "--json"], 0),
        (&["query"], 0),
        (&["query", "-o", "json"], 0),
        (&["apply", &file], 1),
        (&["apply", &file, "--json"], 1),
        (&["query", "SELECT 1"], 3),
        (&["load", "shop.log.users", &rows], 3),
        (&["status", "--program"], 3),
        (&["link", "record", "wan", "--for", "1s"], 3),
    ] {
        let done = output(weft(&folder).args(args).args(["--admin", &address, "--token-file", &token]));
        assert_eq!(done.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert_harmless(&format!("{args:?}"), &done.stdout);
        assert_harmless(&format!("{args:?}"), &done.stderr);
        let all = [done.stdout, done.stderr].concat();
        assert!(String::from_utf8_lossy(&all).contains("u009b2J"), "{args:?} does not show it");
    }
    let mut top = weft(&folder);
    top.args(["top", "--every", "0.1", "--admin", &address, "--token-file", &token]).stdout(Stdio::piped());
    let mut top = top.spawn().expect("the binary can be started");
    let mut page = Vec::new();
    let mut shown = BufReader::new(top.stdout.take().expect("it is piped"));
    while !page.ends_with(b"descriptors: ") {
        let mut byte = [0];
        shown.read_exact(&mut byte).expect("the page goes on");
        page.push(byte[0]);
    }
    top.kill().expect("it is ours");
    top.wait().expect("it is ours");
    assert_harmless("top", &page);
}

#[test]
fn program_texts_are_escaped() {
    // A foreign program could write to the terminal of the user who checks it.
    let folder = Folder::new();
    let file = folder.write("a.weft", &format!("CREATE LISTENER '{HOSTILE}' \"{HOSTILE}\" {HOSTILE};\n"));
    for args in [&["check"][..], &["check", "--json"], &["fmt", "--check"], &["apply"], &["explain"]] {
        let done = output(weft(&folder).args(args).arg(&file));
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        assert_harmless(&format!("{args:?}"), &done.stdout);
        assert_harmless(&format!("{args:?}"), &done.stderr);
    }
}

#[test]
fn foreign_token_folder_is_refused() {
    // The user who prepared the folder would receive the program, and could answer as the node.
    let folder = Folder::new();
    let file = network(&folder, "127.0.0.1:1");
    let address = endpoint(vec![("/v1/status", 200, String::new())]);
    let port = address.rsplit_once(':').expect("it has a port").1;
    let namespace = fs::metadata("/proc/self/ns/net").expect("it is there").ino();
    let tokens = folder.0.join("weft");
    fs::create_dir(&tokens).expect("the folder is ours");
    let token = tokens.join(format!("{port}.{namespace}.token"));
    fs::write(&token, "00").expect("the folder is ours");
    let chmod = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    let stderr_of = || {
        let done = output(weft(&folder).args(["apply", "--admin", &address]).arg(&file));
        assert_eq!(done.status.code(), Some(3));
        String::from_utf8(done.stderr).expect("it is text")
    };
    chmod(&token, 0o600);
    chmod(&tokens, 0o777);
    assert!(stderr_of().contains("may be written to by others (mode 0777)"), "{}", stderr_of());
    chmod(&tokens, 0o700);
    chmod(&token, 0o644);
    assert!(stderr_of().contains("its mode 0644 lets other users read or change it"), "{}", stderr_of());
    chmod(&token, 0o600);
    assert!(
        stderr_of().contains("refused"),
        "with a token of its own the endpoint is asked: {}",
        stderr_of()
    );
    fs::rename(&tokens, folder.0.join("elsewhere")).expect("the folder is ours");
    symlink(folder.0.join("elsewhere"), &tokens).expect("the folder is ours");
    assert!(stderr_of().contains("is no folder"), "{}", stderr_of());
}

#[test]
fn admin_flood_leaves_calls_alone() {
    // Any user of the machine could keep new clients, and the operator, from a node.
    let folder = Folder::new();
    let file = network(&folder, &shop_server("cart-1"));
    let node = start_with(&folder, &file, 200, &[]);
    let half = |_| {
        let mut stream = TcpStream::connect(&node.admin).expect("it listens");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHo").expect("it is open");
        stream
    };
    let half: Vec<_> = (0..300).map(half).collect();
    call(&node, "ann");
    assert!(get(&node.admin, "/healthz", "").starts_with("HTTP/1.1 200"));
    let begun = Instant::now();
    assert_eq!(node.stop(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "half requests hold up the end of the node");
    drop(half);
}

#[test]
fn calls_leave_descriptors_for_the_admin() {
    // Clients could take every descriptor, and an operator could not query the node.
    let folder = Folder::new();
    let node = start_with(&folder, &network(&folder, "127.0.0.1:1"), 128, &[]);
    let clients: Vec<_> = (0..250).map(|_| TcpStream::connect(&node.listener).expect("it listens")).collect();
    let until = Instant::now() + Duration::from_secs(5);
    let refused = "weft_refusals_total{reason=\"out_of_descriptors\"}";
    while !get(&node.admin, "/metrics", "").contains(refused) {
        assert!(Instant::now() < until, "it is not counted");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(get(&node.admin, "/healthz", "").starts_with("HTTP/1.1 200"));
    let status = output(weft(&folder).args(["status", "--admin", &node.admin]));
    let status = String::from_utf8(status.stdout).expect("it is text");
    assert!(status.contains("descriptors: 128 at most, 32 of them not for calls\n"), "{status}");
    std::thread::sleep(Duration::from_millis(300));
    drop(clients);
    let (code, talk) = node.stop_and_hear();
    assert_eq!(code, Some(0));
    assert!(
        talk.contains("refused: the process has no more file descriptors for calls (128 at most"),
        "{talk}"
    );
}

#[test]
fn metrics_can_require_token() {
    // The metrics show the callers of each method, which may be secret on a machine with many users.
    let folder = Folder::new();
    let node = Node::start(&folder, &network(&folder, "127.0.0.1:1"), &["--private-metrics"]);
    assert!(get(&node.admin, "/metrics", "").starts_with("HTTP/1.1 401"));
    let tokens = fs::read_dir(folder.0.join("weft")).expect("it is there");
    let token = tokens.flatten().next().expect("the node has left one").path();
    let token = fs::read_to_string(token).expect("it is ours");
    let page = get(&node.admin, "/metrics", &format!("Authorization: Bearer {token}\r\n"));
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("weft_version 1\n"), "{page}");
    assert!(get(&node.admin, "/healthz", "").starts_with("HTTP/1.1 200"));
}

/// The effective capabilities of each thread of a node, as a mask.
fn capabilities(node: &Node) -> Vec<(String, u64)> {
    let of = |status: String| {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is reported");
            line.trim().to_owned()
        };
        (field("Name:"), u64::from_str_radix(&field("CapPrm:"), 16).expect("a mask"))
    };
    node.thread_statuses().into_iter().map(of).collect()
}

#[test]
fn node_keeps_needed_capabilities() {
    // An attacker who takes over a node that root has started would own the machine.
    let folder = Folder::new();
    let file = network(&folder, "127.0.0.1:1");
    // capability.h: NET_BIND_SERVICE, NET_ADMIN, NET_RAW, BPF.
    let kept: u64 = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 39;
    let own = fs::read_to_string("/proc/self/status").expect("it is there");
    let own = own.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it is reported");
    let own = u64::from_str_radix(own.trim(), 16).expect("a mask");
    for (args, kept) in [(&[][..], kept), (&["--drop-all"], 0)] {
        let node = Node::start(&folder, &file, args);
        let threads = capabilities(&node);
        assert!(threads.len() > 5, "{threads:?}");
        for (name, held) in &threads {
            assert_eq!(held & !kept, 0, "{args:?}: thread {name} has {held:#x}");
        }
        let main = threads.iter().find(|(name, _)| name == "weft").expect("it is there").1;
        assert_eq!(main, kept & own);
        let status = output(weft(&folder).args(["status", "--admin", &node.admin]));
        let status = String::from_utf8(status.stdout).expect("it is text");
        let shown = match kept & own {
            0 => "capabilities: none\n",
            _ => "capabilities: NET_BIND_SERVICE, NET_ADMIN, NET_RAW",
        };
        assert!(status.contains(shown), "{status}");
        assert_eq!(node.stop(), Some(0));
    }
}
