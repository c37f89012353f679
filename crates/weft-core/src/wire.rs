//! Wire formats, as `CREATE PROTOCOL` defines them and the checker has found them to be sound.
//!
//! A [`Protocol`] is a list of [`Item`]s that is good both ways: a parser follows it to find fields, a builder to write
//! them. Nothing here is built in: Ethernet is a protocol like the others, and only the program says so. What a
//! definition promises once it is checked:
//! - every length and every repetition is bounded, so the header has a longest size;
//! - bit fields fill whole bytes before anything else begins, and none spans more than eight bytes;
//! - an expression looks at fields before it, or (in [`Next`], lengths and checks) at any field of its own header;
//! - the conditions of [`Protocol::next`] exclude each other.
//!
//! A *layer* is one header in a frame. Layers behind an edge that is [`Next::inner`] are on the next *level*: level 0
//! is what arrived on the wire, level 1 what a tunnel carries.

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

/// Levels of layers that a program may look at: the frame itself, and what a tunnel in it carries.
pub const LEVELS_MAX: u8 = 2;
/// Tunnels in one another in which fragments are followed.
pub const CARRIED_MAX: usize = 3;
/// Layers of protocols that may come again, such as tags and options, that a parser follows. One more is malformed, or
/// payload if its definition says so of such.
pub const LAYERS_MAX: u32 = 32;
/// Bytes of one header at most, its repetitions included.
pub const HEADER_BYTES_MAX: u32 = 9216;
/// Times that one REPEAT may go round.
pub const REPEATS_MAX: u32 = 128;
/// Protocols of one program.
pub const PROTOCOLS_MAX: usize = 1024;
/// Fields of one protocol.
pub const FIELDS_MAX: usize = 256;

/// The greatest number of so many bits, 1 to 64.
pub const fn bits_max(bits: u8) -> u64 {
    u64::MAX >> (64 - bits as u32)
}

/// A number of so many bits as its bits lie on the wire, the highest first; and back. Only that of a LITTLE field,
/// which has whole bytes, differs.
pub const fn as_on_wire(number: u64, bits: u32, little: bool) -> u64 {
    if little { number.swap_bytes() >> (64 - bits) } else { number }
}

/// The number that 1 to 8 bytes hold, the first of them the highest.
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

/// Writes a number into 1 to 8 bytes, the first of them the highest; what does not fit is left out.
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

/// Writes as many bytes as a field has; addresses without a loop.
///
/// # Panics
/// They are not as many.
#[inline(always)]
pub fn put_bytes(field: &mut [u8], new: &[u8]) {
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
    /// Its name: `ipv4`.
    pub name: String,
    /// All its fields, in the order of the wire.
    pub fields: Vec<Field>,
    /// How they follow each other.
    pub items: Vec<Item>,
    /// Bytes of the whole layer, header included, where the header says it (`LENGTH`); else it goes to the end of the
    /// layer below. A layer that says more than there is is malformed.
    pub length: Option<Expr>,
    /// What may stand behind the header: PAYLOAD's arms, then the BINDs of others, in source order. The first whose
    /// condition is true; nothing but bytes if none is.
    pub next: Vec<Next>,
    /// `ON ENCAP SET`: what encapsulation sets in layers below, as (protocol, field, value); the value looks at the
    /// fields of this header.
    pub encap: Vec<(ProtocolId, FieldId, Expr)>,
    /// `SESSION KEY`: fields that tell sessions apart.
    pub session_key: Vec<(ProtocolId, FieldId)>,
    /// `MALFORMED IS PAYLOAD`: a header that breaks a rule is none, and nothing but bytes stands there.
    pub malformed_is_payload: bool,
    /// `ERROR WHERE e`: such a header tells of an error, which nobody answers by another.
    pub error: Option<Expr>,
    /// Bytes of the header at least.
    pub header_min: u32,
    /// Bytes of the header at most; [`HEADER_BYTES_MAX`] is the limit.
    pub header_max: u32,
    /// The line of the definition.
    pub line: u32,
}

/// A part of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A field.
    Field(FieldId),
    /// `WHEN (condition) ( ... )`: there only if the condition is true. It fills whole bytes.
    When {
        /// Over fields before it.
        condition: Expr,
        /// What is there then.
        items: Vec<Self>,
    },
    /// `REPEAT name ( ... ) ... MAX n`: over and over. Each round fills whole bytes, one at least.
    Repeat {
        /// Its name.
        name: String,
        /// All its rounds as a field of this name: [`Width::Rounds`].
        field: FieldId,
        /// One round; expressions in it may look at fields of the same round and before the REPEAT.
        items: Vec<Self>,
        /// When it ends.
        until: Until,
        /// Rounds at most, [`REPEATS_MAX`] or fewer; a header with more is malformed.
        max: u32,
        /// The line.
        line: u32,
    },
}

/// When a repetition ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Until {
    /// `UNTIL (e)`: behind the first round of which it is true; there is one round at least.
    Condition(Expr),
    /// `COUNT e`: after so many rounds.
    Count(Expr),
    /// `BYTES e`: when so many bytes are used up; a round that goes beyond is malformed.
    Bytes(Expr),
}

/// A field of a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name: `ttl`.
    pub name: String,
    /// How wide it is.
    pub width: Width,
    /// Its type as a column: BOOL for `bit(1)`, else U8, U16, U32 or U64 for bits; BYTES, or the type that `AS` names,
    /// for bytes: MAC (6), IPADDR (4 or 16), TEXT.
    pub ty: Type,
    /// What is written if nobody says, and what is held when it is read.
    pub rule: Rule,
    /// `CHECK (e)`: what must be true of a frame, else it is malformed.
    pub check: Option<Expr>,
    /// It stands in a WHEN, so that it may be missing.
    pub optional: bool,
    /// It stands in a REPEAT, and as a column has the value of the first round; or it is all its rounds.
    pub repeated: bool,
    /// The line of the definition.
    pub line: u32,
}

/// How wide a field is.
#[derive(Clone, Debug, PartialEq)]
pub enum Width {
    /// So many bits, 1 to 64. Bit 0 of a byte is its most significant one, as RFCs draw it.
    Bits {
        /// How many.
        n: u8,
        /// `LITTLE`: whole bytes, the least significant first.
        little: bool,
    },
    /// So many bytes.
    Bytes {
        /// How many: constant, or from fields before.
        count: Expr,
        /// The most that it may be; more is malformed.
        max: u32,
    },
    /// All rounds of a REPEAT, read as bytes.
    Rounds {
        /// The most that they may be.
        max: u32,
    },
}

/// What a field holds beside what programs set.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Whoever builds a header says it; zero if not.
    Plain,
    /// `= n`: written so, and a header with another value is malformed.
    Constant(u64),
    /// `DEFAULT e`: written so where nobody says otherwise; any value is read. A checksum follows what programs set.
    Default(Expr),
    /// `COMPUTED (e)`: written when all else is known. When it is read, a length, count or flag must be what is
    /// computed, and a checksum over the header must hold; else the frame is malformed. A checksum that covers the
    /// payload is not looked at on the way through.
    Computed(Expr),
    /// `RESERVED`: written as zero; any value is read.
    Reserved,
}

/// An expression over a header. All are unsigned 64-bit integers, a truth is 0 or 1; arithmetic saturates at 0 and at
/// the greatest, division by zero is 0, and a field that is missing is 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A number.
    Int(u64),
    /// A field of the same header; of the same round within a REPEAT.
    Field(FieldId),
    /// `peek bit(n)`: the first bits behind the header, 1 to 64; 0 if there are fewer.
    Peek(u8),
    /// `header_bytes`: of this header.
    HeaderBytes,
    /// `payload_bytes`: behind this header, to the end of the layer.
    PayloadBytes,
    /// `bytes_after(f)`: from behind a field to the end of the layer.
    BytesAfter(FieldId),
    /// `round_bytes`: of this round of the REPEAT.
    RoundBytes,
    /// `rest`: from here to the end of the layer.
    Rest,
    /// `count(name)`: rounds of a REPEAT.
    Count(String),
    /// `present(f)`: whether a field is there.
    Present(FieldId),
    /// `last`: whether this round of the REPEAT is its last.
    Last,
    /// A checksum; only as the whole of a COMPUTED.
    Checksum(Checksum),
    /// `hash(inner.flow)`: the [flow](crate::flow) of what the header carries; only in a [`Spread`] of `ON ENCAP SET`.
    Flow,
    /// An operation on two.
    Binary(BinaryOp, Box<Self>, Box<Self>),
    /// `NOT e`
    Not(Box<Self>),
    /// `e IN (...)`
    In(Box<Self>, Vec<u64>),
    /// `c ? a : b` (`CASE WHEN c THEN a ELSE b END`)
    If(Box<Self>, Box<Self>, Box<Self>),
}

/// Operations on two numbers.
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

/// Checksums. The field that holds one counts as zero in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// `checksum(header)`: the internet checksum (RFC 1071) of the header.
    Header,
    /// `checksum(header, payload)`: of the whole layer.
    Layer,
    /// `checksum(pseudo, header, payload)`: of the pseudo header of the layer below (addresses, protocol, length; RFC
    /// 9293 section 3.1, RFC 8200 section 8.1) and the whole layer.
    Pseudo,
    /// `checksum_or_zero(pseudo, header, payload)`: as Pseudo, where zero means that there is none (RFC 768).
    PseudoOrZero,
    /// `crc32c(header, payload)`: of the whole layer, in SCTP's byte order (RFC 9260 appendix A).
    Crc32c,
}

/// What may stand behind a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Over the fields of this header; `Int(1)` for always.
    pub condition: Expr,
    /// What it is.
    pub to: ProtocolId,
    /// It is carried: its layers are those of the next level.
    pub inner: bool,
    /// `OR bytes`: a header that breaks a rule there is none, and nothing but bytes stands there.
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
    /// What they have in common.
    pub columns: Vec<UnionColumn>,
    /// The line of the definition.
    pub line: u32,
}

/// A column of a [`Union`].
#[derive(Clone, Debug, PartialEq)]
pub struct UnionColumn {
    /// Its name: `src`.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The protocols that have it: the members, or those that LAST names.
    pub protocols: Vec<ProtocolId>,
    /// For each of them, which field it is.
    pub fields: Vec<FieldId>,
    /// It is the field of the last of them that a frame has.
    pub last: bool,
}

/// Which layers of a frame are meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerRef {
    /// 0, or 1 for `inner.`; below [`LEVELS_MAX`] where a program names it, and up to [`CARRIED_MAX`] where fragments
    /// are followed.
    pub level: u8,
    /// Any of these: one protocol, or the members of a union. The first such layer of the level is meant.
    pub protocols: Vec<ProtocolId>,
}

/// A column of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldRef {
    /// In which layer.
    pub layer: LayerRef,
    /// For each of the layer's protocols, which field; None for whether the layer is there (BOOL, never NULL).
    pub fields: Option<Vec<FieldId>>,
    /// The last such layer of the level is meant, and not the first.
    pub last: bool,
}

impl FieldRef {
    /// Whether a layer is there.
    pub fn presence(layer: LayerRef) -> Self {
        Self { layer, fields: None, last: false }
    }

    /// Whether it may be the same field as another: a change of the one is one of the other.
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

/// The value of a field, apart from any frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// Of bits.
    Number(u64),
    /// Of bytes.
    Bytes(Vec<u8>),
}

impl BinaryOp {
    /// What it makes of two numbers, by the rules of [`Expr`].
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

    /// Whether it makes a number, and not a truth.
    pub fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Rem)
    }
}

impl Expr {
    /// Calls `visit` for this expression and all within it.
    pub fn each(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        match self {
            Self::Binary(_, a, b) => [a, b].into_iter().for_each(|e| e.each(visit)),
            Self::Not(a) | Self::In(a, _) => a.each(visit),
            Self::If(a, b, c) => [a, b, c].into_iter().for_each(|e| e.each(visit)),
            _ => {}
        }
    }

    /// Whether what is computed can be told when a header is read: all but checksums of what it carries, and what only
    /// its maker knows.
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

    /// Fields that must have these values for it to be true: those that an AND of equalities with numbers names.
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
    /// The checksum that a field holds, if it is one.
    pub fn checksum(&self) -> Option<Checksum> {
        match self {
            Self::Default(Expr::Checksum(sum)) | Self::Computed(Expr::Checksum(sum)) => Some(*sum),
            _ => None,
        }
    }
}

impl Item {
    /// Calls `visit` for the expressions of this item and of all within it: what is there, and how often.
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
    /// The least that it is.
    pub low: u64,
    /// How many numbers it may be, 1 at least.
    pub n: u64,
}

impl Spread {
    /// The number for a flow.
    pub fn of(self, flow: u32) -> u64 {
        self.low.saturating_add(u64::from(flow) % self.n)
    }
}

impl Expr {
    /// How it spreads flows, if it is nothing else.
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

    /// Whether it depends on where the layer ends.
    pub fn looks_behind(&self) -> bool {
        let mut looks = false;
        self.each(&mut |e| looks |= matches!(e, Self::PayloadBytes | Self::BytesAfter(_) | Self::Rest));
        looks
    }
}

impl Protocol {
    /// The field of which the value follows from this one when a header is written, checksums aside, if there is one.
    pub fn computed_from(&self, field: FieldId) -> Option<&Field> {
        self.fields.iter().find(|other| {
            let mut names = false;
            if let Rule::Computed(expr) = &other.rule {
                expr.each(&mut |e| names |= *e == Expr::Field(field));
            }
            names
        })
    }

    /// The bits by which a frame is known to begin with this protocol: how many, and their value. None if it does not
    /// begin with a constant.
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

    /// The field that says that more fragments follow: of a protocol that has `frag_offset` and `mf`, as IPv4 and the
    /// fragment header of IPv6 do. In a frame with a first fragment the layers behind it are longer than the frame:
    /// they end where it does.
    pub fn more_fragments(&self) -> Option<FieldId> {
        self.field("frag_offset").and_then(|_| self.field("mf"))
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        self.fields.iter().position(|field| field.name == name).map(|at| FieldId(at as u16))
    }
}
