//! `weft link`: emulates a link, and records, shows and explains the queue of a link.

mod emulate;
mod explain;
mod history;
mod namespaces;
mod record;
mod report;
mod schedule;
pub(crate) mod setting;
mod show;
pub(crate) mod spec;

use crate::cli::{LinkAction, LinkArgs};
use crate::fault::Fault;

/// Runs the subcommand of `weft link`.
pub(crate) fn run(args: &LinkArgs) -> Result<(), Fault> {
    match &args.action {
        LinkAction::Emulate(args) => emulate::run(args),
        LinkAction::Record(args) => record::run(args),
        LinkAction::Show(args) => show::run(args),
        LinkAction::Explain(args) => explain::run(args),
    }
}
