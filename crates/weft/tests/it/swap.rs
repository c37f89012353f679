//! Hot updates under load: every call has an answer, from one version.

use crate::node::{Folder, Node, output, runtime, shop_server, weft};
use shop::load::Settings;
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number of updates under load.
const SWAPS: usize = 10;
/// The time between two updates.
const BETWEEN: Duration = Duration::from_millis(200);
/// The duration of a call that spans most of the updates.
const SLOW: Duration = Duration::from_secs(3);
/// Callers that check the stamps of their answers.
const ASKERS: usize = 4;
/// The limit of the median pause of a worker. Test machines are busy; `weft bench update` measures the real figure.
const PAUSE_US_MAX: f64 = 50_000.0;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A network that stamps its version on calls: on requests in a field that the shop echoes, on responses in a header,
/// on their ends in a trailer.
fn stamping(server: &str, version: u64) -> String {
    let guard = match version {
        1 => "",
        _ => "SELECT * FROM input WHERE user <> 'mallory' ELSE ABORT PERMISSION_DENIED 'not you';",
    };
    let text = format!(
        "CREATE ELEMENT guard ON rpc (user TEXT) AS
  VAR passed U64 = 0 MERGE SUM;
  ON REQUEST
    {guard}
    ADD passed, 1;
END;
CREATE ELEMENT stamp ON rpc (object_id I64) AS
  ON REQUEST SET object_id = {version};
  ON RESPONSE SET header['x-version'] = '{version}';
  ON CLOSE SET trailer['x-ended'] = '{version}';
END;
CREATE ELEMENT mark ON rpc (quantity I32) AS
  ON REQUEST SET quantity = {version};
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS guard; END;
CREATE CHAIN asked ON frontend -> cart METHOD 'shop.Cart/Get' AS stamp; END;
CREATE CHAIN talk ON frontend -> cart METHOD 'shop.Cart/Chat' AS mark; END;
"
    );
    network(server, &text)
}

fn network(server: &str, text: &str) -> String {
    format!(
        "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
{text}"
    )
}

/// An update would lose a call, cut a stream or a slow call, or show one call two versions.
#[test]
fn ten_updates_under_load_lose_none() {
    let server = shop_server("cart-1");
    for workers in ["1", "4"] {
        swap_under_load(&server, workers);
    }
}

fn swap_under_load(server: &str, workers: &str) {
    let folder = Folder::new();
    let programs = [1, 2].map(|n| folder.write(&format!("{n}.weft"), &stamping(server, n)));
    let node = Node::start(&folder, &programs[0], &["--workers", workers]);
    let target = format!("http://{}", node.listener);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (stop, stopped) = watch::channel(());

    let slow = runtime.spawn(slow_call(target.clone()));
    let talk = runtime.spawn(talk(target.clone(), stopped.clone()));
    let ask = |_| runtime.spawn(ask(target.clone(), stopped.clone()));
    let askers: Vec<JoinHandle<_>> = (0..ASKERS).map(ask).collect();
    let duration = Duration::from_secs(60);
    let settings =
        Settings { target, n_in_flight: 32, n_connections: 2, duration, rate_per_s: None, seed: 7 };
    let load = std::thread::spawn(move || {
        let runtime = crate::node::runtime();
        let loaded = shop::load::run(&settings, until(stopped), |_| {});
        runtime.block_on(loaded).expect("the load runs")
    });
    std::thread::sleep(BETWEEN);
    swap(&folder, &node, &programs, workers);
    drop(stop);

    let tally = load.join().expect("the load ends");
    assert_eq!((tally.sent, tally.wrong), (tally.answered, 0));
    let known = ["OK", "PERMISSION_DENIED"];
    assert!(tally.by_status.keys().all(|status| known.contains(&status.as_str())), "{:?}", tally.by_status);
    assert!(tally.by_status.contains_key("PERMISSION_DENIED"), "the second program was never in force");
    let versions = runtime.block_on(slow).expect("no panic").expect("a call that was under way ends well");
    assert_eq!(versions, [1; 3], "a call ends under the version that it began under");
    for asker in askers {
        let n_asked = runtime.block_on(asker).expect("no call saw a mix").expect("each call ends well");
        assert!(n_asked > SWAPS as u64, "{n_asked} calls were looked at");
    }
    let (n_echoed, n_moves) = runtime.block_on(talk).expect("no panic").expect("an open stream goes on");
    eprintln!("{workers} workers: {} calls, {n_echoed} messages of a stream", tally.sent);
    assert!(n_echoed > 100, "{n_echoed} messages went through the stream");
    assert!((1..=SWAPS).contains(&n_moves), "the stream moved {n_moves} times");
    // The clients' connections end with their runtime; otherwise the node would wait for its grace.
    drop(runtime);
    assert_eq!(node.stop(), Some(0));
}

/// Applies the two programs in turn, and checks how long workers pause.
fn swap(folder: &Folder, node: &Node, programs: &[PathBuf; 2], workers: &str) {
    let mut pauses_us: Vec<f64> = Vec::new();
    for swap in 0..SWAPS {
        let file = &programs[(swap + 1) % 2];
        let applied = output(weft(folder).args(["apply", "--json", "--admin", &node.admin]).arg(file));
        let text = String::from_utf8_lossy(&applied.stdout).into_owned();
        assert!(applied.status.success(), "{text}{}", String::from_utf8_lossy(&applied.stderr));
        let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
        assert_eq!(report["version"], swap as u64 + 2);
        pauses_us.push(report["pause_us"].as_f64().expect("a time"));
        std::thread::sleep(BETWEEN);
    }
    pauses_us.sort_by(f64::total_cmp);
    eprintln!("{workers} workers: pauses of {pauses_us:.0?} us");
    assert!(pauses_us[SWAPS / 2] < PAUSE_US_MAX, "{pauses_us:.0?} us");
}

/// Resolves when the sender is gone.
async fn until(mut stopped: watch::Receiver<()>) {
    let _ = stopped.changed().await;
}

/// Makes calls until it is stopped, and checks that all stamps of a call have one version.
async fn ask(target: String, stopped: watch::Receiver<()>) -> Result<u64, Failure> {
    let mut client = CartClient::connect(target).await?;
    let mut n_asked = 0;
    while stopped.has_changed().is_ok() {
        let versions = stamps(&mut client, 0).await?;
        assert!(versions == [1; 3] || versions == [2; 3], "field, header and trailer say {versions:?}");
        n_asked += 1;
    }
    Ok(n_asked)
}

async fn slow_call(target: String) -> Result<[i64; 3], Failure> {
    let mut client = CartClient::connect(target).await?;
    let begun = Instant::now();
    let versions = stamps(&mut client, SLOW.as_millis() as i32).await?;
    assert!(begun.elapsed() >= SLOW, "the server took its time");
    Ok(versions)
}

/// The stamps of a call: in the request, in the response's header and in its trailer.
async fn stamps(
    client: &mut CartClient<tonic::transport::Channel>,
    delay_ms: i32,
) -> Result<[i64; 3], Failure> {
    let request = CartRequest { user: "alice".into(), quantity: delay_ms, ..CartRequest::default() };
    let (metadata, reply, _) = client.get(request).await?.into_parts();
    let version = |name| -> Result<i64, Failure> {
        Ok(metadata.get(name).ok_or("an answer without a stamp")?.to_str()?.parse()?)
    };
    Ok([reply.object_id, version("x-version")?, version("x-ended")?])
}

/// Runs one busy bidirectional stream across all updates, with each message echoed; returns the number of messages, and
/// the number of version changes between them.
async fn talk(target: String, stopped: watch::Receiver<()>) -> Result<(u64, usize), Failure> {
    let mut client = CartClient::connect(target).await?;
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let mut replies = client.chat(tokio_stream::wrappers::ReceiverStream::new(receive)).await?.into_inner();
    let (mut n, mut n_moves, mut version) = (0, 0, 1);
    while stopped.has_changed().is_ok() {
        send.send(CartRequest { user: "bob".into(), object_id: n as i64, ..CartRequest::default() }).await?;
        let reply = replies.message().await?.ok_or("the stream ended early")?;
        assert_eq!(reply.object_id, n as i64);
        n_moves += usize::from(reply.quantity != version);
        version = reply.quantity;
        n += 1;
    }
    drop(send);
    assert!(replies.message().await?.is_none(), "the stream ends well");
    Ok((n, n_moves))
}

/// State belongs to the names of chain, instance and table: a renamed instance loses it, which must be reported.
#[test]
fn rename_reports_lost_state() {
    let server = shop_server("cart-1");
    let folder = Folder::new();
    let with = |instance: &str| {
        let text = format!(
            "CREATE ELEMENT guard ON rpc (user TEXT) AS
  TABLE seen (user TEXT(64) PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
  VAR last TIMESTAMP;
  ON REQUEST
    SET last = now();
    UPSERT seen KEY (user) SET n = n + 1;
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS {instance}; END;
"
        );
        network(&server, &text)
    };
    let old = folder.write("old.weft", &with("guard"));
    let new = folder.write("new.weft", &with("guard AS other"));
    let node = Node::start(&folder, &old, &["--workers", "2"]);
    let runtime = runtime();
    runtime.block_on(async {
        let mut client = CartClient::connect(format!("http://{}", node.listener)).await.expect("it listens");
        for user in ["alice", "bob", "alice"] {
            let request = CartRequest { user: user.into(), ..CartRequest::default() };
            client.add(request).await.expect("it is let through");
        }
    });
    let wanted = "  state dropped: table shop.guard.seen (2 rows), var shop.guard.last\n";
    let apply = |args: &[&str], file: &PathBuf| {
        let done = output(weft(&folder).args(["apply", "--admin", &node.admin]).args(args).arg(file));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let same = apply(&["--dry-run"], &old);
    assert!(!same.contains("dropped"), "{same}");
    for args in [&["--dry-run"][..], &[]] {
        let text = apply(args, &new);
        assert!(text.ends_with(wanted), "{text}");
    }
}

/// An update whose state cannot be carried over would be accepted, or would end the running program.
#[test]
fn incompatible_update_is_refused() {
    let server = shop_server("cart-1");
    let folder = Folder::new();
    let with_key = |key: &str| {
        network(
            &server,
            &format!(
                "CREATE ELEMENT guard ON rpc (user TEXT) AS
  TABLE seen ({key} PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON REQUEST UPSERT seen KEY (length(user)) SET n = n + 1;
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS guard; END;
"
            ),
        )
    };
    let old = folder.write("old.weft", &with_key("size I64"));
    let new = folder.write("new.weft", &with_key("bytes I64"));
    let broken = folder.write("broken.weft", &with_key("size NONSENSE"));
    let node = Node::start(&folder, &old, &[]);
    for (file, code) in [(&new, "W0501"), (&broken, "error[")] {
        let refused = output(weft(&folder).args(["apply", "--admin", &node.admin]).arg(file));
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{text}");
        assert!(text.contains(code) && text.contains("nothing was applied"), "{text}");
    }
    let status = output(weft(&folder).args(["status", "-o", "json", "--admin", &node.admin]));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("one JSON object");
    assert_eq!(status["version"], 1);
}
