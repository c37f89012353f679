//! `weft explain`: what each element does, which of them may change places and why not, and which tables may be spread.

mod data;
mod filters;
mod report;
mod text;
mod words;

use super::render_options;
use crate::cli::ExplainArgs;
use crate::compile::check_files;
use crate::fault::Fault;
use crate::source::{Files, require};
use std::io::Write as _;
use weft_lang::diagnostic::render_all;
use weft_lang::hir::Network;

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Fault> {
    require(&args.file)?;
    let checked = check_files(&args.file, &mut Files::on_disk());
    eprint!("{}", render_all(&checked.diagnostics, &checked.sources, render_options()));
    let Some(network) = checked.network else { return Err(Fault::told(checked.at_fault)) };
    let chains = chosen(&network, args.chain.as_deref())?;
    let explained = chains.into_iter().map(|chain| {
        report::explain(&network, chain, &checked.sources, &[]).map_err(|diagnostics| {
            eprint!("{}", render_all(&diagnostics, &checked.sources, render_options()));
            Fault::Told
        })
    });
    let explained: Vec<report::Chain> = explained.collect::<Result<_, _>>()?;
    let text = match args.json {
        true => format!("{}\n", data::of(&explained)),
        false => explained.iter().map(text::of).collect::<Vec<_>>().join("\n"),
    };
    // A reader that has seen enough may close its end.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// The chains to be explained: the one with this name, or all.
fn chosen(network: &Network, name: Option<&str>) -> Result<Vec<usize>, Fault> {
    let Some(name) = name else { return Ok((0..network.chains.len()).collect()) };
    let names: Vec<&str> = network.chains.iter().map(|chain| &*chain.name).collect();
    match names.iter().position(|known| *known == name) {
        Some(index) => Ok(vec![index]),
        None if names.is_empty() => Err(Fault::Input("the program has no chains".to_owned())),
        None => {
            Err(Fault::Input(format!("there is no chain `{name}`; the program has {}", names.join(", "))))
        }
    }
}
