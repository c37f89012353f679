//! Analyses a handler before its translation: order of blocks, known flags, scratch use and failures.

use super::Plan;
use super::key::LEN_BYTES;
use super::tuple::input_bytes_max;
use crate::helpers::ZERO_ROW_WORDS;
use crate::text::FLOAT_TEXT_MAX;
use std::collections::BTreeMap;
use weft_core::limits::SCRATCH_BYTES_MIN;
use weft_core::table::ColumnRef;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{
    Block, BlockId, BytesCmp, ColumnId, FloatOp, Function, InputId, Inst, Journal, Jump, Op, Signed, TableId,
    Terminator, Ty, Value, VarId,
};
use weft_ir::verify::{FrameOffset, Handler, reads_in_bounds};

/// The longest text of an integer, with its sign.
const INT_TEXT_MAX: u64 = 20;

/// The results of the analysis of a handler.
pub(super) struct Analysis<'p> {
    /// The reachable blocks, each after all that dominate it.
    pub(super) order: Vec<BlockId>,
    /// The handler may be rolled back, and has something to undo.
    pub(super) undoes: bool,
    /// The MERGE variables that a roll-back restores.
    pub(super) merges: Vec<VarId>,
    /// The scratch in use at the end of the handler.
    pub(super) room_after: ScratchBound,
    /// The handler tests whether the scratch is full.
    pub(super) asks_scratch: bool,
    /// It takes the lock of the scalar variables.
    pub(super) locks_vars: bool,
    /// Flags that always have the same value.
    known_flags: KnownFlags,
    /// Numbers of the frame that certainly lie in it.
    pub(super) inside: BTreeMap<Value, FrameOffset>,
    locked: Vec<TableId>,
    constants: Vec<bool>,
    /// The bytes of constants.
    literals: Vec<Option<&'p [u8]>>,
    /// Bytes of a column or cell that are used only in place.
    borrowed: Vec<bool>,
    /// Rows that certainly exist, by block.
    present: Vec<Vec<Value>>,
    /// By block: the last instruction before a roll-back within the block, and whether one may follow after it.
    fails: Vec<RollbackReach>,
    /// Writes that are rolled back without the journal, by block and instruction.
    in_place: Vec<Vec<bool>>,
}

/// The constant value of each flag that has one.
type KnownFlags = Vec<Option<bool>>;

/// Up to which instruction of a block an event may still follow within it, and whether it may follow after it.
type RollbackReach = (usize, bool);

impl<'p> Analysis<'p> {
    /// Analyses a handler.
    ///
    /// # Errors
    /// It names a table that the state does not have.
    pub(super) fn of(
        function: &'p Function,
        plan: &Plan<'_>,
        room: ScratchBound,
    ) -> Result<Self, Unsupported> {
        let (known_flags, room_after) = known_flags(function, plan, room);
        let order = reverse_postorder(function, &known_flags);
        let mut analysis = Self {
            undoes: false,
            merges: Vec::new(),
            room_after,
            asks_scratch: false,
            locks_vars: false,
            locked: Vec::new(),
            constants: vec![false; function.types.len()],
            literals: vec![None; function.types.len()],
            borrowed: borrowed(function),
            present: present_rows(function, &order),
            fails: fails(function, &order, &known_flags),
            in_place: in_place(function, plan, &order, &known_flags),
            known_flags,
            inside: reads_in_bounds(function),
            order,
        };
        for inst in function.blocks.iter().flat_map(|b| &b.insts) {
            if let Some(table) = table_of(&inst.op)
                && usize::from(table.0) >= plan.state.tables.len()
            {
                return Err(Unsupported {
                    reason: format!("the state has no table {}", table.0),
                    line: inst.line,
                });
            }
            match &inst.op {
                Op::ScratchFull => analysis.asks_scratch = true,
                Op::LockVars => analysis.locks_vars = true,
                Op::Lock(table, _) if !analysis.locked.contains(table) => analysis.locked.push(*table),
                Op::IntConst(_) => {
                    inst.result.iter().for_each(|result| analysis.constants[result.0 as usize] = true);
                }
                Op::BytesConst(bytes) => {
                    if let Some(result) = inst.result {
                        analysis.literals[result.0 as usize] = Some(bytes);
                    }
                }
                _ => {}
            }
        }
        let resets = all_insts(function).any(|inst| matches!(inst.op, Op::VarReset(_)));
        for id in analysis.order.clone() {
            for (at, inst) in function.blocks[id.0 as usize].insts.iter().enumerate() {
                if !analysis.may_fail_after(id, at) {
                    continue;
                }
                match inst.op {
                    // Only this worker writes its part, so a register can hold the old value.
                    Op::VarMerge(var, _, Journal::Yes) if !resets => analysis.merges.push(var),
                    _ => analysis.undoes |= has_effect(&inst.op) && !analysis.in_place[id.0 as usize][at],
                }
            }
        }
        analysis.merges.sort_unstable_by_key(|var| var.0);
        analysis.merges.dedup();
        Ok(analysis)
    }

    pub(super) fn locked_tables(&self) -> Vec<TableId> {
        self.locked.clone()
    }

    /// Whether the handler locks the table.
    pub(super) fn locks(&self, table: TableId) -> bool {
        self.locked.contains(&table)
    }

    /// The constant value of a flag, if it has one.
    pub(super) fn known_flag(&self, flag: Value) -> Option<bool> {
        self.known_flags[flag.0 as usize]
    }

    /// Whether a value is an integer constant.
    pub(super) fn is_constant(&self, value: Value) -> bool {
        self.constants[value.0 as usize]
    }

    /// The bytes of a value that is a constant.
    pub(super) fn literal(&self, value: Value) -> Option<&'p [u8]> {
        self.literals[value.0 as usize]
    }

    /// Whether the bytes of a load may stay in place.
    pub(super) fn is_borrowed(&self, value: Value) -> bool {
        self.borrowed[value.0 as usize]
    }

    /// Whether the handler may be rolled back after this instruction.
    pub(super) fn may_fail_after(&self, block: BlockId, at: usize) -> bool {
        is_reached(self.fails[block.0 as usize], at)
    }

    /// Whether this write is rolled back without the journal: code keeps the old value, and stores it again.
    pub(super) fn is_undone_in_place(&self, block: BlockId, at: usize) -> bool {
        self.in_place[block.0 as usize][at]
    }

    /// Whether a jump between two blocks goes backwards.
    pub(super) fn is_back_edge(&self, to: BlockId, from: BlockId) -> bool {
        let at = |block| self.order.iter().position(|other| *other == block);
        at(to) <= at(from)
    }

    /// Whether the row certainly exists whenever this block runs.
    pub(super) fn is_present(&self, block: BlockId, row: Value) -> bool {
        self.present[block.0 as usize].contains(&row)
    }
}

/// Whether code of the handler uses the frame.
pub(super) fn needs_frame(function: &Function) -> bool {
    let mut uses = all_insts(function).filter(|inst| {
        let is_used = matches!(
            inst.op,
            Op::Insert(..)
                | Op::Remove(..)
                | Op::Touch(..)
                | Op::TouchRead(..)
                | Op::SetColumn(..)
                | Op::SetColumnNull(..)
                | Op::CountInto(..)
                | Op::CallSet(..)
                | Op::VarSet(..)
                | Op::VarMerged(_)
                | Op::VarReset(_)
                | Op::LockVars
                | Op::ScratchFull
                | Op::RollBack
                | Op::Native(..)
                | Op::Derived(_)
        );
        is_used || may_use_scratch(function, inst)
    });
    let fails = function.blocks.iter().any(|block| matches!(block.end, Terminator::Fail { .. }));
    uses.next().is_some() || fails && has_effects(function)
}

/// Whether the operation puts its bytes into the scratch.
pub(super) fn makes_bytes(op: &Op) -> bool {
    matches!(
        op,
        Op::Concat(_) | Op::Lower(_) | Op::Upper(_) | Op::IntToText(..) | Op::FloatToText(_) | Op::Native(..)
    )
}

/// Whether the handler may keep bytes in the scratch.
pub(super) fn may_keep(function: &Function) -> bool {
    all_insts(function).any(|inst| may_use_scratch(function, inst))
}

/// Whether a finished handler leaves something that a roll-back to the start of the pass would undo.
pub(super) fn has_effects(function: &Function) -> bool {
    all_insts(function).any(|inst| has_effect(&inst.op))
}

/// Whether the operation may allocate scratch.
fn may_use_scratch(function: &Function, inst: &Inst) -> bool {
    let makes = matches!(
        inst.op,
        Op::Concat(_)
            | Op::Lower(_)
            | Op::Upper(_)
            | Op::IntToText(..)
            | Op::FloatToText(_)
            | Op::Key(_)
            | Op::Native(..)
            | Op::Derived(_)
            | Op::SetInput(..)
            | Op::SetAnswer(..)
            | Op::SetReply(..)
            | Op::ChangeHeaders(..)
            | Op::Emit(..)
            | Op::Mirror(_)
    );
    makes || loads_bytes(function, inst)
}

/// The largest length of bytes; None if unbounded.
type BytesMax = Option<u64>;

/// The largest use of the scratch, and what is known of the inputs that were set.
#[derive(Clone, Debug)]
pub(super) struct ScratchBound {
    taken: BytesMax,
    /// The largest length of a value that may replace an input.
    set: BTreeMap<InputId, BytesMax>,
}

impl ScratchBound {
    /// The bound at the start of a pass.
    pub(super) const NONE: Self = Self { taken: Some(0), set: BTreeMap::new() };

    /// The bound after a handler.
    pub(super) fn after(self, function: &Function, plan: &Plan<'_>) -> Self {
        known_flags(function, plan, self).1
    }

    /// Whether there is always room for that many bytes.
    pub(super) fn always_fits(&self) -> bool {
        self.taken.is_some_and(|taken| taken <= SCRATCH_BYTES_MIN as u64)
    }

    fn take(&mut self, more: BytesMax) {
        self.taken = self.taken.zip(more).map(|(a, b)| a.saturating_add(b));
    }

    fn set(&mut self, input: InputId, len: BytesMax) {
        let known = self.set.entry(input).or_insert(Some(0));
        *known = longer(*known, len);
    }
}

/// The largest length of bytes that are one of two values.
fn longer(a: BytesMax, b: BytesMax) -> BytesMax {
    a.zip(b).map(|(a, b)| a.max(b))
}

/// Finds the flags with a constant value, above all an [`Op::ScratchFull`] that is never true, and the bound after the
/// handler.
fn known_flags(function: &Function, plan: &Plan<'_>, before: ScratchBound) -> (KnownFlags, ScratchBound) {
    let mut known_flags = vec![None; function.types.len()];
    find_float_fits(function, &mut known_flags);
    // Without loops each instruction runs once, and after all those before it in this order.
    if function.blocks.iter().any(|block| block.scan_rows_max.is_some()) {
        return (known_flags, ScratchBound { taken: None, ..before });
    }
    let mut lens: Vec<BytesMax> = vec![None; function.types.len()];
    // A parameter is as long as the longest of its arguments, all of which come before.
    for param in function.blocks.iter().flat_map(|block| &block.params) {
        lens[param.0 as usize] = Some(0);
    }
    let mut room = before;
    for block in reverse_postorder(function, &known_flags) {
        let block = &function.blocks[block.0 as usize];
        for inst in &block.insts {
            let len = len_max(plan, &room, &lens, &inst.op);
            room.take(takes_max(function, &lens, &inst.op, len));
            if let Op::SetInput(input, value) = &inst.op {
                room.set(*input, lens[value.0 as usize]);
            }
            if let Some(result) = inst.result {
                lens[result.0 as usize] = len;
                if inst.op == Op::ScratchFull && room.always_fits() {
                    known_flags[result.0 as usize] = Some(false);
                }
            }
        }
        for Jump { block: to, args } in block.end.jumps() {
            for (param, arg) in function.blocks[to.0 as usize].params.iter().zip(args) {
                lens[param.0 as usize] = longer(lens[param.0 as usize], lens[arg.0 as usize]);
            }
        }
    }
    (known_flags, room)
}

/// Finds flags that say whether a float fits an integer and are always true: a quotient of an integer and a constant
/// greater than two, such as a time in a larger unit.
fn find_float_fits(function: &Function, known_flags: &mut KnownFlags) {
    let ops = definitions(function);
    let op = |value: &Value| ops[value.0 as usize];
    let is_small = |value: &Value| match op(value) {
        Some(Op::FloatBinary(FloatOp::Div, a, b)) => {
            let is_integer = matches!(op(a), Some(Op::IntToFloat(..)));
            is_integer && matches!(op(b), Some(Op::FloatConst(by)) if by.abs() > 2.0)
        }
        _ => false,
    };
    let fits = |op: &Op| matches!(op, Op::FloatFits(Signed::Yes, of) if is_small(of));
    for inst in all_insts(function) {
        let Some(result) = inst.result else { continue };
        known_flags[result.0 as usize] = match &inst.op {
            Op::Not(of) => op(of).is_some_and(fits).then_some(false),
            op => fits(op).then_some(true),
        };
    }
}

/// Bounds the length of an operation's result.
fn len_max(plan: &Plan<'_>, room: &ScratchBound, lens: &[BytesMax], op: &Op) -> BytesMax {
    let of = |value: &Value| lens[value.0 as usize];
    match op {
        Op::BytesConst(bytes) => Some(bytes.len() as u64),
        Op::IntToText(..) => Some(INT_TEXT_MAX),
        Op::FloatToText(_) => Some(FLOAT_TEXT_MAX as u64),
        Op::Lower(a) | Op::Upper(a) | Op::Slice(a, ..) | Op::Part(a, ..) => of(a),
        Op::Select(_, a, b) => longer(of(a), of(b)),
        Op::Concat(parts) => {
            parts.iter().try_fold(0u64, |sum, part| of(part).map(|len| sum.saturating_add(len)))
        }
        Op::Input(input) => {
            let inputs = &Handler::of(plan.event).direction(plan.chain)?.inputs;
            let arrived = input_bytes_max(inputs.get(usize::from(input.0))?.ty)?;
            longer(Some(arrived.into()), room.set.get(input).copied().unwrap_or(Some(0)))
        }
        Op::CallGet(cell) => {
            let decl = plan.chain.call.get(usize::from(cell.0))?;
            decl.ty.bytes_max().map(u64::from)
        }
        Op::Native(id, _) => Some(plan.chain.natives[usize::from(id.0)].native.info().bytes_max() as u64),
        Op::Column(table, _, column) => column_ref(plan, *table, *column).map(|at| u64::from(at.bytes_max)),
        _ => None,
    }
}

/// The most scratch that an operation allocates, if `len` bounds its result.
fn takes_max(function: &Function, lens: &[BytesMax], op: &Op, len: BytesMax) -> BytesMax {
    let of = |value: &Value| if function.ty(*value) == Ty::Bytes { lens[value.0 as usize] } else { Some(0) };
    match op {
        Op::Concat(_) | Op::Lower(_) | Op::Upper(_) | Op::IntToText(..) | Op::FloatToText(_) => len,
        // A size counts, too: its operation may find the scratch full.
        Op::Native(..) | Op::Derived(_) => len,
        Op::Key(parts) => parts.iter().try_fold(0u64, |sum, part| {
            let is_bytes = function.ty(*part) == Ty::Bytes;
            let len = if is_bytes { of(part)?.saturating_add(LEN_BYTES.into()) } else { 8 };
            Some(sum.saturating_add(len))
        }),
        Op::CallGet(_) | Op::Column(..) => Some(len.unwrap_or(0)),
        Op::SetInput(_, value) | Op::SetAnswer(_, value) | Op::SetReply(_, value) | Op::Mirror(value) => {
            of(value)
        }
        Op::Emit(_, values) => {
            values.iter().try_fold(0u64, |sum, (value, _)| of(value).map(|len| sum.saturating_add(len)))
        }
        Op::ChangeHeaders(_, parts) => {
            parts.iter().try_fold(0u64, |sum, part| of(part).map(|len| sum.saturating_add(len)))
        }
        _ => Some(0),
    }
}

fn all_insts(function: &Function) -> impl Iterator<Item = &Inst> {
    function.blocks.iter().flat_map(|block| &block.insts)
}

/// Lists the jumps of a terminator, without those that are never taken.
fn successors<'f>(end: &'f Terminator, known_flags: &KnownFlags) -> Vec<&'f Jump> {
    match end {
        Terminator::Branch(by, yes, no) => match known_flags[by.0 as usize] {
            Some(true) => vec![yes],
            Some(false) => vec![no],
            None => vec![yes, no],
        },
        end => end.jumps(),
    }
}

/// Orders the reachable blocks so that a block comes before its successors, except along back edges.
fn reverse_postorder(function: &Function, known_flags: &KnownFlags) -> Vec<BlockId> {
    let n = function.blocks.len();
    let mut seen = vec![false; n];
    let mut order = Vec::with_capacity(n);
    // An explicit stack of blocks, each with the number of successors already followed: handlers may be long, and
    // recursion could overflow the stack.
    let mut stack = vec![(BlockId(0), 0)];
    seen[0] = true;
    while let Some((block, followed)) = stack.pop() {
        let jumps = successors(&function.blocks[block.0 as usize].end, known_flags);
        match jumps.get(followed) {
            Some(jump) => {
                stack.push((block, followed + 1));
                if !core::mem::replace(&mut seen[jump.block.0 as usize], true) {
                    stack.push((jump.block, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}

/// Whether the event may still follow the instruction at index `at`.
fn is_reached((within, behind): RollbackReach, at: usize) -> bool {
    behind || at < within
}

/// Computes [`Analysis::fails`].
fn fails(function: &Function, order: &[BlockId], known_flags: &KnownFlags) -> Vec<RollbackReach> {
    let roll_back = |inst: &Inst| inst.op == Op::RollBack;
    reach_backward(function, order, known_flags, roll_back, |end| matches!(end, Terminator::Fail { .. }))
}

/// For each block, where such an instruction or end may still follow.
fn reach_backward(
    function: &Function,
    order: &[BlockId],
    known_flags: &KnownFlags,
    is_it: impl Fn(&Inst) -> bool,
    is_end: impl Fn(&Terminator) -> bool,
) -> Vec<RollbackReach> {
    let blocks = &function.blocks;
    let within = |block: &Block| (block.insts.iter().rposition(&is_it).unwrap_or(0), is_end(&block.end));
    let mut reach: Vec<RollbackReach> = blocks.iter().map(within).collect();
    // Backwards from the ends, repeated until the loop heads no longer change.
    let mut changes = true;
    while changes {
        changes = false;
        for block in order.iter().rev() {
            let at = block.0 as usize;
            let behind = successors(&blocks[at].end, known_flags).iter().any(|jump| {
                let to = jump.block.0 as usize;
                reach[to].1 || blocks[to].insts.iter().any(&is_it)
            });
            changes |= behind && !reach[at].1;
            reach[at].1 |= behind;
        }
    }
    reach
}

/// See [`Analysis::in_place`]. These are stores of words, each made once in a pass: in handlers without a scan, and
/// after the last operation that may reuse the row's memory.
fn in_place(
    function: &Function,
    plan: &Plan<'_>,
    order: &[BlockId],
    known_flags: &KnownFlags,
) -> Vec<Vec<bool>> {
    let none = |block: &Block| vec![false; block.insts.len()];
    let mut in_place: Vec<Vec<bool>> = function.blocks.iter().map(none).collect();
    if function.blocks.iter().any(|block| block.scan_rows_max.is_some()) {
        return in_place;
    }
    let n_tables = plan.state.tables.len().min(usize::from(u16::MAX)) as u16;
    let moves: Vec<Vec<RollbackReach>> = (0..n_tables)
        .map(|table| {
            let moves = |inst: &Inst| match inst.op {
                Op::Insert(of, ..) | Op::Remove(of, ..) => of.0 == table,
                _ => false,
            };
            reach_backward(function, order, known_flags, moves, |_| false)
        })
        .collect();
    for (id, block) in function.blocks.iter().enumerate() {
        for (at, inst) in block.insts.iter().enumerate() {
            let stays = |table: TableId| {
                moves.get(usize::from(table.0)).is_some_and(|moves| !is_reached(moves[id], at))
            };
            in_place[id][at] = match inst.op {
                Op::SetColumn(table, _, column, value, Journal::Yes) => {
                    let at = column_ref(plan, table, column).filter(is_direct);
                    let is_word = function.ty(value) != Ty::Bytes;
                    is_word && stays(table) && at.is_some_and(|at| at.null_bit.is_none())
                }
                Op::Touch(table, _) | Op::TouchRead(table, _) => stays(table),
                Op::CallSet(_, value, Journal::Yes) => function.ty(value) != Ty::Bytes,
                _ => false,
            };
        }
    }
    in_place
}

/// Where the state's table has a column.
pub(super) fn column_ref(plan: &Plan<'_>, table: TableId, column: ColumnId) -> Option<ColumnRef> {
    let spec = &plan.chain.tables.get(usize::from(table.0))?.spec;
    let column = spec.key.iter().chain(&spec.columns).nth(usize::from(column.0))?;
    plan.state.tables.get(usize::from(table.0))?.column(&column.name)
}

/// Whether compiled code may access a column through the row's address.
pub(super) fn is_direct(at: &ColumnRef) -> bool {
    let words = 1 + (at.bytes_max as usize).div_ceil(8);
    at.group == 0 && usize::from(at.word) + words <= ZERO_ROW_WORDS
}

/// Finds, for each block, the rows that [`Op::IsRow`] has confirmed on all paths to it.
fn present_rows(function: &Function, order: &[BlockId]) -> Vec<Vec<Value>> {
    // The row that a test confirms, and which result confirms it.
    let mut tests: Vec<Option<(Value, bool)>> = vec![None; function.types.len()];
    for inst in function.blocks.iter().flat_map(|b| &b.insts) {
        let Some(result) = inst.result else { continue };
        tests[result.0 as usize] = match &inst.op {
            Op::IsRow(row) => Some((*row, true)),
            Op::Not(test) => tests[test.0 as usize].map(|(row, by)| (row, !by)),
            _ => None,
        };
    }
    let mut known: Vec<Option<Vec<Value>>> = vec![None; function.blocks.len()];
    known[0] = Some(Vec::new());
    for block in order {
        // All predecessors but back edges have been visited. A back edge adds nothing, because this block dominates its
        // source.
        let here = known[block.0 as usize].clone().unwrap_or_default();
        let end = &function.blocks[block.0 as usize].end;
        for (nth, jump) in end.jumps().into_iter().enumerate() {
            let mut there = here.clone();
            if let Terminator::Branch(by, ..) = end
                && let Some((row, found_by)) = tests[by.0 as usize]
                && found_by == (nth == 0)
            {
                there.push(row);
            }
            let params = &function.blocks[jump.block.0 as usize].params;
            let given = params.iter().zip(&jump.args).filter(|(_, arg)| there.contains(arg));
            let given: Vec<Value> = given.map(|(param, _)| *param).collect();
            let target = &function.blocks[jump.block.0 as usize];
            let is_loop = target.scan_rows_max.is_some();
            there.extend(given.into_iter().filter(|_| !is_loop));
            match &mut known[jump.block.0 as usize] {
                Some(before) => before.retain(|row| there.contains(row)),
                none => *none = Some(there),
            }
        }
    }
    known.into_iter().map(Option::unwrap_or_default).collect()
}

/// The loads of bytes that need no copy: every use copies or only reads the bytes, and nothing overwrites them between
/// the load and a use.
fn borrowed(function: &Function) -> Vec<bool> {
    let mut borrowed = vec![false; function.types.len()];
    for inst in all_insts(function).filter(|inst| loads_bytes(function, inst)) {
        inst.result.iter().for_each(|result| borrowed[result.0 as usize] = true);
    }
    let loads: Vec<Option<&Op>> = definitions(function);
    for inst in all_insts(function).filter(|inst| !is_select(&inst.op)) {
        for operand in inst.op.operands() {
            let stays = || loads[operand.0 as usize].is_some_and(|load| may_read(&inst.op, load));
            borrowed[operand.0 as usize] &= stays();
        }
    }
    let is_read = is_read(function);
    for (value, becomes) in flows(function) {
        // A roll-back has nothing to restore of what the handler does not write.
        let is_written_over = || {
            let load = loads[value.0 as usize];
            let mut ops = all_insts(function).map(|inst| &inst.op).filter(|op| !matches!(op, Op::RollBack));
            load.is_none_or(|load| ops.any(|op| writes_over(op, load)))
        };
        borrowed[value.0 as usize] &= is_read[becomes.0 as usize] && !is_written_over();
    }
    for (block, at, inst) in numbered_insts(function) {
        if let Some(result) = inst.result.filter(|result| borrowed[result.0 as usize]) {
            borrowed[result.0 as usize] = is_whole_at_uses(function, (block, at), result, &inst.op);
        }
    }
    borrowed
}

/// The values that pass bytes on (block parameters, results of Select) and whose every use only reads them.
fn is_read(function: &Function) -> Vec<bool> {
    let mut is_read = vec![false; function.types.len()];
    for (_, to) in flows(function) {
        is_read[to.0 as usize] = function.ty(to) == Ty::Bytes;
    }
    for inst in all_insts(function).filter(|inst| !only_reads(&inst.op) && !is_select(&inst.op)) {
        inst.op.operands().into_iter().for_each(|operand| is_read[operand.0 as usize] = false);
    }
    let mut is_new = true;
    while is_new {
        is_new = false;
        for (from, to) in flows(function) {
            is_new |= is_read[from.0 as usize] && !is_read[to.0 as usize];
            is_read[from.0 as usize] &= is_read[to.0 as usize];
        }
    }
    is_read
}

/// Pairs of a value and another that takes it over unchanged: as a block argument, or by Select. The text of a verdict
/// is not among them: it is copied before locks are released.
fn flows(function: &Function) -> impl Iterator<Item = (Value, Value)> + '_ {
    let jumps = function.blocks.iter().flat_map(|block| block.end.jumps());
    let given = jumps.flat_map(|jump| {
        let params = &function.blocks[jump.block.0 as usize].params;
        jump.args.iter().copied().zip(params.iter().copied())
    });
    let selected = all_insts(function).filter_map(|inst| match (&inst.op, inst.result) {
        (Op::Select(_, yes, no), Some(result)) => Some([(*yes, result), (*no, result)]),
        _ => None,
    });
    given.chain(selected.flatten())
}

fn is_select(op: &Op) -> bool {
    matches!(op, Op::Select(..))
}

/// Collects the operation that defines each value.
fn definitions(function: &Function) -> Vec<Option<&Op>> {
    let mut ops = vec![None; function.types.len()];
    for inst in all_insts(function) {
        if let Some(result) = inst.result {
            ops[result.0 as usize] = Some(&inst.op);
        }
    }
    ops
}

/// Iterates over all instructions, with their block and their index in it.
fn numbered_insts(function: &Function) -> impl Iterator<Item = (usize, usize, &Inst)> {
    let blocks = function.blocks.iter().enumerate();
    blocks.flat_map(|(at, block)| block.insts.iter().enumerate().map(move |(nth, inst)| (at, nth, inst)))
}

/// Whether no path leads from a load, through a write to its bytes, to a use of them.
fn is_whole_at_uses(function: &Function, (home, at): (usize, usize), value: Value, load: &Op) -> bool {
    let mut seen = vec![[false; 2]; function.blocks.len()];
    let mut reach = vec![(home, at + 1, false)];
    while let Some((at, from, mut is_over)) = reach.pop() {
        let block = &function.blocks[at];
        let mut goes_on = true;
        for inst in &block.insts[from..] {
            if inst.result == Some(value) {
                goes_on = false;
                break;
            }
            if is_over && inst.op.operands().contains(&value) {
                return false;
            }
            is_over |= writes_over(&inst.op, load);
        }
        if !goes_on {
            continue;
        }
        if is_over && block.end.operands().contains(&value) {
            return false;
        }
        for jump in block.end.jumps() {
            let to = jump.block.0 as usize;
            if !core::mem::replace(&mut seen[to][usize::from(is_over)], true) {
                reach.push((to, 0, is_over));
            }
        }
    }
    true
}

/// Whether an instruction loads bytes from a row or a call cell.
fn loads_bytes(function: &Function, inst: &Inst) -> bool {
    let is_bytes = inst.result.is_some_and(|result| function.ty(result) == Ty::Bytes);
    is_bytes && matches!(inst.op, Op::Column(..) | Op::CallGet(_))
}

/// Whether the operation needs its bytes only until it ends, and does not write while it reads them.
fn only_reads(op: &Op) -> bool {
    matches!(
        op,
        Op::Len(_)
            | Op::ByteAt(..)
            | Op::WordAt(..)
            | Op::BytesCompare(..)
            | Op::Concat(_)
            | Op::Lower(_)
            | Op::Upper(_)
            | Op::IsIntText(..)
            | Op::TextToInt(..)
            | Op::IsFloatText(_)
            | Op::TextToFloat(_)
            | Op::Hash(_)
            | Op::InPrefix(..)
            | Op::InPrefixes(..)
            | Op::Native(..)
            | Op::Key(_)
            | Op::Find(..)
            | Op::Match(..)
            | Op::Emit(..)
            | Op::SetInput(..)
            | Op::SetAnswer(..)
            | Op::SetReply(..)
            | Op::ChangeHeaders(..)
            | Op::Mirror(_)
    )
}

/// Whether an operation may use the bytes of a load in place: it only reads them, or copies them elsewhere.
fn may_read(op: &Op, load: &Op) -> bool {
    match (op, load) {
        (Op::SetColumn(to, ..) | Op::Insert(to, ..), Op::Column(from, ..)) => to != from,
        (Op::SetColumn(..) | Op::Insert(..), Op::CallGet(_)) | (Op::CallSet(..), Op::Column(..)) => true,
        _ => only_reads(op),
    }
}

/// Whether an operation may overwrite the bytes of a load in place.
fn writes_over(op: &Op, load: &Op) -> bool {
    match (op, load) {
        (Op::RollBack, _) => true,
        (Op::CallSet(to, ..), Op::CallGet(from)) => to == from,
        (Op::Insert(to, ..) | Op::Remove(to, ..), Op::Column(from, ..)) => to == from,
        (
            Op::SetColumn(to, _, column, ..)
            | Op::SetColumnNull(to, _, column, _)
            | Op::CountInto(to, _, column, ..),
            Op::Column(from, _, other),
        ) => to == from && column == other,
        _ => false,
    }
}

/// Whether a roll-back must undo the operation.
fn has_effect(op: &Op) -> bool {
    match op {
        Op::CallSet(.., journal)
        | Op::VarSet(.., journal)
        | Op::VarMerge(.., journal)
        | Op::Insert(.., journal)
        | Op::Remove(.., journal)
        | Op::SetColumn(.., journal)
        | Op::SetColumnNull(.., journal)
        | Op::CountInto(.., journal) => *journal == Journal::Yes,
        Op::Concat(_)
        | Op::Lower(_)
        | Op::Upper(_)
        | Op::IntToText(..)
        | Op::FloatToText(_)
        | Op::Key(_)
        | Op::Native(..)
        | Op::Derived(_)
        | Op::Column(..)
        | Op::CallGet(_)
        | Op::SetInput(..)
        | Op::ClearInput(_)
        | Op::SetAnswer(..)
        | Op::SetReply(..)
        | Op::ChangeHeaders(..)
        | Op::Emit(..)
        | Op::Delay(_)
        | Op::Mark(..)
        | Op::Mirror(_)
        | Op::Touch(..)
        | Op::TouchRead(..) => true,
        _ => false,
    }
}

/// The table of an operation; None if it has none.
pub(crate) fn table_of(op: &Op) -> Option<TableId> {
    match op {
        Op::Find(table, _)
        | Op::Match(table, ..)
        | Op::Insert(table, ..)
        | Op::Remove(table, ..)
        | Op::Touch(table, _)
        | Op::TouchRead(table, _)
        | Op::Column(table, ..)
        | Op::ColumnIsNull(table, ..)
        | Op::SetColumn(table, ..)
        | Op::SetColumnNull(table, ..)
        | Op::CountInto(table, ..)
        | Op::Count(table)
        | Op::ScanRow(table, _)
        | Op::ExpiredRow(table)
        | Op::ScanNext(table, _)
        | Op::Lock(table, _) => Some(*table),
        _ => None,
    }
}

/// Whether a comparison tests for equality, and its result for equal bytes.
pub(super) fn equality(cmp: BytesCmp) -> Option<bool> {
    match cmp {
        BytesCmp::Eq => Some(true),
        BytesCmp::Ne => Some(false),
        _ => None,
    }
}
