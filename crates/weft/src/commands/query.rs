//! `weft query`

use super::{count, grouped};
use crate::cli::{Output, QueryArgs};
use crate::client::{Client, Outcome};
use crate::fault::Fault;
use crate::source::{FILE_BYTES_MAX, read_text};
use crate::stderr;
use crate::stdout;
use crate::table::{Align, Table};
use std::fmt::Write as _;
use weft_api::{QueryRequest, QueryResult, Refused, TableStatus};

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
            // As data they are in the answer.
            if args.output == Output::Table {
                answers.iter().for_each(|answer| stderr::print(&answer.warnings));
            }
            stdout::print(&match args.output {
                Output::Json => line_of(&answers),
                Output::Table => answers.iter().map(told).collect::<Vec<_>>().join("\n"),
            })
        }
        Outcome::Refused(refused) => Err(refuse(&refused, args.output == Output::Json)),
    }
}

/// Tells why nothing was changed: as an object on standard output, or to a person.
pub(crate) fn refuse(refused: &Refused, as_json: bool) -> Fault {
    if as_json {
        return stdout::print(&line_of(refused)).err().unwrap_or(Fault::told(refused.at_fault));
    }
    stderr::print(&refused.text);
    Fault::told(refused.at_fault)
}

/// Data as a line of JSON.
pub(super) fn line_of(data: &impl serde::Serialize) -> String {
    serde_json::to_string(data).expect("it is data") + "\n"
}

/// An answer for a person.
pub(super) fn told(answer: &QueryResult) -> String {
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

/// `3 rows inserted, 1 updated; visible in 0.4 ms`
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

fn listed(tables: &[TableStatus]) -> String {
    let mut table = Table::new(&[
        ("table", Align::Left),
        ("filled by", Align::Left),
        ("rows", Align::Right),
        ("max", Align::Right),
        ("KiB", Align::Right),
        ("matched as", Align::Left),
    ]);
    for told in tables {
        table.row(vec![
            told.name.clone(),
            told.filled_by.clone(),
            grouped(told.rows),
            grouped(told.rows_max),
            grouped(told.bytes >> 10),
            told.matched.join("; "),
        ]);
    }
    if tables.is_empty() {
        return "no tables\n".to_owned();
    }
    let untold = tables.iter().filter(|told| told.evicted_untold > 0).map(|told| {
        let n = grouped(told.evicted_untold);
        format!("{}: ON EVICT was not told of {n} rows, which had no place to wait\n", told.name)
    });
    let expired = tables
        .iter()
        .filter(|told| told.expired > 0)
        .map(|told| format!("{}: its TTL took out {} rows\n", told.name, grouped(told.expired)));
    table.render() + &untold.chain(expired).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who bills by ON EVICT must hear of rows that were lost to it.
    #[test]
    fn a_table_says_what_its_handler_was_not_told_of() {
        let told = TableStatus { name: "edge.export.flows".to_owned(), ..TableStatus::default() };
        assert!(!listed(std::slice::from_ref(&told)).contains("ON EVICT"));
        let text = listed(&[TableStatus { evicted_untold: 1_200, ..told }]);
        let line = "edge.export.flows: ON EVICT was not told of 1,200 rows, which had no place to wait\n";
        assert!(text.ends_with(line), "{text}");
    }

    /// Who changes rows wants to know of each whether it was there.
    #[test]
    fn what_was_changed_is_told_by_kind() {
        let answer = QueryResult { inserted: 1_200, deleted: 1, visible_ms: 0.42, ..QueryResult::default() };
        assert_eq!(changed(&answer), "1,200 rows inserted, 1 deleted; visible in 0.4 ms");
        assert_eq!(changed(&QueryResult::default()), "no row changed; visible in 0.0 ms");
        let columns = vec!["rank".to_owned(), "dst".to_owned()];
        let rows = vec![vec![10.into(), "10.0.0.0/8".into()], vec![200.into(), serde_json::Value::Null]];
        let answer = QueryResult { columns, rows, ..QueryResult::default() };
        assert_eq!(told(&answer), "rank  dst\n  10  10.0.0.0/8\n 200  -\n2 rows\n");
    }
}
