//! Direct calls of the libraries, as a baseline: each call as its documentation shows (`weft bench functions`), with
//! the state that an engineer would keep between messages (`weft bench elements`).

use crate::seal::by_hand as sealed;
use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use core::hint::black_box;
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use hmac::{KeyInit as _, Mac as _};
use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use regex::Regex;
use sha2::{Digest, Sha256};
use std::io::{Read as _, Write as _};
use twox_hash::XxHash3_64;
use weft_core::native::{NATIVE_BYTES_MAX, Native};
use zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_end;
use zstd_safe::{CCtx, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

pub use crate::seal::by_hand::{Opener, Sealer};

/// A call of a library.
pub type ByHand = Box<dyn Fn(&[u8])>;

/// What a program that uses the library would do with these bytes; None if that is not one call of a library.
///
/// `pattern` is for regular expressions and searched texts, `key` for ciphers and codes.
pub fn of(native: Native, pattern: &str, key: &[u8; 32]) -> Option<ByHand> {
    let (key, pattern) = (*key, pattern.to_owned());
    Some(match native {
        Native::Address => Box::new(|data| {
            let _ = black_box(core::str::from_utf8(data).map(str::parse::<core::net::IpAddr>));
        }),
        Native::Base64 => Box::new(|data| drop(black_box(STANDARD.encode(data)))),
        Native::Base64Url => Box::new(|data| drop(black_box(URL_SAFE_NO_PAD.encode(data)))),
        Native::Unbase64 => Box::new(|data| drop(black_box(STANDARD.decode(data)))),
        Native::Unbase64Url => Box::new(|data| drop(black_box(URL_SAFE_NO_PAD.decode(data)))),
        Native::Gzip => Box::new(|data| {
            let mut made = Vec::new();
            let _ = GzEncoder::new(data, Compression::default()).read_to_end(black_box(&mut made));
        }),
        Native::Gunzip => Box::new(|data| {
            let mut made = Vec::new();
            let _ = GzDecoder::new(data).read_to_end(black_box(&mut made));
        }),
        Native::Zstd => Box::new(|data| {
            let mut made = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
            let _ = zstd_safe::compress(black_box(&mut made), data, 3);
        }),
        Native::Unzstd => Box::new(|data| {
            let len =
                zstd_safe::get_frame_content_size(data).ok().flatten().unwrap_or(NATIVE_BYTES_MAX as u64);
            let mut made = Vec::with_capacity(len as usize);
            let _ = zstd_safe::decompress(black_box(&mut made), data);
        }),
        Native::Lz4 => Box::new(|data| {
            let mut encoder = FrameEncoder::new(Vec::new());
            let _ = encoder.write_all(data);
            let _ = black_box(encoder.finish());
        }),
        Native::Unlz4 => Box::new(|data| {
            let mut made = Vec::new();
            let _ = FrameDecoder::new(data).read_to_end(black_box(&mut made));
        }),
        Native::Xxh3 => Box::new(|data| {
            black_box(XxHash3_64::oneshot(data));
        }),
        Native::Utf8 => Box::new(|data| drop(black_box(core::str::from_utf8(data).map(str::to_owned)))),
        Native::RegexMatch => {
            let regex = Regex::new(&pattern).ok()?;
            Box::new(move |data| {
                black_box(core::str::from_utf8(data).is_ok_and(|text| regex.is_match(text)));
            })
        }
        Native::RegexCapture => {
            let regex = Regex::new(&pattern).ok()?;
            Box::new(move |data| {
                let groups = core::str::from_utf8(data).ok().and_then(|text| regex.captures(text));
                black_box(groups.and_then(|groups| groups.get(1).map(|group| group.as_str().to_owned())));
            })
        }
        Native::RegexReplace => {
            let regex = Regex::new(&pattern).ok()?;
            Box::new(move |data| {
                let text = core::str::from_utf8(data).unwrap_or_default();
                black_box(regex.replace_all(text, "-").into_owned());
            })
        }
        Native::MatchesAny => {
            let any = AhoCorasick::new([&pattern]).ok()?;
            Box::new(move |data| {
                black_box(any.is_match(data));
            })
        }
        Native::JsonGet => Box::new(|data| {
            let value: Result<serde_json::Value, _> = serde_json::from_slice(data);
            black_box(value.ok().and_then(|value| value.pointer("/last/id").map(ToString::to_string)));
        }),
        Native::JsonSet => Box::new(|data| {
            let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(data) else { return };
            if let Some(id) = value.pointer_mut("/last/id") {
                *id = serde_json::Value::from("new");
            }
            black_box(value.to_string());
        }),
        Native::Sha256 => Box::new(|data| {
            black_box(Sha256::digest(data));
        }),
        Native::HmacSha256 => Box::new(move |data| {
            let mut mac =
                hmac::Hmac::<Sha256>::new_from_slice(&key).expect("HMAC accepts keys of any length");
            mac.update(data);
            black_box(mac.finalize());
        }),
        Native::Aes256GcmSeal => sealed::aes_seal(key),
        Native::Aes256GcmOpen => sealed::aes_open(key),
        Native::ChaCha20Poly1305Seal => sealed::chacha_seal(key),
        Native::ChaCha20Poly1305Open => sealed::chacha_open(key),
        Native::Hex
        | Native::Unhex
        | Native::MaglevSlot
        | Native::RandomHex
        | Native::JwtVerify
        | Native::DnsName
        | Native::GroupMac
        | Native::MssAtMost
        | Native::Network
        | Native::SolicitedNode => return None,
    })
}

/// Zstandard at level 3, with a reused context.
#[allow(missing_debug_implementations, reason = "the library's context has nothing to show")]
pub struct Compressor(CCtx<'static>);

impl Default for Compressor {
    fn default() -> Self {
        Self(CCtx::create())
    }
}

impl Compressor {
    /// Appends the data compressed. None if that is longer than [`NATIVE_BYTES_MAX`]; then the appended bytes are
    /// useless.
    pub fn compress(&mut self, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        out.reserve(zstd_safe::compress_bound(data.len()));
        let rest = {
            let mut output = OutBuffer::around_pos(out, start);
            self.0.compress_stream2(&mut output, &mut InBuffer::around(data), ZSTD_e_end)
        };
        (rest == Ok(0) && out.len() - start <= NATIVE_BYTES_MAX).then_some(())
    }
}

/// Decompresses Zstandard, with a reused context.
#[allow(missing_debug_implementations, reason = "the library's context has nothing to show")]
pub struct Decompressor(DCtx<'static>);

impl Default for Decompressor {
    fn default() -> Self {
        let mut context = DCtx::create();
        // No result is longer than 2^22 bytes, so no larger window is needed.
        let _ = context.set_parameter(DParameter::WindowLogMax(22));
        Self(context)
    }
}

impl Decompressor {
    /// Appends the decompressed data. None if the bytes are damaged, or decompress to more than [`NATIVE_BYTES_MAX`];
    /// then the appended bytes are useless.
    pub fn decompress(&mut self, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        out.reserve(NATIVE_BYTES_MAX);
        let (mut input, mut wanted) = (InBuffer::around(data), 1);
        {
            let mut output = OutBuffer::around_pos(out, start);
            self.0.reset(ResetDirective::SessionOnly).ok()?;
            while input.pos() < data.len() {
                wanted = self.0.decompress_stream(&mut output, &mut input).ok()?;
            }
        }
        (wanted == 0 && out.len() - start <= NATIVE_BYTES_MAX).then_some(())
    }
}
