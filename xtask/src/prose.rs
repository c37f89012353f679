//! `cargo xtask prose`: measures how plain the comments are, and how long the documents.

use std::collections::BTreeMap;

use crate::book;
use crate::tidy::rust::Source;
use crate::tidy::{self, File, glossary, prose};
use crate::workspace::Workspace;

/// Words whose share of the comment lines is measured, by the column that shows it.
const COLUMNS: [(&str, &[&str]); 3] =
    [("what", &["what"]), ("nobody...", &["nobody", "somebody", "whoever"]), ("behind", &["behind"])];

/// Pages that `cargo xtask book` writes and [`book::pages`] does not give, because they need the binary.
const MADE_BY_THE_BINARY: &[&str] = &[book::COMMAND_LINE];

/// Prints the figures; `--list` prints each old name and each sign.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<bool, String> {
    let files = tidy::read_all(&workspace.root)?;
    let sources = tidy::sources(&files);
    match args.first().map(String::as_str) {
        None => {
            let made: Vec<String> = book::pages(&workspace.root)?.into_iter().map(|(path, _)| path).collect();
            print!("{}{}", comments(&sources), documents(&files, &made));
        }
        Some("--list") => {
            for found in sources.iter().flat_map(|source| [glossary::old_names(source), prose::signs(source)])
            {
                found.iter().for_each(|finding| println!("{finding}"));
            }
        }
        Some(other) => return Err(format!("`{other}` is not an option: `--list`")),
    }
    Ok(true)
}

/// The figures of a crate.
#[derive(Default)]
struct Row {
    comment_lines: usize,
    /// Lines with a word of each column.
    columns: [usize; COLUMNS.len()],
    signs: usize,
    old_names: usize,
}

/// A line per crate: its comment lines, the share of each column, and the faults by the rules of `tidy`.
fn comments(sources: &[Source<'_>]) -> String {
    let mut crates: BTreeMap<&str, Row> = BTreeMap::new();
    for source in sources {
        for package in [prose::package(source.path), "all"] {
            let row = crates.entry(package).or_default();
            for (_, line) in prose::comment_lines(source) {
                row.comment_lines += 1;
                for (n, (_, words)) in row.columns.iter_mut().zip(COLUMNS) {
                    *n += usize::from(words.iter().any(|word| prose::has(line, word)));
                }
            }
            row.signs += prose::signs(source).len();
            row.old_names += glossary::old_names(source).len();
        }
    }
    let total = crates.remove("all").map(|row| ("all", row));
    let mut text = format!("{:<14}{:>14}", "", "comment lines");
    for (name, _) in COLUMNS {
        text += &format!("{name:>11}");
    }
    text += &format!("{:>11}{:>11}\n", "signs", "old names");
    for (package, row) in crates.into_iter().chain(total) {
        text += &format!("{package:<14}{:>14}", row.comment_lines);
        for n in row.columns.into_iter().chain([row.signs]) {
            text += &format!("{:>11}", percent(n, row.comment_lines));
        }
        text += &format!("{:>11}\n", row.old_names);
    }
    text
}

/// The words of the documents that are written by hand.
fn documents(files: &[File], made: &[String]) -> String {
    let is_by_hand = |file: &&File| {
        file.path.starts_with("docs/")
            && file.path.ends_with(".md")
            && !made.contains(&file.path)
            && !MADE_BY_THE_BINARY.contains(&file.path.as_str())
    };
    let by_hand: Vec<usize> =
        files.iter().filter(is_by_hand).map(|file| file.text.split_whitespace().count()).collect();
    format!(
        "\ndocs/ without generated pages: {} words in {} files\n",
        by_hand.iter().sum::<usize>(),
        by_hand.len()
    )
}

fn percent(n: usize, of: usize) -> String {
    format!("{:.2} %", 100.0 * n as f64 / of.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_of_comment_lines() {
        // If this failed, a crate with much code would look plainer than it is.
        let sources = [Source::new("crates/a/src/b.rs", "// what is behind\n// a\nlet what = 1;\n")];
        let text = comments(&sources);
        let row: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(row[..4], ["a", "2", "50.00", "%"], "{text}");
    }

    #[test]
    fn generated_page_does_not_count() {
        // If this failed, a longer library would look like longer documents.
        let file = |path: &str| File { path: path.to_owned(), text: "two words\n".to_owned() };
        let files = [file("docs/a.md"), file("docs/made.md"), file(book::COMMAND_LINE), file("README.md")];
        assert!(documents(&files, &["docs/made.md".to_owned()]).contains("2 words in 1 files"));
    }
}
