//! Log lines of changes: the version, the client, the changes, and the dropped state.

use super::Refusal;
use super::names::log_reports;
use crate::log::{Level, Log};
use serde_json::json;
use weft_api::{Applied, ChangeKind};

/// The number of changes in a line; it counts the others.
const CHANGES_MAX: usize = 8;
/// The number of characters of the client's name for itself.
const BY_MAX: usize = 64;

/// Logs the outcome of a change to the program in `root`; `by` is the client's name.
pub(super) fn log_outcome(log: &Log, outcome: &Result<Applied, Refusal>, root: &str, by: &str) {
    let by: String = by.chars().take(BY_MAX).collect();
    let by = if by.is_empty() { "the admin endpoint" } else { &by };
    match outcome {
        Ok(applied) => {
            let mut text = format!("version {} live, {root}, by {by}: {}", applied.version, changes(applied));
            for state in &applied.dropped {
                let rows = state
                    .rows
                    .map_or(String::new(), |n| format!(" ({})", weft_control::show::count(n, "row")));
                text.push_str(&format!("; dropped {}{rows}", state.what));
            }
            let fields = [
                ("version", json!(applied.version)),
                ("by", json!(by)),
                ("program", json!(root)),
                ("changes", json!(applied.changes)),
                ("dropped", json!(applied.dropped)),
                ("pause_us", json!(applied.pause_us)),
            ];
            log.event(Level::Info, "apply", &text, &fields);
            log_reports(log, &applied.names);
        }
        Err(Refusal::Refused(refused)) => {
            // The error and its location.
            let why: Vec<&str> = refused.text.lines().take(2).map(str::trim).collect();
            let text = format!(
                "{root} not applied, by {by}; version {} goes on: {}",
                refused.version,
                why.join(" ")
            );
            let fields = [
                ("version", json!(refused.version)),
                ("by", json!(by)),
                ("program", json!(root)),
                ("at_fault", json!(refused.at_fault)),
                ("diagnostics", refused.diagnostics.clone()),
            ];
            log.event(Level::Warn, "refuse", &text, &fields);
        }
        Err(Refusal::Stopping) => {}
    }
}

/// The changes of an applied program in a line, at most [`CHANGES_MAX`] of them.
fn changes(applied: &Applied) -> String {
    if applied.changes.is_empty() {
        return "no change but places and comments".to_owned();
    }
    let changes_text = applied.changes.iter().take(CHANGES_MAX).map(|change| {
        let kind = match change.kind {
            ChangeKind::New => "new",
            ChangeKind::Changed => "changed",
            ChangeKind::Gone => "gone",
        };
        format!("{kind} {}", change.what)
    });
    let mut text = changes_text.collect::<Vec<_>>().join(", ");
    if applied.changes.len() > CHANGES_MAX {
        text.push_str(&format!(", and {} more", applied.changes.len() - CHANGES_MAX));
    }
    text
}
