//! The Cranelift back end: one machine-code function for each segment of a chain, for each handler of a queue, and
//! for the short way of packets through one.
//!
//! [`Jit`] is a [`Backend`]. What its code does is what the interpreters of `weft-ir` do; `tests/agree.rs` and
//! `tests/queues.rs` hold them against each other on generated programs.
//!
//! Unsafe code is here and in `weft-io` alone. These facts carry it:
//! * A function is translated only after the verifier has accepted it, so its values have the types that the
//!   translation assumes.
//! * [`Segment::run`] checks the shape of what it is given (slots, counters, call row, tables) before it runs the
//!   code, so that all offsets in the code lie within.
//! * Code appends to the vectors of the outcome itself. How vectors are laid out is found out, not assumed, and a
//!   machine on which it cannot be is refused ([`Jit::new`]).
//! * Code writes to a frame that it was given for that ([`Program::run_on`], [`Program::pass_all`]), at offsets that it
//!   has held against its length, and at the end of a pass, when nothing reads the frame any more; and in front of it
//!   no farther than the pass says that there is room ([`Cx::front`]).
//! * The frames of a batch have the same shape: [`weft_ir::batch`] gives each pass as many slots as the batch says.
//! * The code for usual frames reads and writes at offsets that are known when it is made without asking whether they
//!   are in the frame: no farther than [`verify::exits`] has proven of all frames that come there.
//! * Short bytes are read by whole words. What is behind them is cut off or overwritten, and never read where it
//!   would be in another page.
//! * Code and the constants that it points to belong to the [`Segment`] and die with it.
//! * Notes that lead to rows are written by the code that reads them and by `ahead` alone, for the state that it runs
//!   on ([`weft_core::ahead`]).
//! * The same holds for [`CompiledQueue`], which counts the words that each handler touches when it is compiled, and
//!   looks whether they are there before it runs one. The code of the short way through a queue holds the lengths of
//!   the vectors that it is given against what the program has, and ids against those, before they are addresses.

#![allow(unsafe_code, reason = "running generated machine code is unsafe by nature")]

mod ahead;
mod arithmetic;
mod cold;
mod frame;
mod helpers;
mod memory;
mod queue;
mod text;
mod translate;

pub use queue::CompiledQueue;

use ahead::{Asks, WORDS_NOTED_MAX};
use core::cell::RefCell;
use core::fmt;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use frame::{AheadAllEntry, AheadEntry, Entry, Frames, VecWords};
use memory::Code;
use std::sync::Arc;
use translate::analysis::table_of;
use translate::{Constants, Plan, UsualWay};
use weft_core::abi::{CodeId, Cx, REGION_BODY, Slot, State};
use weft_core::ahead::Notes;
use weft_core::frame::BATCH_MAX;
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::batch::{ExecBatch, FusedBatch, OutcomeSink, ParseBatch, PrefetchBatch, Progress, RawBatch};
use weft_ir::ir::{Function, Op};
use weft_ir::program::{ChainProgram, Event};
use weft_ir::queue::{QueueCode, QueueProgram};
use weft_ir::verify::{self, Handler};

/// The back end that compiles to machine code.
#[derive(Clone)]
pub struct Jit {
    isa: OwnedTargetIsa,
    vec_words: VecWords,
    clock: Option<fn() -> u64>,
    always_looks_ahead: bool,
}

impl Jit {
    /// A back end for this machine.
    ///
    /// # Errors
    /// The machine is not one that Cranelift generates code for, or not one with 64-bit little-endian words.
    pub fn new() -> Result<Self, Unsupported> {
        let refused = |reason: String| Unsupported { reason, line: 0 };
        if cfg!(not(all(target_pointer_width = "64", target_endian = "little", unix))) {
            return Err(refused("compiled code needs a 64-bit little-endian Unix machine".into()));
        }
        if !frame::slices_are_as_expected() {
            return Err(refused("slices are laid out in a way that compiled code does not know".into()));
        }
        let unknown = || refused("vectors are laid out in a way that compiled code does not know".into());
        let vec_words = frame::vec_words().ok_or_else(unknown)?;
        let mut flags = settings::builder();
        let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
        let set = [
            ("opt_level", "speed"),
            ("enable_verifier", verifier),
            ("unwind_info", "false"),
            ("enable_probestack", "false"),
        ];
        for (name, value) in set {
            flags.set(name, value).map_err(|error| refused(error.to_string()))?;
        }
        let isa = cranelift_native::builder()
            .map_err(|error| refused(error.to_string()))?
            .finish(settings::Flags::new(flags))
            .map_err(|error| refused(error.to_string()))?;
        cold::prepare(&isa);
        Ok(Self { isa, vec_words, clock: None, always_looks_ahead: false })
    }

    /// Measures with this clock (nanoseconds) how long it takes to compile: [`Segment::compile_ns`].
    pub fn with_clock(self, clock: fn() -> u64) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Compiles what looks ahead for requests of all chains, not only for those on frames, which come in batches, and
    /// looks into all tables, be they ever so small: for tests.
    pub fn looking_ahead(self) -> Self {
        Self { always_looks_ahead: true, ..self }
    }

    /// As [`Backend::compile`], with the type that tells more.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    pub fn compile_segment(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Segment, Unsupported> {
        let began = self.clock.map(|clock| clock());
        for part in chain.parts(event) {
            accept(part.function, chain, event)?;
        }
        let shape = Shape::of(chain, event, state)?;
        let Self { isa, vec_words, .. } = self;
        let target = isa.frontend_config();
        let (vec_words, always_looks_ahead) = (*vec_words, self.always_looks_ahead);
        let mut plan =
            Plan { chain, event, state, isa, vec_words, target, always_looks_ahead, asks: Vec::new() };
        let looks_ahead = event == Event::Request && (always_looks_ahead || chain.frames.is_some());
        let asks_tables = !(shape.tables.is_empty() && shape.matches.is_empty());
        let ahead = (looks_ahead && asks_tables).then(|| Ahead::compile(isa, &mut plan));
        let ahead = ahead.transpose()?.flatten();
        let translate = |builder: FunctionBuilder<'_>| translate::translate(&plan, builder);
        let (code, constants) = WORKSPACE.with_borrow_mut(|workspace| workspace.code(isa, translate))?;
        // What puts headers in front of frames is given the room there, by all that runs it.
        let has_usual = event == Event::Request && !constants.puts_in_front;
        let usual = has_usual.then(|| OfUsual::compile(&plan, ahead.is_some())).transpose()?.flatten();
        let compile_ns = began.zip(self.clock).map_or(0, |(began, clock)| clock().saturating_sub(began));
        Ok(Segment {
            name: chain.name.clone(),
            event,
            changes_frames: translate::changes_frames(&plan),
            puts_in_front: constants.puts_in_front,
            shape,
            code,
            _constants: constants,
            ahead,
            usual,
            compile_ns,
        })
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "jit for {}", self.isa.triple())
    }
}

impl Backend for Jit {
    fn name(&self) -> &'static str {
        "jit"
    }

    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported> {
        Ok(Box::new(self.compile_segment(chain, event, state)?))
    }

    fn compile_queue(&self, program: &Arc<QueueProgram>) -> Result<Arc<dyn QueueCode>, Unsupported> {
        // Of the type, not of the trait.
        Ok(Arc::new(Self::compile_queue(self, program)?))
    }
}

thread_local! {
    /// What Cranelift allocates, kept from one segment to the next: most of the cost of a small one.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

struct Workspace {
    context: Context,
    builder: FunctionBuilderContext,
}

impl Default for Workspace {
    fn default() -> Self {
        Self { context: Context::new(), builder: FunctionBuilderContext::new() }
    }
}

impl Workspace {
    /// Machine code in memory of its own.
    fn code<T>(
        &mut self,
        isa: &OwnedTargetIsa,
        translate: impl FnOnce(FunctionBuilder<'_>) -> Result<T, Unsupported>,
    ) -> Result<(Code, T), Unsupported> {
        let made = self.translate(translate)?;
        Ok((self.translated(isa)?, made))
    }

    /// Machine code, in memory of its own, of what was translated last.
    fn translated(&mut self, isa: &OwnedTargetIsa) -> Result<Code, Unsupported> {
        let machine = self.machine_code(isa)?;
        Code::new(machine.bytes, machine.align).map_err(|reason| Unsupported { reason, line: 0 })
    }

    /// Machine code, and what the translation returned beside it.
    fn compile<T>(
        &mut self,
        isa: &OwnedTargetIsa,
        translate: impl FnOnce(FunctionBuilder<'_>) -> Result<T, Unsupported>,
    ) -> Result<(MachineCode<'_>, T), Unsupported> {
        let made = self.translate(translate)?;
        Ok((self.machine_code(isa)?, made))
    }

    /// Translates into the function of this place; what the translation returned.
    fn translate<T>(
        &mut self,
        translate: impl FnOnce(FunctionBuilder<'_>) -> Result<T, Unsupported>,
    ) -> Result<T, Unsupported> {
        self.context.clear();
        let made = translate(FunctionBuilder::new(&mut self.context.func, &mut self.builder));
        if made.is_err() {
            // A builder that did not finish leaves its context in disorder.
            self.builder = FunctionBuilderContext::new();
        }
        made
    }

    /// What Cranelift makes of the function of this place.
    fn machine_code(&mut self, isa: &OwnedTargetIsa) -> Result<MachineCode<'_>, Unsupported> {
        let refused = |reason: String| Unsupported { reason, line: 0 };
        let compiled = self
            .context
            .compile(&**isa, &mut ControlPlane::default())
            .map_err(|error| refused(format!("Cranelift refused the code: {:?}", error.inner)))?;
        if !compiled.buffer.relocs().is_empty() {
            return Err(refused("the machine lacks instructions that the code needs".into()));
        }
        let align = u64::from(compiled.buffer.alignment).max(16);
        Ok(MachineCode { bytes: compiled.code_buffer(), align })
    }
}

/// What Cranelift makes of a function: code that needs no relocation.
struct MachineCode<'w> {
    bytes: &'w [u8],
    align: u64,
}

/// A compiled segment.
pub struct Segment {
    name: String,
    event: Event,
    /// The code writes to the frame of a pass.
    changes_frames: bool,
    /// It may write headers into the room in front.
    puts_in_front: bool,
    shape: Shape,
    code: Code,
    /// What `code` points to.
    _constants: Constants,
    ahead: Option<Ahead>,
    usual: Option<OfUsual>,
    compile_ns: u64,
}

/// The code of a segment that looks ahead.
struct Ahead {
    code: Code,
    /// What `code` points to.
    _constants: Constants,
    asks: Asks,
}

impl Ahead {
    /// None if there is nothing to look ahead for. What is asked becomes part of the plan.
    fn compile(isa: &OwnedTargetIsa, plan: &mut Plan<'_>) -> Result<Option<Self>, Unsupported> {
        WORKSPACE.with_borrow_mut(|workspace| {
            let (constants, each) = workspace.translate(|builder| translate::look_ahead(plan, builder))?;
            let asks = Asks::all(&each, plan.always_looks_ahead);
            plan.asks = each;
            if asks.words == 0 {
                return Ok(None);
            }
            Ok(Some(Self { code: workspace.translated(isa)?, _constants: constants, asks }))
        })
    }
}

/// The code that parses usual frames and has them pass, and the one that looks ahead for them, if there is something.
struct OfUsual {
    code: Code,
    ahead: Option<Code>,
    /// What they point to.
    _constants: Vec<Constants>,
}

impl OfUsual {
    /// None if there are no usual frames.
    fn compile(plan: &Plan<'_>, looks_ahead: bool) -> Result<Option<Self>, Unsupported> {
        let parser = plan.chain.parts(Event::Parse).pop().filter(|part| !part.function.blocks.is_empty());
        let Some(parser) = parser else { return Ok(None) };
        accept(parser.function, plan.chain, Event::Parse)?;
        let Some(way) = UsualWay::of(plan, parser) else { return Ok(None) };
        WORKSPACE.with_borrow_mut(|workspace| {
            let translate = |builder: FunctionBuilder<'_>| way.translate(plan, builder);
            let (code, constants) = workspace.code(plan.isa, translate)?;
            let mut of_usual = Self { code, ahead: None, _constants: vec![constants] };
            if looks_ahead {
                let constants = match workspace.translate(|builder| way.look_straight_ahead(plan, builder))? {
                    Some(constants) => constants,
                    None => workspace.translate(|builder| way.look_ahead(plan, builder))?,
                };
                of_usual.ahead = Some(workspace.translated(plan.isa)?);
                of_usual._constants.push(constants);
            }
            Ok(Some(of_usual))
        })
    }
}

/// Has the verifier accept a function.
fn accept(function: &Function, chain: &ChainProgram, event: Event) -> Result<(), Unsupported> {
    verify::verify(function, chain, Handler::of(event)).map_err(|errors| {
        let first = &errors[0];
        Unsupported { reason: format!("not well-formed: {first}"), line: first.line }
    })
}

impl Segment {
    /// Bytes of machine code.
    pub fn code_bytes(&self) -> usize {
        self.code.bytes()
    }

    /// How long it took to compile; 0 if the back end has no clock.
    pub fn compile_ns(&self) -> u64 {
        self.compile_ns
    }
}

impl Segment {
    /// Runs the code on a pass whose shape has been checked, with its notes.
    ///
    /// # Safety
    /// If it changes frames, the address of [`REGION_BODY`] is one through which they may be written, and nobody else
    /// has a reference to them that is used again. The notes are those of this code for the state that the pass has, or
    /// zeros, and no fewer.
    #[inline(always)]
    unsafe fn enter(&self, cx: &mut Cx<'_>, opened: usize, notes: *const u64) {
        // SAFETY: as the caller says.
        unsafe { self.enter_at(&self.code, cx, opened, notes) };
    }

    /// As [`Segment::enter`], for one of the codes of the segment.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn enter_at(&self, code: &Code, cx: &mut Cx<'_>, opened: usize, notes: *const u64) {
        // SAFETY: `code` is a function with this signature, made by `translate` from functions that the verifier
        // accepted. It reads and writes what the pass points to, at offsets that `Shape::check` has found to be inside;
        // all of it is borrowed through `cx` for the time of the call, and of the frame the caller vouches. The notes
        // are those of `fetch` below, as many as it made room for and for the same state; or zeros, and no fewer.
        unsafe {
            let entry: Entry = core::mem::transmute(code.entry());
            entry(cx, opened, notes);
        }
    }

    /// Runs the code on a pass of a frame, behind so many bytes of room, with its notes.
    ///
    /// # Safety
    /// The shape of the pass has been checked; and as for `enter`.
    #[inline(always)]
    unsafe fn enter_on(
        &self,
        code: &Code,
        cx: &mut Cx<'_>,
        (bytes, front): (&mut [u8], usize),
        notes: *const u64,
    ) {
        assert!(front <= bytes.len(), "room is in front of the frame");
        let (len, bytes) = (bytes.len() - front, bytes.as_mut_ptr());
        let _ = bytes.expose_provenance();
        // SAFETY: the bytes are the caller's for as long as this runs, and the pass loses them again below. The code
        // writes to them by their address, whose provenance is exposed, when it does not read them any more: to the
        // frame, and as far in front of it as the pass says, which is not farther than there is room.
        unsafe {
            cx.regions[REGION_BODY] = core::slice::from_raw_parts(bytes.add(front), len);
            self.enter_at(code, cx, usize::MAX, notes);
        }
        cx.regions[REGION_BODY] = &[];
    }

    /// Runs the code that looks ahead on a pass whose shape has been checked.
    ///
    /// # Safety
    /// The shape of the pass has been checked, and the notes are as many as code of this segment writes.
    #[inline(always)]
    unsafe fn note(&self, code: &Code, cx: &mut Cx<'_>, notes: &mut [u64]) {
        // SAFETY: as in `enter`; it changes no frame, and of the notes the caller vouches.
        unsafe {
            let entry: AheadEntry = core::mem::transmute(code.entry());
            entry(cx, 0, notes.as_mut_ptr());
        }
    }

    /// The notes of a pass.
    #[inline(always)]
    fn notes(&self, cx: &Cx<'_>) -> *const u64 {
        if cx.noted.is_none() { NOTHING_NOTED.as_ptr() } else { self.noted(cx) }
    }

    /// The notes of so many passes of a batch, by their numbers behind the first: what was noted for this code and this
    /// state, or zeros, as many. Those of others are zeros, or memory that may not be read.
    #[inline(always)]
    fn notes_of<'n>(
        &self,
        (notes, first): (&'n Notes, usize),
        passes: usize,
        state: &State,
    ) -> impl Fn(usize) -> *const u64 + use<'n> {
        let noted = notes.all(&self.shape.id, state);
        let noted =
            noted.and_then(|(words, each)| Some((words.get(first * each..(first + passes) * each)?, each)));
        let (words, each) = noted.unwrap_or((&NOTHING_NOTED, 0));
        move |nth| words.as_ptr().wrapping_add(nth * each)
    }

    /// The notes of a pass for which something was noted.
    #[inline(never)]
    fn noted(&self, cx: &Cx<'_>) -> *const u64 {
        cx.noted.by(&self.shape.id, cx.state).unwrap_or(&NOTHING_NOTED).as_ptr()
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, event, compile_ns, .. } = self;
        write!(f, "{name} on {event:?}: {} bytes of code, compiled in {compile_ns} ns", self.code_bytes())
    }
}

impl Program for Segment {
    #[inline]
    fn run(&self, cx: &mut Cx<'_>, opened: usize) {
        assert!(!self.changes_frames, "the code changes frames: it is to be given one");
        self.shape.check(cx);
        let notes = self.notes(cx);
        // SAFETY: it changes no frame, the shape of the pass is that of the code, and the notes are its own or zeros.
        unsafe { self.enter(cx, opened, notes) };
    }

    #[inline]
    fn run_on(&self, cx: &mut Cx<'_>, frame: &mut [u8]) {
        self.shape.check(cx);
        let notes = self.notes(cx);
        // SAFETY: the shape of the pass is that of the code, and the notes are its own or zeros.
        unsafe { self.enter_on(&self.code, cx, (frame, 0), notes) };
    }

    fn parse_batch<'a>(&self, cx: &mut Cx<'a>, batch: ParseBatch<'a>) -> u64 {
        assert!(!self.changes_frames, "the code changes frames: it is to be given one");
        self.shape.check_all_but(cx, cx.slots.len(), batch.stride);
        batch.each(cx, |cx| {
            // SAFETY: it changes no frame, and the shape of the pass is that of the code: `each` gives each as many
            // slots as it was told, and all else is as it was above.
            unsafe { self.enter(cx, usize::MAX, NOTHING_NOTED.as_ptr()) }
        })
    }

    fn run_batch<'a>(&self, cx: &mut Cx<'a>, batch: ExecBatch<'a, '_>, leave: &mut dyn OutcomeSink) -> usize {
        self.shape.check_all_but(cx, batch.stride, cx.given.len());
        let notes_of = self.notes_of(batch.notes, batch.frames.len(), cx.state);
        if !self.puts_in_front {
            return batch.each(cx, leave, |cx, frame, nth| {
                // SAFETY: as in `parse_all`, and as `notes_of` says.
                unsafe { self.enter_on(&self.code, cx, (frame, 0), notes_of(nth)) }
            });
        }
        batch.each_with_front(cx, leave, |cx, frame, nth| {
            // SAFETY: as above.
            unsafe { self.enter_on(&self.code, cx, frame, notes_of(nth)) }
        })
    }

    fn has_fast_path(&self) -> bool {
        self.usual.is_some()
    }

    fn look_through<'a>(&self, cx: &mut Cx<'a>, batch: RawBatch<'a>, notes: &mut Notes) {
        let Some(ahead) = self.usual.as_ref().and_then(|usual| usual.ahead.as_ref()) else { return };
        self.shape.check_all_but(cx, batch.stride, batch.stride);
        let Some((notes, each)) = notes.all_mut(&self.shape.id, cx.state) else { return };
        let mut bodies = [&[][..]; BATCH_MAX];
        let n = batch.bodies(&mut bodies).min(notes.len() / each);
        if n == 0 {
            return;
        }
        (cx.given, cx.present) = (batch.slots, batch.always);
        let frames = Frames {
            n,
            bodies: bodies.as_ptr(),
            note_bytes: size_of_val(&notes[..each]),
            slot_bytes: batch.stride * size_of::<Slot>(),
        };
        // SAFETY: as in `parse_all`, for each of the frames: `bodies` has so many, and so have the notes, and there are
        // as many slots. It writes to no slots.
        unsafe {
            let entry: AheadAllEntry = core::mem::transmute(ahead.entry());
            entry(cx, &frames, notes.as_mut_ptr());
        }
    }

    fn run_fused<'a>(
        &self,
        parser: &dyn Program,
        cx: &mut Cx<'a>,
        batch: FusedBatch<'a, '_>,
        leave: &mut dyn OutcomeSink,
    ) -> Progress {
        self.shape.check_all_but(cx, batch.stride, batch.stride);
        let usual = self.usual.as_ref().expect("nobody asks for it where there is no such code");
        let notes_of = self.notes_of((batch.notes, 0), batch.frames.len(), cx.state);
        let by_usual = |cx: &mut Cx<'a>, frame: &mut [u8], nth: usize| {
            // SAFETY: as in `parse_all`, and as `notes_of` says; it writes to as many slots as the shape was held
            // against.
            unsafe { self.enter_on(&usual.code, cx, (frame, 0), notes_of(nth)) }
        };
        batch.each(parser, cx, leave, by_usual, |cx, frame| {
            // SAFETY: as in `parse_all`.
            unsafe { self.enter_on(&self.code, cx, (frame, 0), NOTHING_NOTED.as_ptr()) }
        })
    }

    fn changes_frames(&self) -> bool {
        self.changes_frames
    }

    fn prefetch_pays(&self, state: &State) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.asks.pay(state))
    }

    fn start_ahead(&self, state: &State, tuples: usize, notes: &mut Notes) {
        match &self.ahead {
            Some(ahead) => notes.start(&self.shape.id, state, tuples, ahead.asks.words),
            None => notes.clear(),
        }
    }

    #[inline]
    fn look_ahead(&self, cx: &mut Cx<'_>, nth: usize, notes: &mut Notes) {
        let Some(ahead) = &self.ahead else { return };
        self.shape.check(cx);
        let Some(notes) = notes.of_mut(&self.shape.id, nth) else { return };
        // SAFETY: the shape of the pass is that of the code, and `start_ahead` has made room for its notes.
        unsafe { self.note(&ahead.code, cx, notes) };
    }

    fn look_ahead_all<'a>(&self, cx: &mut Cx<'a>, batch: PrefetchBatch<'a>, notes: &mut Notes) {
        let Some(ahead) = &self.ahead else { return };
        self.shape.check_all_but(cx, batch.stride, cx.given.len());
        batch.each(cx, |cx, nth| {
            let Some(notes) = notes.of_mut(&self.shape.id, nth) else { return };
            // SAFETY: as in `parse_all`, and in `look_ahead`.
            unsafe { self.note(&ahead.code, cx, notes) };
        });
    }

    fn fetch(&self, state: &State, notes: &mut Notes) {
        if let Some((ahead, notes)) = self.ahead.as_ref().zip(notes.all_mut(&self.shape.id, state)) {
            ahead.asks.fetch(state, notes.0);
        }
    }
}

/// The notes of a tuple for which nothing was looked up.
static NOTHING_NOTED: [u64; WORDS_NOTED_MAX] = [0; WORDS_NOTED_MAX];

/// What the code takes for granted of a pass.
#[derive(Debug)]
struct Shape {
    /// By which a state knows the code.
    id: CodeId,
    /// Elements that it counts for; a parser counts as one more.
    elements: usize,
    /// Slots that it reads.
    inputs: usize,
    /// Slots that it gives.
    given: usize,
    call_words: usize,
    /// It reads or writes tables or variables.
    has_state: bool,
    scalars: usize,
    merged: usize,
    natives: usize,
    /// What the code matches.
    matches: Vec<Matched>,
    /// The tables that the code works on, and the fingerprints of their layouts.
    tables: Vec<(usize, u64)>,
}

impl Shape {
    /// # Errors
    /// The state lacks a table of the chain.
    fn of(chain: &ChainProgram, event: Event, state: &State) -> Result<Self, Unsupported> {
        let parts = chain.parts(event);
        let ops =
            || parts.iter().flat_map(|p| &p.function.blocks).flat_map(|b| &b.insts).map(|inst| &inst.op);
        let missing = || Unsupported { reason: "the state lacks a table of the chain".into(), line: 0 };
        let mut tables = Vec::new();
        for at in ops().filter_map(table_of).map(|table| usize::from(table.0)) {
            let fingerprint = state.tables.get(at).ok_or_else(missing)?.fingerprint();
            if !tables.contains(&(at, fingerprint)) {
                tables.push((at, fingerprint));
            }
        }
        // The words that variables of the segment take, by whether they are merged.
        let words = |merge: bool| {
            let used = ops().filter_map(|op| match op {
                Op::VarGet(var) | Op::VarSet(var, ..) | Op::VarMerged(var) => Some(var),
                Op::VarMerge(var, ..) | Op::VarReset(var) => Some(var),
                _ => None,
            });
            let decls = used.filter_map(|var| chain.vars.get(usize::from(var.0)));
            let decls = decls.filter(|decl| decl.merge.is_some() == merge);
            decls.map(|decl| decl.word as usize + 1).max().unwrap_or(0)
        };
        let (scalars, merged) = (words(false), words(true));
        let calls = ops()
            .filter_map(|op| if let Op::Native(id, _) = op { Some(usize::from(id.0) + 1) } else { None });
        let natives = calls.max().unwrap_or(0);
        if state.natives.len() < natives {
            return Err(Unsupported { reason: "the state lacks a function of the chain".into(), line: 0 });
        }
        let mut matches: Vec<Matched> = Vec::new();
        for op in ops() {
            let Op::Match(table, id, _) = op else { continue };
            let lacks = || Unsupported { reason: "the state lacks a matcher of the chain".into(), line: 0 };
            let (matcher, table) = (usize::from(id.0), usize::from(table.0));
            let matched = Matched { matcher, table };
            if !matched.is_in(state) {
                return Err(lacks());
            }
            if !matches.contains(&matched) {
                matches.push(matched);
            }
        }
        let n_inputs = Handler::of(event).direction(chain).map_or(0, |d| d.inputs.len());
        let is_parser = event == Event::Parse;
        Ok(Self {
            id: CodeId::new(),
            elements: chain.elements.len() + usize::from(is_parser),
            inputs: if is_parser { 0 } else { n_inputs },
            given: if is_parser { n_inputs } else { 0 },
            call_words: chain.call_words(),
            has_state: scalars != 0 || merged != 0 || !tables.is_empty() || natives != 0,
            natives,
            scalars,
            merged,
            matches,
            tables,
        })
    }

    /// # Panics
    /// If the pass does not have the shape that the code was compiled for: an error of the engine.
    #[inline(always)]
    fn check(&self, cx: &Cx<'_>) {
        self.check_all_but(cx, cx.slots.len(), cx.given.len());
    }

    /// As [`Shape::check`], of passes that will have so many slots to read, and so many to give.
    #[inline(always)]
    fn check_all_but(&self, cx: &Cx<'_>, slots: usize, given: usize) {
        let fits = slots >= self.inputs
            && given >= self.given
            && cx.call.len() >= self.call_words
            && cx.counters.len() >= self.elements;
        if !fits || self.has_state && !cx.state.is_known_to_fit(&self.id) {
            self.look_at_state(fits, cx.state);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_state(&self, fits: bool, state: &State) {
        if !fits || !self.fits_state(state) {
            Self::misfit();
        }
        state.note_fit(&self.id);
    }

    fn fits_state(&self, state: &State) -> bool {
        let has_table = |(at, fingerprint): &(usize, u64)| {
            state.tables.get(*at).is_some_and(|table| table.fingerprint() == *fingerprint)
        };
        self.tables.iter().all(has_table)
            && self.matches.iter().all(|matched| matched.is_in(state))
            && state.natives.len() >= self.natives
            && (self.scalars == 0 || state.scalars.len() >= self.scalars)
            && (self.merged == 0 || state.merged.len() >= self.merged)
    }

    fn misfit() -> ! {
        panic!("the pass does not have the shape that the segment was compiled for")
    }
}

/// A matcher that the code asks. Which way it asks it is decided with each look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matched {
    /// Its number in the state.
    matcher: usize,
    /// The table whose rows the code takes its rows for.
    table: usize,
}

impl Matched {
    /// Whether the state has it, for the rows of this table.
    #[inline(always)]
    fn is_in(self, state: &State) -> bool {
        let held = state.matchers.get(self.matcher).zip(state.tables.get(self.table));
        held.is_some_and(|(matcher, table)| Arc::ptr_eq(matcher.table(), table))
    }
}
