//! All that a queue remembers, as rows of numbers: another queue of the same program goes on from there as it would.
//!
//! What a program counts in its variables, who stands where, what waits until when, and the packets without what their
//! owner knows of them. What only people ask for, counts of what was, is not in it. Numbers come from files, so that
//! none is believed: a row that does not fit the program is refused.

use super::handlers::Random;
use super::level::{Level, count};
use super::ranked::Places as _;
use super::{Packet, Queue, QueueCode, QueueProgram, kept, levels};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_ir::queue::word;

/// Times in a snapshot lie below this, so that what is added to them does not overflow.
const TIME_MAX: u64 = i64::MAX as u64;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The words of an event, what chance follows from, and when to wake. One, in front of all others.
    Event,
    /// Level, node, until when it waits, variables.
    Node,
    /// Level, partition, rank, the rank that it stands under, until when it waits, tag, variables.
    Partition,
    /// Number by arrival, partition, and its words from the time at which it came.
    Packet,
    /// Level, node, and the partitions that are in its order, first to last.
    Order,
    /// Level, node, and the partitions that wait, the first to go on first.
    Held,
    /// Level, and the nodes whose timers run.
    Started,
    /// When it is due, level, node, which of the level's.
    Timer,
    /// A partition of the level that counts those in use, and what its last packet had.
    InUse,
}

/// What a queue remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// In an order in which they can be read.
    pub rows: Vec<(Kind, Vec<u64>)>,
}

impl Kind {
    /// All of them, with the letters that stand for them in texts.
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
    /// How many packets there are.
    pub fn n_packets(&self) -> usize {
        self.rows.iter().filter(|(kind, _)| *kind == Kind::Packet).count()
    }
}

impl<C: QueueCode> Queue<C> {
    /// What it remembers now. What was dropped must have been asked for, and chance be of a seed.
    pub fn snapshot(&self) -> Snapshot {
        let mut rows = Vec::new();
        let seed = if let Random::Seeded(state) = self.shared.handlers.random { state } else { 0 };
        let event = self.shared.handlers.event.iter().copied().chain([seed, self.wake_at]);
        rows.push((Kind::Event, event.collect()));
        for (level, fresh) in self.levels.iter().zip(levels(&self.shared.program)) {
            self.level_rows(level, &fresh, &mut rows);
        }
        self.packet_rows(&mut rows);
        let mut timers: Vec<_> = self.shared.timers.iter().map(|Reverse(timer)| *timer).collect();
        timers.sort_unstable();
        for (due, level, node, nth) in timers {
            rows.push((Kind::Timer, vec![due, level.into(), node.into(), nth.into()]));
        }
        if let (Some(in_use), Some(level)) =
            (&self.shared.in_use, self.levels.iter().find(|at| at.shape.counts))
        {
            rows.extend(in_use.rows(level).into_iter().map(|row| (Kind::InUse, row)));
        }
        Snapshot { rows }
    }

    /// A queue that goes on from a snapshot of another of this program. Its packets are known by their numbers: the one
    /// that came first is 0.
    ///
    /// # Errors
    /// What is wrong with the first row that does not fit, and which row that is.
    pub fn restore(
        program: Arc<QueueProgram>,
        code: C,
        snapshot: &Snapshot,
    ) -> Result<Self, (usize, &'static str)> {
        let mut queue = Self::new(program, code, 0, 0);
        queue.shared.stop_timers();
        queue.levels.iter_mut().for_each(|level| level.is_started.fill(false));
        let n_packets = snapshot.n_packets() as u64;
        let mut waits = Waits::new();
        for (nth, (kind, numbers)) in snapshot.rows.iter().enumerate() {
            let done = match (nth, kind) {
                (0, Kind::Event) => queue.restore_event(numbers),
                (0, _) => Err("it is not that of the event, which is first"),
                (_, Kind::Event) => Err("the event has been there before"),
                (_, Kind::Node) => queue.restore_node(numbers),
                (_, Kind::Partition) => queue.restore_partition(numbers, &mut waits),
                (_, Kind::Packet) => queue.restore_packet(numbers, n_packets),
                (_, Kind::Order) => queue.restore_order(numbers, &waits, false),
                (_, Kind::Held) => queue.restore_order(numbers, &waits, true),
                (_, Kind::Started) => queue.restore_started(numbers),
                (_, Kind::Timer) => queue.restore_timer(numbers),
                (_, Kind::InUse) => queue.restore_in_use(numbers),
            };
            done.map_err(|why| (nth, why))?;
        }
        queue.shared.find_next_timer();
        Ok(queue)
    }

    /// What a level remembers beside packets; what is as it was at first is left out.
    fn level_rows(&self, level: &Level, fresh: &Level, rows: &mut Vec<(Kind, Vec<u64>)>) {
        let at = level.shape.at as u64;
        let decl = &self.shared.program.levels[level.shape.at];
        let of_node = |level: &Level, node| vars(level.nodes.words(node), word::NODE_VARS, decl.vars.len());
        for node in 0..level.is_started.len() as u32 {
            let vars = of_node(level, node);
            let until = if level.shape.is_one { level.nodes.head(node)[kept::PLACE] } else { 0 };
            if until > 0 || vars != of_node(fresh, node) {
                rows.push((Kind::Node, [vec![at, node.into(), until], vars].concat()));
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
                rows.push((Kind::Partition, [vec![at, partition.into()], own.to_vec(), vars].concat()));
            }
        }
        let mut list = |kind, head: &[u64], ids: Vec<u32>| {
            if !ids.is_empty() {
                rows.push((kind, head.iter().copied().chain(ids.into_iter().map(u64::from)).collect()));
            }
        };
        let started = level.is_started.iter().enumerate().filter(|(_, is_started)| **is_started);
        list(Kind::Started, &[at], started.map(|(node, _)| node as u32).collect());
        for (node, held) in level.held.iter().enumerate() {
            let head = [at, node as u64];
            list(Kind::Order, &head, level.in_order(node as u32));
            let mut held: Vec<_> = held.iter().map(|Reverse(entry)| *entry).collect();
            held.sort_unstable();
            // What went on early and waits again stands there twice: the first of them counts.
            let mut seen = BTreeSet::new();
            held.retain(|(until, _, partition)| {
                waits_until(level, *partition) == Some(*until) && seen.insert(*partition)
            });
            list(Kind::Held, &head, held.into_iter().map(|(.., partition)| partition).collect());
        }
    }

    /// The handles of the packets that wait, in the order of the numbers that a snapshot gives them.
    pub fn waiting(&self) -> Vec<u64> {
        let all = self.slots();
        let handle = |nth: usize| self.shared.packets.words(all[nth].1)[usize::from(word::HANDLE)];
        self.by_arrival(&all).into_iter().map(handle).collect()
    }

    fn packet_rows(&self, rows: &mut Vec<(Kind, Vec<u64>)>) {
        let all = self.slots();
        let mut numbers = vec![0; all.len()];
        self.by_arrival(&all).into_iter().enumerate().for_each(|(number, nth)| numbers[nth] = number as u64);
        let own = self.shared.program.packet_words() - 1;
        for ((partition, slot), number) in all.into_iter().zip(numbers) {
            let words = &self.shared.packets.words(slot)[usize::from(word::ARRIVED)..own];
            rows.push((Kind::Packet, [number, partition.into()].iter().chain(words).copied().collect()));
        }
    }

    /// The packets of each partition of the last level, first to last.
    fn slots(&self) -> Vec<(u32, u32)> {
        let Some(leaf) = self.levels.last() else { return Vec::new() };
        let packets = &self.shared.packets;
        let of_partition =
            |partition: u32| packets.waiting(leaf, partition).into_iter().map(move |slot| (partition, slot));
        (0..leaf.n_partitions()).flat_map(of_partition).collect()
    }

    /// Which of these came first, and so on.
    fn by_arrival(&self, slots: &[(u32, u32)]) -> Vec<usize> {
        let mut in_order: Vec<usize> = (0..slots.len()).collect();
        in_order.sort_by_key(|nth| self.shared.packets.arrived_ns(slots[*nth].1));
        in_order
    }

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

    fn restore_node(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [at, node, until, vars @ ..] = numbers else { return Err(LENGTH) };
        let (at, node) = self.node_named(*at, *node)?;
        if vars.len() != self.shared.program.levels[at].vars.len() {
            return Err(LENGTH);
        }
        let level = &mut self.levels[at];
        if level.shape.is_one {
            level.nodes.head_mut(node)[kept::PLACE] = *until;
        }
        level.nodes.seen(node)[usize::from(word::NODE_VARS)..][..vars.len()].copy_from_slice(vars);
        Ok(())
    }

    fn restore_partition(&mut self, numbers: &[u64], waits: &mut Waits) -> Result<(), &'static str> {
        let [at, partition, rank, stands, until, tag, vars @ ..] = numbers else { return Err(LENGTH) };
        let (at, partition) = self.partition_named(*at, *partition)?;
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
        let words = level.partitions.seen(partition);
        words[usize::from(word::PARTITION_VARS)..][..vars.len()].copy_from_slice(vars);
        if let Some(own) = level.tags.get_mut(partition as usize) {
            *own = *tag as u32;
        }
        Ok(())
    }

    fn restore_in_use(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [partition, values @ ..] = numbers else { return Err(LENGTH) };
        let at =
            self.levels.iter().position(|level| level.shape.counts).ok_or("no partitions are counted")?;
        let (_, partition) = self.partition_named(at as u64, *partition)?;
        let level = &self.levels[at];
        let is_right =
            self.shared.in_use.as_mut().is_some_and(|in_use| in_use.restore(level, partition, values));
        if is_right { Ok(()) } else { Err(LENGTH) }
    }

    fn restore_packet(&mut self, numbers: &[u64], n_packets: u64) -> Result<(), &'static str> {
        let [number, partition, words @ ..] = numbers else { return Err(LENGTH) };
        let leaf = self.levels.len() - 1;
        let (_, partition) = self.partition_named(leaf as u64, *partition)?;
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
                let slot = packets.place_behind(line.nodes.head_mut(0));
                packets.fill(slot, &packet, 0, &[]);
                packets.append_to_ring(line.nodes.head_mut(0));
                slot
            }
            _ => packets.store(&packet, 0, &[]),
        };
        packets.seen(slot)[first..own].copy_from_slice(words);
        let mut inside = partition;
        for level in self.levels.iter_mut().rev() {
            let node = level.shape.node_of(inside);
            count(level.nodes.head_mut(node), len);
            if !level.shape.is_one {
                count(level.partitions.head_mut(inside), len);
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

    /// Puts partitions in an order, or has them wait.
    fn restore_order(&mut self, numbers: &[u64], waits: &Waits, is_held: bool) -> Result<(), &'static str> {
        let [at, node, ids @ ..] = numbers else { return Err(LENGTH) };
        let (at, node) = self.node_named(*at, *node)?;
        for id in ids {
            let (_, partition) = self.partition_named(at as u64, *id)?;
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

    fn restore_started(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [at, nodes @ ..] = numbers else { return Err(LENGTH) };
        for node in nodes {
            let (at, node) = self.node_named(*at, *node)?;
            self.levels[at].is_started[node as usize] = true;
        }
        Ok(())
    }

    fn restore_timer(&mut self, numbers: &[u64]) -> Result<(), &'static str> {
        let [due, at, node, nth] = *numbers else { return Err(LENGTH) };
        let (at, node) = self.node_named(at, node)?;
        if nth >= self.shared.program.levels[at].handlers.every.len() as u64 {
            return Err("there is no such timer");
        }
        if due > TIME_MAX {
            return Err(FAR);
        }
        self.shared.timers.push(Reverse((due, at as u8, node, nth as u16)));
        Ok(())
    }

    fn node_named(&self, at: u64, node: u64) -> Result<(usize, u32), &'static str> {
        let level =
            usize::try_from(at).ok().and_then(|at| self.levels.get(at)).ok_or("there is no such level")?;
        match node < level.is_started.len() as u64 {
            true => Ok((at as usize, node as u32)),
            false => Err("there is no such node"),
        }
    }

    fn partition_named(&self, at: u64, partition: u64) -> Result<(usize, u32), &'static str> {
        let level =
            usize::try_from(at).ok().and_then(|at| self.levels.get(at)).ok_or("there is no such level")?;
        match partition < u64::from(level.n_partitions()) {
            true => Ok((at as usize, partition as u32)),
            false => Err("there is no such partition"),
        }
    }
}

/// Until when partitions of a level wait, those that are known to be held.
type Waits = BTreeMap<(usize, u32), u64>;

/// The variables among words.
fn vars(words: &[u64], first: u16, n: usize) -> Vec<u64> {
    words[usize::from(first)..][..n].to_vec()
}

/// Until when a partition waits, if it does.
fn waits_until(level: &Level, partition: u32) -> Option<u64> {
    let state = level.partitions.head(partition)[kept::PLACE];
    (state != kept::IDLE && state < kept::IN_ORDER).then_some(state)
}

const LENGTH: &str = "it has too few numbers, or too many";
const FAR: &str = "a number is too great for its place";
const TWICE: &str = "a partition stands in two places";
