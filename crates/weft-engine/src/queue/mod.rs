//! Queues: packets without their payload wait as a queue program says.
//!
//! A [`Queue`] is a tree of nodes, as [`QueueProgram`] has it. It takes descriptions of packets ([`Packet`]) and gives
//! them back in the order, and at the time, that the program decides; what it drops it tells ([`Queue::poll_dropped`]).
//! It owns no clock: the time comes with each call, in nanoseconds, and never goes back.
//!
//! Each packet enters once and leaves once: `arrived = sent + dropped + queued` holds after every call
//! ([`Counts::is_conserved`]).

mod arrive;
mod handlers;
mod in_use;
mod leave;
mod level;
mod line;
mod order;
mod overflow;
mod packets;
mod ranked;
mod records;
mod shared;
pub mod snapshot;
mod tally;
mod turns;
mod way;

use leave::Served;
use level::{Level, kept, levels};
use packets::{Known, Packets};
use shared::Shared;
use std::sync::Arc;
pub(crate) use tally::Lines;
pub use tally::{LineTotal, Tally, WATCHED_MAX, Waits, Written};
use way::Way;
use weft_core::Time;
use weft_core::marks::Marks;
use weft_ir::queue::layout::NONE;
use weft_ir::queue::turns::CompiledTurns;
use weft_ir::queue::{Field, HEADERS_MAX, Verdict, word};
pub use weft_ir::queue::{QueueCode, QueueProgram};

/// Turns that partitions may take in one dequeue (NEXT, and packets dropped), after which the one that is first is
/// served whatever it says: a quantum of a byte must not stop the link.
pub const TURNS_MAX: u32 = 1 << 16;

/// How long a packet may wait of which nobody says how long it may: a year.
pub const FAR_NS: i64 = 365 * 86_400 * 1_000_000_000;
/// When a packet should be there of which nobody says when: after all others.
pub const NEVER_DUE_NS: u64 = i64::MAX as u64;

/// A packet as a queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What the caller knows it by.
    pub handle: u64,
    /// Bytes.
    pub len: u32,
    /// Bytes of these that are not of the network layer: headers of the link, and what pads it.
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
    /// Class, as the chain or the session marked it.
    pub class: u32,
    /// Bytes left of its flow, 0 if nobody says.
    pub remaining: u64,
    /// Nanoseconds that it may still wait, [`FAR_NS`] if nobody says.
    pub slack_ns: i64,
    /// Nanoseconds of the clock by which it should be there, [`NEVER_DUE_NS`] if nobody says.
    pub deadline_ns: u64,
    /// What the program asks of its headers.
    pub headers: [u64; HEADERS_MAX],
}

/// One of which nothing is known.
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
    /// The word of a field.
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
            // It is the queue's own to say.
            Field::Partitions(_) => 0,
            Field::Header(nth) => self.headers[usize::from(nth) % HEADERS_MAX],
        }
    }

    /// Takes in what elements have said of it, which came at this time.
    pub(crate) fn hear(&mut self, marks: &Marks, came: Time) {
        self.class = marks.class().unwrap_or(self.class);
        self.remaining = marks.remaining().map_or(self.remaining, u64::from);
        if let Some(due) = marks.deadline() {
            self.slack_ns = (due - came).0.clamp(0, FAR_NS);
            self.deadline_ns = due.0.max(0) as u64;
        }
    }

    /// Takes a field from another.
    pub(crate) fn copy(&mut self, field: Field, from: &Self) {
        self.set(field, from.word(field));
    }

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

/// A packet that leaves to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// What the caller knows it by.
    pub handle: u64,
    /// Its bytes.
    pub len: u32,
    /// Its ECN codepoint now: 3 where a program marked it.
    pub ecn: u8,
    /// When it came.
    pub arrived_ns: u64,
}

/// A packet that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// What the caller knows it by.
    pub handle: u64,
    /// Its bytes.
    pub len: u32,
    /// When it came.
    pub arrived_ns: u64,
    /// When it was dropped.
    pub dropped_ns: u64,
    /// The level of the queue that dropped it, the root is 0.
    pub level: u8,
    /// Why.
    pub why: Why,
    /// The line of the program that says so.
    pub line: u32,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// ON ENQUEUE said so.
    Enqueue,
    /// ON DEQUEUE said so.
    Dequeue,
    /// The limit.
    Overflow,
}

/// What came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came.
    pub arrived: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were dropped by ON ENQUEUE.
    pub dropped_enqueue: u64,
    /// Packets that were dropped by ON DEQUEUE.
    pub dropped_dequeue: u64,
    /// Packets that a limit dropped, or for which there was no buffer ([`Queue::note_refused`]).
    pub dropped_overflow: u64,
    /// Packets that it let go, and that there was no device to send ([`Queue::note_lost`]).
    pub dropped_device: u64,
    /// Packets that were marked; they are among those sent, or still here.
    pub marked: u64,
    /// Packets that another queue took over.
    pub taken: u64,
    /// Packets that are here.
    pub queued: u64,
    /// Bytes that are here.
    pub queued_bytes: u64,
}

impl Counts {
    /// Packets that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_enqueue + self.dropped_dequeue + self.dropped_overflow + self.dropped_device
    }

    /// Whether each packet that came is accounted for once.
    pub fn is_conserved(&self) -> bool {
        self.arrived == self.sent + self.dropped() + self.taken + self.queued
    }
}

/// Drops or marks of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCount {
    /// The level.
    pub level: u8,
    /// The line.
    pub line: u32,
    /// What it said: Mark or Drop.
    pub verdict: Verdict,
    /// How often.
    pub packets: u64,
}

/// A partition that holds something, or is in the order, or of which something is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The level of its node.
    pub level: u8,
    /// The node.
    pub node: u32,
    /// Which of its node.
    pub index: u32,
    /// Packets in it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its rank.
    pub rank: i64,
    /// It waits until then.
    pub held_until_ns: Option<u64>,
    /// What became of its packets, if somebody watches.
    pub tally: Tally,
}

/// A queue that runs a program.
#[derive(Debug)]
pub struct Queue<C> {
    levels: Vec<Level>,
    shared: Shared<C>,
    way: Way<C>,
    /// The code of the short way; another way leads round it if the program has none.
    turns: CompiledTurns,
    /// When the last dequeue found that something will be let go; [`NEVER`] if it did not.
    wake_at: u64,
    last_sent: u32,
}

/// Later than all times.
const NEVER: u64 = u64::MAX;

impl<C: QueueCode> Queue<C> {
    /// A queue that is empty, at this time; all chance follows from the seed.
    pub fn new(program: Arc<QueueProgram>, code: C, now_ns: u64, seed: u64) -> Self {
        let packets = Packets::new(&program, code.fetch());
        let levels = levels(&program);
        let turns = code.turns();
        let mut queue = Self {
            way: Way::of(&levels, &program.fields, turns.is_some()),
            turns: turns.unwrap_or_default(),
            levels,
            shared: Shared::new(program, code, packets, seed),
            wake_at: NEVER,
            last_sent: NONE,
        };
        queue.shared.handlers.set_now(now_ns);
        queue.shared.start_timers(&mut queue.levels, 0, 0, now_ns);
        queue
    }

    /// Chance from elsewhere: each call gives a number in [0, 1).
    pub fn draw_from(&mut self, random: impl FnMut() -> f64 + Send + 'static) {
        self.shared.handlers.draw_from(random);
    }

    /// The bits a second that the link has from now on.
    pub fn set_rate(&mut self, bits_per_s: u64) {
        self.shared.handlers.set_rate(bits_per_s);
    }

    /// The program.
    pub fn program(&self) -> &Arc<QueueProgram> {
        &self.shared.program
    }

    /// A packet comes. What is dropped for it, or is dropped itself, is told by [`Queue::poll_dropped`].
    pub fn enqueue(&mut self, packet: &Packet, now_ns: u64) {
        if now_ns >= self.shared.next_timer {
            return self.enqueue_late(packet, now_ns);
        }
        self.shared.handlers.set_now(now_ns);
        self.enqueue_stamped(packet, now_ns);
    }

    /// As above, after timers.
    #[cold]
    fn enqueue_late(&mut self, packet: &Packet, now_ns: u64) {
        self.handle_timeout(now_ns);
        self.enqueue_stamped(packet, now_ns);
    }

    /// The next packet, if one may leave now. If not, [`Queue::poll_timeout`] says when to ask again, and a packet that
    /// comes is a reason, too.
    #[inline]
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Sent> {
        if now_ns >= self.shared.next_timer {
            self.handle_timeout(now_ns);
        }
        self.shared.handlers.set_now(now_ns);
        if self.way.is_line { self.dequeue_from_line() } else { (self.way.leave)(self) }
    }

    #[inline(always)]
    fn sent(&mut self, served: Served) -> Option<Sent> {
        self.wake_at = NEVER;
        self.shared.handlers.no_drops();
        match served {
            Served::Sent(slot) => self.leaves(slot as u32),
            Served::Empty => None,
            Served::Held(until) => {
                self.wake_at = until;
                None
            }
        }
    }

    /// A packet that is in no line is sent.
    #[inline(always)]
    fn leaves(&mut self, slot: u32) -> Option<Sent> {
        self.shared.counts.sent += 1;
        self.last_sent = slot;
        let (known, next) = self.shared.packets.release(slot);
        let sent = Some(known.into());
        self.shared.packets.fetch_behind(next);
        sent
    }

    /// What a field holds of the packet that left last, until the next call: programs may have changed it.
    pub fn last_sent(&self, field: Field) -> Option<u64> {
        let at = self.shared.program.field(field)?;
        self.shared.packets.words(self.last_sent).get(usize::from(at)).copied()
    }

    /// A packet that was dropped since; None if there is no further.
    #[inline]
    pub fn poll_dropped(&mut self) -> Option<Dropped> {
        self.shared.dropped.pop_front()
    }

    /// When [`Queue::handle_timeout`] or [`Queue::dequeue`] have something to do though nothing comes.
    pub fn poll_timeout(&self) -> Option<u64> {
        let first = self.shared.next_timer.min(self.wake_at);
        (first != NEVER).then_some(first)
    }

    /// Runs what is due by the clock.
    #[inline(never)]
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.shared.advance(&mut self.levels, now_ns);
    }

    /// What came and went.
    pub fn counts(&self) -> Counts {
        let root = self.levels[0].nodes.head(0);
        Counts { queued: root[kept::PACKETS], queued_bytes: root[kept::BYTES], ..self.shared.counts }
    }

    /// Drops and marks by line.
    pub fn lines(&self) -> &[LineCount] {
        &self.shared.lines
    }

    /// Takes out all packets, in the order in which they came, with their arrival: another queue goes on with them.
    /// Those that came at one time to one partition keep the order in which they stand there.
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

    /// Takes over what another queue held: each packet comes as it came there, with its own stamp. What the limits of
    /// this one refuse is told as dropped by overflow.
    pub fn adopt(&mut self, packets: &[(Packet, u64)]) {
        for (packet, arrived) in packets {
            self.shared.handlers.set_now(*arrived);
            self.enqueue_stamped(packet, *arrived);
        }
    }

    #[inline(always)]
    fn enqueue_stamped(&mut self, packet: &Packet, arrived_ns: u64) {
        self.wake_at = NEVER;
        self.shared.counts.arrived += 1;
        if self.way.is_line {
            self.enqueue_in_line(packet, arrived_ns);
        } else {
            (self.way.enter)(self, packet, arrived_ns);
        }
    }

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

impl From<Known> for Sent {
    #[inline(always)]
    fn from(Known { handle, len, ecn, arrived_ns }: Known) -> Self {
        Self { handle, len, ecn, arrived_ns }
    }
}
