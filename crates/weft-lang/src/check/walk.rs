//! Visits the expressions and statements of a typed tree, parents before children.

use crate::hir::{Expr, Query, Stmt, StmtKind, Verdict, VerdictKind};

/// Calls `visit` for an expression and all its subexpressions.
pub(super) fn each_expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    for part in expr.children() {
        each_expr(part, visit);
    }
}

/// Calls `visit` for statements and all nested statements.
pub(crate) fn each_stmt(stmts: &[Stmt], visit: &mut dyn FnMut(&Stmt)) {
    for stmt in stmts {
        visit(stmt);
        match &stmt.kind {
            StmtKind::If { arms, otherwise } => {
                for (_, body) in arms {
                    each_stmt(body, visit);
                }
                each_stmt(otherwise, visit);
            }
            StmtKind::Update { otherwise, .. } => each_stmt(otherwise, visit),
            StmtKind::Scan { body, .. } => each_stmt(body, visit),
            _ => {}
        }
    }
}

/// Returns the expressions of a statement itself, not of nested statements.
pub(super) fn exprs_of(stmt: &Stmt) -> Vec<&Expr> {
    match &stmt.kind {
        StmtKind::Let { value, .. } | StmtKind::Set { value, .. } => vec![value],
        StmtKind::Mark { fields } => fields.iter().map(|(_, value)| value).collect(),
        StmtKind::Key { parts, .. } => parts.iter().collect(),
        StmtKind::If { arms, .. } => arms.iter().map(|(condition, _)| condition).collect(),
        StmtKind::Guard { query, set, otherwise } => {
            let mut exprs = exprs_of_query(query);
            exprs.extend(set.iter().map(|(_, value)| value));
            exprs.extend(exprs_of_verdict(otherwise));
            exprs
        }
        StmtKind::Insert { query, rows, .. } | StmtKind::Emit { query, rows, .. } => {
            let mut exprs: Vec<&Expr> = query.iter().flat_map(exprs_of_query).collect();
            exprs.extend(rows.iter().flatten());
            exprs
        }
        StmtKind::Upsert { key, set, .. } => key.iter().chain(set.iter().map(|(_, value)| value)).collect(),
        StmtKind::Update { key, condition, set, .. } => {
            key.iter().chain(condition).chain(set.iter().map(|(_, value)| value)).collect()
        }
        StmtKind::Delete { key, condition, .. } => key.iter().chain(condition).collect(),
        StmtKind::Scan { filter, .. } => filter.iter().collect(),
        StmtKind::Add { amount, .. } => vec![amount],
        StmtKind::Reset { .. } => Vec::new(),
        StmtKind::Mirror { to } => vec![to],
        StmtKind::Delay { interval } => vec![interval],
        StmtKind::Push { headers } => {
            headers.iter().flat_map(|header| &header.fields).map(|(_, value)| value).collect()
        }
        StmtKind::Pop { .. } => Vec::new(),
        StmtKind::Cut { bytes } | StmtKind::Fragment { bytes } => vec![bytes],
        StmtKind::Verdict(verdict) => exprs_of_verdict(verdict),
    }
}

fn exprs_of_query(query: &Query) -> Vec<&Expr> {
    let of_joins = query.joins.iter().flat_map(|join| join.key.iter().chain(&join.condition));
    of_joins.chain(&query.filter).collect()
}

/// Returns the operands of a verdict.
fn exprs_of_verdict(verdict: &Verdict) -> Vec<&Expr> {
    match &verdict.kind {
        VerdictKind::Forward | VerdictKind::Drop | VerdictKind::Steer(_) => Vec::new(),
        VerdictKind::Abort { status, text, with } => {
            [status].into_iter().chain(text).chain(with.iter().map(|(_, value)| value)).collect()
        }
        VerdictKind::Reply { fields } => fields.iter().map(|(_, value)| value).collect(),
        VerdictKind::ReplyPayload { bytes } => vec![bytes],
        VerdictKind::Redirect { to } => vec![to],
    }
}
