//! Short lists of rules by number: those of each cell of a trie, or of each entry of its floor.

/// No link.
const END: u32 = u32::MAX;

/// Some lists.
#[derive(Clone, Debug)]
pub(super) struct RuleLists {
    /// The first link of each list.
    heads: Vec<u32>,
    links: Vec<Link>,
    /// The first link that is free.
    free: u32,
    /// Notes that may still be made.
    room: usize,
}

/// A rule in a list.
#[derive(Clone, Copy, Debug)]
struct Link {
    id: u32,
    next: u32,
}

impl RuleLists {
    /// So many empty lists, with room for so many notes.
    pub(super) fn new(n: usize, room: usize) -> Self {
        Self { heads: vec![END; n], links: Vec::new(), free: END, room }
    }

    /// How many lists there are.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Room for so many notes more.
    pub(super) fn make_room(&mut self, room: usize) {
        self.room += room;
    }

    /// Whether so many notes may be made.
    pub(super) fn has_room(&self, notes: usize) -> bool {
        notes <= self.room
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.heads[..]) + size_of_val(&self.links[..])
    }

    /// The rules of a list, the last that came first.
    pub(super) fn of(&self, list: usize) -> impl Iterator<Item = u32> {
        let link = |at: u32| self.links.get(at as usize);
        core::iter::successors(link(self.heads[list]), move |before| link(before.next)).map(|link| link.id)
    }

    /// Reads the links of some lists side by side, `most` of each; gives the rules.
    pub(super) fn of_all(&self, lists: impl Iterator<Item = usize>, most: usize) -> Vec<u32> {
        let mut at: Vec<u32> = lists.map(|list| self.heads[list]).collect();
        let mut ids = Vec::with_capacity(2 * at.len());
        for _ in 0..most {
            at.retain_mut(|at| {
                let link = self.links.get(*at as usize);
                ids.extend(link.map(|link| link.id));
                *at = link.map_or(END, |link| link.next);
                *at != END
            });
        }
        ids
    }

    /// Records a rule; there is room for it.
    pub(super) fn add(&mut self, list: usize, id: u32) {
        self.room -= 1;
        let link = Link { id, next: self.heads[list] };
        let at = self.free;
        self.heads[list] = match self.links.get_mut(at as usize) {
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

    /// Forgets that a rule is in a list; false if it was not.
    pub(super) fn remove(&mut self, list: usize, id: u32) -> bool {
        let (mut before, mut at) = (END, self.heads[list]);
        while let Some(&Link { id: found, next }) = self.links.get(at as usize) {
            if found == id {
                match self.links.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => self.heads[list] = next,
                }
                self.links[at as usize] = Link { id: 0, next: self.free };
                self.free = at;
                self.room += 1;
                return true;
            }
            (before, at) = (at, next);
        }
        false
    }
}
