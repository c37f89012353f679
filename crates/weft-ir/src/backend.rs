//! The interface of back ends and of the code that they make.

use crate::batch::{ExecBatch, FusedBatch, OutcomeSink, ParseBatch, PrefetchBatch, Progress, RawBatch};
use crate::program::{ChainProgram, Event};
use crate::queue::run::Interpreted;
use crate::queue::verify::verify;
use crate::queue::{QueueCode, QueueProgram};
use core::fmt;
use std::sync::Arc;
#[cfg(doc)]
use weft_core::abi::REGION_BODY;
use weft_core::abi::{Cx, State};
use weft_core::prefetch::PrefetchSlots;

/// Compiles programs.
pub trait Backend: Send + Sync {
    /// The name in `explain` and in program tests: `interp`, `jit`.
    fn name(&self) -> &'static str;

    /// Compiles the segment of `chain` for `event`. `state` gives the layouts of the chain's tables; the code is valid
    /// only for states with the same layouts.
    ///
    /// # Errors
    /// [`Unsupported`] if the back end cannot express the segment. It never approximates.
    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported>;

    /// As [`Backend::compile`] for several events; None for events that no element handles. It may compile in parallel.
    ///
    /// # Errors
    /// Those of the first segment that fails.
    fn compile_all(
        &self,
        chain: &Arc<ChainProgram>,
        events: &[Event],
        state: &State,
    ) -> Result<Vec<Option<Box<dyn Program>>>, Unsupported> {
        let compile = |event: &Event| {
            let is_handled = !chain.parts(*event).is_empty();
            is_handled.then(|| self.compile(chain, *event, state)).transpose()
        };
        events.iter().map(compile).collect()
    }

    /// Compiles the handlers of a queue. A back end without code for queues interprets them.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    fn compile_queue(&self, program: &Arc<QueueProgram>) -> Result<Arc<dyn QueueCode>, Unsupported> {
        verify(program).map_err(|reason| Unsupported { reason, line: 0 })?;
        Ok(Arc::new(Interpreted::new(program.clone())))
    }
}

/// The code of one segment. Workers share it; it holds no state.
pub trait Program: Send + Sync + fmt::Debug {
    /// Runs one pass. The caller has cleared `cx.out`; the verdict goes there.
    ///
    /// Only elements with an index below `opened` take part. It is the number of elements, except for [`Event::Close`]
    /// of a call that an element ended.
    ///
    /// # Panics
    /// If the code changes frames: use [`Program::run_on`].
    fn run(&self, cx: &mut Cx<'_>, opened: usize);

    /// Runs one pass of all elements on a frame, which replaces [`REGION_BODY`]. Code may change fields in the frame
    /// instead of adding edits; these changes precede the edits that it adds.
    fn run_on(&self, cx: &mut Cx<'_>, frame: &mut [u8]) {
        self.run(&mut cx.on(frame), usize::MAX);
    }

    /// Parses the frames of a batch ([`Program::run`]), each into its slots; returns the frames that break a check. The
    /// caller has cleared `cx.out`, and it is clear afterwards.
    fn parse_batch<'a>(&self, cx: &mut Cx<'a>, batch: ParseBatch<'a>) -> u64 {
        batch.each(cx, |cx| self.run(cx, usize::MAX))
    }

    /// Runs the passes of a batch of frames ([`Program::run_on`]) in order, until the sink does not accept an outcome.
    /// Returns the number of frames before that. The caller has cleared `cx.out`.
    fn run_batch<'a>(&self, cx: &mut Cx<'a>, batch: ExecBatch<'a, '_>, sink: &mut dyn OutcomeSink) -> usize {
        let slots = batch.notes;
        batch.each(cx, sink, |cx, frame, nth| {
            cx.prefetched = slots.0.tuple(slots.1 + nth);
            self.run_on(cx, frame);
        })
    }

    /// Whether it has a fast path: code that parses common frames and runs them at once ([`Program::run_fused`]).
    fn has_fast_path(&self) -> bool {
        false
    }

    /// As [`Program::prefetch_keys_batch`], for frames that are not parsed. Frames off the fast path get no slots.
    fn prefetch_raw<'a>(&self, cx: &mut Cx<'a>, batch: RawBatch<'a>, slots: &mut PrefetchSlots) {
        let _ = (cx, batch, slots);
    }

    /// Runs each frame before the next one is parsed. `parser` parses frames that leave the fast path. Never called for
    /// code without a fast path.
    fn run_fused<'a>(
        &self,
        parser: &dyn Program,
        cx: &mut Cx<'a>,
        batch: FusedBatch<'a, '_>,
        sink: &mut dyn OutcomeSink,
    ) -> Progress {
        batch.each(parser, cx, sink, |_, _, _| {}, |cx, frame| self.run_on(cx, frame))
    }

    /// Whether the code may change frames.
    fn changes_frames(&self) -> bool {
        false
    }

    /// Whether prefetching pays in this state as it is now.
    fn prefetch_pays(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// Allocates the prefetch slots for the tuples of the next batch.
    fn start_prefetch(&self, state: &State, tuples: usize, slots: &mut PrefetchSlots) {
        let _ = (state, tuples);
        slots.clear();
    }

    /// Writes the keys that the pass of a tuple will look up to its prefetch slots, as far as the unchanged tuple gives
    /// them. Nothing else changes.
    fn prefetch_keys(&self, cx: &mut Cx<'_>, nth: usize, slots: &mut PrefetchSlots) {
        let _ = (cx, nth, slots);
    }

    /// As [`Program::prefetch_keys`], for frames of a batch.
    fn prefetch_keys_batch<'a>(&self, cx: &mut Cx<'a>, batch: PrefetchBatch<'a>, slots: &mut PrefetchSlots) {
        batch.each(cx, |cx, nth| self.prefetch_keys(cx, nth, slots));
    }

    /// Looks up all keys in the slots in one go, so that the memory accesses overlap. The results go to the slots as
    /// well; passes that get their slots ([`Cx::prefetched`]) use them if they are still valid.
    fn prefetch_rows(&self, state: &State, slots: &mut PrefetchSlots) {
        let _ = (state, slots);
    }
}

/// Why a back end cannot express a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The construct and the reason.
    pub reason: String,
    /// The source line, 0 if unknown.
    pub line: u32,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for Unsupported {}
