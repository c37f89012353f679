//! Generates the book's page of native functions from their table.
//!
//! After a change of the table, run the test with `UPDATE_EXPECT=1`.

#![allow(clippy::disallowed_methods, reason = "the test reads the page that it compares with")]

use std::fmt::Write as _;
use std::path::Path;
use weft_core::native::{Info, NATIVE_BYTES_MAX, NATIVES, NativeOption};

const PAGE: &str = "../../docs/src/reference/native-functions.md";

#[test]
fn reference_page_matches_table() {
    // A wrong signature or cost in the book would be worse than none.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &page).expect("the book can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "{} is out of date: run this test with UPDATE_EXPECT=1", path.display());
}

fn page() -> String {
    let mut page = include_str!("reference.md").replace("{mib}", &(NATIVE_BYTES_MAX >> 20).to_string());
    for (title, wants) in [("Called by name", false), ("Declared first", true)] {
        let _ =
            writeln!(page, "## {title}\n\n| function | what it gives | fails | effect | takes back | cost |");
        page += "| --- | --- | --- | --- | --- | --- |\n";
        for info in NATIVES.iter().filter(|info| info.needs_key == wants) {
            page += &row(info);
        }
        page += "\n";
    }
    page += "## Options\n\n| option | type | of | what it is |\n| --- | --- | --- | --- |\n";
    for (option, of) in options() {
        let of: Vec<String> = of.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", option.name, option.ty, of.join(", "), option.doc);
    }
    page += "\nThe forms of keys, and how nonces are kept from repeating: [keys](../guide/keys.md).\n";
    page
}

fn row(info: &Info) -> String {
    let back = info.inverse.map_or(String::new(), |native| format!("`{}`", native.name()));
    format!(
        "| `{}` | {} | {} | {} | {back} | {} + {}/KiB |\n",
        info.signature(),
        info.doc,
        info.fails.unwrap_or(""),
        info.effect.word(),
        info.cost.base_ns,
        info.cost.ns_per_kib,
    )
}

/// The options, each with its functions.
fn options() -> Vec<(NativeOption, Vec<&'static str>)> {
    let mut all: Vec<(NativeOption, Vec<&str>)> = Vec::new();
    for info in NATIVES {
        for option in info.options {
            match all.iter_mut().find(|(known, _)| known.name == option.name) {
                Some((_, of)) => of.push(info.name),
                None => all.push((*option, vec![info.name])),
            }
        }
    }
    all
}
