//! Builds frames from definitions: the other way of each line.

use std::collections::BTreeMap;

use super::eval::{self, EvalContext};
use super::header_change::address_fields;
use super::{
    Checksum, Expr, FieldId, FieldValue, Item, Next, Protocol, ProtocolId, REPEATS_MAX, Rule, Spread, Until,
    Width, as_on_wire,
};
use crate::checksum::{self, fold};
use crate::flow::flow_of;

/// A header to be built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Of which protocol.
    pub protocol: ProtocolId,
    /// Fields that are given. Others are what their rules say; a field that says what follows names what does.
    pub values: BTreeMap<FieldId, FieldValue>,
    /// The rounds of each REPEAT, by its name: the fields of each that are given.
    pub rounds: BTreeMap<String, Vec<BTreeMap<FieldId, FieldValue>>>,
}

/// Why a frame cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// No rule lets the second protocol stand behind the first.
    NotBehind(ProtocolId, ProtocolId),
    /// A field is given a number that has more bits, or bytes where it has bits.
    DoesNotFit(ProtocolId, FieldId),
}

/// Builds a frame of these headers, from the outside in, around a payload.
///
/// # Errors
/// [`BuildError`]: the headers cannot stand like that.
pub fn build(protocols: &[Protocol], headers: &[Header], payload: &[u8]) -> Result<Vec<u8>, BuildError> {
    let mut linked = links(protocols, headers)?;
    let mut frame = payload.to_vec();
    for at in (0..headers.len()).rev() {
        for (below, field, spread) in spreads(protocols, headers, at) {
            let is_ip = carries_ip(protocols, headers.get(at + 1).map(|next| next.protocol));
            linked[below].insert(field, spread.of(flow_of(&frame, is_ip).flow));
        }
        let header = maker(protocols, headers, &linked, at, &frame).make()?;
        frame = [header.bytes, frame].concat();
    }
    Ok(frame)
}

/// What each header holds because of what stands behind it.
pub(super) fn links(
    protocols: &[Protocol],
    headers: &[Header],
) -> Result<Vec<BTreeMap<FieldId, u64>>, BuildError> {
    let mut linked: Vec<BTreeMap<FieldId, u64>> = vec![BTreeMap::new(); headers.len()];
    for (at, pair) in headers.windows(2).enumerate() {
        let next = link(protocols, pair[0].protocol, pair[1].protocol)?;
        linked[at] = next.condition.required().into_iter().collect();
    }
    // What a tunnel sets below it, but for what spreads the flows that it carries.
    for (at, header) in headers.iter().enumerate() {
        let maker = maker(protocols, headers, &linked, at, &[]);
        let encap = protocols[usize::from(header.protocol.0)].encap.iter();
        let sets =
            encap.filter(|(.., value)| value.spread().is_none()).filter_map(|(lower, field, value)| {
                Some((below(headers, at, *lower)?, *field, eval::value(value, &maker)))
            });
        let sets: Vec<_> = sets.collect();
        for (below, field, value) in sets {
            if value > 0 || !needs_sum(protocols, &headers[..=below], field) {
                linked[below].insert(field, value);
            }
        }
    }
    Ok(linked)
}

/// Whether a field is the checksum of what IPv6 carries, which has none of its own: receivers do not take a packet
/// without (RFC 8200 section 8.1).
fn needs_sum(protocols: &[Protocol], headers: &[Header], field: FieldId) -> bool {
    let Some((header, below)) = headers.split_last() else { return false };
    let rule = &protocols[usize::from(header.protocol.0)].fields[usize::from(field.0)].rule;
    let is_sum = matches!(rule.checksum(), Some(Checksum::Pseudo | Checksum::PseudoOrZero));
    let is_long = |(at, ids): (usize, Vec<FieldId>)| {
        let fields = &protocols[usize::from(below[at].protocol.0)].fields;
        ids.iter().any(|id| matches!(fields[usize::from(id.0)].width, Width::Bytes { max: 16, .. }))
    };
    is_sum && addresses(protocols, below).is_some_and(is_long)
}

/// The nearest header of a protocol below another.
fn below(headers: &[Header], at: usize, protocol: ProtocolId) -> Option<usize> {
    (0..at).rev().find(|below| headers[*below].protocol == protocol)
}

/// The fields of headers below one that spread the flows which it carries.
pub(super) fn spreads<'a>(
    protocols: &'a [Protocol],
    headers: &'a [Header],
    at: usize,
) -> impl Iterator<Item = (usize, FieldId, Spread)> + 'a {
    let encap = protocols[usize::from(headers[at].protocol.0)].encap.iter();
    encap
        .filter_map(move |(lower, field, value)| Some((below(headers, at, *lower)?, *field, value.spread()?)))
}

/// Whether what a header carries begins with an IP packet, if this is its first header; else it is taken for a frame.
pub(super) fn carries_ip(protocols: &[Protocol], first: Option<ProtocolId>) -> bool {
    let begins = first.and_then(|first| protocols[usize::from(first.0)].begins());
    matches!(begins, Some((4, 4 | 6)))
}

pub(super) fn link(
    protocols: &[Protocol],
    lower: ProtocolId,
    upper: ProtocolId,
) -> Result<&Next, BuildError> {
    let mut next = protocols[usize::from(lower.0)].next.iter();
    next.find(|next| next.to == upper).ok_or(BuildError::NotBehind(lower, upper))
}

pub(super) fn maker<'a>(
    protocols: &'a [Protocol],
    headers: &'a [Header],
    linked: &'a [BTreeMap<FieldId, u64>],
    at: usize,
    behind: &'a [u8],
) -> HeaderBuilder<'a> {
    let header = &headers[at];
    HeaderBuilder {
        protocols,
        protocol: &protocols[usize::from(header.protocol.0)],
        header,
        linked: &linked[at],
        below: &headers[..at],
        behind,
        round: None,
        guess: None,
        rest: None,
        bits: Bits::default(),
    }
}

/// Bytes that a field is filled up with at most, where nobody gives it and others say how long it is.
const GUESS_MAX: usize = 64;

/// A header that was made.
#[derive(Clone, Debug, Default)]
pub(super) struct BuiltHeader {
    pub(super) bytes: Vec<u8>,
    /// Where its fields are: the bit at which each begins, and how many it has.
    pub(super) places: Vec<(FieldId, usize, usize)>,
    /// The checksums that were computed, and the bytes at which they begin.
    pub(super) sums: Vec<(usize, Checksum)>,
}

/// A header that is being made.
pub(super) struct HeaderBuilder<'a> {
    protocols: &'a [Protocol],
    protocol: &'a Protocol,
    header: &'a Header,
    /// What follows is named by these.
    linked: &'a BTreeMap<FieldId, u64>,
    below: &'a [Header],
    /// What the header carries.
    behind: &'a [u8],
    /// The round that is being made: its REPEAT, its number, and its items.
    round: Option<(&'a str, usize, &'a [Item])>,
    /// How wide a field is taken to be, to see whether that agrees.
    guess: Option<(FieldId, usize)>,
    /// How much there is from here on, if that was found out beside what has been made.
    rest: Option<u64>,
    /// What has been made.
    bits: Bits,
}

/// Bits, the most significant of a byte first.
#[derive(Clone, Debug, Default)]
struct Bits {
    bytes: Vec<u8>,
    n: usize,
    /// See [`BuiltHeader`]: checksums are put in last.
    places: Vec<(FieldId, usize, usize)>,
    sums: Vec<(usize, Checksum)>,
}

impl Bits {
    fn push(&mut self, number: u64, n: usize) {
        for at in (0..n).rev() {
            if self.n.is_multiple_of(8) {
                self.bytes.push(0);
            }
            self.bytes[self.n / 8] |= ((number >> at & 1) as u8) << (7 - self.n % 8);
            self.n += 1;
        }
    }
}

impl<'a> HeaderBuilder<'a> {
    pub(super) fn make(mut self) -> Result<BuiltHeader, BuildError> {
        let items = &self.protocol.items;
        self.items(items)?;
        let Bits { mut bytes, places, sums, .. } = core::mem::take(&mut self.bits);
        for (at, sum) in &sums {
            let value = self.sum(*sum, &bytes);
            bytes[*at..*at + value.len()].copy_from_slice(&value);
        }
        Ok(BuiltHeader { bytes, places, sums })
    }

    fn items(&mut self, items: &'a [Item]) -> Result<(), BuildError> {
        for (nth, item) in items.iter().enumerate() {
            match item {
                Item::Field(id) => self.field(*id)?,
                Item::When { condition, items: part } => {
                    if self.is_there(condition, part, &items[nth + 1..]) {
                        self.items(part)?;
                    }
                }
                Item::Repeat { name, items, until, .. } => {
                    for nth in 0..self.rounds(name, until) {
                        self.round = Some((name, nth, items));
                        self.items(items)?;
                    }
                    self.round = None;
                }
            }
        }
        Ok(())
    }

    /// Whether a WHEN is made. Where it depends on how much there is, that is without it what is `behind` it and the
    /// payload; and it is made as well if one of its fields is given.
    fn is_there(&self, condition: &Expr, part: &'a [Item], behind: &'a [Item]) -> bool {
        let mut asks = false;
        condition.each(&mut |e| asks |= *e == Expr::Rest);
        if !asks {
            return eval::value(condition, self) != 0;
        }
        let is_given = |item: &Item| matches!(item, Item::Field(id) if self.given(*id).is_some());
        let rest = (self.bits_of(behind, None).0 / 8) as u64 + self.payload_bytes();
        let with_rest = HeaderBuilder { rest: Some(rest), bits: Bits::default(), ..*self };
        part.iter().any(is_given) || eval::value(condition, &with_rest) != 0
    }

    /// How many rounds are made: those that are given, and at least as many as the header says, or the definition
    /// wants.
    fn rounds(&self, name: &str, until: &Until) -> usize {
        let given = self.header.rounds.get(name).map_or(0, Vec::len);
        let least = match until {
            Until::Condition(_) => 1,
            Until::Count(Expr::Field(id)) => self.said(*id).min(u64::from(REPEATS_MAX)) as usize,
            Until::Count(_) | Until::Bytes(_) => 0,
        };
        given.max(least)
    }

    /// The number that a field is given, or has by itself; 0 for one that follows from others.
    fn said(&self, id: FieldId) -> u64 {
        match (self.given(id), &self.protocol.fields[usize::from(id.0)].rule) {
            (Some(FieldValue::Number(n)), _) | (None, Rule::Constant(n) | Rule::Default(Expr::Int(n))) => *n,
            _ => 0,
        }
    }

    fn field(&mut self, id: FieldId) -> Result<(), BuildError> {
        let field = &self.protocol.fields[usize::from(id.0)];
        let misfit = Err(BuildError::DoesNotFit(self.header.protocol, id));
        match &field.width {
            Width::Bits { n, little } => {
                let n = usize::from(*n);
                self.bits.places.push((id, self.bits.n, n));
                if let Some(sum) = field.rule.checksum()
                    && self.given(id).is_none()
                    && !self.linked.contains_key(&id)
                {
                    self.bits.sums.push((self.bits.n / 8, sum));
                }
                let number = self.number(id);
                if matches!(self.given(id), Some(FieldValue::Bytes(_))) || (n < 64 && number >> n != 0) {
                    return misfit;
                }
                self.bits.push(as_on_wire(number, n as u32, *little), n);
            }
            Width::Bytes { max, .. } => {
                let bytes = match self.given(id) {
                    Some(FieldValue::Bytes(bytes)) => bytes.clone(),
                    Some(FieldValue::Number(_)) => return misfit,
                    None => vec![0; self.width(id)],
                };
                if bytes.len() > *max as usize {
                    return misfit;
                }
                self.bits.places.push((id, self.bits.n, 8 * bytes.len()));
                bytes.iter().for_each(|byte| self.bits.push(u64::from(*byte), 8));
            }
            Width::Rounds { .. } => {}
        }
        Ok(())
    }

    fn given(&self, id: FieldId) -> Option<&'a FieldValue> {
        if let Some((name, nth, _)) = self.round
            && self.protocol.fields[usize::from(id.0)].repeated
        {
            return self.header.rounds.get(name)?.get(nth)?.get(&id);
        }
        self.header.values.get(&id)
    }

    /// What a field of bits holds.
    fn number(&self, id: FieldId) -> u64 {
        let field = &self.protocol.fields[usize::from(id.0)];
        match (self.given(id), self.linked.get(&id), &field.rule) {
            (Some(FieldValue::Number(number)), ..) => *number,
            (_, Some(number), _) => *number,
            (_, _, Rule::Constant(number)) => *number,
            (_, _, rule) if rule.checksum().is_some() => 0,
            (_, _, Rule::Default(expr) | Rule::Computed(expr)) => eval::value(expr, self),
            _ => 0,
        }
    }

    /// Bytes of a field of bytes: what is given, or the least number that the fields which say it agree with.
    fn width(&self, id: FieldId) -> usize {
        if let Some(FieldValue::Bytes(bytes)) = self.given(id) {
            return bytes.len();
        }
        if let Some((_, guessed)) = self.guess.filter(|(guessed, _)| *guessed == id) {
            return guessed;
        }
        let Width::Bytes { count, .. } = &self.protocol.fields[usize::from(id.0)].width else { return 0 };
        let agrees = |width: &usize| {
            let guess = HeaderBuilder { guess: Some((id, *width)), bits: Bits::default(), ..*self };
            eval::value(count, &guess) == *width as u64
        };
        (0..=GUESS_MAX).find(agrees).unwrap_or(0)
    }

    /// Bits of items, as they will be made.
    fn bits_of(&self, items: &'a [Item], stop: Option<FieldId>) -> (usize, bool) {
        let mut bits = 0;
        for (nth, item) in items.iter().enumerate() {
            let (more, is_found) = match item {
                Item::Field(id) => {
                    let width = match self.protocol.fields[usize::from(id.0)].width {
                        Width::Bits { n, .. } => usize::from(n),
                        Width::Bytes { .. } | Width::Rounds { .. } => 8 * self.width(*id),
                    };
                    (width, stop == Some(*id))
                }
                Item::When { condition, items: part }
                    if self.is_there(condition, part, &items[nth + 1..]) =>
                {
                    self.bits_of(part, stop)
                }
                Item::When { .. } => (0, false),
                Item::Repeat { name, items, until, .. } => {
                    let rounds = (0..self.rounds(name, until)).map(|nth| {
                        let round =
                            HeaderBuilder { round: Some((name, nth, items)), bits: Bits::default(), ..*self };
                        round.bits_of(items, None).0
                    });
                    (rounds.sum(), false)
                }
            };
            bits += more;
            if is_found {
                return (bits, true);
            }
        }
        (bits, false)
    }

    /// A checksum of the header that has been made, in the order of the wire.
    fn sum(&self, sum: Checksum, header: &[u8]) -> Vec<u8> {
        let inverted = |bytes: &[u8]| (!fold(checksum::sum(bytes))).to_be_bytes().to_vec();
        let layer = || [header, self.behind].concat();
        match sum {
            Checksum::Header => inverted(header),
            Checksum::Layer => inverted(&layer()),
            Checksum::Pseudo | Checksum::PseudoOrZero => {
                let layer = layer();
                let value = inverted(&[self.pseudo(layer.len()), layer].concat());
                match (sum, &*value) {
                    (Checksum::PseudoOrZero, [0, 0]) => vec![0xff, 0xff],
                    _ => value,
                }
            }
            Checksum::Crc32c => eval::crc32c(&layer()).to_le_bytes().to_vec(),
        }
    }

    /// The pseudo header: the addresses of the nearest layer below that has some, the length and the number of this
    /// protocol there.
    fn pseudo(&self, len: usize) -> Vec<u8> {
        let mut pseudo = Vec::new();
        let Some((at, ids)) = addresses(self.protocols, self.below) else { return pseudo };
        let lower = &self.below[at];
        let protocol = &self.protocols[usize::from(lower.protocol.0)];
        for id in ids {
            let width = match &protocol.fields[usize::from(id.0)].width {
                Width::Bytes { max, .. } | Width::Rounds { max } => *max as usize,
                Width::Bits { n, .. } => usize::from(*n) / 8,
            };
            match lower.values.get(&id) {
                Some(FieldValue::Bytes(bytes)) => pseudo.extend(bytes),
                _ => pseudo.resize(pseudo.len() + width, 0),
            }
        }
        pseudo.extend((len as u32).to_be_bytes());
        let number = self.below.last().and_then(|below| number_in(self.protocols, below, self.header));
        pseudo.extend(u32::from(number.unwrap_or(0)).to_be_bytes());
        pseudo
    }
}

/// The nearest of the headers below that has addresses, and these fields.
pub(super) fn addresses(protocols: &[Protocol], below: &[Header]) -> Option<(usize, Vec<FieldId>)> {
    below.iter().enumerate().rev().find_map(|(at, lower)| {
        let ids = address_fields(&protocols[usize::from(lower.protocol.0)]);
        (!ids.is_empty()).then_some((at, ids))
    })
}

/// The number by which IP knows what it carries, as pseudo headers have it.
pub(super) fn number_in(protocols: &[Protocol], below: &Header, upper: &Header) -> Option<u8> {
    let next = link(protocols, below.protocol, upper.protocol).ok()?;
    let mut required = next.condition.required().into_iter().map(|(_, n)| n);
    required.find_map(|n| u8::try_from(n).ok().filter(|n| *n > 0))
}

impl EvalContext for HeaderBuilder<'_> {
    fn field(&self, id: FieldId) -> u64 {
        self.number(id)
    }

    fn is_present(&self, id: FieldId) -> bool {
        self.given(id).is_some()
    }

    fn peek(&self, bits: u8) -> u64 {
        eval::bits(self.behind, 0, usize::from(bits))
    }

    fn header_bytes(&self) -> u64 {
        (self.bits_of(&self.protocol.items, None).0 / 8) as u64
    }

    fn payload_bytes(&self) -> u64 {
        self.behind.len() as u64
    }

    fn bytes_after(&self, id: FieldId) -> u64 {
        let (before, _) = self.bits_of(&self.protocol.items, Some(id));
        self.header_bytes() + self.payload_bytes() - (before / 8) as u64
    }

    fn round_bytes(&self) -> u64 {
        self.round.map_or(0, |(.., items)| (self.bits_of(items, None).0 / 8) as u64)
    }

    fn rest(&self) -> u64 {
        let rest = || (self.header_bytes() + self.payload_bytes()).saturating_sub((self.bits.n / 8) as u64);
        self.rest.unwrap_or_else(rest)
    }

    fn count(&self, name: &str) -> u64 {
        self.header.rounds.get(name).map_or(0, Vec::len) as u64
    }

    fn is_last(&self) -> bool {
        self.round.is_some_and(|(name, nth, _)| nth + 1 >= self.header.rounds.get(name).map_or(1, Vec::len))
    }

    fn checksum(&self, _: Checksum) -> u64 {
        0
    }
}
