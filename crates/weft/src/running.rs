//! A running node with its compiler. `weft run` and `weft demo` run it; the admin endpoint changes it.

use crate::cli::{BackendName, NodeArgs};
use crate::fault::Fault;
use crate::job;
use crate::log::Log;
use crate::machine::{Machine, check_for, memory_limit};
use crate::open_files;
use crate::seeds::Seeds;
use crate::sink_files;
use devices::Devices;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weft_api::{Applied, AtFault, Bundle, Calls, Endpoint, Refused, Status};
use weft_control::check::{Accepted, Checked, at_fault};
use weft_control::compile::{Compiled, Compiler, endpoint_of};
use weft_control::definition_files::DefinitionFiles;
use weft_control::dropped::dropped;
use weft_control::files::{Files, folder_of};
use weft_control::outline::Outline;
use weft_control::ports::{other_ports, ports_of};
use weft_control::status::{RowsRefused, call_link_of, chain_of, filter_status, option_of, packets_of};
use weft_control::tables::filled_by_ports;
use weft_core::{Interval, Status as RpcStatus};
use weft_engine::Config;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::port::{Driver, PortConfig};
use weft_engine::plan::{Address, Cluster, Listener, Plan};
use weft_engine::report::NodeStats;
use weft_engine::rules::TableView;
use weft_engine::stats::{ChainStats, EndpointStats};
use weft_io::descriptors::Descriptors;
use weft_io::names::{Names, names_of};
use weft_io::node::StopReport;
use weft_io::packet::interface::LinkState;
use weft_io::packet::port::{self, OpenPort};
use weft_io::packet::xdp::BUFFERED_MTU_MAX;
use weft_io::packet::{OpenError, PortError};
use weft_io::parallel_backend::ParallelBackend;
use weft_io::privileges::{self, KeptCapabilities, PortNeeds};
use weft_io::socket::ListenSocket;
use weft_io::writer::ROWS_WAITING_MAX;
use weft_io::writer::SinkMetrics;
use weft_io::{Node, NodeConfig, NodeError, Ports};
use weft_ir::backend::Backend;
use weft_ir::interp::Interp;
use weft_jit::Jit;
use weft_lang::diagnostic::{Diagnostic, RenderOptions, render_all, to_json};
use weft_lang::hir::Network;
use weft_lang::source::SourceMap;

mod alter;
mod apply_log;
mod devices;
mod learned;
mod names;
mod record;
mod row_updates;
pub(crate) mod rows;

/// A node, shared by the command that runs it and the admin endpoint.
#[derive(Clone)]
pub(crate) struct Running {
    parts: Arc<Parts>,
}

/// Each part has its own lock, so that the node answers questions during a compilation. Lock order: `control`, then
/// `node`.
struct Parts {
    /// Held during a whole change, so changes are serial.
    control: Mutex<Control>,
    /// Held during a request to the node, or the update of its plan. None after it was stopped.
    node: Mutex<Option<Node>>,
    /// The running program.
    program: Mutex<Bundle>,
    sink_metrics: SinkMetrics,
    /// Remarks about the node's devices.
    remarks: Vec<String>,
    /// Recorded links.
    recorded: Mutex<record::Recordings>,
    /// Signals that rows of tables have changed.
    changed: SyncSender<()>,
    /// Rows that chains sent to tables, and that the tables refused.
    rows_refused: Mutex<RowsRefused>,
    /// The devices of the node's ports.
    devices: Devices,
    /// The addresses of endpoint names.
    names: Mutex<Arc<Names>>,
    log: Log,
    began: Instant,
    workers: usize,
    /// The workers that run chains, of calls and of frames.
    workers_of_chains: usize,
}

/// The compiler, and what it knows of the running version.
struct Control {
    compiler: Compiler,
    /// The objects of the running program.
    outline: Outline,
    /// The running program, without its rows, and its texts.
    network: Network,
    sources: SourceMap,
    /// The running plan of this program.
    plan: Arc<Plan>,
    packets: Option<Arc<PacketPlan>>,
    /// The node's ports. They never change while it runs. If there are any, neither does whether it has listeners.
    ports: Vec<PortConfig>,
}

/// The state that the log watches.
pub(crate) struct WatchedState {
    pub(crate) endpoints: Vec<Endpoint>,
    /// Refusals by reason.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Why files of sinks cannot be written, by their paths.
    pub(crate) sink_errors: BTreeMap<String, String>,
    /// Rows that no file or stream accepted.
    pub(crate) rows_lost: u64,
    pub(crate) rows_refused: RowsRefused,
}

/// The health of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// All workers run.
    Serving,
    /// The node is stopping.
    Stopping,
    /// A worker ended although the node is not stopping.
    WorkerLost,
}

/// The backend with this name.
pub(crate) fn backend(name: BackendName) -> Result<Box<dyn Backend>, Fault> {
    match name {
        BackendName::Interp => Ok(Box::new(Interp)),
        BackendName::Jit => {
            let jit = Jit::new().map_err(|why| {
                Fault::environment(format!("no machine code on this machine: {why}"))
                    .with_help("run with --backend interp")
            })?;
            Ok(Box::new(ParallelBackend::new(Arc::new(jit))))
        }
    }
}

impl Running {
    /// Compiles a checked program and starts a node that runs it. Drops all capabilities of this thread that the start
    /// does not need, then those that changes do not need.
    pub(crate) fn start(
        accepted: Accepted,
        sources: &SourceMap,
        program: Bundle,
        args: &NodeArgs,
        log: Log,
    ) -> Result<Self, Start> {
        // From here on this process cannot open files of other users, neither now nor at an update.
        privileges::reduce(KeptCapabilities::ForOpening).map_err(not_reduced).map_err(Start::Fault)?;
        let backend = backend(args.backend).map_err(Start::Fault)?;
        let opened = |ports: &[PortConfig]| {
            let of_ports = PortNeeds {
                namespace: ports.iter().any(|port| port.namespace.is_some()),
                xdp: ports.iter().any(|port| matches!(port.driver, Driver::Xdp { .. })),
            };
            let keep = if args.drop_all {
                KeptCapabilities::Nothing
            } else {
                KeptCapabilities::ForChanges(of_ports)
            };
            privileges::reduce(keep).map_err(not_reduced)
        };
        Self::start_with(backend, accepted, sources, program, (args, log), opened)
    }

    /// As [`Running::start`], with a given back end. Calls `opened` after opening the ports and before the first thread
    /// of the node starts.
    fn start_with(
        backend: Box<dyn Backend>,
        Accepted { network, lowered }: Accepted,
        sources: &SourceMap,
        program: Bundle,
        (args, log): (&NodeArgs, Log),
        opened: impl FnOnce(&[PortConfig]) -> Result<(), Fault>,
    ) -> Result<Self, Start> {
        let workers = usize::from(args.workers);
        let ports = ports_of(&network).map_err(Start::Diagnostics)?;
        let n_calls = workers_of_calls(&network, workers);
        let Seeds { seed, hash } = Seeds::new(args.seed).map_err(Start::Fault)?;
        let workers_of_chains = workers_of(&network, workers);
        let compiler = Compiler::new(backend, Box::new(Machine), workers_of_chains, hash);
        let mut compiler = compiler.with_memory_limit(memory_limit(args.memory));
        let compiled = in_job(|| compiler.compile(&network, lowered, &[])).map_err(Start::Diagnostics)?;
        let busy_poll = Interval::from_micros(i64::from(args.busy_poll));
        let coalesce = Interval::from_micros(i64::from(args.coalesce));
        let (tables, learned) = sync_channel(ROWS_WAITING_MAX);
        let engine = Config { seed, hash, ..Config::default() };
        let descriptors = Descriptors::of_limit(open_files::limit());
        let (mut devices, mut remarks) = (Devices::new(), Vec::new());
        let open = match &compiled.packets {
            Some(plan) => {
                let open = port::open_all(&ports, args.workers)
                    .map_err(|(port, error)| Start::Fault(port_fault(&port, &error)))?;
                remarks = open.iter().filter(|port| port.is_zero_copy_refused()).map(copy_remark).collect();
                remarks.extend(open.iter().filter(|port| port.is_pair_reused()).map(existing_pair_remark));
                remarks
                    .extend(open.iter().filter(|port| port.unserved_queues() > 0).map(unseen_queues_remark));
                remarks.extend(
                    open.iter().filter(|port| !port.stuck_offloads().is_empty()).map(stuck_offloads_remark),
                );
                remarks.extend(open.iter().filter(|port| port.is_xdp_on_pair()).map(pair_end_remark));
                devices = devices::of(&open);
                Some(Ports { plan: Arc::clone(plan), open, first: n_calls })
            }
            None => None,
        };
        opened(&ports).map_err(Start::Fault)?;
        let names = names::look_up(&names_of(&compiled.plan), &Names::new());
        let names = Arc::new(names);
        let config = NodeConfig {
            workers,
            busy_poll,
            coalesce,
            engine,
            descriptors,
            tables: Some(tables),
            names: Arc::clone(&names),
        };
        // After the capabilities are reduced: the rows will be written with the same rights.
        sink_files::try_to_open(&compiled).map_err(Start::Fault)?;
        let node = Node::start(&config, &compiled.plan, open);
        let node = node.map_err(|error| Start::Fault(node_fault(&error)))?;
        let (plan, packets) = (Arc::clone(&compiled.plan), compiled.packets.clone());
        compiler.commit(compiled);
        let control = Control {
            compiler,
            outline: Outline::of(&network),
            network: without_rows(network),
            sources: sources.clone(),
            plan,
            packets,
            ports,
        };
        let (changed, when_changed) = sync_channel(1);
        let parts = Parts {
            sink_metrics: node.sink_metrics(),
            recorded: Mutex::default(),
            changed,
            rows_refused: Mutex::default(),
            control: Mutex::new(control),
            node: Mutex::new(Some(node)),
            program: Mutex::new(program),
            devices,
            names: Mutex::new(names),
            log,
            remarks,
            began: Instant::now(),
            workers,
            workers_of_chains,
        };
        let parts = Arc::new(parts);
        if !parts.devices.is_empty() {
            devices::update_tables(&parts);
            let watched = Arc::downgrade(&parts);
            std::thread::Builder::new()
                .name("weft-devices".to_owned())
                .spawn(move || devices::watch(&watched))
                .map_err(|error| Start::Fault(Fault::environment(error)))?;
        }
        let watched = Arc::downgrade(&parts);
        std::thread::Builder::new()
            .name("weft-names".to_owned())
            .spawn(move || names::retry_unresolved(&watched))
            .map_err(|error| Start::Fault(Fault::environment(error)))?;
        let watched = Arc::downgrade(&parts);
        std::thread::Builder::new()
            .name("weft-rules".to_owned())
            .spawn(move || rows::rebuild(&when_changed, &watched))
            .map_err(|error| Start::Fault(Fault::environment(error)))?;
        let watched = Arc::downgrade(&parts);
        std::thread::Builder::new()
            .name("weft-ages".to_owned())
            .spawn(move || rows::run_expiry(&watched))
            .map_err(|error| Start::Fault(Fault::environment(error)))?;
        let watched = Arc::downgrade(&parts);
        std::thread::Builder::new()
            .name("weft-learned".to_owned())
            .spawn(move || learned::learn(&learned, &watched))
            .map_err(|error| Start::Fault(Fault::environment(error)))?;
        Ok(Self { parts })
    }

    /// Checks a program and runs it from now on. A dry run omits the last step, and changes nothing. `by` is the
    /// client's name for itself, for the log.
    pub(crate) fn apply(&self, program: Bundle, dry_run: bool, by: &str) -> Result<Applied, Refusal> {
        let begun = Instant::now();
        let checked = self.check(&program);
        self.apply_checked(checked, program, begun, dry_run, by)
    }

    /// Checks the program that starts with `root`, for the workers of this node.
    pub(crate) fn check_files(&self, root: &str, files: &mut Files) -> Checked {
        check_for(root, files, |_| self.parts.workers_of_chains)
    }

    fn check(&self, program: &Bundle) -> Checked {
        self.check_files(&program.root, &mut Files::in_bundle(program))
    }

    /// As [`Running::apply`], for a program whose check began at `begun`.
    pub(crate) fn apply_checked(
        &self,
        checked: Checked,
        program: Bundle,
        begun: Instant,
        dry_run: bool,
        by: &str,
    ) -> Result<Applied, Refusal> {
        let root = program.root.clone();
        let done = self.try_to_apply(checked, program, begun, dry_run);
        if !dry_run {
            apply_log::log_outcome(&self.parts.log, &done, &root, by);
        }
        done
    }

    /// Compiles a checked program and, unless it is a dry run, makes it the running version.
    fn try_to_apply(
        &self,
        mut checked: Checked,
        program: Bundle,
        begun: Instant,
        dry_run: bool,
    ) -> Result<Applied, Refusal> {
        let check_ms = millis(begun.elapsed());
        // Before any lock: a resolver may take seconds.
        let known = Arc::clone(&*lock(&self.parts.names));
        let looked = checked.network().map(|network| names::look_up(&endpoint_names(network), &known));
        let looked = looked.unwrap_or_default();
        let mut control = lock(&self.parts.control);
        let version = control.compiler.version();
        let refuse = |refused: Refused| Refusal::Refused(Refused { version, ..refused });
        let refuse_node = |error: NodeError| refuse(machine_refusal(&node_fault(&error)));
        let counted = self.stats().map(|node| node.stats.chains).unwrap_or_default();
        let begun_compiling = Instant::now();
        let (network, compiled) = control.compile(&mut checked, &counted).map_err(refuse)?;
        let compile_ms = millis(begun_compiling.elapsed());
        let outline = Outline::of(&network);
        let mut applied = Applied {
            version: compiled.plan.version,
            dry_run,
            changes: control.outline.changes_to(&outline),
            diagnostics: refused_by(&checked.diagnostics, &checked.sources, AtFault::Program).diagnostics,
            dropped: dropped(
                (&control.plan, control.packets.as_deref()),
                (&compiled.plan, compiled.packets.as_deref()),
                &control.given_tables(),
            ),
            planned: compiled.planned.clone(),
            names: names::reports(&looked, &known),
            check_ms,
            compile_ms,
            ..Applied::default()
        };
        let mut held = lock(&self.parts.node);
        let node = held.as_mut().ok_or(Refusal::Stopping)?;
        if dry_run {
            try_to_listen(&compiled.plan.listeners, node.listeners()).map_err(refuse_node)?;
            applied.total_ms = millis(begun.elapsed());
        } else {
            let mut names = lock(&self.parts.names);
            // Calls of the running version may still go to endpoints that the new version does not have.
            let mut all = looked;
            for name in names_of(&control.plan) {
                if let Some(found) = names.get(&name) {
                    all.entry(name).or_insert_with(|| found.clone());
                }
            }
            let all = Arc::new(all);
            node.set_names(&all).map_err(refuse_node)?;
            let outcome = node.apply(&compiled.plan, compiled.packets.as_ref()).map_err(refuse_node)?;
            *names = all;
            drop(names);
            applied.total_ms = millis(begun.elapsed());
            applied.pause_us = outcome.pause_max.as_secs_f64() * 1e6;
            control.plan = Arc::clone(&compiled.plan);
            control.packets = compiled.packets.clone();
            control.compiler.commit(compiled);
            control.outline = outline;
            control.network = without_rows(network);
            control.sources = checked.sources;
            *lock(&self.parts.program) = program;
            // The new version runs. If a worker was lost since, `health` reports it.
            applied.calls_in_flight = node.stats().map_or(0, |stats| calls_before(applied.version, &stats));
            drop(held);
            devices::update_tables_locked(&self.parts, &mut control);
        }
        Ok(applied)
    }

    /// The running program, without its rows.
    pub(crate) fn network(&self) -> Network {
        lock(&self.parts.control).network.clone()
    }

    /// The text of the running program.
    pub(crate) fn program(&self) -> Bundle {
        lock(&self.parts.program).clone()
    }

    /// The listeners, with the ports that the system chose.
    pub(crate) fn listeners(&self) -> Vec<weft_api::Listener> {
        let node = lock(&self.parts.node);
        let listeners = node.as_ref().map(Node::listeners).unwrap_or_default();
        let to_api = |listener: &Listener| weft_api::Listener {
            name: listener.name.clone(),
            address: listener.address.to_string(),
            options: listener.options.values().map(option_of).collect(),
        };
        listeners.iter().map(to_api).collect()
    }

    /// Logs the addresses of all endpoint names.
    pub(crate) fn log_names(&self) {
        let names = Arc::clone(&*lock(&self.parts.names));
        names::log_reports(&self.parts.log, &names::reports(&names, &Names::new()));
    }

    /// The log of the node.
    pub(crate) fn log(&self) -> &Log {
        &self.parts.log
    }

    /// Remarks about the node's devices, one line each.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.parts.remarks
    }

    /// Ports whose interface may have longer packets than their buffers hold, with a remark for each.
    pub(crate) fn outgrown(&self) -> BTreeMap<String, String> {
        let to_api = |(port, link): &(String, Arc<LinkState>)| {
            Some((port.clone(), mtu_remark(link.name(), link.mtu_excess()?)))
        };
        self.parts.devices.iter().filter_map(to_api).collect()
    }

    pub(crate) fn ports(&self) -> Vec<PortConfig> {
        lock(&self.parts.control).ports.clone()
    }

    /// The health of the node.
    pub(crate) fn health(&self) -> Health {
        match &*lock(&self.parts.node) {
            None => Health::Stopping,
            Some(node) if node.is_alive() => Health::Serving,
            Some(_) => Health::WorkerLost,
        }
    }

    /// The device error that ended the worker that carries frames, if that was the reason.
    pub(crate) fn take_port_error(&self) -> Option<PortError> {
        lock(&self.parts.node).as_mut()?.take_port_error()
    }

    /// The counters; None once the node has stopped.
    pub(crate) fn stats(&self) -> Option<NodeStats> {
        lock(&self.parts.node).as_ref()?.stats().ok()
    }

    /// The values of sinks `TO METRICS`.
    pub(crate) fn sink_metrics(&self) -> &SinkMetrics {
        &self.parts.sink_metrics
    }

    /// Rows that chains sent to tables, and that the tables refused.
    pub(crate) fn rows_refused(&self) -> RowsRefused {
        lock(&self.parts.rows_refused).clone()
    }

    /// The answer of `weft status`.
    pub(crate) fn status(&self) -> Option<Status> {
        let NodeStats { stats, packets, connect_errors, .. } = self.stats()?;
        let ended = RpcStatus::ALL.iter().zip(stats.calls_ended).filter(|(_, n)| *n > 0);
        let mut packets = packets.as_ref().map(packets_of);
        if let Some(packets) = &mut packets {
            let control = lock(&self.parts.control);
            DefinitionFiles { network: &control.network, sources: &control.sources }.name_files(packets);
        }
        Some(Status {
            version: stats.version,
            uptime_s: self.parts.began.elapsed().as_secs_f64(),
            workers: self.parts.workers,
            listeners: self.listeners(),
            calls: Calls {
                begun: stats.calls_begun,
                open: stats.calls_open,
                ended: ended.map(|(status, n)| (status.name().to_owned(), n)).collect(),
                p50_us: stats.latency.quantile(0.5).0 as f64 / 1e3,
                p99_us: stats.latency.quantile(0.99).0 as f64 / 1e3,
            },
            chains: stats.chains.iter().map(chain_of).collect(),
            filters: stats.filters.iter().map(filter_status).collect(),
            clusters: self.clusters(),
            endpoints: self.endpoints(&stats.endpoints, &connect_errors),
            links: stats.call_queues.iter().map(call_link_of).collect(),
            packets,
            refusals: stats.refusals.iter().cloned().collect::<BTreeMap<_, _>>(),
            slow_passes: stats.slow_passes.clone(),
            rows_lost: stats.rows_lost,
            rows_refused: self.rows_refused(),
            memory_bytes: resident_bytes(),
            descriptors_max: open_files::limit(),
            descriptors_reserved: open_files::limit().map_or(0, Descriptors::reserved),
            capabilities: privileges::held().into_iter().map(str::to_owned).collect(),
        })
    }

    /// The clusters with their options.
    fn clusters(&self) -> Vec<weft_api::Cluster> {
        let node = lock(&self.parts.node);
        let clusters = node.as_ref().map(Node::clusters).unwrap_or_default();
        let to_api = |cluster: &Arc<Cluster>| weft_api::Cluster {
            name: cluster.name.clone(),
            options: cluster.options.values().map(option_of).collect(),
        };
        clusters.iter().map(to_api).collect()
    }

    /// Endpoints in the API's form: with their addresses, and the reason if one has no connection.
    fn endpoints(&self, stats: &[EndpointStats], errors: &BTreeMap<String, String>) -> Vec<Endpoint> {
        let names = Arc::clone(&*lock(&self.parts.names));
        let to_api = |e: &EndpointStats| {
            let name = names.get(&e.address);
            let unknown = name.filter(|name| name.addresses.is_empty()).and_then(|name| name.error.clone());
            Endpoint {
                cluster: e.cluster.clone(),
                address: e.address.clone(),
                active: e.active,
                places: e.places,
                connections: e.connections,
                waiting: e.waiting,
                calls: e.calls,
                connect_failures: e.connect_failures,
                addresses: name.iter().flat_map(|name| &name.addresses).map(ToString::to_string).collect(),
                down: if e.connections > 0 {
                    None
                } else {
                    unknown.or_else(|| errors.get(&e.address).cloned())
                },
            }
        };
        stats.iter().map(to_api).collect()
    }

    /// The state that the log watches; None once the node has stopped.
    pub(crate) fn watched_state(&self) -> Option<WatchedState> {
        let NodeStats { stats, connect_errors, sink_errors, .. } = self.stats()?;
        Some(WatchedState {
            sink_errors,
            endpoints: self.endpoints(&stats.endpoints, &connect_errors),
            refusals: stats.refusals.into_iter().collect(),
            rows_lost: stats.rows_lost,
            rows_refused: self.rows_refused(),
        })
    }

    /// Stops the node; cuts calls that are not over within this time.
    pub(crate) fn stop(&self, within: Duration) -> StopReport {
        let node = lock(&self.parts.node).take();
        node.map_or(StopReport { calls_cut: 0, is_clean: true }, |node| node.stop(within))
    }
}

impl Control {
    /// Tables that accept rows at run time, except those that the node fills from its devices.
    fn given_tables(&self) -> Vec<TableView> {
        let of_ports = filled_by_ports(&self.network);
        let is_given =
            |view: &TableView| view.is_filled && of_ports.iter().all(|(name, _)| *name != view.name);
        self.compiler.tables().into_iter().filter(is_given).collect()
    }

    /// Compiles a checked program, and tests the files that it will write to. The counters of the running chains decide
    /// the order of elements.
    fn compile(&self, checked: &mut Checked, counted: &[ChainStats]) -> Result<(Network, Compiled), Refused> {
        let accepted = checked.accepted.take();
        let refuse =
            |diagnostics: &[Diagnostic], at_fault| refused_by(diagnostics, &checked.sources, at_fault);
        let Some(Accepted { network, lowered }) = accepted else {
            return Err(refuse(&checked.diagnostics, at_fault(&checked.diagnostics)));
        };
        let ports = ports_of(&network).map_err(|found| refuse(&found, AtFault::Program))?;
        let keeps_calls =
            self.ports.is_empty() || self.plan.listeners.is_empty() == network.listeners.is_empty();
        if ports != self.ports || !keeps_calls {
            return Err(refuse(&[other_ports(&network, &ports, &self.ports)], AtFault::Program));
        }
        let compiled = in_job(|| self.compiler.compile(&network, lowered, counted));
        let compiled = compiled.map_err(|diagnostics| refuse(&diagnostics, at_fault(&diagnostics)))?;
        sink_files::try_to_open(&compiled).map_err(|fault| machine_refusal(&fault))?;
        Ok((network, compiled))
    }
}

/// The number of workers for calls. State is laid out for the workers that run chains: first those of calls, then those
/// of frames.
fn workers_of_calls(network: &Network, workers: usize) -> usize {
    if network.ports.is_empty() || !network.listeners.is_empty() { workers } else { 0 }
}

/// The number of workers that run chains, in a node with this many for calls, and this many for frames.
pub(crate) fn workers_of(network: &Network, workers: usize) -> usize {
    workers_of_calls(network, workers) + if network.ports.is_empty() { 0 } else { workers }
}

/// Compiles as a [`job`].
fn in_job<T: Send>(work: impl FnOnce() -> Result<T, Vec<Diagnostic>> + Send) -> Result<T, Vec<Diagnostic>> {
    job::run(work).unwrap_or_else(|broken| Err(vec![broken.diagnostic()]))
}

/// The part of a program that queries need.
fn without_rows(mut network: Network) -> Network {
    network.fills = Vec::new();
    network
}

/// If this were not fatal, an operator would trust a node that has more rights than it says.
fn not_reduced(error: std::io::Error) -> Fault {
    Fault::environment(format!("cannot give up capabilities: {error}"))
}

/// Why a node did not start.
pub(crate) enum Start {
    /// The program is at fault.
    Diagnostics(Vec<Diagnostic>),
    /// Something else is at fault.
    Fault(Fault),
}

/// Why the node refused a program.
pub(crate) enum Refusal {
    /// The program is at fault, or the machine is.
    Refused(Refused),
    /// The node is about to end.
    Stopping,
}

/// A refusal with diagnostics; the caller fills in the version that goes on.
pub(crate) fn refused_by(diagnostics: &[Diagnostic], sources: &SourceMap, at_fault: AtFault) -> Refused {
    let data = to_json(diagnostics, sources);
    Refused {
        text: render_all(diagnostics, sources, RenderOptions::default()),
        diagnostics: serde_json::from_str(&data).unwrap_or_default(),
        at_fault,
        ..Refused::default()
    }
}

/// A refusal with a text instead of diagnostics; `version` goes on.
fn refused_in_words(text: &str, version: u64) -> Refusal {
    let diagnostics = serde_json::Value::Array(Vec::new());
    let text = format!("error: {text}\n");
    Refusal::Refused(Refused { text, diagnostics, version, ..Refused::default() })
}

/// A refusal because the machine lacks something; the caller fills in the version that goes on.
fn machine_refusal(fault: &Fault) -> Refused {
    let diagnostics = serde_json::Value::Array(Vec::new());
    let at_fault = AtFault::Environment;
    Refused { text: fault.text(), diagnostics, at_fault, ..Refused::default() }
}

/// A node's failure as a message for people.
pub(crate) fn node_fault(error: &NodeError) -> Fault {
    let fault = Fault::environment(error);
    match error {
        NodeError::Listen { error, listener } => match (error.kind(), &listener.address) {
            (ErrorKind::AddrInUse, address) => {
                fault.with_help(format!("end what listens on {address}, or choose another port"))
            }
            (ErrorKind::PermissionDenied, _) => {
                fault.with_help("choose a port above 1023 or another path, or run with the right to bind it")
            }
            (ErrorKind::NotFound, Address::Unix(path)) => {
                fault.with_help(format!("make the folder `{}`, or choose another path", folder_of(path)))
            }
            (_, Address::Unix(_)) => fault.with_help("choose a path where this user may make a socket"),
            (_, Address::Tcp(_) | Address::Name(_)) => fault.with_help("is this an address of this machine?"),
        },
        NodeError::System(_) | NodeError::WorkerLost => fault,
    }
}

/// A port's failure to open as a message for people.
fn port_fault(port: &str, error: &OpenError) -> Fault {
    let OpenError { name, doing, error, help } = error;
    let fault = Fault::environment(format!("port `{port}` on `{name}`: cannot {doing}: {error}"));
    match help {
        Some(help) => fault.with_help(help),
        None => fault,
    }
}

/// Binds the listeners of a change for a moment, as a test. Like the change itself, it only binds addresses that the
/// node does not listen on yet.
fn try_to_listen(wanted: &[Listener], running: &[Listener]) -> Result<(), NodeError> {
    let is_same =
        |a: &Listener, b: &Listener| a.name == b.name && (a.address == b.address || has_any_port(b));
    let is_new = |l: &&Listener| !running.iter().any(|have| is_same(have, l));
    for listener in wanted.iter().filter(is_new) {
        let bound = ListenSocket::bind(&listener.address);
        bound.map_err(|error| NodeError::Listen { listener: listener.clone(), error })?;
    }
    Ok(())
}

/// Open calls on chains of earlier versions.
fn calls_before(version: u64, node: &NodeStats) -> u64 {
    node.stats.chains.iter().filter(|chain| chain.version < version).map(|chain| chain.calls_open).sum()
}

/// Whether a listener lets the system choose its port.
fn has_any_port(listener: &Listener) -> bool {
    matches!(listener.address, Address::Tcp(address) if address.port() == 0)
}

/// The names of the endpoints of a program.
fn endpoint_names(network: &Network) -> BTreeSet<String> {
    let endpoints = network.clusters.iter().flat_map(|cluster| &cluster.endpoints);
    let names = endpoints.map(endpoint_of).filter_map(|address| match address {
        Address::Name(name) => Some(name),
        Address::Tcp(_) | Address::Unix(_) => None,
    });
    names.collect()
}

/// Locks a part, even after a panic: each part is consistent between two statements.
fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory of this process; 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0) * 1024
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Remark: the port's pair existed before, so another program owns it.
fn existing_pair_remark(port: &OpenPort) -> String {
    let (name, device) = (&port.config().name, port.device());
    format!(
        "port `{name}`: `{device}` was there already, so nothing of its pair is made or set, and it stays \
         (`ip link del {device}` takes it out)"
    )
}

/// Remark: packets of the device may be longer than the buffers of XDP.
fn mtu_remark(device: &str, (mtu, mtu_max): (u16, u16)) -> String {
    let help = match mtu <= BUFFERED_MTU_MAX {
        true => "start the node anew, for it chooses its buffers then",
        false => "take `packet` in place of `xdp`",
    };
    format!(
        "the MTU of `{device}` is {mtu}, and the buffers of its XDP port are for one of {mtu_max}: \
         longer packets do not come in, and count as `overrun`; lower the MTU \
         (`ip link set {device} mtu {mtu_max}`), or {help}"
    )
}

/// Remark: the interface of an XDP port merges packets or keeps tags outside of them, and cannot be told not to.
fn stuck_offloads_remark(port: &OpenPort) -> String {
    let (name, device) = (&port.config().name, port.device());
    let off: Vec<_> = port.stuck_offloads().iter().map(|offload| format!("{offload} off")).collect();
    format!(
        "port `{name}`: `{device}` changes packets before XDP sees them, and would not stop: joined ones count as \
         `overrun`, and tags are missing; try `ethtool -K {device} {}`, or take `packet` in place of `xdp`",
        off.join(" ")
    )
}

/// Remark: the XDP port is at one end of a veth pair.
fn pair_end_remark(port: &OpenPort) -> String {
    let (name, device) = (&port.config().name, port.device());
    format!(
        "port `{name}`: `{device}` is an end of a pair: checksums and tags that the other end leaves to it are \
         missing in XDP, unless `ethtool -K PEER tx off txvlan off` is said there"
    )
}

/// Remark: the port has fewer queues than its interface.
fn unseen_queues_remark(port: &OpenPort) -> String {
    let (name, device, n) = (&port.config().name, port.device(), port.queues());
    let there = n + usize::from(port.unserved_queues());
    let help = match port.config().queues {
        Some(_) => "leave `queues` out, which opens all",
        None => "a port has no more",
    };
    format!(
        "port `{name}`: it has {n} of the {there} queues of `{device}`: frames that come in on the others go \
         to the host, and no chain sees them; {help}, or have the interface use no more of them \
         (`ethtool -L {device}`)"
    )
}

/// Remark: the interface cannot write into the node's memory (zero copy), so it copies.
fn copy_remark(port: &OpenPort) -> String {
    let (name, device) = (&port.config().name, port.device());
    format!(
        "port `{name}`: `{device}` cannot write into the node's memory itself (zero_copy), so frames are copied"
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::admin::{Access, Admin};
    use crate::cli::When;
    use crate::log;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use weft_core::abi::{Cx, State};
    use weft_ir::backend::{Program, Unsupported};
    use weft_ir::program::{ChainProgram, Event};

    const TICK: &str = "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT tick ON rpc AS
  VAR n U64 MERGE SUM;
  SINK ticks (n U64) TO METRICS;
  ON EVERY '10 ms' INSERT INTO ticks VALUES (n);
END;
CREATE CHAIN shop ON front -> cart AS tick; END;
";

    /// The interpreter with an injected fault.
    #[derive(Clone, Copy)]
    pub(crate) enum Rigged {
        /// Compiling takes this long.
        Slow(Duration),
        /// The compiled program panics when it runs, which no real back end's does.
        Panics,
        /// The compiler panics on a program that has an element of this name.
        FailsAt(&'static str),
    }

    #[derive(Debug)]
    struct PanickingCode;

    impl Program for PanickingCode {
        fn run(&self, _: &mut Cx<'_>, _: usize) {
            panic!("this is a test");
        }
    }

    impl Backend for Rigged {
        fn name(&self) -> &'static str {
            "rigged"
        }

        fn compile(
            &self,
            chain: &Arc<ChainProgram>,
            event: Event,
            state: &State,
        ) -> Result<Box<dyn Program>, Unsupported> {
            match self {
                Self::Panics => return Ok(Box::new(PanickingCode)),
                Self::Slow(time) if matches!(event, Event::Every(..)) => std::thread::sleep(*time),
                Self::FailsAt(name) if chain.elements.iter().any(|element| element.name == *name) => {
                    panic!("this is a test")
                }
                Self::Slow(_) | Self::FailsAt(_) => {}
            }
            Interp.compile(chain, event, state)
        }
    }

    fn bundle() -> Bundle {
        Bundle {
            root: "a.weft".to_owned(),
            files: [("a.weft".to_owned(), TICK.to_owned())].into(),
            ..Bundle::default()
        }
    }

    /// A node of one worker whose only element runs every 10 ms.
    pub(crate) fn start(backend: Rigged) -> Running {
        let checked = crate::machine::check_files("a.weft", &mut Files::in_bundle(&bundle()));
        let rendered = render_all(&checked.diagnostics, &checked.sources, RenderOptions::default());
        let accepted = checked.accepted.unwrap_or_else(|| panic!("{rendered}"));
        let args = NodeArgs {
            workers: 1,
            busy_poll: 0,
            coalesce: 0,
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin_anywhere: false,
            private_metrics: false,
            drop_all: false,
            backend: BackendName::Interp,
            memory: None,
            seed: Some(1),
            table: When::Never,
            log: log::Format::Text,
            log_level: log::Level::Error,
        };
        let log = Log::new(log::Format::Text, log::Level::Error);
        let sources = &checked.sources;
        match Running::start_with(Box::new(backend), accepted, sources, bundle(), (&args, log), |_| Ok(())) {
            Ok(running) => running,
            Err(Start::Diagnostics(found)) => panic!("{found:?}"),
            Err(Start::Fault(fault)) => panic!("{fault:?}"),
        }
    }

    fn get(admin: &Admin, path: &str) -> String {
        let mut stream = TcpStream::connect(admin.address()).expect("it listens");
        let token = crate::token::read(admin.address(), None).expect("it has left one");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Authorization: Bearer {token}\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn admin(running: &Running) -> Admin {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        Admin::start(socket, running.clone(), Access::default()).expect("it starts")
    }

    /// A supervisor would restart a node in the middle of a change if it did not answer during a compilation.
    #[test]
    fn status_answers_during_compile() {
        let running = start(Rigged::Slow(Duration::from_secs(2)));
        let admin = admin(&running);
        let changing = running.clone();
        let change = std::thread::spawn(move || changing.apply(bundle(), false, "a test"));
        std::thread::sleep(Duration::from_millis(200));
        for path in ["/healthz", "/metrics", "/v1/status", "/v1/program"] {
            let answer = get(&admin, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
        assert!(!change.is_finished(), "it was to be asked in the middle of a change");
        let applied = change.join().expect("no panic");
        assert_eq!(applied.ok().map(|applied| applied.version), Some(2));
        assert!(running.stop(Duration::from_secs(1)).is_clean);
        assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 503"));
    }

    /// A balancer would go on sending calls to a node without a worker.
    #[test]
    fn lost_worker_fails_health() {
        let running = start(Rigged::Panics);
        let admin = admin(&running);
        await_loss(&running);
        let answer = get(&admin, "/healthz");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("a worker has ended\n"), "{answer}");
        assert!(get(&admin, "/v1/status").ends_with("a worker has ended\n"));
        running.stop(Duration::ZERO);
    }

    /// A bug in the compiler would end the node with all its traffic, or block every later change.
    #[test]
    fn compiler_panic_leaves_node_serving() {
        let running = start(Rigged::FailsAt("broken"));
        let admin = admin(&running);
        let mut broken = bundle();
        broken.files.values_mut().for_each(|text| *text = text.replace("AS tick;", "AS tick AS broken;"));
        for dry_run in [true, false] {
            let refused = running.apply(broken.clone(), dry_run, "a test");
            let Err(Refusal::Refused(refused)) = refused else { panic!("it was taken") };
            assert_eq!((refused.at_fault, refused.version), (AtFault::Environment, 1));
            assert!(
                refused.text.contains("W0506") && refused.text.contains("this is a test"),
                "{}",
                refused.text
            );
        }
        assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 200"));
        assert_eq!(running.program(), bundle());
        assert_eq!(running.apply(bundle(), false, "a test").ok().map(|applied| applied.version), Some(2));
        assert!(running.stop(Duration::from_secs(1)).is_clean);
    }

    /// A dry run that checks less than a change would promise a change that is refused; a dry run that does more would
    /// be a change.
    #[test]
    fn dry_run_checks_and_changes_nothing() {
        let running = start(Rigged::Slow(Duration::ZERO));
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = taken.local_addr().expect("it is bound").to_string();
        let with = |from: &str, to: &str| {
            let mut bundle = bundle();
            bundle.files.values_mut().for_each(|text| *text = text.replace(from, to));
            running.apply(bundle, true, "a test")
        };
        let refused = with("'127.0.0.1:0'", &format!("'{address}'"));
        let Err(Refusal::Refused(refused)) = refused else { panic!("an address was taken twice") };
        assert_eq!(refused.at_fault, AtFault::Environment);
        assert!(refused.text.contains("cannot listen on"), "{}", refused.text);
        let unfit = with("n U64", "n I64");
        let Err(Refusal::Refused(unfit)) = unfit else { panic!("a variable of another type was taken") };
        assert!(unfit.text.contains("W0501"), "{}", unfit.text);
        let fine = with("10 ms", "20 ms").ok().expect("it fits");
        assert!(fine.dry_run && fine.version == 2);
        let changes: Vec<_> = fine.changes.iter().map(|change| change.what.as_str()).collect();
        assert!(changes.contains(&"chain shop") || changes.contains(&"element tick"), "{changes:?}");
        assert_eq!(running.stats().expect("it runs").stats.version, 1);
        assert_eq!(running.program(), bundle());
        running.stop(Duration::ZERO);
    }

    /// Waits until the node's worker has ended.
    pub(crate) fn await_loss(running: &Running) {
        let until = Instant::now() + Duration::from_secs(10);
        while running.health() != Health::WorkerLost {
            assert!(Instant::now() < until, "the worker did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
