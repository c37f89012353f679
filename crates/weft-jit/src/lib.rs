//! The Cranelift backend. It compiles each segment of a chain, each handler of a queue, and the fast path of packets
//! through a queue, to one machine-code function each.
//!
//! [`Jit`] is a [`Backend`]. Compiled code behaves exactly as the interpreters of `weft-ir` do; `tests/agree.rs` and
//! `tests/queues.rs` compare the two on generated programs.
//!
//! Only this crate and `weft-io` contain unsafe code. It relies on these invariants:
//! * Only functions that the verifier accepts are translated, so values have the types that the translation assumes.
//! * [`Segment::run`] checks the shape of its input (slots, counters, call row, tables) before it runs the code, so all
//!   offsets in the code are in bounds.
//! * Code appends to the vectors of the outcome itself. [`Jit::new`] measures the layout of vectors instead of assuming
//!   it, and refuses a machine with an unknown layout.
//! * Code writes only to a frame that the caller passes for this purpose ([`Program::run_on`], [`Program::run_batch`]),
//!   at offsets that it has checked against the frame's length. It writes at the end of a pass, when nothing reads the
//!   frame any more. In front of the frame it writes only into the headroom that the pass declares ([`Cx::front`]).
//! * All frames of a batch have the same shape: [`weft_ir::batch`] gives each pass the number of slots that the batch
//!   declares.
//! * The fast path uses constant frame offsets without a bounds check, but only up to the length that [`verify::exits`]
//!   has proven for every frame that gets there.
//! * Short bytes are read by whole words. Bytes after their end are masked or overwritten, and never read across a page
//!   boundary.
//! * A [`Segment`] owns its code and the constants that the code points to.
//! * Only compiled code and `prefetch` write the prefetch slots that hold row addresses, for the state that the code
//!   runs on ([`weft_core::prefetch`]).
//! * The same holds for [`CompiledQueue`]: it counts at compile time how many words each handler touches, and checks
//!   that they exist before it runs one. The fast path of a queue checks the lengths of its input vectors against the
//!   program, and ids against those lengths, before it computes addresses.

#![allow(unsafe_code, reason = "running generated machine code is unsafe by nature")]

mod arithmetic;
mod cold;
mod frame;
mod helpers;
mod memory;
mod prefetch;
mod queue;
mod text;
mod translate;

pub use queue::CompiledQueue;

use core::cell::RefCell;
use core::fmt;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use frame::{Entry, Frames, PrefetchBatchEntry, PrefetchEntry, VecWords};
use memory::Code;
use prefetch::{PrefetchLayout, SLOT_WORDS_MAX};
use std::sync::Arc;
use translate::analysis::table_of;
use translate::{Constants, FastPath, Plan};
use weft_core::abi::{CodeId, Cx, REGION_BODY, Slot, State};
use weft_core::frame::BATCH_MAX;
use weft_core::prefetch::PrefetchSlots;
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::batch::{ExecBatch, FusedBatch, OutcomeSink, ParseBatch, PrefetchBatch, Progress, RawBatch};
use weft_ir::ir::{Function, Op};
use weft_ir::program::{ChainProgram, Event};
use weft_ir::queue::{QueueCode, QueueProgram};
use weft_ir::verify::{self, Handler};

/// The backend that compiles to machine code.
#[derive(Clone)]
pub struct Jit {
    isa: OwnedTargetIsa,
    vec_words: VecWords,
    clock: Option<fn() -> u64>,
    always_prefetches: bool,
}

impl Jit {
    /// Creates a backend for this machine.
    ///
    /// # Errors
    /// Cranelift does not generate code for this machine, or its words are not 64-bit little-endian.
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
        Ok(Self { isa, vec_words, clock: None, always_prefetches: false })
    }

    /// Measures compile times with this clock (nanoseconds): [`Segment::compile_ns`].
    pub fn with_clock(self, clock: fn() -> u64) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Tests only: prefetches for requests of all chains, not only for those on frames (which come in batches), and
    /// from tables of any size.
    pub fn prefetching_always(self) -> Self {
        Self { always_prefetches: true, ..self }
    }

    /// As [`Backend::compile`], but returns the concrete type.
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
        let (vec_words, always_prefetches) = (*vec_words, self.always_prefetches);
        let mut plan = Plan {
            chain,
            event,
            state,
            isa,
            vec_words,
            target,
            always_prefetches,
            prefetch_layouts: Vec::new(),
        };
        let prefetches = event == Event::Request && (always_prefetches || chain.frames.is_some());
        let uses_tables = !(shape.tables.is_empty() && shape.matches.is_empty());
        let prefetcher = (prefetches && uses_tables).then(|| Prefetcher::compile(isa, &mut plan));
        let prefetcher = prefetcher.transpose()?.flatten();
        let translate = |builder: FunctionBuilder<'_>| translate::translate(&plan, builder);
        let (code, constants) = WORKSPACE.with_borrow_mut(|workspace| workspace.code(isa, translate))?;
        // Code that pushes headers needs headroom, which only the general path gets.
        let may_have_fast_path = event == Event::Request && !constants.puts_in_front;
        let fast_path = may_have_fast_path
            .then(|| FastPathCode::compile(&plan, prefetcher.is_some()))
            .transpose()?
            .flatten();
        let compile_ns = began.zip(self.clock).map_or(0, |(began, clock)| clock().saturating_sub(began));
        Ok(Segment {
            name: chain.name.clone(),
            event,
            changes_frames: translate::changes_frames(&plan),
            puts_in_front: constants.puts_in_front,
            shape,
            code,
            _constants: constants,
            prefetcher,
            fast_path,
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
        // The inherent method, not the trait's.
        Ok(Arc::new(Self::compile_queue(self, program)?))
    }
}

thread_local! {
    /// Cranelift's allocations, reused for all segments: they are most of the cost of compiling a small one.
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
    /// Translates and compiles a function into executable memory of its own.
    fn code<T>(
        &mut self,
        isa: &OwnedTargetIsa,
        translate: impl FnOnce(FunctionBuilder<'_>) -> Result<T, Unsupported>,
    ) -> Result<(Code, T), Unsupported> {
        let made = self.translate(translate)?;
        Ok((self.translated(isa)?, made))
    }

    /// Compiles the last translated function into executable memory of its own.
    fn translated(&mut self, isa: &OwnedTargetIsa) -> Result<Code, Unsupported> {
        let machine = self.machine_code(isa)?;
        Code::new(machine.bytes, machine.align).map_err(|reason| Unsupported { reason, line: 0 })
    }

    /// Returns the machine code, and the result of the translation.
    fn compile<T>(
        &mut self,
        isa: &OwnedTargetIsa,
        translate: impl FnOnce(FunctionBuilder<'_>) -> Result<T, Unsupported>,
    ) -> Result<(MachineCode<'_>, T), Unsupported> {
        let made = self.translate(translate)?;
        Ok((self.machine_code(isa)?, made))
    }

    /// Translates into the workspace's function; returns the result of the translation.
    fn translate<T>(
        &mut self,
        translate: impl FnOnce(FunctionBuilder<'_>) -> Result<T, Unsupported>,
    ) -> Result<T, Unsupported> {
        self.context.clear();
        let made = translate(FunctionBuilder::new(&mut self.context.func, &mut self.builder));
        if made.is_err() {
            // A builder that did not finish leaves its context in an inconsistent state.
            self.builder = FunctionBuilderContext::new();
        }
        made
    }

    /// Compiles the workspace's function to machine code. An error if Cranelift refuses it.
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

/// Compiled code that needs no relocation.
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
    /// The code may write headers into the headroom.
    puts_in_front: bool,
    shape: Shape,
    code: Code,
    /// `code` points to these.
    _constants: Constants,
    prefetcher: Option<Prefetcher>,
    fast_path: Option<FastPathCode>,
    compile_ns: u64,
}

/// The compiled prefetcher of a segment.
struct Prefetcher {
    code: Code,
    /// `code` points to these.
    _constants: Constants,
    layout: PrefetchLayout,
}

impl Prefetcher {
    /// Returns None if there is nothing to prefetch. Adds the prefetch layouts to the plan.
    fn compile(isa: &OwnedTargetIsa, plan: &mut Plan<'_>) -> Result<Option<Self>, Unsupported> {
        WORKSPACE.with_borrow_mut(|workspace| {
            let (constants, each) =
                workspace.translate(|builder| translate::translate_prefetch(plan, builder))?;
            let layout = PrefetchLayout::all(&each, plan.always_prefetches);
            plan.prefetch_layouts = each;
            if layout.words == 0 {
                return Ok(None);
            }
            Ok(Some(Self { code: workspace.translated(isa)?, _constants: constants, layout }))
        })
    }
}

/// Code that parses common-case frames and runs their passes, and its prefetcher, if there is something to prefetch.
struct FastPathCode {
    code: Code,
    prefetch: Option<Code>,
    /// The code points to these.
    _constants: Vec<Constants>,
}

impl FastPathCode {
    /// Compiles the fast path and its prefetcher. None if the chain has no common-case frames.
    fn compile(plan: &Plan<'_>, prefetches: bool) -> Result<Option<Self>, Unsupported> {
        let parser = plan.chain.parts(Event::Parse).pop().filter(|part| !part.function.blocks.is_empty());
        let Some(parser) = parser else { return Ok(None) };
        accept(parser.function, plan.chain, Event::Parse)?;
        let Some(path) = FastPath::of(plan, parser) else { return Ok(None) };
        WORKSPACE.with_borrow_mut(|workspace| {
            let translate = |builder: FunctionBuilder<'_>| path.translate(plan, builder);
            let (code, constants) = workspace.code(plan.isa, translate)?;
            let mut fast_path = Self { code, prefetch: None, _constants: vec![constants] };
            if prefetches {
                let constants =
                    match workspace.translate(|builder| path.translate_straight_prefetch(plan, builder))? {
                        Some(constants) => constants,
                        None => workspace.translate(|builder| path.translate_prefetch(plan, builder))?,
                    };
                fast_path.prefetch = Some(workspace.translated(plan.isa)?);
                fast_path._constants.push(constants);
            }
            Ok(Some(fast_path))
        })
    }
}

/// Verifies a function; an error with its first fault if it is not well-formed.
fn accept(function: &Function, chain: &ChainProgram, event: Event) -> Result<(), Unsupported> {
    verify::verify(function, chain, Handler::of(event)).map_err(|errors| {
        let first = &errors[0];
        Unsupported { reason: format!("not well-formed: {first}"), line: first.line }
    })
}

impl Segment {
    /// Size of the machine code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.code.bytes()
    }

    /// Compile time; 0 if the backend has no clock.
    pub fn compile_ns(&self) -> u64 {
        self.compile_ns
    }
}

impl Segment {
    /// Runs the code on a pass whose shape has been checked, with its prefetch slots.
    ///
    /// # Safety
    /// If the code changes frames, the address in [`REGION_BODY`] permits writes, and no other reference to the frame
    /// is used afterwards. The prefetch slots are those of this code for the state of the pass, or zeros, and as many
    /// as the code reads.
    #[inline(always)]
    unsafe fn enter(&self, cx: &mut Cx<'_>, opened: usize, prefetched: *const u64) {
        // SAFETY: as the caller says.
        unsafe { self.enter_at(&self.code, cx, opened, prefetched) };
    }

    /// As [`Segment::enter`], for one of the functions of the segment.
    ///
    /// # Safety
    /// As for `enter`.
    #[inline(always)]
    unsafe fn enter_at(&self, code: &Code, cx: &mut Cx<'_>, opened: usize, prefetched: *const u64) {
        // SAFETY: `code` is a function with this signature, made by `translate` from functions that the verifier
        // accepted. It accesses what the pass points to, at offsets that `Shape::check` has checked; all of it is
        // borrowed through `cx` for the time of the call, and the caller guarantees the frame. The prefetch slots are
        // those of `fetch` below, as many as it reserved and for the same state, or as many zeros.
        unsafe {
            let entry: Entry = core::mem::transmute(code.entry());
            entry(cx, opened, prefetched);
        }
    }

    /// Runs the code on a pass of a frame that begins after `front` bytes of headroom, with its prefetch slots.
    ///
    /// # Safety
    /// The shape of the pass has been checked; and as for `enter`.
    #[inline(always)]
    unsafe fn enter_on(
        &self,
        code: &Code,
        cx: &mut Cx<'_>,
        (bytes, front): (&mut [u8], usize),
        prefetched: *const u64,
    ) {
        assert!(front <= bytes.len(), "the headroom precedes the frame");
        let (len, bytes) = (bytes.len() - front, bytes.as_mut_ptr());
        let _ = bytes.expose_provenance();
        // SAFETY: the bytes are borrowed for this call, and the pass loses them again below. The code writes to them by
        // address, whose provenance is exposed, after its last read: to the frame, and to the headroom as far as the
        // pass declares, which is at most its length.
        unsafe {
            cx.regions[REGION_BODY] = core::slice::from_raw_parts(bytes.add(front), len);
            self.enter_at(code, cx, usize::MAX, prefetched);
        }
        cx.regions[REGION_BODY] = &[];
    }

    /// Runs a prefetcher on a pass whose shape has been checked.
    ///
    /// # Safety
    /// The shape of the pass has been checked, and `prefetched` has as many words as the prefetcher writes.
    #[inline(always)]
    unsafe fn run_prefetch(&self, code: &Code, cx: &mut Cx<'_>, prefetched: &mut [u64]) {
        // SAFETY: as in `enter`; it changes no frame, and the caller guarantees the prefetch slots.
        unsafe {
            let entry: PrefetchEntry = core::mem::transmute(code.entry());
            entry(cx, 0, prefetched.as_mut_ptr());
        }
    }

    /// The prefetch slots of a pass.
    #[inline(always)]
    fn prefetched(&self, cx: &Cx<'_>) -> *const u64 {
        if cx.prefetched.is_none() { NOTHING_PREFETCHED.as_ptr() } else { self.prefetched_slots(cx) }
    }

    /// The prefetch slots of `passes` passes of a batch, by their index after the first: those of this code and this
    /// state, or as many zeros. For other indexes they are zeros, or memory that must not be read.
    #[inline(always)]
    fn prefetched_of<'n>(
        &self,
        (prefetched, first): (&'n PrefetchSlots, usize),
        passes: usize,
        state: &State,
    ) -> impl Fn(usize) -> *const u64 + use<'n> {
        let found = prefetched.all(&self.shape.id, state);
        let found =
            found.and_then(|(words, each)| Some((words.get(first * each..(first + passes) * each)?, each)));
        let (words, each) = found.unwrap_or((&NOTHING_PREFETCHED, 0));
        move |nth| words.as_ptr().wrapping_add(nth * each)
    }

    /// The prefetch slots of a pass that has some.
    #[inline(never)]
    fn prefetched_slots(&self, cx: &Cx<'_>) -> *const u64 {
        cx.prefetched.words(&self.shape.id, cx.state).unwrap_or(&NOTHING_PREFETCHED).as_ptr()
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
        assert!(!self.changes_frames, "the code changes frames, so it needs one");
        self.shape.check(cx);
        let prefetched = self.prefetched(cx);
        // SAFETY: it changes no frame, the shape of the pass is that of the code, and the prefetch slots are its own or
        // zeros.
        unsafe { self.enter(cx, opened, prefetched) };
    }

    #[inline]
    fn run_on(&self, cx: &mut Cx<'_>, frame: &mut [u8]) {
        self.shape.check(cx);
        let prefetched = self.prefetched(cx);
        // SAFETY: the shape of the pass is that of the code, and the prefetch slots are its own or zeros.
        unsafe { self.enter_on(&self.code, cx, (frame, 0), prefetched) };
    }

    fn parse_batch<'a>(&self, cx: &mut Cx<'a>, batch: ParseBatch<'a>) -> u64 {
        assert!(!self.changes_frames, "the code changes frames, so it needs one");
        self.shape.check_all_but(cx, cx.slots.len(), batch.stride);
        batch.each(cx, |cx| {
            // SAFETY: the code changes no frame, and the shape of the pass is that of the code: `each` gives each pass
            // `stride` slots, and the rest was checked above.
            unsafe { self.enter(cx, usize::MAX, NOTHING_PREFETCHED.as_ptr()) }
        })
    }

    fn run_batch<'a>(&self, cx: &mut Cx<'a>, batch: ExecBatch<'a, '_>, leave: &mut dyn OutcomeSink) -> usize {
        self.shape.check_all_but(cx, batch.stride, cx.given.len());
        let prefetched_of = self.prefetched_of(batch.notes, batch.frames.len(), cx.state);
        if !self.puts_in_front {
            return batch.each(cx, leave, |cx, frame, nth| {
                // SAFETY: as in `parse_all`, and see `notes_of`.
                unsafe { self.enter_on(&self.code, cx, (frame, 0), prefetched_of(nth)) }
            });
        }
        batch.each_with_front(cx, leave, |cx, frame, nth| {
            // SAFETY: as above.
            unsafe { self.enter_on(&self.code, cx, frame, prefetched_of(nth)) }
        })
    }

    fn has_fast_path(&self) -> bool {
        self.fast_path.is_some()
    }

    fn prefetch_raw<'a>(&self, cx: &mut Cx<'a>, batch: RawBatch<'a>, prefetched: &mut PrefetchSlots) {
        let Some(prefetcher) = self.fast_path.as_ref().and_then(|fast_path| fast_path.prefetch.as_ref())
        else {
            return;
        };
        self.shape.check_all_but(cx, batch.stride, batch.stride);
        let Some((prefetched, each)) = prefetched.all_mut(&self.shape.id, cx.state) else { return };
        let mut bodies = [&[][..]; BATCH_MAX];
        let n = batch.bodies(&mut bodies).min(prefetched.len() / each);
        if n == 0 {
            return;
        }
        (cx.given, cx.present) = (batch.slots, batch.always);
        let frames = Frames {
            n,
            bodies: bodies.as_ptr(),
            prefetched_bytes: size_of_val(&prefetched[..each]),
            slot_bytes: batch.stride * size_of::<Slot>(),
        };
        // SAFETY: as in `parse_all`, for each frame: `bodies`, the prefetch slots and the input slots have at least `n`
        // entries. The code writes to no input slots.
        unsafe {
            let entry: PrefetchBatchEntry = core::mem::transmute(prefetcher.entry());
            entry(cx, &frames, prefetched.as_mut_ptr());
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
        let fast_path = self.fast_path.as_ref().expect("the caller checks has_fast_path");
        let prefetched_of = self.prefetched_of((batch.notes, 0), batch.frames.len(), cx.state);
        let by_fast_path = |cx: &mut Cx<'a>, frame: &mut [u8], nth: usize| {
            // SAFETY: as in `parse_all`, and see `notes_of`; the code writes to at most as many slots as the shape was
            // checked for.
            unsafe { self.enter_on(&fast_path.code, cx, (frame, 0), prefetched_of(nth)) }
        };
        batch.each(parser, cx, leave, by_fast_path, |cx, frame| {
            // SAFETY: as in `parse_all`.
            unsafe { self.enter_on(&self.code, cx, (frame, 0), NOTHING_PREFETCHED.as_ptr()) }
        })
    }

    fn changes_frames(&self) -> bool {
        self.changes_frames
    }

    fn prefetch_pays(&self, state: &State) -> bool {
        self.prefetcher.as_ref().is_some_and(|prefetcher| prefetcher.layout.pays(state))
    }

    fn start_prefetch(&self, state: &State, tuples: usize, prefetched: &mut PrefetchSlots) {
        match &self.prefetcher {
            Some(prefetcher) => prefetched.start(&self.shape.id, state, tuples, prefetcher.layout.words),
            None => prefetched.clear(),
        }
    }

    #[inline]
    fn prefetch_keys(&self, cx: &mut Cx<'_>, nth: usize, prefetched: &mut PrefetchSlots) {
        let Some(prefetcher) = &self.prefetcher else { return };
        self.shape.check(cx);
        let Some(prefetched) = prefetched.tuple_mut(&self.shape.id, nth) else { return };
        // SAFETY: the shape of the pass is that of the code, and `start_prefetch` has reserved its prefetch slots.
        unsafe { self.run_prefetch(&prefetcher.code, cx, prefetched) };
    }

    fn prefetch_keys_batch<'a>(
        &self,
        cx: &mut Cx<'a>,
        batch: PrefetchBatch<'a>,
        prefetched: &mut PrefetchSlots,
    ) {
        let Some(prefetcher) = &self.prefetcher else { return };
        self.shape.check_all_but(cx, batch.stride, cx.given.len());
        batch.each(cx, |cx, nth| {
            let Some(prefetched) = prefetched.tuple_mut(&self.shape.id, nth) else { return };
            // SAFETY: as in `parse_all`, and in `prefetch_keys`.
            unsafe { self.run_prefetch(&prefetcher.code, cx, prefetched) };
        });
    }

    fn prefetch_rows(&self, state: &State, prefetched: &mut PrefetchSlots) {
        if let Some((prefetcher, prefetched)) =
            self.prefetcher.as_ref().zip(prefetched.all_mut(&self.shape.id, state))
        {
            prefetcher.layout.fetch(state, prefetched.0);
        }
    }
}

/// The prefetch slots of a tuple without prefetches.
static NOTHING_PREFETCHED: [u64; SLOT_WORDS_MAX] = [0; SLOT_WORDS_MAX];

/// The properties of a pass that the code relies on.
#[derive(Debug)]
struct Shape {
    /// Identifies the code to a state.
    id: CodeId,
    /// Number of elements that the code counts for; a parser counts as one more.
    elements: usize,
    /// Number of slots that the code reads.
    inputs: usize,
    /// Number of slots that the code writes.
    given: usize,
    call_words: usize,
    /// The code accesses tables or variables.
    has_state: bool,
    scalars: usize,
    merged: usize,
    natives: usize,
    /// The matchers that the code uses.
    matches: Vec<MatcherRef>,
    /// The tables that the code uses, and the fingerprints of their layouts.
    tables: Vec<(usize, u64)>,
}

impl Shape {
    /// Collects the properties of a pass on which the code of a segment relies.
    ///
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
        // The number of words of the segment's variables that are merged, or that are not.
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
        let mut matches: Vec<MatcherRef> = Vec::new();
        for op in ops() {
            let Op::Match(table, id, _) = op else { continue };
            let lacks = || Unsupported { reason: "the state lacks a matcher of the chain".into(), line: 0 };
            let (matcher, table) = (usize::from(id.0), usize::from(table.0));
            let matched = MatcherRef { matcher, table };
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
    /// The pass does not have the shape that the code was compiled for: an error of the engine.
    #[inline(always)]
    fn check(&self, cx: &Cx<'_>) {
        self.check_all_but(cx, cx.slots.len(), cx.given.len());
    }

    /// As [`Shape::check`], for passes that will have this many slots to read and to write.
    #[inline(always)]
    fn check_all_but(&self, cx: &Cx<'_>, slots: usize, given: usize) {
        let fits = slots >= self.inputs
            && given >= self.given
            && cx.call.len() >= self.call_words
            && cx.counters.len() >= self.elements;
        if !fits || self.has_state && !cx.state.is_known_to_fit(&self.id) {
            self.recheck_state(fits, cx.state);
        }
    }

    /// Panics if the code does not fit the state, else records in the state that it does.
    #[cold]
    #[inline(never)]
    fn recheck_state(&self, fits: bool, state: &State) {
        if !fits || !self.fits_state(state) {
            Self::misfit();
        }
        state.note_fit(&self.id);
    }

    /// Whether tables, matchers and variables of the state are as the code expects.
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

    /// Panics: the state has another shape than the code expects.
    fn misfit() -> ! {
        panic!("the state of the pass differs in shape from what the segment was compiled for")
    }
}

/// A matcher that the code uses. Each lookup decides again how to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MatcherRef {
    /// Its index in the state.
    matcher: usize,
    /// The index of the table whose rows it finds.
    table: usize,
}

impl MatcherRef {
    /// Whether the state has this matcher for the rows of this table.
    #[inline(always)]
    fn is_in(self, state: &State) -> bool {
        let held = state.matchers.get(self.matcher).zip(state.tables.get(self.table));
        held.is_some_and(|(matcher, table)| Arc::ptr_eq(matcher.table(), table))
    }
}
