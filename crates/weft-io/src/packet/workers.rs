//! The workers that carry frames, as a node sees them: one thing that is told and asked.

use super::Device;
use super::gate::{Bell, Gates};
use super::port::{OpenPort, PortConfig};
use super::recovery::Recovery;
use super::report::{PacketNodeStats, PortError};
use super::worker::{Ears, Mail, Port, Worker, WorkerConfig};
use crate::spin::Spin;
use crate::worker::Errand;
use crate::writer::RowSender;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_core::Interval;
use weft_engine::packet::PacketConfig;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::recording::{Limits, Recorder, RecordingProgress};
use weft_engine::rules::Swap;

/// The way to all workers.
pub(crate) struct Handle {
    workers: Vec<One>,
}

struct One {
    sender: Sender<Mail>,
    bell: Arc<Bell>,
    thread: JoinHandle<Result<(), PortError>>,
}

impl Handle {
    /// Starts a worker for each sender of rows. `engine` is that of the first.
    pub(crate) fn start(
        engine: PacketConfig,
        spin: Spin,
        coalesce: Interval,
        plan: &Arc<PacketPlan>,
        ports: Vec<OpenPort>,
        rows: Vec<RowSender>,
    ) -> io::Result<Self> {
        let (mut ears, mut ways) = (Vec::new(), Vec::new());
        for _ in &rows {
            let (wake, woken) = UnixStream::pair()?;
            wake.set_nonblocking(true)?;
            woken.set_nonblocking(true)?;
            let (sender, mail) = channel();
            let bell = Arc::new(Bell::new(wake));
            ears.push(Ears { mail, wake: woken, bell: Arc::clone(&bell) });
            ways.push((sender, bell));
        }
        let bells: Vec<_> = ways.iter().map(|(_, bell)| bell).collect();
        let shares = share_out(ports, &bells);
        let mut workers = Vec::new();
        for (nth, (((rows, ears), ports), (sender, bell))) in
            rows.into_iter().zip(ears).zip(shares).zip(ways).enumerate()
        {
            let engine = PacketConfig { worker: engine.first + nth, ..engine };
            let plan = Arc::clone(plan);
            let start =
                move || Worker::new(WorkerConfig { engine, spin, coalesce }, plan, ports, ears, rows)?.run();
            let thread = std::thread::Builder::new().name(format!("weft-packets-{nth}")).spawn(start)?;
            workers.push(One { sender, bell, thread });
        }
        Ok(Self { workers })
    }

    /// All of them run.
    pub(crate) fn is_alive(&self) -> bool {
        self.workers.iter().all(|worker| !worker.thread.is_finished())
    }

    /// Has all workers run a new plan with the same ports; the longest time that one did nothing else. None if one is
    /// gone.
    pub(crate) fn apply(&self, plan: &Arc<PacketPlan>) -> Option<Duration> {
        let times = self.ask(|done| Mail::Apply { plan: Arc::clone(plan), done })?;
        times.into_iter().max()
    }

    /// Has all workers look at other copies of tables; `done` is told by each when it does. How many there are.
    pub(crate) fn take_up(&self, swap: &Arc<Swap>, done: &Sender<()>) -> usize {
        let workers = self.workers.iter();
        workers.for_each(|worker| worker.send(Mail::TakeUp { swap: Arc::clone(swap), done: done.clone() }));
        self.workers.len()
    }

    /// Has all workers do something between two batches, as [`Handle::take_up`].
    pub(crate) fn run_errand(&self, errand: &Errand, done: &Sender<()>) -> usize {
        let workers = self.workers.iter();
        workers
            .for_each(|worker| worker.send(Mail::Errand { errand: Arc::clone(errand), done: done.clone() }));
        self.workers.len()
    }

    /// Has all workers run other code of the plan that they run. None if one is gone.
    pub(crate) fn take_code(&self, plan: &Arc<PacketPlan>) -> Option<()> {
        self.ask(|done| Mail::TakeCode { plan: Arc::clone(plan), done }).map(drop)
    }

    /// The sum of what they counted. None if one is gone.
    pub(crate) fn stats(&self) -> Option<PacketNodeStats> {
        let mut sum = PacketNodeStats::default();
        self.ask(|to| Mail::Stats { to })?.into_iter().for_each(|stats| sum.merge(stats));
        Some(sum)
    }

    /// Has the worker that has a link note what its queue is asked; false: it does already. None if a worker is gone,
    /// or no such link is there.
    pub(crate) fn record(&self, link: &str, limits: Limits) -> Option<Option<bool>> {
        let answers = self.ask(|to| Mail::Record { link: link.to_owned(), limits, to })?;
        Some(answers.into_iter().flatten().next())
    }

    /// How far the recordings of links are, by the names of the links. None if a worker is gone.
    pub(crate) fn recordings(&self) -> Option<Vec<(String, RecordingProgress)>> {
        self.ask(|to| Mail::Recordings { to }).map(|found| found.into_iter().flatten().collect())
    }

    /// What was noted of a link, which is noted no more. None if a worker is gone.
    pub(crate) fn take_recording(&self, link: &str) -> Option<Option<Recorder>> {
        let answers = self.ask(|to| Mail::TakeRecording { link: link.to_owned(), to })?;
        Some(answers.into_iter().flatten().next())
    }

    /// Stops them; what waits for a device that has room leaves.
    ///
    /// # Errors
    /// The device that has ended a worker before; None: a worker has panicked.
    pub(crate) fn stop(self) -> Result<(), Option<PortError>> {
        // What one has handed to another is still to leave: first what links hold back goes to the chains, then what
        // these make of it to its port. Who has ended before does not answer.
        for _ in 0..2 {
            let (done, answered) = channel();
            self.workers.iter().for_each(|worker| worker.send(Mail::Quiet { done: done.clone() }));
            drop(done);
            answered.iter().for_each(drop);
        }
        self.workers.iter().for_each(|worker| worker.send(Mail::Stop));
        let mut ended = Ok(());
        for worker in self.workers {
            let result = worker.thread.join().map_err(|_| None).and_then(|result| result.map_err(Some));
            // The device is the reason, if there is one.
            if !matches!(ended, Err(Some(_))) && result.is_err() {
                ended = result;
            }
        }
        ended
    }

    /// Tells all workers something that each answers; the answers. None if one is gone.
    fn ask<T>(&self, mail: impl Fn(Sender<T>) -> Mail) -> Option<Vec<T>> {
        let (to, answers) = channel();
        self.workers.iter().for_each(|worker| worker.send(mail(to.clone())));
        // From here on only workers hold it: if one ends before it answers, nobody waits for it.
        drop(to);
        let answers: Vec<_> = answers.iter().collect();
        (answers.len() == self.workers.len()).then_some(answers)
    }
}

impl One {
    /// Mail to a worker that is gone is dropped, and with it the way for an answer.
    fn send(&self, mail: Mail) {
        let _ = self.sender.send(mail);
        self.bell.call();
    }
}

/// What each worker has of each port.
fn share_out(ports: Vec<OpenPort>, bells: &[&Arc<Bell>]) -> Vec<Vec<Port>> {
    let n = bells.len();
    let mut shares: Vec<Vec<Port>> = (0..n).map(|_| Vec::new()).collect();
    for (at, OpenPort { config, queues, link, .. }) in ports.into_iter().enumerate() {
        let n_queues = queues.len();
        let owner = worker_of(&config, (at, 0), n_queues, n);
        let recovery = Arc::new(Recovery::new(bells.iter().copied().map(Arc::clone).collect(), owner));
        let gates = (n > 1).then(|| Arc::new(Gates::new(bells[owner])));
        let mut parts: Vec<Vec<Box<dyn Device>>> = (0..n).map(|_| Vec::new()).collect();
        for (queue, device) in queues.into_iter().enumerate() {
            parts[worker_of(&config, (at, queue), n_queues, n)].push(device);
        }
        for (worker, (share, part)) in shares.iter_mut().zip(parts).enumerate() {
            let recovery = (worker, Arc::clone(&recovery));
            share.push(Port::new(config.clone(), part, link.clone(), gates.clone(), recovery));
        }
    }
    shares
}

/// Which worker has a queue of a port. The n-th queues of all ports are with one worker, for systems choose the queue
/// by a hash of the flow that is the same for both directions, and on all ports with as many. Interfaces with one queue
/// go round; captures are with the first worker, so that one is read and another written without a detour.
fn worker_of(config: &PortConfig, (port, queue): (usize, usize), n_queues: usize, n_workers: usize) -> usize {
    match n_queues {
        _ if config.driver.is_file() => 0,
        1 => port % n_workers,
        _ => queue % n_workers,
    }
}

#[cfg(test)]
mod tests {
    use super::super::port::{Driver, Made};
    use super::*;

    /// Both directions of a flow would be on two workers, or a worker would have no work.
    #[test]
    fn queues_are_dealt_out_so_that_flows_stay_with_a_worker() {
        let config = |driver| PortConfig {
            name: "p".to_owned(),
            driver,
            device: "d".to_owned(),
            namespace: None,
            queues: None,
            made: Made::default(),
        };
        let of = |driver, place, n_queues| worker_of(&config(driver), place, n_queues, 4);
        let dealt: Vec<_> = (0..6).map(|queue| of(Driver::Packet, (7, queue), 6)).collect();
        assert_eq!(dealt, [0, 1, 2, 3, 0, 1]);
        let alone: Vec<_> = (0..6).map(|port| of(Driver::Tap, (port, 0), 1)).collect();
        assert_eq!(alone, [0, 1, 2, 3, 0, 1]);
        assert_eq!((0..6).map(|port| of(Driver::Write, (port, 0), 1)).sum::<usize>(), 0);
    }
}
