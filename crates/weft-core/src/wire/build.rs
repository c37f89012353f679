//! Builds frames from protocol definitions: the reverse of [`super::read()`].

use std::collections::BTreeMap;

use super::eval::{self, EvalContext};
use super::header_change::address_fields;
use super::{
    Checksum, Expr, FieldId, FieldValue, Item, Next, Protocol, ProtocolId, REPEATS_MAX, Rule, Spread, Until,
    Width, as_on_wire,
};
use crate::checksum::{self, fold};
use crate::flow::flow_of;

/// A header to build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The protocol.
    pub protocol: ProtocolId,
    /// The given fields. The rules determine the others; a field that names the next protocol names the next header.
    pub values: BTreeMap<FieldId, FieldValue>,
    /// The given fields of each round of each REPEAT, by name.
    pub rounds: BTreeMap<String, Vec<BTreeMap<FieldId, FieldValue>>>,
}

/// Why a frame cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The first protocol has no edge to the second.
    NotBehind(ProtocolId, ProtocolId),
    /// A number is too wide for its field, or bytes are given for a bit field.
    DoesNotFit(ProtocolId, FieldId),
}

/// Builds a frame of these headers, from the outside in, around a payload.
///
/// # Errors
/// [`BuildError`]: these headers do not form a frame.
pub fn build(protocols: &[Protocol], headers: &[Header], payload: &[u8]) -> Result<Vec<u8>, BuildError> {
    let mut linked = links(protocols, headers)?;
    let mut frame = payload.to_vec();
    for at in (0..headers.len()).rev() {
        for (below, field, spread) in spreads(protocols, headers, at) {
            let is_ip = carries_ip(protocols, headers.get(at + 1).map(|next| next.protocol));
            linked[below].insert(field, spread.of(flow_of(&frame, is_ip).flow));
        }
        let header = header_builder(protocols, headers, &linked, at, &frame).build()?;
        frame = [header.bytes, frame].concat();
    }
    Ok(frame)
}

/// Computes the values of each header that depend on the headers behind it.
pub(super) fn links(
    protocols: &[Protocol],
    headers: &[Header],
) -> Result<Vec<BTreeMap<FieldId, u64>>, BuildError> {
    let mut linked: Vec<BTreeMap<FieldId, u64>> = vec![BTreeMap::new(); headers.len()];
    for (at, pair) in headers.windows(2).enumerate() {
        let next = link(protocols, pair[0].protocol, pair[1].protocol)?;
        linked[at] = next.condition.required().into_iter().collect();
    }
    // The fields that a tunnel sets below it, except those that spread flows.
    for (at, header) in headers.iter().enumerate() {
        let builder = header_builder(protocols, headers, &linked, at, &[]);
        let encap = protocols[usize::from(header.protocol.0)].encap.iter();
        let sets =
            encap.filter(|(.., value)| value.spread().is_none()).filter_map(|(lower, field, value)| {
                Some((below(headers, at, *lower)?, *field, eval::value(value, &builder)))
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

/// Whether a field is a checksum inside IPv6, which has no header checksum: receivers drop a packet without it (RFC
/// 8200 section 8.1).
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

/// The nearest header of a protocol below another one.
fn below(headers: &[Header], at: usize, protocol: ProtocolId) -> Option<usize> {
    (0..at).rev().find(|below| headers[*below].protocol == protocol)
}

/// Finds the fields below a header that spread the flows of its content.
pub(super) fn spreads<'a>(
    protocols: &'a [Protocol],
    headers: &'a [Header],
    at: usize,
) -> impl Iterator<Item = (usize, FieldId, Spread)> + 'a {
    let encap = protocols[usize::from(headers[at].protocol.0)].encap.iter();
    encap
        .filter_map(move |(lower, field, value)| Some((below(headers, at, *lower)?, *field, value.spread()?)))
}

/// Whether content with this first header is an IP packet; otherwise it counts as a frame.
pub(super) fn carries_ip(protocols: &[Protocol], first: Option<ProtocolId>) -> bool {
    let begins = first.and_then(|first| protocols[usize::from(first.0)].begins());
    matches!(begins, Some((4, 4 | 6)))
}

/// The rule by which `upper` follows `lower`; an error if it may not.
pub(super) fn link(
    protocols: &[Protocol],
    lower: ProtocolId,
    upper: ProtocolId,
) -> Result<&Next, BuildError> {
    let mut next = protocols[usize::from(lower.0)].next.iter();
    next.find(|next| next.to == upper).ok_or(BuildError::NotBehind(lower, upper))
}

/// Makes the builder of the header at index `at`, with the bytes `behind` it.
pub(super) fn header_builder<'a>(
    protocols: &'a [Protocol],
    headers: &'a [Header],
    linked: &'a [BTreeMap<FieldId, u64>],
    at: usize,
    behind: &'a [u8],
) -> HeaderBuilder<'a> {
    let header = &headers[at];
    assert_eq!(linked.len(), headers.len(), "each header has the fields that others set");
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

/// Maximum padding of a field that is not given, while others give its length.
const GUESS_MAX: usize = 64;

/// A finished header.
#[derive(Clone, Debug, Default)]
pub(super) struct BuiltHeader {
    pub(super) bytes: Vec<u8>,
    /// The fields with their first bit and their width.
    pub(super) places: Vec<(FieldId, usize, usize)>,
    /// The computed checksums with their first byte.
    pub(super) sums: Vec<(usize, Checksum)>,
}

/// A header under construction.
pub(super) struct HeaderBuilder<'a> {
    protocols: &'a [Protocol],
    protocol: &'a Protocol,
    header: &'a Header,
    /// The values that depend on the headers behind.
    linked: &'a BTreeMap<FieldId, u64>,
    below: &'a [Header],
    /// The content of the header.
    behind: &'a [u8],
    /// The current round: its REPEAT, its number and its items.
    round: Option<(&'a str, usize, &'a [Item])>,
    /// A tentative width of a field, to see whether it is consistent.
    guess: Option<(FieldId, usize)>,
    /// The bytes from here on, if known separately.
    rest: Option<u64>,
    /// The bits so far.
    bits: Bits,
}

/// Bits, most significant first.
#[derive(Clone, Debug, Default)]
struct Bits {
    bytes: Vec<u8>,
    n: usize,
    /// See [`BuiltHeader`]: checksums are written last.
    places: Vec<(FieldId, usize, usize)>,
    sums: Vec<(usize, Checksum)>,
}

impl Bits {
    /// Appends the lowest `n` bits of a number, highest first.
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
    /// Builds the header, and then fills in its checksums.
    pub(super) fn build(mut self) -> Result<BuiltHeader, BuildError> {
        let items = &self.protocol.items;
        self.items(items)?;
        let Bits { mut bytes, places, sums, n } = core::mem::take(&mut self.bits);
        assert_eq!(n.div_ceil(8), bytes.len(), "the bits fill their bytes");
        for (at, sum) in &sums {
            let value = self.sum(*sum, &bytes);
            bytes[*at..*at + value.len()].copy_from_slice(&value);
        }
        Ok(BuiltHeader { bytes, places, sums })
    }

    /// Appends items in order, with conditional and repeated ones.
    fn items(&mut self, items: &'a [Item]) -> Result<(), BuildError> {
        for (nth, item) in items.iter().enumerate() {
            match item {
                Item::Field(id) => self.field(*id)?,
                Item::When { condition, items: part } => {
                    if self.includes_when(condition, part, &items[nth + 1..]) {
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

    /// Whether to build a WHEN. A condition on `rest` sees the bytes of `behind` and the payload, without the WHEN
    /// itself. A given field inside it also makes it present.
    fn includes_when(&self, condition: &Expr, part: &'a [Item], behind: &'a [Item]) -> bool {
        let mut asks = false;
        condition.each(&mut |e| asks |= *e == Expr::Rest);
        if !asks {
            return eval::value(condition, self) != 0;
        }
        let is_given = |item: &Item| matches!(item, Item::Field(id) if self.given_value(*id).is_some());
        let rest = (self.bits_of(behind, None).0 / 8) as u64 + self.payload_bytes();
        let with_rest = HeaderBuilder { rest: Some(rest), bits: Bits::default(), ..*self };
        part.iter().any(is_given) || eval::value(condition, &with_rest) != 0
    }

    /// The number of rounds: the given ones, and at least as many as the header or the definition requires.
    fn rounds(&self, name: &str, until: &Until) -> usize {
        let given = self.header.rounds.get(name).map_or(0, Vec::len);
        let least = match until {
            Until::Condition(_) => 1,
            Until::Count(Expr::Field(id)) => self.own_number(*id).min(u64::from(REPEATS_MAX)) as usize,
            Until::Count(_) | Until::Bytes(_) => 0,
        };
        given.max(least)
    }

    /// The given or constant number of a field; 0 for a computed one.
    fn own_number(&self, id: FieldId) -> u64 {
        match (self.given_value(id), &self.protocol.fields[usize::from(id.0)].rule) {
            (Some(FieldValue::Number(n)), _) | (None, Rule::Constant(n) | Rule::Default(Expr::Int(n))) => *n,
            _ => 0,
        }
    }

    /// Appends a field. An error if the given value does not fit.
    fn field(&mut self, id: FieldId) -> Result<(), BuildError> {
        let field = &self.protocol.fields[usize::from(id.0)];
        let misfit = Err(BuildError::DoesNotFit(self.header.protocol, id));
        match &field.width {
            Width::Bits { n, little } => {
                let n = usize::from(*n);
                self.bits.places.push((id, self.bits.n, n));
                if let Some(sum) = field.rule.checksum()
                    && self.given_value(id).is_none()
                    && !self.linked.contains_key(&id)
                {
                    self.bits.sums.push((self.bits.n / 8, sum));
                }
                let number = self.number(id);
                if matches!(self.given_value(id), Some(FieldValue::Bytes(_))) || (n < 64 && number >> n != 0)
                {
                    return misfit;
                }
                self.bits.push(as_on_wire(number, n as u32, *little), n);
            }
            Width::Bytes { max, .. } => {
                let bytes = match self.given_value(id) {
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

    /// The value given for a field, in the current round if it is repeated.
    fn given_value(&self, id: FieldId) -> Option<&'a FieldValue> {
        if let Some((name, nth, _)) = self.round
            && self.protocol.fields[usize::from(id.0)].repeated
        {
            return self.header.rounds.get(name)?.get(nth)?.get(&id);
        }
        self.header.values.get(&id)
    }

    /// The value of a bit field: given, by the link to the next header, or by its rule.
    fn number(&self, id: FieldId) -> u64 {
        let field = &self.protocol.fields[usize::from(id.0)];
        match (self.given_value(id), self.linked.get(&id), &field.rule) {
            (Some(FieldValue::Number(number)), ..) => *number,
            (_, Some(number), _) => *number,
            (_, _, Rule::Constant(number)) => *number,
            (_, _, rule) if rule.checksum().is_some() => 0,
            (_, _, Rule::Default(expr) | Rule::Computed(expr)) => eval::value(expr, self),
            _ => 0,
        }
    }

    /// The width of a byte field: that of the given bytes, or the least one that agrees with the fields that give its
    /// length.
    fn width(&self, id: FieldId) -> usize {
        if let Some(FieldValue::Bytes(bytes)) = self.given_value(id) {
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

    /// The width of items in bits, up to the field `stop`; and whether that field was found.
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
                    if self.includes_when(condition, part, &items[nth + 1..]) =>
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

    /// A checksum of the finished header, in wire order.
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

    /// The pseudo header: the addresses of the nearest layer below with addresses, the length, and this protocol's
    /// number there.
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

/// The nearest header below with addresses, and its address fields.
pub(super) fn addresses(protocols: &[Protocol], below: &[Header]) -> Option<(usize, Vec<FieldId>)> {
    below.iter().enumerate().rev().find_map(|(at, lower)| {
        let ids = address_fields(&protocols[usize::from(lower.protocol.0)]);
        (!ids.is_empty()).then_some((at, ids))
    })
}

/// The protocol number for pseudo headers: the number by which IP identifies its content.
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
        self.given_value(id).is_some()
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
