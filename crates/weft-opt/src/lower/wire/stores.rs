//! How fields that a chain changes are written back, and which checksums cover them.

use weft_core::limits::INPUTS_MAX;
use weft_core::types::Type;
use weft_core::wire::{
    Checksum, Expr, Field, FieldId, FieldRef, Item, LayerRef, Protocol, ProtocolId, Rule, Width,
};
use weft_ir::ir::Endian;
use weft_ir::program::{Input, Place, Store, StoreAt, Sum};

/// Where a field of so many bits lies within the bytes that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// From where its bits were counted.
    pub(super) first_byte: u64,
    pub(super) bytes: u8,
    /// Bits of them below the field.
    pub(super) shift: u8,
}

/// The bytes that hold `n` bits from bit `at` on.
pub(super) fn container(at: u64, n: u8) -> Container {
    let (first_byte, end) = (at / 8, (at + u64::from(n)).div_ceil(8));
    let bytes = (end - first_byte) as u8;
    Container { first_byte, bytes, shift: (end * 8 - at - u64::from(n)) as u8 }
}

/// For each input how it is written, if it is; adds inputs for the checksums that this changes.
///
/// # Errors
/// Which input cannot be set and why, or that there are too many.
pub(super) fn plan(protocols: &[Protocol], inputs: &mut Vec<Input>) -> Result<Vec<Option<Store>>, String> {
    let mut stores = Vec::new();
    for at in 0..inputs.len() {
        let (Place::Frame(field), true) = (inputs[at].place.clone(), inputs[at].written) else {
            stores.push(None);
            continue;
        };
        let refuse = |why: String| format!("`{}` cannot be set: {why}", inputs[at].name);
        no_aliases(&inputs[at], inputs).map_err(refuse)?;
        let place = one_place(protocols, &field).map_err(refuse)?;
        let sums = sums(protocols, &field).map_err(refuse)?;
        let sums =
            sums.into_iter().map(|(field, sum)| Sum { input: input_of(protocols, inputs, field), ..sum });
        stores.push(Some(Store { at: place, sums: sums.collect() }));
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

/// The input that cannot be set, and what goes by another name of it, if that is why.
pub(in crate::lower) fn unfit<'a>(
    protocols: &[Protocol],
    inputs: &'a [Input],
) -> Option<(&'a Input, Option<&'a Input>)> {
    inputs.iter().filter(|input| input.written).find_map(|input| {
        let Place::Frame(field) = &input.place else { return None };
        let other = alias(input, inputs);
        (other.is_some() || settable(protocols, field).is_err()).then_some((input, other))
    })
}

/// Whether a field can be set where it has one name.
///
/// # Errors
/// Why not.
pub(in crate::lower) fn settable(protocols: &[Protocol], field: &FieldRef) -> Result<(), String> {
    one_place(protocols, field)?;
    sums(protocols, field).map(|_| ())
}

/// A field goes by one name in a chain if it changes: an element would not see the change under another.
fn no_aliases(input: &Input, inputs: &[Input]) -> Result<(), String> {
    match alias(input, inputs) {
        Some(other) => Err(format!("it is also used as `{}`; use one name in the chain", other.name)),
        None => Ok(()),
    }
}

/// Another input that may be the same field.
fn alias<'a>(input: &Input, inputs: &'a [Input]) -> Option<&'a Input> {
    let Place::Frame(own) = &input.place else { return None };
    let parts = |field: &FieldRef| -> Vec<(ProtocolId, FieldId)> {
        field.layer.protocols.iter().copied().zip(field.fields.iter().flatten().copied()).collect()
    };
    let own_parts = parts(own);
    let is_alias = |other: &&Input| {
        let Place::Frame(field) = &other.place else { return false };
        field != own
            && field.layer.level == own.layer.level
            && parts(field).iter().any(|part| own_parts.contains(part))
    };
    inputs.iter().find(is_alias)
}

/// Where the field lies, if that is the same in all protocols that it may be of.
fn one_place(protocols: &[Protocol], field: &FieldRef) -> Result<StoreAt, String> {
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

fn place(protocol: &Protocol, id: FieldId) -> Option<StoreAt> {
    match protocol.fields[usize::from(id.0)].width {
        Width::Bytes { .. } => Some(StoreAt::Bytes),
        Width::Bits { n, little } => {
            let Container { bytes, shift, .. } = container(bits_before(protocol, id)?, n);
            let endian = if little { Endian::Little } else { Endian::Big };
            Some(StoreAt::Bits { bytes, shift, bits: n, endian })
        }
    }
}

/// Bits before a field, from the start of its header or of the last item whose size is not constant. Only their
/// remainder by 8 tells where the field lies in its bytes, and that is the same either way.
fn bits_before(protocol: &Protocol, id: FieldId) -> Option<u64> {
    fn find(fields: &[Field], items: &[Item], id: FieldId) -> Option<u64> {
        let mut bits = 0;
        for item in items {
            match item {
                Item::Field(at) if *at == id => return Some(bits),
                Item::Field(at) => match fields[usize::from(at.0)].width {
                    Width::Bits { n, .. } => bits += u64::from(n),
                    Width::Bytes { .. } => bits = 0,
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

/// The checksums that cover a field, as what they are fields of.
fn sums(protocols: &[Protocol], field: &FieldRef) -> Result<Vec<(FieldRef, Sum)>, String> {
    let mut found: Vec<(FieldRef, Sum)> = Vec::new();
    for (protocol, id) in field.layer.protocols.iter().zip(field.fields.iter().flatten()) {
        let own = (*protocol, *id);
        for level in 0..=field.layer.level {
            for (at, other) in protocols.iter().enumerate() {
                let at = ProtocolId(at as u16);
                for (sum_field, sum) in checksums(other).filter(|(sum_field, _)| (at, *sum_field) != own) {
                    let covers = match level == field.layer.level {
                        true => covers(protocols, (at, sum), own),
                        false if sum != Checksum::Header && carries(protocols, at, *protocol) => Some(false),
                        false => None,
                    };
                    let Some(pseudo) = covers else { continue };
                    if sum == Checksum::Crc32c {
                        return Err(format!("the CRC32c of `{}` covers it", other.name));
                    }
                    let layer = LayerRef { level, protocols: vec![at] };
                    let of = FieldRef::first(layer, vec![sum_field]);
                    let zero_is_none = sum == Checksum::PseudoOrZero;
                    if !found.iter().any(|(known, _)| *known == of) {
                        found.push((of, Sum { input: 0, zero_is_none, pseudo }));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Whether a checksum covers a field of the same level, and whether by its pseudo header alone.
fn covers(
    protocols: &[Protocol],
    (of, sum): (ProtocolId, Checksum),
    (protocol, field): (ProtocolId, FieldId),
) -> Option<bool> {
    let own = &protocols[usize::from(protocol.0)];
    let has_pseudo = matches!(sum, Checksum::Pseudo | Checksum::PseudoOrZero);
    let is_address = own.fields[usize::from(field.0)].ty == Type::IpAddr;
    if of == protocol || (sum != Checksum::Header && leads_to(protocols, of, protocol)) {
        return Some(false);
    }
    (has_pseudo && is_address && leads_to(protocols, protocol, of)).then_some(true)
}

fn checksums(protocol: &Protocol) -> impl Iterator<Item = (FieldId, Checksum)> {
    protocol.fields.iter().enumerate().filter_map(|(at, field)| match &field.rule {
        Rule::Computed(Expr::Checksum(sum)) => Some((FieldId(at as u16), *sum)),
        _ => None,
    })
}

/// Whether a layer of `to` may stand behind one of `from`, on the same level.
pub(in crate::lower) fn leads_to(protocols: &[Protocol], from: ProtocolId, to: ProtocolId) -> bool {
    reached(protocols, from).contains(&(to, false))
}

/// Whether a layer of `to` may stand behind one of `from`, on a level further in.
fn carries(protocols: &[Protocol], from: ProtocolId, to: ProtocolId) -> bool {
    reached(protocols, from).contains(&(to, true))
}

/// What may stand behind a layer, and whether on a level further in.
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

/// The input that is this field: one that there is, or a new one that no element sees.
fn input_of(protocols: &[Protocol], inputs: &mut Vec<Input>, field: FieldRef) -> u16 {
    let place = Place::Frame(field.clone());
    if let Some(at) = inputs.iter().position(|input| input.place == place) {
        return at as u16;
    }
    let protocol = &protocols[usize::from(field.layer.protocols[0].0)];
    let id = field.fields.iter().flatten().next().map_or(0, |id| usize::from(id.0));
    let name = format!("{}.{}", protocol.name, protocol.fields[id].name);
    inputs.push(Input { name, ty: protocol.fields[id].ty, nullable: true, place, written: false });
    inputs.len() as u16 - 1
}
