//! Explains queues: levels, handlers, operations per packet, memory.

use crate::show::{Align, Table};
use crate::show::{count, grouped};
use crate::units::rate_text;
use core::fmt::Write as _;
use serde_json::{Value, json};
use weft_ir::queue::{
    Level, Limit, Moment, Order, Overflow, PACKETS_MAX, PacketOrder, Partitions, QueueProgram, Victim, word,
};
use weft_lang::hir::{CallLink, CallsOf, Link, Network};

/// A queue that is explained.
pub(super) struct ExplainedQueue {
    /// The link of the queue, if it has one.
    pub(super) link: Option<LinkInfo>,
    pub(super) program: QueueProgram,
}

/// A link without its queue.
pub(super) enum LinkInfo {
    Packets { name: String, port: String, ingress: bool, bits_per_s: Option<u64> },
    Calls { name: String, of: String, is_listener: bool, concurrency: Option<u32>, per_s: Option<f64> },
}

impl LinkInfo {
    /// A link on a port.
    pub(super) fn of_port(network: &Network, link: &Link) -> Self {
        let port = network.ports[link.port].name.clone();
        Self::Packets { name: link.name.clone(), port, ingress: link.ingress, bits_per_s: link.rate }
    }

    /// A link of calls.
    pub(super) fn of_calls(network: &Network, link: &CallLink) -> Self {
        let (of, is_listener) = match link.of {
            CallsOf::Listener(at) => (network.listeners[at].name.clone(), true),
            CallsOf::Cluster(at) => (network.clusters[at].name.clone(), false),
        };
        let per_s = link.step_ns.map(|step| 1e9 / step as f64);
        Self::Calls { name: link.name.clone(), of, is_listener, concurrency: link.concurrency, per_s }
    }

    /// The link's line above its queue.
    fn text(&self) -> String {
        match self {
            Self::Packets { name, port, ingress, bits_per_s } => {
                let ingress = if *ingress { ", ingress" } else { "" };
                let rate = bits_per_s.map_or("as fast as that takes packets".to_owned(), rate_text);
                format!("link {name} on port {port}{ingress}, {rate}\n")
            }
            Self::Calls { name, of, is_listener, concurrency, per_s } => {
                let what = if *is_listener { "listener" } else { "cluster" };
                let concurrency = concurrency.map(|n| format!(", {} under way", count(n.into(), "call")));
                let rate = per_s.map(|rate| format!(", {rate} calls/s"));
                let limits: String = [concurrency, rate].into_iter().flatten().collect();
                format!("link {name} on {what} {of}{limits}\n")
            }
        }
    }

    /// The link as JSON.
    fn data(&self) -> Value {
        match self {
            Self::Packets { name, port, ingress, bits_per_s } => {
                json!({ "name": name, "port": port, "ingress": ingress, "rate_bits_per_s": bits_per_s })
            }
            Self::Calls { name, of, is_listener, concurrency, per_s } => {
                let what = if *is_listener { "listener" } else { "cluster" };
                json!({ "name": name, what: of, "concurrency": concurrency, "rate_calls_per_s": per_s })
            }
        }
    }
}

/// Queues as JSON.
pub fn data(programs: &[QueueProgram]) -> Value {
    programs.iter().map(program).collect()
}

/// Queues with their links, as JSON.
pub(super) fn data_of(explained: &[ExplainedQueue]) -> Value {
    let one = |ExplainedQueue { link, program }: &ExplainedQueue| {
        let mut data = self::program(program);
        data["link"] = link.as_ref().map(LinkInfo::data).into();
        data
    };
    explained.iter().map(one).collect()
}

/// A table of each handler's worst-case cost; empty without handlers.
pub fn costs(programs: &[QueueProgram]) -> String {
    let columns =
        [("queue", Align::Left), ("of", Align::Left), ("handler", Align::Left), ("operations", Align::Right)];
    let mut table = Table::new(&columns);
    for program in programs {
        for level in &program.levels {
            for (moment, handler) in level.handlers.iter() {
                let of = if program.levels.len() > 1 { level.name.clone() } else { String::new() };
                let cost = grouped(handler.cost().into());
                table.row(vec![program.name.clone(), of, handler_name(level, moment), cost]);
            }
        }
        let all = grouped(program.cost().into());
        table.row(vec![program.name.clone(), String::new(), "a packet, in and out".to_owned(), all]);
    }
    if programs.is_empty() {
        String::new()
    } else {
        format!("at worst, operations of queues:\n{}", table.render())
    }
}

/// Queues with their links, as text.
pub(super) fn text(explained: &[ExplainedQueue]) -> String {
    let link = |link: &Option<LinkInfo>| link.as_ref().map(LinkInfo::text).unwrap_or_default();
    let all = explained.iter().map(|ExplainedQueue { link: of, program }| link(of) + &queue_text(program));
    all.collect::<Vec<_>>().join("\n")
}

/// A queue as JSON: operations, memory, fields and levels.
fn program(program: &QueueProgram) -> Value {
    json!({
        "queue": program.name,
        "operations": program.cost(),
        "packets_max": program.packets_max(),
        "memory_bytes": program.memory_bytes(),
        "fields": program.fields.iter().map(|field| field.name()).collect::<Vec<_>>(),
        "levels": program.levels.iter().map(level).collect::<Vec<_>>(),
    })
}

/// A level of a queue as JSON.
fn level(level: &Level) -> Value {
    let handlers = level.handlers.iter().map(
        |(moment, handler)| json!({ "handler": handler_name(level, moment), "operations": handler.cost() }),
    );
    json!({
        "name": level.name,
        "partitions": level.partitions.n(),
        "order": order(level),
        "limit": limit(&level.limit),
        "handlers": handlers.collect::<Vec<_>>(),
    })
}

/// A queue as text: cost, memory, and each level with its handlers.
fn queue_text(program: &QueueProgram) -> String {
    let mut text = format!("queue {}\n", program.name);
    let (packets, bytes) = (program.packets_max(), program.memory_bytes());
    let _ = writeln!(
        text,
        "  {} operations a packet at most, in and out; {packets} packets at most, which take {} beside their own",
        program.cost(),
        kib(bytes)
    );
    if !program.fields.is_empty() {
        let names: Vec<String> = program.fields.iter().map(|field| format!("p.{}", field.name())).collect();
        let _ = writeln!(text, "  of a packet it keeps {}", names.join(", "));
    }
    for (at, level) in program.levels.iter().enumerate() {
        let below = if at == 0 { "" } else { "in each: " };
        let _ = writeln!(text, "  {below}{}: {}", level.name, partitions(level));
        let _ = writeln!(text, "    order     {}", order(level));
        let _ = writeln!(text, "    limit     {}", limit(&level.limit));
        let handlers: Vec<_> = level
            .handlers
            .iter()
            .map(|(moment, handler)| (handler_name(level, moment), handler.cost()))
            .collect();
        let width = handlers.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(22);
        for (name, cost) in handlers {
            let _ = writeln!(text, "    {name:<width$}{cost:>4} operations");
        }
    }
    text
}

/// Describes the partitions of a level and their size.
fn partitions(level: &Level) -> String {
    let words = usize::from(word::PARTITION_VARS) + level.partition_vars.len();
    match level.partitions {
        Partitions::One => "one line of packets".to_owned(),
        Partitions::Hash { n, ways: 1 } => format!("{n} partitions by hash, {} bytes each", words * 8),
        Partitions::Hash { n, ways } => {
            format!("{n} partitions by hash in sets of {ways}, {} bytes each", words * 8)
        }
        Partitions::Direct { n } => format!("{n} partitions by index, {} bytes each", words * 8),
    }
}

/// Describes the order in which a level serves its partitions or packets.
fn order(level: &Level) -> String {
    let order = |bits: Option<u8>| match bits {
        Some(0) => "as they came".to_owned(),
        Some(bits) => format!("by rank of {bits} bits, found by bitmaps"),
        None => "by rank, in a heap".to_owned(),
    };
    match (level.partitions, level.packets, level.order) {
        (Partitions::One, PacketOrder::Arrival, _) => "as they came".to_owned(),
        (Partitions::One, PacketOrder::Rank { bits }, _) => format!("packets {}", order(bits)),
        (_, _, Order { bits, by_least_packet: true }) => format!("{}: that of the least packet", order(bits)),
        (_, _, Order { bits: Some(0), .. }) => "in turn".to_owned(),
        (_, _, Order { bits, .. }) => order(bits),
    }
}

/// Describes the limit of a level, and which packet is dropped on overflow.
fn limit(limit: &Limit) -> String {
    if limit.packets == Some(PACKETS_MAX) && limit.bytes.is_none() {
        return "as many as there may be".to_owned();
    }
    let bounds = [limit.packets.map(|n| format!("{n} packets")), limit.bytes.map(kib)];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    let goes = match limit.overflow {
        Overflow::Arriving => "then what comes goes".to_owned(),
        Overflow::Victim { partition, head } => {
            let end = if head { "head" } else { "tail" };
            let of = match partition {
                Victim::Own => "its partition",
                Victim::MostBytes => "the partition with the most bytes",
                Victim::HighestRank => "the partition of the highest rank",
            };
            format!("then the {end} of {of} goes, {} at once", limit.batch)
        }
    };
    format!("{}; {goes}", bounds.join(" and "))
}

/// The construct of the language that a handler implements, such as `ON ENQUEUE`; for ON EVERY with its interval.
fn handler_name(level: &Level, moment: Moment) -> String {
    match moment {
        Moment::Key => "PARTITION BY".to_owned(),
        Moment::PacketRank => "rank of a packet".to_owned(),
        Moment::Enqueue => "ON ENQUEUE".to_owned(),
        Moment::Activate => "ON ACTIVATE".to_owned(),
        Moment::Select => "ON SELECT".to_owned(),
        Moment::Dequeue => "ON DEQUEUE".to_owned(),
        Moment::Empty => "ON EMPTY".to_owned(),
        Moment::Every(nth) | Moment::EachPartition(nth) => {
            let ns = level.handlers.every.get(usize::from(nth)).map_or(0, |timer| timer.interval_ns);
            let of = if moment.has_partition() { " EACH PARTITION" } else { "" };
            format!("ON EVERY {} ms{of}", ns as f64 / 1e6)
        }
    }
}

/// Formats bytes in B, KB or MB of powers of 1,024.
fn kib(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.0} KB", bytes as f64 / 1024.0),
        _ => format!("{:.0} MB", bytes as f64 / 1_048_576.0),
    }
}
