//! Chooses the locks of each handler, so that a table is linearizable per key whatever the number of workers.
//!
//! Every access to a table holds a lock of that table, and every access to variables the variables' lock. All handlers,
//! chains and versions, and the sweep of expired rows, use the same lock for a table:
//!
//! - a handler that accesses one key of one table, and nothing else, takes the lock of the key's stripe;
//! - any other takes all locks that it may need before its first access: its whole tables, ordered by owner and name,
//!   and last the variables. All handlers use this order, so there is no deadlock.
//!
//! Replicated and PER WORKER tables and merged variables need no locks. With one worker nothing does.

use std::collections::{BTreeMap, BTreeSet};

use weft_ir::ir::TableId;
use weft_ir::program::Realisation;
use weft_lang::hir::{Element, Expr, ExprKind, Handler, HandlerKind, TableRef};

use super::walk::Mentions;
use super::{Lowering, Scope};

/// The locks of one handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Lock {
    /// None.
    #[default]
    Free,
    /// The stripe of the handler's only key.
    Stripe(TableId),
    /// All stripes of these tables, in locking order, and the variables' lock.
    Whole { tables: Vec<TableId>, vars: bool },
}

/// Something with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LockedItem {
    Table(TableId),
    /// An index into the chain's variables.
    Var(u16),
}

/// The locked items that a handler accesses.
#[derive(Debug)]
pub(super) struct Touches {
    pub(super) kind: HandlerKind,
    pub(super) held: BTreeSet<LockedItem>,
    /// It accesses only one key.
    pub(super) is_one_key: bool,
}

impl Touches {
    /// Collects the locked items of a handler and the ON ERROR that may follow it. `table` and `var` map to items
    /// that need a lock.
    pub(super) fn of(
        handlers: &[&Handler],
        n_keys: &dyn Fn(TableRef) -> usize,
        scope: &Scope<'_>,
        table: &dyn Fn(TableRef) -> Option<TableId>,
        var: &dyn Fn(usize) -> Option<u16>,
    ) -> Self {
        let mut held = BTreeSet::new();
        let mut keys = BTreeSet::new();
        let mut is_one_key = true;
        for handler in handlers {
            let effects = &handler.effects;
            let mentions = Mentions::of(handler, n_keys);
            held.extend(
                effects
                    .vars_read
                    .iter()
                    .chain(&effects.vars_written)
                    .filter_map(|v| var(*v))
                    .map(LockedItem::Var),
            );
            for (of, key) in &mentions.keys {
                let Some(id) = table(*of) else { continue };
                held.insert(LockedItem::Table(id));
                is_one_key &= key.iter().all(|part| is_fixed(part, handler, &mentions, scope));
                keys.insert(key_text(key));
            }
            for scanned in mentions.scans.iter().chain(&mentions.counts) {
                let Some(id) = table(*scanned) else { continue };
                held.insert(LockedItem::Table(id));
                is_one_key = false;
            }
        }
        Self { kind: handlers[0].kind, held, is_one_key: is_one_key && keys.len() <= 1 }
    }
}

/// The handlers that become functions; ON ERROR is part of others.
pub(super) fn lowered_handlers(element: &Element) -> impl Iterator<Item = &Handler> {
    element.handlers.iter().filter(|handler| handler.kind != HandlerKind::Error)
}

impl<'n> Lowering<'n> {
    /// Plans the locks of all handlers together, so that they take tables in the same order: for each stage those of
    /// [`lowered_handlers`]. A single worker needs none.
    pub(super) fn plan_locks(&mut self, scopes: &[Scope<'n>]) -> Vec<Vec<Lock>> {
        let touches: Vec<Touches> = scopes
            .iter()
            .flat_map(|scope| lowered_handlers(scope.element).map(|handler| self.touches(scope, handler)))
            .collect();
        let name_of = |table: TableId| {
            let decl = &self.program.tables[usize::from(table.0)];
            (decl.owner.clone(), decl.spec.name.clone())
        };
        let (locks, realisations) = plan(&touches, name_of);
        for (table, realisation) in realisations {
            self.program.tables[usize::from(table.0)].realisation = realisation;
        }
        let is_alone = self.options.workers <= 1;
        let mut locks = locks.into_iter().map(|lock| if is_alone { Lock::Free } else { lock });
        let n_handlers = scopes.iter().map(|scope| lowered_handlers(scope.element).count());
        n_handlers.map(|n| locks.by_ref().take(n).collect()).collect()
    }

    /// Collects the state that a handler and its ON ERROR access under locks.
    fn touches(&self, scope: &Scope<'n>, handler: &Handler) -> Touches {
        let needs_lock = |table: TableRef| {
            let id = self.table_id(scope, table);
            let realisation = self.program.tables[usize::from(id.0)].realisation;
            matches!(realisation, Realisation::Striped | Realisation::Locked).then_some(id)
        };
        let var = |var: usize| scope.element.vars[var].merge.is_none().then(|| scope.vars[var].0);
        let n_keys = |table: TableRef| self.table_decl(scope, table).n_keys;
        let handlers: Vec<&Handler> = [handler].into_iter().chain(scope.on_error(handler.kind)).collect();
        Touches::of(&handlers, &n_keys, scope, &needs_lock, &var)
    }
}

/// A text of the key that is equal for equal expressions anywhere: the alternate form omits spans.
pub(super) fn key_text(key: &[Expr]) -> String {
    format!("{key:#?}")
}

/// Whether an expression has one value throughout the handler. A value derived from the message changes with each field
/// that is set.
pub(super) fn is_fixed(expr: &Expr, handler: &Handler, mentions: &Mentions<'_>, scope: &Scope<'_>) -> bool {
    let effects = &handler.effects;
    let itself = match &expr.kind {
        ExprKind::Column(column) if let Some(computed) = scope.computed(*column) => {
            effects.columns_written.is_empty() && is_fixed(computed, handler, mentions, scope)
        }
        _ if scope.is_derived(expr) => effects.columns_written.is_empty(),
        ExprKind::Column(column) => !effects.columns_written.contains(column),
        ExprKind::Header(name) => !effects.headers_written.contains(name),
        ExprKind::Trailer(name) => !effects.trailers_written.contains(name),
        ExprKind::Call(cell) => !mentions.call_set.contains(cell),
        ExprKind::Var(_)
        | ExprKind::CountRows(_)
        | ExprKind::Lookup { .. }
        | ExprKind::Exists(_)
        | ExprKind::Aggregate { .. }
        | ExprKind::Egress
        | ExprKind::FaultName => false,
        // Columns of rows have the value at the time of the lookup, but each iteration of a SCAN has another row.
        ExprKind::RowColumn { .. } => false,
        _ => true,
    };
    itself && expr.children().into_iter().all(|part| is_fixed(part, handler, mentions, scope))
}

/// The locks of each handler, and the realisation of each table that needs one. `rank` orders tables as in all chains.
pub(super) fn plan<R: Ord>(
    handlers: &[Touches],
    rank: impl Fn(TableId) -> R,
) -> (Vec<Lock>, BTreeMap<TableId, Realisation>) {
    let locks: Vec<Lock> = handlers.iter().map(|handler| lock(handler, &rank)).collect();
    let mut realisations = BTreeMap::new();
    for (handler, lock) in handlers.iter().zip(&locks) {
        for table in tables(&handler.held) {
            // EVERY, TIMEOUT and EVICT run rarely: if one takes all stripes, the other handlers still use single ones.
            let is_timed = handler.kind.is_timed();
            let is_whole = !matches!(lock, Lock::Stripe(_)) && !is_timed;
            let realisation = realisations.entry(table).or_insert(Realisation::Striped);
            if is_whole {
                *realisation = Realisation::Locked;
            }
        }
    }
    (locks, realisations)
}

/// Returns the locks of a handler: none, one stripe, or whole tables in the order of `rank`.
fn lock<R: Ord>(handler: &Touches, rank: impl Fn(TableId) -> R) -> Lock {
    let mut tables: Vec<TableId> = tables(&handler.held).collect();
    tables.sort_by_key(|table| rank(*table));
    let vars = tables.len() < handler.held.len();
    match tables[..] {
        [] if !vars => Lock::Free,
        [table] if !vars && handler.is_one_key => Lock::Stripe(table),
        _ => Lock::Whole { tables, vars },
    }
}

/// Returns the tables among the locked items.
fn tables(held: &BTreeSet<LockedItem>) -> impl Iterator<Item = TableId> {
    held.iter().filter_map(|held| match held {
        LockedItem::Table(table) => Some(*table),
        LockedItem::Var(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(kind: HandlerKind, held: &[LockedItem], is_one_key: bool) -> Touches {
        Touches { kind, held: held.iter().copied().collect(), is_one_key }
    }

    #[test]
    fn table_locks_have_one_order() {
        // Two handlers that took two locks in different orders could deadlock.
        let (a, b, c) =
            (LockedItem::Table(TableId(0)), LockedItem::Table(TableId(1)), LockedItem::Table(TableId(2)));
        let var = LockedItem::Var(0);
        let handlers = [
            touches(HandlerKind::Request, &[b], true),
            touches(HandlerKind::Response, &[c], true),
            touches(HandlerKind::Request, &[a, b, var], true),
            touches(HandlerKind::Every, &[c], false),
            touches(HandlerKind::Request, &[LockedItem::Var(1)], true),
            touches(HandlerKind::Close, &[], true),
        ];
        // The names of the tables may be in another order than their numbers.
        let (locks, realisations) = plan(&handlers, |table| 9 - table.0);
        let whole =
            |tables: &[u16], vars| Lock::Whole { tables: tables.iter().map(|t| TableId(*t)).collect(), vars };
        assert_eq!(
            locks,
            [
                Lock::Stripe(TableId(1)),
                Lock::Stripe(TableId(2)),
                whole(&[1, 0], true),
                whole(&[2], false),
                whole(&[], true),
                Lock::Free,
            ]
        );
        assert_eq!(realisations[&TableId(1)], Realisation::Locked);
        assert_eq!(realisations[&TableId(2)], Realisation::Striped);
    }
}
