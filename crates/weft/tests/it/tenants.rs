//! A limit holds for any number of workers and connections.

use crate::node::{Folder, Node, runtime, shop_server};
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const RATE: f64 = 100.0;
const CONNECTIONS: usize = 8;
const TIME: Duration = Duration::from_secs(4);

/// Two workers with separate buckets would admit twice the rate.
#[test]
fn tenant_limit_holds_over_workers() {
    let server = shop_server("cart-1");
    for workers in ["1", "4"] {
        let rate = admitted_rate(&server, workers);
        // On an idle machine it is within a hundredth. A busy machine leaves some of the rate unused.
        let is_held = (RATE * 0.8..=RATE * 1.05).contains(&rate);
        assert!(is_held, "{workers} workers admitted {rate:.2} calls a second");
    }
}

/// The admitted calls a second, between the first and the last.
fn admitted_rate(server: &str, workers: &str) -> f64 {
    let folder = Folder::new();
    let program = format!(
        "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE ELEMENT limit_tenant (rate F64 = {RATE:.1}, burst F64 = 5.0) ON rpc (tenant TEXT) AS
  TABLE b (tenant TEXT(64) PRIMARY KEY, tokens F64 = burst, last TIMESTAMP = now())
    TTL '60 s' MAX 1000 ROWS EVICT OLDEST;
  ON REQUEST
    UPSERT b KEY (input.tenant) SET tokens = least(burst, tokens + rate * seconds(now() - last)), last = now();
    UPDATE b SET tokens = tokens - 1.0 WHERE tenant = input.tenant AND tokens >= 1.0
      ELSE ABORT RESOURCE_EXHAUSTED 'over the limit';
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS
  limit_tenant (tenant := req.user);
END;
"
    );
    let program = folder.write("network.weft", &program);
    let node = Node::start(&folder, &program, &["--workers", workers]);
    let admitted = Arc::new(Mutex::new(Vec::new()));
    let runtime = runtime();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = CartClient::connect(format!("http://{}", node.listener)).await.expect("it listens");
            tasks.push(call_until_the_end(client, Arc::clone(&admitted)));
        }
        let set: tokio::task::JoinSet<_> = tasks.into_iter().collect();
        set.join_all().await;
    });
    let admitted = admitted.lock().expect("no panic");
    // The first calls spend the burst; from then on only the rate counts.
    let steady = &admitted[10..];
    let (first, last) = (steady[0], *steady.last().expect("some got through"));
    (steady.len() - 1) as f64 / (last - first).as_secs_f64()
}

async fn call_until_the_end(
    mut client: CartClient<tonic::transport::Channel>,
    admitted: Arc<Mutex<Vec<Instant>>>,
) {
    let until = Instant::now() + TIME;
    while Instant::now() < until {
        let request = CartRequest { user: "tenant-1".into(), ..CartRequest::default() };
        match client.add(request).await {
            Ok(_) => admitted.lock().expect("no panic").push(Instant::now()),
            Err(status) => assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
