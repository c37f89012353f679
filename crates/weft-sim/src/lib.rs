//! A deterministic simulation of the production engine and its network.
//!
//! A [`World`] has one [`weft_engine::Engine`], gRPC clients and servers over HTTP/2, and a [`Network`] that delays,
//! splits, refuses and resets streams, as its seed decides. Nothing in it reads a clock: time jumps from event to
//! event, so minutes pass in milliseconds. The same seed gives the same run ([`World::log_hash`]).
//!
//! Separately, [`net`] simulates a packet network: links with queues, and TCP flows through them.
//!
//! ```
//! use std::sync::Arc;
//! use weft_core::options::ClusterOptions;
//! use weft_engine::plan::{Balance, Cluster, Listener, MethodSet, Plan, Route};
//! use weft_sim::{Behaviour, Call, Network, World};
//!
//! let cluster = Cluster {
//!     name: "cart".to_owned(),
//!     endpoints: vec!["10.0.0.1:50051".parse().unwrap()],
//!     names: Vec::new(),
//!     balance: Balance::RoundRobin,
//!     weights: Vec::new(),
//!     options: ClusterOptions { connections: Some(1), ..ClusterOptions::default() },
//! };
//! let route = Route {
//!     name: "all".to_owned(),
//!     listener: 0,
//!     methods: MethodSet::all(),
//!     condition: None,
//!     cluster: 0,
//!     chains: Vec::new(),
//! };
//! let plan = Plan {
//!     version: 1,
//!     listeners: vec![Listener {
//!         name: "front".to_owned(),
//!         address: "10.0.0.9:80".parse().unwrap(),
//!         options: Arc::default(),
//!     }],
//!     clusters: vec![Arc::new(cluster)],
//!     routes: vec![route],
//!     chains: Vec::new(),
//!     call_queues: Vec::new(),
//! };
//! let mut world =
//!     World::new(1, plan).network(Network::choppy(1)).server("10.0.0.1:50051", |_| Behaviour::default());
//! let client = world.client("front");
//! let call = world.call(client, Call::unary("/shop.Cart/Add", b"hello"));
//! world.run();
//! assert_eq!(world.answer(call).code(), Some(0));
//! ```

mod client;
pub mod net;
mod network;
mod peer;
mod server;
mod world;

pub use client::{Answer, Call, End};
pub use network::Network;
pub use peer::{Fields, Message, field};
pub use server::{Behaviour, Received, Reply};
pub use world::{CallId, ClientId, EVENTS_MAX, Raw, RawId, START, TIME_MAX, World};
