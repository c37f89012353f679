//! The syntax tree of chains.

use super::*;

/// `CREATE CHAIN name ON edge AS stages; option; ... END;`
#[derive(Clone, PartialEq, Debug)]
pub struct Chain {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// The traffic it sees.
    pub on: ChainOn,
    /// The stages in written order; empty for a chain without stages.
    pub stages: Vec<StageNode>,
    /// Options in written order.
    pub options: Vec<ChainOption>,
    /// Part of the body is omitted because of an error, so a missing name may be declared there.
    pub is_faulty: bool,
    /// The whole item.
    pub span: Span,
}

/// The traffic of a chain.
#[derive(Clone, PartialEq, Debug)]
pub enum ChainOn {
    /// `ON from -> to [METHOD [NOT] 'pattern', ...]`
    Edge {
        /// A listener or a service.
        from: Ident,
        /// A cluster or a service.
        to: Ident,
        /// `METHOD ...`.
        method: Option<MethodClause>,
        /// After `ON`.
        span: Span,
    },
    /// `ON PORT a, b [-> c] [WHEN e]`
    Port {
        /// The ports, at least one.
        ports: Vec<Ident>,
        /// The output port or group of frames that no element redirects.
        to: Option<Ident>,
        /// `WHEN e`.
        when: Option<Expr>,
        /// After `ON`.
        span: Span,
    },
}

/// One step of a chain.
#[derive(Clone, PartialEq, Debug)]
pub enum StageNode {
    /// One instance.
    One(Stage),
    /// `{a, b, c}`: in any order that policies and analysis allow.
    Group {
        /// The members.
        stages: Vec<Stage>,
        /// With the braces.
        span: Span,
    },
}

/// `element [(args)] [AS instance] [AT CLIENT|SERVER] [MANDATORY] [PER TRY]`
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// The element or filter.
    pub element: Ident,
    /// Parameters and bindings.
    pub args: Vec<StageArg>,
    /// `AS instance`; without it the instance has the element's name.
    pub instance: Option<Ident>,
    /// `AT CLIENT|SERVER`.
    pub side: Option<SideClause>,
    /// `MANDATORY`.
    pub mandatory: Option<Span>,
    /// `PER TRY`.
    pub per_try: Option<Span>,
    /// The stage.
    pub span: Span,
}

/// One argument of a stage.
#[derive(Clone, PartialEq, Debug)]
pub enum StageArg {
    /// `param = e`
    Param(Assign),
    /// `column := e`
    Bind {
        /// The element's column.
        column: Ident,
        /// A field of the message, or an expression over fields.
        value: Expr,
        /// The argument.
        span: Span,
    },
}

/// `AT CLIENT|SERVER`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideClause {
    /// The side.
    pub side: Side,
    /// The clause.
    pub span: Span,
}

/// The end of the edge at which a stage must run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Beside the caller.
    Client,
    /// Beside the callee.
    Server,
}

/// One option of a chain.
#[derive(Clone, PartialEq, Debug)]
pub struct ChainOption {
    /// The kind.
    pub kind: ChainOptionKind,
    /// Without the `;`.
    pub span: Span,
}

/// The options of a chain.
#[derive(Clone, PartialEq, Debug)]
pub enum ChainOptionKind {
    /// `EQUIVALENCE level`
    Equivalence {
        /// `strict`, `observable`, ...; a word, not checked here.
        level: Ident,
    },
    /// `PIN STREAM DRAIN 'interval'`
    PinStream {
        /// How long old streams may stay on the old version.
        drain: Expr,
    },
    /// `FAIL OPEN`
    FailOpen,
    /// `ORDER a BEFORE b`
    Order {
        /// The instance that runs first.
        first: Ident,
        /// The instance that runs later.
        second: Ident,
    },
    /// `PRIORITY a > b`
    Priority {
        /// The instance that may run before `lower`, even if a rule forbids it.
        higher: Ident,
        /// The other instance.
        lower: Ident,
    },
    /// `POSITION a FIRST|LAST`
    Position {
        /// The instance.
        instance: Ident,
        /// True for `LAST`, false for `FIRST`.
        is_last: bool,
    },
    /// `ON FAILURE OF a BYPASS`
    BypassOnFailure {
        /// The instance.
        instance: Ident,
    },
    /// `det.suspect -> sandbox -> ...`: the stages after an element's edge.
    Branch {
        /// The instance and its edge.
        from: Path,
        /// The stages on that edge, at least one.
        stages: Vec<StageNode>,
    },
}
