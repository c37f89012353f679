//! Plans the stores of changed fields, and the updates of checksums that cover them.

use core::cmp::Ordering;
use weft_core::inputs::InputSet;
use weft_core::limits::INPUTS_MAX;
use weft_core::types::Type;
use weft_core::wire::header_change::pseudo_sums;
use weft_core::wire::{Checksum, Field, FieldId, FieldRef, Item, LayerRef, Protocol, ProtocolId, Width};
use weft_ir::ir::{Endian, InputId};
use weft_ir::program::{Direction, Element, FieldLayout, FieldWrite, Input, InputLocation, Sum};

/// The bytes that hold a field, and its place in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// The offset of the first byte.
    pub(super) first_byte: u64,
    pub(super) bytes: u8,
    /// Number of bits below the field.
    pub(super) shift: u8,
}

/// The bytes that hold `n` bits from bit `at` on.
pub(super) fn container(at: u64, n: u8) -> Container {
    let (first_byte, end) = (at / 8, (at + u64::from(n)).div_ceil(8));
    let bytes = (end - first_byte) as u8;
    Container { first_byte, bytes, shift: (end * 8 - at - u64::from(n)) as u8 }
}

/// Plans for each input how it is written, if it is. Adds inputs for the checksums to update.
///
/// # Errors
/// The input that cannot be set and why, or that there are too many.
pub(super) fn plan(
    protocols: &[Protocol],
    inputs: &mut Vec<Input>,
    elements: &[Element],
) -> Result<Vec<Option<FieldWrite>>, String> {
    let mut stores = Vec::new();
    for at in 0..inputs.len() {
        let (InputLocation::Frame(field), true) = (inputs[at].place.clone(), inputs[at].written) else {
            stores.push(None);
            continue;
        };
        let refuse = |why: String| format!("`{}` cannot be set: {why}", inputs[at].name);
        no_aliases(InputId(at as u16), inputs, elements).map_err(refuse)?;
        let place = one_place(protocols, &field).map_err(refuse)?;
        let sums = sums(protocols, &field).map_err(refuse)?;
        stores.push(Some(FieldWrite { at: place, sums: as_inputs(protocols, inputs, &sums) }));
    }
    stores.resize(inputs.len(), None);
    if inputs.len() > INPUTS_MAX {
        return Err(format!(
            "it needs {} inputs, checksums included, and {INPUTS_MAX} are the most",
            inputs.len()
        ));
    }
    Ok(stores)
}

/// The input that cannot be set, and the input that aliases it, if that is the reason.
pub(in crate::lower) fn unfit<'a>(
    protocols: &[Protocol],
    inputs: &'a [Input],
    elements: &[Element],
) -> Option<(&'a Input, Option<&'a Input>)> {
    (0..).zip(inputs).filter(|(_, input)| input.written).find_map(|(at, input)| {
        let InputLocation::Frame(field) = &input.place else { return None };
        let other = alias(InputId(at), inputs, elements).map(|(_, other)| other);
        (other.is_some() || settable(protocols, field).is_err()).then_some((input, other))
    })
}

/// Whether a field can be set, if it has no alias.
///
/// # Errors
/// The reason why the field cannot be set.
pub(in crate::lower) fn settable(protocols: &[Protocol], field: &FieldRef) -> Result<(), String> {
    one_place(protocols, field)?;
    sums(protocols, field).map(|_| ())
}

/// Fails if an element that sets the field also uses it under another name.
fn no_aliases(id: InputId, inputs: &[Input], elements: &[Element]) -> Result<(), String> {
    match alias(id, inputs, elements) {
        Some((element, other)) => {
            Err(format!("`{}` also knows it as `{}`; use one name in it", element.name, other.name))
        }
        None => Ok(()),
    }
}

/// Finds an element that sets the field and uses an alias of it, which would not see the change; later elements parse
/// the frame again.
fn alias<'a, 'e>(
    id: InputId,
    inputs: &'a [Input],
    elements: &'e [Element],
) -> Option<(&'e Element, &'a Input)> {
    let others = Direction { inputs: inputs.to_vec() }.overlapping(InputSet::of(id));
    elements.iter().filter(|element| element.inputs_written().contains(id)).find_map(|element| {
        let known = others & element.inputs_used();
        known.iter().next().map(|at| (element, &inputs[at]))
    })
}

/// The place of the field, if it is the same in all its protocols.
fn one_place(protocols: &[Protocol], field: &FieldRef) -> Result<FieldLayout, String> {
    let parts = field.layer.protocols.iter().zip(field.fields.iter().flatten());
    let mut places = parts.map(|(protocol, id)| {
        let protocol = &protocols[usize::from(protocol.0)];
        place(protocol, *id)
    });
    let first = places.next().flatten().ok_or("it cannot be written")?;
    match places.all(|other| other == Some(first)) {
        true => Ok(first),
        false => Err("its protocols hold it differently; set the field of each by its own name".to_owned()),
    }
}

/// Returns the layout of a field in its header. None if bits before it have no constant position.
fn place(protocol: &Protocol, id: FieldId) -> Option<FieldLayout> {
    match protocol.fields[usize::from(id.0)].width {
        Width::Bytes { .. } | Width::Rounds { .. } => Some(FieldLayout::Bytes),
        Width::Bits { n, little } => {
            let Container { bytes, shift, .. } = container(bits_before(protocol, id)?, n);
            let endian = if little { Endian::Little } else { Endian::Big };
            Some(FieldLayout::Bits { bytes, shift, bits: n, endian })
        }
    }
}

/// Bits before a field, from the start of its header or of the last item without a constant size. Only the remainder by
/// 8 matters, and that is the same in both cases.
fn bits_before(protocol: &Protocol, id: FieldId) -> Option<u64> {
    fn find(fields: &[Field], items: &[Item], id: FieldId) -> Option<u64> {
        let mut bits = 0;
        for item in items {
            match item {
                Item::Field(at) if *at == id => return Some(bits),
                Item::Field(at) => match fields[usize::from(at.0)].width {
                    Width::Bits { n, .. } => bits += u64::from(n),
                    Width::Bytes { .. } | Width::Rounds { .. } => bits = 0,
                },
                Item::When { items, .. } | Item::Repeat { items, .. } => {
                    if let Some(found) = find(fields, items, id) {
                        return Some(found);
                    }
                    bits = 0;
                }
            }
        }
        None
    }
    find(&protocol.fields, &protocol.items, id)
}

/// A checksum that covers a field.
#[derive(Clone, PartialEq)]
struct Covering {
    level: u8,
    protocol: ProtocolId,
    field: FieldId,
    kind: Checksum,
    /// Only through its pseudo header.
    pseudo: bool,
}

/// Finds the checksums that cover a field. Fails if one cannot be updated.
fn sums(protocols: &[Protocol], field: &FieldRef) -> Result<Vec<Covering>, String> {
    let mut found: Vec<Covering> = Vec::new();
    for (protocol, id) in field.layer.protocols.iter().zip(field.fields.iter().flatten()) {
        let own = (*protocol, *id);
        for level in 0..=field.layer.level {
            for (at, other) in protocols.iter().enumerate() {
                let at = ProtocolId(at as u16);
                for (sum_field, kind) in checksums(other).filter(|(sum_field, _)| (at, *sum_field) != own) {
                    let covers = match level == field.layer.level {
                        true => covers(protocols, (at, kind), own),
                        false if kind != Checksum::Header && carries(protocols, at, *protocol) => Some(false),
                        false => None,
                    };
                    let Some(pseudo) = covers else { continue };
                    if kind == Checksum::Crc32c {
                        return Err(format!("the CRC32c of `{}` covers it", other.name));
                    }
                    let is_it = |known: &Covering| {
                        (known.level, known.protocol, known.field) == (level, at, sum_field)
                    };
                    if !found.iter().any(is_it) {
                        found.push(Covering { level, protocol: at, field: sum_field, kind, pseudo });
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Checksums as inputs; and which of them cover others.
fn as_inputs(protocols: &[Protocol], inputs: &mut Vec<Input>, sums: &[Covering]) -> Vec<Sum> {
    let mut input = |sum: &Covering| {
        let layer = LayerRef { level: sum.level, protocols: vec![sum.protocol] };
        input_of(protocols, inputs, FieldRef::first(layer, vec![sum.field]))
    };
    let known: Vec<(&Covering, u16)> = sums.iter().map(|sum| (sum, input(sum))).collect();
    let covered_by = |sum: &Covering| {
        let covered = known.iter().filter(|(other, _)| sum.covers(other, protocols));
        covered.map(|(_, input)| *input).collect()
    };
    let sum = |(sum, input): &(&Covering, u16)| Sum {
        input: *input,
        zero_is_none: sum.kind == Checksum::PseudoOrZero,
        pseudo: sum.pseudo,
        covers: covered_by(sum),
    };
    known.iter().map(sum).collect()
}

impl Covering {
    /// Whether it covers a checksum of a layer that may follow its own.
    fn covers(&self, other: &Self, protocols: &[Protocol]) -> bool {
        self.kind != Checksum::Header
            && match self.level.cmp(&other.level) {
                Ordering::Less => carries(protocols, self.protocol, other.protocol),
                Ordering::Equal => {
                    self.protocol != other.protocol && leads_to(protocols, self.protocol, other.protocol)
                }
                Ordering::Greater => false,
            }
    }
}

/// Whether a checksum covers a field of the same level, and whether only through its pseudo header.
fn covers(
    protocols: &[Protocol],
    (of, sum): (ProtocolId, Checksum),
    (protocol, field): (ProtocolId, FieldId),
) -> Option<bool> {
    let own = &protocols[usize::from(protocol.0)];
    let is_address = own.fields[usize::from(field.0)].ty == Type::IpAddr;
    if of == protocol || (sum != Checksum::Header && leads_to(protocols, of, protocol)) {
        return Some(false);
    }
    let behind = || own.next.iter().filter(|next| !next.inner).map(|next| next.to).collect::<Vec<_>>();
    let has_it = is_address && pseudo_sums(protocols, &behind()).iter().any(|known| known.protocol == of);
    has_it.then_some(true)
}

fn checksums(protocol: &Protocol) -> impl Iterator<Item = (FieldId, Checksum)> {
    let sums = protocol.fields.iter().map(|field| field.rule.checksum());
    sums.enumerate().filter_map(|(at, sum)| Some((FieldId(at as u16), sum?)))
}

/// Whether a layer of `to` may follow one of `from` on the same level.
pub(in crate::lower) fn leads_to(protocols: &[Protocol], from: ProtocolId, to: ProtocolId) -> bool {
    reached(protocols, from).contains(&(to, false))
}

/// Whether a layer of `to` may follow one of `from` on an inner level.
fn carries(protocols: &[Protocol], from: ProtocolId, to: ProtocolId) -> bool {
    reached(protocols, from).contains(&(to, true))
}

/// The layers that may follow a layer, and whether on an inner level.
fn reached(protocols: &[Protocol], from: ProtocolId) -> Vec<(ProtocolId, bool)> {
    let (mut found, mut at) = (Vec::new(), 0);
    let mut here = Some((from, false));
    while let Some((protocol, inner)) = here {
        for next in &protocols[usize::from(protocol.0)].next {
            let node = (next.to, inner || next.inner);
            if !found.contains(&node) {
                found.push(node);
            }
        }
        here = found.get(at).copied();
        at += 1;
    }
    found
}

/// The input of this field: an existing one, or a new one that no element sees.
fn input_of(protocols: &[Protocol], inputs: &mut Vec<Input>, field: FieldRef) -> u16 {
    let place = InputLocation::Frame(field.clone());
    if let Some(at) = inputs.iter().position(|input| input.place == place) {
        return at as u16;
    }
    let protocol = &protocols[usize::from(field.layer.protocols[0].0)];
    let id = field.fields.iter().flatten().next().map_or(0, |id| usize::from(id.0));
    let name = format!("{}.{}", protocol.name, protocol.fields[id].name);
    inputs.push(Input { name, ty: protocol.fields[id].ty, nullable: true, place, written: false });
    inputs.len() as u16 - 1
}
