//! The ranked container: small numbers (partitions of a node, or packets of a line) ordered by rank, equal ones as they
//! came.
//!
//! Ranks of few bits stand in one list each, and a tree of bitmaps finds the first list that holds something: no step
//! depends on how many there are. Wider ranks are in a heap of four children a node. What is kept for each id lies with
//! its owner ([`Places`]): packets have room for it in their own words.

/// No neighbour.
const NONE: u32 = u32::MAX;

/// The container.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    order: Order,
    n: u32,
}

#[derive(Clone, Debug)]
enum Order {
    Buckets(Buckets),
    Heap { heap: Vec<Entry>, next_seq: u64 },
}

/// What is kept for each id that is in: one word, and its rank. Who owns the ids has room for both.
pub(super) trait Places {
    /// Two numbers: the neighbours in the list of a rank, or the position in the heap and nothing.
    fn links(&self, id: u32) -> (u32, u32);
    /// Sets both.
    fn set_links(&mut self, id: u32, links: (u32, u32));
    /// The rank under which an id stands, as [`Ranked::brought_in`] has it or before that.
    fn rank(&self, id: u32) -> i64;
    /// Sets it.
    fn set_rank(&mut self, id: u32, rank: i64);
}

/// An id in the heap.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: i64,
    /// Ties are as they came.
    seq: u64,
    id: u32,
}

impl Entry {
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        (self.rank, self.seq) < (other.rank, other.seq)
    }
}

/// One list a rank.
#[derive(Clone, Debug)]
struct Buckets {
    /// First and last of each list.
    lists: Vec<[u32; 2]>,
    /// Which lists hold something. Each bit of a map says whether a word of the map below is zero, or a list empty;
    /// the last is `top`.
    maps: Vec<Vec<u64>>,
    top: u64,
}

impl Buckets {
    fn new(bits: u8) -> Self {
        let n = 1_usize << bits;
        let mut maps = Vec::new();
        let mut words = n.div_ceil(64);
        while words > 1 {
            maps.push(vec![0; words]);
            words = words.div_ceil(64);
        }
        Self { lists: vec![[NONE; 2]; n], maps, top: 0 }
    }

    #[inline]
    fn list(&self, rank: i64) -> usize {
        rank.clamp(0, self.lists.len() as i64 - 1) as usize
    }

    #[inline]
    fn set(&mut self, list: usize) {
        let mut at = list;
        for map in &mut self.maps {
            let word = &mut map[at / 64];
            let was = *word;
            *word |= 1 << (at % 64);
            if was != 0 {
                return;
            }
            at /= 64;
        }
        self.top |= 1 << at;
    }

    #[inline]
    fn clear(&mut self, list: usize) {
        let mut at = list;
        for map in &mut self.maps {
            let word = &mut map[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
        self.top &= !(1 << at);
    }

    /// The first list that holds something; the caller knows that there is one.
    #[inline]
    fn first(&self) -> usize {
        let down = |at: usize, map: &Vec<u64>| at * 64 + map[at].trailing_zeros() as usize;
        self.maps.iter().rev().fold(self.top.trailing_zeros() as usize, down)
    }

    fn last(&self) -> usize {
        let down = |at: usize, map: &Vec<u64>| at * 64 + 63 - map[at].leading_zeros() as usize;
        self.maps.iter().rev().fold(63 - self.top.leading_zeros() as usize, down)
    }

    #[inline]
    fn append(&mut self, list: usize, id: u32, places: &mut impl Places) {
        let ends = &mut self.lists[list];
        let last = core::mem::replace(&mut ends[1], id);
        places.set_links(id, (last, NONE));
        if last == NONE {
            ends[0] = id;
            self.set(list);
        } else {
            let (before, _) = places.links(last);
            places.set_links(last, (before, id));
        }
    }

    #[inline]
    fn unlink(&mut self, list: usize, id: u32, places: &mut impl Places) {
        let (prev, next) = places.links(id);
        let ends = &mut self.lists[list];
        if prev == NONE {
            ends[0] = next;
        } else {
            let (before, _) = places.links(prev);
            places.set_links(prev, (before, next));
        }
        if next == NONE {
            ends[1] = prev;
        } else {
            let (_, behind) = places.links(next);
            places.set_links(next, (prev, behind));
        }
        if ends[0] == NONE {
            self.clear(list);
        }
    }
}

impl Ranked {
    /// A container for ranks of so many bits, or for all.
    pub(super) fn new(bits: Option<u8>) -> Self {
        let order = match bits {
            Some(bits) => Order::Buckets(Buckets::new(bits)),
            None => Order::Heap { heap: Vec::new(), next_seq: 0 },
        };
        Self { order, n: 0 }
    }

    /// Puts an id behind those of its rank. It must not be in.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, rank: i64, places: &mut impl Places) {
        self.n += 1;
        places.set_rank(id, rank);
        match &mut self.order {
            Order::Buckets(buckets) => buckets.append(buckets.list(rank), id, places),
            Order::Heap { heap, next_seq } => {
                heap.push(Entry { rank, seq: *next_seq, id });
                *next_seq += 1;
                let last = heap.len() - 1;
                up(heap, places, last);
            }
        }
    }

    /// Takes an id out that is in.
    #[inline]
    pub(super) fn remove(&mut self, id: u32, places: &mut impl Places) {
        self.n -= 1;
        match &mut self.order {
            Order::Buckets(buckets) => buckets.unlink(buckets.list(places.rank(id)), id, places),
            Order::Heap { heap, .. } => {
                let at = places.links(id).0 as usize;
                heap.swap_remove(at);
                if at < heap.len() {
                    down(heap, places, at);
                    up(heap, places, at);
                }
            }
        }
    }

    /// Puts an id behind those of its new rank.
    #[inline]
    pub(super) fn move_to(&mut self, id: u32, rank: i64, places: &mut impl Places) {
        if let Order::Buckets(buckets) = &mut self.order {
            let (from, to) = (buckets.list(places.rank(id)), buckets.list(rank));
            places.set_rank(id, rank);
            // One that is last of its rank stays there.
            if from != to || places.links(id).1 != NONE {
                buckets.unlink(from, id, places);
                buckets.append(to, id, places);
            }
            return;
        }
        self.remove(id, places);
        self.insert(id, rank, places);
    }

    /// Whether an id would stand elsewhere with this rank.
    #[inline]
    pub(super) fn would_move(&self, id: u32, rank: i64, places: &impl Places) -> bool {
        let known = places.rank(id);
        known != rank
            && match &self.order {
                Order::Buckets(buckets) => buckets.list(known) != buckets.list(rank),
                Order::Heap { .. } => true,
            }
    }

    /// The first.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        if self.n == 0 {
            return None;
        }
        Some(match &self.order {
            Order::Buckets(buckets) => buckets.lists[buckets.first()][0],
            Order::Heap { heap, .. } => heap[0].id,
        })
    }

    /// The first of the highest rank.
    pub(super) fn first_of_last(&self) -> Option<u32> {
        if self.n == 0 {
            return None;
        }
        match &self.order {
            Order::Buckets(buckets) => Some(buckets.lists[buckets.last()][0]),
            Order::Heap { heap, .. } => {
                heap.iter().max_by_key(|entry| (entry.rank, u64::MAX - entry.seq)).map(|entry| entry.id)
            }
        }
    }

    /// All that are in, in no order.
    pub(super) fn ids(&self, places: &impl Places) -> Vec<u32> {
        match &self.order {
            Order::Heap { heap, .. } => heap.iter().map(|entry| entry.id).collect(),
            Order::Buckets(buckets) => {
                let mut ids = Vec::with_capacity(self.n as usize);
                for [first, _] in &buckets.lists {
                    let mut at = *first;
                    while at != NONE {
                        ids.push(at);
                        at = places.links(at).1;
                    }
                }
                ids
            }
        }
    }
}

fn up(heap: &mut [Entry], places: &mut impl Places, mut at: usize) {
    let entry = heap[at];
    while at > 0 {
        let parent = (at - 1) / 4;
        if !entry.is_before(&heap[parent]) {
            break;
        }
        heap[at] = heap[parent];
        places.set_links(heap[at].id, (at as u32, NONE));
        at = parent;
    }
    heap[at] = entry;
    places.set_links(entry.id, (at as u32, NONE));
}

fn down(heap: &mut [Entry], places: &mut impl Places, mut at: usize) {
    let entry = heap[at];
    loop {
        let first = at * 4 + 1;
        let children = first..heap.len().min(first + 4);
        let Some(least) = children.reduce(|a, b| if heap[b].is_before(&heap[a]) { b } else { a }) else {
            break;
        };
        if !heap[least].is_before(&entry) {
            break;
        }
        heap[at] = heap[least];
        places.set_links(heap[at].id, (at as u32, NONE));
        at = least;
    }
    heap[at] = entry;
    places.set_links(entry.id, (at as u32, NONE));
}

#[cfg(test)]
mod tests {
    use super::{NONE, Places, Ranked};
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
        for bits in [Some(0), Some(1), Some(6), Some(7), Some(13), None] {
            let mut dice = Dice::from_seed(7);
            let (mut ranked, mut places) = (Ranked::new(bits), Table::new(200));
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
