//! What changes which headers a frame has: PUSH, POP and CUT.
//!
//! What is pushed is a [`Stack`]: the headers as they are written but for what only the frame tells. It is made once,
//! when a chain is compiled ([`stack`]), from the same definitions as [`build`](super::build), and written into the
//! room in front of a packet in one go ([`Stack::write`]): bytes are copied, values, lengths and then checksums put
//! in.

use std::collections::BTreeMap;

use super::build::{BuiltHeader, addresses, carries_ip, link, links, maker, number_in, spreads};
use super::eval;
use super::{
    BinaryOp, BuildError, Checksum, Expr, Field, FieldId, FieldValue, Header, Item, Protocol, ProtocolId,
    Rule, Spread, Width, as_on_wire, bits_max, get_number, put_bytes, put_number,
};
use crate::checksum::{fold, sum};
use crate::flow::flow_of;
use crate::types::Type;

/// Bytes that one PUSH may put in front of a packet: as much room as a new packet has there
/// ([`crate::frame::HEADROOM`]), so that nothing is moved.
pub const PUSH_BYTES_MAX: usize = crate::frame::HEADROOM;

/// A change of the structure of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderChange {
    /// `PUSH`: headers are put on.
    Push {
        /// Where: in front of the frame, or behind its first header, which has so many bytes and is told of it.
        behind: Option<(u16, Relink)>,
        /// What: the first that suits what the frame begins with.
        stacks: Vec<Stack>,
    },
    /// `POP`: headers are taken off.
    Pop {
        /// The input that is the layer which says how far.
        layer: u16,
        /// How much.
        how: Pop,
        /// Checksums of what stays that cover addresses of what goes.
        pseudo: Pseudo,
    },
    /// `CUT TO n`: what is beyond the first n bytes goes.
    Cut,
    /// `FRAGMENT TO n`: a packet of IPv4 goes on in fragments of at most n bytes, if it may be cut
    /// ([`crate::frame::Pool::fragment`]).
    Fragment,
}

/// How much a POP takes off. With what is in front of a layer goes what stands behind its end: a short Ethernet frame
/// is filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pop {
    /// `POP TO layer`, and `POP` to what the layer of an element carries: all in front of it.
    To,
    /// `POP layer`: the layer alone; the one below is told what stands behind it now.
    Alone(Relink),
}

/// What pseudo headers take in of headers that are taken off, and the checksums that do so. They go without until other
/// addresses are put on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pseudo {
    /// The addresses.
    pub addresses: Vec<AddressesIn>,
    /// The checksums.
    pub sums: Vec<PseudoSumIn>,
}

/// Addresses of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressesIn {
    /// The input that is the layer.
    pub layer: u16,
    /// Where they begin and end in it.
    pub ranges: Vec<(u32, u32)>,
}

/// A checksum with a pseudo header, in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoSumIn {
    /// The input that is the layer.
    pub layer: u16,
    /// Its first byte there.
    pub at: u16,
    /// Zero means that there is none.
    pub zero_is_none: bool,
}

/// How the field of a lower header, by which it says what stands behind it, follows where a header is put between the
/// two or taken out: it swaps its value with the field of the same name of that header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relink {
    /// Bytes of the field.
    pub bytes: u8,
    /// Bytes from its first to the end of the lower header.
    pub back: u16,
    /// Where the field of the header between them begins in it.
    pub within: u16,
    /// What the lower header says of a header that is put in.
    pub value: u64,
}

/// Headers as they are put in front of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The frame must begin with these: so many bits, and their value.
    pub begins: Option<(u8, u64)>,
    /// What does not depend on the frame; the rest is zero.
    pub bytes: Vec<u8>,
    /// Where the values go that the program gives, in their order.
    pub values: Vec<BitsAt>,
    /// Numbers that follow from how long the frame is with its new headers, and what is to be added to that.
    pub lengths: Vec<(BitsAt, i64)>,
    /// Numbers that spread the flows which tunnels carry. Those of inner tunnels come first: they are part of a flow.
    pub spreads: Vec<SpreadAt>,
    /// Checksums, in the order in which they are computed: those of inner headers first.
    pub sums: Vec<SumAt>,
    /// Where the addresses begin and end that a checksum of what the headers carry covers.
    pub pseudo: Vec<(u32, u32)>,
    /// That checksum, where there must be one (RFC 8200 section 8.1): it is made if what is carried came without.
    pub owed: Option<SumAt>,
}

/// Where bits lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitsAt {
    /// The first, counted from the most significant bit of the first byte.
    pub at: u32,
    /// How many: up to 64 of a number, or those of a run of bytes.
    pub bits: u32,
    /// The least significant byte of a number comes first.
    pub little: bool,
}

/// Where a number lies that spreads flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadAt {
    /// Where it goes.
    pub place: BitsAt,
    /// Where the packet begins whose flow it is.
    pub from: u32,
    /// That is an IP packet, and no frame.
    pub is_ip: bool,
    /// How.
    pub spread: Spread,
}

/// Where a checksum lies, and of what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumAt {
    /// Its first byte.
    pub at: u32,
    /// Which.
    pub sum: Checksum,
    /// Where its header begins and ends.
    pub header: (u32, u32),
    /// Where the addresses of the pseudo header begin and end.
    pub addresses: Vec<(u32, u32)>,
    /// The number of the protocol in the pseudo header.
    pub number: u8,
}

/// A value that is given for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackValue<'a> {
    /// For bits: as many as the field has, at most.
    Number(u64),
    /// For bytes: as many as the field has.
    Bytes(&'a [u8]),
}

/// A frame is too long for a length of its new headers, or a value has more bits than its field, or not as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoesNotFit;

/// Why headers cannot be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackError {
    /// As for [`build`](super::build).
    Build(BuildError),
    /// The layout, or a rule, depends on a field whose value is known only when a frame is there.
    NotConstant(ProtocolId, FieldId),
    /// A rule follows from the length of the payload in another way than by adding to it.
    NotLinear(ProtocolId, FieldId),
    /// More than [`PUSH_BYTES_MAX`].
    TooLong(usize),
    /// The frame would stand behind the last header, which does not say so, and these fields of it are not given.
    Unsaid(ProtocolId, Vec<FieldId>),
}

impl From<BuildError> for StackError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

/// Makes what is to be put in front of frames that begin with `carried`: `headers` from the outside in, with the fields
/// of `given` (header, field; a value for each comes with each frame) beside those that are known. Without `carried`
/// the last header does not yet say what stands behind it: [`relink`] does.
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
    let samples = SAMPLES.map(|n| made(protocols, &headers, &linked, n));
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
    // What is computed from a frame is no part of what does not depend on it.
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

/// The field by which a lower header says what stands behind it, and that of the same name in the last of the headers
/// that are put behind it, of which `first` is the first, as [`Relink`] wants them. `None`: there are no two such
/// fields of whole bytes, or a rule of the lower header follows from what it carries.
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
    /// Writes the headers into the first bytes of a frame, which are room for them. `partial` is the first byte that a
    /// checksum covers which is still to be completed, and where that is: what it will be is known beforehand. `told`
    /// is what the header in front said of what stands behind these, and where that goes ([`Relink::within`]).
    ///
    /// # Errors
    /// [`DoesNotFit`]: the frame is of no use then.
    ///
    /// # Panics
    /// The frame is shorter than the headers.
    pub fn write<'v>(
        &self,
        frame: &mut [u8],
        values: impl Iterator<Item = StackValue<'v>>,
        partial: Option<(usize, usize)>,
        told: Option<(usize, &[u8])>,
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
        if let Some((at, bytes)) = told {
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
    /// Writes a number, unless it has more bits than there are.
    #[inline(always)]
    fn put_fitting(self, bytes: &mut [u8], number: u64) -> Result<(), DoesNotFit> {
        if self.bits < 64 && number >> self.bits != 0 {
            return Err(DoesNotFit);
        }
        self.put(bytes, number);
        Ok(())
    }

    /// Writes a run of bytes, if it is as long as the field.
    #[inline(always)]
    fn put_run(self, bytes: &mut [u8], run: &[u8]) -> Result<(), DoesNotFit> {
        if 8 * run.len() != self.bits as usize {
            return Err(DoesNotFit);
        }
        let at = self.at as usize / 8;
        put_bytes(bytes.get_mut(at..at + run.len()).ok_or(DoesNotFit)?, run);
        Ok(())
    }

    /// Writes a number.
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

    /// Writes a number of whatever width, in whatever place.
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
    /// Makes the checksum of a frame, in which it is zero. `partial` is as in [`Stack::write`].
    #[inline]
    pub fn put(&self, frame: &mut [u8], partial: Option<(usize, usize)>) {
        if self.sum != Checksum::Header {
            return self.put_over_payload(frame, partial);
        }
        let (start, end) = (self.header.0 as usize, self.header.1 as usize);
        let (at, value) = (self.at as usize, !fold(sum(&frame[start..end])));
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn put_over_payload(&self, frame: &mut [u8], partial: Option<(usize, usize)>) {
        let (start, at, behind) = (self.header.0 as usize, self.at as usize, frame.len());
        if self.sum == Checksum::Crc32c {
            let crc = eval::crc32c(&frame[start..]).to_le_bytes();
            return frame[at..at + 4].copy_from_slice(&crc);
        }
        let mut total = match partial.filter(|(from, _)| *from >= start && *from < behind) {
            // What the device makes of the bytes from there on is a sum of all ones, but for the pseudo header that
            // the field holds now: RFC 1624, and "local checksum offload" of Linux.
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

/// Ranges of whole words that follow each other, as one: there is one sum of them.
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

#[inline]
fn folded(bytes: &[u8]) -> u64 {
    u64::from(fold(sum(bytes)))
}

/// Bytes of both addresses of a packet whose datagrams may go without a checksum, at most: IPv4.
const LONGEST_WITHOUT_SUM: u32 = 8;

/// Payloads with which headers are made, to see what follows from how long they are.
const SAMPLES: [usize; 5] = [0, 1, 2, 40, 100];

fn made(
    protocols: &[Protocol],
    headers: &[Header],
    linked: &[BTreeMap<FieldId, u64>],
    payload: usize,
) -> Result<Vec<BuiltHeader>, BuildError> {
    let mut behind = vec![0; payload];
    let mut all = Vec::new();
    for at in (0..headers.len()).rev() {
        let made = maker(protocols, headers, linked, at, &behind).make()?;
        behind = [&made.bytes[..], &behind].concat();
        all.push(made);
    }
    all.reverse();
    Ok(all)
}

/// What the last header holds because of what it carries.
fn link_to(
    protocols: &[Protocol],
    last: &Header,
    carried: ProtocolId,
) -> Result<Vec<(FieldId, u64)>, StackError> {
    if let Ok(next) = link(protocols, last.protocol, carried) {
        return Ok(next.condition.required());
    }
    // It is carried as bytes, if the header does not say otherwise.
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

/// Whether something besides the field itself follows from it: a width, a condition, what is computed, what is set
/// below.
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

/// Where a field lies in a header without optional parts: its first bit, its bits, and those of the header.
fn place_of(protocol: &Protocol, field: FieldId) -> Option<(usize, usize, usize)> {
    let mut bits = 0;
    for item in &protocol.items {
        bits += fixed_bits(protocol, item)?;
    }
    let (at, width) = place_behind_fixed(protocol, field)?;
    Some((at, width, bits))
}

/// Where a field lies behind others that are all of one length: its first bit, and its bits.
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

/// Bits of a field that is always there, as long, and not the other way round.
fn fixed_bits(protocol: &Protocol, item: &Item) -> Option<usize> {
    let Item::Field(id) = item else { return None };
    match &protocol.fields[usize::from(id.0)].width {
        Width::Bits { n, little: false } => Some(usize::from(*n)),
        Width::Bytes { count: Expr::Int(n), .. } => Some(8 * *n as usize),
        _ => None,
    }
}

/// Fields that are addresses.
pub(super) fn address_fields(protocol: &Protocol) -> Vec<FieldId> {
    let fields = protocol.fields.iter().enumerate();
    fields.filter(|(_, field)| field.ty == Type::IpAddr).map(|(at, _)| FieldId(at as u16)).collect()
}

/// Where the addresses of a header begin and end, in bytes. Nothing if it has none, or if something of no fixed length
/// is in front of them.
pub fn addresses_in(protocol: &Protocol) -> Vec<(u32, u32)> {
    let place = |field| {
        let (at, bits) = place_behind_fixed(protocol, field)?;
        Some(((at / 8) as u32, ((at + bits) / 8) as u32))
    };
    let places: Option<Vec<_>> = address_fields(protocol).into_iter().map(place).collect();
    joined(places.unwrap_or_default())
}

/// A checksum that covers addresses of headers below its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoSum {
    /// In which header it is.
    pub protocol: ProtocolId,
    /// At which byte of it, if that is the same in all.
    pub at: Option<u16>,
    /// Zero means that there is none.
    pub zero_is_none: bool,
}

/// The checksums of these layers, and of what stands behind them, that cover addresses in front of them.
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
            // What is behind covers these.
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

fn bits_at(protocols: &[Protocol], protocol: ProtocolId, field: FieldId, at: usize, bits: usize) -> BitsAt {
    let width = &protocols[usize::from(protocol.0)].fields[usize::from(field.0)].width;
    let little = matches!(width, Width::Bits { little: true, .. });
    BitsAt { at: at as u32, bits: bits as u32, little }
}

/// A header of a stack that is being made.
struct Layer<'a> {
    protocols: &'a [Protocol],
    headers: &'a [Header],
    at: usize,
    starts: &'a [usize],
    first: &'a [BuiltHeader],
}

/// How often the length of the payload is added up in what a field is computed from; None where more than a sum is
/// made of it.
fn payloads_in_rule(fields: &[Field], field: FieldId, is_given: &dyn Fn(FieldId) -> bool) -> Option<u32> {
    match &fields[usize::from(field.0)].rule {
        rule if rule.checksum().is_some() => Some(0),
        Rule::Computed(expr) | Rule::Default(expr) => payloads_in(expr, fields, is_given),
        Rule::Plain | Rule::Constant(_) | Rule::Reserved => Some(0),
    }
}

fn payloads_in(expr: &Expr, fields: &[Field], is_given: &dyn Fn(FieldId) -> bool) -> Option<u32> {
    let inner = |expr: &Expr| payloads_in(expr, fields, is_given);
    match expr {
        Expr::PayloadBytes | Expr::BytesAfter(_) | Expr::Rest => Some(1),
        Expr::Field(id) if is_given(*id) => Some(0),
        Expr::Field(id) => payloads_in_rule(fields, *id, is_given),
        Expr::Binary(BinaryOp::Add, a, b) => Some(inner(a)? + inner(b)?),
        Expr::Binary(BinaryOp::Sub, a, b) if inner(b)? == 0 => inner(a),
        other => {
            let mut depends = other.looks_behind();
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
    /// The fields that follow from how long the payload is.
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

    /// Whether what a field is computed from is how long the payload is, with numbers added, or does not depend on it.
    fn adds_payload(&self, field: FieldId) -> bool {
        let header = &self.headers[self.at];
        let fields = &self.protocols[usize::from(header.protocol.0)].fields;
        let is_given = |id: FieldId| header.values.contains_key(&id);
        is_given(field) || payloads_in_rule(fields, field, &is_given).is_some_and(|n| n <= 1)
    }

    /// The fields below that spread the flows which this header carries, unless they are given.
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

    /// Where the addresses of the nearest header below that has some begin and end.
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

    /// The addresses that a checksum covers of what stands behind all headers; and that checksum, where there must be
    /// one. `end` is where it begins.
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
