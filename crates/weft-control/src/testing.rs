//! A machine for tests: without keys and without names.

use crate::check::{Accepted, Checked, WORKERS_JUDGED, check};
use crate::compile::Compiler;
use crate::files::Files;
use crate::host::Host;
use std::net::SocketAddr;
use std::sync::Arc;
use weft_api::Bundle;
use weft_core::hash::HashKey;
use weft_core::native::{NativeDecl, PrepareError, Prepared};
use weft_ir::backend::Backend;
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::source::SourceMap;
use weft_native::{ENTROPY_BYTES, Secrets, prepare};

/// A machine without keys and without a resolver.
pub(crate) struct BareHost;

impl Host for BareHost {
    fn resolve(&self, name: &str) -> Result<SocketAddr, String> {
        name.parse().map_err(|_| "names have no address here".to_owned())
    }

    fn prepare(&self, decl: &NativeDecl) -> Result<Arc<dyn Prepared>, PrepareError> {
        prepare(decl, &Secrets { key: None, entropy: [0; ENTROPY_BYTES] })
    }
}

/// Checks a program of one text, `a.weft`, and a schema, `cart.proto`.
pub(crate) fn checked(text: &str) -> Checked {
    let proto = "syntax = 'proto3'; package shop;
message Item { string user = 1; int64 object_id = 2; }
service Cart { rpc Get (Item) returns (Item); }";
    let files = [("a.weft", text), ("cart.proto", proto)];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let bundle = Bundle { root: "a.weft".to_owned(), files, ..Bundle::default() };
    check("a.weft", &mut Files::in_bundle(&bundle), |_| WORKERS_JUDGED, &BareHost)
}

/// A program that is accepted, with its texts.
pub(crate) fn accepted(text: &str) -> (Accepted, SourceMap) {
    let Checked { accepted, diagnostics, sources, .. } = checked(text);
    let rendered = render_all(&diagnostics, &sources, RenderOptions::default());
    (accepted.unwrap_or_else(|| panic!("{rendered}")), sources)
}

/// A compiler for the bare machine.
pub(crate) fn compiler(backend: impl Backend + 'static, workers: usize) -> Compiler {
    Compiler::new(Box::new(backend), Box::new(BareHost), workers, HashKey::from_seed(1))
}
