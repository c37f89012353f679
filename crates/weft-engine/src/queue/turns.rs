//! The short way of packets through partitions that take turns, where the code of the program has one: see
//! [`weft_ir::queue::turns`]. Who needs more than that goes the long way, of `arrive` and `leave`, from where it is.

use super::leave::Asked;
use super::level::{Level, kept};
use super::order::Orders;
use super::records::{Head, MISSING};
use super::shared::Shared;
use super::way::{Enter, Leave};
use super::{Field, NEVER, NONE, Packet, Queue, QueueCode, Sent, TURNS_MAX};
use weft_ir::queue::Verdict;
use weft_ir::queue::turns::{Aside, Stop, Turn, entered};

impl<C: QueueCode> Queue<C> {
    /// The functions of the short way, where each partition is a queue of its own or not.
    pub(super) fn short_way<const LINES: bool>(root: &Level, fields: &[Field]) -> (Enter<C>, Leave<C>) {
        let enter: Enter<C> = match fields {
            [] | [Field::Flow] => Self::enqueue_in_turn::<LINES, true>,
            _ => Self::enqueue_in_turn::<LINES, false>,
        };
        match root.orders {
            Orders::Few(_) => (enter, Self::dequeue_in_turn::<LINES, true>),
            Orders::Ranked(_) => (enter, Self::dequeue_in_turn::<LINES, false>),
        }
    }

    /// A packet comes. `FLOW`: no more than the flow is asked of it.
    fn enqueue_in_turn<const LINES: bool, const FLOW: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        let Shared { packets, program, .. } = &mut self.shared;
        let fields = if FLOW { &[] } else { &program.fields[..] };
        let Some(slot) = packets.store_next::<FLOW>(packet, arrived_ns, fields) else {
            return self.enqueue_into_more::<LINES, FLOW>(packet, arrived_ns);
        };
        let entered = self.enter::<LINES>(slot).unwrap_or(entered::NOT);
        if entered != entered::DONE {
            self.enqueue_long::<LINES>(slot, entered);
        }
    }

    #[cold]
    fn enqueue_into_more<const LINES: bool, const FLOW: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        self.shared.packets.grow();
        self.enqueue_in_turn::<LINES, FLOW>(packet, arrived_ns);
    }

    /// Puts a packet behind those of its partition, if that is all that is to be done: else nothing has changed.
    #[inline(always)]
    fn enter<const LINES: bool>(&mut self, slot: u32) -> Option<u64> {
        let Self { levels, shared, turns, .. } = self;
        let (Level { nodes, partitions, tags, .. }, lines) = root::<LINES>(levels)?;
        let mut aside = Aside { event: &mut shared.handlers.event, lines };
        let packets = &mut shared.packets.lines;
        Some((turns.enter)(&mut nodes.lines, &mut partitions.lines, tags, packets, slot as usize, &mut aside))
    }

    #[inline(never)]
    fn enqueue_long<const LINES: bool>(&mut self, slot: u32, entered: u64) {
        assert!(entered != entered::MISSING, "{MISSING}");
        if let (Some(partition), [root, ..]) = (entered::partition(entered), &mut self.levels[..]) {
            return root.enter(0, partition);
        }
        match &mut self.levels[..] {
            levels @ [_, _] => self.shared.came_to_two::<LINES>(levels, slot),
            [leaf, ..] => self.shared.came_to_turns(leaf, slot),
            [] => {}
        }
    }

    /// The next packet of the partition that is first. `FEW`: the code keeps the order of partitions by itself.
    fn dequeue_in_turn<const LINES: bool, const FEW: bool>(&mut self) -> Option<Sent> {
        self.wake_at = NEVER;
        let (turn, first) = self.take_turns::<LINES, FEW>(TURNS_MAX.into())?;
        match turn.stop() {
            Stop::Sent => self.leaves_from(&turn),
            Stop::Placed if !FEW => self.leaves_to_be_placed(&turn, first),
            _ => self.dequeue_on::<LINES, FEW>(turn),
        }
    }

    /// Partitions take turns until one of them needs more than that; and the one that was first, if `FEW` is not so.
    #[inline(always)]
    fn take_turns<const LINES: bool, const FEW: bool>(&mut self, turns_left: u64) -> Option<(Turn, u32)> {
        let Self { levels, shared, turns, .. } = self;
        let (root, lines) = root::<LINES>(levels)?;
        let first = if FEW { NONE } else { root.first(0)? };
        let mut aside = Aside { event: &mut shared.handlers.event, lines };
        let packets = &mut shared.packets.lines;
        let Level { nodes, partitions, .. } = root;
        let turn = (turns.leave)(
            &mut nodes.lines,
            &mut partitions.lines,
            packets,
            first.into(),
            turns_left,
            &mut aside,
        );
        Some((turn, first))
    }

    /// A packet is sent as it is.
    #[inline(always)]
    fn leaves_from(&mut self, turn: &Turn) -> Option<Sent> {
        self.shared.left = turn.end() as u32;
        self.leaves(turn.slot())
    }

    /// As above, from a partition that is not where it belongs any more.
    #[inline(always)]
    fn leaves_to_be_placed(&mut self, turn: &Turn, first: u32) -> Option<Sent> {
        let level = self.levels.first_mut()?;
        let is_empty = level.partitions.head(first)[kept::PACKETS] == 0;
        level.find_place(0, first, is_empty, Verdict::of_word(turn.end()));
        self.shared.left = first;
        self.leaves(turn.slot())
    }

    /// Goes on from where turns stopped.
    #[inline(never)]
    fn dequeue_on<const LINES: bool, const FEW: bool>(&mut self, mut turn: Turn) -> Option<Sent> {
        loop {
            let [level, below @ ..] = &mut self.levels[..] else { return None };
            let first = level.first(0)?;
            let (slot, end) = (turn.slot(), turn.end());
            match turn.stop() {
                Stop::Nothing => return self.dequeue_whoever(),
                Stop::Sent => return self.leaves_from(&turn),
                Stop::Placed => return self.leaves_to_be_placed(&turn, first),
                Stop::Asked => return self.dequeue_asked(first, Asked::Here((slot, end)), turn.left()),
                Stop::AskedBelow => return self.dequeue_asked(first, Asked::Line((slot, end)), turn.left()),
                Stop::Empty => self.shared.found_empty::<false>(level, below, 0, first, TURNS_MAX),
                Stop::Next => level.rotate(0, first),
                Stop::Missing => panic!("{MISSING}"),
            }
            if end == 0 {
                return self.dequeue_whoever();
            }
            (turn, _) = self.take_turns::<LINES, FEW>(end)?;
        }
    }

    /// All turns are used up, or nobody is in the order.
    #[cold]
    fn dequeue_whoever(&mut self) -> Option<Sent> {
        let served = self.shared.serve_whoever(&mut self.levels);
        self.sent(served)
    }

    /// A packet is not to be sent as it is.
    fn dequeue_asked(&mut self, partition: u32, asked: Asked, turns_left: u32) -> Option<Sent> {
        let served = self.shared.serve_asked(&mut self.levels, partition, asked, turns_left);
        self.sent(served)
    }
}

/// The root, and the records of the lines below it.
#[inline(always)]
fn root<const LINES: bool>(levels: &mut [Level]) -> Option<(&mut Level, Option<&mut Vec<Head>>)> {
    let (level, below) = levels.split_first_mut()?;
    let lines = below.first_mut().filter(|_| LINES).map(|lines| &mut lines.nodes.lines);
    Some((level, lines))
}
