//! The body of a function under construction: the values of names, and the facts known on each path.
//!
//! Expressions are lowered here. They raise no error themselves: [`Statements`](super::handler::Statements) do.

use std::collections::BTreeMap;

use weft_ir::ir::{Op, TableId, Ty, Value};
use weft_lang::hir::{self, Direction, HandlerKind, LocalId, RowId, TableRef};
use weft_lang::source::Span;

use super::build::Builder;
use super::list::Item;
use super::locks::{Lock, key_text};
use super::logic::Val;
use super::reshape::FrameStart;
use super::walk::Mentions;
use super::{Lowering, Scope};

/// The environment of the expressions of a handler.
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

impl<'b, 'n> Body<'b, 'n> {
    /// Starts a function with this name, for a handler of this kind.
    pub(super) fn new(
        lowering: &'b mut Lowering<'n>,
        scope: &'b Scope<'n>,
        (kind, name): (HandlerKind, String),
        lock: &'b Lock,
    ) -> Self {
        Self {
            b: Builder::new(name),
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
        }
    }

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
}
