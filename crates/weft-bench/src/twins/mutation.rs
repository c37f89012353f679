//! Sets a header of each request, and prefixes a field.

use weft_core::abi::{Cell, Cx, EditTarget, Fault, REGION_BODY, TupleEdit};

use super::{Element, Site, count_seen, fail, header, keep, text};

/// The chain's parameters.
const VALUE: &[u8] = b"blue";
const PREFIX: &[u8] = b"eu-";

pub(super) struct Mutation {
    at: u16,
    header: u16,
    target: u16,
}

impl Mutation {
    /// Records the changes; None if their bytes do not fit.
    #[inline(always)]
    fn change(&self, cx: &mut Cx<'_>) -> Option<()> {
        let target = usize::from(self.target);
        let value = keep(cx, VALUE)?;
        let set = |target, value| TupleEdit { target: EditTarget::Input(target), value };
        if !cx.present.contains(target) {
            cx.out.edits.push(set(self.header, value));
            return Some(());
        }
        let (start, _) = cx.out.keep(PREFIX)?;
        let (_, len) = cx.out.keep(text(cx, REGION_BODY, target))?;
        let prefixed = Cell::Bytes(start, PREFIX.len() as u32 + len);
        cx.out.edits.extend([set(self.header, value), set(self.target, prefixed)]);
        Some(())
    }
}

impl Element for Mutation {
    fn new(site: &Site<'_>) -> Self {
        let header = header(&site.program.request, "x-weft");
        Self { at: site.at, header: header as u16, target: site.field("tenant") as u16 }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let kept = cx.out.scratch.len();
        self.change(cx).is_some() || fail(cx, self.at, Fault::TooLong, kept)
    }
}
