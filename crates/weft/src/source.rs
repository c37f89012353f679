//! The files of a program on the disk, and texts from standard input.

use crate::fault::Fault;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use weft_api::AtFault;
use weft_control::files::{Files, ReadError, Store};
use weft_io::file;

/// The largest file of a program, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// The search folders for `.proto` files from the command line.
static PROTO_PATHS: OnceLock<Vec<String>> = OnceLock::new();

/// Sets the folders of `--proto-path`. Call once, before reading any file.
pub(crate) fn set_proto_paths(folders: Vec<String>) {
    PROTO_PATHS.set(folders).expect("the command line is read once");
}

/// The disk, relative to the working directory.
struct Disk {
    /// Texts that override files of these names: an editor has them open.
    open: Arc<BTreeMap<String, String>>,
}

impl Store for Disk {
    fn text(&mut self, name: &str) -> Result<String, ReadError> {
        match self.open.get(name) {
            Some(text) => Ok(text.clone()),
            None => file::text(file::read_regular(Path::new(name), FILE_BYTES_MAX))
                .map_err(|error| read_error(&error)),
        }
    }

    fn bytes(&mut self, name: &str) -> Result<Vec<u8>, ReadError> {
        file::read_regular(Path::new(name), FILE_BYTES_MAX).map_err(|error| read_error(&error))
    }
}

/// Reads files from the disk.
pub(crate) fn on_disk() -> Files {
    with_open(&Arc::default())
}

/// Reads files from the disk, except for the texts that an editor has open.
pub(crate) fn with_open(open: &Arc<BTreeMap<String, String>>) -> Files {
    let disk = Disk { open: Arc::clone(open) };
    Files::new(disk, PROTO_PATHS.get().cloned().unwrap_or_default())
}

/// Checks that a command's file exists. If it does not, that is no fault of a program.
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

/// Why a file was not read.
fn read_error(error: &std::io::Error) -> ReadError {
    let of_program = [ErrorKind::InvalidData, ErrorKind::InvalidInput, ErrorKind::FileTooLarge];
    let is_program = of_program.contains(&error.kind());
    let at_fault = if is_program { AtFault::Program } else { AtFault::Environment };
    // A path through a file that is no folder counts as a missing file.
    let is_absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    ReadError { why: clause(error), at_fault, is_absent }
}

/// Reads text from a file, or from standard input as `-`, up to a maximum size.
///
/// # Errors
/// The file cannot be read, is not regular, is no text, or is too long.
pub(crate) fn read_text(path: &str, bytes_max: u64) -> Result<String, Fault> {
    let bytes = match path {
        "-" => file::read_at_most(std::io::stdin(), bytes_max),
        path => file::read_regular(Path::new(path), bytes_max),
    };
    file::text(bytes).map_err(|error| unreadable(&format!("`{path}`"), error))
}

/// Reads a regular file of at most this many bytes; bytes that are no text become marks.
///
/// # Errors
/// The file cannot be read, is not regular, or is too long.
pub(crate) fn read_lossy(path: &Path, bytes_max: u64) -> Result<String, Fault> {
    let bytes = file::read_regular(path, bytes_max);
    let bytes = bytes.map_err(|error| unreadable(&format!("`{}`", path.display()), error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The fault of an unreadable `what`: the input is at fault if it exists but is no text.
pub(crate) fn unreadable(what: &str, error: std::io::Error) -> Fault {
    let ReadError { why, at_fault, .. } = read_error(&error);
    let text = format!("cannot read {what}: {why}");
    match at_fault {
        AtFault::Program => Fault::Input(text),
        AtFault::Environment => Fault::environment(text),
    }
}

/// The system's message about a file, as the end of a sentence.
pub(crate) fn clause(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "it may not be read by this user".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}
