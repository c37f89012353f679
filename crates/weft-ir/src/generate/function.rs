//! Generates random well-formed functions, to test back ends and passes.

use super::{Rng, new_block};
use crate::ir::*;
use crate::program::{ChainProgram, Direction, Input, InputLocation, Realisation};
use crate::verify::{Handler, key_ty};
use std::collections::BTreeSet;
use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::marks::Mark;
use weft_core::native::Param;
use weft_core::types::{Repr, Type};

/// Maximum nesting of branches and scans.
const DEPTH_MAX: usize = 3;
/// Number of blocks after which no more branches follow.
const BLOCKS_MAX: usize = 24;

/// Generates an integer, likely an edge value.
pub(super) fn int(rng: &mut Rng) -> i64 {
    let edges =
        [0, 1, 2, 3, -1, -2, 7, 63, 64, 255, 1000, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 53, 1 << 32];
    if rng.percent(85) { rng.pick(&edges) } else { rng.bits() as i64 }
}

/// Generates a float, likely an edge value.
pub(super) fn float(rng: &mut Rng) -> f64 {
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    let edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -0.7,
        0.1,
        1e15,
        1e16,
        -1e300,
        1e-300,
        5e-324,
        f64::MAX,
        TWO_POW_63,
        -TWO_POW_63,
        2.0 * TWO_POW_63,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    if rng.percent(85) { rng.pick(&edges) } else { f64::from_bits(rng.bits()) }
}

/// Generates bytes: texts, numbers, addresses, prefixes, and invalid UTF-8.
pub(super) fn bytes(rng: &mut Rng) -> Vec<u8> {
    const SOME: &[&[u8]] = &[
        b"",
        b"a",
        b"bob",
        b"Bob Q",
        b"abcab",
        b"0",
        b"-7",
        b"007",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"18446744073709551615",
        b"18446744073709551616",
        b"+1",
        b"-",
        "gr\u{fc}n \u{4e2d}\u{1f600}".as_bytes(),
        b"\xc3",
        b"\xffx\xc3\xbc",
        b"\x0a\x01\x02\x03",
        b"\x0a\x01\x00\x00\x10",
        b"\x0a\x01\x02\x03\x20",
        b"\x0a\x00\x00\x00\x00",
        b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01",
        b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\0\x21",
        b"exactly 8",
        b"16 bytes exactly",
    ];
    match rng.below(40) {
        0 => vec![b'z'; rng.pick(&[4000, 30_000])],
        1 => (0..rng.below(30)).map(|_| rng.bits() as u8).collect(),
        _ => rng.pick(SOME).to_vec(),
    }
}

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
            Ty::Int => Op::IntConst(int(self.rng)),
            Ty::Float => Op::FloatConst(float(self.rng)),
            Ty::Bytes => Op::BytesConst(bytes(self.rng)),
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

    /// Adds one random operation, or a few that belong together.
    fn step(&mut self) {
        match self.rng.below(10) {
            0..3 => self.number_op(),
            3 if self.rng.percent(15) => self.native(),
            3 => self.text_op(),
            4 | 5 => self.tuple_op(),
            6 => self.scalar_op(),
            7 | 8 => self.table_op(),
            _ => self.out_op(),
        }
    }

    /// Adds a random operation on numbers or booleans.
    fn number_op(&mut self) {
        use Ty::{Bool, Bytes, Float, Int};
        let signed = self.rng.pick(&[Signed::Yes, Signed::No]);
        match self.rng.below(16) {
            0 | 1 => {
                let (op, a, b) = (self.rng.pick(INT_OPS), self.any(Int), self.any(Int));
                self.give(Int, Op::IntBinary(op, a, b));
            }
            2 => {
                let op = self.rng.pick(&[IntOp::Add, IntOp::Sub, IntOp::Mul, IntOp::SDiv]);
                let signed = if op == IntOp::SDiv { Signed::Yes } else { signed };
                let (mut a, mut b) = (self.any(Int), self.any(Int));
                if self.rng.percent(40) {
                    let edges = [(i64::MIN, -1), (i64::MIN, 1), (i64::MAX, 1), (i64::MAX, 2), (0, 1)];
                    let edge = self.rng.pick(&edges);
                    a = self.give(Int, Op::IntConst(edge.0));
                    b = self.give(Int, Op::IntConst(edge.1));
                }
                self.give(Bool, Op::Overflows(op, signed, a, b));
            }
            3 => {
                let ops = [IntCmp::Eq, IntCmp::Ne, IntCmp::SLt, IntCmp::SLe, IntCmp::ULt, IntCmp::ULe];
                let (op, a, b) = (self.rng.pick(&ops), self.any(Int), self.any(Int));
                self.give(Bool, Op::IntCompare(op, a, b));
            }
            4 => {
                let (a, low, high) = (self.any(Int), int(self.rng), int(self.rng));
                self.give(Bool, Op::InRange(a, low, high));
            }
            5 | 6 => {
                let (op, a, b) = (self.rng.pick(FLOAT_OPS), self.any(Float), self.any(Float));
                self.give(Float, Op::FloatBinary(op, a, b));
            }
            7 => {
                let (op, a) = (self.rng.pick(FLOAT_UNARY), self.any(Float));
                self.give(Float, Op::FloatUnary(op, a));
            }
            8 => {
                let ops = [FloatCmp::Eq, FloatCmp::Ne, FloatCmp::Lt, FloatCmp::Le];
                let (op, a, b) = (self.rng.pick(&ops), self.any(Float), self.any(Float));
                self.give(Bool, Op::FloatCompare(op, a, b));
            }
            9 => {
                let a = self.any(Int);
                self.give(Float, Op::IntToFloat(signed, a));
            }
            10 => {
                let a = self.any(Float);
                match self.rng.percent(50) {
                    true => self.give(Int, Op::FloatToInt(signed, a)),
                    false => self.give(Bool, Op::FloatFits(signed, a)),
                };
            }
            11 => {
                let a = self.any(Bool);
                match self.rng.percent(50) {
                    true => self.give(Int, Op::BoolToInt(a)),
                    false => self.give(Bool, Op::Not(a)),
                };
            }
            12 => {
                let op = self.rng.pick(&[BoolOp::And, BoolOp::Or, BoolOp::Xor]);
                let (a, b) = (self.any(Bool), self.any(Bool));
                self.give(Bool, Op::BoolBinary(op, a, b));
            }
            13 => {
                let ty = self.rng.pick(&[Bool, Int, Float, Bytes]);
                let (by, a, b) = (self.any(Bool), self.any(ty), self.any(ty));
                self.give(ty, Op::Select(by, a, b));
            }
            14 => {
                let table = self.table();
                let (by, a, b) = (self.any(Bool), self.row(table), self.row(table));
                let row = self.give(Ty::Row, Op::Select(by, a, b));
                self.rows.push((row, table));
            }
            _ => {
                let (a, b) = (self.any(Int), self.any(Int));
                self.give(Int, Op::HashMix(a, b));
            }
        }
    }

    /// Adds a random operation on bytes.
    fn text_op(&mut self) {
        use Ty::{Bool, Bytes, Float, Int};
        let signed = self.rng.pick(&[Signed::Yes, Signed::No]);
        let a = self.any(Bytes);
        match self.rng.below(18) {
            0 => self.give(Int, Op::Len(a)),
            1 | 2 => {
                let (op, b) = (self.rng.pick(BYTES_COMPARES), self.any(Bytes));
                self.give(Bool, Op::BytesCompare(op, a, b))
            }
            3 => {
                let patterns =
                    ["%", "", "b%", "%b%", "_o_", "%\u{fc}_", "__", "a%b%", "%__%", "%___", "\u{4e2d}%"];
                let pattern = self.rng.pick(&patterns).as_bytes().to_vec();
                let pattern = self.give(Bytes, Op::BytesConst(pattern));
                self.give(Bool, Op::BytesCompare(BytesCmp::Like, a, pattern))
            }
            4 | 5 => {
                let parts = (0..self.rng.below(5)).map(|_| self.any(Bytes)).collect();
                self.give(Bytes, Op::Concat(parts))
            }
            6 => match self.rng.percent(50) {
                true => self.give(Bytes, Op::Lower(a)),
                false => {
                    let at = self.rng.below(8) as u8;
                    self.give(Int, Op::ByteAt(a, at))
                }
            },
            16 => {
                let at = self.position();
                let word = self.give(Int, Op::WordAt(a, at));
                self.give(Float, Op::FloatOfBits(word))
            }
            17 => {
                let (at, len) = (self.position(), self.position());
                self.give(Bytes, Op::Part(a, at, len))
            }
            7 => self.give(Bytes, Op::Upper(a)),
            8 => {
                let (from, count) = (self.position(), self.position());
                let text = match self.rng.percent(50) {
                    true => self.constant("a\u{fc}\u{4e2d}\u{1f980}b".as_bytes()),
                    false => a,
                };
                self.give(Bytes, Op::Slice(text, from, count))
            }
            9 => {
                if self.rng.percent(30) {
                    let big = self.constant(&[b'z'; 30_000]);
                    self.give(Bytes, Op::Concat(vec![big, big, a]));
                    self.give(Bytes, Op::Upper(big));
                }
                self.give(Bool, Op::ScratchFull)
            }
            10 => {
                let of = if self.rng.percent(50) { a } else { self.any(Int) };
                self.give(Int, Op::Hash(of))
            }
            11 => {
                // Networks of both lengths, with every prefix length and beyond.
                let n = if self.rng.percent(50) { 4 } else { 16 };
                let address = vec![0x2b; n];
                let bits = self.rng.below(8 * n + 2) as u8;
                let mut prefix = address.clone();
                let changed = self.rng.below(n);
                prefix[changed] ^= 1 << self.rng.below(8);
                prefix.push(bits);
                match self.rng.below(4) {
                    0 => {
                        let b = self.any(Bytes);
                        self.give(Bool, Op::InPrefix(a, b))
                    }
                    1 => {
                        let (a, b) = (self.constant(&address), self.constant(&prefix));
                        self.give(Bool, Op::InPrefix(a, b))
                    }
                    at => {
                        let a = if at == 2 { a } else { self.constant(&address) };
                        let others = vec![b"\xe0\0\0\0\x03".to_vec(), prefix, b"\0\0\0\0\x08".to_vec()];
                        self.give(Bool, Op::InPrefixes(a, others))
                    }
                }
            }
            12 => {
                let numbers = [&b"-7"[..], b"007", b"9223372036854775807", b"18446744073709551615", b"1x"];
                let number = self.rng.pick(&numbers);
                let a = if self.rng.percent(50) { a } else { self.constant(number) };
                match self.rng.percent(50) {
                    true => self.give(Bool, Op::IsIntText(signed, a)),
                    false => self.give(Int, Op::TextToInt(signed, a)),
                }
            }
            13 => {
                let n = self.any(Int);
                self.give(Bytes, Op::IntToText(signed, n))
            }
            14 => match self.rng.percent(40) {
                true => {
                    let x = self.any(Float);
                    self.give(Bytes, Op::FloatToText(x))
                }
                false => {
                    let numbers =
                        [&b"-0.0"[..], b"1e3", b"2.5E-4", b"1e999", b".5", b"inf", b"9007199254740993"];
                    let number = self.rng.pick(&numbers);
                    let a = if self.rng.percent(30) { a } else { self.constant(number) };
                    match self.rng.percent(50) {
                        true => self.give(Bool, Op::IsFloatText(a)),
                        false => self.give(Float, Op::TextToFloat(a)),
                    }
                }
            },
            _ => {
                let (n, b) = (self.any(Int), self.any(Bool));
                self.give(Bytes, Op::Key(vec![n, a, b]))
            }
        };
    }

    /// Calls a native function and reads how it ended.
    fn native(&mut self) {
        let chain = self.chain;
        let (id, decl) = pick(self.rng, &chain.natives);
        let info = decl.native.info();
        let mut args = Vec::new();
        for param in info.params.iter().filter(|param| !param.is_constant()) {
            let ty = match param {
                Param::Int => Ty::Int,
                Param::Scalar => self.rng.pick(&[Ty::Bool, Ty::Int, Ty::Float, Ty::Bytes]),
                _ => Ty::Bytes,
            };
            args.push(self.any(ty));
        }
        let value = self.give(Ty::of(info.result), Op::Native(NativeId(id), args));
        if self.rng.percent(60) {
            self.give(Ty::Bool, Op::NativeFailed(value));
        }
        if self.rng.percent(40) {
            self.give(Ty::Bool, Op::NativeNull(value));
        }
    }

    /// Adds an operation that reads or changes the tuple.
    fn tuple_op(&mut self) {
        let Some(direction) = self.handler.direction(self.chain) else { return self.scalar_op() };
        if self.rng.percent(6) {
            return self.derived(direction);
        }
        let index = self.rng.below(direction.inputs.len());
        let (id, input) = (InputId(index as u16), &direction.inputs[index]);
        let may_be_absent =
            |i: &Input| i.nullable || matches!(i.place, InputLocation::Header(_) | InputLocation::Trailer(_));
        match self.rng.below(8) {
            0 => drop(self.give(Ty::Bool, Op::InputPresent(id))),
            1 | 2 if input.written => {
                let value = self.any_of(input.ty);
                self.effect(Op::SetInput(id, value));
            }
            3 if input.written && may_be_absent(input) => self.effect(Op::ClearInput(id)),
            _ => drop(self.give(Ty::of(input.ty), Op::Input(id))),
        }
    }

    /// Reads a value derived from the message, usually after a change, and whether that worked.
    fn derived(&mut self, direction: &Direction) {
        let inputs = || (0..).zip(&direction.inputs);
        let fields = |input: &Input| input.written && matches!(input.place, InputLocation::Body(_));
        let fields: Vec<(u16, Type)> =
            inputs().filter(|(_, input)| fields(input)).map(|(at, input)| (at, input.ty)).collect();
        // A message cannot be written with bytes that are not text.
        let is_bad = self.rng.percent(30);
        let fits = |(_, ty): &&(u16, Type)| !is_bad || Ty::of(*ty) == Ty::Bytes;
        let fields: Vec<(u16, Type)> = fields.iter().filter(fits).copied().collect();
        if !fields.is_empty() && self.rng.percent(70) {
            let (field, ty) = self.rng.pick(&fields);
            let value = if is_bad { self.constant(b"\xff") } else { self.any_of(ty) };
            self.effect(Op::SetInput(InputId(field), value));
        }
        let derived: Vec<(u16, Ty)> = inputs()
            .filter(|(_, input)| input.place.is_derived())
            .map(|(at, input)| (at, Ty::of(input.ty)))
            .collect();
        let (of, ty) = self.rng.pick(&derived);
        let value = self.give(ty, Op::Derived(InputId(of)));
        let size = if ty == Ty::Bytes { self.give(Ty::Int, Op::Len(value)) } else { value };
        self.effect(Op::Delay(size));
        let full = self.give(Ty::Bool, Op::ScratchFull);
        let full = self.give(Ty::Int, Op::BoolToInt(full));
        self.effect(Op::Delay(full));
    }

    /// Adds an operation on the clock, chance, call cells or variables.
    fn scalar_op(&mut self) {
        let (journal, chain) = (self.journal(), self.chain);
        match self.rng.below(9) {
            0 if self.rng.percent(50) => drop(self.give(Ty::Bytes, Op::Egress)),
            0 => drop(self.give(Ty::Int, Op::Now)),
            1 => {
                let site = self.rng.bits() % 100;
                self.give(Ty::Float, Op::Rand(site));
            }
            2 => {
                let (id, cell) = pick(self.rng, &chain.call);
                self.give(Ty::of(cell.ty), Op::CallGet(CallId(id)));
            }
            3 => {
                let (id, cell) = pick(self.rng, &chain.call);
                let value = self.any_of(cell.ty);
                self.effect(Op::CallSet(CallId(id), value, journal));
            }
            4 => self.effect(Op::LockVars),
            _ => {
                let (id, var) = pick(self.rng, &chain.vars);
                let id = VarId(id);
                let is_every = self.handler == Handler::Every;
                match (var.merge.is_some(), self.rng.below(3)) {
                    (true, 0) if is_every => drop(self.give(Ty::Int, Op::VarMerged(id))),
                    (true, 1) if is_every && !self.may_fail => self.effect(Op::VarReset(id)),
                    (true, _) => {
                        let n = self.any(Ty::Int);
                        self.effect(Op::VarMerge(id, n, journal));
                    }
                    (false, 0) => drop(self.give(Ty::of(var.ty), Op::VarGet(id))),
                    (false, _) => {
                        let value = self.any_of(var.ty);
                        self.effect(Op::VarSet(id, value, journal));
                    }
                }
            }
        }
    }

    /// Adds a match of rows, with values that may match.
    fn matched(&mut self) {
        let (id, decl) = pick(self.rng, &self.chain.matches);
        let mut keys = Vec::new();
        for part in &decl.spec.parts {
            let value = match part.ty {
                Type::IpAddr if self.rng.percent(90) => {
                    let mut address = self.rng.pick(&super::NETS).to_vec();
                    address.pop();
                    self.give(Ty::Bytes, Op::BytesConst(address))
                }
                ty => self.key_part(ty),
            };
            let null = (part.nullable && self.rng.percent(50)).then(|| self.any(Ty::Bool));
            keys.push((value, null));
        }
        let row = self.give(Ty::Row, Op::Match(decl.table, MatchId(id), keys));
        self.rows.push((row, decl.table));
    }

    /// Adds a random operation on a table.
    fn table_op(&mut self) {
        if self.rng.percent(8) {
            return self.matched();
        }
        let table = self.table();
        let journal = self.journal();
        match self.rng.below(14) {
            0 => {
                self.row(table);
            }
            1 => {
                let row = self.row(table);
                self.give(Ty::Bool, Op::IsRow(row));
            }
            2..5 => {
                let (row, (column, ty, _)) = (self.row(table), self.column(table, true));
                self.give(Ty::of(ty), Op::Column(table, row, column));
            }
            5 => {
                let (row, (column, ..)) = (self.row(table), self.column(table, true));
                self.give(Ty::Bool, Op::ColumnIsNull(table, row, column));
            }
            6 => drop(self.give(Ty::Int, Op::Count(table))),
            7 => {
                let key = if self.rng.percent(60) { Some(self.key(table)) } else { None };
                self.effect(Op::Lock(table, key));
            }
            8 => {
                let row = self.row(table);
                match (self.is_writable(table), self.rng.percent(50)) {
                    (true, true) => self.effect(Op::Touch(table, row)),
                    (true, false) => self.effect(Op::TouchRead(table, row)),
                    (false, _) => drop(self.give(Ty::Bool, Op::IsRow(row))),
                }
            }
            _ if !self.is_writable(table) => drop(self.give(Ty::Int, Op::Count(table))),
            9 => {
                let row = self.row(table);
                self.effect(Op::Remove(table, row, journal));
                self.kill(table);
            }
            10 if self.rng.percent(40) => {
                let spec = &self.chain.tables[usize::from(table.0)].spec;
                let (first, is_bytes) = (spec.key.len(), |ty: Type| matches!(ty, Type::Bytes(_)));
                if let Some(at) = spec.columns.iter().position(|column| is_bytes(column.ty)) {
                    let (row, column) = (self.row(table), ColumnId((first + at) as u16));
                    let bin = match self.rng.percent(70) {
                        true => Op::IntConst(self.rng.below(9) as i64),
                        false => Op::IntConst(int(self.rng)),
                    };
                    let bin = self.give(Ty::Int, bin);
                    self.effect(Op::CountInto(table, row, column, bin, journal));
                }
            }
            10 => {
                let (row, (column, _, nullable)) = (self.row(table), self.column(table, false));
                if nullable {
                    self.effect(Op::SetColumnNull(table, row, column, journal));
                }
            }
            _ => {
                let (row, (column, ty, _)) = (self.row(table), self.column(table, false));
                let value = self.any_of(ty);
                self.give(Ty::Bool, Op::SetColumn(table, row, column, value, journal));
            }
        }
    }

    /// Adds a random operation with an effect outside the tables, such as a sink row or a rollback.
    fn out_op(&mut self) {
        let chain = self.chain;
        match self.rng.below(9) {
            0 if self.may_fail && self.loops == 0 => {
                self.effect(Op::RollBack);
                self.rows.clear();
                self.forget_bytes();
                self.rolled_back = true;
            }
            1 | 2 => {
                let (id, sink) = pick(self.rng, &chain.sinks);
                let cells = sink.columns.iter().map(|column| {
                    let value = self.any_of(column.ty);
                    (value, self.rng.percent(50).then(|| self.any(Ty::Bool)))
                });
                let cells = cells.collect();
                self.effect(Op::Emit(SinkId(id), cells));
            }
            _ if self.handler.is_timed() => self.number_op(),
            3 => {
                let by = self.any(Ty::Int);
                self.effect(Op::Delay(by));
            }
            4 => {
                let (_, what) = pick(self.rng, &Mark::ALL);
                let value = self.any(Ty::Int);
                self.effect(Op::Mark(*what, value));
            }
            5 => {
                let to = self.any(Ty::Bytes);
                self.effect(Op::Mirror(to));
            }
            6 => {
                let value = self.any(Ty::Bytes);
                let (id, _) = pick(self.rng, &chain.answers);
                self.effect(Op::SetAnswer(NameId(id), value));
            }
            7 => {
                let (id, decl) = pick(self.rng, &chain.header_changes);
                let parts = decl.params.iter().map(|ty| self.any_of(*ty)).collect();
                self.effect(Op::ChangeHeaders(HeaderChangeId(id), parts));
            }
            _ => {
                let (id, field) = pick(self.rng, &chain.replies);
                let value = self.any_of(field.ty);
                self.effect(Op::SetReply(NameId(id), value));
            }
        }
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
                    false => Op::IntConst(int(self.rng)),
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
        debug_assert_eq!(self.function.ty(key), key_ty(&self.chain.tables[usize::from(table.0)].spec));
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

/// Chooses an item; returns its index, too.
fn pick<'l, T>(rng: &mut Rng, from: &'l [T]) -> (u16, &'l T) {
    let index = rng.below(from.len());
    (index as u16, &from[index])
}

const INT_OPS: &[IntOp] = &[
    IntOp::Add,
    IntOp::Sub,
    IntOp::Mul,
    IntOp::SDiv,
    IntOp::UDiv,
    IntOp::SRem,
    IntOp::URem,
    IntOp::And,
    IntOp::Or,
    IntOp::Xor,
    IntOp::Shl,
    IntOp::Shr,
    IntOp::SMin,
    IntOp::SMax,
    IntOp::UMin,
    IntOp::UMax,
];

const FLOAT_OPS: &[FloatOp] =
    &[FloatOp::Add, FloatOp::Sub, FloatOp::Mul, FloatOp::Div, FloatOp::Min, FloatOp::Max];

const FLOAT_UNARY: &[FloatUnaryOp] = &[
    FloatUnaryOp::Neg,
    FloatUnaryOp::Abs,
    FloatUnaryOp::Floor,
    FloatUnaryOp::Ceil,
    FloatUnaryOp::Round,
    FloatUnaryOp::Sqrt,
];

const BYTES_COMPARES: &[BytesCmp] = &[
    BytesCmp::Eq,
    BytesCmp::Ne,
    BytesCmp::Lt,
    BytesCmp::Le,
    BytesCmp::StartsWith,
    BytesCmp::EndsWith,
    BytesCmp::Contains,
    BytesCmp::Like,
];
