//! A deterministic world around the production engine.
//!
//! A [`World`] has one [`weft_engine::Engine`], clients and servers that speak gRPC over HTTP/2, and a [`Network`]
//! that cuts, delays, refuses and resets as its seed says. Nothing in it reads a clock: time jumps from event to
//! event, so minutes pass in milliseconds, and the same seed gives the same run ([`World::log_hash`]).
//!
//! ```
//! use weft_engine::plan::Plan;
//! use weft_sim::{Behaviour, Call, World};
//!
//! let mut world = World::new(1, Plan::default()).server("10.0.0.1:1", |_| Behaviour::default());
//! # let plan_without_listener = true;
//! # if plan_without_listener { return; }
//! let client = world.client("front");
//! let call = world.call(client, Call::unary("/shop.Cart/Add", b"hello"));
//! world.run();
//! assert_eq!(world.answer(call).code(), Some(0));
//! ```

mod client;
mod dice;
mod network;
mod peer;
mod server;
mod world;

pub use client::{Answer, Call, End};
pub use dice::Dice;
pub use network::Network;
pub use peer::{Fields, Message, field};
pub use server::{Behaviour, Received, Reply};
pub use world::{CallId, ClientId, EVENTS_MAX, Raw, RawId, START, TIME_MAX, World};
