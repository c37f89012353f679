//! Links declared files into a schema: loads the imports and resolves the names.

use crate::declared::{Enum, Features, Field, FieldPresence, File, ImportKind, Label, Message, Name, Type};
use crate::{BYTES_MAX, FILES_MAX, Fault, ImportLookup, NAME_BYTES_MAX, Source, parser, well_known};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::schema::{self, FieldKind, Presence, Schema};

/// Compiles a `.proto` file and all its imports. `find` returns the file for an import path, and is called once per
/// path.
///
/// # Errors
/// A file is missing or malformed, a name cannot be resolved, or a limit is exceeded.
pub fn compile(root: Source, find: &mut dyn FnMut(&str) -> ImportLookup) -> Result<Schema, Fault> {
    let mut loading =
        Loading { find, linked: Vec::new(), by_name: BTreeMap::new(), by_path: BTreeMap::new(), n_bytes: 0 };
    loading.add(root)?;
    let mut at = 0;
    while at < loading.linked.len() {
        loading.imports(at)?;
        at += 1;
    }
    link(&loading.linked, true)
}

/// A file with its resolved imports.
pub(crate) struct Linked {
    pub(crate) source: Source,
    pub(crate) file: File,
    /// File indexes. `None` for an optional import that is missing.
    pub(crate) imports: Vec<Option<usize>>,
}

struct Loading<'f> {
    find: &'f mut dyn FnMut(&str) -> ImportLookup,
    linked: Vec<Linked>,
    by_name: BTreeMap<String, usize>,
    by_path: BTreeMap<String, Option<usize>>,
    n_bytes: usize,
}

impl Loading<'_> {
    /// Parses a file and adds it, unless it is known. Returns its index. Fails at the limits on files and bytes.
    fn add(&mut self, source: Source) -> Result<usize, Fault> {
        if let Some(&known) = self.by_name.get(&source.name) {
            return Ok(known);
        }
        if self.linked.len() >= FILES_MAX {
            return Err(Fault::new(format!("it imports more files than the limit of {FILES_MAX}")));
        }
        self.n_bytes += source.text.len();
        if self.n_bytes > BYTES_MAX {
            return Err(Fault::new(format!("its files exceed the limit of {BYTES_MAX} bytes")));
        }
        let file = parser::parse(&source.text).map_err(|error| Fault::at(error.why, &source, error.span))?;
        let at = self.linked.len();
        self.by_name.insert(source.name.clone(), at);
        self.linked.push(Linked { source, file, imports: Vec::new() });
        Ok(at)
    }

    /// Loads the imports of the file at this index.
    fn imports(&mut self, at: usize) -> Result<(), Fault> {
        for import in 0..self.linked[at].file.imports.len() {
            let import = &self.linked[at].file.imports[import];
            let (path, kind, span) = (import.path.clone(), import.kind, import.span.clone());
            let found = match self.by_path.get(&path) {
                Some(&known) => known,
                None => {
                    let found = match (self.find)(&path) {
                        ImportLookup::File(source) => Ok(Some(self.add(source)?)),
                        ImportLookup::Missing(why) => match well_known::text(&path) {
                            Some(text) => {
                                Ok(Some(self.add(Source { name: path.clone(), text: text.into() })?))
                            }
                            None => Err(why),
                        },
                    };
                    let found = match found {
                        Err(_) if kind == ImportKind::Lax => None,
                        Err(why) => {
                            let why = format!("cannot import `{path}`: {why}");
                            let fault = Fault::at(why, &self.linked[at].source, span);
                            return Err(Fault { is_missing: true, ..fault });
                        }
                        Ok(found) => found,
                    };
                    // Do not cache a missing optional import: elsewhere the same path may be required.
                    if found.is_some() {
                        self.by_path.insert(path, found);
                    }
                    found
                }
            };
            self.linked[at].imports.push(found);
        }
        Ok(())
    }
}

/// Links the files of a descriptor set. Their names are already resolved.
pub(crate) fn link_descriptors(files: Vec<(String, File)>) -> Result<Schema, Fault> {
    let mut by_name = BTreeMap::new();
    let mut linked: Vec<Linked> = Vec::new();
    for (name, file) in files {
        if by_name.insert(name.clone(), linked.len()).is_some() {
            return Err(Fault::new(format!("`{name}` is in it twice")));
        }
        linked.push(Linked { source: Source { name, text: "".into() }, file, imports: Vec::new() });
    }
    let mut at = 0;
    while at < linked.len() {
        for import in 0..linked[at].file.imports.len() {
            let path = linked[at].file.imports[import].path.clone();
            if !by_name.contains_key(&path)
                && let Some(text) = well_known::text(&path)
            {
                let file = parser::parse(text).map_err(|error| Fault::new(error.why))?;
                by_name.insert(path.clone(), linked.len());
                linked.push(Linked {
                    source: Source { name: path.clone(), text: "".into() },
                    file,
                    imports: Vec::new(),
                });
            }
            let found = by_name.get(&path).copied();
            if found.is_none() && linked[at].file.imports[import].kind != ImportKind::Lax {
                let why = format!("`{}` imports `{path}`, which is not in it", linked[at].source.name);
                return Err(Fault { is_missing: true, ..Fault::new(why) });
            }
            linked[at].imports.push(found);
        }
        at += 1;
    }
    link(&linked, false)
}

/// The meaning of a full name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Message(usize),
    Enum(usize),
    Package,
    Service,
}

/// A message with its full name, file and inherited features.
struct ScopedMessage<'a> {
    message: &'a Message,
    full_name: String,
    file: usize,
    features: Features,
}

struct Linker<'a> {
    files: &'a [Linked],
    /// Each name with the file that declares it; a package with the first such file.
    symbols: BTreeMap<String, (Symbol, usize)>,
    messages: Vec<ScopedMessage<'a>>,
    enums: Vec<schema::Enum>,
    /// For each file, the set of files whose names it sees. `None`: every file sees all names.
    visible: Option<Vec<FileSet>>,
}

/// Resolves all names of the files. With `is_checked`, a file sees only the names of its imports.
fn link(files: &[Linked], is_checked: bool) -> Result<Schema, Fault> {
    let order = in_order(files)?;
    let visible = is_checked.then(|| visible(files, &order));
    let mut linker =
        Linker { files, symbols: BTreeMap::new(), messages: Vec::new(), enums: Vec::new(), visible };
    for &at in &order {
        linker.declare_file(at)?;
    }
    let messages: Vec<_> =
        linker.messages.iter().map(|scoped| linker.message(scoped)).collect::<Result<_, _>>()?;
    let services = linker.services(&order)?;
    Ok(Schema { messages, enums: linker.enums, services })
}

/// Sorts the file indexes in dependency order: imports come first.
fn in_order(files: &[Linked]) -> Result<Vec<usize>, Fault> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        New,
        Open,
        Done,
    }
    let mut state = vec![Visit::New; files.len()];
    let mut order = Vec::with_capacity(files.len());
    for root in 0..files.len() {
        if state[root] != Visit::New {
            continue;
        }
        state[root] = Visit::Open;
        let mut open = vec![(root, 0)];
        while let Some((at, next)) = open.last_mut() {
            let (at, import) = (*at, *next);
            *next += 1;
            match files[at].imports.get(import) {
                None => {
                    state[at] = Visit::Done;
                    order.push(at);
                    open.pop();
                }
                Some(&Some(inner)) if state[inner] == Visit::Open => {
                    let names = open.iter().map(|(at, _)| *at).skip_while(|at| *at != inner);
                    let names: Vec<_> = names.take(5).map(|at| files[at].source.name.as_str()).collect();
                    let why = format!(
                        "imports form a cycle: {} -> {}",
                        names.join(" -> "),
                        files[inner].source.name
                    );
                    let span = files[at].file.imports[import].span.clone();
                    return Err(Fault::at(why, &files[at].source, span));
                }
                Some(&Some(inner)) if state[inner] == Visit::New => {
                    state[inner] = Visit::Open;
                    open.push((inner, 0));
                }
                Some(_) => {}
            }
        }
    }
    Ok(order)
}

/// A set of file indexes.
#[derive(Clone)]
struct FileSet([u64; FILES_MAX / 64]);

impl FileSet {
    fn of(file: usize) -> Self {
        let mut set = Self([0; FILES_MAX / 64]);
        set.0[file / 64] |= 1 << (file % 64);
        set
    }

    /// Adds the files of another set.
    fn add(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    fn has(&self, file: usize) -> bool {
        self.0[file / 64] >> (file % 64) & 1 == 1
    }
}

/// Returns, for each file, the files whose names it sees: itself, its imports, and their public imports,
/// transitively.
fn visible(files: &[Linked], order: &[usize]) -> Vec<FileSet> {
    let own: Vec<FileSet> = (0..files.len()).map(FileSet::of).collect();
    let (mut exported, mut visible) = (own.clone(), own);
    for &at in order {
        let imports = files[at].imports.iter().zip(&files[at].file.imports);
        for (inner, import) in imports.filter_map(|(inner, import)| Some(((*inner)?, import))) {
            let of_inner = exported[inner].clone();
            visible[at].add(&of_inner);
            if import.kind == ImportKind::Public {
                exported[at].add(&of_inner);
            }
        }
    }
    visible
}

impl<'a> Linker<'a> {
    // ---- declarations ------------------------------------------------------------------------------------------

    /// Registers the package and the declarations of a file.
    fn declare_file(&mut self, at: usize) -> Result<(), Fault> {
        let files = self.files;
        let file = &files[at].file;
        let package = file.package.as_str();
        for (dot, _) in
            package.match_indices('.').chain([(package.len(), "")]).filter(|_| !package.is_empty())
        {
            match self.symbols.get(&package[..dot]) {
                None => drop(self.symbols.insert(package[..dot].to_owned(), (Symbol::Package, at))),
                Some((Symbol::Package, _)) => {}
                Some(&(_, other)) => {
                    let other = &files[other].source.name;
                    let why = format!("package `{}` has the name of something in `{other}`", &package[..dot]);
                    return Err(self.fault(why, at, &(0..0)));
                }
            }
        }
        let features = file.features.within(Features::of(file.edition));
        for message in &file.messages {
            self.declare_message(message, package, at, features)?;
        }
        for declared in &file.enums {
            self.declare_enum(declared, package, at, features)?;
        }
        for service in &file.services {
            self.declare(package, &service.name, Symbol::Service, at, &service.span)?;
        }
        Ok(())
    }

    /// Recurses as deep as messages nest; the parser limits that.
    fn declare_message(
        &mut self,
        message: &'a Message,
        scope: &str,
        file: usize,
        outer: Features,
    ) -> Result<(), Fault> {
        let symbol = Symbol::Message(self.messages.len());
        let full_name = self.declare(scope, &message.name, symbol, file, &message.span)?;
        let features = message.features.within(outer);
        self.messages.push(ScopedMessage { message, full_name: full_name.clone(), file, features });
        for inner in &message.messages {
            self.declare_message(inner, &full_name, file, features)?;
        }
        for inner in &message.enums {
            self.declare_enum(inner, &full_name, file, features)?;
        }
        Ok(())
    }

    /// Registers an enum and its values.
    fn declare_enum(
        &mut self,
        declared: &Enum,
        scope: &str,
        file: usize,
        outer: Features,
    ) -> Result<(), Fault> {
        let symbol = Symbol::Enum(self.enums.len());
        let name = self.declare(scope, &declared.name, symbol, file, &declared.span)?;
        let is_closed = declared.features.within(outer).enum_is_closed == Some(true);
        self.enums.push(schema::Enum { name, values: declared.values.clone(), is_closed });
        Ok(())
    }

    /// Registers a name and returns it in full.
    fn declare(
        &mut self,
        scope: &str,
        name: &str,
        symbol: Symbol,
        file: usize,
        span: &core::ops::Range<usize>,
    ) -> Result<String, Fault> {
        let full_name = join(scope, name);
        if full_name.len() > NAME_BYTES_MAX {
            return Err(self.fault(
                format!("its full name has more than {NAME_BYTES_MAX} bytes"),
                file,
                span,
            ));
        }
        if let Some((_, other)) = self.symbols.insert(full_name.clone(), (symbol, file)) {
            let other = &self.files[other].source.name;
            let why = match *other == self.files[file].source.name {
                true => format!("`{full_name}` is declared twice"),
                false => format!("`{full_name}` is declared in `{other}` too"),
            };
            return Err(self.fault(why, file, span));
        }
        Ok(full_name)
    }

    // ---- references --------------------------------------------------------------------------------------------

    /// Resolves the field types of a message. Fails if two fields have the same name or number.
    fn message(&self, scoped: &ScopedMessage<'_>) -> Result<schema::Message, Fault> {
        let declared = &scoped.message.fields;
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeMap::new());
        let mut fields = Vec::with_capacity(declared.len());
        for field in declared {
            let fault = |why| Err(self.fault(why, scoped.file, &field.span));
            if !names.insert(field.name.as_str()) {
                return fault(format!("`{}` has two fields `{}`", scoped.full_name, field.name));
            }
            if let Some(other) = numbers.insert(field.number, &field.name) {
                return fault(format!("number {} is that of `{other}` too", field.number));
            }
            fields.push(self.field(scoped, field)?);
        }
        let (name, is_map_entry) = (scoped.full_name.clone(), scoped.message.is_map_entry);
        Ok(schema::Message { name, fields, is_map_entry })
    }

    fn field(&self, scoped: &ScopedMessage<'_>, field: &Field) -> Result<schema::Field, Fault> {
        let oneof = field.oneof.and_then(|oneof| scoped.message.oneofs.get(oneof as usize));
        let outer = oneof.map_or(scoped.features, |oneof| oneof.within(scoped.features));
        let features = field.features.within(outer);
        let kind = match &field.ty {
            Type::Scalar(kind) => *kind,
            Type::Named(name) | Type::Group(name) => {
                let full_name = &scoped.full_name;
                match self.resolve(name, full_name, scoped.file)? {
                    Symbol::Message(at) => FieldKind::Message(at),
                    Symbol::Enum(at) => FieldKind::Enum(at),
                    Symbol::Package | Symbol::Service => {
                        let why = format!("`{}` is neither a message nor an enum", name.text);
                        return Err(self.fault(why, scoped.file, &name.span));
                    }
                }
            }
        };
        // Maps ignore this feature: their entries and message values are always length-prefixed.
        let is_of_map = scoped.message.is_map_entry || self.is_map_entry(kind);
        let is_delimited = match (&field.ty, kind) {
            (Type::Group(_), _) => true,
            (_, FieldKind::Message(_)) => features.is_delimited == Some(true) && !is_of_map,
            _ => false,
        };
        let is_explicit = matches!(kind, FieldKind::Message(_))
            || field.oneof.is_some()
            || field.label == Label::Singular
            || features.presence == Some(FieldPresence::Explicit) && !scoped.message.is_map_entry;
        let presence = match field.label {
            Label::Repeated => Presence::Repeated,
            _ if is_explicit => Presence::Explicit,
            _ => Presence::Implicit,
        };
        let (name, number, oneof) = (field.name.clone(), field.number, field.oneof);
        Ok(schema::Field { name, number, kind, presence, oneof, is_delimited })
    }

    fn is_map_entry(&self, kind: FieldKind) -> bool {
        matches!(kind, FieldKind::Message(at) if self.messages[at].message.is_map_entry)
    }

    /// Resolves the services of all files, in this order of files.
    fn services(&self, order: &[usize]) -> Result<Vec<schema::Service>, Fault> {
        let mut services = Vec::new();
        for &at in order {
            let file = &self.files[at].file;
            for service in &file.services {
                let name = join(&file.package, &service.name);
                let message = |of: &Name| match self.resolve(of, &name, at)? {
                    Symbol::Message(message) => Ok(message),
                    _ => Err(self.fault(format!("`{}` is no message", of.text), at, &of.span)),
                };
                let mut methods = Vec::with_capacity(service.methods.len());
                for method in &service.methods {
                    methods.push(schema::Method {
                        name: method.name.clone(),
                        input: message(&method.input)?,
                        output: message(&method.output)?,
                        client_streaming: method.client_streaming,
                        server_streaming: method.server_streaming,
                    });
                }
                services.push(schema::Service { name, methods });
            }
        }
        Ok(services)
    }

    /// Resolves a name within `scope`. The first part is searched in the scope and then outward; the scope that has it
    /// must have the rest as well.
    fn resolve(&self, name: &Name, scope: &str, file: usize) -> Result<Symbol, Fault> {
        if let Some(full_name) = name.text.strip_prefix('.') {
            return self.visible_symbol(full_name, file).ok_or_else(|| self.unresolved(name, "", file));
        }
        let first = name.text.split('.').next().unwrap_or_default();
        let is_alone = first.len() == name.text.len();
        let unresolved = || Err(self.unresolved(name, scope, file));
        let mut scope = scope;
        loop {
            match self.visible_symbol(&join(scope, first), file) {
                Some(found @ (Symbol::Message(_) | Symbol::Enum(_))) if is_alone => return Ok(found),
                Some(Symbol::Message(_) | Symbol::Package) if !is_alone => {
                    if let Some(found) = self.visible_symbol(&join(scope, &name.text), file) {
                        return Ok(found);
                    }
                    // Continue outward: this package may have the name only in files that are not visible here.
                    if !matches!(self.symbols.get(&join(scope, first)), Some((Symbol::Package, _))) {
                        return unresolved();
                    }
                }
                _ => {}
            }
            if scope.is_empty() {
                return unresolved();
            }
            scope = outer(scope);
        }
    }

    /// The meaning of a full name, if it is visible in the file.
    fn visible_symbol(&self, full_name: &str, file: usize) -> Option<Symbol> {
        let &(symbol, of) = self.symbols.get(full_name)?;
        let is_seen =
            symbol == Symbol::Package || self.visible.as_ref().is_none_or(|visible| visible[file].has(of));
        is_seen.then_some(symbol)
    }

    /// Returns the fault for an unknown name. Names the file that declares it, if `file` only lacks its import.
    fn unresolved(&self, name: &Name, scope: &str, file: usize) -> Fault {
        let shown = name.text.trim_start_matches('.');
        let scopes = core::iter::successors(Some(scope), |scope| (!scope.is_empty()).then(|| outer(scope)));
        let hidden = scopes.filter_map(|scope| self.symbols.get(&join(scope, shown))).next();
        let why = match hidden {
            Some((_, of)) => {
                let (of, by) = (&self.files[*of].source.name, &self.files[file].source.name);
                format!("`{shown}` is in `{of}`, which `{by}` does not import")
            }
            None => format!("there is no message or enum `{shown}`"),
        };
        self.fault(why, file, &name.span)
    }

    /// Returns a fault with the position in a file; for a descriptor set, which has no text, only with the file's
    /// name.
    fn fault(&self, why: String, file: usize, span: &core::ops::Range<usize>) -> Fault {
        let source = &self.files[file].source;
        if source.text.is_empty() {
            return Fault::new(format!("in `{}`: {why}", source.name));
        }
        Fault::at(why, source, span.clone())
    }
}

/// The enclosing scope.
fn outer(scope: &str) -> &str {
    scope.rsplit_once('.').map_or("", |(outer, _)| outer)
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}
