//! The counters of a node in the text format of Prometheus.

use std::fmt::Write as _;
use weft_core::Status;
use weft_core::{Interval, abi::Counters};
use weft_io::node::NodeStats;

/// Bounds of the latency histogram's buckets, in microseconds.
const LATENCY_BOUNDS_US: &[i64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000,
];

/// The whole page.
pub(crate) fn render(node: &NodeStats, sinks: &[(String, String, f64)]) -> String {
    let mut page = Page(String::new());
    let stats = &node.stats;
    page.family("weft_version", "gauge", "The version that new calls enter under");
    page.sample("weft_version", "", stats.version);
    page.family("weft_connections", "gauge", "Open connections");
    page.sample("weft_connections", "side=\"downstream\"", stats.downstream.open);
    page.sample("weft_connections", "side=\"upstream\"", stats.upstream.open);
    page.family("weft_connections_total", "counter", "Connections opened");
    page.sample("weft_connections_total", "side=\"downstream\"", stats.downstream.total);
    page.sample("weft_connections_total", "side=\"upstream\"", stats.upstream.total);
    page.family("weft_calls_begun_total", "counter", "Calls that have begun");
    page.sample("weft_calls_begun_total", "", stats.calls_begun);
    page.family("weft_calls_open", "gauge", "Calls under way");
    page.sample("weft_calls_open", "", stats.calls_open);
    page.family("weft_calls_total", "counter", "Calls that have ended, by status");
    for (status, n) in Status::ALL.iter().zip(stats.calls_ended).filter(|(_, n)| *n > 0) {
        page.sample("weft_calls_total", &format!("status=\"{status}\""), n);
    }
    page.family("weft_messages_total", "counter", "Messages that went through a chain");
    page.sample("weft_messages_total", "", stats.messages);
    page.latency(node);
    page.elements(node);
    page.family("weft_endpoint_calls_total", "counter", "Calls sent to an endpoint");
    for e in &stats.endpoints {
        page.sample("weft_endpoint_calls_total", &endpoint_labels(&e.cluster, &e.address), e.calls);
    }
    page.family("weft_endpoint_active", "gauge", "Calls under way on an endpoint");
    for e in &stats.endpoints {
        page.sample("weft_endpoint_active", &endpoint_labels(&e.cluster, &e.address), e.active);
    }
    page.family("weft_endpoint_connect_failures_total", "counter", "Connections to an endpoint that failed");
    for e in &stats.endpoints {
        let labels = endpoint_labels(&e.cluster, &e.address);
        page.sample("weft_endpoint_connect_failures_total", &labels, e.connect_failures);
    }
    page.family("weft_refusals_total", "counter", "Connections, streams and calls refused, by reason");
    for (reason, n) in &stats.refusals {
        page.sample("weft_refusals_total", &format!("reason=\"{}\"", escaped(reason)), *n);
    }
    page.family("weft_sink_rows_lost_total", "counter", "Sink rows given up because their writer was behind");
    page.sample("weft_sink_rows_lost_total", "", stats.rows_lost);
    page.family("weft_syscalls_total", "counter", "System calls of the data path");
    page.sample("weft_syscalls_total", "", node.syscalls);
    page.family("weft_memory_resident_bytes", "gauge", "Resident memory");
    page.sample("weft_memory_resident_bytes", "", crate::running::resident_bytes());
    page.sinks(sinks);
    page.0
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all text");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        writeln!(self.0, "{name}{open}{labels}{close} {value}").expect("a string takes all text");
    }

    fn latency(&mut self, node: &NodeStats) {
        const NAME: &str = "weft_call_duration_seconds";
        self.family(NAME, "histogram", "From a call's headers to its end on this node");
        let latency = &node.stats.latency;
        for bound in LATENCY_BOUNDS_US {
            let n = latency.count_up_to(Interval::from_micros(*bound));
            self.sample(&format!("{NAME}_bucket"), &format!("le=\"{}\"", *bound as f64 / 1e6), n);
        }
        self.sample(&format!("{NAME}_bucket"), "le=\"+Inf\"", latency.count());
        self.sample(&format!("{NAME}_sum"), "", latency.sum_ns() as f64 / 1e9);
        self.sample(&format!("{NAME}_count"), "", latency.count());
    }

    fn elements(&mut self, node: &NodeStats) {
        const NAME: &str = "weft_element_tuples_total";
        self.family(
            NAME,
            "counter",
            "Tuples by element and what became of them; version 0 stands for all retired ones",
        );
        let live = node.stats.chains.iter().map(|c| (&c.chain, c.version, &c.elements));
        let retired = node.retired.iter().map(|(chain, elements)| (chain, 0, elements));
        for (chain, version, elements) in live.chain(retired) {
            for (element, counters) in elements {
                self.element(NAME, chain, version, element, counters);
            }
        }
        self.family("weft_element_sampled_seconds_total", "counter", "Time in sampled passes");
        self.family("weft_element_sampled_total", "counter", "Sampled passes");
        for chain in &node.stats.chains {
            for (element, c) in &chain.elements {
                let labels = element_labels(&chain.chain, chain.version, element);
                self.sample("weft_element_sampled_seconds_total", &labels, c.sampled_ns as f64 / 1e9);
                self.sample("weft_element_sampled_total", &labels, c.sampled);
            }
        }
    }

    fn element(&mut self, name: &str, chain: &str, version: u64, element: &str, c: &Counters) {
        let labels = element_labels(chain, version, element);
        let counts = [
            ("seen", c.seen),
            ("dropped", c.dropped),
            ("aborted", c.aborted),
            ("diverted", c.diverted),
            ("failed", c.failed),
        ];
        for (what, n) in counts {
            self.sample(name, &format!("{labels},what=\"{what}\""), n);
        }
    }

    fn sinks(&mut self, sinks: &[(String, String, f64)]) {
        let mut last = "";
        for (name, labels, value) in sinks {
            if name != last {
                self.family(name, "gauge", "Given by a sink of the program");
                last = name;
            }
            self.sample(name, labels, value);
        }
    }
}

fn element_labels(chain: &str, version: u64, element: &str) -> String {
    format!("chain=\"{}\",version=\"{version}\",element=\"{}\"", escaped(chain), escaped(element))
}

fn endpoint_labels(cluster: &str, address: &str) -> String {
    format!("cluster=\"{}\",address=\"{}\"", escaped(cluster), escaped(address))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
