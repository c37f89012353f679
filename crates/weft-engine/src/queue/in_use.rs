//! How many partitions of a node are in use for the same source, destination or other value: what
//! [`Field::Partitions`] carries.
//!
//! A partition is in use while it has packets or a place in the order, and counts for what its last packet had.

use super::level::Level;
use rustc_hash::FxHashMap;
use weft_ir::queue::{Field, PartitionsBy, QueueProgram};

/// What a packet has in the fields that are counted by.
type Values = [u64; PartitionsBy::MAX];

/// Partitions in use.
#[derive(Debug)]
pub(super) struct InUse {
    /// The words of fields that are counted by, and where their counts are carried.
    words: Vec<(usize, usize)>,
    /// By partition, what its last packet had.
    known: FxHashMap<u32, Values>,
    /// By node, by which field, and what is there.
    counts: FxHashMap<(u32, u8, u64), u32>,
}

impl InUse {
    /// Those of a program, if it asks for any.
    pub(super) fn of(program: &QueueProgram) -> Option<Box<Self>> {
        program.counting_level()?;
        let word = |field| program.field(field).map(usize::from);
        let by = program.fields.iter().filter_map(|field| match field {
            Field::Partitions(by) => Some((word(by.field())?, word(*field)?)),
            _ => None,
        });
        let words = by.take(PartitionsBy::MAX).collect();
        Some(Box::new(Self { words, known: FxHashMap::default(), counts: FxHashMap::default() }))
    }

    /// A packet comes to a partition: it carries how many there are like it, that one included.
    #[inline(never)]
    pub(super) fn enter(&mut self, level: &mut Level, node: u32, partition: u32, seen: &mut [u64]) {
        self.settle(level);
        let mut values = Values::default();
        for (value, (word, _)) in values.iter_mut().zip(&self.words) {
            *value = seen[*word];
        }
        self.forget(level, partition);
        self.count(node, partition, values);
        for (nth, (_, at)) in self.words.iter().enumerate() {
            seen[*at] = self.counts.get(&(node, nth as u8, values[nth])).copied().unwrap_or(0).into();
        }
        // It is not in use yet, and is not if the packet is refused.
        if !level.is_in_use(partition) {
            level.left.push(partition);
        }
    }

    fn count(&mut self, node: u32, partition: u32, values: Values) {
        self.known.insert(partition, values);
        for (nth, value) in values.into_iter().enumerate().take(self.words.len()) {
            *self.counts.entry((node, nth as u8, value)).or_default() += 1;
        }
    }

    /// Takes out the partitions that are not in use any more.
    fn settle(&mut self, level: &mut Level) {
        while let Some(partition) = level.left.pop() {
            if !level.is_in_use(partition) {
                self.forget(level, partition);
            }
        }
    }

    fn forget(&mut self, level: &Level, partition: u32) {
        let Some(values) = self.known.remove(&partition) else { return };
        let node = level.shape.node_of(partition);
        for (nth, value) in values.into_iter().enumerate().take(self.words.len()) {
            let group = (node, nth as u8, value);
            let Some(count) = self.counts.get_mut(&group) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&group);
            }
        }
    }

    /// The partitions of a level that are in use, and what their last packets had.
    pub(super) fn rows(&self, level: &Level) -> Vec<Vec<u64>> {
        let in_use = self.known.iter().filter(|(partition, _)| level.is_in_use(**partition));
        let row = |(partition, values): (&u32, &Values)| {
            [u64::from(*partition)].into_iter().chain(values.iter().copied().take(self.words.len())).collect()
        };
        let mut rows: Vec<Vec<u64>> = in_use.map(row).collect();
        rows.sort_unstable();
        rows
    }

    /// A partition of a level is in use, as a row says. False: it has other numbers, or was there before.
    pub(super) fn restore(&mut self, level: &Level, partition: u32, row: &[u64]) -> bool {
        let mut values = Values::default();
        let is_right = row.len() == self.words.len() && !self.known.contains_key(&partition);
        if is_right {
            values[..row.len()].copy_from_slice(row);
            self.count(level.shape.node_of(partition), partition, values);
        }
        is_right
    }

    /// All partitions are as they were at first.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.counts.clear();
    }
}
