//! Signs of sentences that should be rewritten, in comments.
//!
//! The signs are those of the house style that a program can find. A small share of each crate's comment lines may have
//! one, because each of these words has legitimate uses.

use std::collections::BTreeMap;

use super::Finding;
use super::debt::{Count, package};
use super::rust::Source;

/// The name of the rule in `debt.txt`.
pub(crate) const RULE: &str = "signs";

/// Words and groups of words, in lower case.
const SIGNS: &[&str] =
    &["nobody", "somebody", "whoever", "wherever", "is told", "is asked", "is taken", "be it", "be they"];

/// One in this many comment lines may have a sign: 0.5 %.
const LINES_A_SIGN: usize = 200;

/// The signs in the comments of each crate.
pub(crate) fn count(sources: &[Source<'_>]) -> Vec<Count> {
    let mut counts: BTreeMap<&str, (usize, Vec<Finding>)> = BTreeMap::new();
    for source in sources {
        let (n_lines, places) = counts.entry(package(source.path)).or_default();
        for (number, line) in comment_lines(source) {
            *n_lines += 1;
            if let Some(sign) = SIGNS.iter().find(|sign| has(line, sign)) {
                let text = format!("\"{sign}\": name the subject, and write the sentence in the active");
                places.push(Finding::new(source.path, number, text));
            }
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|(package, (n_lines, places))| Count {
            rule: RULE,
            package: package.to_owned(),
            free: n_lines / LINES_A_SIGN,
            places,
        })
        .collect()
}

/// The lines that hold a line comment and no code, numbered from 1.
pub(crate) fn comment_lines<'a>(source: &'a Source<'_>) -> impl Iterator<Item = (usize, &'a str)> {
    let lines = source.comments.lines().zip(source.code.lines()).enumerate();
    lines
        .filter(|(_, (comment, code))| comment.trim_start().starts_with("//") && code.trim().is_empty())
        .map(|(index, (comment, _))| (index + 1, comment.trim_start()))
}

/// Whether a line has these words, as whole words, in any case of letters.
pub(crate) fn has(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    line.match_indices(phrase).any(|(at, _)| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].ends_with(is_word) && !line[at + phrase.len()..].starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_is_found_in_comments_only() {
        // If this failed, code and texts for users would count as comments.
        let text = "// Nobody knows.\nlet a = \"nobody\"; // is asked\n/// The worker\n\
                    /// is told of it, be it so.\nfn f() {}\n";
        let counts = count(&[Source::new("crates/a/src/b.rs", text)]);
        let lines: Vec<usize> = counts[0].places.iter().map(|place| place.line).collect();
        assert_eq!(lines, [1, 4], "one finding for a line, and none for a comment after code");
    }

    #[test]
    fn sign_is_a_whole_word() {
        // If this failed, harmless words would count.
        assert!(has("Be it so", "be it") && has("(nobody)", "nobody"));
        assert!(!has("describe items", "be it") && !has("this tolder", "is told"));
    }

    #[test]
    fn share_of_comment_lines_is_free() {
        // If this failed, a crate with few comments could have as many signs as one with many.
        let text = "// A line.\n".repeat(2 * LINES_A_SIGN);
        assert_eq!(count(&[Source::new("crates/a/src/b.rs", &text)])[0].free, 2);
    }
}
