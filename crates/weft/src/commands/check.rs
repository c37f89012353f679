//! `weft check`: checks a program, and shows its costs.

use crate::cli::CheckArgs;
use crate::fault::Fault;
use crate::machine::check_with_limit;
use crate::source;
use crate::source::{FILE_BYTES_MAX, read_text, require};
use crate::stderr;
use crate::stdout;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use weft_control::explain::queues;
use weft_control::files::Files;
use weft_control::show::{Align, Table};
use weft_core::wire::Protocol;
use weft_ir::queue::QueueProgram;
use weft_lang::diagnostic::to_json;
use weft_lang::hir::{Chain, Network, Queue};
use weft_lang::source::SourceMap;
use weft_opt::cost::{Cost, ElementCost, cost};
use weft_opt::lower::{LowerOptions, lower_with_lines};

/// Runs `weft check`. Fails if the program is faulty, or may use more than the allowed memory.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Fault> {
    let mut files = match args.file.as_str() {
        "-" => stdin()?,
        file => {
            require(file)?;
            source::on_disk()
        }
    };
    let begun = Instant::now();
    let checked = check_with_limit(&args.file, &mut files, args.memory);
    let took = begun.elapsed();
    let network = checked.network().filter(|_| args.cost);
    let costs = network.map(|network| costs(network, &checked.sources));
    if args.json {
        let diagnostics = to_json(&checked.diagnostics, &checked.sources);
        let text = match &costs {
            Some(costs) => {
                let (headers, queues) = checked.network().map(of_packets).unwrap_or_default();
                let (costs, headers) = (data(costs), json!(headers));
                let parts = format!("\"costs\": {costs}, \"headers\": {headers}, \"queues\": {queues}");
                format!("{{\"diagnostics\": {diagnostics}, {parts}}}")
            }
            None => diagnostics,
        };
        stdout::print(&format!("{text}\n"))?;
    } else {
        stderr::diagnostics(&checked.diagnostics, &checked.sources);
    }
    let Some(network) = checked.network() else { return Err(Fault::reported(checked.at_fault)) };
    if !args.json {
        let counts = [
            (network.chains.len(), "chain"),
            (network.declared_elements().filter(|element| !element.is_of_filter()).count(), "element"),
            (network.listeners.len(), "listener"),
            (network.clusters.len(), "cluster"),
        ];
        let of_frames = [
            (network.ports.len(), "port"),
            (network.groups.len(), "group"),
            (network.protocols.len(), "protocol"),
            (network.queues.len(), "queue"),
            (network.links.len() + network.call_links.len(), "link"),
        ];
        let counts = counts.into_iter().chain(of_frames.into_iter().filter(|(n, _)| *n > 0));
        let counts: Vec<_> = counts.map(|(n, what)| weft_control::show::count(n as u64, what)).collect();
        let (counts, ms) = (counts.join(", "), took.as_secs_f64() * 1e3);
        let costs = costs.map_or(String::new(), |costs| all_costs(&costs, network));
        stdout::print(&format!("{}: {counts}, checked in {ms:.1} ms\n{costs}", args.file))?;
    }
    Ok(())
}

/// The data of headers and of queues.
fn of_packets(network: &Network) -> (Vec<Value>, Value) {
    (header_data(network), queues::data(&queues_of(network)))
}

/// The worst-case cost of each part of a program, as text.
fn all_costs(costs: &[ChainCost<'_>], network: &Network) -> String {
    let queues = queues::costs(&queues_of(network));
    // A program with only queues needs no table of elements.
    let elements = if costs.is_empty() && !queues.is_empty() { String::new() } else { table(costs) };
    let parts = [elements, headers(network), queues];
    parts.iter().filter(|part| !part.is_empty()).map(|part| format!("\n{part}")).collect()
}

/// The queues of a program: those that need no arguments, and those of links.
fn queues_of(network: &Network) -> Vec<QueueProgram> {
    let mut all: Vec<&Queue> = network.queues.iter().collect();
    let of_links = network.links.iter().map(|link| &link.queue);
    for queue in of_links.chain(network.call_links.iter().map(|link| &link.queue)) {
        if !all.iter().any(|known| known.name == queue.name) {
            all.push(queue);
        }
    }
    all.into_iter().map(weft_opt::lower::queue).collect()
}

/// A program from standard input; its imports are relative to the working directory.
fn stdin() -> Result<Files, Fault> {
    let text = read_text("-", FILE_BYTES_MAX)?;
    Ok(source::with_open(&Arc::new(BTreeMap::from([("-".to_owned(), text)]))))
}

/// The static cost of a chain.
struct ChainCost<'n> {
    chain: &'n Chain,
    cost: Cost,
}

impl ChainCost<'_> {
    /// The costs of stages, and whether each is a filter, whose cost is the computation of its keys.
    fn stages(&self) -> impl Iterator<Item = (&ElementCost, bool)> {
        let is_filter = |at: usize| self.chain.keys_of(at).is_some();
        self.cost.elements.iter().enumerate().map(move |(at, cost)| (cost, is_filter(at)))
    }
}

/// Computes the worst-case cost of each chain, as written and for one worker: the check lowered it for several.
fn costs<'n>(network: &'n Network, sources: &SourceMap) -> Vec<ChainCost<'n>> {
    let cost_of = |(index, chain): (usize, &'n Chain)| {
        let program = lower_with_lines(network, index, &LowerOptions { workers: 1 }, sources);
        // One worker needs no locks, so the program is no longer than the accepted one.
        ChainCost { chain, cost: cost(&program.expect("the check has lowered it")) }
    };
    network.chains.iter().enumerate().map(cost_of).collect()
}

/// Formats the costs of chains as a table.
fn table(costs: &[ChainCost<'_>]) -> String {
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("element", Align::Left),
        ("open", Align::Right),
        ("request", Align::Right),
        ("response", Align::Right),
        ("close", Align::Right),
        ("every", Align::Right),
        ("expiry", Align::Right),
        ("tables", Align::Right),
        ("a call", Align::Right),
    ]);
    for chain in costs {
        for (element, is_filter) in chain.stages() {
            let ops = element.ops;
            let of = if is_filter { " (keys of a filter)" } else { "" };
            let mut cells = vec![chain.chain.name.clone(), format!("{}{of}", element.name)];
            let counts = [ops.open, ops.request, ops.response, ops.close, ops.every, ops.timeout];
            cells
                .extend(counts.map(|n| if n == 0 { "-".to_owned() } else { weft_control::show::grouped(n) }));
            cells.push(bytes(element.table_bytes));
            cells.push(bytes(element.call_bytes));
            table.row(cells);
        }
        let shared = chain.cost.shared_table_bytes;
        if shared > 0 {
            let mut cells = vec![chain.chain.name.clone(), "(tables of all chains)".to_owned()];
            cells.extend(["-"; 6].map(str::to_owned));
            cells.extend([bytes(shared), "-".to_owned()]);
            table.row(cells);
        }
    }
    format!("at worst, operations of a handler and bytes of state:\n{}", table.render())
}

/// The length of each protocol's header, as text; empty without protocols.
fn headers(network: &Network) -> String {
    if network.protocols.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("protocol", Align::Left),
        ("least", Align::Right),
        ("most", Align::Right),
        ("carries", Align::Left),
    ]);
    for protocol in &network.protocols {
        let mut next: Vec<&str> =
            protocol.next.iter().map(|next| &*network.protocols[usize::from(next.to.0)].name).collect();
        next.sort_unstable();
        next.dedup();
        let sizes = [protocol.header_min, protocol.header_max].map(|n| bytes(n.into()));
        table.row([vec![protocol.name.clone()], sizes.to_vec(), vec![next.join(", ")]].concat());
    }
    format!("bytes of headers:\n{}", table.render())
}

/// The lengths as JSON.
fn header_data(network: &Network) -> Vec<Value> {
    let protocols = network.protocols.iter();
    let object = |p: &Protocol| json!({ "protocol": p.name, "least": p.header_min, "most": p.header_max });
    protocols.map(object).collect()
}

/// The costs as JSON: a list with an object for each element, and for each filter that computes keys.
fn data(costs: &[ChainCost<'_>]) -> Value {
    let stages = costs.iter().flat_map(|cost| cost.stages().map(|stage| (&cost.chain.name, stage)));
    let object = |(chain, (element, is_filter)): (&String, (&ElementCost, bool))| {
        let ops = element.ops;
        json!({
            "chain": chain,
            "element": element.name,
            "is_filter": is_filter,
            "open": ops.open,
            "request": ops.request,
            "response": ops.response,
            "close": ops.close,
            "every": ops.every,
            "expiry": ops.timeout,
            "table_bytes": element.table_bytes,
            "call_bytes": element.call_bytes,
        })
    };
    stages.map(object).collect()
}

/// Formats a number of bytes, `-` for none.
fn bytes(n: u64) -> String {
    match n {
        0 => "-".to_owned(),
        1..10_000 => format!("{} B", weft_control::show::grouped(n)),
        10_000..10_000_000 => format!("{:.1} KB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
