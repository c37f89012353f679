//! What a back end is, and what it makes.

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
use weft_core::ahead::Notes;

/// Makes code from programs.
pub trait Backend: Send + Sync {
    /// The name that `explain` and the program tests use: `interp`, `jit`.
    fn name(&self) -> &'static str;

    /// Compiles the segment of `chain` for `event`. `state` gives the tables that the chain will run on: their
    /// layouts are read, and the code is only good for states with the same layouts.
    ///
    /// # Errors
    /// [`Unsupported`] if the back end cannot express it. It never approximates.
    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported>;

    /// As [`Backend::compile`] for several events; None for those that no element handles. It may work on several at
    /// once.
    ///
    /// # Errors
    /// Those of the first segment that cannot be expressed.
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

    /// Compiles the handlers of a queue. A back end that has no code for queues interprets them.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    fn compile_queue(&self, program: &Arc<QueueProgram>) -> Result<Arc<dyn QueueCode>, Unsupported> {
        verify(program).map_err(|reason| Unsupported { reason, line: 0 })?;
        Ok(Arc::new(Interpreted::new(program.clone())))
    }
}

/// Code for one segment. It is shared by workers and holds no state.
pub trait Program: Send + Sync + fmt::Debug {
    /// Runs one pass. The caller has cleared `cx.out`; the verdict is left there.
    ///
    /// Only elements with an index below `opened` take part ([`Event::Close`] of a call that an element ended;
    /// otherwise pass the number of elements).
    ///
    /// # Panics
    /// If the code changes frames: it wants to be given one ([`Program::run_on`]).
    fn run(&self, cx: &mut Cx<'_>, opened: usize);

    /// Runs one pass of all elements on a frame, which takes the place of [`REGION_BODY`]. Code may change fields in
    /// it, where it would else leave edits; those stand in front of the edits that it leaves.
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
        let notes = batch.notes;
        batch.each(cx, sink, |cx, frame, nth| {
            cx.noted = notes.0.of(notes.1 + nth);
            self.run_on(cx, frame);
        })
    }

    /// Whether it has a fast path: code that parses common frames and runs them at once ([`Program::run_fused`]).
    fn has_fast_path(&self) -> bool {
        false
    }

    /// As [`Program::look_ahead_all`], for frames that are not parsed; frames off the fast path get no prefetch slots.
    fn look_through<'a>(&self, cx: &mut Cx<'a>, batch: RawBatch<'a>, notes: &mut Notes) {
        let _ = (cx, batch, notes);
    }

    /// Runs each frame before the next one is parsed. Frames that leave the fast path are parsed by `parser`. Never called
    /// for code without a fast path.
    fn run_fused<'a>(
        &self,
        parser: &dyn Program,
        cx: &mut Cx<'a>,
        batch: FusedBatch<'a, '_>,
        sink: &mut dyn OutcomeSink,
    ) -> Progress {
        batch.each(parser, cx, sink, |_, _, _| {}, |cx, frame| self.run_on(cx, frame))
    }

    /// Whether it may change the frames that it is given.
    fn changes_frames(&self) -> bool {
        false
    }

    /// Whether prefetching pays in this state as it is now.
    fn prefetch_pays(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// Makes room for notes of so many tuples, which are those of a batch that is about to pass.
    fn start_ahead(&self, state: &State, tuples: usize, notes: &mut Notes) {
        let _ = (state, tuples);
        notes.clear();
    }

    /// Notes what the pass of the tuple with this number will ask tables for, as far as the tuple tells as it is.
    /// Nothing else changes.
    fn look_ahead(&self, cx: &mut Cx<'_>, nth: usize, notes: &mut Notes) {
        let _ = (cx, nth, notes);
    }

    /// As [`Program::look_ahead`], for frames of a batch.
    fn look_ahead_all<'a>(&self, cx: &mut Cx<'a>, batch: PrefetchBatch<'a>, notes: &mut Notes) {
        batch.each(cx, |cx, nth| self.look_ahead(cx, nth, notes));
    }

    /// Looks up what is noted, for all tuples at once, so that none of them waits for memory by itself. What is found
    /// is noted, too: passes that are given their notes ([`Cx::noted`]) take it where it is still so.
    fn fetch(&self, state: &State, notes: &mut Notes) {
        let _ = (state, notes);
    }
}

/// Why a back end cannot express a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// What, and why.
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
