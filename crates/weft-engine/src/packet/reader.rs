//! Programs that read a frame beside its chain: the condition of a chain, the key of a group, the header fields of a
//! queue.

use super::active::{ArrivedBatch, Code, UserMetadata};
use crate::plan::ChainError;
use crate::state::{Bound, Staged};
use core::slice;
use std::sync::Arc;
use weft_core::Time;
use weft_core::abi::{Counters, Cx, Outcome, REGION_BODY, REGIONS, Slot, State};
use weft_core::frame::{Frame, Pool};
use weft_core::inputs::InputSet;
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;

/// A program that reads nothing but a frame, bound and compiled.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) program: Arc<ChainProgram>,
    pub(super) state: Bound,
    pub(super) code: Code,
}

/// What one worker needs to run it.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    state: State,
    pub(super) slots: Vec<Slot>,
    call: Vec<u64>,
    outcome: Outcome,
    counters: Vec<Counters>,
}

impl Reader {
    /// Binds a program to the state of an update and compiles it.
    ///
    /// # Errors
    /// See [`ChainError`]. Abandon the update then.
    pub(super) fn build(
        version: u64,
        program: ChainProgram,
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        let (program, state) = state.bind(program).map_err(ChainError::State)?;
        let program = Arc::new(program);
        let code = Code::compile(version, &program, &state, backend).map_err(ChainError::Unsupported)?;
        Ok(Self { program, state, code })
    }

    /// Creates the memory in which one worker runs the program.
    pub(super) fn scratch(&self) -> Scratch {
        Scratch {
            state: self.state.for_worker(0),
            slots: vec![Slot::default(); self.code.inputs],
            call: vec![0; self.program.call_words()],
            outcome: Outcome::default(),
            counters: vec![Counters::default(); self.program.elements.len() + 1],
        }
    }

    /// Parses a frame into the slots of `scratch`, and returns its present inputs. None if it is malformed.
    pub(super) fn parse(
        &self,
        scratch: &mut Scratch,
        now: Time,
        frame: &Frame,
        pool: &Pool,
    ) -> Option<InputSet> {
        let batch = ArrivedBatch {
            now,
            frames: slice::from_ref(frame),
            port: &[],
            pool,
            fragment_info: &[],
            user_metadata: UserMetadata::default(),
        };
        scratch.outcome.clear();
        let mut cx = Cx {
            given: &mut scratch.slots,
            regions: [&[][..]; REGIONS],
            ..Cx::new(now, &scratch.state, &mut scratch.call, &mut scratch.outcome, &mut scratch.counters)
        };
        cx.regions[REGION_BODY] = pool.bytes(frame);
        self.code.parse(&mut cx, &batch, 0).ok()?;
        Some(cx.present)
    }

    /// Parses a frame, runs the program on it, and returns the outcome. None if the frame is malformed.
    pub(super) fn run<'s>(
        &self,
        scratch: &'s mut Scratch,
        now: Time,
        frame: &Frame,
        pool: &Pool,
    ) -> Option<&'s Outcome> {
        let present = self.parse(scratch, now, frame, pool)?;
        let mut cx = Cx {
            slots: &scratch.slots,
            present,
            regions: [&[][..]; REGIONS],
            ..Cx::new(now, &scratch.state, &mut scratch.call, &mut scratch.outcome, &mut scratch.counters)
        };
        cx.regions[REGION_BODY] = pool.bytes(frame);
        self.code.request.as_ref()?.run(&mut cx, usize::MAX);
        Some(&scratch.outcome)
    }
}
