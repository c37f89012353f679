//! Files of recordings on the disk.

use crate::fault::Fault;
use crate::machine::check_files;
use crate::source::read_lossy;
use crate::stderr;
use std::fs;
use std::path::Path;
use weft_api::Bundle;
use weft_control::check::Checked;
use weft_control::files::Files;
use weft_control::recording::{Link, RecordingError, parse};

/// The largest readable file, in bytes: both directions of an emulated link at their maximum.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads a link of a file: the one of this name, or the one with the most drops. Prints remarks about its program.
///
/// # Errors
/// The file cannot be read, is no recording of a readable version, or has no such link.
pub(crate) fn open(path: &Path, name: Option<&str>) -> Result<Link, Fault> {
    let recordings = parse(&read_lossy(path, FILE_BYTES_MAX)?, &path.display().to_string())?;
    let link = Link::choose(recordings, name, &check).map_err(|error| match error {
        RecordingError::Fault(fault) => fault,
        RecordingError::Program(checked) => {
            stderr::diagnostics(&checked.diagnostics, &checked.sources);
            // The recording contains the whole program: a missing file is no fault of the machine.
            Fault::Reported
        }
    })?;
    for remark in &link.program.remarks {
        stderr::line(format_args!("{remark}"));
    }
    Ok(link)
}

fn check(program: &Bundle) -> Checked {
    check_files(&program.root, &mut Files::in_bundle(program))
}

/// Tests that a file can be written, and creates it if it is missing, so that no user waits for a result that cannot be
/// saved. Keeps the contents until there is a new recording.
///
/// # Errors
/// The environment is at fault: the file cannot be written.
pub(crate) fn claim(path: &Path) -> Result<(), Fault> {
    let claimed = fs::OpenOptions::new().append(true).create(true).open(path);
    claimed.map(drop).map_err(|error| Fault::environment(format!("{}: {error}", path.display())))
}

/// Writes a file of recordings.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Fault> {
    fs::write(path, text).map_err(|error| Fault::environment(format!("{}: {error}", path.display())))
}
