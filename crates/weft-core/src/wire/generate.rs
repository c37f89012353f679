//! Random frames of protocol definitions, for tests, fuzzing and benchmarks.

use std::collections::BTreeMap;

use super::eval::{self, EvalContext};
use super::{
    Checksum, Expr, Field, FieldId, FieldValue, FoundField, Header, Item, Next, Protocol, ProtocolId,
    Reading, Rule, Until, Width, build,
};
use crate::frame::IP_PACKET_MAX;
use crate::rng::Rng;

/// Maximum number of layers of a random frame.
const LAYERS: usize = 10;

/// A random stack of headers that begins with `root`, and a payload.
pub fn headers(protocols: &[Protocol], root: ProtocolId, rng: &mut Rng) -> (Vec<Header>, Vec<u8>) {
    let (mut headers, mut here, mut level) = (Vec::new(), Some(root), 0);
    while let Some(protocol) = here.take() {
        let definition = &protocols[usize::from(protocol.0)];
        headers.push(header(definition, protocol, rng));
        // A condition without equalities cannot be satisfied by a builder.
        let is_buildable = |condition: &Expr| *condition == Expr::Int(1) || !condition.required().is_empty();
        let next: Vec<_> = definition.next.iter().filter(|next| is_buildable(&next.condition)).collect();
        if !next.is_empty() && headers.len() < LAYERS && rng.below(8) > 0 {
            let next = next[rng.below(next.len())];
            level += u8::from(next.inner);
            here = (level < super::LEVELS_MAX).then_some(next.to);
        }
    }
    let payload = (0..rng.below(64)).map(|_| rng.bits() as u8).collect();
    (headers, payload)
}

/// Changes the last header so that it names no header behind it. [`headers`] leaves such fields at their defaults, and
/// a default may name a protocol: next header 0 in IPv6 means options. The header stays as it is if the generator finds
/// no such value.
pub fn end(protocols: &[Protocol], headers: &mut [Header], rng: &mut Rng) {
    let Some(last) = headers.last_mut() else { return };
    let definition = &protocols[usize::from(last.protocol.0)];
    let free = discriminators(definition).into_iter().filter(|id| !last.values.contains_key(id));
    let free: Vec<FieldId> = free.collect();
    for _ in 0..END_TRIES {
        let drawn = free.iter().map(|id| (*id, value(&definition.fields[usize::from(id.0)], rng)));
        let values: BTreeMap<_, _> = last.values.clone().into_iter().chain(drawn).collect();
        let said = |id: FieldId| match (values.get(&id), &definition.fields[usize::from(id.0)].rule) {
            (Some(FieldValue::Number(n)), _) => *n,
            (None, Rule::Constant(n) | Rule::Default(Expr::Int(n))) => *n,
            _ => 0,
        };
        if definition.next.iter().all(|next| eval::value(&next.condition, &Guess(said, 0)) == 0) {
            last.values = values;
            return;
        }
    }
}

/// Attempts to find a value that names no header.
const END_TRIES: usize = 16;

/// A random frame that begins with `root`; None if the drawn values are inconsistent.
pub fn frame(protocols: &[Protocol], root: ProtocolId, rng: &mut Rng) -> Option<Vec<u8>> {
    let (headers, payload) = headers(protocols, root, rng);
    build(protocols, &headers, &payload).ok()
}

/// The first difference between these headers and what was read from their frame. A rule of a definition that refuses
/// the frame is no difference.
pub fn difference(protocols: &[Protocol], headers: &[Header], reading: &Reading) -> Option<String> {
    let definition = |id: ProtocolId| &protocols[usize::from(id.0)];
    for (header, layer) in headers.iter().zip(&reading.layers) {
        let [built, found] = [header.protocol, layer.protocol].map(definition);
        if header.protocol != layer.protocol {
            return Some(format!("`{}` was built and `{}` is read", built.name, found.name));
        }
        let found =
            |id: FieldId| layer.fields.iter().find(|found| found.field == id).map(|found| &found.value);
        let both = header.values.iter().filter_map(|(id, value)| Some((*id, value, found(*id)?)));
        if let Some((id, value, found)) = both.into_iter().find(|(_, value, found)| value != found) {
            let field = &built.fields[usize::from(id.0)].name;
            return Some(format!("`{}.{field}` was built of {value:?} and read as {found:?}", built.name));
        }
    }
    let missing = headers.get(reading.layers.len()).filter(|_| reading.malformed.is_none())?;
    Some(format!("`{}` was built and is not read", definition(missing.protocol).name))
}

/// Whether a sender could have cut each fragment of a frame (RFC 791 section 3.2, RFC 8200 section 4.5): all but the
/// last of a packet carry a multiple of 8 bytes, and none reaches beyond 65,535 bytes.
pub fn fragments_are_possible(protocols: &[Protocol], reading: &Reading) -> bool {
    reading.layers.iter().all(|layer| {
        let definition = &protocols[usize::from(layer.protocol.0)];
        let (Some(more), Some(offset)) = (definition.more_fragments(), definition.field("frag_offset"))
        else {
            return true;
        };
        let number = |id: FieldId| match layer.fields.iter().find(|found| found.field == id) {
            Some(FoundField { value: FieldValue::Number(n), .. }) => *n as usize,
            _ => 0,
        };
        let bytes = layer.end - layer.header_end;
        let is_cut_well = number(more) == 0 || (bytes > 0 && bytes.is_multiple_of(FRAGMENT_UNIT_BYTES));
        is_cut_well && number(offset) * FRAGMENT_UNIT_BYTES + bytes <= IP_PACKET_MAX
    })
}

/// Fragments begin at multiples of this many bytes.
const FRAGMENT_UNIT_BYTES: usize = 8;

/// A random header of a protocol; the fields that name the next header are left to the caller.
pub fn header(definition: &Protocol, protocol: ProtocolId, rng: &mut Rng) -> Header {
    let mut header = Header { protocol, ..Header::default() };
    let discriminators = discriminators(definition);
    for (at, field) in definition.fields.iter().enumerate().filter(|(_, field)| !field.repeated) {
        let id = FieldId(at as u16);
        // Fields on which a CHECK or an optional part depends keep their defaults now and then.
        let has_rule = field.check.is_some() || !matches!(field.rule, Rule::Plain | Rule::Default(_));
        let is_free = !has_rule && !discriminators.contains(&id);
        if is_free && (!field.optional || rng.below(2) == 0) && rng.below(8) > 0 {
            header.values.insert(id, value(field, rng));
        }
    }
    set_lengths(definition, &mut header.values, false);
    fit_lengths(definition, &mut header.values, false, rng);
    for item in &definition.items {
        let Item::Repeat { name, items, until, max, .. } = item else { continue };
        let n = rng.below(1 + (*max as usize).min(4));
        let round = |_| {
            let ids =
                items.iter().filter_map(|item| if let Item::Field(id) = item { Some(*id) } else { None });
            let free = ids.filter(|id| matches!(definition.fields[usize::from(id.0)].rule, Rule::Plain));
            let mut values = free.map(|id| (id, value(&definition.fields[usize::from(id.0)], rng))).collect();
            set_lengths(definition, &mut values, true);
            fit_lengths(definition, &mut values, true, rng);
            values
        };
        let rounds: Vec<BTreeMap<FieldId, FieldValue>> = (0..n).map(round).collect();
        // The count field gives the number of rounds.
        if let Until::Count(Expr::Field(id)) = until
            && is_settable(definition, *id)
        {
            header.values.insert(*id, FieldValue::Number(n as u64));
        }
        if n > 0 || !matches!(until, Until::Condition(_)) {
            header.rounds.insert(name.clone(), rounds);
        }
    }
    header
}

/// The fields that name the next header.
fn discriminators(definition: &Protocol) -> Vec<FieldId> {
    // A builder uses the first edge to a protocol.
    let is_first =
        |(at, next): &(usize, &Next)| definition.next[..*at].iter().all(|known| known.to != next.to);
    let ways = definition.next.iter().enumerate().filter(is_first);
    ways.flat_map(|(_, next)| next.condition.required()).map(|(field, _)| field).collect()
}

/// Sets the fields that give the length of other fields, or removes them with those fields; of a header or of a round.
fn set_lengths(definition: &Protocol, values: &mut BTreeMap<FieldId, FieldValue>, of_round: bool) {
    for (at, field) in definition.fields.iter().enumerate().filter(|(_, field)| field.repeated == of_round) {
        let Width::Bytes { count: Expr::Field(says), .. } = &field.width else { continue };
        if !is_settable(definition, *says) {
            continue;
        }
        match values.get(&FieldId(at as u16)) {
            Some(FieldValue::Bytes(bytes)) => {
                let length = FieldValue::Number(bytes.len() as u64);
                values.insert(*says, length);
            }
            _ => {
                values.remove(says);
            }
        }
    }
}

/// Gives byte fields the length that is computed from settable fields; of a header or of a round.
fn fit_lengths(
    definition: &Protocol,
    values: &mut BTreeMap<FieldId, FieldValue>,
    of_round: bool,
    rng: &mut Rng,
) {
    let says = |id: FieldId| {
        is_settable(definition, id) && definition.fields[usize::from(id.0)].repeated == of_round
    };
    for (at, field) in definition.fields.iter().enumerate().filter(|(_, field)| field.repeated == of_round) {
        let Width::Bytes { count, max } = &field.width else { continue };
        let (mut are_said, mut is_computed) = (true, false);
        count.each(&mut |part| match part {
            Expr::Field(id) => are_said &= says(*id),
            Expr::Binary(..) | Expr::Not(_) | Expr::In(..) | Expr::If(..) => is_computed = true,
            Expr::Int(_) => {}
            _ => are_said = false,
        });
        let is_there = values.contains_key(&FieldId(at as u16)) || !field.optional;
        if is_computed && are_said && is_there && matches!(field.rule, Rule::Plain) {
            let said = |id: FieldId| match (values.get(&id), &definition.fields[usize::from(id.0)].rule) {
                (Some(FieldValue::Number(n)), _) | (None, Rule::Default(Expr::Int(n))) => *n,
                _ => 0,
            };
            let length = eval::value(count, &Guess(said, 0)).min(u64::from(*max));
            let bytes = (0..length).map(|_| rng.bits() as u8).collect();
            values.insert(FieldId(at as u16), FieldValue::Bytes(bytes));
        }
    }
}

/// Whether a builder may set a field.
fn is_settable(definition: &Protocol, id: FieldId) -> bool {
    matches!(definition.fields[usize::from(id.0)].rule, Rule::Plain | Rule::Default(_))
}

/// Generates a random value that fits the width of a field.
fn value(field: &Field, rng: &mut Rng) -> FieldValue {
    match &field.width {
        Width::Bits { n, .. } => FieldValue::Number(rng.bits() >> (64 - u32::from((*n).clamp(1, 64)))),
        Width::Bytes { count: Expr::Int(n), .. } => {
            FieldValue::Bytes((0..*n).map(|_| rng.bits() as u8).collect())
        }
        // A length that earlier fields can give.
        Width::Bytes { count, max } => {
            let guess = rng.below(GUESS_MAX) as u64;
            let said = eval::value(count, &Guess(|_| guess, guess));
            FieldValue::Bytes((0..said.min(u64::from(*max))).map(|_| rng.bits() as u8).collect())
        }
        Width::Rounds { .. } => FieldValue::Bytes(Vec::new()),
    }
}

/// The greatest guess for fields that give a length.
const GUESS_MAX: usize = 12;

/// A header with known or guessed numbers: by field, and for everything else.
struct Guess<F>(F, u64);

impl<F: Fn(FieldId) -> u64> EvalContext for Guess<F> {
    fn field(&self, id: FieldId) -> u64 {
        self.0(id)
    }

    fn is_present(&self, _: FieldId) -> bool {
        true
    }

    fn peek(&self, _: u8) -> u64 {
        self.1
    }

    fn header_bytes(&self) -> u64 {
        0
    }

    fn payload_bytes(&self) -> u64 {
        0
    }

    fn bytes_after(&self, _: FieldId) -> u64 {
        self.1
    }

    fn round_bytes(&self) -> u64 {
        0
    }

    fn rest(&self) -> u64 {
        self.1
    }

    fn count(&self, _: &str) -> u64 {
        self.1
    }

    fn is_last(&self) -> bool {
        false
    }

    fn checksum(&self, _: Checksum) -> u64 {
        0
    }
}
