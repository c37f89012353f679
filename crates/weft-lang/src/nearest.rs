//! Suggests corrections for misspelled words.

/// Longest word that is compared.
const WORD_BYTES_MAX: usize = 64;

/// The maximum number of words that one is compared with; it bounds the time in programs with more names.
const KNOWN_MAX: usize = 2000;

/// The minimum length of an abbreviation.
const SHORT_BYTES_MIN: usize = 4;

/// The word of `known` that is nearest to `name`, ignoring case, if at most a third of its letters differ; otherwise
/// the only word that starts with `name`.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    typo(name, known.iter().copied()).or_else(|| completion(name, &known))
}

/// The nearest keyword; abbreviations are not considered. Keywords of two letters are never suggested: half of all
/// short names are similar to one.
pub(crate) fn nearest_keyword<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    typo(word, known.into_iter().filter(|keyword| keyword.len() > 2))
}

/// Finds the known word with the smallest edit distance: at most a third of the letters, and at most 3.
fn typo<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > WORD_BYTES_MAX {
        return None;
    }
    let slips_max = (name.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .take(KNOWN_MAX)
        .filter(|candidate| candidate.len() <= WORD_BYTES_MAX && *candidate != name)
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= slips_max && *slips < name.len().min(candidate.len() + 1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Finds the known word that begins with the name. None if there are several, or the name is too short.
fn completion<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() < SHORT_BYTES_MIN {
        return None;
    }
    let begins = |candidate: &&&str| {
        candidate
            .as_bytes()
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut completions = known.iter().filter(begins);
    completions.next().copied().filter(|_| completions.next().is_none())
}

/// The number of insertions, deletions, replacements or swaps of neighbours from one word to the other, ignoring case
/// (optimal string alignment distance).
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let is_same = |i: usize, j: usize| from[i].eq_ignore_ascii_case(&to[j]);
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = last[j - 1] + usize::from(!is_same(i - 1, j - 1));
            let mut slips = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && is_same(i - 1, j - 2) && is_same(i - 2, j - 1) {
                slips = slips.min(before_last[j - 2] + 1);
            }
            row.push(slips);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_typos_are_suggested() {
        // A wrong suggestion is worse than none.
        let known = ["user", "object_id", "quantity"];
        assert_eq!(nearest("usr", known), Some("user"));
        assert_eq!(nearest("suer", known), Some("user"));
        assert_eq!(nearest("User", known), Some("user"));
        assert_eq!(nearest("objectid", known), Some("object_id"));
        assert_eq!(nearest("tenant", known), None);
        assert_eq!(nearest("q", known), None);
        assert_eq!(nearest("m", ["a"]), None);
        assert_eq!(nearest("tt", ["t"]), Some("t"));
        assert_eq!(nearest(&"u".repeat(1000), known), None);
    }

    #[test]
    fn unique_prefix_is_completed() {
        // A status is long and recognizable by its prefix; if two share the prefix, neither is a good suggestion.
        let known = ["INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "UNAVAILABLE", "UNAUTHENTICATED", "user"];
        assert_eq!(nearest("INVALID_ARG", known), Some("INVALID_ARGUMENT"));
        assert_eq!(nearest("deadline", known), Some("DEADLINE_EXCEEDED"));
        assert_eq!(nearest("unav", known), Some("UNAVAILABLE"));
        assert_eq!(nearest("UNA", known), None);
        assert_eq!(nearest("UNAx", known), None);
        assert_eq!(nearest("username", known), None);
        assert_eq!(nearest_keyword("DELE", ["DELETE_ALL"]), None);
    }

    #[test]
    fn keyword_typos_are_matched() {
        let known = ["SELECT", "SET", "IF", "WHERE", "UPDATE"];
        assert_eq!(nearest_keyword("selct", known), Some("SELECT"));
        assert_eq!(nearest_keyword("WEHRE", known), Some("WHERE"));
        assert_eq!(nearest_keyword("UPDAET", known), Some("UPDATE"));
        assert_eq!(nearest_keyword("tokens", known), None);
        assert_eq!(nearest_keyword("id", known), None);
        assert_eq!(nearest_keyword("x", known), None);
        assert_eq!(nearest_keyword(&"S".repeat(10_000), known), None);
    }
}
