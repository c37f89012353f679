//! What the front end says about wrong programs, word by word.
//!
//! Each `tests/errors/*.weft` has its diagnostics beside it in a `.stderr` file. To take new ones over after a change
//! that was meant, run the test with `UPDATE_EXPECT=1` and read the difference.

#![allow(clippy::disallowed_methods, reason = "tests read the files that they compare with")]

use std::path::{Path, PathBuf};

use weft_lang::diagnostic::{RenderOptions, code, render_all};

mod support;
use support::Texts;

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

#[test]
fn every_wrong_program_is_told_what_to_do() {
    // A diagnostic that lost its place, its help or its words.
    let all = programs();
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for (name, _) in &all {
        let text = rendered(name, &all);
        let path = folder().join(name).with_extension("stderr");
        if is_update {
            std::fs::write(&path, &text).expect("the folder can be written");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            wrong.push(format!("---- {name}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "diagnostics changed:\n{}", wrong.join("\n"));
}

#[test]
fn every_code_of_the_checker_has_a_program() {
    // A diagnostic without a test loses its words unnoticed.
    let all = programs();
    let texts: String = all.iter().map(|(name, _)| rendered(name, &all)).collect();
    let codes = code::ALL.iter().filter(|(code, _)| ("W02".."W05").contains(&code.0));
    let untested: Vec<_> = codes.filter(|(code, _)| !texts.contains(&format!("[{}]", code.0))).collect();
    assert!(untested.is_empty(), "no program in tests/errors gives {untested:?}");
}
