//! The complete state of a queue as rows of numbers: another queue of the same program continues from there
//! identically.
//!
//! It has the variables of the program, the order of partitions, what is held until when, and the packets, without
//! their owner's handles. Statistics are not in it. The numbers come from files, so each is checked: a row that does
//! not fit the program is refused.

use super::handlers::Random;
use super::level::{Level, add_packet};
use super::ranked::RankSlots as _;
use super::{Packet, Queue, QueueCode, QueueProgram, kept, levels};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_ir::queue::word;

/// All times in a snapshot are below this, so that additions do not overflow.
const TIME_MAX: u64 = i64::MAX as u64;

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// The event words, the random state, and the wake-up time. One row, the first of all.
    Event,
    /// Level, node, held until, variables.
    Node,
    /// Level, partition, rank, rank in the order, held until, tag, variables.
    Partition,
    /// Number by arrival, partition, and its words from the arrival time on.
    Packet,
    /// Level, node, and the partitions in its order, first to last.
    Order,
    /// Level, node, and its held partitions, the earliest first.
    Held,
    /// Level, and the nodes whose timers run.
    Started,
    /// When it is due, level, node, index in the level.
    Timer,
    /// A partition of the level that counts those in use, and the values of its last packet.
    InUse,
}

/// The state of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The rows, in an order in which they can be restored.
    pub rows: Vec<(RowKind, Vec<u64>)>,
}

impl RowKind {
    /// All kinds, with their letters in texts.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Event, "E"),
        (Self::Node, "N"),
        (Self::Partition, "P"),
        (Self::Packet, "Q"),
        (Self::Order, "O"),
        (Self::Held, "H"),
        (Self::Started, "S"),
        (Self::Timer, "T"),
        (Self::InUse, "U"),
    ];
}

impl Snapshot {
    /// The number of packets.
    pub fn n_packets(&self) -> usize {
        self.rows.iter().filter(|(kind, _)| *kind == RowKind::Packet).count()
    }
}

impl<C: QueueCode> Queue<C> {
    /// The current state. Poll all drops before; random numbers must come from the seed.
    pub fn snapshot(&self) -> Snapshot {
        let mut rows = Vec::new();
        let seed = if let Random::Seeded(state) = self.shared.handlers.random { state } else { 0 };
        let event = self.shared.handlers.event.iter().copied().chain([seed, self.wake_at]);
        rows.push((RowKind::Event, event.collect()));
        for (level, fresh) in self.levels.iter().zip(levels(&self.shared.program)) {
            self.level_rows(level, &fresh, &mut rows);
        }
        self.packet_rows(&mut rows);
        let mut timers: Vec<_> = self.shared.timers.iter().map(|Reverse(timer)| *timer).collect();
        timers.sort_unstable();
        for (due, level, node, nth) in timers {
            rows.push((RowKind::Timer, vec![due, level.into(), node.into(), nth.into()]));
        }
        if let (Some(in_use), Some(level)) =
            (&self.shared.in_use, self.levels.iter().find(|at| at.shape.counts))
        {
            rows.extend(in_use.rows(level).into_iter().map(|row| (RowKind::InUse, row)));
        }
        Snapshot { rows }
    }

    /// Creates a queue that continues from a snapshot of the same program. The handles of its packets are their
    /// numbers: the first to arrive is 0.
    ///
    /// # Errors
    /// The first row that does not fit, and the reason.
    pub fn restore(
        program: Arc<QueueProgram>,
        code: C,
        snapshot: &Snapshot,
    ) -> Result<Self, (usize, &'static str)> {
        let mut queue = Self::new(program, code, 0, 0);
        queue.shared.stop_timers();
        queue.levels.iter_mut().for_each(|level| level.is_started.fill(false));
        let n_packets = snapshot.n_packets() as u64;
        let mut waits = HeldUntil::new();
        for (nth, (kind, numbers)) in snapshot.rows.iter().enumerate() {
            let done = match (nth, kind) {
                (0, RowKind::Event) => queue.restore_event(numbers),
                (0, _) => Err("it is not that of the event, which is first"),
                (_, RowKind::Event) => Err("the event has been there before"),
                (_, RowKind::Node) => queue.restore_node(numbers),
                (_, RowKind::Partition) => queue.restore_partition(numbers, &mut waits),
                (_, RowKind::Packet) => queue.restore_packet(numbers, n_packets),
                (_, RowKind::Order) => queue.restore_order(numbers, &waits, false),
                (_, RowKind::Held) => queue.restore_order(numbers, &waits, true),
                (_, RowKind::Started) => queue.restore_started(numbers),
                (_, RowKind::Timer) => queue.restore_timer(numbers),
                (_, RowKind::InUse) => queue.restore_in_use(numbers),
            };
            done.map_err(|why| (nth, why))?;
        }
        queue.shared.find_next_timer();
        Ok(queue)
    }

    /// Writes the rows of a level without packets; omits values that equal the initial ones in `fresh`.
    fn level_rows(&self, level: &Level, fresh: &Level, rows: &mut Vec<(RowKind, Vec<u64>)>) {
        let at = level.shape.at as u64;
        let decl = &self.shared.program.levels[level.shape.at];
        let of_node = |level: &Level, node| vars(level.nodes.words(node), word::NODE_VARS, decl.vars.len());
        for node in 0..level.is_started.len() as u32 {
            let vars = of_node(level, node);
            let until = if level.shape.is_one { level.nodes.head(node)[kept::PLACE] } else { 0 };
            if until > 0 || vars != of_node(fresh, node) {
                rows.push((RowKind::Node, [vec![at, node.into(), until], vars].concat()));
            }
        }
        let of_partition = |level: &Level, nth| {
            vars(level.partitions.words(nth), word::PARTITION_VARS, decl.partition_vars.len())
        };
        for partition in 0..if level.shape.is_one { 0 } else { level.n_partitions() } {
            let (head, vars) = (level.partitions.head(partition), of_partition(level, partition));
            let until = waits_until(level, partition).unwrap_or(0);
            let tag = level.tags.get(partition as usize).copied().unwrap_or(0);
            let own = [head[kept::RANK], head[kept::STANDS], until, tag.into()];
            if own != [0; 4] || vars != of_partition(fresh, partition) {
                rows.push((RowKind::Partition, [vec![at, partition.into()], own.to_vec(), vars].concat()));
            }
        }
        let mut list = |kind, head: &[u64], ids: Vec<u32>| {
            if !ids.is_empty() {
                rows.push((kind, head.iter().copied().chain(ids.into_iter().map(u64::from)).collect()));
            }
        };
        let started = level.is_started.iter().enumerate().filter(|(_, is_started)| **is_started);
        list(RowKind::Started, &[at], started.map(|(node, _)| node as u32).collect());
        for (node, held) in level.held.iter().enumerate() {
            let head = [at, node as u64];
            list(RowKind::Order, &head, level.in_order(node as u32));
            let mut held: Vec<_> = held.iter().map(|Reverse(entry)| *entry).collect();
            held.sort_unstable();
            // A partition that was released early and held again is there twice: the first entry counts.
            let mut seen = BTreeSet::new();
            held.retain(|(until, _, partition)| {
                waits_until(level, *partition) == Some(*until) && seen.insert(*partition)
            });
            list(RowKind::Held, &head, held.into_iter().map(|(.., partition)| partition).collect());
        }
    }

    /// The handles of the waiting packets, in the order of their numbers in a snapshot.
    pub fn waiting(&self) -> Vec<u64> {
        let all = self.packet_slots();
        let handle = |nth: usize| self.shared.packets.words(all[nth].1)[usize::from(word::HANDLE)];
        self.by_arrival(&all).into_iter().map(handle).collect()
    }

    /// Writes the rows of the waiting packets.
    fn packet_rows(&self, rows: &mut Vec<(RowKind, Vec<u64>)>) {
        let all = self.packet_slots();
        let mut numbers = vec![0; all.len()];
        self.by_arrival(&all).into_iter().enumerate().for_each(|(number, nth)| numbers[nth] = number as u64);
        let own = self.shared.program.packet_words() - 1;
        for ((partition, slot), number) in all.into_iter().zip(numbers) {
            let words = &self.shared.packets.words(slot)[usize::from(word::ARRIVED)..own];
            rows.push((RowKind::Packet, [number, partition.into()].iter().chain(words).copied().collect()));
        }
    }

    /// Returns the packets of each partition on the last level, first to last, each with its partition.
    fn packet_slots(&self) -> Vec<(u32, u32)> {
        let Some(leaf) = self.levels.last() else { return Vec::new() };
        let packets = &self.shared.packets;
        let of_partition =
            |partition: u32| packets.waiting(leaf, partition).into_iter().map(move |slot| (partition, slot));
        (0..leaf.n_partitions()).flat_map(of_partition).collect()
    }

    /// Returns the indexes of these packets in order of arrival.
    fn by_arrival(&self, slots: &[(u32, u32)]) -> Vec<usize> {
        let mut in_order: Vec<usize> = (0..slots.len()).collect();
        in_order.sort_by_key(|nth| self.shared.packets.arrived_ns(slots[*nth].1));
        in_order
    }

    /// Restores the time, the random state and the wake time. The error says what is wrong with the row, as for all
    /// restore functions.
    fn restore_event(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let n = self.shared.handlers.event.len();
        let [seed, wake_at] = *numbers.get(n..).unwrap_or_default() else { return Err(LENGTH) };
        self.shared.handlers.event.copy_from_slice(&numbers[..n]);
        self.shared.handlers.no_drops();
        if self.shared.handlers.now() > TIME_MAX {
            return Err(FAR);
        }
        if let Random::Seeded(state) = &mut self.shared.handlers.random {
            *state = seed;
        }
        self.wake_at = wake_at;
        Ok(())
    }

    /// Restores the variables of a node, and its hold time.
    fn restore_node(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [at, node, until, vars @ ..] = numbers else { return Err(LENGTH) };
        let (at, node) = self.find_node(*at, *node)?;
        if vars.len() != self.shared.program.levels[at].vars.len() {
            return Err(LENGTH);
        }
        let level = &mut self.levels[at];
        if level.shape.is_one {
            level.nodes.head_mut(node)[kept::PLACE] = *until;
        }
        level.nodes.handler_words(node)[usize::from(word::NODE_VARS)..][..vars.len()].copy_from_slice(vars);
        Ok(())
    }

    /// Restores the rank and the variables of a partition; keeps its hold time in `waits`.
    fn restore_partition(&mut self, numbers: &[u64], waits: &mut HeldUntil) -> Result<(), &'static str> {
        let [at, partition, rank, stands, until, tag, vars @ ..] = numbers else { return Err(LENGTH) };
        let (at, partition) = self.find_partition(*at, *partition)?;
        let level = &mut self.levels[at];
        if level.shape.is_one || vars.len() != self.shared.program.levels[at].partition_vars.len() {
            return Err(LENGTH);
        }
        let head = level.partitions.head_mut(partition);
        if head[kept::PLACE] != kept::IDLE {
            return Err(TWICE);
        }
        (head[kept::RANK], head[kept::STANDS]) = (*rank, *stands);
        waits.insert((at, partition), *until);
        let words = level.partitions.handler_words(partition);
        words[usize::from(word::PARTITION_VARS)..][..vars.len()].copy_from_slice(vars);
        if let Some(own) = level.tags.get_mut(partition as usize) {
            *own = *tag as u32;
        }
        Ok(())
    }

    /// Restores the counts of a partition that is in use.
    fn restore_in_use(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [partition, values @ ..] = numbers else { return Err(LENGTH) };
        let at =
            self.levels.iter().position(|level| level.shape.counts).ok_or("no partitions are counted")?;
        let (_, partition) = self.find_partition(at as u64, *partition)?;
        let level = &self.levels[at];
        let is_right =
            self.shared.in_use.as_mut().is_some_and(|in_use| in_use.restore(level, partition, values));
        if is_right { Ok(()) } else { Err(LENGTH) }
    }

    /// Restores a packet and appends it to its list.
    fn restore_packet(&mut self, numbers: &[u64], n_packets: u64) -> Result<(), &'static str> {
        let [number, partition, words @ ..] = numbers else { return Err(LENGTH) };
        let leaf = self.levels.len() - 1;
        let (_, partition) = self.find_partition(leaf as u64, *partition)?;
        let (first, own) = (usize::from(word::ARRIVED), self.shared.program.packet_words() - 1);
        if words.len() != own - first || *number >= n_packets {
            return Err(LENGTH);
        }
        let len = words[usize::from(word::LEN) - first];
        if len > u32::MAX.into() || words[0] > TIME_MAX {
            return Err(FAR);
        }
        let packets = &mut self.shared.packets;
        let packet = Packet { handle: *number, ..Packet::default() };
        let slot = match &mut self.levels[..] {
            [line] if line.shape.is_ring => {
                let slot = packets.next_ring_slot(line.nodes.head_mut(0));
                packets.write_packet(slot, &packet, 0, &[]);
                packets.append_to_ring(line.nodes.head_mut(0));
                slot
            }
            _ => packets.store(&packet, 0, &[]),
        };
        packets.handler_words(slot)[first..own].copy_from_slice(words);
        let mut inside = partition;
        for level in self.levels.iter_mut().rev() {
            let node = level.shape.node_of(inside);
            add_packet(level.nodes.head_mut(node), len);
            if !level.shape.is_one {
                add_packet(level.partitions.head_mut(inside), len);
            }
            inside = node;
        }
        let leaf = &mut self.levels[leaf];
        if leaf.shape.is_ranked {
            let rank = packets.rank(slot);
            leaf.ranked[partition as usize].insert(slot, rank, packets);
        } else if !leaf.shape.is_ring {
            packets.append(&mut leaf.own_mut(partition)[kept::LINE], slot);
        }
        self.shared.counts.arrived += 1;
        Ok(())
    }

    /// Restores an order, or held partitions.
    fn restore_order(
        &mut self,
        numbers: &[u64],
        waits: &HeldUntil,
        is_held: bool,
    ) -> Result<(), &'static str> {
        let [at, node, ids @ ..] = numbers else { return Err(LENGTH) };
        let (at, node) = self.find_node(*at, *node)?;
        for id in ids {
            let (_, partition) = self.find_partition(at as u64, *id)?;
            let level = &mut self.levels[at];
            if level.shape.is_one || level.shape.node_of(partition) != node {
                return Err("a partition is of another node");
            }
            let head = level.partitions.head_mut(partition);
            if head[kept::PLACE] != kept::IDLE {
                return Err(TWICE);
            }
            if is_held {
                let until =
                    waits.get(&(at, partition)).map_or(1, |until| (*until).clamp(1, kept::IN_ORDER - 1));
                head[kept::PLACE] = until;
                level.n_held += 1;
                level.held[node as usize].push(Reverse((until, level.n_held, partition)));
            } else {
                let stands = head[kept::STANDS] as i64;
                level.enter_at(node, partition, stands);
            }
        }
        Ok(())
    }

    /// Restores which nodes have started their timers.
    fn restore_started(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [at, nodes @ ..] = numbers else { return Err(LENGTH) };
        for node in nodes {
            let (at, node) = self.find_node(*at, *node)?;
            self.levels[at].is_started[node as usize] = true;
        }
        Ok(())
    }

    /// Restores a running timer.
    fn restore_timer(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [due, at, node, nth] = *numbers else { return Err(LENGTH) };
        let (at, node) = self.find_node(at, node)?;
        if nth >= self.shared.program.levels[at].handlers.every.len() as u64 {
            return Err("there is no such timer");
        }
        if due > TIME_MAX {
            return Err(FAR);
        }
        self.shared.timers.push(Reverse((due, at as u8, node, nth as u16)));
        Ok(())
    }

    /// Checks that a level has a node, and returns both.
    fn find_node(&self, at: u64, node: u64) -> Result<(usize, u32), &'static str> {
        let level =
            usize::try_from(at).ok().and_then(|at| self.levels.get(at)).ok_or("there is no such level")?;
        match node < level.is_started.len() as u64 {
            true => Ok((at as usize, node as u32)),
            false => Err("there is no such node"),
        }
    }

    /// Checks that a level has a partition, and returns both.
    fn find_partition(&self, at: u64, partition: u64) -> Result<(usize, u32), &'static str> {
        let level =
            usize::try_from(at).ok().and_then(|at| self.levels.get(at)).ok_or("there is no such level")?;
        match partition < u64::from(level.n_partitions()) {
            true => Ok((at as usize, partition as u32)),
            false => Err("there is no such partition"),
        }
    }
}

/// By level and partition: held until.
type HeldUntil = BTreeMap<(usize, u32), u64>;

/// The variables among the words.
fn vars(words: &[u64], first: u16, n: usize) -> Vec<u64> {
    words[usize::from(first)..][..n].to_vec()
}

/// The time until which a partition is held, if it is.
fn waits_until(level: &Level, partition: u32) -> Option<u64> {
    let state = level.partitions.head(partition)[kept::PLACE];
    (state != kept::IDLE && state < kept::IN_ORDER).then_some(state)
}

const LENGTH: &str = "it has too few numbers, or too many";
const FAR: &str = "a number is too great for its place";
const TWICE: &str = "a partition stands in two places";
