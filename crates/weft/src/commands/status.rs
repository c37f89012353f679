//! `weft status`: shows the state of a node.

use crate::cli::{Output, StatusArgs};
use crate::client::Client;
use crate::fault::Fault;
use crate::status_table::short_time;
use crate::stdout;
use weft_api::{Opt, Packets, Status};
use weft_control::definition_files::location;
use weft_control::show::{Align, Table};
use weft_control::show::{count, grouped};

/// Runs `weft status`.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Fault> {
    let client = Client::new(&args.admin)?;
    if args.program {
        let program = client.program()?;
        let text = if is_data(args) {
            serde_json::to_string(&program).expect("it is data")
        } else {
            // The root file comes first.
            let mut files: Vec<_> = program.files.iter().collect();
            files.sort_by_key(|(name, _)| **name != program.root);
            let texts = files.iter().map(|(name, text)| format!("-- {name}\n{text}"));
            texts.collect::<Vec<_>>().join("\n")
        };
        return stdout::print(&format!("{text}\n"));
    }
    let status = client.status()?;
    let text = if is_data(args) { data(&status) } else { page(&status) };
    stdout::print(&text)
}

fn is_data(args: &StatusArgs) -> bool {
    args.json || args.output == Output::Json
}

/// A node's state as one line of JSON.
pub(crate) fn data(status: &Status) -> String {
    serde_json::to_string(status).expect("it is data") + "\n"
}

/// The options that differ from their defaults. `-o json` has all.
fn set_options(options: &[Opt]) -> String {
    let set = options.iter().filter(|option| !option.is_default);
    let set: Vec<_> = set.map(|option| format!("{} {}", option.name, option.value)).collect();
    if set.is_empty() { String::new() } else { format!("   {}", set.join(", ")) }
}

/// Formats a node's state as text.
pub(crate) fn page(status: &Status) -> String {
    let mut page = format!(
        "version {}   up {}   {}   {:.1} MiB   {} begun, {} open   p50 {}   p99 {}\n",
        status.version,
        long_time(status.uptime_s),
        count(status.workers as u64, "worker"),
        status.memory_bytes as f64 / f64::from(1 << 20),
        count(status.calls.begun, "call"),
        grouped(status.calls.open),
        latency(status.calls.p50_us),
        latency(status.calls.p99_us),
    );
    for place in &status.listeners {
        page.push_str(&format!(
            "listener {} on {}{}\n",
            place.name,
            place.address,
            set_options(&place.options)
        ));
    }
    for cluster in status.clusters.iter().filter(|cluster| cluster.options.iter().any(|o| !o.is_default)) {
        page.push_str(&format!("cluster {}{}\n", cluster.name, set_options(&cluster.options)));
    }
    let ended: Vec<_> =
        status.calls.ended.iter().map(|(name, n)| format!("{name} {}", grouped(*n))).collect();
    let ended = if ended.is_empty() { "no call yet".to_owned() } else { ended.join(", ") };
    page.push_str(&format!("ended: {ended}\n\n"));
    page.push_str(&elements(status));
    if !status.filters.is_empty() {
        page.push('\n');
        page.push_str(&filters(status));
    }
    if !status.links.is_empty() {
        page.push('\n');
        page.push_str(&links(&status.links));
    }
    if let Some(carried) = &status.packets {
        if !page.ends_with("\n\n") {
            page.push('\n');
        }
        page.push_str(&packets(carried));
    }
    let mut endpoints = Table::new(&[
        ("cluster", Align::Left),
        ("endpoint", Align::Left),
        ("active", Align::Right),
        ("places", Align::Right),
        ("waiting", Align::Right),
        ("connections", Align::Right),
        ("calls", Align::Right),
        ("failures", Align::Right),
    ]);
    for e in &status.endpoints {
        let cells = [
            e.cluster.clone(),
            e.address.clone(),
            grouped(e.active),
            grouped(e.places),
            grouped(e.waiting),
            grouped(e.connections),
            grouped(e.calls),
            grouped(e.connect_failures),
        ];
        endpoints.row(cells.to_vec());
    }
    if !page.ends_with("\n\n") {
        page.push('\n');
    }
    page.push_str(&endpoints.render());
    for e in &status.endpoints {
        if !e.addresses.is_empty() {
            page.push_str(&format!("{} is {}\n", e.address, e.addresses.join(", ")));
        }
        if let Some(why) = &e.down {
            page.push_str(&format!("{} of {} is down: {why}\n", e.address, e.cluster));
        }
    }
    if status.rows_lost > 0 {
        page.push_str(&format!(
            "lost {} of sinks: no file or stream took them\n",
            count(status.rows_lost, "row")
        ));
    }
    for (table, n) in &status.rows_refused {
        page.push_str(&format!(
            "{table} refused {} of sinks TO TABLE: it is full, a value does not fit, or a CHECK does not hold\n",
            count(*n, "row")
        ));
    }
    let capabilities = match status.capabilities.is_empty() {
        true => "none".to_owned(),
        false => status.capabilities.join(", "),
    };
    page.push_str(&format!("capabilities: {capabilities}\n"));
    if let Some(max) = status.descriptors_max {
        let kept = grouped(status.descriptors_reserved);
        page.push_str(&format!("descriptors: {} at most, {kept} of them not for calls\n", grouped(max)));
    }
    for (chain, n) in &status.slow_passes {
        page.push_str(&format!(
            "{chain} held a worker for more than 10 ms in {}: with large messages, or by going over large tables\n",
            count(*n, "pass")
        ));
    }
    for (reason, n) in &status.refusals {
        page.push_str(&format!("refused {}: {reason}\n", grouped(*n)));
    }
    page
}

/// A latency, if there was a call to measure.
fn latency(us: f64) -> String {
    if us > 0.0 { short_time(us) } else { "-".to_owned() }
}

/// Formats seconds in two suitable units.
fn long_time(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// The counters of all elements as a table.
fn elements(status: &Status) -> String {
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("version", Align::Right),
        ("element", Align::Left),
        ("seen", Align::Right),
        ("dropped", Align::Right),
        ("aborted", Align::Right),
        ("diverted", Align::Right),
        ("failed", Align::Right),
        ("ns/msg", Align::Right),
    ]);
    for chain in &status.chains {
        for e in &chain.elements {
            table.row(vec![
                chain.name.clone(),
                chain.version.to_string(),
                e.name.clone(),
                grouped(e.seen),
                grouped(e.dropped),
                grouped(e.aborted),
                grouped(e.diverted),
                grouped(e.failed),
                e.ns_per_tuple.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}")),
            ]);
        }
    }
    table.render()
}

/// The counters of all filters as a table.
fn filters(status: &Status) -> String {
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("filter", Align::Left),
        ("calls", Align::Right),
        ("tries", Align::Right),
        ("refused", Align::Right),
        ("waiting", Align::Right),
        ("", Align::Left),
    ]);
    for f in &status.filters {
        let count = |name: &str| f.counts.get(name).copied().unwrap_or(0);
        let mut cells = vec![f.chain.clone(), f.name.clone()];
        cells.extend(["calls", "tries", "refused"].map(|name| grouped(count(name))));
        cells.extend([grouped(f.waiting), filter_notes(f)]);
        table.row(cells);
    }
    table.render()
}

/// Formats the packet path: ports, elements on frames, and the reasons of drops.
fn packets(carried: &Packets) -> String {
    let mut ports = Table::new(&[
        ("port", Align::Left),
        ("on", Align::Left),
        ("in", Align::Right),
        ("out", Align::Right),
        ("", Align::Left),
    ]);
    for port in &carried.ports {
        let mut notes: Vec<_> =
            port.dropped.iter().map(|(reason, n)| format!("{} {reason}", grouped(*n))).collect();
        notes.extend(port.broken.clone().filter(|_| !port.is_ended));
        notes.extend(port.is_ended.then(|| port.broken.clone().unwrap_or_else(|| "at its end".to_owned())));
        let (name, device) = (port.name.clone(), port.device.clone());
        ports.row(vec![name, device, grouped(port.received), grouped(port.sent), notes.join(", ")]);
    }
    let mut groups = Table::new(&[
        ("group", Align::Left),
        ("port", Align::Left),
        ("sent", Align::Right),
        ("weight", Align::Right),
        ("link", Align::Left),
    ]);
    for group in &carried.groups {
        for of in &group.members {
            let name = format!("{} ({})", group.name, group.choice);
            let link = if of.is_up { "up" } else { "down" }.to_owned();
            groups.row(vec![name, of.port.clone(), grouped(of.sent), of.weight.to_string(), link]);
        }
    }
    let mut chains = Table::new(&[
        ("chain", Align::Left),
        ("version", Align::Right),
        ("element", Align::Left),
        ("packets", Align::Right),
        ("ns/packet", Align::Right),
    ]);
    let mut ends = Table::new(&[("dropped", Align::Right), ("by", Align::Left), ("why", Align::Left)]);
    for chain in &carried.chains {
        let mut row = |name: &str, packets: u64, ns: Option<f64>| {
            let ns = ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
            chains.row(vec![
                chain.name.clone(),
                chain.version.to_string(),
                name.to_owned(),
                grouped(packets),
                ns,
            ]);
        };
        row("(all)", chain.frames, None);
        chain.elements.iter().for_each(|e| row(&e.name, e.seen, e.ns_per_tuple));
        for end in &chain.ends {
            let by = format!("{}.{} {}", chain.name, end.element, location(&end.file, end.line));
            ends.row(vec![grouped(end.packets), by, end.how.clone()]);
        }
        for m in &chain.malformed {
            let by = format!("{} {} {}", chain.name, m.protocol, location(&m.file, m.line));
            ends.row(vec![grouped(m.packets), by, format!("malformed: {}", m.what)]);
        }
    }
    for (reason, n) in &carried.lost {
        ends.row(vec![grouped(*n), "-".to_owned(), reason.clone()]);
    }
    let mut tables = vec![ports.render()];
    tables.extend((!carried.groups.is_empty()).then(|| groups.render()));
    tables.extend((!carried.links.is_empty()).then(|| links(&carried.links)));
    tables.extend([chains, ends].map(|table| table.render()));
    tables.join("\n")
}

/// Formats the queues of links, of packets and of calls.
fn links(links: &[weft_api::Link]) -> String {
    let mut table = Table::new(&[
        ("link", Align::Left),
        ("queue", Align::Left),
        ("sent", Align::Right),
        ("waiting", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("", Align::Left),
    ]);
    for link in links {
        let mut notes: Vec<_> =
            link.dropped.iter().map(|(reason, n)| format!("{} {reason}", grouped(*n))).collect();
        notes.extend((link.marked > 0).then(|| format!("{} marked", grouped(link.marked))));
        notes.extend((link.left > 0).then(|| format!("{} left", grouped(link.left))));
        notes.extend(link.concurrency.map(|n| format!("{} of {n} under way", link.in_flight)));
        let millis = |us: f64| format!("{:.1} ms", us / 1e3);
        table.row(vec![
            format!("{} ({} {})", link.name, link.port, link.direction),
            link.queue.clone(),
            grouped(link.sent),
            grouped(link.queued),
            millis(link.waited_us[0]),
            millis(link.waited_us[2]),
            notes.join(", "),
        ]);
    }
    table.render()
}

/// The state of a filter that has no column of its own.
fn filter_notes(filter: &weft_api::Filter) -> String {
    const NOTES: [(&str, &str); 9] = [
        ("retries", "retries"),
        ("hedges", "hedges"),
        ("over_budget", "over budget"),
        ("timeouts", "timeouts"),
        ("repeated", "repeated"),
        ("detached", "detached"),
        ("waited", "waited"),
        ("opened", "times opened"),
        ("ejected", "ejections"),
    ];
    let count = |name: &str| filter.counts.get(name).copied().unwrap_or(0);
    let counts = NOTES.iter().filter(|(name, _)| count(name) > 0);
    let mut notes: Vec<String> =
        counts.map(|(name, what)| format!("{} {what}", grouped(count(name)))).collect();
    if filter.limit > 0.0 {
        notes.push(format!("limit {:.0}", filter.limit));
    }
    if filter.in_flight > 0 {
        notes.push(format!("{} under way", grouped(filter.in_flight)));
    }
    if filter.is_open {
        notes.push("open".to_owned());
    }
    notes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator would not see that an open breaker refuses the calls.
    #[test]
    fn status_shows_filter_state() {
        let counts = [("calls", 1_200), ("tries", 900), ("refused", 300), ("opened", 2)];
        let counts = counts.map(|(name, n)| (name.to_owned(), n)).into();
        let filter = weft_api::Filter {
            chain: "shop".to_owned(),
            name: "circuit".to_owned(),
            counts,
            ..Default::default()
        };
        let shown =
            |filter: &weft_api::Filter| page(&Status { filters: vec![filter.clone()], ..Status::default() });
        let open = shown(&weft_api::Filter { is_open: true, ..filter.clone() });
        assert!(
            open.contains("shop   circuit  1,200    900      300        0  2 times opened, open"),
            "{open}"
        );
        assert!(!shown(&filter).contains(", open"));
        assert!(!page(&Status::default()).contains("filter"));
    }

    /// An operator would take an incomplete log for a complete one.
    #[test]
    fn status_shows_lost_rows() {
        assert!(!page(&Status::default()).contains("lost"));
        let page = page(&Status { rows_lost: 1_234, ..Status::default() });
        assert!(page.contains("lost 1,234 rows of sinks"), "{page}");
        let page = super::page(&Status {
            rows_refused: [("lan.guard.banned".to_owned(), 7)].into(),
            ..Status::default()
        });
        assert!(page.contains("lan.guard.banned refused 7 rows of sinks TO TABLE"), "{page}");
    }

    /// An operator must be able to tell a node that has just started from one that runs for weeks.
    #[test]
    fn durations_print_two_units() {
        let times = [59.9, 61.0, 7_265.0, 200_000.0].map(long_time);
        assert_eq!(times, ["59 s", "1 min 1 s", "2 h 1 min", "2 d 7 h"]);
    }
}
