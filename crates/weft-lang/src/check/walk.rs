//! Visits every expression of a typed tree, parents before children.

use crate::hir::{Aggregate, Expr, ExprKind, Find, Query, Stmt, StmtKind, Verdict, VerdictKind};

/// Calls `visit` for an expression and all within it.
pub(super) fn each_expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    let mut all = |parts: &[Expr]| parts.iter().for_each(|part| each_expr(part, visit));
    match &expr.kind {
        ExprKind::Const(_)
        | ExprKind::Column(_)
        | ExprKind::Param(_)
        | ExprKind::Local(_)
        | ExprKind::Call(_)
        | ExprKind::Var(_)
        | ExprKind::RowColumn { .. }
        | ExprKind::Header(_)
        | ExprKind::Trailer(_)
        | ExprKind::Meta(_)
        | ExprKind::FaultName
        | ExprKind::CountRows(_) => {}
        ExprKind::Widen(a)
        | ExprKind::Cast(a)
        | ExprKind::Not(a)
        | ExprKind::Neg(a)
        | ExprKind::IsNull(a)
        | ExprKind::Like { operand: a, .. } => each_expr(a, visit),
        ExprKind::And(a, b)
        | ExprKind::Or(a, b)
        | ExprKind::Compare { left: a, right: b, .. }
        | ExprKind::Arith { left: a, right: b, .. }
        | ExprKind::SameAs(a, b) => {
            each_expr(a, visit);
            each_expr(b, visit);
        }
        ExprKind::Concat(parts) | ExprKind::Function { args: parts, .. } => all(parts),
        ExprKind::InList { operand, list } => {
            all(list);
            each_expr(operand, visit);
        }
        ExprKind::Between { operand, low, high } => {
            for part in [operand, low, high] {
                each_expr(part, visit);
            }
        }
        ExprKind::Case { operand, arms, otherwise } => {
            for part in operand.iter().chain([otherwise]) {
                each_expr(part, visit);
            }
            for (when, then) in arms {
                each_expr(when, visit);
                each_expr(then, visit);
            }
        }
        ExprKind::Lookup { find, value } => {
            each_in_find(find, visit);
            each_expr(value, visit);
        }
        ExprKind::Exists(find) => each_in_find(find, visit),
        ExprKind::Aggregate { filter, aggregate, .. } => {
            for part in filter.iter().map(AsRef::as_ref).chain(parts_of_aggregate(aggregate)) {
                each_expr(part, visit);
            }
        }
    }
}

fn each_in_find(find: &Find, visit: &mut dyn FnMut(&Expr)) {
    for part in find.key.iter().chain(&find.condition) {
        each_expr(part, visit);
    }
}

fn parts_of_aggregate(aggregate: &Aggregate) -> Vec<&Expr> {
    match aggregate {
        Aggregate::Count | Aggregate::Any => Vec::new(),
        Aggregate::Sum(a) | Aggregate::Min(a) | Aggregate::Max(a) | Aggregate::Avg(a) => vec![a],
        Aggregate::ArgMin { result, by } | Aggregate::ArgMax { result, by } => vec![result, by],
    }
}

/// Calls `visit` for a statement and all within it.
pub(super) fn each_stmt(stmts: &[Stmt], visit: &mut dyn FnMut(&Stmt)) {
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

/// The expressions that stand in a statement itself, not in statements within it.
pub(super) fn exprs_of(stmt: &Stmt) -> Vec<&Expr> {
    match &stmt.kind {
        StmtKind::Let { value, .. } | StmtKind::Set { value, .. } | StmtKind::Mark { value } => vec![value],
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
        StmtKind::Verdict(verdict) => exprs_of_verdict(verdict),
    }
}

fn exprs_of_query(query: &Query) -> Vec<&Expr> {
    let of_joins = query.joins.iter().flat_map(|join| join.key.iter().chain(&join.condition));
    of_joins.chain(&query.filter).collect()
}

fn exprs_of_verdict(verdict: &Verdict) -> Vec<&Expr> {
    match &verdict.kind {
        VerdictKind::Forward | VerdictKind::Drop => Vec::new(),
        VerdictKind::Abort { status, text, with } => {
            [status].into_iter().chain(text).chain(with.iter().map(|(_, value)| value)).collect()
        }
        VerdictKind::Reply { fields } => fields.iter().map(|(_, value)| value).collect(),
        VerdictKind::Redirect { to } => vec![to],
    }
}
