//! Compares the simulator with published results, and runs queue programs in virtual time.

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
