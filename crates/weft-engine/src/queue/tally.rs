//! Tallies of partitions: how long their packets waited, and which source lines dropped or marked them. A queue keeps
//! tallies only after [`Queue::watch`]; its behaviour does not depend on them.

use super::level::{Level, kept};
use super::shared::Shared;
use super::{Counts, LineCount, PartitionState, Queue, QueueCode, QueueProgram, Sent};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use weft_ir::queue::Verdict;

/// The most partitions of a queue with a tally: those that were used first.
pub const WATCHED_MAX: usize = 4096;

/// What became of the packets of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The waiting times of sent packets.
    pub waits: WaitHistogram,
    /// Drops and marks by line of its level. Levels below have their own tallies.
    pub lines: Vec<LineCount>,
    /// Dropped packets, of its level and of those below.
    pub dropped: u64,
    /// Marked packets, likewise.
    pub marked: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn merge(&mut self, other: &Self) {
        self.count(other);
        other.lines.iter().for_each(|line| line.add_to(&mut self.lines));
    }

    /// Adds the counts of another tally, without its lines.
    fn count(&mut self, other: &Self) {
        self.waits.merge(&other.waits);
        self.dropped += other.dropped;
        self.marked += other.marked;
    }
}

impl LineCount {
    /// Adds it to a list.
    pub fn add_to(&self, lines: &mut Vec<Self>) {
        let is_it = |of: &&mut Self| (of.level, of.line, of.verdict) == (self.level, self.line, self.verdict);
        match lines.iter_mut().find(is_it) {
            Some(of) => of.packets += self.packets,
            None => lines.push(*self),
        }
    }
}

/// Drops or marks of one source line, summed over all queues that a link had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTotal {
    /// The queue's name.
    pub queue: String,
    /// The first program version with this text of the queue: line 7 of another text is another line.
    pub version: u64,
    /// The line.
    pub line: u32,
    /// What it did: Mark or Drop.
    pub verdict: Verdict,
    /// The number of packets.
    pub packets: u64,
}

/// The most lines of a link; those of the oldest queues are dropped first.
const LINES_MAX: usize = 256;

impl LineTotal {
    /// Returns the totals of a queue; `versions` has one entry per level.
    fn of(program: &QueueProgram, versions: &[u64], lines: &[LineCount]) -> Vec<Self> {
        let total = |line: &LineCount| Self {
            queue: program.levels[usize::from(line.level)].name.clone(),
            version: versions[usize::from(line.level)],
            line: line.line,
            verdict: line.verdict,
            packets: line.packets,
        };
        lines.iter().map(total).collect()
    }

    /// Adds totals to a list.
    pub(crate) fn add(to: &mut Vec<Self>, more: &[Self]) {
        for line in more {
            let is_it = |of: &&mut Self| {
                let [known, more] = [&**of, line].map(|of| (of.version, of.line, of.verdict));
                known == more && of.queue == line.queue
            };
            match to.iter_mut().find(is_it) {
                Some(of) => of.packets += line.packets,
                None => to.push(line.clone()),
            }
        }
        to.drain(..to.len().saturating_sub(LINES_MAX));
    }
}

/// The source text of a queue program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramText {
    /// The version of the program.
    pub version: u64,
    /// Per level: a hash of its text and of its first line number.
    pub texts: Vec<u64>,
}

/// Drops and marks by line of all queues that a link had.
#[derive(Debug)]
pub(crate) struct LineTotals {
    /// Those of earlier queues.
    earlier: Vec<LineTotal>,
    /// The texts of these queues: the level's name, the hash, and the first version with this text.
    texts: Vec<(String, u64, u64)>,
    /// Per level of the current queue: the first version with its text.
    versions: Vec<u64>,
}

impl LineTotals {
    /// Creates the totals of a first queue.
    pub(crate) fn new(program: &QueueProgram, written: &ProgramText) -> Self {
        let mut lines = Self { earlier: Vec::new(), texts: Vec::new(), versions: Vec::new() };
        lines.set_program(program, written);
        lines
    }

    /// Continues after another queue has replaced this one.
    pub(crate) fn replace<C: QueueCode>(
        &mut self,
        before: &Queue<C>,
        program: &QueueProgram,
        written: &ProgramText,
    ) {
        self.earlier = self.totals(before);
        self.set_program(program, written);
    }

    /// Sets the version of each level: the known one if its text is unchanged.
    fn set_program(&mut self, program: &QueueProgram, written: &ProgramText) {
        let version = |(at, level): (usize, &weft_ir::queue::Level)| {
            let text = written.texts.get(at).copied().unwrap_or_default();
            let known = self.texts.iter().find(|known| (known.0.as_str(), known.1) == (&level.name, text));
            known.map_or(written.version, |known| known.2)
        };
        self.versions = program.levels.iter().enumerate().map(version).collect();
        self.set_text(program, written);
    }

    /// Continues with the same program in another text: its lines are the same.
    pub(crate) fn set_text(&mut self, program: &QueueProgram, written: &ProgramText) {
        for (at, level) in program.levels.iter().enumerate() {
            let text = written.texts.get(at).copied().unwrap_or_default();
            if !self.texts.iter().any(|known| (known.0.as_str(), known.1) == (&level.name, text)) {
                self.texts.push((level.name.clone(), text, self.versions[at]));
            }
        }
        self.texts.drain(..self.texts.len().saturating_sub(LINES_MAX));
    }

    /// Per level of the current queue: the first version with its text.
    pub(crate) fn versions(&self) -> &[u64] {
        &self.versions
    }

    /// Drops and marks by line: earlier queues first, then the current one.
    pub(crate) fn totals<C: QueueCode>(&self, queue: &Queue<C>) -> Vec<LineTotal> {
        let mut totals = self.earlier.clone();
        let of = LineTotal::of(&queue.shared.program, &self.versions, &queue.shared.lines);
        LineTotal::add(&mut totals, &of);
        totals
    }
}

/// Below this many units of 256 ns a class is one unit wide. Above, there are four classes per doubling, up to a day.
const LINEAR: u64 = 4;
const UNIT_BITS: u32 = 8;
const CLASSES: usize = 152;

/// A histogram of waiting times, with quantiles exact to a quarter. Each of many partitions has one, so it takes a
/// tenth of the memory of a [`Histogram`](crate::stats::Histogram).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitHistogram {
    counts: Vec<u32>,
    n: u64,
}

impl WaitHistogram {
    /// Records the waiting time of one packet.
    pub fn note(&mut self, ns: u64) {
        let class = Self::class_of(ns);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.n += 1;
        // Halve all counts before one overflows.
        if self.counts[class] == u32::MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
        self.counts[class] += 1;
    }

    /// The number of packets.
    pub fn count(&self) -> u64 {
        self.n
    }

    /// The waiting time that this share of packets did not exceed, in nanoseconds, interpolated within its class; 0 if
    /// no packet was sent.
    pub fn quantile(&self, share: f64) -> u64 {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut before = 0;
        for (class, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if before + count >= wanted {
                let start = class.checked_sub(1).map_or(0, Self::class_end);
                let part = (wanted - before) as f64 / count as f64;
                return start + ((Self::class_end(class) - start) as f64 * part) as u64;
            }
            before += count;
        }
        0
    }

    /// Adds the counts of another histogram.
    fn merge(&mut self, other: &Self) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.n += other.n;
    }

    /// Returns the class of a time.
    fn class_of(ns: u64) -> usize {
        let units = ns >> UNIT_BITS;
        if units < LINEAR {
            return units as usize;
        }
        let doublings = units.ilog2() - LINEAR.ilog2();
        let class = u64::from(doublings) * LINEAR + (units >> doublings);
        (class as usize).min(CLASSES - 1)
    }

    /// Returns the upper bound of a class, in nanoseconds.
    fn class_end(class: usize) -> u64 {
        let class = class as u64;
        let doublings = (class / LINEAR).saturating_sub(1);
        (class - doublings * LINEAR + 1) << doublings << UNIT_BITS
    }
}

/// Tallies by level and partition.
pub(super) type Watched = FxHashMap<(u8, u32), Tally>;

/// The tally of a partition, if there is room for one.
fn tally_of(watched: &mut Watched, level: u8, partition: u32) -> Option<&mut Tally> {
    let is_full = watched.len() >= WATCHED_MAX && !watched.contains_key(&(level, partition));
    (!is_full).then(|| watched.entry((level, partition)).or_default())
}

/// The tallies that a dropped or marked packet counts in.
#[derive(Clone, Copy, Debug)]
pub(super) struct TallyTarget {
    /// The partition on the level of the line; None: not known yet.
    pub(super) by: Option<u32>,
    /// The lowest level and partition known for the packet.
    pub(super) of: Option<(usize, u32)>,
}

impl TallyTarget {
    /// For an arriving packet that has reached this partition.
    pub(super) fn arriving(at: usize, partition: u32) -> Self {
        Self { by: Some(partition), of: Some((at, partition)) }
    }

    /// For an arriving packet that has reached this node, which is a partition of the level above.
    pub(super) fn arrived_at_node(at: usize, node: u32) -> Self {
        Self { by: None, of: at.checked_sub(1).map(|above| (above, node)) }
    }
}

impl<C> Shared<C> {
    /// Counts a drop or mark of a level's source line.
    #[cold]
    pub(super) fn note(&mut self, at: usize, whose: TallyTarget, line: u32, verdict: Verdict) {
        let line = LineCount { level: at as u8, line, verdict, packets: 1 };
        line.add_to(&mut self.lines);
        let Some(watched) = &mut self.watched else { return };
        if let Some(tally) = whose.by.and_then(|partition| tally_of(watched, at as u8, partition)) {
            line.add_to(&mut tally.lines);
        }
        if let Some(tally) = whose.of.and_then(|(level, partition)| tally_of(watched, level as u8, partition))
        {
            *(if verdict == Verdict::Mark { &mut tally.marked } else { &mut tally.dropped }) += 1;
        }
    }
}

impl<C: QueueCode> Queue<C> {
    /// Starts to keep tallies for [`Queue::partitions`].
    pub fn watch(&mut self) {
        self.shared.watched.get_or_insert_default();
    }

    /// Records that the last packet was sent at this time; without [`Queue::watch`], nothing.
    pub fn record_sent(&mut self, sent: &Sent, now_ns: u64) {
        let leaf = self.levels.len() - 1;
        if let Some(watched) = &mut self.shared.watched
            && let Some(tally) = tally_of(watched, leaf as u8, self.shared.left)
        {
            tally.waits.note(now_ns.saturating_sub(sent.arrived_ns));
        }
    }

    /// Counts a packet that its owner could not keep and did not enqueue: a limit, though none of the program. No
    /// handler runs.
    pub fn count_refused(&mut self) {
        self.shared.counts.arrived += 1;
        self.shared.counts.dropped_overflow += 1;
    }

    /// Counts the last packet as dropped instead of sent: there is no device.
    pub fn count_lost(&mut self) {
        let leaf = self.levels.len() - 1;
        self.shared.counts.sent -= 1;
        self.shared.counts.dropped_device += 1;
        if let Some(watched) = &mut self.shared.watched
            && let Some(tally) = tally_of(watched, leaf as u8, self.shared.left)
        {
            tally.dropped += 1;
        }
    }

    /// The partitions that hold packets, are in an order or have a tally, at most that many per level. A node without
    /// partitions counts as one.
    pub fn partitions(&self, at_most: usize) -> Vec<PartitionState> {
        self.levels.iter().flat_map(|level| self.partitions_of(level, at_most)).collect()
    }

    /// Returns up to `at_most` partitions of a level, those in use first, with their state and tally.
    fn partitions_of(&self, level: &Level, at_most: usize) -> Vec<PartitionState> {
        let at = level.shape.at;
        let is_all = at == 0 && level.shape.is_one;
        let in_use = (0..level.n_partitions()).filter(|nth| is_all || level.is_in_use(*nth));
        let mut listed: BTreeSet<u32> = in_use.take(at_most).collect();
        let with_tally: BTreeSet<u32> = self.tallies().filter_map(|(of, _)| self.ancestor(of, at)).collect();
        let n_more = at_most - listed.len();
        let more: Vec<u32> = with_tally.difference(&listed).copied().take(n_more).collect();
        listed.extend(more);
        let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
        for (of, tally) in self.tallies() {
            let Some(partition) = self.ancestor(of, at).filter(|partition| listed.contains(partition)) else {
                continue;
            };
            let own = tallies.entry(partition).or_default();
            if usize::from(of.0) == at {
                own.merge(tally);
            } else {
                own.count(tally);
            }
        }
        let now = self.shared.handlers.now();
        let state = |nth| level.state(nth, now, tallies.remove(&nth).unwrap_or_default());
        listed.into_iter().map(state).collect()
    }

    fn tallies(&self) -> impl Iterator<Item = ((u8, u32), &Tally)> {
        self.shared.watched.iter().flatten().map(|(of, tally)| (*of, tally))
    }

    /// Returns the partition of level `at` that contains a partition of a level below, or is it. None for a level
    /// above.
    fn ancestor(&self, (level, mut partition): (u8, u32), at: usize) -> Option<u32> {
        let level = usize::from(level);
        for inner in self.levels.get(at + 1..=level)?.iter().rev() {
            partition = inner.shape.node_of(partition);
        }
        (at <= level).then_some(partition)
    }
}

impl Level {
    /// Returns the state of a partition, with its tally.
    fn state(&self, nth: u32, now_ns: u64, tally: Tally) -> PartitionState {
        let head = if self.shape.is_one { self.nodes.head(nth) } else { self.partitions.head(nth) };
        let waits = head[kept::PLACE];
        let is_over = self.shape.is_one && waits <= now_ns;
        let is_held = waits != kept::IDLE && waits < kept::IN_ORDER && !is_over;
        let node = self.shape.node_of(nth);
        PartitionState {
            level: self.shape.at as u8,
            node,
            index: if self.shape.is_one { 0 } else { nth - node * self.shape.n },
            packets: head[kept::PACKETS],
            bytes: head[kept::BYTES],
            rank: if self.shape.is_one { 0 } else { head[kept::RANK] as i64 },
            held_until_ns: is_held.then_some(waits),
            tally,
        }
    }
}

impl Counts {
    /// Adds the past counts of another queue, without what is queued there.
    pub(crate) fn add_past(&mut self, more: &Self) {
        self.arrived += more.arrived;
        self.sent += more.sent;
        self.dropped_enqueue += more.dropped_enqueue;
        self.dropped_dequeue += more.dropped_dequeue;
        self.dropped_overflow += more.dropped_overflow;
        self.dropped_device += more.dropped_device;
        self.marked += more.marked;
        self.taken += more.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it failed, waiting-time quantiles would be wrong: each time belongs to the class that ends behind it, within
    /// a quarter.
    #[test]
    fn wait_classes_are_contiguous() {
        let mut before = 0;
        for class in 0..CLASSES {
            let end = WaitHistogram::class_end(class);
            assert!(end > before, "class {class}");
            assert_eq!(
                (WaitHistogram::class_of(before), WaitHistogram::class_of(end - 1)),
                (class, class),
                "{before} to {end}"
            );
            assert!(class < 4 || end - before <= before / 4, "class {class}: {before} to {end}");
            before = end;
        }
        assert!(before > 86_400_000_000_000, "up to a day: {before}");
    }

    /// If it failed, the page of limits would promise more tallies than there are.
    #[test]
    fn limits_page_lists_queue_limits() {
        let page = include_str!("../../../../docs/src/reference/limits.md");
        let row = page.lines().find(|row| row.contains("what became of their packets")).expect("it is there");
        assert!(row.ends_with(&format!("| {},{:03}; {LINES_MAX} |", WATCHED_MAX / 1000, WATCHED_MAX % 1000)));
    }

    /// If it failed, percentiles would be those of other packets.
    #[test]
    fn wait_quantiles_interpolate() {
        let mut waits = WaitHistogram::default();
        assert_eq!(waits.quantile(0.5), 0);
        (1..=1000).for_each(|ms| waits.note(ms * 1_000_000));
        for (share, ms) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let ratio = waits.quantile(share) as f64 / (ms * 1e6);
            assert!((0.95..1.1).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!(waits.count(), 1000);
    }
}
