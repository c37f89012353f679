//! The interface between programs (interpreted or compiled) and the engine that runs them.
//!
//! One *pass* runs one tuple through one segment of a chain. The engine fills a [`Cx`]: the input columns as [`Slot`]s
//! over byte [`Cx::regions`], the state, and the call's row. The program leaves its verdict and all other results in
//! [`Outcome`]. The two share nothing else, so a program can touch nothing else.

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
/// Numbers and booleans are in `a` (booleans 0 or 1, floats as bits). Bytes are `b` bytes long, from offset `a` of the
/// column's region.
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
/// Region of [`Cx::regions`] that holds the header block, or the trailers in `ON CLOSE`.
pub const REGION_HEADERS: usize = 1;
/// Region that holds data from the engine: method, peer, the lists of the message ([`crate::list`]).
pub const REGION_META: usize = 2;
/// The number of regions.
pub const REGIONS: usize = 3;

// Compiled code computes these offsets.
const _: () = assert!(size_of::<Slot>() == 16 && offset_of!(Slot, b) == 8);
const _: () = assert!(size_of::<Counters>() == 7 * 8 && size_of::<ShortName>() == 24);
const _: () = assert!(size_of::<Cell>() == 16 && align_of::<Cell>() == 8);
const _: () = assert!(KNOWN.is_power_of_two(), "the number of a code selects its slot");

/// The inputs and outputs of one pass.
#[derive(Debug)]
pub struct Cx<'a> {
    /// `now()`: when the tuple arrived in this pass.
    pub now: Time,
    /// The base of `rand()`: derived from seed, message id, attempt and index in the stream.
    pub rand: u64,
    /// The input columns, in the order of the segment's inputs.
    pub slots: &'a [Slot],
    /// The slots that the parser of a frame fills; empty in other passes.
    pub given: &'a mut [Slot],
    /// The inputs that are not NULL.
    pub present: InputSet,
    /// The bytes that slots point into.
    pub regions: [&'a [u8]; REGIONS],
    /// The target that earlier stages chose for the tuple; empty if they chose none.
    pub egress: &'a [u8],
    /// The state that the program reads and writes.
    pub state: &'a State,
    /// The call's row, in the chain's layout.
    pub call: &'a mut [u64],
    /// The results of the pass.
    pub out: &'a mut Outcome,
    /// One entry per element of the chain.
    pub counters: &'a mut [Counters],
    /// The expired or evicted row, in an `ON TIMEOUT OF` handler for its table. The row is already out of the table.
    /// [`Row::NONE`] in all other passes.
    pub expired_row: Row,
    /// Set on sampled passes: the clock with which the program stamps each element, in nanoseconds.
    pub trace: Option<fn() -> u64>,
    /// The pending offloads of a frame; none in other passes.
    pub offload: Offload,
    /// 0 if code must not write headers in front of the frame; otherwise the bytes of headroom plus one
    /// ([`Outcome::pushed`]).
    pub front: u64,
    /// 1 after fast-path code has passed the frame.
    pub passed: u64,
    /// The prefetch slots of the tuple. A pass without them gives the same result with its own look-ups.
    pub prefetched: TuplePrefetch<'a>,
    /// Rewrites the message with the edits; None where no message can change.
    pub message: Option<&'a dyn Message>,
}

/// The message of a pass, for values derived from it after its fields change.
pub trait Message: fmt::Debug {
    /// Appends to `out`, which is empty, the message with these edits applied. `scratch` holds the bytes of their
    /// values.
    fn rewrite(&self, edits: &[TupleEdit], scratch: &[u8], out: &mut Vec<u8>) -> Rewrite;
}

/// The result of a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// No edit changes a field of the message: it is sent as it arrived.
    Unchanged,
    /// The message was written anew.
    Changed,
    /// The message cannot be written, so it cannot be sent: it is malformed, or a value does not fit its field.
    Failed,
}

impl<'a> Cx<'a> {
    /// A pass with no inputs yet: no columns, no bytes, no clock.
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

    /// The message with the edits so far; its bytes are in [`Outcome::message`] if it changed. The result is cached
    /// until the next edit.
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

    /// The current target of the tuple: that of the last REDIRECT of this pass, else that of earlier stages; empty
    /// without one.
    pub fn egress(&self) -> Vec<u8> {
        match (self.out.verdict, self.out.target) {
            (Verdict::Redirect, target) if target.is_none() => self.out.text.clone(),
            (Verdict::Redirect, target) => target.bytes().into_iter().take(target.len as usize).collect(),
            _ => self.egress.to_vec(),
        }
    }

    /// The same pass, with the bytes of a frame as its message.
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

/// The state of one chain on one worker: its [`Parts`], and the codes that are known to fit them.
///
/// Compiled code checks before each pass whether the state has the layout that it was compiled for. That check visits
/// each table, so it runs once; its result is cached until the parts change.
#[derive(Debug, Default)]
pub struct State {
    parts: Parts,
    /// Unique to this state with its current parts.
    number: u64,
    known: [AtomicU64; KNOWN],
}

/// The number of codes that can be cached at once.
const KNOWN: usize = 8;

/// The unique number of one piece of compiled code.
#[derive(Debug)]
pub struct CodeId(u64);

/// The parts of a state.
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
    /// The matchers of tables, in the order of the chain's declarations.
    pub matchers: Vec<Arc<Matcher>>,
}

impl State {
    /// The offset of [`Parts`], in bytes.
    pub const PARTS: usize = offset_of!(Self, parts);

    /// Whether this code is known to fit: [`State::note_fit`] was called since the last change, and the entry is still
    /// cached.
    #[inline(always)]
    pub fn is_known_to_fit(&self, code: &CodeId) -> bool {
        self.known_slot(code).load(Relaxed) == code.0
    }

    /// Records that this code fits the state.
    pub fn note_fit(&self, code: &CodeId) {
        self.known_slot(code).store(code.0, Relaxed);
    }

    /// Identifies the state with its current parts.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The word that stores whether this code is known to fit the state.
    #[inline(always)]
    fn known_slot(&self, code: &CodeId) -> &AtomicU64 {
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
    /// A caller that may change the parts invalidates all cached fits.
    fn deref_mut(&mut self) -> &mut Parts {
        (self.number, self.known) = (new_number(), Default::default());
        &mut self.parts
    }
}

impl CodeId {
    /// A new, unique number.
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

/// Counters of one element. Compiled code adds to them in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Request messages that reached the element. An element without ON REQUEST counts the tuples that it works on.
    pub seen: u64,
    /// Tuples that the element ended with DROP.
    pub dropped: u64,
    /// Tuples that the element ended with ABORT.
    pub aborted: u64,
    /// Tuples that the element ended with REPLY, REDIRECT or STEER.
    pub diverted: u64,
    /// Tuples on which the element failed with an error value.
    pub failed: u64,
    /// Nanoseconds spent in sampled passes.
    pub sampled_ns: u64,
    /// Sampled passes.
    pub sampled: u64,
}

/// How a pass ended. Compiled code writes some verdicts itself, so the first byte holds the variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// The tuple goes to the next stage.
    #[default]
    Forward,
    /// The tuple ends here without an answer (on `rpc`: reset).
    Drop,
    /// The call ends here with this status; the text is in [`Outcome::text`].
    Abort(Status),
    /// The call is answered here; the fields are in [`Outcome::edits`].
    Reply,
    /// The tuple goes to the endpoint or cluster named in [`Outcome::text`].
    Redirect,
    /// A statement had an error value, and no `ON ERROR` handled it.
    Failed(Fault),
}

/// The cause of an error value (`docs/src/concepts/errors.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Fault {
    /// An integer result does not fit its type.
    Overflow = 1,
    /// Division by zero.
    DivideByZero = 2,
    /// A full table with `EVICT REJECT`, or a table at its limit.
    TableFull = 3,
    /// Text or bytes longer than the column takes, or than [`crate::limits::SCRATCH_BYTES_MAX`].
    TooLong = 4,
    /// A value that does not convert to the number type.
    BadCast = 5,
    /// A NULL where a value is needed.
    UnexpectedNull = 6,
    /// A key that exists already.
    DuplicateKey = 7,
    /// A native function failed.
    FunctionFailed = 8,
    /// A list with more elements than the expression takes.
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

/// The target of a frame that is held and passes the element again later, in the place of a port name
/// (docs/design/packet-io.md).
pub const HOLD: &str = "@hold";

/// All results of a pass. It is reused from pass to pass and keeps its capacity.
#[derive(Debug)]
pub struct Outcome {
    /// How the pass ended.
    pub verdict: Verdict,
    /// The index in the chain of the element that ended the pass; the number of elements if it forwarded.
    pub element: u16,
    /// The source line of the verdict, 0 at the end of the chain.
    pub line: u32,
    /// An ON OPEN handler ended the pass: for this element, the call never began.
    pub opening: bool,
    /// The text of an ABORT, or the target of a REDIRECT.
    pub text: Vec<u8>,
    /// The target of a REDIRECT if it is short, instead of `text` ([`Outcome::materialize`]).
    pub target: ShortName,
    /// Changes to columns and headers, in order; a later one wins.
    pub edits: Vec<TupleEdit>,
    /// The bytes of edits and sink rows.
    pub scratch: Vec<u8>,
    /// Headers that code has written in front of the frame ([`Cx::front`]).
    pub pushed: Pushed,
    /// Rows for sinks, in order.
    pub rows: Vec<SinkRow>,
    /// The cells of all `rows`, in order.
    pub cells: Vec<Cell>,
    /// How long the tuple must wait before it leaves.
    pub delay: Interval,
    /// The marks that MARK statements set.
    pub marks: Marks,
    /// The copies that MIRROR statements request, in order.
    pub mirrors: Vec<Mirror>,
    /// What to undo if the element fails.
    pub journal: Journal,
    /// The buffer for results of native functions. It is valid for one call only.
    pub made: Vec<u8>,
    /// The message as last written by [`Cx::rewrite`].
    pub message: Vec<u8>,
    /// The number of edits in `message` and the result of the rewrite; None if `message` does not match `edits`.
    pub rewrite: Option<(usize, Rewrite)>,
    /// The capacity of `scratch` in bytes: [`crate::limits::SCRATCH_BYTES_MIN`] to
    /// [`crate::limits::SCRATCH_BYTES_MAX`]. It does not change during a pass.
    pub scratch_max: usize,
}

/// A name of 1 to [`SHORT_BYTES_MAX`](hash::SHORT_BYTES_MAX) bytes, or no name. Compiled code makes these names itself,
/// so the layout is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ShortName {
    /// The length in bytes; 0 stands for no name.
    pub len: u64,
    /// The bytes in order, padded with zeros ([`hash::short_words`]).
    pub words: [u64; 2],
}

/// One change to the tuple or to the answer. Compiled code makes edits itself, so the layout is fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct TupleEdit {
    /// What to change.
    pub target: EditTarget,
    /// The new value; [`Cell::Null`] clears or removes.
    pub value: Cell,
}

/// The headers that code has already replaced in the frame. They apply after all edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes to remove from the front.
    pub off: u64,
    /// Bytes that remain after that.
    pub rest: u64,
    /// Bytes written in front of the rest; 0 if nothing was done.
    pub bytes: u64,
}

/// A copy of the tuple, as of the MIRROR statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The cluster or endpoint: start and length in [`Outcome::scratch`].
    pub target: (u32, u32),
    /// The number of [`Outcome::edits`] made before the copy.
    pub edits: u32,
}

/// The target of a [`TupleEdit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, u16)]
pub enum EditTarget {
    /// The input column with this index in the segment's inputs (a message field or a header).
    Input(u16),
    /// The entry of the chain's name list: a trailer or header of an ABORT's answer.
    Answer(u16),
    /// The entry of the chain's reply-field list: a field of a REPLY's message.
    Reply(u16),
    /// The operand with this index for the next [`EditTarget::HeaderChange`].
    Part(u16),
    /// The headers of the frame: an index into the chain's list of header changes. It has no value of its own.
    HeaderChange(u16),
}

/// A value in an edit or a sink row. Compiled code makes cells itself, so the layout is fixed: the first byte holds the
/// tag, counted from 0, and the value begins at the eighth.
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

/// A row for a sink: the next `cells` entries of [`Outcome::cells`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// The sink's index in the chain's declarations.
    pub sink: u16,
    /// The number of its cells.
    pub cells: u16,
}

/// A position in an [`Outcome`] to which a failed element is rolled back.
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
    /// A short name. None if the name is empty or too long.
    #[inline(always)]
    pub fn of(name: &[u8]) -> Option<Self> {
        let is_short = (1..=hash::SHORT_BYTES_MAX).contains(&name.len());
        is_short.then(|| Self { len: name.len() as u64, words: hash::short_words(name) })
    }

    /// Whether there is no name.
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
    /// Whether the pass left only a verdict and edits.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.mirrors.is_empty()
            && self.rows.is_empty()
            && self.marks == Marks::NONE
            && self.delay == Interval::ZERO
    }

    /// Clears the results of the last pass.
    #[inline]
    pub fn clear(&mut self) {
        self.clear_bare();
        self.rows.clear();
        self.cells.clear();
        self.delay = Interval::ZERO;
        self.marks = Marks::NONE;
        self.mirrors.clear();
    }

    /// Clears the results of a pass that left only a verdict and edits.
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

    /// Moves a short target of a REDIRECT into `text`.
    pub fn materialize(&mut self) {
        if self.verdict == Verdict::Redirect && !self.target.is_none() {
            let (bytes, len) = (self.target.bytes(), self.target.len as usize);
            self.text.clear();
            self.text.extend_from_slice(&bytes[..len.min(bytes.len())]);
            self.target = ShortName::default();
        }
    }

    /// The current position, to which [`Outcome::roll_back`] returns.
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

    /// Undoes all edits, rows and actions since `point`, and the journalled writes to `state` and `call`.
    pub fn roll_back(&mut self, point: Point, state: &State, call: &mut [u64]) {
        assert!(
            point.edits <= self.edits.len() && point.scratch <= self.scratch.len(),
            "the point is an earlier one"
        );
        self.journal.undo(state, call);
        // Later edits may reach the same count with other values.
        self.rewrite = self.rewrite.filter(|(n_edits, _)| *n_edits <= point.edits);
        self.edits.truncate(point.edits);
        self.rows.truncate(point.rows);
        self.cells.truncate(point.cells);
        self.scratch.truncate(point.scratch);
        self.mirrors.truncate(point.mirrors);
        self.delay = point.delay;
        self.marks = point.marks;
    }

    /// Copies bytes into the scratch and returns their start and length. None beyond `scratch_max`.
    #[inline(always)]
    pub fn keep(&mut self, bytes: &[u8]) -> Option<(u32, u32)> {
        let start = self.scratch.len();
        if start + bytes.len() > self.scratch_max {
            return None;
        }
        self.scratch.extend_from_slice(bytes);
        Some((start as u32, bytes.len() as u32))
    }

    /// The bytes at a start and length that [`Outcome::keep`] returned.
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
        // An element would see the edits of a failed element, or miss its own.
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
        // A frame would be sent to the wrong port, or to none.
        let bytes: Vec<u8> = (1..=20).collect();
        for len in 0..=bytes.len() {
            let name = ShortName::of(&bytes[..len]);
            assert_eq!(name.is_some(), (1..=16).contains(&len));
            let Some(target) = name else { continue };
            let mut out = Outcome { target, text: b"before".to_vec(), ..Outcome::default() };
            out.materialize();
            assert_eq!(out.text, b"before", "the text belongs to another verdict");
            out.verdict = Verdict::Redirect;
            out.materialize();
            assert_eq!((&out.text[..], out.target), (&bytes[..len], ShortName::default()));
            out.materialize();
            assert_eq!(out.text, &bytes[..len]);
        }
    }
}
