//! Generates random well-formed functions, to test back ends and passes.

mod ops;

use super::{Rng, new_block, values};
use crate::ir::*;
use crate::program::{ChainProgram, Realisation};
use crate::verify::{Handler, key_ty};
use std::collections::BTreeSet;
use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::types::{Repr, Type};

/// Maximum nesting of branches and scans.
const DEPTH_MAX: usize = 3;
/// Number of blocks after which no more branches follow.
const BLOCKS_MAX: usize = 24;

/// A random handler.
///
/// `removed_from` is the table of a TIMEOUT.
pub(super) fn generate(
    rng: &mut Rng,
    chain: &ChainProgram,
    handler: Handler,
    removed_from: Option<TableId>,
    name: &str,
) -> Function {
    let may_fail = rng.percent(70);
    let mut function = Function { name: name.into(), ..Function::default() };
    let block = new_block(&mut function);
    let mut builder = Builder {
        rng,
        chain,
        handler,
        function,
        block,
        values: Vec::new(),
        rows: Vec::new(),
        may_fail,
        killed: BTreeSet::new(),
        rolled_back: false,
        loops: 0,
        line: 1,
    };
    if let Some(table) = removed_from {
        builder.expired_row(table);
    }
    if !builder.body(0) {
        builder.verdict();
    }
    assert_eq!(builder.loops, 0, "all loops are closed");
    builder.function
}

struct Builder<'a> {
    rng: &'a mut Rng,
    chain: &'a ChainProgram,
    handler: Handler,
    function: Function,
    /// The current block.
    block: usize,
    /// The values in scope, except rows.
    values: Vec<Value>,
    /// The rows in scope, with their tables.
    rows: Vec<(Value, TableId)>,
    /// Whether all writes are journalled, so that RollBack and Fail may follow.
    may_fail: bool,
    /// Tables with an Insert or Remove: earlier rows must not be used.
    killed: BTreeSet<TableId>,
    rolled_back: bool,
    loops: usize,
    line: u32,
}

/// Bytes for keys; for types with a usual length, most have that length.
fn key_bytes(ty: Type) -> &'static [&'static [u8]] {
    match ty {
        Type::IpAddr => &[&[10, 0, 0, 1], &[10, 0, 0, 2], &[0xfe; 16]],
        Type::Mac => &[&[2, 0, 0, 0, 0, 1], &[2, 0, 0, 0, 0, 2]],
        _ => &[b"a", b"bob", b"c:"],
    }
}

/// The values in scope, to restore where paths split.
struct Scope {
    values: Vec<Value>,
    rows: Vec<(Value, TableId)>,
}

impl Builder<'_> {
    /// Adds random steps. True if a verdict ended the block.
    fn body(&mut self, depth: usize) -> bool {
        assert!(depth <= DEPTH_MAX, "nesting is limited");
        let n_steps = 2 + self.rng.below(10);
        for _ in 0..n_steps {
            let branches = depth < DEPTH_MAX && self.function.blocks.len() < BLOCKS_MAX;
            match self.rng.below(20) {
                0 | 1 if branches => {
                    if self.diamond(depth) {
                        return true;
                    }
                }
                2 if branches => self.scan(depth),
                3 | 4 if branches => self.upsert(),
                5 | 6 => self.show(),
                _ => self.step(),
            }
        }
        self.show();
        false
    }

    /// Emits the newest value of each type, to make results visible.
    fn show(&mut self) {
        let sink = &self.chain.sinks[0];
        let newest = |builder: &mut Self, ty| {
            let there = builder.values.iter().copied().rfind(|v| builder.function.ty(*v) == ty);
            there.unwrap_or_else(|| builder.any(ty))
        };
        let cells = sink.columns.iter().map(|column| (newest(self, Ty::of(column.ty)), None)).collect();
        self.effect(Op::Emit(SinkId(0), cells));
    }

    /// Copies the usable values and rows.
    fn scope(&self) -> Scope {
        Scope { values: self.values.clone(), rows: self.rows.clone() }
    }

    /// Restores the scope, without rows that have become stale.
    fn restore(&mut self, scope: &Scope) {
        self.values.clone_from(&scope.values);
        self.rows.clone_from(&scope.rows);
        let rolled_back = self.rolled_back;
        self.rows.retain(|(_, table)| !rolled_back && !self.killed.contains(table));
        if rolled_back {
            self.forget_bytes();
        }
    }

    /// Removes all bytes from the usable values: a roll-back may have freed them.
    fn forget_bytes(&mut self) {
        let types = &self.function.types;
        self.values.retain(|v| types[v.0 as usize] != Ty::Bytes);
    }

    fn new_value(&mut self, ty: Ty) -> Value {
        self.function.types.push(ty);
        Value(self.function.types.len() as u32 - 1)
    }

    /// Adds an instruction to the current block, often with a source line.
    fn push(&mut self, result: Option<Value>, op: Op) {
        self.line += self.rng.below(2) as u32;
        let line = if self.rng.percent(80) { self.line } else { 0 };
        self.function.blocks[self.block].insts.push(Inst { result, op, line });
    }

    /// Adds an operation with a result, and returns the result.
    fn give(&mut self, ty: Ty, op: Op) -> Value {
        let value = self.new_value(ty);
        self.push(Some(value), op);
        if ty != Ty::Row {
            self.values.push(value);
        }
        value
    }

    fn effect(&mut self, op: Op) {
        self.push(None, op);
    }

    /// Chooses a value of the type, likely an existing one.
    fn any(&mut self, ty: Ty) -> Value {
        let there: Vec<Value> = self.values.iter().copied().filter(|v| self.function.ty(*v) == ty).collect();
        if !there.is_empty() && self.rng.percent(75) {
            return self.rng.pick(&there);
        }
        let op = match ty {
            Ty::Bool => Op::BoolConst(self.rng.percent(50)),
            Ty::Int => Op::IntConst(values::int(self.rng)),
            Ty::Float => Op::FloatConst(values::float(self.rng)),
            Ty::Bytes => Op::BytesConst(values::bytes(self.rng)),
            Ty::Row => Op::NoRow,
        };
        self.give(ty, op)
    }

    fn constant(&mut self, bytes: &[u8]) -> Value {
        self.give(Ty::Bytes, Op::BytesConst(bytes.to_vec()))
    }

    /// Generates a number that is likely an offset in a short text.
    fn position(&mut self) -> Value {
        if self.rng.percent(40) {
            return self.any(Ty::Int);
        }
        let n = self.rng.below(12) as i64 - 1;
        self.give(Ty::Int, Op::IntConst(n))
    }

    fn any_of(&mut self, ty: Type) -> Value {
        self.any(Ty::of(ty))
    }

    /// Chooses a value of a type that is named in mnemonics.
    fn named<T: Named>(&mut self) -> T {
        self.rng.pick(T::NAMES).1
    }

    /// Chooses whether a write is journalled: always if the handler may fail.
    fn journal(&mut self) -> Journal {
        match self.may_fail {
            true => Journal::Yes,
            false => self.rng.pick(&[Journal::No, Journal::No, Journal::Yes]),
        }
    }

    fn table(&mut self) -> TableId {
        TableId(self.rng.below(self.chain.tables.len()) as u16)
    }

    fn is_writable(&self, table: TableId) -> bool {
        self.chain.tables[usize::from(table.0)].realisation != Realisation::Replicated
    }

    /// Generates a key from a small set, so that rows are found.
    fn key(&mut self, table: TableId) -> Value {
        let spec = &self.chain.tables[usize::from(table.0)].spec;
        let parts: Vec<Value> = spec.key.iter().map(|column| self.key_part(column.ty)).collect();
        match parts.as_slice() {
            [only] => *only,
            _ => self.give(Ty::Bytes, Op::Key(parts)),
        }
    }

    /// Generates a key part of this type, mostly a constant that keys in the tables share.
    fn key_part(&mut self, ty: Type) -> Value {
        if ty.repr() != Repr::Float && self.rng.percent(20) {
            return self.any_of(ty);
        }
        // Only constant floats: the bits of a computed NaN differ between machines.
        let op = match ty.repr() {
            Repr::Bool => Op::BoolConst(self.rng.percent(50)),
            Repr::Int => Op::IntConst(self.rng.below(5) as i64),
            Repr::Float => Op::FloatConst(self.rng.pick(&[0.0, 1.0, -2.5])),
            Repr::Bytes => Op::BytesConst(self.rng.pick(key_bytes(ty)).to_vec()),
        };
        self.give(Ty::of(ty), op)
    }

    /// Chooses a row of the table: an existing one, or the result of a look-up.
    fn row(&mut self, table: TableId) -> Value {
        let there: Vec<Value> = self.rows.iter().filter(|(_, t)| *t == table).map(|(v, _)| *v).collect();
        if !there.is_empty() && self.rng.percent(80) {
            return self.rng.pick(&there);
        }
        if self.rng.percent(5) {
            return self.give(Ty::Row, Op::NoRow);
        }
        let key = self.key(table);
        let row = self.give(Ty::Row, Op::Find(table, key));
        self.rows.push((row, table));
        row
    }

    /// Chooses a column of a table (also a key column if `keys_too`); returns it with its type and nullability.
    fn column(&mut self, table: TableId, keys_too: bool) -> (ColumnId, Type, bool) {
        let spec = &self.chain.tables[usize::from(table.0)].spec;
        let first = if keys_too { 0 } else { spec.key.len() };
        let index = first + self.rng.below(spec.key.len() + spec.columns.len() - first);
        let column = spec.key.iter().chain(&spec.columns).nth(index).expect("the index is below the number");
        (ColumnId(index as u16), column.ty, column.nullable)
    }

    /// Removes the rows of a table from the usable ones: an insertion or removal makes them stale.
    fn kill(&mut self, table: TableId) {
        self.rows.retain(|(_, t)| *t != table);
        self.killed.insert(table);
    }

    /// Sets the terminator of a block.
    fn set_end(&mut self, block: usize, end: Terminator) {
        self.function.blocks[block].end = end;
    }

    /// Adds a block and makes it the current one; returns its index.
    fn enter(&mut self) -> usize {
        self.block = new_block(&mut self.function);
        self.block
    }

    /// Ends the block with a random verdict that the handler allows.
    fn verdict(&mut self) {
        let line = self.line;
        let is_timed = self.handler.is_timed();
        let end = match self.rng.below(16) {
            0 | 1 if self.may_fail => {
                let fault = match self.rng.percent(80) {
                    true => Op::IntConst(fault_code(self.rng.pick(Fault::ALL))),
                    false => Op::IntConst(values::int(self.rng)),
                };
                Terminator::Fail { fault: self.give(Ty::Int, fault), line }
            }
            _ if is_timed => Terminator::Forward,
            2 => Terminator::Drop { line },
            3 | 4 => {
                let status = match self.rng.percent(60) {
                    true => StatusOperand::Known(self.rng.pick(Status::ALL)),
                    false => StatusOperand::Computed(self.any(Ty::Int)),
                };
                let text = if self.rng.percent(60) { Some(self.any(Ty::Bytes)) } else { None };
                Terminator::Abort { status, text, line }
            }
            5 => Terminator::Reply { line },
            6 | 7 => Terminator::Redirect { to: self.any(Ty::Bytes), line },
            8 => Terminator::Skip,
            9 => Terminator::Steer { line },
            _ => Terminator::Forward,
        };
        self.set_end(self.block, end);
    }

    /// Adds two paths that may meet again; true if they do not.
    fn diamond(&mut self, depth: usize) -> bool {
        let by = self.any(Ty::Bool);
        let fork = self.block;
        let before = self.scope();
        let types: Vec<Ty> = (0..self.rng.below(3))
            .map(|_| self.rng.pick(&[Ty::Bool, Ty::Int, Ty::Float, Ty::Bytes, Ty::Row]))
            .collect();
        let of = self.table();
        let mut ways = Vec::new();
        let mut open = Vec::new();
        for _ in 0..2 {
            self.restore(&before);
            ways.push(self.enter());
            if self.body(depth + 1) {
                continue;
            }
            if self.rng.percent(25) {
                self.verdict();
                continue;
            }
            let args = types.iter().map(|&ty| if ty == Ty::Row { self.row(of) } else { self.any(ty) });
            let args: Vec<Value> = args.collect();
            open.push((self.block, args));
        }
        let jump = |block: usize, args: Vec<Value>| Jump { block: BlockId(block as u32), args };
        self.set_end(fork, Terminator::Branch(by, jump(ways[0], Vec::new()), jump(ways[1], Vec::new())));
        if open.is_empty() {
            return true;
        }
        self.restore(&before);
        let join = self.enter();
        for ty in types {
            let param = self.new_value(ty);
            self.function.blocks[join].params.push(param);
            match ty {
                Ty::Row => self.rows.push((param, of)),
                _ => self.values.push(param),
            }
        }
        for (block, args) in open {
            self.set_end(block, Terminator::Jump(jump(join, args)));
        }
        false
    }

    /// Adds a look-up of a row, and its insertion if there is none.
    fn upsert(&mut self) {
        let table = self.table();
        if !self.is_writable(table) {
            return self.step();
        }
        let (key, journal) = (self.key(table), self.journal());
        assert_eq!(self.function.ty(key), key_ty(&self.chain.tables[usize::from(table.0)].spec));
        let found = self.give(Ty::Row, Op::Find(table, key));
        let is_there = self.give(Ty::Bool, Op::IsRow(found));
        let fork = self.block;
        let insertion = self.enter();
        let inserted = self.new_value(Ty::Row);
        self.push(Some(inserted), Op::Insert(table, key, journal));
        self.kill(table);
        let join = self.enter();
        let row = self.new_value(Ty::Row);
        self.function.blocks[join].params.push(row);
        self.rows.push((row, table));
        let jump = |block: usize, args: &[Value]| Jump { block: BlockId(block as u32), args: args.to_vec() };
        self.set_end(fork, Terminator::Branch(is_there, jump(join, &[found]), jump(insertion, &[])));
        self.set_end(insertion, Terminator::Jump(jump(join, &[inserted])));
        if self.rng.percent(40) {
            self.effect(Op::Touch(table, row));
        }
    }

    /// Adds reads of the expired row.
    fn expired_row(&mut self, table: TableId) {
        let row = self.give(Ty::Row, Op::ExpiredRow(table));
        for _ in 0..1 + self.rng.below(4) {
            let (column, ty, _) = self.column(table, true);
            self.give(Ty::of(ty), Op::Column(table, row, column));
            if self.rng.percent(40) {
                self.give(Ty::Bool, Op::ColumnIsNull(table, row, column));
            }
        }
        self.give(Ty::Bool, Op::IsRow(row));
    }

    /// Adds a loop that visits some rows of a table.
    fn scan(&mut self, depth: usize) {
        let table = self.table();
        let rows_max = self.rng.pick(&[1, 2, 5, 40]);
        let jump = |block: usize, args: &[Value]| Jump { block: BlockId(block as u32), args: args.to_vec() };

        let zero = self.give(Ty::Int, Op::IntConst(0));
        let before = self.block;
        let head = self.enter();
        self.function.blocks[head].scan_rows_max = Some(rows_max);
        let (cursor, n) = (self.new_value(Ty::Int), self.new_value(Ty::Int));
        self.function.blocks[head].params.extend([cursor, n]);
        self.values.extend([cursor, n]);
        self.set_end(before, Terminator::Jump(jump(head, &[zero, zero])));
        let row = self.give(Ty::Row, Op::ScanRow(table, cursor));
        let is_row = self.give(Ty::Bool, Op::IsRow(row));
        let max = self.give(Ty::Int, Op::IntConst(rows_max as i64));
        let goes_on = self.give(Ty::Bool, Op::IntCompare(IntCmp::ULt, n, max));
        let by = self.give(Ty::Bool, Op::BoolBinary(BoolOp::And, is_row, goes_on));
        let outside = self.scope();

        let visit = self.enter();
        self.loops += 1;
        // A row from before the scan could become stale in a later iteration.
        self.rows = vec![(row, table)];
        let next = self.give(Ty::Int, Op::ScanNext(table, row));
        let one = self.give(Ty::Int, Op::IntConst(1));
        let counted = self.give(Ty::Int, Op::IntBinary(IntOp::Add, n, one));
        if !self.body(depth + 1) {
            self.set_end(self.block, Terminator::Jump(jump(head, &[next, counted])));
        }
        self.loops -= 1;

        self.restore(&outside);
        let exit = self.enter();
        self.set_end(head, Terminator::Branch(by, jump(visit, &[]), jump(exit, &[])));
    }
}
