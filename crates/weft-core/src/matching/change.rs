//! Changes a matcher while it is in use: inserts, removes and reorders rows.

use super::order::{Order, Rank};
use super::{Cell, Codec, MatchSpec, MatchedRow, Matcher, TooManyRows, cell, found};
use crate::classify::{Built, Outdated, RULES_MAX, Rule, Snapshot};
use crate::table::{Row, Table};
use std::sync::Arc;

/// A row cannot be added: its values need more bits than the key has, or there is no space for another rule. Make a new
/// matcher with [`Matcher::changeable`]; it has space, unless the table has too many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsNewMatcher;

/// Pending changes below which a small set of rules is not rebuilt at once.
const BESIDE_MAX: usize = 16;

/// The data that a changeable matcher needs.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    spec: MatchSpec,
    /// The rows that have rules, with their rules.
    order: Order,
    /// Rules without a row.
    free: Vec<u32>,
}

impl Matcher {
    /// A matcher of the current rows of a table that takes changes. It needs about 100 bytes more per row.
    ///
    /// # Errors
    /// [`TooManyRows`].
    ///
    /// # Panics
    /// As [`Matcher::new`].
    pub fn changeable(spec: &MatchSpec, table: &Arc<Table>) -> Result<Self, TooManyRows> {
        Self::build(spec, table, true)
    }

    /// Whether it takes changes.
    pub fn is_changeable(&self) -> bool {
        self.changes.is_some()
    }

    /// Adds new rows of the table, with their current values.
    ///
    /// # Errors
    /// [`NeedsNewMatcher`]: make a new matcher of the current rows.
    pub fn insert(&mut self, rows: &[Row]) -> Result<(), NeedsNewMatcher> {
        let Self { table, columns, codecs, classifier, rows: held, changes, jit, .. } = self;
        let changes = changes.as_deref_mut().ok_or(NeedsNewMatcher)?;
        let cell = |row: Row, column: u16| cell(table, row, columns[usize::from(column)]);
        let n = held.len() + rows.len();
        if !rows.iter().all(|row| codecs.iter_mut().all(|codec| codec.admit(*row, &cell, n))) {
            return Err(NeedsNewMatcher);
        }
        let (mut rules, mut moved) = (Vec::<Rule>::with_capacity(rows.len()), Vec::new());
        for &row in rows {
            let Some(patterns) = patterns(codecs, row, &cell) else { continue };
            let id = changes.free.pop().unwrap_or(held.len() as u32);
            if id >= RULES_MAX - 1 {
                return Err(NeedsNewMatcher);
            }
            let rank = changes.rank(table, columns, row);
            let priority = u32::MAX - changes.order.insert(rank, id, &mut moved);
            for (id, label) in moved.drain(..) {
                let priority = u32::MAX - label;
                if !classifier.relabel(id, priority) {
                    // It is one of the rules that this call adds.
                    rules.iter_mut().filter(|rule| rule.id == id).for_each(|rule| rule.priority = priority);
                }
            }
            rules.push(Rule { patterns, priority, id });
            match held.get_mut(id as usize) {
                Some(free) => *free = found(table, row),
                None => held.push(found(table, row)),
            }
        }
        classifier.insert_all(&rules).expect("the codecs admit the rows, and the ids are free");
        jit.clear_lookup();
        Ok(())
    }

    /// Removes rows, which must still have the values with which they were added.
    pub fn remove(&mut self, rows: &[Row]) {
        let Self { table, columns, classifier, rows: held, changes, jit, .. } = self;
        let Some(changes) = changes.as_deref_mut() else { return };
        let ranks: Vec<Rank> = rows.iter().map(|row| changes.rank(table, columns, *row)).collect();
        let ids: Vec<u32> = ranks.iter().filter_map(|rank| changes.order.remove(rank)).collect();
        classifier.remove_all(&ids);
        jit.clear_lookup();
        assert!(ids.iter().all(|id| (*id as usize) < held.len()), "the order knows ids of rows only");
        ids.iter().for_each(|id| held[*id as usize] = MatchedRow::default());
        changes.free.extend(ids);
    }

    /// Ends a sequence of changes. If the structure has taken all of them, compiled code can find rows itself again.
    pub fn publish(&mut self) {
        if self.classifier.trie().is_some() {
            self.refresh_jit_view();
        }
        self.refresh_exceeds_cache();
    }

    /// The same matcher over another table with the same rows; `same` maps a row to the row there. The two share the
    /// structure, and a structure built for one fits the other, as long as both get the same changes.
    ///
    /// # Panics
    /// If the table has another layout.
    pub fn onto(&self, table: &Arc<Table>, same: impl Fn(Row) -> Row) -> Self {
        assert_eq!(self.table.fingerprint(), table.fingerprint(), "the tables have the same layout");
        let mut copy = self.clone();
        copy.table = Arc::clone(table);
        for held in copy.rows.iter_mut().filter(|held| held.row.is_some()) {
            *held = found(table, same(held.row));
        }
        copy.refresh_jit_view();
        copy
    }

    /// Whether a rebuild would make look-ups cheaper.
    pub fn wants_rebuild(&self) -> bool {
        self.classifier.wants_rebuild()
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.classifier.len()
    }

    /// Whether no tuple can match.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of changes since the structure was built.
    pub fn changed(&self) -> usize {
        self.classifier.changes()
    }

    /// The current rules, for a rebuild by another thread.
    pub fn snapshot(&self) -> Snapshot {
        self.classifier.snapshot()
    }

    /// A rebuilt structure, if the rebuild takes less than a millisecond and many changes are pending.
    pub fn built_if_quick(&self) -> Option<Built> {
        if self.changed() < BESIDE_MAX { None } else { self.classifier.rebuild_if_quick() }
    }

    /// Adopts a structure that was built from a snapshot of this matcher or of its twin.
    ///
    /// # Errors
    /// [`Outdated`], if too much has changed since.
    pub fn adopt(&mut self, built: Built) -> Result<(), Outdated> {
        self.classifier.adopt(built)?;
        self.refresh_jit_view();
        self.refresh_exceeds_cache();
        Ok(())
    }
}

impl Changes {
    /// Makes the data for changes from sorted rows; also returns the labels of the rows.
    pub(super) fn of(
        spec: &MatchSpec,
        table: &Table,
        columns: &[super::Column],
        rows: &[Row],
    ) -> (Self, Vec<u32>) {
        let (_, by_ty) = columns[usize::from(spec.by)];
        let order = Order::new(spec, table.spec(), by_ty);
        let mut changes = Self { spec: spec.clone(), order, free: Vec::new() };
        let ranks = rows.iter().zip(0..).map(|(row, id)| (changes.rank(table, columns, *row), id)).collect();
        let labels = changes.order.fill(ranks);
        (changes, labels)
    }

    /// Frees the id of a row that no tuple can match.
    pub(super) fn free_id(&mut self, table: &Table, columns: &[super::Column], row: Row) {
        let rank = self.rank(table, columns, row);
        self.free.extend(self.order.remove(&rank));
    }

    /// Computes the rank of a row in the order of the match.
    fn rank(&self, table: &Table, columns: &[super::Column], row: Row) -> Rank {
        let (_, by_ty) = columns[usize::from(self.spec.by)];
        let cell = |column: u16| cell(table, row, columns[usize::from(column)]);
        Rank::of(&self.spec, table.spec(), by_ty, &cell)
    }
}

/// Computes the patterns of a row for all fields; None if no tuple can match.
pub(super) fn patterns(
    codecs: &[Codec],
    row: Row,
    cell: &dyn Fn(Row, u16) -> Cell,
) -> Option<Vec<crate::classify::Pattern>> {
    let mut all = Vec::with_capacity(2 * codecs.len());
    for codec in codecs {
        all.extend(codec.patterns(row, cell)?);
    }
    Some(all)
}
