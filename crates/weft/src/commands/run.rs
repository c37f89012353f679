//! `weft run`

use crate::admin::{self, Access, Admin};
use crate::cli::{NodeArgs, RunArgs, When};
use crate::compile::{at_fault, check_files};
use crate::fault::Fault;
use crate::live::Live;
use crate::open_files;
use crate::running::{Health, Running, Start, device_of, gone};
use crate::signals;
use crate::source::{Files, require};
use crate::stderr;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use weft_io::descriptors::Descriptors;
use weft_lang::hir::{Chain, Network};

/// How often a running command looks around.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it looks whether devices are there.
const DEVICES_EVERY: Duration = Duration::from_millis(500);

/// How often it is told at most that connections are refused for want of descriptors.
const DESCRIPTORS_EVERY: Duration = Duration::from_secs(10);

/// A network that runs, with its admin endpoint.
pub(super) struct Started {
    pub(super) running: Running,
    pub(super) admin: Admin,
    pub(super) network: Network,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Fault> {
    let stop = signals::stop_requests()?;
    let Started { running, admin, network } = start(&args.file, &args.node)?;
    let mut live = Live::new();
    live.say(&headline(&args.file, &running, &admin, &network));
    running.remarks().iter().for_each(|line| live.say(line));
    let shows_table = match args.node.table {
        When::Auto => std::io::stderr().is_terminal(),
        When::Always => true,
        When::Never => false,
    };
    let (mut devices, mut descriptors) = (Devices::default(), OutOfDescriptors::default());
    devices.look_at_mtus(&running).iter().for_each(|line| live.say(line));
    let watched = watch(&running, &stop, |running| {
        devices.look(running).iter().for_each(|line| live.say(line));
        descriptors
            .look(running.n_out_of_descriptors(), Instant::now())
            .iter()
            .for_each(|line| live.say(line));
        if shows_table {
            live.tick(running, None);
        }
    });
    if let Err(lost) = watched {
        // What the other workers have may end; nothing new is taken.
        running.stop(grace(args));
        return Err(lost);
    }
    let open = running.stats().map_or(0, |s| s.stats.calls_open);
    live.say(&format!(
        "stopping: {} under way, at most {:.0} s; once more to stop at once",
        super::count(open, "call"),
        args.grace
    ));
    let ended = running.status();
    let stopped = running.stop(grace(args));
    drop(admin);
    if let Some(status) = ended {
        let carried = status.packets.map_or(String::new(), |packets| {
            let received = packets.ports.iter().map(|port| port.received).sum();
            format!("{} received, ", super::count(received, "packet"))
        });
        live.say(&format!(
            "stopped: {carried}{} begun, version {}",
            super::count(status.calls.begun, "call"),
            status.version
        ));
    }
    if stopped.calls_cut > 0 {
        live.say(&cut(stopped.calls_cut as u64, args.grace));
    }
    if stopped.is_clean { Ok(()) } else { Err(Fault::environment("a worker did not end well")) }
}

/// Devices that are gone or have outgrown their buffers, as far as that was told.
#[derive(Default)]
struct Devices {
    next: Option<Instant>,
    gone: BTreeMap<String, String>,
    outgrown: BTreeMap<String, String>,
}

impl Devices {
    /// What is to be told of devices that have gone or come back since.
    fn look(&mut self, running: &Running) -> Vec<String> {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) || running.ports().is_empty() {
            return Vec::new();
        }
        self.next = Some(now + DEVICES_EVERY);
        let packets = running.stats().and_then(|stats| stats.packets).unwrap_or_default();
        let mut told = Vec::new();
        for port in &packets.ports {
            let name = &port.config.name;
            match gone(port) {
                Some(why) if self.gone.get(name) != Some(&why) => {
                    told.push(format!("port `{name}`: {why}"));
                    self.gone.insert(name.clone(), why);
                }
                None if self.gone.remove(name).is_some() => {
                    told.push(format!("port `{name}`: `{}` is back", port.config.device));
                }
                _ => {}
            }
        }
        told.extend(self.look_at_mtus(running));
        told
    }

    /// What is to be told of devices whose MTU is longer since than their buffers hold.
    fn look_at_mtus(&mut self, running: &Running) -> Vec<String> {
        let outgrown = running.outgrown();
        let is_new = |(port, _): &(&String, &String)| !self.outgrown.contains_key(*port);
        let told =
            outgrown.iter().filter(is_new).map(|(port, why)| format!("port `{port}`: {why}")).collect();
        self.outgrown = outgrown;
        told
    }
}

/// Connections that were refused for want of a descriptor, as far as that was told.
#[derive(Default)]
struct OutOfDescriptors {
    told: u64,
    next: Option<Instant>,
}

impl OutOfDescriptors {
    /// What is to be told, of so many that were refused until now.
    fn look(&mut self, n_refused: u64, now: Instant) -> Option<String> {
        let n_new = n_refused.saturating_sub(self.told);
        if n_new == 0 || self.next.is_some_and(|next| now < next) {
            return None;
        }
        (self.told, self.next) = (n_refused, Some(now + DESCRIPTORS_EVERY));
        let limit = open_files::limit().unwrap_or(u64::MAX);
        Some(format!(
            "{} refused: the process has no more file descriptors for calls ({} at most, {} of them kept for the \
             admin endpoint and files); raise the limit with `ulimit -n` or LimitNOFILE=",
            super::count(n_new, "connection"),
            super::grouped(limit),
            super::grouped(Descriptors::reserved(limit)),
        ))
    }
}

/// That calls have got no more time than they were promised is no failure, but is not kept silent.
fn cut(calls: u64, grace_s: f64) -> String {
    let were = if calls == 1 { "was" } else { "were" };
    format!("{} {were} cut after {grace_s:.0} s, with UNAVAILABLE", super::count(calls, "call"))
}

/// Until somebody asks to stop. An error, as soon as a worker is lost.
fn watch(running: &Running, stop: &Receiver<()>, mut look: impl FnMut(&Running)) -> Result<(), Fault> {
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(LOOK_EVERY) {
        must_be_well(running)?;
        look(running);
    }
    Ok(())
}

/// A node without one of its workers serves a part of its connections at best: it is better started anew.
pub(super) fn must_be_well(running: &Running) -> Result<(), Fault> {
    match running.health() {
        Health::Serving | Health::Stopping => Ok(()),
        Health::WorkerLost => Err(match running.take_port_error() {
            Some(error) => Fault::environment(format!("{error}; the node stops"))
                .with_help("see to the device (`ip link`), and run the node again"),
            None => {
                Fault::environment("a worker has ended, which none does unless it is told to; the node stops")
            }
        }),
    }
}

fn grace(args: &RunArgs) -> Duration {
    Duration::try_from_secs_f64(args.grace).unwrap_or_default()
}

/// Checks a program and starts it; says what is wrong with it otherwise.
pub(super) fn start(file: &str, args: &NodeArgs) -> Result<Started, Fault> {
    admin::permit(args.admin, args.admin_anywhere)?;
    require(file)?;
    let mut files = Files::on_disk();
    let checked = check_files(file, &mut files);
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(network) = checked.network else { return Err(Fault::told(checked.at_fault)) };
    open_files::raise_limit();
    let socket = admin::bind(args.admin)?;
    let program = files.into_bundle(file);
    let running = Running::start(&network, &checked.sources, program, args).map_err(|start| match start {
        Start::Fault(fault) => fault,
        Start::Diagnostics(diagnostics) => {
            stderr::diagnostics(&diagnostics, &checked.sources);
            Fault::told(at_fault(&diagnostics))
        }
    })?;
    let access = Access { private_metrics: args.private_metrics };
    let admin = Admin::start(socket, running.clone(), access)?;
    Ok(Started { running, admin, network })
}

/// What runs, in a line or two.
pub(super) fn headline(file: &str, running: &Running, admin: &Admin, network: &Network) -> String {
    let mut places: Vec<_> =
        running.listeners().iter().map(|p| format!("{} on {}", p.name, p.address)).collect();
    places.extend(running.ports().iter().map(|port| format!("{} on {}", port.name, device_of(port))));
    let mut line = format!(
        "weft {}  {file}: {}   version 1   admin http://{}",
        env!("CARGO_PKG_VERSION"),
        places.join(", "),
        admin.address()
    );
    for chain in &network.chains {
        let (from, to) = network.ends(chain);
        let members = match chain.edge.calls() {
            Some((_, to)) => format!(" x{}", network.clusters[to].endpoints.len()),
            None => String::new(),
        };
        let edge = if to.is_empty() { from } else { format!("{from} -> {to}{members}") };
        let ways = ways_of(network, chain).join("; ");
        line.push_str(&format!("\n  {}: {edge}   {ways}", chain.name));
    }
    if network.chains.is_empty() {
        line.push_str("\n  nothing runs: the program has no chain; `weft apply FILE` gives the node another");
    }
    line
}

/// The stages of a chain in their order, and those of each branch.
fn ways_of(network: &Network, chain: &Chain) -> Vec<String> {
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
    use crate::running::tests::{Rigged, await_loss};

    /// Whoever looks at the first line for what runs must not take a branch for the way of all.
    #[test]
    fn branches_are_told_apart_from_the_way_of_all() {
        let text = "IMPORT 'library/elements/syn_guard.weft'; IMPORT 'library/elements/monitor.weft';
CREATE PORT lan ON memory;
CREATE CHAIN out ON PORT lan -> lan AS
  syn_guard -> monitor;
  syn_guard.suspect -> monitor AS slow -> monitor AS slower;
END;";
        let files = [("n.weft".to_owned(), text.to_owned())].into();
        let bundle = weft_api::Bundle { root: "n.weft".to_owned(), files, ..weft_api::Bundle::default() };
        let checked = check_files(&bundle.root, &mut Files::in_bundle(&bundle));
        let network = checked.network.expect("it is a program");
        let ways = ways_of(&network, &network.chains[0]);
        assert_eq!(ways, ["syn_guard -> monitor", "syn_guard.suspect -> slow -> slower"]);
    }

    #[test]
    fn want_of_descriptors_is_told_seldom() {
        // An operator would see clients fail and no reason, or a log that the clients fill.
        let (mut descriptors, begun) = (OutOfDescriptors::default(), Instant::now());
        assert_eq!(descriptors.look(0, begun), None);
        let told = descriptors.look(2, begun).expect("it is told");
        assert!(told.starts_with("2 connections refused: ") && told.contains("descriptors"), "{told}");
        assert_eq!(descriptors.look(3, begun + DESCRIPTORS_EVERY / 2), None);
        let told = descriptors.look(900, begun + DESCRIPTORS_EVERY).expect("it is told again");
        assert!(told.starts_with("898 connections refused: "), "{told}");
        assert_eq!(descriptors.look(900, begun + 3 * DESCRIPTORS_EVERY), None);
    }

    /// A service manager restarts what ends; it can do nothing about a node that only looks as if it ran.
    #[test]
    fn a_lost_worker_ends_the_command() {
        let running = crate::running::tests::start(Rigged::Panics);
        await_loss(&running);
        let (_asks, stop) = std::sync::mpsc::channel();
        let lost = watch(&running, &stop, |_| {}).expect_err("the worker is lost");
        assert!(matches!(lost, Fault::Environment { .. }), "{lost:?}");
        running.stop(Duration::ZERO);
    }
}
