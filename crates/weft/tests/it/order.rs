//! The order of a chain's elements on a node.

use crate::node::{Folder, Node, output, runtime, shop_server, weft};
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use std::path::Path;

/// More calls than the minimum for a measured rate.
const CALLS: usize = 1200;

/// Refuses every second call and counts its user. The expensive element comes first, and only `strict` insists on that.
fn program(server: &str, level: &str) -> String {
    format!(
        "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE ELEMENT heavy ON rpc (payload BYTES) AS
  ON REQUEST SET payload = payload || payload || payload || payload || payload || payload;
END;
CREATE ELEMENT guard ON rpc (user TEXT) AS
  TABLE seen (user TEXT(64) PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON REQUEST
    UPSERT seen KEY (user) SET n = n + 1;
    SELECT * FROM input WHERE user <> 'mallory' ELSE ABORT PERMISSION_DENIED 'not you';
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS
  heavy -> guard;
  EQUIVALENCE {level};
END;
"
    )
}

/// Measurements would not change the order at the next update, or the update would lose state or counters.
#[test]
fn update_reorders_by_counters() {
    let server = shop_server("cart-1");
    for workers in ["1", "4"] {
        reorder(&server, workers);
    }
}

fn reorder(server: &str, workers: &str) {
    let folder = Folder::new();
    let strict = folder.write("strict.weft", &program(server, "strict"));
    let observable = folder.write("observable.weft", &program(server, "observable"));
    let node = Node::start(&folder, &strict, &["--workers", workers]);
    call(&node);
    assert_eq!(elements(&folder, &node), [("heavy".to_owned(), 1200), ("guard".to_owned(), 1200)]);
    let applied = apply(&folder, &node, &observable);
    let planned = &applied["planned"][0];
    assert_eq!(planned["order"], serde_json::json!(["guard", "heavy"]), "{applied}");
    assert_eq!(planned["is_measured"], true);
    assert_eq!(applied["dropped"], serde_json::json!([]));
    call(&node);
    assert_eq!(elements(&folder, &node), [("guard".to_owned(), 1200), ("heavy".to_owned(), 600)]);
    let explained = output(weft(&folder).arg("explain").arg(&observable).args(["--admin", &node.admin]));
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("guard -> heavy   measured "), "{explained}");
    assert!(explained.contains("ns ending 50 %, heavy"), "{explained}");
    // The table's rows belong to both versions, under the instance's name.
    let gone = folder.write("gone.weft", &program(server, "strict").replace("guard;", "guard AS other;"));
    let dropped = apply(&folder, &node, &gone)["dropped"].clone();
    assert_eq!(dropped, serde_json::json!([{ "what": "table shop.guard.seen", "rows": 2 }]));
    assert_eq!(node.stop(), Some(0));
}

fn apply(folder: &Folder, node: &Node, file: &Path) -> serde_json::Value {
    let done = output(weft(folder).args(["apply", "--json", "--admin", &node.admin]).arg(file));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    serde_json::from_slice(&done.stdout).expect("one JSON object")
}

/// The elements of the current version in order, with the number of calls that reached each.
fn elements(folder: &Folder, node: &Node) -> Vec<(String, u64)> {
    let done = output(weft(folder).args(["status", "--json", "--admin", &node.admin]));
    let status: serde_json::Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
    let chains = status["chains"].as_array().expect("a list");
    let current = chains.iter().find(|chain| chain["is_current"] == true).expect("a chain runs");
    let element = |element: &serde_json::Value| {
        let name = element["name"].as_str().expect("it has a name");
        (name.to_owned(), element["seen"].as_u64().expect("a number"))
    };
    current["elements"].as_array().expect("a list").iter().map(element).collect()
}

/// Makes calls of two users in turn, of which one is refused.
fn call(node: &Node) {
    let runtime = runtime();
    runtime.block_on(async {
        let mut client = CartClient::connect(format!("http://{}", node.listener)).await.expect("it listens");
        for n in 0..CALLS {
            let user = if n % 2 == 0 { "alice" } else { "mallory" }.to_owned();
            let payload = vec![b'x'; 4096].into();
            let answer = client.add(CartRequest { user, payload, ..CartRequest::default() }).await;
            let code = answer.err().map(|status| status.code());
            let refused = (n % 2 == 1).then_some(tonic::Code::PermissionDenied);
            assert_eq!(code, refused, "call {n}");
        }
    });
}

/// Elements that only seem to be swappable: their code, the stages, a request, and its outcome.
const KEPT: [(&str, &str, &str); 3] = [
    (
        "a member of a oneof that another displaces",
        "CREATE ELEMENT a ON rpc (address TEXT?) AS ON REQUEST SET address = 'home'; END;
CREATE ELEMENT b ON rpc (locker I64?) AS
  ON REQUEST IF locker IS NOT NULL THEN ABORT INVALID_ARGUMENT 'a locker'; END IF;
END;
CREATE ELEMENT c ON rpc AS ON REQUEST SET header['x-c'] = 'c'; END;",
        "passes",
    ),
    (
        "a limit in front of a compression",
        "CREATE ELEMENT a ON rpc (payload BYTES) AS
  ON REQUEST
    IF length(payload) > 100 THEN ABORT INVALID_ARGUMENT 'big'; END IF;
    SET payload = gzip(payload);
END;
CREATE ELEMENT b ON rpc (payload BYTES) AS ON REQUEST SET payload = gunzip(payload); END;
CREATE ELEMENT c ON rpc (payload BYTES) AS
  ON REQUEST
    IF length(payload) = 0 THEN ABORT INVALID_ARGUMENT 'big'; END IF;
    SET payload = 'short';
END;",
        "big",
    ),
    (
        "the size behind a change",
        "CREATE ELEMENT a ON rpc (payload BYTES) AS ON REQUEST SET payload = ''; END;
CREATE ELEMENT b ON rpc AS
  ON REQUEST IF size > '100 B' THEN ABORT INVALID_ARGUMENT 'large'; END IF;
END;
CREATE ELEMENT c ON rpc AS ON REQUEST SET header['x-c'] = 'c'; END;",
        "passes",
    ),
];

/// A policy would change its meaning: a plan would admit a call that the written order refuses, or a filter between two
/// elements would change the second one's input.
#[test]
fn planned_and_cut_chains_agree() {
    let server = shop_server("cart-1");
    for (what, elements, wanted) in KEPT {
        for stages in ["a -> b -> c", "a -> b -> c; ORDER a BEFORE b; ORDER b BEFORE c", "a -> f -> b -> c"] {
            let folder = Folder::new();
            let program = format!(
                "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE FILTER f ON rpc AS TIMEOUT TOTAL '5 s'; END;
{elements}
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS {stages}; END;
"
            );
            let node = Node::start(&folder, &folder.write("kept.weft", &program), &[]);
            let ended = runtime().block_on(async {
                let mut client =
                    CartClient::connect(format!("http://{}", node.listener)).await.expect("it listens");
                let delivery = Some(shop::pb::cart_request::Delivery::Locker(5));
                let request =
                    CartRequest { payload: vec![b'x'; 200].into(), delivery, ..CartRequest::default() };
                client.add(request).await
            });
            let ended = ended.map_or_else(|status| status.message().to_owned(), |_| "passes".to_owned());
            assert_eq!(ended, wanted, "{what}: {stages}");
            assert_eq!(node.stop(), Some(0));
        }
    }
}
