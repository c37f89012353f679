//! A node: its workers, and what can be asked of them.

use crate::clock;
use crate::descriptors::Descriptors;
use crate::names::Names;
use crate::packet::port::OpenPort;
use crate::packet::workers::Handle;
use crate::packet::{PacketNodeStats, PortError};
use crate::socket::ListenSocket;
use crate::spin::Spin;
use crate::worker::{Errand, Mail, Mailbox, Retired, Worker};
use crate::writer::{SinkMetrics, TableRow, Writer};
use core::fmt;
use mio::{Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_core::Interval;
use weft_core::abi::Counters;
use weft_engine::Config;
use weft_engine::packet::PacketConfig;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::plan::{Address, Chain, Cluster, Listener, Plan};
use weft_engine::recording::{Limits, Recorder, RecordingProgress, SharedUsage};
use weft_engine::rules::Swap;
use weft_engine::stats::{Stats, add_counters};

/// Workers that a node may have.
pub const WORKERS_MAX: usize = 256;

/// Why connections are refused that find no descriptor, among the reasons of [`Stats::refusals`].
pub const OUT_OF_DESCRIPTORS: &str = "out_of_descriptors";

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Worker threads, 1 to [`WORKERS_MAX`], and as many that carry frames where there are ports.
    pub workers: usize,
    /// How long a worker may look for events before it sleeps ([`crate::BUSY_POLL_MAX`]; 0: it sleeps at once).
    pub busy_poll: Interval,
    /// How long a worker of frames rests behind several that came together, so that the next come together as well
    /// ([`crate::COALESCE`]; 0: it goes on looking).
    pub coalesce: Interval,
    /// The engines' set-up; worker numbers and the clock are filled in.
    pub engine: Config,
    /// Which descriptors the connections of calls may have.
    pub descriptors: Descriptors,
    /// Who takes rows that chains send to tables; without, they are lost, and counted.
    pub tables: Option<SyncSender<TableRow>>,
    /// The addresses of the endpoints' names.
    pub names: Arc<Names>,
}

/// The ports of a node, and what runs on them.
pub struct Ports {
    /// The chains. Its ports are those that are open, in their order.
    pub plan: Arc<PacketPlan>,
    /// The ports.
    pub open: Vec<OpenPort>,
    /// The number of the first worker that carries frames, by which it finds its part of tables `PER WORKER`; those
    /// behind it are the others'. They are those of no other worker that runs a chain.
    pub first: usize,
}

/// A running node.
pub struct Node {
    workers: Vec<(Mailbox, JoinHandle<io::Result<usize>>)>,
    /// Those of them that carry calls, by whose numbers tables know them: all or none.
    n_calls: usize,
    /// The workers that carry frames, if there are ports.
    packets: Option<Handle>,
    writer: Writer,
    descriptors: Descriptors,
    listeners: Vec<Listener>,
    /// Those of the plan that runs.
    clusters: Vec<Arc<Cluster>>,
    /// Chains that may still have calls. The last to let go of a large table frees it, which is not to be a worker.
    chains: Mutex<Vec<Arc<Chain>>>,
}

/// The environment is at fault.
#[derive(Debug)]
pub enum NodeError {
    /// A listener cannot be bound.
    Listen {
        /// Which.
        listener: Listener,
        /// The system's reason.
        error: io::Error,
    },
    /// Threads or polls cannot be made.
    System(io::Error),
    /// A worker has ended, which none does unless it is told to.
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

/// What a node counted.
#[derive(Clone, Debug, Default)]
pub struct NodeStats {
    /// The sum over all workers.
    pub stats: Stats,
    /// What elements of retired versions counted: (chain, [(instance, counters)]).
    pub retired: Vec<(String, Vec<(String, Counters)>)>,
    /// System calls of the data path.
    pub syscalls: u64,
    /// Why the last attempt of a worker to connect to an endpoint failed, by its name.
    pub connect_errors: BTreeMap<String, String>,
    /// Why files of sinks cannot be written, by their paths.
    pub sink_errors: BTreeMap<String, String>,
    /// Frames; none where there are no ports.
    pub packets: Option<PacketNodeStats>,
}

/// How a node has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Calls that did not finish in time.
    pub calls_cut: usize,
    /// No worker has panicked or failed.
    pub is_clean: bool,
}

/// How an update went.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// From the call to the last worker's acknowledgement.
    pub total: Duration,
    /// The longest that one worker did nothing else.
    pub pause_max: Duration,
}

impl Node {
    /// Binds the plan's listeners and starts the workers; with ports, as many more that carry frames.
    ///
    /// # Errors
    /// [`NodeError::Listen`] names the listener; nothing runs then.
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
            Handle::start(engine, spin, config.coalesce, &plan, open, senders.split_off(config.workers))
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

    /// Where the node listens: as the plan says, with the ports that the system chose.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Where calls go: the clusters of the plan that runs.
    pub fn clusters(&self) -> &[Arc<Cluster>] {
        &self.clusters
    }

    /// Has all workers run a new plan, and waits until they do. Listeners that are new are bound first; if that
    /// fails, the old plan goes on. The plan of the packet side is taken on between two batches; its ports are those
    /// that the node has.
    ///
    /// # Errors
    /// [`NodeError`]; the old plan still runs, unless a worker was lost.
    pub fn apply(
        &mut self,
        plan: &Arc<Plan>,
        packets: Option<&Arc<PacketPlan>>,
    ) -> Result<Applied, NodeError> {
        let begun = Instant::now();
        let known = |new: &Listener| self.listeners.iter().position(|old| same_place(old, new));
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
        let is_kept = |old: &Listener| plan.listeners.iter().any(|l| same_place(old, l));
        let gone = self.listeners.extract_if(.., |old| !is_kept(old));
        // Before others are renamed, perhaps to the names that become free.
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
        // From here on only workers hold it: if one ends before it answers, nobody waits for it.
        drop(done);
        let mut pause_max = Duration::ZERO;
        for _ in &self.workers {
            pause_max = pause_max.max(acknowledged.recv().map_err(|_| NodeError::WorkerLost)?);
        }
        if let (Some(handle), Some(plan)) = (&self.packets, packets) {
            pause_max = pause_max.max(handle.apply(plan).ok_or(NodeError::WorkerLost)?);
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
        Ok(Applied { total, pause_max })
    }

    /// Tells all workers the addresses of the endpoints' names.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn set_names(&self, names: &Arc<Names>) -> Result<(), NodeError> {
        self.workers.iter().try_for_each(|(mailbox, _)| {
            let mail = Mail::Names { names: Arc::clone(names) };
            mailbox.send(mail).then_some(()).ok_or(NodeError::WorkerLost)
        })
    }

    /// Has all workers look at other copies of tables, and waits until none looks at those before.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn take_up(&self, swap: &Arc<Swap>) -> Result<(), NodeError> {
        let mail = |done| Mail::TakeUp { swap: Arc::clone(swap), done };
        self.tell(&self.workers, mail, |handle, done| handle.take_up(swap, done))
    }

    /// Has each worker that carries something do an errand between two batches, once, and waits until all have. Where
    /// there are ports alone, those of calls carry nothing, and no table knows them.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn run_errand(&self, errand: &Errand) -> Result<(), NodeError> {
        let mail = |done| Mail::Errand { errand: Arc::clone(errand), done };
        self.tell(&self.workers[..self.n_calls], mail, |handle, done| handle.run_errand(errand, done))
    }

    /// Tells workers of calls, and those of packets by `packets`, and waits until each has done it.
    fn tell(
        &self,
        workers: &[(Mailbox, JoinHandle<io::Result<usize>>)],
        mail: impl Fn(Sender<()>) -> Mail,
        packets: impl FnOnce(&Handle, &Sender<()>) -> usize,
    ) -> Result<(), NodeError> {
        let (done, acknowledged) = channel();
        for (mailbox, _) in workers {
            mailbox.send(mail(done.clone())).then_some(()).ok_or(NodeError::WorkerLost)?;
        }
        let n = workers.len() + self.packets.as_ref().map_or(0, |handle| packets(handle, &done));
        // From here on only workers hold it: if one ends before it answers, nobody waits for it.
        drop(done);
        (0..n).try_for_each(|_| acknowledged.recv().map_err(|_| NodeError::WorkerLost))
    }

    /// Has the packet side run other code of the plan that it runs, and waits until it does.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn take_code(&self, packets: &Arc<PacketPlan>) -> Result<(), NodeError> {
        let Some(handle) = &self.packets else { return Ok(()) };
        handle.take_code(packets).ok_or(NodeError::WorkerLost)
    }

    /// Whether all workers run. One that has ended without being told to takes its connections with it.
    pub fn is_alive(&self) -> bool {
        self.workers.iter().all(|(_, thread)| !thread.is_finished())
            && self.packets.as_ref().is_none_or(Handle::is_alive)
    }

    /// Why a worker that carries frames has ended, if it is a device that ended it. The others stop.
    pub fn take_port_error(&mut self) -> Option<PortError> {
        self.packets.take_if(|handle| !handle.is_alive())?.stop().err().flatten()
    }

    /// Connections that were refused for want of a descriptor.
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
        // From here on only workers hold it: if one ends before it answers, nobody waits for it.
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
            Some(handle) => Some(handle.stats().ok_or(NodeError::WorkerLost)?),
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

    /// Notes from now on what the queue of a link of a port is asked. False: that is noted already; None: there is no
    /// such link.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn record(&self, link: &str, limits: Limits) -> Result<Option<bool>, NodeError> {
        let Some(handle) = &self.packets else { return Ok(None) };
        handle.record(link, limits).ok_or(NodeError::WorkerLost)
    }

    /// Notes from now on what the queues of a link of calls are asked, one of each worker; the limits are those of all
    /// together. False: that is noted already; None: there is no such link.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn record_calls(&self, link: &str, limits: Limits) -> Result<Option<bool>, NodeError> {
        let (link, taken): (Arc<str>, Arc<SharedUsage>) = (link.into(), Arc::default());
        self.ask(|to| Mail::Record { link: Arc::clone(&link), limits, taken: Arc::clone(&taken), to })
            .map(|answers| answers.into_iter().min().flatten())
    }

    /// How far the recordings of links are, by the names of the links.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn recordings(&self) -> Result<Vec<(String, RecordingProgress)>, NodeError> {
        let mut found = match &self.packets {
            Some(handle) => handle.recordings().ok_or(NodeError::WorkerLost)?,
            None => Vec::new(),
        };
        let mut of_calls: BTreeMap<String, RecordingProgress> = BTreeMap::new();
        for (link, progress) in self.ask(|to| Mail::Recordings { to })?.into_iter().flatten() {
            of_calls.entry(link).and_modify(|sum| *sum = sum.and(progress)).or_insert(progress);
        }
        found.extend(of_calls);
        Ok(found)
    }

    /// What was noted of a link of a port, which is noted no more.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn take_recording(&self, link: &str) -> Result<Option<Recorder>, NodeError> {
        let Some(handle) = &self.packets else { return Ok(None) };
        handle.take_recording(link).ok_or(NodeError::WorkerLost)
    }

    /// What each worker noted of a link of calls, which is noted no more; None where one has nothing.
    ///
    /// # Errors
    /// [`NodeError::WorkerLost`].
    pub fn take_recordings_of_calls(&self, link: &str) -> Result<Vec<Option<Recorder>>, NodeError> {
        let link: Arc<str> = link.into();
        self.ask(|to| Mail::TakeRecording { link: Arc::clone(&link), to })
    }

    /// The values that sinks `TO METRICS` gave.
    pub fn sink_metrics(&self) -> SinkMetrics {
        self.writer.metrics()
    }

    /// Stops: no new connections or calls, and the calls under way may finish within this time. Then those that are
    /// left end with UNAVAILABLE.
    pub fn stop(self, within: Duration) -> Stopped {
        for (mailbox, _) in &self.workers {
            mailbox.send(Mail::Stop { within });
        }
        let mut stopped = Stopped { calls_cut: 0, is_clean: true };
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

    /// Tells all workers something that each answers; the answers, in the order of the workers.
    fn ask<T>(&self, mail: impl Fn(Sender<T>) -> Mail) -> Result<Vec<T>, NodeError> {
        let mut answers = Vec::new();
        for (mailbox, _) in &self.workers {
            let (to, answer) = channel();
            mailbox.send(mail(to)).then_some(()).ok_or(NodeError::WorkerLost)?;
            answers.push(answer);
        }
        answers.into_iter().map(|answer| answer.recv().map_err(|_| NodeError::WorkerLost)).collect()
    }

    fn free_old_chains(&self) {
        // The one here, and none of a plan or of a worker.
        self.lock_chains().retain(|chain| Arc::strong_count(chain) > 1);
    }

    fn lock_chains(&self) -> MutexGuard<'_, Vec<Arc<Chain>>> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

/// Threads of a node that want a core each. Beside ports, workers are idle for good where there are no listeners.
fn busy_threads(config: &NodeConfig, plan: &Plan, has_ports: bool) -> usize {
    let has_calls = !has_ports || !plan.listeners.is_empty();
    config.workers * (usize::from(has_ports) + usize::from(has_calls))
}

fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether a listener that runs serves what a plan asks for, perhaps under another name. A port of 0 asks for any.
fn same_place(running: &Listener, wanted: &Listener) -> bool {
    match (&running.address, &wanted.address) {
        (Address::Tcp(a), Address::Tcp(b)) if b.port() == 0 => {
            running.name == wanted.name && a.ip() == b.ip()
        }
        (a, b) => a == b,
    }
}

fn bind_all(listeners: &[Listener]) -> Result<Vec<(Listener, ListenSocket)>, NodeError> {
    let bind = |listener: &Listener| {
        let socket = ListenSocket::bind(&listener.address)
            .map_err(|error| NodeError::Listen { listener: listener.clone(), error })?;
        Ok((listener.clone(), socket))
    };
    listeners.iter().map(bind).collect()
}

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
