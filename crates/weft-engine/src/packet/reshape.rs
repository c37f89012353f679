//! Adds headers to a frame and removes them.

use super::edit::LengthMismatch;
use super::stats::DropReason;
use weft_core::abi::{Cell, Outcome, Slot, TupleEdit};
use weft_core::frame::{Checksum, Frame, Offload, Pool};
use weft_core::wire::header_change::{DoesNotFit, HeaderChange, Pop, Relink, Stack, StackValue, begins};
use weft_core::wire::put_number;

/// The location of a layer in its frame.
pub(super) struct Bounds {
    /// The offset of its first byte.
    pub(super) at: usize,
    /// The length of its header.
    pub(super) bytes: usize,
    /// The end of its payload.
    pub(super) end: usize,
}

/// Applies one structure change. `parts` are its values. `slots` are those of the frame as it was parsed; layers moved
/// only if an earlier change added or removed headers.
///
/// # Errors
/// Why the frame cannot be used any more.
pub(super) fn reshape(
    what: &HeaderChange,
    parts: &[TupleEdit],
    outcome: &Outcome,
    slots: &[Slot],
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    match what {
        HeaderChange::Cut => {
            truncate_frame(cut_to(parts).ok_or(DropReason::LengthMismatch)?, frame, pool);
            Ok(())
        }
        // Fragmentation follows all other changes.
        HeaderChange::Fragment => Ok(()),
        HeaderChange::Pop { layer, how: Pop::To, .. } => pop_to(*layer, slots, frame, pool),
        HeaderChange::Pop { layer, how: Pop::Alone(relink), .. } => {
            let Bounds { at, bytes, .. } =
                Bounds::of(slots.get(usize::from(*layer)).ok_or(DropReason::LengthMismatch)?);
            remove_header(relink, at, bytes, frame, pool)
        }
        HeaderChange::Push { behind: None, stacks } => push(stacks, parts, outcome, frame, pool),
        HeaderChange::Push { behind: Some((header, relink)), stacks } => {
            let stack = stack_for(stacks, pool.bytes(frame)).ok_or(DropReason::LengthMismatch)?;
            let header = usize::from(*header);
            let lower = header.checked_sub(usize::from(relink.back)).ok_or(DropReason::LengthMismatch)?;
            let covered = lower..lower + usize::from(relink.bytes);
            // Checksums of the new headers cover values that the header in front has of those behind it.
            let mut room = [0; 8];
            let in_front = room.get_mut(..covered.len()).ok_or(DropReason::LengthMismatch)?;
            in_front
                .copy_from_slice(pool.bytes(frame).get(covered.clone()).ok_or(DropReason::LengthMismatch)?);
            let in_front = Some((usize::from(relink.within), &*in_front));
            write_stack(stack, (header, in_front), values(parts, outcome), frame, pool)?;
            put_number(&mut pool.bytes_mut(frame)[covered], relink.value);
            Ok(())
        }
    }
}

/// Removes the headers in front of a layer, and the bytes behind it.
///
/// # Errors
/// Why the frame cannot be used any more.
#[inline]
pub(super) fn pop_to(
    layer: u16,
    slots: &[Slot],
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    let Bounds { at, end, .. } = Bounds::of(slots.get(usize::from(layer)).ok_or(DropReason::LengthMismatch)?);
    pool.truncate(frame, end.max(at));
    pool.shrink_front(frame, at).ok_or(DropReason::LengthMismatch)
}

/// Adds headers with these values in front of a frame.
///
/// # Errors
/// Why the frame cannot be used any more.
#[inline]
pub(super) fn push(
    stacks: &[Stack],
    parts: &[TupleEdit],
    outcome: &Outcome,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    let stack = stack_for(stacks, pool.bytes(frame)).ok_or(DropReason::LengthMismatch)?;
    if frame.meta.offload.gso.is_some() {
        return Err(DropReason::NotCut);
    }
    write_stack(stack, (0, None), values(parts, outcome), frame, pool)
}

fn values<'o>(parts: &[TupleEdit], outcome: &'o Outcome) -> impl Iterator<Item = StackValue<'o>> {
    parts.iter().map(|part| stack_value(part.value, outcome))
}

/// The headers for a frame that begins with these bytes.
pub(super) fn stack_for<'s>(stacks: &'s [Stack], bytes: &[u8]) -> Option<&'s Stack> {
    stacks.iter().find(|stack| begins(bytes, stack.begins))
}

/// Returns the maximum length after a CUT or a FRAGMENT: the value of the last of the `edits` before it. None if it
/// has none.
pub(super) fn cut_to(edits: &[TupleEdit]) -> Option<usize> {
    match edits.last()?.value {
        Cell::Int(bytes) => Some(usize::try_from(bytes).unwrap_or(usize::MAX)),
        _ => None,
    }
}

impl Bounds {
    pub(super) fn of(slot: &Slot) -> Self {
        Self { at: slot.a as usize, bytes: slot.b as u32 as usize, end: (slot.b >> 32) as usize }
    }
}

impl From<LengthMismatch> for DropReason {
    fn from(_: LengthMismatch) -> Self {
        Self::LengthMismatch
    }
}

impl From<DoesNotFit> for DropReason {
    fn from(_: DoesNotFit) -> Self {
        Self::LengthMismatch
    }
}

/// Truncates a frame to that many bytes, and forgets its pending offloads.
fn truncate_frame(bytes: usize, frame: &mut Frame, pool: &mut Pool) {
    if bytes < frame.len() {
        pool.truncate(frame, bytes);
        // A device's pending work applied to the whole packet.
        frame.meta.offload = Offload::default();
    }
}

/// Writes the headers of a stack into new room in front of byte `at`; `in_front` as for [`Stack::write`].
#[inline]
fn write_stack<'v>(
    stack: &Stack,
    (at, in_front): (usize, Option<(usize, &[u8])>),
    values: impl Iterator<Item = StackValue<'v>>,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    if at > frame.len() {
        return Err(DropReason::LengthMismatch);
    }
    pool.make_room(frame, at, stack.bytes.len()).ok_or(DropReason::NoRoom)?;
    let partial = match frame.meta.offload.checksum {
        Checksum::Partial { start, offset } => {
            let start = usize::from(start).checked_sub(at);
            start.map(|start| (start, start + usize::from(offset)))
        }
        Checksum::Unknown | Checksum::Valid => None,
    };
    Ok(stack.write(&mut pool.bytes_mut(frame)[at..], values, partial, in_front)?)
}

/// Removes the header at `at`, and updates the header below, which says what follows it.
fn remove_header(
    relink: &Relink,
    at: usize,
    bytes: usize,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    let lower = at.checked_sub(usize::from(relink.back)).ok_or(DropReason::LengthMismatch)?;
    let from = at + usize::from(relink.within);
    let says = from..from + usize::from(relink.bytes);
    let is_inside = says.end <= frame.len() && lower + says.len() <= frame.len();
    if !is_inside {
        return Err(DropReason::LengthMismatch);
    }
    pool.bytes_mut(frame).copy_within(says, lower);
    pool.remove(frame, at, bytes).ok_or(DropReason::LengthMismatch)
}

/// Converts a cell to the value of a header field; NULL is 0.
fn stack_value(cell: Cell, outcome: &Outcome) -> StackValue<'_> {
    match cell {
        Cell::Bool(b) => StackValue::Number(u64::from(b)),
        Cell::Int(n) => StackValue::Number(n as u64),
        Cell::Bytes(start, len) => StackValue::Bytes(outcome.kept(start, len)),
        Cell::Null | Cell::Float(_) => StackValue::Number(0),
    }
}
