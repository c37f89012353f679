//! Loads all files of a program from a path: imports, schemas, and the top-level names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use weft_core::schema::{FieldKind, Schema};

use crate::ast::{Ast, Import, Item, Kind, SchemaKind, StrLit, TypeItem};
use crate::diagnostic::{Diagnostic, code};
use crate::nearest::nearest;
use crate::parser;
use crate::source::{DIAGNOSTICS_MAX, FileId, SourceMap, Span};

/// Provides the texts. Only the resolver accesses files, so the front end stays pure.
pub trait Resolver {
    /// The text of a Weft file. `path` is as written; `from` is the file that names it, None for the root.
    ///
    /// # Errors
    /// Why it cannot be read, as a clause: `there is no such file`.
    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String>;

    /// The schema that a file of another language defines, including its imports; paths as for [`Resolver::text`].
    ///
    /// # Errors
    /// Why there is none.
    fn schema(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault>;

    /// The canonical name of a file, by which files are compared; `from` is a name returned by this method.
    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        relative(path, from)
    }

    /// The paths of files that any program can import, such as `library/queues/codel.weft`: for diagnostics.
    fn library(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The file kinds of `CREATE TYPE`.
#[derive(Clone, Debug)]
pub struct SchemaSource<'a> {
    /// The kind of the file.
    pub kind: SchemaKind,
    /// Its path, as written.
    pub path: &'a str,
    /// The root folders for the file and its imports, as written; empty if none are given.
    pub roots: Vec<&'a str>,
}

impl TypeItem {
    /// The schema source that it names.
    pub fn schema(&self) -> SchemaSource<'_> {
        let roots = self.roots.iter().map(|root| root.value.as_str()).collect();
        SchemaSource { kind: self.source, path: &self.path.value, roots }
    }
}

/// Why there is no schema.
#[derive(Clone, Debug, Default)]
pub struct SchemaFault {
    /// The fact, as a clause.
    pub why: String,
    /// A help, if any.
    pub help: Option<String>,
    /// The location of the error, if it is in a text.
    pub place: Option<Box<SchemaLocation>>,
}

/// A location in a text of another language.
#[derive(Clone, Debug)]
pub struct SchemaLocation {
    /// The name of the file.
    pub name: String,
    /// The text of the file.
    pub text: String,
    /// The byte range of the error in the text.
    pub range: Range<usize>,
    /// Line and column of its first byte, from 1.
    pub line_and_column: (usize, usize),
}

impl From<String> for SchemaFault {
    fn from(why: String) -> Self {
        Self { why, ..Self::default() }
    }
}

/// The name of a file that another file imports by this path: relative to that file, unless the path is absolute.
pub fn relative(path: &str, from: Option<&str>) -> String {
    let folder = from.and_then(|from| from.rsplit_once('/')).map(|(folder, _)| folder);
    match folder {
        Some(folder) if !path.starts_with('/') => normalized(&format!("{folder}/{path}")),
        _ => normalized(path),
    }
}

/// All files of a program.
#[derive(Debug, Default)]
pub struct Program {
    /// The items of all files: the items of an imported file are at its first import.
    pub items: Vec<Item>,
    /// The schemas of all `TYPE`s, merged.
    pub schema: Schema,
    /// The number of syntax errors that do not hide declarations.
    pub n_errors_apart: usize,
    /// The imports, each with the name of the imported file, even if it could not be read.
    pub imports: Vec<(StrLit, String)>,
}

/// Reads the file at `root_path` and all that it imports, each once.
pub fn load(
    root_path: &str,
    resolver: &mut dyn Resolver,
    sources: &mut SourceMap,
    diagnostics: &mut Vec<Diagnostic>,
) -> Program {
    let mut loader = Loader { resolver, sources, diagnostics, state: BTreeMap::new(), stack: Vec::new() };
    let mut program = Program::default();
    let name = loader.resolver.name(root_path, None);
    match loader.resolver.text(root_path, None) {
        Ok(text) => loader.file(name, text, &mut program),
        Err(why) => {
            let message = format!("cannot read `{root_path}`: {why}");
            loader.diagnostics.push(Diagnostic::error(code::IMPORT_FAILED, message));
        }
    }
    loader.check_unique(&program.items);
    if diagnostics.len() > FILE_DIAGNOSTICS_MAX {
        diagnostics.truncate(FILE_DIAGNOSTICS_MAX);
        let message = format!(
            "more than {FILE_DIAGNOSTICS_MAX} errors in the files of this program; further errors are not shown"
        );
        diagnostics.push(Diagnostic::error(code::TOO_MANY_DIAGNOSTICS, message));
    }
    program
}

/// A path for a message; an overlong path is cut.
fn shown(path: &str) -> String {
    match path.char_indices().nth(PATH_CHARS_SHOWN) {
        Some((end, _)) => format!("{}...", &path[..end]),
        None => path.to_owned(),
    }
}

/// The maximum length of a path in a message.
const PATH_CHARS_SHOWN: usize = 200;

/// The maximum number of file errors reported for a program.
const FILE_DIAGNOSTICS_MAX: usize = 1000;

/// Removes `.` and resolves `..` in a path with slashes.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| !last.is_empty() && *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Open,
    Done,
}

struct Loader<'a> {
    resolver: &'a mut dyn Resolver,
    sources: &'a mut SourceMap,
    diagnostics: &'a mut Vec<Diagnostic>,
    state: BTreeMap<String, Visit>,
    /// The open files, each with the import that opened it.
    stack: Vec<(String, Option<Span>)>,
}

/// The maximum import depth; each level uses a stack frame.
const IMPORT_DEPTH_MAX: usize = 64;

impl Loader<'_> {
    /// Loads a file, its imports and schemas, and adds its items to the program.
    fn file(&mut self, name: String, text: String, program: &mut Program) {
        self.state.insert(name.clone(), Visit::Open);
        if self.stack.is_empty() {
            self.stack.push((name.clone(), None));
        }
        match self.sources.add(name.clone(), text) {
            Ok(file) => {
                let ast = self.parse(file, program);
                for item in ast.items {
                    self.item(item, &name, program);
                }
            }
            Err(diagnostic) => self.diagnostics.push(*diagnostic),
        }
        self.state.insert(name, Visit::Done);
    }

    /// Parses a file, and counts errors that hide no declarations.
    fn parse(&mut self, file: FileId, program: &mut Program) -> Ast {
        let (ast, diagnostics) = parser::parse(self.sources, file);
        if !ast.misses_declarations {
            program.n_errors_apart += diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
        }
        self.diagnostics.extend(diagnostics);
        ast
    }

    /// Adds an item to the program. An import loads a file, and a type its schema.
    fn item(&mut self, item: Item, file_name: &str, program: &mut Program) {
        match item {
            Item::Import(import) => self.import(&import, file_name, program),
            Item::Type(item) => {
                self.schema(&item, file_name, program);
                program.items.push(Item::Type(item));
            }
            item => program.items.push(item),
        }
    }

    /// Loads an imported file, unless it is loaded. Reports cycles and too deep nesting.
    fn import(&mut self, import: &Import, from: &str, program: &mut Program) {
        let StrLit { value: path, span } = &import.path;
        let name = self.resolver.name(path, Some(from));
        program.imports.push((import.path.clone(), name.clone()));
        match self.state.get(&name) {
            Some(Visit::Done) => return,
            Some(Visit::Open) => return self.report_cycle(&name, *span),
            None if self.stack.len() >= IMPORT_DEPTH_MAX => {
                let message = format!("imports are nested more than {IMPORT_DEPTH_MAX} files deep");
                let help = "import the file from the root instead";
                let diagnostic = Diagnostic::error(code::IMPORT_FAILED, message);
                self.diagnostics.push(diagnostic.at(*span, "one level too deep").with_help(help));
                return;
            }
            None => {}
        }
        match self.resolver.text(path, Some(from)) {
            Ok(text) => {
                self.stack.push((name.clone(), Some(*span)));
                self.file(name, text, program);
                self.stack.pop();
            }
            Err(why) => {
                // A second import of the same file would only repeat the errors.
                self.state.insert(name, Visit::Done);
                let message = format!("cannot import `{}`: {why}", shown(path));
                let diagnostic = Diagnostic::error(code::IMPORT_FAILED, message).at(*span, "imported here");
                let diagnostic = match self.near_in_library(path) {
                    Some(near) => diagnostic
                        .with_help(format!("the library has `{near}`"))
                        .with_fix(*span, format!("'{near}'")),
                    None => diagnostic
                        .with_help(format!("paths are relative to the file that imports, here `{from}`")),
                };
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// The library file with the name of this path, or a similar name.
    fn near_in_library(&self, path: &str) -> Option<String> {
        fn name(path: &str) -> &str {
            let file = path.rsplit('/').next().unwrap_or(path);
            file.strip_suffix(".weft").unwrap_or(file)
        }
        let files = self.resolver.library();
        let names = || files.iter().map(|file| name(file));
        let near = names().find(|known| *known == name(path)).or_else(|| nearest(name(path), names()))?;
        files.iter().find(|file| name(file) == near && *file != path).cloned()
    }

    /// Reports an import cycle, with the imports that lead around it.
    fn report_cycle(&mut self, name: &str, span: Span) {
        let start = self.stack.iter().position(|(open, _)| open == name).unwrap_or(0);
        let names: Vec<&str> = self.stack[start..].iter().map(|(open, _)| open.as_str()).collect();
        let message = format!("cyclic import: {} -> {name}", names.join(" -> "));
        let mut diagnostic =
            Diagnostic::error(code::IMPORT_CYCLE, message).at(span, "this import closes the cycle");
        for via in self.stack[start + 1..].iter().filter_map(|(_, via)| *via) {
            diagnostic = diagnostic.with_label(via, "through this import");
        }
        let help = "move the shared part into a third file, and import it from both";
        self.diagnostics.push(diagnostic.with_help(help));
    }

    /// Loads the schema of a `CREATE TYPE`.
    fn schema(&mut self, item: &TypeItem, from: &str, program: &mut Program) {
        let source = item.schema();
        match self.resolver.schema(&source, Some(from)) {
            Ok(schema) => merge(&mut program.schema, schema),
            Err(fault) => self.report_schema(&source, item.path.span, fault),
        }
    }

    /// Reports why a file gives no schema; the location is in that file if its text is available.
    fn report_schema(&mut self, source: &SchemaSource<'_>, span: Span, fault: SchemaFault) {
        let SchemaFault { why, help, place } = fault;
        let of = format!("cannot read the messages of `{}`", shown(source.path));
        let code = match (&place, source.kind) {
            (Some(_), _) => code::PROTO_FAULT,
            (None, SchemaKind::Proto) => code::PROTO_FAILED,
            (None, SchemaKind::Descriptors) => code::DESCRIPTORS_FAILED,
        };
        let shown_at = place.as_ref().and_then(|place| {
            let file = self.schema_text(place)?;
            Some(Span::new(file, place.range.start as u32, place.range.end as u32))
        });
        let diagnostic = match (shown_at, &place) {
            (Some(at), _) => {
                Diagnostic::error(code, format!("{of}: {why}")).at(at, "here").with_label(span, "named here")
            }
            (None, Some(place)) => {
                let (SchemaLocation { name, .. }, (line, column)) = (&**place, place.line_and_column);
                Diagnostic::error(code, format!("{of}: {name}:{line}:{column}: {why}")).at(span, "named here")
            }
            (None, None) => Diagnostic::error(code, format!("{of}: {why}")).at(span, "named here"),
        };
        self.diagnostics.push(match help {
            Some(help) => diagnostic.with_help(help),
            None => diagnostic,
        });
    }

    /// The schema file's text in the source map; None if it is too large.
    fn schema_text(&mut self, place: &SchemaLocation) -> Option<FileId> {
        let known = self.sources.files().find(|(_, file)| file.name() == place.name);
        match known.map(|(id, _)| id) {
            Some(id) => Some(id),
            None => self.sources.add(place.name.clone(), place.text.clone()).ok(),
        }
    }

    /// Reports items of one kind with the same name. DROP frees a name.
    fn check_unique(&mut self, items: &[Item]) {
        let mut seen: BTreeMap<(u8, &str), (Kind, Span)> = BTreeMap::new();
        let mut n_reported = 0;
        for item in items {
            if let Item::Drop(drop) = item {
                let slot = (namespace(drop.kind), drop.name.name.as_str());
                if seen.get(&slot).is_some_and(|(kind, _)| *kind == drop.kind) {
                    seen.remove(&slot);
                }
            }
            let Some((kind, ident, replaces)) = named(item) else { continue };
            let slot = (namespace(kind), ident.name.as_str());
            let (first_kind, first) = *seen.entry(slot).or_insert((kind, ident.span));
            if first == ident.span || (replaces && first_kind == kind) {
                continue;
            }
            n_reported += 1;
            if n_reported > DIAGNOSTICS_MAX {
                break;
            }
            let (word, first_word) = (kind_word(kind), kind_word(first_kind));
            let (message, help) = match first_kind == kind {
                true => (
                    format!("two {word}s are named `{}`", ident.name),
                    format!("rename one, or write `CREATE OR REPLACE {}`", word.to_uppercase()),
                ),
                false => (
                    format!("{first_word} and {word} have the same name, `{}`", ident.name),
                    "rename one: a stage of a chain refers to it by this name".to_owned(),
                ),
            };
            let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, message).at(ident.span, "the second");
            self.diagnostics.push(diagnostic.with_label(first, "the first").with_help(help));
        }
    }
}

/// Kinds that share a namespace have the same number: stages are elements or filters.
fn namespace(kind: Kind) -> u8 {
    match kind {
        Kind::Filter => Kind::Element as u8,
        other => other as u8,
    }
}

/// The word of a kind in a sentence.
pub(crate) const fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Type => "type",
        Kind::Table => "table",
        Kind::Element => "element",
        Kind::Filter => "filter",
        Kind::Chain => "chain",
        Kind::Listener => "listener",
        Kind::Cluster => "cluster",
        Kind::Route => "route",
        Kind::Function => "function",
        Kind::Protocol => "protocol",
        Kind::Port => "port",
        Kind::Group => "group",
        Kind::Queue => "queue",
        Kind::Link => "link",
    }
}

/// Kind and name of an item that creates something, and whether it replaces an existing one.
pub(crate) fn named(item: &Item) -> Option<(Kind, &crate::ast::Ident, bool)> {
    Some(match item {
        Item::Type(item) => (Kind::Type, &item.name, item.or_replace),
        Item::Table(item) => (Kind::Table, &item.name, item.or_replace),
        Item::Element(item) => (Kind::Element, &item.name, item.or_replace),
        Item::Filter(item) => (Kind::Filter, &item.name, item.or_replace),
        Item::Chain(item) => (Kind::Chain, &item.name, item.or_replace),
        Item::Listener(item) => (Kind::Listener, &item.name, item.or_replace),
        Item::Cluster(item) => (Kind::Cluster, &item.name, item.or_replace),
        Item::Route(item) => (Kind::Route, &item.name, item.or_replace),
        Item::Function(item) => (Kind::Function, &item.name, item.or_replace),
        Item::Protocol(item) => (Kind::Protocol, &item.name, item.or_replace),
        Item::Union(item) => (Kind::Protocol, &item.name, item.or_replace),
        Item::Port(item) => (Kind::Port, &item.name, item.or_replace),
        Item::Group(item) => (Kind::Group, &item.name, item.or_replace),
        Item::Queue(item) => (Kind::Queue, &item.name, item.or_replace),
        Item::Link(item) => (Kind::Link, &item.name, item.or_replace),
        Item::Import(_) | Item::Drop(_) | Item::Insert(_) => return None,
    })
}

/// Adds the new messages, enums and services of `from`; those in both come from the same file, imported twice.
fn merge(into: &mut Schema, from: Schema) {
    let messages = places(into.messages.iter().map(|m| &*m.name), from.messages.iter().map(|m| &*m.name));
    let enums = places(into.enums.iter().map(|e| &*e.name), from.enums.iter().map(|e| &*e.name));
    for (mut message, &at) in from.messages.into_iter().zip(&messages) {
        if at < into.messages.len() {
            continue;
        }
        for field in &mut message.fields {
            field.kind = match field.kind {
                FieldKind::Message(index) => FieldKind::Message(messages[index]),
                FieldKind::Enum(index) => FieldKind::Enum(enums[index]),
                other => other,
            };
        }
        into.messages.push(message);
    }
    for (new, at) in from.enums.into_iter().zip(enums) {
        if at >= into.enums.len() {
            into.enums.push(new);
        }
    }
    let known: BTreeSet<String> = into.services.iter().map(|service| service.name.clone()).collect();
    for mut service in from.services.into_iter().filter(|service| !known.contains(&service.name)) {
        for method in &mut service.methods {
            method.input = messages[method.input];
            method.output = messages[method.output];
        }
        into.services.push(service);
    }
}

/// The indices of these names in a list that starts with the old names; new names are appended.
fn places<'a>(old: impl Iterator<Item = &'a str>, new: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut known: BTreeMap<&str, usize> = old.zip(0..).collect();
    let mut next = known.len();
    let mut place = |name| {
        *known.entry(name).or_insert_with(|| {
            next += 1;
            next - 1
        })
    };
    new.map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::schema::{Field, Message, Presence};

    #[test]
    fn merged_schemas_keep_references() {
        // An index that is off by one would check a program against another message.
        let inner = |index| Field::new("inner", 1, FieldKind::Message(index), Presence::Explicit);
        let message =
            |name: &str, refers: Option<usize>| Message::new(name, refers.map(inner).into_iter().collect());
        let mut into =
            Schema { messages: vec![message("a", None), message("b", Some(0))], ..Schema::default() };
        let from = Schema {
            messages: vec![message("c", Some(2)), message("a", None), message("d", Some(0))],
            ..Schema::default()
        };
        merge(&mut into, from);
        let names: Vec<&str> = into.messages.iter().map(|message| message.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!(into.messages[2].fields[0].kind, FieldKind::Message(3));
        assert_eq!(into.messages[3].fields[0].kind, FieldKind::Message(2));
    }

    #[test]
    fn equal_paths_are_one_file() {
        // A file imported under two spellings would define everything twice.
        assert_eq!(normalized("a/./b/../c.weft"), "a/c.weft");
        assert_eq!(normalized("../c.weft"), "../c.weft");
        assert_eq!(normalized("/a/../../b"), "/../b");
    }
}
