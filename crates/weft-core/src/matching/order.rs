//! Priorities for rows that come and go: numbers in the order of the rows, with room between them.
//!
//! Where the column of the order is the whole key and fits, a row's place is its value. Otherwise rows have labels, by
//! what they are ordered by: one word, where that column and the key are narrow, of which a line of memory has eight. A
//! row that comes between two others gets a label between theirs: in the middle, or near the last one of a run, of
//! which more will come. Where there is none left, the labels of as few neighbours as leave room are spread anew, with
//! half of the room where a run goes on. Source: M. A. Bender and others, "Two simplified algorithms for maintaining
//! order in a list" (ESA 2002), section 2.

use super::MatchSpec;
use super::codec::{self, Cell};
use crate::table::TableSpec;
use crate::types::Type;
use std::collections::BTreeMap;

/// Labels are below this.
const LABELS: u64 = 1 << 32;
/// Distance to the last label, or the first, of a row that comes behind all others or before them: of the nth, the nth
/// part of this. So much is never used up, and the first few have room between them for many.
const STEP: u64 = 1 << 26;
/// Distance to the last one of a run that has others behind it, if there is room for [`RUN_ROOM`] such steps.
const RUN_STEP: u64 = 1 << 6;
/// Rows for which a run has room, at least where there are so many labels.
const RUN_ROOM: u64 = 1 << 10;
/// As many rows that came one after the other are a run.
const RUN: usize = 4;
/// How many of the labels of a span of 2^i may be in use: FILL^i. With 32 bits there is room for 2^24 rows.
const FILL: f64 = 1.69;

/// What a row is ordered by; the least comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// NULL comes last.
    is_null: bool,
    by: u64,
    /// The key, if it is one word; else 0.
    word: u64,
    /// The key otherwise, so that bytes compare as the columns do. It is one word more of all ranks, and not two.
    key: Option<Box<Box<[u8]>>>,
}

/// The order of the rows of a table.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// The rank is the label; the rule of each.
    Direct {
        descending: bool,
        ty: Type,
        ids: BTreeMap<u32, u32>,
    },
    /// Ranks are a word.
    Narrow {
        by: Type,
        key: Type,
        labels: Labels<u64>,
    },
    Wide(Labels<Rank>),
}

/// Labels by rank.
#[derive(Clone, Debug)]
pub(super) struct Labels<K> {
    held: BTreeMap<K, Labelled>,
    /// How many rows have come, modulo 2^32.
    came: u32,
}

/// A row with its label.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labelled {
    label: u32,
    /// The rule.
    id: u32,
    /// How many rows had come before, modulo 2^32.
    came: u32,
}

impl Rank {
    pub(super) fn of(spec: &MatchSpec, table: &TableSpec, by_ty: Type, cell: &dyn Fn(u16) -> Cell) -> Self {
        let (is_null, by) = match cell(spec.by) {
            Cell::Word(word) if spec.descending => (false, !codec::ordered(word, by_ty)),
            Cell::Word(word) => (false, codec::ordered(word, by_ty)),
            Cell::Null | Cell::Bytes(_) => (true, u64::MAX),
        };
        if let ([column], Cell::Word(word)) = (&table.key[..], cell(0)) {
            let word = codec::ordered(word, column.ty);
            return Self { is_null, by, word, key: None };
        }
        let mut key = Vec::new();
        for (at, column) in (0..).zip(&table.key) {
            match cell(at) {
                Cell::Word(word) => key.extend_from_slice(&codec::ordered(word, column.ty).to_be_bytes()),
                Cell::Bytes(bytes) => {
                    // A zero is followed by 1 within a column, and by 0 at its end.
                    for byte in bytes {
                        key.push(byte);
                        if byte == 0 {
                            key.push(1);
                        }
                    }
                    key.extend_from_slice(&[0, 0]);
                }
                Cell::Null => {}
            }
        }
        Self { is_null, by, word: 0, key: Some(Box::new(key.into())) }
    }
}

impl Order {
    /// The order of no rows.
    pub(super) fn new(spec: &MatchSpec, table: &TableSpec, by_ty: Type) -> Self {
        let is_32 = |ty: Type| matches!(ty, Type::Bool | Type::Int(..=32) | Type::Uint(..=32));
        // There is room for NULL.
        let is_narrow = matches!(by_ty, Type::Bool | Type::Int(..=16) | Type::Uint(..=16));
        match &table.key[..] {
            [_] if spec.by == 0 && is_32(by_ty) => {
                Self::Direct { descending: spec.descending, ty: by_ty, ids: BTreeMap::new() }
            }
            [key] if is_narrow && is_32(key.ty) => {
                Self::Narrow { by: by_ty, key: key.ty, labels: Labels::default() }
            }
            _ => Self::Wide(Labels::default()),
        }
    }

    /// The order of rows that are in order already, by rule; gives the label of each.
    pub(super) fn fill(&mut self, ranks: Vec<(Rank, u32)>) -> Vec<u32> {
        match self {
            Self::Direct { descending, ty, ids } => {
                let labels = ranks.iter().map(|(rank, id)| (direct(rank, *descending, *ty), *id));
                *ids = labels.clone().collect();
                labels.map(|(label, _)| label).collect()
            }
            Self::Narrow { by, key, labels } => {
                labels.fill(ranks.into_iter().map(|(rank, id)| (narrow(&rank, *by, *key), id)))
            }
            Self::Wide(labels) => labels.fill(ranks.into_iter()),
        }
    }

    /// Takes in a row; gives its label, and leaves the rules in `moved` that have another one now.
    pub(super) fn insert(&mut self, rank: Rank, id: u32, moved: &mut Vec<(u32, u32)>) -> u32 {
        match self {
            Self::Direct { descending, ty, ids } => {
                let label = direct(&rank, *descending, *ty);
                ids.insert(label, id);
                label
            }
            Self::Narrow { by, key, labels } => labels.insert(narrow(&rank, *by, *key), id, moved),
            Self::Wide(labels) => labels.insert(rank, id, moved),
        }
    }

    /// Forgets a row; gives its rule, if it has one.
    pub(super) fn remove(&mut self, rank: &Rank) -> Option<u32> {
        match self {
            Self::Direct { descending, ty, ids } => ids.remove(&direct(rank, *descending, *ty)),
            Self::Narrow { by, key, labels } => labels.remove(&narrow(rank, *by, *key)),
            Self::Wide(labels) => labels.remove(rank),
        }
    }
}

/// The label of a row whose rank is one.
fn direct(rank: &Rank, descending: bool, ty: Type) -> u32 {
    let by = if descending { !rank.by } else { rank.by };
    let by = in_32_bits(by, ty);
    if descending { !by } else { by }
}

/// A rank as one word in the same order, of a column of the order of up to 16 bits and a key of up to 32.
fn narrow(rank: &Rank, by: Type, key: Type) -> u64 {
    // Numbers turned round for a descending order are the last ones: these become the first, and NULL is alone there.
    let by = if rank.is_null { u32::MAX } else { in_32_bits(rank.by, by).wrapping_add(1 << 16) };
    u64::from(by) << 32 | u64::from(in_32_bits(rank.word, key))
}

/// A number of up to 32 bits as [`codec::ordered`] gives it, in as many bits.
fn in_32_bits(ordered: u64, ty: Type) -> u32 {
    // Of signed numbers, the least of 64 bits is 0 there.
    (if ty.is_signed() { ordered.wrapping_sub((1 << 63) - (1 << 31)) } else { ordered }) as u32
}

impl<K> Default for Labels<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), came: 0 }
    }
}

impl<K: Ord + Clone> Labels<K> {
    /// Labels for rows that are in order already; gives them.
    fn fill(&mut self, ranks: impl ExactSizeIterator<Item = (K, u32)>) -> Vec<u32> {
        let n = ranks.len() as u64;
        let label_of = |at: u64| (at * LABELS / n) as u32;
        let held = |id, at| Labelled { label: label_of(at), id, came: 0 };
        self.held = ranks.zip(0..).map(|((rank, id), at)| (rank, held(id, at))).collect();
        (0..n).map(label_of).collect()
    }

    fn insert(&mut self, rank: K, id: u32, moved: &mut Vec<(u32, u32)>) -> u32 {
        let Self { held: labels, came } = self;
        *came = came.wrapping_add(1);
        let came = *came;
        let before: Neighbours = nearest(labels.range(..&rank).rev());
        let behind: Neighbours = nearest(labels.range(&rank..));
        let first = before[0].map_or(0, |held| u64::from(held.label) + 1);
        let end = behind[0].map_or(LABELS, |held| u64::from(held.label));
        let run = match (ends_run(&before, &behind), ends_run(&behind, &before)) {
            (true, _) => Some(Run::Up),
            (_, true) => Some(Run::Down),
            _ => None,
        };
        if first < end {
            let half = (end - first) / 2;
            let step = STEP / (labels.len() as u64 + 1);
            let run_step = ((end - first) / RUN_ROOM).min(RUN_STEP);
            let label = match (before[0], behind[0], run) {
                (Some(_), None, _) => first + half.min(step),
                (None, Some(_), _) => end - 1 - half.min(step),
                (_, _, Some(Run::Up)) => first + run_step,
                (_, _, Some(Run::Down)) => end - 1 - run_step,
                _ => first + half,
            } as u32;
            labels.insert(rank, Labelled { label, id, came });
            return label;
        }
        let near = (end.min(LABELS - 1)) as u32;
        labels.insert(rank.clone(), Labelled { label: near, id, came });
        spread(labels, &rank, near, run, moved);
        let at = moved.iter().position(|(moved, _)| *moved == id).expect("it is within the span");
        moved.swap_remove(at).1
    }

    fn remove(&mut self, rank: &K) -> Option<u32> {
        self.held.remove(rank).map(|held| held.id)
    }
}

/// Rows that come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// Each behind the last.
    Up,
    /// Each before the last.
    Down,
}

/// Neighbours on one side, the nearest first.
type Neighbours = [Option<Labelled>; RUN];

fn nearest<'l, K: 'l>(mut from: impl Iterator<Item = (&'l K, &'l Labelled)>) -> Neighbours {
    core::array::from_fn(|_| from.next().map(|(_, held)| *held))
}

/// Whether rows come one after the other on this side.
fn ends_run(side: &Neighbours, other: &Neighbours) -> bool {
    let came = |near: &Neighbours, nth: usize| near[nth].map(|held| held.came);
    (1..RUN).all(|nth| came(side, nth).is_some() && came(side, nth) < came(side, nth - 1))
        && came(other, 0) < came(side, 0)
}

/// Spreads the labels of the least span around `near` that is not too full; each rule with its new label goes to
/// `moved`.
fn spread<K: Ord + Clone>(
    labels: &mut BTreeMap<K, Labelled>,
    rank: &K,
    near: u32,
    run: Option<Run>,
    moved: &mut Vec<(u32, u32)>,
) {
    for bits in 1..=32 {
        let base = u64::from(near) >> bits << bits;
        let end = base + (1 << bits);
        let is_in = |label: u32| (base..end).contains(&u64::from(label));
        let n_before = labels.range(..rank).rev().take_while(|(_, held)| is_in(held.label)).count();
        let n_behind = labels.range(rank..).take_while(|(_, held)| is_in(held.label)).count();
        let n = (n_before + n_behind) as u64;
        if bits < 32 && n as f64 > FILL.powi(bits) {
            continue;
        }
        let first = labels.range(..rank).rev().take(n_before).last().map_or(rank, |(rank, _)| rank).clone();
        // Those that stay before the run's room.
        let before = match run {
            Some(Run::Up) => n_before as u64 + 1,
            Some(Run::Down) => n_before as u64,
            None => n,
        };
        let close = (end - base) / 2 / n;
        for (at, (_, held)) in (0..n).zip(labels.range_mut(first..)) {
            held.label = match run {
                Some(_) if close > 0 && at < before => base + at * close,
                Some(_) if close > 0 => end - (n - at) * close,
                _ => base + at * (end - base) / n,
            } as u32;
            moved.push((held.id, held.label));
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    /// Inserts numbers in an order, and holds that labels are in theirs; gives how many were moved.
    fn order_of(numbers: impl Iterator<Item = u64>) -> usize {
        let mut labels = Labels::default();
        let mut by_id = BTreeMap::new();
        let mut n_moved = 0;
        for (id, by) in (0..).zip(numbers) {
            let mut moved = Vec::new();
            let label = labels.insert(by, id, &mut moved);
            by_id.insert(id, label);
            n_moved += moved.len();
            by_id.extend(moved);
        }
        let mut last = None;
        for Labelled { label, id, .. } in labels.held.values() {
            assert!(last < Some(*label), "labels are in the order of ranks");
            assert_eq!(by_id[id], *label, "who is moved is told");
            last = Some(*label);
        }
        n_moved
    }

    #[test]
    fn labels_keep_insertion_order() {
        // A label out of order lets the wrong rule decide; a row that moves all others stalls changes.
        const N: u64 = 20_000;
        assert_eq!(order_of(0..N), 0, "behind all others");
        assert_eq!(order_of((0..N).rev()), 0, "before all others");
        let at_random = order_of((0..N).map(|n| hash::draw(1, n)));
        assert!(at_random < N as usize / 2, "{at_random} moved");
        let in_the_middle = order_of((0..N).map(|n| if n % 2 == 0 { n } else { 2 * N - n }));
        assert!(in_the_middle < 30 * N as usize, "{in_the_middle} moved");
        let behind_the_first = order_of([0].into_iter().chain((1..N).rev()));
        assert!(behind_the_first < N as usize / 10, "{behind_the_first} moved");
        // As routes come: by the lengths of their prefixes, each behind all others of its length.
        let by_groups = order_of((0..N).map(|n| (hash::draw(2, n) % 33) << 32 | n));
        assert!(by_groups < N as usize, "{by_groups} moved");
    }
}
