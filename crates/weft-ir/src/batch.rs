//! Frames of a batch that are parsed, or pass, one behind the other.
//!
//! What a pass is given of its frame is written here, for every back end: each gives the loop its way to run one.

use weft_core::Time;
use weft_core::abi::{Cx, Outcome, REGION_BODY, Slot, Verdict};
use weft_core::ahead::Notes;
use weft_core::frame::{BATCH_MAX, Frame, Pool};
use weft_core::hash;
use weft_core::inputs::InputSet;

use crate::backend::Program;

/// Frames that a parser is to look at.
#[derive(Debug)]
pub struct ParseBatch<'a> {
    /// All frames of the batch, [`weft_core::frame::BATCH_MAX`] at most.
    pub frames: &'a [Frame],
    /// Where their bytes are.
    pub pool: &'a Pool,
    /// Which of them are to be parsed: bit i stands for frame i.
    pub wanted: u64,
    /// Their slots: `stride` for each, more than none.
    pub slots: &'a mut [Slot],
    /// See `slots`.
    pub stride: usize,
    /// Output, for each parsed frame: its inputs that are not NULL.
    pub present: &'a mut [InputSet],
    /// Is written for those that break a check: the check's number.
    pub checks: &'a mut [u32],
}

impl<'a> ParseBatch<'a> {
    /// Parses by `run`; which frames break a check. All are given what the pass has of inputs that are always there.
    #[inline(always)]
    pub fn each(self, cx: &mut Cx<'a>, mut run: impl FnMut(&mut Cx<'a>)) -> u64 {
        let (always, mut bit, mut broken) = (cx.present, 1_u64, 0);
        let slots = self.slots.chunks_exact_mut(self.stride);
        let finds = self.present.iter_mut().zip(self.checks);
        for ((frame, slots), (present, check)) in self.frames.iter().zip(slots).zip(finds) {
            if self.wanted & bit != 0 {
                cx.given = slots;
                cx.present = always;
                cx.regions[REGION_BODY] = self.pool.bytes(frame);
                run(cx);
                *present = cx.present;
                if cx.out.verdict != Verdict::Forward {
                    cx.out.verdict = Verdict::Forward;
                    broken |= bit;
                    *check = cx.out.line;
                }
            }
            bit <<= 1;
        }
        broken
    }
}

/// Frames that code looks ahead for.
#[derive(Debug)]
pub struct PrefetchBatch<'a> {
    /// All frames of the batch.
    pub frames: &'a [Frame],
    /// Where their bytes are.
    pub pool: &'a Pool,
    /// Which of them it looks at: bit i stands for frame i.
    pub wanted: u64,
    /// Their slots: `stride` for each, more than none.
    pub slots: &'a [Slot],
    /// See `slots`.
    pub stride: usize,
    /// Which inputs are there of each.
    pub present: &'a [InputSet],
}

impl<'a> PrefetchBatch<'a> {
    /// Looks by `run`, which is given the number of each frame.
    #[inline(always)]
    pub fn each(self, cx: &mut Cx<'a>, mut run: impl FnMut(&mut Cx<'a>, usize)) {
        let slots = self.slots.chunks_exact(self.stride);
        for (nth, ((frame, slots), present)) in self.frames.iter().zip(slots).zip(self.present).enumerate() {
            if self.wanted >> (nth % BATCH_MAX) & 1 == 1 {
                (cx.slots, cx.present) = (slots, *present);
                cx.regions[REGION_BODY] = self.pool.bytes(frame);
                run(cx, nth);
            }
        }
    }
}

/// Frames that pass one behind the other.
#[derive(Debug)]
pub struct ExecBatch<'a, 'b> {
    /// The frames, and where their bytes are.
    pub frames: &'b mut [Frame],
    /// See `frames`.
    pub pool: &'b mut Pool,
    /// Their slots: `stride` for each, more than none.
    pub slots: &'a [Slot],
    /// See `slots`.
    pub stride: usize,
    /// Which inputs are there of each.
    pub present: &'a [InputSet],
    /// What is noted of them, and the place of the first of them there.
    pub notes: (&'a Notes, usize),
    /// The time of those whose metadata does not say when they came; no pass is earlier than the one before.
    pub now: Time,
    /// What `rand()` draws from, beside the frame; None where nothing is drawn.
    pub seed: Option<u64>,
    /// A pass may leave more than a verdict and changes.
    pub leaves_more: bool,
}

/// Is told of passes that leave more than that their frame goes on as it is, and by the number of which frame it is.
/// Both say whether what was left is taken, so that the next may pass: the outcome is clear then.
pub trait OutcomeSink {
    /// Takes what a pass has left that edits nothing, if its outcome tells all that is to be known of it.
    fn accept_unedited(&mut self, out: &mut Outcome, nth: usize) -> bool;
    /// Takes what [`Leave::take_way`] did not. The context has the slots of the frame.
    fn accept(&mut self, cx: &mut Cx<'_>, nth: usize, frame: &mut Frame, pool: &mut Pool) -> bool;
}

impl<'a> ExecBatch<'a, '_> {
    /// Passes by `run`, which is given each frame; how many did of which that is all. The one behind those, if there is
    /// one, has left more.
    #[inline(always)]
    pub fn each(
        self,
        cx: &mut Cx<'a>,
        leave: &mut dyn OutcomeSink,
        mut run: impl FnMut(&mut Cx<'a>, &mut [u8], usize),
    ) -> usize {
        self.each_by(cx, leave, |cx, frame, pool, nth| run(cx, pool.bytes_mut(frame), nth))
    }

    /// As [`Passing::each`]; `run` is given each frame with the room in front of it, which is so long, and may put
    /// headers there where the pass says so ([`Cx::front`]).
    #[inline(always)]
    pub fn each_with_front(
        self,
        cx: &mut Cx<'a>,
        leave: &mut dyn OutcomeSink,
        mut run: impl FnMut(&mut Cx<'a>, (&mut [u8], usize), usize),
    ) -> usize {
        self.each_by(cx, leave, |cx, frame, pool, nth| {
            let (bytes, front) = pool.bytes_and_front(frame);
            // What stands for several packets gets new headers when it has been cut.
            cx.front = if frame.meta.offload.gso.is_none() { front as u64 + 1 } else { 0 };
            run(cx, (bytes, front), nth);
            if cx.out.pushed.bytes != 0 {
                pool.take_in_front(frame, core::mem::take(&mut cx.out.pushed));
            }
        })
    }

    #[inline(always)]
    fn each_by(
        self,
        cx: &mut Cx<'a>,
        leave: &mut dyn OutcomeSink,
        mut run: impl FnMut(&mut Cx<'a>, &mut Frame, &mut Pool, usize),
    ) -> usize {
        let slots = self.slots.chunks_exact(self.stride);
        let mut passed = 0;
        for ((frame, slots), present) in self.frames.iter_mut().zip(slots).zip(self.present) {
            begin(cx, frame, (self.now, self.seed));
            (cx.slots, cx.present) = (slots, *present);
            run(cx, frame, self.pool, passed);
            let is_taken = is_accepted(cx.out, self.leaves_more, leave, passed);
            if !is_taken && !leave.accept(cx, passed, frame, self.pool) {
                break;
            }
            passed += 1;
        }
        passed
    }
}

/// Frames that are not parsed, and that code for usual ones looks ahead for.
#[derive(Debug)]
pub struct RawBatch<'a> {
    /// All frames of the batch.
    pub frames: &'a [Frame],
    /// Where their bytes are.
    pub pool: &'a Pool,
    /// See [`Through::slots`].
    pub slots: &'a mut [Slot],
    /// See `slots`.
    pub stride: usize,
    /// See [`Through::always`].
    pub always: InputSet,
}

impl<'a> RawBatch<'a> {
    /// The bytes of each that has slots, as far as there is room for them; how many that are.
    #[inline(always)]
    pub fn bodies(&self, to: &mut [&'a [u8]]) -> usize {
        let n = self.frames.len().min(self.slots.len() / self.stride).min(to.len());
        for (to, frame) in to.iter_mut().zip(&self.frames[..n]) {
            *to = self.pool.bytes(frame);
        }
        n
    }
}

/// Frames of which each passes as soon as it is parsed.
#[derive(Debug)]
pub struct FusedBatch<'a, 'b> {
    /// The frames, and where their bytes are.
    pub frames: &'b mut [Frame],
    /// See `frames`.
    pub pool: &'b mut Pool,
    /// Their slots: `stride` for each, more than none; those of `always` are filled.
    pub slots: &'a mut [Slot],
    /// See `slots`.
    pub stride: usize,
    /// Is written: which inputs are there of each.
    pub present: &'b mut [InputSet],
    /// The inputs that are there of all without a parser.
    pub always: InputSet,
    /// What is noted of them.
    pub notes: &'a Notes,
    /// See [`Passing::now`].
    pub now: Time,
    /// See [`Passing::seed`].
    pub seed: Option<u64>,
    /// See [`Passing::leaves_more`].
    pub leaves_more: bool,
}

/// How far a batch has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many frames have passed so that somebody took what they left.
    pub passed: usize,
    /// How many were not usual.
    pub n_slow_path: usize,
    /// Why those behind them have not.
    pub stop: Option<StopReason>,
}

/// Why frames do not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pass of the next has left more.
    Unhandled,
    /// The next breaks this check.
    Malformed(u32),
}

impl<'a> FusedBatch<'a, '_> {
    /// Has each frame that is usual pass by `usual`, which says so ([`Cx::passed`]) and has left slots only where it
    /// has left edits, too; parses others by `parser`, and has them pass by `pass`, until one has left more than is
    /// taken.
    #[inline(always)]
    pub fn each(
        self,
        parser: &dyn Program,
        cx: &mut Cx<'a>,
        leave: &mut dyn OutcomeSink,
        mut usual: impl FnMut(&mut Cx<'a>, &mut [u8], usize),
        mut pass: impl FnMut(&mut Cx<'a>, &mut [u8]),
    ) -> Progress {
        let slots = self.slots.chunks_exact_mut(self.stride);
        let mut gone = Progress::default();
        for ((frame, slots), present) in self.frames.iter_mut().zip(slots).zip(self.present) {
            begin(cx, frame, (self.now, self.seed));
            (cx.given, cx.present, cx.passed) = (slots, self.always, 0);
            usual(cx, self.pool.bytes_mut(frame), gone.passed);
            let is_usual = cx.passed != 0;
            if !is_usual {
                gone.n_slow_path += 1;
                let mut of_frame = cx.on(self.pool.bytes(frame));
                parser.run(&mut of_frame, usize::MAX);
                cx.present = of_frame.present;
            } else if is_accepted(cx.out, self.leaves_more, leave, gone.passed) {
                gone.passed += 1;
                continue;
            }
            *present = cx.present;
            let slots: &'a mut [Slot] = core::mem::take(&mut cx.given);
            cx.slots = slots;
            if !is_usual {
                if cx.out.verdict != Verdict::Forward {
                    cx.out.verdict = Verdict::Forward;
                    return Progress { stop: Some(StopReason::Malformed(cx.out.line)), ..gone };
                }
                pass(cx, self.pool.bytes_mut(frame));
                if is_accepted(cx.out, self.leaves_more, leave, gone.passed) {
                    gone.passed += 1;
                    continue;
                }
            }
            if !leave.accept(cx, gone.passed, frame, self.pool) {
                return Progress { stop: Some(StopReason::Unhandled), ..gone };
            }
            gone.passed += 1;
        }
        gone
    }
}

/// What a pass is given of its frame beside what was found in it.
#[inline(always)]
fn begin(cx: &mut Cx<'_>, frame: &Frame, (now, seed): (Time, Option<u64>)) {
    cx.now = cx.now.max(frame.arrived(now));
    if let Some(seed) = seed {
        cx.rand = hash::mix(seed, frame.id());
    }
    cx.offload = frame.meta.offload;
}

/// Whether nothing is to be done with a frame and its slots behind a pass; the outcome is clear then.
#[inline(always)]
fn is_accepted(out: &mut Outcome, leaves_more: bool, leave: &mut dyn OutcomeSink, nth: usize) -> bool {
    is_plain(out, leaves_more) || out.edits.is_empty() && leave.accept_unedited(out, nth)
}

/// Whether a pass has left no more than that its frame goes on as it is; the outcome is clear then.
#[inline(always)]
fn is_plain(out: &mut Outcome, leaves_more: bool) -> bool {
    let is_plain = out.verdict == Verdict::Forward && out.edits.is_empty() && (!leaves_more || out.is_bare());
    if is_plain {
        // All else is as it was in front of the pass.
        out.scratch.clear();
        out.journal.clear();
    }
    is_plain
}
