//! `weft link`

mod emulate;
mod report;
pub(crate) mod spec;
mod world;

use crate::cli::{LinkAction, LinkArgs};
use crate::fault::Fault;

pub(crate) fn run(args: &LinkArgs) -> Result<(), Fault> {
    match &args.action {
        LinkAction::Emulate(args) => emulate::run(args),
    }
}
