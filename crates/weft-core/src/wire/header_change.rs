//! Header changes: PUSH, POP and CUT.
//!
//! PUSH writes a [`Stack`]: headers in wire form, without the values that depend on the frame. The compiler of a chain
//! makes a stack once ([`stack`]), from the same definitions as [`build`](super::build()). [`Stack::write`] writes it
//! into the headroom of a packet in one step: it copies the bytes, then fills in values, lengths and checksums.

use std::collections::BTreeMap;

use super::build::{BuiltHeader, addresses, carries_ip, header_builder, link, links, number_in, spreads};
use super::eval;
use super::{
    BinaryOp, BuildError, Checksum, Expr, Field, FieldId, FieldValue, Header, Item, Protocol, ProtocolId,
    Rule, Spread, Width, as_on_wire, bits_max, get_number, put_bytes, put_number,
};
use crate::checksum::{fold, sum};
use crate::flow::flow_of;
use crate::types::Type;

/// Maximum size of one PUSH in bytes: the headroom of a new packet ([`crate::frame::HEADROOM`]), so that no packet
/// moves.
pub const PUSH_BYTES_MAX: usize = crate::frame::HEADROOM;
const _: () = assert!(PUSH_BYTES_MAX <= u16::MAX as usize, "a relink counts bytes in 16 bits");

/// A change of the headers of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderChange {
    /// `PUSH`: adds headers.
    Push {
        /// The position: in front of the frame, or behind its first header, given by its size and its link to the next
        /// header.
        behind: Option<(u16, Relink)>,
        /// The candidates: the first one that fits the beginning of the frame is used.
        stacks: Vec<Stack>,
    },
    /// `POP`: removes headers.
    Pop {
        /// The input with the layer that determines the end.
        layer: u16,
        /// The extent.
        how: Pop,
        /// Checksums in the remaining frame that cover addresses of the removed headers.
        pseudo: Pseudo,
    },
    /// `CUT TO n`: removes everything behind the first n bytes.
    Cut,
    /// `FRAGMENT TO n`: splits an IPv4 packet into fragments of at most n bytes, if it may be fragmented
    /// ([`crate::frame::Pool::fragment`]).
    Fragment,
}

/// The extent of a POP. It also removes what follows the end of the layer: short Ethernet frames are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pop {
    /// `POP TO layer`, and `POP` to the content of an element's layer: everything in front of it.
    To,
    /// `POP layer`: only that layer; the header below is linked to what follows.
    Alone(Relink),
}

/// Addresses of removed headers in pseudo headers, and the checksums that cover them. These checksums exclude addresses
/// until new ones are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pseudo {
    /// The addresses.
    pub addresses: Vec<AddressesIn>,
    /// The checksums.
    pub sums: Vec<PseudoSumIn>,
}

/// The addresses of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressesIn {
    /// The input with the layer.
    pub layer: u16,
    /// Their ranges in the layer.
    pub ranges: Vec<(u32, u32)>,
}

/// A checksum with a pseudo header, in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoSumIn {
    /// The input with the layer.
    pub layer: u16,
    /// Its offset in the layer.
    pub at: u16,
    /// Whether zero means no checksum.
    pub zero_is_none: bool,
}

/// The link of a lower header to the next one, when a header is inserted between them or removed. The type field of the
/// lower header swaps its value with the field of the same name in that header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relink {
    /// The size of the field in bytes.
    pub bytes: u8,
    /// The distance from the field to the end of the lower header, in bytes.
    pub back: u16,
    /// The offset of the field in the inserted or removed header.
    pub within: u16,
    /// The value by which the lower header announces an inserted header.
    pub value: u64,
}

/// Headers to write in front of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The bits with which the frame must begin, as their number and value.
    pub begins: Option<(u8, u64)>,
    /// The bytes that do not depend on the frame; the others are zero.
    pub bytes: Vec<u8>,
    /// The positions of the values from the program, in order.
    pub values: Vec<BitsAt>,
    /// The fields computed from the length of the frame with its new headers, each with a summand.
    pub lengths: Vec<(BitsAt, i64)>,
    /// The fields that spread the flows of tunnels. Inner tunnels come first: their fields are part of a flow.
    pub spreads: Vec<SpreadAt>,
    /// The checksums in order of computation: inner headers first.
    pub sums: Vec<SumAt>,
    /// The ranges of the addresses that checksums of the content cover.
    pub pseudo: Vec<(u32, u32)>,
    /// The mandatory checksum of the content (RFC 8200 section 8.1): it is computed if the content has none.
    pub owed: Option<SumAt>,
}

/// The position of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitsAt {
    /// Its first bit, counted from the most significant bit of the first byte.
    pub at: u32,
    /// Its width: up to 64 for a number; any for bytes.
    pub bits: u32,
    /// Whether the number is little-endian.
    pub little: bool,
}

/// A field that spreads flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadAt {
    /// Its position.
    pub place: BitsAt,
    /// The offset of the packet with the flow.
    pub from: u32,
    /// Whether that is an IP packet and not a frame.
    pub is_ip: bool,
    /// The spread.
    pub spread: Spread,
}

/// The position and coverage of a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumAt {
    /// Its offset.
    pub at: u32,
    /// Its kind.
    pub sum: Checksum,
    /// The range of its header.
    pub header: (u32, u32),
    /// The ranges of the addresses in its pseudo header.
    pub addresses: Vec<(u32, u32)>,
    /// The protocol number in its pseudo header.
    pub number: u8,
}

/// A value for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackValue<'a> {
    /// For a bit field: at most as wide as the field.
    Number(u64),
    /// For a byte field: exactly as long as the field.
    Bytes(&'a [u8]),
}

/// A value does not fit: a length field is too small for the frame, a number has too many bits, or bytes have the wrong
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoesNotFit;

/// Why headers cannot be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackError {
    /// As for [`build`](super::build()).
    Build(BuildError),
    /// The layout or a rule depends on a field whose value is known only for each frame.
    NotConstant(ProtocolId, FieldId),
    /// A rule depends on the length of the payload other than by addition.
    NotLinear(ProtocolId, FieldId),
    /// More than [`PUSH_BYTES_MAX`].
    TooLong(usize),
    /// The last header does not tell that a frame follows, and these fields for it are not given.
    Unsaid(ProtocolId, Vec<FieldId>),
}

impl From<BuildError> for StackError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

/// Makes the stack for frames that begin with `carried`: `headers` from the outside in. `given` lists the fields
/// (header, field) whose values come with each frame, in addition to the known ones. Without `carried`, the last header
/// does not tell yet what follows; see [`relink`].
///
/// # Errors
/// [`StackError`]: these headers cannot be pushed.
pub fn stack(
    protocols: &[Protocol],
    headers: &[Header],
    given: &[(usize, FieldId)],
    carried: Option<ProtocolId>,
) -> Result<Stack, StackError> {
    let mut headers = headers.to_vec();
    for (at, field) in given {
        let id = headers[*at].protocol;
        let protocol = &protocols[usize::from(id.0)];
        if decides(protocols, &headers, *at, *field) {
            return Err(StackError::NotConstant(id, *field));
        }
        let zero = match protocol.fields[usize::from(field.0)].width {
            Width::Bits { .. } => FieldValue::Number(0),
            Width::Bytes { count: Expr::Int(n), .. } => FieldValue::Bytes(vec![0; n as usize]),
            Width::Bytes { .. } | Width::Rounds { .. } => return Err(StackError::NotConstant(id, *field)),
        };
        headers[*at].values.insert(*field, zero);
    }
    let mut linked = links(protocols, &headers)?;
    if let (Some(last), Some(links), Some(carried)) = (headers.last(), linked.last_mut(), carried) {
        for (field, value) in link_to(protocols, last, carried)? {
            links.entry(field).or_insert(value);
        }
    }
    let samples = SAMPLES.map(|n| build_headers(protocols, &headers, &linked, n));
    let mut samples = samples.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let (Some(first), others) = (samples.next(), samples.collect::<Vec<_>>()) else {
        return Ok(Stack::default());
    };
    let mut stack =
        Stack { begins: carried.and_then(|id| protocols[usize::from(id.0)].begins()), ..Stack::default() };
    let starts: Vec<usize> = first
        .iter()
        .scan(0, |at, made| {
            *at += made.bytes.len();
            Some(*at - made.bytes.len())
        })
        .collect();
    stack.bytes = first.iter().flat_map(|made| made.bytes.iter().copied()).collect();
    if stack.bytes.len() > PUSH_BYTES_MAX {
        return Err(StackError::TooLong(stack.bytes.len()));
    }
    for (at, made) in first.iter().enumerate() {
        if others.iter().any(|other| other[at].bytes.len() != made.bytes.len()) {
            let protocol = headers[at].protocol;
            let fields = &protocols[usize::from(protocol.0)].fields;
            let optional = fields.iter().position(|field| field.optional).unwrap_or(0);
            return Err(StackError::NotLinear(protocol, FieldId(optional as u16)));
        }
    }
    for (at, start) in starts.iter().enumerate() {
        let of = Layer { protocols, headers: &headers, at, starts: &starts, first: &first };
        stack.lengths.extend(of.lengths(*start, stack.bytes.len(), &others)?);
    }
    for (at, start) in starts.iter().enumerate().rev() {
        let of = Layer { protocols, headers: &headers, at, starts: &starts, first: &first };
        stack.spreads.extend(of.spreads(carried)?);
        stack.sums.extend(first[at].sums.iter().map(|(byte, sum)| of.sum(start + byte, *sum)));
    }
    stack.values = given
        .iter()
        .map(|(at, field)| {
            let place = first[*at].places.iter().find(|(of, ..)| of == field);
            let protocol = headers[*at].protocol;
            let (_, bit, bits) = place.ok_or(StackError::NotConstant(protocol, *field))?;
            Ok(bits_at(protocols, protocol, *field, 8 * starts[*at] + bit, *bits))
        })
        .collect::<Result<_, StackError>>()?;
    // The constant bytes exclude everything that is computed for each frame.
    let lengths = stack.lengths.iter().map(|(place, _)| *place);
    let computed = lengths.chain(stack.spreads.iter().map(|spread| spread.place));
    for place in computed.chain(stack.values.iter().copied()).collect::<Vec<_>>() {
        (place.at..place.at + place.bits)
            .for_each(|bit| stack.bytes[bit as usize / 8] &= !(0x80 >> (bit % 8)));
    }
    if let Some(carried) = carried {
        let of = Layer { protocols, headers: &headers, at: headers.len(), starts: &starts, first: &first };
        (stack.pseudo, stack.owed) = of.pseudo_of(carried, stack.bytes.len());
    }
    for sum in &stack.sums {
        let width = if sum.sum == Checksum::Crc32c { 4 } else { 2 };
        stack.bytes[sum.at as usize..][..width].fill(0);
    }
    Ok(stack)
}

/// The [`Relink`] between a lower header and inserted headers from `first` to `last`: the field by which the lower
/// header announces the next one, and the field of the same name in `last`. `None` if there are no two such fields of
/// whole bytes, or if a rule of the lower header depends on its content.
pub fn relink(
    protocols: &[Protocol],
    lower: ProtocolId,
    first: ProtocolId,
    last: ProtocolId,
) -> Option<Relink> {
    let next = link(protocols, lower, first).ok()?;
    let (below, own) = (&protocols[usize::from(lower.0)], &protocols[usize::from(last.0)]);
    let follows = |rule: &Rule| matches!(rule, Rule::Computed(_)) || rule.checksum().is_some();
    if below.length.is_some() || below.fields.iter().any(|field| follows(&field.rule)) {
        return None;
    }
    let [(field, value)] = next.condition.required()[..] else { return None };
    let (at, bits, all) = place_of(below, field)?;
    let (within, same, _) = place_of(own, own.field(&below.fields[usize::from(field.0)].name)?)?;
    let is_whole = at % 8 == 0 && bits % 8 == 0 && bits > 0 && within % 8 == 0 && same == bits;
    is_whole.then_some(Relink {
        bytes: (bits / 8) as u8,
        back: ((all - at) / 8) as u16,
        within: (within / 8) as u16,
        value,
    })
}

/// Whether a frame begins with these bits.
#[inline]
pub fn begins(frame: &[u8], begins: Option<(u8, u64)>) -> bool {
    let Some((n, value)) = begins else { return true };
    match frame.first() {
        Some(first) if n <= 8 => u64::from(*first) >> (8 - n) == value,
        _ => usize::from(n) <= 8 * frame.len() && eval::bits(frame, 0, usize::from(n)) == value,
    }
}

impl Stack {
    /// Writes the headers into the first bytes of a frame, which are reserved for them.
    ///
    /// `partial` is the first byte covered by a checksum that a device still has to complete, and the position of that
    /// checksum: its final sum is known in advance. `announced` is the value by which the header in front announced the
    /// content, with its new position ([`Relink::within`]).
    ///
    /// # Errors
    /// [`DoesNotFit`]: the frame is then unusable.
    ///
    /// # Panics
    /// The frame is shorter than the headers.
    pub fn write<'v>(
        &self,
        frame: &mut [u8],
        values: impl Iterator<Item = StackValue<'v>>,
        partial: Option<(usize, usize)>,
        announced: Option<(usize, &[u8])>,
    ) -> Result<(), DoesNotFit> {
        let length = frame.len() as i64;
        let (head, _) = frame.split_at_mut(self.bytes.len());
        head.copy_from_slice(&self.bytes);
        for (place, value) in self.values.iter().zip(values) {
            match value {
                StackValue::Number(number) => place.put_fitting(head, number)?,
                StackValue::Bytes(bytes) => place.put_run(head, bytes)?,
            }
        }
        if let Some((at, bytes)) = announced {
            put_bytes(head.get_mut(at..at + bytes.len()).ok_or(DoesNotFit)?, bytes);
        }
        for (place, add) in &self.lengths {
            let number = u64::try_from(length + add).map_err(|_| DoesNotFit)?;
            place.put_fitting(head, number)?;
        }
        for SpreadAt { place, from, is_ip, spread } in &self.spreads {
            let carried = frame.get(*from as usize..).unwrap_or_default();
            let number = spread.of(flow_of(carried, *is_ip).flow);
            place.put(frame, number);
        }
        self.sums.iter().for_each(|sum| sum.put(frame, partial));
        Ok(())
    }
}

impl BitsAt {
    /// Writes a number into the field; an error if it does not fit.
    #[inline(always)]
    fn put_fitting(self, bytes: &mut [u8], number: u64) -> Result<(), DoesNotFit> {
        if self.bits < 64 && number >> self.bits != 0 {
            return Err(DoesNotFit);
        }
        self.put(bytes, number);
        Ok(())
    }

    /// Writes bytes that have the length of the field.
    #[inline(always)]
    fn put_run(self, bytes: &mut [u8], run: &[u8]) -> Result<(), DoesNotFit> {
        if 8 * run.len() != self.bits as usize {
            return Err(DoesNotFit);
        }
        let at = self.at as usize / 8;
        put_bytes(bytes.get_mut(at..at + run.len()).ok_or(DoesNotFit)?, run);
        Ok(())
    }

    /// Writes a number that fits into the field.
    #[inline(always)]
    fn put(self, bytes: &mut [u8], number: u64) {
        let at = self.at as usize / 8;
        match (self.bits, self.at.is_multiple_of(8) & !self.little) {
            (8, true) => bytes[at] = number as u8,
            (16, true) => bytes[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes()),
            (24, true) => bytes[at..at + 3].copy_from_slice(&(number as u32).to_be_bytes()[1..]),
            (32, true) => bytes[at..at + 4].copy_from_slice(&(number as u32).to_be_bytes()),
            (bits, _) if bits + self.at % 8 <= 8 => {
                let (shift, mask) = (8 - self.at % 8 - bits, (1u32 << bits) - 1);
                let rest = u32::from(bytes[at]) & !(mask << shift);
                bytes[at] = (rest | (number as u32 & mask) << shift) as u8;
            }
            _ => self.put_bits(bytes, number),
        }
    }

    /// Writes a number of any width at any position.
    fn put_bits(self, bytes: &mut [u8], number: u64) {
        let (first, end) = (self.at as usize / 8, (self.at + self.bits).div_ceil(8) as usize);
        let number = as_on_wire(number, self.bits, self.little);
        let field = &mut bytes[first..end];
        let bits = 8 * field.len() as u32;
        if bits == self.bits {
            return put_number(field, number);
        }
        let shift = bits - (self.at % 8 + self.bits);
        let mask = bits_max(self.bits as u8) << shift;
        put_number(field, get_number(field) & !mask | number << shift & mask);
    }
}

impl SumAt {
    /// Computes the checksum of a frame in which it is zero. `partial` is as in [`Stack::write`].
    #[inline]
    pub fn put(&self, frame: &mut [u8], partial: Option<(usize, usize)>) {
        if self.sum != Checksum::Header {
            return self.put_over_payload(frame, partial);
        }
        let (start, end) = (self.header.0 as usize, self.header.1 as usize);
        let (at, value) = (self.at as usize, !fold(sum(&frame[start..end])));
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Computes a checksum over header and payload, and writes it. `partial` is a checksum that a device will complete:
    /// its start and the offset of its field.
    fn put_over_payload(&self, frame: &mut [u8], partial: Option<(usize, usize)>) {
        let (start, at, behind) = (self.header.0 as usize, self.at as usize, frame.len());
        if self.sum == Checksum::Crc32c {
            let crc = eval::crc32c(&frame[start..]).to_le_bytes();
            return frame[at..at + 4].copy_from_slice(&crc);
        }
        let mut total = match partial.filter(|(from, _)| *from >= start && *from < behind) {
            // A device will complete the checksum from there on, so those bytes sum to all ones, except for the pseudo
            // header sum in the field. See RFC 1624 and "local checksum offload" of Linux.
            Some((from, field)) => {
                let inner = frame.get(field..field + 2).map_or(0, |f| u16::from_be_bytes([f[0], f[1]]));
                let inner = if (from - start) % 2 == 1 { (!inner).swap_bytes() } else { !inner };
                folded(&frame[start..from]) + u64::from(inner)
            }
            None => folded(&frame[start..behind]),
        };
        if matches!(self.sum, Checksum::Pseudo | Checksum::PseudoOrZero) {
            for (from, to) in &self.addresses {
                total += folded(&frame[*from as usize..*to as usize]);
            }
            let length = (frame.len() - start) as u64;
            total += (length >> 16) + (length & 0xffff) + u64::from(self.number);
        }
        let value = match (self.sum, !fold(total)) {
            (Checksum::PseudoOrZero, 0) => 0xffff,
            (_, value) => value,
        };
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Merges adjacent ranges of whole words, so that one sum covers them.
fn joined(ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (from, to) in ranges {
        match joined.last_mut() {
            Some((first, end)) if *end == from && (*end - *first) % 2 == 0 => *end = to,
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// The internet checksum sum of bytes, with the carries folded in.
#[inline]
fn folded(bytes: &[u8]) -> u64 {
    u64::from(fold(sum(bytes)))
}

/// Maximum size of both addresses for packets that may omit the checksum: IPv4.
const LONGEST_WITHOUT_SUM: u32 = 8;

/// Payload lengths for sample headers, to see which fields depend on the length.
const SAMPLES: [usize; 5] = [0, 1, 2, 40, 100];

/// Builds headers from the innermost out, in front of a payload of `payload` zero bytes.
fn build_headers(
    protocols: &[Protocol],
    headers: &[Header],
    linked: &[BTreeMap<FieldId, u64>],
    payload: usize,
) -> Result<Vec<BuiltHeader>, BuildError> {
    let mut behind = vec![0; payload];
    let mut all = Vec::new();
    for at in (0..headers.len()).rev() {
        let made = header_builder(protocols, headers, linked, at, &behind).build()?;
        behind = [&made.bytes[..], &behind].concat();
        all.push(made);
    }
    all.reverse();
    Ok(all)
}

/// Computes the values of the last header that depend on its content.
fn link_to(
    protocols: &[Protocol],
    last: &Header,
    carried: ProtocolId,
) -> Result<Vec<(FieldId, u64)>, StackError> {
    if let Ok(next) = link(protocols, last.protocol, carried) {
        return Ok(next.condition.required());
    }
    // The content is plain bytes, unless the header must say otherwise.
    let mut says = Vec::new();
    for next in &protocols[usize::from(last.protocol.0)].next {
        next.condition.each(&mut |e| {
            if let Expr::Field(id) = e
                && !last.values.contains_key(id)
                && !says.contains(id)
            {
                says.push(*id);
            }
        });
    }
    match says.is_empty() {
        true => Ok(Vec::new()),
        false => Err(StackError::Unsaid(last.protocol, says)),
    }
}

/// Whether anything else depends on the field: a width, a condition, a computed field, or a field set below.
fn decides(protocols: &[Protocol], headers: &[Header], at: usize, field: FieldId) -> bool {
    let protocol = &protocols[usize::from(headers[at].protocol.0)];
    let mut found = false;
    let mut look = |expr: &Expr| expr.each(&mut |e| found |= *e == Expr::Field(field));
    for other in &protocol.fields {
        match &other.rule {
            Rule::Default(expr) | Rule::Computed(expr) => look(expr),
            Rule::Plain | Rule::Constant(_) | Rule::Reserved => {}
        }
        other.check.iter().for_each(&mut look);
        if let Width::Bytes { count, .. } = &other.width {
            look(count);
        }
    }
    protocol.items.iter().for_each(|item| item.each_expr(&mut look));
    protocol.encap.iter().for_each(|(.., value)| look(value));
    found
}

/// The position of a field in a header without optional parts: its first bit, its width, and the width of the header.
fn place_of(protocol: &Protocol, field: FieldId) -> Option<(usize, usize, usize)> {
    let mut bits = 0;
    for item in &protocol.items {
        bits += fixed_bits(protocol, item)?;
    }
    let (at, width) = place_behind_fixed(protocol, field)?;
    Some((at, width, bits))
}

/// The position of a field behind fields of fixed width: its first bit and its width.
fn place_behind_fixed(protocol: &Protocol, field: FieldId) -> Option<(usize, usize)> {
    let mut bits = 0;
    for item in &protocol.items {
        let width = fixed_bits(protocol, item)?;
        if *item == Item::Field(field) {
            return Some((bits, width));
        }
        bits += width;
    }
    None
}

/// The width of a big-endian field that is always present with a fixed width.
fn fixed_bits(protocol: &Protocol, item: &Item) -> Option<usize> {
    let Item::Field(id) = item else { return None };
    match &protocol.fields[usize::from(id.0)].width {
        Width::Bits { n, little: false } => Some(usize::from(*n)),
        Width::Bytes { count: Expr::Int(n), .. } => Some(8 * *n as usize),
        _ => None,
    }
}

/// Lists the address fields of a protocol.
pub(super) fn address_fields(protocol: &Protocol) -> Vec<FieldId> {
    let fields = protocol.fields.iter().enumerate();
    fields.filter(|(_, field)| field.ty == Type::IpAddr).map(|(at, _)| FieldId(at as u16)).collect()
}

/// The ranges of the addresses of a header in bytes. Empty if it has none, or if a part of variable length precedes
/// them.
pub fn addresses_in(protocol: &Protocol) -> Vec<(u32, u32)> {
    let place = |field| {
        let (at, bits) = place_behind_fixed(protocol, field)?;
        Some(((at / 8) as u32, ((at + bits) / 8) as u32))
    };
    let places: Option<Vec<_>> = address_fields(protocol).into_iter().map(place).collect();
    joined(places.unwrap_or_default())
}

/// A checksum that covers addresses of headers below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoSum {
    /// The protocol of its header.
    pub protocol: ProtocolId,
    /// Its offset in that header, if it is fixed.
    pub at: Option<u16>,
    /// Whether zero means no checksum.
    pub zero_is_none: bool,
}

/// The checksums of these layers, and of layers behind them, that cover addresses in front of them.
pub fn pseudo_sums(protocols: &[Protocol], layers: &[ProtocolId]) -> Vec<PseudoSum> {
    let (mut found, mut seen, mut nth) = (Vec::new(), layers.to_vec(), 0);
    while let Some(id) = seen.get(nth).copied() {
        nth += 1;
        let protocol = &protocols[usize::from(id.0)];
        for (at, field) in protocol.fields.iter().enumerate() {
            if let Some(sum @ (Checksum::Pseudo | Checksum::PseudoOrZero)) = field.rule.checksum() {
                let place = place_behind_fixed(protocol, FieldId(at as u16));
                let at = place.map(|(bits, _)| (bits / 8) as u16);
                found.push(PseudoSum { protocol: id, at, zero_is_none: sum == Checksum::PseudoOrZero });
            }
        }
        if !address_fields(protocol).is_empty() {
            // Layers behind it cover these addresses instead.
            continue;
        }
        for next in protocol.next.iter().filter(|next| !next.inner) {
            if !seen.contains(&next.to) {
                seen.push(next.to);
            }
        }
    }
    found
}

/// Locates a field of a protocol by its bit offset, with its byte order.
fn bits_at(protocols: &[Protocol], protocol: ProtocolId, field: FieldId, at: usize, bits: usize) -> BitsAt {
    let width = &protocols[usize::from(protocol.0)].fields[usize::from(field.0)].width;
    let little = matches!(width, Width::Bits { little: true, .. });
    BitsAt { at: at as u32, bits: bits as u32, little }
}

/// A header of a stack under construction.
struct Layer<'a> {
    protocols: &'a [Protocol],
    headers: &'a [Header],
    at: usize,
    starts: &'a [usize],
    first: &'a [BuiltHeader],
}

/// How often the payload length is added up in a computed field; None if it is used other than in a sum.
fn payloads_in_rule(fields: &[Field], field: FieldId, is_given: &dyn Fn(FieldId) -> bool) -> Option<u32> {
    match &fields[usize::from(field.0)].rule {
        rule if rule.checksum().is_some() => Some(0),
        Rule::Computed(expr) | Rule::Default(expr) => payloads_in(expr, fields, is_given),
        Rule::Plain | Rule::Constant(_) | Rule::Reserved => Some(0),
    }
}

/// How many times the payload length is added in an expression. None if the expression depends on it in another way.
fn payloads_in(expr: &Expr, fields: &[Field], is_given: &dyn Fn(FieldId) -> bool) -> Option<u32> {
    let inner = |expr: &Expr| payloads_in(expr, fields, is_given);
    match expr {
        Expr::PayloadBytes | Expr::BytesAfter(_) | Expr::Rest => Some(1),
        Expr::Field(id) if is_given(*id) => Some(0),
        Expr::Field(id) => payloads_in_rule(fields, *id, is_given),
        Expr::Binary(BinaryOp::Add, a, b) => Some(inner(a)? + inner(b)?),
        Expr::Binary(BinaryOp::Sub, a, b) if inner(b)? == 0 => inner(a),
        other => {
            let mut depends = other.depends_on_end();
            other.each(&mut |e| {
                if let Expr::Field(id) = e {
                    depends |= inner(&Expr::Field(*id)) != Some(0);
                }
            });
            (!depends).then_some(0)
        }
    }
}

impl Layer<'_> {
    /// Finds the fields that depend on the payload length.
    fn lengths(
        &self,
        start: usize,
        stack: usize,
        others: &[Vec<BuiltHeader>],
    ) -> Result<Vec<(BitsAt, i64)>, StackError> {
        let (protocol, first) = (self.headers[self.at].protocol, &self.first[self.at]);
        let mut lengths = Vec::new();
        for (field, bit, bits) in &first.places {
            let width = &self.protocols[usize::from(protocol.0)].fields[usize::from(field.0)].width;
            let Width::Bits { little, .. } = width else { continue };
            if first.sums.iter().any(|(byte, _)| 8 * byte == *bit) {
                continue;
            }
            let read = |made: &BuiltHeader| {
                let number = eval::bits(&made.bytes, *bit, *bits);
                as_on_wire(number, *bits as u32, *little)
            };
            if !self.adds_payload(*field) {
                return Err(StackError::NotLinear(protocol, *field));
            }
            let zero = read(first);
            let all: Vec<u64> = others.iter().map(|made| read(&made[self.at])).collect();
            let is_same = others.iter().all(|made| made[self.at].places == first.places);
            if is_same && all.iter().all(|n| *n == zero) {
                continue;
            }
            let adds = all.iter().zip(&SAMPLES[1..]).all(|(n, payload)| *n == zero + *payload as u64);
            if !is_same || !adds {
                return Err(StackError::NotLinear(protocol, *field));
            }
            let place = bits_at(self.protocols, protocol, *field, 8 * start + bit, *bits);
            lengths.push((place, zero as i64 - stack as i64));
        }
        Ok(lengths)
    }

    /// Whether a computed field is independent of the payload length, or its sum with constants.
    fn adds_payload(&self, field: FieldId) -> bool {
        let header = &self.headers[self.at];
        let fields = &self.protocols[usize::from(header.protocol.0)].fields;
        let is_given = |id: FieldId| header.values.contains_key(&id);
        is_given(field) || payloads_in_rule(fields, field, &is_given).is_some_and(|n| n <= 1)
    }

    /// The fields below that spread the flows of this header, unless they are given.
    fn spreads(&self, carried: Option<ProtocolId>) -> Result<Vec<SpreadAt>, StackError> {
        let next = self.headers.get(self.at + 1).map(|next| next.protocol).or(carried);
        let from = self.starts[self.at] + self.first[self.at].bytes.len();
        let unsaid = spreads(self.protocols, self.headers, self.at)
            .filter(|(below, field, _)| !self.headers[*below].values.contains_key(field));
        let at = |(below, field, spread): (usize, FieldId, Spread)| {
            let protocol = self.headers[below].protocol;
            let place = self.first[below].places.iter().find(|(of, ..)| *of == field);
            let place = place.filter(|_| !decides(self.protocols, self.headers, below, field));
            let (_, bit, bits) = place.ok_or(StackError::NotConstant(protocol, field))?;
            let place = bits_at(self.protocols, protocol, field, 8 * self.starts[below] + bit, *bits);
            Ok(SpreadAt { place, from: from as u32, is_ip: carries_ip(self.protocols, next), spread })
        };
        unsaid.map(at).collect()
    }

    /// Describes a checksum of the current header: its position, range and pseudo header.
    fn sum(&self, at: usize, sum: Checksum) -> SumAt {
        let (start, below) = (self.starts[self.at], &self.headers[..self.at]);
        let end = start + self.first[self.at].bytes.len();
        let mut found = SumAt {
            at: at as u32,
            sum,
            header: (start as u32, end as u32),
            addresses: Vec::new(),
            number: 0,
        };
        if matches!(sum, Checksum::Pseudo | Checksum::PseudoOrZero) {
            found.addresses = self.addresses_below();
            let direct = below.last();
            found.number = direct
                .and_then(|direct| number_in(self.protocols, direct, &self.headers[self.at]))
                .unwrap_or(0);
        }
        found
    }

    /// Finds the ranges of the addresses of the nearest header below that has any.
    fn addresses_below(&self) -> Vec<(u32, u32)> {
        let Some((lower, fields)) = addresses(self.protocols, &self.headers[..self.at]) else {
            return Vec::new();
        };
        let places = self.first[lower].places.iter().filter(|(field, ..)| fields.contains(field));
        let range = |(_, bit, bits): &(FieldId, usize, usize)| {
            let from = self.starts[lower] + bit / 8;
            (from as u32, (from + bits / 8) as u32)
        };
        joined(places.map(range).collect())
    }

    /// The addresses that checksums of the content behind all headers cover, and the mandatory checksum among these, if
    /// there is one. `end` is the offset of the content.
    fn pseudo_of(&self, carried: ProtocolId, end: usize) -> (Vec<(u32, u32)>, Option<SumAt>) {
        let sums = pseudo_sums(self.protocols, &[carried]);
        if sums.is_empty() {
            return Default::default();
        }
        let addresses = self.addresses_below();
        let is_long = addresses.iter().map(|(from, to)| to - from).sum::<u32>() > LONGEST_WITHOUT_SUM;
        let own = sums.iter().find(|sum| sum.protocol == carried && sum.zero_is_none && is_long);
        let owed = own.and_then(|own| {
            let upper = Header { protocol: carried, ..Header::default() };
            Some(SumAt {
                at: end as u32 + u32::from(own.at?),
                sum: Checksum::PseudoOrZero,
                header: (end as u32, end as u32),
                addresses: addresses.clone(),
                number: number_in(self.protocols, self.headers.last()?, &upper)?,
            })
        });
        (addresses, owed)
    }
}
