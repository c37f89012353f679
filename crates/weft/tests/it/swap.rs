//! Hot updates under load: every call is answered, by one version.

use crate::node::{Folder, Node, output, shop_server, weft};
use shop::load::Settings;
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use std::time::{Duration, Instant};

/// Swaps in the middle of the load.
const SWAPS: usize = 10;
const LOAD: Duration = Duration::from_secs(7);

fn program(server: &str, text: &str) -> String {
    format!(
        "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE ELEMENT guard ON rpc (user TEXT) AS
  VAR passed U64 = 0 MERGE SUM;
  {text}
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS
  guard;
END;
"
    )
}

/// An update that lost a call, or cut a stream or a slow call, would be no hot update.
#[test]
fn ten_updates_under_load_lose_nothing() {
    let server = shop_server("cart-1");
    let folder = Folder::new();
    let one = program(&server, "ON REQUEST ADD passed, 1;");
    let two = program(
        &server,
        "ON REQUEST
    SELECT * FROM input WHERE user <> 'mallory' ELSE ABORT PERMISSION_DENIED 'not you';
    ADD passed, 1;",
    );
    let programs = [folder.write("one.weft", &one), folder.write("two.weft", &two)];
    let node = Node::start(&folder, &programs[0], &[]);
    let target = format!("http://{}", node.listener);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");

    let slow = runtime.spawn(slow_call(target.clone()));
    let chat = runtime.spawn(chat(target.clone()));
    let load = std::thread::spawn(move || {
        let settings =
            Settings { target, n_in_flight: 32, n_connections: 2, duration: LOAD, rate_per_s: None, seed: 7 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime
            .block_on(shop::load::run(&settings, std::future::pending::<()>(), |_| {}))
            .expect("the load runs")
    });
    std::thread::sleep(Duration::from_millis(500));
    for swap in 0..SWAPS {
        let file = &programs[(swap + 1) % 2];
        let applied = output(weft(&folder).args(["apply", "--json", "--admin", &node.admin]).arg(file));
        let text = String::from_utf8_lossy(&applied.stdout).into_owned();
        assert!(applied.status.success(), "{text}{}", String::from_utf8_lossy(&applied.stderr));
        let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
        assert_eq!(report["version"], swap as u64 + 2);
        std::thread::sleep(Duration::from_millis(400));
    }
    let tally = load.join().expect("the load ends");
    assert_eq!(tally.sent, tally.answered);
    let known = ["OK", "PERMISSION_DENIED"];
    assert!(tally.by_status.keys().all(|status| known.contains(&status.as_str())), "{:?}", tally.by_status);
    assert!(tally.by_status.contains_key("PERMISSION_DENIED"), "the second program was never in force");
    runtime.block_on(slow).expect("no panic").expect("a call that was under way ends well");
    let n_echoed = runtime.block_on(chat).expect("no panic").expect("a stream that was open goes on");
    assert!(n_echoed > 20, "{n_echoed} messages went through the stream");
    assert_eq!(node.stop(), Some(0));
}

async fn slow_call(target: String) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut client = CartClient::connect(target).await?;
    let begun = Instant::now();
    client.get(CartRequest { user: "alice".into(), quantity: 5_000, ..CartRequest::default() }).await?;
    assert!(begun.elapsed() >= Duration::from_secs(5), "the server took its time");
    Ok(())
}

/// One bidirectional stream across all updates: a message every 100 ms, each echoed.
async fn chat(target: String) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let mut client = CartClient::connect(target).await?;
    let until = Instant::now() + LOAD;
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let mut replies = client.chat(tokio_stream::wrappers::ReceiverStream::new(receive)).await?.into_inner();
    let mut n = 0;
    while Instant::now() < until {
        send.send(CartRequest { user: "bob".into(), object_id: n as i64, ..CartRequest::default() }).await?;
        let reply = replies.message().await?.ok_or("the stream ended early")?;
        assert_eq!(reply.object_id, n as i64);
        n += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(send);
    assert!(replies.message().await?.is_none(), "the stream ends well");
    Ok(n)
}

/// What cannot be carried over is refused with a diagnostic, and the old program runs on.
#[test]
fn an_incompatible_update_is_refused() {
    let server = shop_server("cart-1");
    let folder = Folder::new();
    let with_key = |key: &str| {
        program(
            &server,
            &format!(
                "TABLE seen ({key} PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON REQUEST UPSERT seen KEY (length(user)) SET n = n + 1;"
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
