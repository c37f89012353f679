//! What the levels of a queue share: packets, the event that handlers see, chance, time, and what is told of packets
//! that are dropped or marked.

use super::level::{Level, Visit, stores};
use super::packets::Packets;
use super::{Counts, Dropped, LineCount, QueueCode, QueueProgram, Why};
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use weft_core::hash::{hash_word, mix};
use weft_ir::queue::{Moment, Overflow, Scope, Slot, Verdict, Words, word};

/// What all levels share.
#[derive(Debug)]
pub(super) struct Shared<C> {
    pub(super) program: Arc<QueueProgram>,
    code: C,
    pub(super) packets: Packets,
    pub(super) event: [u64; word::EVENT_WORDS as usize],
    pub(super) random: Random,
    pub(super) counts: Counts,
    pub(super) lines: Vec<LineCount>,
    pub(super) dropped: VecDeque<Dropped>,
    pub(super) timers: BinaryHeap<Reverse<(u64, u8, u32, u16)>>,
    /// The time of the first of them.
    pub(super) next_timer: u64,
    /// Some level makes room when it is full.
    pub(super) has_victims: bool,
}

/// Where chance comes from.
pub(super) enum Random {
    /// No handler asks for it.
    Unused,
    Seeded(u64),
    Given(Box<dyn FnMut() -> f64 + Send>),
}

impl core::fmt::Debug for Random {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("random")
    }
}

impl<C: QueueCode> Shared<C> {
    /// Nothing yet; all chance follows from the seed.
    pub(super) fn new(program: Arc<QueueProgram>, code: C, packets: Packets, seed: u64) -> Self {
        let drawn = Slot::new(Scope::Event, word::DRAWN);
        let draws =
            program.levels.iter().any(|level| level.handlers.iter().any(|(_, h)| stores(&h.body, drawn)));
        let mut shared = Self {
            has_victims: program.levels.iter().any(|level| level.limit.overflow != Overflow::Arriving),
            code,
            packets,
            event: [0; word::EVENT_WORDS as usize],
            random: if draws { Random::Seeded(seed) } else { Random::Unused },
            counts: Counts::default(),
            lines: Vec::new(),
            dropped: VecDeque::new(),
            timers: BinaryHeap::new(),
            next_timer: u64::MAX,
            program,
        };
        shared.draw();
        shared
    }

    // ---- the event -----------------------------------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.event[usize::from(word::NOW)]
    }

    #[inline(always)]
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.event[usize::from(word::NOW)] = now_ns;
    }

    pub(super) fn set_rate(&mut self, bits_per_s: u64) {
        self.event[usize::from(word::RATE)] = bits_per_s;
    }

    /// Until when what said HOLD waits. What waits for a time that is past waits for the next moment: else it would be
    /// asked for ever.
    pub(super) fn held_until(&self) -> u64 {
        self.event[usize::from(word::HOLD)].max(self.now() + 1)
    }

    pub(super) fn set_held_until(&mut self, until_ns: u64) {
        self.event[usize::from(word::HOLD)] = until_ns;
    }

    /// Packets that ON DEQUEUE dropped in a row: none yet.
    #[inline(always)]
    pub(super) fn no_drops(&mut self) {
        self.event[usize::from(word::DROPS)] = 0;
    }

    // ---- handlers ------------------------------------------------------------------------------------------------

    /// Runs a handler of a level on a packet.
    #[inline(always)]
    pub(super) fn run(&mut self, at: usize, moment: Moment, visit: Visit<'_>, slot: u32) -> u64 {
        let (node, partition) = visit.seen();
        let packet = self.packets.seen(slot);
        let words = Words { node, partition, packet, event: &mut self.event };
        let end = self.code.run(at, moment, words);
        self.drawn();
        end
    }

    /// As above, where there is no packet.
    #[inline(always)]
    pub(super) fn run_without_packet(&mut self, at: usize, moment: Moment, visit: Visit<'_>) -> u64 {
        let (node, partition) = visit.seen();
        let words = Words { node, partition, packet: &mut [], event: &mut self.event };
        let end = self.code.run(at, moment, words);
        self.drawn();
        end
    }

    #[inline(always)]
    fn drawn(&mut self) {
        if self.event[usize::from(word::DRAWN)] != 0 {
            self.draw();
        }
    }

    #[cold]
    fn draw(&mut self) {
        const UNIT: f64 = (1_u64 << 53) as f64;
        self.event[usize::from(word::DRAWN)] = 0;
        self.event[usize::from(word::RANDOM)] = match &mut self.random {
            Random::Unused => 0,
            Random::Seeded(state) => {
                *state = state.wrapping_add(1);
                mix(hash_word(*state), *state) >> 11
            }
            Random::Given(next) => (next().clamp(0.0, 1.0) * UNIT) as u64,
        };
    }

    /// Chance from elsewhere, if some handler asks for it.
    pub(super) fn draw_from(&mut self, random: impl FnMut() -> f64 + Send + 'static) {
        if !matches!(self.random, Random::Unused) {
            self.random = Random::Given(Box::new(random));
            self.draw();
        }
    }

    // ---- what is told --------------------------------------------------------------------------------------------

    /// A packet that is in no line goes.
    #[inline(never)]
    pub(super) fn drop_packet(&mut self, slot: u32, at: usize, why: Why, line: u32) {
        let count = match why {
            Why::Enqueue => &mut self.counts.dropped_enqueue,
            Why::Dequeue => &mut self.counts.dropped_dequeue,
            Why::Overflow => &mut self.counts.dropped_overflow,
        };
        *count += 1;
        let known = self.packets.release(slot);
        self.dropped.push_back(Dropped {
            handle: known.handle,
            len: known.len,
            arrived_ns: known.arrived_ns,
            dropped_ns: self.now(),
            level: at as u8,
            why,
            line,
        });
    }

    /// ON DEQUEUE dropped a packet.
    #[inline(never)]
    pub(super) fn drop_leaving(&mut self, slot: u32, at: usize, end: u64) {
        self.note(at, end);
        self.event[usize::from(word::DROPS)] += 1;
        self.drop_packet(slot, at, Why::Dequeue, Verdict::line(end));
    }

    /// ON ENQUEUE dropped a packet.
    #[inline(never)]
    pub(super) fn drop_coming(&mut self, slot: u32, at: usize, end: u64) {
        self.note(at, end);
        self.drop_packet(slot, at, Why::Enqueue, Verdict::line(end));
    }

    #[inline(never)]
    pub(super) fn marked(&mut self, at: usize, end: u64) {
        self.counts.marked += 1;
        self.note(at, end);
    }

    #[cold]
    fn note(&mut self, at: usize, end: u64) {
        let (level, line, verdict) = (at as u8, Verdict::line(end), Verdict::of_word(end));
        let is_it =
            |known: &&mut LineCount| (known.level, known.line, known.verdict) == (level, line, verdict);
        match self.lines.iter_mut().find(is_it) {
            Some(known) => known.packets += 1,
            None => self.lines.push(LineCount { level, line, verdict, packets: 1 }),
        }
    }

    // ---- time ----------------------------------------------------------------------------------------------------

    /// Time goes on: timers that are due run.
    #[inline(always)]
    pub(super) fn advance(&mut self, levels: &mut [Level], now_ns: u64) {
        if now_ns >= self.next_timer {
            self.run_timers(levels, now_ns);
        }
        self.set_now(now_ns);
    }

    #[cold]
    fn run_timers(&mut self, levels: &mut [Level], now_ns: u64) {
        while let Some(Reverse((due, level, node, nth))) = self.timers.peek().copied()
            && due <= now_ns
        {
            self.timers.pop();
            self.set_now(due);
            let at = usize::from(level);
            let interval = self.program.levels[at].handlers.every[usize::from(nth)].0;
            self.run_without_packet(at, Moment::Every(nth), levels[at].visit(node, 0));
            // Far behind, what was missed is not made up for.
            let next =
                if now_ns - due > interval.saturating_mul(1024) { now_ns + interval } else { due + interval };
            self.timers.push(Reverse((next, level, node, nth)));
        }
        self.find_next_timer();
    }

    /// Starts those of a node that do not run yet; `levels` are all.
    pub(super) fn start_timers(&mut self, levels: &mut [Level], at: usize, node: u32, now_ns: u64) {
        let Some(level) = levels.get_mut(at) else { return };
        if core::mem::replace(&mut level.is_started[node as usize], true) {
            return;
        }
        for (nth, (interval, _)) in self.program.levels[at].handlers.every.iter().enumerate() {
            self.timers.push(Reverse((now_ns + interval, at as u8, node, nth as u16)));
        }
        self.find_next_timer();
        // A node of one partition begins with the one that it is in.
        if level.shape.is_one {
            self.start_timers(levels, at + 1, node, now_ns);
        }
    }

    pub(super) fn stop_timers(&mut self) {
        self.timers.clear();
        self.find_next_timer();
    }

    pub(super) fn find_next_timer(&mut self) {
        self.next_timer = self.timers.peek().map_or(u64::MAX, |Reverse((due, ..))| *due);
    }
}
