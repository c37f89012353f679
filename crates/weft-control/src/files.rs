//! The files of a program: finds imports, library files and schemas. A [`Store`] reads them.

use crate::library;
use weft_api::{AtFault, Binary, Bundle};
use weft_core::schema::Schema;
use weft_lang::ast::SchemaKind;
use weft_lang::resolve::{Resolver, SchemaFault, SchemaLocation, SchemaSource, relative};
use weft_schema::{ImportLookup, Source};

/// The largest sum of all schemas of a program, in bytes. A file that two schemas read counts twice, since it is
/// compiled twice.
const SCHEMA_BYTES_MAX: usize = 256 << 20;

/// The number of folders above the working directory in which an import of a `.proto` file is searched.
const LEVELS_ABOVE_MAX: usize = 16;

/// The place that has the files of a program. Names of files are paths, relative to the working directory.
pub trait Store: Send {
    /// Reads a text.
    ///
    /// # Errors
    /// It is missing, unreadable, too large, or no text.
    fn text(&mut self, name: &str) -> Result<String, ReadError>;

    /// Reads bytes.
    ///
    /// # Errors
    /// The file is missing, unreadable or too large.
    fn bytes(&mut self, name: &str) -> Result<Vec<u8>, ReadError>;
}

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The reason, as a clause.
    pub why: String,
    /// Whose fault that is.
    pub at_fault: AtFault,
    /// The file does not exist.
    pub is_absent: bool,
}

impl ReadError {
    fn absent(why: String) -> Self {
        Self { why, at_fault: AtFault::Environment, is_absent: true }
    }

    fn not_in_bundle() -> Self {
        Self::absent("it is not in the bundle".to_owned())
    }
}

impl Store for Bundle {
    fn text(&mut self, name: &str) -> Result<String, ReadError> {
        self.files.get(name).cloned().ok_or_else(ReadError::not_in_bundle)
    }

    fn bytes(&mut self, name: &str) -> Result<Vec<u8>, ReadError> {
        let found = self.binary.get(name).map(|Binary(bytes)| bytes.clone());
        found.ok_or_else(ReadError::not_in_bundle)
    }
}

/// Reads files, and keeps everything that it read.
pub struct Files {
    store: Box<dyn Store>,
    /// The files read so far, without a root.
    read: Bundle,
    /// A file that the program names could not be read.
    is_incomplete: bool,
    /// Bytes of schemas, counted each time they are read.
    schema_bytes: usize,
}

impl Files {
    /// Reads from a store; searches the folders `proto_paths` for `.proto` files.
    pub fn new(store: impl Store + 'static, proto_paths: Vec<String>) -> Self {
        let read = Bundle { proto_paths, ..Bundle::default() };
        Self { store: Box::new(store), read, is_incomplete: false, schema_bytes: 0 }
    }

    /// Reads only from a bundle.
    pub fn in_bundle(bundle: &Bundle) -> Self {
        Self::new(bundle.clone(), bundle.proto_paths.clone())
    }

    /// Reads one text, `a.weft`; its imports are in the library.
    pub fn of_text(text: &str) -> Self {
        let files = [("a.weft".to_owned(), text.to_owned())].into();
        Self::new(Bundle { files, ..Bundle::default() }, Vec::new())
    }

    /// Everything that was read, to be sent elsewhere. It omits library files: every node has its own.
    pub fn into_bundle(self, root: &str) -> Bundle {
        Bundle { root: root.to_owned(), ..self.read }
    }

    /// The file that a program in the file `from` names for a schema, and the files that it imports, by name.
    pub fn proto_files(mut self, source: &SchemaSource<'_>, from: &str) -> Vec<String> {
        // Ignore errors: the check of the program has reported them.
        let _ = self.schema(source, Some(from));
        let mut names: Vec<String> =
            self.read.files.into_keys().chain(self.read.binary.into_keys()).collect();
        let file = source.path.rsplit('/').next().unwrap_or(source.path);
        names.sort_by_key(|name| !name.ends_with(file));
        names
    }

    /// The cause if the program is wrong: a program with an unreadable file may itself be right.
    pub fn at_fault(&self) -> AtFault {
        if self.is_incomplete { AtFault::Environment } else { AtFault::Program }
    }

    /// Reads a file of the program, and records it as read.
    fn load(&mut self, name: &str) -> Result<String, ReadError> {
        let text = self.store.text(name)?;
        self.read.files.insert(name.to_owned(), text.clone());
        Ok(text)
    }

    /// Reads a binary file of the program, and records it as read.
    fn load_binary(&mut self, name: &str) -> Result<Vec<u8>, ReadError> {
        let bytes = self.store.bytes(name)?;
        self.read.binary.insert(name.to_owned(), Binary(bytes.clone()));
        Ok(bytes)
    }

    /// Notes that a file of the program is missing, if that is not the program's own fault.
    fn miss(&mut self, unread: &ReadError) {
        self.is_incomplete |= unread.at_fault == AtFault::Environment;
    }
}

impl Resolver for Files {
    /// A library file is the same for all importers, with two exceptions: the importer has a file of that name beside
    /// it, or the importer is in a library folder that has it.
    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        let name = relative(path, from);
        if library::text(path).is_none() || self.load(&name).is_ok() {
            return name;
        }
        let sibling = from.and_then(above_library).map(|folder| format!("{folder}{path}"));
        sibling.filter(|name| self.load(name).is_ok()).unwrap_or_else(|| path.to_owned())
    }

    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String> {
        let name = self.name(path, from);
        let text = self.load(&name).or_else(|why| library::text(path).map(str::to_owned).ok_or(why));
        text.inspect_err(|unread| self.miss(unread)).map_err(|unread| unread.why)
    }

    fn library(&self) -> Vec<String> {
        library::paths().map(str::to_owned).collect()
    }

    fn schema(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault> {
        match source.kind {
            SchemaKind::Proto => self.proto(source, from),
            SchemaKind::Descriptors => {
                let bytes = self.load_binary(&relative(source.path, from));
                let bytes = bytes
                    .inspect_err(|unread| self.miss(unread))
                    .map_err(|unread| not_there(unread, from))?;
                self.count_schema(bytes.len())?;
                weft_schema::from_descriptors(&bytes).map_err(|fault| SchemaFault::from(fault.why))
            }
        }
    }
}

impl Files {
    /// The schema of a `.proto` file. Imports are searched in the folders that the program names, then in those of
    /// `--proto-path`. If the program names none, they are searched in the file's folder and in those above it.
    fn proto(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault> {
        let named = source.roots.iter().map(|root| relative(root, from));
        let roots = named.chain(self.read.proto_paths.iter().map(|root| relative(root, None)));
        let mut roots: Vec<String> = roots.map(folder_named).collect();
        let found = match source.roots.is_empty() {
            true => {
                let beside = relative(source.path, from);
                let found = match self.load(&beside) {
                    Err(unread) if unread.is_absent => self.find_proto(&roots, source.path)?.ok_or(unread),
                    Ok(text) => {
                        self.count_schema(text.len())?;
                        Ok(Source { name: beside, text: text.into() })
                    }
                    Err(unread) => Err(unread),
                };
                roots.extend(found.iter().flat_map(|found| folders_from(&found.name)));
                found.map_err(|unread| (unread, from))
            }
            false => {
                let found = self.find_proto(&roots, source.path)?;
                found.ok_or_else(|| (ReadError::absent(format!("it is not in {}", list(&roots))), None))
            }
        };
        let root = found.map_err(|(unread, from)| {
            self.miss(&unread);
            not_there(unread, from)
        })?;
        let mut unread = None;
        let compiled = weft_schema::compile(root, &mut |path| match self.find_proto(&roots, path) {
            Ok(Some(found)) => ImportLookup::File(found),
            Ok(None) => ImportLookup::Missing("there is no such file".to_owned()),
            Err(fault) => ImportLookup::Missing(unread.insert(fault).why.clone()),
        });
        compiled.map_err(|fault| {
            // For a file that could not be read, the cause is already noted.
            self.is_incomplete |= fault.is_missing && unread.is_none();
            let help = (fault.is_missing && unread.is_none()).then(|| match source.roots.is_empty() {
                true => {
                    "say in which folder it lies: `FROM PROTO '...' IN 'folder'`, or `--proto-path folder`"
                        .to_owned()
                }
                false => format!("it is looked for in {}", list(&roots)),
            });
            let place = fault.location.map(|location| {
                let line_and_column = location.line_and_column();
                let weft_schema::Location { source: Source { name, text }, range } = location;
                Box::new(SchemaLocation { name, text: text.to_string(), range, line_and_column })
            });
            SchemaFault { why: fault.why, help, place }
        })
    }

    /// Adds bytes that are about to be compiled.
    fn count_schema(&mut self, n_bytes: usize) -> Result<(), SchemaFault> {
        self.schema_bytes += n_bytes;
        if self.schema_bytes <= SCHEMA_BYTES_MAX {
            return Ok(());
        }
        let why =
            format!("the types of the program have more than {SCHEMA_BYTES_MAX} bytes, which is the limit");
        Err(SchemaFault::from(why))
    }

    /// The first file of this path in these folders.
    fn find_proto(&mut self, roots: &[String], path: &str) -> Result<Option<Source>, SchemaFault> {
        for root in roots {
            let name = relative(path, Some(&format!("{root}/")));
            match self.load(&name) {
                Ok(text) => {
                    self.count_schema(text.len())?;
                    return Ok(Some(Source { name, text: text.into() }));
                }
                Err(unread) if unread.is_absent => {}
                Err(unread) => {
                    self.miss(&unread);
                    return Err(SchemaFault::from(format!("`{name}`: {}", unread.why)));
                }
            }
        }
        Ok(None)
    }
}

/// A folder as a prefix before `/`: without a `/` at its end, and never empty.
fn folder_named(folder: String) -> String {
    match folder.trim_end_matches('/') {
        "" if folder.is_empty() => ".".to_owned(),
        "" => "/".to_owned(),
        named => named.to_owned(),
    }
}

/// The folder of a file, its parent, and so on. Above the working directory the names go on with `..`.
fn folders_from(name: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut folder = folder_of(name).to_owned();
    let mut n_above = 0;
    loop {
        folders.push(folder.clone());
        if folder == "/" || n_above == LEVELS_ABOVE_MAX {
            return folders;
        }
        let is_above = folder == "." || folder == ".." || folder.ends_with("/..");
        n_above += usize::from(is_above);
        folder = match folder.as_str() {
            "." => "..".to_owned(),
            above if is_above => format!("{above}/.."),
            inside => folder_of(inside).to_owned(),
        };
    }
}

/// The fault of a named file that is missing or unreadable.
fn not_there(unread: ReadError, from: Option<&str>) -> SchemaFault {
    let help = from.filter(|_| unread.is_absent);
    let help = help.map(|from| format!("paths are relative to the file that names them, here `{from}`"));
    SchemaFault { why: unread.why, help, place: None }
}

fn list(folders: &[String]) -> String {
    folders.iter().map(|folder| format!("`{folder}`")).collect::<Vec<_>>().join(", ")
}

/// The part before `library/...` in the name of a file that looks like a library file.
fn above_library(name: &str) -> Option<&str> {
    let mut folders = library::paths().filter_map(|path| name.strip_suffix(path));
    folders.find(|folder| folder.is_empty() || folder.ends_with('/'))
}

/// The folder part of a path; `.` if it has none.
pub fn folder_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn bundle(files: &[(&str, &str)]) -> Bundle {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Bundle { files, ..Bundle::default() }
    }

    fn source<'a>(path: &'a str, roots: &[&'a str]) -> SchemaSource<'a> {
        SchemaSource { kind: SchemaKind::Proto, path, roots: roots.to_vec() }
    }

    /// The names of the messages, or the reason that there are none.
    fn messages(
        bundle: &Bundle,
        source: &SchemaSource<'_>,
        from: Option<&str>,
    ) -> Result<Vec<String>, SchemaFault> {
        let schema = Files::in_bundle(bundle).schema(source, from)?;
        Ok(schema.messages.into_iter().map(|message| message.name).collect())
    }

    /// A chain of schema files that import each other would overflow the compiler's stack.
    #[test]
    fn schema_file_count_is_limited() {
        let of = |n: usize| {
            let import = |at: usize| format!("syntax = 'proto3'; import 'p{}.proto';", at + 1);
            let mut files: BTreeMap<_, _> = (0..n).map(|at| (format!("p{at}.proto"), import(at))).collect();
            files.insert(format!("p{n}.proto"), "syntax = 'proto3';".to_owned());
            let bundle = Bundle { files, ..Bundle::default() };
            let compiled = || Files::in_bundle(&bundle).schema(&source("p0.proto", &[]), None);
            compiled()
        };
        assert!(of(weft_schema::FILES_MAX - 1).is_ok());
        let over = of(10 * weft_schema::FILES_MAX);
        assert!(over.is_err_and(|fault| fault.why.contains("more files than the limit of 1024")));
    }

    const ID: &str = "syntax = 'proto3'; package acme; message Id { string value = 1; }";
    const SHOP: &str =
        "syntax = 'proto3'; package shop; import 'acme/id.proto'; message Req { acme.Id id = 1; }";

    /// Trees of `.proto` files name each other from their root, which no program states.
    #[test]
    fn import_resolves_from_parent_folder() {
        let names = Ok(vec!["acme.Id".to_owned(), "shop.Req".to_owned()]);
        for root in ["", "protos/", "/srv/protos/", "../"] {
            let (id, shop) = (format!("{root}acme/id.proto"), format!("{root}acme/shop/v1/shop.proto"));
            let bundle = bundle(&[(&id, ID), (&shop, SHOP)]);
            let found = messages(&bundle, &source(&shop, &[]), None);
            assert_eq!(found.map_err(|fault| fault.why), names, "{root}");
        }
        let above = bundle(&[("../../acme/id.proto", ID), ("shop.proto", SHOP)]);
        assert_eq!(messages(&above, &source("shop.proto", &[]), None).map_err(|fault| fault.why), names);
    }

    /// Roots that the program or the command line names would be ignored, or searched in the wrong order.
    #[test]
    fn import_resolves_from_roots() {
        let names = vec!["acme.Id".to_owned(), "shop.Req".to_owned()];
        let files = bundle(&[("n/vendor/shop.proto", SHOP), ("n/more/acme/id.proto", ID)]);
        let in_both = source("shop.proto", &["vendor", "more"]);
        assert_eq!(messages(&files, &in_both, Some("n/a.weft")).expect("both are named"), names);
        let here = bundle(&[("shop.proto", SHOP), ("more/acme/id.proto", ID)]);
        assert_eq!(
            messages(&here, &source("shop.proto", &[".", "more/"]), Some("a.weft")).expect("both are"),
            names
        );
        let in_one = messages(&files, &source("shop.proto", &["vendor"]), Some("n/a.weft")).unwrap_err();
        assert_eq!(in_one.why, "cannot import `acme/id.proto`: there is no such file");
        assert_eq!(in_one.help.as_deref(), Some("it is looked for in `n/vendor`"));
        assert_eq!(in_one.place.map(|place| place.name), Some("n/vendor/shop.proto".to_owned()));
        // The receiver of a bundle gets the folders of the command line with it.
        let with_path = Bundle { proto_paths: vec!["n/vendor".to_owned(), "n/more".to_owned()], ..files };
        assert_eq!(messages(&with_path, &source("shop.proto", &[]), None).expect("both are named"), names);
        let mut read = Files::in_bundle(&with_path);
        read.schema(&source("shop.proto", &[]), None).expect("both are named");
        assert_eq!(Bundle { root: String::new(), ..read.into_bundle("") }, with_path);
    }

    /// A program with many types from one large file would block a node.
    #[test]
    fn schema_bytes_are_limited() {
        let large = format!("syntax = 'proto3'; // {}", " ".repeat(15 << 20));
        let bundle = bundle(&[("large.proto", &large)]);
        let mut files = Files::in_bundle(&bundle);
        let n_taken = (0..20).take_while(|_| files.schema(&source("large.proto", &[]), None).is_ok()).count();
        assert_eq!(n_taken, SCHEMA_BYTES_MAX / (15 << 20));
    }

    /// The author of the file needs the line.
    #[test]
    fn proto_error_has_location() {
        let files = bundle(&[("a.proto", "syntax = \"proto3\";\nmessage M {\n  strin user = 1;\n}\n")]);
        let fault = messages(&files, &source("a.proto", &[]), None).unwrap_err();
        assert_eq!((fault.why.as_str(), fault.help), ("there is no message or enum `strin`", None));
        assert_eq!(fault.place.map(|place| (place.line_and_column, place.range)), Some(((3, 3), 33..38)));
    }

    /// Text encoding in a bundle would change the bytes.
    #[test]
    fn descriptor_set_survives_a_bundle() {
        // file { name: "p.proto" message_type { name: "M\u{e9}" } }
        let set = b"\x0a\x10\x0a\x07p.proto\x22\x05\x0a\x03M\xc3\xa9".to_vec();
        let binary = BTreeMap::from([("p.binpb".to_owned(), Binary(set.clone()))]);
        let sent = serde_json::to_string(&Bundle { binary, ..Bundle::default() }).expect("it is data");
        let arrived: Bundle = serde_json::from_str(&sent).expect("it is as it was sent");
        let source = SchemaSource { kind: SchemaKind::Descriptors, ..source("p.binpb", &[]) };
        assert_eq!(messages(&arrived, &source, None).expect("it is one"), ["M\u{e9}"]);
        let cut = Binary(set[..set.len() - 1].to_vec());
        let damaged = Bundle { binary: BTreeMap::from([("p.binpb".to_owned(), cut)]), ..Bundle::default() };
        let fault = messages(&damaged, &source, None).unwrap_err();
        assert!(fault.why.starts_with("it is damaged, or no descriptor set"), "{}", fault.why);
    }
}
