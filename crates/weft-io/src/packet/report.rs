//! What the packet side of a node tells of itself.

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

/// What the packet side of a node counted.
#[derive(Clone, Debug, Default)]
pub struct PacketNodeStats {
    /// Of the engines.
    pub stats: PacketStats,
    /// Of the ports, in their order.
    pub ports: Vec<PortReport>,
    /// Of the links.
    pub links: Vec<LinkReport>,
}

/// What a link counted.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The link, and what it runs.
    pub plan: LinkPlan,
    /// What came and went.
    pub stats: LinkStats,
}

/// What a port counted.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The port.
    pub config: PortConfig,
    /// Of the devices of all its queues.
    pub device: DeviceCounters,
    /// Frames that were dropped because [`super::WAITING_MAX`] waited for the port already.
    pub full: u64,
    /// Frames that were dropped because the device is gone or down, and a link says that they are to be: those that no
    /// link had, or that had left it already.
    pub lost: u64,
    /// The device is gone, for this reason, and what a link says is done meanwhile.
    pub gone: Option<(String, Option<OnFailure>)>,
    /// The device is there, but down, and this is what a link says is done meanwhile.
    pub down: Option<OnFailure>,
    /// No frame will come from it any more: a capture is at its end, for this reason if it did not get there.
    pub ended: Option<Option<String>>,
}

impl PacketNodeStats {
    /// Adds what another worker counted, which has the same ports.
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
