//! The state of a node in the form of the API.

use std::collections::BTreeMap;
use weft_api::{
    Chain, Element, Group, GroupMember, Link, Opt, PacketChain, Packets, PartitionVerdict, Port,
    QueuePartition, QueueVerdict,
};
use weft_core::options::OptionDef;
use weft_engine::FilterStats;
use weft_engine::call_queue::CallQueueStats;
use weft_engine::packet::group::{GroupStats, MemberStats};
use weft_engine::packet::link::OnFailure;
use weft_engine::packet::port::PortConfig;
use weft_engine::packet::stats::End;
use weft_engine::queue::{Counts, LineCount, LineTotal, PartitionState};
use weft_engine::report::{LinkReport, PacketNodeStats, PortReport};
use weft_engine::stats::ChainStats;
use weft_ir::program::Check;
use weft_ir::queue::Verdict;

/// Rows that chains sent to tables and that the tables refused, by the name of the table.
pub type RowsRefused = BTreeMap<String, u64>;

/// Converts a chain's counters to the API's form.
pub fn chain_of(chain: &ChainStats) -> Chain {
    Chain {
        name: chain.chain.clone(),
        version: chain.version,
        is_current: chain.is_current,
        calls_open: chain.calls_open,
        elements: chain.elements.iter().map(element_of).collect(),
    }
}

/// Converts an element's counters to the API's form.
fn element_of((name, c): &(String, weft_core::abi::Counters)) -> Element {
    Element {
        name: name.clone(),
        seen: c.seen,
        dropped: c.dropped,
        aborted: c.aborted,
        diverted: c.diverted,
        failed: c.failed,
        ns_per_tuple: (c.sampled > 0).then(|| c.sampled_ns as f64 / c.sampled as f64),
        sampled: c.sampled,
    }
}

/// Converts the counters of the packet path to the API's form.
pub fn packets_of(node: &PacketNodeStats) -> Packets {
    let ports = node.ports.iter().map(|port| Port {
        name: port.config.name.clone(),
        device: device_of(&port.config),
        received: port.device.received,
        received_bytes: port.device.received_bytes,
        sent: port.device.sent,
        sent_bytes: port.device.sent_bytes,
        dropped: port_drops(port).map(|(reason, n)| (reason.to_owned(), n)).collect(),
        is_ended: port.ended.is_some(),
        broken: port.ended.clone().flatten().or_else(|| device_failure(port)),
    });
    let chains = node.stats.chains.iter().map(|chain| PacketChain {
        name: chain.chain.clone(),
        version: chain.version,
        frames: chain.frames,
        elements: chain.elements.iter().map(element_of).collect(),
        ends: chain.ends.iter().map(end_of).collect(),
        malformed: chain.malformed.iter().map(|(check, n)| malformed_of(check, *n)).collect(),
    });
    Packets {
        ports: ports.collect(),
        groups: node.stats.groups.iter().map(group_of).collect(),
        chains: chains.collect(),
        lost: node.stats.drops.iter().map(|(reason, n)| (reason.name().to_owned(), *n)).collect(),
        copies: node.stats.copies,
        links: node.links.iter().map(|link| link_of(link, node)).collect(),
    }
}

/// Converts a group's counters to the API's form.
fn group_of(group: &GroupStats) -> Group {
    let member = |of: &MemberStats| GroupMember {
        port: of.port.clone(),
        weight: of.weight,
        is_up: of.is_up,
        sent: of.sent,
        sent_bytes: of.sent_bytes,
    };
    let members = group.members.iter().map(member).collect();
    Group { name: group.name.clone(), choice: group.choice.clone(), members }
}

/// Converts the counters of queue lines to the API's form.
fn lines_of(lines: &[LineTotal]) -> Vec<QueueVerdict> {
    let line = |line: &LineTotal| QueueVerdict {
        queue: line.queue.clone(),
        version: line.version,
        line: line.line,
        verdict: verdict_of(line.verdict).to_owned(),
        packets: line.packets,
    };
    lines.iter().map(line).collect()
}

fn verdict_of(verdict: Verdict) -> &'static str {
    if verdict == Verdict::Mark { "mark" } else { "drop" }
}

/// Partitions of a queue in the API's form. `queue` names a level, and `versions` has an entry for each.
fn partitions_of(
    partitions: &[PartitionState],
    queue: impl Fn(u8) -> String,
    versions: &[u64],
) -> Vec<QueuePartition> {
    let line = |line: &LineCount| PartitionVerdict {
        version: versions.get(usize::from(line.level)).copied().unwrap_or_default(),
        line: line.line,
        verdict: verdict_of(line.verdict).to_owned(),
        packets: line.packets,
    };
    let partition = |of: &PartitionState| QueuePartition {
        queue: queue(of.level),
        level: of.level,
        place: [of.node, of.index],
        packets: of.packets,
        bytes: of.bytes,
        rank: of.rank,
        is_held: of.held_until_ns.is_some(),
        sent: of.tally.waits.count(),
        dropped: of.tally.dropped,
        marked: of.tally.marked,
        waited_us: SHARES.map(|share| of.tally.waits.quantile(share) as f64 / 1e3),
        lines: of.tally.lines.iter().map(line).collect(),
    };
    partitions.iter().map(partition).collect()
}

/// The median, and the shares 9 of 10 and 99 of 100.
const SHARES: [f64; 3] = [0.5, 0.9, 0.99];

/// Converts the counters of a link of calls to the API's form.
pub fn call_link_of(stats: &CallQueueStats) -> Link {
    let queue = |level: u8| stats.levels[usize::from(level)].clone();
    Link {
        name: stats.name.clone(),
        port: stats.of.clone(),
        direction: "calls".to_owned(),
        queue: stats.queue.clone(),
        rate: stats.rate.map(|rate| rate.round() as u64),
        concurrency: stats.concurrency,
        in_flight: stats.in_flight,
        left: stats.counts.taken,
        swap_overflow: stats.swap_overflow,
        waited_us: SHARES.map(|share| stats.waited.quantile(share).0 as f64 / 1e3),
        lines: lines_of(&stats.lines),
        partitions: partitions_of(&stats.partitions, queue, &stats.versions),
        ..counted(&stats.counts)
    }
}

/// Converts the counters of a port's link to the API's form.
fn link_of(LinkReport { plan, stats }: &LinkReport, node: &PacketNodeStats) -> Link {
    let queue = |level: u8| plan.program.levels[usize::from(level)].name.clone();
    let port = node.ports.get(usize::from(plan.port));
    Link {
        name: plan.name.clone(),
        port: port.map_or_else(String::new, |port| port.config.name.clone()),
        direction: if plan.ingress { "in" } else { "out" }.to_owned(),
        queue: plan.program.name.clone(),
        rate: plan.rate,
        swap_overflow: stats.swap_overflow,
        waited_us: stats.waited_ns.map(|ns| ns as f64 / 1e3),
        lines: lines_of(&stats.lines),
        partitions: partitions_of(&stats.partitions, queue, &stats.versions),
        ..counted(&stats.counts)
    }
}

/// The counters of a link's queue in the API's form.
fn counted(counts: &Counts) -> Link {
    Link {
        arrived: counts.arrived,
        sent: counts.sent,
        queued: counts.queued,
        queued_bytes: counts.queued_bytes,
        marked: counts.marked,
        dropped: link_drops(counts).map(|(reason, n)| (reason.to_owned(), n)).collect(),
        ..Link::default()
    }
}

/// Packets that a link dropped, by reason.
pub fn link_drops(counts: &Counts) -> impl Iterator<Item = (&'static str, u64)> {
    let drops = [
        ("enqueue", counts.dropped_enqueue),
        ("dequeue", counts.dropped_dequeue),
        ("overflow", counts.dropped_overflow),
        ("device_gone", counts.dropped_device),
    ];
    drops.into_iter().filter(|(_, n)| *n > 0)
}

/// The device of a port as a person knows it: `packet eth0`.
pub fn device_of(port: &PortConfig) -> String {
    let place = port.namespace.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    format!("{} {}{place}", port.driver.name(), port.device)
}

/// Frames that a port dropped, by reason.
pub fn port_drops(port: &PortReport) -> impl Iterator<Item = (&'static str, u64)> {
    let device = &port.device;
    let drops = [
        ("overrun", device.overrun),
        ("refused_in", device.refused_in),
        ("refused_out", device.refused_out),
        ("port_full", port.full),
        ("device_gone", port.lost),
    ];
    drops.into_iter().filter(|(_, n)| *n > 0)
}

/// Reports that the device of a port is gone or down, and what the port does about it.
pub fn device_failure(port: &PortReport) -> Option<String> {
    let (how, on_failure) = match (&port.gone, port.down) {
        (Some((why, on_failure)), _) => (format!("gone ({why})"), *on_failure),
        (None, Some(on_failure)) => ("down".to_owned(), Some(on_failure)),
        (None, None) => return None,
    };
    let done = match on_failure {
        Some(OnFailure::Hold) => "what is to leave is held",
        Some(OnFailure::Drop) | None => "what is to leave is dropped",
    };
    Some(format!("`{}` is {how}: {done}", port.config.device))
}

/// Converts a reason for ended packets to the API's form.
fn end_of(end: &End) -> weft_api::PacketEnd {
    weft_api::PacketEnd {
        element: end.element.clone(),
        file: String::new(),
        line: end.line,
        how: end.how.to_string(),
        packets: end.n,
    }
}

/// Converts a check and its number of malformed packets to the API's form.
fn malformed_of(check: &Check, n: u64) -> weft_api::Malformed {
    weft_api::Malformed {
        protocol: check.protocol.clone(),
        file: String::new(),
        line: check.line,
        what: check.what.clone(),
        packets: n,
    }
}

/// Converts a filter's state to the API's form.
pub fn filter_status(filter: &FilterStats) -> weft_api::Filter {
    weft_api::Filter {
        chain: filter.chain.clone(),
        name: filter.name.clone(),
        counts: filter.counts.named().map(|(name, n)| (name.to_owned(), n)).into(),
        waiting: filter.waiting,
        in_flight: filter.in_flight,
        limit: filter.limit,
        is_open: filter.is_open,
    }
}

/// An option of a listener or a cluster in the API's form.
pub fn option_of((def, value): (&'static OptionDef, Option<i64>)) -> Opt {
    Opt { name: def.name.to_owned(), value: def.text(value), is_default: value == def.default }
}
