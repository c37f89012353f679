//! Compares the schemas of real `.proto` files with protoc's.
//!
//! Needs `python3` with the package `grpcio-tools`; without it the tests say so and pass. `WEFT_PROTO_ROOTS` names
//! further folders, separated by `:`, whose `.proto` files are compared as well.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the test runs a foreign implementation"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_core::schema::{FieldKind, Schema};
use weft_schema::{ImportLookup, Source, compile, from_descriptors};

/// The folder of protoc's own `.proto` files.
fn well_known() -> Option<PathBuf> {
    let program = "import grpc_tools, os; print(os.path.dirname(grpc_tools.__file__) + '/_proto')";
    let done = Command::new("python3").args(["-c", program]).stderr(Stdio::null()).output();
    let Some(done) = done.ok().filter(|done| done.status.success()) else {
        eprintln!("skipped: python3 has no package `grpcio-tools`");
        return None;
    };
    Some(String::from_utf8(done.stdout).expect("a path is text").trim().into())
}

/// The relative paths of all `.proto` files in a folder.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read").map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|ending| ending == "proto") {
                found.push(entry.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The first file with this path in the roots.
fn find(roots: &[PathBuf], path: &str) -> ImportLookup {
    let paths = roots.iter().map(|root| root.join(path));
    let mut texts =
        paths.filter_map(|path| Some((path.display().to_string(), fs::read_to_string(path).ok()?)));
    match texts.next() {
        Some((name, text)) => ImportLookup::File(Source { name, text: text.into() }),
        None => ImportLookup::Missing("there is no such file".to_owned()),
    }
}

fn ours(roots: &[PathBuf], path: &str) -> Result<Schema, String> {
    let ImportLookup::File(root) = find(roots, path) else { panic!("{path} is there") };
    compile(root, &mut |path| find(roots, path)).map_err(|fault| fault.to_string())
}

/// protoc's schema of a file; `None` if protoc refuses it.
fn theirs(roots: &[PathBuf], path: &str) -> Option<Schema> {
    static NTH: AtomicUsize = AtomicUsize::new(0);
    let nth = NTH.fetch_add(1, Ordering::Relaxed);
    let out = std::env::temp_dir().join(format!("weft-{}-{nth}.binpb", std::process::id()));
    let mut protoc = Command::new("python3");
    protoc.args(["-m", "grpc_tools.protoc", "--include_imports"]).arg(path);
    protoc.args(roots.iter().map(|root| format!("-I{}", root.display())));
    protoc.arg(format!("--descriptor_set_out={}", out.display())).stderr(Stdio::null());
    let is_taken = protoc.status().expect("it was there before").success();
    let set = is_taken.then(|| fs::read(&out).expect("protoc wrote it"));
    let _ = fs::remove_file(out);
    Some(from_descriptors(&set?).unwrap_or_else(|fault| panic!("the set of {path}: {fault}")))
}

/// All declarations of a schema, by name: protoc orders files differently.
fn by_name(schema: &Schema) -> BTreeMap<&str, String> {
    let message = |at: usize| &schema.messages[at].name;
    let kind = |kind| match kind {
        FieldKind::Message(at) => message(at).clone(),
        FieldKind::Enum(at) => schema.enums[at].name.clone(),
        kind => format!("{kind:?}"),
    };
    let mut all = BTreeMap::new();
    for message in &schema.messages {
        let told = message.fields.iter().map(|f| {
            let kind = kind(f.kind);
            format!("{} {} {kind} {:?} {:?} {}\n", f.name, f.number, f.presence, f.oneof, f.is_delimited)
        });
        all.insert(message.name.as_str(), told.collect());
    }
    all.extend(schema.enums.iter().map(|of| (of.name.as_str(), format!("{of:?}"))));
    for service in &schema.services {
        let told = service.methods.iter().map(|m| {
            let (input, output) = (message(m.input), message(m.output));
            format!("{} {input} {output} {} {}\n", m.name, m.client_streaming, m.server_streaming)
        });
        all.insert(service.name.as_str(), told.collect());
    }
    all
}

fn assert_same(roots: &[PathBuf], path: &str) {
    match (ours(roots, path), theirs(roots, path)) {
        (Ok(ours), Some(theirs)) => assert_eq!(by_name(&ours), by_name(&theirs), "{path}"),
        (Err(why), Some(_)) => panic!("protoc reads {path}: {why}"),
        // protoc also checks option names and enum values, which have no effect here.
        (_, None) => eprintln!("protoc refuses {path}"),
    }
}

/// If this fails, a field of a built-in file is missing or wrong, and programs do not find it.
#[test]
fn well_known_files_match_protoc() {
    let Some(root) = well_known() else { return };
    let paths = files(&root);
    assert!(paths.len() >= 10, "{paths:?}");
    // The features of other languages are for other compilers.
    for path in paths.iter().filter(|path| !path.ends_with("_features.proto")) {
        let text = format!("syntax = 'proto3'; import '{path}';");
        let source = Source { name: "a.proto".to_owned(), text: text.into() };
        let built_in = compile(source, &mut |_| ImportLookup::Missing("it is not looked for".to_owned()));
        let built_in = built_in.unwrap_or_else(|why| panic!("{why}"));
        let theirs = theirs(std::slice::from_ref(&root), path).expect("protoc reads its own files");
        assert_eq!(by_name(&built_in), by_name(&theirs), "{path}");
    }
}

/// If this fails, a file that protoc accepts is refused or means something else.
#[test]
fn real_files_match_protoc() {
    let Some(own) = well_known() else { return };
    for path in files(&own) {
        assert_same(std::slice::from_ref(&own), &path);
    }
    let trees = std::env::var("WEFT_PROTO_ROOTS").unwrap_or_default();
    for tree in trees.split(':').filter(|tree| !tree.is_empty()) {
        let roots: Vec<PathBuf> = std::iter::once(tree).chain(trees.split(':')).map(PathBuf::from).collect();
        let roots = [roots, vec![own.clone()]].concat();
        for path in files(Path::new(tree)) {
            assert_same(&roots, &path);
        }
    }
}
