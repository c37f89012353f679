//! Tests the front end against the cart, in one process and over real sockets.

use std::time::Duration;

use shop::load::{Settings, run};
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use shop::server::{Listener, serve};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Cart {
    target: String,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Cart {
    async fn start(listen: &str) -> Self {
        let listener = Listener::bind(listen).await.unwrap();
        let address = listener.address().unwrap();
        let target = if listen.starts_with("unix:") { address } else { format!("http://{address}") };
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, "cart-1".to_owned(), async {
            let _ = stopped.await;
        }));
        Self { target, stop, served }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

fn request(quantity: i32) -> CartRequest {
    CartRequest { user: "alice".to_owned(), object_id: 7, quantity, ..CartRequest::default() }
}

#[tokio::test]
async fn every_sent_call_is_answered() {
    // If this failed, the demo's count of lost calls would be meaningless.
    for (listen, rate_per_s) in [("127.0.0.1:0", None), ("unix:", Some(200.0))] {
        let path = std::env::temp_dir().join(format!("shop-e2e-{}.sock", std::process::id()));
        let listen = if listen == "unix:" { format!("unix:{}", path.display()) } else { listen.to_owned() };
        let cart = Cart::start(&listen).await;
        let settings = Settings {
            target: cart.target.clone(),
            n_in_flight: 8,
            n_connections: 2,
            duration: Duration::from_millis(300),
            rate_per_s,
            seed: 1,
        };
        let mut lines = Vec::new();
        let total = run(&settings, std::future::pending(), |line| lines.push(line.clone())).await.unwrap();
        assert!(total.sent > 0);
        assert_eq!(total.sent, total.answered);
        assert_eq!(total.by_status.get("OK"), Some(&total.sent));
        assert_eq!((total.checked, total.wrong), (total.sent, 0));
        assert!(rate_per_s.is_none_or(|rate| total.sent as f64 <= rate * 0.3 + 8.0), "{}", total.sent);
        assert_eq!(lines.last().unwrap()["final"], true);
        assert_eq!(lines.last().unwrap()["answered"], total.answered);
        cart.stop().await;
    }
}

#[tokio::test]
async fn each_call_kind_is_served() {
    // If this failed, a chain could not be tried on the streaming methods.
    let cart = Cart::start("127.0.0.1:0").await;
    let mut client = CartClient::connect(cart.target.clone()).await.unwrap();
    let added = client.add(request(3)).await.unwrap().into_inner();
    assert_eq!((added.server.as_str(), added.object_id, added.quantity), ("cart-1", 7, 3));
    assert_eq!(client.get(request(5)).await.unwrap().into_inner().quantity, 5);
    let mut watch = client.watch(request(3)).await.unwrap().into_inner();
    for quantity in 1..=3 {
        assert_eq!(watch.message().await.unwrap().unwrap().quantity, quantity);
    }
    assert!(watch.message().await.unwrap().is_none());
    let upload = client.upload(tokio_stream::iter([request(1), request(2), request(3)])).await.unwrap();
    assert_eq!(upload.into_inner().quantity, 6);
    let mut chat = client.chat(tokio_stream::iter([request(1), request(2)])).await.unwrap().into_inner();
    assert_eq!(chat.message().await.unwrap().unwrap().quantity, 1);
    assert_eq!(chat.message().await.unwrap().unwrap().quantity, 2);
    assert!(chat.message().await.unwrap().is_none());
    drop(client);
    cart.stop().await;
}

#[tokio::test]
async fn stopping_server_finishes_calls() {
    // If this failed, a restart of a cart would look like a call that the network lost.
    let cart = Cart::start("127.0.0.1:0").await;
    let mut client = CartClient::connect(cart.target.clone()).await.unwrap();
    let slow = tokio::spawn(async move { client.get(request(200)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    cart.stop().await;
    assert_eq!(slow.await.unwrap().unwrap().into_inner().quantity, 200);
}

#[tokio::test]
async fn absent_target_is_an_error() {
    // If this failed, a mistyped port would be reported as a service that fails every call.
    let settings = Settings {
        target: "http://127.0.0.1:1".to_owned(),
        n_in_flight: 1,
        n_connections: 1,
        duration: Duration::from_millis(10),
        rate_per_s: None,
        seed: 1,
    };
    assert!(run(&settings, std::future::pending(), |_| {}).await.is_err());
}
