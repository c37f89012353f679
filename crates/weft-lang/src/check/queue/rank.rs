//! Checks the possible ranks of a level against its `BITS`.
//!
//! An abstract interpretation of handlers, path by path. The state holds the known range of each value: from its type,
//! from assignments, and from the conditions of the path. At most [`STATES_MAX`] paths are kept separate; further ones
//! are merged. Handlers have no loops, so the analysis terminates.
//!
//! Values from other handlers are assumed to be anything in the range of their type, and a rank anything in its bits:
//! each assignment of an invalid rank is reported where it happens.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::range::Range;
use super::{BYTES_MAX, PACKETS_MAX, RANK_BITS_MAX};
use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueHeader, QueueLevel, QueueLiteral as Literal,
    QueueOperand as Operand, QueuePartitions, QueueStmt, QueueStmtKind, QueueType as T, QueueUnary as U,
    QueueVar,
};
use crate::source::Span;
use weft_core::Type;

/// The maximum number of separate paths through a handler.
const STATES_MAX: usize = 64;
/// The limit of evaluation steps per level: ranks after it are not checked. A handler of maximum size needs fewer.
const VISITS_MAX: usize = 1 << 24;
/// The maximum number of conditions in a diagnostic.
const CONDITIONS_SHOWN: usize = 8;
/// The maximum length of quoted text in a help, in bytes.
const TEXT_SHOWN: usize = 40;

/// Rejects ranks that never fit on some path, and warns of ranks that may not fit. `changed` are the packet fields that
/// a queue of the program sets.
pub(super) fn check(cx: &mut Cx<'_>, level: &QueueLevel, changed: &BTreeSet<String>) {
    if let Some(least) = &level.least {
        level.handlers.iter().for_each(|handler| refuse_set(cx, &handler.body, least.span));
    }
    for overflow in rank_overflows(level, changed) {
        let diagnostic = overflow.diagnostic(cx);
        cx.report(diagnostic);
    }
}

/// Rejects an assignment to a rank that is always the minimum over the packets, and would be overwritten.
fn refuse_set(cx: &mut Cx<'_>, stmts: &[QueueStmt], least: Span) {
    for stmt in stmts {
        match &stmt.kind {
            QueueStmtKind::Set { place: Operand::Rank, .. } => {
                let message = "the rank cannot be set: it is the minimum over the partition's packets";
                let diagnostic = Diagnostic::error(code::QUEUE_RANK, message)
                    .at(stmt.span, "has no effect")
                    .with_label(least, "the rank is the minimum of this")
                    .with_help("write `ORDER PARTITIONS BY rank`, or remove this");
                cx.report(diagnostic);
            }
            QueueStmtKind::If { arms, otherwise } => {
                arms.iter().for_each(|(_, body)| refuse_set(cx, body, least));
                refuse_set(cx, otherwise, least);
            }
            _ => {}
        }
    }
}

/// An expression whose rank does not fit its bits.
#[derive(Clone, Debug, PartialEq)]
struct RankOverflow {
    /// The expression.
    span: Span,
    /// Its possible values.
    found: Range,
    /// `BITS`.
    bits: u8,
    /// No value on this path fits; otherwise some may.
    is_certain: bool,
    /// The rank is that of ORDER PACKETS, not of partitions.
    of_packets: bool,
    /// The conditions on the path, and their values.
    path: Vec<(Span, bool)>,
}

impl RankOverflow {
    /// Formats the overflow: an error if it is certain, otherwise a warning.
    fn diagnostic(&self, cx: &Cx<'_>) -> Diagnostic {
        let Self { span, found, bits, .. } = *self;
        let fits = format!("with BITS {bits} ranks are 0 to {}", greatest(bits));
        let mut diagnostic = match (self.is_certain, found.is_one()) {
            (true, true) => {
                Diagnostic::error(code::QUEUE_RANK, format!("this rank is {}, but {fits}", found.low))
            }
            (true, false) => {
                Diagnostic::error(code::QUEUE_RANK, format!("these ranks are {}, but {fits}", spelled(found)))
            }
            (false, _) => {
                let message = format!("this rank can be {}, but {fits}", spelled(found));
                Diagnostic::warning(code::QUEUE_RANK_RANGE, message)
            }
        };
        diagnostic =
            diagnostic.at(span, if self.is_certain { "out of range" } else { "may be out of range" });
        for (condition, is_true) in &self.path {
            let label = if *is_true { "if this is true" } else { "if this is false" };
            diagnostic = diagnostic.with_label(*condition, label);
        }
        if self.is_certain {
            return diagnostic.with_help(format!("give {} more BITS, or none", self.clause()));
        }
        let text = match cx.sources.slice(span) {
            text if text.len() <= TEXT_SHOWN && !text.contains('\n') => text,
            _ => "...",
        };
        diagnostic
            .with_note("a value that does not fit is clamped, so different ranks are treated as equal")
            .with_help(format!("write `{}` if that is intended, or {}", self.bounded(text), self.more_bits()))
    }

    /// Formats an expression that keeps the rank in range.
    fn bounded(&self, text: &str) -> String {
        let greatest = greatest(self.bits);
        match (self.found.low < 0, self.found.high > greatest) {
            (true, true) => format!("least(greatest({text}, 0), {greatest})"),
            (true, false) => format!("greatest({text}, 0)"),
            _ => format!("least({text}, {greatest})"),
        }
    }

    /// Suggests a number of bits that holds the rank, or no BITS.
    fn more_bits(&self) -> String {
        let bits = i64::BITS - self.found.high.leading_zeros();
        match self.found.low >= 0 && bits <= u32::from(RANK_BITS_MAX) {
            true => format!("give {} BITS {bits}", self.clause()),
            false => format!("give {} no BITS", self.clause()),
        }
    }

    fn clause(&self) -> &'static str {
        if self.of_packets { "ORDER PACKETS" } else { "ORDER PARTITIONS" }
    }
}

/// Formats a range for messages: `0 to 255`.
fn spelled(range: Range) -> String {
    match (range.low, range.high) {
        (low, high) if low == high => low.to_string(),
        (i64::MIN, i64::MAX) => "any number".to_owned(),
        (low, i64::MAX) => format!("{low} and more"),
        (i64::MIN, high) => format!("{high} and less"),
        (low, high) => format!("{low} to {high}"),
    }
}

/// The maximum rank of this width.
fn greatest(bits: u8) -> i64 {
    (1 << bits) - 1
}

/// The expressions of a level whose ranks may not fit, each at most once.
fn rank_overflows(level: &QueueLevel, changed: &BTreeSet<String>) -> Vec<RankOverflow> {
    let mut analyzer = RankAnalyzer { level, changed, n_visits: Cell::new(0), overflows: Vec::new() };
    if let Some((rank, Some(bits))) = &level.packet_rank {
        analyzer.report_overflows(&[State::default()], rank, *bits, true);
    }
    if let Some(bits) = level.rank_bits {
        if let Some(rank) = &level.least {
            analyzer.report_overflows(&[State::default()], rank, bits, false);
        }
        for handler in &level.handlers {
            analyzer.stmts(&handler.body, vec![State::default()]);
        }
    }
    analyzer.overflows
}

/// The known properties of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AbstractValue {
    Whole(Range),
    /// From one number to another; never NaN.
    Float(f64, f64),
    Truth(bool),
    /// An unknown BOOL or F64.
    Nothing,
}

impl AbstractValue {
    /// Of a whole number.
    fn range(self) -> Range {
        if let Self::Whole(range) = self { range } else { Range::ALL }
    }

    /// Returns the smallest abstract value that covers both; `Nothing` for values of different kinds.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Self::Whole(a.or(b)),
            (Self::Float(a, b), Self::Float(c, d)) => Self::Float(a.min(c), b.max(d)),
            (a, b) if a == b => a,
            _ => Self::Nothing,
        }
    }
}

/// A value that can change, or that conditions can narrow.
#[derive(Clone, Debug, PartialEq)]
enum Name {
    Local(usize),
    Operand(Operand),
}

/// Returns the local or operand that an expression names.
fn name_of(expr: &QueueExpr) -> Option<Name> {
    match &expr.kind {
        Kind::Local(local) => Some(Name::Local(*local)),
        Kind::Operand(place) => Some(Name::Operand(place.clone())),
        _ => None,
    }
}

/// The known values on a path, and the conditions of the path.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    known: Vec<(Name, AbstractValue)>,
    path: Vec<(Span, bool)>,
    /// A condition of the path could not be used for narrowing: in combination with others, the path may be impossible.
    is_unsure: bool,
}

impl State {
    fn get(&self, name: &Name) -> Option<AbstractValue> {
        self.known.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    fn put(&mut self, name: Name, value: AbstractValue) {
        self.known.retain(|(known, _)| *known != name);
        self.known.push((name, value));
    }

    /// Merges two states: the values known in both, and the common prefix of the paths. A value that only one path has
    /// written is in the range of its type anyway.
    fn or(mut self, other: &Self) -> Self {
        self.known.retain_mut(|(name, value)| match other.get(name) {
            Some(of_other) => {
                *value = value.or(of_other);
                true
            }
            None => false,
        });
        self.path.truncate(common(&self.path, &other.path));
        self.is_unsure |= other.is_unsure;
        self
    }
}

/// The number of conditions in the common prefix of two paths.
fn common(a: &[(Span, bool)], b: &[(Span, bool)]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

struct RankAnalyzer<'w> {
    level: &'w QueueLevel,
    changed: &'w BTreeSet<String>,
    /// The number of evaluation steps.
    n_visits: Cell<usize>,
    overflows: Vec<RankOverflow>,
}

impl RankAnalyzer<'_> {
    // ---- statements --------------------------------------------------------------------------------------------

    /// Analyses statements. Returns the states after them.
    fn stmts(&mut self, stmts: &[QueueStmt], mut states: Vec<State>) -> Vec<State> {
        for stmt in stmts {
            if self.n_visits.get() >= VISITS_MAX {
                return Vec::new();
            }
            states = match &stmt.kind {
                QueueStmtKind::Let { local, value } => self.assign(&states, value, |_, state, found| {
                    state.put(Name::Local(*local), found);
                }),
                QueueStmtKind::Set { place, value } => {
                    if let (Operand::Rank, Some(bits)) = (place, self.level.rank_bits) {
                        self.report_overflows(&states, value, bits, false);
                    }
                    self.assign(&states, value, |analyzer, state, found| {
                        let kept = analyzer.value_after_store(place, found);
                        state.put(Name::Operand(place.clone()), kept);
                    })
                }
                QueueStmtKind::If { arms, otherwise } => self.arms(arms, otherwise, states),
                QueueStmtKind::Verdict(_) => Vec::new(),
            };
            join_beyond(&mut states);
        }
        states
    }

    /// Applies an assignment to each state.
    fn assign(
        &self,
        states: &[State],
        value: &QueueExpr,
        put: impl Fn(&Self, &mut State, AbstractValue),
    ) -> Vec<State> {
        let mut after = Vec::new();
        for (mut state, found, _) in states.iter().flat_map(|state| self.outcomes(state, value)) {
            put(self, &mut state, found);
            after.push(state);
        }
        after
    }

    /// Analyses the arms of an IF: each with the states in which its condition is true.
    fn arms(
        &mut self,
        arms: &[(QueueExpr, Vec<QueueStmt>)],
        otherwise: &[QueueStmt],
        mut states: Vec<State>,
    ) -> Vec<State> {
        let mut after = Vec::new();
        for (condition, body) in arms {
            let (then, not) = self.split(&states, condition);
            after.extend(self.stmts(body, then));
            states = not;
        }
        after.extend(self.stmts(otherwise, states));
        after
    }

    /// The states in which a condition is true, and those in which it is false.
    fn split(&self, states: &[State], condition: &QueueExpr) -> (Vec<State>, Vec<State>) {
        let side = |is_true| {
            let all = states.iter().filter_map(|state| {
                let mut state = self.assume(state, condition, is_true)?;
                if state.path.len() < CONDITIONS_SHOWN {
                    state.path.push((condition.span, is_true));
                }
                Some(state)
            });
            all.collect()
        };
        (side(true), side(false))
    }

    /// Reports a rank that does not fit in its bits.
    fn report_overflows(&mut self, states: &[State], value: &QueueExpr, bits: u8, of_packets: bool) {
        let fits = Range::up_to(greatest(bits));
        let all: Vec<_> = states.iter().flat_map(|state| self.outcomes(state, value)).collect();
        let overflows = |range: Range, is_certain| match is_certain {
            true => range.and(fits).is_none(),
            false => !range.is_within(fits),
        };
        if self.n_visits.get() >= VISITS_MAX {
            return;
        }
        for is_certain in [true, false] {
            let mut wrong: Vec<_> =
                all.iter().filter(|(_, found, _)| overflows(found.range(), is_certain)).collect();
            if is_certain && wrong.len() < all.len() {
                wrong.retain(|(state, ..)| !state.is_unsure);
            }
            let Some((first, found, span)) = wrong.first() else { continue };
            let (mut path, mut found, mut span) = (first.path.clone(), found.range(), *span);
            // An error on every path is shown only with the conditions common to all.
            if wrong.len() == all.len() {
                for (state, other, at) in wrong {
                    path.truncate(common(&path, &state.path));
                    found = found.or(other.range());
                    span = if span == *at { span } else { value.span };
                }
            }
            self.overflows.push(RankOverflow { span, found, bits, is_certain, of_packets, path });
            return;
        }
    }

    /// The value of a variable after a store.
    fn value_after_store(&self, place: &Operand, value: AbstractValue) -> AbstractValue {
        let range = match place {
            Operand::Ecn => Range::up_to(3),
            Operand::Field(name) if name == "dscp" => Range::up_to(63),
            Operand::Var(at) => of_var(&self.level.vars[*at]),
            Operand::PartitionVar(at) => of_var(&self.level.partition_vars[*at]),
            _ => Range::ALL,
        };
        if let AbstractValue::Whole(found) = value {
            AbstractValue::Whole(found.clamp_to(range))
        } else {
            value
        }
    }

    // ---- conditions --------------------------------------------------------------------------------------------

    /// Returns the state narrowed by a condition's assumed value; None if it is impossible.
    fn assume(&self, state: &State, condition: &QueueExpr, is_true: bool) -> Option<State> {
        if !self.may_continue(state) {
            return Some(state.clone());
        }
        match &condition.kind {
            Kind::Unary(U::Not, inner) => self.assume(state, inner, !is_true),
            Kind::Binary(op @ (B::And | B::Or), a, b) => {
                let both = (*op == B::And) == is_true;
                let first = self.assume(state, a, is_true);
                if both {
                    return self.assume(&first?, b, is_true);
                }
                let second =
                    self.assume(state, a, !is_true).and_then(|state| self.assume(&state, b, is_true));
                match (first, second) {
                    (Some(first), Some(second)) => Some(first.or(&second)),
                    (first, second) => first.or(second),
                }
            }
            Kind::Binary(op @ (B::Eq | B::Ne | B::Lt | B::Le), a, b) if a.ty.is_whole() => {
                self.assume_compared(state, *op, (a, b), is_true)
            }
            _ => match self.value(state, condition) {
                AbstractValue::Truth(known) if known != is_true => None,
                AbstractValue::Truth(_) => Some(state.clone()),
                _ => {
                    let mut state = state.clone();
                    match name_of(condition) {
                        Some(name) => state.put(name, AbstractValue::Truth(is_true)),
                        None => state.is_unsure = true,
                    }
                    Some(state)
                }
            },
        }
    }

    /// Narrows the operands of a comparison by its truth. None if the state is impossible.
    fn assume_compared(
        &self,
        state: &State,
        op: B,
        (a, b): (&QueueExpr, &QueueExpr),
        is_true: bool,
    ) -> Option<State> {
        let (left, right) = (self.value(state, a).range(), self.value(state, b).range());
        let is_all_told = (name_of(a).is_some() || left.is_one())
            && (name_of(b).is_some() || right.is_one())
            && (left.is_one() || right.is_one());
        let (left, right) = match (op, is_true) {
            (B::Lt, true) => less(left, right, 1),
            (B::Le, true) => less(left, right, 0),
            (B::Lt, false) => less(right, left, 0).map(|(right, left)| (left, right)),
            (B::Le, false) => less(right, left, 1).map(|(right, left)| (left, right)),
            (B::Eq, true) | (B::Ne, false) => left.and(right).map(|both| (both, both)),
            _ => other_than(left, right).zip(other_than(right, left)),
        }?;
        let mut state = state.clone();
        state.is_unsure |= !is_all_told;
        for (side, range) in [(a, left), (b, right)] {
            if let Some(name) = name_of(side) {
                state.put(name, AbstractValue::Whole(range));
            }
        }
        Some(state)
    }

    // ---- values ------------------------------------------------------------------------------------------------

    /// The possible values of an expression, each with its state and subexpression: the arms of a CASE are separate
    /// paths.
    fn outcomes(&self, state: &State, expr: &QueueExpr) -> Vec<(State, AbstractValue, Span)> {
        let Kind::Case(arms, otherwise) = &expr.kind else {
            return vec![(state.clone(), self.value(state, expr), expr.span)];
        };
        let mut states = vec![state.clone()];
        let mut all = Vec::new();
        for (when, then) in arms {
            let (is_true, not) = self.split(&states, when);
            all.extend(is_true.iter().flat_map(|state| self.outcomes(state, then)));
            states = not;
        }
        all.extend(states.iter().flat_map(|state| self.outcomes(state, otherwise)));
        all
    }

    /// Counts an evaluation step; returns whether more are allowed.
    fn may_continue(&self, state: &State) -> bool {
        self.n_visits.set(self.n_visits.get() + 1 + state.known.len());
        self.n_visits.get() < VISITS_MAX
    }

    /// Computes the abstract value of an expression in a state.
    fn value(&self, state: &State, expr: &QueueExpr) -> AbstractValue {
        if !self.may_continue(state) {
            return unknown_value(expr.ty);
        }
        if let Some(name) = name_of(expr) {
            return state.get(&name).unwrap_or_else(|| self.initial_value(&name, expr.ty));
        }
        match &expr.kind {
            Kind::Literal(Literal::Int(n)) => AbstractValue::Whole(Range::one(*n)),
            Kind::Literal(Literal::Float(x)) if !x.is_nan() => AbstractValue::Float(*x, *x),
            Kind::Literal(Literal::Bool(truth)) => AbstractValue::Truth(*truth),
            // Random draws are multiples of 2^-53 below 1.
            Kind::Rand(_) => AbstractValue::Float(0.0, 1.0 - f64::EPSILON / 2.0),
            Kind::Unary(op, a) => unary(*op, self.value(state, a)),
            Kind::Binary(op, a, b) if expr.ty.is_whole() => {
                let (a, b) = (self.value(state, a).range(), self.value(state, b).range());
                AbstractValue::Whole(Range::binary(*op, a, b))
            }
            Kind::Binary(op, a, b) if expr.ty == T::Float => {
                float(*op, self.value(state, a), self.value(state, b))
            }
            Kind::Binary(op, a, _) if matches!(op, B::And | B::Or) || a.ty.is_whole() => {
                match (self.assume(state, expr, true), self.assume(state, expr, false)) {
                    (Some(_), None) => AbstractValue::Truth(true),
                    (None, Some(_)) => AbstractValue::Truth(false),
                    _ => AbstractValue::Nothing,
                }
            }
            Kind::Case(..) => {
                let all = self.outcomes(state, expr).into_iter().map(|(_, value, _)| value);
                all.reduce(AbstractValue::or).unwrap_or_else(|| unknown_value(expr.ty))
            }
            _ => unknown_value(expr.ty),
        }
    }

    /// Returns the range of a value at the start of a handler.
    fn initial_value(&self, name: &Name, ty: T) -> AbstractValue {
        let Name::Operand(place) = name else { return unknown_value(ty) };
        if !ty.is_whole() {
            return AbstractValue::Nothing;
        }
        let level = self.level;
        AbstractValue::Whole(match place {
            // The arriving packet may be counted before the limit is checked.
            Operand::Packets { .. } | Operand::Drops => Range::up_to(i64::from(PACKETS_MAX) + 1),
            Operand::Bytes { .. } => Range::up_to(BYTES_MAX as i64 + i64::from(u32::MAX)),
            Operand::Rate | Operand::Now | Operand::Arrived => Range::up_to(i64::MAX),
            Operand::Index => Range::up_to(n_partitions(level) - 1),
            Operand::Rank => level.rank_bits.map_or(Range::ALL, |bits| Range::up_to(greatest(bits))),
            Operand::Var(at) => of_var(&level.vars[*at]),
            Operand::PartitionVar(at) => of_var(&level.partition_vars[*at]),
            Operand::Len => Range::HASH,
            Operand::Ecn => Range::up_to(3),
            Operand::Id => Range::ALL,
            Operand::Partitions(_) => Range::of(0, n_partitions(level)),
            Operand::Field(name) => self.field(name),
            Operand::Header(name) => {
                level.headers.iter().find(|header| header.name == *name).map_or(Range::ALL, of_header)
            }
        })
    }

    /// Returns the possible range of a packet field.
    fn field(&self, name: &str) -> Range {
        match name {
            "flow" | "src" | "dst" => Range::HASH,
            "dscp" => Range::up_to(63),
            "net_len" => Range::HASH,
            // A field that a queue has set keeps its value.
            _ if self.changed.contains(name) => Range::ALL,
            "class" => Range::HASH,
            "remaining" | "deadline" => Range::up_to(i64::MAX),
            _ => Range::ALL,
        }
    }
}

/// Both sides where `a + by <= b`.
fn less(a: Range, b: Range, by: i64) -> Option<(Range, Range)> {
    let below = Range { low: i64::MIN, high: b.high.checked_sub(by)? };
    let above = Range { low: a.low.checked_add(by)?, high: i64::MAX };
    Some((a.and(below)?, b.and(above)?))
}

/// The first range without the second, if the latter is a single number at one end.
fn other_than(a: Range, b: Range) -> Option<Range> {
    match b.is_one() {
        true if a == b => None,
        true if a.low == b.low => Some(Range::of(a.low + 1, a.high)),
        true if a.high == b.low => Some(Range::of(a.low, a.high - 1)),
        _ => Some(a),
    }
}

/// Merges paths beyond the limit.
fn join_beyond(states: &mut Vec<State>) {
    if states.len() > STATES_MAX {
        let all = std::mem::take(states).into_iter();
        states.extend(all.reduce(|a, b| a.or(&b)));
    }
}

fn unknown_value(ty: T) -> AbstractValue {
    if ty.is_whole() { AbstractValue::Whole(Range::ALL) } else { AbstractValue::Nothing }
}

fn of_var(var: &QueueVar) -> Range {
    Range::of(var.range.0, var.range.1)
}

/// Number fields have their range; other bytes are hashed.
fn of_header(header: &QueueHeader) -> Range {
    match header.ty {
        Type::Bool => Range::up_to(1),
        Type::Uint(bits) if bits < 63 => Range::up_to((1 << bits) - 1),
        Type::Text(_) | Type::Bytes(_) | Type::IpAddr | Type::Mac => Range::HASH,
        _ => Range::ALL,
    }
}

/// Returns the number of partitions of a level.
fn n_partitions(level: &QueueLevel) -> i64 {
    level.partitions.as_ref().map_or(1, |(partitions, _)| match partitions {
        QueuePartitions::Hash { n, .. } | QueuePartitions::Index { n } => i64::from(*n),
    })
}

/// Applies a unary operation to an abstract value.
fn unary(op: U, a: AbstractValue) -> AbstractValue {
    match (op, a) {
        (U::Not, AbstractValue::Truth(truth)) => AbstractValue::Truth(!truth),
        (U::Negate, AbstractValue::Whole(a)) => AbstractValue::Whole(Range::binary(B::Sub, Range::one(0), a)),
        (U::Negate, AbstractValue::Float(low, high)) => AbstractValue::Float(-high, -low),
        // Rounding to nearest is monotonic.
        (U::ToFloat, AbstractValue::Whole(a)) => AbstractValue::Float(a.low as f64, a.high as f64),
        (U::ToWhole, AbstractValue::Float(low, high)) => {
            AbstractValue::Whole(Range::of(low as i64, high as i64))
        }
        (U::ToWhole, _) => AbstractValue::Whole(Range::ALL),
        (U::Floor, AbstractValue::Float(low, high)) => AbstractValue::Float(low.floor(), high.floor()),
        (U::Ceil, AbstractValue::Float(low, high)) => AbstractValue::Float(low.ceil(), high.ceil()),
        (U::Round, AbstractValue::Float(low, high)) => {
            AbstractValue::Float(low.round_ties_even(), high.round_ties_even())
        }
        (U::Sqrt, AbstractValue::Float(low, high)) if low >= 0.0 => {
            AbstractValue::Float(low.sqrt(), high.sqrt())
        }
        (U::Abs, AbstractValue::Whole(a)) => AbstractValue::Whole(a.abs()),
        (U::Log2, AbstractValue::Whole(a)) => AbstractValue::Whole(a.log2()),
        (U::Hash, _) => AbstractValue::Whole(Range::HASH),
        _ => AbstractValue::Nothing,
    }
}

/// IEEE 754 rounding is monotonic, so the extremes are at those of the operands, unless a result is NaN.
fn float(op: B, a: AbstractValue, b: AbstractValue) -> AbstractValue {
    let (AbstractValue::Float(a, b), AbstractValue::Float(c, d)) = (a, b) else {
        return AbstractValue::Nothing;
    };
    let corners = |op: fn(f64, f64) -> f64| {
        let all = [op(a, c), op(a, d), op(b, c), op(b, d)];
        match all.iter().any(|x| !x.is_finite()) {
            true => AbstractValue::Nothing,
            false => AbstractValue::Float(
                all.into_iter().fold(f64::INFINITY, f64::min),
                all.into_iter().fold(f64::NEG_INFINITY, f64::max),
            ),
        }
    };
    match op {
        B::Add => corners(|a, b| a + b),
        B::Sub => corners(|a, b| a - b),
        B::Mul => corners(|a, b| a * b),
        B::Div if c > 0.0 || d < 0.0 => corners(|a, b| a / b),
        B::Least => corners(f64::min),
        B::Greatest => corners(f64::max),
        _ => AbstractValue::Nothing,
    }
}
