//! The machine of a benchmark: without keys.

use crate::refused;
use std::net::SocketAddr;
use std::sync::Arc;
use weft_api::Bundle;
use weft_control::check::{Accepted, check};
use weft_control::files::Files;
use weft_control::host::Host;
use weft_core::native::{NativeDecl, PrepareError, Prepared};
use weft_lang::source::SourceMap;
use weft_native::{ENTROPY_BYTES, Secrets, prepare};

/// A machine without keys and without a resolver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

impl Host for Machine {
    fn resolve(&self, name: &str) -> Result<SocketAddr, String> {
        name.parse().map_err(|_| "names have no address here".to_owned())
    }

    fn prepare(&self, decl: &NativeDecl) -> Result<Arc<dyn Prepared>, PrepareError> {
        prepare(decl, &Secrets { key: None, entropy: [0; ENTROPY_BYTES] })
    }
}

/// Checks the program that starts with `bench.weft`, for one worker.
///
/// # Errors
/// The first fault of the program.
pub(crate) fn accepted<const N: usize>(files: [(&str, String); N]) -> Result<(Accepted, SourceMap), String> {
    let files = files.map(|(name, text)| (name.to_owned(), text)).into();
    let bundle = Bundle { root: "bench.weft".to_owned(), files, ..Bundle::default() };
    let checked = check("bench.weft", &mut Files::in_bundle(&bundle), |_| 1, &Machine);
    let accepted = checked.accepted.ok_or_else(|| refused(&checked.diagnostics))?;
    Ok((accepted, checked.sources))
}
