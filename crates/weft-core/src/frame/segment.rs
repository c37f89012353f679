//! Segmentation of large packets, for devices without GSO.

use super::{BATCH_MAX, Checksum, Frame, GsoKind, Offload, Pool};
use crate::checksum::{fold, sum};
use crate::ip::IpPacket;
use crate::wire::LAYERS_MAX;

/// Maximum number of segments of one packet: 64 KiB in the smallest segments that TCP peers agree on.
pub const SEGMENTS_MAX: usize = 1024;
/// VLAN tags that are skipped: as many as a parser of the library takes.
pub const VLAN_TAGS_MAX: usize = LAYERS_MAX as usize;
/// The EtherType of IPv4.
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// The EtherType of IPv6.
pub const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// The EtherType of PPPoE sessions (RFC 2516 section 4).
const ETHERTYPE_PPPOE: [u8; 2] = [0x88, 0x64];
/// Version, type and code of a PPPoE session header.
const PPPOE_SESSION: [u8; 2] = [0x11, 0];
/// Bytes of that header and of the PPP protocol field.
const PPPOE_BYTES: usize = 8;
/// The PPP protocol numbers of IP (RFC 1661 section 2).
const PPP_IPV4: [u8; 2] = [0x00, 0x21];
const PPP_IPV6: [u8; 2] = [0x00, 0x57];

const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const IPV6_HEADER_BYTES: usize = 40;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Why a packet was not segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// Too few buffers are free.
    NoBuffer,
    /// The packet does not match its offload, or would have more than [`SEGMENTS_MAX`] segments.
    Malformed,
}

/// The offset of the network layer of an Ethernet frame: behind addresses, VLAN tags and EtherType.
#[inline]
pub fn network_at(frame: &[u8]) -> Option<usize> {
    let mut at = 14;
    while let Some(&[a, b]) = frame.get(at - 2..at) {
        let is_tag = matches!([a, b], [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]);
        if !is_tag || at == 14 + 4 * VLAN_TAGS_MAX {
            return Some(at);
        }
        at += 4;
    }
    None
}

/// The offset of the IP packet of a frame: inside a PPPoE session or not, or 0 without a link header. None if the
/// EtherType or the IP version says that it carries none.
#[inline]
pub fn ip_at(frame: &[u8], is_ip: bool) -> Option<usize> {
    let at = if is_ip { 0 } else { network_at(frame)? };
    let version = frame.get(at)? >> 4;
    let is_said = match frame[..at].last_chunk() {
        Some(&ETHERTYPE_IPV4) => version == 4,
        Some(&ETHERTYPE_IPV6) => version == 6,
        Some(&ETHERTYPE_PPPOE) => return ip_in_session(frame, at),
        _ => is_ip,
    };
    is_said.then_some(at)
}

/// The offset of the IP header behind a PPPoE session header at `at`; None for anything else.
#[cold]
fn ip_in_session(frame: &[u8], at: usize) -> Option<usize> {
    let header: &[u8; PPPOE_BYTES] = frame.get(at..)?.first_chunk()?;
    let version = frame.get(at + PPPOE_BYTES)? >> 4;
    let is_said = match header.last_chunk() {
        Some(&PPP_IPV4) => version == 4,
        Some(&PPP_IPV6) => version == 6,
        _ => false,
    };
    (is_said && header.starts_with(&PPPOE_SESSION)).then_some(at + PPPOE_BYTES)
}

/// The PPPoE session id of the IP packet of an Ethernet frame; `outside` is everything in front of that packet. Zeros
/// if there is no session.
pub fn session_in_front(outside: &[u8]) -> [u8; 2] {
    let header = network_at(outside).and_then(|at| outside.get(at..)).unwrap_or_default();
    match header {
        [0x11, 0, a, b, _, _, _, _] => [*a, *b],
        _ => [0; 2],
    }
}

/// Bytes of the longest packet that a frame stands for, without the link header (IP packets have none). The MTU of a
/// link bounds this length.
#[inline]
pub fn packet_size(frame: &[u8], offload: &Offload, is_ip: bool) -> usize {
    let network = if is_ip { 0 } else { network_at(frame).unwrap_or(0) };
    let whole = frame.len() - network;
    if offload.gso.is_none() {
        return whole;
    }
    SegmentPlan::new(frame, offload, network).map_or(whole, |cut| whole.min(cut.payload - network + cut.size))
}

/// The common properties of all segments.
pub(super) struct SegmentPlan {
    kind: GsoKind,
    network: usize,
    /// The end of the first IP header.
    ip_end: usize,
    pub(super) transport: usize,
    pub(super) payload: usize,
    /// Payload bytes of each segment but the last.
    pub(super) size: usize,
    has_ecn: bool,
    /// The offset of the checksum field.
    pub(super) sum_at: usize,
}

impl Pool {
    /// Appends the segments of a packet to `out`, each with a partial checksum. `network` is the offset of the IP
    /// header. The packet stays unchanged.
    ///
    /// # Errors
    /// There are too few buffers, or the packet cannot be segmented. Nothing is appended then.
    pub fn segment(
        &mut self,
        frame: &Frame,
        network: usize,
        out: &mut Vec<Frame>,
    ) -> Result<(), SegmentError> {
        let cut = SegmentPlan::new(self.bytes(frame), &frame.meta.offload, network)
            .ok_or(SegmentError::Malformed)?;
        let payload = frame.len() - cut.payload;
        let n = payload.div_ceil(cut.size).max(1);
        if n > SEGMENTS_MAX {
            return Err(SegmentError::Malformed);
        }
        assert!(cut.size > 0 && cut.payload <= frame.len(), "the plan is of this frame");
        let first = out.len();
        out.reserve(n.min(BATCH_MAX));
        for number in 0..n {
            let from = cut.payload + number * cut.size;
            let to = (from + cut.size).min(frame.len());
            let Some(mut segment) = self.take(cut.payload + (to - from)) else {
                out.drain(first..).for_each(|segment| self.give(segment));
                return Err(SegmentError::NoBuffer);
            };
            let (source, target) = (frame.start as usize, segment.start as usize);
            self.memory.copy_within(source..source + cut.payload, target);
            self.memory.copy_within(source + from..source + to, target + cut.payload);
            segment.meta = frame.meta;
            segment.meta.offload.gso = None;
            cut.fix(self.bytes_mut(&segment), number, number + 1 == n, payload);
            out.push(segment);
        }
        Ok(())
    }
}

impl SegmentPlan {
    /// Locates the headers of a frame with segmentation offload. None if the frame does not fit its offload
    /// description.
    pub(super) fn new(bytes: &[u8], offload: &Offload, network: usize) -> Option<Self> {
        let gso = offload.gso.filter(|gso| gso.size > 0)?;
        // The kernel sets both or neither.
        let Checksum::Partial { start, offset } = offload.checksum else { return None };
        let (transport, sum_at) = (usize::from(start), usize::from(start) + usize::from(offset));
        let packet = IpPacket::new(bytes.get(network..)?)?;
        let is_kind = match gso.kind {
            GsoKind::TcpV4 => packet.is_v4(),
            GsoKind::TcpV6 => !packet.is_v4(),
            GsoKind::Udp => true,
        };
        let payload = match gso.kind {
            GsoKind::Udp => transport + UDP_HEADER_BYTES,
            _ => transport + (usize::from(*bytes.get(transport + 12)? >> 4) * 4).max(TCP_HEADER_BYTES),
        };
        let ip_end = network + packet.header().len();
        let has_headers = is_kind && ip_end <= transport && payload <= bytes.len();
        (has_headers && sum_at + 2 <= payload).then_some(Self {
            kind: gso.kind,
            network,
            ip_end,
            transport,
            payload,
            size: usize::from(gso.size),
            has_ecn: gso.has_ecn,
            sum_at,
        })
    }

    /// Adjusts headers, copied from the whole packet, to one segment or to a piece of several segments. `number` is the
    /// first of them.
    pub(super) fn fix(&self, bytes: &mut [u8], number: usize, is_last: bool, whole_payload: usize) {
        let length = bytes.len();
        let headers = self.payload - self.transport;
        // The field holds the sum of the pseudo header; only the length in it differs.
        let (old, new) = (headers + whole_payload, length - self.transport);
        let sum = u64::from(word(bytes, self.sum_at)) + u64::from(!fold(old as u64)) + new as u64;
        put(bytes, self.sum_at, fold(sum));
        if self.kind == GsoKind::Udp {
            put(bytes, self.transport + 4, new as u16);
        } else {
            let at = self.transport + 4;
            let seq = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("the slice has 4 bytes"));
            let seq = seq.wrapping_add((number * self.size) as u32);
            bytes[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            let flags = &mut bytes[self.transport + 13];
            if !is_last {
                *flags &= !(TCP_FIN | TCP_PSH);
            }
            if number > 0 && self.has_ecn {
                *flags &= !TCP_CWR;
            }
        }
        if bytes[self.network] >> 4 == 6 {
            put(bytes, self.network + 4, (length - self.network - IPV6_HEADER_BYTES) as u16);
        } else {
            self.fix_ipv4(bytes, number);
        }
    }

    /// Sets the length, identification and checksum of the IPv4 header of the segment with this number.
    fn fix_ipv4(&self, bytes: &mut [u8], number: usize) {
        let length = bytes.len() - self.network;
        put(bytes, self.network + 2, length as u16);
        let id = word(bytes, self.network + 4).wrapping_add(number as u16);
        put(bytes, self.network + 4, id);
        put(bytes, self.network + 10, 0);
        let header = sum(&bytes[self.network..self.ip_end]);
        put(bytes, self.network + 10, !fold(header));
    }
}

/// The big-endian word at an offset.
pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a big-endian number of 16 bits.
pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::build::ethernet;
    use super::super::{FrameMeta, Gso, Offload, PoolConfig};
    use super::*;
    use crate::ip::DONT_FRAGMENT;
    use proptest::prelude::*;

    /// An Ethernet frame with a tag, IP, TCP or UDP and a payload, as the kernel passes it before segmentation.
    fn whole(kind: GsoKind, is_v6: bool, payload: &[u8]) -> (Vec<u8>, u16) {
        let link = ethernet().macs([2; 6], [2; 6]).vlan(5);
        let ip = match is_v6 {
            true => link.ipv6([0x11; 16], [0x11; 16]),
            false => link.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(0xffff, DONT_FRAGMENT),
        };
        let start = if is_v6 { 58 } else { 38 };
        let flags = TCP_CWR | TCP_PSH | TCP_FIN | 0x10;
        let transport = match kind {
            GsoKind::Udp => ip.udp(1000, 2000),
            _ => ip.tcp(1000, 2000).seq(0xffff_fff0, flags).options(&[0; 12]),
        };
        (transport.partial_checksum().payload(payload).build(), start)
    }

    fn pseudo_sum(frame: &[u8], is_v6: bool, length: usize) -> u32 {
        let (addresses, protocol) =
            if is_v6 { (&frame[26..58], frame[24]) } else { (&frame[30..38], frame[27]) };
        let sum: u32 = addresses.chunks_exact(2).map(|pair| u32::from(word(pair, 0))).sum();
        sum + u32::from(protocol) + length as u32
    }

    #[test]
    fn network_layer_follows_all_tags() {
        // Tagged packets could not be segmented.
        let frame = [&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0, 0x45]].concat();
        assert_eq!(network_at(&frame), Some(22));
        assert_eq!(network_at(&frame[..21]), None);
        assert_eq!(network_at(&frame[..11]), None);
        let endless = [&[0; 12][..], &[0x81; 400]].concat();
        assert_eq!(network_at(&endless), Some(14));
    }

    #[test]
    fn non_ip_type_has_no_ip_layer() {
        // An AQM would write its marks into MPLS labels and spanning tree frames.
        let frame = |link: &[u8], first: u8| [&[0; 12][..], link, &[first, 2, 3, 4]].concat();
        assert_eq!(ip_at(&frame(&[8, 0], 0x45), false), Some(14));
        assert_eq!(ip_at(&frame(&[0x86, 0xdd], 0x60), false), Some(14));
        assert_eq!(ip_at(&frame(&[0x81, 0, 0, 7, 8, 0], 0x45), false), Some(18));
        for (link, first) in [([8, 0], 0x60), ([0x86, 0xdd], 0x45), ([0x88, 0x47], 0x49), ([0, 38], 0x42)] {
            assert_eq!(ip_at(&frame(&link, first), false), None, "{link:x?}");
        }
        let session = [0x88, 0x64, 0x11, 0, 0, 7, 0, 42];
        let in_session = |ppp: [u8; 2], first| frame(&[&session[..], &ppp].concat(), first);
        assert_eq!(ip_at(&in_session(PPP_IPV4, 0x45), false), Some(22));
        assert_eq!(ip_at(&in_session(PPP_IPV6, 0x60), false), Some(22));
        assert_eq!(session_in_front(&in_session(PPP_IPV6, 0x60)[..22]), [0, 7]);
        assert_eq!(session_in_front(&frame(&[8, 0], 0x45)[..14]), [0, 0]);
        for (ppp, first) in [(PPP_IPV4, 0x60), ([0xc0, 0x21], 0x45)] {
            assert_eq!(ip_at(&in_session(ppp, first), false), None, "{ppp:x?}");
        }
        (0..23).for_each(|cut| assert_eq!(ip_at(&in_session(PPP_IPV4, 0x45)[..cut.min(22)], false), None));
        assert_eq!(ip_at(&[0x45], true), Some(0));
        assert_eq!(ip_at(&[], true), None);
    }

    #[test]
    fn uncuttable_frame_takes_no_buffer() {
        // A wrong offload could stop a worker, or leak a buffer for each such packet.
        let mut pool = Pool::new(PoolConfig { small: 3, large: 1 });
        let (bytes, start) = whole(GsoKind::TcpV4, false, &[9; 3_000]);
        let mut frame = pool.take_filled(&bytes).expect("a buffer");
        let (gso, checksum) = (Gso { kind: GsoKind::TcpV4, size: 1_000, has_ecn: false }, Checksum::Valid);
        let mut out = Vec::new();
        let partial = Checksum::Partial { start, offset: 16 };
        let wrong = [
            Offload { checksum, gso: Some(gso) },
            Offload { checksum: partial, gso: None },
            Offload { checksum: partial, gso: Some(Gso { kind: GsoKind::TcpV6, ..gso }) },
            Offload { checksum: partial, gso: Some(Gso { size: 1, ..gso }) },
            Offload { checksum: Checksum::Partial { start: 65_000, offset: 16 }, gso: Some(gso) },
            Offload { checksum: Checksum::Partial { start: 20, offset: 16 }, gso: Some(gso) },
            Offload { checksum: Checksum::Partial { start, offset: 60_000 }, gso: Some(gso) },
        ];
        for offload in wrong {
            frame.meta.offload = offload;
            assert_eq!(pool.segment(&frame, 18, &mut out), Err(SegmentError::Malformed), "{offload:?}");
        }
        frame.meta.offload = Offload { checksum: partial, gso: Some(Gso { size: 900, ..gso }) };
        assert_eq!(pool.segment(&frame, 18, &mut out), Err(SegmentError::NoBuffer));
        assert_eq!((out.len(), pool.in_use()), (0, 1));
        pool.give(frame);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// A receiver would get wrong bytes, or drop segments with wrong checksums.
        #[test]
        fn segments_keep_bytes_and_headers(
            which in 0..4usize,
            payload in 0..20_000usize,
            size in 500..1_460u16,
        ) {
            let kinds =
                [(GsoKind::TcpV4, false), (GsoKind::TcpV6, true), (GsoKind::Udp, false), (GsoKind::Udp, true)];
            let (kind, is_v6) = kinds[which];
            let payload: Vec<u8> = (0..payload).map(|at| (at * 7 + at / 255) as u8).collect();
            let (bytes, start) = whole(kind, is_v6, &payload);
            let offset = if kind == GsoKind::Udp { 6 } else { 16 };
            let mut pool = Pool::new(PoolConfig { small: 64, large: 1 });
            let mut frame = pool.take_filled(&bytes).expect("a buffer");
            let (checksum, gso) = (Checksum::Partial { start, offset }, Gso { kind, size, has_ecn: true });
            frame.meta = FrameMeta { offload: Offload { checksum, gso: Some(gso) }, port: 3, ..FrameMeta::default() };
            let (network, mut out) = (network_at(&bytes).expect("the packet has an IP header"), Vec::new());
            prop_assert_eq!(pool.segment(&frame, network, &mut out), Ok(()));
            prop_assert_eq!(pool.bytes(&frame), &bytes[..]);
            let start = usize::from(start);
            let headers = start + if kind == GsoKind::Udp { 8 } else { 32 };
            let (n, mut joined) = (out.len(), Vec::new());
            for (number, segment) in out.into_iter().enumerate() {
                prop_assert_eq!((segment.meta.port, segment.meta.offload.gso), (3, None));
                let mut offload = segment.meta.offload;
                prop_assert_eq!(offload.finish_checksum(pool.bytes_mut(&segment)), Some(()));
                let bytes = pool.bytes(&segment);
                let length = bytes.len() - start;
                let sum: u32 = bytes[start..].chunks(2).map(|pair| match pair {
                    [a, b] => u32::from(*a) << 8 | u32::from(*b),
                    rest => u32::from(rest[0]) << 8,
                }).sum();
                prop_assert_eq!(fold(u64::from(sum + pseudo_sum(bytes, is_v6, length))), 0xffff, "transport checksum");
                if is_v6 {
                    prop_assert_eq!(usize::from(word(bytes, 22)), length);
                } else {
                    let sum: u32 = bytes[18..38].chunks_exact(2).map(|pair| u32::from(word(pair, 0))).sum();
                    prop_assert_eq!(fold(u64::from(sum)), 0xffff, "header checksum");
                    prop_assert_eq!(usize::from(word(bytes, 20)), length + 20);
                    prop_assert_eq!(word(bytes, 22), 0xffff_u16.wrapping_add(number as u16));
                }
                if kind == GsoKind::Udp {
                    prop_assert_eq!(usize::from(word(bytes, start + 4)), length);
                } else {
                    let seq = 0xffff_fff0_u32.wrapping_add(joined.len() as u32);
                    prop_assert_eq!(&bytes[start + 4..start + 8], seq.to_be_bytes());
                    let first = if number == 0 { TCP_CWR } else { 0 };
                    let last = if number + 1 == n { TCP_FIN | TCP_PSH } else { 0 };
                    prop_assert_eq!(bytes[start + 13], 0x10 | first | last);
                }
                joined.extend_from_slice(&bytes[headers..]);
                pool.give(segment);
            }
            prop_assert_eq!(joined, payload);
            pool.give(frame);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
