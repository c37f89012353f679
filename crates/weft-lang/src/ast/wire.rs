//! Wire formats and ports: `CREATE PROTOCOL`, `CREATE PORT`.

use super::{Assign, Expr, Ident, Path, StrLit, TypeExpr};
use crate::source::Span;

/// `CREATE PROTOCOL name ( items ) clauses;`
#[derive(Clone, PartialEq, Debug)]
pub struct Protocol {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// The header's items in wire order.
    pub items: Vec<WireItem>,
    /// `PAYLOAD ...`.
    pub payload: Option<Payload>,
    /// The clauses in written order.
    pub clauses: Vec<ProtocolClause>,
    /// The whole item.
    pub span: Span,
}

/// A part of a header.
#[derive(Clone, PartialEq, Debug)]
pub enum WireItem {
    /// `name bit(n) ...` or `name bytes(e) ...`
    Field(Box<WireField>),
    /// `WHEN (condition) ( items )`
    When {
        /// The condition.
        condition: Expr,
        /// The items.
        items: Vec<Self>,
        /// The whole.
        span: Span,
    },
    /// `REPEAT name ( items ) until [MAX n]`
    Repeat {
        /// Its name.
        name: Ident,
        /// One round.
        items: Vec<Self>,
        /// Its end.
        until: WireUntil,
        /// `MAX n`.
        max: Option<Expr>,
        /// The whole.
        span: Span,
    },
}

impl WireItem {
    /// The whole item.
    pub fn span(&self) -> Span {
        match self {
            Self::Field(field) => field.span,
            Self::When { span, .. } | Self::Repeat { span, .. } => *span,
        }
    }
}

/// The end of a repetition.
#[derive(Clone, PartialEq, Debug)]
pub enum WireUntil {
    /// `UNTIL (e)`
    Condition(Expr),
    /// `COUNT (e)`
    Count(Expr),
    /// `BYTES (e)`
    Bytes(Expr),
}

/// A field of a header.
#[derive(Clone, PartialEq, Debug)]
pub struct WireField {
    /// Its name.
    pub name: Ident,
    /// Its width.
    pub width: WireWidth,
    /// `AS type`.
    pub ty: Option<TypeExpr>,
    /// The rule for its value.
    pub rule: Option<WireRule>,
    /// `CHECK (e)`.
    pub check: Option<Expr>,
    /// The whole.
    pub span: Span,
}

/// The width of a field.
#[derive(Clone, PartialEq, Debug)]
pub enum WireWidth {
    /// `bit(n) [LITTLE]`
    Bits {
        /// The number of bits.
        n: Expr,
        /// `LITTLE`.
        little: Option<Span>,
    },
    /// `bytes(e) [MAX n]`
    Bytes {
        /// The number of bytes.
        count: Expr,
        /// `MAX n`.
        max: Option<Expr>,
    },
}

/// A field's value, if programs do not set it.
#[derive(Clone, PartialEq, Debug)]
pub struct WireRule {
    /// The kind.
    pub kind: WireRuleKind,
    /// The clause.
    pub span: Span,
}

/// The rules.
#[derive(Clone, PartialEq, Debug)]
pub enum WireRuleKind {
    /// `= n`
    Constant(Expr),
    /// `DEFAULT e`
    Default(Expr),
    /// `COMPUTED (e)`
    Computed(Expr),
    /// `RESERVED`
    Reserved,
}

/// `PAYLOAD choice [LENGTH [OF LAYER] e] [WHEN (e)]`
#[derive(Clone, PartialEq, Debug)]
pub struct Payload {
    /// The protocol of the payload.
    pub choice: PayloadChoice,
    /// `LENGTH e`.
    pub length: Option<PayloadLength>,
    /// `WHEN (e)`: otherwise the payload is only bytes.
    pub when: Option<Expr>,
    /// The whole.
    pub span: Span,
}

/// `LENGTH [OF LAYER] e`
#[derive(Clone, PartialEq, Debug)]
pub struct PayloadLength {
    /// `OF LAYER`: the header counts too.
    pub of_layer: bool,
    /// The number of bytes.
    pub value: Expr,
}

/// The choice of the payload's protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum PayloadChoice {
    /// `bytes`
    Bytes(Span),
    /// `[INNER] protocol [OR bytes]`
    Protocol {
        /// `INNER`.
        inner: Option<Span>,
        /// The protocol's name.
        name: Ident,
        /// `OR bytes`: a header that violates a rule is treated as bytes.
        or_bytes: bool,
    },
    /// `SWITCH (e) ( n: choice, n, m: choice, ELSE choice )`
    Switch {
        /// The switched expression.
        on: Expr,
        /// The arms, at least one.
        arms: Vec<SwitchArm>,
        /// `ELSE`.
        otherwise: Option<Box<Self>>,
        /// The whole.
        span: Span,
    },
}

/// `n, m: choice`
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchArm {
    /// The values, at least one, each with its span.
    pub labels: Vec<(u64, Span)>,
    /// The payload for these values.
    pub choice: PayloadChoice,
}

/// A clause after the parentheses of a protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum ProtocolClause {
    /// `BIND lower [INNER] WHERE e [OTHERWISE e]`
    Bind {
        /// The protocol below.
        lower: Ident,
        /// `INNER`.
        inner: Option<Span>,
        /// The condition.
        condition: Expr,
        /// The additional condition, for payloads that no other protocol matches.
        otherwise: Option<Box<Expr>>,
        /// The clause.
        span: Span,
    },
    /// `ON ENCAP SET lower.field = e, ...`
    Encap {
        /// The assignments, at least one.
        set: Vec<EncapSet>,
        /// The clause.
        span: Span,
    },
    /// `SESSION KEY (a, b.c)`
    SessionKey {
        /// The fields, at least one.
        fields: Vec<Path>,
        /// The clause.
        span: Span,
    },
    /// `MALFORMED IS PAYLOAD`
    MalformedIsPayload {
        /// The clause.
        span: Span,
    },
    /// `ERROR WHERE e`
    Error {
        /// The condition for an error.
        condition: Expr,
        /// The clause.
        span: Span,
    },
}

/// `lower.field = e`
#[derive(Clone, PartialEq, Debug)]
pub struct EncapSet {
    /// The protocol and its field.
    pub field: Path,
    /// The value.
    pub value: Expr,
    /// The whole.
    pub span: Span,
}

/// `CREATE PROTOCOL name ANY OF (a, b) [COLUMNS (src, ttl = a.ttl | b.hop_limit, kind = LAST a.kind | c.kind)];`
#[derive(Clone, PartialEq, Debug)]
pub struct ProtocolUnion {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// Its members, at least one.
    pub members: Vec<Ident>,
    /// The common columns.
    pub columns: Vec<UnionColumn>,
    /// The whole item.
    pub span: Span,
}

/// `name`, `name = a.x | b.y` or `name = LAST a.x | b.y | c.z`
#[derive(Clone, PartialEq, Debug)]
pub struct UnionColumn {
    /// Its name.
    pub name: Ident,
    /// The fields, one per member; empty if all have this name.
    pub fields: Vec<Path>,
    /// `LAST` was written.
    pub last: bool,
    /// The whole.
    pub span: Span,
}

/// `CREATE GROUP name ON PORT a [WEIGHT 3], b SELECT BY flow();`, or `ALL`, or `FAILOVER`.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// Its ports, each with its optional `WEIGHT`.
    pub members: Vec<(Ident, Option<Expr>)>,
    /// How the group selects a port.
    pub choice: GroupChoice,
    /// The whole item.
    pub span: Span,
}

/// How a group selects a port for a frame.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupChoice {
    /// `ALL`
    All(Span),
    /// `SELECT BY e`: by a hash of this.
    Select(Expr),
    /// `FAILOVER`
    Failover(Span),
}

/// `CREATE PORT name ON kind ['device'] [WITH (option = value, ...)];`
#[derive(Clone, PartialEq, Debug)]
pub struct Port {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// `packet`, `tap`, ...; a word, not checked here.
    pub kind: Ident,
    /// The device or the file.
    pub device: Option<StrLit>,
    /// `WITH (...)`.
    pub options: Vec<Assign>,
    /// The whole item.
    pub span: Span,
}
