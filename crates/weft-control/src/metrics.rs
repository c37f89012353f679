//! The counters of a node in the text format of Prometheus.
//!
//! Each family is written once, with its `# HELP` and `# TYPE`, followed by all of its samples. The sinks of a program
//! have their own families, named `weft_SINK_COLUMN`. [`check`] refuses programs in which two of them would collide.

use crate::status::{RowsRefused, link_drops, port_drops};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use weft_core::text::Escape;
use weft_core::types::Repr;
use weft_core::{Interval, Status, Type, abi::Counters};
use weft_engine::FilterStats;
use weft_engine::report::NodeStats;
use weft_engine::report::{PacketNodeStats, PortReport};
use weft_engine::report::{Series, SinkValues};
use weft_engine::stats::EndpointStats;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{Element, Network, Sink, SinkTarget};

/// Reads a counter of an endpoint.
type EndpointCount = fn(&EndpointStats) -> u64;

/// Bounds of the latency histogram's buckets, in microseconds.
const LATENCY_BOUNDS_US: &[i64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000,
];

/// The node's own families: name, kind, and help.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("weft_version", "gauge", "The version that new calls enter under"),
    ("weft_connections", "gauge", "Open connections"),
    ("weft_connections_total", "counter", "Connections opened"),
    ("weft_calls_begun_total", "counter", "Calls that have begun"),
    ("weft_calls_open", "gauge", "Calls under way"),
    (
        "weft_calls_resent_total",
        "counter",
        "Calls that were sent again because their server had not touched them",
    ),
    ("weft_calls_total", "counter", "Calls that have ended, by status"),
    ("weft_messages_total", "counter", "Messages that went through a chain"),
    (DURATION, "histogram", "From a call's headers to its end on this node"),
    (TUPLES, "counter", "Tuples by element and what became of them; version 0 stands for all retired ones"),
    ("weft_element_sampled_seconds_total", "counter", "Time in sampled passes"),
    ("weft_element_sampled_total", "counter", "Sampled passes"),
    (FILTER_CALLS, "counter", "Calls by filter and what it did with them"),
    ("weft_filter_waiting", "gauge", "Calls that wait at a filter"),
    ("weft_filter_in_flight", "gauge", "Calls that CIRCUIT or CONGESTION counts as under way"),
    ("weft_filter_limit", "gauge", "The limit on calls under way that CONGESTION has found"),
    ("weft_filter_open", "gauge", "1 while CIRCUIT refuses calls"),
    ("weft_endpoint_calls_total", "counter", "Calls sent to an endpoint"),
    ("weft_endpoint_active", "gauge", "Calls under way on an endpoint"),
    ("weft_endpoint_places", "gauge", "Streams that an endpoint's connections have, taken and free"),
    ("weft_endpoint_connections", "gauge", "Connections to an endpoint that are up"),
    ("weft_endpoint_waiting", "gauge", "Calls that wait for a stream to an endpoint"),
    ("weft_endpoint_connect_failures_total", "counter", "Connections to an endpoint that failed"),
    (
        "weft_slow_passes_total",
        "counter",
        "Passes of a call through a chain that took longer than 10 ms, by chain",
    ),
    ("weft_refusals_total", "counter", "Connections, streams and calls refused, by reason"),
    ("weft_sink_rows_lost_total", "counter", "Sink rows that a slow writer or a failing file did not take"),
    ("weft_table_rows_refused_total", "counter", "Rows of sinks TO TABLE that the table did not take"),
    ("weft_sink_series_lost_total", "counter", "Values of sinks given up because there were too many series"),
    (LINK_CALLS, "counter", "Calls that came to the link of a cluster, and what became of them"),
    ("weft_link_waiting", "gauge", "Calls that wait in the link of a cluster"),
    ("weft_link_in_flight", "gauge", "Calls under way that the link of a cluster has let go on"),
    (PACKETS, "counter", "Packets by port and direction"),
    (PACKET_BYTES, "counter", "Their bytes"),
    (GROUP_PACKETS, "counter", "Packets that a group sent by each of its ports"),
    (GROUP_PORT_UP, "gauge", "Whether the link of a port of a group is up"),
    (
        PACKETS_DROPPED,
        "counter",
        "Packets that went no further, by place (a port, an element, a protocol) and reason",
    ),
    ("weft_syscalls_total", "counter", "System calls of the data path"),
    ("weft_memory_resident_bytes", "gauge", "Resident memory"),
];
const DURATION: &str = "weft_call_duration_seconds";
const FILTER_CALLS: &str = "weft_filter_calls_total";
const LINK_CALLS: &str = "weft_link_calls_total";
const PACKETS: &str = "weft_packets_total";
const PACKET_BYTES: &str = "weft_packet_bytes_total";
const GROUP_PACKETS: &str = "weft_group_packets_total";
const GROUP_PORT_UP: &str = "weft_group_port_up";
const PACKETS_DROPPED: &str = "weft_packets_dropped_total";
const TUPLES: &str = "weft_element_tuples_total";

/// Labels of every series of a sink.
const SINK_LABELS: [&str; 2] = ["chain", "instance"];

/// Renders the whole page. `memory_bytes` is the resident memory of the process.
pub fn render(node: &NodeStats, sinks: &SinkValues, rows_refused: &RowsRefused, memory_bytes: u64) -> String {
    let mut page = Page::default();
    let stats = &node.stats;
    page.one("weft_version", stats.version);
    page.family("weft_connections");
    page.sample("weft_connections", &[("side", "downstream")], stats.downstream.open);
    page.sample("weft_connections", &[("side", "upstream")], stats.upstream.open);
    page.family("weft_connections_total");
    page.sample("weft_connections_total", &[("side", "downstream")], stats.downstream.total);
    page.sample("weft_connections_total", &[("side", "upstream")], stats.upstream.total);
    page.one("weft_calls_begun_total", stats.calls_begun);
    page.one("weft_calls_open", stats.calls_open);
    page.one("weft_calls_resent_total", stats.calls_resent);
    page.family("weft_calls_total");
    for (status, n) in Status::ALL.iter().zip(stats.calls_ended).filter(|(_, n)| *n > 0) {
        page.sample("weft_calls_total", &[("status", status.name())], n);
    }
    page.one("weft_messages_total", stats.messages);
    page.latency(node);
    page.elements(node);
    page.filters(node);
    page.endpoints(node);
    page.links(node);
    page.family("weft_slow_passes_total");
    for (chain, n) in &stats.slow_passes {
        page.sample("weft_slow_passes_total", &[("chain", chain)], *n);
    }
    page.family("weft_refusals_total");
    for (reason, n) in &stats.refusals {
        page.sample("weft_refusals_total", &[("reason", reason)], *n);
    }
    page.one("weft_sink_rows_lost_total", stats.rows_lost);
    page.family("weft_table_rows_refused_total");
    for (table, n) in rows_refused {
        page.sample("weft_table_rows_refused_total", &[("table", table)], *n);
    }
    page.one("weft_sink_series_lost_total", sinks.n_lost);
    if let Some(packets) = &node.packets {
        page.packets(packets);
    }
    page.one("weft_syscalls_total", node.syscalls);
    page.one("weft_memory_resident_bytes", memory_bytes);
    page.sinks(sinks);
    page.0
}

/// Refuses values of sinks whose names collide with each other, or with the node's own families.
pub fn check(network: &Network) -> Vec<Diagnostic> {
    let instances = network.chains.iter().flat_map(|chain| &chain.instances);
    let mut of_elements: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for instance in instances {
        let sinks = instance.sinks.iter().enumerate();
        let to_metrics = sinks.filter(|(_, target)| **target == SinkTarget::Metrics).map(|(at, _)| at);
        of_elements.entry(instance.element).or_default().extend(to_metrics);
    }
    let element =
        |(element, sinks): (usize, BTreeSet<usize>)| check_element(&network.elements[element], &sinks);
    of_elements.into_iter().flat_map(element).collect()
}

/// Checks the metrics of an element's sinks: their names, labels and columns.
fn check_element(element: &Element, sinks: &BTreeSet<usize>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut names: BTreeMap<String, &Sink> = BTreeMap::new();
    for sink in sinks.iter().map(|at| &element.sinks[*at]) {
        let mut labels = BTreeSet::from(SINK_LABELS.map(str::to_owned));
        for column in &sink.columns {
            if is_label(column.ty) {
                let label = plain(&column.name);
                if !labels.insert(label.clone()) {
                    let what = format!("the metrics of sink `{}` have the label `{label}` twice", sink.name);
                    found.push(
                        duplicate(what, sink).with_note("every metric has the labels chain and instance"),
                    );
                }
                continue;
            }
            let name = family_name(&sink.name, &column.name);
            if FAMILIES.iter().any(|(family, ..)| is_of_family(&name, family)) {
                found.push(duplicate(format!("the node has a metric `{name}` of its own"), sink));
            } else if let Some(first) = names.insert(name.clone(), sink) {
                let what = format!("two values of element `{}` are the metric `{name}`", element.name);
                found.push(duplicate(what, sink).with_label(first.span, "the other is here"));
            }
        }
    }
    found
}

fn duplicate(what: String, sink: &Sink) -> Diagnostic {
    let place = format!("column names are put behind `weft_{}_`", plain(&sink.name));
    Diagnostic::error(code::DUPLICATE_NAME, what)
        .at(sink.span, place)
        .with_help("give the sink or the column another name")
}

/// Whether a name is that of a family, or of a histogram's samples.
fn is_of_family(name: &str, family: &str) -> bool {
    let ending = name.strip_prefix(family);
    ending.is_some_and(|ending| ending.is_empty() || ["_bucket", "_sum", "_count"].contains(&ending))
}

/// Columns of byte types are labels; the others are values.
fn is_label(ty: Type) -> bool {
    ty.repr() == Repr::Bytes
}

fn family_name(sink: &str, column: &str) -> String {
    format!("weft_{}_{}", plain(sink), plain(column))
}

/// A valid name of a metric or label: characters other than letters, digits and underscores become underscores.
fn plain(name: &str) -> String {
    let mut plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) {
        plain.insert(0, '_');
    }
    plain
}

#[derive(Default)]
struct Page(String);

impl Page {
    /// A family with one sample.
    fn one(&mut self, name: &str, value: impl std::fmt::Display) {
        self.family(name);
        self.sample(name, &[], value);
    }

    fn family(&mut self, name: &str) {
        let (_, kind, help) =
            FAMILIES.iter().find(|(family, ..)| *family == name).expect("all families are in the table");
        self.head(name, kind, help);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all text");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        writeln!(self.0, "{name}{} {value}", shown(labels)).expect("a string takes all text");
    }

    /// Appends the metrics of ports and of chains on ports.
    fn packets(&mut self, node: &PacketNodeStats) {
        let directions = |port: &PortReport| {
            let device = &port.device;
            [("in", device.received, device.received_bytes), ("out", device.sent, device.sent_bytes)]
        };
        for (family, pick) in [(PACKETS, 0), (PACKET_BYTES, 1)] {
            self.family(family);
            for port in &node.ports {
                for (direction, packets, bytes) in directions(port) {
                    let labels = [("port", port.config.name.as_str()), ("direction", direction)];
                    self.sample(family, &labels, [packets, bytes][pick]);
                }
            }
        }
        for (family, pick) in [(GROUP_PACKETS, 0), (GROUP_PORT_UP, 1)] {
            self.family(family);
            for group in &node.stats.groups {
                for of in &group.members {
                    let labels = [("group", group.name.as_str()), ("port", of.port.as_str())];
                    self.sample(family, &labels, [of.sent, u64::from(of.is_up)][pick]);
                }
            }
        }
        self.family(PACKETS_DROPPED);
        let mut dropped = |place: &str, reason: &str, n: u64| {
            self.sample(PACKETS_DROPPED, &[("place", place), ("reason", reason)], n);
        };
        for port in &node.ports {
            port_drops(port).for_each(|(reason, n)| dropped(&port.config.name, reason, n));
        }
        for link in &node.links {
            link_drops(&link.stats.counts).for_each(|(reason, n)| dropped(&link.plan.name, reason, n));
        }
        node.stats.drops.iter().for_each(|(reason, n)| dropped("", reason.name(), *n));
        for chain in &node.stats.chains {
            for end in &chain.ends {
                let place = format!("{}.{}:{}", chain.chain, end.element, end.line);
                dropped(&place, &end.how.to_string(), end.n);
            }
            for (check, n) in &chain.malformed {
                let place = format!("{}:{}:{}", chain.chain, check.protocol, check.line);
                dropped(&place, "malformed", *n);
            }
        }
    }

    /// Appends the metrics of links of calls.
    fn links(&mut self, node: &NodeStats) {
        self.family(LINK_CALLS);
        for link in &node.stats.call_queues {
            let counts = &link.counts;
            let left = [("arrived", counts.arrived), ("sent", counts.sent), ("left", counts.taken)];
            for (what, n) in left.into_iter().chain(link_drops(counts)) {
                self.sample(LINK_CALLS, &[("link", &link.name), ("what", what)], n);
            }
        }
        for (family, of) in [("weft_link_waiting", 0), ("weft_link_in_flight", 1)] {
            self.family(family);
            for link in &node.stats.call_queues {
                self.sample(family, &[("link", &link.name)], [link.counts.queued, link.in_flight][of]);
            }
        }
    }

    /// Appends the histogram of call durations.
    fn latency(&mut self, node: &NodeStats) {
        self.family(DURATION);
        let latency = &node.stats.latency;
        for bound in LATENCY_BOUNDS_US {
            let n = latency.count_up_to(Interval::from_micros(*bound));
            self.sample(&format!("{DURATION}_bucket"), &[("le", &(*bound as f64 / 1e6).to_string())], n);
        }
        self.sample(&format!("{DURATION}_bucket"), &[("le", "+Inf")], latency.count());
        self.sample(&format!("{DURATION}_sum"), &[], latency.sum_ns() as f64 / 1e9);
        self.sample(&format!("{DURATION}_count"), &[], latency.count());
    }

    /// Appends the counters of elements, of live and of retired versions.
    fn elements(&mut self, node: &NodeStats) {
        let live = node.stats.chains.iter().map(|c| (c.chain.as_str(), c.version, &c.elements));
        let retired = node.retired.iter().map(|(chain, elements)| (chain.as_str(), 0, elements));
        let each = |(chain, version, elements): (_, u64, &Vec<(String, Counters)>)| {
            let named = move |(element, c): &(String, Counters)| {
                (Labels { chain, version: version.to_string(), element: element.clone() }, *c)
            };
            elements.iter().map(named).collect::<Vec<_>>()
        };
        let of_frames = node.packets.iter().flat_map(|packets| &packets.stats.chains);
        let of_frames = of_frames.map(|c| (c.chain.as_str(), c.version, &c.elements));
        let all: Vec<_> = live.chain(of_frames).chain(retired).flat_map(each).collect();
        self.family(TUPLES);
        for (labels, c) in &all {
            let counts = [
                ("seen", c.seen),
                ("dropped", c.dropped),
                ("aborted", c.aborted),
                ("diverted", c.diverted),
                ("failed", c.failed),
            ];
            for (what, n) in counts {
                let [chain, version, element] = labels.pairs();
                self.sample(TUPLES, &[chain, version, element, ("what", what)], n);
            }
        }
        self.family("weft_element_sampled_seconds_total");
        for (labels, c) in &all {
            let seconds = c.sampled_ns as f64 / 1e9;
            self.sample("weft_element_sampled_seconds_total", &labels.pairs(), seconds);
        }
        self.family("weft_element_sampled_total");
        for (labels, c) in &all {
            self.sample("weft_element_sampled_total", &labels.pairs(), c.sampled);
        }
    }

    /// Appends the metrics of filters.
    fn filters(&mut self, node: &NodeStats) {
        let filters = &node.stats.filters;
        self.family(FILTER_CALLS);
        for f in filters {
            for (what, n) in f.counts.named() {
                self.sample(FILTER_CALLS, &[("chain", &f.chain), ("filter", &f.name), ("what", what)], n);
            }
        }
        type Value = fn(&FilterStats) -> f64;
        let gauges: [(&str, Value); 4] = [
            ("weft_filter_waiting", |f| f.waiting as f64),
            ("weft_filter_in_flight", |f| f.in_flight as f64),
            ("weft_filter_limit", |f| f.limit),
            ("weft_filter_open", |f| f64::from(u8::from(f.is_open))),
        ];
        for (name, value) in gauges {
            self.family(name);
            for f in filters {
                self.sample(name, &[("chain", &f.chain), ("filter", &f.name)], value(f));
            }
        }
    }

    /// Appends the metrics of endpoints.
    fn endpoints(&mut self, node: &NodeStats) {
        let endpoints = &node.stats.endpoints;
        let families: [(_, EndpointCount); 6] = [
            ("weft_endpoint_calls_total", |e| e.calls),
            ("weft_endpoint_active", |e| e.active),
            ("weft_endpoint_places", |e| e.places),
            ("weft_endpoint_connections", |e| e.connections),
            ("weft_endpoint_waiting", |e| e.waiting),
            ("weft_endpoint_connect_failures_total", |e| e.connect_failures),
        ];
        for (family, of) in families {
            self.family(family);
            for e in endpoints {
                let labels = [("cluster", e.cluster.as_str()), ("address", &e.address)];
                self.sample(family, &labels, of(e));
            }
        }
    }

    /// The values of sinks, of this program and of earlier ones.
    fn sinks(&mut self, sinks: &SinkValues) {
        let mut families: BTreeMap<String, Vec<(&Series, f64)>> = BTreeMap::new();
        for (series, value) in &sinks.values {
            families.entry(family_name(&series.sink, &series.column)).or_default().push((series, *value));
        }
        for (name, all) in families {
            self.head(&name, kind_of(&name), "Given by a sink of the program");
            // Two versions may use one name with different types: the first stands.
            let mut seen = BTreeSet::new();
            for (series, value) in &all {
                let columns = series.labels.iter().map(|(column, text)| (plain(column), text.clone()));
                let [chain, instance] = SINK_LABELS.map(str::to_owned);
                let mut labels = vec![(chain, series.chain.clone()), (instance, series.instance.clone())];
                labels.extend(columns);
                let labels: Vec<_> = labels.iter().map(|(l, text)| (l.as_str(), text.as_str())).collect();
                // Different texts may print the same, such as a control character and its escape.
                let labels = shown(&labels);
                if seen.insert(labels.clone()) {
                    writeln!(self.0, "{name}{labels} {value}").expect("a string takes all text");
                }
            }
        }
    }
}

/// The kind of a sink's value: by Prometheus's naming, a name that ends in `_total` is a counter.
fn kind_of(family: &str) -> &'static str {
    if family.ends_with("_total") { "counter" } else { "gauge" }
}

/// The labels that identify an element.
struct Labels<'a> {
    chain: &'a str,
    version: String,
    element: String,
}

impl Labels<'_> {
    fn pairs(&self) -> [(&str, &str); 3] {
        [("chain", self.chain), ("version", &self.version), ("element", &self.element)]
    }
}

/// Labels in a sample: `{chain="shop",user="ann"}`, or nothing.
fn shown(labels: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

/// Escapes by the text format ("Comments, help text, and type information"): backslash, quote and line feed in a
/// label's value, and nothing else. Characters that could mislead on a terminal are first replaced by their escapes as
/// text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match (c, Escape::of(c)) {
            ('\\', _) => out.push_str("\\\\"),
            ('"', _) => out.push_str("\\\""),
            ('\n', _) => out.push_str("\\n"),
            (_, Some(escape)) => write!(out, "\\{escape}").expect("a string takes all text"),
            (c, None) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::checked;
    use weft_engine::stats::ChainStats;

    /// A sample: name, labels, value.
    type Sample = (String, BTreeMap<String, String>, f64);

    /// Parses a page as a scraper does, and panics on a format error.
    fn parse(page: &str) -> Vec<Sample> {
        let mut samples: Vec<Sample> = Vec::new();
        let mut family = String::new();
        let mut families = BTreeSet::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help has a name and a text");
                assert!(!help.is_empty() && families.insert(name.to_owned()), "{line}");
                family = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type has a name and a kind");
                assert_eq!(name, family);
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                assert!(is_of_family(name, &family), "{name} among samples of {family}");
                assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{name}");
                let labels = parse_labels(labels.strip_suffix('}').expect("labels are closed"));
                let value = value.parse().expect("a number");
                assert!(!samples.iter().any(|(n, l, _)| *n == name && *l == labels), "twice: {line}");
                samples.push((name.to_owned(), labels, value));
            }
        }
        samples
    }

    fn parse_labels(mut text: &str) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        while !text.is_empty() {
            let (name, rest) = text.split_once("=\"").expect("a label has a value");
            let mut value = String::new();
            let mut chars = rest.char_indices();
            let end = loop {
                match chars.next().expect("a value is closed") {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().expect("something is escaped").1 {
                        'n' => value.push('\n'),
                        c => value.push(c),
                    },
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(name.to_owned(), value).is_none(), "label {name} twice");
            text = rest[end + 1..].trim_start_matches(',');
        }
        labels
    }

    fn chain(name: &str, version: u64) -> ChainStats {
        let element = |name: &str| (name.to_owned(), Counters { seen: 3, sampled: 1, ..Counters::default() });
        ChainStats {
            chain: name.to_owned(),
            version,
            elements: vec![element("acl"), element("log")],
            ..ChainStats::default()
        }
    }

    /// One line that a scraper rejects costs all the metrics of the node.
    #[test]
    fn scraper_parses_metrics_page() {
        let mut node = NodeStats::default();
        node.stats.chains = vec![chain("shop", 1), chain("shop", 2), chain("o\"d\\d\nname", 2)];
        node.retired = vec![("shop".to_owned(), chain("shop", 0).elements)];
        node.stats.calls_ended[0] = 7;
        node.stats.refuse("too \"many\"", 2);
        node.stats.slow_passes.insert("shop".to_owned(), 3);
        let endpoint = |address: &str| EndpointStats {
            cluster: "cart".into(),
            address: address.into(),
            ..EndpointStats::default()
        };
        node.stats.endpoints = vec![endpoint("127.0.0.1:1"), endpoint("127.0.0.1:2")];
        let mut sinks = SinkValues::default();
        let series = |sink: &str, column: &str, labels: &[(&str, &str)]| Series {
            sink: sink.into(),
            column: column.into(),
            chain: "shop".into(),
            instance: "m".into(),
            labels: labels.iter().map(|(l, text)| ((*l).into(), (*text).into())).collect(),
        };
        sinks.values.push((series("by user", "n", &[("the user", "a\\\"\n{},=b")]), 1.5));
        sinks.values.push((series("by user", "n", &[("the user", "c")]), 2.5));
        // A control character and its escape print the same: the page has one of them.
        sinks.values.push((series("by user", "n", &[("the user", "\u{9b}2J\u{202e}")]), 3.5));
        sinks.values.push((series("by user", "n", &[("the user", "\\u009b2J\\u202e")]), 4.5));
        // Two versions of a program may use one name for different values.
        sinks.values.push((series("sums", "calls_total", &[]), 5.0));
        sinks.values.push((series("a", "b_c", &[]), 1.0));
        sinks.values.push((series("a_b", "c", &[]), 2.0));

        let page = render(&node, &sinks, &[("t".to_owned(), 7)].into(), 1);
        assert!(!page.chars().any(|c| c != '\n' && Escape::of(c).is_some()), "{page}");
        let samples = parse(&page);
        let find = |name: &str, label: &str, text: &str| {
            let is_it = |(n, l, _): &&Sample| *n == name && (label.is_empty() || l[label] == text);
            samples.iter().filter(is_it).map(|(_, _, value)| *value).collect::<Vec<_>>()
        };
        assert_eq!(find("weft_calls_total", "status", "OK"), [7.0]);
        assert_eq!(find("weft_slow_passes_total", "chain", "shop"), [3.0]);
        assert_eq!(find("weft_refusals_total", "reason", "too \"many\""), [2.0]);
        assert_eq!(find("weft_element_sampled_total", "chain", "o\"d\\d\nname"), [1.0, 1.0]);
        assert_eq!(find("weft_by_user_n", "the_user", "a\\\"\n{},=b"), [1.5]);
        assert_eq!(find("weft_by_user_n", "the_user", "\\u009b2J\\u202e").len(), 1);
        assert_eq!(find("weft_a_b_c", "", ""), [1.0]);
        // A counter with the type gauge has no rate; a gauge with the type counter has a wrong rate.
        let is_of_kind = |name: &str, kind: &str| page.contains(&format!("# TYPE {name} {kind}\n"));
        assert!(is_of_kind("weft_sums_calls_total", "counter") && is_of_kind("weft_by_user_n", "gauge"));
    }

    /// Two values under one name would silently overwrite each other.
    #[test]
    fn colliding_metrics_are_refused() {
        let check = |sinks: &str, names: &str| {
            let text = format!(
                "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT m ON rpc AS
  {sinks}
  ON OPEN INSERT INTO {names};
END;
CREATE CHAIN shop ON front -> cart AS m; END;\n"
            );
            let errors = checked(&text).diagnostics.into_iter().filter(Diagnostic::is_error);
            errors.map(|diagnostic| diagnostic.message).collect::<Vec<_>>()
        };
        assert_eq!(check("SINK a (b U64, c U64) TO METRICS;", "a VALUES (1, 2)"), [""; 0]);
        let two = "SINK a (b_c U64) TO METRICS; SINK a_b (c U64) TO METRICS;";
        assert_eq!(check(two, "a VALUES (1)"), ["two values of element `m` are the metric `weft_a_b_c`"]);
        let own = "SINK calls (total U64) TO METRICS;";
        assert_eq!(check(own, "calls VALUES (1)"), ["the node has a metric `weft_calls_total` of its own"]);
        let label = "SINK a (chain TEXT(9), n U64) TO METRICS;";
        assert_eq!(
            check(label, "a VALUES ('x', 1)"),
            ["the metrics of sink `a` have the label `chain` twice"]
        );
        assert_eq!(check(&two.replace("METRICS", "STDOUT"), "a VALUES (1)"), [""; 0]);
    }
}
