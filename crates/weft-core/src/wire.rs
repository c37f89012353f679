//! Wire formats: protocols as `CREATE PROTOCOL` defines them, after the checker has accepted them.
//!
//! A [`Protocol`] is a list of [`Item`]s that serves both directions: a parser follows it to find fields, a builder to
//! write them. Nothing is built in: Ethernet is a protocol like the others, defined by the program. A checked
//! definition guarantees:
//! - every length and every repetition is bounded, so a header has a maximum size;
//! - bit fields fill whole bytes before anything else begins, and none spans more than eight bytes;
//! - an expression reads fields before it, or (in [`Next`], lengths and checks) any field of its own header;
//! - the conditions of [`Protocol::next`] exclude each other.
//!
//! A *layer* is one header in a frame. Layers behind an edge with [`Next::inner`] are on the next *level*: level 0 is
//! what arrived on the wire, level 1 what a tunnel carries.

mod build;
pub(crate) mod eval;
mod formats;
pub mod generate;
pub mod header_change;
mod read;

pub use build::{BuildError, Header, build};
pub use formats::{DEPTH_MAX, Formats};
pub use read::{FoundField, Layer, Malformed, Reading, read};

use crate::types::Type;

/// Levels of layers that a program may read: the frame itself, and the content of a tunnel in it.
pub const LEVELS_MAX: u8 = 2;
/// Nested tunnels in which fragments are tracked.
pub const CARRIED_MAX: usize = 3;
/// Repeatable layers, such as tags and options, that a parser follows. One more is malformed, or payload if its
/// definition says so for malformed headers.
pub const LAYERS_MAX: u32 = 32;
/// Maximum size of a header in bytes, repetitions included.
pub const HEADER_BYTES_MAX: u32 = 9216;
/// Maximum number of rounds of a REPEAT.
pub const REPEATS_MAX: u32 = 128;
/// Maximum number of protocols of a program.
pub const PROTOCOLS_MAX: usize = 1024;
/// Maximum number of fields of a protocol.
pub const FIELDS_MAX: usize = 256;

const _: () = assert!(PROTOCOLS_MAX <= u16::MAX as usize, "the id of a protocol has 16 bits");
const _: () = assert!(FIELDS_MAX <= u16::MAX as usize, "the id of a field has 16 bits");

/// The greatest number of this width, 1 to 64 bits.
pub const fn bits_max(bits: u8) -> u64 {
    u64::MAX >> (64 - bits as u32)
}

/// Converts a number between its value and its bits on the wire, highest first. Only LITTLE fields, which have whole
/// bytes, differ.
pub const fn as_on_wire(number: u64, bits: u32, little: bool) -> u64 {
    if little { number.swap_bytes() >> (64 - bits) } else { number }
}

/// The big-endian number in 1 to 8 bytes.
#[inline]
pub fn get_number(field: &[u8]) -> u64 {
    match *field {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f] => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        _ => field.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

/// Writes a number into 1 to 8 bytes, big-endian; higher bits are dropped.
///
/// # Panics
/// There are more bytes.
#[inline]
pub fn put_number(field: &mut [u8], number: u64) {
    match field {
        [a] => *a = number as u8,
        [a, b] => [*a, *b] = (number as u16).to_be_bytes(),
        [a, b, c, d] => [*a, *b, *c, *d] = (number as u32).to_be_bytes(),
        [a, b, c, d, e, f] => [_, _, *a, *b, *c, *d, *e, *f] = number.to_be_bytes(),
        _ => field.copy_from_slice(&number.to_be_bytes()[8 - field.len()..]),
    }
}

/// Copies bytes to a field of the same length; addresses without a loop.
///
/// # Panics
/// The lengths differ.
#[inline(always)]
pub fn put_bytes(field: &mut [u8], new: &[u8]) {
    /// Copies `N` bytes; does nothing if one side is shorter.
    fn put<const N: usize>(field: &mut [u8], new: &[u8]) {
        if let (Some(field), Some(new)) = (field.first_chunk_mut::<N>(), new.first_chunk::<N>()) {
            *field = *new;
        }
    }
    match (field.len(), new.len()) {
        (6, 6) => put::<6>(field, new),
        (4, 4) => put::<4>(field, new),
        (16, 16) => put::<16>(field, new),
        _ => field.copy_from_slice(new),
    }
}

/// A protocol: an index into the program's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolId(pub u16);

/// A field: an index into [`Protocol::fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldId(pub u16);

/// A wire format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Protocol {
    /// The name: `ipv4`.
    pub name: String,
    /// All fields, in the order of the wire.
    pub fields: Vec<Field>,
    /// The structure of the header.
    pub items: Vec<Item>,
    /// The length of the whole layer in bytes, header included, if the header gives it (`LENGTH`); otherwise the layer
    /// extends to the end of the layer below. A layer that exceeds it is malformed.
    pub length: Option<Expr>,
    /// The protocols that may follow the header: the arms of PAYLOAD, then the BINDs of others, in source order. The
    /// first one whose condition is true follows; plain bytes if none is.
    pub next: Vec<Next>,
    /// `ON ENCAP SET`: the fields that encapsulation sets in layers below, as (protocol, field, value); the value reads
    /// the fields of this header.
    pub encap: Vec<(ProtocolId, FieldId, Expr)>,
    /// `SESSION KEY`: the fields that identify a session.
    pub session_key: Vec<(ProtocolId, FieldId)>,
    /// `MALFORMED IS PAYLOAD`: a malformed header counts as payload.
    pub malformed_is_payload: bool,
    /// `ERROR WHERE e`: the header reports an error. Errors must not be answered with errors.
    pub error: Option<Expr>,
    /// Minimum size of the header in bytes.
    pub header_min: u32,
    /// Maximum size of the header in bytes, at most [`HEADER_BYTES_MAX`].
    pub header_max: u32,
    /// The line of the definition.
    pub line: u32,
}

/// A part of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A field.
    Field(FieldId),
    /// `WHEN (condition) ( ... )`: present only if the condition is true. It fills whole bytes.
    When {
        /// An expression over earlier fields.
        condition: Expr,
        /// The items that are then present.
        items: Vec<Self>,
    },
    /// `REPEAT name ( ... ) ... MAX n`: a repetition. Each round fills whole bytes, at least one.
    Repeat {
        /// Its name.
        name: String,
        /// A field of this name with all rounds: [`Width::Rounds`].
        field: FieldId,
        /// One round; its expressions may read fields of the same round and before the REPEAT.
        items: Vec<Self>,
        /// The end condition.
        until: Until,
        /// Maximum number of rounds, at most [`REPEATS_MAX`]; a header with more is malformed.
        max: u32,
        /// The line of the definition.
        line: u32,
    },
}

/// The end of a repetition.
#[derive(Clone, Debug, PartialEq)]
pub enum Until {
    /// `UNTIL (e)`: after the first round for which it is true; there is at least one round.
    Condition(Expr),
    /// `COUNT e`: after this many rounds.
    Count(Expr),
    /// `BYTES e`: after this many bytes; a round that exceeds them is malformed.
    Bytes(Expr),
}

/// A field of a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name: `ttl`.
    pub name: String,
    /// The width.
    pub width: Width,
    /// The type of the column: BOOL for `bit(1)`, else U8, U16, U32 or U64 for bits; BYTES, or the type of `AS`, for
    /// bytes: MAC (6), IPADDR (4 or 16), TEXT.
    pub ty: Type,
    /// The value that a builder writes by default, and that a parser requires.
    pub rule: Rule,
    /// `CHECK (e)`: a frame for which it is false is malformed.
    pub check: Option<Expr>,
    /// It is inside a WHEN, so it may be absent.
    pub optional: bool,
    /// It is inside a REPEAT (the column then has the value of the first round), or it holds all rounds.
    pub repeated: bool,
    /// The line of the definition.
    pub line: u32,
}

/// The width of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Width {
    /// 1 to 64 bits. Bit 0 of a byte is the most significant one, as RFCs draw it.
    Bits {
        /// The number of bits.
        n: u8,
        /// `LITTLE`: whole bytes, the least significant first.
        little: bool,
    },
    /// A number of bytes.
    Bytes {
        /// The number: constant, or from earlier fields.
        count: Expr,
        /// Its maximum; more is malformed.
        max: u32,
    },
    /// All rounds of a REPEAT, as bytes.
    Rounds {
        /// Their maximum length.
        max: u32,
    },
}

/// The rule for the content of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// The builder sets it; the default is zero.
    Plain,
    /// `= n`: written as this; a header with another value is malformed.
    Constant(u64),
    /// `DEFAULT e`: written as this unless it is set; a parser accepts any value. A default checksum is updated when
    /// programs change fields.
    Default(Expr),
    /// `COMPUTED (e)`: written last, from everything else. A parser requires the computed value for lengths, counts and
    /// flags, and a correct checksum over the header; otherwise the frame is malformed. It does not verify a checksum
    /// that covers the payload.
    Computed(Expr),
    /// `RESERVED`: written as zero; a parser accepts any value.
    Reserved,
}

/// An expression over a header. Values are unsigned 64-bit integers, and booleans are 0 or 1. Arithmetic saturates,
/// division by zero is 0, and an absent field is 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A number.
    Int(u64),
    /// A field of the same header; inside a REPEAT, of the same round.
    Field(FieldId),
    /// `peek bit(n)`: the first 1 to 64 bits behind the header; 0 if there are fewer.
    Peek(u8),
    /// `header_bytes`: the size of this header.
    HeaderBytes,
    /// `payload_bytes`: the bytes from behind this header to the end of the layer.
    PayloadBytes,
    /// `bytes_after(f)`: the bytes from behind a field to the end of the layer.
    BytesAfter(FieldId),
    /// `round_bytes`: the size of this round of the REPEAT.
    RoundBytes,
    /// `rest`: the bytes from here to the end of the layer.
    Rest,
    /// `count(name)`: the number of rounds of a REPEAT.
    Count(String),
    /// `present(f)`: whether a field is present.
    Present(FieldId),
    /// `last`: whether this is the last round of the REPEAT.
    Last,
    /// A checksum; only as the whole of a COMPUTED or DEFAULT.
    Checksum(Checksum),
    /// `hash(inner.flow)`: the [flow](crate::flow) hash of the content; only in a [`Spread`] of `ON ENCAP SET`.
    Flow,
    /// A binary operation.
    Binary(BinaryOp, Box<Self>, Box<Self>),
    /// `NOT e`
    Not(Box<Self>),
    /// `e IN (...)`
    In(Box<Self>, Vec<u64>),
    /// `c ? a : b` (`CASE WHEN c THEN a ELSE b END`)
    If(Box<Self>, Box<Self>, Box<Self>),
}

/// Binary operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
}

/// Kinds of checksums. The field of the checksum counts as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// `checksum(header)`: the internet checksum (RFC 1071) of the header.
    Header,
    /// `checksum(header, payload)`: over the whole layer.
    Layer,
    /// `checksum(pseudo, header, payload)`: over the pseudo header of the layer below (addresses, protocol, length; RFC
    /// 9293 section 3.1, RFC 8200 section 8.1) and the whole layer.
    Pseudo,
    /// `checksum_or_zero(pseudo, header, payload)`: as Pseudo, where zero means no checksum (RFC 768).
    PseudoOrZero,
    /// `crc32c(header, payload)`: over the whole layer, in SCTP's byte order (RFC 9260 appendix A).
    Crc32c,
}

/// A protocol that may follow a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// A condition over the fields of this header; `Int(1)` for always.
    pub condition: Expr,
    /// The following protocol.
    pub to: ProtocolId,
    /// Whether it is tunnelled: its layers are on the next level.
    pub inner: bool,
    /// `OR bytes`: a malformed header there counts as payload.
    pub or_bytes: bool,
    /// The line of the PAYLOAD's arm or the BIND.
    pub line: u32,
}

/// Several protocols under one name: `ip` is `ipv4` or `ipv6`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Union {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<ProtocolId>,
    /// Their common columns.
    pub columns: Vec<UnionColumn>,
    /// The line of the definition.
    pub line: u32,
}

/// A column of a [`Union`].
#[derive(Clone, Debug, PartialEq)]
pub struct UnionColumn {
    /// The name: `src`.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The protocols that have it: the members, or the protocols that LAST names.
    pub protocols: Vec<ProtocolId>,
    /// The field of each of these protocols.
    pub fields: Vec<FieldId>,
    /// Whether it is the field of the last of these layers in a frame.
    pub last: bool,
}

/// A reference to a layer of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerRef {
    /// 0, or 1 for `inner.`; below [`LEVELS_MAX`] in a program, and up to [`CARRIED_MAX`] for tracked fragments.
    pub level: u8,
    /// The alternatives: one protocol, or the members of a union. The reference is to the first such layer of the
    /// level.
    pub protocols: Vec<ProtocolId>,
}

/// A column of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldRef {
    /// The layer.
    pub layer: LayerRef,
    /// The field of each of the layer's protocols; None for the presence of the layer (BOOL, never NULL).
    pub fields: Option<Vec<FieldId>>,
    /// Whether it refers to the last such layer of the level instead of the first.
    pub last: bool,
}

impl FieldRef {
    /// The presence of a layer.
    pub fn presence(layer: LayerRef) -> Self {
        Self { layer, fields: None, last: false }
    }

    /// Whether both may refer to the same field, so that a change of one changes the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let parts = |of: &Self| -> Vec<(ProtocolId, FieldId)> {
            of.layer.protocols.iter().copied().zip(of.fields.iter().flatten().copied()).collect()
        };
        let own = parts(self);
        self.layer.level == other.layer.level && parts(other).iter().any(|part| own.contains(part))
    }

    /// A field of the first such layer, by protocol.
    pub fn first(layer: LayerRef, fields: Vec<FieldId>) -> Self {
        Self { layer, fields: Some(fields), last: false }
    }
}

/// The value of a field, outside a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// The value of a bit field.
    Number(u64),
    /// The value of a byte field.
    Bytes(Vec<u8>),
}

impl BinaryOp {
    /// The result for two numbers, by the rules of [`Expr`].
    pub fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Add => a.saturating_add(b),
            Self::Sub => a.saturating_sub(b),
            Self::Mul => a.saturating_mul(b),
            Self::Div => a.checked_div(b).unwrap_or(0),
            Self::Rem => a.checked_rem(b).unwrap_or(0),
            Self::Eq => u64::from(a == b),
            Self::Ne => u64::from(a != b),
            Self::Lt => u64::from(a < b),
            Self::Le => u64::from(a <= b),
            Self::Gt => u64::from(a > b),
            Self::Ge => u64::from(a >= b),
            Self::And => u64::from(a != 0 && b != 0),
            Self::Or => u64::from(a != 0 || b != 0),
        }
    }

    /// Whether the result is a number and not a boolean.
    pub fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Rem)
    }
}

impl Expr {
    /// Calls `visit` for this expression and all its parts.
    pub fn each(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        match self {
            Self::Binary(_, a, b) => [a, b].into_iter().for_each(|e| e.each(visit)),
            Self::Not(a) | Self::In(a, _) => a.each(visit),
            Self::If(a, b, c) => [a, b, c].into_iter().for_each(|e| e.each(visit)),
            _ => {}
        }
    }

    /// Whether a parser can verify the computed value: not for checksums over the payload, nor for values that only the
    /// builder knows.
    pub fn is_verified(&self) -> bool {
        let mut is_verified = true;
        self.each(&mut |e| {
            is_verified &= match e {
                Self::Checksum(sum) => *sum == Checksum::Header,
                Self::Last => false,
                _ => true,
            }
        });
        is_verified
    }

    /// The fields that must have certain values for it to be true: those of an AND of equalities with numbers.
    pub fn required(&self) -> Vec<(FieldId, u64)> {
        match self {
            Self::Binary(BinaryOp::And, a, b) => [a.required(), b.required()].concat(),
            Self::Binary(BinaryOp::Eq, a, b) => match (&**a, &**b) {
                (Self::Field(field), Self::Int(n)) | (Self::Int(n), Self::Field(field)) => vec![(*field, *n)],
                _ => Vec::new(),
            },
            Self::In(a, list) => match (&**a, list.first()) {
                (Self::Field(field), Some(n)) => vec![(*field, *n)],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

impl Rule {
    /// The checksum that the field holds, if any.
    pub fn checksum(&self) -> Option<Checksum> {
        match self {
            Self::Default(Expr::Checksum(sum)) | Self::Computed(Expr::Checksum(sum)) => Some(*sum),
            _ => None,
        }
    }
}

impl Item {
    /// Calls `visit` for all conditions and repetition counts of this item and its parts.
    pub fn each_expr(&self, visit: &mut impl FnMut(&Expr)) {
        match self {
            Self::Field(_) => {}
            Self::When { condition, items } => {
                visit(condition);
                items.iter().for_each(|item| item.each_expr(visit));
            }
            Self::Repeat { items, until, .. } => {
                let (Until::Condition(e) | Until::Count(e) | Until::Bytes(e)) = until;
                visit(e);
                items.iter().for_each(|item| item.each_expr(visit));
            }
        }
    }
}

/// A number that spreads flows: `low + hash(inner.flow) % n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The least number.
    pub low: u64,
    /// The number of different numbers, at least 1.
    pub n: u64,
}

impl Spread {
    /// The number for a flow.
    pub fn of(self, flow: u32) -> u64 {
        self.low.saturating_add(u64::from(flow) % self.n)
    }
}

impl Expr {
    /// The spread, if the expression is nothing else.
    pub fn spread(&self) -> Option<Spread> {
        match self {
            Self::Flow => Some(Spread { low: 0, n: 1 << 32 }),
            Self::Binary(BinaryOp::Rem, flow, n) => match (&**flow, &**n) {
                (Self::Flow, Self::Int(n)) if *n > 0 => Some(Spread { low: 0, n: *n }),
                _ => None,
            },
            Self::Binary(BinaryOp::Add, a, b) => {
                let ((Self::Int(low), other) | (other, Self::Int(low))) = (&**a, &**b) else { return None };
                let spread = other.spread().filter(|spread| spread.low == 0)?;
                Some(Spread { low: *low, ..spread })
            }
            _ => None,
        }
    }

    /// Whether it depends on the end of the layer.
    pub fn depends_on_end(&self) -> bool {
        let mut looks = false;
        self.each(&mut |e| looks |= matches!(e, Self::PayloadBytes | Self::BytesAfter(_) | Self::Rest));
        looks
    }
}

impl Protocol {
    /// A field that a builder computes from this one, other than a checksum, if there is one.
    pub fn computed_from(&self, field: FieldId) -> Option<&Field> {
        self.fields.iter().find(|other| {
            let mut names = false;
            if let Rule::Computed(expr) = &other.rule {
                expr.each(&mut |e| names |= *e == Expr::Field(field));
            }
            names
        })
    }

    /// The constant bits with which this protocol begins, as their number and value. None if its first field is not
    /// constant.
    pub fn begins(&self) -> Option<(u8, u64)> {
        let Item::Field(id) = self.items.first()? else { return None };
        let field = &self.fields[usize::from(id.0)];
        match (&field.width, &field.rule) {
            (Width::Bits { n, little }, Rule::Constant(value)) => {
                Some((*n, as_on_wire(*value, u32::from(*n), *little)))
            }
            _ => None,
        }
    }

    /// The field that announces more fragments, in protocols with `frag_offset` and `mf` such as IPv4 and the IPv6
    /// fragment header. In a first fragment, the layers behind it are longer than the frame, so they end where the
    /// frame does.
    pub fn more_fragments(&self) -> Option<FieldId> {
        self.field("frag_offset").and_then(|_| self.field("mf"))
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        self.fields.iter().position(|field| field.name == name).map(|at| FieldId(at as u16))
    }
}
