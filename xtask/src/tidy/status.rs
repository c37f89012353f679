//! The status table and the file that names what proves each of its rows.
//!
//! `docs/status.md` is for readers: a capability, its state and its page. `docs/status.toml` is for machines: the
//! tests, programs, fuzz targets and commands that prove it. The parser here knows the part of TOML that the file
//! needs: sections with quoted names, and arrays of strings.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::Source;
use super::{File, Finding};

const TABLE: &str = "docs/status.md";
const PROOFS: &str = "docs/status.toml";
/// The longest line of the table, in characters.
const LINE_MAX: usize = 160;
/// The header of tables of capabilities.
const HEADER: &str = "| capability | state | page |";
/// The kinds of proof.
const KEYS: &[&str] = &["tests", "programs", "fuzz", "commands"];
const FUZZ_TARGETS: &str = "fuzz/fuzz_targets";

/// A row of the table.
#[derive(Debug)]
struct Row<'a> {
    line: usize,
    name: String,
    state: &'a str,
}

/// A section of the file of proofs.
#[derive(Debug, Default)]
struct Proofs {
    line: usize,
    /// Each proof with its line, by its key.
    by_key: BTreeMap<String, Vec<(usize, String)>>,
}

/// The table is short, each of its rows has its proofs, and each proof exists. `commands` are those of `cargo xtask`.
pub(super) fn check(files: &[File], sources: &[Source<'_>], commands: &[(&str, &str, &str)]) -> Vec<Finding> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let (Some(table), Some(proofs)) = (text(TABLE), text(PROOFS)) else {
        return vec![Finding::new(TABLE, 0, format!("this page and {PROOFS} have to be there"))];
    };
    let mut findings = long_lines(table);
    let (rows, proofs) = (rows(table), read_proofs(proofs, &mut findings));
    let mut names = BTreeSet::new();
    for row in &rows {
        findings.extend(check_row(row, proofs.get(&row.name)));
        if !names.insert(row.name.as_str()) {
            findings.push(Finding::new(TABLE, row.line, format!("`{}` is there twice", row.name)));
        }
    }
    for (name, proofs) in &proofs {
        if !names.contains(name.as_str()) {
            findings.push(Finding::new(PROOFS, proofs.line, format!("`{name}` is not in {TABLE}")));
        }
        let all =
            proofs.by_key.iter().flat_map(|(key, all)| all.iter().map(move |proof| (key.as_str(), proof)));
        findings.extend(all.filter_map(|(key, (line, proof))| {
            let fault = missing(key, proof, files, sources, commands)?;
            Some(Finding::new(PROOFS, *line, fault))
        }));
    }
    findings
}

fn long_lines(table: &str) -> Vec<Finding> {
    let long = table.lines().enumerate().filter(|(_, line)| line.chars().count() > LINE_MAX);
    long.map(|(index, _)| Finding::new(TABLE, index + 1, format!("longer than {LINE_MAX} characters")))
        .collect()
}

/// The rows of all tables of capabilities.
fn rows(table: &str) -> Vec<Row<'_>> {
    let mut is_inside = false;
    let mut rows = Vec::new();
    for (index, line) in table.lines().enumerate() {
        is_inside = line == HEADER || is_inside && line.starts_with('|');
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let (true, ["", name, state, ..]) = (is_inside && line != HEADER, cells.as_slice())
            && !name.starts_with("---")
        {
            rows.push(Row { line: index + 1, name: name.replace('`', ""), state });
        }
    }
    rows
}

fn check_row(row: &Row<'_>, proofs: Option<&Proofs>) -> Option<Finding> {
    let n = proofs.map(|proofs| proofs.by_key.values().map(Vec::len).sum::<usize>());
    let is_there = row.state == "works" || row.state.starts_with("partly: ");
    let fault = match n {
        _ if !is_there && row.state != "not yet" => {
            "the state is `works`, `partly: WHAT IS MISSING` or `not yet`".to_owned()
        }
        None => format!("`{}` has no section in {PROOFS}", row.name),
        Some(0) if is_there => format!("`{}` has no proof in {PROOFS}", row.name),
        Some(n) if n > 0 && !is_there => {
            format!("`{}` is not there yet and has proofs in {PROOFS}", row.name)
        }
        Some(_) => return None,
    };
    Some(Finding::new(TABLE, row.line, fault))
}

fn read_proofs(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, Proofs> {
    let mut sections: BTreeMap<String, Proofs> = BTreeMap::new();
    let (mut name, mut key) = (String::new(), None::<String>);
    for (index, line) in text.lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        let mut fault = |text: &str| findings.push(Finding::new(PROOFS, number, text));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(inside) = line.strip_prefix("[\"").and_then(|rest| rest.strip_suffix("\"]"))
            && key.is_none()
        {
            name = inside.to_owned();
            if sections.insert(name.clone(), Proofs { line: number, ..Proofs::default() }).is_some() {
                fault("this section is there twice");
            }
            continue;
        }
        let mut array = line;
        if key.is_none() {
            let Some((before, after)) = line.split_once(" = [") else {
                fault("write `[\"NAME\"]` or `KEY = [\"...\"]`");
                continue;
            };
            if !KEYS.contains(&before) {
                fault("the keys are `tests`, `programs`, `fuzz` and `commands`");
            }
            key = Some(before.to_owned());
            array = after;
        }
        let values = array.split('"').skip(1).step_by(2).map(|value| (number, value.to_owned()));
        if let (Some(section), Some(key)) = (sections.get_mut(&name), &key) {
            section.by_key.entry(key.clone()).or_default().extend(values);
        }
        if array.ends_with(']') {
            key = None;
        }
    }
    sections
}

/// The error for a proof that does not exist.
fn missing(
    key: &str,
    proof: &str,
    files: &[File],
    sources: &[Source<'_>],
    commands: &[(&str, &str, &str)],
) -> Option<String> {
    let is_file = |path: &str| files.iter().any(|file| file.path == path);
    match key {
        "tests" => missing_test(proof, sources),
        "programs" => (!is_file(proof)).then(|| format!("there is no `{proof}`")),
        "fuzz" => {
            let path = format!("{FUZZ_TARGETS}/{proof}.rs");
            (!is_file(&path)).then(|| format!("there is no `{path}`"))
        }
        _ => {
            let words: Vec<&str> = proof.split_whitespace().collect();
            let is_unknown = match words.as_slice() {
                ["cargo", "xtask", name, ..] | ["make", name] => {
                    !commands.iter().any(|(command, _, _)| command == name)
                }
                [script, ..] if script.starts_with("benches/") => !is_file(script),
                ["weft" | "cargo", _, ..] => false,
                _ => true,
            };
            is_unknown.then(|| format!("`{proof}` does not exist"))
        }
    }
}

/// A proof names a test as `FILE::FUNCTION`, or all tests of a file as `FILE`.
fn missing_test(proof: &str, sources: &[Source<'_>]) -> Option<String> {
    let (path, function) = proof.split_once("::").map_or((proof, None), |(path, name)| (path, Some(name)));
    let source = sources.iter().find(|source| source.path == path);
    match (source, function) {
        (Some(_), None) => None,
        (Some(source), Some(name)) if has_test(source, name) => None,
        (_, Some(name)) => {
            let elsewhere = sources.iter().find(|source| has_test(source, name));
            let hint = elsewhere.map_or(String::new(), |source| format!("; it is in {}", source.path));
            Some(format!("there is no test `{proof}`{hint}"))
        }
        (None, None) => Some(format!("there is no file `{proof}`")),
    }
}

/// Whether a file has a function of this name with an attribute such as `#[test]`.
fn has_test(source: &Source<'_>, name: &str) -> bool {
    source.code.match_indices(&format!("fn {name}")).any(|(at, found)| {
        let attributes = source.code[..at].rsplit(['{', '}', ';']).next().unwrap_or_default();
        attributes.contains("test") && source.code[at + found.len()..].starts_with(['(', '<'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Status\n\n| capability | state | page |\n| --- | --- | --- |\n\
                        | `weft fmt` | works | |\n| QUIC | not yet | |\n\n| what | code |\n| --- | --- |\n| a | b |\n";
    const LIST: &str = "# Proofs\n[\"weft fmt\"]\ntests = [\n  \"crates/a/src/b.rs::f_works\",\n]\n\
                        programs = [\"tests/programs/a.weft\"]\nfuzz = [\"c\"]\n\
                        commands = [\"cargo xtask tidy\"]\n[\"QUIC\"]\n";

    fn found(page: &str, list: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(TABLE, page),
            file(PROOFS, list),
            file("tests/programs/a.weft", ""),
            file("fuzz/fuzz_targets/c.rs", ""),
        ];
        let sources = [Source::new("crates/a/src/b.rs", "#[test]\nfn f_works() {}\nfn f_helps() {}")];
        check(&files, &sources, &[("tidy", "", "")]).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn table_with_its_proofs_is_accepted() {
        // If this failed, the checks below would prove nothing.
        assert_eq!(found(PAGE, LIST), Vec::<String>::new());
    }

    #[test]
    fn capability_without_proof_is_found() {
        // If this failed, the table could promise what no test holds.
        assert!(found(PAGE, "[\"QUIC\"]\n")[0].contains("has no section"));
        assert!(found(PAGE, "[\"weft fmt\"]\n[\"QUIC\"]\n")[0].contains("has no proof"));
        let early = format!("{LIST}fuzz = [\"c\"]\n");
        assert!(found(PAGE, &early)[0].contains("not there yet"));
    }

    #[test]
    fn proof_of_no_capability_is_found() {
        // If this failed, a row could vanish from the table and leave its tests behind.
        assert!(found(PAGE, &format!("{LIST}[\"gone\"]\n"))[0].contains("is not in docs/status.md"));
    }

    #[test]
    fn missing_proof_is_found() {
        // If this failed, a renamed test would leave a dead reference in the table.
        for (old, new, hint) in [
            ("b.rs::f_works", "b.rs::g_works", "there is no"),
            ("b.rs::f_works", "b.rs::f_work", "there is no"),
            ("b.rs::f_works", "b.rs::f_helps", "there is no"),
            ("b.rs::f_works", "c.rs::f_works", "it is in crates/a/src/b.rs"),
            ("a.weft", "b.weft", "there is no"),
            ("[\"c\"]", "[\"d\"]", "there is no"),
            ("xtask tidy", "xtask tidier", "does not exist"),
            ("cargo xtask tidy", "crates/a/src/b.rs", "does not exist"),
        ] {
            let found = found(PAGE, &LIST.replace(old, new));
            assert!(found.len() == 1 && found[0].contains(hint), "{new}: {found:?}");
        }
    }

    #[test]
    fn long_text_and_bad_state_are_found() {
        // If this failed, the table could become a diary again.
        assert!(found(&format!("{PAGE}{}\n", "é".repeat(LINE_MAX + 1)), LIST)[0].contains("longer than"));
        assert!(found(&PAGE.replace("| works |", "| mostly |"), LIST)[0].contains("the state is"));
        assert_eq!(found(&PAGE.replace("| works |", "| partly: no colours |"), LIST).len(), 0);
    }

    #[test]
    fn malformed_status_file_is_found() {
        // If this failed, a typing error could hide a proof from the check.
        assert!(found(PAGE, &format!("{LIST}nonsense\n"))[0].contains("write"));
        assert!(found(PAGE, &LIST.replace("fuzz =", "fuzzy ="))[0].contains("the keys are"));
        assert!(found(PAGE, &format!("{LIST}[\"QUIC\"]\n"))[0].contains("twice"));
    }
}
