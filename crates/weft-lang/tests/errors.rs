//! What the front end says about wrong programs, word by word.
//!
//! Each `tests/errors/*.weft` has its diagnostics beside it in a `.stderr` file. What no file of a sensible size gives
//! is made by [`MADE`], and its last diagnostics are in a `.stderr` file all the same. To take new ones over after a
//! change that was meant, run the test with `UPDATE_EXPECT=1` and read the difference.

#![allow(clippy::disallowed_methods, reason = "tests read the files that they compare with")]

use std::path::{Path, PathBuf};

use weft_lang::diagnostic::{RenderOptions, code, render_all};

mod support;
use support::Texts;

use weft_core::limits::{EXPR_HEIGHT_MAX, NESTING_MAX};
use weft_lang::source::{SOURCE_BYTES_MAX, SOURCE_FILES_MAX};

/// Makes the files of a program, by name and text; the first is the root.
type Make = fn() -> Vec<(String, String)>;

/// Programs that are made, by the name of the `.stderr` file.
const MADE: &[(&str, Make)] = &[
    ("made-nesting", || {
        let (open, close) = ("(".repeat(NESTING_MAX as usize + 1), ")".repeat(NESTING_MAX as usize + 1));
        root(format!("CREATE ROUTE r ON l WHEN {open}a{close} TO CLUSTER c;"))
    }),
    ("made-height", || {
        let sum = vec!["a"; EXPR_HEIGHT_MAX as usize + 1].join(" + ");
        root(format!("CREATE ROUTE r ON l WHEN {sum} TO CLUSTER c;"))
    }),
    ("made-faults", || root("DROP 1;\n".repeat(1000))),
    ("made-size", || root(" ".repeat(SOURCE_BYTES_MAX + 1))),
    ("made-files", || {
        let imports: String = (0..SOURCE_FILES_MAX).map(|n| format!("IMPORT '{n}.weft';\n")).collect();
        let empty = (0..SOURCE_FILES_MAX).map(|n| (format!("{n}.weft"), String::new()));
        root(imports).into_iter().chain(empty).collect()
    }),
];

/// Codes that no text gives, and the file whose tests give them.
const ELSEWHERE: &[(&str, &str)] = &[
    // What an element leaves behind is known when it is lowered.
    ("W0430", "crates/weft/src/compile.rs"),
    // So is which fields displace each other.
    ("W0433", "crates/weft-opt/tests/it/swap.rs"),
    // So is what it costs.
    ("W0431", "crates/weft/src/compile.rs"),
    // The text fits by itself: what it does not fit is the state of a running network.
    ("W0501", "crates/weft/src/compile.rs"),
    // What passes the check, the back ends of this version take.
    ("W0502", "crates/weft/src/compile.rs"),
    // Names are looked up when a network starts, by the machine that it starts on.
    ("W0503", "crates/weft/tests/it/commands.rs"),
    // Keys are read by the machine that a network runs on.
    ("W0504", "crates/weft/src/natives.rs"),
    // A pattern may be right and too large all the same, which shows when it is compiled.
    ("W0505", "crates/weft/src/natives.rs"),
    // No text is known that gives it: it would be mended.
    ("W0506", "crates/weft/src/running.rs"),
    // How much memory there is is said to the command, or by the machine.
    ("W0507", "crates/weft/src/compile.rs"),
];

/// Lines of a `.stderr` file of a made program; the first ones may be very many.
const MADE_LINES_MAX: usize = 12;

fn root(text: String) -> Vec<(String, String)> {
    vec![("root.weft".to_owned(), text)]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/errors")
}

/// The programs in order: name and text.
fn programs() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder()).expect("tests/errors is part of the repository");
    let mut programs: Vec<(String, String)> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "weft"))
        .map(|path| {
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("it is text"))
        })
        .collect();
    programs.sort();
    programs
}

/// The diagnostics of a program; `.weft` files of the folder can import each other.
fn rendered(name: &str, all: &[(String, String)]) -> String {
    let mut texts = Texts::of(all);
    let (network, diagnostics, sources) = weft_lang::check(name, &mut texts);
    assert_eq!(network.is_none(), diagnostics.iter().any(|diagnostic| diagnostic.is_error()), "{name}");
    render_all(&diagnostics, &sources, RenderOptions::default())
}

/// What each program gives: the name without its ending, and the text.
fn all_rendered() -> Vec<(String, String)> {
    let all = programs();
    let stem = |name: &str| name.trim_end_matches(".weft").to_owned();
    let mut texts: Vec<_> = all.iter().map(|(name, _)| (stem(name), rendered(name, &all))).collect();
    for (name, make) in MADE {
        let files = make();
        texts.push(((*name).to_owned(), last_lines(&rendered(&files[0].0, &files))));
    }
    texts
}

/// The end of a text, with lines that are too long for a person cut.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(MADE_LINES_MAX);
    lines[from..].iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn error_messages_match_snapshots() {
    // A diagnostic that lost its place, its help or its words.
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for (name, text) in all_rendered() {
        let path = folder().join(&name).with_extension("stderr");
        if is_update {
            std::fs::write(&path, &text).expect("the folder can be written");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            wrong.push(format!("---- {name}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "diagnostics changed:\n{}", wrong.join("\n"));
}

#[test]
fn every_code_has_a_test() {
    // A diagnostic without a test loses its words unnoticed.
    let texts: String = all_rendered().into_iter().map(|(_, text)| text).collect();
    let is_shown = |code: &str| texts.contains(&format!("[{code}]"));
    let elsewhere = |code: &str| ELSEWHERE.iter().find(|(known, _)| *known == code);
    let codes = || code::ALL.iter().map(|(code, _)| code.0);
    let untested: Vec<_> = codes().filter(|code| !is_shown(code) && elsewhere(code).is_none()).collect();
    assert!(untested.is_empty(), "no program in tests/errors gives {untested:?}");
    for (code, path) in ELSEWHERE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        let tests = std::fs::read_to_string(&path).expect("the file is there");
        assert!(tests.contains(&format!("\"{code}\"")), "{} does not test {code}", path.display());
        assert!(!is_shown(code), "{code} has a program, and needs no test elsewhere");
    }
    assert!(codes().filter(|code| is_shown(code)).count() >= 60, "fewer diagnostics than promised");
}
