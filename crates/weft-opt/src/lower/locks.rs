//! Which lock a handler takes, so that a table is linearizable per key whatever the number of workers.
//!
//! Whoever works on a table holds a lock of that table, and on variables, theirs; so a table is guarded by the same
//! lock in every handler, chain and version that knows it, and for the sweep of expired rows:
//!
//! - a handler that looks at one key of one table, and at nothing else, takes the lock of the key's stripe;
//! - any other takes all that it may need before its first look: its tables whole, in the order of owner and name,
//!   and last the variables. All handlers take them in this order, so no two can wait for each other.
//!
//! Replicated and PER WORKER tables and merged variables need none. One worker needs none at all.

use std::collections::{BTreeMap, BTreeSet};

use weft_ir::ir::TableId;
use weft_ir::program::Realisation;
use weft_lang::hir::{Expr, ExprKind, Handler, HandlerKind, TableRef};

use super::Scope;
use super::walk::Mentions;

/// The locks of one handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Lock {
    /// None.
    #[default]
    Free,
    /// The stripe of the one key that the handler looks at.
    Stripe(TableId),
    /// All stripes of these tables, in the order in which they are to be taken, and the variables'.
    Whole { tables: Vec<TableId>, vars: bool },
}

/// Something that has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LockedItem {
    Table(TableId),
    /// An index into the chain's variables.
    Var(u16),
}

/// A handler with what it touches.
#[derive(Debug)]
pub(super) struct Touches {
    pub(super) kind: HandlerKind,
    pub(super) held: BTreeSet<LockedItem>,
    /// It looks at one key alone.
    pub(super) is_one_key: bool,
}

impl Touches {
    /// Of a handler and the ON ERROR that may follow it. `table` and `var` give what needs a lock.
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

/// The key as a text that is the same for the same expressions wherever they are written: the alternate form
/// leaves spans out.
pub(super) fn key_text(key: &[Expr]) -> String {
    format!("{key:#?}")
}

/// Whether an expression has one value throughout the handler. What is derived from the message changes with each field
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
        // Columns of rows have the value of when the row was found, but each turn of a SCAN finds another.
        ExprKind::RowColumn { .. } => false,
        _ => true,
    };
    itself && expr.children().into_iter().all(|part| is_fixed(part, handler, mentions, scope))
}

/// The locks of each handler, and how each table that needs one is realised. `rank` orders tables as all chains do.
pub(super) fn plan<R: Ord>(
    handlers: &[Touches],
    rank: impl Fn(TableId) -> R,
) -> (Vec<Lock>, BTreeMap<TableId, Realisation>) {
    let locks: Vec<Lock> = handlers.iter().map(|handler| lock(handler, &rank)).collect();
    let mut realisations = BTreeMap::new();
    for (handler, lock) in handlers.iter().zip(&locks) {
        for table in tables(&handler.held) {
            // EVERY, TIMEOUT and EVICT run seldom: that one takes all stripes does not make the others do so.
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
        // Two handlers that took two locks in different orders could wait for each other for ever.
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
