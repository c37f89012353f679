//! `weft load`: inserts the rows of a file into a node's table.

use super::query::{changed, line_of, refuse};
use crate::cli::LoadArgs;
use crate::client::{Client, Outcome};
use crate::fault::Fault;
use crate::progress::Progress;
use crate::source::read_text;
use crate::stderr;
use crate::stdout;
use std::time::Instant;
use weft_api::{QueryResult, RowsRequest};

/// The largest list, in bytes: it is held in memory.
const LIST_BYTES_MAX: u64 = 1 << 30;
/// The number of rows in a request: small enough that other changes need not wait long.
const ROWS_AT_ONCE: usize = 2_000;

/// Runs `weft load`.
pub(crate) fn run(args: &LoadArgs) -> Result<(), Fault> {
    let text = read_text(&args.file, LIST_BYTES_MAX)?;
    let at_fault = |(line, column, why): (usize, usize, &str)| {
        Fault::Input(format!("{}:{line}:{column}: {why}; no row was put in", args.file))
    };
    // Spreadsheets put a byte order mark first.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut rows = parse(text).map_err(at_fault)?.into_iter();
    let Some(columns) = rows.next() else {
        return Err(Fault::Input(format!("{}: there is no first line that names the columns", args.file)));
    };
    let (n_rows, mut progress) = (rows.len() as u64, Progress::of("rows", Instant::now()));
    let client = Client::new(&args.admin)?;
    let mut total = QueryResult::default();
    let mut first = 0;
    loop {
        let rows: Vec<Vec<String>> = rows.by_ref().take(ROWS_AT_ONCE).collect();
        if rows.is_empty() && first > 0 {
            break;
        }
        let n = rows.len() as u64;
        let columns = columns.clone();
        let request =
            RowsRequest { table: args.table.clone(), columns, rows, or_replace: args.replace, first };
        match client.put_rows(&request)? {
            Outcome::Done(answer) => {
                total.inserted += answer.inserted;
                total.updated += answer.updated;
                total.visible_ms = total.visible_ms.max(answer.visible_ms);
            }
            Outcome::Refused(mut refused) => {
                drop(progress);
                refused.rows_in += first;
                let fault = refuse(&refused, args.json);
                if refused.rows_in > 0 && !args.json {
                    let before = match refused.rows_in {
                        1 => "row before is".to_owned(),
                        n => format!("{n} rows before are"),
                    };
                    stderr::line(format_args!(
                        "the {before} in; with `--replace` the list may be loaded again over what is in"
                    ));
                }
                return Err(fault);
            }
        }
        first += n;
        progress.show(first, (first, Some(n_rows)));
        if n == 0 {
            break;
        }
    }
    drop(progress);
    stdout::print(&match args.json {
        true => line_of(&total),
        false => format!("{}: {}\n", args.table, changed(&total)),
    })
}

/// Parses a list of rows by RFC 4180, with each row on one line; skips empty lines, and lines that begin with `#`. An
/// error has its line and column, from 1, and a text.
fn parse(text: &str) -> Result<Vec<Vec<String>>, (usize, usize, &'static str)> {
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (mut row, mut rest) = (Vec::new(), line);
        loop {
            let column = line.len() - rest.len() + 1;
            if let Some(quoted) = rest.strip_prefix('"') {
                let mut cell = String::new();
                let mut inside = quoted;
                rest = loop {
                    let Some((part, behind)) = inside.split_once('"') else {
                        return Err((at + 1, column, "a quote is not closed on its line"));
                    };
                    cell.push_str(part);
                    match behind.strip_prefix('"') {
                        Some(more) => {
                            cell.push('"');
                            inside = more;
                        }
                        None => break behind,
                    }
                };
                row.push(cell);
            } else {
                let end = rest.find(',').unwrap_or(rest.len());
                row.push(rest[..end].trim().to_owned());
                rest = &rest[end..];
            }
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None if rest.is_empty() => break,
                None => {
                    let column = line.len() - rest.len() + 1;
                    return Err((at + 1, column, "a comma is to follow a quoted value"));
                }
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrongly parsed list would fill a firewall with other rules.
    #[test]
    fn csv_parses_by_rfc_4180() {
        let text = "rank,name\n# all\n1, a \n\n2,\"b, \"\"c\"\"\"\n3,\n";
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["rank", "name"]), row(["1", "a"]), row(["2", "b, \"c\""]), row(["3", ""])];
        assert_eq!(parse(text).expect("it is a list"), rows);
        assert_eq!(parse("a\n1,\"b"), Err((2, 3, "a quote is not closed on its line")));
        assert_eq!(parse("\"a\"b"), Err((1, 4, "a comma is to follow a quoted value")));
    }
}
