//! The index of a stripe: open addressing, linear probing, slots in the order of their home.
//!
//! A slot is `tag << 32 | row + 1`, 0 when free. The tag is the low half of the key's hash, and its high bits are
//! the slot's home, so slots can stand in the order of their tags (as in Robin Hood hashing): the farthest slot is
//! as near as it can be, and a larger index is filled from a smaller one in one ordered pass without a look at the
//! rows. In such a pass no slot gets farther from home: twice the homes serve the same queue. [`PROBES_MAX`]
//! therefore holds in every generation if insertions respect it. Behind the last home there is room for
//! [`PROBES_MAX`] slots, so nothing wraps.

use super::memory::Memory;
use super::storage::Stripe;
use core::hint::select_unpredictable;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Slots that a look-up visits at most. At the index's load of one quarter, random keys need about 5.
pub const PROBES_MAX: usize = 32;
/// Slots that an insertion moves aside at most.
pub const SHIFTS_MAX: usize = 1024;

const BITS_MIN: u32 = 5;
const BITS_MAX: u32 = 31;
/// Slots for each row when the index grows. So many that nearly every key stands in one of the first two slots of
/// its home, which a look-up tells apart without a branch.
const SLOTS_PER_ROW: usize = 4;
/// Sizes that an index may have.
pub(super) const GENERATIONS_MAX: usize = 32;

/// Generations of the index of a stripe with room for this many rows.
pub(super) fn generations(rows: u64) -> usize {
    let bits = (rows * SLOTS_PER_ROW as u64).next_power_of_two().ilog2().clamp(BITS_MIN, BITS_MAX);
    (bits - BITS_MIN + 1) as usize
}

/// The slots of a generation.
pub(super) fn slots_len(generation: usize) -> usize {
    (1 << (BITS_MIN as usize + generation)) + PROBES_MAX
}

/// Where an index begins, and by how many bits a tag has to be shifted to be its home: for compiled code
/// ([`super::near`]), in one word, and those of all stripes side by side.
#[derive(Debug)]
pub(super) struct Begin(AtomicU64);

/// The bits of a [`Begin`] below its shift; no address needs more.
pub(super) const ADDRESS_BITS: u32 = 56;

impl Begin {
    /// Of an index without rows: one home, and what a look-up reads of its slots.
    pub(super) fn none() -> Self {
        static NONE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        let begin = Self(AtomicU64::new(0));
        begin.set(&NONE, 1);
        begin
    }

    fn set(&self, slots: &[AtomicU64], homes: usize) {
        let address = slots.as_ptr().expose_provenance() as u64;
        assert_eq!(address >> ADDRESS_BITS, 0, "no address of a process is so high");
        self.0.store(u64::from(u32::BITS - homes.ilog2()) << ADDRESS_BITS | address, Release);
    }
}

/// Why a slot could not be placed: its neighbourhood is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowded;

/// The home of a tag among this many homes, a power of two. A product is cheaper than a shift by a variable.
#[inline(always)]
pub(super) fn home(tag: u32, homes: usize) -> usize {
    (u64::from(tag).wrapping_mul(homes as u64) >> 32) as usize
}

/// The homes of a generation's slots: those behind them take what overflows.
#[inline(always)]
fn homes(slots: &[AtomicU64]) -> usize {
    slots.len().wrapping_sub(PROBES_MAX)
}

#[inline(always)]
fn tag_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// Whether a slot is free (which wraps to the greatest) or of a later tag: then so are all behind it.
#[inline(always)]
fn is_past(slot: u64, tag: u32) -> bool {
    slot.wrapping_sub(1) > pack(tag, u32::MAX - 1)
}

/// What [`Stripe::find_near`] says.
pub(super) enum Near<T> {
    Found(T),
    Absent,
    /// Neither: [`Stripe::find`] has to look.
    Far,
}

/// What `probe` makes of the row with this tag, if it is in these slots, the first two of the tag's home. It is given
/// the row's number plus one.
#[inline(always)]
pub(super) fn near_of<T>(
    tag: u32,
    [first, second]: [u64; 2],
    probe: impl FnOnce(u32) -> Option<T>,
) -> Near<T> {
    // With the tag cleared, a slot that had it is the row's number and nothing else.
    let above = u64::from(tag) << 32;
    let in_first = first ^ above;
    // Which of the two it is is chance, and a branch on chance costs more than the rest of the look-up.
    let slot = select_unpredictable(in_first >> 32 == 0, in_first, second ^ above);
    if slot >> 32 == 0 {
        return probe(slot as u32).map_or(Near::Far, Near::Found);
    }
    if is_past(second, tag) { Near::Absent } else { Near::Far }
}

impl Stripe {
    /// [`near_of`] the first two slots of the tag's home, where nearly all rows are.
    #[inline(always)]
    pub(super) fn find_near<T>(&self, tag: u32, probe: impl FnOnce(u32) -> Option<T>) -> Near<T> {
        let Some([first, second, ..]) = self.window(tag) else { return Near::Absent };
        near_of(tag, [first, second].map(|slot| slot.load(Acquire)), probe)
    }

    /// What `probe` makes of the first row with this tag that it accepts; it is given the row's number plus one.
    #[inline(always)]
    pub(super) fn find<T>(&self, tag: u32, probe: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let slots = self.window(tag)?.iter().map(|slot| slot.load(Acquire));
        let same = slots.take_while(|slot| !is_past(*slot, tag)).filter(|slot| tag_of(*slot) == tag);
        same.map(|slot| slot as u32).find_map(probe)
    }

    /// The slots in which a tag may be.
    #[inline(always)]
    pub(super) fn window(&self, tag: u32) -> Option<&[AtomicU64; PROBES_MAX]> {
        let slots = self.indexes[self.generation.load(Acquire) as usize % GENERATIONS_MAX].get()?;
        let home = home(tag, homes(slots));
        slots.get(home..home + PROBES_MAX)?.try_into().ok()
    }

    /// Makes the index large enough for one more row.
    pub(super) fn reserve(&self, memory: &Memory, begin: &Begin) {
        let generation = self.generation.load(Relaxed) as usize;
        if self.indexes[generation].get().is_none() {
            let slots = self.make(generation, memory);
            begin.set(slots, homes(slots));
        } else if (self.rows.load(Relaxed) as usize + 1) * SLOTS_PER_ROW > slots_len(generation) - PROBES_MAX
            && generation + 1 < self.generations
        {
            self.grow(generation, memory, begin);
        }
    }

    /// Puts a row into the index.
    pub(super) fn place(&self, tag: u32, row: u32) -> Result<(), Crowded> {
        let slots = self.current();
        let homes = homes(slots);
        let start = home(tag, homes);
        if slots[start].load(Relaxed) == 0 {
            slots[start].store(pack(tag, row), Release);
            return Ok(());
        }
        let at = self.position(tag);
        let run = &slots[at..];
        let free = run.iter().take(SHIFTS_MAX).position(|s| s.load(Relaxed) == 0).ok_or(Crowded)?;
        let is_far = |i: usize| at + i + 1 - home(tag_of(run[i].load(Relaxed)), homes) >= PROBES_MAX;
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
        let slots = self.current();
        let start = home(tag, homes(slots));
        let row = |slot: &AtomicU64| slot.load(Relaxed) as u32 - 1;
        let same_home: Vec<u32> = slots[start..start + PROBES_MAX]
            .iter()
            .filter(|s| s.load(Relaxed) != 0 && home(tag_of(s.load(Relaxed)), homes(slots)) == start)
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
        let slots = self.current();
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
        let slots = self.current();
        let mut to = at;
        while let Some(next) = slots.get(to + 1).map(|s| s.load(Relaxed)) {
            if next == 0 || home(tag_of(next), homes(slots)) == to + 1 {
                break;
            }
            slots[to].store(next, Release);
            to += 1;
        }
        slots[to].store(0, Release);
        self.note_moved(to - at);
    }

    fn current(&self) -> &[AtomicU64] {
        let generation = self.generation.load(Relaxed) as usize;
        self.indexes[generation].get().expect("the generation in use is made")
    }

    /// The first slot from the tag's home on that is free or of a later tag; at most the end of its window.
    fn position(&self, tag: u32) -> usize {
        let slots = self.current();
        let start = home(tag, homes(slots));
        let later = |slot: &AtomicU64| {
            let slot = slot.load(Relaxed);
            slot == 0 || tag_of(slot) > tag
        };
        start + slots[start..start + PROBES_MAX].iter().position(later).unwrap_or(PROBES_MAX)
    }

    fn slot_of(&self, tag: u32, row: u32) -> Option<usize> {
        let slots = self.current();
        let start = home(tag, homes(slots));
        let wanted = pack(tag, row);
        slots[start..start + PROBES_MAX].iter().position(|s| s.load(Relaxed) == wanted).map(|i| start + i)
    }

    fn grow(&self, generation: usize, memory: &Memory, begin: &Begin) {
        let old = self.current();
        let new = self.make(generation + 1, memory);
        let mut end = 0;
        let mut moved = 0;
        for slot in old.iter().map(|s| s.load(Relaxed)).filter(|slot| *slot != 0) {
            let at = home(tag_of(slot), homes(new)).max(end);
            new[at].store(slot, Relaxed);
            end = at + 1;
            moved += 1;
        }
        self.generation.store(generation as u32 + 1, Release);
        begin.set(new, homes(new));
        self.note_moved(moved);
    }

    #[cold]
    fn make(&self, generation: usize, memory: &Memory) -> &[AtomicU64] {
        self.indexes[generation].get_or_init(|| memory.take(slots_len(generation)))
    }

    fn note_moved(&self, n: usize) {
        if n as u32 > self.moved_max.load(Relaxed) {
            self.moved_max.store(n as u32, Relaxed);
        }
    }
}

#[inline(always)]
fn pack(tag: u32, row: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(row + 1)
}
