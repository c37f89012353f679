//! Completes offloads in captured packets: a capture of outgoing packets has no virtio-net header that describes them.
//!
//! A host leaves the checksum of TCP and UDP, and sometimes that of IPv4, to its device. The device also segments large
//! packets (TSO); the host then leaves their IP length 0. Sources: Linux
//! `Documentation/networking/checksum-offloads.rst` and `segmentation-offloads.rst`.

use crate::checksum::{fold, sum};
use crate::frame::{Checksum, IP_PACKET_MAX, Offload, ip_at};
use crate::ip::{IpPacket, TCP, UDP};

/// Offsets in an IPv4 header.
const LENGTH_AT: usize = 2;
const CHECKSUM_AT: usize = 10;
/// Offset in an IPv6 header.
const PAYLOAD_LENGTH_AT: usize = 4;

/// The offloads that a packet still needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingOffloads {
    /// A checksum: the IPv4 checksum is 0 and should not be, or the TCP or UDP checksum covers only the pseudo header.
    pub checksum: bool,
    /// The IP length is 0.
    pub length: bool,
}

impl PendingOffloads {
    /// The pending offloads of an Ethernet frame, or of an IP packet without a link header.
    pub fn of(frame: &[u8], is_ip: bool) -> Self {
        let Some(packet) = IpPacket::of_frame(frame, is_ip) else { return Self::default() };
        let lacks_header =
            packet.is_v4() && packet.header()[CHECKSUM_AT..][..2] == [0, 0] && !is_header_right(packet);
        Self {
            checksum: lacks_header || partial_in(packet, 0).is_some(),
            length: packet.length().is_none() && !packet.payload().is_empty(),
        }
    }

    /// Whether any offload is pending.
    pub fn is_any(self) -> bool {
        self.checksum || self.length
    }
}

/// Completes the offloads of a packet, except segmentation: it fills in an IP length of 0 if the length fits, and a
/// wrong IPv4 checksum.
///
/// The result describes what remains. A TCP or UDP checksum over the pseudo header alone is partial; any other checksum
/// counts as valid.
pub fn finish(frame: &mut [u8], is_ip: bool) -> Offload {
    let found = ip_at(frame, is_ip).zip(IpPacket::of_frame(frame, is_ip));
    let Some((network, packet)) = found else { return Offload { checksum: Checksum::Valid, gso: None } };
    let (is_v4, header_bytes, length) = (packet.is_v4(), packet.header().len(), frame.len() - network);
    let fits = packet.length().is_none() && !packet.payload().is_empty() && length <= IP_PACKET_MAX;
    let ip = &mut frame[network..];
    if fits && is_v4 {
        ip[LENGTH_AT..][..2].copy_from_slice(&(length as u16).to_be_bytes());
    } else if fits {
        ip[PAYLOAD_LENGTH_AT..][..2].copy_from_slice(&((length - header_bytes) as u16).to_be_bytes());
    }
    if is_v4 && IpPacket::new(ip).is_some_and(|packet| !is_header_right(packet)) {
        ip[CHECKSUM_AT..][..2].fill(0);
        let checksum = !fold(sum(&ip[..header_bytes]));
        ip[CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
    }
    let partial = IpPacket::new(ip).and_then(|packet| partial_in(packet, network));
    Offload { checksum: partial.unwrap_or(Checksum::Valid), gso: None }
}

fn is_header_right(packet: IpPacket<'_>) -> bool {
    fold(sum(packet.header())) == 0xffff
}

/// The TCP or UDP checksum of a packet, if it covers only the pseudo header. `network` is the offset of the packet.
fn partial_in(packet: IpPacket<'_>, network: usize) -> Option<Checksum> {
    let upper = packet.upper();
    let offset = match upper.protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let field = upper.bytes.get(offset..)?.first_chunk().copied().map(u16::from_be_bytes)?;
    let addresses = u64::from(fold(sum(packet.addresses())));
    let pseudo = addresses + u64::from(upper.protocol) + upper.bytes.len() as u64;
    if upper.part.is_some() || field != fold(pseudo) {
        return None;
    }
    let start = network + packet.header().len() + packet.payload().len() - upper.bytes.len();
    Some(Checksum::Partial { start: u16::try_from(start).ok()?, offset: offset as u16 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::build::{FrameBuilder, ethernet};
    use crate::ip::DONT_FRAGMENT;
    use proptest::prelude::*;

    /// A packet of a host that leaves all offloads to its device, perhaps also the length.
    fn sent(is_framed: bool, is_v4: bool, is_tcp: bool, has_length: bool, payload: usize) -> Vec<u8> {
        let link = if is_framed { ethernet() } else { FrameBuilder::default() };
        let ip = match is_v4 {
            true => link.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(7, DONT_FRAGMENT).checksum(0),
            false => link.ipv6([0x20; 16], [0x31; 16]),
        };
        let ip = if has_length { ip } else { ip.length(0) };
        let upper = if is_tcp { ip.tcp(1, 2) } else { ip.udp(1, 2) };
        upper.partial_checksum().payload(vec![9; payload]).build()
    }

    proptest! {
        /// A capture of outgoing packets would count as damaged, or the completion would damage it.
        #[test]
        fn offloads_are_completed(
            is_v4: bool, is_tcp: bool, is_framed: bool, has_length: bool, payload in 1..3_000usize,
        ) {
            let mut frame = sent(is_framed, is_v4, is_tcp, has_length, payload);
            let lacks = PendingOffloads::of(&frame, !is_framed);
            prop_assert_eq!(lacks, PendingOffloads { checksum: true, length: !has_length });
            let mut offload = finish(&mut frame, !is_framed);
            prop_assert!(offload.checksum.partial_at().is_some());
            prop_assert!(offload.finish_checksum(&mut frame).is_some());
            prop_assert_eq!(PendingOffloads::of(&frame, !is_framed), PendingOffloads::default());
            let packet = IpPacket::of_frame(&frame, !is_framed).expect("an IP packet");
            prop_assert!(packet.is_complete() && (!is_v4 || is_header_right(packet)));
            let (protocol, transport) = (packet.upper().protocol, packet.payload());
            let others = u64::from(protocol) + transport.len() as u64;
            let addresses = u64::from(fold(sum(packet.addresses())));
            prop_assert_eq!(fold(addresses + u64::from(fold(sum(transport))) + others), 0xffff);
            // A completed frame does not change again.
            let before = frame.clone();
            prop_assert_eq!(finish(&mut frame, !is_framed).checksum, Checksum::Valid);
            prop_assert_eq!(frame, before);
        }

        /// A crafted packet could end a replay.
        #[test]
        fn random_frame_never_panics(bytes: Vec<u8>, is_ip: bool) {
            let _ = PendingOffloads::of(&bytes, is_ip);
            let mut bytes = bytes;
            let _ = finish(&mut bytes, is_ip);
        }
    }
}
