//! Queues: packets without their payload wait as a queue program says.
//!
//! A [`Queue`] is a tree of nodes, as [`QueueProgram`] has it. It takes descriptions of packets ([`Packet`]) and gives
//! them back in the order, and at the time, that the program decides; what it drops it tells ([`Queue::poll_dropped`]).
//! It owns no clock: the time comes with each call, in nanoseconds, and never goes back.
//!
//! Each packet enters once and leaves once: `arrived = sent + dropped + queued` holds after every call
//! ([`Counts::is_conserved`]).

mod ranked;

use core::cmp::Reverse;
use ranked::{Places, Ranked};
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use weft_core::hash::{hash_word, mix};
use weft_ir::queue::{
    Field, Handler, LEVELS_MAX, Moment, Op, Overflow, PacketOrder, Partitions, Scope, Slot, Step, VarDecl,
    Verdict, Victim, Words, word,
};
pub use weft_ir::queue::{QueueCode, QueueProgram};

/// Turns that partitions may take in one dequeue (NEXT, and packets dropped), after which the one that is first is
/// served whatever it says: a quantum of a byte must not stop the link.
pub const TURNS_MAX: u32 = 1 << 16;

/// No packet.
const NONE: u32 = u32::MAX;

/// A packet as a queue sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// What the caller knows it by.
    pub handle: u64,
    /// Bytes.
    pub len: u32,
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
    /// Nanoseconds that it may still wait.
    pub slack_ns: i64,
    /// Nanoseconds of the clock by which it should be there.
    pub deadline_ns: u64,
}

impl Packet {
    /// The word of a field.
    #[inline]
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
        }
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
    /// Packets that a limit dropped.
    pub dropped_overflow: u64,
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
        self.dropped_enqueue + self.dropped_dequeue + self.dropped_overflow
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

/// A partition that holds something, or is in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// A queue that runs a program.
#[derive(Debug)]
pub struct Queue<C> {
    program: Arc<QueueProgram>,
    code: C,
    levels: Vec<Level>,
    /// The records of nodes and partitions of all levels: what handlers see of them, and behind that what the queue
    /// keeps for itself, so that all of a partition lies together.
    words: Vec<u64>,
    /// The words of packets, and the free ones among them.
    packets: Vec<u64>,
    stride: usize,
    free: Vec<u32>,
    event: [u64; word::EVENT_WORDS as usize],
    timers: BinaryHeap<Reverse<(u64, u8, u32, u16)>>,
    /// The time of the first of them.
    next_timer: u64,
    /// When the last dequeue found that something will be let go.
    wake_at: Option<u64>,
    random: Random,
    counts: Counts,
    lines: Vec<LineCount>,
    dropped: VecDeque<Dropped>,
    last_sent: u32,
    /// It is one line of packets as they came: the way is short.
    is_line: bool,
    /// Some level makes room when it is full.
    has_victims: bool,
    /// Packets may leave their line from elsewhere than its head, so that each knows the one before it.
    looks_back: bool,
}

/// Where chance comes from.
enum Random {
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

/// One level of the tree.
#[derive(Debug)]
struct Level {
    shape: Shape,
    /// By node: the partitions that are in the order. Empty where there is one.
    orders: Vec<Ranked>,
    /// By node of the last level, where packets are ranked.
    ranked: Vec<Ranked>,
    /// By partition: the key that it is for, where sets have ways.
    tags: Vec<u32>,
    /// By node: those that wait.
    held: Vec<BinaryHeap<Reverse<(u64, u64, u32)>>>,
    /// How many have waited: those that wait for one time go on as they came.
    n_held: u64,
    /// By node: its timers run.
    is_started: Vec<bool>,
}

/// What stays the same of a level.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is read by itself on the way of a packet")]
struct Shape {
    n: u32,
    /// Where the records of nodes begin, and how many words one has.
    nodes: Records,
    /// Where those of partitions begin; of nodes where each has one.
    own: Records,
    /// In a record of `own`: where the queue's own words begin.
    kept: usize,
    partitions: Partitions,
    /// The word of a packet that is its key, and the one that is its rank: no handler has to run.
    key_word: Option<u16>,
    rank_word: Option<u16>,
    is_one: bool,
    is_root: bool,
    is_leaf: bool,
    /// Something may wait here, or below.
    may_hold: bool,
    has_enqueue: bool,
    has_activate: bool,
    has_select: bool,
    has_dequeue: bool,
    has_empty: bool,
    has_timers: bool,
    ranks_packets: bool,
    /// ON ENQUEUE, or a packet that comes, may change the rank of a partition; and ON DEQUEUE.
    enqueue_ranks: bool,
    dequeue_ranks: bool,
    is_ranked: bool,
    by_least: bool,
    packets_max: u64,
    bytes_max: u64,
    drops_arriving: bool,
    victim: Option<(Victim, bool)>,
    batch: u32,
    limit_line: u32,
}

/// Records of one kind, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Records {
    first: usize,
    stride: usize,
}

impl Records {
    #[inline(always)]
    fn at(self, nth: u32) -> usize {
        self.first + nth as usize * self.stride
    }

    #[inline(always)]
    fn of(self, words: &[u64], nth: u32) -> &[u64] {
        &words[self.at(nth)..][..self.stride]
    }

    #[inline(always)]
    fn of_mut(self, words: &mut [u64], nth: u32) -> &mut [u64] {
        &mut words[self.at(nth)..][..self.stride]
    }
}

/// What the queue keeps in the record of a partition, behind the words that handlers see.
mod kept {
    /// First and last packet of its line.
    pub(super) const LINE: usize = 0;
    /// Until when it waits.
    pub(super) const HOLD: usize = 1;
    /// Whether it is in the order: one of those below. From here on there is nothing in a record of a node.
    pub(super) const STATE: usize = 2;
    /// Its place in the order.
    pub(super) const LINKS: usize = 3;
    /// The rank under which it stands there.
    pub(super) const STANDS: usize = 4;
    /// How many words those are.
    pub(super) const WORDS: usize = 5;
    /// How many of them a node has that is one partition.
    pub(super) const NODE_WORDS: usize = 2;

    /// It is not in the order.
    pub(super) const IDLE: u64 = 0;
    /// It is in the order.
    pub(super) const ACTIVE: u64 = 1;
    /// It waits.
    pub(super) const HELD: u64 = 2;
}

/// What came of asking a node for a packet.
enum Served {
    Sent(u32),
    Empty,
    Held(u64),
}

impl<C: QueueCode> Queue<C> {
    /// A queue that is empty, at this time; all chance follows from the seed.
    pub fn new(program: Arc<QueueProgram>, code: C, now_ns: u64, seed: u64) -> Self {
        let stride = program.packet_words().next_power_of_two();
        let drawn = Slot::new(Scope::Event, word::DRAWN);
        let draws =
            program.levels.iter().any(|level| level.handlers.iter().any(|(_, h)| stores(&h.body, drawn)));
        let random = if draws { Random::Seeded(seed) } else { Random::Unused };
        let (levels, words) = levels(&program);
        let mut queue = Self {
            code,
            levels,
            words,
            packets: Vec::new(),
            stride,
            free: Vec::new(),
            event: [0; word::EVENT_WORDS as usize],
            timers: BinaryHeap::new(),
            next_timer: u64::MAX,
            wake_at: None,
            random,
            counts: Counts::default(),
            lines: Vec::new(),
            dropped: VecDeque::new(),
            last_sent: NONE,
            is_line: levels_are_a_line(&program),
            looks_back: program.levels.iter().any(looks_back),
            has_victims: program.levels.iter().any(|level| level.limit.overflow != Overflow::Arriving),
            program,
        };
        queue.draw();
        queue.event[usize::from(word::NOW)] = now_ns;
        queue.start_timers(0, 0, now_ns);
        queue
    }

    /// Chance from elsewhere: each call gives a number in [0, 1).
    pub fn draw_from(&mut self, random: impl FnMut() -> f64 + Send + 'static) {
        if !matches!(self.random, Random::Unused) {
            self.random = Random::Given(Box::new(random));
            self.draw();
        }
    }

    /// The bits a second that the link has from now on.
    pub fn set_rate(&mut self, bits_per_s: u64) {
        self.event[usize::from(word::RATE)] = bits_per_s;
    }

    /// The program.
    pub fn program(&self) -> &Arc<QueueProgram> {
        &self.program
    }

    /// A packet comes. What is dropped for it, or is dropped itself, is told by [`Queue::poll_dropped`].
    pub fn enqueue(&mut self, packet: &Packet, now_ns: u64) {
        self.advance(now_ns);
        self.enqueue_stamped(packet, now_ns);
    }

    /// The next packet, if one may leave now. If not, [`Queue::poll_timeout`] says when to ask again, and a packet that
    /// comes is a reason, too.
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Sent> {
        self.advance(now_ns);
        self.wake_at = None;
        let served = if self.is_line { self.serve_line(0, 0) } else { self.serve(0, 0) };
        match served {
            Served::Sent(slot) => {
                self.counts.sent += 1;
                let words = self.packet(slot);
                let sent = Sent {
                    handle: words[usize::from(word::HANDLE)],
                    len: words[usize::from(word::LEN)] as u32,
                    ecn: words[usize::from(word::ECN)] as u8,
                    arrived_ns: words[usize::from(word::ARRIVED)],
                };
                self.last_sent = slot;
                self.free.push(slot);
                Some(sent)
            }
            Served::Empty => None,
            Served::Held(until) => {
                self.wake_at = Some(until);
                None
            }
        }
    }

    /// What a field holds of the packet that left last, until the next call: programs may have changed it.
    pub fn last_sent(&self, field: Field) -> Option<u64> {
        let at = self.program.field(field)?;
        let start = (self.last_sent != NONE).then_some(self.last_sent as usize * self.stride)?;
        self.packets.get(start + usize::from(at)).copied()
    }

    /// A packet that was dropped since; None if there is no further.
    pub fn poll_dropped(&mut self) -> Option<Dropped> {
        self.dropped.pop_front()
    }

    /// When [`Queue::handle_timeout`] or [`Queue::dequeue`] have something to do though nothing comes.
    pub fn poll_timeout(&self) -> Option<u64> {
        let timer = (self.next_timer != u64::MAX).then_some(self.next_timer);
        [timer, self.wake_at].into_iter().flatten().min()
    }

    /// Runs what is due by the clock.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.advance(now_ns);
    }

    /// What came and went.
    pub fn counts(&self) -> Counts {
        let root = self.node(0, 0);
        Counts {
            queued: root[usize::from(word::PACKETS)],
            queued_bytes: root[usize::from(word::BYTES)],
            ..self.counts
        }
    }

    /// Drops and marks by line.
    pub fn lines(&self) -> &[LineCount] {
        &self.lines
    }

    /// The partitions that hold packets or are in an order, at most so many.
    pub fn partitions(&self, at_most: usize) -> Vec<PartitionState> {
        let mut all = Vec::new();
        for (at, level) in self.levels.iter().enumerate().filter(|(_, level)| !level.shape.is_one) {
            for nth in 0..level.n_partitions() {
                let words = level.shape.own.of(&self.words, nth);
                let (packets, own) = (words[usize::from(word::PACKETS)], &words[level.shape.kept..]);
                if own[kept::STATE] == kept::IDLE && packets == 0 {
                    continue;
                }
                if all.len() == at_most {
                    return all;
                }
                all.push(PartitionState {
                    level: at as u8,
                    node: nth / level.shape.n,
                    index: nth % level.shape.n,
                    packets,
                    bytes: words[usize::from(word::BYTES)],
                    rank: words[usize::from(word::RANK)] as i64,
                    held_until_ns: (own[kept::STATE] == kept::HELD).then_some(own[kept::HOLD]),
                });
            }
        }
        all
    }

    /// The value of a variable of a node, as a word: for tests and for people who look.
    pub fn var(&self, level: usize, node: u32, name: &str) -> Option<u64> {
        let at = self.program.levels.get(level)?.vars.iter().position(|var| var.name == name)?;
        self.node(level, node).get(usize::from(word::NODE_VARS) + at).copied()
    }

    /// Takes out all packets, in the order in which they came, with their arrival: another queue goes on with them.
    pub fn take_all(&mut self) -> Vec<(Packet, u64)> {
        let mut slots: Vec<u32> = Vec::new();
        for level in self.levels.iter().filter(|level| level.shape.is_leaf) {
            for partition in 0..level.n_partitions() {
                let (mut at, _) = self.line(level, partition);
                while at != NONE {
                    slots.push(at);
                    at = link(self.packet(at)).1;
                }
            }
            let places = Slots { words: &mut self.packets, stride: self.stride };
            slots.extend(level.ranked.iter().flat_map(|ranked| ranked.ids(&places)));
        }
        let mut all: Vec<(u64, u32)> =
            slots.iter().map(|slot| (self.packet(*slot)[usize::from(word::ARRIVED)], *slot)).collect();
        all.sort_unstable();
        let packets =
            all.into_iter().map(|(arrived, slot)| (self.packet_of(slot), arrived)).collect::<Vec<_>>();
        self.counts.taken += packets.len() as u64;
        let (now, rate) = (self.event[usize::from(word::NOW)], self.event[usize::from(word::RATE)]);
        (self.levels, self.words) = levels(&self.program);
        (self.packets, self.free, self.last_sent) = (Vec::new(), Vec::new(), NONE);
        (self.timers, self.next_timer, self.wake_at) = (BinaryHeap::new(), u64::MAX, None);
        self.event[usize::from(word::RATE)] = rate;
        self.start_timers(0, 0, now);
        packets
    }

    /// Takes over what another queue held: each packet comes as it came there, with its own stamp. What the limits of
    /// this one refuse is told as dropped by overflow.
    pub fn adopt(&mut self, packets: &[(Packet, u64)]) {
        for (packet, arrived) in packets {
            self.event[usize::from(word::NOW)] = *arrived;
            self.enqueue_stamped(packet, *arrived);
        }
    }

    // ---- a packet comes ----------------------------------------------------------------------------------------

    #[inline]
    fn enqueue_stamped(&mut self, packet: &Packet, arrived_ns: u64) {
        self.wake_at = None;
        self.counts.arrived += 1;
        match (self.is_line, self.levels.len()) {
            (true, _) => self.enqueue_in_line(packet, arrived_ns),
            (_, 1) => self.enqueue_in_tree::<1>(packet, arrived_ns),
            (_, 2) => self.enqueue_in_tree::<2>(packet, arrived_ns),
            (_, 3) => self.enqueue_in_tree::<3>(packet, arrived_ns),
            _ => self.enqueue_in_tree::<LEVELS_MAX>(packet, arrived_ns),
        }
    }

    /// Of a tree of so many levels. Each way is a function of its own: the short ones are not to save registers for the
    /// long ones, and count nothing.
    #[inline(never)]
    fn enqueue_in_tree<const DEPTH: usize>(&mut self, packet: &Packet, arrived_ns: u64) {
        let slot = self.store(packet, arrived_ns);
        let mut path = [0_u32; DEPTH];
        let mut node = 0;
        for (at, place) in path.iter_mut().enumerate() {
            let shape = &self.levels[at].shape;
            let (is_one, has_enqueue, line) = (shape.is_one, shape.has_enqueue, shape.limit_line);
            if shape.drops_arriving && self.is_over(at, node, 1, u64::from(packet.len)) {
                return self.drop_packet(slot, at, Why::Overflow, line);
            }
            let partition = if is_one { node } else { self.locate(at, node, slot) };
            if has_enqueue {
                let end = self.run(at, Moment::Enqueue, node, partition, slot);
                match Verdict::of_word(end) {
                    Verdict::Drop => {
                        self.note(at, end);
                        return self.drop_packet(slot, at, Why::Enqueue, Verdict::line(end));
                    }
                    Verdict::Mark => self.marked(at, end),
                    _ => {}
                }
            }
            *place = partition;
            node = partition;
        }
        self.put(DEPTH - 1, node, slot, u64::from(packet.len));
        for (at, partition) in path.into_iter().enumerate() {
            self.came(at, partition, slot);
        }
        if !self.has_victims {
            return;
        }
        for (at, partition) in path.into_iter().enumerate() {
            let shape = &self.levels[at].shape;
            let node = shape.node_of(partition);
            if let Some(victim) = shape.victim
                && self.is_over(at, node, 0, 0)
            {
                self.trim(at, node, partition, victim);
            }
        }
    }

    /// As above, of a queue that is one line: nothing is looked for, and nothing is ordered.
    #[inline(never)]
    fn enqueue_in_line(&mut self, packet: &Packet, arrived_ns: u64) {
        let len = u64::from(packet.len);
        let slot = self.store(packet, arrived_ns);
        let shape = &self.levels[0].shape;
        let (drops_arriving, has_enqueue, line) =
            (shape.drops_arriving, shape.has_enqueue, shape.kept + kept::LINE);
        if drops_arriving && self.is_over(0, 0, 1, len) {
            let line = self.levels[0].shape.limit_line;
            return self.drop_packet(slot, 0, Why::Overflow, line);
        }
        if has_enqueue {
            let end = self.run(0, Moment::Enqueue, 0, 0, slot);
            match Verdict::of_word(end) {
                Verdict::Drop => {
                    self.note(0, end);
                    return self.drop_packet(slot, 0, Why::Enqueue, Verdict::line(end));
                }
                Verdict::Mark => self.marked(0, end),
                _ => {}
            }
        }
        self.words[usize::from(word::PACKETS)] += 1;
        self.words[usize::from(word::BYTES)] += len;
        self.append(line, slot);
        if !drops_arriving
            && let Some(victim) = self.levels[0].shape.victim
            && self.is_over(0, 0, 0, 0)
        {
            self.trim(0, 0, 0, victim);
        }
    }

    #[inline(always)]
    fn store(&mut self, packet: &Packet, arrived_ns: u64) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = self.packets.len() / self.stride;
                self.packets.resize(self.packets.len() + self.stride, 0);
                slot as u32
            }
        };
        let words = &mut self.packets[slot as usize * self.stride..][..self.stride];
        words[usize::from(word::HANDLE)] = packet.handle;
        words[usize::from(word::ARRIVED)] = arrived_ns;
        words[usize::from(word::LEN)] = u64::from(packet.len);
        words[usize::from(word::ECN)] = u64::from(packet.ecn);
        for (nth, field) in self.program.fields.iter().enumerate() {
            words[usize::from(word::FIELDS) + nth] = packet.word(*field);
        }
        slot
    }

    /// The partition of a packet.
    #[inline(always)]
    fn locate(&mut self, at: usize, node: u32, slot: u32) -> u32 {
        let key = match self.levels[at].shape.key_word {
            Some(word) => self.packet(slot)[usize::from(word)],
            None => self.run(at, Moment::Key, node, 0, slot),
        };
        let level = &mut self.levels[at];
        let first = node * level.shape.n;
        match level.shape.partitions {
            Partitions::One => node,
            Partitions::Direct { n } => first + (key as i64).clamp(0, i64::from(n) - 1) as u32,
            Partitions::Hash { n, ways: 1 } => {
                let hash = hash_word(key) >> 32;
                first + ((hash * u64::from(n)) >> 32) as u32
            }
            Partitions::Hash { n, ways } => {
                let hash = hash_word(key);
                let set = first + ((((hash >> 32) * u64::from(n / ways)) >> 32) as u32) * ways;
                self.way(at, set, ways, hash as u32)
            }
        }
    }

    /// The partition of a key in its set: its own, else one that is free, else one that it shares.
    fn way(&mut self, at: usize, set: u32, ways: u32, tag: u32) -> u32 {
        let level = &mut self.levels[at];
        let all = set as usize..(set + ways) as usize;
        if let Some(own) = level.tags[all.clone()].iter().position(|known| *known == tag) {
            return set + own as u32;
        }
        let state = |partition: &usize| self.words[level.shape.kept_at(*partition as u32, kept::STATE)];
        let Some(free) = all.into_iter().find(|partition| state(partition) == kept::IDLE) else {
            return set + tag % ways;
        };
        level.tags[free] = tag;
        let own = level.shape.own.of_mut(&mut self.words, free as u32);
        own[usize::from(word::RANK)] = 0;
        begin(&mut own[usize::from(word::PARTITION_VARS)..], &self.program.levels[at].partition_vars);
        if let (Some(below), Some(decl)) = (self.levels.get(at + 1), self.program.levels.get(at + 1)) {
            let node = below.shape.nodes.of_mut(&mut self.words, free as u32);
            begin(&mut node[usize::from(word::NODE_VARS)..], &decl.vars);
        }
        free as u32
    }

    /// Puts a packet in its line, and counts it on all levels.
    #[inline(always)]
    fn put(&mut self, leaf: usize, partition: u32, slot: u32, len: u64) {
        let shape = self.levels[leaf].shape;
        if shape.ranks_packets {
            let node = shape.node_of(partition);
            let rank = match shape.rank_word {
                Some(word) => self.packet(slot)[usize::from(word)],
                None => self.run(leaf, Moment::PacketRank, node, partition, slot),
            };
            self.packet_mut(slot)[usize::from(word::PACKET_RANK)] = rank;
            if shape.is_ranked {
                let (ranked, mut places) = self.ranked(leaf, node);
                ranked.insert(slot, rank as i64, &mut places);
            }
        }
        if !shape.is_ranked {
            self.append(shape.kept_at(partition, kept::LINE), slot);
        }
        self.count(leaf, partition, len);
    }

    /// Puts a packet behind the last of the line in a word.
    #[inline(always)]
    fn append(&mut self, line: usize, slot: u32) {
        let (first, last) = pair(self.words[line]);
        self.words[line] = paired(if last == NONE { slot } else { first }, slot);
        let stride = self.stride;
        let prev = if self.looks_back { last } else { NONE };
        self.packets[slot as usize * stride + stride - 1] = paired(prev, NONE);
        if last != NONE {
            let before = &mut self.packets[last as usize * stride + stride - 1];
            *before = paired(pair(*before).0, slot);
        }
    }

    /// Counts a packet in a partition of the last level, and in all that it is in.
    #[inline(always)]
    fn count(&mut self, leaf: usize, partition: u32, len: u64) {
        self.each_count(leaf, partition, |packets, bytes| (packets + 1, bytes + len));
    }

    /// As above, of one that left.
    #[inline(always)]
    fn uncount(&mut self, leaf: usize, partition: u32, len: u64) {
        self.each_count(leaf, partition, |packets, bytes| (packets - 1, bytes - len));
    }

    #[inline(always)]
    fn each_count(&mut self, leaf: usize, mut partition: u32, change: impl Fn(u64, u64) -> (u64, u64)) {
        let mut at = leaf;
        loop {
            let shape = &self.levels[at].shape;
            change_counts(&mut self.words, shape.own.at(partition), &change);
            if !shape.is_one {
                partition = shape.node_of(partition);
                change_counts(&mut self.words, shape.nodes.at(partition), &change);
            }
            if at == 0 {
                return;
            }
            at -= 1;
        }
    }

    /// A partition has got a packet.
    #[inline(always)]
    fn came(&mut self, at: usize, partition: u32, slot: u32) {
        let shape = self.levels[at].shape;
        if shape.is_one {
            if !shape.is_leaf {
                // What waits below may be another packet now.
                self.words[shape.kept_at(partition, kept::HOLD)] = 0;
            }
            return;
        }
        let node = shape.node_of(partition);
        let rank_at = shape.own.at(partition) + usize::from(word::RANK);
        match self.words[shape.kept_at(partition, kept::STATE)] {
            kept::ACTIVE => {
                if shape.by_least {
                    let rank = self.packet(slot)[usize::from(word::PACKET_RANK)] as i64;
                    self.words[rank_at] = rank.min(self.words[rank_at] as i64) as u64;
                }
                if shape.enqueue_ranks {
                    self.levels[at].rerank(&mut self.words, node, partition);
                }
            }
            kept::HELD => {
                if !shape.is_leaf {
                    self.levels[at].enter(&mut self.words, node, partition);
                }
            }
            _ => {
                if self.levels.get(at + 1).is_some_and(|below| below.shape.has_timers) {
                    self.start_timers(at + 1, partition, self.event[usize::from(word::NOW)]);
                }
                if shape.has_activate {
                    self.run(at, Moment::Activate, node, partition, slot);
                }
                if shape.by_least {
                    self.words[rank_at] = self.packet(slot)[usize::from(word::PACKET_RANK)];
                }
                self.levels[at].enter(&mut self.words, node, partition);
            }
        }
    }

    // ---- too many ----------------------------------------------------------------------------------------------

    /// A node holds too much after a packet came to one of its partitions.
    #[cold]
    fn trim(&mut self, at: usize, node: u32, partition: u32, (victim, head): (Victim, bool)) {
        let shape = self.levels[at].shape;
        while self.is_over(at, node, 0, 0) {
            let from = match victim {
                _ if shape.is_one => node,
                Victim::Own => partition,
                Victim::MostBytes => self.fattest(at, node),
                Victim::HighestRank => {
                    self.levels[at].orders[node as usize].first_of_last().unwrap_or(partition)
                }
            };
            let bytes_before = self.bytes(at, from);
            for _ in 0..shape.batch {
                let Some((leaf_partition, slot)) = self.victim_packet(at, from, head) else { return };
                self.unlink(leaf_partition, slot);
                self.vacated(leaf_partition);
                self.drop_packet(slot, at, Why::Overflow, shape.limit_line);
                if shape.batch > 1 && self.bytes(at, from) <= bytes_before / 2 {
                    break;
                }
                if shape.batch == 1 {
                    break;
                }
            }
        }
    }

    /// A packet of a partition of the last level was taken away: those that it leaves empty leave their order.
    fn vacated(&mut self, partition: u32) {
        let mut partition = partition;
        for level in self.levels.iter_mut().rev().filter(|level| !level.shape.is_one) {
            let node = level.shape.node_of(partition);
            let packets = self.words[level.shape.own.at(partition) + usize::from(word::PACKETS)];
            if packets == 0 && !level.shape.has_empty {
                level.leave(&mut self.words, node, partition);
            }
            partition = node;
        }
    }

    /// The first or last packet below a partition of a level: of the fattest on each level below.
    fn victim_packet(&self, at: usize, partition: u32, head: bool) -> Option<(u32, u32)> {
        let mut partition = partition;
        for below in at + 1..self.levels.len() {
            if !self.levels[below].shape.is_one {
                partition = self.fattest(below, partition);
            }
        }
        let leaf = self.levels.last()?;
        let slot = if leaf.shape.is_ranked {
            let ranked = &leaf.ranked[partition as usize];
            if head { ranked.first() } else { ranked.first_of_last() }?
        } else {
            let (first, last) = self.line(leaf, partition);
            if head { first } else { last }
        };
        (slot != NONE).then_some((partition, slot))
    }

    // ---- a packet leaves ---------------------------------------------------------------------------------------

    #[inline(never)]
    fn serve(&mut self, at: usize, node: u32) -> Served {
        let shape = self.levels[at].shape;
        if shape.is_one && shape.is_leaf {
            return self.serve_leaf_line(at, node);
        }
        for turn in 0..TURNS_MAX {
            let is_last = turn + 1 == TURNS_MAX;
            let partition = match self.first(at, node) {
                Ok(partition) => partition,
                Err(served) => return served,
            };
            if self.n_packets(at, partition) == 0 {
                if !shape.is_leaf {
                    // What is below may want to know that it was asked in vain.
                    self.serve(at + 1, partition);
                }
                if !self.found_empty(at, node, partition) {
                    return Served::Empty;
                }
                continue;
            }
            if shape.has_select && !is_last && !self.select(at, node, partition) {
                continue;
            }
            match self.serve_partition(at, node, partition) {
                Some(slot) => return Served::Sent(slot),
                None => continue,
            }
        }
        Served::Empty
    }

    /// The partition that is first, once those that have waited are back.
    #[inline]
    fn first(&mut self, at: usize, node: u32) -> Result<u32, Served> {
        let now = self.event[usize::from(word::NOW)];
        let level = &mut self.levels[at];
        if level.shape.is_one {
            let until = self.words[level.shape.kept_at(node, kept::HOLD)];
            return if until > now { Err(Served::Held(until)) } else { Ok(node) };
        }
        if level.shape.may_hold && !level.held[node as usize].is_empty() {
            level.release(&mut self.words, node, now);
        }
        match level.orders[node as usize].first() {
            Some(partition) => Ok(partition),
            None => Err(match level.held[node as usize].peek() {
                Some(Reverse((until, ..))) => Served::Held(*until),
                None => Served::Empty,
            }),
        }
    }

    /// A partition without packets is first. False if nothing is left to ask.
    fn found_empty(&mut self, at: usize, node: u32, partition: u32) -> bool {
        let shape = self.levels[at].shape;
        let end =
            if shape.has_empty { self.run_without_packet(at, Moment::Empty, node, partition) } else { 0 };
        if shape.is_one {
            return false;
        }
        if Verdict::of_word(end) == Verdict::Stay {
            self.levels[at].rotate(&mut self.words, node, partition);
            // If all are empty and stay, there is nothing to send, and no use in turning.
            return self.node(at, node)[usize::from(word::PACKETS)] > 0
                || self.levels[at].orders[node as usize].first().is_some();
        }
        self.levels[at].leave(&mut self.words, node, partition);
        true
    }

    /// Whether the partition that is first is to be served.
    #[inline(always)]
    fn select(&mut self, at: usize, node: u32, partition: u32) -> bool {
        let shape = self.levels[at].shape;
        let end = match shape.is_leaf {
            true => {
                let head = self.head(at, partition);
                self.run(at, Moment::Select, node, partition, head)
            }
            false => self.run_without_packet(at, Moment::Select, node, partition),
        };
        match Verdict::of_word(end) {
            Verdict::Next if !shape.is_one => {
                self.levels[at].rotate(&mut self.words, node, partition);
                false
            }
            Verdict::Hold => {
                self.hold(at, node, partition);
                false
            }
            _ => true,
        }
    }

    /// A packet of a partition, None if it has to wait or has none left.
    #[inline(always)]
    fn serve_partition(&mut self, at: usize, node: u32, partition: u32) -> Option<u32> {
        let shape = self.levels[at].shape;
        self.event[usize::from(word::DROPS)] = 0;
        loop {
            let slot = match shape.is_leaf {
                true => self.pop(at, partition)?,
                false => match self.serve(at + 1, partition) {
                    Served::Sent(slot) => slot,
                    Served::Empty => return None,
                    Served::Held(until) => {
                        self.event[usize::from(word::HOLD)] = until;
                        self.hold(at, node, partition);
                        return None;
                    }
                },
            };
            let end = match shape.has_dequeue {
                true => self.run(at, Moment::Dequeue, node, partition, slot),
                false => Verdict::Pass.word(0),
            };
            match Verdict::of_word(end) {
                Verdict::Drop => {
                    self.note(at, end);
                    self.event[usize::from(word::DROPS)] += 1;
                    self.drop_packet(slot, at, Why::Dequeue, Verdict::line(end));
                }
                Verdict::Hold if shape.is_leaf => {
                    self.push_back(at, partition, slot);
                    self.hold(at, node, partition);
                    return None;
                }
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, end);
                    }
                    self.served(at, node, partition, verdict == Verdict::Rotate);
                    return Some(slot);
                }
            }
        }
    }

    /// A packet of a partition left: its place in the order is found anew.
    #[inline]
    fn served(&mut self, at: usize, node: u32, partition: u32, rotate: bool) {
        let level = &mut self.levels[at];
        if level.shape.is_one || self.words[level.shape.kept_at(partition, kept::STATE)] != kept::ACTIVE {
            return;
        }
        let packets = self.words[level.shape.own.at(partition) + usize::from(word::PACKETS)];
        if packets == 0 && !level.shape.has_empty {
            level.leave(&mut self.words, node, partition);
        } else if rotate {
            level.rotate(&mut self.words, node, partition);
        } else if level.shape.dequeue_ranks {
            level.rerank(&mut self.words, node, partition);
        }
    }

    /// As [`Queue::serve_line`], below others.
    #[inline(never)]
    fn serve_leaf_line(&mut self, at: usize, node: u32) -> Served {
        self.serve_line(at, node)
    }

    /// The only line of a node: what most queues are.
    #[inline(always)]
    fn serve_line(&mut self, at: usize, node: u32) -> Served {
        let shape = &self.levels[at].shape;
        let (has_select, has_dequeue, has_empty) = (shape.has_select, shape.has_dequeue, shape.has_empty);
        let hold = shape.kept_at(node, kept::HOLD);
        if shape.may_hold || has_select {
            let until = self.words[hold];
            if until > self.event[usize::from(word::NOW)] {
                return Served::Held(until);
            }
            if has_select && self.n_packets(at, node) > 0 && !self.select(at, node, node) {
                return Served::Held(self.words[hold]);
            }
        }
        self.event[usize::from(word::DROPS)] = 0;
        loop {
            let Some(slot) = self.pop(at, node) else {
                if has_empty {
                    self.run_without_packet(at, Moment::Empty, node, node);
                }
                return Served::Empty;
            };
            if !has_dequeue {
                return Served::Sent(slot);
            }
            let end = self.run(at, Moment::Dequeue, node, node, slot);
            match Verdict::of_word(end) {
                Verdict::Drop => {
                    self.note(at, end);
                    self.event[usize::from(word::DROPS)] += 1;
                    self.drop_packet(slot, at, Why::Dequeue, Verdict::line(end));
                }
                Verdict::Hold => {
                    self.push_back(at, node, slot);
                    self.hold(at, node, node);
                    return Served::Held(self.words[hold]);
                }
                Verdict::Mark => {
                    self.marked(at, end);
                    return Served::Sent(slot);
                }
                _ => return Served::Sent(slot),
            }
        }
    }

    fn hold(&mut self, at: usize, node: u32, partition: u32) {
        let now = self.event[usize::from(word::NOW)];
        // What waits for a time that is past waits for the next moment: else it would be asked for ever.
        let until = self.event[usize::from(word::HOLD)].max(now + 1);
        let level = &mut self.levels[at];
        self.words[level.shape.kept_at(partition, kept::HOLD)] = until;
        if level.shape.is_one {
            return;
        }
        level.leave(&mut self.words, node, partition);
        self.words[level.shape.kept_at(partition, kept::STATE)] = kept::HELD;
        level.n_held += 1;
        level.held[node as usize].push(Reverse((until, level.n_held, partition)));
    }

    #[inline(always)]
    fn head(&self, leaf: usize, partition: u32) -> u32 {
        let level = &self.levels[leaf];
        match level.shape.is_ranked {
            true => level.ranked[partition as usize].first().unwrap_or(NONE),
            false => self.line(level, partition).0,
        }
    }

    /// Takes the first packet of a partition of the last level.
    #[inline(always)]
    fn pop(&mut self, leaf: usize, partition: u32) -> Option<u32> {
        let slot = self.head(leaf, partition);
        if slot == NONE {
            return None;
        }
        let shape = &self.levels[leaf].shape;
        if shape.is_ranked || shape.by_least {
            self.unlink(partition, slot);
            return Some(slot);
        }
        let line = shape.kept_at(partition, kept::LINE);
        let words = &self.packets[slot as usize * self.stride..][..self.stride];
        let (len, next) = (words[usize::from(word::LEN)], link(words).1);
        if next == NONE {
            self.words[line] = NO_PACKETS;
        } else {
            self.words[line] = paired(next, pair(self.words[line]).1);
            if self.looks_back {
                self.packets[next as usize * self.stride + self.stride - 1] |= u64::from(NONE);
            }
        }
        if self.is_line {
            self.words[usize::from(word::PACKETS)] -= 1;
            self.words[usize::from(word::BYTES)] -= len;
        } else {
            self.uncount(leaf, partition, len);
        }
        Some(slot)
    }

    /// Takes a packet out of its line and out of all counts.
    #[inline]
    fn unlink(&mut self, partition: u32, slot: u32) {
        let leaf = self.levels.len() - 1;
        let shape = self.levels[leaf].shape;
        if shape.is_ranked {
            let (ranked, mut places) = self.ranked(leaf, partition);
            ranked.remove(slot, &mut places);
        } else {
            let line = shape.kept_at(partition, kept::LINE);
            let (first, last) = pair(self.words[line]);
            let (prev, next) = link(self.packet(slot));
            self.words[line] =
                paired(if prev == NONE { next } else { first }, if next == NONE { prev } else { last });
            if prev != NONE {
                let words = self.packet_mut(prev);
                let (before, _) = link(words);
                set_link(words, before, next);
            }
            if next != NONE {
                let words = self.packet_mut(next);
                let (_, behind) = link(words);
                set_link(words, prev, behind);
            }
        }
        let len = self.packet(slot)[usize::from(word::LEN)];
        self.uncount(leaf, partition, len);
        if shape.by_least {
            self.least_left(leaf, partition, slot);
        }
    }

    /// The least rank of the packets of a partition, one of which has left.
    fn least_left(&mut self, leaf: usize, partition: u32, left: u32) {
        let rank = self.packet(left)[usize::from(word::PACKET_RANK)] as i64;
        let shape = self.levels[leaf].shape;
        let rank_at = shape.own.at(partition) + usize::from(word::RANK);
        if self.words[rank_at] as i64 != rank {
            return;
        }
        let mut least = None;
        let (mut at, _) = pair(self.words[shape.kept_at(partition, kept::LINE)]);
        while at != NONE {
            let words = self.packet(at);
            let rank = words[usize::from(word::PACKET_RANK)] as i64;
            least = Some(least.map_or(rank, |least: i64| least.min(rank)));
            at = link(words).1;
        }
        if let Some(least) = least {
            self.words[rank_at] = least as u64;
            if self.words[shape.kept_at(partition, kept::STATE)] == kept::ACTIVE {
                self.levels[leaf].rerank(&mut self.words, shape.node_of(partition), partition);
            }
        }
    }

    /// Puts a packet back that was taken as the first.
    fn push_back(&mut self, leaf: usize, partition: u32, slot: u32) {
        let words = self.packet(slot);
        let (len, rank) = (words[usize::from(word::LEN)], words[usize::from(word::PACKET_RANK)]);
        if self.levels[leaf].shape.is_ranked {
            // It is the first of its rank again if nothing else came at this time, and nothing can have.
            let (ranked, mut places) = self.ranked(leaf, partition);
            ranked.insert(slot, rank as i64, &mut places);
        } else {
            let line = self.levels[leaf].shape.kept_at(partition, kept::LINE);
            let (first, last) = pair(self.words[line]);
            self.words[line] = paired(slot, if first == NONE { slot } else { last });
            set_link(self.packet_mut(slot), NONE, first);
            if first != NONE && self.looks_back {
                let words = self.packet_mut(first);
                let (_, next) = link(words);
                set_link(words, slot, next);
            }
        }
        self.count(leaf, partition, len);
    }

    fn drop_packet(&mut self, slot: u32, at: usize, why: Why, line: u32) {
        let count = match why {
            Why::Enqueue => &mut self.counts.dropped_enqueue,
            Why::Dequeue => &mut self.counts.dropped_dequeue,
            Why::Overflow => &mut self.counts.dropped_overflow,
        };
        *count += 1;
        let words = &self.packets[slot as usize * self.stride..][..self.stride];
        self.dropped.push_back(Dropped {
            handle: words[usize::from(word::HANDLE)],
            len: words[usize::from(word::LEN)] as u32,
            arrived_ns: words[usize::from(word::ARRIVED)],
            dropped_ns: self.event[usize::from(word::NOW)],
            level: at as u8,
            why,
            line,
        });
        self.free.push(slot);
    }

    fn marked(&mut self, at: usize, end: u64) {
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

    // ---- time --------------------------------------------------------------------------------------------------

    #[inline]
    fn advance(&mut self, now_ns: u64) {
        if now_ns >= self.next_timer {
            self.run_timers(now_ns);
        }
        self.event[usize::from(word::NOW)] = now_ns;
    }

    #[cold]
    fn run_timers(&mut self, now_ns: u64) {
        while let Some(Reverse((due, level, node, nth))) = self.timers.peek().copied()
            && due <= now_ns
        {
            self.timers.pop();
            self.event[usize::from(word::NOW)] = due;
            let at = usize::from(level);
            let interval = self.program.levels[at].handlers.every[usize::from(nth)].0;
            self.run_without_packet(at, Moment::Every(nth), node, 0);
            // Far behind, what was missed is not made up for.
            let next =
                if now_ns - due > interval.saturating_mul(1024) { now_ns + interval } else { due + interval };
            self.timers.push(Reverse((next, level, node, nth)));
        }
        self.next_timer = self.timers.peek().map_or(u64::MAX, |Reverse((due, ..))| *due);
    }

    fn start_timers(&mut self, at: usize, node: u32, now_ns: u64) {
        if core::mem::replace(&mut self.levels[at].is_started[node as usize], true) {
            return;
        }
        for (nth, (interval, _)) in self.program.levels[at].handlers.every.iter().enumerate() {
            self.timers.push(Reverse((now_ns + interval, at as u8, node, nth as u16)));
        }
        self.next_timer = self.timers.peek().map_or(u64::MAX, |Reverse((due, ..))| *due);
        // A node of one partition begins with the one that it is in.
        if at + 1 < self.levels.len() && self.levels[at].shape.is_one {
            self.start_timers(at + 1, node, now_ns);
        }
    }

    // ---- handlers ----------------------------------------------------------------------------------------------

    #[inline(always)]
    fn run(&mut self, at: usize, moment: Moment, node: u32, partition: u32, slot: u32) -> u64 {
        let (node, partition) = records(&self.levels[at].shape, &mut self.words, node, partition);
        let packet = &mut self.packets[slot as usize * self.stride..][..self.stride];
        let end = self.code.run(at, moment, Words { node, partition, packet, event: &mut self.event });
        self.drawn();
        end
    }

    #[inline]
    fn run_without_packet(&mut self, at: usize, moment: Moment, node: u32, partition: u32) -> u64 {
        let (node, partition) = records(&self.levels[at].shape, &mut self.words, node, partition);
        let end =
            self.code.run(at, moment, Words { node, partition, packet: &mut [], event: &mut self.event });
        self.drawn();
        end
    }

    #[inline]
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

    // ---- words -------------------------------------------------------------------------------------------------

    fn node(&self, at: usize, node: u32) -> &[u64] {
        self.levels[at].shape.nodes.of(&self.words, node)
    }

    /// Packets of a partition, or of the node where there is one.
    #[inline]
    fn n_packets(&self, at: usize, partition: u32) -> u64 {
        self.words[self.levels[at].shape.own.at(partition) + usize::from(word::PACKETS)]
    }

    fn bytes(&self, at: usize, partition: u32) -> u64 {
        self.words[self.levels[at].shape.own.at(partition) + usize::from(word::BYTES)]
    }

    /// First and last packet of a partition of the last level.
    #[inline]
    fn line(&self, leaf: &Level, partition: u32) -> (u32, u32) {
        pair(self.words[leaf.shape.kept_at(partition, kept::LINE)])
    }

    #[inline]
    fn is_over(&self, at: usize, node: u32, packets: u64, bytes: u64) -> bool {
        let shape = &self.levels[at].shape;
        let record = shape.nodes.at(node);
        let words = &self.words[record..record + 2];
        words[usize::from(word::PACKETS)] + packets > shape.packets_max
            || words[usize::from(word::BYTES)] + bytes > shape.bytes_max
    }

    /// The partition of a node with the most bytes, the first of equals.
    fn fattest(&self, at: usize, node: u32) -> u32 {
        let n = self.levels[at].shape.n;
        let all = node * n..(node + 1) * n;
        all.reduce(|a, b| if self.bytes(at, b) > self.bytes(at, a) { b } else { a }).unwrap_or(node)
    }

    /// The packets of a node that are ranked, with their places.
    #[inline(always)]
    fn ranked(&mut self, leaf: usize, node: u32) -> (&mut Ranked, Slots<'_>) {
        let places = Slots { words: &mut self.packets, stride: self.stride };
        (&mut self.levels[leaf].ranked[node as usize], places)
    }

    #[inline]
    fn packet(&self, slot: u32) -> &[u64] {
        &self.packets[slot as usize * self.stride..][..self.stride]
    }

    #[inline]
    fn packet_mut(&mut self, slot: u32) -> &mut [u64] {
        &mut self.packets[slot as usize * self.stride..][..self.stride]
    }

    fn packet_of(&self, slot: u32) -> Packet {
        let words = self.packet(slot);
        let mut packet = Packet {
            handle: words[usize::from(word::HANDLE)],
            len: words[usize::from(word::LEN)] as u32,
            ecn: words[usize::from(word::ECN)] as u8,
            ..Packet::default()
        };
        for (nth, field) in self.program.fields.iter().enumerate() {
            packet.set(*field, words[usize::from(word::FIELDS) + nth]);
        }
        packet
    }
}

/// Whether packets of a level may leave from the tail of a line, or from its middle.
fn looks_back(level: &weft_ir::queue::Level) -> bool {
    level.order.by_least_packet || matches!(level.limit.overflow, Overflow::Victim { head: false, .. })
}

/// Whether a program is one line of packets as they came.
fn levels_are_a_line(program: &QueueProgram) -> bool {
    let [level] = &program.levels[..] else { return false };
    level.partitions == Partitions::One
        && level.packets == PacketOrder::Arrival
        && !level.order.by_least_packet
}

/// The levels of a program without packets, and the records of their nodes and partitions.
fn levels(program: &QueueProgram) -> (Vec<Level>, Vec<u64>) {
    let (mut levels, mut words, mut n_nodes) = (Vec::new(), Vec::new(), 1);
    for (at, level) in program.levels.iter().enumerate() {
        levels.push(Level::new(program, at, n_nodes, &mut words));
        n_nodes *= level.partitions.n() as usize;
    }
    (levels, words)
}

/// Variables as they are at first.
fn begin(words: &mut [u64], vars: &[VarDecl]) {
    for (word, var) in words.iter_mut().zip(vars) {
        *word = var.start;
    }
}

/// Changes the counts of a record.
#[inline(always)]
fn change_counts(words: &mut [u64], record: usize, change: impl Fn(u64, u64) -> (u64, u64)) {
    let words = &mut words[record..record + 2];
    let (packets, bytes) = change(words[usize::from(word::PACKETS)], words[usize::from(word::BYTES)]);
    words[usize::from(word::PACKETS)] = packets;
    words[usize::from(word::BYTES)] = bytes;
}

/// The records that handlers see; no partition where a node is one.
#[inline(always)]
fn records<'w>(
    shape: &Shape,
    words: &'w mut [u64],
    node: u32,
    partition: u32,
) -> (&'w mut [u64], &'w mut [u64]) {
    // Where a record ends is not asked: handlers are held to the words that their program has.
    if shape.is_one {
        return (&mut words[shape.nodes.at(node)..], &mut []);
    }
    // Nodes lie before partitions.
    let (nodes, own) = words.split_at_mut(shape.own.first);
    (&mut nodes[shape.nodes.at(node)..], &mut own[partition as usize * shape.own.stride..])
}

impl Shape {
    /// Where a word is that the queue keeps of a partition.
    #[inline(always)]
    fn kept_at(&self, partition: u32, word: usize) -> usize {
        self.own.at(partition) + self.kept + word
    }

    /// The node of a partition.
    #[inline]
    fn node_of(&self, partition: u32) -> u32 {
        match (self.is_root, self.is_one) {
            (true, _) => 0,
            (_, true) => partition,
            _ => partition / self.n,
        }
    }
}

impl Level {
    /// The level of a program, that has so many nodes; their records are put behind the words.
    fn new(program: &QueueProgram, at: usize, n_nodes: usize, words: &mut Vec<u64>) -> Self {
        let level = &program.levels[at];
        let is_leaf = at + 1 == program.levels.len();
        let n = level.partitions.n();
        let n_partitions = n_nodes * n as usize;
        let is_one = level.partitions == Partitions::One;
        let handlers = &level.handlers;
        let (is_ranked, bits) = match level.packets {
            PacketOrder::Arrival => (false, None),
            PacketOrder::Rank { bits } => (true, bits),
        };
        let victim = match level.limit.overflow {
            Overflow::Arriving => None,
            Overflow::Victim { partition, head } => Some((partition, head)),
        };
        let has_ways = matches!(level.partitions, Partitions::Hash { ways: 2.., .. });
        let node_words = usize::from(word::NODE_VARS) + level.vars.len();
        let partition_words = usize::from(word::PARTITION_VARS) + level.partition_vars.len();
        let n_own = if is_one { kept::NODE_WORDS } else { 0 };
        let nodes = Records { first: words.len(), stride: node_words + n_own };
        let (own, kept) = match is_one {
            true => (nodes, node_words),
            false => {
                let first = nodes.first + n_nodes * nodes.stride;
                (Records { first, stride: partition_words + kept::WORDS }, partition_words)
            }
        };
        let shape = Shape {
            n,
            nodes,
            own,
            kept,
            partitions: level.partitions,
            key_word: handlers.key.as_ref().and_then(packet_word),
            rank_word: handlers.packet_rank.as_ref().and_then(packet_word),
            is_one,
            is_root: at == 0,
            is_leaf,
            may_hold: program.levels[at..]
                .iter()
                .any(|level| level.handlers.iter().any(|(_, h)| holds(&h.body))),
            has_enqueue: handlers.enqueue.is_some(),
            has_activate: handlers.activate.is_some(),
            has_select: handlers.select.is_some(),
            has_dequeue: handlers.dequeue.is_some(),
            has_empty: handlers.empty.is_some(),
            has_timers: !handlers.every.is_empty(),
            ranks_packets: handlers.packet_rank.is_some(),
            enqueue_ranks: level.order.by_least_packet || handlers.enqueue.as_ref().is_some_and(ranks),
            // What is below may run ON DEQUEUE for several packets that it drops, and ON SELECT may let it be served.
            dequeue_ranks: [&handlers.dequeue, &handlers.select].into_iter().flatten().any(ranks),
            is_ranked,
            by_least: level.order.by_least_packet,
            packets_max: level.limit.packets.map_or(u64::MAX, u64::from),
            bytes_max: level.limit.bytes.unwrap_or(u64::MAX),
            drops_arriving: victim.is_none(),
            victim,
            batch: level.limit.batch,
            limit_line: level.limit.line,
        };
        (0..n_nodes).for_each(|_| {
            let record = words.len();
            words.resize(record + nodes.stride, 0);
            begin(&mut words[record + usize::from(word::NODE_VARS)..], &level.vars);
            if is_one {
                words[record + kept + kept::LINE] = NO_PACKETS;
            }
        });
        (0..if is_one { 0 } else { n_partitions }).for_each(|nth| {
            let record = words.len();
            words.resize(record + own.stride, 0);
            words[record + usize::from(word::INDEX)] = (nth % n as usize) as u64;
            begin(&mut words[record + usize::from(word::PARTITION_VARS)..], &level.partition_vars);
            words[record + kept + kept::LINE] = NO_PACKETS;
        });
        Self {
            shape,
            orders: (0..if is_one { 0 } else { n_nodes }).map(|_| Ranked::new(level.order.bits)).collect(),
            ranked: (0..if is_ranked { n_nodes } else { 0 }).map(|_| Ranked::new(bits)).collect(),
            tags: vec![0; if has_ways { n_partitions } else { 0 }],
            held: (0..if is_one { 0 } else { n_nodes }).map(|_| BinaryHeap::new()).collect(),
            n_held: 0,
            is_started: vec![false; n_nodes],
        }
    }

    fn n_partitions(&self) -> u32 {
        (self.is_started.len() * self.shape.n as usize) as u32
    }

    #[inline]
    fn enter(&mut self, words: &mut [u64], node: u32, partition: u32) {
        let rank = words[self.shape.own.at(partition) + usize::from(word::RANK)] as i64;
        words[self.shape.kept_at(partition, kept::STATE)] = kept::ACTIVE;
        let (order, mut places) = self.order(words, node);
        order.insert(partition, rank, &mut places);
    }

    #[inline]
    fn leave(&mut self, words: &mut [u64], node: u32, partition: u32) {
        let state = self.shape.kept_at(partition, kept::STATE);
        if core::mem::replace(&mut words[state], kept::IDLE) == kept::ACTIVE {
            let (order, mut places) = self.order(words, node);
            order.remove(partition, &mut places);
        }
    }

    /// Puts a partition behind those of its rank.
    #[inline]
    fn rotate(&mut self, words: &mut [u64], node: u32, partition: u32) {
        let rank = words[self.shape.own.at(partition) + usize::from(word::RANK)] as i64;
        if words[self.shape.kept_at(partition, kept::STATE)] == kept::ACTIVE {
            let (order, mut places) = self.order(words, node);
            order.move_to(partition, rank, &mut places);
        }
    }

    /// Puts a partition where its rank says, if that has changed.
    #[inline]
    fn rerank(&mut self, words: &mut [u64], node: u32, partition: u32) {
        let rank = words[self.shape.own.at(partition) + usize::from(word::RANK)] as i64;
        let (order, mut places) = self.order(words, node);
        if order.would_move(partition, rank, &places) {
            order.move_to(partition, rank, &mut places);
        }
    }

    /// The order of a node, and the places of partitions.
    #[inline(always)]
    fn order<'w>(&mut self, words: &'w mut [u64], node: u32) -> (&mut Ranked, Standing<'w>) {
        let Shape { own: Records { first, stride }, kept, .. } = self.shape;
        (&mut self.orders[node as usize], Standing { words, first: first + kept, stride })
    }

    /// Takes back into the order what has waited long enough.
    #[cold]
    fn release(&mut self, words: &mut [u64], node: u32, now_ns: u64) {
        while let Some(Reverse((until, _, partition))) = self.held[node as usize].peek().copied() {
            let is_stale = words[self.shape.kept_at(partition, kept::STATE)] != kept::HELD
                || words[self.shape.kept_at(partition, kept::HOLD)] != until;
            if !is_stale && until > now_ns {
                return;
            }
            self.held[node as usize].pop();
            if !is_stale {
                self.enter(words, node, partition);
            }
        }
    }
}

/// The places of partitions in their order: in their records.
struct Standing<'w> {
    words: &'w mut [u64],
    /// Where the queue's own words of the first are.
    first: usize,
    stride: usize,
}

impl Standing<'_> {
    #[inline(always)]
    fn at(&self, id: u32, word: usize) -> usize {
        self.first + id as usize * self.stride + word
    }
}

impl Places for Standing<'_> {
    #[inline]
    fn links(&self, id: u32) -> (u32, u32) {
        pair(self.words[self.at(id, kept::LINKS)])
    }

    #[inline]
    fn set_links(&mut self, id: u32, (prev, next): (u32, u32)) {
        let at = self.at(id, kept::LINKS);
        self.words[at] = paired(prev, next);
    }

    #[inline]
    fn rank(&self, id: u32) -> i64 {
        self.words[self.at(id, kept::STANDS)] as i64
    }

    #[inline]
    fn set_rank(&mut self, id: u32, rank: i64) {
        let at = self.at(id, kept::STANDS);
        self.words[at] = rank as u64;
    }
}

/// The places of packets among others of their line: in their own words.
struct Slots<'q> {
    words: &'q mut [u64],
    stride: usize,
}

impl Places for Slots<'_> {
    #[inline]
    fn links(&self, id: u32) -> (u32, u32) {
        link(&self.words[id as usize * self.stride..][..self.stride])
    }

    #[inline]
    fn set_links(&mut self, id: u32, (prev, next): (u32, u32)) {
        set_link(&mut self.words[id as usize * self.stride..][..self.stride], prev, next);
    }

    #[inline]
    fn rank(&self, id: u32) -> i64 {
        self.words[id as usize * self.stride + usize::from(word::PACKET_RANK)] as i64
    }

    #[inline]
    fn set_rank(&mut self, id: u32, rank: i64) {
        self.words[id as usize * self.stride + usize::from(word::PACKET_RANK)] = rank as u64;
    }
}

/// The word of the packet that a handler gives, if it does no more than that.
fn packet_word(handler: &Handler) -> Option<u16> {
    match handler.body[..] {
        [Step::Let(loaded, Op::Load(Slot { scope: Scope::Packet, word })), Step::Give(given)]
            if loaded == given =>
        {
            Some(word)
        }
        _ => None,
    }
}

/// Whether a handler may make a partition wait.
fn holds(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::End(verdict, _) => *verdict == Verdict::Hold,
        Step::If { then, otherwise, .. } => holds(then) || holds(otherwise),
        _ => false,
    })
}

/// Whether a handler changes the rank of its partition.
fn ranks(handler: &Handler) -> bool {
    stores(&handler.body, Slot::new(Scope::Partition, word::RANK))
}

/// Whether a handler writes a word.
fn stores(steps: &[Step], wanted: Slot) -> bool {
    steps.iter().any(|step| match step {
        Step::Store(slot, _) => *slot == wanted,
        Step::If { then, otherwise, .. } => stores(then, wanted) || stores(otherwise, wanted),
        _ => false,
    })
}

/// No first and no last packet.
const NO_PACKETS: u64 = u64::MAX;

/// Two numbers in a word.
#[inline(always)]
fn pair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[inline(always)]
fn paired(a: u32, b: u32) -> u64 {
    u64::from(a) | u64::from(b) << 32
}

/// The neighbours of a packet in its line: the last word.
#[inline]
fn link(words: &[u64]) -> (u32, u32) {
    pair(words[words.len() - 1])
}

#[inline]
fn set_link(words: &mut [u64], prev: u32, next: u32) {
    let last = words.len() - 1;
    words[last] = paired(prev, next);
}
