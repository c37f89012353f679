//! The name that somebody probably meant.

/// Longest name that is compared.
const NAME_BYTES_MAX: usize = 64;

/// The nearest of `known` to `name` if it is near enough to be a slip of the hand: a third of its letters at most.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let slips_max = (name.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX && *candidate != name)
        .map(|candidate| (n_slips(name, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= slips_max && *slips < name.len().min(candidate.len() + 1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete or replace to get from one name to the other, case ignored (Levenshtein's distance).
fn n_slips(from: &str, to: &str) -> usize {
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.bytes().enumerate() {
            let replaced = last[j] + usize::from(!a.eq_ignore_ascii_case(&b));
            row.push(replaced.min(last[j + 1] + 1).min(row[j] + 1));
        }
        last = row;
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slips_of_the_hand_are_suggested() {
        // A wrong suggestion is worse than none.
        let known = ["user", "object_id", "quantity"];
        assert_eq!(nearest("usr", known), Some("user"));
        assert_eq!(nearest("objectid", known), Some("object_id"));
        assert_eq!(nearest("tenant", known), None);
        assert_eq!(nearest("q", known), None);
        assert_eq!(nearest("m", ["a"]), None);
        assert_eq!(nearest("tt", ["t"]), Some("t"));
        assert_eq!(nearest(&"u".repeat(1000), known), None);
    }
}
