//! The counters of a whole node: of its workers, ports, links and sinks.

use crate::packet::link::{LinkPlan, LinkStats, OnFailure};
use crate::packet::port::{DeviceCounters, PortConfig};
use crate::packet::stats::PacketStats;
use crate::stats::Stats;
use std::collections::BTreeMap;
use weft_core::abi::Counters;

/// Counters of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeStats {
    /// The sum over all workers.
    pub stats: Stats,
    /// Counters of elements of retired versions: (chain, [(instance, counters)]).
    pub retired: Vec<(String, Vec<(String, Counters)>)>,
    /// System calls of the data path.
    pub syscalls: u64,
    /// By endpoint, why a worker's last attempt to connect failed.
    pub connect_errors: BTreeMap<String, String>,
    /// By path, why a sink's file cannot be written.
    pub sink_errors: BTreeMap<String, String>,
    /// Counters of frames; None without ports.
    pub packets: Option<PacketNodeStats>,
}

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
    /// Frames dropped because as many as are allowed waited for the port already.
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
    pub fn merge(&mut self, other: Self) {
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

/// The identity of a series of a sink `TO METRICS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The sink's name.
    pub sink: String,
    /// The column's name.
    pub column: String,
    /// The chain's name.
    pub chain: String,
    /// The instance's name.
    pub instance: String,
    /// The row's text columns and their values. An empty text counts as no label.
    pub labels: Vec<(String, String)>,
}

/// The values of sinks `TO METRICS`.
#[derive(Clone, Debug, Default)]
pub struct SinkValues {
    /// The last value of each series, in order.
    pub values: Vec<(Series, f64)>,
    /// Values dropped because there were too many series already.
    pub n_lost: u64,
}
