//! Reads and sets JSON values by pointer (RFC 6901), without parsing the rest into a tree.

use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use weft_core::native::PrepareError;
use weft_core::native::{Arg, Call, Ended, NATIVE_BYTES_MAX, Prepared};

/// `json_get`.
#[derive(Debug)]
pub(crate) struct Get(Vec<String>);

/// `json_set`.
#[derive(Debug)]
pub(crate) struct Set(Vec<String>);

impl Get {
    pub(crate) fn new(pointer: &str) -> Result<Self, PrepareError> {
        parse(pointer).map(Self)
    }
}

impl Set {
    pub(crate) fn new(pointer: &str) -> Result<Self, PrepareError> {
        parse(pointer).map(Self)
    }
}

/// Splits a pointer into its reference tokens, unescaped (RFC 6901 section 4).
fn parse(pointer: &str) -> Result<Vec<String>, PrepareError> {
    let wrong = || PrepareError::Constant(format!("`{pointer}` is not a JSON pointer"));
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = pointer.strip_prefix('/').ok_or_else(wrong)?.split('/');
    let unescape = |token: &str| {
        let is_escape = |(at, _): (usize, &str)| matches!(token.as_bytes().get(at + 1), Some(b'0' | b'1'));
        let fits = token.match_indices('~').all(is_escape);
        fits.then(|| token.replace("~1", "/").replace("~0", "~")).ok_or_else(wrong)
    };
    tokens.map(unescape).collect()
}

impl Prepared for Get {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let Ok(json) = core::str::from_utf8(call.data()) else { return Ended::Failed };
        let Ok(found) = follow_pointer(json, &self.0) else { return Ended::Failed };
        let Some(value) = found.value.map(RawValue::get) else { return Ended::Null };
        match value.as_bytes() {
            b"null" => return Ended::Null,
            [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => out.extend_from_slice(plain),
            [b'"', ..] => match serde_json::from_str::<String>(value) {
                Ok(text) => out.extend_from_slice(text.as_bytes()),
                // Half of a surrogate pair is no character (RFC 8259 section 8.2).
                Err(_) => return Ended::Failed,
            },
            other => out.extend_from_slice(other),
        }
        if out.len() <= NATIVE_BYTES_MAX { Ended::Bytes } else { Ended::Failed }
    }
}

impl Prepared for Set {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let Ok(json) = core::str::from_utf8(call.data()) else { return Ended::Failed };
        let Some(&value) = call.args.get(1) else { return Ended::Failed };
        let Ok(found) = follow_pointer(json, &self.0) else { return Ended::Failed };
        let is_set = match (found.value, found.around, self.0.last()) {
            (Some(old), ..) => {
                let start = offset(json, old.get());
                push_with(out, (&json[..start], &json[start + old.get().len()..]), |out| {
                    push_value(out, value)
                })
            }
            (None, Some(around), Some(name)) => push_new(out, json, around, (name, value)),
            _ => false,
        };
        if is_set && out.len() <= NATIVE_BYTES_MAX { Ended::Bytes } else { Ended::Failed }
    }
}

/// Appends the JSON with a new member or item at the end of the container `around` its place; returns false if there is
/// none.
fn push_new(out: &mut Vec<u8>, json: &str, around: &RawValue, (name, value): (&str, Arg<'_>)) -> bool {
    let text = around.get();
    let end = offset(json, text) + text.len() - 1;
    let is_empty = text[1..text.len() - 1].trim_ascii().is_empty();
    let parts = (&json[..end], &json[end..]);
    match text.as_bytes()[0] {
        b'{' => push_with(out, parts, |out| {
            if !is_empty {
                out.push(b',');
            }
            let is_named = push_value(out, Arg::Bytes(name.as_bytes()));
            out.push(b':');
            is_named && push_value(out, value)
        }),
        // `-` is the item after the last one (RFC 6901 section 4).
        b'[' if name == "-" => push_with(out, parts, |out| {
            if !is_empty {
                out.push(b',');
            }
            push_value(out, value)
        }),
        _ => false,
    }
}

/// Appends `before`, what `push` appends, and `behind`; returns the result of `push`.
fn push_with(
    out: &mut Vec<u8>,
    (before, behind): (&str, &str),
    push: impl FnOnce(&mut Vec<u8>) -> bool,
) -> bool {
    out.extend_from_slice(before.as_bytes());
    let is_pushed = push(out);
    out.extend_from_slice(behind.as_bytes());
    is_pushed
}

/// Appends a value as JSON; returns false if it cannot be represented.
fn push_value(out: &mut Vec<u8>, value: Arg<'_>) -> bool {
    match value {
        Arg::Bool(b) => serde_json::to_writer(out, &b).is_ok(),
        Arg::Int(n) => serde_json::to_writer(out, &n).is_ok(),
        Arg::Float(x) => x.is_finite() && serde_json::to_writer(out, &x).is_ok(),
        Arg::Bytes(text) => {
            core::str::from_utf8(text).is_ok_and(|text| serde_json::to_writer(out, text).is_ok())
        }
    }
}

/// The offset of a part in its text.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// The target of a pointer.
#[derive(Clone, Copy, Default)]
struct JsonLookup<'de> {
    /// The value, if there is one.
    value: Option<&'de RawValue>,
    /// The object or array that contains it, or would.
    around: Option<&'de RawValue>,
}

/// Follows a pointer. Reads all of the text, so it refuses JSON with an error at any position. Of members with the same
/// name the last counts.
fn follow_pointer<'de>(json: &'de str, tokens: &[String]) -> Result<JsonLookup<'de>, serde_json::Error> {
    let mut at: &RawValue = serde_json::from_str(json)?;
    let mut around = None;
    for token in tokens {
        let mut deserializer = serde_json::Deserializer::from_str(at.get());
        around = Some(at);
        if !at.get().starts_with(['{', '[']) {
            return Ok(JsonLookup::default());
        }
        match (Child { token }).deserialize(&mut deserializer)? {
            Some(child) => at = child,
            None if core::ptr::eq(token, tokens.last().unwrap_or(token)) => {
                return Ok(JsonLookup { value: None, around });
            }
            None => return Ok(JsonLookup::default()),
        }
    }
    Ok(JsonLookup { value: Some(at), around })
}

/// A member or item of a value.
struct Child<'t> {
    token: &'t str,
}

impl<'de> DeserializeSeed<'de> for Child<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Child<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(NameEquals { text: self.token })? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        // An index has no leading zeros (RFC 6901 section 4).
        let is_index = self.token == "0"
            || !self.token.starts_with('0') && self.token.bytes().all(|b| b.is_ascii_digit());
        let wanted: Option<usize> = if is_index { self.token.parse().ok() } else { None };
        let mut found = None;
        for at in 0.. {
            let is_there = if wanted == Some(at) {
                found = seq.next_element()?;
                found.is_some()
            } else {
                seq.next_element::<IgnoredAny>()?.is_some()
            };
            if !is_there {
                break;
            }
        }
        Ok(found)
    }
}

/// Compares a name without copying it.
struct NameEquals<'t> {
    text: &'t str,
}

impl<'de> DeserializeSeed<'de> for NameEquals<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameEquals<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.text)
    }
}
