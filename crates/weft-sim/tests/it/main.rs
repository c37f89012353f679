//! The simulator against what is published of the things that it simulates, and queue programs in virtual time.

mod call_links;
mod isolation;
mod limits;
mod ns3;
mod queue_timers;
mod queues;
mod rfc_constants;
mod rig;
mod shapes;
mod snapshots;
mod tallies;
mod tcp;
mod twins;
