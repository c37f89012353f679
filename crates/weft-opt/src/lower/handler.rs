//! Lowers one handler to one function: its statements, its queries and its error path.

use std::collections::BTreeMap;

use weft_core::Type;
use weft_core::abi::Fault;
use weft_core::matching::MatchSpec;
use weft_core::wire::FieldRef;
use weft_ir::ir::{BlockId, Function, Journal, MatchId, Op, TableId, Terminator, Ty, Value};
use weft_ir::program::{InputLocation, MatchDecl};
use weft_lang::hir::{self, Direction, Handler, HandlerKind, Join, Layer, Query, RowId, TableRef};

use super::body::{Body, Path};
use super::locks::Lock;
use super::logic::{RaisedFault, Val};
use super::walk::Mentions;
use super::{Lowering, Scope, places};

/// The lowering of the statements of a handler.
pub(super) struct Statements<'b, 'n> {
    pub(super) body: Body<'b, 'n>,
    errors: Errors,
}

/// The target of errors in a handler.
#[derive(Debug)]
enum Errors {
    /// [`Terminator::Fail`], one block for each source line.
    Fail(BTreeMap<u32, (BlockId, Value)>),
    /// The head of ON ERROR, if a path leads to it.
    Handle(Option<(BlockId, Value)>),
}

impl<'b, 'n> Statements<'b, 'n> {
    /// Starts the body of a handler. Its errors go to ON ERROR if the element has one for this kind of handler.
    fn new(lowering: &'b mut Lowering<'n>, scope: &'b Scope<'n>, kind: HandlerKind, lock: &'b Lock) -> Self {
        let kind_name = match kind {
            HandlerKind::Open => "open",
            HandlerKind::Request => "request",
            HandlerKind::Response => "response",
            HandlerKind::Close => "close",
            HandlerKind::Error => "error",
            HandlerKind::Every => "every",
            HandlerKind::Timeout => "expiry",
            HandlerKind::Evict => "eviction",
        };
        let errors = match scope.on_error(kind) {
            Some(_) => Errors::Handle(None),
            None => Errors::Fail(BTreeMap::new()),
        };
        let name = format!("{}.{kind_name}", scope.instance.name);
        Self { body: Body::new(lowering, scope, (kind, name), lock), errors }
    }

    /// Lowers a handler; OPEN of an element with a CALL row may have no text of its own. None if it is too long.
    pub(super) fn lower(
        lowering: &'b mut Lowering<'n>,
        scope: &'b Scope<'n>,
        kind: HandlerKind,
        handler: Option<&'n Handler>,
        lock: &'b Lock,
    ) -> Option<Function> {
        let mut stmts = Self::new(lowering, scope, kind, lock);
        if kind == HandlerKind::Open {
            stmts.start_call();
        }
        if kind == HandlerKind::Request {
            stmts.skip_other_routes();
        }
        stmts.skip_other_frames();
        if let Some(handler) = handler {
            stmts.handler(handler);
            if stmts.body.b.is_open() {
                stmts.check_front(handler.span);
            }
        }
        stmts.forward();
        if let (Errors::Handle(Some((head, fault))), Some(handler)) = (&stmts.errors, scope.on_error(kind)) {
            let (head, fault) = (*head, *fault);
            stmts.on_error(head, fault, handler);
        }
        stmts.body.b.finish()
    }

    /// Lowers the statements of a handler, after its locals and rows are set up.
    fn handler(&mut self, handler: &'n Handler) {
        let (lowering, scope) = (&*self.body.lowering, self.body.scope);
        let n_keys = |table: TableRef| lowering.table_decl(scope, table).n_keys;
        self.body.mentions = Mentions::of(handler, &n_keys);
        self.body.locals = vec![None; handler.locals.len()];
        self.body.rows = vec![None; handler.rows.len()];
        if self.body.kind.is_departure() {
            self.bind_removed_row(handler);
        }
        self.stmts(&handler.body);
    }

    /// Binds the columns of the removed row, which is the first of the handler's rows.
    fn bind_removed_row(&mut self, handler: &'n Handler) {
        self.body.set_line(handler.span);
        let table = handler.rows[RowId::OLD.0].table;
        let (id, _) = self.body.table(table);
        let row = self.body.b.get(Op::ExpiredRow(id), Ty::Row);
        self.body.load(RowId::OLD, table, row, false);
    }

    /// Lets frames without the element's layer pass, uncounted.
    fn skip_other_frames(&mut self) {
        let (Layer::Packet(Some(layer)), HandlerKind::Request) =
            (&self.body.scope.element.layer, self.body.kind)
        else {
            return;
        };
        let place = InputLocation::Frame(FieldRef::presence(layer.clone()));
        let program = &mut self.body.lowering.program;
        let input = places::input(program, Direction::Request, place, Type::Bool, true, false);
        let is_there = self.body.b.get(Op::InputPresent(input), Ty::Bool);
        self.skip_unless(is_there);
    }

    /// Lets frames for which a flag is false pass, uncounted.
    pub(super) fn skip_unless(&mut self, flag: Value) {
        let [own, other] = [(); 2].map(|()| self.body.b.block());
        self.body.b.branch(flag, own, other);
        self.body.b.switch(other);
        self.body.b.end(Terminator::Skip);
        self.body.b.switch(own);
    }

    /// Initializes the call's row. The values stay even if the handler fails, because later handlers read them.
    fn start_call(&mut self) {
        for (cell, id) in self.body.scope.element.call.iter().zip(&self.body.scope.call) {
            self.body.set_line(cell.span);
            let value = match &cell.start {
                Some(start) => self.body.expr(start),
                None => Val::plain(self.body.b.zero(Ty::of(cell.ty))),
            };
            let fault = self.body.first_fault_or_too_long(value, cell.ty);
            self.fail_if(fault);
            self.body.b.act(Op::CallSet(*id, value.value, Journal::No));
        }
    }

    /// Lowers ON ERROR at the block `head`: rolls back the handler's changes, and runs the statements.
    fn on_error(&mut self, head: BlockId, fault: Value, handler: &'n Handler) {
        self.errors = Errors::Fail(BTreeMap::new());
        self.body.path = Path::default();
        self.body.fault = Some(fault);
        self.body.b.switch(head);
        self.body.set_line(handler.span);
        self.body.b.act(Op::RollBack);
        self.body.b.take_scratch_used();
        self.handler(handler);
        self.forward();
    }

    fn forward(&mut self) {
        self.check_scratch();
        self.body.b.end(Terminator::Forward);
    }

    // ---- errors ----

    /// Jumps to the element's error path if an error was raised, or the scratch was full.
    pub(super) fn fail_if(&mut self, fault: Option<RaisedFault>) {
        let full = self.body.b.take_scratch_used().then(|| self.body.b.get(Op::ScratchFull, Ty::Bool));
        let full = full.and_then(|full| self.body.b.raise(full, Fault::TooLong));
        let Some(RaisedFault { is, code }) = self.body.b.first(fault, full) else { return };
        let (target, args) = self.error_target(code);
        let go_on = self.body.b.block();
        self.body.b.branch_with(is, (target, args), (go_on, Vec::new()));
        self.body.b.switch(go_on);
    }

    /// Tests whether everything since the last check fitted in the scratch.
    pub(super) fn check_scratch(&mut self) {
        if self.body.b.is_open() {
            self.fail_if(None);
        }
    }

    /// Returns the block for errors at the current line, with the fault code as its argument.
    fn error_target(&mut self, code: Value) -> (BlockId, Vec<Value>) {
        let line = self.body.b.line();
        let target = match &self.errors {
            Errors::Fail(blocks) => blocks.get(&line).copied(),
            Errors::Handle(block) => *block,
        };
        let (block, _) = target.unwrap_or_else(|| self.new_error_target(line));
        (block, vec![code])
    }

    /// Creates the block for errors: ON ERROR's head, or a block that fails with this line.
    fn new_error_target(&mut self, line: u32) -> (BlockId, Value) {
        let block = self.body.b.block();
        let fault = self.body.b.param(block, Ty::Int);
        match &mut self.errors {
            Errors::Handle(target) => *target = Some((block, fault)),
            Errors::Fail(blocks) => {
                blocks.insert(line, (block, fault));
                let here = self.body.b.here();
                self.body.b.switch(block);
                self.body.b.end(Terminator::Fail { fault, line });
                if let Some(here) = here {
                    self.body.b.switch(here);
                }
            }
        }
        (block, fault)
    }

    /// The condition of an IF, a WHERE or an arm: NULL counts as not true, and an error fails.
    pub(super) fn truth(&mut self, condition: &hir::Expr) -> Value {
        let value = self.body.expr(condition);
        self.fail_if(value.fault);
        self.body.b.is_true(value)
    }

    /// The joins and the filter of a query. Afterwards the query has its row; otherwise control went to the returned
    /// block.
    pub(super) fn query(&mut self, query: &Query) -> BlockId {
        let no = self.body.b.block();
        for join in &query.joins {
            self.join(join, no);
        }
        if let Some(filter) = &query.filter {
            let holds = self.truth(filter);
            self.body.go_on_if(holds, no);
        }
        no
    }

    /// Lowers one join of a query. Control goes to `no` if an inner join finds no row.
    fn join(&mut self, join: &Join, no: BlockId) {
        self.body.set_line(join.span);
        let row = match &join.first {
            Some(spec) => self.first(join, spec),
            None => {
                let (key, fault) = self.body.key(&join.key);
                self.fail_if(fault);
                self.body.find(join.table, &join.key, key)
            }
        };
        let (id, _) = self.body.table(join.table);
        if join.left {
            return self.left_join(join, id, row);
        }
        let there = self.body.b.is_row(row);
        self.body.go_on_if(there, no);
        self.body.touch_read(id, row);
        self.body.load(join.row, join.table, row, false);
        if let Some(condition) = &join.condition {
            let holds = self.truth(condition);
            self.body.go_on_if(holds, no);
        }
        self.check_scratch();
    }

    /// Emits JOIN FIRST: returns the first matching row.
    fn first(&mut self, join: &Join, spec: &MatchSpec) -> Value {
        let keys: Vec<Val> = join.key.iter().map(|key| self.body.expr(key)).collect();
        let (_, fault) = self.body.b.strict(&keys);
        self.fail_if(fault);
        let (table, _) = self.body.table(join.table);
        let decl = MatchDecl { table, spec: spec.clone() };
        let id = MatchId(places::index_of(&mut self.body.lowering.program.matches, decl));
        let parts = keys.iter().zip(&spec.parts);
        let keys = parts.map(|(key, part)| (key.value, key.null.filter(|_| part.nullable))).collect();
        self.body.b.get(Op::Match(table, id, keys), Ty::Row)
    }

    /// Lowers a LEFT JOIN. Without a row, or with one that fails the condition, the columns are NULL.
    fn left_join(&mut self, join: &Join, table: TableId, row: Value) {
        self.body.touch_read(table, row);
        let Some(condition) = &join.condition else {
            self.body.load(join.row, join.table, row, true);
            return self.check_scratch();
        };
        self.body.load(join.row, join.table, row, false);
        let there = self.body.b.is_row(row);
        let condition = self.body.expr(condition);
        let fault = self.body.b.fault_when(condition.fault, there);
        self.fail_if(fault);
        let holds = self.body.b.is_true(condition);
        let none = self.body.b.no_row();
        let row = self.body.b.select(holds, row, none);
        self.body.load(join.row, join.table, row, true);
        self.check_scratch();
    }
}

/// Lowers the OPEN of a route's pseudo element; None if it is too long.
pub(super) fn condition<'n>(
    lowering: &mut Lowering<'n>,
    scope: &Scope<'n>,
    route: &hir::Route,
) -> Option<Function> {
    let mut stmts = Statements::new(lowering, scope, HandlerKind::Open, &Lock::Free);
    if let Some(when) = &route.when {
        stmts.body.set_line(when.span);
        let holds = stmts.truth(when);
        let (yes, no) = (stmts.body.b.block(), stmts.body.b.block());
        stmts.body.b.branch(holds, yes, no);
        stmts.body.b.switch(no);
        let line = stmts.body.b.line();
        stmts.body.b.end(Terminator::Drop { line });
        stmts.body.b.switch(yes);
    }
    stmts.forward();
    stmts.body.b.finish()
}
