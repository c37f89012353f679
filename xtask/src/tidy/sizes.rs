//! Rules for the sizes of documents.

use super::{File, Finding};

/// Maximum number of lines of documents, or of their sections.
const LINES_MAX: &[(&str, Option<&str>, usize)] =
    &[("README.md", None, 120), ("docs/performance.md", None, 250), ("CHANGELOG.md", Some("0.1.0"), 60)];

/// No document exceeds its size.
pub(super) fn documents(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, section, max) in LINES_MAX {
        let Some(file) = files.iter().find(|file| file.path == *path) else {
            findings.push(Finding::new(path, 0, "is missing"));
            continue;
        };
        let (first, n) = match section {
            None => (0, file.text.lines().count()),
            Some(name) => match section_lines(&file.text, name) {
                Some(found) => found,
                None => {
                    findings.push(Finding::new(path, 0, format!("has no section `## {name}`")));
                    continue;
                }
            },
        };
        if n > *max {
            findings.push(Finding::new(path, first, format!("{n} lines, at most {max} may be")));
        }
    }
    findings
}

/// The line of a section's heading, counted from 1, and the number of its lines with the heading.
fn section_lines(text: &str, name: &str) -> Option<(usize, usize)> {
    let is_heading = |line: &str| line.starts_with("## ");
    let first = text.lines().position(|line| is_heading(line) && line.contains(name))?;
    let n = text.lines().skip(first + 1).take_while(|line| !is_heading(line)).count() + 1;
    Some((first + 1, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(readme: usize, changelog: &str) -> Vec<File> {
        let file = |path: &str, text: String| File { path: path.to_owned(), text };
        vec![
            file("README.md", "a\n".repeat(readme)),
            file("docs/performance.md", String::new()),
            file("CHANGELOG.md", changelog.to_owned()),
        ]
    }

    #[test]
    fn document_above_its_size_is_found() {
        // If this failed, the pages that newcomers read first would grow into diaries.
        let section = "# Changes\n## 0.1.0\n- a\n";
        assert!(documents(&files(120, section)).is_empty());
        assert_eq!(documents(&files(121, section))[0].path, "README.md");
    }

    #[test]
    fn section_ends_at_the_next_heading() {
        // If this failed, later releases would count for the first one.
        let many = "- a\n".repeat(60);
        assert_eq!(documents(&files(1, &format!("## 0.1.0\n{many}")))[0].text, "61 lines, at most 60 may be");
        assert!(documents(&files(1, &format!("## 0.2.0\n{many}## 0.1.0\n- a\n"))).is_empty());
        assert_eq!(documents(&files(1, "## Unreleased\n"))[0].text, "has no section `## 0.1.0`");
    }
}
