//! `weft check`

use super::render_options;
use crate::cli::CheckArgs;
use crate::compile::check_files;
use crate::fault::Fault;
use crate::source::{Files, require};
use crate::table::{Align, Table};
use std::io::Write as _;
use weft_lang::diagnostic::{render_all, to_json};
use weft_lang::hir::Network;
use weft_lang::source::SourceMap;
use weft_opt::cost::cost;
use weft_opt::lower::{LowerOptions, lower_with_lines};

pub(crate) fn run(args: &CheckArgs) -> Result<(), Fault> {
    require(&args.file)?;
    let checked = check_files(&args.file, &mut Files::on_disk());
    let mut stdout = std::io::stdout();
    if args.json {
        let _ = writeln!(stdout, "{}", to_json(&checked.diagnostics, &checked.sources));
    } else {
        eprint!("{}", render_all(&checked.diagnostics, &checked.sources, render_options()));
    }
    let Some(network) = checked.network else { return Err(Fault::Told) };
    if !args.json {
        let counts = [
            (network.chains.len(), "chain"),
            (network.elements.len(), "element"),
            (network.listeners.len(), "listener"),
            (network.clusters.len(), "cluster"),
        ];
        let counts: Vec<_> = counts.iter().map(|(n, what)| super::count(*n as u64, what)).collect();
        let _ = writeln!(
            stdout,
            "{}: {}, checked in {:.1} ms",
            args.file,
            counts.join(", "),
            checked.took.as_secs_f64() * 1e3
        );
    }
    if args.cost {
        let _ = stdout.write_all(costs(&network, &checked.sources)?.as_bytes());
    }
    Ok(())
}

/// What is known of each element before it runs.
fn costs(network: &Network, sources: &SourceMap) -> Result<String, Fault> {
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("element", Align::Left),
        ("open", Align::Right),
        ("request", Align::Right),
        ("response", Align::Right),
        ("close", Align::Right),
        ("every", Align::Right),
        ("tables", Align::Right),
        ("a call", Align::Right),
    ]);
    for (index, chain) in network.chains.iter().enumerate() {
        let program = lower_with_lines(network, index, &LowerOptions { workers: 1 }, sources);
        let program = program.map_err(|diagnostics| {
            eprint!("{}", render_all(&diagnostics, sources, render_options()));
            Fault::Told
        })?;
        for element in cost(&program).elements {
            let ops = element.ops;
            let mut cells = vec![chain.name.clone(), element.name];
            let counts = [ops.open, ops.request, ops.response, ops.close, ops.every];
            cells.extend(counts.map(|n| if n == 0 { "-".to_owned() } else { super::grouped(n) }));
            cells.push(bytes(element.table_bytes));
            cells.push(bytes(element.call_bytes));
            table.row(cells);
        }
    }
    Ok(format!("\nat worst, operations of a handler and bytes of state:\n{}", table.render()))
}

fn bytes(n: u64) -> String {
    match n {
        0 => "-".to_owned(),
        1..10_000 => format!("{} B", super::grouped(n)),
        10_000..10_000_000 => format!("{:.1} KB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
