//! A packet network under a virtual clock: links with queues, and TCP flows through them.
//!
//! It shows how a queue affects applications. A [`Net`] has links, each with a rate or a trace of delivery
//! opportunities, a delay and a [`Discipline`]. It has flows, each with a TCP sender, a receiver and an application.
//! Time jumps from event to event; the same seed gives the same run, bit for bit, on every machine.
//!
//! ```
//! use weft_sim::net::twins::Fifo;
//! use weft_sim::net::{Dumbbell, FlowSpec, LinkSpec, Net, SenderSpec, Workload};
//!
//! let mut net = Net::new(1);
//! let link = LinkSpec::fixed(10_000_000, 20_000_000);
//! let ends = Dumbbell::new(&mut net, link, Box::new(Fifo::new(50)), 20_000_000);
//! let flow = net.add_flow(FlowSpec {
//!     forward: vec![ends.bottleneck],
//!     back: vec![ends.back],
//!     sender: SenderSpec::default(),
//!     workload: Workload::Endless,
//!     class: 0,
//!     start_ns: 0,
//! });
//! net.run_until(10_000_000_000);
//! let bits_per_s = net.flow(flow).received_bytes as f64 * 8.0 / 10.0;
//! assert!((8e6..=10e6).contains(&bits_per_s));
//! ```
//!
//! | file | content |
//! | --- | --- |
//! | `network` | the simulation loop |
//! | `tournament` | the event queue: a tournament tree |
//! | `link`, `lte` | links, and synthetic LTE traces |
//! | `discipline`, `twins` | the interface of queues, and hand-written well-known queues |
//! | `programmed` | a queue program of the engine as a discipline |
//! | `offered` | flows without congestion control, into one queue |
//! | `tcp` | senders and receivers |
//! | `packet` | an arena of packets in flight |
//! | `sizes`, `topology` | message sizes, and network topologies |
//! | `measure` | percentiles, fairness, power |
//! | `silver_bullet` | the experiment of "Extending SDN to the Data Plane" |
//! | `portable_math` | floating-point functions with equal results on every machine |

mod discipline;
mod link;
mod lte;
pub mod measure;
mod network;
mod offered;
mod packet;
mod portable_math;
mod programmed;
pub mod silver_bullet;
mod sizes;
mod tcp;
mod topology;
mod tournament;
pub mod twins;

pub use discipline::{Backlog, Discipline, DropReason, Dropped, Drops, ECN_CE, Item};
pub use link::{LinkSpec, LinkStats, Rate};
pub use lte::like_lte;
pub use network::{
    COMPLETIONS_MAX, Completion, FlowId, FlowSpec, FlowStats, HOPS_MAX, LinkId, Net, Pending, Workload,
};
pub use offered::{FlowResult, OfferedFlow, offer};
pub use packet::PACKETS_MAX;
pub use portable_math::exponential;
pub use programmed::{Programmed, packet_of};
pub use sizes::Sizes;
pub use tcp::{Algorithm, SenderSpec, SenderStats};
pub use topology::{Dumbbell, FAT_TREE_PORTS_MAX, FatTree, ParkingLot};
pub use tournament::{NEVER, Tournament};
pub use weft_engine::packet::trace::{
    Cursor, OPPORTUNITIES_MAX, TRACE_MS_MAX, Trace, TraceError, TraceFault,
};
