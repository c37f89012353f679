//! Checks PUSH, POP and CUT: valid encapsulations, the fields that a program sets, and reads of a frame after a change
//! of its headers. Lowering checks the rules that depend on the ports of a chain.

use crate::check::suggest::unknown_layer;
use std::collections::BTreeSet;

use weft_core::wire::{FieldId, Protocol, ProtocolId, Width, bits_max};
use weft_core::{Type, Value};

use super::expr::Environment;
use super::scope::Scope;
use super::walk::{each_expr, exprs_of};
use super::wire::{may_be_absent, read_only_rule};
use super::{Cx, all};
use crate::ast::{self, Assign, Ident, Path};
use crate::check::checked::Checked;
use crate::check::suggest::with_nearest;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    AssignTarget, Column, ColumnLocation, Expr, ExprKind, HandlerKind, Layer, Meta, PopHow, Pushed, Stmt,
    StmtKind,
};
use crate::source::Span;

/// Headers of one PUSH.
const HEADERS_MAX: usize = 16;

/// Checks a PUSH of at most [`HEADERS_MAX`] headers.
pub(super) fn push(scope: &mut Scope<'_, '_>, headers: &[ast::Pushed], span: Span) -> Option<StmtKind> {
    crate::check::action::check_action(scope, &[HandlerKind::Request], "PUSH", span)?;
    if headers.len() > HEADERS_MAX {
        let message = format!("{} headers in one PUSH", headers.len());
        let help = "push the others with another PUSH";
        return scope.cx.refuse(code::OVER_LIMIT, message, span, format!("the limit is {HEADERS_MAX}"), help);
    }
    let pushed = all(headers.iter().map(|header| pushed(scope, header)))?;
    for (at, pair) in pushed.windows(2).enumerate() {
        check_encapsulation(scope, pair[0].protocol, pair[1].protocol, &headers[at + 1].protocol)?;
    }
    Some(StmtKind::Push { headers: pushed })
}

/// Checks a POP: of the element's layer, down to a layer, or of one header.
pub(super) fn pop(scope: &mut Scope<'_, '_>, to: bool, layer: Option<&Path>, span: Span) -> Option<StmtKind> {
    crate::check::action::check_action(scope, &[HandlerKind::Request], "POP", span)?;
    let Some(path) = layer else {
        if let Layer::Packet(Some(layer)) = &scope.element.layer {
            return Some(StmtKind::Pop { layer: layer.clone(), how: PopHow::With });
        }
        let message = "POP removes the element's own layer, but this element is ON packet";
        let help = "write `POP TO inner.ip`, or `POP vlan` for a single header";
        let label = "POP down to which layer?";
        return scope.cx.refuse(code::HEADER_CHANGE_MISMATCH, message, span, label, help);
    };
    let Some((found, _, rest)) = scope.cx.layer_of(&path.segments) else {
        unknown_layer(scope.cx, path);
        return None;
    };
    if !rest.is_empty() {
        let message = format!("`{}` is a field", path.to_dotted());
        let help = "write `POP TO inner.ip`, or `POP vlan` for a single header";
        return scope.cx.refuse(code::HEADER_CHANGE_MISMATCH, message, path.span, "expected a layer", help);
    }
    let how = if to { PopHow::To } else { PopHow::Alone };
    Some(StmtKind::Pop { layer: found, how })
}

/// Checks CUT.
pub(super) fn cut(scope: &mut Scope<'_, '_>, bytes: &ast::Expr, span: Span) -> Option<StmtKind> {
    crate::check::action::check_action(scope, &[HandlerKind::Request], "CUT", span)?;
    let bytes = scope.value_for(bytes, Type::Uint(32), false, "a number of bytes")?;
    Some(StmtKind::Cut { bytes })
}

/// Checks FRAGMENT.
pub(super) fn fragment(scope: &mut Scope<'_, '_>, bytes: &ast::Expr, span: Span) -> Option<StmtKind> {
    crate::check::action::check_action(scope, &[HandlerKind::Request], "FRAGMENT", span)?;
    let bytes = scope.value_for(bytes, Type::Uint(32), false, "a number of bytes")?;
    Some(StmtKind::Fragment { bytes })
}

/// Checks one pushed header and its fields.
fn pushed(scope: &mut Scope<'_, '_>, ast: &ast::Pushed) -> Option<Pushed> {
    let Some(protocol) = pushed_protocol(scope, &ast.protocol) else {
        ast.fields.iter().for_each(|field| drop(scope.expr(&field.value, None)));
        return None;
    };
    let mut fields: Vec<(FieldId, Expr)> = Vec::new();
    let mut is_whole = true;
    for (at, field) in ast.fields.iter().enumerate() {
        let twice = ast.fields[..at].iter().find(|other| other.name.name == field.name.name);
        if let Some(first) = twice {
            let message = format!("`{}` is set twice", field.name.name);
            let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, message)
                .at(field.name.span, "the second")
                .with_label(first.name.span, "the first")
                .with_help("remove one of them");
            scope.cx.report(diagnostic);
        }
        match pushed_field(scope, protocol, &ast.protocol, field) {
            Some(found) => fields.push(found),
            None => is_whole = false,
        }
    }
    is_whole.then_some(Pushed { protocol, fields, span: ast.span })
}

/// Finds the protocol of a pushed header. Reports a union.
fn pushed_protocol(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<ProtocolId> {
    match scope.cx.formats.layer(&name.name, 0) {
        Some(layer) => match layer.protocols[..] {
            [only] => Some(only),
            _ => {
                let names = layer.protocols.iter().map(|id| protocol(scope, *id).name.clone());
                let names: Vec<String> = names.collect();
                let message = format!("`{}` is a union of several protocols", name.name);
                let help = format!("write one of `{}`", names.join("`, `"));
                scope.cx.refuse(code::HEADER_CHANGE_MISMATCH, message, name.span, "which?", help)
            }
        },
        None => {
            unknown_layer(scope.cx, &Path { segments: vec![name.clone()], span: name.span });
            None
        }
    }
}

fn protocol<'s>(scope: &'s Scope<'_, '_>, id: ProtocolId) -> &'s Protocol {
    &scope.cx.formats.protocols[usize::from(id.0)]
}

/// Checks a field of a pushed header. Reports a field that cannot be set.
fn pushed_field(
    scope: &mut Scope<'_, '_>,
    of: ProtocolId,
    whose: &Ident,
    ast: &Assign,
) -> Option<(FieldId, Expr)> {
    let protocol = protocol(scope, of);
    let Some(id) = protocol.field(&ast.name.name) else {
        let names: Vec<String> = protocol.fields.iter().map(|field| field.name.clone()).collect();
        let message = format!("`{}` has no field `{}`", whose.name, ast.name.name);
        let diagnostic = Diagnostic::error(code::NO_SUCH_FIELD, message).at(ast.name.span, "unknown field");
        let names = names.iter().map(String::as_str);
        scope.cx.report_missing(with_nearest(diagnostic, &ast.name, names));
        drop(scope.expr(&ast.value, None));
        return None;
    };
    let field = &protocol.fields[usize::from(id.0)];
    let (ty, rule, is_repeated) = (field.ty, field.rule.clone(), field.repeated);
    let most = match field.width {
        Width::Bits { n, .. } => Some(bits_max(n)),
        Width::Bytes { .. } | Width::Rounds { .. } => None,
    };
    let name = format!("{}.{}", whose.name, ast.name.name);
    let value = scope.value_for(&ast.value, ty, false, &format!("`{name}`"))?;
    let why = match read_only_rule(&rule) {
        Some(_) if may_be_absent(&rule) && value.kind == ExprKind::Const(Value::Int(0)) => None,
        why => why.or(is_repeated.then_some("repeated in a REPEAT")),
    };
    if let Some(why) = why {
        return Diagnostic::error(code::FIELD_READ_ONLY, format!("`{name}` cannot be set"))
            .at(ast.span, format!("is {why}"))
            .with_help(match may_be_absent(&rule) {
                true => "remove it, or write `= 0` for a header without it",
                false => "remove it: its value is filled in automatically",
            })
            .refuse(scope.cx);
    }
    if let (ExprKind::Const(Value::Int(n)), Some(most)) = (&value.kind, most)
        && *n as u64 > most
    {
        let message = format!("{} is too large for `{name}`", *n as u64);
        return Diagnostic::error(code::BAD_LITERAL, message)
            .at(value.span, format!("the maximum is {most}"))
            .with_help("the header field is that wide")
            .refuse(scope.cx);
    }
    Some((id, value))
}

/// Rejects a header that the previous header cannot carry.
fn check_encapsulation(
    scope: &mut Scope<'_, '_>,
    lower: ProtocolId,
    upper: ProtocolId,
    name: &Ident,
) -> Option<()> {
    let below = protocol(scope, lower);
    if below.next.iter().any(|next| next.to == upper) {
        return Some(());
    }
    let mut names: Vec<&str> = below.next.iter().map(|next| protocol(scope, next.to).name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let below = below.name.clone();
    let help = match names.is_empty() {
        true => format!("only bytes can follow `{below}`"),
        false => format!("`{below}` can carry `{}`", names.join("`, `")),
    };
    let message = format!("`{below}` cannot carry `{}`", name.name);
    Diagnostic::error(code::HEADER_CHANGE_MISMATCH, message)
        .at(name.span, "not allowed here")
        .with_note("list the headers in wire order, the outermost first")
        .with_help(help)
        .refuse(scope.cx)
}

/// Rejects reads of a frame, and writes of its fields, at points where its headers may have changed. `new` are the
/// columns that the handler declared by use.
pub(super) fn check_stale_reads(
    cx: &mut Cx<'_>,
    checked: &Checked,
    new: &[(Column, ColumnLocation)],
    body: &[Stmt],
) {
    let Checked { element, frames, .. } = checked;
    if element.layer == Layer::Rpc {
        return;
    }
    let columns: Vec<&Column> = element.columns.iter().chain(new.iter().map(|(column, _)| column)).collect();
    let places = frames.iter().map(|(at, place)| (*at, place));
    let all = places.chain((element.columns.len()..).zip(new.iter().map(|(_, place)| place)));
    let beside =
        all.filter(|(_, place)| matches!(place, ColumnLocation::Meta(_))).map(|(at, _)| at).collect();
    let mut looks = StaleReadCheck { cx, columns, beside, changed: None, fragmented: None, in_scan: false };
    looks.stmts(body);
}

struct StaleReadCheck<'a, 'c> {
    cx: &'a mut Cx<'c>,
    /// The element's columns and those that the handler declared by use.
    columns: Vec<&'a Column>,
    /// The columns among them that are metadata, not locations in the frame.
    beside: BTreeSet<usize>,
    /// The first header change on a path to this point.
    changed: Option<Span>,
    /// The first FRAGMENT on a path to this point.
    fragmented: Option<Span>,
    /// In the body of a SCAN, which must not change headers.
    in_scan: bool,
}

/// Whether a statement changes the headers of its frame.
fn is_change(kind: &StmtKind) -> bool {
    matches!(
        kind,
        StmtKind::Push { .. } | StmtKind::Pop { .. } | StmtKind::Cut { .. } | StmtKind::Fragment { .. }
    )
}

impl StaleReadCheck<'_, '_> {
    /// Whether the code after these statements is reachable.
    fn stmts(&mut self, stmts: &[Stmt]) -> bool {
        for stmt in stmts {
            if let Some(changed) = self.changed {
                self.stmt(stmt, changed);
            }
            match &stmt.kind {
                kind if is_change(kind) && self.in_scan => self.change_in_scan(stmt.span),
                kind if is_change(kind) => {
                    if let Some(fragmented) = self.fragmented {
                        self.change_of_fragments(stmt.span, fragmented);
                    }
                    self.changed = self.changed.or(Some(stmt.span));
                    if matches!(kind, StmtKind::Fragment { .. }) {
                        self.fragmented = self.fragmented.or(Some(stmt.span));
                    }
                }
                StmtKind::Verdict(_) => return false,
                StmtKind::If { arms, otherwise } => {
                    let paths = arms.iter().map(|(_, body)| body).chain([otherwise]);
                    if !self.paths(paths) {
                        return false;
                    }
                }
                StmtKind::Update { otherwise, .. } => {
                    self.paths([otherwise, &Vec::new()].into_iter());
                }
                StmtKind::Scan { body, .. } => self.scan(body),
                _ => {}
            }
        }
        true
    }

    /// Walks all paths from here; whether one of them continues.
    fn paths<'s>(&mut self, paths: impl Iterator<Item = &'s Vec<Stmt>>) -> bool {
        let before = (self.changed, self.fragmented);
        let (mut after, mut is_open) = ((None, None), false);
        for path in paths {
            (self.changed, self.fragmented) = before;
            if self.stmts(path) {
                is_open = true;
                after = (after.0.or(self.changed), after.1.or(self.fragmented));
            }
        }
        (self.changed, self.fragmented) = after;
        is_open
    }

    /// Checks the body of a SCAN.
    fn scan(&mut self, body: &[Stmt]) {
        let is_inner = core::mem::replace(&mut self.in_scan, true);
        self.stmts(body);
        self.in_scan = is_inner;
    }

    /// Reports a header change after FRAGMENT.
    fn change_of_fragments(&mut self, at: Span, fragmented: Span) {
        let message = "FRAGMENT must be the last header change in a handler";
        let diagnostic = Diagnostic::error(code::FRAME_CHANGED, message)
            .at(at, "the packet is already in fragments")
            .with_label(fragmented, "fragmented here")
            .with_help(
                "change the headers before FRAGMENT, or in the next element, which sees each fragment",
            );
        self.cx.report(diagnostic);
    }

    /// Reports a header change in a SCAN.
    fn change_in_scan(&mut self, at: Span) {
        let message = "a SCAN cannot change the headers of a frame";
        let help = "save the result of the SCAN in a VAR, and change the headers after it";
        self.cx.fault(code::ACTION_NOT_HERE, message, at, "may run several times", help);
    }

    /// Reports reads and writes of frame fields by a statement after a header change.
    fn stmt(&mut self, stmt: &Stmt, changed: Span) {
        if matches!(stmt.kind, StmtKind::Pop { .. }) && !self.in_scan {
            let diagnostic =
                Diagnostic::error(code::FRAME_CHANGED, "POP must be the first header change in a handler")
                    .at(stmt.span, "the layers have moved")
                    .with_label(changed, "changed before")
                    .with_help("POP first, or in the next element, which sees the new frame");
            self.cx.report(diagnostic);
        }
        let is_column =
            |place: &AssignTarget| matches!(place, AssignTarget::Column(at) if !self.beside.contains(at));
        let sets = match &stmt.kind {
            StmtKind::Set { target, .. } => is_column(target),
            StmtKind::Guard { set, .. } => set.iter().any(|(place, _)| is_column(place)),
            StmtKind::Update { returning, .. } => returning.iter().any(|(_, place)| is_column(place)),
            _ => false,
        };
        if sets {
            self.report("a field of the frame", "set", stmt.span, changed);
        }
        let mut looks: Vec<(String, Span)> = Vec::new();
        for expr in exprs_of(stmt) {
            each_expr(expr, &mut |part| match part.kind {
                ExprKind::Column(at) if !self.beside.contains(&at) => {
                    let name = self.columns.get(at).map(|column| column.name.clone());
                    looks.push((name.map_or("the frame".to_owned(), |name| format!("`{name}`")), part.span));
                }
                ExprKind::Meta(Meta::Size) => looks.push(("`size`".to_owned(), part.span)),
                ExprKind::Meta(Meta::PacketSize) => looks.push(("`packet_size`".to_owned(), part.span)),
                ExprKind::Meta(Meta::Flow) => looks.push(("`flow`".to_owned(), part.span)),
                ExprKind::Meta(Meta::IsIcmpError) => looks.push(("`is_icmp_error`".to_owned(), part.span)),
                ExprKind::Meta(Meta::IsIntact) => looks.push(("`is_intact`".to_owned(), part.span)),
                ExprKind::Meta(Meta::TunnelDepth) => looks.push(("`tunnel_depth`".to_owned(), part.span)),
                _ => {}
            });
        }
        for (what, span) in looks {
            self.report(&what, "read", span, changed);
        }
    }

    /// Reports a use of the old frame after a header change.
    fn report(&mut self, what: &str, how: &str, span: Span, changed: Span) {
        let message = format!("{what} is {how} after a header change");
        let diagnostic = Diagnostic::error(code::FRAME_CHANGED, message)
            .at(span, "refers to the old frame")
            .with_label(changed, "changed here")
            .with_help("save it in a LET before the change, or do this in the next element, which sees the new frame");
        self.cx.report(diagnostic);
    }
}
