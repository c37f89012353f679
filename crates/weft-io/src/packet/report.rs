//! Errors of the packet side of a node.

use core::fmt;
use std::io;

/// A device of a port has failed: it is gone, or its file cannot be written.
#[derive(Debug)]
pub struct PortError {
    /// The port.
    pub port: String,
    /// Its device.
    pub device: String,
    /// The system's reason.
    pub error: io::Error,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port `{}`: `{}` has failed: {}", self.port, self.device, self.error)
    }
}

impl core::error::Error for PortError {}
