//! Applies the edits of a pass to its frame, and updates the checksums that cover them.

use super::pseudo::DetachedChecksum;
use super::reshape::{pop_to, push, reshape};
use super::stats::DropReason;
use core::ops::Neg;
use weft_core::abi::{Cell, EditTarget, Outcome, Slot, TupleEdit};
use weft_core::checksum::fold;
use weft_core::frame::{Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::wire::header_change::{HeaderChange, Pop, Stack};
use weft_core::wire::{as_on_wire, bits_max, get_number, put_bytes, put_number};
use weft_ir::ir::Endian;
use weft_ir::program::{FieldLayout, FieldWrite, HeaderChangeDecl, Sum};

/// The edits of a pass that are still to be applied.
pub(super) struct Edits<'a> {
    stores: &'a [Option<FieldWrite>],
    reshapes: &'a [HeaderChangeDecl],
    slots: &'a [Slot],
    present: InputSet,
    outcome: &'a Outcome,
    /// The inputs that the program sets.
    set: InputSet,
    /// The number of edits applied.
    written: usize,
    /// A checksum without the addresses of its pseudo header: they were removed, and no others were added since.
    detached: Option<DetachedChecksum>,
}

/// A value has another length than the field that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LengthMismatch;

/// An edit that failed; its frame cannot be used any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct EditError {
    pub(super) why: DropReason,
    pub(super) change: EditTarget,
}

/// A change of bytes as the internet checksum sees it: the sum of the new bytes and of the complement of the old ones.
#[derive(Clone, Copy)]
pub(super) struct Delta {
    sum: u16,
    /// The first byte is at an odd offset of the frame.
    is_odd: bool,
}

/// Applies all edits of a pass, in order.
///
/// # Errors
/// The edit that failed, and the reason.
#[inline(never)]
pub(super) fn apply_all(
    changes: (&[Option<FieldWrite>], &[HeaderChangeDecl]),
    slots: &[Slot],
    present: InputSet,
    outcome: &Outcome,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), EditError> {
    // Fast path: most tunnels do nothing else.
    let (layer, rest) = popped_first(&outcome.edits, changes.1);
    if let Some((change, stacks, values)) = only_push(rest, changes.1) {
        let popped = layer.map_or(Ok(()), |layer| pop_to(layer, slots, frame, pool));
        let pushed = popped.and_then(|()| push(stacks, values, outcome, frame, pool));
        return pushed.map_err(|why| EditError { why, change });
    }
    Edits::new(changes, slots, present, outcome).apply(outcome.edits.len(), frame, pool)
}

/// Splits off a first POP on which no checksum depends: returns the layer that it removes headers up to, and the
/// other edits. The layer is None, and all edits remain, without such a POP.
#[inline]
fn popped_first<'e>(edits: &'e [TupleEdit], reshapes: &[HeaderChangeDecl]) -> (Option<u16>, &'e [TupleEdit]) {
    if let [TupleEdit { target: EditTarget::HeaderChange(id), .. }, rest @ ..] = edits
        && let Some(HeaderChangeDecl { what: HeaderChange::Pop { layer, how: Pop::To, pseudo }, .. }) =
            reshapes.get(usize::from(*id))
        && pseudo.sums.is_empty()
    {
        return (Some(*layer), rest);
    }
    (None, edits)
}

/// Returns the PUSH in front of the frame and its values, if the pass has no other edit.
#[inline]
fn only_push<'e, 'r>(
    edits: &'e [TupleEdit],
    reshapes: &'r [HeaderChangeDecl],
) -> Option<(EditTarget, &'r [Stack], &'e [TupleEdit])> {
    let (last, values) = edits.split_last()?;
    let EditTarget::HeaderChange(id) = last.target else { return None };
    let HeaderChange::Push { behind: None, stacks } = &reshapes.get(usize::from(id))?.what else {
        return None;
    };
    // The values precede the push directly.
    (stacks.first()?.values.len() == values.len()).then_some((last.target, stacks, values))
}

impl<'a> Edits<'a> {
    /// Creates the editor of one pass, from the declared changes, the parsed slots and the outcome.
    pub(super) fn new(
        (stores, reshapes): (&'a [Option<FieldWrite>], &'a [HeaderChangeDecl]),
        slots: &'a [Slot],
        present: InputSet,
        outcome: &'a Outcome,
    ) -> Self {
        let set = outcome.edits.iter().filter_map(|edit| match edit.target {
            EditTarget::Input(id) => Some(id),
            _ => None,
        });
        let set = set.collect();
        Self { stores, reshapes, slots, present, outcome, set, written: 0, detached: None }
    }

    /// Applies the first `n` edits, of fields and of structure. Skips a field whose layer the frame does not have.
    ///
    /// # Errors
    /// The edit that failed, and the reason; those before it are applied.
    pub(super) fn apply(&mut self, n: usize, frame: &mut Frame, pool: &mut Pool) -> Result<(), EditError> {
        let mut rest = self.outcome.edits.get(self.written..n).unwrap_or_default();
        self.written = n.max(self.written);
        while let Some(edit) = rest.first() {
            let taken = match edit.target {
                EditTarget::Input(id) => {
                    let partial = frame.meta.offload.checksum.partial_at();
                    let done = self.set_field(id, edit.value, partial, pool.bytes_mut(frame));
                    done.map_err(|LengthMismatch| EditError {
                        why: DropReason::LengthMismatch,
                        change: edit.target,
                    })?;
                    1
                }
                EditTarget::Part(_) | EditTarget::HeaderChange(_) => self.reshape(rest, frame, pool)?,
                EditTarget::Answer(_) | EditTarget::Reply(_) => 1,
            };
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Applies the structure change at the start of these edits: its values, and then the change. Returns how many
    /// edits it took.
    fn reshape(
        &mut self,
        edits: &[TupleEdit],
        frame: &mut Frame,
        pool: &mut Pool,
    ) -> Result<usize, EditError> {
        let is_part = |edit: &&TupleEdit| matches!(edit.target, EditTarget::Part(_));
        let parts = edits.iter().take_while(is_part).count();
        if let Some(EditTarget::HeaderChange(id)) = edits.get(parts).map(|edit| edit.target)
            && let Some(decl) = self.reshapes.get(usize::from(id))
        {
            if let HeaderChange::Pop { layer, pseudo, .. } = &decl.what
                && !pseudo.sums.is_empty()
            {
                self.detached =
                    DetachedChecksum::detach(pseudo, *layer, (self.slots, self.present), frame, pool);
            }
            let bytes = frame.len();
            let done = reshape(&decl.what, &edits[..parts], self.outcome, self.slots, frame, pool);
            done.map_err(|why| EditError { why, change: EditTarget::HeaderChange(id) })?;
            if let Some(bare) = self.detached
                && let HeaderChange::Push { behind: None, stacks } = &decl.what
            {
                self.detached = None;
                bare.attach(stacks, bytes, frame, pool);
            }
        }
        Ok((parts + 1).min(edits.len()))
    }

    /// Sets a field, if it is present, and updates the checksums that cover it. `partial` is the location of a
    /// checksum that a device is still to complete.
    #[inline(always)]
    fn set_field(
        &self,
        id: u16,
        value: Cell,
        partial: Option<u64>,
        bytes: &mut [u8],
    ) -> Result<(), LengthMismatch> {
        let at = usize::from(id);
        let (Some(Some(store)), Some(slot)) = (self.stores.get(at), self.slots.get(at)) else {
            return Ok(());
        };
        if !self.present.contains(id) {
            return Ok(());
        }
        match (value, store.at) {
            (Cell::Bytes(start, len), FieldLayout::Bytes) => {
                if u64::from(len) != slot.b {
                    return Err(LengthMismatch);
                }
                let Some(field) = part(bytes, slot.a, len as usize) else { return Ok(()) };
                let new = self.outcome.kept(start, len);
                if store.sums.is_empty() {
                    put_bytes(field, new);
                } else {
                    let delta = Delta::of_bytes(slot.a, field, new);
                    put_bytes(field, new);
                    self.update_sums(&store.sums, delta, partial, bytes);
                }
            }
            (value, FieldLayout::Bits { bytes: wide, shift, bits, endian }) => {
                let Some(value) = number(value) else { return Ok(()) };
                let Some(field) = part(bytes, slot.b, wide.into()) else { return Ok(()) };
                // If a field is as wide as a type, each value fits. Compiled code does not check it either.
                let is_as_wide_as_a_type = bits == 8 * wide && wide.is_power_of_two();
                if !is_as_wide_as_a_type && value & !bits_max(bits) != 0 {
                    return Err(LengthMismatch);
                }
                let delta = set_bits(field, slot.b, value, (shift, bits, endian));
                self.update_sums(&store.sums, delta, partial, bytes);
            }
            (_, FieldLayout::Bytes) => {}
        }
        Ok(())
    }

    /// Updates the checksums that cover the change.
    #[inline(always)]
    fn update_sums(&self, sums: &[Sum], delta: Delta, partial: Option<u64>, bytes: &mut [u8]) {
        for sum in sums {
            let is_kept = self.update_sum(*sum, delta, partial, bytes);
            if is_kept && sums.iter().any(|sum| !sum.covers.is_empty()) {
                self.update_covering_sums(sums, *sum, -delta, partial, bytes);
            }
        }
    }

    /// Updates the checksums that cover another checksum. The bytes under that checksum have changed; it changes by as
    /// much in the other direction, or will when a device completes it.
    #[cold]
    fn update_covering_sums(
        &self,
        sums: &[Sum],
        changed: Sum,
        delta: Delta,
        partial: Option<u64>,
        bytes: &mut [u8],
    ) {
        let place = |sum: Sum| self.slots.get(usize::from(sum.input)).map(|slot| slot.b);
        for sum in sums.iter().filter(|sum| sum.covers.contains(changed.input)) {
            if place(*sum) < place(changed) && self.update_sum(*sum, delta, partial, bytes) {
                self.update_covering_sums(sums, *sum, -delta, partial, bytes);
            }
        }
    }

    /// Updates a checksum, and returns whether it is present. A checksum that the program sets is left alone. `partial`
    /// is the location of one that a device is still to complete.
    #[inline]
    fn update_sum(&self, sum: Sum, delta: Delta, partial: Option<u64>, bytes: &mut [u8]) -> bool {
        let is_there = self.present.contains(sum.input) && !self.set.contains(sum.input);
        let Some(slot) = self.slots.get(usize::from(sum.input)).filter(|_| is_there) else { return false };
        let at = slot.b as usize;
        let Some(field) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<2>()) else {
            return false;
        };
        let Sum { zero_is_none, pseudo, .. } = sum;
        delta.update_field(
            field,
            at,
            ChecksumField { zero_is_none, pseudo, is_partial: Some(slot.b) == partial },
        )
    }
}

/// A checksum field that covers a change.
#[derive(Clone, Copy)]
pub(super) struct ChecksumField {
    /// Zero means "no checksum".
    pub(super) zero_is_none: bool,
    /// It covers the change through the pseudo header only.
    pub(super) pseudo: bool,
    /// A device is still to complete it.
    pub(super) is_partial: bool,
}

/// The change in the other direction.
impl Neg for Delta {
    type Output = Self;

    fn neg(self) -> Self {
        Self { sum: !self.sum, ..self }
    }
}

impl Delta {
    /// Returns the change of a checksum from old bytes to new ones.
    fn of_bytes(at: u64, old: &[u8], new: &[u8]) -> Self {
        let words = old.chunks(2).zip(new.chunks(2));
        let sum = words.map(|(old, new)| u64::from(!word(old)) + u64::from(word(new))).sum();
        Self { sum: fold(sum), is_odd: at & 1 == 1 }
    }

    /// Returns the change of a checksum from an old number of that many bytes to a new one, in network byte order.
    fn of_number(at: u64, bytes: usize, old: u64, new: u64) -> Self {
        // An odd last byte is the upper half of a word.
        let pad = (bytes & 1) * 8;
        let mask = bits_max((8 * bytes + pad) as u8);
        let (old, new) = (!(old << pad) & mask, new << pad);
        let sum = if bytes <= 2 { old + new } else { words(old) + words(new) };
        Self { sum: fold(sum), is_odd: at & 1 == 1 }
    }

    /// The change from nothing to new bytes.
    pub(super) fn of_new(at: usize, new: &[u8]) -> Self {
        Self { sum: fold(new.chunks(2).map(|new| u64::from(word(new))).sum()), is_odd: at & 1 == 1 }
    }

    /// Updates the checksum at `at`, if there is one; returns whether there is.
    #[inline]
    pub(super) fn update_field(self, field: &mut [u8; 2], at: usize, of: ChecksumField) -> bool {
        let old = u16::from_be_bytes(*field);
        let new = match of.is_partial {
            true if of.pseudo => self.add_to(old, at),
            true => return true,
            false if of.zero_is_none && old == 0 => return false,
            false => match !self.add_to(!old, at) {
                // RFC 768: a sum that is zero is sent as all ones.
                0 if of.zero_is_none => 0xffff,
                new => new,
            },
        };
        *field = new.to_be_bytes();
        true
    }

    /// Adds the change to a checksum by RFC 1624 equation 3, without its complements. RFC 1071 section 2(B): if the
    /// words of the change and of the sum are one byte apart, the bytes of the change swap.
    fn add_to(self, sum: u16, at: usize) -> u16 {
        let is_apart = self.is_odd != (at & 1 == 1);
        let change = if is_apart { self.sum.swap_bytes() } else { self.sum };
        fold(u64::from(sum) + u64::from(change))
    }
}

/// Returns the number in a cell; None for other types.
fn number(cell: Cell) -> Option<u64> {
    match cell {
        Cell::Bool(b) => Some(u64::from(b)),
        Cell::Int(n) => Some(n as u64),
        Cell::Null | Cell::Float(_) | Cell::Bytes(..) => None,
    }
}

/// That many bytes of a frame.
#[inline(always)]
fn part(bytes: &mut [u8], at: u64, len: usize) -> Option<&mut [u8]> {
    bytes.get_mut(at as usize..)?.get_mut(..len)
}

/// Sets the bits of a number, and ignores higher bits of the value. Returns the change of its bytes.
#[inline]
fn set_bits(field: &mut [u8], at: u64, value: u64, (shift, bits, endian): (u8, u8, Endian)) -> Delta {
    let (bytes, width, little) = (field.len(), 8 * field.len() as u32, endian == Endian::Little);
    let mask = bits_max(bits).wrapping_shl(u32::from(shift));
    let value = value.wrapping_shl(u32::from(shift)) & mask;
    let old = get_number(field);
    let new =
        as_on_wire(as_on_wire(old, width, little) & !mask | value, width, little) & bits_max(width as u8);
    put_number(field, new);
    Delta::of_number(at, bytes, old, new)
}

/// The sum of the four words of a number.
fn words(number: u64) -> u64 {
    (number >> 48) + (number >> 32 & 0xffff) + (number >> 16 & 0xffff) + (number & 0xffff)
}

/// Two bytes as a word; an odd last byte is its upper half.
fn word(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes.get(1).copied().unwrap_or(0)])
}
