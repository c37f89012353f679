//! The files of a program: from the disk, or from a bundle that another process sent.

use crate::fault::Fault;
use crate::library;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use protox::prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_api::{AtFault, Bundle};
use weft_core::schema::{Enum, Field, FieldKind, Message, Method, Presence, Schema, Service};
use weft_io::file;
use weft_lang::resolve::{Resolver, relative};

/// Bytes of one file of a program.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// Files of one schema, its imports included: the compiler of schemas goes down one that imports another, that a third.
const PROTO_FILES_MAX: usize = 1024;

/// Reads files, and remembers what it read.
pub(crate) struct Files {
    /// Where texts come from: the disk if None.
    bundle: Option<BTreeMap<String, String>>,
    /// Texts that count instead of the files of these names: what an editor has open.
    open: Arc<BTreeMap<String, String>>,
    read: Arc<Mutex<BTreeMap<String, String>>>,
    /// A file that the program names could not be read.
    is_incomplete: bool,
}

impl Files {
    /// From the disk, relative to the working directory.
    pub(crate) fn on_disk() -> Self {
        Self { bundle: None, open: Arc::default(), read: Arc::default(), is_incomplete: false }
    }

    /// From the disk, but for texts that an editor has open.
    pub(crate) fn with_open(open: &Arc<BTreeMap<String, String>>) -> Self {
        Self { open: Arc::clone(open), ..Self::on_disk() }
    }

    /// From a bundle alone.
    pub(crate) fn in_bundle(bundle: &Bundle) -> Self {
        Self { bundle: Some(bundle.files.clone()), ..Self::on_disk() }
    }

    /// All that was read, to be sent elsewhere. Library files are not in it: every node has its own.
    pub(crate) fn into_bundle(self, root: &str) -> Bundle {
        Bundle { root: root.to_owned(), files: std::mem::take(&mut *self.texts_read()) }
    }

    /// Whose fault it is if the program that was read is not right: one of which a file is missing may well be.
    pub(crate) fn at_fault(&self) -> AtFault {
        if self.is_incomplete { AtFault::Environment } else { AtFault::Program }
    }

    fn load(&self, name: &str) -> Result<String, Unread> {
        let text = match &self.bundle {
            _ if self.open.contains_key(name) => Ok(self.open[name].clone()),
            Some(files) => files.get(name).cloned().ok_or_else(|| Unread {
                why: "it is not in the bundle".to_owned(),
                at_fault: AtFault::Environment,
            }),
            None => read_file(Path::new(name)),
        };
        text.inspect(|text| drop(self.texts_read().insert(name.to_owned(), text.clone())))
    }

    fn texts_read(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the program is without a file, if that is not its own fault.
    fn miss(&mut self, unread: &Unread) {
        self.is_incomplete |= unread.at_fault == AtFault::Environment;
    }
}

/// The file that a command is given must be there: that it is not is no fault of a program.
pub(crate) fn require(path: &str) -> Result<(), Fault> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(Fault::environment(format!("`{path}` is a folder"))
            .with_help("name the file that the program begins with")),
        Ok(found) if !found.is_file() => Err(Fault::environment(format!("`{path}` is no regular file"))
            .with_help("a program is read from files; `weft check -` and `weft fmt -` read standard input")),
        Ok(_) => Ok(()),
        Err(error) => Err(unreadable(&format!("`{path}`"), error)),
    }
}

impl Resolver for Files {
    /// A library file is the same whoever imports it, unless the importer has one of that name beside it, or is itself
    /// in a library folder that has it.
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

    fn proto(&mut self, path: &str, from: Option<&str>) -> Result<Schema, String> {
        let name = self.name(path, from);
        // The compiler of schemas would speak of include paths.
        self.load(&name).inspect_err(|unread| self.miss(unread)).map_err(|unread| unread.why)?;
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let file = name.rsplit('/').next().unwrap_or(&name).to_owned();
        let mut chain = ChainFileResolver::new();
        let shared = Self {
            bundle: self.bundle.clone(),
            open: Arc::clone(&self.open),
            read: Arc::clone(&self.read),
            is_incomplete: false,
        };
        chain.add(ProtoFiles { files: shared, folder, n_opened: Cell::new(0) });
        chain.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(chain);
        compiler.include_imports(true);
        compiler.open_file(&file).map_err(|error| {
            self.is_incomplete |= error.is_file_not_found() || error.is_io();
            error.to_string()
        })?;
        Ok(schema_of(&compiler.descriptor_pool()))
    }
}

/// What stands in front of `library/...` in the name of a file that is called as one of the library.
fn above_library(name: &str) -> Option<&str> {
    let mut folders = library::paths().filter_map(|path| name.strip_suffix(path));
    folders.find(|folder| folder.is_empty() || folder.ends_with('/'))
}

/// Finds `.proto` files beside the one that is compiled.
struct ProtoFiles {
    files: Files,
    folder: String,
    n_opened: Cell<usize>,
}

impl FileResolver for ProtoFiles {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        path.to_str().map(str::to_owned)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        self.n_opened.set(self.n_opened.get() + 1);
        if self.n_opened.get() > PROTO_FILES_MAX {
            let why = format!("it imports more than {PROTO_FILES_MAX} files, which is the limit");
            return Err(protox::Error::new(why));
        }
        let path = if self.folder.is_empty() { name.to_owned() } else { format!("{}/{name}", self.folder) };
        match self.files.load(&path) {
            Ok(text) => File::from_source(name, &text),
            Err(_) => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn schema_of(pool: &DescriptorPool) -> Schema {
    let messages: Vec<MessageDescriptor> = pool.all_messages().collect();
    let enums: Vec<EnumDescriptor> = pool.all_enums().collect();
    let message_at = messages.iter().map(|message| message.full_name().to_owned()).zip(0..).collect();
    let enum_at = enums.iter().map(|of| of.full_name().to_owned()).zip(0..).collect();
    let pool = Pool { messages, enums, message_at, enum_at, pool };
    Schema {
        messages: pool.messages.iter().map(|message| pool.message(message)).collect(),
        enums: pool.enums.iter().map(enum_of).collect(),
        services: pool.pool.services().map(|service| pool.service(&service)).collect(),
    }
}

/// What a `.proto` file and its imports declare. A schema names messages and enums by their places in these lists.
struct Pool<'a> {
    pool: &'a DescriptorPool,
    messages: Vec<MessageDescriptor>,
    enums: Vec<EnumDescriptor>,
    /// Their places by their names: a schema may have very many.
    message_at: BTreeMap<String, usize>,
    enum_at: BTreeMap<String, usize>,
}

impl Pool<'_> {
    fn message(&self, message: &MessageDescriptor) -> Message {
        Message {
            name: message.full_name().to_owned(),
            fields: message.fields().map(|field| self.field(&field)).collect(),
            is_map_entry: message.is_map_entry(),
        }
    }

    fn field(&self, field: &FieldDescriptor) -> Field {
        Field {
            name: field.name().to_owned(),
            number: field.number(),
            kind: self.kind(field),
            presence: match field.cardinality() {
                Cardinality::Repeated => Presence::Repeated,
                _ if field.supports_presence() => Presence::Explicit,
                _ => Presence::Implicit,
            },
            oneof: oneof_of(field),
        }
    }

    fn kind(&self, field: &FieldDescriptor) -> FieldKind {
        match field.kind() {
            Kind::Double => FieldKind::Double,
            Kind::Float => FieldKind::Float,
            Kind::Int32 => FieldKind::Int32,
            Kind::Int64 => FieldKind::Int64,
            Kind::Uint32 => FieldKind::Uint32,
            Kind::Uint64 => FieldKind::Uint64,
            Kind::Sint32 => FieldKind::Sint32,
            Kind::Sint64 => FieldKind::Sint64,
            Kind::Fixed32 => FieldKind::Fixed32,
            Kind::Fixed64 => FieldKind::Fixed64,
            Kind::Sfixed32 => FieldKind::Sfixed32,
            Kind::Sfixed64 => FieldKind::Sfixed64,
            Kind::Bool => FieldKind::Bool,
            Kind::String => FieldKind::String,
            Kind::Bytes => FieldKind::Bytes,
            Kind::Message(message) => FieldKind::Message(self.message_at(&message)),
            Kind::Enum(of) => FieldKind::Enum(*self.enum_at.get(of.full_name()).expect("the pool is whole")),
        }
    }

    fn service(&self, service: &ServiceDescriptor) -> Service {
        Service {
            name: service.full_name().to_owned(),
            methods: service.methods().map(|method| self.method(&method)).collect(),
        }
    }

    fn method(&self, method: &MethodDescriptor) -> Method {
        Method {
            name: method.name().to_owned(),
            input: self.message_at(&method.input()),
            output: self.message_at(&method.output()),
            client_streaming: method.is_client_streaming(),
            server_streaming: method.is_server_streaming(),
        }
    }

    fn message_at(&self, message: &MessageDescriptor) -> usize {
        *self.message_at.get(message.full_name()).expect("the pool is whole")
    }
}

fn enum_of(of: &EnumDescriptor) -> Enum {
    Enum {
        name: of.full_name().to_owned(),
        values: of.values().map(|value| (value.name().to_owned(), value.number())).collect(),
    }
}

/// The oneof of a field. One that a proto3 `optional` makes has this field alone, and decides nothing.
fn oneof_of(field: &FieldDescriptor) -> Option<u32> {
    let oneof = field.containing_oneof().filter(|o| !o.is_synthetic())?;
    let message = field.parent_message();
    message.oneofs().position(|o| o.name() == oneof.name()).map(|at| at as u32)
}

/// Why there is no text, as a clause, and whose fault that is.
struct Unread {
    why: String,
    at_fault: AtFault,
}

impl From<std::io::Error> for Unread {
    fn from(error: std::io::Error) -> Self {
        let of_program = [ErrorKind::InvalidData, ErrorKind::InvalidInput, ErrorKind::FileTooLarge];
        let is_program = of_program.contains(&error.kind());
        let at_fault = if is_program { AtFault::Program } else { AtFault::Environment };
        Self { why: clause(&error), at_fault }
    }
}

fn read_file(path: &Path) -> Result<String, Unread> {
    Ok(file::text(file::read_regular(path, FILE_BYTES_MAX))?)
}

/// Text from a file, or from standard input as `-`, of at most so many bytes.
///
/// # Errors
/// It cannot be read, is no regular file, is no text, or has more.
pub(crate) fn read_text(path: &str, bytes_max: u64) -> Result<String, Fault> {
    let bytes = match path {
        "-" => file::read_at_most(std::io::stdin(), bytes_max),
        path => file::read_regular(Path::new(path), bytes_max),
    };
    file::text(bytes).map_err(|error| unreadable(&format!("`{path}`"), error))
}

/// That `what` cannot be read: the input is at fault if it is there and no text.
pub(crate) fn unreadable(what: &str, error: std::io::Error) -> Fault {
    let Unread { why, at_fault } = error.into();
    let told = format!("cannot read {what}: {why}");
    match at_fault {
        AtFault::Program => Fault::Input(told),
        AtFault::Environment => Fault::environment(told),
    }
}

/// The folder that a file would be in.
pub(crate) fn folder_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    }
}

/// What the system says of a file, as the end of a sentence.
pub(crate) fn clause(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "it may not be read by this user".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job;

    /// A schema whose files import each other in a row would overflow the stack of whoever compiles it.
    #[test]
    fn schema_of_many_files_has_a_limit() {
        let of = |n: usize| {
            let import = |at: usize| format!("syntax = 'proto3'; import 'p{}.proto';", at + 1);
            let mut files: BTreeMap<_, _> = (0..n).map(|at| (format!("p{at}.proto"), import(at))).collect();
            files.insert(format!("p{n}.proto"), "syntax = 'proto3';".to_owned());
            let bundle = Bundle { root: String::new(), files };
            job::run(|| Files::in_bundle(&bundle).proto("p0.proto", None)).expect("it does not panic")
        };
        assert!(of(PROTO_FILES_MAX - 1).is_ok());
        assert!(of(10 * PROTO_FILES_MAX).is_err_and(|why| why.contains("more than 1024 files")));
    }
}
