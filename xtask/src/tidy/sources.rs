//! Rules for Rust files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::rust::Source;
use super::{File, Finding, relative};
use crate::workspace::Workspace;

/// The longest line of a Rust file, in characters. rustfmt keeps code within 110.
const LINE_MAX: usize = 120;
/// The crates that may contain `unsafe`.
const UNSAFE_CRATES: &[&str] = &["crates/weft-io/", "crates/weft-jit/", "crates/weft-ebpf/"];
/// Markers of unfinished work in comments, in any case of letters.
const MARKERS: &[&str] = &["todo", "fixme", "xxx", "hack"];
/// Macros of unfinished work.
const MACROS: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// The benchmark compares named elements of the library with hand-written Rust, so each pair names its element. No code
/// that runs a network reads these names.
const NAMES_ALLOWED: &[&str] =
    &["crates/weft-bench/src/elements", "crates/weft-bench/src/packets", "crates/weft-bench/src/twins"];

/// A file starts with its purpose; build scripts and tests may omit it.
pub(super) fn header(source: &Source<'_>) -> Option<Finding> {
    let path = source.path;
    let is_exempt = path.ends_with("/build.rs") || path.ends_with("/tests.rs") || path.contains("/tests/");
    let text = "begin the file with `//!` and a sentence that says what it is for";
    (!is_exempt && !source.text.starts_with("//!")).then(|| Finding::new(source.path, 1, text))
}

/// rustfmt does not wrap long comments and strings, and readers should not have to scroll.
pub(super) fn line_length(source: &Source<'_>) -> Vec<Finding> {
    let too_long = |line: &str| line.chars().count() > LINE_MAX;
    lines(source.text)
        .filter(|(_, line)| too_long(line))
        .map(|(number, _)| Finding::new(source.path, number, format!("longer than {LINE_MAX} characters")))
        .collect()
}

/// `unsafe`, and the permission for it, are limited to the crates with reviews of unsafe code.
pub(super) fn unsafe_code(source: &Source<'_>) -> Vec<Finding> {
    if UNSAFE_CRATES.iter().any(|folder| source.path.starts_with(folder)) {
        return Vec::new();
    }
    let is_breach = |line: &str| {
        words(line).any(|word| word == "unsafe")
            || words(line).any(|word| word == "unsafe_code")
                && words(line).any(|word| word == "allow" || word == "expect")
    };
    lines(&source.code)
        .filter(|(_, line)| is_breach(line))
        .map(|(number, _)| Finding::new(source.path, number, "unsafe code belongs in weft-io or weft-jit"))
        .collect()
}

/// Unfinished work belongs in the issue tracker; the main branch has none.
pub(super) fn leftovers(source: &Source<'_>) -> Vec<Finding> {
    let in_comments = lines(&source.comments).filter_map(|(number, line)| {
        let marker = words(line).find(|word| MARKERS.contains(&word.to_lowercase().as_str()))?;
        Some((number, marker.to_owned()))
    });
    let in_code = lines(&source.code).filter_map(|(number, line)| {
        let is_macro =
            |name: &&&str| line.match_indices(**name).any(|(at, _)| !line[..at].ends_with(is_word_char));
        MACROS.iter().find(is_macro).map(|name| (number, (*name).to_owned()))
    });
    in_comments
        .chain(in_code)
        .map(|(number, what)| {
            Finding::new(source.path, number, format!("`{what}`: finish it, or take it out"))
        })
        .collect()
}

/// The names of all elements that the texts of the library declare.
pub(super) fn library_names<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    texts.flat_map(element_names).collect()
}

/// The library has no privilege: no crate names one of its elements. Tests and the benchmark's pairs may.
pub(super) fn named_elements(source: &Source<'_>, names: &BTreeSet<String>) -> Vec<Finding> {
    let is_checked = source.path.starts_with("crates/")
        && source.path.contains("/src/")
        && !source.path.ends_with("/tests.rs")
        && !source.path.contains("/tests/")
        && !NAMES_ALLOWED.iter().any(|prefix| source.path.starts_with(prefix));
    if !is_checked {
        return Vec::new();
    }
    let tests_line = source.tests_line();
    source
        .strings
        .iter()
        .filter(|(line, text)| *line < tests_line && names.contains(text))
        .map(|(line, text)| {
            Finding::new(
                source.path,
                *line,
                format!("names the library element `{text}`: the library has no privilege"),
            )
        })
        .collect()
}

/// Every Rust file of a member is reached from one of its targets by `mod`.
pub(super) fn dead_files(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let sources: BTreeMap<&str, Source<'_>> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .map(|file| (file.path.as_str(), Source::new(&file.path, &file.text)))
        .collect();
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let folder = format!("{}/", relative(&workspace.root, &package.folder));
        let roots = package.roots.iter().map(|root| relative(&workspace.root, root)).collect();
        let reached = reached(&sources, roots);
        findings.extend(
            sources
                .keys()
                .filter(|path| path.starts_with(&folder) && !reached.contains(**path))
                .map(|path| Finding::new(path, 0, "no `mod` reaches this file: it is never compiled")),
        );
    }
    findings
}

/// All files that the roots reach, including the roots.
fn reached(sources: &BTreeMap<&str, Source<'_>>, roots: Vec<String>) -> BTreeSet<String> {
    let is_root: BTreeSet<String> = roots.iter().cloned().collect();
    let mut reached = BTreeSet::new();
    let mut open = roots;
    while let Some(path) = open.pop() {
        let Some(source) = sources.get(path.as_str()) else { continue };
        let is_folder_of_itself = is_root.contains(&path) || path.ends_with("/mod.rs");
        if reached.insert(path.clone()) {
            open.extend(children(source, is_folder_of_itself));
        }
    }
    reached
}

/// Possible paths of the modules that a file declares, and of the files that it includes.
fn children(source: &Source<'_>, is_folder_of_itself: bool) -> Vec<String> {
    let path = Path::new(source.path);
    let beside = path.parent().unwrap_or(Path::new(""));
    let below = if is_folder_of_itself { beside.to_owned() } else { path.with_extension("") };
    let mut children: Vec<PathBuf> = Vec::new();
    let mut inline: Vec<(usize, String)> = Vec::new();
    for (_, line) in lines(&source.code) {
        let indent = line.len() - line.trim_start().len();
        inline.retain(|(outer, _)| *outer < indent);
        let Some(name) = module_name(line) else { continue };
        let folder = inline.iter().fold(below.clone(), |folder, (_, name)| folder.join(name));
        if line.trim_end().ends_with(';') {
            children.push(folder.join(format!("{name}.rs")));
            children.push(folder.join(name).join("mod.rs"));
        } else {
            inline.push((indent, name.to_owned()));
        }
    }
    // `#[path = "x.rs"]` and `include!("x.rs")` name a file in a string.
    let named = source.strings.iter().filter(|(_, text)| text.ends_with(".rs"));
    children.extend(named.map(|(_, text)| beside.join(text)));
    children.iter().map(|child| normal(child)).collect()
}

/// `x`, from a line such as `pub(crate) mod x;` or `mod x {`.
fn module_name(line: &str) -> Option<&str> {
    let mut words =
        line.split_whitespace().filter(|word| !word.starts_with("pub") && !word.starts_with("#["));
    (words.next() == Some("mod")).then(|| words.next())?.map(|name| name.trim_end_matches([';', '{', '}']))
}

/// The path without `.` and `..`, with `/` between folders.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.iter().filter_map(|part| part.to_str()) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn element_names(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let is = |word: &str, keyword: &str| word.eq_ignore_ascii_case(keyword);
    words
        .windows(3)
        .filter(|w| is(w[0], "CREATE") || is(w[0], "REPLACE"))
        .filter(|w| is(w[1], "ELEMENT") || is(w[1], "FILTER"))
        .map(|w| w[2].trim_end_matches(|c| !is_word_char(c)).to_owned())
        .collect()
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word_char(c)).filter(|word| !word.is_empty())
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn source<'a>(path: &'a str, text: &'a str) -> Source<'a> {
        Source::new(path, text)
    }

    fn files(files: &[(&str, &str)]) -> Vec<File> {
        files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect()
    }

    #[test]
    fn file_without_header_is_found() {
        // If this failed, a reader would have to guess what a file is for.
        assert_eq!(header(&source("crates/a/src/b.rs", "//! B.\n")), None);
        assert_eq!(header(&source("crates/a/build.rs", "fn main() {}\n")), None);
        assert_eq!(header(&source("crates/a/src/b/tests.rs", "use super::*;\n")), None);
        assert!(header(&source("crates/a/src/b.rs", "fn b() {}\n")).is_some());
    }

    #[test]
    fn long_line_is_found() {
        // If this failed, long comments would slip past rustfmt.
        assert!(line_length(&source("a.rs", &"é".repeat(LINE_MAX))).is_empty());
        assert_eq!(line_length(&source("a.rs", &format!("\n{}", "x".repeat(LINE_MAX + 1))))[0].line, 2);
    }

    #[test]
    fn misplaced_unsafe_is_found() {
        // If this failed, a crate without reviews of its unsafe code could break memory.
        let text = "fn f() { unsafe { g() } }\n#![allow(unsafe_code)]\n";
        assert!(unsafe_code(&source("crates/weft-io/src/a.rs", text)).is_empty());
        assert_eq!(unsafe_code(&source("crates/weft-ir/src/a.rs", text)).len(), 2);
        let harmless = "#![deny(unsafe_code)] // unsafe is not needed\nlet a = \"unsafe\";\n";
        assert!(unsafe_code(&source("crates/weft-ir/src/a.rs", harmless)).is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        // If this failed, unfinished work could reach the main branch and stay.
        assert_eq!(leftovers(&source("a.rs", "// TODO: later\nfn f() { todo!() }\n")).len(), 2);
        assert_eq!(leftovers(&source("a.rs", "fn f() { dbg!(1); }\n")).len(), 1);
        assert!(leftovers(&source("a.rs", "fn mastodon() { let a = \"TODO\"; my_dbg!(a) }\n")).is_empty());
    }

    #[test]
    fn library_name_in_crate_is_found() {
        // If this failed, an element of the library could do what a user's own element cannot.
        let library = ["-- CREATE ELEMENT no\nCREATE OR REPLACE ELEMENT acl ON rpc AS"];
        let names = library_names(library.into_iter());
        assert_eq!(names, BTreeSet::from(["acl".to_owned()]));
        let named = source("crates/weft/src/a.rs", "if name == \"acl\" {}");
        assert_eq!(named_elements(&named, &names).len(), 1);
        let free = source(
            "crates/weft/src/a.rs",
            "// \"acl\"\nlet a = \"acl and more\";\n#[cfg(test)]\nlet b = \"acl\";",
        );
        assert!(named_elements(&free, &names).is_empty());
        for (path, n_found) in [("elements/cases.rs", 0), ("twins/acl.rs", 0), ("rpc.rs", 1)] {
            let path = format!("crates/weft-bench/src/{path}");
            assert_eq!(named_elements(&source(&path, "let a = \"acl\";"), &names).len(), n_found, "{path}");
        }
    }

    #[test]
    fn orphan_file_is_found() {
        // If this failed, code that is never compiled could look as if it were tested.
        let files = files(&[
            ("crates/a/src/lib.rs", "//! A.\nmod b;\npub mod c;\nmod tests {\n    mod d;\n}\n"),
            ("crates/a/src/b.rs", "//! B.\n#[path = \"odd.rs\"]\nmod e;\n"),
            ("crates/a/src/odd.rs", "//! E.\n"),
            ("crates/a/src/c/mod.rs", "//! C.\nmod f;\n"),
            ("crates/a/src/c/f.rs", "//! F.\n"),
            ("crates/a/src/tests/d.rs", "//! D.\n"),
            ("crates/a/src/lost.rs", "//! Lost.\n"),
        ]);
        let package = Package {
            name: "a".to_owned(),
            folder: "/w/crates/a".into(),
            roots: vec!["/w/crates/a/src/lib.rs".into()],
            dependencies: vec![],
        };
        let workspace = Workspace { root: "/w".into(), target: "/w/target".into(), packages: vec![package] };
        let found: Vec<String> =
            dead_files(&workspace, &files).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["crates/a/src/lost.rs"]);
    }
}
