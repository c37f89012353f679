//! Which way packets take through a queue: it is found once, when the queue is made.

use super::leave::Served;
use super::level::Level;
use super::ranked::Ranked;
use super::{Field, Packet, Queue, QueueCode, Sent};
use core::fmt;
use weft_ir::queue::LEVELS_MAX;

/// Takes a packet that comes.
pub(super) type Enter<C> = fn(&mut Queue<C>, &Packet, u64);
/// The packet that leaves, if one does.
pub(super) type Leave<C> = fn(&mut Queue<C>) -> Option<Sent>;

/// The way of packets that come, and of those that leave.
pub(super) struct Way<C> {
    /// The queue is one line of packets as they came: its way is short, and is taken without a detour.
    pub(super) is_line: bool,
    pub(super) enter: Enter<C>,
    pub(super) leave: Leave<C>,
}

impl<C: QueueCode> Way<C> {
    /// That of a queue of these levels, which may have code for a short way.
    pub(super) fn of(levels: &[Level], fields: &[Field], is_short: bool) -> Self {
        let (enter, leave): (Enter<C>, Leave<C>) = match levels {
            [line] if line.shape.is_ring => (Queue::enqueue_in_line, Queue::dequeue_from_line),
            [level] if level.shape.is_one && level.shape.is_ranked => {
                let leave: Leave<C> = match level.ranked[..] {
                    [Ranked::Runs(_)] => Queue::dequeue_by_rank::<true>,
                    _ => Queue::dequeue_by_rank::<false>,
                };
                (Queue::enqueue_by_rank, leave)
            }
            [level] if level.shape.is_one || level.shape.is_ranked => {
                (Queue::enqueue_in_tree::<1>, Queue::dequeue_from_tree)
            }
            [root] if is_short => Queue::short_way::<false>(root, fields),
            [root, _] if is_short => Queue::short_way::<true>(root, fields),
            [_] => (Queue::enqueue_in_turns, Queue::dequeue_from_turns),
            [level, line] if !level.shape.is_one && line.shape.is_line => {
                (Queue::enqueue_in_two::<true>, Queue::dequeue_from_lines)
            }
            [_, _] => (Queue::enqueue_in_two::<false>, Queue::dequeue_from_tree),
            [_, _, _] => (Queue::enqueue_in_tree::<3>, Queue::dequeue_from_tree),
            _ => (Queue::enqueue_in_tree::<LEVELS_MAX>, Queue::dequeue_from_tree),
        };
        let is_line = matches!(levels, [line] if line.shape.is_ring);
        Self { is_line, enter, leave }
    }
}

impl<C> fmt::Debug for Way<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_line { "line" } else { "tree" })
    }
}

impl<C: QueueCode> Queue<C> {
    pub(super) fn enqueue_in_line(&mut self, packet: &Packet, arrived_ns: u64) {
        if let [line] = &mut self.levels[..] {
            self.shared.enqueue_in_line(line, packet, arrived_ns);
        }
    }

    fn enqueue_by_rank(&mut self, packet: &Packet, arrived_ns: u64) {
        if let [leaf] = &mut self.levels[..] {
            self.shared.enqueue_by_rank(leaf, packet, arrived_ns);
        }
    }

    pub(super) fn enqueue_in_turns(&mut self, packet: &Packet, arrived_ns: u64) {
        if let [leaf] = &mut self.levels[..] {
            self.shared.enqueue_in_turns(leaf, packet, arrived_ns);
        }
    }

    pub(super) fn enqueue_in_two<const LINES: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        self.shared.enqueue_in_two::<LINES>(&mut self.levels, packet, arrived_ns);
    }

    fn enqueue_in_tree<const DEPTH: usize>(&mut self, packet: &Packet, arrived_ns: u64) {
        self.shared.enqueue_in_tree::<DEPTH>(&mut self.levels, packet, arrived_ns);
    }

    /// `EXPECTS`: it is known of packets that they will leave some time soon.
    fn dequeue_by_rank<const EXPECTS: bool>(&mut self) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [leaf] => self.shared.serve_line::<true>(leaf, 0),
            _ => Served::Empty,
        };
        let sent = self.sent(served);
        if EXPECTS {
            self.shared.packets.fetch_expected();
        }
        sent
    }

    fn dequeue_from_turns(&mut self) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [leaf] => self.shared.serve_in_turn(leaf, 0),
            _ => Served::Empty,
        };
        self.sent(served)
    }

    fn dequeue_from_lines(&mut self) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [level, lines] => self.shared.serve_above::<false, true>(level, core::slice::from_mut(lines), 0),
            _ => Served::Empty,
        };
        self.sent(served)
    }

    fn dequeue_from_tree(&mut self) -> Option<Sent> {
        let served = self.shared.serve(&mut self.levels, 0);
        self.sent(served)
    }
}
