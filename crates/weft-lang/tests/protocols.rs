//! The protocols of the library: each file is sound by itself, and all together.

#![allow(clippy::disallowed_methods, reason = "the library is read from disk")]

use std::path::PathBuf;

use weft_core::schema::Schema;
use weft_core::wire::{HEADER_BYTES_MAX, Protocol};
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::hir::Network;
use weft_lang::{Resolver, check};

#[path = "support/files.rs"]
mod files;

/// One text, which may import files of the library.
struct Library(String);

impl Resolver for Library {
    fn text(&mut self, path: &str, _from: Option<&str>) -> Result<String, String> {
        match path {
            "root.weft" => Ok(self.0.clone()),
            path => std::fs::read_to_string(files::root().join(path)).map_err(|error| error.to_string()),
        }
    }

    fn proto(&mut self, _path: &str, _from: Option<&str>) -> Result<Schema, String> {
        Err("no messages are needed".to_owned())
    }

    fn name(&mut self, path: &str, _from: Option<&str>) -> String {
        path.to_owned()
    }
}

fn checked(text: String) -> Network {
    let (network, diagnostics, sources) = check("root.weft", &mut Library(text));
    let told = render_all(&diagnostics, &sources, RenderOptions::default());
    assert!(diagnostics.is_empty(), "{told}");
    network.expect("there is no error")
}

/// The files of the library's protocols, as an `IMPORT` has them.
fn imports() -> Vec<String> {
    let mut found: Vec<String> = files::programs(&[])
        .into_iter()
        .filter(|path: &PathBuf| path.parent().is_some_and(|folder| folder.ends_with("protocols")))
        .map(|path| format!("library/protocols/{}", path.file_name().expect("a file").display()))
        .collect();
    found.sort();
    found
}

fn all() -> Network {
    checked(imports().iter().map(|path| format!("IMPORT '{path}';\n")).collect())
}

#[test]
fn each_file_is_sound_by_itself_and_with_all_others() {
    // A program that imports one protocol would be told of faults that are not its own.
    for path in imports() {
        checked(format!("IMPORT '{path}';"));
    }
    let network = all();
    assert!(network.protocols.len() >= 9, "{} protocols", network.protocols.len());
    for protocol in &network.protocols {
        let Protocol { name, header_min, header_max, .. } = protocol;
        assert!(header_min <= header_max && *header_max <= HEADER_BYTES_MAX, "{name}");
    }
}

#[test]
fn headers_are_as_long_as_their_rfcs_say() {
    // A field that is too wide or missing shifts all behind it.
    let network = all();
    let sizes: Vec<(&str, u32, u32)> =
        network.protocols.iter().map(|p| (p.name.as_str(), p.header_min, p.header_max)).collect();
    for known in [
        ("ethernet", 14, 14),
        ("vlan", 4, 4),
        ("arp", 28, 28),
        ("ipv4", 20, 60),
        ("ipv6", 40, 40),
        ("ipv6_hopopts", 8, 2048),
        ("ipv6_fragment", 8, 8),
        ("tcp", 20, 60),
        ("udp", 8, 8),
    ] {
        assert!(sizes.contains(&known), "{known:?} is not among {sizes:?}");
    }
}
