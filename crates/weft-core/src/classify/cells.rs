//! Which rules are in which cell of a node of a trie: what it has to be made of when one of them changes.

use std::collections::{BTreeMap, BTreeSet};

use super::NOTHING;

/// Cells that a rule may be in, to be noted in each of them.
const CELLS_MAX: usize = 1024;
/// Rules may be noted so often for each cell, and so often for each rule, when cells are filled, and as often by
/// changes.
const NOTES_A_CELL: usize = 4;
const NOTES_A_RULE: usize = 4;
/// A cell with more rules than this is crowded.
const CROWD: usize = 32;
/// Rules of a cell, beyond which it is not made anew with each change.
const RULES_MAX: usize = 128;
/// No link.
const END: u32 = u32::MAX;

/// The rules of each cell.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// The first link of each cell.
    heads: Vec<u32>,
    links: Vec<Link>,
    /// The first link that is free.
    free: u32,
    /// Of each cell the best of the rules that hold all of it and are not noted, or [`NOTHING`].
    best: Vec<u32>,
    /// The rules that are not noted in the cells that they hold, for they touch too many.
    wide: BTreeSet<u32>,
    /// Those that were, and have gone.
    gone: BTreeSet<u32>,
    /// Notes that may still be made.
    room: usize,
    /// The cells of nodes below crowded cells: rules that touch no other cell of this node are noted there.
    below: BTreeMap<usize, Self>,
}

/// A rule in a cell.
#[derive(Clone, Copy, Debug)]
struct Link {
    id: u32,
    next: u32,
}

/// The cells that a rule touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    pub(super) first: usize,
    pub(super) last: usize,
    /// It holds all of the first, and all of the last.
    pub(super) whole: [bool; 2],
}

impl Touched {
    fn n(&self) -> usize {
        self.last - self.first + 1
    }
}

impl Cells {
    /// So many cells, with these rules, the worst first, each with the cells that it touches.
    pub(super) fn of_rules(n: usize, rules: impl ExactSizeIterator<Item = (u32, Touched)>) -> Self {
        let room = NOTES_A_CELL * n + NOTES_A_RULE * rules.len();
        let mut cells = Self {
            heads: vec![END; n],
            links: Vec::new(),
            free: END,
            best: vec![NOTHING; n],
            wide: BTreeSet::new(),
            gone: BTreeSet::new(),
            room,
            below: BTreeMap::new(),
        };
        rules.for_each(|(id, touched)| cells.fill(touched, id));
        cells.room += room;
        cells
    }

    pub(super) fn bytes(&self) -> usize {
        let own = size_of_val(&self.heads[..]) + size_of_val(&self.links[..]) + size_of_val(&self.best[..]);
        own + self.below.values().map(Self::bytes).sum::<usize>()
    }

    /// The cells with many rules.
    pub(super) fn crowded(&self) -> Vec<usize> {
        (0..self.heads.len()).filter(|cell| self.noted(*cell).nth(CROWD).is_some()).collect()
    }

    /// Notes the rules of a cell that are `inner` to it in cells of their own, which these rules make.
    pub(super) fn part(
        &mut self,
        cell: usize,
        inner: impl Fn(u32) -> bool,
        make: impl FnOnce(Vec<u32>) -> Self,
    ) {
        let own: Vec<u32> = self.noted(cell).filter(|id| inner(*id)).collect();
        for id in &own {
            self.remove(cell, *id);
        }
        self.room += own.len();
        self.below.insert(cell, make(own));
    }

    /// The cells below one that was crowded.
    pub(super) fn below(&mut self, cell: usize) -> Option<&mut Self> {
        self.below.get_mut(&cell)
    }

    /// Whether one of these cells was crowded.
    pub(super) fn is_parted(&self, touched: Touched) -> bool {
        self.below.range(touched.first..=touched.last).next().is_some()
    }

    /// Fills in a rule that is better than those before.
    fn fill(&mut self, touched: Touched, id: u32) {
        if self.note(touched, id) {
            return;
        }
        self.wide.insert(id);
        for cell in touched.first..=touched.last {
            let is_part =
                cell == touched.first && !touched.whole[0] || cell == touched.last && !touched.whole[1];
            match is_part {
                true => self.add(cell, id),
                false => self.best[cell] = id,
            }
        }
    }

    /// Notes a rule in the cells that it touches; false if they are too many.
    pub(super) fn note(&mut self, touched: Touched, id: u32) -> bool {
        let is_narrow = touched.n() <= CELLS_MAX.min(self.room);
        if is_narrow {
            self.room -= touched.n();
            (touched.first..=touched.last).for_each(|cell| self.add(cell, id));
        }
        is_narrow
    }

    /// Forgets those of the rules that are not noted which are lost.
    pub(super) fn forget_wide(&mut self, is_lost: &impl Fn(u32) -> bool) {
        let lost: Vec<u32> = self.wide.iter().copied().filter(|id| is_lost(*id)).collect();
        for id in lost {
            self.wide.remove(&id);
            self.gone.insert(id);
        }
        self.below.values_mut().for_each(|below| below.forget_wide(is_lost));
    }

    /// Forgets a rule; false if it was not noted.
    pub(super) fn forget(&mut self, touched: Touched, id: u32) -> bool {
        if self.wide.remove(&id) {
            self.gone.insert(id);
            return false;
        }
        if touched.n() > CELLS_MAX {
            return false;
        }
        let n = (touched.first..=touched.last).filter(|cell| self.remove(*cell, id)).count();
        self.room += n;
        n > 0
    }

    /// The rules that decide what is below a cell. None: one of them has gone that may have hidden others, or they are
    /// very many.
    pub(super) fn of(&self, cell: usize) -> Option<impl Iterator<Item = u32>> {
        let best = Some(self.best[cell]).filter(|best| *best != NOTHING);
        let is_known = best.is_none_or(|best| !self.gone.contains(&best));
        let is_few = self.noted(cell).nth(RULES_MAX).is_none();
        (is_known && is_few).then(|| self.noted(cell).chain(best))
    }

    /// The rules that are noted in a cell.
    fn noted(&self, cell: usize) -> impl Iterator<Item = u32> {
        let link = |at: u32| self.links.get(at as usize);
        core::iter::successors(link(self.heads[cell]), move |before| link(before.next)).map(|link| link.id)
    }

    fn add(&mut self, cell: usize, id: u32) {
        let link = Link { id, next: self.heads[cell] };
        let at = self.free;
        self.heads[cell] = match self.links.get_mut(at as usize) {
            Some(free) => {
                self.free = free.next;
                *free = link;
                at
            }
            None => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
        };
    }

    /// Forgets that a rule is in a cell; false if it was not.
    fn remove(&mut self, cell: usize, id: u32) -> bool {
        let (mut before, mut at) = (END, self.heads[cell]);
        while let Some(&Link { id: found, next }) = self.links.get(at as usize) {
            if found == id {
                match self.links.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => self.heads[cell] = next,
                }
                self.links[at as usize] = Link { id: 0, next: self.free };
                self.free = at;
                return true;
            }
            (before, at) = (at, next);
        }
        false
    }
}
