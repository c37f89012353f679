//! `weft explain`: explains chains and queues.

use crate::cli::{AdminArgs, ExplainArgs};
use crate::client::Client;
use crate::fault::Fault;
use crate::machine::check_files;
use crate::source::{self, require};
use crate::stderr;
use crate::stdout;
use weft_control::check::Accepted;
use weft_control::explain::{Explained, Selection, no_picture_fault};

/// Runs `weft explain` for all chains and queues, or for the named one.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Fault> {
    if let Some(first) = args.rest.first() {
        return Err(extra_words_fault(args, first));
    }
    require(&args.file).map_err(|fault| missing_file_fault(&args.file, fault))?;
    let checked = check_files(&args.file, &mut source::on_disk());
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(Accepted { network, .. }) = checked.accepted else {
        return Err(Fault::reported(checked.at_fault));
    };
    let selection = Selection::of(&network, &checked.sources, args.name.as_deref())?;
    if !selection.has_chains() && (args.svg.is_some() || args.dot.is_some()) {
        return Err(no_picture_fault(&network, args.name.as_deref()));
    }
    let status = args.admin.as_ref().map(|admin| {
        let node = AdminArgs { admin: *admin, token_file: args.token_file.clone() };
        Client::new(&node)?.status()
    });
    let status = status.transpose()?;
    let explained = Explained::of(selection, &network, &checked.sources, status.as_ref());
    let explained = explained.map_err(|diagnostics| {
        stderr::diagnostics(&diagnostics, &checked.sources);
        Fault::Reported
    })?;
    for (file, picture) in [(&args.svg, Explained::svg as fn(&_) -> _), (&args.dot, Explained::dot)] {
        if let Some(file) = file {
            let picture: String = picture(&explained);
            std::fs::write(file, picture).map_err(|error| Fault::environment(format!("{file}: {error}")))?;
        }
    }
    stdout::print(&if args.json { explained.json() } else { explained.text(args.full) })
}

/// The fault of more words than a program and a name. Points to the right command if the words name a packet.
fn extra_words_fault(args: &ExplainArgs, first: &str) -> Fault {
    match (&*args.file, &args.name) {
        ("packet", Some(recording)) => Fault::usage("`weft explain` explains programs, and not packets")
            .with_help(format!("write `weft link explain {recording} {first}`")),
        _ => Fault::usage(format!("unexpected argument `{first}`"))
            .with_help("write `weft explain FILE` or `weft explain FILE NAME`"),
    }
}

/// The fault of a missing file. Points to the right command if the user asked for a packet, which is no file.
fn missing_file_fault(file: &str, fault: Fault) -> Fault {
    match file == "packet" && !std::path::Path::new(file).exists() {
        true => fault.with_help(
            "a packet of a recorded link is explained by `weft link explain FILE N`, \
             where FILE is what `weft link record` has written",
        ),
        false => fault,
    }
}
