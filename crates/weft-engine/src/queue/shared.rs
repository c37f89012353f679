//! The state that all levels of a queue share: handlers, packets, timers, and counts of dropped and marked packets.

use super::handlers::Handlers;
use super::in_use::InUse;
use super::level::Level;
use super::packets::Packets;
use super::tally::{TallyTarget, Watched};
use super::{Counts, DropCause, Dropped, LineCount, QueueCode, QueueProgram};
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use weft_ir::queue::Verdict;

/// The state that all levels share.
#[derive(Debug)]
pub(super) struct Shared<C> {
    pub(super) program: Arc<QueueProgram>,
    pub(super) handlers: Handlers<C>,
    pub(super) packets: Packets,
    /// Partitions in use, if the program counts them.
    pub(super) in_use: Option<Box<InUse>>,
    pub(super) counts: Counts,
    pub(super) lines: Vec<LineCount>,
    /// Tallies of partitions, if the queue is watched.
    pub(super) watched: Option<Watched>,
    /// The partition on the last level that the last packet left.
    pub(super) left: u32,
    pub(super) dropped: VecDeque<Dropped>,
    pub(super) timers: BinaryHeap<Reverse<(u64, u8, u32, u16)>>,
    /// When the next timer is due.
    pub(super) next_timer: u64,
}

impl<C: QueueCode> Shared<C> {
    /// Creates the initial state; the seed determines all random draws.
    pub(super) fn new(program: Arc<QueueProgram>, code: C, packets: Packets, seed: u64) -> Self {
        Self {
            handlers: Handlers::new(&program, code, seed),
            packets,
            in_use: InUse::of(&program),
            counts: Counts::default(),
            lines: Vec::new(),
            watched: None,
            left: 0,
            dropped: VecDeque::new(),
            timers: BinaryHeap::new(),
            next_timer: u64::MAX,
            program,
        }
    }

    // ---- drops and marks ------------------------------------------------------------------------------------------

    /// Drops a packet that is in no list, because of a source line of a level: counts it, frees its slot and queues
    /// the report.
    #[inline(never)]
    pub(super) fn drop_packet(
        &mut self,
        slot: u32,
        at: usize,
        whose: TallyTarget,
        why: DropCause,
        line: u32,
    ) {
        let count = match why {
            DropCause::Enqueue => &mut self.counts.dropped_enqueue,
            DropCause::Dequeue => &mut self.counts.dropped_dequeue,
            DropCause::Overflow => &mut self.counts.dropped_overflow,
        };
        *count += 1;
        self.note(at, whose, line, Verdict::Drop);
        let (known, next) = self.packets.release(slot);
        self.packets.fetch_behind(next);
        self.dropped.push_back(Dropped {
            handle: known.handle,
            len: known.len,
            arrived_ns: known.arrived_ns,
            dropped_ns: self.handlers.now(),
            level: at as u8,
            why,
            line,
        });
    }

    /// ON DEQUEUE dropped a packet.
    #[inline(never)]
    pub(super) fn drop_leaving(&mut self, slot: u32, (at, partition): (usize, u32), end: u64) {
        self.handlers.add_drop();
        self.drop_packet(slot, at, self.tally_target(at, partition), DropCause::Dequeue, Verdict::line(end));
    }

    /// Drops an arriving packet, by ON ENQUEUE of a level.
    #[inline(never)]
    pub(super) fn drop_arriving(&mut self, slot: u32, (at, partition): (usize, u32), end: u64) {
        self.drop_packet(
            slot,
            at,
            TallyTarget::arriving(at, partition),
            DropCause::Enqueue,
            Verdict::line(end),
        );
    }

    /// A level marked a packet.
    #[inline(never)]
    pub(super) fn marked(&mut self, at: usize, whose: TallyTarget, end: u64) {
        self.counts.marked += 1;
        self.note(at, whose, Verdict::line(end), Verdict::Mark);
    }

    /// Returns the tally target of the packet that left its list last, for a decision of level `at`.
    pub(super) fn tally_target(&self, at: usize, partition: u32) -> TallyTarget {
        let leaf = self.program.levels.len() - 1;
        TallyTarget {
            by: Some(partition),
            of: Some(if at == leaf { (at, partition) } else { (leaf, self.left) }),
        }
    }

    // ---- time ----------------------------------------------------------------------------------------------------

    /// Advances the time and runs the timers that are due.
    #[inline(always)]
    pub(super) fn advance(&mut self, levels: &mut [Level], now_ns: u64) {
        if now_ns >= self.next_timer {
            self.run_timers(levels, now_ns);
        }
        self.handlers.set_now(now_ns);
    }

    /// Runs the timers that are due, in order of time, and sets each for its next run.
    #[cold]
    fn run_timers(&mut self, levels: &mut [Level], now_ns: u64) {
        while let Some(Reverse((due, level, node, nth))) = self.timers.peek().copied()
            && due <= now_ns
        {
            self.timers.pop();
            self.handlers.set_now(due);
            let at = usize::from(level);
            let timer = &self.program.levels[at].handlers.every[usize::from(nth)];
            let (interval, moment) = (timer.interval_ns, timer.moment(nth.into()));
            if timer.each_partition {
                self.handlers.run_for_each_partition(&mut levels[at], node, moment);
            } else {
                self.handlers.run(at, moment, levels[at].visit(node, 0), None);
            }
            // After a long gap, missed runs are skipped; sooner if a run visits all partitions.
            let most = if timer.each_partition { 16 } else { 1024 };
            let next =
                if now_ns - due > interval.saturating_mul(most) { now_ns + interval } else { due + interval };
            self.timers.push(Reverse((next, level, node, nth)));
        }
        self.find_next_timer();
    }

    /// Starts those timers of a node that do not run yet; `levels` are all levels.
    pub(super) fn start_timers(&mut self, levels: &mut [Level], at: usize, node: u32, now_ns: u64) {
        let Some(level) = levels.get_mut(at) else { return };
        if core::mem::replace(&mut level.is_started[node as usize], true) {
            return;
        }
        for (nth, timer) in self.program.levels[at].handlers.every.iter().enumerate() {
            self.timers.push(Reverse((now_ns + timer.interval_ns, at as u8, node, nth as u16)));
        }
        self.find_next_timer();
        // A node of one partition starts together with the node that it is in.
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
