//! The editors' TextMate grammar compared with the parser, on all programs of the repository.
//!
//! The grammar is applied as in editors: line by line, from left to right; the leftmost match counts, and of several
//! matches at one place the first pattern in the list.

#![allow(clippy::disallowed_methods, reason = "tests read the files that they compare with")]

use regex::Regex;
use serde_json::Value;

mod support;
use support::Texts;
use weft_lang::check::analyse;
use weft_lang::check::functions::find;
use weft_lang::editor::Program;
use weft_lang::editor::tokens::{TokenClass, classes};
use weft_lang::source::FileId;

#[path = "support/files.rs"]
mod files;
use files::{programs, root};

/// One pattern of the grammar.
struct Pattern {
    name: String,
    begin: Regex,
    /// The end of a pattern that may span lines.
    end: Option<Regex>,
    /// Only the first group has the name.
    is_group: bool,
}

fn grammar() -> Vec<Pattern> {
    let path = root().join("editors/vscode/syntaxes/weft.tmLanguage.json");
    let text = std::fs::read_to_string(path).expect("the grammar is part of the repository");
    let grammar: Value = serde_json::from_str(&text).expect("it is JSON");
    let regex = |text: &Value| Regex::new(text.as_str().expect("a pattern is text")).expect("it compiles");
    let patterns = grammar["patterns"].as_array().expect("it has patterns").iter();
    patterns
        .map(|pattern| {
            let group = &pattern["captures"]["1"]["name"];
            let name = pattern["name"].as_str().or(group.as_str()).expect("it has a name").to_owned();
            let begin = pattern.get("match").or(pattern.get("begin")).expect("it fits something");
            Pattern {
                name,
                begin: regex(begin),
                end: pattern.get("end").map(regex),
                is_group: group.is_string(),
            }
        })
        .collect()
}

/// The name of each byte's pattern; empty if none matches.
fn names<'g>(grammar: &'g [Pattern], text: &str) -> Vec<&'g str> {
    let mut names = vec![""; text.len()];
    let mut open: Option<&Pattern> = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let (code, mut at) = (line.trim_end_matches(['\r', '\n']), 0);
        while at < code.len() || (open.is_some() && at == code.len()) {
            if let Some(end) = open.and_then(|pattern| pattern.end.as_ref()) {
                let found = end.find_at(code, at);
                let to = found.map_or(code.len(), |found| found.end());
                names[start + at..start + to].fill(open.map_or("", |pattern| &pattern.name));
                if found.is_some() {
                    open = None;
                }
                at = to;
                if open.is_some() {
                    break;
                }
                continue;
            }
            let fits =
                grammar.iter().filter_map(|pattern| Some((pattern, pattern.begin.captures_at(code, at)?)));
            let first = fits.min_by_key(|(_, found)| found.get_match().start());
            let Some((pattern, found)) = first else { break };
            let named =
                if pattern.is_group { found.get(1).expect("it took part") } else { found.get_match() };
            names[start + named.start()..start + named.end()].fill(&pattern.name);
            at = found.get_match().end().max(at + 1);
            open = pattern.end.is_some().then_some(pattern);
        }
        start += line.len();
    }
    names
}

#[test]
fn editor_colours_match_parser() {
    // If this fails, keywords have the colour of names, or a comment never ends.
    let grammar = grammar();
    let files = programs(&["examples", "tests/programs"]);
    assert!(files.len() > 20, "the library is there");
    let mut n_keywords = 0;
    for path in files {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let names = names(&grammar, &text);
        let sources = [("a.weft".to_owned(), text.clone())];
        let program = Program::new(analyse("a.weft", &mut Texts::of(&sources)));
        for token in classes(&program, FileId(0)) {
            let (word, name) = (&text[token.span.range()], names[token.span.start as usize]);
            let is_capital = word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
            let fits = match token.class {
                TokenClass::Keyword | TokenClass::Type if is_capital => {
                    n_keywords += 1;
                    ["keyword.", "storage.type", "constant.language"]
                        .iter()
                        .any(|kind| name.starts_with(kind))
                }
                TokenClass::Comment => name.starts_with("comment."),
                TokenClass::Text => name.starts_with("string."),
                TokenClass::Number => name.starts_with("constant.numeric"),
                // A word that the program declares has the colour of a name.
                TokenClass::Function => {
                    find(word).is_none() || name.starts_with("support.function") || is_capital
                }
                TokenClass::Column | TokenClass::Variable | TokenClass::Object | TokenClass::Table => {
                    is_capital || !name.starts_with("keyword.control")
                }
                _ => true,
            };
            let line = text[..token.span.start as usize].matches('\n').count() + 1;
            assert!(fits, "{}:{line}: `{word}`, {:?}, is coloured as `{name}`", path.display(), token.class);
        }
    }
    assert!(n_keywords > 500, "only {n_keywords} keywords were compared");
}

#[test]
fn comments_and_strings_end_as_in_lexer() {
    let grammar = grammar();
    let shown = |text: &str| {
        let mut runs: Vec<(&str, String)> = Vec::new();
        for (name, c) in names(&grammar, text).into_iter().zip(text.chars()) {
            match runs.last_mut().filter(|(last, _)| *last == name) {
                Some((_, run)) => run.push(c),
                None => runs.push((name, c.to_string())),
            }
        }
        let kind = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let runs = runs.into_iter().filter(|(name, _)| !name.is_empty());
        runs.map(|(name, run)| format!("{}:{run}", kind(name))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown("SET a = 'it''s';"), "keyword:SET variable:a keyword:= string:'it''s'");
    assert_eq!(shown("/* SET\n\nIF */ SET"), "comment:/* SET comment:IF */ keyword:SET");
    assert_eq!(shown("'open\nSET"), "string:'open keyword:SET");
    assert_eq!(shown("a.key -- SET 'x"), "variable:a variable:.key comment:-- SET 'x");
    assert_eq!(shown("TEXT(8) text(8)"), "storage:TEXT constant:8 support:text constant:8");
}
