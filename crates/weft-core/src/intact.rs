//! Whether what an IP packet carries came as it was sent: the checksum of its transport header.

use crate::checksum::{fold, sum};
use crate::frame::{Checksum, Offload};
use crate::ip::IpPacket;
use crate::wire::eval::crc32c_on;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_HEADER_BYTES: usize = 8;
const SCTP_HEADER_BYTES: usize = 12;

/// Whether the checksum of TCP, UDP, ICMP, ICMPv6 or SCTP comes out right, in an Ethernet frame or an IP packet without
/// a link header. So it does where nobody can tell: in fragments, behind headers that are not known, where the sender
/// has left it out (UDP), or a device is still to make it; and where the receiver has found it right already.
/// Source: RFC 9293 section 3.1, RFC 768, RFC 792, RFC 4443 section 2.3, RFC 9260 section 6.8.
pub fn is_intact(frame: &[u8], offload: &Offload, is_ip: bool) -> bool {
    if offload.checksum != Checksum::Unknown {
        return true;
    }
    IpPacket::of_frame(frame, is_ip).is_none_or(is_right)
}

fn is_right(packet: IpPacket<'_>) -> bool {
    let upper = packet.upper();
    if !packet.is_complete() || upper.part.is_some() || !upper.is_at_last_hop {
        return true;
    }
    let bytes = upper.bytes;
    let with_pseudo = |bytes: &[u8]| {
        let others = bytes.len() as u64 + u64::from(upper.protocol);
        let sums = [sum(packet.addresses()), sum(bytes)].map(|sum| u64::from(fold(sum)));
        fold(sums[0] + sums[1] + others) == 0xffff
    };
    match upper.protocol {
        TCP | ICMPV6 => with_pseudo(bytes),
        ICMP => fold(sum(bytes)) == 0xffff,
        UDP => match bytes {
            [_, _, _, _, _, _, 0, 0, ..] => true,
            [_, _, _, _, high, low, ..] => {
                // The datagram says itself how long it is.
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                bytes.get(..length).is_some_and(|bytes| length >= UDP_HEADER_BYTES && with_pseudo(bytes))
            }
            _ => false,
        },
        SCTP => bytes.split_at_checked(SCTP_HEADER_BYTES).is_some_and(|(header, chunks)| {
            let crc = [&header[..8], &[0; 4], chunks].into_iter().fold(u32::MAX, crc32c_on);
            (!crc).to_le_bytes() == header[8..]
        }),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// An IP packet with the right checksum; `at` is where its checksum is, behind the header.
    fn packet(is_v4: bool, protocol: u8, at: usize, body: &[u8]) -> Vec<u8> {
        let mut packet = match is_v4 {
            true => vec![
                0x45,
                0,
                0,
                20 + body.len() as u8,
                0,
                7,
                0,
                0,
                64,
                protocol,
                0,
                0,
                10,
                0,
                0,
                1,
                10,
                0,
                0,
                2,
            ],
            false => {
                [&[0x60, 0, 0, 0, 0, body.len() as u8, protocol, 64][..], &[0x20; 16], &[0x31; 16]].concat()
            }
        };
        let (header, addresses) = if is_v4 { (20, 12..20) } else { (40, 8..40) };
        packet.extend(body);
        let end = header + at + if protocol == SCTP { 4 } else { 2 };
        packet[header + at..end].fill(0);
        if protocol == SCTP {
            let crc = !crc32c_on(u32::MAX, &packet[header..]);
            packet[header + at..end].copy_from_slice(&crc.to_le_bytes());
            return packet;
        }
        let pseudo = [&packet[addresses], &[0, protocol, 0, body.len() as u8]].concat();
        let pseudo = if protocol == ICMP { Vec::new() } else { pseudo };
        let checksum = !fold(sum(&[&pseudo[..], &packet[header..]].concat()));
        let checksum = if protocol == UDP && checksum == 0 { 0xffff } else { checksum };
        packet[header + at..end].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// A check that lets damage pass is none, and one that finds some where there is none cuts connections.
    #[test]
    fn damage_is_found_wherever_it_is() {
        let mut dice = Dice::from_seed(3);
        for nth in 0..2_000 {
            let is_v4 = nth % 2 == 0;
            let all = [(TCP, 16, 20), (UDP, 6, 8), (if is_v4 { ICMP } else { ICMPV6 }, 2, 8), (SCTP, 8, 12)];
            let (protocol, at, header) = dice.pick(&all);
            let mut body: Vec<u8> = (0..header + dice.below(20)).map(|_| dice.bits() as u8).collect();
            if protocol == UDP {
                let length = body.len() as u16;
                body[4..6].copy_from_slice(&length.to_be_bytes());
            }
            let mut packet = packet(is_v4, protocol, at, &body);
            let ends = |packet: &[u8], offload: &Offload| {
                let framed = [&[0; 12][..], if is_v4 { &[8, 0] } else { &[0x86, 0xdd] }, packet].concat();
                // What a link fills a frame up with is not of the packet.
                let padded = [&framed[..], &[7; 9]].concat();
                let ends = is_intact(packet, offload, true);
                assert_eq!(
                    (ends, ends),
                    (is_intact(&framed, offload, false), is_intact(&padded, offload, false))
                );
                ends
            };
            assert!(ends(&packet, &Offload::NONE), "{packet:02x?}");
            let begin = if is_v4 { 20 } else { 40 };
            let at = begin + dice.below(packet.len() - begin);
            let is_length = protocol == UDP && (at - begin == 4 || at - begin == 5);
            packet[at] ^= 1 << dice.below(8);
            if !is_length {
                assert!(!ends(&packet, &Offload::NONE), "byte {at} of {packet:02x?}");
            }
            for checksum in [Checksum::Valid, Checksum::Partial { start: begin as u16, offset: 6 }] {
                assert!(ends(&packet, &Offload { checksum, gso: None }));
            }
            // A fragment says nothing, and neither does what is cut.
            if is_v4 {
                packet[6] = 0x20;
                assert!(ends(&packet, &Offload::NONE));
            }
            (0..packet.len()).for_each(|cut| _ = is_intact(&packet[..cut], &Offload::NONE, true));
        }
    }

    #[test]
    fn what_stands_between_is_passed_over() {
        let offload = Offload::NONE;
        let udp = packet(false, UDP, 6, &[0, 1, 0, 2, 0, 9, 0, 0, b'x']);
        let with = |next: u8, header: &[u8]| {
            let mut with = udp.clone();
            (with[5], with[6]) = (udp[5] + header.len() as u8, next);
            with.splice(40..40, header.iter().copied());
            with
        };
        let headers: [(u8, &[u8]); 5] = [
            (0, &[UDP, 0, 1, 4, 0, 0, 0, 0]),
            (60, &[UDP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (43, &[UDP, 0, 0, 0, 0, 0, 0, 0]),
            (44, &[UDP, 0, 0, 0, 0, 0, 0, 9]),
            (51, &[UDP, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
        ];
        for (next, header) in headers {
            let mut packet = with(next, header);
            assert!(is_intact(&packet, &offload, true), "behind {next}");
            *packet.last_mut().expect("it has data") ^= 1;
            assert!(!is_intact(&packet, &offload, true), "behind {next}");
        }
        // Authentication stands behind IPv4, too.
        let tcp =
            packet(true, TCP, 16, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 9, 0, 0, 0, 0, b'x']);
        let mut behind = tcp.clone();
        (behind[3], behind[9]) = (tcp[3] + 16, 51);
        behind.splice(20..20, [TCP, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(is_intact(&behind, &offload, true));
        *behind.last_mut().expect("it has data") ^= 1;
        assert!(!is_intact(&behind, &offload, true));
        // Of a fragment, and of a packet whose last destination is elsewhere, nobody can tell.
        for (next, header) in [(44, [UDP, 0, 0, 1, 0, 0, 0, 9]), (43, [UDP, 0, 0, 1, 0, 0, 0, 0])] {
            let mut packet = with(next, &header);
            *packet.last_mut().expect("it has data") ^= 1;
            assert!(is_intact(&packet, &offload, true));
        }
    }
}
