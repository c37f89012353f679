//! Jobs on all cores. What they make is told with their numbers, so that the result need not depend on which was done
//! first.

use crate::signals::Request;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a request to stop may wait to be heard.
const HEARS: Duration = Duration::from_millis(200);

/// As many threads as were asked for, by default as there are cores.
pub(super) fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// Runs the jobs on so many threads until somebody asks to stop: `run` is told whether that is so, jobs that have not
/// begun are left. `hear` takes what a job gave, with the job's number, and is called without any every now and then.
pub(super) fn run_all<J: Sync, D: Send>(
    jobs: &[J],
    threads: usize,
    stop: &Receiver<Request>,
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
                    // Nobody listens any more if the command is over.
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
