//! The fast path of packets through partitions that take turns, if the program has code for it: see
//! [`weft_ir::queue::round_robin`]. A packet that needs more continues on the slow path, in `arrive` and `leave`, from
//! where it is.

use super::dispatch::{DequeueFn, EnqueueFn};
use super::leave::DequeueProgress;
use super::level::{Level, kept};
use super::order::Orders;
use super::records::{Head, MISSING};
use super::shared::Shared;
use super::{Field, NEVER, NONE, Packet, Queue, QueueCode, Sent, TURNS_MAX};
use weft_ir::queue::Verdict;
use weft_ir::queue::round_robin::{FastDequeue, FastPathState, FastStop, entered};

impl<C: QueueCode> Queue<C> {
    /// Returns the enqueue and dequeue functions of the fast path. `LINES`: each partition is a node with a FIFO of
    /// its own.
    pub(super) fn fast_path<const LINES: bool>(
        root: &Level,
        fields: &[Field],
    ) -> (EnqueueFn<C>, DequeueFn<C>) {
        let enter: EnqueueFn<C> = match fields {
            [] | [Field::Flow] => Self::enqueue_fast::<LINES, true>,
            _ => Self::enqueue_fast::<LINES, false>,
        };
        match root.orders {
            Orders::TwoRanks(_) => (enter, Self::dequeue_fast::<LINES, true>),
            Orders::Ranked(_) => (enter, Self::dequeue_fast::<LINES, false>),
        }
    }

    /// Enqueues a packet by the fast path, or by the slow one if it needs more. `FLOW`: only the flow is stored.
    fn enqueue_fast<const LINES: bool, const FLOW: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        let Shared { packets, program, .. } = &mut self.shared;
        let fields = if FLOW { &[] } else { &program.fields[..] };
        let Some(slot) = packets.store_next::<FLOW>(packet, arrived_ns, fields) else {
            return self.grow_and_enqueue_fast::<LINES, FLOW>(packet, arrived_ns);
        };
        let entered = self.enter_fast::<LINES>(slot).unwrap_or(entered::NOT);
        if entered != entered::DONE {
            self.enqueue_slow::<LINES>(slot, entered);
        }
    }

    /// Adds a free slot and enqueues a packet by the fast path.
    #[cold]
    fn grow_and_enqueue_fast<const LINES: bool, const FLOW: bool>(
        &mut self,
        packet: &Packet,
        arrived_ns: u64,
    ) {
        self.shared.packets.grow();
        self.enqueue_fast::<LINES, FLOW>(packet, arrived_ns);
    }

    /// Appends a stored packet to its partition by the generated code. Returns the code's result word; if that asks
    /// for more, nothing has changed.
    #[inline(always)]
    fn enter_fast<const LINES: bool>(&mut self, slot: u32) -> Option<u64> {
        let Self { levels, shared, fast: turns, .. } = self;
        let (Level { nodes, partitions, tags, .. }, lines) = root::<LINES>(levels)?;
        let mut aside = FastPathState { event: &mut shared.handlers.event, fifos: lines };
        let packets = &mut shared.packets.lines;
        Some((turns.enqueue)(
            &mut nodes.lines,
            &mut partitions.lines,
            tags,
            packets,
            slot as usize,
            &mut aside,
        ))
    }

    /// Completes an arrival that the fast path has left: activates its partition, or enqueues the packet by the slow
    /// path.
    #[inline(never)]
    fn enqueue_slow<const LINES: bool>(&mut self, slot: u32, entered: u64) {
        assert!(entered != entered::MISSING, "{MISSING}");
        if let (Some(partition), [root, ..]) = (entered::partition(entered), &mut self.levels[..]) {
            return root.enter(0, partition);
        }
        match &mut self.levels[..] {
            levels @ [_, _] => self.shared.enqueue_two_levels_slot::<LINES>(levels, slot),
            [leaf, ..] => self.shared.enqueue_partitioned_slot(leaf, slot),
            [] => {}
        }
    }

    /// Dequeues from the first partition. `FEW`: the code keeps the order of partitions itself.
    fn dequeue_fast<const LINES: bool, const FEW: bool>(&mut self) -> Option<Sent> {
        self.wake_at = NEVER;
        let (turn, first) = self.run_fast_dequeue::<LINES, FEW>(TURNS_MAX.into())?;
        match turn.stop() {
            FastStop::Sent => self.send_from_fast(&turn),
            FastStop::Placed if !FEW => self.send_and_reorder(&turn, first),
            _ => self.dequeue_slow::<LINES, FEW>(turn),
        }
    }

    /// Runs turns until a partition needs more than the fast path. Also returns the partition that was first, unless
    /// `FEW`.
    #[inline(always)]
    fn run_fast_dequeue<const LINES: bool, const FEW: bool>(
        &mut self,
        turns_left: u64,
    ) -> Option<(FastDequeue, u32)> {
        let Self { levels, shared, fast: turns, .. } = self;
        let (root, lines) = root::<LINES>(levels)?;
        let first = if FEW { NONE } else { root.first(0)? };
        let mut aside = FastPathState { event: &mut shared.handlers.event, fifos: lines };
        let packets = &mut shared.packets.lines;
        let Level { nodes, partitions, .. } = root;
        let turn = (turns.dequeue)(
            &mut nodes.lines,
            &mut partitions.lines,
            packets,
            first.into(),
            turns_left,
            &mut aside,
        );
        Some((turn, first))
    }

    /// Sends a packet unchanged.
    #[inline(always)]
    fn send_from_fast(&mut self, turn: &FastDequeue) -> Option<Sent> {
        self.shared.left = turn.end() as u32;
        self.send_slot(turn.slot())
    }

    /// Sends the packet of a turn, and moves its partition to its new position in the order.
    #[inline(always)]
    fn send_and_reorder(&mut self, turn: &FastDequeue, first: u32) -> Option<Sent> {
        let level = self.levels.first_mut()?;
        let is_empty = level.partitions.head(first)[kept::PACKETS] == 0;
        level.update_position(0, first, is_empty, Verdict::of_word(turn.end()));
        self.shared.left = first;
        self.send_slot(turn.slot())
    }

    /// Continues a dequeue by the slow path from the state in which the fast path stopped.
    #[inline(never)]
    fn dequeue_slow<const LINES: bool, const FEW: bool>(&mut self, mut turn: FastDequeue) -> Option<Sent> {
        loop {
            let [level, below @ ..] = &mut self.levels[..] else { return None };
            let first = level.first(0)?;
            let (slot, end) = (turn.slot(), turn.end());
            match turn.stop() {
                FastStop::Nothing => return self.dequeue_forced(),
                FastStop::Sent => return self.send_from_fast(&turn),
                FastStop::Placed => return self.send_and_reorder(&turn, first),
                FastStop::HandlerRan => {
                    return self.dequeue_after_handlers(
                        first,
                        DequeueProgress::Here((slot, end)),
                        turn.left(),
                    );
                }
                FastStop::HandlerRanBelow => {
                    return self.dequeue_after_handlers(
                        first,
                        DequeueProgress::Fifo((slot, end)),
                        turn.left(),
                    );
                }
                FastStop::Empty => self.shared.found_empty::<false>(level, below, 0, first, TURNS_MAX),
                FastStop::Next => level.rotate(0, first),
                FastStop::Missing => panic!("{MISSING}"),
            }
            if end == 0 {
                return self.dequeue_forced();
            }
            (turn, _) = self.run_fast_dequeue::<LINES, FEW>(end)?;
        }
    }

    /// All turns are used up, or no partition is in the order.
    #[cold]
    fn dequeue_forced(&mut self) -> Option<Sent> {
        let served = self.shared.serve_forced(&mut self.levels);
        self.finish_dequeue(served)
    }

    /// Continues with a packet that is not sent unchanged.
    fn dequeue_after_handlers(
        &mut self,
        partition: u32,
        progress: DequeueProgress,
        turns_left: u32,
    ) -> Option<Sent> {
        let served = self.shared.serve_after_handlers(&mut self.levels, partition, progress, turns_left);
        self.finish_dequeue(served)
    }
}

/// Returns the root, and the records of the FIFOs below it.
#[inline(always)]
fn root<const LINES: bool>(levels: &mut [Level]) -> Option<(&mut Level, Option<&mut Vec<Head>>)> {
    let (level, below) = levels.split_first_mut()?;
    let lines = below.first_mut().filter(|_| LINES).map(|lines| &mut lines.nodes.lines);
    Some((level, lines))
}
