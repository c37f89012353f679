//! Protobuf's wire format: tags, varints, lengths, and skipping of unknown fields.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>. Decoders differ on a tag or a varint that does not fit
//! its type. This module refuses it, so that no later reader sees a value that we did not see.

use core::fmt;

/// Maximum nesting of messages and groups, as in the decoders of C++, Java and Rust.
pub const DEPTH_MAX: usize = 100;

/// The bytes are not a protobuf message: a fault of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset of the bad field, varint or text in the payload, in bytes.
    pub offset: usize,
    /// The error there.
    pub reason: Reason,
}

/// Why bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A varint of more than 64 bits.
    VarintTooLong,
    /// The message, or the enclosing sub-message, ends within a field.
    Truncated,
    /// A length that points past the end of the enclosing message.
    LengthPastEnd,
    /// A tag that does not fit 32 bits.
    TagTooLarge,
    /// Field number 0.
    FieldZero,
    /// Wire type 6 or 7.
    WireType(u8),
    /// The end of a group that was not begun, or of another one.
    GroupMismatch,
    /// Groups nested deeper than [`DEPTH_MAX`].
    TooDeep,
    /// A `string` that is not UTF-8.
    Utf8,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed protobuf at byte {}: ", self.offset)?;
        match self.reason {
            Reason::VarintTooLong => f.write_str("a varint of more than 64 bits"),
            Reason::Truncated => f.write_str("the message ends within a field"),
            Reason::LengthPastEnd => f.write_str("a length points past the end of the message"),
            Reason::TagTooLarge => f.write_str("a tag of more than 32 bits"),
            Reason::FieldZero => f.write_str("field number 0"),
            Reason::WireType(wire) => write!(f, "wire type {wire} does not exist"),
            Reason::GroupMismatch => f.write_str("the end of a group that is not open"),
            Reason::TooDeep => write!(f, "groups nested deeper than {DEPTH_MAX}"),
            Reason::Utf8 => f.write_str("a string that is not UTF-8"),
        }
    }
}

impl core::error::Error for Malformed {}

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LEN: u32 = 2;
pub(super) const GROUP: u32 = 3;
pub(super) const GROUP_END: u32 = 4;
pub(super) const FIXED32: u32 = 5;

/// The tag of field `number` on the wire.
pub(super) const fn make_tag(number: u32, wire_type: u32) -> u32 {
    number << 3 | wire_type
}

pub(super) const fn malformed<T>(offset: usize, reason: Reason) -> Result<T, Malformed> {
    Err(Malformed { offset, reason })
}

/// Reads a varint at `pos` and moves `pos` past it.
#[inline(always)]
pub(super) fn varint(data: &[u8], pos: &mut usize) -> Result<u64, Malformed> {
    match data.get(*pos) {
        Some(&byte) if byte < 0x80 => {
            *pos += 1;
            Ok(u64::from(byte))
        }
        _ => long_varint(data, pos),
    }
}

/// Reads a varint of up to ten bytes at `pos`, and moves `pos` past it.
fn long_varint(data: &[u8], pos: &mut usize) -> Result<u64, Malformed> {
    let start = *pos;
    let mut value = 0;
    for (i, &byte) in data[start..].iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            // The tenth byte has room for one bit.
            if i == 9 && byte > 1 {
                return malformed(start, Reason::VarintTooLong);
            }
            *pos = start + i + 1;
            return Ok(value);
        }
    }
    let reason = if data.len() - start < 10 { Reason::Truncated } else { Reason::VarintTooLong };
    malformed(start, reason)
}

/// Reads a tag at `pos` and moves `pos` past it. The field number in it is not 0.
#[inline(always)]
pub(super) fn tag(data: &[u8], pos: &mut usize) -> Result<u32, Malformed> {
    let start = *pos;
    let Ok(tag) = u32::try_from(varint(data, pos)?) else {
        return malformed(start, Reason::TagTooLarge);
    };
    if tag < 8 {
        return malformed(start, Reason::FieldZero);
    }
    Ok(tag)
}

/// Reads a length at `pos`, moves `pos` past it, and returns the end of its span, which is within `data`.
#[inline(always)]
pub(super) fn span(data: &[u8], pos: &mut usize) -> Result<usize, Malformed> {
    let start = *pos;
    let length = varint(data, pos)?;
    if length > (data.len() - *pos) as u64 {
        return malformed(start, Reason::LengthPastEnd);
    }
    Ok(*pos + length as usize)
}

/// Reads four bytes, little-endian, and moves `pos` past them.
#[inline(always)]
pub(super) fn fixed32(data: &[u8], pos: &mut usize) -> Result<u32, Malformed> {
    let Some(bytes) = data[*pos..].first_chunk() else {
        return malformed(*pos, Reason::Truncated);
    };
    *pos += 4;
    Ok(u32::from_le_bytes(*bytes))
}

/// Reads eight bytes, little-endian, and moves `pos` past them.
#[inline(always)]
pub(super) fn fixed64(data: &[u8], pos: &mut usize) -> Result<u64, Malformed> {
    let Some(bytes) = data[*pos..].first_chunk() else {
        return malformed(*pos, Reason::Truncated);
    };
    *pos += 8;
    Ok(u64::from_le_bytes(*bytes))
}

/// Moves `pos` past the value of a field with this `tag`, which was at `at`. `depth` is the number of enclosing
/// messages and groups.
pub(super) fn skip(data: &[u8], pos: &mut usize, tag: u32, at: usize, depth: usize) -> Result<(), Malformed> {
    match tag & 7 {
        VARINT => varint(data, pos).map(drop),
        FIXED64 => fixed64(data, pos).map(drop),
        LEN => {
            *pos = span(data, pos)?;
            Ok(())
        }
        GROUP => skip_group(data, pos, tag >> 3, at, depth + 1),
        GROUP_END => malformed(at, Reason::GroupMismatch),
        FIXED32 => fixed32(data, pos).map(drop),
        wire => malformed(at, Reason::WireType(wire as u8)),
    }
}

/// Moves `pos` past a group's fields and its end tag.
fn skip_group(data: &[u8], pos: &mut usize, number: u32, at: usize, depth: usize) -> Result<(), Malformed> {
    if depth > DEPTH_MAX {
        return malformed(at, Reason::TooDeep);
    }
    loop {
        let start = *pos;
        let inner = tag(data, pos)?;
        if inner == make_tag(number, GROUP_END) {
            return Ok(());
        }
        skip(data, pos, inner, start, depth)?;
    }
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, value: u64) {
    let (bytes, n) = encode_varint(value);
    out.extend_from_slice(&bytes[..n]);
}

/// Inserts the length of `out[mark..]` in front of it.
pub(super) fn put_length_before(out: &mut Vec<u8>, mark: usize) {
    let (bytes, n) = encode_varint((out.len() - mark) as u64);
    out.extend_from_slice(&bytes[..n]);
    out[mark..].rotate_right(n);
}

/// Encodes a varint. Returns the bytes, and the number of them in use.
fn encode_varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut n = 0;
    while value >= 0x80 {
        bytes[n] = value as u8 | 0x80;
        value >>= 7;
        n += 1;
    }
    bytes[n] = value as u8;
    (bytes, n + 1)
}
