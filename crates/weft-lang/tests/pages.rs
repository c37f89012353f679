//! The parser accepts the examples of the book; fragments are embedded in a suitable context.

#![allow(clippy::disallowed_methods, reason = "tests read the files that they compare with")]

use std::path::Path;

use weft_core::Time;
use weft_lang::check::table_statement::statements;
use weft_lang::diagnostic::Diagnostic;
use weft_lang::hir::Network;
use weft_lang::parser::parse;
use weft_lang::source::SourceMap;

#[path = "support/files.rs"]
mod files;
use files::{programs, root};

/// The contexts of fragments: the text before and after.
const AROUND: [(&str, &str); 7] = [
    ("", ""),
    ("CREATE ELEMENT e ON rpc AS ON REQUEST ", " END;"),
    ("CREATE ELEMENT e ON rpc AS ", " ON REQUEST FORWARD; END;"),
    ("CREATE ELEMENT e ON rpc AS ", " END;"),
    ("CREATE FILTER f ON rpc AS ", " END;"),
    ("CREATE QUEUE q AS ", " END;"),
    ("CREATE CHAIN c ON l -> k AS a; ", " END;"),
];

/// The hand-written folders of the book; the library's pages are generated from its files.
const FOLDERS: [&str; 3] = ["docs/src/reference", "docs/src/guide", "docs/src/concepts"];

fn is_read(text: &str) -> bool {
    let mut sources = SourceMap::new();
    let is_program = AROUND.iter().any(|(before, behind)| {
        let file = sources.add("page.weft", format!("{before}{text}{behind}")).expect("it is small");
        !parse(&sources, file).1.iter().any(Diagnostic::is_error)
    });
    let (_, faults, _) = statements(&Network::default(), &sources, text, Time(0));
    // The statement needs a table that does not exist.
    is_program || faults.iter().all(|fault| fault.code.0 >= "W02")
}

#[test]
fn book_examples_parse() {
    // If this fails, an example copied from a page is rejected at its first word.
    assert!(!programs(&[]).is_empty(), "the library is where the tests look for it");
    let (mut n_blocks, mut wrong) = (0, Vec::new());
    for folder in FOLDERS {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder of the book") {
            let path = entry.expect("it can be listed").path();
            if path.extension().is_none_or(|ending| ending != Path::new("md")) {
                continue;
            }
            let page = std::fs::read_to_string(&path).expect("a page is text");
            for block in page.split("```sql\n").skip(1) {
                let block = block.split("```").next().unwrap_or_default();
                n_blocks += 1;
                if !is_read(block) {
                    wrong.push(format!("{}:\n{block}", path.display()));
                }
            }
        }
    }
    assert!(n_blocks > 40, "{n_blocks} examples");
    assert!(wrong.is_empty(), "{} examples are not read:\n{}", wrong.len(), wrong.join("\n"));
}
