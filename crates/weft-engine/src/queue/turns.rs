//! Partitions that take turns, each a line of packets as they came, or a queue of one such line: the short way, of a
//! packet that has nothing in its way.
//!
//! What comes is put behind the others if its partition is in the order already and no limit is reached, and what
//! leaves is sent as it is: that is one walk through the records, each looked up once. All else is left to the long
//! way, of `arrive` and `leave`: a packet that comes has changed nothing until it is known that it does not need that,
//! and one that leaves goes on there from where it is.

use super::arrive::{Place, place_of};
use super::leave::{Asked, visit};
use super::level::{Level, Shape, count, kept, uncount};
use super::packets::{Packets, Record, bytes, head_word, leave};
use super::records::{Head, pair, window};
use super::{NEVER, NONE, Packet, Queue, QueueCode, Sent, TURNS_MAX};
use weft_ir::queue::{Moment, Verdict};

impl<C: QueueCode> Queue<C> {
    /// A packet comes to partitions that take turns, or to such `LINES`.
    #[inline(never)]
    pub(super) fn enqueue_in_turn<const LINES: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        if put::<LINES>(&mut self.levels, &mut self.shared.packets, packet, arrived_ns).is_none() {
            self.enqueue_long::<LINES>(packet, arrived_ns);
        }
    }

    #[inline(never)]
    fn enqueue_long<const LINES: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        match &mut self.levels[..] {
            [leaf] => self.shared.enqueue_in_turns(leaf, packet, arrived_ns),
            levels => self.shared.enqueue_in_two::<LINES>(levels, packet, arrived_ns),
        }
    }

    /// The next packet of the partition that is first.
    #[inline(never)]
    pub(super) fn dequeue_in_turn<const LINES: bool>(&mut self) -> Option<Sent> {
        let Self { levels, shared, wake_at, last_sent, .. } = self;
        let [level, below @ ..] = &mut levels[..] else { return None };
        *wake_at = NEVER;
        for turns_left in (0..TURNS_MAX).rev() {
            let partition = level.orders.first_mut()?.first()?;
            let mut visited = visit::<false>(&mut level.nodes, &mut level.partitions, 0, partition);
            let line = match below {
                [lines] if LINES => lines.nodes.head(partition)[kept::LINE],
                _ => visited.own[0][kept::LINE],
            };
            let (slot, _) = pair(line);
            if slot == NONE {
                shared.found_empty::<false>(level, below, 0, partition);
                continue;
            }
            let Packets { lines: packets, free, .. } = &mut shared.packets;
            let packet: &mut Record = window(packets, slot as usize);
            if level.shape.has_select && turns_left != 0 {
                let end = shared.handlers.run(0, Moment::Select, visited.again(), Some(packet));
                if Verdict::of_word(end) == Verdict::Next {
                    level.rotate(0, partition);
                    continue;
                }
            }
            shared.handlers.no_drops();
            let len = bytes(&packet[0]);
            uncount(&mut visited.own[0], len);
            uncount(&mut visited.node[0], len);
            match below {
                [lines] if LINES => {
                    let line = visit::<true>(&mut lines.nodes, &mut lines.partitions, partition, partition);
                    leave(&packet[0], &mut line.node[0][kept::LINE]);
                    uncount(&mut line.node[0], len);
                    if lines.shape.has_dequeue {
                        let end = shared.handlers.run(1, Moment::Dequeue, line, Some(packet));
                        if Verdict::of_word(end) != Verdict::Pass {
                            return self.dequeue_long(partition, Asked::Line((slot, end)));
                        }
                    }
                }
                _ => leave(&packet[0], &mut visited.own[0][kept::LINE]),
            }
            let mut verdict = Verdict::Pass;
            if level.shape.has_dequeue {
                let end = shared.handlers.run(0, Moment::Dequeue, visited.again(), Some(packet));
                verdict = Verdict::of_word(end);
                if matches!(verdict, Verdict::Mark | Verdict::Drop) {
                    return self.dequeue_long(partition, Asked::Here((slot, end)));
                }
            }
            let is_empty = visited.own[0][kept::PACKETS] == 0;
            let sent = Packets::release_at(&mut packet[0], free, slot).into();
            shared.counts.sent += 1;
            *last_sent = slot;
            level.find_place(0, partition, is_empty, verdict);
            return Some(sent);
        }
        None
    }

    /// A packet is not to be sent as it is.
    #[cold]
    fn dequeue_long(&mut self, partition: u32, asked: Asked) -> Option<Sent> {
        let served = self.shared.serve_asked(&mut self.levels, partition, asked);
        self.sent(served)
    }
}

/// Puts a packet that comes behind those of its partition. None if that is not all that is to be done: nothing has
/// changed then.
#[inline(always)]
fn put<const LINES: bool>(
    levels: &mut [Level],
    packets: &mut Packets,
    packet: &Packet,
    arrived_ns: u64,
) -> Option<()> {
    let (level, below) = levels.split_first_mut()?;
    let len = u64::from(packet.len);
    packets.append_new(packet, arrived_ns, |words| {
        let key = head_word(words, level.shape.key_word?);
        let Place::Known(partition) = place_of(&level.shape, &level.tags, 0, key) else { return None };
        let (node, own) = (level.nodes.get_mut(0)?, level.partitions.get_mut(partition)?);
        if own[kept::PLACE] < kept::IN_ORDER || !has_room(&level.shape, node, len) {
            return None;
        }
        let line = match below {
            [lines] if LINES => {
                let line = lines.nodes.get_mut(partition)?;
                if !has_room(&lines.shape, line, len) {
                    return None;
                }
                count(line, len);
                count(own, len);
                &mut line[kept::LINE]
            }
            _ => {
                count(own, len);
                &mut own[kept::LINE]
            }
        };
        count(node, len);
        Some(line)
    })
}

/// Whether one packet more of so many bytes is within the limit of a node.
#[inline(always)]
fn has_room(shape: &Shape, node: &Head, len: u64) -> bool {
    node[kept::PACKETS] < shape.packets_max && node[kept::BYTES].saturating_add(len) <= shape.bytes_max
}
