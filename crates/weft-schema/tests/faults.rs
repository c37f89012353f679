//! Faults are reported with their location, and no input takes long or overflows the stack.

use std::fmt::Write as _;
use weft_core::schema::{FieldKind, Presence, Schema};
use weft_schema::{BYTES_MAX, FILES_MAX, ImportLookup, Source, compile, from_descriptors};

fn source(name: &str, text: &str) -> Source {
    Source { name: name.to_owned(), text: text.into() }
}

/// Compiles `a.proto` with these other files.
fn compiled(text: &str, others: &[(&str, &str)]) -> Result<Schema, String> {
    let mut find = |path: &str| match others.iter().find(|(name, _)| *name == path) {
        Some((name, text)) => ImportLookup::File(source(name, text)),
        None => ImportLookup::Missing("there is no such file".to_owned()),
    };
    compile(source("a.proto", text), &mut find).map_err(|fault| fault.to_string())
}

fn fault(text: &str) -> String {
    match compiled(text, &[]) {
        Err(why) => why,
        Ok(_) => panic!("it is taken: {:.200}", text),
    }
}

#[test]
fn fault_has_line_and_column() {
    // If this fails, the author of the file has to search for the fault.
    let table = [
        ("message M {\n  string user = 1\n}\n", "4:1: expected `;`, and found `}`"),
        ("message M { strin user = 1; }", "2:13: there is no message or enum `strin`"),
        ("message M { string a = 0; }", "2:24: a field number is from 1 to 536870911"),
        ("message M { string a = 19001; }", "2:24: protobuf reserves the numbers from 19000 to 19999"),
        ("message M { string a = 1; int32 b = 1; }", "2:33: number 1 is that of `a` too"),
        ("message M { string a = 1; int32 a = 2; }", "2:33: `M` has two fields `a`"),
        ("message M {} enum M { A = 0; }", "2:19: `M` is declared twice"),
        ("message M { required string a = 1; }", "2:13: proto3 has no `required` fields"),
        ("message M { oneof o { optional string a = 1; } }", "2:23: a member of a oneof has no label"),
        (
            "message M { map<float, string> a = 1; }",
            "2:17: the key of a map is an integer, a bool or a string",
        ),
        ("message M {", "2:12: expected a field, or `}`, and found the end of the file"),
        ("import 'b.proto';", "2:8: cannot import `b.proto`: there is no such file"),
        ("import '../b.proto';", "2:8: an import path is relative to a root folder, and stays inside it"),
        ("option x = { a: ", "2:12: this `{` has no `}`"),
        ("service S { rpc Do(N) returns (N); }", "2:20: there is no message or enum `N`"),
        ("message N {} /* \u{e9}", "2:14: this comment has no end: `*/`"),
        ("message \u{e9} {}", "2:9: 'é' is not expected here"),
        ("enum E { A = 4294967296; }", "2:14: an enum number has 32 bits"),
    ];
    for (text, expected) in table {
        assert_eq!(fault(&format!("syntax = \"proto3\";\n{text}")), format!("a.proto:{expected}"), "{text}");
    }
    assert_eq!(
        fault("syntax = 'proto4';"),
        "a.proto:1:10: syntax `proto4` does not exist: proto2 and proto3 do"
    );
    let later = "a.proto:1:11: edition `2077` is not supported: 2023 and 2024 are";
    assert_eq!(fault("edition = '2077';"), later);
    let no_label = "a.proto:1:13: a field of proto2 begins with `optional`, `required` or `repeated`";
    assert_eq!(fault("message M { string a = 1; }"), no_label);
    let optional = "a.proto:1:31: editions have no `optional`: a field is, unless a feature says otherwise";
    assert_eq!(fault("edition = '2023'; message M { optional string a = 1; }"), optional);
}

#[test]
fn public_import_exports_names() {
    // If this fails, a name means another message than in protoc.
    let b = ("b.proto", "syntax = 'proto3'; package p; message B {}");
    let public = ("c.proto", "syntax = 'proto3'; package p; import public 'b.proto';");
    let plain = ("c.proto", "syntax = 'proto3'; package p; import 'b.proto';");
    let a = "syntax = 'proto3'; package p; import 'c.proto'; message A { B b = 1; }";
    assert!(compiled(a, &[b, public]).is_ok());
    let told = "a.proto:1:61: `B` is in `b.proto`, which `a.proto` does not import";
    assert_eq!(compiled(a, &[b, plain]).as_ref().map_err(String::as_str), Err(told));
    let circle = [("b.proto", "import 'c.proto';"), ("c.proto", "import 'b.proto';")];
    let told = "c.proto:1:8: imports form a cycle: b.proto -> c.proto -> b.proto";
    assert_eq!(compiled("import 'b.proto';", &circle).as_ref().map_err(String::as_str), Err(told));
}

#[test]
fn features_decide_the_wire() {
    // If this fails, a field of an edition is read by the rules of another edition.
    let text = "\u{feff}edition = '2023'; option features.field_presence = IMPLICIT;
        enum E { option features.enum_type = CLOSED; A = 1; }
        message M { int32 a = 1; int32 b = 2 [features = { field_presence: EXPLICIT }, deprecated = true];
          M c = 3 [features.message_encoding = DELIMITED, (x).y = { z: [1, 2] w { v: '}' } }];
          E e = 4 [features.field_presence = LEGACY_REQUIRED]; oneof o { string s = 5; }
          map<string, M> m = 6 [features.message_encoding = DELIMITED];
          extensions 100 to max [verification = UNVERIFIED]; reserved foo, bar; reserved 50 to 60; }
        extend M { int32 x = 100; }";
    let schema = compiled(text, &[]).expect("it is right");
    let m = &schema.messages[schema.message("M").expect("it is declared")];
    let of = |name| m.field(name).map(|field| (field.presence, field.is_delimited)).expect("it is declared");
    assert_eq!((of("a"), of("b")), ((Presence::Implicit, false), (Presence::Explicit, false)));
    assert_eq!((of("c"), of("e")), ((Presence::Explicit, true), (Presence::Explicit, false)));
    assert_eq!((of("s"), of("m")), ((Presence::Explicit, false), (Presence::Repeated, false)));
    assert!(schema.enums[0].is_closed && m.field("x").is_none());
    let text = "message M { required int32 a = 1; repeated group G = 2 { optional M m = 1; } }
        extend M { optional group X = 100 { optional int32 y = 1; } }";
    let schema = compiled(text, &[]).expect("it is right");
    let names: Vec<&str> = schema.messages.iter().map(|message| message.name.as_str()).collect();
    assert_eq!(names, ["M", "M.G", "X"]);
    let group = schema.messages[0].field("g").expect("its name is in lower case");
    assert!(group.is_delimited && group.kind == FieldKind::Message(1));
}

#[test]
fn hostile_file_ends_soon() {
    // If this fails, a bundle stalls a node or overflows its stack.
    let nested = |n: usize| format!("syntax='proto3';{}{}", "message M{".repeat(n), "}".repeat(n));
    assert!(compiled(&nested(32), &[]).is_ok());
    let groups = format!("message M{{{}", "optional group G=1{".repeat(100_000));
    let extends = format!("message M{{{}", "extend M{optional group G=1{".repeat(100_000));
    for text in [nested(33), nested(100_000), groups, extends] {
        assert!(fault(&text).ends_with("messages nest deeper than 32"));
    }
    let braces = format!("option x = {}{};", "{a".repeat(500_000), "}".repeat(500_000));
    assert!(compiled(&braces, &[]).is_ok());
    assert!(fault(&format!("package {}a;", "a.".repeat(1000))).ends_with("a name has at most 1024 bytes"));
    let mut wide = "syntax = 'proto3'; message M { oneof o {".to_owned();
    for at in 20_000..120_000 {
        let _ = write!(wide, "string f{at}={at};");
    }
    assert_eq!(compiled(&(wide + "}}"), &[]).expect("it is right").messages[0].fields.len(), 100_000);
    assert!(fault(&" ".repeat(BYTES_MAX + 1)).contains("exceed the limit of"));
}

#[test]
fn many_public_imports_end_soon() {
    // If this fails, files with mutual public imports stall a node.
    let mut find = |path: &str| {
        let at: usize = path[1..].trim_end_matches(".proto").parse().expect("a number");
        let imports = (0..at).map(|below| format!("import public 'f{below}.proto';"));
        ImportLookup::File(source(path, &imports.collect::<String>()))
    };
    let last = format!("import public 'f{}.proto';", FILES_MAX - 2);
    assert!(compile(source("a.proto", &last), &mut find).is_ok());
}

#[test]
fn damaged_set_is_refused() {
    // If this fails, bytes that are not a descriptor set become a schema or a panic.
    for bytes in
        [&b""[..], b"\x00", b"syntax = \"proto3\";", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x04\x22\x02\x12\x00"]
    {
        assert!(from_descriptors(bytes).is_err(), "{bytes:?}");
    }
    // file { name: "a" dependency: "b" }
    let lacks = from_descriptors(b"\x0a\x06\x0a\x01a\x1a\x01b").unwrap_err();
    assert_eq!(lacks.to_string(), "`a` imports `b`, which is not in it");
    let within = |tag: u8, bytes: &[u8]| {
        let length = [bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8];
        [&[tag], &length[..], bytes].concat()
    };
    let deep = (0..200).fold(Vec::new(), |inner, _| within(0x1a, &inner));
    let set = within(0x0a, &within(0x22, &deep));
    assert_eq!(from_descriptors(&set).unwrap_err().to_string(), "messages in it nest deeper than 32");
}
