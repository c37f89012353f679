//! Ceilings for faults that the tree still has. They only fall.
//!
//! `debt.txt` has one line for each rule and crate: `RULE CRATE CEILING`. A crate without a line has the ceiling that
//! the rule gives to all crates. A ceiling has to equal the actual count, so that it falls with each mended fault.

use std::collections::BTreeMap;

use super::{File, Finding};

/// The file of the ceilings.
pub(crate) const PATH: &str = "xtask/src/tidy/debt.txt";

/// The ceilings by rule and crate.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    ceilings: BTreeMap<(String, String), usize>,
}

/// The faults of one crate by one rule.
#[derive(Debug)]
pub(crate) struct Count {
    /// The rule's name in `debt.txt`.
    pub(crate) rule: &'static str,
    /// The crate, or the folder of the root for what belongs to no crate.
    pub(crate) package: String,
    /// How many faults a crate may have that has no line in `debt.txt`.
    pub(crate) free: usize,
    /// Each fault.
    pub(crate) places: Vec<Finding>,
}

impl Debt {
    /// Reads `debt.txt`, and reports each line that is not `RULE CRATE CEILING`.
    pub(crate) fn read(files: &[File]) -> (Self, Vec<Finding>) {
        let text = files.iter().find(|file| file.path == PATH).map_or("", |file| &file.text);
        let (mut debt, mut findings) = (Self::default(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (words.as_slice(), words.last().and_then(|word| word.parse().ok())) {
                ([], _) => {}
                ([first, ..], _) if first.starts_with('#') => {}
                ([rule, package, _], Some(ceiling)) => {
                    debt.ceilings.insert(((*rule).to_owned(), (*package).to_owned()), ceiling);
                }
                _ => findings.push(Finding::new(PATH, index + 1, "write `RULE CRATE CEILING`")),
            }
        }
        (debt, findings)
    }

    /// Compares the counts of all rules and crates with their ceilings.
    pub(crate) fn check(&self, counts: &[Count]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = counts.iter().flat_map(|count| self.check_one(count)).collect();
        for (rule, package) in self.ceilings.keys() {
            if !counts.iter().any(|count| (count.rule, &count.package) == (rule, package)) {
                findings.push(Finding::new(
                    PATH,
                    0,
                    format!("`{rule} {package}`: there is no such rule or crate"),
                ));
            }
        }
        findings
    }

    fn check_one(&self, count: &Count) -> Vec<Finding> {
        let Count { rule, package, free, places } = count;
        let ceiling = self.ceilings.get(&(String::from(*rule), package.clone())).copied();
        let n = places.len();
        let text = match ceiling {
            None if n <= *free => return Vec::new(),
            // A crate that is free of debt has few faults: show each of them.
            None => return places.clone(),
            Some(_) if n <= *free => {
                format!("`{rule} {package}`: take the line out, {n} is within the limit of all crates")
            }
            Some(ceiling) if n == ceiling => return Vec::new(),
            Some(ceiling) if n < ceiling => format!("`{rule} {package}`: lower {ceiling} to {n}"),
            Some(ceiling) => {
                format!(
                    "`{rule} {package}`: there are {n}, at most {ceiling} may be; `cargo xtask prose --list` shows them"
                )
            }
        };
        vec![Finding::new(PATH, 0, text)]
    }

    /// The text of `debt.txt` with each ceiling lowered to its count. No ceiling rises and no line is added.
    pub(crate) fn lowered(text: &str, counts: &[Count]) -> String {
        let lower = |line: &str| -> Option<String> {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [rule, package, ceiling] = words.as_slice() else { return Some(line.to_owned()) };
            let Some(count) =
                counts.iter().find(|count| (count.rule, count.package.as_str()) == (*rule, *package))
            else {
                return Some(line.to_owned());
            };
            let n = count.places.len();
            let ceiling: usize = ceiling.parse().unwrap_or(n);
            (n > count.free).then(|| format!("{rule} {package} {}", n.min(ceiling)))
        };
        text.lines().filter_map(lower).map(|line| line + "\n").collect()
    }
}

/// The crate of a file, or the first folder of its path.
pub(crate) fn package(path: &str) -> &str {
    let inside = path.strip_prefix("crates/").unwrap_or(path);
    inside.split('/').next().unwrap_or(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(text: &str) -> (Debt, Vec<Finding>) {
        Debt::read(&[File { path: PATH.to_owned(), text: text.to_owned() }])
    }

    fn count(n: usize) -> Count {
        let places = (1..=n).map(|line| Finding::new("crates/a/src/b.rs", line, "a fault")).collect();
        Count { rule: "names", package: "a".to_owned(), free: 0, places }
    }

    #[test]
    fn count_above_its_ceiling_is_found() {
        // If this failed, old faults could grow while they are being mended.
        let (debt, faults) = debt("# Ceilings\n\nnames a 2\n");
        assert!(faults.is_empty());
        assert!(debt.check(&[count(2)]).is_empty());
        assert!(debt.check(&[count(3)])[0].text.contains("at most 2"));
        assert_eq!(
            Debt::default().check(&[count(3)]).len(),
            3,
            "each place is shown where there is no ceiling"
        );
    }

    #[test]
    fn ceiling_above_its_count_is_found() {
        // If this failed, a mended fault could come back unseen.
        let (debt, _) = debt("names a 2\n");
        assert!(debt.check(&[count(1)])[0].text.contains("lower 2 to 1"));
        assert!(debt.check(&[count(0)])[0].text.contains("take the line out"));
        assert!(debt.check(&[])[0].text.contains("no such rule or crate"));
    }

    #[test]
    fn free_share_needs_no_ceiling() {
        // If this failed, each crate would need a line forever.
        assert!(Debt::default().check(&[Count { free: 3, ..count(3) }]).is_empty());
    }

    #[test]
    fn malformed_ceiling_is_found() {
        // If this failed, a typing error could switch a ceiling off.
        assert_eq!(debt("names a\n").1.len(), 1);
        assert_eq!(debt("names a two\n").1.len(), 1);
    }

    #[test]
    fn lowering_never_raises() {
        // If this failed, the command that lowers ceilings could hide new faults.
        assert_eq!(Debt::lowered("# Top\nnames a 5\n", &[count(3)]), "# Top\nnames a 3\n");
        assert_eq!(Debt::lowered("names a 2\n", &[count(3)]), "names a 2\n");
        assert_eq!(Debt::lowered("names a 2\n", &[count(0)]), "");
    }

    #[test]
    fn package_is_crate_or_top_folder() {
        // If this failed, the faults of one crate could count for another.
        assert_eq!(package("crates/weft-ir/src/lib.rs"), "weft-ir");
        assert_eq!(package("xtask/src/main.rs"), "xtask");
    }
}
