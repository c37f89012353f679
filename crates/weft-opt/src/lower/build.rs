//! Builds one function: blocks, values, a pool of constants, and algebraic simplifications of known values.

use std::collections::BTreeMap;

use weft_core::abi::Fault;
use weft_core::limits::SEGMENT_STEPS_MAX;
use weft_ir::ir::{
    Block, BlockId, BoolOp, FloatCmp, FloatOp, FloatUnaryOp, Function, Inst, IntCmp, IntOp, Jump, Op, Signed,
    Terminator, Ty, Value, fault_code,
};
use weft_ir::size;

/// A function under construction.
///
/// Constants are in a pool that [`Builder::finish`] puts at the start of the entry, so each may be used anywhere.
#[derive(Debug)]
pub(super) struct Builder {
    function: Function,
    /// The current block; None after a verdict.
    at: Option<BlockId>,
    line: u32,
    constants: BTreeMap<Constant, Value>,
    known: Vec<Option<Constant>>,
    /// An operation since the last [`Op::ScratchFull`] may not have fitted in the scratch.
    scratch_used: bool,
    /// Number of steps so far, as in [`weft_ir::size`].
    steps: usize,
}

/// A constant, ordered so that pools are the same on each run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Constant {
    Bool(bool),
    Int(i64),
    /// The bits of the float.
    Float(u64),
    Bytes(Vec<u8>),
    NoRow,
}

impl Builder {
    /// Starts a function with this name, and an open entry block.
    pub(super) fn new(name: String) -> Self {
        let function = Function { name, blocks: vec![Block::default()], types: Vec::new() };
        Self {
            function,
            at: Some(BlockId(0)),
            line: 0,
            constants: BTreeMap::new(),
            known: Vec::new(),
            scratch_used: false,
            steps: 0,
        }
    }

    /// The function, in which every block has its end. None if it has more than [`SEGMENT_STEPS_MAX`] steps: then it is
    /// incomplete.
    pub(super) fn finish(mut self) -> Option<Function> {
        if self.is_over() {
            return None;
        }
        let mut pool: Vec<(Value, Constant)> = self.constants.into_iter().map(|(c, v)| (v, c)).collect();
        pool.sort_by_key(|(value, _)| *value);
        let insts = pool.into_iter().map(|(value, constant)| {
            let op = match constant {
                Constant::Bool(b) => Op::BoolConst(b),
                Constant::Int(n) => Op::IntConst(n),
                Constant::Float(bits) => Op::FloatConst(f64::from_bits(bits)),
                Constant::Bytes(bytes) => Op::BytesConst(bytes),
                Constant::NoRow => Op::NoRow,
            };
            Inst { result: Some(value), op, line: 0 }
        });
        let entry = &mut self.function.blocks[0].insts;
        entry.splice(0..0, insts);
        Some(self.function)
    }

    /// Whether it is too long. Then nothing more is added, as after a verdict.
    fn is_over(&self) -> bool {
        self.steps > SEGMENT_STEPS_MAX
    }

    // ---- blocks ----

    pub(super) fn set_line(&mut self, line: u32) {
        self.line = line;
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// Whether instructions can be added: there is no verdict yet.
    pub(super) fn is_open(&self) -> bool {
        self.at.is_some()
    }

    /// Creates a block without opening it.
    pub(super) fn block(&mut self) -> BlockId {
        self.steps += size::BLOCK_STEPS;
        self.function.blocks.push(Block::default());
        BlockId(self.function.blocks.len() as u32 - 1)
    }

    /// A block that begins a loop over at most this many rows.
    pub(super) fn scan_block(&mut self, rows_max: u64) -> BlockId {
        let block = self.block();
        self.function.blocks[block.0 as usize].scan_rows_max = Some(rows_max);
        block
    }

    /// Adds a parameter to a block.
    pub(super) fn param(&mut self, block: BlockId, ty: Ty) -> Value {
        let value = self.value(ty);
        self.function.blocks[block.0 as usize].params.push(value);
        value
    }

    /// Continues in this block.
    pub(super) fn switch(&mut self, block: BlockId) {
        self.at = Some(block).filter(|_| !self.is_over());
    }

    /// The current block; None after a verdict.
    pub(super) fn here(&self) -> Option<BlockId> {
        self.at
    }

    /// Ends the open block. Ignored if no block is open.
    pub(super) fn end(&mut self, end: Terminator) {
        if let Some(at) = self.at.take() {
            self.function.blocks[at.0 as usize].end = end;
        }
    }

    /// A block with nothing but this end. The current block stays the same.
    pub(super) fn block_that(&mut self, end: Terminator) -> BlockId {
        let block = self.block();
        self.function.blocks[block.0 as usize].end = end;
        block
    }

    pub(super) fn jump(&mut self, block: BlockId, args: Vec<Value>) {
        self.end(Terminator::Jump(Jump { block, args }));
    }

    /// Branches to `yes` if true, else to `no`; neither has parameters.
    pub(super) fn branch(&mut self, by: Value, yes: BlockId, no: BlockId) {
        self.branch_with(by, (yes, Vec::new()), (no, Vec::new()));
    }

    /// Branches with arguments for the blocks. A known condition becomes a jump.
    pub(super) fn branch_with(&mut self, by: Value, yes: (BlockId, Vec<Value>), no: (BlockId, Vec<Value>)) {
        let jump = |(block, args)| Jump { block, args };
        match self.known_bool(by) {
            Some(true) => self.end(Terminator::Jump(jump(yes))),
            Some(false) => self.end(Terminator::Jump(jump(no))),
            None => self.end(Terminator::Branch(by, jump(yes), jump(no))),
        }
    }

    // ---- instructions ----

    /// An instruction with a result.
    pub(super) fn get(&mut self, op: Op, ty: Ty) -> Value {
        let value = self.value(ty);
        self.push(Inst { result: Some(value), op, line: self.line }, ty);
        value
    }

    /// An instruction without a result.
    pub(super) fn act(&mut self, op: Op) {
        self.push(Inst { result: None, op, line: self.line }, Ty::Bool);
    }

    /// Appends an instruction to the open block, and records whether it may use scratch.
    fn push(&mut self, inst: Inst, ty: Ty) {
        let result = inst.result.map(|_| ty);
        self.scratch_used |= inst.op.takes_scratch(result, |value| self.ty(value));
        // Code after a verdict is unreachable, so nothing is lost.
        if let Some(at) = self.at {
            self.steps += size::of_op(&inst.op);
            self.function.blocks[at.0 as usize].insts.push(inst);
            self.at = self.at.filter(|_| !self.is_over());
        }
    }

    /// Whether an operation since the last call may not have fitted in the scratch.
    pub(super) fn take_scratch_used(&mut self) -> bool {
        core::mem::take(&mut self.scratch_used)
    }

    pub(super) fn set_scratch_used(&mut self) {
        self.scratch_used = true;
    }

    /// Creates a value of this type.
    fn value(&mut self, ty: Ty) -> Value {
        self.function.types.push(ty);
        self.known.push(None);
        Value(self.function.types.len() as u32 - 1)
    }

    pub(super) fn ty(&self, value: Value) -> Ty {
        self.function.ty(value)
    }

    // ---- constants ----

    /// Returns the value of a constant, and creates it on first use.
    fn constant(&mut self, constant: Constant, ty: Ty) -> Value {
        if let Some(value) = self.constants.get(&constant) {
            return *value;
        }
        let value = self.value(ty);
        self.known[value.0 as usize] = Some(constant.clone());
        self.constants.insert(constant, value);
        value
    }

    pub(super) fn bool(&mut self, b: bool) -> Value {
        self.constant(Constant::Bool(b), Ty::Bool)
    }

    pub(super) fn int(&mut self, n: i64) -> Value {
        self.constant(Constant::Int(n), Ty::Int)
    }

    pub(super) fn float(&mut self, x: f64) -> Value {
        self.constant(Constant::Float(x.to_bits()), Ty::Float)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Value {
        self.constant(Constant::Bytes(bytes.to_vec()), Ty::Bytes)
    }

    pub(super) fn no_row(&mut self) -> Value {
        self.constant(Constant::NoRow, Ty::Row)
    }

    pub(super) fn fault(&mut self, fault: Fault) -> Value {
        self.int(fault_code(fault))
    }

    /// Returns a placeholder value of a type.
    pub(super) fn zero(&mut self, ty: Ty) -> Value {
        match ty {
            Ty::Bool => self.bool(false),
            Ty::Int => self.int(0),
            Ty::Float => self.float(0.0),
            Ty::Bytes => self.bytes(b""),
            Ty::Row => self.no_row(),
        }
    }

    /// Returns the constant that a value is, if known.
    pub(super) fn known_bool(&self, value: Value) -> Option<bool> {
        match &self.known[value.0 as usize] {
            Some(Constant::Bool(b)) => Some(*b),
            _ => None,
        }
    }

    /// Returns the constant that a value is, if known.
    pub(super) fn known_int(&self, value: Value) -> Option<i64> {
        match &self.known[value.0 as usize] {
            Some(Constant::Int(n)) => Some(*n),
            _ => None,
        }
    }

    /// Returns the constant that a value is, if known.
    pub(super) fn known_float(&self, value: Value) -> Option<f64> {
        match &self.known[value.0 as usize] {
            Some(Constant::Float(bits)) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    /// Returns the constant that a value is, if known.
    pub(super) fn known_bytes(&self, value: Value) -> Option<&[u8]> {
        match &self.known[value.0 as usize] {
            Some(Constant::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    // ---- booleans ----

    /// Emits NOT, unless the operand is known.
    pub(super) fn not(&mut self, a: Value) -> Value {
        match self.known_bool(a) {
            Some(b) => self.bool(!b),
            None => self.get(Op::Not(a), Ty::Bool),
        }
    }

    /// Emits AND, unless an operand is known.
    pub(super) fn and(&mut self, a: Value, b: Value) -> Value {
        match (self.known_bool(a), self.known_bool(b)) {
            (Some(false), _) | (_, Some(true)) => a,
            (Some(true), _) | (_, Some(false)) => b,
            _ if a == b => a,
            _ => self.get(Op::BoolBinary(BoolOp::And, a, b), Ty::Bool),
        }
    }

    /// Emits OR, unless an operand is known.
    pub(super) fn or(&mut self, a: Value, b: Value) -> Value {
        match (self.known_bool(a), self.known_bool(b)) {
            (Some(true), _) | (_, Some(false)) => a,
            (Some(false), _) | (_, Some(true)) => b,
            _ if a == b => a,
            _ => self.get(Op::BoolBinary(BoolOp::Or, a, b), Ty::Bool),
        }
    }

    pub(super) fn xor(&mut self, a: Value, b: Value) -> Value {
        self.get(Op::BoolBinary(BoolOp::Xor, a, b), Ty::Bool)
    }

    /// Emits a selection, unless the condition is known or both values are the same.
    pub(super) fn select(&mut self, by: Value, yes: Value, no: Value) -> Value {
        match self.known_bool(by) {
            Some(true) => yes,
            Some(false) => no,
            None if yes == no => yes,
            None => {
                let ty = self.ty(yes);
                self.get(Op::Select(by, yes, no), ty)
            }
        }
    }

    // ---- numbers ----

    /// Emits an integer operation. Folds constants and neutral operands.
    pub(super) fn int_binary(&mut self, op: IntOp, a: Value, b: Value) -> Value {
        if let (Some(a), Some(b)) = (self.known_int(a), self.known_int(b)) {
            let folded = match op {
                IntOp::Add => Some(a.wrapping_add(b)),
                IntOp::Sub => Some(a.wrapping_sub(b)),
                IntOp::SMin => Some(a.min(b)),
                IntOp::SMax => Some(a.max(b)),
                IntOp::And => Some(a & b),
                IntOp::Or => Some(a | b),
                IntOp::Shr if (0..64).contains(&b) => Some((a as u64 >> b) as i64),
                _ => None,
            };
            if let Some(n) = folded {
                return self.int(n);
            }
        }
        match (op, self.known_int(a), self.known_int(b)) {
            (IntOp::Add | IntOp::Sub | IntOp::Or | IntOp::Xor | IntOp::Shl | IntOp::Shr, _, Some(0)) => a,
            (IntOp::Add | IntOp::Or | IntOp::Xor, Some(0), _) => b,
            _ => self.get(Op::IntBinary(op, a, b), Ty::Int),
        }
    }

    pub(super) fn overflows(&mut self, op: IntOp, signed: Signed, a: Value, b: Value) -> Value {
        self.get(Op::Overflows(op, signed, a, b), Ty::Bool)
    }

    /// Emits a comparison of integers. Folds constants.
    pub(super) fn int_compare(&mut self, op: IntCmp, a: Value, b: Value) -> Value {
        if let (Some(a), Some(b)) = (self.known_int(a), self.known_int(b)) {
            return self.bool(match op {
                IntCmp::Eq => a == b,
                IntCmp::Ne => a != b,
                IntCmp::SLt => a < b,
                IntCmp::SLe => a <= b,
                IntCmp::ULt => (a as u64) < b as u64,
                IntCmp::ULe => a as u64 <= b as u64,
            });
        }
        self.get(Op::IntCompare(op, a, b), Ty::Bool)
    }

    /// Emits a range test, unless the operand is known.
    pub(super) fn in_range(&mut self, a: Value, low: i64, high: i64) -> Value {
        match self.known_int(a) {
            Some(n) => self.bool((low..=high).contains(&n)),
            None => self.get(Op::InRange(a, low, high), Ty::Bool),
        }
    }

    /// Emits a float operation. Leaves out factors and divisors of 1.
    pub(super) fn float_binary(&mut self, op: FloatOp, a: Value, b: Value) -> Value {
        let is_one = |value| self.known_float(value) == Some(1.0);
        match op {
            FloatOp::Mul if is_one(a) => return b,
            FloatOp::Mul | FloatOp::Div if is_one(b) => return a,
            _ => {}
        }
        self.get(Op::FloatBinary(op, a, b), Ty::Float)
    }

    pub(super) fn float_unary(&mut self, op: FloatUnaryOp, a: Value) -> Value {
        self.get(Op::FloatUnary(op, a), Ty::Float)
    }

    /// Emits a comparison of floats. Folds constants.
    pub(super) fn float_compare(&mut self, op: FloatCmp, a: Value, b: Value) -> Value {
        if let (Some(a), Some(b)) = (self.known_float(a), self.known_float(b)) {
            return self.bool(match op {
                FloatCmp::Eq => a == b,
                FloatCmp::Ne => a.partial_cmp(&b).is_some_and(core::cmp::Ordering::is_ne),
                FloatCmp::Lt => a < b,
                FloatCmp::Le => a <= b,
            });
        }
        self.get(Op::FloatCompare(op, a, b), Ty::Bool)
    }

    /// The length in bytes.
    pub(super) fn len(&mut self, a: Value) -> Value {
        match self.known_bytes(a).map(<[u8]>::len) {
            Some(n) => self.int(n as i64),
            None => self.get(Op::Len(a), Ty::Int),
        }
    }

    /// Emits the test whether a row exists, unless it is known to be missing.
    pub(super) fn is_row(&mut self, row: Value) -> Value {
        match self.known[row.0 as usize] {
            Some(Constant::NoRow) => self.bool(false),
            _ => self.get(Op::IsRow(row), Ty::Bool),
        }
    }
}
