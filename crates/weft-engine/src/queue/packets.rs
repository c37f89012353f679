//! Packets that wait: their words, the lines in which they stand, and the places that are free.

use super::ranked::Places;
use super::records::{LINE_WORDS, Records, pair, paired};
use super::{NONE, Packet};
use weft_ir::queue::{Field, word};

/// Words that the queue keeps of a packet.
const KEPT: usize = 1;
/// The neighbours in the line, or the next place that is free.
const LINK: usize = 0;
/// The words that every packet has.
const HANDLE: usize = KEPT + word::HANDLE as usize;
const ARRIVED: usize = KEPT + word::ARRIVED as usize;
const LEN: usize = KEPT + word::LEN as usize;
const ECN: usize = KEPT + word::ECN as usize;
const RANK: usize = KEPT + word::PACKET_RANK as usize;
const FIELDS: usize = KEPT + word::FIELDS as usize;

/// Words for handlers in the first line of a packet.
pub(super) const SEEN_IN_HEAD: usize = LINE_WORDS - KEPT;
/// A line without packets: no first and no last.
pub(super) const NO_PACKETS: u64 = u64::MAX;

/// The packets of a queue.
#[derive(Debug)]
pub(super) struct Packets {
    records: Records<KEPT>,
    /// The first place that is free.
    free: u32,
    /// Packets may leave their line from elsewhere than its head, so that each knows the one before it.
    looks_back: bool,
}

/// What is known of a packet whatever its program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) handle: u64,
    pub(super) arrived_ns: u64,
    pub(super) len: u32,
    pub(super) ecn: u8,
}

impl Packets {
    /// No packets, that carry so many fields.
    pub(super) fn new(n_fields: usize, looks_back: bool) -> Self {
        let records = Records::new(usize::from(word::FIELDS) + n_fields);
        Self { records, free: NONE, looks_back }
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

    /// Whether a place is free without room for more.
    #[inline(always)]
    pub(super) fn has_free(&self) -> bool {
        self.free != NONE
    }

    /// The place that is free.
    #[inline(always)]
    pub(super) fn take(&mut self) -> u32 {
        let slot = self.free;
        self.free = self.records.head(slot)[LINK] as u32;
        slot
    }

    /// Writes the words of a packet.
    #[inline(always)]
    pub(super) fn fill(&mut self, slot: u32, packet: &Packet, arrived_ns: u64, fields: &[Field]) {
        let words = self.records.head_mut(slot);
        words[HANDLE] = packet.handle;
        words[ARRIVED] = arrived_ns;
        words[LEN] = u64::from(packet.len);
        words[ECN] = u64::from(packet.ecn);
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

    /// A word of a packet that is in its first line.
    #[inline(always)]
    pub(super) fn head_word(&self, slot: u32, word: u16) -> u64 {
        self.records.head(slot)[(KEPT + usize::from(word)) % LINE_WORDS]
    }

    /// Writes the fields of a packet for which its first line has no room.
    #[inline]
    fn carry(&mut self, slot: u32, packet: &Packet, fields: &[Field]) {
        let words = &mut self.records.record(slot)[LINE_WORDS..];
        for (word, field) in words.iter_mut().zip(fields) {
            *word = packet.word(*field);
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.free = self.records.n() as u32;
        self.records.grow(1);
        self.records.head_mut(self.free)[LINK] = u64::from(NONE);
    }

    /// Gives a place back. Its words stay until it is taken again.
    #[inline(always)]
    pub(super) fn release(&mut self, slot: u32) -> Known {
        let free = core::mem::replace(&mut self.free, slot);
        let words = self.records.head_mut(slot);
        words[LINK] = u64::from(free);
        Known {
            handle: words[HANDLE],
            arrived_ns: words[ARRIVED],
            len: words[LEN] as u32,
            ecn: words[ECN] as u8,
        }
    }

    /// When a packet came.
    pub(super) fn arrived_ns(&self, slot: u32) -> u64 {
        self.records.head(slot)[ARRIVED]
    }

    /// Bytes of a packet.
    #[inline]
    pub(super) fn len(&self, slot: u32) -> u64 {
        self.records.head(slot)[LEN]
    }

    /// What handlers see of a packet.
    #[inline(always)]
    pub(super) fn seen(&mut self, slot: u32) -> &mut [u64] {
        self.records.seen(slot)
    }

    /// The words of a packet; none if it never was.
    pub(super) fn words(&self, slot: u32) -> &[u64] {
        if (slot as usize) < self.records.n() { self.records.words(slot) } else { &[] }
    }

    // ---- lines ---------------------------------------------------------------------------------------------------

    /// Puts a packet behind the last of a line.
    #[inline(always)]
    pub(super) fn append(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        if last == NONE {
            *line = paired(slot, slot);
            self.records.head_mut(slot)[LINK] = paired(NONE, NONE);
            return;
        }
        *line = paired(first, slot);
        let prev = if self.looks_back { last } else { NONE };
        self.records.head_mut(slot)[LINK] = paired(prev, NONE);
        let before = &mut self.records.head_mut(last)[LINK];
        *before = paired(pair(*before).0, slot);
    }

    /// Puts a packet back before the first of a line.
    pub(super) fn push_front(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        *line = paired(slot, if first == NONE { slot } else { last });
        self.set_links(slot, (NONE, first));
        if first != NONE && self.looks_back {
            let (_, next) = self.links(first);
            self.set_links(first, (slot, next));
        }
    }

    /// Takes the first packet of a line, and says how many bytes it has.
    #[inline(always)]
    pub(super) fn pop(&mut self, line: &mut u64) -> Option<(u32, u64)> {
        let (first, last) = pair(*line);
        if first == NONE {
            return None;
        }
        let words = self.records.head(first);
        let (len, (_, next)) = (words[LEN], pair(words[LINK]));
        *line = if next == NONE { NO_PACKETS } else { paired(next, last) };
        if self.looks_back && next != NONE {
            self.records.head_mut(next)[LINK] |= u64::from(NONE);
        }
        Some((first, len))
    }

    /// Takes a packet out of its line.
    pub(super) fn unlink(&mut self, line: &mut u64, slot: u32) {
        let (first, last) = pair(*line);
        let (prev, next) = self.links(slot);
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

    /// The packets of a line.
    pub(super) fn each(&self, line: u64) -> impl Iterator<Item = u32> {
        let some = |slot: u32| (slot != NONE).then_some(slot);
        core::iter::successors(some(pair(line).0), move |slot| some(self.links(*slot).1))
    }
}

/// Places of packets that are ranked are in their own words.
impl Places for Packets {
    #[inline(always)]
    fn links(&self, id: u32) -> (u32, u32) {
        pair(self.records.head(id)[LINK])
    }

    #[inline(always)]
    fn set_links(&mut self, id: u32, (prev, next): (u32, u32)) {
        self.records.head_mut(id)[LINK] = paired(prev, next);
    }

    #[inline(always)]
    fn rank(&self, id: u32) -> i64 {
        self.records.head(id)[RANK] as i64
    }

    #[inline(always)]
    fn set_rank(&mut self, id: u32, rank: i64) {
        self.records.head_mut(id)[RANK] = rank as u64;
    }
}
