//! Compiled code behaves as the interpreter.

#![allow(clippy::disallowed_types, reason = "a back end is shared, and this one keeps what it compiled")]

use std::sync::{Arc, Mutex};
use weft_core::abi::{Cx, State};
use weft_core::inputs::InputSet;
use weft_core::prefetch::PrefetchSlots;
use weft_core::wire::{FieldRef, LayerRef};
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::generate;
use weft_ir::interp::Interp;
use weft_ir::program::{ChainProgram, Event, Frames, InputLocation};
use weft_jit::{Jit, Segment};

/// Number of generated chains.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 4000 };

#[test]
fn compiled_code_matches_interpreter() {
    // Otherwise a chain would mean one thing in `weft check` and tests, and another in traffic. A prefetch must not be
    // observable: half of the passes prefetch; the others get the prefetch slots of the pass before, as if tables had
    // changed since.
    let jit = Jit::new().expect("this machine is one that code is generated for").prefetching_always();
    for seed in 0..SEEDS {
        let jit = SegmentCache { jit: jit.clone(), segments: Mutex::default(), usual: InputSet::EMPTY };
        generate::compare(seed, &Interp, &jit).unwrap_or_else(|d| panic!("seed {}: {}", d.seed, d.what));
    }
}

#[test]
fn specialized_code_matches_interpreter() {
    // Whether an element does what it says would depend on the fields of a frame.
    let jit = Jit::new().expect("this machine is one that code is generated for").prefetching_always();
    for seed in (0..SEEDS).step_by(3) {
        let usual = [seed % 4, seed / 4 % 4].map(|at| at as u8).into_iter().collect();
        let jit = SegmentCache { jit: jit.clone(), segments: Mutex::default(), usual };
        generate::compare(seed, &Interp, &jit).unwrap_or_else(|d| panic!("seed {}: {}", d.seed, d.what));
    }
}

/// Compiles each segment of a chain once, for all its passes: compiling takes most of the test's time.
#[derive(Debug)]
struct SegmentCache {
    jit: Jit,
    segments: Mutex<Vec<(Event, Arc<CachedSegment>)>>,
    /// Inputs of requests that are declared usual, as if they were fields of frames.
    usual: InputSet,
}

impl SegmentCache {
    fn with_usual(&self, chain: &Arc<ChainProgram>) -> Arc<ChainProgram> {
        let mut chain = ChainProgram::clone(chain);
        for input in &mut chain.request.inputs {
            if matches!(input.place, InputLocation::Body(_)) && !input.place.is_derived() {
                let layer = LayerRef { level: 0, protocols: Vec::new() };
                input.place = InputLocation::Frame(FieldRef::presence(layer));
            }
        }
        let n = chain.request.inputs.len();
        let field_writes = vec![None; n];
        // In chains with many inputs, some in each word of a set.
        let usual = self.usual.iter().flat_map(|at| (at..n).step_by(97)).collect();
        chain.frames = Some(Frames { usual, field_writes, ..Frames::default() });
        Arc::new(chain)
    }
}

impl Backend for SegmentCache {
    fn name(&self) -> &'static str {
        self.jit.name()
    }

    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported> {
        let mut segments = self.segments.lock().expect("no test thread has panicked");
        if let Some((_, segment)) = segments.iter().find(|(of, _)| *of == event) {
            return Ok(Box::new(CachedProgram(segment.clone())));
        }
        let segment = match self.usual.is_empty() {
            true => self.jit.compile_segment(chain, event, state)?,
            false => self.jit.compile_segment(&self.with_usual(chain), event, state)?,
        };
        let segment = Arc::new(CachedSegment { segment, notes: Mutex::default() });
        segments.push((event, segment.clone()));
        Ok(Box::new(CachedProgram(segment)))
    }
}

#[derive(Debug)]
struct CachedSegment {
    segment: Segment,
    /// The prefetch slots, and the number of passes.
    notes: Mutex<(PrefetchSlots, u64)>,
}

#[derive(Debug)]
struct CachedProgram(Arc<CachedSegment>);

impl Program for CachedProgram {
    fn run(&self, cx: &mut Cx<'_>, opened: usize) {
        let CachedSegment { segment, notes } = &*self.0;
        let (notes, passes) = &mut *notes.lock().expect("no test thread has panicked");
        if passes.is_multiple_of(2) {
            segment.start_prefetch(cx.state, 1, notes);
            segment.prefetch_keys(cx, 0, notes);
            segment.prefetch_rows(cx.state, notes);
        }
        *passes += 1;
        let mut cx = Cx {
            prefetched: notes.tuple(0),
            given: &mut *cx.given,
            call: &mut *cx.call,
            out: &mut *cx.out,
            counters: &mut *cx.counters,
            ..*cx
        };
        segment.run(&mut cx, opened);
    }
}
