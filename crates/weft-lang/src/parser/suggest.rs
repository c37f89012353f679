//! The keyword that somebody probably meant.

/// Longest word that is compared; nothing we know is longer.
const WORD_BYTES_MAX: usize = 24;

/// The nearest of `known` to `word`, ignoring case, if it is near enough to be a slip of the hand.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let word = word.to_ascii_uppercase();
    // A third of the letters may be wrong: one of `SET`, two of `SELECT`.
    let slips_max = (word.len() / 3).clamp(1, 2);
    let near = known.into_iter().map(|candidate| (n_slips(&word, candidate), candidate));
    near.filter(|(slips, candidate)| *slips <= slips_max && candidate.len() > 2)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete, replace or swap with a neighbour to get from one word to the other (optimal string
/// alignment distance).
fn n_slips(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut slips = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
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
    fn slips_are_forgiven_but_other_words_are_not() {
        // A wrong suggestion is worse than none.
        let known = ["SELECT", "SET", "IF", "WHERE", "UPDATE"];
        assert_eq!(nearest("selct", known), Some("SELECT"));
        assert_eq!(nearest("WEHRE", known), Some("WHERE"));
        assert_eq!(nearest("UPDAET", known), Some("UPDATE"));
        assert_eq!(nearest("tokens", known), None);
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest(&"S".repeat(10_000), known), None);
    }
}
