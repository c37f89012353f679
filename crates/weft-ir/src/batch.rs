//! Batches of frames for a back end: parse, prefetch and run loops.
//!
//! The loops set up the context of each frame's pass, for every back end; the back end supplies the code for one frame.

use weft_core::Time;
use weft_core::abi::{Cx, Outcome, REGION_BODY, Slot, Verdict};
use weft_core::frame::{BATCH_MAX, Frame, Pool};
use weft_core::hash;
use weft_core::inputs::InputSet;
use weft_core::prefetch::PrefetchSlots;

use crate::backend::Program;

// A frame has a bit in masks of 64 bits.
const _: () = assert!(BATCH_MAX <= 64, "a mask holds all frames of a batch");

/// Checks that each frame of a batch has slots and present inputs.
#[inline(always)]
fn assert_room(frames: &[Frame], n_slots: usize, stride: usize, n_present: usize) {
    assert!(stride > 0, "each frame has a slot");
    assert!(n_slots / stride >= frames.len(), "each frame has its slots");
    assert!(n_present >= frames.len(), "each frame has present inputs");
}

/// A batch to parse.
#[derive(Debug)]
pub struct ParseBatch<'a> {
    /// All frames of the batch, at most [`weft_core::frame::BATCH_MAX`].
    pub frames: &'a [Frame],
    /// The buffers of the frames.
    pub pool: &'a Pool,
    /// The frames to parse: bit i stands for frame i.
    pub wanted: u64,
    /// The slots of the frames: `stride` each, at least one.
    pub slots: &'a mut [Slot],
    /// Slots per frame, at least one.
    pub stride: usize,
    /// Output for each parsed frame: the inputs that are not NULL.
    pub present: &'a mut [InputSet],
    /// Output for each frame that breaks a check: the check's number.
    pub checks: &'a mut [u32],
}

impl<'a> ParseBatch<'a> {
    /// Parses each frame with `run`; returns the frames that break a check. The present inputs of `cx` apply to all
    /// frames.
    #[inline(always)]
    pub fn each(self, cx: &mut Cx<'a>, mut run: impl FnMut(&mut Cx<'a>)) -> u64 {
        let (always, mut bit, mut broken) = (cx.present, 1_u64, 0);
        assert!(self.frames.len() <= BATCH_MAX, "each frame has a bit");
        assert!(self.checks.len() >= self.frames.len(), "each frame has room for a check");
        assert_room(self.frames, self.slots.len(), self.stride, self.present.len());
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
        assert_eq!(broken & !self.wanted, 0, "only parsed frames break checks");
        broken
    }
}

/// A batch to prefetch for.
#[derive(Debug)]
pub struct PrefetchBatch<'a> {
    /// All frames of the batch.
    pub frames: &'a [Frame],
    /// The buffers of the frames.
    pub pool: &'a Pool,
    /// The frames to prefetch for: bit i stands for frame i.
    pub wanted: u64,
    /// The slots of the frames: `stride` each, at least one.
    pub slots: &'a [Slot],
    /// See `slots`.
    pub stride: usize,
    /// The present inputs of each frame.
    pub present: &'a [InputSet],
}

impl<'a> PrefetchBatch<'a> {
    /// Calls `run` for each frame, with its index.
    #[inline(always)]
    pub fn each(self, cx: &mut Cx<'a>, mut run: impl FnMut(&mut Cx<'a>, usize)) {
        assert_room(self.frames, self.slots.len(), self.stride, self.present.len());
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

/// A batch of parsed frames that pass one after the other.
#[derive(Debug)]
pub struct ExecBatch<'a, 'b> {
    /// The frames and their buffers.
    pub frames: &'b mut [Frame],
    /// See `frames`.
    pub pool: &'b mut Pool,
    /// The slots of the frames: `stride` each, at least one.
    pub slots: &'a [Slot],
    /// See `slots`.
    pub stride: usize,
    /// The present inputs of each frame.
    pub present: &'a [InputSet],
    /// The prefetch slots, and the index of the first frame in them.
    pub notes: (&'a PrefetchSlots, usize),
    /// The arrival time of frames without one in their metadata; no pass is earlier than the one before.
    pub now: Time,
    /// The base of `rand()`, beside the frame; None if no code draws.
    pub seed: Option<u64>,
    /// A pass may leave more than a verdict and edits.
    pub leaves_more: bool,
}

/// Receives every outcome other than "forward unchanged", with the frame's index in the batch. Both methods return
/// whether they accepted the outcome, so that the next frame may pass: the outcome is clear then.
pub trait OutcomeSink {
    /// Accepts an outcome without edits, if it needs nothing beyond the outcome.
    fn accept_unedited(&mut self, out: &mut Outcome, nth: usize) -> bool;
    /// Accepts an outcome that [`OutcomeSink::accept_unedited`] did not. The context has the slots of the frame.
    fn accept(&mut self, cx: &mut Cx<'_>, nth: usize, frame: &mut Frame, pool: &mut Pool) -> bool;
}

impl<'a> ExecBatch<'a, '_> {
    /// Runs each frame with `run`, and returns the number of frames whose outcome is complete. The frame behind them,
    /// if there is one, has passed, but the sink did not accept its outcome.
    #[inline(always)]
    pub fn each(
        self,
        cx: &mut Cx<'a>,
        sink: &mut dyn OutcomeSink,
        mut run: impl FnMut(&mut Cx<'a>, &mut [u8], usize),
    ) -> usize {
        self.each_by(cx, sink, |cx, frame, pool, nth| run(cx, pool.bytes_mut(frame), nth))
    }

    /// As [`ExecBatch::each`], with access to the free room in front of each frame. The pass may write headers there
    /// ([`Cx::front`]).
    #[inline(always)]
    pub fn each_with_front(
        self,
        cx: &mut Cx<'a>,
        sink: &mut dyn OutcomeSink,
        mut run: impl FnMut(&mut Cx<'a>, (&mut [u8], usize), usize),
    ) -> usize {
        self.each_by(cx, sink, |cx, frame, pool, nth| {
            let (bytes, front) = pool.bytes_and_front(frame);
            // A GSO frame gets new headers after it has been cut.
            cx.front = if frame.meta.offload.gso.is_none() { front as u64 + 1 } else { 0 };
            run(cx, (bytes, front), nth);
            if cx.out.pushed.bytes != 0 {
                pool.take_in_front(frame, core::mem::take(&mut cx.out.pushed));
            }
        })
    }

    /// Runs `run` for each frame, with its index, and hands outcomes that need more than forwarding to `sink`. Stops
    /// after the frame at which the sink refuses to continue. Returns the number of frames that passed.
    #[inline(always)]
    fn each_by(
        self,
        cx: &mut Cx<'a>,
        sink: &mut dyn OutcomeSink,
        mut run: impl FnMut(&mut Cx<'a>, &mut Frame, &mut Pool, usize),
    ) -> usize {
        assert_room(self.frames, self.slots.len(), self.stride, self.present.len());
        let slots = self.slots.chunks_exact(self.stride);
        let mut passed = 0;
        for ((frame, slots), present) in self.frames.iter_mut().zip(slots).zip(self.present) {
            begin(cx, frame, (self.now, self.seed));
            (cx.slots, cx.present) = (slots, *present);
            run(cx, frame, self.pool, passed);
            let is_taken = is_accepted(cx.out, self.leaves_more, sink, passed);
            if !is_taken && !sink.accept(cx, passed, frame, self.pool) {
                break;
            }
            passed += 1;
        }
        passed
    }
}

/// A batch of frames that are not parsed, for the prefetcher of a fast path.
#[derive(Debug)]
pub struct RawBatch<'a> {
    /// All frames of the batch.
    pub frames: &'a [Frame],
    /// The buffers of the frames.
    pub pool: &'a Pool,
    /// See [`FusedBatch::slots`].
    pub slots: &'a mut [Slot],
    /// See `slots`.
    pub stride: usize,
    /// See [`FusedBatch::always`].
    pub always: InputSet,
}

impl<'a> RawBatch<'a> {
    /// Copies the bytes of the frames that have slots into `to`, as far as it has room; returns their number.
    #[inline(always)]
    pub fn bodies(&self, to: &mut [&'a [u8]]) -> usize {
        assert!(self.stride > 0, "each frame has a slot");
        let n = self.frames.len().min(self.slots.len() / self.stride).min(to.len());
        for (to, frame) in to.iter_mut().zip(&self.frames[..n]) {
            *to = self.pool.bytes(frame);
        }
        n
    }
}

/// A batch whose frames each pass as soon as they are parsed.
#[derive(Debug)]
pub struct FusedBatch<'a, 'b> {
    /// The frames and their buffers.
    pub frames: &'b mut [Frame],
    /// See `frames`.
    pub pool: &'b mut Pool,
    /// The slots of the frames: `stride` each, at least one; those of `always` are filled.
    pub slots: &'a mut [Slot],
    /// See `slots`.
    pub stride: usize,
    /// Output: the present inputs of each frame.
    pub present: &'b mut [InputSet],
    /// The inputs that all frames have without a parser.
    pub always: InputSet,
    /// The prefetch slots.
    pub notes: &'a PrefetchSlots,
    /// See [`ExecBatch::now`].
    pub now: Time,
    /// See [`ExecBatch::seed`].
    pub seed: Option<u64>,
    /// See [`ExecBatch::leaves_more`].
    pub leaves_more: bool,
}

/// How far a batch has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of frames whose outcome is complete.
    pub passed: usize,
    /// The number of frames that took the slow path.
    pub n_slow_path: usize,
    /// Why the batch stopped after them.
    pub stop: Option<StopReason>,
}

/// Why a batch stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The sink did not accept the outcome of the next frame.
    Unhandled,
    /// The next frame breaks this check.
    Malformed(u32),
}

impl<'a> FusedBatch<'a, '_> {
    /// Runs each frame through `fast_path`, which reports whether it handled the frame ([`Cx::passed`]); it fills slots
    /// only if it also leaves edits. Parses other frames with `parser` and runs them with `pass`. Stops at the first
    /// outcome that the sink does not accept.
    #[inline(always)]
    pub fn each(
        self,
        parser: &dyn Program,
        cx: &mut Cx<'a>,
        sink: &mut dyn OutcomeSink,
        mut fast_path: impl FnMut(&mut Cx<'a>, &mut [u8], usize),
        mut pass: impl FnMut(&mut Cx<'a>, &mut [u8]),
    ) -> Progress {
        assert_room(self.frames, self.slots.len(), self.stride, self.present.len());
        let slots = self.slots.chunks_exact_mut(self.stride);
        let mut progress = Progress::default();
        for ((frame, slots), present) in self.frames.iter_mut().zip(slots).zip(self.present) {
            begin(cx, frame, (self.now, self.seed));
            (cx.given, cx.present, cx.passed) = (slots, self.always, 0);
            fast_path(cx, self.pool.bytes_mut(frame), progress.passed);
            let is_fast_path = cx.passed != 0;
            if !is_fast_path {
                progress.n_slow_path += 1;
                let mut of_frame = cx.on(self.pool.bytes(frame));
                parser.run(&mut of_frame, usize::MAX);
                cx.present = of_frame.present;
            } else if is_accepted(cx.out, self.leaves_more, sink, progress.passed) {
                progress.passed += 1;
                continue;
            }
            *present = cx.present;
            let slots: &'a mut [Slot] = core::mem::take(&mut cx.given);
            cx.slots = slots;
            if !is_fast_path {
                if cx.out.verdict != Verdict::Forward {
                    cx.out.verdict = Verdict::Forward;
                    return Progress { stop: Some(StopReason::Malformed(cx.out.line)), ..progress };
                }
                pass(cx, self.pool.bytes_mut(frame));
                if is_accepted(cx.out, self.leaves_more, sink, progress.passed) {
                    progress.passed += 1;
                    continue;
                }
            }
            if !sink.accept(cx, progress.passed, frame, self.pool) {
                return Progress { stop: Some(StopReason::Unhandled), ..progress };
            }
            progress.passed += 1;
        }
        assert!(progress.n_slow_path <= progress.passed, "each frame took one path");
        progress
    }
}

/// Sets up the context of a frame, except its inputs.
#[inline(always)]
fn begin(cx: &mut Cx<'_>, frame: &Frame, (now, seed): (Time, Option<u64>)) {
    cx.now = cx.now.max(frame.arrived(now));
    if let Some(seed) = seed {
        cx.rand = hash::mix(seed, frame.id());
    }
    cx.offload = frame.meta.offload;
}

/// Whether a frame is complete after its pass, without its slots; the outcome is clear then.
#[inline(always)]
fn is_accepted(out: &mut Outcome, leaves_more: bool, sink: &mut dyn OutcomeSink, nth: usize) -> bool {
    is_plain(out, leaves_more) || out.edits.is_empty() && sink.accept_unedited(out, nth)
}

/// Whether a pass forwards its frame unchanged, with nothing else; the outcome is clear then.
#[inline(always)]
fn is_plain(out: &mut Outcome, leaves_more: bool) -> bool {
    let is_plain = out.verdict == Verdict::Forward && out.edits.is_empty() && (!leaves_more || out.is_bare());
    if is_plain {
        // The rest is as it was before the pass.
        out.scratch.clear();
        out.journal.clear();
    }
    is_plain
}
