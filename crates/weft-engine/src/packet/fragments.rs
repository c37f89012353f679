//! Virtual reassembly: tracks the fragments of IP packets until the whole packet has passed.
//!
//! Only the first fragment of a packet has ports and flags. If a chain reads them, the engine keeps the bytes of the
//! first fragment. Each later fragment inherits the inputs that the parser finds there. It passes the chain as if it
//! had the header itself. A fragment that arrives before the first one waits for it. Nothing is reassembled: each
//! fragment leaves as it arrived.
//!
//! Fragments inside tunnels are tracked in the same way, if a chain reads what is behind. Programs define tunnels, so
//! the chain's own parser locates the carried packet, also in nested tunnels. A carried fragment is tracked as it
//! arrives, even if an element removes the tunnel before another one reads the fields. So fragments wait in front of a
//! chain, and never inside it.
//!
//! Sources: RFC 791 section 3.2, RFC 8200 section 4.5; RFC 1858, RFC 3128 and RFC 5722 for why overlapping fragments do
//! not pass.

use super::stats::DropReason;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weft_core::frame::{Frame, IP_PACKET_MAX, Pool, VLAN_TAGS_MAX, ip_at, network_at, session_in_front};
use weft_core::ip::{IpPacket, Part};
use weft_core::wire::{CARRIED_MAX, LAYERS_MAX};
use weft_core::{Interval, Time};

/// Fragmented packets that a worker tracks; a further one evicts the oldest.
pub const FRAGMENTED_MAX: usize = 1024;
/// Fragments of one packet: enough for 64 KiB at the minimum MTU of IPv6.
pub const FRAGMENTS_MAX: usize = 64;
/// Fragments on a worker that wait for the first of their packet. For a further one, the packet that has waited longest
/// is abandoned.
pub const FRAGMENTS_WAITING_MAX: usize = 256;
/// How long the fragments of a packet are tracked, from the one that arrived first. Linux uses the same time.
pub const FRAGMENTS_TIME: Interval = Interval::from_secs(30);

/// The longest payload of a fragmented packet.
const PACKET_BYTES_MAX: u32 = IP_PACKET_MAX as u32;
/// The EtherTypes of MPLS: RFC 3032 and RFC 5332.
const ETHERTYPES_MPLS: [[u8; 2]; 2] = [[0x88, 0x47], [0x88, 0x48]];
/// Bytes of the VLAN tags of a frame, and of a session id.
const TAGS_BYTES: usize = 4 * VLAN_TAGS_MAX;
const SESSION_BYTES: usize = 2;
/// The most MPLS labels that are skipped: as many as a parser reads.
const LABELS_MAX: usize = LAYERS_MAX as usize;
const LABEL_BYTES: usize = 4;
/// Of an MPLS word, the label and the bottom-of-stack bit. The TTL may differ between the fragments of a packet.
const LABEL_MASK: u32 = 0xffff_f100;
const LABEL_IS_LAST: u32 = 0x100;
/// Announces an entropy label (RFC 6790): the next label may differ for a fragment that has ports.
const LABEL_OF_ENTROPY: u32 = 7;

/// What all fragments of a packet have in common, and no other packet in flight has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FragmentKey {
    addresses: [u8; 32],
    id: [u8; 4],
    port: u16,
    /// IPv4 only; IPv6 does not use it.
    protocol: Option<u8>,
    tags: [u8; TAGS_BYTES],
    /// The PPPoE session id.
    session: [u8; SESSION_BYTES],
    labels: [u32; LABELS_MAX],
    /// The tunnels around the packet, the outermost first.
    tunnels: [Option<Tunnel>; CARRIED_MAX],
}

impl FragmentKey {
    /// The drop of a fragment that overlaps others of this packet.
    fn overlaps(&self) -> FragmentDrop {
        FragmentDrop::Overlaps { port: self.port, version: if self.protocol.is_some() { 4 } else { 6 } }
    }
}

/// The parts of a tunnel that tell apart packets with the same addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tunnel {
    /// Its endpoints; zeros if it does not run over IP.
    ends: [u8; 32],
    number: u64,
}

/// How the frames of a port begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkFraming {
    /// With an IP packet, without a link header.
    pub(super) is_ip: bool,
    /// MPLS labels may precede the packet.
    pub(super) has_labels: bool,
}

/// The outermost packet of a frame, and the headers in front of it.
struct Outermost<'f> {
    /// With tags and the session header.
    link: &'f [u8],
    labels: &'f [u8],
    packet: IpPacket<'f>,
}

/// Fragment information of a frame.
#[derive(Clone, Debug, Default)]
pub(super) struct FragmentInfo {
    /// For a later fragment: the first fragment of its packet.
    pub(super) first: Option<Arc<[u8]>>,
    /// The number of tunnels around the tracked packet.
    pub(super) depth: usize,
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    key: FragmentKey,
    /// The range of the packet's payload in it, in bytes.
    from: u32,
    to: u32,
    is_last: bool,
    /// It is the first of its packet, and its payload begins with another fragment header.
    holds_another: bool,
}

/// Why a fragment is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum FragmentDrop {
    /// It is malformed: it overlaps another one, repeats the first, ends at an invalid offset, or is the first of a
    /// packet that is itself fragmented; or such a fragment has arrived before.
    Overlaps {
        /// The ingress port.
        port: u16,
        /// The IP version.
        version: u8,
    },
    /// Another reason.
    Dropped(DropReason),
}

/// The tracked packets.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    packets: BTreeMap<FragmentKey, Packet>,
    /// The same, oldest first; entries of removed packets are skipped. The number tells apart packets with one key.
    by_age: VecDeque<(FragmentKey, u64)>,
    /// The packets with waiting fragments, in the same form.
    waiting: VecDeque<(FragmentKey, u64)>,
    n_waiting: usize,
    n_packets: u64,
    /// Dropped fragments with the reason, until their buffers are given back.
    given_up: Vec<(FragmentDrop, Frame)>,
}

/// Values recorded for first fragments, for the later fragments of their packets. No fragment waits, and none is
/// checked.
#[derive(Debug)]
pub(super) struct FirstFragments<T> {
    known: BTreeMap<FragmentKey, FirstFragment<T>>,
    /// The same by number, oldest first.
    by_age: BTreeMap<u64, FragmentKey>,
    n_recorded: u64,
}

#[derive(Clone, Copy, Debug)]
struct FirstFragment<T> {
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
    /// The ranges that have arrived, in order.
    parts: Vec<(u32, u32)>,
    /// The length of its payload.
    end: Option<u32>,
    /// The fragments that wait for the first.
    waiting: Vec<Frame>,
    /// Its fragments overlap: no further one passes.
    is_bad: bool,
}

impl LinkFraming {
    /// Where the outermost packet of a frame begins.
    pub(super) fn packet_at(self, frame: &[u8]) -> Option<usize> {
        self.outermost(frame).map(|found| found.link.len() + found.labels.len())
    }

    /// Finds the outermost IP packet of a frame, behind its link header and MPLS labels. None if there is none.
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
    /// Finds the packet behind a label stack. The first bits behind the last label tell its type.
    fn behind_labels(link: &'f [u8], labels: &'f [u8]) -> Option<Self> {
        let mut words = labels.chunks_exact(LABEL_BYTES).take(LABELS_MAX);
        let n = words.position(|word| label(word) & LABEL_IS_LAST != 0)? + 1;
        let (labels, packet) = labels.split_at(n * LABEL_BYTES);
        Some(Self { link, labels, packet: IpPacket::new(packet)? })
    }
}

impl Tunnel {
    /// The tunnel with this number that carries a packet; `carrier` is the IP packet of the tunnel, if it runs over IP.
    pub(super) fn new(carrier: Option<&[u8]>, number: u64) -> Self {
        let ends = carrier.and_then(IpPacket::new).map(IpPacket::addresses);
        Self { ends: padded(ends.unwrap_or_default()), number }
    }
}

impl Fragment {
    /// Returns the fragment in a frame. None if the frame is a whole packet, or not IP.
    #[inline]
    pub(super) fn of(frame: &[u8], port: u16, begins: LinkFraming) -> Option<Self> {
        let Outermost { link, labels, packet } = begins.outermost(frame)?;
        let mut fragment = Self::of_packet(packet, link, port)?;
        fragment.key.labels = known_labels(labels);
        Some(fragment)
    }

    /// The fragment that a packet is, whatever is in front of it.
    #[inline]
    pub(super) fn of_carried(packet: &[u8]) -> Option<Self> {
        Self::of_packet(IpPacket::new(packet)?, &[], 0)
    }

    /// Describes the fragment that tunnels carry in a frame, at this offset. None if it is no fragment.
    #[cold]
    pub(super) fn in_tunnels(
        frame: &[u8],
        packet_at: usize,
        port: u16,
        begins: LinkFraming,
        tunnels: [Option<Tunnel>; CARRIED_MAX],
    ) -> Option<Self> {
        let packet = IpPacket::new(frame.get(packet_at..)?)?;
        let (link, labels) = match begins.outermost(frame) {
            Some(Outermost { link, labels, .. }) => (link, labels),
            None => (&frame[..if begins.is_ip { 0 } else { network_at(frame)? }], &[][..]),
        };
        let mut fragment = Self::of_packet(packet, link, port)?;
        fragment.key.labels = known_labels(labels);
        fragment.key.tunnels = tunnels;
        Some(fragment)
    }

    /// The fragment that a packet is, if the packet is complete. Most are none, which one comparison shows.
    #[inline]
    fn of_packet(packet: IpPacket<'_>, link: &[u8], port: u16) -> Option<Self> {
        Self::new(packet, packet.part()?, link, port)
    }

    /// Describes a fragment by its key and its range of bytes. None if the packet is not complete.
    #[cold]
    fn new(packet: IpPacket<'_>, part: Part, link: &[u8], port: u16) -> Option<Self> {
        let Part { id, protocol, offset, bytes, has_more, holds_another } = part;
        let protocol = packet.is_v4().then_some(protocol);
        let (addresses, tags, session) = (padded(packet.addresses()), tags_of(link), session_in_front(link));
        let key =
            FragmentKey { addresses, id, port, protocol, tags, session, labels: [0; _], tunnels: [None; _] };
        let fragment = Self { key, from: offset, to: offset + bytes, is_last: !has_more, holds_another };
        packet.is_complete().then_some(fragment)
    }

    /// Whether it is not the first of its packet.
    pub(super) fn is_later(&self) -> bool {
        self.from > 0
    }

    /// Whether it ends at an invalid offset, or its packet is itself fragmented after reassembly.
    fn is_malformed(&self) -> bool {
        let is_odd = !self.is_last && !(self.to - self.from).is_multiple_of(8);
        is_odd || self.to == self.from || self.to > PACKET_BYTES_MAX || self.holds_another
    }
}

/// The VLAN tags of a link header, which a session header may follow. They tell apart the networks on one link.
fn tags_of(link: &[u8]) -> [u8; TAGS_BYTES] {
    let end = network_at(link).unwrap_or(0).saturating_sub(2);
    padded(link.get(12..end).unwrap_or_default())
}

fn label(word: &[u8]) -> u32 {
    word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Returns the part of the labels that all fragments of a packet share; it tells networks apart.
fn known_labels(bytes: &[u8]) -> [u32; LABELS_MAX] {
    let mut all = [0; LABELS_MAX];
    let mut is_entropy = false;
    for (known, word) in all.iter_mut().zip(bytes.chunks_exact(LABEL_BYTES)) {
        *known = label(word) & if is_entropy { LABEL_IS_LAST } else { LABEL_MASK };
        is_entropy = *known >> 12 == LABEL_OF_ENTROPY;
    }
    all
}

/// Copies bytes to an array and pads it with zeros.
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    let n = bytes.len().min(N);
    all[..n].copy_from_slice(&bytes[..n]);
    all
}

impl Fragments {
    /// Whether nothing is tracked and no buffer is to be given back.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.given_up.is_empty()
    }

    /// The number of frames that wait for the first fragment of their packet.
    pub(super) fn waiting(&self) -> usize {
        self.n_waiting
    }

    /// The time of the next call of [`Fragments::expire`].
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.by_age.front().and_then(|oldest| self.get(oldest)).map(|packet| packet.until)
    }

    /// Returns the reasons of dropped fragments that still hold their buffers.
    pub(super) fn given_up(&self) -> impl Iterator<Item = DropReason> {
        self.given_up.iter().filter_map(|(why, _)| match why {
            FragmentDrop::Dropped(reason) => Some(*reason),
            // It has been counted when it was dropped.
            FragmentDrop::Overlaps { .. } => None,
        })
    }

    /// Abandons packets whose fragments have not all arrived in time.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some(of) = self.by_age.front().copied() {
            if self.get(&of).is_some_and(|packet| packet.until > now) {
                return;
            }
            self.by_age.pop_front();
            self.abandon(of, DropReason::NoFirstFragment);
        }
    }

    /// Hands over the dropped fragments, with the reasons.
    pub(super) fn take_given_up(&mut self) -> impl Iterator<Item = (FragmentDrop, Frame)> {
        self.given_up.drain(..)
    }

    /// Tracks a fragment that has arrived. Appends to `out` the frames that may pass now, each later one with the
    /// first fragment of its packet. All others wait or are dropped.
    pub(super) fn track(
        &mut self,
        now: Time,
        fragment: Fragment,
        frame: Frame,
        pool: &Pool,
        out: &mut Vec<(Frame, Option<Arc<[u8]>>)>,
    ) {
        let overlaps = fragment.key.overlaps();
        let Fragment { key, from, to, is_last, .. } = fragment;
        let number = self.begin_tracking(now, key);
        let Some(packet) = self.packets.get_mut(&key) else { unreachable!("it has begun") };
        if packet.parts.len() == FRAGMENTS_MAX {
            return self.given_up.push((FragmentDrop::Dropped(DropReason::FragmentsTooMany), frame));
        }
        // A duplicate is no attack, since networks may duplicate packets; but it does not pass twice.
        if packet.is_bad || packet.parts.contains(&(from, to)) {
            return self.given_up.push((overlaps, frame));
        }
        if fragment.is_malformed() || !packet.add_range(from, to, is_last) {
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

    /// Removes the entries of packets that are no longer tracked from the front of the age list.
    fn forget_oldest(&mut self) {
        while self.by_age.front().is_some_and(|oldest| self.get(oldest).is_none()) {
            self.by_age.pop_front();
        }
    }

    /// Returns the number of the packet with this key. Begins to track it if necessary, and then abandons the oldest
    /// ones if too many are tracked.
    fn begin_tracking(&mut self, now: Time, key: FragmentKey) -> u64 {
        self.expire(now);
        if let Some(packet) = self.packets.get(&key) {
            return packet.number;
        }
        while self.packets.len() >= FRAGMENTED_MAX {
            let Some(oldest) = self.by_age.pop_front() else { break };
            self.abandon(oldest, DropReason::FragmentsTooMany);
        }
        // Most packets are complete at once, so entries at the front are stale, and few are live.
        if self.by_age.len() >= 2 * FRAGMENTED_MAX {
            let packets = &self.packets;
            let is_there =
                |(key, number): &(FragmentKey, u64)| packets.get(key).is_some_and(|p| p.number == *number);
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

    /// Abandons the packet that has waited longest, as long as too many fragments wait.
    fn make_room(&mut self) {
        while self.n_waiting > FRAGMENTS_WAITING_MAX {
            let Some(longest) = self.waiting.pop_front() else { return };
            if self.get(&longest).is_some_and(|packet| !packet.waiting.is_empty()) {
                self.abandon(longest, DropReason::FragmentsTooMany);
            }
        }
        if self.waiting.len() >= 2 * FRAGMENTS_WAITING_MAX {
            let packets = &self.packets;
            let waits = |(key, number): &(FragmentKey, u64)| {
                packets.get(key).is_some_and(|p| p.number == *number && !p.waiting.is_empty())
            };
            self.waiting.retain(waits);
        }
    }

    /// Abandons a packet, if it is still tracked: its waiting fragments are dropped for this reason.
    fn abandon(&mut self, of: (FragmentKey, u64), reason: DropReason) {
        if self.get(&of).is_none() {
            return;
        }
        let Some(packet) = self.packets.remove(&of.0) else { return };
        self.n_waiting -= packet.waiting.len();
        self.given_up.extend(packet.waiting.into_iter().map(|frame| (FragmentDrop::Dropped(reason), frame)));
        self.forget_oldest();
    }

    fn get(&self, (key, number): &(FragmentKey, u64)) -> Option<&Packet> {
        self.packets.get(key).filter(|packet| packet.number == *number)
    }

    /// Forgets all packets and drops the waiting fragments.
    pub(super) fn clear(&mut self) {
        let packets = core::mem::take(&mut self.packets).into_values();
        let waiting = packets.flat_map(|packet| packet.waiting);
        self.given_up
            .extend(waiting.map(|frame| (FragmentDrop::Dropped(DropReason::NoFirstFragment), frame)));
        self.by_age.clear();
        self.waiting.clear();
        self.n_waiting = 0;
    }
}

impl<T> Default for FirstFragments<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), by_age: BTreeMap::new(), n_recorded: 0 }
    }
}

impl<T: Copy> FirstFragments<T> {
    /// Records a value for the first fragment of a packet, and replaces an earlier one with the same key. Holds at most
    /// [`FRAGMENTED_MAX`] values; when full, the oldest one is evicted.
    pub(super) fn record(&mut self, now: Time, first: &Fragment, value: T) {
        let number = self.n_recorded;
        self.n_recorded += 1;
        if let Some(before) = self.known.insert(first.key, FirstFragment { number, at: now, what: value }) {
            self.by_age.remove(&before.number);
        }
        self.by_age.insert(number, first.key);
        if self.by_age.len() > FRAGMENTED_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// The value recorded for the first fragment of this one's packet, if that arrived within [`FRAGMENTS_TIME`].
    pub(super) fn of(&self, now: Time, later: &Fragment) -> Option<T> {
        let first = self.known.get(&later.key)?;
        (now < first.at + FRAGMENTS_TIME).then_some(first.what)
    }
}

impl Packet {
    /// Adds the range of a fragment. False if it overlaps another one or exceeds the end of the packet.
    fn add_range(&mut self, from: u32, to: u32, is_last: bool) -> bool {
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

    /// Whether the packet is complete.
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
    use weft_core::frame::{ETHERTYPE_IPV6, build};
    use weft_core::ip::{AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};

    const IP: LinkFraming = LinkFraming { is_ip: true, has_labels: false };
    const ETHERNET: LinkFraming = LinkFraming { is_ip: false, has_labels: true };

    /// An IPv6 packet with these headers and 16 bytes of payload.
    fn ipv6(next: u8, headers: &[u8]) -> Vec<u8> {
        build::ipv6([0xfd; 16], [0xfe; 16]).protocol(next).payload(headers).payload([0; 16]).build()
    }

    /// If it failed, links would keep fragments forever, or a packet would get the ports of one long gone.
    #[test]
    fn first_fragment_info_expires() {
        let of_id = |id: usize| {
            let header = [17, 0, 0, 1, 0, 0, (id >> 8) as u8, id as u8];
            Fragment::of(&ipv6(FRAGMENT, &header), 0, IP).expect("it is one")
        };
        let mut firsts = FirstFragments::default();
        let at = |seconds| Time::default() + Interval::from_secs(seconds);
        firsts.record(at(0), &of_id(1), 11);
        firsts.record(at(1), &of_id(1), 12);
        assert_eq!(firsts.of(at(30), &of_id(1)), Some(12), "it was recorded again");
        assert_eq!((firsts.of(at(31), &of_id(1)), firsts.of(at(2), &of_id(2))), (None, None));
        (2..=FRAGMENTED_MAX).for_each(|id| firsts.record(at(2), &of_id(id), id));
        assert_eq!(firsts.of(at(2), &of_id(1)), Some(12), "the first value was replaced");
        // A known packet replaces only itself, also at the same instant.
        firsts.record(at(2), &of_id(2), 13);
        firsts.record(at(2), &of_id(2), 14);
        assert_eq!((firsts.of(at(2), &of_id(1)), firsts.of(at(2), &of_id(2))), (Some(12), Some(14)));
        firsts.record(at(3), &of_id(0), 10);
        assert_eq!((firsts.of(at(3), &of_id(1)), firsts.of(at(3), &of_id(3))), (None, Some(3)));
        (3..=FRAGMENTED_MAX).for_each(|id| firsts.record(at(3), &of_id(id), id));
        assert_eq!(firsts.of(at(3), &of_id(2)), Some(14), "its earlier value was replaced");
        assert!(firsts.known.len() == FRAGMENTED_MAX && firsts.by_age.len() == FRAGMENTED_MAX);
    }

    /// If it failed, IPv6 or tagged fragments would pass a closed filter.
    #[test]
    fn fragments_are_found_behind_headers() {
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
            of(&ipv6(FRAGMENT, &nested)).is_some_and(|first| first.is_malformed()),
            "its packet is one again"
        );
        let fit = [&first[..], &[17, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(of(&ipv6(FRAGMENT, &fit)).is_some_and(|first| !first.is_malformed()));
        assert_eq!(of(&ipv6(17, &second)), None);
        let tagged = |tag: &[u8]| [&[2; 12][..], tag, &ETHERTYPE_IPV6, &ipv6(FRAGMENT, &second)].concat();
        let of = |tag: &[u8]| Fragment::of(&tagged(tag), 3, ETHERNET).expect("it is one");
        assert_eq!(place(of(&[0x81, 0, 0, 7])), place(plain));
        assert_eq!(of(&[]), plain);
        assert_ne!(of(&[0x81, 0, 0, 7]).key, of(&[0x81, 0, 0, 8]).key, "they are of two networks");
        let session = |id: u8, length: u8| {
            let front = [0x88, 0x64, 0x11, 0, 0, id, 0, length, 0, 0x57];
            let frame = [&[2; 12][..], &front, &ipv6(FRAGMENT, &second)].concat();
            Fragment::of(&frame, 3, ETHERNET).expect("it is one").key
        };
        assert_eq!(session(7, 66), session(7, 200), "fragments of a packet have different lengths");
        assert_ne!(session(7, 66), session(8, 66), "they are of two subscribers");
        for packet in [ipv6(HOP_BY_HOP, &behind), tagged(&[0x88, 0xa8, 0, 1])] {
            // However the packet is truncated, nothing is read beyond its end.
            for n in 0..packet.len() {
                let _ = Fragment::of(&packet[..n], 0, if packet[0] == 2 { ETHERNET } else { IP });
            }
        }
    }
}
