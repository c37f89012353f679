//! Header lists: all names and values of a header block in one buffer, validated as RFC 9113 section 8 requires.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// A decoded or built header list: a request, a response, or trailers.
///
/// It is immutable; [`HeadersBuilder`] makes an edited copy. Repeated header blocks of a connection share one list, so
/// the owner can derive data from a list once and keep it in `tag`.
pub struct Headers {
    id: u64,
    /// Data that the owner derives from this list; initially 0. No two lists share it.
    pub tag: Cell<u64>,
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The size by RFC 7541 section 4.1: 32 bytes per field, and its name and value.
    list_bytes: usize,
    /// By pseudo-header: its index in `fields` plus one, or 0.
    pseudo: [u8; N_PSEUDO],
    has_regular: bool,
    status: u16,
    content_length: Option<u64>,
    malformed: Option<Malformed>,
}

/// Why a header list is invalid in HTTP/2 (RFC 9113 sections 8.2 and 8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// A name is empty, not in lower case, or has an invalid character.
    Name,
    /// A value contains NUL, CR or LF; or a pseudo-header's or an outgoing value starts or ends with a blank.
    Value,
    /// A pseudo-header is unknown, repeated, after a regular field, or of the other direction.
    PseudoHeader,
    /// A pseudo-header is missing or has an invalid value.
    MissingPseudoHeader,
    /// The field is specific to HTTP/1.1 connections: `connection`, `upgrade` and similar.
    ConnectionSpecific,
    /// `te` has another value than `trailers`.
    Te,
    /// `content-length` is not a number, or there are two different ones.
    ContentLength,
}

/// The role that a list can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Request,
    Response,
    Trailers,
}

/// A field as ranges of `Headers::bytes`: the value follows the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) start: u32,
    pub(crate) value_len: u32,
    pub(crate) name_len: u16,
    pub(crate) name: NameId,
    /// Must never enter a compression table (RFC 7541 section 7.1.3).
    pub(crate) sensitive: bool,
}

/// Maximum length of a name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = u16::MAX as usize;
/// The overhead of a field in the size of a list, in bytes (RFC 7541 section 4.1).
pub(crate) const FIELD_OVERHEAD_BYTES: usize = 32;

impl Headers {
    /// A number that is unique among the lists of this thread.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The `:method` of a request.
    pub fn method(&self) -> Option<&[u8]> {
        self.pseudo(Pseudo::Method)
    }

    /// The `:path` of a request.
    pub fn path(&self) -> Option<&[u8]> {
        self.pseudo(Pseudo::Path)
    }

    /// The `:authority` of a request.
    pub fn authority(&self) -> Option<&[u8]> {
        self.pseudo(Pseudo::Authority)
    }

    /// The `:scheme` of a request.
    pub fn scheme(&self) -> Option<&[u8]> {
        self.pseudo(Pseudo::Scheme)
    }

    /// The `:status` of a response, 100 to 999.
    pub fn status(&self) -> Option<u16> {
        (self.status != 0).then_some(self.status)
    }

    /// The `content-length`, in bytes.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The value of the first field with this lower-case name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields.iter().find(|f| self.name_of(f) == name).map(|f| self.value_of(f))
    }

    /// All fields in order as (name, value, sensitive), pseudo-headers first. A sensitive field must not enter a
    /// compression table on any hop.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8], bool)> {
        self.fields.iter().map(|f| (self.name_of(f), self.value_of(f), f.sensitive))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The size in bytes by RFC 7541 section 4.1: 32 per field, and its name and value.
    pub fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// Creates an empty list with an identity of its own.
    pub(crate) fn new() -> Self {
        Self {
            id: next_id(),
            tag: Cell::new(0),
            bytes: Vec::new(),
            fields: Vec::new(),
            list_bytes: 0,
            pseudo: [0; N_PSEUDO],
            has_regular: false,
            status: 0,
            content_length: None,
            malformed: None,
        }
    }

    /// Empties the list. It gets a new identity and keeps its memory.
    pub(crate) fn reset(&mut self) {
        let (mut bytes, mut fields) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fields));
        bytes.clear();
        fields.clear();
        *self = Self { bytes, fields, ..Self::new() };
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.fields.shrink_to_fit();
    }

    /// A copy with the same identity, for the sender's own use.
    pub(crate) fn duplicate(&self) -> Self {
        Self { tag: self.tag.clone(), bytes: self.bytes.clone(), fields: self.fields.clone(), ..*self }
    }

    /// Heap memory in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    #[inline]
    pub(crate) fn name_of(&self, field: &Field) -> &[u8] {
        let start = field.start as usize;
        &self.bytes[start..start + field.name_len as usize]
    }

    #[inline]
    pub(crate) fn value_of(&self, field: &Field) -> &[u8] {
        let start = field.start as usize + field.name_len as usize;
        &self.bytes[start..start + field.value_len as usize]
    }

    /// The buffer of all fields. The decoder appends a name and a value, and then calls [`Self::commit`].
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes a field of the bytes that were appended since `field.start`. If the value is invalid, tries it without the
    /// surrounding blanks.
    #[inline]
    pub(crate) fn commit(&mut self, mut field: Field, is_value_valid: bool) {
        if !is_value_valid {
            field = self.strip_blanks(field);
        }
        self.list_bytes += FIELD_OVERHEAD_BYTES + field.name_len as usize + field.value_len as usize;
        self.fields.push(field);
        if field.name.is_plain() {
            self.has_regular = true;
        } else if let Err(fault) = self.validate_special_field(field) {
            self.malformed.get_or_insert(fault);
        }
    }

    /// Trims the value that was appended last, and checks the rest.
    ///
    /// RFC 9113 section 8.2.1 calls a value with surrounding blanks malformed. But common gRPC clients send metadata as
    /// their application supplies it, and the gRPC specification lets a receiver strip it: "If it contains leading or
    /// trailing whitespace, it may be stripped" (doc/PROTOCOL-HTTP2.md, ASCII-Value). RFC 9110 section 5.5 also
    /// excludes blanks from the value, so its meaning stays. A pseudo-header is not metadata, so the rule of HTTP/2
    /// applies there.
    #[cold]
    fn strip_blanks(&mut self, mut field: Field) -> Field {
        let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
        let at = field.start as usize + field.name_len as usize;
        let value = &self.bytes[at..];
        let start = value.iter().position(|b| !is_blank(b)).unwrap_or(value.len());
        let end = value.iter().rposition(|b| !is_blank(b)).map_or(start, |last| last + 1);
        let is_pseudo = matches!(field.name.class(), NameClass::Pseudo(_) | NameClass::UnknownPseudo);
        if is_pseudo || !is_valid_value(&value[start..end]) {
            self.malformed.get_or_insert(Malformed::Value);
            return field;
        }
        self.bytes.copy_within(at + start..at + end, at);
        self.bytes.truncate(at + end - start);
        field.value_len = (end - start) as u32;
        field
    }

    /// The role of this list, or why it is invalid.
    pub(crate) fn shape(&self) -> Result<Shape, Malformed> {
        if let Some(fault) = self.malformed {
            return Err(fault);
        }
        let has = |p: Pseudo| self.pseudo[p as usize] != 0;
        let is_request =
            has(Pseudo::Method) || has(Pseudo::Path) || has(Pseudo::Scheme) || has(Pseudo::Authority);
        match (is_request, has(Pseudo::Status)) {
            (true, true) => Err(Malformed::PseudoHeader),
            (false, true) if self.status == 0 => Err(Malformed::MissingPseudoHeader),
            (false, true) => Ok(Shape::Response),
            (false, false) => Ok(Shape::Trailers),
            (true, false) if self.is_complete_request() => Ok(Shape::Request),
            (true, false) => Err(Malformed::MissingPseudoHeader),
        }
    }

    /// Whether the pseudo-header fields of a request are complete (RFC 9113 section 8.3.1).
    fn is_complete_request(&self) -> bool {
        let Some(method) = self.method() else { return false };
        if method == b"CONNECT" {
            // RFC 9113 section 8.5: CONNECT has only an authority.
            return self.scheme().is_none() && self.path().is_none() && self.authority().is_some();
        }
        let is_given = |value: Option<&[u8]>| value.is_some_and(|v| !v.is_empty());
        !method.is_empty() && is_given(self.scheme()) && is_given(self.path())
    }

    fn pseudo(&self, which: Pseudo) -> Option<&[u8]> {
        let place = self.pseudo[which as usize].checked_sub(1)?;
        Some(self.value_of(&self.fields[place as usize]))
    }

    /// Checks a field with a special meaning in HTTP/2. It is already the last of `fields`.
    fn validate_special_field(&mut self, field: Field) -> Result<(), Malformed> {
        let value = self.value_of(&field);
        match field.name.class() {
            NameClass::Plain => {}
            NameClass::Pseudo(which) => {
                if which == Pseudo::Status {
                    self.status = parse_status(value).ok_or(Malformed::MissingPseudoHeader)?;
                }
                let slot = &mut self.pseudo[which as usize];
                if self.has_regular || *slot != 0 {
                    return Err(Malformed::PseudoHeader);
                }
                // Pseudo-headers come first and only once each, so the index is small.
                *slot = self.fields.len() as u8;
                return Ok(());
            }
            NameClass::UnknownPseudo => return Err(Malformed::PseudoHeader),
            NameClass::ConnectionSpecific => return Err(Malformed::ConnectionSpecific),
            NameClass::Invalid => return Err(Malformed::Name),
            NameClass::Te if value != b"trailers" => return Err(Malformed::Te),
            NameClass::Te => {}
            NameClass::ContentLength => {
                let length = parse_length(value).ok_or(Malformed::ContentLength)?;
                if self.content_length.is_some_and(|other| other != length) {
                    return Err(Malformed::ContentLength);
                }
                self.content_length = Some(length);
            }
        }
        self.has_regular = true;
        Ok(())
    }
}

impl fmt::Debug for Headers {
    /// `{:method: POST, ...}`; hides the values of sensitive fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value, sensitive) in self.iter() {
            let shown = if sensitive { "(sensitive)".into() } else { String::from_utf8_lossy(value) };
            map.entry(&format_args!("{}", name.escape_ascii()), &format_args!("{shown}"));
        }
        map.finish()
    }
}

/// Builds a header list, from scratch or from another list.
///
/// It validates each name and value, so the result can be sent unchecked.
pub struct HeadersBuilder {
    list: Headers,
}

impl HeadersBuilder {
    /// An empty list.
    pub fn new() -> Self {
        Self { list: Headers::new() }
    }

    /// A builder with all fields of `headers`.
    pub fn from_headers(headers: &Headers) -> Self {
        let mut list = headers.duplicate();
        list.id = next_id();
        list.tag.set(0);
        Self { list }
    }

    /// Adds a field at the end; a pseudo-header after the other pseudo-headers.
    ///
    /// # Errors
    /// The name or the value is invalid in HTTP/2; the list is unchanged.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<&mut Self, Malformed> {
        let field = self.append(name, value)?;
        self.place(field);
        Ok(self)
    }

    /// Like [`Self::push`], for a field that must never enter a compression table, such as a password.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_sensitive(&mut self, name: &[u8], value: &[u8]) -> Result<&mut Self, Malformed> {
        let field = Field { sensitive: true, ..self.append(name, value)? };
        self.place(field);
        Ok(self)
    }

    /// Sets the first field with this name and removes the others; adds one if there is none.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<&mut Self, Malformed> {
        let Some(at) = self.list.fields.iter().position(|f| self.list.name_of(f) == name) else {
            return self.push(name, value);
        };
        let sensitive = self.list.fields[at].sensitive;
        let field = Field { sensitive, ..self.append(name, value)? };
        self.list.fields[at] = field;
        let (fields, bytes) = (&mut self.list.fields, &self.list.bytes);
        let mut index = 0;
        fields.retain(|f| {
            index += 1;
            index <= at + 1 || &bytes[f.start as usize..][..f.name_len as usize] != name
        });
        Ok(self)
    }

    /// Removes all fields with this name.
    pub fn remove(&mut self, name: &[u8]) -> &mut Self {
        let bytes = &self.list.bytes;
        self.list.fields.retain(|f| &bytes[f.start as usize..][..f.name_len as usize] != name);
        self
    }

    /// Returns the finished list.
    pub fn build(mut self) -> Rc<Headers> {
        let fields = std::mem::take(&mut self.list.fields);
        let bytes = std::mem::take(&mut self.list.bytes);
        let mut list = Headers { bytes, fields: Vec::with_capacity(fields.len()), ..Headers::new() };
        for field in fields {
            list.commit(field, true);
        }
        Rc::new(list)
    }

    /// Inserts a field after the others of its kind: pseudo-headers come first.
    fn place(&mut self, field: Field) {
        let is_pseudo = |f: &Field| matches!(f.name.class(), NameClass::Pseudo(_));
        let fields = &mut self.list.fields;
        let at =
            if is_pseudo(&field) { fields.iter().take_while(|f| is_pseudo(f)).count() } else { fields.len() };
        fields.insert(at, field);
    }

    /// Appends the name and the value to the bytes. Replaced bytes stay unused until the list is dropped.
    fn append(&mut self, name: &[u8], value: &[u8]) -> Result<Field, Malformed> {
        let id = NameId::of(name);
        match id.class() {
            NameClass::Invalid => return Err(Malformed::Name),
            NameClass::UnknownPseudo => return Err(Malformed::PseudoHeader),
            NameClass::ConnectionSpecific => return Err(Malformed::ConnectionSpecific),
            _ if name.len() > NAME_BYTES_MAX => return Err(Malformed::Name),
            _ if !is_valid_value(value) => return Err(Malformed::Value),
            _ => {}
        }
        let start = self.list.bytes.len() as u32;
        self.list.bytes.extend_from_slice(name);
        self.list.bytes.extend_from_slice(value);
        let (name_len, value_len) = (name.len() as u16, value.len() as u32);
        Ok(Field { start, value_len, name_len, name: id, sensitive: false })
    }
}

impl Default for HeadersBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&Headers> for HeadersBuilder {
    fn from(headers: &Headers) -> Self {
        Self::from_headers(headers)
    }
}

/// The pseudo-headers of RFC 9113 section 8.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pseudo {
    Authority,
    Method,
    Path,
    Scheme,
    Status,
}

const N_PSEUDO: usize = 5;

/// The special meaning of a name in HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameClass {
    Plain,
    Pseudo(Pseudo),
    UnknownPseudo,
    ConnectionSpecific,
    Te,
    ContentLength,
    Invalid,
}

/// A known name: 1 to 61 is its first index in HPACK's static table; 0 is any other name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameId(u8);

const TE: NameId = NameId(64);
const CONNECTION_SPECIFIC: NameId = NameId(65);
const UNKNOWN_PSEUDO: NameId = NameId(66);
const INVALID: NameId = NameId(67);
const CLASSES: [NameClass; 68] = classes();

/// Builds the table of name classes. The first 61 indexes are those of the static table of HPACK.
const fn classes() -> [NameClass; 68] {
    let mut classes = [NameClass::Plain; 68];
    classes[1] = NameClass::Pseudo(Pseudo::Authority);
    classes[2] = NameClass::Pseudo(Pseudo::Method);
    classes[4] = NameClass::Pseudo(Pseudo::Path);
    classes[6] = NameClass::Pseudo(Pseudo::Scheme);
    classes[8] = NameClass::Pseudo(Pseudo::Status);
    classes[28] = NameClass::ContentLength;
    // transfer-encoding
    classes[57] = NameClass::ConnectionSpecific;
    classes[TE.0 as usize] = NameClass::Te;
    classes[CONNECTION_SPECIFIC.0 as usize] = NameClass::ConnectionSpecific;
    classes[UNKNOWN_PSEUDO.0 as usize] = NameClass::UnknownPseudo;
    classes[INVALID.0 as usize] = NameClass::Invalid;
    classes
}

impl NameId {
    /// The class of `name`.
    pub(crate) fn of(name: &[u8]) -> Self {
        if let Some(index) = super::hpack::static_name_index(name) {
            return Self(index);
        }
        match name {
            b"te" => TE,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"upgrade" => CONNECTION_SPECIFIC,
            [b':', ..] => UNKNOWN_PSEUDO,
            _ if is_valid_name(name) => Self(0),
            _ => INVALID,
        }
    }

    /// The name at `index` of the static table, which must be the first with that name.
    pub(crate) const fn of_static(index: u8) -> Self {
        Self(index)
    }

    /// The first index of the name in the static table, if there is one.
    #[inline]
    pub(crate) fn static_index(self) -> Option<u8> {
        (1..=61).contains(&self.0).then_some(self.0)
    }

    #[inline]
    pub(crate) fn class(self) -> NameClass {
        CLASSES[self.0 as usize]
    }

    #[inline]
    fn is_plain(self) -> bool {
        matches!(self.class(), NameClass::Plain)
    }
}

/// Whether a value is valid (RFC 9113 section 8.2.1).
pub(crate) fn is_valid_value(value: &[u8]) -> bool {
    let is_blank = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    // Without a short circuit the loop has no branch, and the compiler vectorizes it.
    let has_control = value.iter().fold(false, |bad, &b| bad | (b == 0) | (b == b'\r') | (b == b'\n'));
    !has_control && !is_blank(value.first()) && !is_blank(value.last())
}

/// Whether `name` is a lower-case token (RFC 9110 section 5.6.2).
fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().fold(true, |ok, &b| ok & TOKEN[b as usize])
}

const TOKEN: [bool; 256] = {
    let (mut token, mut b) = ([false; 256], 0usize);
    while b < 256 {
        let c = b as u8;
        token[b] = c.is_ascii_lowercase()
            || c.is_ascii_digit()
            || matches!(
                c,
                b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        b += 1;
    }
    token
};

/// Parses a `:status` of three digits, from 100 on. None for every other value.
fn parse_status(value: &[u8]) -> Option<u16> {
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = *value else { return None };
    Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
}

/// Parses a `content-length`. None if it is not a decimal number of 64 bits.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |n, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// The next identity. It is local to the thread, like the lists.
fn next_id() -> u64 {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(1) });
    NEXT.with(|next| next.replace(next.get() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(fields: &[(&str, &str)]) -> Headers {
        let mut list = Headers::new();
        for (name, value) in fields {
            let start = list.bytes.len() as u32;
            list.bytes.extend_from_slice(name.as_bytes());
            list.bytes.extend_from_slice(value.as_bytes());
            let id = NameId::of(name.as_bytes());
            let (name_len, value_len) = (name.len() as u16, value.len() as u32);
            let field = Field { start, value_len, name_len, name: id, sensitive: false };
            list.commit(field, is_valid_value(value.as_bytes()));
        }
        list
    }

    #[track_caller]
    fn check(fields: &[(&str, &str)], expected: Result<Shape, Malformed>) {
        assert_eq!(list(fields).shape(), expected, "{fields:?}");
    }

    const REQUEST: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/a")];

    fn request_and(more: (&'static str, &'static str)) -> Vec<(&'static str, &'static str)> {
        REQUEST.into_iter().chain([more]).collect()
    }

    #[test]
    fn well_formed_list_has_a_shape() {
        check(&REQUEST, Ok(Shape::Request));
        check(&request_and(("te", "trailers")), Ok(Shape::Request));
        check(&[(":method", "CONNECT"), (":authority", "a:1")], Ok(Shape::Request));
        check(&[(":status", "200"), ("x", "")], Ok(Shape::Response));
        check(&[("grpc-status", "0")], Ok(Shape::Trailers));
        check(&[], Ok(Shape::Trailers));
    }

    #[test]
    fn rfc_9113_section_8_rules_hold() {
        check(&request_and(("X-Upper", "a")), Err(Malformed::Name));
        check(&request_and(("", "a")), Err(Malformed::Name));
        check(&request_and(("a b", "a")), Err(Malformed::Name));
        check(&request_and(("x", "a\0b")), Err(Malformed::Value));
        check(&request_and(("x", "a\r\nb: c")), Err(Malformed::Value));
        check(&request_and(("x", " a\rb")), Err(Malformed::Value));
        check(&[(":method", "POST "), (":scheme", "http"), (":path", "/a")], Err(Malformed::Value));
        check(&[(":status", "200 ")], Err(Malformed::Value));
        check(&request_and(("connection", "close")), Err(Malformed::ConnectionSpecific));
        check(&request_and(("transfer-encoding", "chunked")), Err(Malformed::ConnectionSpecific));
        check(&request_and(("upgrade", "h2c")), Err(Malformed::ConnectionSpecific));
        check(&request_and(("te", "gzip")), Err(Malformed::Te));
        check(&request_and(("content-length", "1x")), Err(Malformed::ContentLength));
        check(&request_and(("content-length", "99999999999999999999")), Err(Malformed::ContentLength));
        check(&[("content-length", "1"), ("content-length", "2")], Err(Malformed::ContentLength));
        check(&request_and((":method", "GET")), Err(Malformed::PseudoHeader));
        check(&request_and((":status", "200")), Err(Malformed::PseudoHeader));
        check(&request_and((":nonsense", "200")), Err(Malformed::PseudoHeader));
        check(&[("a", "b"), (":status", "200")], Err(Malformed::PseudoHeader));
        check(&[(":status", "20")], Err(Malformed::MissingPseudoHeader));
        check(&REQUEST[..2], Err(Malformed::MissingPseudoHeader));
        check(&[(":method", "GET"), (":scheme", "http"), (":path", "")], Err(Malformed::MissingPseudoHeader));
        check(&[(":method", ""), (":scheme", "http"), (":path", "/")], Err(Malformed::MissingPseudoHeader));
        check(&[(":method", "CONNECT"), (":path", "/")], Err(Malformed::MissingPseudoHeader));
    }

    #[test]
    fn value_is_trimmed() {
        // Common clients send metadata with blanks, and servers accept it.
        let fields =
            [("a", " \t1 2\t "), ("b", "  "), ("content-length", "3 "), ("te", "trailers "), ("z", "y")];
        let list = list(&fields);
        assert_eq!(list.shape(), Ok(Shape::Trailers));
        assert_eq!(format!("{list:?}"), "{a: 1 2, b: , content-length: 3, te: trailers, z: y}");
        assert_eq!(list.content_length(), Some(3));
        assert_eq!(list.list_bytes(), fields.len() * FIELD_OVERHEAD_BYTES + list.bytes.len());
    }

    #[test]
    fn edited_list_has_new_identity() {
        let before = list(&request_and(("user", "u1")));
        before.tag.set(7);
        let mut edit = HeadersBuilder::from_headers(&before);
        edit.set(b":path", b"/b").unwrap().set(b"user", b"u2").unwrap().push(b"x", b"1").unwrap();
        edit.push(b"x", b"2").unwrap().set(b"x", b"3").unwrap().push(b":authority", b"host").unwrap();
        edit.push_sensitive(b"password", b"secret").unwrap().remove(b":scheme");
        let after = edit.build();
        let shown = format!("{after:?}");
        assert_eq!(
            shown,
            "{:method: POST, :path: /b, :authority: host, user: u2, x: 3, password: (sensitive)}"
        );
        assert_eq!((after.path(), after.get(b"user")), (Some(&b"/b"[..]), Some(&b"u2"[..])));
        assert_eq!((after.scheme(), after.authority()), (None, Some(&b"host"[..])));
        assert_ne!(before.id(), after.id());
        assert_eq!(after.tag.get(), 0);
    }

    #[test]
    fn smuggled_field_is_refused() {
        let mut edit = HeadersBuilder::new();
        assert_eq!(edit.push(b"a", b" b").err(), Some(Malformed::Value));
        assert_eq!(edit.push(b"a", b"b\r\nc: d").err(), Some(Malformed::Value));
        assert_eq!(edit.push(b"a:b", b"c").err(), Some(Malformed::Name));
        assert_eq!(edit.set(b"connection", b"close").err(), Some(Malformed::ConnectionSpecific));
        assert!(edit.build().is_empty());
    }
}
