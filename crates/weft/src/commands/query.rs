//! `weft query`: executes statements on a node's tables.

use crate::cli::{Output, QueryArgs};
use crate::client::{Client, Outcome};
use crate::fault::Fault;
use crate::source::{FILE_BYTES_MAX, read_text};
use crate::stderr;
use crate::stdout;
use std::fmt::Write as _;
use weft_api::{QueryRequest, QueryResult, Refused, TableStatus};
use weft_control::show::{Align, Table};
use weft_control::show::{count, grouped};

/// Runs `weft query`: prints the answers, or without a statement the list of tables.
pub(crate) fn run(args: &QueryArgs) -> Result<(), Fault> {
    let text = match (&args.text, &args.file) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(path)) => Some(read_text(path, FILE_BYTES_MAX)?),
        (None, None) => None,
    };
    let client = Client::new(&args.admin)?;
    let Some(text) = text else {
        let tables = client.tables()?;
        return stdout::print(&match args.output {
            Output::Json => line_of(&tables),
            Output::Table => listed(&tables),
        });
    };
    match client.query(&QueryRequest { text })? {
        Outcome::Done(answers) => {
            // As JSON they are in the answer.
            if args.output == Output::Table {
                answers.iter().for_each(|answer| stderr::print(&answer.warnings));
            }
            stdout::print(&match args.output {
                Output::Json => line_of(&answers),
                Output::Table => answers.iter().map(answer_text).collect::<Vec<_>>().join("\n"),
            })
        }
        Outcome::Refused(refused) => Err(refuse(&refused, args.output == Output::Json)),
    }
}

/// Reports a refused change: as an object on standard output, or as text.
pub(crate) fn refuse(refused: &Refused, as_json: bool) -> Fault {
    if as_json {
        return stdout::print(&line_of(refused)).err().unwrap_or(Fault::reported(refused.at_fault));
    }
    stderr::print(&refused.text);
    Fault::reported(refused.at_fault)
}

/// Data as a line of JSON.
pub(super) fn line_of(data: &impl serde::Serialize) -> String {
    serde_json::to_string(data).expect("it is data") + "\n"
}

/// Formats an answer as text.
pub(super) fn answer_text(answer: &QueryResult) -> String {
    if answer.columns.is_empty() {
        return format!("{}\n", changed(answer));
    }
    let is_number = |at: usize| answer.rows.iter().all(|row| row[at].is_number() || row[at].is_null());
    let columns: Vec<(&str, Align)> = answer
        .columns
        .iter()
        .enumerate()
        .map(|(at, name)| (name.as_str(), if is_number(at) { Align::Right } else { Align::Left }))
        .collect();
    let mut table = Table::new(&columns);
    for row in &answer.rows {
        let cell = |value: &serde_json::Value| match value {
            serde_json::Value::Null => "-".to_owned(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.row(row.iter().map(cell).collect());
    }
    let mut text = table.render();
    let n = count(answer.rows.len() as u64, "row");
    let _ = match answer.is_cut {
        true => writeln!(
            text,
            "{n}, the most that one answer has; there are more: ask for some of them with WHERE"
        ),
        false => writeln!(text, "{n}"),
    };
    text
}

/// Formats what a statement has changed: `3 rows inserted, 1 updated; visible in 0.4 ms`.
pub(super) fn changed(answer: &QueryResult) -> String {
    let done = [(answer.inserted, "inserted"), (answer.updated, "updated"), (answer.deleted, "deleted")];
    let done: Vec<(u64, &str)> = done.into_iter().filter(|(n, _)| *n > 0).collect();
    let text = match done.split_first() {
        None => "no row changed".to_owned(),
        Some(((n, what), others)) => {
            let mut text = format!("{} {what}", count(*n, "row"));
            for (n, what) in others {
                let _ = write!(text, ", {} {what}", grouped(*n));
            }
            text
        }
    };
    format!("{text}; visible in {:.1} ms", answer.visible_ms)
}

/// The tables of the node as text.
fn listed(tables: &[TableStatus]) -> String {
    let mut table = Table::new(&[
        ("table", Align::Left),
        ("filled by", Align::Left),
        ("rows", Align::Right),
        ("max", Align::Right),
        ("KiB", Align::Right),
        ("matched as", Align::Left),
    ]);
    for one in tables {
        table.row(vec![
            one.name.clone(),
            one.filled_by.clone(),
            grouped(one.rows),
            grouped(one.rows_max),
            grouped(one.bytes >> 10),
            one.matched.join("; "),
        ]);
    }
    if tables.is_empty() {
        return "no tables\n".to_owned();
    }
    let untold = tables.iter().filter(|one| one.evicted_untold > 0).map(|one| {
        let n = grouped(one.evicted_untold);
        format!("{}: ON EVICT was not told of {n} rows, which had no place to wait\n", one.name)
    });
    let expired = tables
        .iter()
        .filter(|one| one.expired > 0)
        .map(|one| format!("{}: its TTL took out {} rows\n", one.name, grouped(one.expired)));
    table.render() + &untold.chain(expired).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator who bills by ON EVICT must see evictions without a report.
    #[test]
    fn table_shows_unreported_evictions() {
        let one = TableStatus { name: "edge.export.flows".to_owned(), ..TableStatus::default() };
        assert!(!listed(std::slice::from_ref(&one)).contains("ON EVICT"));
        let text = listed(&[TableStatus { evicted_untold: 1_200, ..one }]);
        let line = "edge.export.flows: ON EVICT was not told of 1,200 rows, which had no place to wait\n";
        assert!(text.ends_with(line), "{text}");
    }

    /// A user who changes rows must see how many existed before.
    #[test]
    fn changes_are_counted_by_kind() {
        let answer = QueryResult { inserted: 1_200, deleted: 1, visible_ms: 0.42, ..QueryResult::default() };
        assert_eq!(changed(&answer), "1,200 rows inserted, 1 deleted; visible in 0.4 ms");
        assert_eq!(changed(&QueryResult::default()), "no row changed; visible in 0.0 ms");
        let columns = vec!["rank".to_owned(), "dst".to_owned()];
        let rows = vec![vec![10.into(), "10.0.0.0/8".into()], vec![200.into(), serde_json::Value::Null]];
        let answer = QueryResult { columns, rows, ..QueryResult::default() };
        assert_eq!(answer_text(&answer), "rank  dst\n  10  10.0.0.0/8\n 200  -\n2 rows\n");
    }
}
