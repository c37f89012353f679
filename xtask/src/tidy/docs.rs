//! Rules for the documents.

use std::path::Path;

use super::{File, Finding};
use crate::book::Page;

/// The folder of decision records.
const DECISIONS: &str = "docs/decisions/";
/// Decision records; the template is none.
const RECORDS_MAX: usize = 40;
/// Lines of a decision record.
const RECORD_LINES_MAX: usize = 40;

/// Decision records are few and short, have a number each, are named after their title, which is the decision, and are
/// listed in the folder's README. Numbers may have gaps: a page of the design has absorbed those records.
pub(super) fn decisions(files: &[File]) -> Vec<Finding> {
    let list = files.iter().find(|file| file.path == format!("{DECISIONS}README.md"));
    let records: Vec<(&File, &str)> = files
        .iter()
        .filter_map(|file| Some((file, file.path.strip_prefix(DECISIONS)?)))
        .filter(|(_, name)| name.ends_with(".md") && !["README.md", "0000-template.md"].contains(name))
        .collect();
    let mut findings = Vec::new();
    if let Some((file, _)) = records.get(RECORDS_MAX) {
        let text = format!("there are {} records, and {RECORDS_MAX} at most: merge some", records.len());
        findings.push(Finding::new(&file.path, 0, text));
    }
    let mut last = "";
    for (file, name) in &records {
        let mut find = |line, text: String| findings.push(Finding::new(&file.path, line, text));
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|digit| digit.is_ascii_digit()) {
            find(0, "begins with no number of four digits".to_owned());
        } else if number == last {
            find(0, format!("{number} is the number of another record"));
        }
        last = number;
        let heading = file.text.lines().next().unwrap_or_default();
        let title = heading.strip_prefix(&format!("# {number}: ")).unwrap_or_default();
        let expected = format!("{number}-{}.md", slug(title));
        if **name != expected {
            find(1, format!("the heading `# {number}: {title}` makes the name `{expected}`"));
        }
        let lines = file.text.lines().count();
        if lines > RECORD_LINES_MAX {
            find(0, format!("has {lines} lines, and {RECORD_LINES_MAX} at most"));
        }
        if list.is_some_and(|list| !list.text.contains(&format!("[{title}]({name})"))) {
            find(0, "is not listed by its title in the README".to_owned());
        }
    }
    findings
}

/// A title as part of a file name: its words in lower case, with dashes between them.
fn slug(title: &str) -> String {
    let kept: String = title.chars().filter(|c| !matches!(c, '\'' | '`')).collect();
    let words = kept.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Each generated page equals the current output of its generator.
pub(super) fn made_pages(files: &[File], pages: &[Page]) -> Vec<Finding> {
    let is_there = |page: &Page| files.iter().any(|file| (&file.path, &file.text) == (&page.0, &page.1));
    let stale = pages.iter().filter(|page| !is_there(page));
    stale.map(|(path, _)| Finding::new(path, 0, "is out of date: run `cargo xtask book`")).collect()
}

/// Each relative link leads to a file that `exists`, which gets the path from the workspace root.
pub(super) fn links(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let is_dead = |target: &str| {
        let path = target.split('#').next().unwrap_or_default();
        !path.is_empty() && !path.contains(':') && !exists(&folder.join(path))
    };
    prose(file)
        .flat_map(|(number, line)| link_targets(line).into_iter().map(move |target| (number, target)))
        .filter(|(_, target)| is_dead(target))
        .map(|(number, target)| Finding::new(&file.path, number, format!("there is no `{target}`")))
        .collect()
}

/// A fenced block names its language, so that it can be checked and highlighted.
pub(super) fn fences(file: &File) -> Vec<Finding> {
    blocks(file)
        .filter(|block| block.language.is_empty())
        .map(|block| Finding::new(&file.path, block.line, "name the language of the fenced block, or `text`"))
        .collect()
}

/// `make X` and `cargo xtask X` in `sh` blocks are targets and commands that exist.
pub(super) fn commands(file: &File, makefile: &str, known: &[(&str, &str, &str)]) -> Vec<Finding> {
    let is_target = |name: &str| makefile.lines().any(|line| line.starts_with(&format!("{name}:")));
    let is_command = |name: &str| known.iter().any(|(command, _, _)| *command == name);
    let unknown = |line: &str| {
        let words: Vec<&str> = line.trim_start_matches("$ ").split_whitespace().collect();
        match words.as_slice() {
            ["make", name, ..] => !name.contains('=') && !is_target(name),
            ["cargo", "xtask", name, ..] => !is_command(name),
            _ => false,
        }
    };
    blocks(file)
        .filter(|block| matches!(block.language, "sh" | "console"))
        .flat_map(|block| block.lines.into_iter().zip(block.line + 1..))
        .filter(|(line, _)| unknown(line))
        .map(|(line, number)| Finding::new(&file.path, number, format!("`{}` does not exist", line.trim())))
        .collect()
}

/// The `weft` blocks of a document: whole programs that `weft check` must accept. Fragments are `sql` blocks.
pub(super) fn programs(file: &File) -> Vec<(String, String)> {
    let stem = file.path.trim_end_matches(".md").replace('/', "-");
    blocks(file)
        .filter(|block| block.language == "weft")
        .map(|block| (format!("{stem}-line-{}.weft", block.line), block.lines.join("\n") + "\n"))
        .collect()
}

/// A fenced block of a document.
struct Block<'a> {
    language: &'a str,
    /// The line of the opening fence, counted from 1.
    line: usize,
    lines: Vec<&'a str>,
}

fn blocks(file: &File) -> impl Iterator<Item = Block<'_>> {
    let mut lines = file.text.lines().enumerate();
    std::iter::from_fn(move || {
        let (index, language) =
            lines.find_map(|(index, line)| Some((index, line.trim_start().strip_prefix("```")?)))?;
        let inside =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```"));
        let inside = inside.collect();
        Some(Block { language: language.trim(), line: index + 1, lines: inside })
    })
}

/// The lines outside fenced blocks, numbered from 1.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    file.text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` in a line, outside `code`.
fn link_targets(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    outside_code
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|part| part.split([')', ' ']).next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn decision_record_form_is_checked() {
        // If this failed, two records could share a number that others refer to, or a record could be lost or a diary.
        let found = |records: &[(&str, &str)]| -> Vec<String> {
            let path = |name: &str| format!("{DECISIONS}{name}");
            let mut files: Vec<File> = records.iter().map(|(name, text)| file(&path(name), text)).collect();
            let list = "[Do it](0001-do-it.md) [Do not](0001-do-not.md) [Do it](0003-do-it.md)";
            files.push(file(&path("README.md"), list));
            decisions(&files).into_iter().map(|finding| finding.text).collect()
        };
        let (one, three) = (("0001-do-it.md", "# 0001: Do it\n"), ("0003-do-it.md", "# 0003: Do it\n"));
        assert!(found(&[("0000-template.md", "# 0000: X\n"), one, three]).is_empty(), "a gap is no finding");
        assert_eq!(
            found(&[one, ("0001-do-not.md", "# 0001: Do not\n")]),
            ["0001 is the number of another record"]
        );
        assert_eq!(
            found(&[("0001-do-it.md", "# 0001: Do not\n")]).len(),
            2,
            "another title, which is not listed"
        );
        assert_eq!(
            found(&[("0004-do-it.md", "# 0004: Do it\n")]),
            ["is not listed by its title in the README"]
        );
        let long = format!("# 0001: Do it\n{}", "line\n".repeat(RECORD_LINES_MAX));
        assert_eq!(found(&[("0001-do-it.md", &long)]), ["has 41 lines, and 40 at most"]);
    }

    #[test]
    fn decision_record_count_is_limited() {
        // If this failed, the records would grow into a diary that newcomers cannot read.
        let records = |n: usize| -> Vec<File> {
            (1..=n)
                .map(|i| file(&format!("{DECISIONS}{i:04}-do-it.md"), &format!("# {i:04}: Do it\n")))
                .collect()
        };
        assert!(decisions(&records(RECORDS_MAX)).is_empty());
        assert_eq!(decisions(&records(RECORDS_MAX + 1)).len(), 1);
    }

    #[test]
    fn stale_page_is_found() {
        // If this failed, the book could contain outdated pages.
        let files = [file("docs/a.md", "new\n"), file("docs/b.md", "old\n")];
        let pages =
            [("docs/a.md".to_owned(), "new\n".to_owned()), ("docs/b.md".to_owned(), "new\n".to_owned())];
        let found = made_pages(&files, &pages);
        assert_eq!(found.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(), ["docs/b.md"]);
    }

    #[test]
    fn broken_link_is_found() {
        // If this failed, a renamed file would leave readers at a dead end.
        let page = file(
            "docs/a.md",
            "[b](b.md#part) [c](../c.md) [d](https://x.y/z) [e](#e) `[f](f.md)`\n```text\n[g](g.md)\n```\n",
        );
        let found = links(&page, |path| path == Path::new("docs/b.md"));
        assert_eq!(
            found.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>(),
            ["there is no `../c.md`"]
        );
    }

    #[test]
    fn fence_without_language_is_found() {
        // If this failed, an example without a language could escape the checks.
        assert!(fences(&file("a.md", "```sh\nls\n```\n")).is_empty());
        assert_eq!(fences(&file("a.md", "text\n```\nls\n```\n"))[0].line, 2);
    }

    #[test]
    fn unknown_command_is_found() {
        // If this failed, a newcomer's first command could fail.
        let check =
            |text: &str| commands(&file("a.md", text), "demo: x\n\tcargo\n", &[("tidy", "", "")]).len();
        assert_eq!(check("```sh\nmake demo\ncargo xtask tidy\nls\n```\n"), 0);
        assert_eq!(check("```sh\nmake demos\n$ cargo xtask tidier\n```\n"), 2);
        assert_eq!(check("```text\nmake demos\n```\n"), 0);
    }

    #[test]
    fn whole_programs_are_collected() {
        // If this failed, programs in the docs would rot unseen.
        let page = file("docs/a.md", "```sql\nSELECT 1\n```\n\n```weft\nCREATE\n```\n");
        assert_eq!(programs(&page), [("docs-a-line-5.weft".to_owned(), "CREATE\n".to_owned())]);
    }
}
