//! How changes of a pass get into its frame, and how checksums follow them.

use super::pseudo::Bare;
use super::reshape::{pop_to, push, reshape};
use super::stats::Lost;
use core::ops::Neg;
use weft_core::abi::{Cell, EditTarget, Outcome, Slot, TupleEdit};
use weft_core::checksum::fold;
use weft_core::frame::{Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::wire::header_change::{HeaderChange, Pop, Stack};
use weft_core::wire::{as_on_wire, bits_max, get_number, put_bytes, put_number};
use weft_ir::ir::Endian;
use weft_ir::program::{FieldLayout, FieldWrite, HeaderChangeDecl, Sum};

/// The changes of a pass that are still to be written.
pub(super) struct Edits<'a> {
    stores: &'a [Option<FieldWrite>],
    reshapes: &'a [HeaderChangeDecl],
    slots: &'a [Slot],
    present: InputSet,
    outcome: &'a Outcome,
    /// The inputs that the program sets.
    set: InputSet,
    /// Changes that were written.
    written: usize,
    /// A checksum whose addresses were taken off, and no others put on since.
    bare: Option<Bare>,
}

/// A value is not as long as what it is to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfit;

/// A change that was not made, for which the frame is of no use now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undone {
    pub(super) why: Lost,
    pub(super) change: EditTarget,
}

/// A change of bytes as the internet checksum sees it: the sum of what is new and of the complement of what was there.
#[derive(Clone, Copy)]
pub(super) struct Delta {
    sum: u16,
    /// The first byte is at an odd offset of the frame.
    is_odd: bool,
}

/// Makes all changes that a pass has left, in their order.
///
/// # Errors
/// Which change was not made, and why.
#[inline(never)]
pub(super) fn make_all(
    changes: (&[Option<FieldWrite>], &[HeaderChangeDecl]),
    slots: &[Slot],
    present: InputSet,
    outcome: &Outcome,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), Undone> {
    // What most tunnels do is nothing but that.
    let (layer, rest) = popped_first(&outcome.edits, changes.1);
    if let Some((change, stacks, values)) = only_push(rest, changes.1) {
        let popped = layer.map_or(Ok(()), |layer| pop_to(layer, slots, frame, pool));
        let pushed = popped.and_then(|()| push(stacks, values, outcome, frame, pool));
        return pushed.map_err(|why| Undone { why, change });
    }
    Edits::new(changes, slots, present, outcome).make(outcome.edits.len(), frame, pool)
}

/// The layer up to which headers are taken off first, if nothing has to follow that; and what is left to do.
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

/// The headers that a pass puts on in front of its frame, and their values, if that is all that it has left.
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
    // Its values stand right in front of it.
    (stacks.first()?.values.len() == values.len()).then_some((last.target, stacks, values))
}

impl<'a> Edits<'a> {
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
        Self { stores, reshapes, slots, present, outcome, set, written: 0, bare: None }
    }

    /// Makes the changes up to the `n`-th, of fields and of structure. A field of a layer that the frame does not have
    /// stays away.
    ///
    /// # Errors
    /// Which change was not made, and why; those before are made.
    pub(super) fn make(&mut self, n: usize, frame: &mut Frame, pool: &mut Pool) -> Result<(), Undone> {
        let mut rest = self.outcome.edits.get(self.written..n).unwrap_or_default();
        self.written = n.max(self.written);
        while let Some(edit) = rest.first() {
            let taken = match edit.target {
                EditTarget::Input(id) => {
                    let partial = frame.meta.offload.checksum.partial_at();
                    let done = self.set(id, edit.value, partial, pool.bytes_mut(frame));
                    done.map_err(|Unfit| Undone { why: Lost::Unfit, change: edit.target })?;
                    1
                }
                EditTarget::Part(_) | EditTarget::HeaderChange(_) => self.reshape(rest, frame, pool)?,
                EditTarget::Answer(_) | EditTarget::Reply(_) => 1,
            };
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Makes the change of structure that these edits begin with: its values, and then what it is. How many they are.
    fn reshape(&mut self, edits: &[TupleEdit], frame: &mut Frame, pool: &mut Pool) -> Result<usize, Undone> {
        let is_part = |edit: &&TupleEdit| matches!(edit.target, EditTarget::Part(_));
        let parts = edits.iter().take_while(is_part).count();
        if let Some(EditTarget::HeaderChange(id)) = edits.get(parts).map(|edit| edit.target)
            && let Some(decl) = self.reshapes.get(usize::from(id))
        {
            if let HeaderChange::Pop { layer, pseudo, .. } = &decl.what
                && !pseudo.sums.is_empty()
            {
                self.bare = Bare::take_off(pseudo, *layer, (self.slots, self.present), frame, pool);
            }
            let bytes = frame.len();
            let done = reshape(&decl.what, &edits[..parts], self.outcome, self.slots, frame, pool);
            done.map_err(|why| Undone { why, change: EditTarget::HeaderChange(id) })?;
            if let Some(bare) = self.bare
                && let HeaderChange::Push { behind: None, stacks } = &decl.what
            {
                self.bare = None;
                bare.put_on(stacks, bytes, frame, pool);
            }
        }
        Ok((parts + 1).min(edits.len()))
    }

    /// Sets a field, if it is there.
    #[inline(always)]
    fn set(&self, id: u16, value: Cell, partial: Option<u64>, bytes: &mut [u8]) -> Result<(), Unfit> {
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
                    return Err(Unfit);
                }
                let Some(field) = part(bytes, slot.a, len as usize) else { return Ok(()) };
                let new = self.outcome.kept(start, len);
                if store.sums.is_empty() {
                    put_bytes(field, new);
                } else {
                    let delta = Delta::of_bytes(slot.a, field, new);
                    put_bytes(field, new);
                    self.follow(&store.sums, delta, partial, bytes);
                }
            }
            (value, FieldLayout::Bits { bytes: wide, shift, bits, endian }) => {
                let Some(value) = number(value) else { return Ok(()) };
                let Some(field) = part(bytes, slot.b, wide.into()) else { return Ok(()) };
                // What is as wide as a type has no value that does not fit; compiled code asks nothing of it either.
                let is_as_wide_as_a_type = bits == 8 * wide && wide.is_power_of_two();
                if !is_as_wide_as_a_type && value & !bits_max(bits) != 0 {
                    return Err(Unfit);
                }
                let delta = set_bits(field, slot.b, value, (shift, bits, endian));
                self.follow(&store.sums, delta, partial, bytes);
            }
            (_, FieldLayout::Bytes) => {}
        }
        Ok(())
    }

    /// Keeps checksums right that cover what has changed.
    #[inline(always)]
    fn follow(&self, sums: &[Sum], delta: Delta, partial: Option<u64>, bytes: &mut [u8]) {
        for sum in sums {
            let is_kept = self.add(*sum, delta, partial, bytes);
            if is_kept && sums.iter().any(|sum| !sum.covers.is_empty()) {
                self.follow_sum(sums, *sum, -delta, partial, bytes);
            }
        }
    }

    /// Keeps checksums right that cover another one. What that one covers has changed, and so it has by as much the
    /// other way, or will have when a device has completed it.
    #[cold]
    fn follow_sum(&self, sums: &[Sum], changed: Sum, delta: Delta, partial: Option<u64>, bytes: &mut [u8]) {
        let place = |sum: Sum| self.slots.get(usize::from(sum.input)).map(|slot| slot.b);
        for sum in sums.iter().filter(|sum| sum.covers.contains(changed.input)) {
            if place(*sum) < place(changed) && self.add(*sum, delta, partial, bytes) {
                self.follow_sum(sums, *sum, -delta, partial, bytes);
            }
        }
    }

    /// Keeps a checksum right, if there is one: whether there is. One that the program sets itself is the program's.
    /// `partial` is where one lies that is still to be completed.
    #[inline]
    fn add(&self, sum: Sum, delta: Delta, partial: Option<u64>, bytes: &mut [u8]) -> bool {
        let is_there = self.present.contains(sum.input) && !self.set.contains(sum.input);
        let Some(slot) = self.slots.get(usize::from(sum.input)).filter(|_| is_there) else { return false };
        let at = slot.b as usize;
        let Some(field) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<2>()) else {
            return false;
        };
        let Sum { zero_is_none, pseudo, .. } = sum;
        delta.follow(field, at, Followed { zero_is_none, pseudo, is_partial: Some(slot.b) == partial })
    }
}

/// A checksum that follows a change.
#[derive(Clone, Copy)]
pub(super) struct Followed {
    /// Zero means that there is none.
    pub(super) zero_is_none: bool,
    /// What changes is in the pseudo header alone.
    pub(super) pseudo: bool,
    /// A device is still to complete it.
    pub(super) is_partial: bool,
}

/// The same change the other way.
impl Neg for Delta {
    type Output = Self;

    fn neg(self) -> Self {
        Self { sum: !self.sum, ..self }
    }
}

impl Delta {
    /// Of bytes that other ones replace.
    fn of_bytes(at: u64, old: &[u8], new: &[u8]) -> Self {
        let words = old.chunks(2).zip(new.chunks(2));
        let sum = words.map(|(old, new)| u64::from(!word(old)) + u64::from(word(new))).sum();
        Self { sum: fold(sum), is_odd: at & 1 == 1 }
    }

    /// Of the number that so many bytes hold, the first of them the highest.
    fn of_number(at: u64, bytes: usize, old: u64, new: u64) -> Self {
        // A last odd byte is the upper half of a word.
        let pad = (bytes & 1) * 8;
        let mask = bits_max((8 * bytes + pad) as u8);
        let (old, new) = (!(old << pad) & mask, new << pad);
        let sum = if bytes <= 2 { old + new } else { words(old) + words(new) };
        Self { sum: fold(sum), is_odd: at & 1 == 1 }
    }

    /// Of bytes that were not covered before.
    pub(super) fn of_new(at: usize, new: &[u8]) -> Self {
        Self { sum: fold(new.chunks(2).map(|new| u64::from(word(new))).sum()), is_odd: at & 1 == 1 }
    }

    /// Keeps a checksum right that lies `at`, if there is one: whether there is.
    #[inline]
    pub(super) fn follow(self, field: &mut [u8; 2], at: usize, of: Followed) -> bool {
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

    /// RFC 1624 equation 3, without its complements. RFC 1071 section 2(B): where the words of the change and of the
    /// sum are a byte apart, the bytes of the change swap.
    fn add_to(self, sum: u16, at: usize) -> u16 {
        let is_apart = self.is_odd != (at & 1 == 1);
        let change = if is_apart { self.sum.swap_bytes() } else { self.sum };
        fold(u64::from(sum) + u64::from(change))
    }
}

/// The number of a change; None of what is no number.
fn number(cell: Cell) -> Option<u64> {
    match cell {
        Cell::Bool(b) => Some(u64::from(b)),
        Cell::Int(n) => Some(n as u64),
        Cell::Null | Cell::Float(_) | Cell::Bytes(..) => None,
    }
}

/// So many bytes of a frame.
#[inline(always)]
fn part(bytes: &mut [u8], at: u64, len: usize) -> Option<&mut [u8]> {
    bytes.get_mut(at as usize..)?.get_mut(..len)
}

/// Sets bits of a number; what of the value is above them is left out. The change of its bytes.
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

/// Two bytes as a word; a last odd one is its upper half.
fn word(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes.get(1).copied().unwrap_or(0)])
}
