//! The ranked container: small numbers (partitions of a node, or packets of a line) ordered by rank, equal ones as they
//! came.
//!
//! Ranks of few bits stand in one list each, and a tree of bitmaps finds the first list that holds something: no step
//! depends on how many there are. Where there are two lists at most, one is looked at after the other. Wider ranks are
//! in a heap of four children a node. What is taken from its root leaves a hole, which the next that comes fills: where
//! one comes for each that leaves, as on a link that is busy, one way down is saved for each, and what is less than all
//! others has no way at all. What is kept for each id lies with its owner ([`Places`]): packets have room for it in
//! their own words.

use super::packets::LINES_MAX;
use weft_ir::queue::{PACKETS_MAX, PARTITIONS_MAX, RANK_BITS_MAX};

/// No neighbour.
const NONE: u32 = u32::MAX;

/// The container. What it is has a number of its own: it is asked for at every turn.
#[derive(Clone, Debug)]
#[repr(u8)]
pub(super) enum Ranked {
    /// Ranks of a bit, or of none.
    Few(Few),
    Buckets(Buckets),
    Heap(Heap),
    /// A heap of which the first alone is taken out, or one after a look at all: nobody keeps their places.
    Unplaced(Heap),
}

/// What is kept for each id that is in: one word, and its rank. Who owns the ids has room for both.
pub(super) trait Places {
    /// Two numbers: the neighbours in the list of a rank, or the position in the heap and nothing.
    fn links(&self, id: u32) -> (u32, u32);
    /// Sets both.
    fn set_links(&mut self, id: u32, links: (u32, u32));
    /// The rank under which an id stands, as it was given.
    fn rank(&self, id: u32) -> i64;
    /// Sets it.
    fn set_rank(&mut self, id: u32, rank: i64);
}

/// Ranks alone: where ids are is not kept.
struct Unplaced<'p, P>(&'p mut P);

impl<P: Places> Places for Unplaced<'_, P> {
    fn links(&self, _id: u32) -> (u32, u32) {
        (NONE, NONE)
    }

    #[inline(always)]
    fn set_links(&mut self, _id: u32, _links: (u32, u32)) {}

    fn rank(&self, id: u32) -> i64 {
        self.0.rank(id)
    }

    fn set_rank(&mut self, id: u32, rank: i64) {
        self.0.set_rank(id, rank);
    }
}

/// An id, if there is one.
#[inline(always)]
fn some(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

/// A list: its first. Lists are rings, so that the first becomes the last by a step.
type List = u32;

/// Puts an id behind the last of a list; whether the list was empty.
#[inline(always)]
fn append(list: &mut List, id: u32, places: &mut impl Places) -> bool {
    let first = *list;
    if first == NONE {
        places.set_links(id, (id, id));
        *list = id;
        return true;
    }
    let (last, second) = places.links(first);
    places.set_links(id, (last, first));
    if last == first {
        places.set_links(first, (id, id));
        return false;
    }
    places.set_links(first, (id, second));
    let (before, _) = places.links(last);
    places.set_links(last, (before, id));
    false
}

/// Takes an id out of its list; whether the list is empty now.
#[inline(always)]
fn unlink(list: &mut List, id: u32, places: &mut impl Places) -> bool {
    let (prev, next) = places.links(id);
    if next == id {
        *list = NONE;
        return true;
    }
    // They may be one and the same.
    let (before, _) = places.links(prev);
    places.set_links(prev, (before, next));
    let (_, behind) = places.links(next);
    places.set_links(next, (prev, behind));
    if *list == id {
        *list = next;
    }
    false
}

/// Takes the first out of its list; whether the list is empty now.
#[inline(always)]
fn pop(list: &mut List, first: u32, places: &mut impl Places) -> bool {
    let (last, next) = places.links(first);
    if next == first {
        return true;
    }
    let (before, _) = places.links(last);
    places.set_links(last, (before, next));
    let (_, behind) = places.links(next);
    places.set_links(next, (last, behind));
    *list = next;
    false
}

/// Puts an id of a list behind the others.
#[inline(always)]
fn to_the_end(list: &mut List, id: u32, places: &mut impl Places) {
    if *list == id {
        *list = places.links(id).1;
    } else if places.links(*list).0 != id {
        unlink(list, id, places);
        append(list, id, places);
    }
}

/// All of a list.
fn each(list: List, places: &impl Places, ids: &mut Vec<u32>) {
    let mut at = list;
    while at != NONE {
        ids.push(at);
        let next = places.links(at).1;
        at = if next == list { NONE } else { next };
    }
}

/// The lists of two ranks.
#[derive(Clone, Debug)]
pub(super) struct Few {
    lists: [List; 2],
    /// 0 or 1.
    highest: i64,
}

impl Few {
    #[inline(always)]
    fn list(&self, rank: i64) -> usize {
        usize::from(rank >= 1) & self.highest as usize
    }
}

/// One list a rank.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// What is in an empty one is left over.
    lists: Box<[List]>,
    /// Which lists hold something, by bits; which words of those are not zero; and which words of these.
    low: Box<[u64]>,
    middle: Box<[u64]>,
    top: u64,
}

// Three maps find so many bits.
const _: () = assert!(RANK_BITS_MAX <= 18);

impl Buckets {
    fn new(bits: u8) -> Self {
        let n = 1_usize << bits.min(RANK_BITS_MAX);
        let words = |n: usize| vec![0; n.div_ceil(64)].into_boxed_slice();
        let low = words(n);
        Self { lists: vec![NONE; n].into(), middle: words(low.len()), low, top: 0 }
    }

    #[inline(always)]
    fn list(&self, rank: i64) -> usize {
        rank.clamp(0, self.lists.len() as i64 - 1) as usize
    }

    /// The first list that holds something.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        (self.top != 0).then(|| {
            let word = self.top.trailing_zeros() as usize;
            let word = word * 64 + self.middle[word].trailing_zeros() as usize;
            word * 64 + self.low[word].trailing_zeros() as usize
        })
    }

    fn last(&self) -> Option<usize> {
        let highest = |word: u64| 63 - word.leading_zeros() as usize;
        (self.top != 0).then(|| {
            let word = highest(self.top);
            let word = word * 64 + highest(self.middle[word]);
            word * 64 + highest(self.low[word])
        })
    }

    #[inline(always)]
    fn append(&mut self, list: usize, id: u32, places: &mut impl Places) {
        let word = &mut self.low[list / 64];
        let (known, bit) = (*word, 1 << (list % 64));
        if known & bit != 0 {
            append(&mut self.lists[list], id, places);
            return;
        }
        // What was in the list is not looked at: it may be far away.
        *word = known | bit;
        if known == 0 {
            self.middle[list >> 12] |= 1 << (list >> 6 & 63);
            self.top |= 1 << (list >> 12);
        }
        self.lists[list] = id;
        places.set_links(id, (id, id));
    }

    #[inline(always)]
    fn unlink(&mut self, list: usize, id: u32, places: &mut impl Places) {
        if unlink(&mut self.lists[list], id, places) {
            self.clear(list);
        }
    }

    #[inline(always)]
    fn clear(&mut self, list: usize) {
        let word = &mut self.low[list / 64];
        *word &= !(1 << (list % 64));
        if *word == 0 {
            let word = &mut self.middle[list >> 12];
            *word &= !(1 << (list >> 6 & 63));
            if *word == 0 {
                self.top &= !(1 << (list >> 12));
            }
        }
    }

    #[inline(always)]
    fn pop(&mut self, places: &mut impl Places) -> Option<u32> {
        let list = self.first()?;
        let first = &mut self.lists[list];
        let id = *first;
        if pop(first, id, places) {
            self.clear(list);
        }
        Some(id)
    }

    /// The lists that hold something, first to last.
    fn full(&self) -> impl Iterator<Item = List> {
        let words = self.low.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(move |(nth, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| self.lists[nth * 64 + bit])
        })
    }
}

/// An id in the heap: its rank, above all; behind that a number of those that came, so that ties are as they came; and
/// the id itself. One number, so that two are compared at once, and four lie in a line of the cache.
type Entry = u128;

/// Bits of an id: more than partitions there may be, or lines of packets.
const ID_BITS: u32 = 24;
/// Numbers for those that came, after which they are given anew.
const SEQS: u64 = 1 << (64 - ID_BITS);
const _: () = assert!(PACKETS_MAX as usize * LINES_MAX < 1 << ID_BITS && PARTITIONS_MAX < 1 << (ID_BITS - 1));

#[inline(always)]
fn entry(rank: i64, seq: u64, id: u32) -> Entry {
    let rank = rank as u64 ^ 1 << 63;
    Entry::from(rank) << 64 | Entry::from(seq << ID_BITS | u64::from(id))
}

#[inline(always)]
fn id_of(entry: Entry) -> u32 {
    entry as u32 & ((1 << ID_BITS) - 1)
}

/// What stands at the root while that is free: less than all entries.
const HOLE: Entry = 0;

/// All ranks.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    /// The root may be a [`HOLE`], others not.
    entries: Vec<Entry>,
    /// The first is 1: no entry is a hole.
    next_seq: u64,
}

impl Default for Heap {
    fn default() -> Self {
        Self { entries: Vec::new(), next_seq: 1 }
    }
}

impl Heap {
    #[inline(always)]
    fn new_entry(&mut self, rank: i64, id: u32, places: &mut impl Places) -> Entry {
        if self.next_seq == SEQS {
            self.count_anew(places);
        }
        self.next_seq += 1;
        entry(rank, self.next_seq - 1, id)
    }

    /// Gives those that are in the lowest numbers, in their order.
    #[cold]
    fn count_anew(&mut self, places: &mut impl Places) {
        self.fill(places);
        // What is sorted is a heap.
        self.entries.sort_unstable();
        for (at, known) in self.entries.iter_mut().enumerate() {
            let id = id_of(*known);
            *known = entry(places.rank(id), at as u64 + 1, id);
            places.set_links(id, (at as u32, NONE));
        }
        self.next_seq = self.entries.len() as u64 + 1;
    }

    /// Those that are in.
    #[inline(always)]
    fn known(&self) -> &[Entry] {
        match &self.entries[..] {
            [HOLE, known @ ..] | known => known,
        }
    }

    #[inline(always)]
    fn has_hole(&self) -> bool {
        self.entries.first() == Some(&HOLE)
    }

    /// Puts the last entry where the root is free.
    #[inline(always)]
    fn fill(&mut self, places: &mut impl Places) {
        if self.has_hole()
            && let Some(last) = self.entries.pop()
            && !self.entries.is_empty()
        {
            down(&mut self.entries, places, 0, last);
        }
    }

    #[inline(always)]
    fn push(&mut self, rank: i64, id: u32, places: &mut impl Places) {
        let new = self.new_entry(rank, id, places);
        if self.has_hole() {
            return down(&mut self.entries, places, 0, new);
        }
        let at = self.entries.len();
        self.entries.push(new);
        up(&mut self.entries, places, at, new);
    }

    /// Takes the first out.
    #[inline(always)]
    fn pop(&mut self, places: &mut impl Places) -> Option<u32> {
        self.fill(places);
        let first = self.entries.first_mut()?;
        Some(id_of(core::mem::replace(first, HOLE)))
    }

    /// The first: where the root is free one of those below it.
    #[inline(always)]
    fn first(&self) -> Option<u32> {
        let first = match self.entries.first()? {
            &HOLE => self.entries.iter().skip(1).take(4).min()?,
            first => first,
        };
        Some(id_of(*first))
    }

    #[inline]
    fn remove(&mut self, at: usize, places: &mut impl Places) {
        if at == 0 {
            self.entries[0] = HOLE;
            return;
        }
        let Some(last) = self.entries.pop() else { return };
        if at < self.entries.len() {
            self.replace(at, last, places);
        }
    }

    /// Where an id is, after a look at all.
    #[cold]
    fn find(&self, id: u32) -> Option<usize> {
        self.entries.iter().position(|entry| *entry != HOLE && id_of(*entry) == id)
    }

    /// Puts an entry in the place of another.
    #[inline]
    fn replace(&mut self, at: usize, new: Entry, places: &mut impl Places) {
        if self.entries[at] < new {
            down(&mut self.entries, places, at, new);
        } else {
            up(&mut self.entries, places, at, new);
        }
    }
}

/// Puts an entry into a hole, or above it.
fn up(heap: &mut [Entry], places: &mut impl Places, mut at: usize, new: Entry) {
    while at > 0 {
        let parent = (at - 1) / 4;
        let above = heap[parent];
        if above < new {
            break;
        }
        heap[at] = above;
        places.set_links(id_of(above), (at as u32, NONE));
        at = parent;
    }
    heap[at] = new;
    places.set_links(id_of(new), (at as u32, NONE));
}

/// Puts an entry into a hole, or below it.
fn down(heap: &mut [Entry], places: &mut impl Places, mut at: usize, new: Entry) {
    loop {
        let first = at * 4 + 1;
        let (least, below) = match heap.get(first..) {
            // Which it is cannot be foretold: no branch is taken for it.
            Some([a, b, c, d, ..]) => {
                let ab = if b < a { (first + 1, *b) } else { (first, *a) };
                let cd = if d < c { (first + 3, *d) } else { (first + 2, *c) };
                if cd.1 < ab.1 { cd } else { ab }
            }
            // Fewer than four are the last.
            Some([a, more @ ..]) => {
                let mut least = (first, *a);
                for (nth, entry) in more.iter().enumerate() {
                    if *entry < least.1 {
                        least = (first + 1 + nth, *entry);
                    }
                }
                least
            }
            _ => break,
        };
        if new < below {
            break;
        }
        heap[at] = below;
        places.set_links(id_of(below), (at as u32, NONE));
        at = least;
    }
    heap[at] = new;
    places.set_links(id_of(new), (at as u32, NONE));
}

impl Ranked {
    /// A container for ranks of so many bits, or for all.
    pub(super) fn new(bits: Option<u8>) -> Self {
        match bits {
            Some(bits @ 0..=1) => Self::Few(Few { lists: [NONE; 2], highest: i64::from(bits) }),
            Some(bits) => Self::Buckets(Buckets::new(bits)),
            None => Self::Heap(Heap::default()),
        }
    }

    /// As above, of which ids are taken out at the head; elsewhere seldom, or never.
    pub(super) fn popped(bits: Option<u8>) -> Self {
        match Self::new(bits) {
            Self::Heap(heap) => Self::Unplaced(heap),
            other => other,
        }
    }

    /// Puts an id behind those of its rank. It must not be in.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, rank: i64, places: &mut impl Places) {
        places.set_rank(id, rank);
        match self {
            Self::Few(few) => {
                append(&mut few.lists[few.list(rank)], id, places);
            }
            Self::Buckets(buckets) => buckets.append(buckets.list(rank), id, places),
            Self::Heap(heap) => heap.push(rank, id, places),
            Self::Unplaced(heap) => heap.push(rank, id, &mut Unplaced(places)),
        }
    }

    /// Takes an id out that is in.
    #[inline]
    pub(super) fn remove(&mut self, id: u32, places: &mut impl Places) {
        match self {
            Self::Few(few) => {
                unlink(&mut few.lists[few.list(places.rank(id))], id, places);
            }
            Self::Buckets(buckets) => buckets.unlink(buckets.list(places.rank(id)), id, places),
            Self::Heap(heap) => heap.remove(places.links(id).0 as usize, places),
            Self::Unplaced(heap) => {
                if let Some(at) = heap.find(id) {
                    heap.remove(at, &mut Unplaced(places));
                }
            }
        }
    }

    /// Takes the first out.
    #[inline(always)]
    pub(super) fn pop(&mut self, places: &mut impl Places) -> Option<u32> {
        match self {
            Self::Few(few) => {
                let list = few.lists.iter_mut().find(|list| **list != NONE)?;
                let first = *list;
                unlink(list, first, places);
                Some(first)
            }
            Self::Buckets(buckets) => buckets.pop(places),
            Self::Heap(heap) => heap.pop(places),
            Self::Unplaced(heap) => heap.pop(&mut Unplaced(places)),
        }
    }

    /// Puts an id behind those of its new rank.
    #[inline(never)]
    pub(super) fn move_to(&mut self, id: u32, rank: i64, places: &mut impl Places) {
        let known = places.rank(id);
        match self {
            Self::Few(few) => {
                let (from, to) = (few.list(known), few.list(rank));
                if from == to {
                    to_the_end(&mut few.lists[to], id, places);
                } else {
                    unlink(&mut few.lists[from], id, places);
                    append(&mut few.lists[to], id, places);
                }
            }
            Self::Buckets(buckets) => {
                let (from, to) = (buckets.list(known), buckets.list(rank));
                if from == to {
                    to_the_end(&mut buckets.lists[to], id, places);
                } else {
                    buckets.unlink(from, id, places);
                    buckets.append(to, id, places);
                }
            }
            Self::Heap(heap) => {
                let new = heap.new_entry(rank, id, places);
                heap.replace(places.links(id).0 as usize, new, places);
            }
            Self::Unplaced(heap) => {
                let places = &mut Unplaced(places);
                let new = heap.new_entry(rank, id, places);
                if let Some(at) = heap.find(id) {
                    heap.replace(at, new, places);
                }
            }
        }
        places.set_rank(id, rank);
    }

    /// Puts the first behind those of its new rank.
    #[inline(always)]
    pub(super) fn rotate(&mut self, id: u32, rank: i64, places: &mut impl Places) {
        if let Self::Few(Few { lists: [low, high], .. }) = self
            && places.rank(id) == rank
        {
            let list = if *low == NONE { high } else { low };
            *list = places.links(id).1;
            return;
        }
        self.move_to(id, rank, places);
    }

    /// Whether an id would stand elsewhere with this rank.
    #[inline]
    pub(super) fn would_move(&self, id: u32, rank: i64, places: &impl Places) -> bool {
        let known = places.rank(id);
        known != rank
            && match self {
                Self::Few(few) => few.list(known) != few.list(rank),
                Self::Buckets(buckets) => buckets.list(known) != buckets.list(rank),
                Self::Heap(_) | Self::Unplaced(_) => true,
            }
    }

    /// The first.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u32> {
        if let Self::Few(Few { lists: [low, high], .. }) = self {
            return some(if *low == NONE { *high } else { *low });
        }
        self.first_of_many()
    }

    #[inline(never)]
    fn first_of_many(&self) -> Option<u32> {
        match self {
            Self::Few(_) => None,
            Self::Buckets(buckets) => buckets.first().map(|list| buckets.lists[list]),
            Self::Heap(heap) | Self::Unplaced(heap) => heap.first(),
        }
    }

    /// The first of the highest rank.
    pub(super) fn first_of_last(&self) -> Option<u32> {
        match self {
            Self::Few(few) => few.lists.iter().rev().find_map(|first| some(*first)),
            Self::Buckets(buckets) => buckets.last().map(|list| buckets.lists[list]),
            Self::Heap(heap) | Self::Unplaced(heap) => {
                let known = heap.known();
                let highest = known.iter().max()? >> 64;
                known.iter().filter(|entry| **entry >> 64 == highest).min().map(|first| id_of(*first))
            }
        }
    }

    /// All that are in, first to last.
    pub(super) fn ids(&self, places: &impl Places) -> Vec<u32> {
        let mut ids = Vec::new();
        match self {
            Self::Few(few) => few.lists.iter().for_each(|list| each(*list, places, &mut ids)),
            Self::Buckets(buckets) => buckets.full().for_each(|list| each(list, places, &mut ids)),
            Self::Heap(heap) | Self::Unplaced(heap) => {
                let mut entries = heap.known().to_vec();
                entries.sort_unstable();
                ids.extend(entries.into_iter().map(id_of));
            }
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::{NONE, Places, Ranked, SEQS};
    use std::collections::BTreeMap;
    use weft_core::dice::Dice;

    /// Places for ids from 0 on.
    struct Table(Vec<Place>);

    #[derive(Clone, Copy, Debug)]
    struct Place {
        rank: i64,
        links: (u32, u32),
    }

    impl Table {
        fn new(n: usize) -> Self {
            Self(vec![Place { rank: 0, links: (NONE, NONE) }; n])
        }
    }

    impl Places for Table {
        fn links(&self, id: u32) -> (u32, u32) {
            self.0[id as usize].links
        }

        fn set_links(&mut self, id: u32, links: (u32, u32)) {
            self.0[id as usize].links = links;
        }

        fn rank(&self, id: u32) -> i64 {
            self.0[id as usize].rank
        }

        fn set_rank(&mut self, id: u32, rank: i64) {
            self.0[id as usize].rank = rank;
        }
    }

    /// If this fails, partitions are served out of order: the container differs from a sorted map.
    #[test]
    fn it_is_a_sorted_map_with_ties_as_they_came() {
        let placed = [Some(0), Some(1), Some(6), Some(7), Some(13), Some(18), None];
        let all = placed.map(|bits| (bits, Ranked::new(bits)));
        for (bits, mut ranked) in all.into_iter().chain([(None, Ranked::popped(None))]) {
            let (mut dice, mut places) = (Dice::from_seed(7), Table::new(200));
            if let Ranked::Heap(heap) | Ranked::Unplaced(heap) = &mut ranked {
                // Numbers come to their end on the way.
                heap.next_seq = SEQS - 10_000;
            }
            let mut known: BTreeMap<(i64, u64), u32> = BTreeMap::new();
            let mut at: Vec<Option<(i64, u64)>> = vec![None; 200];
            for seq in 0..20_000_u64 {
                let id = dice.below(200) as u32;
                let given = dice.below(1 << 14) as i64 - 100;
                let rank = bits.map_or(given, |bits| given.clamp(0, (1 << bits) - 1));
                match at[id as usize].take() {
                    Some(key) => {
                        known.remove(&key);
                        if dice.below(2) == 0 {
                            ranked.remove(id, &mut places);
                            if dice.below(2) == 0 {
                                // The first leaves, as it mostly is the first that does.
                                let first = known.pop_first().map(|(_, id)| id);
                                first.into_iter().for_each(|id| at[id as usize] = None);
                                assert_eq!(ranked.pop(&mut places), first, "{bits:?} at {seq}");
                            }
                            if seq % 50 == 0 {
                                assert_eq!(ranked.ids(&places), known.values().copied().collect::<Vec<_>>());
                            }
                            continue;
                        }
                        assert!(!ranked.would_move(id, places.rank(id), &places));
                        ranked.move_to(id, given, &mut places);
                    }
                    None => ranked.insert(id, given, &mut places),
                }
                assert_eq!(places.rank(id), given);
                known.insert((rank, seq), id);
                at[id as usize] = Some((rank, seq));
                assert_eq!(ranked.first(), known.values().next().copied(), "{bits:?} at {seq}");
                let highest = known.keys().next_back().map(|(rank, _)| *rank);
                let last = known.iter().find(|((rank, _), _)| Some(*rank) == highest).map(|(_, id)| *id);
                assert_eq!(ranked.first_of_last(), last, "{bits:?} at {seq}");
            }
        }
    }
}
