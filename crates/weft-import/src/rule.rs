//! What a rule asks, and the rows that it becomes.

use super::tokens::Token;
use super::{Fault, Hook, ROWS_MAX, ROWS_OF_RULE_MAX};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

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

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Its bits from the top of 32 or 128.
    pub(crate) bits: u128,
    /// How many of them count.
    pub(crate) len: u8,
    /// 128 bits, and not 32.
    pub(crate) is_v6: bool,
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

impl Net {
    fn bits_max(self) -> u8 {
        if self.is_v6 { 128 } else { 32 }
    }

    /// `10.0.0.0/8`, an address alone, or an address with a mask of as many ones.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let (bits, is_v6) = address_bits(address)?;
        let bits_max = if is_v6 { 128 } else { 32 };
        let len = match len {
            None => bits_max,
            Some(len) => number(len).or_else(|| mask_len(len, is_v6))?,
        };
        (len <= bits_max).then(|| Self { bits: cut(bits, len, bits_max), len, is_v6 })
    }

    /// The networks that are together all addresses from one to another.
    pub(crate) fn of_range(from: &str, to: &str) -> Option<Vec<Self>> {
        let ((mut low, is_v6), (high, other)) = (address_bits(from)?, address_bits(to)?);
        if is_v6 != other || low > high {
            return None;
        }
        let bits_max: u8 = if is_v6 { 128 } else { 32 };
        let mut nets = Vec::new();
        loop {
            // The largest block that begins here and ends no later.
            let last = |free: u8| low | u128::MAX.checked_shr(128 - u32::from(free)).unwrap_or(0);
            let mut free = (low.trailing_zeros() as u8).min(bits_max);
            while last(free) > high {
                free -= 1;
            }
            nets.push(Self { bits: low, len: bits_max - free, is_v6 });
            let last = last(free);
            if last >= high {
                return Some(nets);
            }
            low = last + 1;
        }
    }

    /// Whether its addresses are those of IPv4 nodes in IPv6 (RFC 4291 section 2.5.5.2): they are addresses of IPv4 here.
    fn is_mapped(&self) -> bool {
        self.is_v6 && self.len >= 96 && self.bits >> 32 == 0xffff
    }

    /// The addresses that both have.
    fn both(&self, other: &Self) -> Option<Self> {
        let (short, long) = if self.len <= other.len { (self, other) } else { (other, self) };
        let is_inside = short.is_v6 == long.is_v6 && cut(long.bits, short.len, long.bits_max()) == short.bits;
        is_inside.then_some(*long)
    }

    /// The networks that are together all of it that is in none of these, which are sorted by their bits.
    fn without(self, some: &[Self], others: &mut Vec<Self>) {
        if some.iter().any(|net| net.len <= self.len) {
            return;
        }
        if some.is_empty() {
            return others.push(self);
        }
        let len = self.len + 1;
        let upper = Self { bits: self.bits | 1 << (self.bits_max() - len), len, ..self };
        let (in_lower, in_upper) = some.split_at(some.partition_point(|net| net.bits < upper.bits));
        Self { len, ..self }.without(in_lower, others);
        upper.without(in_upper, others);
    }
}

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

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_v6 {
            true => write!(f, "{}/{}", Ipv6Addr::from(self.bits), self.len),
            false => write!(f, "{}/{}", Ipv4Addr::from(self.bits as u32), self.len),
        }
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
            "{}, {}, {}, {}, {}, {}, {src_low}, {src_high}, {dst_low}, {dst_high}, {}, {}, {flags}, {}, {}, {}, {}, {}, \
             {}",
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

    /// Takes out networks that no row can have: what is in none of the others is for no packet.
    pub(crate) fn without_mapped(&mut self) -> bool {
        let mut has_any = false;
        for nets in [&mut self.src, &mut self.dst].into_iter().flatten() {
            let n = nets.len();
            nets.retain(|net| !net.is_mapped());
            has_any |= nets.len() < n;
            self.is_never |= nets.is_empty();
        }
        has_any
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
            Some(name) => name.fault(format!("which ports have such names is not known: say all with {option}")),
            None => test.fault(format!("which other ports there are is not known: say all with {option}")),
        });
    }
    let is_meant =
        |port: &&String| names.iter().any(|name| is_name_of(name.text, port, any)) != negated;
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

/// Ports: a number, a range with `between`, or the name of a service; of `:`, an end may be left out.
///
/// # Errors
/// It is none of them.
pub(crate) fn ports(at: &Token<'_>, text: &str, between: char) -> Result<(u16, u16), Fault> {
    let one = |text: &str| {
        let named = SERVICES.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
        named.or_else(|| number(text))
    };
    let end = |text: &str, end: u16| if between == ':' && text.is_empty() { Some(end) } else { one(text) };
    let range = || {
        let (low, high) = text.split_once(between)?;
        let (low, high) = (end(low, 0)?, end(high, u16::MAX)?);
        (low <= high).then_some((low, high))
    };
    one(text).map(|port| (port, port)).or_else(range).ok_or_else(|| is_no(at, text, "port or range of ports"))
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

/// The number of a protocol that IP carries.
///
/// # Errors
/// It is none, or one that a row does not have.
pub(crate) fn protocol(at: &Token<'_>) -> Result<u8, Fault> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == at.text).map(|(_, number)| *number);
    match named.or_else(|| number(at.text)) {
        Some(AH) => {
            Err(at.fault("AH (51) is not read: a packet in AH is one of what it carries here, as TCP"))
        }
        Some(number) => Ok(number),
        None => Err(is_no(at, at.text, "protocol")),
    }
}

/// The number of what follows the first header of IPv6, an extension header as well.
///
/// # Errors
/// It is none.
pub(crate) fn next_header(at: &Token<'_>) -> Result<u8, Fault> {
    let named = EXTENSION_HEADERS.iter().chain(PROTOCOLS).find(|(name, _)| *name == at.text).map(|(_, number)| *number);
    named.or_else(|| number(at.text)).ok_or_else(|| is_no(at, at.text, "protocol"))
}

/// What the sender of a rejected packet gets, by its name: `icmp`, `icmpv6`, or `icmpx` for that of either.
///
/// # Errors
/// There is none of this name.
pub(crate) fn answer(kind: &str, at: &Token<'_>) -> Result<Answer, Fault> {
    let usual = Answer::default();
    Ok(match (kind, at.text) {
        ("icmp", _) => Answer { code: icmp_code(at, false)?, ..usual },
        ("icmpv6", _) => Answer { code6: icmp_code(at, true)?, ..usual },
        (_, "port-unreachable") => usual,
        (_, "admin-prohibited") => Answer { code: 13, code6: 1 },
        (_, "no-route") => Answer { code: 0, code6: 0 },
        (_, "host-unreachable") => Answer { code: 1, code6: 3 },
        (_, other) => return Err(at.fault(format!("`{other}` is no way to refuse"))),
    })
}

/// What a test of a mark means here.
pub(crate) const UNMARKED: &str = "nothing marks packets here: all have the mark 0";
/// Why a list may mean more.
pub(crate) const GUESSED: &str =
    "the host's own addresses are not known: all that are of no group and not 255.255.255.255 are taken for them";

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
                (other, _) => return Err(name.fault(format!("`{other}` is no sort of address that is read here"))),
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

/// The code of an ICMP message: of the errors that say what is unreachable, by its name.
///
/// # Errors
/// It is none.
pub(crate) fn icmp_code(at: &Token<'_>, is_v6: bool) -> Result<u8, Fault> {
    let names = if is_v6 { ICMPV6_CODES } else { ICMP_CODES };
    let named = names.iter().find(|(name, _)| *name == at.text).map(|(_, number)| *number);
    named.or_else(|| number(at.text)).ok_or_else(|| is_no(at, at.text, "code of a message"))
}

/// The type of an ICMP message.
///
/// # Errors
/// It is none.
pub(crate) fn icmp_type(at: &Token<'_>, is_v6: bool) -> Result<u8, Fault> {
    let names = if is_v6 { ICMPV6_TYPES } else { ICMP_TYPES };
    let named = names.iter().find(|(name, _)| *name == at.text).map(|(_, number)| *number);
    named.or_else(|| number(at.text)).ok_or_else(|| is_no(at, at.text, "type of message"))
}

/// A flag of TCP by its name, or several as a number.
pub(crate) fn tcp_flag(text: &str) -> Option<u8> {
    let named = TCP_FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, bit)| *bit);
    named.or_else(|| match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => number(text),
    })
}

/// A number as both programs print it. They take one that begins with 0 for one of base eight.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_decimal =
        text.bytes().all(|digit| digit.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if is_decimal { text.parse().ok() } else { None }
}

/// That a text is not what it should be.
fn is_no(at: &Token<'_>, text: &str, what: &str) -> Fault {
    let is_octal = text.len() > 1 && text.starts_with('0');
    let hint = if is_octal { ": write numbers without 0 in front" } else { "" };
    at.fault(format!("`{text}` is no {what}{hint}"))
}

fn address_bits(text: &str) -> Option<(u128, bool)> {
    match text.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => Some((u32::from(address).into(), false)),
        IpAddr::V6(address) => Some((u128::from(address), true)),
    }
}

/// The ones of a mask that has them all at its beginning.
fn mask_len(text: &str, is_v6: bool) -> Option<u8> {
    let (mask, other) = address_bits(text)?;
    let mask = if is_v6 { mask } else { mask << 96 };
    (other == is_v6 && mask.leading_ones() + mask.trailing_zeros().min(128) >= 128)
        .then(|| mask.leading_ones() as u8)
}

fn cut(bits: u128, len: u8, bits_max: u8) -> u128 {
    let free = bits_max - len;
    if free >= 128 { 0 } else { bits >> free << free }
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
/// The number of the authentication header.
const AH: u8 = 51;
/// TCP, UDP and SCTP: those whose ports a row knows.
pub(crate) const WITH_PORTS: [u8; 3] = [TCP, 17, 132];

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

/// As `/etc/protocols` has them, which nft prints.
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
