//! Endpoints with names, on a real node.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_core::{Interval, Time};
use weft_engine::Config;
use weft_engine::plan::{Address, Balance, Cluster, Listener, MethodSet, Plan, Route};
use weft_io::descriptors::Descriptors;
use weft_io::names::{Name, Names};
use weft_io::{Node, NodeConfig};
use weft_proto::session::http2::{self, Connection, HeadersBuilder};

const CART: &str = "cart.test:50051";

fn plan() -> Plan {
    let cluster = Cluster {
        name: "cart".to_owned(),
        endpoints: vec![Address::Name(CART.to_owned())],
        names: vec![CART.to_owned()],
        weights: vec![1],
        balance: Balance::RoundRobin,
        options: weft_core::options::ClusterOptions::default(),
    };
    let route = Route {
        name: "all".to_owned(),
        listener: 0,
        methods: MethodSet::all(),
        condition: None,
        cluster: 0,
        chains: Vec::new(),
    };
    let address = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    Plan {
        version: 1,
        listeners: vec![Listener { name: "front".to_owned(), address, options: Arc::default() }],
        clusters: vec![Arc::new(cluster)],
        routes: vec![route],
        ..Plan::default()
    }
}

fn names(addresses: &[SocketAddr]) -> Arc<Names> {
    let found = Name { addresses: addresses.to_vec(), error: None };
    Arc::new(BTreeMap::from([(CART.to_owned(), found)]))
}

/// A call on a connection of its own that waits for a server.
fn call(node: &Node) -> TcpStream {
    let Address::Tcp(front) = node.listeners()[0].address else { panic!("the listener is on IP") };
    let mut client = Connection::new(http2::Config::client(), Time(0));
    let mut request = HeadersBuilder::new();
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/shop.Cart/Add"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in headers {
        request.push(name.as_bytes(), value.as_bytes()).expect("the header is valid");
    }
    let stream = client.open().expect("the first");
    client.send_headers(stream, &request.build(), true).expect("the request is small");
    let mut socket = TcpStream::connect(front).expect("the node listens");
    socket.write_all(client.output()).expect("the node reads");
    socket
}

/// The next connection to a server.
fn connection_to(server: &TcpListener) -> Option<TcpStream> {
    server.set_nonblocking(true).expect("the socket is open");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match server.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return None,
        }
    }
}

/// A host with several addresses would be unreachable as soon as its first one is, and a host with a new address until
/// a restart.
#[test]
fn all_addresses_of_a_name_are_tried() {
    let server = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = |server: &TcpListener| server.local_addr().expect("the listener is bound");
    let (first, second) = (server(), server());
    // A port that was just closed refuses connections.
    let refusing = at(&server());
    let config = NodeConfig {
        workers: 1,
        busy_poll: Interval::ZERO,
        coalesce: Interval::ZERO,
        engine: Config::default(),
        descriptors: Descriptors::of_limit(None),
        tables: None,
        names: names(&[refusing, at(&first)]),
    };
    let node = Node::start(&config, &Arc::new(plan()), None).expect("the addresses are free");
    let _call = call(&node);
    let accepted = connection_to(&first);
    assert!(accepted.is_some(), "the second address answers");
    node.set_names(&names(&[at(&second)])).expect("the worker runs");
    // The waiting call gets the new server, too.
    assert!(connection_to(&second).is_some(), "it is the only address now");
    node.set_names(&names(&[])).expect("the worker runs");
    assert!(node.stop(Duration::ZERO).is_clean);
}
