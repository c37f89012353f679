//! Which lock a handler takes, so that a table is linearizable per key whatever the number of workers.
//!
//! Tables and variables that one handler touches together form a *domain*. A handler holds one lock at most, so no
//! two can wait for each other:
//!
//! - a domain of variables alone has the lock of the variables;
//! - a domain of one table has that table's lock: of the key's stripe in handlers that look at one key alone, of
//!   all stripes in the others;
//! - any other domain has the whole lock of its first table.
//!
//! Replicated and PER WORKER tables and merged variables need none. One worker needs none at all.

use std::collections::{BTreeMap, BTreeSet};

use weft_ir::ir::TableId;
use weft_ir::program::Realisation;
use weft_lang::hir::{Expr, ExprKind, Handler, HandlerKind, TableRef};

use super::walk::{Mentions, children};

/// The lock of one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lock {
    /// None.
    #[default]
    Free,
    /// The variables'.
    Vars,
    /// All stripes of a table.
    Whole(TableId),
    /// The stripe of the one key that the handler looks at.
    Stripe(TableId),
}

/// Something that has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    Table(TableId),
    /// An index into the chain's variables.
    Var(u16),
}

/// A handler with what it touches.
#[derive(Debug)]
pub(super) struct Touches {
    pub(super) kind: HandlerKind,
    pub(super) held: BTreeSet<Held>,
    /// It looks at one key alone.
    pub(super) is_one_key: bool,
}

impl Touches {
    /// Of a handler and the ON ERROR that may follow it. `table` and `var` give what needs a lock.
    pub(super) fn of(
        handlers: &[&Handler],
        n_keys: &dyn Fn(TableRef) -> usize,
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
                effects.vars_read.iter().chain(&effects.vars_written).filter_map(|v| var(*v)).map(Held::Var),
            );
            for (of, key) in &mentions.keys {
                let Some(id) = table(*of) else { continue };
                held.insert(Held::Table(id));
                is_one_key &= key.iter().all(|part| is_fixed(part, handler, &mentions));
                keys.insert(key_text(key));
            }
            for scanned in mentions.scans.iter().chain(&mentions.counts) {
                let Some(id) = table(*scanned) else { continue };
                held.insert(Held::Table(id));
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

/// Whether an expression has one value throughout the handler.
pub(super) fn is_fixed(expr: &Expr, handler: &Handler, mentions: &Mentions<'_>) -> bool {
    let effects = &handler.effects;
    let itself = match &expr.kind {
        ExprKind::Column(column) => !effects.columns_written.contains(column),
        ExprKind::Header(name) => !effects.headers_written.contains(name),
        ExprKind::Trailer(name) => !effects.trailers_written.contains(name),
        ExprKind::Call(cell) => !mentions.call_set.contains(cell),
        ExprKind::Var(_)
        | ExprKind::CountRows(_)
        | ExprKind::Lookup { .. }
        | ExprKind::Exists(_)
        | ExprKind::Aggregate { .. }
        | ExprKind::FaultName => false,
        // Columns of rows have the value of when the row was found, but each turn of a SCAN finds another.
        ExprKind::RowColumn { .. } => false,
        _ => true,
    };
    itself && children(expr).into_iter().all(|part| is_fixed(part, handler, mentions))
}

/// The lock of each handler, and how each table that needs one is realised.
pub(super) fn plan(handlers: &[Touches]) -> (Vec<Lock>, BTreeMap<TableId, Realisation>) {
    let domains = domains(handlers);
    let domain_of = |held: &BTreeSet<Held>| {
        let first = held.first()?;
        domains.iter().find(|domain| domain.contains(first))
    };
    let lock = |handler: &Touches| {
        let Some(domain) = domain_of(&handler.held) else { return Lock::Free };
        // Tables are less than variables.
        match domain.first() {
            Some(&Held::Table(table)) if domain.len() == 1 && handler.is_one_key => Lock::Stripe(table),
            Some(&Held::Table(table)) => Lock::Whole(table),
            _ => Lock::Vars,
        }
    };
    let locks: Vec<Lock> = handlers.iter().map(lock).collect();
    let mut realisations = BTreeMap::new();
    for (handler, lock) in handlers.iter().zip(&locks) {
        for held in &handler.held {
            let Held::Table(table) = held else { continue };
            // EVERY runs seldom: that it takes all stripes does not make the others do so.
            let is_whole = !matches!(lock, Lock::Stripe(_)) && handler.kind != HandlerKind::Every;
            let realisation = realisations.entry(*table).or_insert(Realisation::Striped);
            if is_whole {
                *realisation = Realisation::Locked;
            }
        }
    }
    (locks, realisations)
}

/// The sets of what is touched together, each reached through shared members.
fn domains(handlers: &[Touches]) -> Vec<BTreeSet<Held>> {
    let mut domains: Vec<BTreeSet<Held>> = Vec::new();
    for handler in handlers.iter().filter(|handler| !handler.held.is_empty()) {
        let mut joined = handler.held.clone();
        domains.retain(|domain| {
            let is_apart = domain.is_disjoint(&joined);
            if !is_apart {
                joined.extend(domain);
            }
            is_apart
        });
        domains.push(joined);
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(kind: HandlerKind, held: &[Held], is_one_key: bool) -> Touches {
        Touches { kind, held: held.iter().copied().collect(), is_one_key }
    }

    #[test]
    fn what_is_touched_together_has_one_lock() {
        // Two locks in one handler could make two workers wait for each other for ever.
        let (a, b, c) = (Held::Table(TableId(0)), Held::Table(TableId(1)), Held::Table(TableId(2)));
        let var = Held::Var(0);
        let handlers = [
            touches(HandlerKind::Request, &[b], true),
            touches(HandlerKind::Response, &[c], true),
            touches(HandlerKind::Request, &[a, var], true),
            touches(HandlerKind::Close, &[var, b], true),
            touches(HandlerKind::Every, &[c], false),
            touches(HandlerKind::Request, &[Held::Var(1)], true),
        ];
        let (locks, realisations) = plan(&handlers);
        let whole = Lock::Whole(TableId(0));
        assert_eq!(
            locks,
            [whole, Lock::Stripe(TableId(2)), whole, whole, Lock::Whole(TableId(2)), Lock::Vars]
        );
        assert_eq!(realisations[&TableId(1)], Realisation::Locked);
        assert_eq!(realisations[&TableId(2)], Realisation::Striped);
    }
}
