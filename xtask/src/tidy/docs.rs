//! Rules for the documents.

use std::path::Path;

use super::{File, Finding};
use crate::book::Page;

/// The folder of decision records.
const DECISIONS: &str = "docs/decisions/";

/// Decision records are numbered `0000`, `0001`, ... without a gap and without a number used twice.
pub(super) fn decisions(files: &[File]) -> Vec<Finding> {
    let pages = files.iter().filter_map(|file| {
        let name = file.path.strip_prefix(DECISIONS)?;
        (name.ends_with(".md") && name != "README.md").then_some((file.path.as_str(), name))
    });
    pages
        .enumerate()
        .filter(|(expected, (_, name))| !name.starts_with(&format!("{expected:04}-")))
        .map(|(expected, (path, _))| Finding::new(path, 0, format!("should have the number {expected:04}")))
        .collect()
}

/// Each page that is made from other files says what they say now.
pub(super) fn made_pages(files: &[File], pages: &[Page]) -> Vec<Finding> {
    let is_there = |page: &Page| files.iter().any(|file| (&file.path, &file.text) == (&page.0, &page.1));
    let stale = pages.iter().filter(|page| !is_there(page));
    stale.map(|(path, _)| Finding::new(path, 0, "is out of date: run `cargo xtask book`")).collect()
}

/// Each relative link leads to a file that `exists`, asked with its path from the workspace root.
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

/// A fenced block names its language, so that it can be checked and coloured.
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
    fn a_gap_or_a_double_among_decisions_is_found() {
        // If this failed, two records could share a number that others refer to.
        let pages = |names: &[&str]| -> Vec<File> {
            names.iter().map(|name| file(&format!("docs/decisions/{name}"), "")).collect()
        };
        assert!(decisions(&pages(&["0000-template.md", "0001-a.md", "README.md"])).is_empty());
        assert_eq!(decisions(&pages(&["0000-template.md", "0002-a.md"])).len(), 1);
        assert_eq!(decisions(&pages(&["0000-template.md", "0001-a.md", "0001-b.md"])).len(), 1);
    }

    #[test]
    fn a_page_that_its_source_has_left_behind_is_found() {
        // If this failed, the book could go on telling what was true once.
        let files = [file("docs/a.md", "new\n"), file("docs/b.md", "old\n")];
        let pages =
            [("docs/a.md".to_owned(), "new\n".to_owned()), ("docs/b.md".to_owned(), "new\n".to_owned())];
        let found = made_pages(&files, &pages);
        assert_eq!(found.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(), ["docs/b.md"]);
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
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
    fn a_fence_without_a_language_is_found() {
        // If this failed, an example could escape the checks by not saying what it is.
        assert!(fences(&file("a.md", "```sh\nls\n```\n")).is_empty());
        assert_eq!(fences(&file("a.md", "text\n```\nls\n```\n"))[0].line, 2);
    }

    #[test]
    fn a_command_that_does_not_exist_is_found() {
        // If this failed, the first thing that a newcomer types could fail.
        let check =
            |text: &str| commands(&file("a.md", text), "demo: x\n\tcargo\n", &[("tidy", "", "")]).len();
        assert_eq!(check("```sh\nmake demo\ncargo xtask tidy\nls\n```\n"), 0);
        assert_eq!(check("```sh\nmake demos\n$ cargo xtask tidier\n```\n"), 2);
        assert_eq!(check("```text\nmake demos\n```\n"), 0);
    }

    #[test]
    fn whole_programs_are_handed_on_and_fragments_are_not() {
        // If this failed, programs in the docs would rot unseen.
        let page = file("docs/a.md", "```sql\nSELECT 1\n```\n\n```weft\nCREATE\n```\n");
        assert_eq!(programs(&page), [("docs-a-line-5.weft".to_owned(), "CREATE\n".to_owned())]);
    }
}
