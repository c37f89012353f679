//! Names of protocols, services, messages and flags, as nft and iptables print them.

use super::Fault;
use super::rule::Answer;
use super::tokens::Token;
use core::str::FromStr;

/// Ports: a number, a range with `between`, or the name of a service. With `:`, either end may be left out.
///
/// # Errors
/// The text is none of these.
pub(crate) fn ports(at: &Token<'_>, text: &str, between: char) -> Result<(u16, u16), Fault> {
    let one = |text: &str| named(SERVICES, text).or_else(|| number(text));
    let end = |text: &str, end: u16| if between == ':' && text.is_empty() { Some(end) } else { one(text) };
    let range = || {
        let (low, high) = text.split_once(between)?;
        let (low, high) = (end(low, 0)?, end(high, u16::MAX)?);
        (low <= high).then_some((low, high))
    };
    one(text).map(|port| (port, port)).or_else(range).ok_or_else(|| is_no(at, text, "port or port range"))
}

/// The number of a protocol that IP carries.
///
/// # Errors
/// The text is not a protocol, or no row can have this protocol.
pub(crate) fn protocol(at: &Token<'_>) -> Result<u8, Fault> {
    match named(PROTOCOLS, at.text).or_else(|| number(at.text)) {
        Some(AH) => {
            Err(at.fault("AH (51) is not supported: a packet in AH counts as its payload here, such as TCP"))
        }
        Some(number) => Ok(number),
        None => Err(is_no(at, at.text, "protocol")),
    }
}

/// An IPv6 next-header number; extension headers are included.
///
/// # Errors
/// The text is not a next header.
pub(crate) fn next_header(at: &Token<'_>) -> Result<u8, Fault> {
    let known = named(EXTENSION_HEADERS, at.text).or_else(|| named(PROTOCOLS, at.text));
    known.or_else(|| number(at.text)).ok_or_else(|| is_no(at, at.text, "protocol"))
}

/// The reply to the sender of a rejected packet, by name. `kind` is `icmp`, `icmpv6`, or `icmpx` for both.
///
/// # Errors
/// There is no such name.
pub(crate) fn answer(kind: &str, at: &Token<'_>) -> Result<Answer, Fault> {
    let usual = Answer::default();
    Ok(match (kind, at.text) {
        ("icmp", _) => Answer { code: icmp_code(at, false)?, ..usual },
        ("icmpv6", _) => Answer { code6: icmp_code(at, true)?, ..usual },
        (_, "port-unreachable") => usual,
        (_, "admin-prohibited") => Answer { code: 13, code6: 1 },
        (_, "no-route") => Answer { code: 0, code6: 0 },
        (_, "host-unreachable") => Answer { code: 1, code6: 3 },
        (_, other) => return Err(at.fault(format!("`{other}` is not a way to reject"))),
    })
}

/// The code of an ICMP message: a number, or the name of a destination-unreachable code.
///
/// # Errors
/// The text is not a code.
pub(crate) fn icmp_code(at: &Token<'_>, is_v6: bool) -> Result<u8, Fault> {
    let names = if is_v6 { ICMPV6_CODES } else { ICMP_CODES };
    named(names, at.text).or_else(|| number(at.text)).ok_or_else(|| is_no(at, at.text, "message code"))
}

/// The type of an ICMP message.
///
/// # Errors
/// The text is not a type.
pub(crate) fn icmp_type(at: &Token<'_>, is_v6: bool) -> Result<u8, Fault> {
    let names = if is_v6 { ICMPV6_TYPES } else { ICMP_TYPES };
    named(names, at.text).or_else(|| number(at.text)).ok_or_else(|| is_no(at, at.text, "message type"))
}

/// A TCP flag by name, or several as a number.
pub(crate) fn tcp_flag(text: &str) -> Option<u8> {
    let named = TCP_FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, bit)| *bit);
    named.or_else(|| match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => number(text),
    })
}

/// Looks up a name in a table of names and numbers.
pub(crate) fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == text).map(|(_, number)| *number)
}

/// Reads a decimal number as iptables and nft print it. `None` for a leading 0, which both read as octal.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_decimal =
        text.bytes().all(|digit| digit.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if is_decimal { text.parse().ok() } else { None }
}

/// The fault for a text that is not a `what`.
fn is_no(at: &Token<'_>, text: &str, what: &str) -> Fault {
    let is_octal = text.len() > 1 && text.starts_with('0');
    let hint = if is_octal { ": write numbers without 0 in front" } else { "" };
    at.fault(format!("`{text}` is not a {what}{hint}"))
}

/// The protocol number of the authentication header.
const AH: u8 = 51;

const TCP_FLAGS: &[(&str, u8)] = &[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ecn", 0x40),
    ("ece", 0x40),
    ("cwr", 0x80),
    ("all", 0x3f),
    ("none", 0),
];

const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", AH),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("ospf", 89),
    ("sctp", 132),
    ("udplite", 136),
];

/// The names of `/etc/protocols`, which nft prints.
const EXTENSION_HEADERS: &[(&str, u8)] = &[
    ("ip", 0),
    ("hopopt", 0),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("mobility-header", 135),
];

const SERVICES: &[(&str, u16)] = &[
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap2", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("https", 443),
    ("syslog", 514),
    ("imaps", 993),
    ("pop3s", 995),
];

const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

const ICMPV6_TYPES: &[(&str, u8)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("router-solicitation", 133),
    ("nd-router-advert", 134),
    ("router-advertisement", 134),
    ("nd-neighbor-solicit", 135),
    ("neighbour-solicitation", 135),
    ("nd-neighbor-advert", 136),
    ("neighbour-advertisement", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];

const ICMP_CODES: &[(&str, u8)] = &[
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];

const ICMPV6_CODES: &[(&str, u8)] = &[
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("addr-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];
