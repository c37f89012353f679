//! Native functions that hash data, and that choose a slot by a hash.

use core::cell::RefCell;
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;
use weft_core::native::{Arg, Call, Ended, MAGLEV_SLOTS_MAX};

/// Entries of a Maglev table: a prime, and 64 per slot for the largest number of slots.
const MAGLEV_ENTRIES: usize = 65_537;
/// Number of tables that a worker caches.
const MAGLEV_TABLES_MAX: usize = 8;

pub(crate) fn xxh3(call: &Call<'_>, _out: &mut Vec<u8>) -> Ended {
    Ended::Int(XxHash3_64::oneshot(call.data()) as i64)
}

pub(crate) fn sha256(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    out.extend(Sha256::digest(call.data()));
    Ended::Bytes
}

thread_local! {
    /// The most recently used tables, the latest first.
    static TABLES: RefCell<Vec<Table>> = const { RefCell::new(Vec::new()) };
}

/// The slot of each entry.
struct Table {
    slots: usize,
    entries: Vec<u16>,
}

/// The Maglev slot of data among `n` slots. The tables of recent numbers of slots are cached per thread.
pub(crate) fn maglev_slot(call: &Call<'_>, _out: &mut Vec<u8>) -> Ended {
    let &[data, n] = call.args else { return Ended::Failed };
    let (Arg::Bytes(data), Arg::Int(n @ 1..=MAGLEV_SLOTS_MAX)) = (data, n) else { return Ended::Failed };
    let (entry, n) = ((XxHash3_64::oneshot(data) % MAGLEV_ENTRIES as u64) as usize, n as usize);
    let slot = TABLES.with_borrow_mut(|tables| {
        match tables.iter().position(|table| table.slots == n) {
            Some(0) => {}
            Some(at) => tables[..=at].rotate_right(1),
            None => {
                tables.truncate(MAGLEV_TABLES_MAX - 1);
                tables.insert(0, Table { slots: n, entries: maglev_table(n) });
            }
        }
        tables[0].entries[entry]
    });
    Ended::Int(i64::from(slot))
}

/// The table for this many slots: each takes its preferred free entry, in turn (Eisenbud et al., "Maglev: A Fast and
/// Reliable Software Network Load Balancer", NSDI 2016, section 3.4).
fn maglev_table(slots: usize) -> Vec<u16> {
    const FREE: u16 = u16::MAX;
    let preference = |slot: usize| {
        let hash = |seed| XxHash3_64::oneshot_with_seed(seed, &(slot as u64).to_le_bytes());
        let offset = (hash(1) % MAGLEV_ENTRIES as u64) as usize;
        let skip = (hash(2) % (MAGLEV_ENTRIES as u64 - 1)) as usize + 1;
        (offset, skip)
    };
    // The next entry of each slot, and its step.
    let mut preferences: Vec<(usize, usize)> = (0..slots).map(preference).collect();
    let mut entries = vec![FREE; MAGLEV_ENTRIES];
    for slot in (0..slots).cycle().take(MAGLEV_ENTRIES) {
        let (at, skip) = &mut preferences[slot];
        // The number of entries is a prime, so a slot visits all of them, and one of them is free.
        while entries[*at] != FREE {
            *at = (*at + *skip) % MAGLEV_ENTRIES;
        }
        entries[*at] = slot as u16;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_balanced_and_stable() {
        // A table that moved most keys would empty every cache behind it whenever a backend is added or removed.
        let (ten, eleven) = (maglev_table(10), maglev_table(11));
        for slot in 0..10 {
            let share = ten.iter().filter(|entry| **entry == slot).count();
            assert!((6553..=6554).contains(&share), "{slot}: {share}");
        }
        let moved = ten.iter().zip(&eleven).filter(|(a, b)| a != b && **b != 10).count();
        assert!(moved < MAGLEV_ENTRIES / 20, "{moved} entries moved between slots that stayed");
    }

    #[test]
    fn worker_caches_few_tables() {
        // A program with another n for each tuple would use unlimited memory.
        for n in 1..40 {
            maglev_slot(&Call { args: &[Arg::Bytes(b"k"), Arg::Int(n)], ..call() }, &mut Vec::new());
        }
        TABLES.with_borrow(|tables| assert_eq!(tables.len(), MAGLEV_TABLES_MAX));
        for n in [0, -1, MAGLEV_SLOTS_MAX + 1] {
            let ended =
                maglev_slot(&Call { args: &[Arg::Bytes(b"k"), Arg::Int(n)], ..call() }, &mut Vec::new());
            assert_eq!(ended, Ended::Failed);
        }
    }

    fn call() -> Call<'static> {
        Call { args: &[], now: weft_core::Time(0), rand: 0 }
    }
}
