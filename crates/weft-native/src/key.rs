//! Parses keys from the bytes of a file or a variable.

use crate::text::push_unhex;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use weft_core::native::PrepareError;
use zeroize::Zeroizing;

/// Largest size of a key file.
pub const KEY_BYTES_MAX: usize = 16 << 10;

/// Bytes of an encryption key.
const KEY_BYTES: usize = 32;

/// A key of 32 bytes: raw, as 64 hexadecimal digits, or in Base64.
///
/// # Errors
/// It is missing, or has another length.
pub(crate) fn of_32_bytes(text: Option<&[u8]>) -> Result<Zeroizing<[u8; KEY_BYTES]>, PrepareError> {
    let text = required_key(text)?;
    if let Ok(raw) = <[u8; KEY_BYTES]>::try_from(text) {
        return Ok(Zeroizing::new(raw));
    }
    let text = trimmed(text);
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let is_hex = text.len() == 2 * KEY_BYTES && push_unhex(text, &mut bytes).is_some();
    if !is_hex {
        bytes.clear();
        let _ = STANDARD.decode_vec(text, &mut bytes);
    }
    let wrong = || {
        let what = "it needs 32 bytes: as they are, as 64 hexadecimal digits, or in Base64";
        PrepareError::Key(format!("the key is not of the right length: {what}"))
    };
    Ok(Zeroizing::new(<[u8; KEY_BYTES]>::try_from(bytes.as_slice()).map_err(|_| wrong())?))
}

/// A secret of at least 32 bytes (RFC 7518 section 3.2): raw without a final line break, or after `hex:`, `base64:` or
/// `base64url:`.
///
/// # Errors
/// It is missing or shorter, or does not have the announced form.
pub(crate) fn secret(text: Option<&[u8]>) -> Result<Zeroizing<Vec<u8>>, PrepareError> {
    let text = trimmed(required_key(text)?);
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let is_read = if let Some(digits) = text.strip_prefix(b"hex:") {
        push_unhex(digits, &mut bytes).is_some()
    } else if let Some(digits) = text.strip_prefix(b"base64url:") {
        URL_SAFE_NO_PAD.decode_vec(digits, &mut bytes).is_ok()
    } else if let Some(digits) = text.strip_prefix(b"base64:") {
        STANDARD.decode_vec(digits, &mut bytes).is_ok()
    } else {
        bytes.extend_from_slice(text);
        true
    };
    if !is_read {
        return Err(PrepareError::Key("the key is not in the form that its first word says".into()));
    }
    if bytes.len() < KEY_BYTES {
        return Err(PrepareError::Key("the key is too short: it needs 32 bytes or more".into()));
    }
    Ok(bytes)
}

/// The content of a PEM block (RFC 7468), and its label: `PUBLIC KEY`, `RSA PUBLIC KEY`.
///
/// # Errors
/// There is none.
pub(crate) fn pem(text: Option<&[u8]>) -> Result<(String, Vec<u8>), PrepareError> {
    let wrong = || {
        PrepareError::Key("the key is not a PEM file of a public key (`-----BEGIN PUBLIC KEY-----`)".into())
    };
    let text = core::str::from_utf8(required_key(text)?).map_err(|_| wrong())?;
    let (_, rest) = text.split_once("-----BEGIN ").ok_or_else(wrong)?;
    let (label, rest) = rest.split_once("-----").ok_or_else(wrong)?;
    let (body, _) = rest.split_once("-----END ").ok_or_else(wrong)?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(body).map_err(|_| wrong())?;
    if !matches!(label, "PUBLIC KEY" | "RSA PUBLIC KEY") {
        return Err(PrepareError::Key(format!(
            "the key is a {label}; a PUBLIC KEY is enough to verify, and safer"
        )));
    }
    Ok((label.to_owned(), der))
}

/// The key in a SubjectPublicKeyInfo (RFC 5280 section 4.1): the algorithm's identifier, and the bits.
pub(crate) fn subject_public_key(der: &[u8]) -> Option<(&[u8], &[u8])> {
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 0x03;
    let (info, []) = element(SEQUENCE, der)? else { return None };
    let (algorithm, rest) = element(SEQUENCE, info)?;
    let (bits, []) = element(BIT_STRING, rest)? else { return None };
    // The first byte is the number of unused bits at the end; a key has whole bytes.
    let (0, key) = bits.split_first().map(|(unused, key)| (*unused, key))? else { return None };
    Some((algorithm, key))
}

/// Reads a DER element with this tag; returns its content and the bytes after it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    let (len, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(len, rest)| (usize::from(*len), rest))?,
        0x82 => {
            rest.split_first_chunk::<2>().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?
        }
        _ => return None,
    };
    (found == tag).then_some(())?;
    rest.split_at_checked(len)
}

/// The text of a key; an error if it is absent or too long.
fn required_key(text: Option<&[u8]>) -> Result<&[u8], PrepareError> {
    let text = text.ok_or_else(|| PrepareError::Key("there is no key".into()))?;
    if text.len() > KEY_BYTES_MAX {
        return Err(PrepareError::Key(format!("the key has more than {KEY_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The text without a final line break.
fn trimmed(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}
