//! System tables: the state of a node as rows for queries.

use weft_api::{Element, Group, Link, PartitionVerdict, QueuePartition, Status};
use weft_core::{Type, Value};
use weft_lang::hir::{Network, Table, TableColumn};
use weft_lang::source::{FileId, Span};

struct System {
    name: &'static str,
    /// Columns with their types; the first `n_keys` are the key.
    columns: &'static [(&'static str, Type)],
    n_keys: usize,
    rows: fn(&Status) -> Vec<Vec<Value>>,
}

const NAME: Type = Type::Text(Some(255));
const COUNT: Type = Type::Uint(64);

const TABLES: &[System] = &[
    System {
        name: "links",
        columns: &[
            ("name", NAME),
            ("port", NAME),
            ("direction", NAME),
            ("queue", NAME),
            ("rate", COUNT),
            ("arrived", COUNT),
            ("sent", COUNT),
            ("queued", COUNT),
            ("queued_bytes", Type::Size),
            ("dropped", COUNT),
            ("marked", COUNT),
            ("swap_overflow", COUNT),
            ("waited_p50", Type::Interval),
            ("waited_p90", Type::Interval),
            ("waited_p99", Type::Interval),
            ("concurrency", COUNT),
            ("in_flight", COUNT),
            ("left", COUNT),
        ],
        n_keys: 1,
        rows: |status| links(status).map(link).collect(),
    },
    System {
        name: "queues",
        columns: &[
            ("link", NAME),
            ("queue", NAME),
            ("level", COUNT),
            ("node", COUNT),
            ("partition", COUNT),
            ("packets", COUNT),
            ("bytes", Type::Size),
            ("rank", Type::Int(64)),
            ("held", Type::Bool),
            ("sent", COUNT),
            ("dropped", COUNT),
            ("marked", COUNT),
            ("waited_p50", Type::Interval),
            ("waited_p90", Type::Interval),
            ("waited_p99", Type::Interval),
        ],
        n_keys: 5,
        rows: |status| links(status).flat_map(partitions).collect(),
    },
    System {
        name: "queue_lines",
        columns: &[
            ("link", NAME),
            ("queue", NAME),
            ("version", COUNT),
            ("line", COUNT),
            ("verdict", NAME),
            ("packets", COUNT),
        ],
        n_keys: 5,
        rows: |status| links(status).flat_map(lines).collect(),
    },
    System {
        name: "partition_lines",
        columns: &[
            ("link", NAME),
            ("queue", NAME),
            ("level", COUNT),
            ("node", COUNT),
            ("partition", COUNT),
            ("version", COUNT),
            ("line", COUNT),
            ("verdict", NAME),
            ("packets", COUNT),
        ],
        n_keys: 8,
        rows: |status| links(status).flat_map(partition_lines).collect(),
    },
    System {
        name: "groups",
        columns: &[
            ("name", NAME),
            ("port", NAME),
            ("choice", NAME),
            ("weight", COUNT),
            ("up", Type::Bool),
            ("sent", COUNT),
            ("sent_bytes", Type::Size),
        ],
        n_keys: 2,
        rows: |status| status.packets.iter().flat_map(|packets| &packets.groups).flat_map(members).collect(),
    },
    System {
        name: "ports",
        columns: &[
            ("name", NAME),
            ("device", NAME),
            ("received", COUNT),
            ("received_bytes", Type::Size),
            ("sent", COUNT),
            ("sent_bytes", Type::Size),
            ("dropped", COUNT),
        ],
        n_keys: 1,
        rows: ports,
    },
    System {
        name: "elements",
        columns: &[
            ("chain", NAME),
            ("version", COUNT),
            ("name", NAME),
            ("seen", COUNT),
            ("dropped", COUNT),
            ("aborted", COUNT),
            ("diverted", COUNT),
            ("failed", COUNT),
            ("ns", Type::F64),
        ],
        n_keys: 3,
        rows: elements,
    },
];

/// The network plus the system tables, except those whose names it uses itself.
pub fn with_tables(network: &Network) -> Network {
    let mut network = network.clone();
    for system in TABLES {
        if !network.tables.iter().any(|table| table.name == system.name) {
            network.tables.push(system.table());
        }
    }
    network
}

/// The names of the system tables, and the number of rows in each.
pub fn counts<'s>(
    network: &'s Network,
    status: &'s Status,
) -> impl Iterator<Item = (&'static str, u64)> + 's {
    let is_free = |system: &&System| !network.tables.iter().any(|table| table.name == system.name);
    TABLES.iter().filter(is_free).map(|system| (system.name, (system.rows)(status).len() as u64))
}

/// The rows of a table, if it is a system table of this network.
pub fn rows(network: &Network, table: &str, status: &Status) -> Option<Vec<Vec<Value>>> {
    if network.tables.iter().any(|known| known.name == table) {
        return None;
    }
    let system = TABLES.iter().find(|system| system.name == table)?;
    Some((system.rows)(status))
}

impl System {
    /// The declaration of this system table, as if the program had it.
    fn table(&self) -> Table {
        let span = Span::new(FileId(0), 0, 0);
        let column = |(at, (name, ty)): (usize, &(&str, Type))| TableColumn {
            name: (*name).to_owned(),
            ty: *ty,
            nullable: *ty == Type::F64,
            default: None,
            merge: None,
            written_at: at,
            span,
        };
        Table {
            name: self.name.to_owned(),
            columns: self.columns.iter().enumerate().map(column).collect(),
            n_keys: self.n_keys,
            filled: None,
            stage: None,
            per_worker: false,
            evict: None,
            ttl_on_access: false,
            checks: Vec::new(),
            limits: None,
            span,
        }
    }
}

fn text(text: &str) -> Value {
    Value::text(text)
}

fn int(n: u64) -> Value {
    Value::Int(n as i64)
}

/// An interval from microseconds.
fn interval(us: f64) -> Value {
    Value::Int((us * 1e3) as i64)
}

fn links(status: &Status) -> impl Iterator<Item = &Link> {
    status.packets.iter().flat_map(|packets| &packets.links).chain(&status.links)
}

/// The row of a link in the table `links`.
fn link(link: &Link) -> Vec<Value> {
    let dropped = link.dropped.values().sum();
    let mut row: Vec<Value> =
        [&link.name, &link.port, &link.direction, &link.queue].map(|part| text(part)).into();
    let counts = [link.rate.unwrap_or(0), link.arrived, link.sent, link.queued, link.queued_bytes];
    row.extend(counts.into_iter().chain([dropped, link.marked, link.swap_overflow]).map(int));
    row.extend(link.waited_us.map(interval));
    row.extend([u64::from(link.concurrency.unwrap_or(0)), link.in_flight, link.left].map(int));
    row
}

/// The rows of a link's partitions in the table `queues`.
fn partitions(link: &Link) -> impl Iterator<Item = Vec<Value>> {
    link.partitions.iter().map(|of| {
        let mut row = place(link, of);
        row.extend([int(of.packets), int(of.bytes), Value::Int(of.rank), Value::Bool(of.is_held)]);
        row.extend([of.sent, of.dropped, of.marked].map(int));
        row.extend(of.waited_us.map(interval));
        row
    })
}

/// The rows of a link in the table `partition_lines`.
fn partition_lines(link: &Link) -> impl Iterator<Item = Vec<Value>> {
    let of_line = |of: &QueuePartition, line: &PartitionVerdict| {
        let mut row = place(link, of);
        row.extend([int(line.version), int(line.line.into()), text(&line.verdict), int(line.packets)]);
        row
    };
    link.partitions.iter().flat_map(move |of| of.lines.iter().map(move |line| of_line(of, line)))
}

/// The key columns of a partition: its link, queue and partition.
fn place(link: &Link, of: &QueuePartition) -> Vec<Value> {
    let names = [&link.name, &of.queue].map(|name| text(name));
    let [node, partition] = of.place.map(u64::from);
    names.into_iter().chain([of.level.into(), node, partition].map(int)).collect()
}

fn lines(link: &Link) -> impl Iterator<Item = Vec<Value>> {
    link.lines.iter().map(|of| {
        let [version, line, packets] = [of.version, u64::from(of.line), of.packets].map(int);
        vec![text(&link.name), text(&of.queue), version, line, text(&of.verdict), packets]
    })
}

/// The rows of a group's members.
fn members(group: &Group) -> impl Iterator<Item = Vec<Value>> {
    group.members.iter().map(|of| {
        let counts = [of.sent, of.sent_bytes].map(int);
        let mut row = vec![text(&group.name), text(&of.port), text(&group.choice)];
        row.extend([int(of.weight.into()), Value::Bool(of.is_up)].into_iter().chain(counts));
        row
    })
}

/// The rows of the table of ports.
fn ports(status: &Status) -> Vec<Vec<Value>> {
    let ports = status.packets.iter().flat_map(|packets| &packets.ports);
    let row = |port: &weft_api::Port| {
        let counts = [port.received, port.received_bytes, port.sent, port.sent_bytes];
        let dropped = port.dropped.values().sum();
        let counts = counts.into_iter().chain([dropped]).map(int);
        [text(&port.name), text(&port.device)].into_iter().chain(counts).collect()
    };
    ports.map(row).collect()
}

/// The rows of the table of elements, of chains of calls and on ports.
fn elements(status: &Status) -> Vec<Vec<Value>> {
    let row = |chain: &str, version: u64, of: &Element| {
        let mut row = vec![text(chain), int(version), text(&of.name)];
        row.extend([of.seen, of.dropped, of.aborted, of.diverted, of.failed].map(int));
        row.push(of.ns_per_tuple.map_or(Value::Null, Value::Float));
        row
    };
    let calls = status.chains.iter().map(|chain| (&chain.name, chain.version, &chain.elements));
    let packets = status.packets.iter().flat_map(|packets| &packets.chains);
    let packets = packets.map(|chain| (&chain.name, chain.version, &chain.elements));
    let all = calls.chain(packets);
    all.flat_map(|(chain, version, of)| of.iter().map(move |element| row(chain, version, element))).collect()
}
