//! How headers get on a frame, and off it.

use super::edit::Unfit;
use super::stats::Lost;
use weft_core::abi::{Cell, Outcome, Slot, TupleEdit};
use weft_core::frame::{Checksum, Frame, Offload, Pool};
use weft_core::wire::header_change::{DoesNotFit, HeaderChange, Pop, Relink, Stack, StackValue, begins};
use weft_core::wire::put_number;

/// Where a layer lies in its frame.
pub(super) struct Bounds {
    /// Its first byte.
    pub(super) at: usize,
    /// How long its header is.
    pub(super) bytes: usize,
    /// The end of what it carries.
    pub(super) end: usize,
}

/// Carries out one change of structure. `parts` are the values that it is given; `slots` are those of the frame as it
/// was parsed, whose layers are where they were unless something was put on or taken off since.
///
/// # Errors
/// Why the frame is of no use now.
pub(super) fn reshape(
    what: &HeaderChange,
    parts: &[TupleEdit],
    outcome: &Outcome,
    slots: &[Slot],
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), Lost> {
    match what {
        HeaderChange::Cut => {
            cut(cut_to(parts).ok_or(Lost::Unfit)?, frame, pool);
            Ok(())
        }
        // When all else is done.
        HeaderChange::Fragment => Ok(()),
        HeaderChange::Pop { layer, how: Pop::To, .. } => pop_to(*layer, slots, frame, pool),
        HeaderChange::Pop { layer, how: Pop::Alone(relink), .. } => {
            let Bounds { at, bytes, .. } = Bounds::of(slots.get(usize::from(*layer)).ok_or(Lost::Unfit)?);
            take_out(relink, at, bytes, frame, pool)
        }
        HeaderChange::Push { behind: None, stacks } => push(stacks, parts, outcome, frame, pool),
        HeaderChange::Push { behind: Some((header, relink)), stacks } => {
            let stack = stack_for(stacks, pool.bytes(frame)).ok_or(Lost::Unfit)?;
            let header = usize::from(*header);
            let lower = header.checked_sub(usize::from(relink.back)).ok_or(Lost::Unfit)?;
            let said = lower..lower + usize::from(relink.bytes);
            // Sums of what is put on cover what the header in front says of what stands behind.
            let mut room = [0; 8];
            let told = room.get_mut(..said.len()).ok_or(Lost::Unfit)?;
            told.copy_from_slice(pool.bytes(frame).get(said.clone()).ok_or(Lost::Unfit)?);
            let told = Some((usize::from(relink.within), &*told));
            put(stack, (header, told), values(parts, outcome), frame, pool)?;
            put_number(&mut pool.bytes_mut(frame)[said], relink.value);
            Ok(())
        }
    }
}

/// Takes off what stands in front of a layer, and behind it.
///
/// # Errors
/// Why the frame is of no use now.
#[inline]
pub(super) fn pop_to(layer: u16, slots: &[Slot], frame: &mut Frame, pool: &mut Pool) -> Result<(), Lost> {
    let Bounds { at, end, .. } = Bounds::of(slots.get(usize::from(layer)).ok_or(Lost::Unfit)?);
    pool.truncate(frame, end.max(at));
    pool.shrink_front(frame, at).ok_or(Lost::Unfit)
}

/// Puts headers with these values in front of a frame.
///
/// # Errors
/// Why the frame is of no use now.
#[inline]
pub(super) fn push(
    stacks: &[Stack],
    parts: &[TupleEdit],
    outcome: &Outcome,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), Lost> {
    let stack = stack_for(stacks, pool.bytes(frame)).ok_or(Lost::Unfit)?;
    if frame.meta.offload.gso.is_some() {
        return Err(Lost::NotCut);
    }
    put(stack, (0, None), values(parts, outcome), frame, pool)
}

fn values<'o>(parts: &[TupleEdit], outcome: &'o Outcome) -> impl Iterator<Item = StackValue<'o>> {
    parts.iter().map(|part| given(part.value, outcome))
}

/// The headers for a frame that begins with these bytes.
pub(super) fn stack_for<'s>(stacks: &'s [Stack], bytes: &[u8]) -> Option<&'s Stack> {
    stacks.iter().find(|stack| begins(bytes, stack.begins))
}

/// How many bytes a CUT or a FRAGMENT leaves at most. Its value is the last of the `edits` in front of it.
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

impl From<Unfit> for Lost {
    fn from(_: Unfit) -> Self {
        Self::Unfit
    }
}

impl From<DoesNotFit> for Lost {
    fn from(_: DoesNotFit) -> Self {
        Self::Unfit
    }
}

fn cut(bytes: usize, frame: &mut Frame, pool: &mut Pool) {
    if bytes < frame.len() {
        pool.truncate(frame, bytes);
        // What a device was to do was for the whole of it.
        frame.meta.offload = Offload::default();
    }
}

/// Writes headers into new room in front of byte `at`; `told` as of [`Stack::write`].
#[inline]
fn put<'v>(
    stack: &Stack,
    (at, told): (usize, Option<(usize, &[u8])>),
    values: impl Iterator<Item = StackValue<'v>>,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), Lost> {
    if at > frame.len() {
        return Err(Lost::Unfit);
    }
    pool.make_room(frame, at, stack.bytes.len()).ok_or(Lost::NoRoom)?;
    let partial = match frame.meta.offload.checksum {
        Checksum::Partial { start, offset } => {
            let start = usize::from(start).checked_sub(at);
            start.map(|start| (start, start + usize::from(offset)))
        }
        Checksum::Unknown | Checksum::Valid => None,
    };
    Ok(stack.write(&mut pool.bytes_mut(frame)[at..], values, partial, told)?)
}

/// Takes the header at `at` out, and tells the one below what stands behind it now.
fn take_out(
    relink: &Relink,
    at: usize,
    bytes: usize,
    frame: &mut Frame,
    pool: &mut Pool,
) -> Result<(), Lost> {
    let lower = at.checked_sub(usize::from(relink.back)).ok_or(Lost::Unfit)?;
    let from = at + usize::from(relink.within);
    let says = from..from + usize::from(relink.bytes);
    let is_inside = says.end <= frame.len() && lower + says.len() <= frame.len();
    if !is_inside {
        return Err(Lost::Unfit);
    }
    pool.bytes_mut(frame).copy_within(says, lower);
    pool.remove(frame, at, bytes).ok_or(Lost::Unfit)
}

fn given(cell: Cell, outcome: &Outcome) -> StackValue<'_> {
    match cell {
        Cell::Bool(b) => StackValue::Number(u64::from(b)),
        Cell::Int(n) => StackValue::Number(n as u64),
        Cell::Bytes(start, len) => StackValue::Bytes(outcome.kept(start, len)),
        Cell::Null | Cell::Float(_) => StackValue::Number(0),
    }
}
