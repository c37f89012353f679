//! Fragmentation of IPv4 packets (RFC 791 section 3.2), for links with a smaller MTU.

use super::segment::put;
use super::{Frame, Pool, SEGMENTS_MAX, SegmentError};
use crate::checksum::{fold, sum};
use crate::ip::{DONT_FRAGMENT, FRAGMENT_OFFSET as OFFSET, IpPacket, MORE_FRAGMENTS as MORE};

const HEADER_BYTES: usize = 20;
/// The unit of a fragment offset.
const UNIT_BYTES: usize = 8;
/// The bit of an option type for options that all fragments copy, and the two options without a length.
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// A packet to fragment.
struct Packet<'f> {
    header: &'f [u8],
    /// The header of all fragments but the first: only with the copied options.
    later: Vec<u8>,
    payload: &'f [u8],
    /// The flags and offset of the packet.
    at: u16,
}

impl Pool {
    /// Appends the fragments of an IPv4 packet to `out`, each of at most `to` bytes with its header. `network` is the
    /// offset of the IP header. The packet stays, with its checksums completed.
    ///
    /// Returns false, and appends nothing, if the packet is not IPv4, must not be fragmented (DF), or already fits.
    ///
    /// # Errors
    /// There are too few buffers, or `to` is too short for a fragment or for at most [`SEGMENTS_MAX`] of them. Nothing
    /// is appended then.
    pub fn fragment(
        &mut self,
        frame: &mut Frame,
        network: usize,
        to: usize,
        out: &mut Vec<Frame>,
    ) -> Result<bool, SegmentError> {
        if !Packet::of(self.bytes(frame), network).is_some_and(|whole| whole.is_longer_than(to)) {
            return Ok(false);
        }
        let mut offload = core::mem::take(&mut frame.meta.offload);
        offload.finish_checksum(self.bytes_mut(frame)).ok_or(SegmentError::Malformed)?;
        // A copy of the bytes, because the pool is borrowed for new buffers.
        let bytes = self.bytes(frame).to_vec();
        let whole = Packet::of(&bytes, network).ok_or(SegmentError::Malformed)?;
        let first = out.len();
        for part in whole.parts(to).ok_or(SegmentError::Malformed)? {
            let length = network + part.header.len() + part.payload.len();
            let Some(mut fragment) = self.take(length) else {
                out.drain(first..).for_each(|fragment| self.give(fragment));
                return Err(SegmentError::NoBuffer);
            };
            fragment.meta = frame.meta;
            part.write(&bytes[..network], self.bytes_mut(&fragment));
            out.push(fragment);
        }
        Ok(true)
    }
}

/// A fragment.
struct Fragment<'w> {
    header: &'w [u8],
    payload: &'w [u8],
    at: u16,
}

impl<'f> Packet<'f> {
    /// Reads the packet of a frame; None if it may not be fragmented.
    fn of(frame: &'f [u8], network: usize) -> Option<Self> {
        let packet = IpPacket::new(frame.get(network..)?).filter(|packet| packet.is_complete())?;
        let (header, at) = (packet.header(), packet.fragment_word()?);
        let later = of_all_fragments(header);
        (at & DONT_FRAGMENT == 0).then(|| Self { header, later, payload: packet.payload(), at })
    }

    fn is_longer_than(&self, to: usize) -> bool {
        self.header.len() + self.payload.len() > to
    }

    /// Splits the packet into fragments of at most this length; None if that is too short.
    fn parts(&self, to: usize) -> Option<Vec<Fragment<'_>>> {
        let (mut parts, mut rest, mut done) = (Vec::new(), self.payload, 0_u16);
        while !rest.is_empty() {
            let header = if parts.is_empty() { self.header } else { &self.later };
            let room = to.checked_sub(header.len())?;
            // Only the last fragment may have a length that is no multiple of the unit.
            let n = if rest.len() <= room { rest.len() } else { room / UNIT_BYTES * UNIT_BYTES };
            if n == 0 || parts.len() == SEGMENTS_MAX {
                return None;
            }
            let (payload, behind) = rest.split_at(n);
            let more = if behind.is_empty() { self.at & MORE } else { MORE };
            let at = (self.at & OFFSET) + done;
            if at > OFFSET {
                return None;
            }
            parts.push(Fragment { header, payload, at: more | at });
            done += (n / UNIT_BYTES) as u16;
            rest = behind;
        }
        Some(parts)
    }
}

impl Fragment<'_> {
    /// Writes the fragment behind a link header into a slice of its exact length.
    fn write(&self, link: &[u8], to: &mut [u8]) {
        let (to_link, packet) = to.split_at_mut(link.len());
        to_link.copy_from_slice(link);
        let length = packet.len() as u16;
        let (header, payload) = packet.split_at_mut(self.header.len());
        payload.copy_from_slice(self.payload);
        header.copy_from_slice(self.header);
        put(header, 2, length);
        put(header, 6, self.at);
        put(header, 10, 0);
        put(header, 10, !fold(sum(header)));
    }
}

/// Copies the header with only the options that all fragments have.
fn of_all_fragments(header: &[u8]) -> Vec<u8> {
    let mut later = header[..HEADER_BYTES].to_vec();
    let mut rest = &header[HEADER_BYTES..];
    while let Some(&kind) = rest.first().filter(|kind| **kind != END_OF_OPTIONS) {
        let length = if kind == NO_OPERATION { 1 } else { rest.get(1).map_or(0, |n| usize::from(*n)) };
        let Some(option) = rest.get(..length).filter(|option| !option.is_empty()) else { break };
        if kind & COPIED != 0 {
            later.extend_from_slice(option);
        }
        rest = &rest[length..];
    }
    later.resize(later.len().next_multiple_of(4), END_OF_OPTIONS);
    assert!(later.len() <= header.len().next_multiple_of(4), "later fragments have no more options");
    later[0] = 0x40 | (later.len() / 4) as u8;
    later
}

#[cfg(test)]
mod tests {
    use super::super::build::ethernet;
    use super::super::segment::word;
    use super::super::{Checksum, Offload, PoolConfig};
    use super::*;
    use crate::ip::UDP;
    use proptest::prelude::*;

    const LINK: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

    fn packet(options: &[u8], at: u16, payload: &[u8]) -> Vec<u8> {
        let packet = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(0x1234, at).options(options);
        packet.protocol(UDP).payload(payload).build()
    }

    fn fragments(frame: &[u8], to: usize) -> Result<Option<Vec<Vec<u8>>>, SegmentError> {
        let mut pool = Pool::new(PoolConfig::default());
        let mut frame = pool.take_filled(frame).expect("the pool has room");
        let mut out = Vec::new();
        let done = pool.fragment(&mut frame, LINK.len(), to, &mut out);
        let bytes = out.iter().map(|fragment| pool.bytes(fragment).to_vec()).collect();
        out.into_iter().for_each(|fragment| pool.give(fragment));
        pool.give(frame);
        assert_eq!(pool.in_use(), 0);
        done.map(|done| done.then_some(bytes))
    }

    proptest! {
        /// RFC 791: the fragments carry the bytes of the packet at their offsets, each with a valid header that fits.
        #[test]
        fn fragments_rebuild_the_packet(
            payload in proptest::collection::vec(any::<u8>(), 0..3000),
            (has_all, has_first) in any::<(bool, bool)>(),
            at in 0..400_u16,
            more: bool,
            to in 68..1600_usize,
        ) {
            // One option that all fragments copy (131, source route), one of the first only (7, record route).
            let of_all: &[u8] = if has_all { &[131, 7, 4, 10, 0, 0, 9, 0] } else { &[] };
            let of_first: &[u8] = if has_first { &[7, 7, 4, 0, 0, 0, 0, 1] } else { &[] };
            let flags = if more { MORE } else { 0 } | at;
            let frame = packet(&[of_first, of_all].concat(), flags, &payload);
            match fragments(&frame, to).expect("the packet is fragmented") {
                None => prop_assert!(frame.len() - LINK.len() <= to),
                Some(parts) => {
                    prop_assert!(frame.len() - LINK.len() > to);
                    let mut carried: Vec<u8> = Vec::new();
                    for (nth, part) in parts.iter().enumerate() {
                        let ip = &part[LINK.len()..];
                        let header = usize::from(ip[0] & 0xf) * 4;
                        prop_assert_eq!(&part[..LINK.len()], &LINK[..]);
                        prop_assert!(ip.len() <= to);
                        prop_assert_eq!(usize::from(word(ip, 2)), ip.len());
                        prop_assert_eq!(fold(sum(&ip[..header])), 0xffff);
                        prop_assert_eq!(usize::from(word(ip, 6) & OFFSET), usize::from(at) + carried.len() / 8);
                        let is_last = nth + 1 == parts.len();
                        prop_assert_eq!(word(ip, 6) & MORE != 0, more || !is_last);
                        let of_first = if nth == 0 { of_first } else { &[] };
                        prop_assert_eq!(&ip[HEADER_BYTES..header], &[of_first, of_all].concat()[..]);
                        carried.extend(&ip[header..]);
                    }
                    prop_assert_eq!(carried, payload);
                }
            }
        }
    }

    proptest! {
        /// Any peer can send any frame.
        #[test]
        fn random_bytes_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            words in 0..16_u8,
            flags in 0..0x4000_u16,
            to: u16,
            network in 0..40_usize,
            (start, offset) in any::<(u8, u8)>(),
        ) {
            if bytes.len() >= network + 8 {
                let length = (bytes.len() - network) as u16;
                bytes[network] = 0x40 | words;
                put(&mut bytes, network + 2, length);
                put(&mut bytes, network + 6, flags);
            }
            let mut pool = Pool::new(PoolConfig::default());
            let mut frame = pool.take_filled(&bytes).expect("the pool has room");
            let checksum = Checksum::Partial { start: start.into(), offset: offset.into() };
            frame.meta.offload = Offload { checksum, gso: None };
            let mut out = Vec::new();
            let done = pool.fragment(&mut frame, network, to.into(), &mut out);
            prop_assert!(done == Ok(true) || out.is_empty());
            out.into_iter().chain([frame]).for_each(|frame| pool.give(frame));
            prop_assert_eq!(pool.in_use(), 0);
        }
    }

    #[test]
    fn unfragmentable_stays_whole() {
        let long = [7; 1000];
        assert_eq!(fragments(&packet(&[], DONT_FRAGMENT, &long), 500), Ok(None));
        let mut v6 = packet(&[], 0, &long);
        v6[LINK.len()] = 0x60;
        assert_eq!(fragments(&v6, 500), Ok(None));
        // Its length field exceeds the frame.
        let cut = packet(&[], 0, &long)[..700].to_vec();
        assert_eq!(fragments(&cut, 500), Ok(None));
        assert_eq!(fragments(&packet(&[], 0, &long), 27), Err(SegmentError::Malformed));
        assert_eq!(fragments(&packet(&[], OFFSET, &long), 500), Err(SegmentError::Malformed));
    }

    /// A device completes the checksum of a whole packet, and cannot complete that of a fragment.
    #[test]
    fn checksum_completed_before_cut() {
        let mut datagram = vec![0, 9, 0, 9, 4, 0, 0, 0];
        datagram.extend([3; 1016]);
        let frame = packet(&[], 0, &datagram);
        let mut pool = Pool::new(PoolConfig::default());
        let mut whole = pool.take_filled(&frame).expect("the pool has room");
        whole.meta.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
        let mut out = Vec::new();
        assert_eq!(pool.fragment(&mut whole, LINK.len(), 600, &mut out), Ok(true));
        assert!(out.iter().all(|part| part.meta.offload == Offload::default()));
        let payload: Vec<u8> = out.iter().flat_map(|part| pool.bytes(part)[34..].to_vec()).collect();
        // The field held no pseudo header sum here: with the checksum, the datagram sums to all ones.
        assert_eq!(fold(sum(&payload)), 0xffff);
        out.into_iter().chain([whole]).for_each(|frame| pool.give(frame));
    }
}
