//! Compiles the segments of a chain in parallel.

use crate::privileges::{self, KeptCapabilities};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use weft_core::abi::State;
use weft_core::limits::COMPILE_STACK_BYTES;
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::program::{ChainProgram, Event};
use weft_ir::queue::{QueueCode, QueueProgram};

/// A smaller segment stays with the caller: waking a thread takes as long as compiling some ten instructions.
const INSTS_MIN: usize = 16;

/// Wraps another back end, and compiles on the caller's thread and one helper. The helper thread stays alive, because
/// allocators keep a compiler's memory per thread; allocating it takes half the time of a first segment.
pub struct ParallelBackend {
    inner: Arc<dyn Backend>,
    /// None on a machine with one core.
    helper: Option<Sender<Job>>,
}

/// A share of the work for the helper.
struct Job {
    share: Share,
    chain: Arc<ChainProgram>,
    events: Vec<Event>,
    state: State,
    done: Sender<Vec<(usize, Compiled)>>,
}

/// The events that a thread compiles, by index, and the number of their instructions.
#[derive(Clone, Debug, Default)]
struct Share {
    events: Vec<usize>,
    n_insts: usize,
}

type Compiled = Result<Option<Box<dyn Program>>, Unsupported>;

impl ParallelBackend {
    /// Wraps a back end.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        let n_cores = thread::available_parallelism().map_or(1, usize::from);
        let helper = (n_cores > 1).then(|| start_helper(Arc::clone(&inner))).flatten();
        Self { inner, helper }
    }
}

/// None if the system refuses a thread; then the caller compiles everything.
fn start_helper(inner: Arc<dyn Backend>) -> Option<Sender<Job>> {
    let (helper, jobs): (_, Receiver<Job>) = channel();
    let work = move || {
        // This thread may start before the node gives up its privileges. If this call fails, the node reports it.
        let _ = privileges::reduce(KeptCapabilities::Nothing);
        for Job { share, chain, events, state, done } in jobs {
            // The receiver is gone if the caller has failed; then the result is not needed.
            let _ = done.send(compile_share(&*inner, &share, &chain, &events, &state));
        }
    };
    let thread = thread::Builder::new().name("weft-compile".to_owned()).stack_size(COMPILE_STACK_BYTES);
    thread.spawn(work).ok()?;
    Some(helper)
}

/// Compiles one thread's share of the events.
fn compile_share(
    backend: &dyn Backend,
    share: &Share,
    chain: &Arc<ChainProgram>,
    events: &[Event],
    state: &State,
) -> Vec<(usize, Compiled)> {
    let compile = |at: &usize| (*at, backend.compile(chain, events[*at], state).map(Some));
    share.events.iter().map(compile).collect()
}

impl Backend for ParallelBackend {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported> {
        self.inner.compile(chain, event, state)
    }

    fn compile_queue(&self, program: &Arc<QueueProgram>) -> Result<Arc<dyn QueueCode>, Unsupported> {
        self.inner.compile_queue(program)
    }

    fn compile_all(
        &self,
        chain: &Arc<ChainProgram>,
        events: &[Event],
        state: &State,
    ) -> Result<Vec<Option<Box<dyn Program>>>, Unsupported> {
        let [mine, other] = shares(chain, events, if self.helper.is_some() { 2 } else { 1 });
        let (done, result) = channel();
        if let Some(helper) = self.helper.as_ref().filter(|_| !other.events.is_empty()) {
            let (chain, events, state) = (Arc::clone(chain), events.to_vec(), state.clone());
            // If the helper is gone, the caller compiles its share below.
            let _ = helper.send(Job { share: other.clone(), chain, events, state, done });
        } else {
            drop(done);
        }
        let mut compiled = compile_share(&*self.inner, &mine, chain, events, state);
        compiled.extend(
            result.recv().unwrap_or_else(|_| compile_share(&*self.inner, &other, chain, events, state)),
        );
        let mut all: Vec<Compiled> = events.iter().map(|_| Ok(None)).collect();
        for (at, code) in compiled {
            all[at] = code;
        }
        all.into_iter().collect()
    }
}

/// Splits the events with handlers between the caller and the helper: the largest first, each to the smaller share.
fn shares(chain: &ChainProgram, events: &[Event], n_threads: usize) -> [Share; 2] {
    let n_insts = |event: &Event| -> usize {
        let parts = chain.parts(*event);
        parts.iter().flat_map(|part| &part.function.blocks).map(|block| 1 + block.insts.len()).sum()
    };
    let sizes = events.iter().map(n_insts).enumerate();
    let mut sizes: Vec<(usize, usize)> = sizes.filter(|(_, n_insts)| *n_insts > 0).collect();
    sizes.sort_by_key(|(_, n_insts)| core::cmp::Reverse(*n_insts));
    let [mut mine, mut other] = [Share::default(), Share::default()];
    for (at, n_insts) in sizes {
        let is_others = n_threads > 1 && n_insts >= INSTS_MIN && other.n_insts < mine.n_insts;
        let share = if is_others { &mut other } else { &mut mine };
        share.events.push(at);
        share.n_insts += n_insts;
    }
    [mine, other]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ir::interp::Interp;
    use weft_ir::text::parse_program;

    fn chain(n_request: usize, n_close: usize) -> ChainProgram {
        let body = |n: usize| {
            let insts: String = (0..n).map(|at| format!("v{at}: int = int {at}\n")).collect();
            format!("block0:\n{insts}forward")
        };
        let handler = |name: &str, n| format!("handler {name} function \"e.{name}\" {{\n{}\n}}\n", body(n));
        let text = format!(
            "chain \"c\"\nrequest\nresponse\nelement \"e\" \"e\"\n{}{}",
            handler("request", n_request),
            handler("close", n_close)
        );
        parse_program(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// A program in another event's slot would run the wrong handler.
    #[test]
    fn events_keep_their_own_code() {
        let events = [Event::Response, Event::Close, Event::OpenRequest];
        for (n_request, n_close) in [(1, 1), (200, 100), (100, 300)] {
            let chain = Arc::new(chain(n_request, n_close));
            let inner: Arc<dyn Backend> = Arc::new(Interp);
            let parallel = ParallelBackend { helper: start_helper(Arc::clone(&inner)), inner };
            let made = parallel.compile_all(&chain, &events, &State::default()).expect("it is well-formed");
            let made: Vec<_> =
                made.iter().map(|code| code.as_ref().map(|code| format!("{code:?}"))).collect();
            let alone = Interp.compile_all(&chain, &events, &State::default()).expect("it is well-formed");
            let alone: Vec<_> =
                alone.iter().map(|code| code.as_ref().map(|code| format!("{code:?}"))).collect();
            assert_eq!(made, alone);
        }
    }

    /// Small chains would wait for a thread that has almost nothing to do.
    #[test]
    fn small_segments_stay_on_caller() {
        let events = [Event::OpenRequest, Event::Response, Event::Close];
        let n_others = |chain: &ChainProgram, n_threads| shares(chain, &events, n_threads)[1].events.len();
        assert_eq!(n_others(&chain(8, 8), 2), 0);
        assert_eq!(n_others(&chain(200, 8), 2), 0);
        assert_eq!(n_others(&chain(200, 100), 2), 1);
        assert_eq!(n_others(&chain(200, 100), 1), 0);
    }
}
