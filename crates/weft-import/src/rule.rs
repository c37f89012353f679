//! What a rule asks, and the rows that it becomes.

use super::net::Net;
use super::tokens::Token;
use super::{Fault, Hook, ROWS_MAX, ROWS_OF_RULE_MAX};
use core::fmt;

/// What becomes of a packet, by the number that a row has for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It is gone.
    #[default]
    Drop = 0,
    /// It passes.
    Accept = 1,
    /// It is gone, and its sender gets an error of ICMP.
    Reject = 2,
    /// It is gone, and its sender gets a reset of TCP.
    Reset = 3,
}

/// The code of the error that the sender of a rejected packet gets: destination unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of ICMP, type 3.
    pub code: u8,
    /// Of ICMPv6, type 1.
    pub code6: u8,
}

impl Default for Answer {
    /// The port is unreachable.
    fn default() -> Self {
        Self { code: 3, code6: 4 }
    }
}

/// Flags of TCP, by their bits in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Those that are set.
    pub bits: u8,
    /// Those that are looked at.
    pub mask: u8,
}

/// A row of the table; NULL is None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The port at which a packet arrives.
    pub at: Option<String>,
    /// The port by which it leaves; `*` if it leaves by several.
    pub out: Option<String>,
    /// The network that it comes from.
    pub src: Option<Net>,
    /// The network that it goes to.
    pub dst: Option<Net>,
    /// The number of the protocol that IP carries.
    pub protocol: Option<u8>,
    /// The number of what follows the first header of IPv6.
    pub next_header: Option<u8>,
    /// Source ports, both ends included.
    pub src_ports: (u16, u16),
    /// Destination ports.
    pub dst_ports: (u16, u16),
    /// The type of an ICMP message.
    pub icmp: Option<u8>,
    /// Its code.
    pub icmp_code: Option<u8>,
    /// The flags of TCP that a packet has, of those that are looked at: `FIN` is 1, `SYN` 2, `RST` 4, as in the header.
    pub flags: Option<Flags>,
    /// What it is to its connection: its place among new, established, related, invalid and untracked, from 1.
    pub state: Option<u8>,
    /// What becomes of it.
    pub verdict: Verdict,
    /// What its sender gets, if it is rejected.
    pub answer: Answer,
    /// Where the rule comes from: its comment, or its line.
    pub note: String,
}

/// Which addresses there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Family {
    #[default]
    Any,
    V4,
    V6,
}

/// The values that will do, None for any.
type Wanted<T> = Option<Vec<T>>;

/// A rule that is read: what each of its tests wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub(crate) family: Family,
    pub(crate) at: Wanted<String>,
    pub(crate) out: Wanted<String>,
    pub(crate) src: Wanted<Net>,
    pub(crate) dst: Wanted<Net>,
    pub(crate) protocols: Wanted<u8>,
    pub(crate) next_headers: Wanted<u8>,
    pub(crate) src_ports: Wanted<(u16, u16)>,
    pub(crate) dst_ports: Wanted<(u16, u16)>,
    pub(crate) icmp: Wanted<u8>,
    pub(crate) icmp_codes: Wanted<u8>,
    pub(crate) flags: Wanted<Flags>,
    pub(crate) states: Wanted<u8>,
    pub(crate) comment: Option<String>,
    /// It asks for what no packet is.
    pub(crate) is_never: bool,
    /// It asks for one of so many values, and of so many others, that nobody looks which are both.
    pub(crate) is_too_long: bool,
}

/// Where packets come from, or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl Side {
    fn networks(self) -> fn(&mut Rule) -> &mut Wanted<Net> {
        match self {
            Self::Source => |rule| &mut rule.src,
            Self::Destination => |rule| &mut rule.dst,
        }
    }

    fn ports(self) -> fn(&mut Rule) -> &mut Wanted<(u16, u16)> {
        match self {
            Self::Source => |rule| &mut rule.src_ports,
            Self::Destination => |rule| &mut rule.dst_ports,
        }
    }
}

/// What a row has for packets that leave by several ports.
const SEVERAL_PORTS: &str = "*";
const ALL_PORTS: (u16, u16) = (0, u16::MAX);
const NOTE_BYTES_MAX: usize = 64;
/// Pairs of values of which it is looked which are both.
const PAIRS_MAX: usize = 1 << 20;
/// Why a rule that asks for too many is none.
pub(crate) const TOO_LONG: &str =
    "too many values are left of those that a field has to be among more than once";
/// What connections are to packets; `ruleset` of the library numbers them from 1.
const STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];

impl Flags {
    /// What has both.
    fn both(&self, other: &Self) -> Option<Self> {
        let agree = (self.bits ^ other.bits) & self.mask & other.mask == 0;
        agree.then_some(Self { bits: self.bits | other.bits, mask: self.mask | other.mask })
    }

    /// What is not this: for each of the flags, those before it as they are, and it the other way.
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
    /// Only packets of a family.
    pub(crate) fn only(&mut self, family: Family) {
        if self.family != Family::Any && self.family != family {
            self.is_never = true;
        }
        self.family = family;
    }

    /// Only packets of these protocols, or of others.
    pub(crate) fn protocols(&mut self, wanted: &[u8], negated: bool) {
        let all = self.protocols.take().unwrap_or_else(|| match negated {
            false => wanted.to_vec(),
            true => (0..=u8::MAX).collect(),
        });
        self.protocols = Some(all.into_iter().filter(|known| wanted.contains(known) != negated).collect());
    }

    /// Only packets of TCP that have one of these of its flags, or none of them.
    pub(crate) fn flags(&mut self, some: &[Flags], negated: bool) {
        self.protocols(&[TCP], false);
        let some = some.iter().filter(|flags| flags.bits & !flags.mask == 0);
        if negated {
            some.for_each(|flags| self.narrow(|rule| &mut rule.flags, flags.others(), Flags::both));
        } else {
            self.narrow(|rule| &mut rule.flags, some.copied().collect(), Flags::both);
        }
    }

    /// Only packets that come from, or go to, one of these networks, which are of one family, or none of them.
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

    /// Only packets from or to one of these ports, or to none of them.
    pub(crate) fn ports(&mut self, side: Side, ports: Vec<(u16, u16)>, negated: bool) {
        let ports = if negated { other_ports(ports) } else { ports };
        self.narrow(side.ports(), ports, both_ports);
    }

    /// Only messages of ICMP of these types, or of others.
    pub(crate) fn icmp(&mut self, types: &[u8], negated: bool) {
        let wanted = (0..=u8::MAX).filter(|of| types.contains(of) != negated).collect();
        self.narrow(|rule| &mut rule.icmp, wanted, same);
    }

    /// Only messages of ICMP with these codes, or others.
    pub(crate) fn icmp_codes(&mut self, codes: &[u8], negated: bool) {
        let wanted = (0..=u8::MAX).filter(|of| codes.contains(of) != negated).collect();
        self.narrow(|rule| &mut rule.icmp_codes, wanted, same);
    }

    /// Only packets of IPv6 whose first header says that one of these follows, or another.
    pub(crate) fn next_headers(&mut self, numbers: &[u8], negated: bool) {
        let wanted = (0..=u8::MAX).filter(|of| numbers.contains(of) != negated).collect();
        self.narrow(|rule| &mut rule.next_headers, wanted, same);
    }

    /// What both rules ask for, with the comment of this one.
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

    /// Whether all packets of it are packets of the other.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        fn all<T>(mine: &Wanted<T>, theirs: &Wanted<T>, is_in: impl Fn(&T, &T) -> bool) -> bool {
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

    /// Whether it names networks that no row can have.
    pub(crate) fn has_mapped(&self) -> bool {
        !self.is_never && self.src.iter().chain(&self.dst).flatten().any(Net::is_mapped)
    }

    /// The rule without such networks: what is in none of the others is for no packet.
    pub(crate) fn without_mapped(mut self) -> Self {
        for nets in [&mut self.src, &mut self.dst].into_iter().flatten() {
            nets.retain(|net| !net.is_mapped());
            self.is_never |= nets.is_empty();
        }
        self
    }

    /// Whether it asks for nothing.
    pub(crate) fn is_all(&self) -> bool {
        !self.is_never && !self.is_too_long && self.family == Family::Any && Self::default().is_within(self)
    }

    /// How many values it has, and some for the rest.
    pub(crate) fn weight(&self) -> usize {
        self.pairs(&Self::default())
    }

    /// How many values are compared for [`Rule::and`], and some for the rest.
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

    /// As [`Rule::narrow`], if the other rule asks for anything.
    fn meet<T: Clone>(
        &mut self,
        place: impl Fn(&mut Self) -> &mut Wanted<T>,
        values: &Wanted<T>,
        both: impl Fn(&T, &T) -> Option<T>,
    ) {
        if let Some(values) = values {
            self.narrow(place, values.clone(), both);
        }
    }

    /// Only packets that have one of these values, and one of those that are asked for already.
    fn narrow<T: Clone>(
        &mut self,
        place: impl Fn(&mut Self) -> &mut Wanted<T>,
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

    /// Whether the rule is for packets of protocols that have ports; `at` is where it asks for one.
    ///
    /// # Errors
    /// It is for others, too, of which a row knows no ports.
    pub(crate) fn has_protocol_of_ports(&self, at: &Token<'_>) -> Result<bool, Fault> {
        let protocols = self.protocols.as_deref().unwrap_or_default();
        match protocols.iter().find(|protocol| !WITH_PORTS.contains(protocol)) {
            Some(other) => {
                Err(at.fault(format!("ports of protocol {other} are not read: only of TCP, UDP and SCTP")))
            }
            None => Ok(self.protocols.is_some()),
        }
    }

    /// Only packets in states of these names, or in others: their places among [`STATES`].
    ///
    /// # Errors
    /// One is no state.
    pub(crate) fn states(&mut self, named: &[(&str, Token<'_>)], negated: bool) -> Result<(), Fault> {
        let named = named.iter().map(|(name, at)| state(name, at)).collect::<Result<Vec<u8>, _>>()?;
        let wanted: Vec<u8> = (1..).take(STATES.len()).filter(|nth| named.contains(nth) != negated).collect();
        if wanted.len() < STATES.len() {
            self.narrow(|rule| &mut rule.states, wanted, same);
        }
        Ok(())
    }

    /// Only packets that arrive at an interface with one of these names, or at another of those that there are; at the
    /// end of a name a character may stand for any rest.
    ///
    /// # Errors
    /// Nobody has said which there are, and the rule is for others, or for all whose names begin in some way.
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

    /// Only packets that leave by an interface with one of these names, or by another, as [`Rule::arrives`].
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
    /// Why it cannot be rows.
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
        // What leaves by several ports, or by one that is not known yet, is kept from all of them.
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
            return Err(format!("the rule would be {n} rows, and may be {ROWS_OF_RULE_MAX}"));
        }
        if rows.len() + n > ROWS_MAX {
            return Err(format!("the list would be more than {ROWS_MAX} rows"));
        }
        for nth in 0..n {
            // As digits of a number, of which the last changes first.
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

/// The number of a state.
///
/// # Errors
/// There is none of this name.
fn state(name: &str, at: &Token<'_>) -> Result<u8, Fault> {
    let known = (1..).zip(STATES).find(|(_, state)| name.eq_ignore_ascii_case(state));
    known.map(|(nth, _)| nth).ok_or_else(|| at.fault(format!("`{name}` is no state")))
}

/// The ports with one of these names, or those without; at the end of a name a character may stand for any rest.
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
                name.fault(format!("which ports have such names is not known: say all with {option}"))
            }
            None => test.fault(format!("which other ports there are is not known: say all with {option}")),
        });
    }
    let is_meant = |port: &&String| names.iter().any(|name| is_name_of(name.text, port, any)) != negated;
    Ok(ports.iter().filter(is_meant).cloned().collect())
}

/// Whether an interface has this name, or one that begins like that, if it ends in what stands for any rest.
fn is_name_of(name: &str, interface: &str, any: char) -> bool {
    name == interface || name.strip_suffix(any).is_some_and(|begin| interface.starts_with(begin))
}

/// What two values that have to be the same are.
fn same<T: Clone + PartialEq>(one: &T, other: &T) -> Option<T> {
    (one == other).then(|| one.clone())
}

/// The ports of two ranges.
fn both_ports(one: &(u16, u16), other: &(u16, u16)) -> Option<(u16, u16)> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 <= both.1).then_some(both)
}

/// All ports beside some.
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

/// What a test of a mark means here.
pub(crate) const UNMARKED: &str = "nothing marks packets here: all have the mark 0";
/// Why a list may mean more.
pub(crate) const GUESSED: &str =
    "own addresses are not known: all that are of no group and not 255.255.255.255 are taken for them";

/// Which sorts of destinations a rule is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressSorts {
    /// Addresses of hosts.
    host: bool,
    multicast: bool,
    broadcast: bool,
    /// It is a host's own that are meant.
    is_own: bool,
}

impl AddressSorts {
    /// Those with these names, or the others. What is forwarded is for no address of the host itself.
    ///
    /// # Errors
    /// One is not read.
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
                    return Err(name.fault(format!("`{other}` is no sort of address that is read here")));
                }
            }
        }
        if negated {
            let Self { host, multicast, broadcast, is_own } = sorts;
            return Ok(Self { host: !host, multicast: !multicast, broadcast: !broadcast, is_own });
        }
        Ok(sorts)
    }

    /// Whether nobody knows exactly which they are.
    pub(crate) fn is_guessed(self) -> bool {
        self.is_own
    }

    /// Has a rule be for these destinations.
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

fn cut_text(mut text: String) -> String {
    text.retain(|c| !c.is_control());
    let mut end = text.len().min(NOTE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

fn length<T>(values: &Option<Vec<T>>) -> usize {
    values.as_ref().map_or(1, Vec::len)
}

/// One of the values by the last digit of a number, which is taken off; None if any will do.
fn digit<T: Clone>(values: &Option<Vec<T>>, number: &mut usize) -> Option<T> {
    let values = values.as_ref()?;
    let at = *number % values.len();
    *number /= values.len();
    Some(values[at].clone())
}

/// The number of TCP.
pub(crate) const TCP: u8 = 6;
/// TCP, UDP and SCTP: those whose ports a row knows.
pub(crate) const WITH_PORTS: [u8; 3] = [TCP, 17, 132];
