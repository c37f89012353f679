//! Lowers the statements of handlers.

use weft_core::Type;
use weft_core::abi::Fault;
use weft_core::filter::KeyId;
use weft_core::wire::header_change::HeaderChange;
use weft_ir::ir::{BlockId, Journal, Op, Terminator, Ty, Value};
use weft_ir::program::InputLocation;
use weft_lang::hir::{
    AssignTarget, ColumnLocation, Direction, Expr, Query, RowId, Stmt, StmtKind, TableRef, Verdict,
};

use super::body::{BoundRow, Path};
use super::handler::Statements;
use super::logic::Val;
use super::oneof::Member;
use super::places;

impl<'n> Statements<'_, 'n> {
    /// Statements up to the first that ends the handler.
    pub(super) fn stmts(&mut self, stmts: &'n [Stmt]) {
        for stmt in stmts {
            if !self.body.b.is_open() {
                return;
            }
            self.body.set_line(stmt.span);
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'n Stmt) {
        match &stmt.kind {
            StmtKind::Let { local, value } => {
                let value = self.checked(value);
                self.body.locals[local.0] = Some(value);
            }
            StmtKind::Set { target, value } => {
                let value = self.body.expr(value);
                self.check_for(target, value);
                self.put(target, value);
            }
            StmtKind::Key { key, parts } => self.filter_key(*key, parts),
            StmtKind::If { arms, otherwise } => self.if_arms(arms, otherwise),
            StmtKind::Guard { query, set, otherwise } => self.guard(query, set, otherwise),
            StmtKind::Insert { table, query, rows } => {
                self.for_row_of(query.as_ref(), |stmts| {
                    rows.iter().for_each(|row| stmts.insert(*table, row))
                });
            }
            StmtKind::Emit { sink, query, rows } => {
                self.for_row_of(query.as_ref(), |stmts| rows.iter().for_each(|row| stmts.emit(*sink, row)));
            }
            StmtKind::Upsert { table, row, key, set } => self.upsert(*table, *row, key, set),
            StmtKind::Update { table, row, key, condition, set, returning, otherwise } => {
                let found = (*table, *row, key.as_slice(), condition.as_ref());
                self.update(found, set, returning, otherwise);
            }
            StmtKind::Delete { table, row, key, condition } => {
                self.delete((*table, *row, key, condition.as_ref()))
            }
            StmtKind::Scan { table, row, rows_max, filter, body } => {
                self.scan(*table, *row, *rows_max, filter.as_ref(), body);
            }
            StmtKind::Add { var, amount } => {
                let amount = self.checked(amount);
                self.body.b.act(Op::VarMerge(self.body.scope.vars[*var], amount.value, Journal::Yes));
            }
            StmtKind::Reset { var } => self.body.b.act(Op::VarReset(self.body.scope.vars[*var])),
            StmtKind::Push { headers } => self.push_headers(headers, stmt.span),
            StmtKind::Pop { layer, how } => self.pop(layer, *how, stmt.span),
            StmtKind::Cut { bytes } => self.shorten(HeaderChange::Cut, bytes),
            StmtKind::Fragment { bytes } => self.shorten(HeaderChange::Fragment, bytes),
            StmtKind::Mirror { to } => {
                self.check_front(stmt.span);
                let to = self.checked(to);
                let to = self.not_null(to);
                self.body.b.act(Op::Mirror(to));
            }
            StmtKind::Mark { fields } => {
                for (what, value) in fields {
                    let value = self.checked(value);
                    self.body.b.act(Op::Mark(*what, value.value));
                }
            }
            StmtKind::Delay { interval } => {
                let interval = self.checked(interval);
                self.body.b.act(Op::Delay(interval.value));
            }
            StmtKind::Verdict(verdict) => self.verdict(verdict),
        }
    }

    /// Passes a key to the next filter. The checker guarantees that no part of it is NULL.
    fn filter_key(&mut self, key: KeyId, parts: &[Expr]) {
        let parts = parts.iter().map(|part| self.checked(part).value).collect();
        let value = self.body.b.get(Op::Key(parts), Ty::Bytes);
        let program = &mut self.body.lowering.program;
        let place = InputLocation::Key(key.0);
        let id = places::input(program, Direction::Request, place, Type::Bytes(None), false, true);
        self.body.b.act(Op::SetInput(id, value));
    }

    /// A value after the test for its error.
    pub(super) fn checked(&mut self, expr: &Expr) -> Val {
        let value = self.body.expr(expr);
        self.fail_if(value.fault);
        Val { fault: None, ..value }
    }

    /// A value that must not be NULL.
    pub(super) fn not_null(&mut self, value: Val) -> Value {
        let fault = value.null.and_then(|null| self.body.b.raise(null, Fault::UnexpectedNull));
        self.fail_if(fault);
        value.value
    }

    // ---- places ----

    /// Fails on the error of a value, or if it does not fit.
    pub(super) fn check_for(&mut self, target: &AssignTarget, value: Val) {
        let fault = match target {
            AssignTarget::Call(cell) => {
                self.body.first_fault_or_too_long(value, self.body.scope.element.call[*cell].ty)
            }
            _ => value.fault,
        };
        self.fail_if(fault);
    }

    /// Stores a checked value in a place.
    pub(super) fn put(&mut self, target: &AssignTarget, value: Val) {
        match target {
            AssignTarget::Column(column) => {
                let (id, clears) = self.body.written_column(*column);
                let null = value.null.filter(|_| clears);
                self.set_or(
                    null,
                    |stmts| {
                        stmts.body.b.act(Op::SetInput(id, value.value));
                        stmts.displace(*column);
                    },
                    |stmts| {
                        stmts.body.b.act(Op::ClearInput(id));
                    },
                );
            }
            AssignTarget::Header(name) => self.put_header(InputLocation::Header(name.clone()), value),
            AssignTarget::Trailer(name) => self.put_header(InputLocation::Trailer(name.clone()), value),
            AssignTarget::Call(cell) => {
                self.body.b.act(Op::CallSet(self.body.scope.call[*cell], value.value, Journal::Yes))
            }
            AssignTarget::Var(var) => {
                self.body.lock_for_var();
                self.body.b.act(Op::VarSet(self.body.scope.vars[*var], value.value, Journal::Yes));
            }
            AssignTarget::Local(local) => self.body.locals[local.0] = Some(Val { fault: None, ..value }),
        }
    }

    /// Clears the members of a oneof that this column's value has displaced. The messages around it exist.
    fn displace(&mut self, column: usize) {
        let direction = self.body.scope.element.columns[column].direction;
        let ColumnLocation::Body(path) = &self.body.scope.instance.bindings[column].place else { return };
        let (displaced, around) = self.body.lowering.displaced.by(direction, path);
        for Member { place, ty, nullable } in displaced {
            let id = places::input(&mut self.body.lowering.program, direction, place, ty, nullable, true);
            self.body.b.act(Op::ClearInput(id));
        }
        for path in around {
            let place = InputLocation::Present(path);
            let id =
                places::input(&mut self.body.lowering.program, direction, place, Type::Bool, false, true);
            let there = self.body.b.bool(true);
            self.body.b.act(Op::SetInput(id, there));
        }
    }

    fn put_header(&mut self, place: InputLocation, value: Val) {
        let id = self.body.written_place(place);
        self.set_or(
            value.null,
            |stmts| stmts.body.b.act(Op::SetInput(id, value.value)),
            |stmts| {
                stmts.body.b.act(Op::ClearInput(id));
            },
        );
    }

    /// Does one thing for a value, and another for NULL.
    pub(super) fn set_or(
        &mut self,
        null: Option<Value>,
        set: impl FnOnce(&mut Self),
        clear: impl FnOnce(&mut Self),
    ) {
        let Some(null) = null else { return set(self) };
        match self.body.b.known_bool(null) {
            Some(true) => return clear(self),
            Some(false) => return set(self),
            None => {}
        }
        let (clears, sets, go_on) = (self.body.b.block(), self.body.b.block(), self.body.b.block());
        self.body.b.branch(null, clears, sets);
        self.body.b.switch(clears);
        clear(self);
        self.body.b.jump(go_on, Vec::new());
        self.body.b.switch(sets);
        set(self);
        self.body.b.jump(go_on, Vec::new());
        self.body.b.switch(go_on);
    }

    // ---- control ----

    /// Lowers the arms of an IF. Without recursion, whatever the number of arms: all arms join in one block.
    fn if_arms(&mut self, arms: &'n [(Expr, Vec<Stmt>)], otherwise: &'n [Stmt]) {
        let mut meeting = None;
        let (mut joined, mut unchecked) = (None, false);
        for (condition, body) in arms {
            let holds = self.truth(condition);
            let (yes_block, no_block) = (self.body.b.block(), self.body.b.block());
            let go_on = *meeting.get_or_insert_with(|| self.body.b.block());
            let before = self.body.path.clone();
            self.body.b.branch(holds, yes_block, no_block);
            self.body.b.switch(yes_block);
            self.stmts(body);
            unchecked |= self.join_path_at(go_on, &mut joined);
            self.body.path = before;
            self.body.b.switch(no_block);
        }
        self.stmts(otherwise);
        let Some(go_on) = meeting else { return };
        unchecked |= self.join_path_at(go_on, &mut joined);
        let Some(path) = joined else { return };
        self.body.path = path;
        self.body.b.switch(go_on);
        if unchecked {
            self.body.b.set_scratch_used();
        }
    }

    /// Ends a path at a join; returns whether it used the scratch since the last check.
    pub(super) fn join_path_at(&mut self, go_on: BlockId, joined: &mut Option<Path>) -> bool {
        let is_open = self.body.b.is_open();
        if is_open {
            self.body.join_path(joined, self.body.path.clone());
            self.body.b.jump(go_on, Vec::new());
        }
        self.body.b.take_scratch_used() && is_open
    }

    fn guard(&mut self, query: &'n Query, set: &'n [(AssignTarget, Expr)], otherwise: &'n Verdict) {
        let before = self.body.path.clone();
        let no = self.query(query);
        let values: Vec<Val> = set.iter().map(|(_, value)| self.body.expr(value)).collect();
        for ((place, _), value) in set.iter().zip(&values) {
            self.check_for(place, *value);
        }
        for ((place, _), value) in set.iter().zip(values) {
            self.put(place, value);
        }
        // The path without a row keeps the facts from before the query, without its rows.
        let matched = (
            self.body.b.here(),
            core::mem::replace(&mut self.body.path, before),
            self.body.b.take_scratch_used(),
        );
        let rows = self.hide_rows(query);
        self.body.b.switch(no);
        self.verdict(otherwise);
        self.check_scratch();
        self.body.b.end(Terminator::Forward);
        for (row, bound) in rows {
            self.body.rows[row.0] = bound;
        }
        self.body.path = matched.1;
        if let Some(here) = matched.0 {
            self.body.b.switch(here);
        }
        if matched.2 {
            self.body.b.set_scratch_used();
        }
    }

    /// Hides the rows of a query where it has none.
    fn hide_rows(&mut self, query: &Query) -> Vec<(RowId, Option<BoundRow>)> {
        query.joins.iter().map(|join| (join.row, self.body.rows[join.row.0].take())).collect()
    }

    /// Does something if the query has a row.
    fn for_row_of(&mut self, query: Option<&'n Query>, act: impl FnOnce(&mut Self)) {
        let Some(query) = query else { return act(self) };
        let before = self.body.path.clone();
        let no = self.query(query);
        act(self);
        let go_on = self.body.b.block();
        let mut joined = Some(before);
        let unchecked = self.join_path_at(go_on, &mut joined);
        self.body.b.switch(no);
        self.body.b.jump(go_on, Vec::new());
        self.body.path = joined.unwrap_or_default();
        self.body.b.switch(go_on);
        if unchecked {
            self.body.b.set_scratch_used();
        }
    }

    /// Sends a row to a sink.
    fn emit(&mut self, sink: usize, row: &[Expr]) {
        let values: Vec<Val> = row.iter().map(|value| self.body.expr(value)).collect();
        let (_, fault) = self.body.b.strict(&values);
        self.fail_if(fault);
        let cells = values.iter().map(|value| (value.value, value.null)).collect();
        self.body.b.act(Op::Emit(self.body.scope.sinks[sink], cells));
    }

    /// Lowers SCAN: runs the statements for each row of the table that satisfies the filter, up to `rows_max` rows.
    fn scan(
        &mut self,
        table: TableRef,
        row: RowId,
        rows_max: u64,
        filter: Option<&'n Expr>,
        stmts: &'n [Stmt],
    ) {
        // Paths of the body that end the handler leave the scan.
        self.check_scratch();
        let rows = self.body.begin_rows(table, row, rows_max, &[]);
        let go_on = self.body.b.block();
        if let Some(filter) = filter {
            let holds = self.truth(filter);
            self.body.go_on_if(holds, go_on);
        }
        self.check_scratch();
        self.stmts(stmts);
        self.check_scratch();
        self.body.b.jump(go_on, Vec::new());
        self.body.b.switch(go_on);
        self.body.end_rows(rows, Vec::new());
    }
}
