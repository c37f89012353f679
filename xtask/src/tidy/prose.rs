//! Signs of sentences that should be rewritten, in comments.
//!
//! The signs are those of the house style that a program can find. A small share of each crate's comment lines may have
//! one, because each of these words has legitimate uses.

use std::collections::BTreeMap;

use super::Finding;
use super::rust::Source;

/// Words and groups of words, in lower case.
const SIGNS: &[&str] =
    &["nobody", "somebody", "whoever", "wherever", "is told", "is asked", "is taken", "be it", "be they"];

/// One in this many comment lines may have a sign: 0.5 %.
const LINES_A_SIGN: usize = 200;

/// The signs of the crates that have more than their share.
pub(super) fn above_share(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, (usize, Vec<Finding>)> = BTreeMap::new();
    for source in sources {
        let (n_lines, found) = crates.entry(package(source.path)).or_default();
        *n_lines += comment_lines(source).count();
        found.extend(signs(source));
    }
    let is_above = |(n_lines, found): &(usize, Vec<Finding>)| found.len() > n_lines / LINES_A_SIGN;
    crates.into_values().filter(is_above).flat_map(|(_, found)| found).collect()
}

/// The comment lines of a file that have a sign.
pub(crate) fn signs(source: &Source<'_>) -> Vec<Finding> {
    let finding = |(number, line)| {
        let sign = SIGNS.iter().find(|sign| has(line, sign))?;
        let text = format!("\"{sign}\": name the subject, and write the sentence in the active");
        Some(Finding::new(source.path, number, text))
    };
    comment_lines(source).filter_map(finding).collect()
}

/// The crate of a file, or the first folder of its path.
pub(crate) fn package(path: &str) -> &str {
    let inside = path.strip_prefix("crates/").unwrap_or(path);
    inside.split('/').next().unwrap_or(inside)
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
        let found = signs(&Source::new("crates/a/src/b.rs", text));
        let lines: Vec<usize> = found.iter().map(|sign| sign.line).collect();
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
        let found = |n_signs: usize, path: &str| {
            let text = "// A line.\n".repeat(2 * LINES_A_SIGN) + &"// Nobody.\n".repeat(n_signs);
            above_share(&[Source::new("crates/a/src/b.rs", &text), Source::new(path, "// Nobody.\n")]).len()
        };
        assert_eq!(found(1, "crates/a/src/c.rs"), 0, "the share is that of the crate");
        assert_eq!(found(2, "crates/a/src/c.rs"), 3, "each of them is shown");
        assert_eq!(found(2, "crates/c/src/d.rs"), 1, "one crate cannot use the share of another");
    }

    #[test]
    fn package_is_crate_or_top_folder() {
        // If this failed, the signs of one crate could count for another.
        assert_eq!(package("crates/weft-ir/src/lib.rs"), "weft-ir");
        assert_eq!(package("xtask/src/main.rs"), "xtask");
    }
}
