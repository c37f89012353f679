//! Starts, updates and stops the frame workers of a node, behind one handle.

use super::Device;
use super::handoff::{Doorbell, PortHandoffs};
use super::port::OpenPort;
use super::recovery::Recovery;
use super::report::PortError;
use super::worker::{Mail, Port, Worker, WorkerChannels, WorkerConfig};
use crate::spin::Spin;
use crate::worker::Task;
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
use weft_engine::packet::port::PortConfig;
use weft_engine::recording::{Limits, Recorder, RecordingProgress};
use weft_engine::report::PacketNodeStats;
use weft_engine::rules::Swap;

/// A handle to all frame workers.
pub(crate) struct PacketWorkers {
    workers: Vec<WorkerHandle>,
}

struct WorkerHandle {
    sender: Sender<Mail>,
    doorbell: Arc<Doorbell>,
    thread: JoinHandle<Result<(), PortError>>,
}

impl PacketWorkers {
    /// Starts a worker for each sender of rows. `engine` is the configuration of the first.
    pub(crate) fn start(
        engine: PacketConfig,
        spin: Spin,
        coalesce: Interval,
        plan: &Arc<PacketPlan>,
        ports: Vec<OpenPort>,
        rows: Vec<RowSender>,
    ) -> io::Result<Self> {
        let (mut channels, mut senders) = (Vec::new(), Vec::new());
        for _ in &rows {
            let (wake, woken) = UnixStream::pair()?;
            wake.set_nonblocking(true)?;
            woken.set_nonblocking(true)?;
            let (sender, mail) = channel();
            let doorbell = Arc::new(Doorbell::new(wake));
            channels.push(WorkerChannels { mail, wake: woken, doorbell: Arc::clone(&doorbell) });
            senders.push((sender, doorbell));
        }
        let doorbells: Vec<_> = senders.iter().map(|(_, doorbell)| doorbell).collect();
        let shares = assign_queues(ports, &doorbells);
        let mut workers = Vec::new();
        for (nth, (((rows, channels), ports), (sender, doorbell))) in
            rows.into_iter().zip(channels).zip(shares).zip(senders).enumerate()
        {
            let engine = PacketConfig { worker: engine.first + nth, ..engine };
            let plan = Arc::clone(plan);
            let start = move || {
                Worker::new(WorkerConfig { engine, spin, coalesce }, plan, ports, channels, rows)?.run()
            };
            let thread = std::thread::Builder::new().name(format!("weft-packets-{nth}")).spawn(start)?;
            workers.push(WorkerHandle { sender, doorbell, thread });
        }
        Ok(Self { workers })
    }

    /// Whether all of them run.
    pub(crate) fn is_alive(&self) -> bool {
        self.workers.iter().all(|worker| !worker.thread.is_finished())
    }

    /// Makes all workers run a new plan with the same ports; returns the longest interruption of one. None if a worker
    /// is gone.
    pub(crate) fn apply(&self, plan: &Arc<PacketPlan>) -> Option<Duration> {
        let times = self.request(|done| Mail::Apply { plan: Arc::clone(plan), done })?;
        times.into_iter().max()
    }

    /// Makes all workers use other copies of tables; each answers on `done`. Returns the number of workers.
    pub(crate) fn apply_swap(&self, swap: &Arc<Swap>, done: &Sender<()>) -> usize {
        let workers = self.workers.iter();
        workers
            .for_each(|worker| worker.send(Mail::ApplySwap { swap: Arc::clone(swap), done: done.clone() }));
        self.workers.len()
    }

    /// Makes all workers run a task between two batches, as [`PacketWorkers::apply_swap`].
    pub(crate) fn run_task(&self, task: &Task, done: &Sender<()>) -> usize {
        let workers = self.workers.iter();
        workers.for_each(|worker| worker.send(Mail::Task { task: Arc::clone(task), done: done.clone() }));
        self.workers.len()
    }

    /// Makes all workers run other code of their plan. None if a worker is gone.
    pub(crate) fn apply_code(&self, plan: &Arc<PacketPlan>) -> Option<()> {
        self.request(|done| Mail::ApplyCode { plan: Arc::clone(plan), done }).map(drop)
    }

    /// Returns the sum of the workers' counters. None if a worker is gone.
    pub(crate) fn stats(&self) -> Option<PacketNodeStats> {
        let mut sum = PacketNodeStats::default();
        self.request(|to| Mail::Stats { to })?.into_iter().for_each(|stats| sum.merge(stats));
        Some(sum)
    }

    /// Starts recording the operations on a link's queue; false: it is being recorded already. None if a worker is
    /// gone, or there is no such link.
    pub(crate) fn record(&self, link: &str, limits: Limits) -> Option<Option<bool>> {
        let answers = self.request(|to| Mail::Record { link: link.to_owned(), limits, to })?;
        Some(answers.into_iter().flatten().next())
    }

    /// The progress of the recordings, by link. None if a worker is gone.
    pub(crate) fn recordings(&self) -> Option<Vec<(String, RecordingProgress)>> {
        self.request(|to| Mail::Recordings { to }).map(|found| found.into_iter().flatten().collect())
    }

    /// Ends the recording of a link, and returns it. None if a worker is gone.
    pub(crate) fn take_recording(&self, link: &str) -> Option<Option<Recorder>> {
        let answers = self.request(|to| Mail::TakeRecording { link: link.to_owned(), to })?;
        Some(answers.into_iter().flatten().next())
    }

    /// Stops them; frames leave as far as devices have room.
    ///
    /// # Errors
    /// The device error that has ended a worker; None: a worker has panicked.
    pub(crate) fn stop(self) -> Result<(), Option<PortError>> {
        // Handed-off frames still have to leave: first links release theirs to the chains, then the output of these
        // goes to its port. A worker that has ended does not answer.
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
            // A device error is the more useful reason.
            if !matches!(ended, Err(Some(_))) && result.is_err() {
                ended = result;
            }
        }
        ended
    }

    /// Sends all workers a message that each answers; returns the answers. None if a worker is gone.
    fn request<T>(&self, mail: impl Fn(Sender<T>) -> Mail) -> Option<Vec<T>> {
        let (to, answers) = channel();
        self.workers.iter().for_each(|worker| worker.send(mail(to.clone())));
        // From here on only workers hold it: if one ends without an answer, the wait ends.
        drop(to);
        let answers: Vec<_> = answers.iter().collect();
        (answers.len() == self.workers.len()).then_some(answers)
    }
}

impl WorkerHandle {
    /// Mail to a worker that is gone is dropped, with its sender for an answer.
    fn send(&self, mail: Mail) {
        let _ = self.sender.send(mail);
        self.doorbell.wake();
    }
}

/// Assigns the queues of all ports to workers.
fn assign_queues(ports: Vec<OpenPort>, doorbells: &[&Arc<Doorbell>]) -> Vec<Vec<Port>> {
    let n = doorbells.len();
    let mut shares: Vec<Vec<Port>> = (0..n).map(|_| Vec::new()).collect();
    for (at, OpenPort { config, queues, link, .. }) in ports.into_iter().enumerate() {
        let n_queues = queues.len();
        let owner = worker_of(&config, (at, 0), n_queues, n);
        let recovery = Arc::new(Recovery::new(doorbells.iter().copied().map(Arc::clone).collect(), owner));
        let handoffs = (n > 1).then(|| Arc::new(PortHandoffs::new(doorbells[owner])));
        let mut parts: Vec<Vec<Box<dyn Device>>> = (0..n).map(|_| Vec::new()).collect();
        for (queue, device) in queues.into_iter().enumerate() {
            parts[worker_of(&config, (at, queue), n_queues, n)].push(device);
        }
        for (worker, (share, part)) in shares.iter_mut().zip(parts).enumerate() {
            let recovery = (worker, Arc::clone(&recovery));
            share.push(Port::new(config.clone(), part, link.clone(), handoffs.clone(), recovery));
        }
    }
    shares
}

/// Returns the worker of a queue. The n-th queues of all ports have the same worker, because systems choose the queue
/// by a hash of the flow that is equal for both directions, and for all ports with as many queues. Interfaces with
/// one queue are distributed round-robin. Captures have the first worker, so that reading one and writing another
/// needs no handoff.
fn worker_of(config: &PortConfig, (port, queue): (usize, usize), n_queues: usize, n_workers: usize) -> usize {
    match n_queues {
        _ if config.driver.is_file() => 0,
        1 => port % n_workers,
        _ => queue % n_workers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::packet::port::{DeviceSettings, Driver};

    /// Both directions of a flow would be on two workers, or a worker would be idle.
    #[test]
    fn queue_shares_keep_flows_on_a_worker() {
        let config = |driver| PortConfig {
            name: "p".to_owned(),
            driver,
            device: "d".to_owned(),
            namespace: None,
            queues: None,
            made: DeviceSettings::default(),
        };
        let of = |driver, place, n_queues| worker_of(&config(driver), place, n_queues, 4);
        let dealt: Vec<_> = (0..6).map(|queue| of(Driver::Packet, (7, queue), 6)).collect();
        assert_eq!(dealt, [0, 1, 2, 3, 0, 1]);
        let alone: Vec<_> = (0..6).map(|port| of(Driver::Tap, (port, 0), 1)).collect();
        assert_eq!(alone, [0, 1, 2, 3, 0, 1]);
        assert_eq!((0..6).map(|port| of(Driver::Write, (port, 0), 1)).sum::<usize>(), 0);
    }
}
