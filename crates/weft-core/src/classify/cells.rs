//! Which rules are in which cell of a node of a trie: what it has to be made of when one of them changes.

use core::ops::Range;
use std::collections::BTreeMap;

use super::rule_lists::RuleLists;

/// Rules may be noted so often for each cell, and so often for each rule, when cells are filled, and as often by
/// changes.
const NOTES_A_CELL: usize = 4;
const NOTES_A_RULE: usize = 4;
/// A cell with more rules than this is crowded.
const CROWD: usize = 32;
/// Rules of a cell, beyond which it is not made anew with each change.
const RULES_MAX: usize = 128;

/// The rules of each cell.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    notes: RuleLists,
    /// The cells of nodes below crowded cells: rules that touch no other cell of this node are noted there.
    below: BTreeMap<usize, Self>,
}

impl Cells {
    /// So many cells, with these rules, each with some of the cells that it touches. None if that is noted too often.
    pub(super) fn of_rules(
        n: usize,
        n_rules: usize,
        mut rules: impl Iterator<Item = (u32, Range<usize>)>,
    ) -> Option<Self> {
        let room = NOTES_A_CELL * n + NOTES_A_RULE * n_rules;
        let mut cells = Self { notes: RuleLists::new(n, room), below: BTreeMap::new() };
        let is_noted = rules.all(|(id, touched)| cells.note(touched, id));
        cells.notes.make_room(room);
        is_noted.then_some(cells)
    }

    pub(super) fn bytes(&self) -> usize {
        self.notes.bytes() + self.below.values().map(Self::bytes).sum::<usize>()
    }

    /// The cells with many rules.
    pub(super) fn crowded(&self) -> Vec<usize> {
        (0..self.notes.len()).filter(|cell| self.notes.of(*cell).nth(CROWD).is_some()).collect()
    }

    /// Records the rules of a cell that are `inner` to it in cells of their own, which these rules make, if they do.
    pub(super) fn part(
        &mut self,
        cell: usize,
        inner: impl Fn(u32) -> bool,
        make: impl FnOnce(&[u32]) -> Option<Self>,
    ) {
        let own: Vec<u32> = self.notes.of(cell).filter(|id| inner(*id)).collect();
        let Some(below) = make(&own) else { return };
        for id in own {
            self.notes.remove(cell, id);
        }
        self.below.insert(cell, below);
    }

    /// The cells below one that was crowded.
    pub(super) fn below(&mut self, cell: usize) -> Option<&mut Self> {
        self.below.get_mut(&cell)
    }

    /// Whether one of these cells was crowded.
    pub(super) fn is_parted(&self, touched: Range<usize>) -> bool {
        self.below.range(touched).next().is_some()
    }

    /// Records a rule in some cells; false if there is no room for so many notes.
    pub(super) fn note(&mut self, touched: Range<usize>, id: u32) -> bool {
        let has_room = self.notes.has_room(touched.len());
        if has_room {
            touched.for_each(|cell| self.notes.add(cell, id));
        }
        has_room
    }

    /// Forgets that a rule is in some cells; false if it was noted in none of them.
    pub(super) fn forget(&mut self, touched: Range<usize>, id: u32) -> bool {
        touched.filter(|cell| self.notes.remove(*cell, id)).count() > 0
    }

    /// The rules of some cells, of each the first.
    pub(super) fn of_all(&self, cells: impl Iterator<Item = usize>) -> Vec<u32> {
        self.notes.of_all(cells, CROWD)
    }

    /// The rules of a cell. None: they are very many.
    pub(super) fn of(&self, cell: usize) -> Option<impl Iterator<Item = u32>> {
        let is_few = self.notes.of(cell).nth(RULES_MAX).is_none();
        is_few.then(|| self.notes.of(cell))
    }
}
