//! The engine in a simulated world: calls, chains, failures, updates, hostile peers.

mod calls;
mod chains;
mod close;
mod derived;
mod filters;
mod hold;
mod hostile;
mod links;
mod options;
mod packets;
mod queues;
mod rules;
mod state;
mod support;
mod update;
mod upstream;
