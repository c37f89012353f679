//! The index of a stripe: open addressing, linear probing, slots sorted by home.
//!
//! A slot is `tag << 32 | row + 1`, 0 when free. The tag is the low half of the key's hash, and its high bits are the
//! slot's home. Slots are sorted by tag, as in Robin Hood hashing. So the longest distance from home is minimal, and
//! growth fills the larger index in one ordered pass without reading rows.
//!
//! Behind the last home there is space for as many slots as the index can hold. So no probe wraps, and each row has a
//! slot for any tags. A secret of the node randomizes the distances from home ([`crate::hash`]): at a load of one
//! quarter, nearly all keys are in the first two slots of their home.

use super::memory::Memory;
use super::storage::Stripe;
use core::hint::select_unpredictable;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

const BITS_MIN: u32 = 5;
const BITS_MAX: u32 = 31;
/// Slots per row when the index grows. With this many, nearly every key is in one of the first two slots of its home,
/// which a look-up distinguishes without a branch.
const SLOTS_PER_ROW: usize = 4;
/// Number of sizes of an index.
pub(super) const GENERATIONS_MAX: usize = 32;
const _: () =
    assert!(((BITS_MAX - BITS_MIN) as usize) < GENERATIONS_MAX && GENERATIONS_MAX.is_power_of_two());

/// Generations of the index of a stripe with room for this many rows.
pub(super) fn generations(rows: u64) -> usize {
    let bits = (rows * SLOTS_PER_ROW as u64).next_power_of_two().ilog2().clamp(BITS_MIN, BITS_MAX);
    (bits - BITS_MIN + 1) as usize
}

/// The number of homes of a generation.
#[inline(always)]
fn homes_len(generation: usize) -> usize {
    1 << (BITS_MIN as usize + generation)
}

/// The number of slots of a generation: its homes, and behind the last one as many as it holds rows.
pub(super) fn slots_len(generation: usize) -> usize {
    let homes = homes_len(generation);
    homes + homes / SLOTS_PER_ROW
}

/// The address of an index and the shift from tag to home in one word, for compiled code ([`super::jit_layout`]). The
/// words of all stripes are adjacent.
#[derive(Debug)]
pub(super) struct Begin(AtomicU64);

/// The bits of a [`Begin`] below the shift; no address needs more.
pub(super) const ADDRESS_BITS: u32 = 56;

impl Begin {
    /// For an index without rows: one home, with the two slots that a look-up reads.
    pub(super) fn none() -> Self {
        static NONE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        let begin = Self(AtomicU64::new(0));
        begin.set(&NONE, 1);
        begin
    }

    /// Publishes the address and size of the current slots in one word.
    fn set(&self, slots: &[AtomicU64], homes: usize) {
        let address = slots.as_ptr().expose_provenance() as u64;
        assert_eq!(address >> ADDRESS_BITS, 0, "user addresses have fewer bits");
        assert!(homes.is_power_of_two() && homes < slots.len(), "two slots can be read at each home");
        self.0.store(u64::from(u32::BITS - homes.ilog2()) << ADDRESS_BITS | address, Release);
    }
}

/// The home of a tag among `homes` homes, a power of two. A product is cheaper than a variable shift.
#[inline(always)]
pub(super) fn home(tag: u32, homes: usize) -> usize {
    (u64::from(tag).wrapping_mul(homes as u64) >> 32) as usize
}

/// The number of homes among a generation's slots: the slots behind them, a quarter as many, take the overflow.
#[inline(always)]
fn homes(slots: &[AtomicU64]) -> usize {
    1 << slots.len().ilog2()
}

#[inline(always)]
fn tag_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// Whether a slot is free (which wraps to the greatest value) or has a greater tag: then all slots behind it are or
/// have, too.
#[inline(always)]
fn is_past(slot: u64, tag: u32) -> bool {
    slot.wrapping_sub(1) > pack(tag, u32::MAX - 1)
}

/// As [`is_past`], and correct for the greatest tag too, for which that function does not detect free slots.
#[inline(always)]
fn is_end(slot: u64, tag: u32) -> bool {
    slot == 0 || is_past(slot, tag)
}

/// The result of [`Stripe::find_at_home`].
pub(super) enum HomeProbe<T> {
    Found(T),
    Absent,
    /// Unknown: [`Stripe::find`] has to search.
    Elsewhere,
}

/// The result of `probe` for the row with this tag, if it is in these slots, the first two of the tag's home. `probe`
/// gets the row's number plus one.
#[inline(always)]
pub(super) fn probe_home<T>(
    tag: u32,
    [first, second]: [u64; 2],
    probe: impl FnOnce(u32) -> Option<T>,
) -> HomeProbe<T> {
    // With the tag cleared, a slot with this tag is exactly the row's number.
    let above = u64::from(tag) << 32;
    let in_first = first ^ above;
    // The choice is random, and a mispredicted branch costs more than the rest of the look-up.
    let slot = select_unpredictable(in_first >> 32 == 0, in_first, second ^ above);
    if slot >> 32 == 0 {
        return probe(slot as u32).map_or(HomeProbe::Elsewhere, HomeProbe::Found);
    }
    if is_past(second, tag) { HomeProbe::Absent } else { HomeProbe::Elsewhere }
}

impl Stripe {
    /// [`probe_home`] on the first two slots of the tag's home, where nearly all rows are.
    #[inline(always)]
    pub(super) fn find_at_home<T>(&self, tag: u32, probe: impl FnOnce(u32) -> Option<T>) -> HomeProbe<T> {
        let Some([first, second, ..]) = self.slots_from(tag) else { return HomeProbe::Absent };
        probe_home(tag, [first, second].map(|slot| slot.load(Acquire)), probe)
    }

    /// The first result of `probe` among the rows with this tag. `probe` gets the row's number plus one.
    #[inline(always)]
    pub(super) fn find<T>(&self, tag: u32, probe: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let slots = self.slots_from(tag)?.iter().map(|slot| slot.load(Acquire));
        let same = slots.take_while(|slot| !is_end(*slot, tag)).filter(|slot| tag_of(*slot) == tag);
        same.map(|slot| slot as u32).find_map(probe)
    }

    /// The slots from a tag's home on. The tag is in front of the first slot that is free or has a greater tag.
    #[inline(always)]
    pub(super) fn slots_from(&self, tag: u32) -> Option<&[AtomicU64]> {
        let generation = self.generation.load(Acquire) as usize % GENERATIONS_MAX;
        self.indexes[generation].get()?.get(home(tag, homes_len(generation))..)
    }

    /// Grows the index for one more row, if necessary.
    pub(super) fn reserve(&self, memory: &Memory, begin: &Begin) {
        let generation = self.generation.load(Relaxed) as usize;
        if self.indexes[generation].get().is_none() {
            let slots = self.make(generation, memory);
            begin.set(slots, homes(slots));
        } else if (self.rows.load(Relaxed) as usize + 1) * SLOTS_PER_ROW > homes(self.current())
            && generation + 1 < self.generations
        {
            self.grow(generation, memory, begin);
        }
    }

    /// Adds a row to the index, which has space for it ([`Stripe::reserve`]).
    pub(super) fn add_row(&self, tag: u32, row: u32) {
        let slots = self.current();
        let start = home(tag, homes(slots));
        if slots[start].load(Relaxed) == 0 {
            slots[start].store(pack(tag, row), Release);
            return;
        }
        let run = &slots[self.position(tag)..];
        let free = run.iter().position(|slot| slot.load(Relaxed) == 0);
        let free = free.expect("each row has a slot after the last home");
        // Backwards from the free slot: a lock-free reader may see a slot twice, but misses none.
        for i in (0..free).rev() {
            run[i + 1].store(run[i].load(Relaxed), Release);
        }
        run[0].store(pack(tag, row), Release);
        self.note_moved(free);
    }

    /// Removes a row from the index; the slots behind it move up.
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
        self.indexes[generation].get().expect("the current generation is allocated")
    }

    /// The first slot from the tag's home on that is free or has a greater tag.
    fn position(&self, tag: u32) -> usize {
        let slots = self.current();
        let start = home(tag, homes(slots));
        let is_later = |slot: &AtomicU64| is_end(slot.load(Relaxed), tag);
        start + slots[start..].iter().position(is_later).unwrap_or(slots.len() - start)
    }

    /// Finds the slot with this tag and row; None if it is not there.
    fn slot_of(&self, tag: u32, row: u32) -> Option<usize> {
        let slots = self.current();
        let start = home(tag, homes(slots));
        let wanted = pack(tag, row);
        let mut run =
            slots[start..].iter().map(|slot| slot.load(Relaxed)).take_while(|slot| !is_end(*slot, tag));
        run.position(|slot| slot == wanted).map(|i| start + i)
    }

    /// Copies all slots to a table of the next generation, and publishes it.
    fn grow(&self, generation: usize, memory: &Memory, begin: &Begin) {
        assert!(generation + 1 < self.generations, "the index of a full stripe is large enough");
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
        assert!(end <= new.len(), "behind the last home there is a slot for each row");
        self.generation.store(generation as u32 + 1, Release);
        begin.set(new, homes(new));
        self.note_moved(moved);
    }

    #[cold]
    fn make(&self, generation: usize, memory: &Memory) -> &[AtomicU64] {
        self.indexes[generation].get_or_init(|| memory.take(slots_len(generation)))
    }

    /// Records the largest number of slots that one change moved.
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

#[cfg(test)]
mod tests {
    use super::super::{Insert, Table, TableSpec};
    use super::*;
    use crate::hash::{self, HashKey};
    use crate::table::ColumnSpec;
    use crate::{Time, Type};

    const N: usize = 20_000;

    fn table(ty: Type, hash: HashKey) -> Table {
        Table::new(TableSpec::new("t", vec![ColumnSpec::new("key", ty)], Vec::new(), N as u64), hash)
    }

    /// The mean and maximum distance of rows from their homes.
    fn distances(table: &Table) -> (f64, usize) {
        let of_stripe = |stripe: &Stripe| {
            let slots = stripe.current();
            let taken =
                slots.iter().map(|slot| slot.load(Relaxed)).enumerate().filter(|(_, slot)| *slot != 0);
            taken.map(|(at, slot)| at - home(tag_of(slot), homes(slots))).collect::<Vec<_>>()
        };
        let all: Vec<usize> = table.stripes.iter().flat_map(of_stripe).collect();
        assert_eq!(all.len(), N);
        (all.iter().sum::<usize>() as f64 / N as f64, all.into_iter().max().unwrap_or(0))
    }

    /// The greatest tag belongs to one key in 2^32: no test with random keys would find that it has no slot.
    #[test]
    fn greatest_tag_is_indexed() {
        let table = table(Type::Uint(64), HashKey::from_seed(1));
        let (stripe, rows) = (&table.stripes[0], 3000);
        for row in 0..rows {
            stripe.rows.store(row, Relaxed);
            stripe.reserve(&table.memory, &table.begins[0]);
            stripe.add_row(if row % 7 == 0 { u32::MAX - 1 } else { u32::MAX }, row);
        }
        let has = |tag: u32, row: u32| stripe.find(tag, |number| (number == row + 1).then_some(())).is_some();
        assert!((0..rows).all(|row| has(u32::MAX, row) != (row % 7 == 0)));
        (0..rows).for_each(|row| stripe.displace(if row % 7 == 0 { u32::MAX - 1 } else { u32::MAX }, row));
        assert!((0..rows).all(|row| !has(u32::MAX, row) && !has(u32::MAX - 1, row)));
        assert!(stripe.current().iter().all(|slot| slot.load(Relaxed) == 0));
    }

    /// A peer without the secret, or keys with a pattern, must not increase the distances from home: a pattern that
    /// survives the hash could slow down every look-up.
    #[test]
    fn peer_keys_stay_near_home() {
        if cfg!(miri) {
            return;
        }
        let other = HashKey::from_seed(99);
        let meets = |hash: HashKey| move |key: &u64| hash.hash_word(*key) as u32 >> 23 == 0;
        let words: [(&str, Vec<u64>); 8] = [
            (
                "that meet under the public key",
                (0..).filter(|key: &u64| hash::hash_word(*key) as u32 >> 23 == 0).take(N).collect(),
            ),
            ("that meet under another secret", (0..).filter(meets(other)).take(N).collect()),
            ("one after the other", (0..N as u64).collect()),
            ("in the upper bytes", (0..N as u64).map(|n| n << 48).collect()),
            ("in the middle", (0..N as u64).map(|n| n << 24).collect()),
            ("twice in a word", (0..N as u64).map(|n| n << 32 | n).collect()),
            ("close to a known constant", (0..N as u64).map(|n| n ^ hash::KEYS[0]).collect()),
            ("in steps of a known constant", (0..N as u64).map(|n| n.wrapping_mul(hash::KEYS[1])).collect()),
        ];
        for (what, keys) in &words {
            for seed in 0..6 {
                let table = table(Type::Uint(64), HashKey::from_seed(seed));
                for key in keys {
                    assert!(matches!(table.insert_int(*key, Time(0)), Insert::New(_)));
                }
                let (mean, max) = distances(&table);
                assert!(mean < 0.3 && max <= 16, "keys {what}, seed {seed}: {mean} {max}");
            }
        }
        let zero = hash::KEYS[0].to_le_bytes();
        let texts: [(&str, Vec<Vec<u8>>); 3] = [
            (
                "whose product is 0 under the public key",
                (0..N as u64).map(|n| [zero, n.to_le_bytes()].concat()).collect(),
            ),
            ("of digits", (0..N).map(|n| n.to_string().into_bytes()).collect()),
            (
                "of 40 bytes that differ in one place",
                (0..N).map(|n| format!("{:030}{n:010}", 0).into_bytes()).collect(),
            ),
        ];
        for (what, keys) in &texts {
            for seed in 0..6 {
                let table = table(Type::Text(Some(64)), HashKey::from_seed(seed));
                for key in keys {
                    assert!(matches!(table.insert_bytes(key, Time(0)), Insert::New(_)));
                }
                let (mean, max) = distances(&table);
                assert!(mean < 0.3 && max <= 16, "keys {what}, seed {seed}: {mean} {max}");
            }
        }
    }
}
