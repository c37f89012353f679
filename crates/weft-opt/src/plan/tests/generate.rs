//! Generates chains of small elements with little common state, so that about half of all pairs clash. In chains of
//! more than three elements, each uses mostly state of its own; otherwise none could ever move.

use weft_core::Interval;
use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::list::{CELL_BYTES, HEAD_BYTES};
use weft_core::marks::Mark;
use weft_core::native::{Native, NativeCost, NativeDecl};
use weft_core::table::{ColumnSpec, Evict, TableSpec};
use weft_core::types::Type;
use weft_ir::generate::Rng;
use weft_ir::ir::*;
use weft_ir::program::*;

use crate::plan::Clause;

/// The realisations of tables that handlers write.
const REALISATIONS: [Realisation; 3] = [Realisation::Striped, Realisation::Locked, Realisation::PerWorker];
/// Inputs that belong to single elements of a long chain.
const OWN_INPUTS: usize = 6;
/// The table that is never written.
const RIGHTS: TableId = TableId(2);
/// The table that sinks fill, and handlers read.
pub(super) const SENT: TableId = TableId(3);
/// The sinks that insert rows into it and delete them; two more are for a table that no handler reads.
const TO_TABLES: [SinkId; 4] = [SinkId(3), SinkId(4), SinkId(5), SinkId(6)];
/// The sinks of [`TO_TABLES`] that delete rows.
const DELETING: [SinkId; 2] = [SinkId(4), SinkId(6)];
/// The functions of elements that pack their text, and that unpack it.
const PACK: NativeId = NativeId(0);
const UNPACK: NativeId = NativeId(1);
/// The text of a message.
pub(super) const TEXT: InputId = InputId(2);

/// The handler being generated.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Open,
    Request,
    Response,
    Close,
    Every,
}

/// The size of the message.
pub(super) const SIZE: InputId = InputId(4 + OWN_INPUTS as u16);

/// A list in a message that is a member of [`ONEOF`].
pub(super) const LIST: InputId = InputId(SIZE.0 + 1);
/// Number of its elements that are read.
const LIST_MAX: i64 = 3;

/// Inputs that are members of one oneof, in both directions. It has two more members: the message around [`LIST`], and
/// one that no element knows.
pub(super) const ONEOF: [InputId; 2] = [InputId(1), InputId(3)];

/// The inputs that setting a member of the oneof displaces.
pub(super) fn displaced_by(input: InputId) -> Option<[InputId; 2]> {
    let at = ONEOF.iter().position(|member| *member == input)?;
    Some([ONEOF[1 - at], LIST])
}

/// A chain of this many elements.
pub(super) fn chain(rng: &mut Rng, n: usize) -> ChainProgram {
    let mut chain = ChainProgram {
        name: "generated".into(),
        request: Direction { inputs: inputs() },
        response: Direction { inputs: inputs() },
        tables: vec![
            table("numbers", Type::Uint(64), Evict::Reject),
            table("texts", Type::Text(Some(8)), Evict::Lru),
            rights(),
            sent(),
        ],
        vars: vec![var("plain", 0, None), var("sum", 1, Some(Merge::Sum))],
        sinks: vec![
            sink("a", SinkTarget::Stdout),
            sink("b", SinkTarget::File("b".into())),
            sink("c", SinkTarget::Stdout),
            sink_to("sent", false),
            sink_to("sent", true),
            sink_to("away", false),
            sink_to("away", true),
        ],
        natives: [Native::Hex, Native::Unhex].map(function).into(),
        call: (0..=n as u32).map(call_cell).collect(),
        answers: ["x-a", "x-b"].map(|name| AnswerName { name: name.into() }).into(),
        replies: ["a", "b"].map(|name| ReplyField { path: vec![name.into()], ty: Type::Int(64) }).into(),
        ..ChainProgram::default()
    };
    for table in &mut chain.tables[..2] {
        table.realisation = rng.pick(&REALISATIONS);
    }
    chain.vars.extend((0..n as u32).map(|at| var(&format!("own{at}"), 2 + at, None)));
    let wants = Wants::random(rng, n);
    let inverse = Inverse::random(rng, n);
    if wants.clauses.contains(&Clause::StatusesAsked) || rng.percent(4) {
        chain.response.inputs.push(Input {
            name: "ended_by".into(),
            ty: Type::Text(None),
            nullable: true,
            place: InputLocation::Meta(Meta::EndedBy),
            written: false,
        });
        let text = vec![SinkColumn { name: "by".into(), ty: Type::Text(None) }];
        chain.sinks.push(SinkDecl { columns: text, ..sink("who", SinkTarget::File("who".into())) });
    }
    let mut line = 0;
    for index in 0..n {
        let element = element(rng, (index, n), &wants, &inverse, &mut line);
        chain.elements.push(element);
    }
    if chain.sinks.len() > WHO {
        // The first element is opened for every call that reaches the chain.
        chain.elements[0].handlers.close = Some(asking(&mut line));
    }
    chain
}

/// In some chains, the sink that gets the element that ended a call.
const WHO: usize = 7;
/// The input with that element, in CLOSE.
pub(super) const ENDED_BY: usize = LIST.0 as usize + 1;

/// A CLOSE that reads which element ended the call.
fn asking(line: &mut u32) -> Function {
    let by = Op::Input(InputId(ENDED_BY as u16));
    let ops = [(Some(Value(0)), by), (None, Op::Emit(SinkId(WHO as u16), vec![(Value(0), None)]))];
    let inst = |(result, op)| {
        *line += 1;
        Inst { result, op, line: *line }
    };
    let insts = ops.into_iter().map(inst).collect();
    let block = Block { insts, end: Terminator::Forward, ..Block::default() };
    Function { name: "e0".into(), blocks: vec![block], types: vec![Ty::Bytes] }
}

/// Clauses that a chain is to have cases of, besides random ones, and the elements for them: the second of two
/// neighbours, with a third in front where the clause needs one.
struct Wants {
    clauses: Vec<Clause>,
    second: usize,
    /// Elements do nothing else.
    is_quiet: bool,
    /// Elements send rows to tables and read them.
    sends: bool,
}

/// The role of an element in such a clause.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    First,
    Second,
    Witness,
}

impl Wants {
    /// The rare clauses.
    const RARE: [Clause; 18] = [
        Clause::BothWrite,
        Clause::Answers,
        Clause::Marks,
        Clause::ChangesWhatIsRead,
        Clause::BothChange,
        Clause::Statuses,
        Clause::StatusesAnswered,
        Clause::EndsTrailers,
        Clause::EndsCopies,
        Clause::StatusesAnswered,
        Clause::Targets,
        // The rarest.
        Clause::EndsSharedCell,
        Clause::EndsSharedCell,
        Clause::EndsSharedCell,
        Clause::EndsSharedCell,
        Clause::StatusesAsked,
        Clause::StatusesAsked,
        Clause::StatusesAsked,
    ];

    fn random(rng: &mut Rng, n: usize) -> Self {
        let how_many = if n > 3 { 0 } else { rng.pick(&[0, 1, 2, 2, 2, 3]) };
        let clauses = (0..how_many).map(|_| rng.pick(&Self::RARE)).collect();
        let is_quiet = how_many > 0 && rng.percent(35);
        Self { clauses, second: n - 1, is_quiet, sends: rng.percent(30) }
    }

    fn role(&self, index: usize) -> Option<Role> {
        match self.second.checked_sub(index)? {
            0 => Some(Role::Second),
            1 => Some(Role::First),
            _ => Some(Role::Witness),
        }
    }
}

/// An element that packs the text of its messages and one that unpacks it, in one direction.
struct Inverse {
    pair: Option<[usize; 2]>,
    kind: Kind,
    /// Other elements only read or set the text, and do nothing else with requests or with answers.
    others_look: bool,
}

/// What an element does to the text.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Packs,
    Unpacks,
    Looks,
}

impl Inverse {
    fn random(rng: &mut Rng, n: usize) -> Self {
        let wanted = n > 2 && rng.percent(80);
        let first = rng.below(n - 1);
        let second = first + 1 + if rng.percent(70) { 0 } else { rng.below(n - 1 - first) };
        let kind = if rng.percent(75) { Kind::Request } else { Kind::Response };
        Self { pair: wanted.then_some([first, second]), kind, others_look: rng.percent(60) }
    }

    /// What an element does in its handler of this kind.
    fn part(&self, kind: Kind, index: usize) -> Option<Part> {
        let [first, second] = self.pair.filter(|_| kind == self.kind)?;
        // Responses pass the chain in reverse.
        let (packs, unpacks) = if kind == Kind::Request { (first, second) } else { (second, first) };
        match index {
            _ if index == packs => Some(Part::Packs),
            _ if index == unpacks => Some(Part::Unpacks),
            _ => self.others_look.then_some(Part::Looks),
        }
    }
}

fn function(native: Native) -> NativeDecl {
    let (name, constants, options) = (native.name().to_owned(), Vec::new(), Vec::new());
    NativeDecl {
        name,
        native,
        constants,
        options,
        site: 0,
        cost: NativeCost { base_ns: 10, ns_per_kib: 100 },
    }
}

fn inputs() -> Vec<Input> {
    let input = |(at, ty): (usize, Type)| Input {
        name: format!("in{at}"),
        ty,
        nullable: at % 2 == 1,
        place: InputLocation::Body(vec![format!("f{at}")]),
        written: true,
    };
    let shared = [Type::Int(64), Type::Int(64), Type::Text(None), Type::Int(64)];
    let own = [Type::Int(64); OWN_INPUTS];
    let size = Input {
        name: "size".into(),
        ty: Type::Size,
        nullable: false,
        place: InputLocation::Meta(Meta::Size),
        written: false,
    };
    let place = ListLocation {
        path: ["m", "list"].map(str::to_owned).into(),
        members: vec![Vec::new()],
        elements_max: LIST_MAX as u64,
    };
    let list = Input {
        name: "list".into(),
        ty: Type::Bytes(None),
        nullable: false,
        place: InputLocation::List(place),
        written: true,
    };
    shared.into_iter().chain(own).enumerate().map(input).chain([size, list]).collect()
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
        ttl_on_insert: None,
        shared: false,
        stripes: None,
    };
    TableDecl { owner: String::new(), spec, realisation: Realisation::Striped, rows: Vec::new() }
}

/// A table with rows 0 and 1, as the controller fills it.
fn rights() -> TableDecl {
    let rows = (0..2).map(|key| [key, key + 5, 7].map(weft_core::Value::Int).to_vec()).collect();
    TableDecl { realisation: Realisation::Replicated, rows, ..table("rights", Type::Uint(64), Evict::Reject) }
}

/// A table with row 0, to which sinks send rows.
fn sent() -> TableDecl {
    let rows = vec![[0, 5, 7].map(weft_core::Value::Int).to_vec()];
    TableDecl { realisation: Realisation::Replicated, rows, ..table("sent", Type::Uint(64), Evict::Reject) }
}

fn sink_to(table: &str, deletes: bool) -> SinkDecl {
    let name = format!("{table}{}", if deletes { " no more" } else { "" });
    let target = SinkTarget::Table { owner: String::new(), table: table.into(), deletes };
    let key = SinkColumn { name: "k".into(), ty: Type::Int(64) };
    let sink = sink(&name, target);
    let columns = if deletes { vec![key] } else { [vec![key], sink.columns.clone()].concat() };
    SinkDecl { columns, ..sink }
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

fn element(
    rng: &mut Rng,
    (index, n): (usize, usize),
    wants: &Wants,
    inverse: &Inverse,
    line: &mut u32,
) -> Element {
    let is_long = n > 3;
    let percents = if is_long { [12, 85, 25, 12, 4] } else { [35, 90, 40, 30, 10] };
    let role = wants.role(index);
    let mut some = |kind, percent| {
        let takes_part = match kind {
            Kind::Request => role != Some(Role::Witness),
            Kind::Close => true,
            _ => false,
        };
        let clauses = wants.clauses.iter().filter(|_| takes_part);
        let wanted: Vec<(Clause, Role)> = clauses.filter_map(|clause| Some((*clause, role?))).collect();
        let part = inverse.part(kind, index);
        let is_made = part.is_some() || !wanted.is_empty() || (!wants.is_quiet && rng.percent(percent));
        let is_quiet = wants.is_quiet || (part.is_some() && inverse.others_look && rng.percent(80));
        let more = if is_quiet { 0 } else { 1 + if is_long { 0 } else { rng.below(2) } };
        is_made.then(|| Maker::function(rng, (kind, index, n), (&wanted, part, wants.sends), more, line))
    };
    let handlers = Handlers {
        open: some(Kind::Open, percents[0]),
        request: some(Kind::Request, percents[1]),
        response: some(Kind::Response, percents[2]),
        close: some(Kind::Close, percents[3]),
        every: some(Kind::Every, percents[4]).into_iter().map(|f| (Interval::from_millis(100), f)).collect(),
        timeouts: Vec::new(),
    };
    let name = format!("e{index}");
    Element { name, element: "generated".into(), handlers, mandatory: false, fail_open: rng.percent(20) }
}

struct Maker<'d> {
    rng: &'d mut Rng,
    kind: Kind,
    index: usize,
    is_long: bool,
    /// The cell of the call's row that all elements share.
    shared_cell: CallId,
    line: &'d mut u32,
    function: Function,
    at: usize,
}

impl<'d> Maker<'d> {
    fn function(
        rng: &'d mut Rng,
        (kind, index, n): (Kind, usize, usize),
        (wanted, part, sends): (&[(Clause, Role)], Option<Part>, bool),
        more: usize,
        line: &'d mut u32,
    ) -> Function {
        let function =
            Function { name: format!("e{index}"), blocks: vec![Block::default()], types: Vec::new() };
        let (is_long, shared_cell) = (n > 3, CallId(n as u16));
        let mut maker = Self { rng, kind, index, is_long, shared_cell, line, function, at: 0 };
        for &(clause, role) in wanted {
            maker.wanted(clause, role);
        }
        match part {
            Some(Part::Packs) => maker.transform(PACK),
            Some(Part::Unpacks) => maker.transform(UNPACK),
            Some(Part::Looks) => maker.text(),
            None => {}
        }
        if sends && kind != Kind::Every && maker.rng.percent(if is_long { 20 } else { 35 }) {
            maker.send_or_look();
        }
        // Two neighbours that set one field: the first may set it in vain.
        if is_long && kind == Kind::Request && maker.rng.percent(30) {
            let n = maker.give(Ty::Int, Op::IntConst(index as i64));
            maker.push(None, Op::SetInput(InputId(4 + (index as u16 / 2) % OWN_INPUTS as u16), n));
        }
        for _ in 0..more {
            if maker.rng.percent(60) {
                maker.guarded();
            } else {
                maker.statement();
            }
        }
        maker.end(Terminator::Forward);
        maker.function
    }

    /// Generates the element's part of a clash by a clause.
    fn wanted(&mut self, clause: Clause, role: Role) {
        let is_first = role == Role::First;
        let number = self.give(Ty::Int, Op::IntConst(self.index as i64 + 30));
        if self.kind == Kind::Close {
            return self.wanted_in_close(clause, role);
        }
        match clause {
            // The field that the first has set may be removed from the wire.
            Clause::BothWrite if !is_first && self.rng.percent(50) => {
                self.push(None, Op::ClearInput(ONEOF[1]));
            }
            Clause::BothWrite => self.set(ONEOF[usize::from(is_first)], number),
            Clause::Answers if is_first => self.answer(),
            Clause::Marks => self.push(None, Op::Mark(Mark::Class, number)),
            Clause::ChangesWhatIsRead if is_first => {
                self.push(None, Op::VarSet(VarId(0), number, Journal::Yes));
            }
            Clause::ChangesWhatIsRead => {
                let read = self.give(Ty::Int, Op::VarGet(VarId(0)));
                self.push(None, Op::SetInput(InputId((4 + self.index) as u16), read));
            }
            Clause::BothChange => self.push(None, Op::VarSet(VarId(0), number, Journal::Yes)),
            Clause::EndsSharedCell if is_first => {
                self.push(None, Op::CallSet(self.shared_cell, number, Journal::Yes));
            }
            Clause::EndsCopies if is_first => {
                let to = self.give(Ty::Bytes, Op::BytesConst(vec![b'a' + self.index as u8]));
                self.push(None, Op::Mirror(to));
            }
            Clause::EndsTrailers if is_first => {}
            Clause::Targets => self.redirecting(),
            Clause::Statuses if is_first => self.refusing(Status::Unavailable, false),
            Clause::StatusesAnswered => self.refusing(Status::PermissionDenied, is_first),
            _ => self.refusing(Status::PermissionDenied, false),
        }
    }

    fn wanted_in_close(&mut self, clause: Clause, role: Role) {
        match (clause, role) {
            (Clause::EndsSharedCell, Role::Witness) => {
                let cell = self.give(Ty::Int, Op::CallGet(self.shared_cell));
                self.push(None, Op::Emit(SinkId(1), vec![(cell, None)]));
            }
            (Clause::EndsTrailers, Role::First) => self.write(),
            _ => {}
        }
    }

    /// Ends the call on a condition, with an answer or without.
    fn refusing(&mut self, status: Status, answers: bool) {
        let by = self.condition();
        let join = self.branch(by);
        if answers {
            self.answer();
        }
        let end = self.refusal(status);
        self.end(end);
        self.at = join;
    }

    /// Sets the target on a condition.
    fn redirecting(&mut self) {
        let by = self.condition();
        let join = self.branch(by);
        let to = self.give(Ty::Bytes, Op::BytesConst(vec![b'x' + self.index as u8 % 2]));
        *self.line += 1;
        let line = *self.line;
        self.end(Terminator::Redirect { to, line });
        self.at = join;
    }

    fn answer(&mut self) {
        let value = self.give(Ty::Bytes, Op::BytesConst(vec![b'0' + self.index as u8]));
        self.push(None, Op::SetAnswer(NameId(self.index as u16 % 2), value));
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

    /// Sets an input as lowered code does: a member of the oneof displaces the other.
    fn set(&mut self, input: InputId, value: Value) {
        self.push(None, Op::SetInput(input, value));
        for other in displaced_by(input).into_iter().flatten() {
            self.push(None, Op::ClearInput(other));
        }
    }

    /// Packs or unpacks the text, and often reads it besides.
    fn transform(&mut self, by: NativeId) {
        if self.rng.percent(35) {
            self.text();
        }
        let made = self.call_native(by, TEXT);
        if self.rng.percent(8) {
            let length = self.give(Ty::Int, Op::Len(made));
            self.push(None, Op::Emit(SinkId(0), vec![(length, None)]));
        }
        self.push(None, Op::SetInput(TEXT, made));
        if self.rng.percent(15) {
            self.text();
        }
    }

    /// Calls a function with an input, and fails if it fails or its result does not fit, as lowered code does.
    fn call_native(&mut self, by: NativeId, input: InputId) -> Value {
        let text = self.give(Ty::Bytes, Op::Input(input));
        let made = self.give(Ty::Bytes, Op::Native(by, vec![text]));
        let failed = self.give(Ty::Bool, Op::NativeFailed(made));
        let full = self.give(Ty::Bool, Op::ScratchFull);
        let failed = self.give(Ty::Bool, Op::BoolBinary(BoolOp::Or, failed, full));
        let join = self.branch(failed);
        *self.line += 1;
        let line = *self.line;
        let fault = self.give(Ty::Int, Op::IntConst(fault_code(Fault::FunctionFailed)));
        self.end(Terminator::Fail { fault, line });
        self.at = join;
        made
    }

    /// Branches to a new block on a condition; returns the block where both sides join.
    fn branch(&mut self, by: Value) -> usize {
        let (yes, join) = (self.block(), self.block());
        let to = |block: usize| Jump { block: BlockId(block as u32), args: Vec::new() };
        self.end(Terminator::Branch(by, to(yes), to(join)));
        self.at = yes;
        join
    }

    /// Reads or sets the text.
    fn text(&mut self) {
        match self.rng.below(5) {
            0 => {
                let text = self.rng.pick(&[&b"a"[..], b"6162", b""]).to_vec();
                let text = self.give(Ty::Bytes, Op::BytesConst(text));
                self.push(None, Op::SetInput(TEXT, text));
            }
            1 => drop(self.call_native(UNPACK, TEXT)),
            2 => {
                let length = self.length();
                let id = self.input();
                self.set(id, length);
            }
            3 => {
                let length = self.length();
                self.push(None, Op::Emit(SinkId(0), vec![(length, None)]));
            }
            _ => {
                let length = self.length();
                let limit = self.rng.pick(&[0, 3, 6]);
                let limit = self.give(Ty::Int, Op::IntConst(limit));
                let by = self.give(Ty::Bool, Op::IntCompare(IntCmp::SLt, limit, length));
                let join = self.branch(by);
                let end = self.refusal(Status::PermissionDenied);
                self.end(end);
                self.at = join;
            }
        }
    }

    /// An abort; in CLOSE, which has no verdict, an error.
    fn refusal(&mut self, status: Status) -> Terminator {
        *self.line += 1;
        let line = *self.line;
        if self.kind == Kind::Close {
            let fault = self.give(Ty::Int, Op::IntConst(fault_code(Fault::Overflow)));
            return Terminator::Fail { fault, line };
        }
        Terminator::Abort { status: StatusOperand::Known(status), text: None, line }
    }

    /// The length of the text, or the size of the message.
    fn length(&mut self) -> Value {
        if self.rng.percent(30) {
            return self.give(Ty::Int, Op::Derived(SIZE));
        }
        let text = self.give(Ty::Bytes, Op::Input(TEXT));
        self.give(Ty::Int, Op::Len(text))
    }

    /// A statement on a condition; it may end the tuple.
    fn guarded(&mut self) {
        let by = self.condition();
        let join = self.branch(by);
        let percent = if self.is_long { 35 } else { 55 };
        let verdict = if self.rng.percent(percent) { self.verdict() } else { None };
        match verdict {
            Some(verdict) => self.end(verdict),
            None => {
                self.statement();
                self.end(Terminator::Jump(Jump { block: BlockId(join as u32), args: Vec::new() }));
            }
        }
        self.at = join;
    }

    fn has_tuple(&self) -> bool {
        self.kind != Kind::Every
    }

    fn condition(&mut self) -> Value {
        let number = match self.rng.below(6) {
            0 if self.has_tuple() => self.list(),
            1..3 if self.has_tuple() => self.read(),
            3 => {
                let var = self.plain();
                self.give(Ty::Int, Op::VarGet(var))
            }
            4 => self.column(),
            5 if self.kind != Kind::Every && self.rng.percent(20) => {
                return self.give(Ty::Bool, Op::ScratchFull);
            }
            _ => {
                let site = self.rng.bits();
                let (drawn, half) =
                    (self.give(Ty::Float, Op::Rand(site)), self.give(Ty::Float, Op::FloatConst(0.5)));
                return self.give(Ty::Bool, Op::FloatCompare(FloatCmp::Lt, drawn, half));
            }
        };
        match self.rng.below(8) {
            0 => return self.one_of(number),
            1 if self.has_tuple() => {
                let id = InputId(self.rng.pick(&[1, 3]));
                return self.give(Ty::Bool, Op::InputPresent(id));
            }
            2 if self.has_tuple() => {
                let id = InputId(self.rng.pick(&[1, 3]));
                let present = self.give(Ty::Bool, Op::InputPresent(id));
                return self.give(Ty::Bool, Op::Not(present));
            }
            _ => {}
        }
        let limit = self.rng.pick(&[0, 1, 7]);
        let limit = self.give(Ty::Int, Op::IntConst(limit));
        let op = match self.rng.below(5) {
            0 => Op::IntCompare(IntCmp::SLe, limit, number),
            1 => Op::IntCompare(IntCmp::Eq, number, limit),
            2 => Op::IntCompare(IntCmp::Ne, limit, number),
            _ => Op::IntCompare(IntCmp::SLt, number, limit),
        };
        self.give(Ty::Bool, op)
    }

    /// The length of the list, or the number of its elements above a limit, as lowered code computes it.
    fn list(&mut self) -> Value {
        let list = self.give(Ty::Bytes, Op::Input(LIST));
        let [zero, one] = [0, 1].map(|n| self.give(Ty::Int, Op::IntConst(n)));
        let n = self.give(Ty::Int, Op::WordAt(list, zero));
        if self.rng.percent(40) {
            return n;
        }
        let most = self.give(Ty::Int, Op::IntConst(LIST_MAX));
        let fits = self.give(Ty::Bool, Op::IntCompare(IntCmp::ULe, n, most));
        let n = self.give(Ty::Int, Op::Select(fits, n, zero));
        let [stride, limit] = [CELL_BYTES as i64, 7].map(|number| self.give(Ty::Int, Op::IntConst(number)));
        let first = self.give(Ty::Int, Op::IntConst(HEAD_BYTES as i64));
        let [head, body, exit] = [(); 3].map(|()| self.block());
        let to = |block: usize, args: Vec<Value>| Jump { block: BlockId(block as u32), args };
        self.end(Terminator::Jump(to(head, vec![zero, zero])));

        self.at = head;
        let params = [(); 2].map(|()| {
            self.function.types.push(Ty::Int);
            Value(self.function.types.len() as u32 - 1)
        });
        let of_head = &mut self.function.blocks[head];
        (of_head.params, of_head.scan_rows_max) = (params.into(), Some(LIST_MAX as u64));
        let [at, found] = params;
        let more = self.give(Ty::Bool, Op::IntCompare(IntCmp::SLt, at, n));
        self.end(Terminator::Branch(more, to(body, Vec::new()), to(exit, Vec::new())));

        self.at = body;
        let place = self.give(Ty::Int, Op::IntBinary(IntOp::Mul, at, stride));
        let place = self.give(Ty::Int, Op::IntBinary(IntOp::Add, place, first));
        let element = self.give(Ty::Int, Op::WordAt(list, place));
        let is_above = self.give(Ty::Bool, Op::IntCompare(IntCmp::SLt, limit, element));
        let counted = self.give(Ty::Int, Op::BoolToInt(is_above));
        let found_next = self.give(Ty::Int, Op::IntBinary(IntOp::Add, found, counted));
        let next = self.give(Ty::Int, Op::IntBinary(IntOp::Add, at, one));
        self.end(Terminator::Jump(to(head, vec![next, found_next])));
        self.at = exit;
        found
    }

    /// Whether a number is one of two, or in a range and one of the two or neither.
    fn one_of(&mut self, number: Value) -> Value {
        let is = |maker: &mut Self, cmp: IntCmp| {
            let than = maker.rng.pick(&[0, 1, 2, 7]);
            let than = maker.give(Ty::Int, Op::IntConst(than));
            maker.give(Ty::Bool, Op::IntCompare(cmp, number, than))
        };
        let (a, b) = (is(self, IntCmp::Eq), is(self, IntCmp::Eq));
        let either = self.give(Ty::Bool, Op::BoolBinary(BoolOp::Or, a, b));
        if self.rng.percent(60) {
            return either;
        }
        let within = is(self, IntCmp::SLe);
        let other = if self.rng.percent(50) { self.give(Ty::Bool, Op::Not(either)) } else { either };
        self.give(Ty::Bool, Op::BoolBinary(BoolOp::And, within, other))
    }

    fn verdict(&mut self) -> Option<Terminator> {
        if !self.has_tuple() {
            return None;
        }
        // Most elements of a long chain refuse in the same way.
        if self.kind == Kind::Close || self.is_long && self.rng.percent(55) {
            return Some(self.refusal(Status::PermissionDenied));
        }
        *self.line += 1;
        let line = *self.line;
        Some(match self.rng.below(12) {
            0 => Terminator::Drop { line },
            1 => Terminator::Reply { line },
            2 => {
                let code =
                    if self.rng.percent(50) { self.read() } else { self.give(Ty::Int, Op::IntConst(3)) };
                Terminator::Abort { status: StatusOperand::Computed(code), text: None, line }
            }
            3 | 10 | 11 => {
                let fault = fault_code(self.rng.pick(Fault::ALL));
                let fault = self.give(Ty::Int, Op::IntConst(fault));
                Terminator::Fail { fault, line }
            }
            4..8 if self.kind != Kind::Response => {
                let to = self.rng.pick(&[&b"x"[..], b"y"]).to_vec();
                let to = self.give(Ty::Bytes, Op::BytesConst(to));
                Terminator::Redirect { to, line }
            }
            _ => {
                let status =
                    self.rng.pick(&[Status::PermissionDenied, Status::PermissionDenied, Status::Unavailable]);
                Terminator::Abort { status: StatusOperand::Known(status), text: None, line }
            }
        })
    }

    fn statement(&mut self) {
        let tuple = self.has_tuple();
        if self.is_long && self.rng.percent(50) {
            return match self.rng.below(3) {
                0 => self.var(),
                1 if tuple => self.call(),
                _ if tuple => self.write(),
                _ => self.var(),
            };
        }
        match self.rng.below(32) {
            28 | 29 => self.send(),
            30 | 31 if tuple => self.text(),
            0..3 if tuple => self.write(),
            4 | 18 | 27 if tuple => {
                let by = self.give(Ty::Int, Op::IntConst(5));
                self.push(None, Op::Delay(by));
            }
            5 if tuple => {
                let mark = self.give(Ty::Int, Op::IntConst(self.index as i64));
                self.push(None, Op::Mark(Mark::Class, mark));
            }
            6 | 16 if tuple => {
                let to = self.give(Ty::Bytes, Op::BytesConst(vec![b'a' + self.index as u8]));
                self.push(None, Op::Mirror(to));
            }
            7 if tuple => self.answer(),
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
                    self.set(InputId(3), value);
                }
            }
            13 => self.insert(),
            14 if tuple => self.call(),
            15 | 17 | 20..22 if tuple => self.concat(),
            _ => self.update(),
        }
    }

    /// A numeric input.
    fn input(&mut self) -> InputId {
        if self.is_long && self.rng.percent(80) {
            return InputId((4 + self.index % OWN_INPUTS) as u16);
        }
        InputId(self.rng.pick(&[0, 1, 3]))
    }

    /// A variable without MERGE.
    fn plain(&mut self) -> VarId {
        VarId(if self.is_long && self.rng.percent(80) { 2 + self.index as u16 } else { 0 })
    }

    /// An input, as a number.
    fn read(&mut self) -> Value {
        let id = self.input();
        self.give(Ty::Int, Op::Input(id))
    }

    fn write(&mut self) {
        let id = self.input();
        if id.0 == 1 && self.rng.percent(30) {
            return self.push(None, Op::ClearInput(id));
        }
        let value = match self.rng.percent(50) {
            true => self.read(),
            false => self.give(Ty::Int, Op::IntConst(self.index as i64 + 10)),
        };
        let one = self.give(Ty::Int, Op::IntConst(1));
        let value = self.give(Ty::Int, Op::IntBinary(IntOp::Add, value, one));
        self.set(id, value);
    }

    /// Sends a row to a table, or reads it; sometimes on a condition.
    fn send_or_look(&mut self) {
        let join = self.rng.percent(30).then(|| {
            let by = self.condition();
            self.branch(by)
        });
        if self.rng.percent(65) {
            self.send();
        } else {
            let key = self.give(Ty::Int, Op::IntConst(1));
            let row = self.give(Ty::Row, Op::Find(SENT, key));
            let value = self.give(Ty::Int, Op::Column(SENT, row, ColumnId(1)));
            self.set(InputId((4 + self.index % OWN_INPUTS) as u16), value);
        }
        if let Some(join) = join {
            self.end(Terminator::Jump(Jump { block: BlockId(join as u32), args: Vec::new() }));
            self.at = join;
        }
    }

    /// Sends a row to a table, or deletes one.
    fn send(&mut self) {
        let sink = self.rng.pick(&TO_TABLES);
        let key = self.rng.below(3) as i64;
        let key = self.give(Ty::Int, Op::IntConst(key));
        let n = self.give(Ty::Int, Op::IntConst(self.index as i64));
        let row = if DELETING.contains(&sink) { vec![(key, None)] } else { vec![(key, None), (n, None)] };
        self.push(None, Op::Emit(sink, row));
    }

    fn emit(&mut self) {
        let sink = SinkId(self.rng.pick(&[0, 0, 1, 2]));
        let n = match self.has_tuple() && self.rng.percent(15) {
            true => self.list(),
            false => self.give(Ty::Int, Op::IntConst(self.index as i64)),
        };
        self.push(None, Op::Emit(sink, vec![(n, None)]));
    }

    fn var(&mut self) {
        let var = self.plain();
        let (old, two) = (self.give(Ty::Int, Op::VarGet(var)), self.give(Ty::Int, Op::IntConst(2)));
        let new = self.give(Ty::Int, Op::IntBinary(IntOp::Mul, old, two));
        self.push(None, Op::VarSet(var, new, Journal::Yes));
    }

    /// A table and one of its keys.
    fn key(&mut self) -> (TableId, Value) {
        let table = TableId(self.rng.below(2) as u16);
        let key = match (table.0, self.has_tuple() && self.rng.percent(40)) {
            (0, true) => self.read(),
            (0, false) => {
                let n = self.rng.below(2) as i64;
                self.give(Ty::Int, Op::IntConst(n))
            }
            _ => {
                let text = self.rng.pick(&[&b"a"[..], b"b", b"c"]).to_vec();
                self.give(Ty::Bytes, Op::BytesConst(text))
            }
        };
        (table, key)
    }

    fn column(&mut self) -> Value {
        if self.rng.percent(25) {
            let key = self.rng.below(3) as i64;
            let key = self.give(Ty::Int, Op::IntConst(key));
            let table = self.rng.pick(&[RIGHTS, SENT]);
            let row = self.give(Ty::Row, Op::Find(table, key));
            return self.give(Ty::Int, Op::Column(table, row, ColumnId(1)));
        }
        let (table, key) = self.key();
        let row = self.give(Ty::Row, Op::Find(table, key));
        if self.rng.percent(30) {
            self.push(None, Op::TouchRead(table, row));
        }
        let column = ColumnId(1 + self.rng.below(2) as u16);
        self.give(Ty::Int, Op::Column(table, row, column))
    }

    fn update(&mut self) {
        let (table, key) = self.key();
        let row = self.give(Ty::Row, Op::Find(table, key));
        let value = self.give(Ty::Int, Op::IntConst(self.index as i64 + 1));
        let column = ColumnId(1 + self.rng.below(2) as u16);
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
        let cell = CallId(if self.rng.percent(80) { self.index as u16 } else { 0 });
        if self.rng.percent(50) {
            let value = self.read();
            return self.push(None, Op::CallSet(cell, value, Journal::Yes));
        }
        let value = self.give(Ty::Int, Op::CallGet(cell));
        let id = self.input();
        self.set(id, value);
    }

    /// Text that sometimes does not fit.
    fn concat(&mut self) {
        let text = self.give(Ty::Bytes, Op::Input(InputId(2)));
        let text = self.give(Ty::Bytes, Op::Concat(vec![text, text]));
        let length = self.give(Ty::Int, Op::Len(text));
        let id = InputId(self.rng.pick(&[0, 3]));
        self.set(id, length);
    }
}
