//! Short lists of rule ids: one for each cell of a trie, or for each entry of its short prefixes.

/// No link.
const END: u32 = u32::MAX;

/// A set of linked lists in one allocation.
#[derive(Clone, Debug)]
pub(super) struct RuleLists {
    /// The first link of each list.
    heads: Vec<u32>,
    links: Vec<Link>,
    /// The first free link.
    free: u32,
    /// The number of links that may still be added.
    room: usize,
}

/// A rule in a list.
#[derive(Clone, Copy, Debug)]
struct Link {
    id: u32,
    next: u32,
}

impl RuleLists {
    /// `n` empty lists, with space for `room` links.
    pub(super) fn new(n: usize, room: usize) -> Self {
        Self { heads: vec![END; n], links: Vec::new(), free: END, room }
    }

    /// The number of lists.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Allows this many more links.
    pub(super) fn make_room(&mut self, room: usize) {
        self.room += room;
    }

    /// Whether this many links may be added.
    pub(super) fn has_room(&self, links: usize) -> bool {
        links <= self.room
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.heads[..]) + size_of_val(&self.links[..])
    }

    /// Iterates over the rules of a list, latest first.
    pub(super) fn of(&self, list: usize) -> impl Iterator<Item = u32> {
        let link = |at: u32| self.links.get(at as usize);
        core::iter::successors(link(self.heads[list]), move |before| link(before.next)).map(|link| link.id)
    }

    /// The first `most` rules of each of these lists; their memory reads overlap.
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

    /// Adds a rule to a list; there must be space.
    pub(super) fn add(&mut self, list: usize, id: u32) {
        assert!(self.room > 0, "the caller asks for room first");
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
                assert!(self.links.len() < END as usize, "links have 32 bits, and one value ends a list");
                self.links.push(link);
                self.links.len() as u32 - 1
            }
        };
    }

    /// Removes a rule from a list; false if it was not there.
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
