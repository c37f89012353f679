//! What tells the flows of packets apart: addresses, protocol and ports, as queues and tunnels see them.

use crate::frame::network_at;
use crate::hash::{hash_bytes, hash_word, mix};

const IPV4: u8 = 4;
const IPV6: u8 = 6;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// Extension headers of IPv6 that say how long they are, and of fragments.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
const FRAGMENT: u8 = 44;
/// Extension headers behind which ports are looked for.
const EXTENSIONS_MAX: usize = 8;

/// The flow of a packet: hashes of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Of addresses, protocol and ports.
    pub flow: u32,
    /// Of the source address.
    pub src: u32,
    /// Of the destination.
    pub dst: u32,
    /// The codepoints of IP: DSCP, and ECN in the lowest two bits.
    pub traffic_class: u8,
}

/// The flow of an Ethernet frame, or of an IP packet without a link header. Fragments have the flow of their addresses
/// and protocol, the first like those that know no ports, so that they stay in one line; so has what is neither TCP,
/// UDP nor SCTP. Of what is no IP packet, the first 14 bytes are the flow.
pub fn flow_of(frame: &[u8], is_ip: bool) -> Flow {
    let network = if is_ip { Some(0) } else { network_at(frame) };
    match network.and_then(|at| frame.get(at..)).and_then(Ip::read) {
        Some(ip) => ip.flow(),
        None => {
            let link = (hash_bytes(frame.get(..14).unwrap_or(frame)) >> 32) as u32;
            Flow { flow: link, src: link, dst: link, traffic_class: 0 }
        }
    }
}

/// The parts of an IP packet that tell its flow.
struct Ip<'f> {
    traffic_class: u8,
    protocol: u8,
    src: &'f [u8],
    dst: &'f [u8],
    ports: Option<&'f [u8]>,
}

impl<'f> Ip<'f> {
    fn read(packet: &'f [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            IPV4 => {
                let header_bytes = usize::from(packet[0] & 15) * 4;
                // More fragments, and the offset of this one.
                let is_whole = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff == 0;
                Some(Self {
                    traffic_class: packet[1],
                    protocol: *packet.get(9)?,
                    src: packet.get(12..16)?,
                    dst: packet.get(16..20)?,
                    ports: packet.get(header_bytes..header_bytes + 4).filter(|_| is_whole),
                })
            }
            IPV6 => {
                let (protocol, ports) = behind_extensions(*packet.get(6)?, packet.get(40..)?);
                Some(Self {
                    traffic_class: packet[0] << 4 | packet.get(1)? >> 4,
                    protocol,
                    src: packet.get(8..24)?,
                    dst: packet.get(24..40)?,
                    ports,
                })
            }
            _ => None,
        }
    }

    fn flow(&self) -> Flow {
        let (src, dst) = (hash_bytes(self.src), hash_bytes(self.dst));
        let ports = match (self.protocol, self.ports) {
            (TCP | UDP | SCTP, Some(ports)) => hash_bytes(ports),
            _ => 0,
        };
        let flow = mix(mix(mix(hash_word(u64::from(self.protocol)), src), dst), ports);
        let upper = |hash: u64| (hash >> 32) as u32;
        Flow { flow: upper(flow), src: upper(src), dst: upper(dst), traffic_class: self.traffic_class }
    }
}

/// What stands behind the extension headers of IPv6 (RFC 8200 section 4), and its ports unless it is a fragment.
fn behind_extensions(first: u8, bytes: &[u8]) -> (u8, Option<&[u8]>) {
    let (mut protocol, mut rest) = (first, bytes);
    for _ in 0..EXTENSIONS_MAX {
        let (HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT, [next, more, ..]) = (protocol, rest) else {
            break;
        };
        if protocol == FRAGMENT {
            return (*next, None);
        }
        (protocol, rest) = (*next, rest.get(8 * (usize::from(*more) + 1)..).unwrap_or_default());
    }
    (protocol, rest.get(..4))
}
