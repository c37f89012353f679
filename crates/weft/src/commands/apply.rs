//! `weft apply`: applies a program to a running node.

use super::query::line_of;
use crate::cli::ApplyArgs;
use crate::client::{Client, Outcome};
use crate::fault::Fault;
use crate::machine::check_with_limit;
use crate::running::refused_by;
use crate::source;
use crate::source::require;
use crate::stderr;
use crate::stdout;
use weft_api::{Applied, ApplyRequest, Change, ChangeKind, Dropped, Refused, ResolvedName};
use weft_control::show::count;

/// Runs `weft apply`: checks the program, sends it to the node, and prints the answer.
pub(crate) fn run(args: &ApplyArgs) -> Result<(), Fault> {
    require(&args.file)?;
    let mut files = source::on_disk();
    let checked = check_with_limit(&args.file, &mut files, args.memory);
    if checked.accepted.is_none() {
        // The node is needed only to name the version that goes on.
        let running = Client::new(&args.admin).and_then(|client| client.status()).ok();
        let mut refused = refused_by(&checked.diagnostics, &checked.sources, checked.at_fault);
        refused.version = running.map_or(0, |status| status.version);
        if !args.json {
            stderr::diagnostics(&checked.diagnostics, &checked.sources);
            refused.text.clear();
        }
        return Err(refuse(&refused, args.json));
    }
    if !args.json {
        stderr::diagnostics(&checked.diagnostics, &checked.sources);
    }
    let client = Client::new(&args.admin)?;
    let request = ApplyRequest { program: files.into_bundle(&args.file), dry_run: args.dry_run, by: user() };
    match client.apply(&request)? {
        Outcome::Done(applied) if args.json => stdout::print(&line_of(&applied)),
        Outcome::Done(applied) if args.dry_run => {
            stdout::print(&format!("{}: {}", args.file, dry_run_summary(&applied)))
        }
        Outcome::Done(applied) => stdout::print(&format!("{}: {}\n", args.file, summary(&applied, "  "))),
        Outcome::Refused(refused) => Err(refuse(&refused, args.json)),
    }
}

/// Reports a refused update: as an object on standard output, or as text.
fn refuse(refused: &Refused, as_json: bool) -> Fault {
    if as_json {
        return stdout::print(&line_of(refused)).err().unwrap_or(Fault::reported(refused.at_fault));
    }
    stderr::print(&refused.text);
    match refused.version {
        0 => stderr::line(format_args!("nothing was applied")),
        version => stderr::line(format_args!("nothing was applied, version {version} keeps running")),
    }
    Fault::reported(refused.at_fault)
}

/// The client's name for the node's log.
fn user() -> String {
    let named = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    named.unwrap_or_else(|_| format!("user {}", rustix::process::getuid().as_raw()))
}

/// The outcome of an update: a line, and further ones that begin with `indent`.
pub(crate) fn summary(applied: &Applied, indent: &str) -> String {
    let Applied { version, total_ms, check_ms, compile_ms, pause_us, calls_in_flight, .. } = applied;
    let mut text = format!("version {version} live in {total_ms:.1} ms, ");
    let before = version - 1;
    match calls_in_flight {
        0 => text.push_str(&format!("no call is left on version {before}")),
        n => {
            let end = if *n == 1 { "ends" } else { "end" };
            text.push_str(&format!(
                "{} in flight {end} on version {before};\n\
                 {indent}streams move at their next message where the elements are the same",
                count(*n, "call")
            ));
        }
    }
    text.push_str(&format!(
        "\n{indent}check {check_ms:.1} ms, compile {compile_ms:.1} ms, pause of a worker {pause_us:.0} us at most"
    ));
    if !applied.dropped.is_empty() {
        text.push_str(&format!("\n{indent}{}", dropped_line(&applied.dropped)));
    }
    applied.names.iter().for_each(|name| text.push_str(&format!("\n{indent}{}", name_line(name))));
    text
}

/// Formats the result of resolving an endpoint's name.
fn name_line(found: &ResolvedName) -> String {
    let ResolvedName { name, addresses, error, is_changed } = found;
    let addresses = addresses.join(", ");
    match error {
        Some(why) if addresses.is_empty() => {
            format!("name {name} has no address: {why}; its endpoint is down, and looked up again")
        }
        Some(why) => format!("name {name} could not be looked up: {why}; it stays {addresses}"),
        None if *is_changed => format!("name {name} is {addresses} now"),
        None => format!("name {name} is {addresses}, as before"),
    }
}

/// The dropped state, as a warning for a user who has only renamed an object.
fn dropped_line(dropped: &[Dropped]) -> String {
    let state_text = |state: &Dropped| match state.rows {
        Some(rows) => format!("{} ({})", state.what, count(rows, "row")),
        None => state.what.clone(),
    };
    format!("state dropped: {}", dropped.iter().map(state_text).collect::<Vec<_>>().join(", "))
}

/// The changes that an update would make: a line, and one for each object.
fn dry_run_summary(applied: &Applied) -> String {
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
    if !applied.dropped.is_empty() {
        text.push_str(&format!("  {}\n", dropped_line(&applied.dropped)));
    }
    applied.names.iter().for_each(|name| text.push_str(&format!("  {}\n", name_line(name))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who reads that all calls end on the old version would wait for a stream that has already moved.
    #[test]
    fn apply_summary_lists_ends_and_losses() {
        let state = |what: &str, rows| Dropped { what: what.to_owned(), rows };
        let quiet = Applied { version: 2, ..Applied::default() };
        let expected = "version 2 live in 0.0 ms, no call is left on version 1\n  \
                        check 0.0 ms, compile 0.0 ms, pause of a worker 0 us at most";
        assert_eq!(summary(&quiet, "  "), expected);
        let dropped = vec![state("table shop.e.t", Some(1_200)), state("var shop.e.v", None)];
        let busy = summary(&Applied { calls_in_flight: 3, dropped, ..quiet }, "  ");
        let expected = "3 calls in flight end on version 1;\n  \
                        streams move at their next message where the elements are the same\n  check";
        assert!(busy.contains(expected), "{busy}");
        assert!(busy.ends_with("\n  state dropped: table shop.e.t (1,200 rows), var shop.e.v"), "{busy}");
    }
}
