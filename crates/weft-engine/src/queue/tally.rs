//! What is told of partitions, for people who look: how long their packets waited, and which lines dropped or marked
//! them. A queue keeps it only once it is asked to ([`Queue::watch`]); what it does does not depend on it.

use super::level::{Level, kept};
use super::shared::Shared;
use super::{Counts, LineCount, PartitionState, Queue, QueueCode, QueueProgram, Sent};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use weft_ir::queue::Verdict;

/// Partitions of a queue that are watched, at most: those that were used first.
pub const WATCHED_MAX: usize = 4096;

/// What became of the packets of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How long those waited that were sent.
    pub waits: Waits,
    /// What lines of its level dropped or marked. Those of the levels below are with the partitions there.
    pub lines: Vec<LineCount>,
    /// Packets dropped, of its level and of those below.
    pub dropped: u64,
    /// Packets marked, likewise.
    pub marked: u64,
}

impl Tally {
    /// Adds what became of others.
    pub fn merge(&mut self, other: &Self) {
        self.count(other);
        other.lines.iter().for_each(|line| line.add_to(&mut self.lines));
    }

    /// As above, without their lines.
    fn count(&mut self, other: &Self) {
        self.waits.merge(&other.waits);
        self.dropped += other.dropped;
        self.marked += other.marked;
    }
}

impl LineCount {
    /// Adds it to others.
    pub fn add_to(&self, lines: &mut Vec<Self>) {
        let is_it = |of: &&mut Self| (of.level, of.line, of.verdict) == (self.level, self.line, self.verdict);
        match lines.iter_mut().find(is_it) {
            Some(of) => of.packets += self.packets,
            None => lines.push(*self),
        }
    }
}

/// Drops or marks of a line, whichever queue of a link it was in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTotal {
    /// The queue.
    pub queue: String,
    /// The version of the program that had the queue in these words first: line 7 of other words is another line.
    pub version: u64,
    /// The line.
    pub line: u32,
    /// What it said: Mark or Drop.
    pub verdict: Verdict,
    /// How often.
    pub packets: u64,
}

/// Lines of which a link tells, at most: those of queues that it had long ago are given up first.
const LINES_MAX: usize = 256;

impl LineTotal {
    /// Those of a queue; the versions are those of its levels.
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

    /// Adds them to others.
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

/// In which words a queue was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The version of the program.
    pub version: u64,
    /// A hash of the words of each level, and of the line in which they begin.
    pub texts: Vec<u64>,
}

/// What lines of the queues of a link did, one after the other.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Those of earlier queues.
    earlier: Vec<LineTotal>,
    /// The words that they and the one at hand were written in: the level's name, the hash, and the version that had
    /// them first.
    texts: Vec<(String, u64, u64)>,
    /// The versions of the levels of the queue at hand.
    versions: Vec<u64>,
}

impl Lines {
    /// Those of a first queue.
    pub(crate) fn new(program: &QueueProgram, written: &Written) -> Self {
        let mut lines = Self { earlier: Vec::new(), texts: Vec::new(), versions: Vec::new() };
        lines.begin(program, written);
        lines
    }

    /// Another queue takes the place of this.
    pub(crate) fn replace<C: QueueCode>(
        &mut self,
        before: &Queue<C>,
        program: &QueueProgram,
        written: &Written,
    ) {
        self.earlier = self.totals(before);
        self.begin(program, written);
    }

    fn begin(&mut self, program: &QueueProgram, written: &Written) {
        let version = |(at, level): (usize, &weft_ir::queue::Level)| {
            let text = written.texts.get(at).copied().unwrap_or_default();
            let known = self.texts.iter().find(|known| (known.0.as_str(), known.1) == (&level.name, text));
            known.map_or(written.version, |known| known.2)
        };
        self.versions = program.levels.iter().enumerate().map(version).collect();
        self.reword(program, written);
    }

    /// The queue at hand is the same program in other words: its lines are where they were.
    pub(crate) fn reword(&mut self, program: &QueueProgram, written: &Written) {
        for (at, level) in program.levels.iter().enumerate() {
            let text = written.texts.get(at).copied().unwrap_or_default();
            if !self.texts.iter().any(|known| (known.0.as_str(), known.1) == (&level.name, text)) {
                self.texts.push((level.name.clone(), text, self.versions[at]));
            }
        }
        self.texts.drain(..self.texts.len().saturating_sub(LINES_MAX));
    }

    /// The versions of the levels of the queue at hand.
    pub(crate) fn versions(&self) -> &[u64] {
        &self.versions
    }

    /// Drops and marks by line, of the queue at hand behind those of earlier ones.
    pub(crate) fn totals<C: QueueCode>(&self, queue: &Queue<C>) -> Vec<LineTotal> {
        let mut totals = self.earlier.clone();
        let of = LineTotal::of(&queue.shared.program, &self.versions, &queue.shared.lines);
        LineTotal::add(&mut totals, &of);
        totals
    }
}

/// Below this many units of 256 ns a class of times is one unit; above, there are four to a doubling, up to a day.
const LINEAR: u64 = 4;
const UNIT_BITS: u32 = 8;
const CLASSES: usize = 152;

/// How long packets waited: counts by magnitude, from which shares are told within a fourth at worst. There is one for
/// each of many partitions, so that it takes a tenth of what a [`Histogram`](crate::stats::Histogram) does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    counts: Vec<u32>,
    n: u64,
}

impl Waits {
    /// One packet more.
    pub fn note(&mut self, ns: u64) {
        let class = Self::class(ns);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.n += 1;
        // What has been counted for so long is told from half as many as well.
        if self.counts[class] == u32::MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
        self.counts[class] += 1;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.n
    }

    /// So great a share waited no longer, in nanoseconds, as if the times of a class lay evenly in it; 0 if nothing was
    /// sent.
    pub fn quantile(&self, share: f64) -> u64 {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut before = 0;
        for (class, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if before + count >= wanted {
                let start = class.checked_sub(1).map_or(0, Self::end);
                let part = (wanted - before) as f64 / count as f64;
                return start + ((Self::end(class) - start) as f64 * part) as u64;
            }
            before += count;
        }
        0
    }

    fn merge(&mut self, other: &Self) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.n += other.n;
    }

    fn class(ns: u64) -> usize {
        let units = ns >> UNIT_BITS;
        if units < LINEAR {
            return units as usize;
        }
        let doublings = units.ilog2() - LINEAR.ilog2();
        let class = u64::from(doublings) * LINEAR + (units >> doublings);
        (class as usize).min(CLASSES - 1)
    }

    /// Where a class ends.
    fn end(class: usize) -> u64 {
        let class = class as u64;
        let doublings = (class / LINEAR).saturating_sub(1);
        (class - doublings * LINEAR + 1) << doublings << UNIT_BITS
    }
}

/// Partitions that are watched, by level and number.
pub(super) type Watched = FxHashMap<(u8, u32), Tally>;

/// The tally of a partition, if there is room for one.
fn of(watched: &mut Watched, level: u8, partition: u32) -> Option<&mut Tally> {
    let is_full = watched.len() >= WATCHED_MAX && !watched.contains_key(&(level, partition));
    (!is_full).then(|| watched.entry((level, partition)).or_default())
}

/// Whose packet it is that a line drops or marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whose {
    /// The partition of the level that the line is of; None: it was not known yet which.
    pub(super) by: Option<u32>,
    /// The level and partition farthest below that are known to be the packet's.
    pub(super) of: Option<(usize, u32)>,
}

impl Whose {
    /// Of a packet that comes, and has come as far as this.
    pub(super) fn comes(at: usize, partition: u32) -> Self {
        Self { by: Some(partition), of: Some((at, partition)) }
    }

    /// Of one that has come to a node, which is a partition of the level above.
    pub(super) fn came_to(at: usize, node: u32) -> Self {
        Self { by: None, of: at.checked_sub(1).map(|above| (above, node)) }
    }
}

impl<C> Shared<C> {
    /// A line of a level dropped or marked a packet.
    #[cold]
    pub(super) fn note(&mut self, at: usize, whose: Whose, line: u32, verdict: Verdict) {
        let line = LineCount { level: at as u8, line, verdict, packets: 1 };
        line.add_to(&mut self.lines);
        let Some(watched) = &mut self.watched else { return };
        if let Some(tally) = whose.by.and_then(|partition| of(watched, at as u8, partition)) {
            line.add_to(&mut tally.lines);
        }
        if let Some(tally) = whose.of.and_then(|(level, partition)| of(watched, level as u8, partition)) {
            *(if verdict == Verdict::Mark { &mut tally.marked } else { &mut tally.dropped }) += 1;
        }
    }
}

impl<C: QueueCode> Queue<C> {
    /// From now on it keeps what [`Queue::partitions`] tells of packets that left.
    pub fn watch(&mut self) {
        self.shared.watched.get_or_insert_default();
    }

    /// The packet that left last was sent at this time. Nothing, if nobody watches.
    pub fn note_sent(&mut self, sent: &Sent, now_ns: u64) {
        let leaf = self.levels.len() - 1;
        if let Some(watched) = &mut self.shared.watched
            && let Some(tally) = of(watched, leaf as u8, self.shared.left)
        {
            tally.waits.note(now_ns.saturating_sub(sent.arrived_ns));
        }
    }

    /// A packet came that was not put in, for whoever has it cannot keep it: that is a limit as well, though none of
    /// the program, of which nothing runs.
    pub fn note_refused(&mut self) {
        self.shared.counts.arrived += 1;
        self.shared.counts.dropped_overflow += 1;
    }

    /// The packet that left last was not sent: there is no device. It is counted as dropped.
    pub fn note_lost(&mut self) {
        let leaf = self.levels.len() - 1;
        self.shared.counts.sent -= 1;
        self.shared.counts.dropped_device += 1;
        if let Some(watched) = &mut self.shared.watched
            && let Some(tally) = of(watched, leaf as u8, self.shared.left)
        {
            tally.dropped += 1;
        }
    }

    /// The partitions that hold packets or are in an order, and those of which something is told, at most so many of
    /// each level. A node that is one partition is one, too.
    pub fn partitions(&self, at_most: usize) -> Vec<PartitionState> {
        self.levels.iter().flat_map(|level| self.partitions_of(level, at_most)).collect()
    }

    fn partitions_of(&self, level: &Level, at_most: usize) -> Vec<PartitionState> {
        let at = level.shape.at;
        let is_all = at == 0 && level.shape.is_one;
        let in_use = (0..level.n_partitions()).filter(|nth| is_all || level.is_in_use(*nth));
        let mut listed: BTreeSet<u32> = in_use.take(at_most).collect();
        let told: BTreeSet<u32> = self.tallies().filter_map(|(of, _)| self.above(of, at)).collect();
        let n_more = at_most - listed.len();
        let more: Vec<u32> = told.difference(&listed).copied().take(n_more).collect();
        listed.extend(more);
        let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
        for (of, tally) in self.tallies() {
            let Some(partition) = self.above(of, at).filter(|partition| listed.contains(partition)) else {
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

    /// The partition of a level that one of a level below is in.
    fn above(&self, (level, mut partition): (u8, u32), at: usize) -> Option<u32> {
        let level = usize::from(level);
        for inner in self.levels.get(at + 1..=level)?.iter().rev() {
            partition = inner.shape.node_of(partition);
        }
        (at <= level).then_some(partition)
    }
}

impl Level {
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
    /// Adds what came and went of another; what is there is there once.
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

    /// If this fails, shares of waits are told wrongly: each time belongs to the class that ends behind it, within a
    /// fourth.
    #[test]
    fn classes_of_waits_follow_each_other() {
        let mut before = 0;
        for class in 0..CLASSES {
            let end = Waits::end(class);
            assert!(end > before, "class {class}");
            assert_eq!((Waits::class(before), Waits::class(end - 1)), (class, class), "{before} to {end}");
            assert!(class < 4 || end - before <= before / 4, "class {class}: {before} to {end}");
            before = end;
        }
        assert!(before > 86_400_000_000_000, "up to a day: {before}");
    }

    /// The page of limits would promise more partitions than are watched.
    #[test]
    fn the_page_of_limits_has_those_of_what_is_told() {
        let page = include_str!("../../../../docs/src/reference/limits.md");
        let row = page.lines().find(|row| row.contains("what became of their packets")).expect("it is there");
        assert!(row.ends_with(&format!("| {},{:03}; {LINES_MAX} |", WATCHED_MAX / 1000, WATCHED_MAX % 1000)));
    }

    /// If this fails, percentiles are those of other packets.
    #[test]
    fn shares_of_waits() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile(0.5), 0);
        (1..=1000).for_each(|ms| waits.note(ms * 1_000_000));
        for (share, ms) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let ratio = waits.quantile(share) as f64 / (ms * 1e6);
            assert!((0.95..1.1).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!(waits.count(), 1000);
    }
}
