//! Priorities for rows that change: ordered labels with gaps between them.
//!
//! If the ordering column is the whole key and fits, its value is the label. Otherwise rows get labels in the order of
//! their ranks. A rank is one word if the ordering column and the key are narrow, so a cache line holds eight of them.
//!
//! A row between two others gets a label between theirs: in the middle, or close to the last row of a run, because more
//! rows of the run will follow. If no label is free, the smallest sufficiently sparse neighbourhood is relabelled; a
//! run keeps half of the space free at its end. Source: M. A. Bender and others, "Two simplified algorithms for
//! maintaining order in a list" (ESA 2002), section 2.

use super::MatchSpec;
use super::codec::{self, Cell};
use crate::table::TableSpec;
use crate::types::Type;
use std::collections::BTreeMap;

/// The number of labels.
const LABELS: u64 = 1 << 32;
/// The distance of a new last (or first) row to the previous one: for the nth row, the nth part of this. The labels
/// never run out this way, and the first few rows have wide gaps.
const STEP: u64 = 1 << 26;
/// The distance to the last row of a run inside the order, if there is space for [`RUN_ROOM`] such steps.
const RUN_STEP: u64 = 1 << 6;
/// Rows for which a run keeps space, if there are enough labels.
const RUN_ROOM: u64 = 1 << 10;
/// This many rows in sequence are a run.
const RUN: usize = 4;
/// The density limit of relabelling: a span of 2^i labels may have FILL^i rows. With 32 bits there is space for 2^24
/// rows.
const FILL: f64 = 1.69;
const _: () =
    assert!(RUN_STEP * RUN_ROOM <= STEP && STEP < LABELS && LABELS == 1 << 32, "labels have 32 bits");

/// The rank of a row; the least comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// NULL comes last.
    is_null: bool,
    by: u64,
    /// The key if it is one word; otherwise 0.
    word: u64,
    /// Any other key, encoded so that bytes compare as the columns do. The double box keeps a rank one word shorter.
    key: Option<Box<Box<[u8]>>>,
}

/// The order of the rows of a table.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// The rank is the label. The map gives the rule.
    Direct {
        descending: bool,
        ty: Type,
        ids: BTreeMap<u32, u32>,
    },
    /// Ranks fit one word.
    Narrow {
        by: Type,
        key: Type,
        labels: Labels<u64>,
    },
    Wide(Labels<Rank>),
}

/// Labels, by rank.
#[derive(Clone, Debug)]
pub(super) struct Labels<K> {
    held: BTreeMap<K, Labelled>,
    /// The number of insertions so far, modulo 2^32.
    came: u32,
}

/// A labelled row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labelled {
    label: u32,
    /// The rule.
    id: u32,
    /// The number of insertions before it, modulo 2^32.
    came: u32,
}

impl Rank {
    /// Computes the rank of a row from its cells: by the `BY` column, NULL last, and then by the key.
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
                    // A zero byte is followed by 1 inside a column and by 0 at its end.
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
    /// Makes an empty order, with ranks as short as the column and key types allow.
    pub(super) fn new(spec: &MatchSpec, table: &TableSpec, by_ty: Type) -> Self {
        let is_32 = |ty: Type| matches!(ty, Type::Bool | Type::Int(..=32) | Type::Uint(..=32));
        // One bit remains for NULL.
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

    /// Fills the order with sorted rows; returns their labels.
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

    /// Inserts a row and returns its label. Appends rules with new labels to `moved`.
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

    /// Removes a row and returns its rule, if it has one.
    pub(super) fn remove(&mut self, rank: &Rank) -> Option<u32> {
        match self {
            Self::Direct { descending, ty, ids } => ids.remove(&direct(rank, *descending, *ty)),
            Self::Narrow { by, key, labels } => labels.remove(&narrow(rank, *by, *key)),
            Self::Wide(labels) => labels.remove(rank),
        }
    }
}

/// The label of a row in an order whose ranks serve as labels.
fn direct(rank: &Rank, descending: bool, ty: Type) -> u32 {
    let by = if descending { !rank.by } else { rank.by };
    let by = in_32_bits(by, ty);
    if descending { !by } else { by }
}

/// A rank as one word with the same order, for an ordering column of up to 16 bits and a key of up to 32.
fn narrow(rank: &Rank, by: Type, key: Type) -> u64 {
    // Negated numbers of a descending order are the greatest ones: they wrap to the lowest, and NULL alone is at the
    // top.
    let by = if rank.is_null { u32::MAX } else { in_32_bits(rank.by, by).wrapping_add(1 << 16) };
    u64::from(by) << 32 | u64::from(in_32_bits(rank.word, key))
}

/// Narrows a number of up to 32 bits from [`codec::ordered`] to 32 bits.
fn in_32_bits(ordered: u64, ty: Type) -> u32 {
    // For signed numbers, the least 64-bit number maps to 0 there.
    (if ty.is_signed() { ordered.wrapping_sub((1 << 63) - (1 << 31)) } else { ordered }) as u32
}

impl<K> Default for Labels<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), came: 0 }
    }
}

impl<K: Ord + Clone> Labels<K> {
    /// Spreads labels evenly over the sorted rows; returns the label of each.
    fn fill(&mut self, ranks: impl ExactSizeIterator<Item = (K, u32)>) -> Vec<u32> {
        let n = ranks.len() as u64;
        assert!(n <= LABELS, "there is a label for each row");
        let label_of = |at: u64| (at * LABELS / n) as u32;
        let held = |id, at| Labelled { label: label_of(at), id, came: 0 };
        self.held = ranks.zip(0..).map(|((rank, id), at)| (rank, held(id, at))).collect();
        (0..n).map(label_of).collect()
    }

    /// Inserts a row and returns its label. If there is no free label, other rows get new ones, which are added to
    /// `moved`.
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
        relabel(labels, &rank, near, run, moved);
        let at = moved.iter().position(|(moved, _)| *moved == id).expect("the spread moves the new row");
        moved.swap_remove(at).1
    }

    fn remove(&mut self, rank: &K) -> Option<u32> {
        self.held.remove(rank).map(|held| held.id)
    }
}

/// The direction of a run of insertions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// Each row behind the previous one.
    Up,
    /// Each row in front of the previous one.
    Down,
}

/// The neighbours on one side, nearest first.
type Neighbours = [Option<Labelled>; RUN];

/// Copies the labels of the nearest rows on one side.
fn nearest<'l, K: 'l>(mut from: impl Iterator<Item = (&'l K, &'l Labelled)>) -> Neighbours {
    core::array::from_fn(|_| from.next().map(|(_, held)| *held))
}

/// Whether the rows on this side are a run.
fn ends_run(side: &Neighbours, other: &Neighbours) -> bool {
    let came = |near: &Neighbours, nth: usize| near[nth].map(|held| held.came);
    (1..RUN).all(|nth| came(side, nth).is_some() && came(side, nth) < came(side, nth - 1))
        && came(other, 0) < came(side, 0)
}

/// Relabels the smallest sufficiently sparse span around `near`; appends each rule with its new label to `moved`.
fn relabel<K: Ord + Clone>(
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
        // The rows in front of the run's free space.
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

    /// Inserts numbers in this order and checks that labels keep their order. Returns how many rows were relabelled.
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
            assert_eq!(by_id[id], *label, "`moved` lists each relabelled row");
            last = Some(*label);
        }
        n_moved
    }

    #[test]
    fn labels_keep_insertion_order() {
        // A label out of order lets the wrong rule decide; mass relabelling stalls changes.
        const N: u64 = 20_000;
        assert_eq!(order_of(0..N), 0, "behind all others");
        assert_eq!(order_of((0..N).rev()), 0, "before all others");
        let at_random = order_of((0..N).map(|n| hash::draw(1, n)));
        assert!(at_random < N as usize / 2, "{at_random} moved");
        let in_the_middle = order_of((0..N).map(|n| if n % 2 == 0 { n } else { 2 * N - n }));
        assert!(in_the_middle < 30 * N as usize, "{in_the_middle} moved");
        let behind_the_first = order_of([0].into_iter().chain((1..N).rev()));
        assert!(behind_the_first < N as usize / 10, "{behind_the_first} moved");
        // As routes arrive: grouped by prefix length, each behind the others of its length.
        let by_groups = order_of((0..N).map(|n| (hash::draw(2, n) % 33) << 32 | n));
        assert!(by_groups < N as usize, "{by_groups} moved");
    }
}
