//! The interface between programs (interpreted or compiled) and the engine that runs them.
//!
//! One *pass* takes one tuple through one segment of a chain. The engine fills a [`Cx`]: the input columns as
//! [`Slot`]s over byte [`Cx::regions`], the state, the call's row. The program leaves its verdict and everything
//! that follows from it in [`Outcome`]. Nothing else is shared, so a program can touch nothing else.

use crate::Status;
use crate::frame::Offload;
use crate::hash;
use crate::inputs::InputSet;
use crate::marks::Marks;
use crate::matching::Matcher;
use crate::native::Prepared;
use crate::prefetch::TuplePrefetch;
use crate::table::{Journal, Row, Scalars, Table};
use crate::time::{Interval, Time};
use core::fmt;
use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// The value of one input column.
///
/// Numbers and booleans are in `a` (booleans 0 or 1, floats as bits). Bytes are `b` bytes long from offset `a` of
/// the column's region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    /// The number, or the offset.
    pub a: u64,
    /// The length in bytes.
    pub b: u64,
}

/// Region of [`Cx::regions`] that holds the message payload.
pub const REGION_BODY: usize = 0;
/// Region that holds the header block (or, in `ON CLOSE`, the trailers).
pub const REGION_HEADERS: usize = 1;
/// Region that holds what the engine writes itself: method, peer, the lists of the message ([`crate::list`]).
pub const REGION_META: usize = 2;
/// How many regions there are.
pub const REGIONS: usize = 3;

/// What one pass may read and change.
#[derive(Debug)]
pub struct Cx<'a> {
    /// `now()`: when the tuple arrived in this pass.
    pub now: Time,
    /// What `rand()` draws from: made of seed, message id, attempt and index in the stream.
    pub rand: u64,
    /// The input columns, in the order of the segment's inputs.
    pub slots: &'a [Slot],
    /// Where the parser of a frame puts the slots that it finds; of no length in other passes.
    pub given: &'a mut [Slot],
    /// The inputs that are not NULL.
    pub present: InputSet,
    /// The bytes that slots point into.
    pub regions: [&'a [u8]; REGIONS],
    /// Where stages in front of these have sent the tuple; nothing if they have not.
    pub egress: &'a [u8],
    /// The state that the program reads and writes.
    pub state: &'a State,
    /// The call's row, in the chain's layout.
    pub call: &'a mut [u64],
    /// What comes out.
    pub out: &'a mut Outcome,
    /// Per element of the chain.
    pub counters: &'a mut [Counters],
    /// In `ON TIMEOUT OF` a table: its row that expired, which nobody else sees. Else none.
    pub expired_row: Row,
    /// Set on sampled passes: the clock with which the program stamps each element, in nanoseconds.
    pub trace: Option<fn() -> u64>,
    /// What is left to do for a frame; nothing, in other passes.
    pub offload: Offload,
    /// 0 where code may put nothing in front of the frame itself; else one more than there are bytes of room
    /// ([`Outcome::pushed`]).
    pub front: u64,
    /// 1 where code for usual frames alone has had one pass.
    pub passed: u64,
    /// What the program has noted of the tuple as it looked ahead. Without it the pass does the same, and looks itself.
    pub prefetched: TuplePrefetch<'a>,
    /// Makes the message as edits leave it; None where no message can change.
    pub message: Option<&'a dyn Message>,
}

/// The message of a pass, for what is derived from it behind changes of its fields.
pub trait Message: fmt::Debug {
    /// Appends to `out`, which is empty, the message with these edits. The bytes of their values are in `scratch`.
    fn rewrite(&self, edits: &[TupleEdit], scratch: &[u8], out: &mut Vec<u8>) -> Rewrite;
}

/// What edits make of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// None of them is of a field of the message: it goes on as it arrived.
    Unchanged,
    /// It goes on as it was written anew.
    Changed,
    /// It cannot be written anew, and so cannot go on: it is malformed, or a value does not fit its field.
    Failed,
}

impl<'a> Cx<'a> {
    /// A pass that is given nothing yet: no columns, no bytes, no clock.
    #[inline]
    pub fn new(
        now: Time,
        state: &'a State,
        call: &'a mut [u64],
        out: &'a mut Outcome,
        counters: &'a mut [Counters],
    ) -> Self {
        Self {
            now,
            rand: 0,
            slots: &[],
            given: &mut [],
            present: InputSet::EMPTY,
            regions: [&[]; REGIONS],
            egress: &[],
            state,
            call,
            out,
            counters,
            expired_row: Row::NONE,
            trace: None,
            offload: Offload::NONE,
            front: 0,
            passed: 0,
            prefetched: TuplePrefetch::default(),
            message: None,
        }
    }

    /// The message as the edits so far leave it: its bytes are in [`Outcome::message`] if it is changed. Asked again
    /// before the next edit, it is not written again.
    pub fn rewrite(&mut self) -> Rewrite {
        let out = &mut *self.out;
        let n_edits = out.edits.len();
        match (out.rewrite, self.message) {
            (Some((of, rewrite)), _) if of == n_edits => rewrite,
            (_, Some(message)) if n_edits > 0 => {
                out.message.clear();
                let rewrite = message.rewrite(&out.edits, &out.scratch, &mut out.message);
                out.rewrite = Some((n_edits, rewrite));
                rewrite
            }
            _ => Rewrite::Unchanged,
        }
    }

    /// Where the pass sends the tuple as far as it has come: the target of its last REDIRECT, empty without one.
    pub fn egress(&self) -> Vec<u8> {
        match (self.out.verdict, self.out.target) {
            (Verdict::Redirect, target) if target.is_none() => self.out.text.clone(),
            (Verdict::Redirect, target) => target.bytes().into_iter().take(target.len as usize).collect(),
            _ => self.egress.to_vec(),
        }
    }

    /// The same pass, on the bytes of a frame.
    #[inline]
    pub fn on<'b>(&'b mut self, frame: &'b [u8]) -> Cx<'b> {
        let mut regions = self.regions;
        regions[REGION_BODY] = frame;
        Cx {
            regions,
            given: &mut *self.given,
            call: &mut *self.call,
            out: &mut *self.out,
            counters: &mut *self.counters,
            ..*self
        }
    }
}

/// The state of one chain on one worker: its [`Parts`], and which code they are known to fit.
///
/// Compiled code asks before each pass whether the state is as it was compiled for. That takes a look at each table, so
/// it is done once, and noted until the parts change.
#[derive(Debug, Default)]
pub struct State {
    parts: Parts,
    /// Which no other state with parts has, nor this one with others.
    number: u64,
    known: [AtomicU64; KNOWN],
}

/// Codes that a state is known to fit at once.
const KNOWN: usize = 8;

/// The number of some code, which no other code has.
#[derive(Debug)]
pub struct CodeId(u64);

/// What a state is made of.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Tables in the order of the chain's declarations. Several chains and versions may share one.
    pub tables: Vec<Arc<Table>>,
    /// Scalar variables of all elements.
    pub scalars: Arc<Scalars>,
    /// Integer variables declared `MERGE`: this worker's part.
    pub merged: Arc<Scalars>,
    /// The parts of all workers, this one's included; read by `ON EVERY` alone.
    pub merged_parts: Vec<Arc<Scalars>>,
    /// Native functions in the order of the chain's declarations.
    pub natives: Vec<Arc<dyn Prepared>>,
    /// The rows of tables as they are matched, in the order of the chain's declarations.
    pub matchers: Vec<Arc<Matcher>>,
}

impl State {
    /// Where [`Parts`] begins, in bytes.
    pub const PARTS: usize = offset_of!(Self, parts);

    /// Whether [`State::note_fit`] was told so since the parts last changed, and has not forgotten it.
    #[inline(always)]
    pub fn is_known_to_fit(&self, code: &CodeId) -> bool {
        self.place(code).load(Relaxed) == code.0
    }

    /// Code has found that it fits.
    pub fn note_fit(&self, code: &CodeId) {
        self.place(code).store(code.0, Relaxed);
    }

    /// Stands for the state with the parts that it has now.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline(always)]
    fn place(&self, code: &CodeId) -> &AtomicU64 {
        &self.known[code.0 as usize % KNOWN]
    }
}

impl From<Parts> for State {
    fn from(parts: Parts) -> Self {
        Self { parts, number: new_number(), known: Default::default() }
    }
}

impl Clone for State {
    fn clone(&self) -> Self {
        self.parts.clone().into()
    }
}

impl Deref for State {
    type Target = Parts;

    #[inline(always)]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl DerefMut for State {
    /// Whoever may change the parts makes all that is known of them void.
    fn deref_mut(&mut self) -> &mut Parts {
        (self.number, self.known) = (new_number(), Default::default());
        &mut self.parts
    }
}

impl CodeId {
    /// A number that nobody has had.
    #[allow(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        Self(new_number())
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.0
    }
}

fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// What an element did, by count. Compiled code adds to these in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Request messages that reached the element; for one without ON REQUEST, what it works on.
    pub seen: u64,
    /// Tuples that it ended with DROP.
    pub dropped: u64,
    /// Tuples that it ended with ABORT.
    pub aborted: u64,
    /// Tuples that it ended with REPLY, REDIRECT or STEER.
    pub diverted: u64,
    /// Tuples on which it failed with an error value.
    pub failed: u64,
    /// Nanoseconds spent in sampled passes.
    pub sampled_ns: u64,
    /// Sampled passes.
    pub sampled: u64,
}

/// How a pass ended. Compiled code leaves some verdicts itself, so which is in the first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// On to the next stage.
    #[default]
    Forward,
    /// The tuple ends here, in silence (on `rpc`: reset).
    Drop,
    /// The call ends here with this status; the text is in [`Outcome::text`].
    Abort(Status),
    /// The call is answered here; the fields are in [`Outcome::edits`].
    Reply,
    /// On to the endpoint or cluster named in [`Outcome::text`].
    Redirect,
    /// An error value reached a statement, and no `ON ERROR` took it.
    Failed(Fault),
}

/// What went wrong in an expression or a statement (DESIGN 2.3, "Errors are values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Fault {
    /// An integer result does not fit its type.
    Overflow = 1,
    /// Division by zero.
    DivideByZero = 2,
    /// A table is full and says `EVICT REJECT`, or its limit was reached.
    TableFull = 3,
    /// Text or bytes longer than the column takes, or than [`crate::limits::SCRATCH_BYTES_MAX`].
    TooLong = 4,
    /// A number that is not one: the value does not convert.
    BadCast = 5,
    /// A NULL where a value is needed.
    UnexpectedNull = 6,
    /// A key that is there already.
    DuplicateKey = 7,
    /// A native function failed.
    FunctionFailed = 8,
    /// A list has more elements than the expression takes.
    TooMany = 9,
}

impl Fault {
    /// All faults, in the order of their codes.
    pub const ALL: &'static [Self] = &[
        Self::Overflow,
        Self::DivideByZero,
        Self::TableFull,
        Self::TooLong,
        Self::BadCast,
        Self::UnexpectedNull,
        Self::DuplicateKey,
        Self::FunctionFailed,
        Self::TooMany,
    ];

    /// The code that compiled code uses; 0 stands for no fault.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The fault with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.code() == code)
    }

    /// The name as the language's `error` column shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::DivideByZero => "division by zero",
            Self::TableFull => "table full",
            Self::TooLong => "too long",
            Self::BadCast => "bad cast",
            Self::UnexpectedNull => "unexpected null",
            Self::DuplicateKey => "duplicate key",
            Self::FunctionFailed => "function failed",
            Self::TooMany => "too many",
        }
    }
}

/// The target, in the place of a port's name, of a frame that is to come to the element again (decision 0104).
pub const HOLD: &str = "@hold";

/// Everything that a pass leaves behind. It is reused from pass to pass and keeps its capacity.
#[derive(Debug)]
pub struct Outcome {
    /// How the pass ended.
    pub verdict: Verdict,
    /// The element that ended it (index in the chain); the number of elements if it forwarded.
    pub element: u16,
    /// The source line of the verdict, 0 for the end of the chain.
    pub line: u32,
    /// The handler that ended it is ON OPEN: the element has not seen the call begin.
    pub opening: bool,
    /// The text of an ABORT, or the target of a REDIRECT.
    pub text: Vec<u8>,
    /// The target of a REDIRECT in place of `text`, if there is one here ([`Outcome::materialize`]).
    pub target: ShortName,
    /// Changes to columns and headers, in the order made; a later one wins.
    pub edits: Vec<TupleEdit>,
    /// The bytes that edits and sink rows point into.
    pub scratch: Vec<u8>,
    /// Headers that code has put in front of the frame itself ([`Cx::front`]).
    pub pushed: Pushed,
    /// Rows for sinks, in the order made.
    pub rows: Vec<SinkRow>,
    /// The cells of all `rows`, in order.
    pub cells: Vec<Cell>,
    /// How long the tuple must wait before it leaves.
    pub delay: Interval,
    /// What MARK has said.
    pub marks: Marks,
    /// Copies that MIRROR asks for, in the order made.
    pub mirrors: Vec<Mirror>,
    /// What to undo if the element fails.
    pub journal: Journal,
    /// Where native functions make their bytes. Nothing in it outlives a call.
    pub made: Vec<u8>,
    /// The message as [`Cx::rewrite`] last wrote it.
    pub message: Vec<u8>,
    /// How many edits it has, and what they made of it; None if it is not what `edits` say.
    pub rewrite: Option<(usize, Rewrite)>,
    /// Bytes that `scratch` may hold: [`crate::limits::SCRATCH_BYTES_MIN`] to [`crate::limits::SCRATCH_BYTES_MAX`].
    /// It does not change in a pass.
    pub scratch_max: usize,
}

/// A name of 1 to [`SHORT_BYTES_MAX`](hash::SHORT_BYTES_MAX) bytes, or none. Compiled code makes such itself, so their
/// layout is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ShortName {
    /// How many bytes it has; 0 stands for no name.
    pub len: u64,
    /// The bytes, in order, and zeros behind them ([`hash::short_words`]).
    pub words: [u64; 2],
}

/// One change to the tuple or to the answer. Compiled code makes edits itself, so their layout is fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct TupleEdit {
    /// What changes.
    pub target: EditTarget,
    /// To what; [`Cell::Null`] clears or removes.
    pub value: Cell,
}

/// What code has made of the frame of a pass, behind all that edits ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes that are to be taken off the front.
    pub off: u64,
    /// Bytes that are then left.
    pub rest: u64,
    /// Bytes that have been written in front of those; 0 if nothing was done.
    pub bytes: u64,
}

/// A copy of the tuple, as it was when the statement ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The cluster or endpoint: start and length in [`Outcome::scratch`].
    pub target: (u32, u32),
    /// How many of [`Outcome::edits`] were made before.
    pub edits: u32,
}

/// What an [`TupleEdit`] changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, u16)]
pub enum EditTarget {
    /// The input column with this index in the segment's inputs (a message field or a header).
    Input(u16),
    /// The entry of the chain's name list: a trailer or header of an ABORT's answer.
    Answer(u16),
    /// The entry of the chain's reply-field list: a field of a REPLY's message.
    Reply(u16),
    /// The value with this index of those that the next [`EditTarget::HeaderChange`] is given.
    Part(u16),
    /// The headers of the frame: the entry of the chain's list of changes of structure. It has no value of its own.
    HeaderChange(u16),
}

/// A value in an edit or a sink row. Compiled code makes cells itself, so their layout is fixed: the
/// tag, counted from 0, in the first byte, the value from the eighth.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, u8)]
pub enum Cell {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer; the column's type says whether it is signed.
    Int(i64),
    /// A float.
    Float(f64),
    /// A range of [`Outcome::scratch`]: start and length.
    Bytes(u32, u32),
}

/// A row for a sink: its cells are the next `cells` of [`Outcome::cells`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// The sink's index in the chain's declarations.
    pub sink: u16,
    /// How many cells it has.
    pub cells: u16,
}

/// A point in an [`Outcome`] to which a failed element is rolled back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    edits: usize,
    rows: usize,
    cells: usize,
    scratch: usize,
    mirrors: usize,
    delay: Interval,
    marks: Marks,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            verdict: Verdict::default(),
            element: 0,
            line: 0,
            opening: false,
            text: Vec::new(),
            target: ShortName::default(),
            edits: Vec::new(),
            pushed: Pushed::default(),
            scratch: Vec::new(),
            rows: Vec::new(),
            cells: Vec::new(),
            delay: Interval::ZERO,
            marks: Marks::NONE,
            mirrors: Vec::new(),
            journal: Journal::default(),
            made: Vec::new(),
            message: Vec::new(),
            rewrite: None,
            scratch_max: crate::limits::SCRATCH_BYTES_MAX,
        }
    }
}

impl ShortName {
    /// A name; None if it is too long, or has nothing.
    #[inline(always)]
    pub fn of(name: &[u8]) -> Option<Self> {
        let is_short = (1..=hash::SHORT_BYTES_MAX).contains(&name.len());
        is_short.then(|| Self { len: name.len() as u64, words: hash::short_words(name) })
    }

    /// Whether it is none.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.len == 0
    }

    fn bytes(self) -> [u8; hash::SHORT_BYTES_MAX] {
        let words = self.words.map(u64::to_le_bytes);
        core::array::from_fn(|at| words[at / 8][at % 8])
    }
}

impl Outcome {
    /// Whether a pass left nothing beside its verdict and its changes.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.mirrors.is_empty()
            && self.rows.is_empty()
            && self.marks == Marks::NONE
            && self.delay == Interval::ZERO
    }

    /// Forgets the last pass.
    #[inline]
    pub fn clear(&mut self) {
        self.clear_bare();
        self.rows.clear();
        self.cells.clear();
        self.delay = Interval::ZERO;
        self.marks = Marks::NONE;
        self.mirrors.clear();
    }

    /// Forgets a pass that left nothing but a verdict and changes.
    #[inline]
    pub fn clear_bare(&mut self) {
        self.verdict = Verdict::Forward;
        self.element = 0;
        self.line = 0;
        self.opening = false;
        self.text.clear();
        self.target.len = 0;
        self.edits.clear();
        self.scratch.clear();
        self.journal.clear();
        self.rewrite = None;
    }

    /// Has the target of a REDIRECT in `text`, wherever it is.
    pub fn materialize(&mut self) {
        if self.verdict == Verdict::Redirect && !self.target.is_none() {
            let (bytes, len) = (self.target.bytes(), self.target.len as usize);
            self.text.clear();
            self.text.extend_from_slice(&bytes[..len.min(bytes.len())]);
            self.target = ShortName::default();
        }
    }

    /// Where an element begins: [`Outcome::roll_back`] returns to it.
    pub fn point(&self) -> Point {
        Point {
            edits: self.edits.len(),
            rows: self.rows.len(),
            cells: self.cells.len(),
            scratch: self.scratch.len(),
            mirrors: self.mirrors.len(),
            delay: self.delay,
            marks: self.marks,
        }
    }

    /// Undoes the edits, rows and actions since `point`, and the journalled writes to `state` and `call`.
    pub fn roll_back(&mut self, point: Point, state: &State, call: &mut [u64]) {
        self.journal.undo(state, call);
        // Other edits may take the place of those that are undone.
        self.rewrite = self.rewrite.filter(|(n_edits, _)| *n_edits <= point.edits);
        self.edits.truncate(point.edits);
        self.rows.truncate(point.rows);
        self.cells.truncate(point.cells);
        self.scratch.truncate(point.scratch);
        self.mirrors.truncate(point.mirrors);
        self.delay = point.delay;
        self.marks = point.marks;
    }

    /// Copies bytes into the scratch and returns where they are, or None beyond `scratch_max`.
    #[inline(always)]
    pub fn keep(&mut self, bytes: &[u8]) -> Option<(u32, u32)> {
        let start = self.scratch.len();
        if start + bytes.len() > self.scratch_max {
            return None;
        }
        self.scratch.extend_from_slice(bytes);
        Some((start as u32, bytes.len() as u32))
    }

    /// The bytes of a range that [`Outcome::keep`] returned.
    #[inline]
    pub fn kept(&self, start: u32, len: u32) -> &[u8] {
        &self.scratch[start as usize..(start + len) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Sum(core::cell::Cell<u32>);

    impl Message for Sum {
        fn rewrite(&self, edits: &[TupleEdit], _: &[u8], out: &mut Vec<u8>) -> Rewrite {
            self.0.set(self.0.get() + 1);
            let values = edits.iter().map(|edit| if let Cell::Int(n) = edit.value { n } else { 0 });
            out.push(values.sum::<i64>() as u8);
            Rewrite::Changed
        }
    }

    #[test]
    fn rewrite_follows_edits_and_undo() {
        // An element would see the changes of one that failed, or miss its own.
        let message = Sum(0.into());
        let (state, mut call, mut out, mut counters) = (State::default(), [], Outcome::default(), []);
        let mut cx = Cx::new(Time(0), &state, &mut call, &mut out, &mut counters);
        cx.message = Some(&message);
        let set = |cx: &mut Cx<'_>, n: i64| {
            cx.out.edits.push(TupleEdit { target: EditTarget::Input(0), value: Cell::Int(n) });
        };
        assert_eq!((cx.rewrite(), message.0.get()), (Rewrite::Unchanged, 0));
        set(&mut cx, 3);
        for _ in 0..2 {
            assert_eq!((cx.rewrite(), &cx.out.message[..], message.0.get()), (Rewrite::Changed, &[3][..], 1));
        }
        let point = cx.out.point();
        set(&mut cx, 40);
        assert_eq!((cx.rewrite(), &cx.out.message[..]), (Rewrite::Changed, &[43][..]));
        cx.out.roll_back(point, &state, &mut []);
        set(&mut cx, 5);
        assert_eq!((cx.rewrite(), &cx.out.message[..]), (Rewrite::Changed, &[8][..]));
        cx.out.clear();
        assert_eq!(cx.rewrite(), Rewrite::Unchanged);
    }

    #[test]
    fn short_name_materializes_exactly() {
        // A frame would leave by another port, or by none.
        let bytes: Vec<u8> = (1..=20).collect();
        for len in 0..=bytes.len() {
            let name = ShortName::of(&bytes[..len]);
            assert_eq!(name.is_some(), (1..=16).contains(&len));
            let Some(target) = name else { continue };
            let mut out = Outcome { target, text: b"before".to_vec(), ..Outcome::default() };
            out.materialize();
            assert_eq!(out.text, b"before", "it is the text of something else");
            out.verdict = Verdict::Redirect;
            out.materialize();
            assert_eq!((&out.text[..], out.target), (&bytes[..len], ShortName::default()));
            out.materialize();
            assert_eq!(out.text, &bytes[..len]);
        }
    }
}
