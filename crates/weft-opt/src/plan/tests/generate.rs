//! Chains of small elements over little common ground, so that about half of all pairs are in each other's way.

use weft_core::Interval;
use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::table::{ColumnSpec, Evict, TableSpec};
use weft_core::types::Type;
use weft_ir::generate::Dice;
use weft_ir::ir::*;
use weft_ir::program::*;

/// Which handler is made.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Open,
    Request,
    Response,
    Close,
    Every,
}

/// A chain of two or three elements.
pub(super) fn chain(dice: &mut Dice) -> ChainProgram {
    let mut chain = ChainProgram {
        name: "generated".into(),
        request: Direction { inputs: inputs() },
        response: Direction { inputs: inputs() },
        tables: vec![
            table("numbers", Type::Uint(64), Evict::Reject),
            table("texts", Type::Text(Some(8)), Evict::Lru),
        ],
        vars: vec![var("plain", 0, None), var("sum", 1, Some(Merge::Sum))],
        sinks: vec![
            sink("a", SinkTarget::Stdout),
            sink("b", SinkTarget::File("b".into())),
            sink("c", SinkTarget::Stdout),
        ],
        call: (0..3).map(call_cell).collect(),
        answers: ["x-a", "x-b"].map(|name| AnswerName { name: name.into() }).into(),
        replies: ["a", "b"].map(|name| ReplyField { path: vec![name.into()], ty: Type::Int(64) }).into(),
        ..ChainProgram::default()
    };
    if dice.percent(30) {
        let place = Place::Meta(Meta::EndedBy);
        let ended_by =
            Input { name: "ended_by".into(), ty: Type::Text(None), nullable: true, place, written: false };
        chain.response.inputs.push(ended_by);
    }
    let mut line = 0;
    for index in 0..2 + dice.below(2) {
        let element = element(dice, index, &mut line);
        chain.elements.push(element);
    }
    chain
}

fn inputs() -> Vec<Input> {
    let input = |(at, ty): (usize, Type)| Input {
        name: format!("in{at}"),
        ty,
        nullable: at % 2 == 1,
        place: Place::Body(vec![format!("f{at}")]),
        written: true,
    };
    [Type::Int(64), Type::Int(64), Type::Text(None), Type::Int(64)]
        .into_iter()
        .enumerate()
        .map(input)
        .collect()
}

fn table(name: &str, key: Type, evict: Evict) -> TableDecl {
    let column = |name: &str, ty| ColumnSpec {
        name: name.into(),
        ty,
        nullable: false,
        default: weft_core::Value::Null,
    };
    let spec = TableSpec {
        name: name.into(),
        key: vec![column("k", key)],
        columns: vec![column("n", Type::Int(64)), column("m", Type::Int(64))],
        max_rows: 2,
        evict,
        ttl: None,
        ttl_on_access: false,
        shared: false,
        stripes: None,
    };
    TableDecl { owner: String::new(), spec, realisation: Realisation::Striped, rows: Vec::new() }
}

fn var(name: &str, word: u32, merge: Option<Merge>) -> VarDecl {
    VarDecl {
        owner: String::new(),
        name: name.into(),
        ty: Type::Int(64),
        word,
        start: weft_core::Value::Int(1),
        merge,
    }
}

fn sink(name: &str, target: SinkTarget) -> SinkDecl {
    let columns = vec![SinkColumn { name: "n".into(), ty: Type::Int(64) }];
    SinkDecl { owner: String::new(), name: name.into(), columns, target, format: SinkFormat::Json }
}

fn call_cell(at: u32) -> CallCell {
    CallCell { owner: String::new(), name: format!("c{at}"), ty: Type::Int(64), word: at }
}

fn element(dice: &mut Dice, index: usize, line: &mut u32) -> Element {
    let mut some = |kind, percent| dice.percent(percent).then(|| Maker::function(dice, kind, index, line));
    let handlers = Handlers {
        open: some(Kind::Open, 35),
        request: some(Kind::Request, 90),
        response: some(Kind::Response, 40),
        close: some(Kind::Close, 30),
        every: some(Kind::Every, 10).into_iter().map(|f| (Interval::from_millis(100), f)).collect(),
    };
    let name = format!("e{index}");
    Element { name, element: "generated".into(), handlers, mandatory: false, fail_open: dice.percent(20) }
}

struct Maker<'d> {
    dice: &'d mut Dice,
    kind: Kind,
    index: usize,
    line: &'d mut u32,
    function: Function,
    at: usize,
}

impl<'d> Maker<'d> {
    fn function(dice: &'d mut Dice, kind: Kind, index: usize, line: &'d mut u32) -> Function {
        let function =
            Function { name: format!("e{index}"), blocks: vec![Block::default()], types: Vec::new() };
        let mut maker = Self { dice, kind, index, line, function, at: 0 };
        for _ in 0..1 + maker.dice.below(2) {
            if maker.dice.percent(60) {
                maker.guarded();
            } else {
                maker.statement();
            }
        }
        maker.end(Terminator::Forward);
        maker.function
    }

    fn end(&mut self, end: Terminator) {
        self.function.blocks[self.at].end = end;
    }

    fn block(&mut self) -> usize {
        self.function.blocks.push(Block::default());
        self.function.blocks.len() - 1
    }

    fn give(&mut self, ty: Ty, op: Op) -> Value {
        let value = Value(self.function.types.len() as u32);
        self.function.types.push(ty);
        self.push(Some(value), op);
        value
    }

    fn push(&mut self, result: Option<Value>, op: Op) {
        *self.line += 1;
        let line = *self.line;
        self.function.blocks[self.at].insts.push(Inst { result, op, line });
    }

    /// A statement on a condition; one of these may end the tuple.
    fn guarded(&mut self) {
        let by = self.condition();
        let (yes, join) = (self.block(), self.block());
        let to = |block: usize| Jump { block: BlockId(block as u32), args: Vec::new() };
        self.end(Terminator::Branch(by, to(yes), to(join)));
        self.at = yes;
        let verdict = if self.dice.percent(55) { self.verdict() } else { None };
        match verdict {
            Some(verdict) => self.end(verdict),
            None => {
                self.statement();
                self.end(Terminator::Jump(to(join)));
            }
        }
        self.at = join;
    }

    fn has_tuple(&self) -> bool {
        self.kind != Kind::Every
    }

    fn condition(&mut self) -> Value {
        let number = match self.dice.below(6) {
            0..3 if self.has_tuple() => self.read(),
            3 => self.give(Ty::Int, Op::VarGet(VarId(0))),
            4 => self.column(),
            5 if self.kind != Kind::Every && self.dice.percent(20) => {
                return self.give(Ty::Bool, Op::ScratchFull);
            }
            _ => {
                let site = self.dice.bits();
                let (drawn, half) =
                    (self.give(Ty::Float, Op::Rand(site)), self.give(Ty::Float, Op::FloatConst(0.5)));
                return self.give(Ty::Bool, Op::FloatCompare(FloatCmp::Lt, drawn, half));
            }
        };
        let limit = self.dice.pick(&[0, 1, 7]);
        let limit = self.give(Ty::Int, Op::IntConst(limit));
        self.give(Ty::Bool, Op::IntCompare(IntCmp::SLt, number, limit))
    }

    fn verdict(&mut self) -> Option<Terminator> {
        if !self.has_tuple() {
            return None;
        }
        *self.line += 1;
        let line = *self.line;
        Some(match self.dice.below(10) {
            0 => Terminator::Drop { line },
            1 => Terminator::Reply { line },
            2 => {
                let code =
                    if self.dice.percent(50) { self.read() } else { self.give(Ty::Int, Op::IntConst(3)) };
                Terminator::Abort { status: StatusOperand::Computed(code), text: None, line }
            }
            3 => {
                let fault = self.give(Ty::Int, Op::IntConst(fault_code(Fault::DivideByZero)));
                Terminator::Fail { fault, line }
            }
            4..8 if self.kind != Kind::Response && self.kind != Kind::Close => {
                let to = self.dice.pick(&[&b"x"[..], b"y"]).to_vec();
                let to = self.give(Ty::Bytes, Op::BytesConst(to));
                Terminator::Redirect { to, line }
            }
            _ => {
                let status = self.dice.pick(&[
                    Status::PermissionDenied,
                    Status::PermissionDenied,
                    Status::Unavailable,
                ]);
                Terminator::Abort { status: StatusOperand::Known(status), text: None, line }
            }
        })
    }

    fn statement(&mut self) {
        let tuple = self.has_tuple();
        match self.dice.below(28) {
            0..3 if tuple => self.write(),
            4 | 18 | 27 if tuple => {
                let by = self.give(Ty::Int, Op::IntConst(5));
                self.push(None, Op::Delay(by));
            }
            5 if tuple => {
                let mark = self.give(Ty::Int, Op::IntConst(self.index as i64));
                self.push(None, Op::Mark(mark));
            }
            6 | 16 if tuple => {
                let to = self.give(Ty::Bytes, Op::BytesConst(vec![b'a' + self.index as u8]));
                self.push(None, Op::Mirror(to));
            }
            7 if tuple => {
                let value = self.give(Ty::Bytes, Op::BytesConst(vec![b'0' + self.index as u8]));
                self.push(None, Op::SetAnswer(NameId(self.index as u16 % 2), value));
            }
            8 if tuple => {
                let value = self.read();
                self.push(None, Op::SetReply(NameId(self.index as u16 % 2), value));
            }
            3 | 9 | 19 | 22..=26 => self.emit(),
            10 => self.var(),
            11 => {
                let by = if tuple { self.read() } else { self.give(Ty::Int, Op::IntConst(2)) };
                if self.kind == Kind::Every {
                    self.push(None, Op::VarReset(VarId(1)));
                } else {
                    self.push(None, Op::VarMerge(VarId(1), by, Journal::Yes));
                }
            }
            12 => {
                let value = self.column();
                let by = self.give(Ty::Int, Op::IntConst(3));
                let value = self.give(Ty::Int, Op::IntBinary(IntOp::Mul, value, by));
                if tuple {
                    self.push(None, Op::SetInput(InputId(3), value));
                }
            }
            13 => self.insert(),
            14 if tuple => self.call(),
            15 | 17 | 20..22 if tuple => self.concat(),
            _ => self.update(),
        }
    }

    /// An input, as a number.
    fn read(&mut self) -> Value {
        let id = InputId(self.dice.pick(&[0, 1, 3]));
        self.give(Ty::Int, Op::Input(id))
    }

    fn write(&mut self) {
        let id = InputId(self.dice.pick(&[0, 1, 3]));
        if id.0 == 1 && self.dice.percent(30) {
            return self.push(None, Op::ClearInput(id));
        }
        let value = match self.dice.percent(50) {
            true => self.read(),
            false => self.give(Ty::Int, Op::IntConst(self.index as i64 + 10)),
        };
        let one = self.give(Ty::Int, Op::IntConst(1));
        let value = self.give(Ty::Int, Op::IntBinary(IntOp::Add, value, one));
        self.push(None, Op::SetInput(id, value));
    }

    fn emit(&mut self) {
        let sink = SinkId(self.dice.pick(&[0, 0, 1, 2]));
        let n = self.give(Ty::Int, Op::IntConst(self.index as i64));
        self.push(None, Op::Emit(sink, vec![(n, None)]));
    }

    fn var(&mut self) {
        let (old, two) = (self.give(Ty::Int, Op::VarGet(VarId(0))), self.give(Ty::Int, Op::IntConst(2)));
        let new = self.give(Ty::Int, Op::IntBinary(IntOp::Mul, old, two));
        self.push(None, Op::VarSet(VarId(0), new, Journal::Yes));
    }

    /// A table and one of its keys.
    fn key(&mut self) -> (TableId, Value) {
        let table = TableId(self.dice.below(2) as u16);
        let key = match (table.0, self.has_tuple() && self.dice.percent(40)) {
            (0, true) => self.read(),
            (0, false) => {
                let n = self.dice.below(2) as i64;
                self.give(Ty::Int, Op::IntConst(n))
            }
            _ => {
                let text = self.dice.pick(&[&b"a"[..], b"b", b"c"]).to_vec();
                self.give(Ty::Bytes, Op::BytesConst(text))
            }
        };
        (table, key)
    }

    fn column(&mut self) -> Value {
        let (table, key) = self.key();
        let row = self.give(Ty::Row, Op::Find(table, key));
        if self.dice.percent(30) {
            self.push(None, Op::TouchRead(table, row));
        }
        let column = ColumnId(1 + self.dice.below(2) as u16);
        self.give(Ty::Int, Op::Column(table, row, column))
    }

    fn update(&mut self) {
        let (table, key) = self.key();
        let row = self.give(Ty::Row, Op::Find(table, key));
        let value = self.give(Ty::Int, Op::IntConst(self.index as i64 + 1));
        let column = ColumnId(1 + self.dice.below(2) as u16);
        self.give(Ty::Bool, Op::SetColumn(table, row, column, value, Journal::Yes));
    }

    fn insert(&mut self) {
        let (table, key) = self.key();
        let row = self.give(Ty::Row, Op::Find(table, key));
        let there = self.give(Ty::Bool, Op::IsRow(row));
        let (no, join) = (self.block(), self.block());
        let to = |block: usize| Jump { block: BlockId(block as u32), args: Vec::new() };
        self.end(Terminator::Branch(there, to(join), to(no)));
        self.at = no;
        let row = self.give(Ty::Row, Op::Insert(table, key, Journal::Yes));
        let value = self.give(Ty::Int, Op::IntConst(self.index as i64 + 20));
        self.give(Ty::Bool, Op::SetColumn(table, row, ColumnId(1), value, Journal::Yes));
        self.end(Terminator::Jump(to(join)));
        self.at = join;
    }

    /// Mostly a cell of its own.
    fn call(&mut self) {
        let cell = CallId(if self.dice.percent(80) { self.index as u16 } else { 0 });
        if self.dice.percent(50) {
            let value = self.read();
            return self.push(None, Op::CallSet(cell, value, Journal::Yes));
        }
        let value = self.give(Ty::Int, Op::CallGet(cell));
        self.push(None, Op::SetInput(InputId(0), value));
    }

    /// Text that sometimes finds no room.
    fn concat(&mut self) {
        let text = self.give(Ty::Bytes, Op::Input(InputId(2)));
        let text = self.give(Ty::Bytes, Op::Concat(vec![text, text]));
        let length = self.give(Ty::Int, Op::Len(text));
        let id = InputId(self.dice.pick(&[0, 3]));
        self.push(None, Op::SetInput(id, length));
    }
}
