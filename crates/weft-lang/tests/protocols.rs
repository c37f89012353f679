//! The library's protocols: each file is valid by itself, and all together.

#![allow(clippy::disallowed_methods, reason = "the library is read from disk")]

use std::path::PathBuf;

use weft_core::schema::Schema;
use weft_core::wire::{HEADER_BYTES_MAX, Protocol};
use weft_lang::diagnostic::{RenderOptions, code, render_all};
use weft_lang::format::format;
use weft_lang::hir::{ColumnLocation, Edge, Network, Outlet};
use weft_lang::resolve::{SchemaFault, SchemaSource};
use weft_lang::source::SourceMap;
use weft_lang::{Resolver, check};

#[path = "support/files.rs"]
mod files;

/// A text that can import files of the library.
struct Library(String);

impl Resolver for Library {
    fn text(&mut self, path: &str, _from: Option<&str>) -> Result<String, String> {
        match path {
            "root.weft" => Ok(self.0.clone()),
            path => std::fs::read_to_string(files::root().join(path)).map_err(|error| error.to_string()),
        }
    }

    fn schema(&mut self, _: &SchemaSource<'_>, _from: Option<&str>) -> Result<Schema, SchemaFault> {
        Err("no messages are needed".to_owned().into())
    }

    fn name(&mut self, path: &str, _from: Option<&str>) -> String {
        path.to_owned()
    }
}

fn checked(text: String) -> Network {
    let (network, mut diagnostics, sources) = check("root.weft", &mut Library(text));
    // The pieces of a page are separate programs; combined, a chain could match the frames of a later one.
    diagnostics.retain(|diagnostic| diagnostic.code != code::CHAIN_UNREACHABLE);
    let rendered = render_all(&diagnostics, &sources, RenderOptions::default());
    assert!(diagnostics.is_empty(), "{rendered}");
    network.expect("there is no error")
}

/// The files of the library's protocols, as IMPORT paths.
fn imports() -> Vec<String> {
    let mut found: Vec<String> = files::programs(&[])
        .into_iter()
        .filter(|path: &PathBuf| path.parent().is_some_and(|folder| folder.ends_with("protocols")))
        .map(|path| format!("library/protocols/{}", path.file_name().expect("a file").display()))
        .collect();
    found.sort();
    found
}

#[test]
fn library_and_examples_are_formatted() {
    // Examples for readers must be formatted.
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    for file in files::programs(&["examples"]) {
        let path = file.display().to_string();
        let text = std::fs::read_to_string(&file).expect("it is text");
        let mut sources = SourceMap::new();
        let id = sources.add(path.clone(), text.clone()).expect("it is small");
        let formatted = format(&sources, id).expect("it has no fault");
        if is_update {
            std::fs::write(&file, &formatted).expect("the library can be written");
        } else {
            assert_eq!(formatted, text, "{path}");
        }
    }
}

/// If this fails, an example copied from a page refers to a missing name.
#[test]
fn page_examples_check() {
    for import in imports() {
        let text = std::fs::read_to_string(files::root().join(&import)).expect("it is text");
        let lines = text.lines().skip_while(|line| *line != "-- EXAMPLE").skip(1);
        let example: Vec<&str> = lines.map_while(|line| line.strip_prefix("--   ")).collect();
        assert!(!example.is_empty(), "{import} has no example");
        let head = "IMPORT 'library/protocols/all.weft'; IMPORT 'library/elements/monitor.weft';
            CREATE PORT wan ON memory; CREATE PORT lan ON memory; CREATE PORT core ON memory;
            CREATE PORT fabric ON memory;\n";
        checked(format!("{head}{}", example.join("\n")));
    }
}

fn all() -> Network {
    checked(imports().iter().map(|path| format!("IMPORT '{path}';\n")).collect())
}

#[test]
fn library_files_check_alone_and_together() {
    // If this fails, a program that imports one protocol gets errors of the library.
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
fn book_programs_check() {
    // Readers copy these programs. `acl` and other elements that the page uses are defined here.
    let page =
        std::fs::read_to_string(files::root().join("docs/src/reference/protocols.md")).expect("it is there");
    let blocks = page.split("```sql\n").skip(1).map(|block| block.split("```").next().expect("a block ends"));
    let mut program = "IMPORT 'library/protocols/all.weft';\nCREATE PORT wan ON memory;\n".to_owned();
    for name in ["firewall", "monitor"] {
        program += &format!("CREATE ELEMENT {name} ON packet AS ON PACKET FORWARD; END;\n");
    }
    // The page shows a library file.
    program.extend(blocks.map(|block| block.replace("CREATE PROTOCOL", "CREATE OR REPLACE PROTOCOL")));
    checked(program);
}

#[test]
fn header_lengths_match_rfcs() {
    // A field that is too wide or missing shifts all fields after it.
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
        ("sctp", 12, 12),
        ("vxlan", 8, 8),
        ("geneve", 8, 260),
        ("gre", 4, 16),
        ("mpls", 4, 4),
        ("nsh", 8, 268),
        ("mqtt", 2, 5),
    ] {
        assert!(sizes.contains(&known), "{known:?} is not among {sizes:?}");
    }
}

const PROGRAM: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT lan ON packet 'eth0';
CREATE PORT wan ON memory;
CREATE ELEMENT syns ON tcp (user IPADDR) AS
  VAR n U64 = 0 MERGE SUM;
  ON PACKET
    IF tcp.syn AND NOT tcp.ack AND inner.ip.src IS NULL AND ethernet.type > 0 THEN ADD n; END IF;
    SELECT * FROM input WHERE user = ip.src;
    SET ip.ttl = 1;
    IF present(vlan) THEN REDIRECT TO '*'; END IF;
END;
CREATE CHAIN c ON PORT lan -> wan WHEN ip.dst IN '10.0.0.0/8' AS syns (user := ip.dst); END;";

#[test]
fn frame_element_declares_its_columns() {
    // If this fails, lowering looks for a column at the wrong location, or treats a missing field as present.
    let network = checked(PROGRAM.to_owned());
    let element = &network.elements[0];
    let columns: Vec<(&str, bool)> =
        element.columns.iter().map(|column| (column.name.as_str(), column.nullable)).collect();
    let wanted = [
        ("user", false),
        ("tcp.syn", false),
        ("tcp.ack", false),
        ("inner.ip.src", true),
        // A frame may begin with IP.
        ("ethernet.type", true),
        // IP carries TCP, with or without extension headers.
        ("ip.src", false),
        ("ip.ttl", false),
        ("present(vlan)", false),
    ];
    assert_eq!(columns, wanted);
    let chain = &network.chains[0];
    let places: Vec<String> = chain.instances[0]
        .bindings
        .iter()
        .map(|binding| match &binding.place {
            ColumnLocation::Frame(field) => network.field_name(field),
            other => panic!("{other:?} is no place of a frame"),
        })
        .collect();
    assert_eq!(
        places,
        ["ip.dst", "tcp.syn", "tcp.ack", "inner.ip.src", "ethernet.type", "ip.src", "ip.ttl", "vlan"]
    );
    let Edge::Packets { ports, to, when: Some(when) } = &chain.edge else { panic!("{:?}", chain.edge) };
    assert_eq!((ports.as_slice(), *to), (&[0][..], Some(Outlet::Port(1))));
    let (element, instance) = &**when;
    assert_eq!(element.columns.len(), instance.bindings.len());
    assert!(element.handlers.request.as_ref().is_some_and(|handler| handler.effects.drops));
}
