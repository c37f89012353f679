//! The ranked container: small numbers (partitions of a node, or packets of a line) ordered by rank, equal ones as they
//! came.
//!
//! Ranks of few bits stand in one list each, and a tree of bitmaps finds the first list that holds something: no step
//! depends on how many there are. Wider ranks are in a heap of four children a node.

/// No neighbour.
const NONE: u32 = u32::MAX;

/// The container.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    order: Order,
    /// By id.
    places: Vec<Place>,
    n: u32,
}

#[derive(Clone, Debug)]
enum Order {
    Buckets(Buckets),
    Heap { heap: Vec<u32>, next_seq: u64 },
}

/// Where an id stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: i64,
    /// The neighbours in its list; in a heap, the position and nothing.
    prev: u32,
    next: u32,
    /// Ties of the heap.
    seq: u64,
}

const ABSENT: Place = Place { rank: 0, prev: NONE, next: NONE, seq: 0 };

/// One list a rank.
#[derive(Clone, Debug)]
struct Buckets {
    /// First and last of each list.
    lists: Vec<[u32; 2]>,
    /// Which lists hold something; each word above says which words below are not zero.
    maps: Vec<Vec<u64>>,
}

impl Buckets {
    fn new(bits: u8) -> Self {
        let n = 1_usize << bits;
        let mut maps = vec![vec![0; n.div_ceil(64)]];
        while let Some(n @ 2..) = maps.last().map(Vec::len) {
            maps.push(vec![0; n.div_ceil(64)]);
        }
        Self { lists: vec![[NONE; 2]; n], maps }
    }

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
    }

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
    }

    /// The first list that holds something; the caller knows that there is one.
    #[inline]
    fn first(&self) -> usize {
        let down = |at: usize, map: &Vec<u64>| at * 64 + map[at].trailing_zeros() as usize;
        self.maps.iter().rev().fold(0, down)
    }

    fn last(&self) -> usize {
        let down = |at: usize, map: &Vec<u64>| at * 64 + 63 - map[at].leading_zeros() as usize;
        self.maps.iter().rev().fold(0, down)
    }
}

impl Ranked {
    /// A container for ranks of so many bits, or for all; ids may be below `n_ids`, or beyond at the cost of growing.
    pub(super) fn new(bits: Option<u8>, n_ids: usize) -> Self {
        let order = match bits {
            Some(bits) => Order::Buckets(Buckets::new(bits)),
            None => Order::Heap { heap: Vec::new(), next_seq: 0 },
        };
        Self { order, places: vec![ABSENT; n_ids], n: 0 }
    }

    /// Puts an id behind those of its rank. It must not be in.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, rank: i64) {
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, ABSENT);
        }
        self.n += 1;
        match &mut self.order {
            Order::Buckets(buckets) => {
                let rank = rank.clamp(0, buckets.lists.len() as i64 - 1);
                let list = &mut buckets.lists[rank as usize];
                let last = core::mem::replace(&mut list[1], id);
                self.places[id as usize] = Place { rank, prev: last, next: NONE, seq: 0 };
                if last == NONE {
                    list[0] = id;
                    buckets.set(rank as usize);
                } else {
                    self.places[last as usize].next = id;
                }
            }
            Order::Heap { heap, next_seq } => {
                self.places[id as usize] = Place { rank, prev: NONE, next: NONE, seq: *next_seq };
                *next_seq += 1;
                heap.push(id);
                let at = heap.len() - 1;
                up(heap, &mut self.places, at);
            }
        }
    }

    /// Takes an id out that is in.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        self.n -= 1;
        let place = self.places[id as usize];
        match &mut self.order {
            Order::Buckets(buckets) => {
                let list = &mut buckets.lists[place.rank as usize];
                match place.prev {
                    NONE => list[0] = place.next,
                    prev => self.places[prev as usize].next = place.next,
                }
                match place.next {
                    NONE => list[1] = place.prev,
                    next => self.places[next as usize].prev = place.prev,
                }
                if list[0] == NONE {
                    buckets.clear(place.rank as usize);
                }
            }
            Order::Heap { heap, .. } => {
                let at = place.prev as usize;
                heap.swap_remove(at);
                if at < heap.len() {
                    self.places[heap[at] as usize].prev = at as u32;
                    down(heap, &mut self.places, at);
                    up(heap, &mut self.places, at);
                }
            }
        }
    }

    /// Puts an id behind those of its new rank.
    #[inline]
    pub(super) fn move_to(&mut self, id: u32, rank: i64) {
        if let Order::Buckets(Buckets { lists, .. }) = &self.order
            && self.n == 1
            && rank.clamp(0, lists.len() as i64 - 1) == self.places[id as usize].rank
        {
            return;
        }
        self.remove(id);
        self.insert(id, rank);
    }

    /// The rank under which an id stands.
    #[inline]
    pub(super) fn rank(&self, id: u32) -> i64 {
        self.places[id as usize].rank
    }

    /// The rank under which an id would stand.
    #[inline]
    pub(super) fn brought_in(&self, rank: i64) -> i64 {
        match &self.order {
            Order::Buckets(buckets) => rank.clamp(0, buckets.lists.len() as i64 - 1),
            Order::Heap { .. } => rank,
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
            Order::Heap { heap, .. } => heap[0],
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
                let key = |id: &&u32| {
                    let place = &self.places[**id as usize];
                    (place.rank, u64::MAX - place.seq)
                };
                heap.iter().max_by_key(key).copied()
            }
        }
    }
}

fn before(places: &[Place], a: u32, b: u32) -> bool {
    let (a, b) = (&places[a as usize], &places[b as usize]);
    (a.rank, a.seq) < (b.rank, b.seq)
}

fn up(heap: &mut [u32], places: &mut [Place], mut at: usize) {
    let id = heap[at];
    while at > 0 {
        let parent = (at - 1) / 4;
        if !before(places, id, heap[parent]) {
            break;
        }
        heap[at] = heap[parent];
        places[heap[at] as usize].prev = at as u32;
        at = parent;
    }
    heap[at] = id;
    places[id as usize].prev = at as u32;
}

fn down(heap: &mut [u32], places: &mut [Place], mut at: usize) {
    let id = heap[at];
    loop {
        let first = at * 4 + 1;
        let children = first..heap.len().min(first + 4);
        let Some(least) = children.reduce(|a, b| if before(places, heap[b], heap[a]) { b } else { a }) else {
            break;
        };
        if !before(places, heap[least], id) {
            break;
        }
        heap[at] = heap[least];
        places[heap[at] as usize].prev = at as u32;
        at = least;
    }
    heap[at] = id;
    places[id as usize].prev = at as u32;
}

#[cfg(test)]
mod tests {
    use super::Ranked;
    use std::collections::BTreeMap;
    use weft_core::dice::Dice;

    /// If this fails, partitions are served out of order: the container differs from a sorted map.
    #[test]
    fn it_is_a_sorted_map_with_ties_as_they_came() {
        for bits in [Some(0), Some(1), Some(6), Some(7), Some(13), None] {
            let mut dice = Dice::from_seed(7);
            let mut ranked = Ranked::new(bits, 4);
            let mut known: BTreeMap<(i64, u64), u32> = BTreeMap::new();
            let mut at: Vec<Option<(i64, u64)>> = vec![None; 200];
            for seq in 0..20_000_u64 {
                let id = dice.below(200) as u32;
                let rank = ranked.brought_in(dice.below(1 << 14) as i64 - 100);
                match at[id as usize].take() {
                    Some(key) => {
                        known.remove(&key);
                        if dice.below(2) == 0 {
                            ranked.remove(id);
                            continue;
                        }
                        // One that is alone keeps its place, which nobody can tell.
                        ranked.move_to(id, rank);
                    }
                    None => ranked.insert(id, rank),
                }
                assert_eq!(ranked.rank(id), rank);
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
