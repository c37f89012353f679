//! `weft link`: emulates a link, and records, shows and explains the queue of a link.

mod emulate;
mod namespaces;
mod record;
mod report;
mod schedule;
pub(crate) mod setting;
pub(crate) mod spec;

use crate::cli::{LinkAction, LinkArgs, LinkExplainArgs, LinkShowArgs};
use crate::fault::Fault;
use crate::recording_file::open;
use crate::stderr;
use crate::stdout;

/// Runs the subcommand of `weft link`.
pub(crate) fn run(args: &LinkArgs) -> Result<(), Fault> {
    match &args.action {
        LinkAction::Emulate(args) => emulate::run(args),
        LinkAction::Record(args) => record::run(args),
        LinkAction::Show(args) => show(args),
        LinkAction::Explain(args) => explain(args),
    }
}

/// Runs `weft link show`: a link's queue over time, on a terminal, as JSON or as a picture.
fn show(args: &LinkShowArgs) -> Result<(), Fault> {
    let link = open(&args.file, args.link.as_deref())?;
    if let Some(file) = &args.svg {
        std::fs::write(file, link.svg())
            .map_err(|error| Fault::environment(format!("{}: {error}", file.display())))?;
    }
    stdout::print(&if args.json { link.json() } else { link.text() })
}

/// Runs `weft link explain`: lists the drops of a recording, or explains the numbered packet.
fn explain(args: &LinkExplainArgs) -> Result<(), Fault> {
    let link = open(&args.file, args.link.as_deref())?;
    let text = match args.packet {
        Some(number) => link.explain(number, args.json)?,
        None if args.json => {
            let (drops, note) = link.drops_json();
            note.iter().for_each(|note| stderr::line(format_args!("{note}")));
            drops
        }
        None => link.drops_text(),
    };
    stdout::print(&text)
}
