//! Packets that wait: their words, the lines in which they stand, and the places that are free.
//!
//! Words are in whole lines of the cache, and the place of a packet is the number of its first one: what every packet
//! touches is there, one check away.

use super::level::{Level, kept};
use super::ranked::Places;
use super::records::{Head, LINE_WORDS, window};
use super::{NONE, Packet};
use weft_ir::queue::direct::PacketWords;
pub(super) use weft_ir::queue::layout::KEPT;
use weft_ir::queue::layout::{Fetch, LINK, NO_PACKETS, pair, paired};
use weft_ir::queue::{Field, PacketOrder, QueueProgram, word};

/// The words that every packet has.
const HANDLE: usize = KEPT + word::HANDLE as usize;
const ARRIVED: usize = KEPT + word::ARRIVED as usize;
const LEN: usize = KEPT + word::LEN as usize;
const ECN: usize = KEPT + word::ECN as usize;
const RANK: usize = KEPT + word::PACKET_RANK as usize;
const FIELDS: usize = KEPT + word::FIELDS as usize;

/// Lines of a packet, at most.
pub(super) const LINES_MAX: usize = (KEPT + size_of::<PacketWords>() / 8).div_ceil(LINE_WORDS);
/// As many lines as a packet may have.
pub(super) type Record = [Head; LINES_MAX];

/// The packets of a queue.
#[derive(Debug)]
pub(super) struct Packets {
    pub(super) lines: Vec<Head>,
    /// Lines of a packet.
    pub(super) each: usize,
    /// The first place that is free.
    pub(super) free: u32,
    /// Places from here on have not been taken since there was no packet: they are not linked.
    fresh: u32,
    /// So many lines are near anyway, and however many, where a packet does not know the one behind it or nobody knows
    /// how to ask for one.
    near: u32,
    /// One that will leave some time soon, where packets leave by their ranks.
    expected: u32,
    /// How to ask for a line.
    fetch: Fetch,
}

/// Lines that the core's own caches have, mostly: 128 KiB.
const NEAR: u32 = 2048;

/// What is known of a packet whatever its program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) handle: u64,
    pub(super) arrived_ns: u64,
    pub(super) len: u32,
    pub(super) ecn: u8,
}

impl Packets {
    /// No packets, of a program; and how to ask for a line, if its back end knows how.
    pub(super) fn new(program: &QueueProgram, fetch: Option<Fetch>) -> Self {
        let is_linked = program.levels.last().is_some_and(|leaf| leaf.packets == PacketOrder::Arrival);
        Self {
            lines: Record::default().into(),
            each: program.packet_lines(),
            free: NONE,
            fresh: 0,
            near: if is_linked && fetch.is_some() { NEAR } else { u32::MAX },
            expected: 0,
            fetch: fetch.unwrap_or(|_, _| {}),
        }
    }

    /// As they were before the first came.
    pub(super) fn clear(&mut self) {
        self.lines = Record::default().into();
        self.start_anew();
    }

    /// The first line of a packet.
    #[inline(always)]
    fn head(&self, slot: u32) -> &Head {
        &self.lines[slot as usize]
    }

    /// As above, to be changed.
    #[inline(always)]
    pub(super) fn head_mut(&mut self, slot: u32) -> &mut Head {
        &mut self.lines[slot as usize]
    }

    /// All lines of a packet, and those behind them: handlers are held to the words that their program has.
    #[inline(always)]
    pub(super) fn record(&mut self, slot: u32) -> &mut Record {
        window(&mut self.lines, slot as usize)
    }

    /// Takes a packet in: its place.
    #[inline(always)]
    pub(super) fn store(&mut self, packet: &Packet, arrived_ns: u64, fields: &[Field]) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.take();
        self.fill(slot, packet, arrived_ns, fields);
        slot
    }

    /// As above, a packet of one line. None if no place is free. `FLOW`: no more than the flow is asked of it.
    #[inline(always)]
    pub(super) fn store_next<const FLOW: bool>(
        &mut self,
        packet: &Packet,
        arrived_ns: u64,
        fields: &[Field],
    ) -> Option<u32> {
        let slot = self.free;
        let words = self.lines.get_mut(slot as usize)?;
        self.free = words[LINK] as u32;
        describe(words, packet, arrived_ns);
        match fields {
            _ if FLOW => words[FIELDS] = u64::from(packet.flow),
            [one] => words[FIELDS] = packet.word(*one),
            [one, two, ..] => (words[FIELDS], words[FIELDS + 1]) = (packet.word(*one), packet.word(*two)),
            [] => {}
        }
        Some(slot)
    }

    /// The place that is free.
    #[inline(always)]
    fn take(&mut self) -> u32 {
        let slot = self.free;
        self.free = self.head(slot)[LINK] as u32;
        slot
    }

    /// Writes the words of a packet.
    #[inline(always)]
    pub(super) fn fill(&mut self, slot: u32, packet: &Packet, arrived_ns: u64, fields: &[Field]) {
        let words = self.head_mut(slot);
        describe(words, packet, arrived_ns);
        match fields {
            [] => {}
            [Field::Flow] => words[FIELDS] = u64::from(packet.flow),
            [one] => words[FIELDS] = packet.word(*one),
            [one, two, more @ ..] => {
                (words[FIELDS], words[FIELDS + 1]) = (packet.word(*one), packet.word(*two));
                if !more.is_empty() {
                    self.carry(slot, packet, more);
                }
            }
        }
    }

    /// Writes the fields of a packet for which its first line has no room.
    #[inline]
    fn carry(&mut self, slot: u32, packet: &Packet, fields: &[Field]) {
        let words = &mut self.record(slot).as_flattened_mut()[LINE_WORDS..];
        for (word, field) in words.iter_mut().zip(fields) {
            *word = packet.word(*field);
        }
    }

    /// There is no packet: places are taken in their order from now on. In the order in which packets left, each would
    /// be far away from the one before, and known only by what is written there.
    #[inline(always)]
    pub(super) fn start_anew(&mut self) {
        (self.free, self.fresh) = (NONE, 0);
    }

    /// Makes a place that is free.
    #[inline(always)]
    pub(super) fn grow(&mut self) {
        self.free = self.fresh;
        self.fresh += self.each as u32;
        let n_lines = self.fresh as usize + LINES_MAX;
        if n_lines > self.lines.len() {
            self.lengthen(n_lines);
        }
        let free = self.free;
        self.head_mut(free)[LINK] = u64::from(NONE);
    }

    #[cold]
    fn lengthen(&mut self, n_lines: usize) {
        self.lines.resize(n_lines, [0; LINE_WORDS]);
    }

    /// Gives a place back, and tells what is known of its packet and the one behind it in a long queue
    /// ([`Self::fetch_behind`]). Its words stay until it is taken again.
    #[inline(always)]
    pub(super) fn release(&mut self, slot: u32) -> (Known, u32) {
        let free = core::mem::replace(&mut self.free, slot);
        let is_long = self.fresh > self.near;
        let words = self.head_mut(slot);
        let next = pair(words[LINK]).1;
        words[LINK] = u64::from(free);
        (known(words), if is_long { next } else { NONE })
    }

    /// In a long queue the packets behind one that leaves came long ago: the second of them is asked for, to be here
    /// when its turn comes. For the first that was done when the one before left, so it does not matter if it leaves
    /// next.
    #[inline(always)]
    pub(super) fn fetch_behind(&self, next: u32) {
        if let Some(next) = self.lines.get(next as usize) {
            (self.fetch)(&self.lines, pair(next[LINK]).1 as usize);
        }
    }

    /// In a long queue, asks for the packet that will leave some time soon.
    #[inline(always)]
    pub(super) fn fetch_expected(&self) {
        if self.fresh > NEAR {
            (self.fetch)(&self.lines, self.expected as usize);
        }
    }

    /// When a packet came.
    pub(super) fn arrived_ns(&self, slot: u32) -> u64 {
        self.head(slot)[ARRIVED]
    }

    /// Bytes of a packet.
    #[inline]
    pub(super) fn len(&self, slot: u32) -> u64 {
        self.head(slot)[LEN]
    }

    /// What handlers see of a packet.
    pub(super) fn seen(&mut self, slot: u32) -> &mut [u64] {
        &mut self.record(slot).as_flattened_mut()[KEPT..]
    }

    /// The words of a packet; none if it never was.
    pub(super) fn words(&self, slot: u32) -> &[u64] {
        let lines = self.lines.get(slot as usize..).and_then(|lines| lines.get(..self.each));
        lines.map_or(&[], |lines| &lines.as_flattened()[KEPT..])
    }

    // ---- lines ---------------------------------------------------------------------------------------------------

    /// Puts a packet behind the last of a line.
    #[inline(always)]
    pub(super) fn append(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        self.head_mut(slot)[LINK] = paired(last, NONE);
        if last == NONE {
            *line = paired(slot, slot);
            return;
        }
        *line = paired(first, slot);
        let before = &mut self.head_mut(last)[LINK];
        *before = paired(pair(*before).0, slot);
    }

    /// Puts a packet back before the first of a line.
    pub(super) fn push_front(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        *line = paired(slot, if first == NONE { slot } else { last });
        self.set_links(slot, (NONE, first));
        if first != NONE {
            let (_, next) = self.links(first);
            self.set_links(first, (slot, next));
        }
    }

    /// The first packet of a line.
    #[inline(always)]
    pub(super) fn first(&mut self, line: u64) -> Option<(u32, &mut Record)> {
        let first = pair(line).0;
        (first != NONE).then(|| (first, self.record(first)))
    }

    /// Takes the first packet of a line.
    pub(super) fn pop(&mut self, line: &mut u64) -> Option<u32> {
        let (slot, packet) = self.first(*line)?;
        leave(&packet[0], line);
        Some(slot)
    }

    /// Takes a packet out of its line.
    pub(super) fn unlink(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        let (before, next) = self.links(slot);
        // The first knows one that has left.
        let prev = if slot == first { NONE } else { before };
        *line = paired(if prev == NONE { next } else { first }, if next == NONE { prev } else { last });
        if prev != NONE {
            let (before, _) = self.links(prev);
            self.set_links(prev, (before, next));
        }
        if next != NONE {
            let (_, behind) = self.links(next);
            self.set_links(next, (prev, behind));
        }
    }

    /// The first and last packet of a partition of the last level, where they are as they came.
    pub(super) fn ends(&self, leaf: &Level, partition: u32) -> (u32, u32) {
        match leaf.shape.is_ring {
            true => self.ends_of_ring(leaf.nodes.head(0)),
            false => pair(leaf.own(partition)[kept::LINE]),
        }
    }

    /// The packets of a partition of the last level, first to last.
    pub(super) fn waiting(&self, leaf: &Level, partition: u32) -> Vec<u32> {
        match (leaf.shape.is_ring, leaf.shape.is_ranked) {
            (true, _) => self.each_of_ring(leaf.nodes.head(0)).collect(),
            (_, true) => leaf.ranked[partition as usize].ids(self),
            _ => self.each(leaf.own(partition)[kept::LINE]).collect(),
        }
    }

    /// The packets of a line.
    pub(super) fn each(&self, line: u64) -> impl Iterator<Item = u32> {
        let some = |slot: u32| (slot != NONE).then_some(slot);
        core::iter::successors(some(pair(line).0), move |slot| some(self.links(*slot).1))
    }
}

/// Writes the words that every packet has.
#[inline(always)]
fn describe(words: &mut Head, packet: &Packet, arrived_ns: u64) {
    words[HANDLE] = packet.handle;
    words[ARRIVED] = arrived_ns;
    words[LEN] = u64::from(packet.len);
    words[ECN] = u64::from(packet.ecn);
}

/// What is known of a packet.
#[inline(always)]
pub(super) fn known(packet: &Head) -> Known {
    Known {
        handle: packet[HANDLE],
        arrived_ns: packet[ARRIVED],
        len: packet[LEN] as u32,
        ecn: packet[ECN] as u8,
    }
}

/// A word for handlers that is in the first line of a packet.
#[inline(always)]
pub(super) fn head_word(packet: &Head, word: u16) -> u64 {
    packet[(KEPT + usize::from(word)) % LINE_WORDS]
}

/// Bytes of a packet.
#[inline(always)]
pub(super) fn bytes(packet: &Head) -> u64 {
    packet[LEN]
}

/// The first packet of a line leaves it. The next is not touched: it is the first now, whatever it knows of the one
/// before it.
#[inline(always)]
pub(super) fn leave(packet: &Head, line: &mut u64) {
    let ((_, last), (_, next)) = (pair(*line), pair(packet[LINK]));
    *line = if next == NONE { NO_PACKETS } else { paired(next, last) };
}

/// Places of packets that are ranked are in their own words.
impl Places for Packets {
    #[inline(always)]
    fn links(&self, id: u32) -> (u32, u32) {
        pair(self.head(id)[LINK])
    }

    #[inline(always)]
    fn set_links(&mut self, id: u32, (prev, next): (u32, u32)) {
        self.head_mut(id)[LINK] = paired(prev, next);
    }

    #[inline(always)]
    fn rank(&self, id: u32) -> i64 {
        self.head(id)[RANK] as i64
    }

    #[inline(always)]
    fn set_rank(&mut self, id: u32, rank: i64) {
        self.head_mut(id)[RANK] = rank as u64;
    }

    #[inline(always)]
    fn expect(&mut self, id: u32) {
        self.expected = id;
    }
}
