//! Lowers one handler to one function: its body, its error path, and the facts known on each path.

use std::collections::BTreeMap;

use weft_core::Type;
use weft_core::abi::Fault;
use weft_core::wire::FieldRef;
use weft_ir::ir::{BlockId, Function, Journal, Op, TableId, Terminator, Ty, Value};
use weft_ir::program::InputLocation;
use weft_lang::hir::{self, Direction, Handler, HandlerKind, Layer, LocalId, RowId, TableRef};
use weft_lang::source::Span;

use super::build::Builder;
use super::list::Item;
use super::locks::{Lock, key_text};
use super::logic::{RaisedFault, Val};
use super::reshape::FrameStart;
use super::walk::Mentions;
use super::{Lowering, Scope, places};

/// The lowering of a handler.
pub(super) struct Body<'b, 'n> {
    pub(super) lowering: &'b mut Lowering<'n>,
    pub(super) scope: &'b Scope<'n>,
    pub(super) b: Builder,
    /// The handler; ON ERROR is part of the function that it replaces.
    pub(super) kind: HandlerKind,
    pub(super) locals: Vec<Option<Val>>,
    pub(super) rows: Vec<Option<BoundRow>>,
    pub(super) mentions: Mentions<'n>,
    /// The code of the fault, in ON ERROR.
    pub(super) fault: Option<Value>,
    pub(super) path: Path,
    /// The list element of the current expression.
    pub(super) item: Option<Item>,
    lock: &'b Lock,
    errors: Errors,
}

/// A row that was found, with the values of its columns at that time.
#[derive(Clone, Debug, Default)]
pub(super) struct BoundRow {
    pub(super) columns: BTreeMap<usize, Val>,
}

/// Facts known on the current path.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    locked: bool,
    /// Rows that were found by keys which have not changed since.
    found: BTreeMap<(TableId, String), Value>,
    /// The protocols that the frame may begin with.
    pub(super) front: FrameStart,
}

/// The target of errors in a handler.
#[derive(Debug)]
enum Errors {
    /// [`Terminator::Fail`], one block for each source line.
    Fail(BTreeMap<u32, (BlockId, Value)>),
    /// The head of ON ERROR, if a path leads to it.
    Handle(Option<(BlockId, Value)>),
}

impl<'b, 'n> Body<'b, 'n> {
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
        Self {
            b: Builder::new(format!("{}.{kind_name}", scope.instance.name)),
            lowering,
            scope,
            kind,
            locals: Vec::new(),
            rows: Vec::new(),
            mentions: Mentions::default(),
            fault: None,
            path: Path::default(),
            item: None,
            lock,
            errors,
        }
    }

    /// Lowers a handler; OPEN of an element with a CALL row may have no text of its own. None if it is too long.
    pub(super) fn lower(
        lowering: &'b mut Lowering<'n>,
        scope: &'b Scope<'n>,
        kind: HandlerKind,
        handler: Option<&'n Handler>,
        lock: &'b Lock,
    ) -> Option<Function> {
        let mut body = Self::new(lowering, scope, kind, lock);
        if kind == HandlerKind::Open {
            body.start_call();
        }
        if kind == HandlerKind::Request {
            body.skip_other_routes();
        }
        body.skip_other_frames();
        if let Some(handler) = handler {
            body.handler(handler);
            if body.b.is_open() {
                body.check_front(handler.span);
            }
        }
        body.forward();
        if let (Errors::Handle(Some((head, fault))), Some(handler)) = (&body.errors, scope.on_error(kind)) {
            let (head, fault) = (*head, *fault);
            body.on_error(head, fault, handler);
        }
        body.b.finish()
    }

    /// Lowers the statements of a handler, after its locals and rows are set up.
    fn handler(&mut self, handler: &'n Handler) {
        let (lowering, scope) = (&*self.lowering, self.scope);
        let n_keys = |table: TableRef| lowering.table_decl(scope, table).n_keys;
        self.mentions = Mentions::of(handler, &n_keys);
        self.locals = vec![None; handler.locals.len()];
        self.rows = vec![None; handler.rows.len()];
        if self.kind.is_departure() {
            self.bind_removed_row(handler);
        }
        self.stmts(&handler.body);
    }

    /// Binds the columns of the removed row, which is the first of the handler's rows.
    fn bind_removed_row(&mut self, handler: &'n Handler) {
        self.set_line(handler.span);
        let table = handler.rows[RowId::OLD.0].table;
        let (id, _) = self.table(table);
        let row = self.b.get(Op::ExpiredRow(id), Ty::Row);
        self.load(RowId::OLD, table, row, false);
    }

    /// Lets frames without the element's layer pass, uncounted.
    fn skip_other_frames(&mut self) {
        let (Layer::Packet(Some(layer)), HandlerKind::Request) = (&self.scope.element.layer, self.kind)
        else {
            return;
        };
        let place = InputLocation::Frame(FieldRef::presence(layer.clone()));
        let program = &mut self.lowering.program;
        let input = places::input(program, Direction::Request, place, Type::Bool, true, false);
        let is_there = self.b.get(Op::InputPresent(input), Ty::Bool);
        let [own, other] = [(); 2].map(|()| self.b.block());
        self.b.branch(is_there, own, other);
        self.b.switch(other);
        self.b.end(Terminator::Skip);
        self.b.switch(own);
    }

    /// Initializes the call's row. The values stay even if the handler fails, because later handlers read them.
    fn start_call(&mut self) {
        for (cell, id) in self.scope.element.call.iter().zip(&self.scope.call) {
            self.set_line(cell.span);
            let value = match &cell.start {
                Some(start) => self.expr(start),
                None => Val::plain(self.b.zero(Ty::of(cell.ty))),
            };
            let fault = self.first_fault_or_too_long(value, cell.ty);
            self.fail_if(fault);
            self.b.act(Op::CallSet(*id, value.value, Journal::No));
        }
    }

    /// Lowers ON ERROR at the block `head`: rolls back the handler's changes, and runs the statements.
    fn on_error(&mut self, head: BlockId, fault: Value, handler: &'n Handler) {
        self.errors = Errors::Fail(BTreeMap::new());
        self.path = Path::default();
        self.fault = Some(fault);
        self.b.switch(head);
        self.set_line(handler.span);
        self.b.act(Op::RollBack);
        self.b.take_scratch_used();
        self.handler(handler);
        self.forward();
    }

    fn forward(&mut self) {
        self.check_scratch();
        self.b.end(Terminator::Forward);
    }

    // ---- where we are ----

    pub(super) fn set_line(&mut self, span: Span) {
        let line = self.lowering.line(span);
        self.b.set_line(line);
    }

    /// The direction of the handler's inputs.
    pub(super) fn direction(&self) -> Direction {
        match self.kind {
            HandlerKind::Response | HandlerKind::Close => Direction::Response,
            _ => Direction::Request,
        }
    }

    pub(super) fn local(&self, local: LocalId) -> Option<Val> {
        self.locals[local.0]
    }

    pub(super) fn bind(&mut self, row: RowId, bound: BoundRow) {
        self.rows[row.0] = Some(bound);
    }

    pub(super) fn table(&self, table: TableRef) -> (TableId, &'n hir::Table) {
        (self.lowering.table_id(self.scope, table), self.lowering.table_decl(self.scope, table))
    }

    // ---- ways apart and together ----

    /// Joins paths: keeps the facts that hold on all of them.
    pub(super) fn join_paths(&mut self, paths: impl IntoIterator<Item = Path>) {
        let mut joined = None;
        for path in paths {
            self.join_path(&mut joined, path);
        }
        self.path = joined.unwrap_or_else(|| core::mem::take(&mut self.path));
    }

    /// Joins one more path; `joined` has the facts of those before.
    pub(super) fn join_path(&self, joined: &mut Option<Path>, mut path: Path) {
        if let Some(before) = joined.take() {
            path.locked &= before.locked;
            if path.front != before.front {
                let mut all = path.front.unwrap_or_else(|| self.lowering.roots.inside.clone());
                let others = before.front.unwrap_or_else(|| self.lowering.roots.inside.clone());
                all.extend(others.into_iter().filter(|id| !all.contains(id)).collect::<Vec<_>>());
                path.front = Some(all);
            }
            path.found.retain(|key, row| before.found.get(key) == Some(row));
        }
        *joined = Some(path);
    }

    /// Forgets the rows of a table, because one is inserted or removed.
    pub(super) fn forget_rows(&mut self, table: TableId) {
        self.path.found.retain(|(of, _), _| *of != table);
    }

    pub(super) fn forget_all_rows(&mut self) {
        self.path.found.clear();
    }

    // ---- locks ----

    /// Takes the handler's locks before the first access to what they guard.
    pub(super) fn lock_for(&mut self, table: TableId, key: Option<Value>) {
        match self.lock {
            Lock::Stripe(of) if *of == table && !self.path.locked => {
                self.path.locked = true;
                self.b.act(Op::Lock(table, key));
            }
            Lock::Whole { .. } if self.needs_lock(table) => self.lock_whole(),
            _ => {}
        }
    }

    fn needs_lock(&self, table: TableId) -> bool {
        use weft_ir::program::Realisation::{Locked, Striped};
        matches!(self.lowering.program.tables[usize::from(table.0)].realisation, Striped | Locked)
    }

    /// Takes the handler's locks before the first access to a variable.
    pub(super) fn lock_for_var(&mut self) {
        if matches!(self.lock, Lock::Whole { .. }) {
            self.lock_whole();
        }
    }

    /// Takes all locks of the handler, unless they are already held on this path.
    fn lock_whole(&mut self) {
        let Lock::Whole { tables, vars } = self.lock else { return };
        if core::mem::replace(&mut self.path.locked, true) {
            return;
        }
        for table in tables {
            self.b.act(Op::Lock(*table, None));
        }
        if *vars {
            self.b.act(Op::LockVars);
        }
    }

    /// Returns the row with a key: the known row on this path, or a new lookup.
    pub(super) fn found(&mut self, table: TableId, key: &[hir::Expr], value: Value) -> Value {
        // A changeable key may have the same text and another value, so it is not remembered.
        let is_fixed = key.iter().all(|part| self.is_fixed_key(part));
        let name = (table, key_text(key));
        if let Some(row) = self.path.found.get(&name).filter(|_| is_fixed) {
            return *row;
        }
        let row = self.b.get(Op::Find(table, value), Ty::Row);
        if is_fixed {
            self.path.found.insert(name, row);
        }
        row
    }

    /// Remembers the row of a key.
    pub(super) fn remember(&mut self, table: TableId, key: &[hir::Expr], row: Value) {
        if key.iter().all(|part| self.is_fixed_key(part)) {
            self.path.found.insert((table, key_text(key)), row);
        }
    }

    /// Literals, parameters, locals and the engine's facts about a call, which no statement can change.
    fn is_fixed_key(&self, part: &hir::Expr) -> bool {
        match &part.kind {
            hir::ExprKind::Column(column) => {
                let is_computed = self.scope.computed(*column).is_some();
                !is_computed && !self.scope.element.columns[*column].written && !self.is_changing(part)
            }
            hir::ExprKind::Const(_) | hir::ExprKind::Param(_) | hir::ExprKind::Local(_) => true,
            hir::ExprKind::Meta(meta) => *meta != hir::Meta::Payload && !self.is_changing(part),
            hir::ExprKind::Widen(inner) => self.is_fixed_key(inner),
            _ => false,
        }
    }

    /// Whether an expression is derived from the message, and may change with a statement.
    pub(super) fn is_changing(&self, expr: &hir::Expr) -> bool {
        self.scope.is_derived(expr) && self.lowering.may_change(self.direction())
    }

    // ---- errors ----

    /// Jumps to the element's error path if an error was raised, or the scratch was full.
    pub(super) fn fail_if(&mut self, fault: Option<RaisedFault>) {
        let full = self.b.take_scratch_used().then(|| self.b.get(Op::ScratchFull, Ty::Bool));
        let full = full.and_then(|full| self.b.raise(full, Fault::TooLong));
        let Some(RaisedFault { is, code }) = self.b.first(fault, full) else { return };
        let (target, args) = self.error_target(code);
        let go_on = self.b.block();
        self.b.branch_with(is, (target, args), (go_on, Vec::new()));
        self.b.switch(go_on);
    }

    /// Tests whether everything since the last check fitted in the scratch.
    pub(super) fn check_scratch(&mut self) {
        if self.b.is_open() {
            self.fail_if(None);
        }
    }

    /// Returns the block for errors at the current line, with the fault code as its argument.
    fn error_target(&mut self, code: Value) -> (BlockId, Vec<Value>) {
        let line = self.b.line();
        let target = match &self.errors {
            Errors::Fail(blocks) => blocks.get(&line).copied(),
            Errors::Handle(block) => *block,
        };
        let (block, _) = target.unwrap_or_else(|| self.new_error_target(line));
        (block, vec![code])
    }

    /// Creates the block for errors: ON ERROR's head, or a block that fails with this line.
    fn new_error_target(&mut self, line: u32) -> (BlockId, Value) {
        let block = self.b.block();
        let fault = self.b.param(block, Ty::Int);
        match &mut self.errors {
            Errors::Handle(target) => *target = Some((block, fault)),
            Errors::Fail(blocks) => {
                blocks.insert(line, (block, fault));
                let here = self.b.here();
                self.b.switch(block);
                self.b.end(Terminator::Fail { fault, line });
                if let Some(here) = here {
                    self.b.switch(here);
                }
            }
        }
        (block, fault)
    }

    /// The condition of an IF, a WHERE or an arm: NULL counts as not true, and an error fails.
    pub(super) fn truth(&mut self, condition: &hir::Expr) -> Value {
        let value = self.expr(condition);
        self.fail_if(value.fault);
        self.b.is_true(value)
    }
}

/// Lowers the OPEN of a route's pseudo element; None if it is too long.
pub(super) fn condition<'n>(
    lowering: &mut Lowering<'n>,
    scope: &Scope<'n>,
    route: &hir::Route,
) -> Option<Function> {
    let mut body = Body::new(lowering, scope, HandlerKind::Open, &Lock::Free);
    if let Some(when) = &route.when {
        body.set_line(when.span);
        let holds = body.truth(when);
        let (yes, no) = (body.b.block(), body.b.block());
        body.b.branch(holds, yes, no);
        body.b.switch(no);
        let line = body.b.line();
        body.b.end(Terminator::Drop { line });
        body.b.switch(yes);
    }
    body.forward();
    body.b.finish()
}
