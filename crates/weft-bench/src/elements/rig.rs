//! Messages in memory, and runners that process them: programs of a backend, or handwritten ones.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::marks::Marks;
use weft_core::rng::Rng;

use weft_core::abi::{Cell, Counters, Cx, EditTarget, Outcome, REGIONS, Slot, State, Verdict};
use weft_core::table::Table;
use weft_core::{Interval, Status, Time, Type, Value, hash};
use weft_engine::state::StateStore;
use weft_ir::backend::{Backend, Program};
use weft_ir::program::{ChainProgram, Direction, Event, Input, InputLocation, Meta};

use crate::twins;

/// Messages of a round. Their columns take some 400 KB: too much for the first-level cache, as in practice.
pub(super) const MESSAGES: usize = 4096;
/// The number of users.
pub(super) const USERS: u64 = 1000;
/// The time between two messages.
const STEP: Interval = Interval::from_micros(1);

/// Runs the passes of a call.
pub(super) trait Runner {
    /// Runs one pass.
    fn run(&mut self, leg: Leg, cx: &mut Cx<'_>, opened: usize);
}

/// The passes of a unary call, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    Request,
    Response,
    Close,
}

impl Leg {
    const ALL: [Self; 3] = [Self::Request, Self::Response, Self::Close];

    /// The event that this part of a call triggers.
    fn event(self) -> Event {
        match self {
            Self::Request => Event::OpenRequest,
            Self::Response => Event::Response,
            Self::Close => Event::Close,
        }
    }
}

/// The programs of all passes of a call.
pub(super) struct Programs {
    legs: [Option<Box<dyn Program>>; 3],
}

impl Programs {
    /// Compiles them, with their own state.
    ///
    /// # Errors
    /// The back end cannot express the chain, or its state cannot be made.
    pub(super) fn compiled(program: ChainProgram, backend: &dyn Backend) -> Result<(Self, State), String> {
        let (program, state) = bind(program)?;
        let codes = backend.compile_all(&program, &Leg::ALL.map(Leg::event), &state);
        let codes = codes.map_err(|error| error.to_string())?;
        let legs = codes.try_into().map_err(|_| "a code for each event".to_owned())?;
        Ok((Self { legs }, state))
    }

    /// The programs of a twin, with the same kind of state.
    ///
    /// # Errors
    /// The state cannot be made.
    pub(super) fn by_hand(program: ChainProgram, twin: twins::Make) -> Result<(Self, State), String> {
        let (program, state) = bind(program)?;
        let legs = Leg::ALL.map(|leg| {
            let is_handled = !program.parts(leg.event()).is_empty();
            is_handled.then(|| twin(&program, &state, leg.event()))
        });
        Ok((Self { legs }, state))
    }
}

/// The program with its tables and variables.
///
/// # Errors
/// The state cannot be made.
pub(super) fn bind(program: ChainProgram) -> Result<(Arc<ChainProgram>, State), String> {
    let store = StateStore::new(1, HashKey::from_seed(1));
    let mut staged = store.stage();
    // All have the same entropy, and so the same nonces: their ciphertexts can be compared.
    let secrets = || weft_native::Secrets { key: Some(&twins::KEY), entropy: twins::ENTROPY };
    let natives = program.natives.iter().map(|decl| weft_native::prepare(decl, &secrets()));
    let natives: Vec<_> = natives.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    staged.give_natives(&program.name, natives);
    let bound = staged.bind(program);
    let (program, bound) = bound.map_err(|error| error.to_string())?;
    Ok((Arc::new(program), bound.for_worker(0)))
}

impl Runner for Programs {
    #[inline(always)]
    fn run(&mut self, leg: Leg, cx: &mut Cx<'_>, opened: usize) {
        if let Some(code) = &self.legs[leg as usize] {
            code.run(cx, opened);
        }
    }
}

/// Does nothing: measures the cost of the rig itself.
pub(super) struct EmptyRunner;

impl Runner for EmptyRunner {
    #[inline(always)]
    fn run(&mut self, _: Leg, cx: &mut Cx<'_>, _: usize) {
        black_box(cx);
    }
}

/// The messages of a round.
pub(super) struct Messages {
    legs: Vec<Leg>,
    n_elements: usize,
    call_words: usize,
    bytes: Vec<u8>,
    request: Columns,
    response: Columns,
}

/// The input columns of one direction, message after message.
struct Columns {
    width: usize,
    slots: Vec<Slot>,
    present: Vec<InputSet>,
}

impl Messages {
    /// Random messages for a chain. One text in `strange_every` is unknown to every table, and some nullable columns
    /// are NULL; with 0 none.
    pub(super) fn new(program: &ChainProgram, payload: Payload, seed: u64, strange_every: u64) -> Self {
        let mut values = ValueSource { payload, rng: Rng::from_seed(seed), strange_every };
        let mut bytes = Vec::new();
        let request = Columns::new(&program.request, &mut values, &mut bytes);
        let response = Columns::new(&program.response, &mut values, &mut bytes);
        let legs = Leg::ALL.into_iter().filter(|leg| !program.parts(leg.event()).is_empty());
        Self {
            legs: legs.collect(),
            n_elements: program.elements.len(),
            call_words: program.call_words(),
            bytes,
            request,
            response,
        }
    }
}

impl Columns {
    fn new(direction: &Direction, values: &mut ValueSource, bytes: &mut Vec<u8>) -> Self {
        let width = direction.inputs.len();
        let (mut slots, mut present) = (Vec::new(), Vec::new());
        for _ in 0..MESSAGES {
            let mut there = InputSet::EMPTY;
            for (index, input) in direction.inputs.iter().enumerate() {
                let is_null = input.nullable && values.strange_every != 0 && values.below(8) == 0;
                slots.push(if is_null { Slot::default() } else { values.slot(input, bytes) });
                there.set(index, !is_null);
            }
            present.push(there);
        }
        Self { width, slots, present }
    }

    #[inline(always)]
    fn of(&self, message: usize) -> (&[Slot], InputSet) {
        (&self.slots[message * self.width..][..self.width], self.present[message])
    }
}

/// Makes the bytes of a column for a name. It may damage those of strangers, whose names begin with [`STRANGER`].
pub(super) type Payload = fn(String) -> Vec<u8>;

/// The prefix of names that no table has.
pub(super) const STRANGER: &str = "stranger";

/// The source of column values.
struct ValueSource {
    payload: Payload,
    rng: Rng,
    strange_every: u64,
}

impl ValueSource {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n as usize) as u64
    }

    /// Draws a random value of this input; its bytes are appended to `bytes`.
    fn slot(&mut self, input: &Input, bytes: &mut Vec<u8>) -> Slot {
        let word = |a| Slot { a, b: 0 };
        match input.place {
            InputLocation::Meta(Meta::Status) => {
                word(u64::from(if self.below(20) == 0 { Status::Unavailable } else { Status::Ok }.code()))
            }
            // A unary call has one message in each direction.
            InputLocation::Meta(Meta::Index) => word(0),
            InputLocation::Meta(Meta::Elapsed) => word(self.below(5_000_000)),
            InputLocation::Meta(Meta::Method) => Self::text(bytes, b"/weft.bench.Elements/Call"),
            _ => match input.ty {
                Type::Text(_) | Type::Bytes(_) | Type::Endpoint => {
                    let is_strange = self.strange_every != 0 && self.below(self.strange_every) == 0;
                    let name = format!("{}{}", if is_strange { STRANGER } else { "u" }, self.below(USERS));
                    let is_payload = matches!(input.ty, Type::Bytes(_));
                    Self::text(bytes, &if is_payload { (self.payload)(name) } else { name.into_bytes() })
                }
                Type::Bool => word(self.below(2)),
                Type::F64 => word((self.below(1 << 20) as f64 / 64.0).to_bits()),
                Type::Status => word(self.below(Status::ALL.len() as u64)),
                _ => word(self.below(1 << 20)),
            },
        }
    }

    fn text(bytes: &mut Vec<u8>, text: &[u8]) -> Slot {
        let a = bytes.len() as u64;
        bytes.extend_from_slice(text);
        Slot { a, b: text.len() as u64 }
    }
}

/// A runner with its clock, state and results.
pub(super) struct Lane<R> {
    runner: R,
    state: State,
    now: Time,
    counters: Vec<Counters>,
    call: Vec<u64>,
    out: Outcome,
    clock: Option<fn() -> u64>,
}

impl<R: Runner> Lane<R> {
    pub(super) fn new(messages: &Messages, runner: R, state: State) -> Self {
        Self {
            runner,
            state,
            now: Time(1_700_000_000_000_000_000),
            counters: vec![Counters::default(); messages.n_elements],
            call: vec![0; messages.call_words],
            out: Outcome::default(),
            clock: None,
        }
    }

    /// The elements' counters after a round in which each pass is timed.
    pub(super) fn traced(&mut self, messages: &Messages) -> Vec<Counters> {
        self.counters.fill(Counters::default());
        self.clock = Some(nanos);
        self.round(messages);
        self.clock = None;
        let without_clock = |counters: &Counters| {
            let measuring = counters.sampled * clock_ns();
            Counters { sampled_ns: counters.sampled_ns.saturating_sub(measuring), ..*counters }
        };
        self.counters.iter().map(without_clock).collect()
    }

    /// Runs all messages once. Returns nanoseconds per message.
    #[inline(never)]
    pub(super) fn round(&mut self, messages: &Messages) -> f64 {
        let began = Instant::now();
        for message in 0..MESSAGES {
            self.call(messages, message, |_, out| {
                black_box(out);
            });
        }
        began.elapsed().as_nanos() as f64 / MESSAGES as f64
    }

    /// The outcomes of `n` messages, and the final state.
    pub(super) fn observe(&mut self, messages: &Messages, n: usize) -> (Vec<PassRecord>, FinalState) {
        let mut seen = Vec::new();
        for message in 0..n {
            self.call(messages, message % MESSAGES, |leg, out| seen.push(PassRecord::of(leg, out)));
        }
        let rows = |table: &Arc<Table>| {
            let mut chunk = Vec::new();
            table.export(0, self.now, u32::MAX, &mut chunk);
            chunk
        };
        let (scalars, merged) = (&self.state.scalars, &self.state.merged);
        let left = FinalState {
            counters: self.counters.clone(),
            tables: self.state.tables.iter().map(rows).collect(),
            scalars: (0..scalars.len()).map(|word| scalars.word(word)).collect(),
            merged: (0..merged.len()).map(|word| merged.word(word)).collect(),
        };
        (seen, left)
    }

    /// Runs one call: its request, its response unless the request ended it, and its end if a handler opened state.
    #[inline(always)]
    fn call(&mut self, messages: &Messages, message: usize, mut after: impl FnMut(Leg, &mut Outcome)) {
        self.now += STEP;
        let mut opened = messages.n_elements;
        for leg in &messages.legs {
            let is_ended = opened < messages.n_elements;
            if is_ended && (*leg == Leg::Response || opened == 0) {
                continue;
            }
            self.pass(*leg, messages, message, opened);
            after(*leg, &mut self.out);
            if *leg == Leg::Request && !matches!(self.out.verdict, Verdict::Forward | Verdict::Redirect) {
                opened = usize::from(self.out.element);
            }
        }
    }

    /// Runs the handlers of one part of a call on one message.
    #[inline(always)]
    fn pass(&mut self, leg: Leg, messages: &Messages, message: usize, opened: usize) {
        let columns = if leg == Leg::Request { &messages.request } else { &messages.response };
        let (slots, present) = columns.of(message);
        self.out.clear();
        let mut cx = Cx {
            rand: hash::hash_word(message as u64),
            slots,
            present,
            regions: [&messages.bytes; REGIONS],
            trace: self.clock,
            ..Cx::new(self.now, &self.state, &mut self.call, &mut self.out, &mut self.counters)
        };
        self.runner.run(leg, &mut cx, opened);
    }
}

/// Nanoseconds since some time in the past.
fn nanos() -> u64 {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The time to read the clock, which is a part of every measured time.
fn clock_ns() -> u64 {
    const READS: u32 = 10_000;
    let began = Instant::now();
    (0..READS).for_each(|_| {
        black_box(nanos());
    });
    began.elapsed().as_nanos() as u64 / u64::from(READS)
}

/// The state after all passes.
#[derive(Debug, PartialEq)]
pub(super) struct FinalState {
    counters: Vec<Counters>,
    /// The rows of each table, with their ages.
    tables: Vec<Vec<u8>>,
    scalars: Vec<u64>,
    merged: Vec<u64>,
}

/// The outcome of a pass, with all bytes copied, so that back ends can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PassRecord {
    leg: Leg,
    verdict: Verdict,
    element: u16,
    text: Vec<u8>,
    edits: Vec<(EditTarget, Value)>,
    rows: Vec<(u16, Vec<Value>)>,
    mirrors: Vec<(Vec<u8>, u32)>,
    delay: Interval,
    marks: Marks,
}

impl PassRecord {
    /// Copies what a pass did, so that two runs can be compared.
    fn of(leg: Leg, out: &mut Outcome) -> Self {
        out.materialize();
        let has_text = matches!(out.verdict, Verdict::Abort(_) | Verdict::Redirect);
        let mut cells = out.cells.iter();
        let mut row = |n: u16| cells.by_ref().take(usize::from(n)).map(|cell| value(out, *cell)).collect();
        Self {
            leg,
            verdict: out.verdict,
            element: out.element,
            text: if has_text { out.text.clone() } else { Vec::new() },
            edits: out.edits.iter().map(|edit| (edit.target, value(out, edit.value))).collect(),
            rows: out.rows.iter().map(|r| (r.sink, row(r.cells))).collect(),
            mirrors: out
                .mirrors
                .iter()
                .map(|m| (out.kept(m.target.0, m.target.1).to_vec(), m.edits))
                .collect(),
            delay: out.delay,
            marks: out.marks,
        }
    }
}

/// Converts a cell of the outcome to a value.
fn value(out: &Outcome, cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Bool(b) => Value::Bool(b),
        Cell::Int(n) => Value::Int(n),
        Cell::Float(x) => Value::Float(x),
        Cell::Bytes(start, len) => Value::Bytes(out.kept(start, len).to_vec()),
    }
}
