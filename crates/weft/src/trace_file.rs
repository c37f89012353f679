//! Traces of links from files.

use crate::fault::Fault;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};
use weft_sim::net::Trace;

/// Bytes that a trace file may have: more than the longest trace that is read.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// The trace in a file.
///
/// # Errors
/// The file cannot be read, is too long, or has a line that is not right, which is named.
pub(crate) fn read(path: &Path) -> Result<Arc<Trace>, Fault> {
    let told = |error: io::Error| Fault::environment(format!("{}: {error}", path.display()));
    if fs::metadata(path).map_err(told)?.len() > TRACE_BYTES_MAX {
        return Err(Fault::Input(format!("{}: more than {TRACE_BYTES_MAX} bytes", path.display())));
    }
    let text = fs::read(path).map_err(told)?;
    let trace = Trace::parse(&String::from_utf8_lossy(&text));
    trace.map(Arc::new).map_err(|error| Fault::Input(format!("{}: {error}", path.display())))
}
