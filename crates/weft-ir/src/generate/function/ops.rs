//! Adds random operations to a function.

use super::Builder;
use crate::generate::{Rng, values};
use crate::ir::*;
use crate::program::{Direction, Input, InputLocation};
use crate::verify::Handler;
use weft_core::native::Param;
use weft_core::types::Type;

impl Builder<'_> {
    /// Adds one random operation, or a few that belong together.
    pub(super) fn step(&mut self) {
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
        let signed = self.named();
        match self.rng.below(16) {
            0 | 1 => {
                let (op, a, b) = (self.named(), self.any(Int), self.any(Int));
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
                let (op, a, b) = (self.named(), self.any(Int), self.any(Int));
                self.give(Bool, Op::IntCompare(op, a, b));
            }
            4 => {
                let (a, low, high) = (self.any(Int), values::int(self.rng), values::int(self.rng));
                self.give(Bool, Op::InRange(a, low, high));
            }
            5 | 6 => {
                let (op, a, b) = (self.named(), self.any(Float), self.any(Float));
                self.give(Float, Op::FloatBinary(op, a, b));
            }
            7 => {
                let (op, a) = (self.named(), self.any(Float));
                self.give(Float, Op::FloatUnary(op, a));
            }
            8 => {
                let (op, a, b) = (self.named(), self.any(Float), self.any(Float));
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
                let (op, a, b) = (self.named(), self.any(Bool), self.any(Bool));
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
                match self.rng.percent(50) {
                    true => self.give(Int, Op::HashMix(a, b)),
                    false => self.give(Int, Op::Log2(a)),
                };
            }
        }
    }

    /// Adds a random operation on bytes.
    fn text_op(&mut self) {
        use Ty::{Bool, Bytes, Float, Int};
        let signed = self.named();
        let a = self.any(Bytes);
        match self.rng.below(18) {
            0 => self.give(Int, Op::Len(a)),
            1 | 2 => {
                let (op, b) = (self.named(), self.any(Bytes));
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
                    let mut address = self.rng.pick(&crate::generate::NETS).to_vec();
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
                        false => Op::IntConst(values::int(self.rng)),
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
                let (mark, value) = (self.named(), self.any(Ty::Int));
                self.effect(Op::Mark(mark, value));
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
}

/// Chooses an item; returns its index, too.
fn pick<'l, T>(rng: &mut Rng, from: &'l [T]) -> (u16, &'l T) {
    let index = rng.below(from.len());
    (index as u16, &from[index])
}
