//! Counts the partitions of a node that are in use for one source, destination or other value: [`Field::Partitions`].
//!
//! A partition is in use while it has packets or a position in the order. It counts for the values of its last packet.

use super::level::Level;
use rustc_hash::FxHashMap;
use weft_ir::queue::{Field, PartitionsBy, QueueProgram};

/// The values of a packet in the counted fields.
type Values = [u64; PartitionsBy::MAX];

/// The partitions in use.
#[derive(Debug)]
pub(super) struct InUse {
    /// The packet words of the counted fields, and the words that carry their counts.
    words: Vec<(usize, usize)>,
    /// By partition: the values of its last packet.
    values: FxHashMap<u32, Values>,
    /// By node, field and value: the number of partitions.
    counts: FxHashMap<(u32, u8, u64), u32>,
}

impl InUse {
    /// Creates the counts of a program, if it uses them.
    pub(super) fn of(program: &QueueProgram) -> Option<Box<Self>> {
        program.counting_level()?;
        let word = |field| program.field(field).map(usize::from);
        let by = program.fields.iter().filter_map(|field| match field {
            Field::Partitions(by) => Some((word(by.field())?, word(*field)?)),
            _ => None,
        });
        let words = by.take(PartitionsBy::MAX).collect();
        Some(Box::new(Self { words, values: FxHashMap::default(), counts: FxHashMap::default() }))
    }

    /// Writes to an arriving packet how many partitions share its values, its own included.
    #[inline(never)]
    pub(super) fn record_arrival(&mut self, level: &mut Level, node: u32, partition: u32, seen: &mut [u64]) {
        self.remove_idle(level);
        let mut values = Values::default();
        for (value, (word, _)) in values.iter_mut().zip(&self.words) {
            *value = seen[*word];
        }
        self.forget(level, partition);
        self.count(node, partition, values);
        for (nth, (_, at)) in self.words.iter().enumerate() {
            seen[*at] = self.counts.get(&(node, nth as u8, values[nth])).copied().unwrap_or(0).into();
        }
        // It is not in use yet, and will not be if the packet is dropped.
        if !level.is_in_use(partition) {
            level.left.push(partition);
        }
    }

    /// Counts a partition for each of its values.
    fn count(&mut self, node: u32, partition: u32, values: Values) {
        self.values.insert(partition, values);
        for (nth, value) in values.into_iter().enumerate().take(self.words.len()) {
            *self.counts.entry((node, nth as u8, value)).or_default() += 1;
        }
    }

    /// Removes partitions that are no longer in use.
    fn remove_idle(&mut self, level: &mut Level) {
        while let Some(partition) = level.left.pop() {
            if !level.is_in_use(partition) {
                self.forget(level, partition);
            }
        }
    }

    /// Removes a partition from the counts of its values.
    fn forget(&mut self, level: &Level, partition: u32) {
        let Some(values) = self.values.remove(&partition) else { return };
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

    /// Returns the partitions of a level that are in use, with the values of their last packets, sorted.
    pub(super) fn rows(&self, level: &Level) -> Vec<Vec<u64>> {
        let in_use = self.values.iter().filter(|(partition, _)| level.is_in_use(**partition));
        let row = |(partition, values): (&u32, &Values)| {
            [u64::from(*partition)].into_iter().chain(values.iter().copied().take(self.words.len())).collect()
        };
        let mut rows: Vec<Vec<u64>> = in_use.map(row).collect();
        rows.sort_unstable();
        rows
    }

    /// Restores a partition from a row. False: the row has another length, or the partition is there already.
    pub(super) fn restore(&mut self, level: &Level, partition: u32, row: &[u64]) -> bool {
        let mut values = Values::default();
        let is_right = row.len() == self.words.len() && !self.values.contains_key(&partition);
        if is_right {
            values[..row.len()].copy_from_slice(row);
            self.count(level.shape.node_of(partition), partition, values);
        }
        is_right
    }

    /// Forgets all partitions.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.counts.clear();
    }
}
