//! A node with its compiler: what `weft run` and `weft demo` run, and what the admin endpoint changes.

use crate::cli::{BackendName, NodeArgs};
use crate::compile::{Compiler, check_files};
use crate::fault::Fault;
use crate::source::Files;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weft_api::{Applied, Bundle, Calls, Chain, Element, Endpoint, Place, Refused, Status};
use weft_core::Status as RpcStatus;
use weft_engine::Config;
use weft_io::node::NodeStats;
use weft_io::writer::SinkMetrics;
use weft_io::{Node, NodeConfig, NodeError, clock};
use weft_ir::backend::Backend;
use weft_ir::interp::Interp;
use weft_jit::Jit;
use weft_lang::diagnostic::{Diagnostic, RenderOptions, render_all, to_json};
use weft_lang::hir::Network;
use weft_lang::source::SourceMap;

/// A node, shared by the command that runs it and the admin endpoint.
#[derive(Clone)]
pub(crate) struct Running {
    inner: Arc<Mutex<Inner>>,
    began: Instant,
    workers: usize,
    sink_metrics: SinkMetrics,
}

struct Inner {
    /// None once it was stopped.
    node: Option<Node>,
    compiler: Compiler,
    program: Bundle,
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
            Ok(Box::new(jit))
        }
    }
}

impl Running {
    /// Compiles a checked program and starts a node that runs it.
    pub(crate) fn start(
        network: &Network,
        sources: &SourceMap,
        program: Bundle,
        args: &NodeArgs,
    ) -> Result<Self, Start> {
        let workers = usize::from(args.workers);
        let mut compiler = Compiler::new(backend(args.backend).map_err(Start::Fault)?, workers);
        let compiled = compiler.compile(network, sources).map_err(Start::Diagnostics)?;
        let seed = args.seed.unwrap_or_else(|| clock::now().0 as u64);
        let config = NodeConfig { workers, engine: Config { seed, ..Config::default() } };
        let node = Node::start(&config, &compiled.plan).map_err(|error| Start::Fault(node_fault(&error)))?;
        compiler.commit(compiled);
        Ok(Self {
            began: Instant::now(),
            workers,
            sink_metrics: node.sink_metrics(),
            inner: Arc::new(Mutex::new(Inner { node: Some(node), compiler, program })),
        })
    }

    /// Checks a program and runs it from now on.
    pub(crate) fn apply(&self, program: Bundle, dry_run: bool) -> Result<Applied, Refusal> {
        let begun = Instant::now();
        let mut files = Files::in_bundle(&program);
        let checked = check_files(&program.root, &mut files);
        let mut inner = self.lock();
        let version = inner.compiler.version();
        let refuse = |diagnostics: &[Diagnostic]| {
            let text = render_all(diagnostics, &checked.sources, RenderOptions::default());
            let data = to_json(diagnostics, &checked.sources);
            Refusal::Program(Refused {
                text,
                diagnostics: serde_json::from_str(&data).unwrap_or_default(),
                version,
            })
        };
        let Some(network) = &checked.network else { return Err(refuse(&checked.diagnostics)) };
        let mut applied = Applied {
            version: version + 1,
            total_ms: 0.0,
            check_ms: millis(checked.took),
            compile_ms: 0.0,
            pause_us: 0.0,
            calls_in_flight: 0,
        };
        if dry_run {
            applied.total_ms = millis(begun.elapsed());
            return Ok(applied);
        }
        let compiled = inner.compiler.compile(network, &checked.sources).map_err(|d| refuse(&d))?;
        applied.compile_ms = millis(compiled.took);
        let node = inner.node.as_mut().ok_or(Refusal::Stopping)?;
        applied.calls_in_flight = node.stats().map_err(Refusal::Node)?.stats.calls_open;
        let outcome = node.apply(&compiled.plan).map_err(Refusal::Node)?;
        inner.compiler.commit(compiled);
        applied.pause_us = outcome.pause_max.as_secs_f64() * 1e6;
        applied.total_ms = millis(begun.elapsed());
        inner.program = program;
        Ok(applied)
    }

    /// The text that runs.
    pub(crate) fn program(&self) -> Bundle {
        self.lock().program.clone()
    }

    /// The listeners, with the ports that the system chose.
    pub(crate) fn listeners(&self) -> Vec<Place> {
        let inner = self.lock();
        let listeners = inner.node.as_ref().map(Node::listeners).unwrap_or_default();
        listeners.iter().map(|l| Place { name: l.name.clone(), address: l.address.to_string() }).collect()
    }

    /// The counters; None once the node has stopped.
    pub(crate) fn stats(&self) -> Option<NodeStats> {
        self.lock().node.as_ref()?.stats().ok()
    }

    /// The values of sinks `TO METRICS`.
    pub(crate) fn sink_metrics(&self) -> Vec<(String, String, f64)> {
        self.sink_metrics.values()
    }

    /// What `weft status` shows.
    pub(crate) fn status(&self) -> Option<Status> {
        let NodeStats { stats, .. } = self.stats()?;
        let ended = RpcStatus::ALL.iter().zip(stats.calls_ended).filter(|(_, n)| *n > 0);
        Some(Status {
            version: stats.version,
            uptime_s: self.began.elapsed().as_secs_f64(),
            workers: self.workers,
            listeners: self.listeners(),
            calls: Calls {
                begun: stats.calls_begun,
                open: stats.calls_open,
                ended: ended.map(|(status, n)| (status.name().to_owned(), n)).collect(),
                p50_us: stats.latency.quantile(0.5).0 as f64 / 1e3,
                p99_us: stats.latency.quantile(0.99).0 as f64 / 1e3,
            },
            chains: stats.chains.iter().map(chain_of).collect(),
            endpoints: stats
                .endpoints
                .iter()
                .map(|e| Endpoint {
                    cluster: e.cluster.clone(),
                    address: e.address.clone(),
                    active: e.active,
                    calls: e.calls,
                    connect_failures: e.connect_failures,
                })
                .collect(),
            refusals: stats.refusals.iter().cloned().collect::<BTreeMap<_, _>>(),
            memory_bytes: resident_bytes(),
        })
    }

    /// Stops the node; true if all calls ended in time.
    pub(crate) fn stop(&self, within: Duration) -> bool {
        let node = self.lock().node.take();
        node.is_none_or(|node| node.stop(within))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a node did not start.
pub(crate) enum Start {
    /// The program is at fault.
    Diagnostics(Vec<Diagnostic>),
    /// Something else is.
    Fault(Fault),
}

/// Why a program was not taken on.
pub(crate) enum Refusal {
    /// It is at fault.
    Program(Refused),
    /// The environment is.
    Node(NodeError),
    /// The node is about to end.
    Stopping,
}

/// A node's failure as a person should hear of it.
pub(crate) fn node_fault(error: &NodeError) -> Fault {
    let fault = Fault::environment(error);
    match error {
        NodeError::Listen { error, listener } => {
            match error.kind() {
                std::io::ErrorKind::AddrInUse => fault
                    .with_help(format!("end what listens on {}, or choose another port", listener.address)),
                std::io::ErrorKind::PermissionDenied => fault
                    .with_help("choose a port above 1023 or another path, or run with the right to bind it"),
                _ => fault.with_help("is this an address of this machine?"),
            }
        }
        NodeError::System(_) | NodeError::WorkerLost => fault,
    }
}

/// An element's counters as the API gives them.
fn chain_of(chain: &weft_engine::stats::ChainStats) -> Chain {
    let element = |(name, c): &(String, weft_core::abi::Counters)| Element {
        name: name.clone(),
        seen: c.seen,
        dropped: c.dropped,
        aborted: c.aborted,
        diverted: c.diverted,
        failed: c.failed,
        ns_per_tuple: (c.sampled > 0).then(|| c.sampled_ns as f64 / c.sampled as f64),
    };
    Chain {
        name: chain.chain.clone(),
        version: chain.version,
        is_current: chain.is_current,
        calls_open: chain.calls_open,
        elements: chain.elements.iter().map(element).collect(),
    }
}

/// Resident memory of this process; 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0) * 1024
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
