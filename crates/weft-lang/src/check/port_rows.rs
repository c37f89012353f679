//! Columns of tables that name ports, by what elements do with them, and rows that name one that there is not.

use std::collections::{BTreeMap, BTreeSet};

use weft_core::Value;

use super::Cx;
use super::walk::{each_expr, each_stmt, exprs_of};
use crate::ast::Row;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Element, Expr, ExprKind, Find, Function, Handler, Layer, LocalId, RowId, StmtKind, Table, TableRef,
    VerdictKind,
};
use crate::nearest::nearest;

/// The columns to whose values an element sends frames.
pub(super) fn port_columns(element: &Element) -> BTreeSet<(TableRef, usize)> {
    match element.layer {
        Layer::Rpc => BTreeSet::new(),
        Layer::Packet(_) => element.handlers.iter().flat_map(columns_of_handler).collect(),
    }
}

fn columns_of_handler(handler: &Handler) -> BTreeSet<(TableRef, usize)> {
    let mut rows = BTreeMap::<RowId, TableRef>::new();
    let mut lets = BTreeMap::<LocalId, Expr>::new();
    let mut targets: Vec<Expr> = Vec::new();
    each_stmt(&handler.body, &mut |stmt| {
        match &stmt.kind {
            StmtKind::Let { local, value } => {
                lets.insert(*local, value.clone());
            }
            StmtKind::Guard { query, .. } => {
                rows.extend(query.joins.iter().map(|join| (join.row, join.table)));
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
    let mut found = BTreeSet::new();
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

impl Cx<'_> {
    /// Warns of a row of the program that names a port that there is not, in a column by which frames leave; `columns`
    /// are those that the row gives.
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
            let known = self.ports.iter().map(String::as_str);
            if name == "*" || known.clone().any(|known| known == name) {
                continue;
            }
            let label =
                format!("frames are sent to the `{}` of rows of `{}`", table.columns[*at].name, table.name);
            let diagnostic = Diagnostic::warning(code::NOT_IN_NETWORK, format!("there is no port `{name}`"))
                .at(written.span, label);
            let diagnostic = match nearest(name, known) {
                Some(near) => diagnostic.with_help(format!("write '{near}'")),
                None => diagnostic.with_help("name a PORT of the program"),
            };
            self.report_missing(diagnostic);
        }
    }
}
