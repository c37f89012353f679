//! The rules of each cell of a trie node. A change rebuilds the cells that it touches from these rules.

use core::ops::Range;
use std::collections::BTreeMap;

use super::rule_lists::RuleLists;

/// Capacity of `rule_lists`: this many list links per cell, plus this many per rule, when the cells are filled; and as
/// many again for changes.
const LINKS_PER_CELL: usize = 4;
const LINKS_PER_RULE: usize = 4;
/// A cell with more rules than this is crowded.
const CROWD: usize = 32;
/// A cell with more rules than this is not rebuilt on each change.
const RULES_MAX: usize = 128;
const _: () = assert!(CROWD < RULES_MAX, "a cell is crowded before its rules are too many to rebuild it");

/// The rules of each cell.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    rule_lists: RuleLists,
    /// The cells of nodes below crowded cells. They hold the rules that touch no other cell of this node.
    below: BTreeMap<usize, Self>,
}

impl Cells {
    /// Makes the cells for these rules; `rules` yields ids with the cells that they touch. None if there are too
    /// many list links.
    pub(super) fn of_rules(
        n: usize,
        n_rules: usize,
        mut rules: impl Iterator<Item = (u32, Range<usize>)>,
    ) -> Option<Self> {
        let room = LINKS_PER_CELL * n + LINKS_PER_RULE * n_rules;
        let mut cells = Self { rule_lists: RuleLists::new(n, room), below: BTreeMap::new() };
        let fits = rules.all(|(id, touched)| cells.add(touched, id));
        cells.rule_lists.make_room(room);
        fits.then_some(cells)
    }

    pub(super) fn bytes(&self) -> usize {
        self.rule_lists.bytes() + self.below.values().map(Self::bytes).sum::<usize>()
    }

    /// The crowded cells.
    pub(super) fn crowded(&self) -> Vec<usize> {
        (0..self.rule_lists.len()).filter(|cell| self.rule_lists.of(*cell).nth(CROWD).is_some()).collect()
    }

    /// Moves the `inner` rules of a cell into cells of their own, if `make` can build them.
    pub(super) fn part(
        &mut self,
        cell: usize,
        inner: impl Fn(u32) -> bool,
        make: impl FnOnce(&[u32]) -> Option<Self>,
    ) {
        let own: Vec<u32> = self.rule_lists.of(cell).filter(|id| inner(*id)).collect();
        let Some(below) = make(&own) else { return };
        for id in own {
            self.rule_lists.remove(cell, id);
        }
        assert!(self.below.insert(cell, below).is_none(), "a cell is split once");
    }

    /// The cells below a crowded cell.
    pub(super) fn below(&mut self, cell: usize) -> Option<&mut Self> {
        self.below.get_mut(&cell)
    }

    /// Whether one of these cells has cells below it.
    pub(super) fn is_parted(&self, touched: Range<usize>) -> bool {
        self.below.range(touched).next().is_some()
    }

    /// Adds a rule to these cells; false if there is no space.
    pub(super) fn add(&mut self, touched: Range<usize>, id: u32) -> bool {
        let has_room = self.rule_lists.has_room(touched.len());
        if has_room {
            touched.for_each(|cell| self.rule_lists.add(cell, id));
        }
        has_room
    }

    /// Removes a rule from these cells; false if it was in none of them.
    pub(super) fn remove(&mut self, touched: Range<usize>, id: u32) -> bool {
        touched.filter(|cell| self.rule_lists.remove(*cell, id)).count() > 0
    }

    /// The first rules of each of these cells.
    pub(super) fn of_all(&self, cells: impl Iterator<Item = usize>) -> Vec<u32> {
        self.rule_lists.of_all(cells, CROWD)
    }

    /// The rules of a cell. None if there are too many.
    pub(super) fn of(&self, cell: usize) -> Option<impl Iterator<Item = u32>> {
        let is_few = self.rule_lists.of(cell).nth(RULES_MAX).is_none();
        is_few.then(|| self.rule_lists.of(cell))
    }
}
