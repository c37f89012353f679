//! Priorities for rows that come and go: numbers in the order of the rows, with room between them.
//!
//! Where the column of the order is the whole key and fits, a row's place is its value. Otherwise rows have labels. One
//! that comes between two others gets a label between theirs; where there is none left, the labels of as few
//! neighbours as leave room are spread anew. Source: M. A. Bender and others, "Two simplified algorithms for
//! maintaining order in a list" (ESA 2002), section 2.

use super::MatchSpec;
use super::codec::{self, Cell};
use crate::table::TableSpec;
use crate::types::Type;
use std::collections::BTreeMap;

/// Labels are below this.
const LABELS: u64 = 1 << 32;
/// Distance to the last label, or the first, of a row that comes behind all others or before them.
const STEP: u64 = 1 << 12;
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
    /// The key otherwise, so that bytes compare as the columns do.
    key: Box<[u8]>,
}

/// The order of the rows of a table.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// The rank is the label.
    Direct { descending: bool, ty: Type },
    /// Label and rule by rank.
    Labels(BTreeMap<Rank, (u32, u32)>),
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
            return Self { is_null, by, word, key: Box::default() };
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
        Self { is_null, by, word: 0, key: key.into() }
    }
}

impl Order {
    /// The order of no rows.
    pub(super) fn new(spec: &MatchSpec, table: &TableSpec, by_ty: Type) -> Self {
        let fits = matches!(by_ty, Type::Bool | Type::Int(..=32) | Type::Uint(..=32));
        if spec.by == 0 && table.key.len() == 1 && fits {
            return Self::Direct { descending: spec.descending, ty: by_ty };
        }
        Self::Labels(BTreeMap::new())
    }

    /// The order of rows that are in order already, by rule; gives the label of each.
    pub(super) fn fill(&mut self, ranks: Vec<(Rank, u32)>) -> Vec<u32> {
        let n = ranks.len() as u64;
        let label_of = |at: u64| (at * LABELS / n) as u32;
        match self {
            Self::Direct { .. } => ranks.iter().map(|(rank, _)| self.direct(rank)).collect(),
            Self::Labels(labels) => {
                let all = ranks.into_iter().zip(0..).map(|((rank, id), at)| (rank, (label_of(at), id)));
                *labels = all.collect();
                (0..n).map(label_of).collect()
            }
        }
    }

    /// Takes in a row; gives its label, and leaves the rules in `moved` that have another one now.
    pub(super) fn insert(&mut self, rank: Rank, id: u32, moved: &mut Vec<(u32, u32)>) -> u32 {
        let Self::Labels(labels) = self else { return self.direct(&rank) };
        let before = labels.range(..&rank).next_back().map(|(_, (label, _))| u64::from(*label) + 1);
        let behind = labels.range(&rank..).next().map(|(_, (label, _))| u64::from(*label));
        let (first, end) = (before.unwrap_or(0), behind.unwrap_or(LABELS));
        if first < end {
            let half = (end - first) / 2;
            let label = match (before, behind) {
                (Some(_), None) => first + half.min(STEP),
                (None, Some(_)) => end - 1 - half.min(STEP),
                _ => first + half,
            } as u32;
            labels.insert(rank, (label, id));
            return label;
        }
        let near = (end.min(LABELS - 1)) as u32;
        labels.insert(rank.clone(), (near, id));
        spread(labels, &rank, near, moved);
        let at = moved.iter().position(|(moved, _)| *moved == id).expect("it is within the span");
        moved.swap_remove(at).1
    }

    /// Forgets a row.
    pub(super) fn remove(&mut self, rank: &Rank) {
        if let Self::Labels(labels) = self {
            labels.remove(rank);
        }
    }

    fn direct(&self, rank: &Rank) -> u32 {
        let Self::Direct { descending, ty } = self else { return 0 };
        let by = if *descending { !rank.by } else { rank.by };
        // Of signed numbers, `ordered` has put the least of 64 bits to 0.
        let by = if ty.is_signed() { by.wrapping_sub((1 << 63) - (1 << 31)) } else { by } as u32;
        if *descending { !by } else { by }
    }
}

/// Spreads the labels of the least span around `near` that is not too full; each rule with its new label goes to
/// `moved`.
fn spread(labels: &mut BTreeMap<Rank, (u32, u32)>, rank: &Rank, near: u32, moved: &mut Vec<(u32, u32)>) {
    for bits in 1..=32 {
        let base = u64::from(near) >> bits << bits;
        let end = base + (1 << bits);
        let is_in = |label: u32| (base..end).contains(&u64::from(label));
        let n_before = labels.range(..rank).rev().take_while(|(_, (label, _))| is_in(*label)).count();
        let n_behind = labels.range(rank..).take_while(|(_, (label, _))| is_in(*label)).count();
        let n = (n_before + n_behind) as u64;
        if bits < 32 && n as f64 > FILL.powi(bits) {
            continue;
        }
        let first = labels.range(..rank).rev().take(n_before).last().map_or(rank, |(rank, _)| rank).clone();
        for (at, (_, (label, id))) in (0..n).zip(labels.range_mut(first..)) {
            *label = (base + at * (end - base) / n) as u32;
            moved.push((*id, *label));
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    fn rank(by: u64) -> Rank {
        Rank { is_null: false, by, word: 0, key: Box::default() }
    }

    /// Inserts numbers in an order, and holds that labels are in theirs; gives how many were moved.
    fn order_of(numbers: impl Iterator<Item = u64>) -> usize {
        let mut order = Order::Labels(BTreeMap::new());
        let mut by_id = BTreeMap::new();
        let mut n_moved = 0;
        for (id, by) in (0..).zip(numbers) {
            let mut moved = Vec::new();
            let label = order.insert(rank(by), id, &mut moved);
            by_id.insert(id, label);
            n_moved += moved.len();
            by_id.extend(moved);
        }
        let Order::Labels(labels) = &order else { panic!("these are labels") };
        let mut last = None;
        for (label, id) in labels.values() {
            assert!(last < Some(*label), "labels are in the order of ranks");
            assert_eq!(by_id[id], *label, "who is moved is told");
            last = Some(*label);
        }
        n_moved
    }

    #[test]
    fn labels_keep_the_order_wherever_rows_come() {
        // A label out of order lets the wrong rule decide; a row that moves all others stalls changes.
        const N: u64 = 20_000;
        assert_eq!(order_of(0..N), 0, "behind all others");
        assert_eq!(order_of((0..N).rev()), 0, "before all others");
        let at_random = order_of((0..N).map(|n| hash::draw(1, n)));
        assert!(at_random < 2 * N as usize, "{at_random} moved");
        let in_the_middle = order_of((0..N).map(|n| if n % 2 == 0 { n } else { 2 * N - n }));
        assert!(in_the_middle < 60 * N as usize, "{in_the_middle} moved");
        let behind_the_first = order_of([0].into_iter().chain((1..N).rev()));
        assert!(behind_the_first < 60 * N as usize, "{behind_the_first} moved");
    }
}
