//! `weft apply`

use super::{count, render_options};
use crate::cli::ApplyArgs;
use crate::client::{Apply, Client};
use crate::compile::check_files;
use crate::fault::Fault;
use crate::running::refused_by;
use crate::source::{Files, require};
use std::io::Write as _;
use weft_api::{Applied, ApplyRequest, Change, ChangeKind, Refused};
use weft_lang::diagnostic::render_all;

pub(crate) fn run(args: &ApplyArgs) -> Result<(), Fault> {
    let mut stdout = std::io::stdout();
    require(&args.file)?;
    let mut files = Files::on_disk();
    let checked = check_files(&args.file, &mut files);
    if checked.network.is_none() {
        // The node is asked only to say what it goes on with.
        let running = Client::new(&args.admin).and_then(|client| client.status()).ok();
        let mut refused = refused_by(&checked.diagnostics, &checked.sources, checked.at_fault);
        refused.version = running.map_or(0, |status| status.version);
        if !args.json {
            refused.text = render_all(&checked.diagnostics, &checked.sources, render_options());
        }
        return Err(refuse(&refused, args.json));
    }
    if !args.json {
        eprint!("{}", render_all(&checked.diagnostics, &checked.sources, render_options()));
    }
    let client = Client::new(&args.admin)?;
    let request = ApplyRequest { program: files.into_bundle(&args.file), dry_run: args.dry_run };
    match client.apply(&request)? {
        Apply::Done(applied) if args.json => {
            let _ = writeln!(stdout, "{}", serde_json::to_string(&applied).expect("it is data"));
            Ok(())
        }
        Apply::Done(applied) if args.dry_run => {
            let _ = write!(stdout, "{}: {}", args.file, outlook(&applied));
            Ok(())
        }
        Apply::Done(applied) => {
            let _ = writeln!(stdout, "{}: {}", args.file, summary(&applied, "  "));
            Ok(())
        }
        Apply::Refused(refused) => Err(refuse(&refused, args.json)),
    }
}

/// Tells why nothing was applied: as an object on standard output, or to a person.
fn refuse(refused: &Refused, as_json: bool) -> Fault {
    if as_json {
        let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(refused).expect("it is data"));
        return Fault::told(refused.at_fault);
    }
    eprint!("{}", refused.text);
    match refused.version {
        0 => eprintln!("nothing was applied"),
        version => eprintln!("nothing was applied, version {version} keeps running"),
    }
    Fault::told(refused.at_fault)
}

/// How an update went: a line, and one on how long it took, which begins with `indent`.
pub(crate) fn summary(applied: &Applied, indent: &str) -> String {
    let Applied { version, total_ms, check_ms, compile_ms, pause_us, calls_in_flight, .. } = applied;
    let (before, in_flight) = (version - 1, count(*calls_in_flight, "call"));
    format!(
        "version {version} live in {total_ms:.1} ms, {in_flight} in flight finish on version {before}\n\
         {indent}check {check_ms:.1} ms, compile {compile_ms:.1} ms, pause of a worker {pause_us:.0} us at most"
    )
}

/// What an update would do: a line, and one for each thing that it changes.
fn outlook(applied: &Applied) -> String {
    let version = applied.version;
    let mut text = format!("version {version} would run; nothing was applied\n");
    if applied.changes.is_empty() {
        text.push_str("  no change but places and comments\n");
    }
    for Change { what, kind } in &applied.changes {
        let kind = match kind {
            ChangeKind::New => "new",
            ChangeKind::Changed => "changed",
            ChangeKind::Gone => "gone",
        };
        text.push_str(&format!("  {kind:<8} {what}\n"));
    }
    text
}
