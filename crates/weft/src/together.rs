//! A back end that compiles the segments of a chain side by side.

use std::sync::Arc;
use std::thread;
use weft_core::abi::State;
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::program::{ChainProgram, Event};

/// Threads that one chain is compiled on: a chain has few segments that take any time.
const THREADS_MAX: usize = 4;
/// Instructions below which a segment is not worth a thread: starting one takes what compiling some thirty does.
const INSTS_MIN: usize = 60;

/// Another back end, on as many threads as the machine has use for.
pub(crate) struct Together {
    inner: Box<dyn Backend>,
    n_threads: usize,
}

/// Which events a thread compiles, by their place in the list, and how many instructions they have.
#[derive(Clone, Default)]
struct Share {
    events: Vec<usize>,
    n_insts: usize,
}

type Compiled = Result<Option<Box<dyn Program>>, Unsupported>;

impl Together {
    pub(crate) fn new(inner: Box<dyn Backend>) -> Self {
        let n_threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        Self { inner, n_threads }
    }

    fn compile_share(
        &self,
        share: &Share,
        chain: &Arc<ChainProgram>,
        events: &[Event],
        state: &State,
    ) -> Vec<(usize, Compiled)> {
        let compile = |at: &usize| (*at, self.inner.compile(chain, events[*at], state).map(Some));
        share.events.iter().map(compile).collect()
    }
}

impl Backend for Together {
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

    fn compile_all(
        &self,
        chain: &Arc<ChainProgram>,
        events: &[Event],
        state: &State,
    ) -> Result<Vec<Option<Box<dyn Program>>>, Unsupported> {
        let shares = shares(chain, events, self.n_threads);
        let Some((mine, others)) = shares.split_first() else { return Ok(Vec::new()) };
        let compiled = thread::scope(|scope| {
            let compile = |share| self.compile_share(share, chain, events, state);
            let threads: Vec<_> = others.iter().map(|share| scope.spawn(move || compile(share))).collect();
            let mut compiled = compile(mine);
            for thread in threads {
                compiled.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            compiled
        });
        let mut all: Vec<Compiled> = events.iter().map(|_| Ok(None)).collect();
        for (at, result) in compiled {
            all[at] = result;
        }
        all.into_iter().collect()
    }
}

/// Deals the events that are handled out to threads, the largest first, each to the one with the least to do. The first
/// share is the caller's.
fn shares(chain: &ChainProgram, events: &[Event], n_threads: usize) -> Vec<Share> {
    let n_insts = |event: &Event| -> usize {
        let parts = chain.parts(*event);
        parts.iter().flat_map(|part| &part.function.blocks).map(|block| 1 + block.insts.len()).sum()
    };
    let mut sizes: Vec<(usize, usize)> =
        events.iter().map(n_insts).enumerate().filter(|(_, n)| *n > 0).collect();
    sizes.sort_by_key(|(_, n_insts)| core::cmp::Reverse(*n_insts));
    let mut shares = vec![Share::default()];
    for (at, n_insts) in sizes {
        let has_worth = n_insts >= INSTS_MIN && shares[0].n_insts >= INSTS_MIN;
        if has_worth && shares.len() < n_threads {
            shares.push(Share::default());
        }
        let least = shares.iter_mut().min_by_key(|share| share.n_insts).expect("there is the caller's");
        least.events.push(at);
        least.n_insts += n_insts;
    }
    shares
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

    /// A code that stood in another event's place would run the wrong handler.
    #[test]
    fn each_event_has_its_own_code() {
        let events = [Event::Response, Event::Close, Event::OpenRequest];
        for (n_request, n_close) in [(1, 1), (200, 100), (100, 300)] {
            let chain = Arc::new(chain(n_request, n_close));
            let together = Together { inner: Box::new(Interp), n_threads: 3 };
            let made = together.compile_all(&chain, &events, &State::default()).expect("it is well-formed");
            let made: Vec<_> =
                made.iter().map(|code| code.as_ref().map(|code| format!("{code:?}"))).collect();
            let alone = Interp.compile_all(&chain, &events, &State::default()).expect("it is well-formed");
            let alone: Vec<_> =
                alone.iter().map(|code| code.as_ref().map(|code| format!("{code:?}"))).collect();
            assert_eq!(made, alone);
        }
    }

    /// Small chains would wait for threads that have nothing to do.
    #[test]
    fn small_segments_stay_on_the_callers_thread() {
        let events = [Event::OpenRequest, Event::Response, Event::Close];
        assert_eq!(shares(&chain(20, 20), &events, 4).len(), 1);
        assert_eq!(shares(&chain(200, 20), &events, 4).len(), 1);
        assert_eq!(shares(&chain(200, 100), &events, 4).len(), 2);
        assert_eq!(shares(&chain(200, 100), &events, 1).len(), 1);
    }
}
