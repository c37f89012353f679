//! Checksums that cover addresses of the packet that carries them, where that is taken off and another is put on.

use super::edit::{Delta, Followed};
use super::reshape::{Bounds, stack_for};
use weft_core::abi::Slot;
use weft_core::frame::{Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::wire::header_change::{Pseudo, PseudoSumIn, Stack};

/// A checksum that covers no addresses: those that it covered were taken off.
#[derive(Clone, Copy)]
pub(super) struct Bare {
    at: usize,
    zero_is_none: bool,
}

impl Bare {
    /// Takes the addresses in front of a layer out of the checksum behind, before all in front of the layer goes.
    /// `slots` are those of the frame as it was parsed, and which of them are there.
    #[cold]
    pub(super) fn take_off(
        pseudo: &Pseudo,
        layer: u16,
        (slots, present): (&[Slot], InputSet),
        frame: &Frame,
        pool: &mut Pool,
    ) -> Option<Self> {
        let start = |layer: u16| {
            let is_there = present.contains(layer);
            slots.get(usize::from(layer)).filter(|_| is_there).map(|slot| Bounds::of(slot).at)
        };
        let sum_at = |sum: &PseudoSumIn| Some((start(sum.layer)? + usize::from(sum.at), sum.zero_is_none));
        let (at, zero_is_none) = pseudo.sums.iter().find_map(sum_at)?;
        let below = pseudo.addresses.iter().filter_map(|of| Some((start(of.layer)?, &of.ranges)));
        let (below, ranges) = below.filter(|(below, _)| *below < at).max_by_key(|(below, _)| *below)?;
        let bare = Self { at, zero_is_none };
        for (from, to) in ranges.iter().map(|(from, to)| (below + *from as usize, below + *to as usize)) {
            bare.change(-Delta::of_new(from, pool.bytes(frame).get(from..to)?), frame, pool);
        }
        Some(Self { at: at.checked_sub(start(layer)?)?, ..bare })
    }

    /// Lets it cover the addresses of new headers, which were put in front of so many `bytes`. One that there was not
    /// is made where there must be one.
    #[cold]
    pub(super) fn put_on(self, stacks: &[Stack], bytes: usize, frame: &Frame, pool: &mut Pool) {
        let all = pool.bytes(frame);
        let Some(carried) = all.len().checked_sub(bytes).and_then(|at| all.get(at..)) else { return };
        let Some(stack) = stack_for(stacks, carried) else { return };
        let bare = Self { at: self.at + stack.bytes.len(), ..self };
        if bare.at + 2 > all.len() {
            // What is carried was cut.
            return;
        }
        for (from, to) in stack.pseudo.iter().map(|(from, to)| (*from as usize, *to as usize)) {
            let addresses = pool.bytes(frame).get(from..to).map(|bytes| Delta::of_new(from, bytes));
            let is_there = addresses.is_none_or(|addresses| bare.change(addresses, frame, pool));
            if let (false, Some(owed)) = (is_there, &stack.owed)
                && owed.at as usize == bare.at
            {
                return owed.put(pool.bytes_mut(frame), None);
            }
        }
    }

    /// Whether there is a checksum. It covers more now, or less.
    fn change(self, addresses: Delta, frame: &Frame, pool: &mut Pool) -> bool {
        let is_partial = Some(self.at as u64) == frame.meta.offload.checksum.partial_at();
        let field = pool.bytes_mut(frame).get_mut(self.at..).and_then(|bytes| bytes.first_chunk_mut::<2>());
        let of = Followed { zero_is_none: self.zero_is_none, pseudo: true, is_partial };
        field.is_some_and(|field| addresses.follow(field, self.at, of))
    }
}
