//! The compile-time part of the prefetcher: finds the rows that the pass of a tuple will look up, as far as the tuple
//! alone determines them.
//!
//! The prefetch code is a program slice of the handlers: it computes the keys of lookups, and the branches on the way
//! to them, if these are pure and read nothing but the tuple as it arrived. The slice of a handler ends at the first
//! unknown value; then the slice of the next handler begins, as if this one had forwarded. The code stores the hash of
//! each key, or its words, in the prefetch slots. [`crate::prefetch`] makes the lookups, and the pass uses their
//! results. None of this is observable.

use super::analysis::ScratchBound;
use super::{PLAIN, PartTranslator, Segment, Val, clif_types};
use crate::frame::arc_offset;
use crate::prefetch::PrefetchLayout;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::types::I64;
use weft_core::matching::jit_layout::LookupMethod;
use weft_core::prefetch::CORE_CACHE_BYTES;
use weft_core::table::jit_layout::KeyLayout;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, Function, Inst, Jump, MatchId, Op, TableId, Terminator, Ty, Value};
use weft_ir::program::Part;

/// The slice of a handler.
struct Slice<'f> {
    function: &'f Function,
    /// Flags that always have the same value.
    known_flags: Vec<Option<bool>>,
    /// Values that the slice can compute, and those of them that a prefetch or a branch needs.
    known: Vec<bool>,
    needed: Vec<bool>,
    /// Keys of several columns whose parts it all computes.
    keys: Vec<bool>,
    /// Blocks that it reaches.
    reached: Vec<bool>,
    /// Blocks without a lookup on any path to the end of the pass: the slice may assume that they are not taken.
    without_lookups: Vec<bool>,
}

impl<'f> Slice<'f> {
    /// `changed` are the inputs that earlier handlers change; this function adds those of this one. With `is_usual`,
    /// the slice does not enter blocks without lookups.
    fn of(
        function: &'f Function,
        (order, known_flags): (&[BlockId], impl Fn(Value) -> Option<bool>),
        changed: &mut [bool],
        is_usual: bool,
    ) -> Self {
        let n_blocks = function.blocks.len();
        let mut slice = Self {
            function,
            known_flags: (0..function.types.len()).map(|at| known_flags(Value(at as u32))).collect(),
            needed: vec![false; function.types.len()],
            known: vec![false; function.types.len()],
            keys: vec![false; function.types.len()],
            reached: vec![false; n_blocks],
            without_lookups: if is_usual { without_lookups(function, order) } else { vec![false; n_blocks] },
        };
        // A parameter counts as known until a path with an unknown argument is found.
        for param in function.blocks.iter().flat_map(|block| &block.params) {
            slice.known[param.0 as usize] = true;
        }
        slice.reached[0] = true;
        for id in order {
            let block = &function.blocks[id.0 as usize];
            for inst in &block.insts {
                let is_known = slice.is_known(&inst.op, changed);
                if let Some(result) = inst.result {
                    let is_key = matches!(inst.op, Op::Key(_));
                    slice.known[result.0 as usize] = is_known && !is_key;
                    slice.keys[result.0 as usize] = is_known && is_key;
                }
                if let Op::SetInput(input, _) | Op::ClearInput(input) = &inst.op
                    && let Some(changed) = changed.get_mut(usize::from(input.0))
                {
                    *changed = true;
                }
            }
            if !slice.reached[id.0 as usize] {
                continue;
            }
            let paths = slice.paths(&block.end);
            for Jump { block: to, args } in paths {
                slice.reached[to.0 as usize] = true;
                for (param, arg) in function.blocks[to.0 as usize].params.iter().zip(args) {
                    slice.known[param.0 as usize] &= slice.known[arg.0 as usize];
                }
            }
        }
        for id in order.iter().rev() {
            if slice.reached[id.0 as usize] {
                slice.mark_needed(*id);
            }
        }
        slice
    }

    /// Marks the values that a block needs, given those that its successors need.
    fn mark_needed(&mut self, id: BlockId) {
        let block = &self.function.blocks[id.0 as usize];
        let paths = self.paths(&block.end);
        if let ([_, _], Terminator::Branch(by, ..)) = (&paths[..], &block.end) {
            self.needed[by.0 as usize] = true;
        }
        for Jump { block: to, args } in paths {
            for (param, arg) in self.function.blocks[to.0 as usize].params.iter().zip(args) {
                self.needed[arg.0 as usize] |= self.needed[param.0 as usize];
            }
        }
        for inst in block.insts.iter().rev() {
            let is_needed = inst.result.is_some_and(|value| self.needed[value.0 as usize]);
            if is_needed || self.is_known_lookup(&inst.op) {
                inst.op.operands().iter().for_each(|operand| self.needed[operand.0 as usize] = true);
            }
        }
    }

    /// Whether the slice computes a value.
    fn computes(&self, value: Value) -> bool {
        self.known[value.0 as usize] && self.needed[value.0 as usize]
    }

    /// Whether this is a lookup with a known key.
    fn is_known_lookup(&self, op: &Op) -> bool {
        let is_known = |value: &Value| self.known[value.0 as usize];
        match op {
            Op::Find(_, key) => is_known(key) || self.keys[key.0 as usize],
            Op::Match(_, _, keys) => {
                keys.iter().all(|(key, null)| is_known(key) && null.as_ref().is_none_or(is_known))
            }
            _ => false,
        }
    }

    /// The successors of a block: one side of a branch that the slice assumes, none if the condition is unknown.
    fn paths(&self, end: &'f Terminator) -> Vec<&'f Jump> {
        let Terminator::Branch(by, yes, no) = end else { return end.jumps() };
        if let Some(flag) = self.known_flags[by.0 as usize] {
            return vec![if flag { yes } else { no }];
        }
        let is_known = self.known[by.0 as usize];
        match [yes, no].map(|side| self.without_lookups[side.block.0 as usize]) {
            [true, false] => vec![no],
            [false, true] => vec![yes],
            _ if is_known && looks_up_same_key(self.function, yes, no) => vec![yes],
            _ if is_known => vec![yes, no],
            _ => Vec::new(),
        }
    }

    /// Whether a prefetcher can compute the operation before the pass; `changed` are the inputs that earlier parts
    /// change.
    fn is_known(&self, op: &Op, changed: &[bool]) -> bool {
        let is_pure = match op {
            Op::Input(input) | Op::InputPresent(input) => {
                changed.get(usize::from(input.0)).is_some_and(|changed| !changed)
            }
            // Assume that there is room, as in almost all passes.
            Op::ScratchFull
            | Op::BoolConst(_)
            | Op::IntConst(_)
            | Op::BytesConst(_)
            | Op::IntBinary(..)
            | Op::Overflows(..)
            | Op::IntCompare(..)
            | Op::InRange(..)
            | Op::BoolToInt(_)
            | Op::BoolBinary(..)
            | Op::Not(_)
            | Op::Select(..)
            | Op::Len(_)
            | Op::ByteAt(..)
            | Op::BytesCompare(..)
            | Op::InPrefix(..)
            | Op::InPrefixes(..)
            | Op::Hash(_)
            | Op::HashMix(..)
            | Op::Key(_) => true,
            _ => false,
        };
        is_pure && op.operands().iter().all(|operand| self.known[operand.0 as usize])
    }
}

/// Translates the prefetch code; the caller emits what follows. All prefetch slots are zero before. Adds the prefetches
/// to `layouts`, one for each part.
pub(super) fn translate(
    segment: &mut Segment<'_, '_>,
    parts: &[Part<'_>],
    layouts: &mut [PrefetchLayout],
) -> Result<(), Unsupported> {
    // The inputs as they arrived: this code does not change them.
    segment.declare_inputs(&[])?;
    segment.room = ScratchBound::NONE;
    let n_inputs = segment.inputs.len();
    let mut changed = vec![false; n_inputs];
    let end = segment.builder.create_block();
    for (at, part) in parts.iter().enumerate() {
        let next = segment.builder.create_block();
        let mut translator = PartTranslator::new(segment, at, part, next)?;
        let is_usual = translator.segment.is_fast_path;
        let analysis = (&translator.analysis.order[..], |flag| translator.analysis.known_flag(flag));
        let slice = Slice::of(part.function, analysis, &mut changed, is_usual);
        PrefetchLayout::begin(layouts, at);
        translator.slice_of_handler(&slice, &mut layouts[at], end)?;
        segment.builder.switch_to_block(next);
    }
    segment.builder.ins().jump(end, []);
    segment.builder.switch_to_block(end);
    Ok(())
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits the part of a handler that computes look-up keys, with a prefetch for each.
    fn slice_of_handler(
        &mut self,
        slice: &Slice<'_>,
        layout: &mut PrefetchLayout,
        end: clif::Block,
    ) -> Result<(), Unsupported> {
        // In a loop the keys are unknown, and the code after it runs much later.
        if self.function.blocks.iter().any(|block| block.scan_rows_max.is_some()) {
            let next = self.next;
            self.ins().jump(next, []);
            return Ok(());
        }
        let first = self.blocks[0];
        self.ins().jump(first, []);
        for id in self.analysis.order.clone() {
            if slice.reached[id.0 as usize] {
                self.slice_of_block(id, slice, layout, end)?;
            }
        }
        Ok(())
    }

    /// Emits the part of a block that computes look-up keys, with a prefetch for each.
    fn slice_of_block(
        &mut self,
        id: BlockId,
        slice: &Slice<'_>,
        layout: &mut PrefetchLayout,
        end: clif::Block,
    ) -> Result<(), Unsupported> {
        let function = self.function;
        let block = &function.blocks[id.0 as usize];
        let target = self.blocks[id.0 as usize];
        let makes = |value: &Value| slice.computes(*value);
        for param in block.params.iter().filter(|param| makes(param)) {
            let values: Vec<clif::Value> = clif_types(function.ty(*param))
                .iter()
                .map(|ty| self.segment.builder.append_block_param(target, *ty))
                .collect();
            self.values[param.0 as usize] = Some(match values[..] {
                [one] => Val::One(one),
                _ => Val::Two(values[0], values[1]),
            });
        }
        self.segment.builder.switch_to_block(target);
        for inst in &block.insts {
            match &inst.op {
                Op::Find(table, key) if slice.is_known_lookup(&inst.op) => {
                    self.store_find_key(*table, *key, layout)?
                }
                Op::Match(_, id, keys) if slice.is_known_lookup(&inst.op) => {
                    self.store_match_key(*id, keys, layout)?
                }
                Op::ScratchFull => {
                    let no = self.segment.bool(false);
                    inst.result.iter().for_each(|value| self.values[value.0 as usize] = Some(Val::One(no)));
                }
                _ => {
                    let result = inst.result.filter(makes);
                    if let Some(result) = result {
                        self.values[result.0 as usize] = self.inst(id, inst)?;
                    }
                }
            }
        }
        let known_args = |this: &mut Self, jump: &Jump| -> Result<Vec<clif::BlockArg>, Unsupported> {
            let params = &function.blocks[jump.block.0 as usize].params;
            let known = params.iter().zip(&jump.args).filter(|(param, _)| makes(param));
            let args: Vec<Value> = known.map(|(_, arg)| *arg).collect();
            this.args(&Jump { block: jump.block, args })
        };
        match (&slice.paths(&block.end)[..], &block.end) {
            ([jump], _) => {
                let args = known_args(self, jump)?;
                let to = self.blocks[jump.block.0 as usize];
                self.ins().jump(to, &args);
            }
            ([yes, no], Terminator::Branch(by, ..)) => {
                let by = self.get(*by)?.one();
                let (yes_args, no_args) = (known_args(self, yes)?, known_args(self, no)?);
                let [yes, no] = [yes, no].map(|jump| self.blocks[jump.block.0 as usize]);
                self.ins().brif(by, yes, &yes_args, no, &no_args);
            }
            (
                _,
                Terminator::Branch(..)
                | Terminator::Forward
                | Terminator::Skip
                | Terminator::Steer { .. }
                | Terminator::Redirect { .. },
            ) => {
                let next = self.next;
                self.ins().jump(next, []);
            }
            _ => {
                self.ins().jump(end, []);
            }
        }
        Ok(())
    }

    /// Stores the hash of a key and the address of its slots, if compiled code looks up such keys itself.
    fn store_find_key(
        &mut self,
        table: TableId,
        key: Value,
        layout: &mut PrefetchLayout,
    ) -> Result<(), Unsupported> {
        let plan = self.segment.plan;
        let held = &plan.state.tables[usize::from(table.0)];
        // The table may have few rows now, and many after it has learned more.
        let may_exceed_cache = held.max_rows() as usize * held.row_base_bytes() > CORE_CACHE_BYTES;
        if !may_exceed_cache && !plan.always_prefetches {
            return Ok(());
        }
        let (near, offset, by) = (held.jit_layout(), arc_offset(held) as i32, held.hash_key());
        let skip = self.segment.builder.create_block();
        let hash = match (near.key, self.ty(key)) {
            (KeyLayout::Columns(_), Ty::Bytes) => self.hash_ahead(by, key, skip)?,
            (KeyLayout::Bytes { .. }, Ty::Bytes) if self.values[key.0 as usize].is_some() => {
                let bytes = self.get(key)?;
                let short = self.short_key(by, key, bytes, skip);
                Some(self.hash_of_key(&short))
            }
            (KeyLayout::Word(_), ty) if ty != Ty::Bytes => {
                let value = self.get(key)?;
                let word = self.segment.pack(ty, value);
                Some(self.hash_word_by(by, word))
            }
            _ => None,
        };
        if let Some((hash, at)) = hash.zip(layout.add_find(table.0)) {
            let (prefetched, pointer) = (self.segment.prefetched, self.table(table));
            let base = self.ins().load(I64, PLAIN, pointer, 0);
            let slots = self.home(near, (base, offset), hash).slots;
            self.ins().store(PLAIN, hash, prefetched, at as i32 * 8);
            self.ins().store(PLAIN, slots, prefetched, at as i32 * 8 + 16);
        }
        self.ins().jump(skip, []);
        self.segment.builder.switch_to_block(skip);
        Ok(())
    }

    /// Stores the words of a key, preceded by 1.
    fn store_match_key(
        &mut self,
        id: MatchId,
        keys: &[(Value, Option<Value>)],
        layout: &mut PrefetchLayout,
    ) -> Result<(), Unsupported> {
        let plan = self.segment.plan;
        let matcher = &plan.state.matchers[usize::from(id.0)];
        // Code is compiled again once there are many rows. Matchers in vectors are small.
        let fits_cache = !matcher.is_far() && !plan.always_prefetches;
        if fits_cache
            || matches!(matcher.lookup_method(), Some(LookupMethod::Vectors(_) | LookupMethod::Linear(_)))
        {
            return Ok(());
        }
        let n_words = matcher.key_words();
        let Some(at) = layout.add_match(id.0, n_words, matcher.packing_hash()) else { return Ok(()) };
        let prefetched = self.segment.prefetched;
        let words = self.packed_words(id, keys)?;
        let one = self.segment.int(1);
        let all = core::iter::once(one).chain(words.into_iter().take(n_words));
        for (at, word) in (at..).zip(all) {
            self.ins().store(PLAIN, word, prefetched, at as i32 * 8);
        }
        Ok(())
    }
}

/// Finds the blocks from which no path to the end of the pass has a lookup.
fn without_lookups(function: &Function, order: &[BlockId]) -> Vec<bool> {
    let mut without_lookups = vec![false; function.blocks.len()];
    for id in order.iter().rev() {
        let block = &function.blocks[id.0 as usize];
        let looks_up = |inst: &Inst| matches!(inst.op, Op::Find(..) | Op::Match(..));
        let ends = match &block.end {
            Terminator::Drop { .. }
            | Terminator::Abort { .. }
            | Terminator::Reply { .. }
            | Terminator::Fail { .. } => true,
            Terminator::Jump(_) | Terminator::Branch(..) => {
                block.end.jumps().iter().all(|jump| without_lookups[jump.block.0 as usize])
            }
            Terminator::Missing
            | Terminator::Forward
            | Terminator::Skip
            | Terminator::Steer { .. }
            | Terminator::Redirect { .. } => false,
        };
        without_lookups[id.0 as usize] = ends && !block.insts.iter().any(looks_up);
    }
    without_lookups
}

/// Largest number of steps from a branch to a lookup, or from a value to its operands.
const STEPS_MAX: usize = 4;

/// Whether both sides of a branch begin with a lookup of the same key in the same table, such as an insert or an update
/// of a row. The prefetcher then needs no branch.
fn looks_up_same_key(function: &Function, yes: &Jump, no: &Jump) -> bool {
    let made = |value: Value| {
        let insts = function.blocks.iter().flat_map(|block| &block.insts);
        insts.filter(|inst| inst.result == Some(value)).map(|inst| &inst.op).next()
    };
    let first_find = |jump: &Jump| {
        let mut jump = jump;
        for _ in 0..STEPS_MAX {
            let block = &function.blocks[jump.block.0 as usize];
            let find =
                |inst: &Inst| if let Op::Find(table, key) = inst.op { Some((table, key)) } else { None };
            if let Some(found) = block.insts.iter().find_map(find) {
                return Some(found);
            }
            jump = match &block.end {
                Terminator::Jump(next) => next,
                // Assume that there is room, as in the slice.
                Terminator::Branch(by, _, no) if made(*by) == Some(&Op::ScratchFull) => no,
                _ => return None,
            };
        }
        None
    };
    let finds = first_find(yes).zip(first_find(no));
    finds.is_some_and(|((table, key), (other, other_key))| {
        table == other && is_same(&made, key, other_key, STEPS_MAX)
    })
}

/// Whether two values are the same function of the tuple as it arrived.
fn is_same<'f>(made: &impl Fn(Value) -> Option<&'f Op>, one: Value, other: Value, steps: usize) -> bool {
    let Some(steps) = steps.checked_sub(1) else { return false };
    one == other
        || match (made(one), made(other)) {
            (Some(Op::Input(one)), Some(Op::Input(other))) => one == other,
            (Some(Op::Key(parts)), Some(Op::Key(others))) => {
                let mut pairs = parts.iter().zip(others);
                parts.len() == others.len() && pairs.all(|(one, other)| is_same(made, *one, *other, steps))
            }
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For common-case frames, a lookup after a guard must be prefetched whatever the guard tests, and values for the
    /// guard alone must not be computed. Otherwise packets wait for rows.
    #[test]
    fn prefetch_assumes_guards_pass() {
        let source = "function \"f\" {\nblock0:\n    v0: int = input in0\n    v1: row = find t0, v0\n    \
            v2: bool = is_row v1\n    branch v2, block2, block1\nblock1:\n    drop\nblock2:\n    \
            v3: int = input in1\n    v4: int = int 9\n    v5: bool = icmp.ult v3, v4\n    \
            branch v5, block3, block4\nblock3:\n    drop\nblock4:\n    v6: row = find t1, v3\n    forward\n}\n";
        let function = weft_ir::text::parse(source).expect("the function is well-formed");
        let order: Vec<BlockId> = (0..5).map(BlockId).collect();
        let slice = |is_usual| Slice::of(&function, (&order, |_| None), &mut [false; 2], is_usual);
        let usual = slice(true);
        assert_eq!(usual.without_lookups, [false, true, false, true, false]);
        assert_eq!(usual.reached, [true, false, true, false, true]);
        let made: Vec<u32> = (0..7).filter(|at| usual.computes(Value(*at))).collect();
        assert_eq!(made, [0, 3], "the keys alone");
        // For other frames, an unknown condition ends the slice, because a value may be that of another frame.
        assert_eq!(slice(false).reached, [true, false, false, false, false]);
    }
}
