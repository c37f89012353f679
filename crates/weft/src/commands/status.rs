//! `weft status`

use super::grouped;
use crate::cli::{Output, StatusArgs};
use crate::client::Client;
use crate::fault::Fault;
use crate::table::{Align, Table};
use std::io::Write as _;
use weft_api::Status;

pub(crate) fn run(args: &StatusArgs) -> Result<(), Fault> {
    let client = Client::new(&args.admin)?;
    let mut stdout = std::io::stdout();
    if args.program {
        let program = client.program()?;
        let text = match args.output {
            Output::Json => serde_json::to_string(&program).expect("it is data"),
            Output::Table => {
                let files = program.files.iter().map(|(name, text)| format!("-- {name}\n{text}"));
                files.collect::<Vec<_>>().join("\n")
            }
        };
        let _ = writeln!(stdout, "{text}");
        return Ok(());
    }
    let status = client.status()?;
    let text = match args.output {
        Output::Json => serde_json::to_string(&status).expect("it is data") + "\n",
        Output::Table => page(&status),
    };
    let _ = stdout.write_all(text.as_bytes());
    Ok(())
}

/// A node's state for a person.
pub(crate) fn page(status: &Status) -> String {
    let mut page = format!(
        "version {}   up {:.0} s   {} worker{}   {:.1} MiB   {} calls begun, {} open   p50 {:.0} us   p99 {:.0} us\n",
        status.version,
        status.uptime_s,
        status.workers,
        if status.workers == 1 { "" } else { "s" },
        status.memory_bytes as f64 / f64::from(1 << 20),
        grouped(status.calls.begun),
        grouped(status.calls.open),
        status.calls.p50_us,
        status.calls.p99_us,
    );
    for place in &status.listeners {
        page.push_str(&format!("listener {} on {}\n", place.name, place.address));
    }
    let ended = status.calls.ended.iter().map(|(name, n)| format!("{name} {}", grouped(*n)));
    page.push_str(&format!("ended: {}\n\n", ended.collect::<Vec<_>>().join(", ")));
    page.push_str(&elements(status));
    let mut endpoints = Table::new(&[
        ("cluster", Align::Left),
        ("endpoint", Align::Left),
        ("active", Align::Right),
        ("calls", Align::Right),
        ("failures", Align::Right),
    ]);
    for e in &status.endpoints {
        let cells = [
            e.cluster.clone(),
            e.address.clone(),
            grouped(e.active),
            grouped(e.calls),
            grouped(e.connect_failures),
        ];
        endpoints.row(cells.to_vec());
    }
    page.push('\n');
    page.push_str(&endpoints.render());
    for (reason, n) in &status.refusals {
        page.push_str(&format!("refused {}: {reason}\n", grouped(*n)));
    }
    page
}

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
