//! Collects the effects of a handler from its typed body.

use weft_core::types::Repr;

use super::walk::{each_expr, each_stmt, exprs_of};
use crate::hir::{
    AnswerTarget, AssignTarget, Effects, Expr, ExprKind, Function, Handler, Meta, Query, Stmt, StmtKind,
    Verdict, VerdictKind,
};

/// Collects the effects of a handler.
pub(super) fn of(handler: &Handler) -> Effects {
    let mut effects = Effects::default();
    each_stmt(&handler.body, &mut |stmt| {
        of_stmt(stmt, &mut effects);
        for expr in exprs_of(stmt) {
            effects.fallible |= expr.fallible;
            each_expr(expr, &mut |part| of_expr(part, handler, &mut effects));
        }
    });
    sort(&mut effects);
    effects
}

/// Replaces computed columns in a handler's effects by the columns that they read.
pub(super) fn add_computed(handler: &mut Handler, computed: &[(usize, &Expr)]) {
    let mut effects = core::mem::take(&mut handler.effects);
    for (column, expr) in computed {
        if !effects.columns_read.contains(column) {
            continue;
        }
        effects.columns_read.retain(|known| known != column);
        effects.fallible |= expr.fallible;
        each_expr(expr, &mut |part| of_expr(part, handler, &mut effects));
    }
    sort(&mut effects);
    handler.effects = effects;
}

/// Adds the effects of one statement, without those of its expressions and inner statements.
fn of_stmt(stmt: &Stmt, effects: &mut Effects) {
    match &stmt.kind {
        StmtKind::Let { .. } | StmtKind::If { .. } | StmtKind::Mark { .. } => {}
        // The engine takes any length, but the memory of a pass is limited.
        StmtKind::Key { .. } => effects.fallible = true,
        StmtKind::Set { target, value } => {
            of_place(target, effects);
            effects.fallible |= matches!(target, AssignTarget::Call(_)) && may_be_too_long(value);
        }
        StmtKind::Guard { query, set, otherwise } => {
            of_query(query, effects);
            set.iter().for_each(|(place, _)| of_place(place, effects));
            of_verdict(otherwise, effects);
        }
        StmtKind::Insert { table, query, .. } => {
            query.iter().for_each(|query| of_query(query, effects));
            effects.tables_written.push(*table);
            effects.tables_inserted.push(*table);
            // Inserts fail for an existing key, a full table, or text that is too long.
            effects.fallible = true;
        }
        StmtKind::Emit { sink, query, .. } => {
            query.iter().for_each(|query| of_query(query, effects));
            effects.sinks.push(*sink);
        }
        StmtKind::Upsert { table, .. } => {
            effects.tables_read.push(*table);
            effects.tables_written.push(*table);
            effects.tables_inserted.push(*table);
            effects.fallible = true;
        }
        StmtKind::Update { table, returning, set, .. } => {
            effects.fallible |= set.iter().any(|(_, value)| may_be_too_long(value));
            effects.tables_read.push(*table);
            effects.tables_written.push(*table);
            returning.iter().for_each(|(_, place)| of_place(place, effects));
        }
        StmtKind::Delete { table, .. } => {
            effects.tables_read.push(*table);
            effects.tables_written.push(*table);
        }
        StmtKind::Scan { table, .. } => effects.tables_read.push(*table),
        StmtKind::Add { var, .. } | StmtKind::Reset { var } => effects.vars_written.push(*var),
        StmtKind::Mirror { .. } => effects.mirrors = true,
        StmtKind::Delay { .. } => effects.delays = true,
        StmtKind::Push { .. } | StmtKind::Pop { .. } | StmtKind::Cut { .. } | StmtKind::Fragment { .. } => {
            effects.reshapes = true;
            // A missing layer, or an address of the other family.
            effects.fallible = true;
        }
        StmtKind::Verdict(verdict) => of_verdict(verdict, effects),
    }
}

/// Whether a value may be longer than the TEXT(n) or BYTES(n) that stores it.
fn may_be_too_long(value: &Expr) -> bool {
    value.ty.repr() == Repr::Bytes
}

/// Adds the write to an assignment target.
fn of_place(place: &AssignTarget, effects: &mut Effects) {
    match place {
        AssignTarget::Column(at) => effects.columns_written.push(*at),
        AssignTarget::Var(at) => effects.vars_written.push(*at),
        AssignTarget::Header(name) => effects.headers_written.push(name.clone()),
        AssignTarget::Trailer(name) => effects.trailers_written.push(name.clone()),
        AssignTarget::Call(_) | AssignTarget::Local(_) => {}
    }
}

fn of_query(query: &Query, effects: &mut Effects) {
    effects.tables_read.extend(query.joins.iter().map(|join| join.table));
}

/// Adds the effects of a verdict.
fn of_verdict(verdict: &Verdict, effects: &mut Effects) {
    match &verdict.kind {
        VerdictKind::Forward => {}
        VerdictKind::Drop => effects.drops = true,
        VerdictKind::Abort { with, .. } => {
            effects.aborts = true;
            for (place, _) in with {
                match place {
                    AnswerTarget::Header(name) => effects.headers_written.push(name.clone()),
                    AnswerTarget::Trailer(name) => effects.trailers_written.push(name.clone()),
                }
            }
        }
        VerdictKind::Reply { .. } | VerdictKind::ReplyPayload { .. } => effects.replies = true,
        VerdictKind::Redirect { .. } => effects.redirects = true,
        VerdictKind::Steer(_) => effects.steers = true,
    }
}

/// Adds the reads of one expression, without its operands.
fn of_expr(expr: &Expr, handler: &Handler, effects: &mut Effects) {
    match &expr.kind {
        ExprKind::Column(at) | ExprKind::List { list: at, .. } => effects.columns_read.push(*at),
        ExprKind::Var(at) => effects.vars_read.push(*at),
        ExprKind::RowColumn { row, .. } => effects.tables_read.push(handler.rows[row.0].table),
        ExprKind::Header(name) => effects.headers_read.push(name.clone()),
        ExprKind::Trailer(name) => effects.trailers_read.push(name.clone()),
        ExprKind::Meta(meta) => {
            effects.metas_read.push(*meta);
            effects.clock |= *meta == Meta::Elapsed;
        }
        ExprKind::Function { function: Function::Now, .. } => effects.clock = true,
        ExprKind::Function { function: Function::Rand(_), .. } => effects.random = true,
        ExprKind::CountRows(table) | ExprKind::Aggregate { table, .. } => effects.tables_read.push(*table),
        ExprKind::Lookup { find, .. } | ExprKind::Exists(find) => effects.tables_read.push(find.table),
        _ => {}
    }
}

/// Sorts all lists and removes duplicates.
fn sort(effects: &mut Effects) {
    fn tidy<T: Ord>(list: &mut Vec<T>) {
        list.sort();
        list.dedup();
    }
    tidy(&mut effects.columns_read);
    tidy(&mut effects.columns_written);
    tidy(&mut effects.headers_read);
    tidy(&mut effects.headers_written);
    tidy(&mut effects.trailers_read);
    tidy(&mut effects.trailers_written);
    tidy(&mut effects.metas_read);
    tidy(&mut effects.tables_read);
    tidy(&mut effects.tables_written);
    tidy(&mut effects.tables_inserted);
    tidy(&mut effects.vars_read);
    tidy(&mut effects.vars_written);
    tidy(&mut effects.sinks);
}
