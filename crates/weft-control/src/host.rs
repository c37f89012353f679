//! The services of the machine that a compilation needs. The caller passes them in, because control does no I/O.

use std::net::SocketAddr;
use std::sync::Arc;
use weft_core::native::{NativeDecl, PrepareError, Prepared};

/// A machine that compiles programs.
pub trait Host: Send + Sync {
    /// The first address of a name and port.
    ///
    /// # Errors
    /// The name has no address, and why.
    fn resolve(&self, name: &str) -> Result<SocketAddr, String>;

    /// Prepares a native function, with the key that its declaration names.
    ///
    /// # Errors
    /// See [`PrepareError`].
    fn prepare(&self, decl: &NativeDecl) -> Result<Arc<dyn Prepared>, PrepareError>;
}
