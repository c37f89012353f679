//! Functions as a program calls them.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use weft_core::native::PrepareError;
use weft_core::native::{Arg, Call, Ended, Native, NativeDecl, Prepared};
use weft_core::{Time, Value};
use weft_native::{ENTROPY_BYTES, Secrets, prepare};

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallResult {
    Bytes(Vec<u8>),
    Int(i64),
    Bool(bool),
    Null,
    Failed,
}

impl From<&str> for CallResult {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

pub(crate) fn decl(native: Native, constants: &[&str], options: &[(&str, Value)]) -> NativeDecl {
    NativeDecl {
        name: native.name().to_owned(),
        native,
        constants: constants.iter().map(|constant| (*constant).to_owned()).collect(),
        options: options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        site: 0,
        cost: native.info().cost,
    }
}

/// A function without a key.
pub(crate) fn plain(native: Native, constants: &[&str]) -> Arc<dyn Prepared> {
    with_key(&decl(native, constants, &[]), None, 0).unwrap_or_else(|error| panic!("{native:?}: {error}"))
}

/// A function with a key; `entropy` is the beginning of its nonces.
pub(crate) fn with_key(
    decl: &NativeDecl,
    key: Option<&[u8]>,
    entropy: u8,
) -> Result<Arc<dyn Prepared>, PrepareError> {
    prepare(decl, &Secrets { key, entropy: [entropy; ENTROPY_BYTES] })
}

pub(crate) fn call(function: &dyn Prepared, args: &[Arg<'_>]) -> CallResult {
    call_at(function, args, Time(0))
}

pub(crate) fn call_at(function: &dyn Prepared, args: &[Arg<'_>], now: Time) -> CallResult {
    let mut out = Vec::new();
    match function.call(&Call { args, now, rand: 7 }, &mut out) {
        Ended::Bytes => CallResult::Bytes(out),
        Ended::Int(n) => CallResult::Int(n),
        Ended::Bool(b) => CallResult::Bool(b),
        Ended::Null => CallResult::Null,
        Ended::Failed => CallResult::Failed,
    }
}

/// The result of a function with one argument.
pub(crate) fn of(native: Native, data: &[u8]) -> CallResult {
    call(&*plain(native, &[]), &[Arg::Bytes(data)])
}

/// Parses hexadecimal digits.
pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    match of(Native::Unhex, digits.as_bytes()) {
        CallResult::Bytes(bytes) => bytes,
        other => panic!("{digits}: {other:?}"),
    }
}
