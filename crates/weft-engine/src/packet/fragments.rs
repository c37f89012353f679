//! Fragments of IP packets, followed until all of a packet has passed: virtual reassembly.
//!
//! Ports and flags stand in the first fragment of a packet alone. Where a chain asks for them, its bytes are kept, and
//! each later fragment is given what the parser finds in them: it passes the chain as if it had the header itself. One
//! that comes in front of the first waits for it, and passes behind it. Nothing is put together, and each fragment
//! leaves as it came.
//!
//! What a tunnel carries in fragments is followed likewise, where a chain asks for what is behind: the chain's own
//! parser says where the packet lies, for tunnels are defined in programs; so is what a tunnel in a tunnel carries. It
//! is followed as it comes in even if it is taken out of its tunnels before an element asks: so fragments wait in front
//! of a chain, and nowhere in it.
//!
//! Sources: RFC 791 section 3.2, RFC 8200 section 4.5; RFC 1858, RFC 3128 and RFC 5722 for why fragments that overlap
//! do not pass.

use super::stats::Lost;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weft_core::frame::{Frame, Pool, VLAN_TAGS_MAX, ip_at, network_at};
use weft_core::ip::{IpPacket, Part};
use weft_core::wire::{CARRIED_MAX, LAYERS_MAX};
use weft_core::{Interval, Time};

/// Packets whose fragments a worker follows; a further one takes the place of the oldest.
pub const FRAGMENTED_MAX: usize = 1024;
/// Fragments of one packet: 64 KiB in what IPv6 links must carry at least, and some.
pub const FRAGMENTS_MAX: usize = 64;
/// Fragments that wait for the first of their packet on a worker; for a further one, the packet that has waited longest
/// is given up.
pub const FRAGMENTS_WAITING_MAX: usize = 256;
/// How long fragments of a packet are followed, from the one that came first. Linux waits as long.
pub const FRAGMENTS_TIME: Interval = Interval::from_secs(30);

/// The longest payload of a packet that is in fragments.
const PACKET_BYTES_MAX: u32 = 65_535;
/// Of MPLS, RFC 3032 and RFC 5332.
const ETHERTYPES_MPLS: [[u8; 2]; 2] = [[0x88, 0x47], [0x88, 0x48]];
/// Bytes of the tags of a frame.
const TAGS_BYTES: usize = 4 * VLAN_TAGS_MAX;
/// Labels of MPLS that are looked behind: as many as a parser takes.
const LABELS_MAX: usize = LAYERS_MAX as usize;
const LABEL_BYTES: usize = 4;
/// Of a word of MPLS, the label and whether it is the last. Fragments of a packet may have lived for different times.
const LABEL_MASK: u32 = 0xffff_f100;
const LABEL_IS_LAST: u32 = 0x100;
/// Says that the next label spreads flows (RFC 6790): it may be another for a fragment that has ports.
const LABEL_OF_ENTROPY: u32 = 7;

/// What all fragments of a packet have in common, and no other packet that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    addresses: [u8; 32],
    id: [u8; 4],
    port: u16,
    /// Of IPv4; IPv6 does without.
    protocol: Option<u8>,
    tags: [u8; TAGS_BYTES],
    labels: [u32; LABELS_MAX],
    /// Of what tunnels carry, the outermost first.
    tunnels: [Option<Tunnel>; CARRIED_MAX],
}

impl Key {
    /// What a fragment of this packet does that cannot be.
    fn overlaps(&self) -> GivenUp {
        GivenUp::Overlaps { port: self.port, version: if self.protocol.is_some() { 4 } else { 6 } }
    }
}

/// A tunnel, as far as it tells packets with the same addresses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tunnel {
    /// Its ends; zeros if it does not go over IP.
    ends: [u8; 32],
    number: u64,
}

/// How the frames of a port begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Begins {
    /// With an IP packet, and not with a link header.
    pub(super) is_ip: bool,
    /// A packet may stand behind labels of MPLS.
    pub(super) has_labels: bool,
}

/// The outermost packet of a frame, and what stands in front of it.
struct Outermost<'f> {
    link: &'f [u8],
    labels: &'f [u8],
    packet: IpPacket<'f>,
}

/// What is known of a frame of a batch in which there are fragments.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    /// The first fragment of the packet, of a later one.
    pub(super) first: Option<Arc<[u8]>>,
    /// In how many tunnels the packet is that was followed.
    pub(super) depth: usize,
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    key: Key,
    /// The bytes of the packet's payload that are in it.
    from: u32,
    to: u32,
    is_last: bool,
    /// The first of a packet, in which there is the header of a fragment once more.
    holds_another: bool,
}

/// Why a fragment does not pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum GivenUp {
    /// It breaks a rule of its wire format: it overlaps another, is one again, ends where none may, or is the first of
    /// a packet that is itself in fragments; or such a one has come before.
    Overlaps {
        /// The port by which it came in.
        port: u16,
        /// The version of its IP.
        version: u8,
    },
    /// Another reason.
    Lost(Lost),
}

/// Packets of which some fragments have come.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    packets: BTreeMap<Key, Packet>,
    /// The same, the oldest first; those that are gone already are skipped. The number tells packets with one key
    /// apart.
    by_age: VecDeque<(Key, u64)>,
    /// Those of which some fragments have waited, likewise.
    waiting: VecDeque<(Key, u64)>,
    n_waiting: usize,
    n_packets: u64,
    /// What has been given up, with the reason, until its buffers are given back.
    given_up: Vec<(GivenUp, Frame)>,
}

/// What first fragments said, for those of their packets that come behind them. Nothing waits, and nothing is judged.
#[derive(Debug)]
pub(super) struct Firsts<T> {
    known: BTreeMap<Key, Said<T>>,
    /// The same by number, the oldest first.
    by_age: BTreeMap<u64, Key>,
    n_said: u64,
}

#[derive(Clone, Copy, Debug)]
struct Said<T> {
    number: u64,
    at: Time,
    what: T,
}

#[derive(Debug)]
struct Packet {
    number: u64,
    until: Time,
    /// The first fragment.
    first: Option<Arc<[u8]>>,
    /// What has come of it, in order.
    parts: Vec<(u32, u32)>,
    /// How long it is.
    end: Option<u32>,
    /// What waits for the first.
    waiting: Vec<Frame>,
    /// Parts of it overlap: nothing more of it passes.
    is_bad: bool,
}

impl Begins {
    /// Where the outermost packet of a frame begins.
    pub(super) fn packet_at(self, frame: &[u8]) -> Option<usize> {
        self.outermost(frame).map(|found| found.link.len() + found.labels.len())
    }

    #[inline]
    fn outermost(self, frame: &[u8]) -> Option<Outermost<'_>> {
        if let Some(at) = ip_at(frame, self.is_ip) {
            let (link, packet) = frame.split_at(at);
            return Some(Outermost { link, labels: &[], packet: IpPacket::new(packet)? });
        }
        let (link, labels) = frame.split_at_checked(network_at(frame).filter(|_| self.has_labels)?)?;
        let is_labelled = link.last_chunk().is_some_and(|of| ETHERTYPES_MPLS.contains(of));
        if is_labelled { Outermost::behind_labels(link, labels) } else { None }
    }
}

impl<'f> Outermost<'f> {
    /// What stands behind the last label is told by its first bits.
    fn behind_labels(link: &'f [u8], labels: &'f [u8]) -> Option<Self> {
        let mut words = labels.chunks_exact(LABEL_BYTES).take(LABELS_MAX);
        let n = words.position(|word| label(word) & LABEL_IS_LAST != 0)? + 1;
        let (labels, packet) = labels.split_at(n * LABEL_BYTES);
        Some(Self { link, labels, packet: IpPacket::new(packet)? })
    }
}

impl Tunnel {
    /// A tunnel with this number that a packet goes through, if it is one of IP that carries it.
    pub(super) fn new(carrier: Option<&[u8]>, number: u64) -> Self {
        let ends = carrier.and_then(IpPacket::new).map(IpPacket::addresses);
        Self { ends: padded(ends.unwrap_or_default()), number }
    }
}

impl Fragment {
    /// The fragment that a frame holds. None: a whole packet, or none of IP.
    #[inline]
    pub(super) fn of(frame: &[u8], port: u16, begins: Begins) -> Option<Self> {
        let Outermost { link, labels, packet } = begins.outermost(frame)?;
        let mut fragment = Self::of_packet(packet, link, port)?;
        fragment.key.labels = known_labels(labels);
        Some(fragment)
    }

    /// The fragment that a packet is, wherever it stands.
    #[inline]
    pub(super) fn of_carried(packet: &[u8]) -> Option<Self> {
        Self::of_packet(IpPacket::new(packet)?, &[], 0)
    }

    /// The fragment that tunnels carry in a frame, behind so many bytes.
    #[cold]
    pub(super) fn in_tunnels(
        frame: &[u8],
        packet_at: usize,
        port: u16,
        begins: Begins,
        tunnels: [Option<Tunnel>; CARRIED_MAX],
    ) -> Option<Self> {
        let (outside, packet) = frame.split_at_checked(packet_at)?;
        let link = &outside[..if begins.is_ip { 0 } else { network_at(outside)? }];
        let mut fragment = Self::of_packet(IpPacket::new(packet)?, link, port)?;
        fragment.key.labels = begins.outermost(frame).map_or([0; _], |found| known_labels(found.labels));
        fragment.key.tunnels = tunnels;
        Some(fragment)
    }

    /// The fragment that a packet is, if it is there as a whole; most are none, which is told by one look.
    #[inline]
    fn of_packet(packet: IpPacket<'_>, link: &[u8], port: u16) -> Option<Self> {
        Self::new(packet, packet.part()?, link, port)
    }

    #[cold]
    fn new(packet: IpPacket<'_>, part: Part, link: &[u8], port: u16) -> Option<Self> {
        let Part { id, protocol, offset, bytes, has_more, holds_another } = part;
        let protocol = packet.is_v4().then_some(protocol);
        let (addresses, tags) = (padded(packet.addresses()), tags_of(link));
        let key = Key { addresses, id, port, protocol, tags, labels: [0; _], tunnels: [None; _] };
        let fragment = Self { key, from: offset, to: offset + bytes, is_last: !has_more, holds_another };
        packet.is_complete().then_some(fragment)
    }

    /// It is not the first of its packet.
    pub(super) fn is_later(&self) -> bool {
        self.from > 0
    }

    /// It ends where no fragment may, or its packet is one in fragments when it is put together.
    fn is_unfit(&self) -> bool {
        let is_odd = !self.is_last && !(self.to - self.from).is_multiple_of(8);
        is_odd || self.to == self.from || self.to > PACKET_BYTES_MAX || self.holds_another
    }
}

/// The tags of a link header: networks that share a link are told apart by them.
fn tags_of(link: &[u8]) -> [u8; TAGS_BYTES] {
    padded(link.get(12..link.len().saturating_sub(2)).unwrap_or_default())
}

fn label(word: &[u8]) -> u32 {
    word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// What all fragments of a packet have in common of the labels in front of it: they tell one network from another.
fn known_labels(bytes: &[u8]) -> [u32; LABELS_MAX] {
    let mut all = [0; LABELS_MAX];
    let mut is_entropy = false;
    for (known, word) in all.iter_mut().zip(bytes.chunks_exact(LABEL_BYTES)) {
        *known = label(word) & if is_entropy { LABEL_IS_LAST } else { LABEL_MASK };
        is_entropy = *known >> 12 == LABEL_OF_ENTROPY;
    }
    all
}

/// Bytes with zeros behind them.
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    let n = bytes.len().min(N);
    all[..n].copy_from_slice(&bytes[..n]);
    all
}

impl Fragments {
    /// Nothing is followed, and nothing is to be given back.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.given_up.is_empty()
    }

    /// Frames that wait for the first fragment of their packet.
    pub(super) fn waiting(&self) -> usize {
        self.n_waiting
    }

    /// When [`Fragments::expire`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.by_age.front().and_then(|oldest| self.get(oldest)).map(|packet| packet.until)
    }

    /// What was given up and is still here, by its reason.
    pub(super) fn given_up(&self) -> impl Iterator<Item = Lost> {
        self.given_up.iter().filter_map(|(why, _)| match why {
            GivenUp::Lost(reason) => Some(*reason),
            // It is counted before anybody asks.
            GivenUp::Overlaps { .. } => None,
        })
    }

    /// Gives up packets that have had their time.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some(of) = self.by_age.front().copied() {
            if self.get(&of).is_some_and(|packet| packet.until > now) {
                return;
            }
            self.by_age.pop_front();
            self.give_up(of, Lost::NoFirstFragment);
        }
    }

    /// What was given up, with the reason: it is the caller's now.
    pub(super) fn take_given_up(&mut self) -> impl Iterator<Item = (GivenUp, Frame)> {
        self.given_up.drain(..)
    }

    /// Takes a fragment that has come. What may pass now is put behind `out`, each with the first fragment of its
    /// packet unless it is that. The rest waits, or is among what was given up.
    pub(super) fn take(
        &mut self,
        now: Time,
        fragment: Fragment,
        frame: Frame,
        pool: &Pool,
        out: &mut Vec<(Frame, Option<Arc<[u8]>>)>,
    ) {
        let overlaps = fragment.key.overlaps();
        let Fragment { key, from, to, is_last, .. } = fragment;
        let number = self.begin(now, key);
        let Some(packet) = self.packets.get_mut(&key) else { unreachable!("it has begun") };
        if packet.parts.len() == FRAGMENTS_MAX {
            return self.given_up.push((GivenUp::Lost(Lost::FragmentsTooMany), frame));
        }
        // The same part again is no attack, as networks may double what they carry; but it is not looked at twice.
        if packet.is_bad || packet.parts.contains(&(from, to)) {
            return self.given_up.push((overlaps, frame));
        }
        if fragment.is_unfit() || !packet.fits(from, to, is_last) {
            packet.is_bad = true;
            self.n_waiting -= packet.waiting.len();
            let waiting = core::mem::take(&mut packet.waiting).into_iter().chain([frame]);
            return self.given_up.extend(waiting.map(|frame| (overlaps, frame)));
        }
        if from == 0 {
            let first: Arc<[u8]> = pool.bytes(&frame).into();
            out.push((frame, None));
            self.n_waiting -= packet.waiting.len();
            out.extend(packet.waiting.drain(..).map(|frame| (frame, Some(Arc::clone(&first)))));
            packet.first = Some(first);
        } else if let Some(first) = &packet.first {
            out.push((frame, Some(Arc::clone(first))));
        } else {
            packet.waiting.push(frame);
            self.n_waiting += 1;
            if packet.waiting.len() == 1 {
                self.waiting.push_back((key, number));
            }
            return self.make_room();
        }
        if packet.is_whole() {
            self.packets.remove(&key);
            self.forget_oldest();
        }
    }

    /// The oldest is one that is there.
    fn forget_oldest(&mut self) {
        while self.by_age.front().is_some_and(|oldest| self.get(oldest).is_none()) {
            self.by_age.pop_front();
        }
    }

    /// The number of the packet with this key, which is there then.
    fn begin(&mut self, now: Time, key: Key) -> u64 {
        self.expire(now);
        if let Some(packet) = self.packets.get(&key) {
            return packet.number;
        }
        while self.packets.len() >= FRAGMENTED_MAX {
            let Some(oldest) = self.by_age.pop_front() else { break };
            self.give_up(oldest, Lost::FragmentsTooMany);
        }
        // Packets that have passed are whole mostly in no time: those in front are then gone, and few are behind them.
        if self.by_age.len() >= 2 * FRAGMENTED_MAX {
            let packets = &self.packets;
            let is_there = |(key, number): &(Key, u64)| packets.get(key).is_some_and(|p| p.number == *number);
            self.by_age.retain(is_there);
        }
        let number = self.n_packets;
        self.n_packets += 1;
        let packet = Packet {
            number,
            until: now + FRAGMENTS_TIME,
            first: None,
            parts: Vec::new(),
            end: None,
            waiting: Vec::new(),
            is_bad: false,
        };
        self.packets.insert(key, packet);
        self.by_age.push_back((key, number));
        number
    }

    /// Gives up what has waited longest, if too many wait.
    fn make_room(&mut self) {
        while self.n_waiting > FRAGMENTS_WAITING_MAX {
            let Some(longest) = self.waiting.pop_front() else { return };
            if self.get(&longest).is_some_and(|packet| !packet.waiting.is_empty()) {
                self.give_up(longest, Lost::FragmentsTooMany);
            }
        }
        if self.waiting.len() >= 2 * FRAGMENTS_WAITING_MAX {
            let packets = &self.packets;
            let waits = |(key, number): &(Key, u64)| {
                packets.get(key).is_some_and(|p| p.number == *number && !p.waiting.is_empty())
            };
            self.waiting.retain(waits);
        }
    }

    fn give_up(&mut self, of: (Key, u64), reason: Lost) {
        if self.get(&of).is_none() {
            return;
        }
        let Some(packet) = self.packets.remove(&of.0) else { return };
        self.n_waiting -= packet.waiting.len();
        self.given_up.extend(packet.waiting.into_iter().map(|frame| (GivenUp::Lost(reason), frame)));
        self.forget_oldest();
    }

    fn get(&self, (key, number): &(Key, u64)) -> Option<&Packet> {
        self.packets.get(key).filter(|packet| packet.number == *number)
    }

    /// Forgets all packets; what waits is given up.
    pub(super) fn clear(&mut self) {
        let packets = core::mem::take(&mut self.packets).into_values();
        let waiting = packets.flat_map(|packet| packet.waiting);
        self.given_up.extend(waiting.map(|frame| (GivenUp::Lost(Lost::NoFirstFragment), frame)));
        self.by_age.clear();
        self.waiting.clear();
        self.n_waiting = 0;
    }
}

impl<T> Default for Firsts<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), by_age: BTreeMap::new(), n_said: 0 }
    }
}

impl<T: Copy> Firsts<T> {
    /// Notes what the first fragment of a packet said, in the place of what one with the same key has said before.
    /// [`FRAGMENTED_MAX`] are known: the oldest gives way.
    pub(super) fn note(&mut self, now: Time, first: &Fragment, said: T) {
        let number = self.n_said;
        self.n_said += 1;
        if let Some(before) = self.known.insert(first.key, Said { number, at: now, what: said }) {
            self.by_age.remove(&before.number);
        }
        self.by_age.insert(number, first.key);
        if self.by_age.len() > FRAGMENTED_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// What the first fragment of the packet of this one said, if it has come within [`FRAGMENTS_TIME`].
    pub(super) fn of(&self, now: Time, later: &Fragment) -> Option<T> {
        let said = self.known.get(&later.key)?;
        (now < said.at + FRAGMENTS_TIME).then_some(said.what)
    }
}

impl Packet {
    /// Notes a part, unless it overlaps another or lies beyond the end.
    fn fits(&mut self, from: u32, to: u32, is_last: bool) -> bool {
        let at = self.parts.partition_point(|(other, _)| *other < from);
        let is_clear = at.checked_sub(1).is_none_or(|before| self.parts[before].1 <= from)
            && self.parts.get(at).is_none_or(|(behind, _)| to <= *behind);
        let is_within = match self.end {
            Some(end) => to <= end && !is_last,
            None => !is_last || at == self.parts.len(),
        };
        if !(is_clear && is_within) {
            return false;
        }
        self.parts.insert(at, (from, to));
        if is_last {
            self.end = Some(to);
        }
        true
    }

    /// All of it has come.
    fn is_whole(&self) -> bool {
        let mut at = 0;
        for (from, to) in &self.parts {
            if *from != at {
                return false;
            }
            at = *to;
        }
        self.end == Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::frame::ETHERTYPE_IPV6;
    use weft_core::ip::{AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};

    const IP: Begins = Begins { is_ip: true, has_labels: false };
    const ETHERNET: Begins = Begins { is_ip: false, has_labels: true };

    /// A packet of IPv6 with these headers in front of 16 bytes.
    fn ipv6(next: u8, headers: &[u8]) -> Vec<u8> {
        let length = (headers.len() + 16) as u16;
        let mut packet = vec![0x60, 0, 0, 0, (length >> 8) as u8, length as u8, next, 64];
        packet.extend([0xfd; 16]);
        packet.extend([0xfe; 16]);
        packet.extend(headers);
        packet.extend([0; 16]);
        packet
    }

    /// Links would remember fragments without end, or a packet would have the ports of one that is long gone.
    #[test]
    fn what_first_fragments_said_is_known_for_a_while() {
        let of_id = |id: usize| {
            let header = [17, 0, 0, 1, 0, 0, (id >> 8) as u8, id as u8];
            Fragment::of(&ipv6(FRAGMENT, &header), 0, IP).expect("it is one")
        };
        let mut firsts = Firsts::default();
        let at = |seconds| Time::default() + Interval::from_secs(seconds);
        firsts.note(at(0), &of_id(1), 11);
        firsts.note(at(1), &of_id(1), 12);
        assert_eq!(firsts.of(at(30), &of_id(1)), Some(12), "it was said anew");
        assert_eq!((firsts.of(at(31), &of_id(1)), firsts.of(at(2), &of_id(2))), (None, None));
        (2..=FRAGMENTED_MAX).for_each(|id| firsts.note(at(2), &of_id(id), id));
        assert_eq!(firsts.of(at(2), &of_id(1)), Some(12), "what it said first has given way");
        // A packet that is known takes the place of nothing but itself, at one instant, too.
        firsts.note(at(2), &of_id(2), 13);
        firsts.note(at(2), &of_id(2), 14);
        assert_eq!((firsts.of(at(2), &of_id(1)), firsts.of(at(2), &of_id(2))), (Some(12), Some(14)));
        firsts.note(at(3), &of_id(0), 10);
        assert_eq!((firsts.of(at(3), &of_id(1)), firsts.of(at(3), &of_id(3))), (None, Some(3)));
        (3..=FRAGMENTED_MAX).for_each(|id| firsts.note(at(3), &of_id(id), id));
        assert_eq!(firsts.of(at(3), &of_id(2)), Some(14), "one that it said before has given way for it");
        assert!(firsts.known.len() == FRAGMENTED_MAX && firsts.by_age.len() == FRAGMENTED_MAX);
    }

    /// Fragments of IPv6, or behind tags, would pass what is closed.
    #[test]
    fn fragments_are_known_behind_tags_and_extension_headers() {
        let of = |packet: &[u8]| Fragment::of(packet, 3, IP);
        let place = |fragment: Fragment| (fragment.from, fragment.to, fragment.is_last);
        let second = [17, 0, 0, 0x51, 1, 2, 3, 4];
        let plain = of(&ipv6(FRAGMENT, &second)).expect("it is one");
        assert_eq!(place(plain), (80, 96, false));
        let behind = [&[ROUTING, 0, 0, 0, 0, 0, 0, 0][..], &[FRAGMENT, 1], &[0; 14], &second].concat();
        assert_eq!(of(&ipv6(HOP_BY_HOP, &behind)), Some(plain));
        assert_eq!(of(&ipv6(FRAGMENT, &[17, 0, 0, 0, 1, 2, 3, 4])), None, "it is whole");
        let in_whole = [&[FRAGMENT, 0, 0, 0, 9, 9, 9, 9][..], &second].concat();
        assert_eq!(of(&ipv6(FRAGMENT, &in_whole)), Some(plain), "what it carries is none");
        let many =
            [[DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(11), vec![FRAGMENT, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(of(&ipv6(DESTINATION, &[&many[..], &second].concat())), Some(plain));
        let signed = [&[FRAGMENT, 4][..], &[0; 22], &second].concat();
        assert_eq!(of(&ipv6(AUTHENTICATION, &signed)), Some(plain));
        let first = [DESTINATION, 0, 0, 1, 1, 2, 3, 4];
        let nested = [&first[..], &[FRAGMENT, 0, 0, 0, 0, 0, 0, 0], &second].concat();
        assert!(
            of(&ipv6(FRAGMENT, &nested)).is_some_and(|first| first.is_unfit()),
            "its packet is one again"
        );
        let fit = [&first[..], &[17, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(of(&ipv6(FRAGMENT, &fit)).is_some_and(|first| !first.is_unfit()));
        assert_eq!(of(&ipv6(17, &second)), None);
        let tagged = |tag: &[u8]| [&[2; 12][..], tag, &ETHERTYPE_IPV6, &ipv6(FRAGMENT, &second)].concat();
        let of = |tag: &[u8]| Fragment::of(&tagged(tag), 3, ETHERNET).expect("it is one");
        assert_eq!(place(of(&[0x81, 0, 0, 7])), place(plain));
        assert_eq!(of(&[]), plain);
        assert_ne!(of(&[0x81, 0, 0, 7]).key, of(&[0x81, 0, 0, 8]).key, "they are of two networks");
        for packet in [ipv6(HOP_BY_HOP, &behind), tagged(&[0x88, 0xa8, 0, 1])] {
            // Whatever is cut off, nothing is read behind the end.
            for n in 0..packet.len() {
                let _ = Fragment::of(&packet[..n], 0, if packet[0] == 2 { ETHERNET } else { IP });
            }
        }
    }
}
