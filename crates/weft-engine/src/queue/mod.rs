//! The queue runtime: runs a queue program over descriptions of packets.
//!
//! A [`Queue`] is a tree of nodes, as its [`QueueProgram`] defines. It takes descriptions of packets ([`Packet`]) and
//! returns them in the order and at the time that the program decides. It reports drops by [`Queue::poll_dropped`]. It
//! has no clock: each call brings the time, in nanoseconds, which never goes back.
//!
//! Each packet enters once and leaves once: `arrived = sent + dropped + queued` holds after every call
//! ([`Counts::is_conserved`]).

mod arrive;
mod dispatch;
mod fifo;
mod handlers;
mod in_use;
mod layout;
mod leave;
mod level;
mod order;
mod overflow;
mod packets;
mod ranked;
mod records;
mod shared;
pub mod snapshot;
mod tally;

use dispatch::Dispatch;
use layout::NONE;
use leave::ServeResult;
use level::{Level, kept, levels};
use packets::{PacketInfo, Packets};
use shared::Shared;
use std::sync::Arc;
pub(crate) use tally::LineTotals;
pub use tally::{LineTotal, ProgramText, Tally, WATCHED_MAX, WaitHistogram};
use weft_core::Time;
use weft_core::marks::Marks;
use weft_ir::queue::{Field, HEADERS_MAX, Verdict, word};
pub use weft_ir::queue::{QueueCode, QueueProgram};

/// The turns of partitions in one dequeue: each NEXT and each dropped packet is one. After that, the first partition is
/// served whatever its handlers say; otherwise a quantum of one byte could stop the link.
pub const TURNS_MAX: u32 = 1 << 16;

/// The slack of a packet without one: a year.
pub const FAR_NS: i64 = 365 * 86_400 * 1_000_000_000;
/// The deadline of a packet without one: later than all others.
pub const NEVER_DUE_NS: u64 = i64::MAX as u64;

/// A packet as a queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The caller's handle.
    pub handle: u64,
    /// Its length in bytes.
    pub len: u32,
    /// The bytes of `len` outside the network layer: link headers and padding.
    pub framing: u32,
    /// The ECN codepoint (RFC 3168), 0 to 3.
    pub ecn: u8,
    /// The differentiated services codepoint, 0 to 63.
    pub dscp: u8,
    /// Hash of the flow.
    pub flow: u32,
    /// Hash of the source address.
    pub src: u32,
    /// Hash of the destination address.
    pub dst: u32,
    /// The class that the chain or the session set.
    pub class: u32,
    /// The bytes left of its flow; 0 if unknown.
    pub remaining: u64,
    /// How long it may still wait, in nanoseconds; [`FAR_NS`] if unknown.
    pub slack_ns: i64,
    /// The time by which it should arrive, in nanoseconds; [`NEVER_DUE_NS`] if unknown.
    pub deadline_ns: u64,
    /// The header fields that the program uses.
    pub headers: [u64; HEADERS_MAX],
}

/// A packet with defaults for all fields.
impl Default for Packet {
    fn default() -> Self {
        Self {
            handle: 0,
            len: 0,
            framing: 0,
            ecn: 0,
            dscp: 0,
            flow: 0,
            src: 0,
            dst: 0,
            class: 0,
            remaining: 0,
            slack_ns: FAR_NS,
            deadline_ns: NEVER_DUE_NS,
            headers: [0; HEADERS_MAX],
        }
    }
}

impl Packet {
    /// Returns a field of the packet as a word.
    #[inline(never)]
    fn word(&self, field: Field) -> u64 {
        match field {
            Field::Flow => u64::from(self.flow),
            Field::Src => u64::from(self.src),
            Field::Dst => u64::from(self.dst),
            Field::Dscp => u64::from(self.dscp),
            Field::Class => u64::from(self.class),
            Field::Remaining => self.remaining,
            Field::Slack => self.slack_ns as u64,
            Field::Deadline => self.deadline_ns,
            Field::NetLen => u64::from(self.len.saturating_sub(self.framing)),
            // The queue computes it itself.
            Field::Partitions(_) => 0,
            Field::Header(nth) => self.headers[usize::from(nth) % HEADERS_MAX],
        }
    }

    /// Copies the marks that elements set; `came` is the arrival time.
    pub(crate) fn apply_marks(&mut self, marks: &Marks, came: Time) {
        self.class = marks.class().unwrap_or(self.class);
        self.remaining = marks.remaining().map_or(self.remaining, u64::from);
        if let Some(due) = marks.deadline() {
            self.slack_ns = (due - came).0.clamp(0, FAR_NS);
            self.deadline_ns = due.0.max(0) as u64;
        }
    }

    /// Copies a field of another packet.
    pub(crate) fn copy(&mut self, field: Field, from: &Self) {
        self.set(field, from.word(field));
    }

    /// Sets a field of the packet from a word.
    fn set(&mut self, field: Field, word: u64) {
        match field {
            Field::Flow => self.flow = word as u32,
            Field::Src => self.src = word as u32,
            Field::Dst => self.dst = word as u32,
            Field::Dscp => self.dscp = word as u8,
            Field::Class => self.class = word as u32,
            Field::Remaining => self.remaining = word,
            Field::Slack => self.slack_ns = word as i64,
            Field::Deadline => self.deadline_ns = word,
            Field::NetLen => self.framing = self.len.saturating_sub(word as u32),
            Field::Partitions(_) => {}
            Field::Header(nth) => self.headers[usize::from(nth) % HEADERS_MAX] = word,
        }
    }
}

/// A packet that leaves the queue to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The caller's handle.
    pub handle: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Its current ECN codepoint: 3 if a program marked it.
    pub ecn: u8,
    /// When it arrived.
    pub arrived_ns: u64,
}

/// A dropped packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The caller's handle.
    pub handle: u64,
    /// Its length in bytes.
    pub len: u32,
    /// When it arrived.
    pub arrived_ns: u64,
    /// When it was dropped.
    pub dropped_ns: u64,
    /// The level of the queue that dropped it; the root is 0.
    pub level: u8,
    /// Why.
    pub why: DropCause,
    /// The source line that dropped it.
    pub line: u32,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropCause {
    /// ON ENQUEUE dropped it.
    Enqueue,
    /// ON DEQUEUE dropped it.
    Dequeue,
    /// A limit was exceeded.
    Overflow,
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that ON ENQUEUE dropped.
    pub dropped_enqueue: u64,
    /// Packets that ON DEQUEUE dropped.
    pub dropped_dequeue: u64,
    /// Packets that a limit dropped, or that had no buffer ([`Queue::count_refused`]).
    pub dropped_overflow: u64,
    /// Packets that left the queue while there was no device to send them ([`Queue::count_lost`]).
    pub dropped_device: u64,
    /// Marked packets; they are among those sent or queued.
    pub marked: u64,
    /// Packets that moved to another queue.
    pub taken: u64,
    /// Packets in the queue.
    pub queued: u64,
    /// Bytes in the queue.
    pub queued_bytes: u64,
}

impl Counts {
    /// All dropped packets.
    pub fn dropped(&self) -> u64 {
        self.dropped_enqueue + self.dropped_dequeue + self.dropped_overflow + self.dropped_device
    }

    /// Whether each packet that arrived is accounted for once.
    pub fn is_conserved(&self) -> bool {
        self.arrived == self.sent + self.dropped() + self.taken + self.queued
    }
}

/// Drops or marks of one source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCount {
    /// The level.
    pub level: u8,
    /// The line.
    pub line: u32,
    /// What it did: Mark or Drop.
    pub verdict: Verdict,
    /// The number of packets.
    pub packets: u64,
}

/// A partition that holds packets, is in the order, or has a tally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The level of its node.
    pub level: u8,
    /// The node.
    pub node: u32,
    /// Its index in the node.
    pub index: u32,
    /// Packets in it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its rank.
    pub rank: i64,
    /// The time until which it is held.
    pub held_until_ns: Option<u64>,
    /// What became of its packets, if the queue is watched.
    pub tally: Tally,
}

/// A queue that runs a program.
#[derive(Debug)]
pub struct Queue<C> {
    levels: Vec<Level>,
    shared: Shared<C>,
    dispatch: Dispatch<C>,
    /// When a packet that the last dequeue found waiting is released; [`NEVER`] if there was none.
    wake_at: u64,
    last_sent: u32,
}

/// Later than all times.
const NEVER: u64 = u64::MAX;

impl<C: QueueCode> Queue<C> {
    /// Creates an empty queue; the seed determines all random draws.
    pub fn new(program: Arc<QueueProgram>, code: C, now_ns: u64, seed: u64) -> Self {
        let packets = Packets::new(&program, code.fetch());
        let levels = levels(&program);
        let mut queue = Self {
            dispatch: Dispatch::of(&levels),
            levels,
            shared: Shared::new(program, code, packets, seed),
            wake_at: NEVER,
            last_sent: NONE,
        };
        queue.shared.handlers.set_now(now_ns);
        queue.shared.start_timers(&mut queue.levels, 0, 0, now_ns);
        queue
    }

    /// Uses another source of random numbers in [0, 1).
    pub fn draw_from(&mut self, random: impl FnMut() -> f64 + Send + 'static) {
        self.shared.handlers.draw_from(random);
    }

    /// Sets the rate of the link in bits per second.
    pub fn set_rate(&mut self, bits_per_s: u64) {
        self.shared.handlers.set_rate(bits_per_s);
    }

    /// The program.
    pub fn program(&self) -> &Arc<QueueProgram> {
        &self.shared.program
    }

    /// Enqueues a packet. Packets dropped by this, perhaps the packet itself, are reported by [`Queue::poll_dropped`].
    pub fn enqueue(&mut self, packet: &Packet, now_ns: u64) {
        if now_ns >= self.shared.next_timer {
            return self.enqueue_late(packet, now_ns);
        }
        self.shared.handlers.set_now(now_ns);
        self.enqueue_stamped(packet, now_ns);
    }

    /// Enqueues a packet after running the timers that are due.
    #[cold]
    fn enqueue_late(&mut self, packet: &Packet, now_ns: u64) {
        self.handle_timeout(now_ns);
        self.enqueue_stamped(packet, now_ns);
    }

    /// Dequeues the next packet, if one may leave now. If not, call again at [`Queue::poll_timeout`], or after
    /// another packet arrives.
    #[inline]
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Sent> {
        if now_ns >= self.shared.next_timer {
            self.handle_timeout(now_ns);
        }
        self.shared.handlers.set_now(now_ns);
        if self.dispatch.is_fifo { self.dequeue_from_fifo() } else { (self.dispatch.dequeue)(self) }
    }

    /// Ends a dequeue: returns the packet that was served, or stores the time until which the queue holds its
    /// packets.
    #[inline(always)]
    fn finish_dequeue(&mut self, served: ServeResult) -> Option<Sent> {
        self.wake_at = NEVER;
        self.shared.handlers.no_drops();
        match served {
            ServeResult::Sent(slot) => self.send_slot(slot as u32),
            ServeResult::Empty => None,
            ServeResult::Held(until) => {
                self.wake_at = until;
                None
            }
        }
    }

    /// Counts a packet that is in no list any more as sent, and frees its slot.
    #[inline(always)]
    fn send_slot(&mut self, slot: u32) -> Option<Sent> {
        self.shared.counts.sent += 1;
        self.last_sent = slot;
        let (known, next) = self.shared.packets.release(slot);
        let sent = Some(known.into());
        self.shared.packets.fetch_behind(next);
        sent
    }

    /// A field of the packet that left last, until the next call: programs may have changed it.
    pub fn last_sent(&self, field: Field) -> Option<u64> {
        let at = self.shared.program.field(field)?;
        self.shared.packets.words(self.last_sent).get(usize::from(at)).copied()
    }

    /// The next packet that was dropped.
    #[inline]
    pub fn poll_dropped(&mut self) -> Option<Dropped> {
        self.shared.dropped.pop_front()
    }

    /// The time of the next [`Queue::handle_timeout`] or [`Queue::dequeue`] if no packet arrives.
    pub fn poll_timeout(&self) -> Option<u64> {
        let first = self.shared.next_timer.min(self.wake_at);
        (first != NEVER).then_some(first)
    }

    /// Runs what is due.
    #[inline(never)]
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.shared.advance(&mut self.levels, now_ns);
    }

    /// The counts of packets.
    pub fn counts(&self) -> Counts {
        let root = self.levels[0].nodes.head(0);
        Counts { queued: root[kept::PACKETS], queued_bytes: root[kept::BYTES], ..self.shared.counts }
    }

    /// Drops and marks by line.
    pub fn lines(&self) -> &[LineCount] {
        &self.shared.lines
    }

    /// Takes all packets out, in order of arrival and with their arrival times, for another queue. Packets that arrived
    /// at one time in one partition keep their order there.
    pub fn take_all(&mut self) -> Vec<(Packet, u64)> {
        let mut slots: Vec<u32> = Vec::new();
        for level in self.levels.iter().filter(|level| level.shape.is_leaf) {
            for partition in 0..level.n_partitions() {
                slots.extend(self.shared.packets.waiting(level, partition));
            }
        }
        slots.sort_by_key(|slot| self.shared.packets.arrived_ns(*slot));
        let taken = |slot| (self.packet_of(slot), self.shared.packets.arrived_ns(slot));
        let packets: Vec<_> = slots.into_iter().map(taken).collect();
        self.shared.counts.taken += packets.len() as u64;
        self.levels = levels(&self.shared.program);
        self.shared.packets.clear();
        if let Some(in_use) = &mut self.shared.in_use {
            in_use.clear();
        }
        (self.last_sent, self.wake_at) = (NONE, NEVER);
        self.shared.stop_timers();
        let now = self.shared.handlers.now();
        self.shared.start_timers(&mut self.levels, 0, 0, now);
        packets
    }

    /// Enqueues the packets of another queue with their own arrival times. Packets that exceed the limits of this queue
    /// are reported as dropped by overflow.
    pub fn adopt(&mut self, packets: &[(Packet, u64)]) {
        for (packet, arrived) in packets {
            self.shared.handlers.set_now(*arrived);
            self.enqueue_stamped(packet, *arrived);
        }
    }

    /// Enqueues a packet with an arrival time of its own, by the dispatched function.
    #[inline(always)]
    fn enqueue_stamped(&mut self, packet: &Packet, arrived_ns: u64) {
        self.wake_at = NEVER;
        self.shared.counts.arrived += 1;
        if self.dispatch.is_fifo {
            self.enqueue_in_fifo(packet, arrived_ns);
        } else {
            (self.dispatch.enqueue)(self, packet, arrived_ns);
        }
    }

    /// Restores the description of a stored packet.
    fn packet_of(&self, slot: u32) -> Packet {
        let words = self.shared.packets.words(slot);
        let mut packet = Packet {
            handle: words[usize::from(word::HANDLE)],
            len: words[usize::from(word::LEN)] as u32,
            ecn: words[usize::from(word::ECN)] as u8,
            ..Packet::default()
        };
        for (word, field) in words[usize::from(word::FIELDS)..].iter().zip(&self.shared.program.fields) {
            packet.set(*field, *word);
        }
        packet
    }
}

impl From<PacketInfo> for Sent {
    #[inline(always)]
    fn from(PacketInfo { handle, len, ecn, arrived_ns }: PacketInfo) -> Self {
        Self { handle, len, ecn, arrived_ns }
    }
}
