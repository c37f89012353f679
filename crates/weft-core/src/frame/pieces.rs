//! Splits BIG TCP packets, which exceed the IP length field, into packets that IP can describe.
//!
//! Linux interfaces pass each other packets of up to 512 KiB that stand for many segments. IPv4 then has a total length
//! of 0; IPv6 has a jumbo payload option or a payload length of 0. Such packets never appear on a wire. Source: Linux
//! `include/net/ipv6.h` (`struct hop_jumbo_hdr`), RFC 2675 section 2.

use super::segment::{SegmentError, SegmentPlan, put};
use super::{Checksum, Frame, Offload, Pool};
use crate::ip::{HOP_BY_HOP, IpPacket};

/// The longest such packet, with a link header. Source: Linux `GSO_MAX_SIZE`, 8 times 65,535.
pub const BIG_PACKET_MAX: usize = 8 * 65_535 + 64;
/// Maximum number of pieces of one packet; it needs as many free large buffers.
pub const PIECES_MAX: usize = 16;
/// Maximum length of an IP packet by its header.
pub const IP_PACKET_MAX: usize = 65_535;

const IPV6_HEADER_BYTES: usize = 40;
/// Behind the next-header byte: a header of eight bytes with the jumbo payload option, before the length.
const JUMBO: [u8; 3] = [0, 0xc2, 4];
const JUMBO_BYTES: usize = 8;
const _: () = assert!(BIG_PACKET_MAX <= PIECES_MAX * IP_PACKET_MAX, "the pieces hold the longest packet");

impl Pool {
    /// Appends a GSO packet, which may be longer than 64 KiB, to `out`, as packets of as many segments as IP can
    /// describe: with correct lengths and without a jumbo payload option. `network` is the offset of the IP header.
    /// Only the offload of the new frames' metadata is set.
    ///
    /// # Errors
    /// There are too few buffers, the packet cannot be segmented, or it needs more than [`PIECES_MAX`] pieces. Nothing
    /// is appended then.
    pub fn take_pieces(
        &mut self,
        bytes: &[u8],
        offload: &Offload,
        network: usize,
        out: &mut Vec<Frame>,
    ) -> Result<(), SegmentError> {
        let mut cut = SegmentPlan::new(bytes, offload, network).ok_or(SegmentError::Malformed)?;
        let (head, payload) = bytes.split_at(cut.payload);
        let head = without_jumbo(head, network);
        cut.shift_back(cut.payload - head.len());
        let room = IP_PACKET_MAX.saturating_sub(head.len() - network);
        let step = room / cut.size * cut.size;
        if step == 0 || payload.is_empty() || payload.len().div_ceil(step) > PIECES_MAX {
            return Err(SegmentError::Malformed);
        }
        let first = out.len();
        let mut pieces = payload.chunks(step).enumerate().peekable();
        while let Some((number, payload_of_piece)) = pieces.next() {
            let Some(piece) = self.take(head.len() + payload_of_piece.len()) else {
                out.drain(first..).for_each(|piece| self.give(piece));
                return Err(SegmentError::NoBuffer);
            };
            out.push(piece);
            let piece = out.last_mut().expect("the loop has pushed a piece");
            let to = self.bytes_mut(piece);
            to[..head.len()].copy_from_slice(&head);
            to[head.len()..].copy_from_slice(payload_of_piece);
            cut.fix(to, number * (step / cut.size), pieces.peek().is_none(), payload.len());
            let gso = offload.gso.filter(|_| payload_of_piece.len() > cut.size);
            piece.meta.offload = Offload { checksum: cut.checksum(), gso };
        }
        Ok(())
    }
}

impl SegmentPlan {
    /// Accounts for removed bytes in front of the transport header.
    fn shift_back(&mut self, bytes: usize) {
        self.transport -= bytes;
        self.payload -= bytes;
        self.sum_at -= bytes;
    }

    fn checksum(&self) -> Checksum {
        // Both came from 16-bit words and have not grown.
        Checksum::Partial { start: self.transport as u16, offset: (self.sum_at - self.transport) as u16 }
    }
}

/// The headers without the jumbo payload option, if the first extension header has nothing else.
fn without_jumbo(head: &[u8], network: usize) -> Vec<u8> {
    let (mut head, extension) = (head.to_vec(), network + IPV6_HEADER_BYTES);
    let is_v6 = IpPacket::new(&head[network..]).is_some_and(|packet| !packet.is_v4());
    let is_jumbo =
        is_v6 && head[network + 6] == HOP_BY_HOP && head.get(extension + 1..extension + 4) == Some(&JUMBO);
    if is_jumbo && head.len() >= extension + JUMBO_BYTES {
        head[network + 6] = head[extension];
        head.drain(extension..extension + JUMBO_BYTES);
        put(&mut head, network + 4, 0);
    }
    head
}

#[cfg(test)]
mod tests {
    use super::super::build::ethernet;
    use super::super::{Gso, GsoKind, PoolConfig, network_at};
    use super::*;
    use crate::checksum::{fold, sum};
    use crate::ip::DONT_FRAGMENT;
    use proptest::prelude::*;

    /// A TCP packet with a tag as the kernel passes it, and the offset of its TCP header.
    fn big(is_v6: bool, has_option: bool, payload: usize, mss: u16) -> (Vec<u8>, Offload) {
        let payload: Vec<u8> = (0..payload).map(|at| (at * 7 + at / 251) as u8).collect();
        let link = ethernet().macs([2; 6], [2; 6]).vlan(5);
        let ip = match is_v6 {
            true => link.ipv6([0x20; 16], [0x31; 16]),
            false => link.ipv4([10, 0, 0, 1], [10, 9, 0, 2]).fragment(0xfffe, DONT_FRAGMENT).checksum(0),
        };
        let (ip, start) = (ip.length(0), if is_v6 { 58 } else { 38 });
        let (ip, start) = match is_v6 && has_option {
            true => {
                let jumbo = [&[6, 0, 0xc2, 4][..], &(40 + payload.len() as u32).to_be_bytes()].concat();
                (ip.protocol(HOP_BY_HOP).other(&jumbo), start + 8)
            }
            false => (ip, start),
        };
        let tcp = ip.tcp(1000, 2000).seq(0xffff_fff0, 0x98 | 1).options(&[1; 12]).partial_checksum();
        let frame = tcp.payload(payload).build();
        let kind = if is_v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
        let checksum = Checksum::Partial { start, offset: 16 };
        (frame, Offload { checksum, gso: Some(Gso { kind, size: mss, has_ecn: true }) })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Connections between BIG TCP interfaces would stall, or get wrong bytes.
        #[test]
        fn pieces_keep_bytes_and_headers(
            is_v6: bool,
            has_option: bool,
            payload in prop_oneof![1..3_000usize, 60_000..70_000usize, 1..524_000usize],
            mss in prop_oneof![Just(1_448), 500..9_000u16, Just(60_000)],
        ) {
            let (bytes, offload) = big(is_v6, has_option, payload, mss);
            let mut pool = Pool::new(PoolConfig { small: 4, large: PIECES_MAX as u32 });
            let (network, mut out) = (network_at(&bytes).expect("the packet has an IP header"), Vec::new());
            prop_assert_eq!(pool.take_pieces(&bytes, &offload, network, &mut out), Ok(()));
            let (mut joined, n) = (Vec::<u8>::new(), out.len());
            for (number, piece) in out.into_iter().enumerate() {
                let Checksum::Partial { start, offset } = piece.meta.offload.checksum else {
                    panic!("the checksum is partial")
                };
                let mut finished = piece.meta.offload;
                let ip = &pool.bytes(&piece)[network..];
                if is_v6 {
                    prop_assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
                    prop_assert_eq!(ip[6], 6);
                } else {
                    prop_assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                    prop_assert_eq!(fold(sum(&ip[..20])), 0xffff);
                    let id = 0xfffe_u16.wrapping_add((joined.len() / usize::from(mss)) as u16);
                    prop_assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), id);
                }
                let addresses = if is_v6 { &ip[8..40] } else { &ip[12..20] };
                let addresses = u64::from(fold(sum(addresses)));
                let start = usize::from(start);
                let tcp = &pool.bytes(&piece)[start..];
                let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
                prop_assert_eq!(seq, 0xffff_fff0_u32.wrapping_add(joined.len() as u32));
                prop_assert_eq!(tcp[13] & 0x09 != 0, number + 1 == n);
                prop_assert_eq!(tcp[13] & 0x80 != 0, number == 0);
                joined.extend(&tcp[32..]);
                prop_assert_eq!(offset, 16);
                prop_assert_eq!(piece.meta.offload.gso.is_some(), tcp.len() - 32 > usize::from(mss));
                let length = tcp.len() as u64;
                finished.gso = None;
                prop_assert!(finished.finish_checksum(pool.bytes_mut(&piece)).is_some());
                let whole = u64::from(fold(sum(&pool.bytes(&piece)[start..])));
                prop_assert_eq!(fold(addresses + 6 + length + whole), 0xffff);
                pool.give(piece);
            }
            let from = bytes.len() - payload;
            prop_assert!(joined == bytes[from..]);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }

    /// A wrong offload could stop a worker, or leak a buffer for each such packet.
    #[test]
    fn small_frame_takes_no_buffer() {
        let mut pool = Pool::new(PoolConfig { small: 4, large: 2 });
        let mut out = Vec::new();
        let (bytes, offload) = big(false, false, 200_000, 1_448);
        assert_eq!(pool.take_pieces(&bytes, &offload, 18, &mut out), Err(SegmentError::NoBuffer));
        let (bytes, offload) = big(true, true, 200_000, 65_530);
        assert_eq!(pool.take_pieces(&bytes, &offload, 18, &mut out), Err(SegmentError::Malformed));
        assert_eq!(pool.take_pieces(&bytes, &Offload::NONE, 18, &mut out), Err(SegmentError::Malformed));
        assert_eq!((out.len(), pool.in_use()), (0, 0));
    }
}
