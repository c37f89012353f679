//! What the translation wants to know of a handler beforehand.

use super::Plan;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, BytesCmp, Function, Inst, Journal, Op, TableId, Terminator, Ty, Value};

/// Facts about a handler.
pub(super) struct Facts<'p> {
    /// The blocks that can be reached, each behind all that dominate it.
    pub(super) order: Vec<BlockId>,
    /// It may be rolled back, and has something to undo.
    pub(super) undoes: bool,
    /// It asks whether the scratch is full.
    pub(super) asks_scratch: bool,
    /// It takes the lock of the scalar variables.
    pub(super) locks_vars: bool,
    locked: Vec<TableId>,
    /// The bytes of values that are constants.
    literals: Vec<Option<&'p [u8]>>,
    /// Bytes of a column or cell that are used only where they lie.
    borrowed: Vec<bool>,
    /// Rows that are known to be there, by block.
    present: Vec<Vec<Value>>,
    /// By block: up to which instruction a roll-back may follow within the block, and whether one may behind it.
    fails: Vec<(usize, bool)>,
}

impl<'p> Facts<'p> {
    /// Looks at a handler.
    ///
    /// # Errors
    /// It names a table that the state does not have.
    pub(super) fn of(function: &'p Function, plan: &Plan<'_>) -> Result<Self, Unsupported> {
        let order = reverse_postorder(function);
        let mut facts = Self {
            undoes: false,
            asks_scratch: false,
            locks_vars: false,
            locked: Vec::new(),
            literals: vec![None; function.types.len()],
            borrowed: borrowed(function),
            present: present_rows(function, &order),
            fails: fails(function, &order),
            order,
        };
        for inst in function.blocks.iter().flat_map(|b| &b.insts) {
            if let Some(table) = table_of(&inst.op)
                && usize::from(table.0) >= plan.tables.len()
            {
                return Err(Unsupported {
                    reason: format!("the state has no table {}", table.0),
                    line: inst.line,
                });
            }
            match &inst.op {
                Op::ScratchFull => facts.asks_scratch = true,
                Op::LockVars => facts.locks_vars = true,
                Op::Lock(table, _) if !facts.locked.contains(table) => facts.locked.push(*table),
                Op::BytesConst(bytes) => {
                    if let Some(result) = inst.result {
                        facts.literals[result.0 as usize] = Some(bytes);
                    }
                }
                _ => {}
            }
        }
        facts.undoes = function.blocks.iter().zip(0..).any(|(block, id)| {
            let mut insts = block.insts.iter().enumerate();
            insts.any(|(at, inst)| has_effect(&inst.op) && facts.may_fail_after(BlockId(id), at))
        });
        Ok(facts)
    }

    pub(super) fn locked_tables(&self) -> Vec<TableId> {
        self.locked.clone()
    }

    pub(super) fn locks(&self, table: TableId) -> bool {
        self.locked.contains(&table)
    }

    /// The bytes that a value is always.
    pub(super) fn literal(&self, value: Value) -> Option<&'p [u8]> {
        self.literals[value.0 as usize]
    }

    /// Whether the bytes that a load gives may stay where they are.
    pub(super) fn is_borrowed(&self, value: Value) -> bool {
        self.borrowed[value.0 as usize]
    }

    /// Whether the handler may be rolled back behind this instruction.
    pub(super) fn may_fail_after(&self, block: BlockId, at: usize) -> bool {
        let (within, behind) = self.fails[block.0 as usize];
        behind || at < within
    }

    /// Whether a jump from one block to another goes back.
    pub(super) fn is_behind(&self, to: BlockId, from: BlockId) -> bool {
        let at = |block| self.order.iter().position(|other| *other == block);
        at(to) <= at(from)
    }

    /// Whether the row is there wherever this block runs.
    pub(super) fn is_present(&self, block: BlockId, row: Value) -> bool {
        self.present[block.0 as usize].contains(&row)
    }
}

/// Whether the operation may take room in the scratch.
pub(crate) fn asks_room(function: &Function, inst: &Inst) -> bool {
    let makes = matches!(
        inst.op,
        Op::Concat(_)
            | Op::Lower(_)
            | Op::Upper(_)
            | Op::IntToText(..)
            | Op::FloatToText(_)
            | Op::Key(_)
            | Op::SetInput(..)
            | Op::SetAnswer(..)
            | Op::SetReply(..)
            | Op::Emit(..)
            | Op::Mirror(_)
    );
    makes || loads_bytes(function, inst)
}

fn reverse_postorder(function: &Function) -> Vec<BlockId> {
    let n = function.blocks.len();
    let mut seen = vec![false; n];
    let mut order = Vec::with_capacity(n);
    // A stack of blocks with the number of their successors that have been followed: handlers may be long, and a
    // recursion as deep as they are could run out of stack.
    let mut stack = vec![(BlockId(0), 0)];
    seen[0] = true;
    while let Some((block, followed)) = stack.pop() {
        let jumps = function.blocks[block.0 as usize].end.jumps();
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

/// See [`Facts::fails`].
fn fails(function: &Function, order: &[BlockId]) -> Vec<(usize, bool)> {
    let roll_back = |inst: &Inst| inst.op == Op::RollBack;
    let mut fails: Vec<(usize, bool)> = function
        .blocks
        .iter()
        .map(|block| {
            let within = block.insts.iter().rposition(roll_back).unwrap_or(0);
            (within, matches!(block.end, Terminator::Fail { .. }))
        })
        .collect();
    // From the ends backward; again for as long as a loop brings news to its head.
    let mut changes = true;
    while changes {
        changes = false;
        for block in order.iter().rev() {
            let at = block.0 as usize;
            let behind = function.blocks[at].end.jumps().iter().any(|jump| {
                let to = jump.block.0 as usize;
                fails[to].1 || function.blocks[to].insts.iter().any(roll_back)
            });
            changes |= behind && !fails[at].1;
            fails[at].1 |= behind;
        }
    }
    fails
}

/// For each block the rows that [`Op::IsRow`] has found on all ways to it.
fn present_rows(function: &Function, order: &[BlockId]) -> Vec<Vec<Value>> {
    let mut tests: Vec<Option<Value>> = vec![None; function.types.len()];
    for inst in function.blocks.iter().flat_map(|b| &b.insts) {
        if let (Some(result), Op::IsRow(row)) = (inst.result, &inst.op) {
            tests[result.0 as usize] = Some(*row);
        }
    }
    let mut known: Vec<Option<Vec<Value>>> = vec![None; function.blocks.len()];
    known[0] = Some(Vec::new());
    for block in order {
        // All ways here but back edges have been seen; a back edge adds nothing, since its block is dominated by
        // this one.
        let here = known[block.0 as usize].clone().unwrap_or_default();
        let end = &function.blocks[block.0 as usize].end;
        for (nth, jump) in end.jumps().into_iter().enumerate() {
            let mut there = here.clone();
            if let Terminator::Branch(by, ..) = end
                && nth == 0
                && let Some(row) = tests[by.0 as usize]
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

/// Which loads of bytes need no copy: those whose every use comes in the same block, copies or only looks at the
/// bytes, and has no write of state between itself and the load.
fn borrowed(function: &Function) -> Vec<bool> {
    let mut borrowed = vec![false; function.types.len()];
    let mut home: Vec<Option<usize>> = vec![None; function.types.len()];
    for (at, block) in function.blocks.iter().enumerate() {
        // Loads of this block that no write has followed yet.
        let mut open: Vec<Value> = Vec::new();
        for inst in &block.insts {
            for operand in inst.op.operands() {
                let stays =
                    home[operand.0 as usize] == Some(at) && open.contains(&operand) && only_looks(&inst.op);
                borrowed[operand.0 as usize] &= stays;
            }
            if writes_state(&inst.op) {
                open.clear();
            }
            if let (Some(result), true) = (inst.result, loads_bytes(function, inst)) {
                open.push(result);
                home[result.0 as usize] = Some(at);
                borrowed[result.0 as usize] = true;
            }
        }
        // The text of a verdict is copied before locks are given back; what goes to another block stays.
        for operand in block.end.operands() {
            let is_text = matches!(block.end, Terminator::Abort { .. } | Terminator::Redirect { .. });
            borrowed[operand.0 as usize] &= is_text && open.contains(&operand);
        }
    }
    // Uses in blocks that come before the load in the list are left.
    for (at, block) in function.blocks.iter().enumerate() {
        let used = block.insts.iter().flat_map(|inst| inst.op.operands()).chain(block.end.operands());
        for operand in used {
            borrowed[operand.0 as usize] &= home[operand.0 as usize] == Some(at);
        }
    }
    borrowed
}

fn loads_bytes(function: &Function, inst: &Inst) -> bool {
    let is_bytes = inst.result.is_some_and(|result| function.ty(result) == Ty::Bytes);
    is_bytes && matches!(inst.op, Op::Column(..) | Op::CallGet(_))
}

/// Whether the operation is done with its bytes when it ends, and does not write while it looks at them.
fn only_looks(op: &Op) -> bool {
    matches!(
        op,
        Op::Len(_)
            | Op::BytesCompare(..)
            | Op::Like(..)
            | Op::Concat(_)
            | Op::Lower(_)
            | Op::Upper(_)
            | Op::IsIntText(..)
            | Op::TextToInt(..)
            | Op::Hash(_)
            | Op::InPrefix(..)
            | Op::Key(_)
            | Op::Find(..)
            | Op::Emit(..)
            | Op::SetAnswer(..)
            | Op::SetReply(..)
            | Op::Mirror(_)
    )
}

fn writes_state(op: &Op) -> bool {
    matches!(
        op,
        Op::CallSet(..)
            | Op::Insert(..)
            | Op::Remove(..)
            | Op::SetColumn(..)
            | Op::SetColumnNull(..)
            | Op::RollBack
    )
}

/// Whether a roll-back has something to do after the operation.
fn has_effect(op: &Op) -> bool {
    match op {
        Op::CallSet(.., journal)
        | Op::VarSet(.., journal)
        | Op::VarMerge(.., journal)
        | Op::Insert(.., journal)
        | Op::Remove(.., journal)
        | Op::SetColumn(.., journal)
        | Op::SetColumnNull(.., journal) => *journal == Journal::Yes,
        Op::Concat(_)
        | Op::Lower(_)
        | Op::Upper(_)
        | Op::IntToText(..)
        | Op::FloatToText(_)
        | Op::Key(_)
        | Op::Column(..)
        | Op::CallGet(_)
        | Op::SetInput(..)
        | Op::ClearInput(_)
        | Op::SetAnswer(..)
        | Op::SetReply(..)
        | Op::Emit(..)
        | Op::Delay(_)
        | Op::Mark(_)
        | Op::Mirror(_)
        | Op::Touch(..)
        | Op::TouchRead(..) => true,
        _ => false,
    }
}

/// The table that an operation is on.
pub(crate) fn table_of(op: &Op) -> Option<TableId> {
    match op {
        Op::Find(table, _)
        | Op::Insert(table, ..)
        | Op::Remove(table, ..)
        | Op::Touch(table, _)
        | Op::TouchRead(table, _)
        | Op::Column(table, ..)
        | Op::ColumnIsNull(table, ..)
        | Op::SetColumn(table, ..)
        | Op::SetColumnNull(table, ..)
        | Op::Count(table)
        | Op::ScanRow(table, _)
        | Op::ScanNext(table, _)
        | Op::Lock(table, _) => Some(*table),
        _ => None,
    }
}

/// Whether a comparison asks for equality, and which answer equal bytes give.
pub(super) fn equality(cmp: BytesCmp) -> Option<bool> {
    match cmp {
        BytesCmp::Eq => Some(true),
        BytesCmp::Ne => Some(false),
        _ => None,
    }
}
