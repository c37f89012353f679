//! Port names in elements: the values that elements use as ports, and unknown names among them.

use std::collections::{BTreeMap, BTreeSet};

use weft_core::Value;
use weft_core::matching::Test;

use super::Cx;
use super::walk::{each_expr, each_stmt, exprs_of};
use crate::ast::Row;
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{
    CompareOp, Element, Expr, ExprKind, Find, Function, Handler, Join, Layer, LocalId, Meta, RowId, StmtKind,
    Table, TableRef, VerdictKind,
};
use crate::nearest::nearest;
use crate::source::Span;

/// A name that is not a port of the program.
pub(super) struct NoPort<'n> {
    pub(super) name: &'n str,
    /// Its span, if the name is written as a literal.
    pub(super) literal: Option<Span>,
    /// The help if no similar name is known.
    pub(super) otherwise: &'static str,
}

const A_PORT: &str = "name a PORT of the program";

impl Cx<'_> {
    /// Reports an unknown port, with the nearest known name; the caller adds the location.
    pub(super) fn no_port(&self, kind: fn(Code, String) -> Diagnostic, of: NoPort<'_>) -> Diagnostic {
        let NoPort { name, literal, otherwise } = of;
        let diagnostic = kind(code::NOT_IN_NETWORK, format!("unknown port `{name}`"));
        let Some(near) = nearest(name, self.ports.iter().map(String::as_str)) else {
            return diagnostic.with_help(otherwise);
        };
        let diagnostic = diagnostic.with_help(format!("write '{near}'"));
        literal
            .into_iter()
            .fold(diagnostic, |diagnostic, span| diagnostic.with_fix(span, format!("'{near}'")))
    }
}

/// How an element on frames uses a parameter that is a port name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PortUse {
    /// Compares a frame's port with it.
    Compares,
    /// It sends frames there.
    Redirects,
}

/// Returns the parameters of an element that are port names.
fn port_params(element: &Element) -> BTreeMap<usize, PortUse> {
    let mut meant = BTreeMap::new();
    if element.layer == Layer::Rpc {
        return meant;
    }
    let mut note = |of: &Expr, how: PortUse| {
        if let ExprKind::Param(at) = of.kind {
            let known = meant.entry(at).or_insert(how);
            *known = how.max(*known);
        }
    };
    let is_port = |expr: &Expr| matches!(expr.kind, ExprKind::Meta(Meta::Port));
    for handler in element.handlers.iter() {
        each_stmt(&handler.body, &mut |stmt| {
            if let StmtKind::Verdict(verdict) | StmtKind::Guard { otherwise: verdict, .. } = &stmt.kind
                && let VerdictKind::Redirect { to } = &verdict.kind
            {
                note(to, PortUse::Redirects);
            }
            for expr in exprs_of(stmt) {
                each_expr(expr, &mut |expr| match &expr.kind {
                    ExprKind::Compare { op: CompareOp::Eq | CompareOp::Ne, left, right } => {
                        if is_port(left) {
                            note(right, PortUse::Compares);
                        } else if is_port(right) {
                            note(left, PortUse::Compares);
                        }
                    }
                    ExprKind::InList { operand, list } if is_port(operand) => {
                        list.iter().for_each(|item| note(item, PortUse::Compares));
                    }
                    _ => {}
                });
            }
        });
    }
    meant
}

impl Cx<'_> {
    /// Reports a stage's arguments that should be port names but are unknown. Returns whether an element would redirect
    /// frames there.
    pub(super) fn report_unknown_ports(
        &mut self,
        element: &Element,
        values: &[Option<Value>],
        spans: &[Option<Span>],
    ) -> bool {
        let mut is_lost = false;
        // A file of elements has no ports.
        let meant = if self.ports.is_empty() { BTreeMap::new() } else { port_params(element) };
        for (at, how) in meant {
            let (Some(Value::Bytes(name)), Some(span)) = (&values[at], spans[at]) else { continue };
            let Ok(name) = core::str::from_utf8(name) else { continue };
            if is_reserved(name) && how == PortUse::Redirects || self.ports.iter().any(|known| known == name)
            {
                continue;
            }
            let strange = NoPort { name, literal: None, otherwise: A_PORT };
            let diagnostic = match how {
                PortUse::Compares => self
                    .no_port(Diagnostic::warning, strange)
                    .at(span, format!("no frame arrives there, but `{}` tests for it", element.name)),
                PortUse::Redirects => self
                    .no_port(Diagnostic::error, strange)
                    .at(span, format!("`{}` redirects frames there", element.name)),
            };
            is_lost |= how == PortUse::Redirects && !self.has_gaps;
            self.report_missing(diagnostic);
        }
        is_lost
    }
}

/// Whether a name has a special meaning as an output: `*`, all other ports of the chain, or `@hold`, back to the
/// element after a delay.
pub(super) fn is_reserved(name: &str) -> bool {
    matches!(name, "*" | weft_core::abi::HOLD)
}

/// The columns whose values an element uses as output ports, or whose values rules compare with a frame's port.
pub(super) fn port_columns(element: &Element) -> BTreeSet<(TableRef, usize)> {
    match element.layer {
        Layer::Rpc => BTreeSet::new(),
        Layer::Packet(_) => element.handlers.iter().flat_map(columns_of_handler).collect(),
    }
}

/// Returns the table columns whose values a handler uses as ports.
fn columns_of_handler(handler: &Handler) -> BTreeSet<(TableRef, usize)> {
    let mut rows = BTreeMap::<RowId, TableRef>::new();
    let mut lets = BTreeMap::<LocalId, Expr>::new();
    let mut targets: Vec<Expr> = Vec::new();
    let mut found = BTreeSet::new();
    each_stmt(&handler.body, &mut |stmt| {
        match &stmt.kind {
            StmtKind::Let { local, value } => {
                lets.insert(*local, value.clone());
            }
            StmtKind::Guard { query, .. } => {
                rows.extend(query.joins.iter().map(|join| (join.row, join.table)));
                found.extend(query.joins.iter().flat_map(columns_of_match));
            }
            _ => {}
        }
        if let StmtKind::Verdict(verdict) | StmtKind::Guard { otherwise: verdict, .. } = &stmt.kind
            && let VerdictKind::Redirect { to } = &verdict.kind
        {
            targets.push(to.clone());
        }
        for expr in exprs_of(stmt) {
            each_expr(expr, &mut |expr| {
                if let ExprKind::Lookup { find, .. } = &expr.kind {
                    let Find { row, table, .. } = **find;
                    rows.insert(row, table);
                }
            });
        }
    });
    let mut seen = BTreeSet::new();
    while let Some(of) = targets.pop() {
        match of.kind {
            ExprKind::Local(local) if seen.insert(local) => targets.extend(lets.get(&local).cloned()),
            ExprKind::RowColumn { row, column } => {
                found.extend(rows.get(&row).map(|table| (*table, column)));
            }
            ExprKind::Lookup { value, .. } => targets.push(*value),
            ExprKind::Function { function: Function::Coalesce, args } => targets.extend(args),
            ExprKind::Case { arms, otherwise, .. } => {
                targets.extend(arms.into_iter().map(|(_, then)| then).chain([*otherwise]));
            }
            _ => {}
        }
    }
    found
}

/// The columns that a JOIN FIRST compares with a frame's port.
fn columns_of_match(join: &Join) -> Vec<(TableRef, usize)> {
    let is_port = |of: &Expr| matches!(of.kind, ExprKind::Meta(Meta::Port) | ExprKind::Egress);
    let parts = join.first.iter().flat_map(|spec| &spec.parts).zip(&join.key);
    let columns = parts.filter_map(|(part, of)| match part.test {
        Test::Equal(column) if is_port(of) => Some((join.table, usize::from(column))),
        _ => None,
    });
    columns.collect()
}

impl Cx<'_> {
    /// Warns of an unknown port in a port column of a row; `columns` are those that the row sets.
    pub(super) fn warn_of_ports(
        &mut self,
        table: &Table,
        ports: &BTreeSet<usize>,
        columns: &[usize],
        (row, values): (&Row, &[Value]),
    ) {
        for (at, written) in columns.iter().zip(&row.values).filter(|(at, _)| ports.contains(at)) {
            let Value::Bytes(name) = &values[*at] else { continue };
            let Ok(name) = core::str::from_utf8(name) else { continue };
            if name == "*" || self.ports.iter().any(|known| known == name) {
                continue;
            }
            let label = format!("column `{}` of `{}` holds port names", table.columns[*at].name, table.name);
            let strange = NoPort { name, literal: None, otherwise: A_PORT };
            let diagnostic = self.no_port(Diagnostic::warning, strange).at(written.span, label);
            self.report_missing(diagnostic);
        }
    }
}
