//! Generated pages of the book: they cannot disagree with their sources.
//!
//! | page | source |
//! | --- | --- |
//! | `docs/src/library/README.md` | the summaries of all library files |
//! | `docs/src/library/NAME.md` | the header of NAME.weft in the library, and `benches/instructions.json` |
//! | `docs/src/SUMMARY.md`, after the pages on the whole library | the names of all library files |
//! | `docs/src/library/lines.md` | the library, the twins of its elements, and published figures |
//! | `docs/src/reference/diagnostics.md` | the table of codes in `weft-lang` |
//! | `docs/src/reference/functions.md` | the table of functions in `weft-lang` |
//! | `docs/src/reference/command-line.md` | the output of `weft man --markdown` |
//! | syntax files of editors | the tables of words: see [`crate::editors`] |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compare::{self, Counts};
use crate::library_folder::library_folder;
use crate::workspace::{Workspace, cargo};

const CODES: &str = "crates/weft-lang/src/diagnostic/code.rs";
const FUNCTIONS: &str = "crates/weft-lang/src/check/functions.rs";
const SUMMARY: &str = "docs/src/SUMMARY.md";
/// The page that the binary `weft` writes.
pub(crate) const COMMAND_LINE: &str = "docs/src/reference/command-line.md";

/// A page: its path from the workspace root, and its text.
pub(crate) type Page = (String, String);

/// Writes all pages; returns false if `weft` does not build.
pub(crate) fn run(workspace: &Workspace) -> Result<bool, String> {
    // Write the pages that need no binary first, so that they exist even if it does not build.
    let pages = pages(&workspace.root)?;
    write(workspace, &pages)?;
    let build = Command::new(cargo())
        .args(["build", "-q", "--locked", "-p", "weft"])
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !build.success() {
        return Ok(false);
    }
    let weft = workspace.target.join("debug/weft");
    let man = Command::new(&weft).args(["man", "--markdown"]).env("COLUMNS", "110").output();
    let man = man.map_err(|error| format!("cannot start {}: {error}", weft.display()))?;
    write(workspace, &[(COMMAND_LINE.to_owned(), String::from_utf8_lossy(&man.stdout).into_owned())])?;
    println!("book: {} pages written", pages.len() + 1);
    Ok(true)
}

fn write(workspace: &Workspace, pages: &[Page]) -> Result<(), String> {
    for (path, text) in pages {
        let path = workspace.root.join(path);
        let describe = |error| format!("{}: {error}", path.display());
        fs::create_dir_all(path.parent().expect("a page is in a folder")).map_err(describe)?;
        fs::write(&path, text).map_err(describe)?;
    }
    Ok(())
}

/// The pages that are made from text alone; `tidy` compares them with the files.
pub(crate) fn pages(root: &Path) -> Result<Vec<Page>, String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut pages = vec![
        ("docs/src/reference/diagnostics.md".to_owned(), diagnostics(&read(&root.join(CODES))?)),
        ("docs/src/reference/functions.md".to_owned(), functions(&read(&root.join(FUNCTIONS))?)),
    ];
    let library = library(root)?;
    pages.push(("docs/src/library/README.md".to_owned(), index(&library)));
    pages.push((SUMMARY.to_owned(), contents(&read(&root.join(SUMMARY))?, &library)));
    pages.push(("docs/src/library/lines.md".to_owned(), crate::lines::page(root, &library)));
    let counts = compare::stored(root)?;
    for (import, text) in &library {
        let name = stem(import);
        let cost = cost(name, import, text, &counts);
        pages.push((format!("docs/src/library/{name}.md"), manual(name, import, text, &cost)));
    }
    pages.extend(crate::editors::pages(root)?);
    Ok(pages)
}

/// The files of the library, under the names that an `IMPORT` has for them, independent of the folder's name.
pub(crate) fn library(root: &Path) -> Result<Vec<(String, String)>, String> {
    let folder = library_folder(root);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let inside = path.strip_prefix(&folder).expect("it was found there");
        Ok((format!("library/{}", inside.display()), text))
    };
    programs(&folder)?.into_iter().map(read).collect()
}

fn programs(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let describe = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(describe)?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(describe)?.path();
        if path.is_dir() {
            found.extend(programs(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "weft") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The contents of the book: the written part, and the library's pages after the page on its lines.
fn contents(written: &str, library: &[(String, String)]) -> String {
    const LAST: &str = "(library/lines.md)\n";
    let mut names: Vec<&str> = library.iter().map(|(import, _)| stem(import)).collect();
    names.sort_unstable();
    let (front, behind) = written.split_once(LAST).unwrap_or((written, ""));
    let behind = behind.find("\n#").map_or("", |at| &behind[at..]);
    let names: String = names.iter().map(|name| format!("- [{name}](library/{name}.md)\n")).collect();
    format!("{front}{LAST}{names}{behind}")
}

/// The list of all library files, by folder: the summary and the number of lines of each.
fn index(library: &[(String, String)]) -> String {
    let mut page = String::from(
        "# The library\n\nThe library comes with Weft and is written in Weft, without privileges: `IMPORT` a file, \
         bind its columns to your fields where their names differ, or copy and change it. *Lines* counts program \
         lines, without the manual page, comments and blank lines.\n",
    );
    let mut folder = "";
    for (import, text) in library {
        let found = import.split('/').nth(1).unwrap_or_default();
        if found != folder {
            folder = found;
            page += &format!(
                "\n## {}\n\n| name | what it does | lines |\n| --- | --- | ---: |\n",
                capitalized(folder)
            );
        }
        let name = stem(import);
        page +=
            &format!("| [{name}]({name}.md) | {} | {} |\n", summary(text).replace('|', "\\|"), lines(text));
    }
    let mut sizes: Vec<usize> = library.iter().map(|(_, text)| lines(text)).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or_default();
    page + &format!("\n{} files, with {median} lines in the median.\n", library.len())
}

/// The name of a library file.
fn stem(import: &str) -> &str {
    import.rsplit('/').next().and_then(|file| file.strip_suffix(".weft")).unwrap_or(import)
}

/// The summary in a file's header, after its name.
fn summary(text: &str) -> &str {
    let mut header = text.lines().map_while(|line| line.strip_prefix("--"));
    let name = header.find(|line| line.trim() == "NAME").and_then(|_| header.next()).unwrap_or_default();
    name.split_once(": ").map_or("", |(_, summary)| summary.trim())
}

/// The number of program lines: neither empty nor comments.
fn lines(text: &str) -> usize {
    let is_program = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
    text.lines().filter(is_program).count()
}

/// The costs of a library file by the stored counts: a section of its page, or nothing.
fn cost(name: &str, import: &str, text: &str, counts: &Counts) -> String {
    let is_queue = import.contains("/queues/");
    let own = if is_queue { format!("queue {name}") } else { name.to_owned() };
    // A benchmark has the name of its subject, optionally followed by a number.
    let is_of_it = |case: &str| {
        let rest = case.strip_prefix(&own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(", ") || rest.starts_with(" of "))
            && !case.contains(" and ")
    };
    let found: Vec<String> = counts
        .iter()
        .filter(|(case, _)| is_of_it(case))
        .map(|(case, count)| format!("{:<24}{:.0}\n", case.trim_start_matches("queue "), count))
        .collect();
    if found.is_empty() {
        return String::new();
    }
    let what = match (is_queue, text.contains("ON rpc")) {
        (true, _) => "a packet in and out".to_owned(),
        (false, true) => "a call, beyond a call without elements".to_owned(),
        (false, false) => {
            let none = counts.iter().find(|(case, _)| *case == "none").map_or(0.0, |(_, count)| *count);
            format!(
                "a packet of 64 bytes, {none:.0} of them for the node and the benchmark's source and sink"
            )
        }
    };
    format!(
        "\n## Cost\n\nInstructions of {what} (`cargo xtask bench-compare`). \
         `weft check --cost` gives the worst case of a program.\n\n```text\n{}```\n",
        found.concat()
    )
}

/// The manual page of an element: a section per heading of its header, its costs, and its text.
fn manual(name: &str, import: &str, text: &str, cost: &str) -> String {
    let header: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("--")).collect();
    let mut page = format!("# {name}\n\n```sql\nIMPORT '{import}';\n```\n");
    let (mut is_open, mut is_prose) = (false, false);
    for line in &header {
        let is_heading = line.len() > 1 && !line.starts_with("  ");
        if is_heading {
            close(&mut page, &mut is_open);
            is_prose = line.trim() == "DESCRIPTION";
            page.truncate(page.trim_end().len());
            page += &format!("\n\n## {}\n\n", capitalized(line.trim()));
        } else if line.trim().is_empty() {
            close(&mut page, &mut is_open);
            if is_prose && !page.ends_with("\n\n") {
                page += "\n";
            }
        } else {
            // Text with more indentation than a description is not prose.
            let is_fenced = !is_prose || line.starts_with("    ");
            if is_fenced && !is_open {
                page += "```text\n";
                is_open = true;
            }
            page += line.trim_start_matches(' ');
            page += "\n";
        }
    }
    close(&mut page, &mut is_open);
    let body: Vec<&str> = text.lines().skip(header.len()).collect();
    page + cost + &format!("\n## Text\n\n```sql\n{}\n```\n", body.join("\n").trim())
}

/// Ends the block of a section, if one is open.
fn close(page: &mut String, is_open: &mut bool) {
    if std::mem::take(is_open) {
        *page += "```\n";
    }
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + &rest.to_lowercase()
}

/// The table of codes, with a heading for each range.
fn diagnostics(source: &str) -> String {
    let mut page = String::from(
        "# Diagnostics\n\nEach diagnostic has a code, a place, a sentence, and where there is one a change that \
         would work. A code never changes its meaning. `weft check --json` gives the same as data.\n",
    );
    for line in source.lines() {
        let line = line.trim();
        if let Some((range, what)) = line.strip_prefix("// W").and_then(|rest| rest.split_once(": ")) {
            let what = what.trim_end_matches('.');
            page += &format!("\n## W{range}: {what}\n\n| code | what it says |\n| --- | --- |\n");
        } else if let [_, code, _, title, _] = line.split('"').collect::<Vec<_>>()[..]
            && is_code(code)
        {
            page += &format!("| `{code}` | {title} |\n");
        }
    }
    page
}

fn is_code(text: &str) -> bool {
    text.len() == 5 && text.starts_with('W') && text[1..].bytes().all(|byte| byte.is_ascii_digit())
}

/// The table of functions.
fn functions(source: &str) -> String {
    let mut page = String::from(
        "# Functions\n\nNames are in lower case here; case does not matter in a program. A function gives NULL if \
         an argument is NULL, unless it says otherwise. One marked *can fail* may give an error value even if its \
         arguments are not errors.\n\n| function | what it gives | |\n| --- | --- | --- |\n",
    );
    for (text, doc, rest) in element_functions(source) {
        let can_fail = if rest.ends_with("fallible()") { "can fail" } else { "" };
        page += &format!("| `{text}` | {} | {can_fail} |\n", doc.replace('|', "\\|"));
    }
    page + "\n`count(t) I64` is the number of rows of a table. Over a `SCAN` there are the aggregates `count(*)`, \
            `sum(x)`, `min(x)`, `max(x)`, `avg(x)`, `argmin(result, by)` and `argmax(result, by)`: see \
            [statements](statements.md#scan).\n\nCompression, encryption, patterns, JSON, tokens and more: [native \
            functions](native-functions.md).\n"
}

/// The functions of elements in the table: signature, description, and the rest of the row.
pub(crate) fn element_functions(source: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let table = source.rsplit_once("functions! {").map_or(source, |(_, table)| table);
    // A row may be broken after its second text; it ends with a semicolon at a line's end.
    let rows = table.split(";\n").map(str::trim_start).filter(|row| row.starts_with('"'));
    rows.filter_map(|row| match row.split('"').collect::<Vec<_>>()[..] {
        [_, text, _, doc, rest] if rest.contains(" element") => Some((text, doc, rest)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_page_has_header_and_text() {
        // If this failed, the book could omit a part of an element's header.
        let text = "-- NAME\n--   a: does\n--\n-- DESCRIPTION\n--   It does.\n--\n-- TABLES\n--   none\n\
                    CREATE ELEMENT a ON rpc AS\nEND;\n";
        let expected = "# a\n\n```sql\nIMPORT 'library/a.weft';\n```\n\n## Name\n\n```text\na: does\n```\n\n\
                        ## Description\n\nIt does.\n\n## Tables\n\n```text\nnone\n```\n\n## Text\n\n\
                        ```sql\nCREATE ELEMENT a ON rpc AS\nEND;\n```\n";
        assert_eq!(manual("a", "library/a.weft", text, ""), expected);
    }

    #[test]
    fn page_has_its_own_costs() {
        let counts =
            [("ab", 1.0), ("a, 1k", 1_234.4), ("a of 200", 2.0), ("a of 200 and b", 3.0), ("queue a", 4.0)];
        let counts: Counts = counts.map(|(case, count)| (case.to_owned(), count)).into();
        let table = cost("a", "library/elements/a.weft", "CREATE ELEMENT a ON ip AS", &counts);
        let rows: Vec<&str> = table.lines().skip_while(|line| *line != "```text").skip(1).collect();
        assert_eq!(rows, ["a of 200                2", "a, 1k                   1234", "```"]);
        assert!(cost("a", "library/queues/a.weft", "", &counts).contains("a                       4\n"));
        assert_eq!(cost("c", "library/elements/c.weft", "", &counts), "");
    }

    #[test]
    fn index_has_every_file() {
        // If this failed, readers of the index would miss an element.
        let text = "-- NAME\n--   a: does | this\n--\n-- TABLES\n--   none\n\
                    CREATE ELEMENT a ON rpc AS\n\n  -- why\nEND;\n";
        let files = ["library/elements/a.weft", "library/filters/b.weft"]
            .map(|path| (path.to_owned(), text.to_owned()));
        let page = index(&files);
        assert!(page.contains("## Elements\n\n| name |"), "{page}");
        assert!(page.contains("| [a](a.md) | does \\| this | 2 |\n\n## Filters\n"), "{page}");
        assert!(
            page.ends_with("| [b](b.md) | does \\| this | 2 |\n\n2 files, with 2 lines in the median.\n"),
            "{page}"
        );
    }

    #[test]
    fn contents_have_library_pages() {
        // If this failed, a page would exist that the book does not link.
        let files = ["library/protocols/b.weft", "library/elements/c.weft", "library/filters/a.weft"];
        let files = files.map(|path| (path.to_owned(), String::new()));
        let written = "# S\n- [Lines](library/lines.md)\n- [old](library/old.md)\n\n# More\n- [x](x.md)\n";
        let wanted = "# S\n- [Lines](library/lines.md)\n- [a](library/a.md)\n- [b](library/b.md)\n\
                      - [c](library/c.md)\n\n# More\n- [x](x.md)\n";
        assert_eq!(contents(written, &files), wanted);
        assert_eq!(contents(wanted, &files), wanted);
    }

    #[test]
    fn codes_and_functions_have_rows() {
        // If this failed, the reference would lack diagnostics of the compiler.
        let codes =
            "    // W00xx: what is read at all.\n    TOO_LARGE = \"W0001\", \"a file is too large\";\n";
        assert!(diagnostics(codes).ends_with("| `W0001` | a file is too large |\n"));
        let row = "    \"abs(T) T\" \"the magnitude\" S::Abs, element(F::Abs) fallible();\n";
        assert!(functions(row).contains("| `abs(T) T` | the magnitude | can fail |\n"));
        let broken = "functions! {\n    \"a(T) T\" \"a; or b\"\n        S::Abs, element(F::Abs);\n}\n";
        assert!(functions(broken).contains("| `a(T) T` | a; or b |  |\n"));
    }
}
