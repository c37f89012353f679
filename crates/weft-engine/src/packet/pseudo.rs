//! Keeps checksums over a pseudo header correct when the packet's header is removed and another one added.

use super::edit::{ChecksumField, Delta};
use super::reshape::{Bounds, stack_for};
use weft_core::abi::Slot;
use weft_core::frame::{Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::wire::header_change::{Pseudo, PseudoSumIn, Stack};

/// A checksum without the addresses of its pseudo header.
#[derive(Clone, Copy)]
pub(super) struct DetachedChecksum {
    at: usize,
    zero_is_none: bool,
}

impl DetachedChecksum {
    /// Removes the addresses in front of a layer from the checksum behind them, before the headers in front of the
    /// layer are removed. `slots` and `present` are those of the frame as it was parsed.
    #[cold]
    pub(super) fn detach(
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
            bare.apply_delta(-Delta::of_new(from, pool.bytes(frame).get(from..to)?), frame, pool);
        }
        Some(Self { at: at.checked_sub(start(layer)?)?, ..bare })
    }

    /// Adds the addresses of new headers, which were added in front of that many `bytes`. Computes a checksum that was
    /// absent where the protocol requires one.
    #[cold]
    pub(super) fn attach(self, stacks: &[Stack], bytes: usize, frame: &Frame, pool: &mut Pool) {
        let all = pool.bytes(frame);
        let Some(carried) = all.len().checked_sub(bytes).and_then(|at| all.get(at..)) else { return };
        let Some(stack) = stack_for(stacks, carried) else { return };
        let bare = Self { at: self.at + stack.bytes.len(), ..self };
        if bare.at + 2 > all.len() {
            // The carried packet was cut.
            return;
        }
        for (from, to) in stack.pseudo.iter().map(|(from, to)| (*from as usize, *to as usize)) {
            let addresses = pool.bytes(frame).get(from..to).map(|bytes| Delta::of_new(from, bytes));
            let is_there = addresses.is_none_or(|addresses| bare.apply_delta(addresses, frame, pool));
            if let (false, Some(owed)) = (is_there, &stack.owed)
                && owed.at as usize == bare.at
            {
                return owed.put(pool.bytes_mut(frame), None);
            }
        }
    }

    /// Applies a change of the covered addresses; returns whether there is a checksum.
    fn apply_delta(self, addresses: Delta, frame: &Frame, pool: &mut Pool) -> bool {
        let is_partial = Some(self.at as u64) == frame.meta.offload.checksum.partial_at();
        let field = pool.bytes_mut(frame).get_mut(self.at..).and_then(|bytes| bytes.first_chunk_mut::<2>());
        let of = ChecksumField { zero_is_none: self.zero_is_none, pseudo: true, is_partial };
        field.is_some_and(|field| addresses.update_field(field, self.at, of))
    }
}
