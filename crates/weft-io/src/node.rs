//! A node: starts the workers, and sends them requests and updates.

use crate::clock;
use crate::descriptors::Descriptors;
use crate::names::Names;
use crate::packet::PortError;
use crate::packet::port::OpenPort;
use crate::packet::workers::PacketWorkers;
use crate::socket::ListenSocket;
use crate::spin::Spin;
use crate::worker::{Mail, Mailbox, Retired, Task, Worker};
use crate::writer::{SinkMetrics, Writer};
use core::fmt;
use mio::{Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_core::Interval;
use weft_engine::Config;
use weft_engine::packet::PacketConfig;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::plan::{Address, Chain, Cluster, Listener, Plan};
use weft_engine::recording::{Limits, Recorder, RecordingProgress, SharedUsage};
use weft_engine::report::NodeStats;
use weft_engine::rules::Swap;
use weft_engine::sinks::TableRow;
use weft_engine::stats::add_counters;

/// Largest number of workers of a node.
pub const WORKERS_MAX: usize = 256;

/// The reason in [`Stats::refusals`](weft_engine::stats::Stats::refusals) for connections that found no file
/// descriptor.
pub const OUT_OF_DESCRIPTORS: &str = "out_of_descriptors";

/// Configuration of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of worker threads for calls, 1 to [`WORKERS_MAX`]; with ports, as many more for frames.
    pub workers: usize,
    /// How long a worker may busy-poll for events before it sleeps ([`crate::BUSY_POLL_MAX`]; 0: not at all).
    pub busy_poll: Interval,
    /// How long a frame worker sleeps after a burst, so that more frames arrive together ([`crate::COALESCE`]; 0: not
    /// at all).
    pub coalesce: Interval,
    /// Configuration of the engines; the node fills in worker numbers and the clock.
    pub engine: Config,
    /// The descriptors that connections of calls may use.
    pub descriptors: Descriptors,
    /// Receives rows that chains send to tables; without it they are lost, and counted.
    pub tables: Option<SyncSender<TableRow>>,
    /// The addresses of the endpoints' names.
    pub names: Arc<Names>,
}

/// The ports of a node, and the plan that runs on them.
pub struct Ports {
    /// The plan. Its ports are `open`, in the same order.
    pub plan: Arc<PacketPlan>,
    /// The ports.
    pub open: Vec<OpenPort>,
    /// The number of the first frame worker; the others follow it. It selects the worker's part of tables `PER WORKER`,
    /// so no other worker that runs a chain may have the same number.
    pub first: usize,
}

/// A running node.
pub struct Node {
    workers: Vec<(Mailbox, JoinHandle<io::Result<usize>>)>,
    /// Number of workers that tables know by number and that carry calls: all or none.
    n_calls: usize,
    /// The frame workers, if there are ports.
    packets: Option<PacketWorkers>,
    writer: Writer,
    descriptors: Descriptors,
    listeners: Vec<Listener>,
    /// The clusters of the running plan.
    clusters: Vec<Arc<Cluster>>,
    /// Chains that may still have calls. They are kept so that the node, not a worker, frees their large tables.
    chains: Mutex<Vec<Arc<Chain>>>,
}

/// An error of the environment.
#[derive(Debug)]
pub enum NodeError {
    /// A listener cannot be bound.
    Listen {
        /// The listener.
        listener: Listener,
        /// The system's reason.
        error: io::Error,
    },
    /// The system refuses a thread or a poll instance.
    System(io::Error),
    /// A worker has ended without a request to stop.
    WorkerLost,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { listener, error } => {
                write!(f, "listener `{}` cannot listen on {}: {error}", listener.name, listener.address)
            }
            Self::System(error) => write!(f, "the system refuses a thread or a poll: {error}"),
            Self::WorkerLost => f.write_str("a worker has ended"),
        }
    }
}

impl core::error::Error for NodeError {}

impl From<io::Error> for NodeError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// How a node stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Number of calls that did not finish in time.
    pub calls_cut: usize,
    /// No worker has panicked or failed.
    pub is_clean: bool,
}

/// How long an update took.
#[derive(Clone, Copy, Debug)]
pub struct ApplyReport {
    /// From the call to the last worker's acknowledgement.
    pub total: Duration,
    /// The longest interruption of one worker.
    pub pause_max: Duration,
}

impl Node {
    /// Binds the plan's listeners and starts the workers; with ports, as many frame workers.
    ///
    /// # Errors
    /// [`NodeError::Listen`] names the listener; then nothing runs.
    pub fn start(config: &NodeConfig, plan: &Arc<Plan>, ports: Option<Ports>) -> Result<Self, NodeError> {
        assert!((1..=WORKERS_MAX).contains(&config.workers), "the number of workers was checked");
        let sockets = bind_all(&plan.listeners)?;
        let (writer, mut senders) =
            Writer::start(config.workers * (1 + usize::from(ports.is_some())), config.tables.clone())?;
        let spin = Spin::new(config.busy_poll, busy_threads(config, plan, ports.is_some()), n_cores());
        let n_calls = ports.as_ref().map_or(config.workers, |ports| ports.first);
        let packets = ports.map(|ports| {
            let Ports { plan, open, first } = ports;
            let seed = config.engine.seed;
            let engine = PacketConfig { worker: first, first, seed, clock: Some(clock::nanos) };
            PacketWorkers::start(
                engine,
                spin,
                config.coalesce,
                &plan,
                open,
                senders.split_off(config.workers),
            )
        });
        let packets = packets.transpose()?;
        let mut polls = Vec::new();
        let mut mailboxes = Vec::new();
        for _ in 0..config.workers {
            let poll = Poll::new()?;
            let waker = Arc::new(Waker::new(poll.registry(), Token(usize::MAX))?);
            let (sender, mail) = channel();
            mailboxes.push(Mailbox { sender, waker });
            polls.push((poll, mail));
        }
        let mut workers = Vec::new();
        for (index, (polled, rows)) in polls.into_iter().zip(senders).enumerate() {
            let engine = Config {
                worker: index,
                workers: config.workers,
                clock: Some(clock::nanos),
                ..config.engine.clone()
            };
            let (peers, descriptors) = (mailboxes.clone(), config.descriptors.clone());
            let plan = Arc::clone(plan);
            let thread = std::thread::Builder::new()
                .name(format!("weft-{index}"))
                .spawn(move || Worker::new(engine, plan, polled, peers, rows, spin, descriptors).run())?;
            workers.push((mailboxes[index].clone(), thread));
        }
        let chains = Mutex::new(plan.chains.clone());
        let descriptors = config.descriptors.clone();
        let (listeners, clusters) = (Vec::new(), plan.clusters.clone());
        let mut node = Self { descriptors, workers, n_calls, packets, writer, listeners, clusters, chains };
        node.set_names(&config.names)?;
        node.listen(sockets)?;
        Ok(node)
    }

    /// The listeners of the plan, with the port numbers that the system chose.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// The clusters of the running plan.
    pub fn clusters(&self) -> &[Arc<Cluster>] {
        &self.clusters
    }

    /// Makes all workers run a new plan, and waits until they do. Binds new listeners first; if that fails, the old
    /// plan stays. Frame workers switch between two batches; the ports stay the same.
    ///
    /// # Errors
    /// [`NodeError`]; the old plan still runs, unless a worker was lost.
    pub fn apply(
        &mut self,
        plan: &Arc<Plan>,
        packets: Option<&Arc<PacketPlan>>,
    ) -> Result<ApplyReport, NodeError> {
        let begun = Instant::now();
        let known = |new: &Listener| self.listeners.iter().position(|old| same_address(old, new));
        let new: Vec<_> = plan.listeners.iter().filter(|l| known(l).is_none()).cloned().collect();
        let sockets = bind_all(&new)?;
        let mut renamed = Vec::new();
        for listener in &plan.listeners {
            let Some(old) = known(listener).map(|at| &self.listeners[at].name) else { continue };
            if *old != listener.name {
                renamed.push((old.clone(), listener.name.clone()));
            }
        }
        let renamed: Arc<[_]> = renamed.into();
        let is_kept = |old: &Listener| plan.listeners.iter().any(|l| same_address(old, l));
        let gone = self.listeners.extract_if(.., |old| !is_kept(old));
        // Before others are renamed, perhaps to a name that becomes free here.
        for Listener { name, .. } in gone {
            self.workers[0].0.send(Mail::Unlisten { name: name.as_str().into() });
        }
        self.lock_chains().extend(plan.chains.iter().cloned());
        let (done, acknowledged) = channel();
        for (mailbox, _) in &self.workers {
            let mail =
                Mail::Apply { plan: Arc::clone(plan), renamed: Arc::clone(&renamed), done: done.clone() };
            mailbox.send(mail).then_some(()).ok_or(NodeError::WorkerLost)?;
        }
        // From here on only workers hold it: if one ends without an answer, the wait ends.
        drop(done);
        let mut pause_max = Duration::ZERO;
        for _ in &self.workers {
            pause_max = pause_max.max(acknowledged.recv().map_err(|_| NodeError::WorkerLost)?);
        }
        if let (Some(workers), Some(plan)) = (&self.packets, packets) {
            pause_max = pause_max.max(workers.apply(plan).ok_or(NodeError::WorkerLost)?);
        }
        let total = begun.elapsed();
        for listener in &mut self.listeners {
            if let Some((_, to)) = renamed.iter().find(|(from, _)| *from == listener.name) {
                listener.name.clone_from(to);
            }
            if let Some(at) = plan.listener(&listener.name) {
                listener.options = Arc::clone(&plan.listeners[at].options);
            }
        }
        self.listen(sockets)?;
        self.clusters.clone_from(&plan.clusters);
        self.free_old_chains();
        Ok(ApplyReport { total, pause_max })
    }

    /// Sends all workers the addresses of the endpoints' names.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn set_names(&self, names: &Arc<Names>) -> Result<(), NodeError> {
        self.workers.iter().try_for_each(|(mailbox, _)| {
            let mail = Mail::Names { names: Arc::clone(names) };
            mailbox.send(mail).then_some(()).ok_or(NodeError::WorkerLost)
        })
    }

    /// Makes all workers use other copies of tables, and waits until none uses the old ones.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn apply_swap(&self, swap: &Arc<Swap>) -> Result<(), NodeError> {
        let mail = |done| Mail::ApplySwap { swap: Arc::clone(swap), done };
        self.run_on_all(&self.workers, mail, |workers, done| workers.apply_swap(swap, done))
    }

    /// Makes each worker with traffic run a task once, between two batches, and waits for all. If there are only ports,
    /// workers for calls have no traffic, and tables do not know them.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn run_task(&self, task: &Task) -> Result<(), NodeError> {
        let mail = |done| Mail::Task { task: Arc::clone(task), done };
        self.run_on_all(&self.workers[..self.n_calls], mail, |workers, done| workers.run_task(task, done))
    }

    /// Sends mail to workers for calls, and through `packets` to those for frames; waits until each has handled it.
    fn run_on_all(
        &self,
        workers: &[(Mailbox, JoinHandle<io::Result<usize>>)],
        mail: impl Fn(Sender<()>) -> Mail,
        packets: impl FnOnce(&PacketWorkers, &Sender<()>) -> usize,
    ) -> Result<(), NodeError> {
        let (done, acknowledged) = channel();
        for (mailbox, _) in workers {
            mailbox.send(mail(done.clone())).then_some(()).ok_or(NodeError::WorkerLost)?;
        }
        let n = workers.len() + self.packets.as_ref().map_or(0, |workers| packets(workers, &done));
        // From here on only workers hold it: if one ends without an answer, the wait ends.
        drop(done);
        (0..n).try_for_each(|_| acknowledged.recv().map_err(|_| NodeError::WorkerLost))
    }

    /// Makes frame workers run other code of their plan, and waits until they do.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn apply_code(&self, packets: &Arc<PacketPlan>) -> Result<(), NodeError> {
        let Some(workers) = &self.packets else { return Ok(()) };
        workers.apply_code(packets).ok_or(NodeError::WorkerLost)
    }

    /// Whether all workers run. A worker that has ended unexpectedly has dropped its connections.
    pub fn is_alive(&self) -> bool {
        self.workers.iter().all(|(_, thread)| !thread.is_finished())
            && self.packets.as_ref().is_none_or(PacketWorkers::is_alive)
    }

    /// If a device error has ended a frame worker, stops the others and returns the error.
    pub fn take_port_error(&mut self) -> Option<PortError> {
        self.packets.take_if(|workers| !workers.is_alive())?.stop().err().flatten()
    }

    /// Number of connections that were refused because there was no descriptor.
    pub fn n_out_of_descriptors(&self) -> u64 {
        self.descriptors.n_refused()
    }

    /// The counters of all workers.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn stats(&self) -> Result<NodeStats, NodeError> {
        self.free_old_chains();
        let (to, from_workers) = channel();
        for (mailbox, _) in &self.workers {
            mailbox.send(Mail::Stats { to: to.clone() }).then_some(()).ok_or(NodeError::WorkerLost)?;
        }
        // From here on only workers hold it: if one ends without an answer, the wait ends.
        drop(to);
        let mut node = NodeStats::default();
        for _ in &self.workers {
            let worker = from_workers.recv().map_err(|_| NodeError::WorkerLost)?;
            node.stats.merge(&worker.stats);
            merge_retired(&mut node.retired, worker.retired);
            node.syscalls += worker.syscalls;
            node.connect_errors.extend(worker.connect_errors);
        }
        node.packets = match &self.packets {
            Some(workers) => Some(workers.stats().ok_or(NodeError::WorkerLost)?),
            None => None,
        };
        if let Some(packets) = &node.packets {
            node.stats.rows_lost += packets.stats.rows_lost;
            node.syscalls += packets.ports.iter().map(|port| port.device.syscalls).sum::<u64>();
        }
        node.stats.rows_lost += self.writer.rows_lost();
        node.sink_errors = self.writer.errors();
        if self.descriptors.n_refused() > 0 {
            node.stats.refuse(OUT_OF_DESCRIPTORS, self.descriptors.n_refused());
        }
        Ok(node)
    }

    /// Starts recording the operations on the queue of a port's link. False: it is being recorded already; None: there
    /// is no such link.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn record(&self, link: &str, limits: Limits) -> Result<Option<bool>, NodeError> {
        let Some(workers) = &self.packets else { return Ok(None) };
        workers.record(link, limits).ok_or(NodeError::WorkerLost)
    }

    /// Starts recording the operations on the queues of a link of calls, one per worker; the limits hold for all
    /// together. False: it is being recorded already; None: there is no such link.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn record_calls(&self, link: &str, limits: Limits) -> Result<Option<bool>, NodeError> {
        let (link, taken): (Arc<str>, Arc<SharedUsage>) = (link.into(), Arc::default());
        self.request(|to| Mail::Record { link: Arc::clone(&link), limits, taken: Arc::clone(&taken), to })
            .map(|answers| answers.into_iter().min().flatten())
    }

    /// The progress of the recordings, by link.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn recordings(&self) -> Result<Vec<(String, RecordingProgress)>, NodeError> {
        let mut found = match &self.packets {
            Some(workers) => workers.recordings().ok_or(NodeError::WorkerLost)?,
            None => Vec::new(),
        };
        let mut of_calls: BTreeMap<String, RecordingProgress> = BTreeMap::new();
        for (link, progress) in self.request(|to| Mail::Recordings { to })?.into_iter().flatten() {
            of_calls.entry(link).and_modify(|sum| *sum = sum.and(progress)).or_insert(progress);
        }
        found.extend(of_calls);
        Ok(found)
    }

    /// Ends the recording of a port's link, and returns it.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn take_recording(&self, link: &str) -> Result<Option<Recorder>, NodeError> {
        let Some(workers) = &self.packets else { return Ok(None) };
        workers.take_recording(link).ok_or(NodeError::WorkerLost)
    }

    /// Ends the recordings of a link of calls, and returns one per worker; None where a worker has none.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn take_recordings_of_calls(&self, link: &str) -> Result<Vec<Option<Recorder>>, NodeError> {
        let link: Arc<str> = link.into();
        self.request(|to| Mail::TakeRecording { link: Arc::clone(&link), to })
    }

    /// The last values of sinks `TO METRICS`.
    pub fn sink_metrics(&self) -> SinkMetrics {
        self.writer.metrics()
    }

    /// Stops accepting connections and calls, and waits this long for calls under way. Then the others end with
    /// UNAVAILABLE.
    pub fn stop(self, within: Duration) -> StopReport {
        for (mailbox, _) in &self.workers {
            mailbox.send(Mail::Stop { within });
        }
        let mut stopped = StopReport { calls_cut: 0, is_clean: true };
        if let Some(packets) = self.packets {
            stopped.is_clean &= packets.stop().is_ok();
        }
        for (mailbox, thread) in self.workers {
            match thread.join() {
                Ok(Ok(n_cut)) => stopped.calls_cut += n_cut,
                _ => stopped.is_clean = false,
            }
            drop(mailbox);
        }
        self.writer.join();
        stopped
    }

    /// Sends all workers a message that each answers; returns the answers in the order of the workers.
    fn request<T>(&self, mail: impl Fn(Sender<T>) -> Mail) -> Result<Vec<T>, NodeError> {
        let mut answers = Vec::new();
        for (mailbox, _) in &self.workers {
            let (to, answer) = channel();
            mailbox.send(mail(to)).then_some(()).ok_or(NodeError::WorkerLost)?;
            answers.push(answer);
        }
        answers.into_iter().map(|answer| answer.recv().map_err(|_| NodeError::WorkerLost)).collect()
    }

    fn free_old_chains(&self) {
        // Only this list still holds it: no plan and no worker.
        self.lock_chains().retain(|chain| Arc::strong_count(chain) > 1);
    }

    fn lock_chains(&self) -> MutexGuard<'_, Vec<Arc<Chain>>> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands bound sockets to the first worker, which listens on them, and adds them to the node's listeners.
    fn listen(&mut self, sockets: Vec<(Listener, ListenSocket)>) -> Result<(), NodeError> {
        for (listener, socket) in sockets {
            let address = socket.address();
            let mail = Mail::Listen { name: listener.name.as_str().into(), socket };
            self.workers[0].0.send(mail).then_some(()).ok_or(NodeError::WorkerLost)?;
            self.listeners.push(Listener { address, ..listener });
        }
        Ok(())
    }
}

/// Number of threads that want a core each. With ports but no listeners, workers for calls are always idle.
fn busy_threads(config: &NodeConfig, plan: &Plan, has_ports: bool) -> usize {
    let has_calls = !has_ports || !plan.listeners.is_empty();
    config.workers * (usize::from(has_ports) + usize::from(has_calls))
}

fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether a running listener serves what a plan wants, perhaps under another name. Port 0 matches any port.
fn same_address(running: &Listener, wanted: &Listener) -> bool {
    match (&running.address, &wanted.address) {
        (Address::Tcp(a), Address::Tcp(b)) if b.port() == 0 => {
            running.name == wanted.name && a.ip() == b.ip()
        }
        (a, b) => a == b,
    }
}

/// Binds the sockets of all listeners, or none.
fn bind_all(listeners: &[Listener]) -> Result<Vec<(Listener, ListenSocket)>, NodeError> {
    let bind = |listener: &Listener| {
        let socket = ListenSocket::bind(&listener.address)
            .map_err(|error| NodeError::Listen { listener: listener.clone(), error })?;
        Ok((listener.clone(), socket))
    };
    listeners.iter().map(bind).collect()
}

/// Adds the counters of retired chains, by chain and element name.
fn merge_retired(into: &mut Retired, from: Retired) {
    for (chain, elements) in from {
        let at = into.iter().position(|(name, _)| *name == chain).unwrap_or_else(|| {
            into.push((chain, Vec::new()));
            into.len() - 1
        });
        for (instance, counters) in elements {
            match into[at].1.iter_mut().find(|(name, _)| *name == instance) {
                Some((_, total)) => add_counters(total, &counters),
                None => into[at].1.push((instance, counters)),
            }
        }
    }
}
