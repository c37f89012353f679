//! Native functions on network addresses and domain names.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weft_core::native::{Arg, Call, Ended};

/// The longest text of an address with a port: `[` and eight groups, an IPv4 address in place of two, `]:` and a port.
const ADDRESS_BYTES_MAX: usize = 56;

/// The address alone or with a port, as in `peer`. A zone (`%eth0`) is not allowed.
pub(crate) fn address(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let text = core::str::from_utf8(call.data()).ok().filter(|text| text.len() <= ADDRESS_BYTES_MAX);
    let address = text.and_then(|text| {
        text.parse::<IpAddr>().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
    });
    // `::ffff:10.0.0.1` is the IPv4 node 10.0.0.1 (RFC 4291 section 2.5.5.2).
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V4(address)) => out.extend(address.octets()),
        Some(IpAddr::V6(address)) => out.extend(address.octets()),
        None => return Ended::Null,
    }
    Ended::Bytes
}

/// The address with all bits after the first `bits` cleared, and their number: the form of a CIDR.
pub(crate) fn network(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let &[Arg::Bytes(address), Arg::Int(bits @ 0..)] = call.args else { return Ended::Failed };
    let bits = bits.min(8 * address.len() as i64) as usize;
    out.extend((0..address.len()).map(|at| {
        let n_kept = bits.saturating_sub(8 * at).min(8);
        address[at] & !(0xff_u16 >> n_kept) as u8
    }));
    out.push(bits as u8);
    Ended::Bytes
}

/// Bytes of a name with the lengths of its labels (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a label; a greater length is a compression pointer.
const LABEL_BYTES_MAX: u8 = 63;

/// Decodes a name from labels, each after its length; the last one is empty. NULL if the data is no such name.
pub(crate) fn dns_name(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let mut rest = call.data();
    if rest.len() > NAME_BYTES_MAX {
        return Ended::Null;
    }
    while let [len @ 1..=LABEL_BYTES_MAX, behind @ ..] = rest {
        let Some((label, next)) = behind.split_at_checked(usize::from(*len)) else { return Ended::Null };
        if !out.is_empty() {
            out.push(b'.');
        }
        label.iter().for_each(|byte| push_character(*byte, out));
        rest = next;
    }
    // It ends with an empty label, and nothing may follow.
    if rest == [0] { Ended::Bytes } else { Ended::Null }
}

/// Appends a byte of a label in the textual form of names (RFC 4343 section 2.1).
fn push_character(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'.' | b'\\' => out.extend([b'\\', byte]),
        b'!'..=b'~' => out.push(byte.to_ascii_lowercase()),
        _ => out.extend([b'\\', b'0' + byte / 100, b'0' + byte / 10 % 10, b'0' + byte % 10]),
    }
}

/// The MAC address of a multicast IP address; NULL for other addresses.
pub(crate) fn group_mac(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    match ip(call.data()) {
        Some(IpAddr::V4(of)) if of.is_multicast() => {
            let [_, b, c, d] = of.octets();
            out.extend([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
        }
        Some(IpAddr::V6(of)) if of.is_multicast() => {
            out.extend([0x33, 0x33]);
            out.extend(&of.octets()[12..]);
        }
        _ => return Ended::Null,
    }
    Ended::Bytes
}

/// The solicited-node multicast address of an IPv6 address; NULL for other addresses.
pub(crate) fn solicited_node(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let Some(IpAddr::V6(of)) = ip(call.data()) else { return Ended::Null };
    const PREFIX: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);
    let group = Ipv6Addr::from_bits(PREFIX.to_bits() | of.to_bits() & 0xff_ffff);
    out.extend(group.octets());
    Ended::Bytes
}

/// Kind and length of the TCP option with the maximum segment size.
const MSS: [u8; 2] = [2, 4];
/// Options of one byte: the end of the list, and padding.
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// The options with the maximum segment size limited. Malformed options stay as they are.
pub(crate) fn mss_at_most(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let &[Arg::Bytes(options), Arg::Int(most)] = call.args else { return Ended::Failed };
    let begun = out.len();
    out.extend(options);
    let mut rest = &mut out[begun..];
    while let [kind, behind @ ..] = rest {
        let len = match (*kind, behind.first()) {
            (END_OF_OPTIONS, _) | (_, None) => break,
            (NO_OPERATION, _) => 1,
            (_, Some(len)) => usize::from(*len),
        };
        if len == 0 || len > rest.len() || (len == 1 && rest[0] != NO_OPERATION) {
            break;
        }
        if rest[..2.min(len)] == MSS {
            let said = i64::from(u16::from_be_bytes([rest[2], rest[3]]));
            let less = said.min(most.clamp(0, u16::MAX.into())) as u16;
            rest[2..4].copy_from_slice(&less.to_be_bytes());
        }
        rest = &mut rest[len..];
    }
    Ended::Bytes
}

/// Reads an IP address of 4 or 16 bytes; None for other lengths.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(|of| IpAddr::V4(Ipv4Addr::from_octets(of)));
    let v6 = || <[u8; 16]>::try_from(bytes).map(|of| IpAddr::V6(Ipv6Addr::from_octets(of)));
    v4().or_else(|_| v6()).ok()
}
