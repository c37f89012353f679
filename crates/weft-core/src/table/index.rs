//! The index of a stripe: open addressing, linear probing, slots in the order of their home.
//!
//! A slot is `tag << 32 | row + 1`, 0 when free. The tag is the low half of the key's hash, and its high bits are
//! the slot's home, so slots can stand in the order of their tags (as in Robin Hood hashing): the farthest slot is
//! as near as it can be, and a larger index is filled from a smaller one in one ordered pass without a look at the
//! rows. In such a pass no slot gets farther from home: twice the homes serve the same queue. [`PROBES_MAX`]
//! therefore holds in every generation if insertions respect it. Behind the last home there is room for
//! [`PROBES_MAX`] slots, so nothing wraps.

use super::storage::Stripe;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Slots that a look-up visits at most. At the index's load of one half, random keys need about 8.
pub const PROBES_MAX: usize = 32;
/// Slots that an insertion moves aside at most.
pub const SHIFTS_MAX: usize = 1024;

const BITS_MIN: u32 = 4;
/// Slots that a look-up compares at once.
const GROUP: usize = 4;

/// Generations of the index of a stripe with room for this many rows.
pub(super) fn generations(rows: u64) -> usize {
    let bits = (rows * 2).next_power_of_two().ilog2().clamp(BITS_MIN, 31);
    (bits - BITS_MIN + 1) as usize
}

/// Slots of a generation.
pub(super) fn slots_len(generation: usize) -> usize {
    (1 << (BITS_MIN as usize + generation)) + PROBES_MAX
}

/// Why a slot could not be placed: its neighbourhood is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowded;

#[inline(always)]
fn home(tag: u32, generation: u32) -> usize {
    (tag >> ((32 - BITS_MIN).wrapping_sub(generation) & 31)) as usize
}

#[inline(always)]
fn tag_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

impl Stripe {
    /// The row with this tag for which `same` holds.
    #[inline(always)]
    pub(super) fn find(&self, tag: u32, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        let generation = self.generation.load(Acquire);
        let slots = self.indexes.get(generation as usize)?.get()?;
        let home = home(tag, generation);
        let window: &[AtomicU64; PROBES_MAX] = slots.get(home..)?.first_chunk()?;
        // Four at a time and without a branch for each: where in a group a key stands is chance, and a branch on
        // chance costs more than the comparisons.
        for group in window.as_chunks::<GROUP>().0 {
            let slots = group.each_ref().map(|slot| slot.load(Acquire));
            let hit = |i: usize| u32::from(tag_of(slots[i]) == tag) << i;
            let mut hits = hit(0) | hit(1) | hit(2) | hit(3);
            while hits != 0 {
                let slot = group[hits.trailing_zeros() as usize % GROUP].load(Acquire);
                let row = (slot as u32).wrapping_sub(1);
                if same(row) {
                    return Some(row);
                }
                hits &= hits - 1;
            }
            // Free (which wraps to the greatest) or of a later tag: then so are all behind it.
            if slots[GROUP - 1].wrapping_sub(1) > pack(tag, u32::MAX - 1) {
                return None;
            }
        }
        None
    }

    /// Makes the index large enough for one more row.
    pub(super) fn reserve(&self) {
        let generation = self.generation.load(Relaxed) as usize;
        if self.indexes[generation].get().is_none() {
            self.make(generation);
        } else if (self.rows.load(Relaxed) as usize + 1) * 2 > slots_len(generation) - PROBES_MAX
            && generation + 1 < self.indexes.len()
        {
            self.grow(generation);
        }
    }

    /// Puts a row into the index.
    pub(super) fn place(&self, tag: u32, row: u32) -> Result<(), Crowded> {
        let (slots, generation) = self.current();
        let at = self.position(tag);
        let run = &slots[at..];
        let free = run.iter().take(SHIFTS_MAX).position(|s| s.load(Relaxed) == 0).ok_or(Crowded)?;
        let start = home(tag, generation);
        let is_far = |i: usize| at + i + 1 - home(tag_of(run[i].load(Relaxed)), generation) >= PROBES_MAX;
        if at - start >= PROBES_MAX || (0..free).any(is_far) {
            return Err(Crowded);
        }
        // From the free slot backwards: a reader without a lock may see a slot twice, but misses none.
        for i in (0..free).rev() {
            run[i + 1].store(run[i].load(Relaxed), Release);
        }
        run[0].store(pack(tag, row), Release);
        self.note_moved(free);
        Ok(())
    }

    /// The rows that may make way for a key whose neighbourhood is crowded: those of the same home, or else the one
    /// row whose slot the key could take.
    pub(super) fn crowd(&self, tag: u32) -> Vec<u32> {
        let (slots, generation) = self.current();
        let start = home(tag, generation);
        let row = |slot: &AtomicU64| slot.load(Relaxed) as u32 - 1;
        let same_home: Vec<u32> = slots[start..start + PROBES_MAX]
            .iter()
            .filter(|s| s.load(Relaxed) != 0 && home(tag_of(s.load(Relaxed)), generation) == start)
            .map(row)
            .collect();
        if !same_home.is_empty() {
            return same_home;
        }
        let at = self.position(tag).min(start + PROBES_MAX - 1);
        if slots[at].load(Relaxed) == 0 { Vec::new() } else { vec![row(&slots[at])] }
    }

    /// Gives the slot of a row that [`Stripe::crowd`] named to another row.
    pub(super) fn replace(&self, old_tag: u32, old_row: u32, tag: u32, row: u32) {
        let Some(mut at) = self.slot_of(old_tag, old_row) else { return };
        let slots = self.current().0;
        // Between the two are slots of the same home alone, so all of them stay in their window.
        while at > 0 && tag_of(slots[at - 1].load(Relaxed)) > tag {
            slots[at].store(slots[at - 1].load(Relaxed), Release);
            at -= 1;
        }
        let before = |slot: u64| slot != 0 && tag_of(slot) < tag;
        while before(slots[at + 1].load(Relaxed)) {
            slots[at].store(slots[at + 1].load(Relaxed), Release);
            at += 1;
        }
        slots[at].store(pack(tag, row), Release);
    }

    /// Takes a row out of the index; the slots behind it move up.
    pub(super) fn displace(&self, tag: u32, row: u32) {
        let Some(at) = self.slot_of(tag, row) else { return };
        let (slots, generation) = self.current();
        let mut to = at;
        while let Some(next) = slots.get(to + 1).map(|s| s.load(Relaxed)) {
            if next == 0 || home(tag_of(next), generation) == to + 1 {
                break;
            }
            slots[to].store(next, Release);
            to += 1;
        }
        slots[to].store(0, Release);
        self.note_moved(to - at);
    }

    fn current(&self) -> (&[AtomicU64], u32) {
        let generation = self.generation.load(Relaxed);
        let slots = self.indexes[generation as usize].get().expect("the generation in use is made");
        (slots, generation)
    }

    /// The first slot from the tag's home on that is free or of a later tag; at most the end of its window.
    fn position(&self, tag: u32) -> usize {
        let (slots, generation) = self.current();
        let start = home(tag, generation);
        let later = |slot: &AtomicU64| {
            let slot = slot.load(Relaxed);
            slot == 0 || tag_of(slot) > tag
        };
        start + slots[start..start + PROBES_MAX].iter().position(later).unwrap_or(PROBES_MAX)
    }

    fn slot_of(&self, tag: u32, row: u32) -> Option<usize> {
        let (slots, generation) = self.current();
        let start = home(tag, generation);
        let wanted = pack(tag, row);
        slots[start..start + PROBES_MAX].iter().position(|s| s.load(Relaxed) == wanted).map(|i| start + i)
    }

    fn grow(&self, generation: usize) {
        let old = self.current().0;
        self.make(generation + 1);
        let new = self.indexes[generation + 1].get().expect("just made");
        let mut end = 0;
        let mut moved = 0;
        for slot in old.iter().map(|s| s.load(Relaxed)).filter(|slot| *slot != 0) {
            let at = home(tag_of(slot), generation as u32 + 1).max(end);
            new[at].store(slot, Relaxed);
            end = at + 1;
            moved += 1;
        }
        self.generation.store(generation as u32 + 1, Release);
        self.note_moved(moved);
    }

    #[cold]
    fn make(&self, generation: usize) {
        self.indexes[generation]
            .get_or_init(|| (0..slots_len(generation)).map(|_| AtomicU64::new(0)).collect());
    }

    fn note_moved(&self, n: usize) {
        if n as u32 > self.moved_max.load(Relaxed) {
            self.moved_max.store(n as u32, Relaxed);
        }
    }
}

fn pack(tag: u32, row: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(row + 1)
}
