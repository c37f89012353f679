//! The offloads of a packet, as in the virtio-net header.

use crate::checksum::{fold, sum};

/// Bytes of the virtio-net header that [`Offload::to_virtio`] writes.
/// Source: virtio 1.2, section 5.1.6, without `num_buffers`; Linux `struct virtio_net_hdr`.
pub const VIRTIO_HEADER_BYTES: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The offloads that a sender requested, or that the receiver has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum of the transport header.
    pub checksum: Checksum,
    /// How to segment the packet, if it stands for several.
    pub gso: Option<Gso>,
}

impl Offload {
    /// No offload is requested, and nothing is known.
    pub const NONE: Self = Self { checksum: Checksum::Unknown, gso: None };
}

/// The state of the transport checksum. Compiled code reads it, so the layout is fixed: the first 16-bit word holds the
/// variant, the next ones its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Checksum {
    /// Unknown: the packet holds some checksum.
    #[default]
    Unknown,
    /// The receiver has verified it, or the packet never left the machine.
    Valid,
    /// The field holds only the sum of the pseudo header; the sending device adds the rest.
    Partial {
        /// The first byte that it covers; it covers the rest of the packet.
        start: u16,
        /// The offset of the field from `start`.
        offset: u16,
    },
}

/// Bytes of the Ethernet header and of the shortest IPv4 header.
const LINK_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const _: () = assert!(GSO_TCPV4 & GSO_ECN == 0 && GSO_TCPV6 & GSO_ECN == 0 && GSO_UDP_L4 & GSO_ECN == 0);

impl Checksum {
    /// The position of a checksum that a device still has to complete; None if there is none.
    #[inline]
    pub fn partial_at(self) -> Option<u64> {
        match self {
            Self::Partial { start, offset } => Some(u64::from(start) + u64::from(offset)),
            Self::Unknown | Self::Valid => None,
        }
    }
}

/// A packet that stands for several segments. Devices can segment packets of link, IP and transport headers only.
/// Segment the packet before it enters a tunnel ([`super::Pool::segment`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// The kind of segments.
    pub kind: GsoKind,
    /// Payload bytes of each segment but the last; at least 1.
    pub size: u16,
    /// Only the first segment keeps CWR.
    pub has_ecn: bool,
}

/// The kind of segments of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of one size.
    Udp,
}

/// A virtio-net header with a segment kind that was not negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioError {
    /// The value of `gso_type`.
    pub gso_type: u8,
}

impl Offload {
    /// Whether no offload is pending.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.gso.is_none() && !matches!(self.checksum, Checksum::Partial { .. })
    }

    /// Reads a virtio-net header in native byte order.
    ///
    /// # Errors
    /// The kind of segments was not negotiated.
    pub fn from_virtio(header: &[u8; VIRTIO_HEADER_BYTES]) -> Result<Self, VirtioError> {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let checksum = match header[0] {
            flags if flags & FLAG_NEEDS_CSUM != 0 => Checksum::Partial { start: word(6), offset: word(8) },
            flags if flags & FLAG_DATA_VALID != 0 => Checksum::Valid,
            _ => Checksum::Unknown,
        };
        let kind = match header[1] & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCPV4 => Some(GsoKind::TcpV4),
            GSO_TCPV6 => Some(GsoKind::TcpV6),
            GSO_UDP_L4 => Some(GsoKind::Udp),
            _ => return Err(VirtioError { gso_type: header[1] }),
        };
        let (size, has_ecn) = (word(4), header[1] & GSO_ECN != 0);
        Ok(Self { checksum, gso: kind.filter(|_| size > 0).map(|kind| Gso { kind, size, has_ecn }) })
    }

    /// The virtio-net header of these offloads, in native byte order. The header length is left 0: it is only a hint.
    pub fn to_virtio(&self) -> [u8; VIRTIO_HEADER_BYTES] {
        let mut header = [0; VIRTIO_HEADER_BYTES];
        match self.checksum {
            Checksum::Unknown => (),
            Checksum::Valid => header[0] = FLAG_DATA_VALID,
            Checksum::Partial { start, offset } => {
                header[0] = FLAG_NEEDS_CSUM;
                header[6..8].copy_from_slice(&start.to_ne_bytes());
                header[8..10].copy_from_slice(&offset.to_ne_bytes());
            }
        }
        if let Some(gso) = self.gso {
            let kind = match gso.kind {
                GsoKind::TcpV4 => GSO_TCPV4,
                GsoKind::TcpV6 => GSO_TCPV6,
                GsoKind::Udp => GSO_UDP_L4,
            };
            header[1] = if gso.has_ecn { kind | GSO_ECN } else { kind };
            header[4..6].copy_from_slice(&gso.size.to_ne_bytes());
        }
        header
    }

    /// Completes a partial checksum and writes the field. `None` if the field is outside the packet, which is then
    /// unchanged. Source: RFC 1071; a sum of zero is written as all ones, as RFC 768 requires and TCP allows.
    pub fn finish_checksum(&mut self, packet: &mut [u8]) -> Option<()> {
        let Checksum::Partial { start, offset } = self.checksum else { return Some(()) };
        let (start, offset) = (usize::from(start), usize::from(offset));
        let covered = packet.get_mut(start..)?;
        if offset + 2 > covered.len() {
            return None;
        }
        let sum = !fold(sum(covered));
        let sum = if sum == 0 { 0xffff } else { sum };
        covered[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
        self.checksum = Checksum::Valid;
        Some(())
    }

    /// Adjusts the offloads after `n` bytes were inserted before byte `at`.
    #[inline]
    pub(super) fn inserted(&mut self, at: usize, n: usize) {
        let Checksum::Partial { start, offset } = &mut self.checksum else { return };
        let moved = if at <= usize::from(*start) {
            start
        } else if at <= usize::from(*start) + usize::from(*offset) {
            offset
        } else {
            return;
        };
        match u16::try_from(usize::from(*moved) + n) {
            Ok(place) => *moved = place,
            // No packet that can be sent has such an offset: drop the checksum state.
            Err(_) => *self = Self::default(),
        }
    }

    /// Adjusts the offloads after `n` bytes were removed from byte `at` on.
    #[inline]
    pub(super) fn removed(&mut self, at: usize, n: usize) {
        // An IP header may be gone for which the checksum was verified; the one behind it may be wrong.
        if self.checksum == Checksum::Valid && at + n >= LINK_BYTES + IPV4_BYTES {
            self.checksum = Checksum::Unknown;
        }
        let Checksum::Partial { start, offset } = &mut self.checksum else { return };
        let (first, field, end) = (usize::from(*start), usize::from(*start) + usize::from(*offset), at + n);
        if end <= first {
            *start -= n as u16;
        } else if at > first && end <= field {
            *offset -= n as u16;
        } else if at <= field + 1 {
            // The header with the checksum field was cut: nothing remains to complete.
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_removal_resets_offload() {
        // A packet from a tunnel would pass as verified without a check.
        let valid = Offload { checksum: Checksum::Valid, gso: None };
        let behind = |at, n| {
            let mut offload = valid;
            offload.removed(at, n);
            offload.checksum
        };
        assert_eq!(behind(12, 4), Checksum::Valid, "a tag");
        assert_eq!(behind(0, 18), Checksum::Valid, "the link");
        assert_eq!(behind(0, 50), Checksum::Unknown, "a tunnel");
        assert_eq!(behind(14, 36), Checksum::Unknown, "a tunnel behind the link");
    }

    #[test]
    fn virtio_header_round_trips() {
        // The kernel would get other offloads than it gave us.
        let checksums = [Checksum::Unknown, Checksum::Valid, Checksum::Partial { start: 34, offset: 6 }];
        let kinds = [None, Some(GsoKind::TcpV4), Some(GsoKind::TcpV6), Some(GsoKind::Udp)];
        for checksum in checksums {
            for (kind, has_ecn) in kinds.iter().flat_map(|kind| [(*kind, false), (*kind, true)]) {
                let offload = Offload { checksum, gso: kind.map(|kind| Gso { kind, size: 1448, has_ecn }) };
                assert_eq!(Offload::from_virtio(&offload.to_virtio()), Ok(offload));
            }
        }
        let mut unknown = Offload::default().to_virtio();
        unknown[1] = 3;
        assert_eq!(Offload::from_virtio(&unknown), Err(VirtioError { gso_type: 3 }));
    }

    #[test]
    fn partial_checksum_matches_rfc_1071() {
        // A receiver would drop packets from a device without offloads. UDP 10.0.0.1:1 -> 10.0.0.2:2 with the payload
        // "abc"; the field holds the sum of the pseudo header.
        let mut packet = vec![0xee; 20];
        packet.extend([0, 1, 0, 2, 0, 11, 0x14, 0x1f]);
        packet.extend(b"abc");
        let mut offload = Offload { checksum: Checksum::Partial { start: 20, offset: 6 }, gso: None };
        let mut slow = 0x141f_u32 + 1 + 2 + 11 + 0x6162 + 0x6300;
        slow = (slow & 0xffff) + (slow >> 16);
        assert_eq!(offload.finish_checksum(&mut packet), Some(()));
        assert_eq!(packet[26..28], (!(slow as u16)).to_be_bytes());
        assert_eq!(offload.checksum, Checksum::Valid);

        let mut beyond = Offload { checksum: Checksum::Partial { start: 25, offset: 5 }, gso: None };
        assert_eq!(beyond.finish_checksum(&mut packet), None);
        beyond.checksum = Checksum::Partial { start: 65_000, offset: 0 };
        assert_eq!(beyond.finish_checksum(&mut packet), None);
    }
}
