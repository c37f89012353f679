//! Runs jobs on all cores. Results carry the job's number, so that the outcome need not depend on the order of
//! completion.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The longest delay until a stop request is noticed.
const HEARS: Duration = Duration::from_millis(200);

/// The requested number of threads; by default the number of cores.
pub(super) fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// Runs the jobs on a number of threads until a stop request. `run` gets a flag that says whether to stop; jobs that
/// have not begun are dropped. `hear` gets each result with its job number; it is also called with None at intervals.
pub(super) fn run_all<J: Sync, D: Send>(
    jobs: &[J],
    threads: usize,
    stop: &Receiver<()>,
    run: impl Fn(&J, &AtomicBool) -> D + Sync,
    mut hear: impl FnMut(Option<(usize, D)>),
) {
    let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, receive) = channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next, is_stopped, run) = (send.clone(), &next, &is_stopped, &run);
            scope.spawn(move || {
                while !is_stopped.load(Ordering::Relaxed)
                    && let Some((number, job)) = take(jobs, next)
                {
                    // The receiver is gone if the command is over.
                    let _ = send.send((number, run(job, is_stopped)));
                }
            });
        }
        drop(send);
        loop {
            if stop.try_recv().is_ok() {
                is_stopped.store(true, Ordering::Relaxed);
            }
            match receive.recv_timeout(HEARS) {
                Ok(done) => hear(Some(done)),
                Err(RecvTimeoutError::Timeout) => hear(None),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
}

fn take<'j, J>(jobs: &'j [J], next: &AtomicUsize) -> Option<(usize, &'j J)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(number).map(|job| (number, job))
}
