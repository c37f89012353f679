//! Traces of links from files.

use crate::fault::Fault;
use crate::source::unreadable;
use std::path::Path;
use std::sync::Arc;
use weft_io::file::read_regular;
use weft_sim::net::Trace;

/// Bytes that a trace file may have: more than the longest trace that is read.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// The trace in a file.
///
/// # Errors
/// The file cannot be read, is too long, or has a line that is not right, which is named.
pub(crate) fn read(path: &Path) -> Result<Arc<Trace>, Fault> {
    let fault = |error| unreadable(&format!("`{}`", path.display()), error);
    let text = read_regular(path, TRACE_BYTES_MAX).map_err(fault)?;
    let trace = Trace::parse(&String::from_utf8_lossy(&text));
    trace.map(Arc::new).map_err(|error| Fault::Input(format!("{}: {error}", path.display())))
}
