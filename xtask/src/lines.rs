//! The page of the book that compares the library's lines with hand-written Rust and published figures.

use std::fs;
use std::path::Path;

/// The folder of the elements' twins.
const TWINS: &str = "crates/weft-bench/src/twins";

/// Lines of the same function in AppNet's language, without blanks and comments: the files of `examples/elements` of
/// appnet-org/compiler, January 2026. Their paper (AppNet, NSDI 2025) says 7 to 28 per function.
const APPNET: &[(&str, u32)] = &[
    ("acl", 17),
    ("admission_control", 23),
    ("bandwidth_limit", 22),
    ("cache", 20),
    ("circuit_breaker", 19),
    ("fault", 12),
    ("logging", 11),
    ("metrics", 20),
    ("mutation", 10),
    ("sticky_lb", 16),
    ("token_bucket", 21),
];

/// The page for the library's files, which have the names of their `IMPORT`.
pub(crate) fn page(root: &Path, library: &[(String, String)]) -> String {
    let mut page = String::from(
        "# How long they are\n\nLines of code of each library item, without manual page, comments and blank lines. \
         *Rust by hand* is the same function on the same interface, as an engineer would write it; \
         [`weft bench elements`](../reference/command-line.md) verifies that its answers are the same. *AppNet* is the \
         same function in AppNet's language, if published; its cache returns an error on a hit and never expires. \
         mRPC's policies are separate engines of 291 to 408 lines of Rust each (phoenix-dataplane/phoenix, \
         `experimental/mrpc/plugin/policy`).\n\n\
         | item | Weft | Rust by hand | times | AppNet |\n| --- | --- | --- | --- | --- |\n",
    );
    let mut all = Vec::new();
    for (import, text) in library {
        let name = Path::new(import).file_stem().unwrap_or_default().to_string_lossy();
        let ours = code(text, "--");
        all.push(ours);
        let twin = fs::read_to_string(root.join(TWINS).join(format!("{name}.rs")));
        let twin = twin.ok().map(|twin| code(twin.split("#[cfg(test)]").next().unwrap_or(&twin), "//"));
        let theirs = APPNET.iter().find(|(known, _)| *known == name).map(|(_, lines)| *lines);
        let show = |lines: Option<u32>| lines.map(|lines| lines.to_string()).unwrap_or_default();
        let times = twin.map(|twin| format!("{:.1}", f64::from(twin) / f64::from(ours))).unwrap_or_default();
        let (twin, theirs) = (show(twin), show(theirs));
        page += &format!("| [{name}]({name}.md) | {ours} | {twin} | {times} | {theirs} |\n");
    }
    all.sort_unstable();
    let (lower, upper) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    page + &format!(
        "\nThe median of the {} items is {} lines. Helpers that twins share are not counted with them.\n",
        all.len(),
        f64::from(lower + upper) / 2.0
    )
}

/// Lines that are neither blank nor comments.
fn code(text: &str, comment: &str) -> u32 {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with(comment);
    text.lines().filter(is_code).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blanks_do_not_count() {
        // If this failed, a long manual page would make an element look long.
        assert_eq!(
            code("-- NAME\n\nCREATE ELEMENT e ON rpc AS\n  -- why\n  ON OPEN FORWARD;\nEND;\n", "--"),
            3
        );
    }

    #[test]
    fn each_item_has_a_row() {
        // If this failed, the page would omit an item.
        let library = [("library/elements/acl.weft".to_owned(), "a\nb\n".to_owned())];
        let page = page(Path::new("/nowhere"), &library);
        assert!(page.contains("| [acl](acl.md) | 2 |  |  | 17 |"), "{page}");
        assert!(page.contains("median of the 1 items is 2 lines"), "{page}");
    }
}
