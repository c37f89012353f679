//! `weft check`

use super::render_options;
use crate::cli::CheckArgs;
use crate::compile::check_files;
use crate::fault::Fault;
use crate::source::{Files, require};
use std::io::Write as _;
use weft_lang::diagnostic::{render_all, to_json};

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
    Ok(())
}
