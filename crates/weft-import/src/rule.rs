//! A rule: its conditions, and the rows that it becomes.

use super::net::Net;
use super::tokens::Token;
use super::{Fault, Hook, ROWS_MAX, ROWS_OF_RULE_MAX};
use core::fmt;

/// The verdict on a packet; the discriminant is the number in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is dropped.
    #[default]
    Drop = 0,
    /// The packet passes.
    Accept = 1,
    /// The packet is dropped, and its sender gets an ICMP error.
    Reject = 2,
    /// The packet is dropped, and its sender gets a TCP reset.
    Reset = 3,
}

/// The destination-unreachable code that the sender of a rejected packet gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For ICMP, type 3.
    pub code: u8,
    /// For ICMPv6, type 1.
    pub code6: u8,
}

impl Default for Answer {
    /// Port unreachable.
    fn default() -> Self {
        Self { code: 3, code6: 4 }
    }
}

/// TCP flags, by their bits in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The flags that are set.
    pub bits: u8,
    /// The flags that are compared.
    pub mask: u8,
}

/// A row of the table; `None` is NULL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The input port.
    pub at: Option<String>,
    /// The output port; `*` for a packet that leaves by several ports.
    pub out: Option<String>,
    /// The source network.
    pub src: Option<Net>,
    /// The destination network.
    pub dst: Option<Net>,
    /// The protocol number in the IP header.
    pub protocol: Option<u8>,
    /// The next-header number in the first IPv6 header.
    pub next_header: Option<u8>,
    /// Source ports, inclusive.
    pub src_ports: (u16, u16),
    /// Destination ports, inclusive.
    pub dst_ports: (u16, u16),
    /// The type of an ICMP message.
    pub icmp: Option<u8>,
    /// The code of an ICMP message.
    pub icmp_code: Option<u8>,
    /// TCP flags: `FIN` is 1, `SYN` 2, `RST` 4, as in the header.
    pub flags: Option<Flags>,
    /// The connection state: its position among new, established, related, invalid and untracked, from 1.
    pub state: Option<u8>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reply to the sender of a rejected packet.
    pub answer: Answer,
    /// The origin of the row: the rule's comment, or its line.
    pub note: String,
}

/// An address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Family {
    #[default]
    Any,
    V4,
    V6,
}

/// The allowed values; `None` for any.
type Allowed<T> = Option<Vec<T>>;

/// The conditions of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub(crate) family: Family,
    pub(crate) at: Allowed<String>,
    pub(crate) out: Allowed<String>,
    pub(crate) src: Allowed<Net>,
    pub(crate) dst: Allowed<Net>,
    pub(crate) protocols: Allowed<u8>,
    pub(crate) next_headers: Allowed<u8>,
    pub(crate) src_ports: Allowed<(u16, u16)>,
    pub(crate) dst_ports: Allowed<(u16, u16)>,
    pub(crate) icmp: Allowed<u8>,
    pub(crate) icmp_codes: Allowed<u8>,
    pub(crate) flags: Allowed<Flags>,
    pub(crate) states: Allowed<u8>,
    pub(crate) comment: Option<String>,
    /// No packet matches.
    pub(crate) is_never: bool,
    /// The rule combines sets that are too large to intersect.
    pub(crate) is_too_long: bool,
}

/// The end of a packet's path that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl Side {
    /// Returns the accessor of this side's networks in a rule.
    fn networks(self) -> fn(&mut Rule) -> &mut Allowed<Net> {
        match self {
            Self::Source => |rule| &mut rule.src,
            Self::Destination => |rule| &mut rule.dst,
        }
    }

    /// Returns the accessor of this side's ports in a rule.
    fn ports(self) -> fn(&mut Rule) -> &mut Allowed<(u16, u16)> {
        match self {
            Self::Source => |rule| &mut rule.src_ports,
            Self::Destination => |rule| &mut rule.dst_ports,
        }
    }
}

/// The output port in rows for packets that leave by several ports.
const SEVERAL_PORTS: &str = "*";
const ALL_PORTS: (u16, u16) = (0, u16::MAX);
const NOTE_BYTES_MAX: usize = 64;
/// Maximum number of value pairs that are compared to intersect two sets.
const PAIRS_MAX: usize = 1 << 20;
/// The reason of a fault for sets that are too large.
pub(crate) const TOO_LONG: &str = "a field is tested against sets that are too large to combine";
/// Connection states; the library's `ruleset` numbers them from 1.
const STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];

impl Flags {
    /// The intersection.
    fn both(&self, other: &Self) -> Option<Self> {
        let agree = (self.bits ^ other.bits) & self.mask & other.mask == 0;
        agree.then_some(Self { bits: self.bits | other.bits, mask: self.mask | other.mask })
    }

    /// The complement: for each flag, the previous flags as they are, and this flag inverted.
    fn others(self) -> Vec<Self> {
        let other = |bit: u8| {
            let mask = self.mask & (bit | (bit - 1));
            Self { bits: (self.bits ^ bit) & mask, mask }
        };
        (0..8).map(|nth| 1 << nth).filter(|bit| self.mask & bit != 0).map(other).collect()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
        let net = |net: Option<Net>| or_null(net.map(|net| quoted(&net.to_string())));
        let number = |n: Option<u8>| or_null(n.map(|n| n.to_string()));
        let flags = self.flags.map_or(0, |flags| flags.bits);
        let ((src_low, src_high), (dst_low, dst_high)) = (self.src_ports, self.dst_ports);
        write!(
            f,
            "{}, {}, {}, {}, {}, {}, {src_low}, {src_high}, {dst_low}, {dst_high}, {}, {}, {flags}, {}, {}, {}, {}, \
             {}, {}",
            or_null(self.at.as_deref().map(quoted)),
            or_null(self.out.as_deref().map(quoted)),
            net(self.src),
            net(self.dst),
            number(self.protocol),
            number(self.next_header),
            number(self.icmp),
            number(self.icmp_code),
            number(self.flags.map(|flags| flags.mask)),
            number(self.state),
            self.verdict as u8,
            self.answer.code,
            self.answer.code6,
            quoted(&self.note),
        )
    }
}

impl Rule {
    /// Restricts the rule to a family.
    pub(crate) fn only(&mut self, family: Family) {
        if self.family != Family::Any && self.family != family {
            self.is_never = true;
        }
        self.family = family;
    }

    /// Restricts the rule to these protocols, or to all others.
    pub(crate) fn protocols(&mut self, wanted: &[u8], negated: bool) {
        let all = self.protocols.take().unwrap_or_else(|| match negated {
            false => wanted.to_vec(),
            true => (0..=u8::MAX).collect(),
        });
        self.protocols = Some(all.into_iter().filter(|known| wanted.contains(known) != negated).collect());
    }

    /// Restricts the rule to TCP packets that match one of these flag sets, or none.
    pub(crate) fn flags(&mut self, some: &[Flags], negated: bool) {
        self.protocols(&[TCP], false);
        let some = some.iter().filter(|flags| flags.bits & !flags.mask == 0);
        if negated {
            some.for_each(|flags| self.narrow(|rule| &mut rule.flags, flags.others(), Flags::both));
        } else {
            self.narrow(|rule| &mut rule.flags, some.copied().collect(), Flags::both);
        }
    }

    /// Restricts the rule to these source or destination networks, or to all others. All are of one family.
    pub(crate) fn networks(&mut self, side: Side, mut nets: Vec<Net>, negated: bool) {
        let all = nets.first().map(|net| Net { bits: 0, len: 0, ..*net });
        if let Some(all) = all.filter(|_| negated) {
            let mut others = Vec::new();
            nets.sort_unstable_by_key(|net| net.bits);
            all.without(&nets, &mut others);
            nets = others;
        }
        self.narrow(side.networks(), nets, Net::both);
    }

    /// Restricts the rule to these ports, or to all others.
    pub(crate) fn ports(&mut self, side: Side, ports: Vec<(u16, u16)>, negated: bool) {
        let ports = if negated { other_ports(ports) } else { ports };
        self.narrow(side.ports(), ports, both_ports);
    }

    /// Restricts the rule to these ICMP types, or to all others.
    pub(crate) fn icmp(&mut self, types: &[u8], negated: bool) {
        let wanted = (0..=u8::MAX).filter(|of| types.contains(of) != negated).collect();
        self.narrow(|rule| &mut rule.icmp, wanted, same);
    }

    /// Restricts the rule to these ICMP codes, or to all others.
    pub(crate) fn icmp_codes(&mut self, codes: &[u8], negated: bool) {
        let wanted = (0..=u8::MAX).filter(|of| codes.contains(of) != negated).collect();
        self.narrow(|rule| &mut rule.icmp_codes, wanted, same);
    }

    /// Restricts the rule to IPv6 packets with these next headers, or to all others.
    pub(crate) fn next_headers(&mut self, numbers: &[u8], negated: bool) {
        let wanted = (0..=u8::MAX).filter(|of| numbers.contains(of) != negated).collect();
        self.narrow(|rule| &mut rule.next_headers, wanted, same);
    }

    /// The conditions of both rules, with the comment of this one.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.is_never |= other.is_never;
        both.is_too_long |= other.is_too_long;
        if other.family != Family::Any {
            both.only(other.family);
        }
        both.meet(|rule| &mut rule.at, &other.at, same);
        both.meet(|rule| &mut rule.out, &other.out, same);
        both.meet(|rule| &mut rule.next_headers, &other.next_headers, same);
        both.meet(|rule| &mut rule.icmp_codes, &other.icmp_codes, same);
        both.meet(|rule| &mut rule.src, &other.src, Net::both);
        both.meet(|rule| &mut rule.dst, &other.dst, Net::both);
        both.meet(|rule| &mut rule.protocols, &other.protocols, same);
        both.meet(|rule| &mut rule.src_ports, &other.src_ports, both_ports);
        both.meet(|rule| &mut rule.dst_ports, &other.dst_ports, both_ports);
        both.meet(|rule| &mut rule.icmp, &other.icmp, same);
        both.meet(|rule| &mut rule.flags, &other.flags, Flags::both);
        both.meet(|rule| &mut rule.states, &other.states, same);
        both
    }

    /// Whether every packet of this rule is also one of the other.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        /// Whether each allowed value of `mine` is within one of `theirs`.
        fn all<T>(mine: &Allowed<T>, theirs: &Allowed<T>, is_in: impl Fn(&T, &T) -> bool) -> bool {
            match (mine, theirs) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(mine), Some(theirs)) => {
                    mine.iter().all(|one| theirs.iter().any(|other| is_in(one, other)))
                }
            }
        }
        let is_in_net = |one: &Net, other: &Net| one.both(other) == Some(*one);
        let is_in_ports = |one: &(u16, u16), other: &(u16, u16)| both_ports(one, other) == Some(*one);
        let is_in_flags = |one: &Flags, other: &Flags| one.both(other) == Some(*one);
        (other.family == Family::Any || other.family == self.family)
            && all(&self.at, &other.at, |one, other| one == other)
            && all(&self.out, &other.out, |one, other| one == other)
            && all(&self.next_headers, &other.next_headers, |one, other| one == other)
            && all(&self.icmp_codes, &other.icmp_codes, |one, other| one == other)
            && all(&self.src, &other.src, is_in_net)
            && all(&self.dst, &other.dst, is_in_net)
            && all(&self.protocols, &other.protocols, |one, other| one == other)
            && all(&self.src_ports, &other.src_ports, is_in_ports)
            && all(&self.dst_ports, &other.dst_ports, is_in_ports)
            && all(&self.icmp, &other.icmp, |one, other| one == other)
            && all(&self.flags, &other.flags, is_in_flags)
            && all(&self.states, &other.states, |one, other| one == other)
    }

    /// Whether it names IPv4-mapped networks, which no row can have.
    pub(crate) fn has_mapped(&self) -> bool {
        !self.is_never && self.src.iter().chain(&self.dst).flatten().any(Net::is_mapped)
    }

    /// The rule without IPv4-mapped networks. It matches no packet if none is left.
    pub(crate) fn without_mapped(mut self) -> Self {
        for nets in [&mut self.src, &mut self.dst].into_iter().flatten() {
            nets.retain(|net| !net.is_mapped());
            self.is_never |= nets.is_empty();
        }
        self
    }

    /// Whether it has no condition.
    pub(crate) fn is_all(&self) -> bool {
        !self.is_never && !self.is_too_long && self.family == Family::Any && Self::default().is_within(self)
    }

    /// The number of its values plus a constant.
    pub(crate) fn weight(&self) -> usize {
        self.pairs(&Self::default())
    }

    /// The number of value pairs that [`Rule::and`] compares, plus a constant.
    pub(crate) fn pairs(&self, other: &Self) -> usize {
        let pairs = [
            length(&self.at).saturating_mul(length(&other.at)),
            length(&self.out).saturating_mul(length(&other.out)),
            length(&self.next_headers).saturating_mul(length(&other.next_headers)),
            length(&self.icmp_codes).saturating_mul(length(&other.icmp_codes)),
            length(&self.src).saturating_mul(length(&other.src)),
            length(&self.dst).saturating_mul(length(&other.dst)),
            length(&self.protocols).saturating_mul(length(&other.protocols)),
            length(&self.src_ports).saturating_mul(length(&other.src_ports)),
            length(&self.dst_ports).saturating_mul(length(&other.dst_ports)),
            length(&self.icmp).saturating_mul(length(&other.icmp)),
            length(&self.flags).saturating_mul(length(&other.flags)),
            length(&self.states).saturating_mul(length(&other.states)),
        ];
        pairs.into_iter().fold(0, usize::saturating_add)
    }

    /// Narrows a condition like [`Rule::narrow`], if the other rule has this condition.
    fn meet<T: Clone>(
        &mut self,
        place: impl Fn(&mut Self) -> &mut Allowed<T>,
        values: &Allowed<T>,
        both: impl Fn(&T, &T) -> Option<T>,
    ) {
        if let Some(values) = values {
            self.narrow(place, values.clone(), both);
        }
    }

    /// Intersects the allowed values with these.
    fn narrow<T: Clone>(
        &mut self,
        place: impl Fn(&mut Self) -> &mut Allowed<T>,
        values: Vec<T>,
        both: impl Fn(&T, &T) -> Option<T>,
    ) {
        let wanted = place(self);
        let mut left = match wanted.take() {
            None => values,
            Some(known) if known.len().saturating_mul(values.len()) > PAIRS_MAX => {
                self.is_too_long = true;
                Vec::new()
            }
            Some(known) => {
                let pairs = known.iter().flat_map(|one| values.iter().filter_map(|other| both(one, other)));
                pairs.take(ROWS_OF_RULE_MAX + 1).collect()
            }
        };
        if left.len() > ROWS_OF_RULE_MAX {
            self.is_too_long = true;
            left = Vec::new();
        }
        self.is_never |= left.is_empty() && !self.is_too_long;
        *place(self) = Some(left);
    }

    /// Whether the rule is for protocols with ports. `at` is the position of the port test.
    ///
    /// # Errors
    /// The rule is also for protocols whose ports a row cannot test.
    pub(crate) fn has_protocol_of_ports(&self, at: &Token<'_>) -> Result<bool, Fault> {
        let protocols = self.protocols.as_deref().unwrap_or_default();
        match protocols.iter().find(|protocol| !WITH_PORTS.contains(protocol)) {
            Some(other) => Err(at.fault(format!(
                "ports of protocol {other} are not supported: only those of TCP, UDP and SCTP"
            ))),
            None => Ok(self.protocols.is_some()),
        }
    }

    /// Restricts the rule to packets in these connection states, or in all others.
    ///
    /// # Errors
    /// A name is not a state.
    pub(crate) fn states(&mut self, named: &[(&str, Token<'_>)], negated: bool) -> Result<(), Fault> {
        let named = named.iter().map(|(name, at)| state(name, at)).collect::<Result<Vec<u8>, _>>()?;
        let wanted: Vec<u8> = (1..).take(STATES.len()).filter(|nth| named.contains(nth) != negated).collect();
        if wanted.len() < STATES.len() {
            self.narrow(|rule| &mut rule.states, wanted, same);
        }
        Ok(())
    }

    /// Restricts the rule to packets that arrive at an interface with one of these names, or at any other. A wildcard
    /// at the end of a name matches any rest.
    ///
    /// # Errors
    /// The hook lists no input ports, and the rule is negated or has a wildcard.
    pub(crate) fn arrives(
        &mut self,
        option: &Token<'_>,
        names: &[Token<'_>],
        negated: bool,
        (hook, any): (&Hook, char),
    ) -> Result<(), Fault> {
        let interfaces = ports_named((option, "--in-port"), names, negated, (&hook.in_ports, any))?;
        let ports = interfaces.iter().map(|interface| hook.port_of(interface)).collect();
        self.narrow(|rule| &mut rule.at, ports, same);
        Ok(())
    }

    /// Restricts the rule to packets that leave by an interface with one of these names, or by any other, as
    /// [`Rule::arrives`].
    ///
    /// # Errors
    /// As for [`Rule::arrives`].
    pub(crate) fn leaves(
        &mut self,
        option: &Token<'_>,
        names: &[Token<'_>],
        negated: bool,
        (hook, any): (&Hook, char),
    ) -> Result<(), Fault> {
        let interfaces = ports_named((option, "--out-port"), names, negated, (&hook.out_ports, any))?;
        let ports = interfaces.iter().map(|interface| hook.port_of(interface)).collect();
        self.narrow(|rule| &mut rule.out, ports, same);
        Ok(())
    }

    /// Appends the rows of the rule.
    ///
    /// # Errors
    /// The rule cannot be expressed as rows.
    pub(crate) fn rows(
        &self,
        (verdict, answer): (Verdict, Answer),
        line: u32,
        rows: &mut Vec<Row>,
    ) -> Result<(), String> {
        if self.is_never {
            return Ok(());
        }
        if self.is_too_long {
            return Err(TOO_LONG.to_owned());
        }
        let note = self.comment.as_ref().filter(|comment| !comment.is_empty()).cloned();
        let note = cut_text(note.unwrap_or_else(|| format!("line {line}")));
        let of_family = match self.family {
            Family::Any => None,
            Family::V4 => Some(Net { bits: 0, len: 0, is_v6: false }),
            Family::V6 => Some(Net { bits: 0, len: 0, is_v6: true }),
        };
        let no_address = self.src.is_none() && self.dst.is_none();
        let src = if no_address { of_family.map(|net| vec![net]) } else { self.src.clone() };
        // Packets that leave by several ports, or by a port that is not known yet, are refused at all of them.
        let several = (verdict != Verdict::Accept).then(|| SEVERAL_PORTS.to_owned());
        let out = self.out.as_ref().map(|out| out.iter().cloned().chain(several).collect::<Vec<_>>());
        let n = [
            length(&self.at),
            length(&out),
            length(&self.next_headers),
            length(&self.icmp_codes),
            length(&src),
            length(&self.dst),
            length(&self.protocols),
            length(&self.src_ports),
            length(&self.dst_ports),
            length(&self.icmp),
            length(&self.flags),
            length(&self.states),
        ];
        let n = n.iter().try_fold(1_usize, |all, n| all.checked_mul(*n)).unwrap_or(usize::MAX);
        if n > ROWS_OF_RULE_MAX {
            return Err(format!("the rule would have {n} rows; the limit is {ROWS_OF_RULE_MAX}"));
        }
        if rows.len() + n > ROWS_MAX {
            return Err(format!("the list would have more than {ROWS_MAX} rows"));
        }
        for nth in 0..n {
            // `nth` counts the combinations: the last value changes first.
            let mut rest = nth;
            let state = digit(&self.states, &mut rest);
            let flags = digit(&self.flags, &mut rest);
            let icmp_code = digit(&self.icmp_codes, &mut rest);
            let icmp = digit(&self.icmp, &mut rest);
            let dst_ports = digit(&self.dst_ports, &mut rest).unwrap_or(ALL_PORTS);
            let src_ports = digit(&self.src_ports, &mut rest).unwrap_or(ALL_PORTS);
            let next_header = digit(&self.next_headers, &mut rest);
            let protocol = digit(&self.protocols, &mut rest);
            let dst = digit(&self.dst, &mut rest);
            let src = digit(&src, &mut rest);
            let out = digit(&out, &mut rest);
            let at = digit(&self.at, &mut rest);
            let note = note.clone();
            rows.push(Row {
                at,
                out,
                src,
                dst,
                protocol,
                next_header,
                src_ports,
                dst_ports,
                icmp,
                icmp_code,
                flags,
                state,
                verdict,
                answer,
                note,
            });
        }
        Ok(())
    }
}

/// The number of a connection state.
///
/// # Errors
/// There is no such state.
fn state(name: &str, at: &Token<'_>) -> Result<u8, Fault> {
    let known = (1..).zip(STATES).find(|(_, state)| name.eq_ignore_ascii_case(state));
    known.map(|(nth, _)| nth).ok_or_else(|| at.fault(format!("`{name}` is not a connection state")))
}

/// The ports with one of these names, or all others. A wildcard at the end of a name matches any rest.
fn ports_named(
    (test, option): (&Token<'_>, &str),
    names: &[Token<'_>],
    negated: bool,
    (ports, any): (&[String], char),
) -> Result<Vec<String>, Fault> {
    let pattern = names.iter().find(|name| name.text.ends_with(any));
    if pattern.is_none() && !negated {
        return Ok(names.iter().map(|name| name.text.to_owned()).collect());
    }
    if ports.is_empty() {
        return Err(match pattern {
            Some(name) => {
                name.fault(format!("the matching ports are not known: list all ports with {option}"))
            }
            None => test.fault(format!("the other ports are not known: list all ports with {option}")),
        });
    }
    let is_meant = |port: &&String| names.iter().any(|name| is_name_of(name.text, port, any)) != negated;
    Ok(ports.iter().filter(is_meant).cloned().collect())
}

/// Whether an interface has this name, or begins with it if the name ends with the wildcard `any`.
fn is_name_of(name: &str, interface: &str, any: char) -> bool {
    name == interface || name.strip_suffix(any).is_some_and(|begin| interface.starts_with(begin))
}

/// The value, if both are equal.
fn same<T: Clone + PartialEq>(one: &T, other: &T) -> Option<T> {
    (one == other).then(|| one.clone())
}

/// The intersection of two port ranges.
fn both_ports(one: &(u16, u16), other: &(u16, u16)) -> Option<(u16, u16)> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 <= both.1).then_some(both)
}

/// Returns the complement of some port ranges.
fn other_ports(mut some: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    some.sort_unstable();
    let (mut others, mut next) = (Vec::new(), 0_u32);
    for (low, high) in some {
        if u32::from(low) > next {
            others.push((next as u16, low - 1));
        }
        next = next.max(u32::from(high) + 1);
    }
    if next <= u32::from(u16::MAX) {
        others.push((next as u16, u16::MAX));
    }
    others
}

/// The warning for a test of a mark.
pub(crate) const UNMARKED: &str = "marks are not supported: all packets have the mark 0";
/// The warning for a list that may mean more.
pub(crate) const GUESSED: &str =
    "own addresses are not known: all addresses except multicast and 255.255.255.255 count as own";

/// The kinds of destination addresses of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressSorts {
    /// Addresses of hosts.
    host: bool,
    multicast: bool,
    broadcast: bool,
    /// The rule names the host's own addresses.
    is_own: bool,
}

impl AddressSorts {
    /// The kinds with these names, or all others. Forwarded packets never go to the host's own addresses.
    ///
    /// # Errors
    /// A kind is not supported.
    pub(crate) fn of(names: &[Token<'_>], negated: bool, hook: &str) -> Result<Self, Fault> {
        let mut sorts = Self { host: false, multicast: false, broadcast: false, is_own: false };
        for name in names {
            match (name.text.to_ascii_lowercase().as_str(), hook) {
                ("multicast", _) => sorts.multicast = true,
                ("broadcast", _) => sorts.broadcast = true,
                ("local", "input") => (sorts.host, sorts.is_own) = (true, true),
                ("local", "forward") | ("unicast", "input") => {}
                ("unicast", _) => sorts.host = true,
                ("anycast" | "blackhole" | "unreachable" | "prohibit", "forward") => {}
                (other, _) => {
                    return Err(name.fault(format!("`{other}` is not a supported address type")));
                }
            }
        }
        if negated {
            let Self { host, multicast, broadcast, is_own } = sorts;
            return Ok(Self { host: !host, multicast: !multicast, broadcast: !broadcast, is_own });
        }
        Ok(sorts)
    }

    /// Whether the list does not determine the addresses exactly.
    pub(crate) fn is_guessed(self) -> bool {
        self.is_own
    }

    /// Restricts a rule to these destinations.
    pub(crate) fn narrow(self, rule: &mut Rule, family: Family) {
        let is_v6 = family == Family::V6;
        let group = if is_v6 { Net::read("ff00::/8") } else { Net::read("224.0.0.0/4") };
        let all = if is_v6 { None } else { Net::read("255.255.255.255") };
        let nets = |multicast: bool, broadcast: bool| {
            group.filter(|_| multicast).into_iter().chain(all.filter(|_| broadcast)).collect::<Vec<_>>()
        };
        let (some, others) = (nets(self.multicast, self.broadcast), nets(!self.multicast, !self.broadcast));
        match (self.host, some.is_empty(), others.is_empty()) {
            (true, _, true) => {}
            (true, _, false) => rule.networks(Side::Destination, others, true),
            (false, true, _) => rule.is_never = true,
            (false, false, _) => rule.networks(Side::Destination, some, false),
        }
    }
}

/// Removes control characters, and shortens the text to at most [`NOTE_BYTES_MAX`] bytes.
fn cut_text(mut text: String) -> String {
    text.retain(|c| !c.is_control());
    let mut end = text.len().min(NOTE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Returns the number of alternatives: 1 if any value is allowed.
fn length<T>(values: &Option<Vec<T>>) -> usize {
    values.as_ref().map_or(1, Vec::len)
}

/// Picks a value by the last digit of a mixed-radix number, and removes the digit. `None` if any value will do.
fn digit<T: Clone>(values: &Option<Vec<T>>, number: &mut usize) -> Option<T> {
    let values = values.as_ref()?;
    let at = *number % values.len();
    *number /= values.len();
    Some(values[at].clone())
}

/// The protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// TCP, UDP and SCTP: the protocols whose ports a row can test.
pub(crate) const WITH_PORTS: [u8; 3] = [TCP, 17, 132];
