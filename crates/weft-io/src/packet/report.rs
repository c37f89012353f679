//! Errors and counters of the packet side of a node.

use super::DeviceCounters;
use super::port::PortConfig;
use core::fmt;
use std::io;
use weft_engine::packet::link::{LinkPlan, LinkStats, OnFailure};
use weft_engine::packet::stats::PacketStats;

/// A device of a port has failed: it is gone, or its file cannot be written.
#[derive(Debug)]
pub struct PortError {
    /// The port.
    pub port: String,
    /// Its device.
    pub device: String,
    /// The system's reason.
    pub error: io::Error,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port `{}`: `{}` has failed: {}", self.port, self.device, self.error)
    }
}

impl core::error::Error for PortError {}

/// Counters of the packet side of a node.
#[derive(Clone, Debug, Default)]
pub struct PacketNodeStats {
    /// Of the engines.
    pub stats: PacketStats,
    /// Of the ports, in order.
    pub ports: Vec<PortReport>,
    /// Of the links.
    pub links: Vec<LinkReport>,
}

/// Counters of a link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The link and its program.
    pub plan: LinkPlan,
    /// Its counters.
    pub stats: LinkStats,
}

/// Counters and state of a port.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The port.
    pub config: PortConfig,
    /// Sum over the devices of all its queues.
    pub device: DeviceCounters,
    /// Frames dropped because [`super::WAITING_MAX`] were waiting for the port already.
    pub full: u64,
    /// Frames dropped because the device is lost or down and a link declares this. Frames held by a link do not count.
    pub lost: u64,
    /// Why the device is lost, and what a link declares to do meanwhile.
    pub gone: Option<(String, Option<OnFailure>)>,
    /// The device is down, and this is what a link declares to do meanwhile.
    pub down: Option<OnFailure>,
    /// No further frame will arrive: a capture has ended, early for this reason.
    pub ended: Option<Option<String>>,
}

impl PacketNodeStats {
    /// Adds the counters of another worker with the same ports.
    pub(super) fn merge(&mut self, other: Self) {
        self.stats.merge(&other.stats);
        self.links.extend(other.links);
        self.links.sort_by_key(|link| (link.plan.port, link.plan.ingress));
        if self.ports.is_empty() {
            self.ports = other.ports;
            return;
        }
        for (mine, theirs) in self.ports.iter_mut().zip(other.ports) {
            mine.device.add(&theirs.device);
            mine.full += theirs.full;
            mine.lost += theirs.lost;
            mine.gone = mine.gone.take().or(theirs.gone);
            mine.down = mine.down.or(theirs.down);
            mine.ended = mine.ended.take().or(theirs.ended);
        }
    }
}
