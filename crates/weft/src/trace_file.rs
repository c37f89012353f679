//! Reads link traces from files.

use crate::fault::Fault;
use crate::source::unreadable;
use std::path::Path;
use std::sync::Arc;
use weft_io::file::read_regular;
use weft_sim::net::Trace;

/// The largest trace file, in bytes: more than the longest trace that the parser accepts.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Reads the trace in a file.
///
/// # Errors
/// The file cannot be read, is too long, or has a wrong line; the error names the line.
pub(crate) fn read(path: &Path) -> Result<Arc<Trace>, Fault> {
    let fault = |error| unreadable(&format!("`{}`", path.display()), error);
    let text = read_regular(path, TRACE_BYTES_MAX).map_err(fault)?;
    let trace = Trace::parse(&String::from_utf8_lossy(&text));
    trace.map(Arc::new).map_err(|error| Fault::Input(format!("{}: {error}", path.display())))
}
