//! Native functions that encode bytes as text and decode them: base64, hexadecimal, UTF-8.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE_NO_PAD};
use weft_core::native::{Call, Ended, NATIVE_BYTES_MAX};

pub(crate) fn base64(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    encoded(&STANDARD, call.data(), out)
}

pub(crate) fn base64url(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    encoded(&URL_SAFE_NO_PAD, call.data(), out)
}

pub(crate) fn unbase64(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    decoded(&STANDARD, call.data(), out)
}

pub(crate) fn unbase64url(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    decoded(&URL_SAFE_NO_PAD, call.data(), out)
}

/// Appends the data in base64. Fails if the result is too long.
fn encoded(engine: &GeneralPurpose, data: &[u8], out: &mut Vec<u8>) -> Ended {
    if data.len() > NATIVE_BYTES_MAX {
        return Ended::Failed;
    }
    out.resize(data.len().div_ceil(3) * 4, 0);
    match engine.encode_slice(data, out) {
        Ok(len) if len <= NATIVE_BYTES_MAX => {
            out.truncate(len);
            Ended::Bytes
        }
        _ => Ended::Failed,
    }
}

/// Appends the data decoded from base64. Fails on malformed or too long data.
fn decoded(engine: &GeneralPurpose, data: &[u8], out: &mut Vec<u8>) -> Ended {
    if data.len() > 2 * NATIVE_BYTES_MAX {
        return Ended::Failed;
    }
    match engine.decode_vec(data, out) {
        Ok(()) => Ended::Bytes,
        Err(_) => Ended::Failed,
    }
}

/// Encodes data in hexadecimal. Fails if the result is too long.
pub(crate) fn hex(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let data = call.data();
    if data.len() > NATIVE_BYTES_MAX / 2 {
        return Ended::Failed;
    }
    push_hex(data, out);
    Ended::Bytes
}

/// Appends two hexadecimal digits per byte.
pub(crate) fn push_hex(data: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * data.len());
    for byte in data {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Decodes hexadecimal text. Fails on malformed or too long text.
pub(crate) fn unhex(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    match push_unhex(call.data(), out) {
        Some(()) if out.len() <= NATIVE_BYTES_MAX => Ended::Bytes,
        _ => Ended::Failed,
    }
}

/// Appends the bytes of hexadecimal digits; None if one is invalid, or their number is odd.
pub(crate) fn push_unhex(digits: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let value = |digit: u8| (digit as char).to_digit(16);
    out.reserve(pairs.len());
    for [high, low] in pairs {
        out.push((value(*high)? << 4 | value(*low)?) as u8);
    }
    Some(())
}

/// Returns the data as text. Fails if it is not UTF-8 or too long.
pub(crate) fn utf8(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let data = call.data();
    if data.len() > NATIVE_BYTES_MAX || core::str::from_utf8(data).is_err() {
        return Ended::Failed;
    }
    out.extend_from_slice(data);
    Ended::Bytes
}
