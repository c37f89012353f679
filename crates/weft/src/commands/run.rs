//! `weft run`: runs a program in a node, until it is stopped.

use crate::admin::{self, Access, Admin};
use crate::cli::{NodeArgs, RunArgs, When};
use crate::fault::Fault;
use crate::log::{Level, Log};
use crate::machine::check_for;
use crate::open_files;
use crate::running::workers_of;
use crate::running::{Health, Running, Start};
use crate::signals::{self, Request};
use crate::source;
use crate::source::require;
use crate::status_table::StatusTable;
use crate::stderr;
use crate::watch::Watch;
use serde_json::json;
use std::io::IsTerminal as _;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use weft_api::{Binary, Bundle};
use weft_control::check::at_fault;
use weft_control::status::device_of;
use weft_core::methods::MethodSet;
use weft_lang::hir::{CallsOf, Chain, Network};

/// The interval between a running command's checks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The client's name of a reload in the log.
const SIGHUP: &str = "SIGHUP";

/// A running network with its admin endpoint.
pub(super) struct Started {
    pub(super) running: Running,
    pub(super) admin: Admin,
    pub(super) network: Network,
}

/// Runs `weft run`: starts the node, and shows its table until it is stopped.
pub(crate) fn run(args: &RunArgs) -> Result<(), Fault> {
    let asks = signals::node_requests()?;
    let Started { running, admin, network } =
        start(&args.file, &args.node, Log::new(args.node.log, args.node.log_level))?;
    let log = running.log().clone();
    let Headline { node, parts } = headline(&args.file, &running, &admin, &network);
    let fields = [("version", json!(1)), ("admin", json!(admin.address().to_string()))];
    log.event(Level::Info, "start", &node, &fields);
    parts.iter().for_each(|line| log.event(Level::Info, "run", line, &[]));
    running.log_names();
    running.remarks().iter().for_each(|line| log.event(Level::Warn, "note", line, &[]));
    let mut table = StatusTable::new(log.clone());
    let shows_table = match args.node.table {
        When::Auto => std::io::stderr().is_terminal(),
        When::Always => true,
        When::Never => false,
    };
    let mut seen = Watch::default();
    let mut own = OwnProgram { file: &args.file, applied: running.program() };
    let watched = watch(&running, &asks, &mut own, |running| {
        seen.look(running, Instant::now());
        if shows_table {
            table.tick(running, None);
        }
    });
    if let Err(lost) = watched {
        // Calls on the other workers may end; the node accepts no new ones.
        running.stop(grace(args));
        return Err(lost);
    }
    let open = running.stats().map_or(0, |s| s.stats.calls_open);
    let say = |text: &str| log.event(Level::Info, "stop", text, &[]);
    say(&format!(
        "stopping: {} under way, at most {:.0} s; once more to stop at once",
        weft_control::show::count(open, "call"),
        args.grace
    ));
    let ended = running.status();
    let stopped = running.stop(grace(args));
    drop(admin);
    if let Some(status) = ended {
        let carried = status.packets.map_or(String::new(), |packets| {
            let received = packets.ports.iter().map(|port| port.received).sum();
            format!("{} received, ", weft_control::show::count(received, "packet"))
        });
        say(&format!(
            "stopped: {carried}{} begun, version {}",
            weft_control::show::count(status.calls.begun, "call"),
            status.version
        ));
    }
    if stopped.calls_cut > 0 {
        say(&cut_calls_text(stopped.calls_cut as u64, args.grace));
    }
    if stopped.is_clean { Ok(()) } else { Err(Fault::environment("a worker did not end well")) }
}

/// Calls that were cut after the promised time are no failure, but are reported.
fn cut_calls_text(calls: u64, grace_s: f64) -> String {
    let were = if calls == 1 { "was" } else { "were" };
    format!("{} {were} cut after {grace_s:.0} s, with UNAVAILABLE", weft_control::show::count(calls, "call"))
}

/// Waits until a stop request. Fails as soon as a worker is lost.
fn watch(
    running: &Running,
    asks: &Receiver<Request>,
    own: &mut OwnProgram<'_>,
    mut look: impl FnMut(&Running),
) -> Result<(), Fault> {
    loop {
        match asks.recv_timeout(LOOK_EVERY) {
            Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Request::Reload) => own.reload(running),
            Err(RecvTimeoutError::Timeout) => {}
        }
        fail_if_unhealthy(running)?;
        look(running);
    }
}

/// The program of the command line, as last read.
struct OwnProgram<'a> {
    file: &'a str,
    applied: Bundle,
}

impl OwnProgram<'_> {
    /// Reads the file again and applies it, unless the node has got another program since. Logs the outcome; after an
    /// error the old program runs on.
    fn reload(&mut self, running: &Running) {
        let mut files = source::on_disk();
        let begun = Instant::now();
        let checked = running.check_files(self.file, &mut files);
        let (program, runs) = (files.into_bundle(self.file), running.program());
        if runs != self.applied && !is_same_text(&runs, &program) {
            let text = format!(
                "SIGHUP: the node was given another program since `{0}` was read, which is not taken back; nothing \
                 changes: `weft apply {0}` has it run this one",
                self.file
            );
            running.log().event(
                Level::Warn,
                "refuse",
                &text,
                &[("by", json!(SIGHUP)), ("program", json!(self.file))],
            );
            return;
        }
        if running.apply_checked(checked, program.clone(), begun, false, SIGHUP).is_ok() {
            self.applied = program;
        }
    }
}

/// Whether two programs are equal except for file names, which depend on the working directory.
fn is_same_text(a: &Bundle, b: &Bundle) -> bool {
    /// The program's first file, and the contents of all its files in an order that does not depend on names.
    fn texts(bundle: &Bundle) -> (Option<&String>, Vec<&[u8]>) {
        let texts = bundle.files.values().map(String::as_bytes);
        let mut all: Vec<&[u8]> =
            texts.chain(bundle.binary.values().map(|Binary(bytes)| &bytes[..])).collect();
        all.sort_unstable();
        (bundle.files.get(&bundle.root), all)
    }
    texts(a) == texts(b)
}

/// Fails if a worker is lost: the node serves only a part of its connections, and should be restarted.
pub(super) fn fail_if_unhealthy(running: &Running) -> Result<(), Fault> {
    match running.health() {
        Health::Serving | Health::Stopping => Ok(()),
        Health::WorkerLost => Err(match running.take_port_error() {
            Some(error) => Fault::environment(format!("{error}; the node stops"))
                .with_help("see to the device (`ip link`), and run the node again"),
            None => Fault::environment("a worker has ended unexpectedly; the node stops"),
        }),
    }
}

fn grace(args: &RunArgs) -> Duration {
    Duration::try_from_secs_f64(args.grace).unwrap_or_default()
}

/// Checks a program and starts it, or prints its errors.
pub(super) fn start(file: &str, args: &NodeArgs, log: Log) -> Result<Started, Fault> {
    admin::check_address(args.admin, args.admin_anywhere)?;
    require(file)?;
    let mut files = source::on_disk();
    let workers = usize::from(args.workers);
    let mut checked = check_for(file, &mut files, |network| workers_of(network, workers));
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(accepted) = checked.accepted.take() else { return Err(Fault::reported(checked.at_fault)) };
    open_files::raise_limit();
    let socket = admin::bind(args.admin)?;
    let program = files.into_bundle(file);
    let running =
        Running::start(accepted, &checked.sources, program, args, log).map_err(|start| match start {
            Start::Fault(fault) => fault,
            Start::Diagnostics(diagnostics) => {
                stderr::diagnostics(&diagnostics, &checked.sources);
                Fault::reported(at_fault(&diagnostics))
            }
        })?;
    let access = Access { private_metrics: args.private_metrics };
    let admin = Admin::start(socket, running.clone(), access)?;
    let network = running.network();
    Ok(Started { running, admin, network })
}

/// A description of the node: a line for the node, and one for each route, chain and link.
pub(super) struct Headline {
    pub(super) node: String,
    pub(super) parts: Vec<String>,
}

/// The lines that describe a started node: its addresses, chains and links.
pub(super) fn headline(file: &str, running: &Running, admin: &Admin, network: &Network) -> Headline {
    let mut places: Vec<_> =
        running.listeners().iter().map(|p| format!("{} on {}", p.name, p.address)).collect();
    places.extend(running.ports().iter().map(|port| format!("{} on {}", port.name, device_of(port))));
    let node = format!(
        "weft {}  {file}: {}   version 1   admin http://{}",
        env!("CARGO_PKG_VERSION"),
        places.join(", "),
        admin.address()
    );
    let mut parts = running_parts(network);
    if parts.is_empty() {
        let what = "nothing runs: the program has no chain and no route";
        parts.push(format!("{what}; `weft apply FILE` gives the node another"));
    }
    Headline { node, parts }
}

/// The routes, chains and links of a program: `route all: front -> back x1`.
fn running_parts(network: &Network) -> Vec<String> {
    let to = |cluster: usize| {
        let cluster = &network.clusters[cluster];
        format!("{} x{}", cluster.name, cluster.endpoints.len())
    };
    let routes = network.routes.iter().map(|route| {
        let mut line = format!(
            "route {}: {} -> {}",
            route.name,
            network.listeners[route.listener].name,
            to(route.cluster)
        );
        if route.method_set != MethodSet::all() {
            line.push_str(&format!("   METHOD {}", route.method_set));
        }
        if route.when.is_some() {
            line.push_str("   on a condition");
        }
        line
    });
    let chains = network.chains.iter().map(|chain| {
        let (from, port) = network.ends(chain);
        let edge = match chain.edge.calls() {
            Some((_, cluster)) => format!("{from} -> {}", to(cluster)),
            None if port.is_empty() => from,
            None => format!("{from} -> {port}"),
        };
        format!("chain {}: {edge}   {}", chain.name, branch_lines(network, chain).join("; "))
    });
    let links = network
        .links
        .iter()
        .map(|link| format!("link {}: {} at {}", link.name, link.queue.name, network.ports[link.port].name));
    let call_links = network.call_links.iter().map(|link| {
        let at = match link.of {
            CallsOf::Listener(at) => &network.listeners[at].name,
            CallsOf::Cluster(at) => &network.clusters[at].name,
        };
        format!("link {}: {} at {at}", link.name, link.queue.name)
    });
    routes.chain(chains).chain(links).chain(call_links).collect()
}

/// The stages of a chain in their order, and those of each branch.
fn branch_lines(network: &Network, chain: &Chain) -> Vec<String> {
    let stages = |range: Range<usize>| {
        let names = chain.instances[range].iter().map(|instance| instance.name.as_str());
        names.collect::<Vec<_>>().join(" -> ")
    };
    let n_straight = chain.branches.first().map_or(chain.instances.len(), |branch| branch.stages.start);
    let branches = chain.branches.iter().map(|branch| {
        let from = &chain.instances[branch.from];
        let (edge, _) = &network.elements[from.element].edges[branch.edge];
        format!("{}.{edge} -> {}", from.name, stages(branch.stages.clone()))
    });
    [stages(0..n_straight)].into_iter().chain(branches).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::check_files;
    use crate::running::tests::{Rigged, await_loss};
    use weft_control::files::Files;

    /// A reader of the first line could take a branch for the path of all packets.
    #[test]
    fn branches_print_apart_from_trunk() {
        let text = "IMPORT 'library/elements/syn_guard.weft'; IMPORT 'library/elements/monitor.weft';
CREATE PORT lan ON memory;
CREATE CHAIN out ON PORT lan -> lan AS
  syn_guard -> monitor;
  syn_guard.suspect -> monitor AS slow -> monitor AS slower;
END;";
        let files = [("n.weft".to_owned(), text.to_owned())].into();
        let bundle = Bundle { root: "n.weft".to_owned(), files, ..Bundle::default() };
        let checked = check_files(&bundle.root, &mut Files::in_bundle(&bundle));
        let network = checked.network().expect("it is a program");
        let ways = branch_lines(network, &network.chains[0]);
        assert_eq!(ways, ["syn_guard -> monitor", "syn_guard.suspect -> slow -> slower"]);
    }

    /// A service manager restarts a process that ends, but not a node that only seems to run.
    #[test]
    fn lost_worker_ends_command() {
        let running = crate::running::tests::start(Rigged::Panics);
        await_loss(&running);
        let (_asks, asks) = std::sync::mpsc::channel();
        let mut own = OwnProgram { file: "a.weft", applied: running.program() };
        let lost = watch(&running, &asks, &mut own, |_| {}).expect_err("the worker is lost");
        assert!(matches!(lost, Fault::Environment { .. }), "{lost:?}");
        running.stop(Duration::ZERO);
    }
}
