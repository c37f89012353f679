//! Collects the mentions of a handler: columns of rows, keys of tables, cells that it sets.

use std::collections::BTreeSet;

use weft_lang::hir::{
    AssignTarget, Expr, ExprKind, Find, Handler, Query, RowId, Stmt, StmtKind, TableRef, Verdict, VerdictKind,
};

/// The parts of tables and rows that a handler mentions.
#[derive(Debug, Default)]
pub(super) struct Mentions<'n> {
    /// Columns of rows that are read.
    pub(super) columns: BTreeSet<(RowId, usize)>,
    /// Each lookup by key.
    pub(super) keys: Vec<(TableRef, &'n [Expr])>,
    /// Tables that are scanned.
    pub(super) scans: BTreeSet<TableRef>,
    /// Tables whose rows are counted.
    pub(super) counts: BTreeSet<TableRef>,
    /// Cells of the call's row that are set.
    pub(super) call_set: BTreeSet<usize>,
}

impl<'n> Mentions<'n> {
    /// Collects the mentions of a handler. `n_keys` returns the number of key columns of a table.
    pub(super) fn of(handler: &'n Handler, n_keys: &dyn Fn(TableRef) -> usize) -> Self {
        let mut mentions = Self::default();
        mentions.stmts(&handler.body, n_keys);
        mentions
    }

    /// The columns of a row that are read.
    pub(super) fn columns_of(&self, row: RowId) -> Vec<usize> {
        self.columns.iter().filter(|(of, _)| *of == row).map(|(_, column)| *column).collect()
    }

    /// Collects the mentions of statements.
    fn stmts(&mut self, stmts: &'n [Stmt], n_keys: &dyn Fn(TableRef) -> usize) {
        for stmt in stmts {
            self.stmt(stmt, n_keys);
        }
    }

    /// Collects the mentions of a statement and of the statements in it.
    fn stmt(&mut self, stmt: &'n Stmt, n_keys: &dyn Fn(TableRef) -> usize) {
        match &stmt.kind {
            StmtKind::Let { value, .. } => self.expr(value),
            StmtKind::Set { target, value } => {
                self.place(target);
                self.expr(value);
            }
            StmtKind::Key { parts, .. } => self.exprs(parts),
            StmtKind::If { arms, otherwise } => {
                for (condition, body) in arms {
                    self.expr(condition);
                    self.stmts(body, n_keys);
                }
                self.stmts(otherwise, n_keys);
            }
            StmtKind::Guard { query, set, otherwise } => {
                self.query(query);
                for (place, value) in set {
                    self.place(place);
                    self.expr(value);
                }
                self.verdict(otherwise);
            }
            StmtKind::Insert { table, query, rows } => {
                query.iter().for_each(|query| self.query(query));
                for row in rows {
                    self.keys.push((*table, &row[..n_keys(*table).min(row.len())]));
                    self.exprs(row);
                }
            }
            StmtKind::Emit { query, rows, .. } => {
                query.iter().for_each(|query| self.query(query));
                rows.iter().for_each(|row| self.exprs(row));
            }
            StmtKind::Upsert { table, key, set, .. } => {
                self.key(*table, key);
                set.iter().for_each(|(_, value)| self.expr(value));
            }
            StmtKind::Update { table, row, key, condition, set, returning, otherwise } => {
                self.key(*table, key);
                condition.iter().for_each(|condition| self.expr(condition));
                set.iter().for_each(|(_, value)| self.expr(value));
                for (column, place) in returning {
                    self.columns.insert((*row, *column));
                    self.place(place);
                }
                self.stmts(otherwise, n_keys);
            }
            StmtKind::Delete { table, key, condition, .. } => {
                self.key(*table, key);
                condition.iter().for_each(|condition| self.expr(condition));
            }
            StmtKind::Scan { table, filter, body, .. } => {
                self.scans.insert(*table);
                filter.iter().for_each(|filter| self.expr(filter));
                self.stmts(body, n_keys);
            }
            StmtKind::Add { amount: value, .. }
            | StmtKind::Mirror { to: value }
            | StmtKind::Delay { interval: value } => self.expr(value),
            StmtKind::Mark { fields } => fields.iter().for_each(|(_, value)| self.expr(value)),
            StmtKind::Push { headers } => {
                headers.iter().flat_map(|header| &header.fields).for_each(|(_, value)| self.expr(value));
            }
            StmtKind::Cut { bytes } | StmtKind::Fragment { bytes } => self.expr(bytes),
            StmtKind::Reset { .. } | StmtKind::Pop { .. } => {}
            StmtKind::Verdict(verdict) => self.verdict(verdict),
        }
    }

    /// Collects the mentions of the joins and the filter of a query.
    fn query(&mut self, query: &'n Query) {
        for join in &query.joins {
            match &join.first {
                Some(_) => self.exprs(&join.key),
                None => self.key(join.table, &join.key),
            }
            join.condition.iter().for_each(|condition| self.expr(condition));
        }
        query.filter.iter().for_each(|filter| self.expr(filter));
    }

    /// Collects the mentions of a verdict's operands.
    fn verdict(&mut self, verdict: &'n Verdict) {
        match &verdict.kind {
            VerdictKind::Forward | VerdictKind::Drop | VerdictKind::Steer(_) => {}
            VerdictKind::Abort { status, text, with } => {
                self.expr(status);
                text.iter().for_each(|text| self.expr(text));
                with.iter().for_each(|(_, value)| self.expr(value));
            }
            VerdictKind::Reply { fields } => fields.iter().for_each(|(_, value)| self.expr(value)),
            VerdictKind::ReplyPayload { bytes } => self.expr(bytes),
            VerdictKind::Redirect { to } => self.expr(to),
        }
    }

    /// Collects the call cell that an assignment sets.
    fn place(&mut self, place: &AssignTarget) {
        if let AssignTarget::Call(cell) = place {
            self.call_set.insert(*cell);
        }
    }

    fn key(&mut self, table: TableRef, key: &'n [Expr]) {
        self.keys.push((table, key));
        self.exprs(key);
    }

    fn find(&mut self, find: &'n Find) {
        self.key(find.table, &find.key);
        find.condition.iter().for_each(|condition| self.expr(condition));
    }

    fn exprs(&mut self, exprs: &'n [Expr]) {
        exprs.iter().for_each(|expr| self.expr(expr));
    }

    /// Collects the mentions of an expression. The value of EXISTS is not read.
    fn expr(&mut self, expr: &'n Expr) {
        match &expr.kind {
            ExprKind::RowColumn { row, column } => {
                self.columns.insert((*row, *column));
            }
            ExprKind::CountRows(table) => {
                self.counts.insert(*table);
            }
            ExprKind::Lookup { find, .. } | ExprKind::Exists(find) => self.find(find),
            ExprKind::Aggregate { table, .. } => {
                self.scans.insert(*table);
            }
            _ => {}
        }
        match &expr.kind {
            ExprKind::Exists(_) => {}
            ExprKind::Lookup { value, .. } => self.expr(value),
            _ => expr.children().into_iter().for_each(|part| self.expr(part)),
        }
    }
}
