//! The native functions of [`weft_core::native`], implemented with well-maintained crates.
//!
//! [`prepare`] prepares a declaration: it compiles patterns, reads keys, and derives the prefix of nonces. All workers
//! share the result. Costly contexts, such as those of compressors, belong to the calling thread and are reused by its
//! next call; they keep nothing observable.
//!
//! Nothing here reads a file, the environment, a clock or a random source: keys and entropy come in as [`Secrets`].
//! Bytes from a peer never cause a panic, never take more than linear time, and never produce more than
//! [`NATIVE_BYTES_MAX`](weft_core::native::NATIVE_BYTES_MAX) bytes.

pub mod by_hand;
mod compress;
mod hash;
mod json;
mod jwt;
mod key;
mod net;
mod pattern;
mod random;
mod seal;
mod text;

use core::fmt;
use std::sync::Arc;
use weft_core::Value;
use weft_core::native::{Call, Ended, Native, NativeDecl, PrepareError, Prepared};

pub use jwt::{TOKEN_BYTES_MAX, is_key_public};
pub use key::KEY_BYTES_MAX;
pub use pattern::PATTERN_MEMORY_MAX;

/// Bytes of [`Secrets::entropy`].
pub const ENTROPY_BYTES: usize = 16;

/// Inputs of a function that are not in the program.
#[derive(Clone, Copy)]
pub struct Secrets<'a> {
    /// The content of the key's file or variable, if the function has one.
    pub key: Option<&'a [u8]>,
    /// Bytes that are unique to this preparation: the first part of every nonce. They are not secret, but come from the
    /// same source.
    pub entropy: [u8; ENTROPY_BYTES],
}

impl fmt::Debug for Secrets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// Prepares a function for calls.
///
/// # Errors
/// See [`PrepareError`].
pub fn prepare(decl: &NativeDecl, secrets: &Secrets<'_>) -> Result<Arc<dyn Prepared>, PrepareError> {
    let level = option(decl, "level")
        .and_then(|value| if let Value::Int(n) = value { Some(*n as i32) } else { None });
    Ok(match decl.native {
        Native::Address => plain(net::address),
        Native::DnsName => plain(net::dns_name),
        Native::GroupMac => plain(net::group_mac),
        Native::MssAtMost => plain(net::mss_at_most),
        Native::Network => plain(net::network),
        Native::SolicitedNode => plain(net::solicited_node),
        Native::Base64 => plain(text::base64),
        Native::Base64Url => plain(text::base64url),
        Native::Unbase64 => plain(text::unbase64),
        Native::Unbase64Url => plain(text::unbase64url),
        Native::Hex => plain(text::hex),
        Native::Unhex => plain(text::unhex),
        Native::Utf8 => plain(text::utf8),
        Native::Gzip => Arc::new(compress::Gzip::new(level)),
        Native::Gunzip => plain(compress::gunzip),
        Native::Zstd => Arc::new(compress::Zstd::new(level)),
        Native::Unzstd => plain(compress::unzstd),
        Native::Lz4 => plain(compress::lz4),
        Native::Unlz4 => plain(compress::unlz4),
        Native::Xxh3 => plain(hash::xxh3),
        Native::Sha256 => plain(hash::sha256),
        Native::MaglevSlot => plain(hash::maglev_slot),
        Native::RandomHex => Arc::new(random::RandomHex { site: decl.site }),
        Native::JsonGet => Arc::new(json::Get::new(constant(decl, 0))?),
        Native::JsonSet => Arc::new(json::Set::new(constant(decl, 0))?),
        Native::MatchesAny => Arc::new(pattern::MatchesAny::new(&decl.constants)?),
        Native::RegexMatch => Arc::new(pattern::Matches::new(constant(decl, 0))?),
        Native::RegexCapture => Arc::new(pattern::Capture::new(constant(decl, 0))?),
        Native::RegexReplace => Arc::new(pattern::Replace::new(constant(decl, 0), constant(decl, 1))?),
        Native::Aes256GcmSeal => Arc::new(seal::Seal::aes(&*key::of_32_bytes(secrets.key)?, secrets.entropy)),
        Native::Aes256GcmOpen => Arc::new(seal::Open::aes(&*key::of_32_bytes(secrets.key)?)),
        Native::ChaCha20Poly1305Seal => {
            Arc::new(seal::Seal::chacha(&*key::of_32_bytes(secrets.key)?, secrets.entropy))
        }
        Native::ChaCha20Poly1305Open => Arc::new(seal::Open::chacha(&*key::of_32_bytes(secrets.key)?)),
        Native::HmacSha256 => Arc::new(jwt::Hmac::new(secrets.key)?),
        Native::JwtVerify => Arc::new(jwt::Verify::new(decl, secrets.key)?),
    })
}

/// The value of an option; None if it is not set.
fn option<'d>(decl: &'d NativeDecl, name: &str) -> Option<&'d Value> {
    decl.options.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The constant argument with this index; empty if there is none.
fn constant(decl: &NativeDecl, at: usize) -> &str {
    decl.constants.get(at).map_or("", String::as_str)
}

/// A function without state.
struct Stateless(fn(&Call<'_>, &mut Vec<u8>) -> Ended);

impl fmt::Debug for Stateless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stateless")
    }
}

impl Prepared for Stateless {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        (self.0)(call, out)
    }
}

/// Wraps a function without state.
fn plain(function: fn(&Call<'_>, &mut Vec<u8>) -> Ended) -> Arc<dyn Prepared> {
    Arc::new(Stateless(function))
}
