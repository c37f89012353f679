//! Syntax highlighting of editors, generated from the tables of the language, so that it has the same words.
//!
//! | file | for |
//! | --- | --- |
//! | `editors/vscode/syntaxes/weft.tmLanguage.json` | Visual Studio Code, and other users of TextMate grammars |
//! | `editors/nvim/syntax/weft.vim` | Vim and Neovim |

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::book::{Page, element_functions};

const WORDS: &str = "crates/weft-lang/src/editor/words.rs";
const FUNCTIONS: &str = "crates/weft-lang/src/check/functions.rs";
const RESERVED: &str = "crates/weft-lang/src/parser/cursor.rs";
const TYPES: &str = "crates/weft-lang/src/parser/ty.rs";
const STATUSES: &str = "crates/weft-core/src/status.rs";

/// Words for values.
const CONSTANTS: &[&str] = &["FALSE", "NULL", "TRUE"];

/// The words of the language by kind; each word is in one list.
struct Words {
    /// Keywords that are no names unless quoted: in any case.
    reserved: Vec<String>,
    /// Other keywords: in capitals only, since a column may have the name `key`.
    keywords: Vec<String>,
    types: Vec<String>,
    constants: Vec<String>,
    /// In lower case, and in capitals if that is no other word: `TEXT (8)` is a type.
    functions: Vec<String>,
    statuses: Vec<String>,
}

/// The syntax files, in the form of book pages.
pub(crate) fn pages(root: &Path) -> Result<Vec<Page>, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let words =
        Words::of(&read(WORDS)?, &read(FUNCTIONS)?, &read(RESERVED)?, &read(TYPES)?, &read(STATUSES)?);
    let grammar = serde_json::to_string_pretty(&words.textmate()).expect("it is JSON");
    Ok(vec![
        ("editors/vscode/syntaxes/weft.tmLanguage.json".to_owned(), grammar + "\n"),
        ("editors/nvim/syntax/weft.vim".to_owned(), words.vim()),
    ])
}

impl Words {
    fn of(words: &str, functions: &str, reserved: &str, types: &str, statuses: &str) -> Self {
        let table = words.rsplit_once("KEYWORDS:\n").map_or("", |(_, table)| table);
        let table = table.split("#[cfg(test)]").next().unwrap_or_default();
        let all: BTreeSet<String> = first_texts(table).filter(|word| is_keyword(word)).collect();
        let types: BTreeSet<String> =
            types.lines().filter(|line| line.contains("TypeKind::")).flat_map(first_texts).collect();
        let list = reserved.split("const RESERVED").nth(1).and_then(|rest| rest.split("];").next());
        let reserved: BTreeSet<String> = first_texts(list.unwrap_or_default()).collect();
        let aggregates = functions.lines().filter(|line| line.contains("const AGGREGATES"));
        let aggregates = aggregates.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned);
        let names = element_functions(functions).filter_map(|(text, ..)| text.split('(').next());
        let functions: BTreeSet<String> = names.map(str::to_owned).chain(aggregates).collect();
        let is_free = |word: &String| !types.contains(word) && !all.contains(word);
        let capitals: Vec<String> =
            functions.iter().map(|word| word.to_uppercase()).filter(is_free).collect();
        let names = statuses.lines().filter(|line| line.contains(" = ") && line.trim_end().ends_with("\","));
        let is_plain = |word: &&String| !types.contains(*word) && !CONSTANTS.contains(&word.as_str());
        let (reserved, keywords) =
            all.iter().filter(is_plain).cloned().partition(|word| reserved.contains(word));
        Self {
            constants: CONSTANTS.iter().map(|word| (*word).to_owned()).collect(),
            reserved,
            keywords,
            functions: functions.into_iter().chain(capitals).collect(),
            statuses: names.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())).collect(),
            types: types.into_iter().filter(|word| is_keyword(word)).collect(),
        }
    }

    /// A TextMate grammar: one pattern per kind of token; the first match counts.
    fn textmate(&self) -> serde_json::Value {
        let words = |words: &[String]| format!("\\b(?:{})\\b", words.join("|"));
        let matched =
            |name: &str, pattern: String| json!({ "name": format!("{name}.weft"), "match": pattern });
        json!({
            "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
            "name": "Weft",
            "scopeName": "source.weft",
            "fileTypes": ["weft"],
            "patterns": [
                matched("comment.line.double-dash", "--.*$".to_owned()),
                json!({ "name": "comment.block.weft", "begin": "/\\*", "end": "\\*/" }),
                matched("string.quoted.single", "'(?:[^']|'')*(?:'|$)".to_owned()),
                matched("variable.other.quoted", "\"(?:[^\"]|\"\")*(?:\"|$)".to_owned()),
                // After a dot, any word is a name.
                matched("variable.other.member", "\\.\\s*[A-Za-z_][A-Za-z0-9_]*".to_owned()),
                matched(
                    "constant.numeric",
                    "\\b(?:0[xX][0-9A-Fa-f_]+|[0-9][0-9_]*(?:\\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9]+)?)\\b".to_owned(),
                ),
                matched("constant.language", format!("(?i){}", words(&self.constants))),
                matched("keyword.control", format!("(?i){}", words(&self.reserved))),
                matched("constant.other.status", words(&self.statuses)),
                json!({
                    "match": format!("\\b({})\\s*\\(", self.functions.join("|")),
                    "captures": { "1": { "name": "support.function.weft" } },
                }),
                matched("storage.type", words(&self.types)),
                matched("keyword.other", words(&self.keywords)),
                matched("keyword.operator", "->|:=|<>|!=|<=|>=|\\|\\||[-+*/%<>=]".to_owned()),
                matched("variable.other", "\\b[A-Za-z_][A-Za-z0-9_]*\\b".to_owned()),
            ],
        })
    }

    fn vim(&self) -> String {
        let lines = |group: &str, words: &[String]| -> String {
            let mut lines = String::new();
            for words in words.chunks(10) {
                lines += &format!("syn keyword {group} {}\n", words.join(" "));
            }
            lines
        };
        format!(
            "\" Vim syntax file for Weft. Made by `cargo xtask book` from the tables of the language: do not edit it.\n\
             if exists('b:current_syntax')\n  finish\nendif\n\nsyn case ignore\n{}{}\nsyn case match\n{}{}{}\n\
             syn match weftFunction '\\v<({})>\\ze\\s*\\('\n\
             syn match weftMember '\\v\\.\\s*\\h\\w*'\n\
             syn match weftNumber '\\v<(0x[0-9A-Fa-f_]+|\\d[0-9_]*(\\.\\d[0-9_]*)?([eE][+-]?\\d+)?)>'\n\
             syn match weftOperator '->\\|:=\\|<>\\|!=\\|<=\\|>=\\|||'\n\
             syn region weftString start=/'/ skip=/''/ end=/'/ oneline\n\
             syn region weftQuoted start=/\"/ skip=/\"\"/ end=/\"/ oneline\n\
             syn match weftComment '--.*$' contains=@Spell\n\
             syn region weftComment start='/\\*' end='\\*/' contains=@Spell\n\n\
             hi def link weftReserved Statement\nhi def link weftKeyword Keyword\nhi def link weftConstant Constant\n\
             hi def link weftType Type\nhi def link weftStatus Constant\nhi def link weftFunction Function\n\
             hi def link weftNumber Number\nhi def link weftOperator Operator\nhi def link weftString String\n\
             hi def link weftQuoted Identifier\nhi def link weftComment Comment\n\nlet b:current_syntax = 'weft'\n",
            lines("weftReserved", &self.reserved),
            lines("weftConstant", &self.constants),
            lines("weftKeyword", &self.keywords),
            lines("weftType", &self.types),
            lines("weftStatus", &self.statuses),
            self.functions.join("|"),
        )
    }
}

/// The first text in quotes of each line.
fn first_texts(source: &str) -> impl Iterator<Item = String> {
    source
        .lines()
        .filter_map(|line| Some(line.trim_start().strip_prefix(['"', '('])?.trim_start_matches('"')))
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
}

fn is_keyword(word: &str) -> bool {
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    word.starts_with(|first: char| first.is_ascii_uppercase()) && word.bytes().all(is_capital)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyword_is_in_one_list() {
        // If this failed, a word would have two colours, or none.
        let words = ["KEY", "SELECT", "TEXT", "TRUE"].map(|word| format!("    \"{word}\" \"doc\";\n"));
        let words = format!("    KEYWORDS:\n{}}}\n", words.concat());
        let functions = "const AGGREGATES: &[&str] = &[\"sum\"];\nfunctions! {\n    \
                         \"abs(T) T\" \"x\" S::Abs, element(F::Abs);\n    \"no()\" \"x\" S::No, queue(Q);\n}\n";
        let reserved = "const RESERVED: &[&str] = &[\n    \"SELECT\",\n];\n";
        let types = "    (\"TEXT\", TypeKind::Text(None)),\n    (\"no\", 1),\n";
        let found = Words::of(&words, functions, reserved, types, "    Aborted = 10 \"ABORTED\",\n");
        assert_eq!(found.reserved, ["SELECT"]);
        assert_eq!(found.keywords, ["KEY"]);
        assert_eq!(found.types, ["TEXT"]);
        assert_eq!(found.functions, ["abs", "sum", "ABS", "SUM"]);
        assert_eq!(found.statuses, ["ABORTED"]);
        let grammar = found.textmate().to_string();
        for pattern in ["(?i)\\\\b(?:SELECT)\\\\b", "\\\\b(?:KEY)\\\\b", "\\\\b(?:TEXT)\\\\b"] {
            assert!(grammar.contains(pattern), "{pattern} in {grammar}");
        }
        assert!(found.vim().contains("syn keyword weftKeyword KEY\n"));
    }
}
