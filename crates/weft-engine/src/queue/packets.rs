//! The store of waiting packets: their words, the lists that they are in, and the free slots.
//!
//! Packets occupy whole cache lines, and the slot of a packet is the index of its first line. The words that every
//! packet has are in that line, one bounds check away.

pub(super) use super::layout::KEPT;
use super::layout::{LINE_WORDS, LINK, NO_PACKETS, packet_lines, pair, paired};
use super::level::{Level, kept};
use super::ranked::RankSlots;
use super::records::{Head, window};
use super::{NONE, Packet};
use weft_ir::queue::direct::Fetch;
use weft_ir::queue::{Field, PacketOrder, PacketWords, QueueProgram, word};

/// The words that every packet has.
const HANDLE: usize = KEPT + word::HANDLE as usize;
const ARRIVED: usize = KEPT + word::ARRIVED as usize;
const LEN: usize = KEPT + word::LEN as usize;
const ECN: usize = KEPT + word::ECN as usize;
const RANK: usize = KEPT + word::PACKET_RANK as usize;
const FIELDS: usize = KEPT + word::FIELDS as usize;

/// The most cache lines of a packet.
pub(super) const LINES_MAX: usize = (KEPT + size_of::<PacketWords>() / 8).div_ceil(LINE_WORDS);
/// A record with as many cache lines as a packet may have.
pub(super) type Record = [Head; LINES_MAX];

/// The packets of a queue.
#[derive(Debug)]
pub(super) struct Packets {
    pub(super) lines: Vec<Head>,
    /// Cache lines per packet.
    pub(super) lines_each: usize,
    /// The first free slot.
    pub(super) free: u32,
    /// Slots from here on were not used since the store was last empty; they are not linked.
    first_unused: u32,
    /// Below that many lines the store is likely cached, and prefetching does not pay. The maximum if packets have no
    /// links or the back end cannot prefetch.
    cached_lines: u32,
    /// A packet that will leave soon, if packets leave by rank.
    expected: u32,
    /// Prefetches a line.
    fetch: Fetch,
}

/// The lines that fit a core's private caches, mostly: 128 KiB.
const CACHED_LINES: u32 = 2048;

/// The words that every packet has.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketInfo {
    pub(super) handle: u64,
    pub(super) arrived_ns: u64,
    pub(super) len: u32,
    pub(super) ecn: u8,
}

impl Packets {
    /// Creates an empty store for a program; `fetch` prefetches a line, if the back end can.
    pub(super) fn new(program: &QueueProgram, fetch: Option<Fetch>) -> Self {
        let is_linked = program.levels.last().is_some_and(|leaf| leaf.packets == PacketOrder::Arrival);
        Self {
            lines: Record::default().into(),
            lines_each: packet_lines(program),
            free: NONE,
            first_unused: 0,
            cached_lines: if is_linked && fetch.is_some() { CACHED_LINES } else { u32::MAX },
            expected: 0,
            fetch: fetch.unwrap_or(|_, _| {}),
        }
    }

    /// Removes all packets and resets the slots.
    pub(super) fn clear(&mut self) {
        self.lines = Record::default().into();
        self.start_anew();
    }

    /// The first cache line of a packet.
    #[inline(always)]
    fn head(&self, slot: u32) -> &Head {
        &self.lines[slot as usize]
    }

    /// As above, mutable.
    #[inline(always)]
    pub(super) fn head_mut(&mut self, slot: u32) -> &mut Head {
        &mut self.lines[slot as usize]
    }

    /// All lines of a packet, and some behind them. The program's size limits which words handlers use.
    #[inline(always)]
    pub(super) fn record(&mut self, slot: u32) -> &mut Record {
        window(&mut self.lines, slot as usize)
    }

    /// Stores a packet and returns its slot.
    #[inline(always)]
    pub(super) fn store(&mut self, packet: &Packet, arrived_ns: u64, fields: &[Field]) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.take_free();
        self.write_packet(slot, packet, arrived_ns, fields);
        slot
    }

    /// Takes a free slot.
    #[inline(always)]
    fn take_free(&mut self) -> u32 {
        let slot = self.free;
        self.free = self.head(slot)[LINK] as u32;
        slot
    }

    /// Writes the words of a packet.
    #[inline(always)]
    pub(super) fn write_packet(&mut self, slot: u32, packet: &Packet, arrived_ns: u64, fields: &[Field]) {
        let words = self.head_mut(slot);
        describe(words, packet, arrived_ns);
        match fields {
            [] => {}
            [Field::Flow] => words[FIELDS] = u64::from(packet.flow),
            [one] => words[FIELDS] = packet.word(*one),
            [one, two, more @ ..] => {
                (words[FIELDS], words[FIELDS + 1]) = (packet.word(*one), packet.word(*two));
                if !more.is_empty() {
                    self.write_more_fields(slot, packet, more);
                }
            }
        }
    }

    /// Writes the fields that do not fit into a packet's first line.
    #[inline]
    fn write_more_fields(&mut self, slot: u32, packet: &Packet, fields: &[Field]) {
        let words = &mut self.record(slot).as_flattened_mut()[LINE_WORDS..];
        for (word, field) in words.iter_mut().zip(fields) {
            *word = packet.word(*field);
        }
    }

    /// The store is empty: hands out slots in ascending order from now on. In the order in which packets left, each
    /// slot would be far from the one before, and known only after a load.
    #[inline(always)]
    pub(super) fn start_anew(&mut self) {
        (self.free, self.first_unused) = (NONE, 0);
    }

    /// Makes the next unused slot the free one; extends the memory if necessary.
    #[inline(always)]
    pub(super) fn grow(&mut self) {
        self.free = self.first_unused;
        self.first_unused += self.lines_each as u32;
        let n_lines = self.first_unused as usize + LINES_MAX;
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

    /// Frees a slot. Returns the packet's words, and prefetches behind it in a long queue ([`Self::fetch_behind`]). Its
    /// words stay until the slot is used again.
    #[inline(always)]
    pub(super) fn release(&mut self, slot: u32) -> (PacketInfo, u32) {
        let free = core::mem::replace(&mut self.free, slot);
        let is_long = self.first_unused > self.cached_lines;
        let words = self.head_mut(slot);
        let next = pair(words[LINK]).1;
        words[LINK] = u64::from(free);
        (packet_info(words), if is_long { next } else { NONE })
    }

    /// Prefetches the packet behind `next`, so that it is cached at its turn: in a long queue it was stored long ago.
    /// `next` was prefetched when the previous packet left, so it may leave next.
    #[inline(always)]
    pub(super) fn fetch_behind(&self, next: u32) {
        if let Some(next) = self.lines.get(next as usize) {
            (self.fetch)(&self.lines, pair(next[LINK]).1 as usize);
        }
    }

    /// Prefetches the packet that will leave soon, in a long queue.
    #[inline(always)]
    pub(super) fn fetch_expected(&self) {
        if self.first_unused > CACHED_LINES {
            (self.fetch)(&self.lines, self.expected as usize);
        }
    }

    /// When a packet arrived.
    pub(super) fn arrived_ns(&self, slot: u32) -> u64 {
        self.head(slot)[ARRIVED]
    }

    /// The length of a packet in bytes.
    #[inline]
    pub(super) fn len(&self, slot: u32) -> u64 {
        self.head(slot)[LEN]
    }

    /// The words of a packet that handlers see.
    pub(super) fn handler_words(&mut self, slot: u32) -> &mut [u64] {
        &mut self.record(slot).as_flattened_mut()[KEPT..]
    }

    /// The words of a packet; empty if the slot was never used.
    pub(super) fn words(&self, slot: u32) -> &[u64] {
        let lines = self.lines.get(slot as usize..).and_then(|lines| lines.get(..self.lines_each));
        lines.map_or(&[], |lines| &lines.as_flattened()[KEPT..])
    }

    // ---- lists ---------------------------------------------------------------------------------------------------

    /// Appends a packet to a list.
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

    /// Puts a packet back in front of a list.
    pub(super) fn push_front(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        *line = paired(slot, if first == NONE { slot } else { last });
        self.set_links(slot, (NONE, first));
        if first != NONE {
            let (_, next) = self.links(first);
            self.set_links(first, (slot, next));
        }
    }

    /// The first packet of a list.
    #[inline(always)]
    pub(super) fn first(&mut self, line: u64) -> Option<(u32, &mut Record)> {
        let first = pair(line).0;
        (first != NONE).then(|| (first, self.record(first)))
    }

    /// Takes the first packet of a list.
    pub(super) fn pop(&mut self, line: &mut u64) -> Option<u32> {
        let (slot, packet) = self.first(*line)?;
        unlink_first(&packet[0], line);
        Some(slot)
    }

    /// Removes a packet from its list.
    pub(super) fn unlink(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        let (before, next) = self.links(slot);
        // The link of the first packet may name one that has left.
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

    /// Returns the first and last packet of a partition on the last level, in a FIFO.
    pub(super) fn ends(&self, leaf: &Level, partition: u32) -> (u32, u32) {
        match leaf.shape.is_ring {
            true => self.ends_of_ring(leaf.nodes.head(0)),
            false => pair(leaf.own(partition)[kept::LINE]),
        }
    }

    /// Returns the packets of a partition on the last level, first to last.
    pub(super) fn waiting(&self, leaf: &Level, partition: u32) -> Vec<u32> {
        match (leaf.shape.is_ring, leaf.shape.is_ranked) {
            (true, _) => self.each_of_ring(leaf.nodes.head(0)).collect(),
            (_, true) => leaf.ranked[partition as usize].ids(self),
            _ => self.each(leaf.own(partition)[kept::LINE]).collect(),
        }
    }

    /// The packets of a list.
    pub(super) fn each(&self, line: u64) -> impl Iterator<Item = u32> {
        let some = |slot: u32| (slot != NONE).then_some(slot);
        core::iter::successors(some(pair(line).0), move |slot| some(self.links(*slot).1))
    }
}

/// Writes the words that every packet has: handle, length, ECN and arrival time.
#[inline(always)]
fn describe(words: &mut Head, packet: &Packet, arrived_ns: u64) {
    words[HANDLE] = packet.handle;
    words[ARRIVED] = arrived_ns;
    words[LEN] = u64::from(packet.len);
    words[ECN] = u64::from(packet.ecn);
}

/// Reads the words that every packet has.
#[inline(always)]
pub(super) fn packet_info(packet: &Head) -> PacketInfo {
    PacketInfo {
        handle: packet[HANDLE],
        arrived_ns: packet[ARRIVED],
        len: packet[LEN] as u32,
        ecn: packet[ECN] as u8,
    }
}

/// A handler word in the first line of a packet.
#[inline(always)]
pub(super) fn head_word(packet: &Head, word: u16) -> u64 {
    packet[(KEPT + usize::from(word)) % LINE_WORDS]
}

/// The length of a packet in bytes.
#[inline(always)]
pub(super) fn bytes(packet: &Head) -> u64 {
    packet[LEN]
}

/// Takes the first packet of a list. The next one is not touched: it becomes the first, whatever its link says.
#[inline(always)]
pub(super) fn unlink_first(packet: &Head, line: &mut u64) {
    let ((_, last), (_, next)) = (pair(*line), pair(packet[LINK]));
    *line = if next == NONE { NO_PACKETS } else { paired(next, last) };
}

/// Packets hold the positions of ranked packets in their own words.
impl RankSlots for Packets {
    const MOVES: bool = false;

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
