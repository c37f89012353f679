//! Which rules are in which cell of the root of a trie: what it has to be made of when one of them changes.

use std::collections::BTreeSet;

use super::NOTHING;

/// Cells that a rule may be in, to be noted in each of them.
const CELLS_MAX: usize = 64;
/// Rules of a cell, beyond which it is not made anew with each change.
const RULES_MAX: usize = 512;
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
    /// Of each cell the best of the rules that hold all of it and are in too many to be noted, or [`NOTHING`].
    wide: Vec<u32>,
    /// Those of them that have gone.
    gone: BTreeSet<u32>,
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
    /// Whether they are too many.
    pub(super) fn is_wide(&self) -> bool {
        self.last - self.first >= CELLS_MAX
    }
}

impl Cells {
    pub(super) fn new(n: usize) -> Self {
        Self {
            heads: vec![END; n],
            links: Vec::new(),
            free: END,
            wide: vec![NOTHING; n],
            gone: BTreeSet::new(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.heads[..]) + size_of_val(&self.links[..]) + size_of_val(&self.wide[..])
    }

    /// Notes a rule that is better than those before.
    pub(super) fn note(&mut self, touched: Touched, id: u32) {
        for cell in touched.first..=touched.last {
            let is_part =
                cell == touched.first && !touched.whole[0] || cell == touched.last && !touched.whole[1];
            if touched.is_wide() && !is_part {
                self.wide[cell] = id;
            } else {
                self.add(cell, id);
            }
        }
    }

    /// The rules that decide what is below a cell. None: one of them has gone that may have hidden others, or they are
    /// very many.
    pub(super) fn of(&self, cell: usize) -> Option<impl Iterator<Item = u32>> {
        let link = |at: u32| self.links.get(at as usize);
        let links = move || core::iter::successors(link(self.heads[cell]), move |before| link(before.next));
        let wide = Some(self.wide[cell]).filter(|wide| *wide != NOTHING);
        let is_known = wide.is_none_or(|wide| !self.gone.contains(&wide)) && links().nth(RULES_MAX).is_none();
        is_known.then(|| links().map(|link| link.id).chain(wide))
    }

    /// A rule that touched too many cells has gone.
    pub(super) fn lose(&mut self, id: u32) {
        self.gone.insert(id);
    }

    pub(super) fn add(&mut self, cell: usize, id: u32) {
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

    /// Forgets a rule that is in a cell once.
    pub(super) fn remove(&mut self, cell: usize, id: u32) {
        let (mut before, mut at) = (END, self.heads[cell]);
        while let Some(&Link { id: found, next }) = self.links.get(at as usize) {
            if found == id {
                match self.links.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => self.heads[cell] = next,
                }
                self.links[at as usize] = Link { id: 0, next: self.free };
                self.free = at;
                return;
            }
            (before, at) = (at, next);
        }
    }
}
