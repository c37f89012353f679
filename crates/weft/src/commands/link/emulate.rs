//! `weft link emulate`: runs a command behind an emulated link.

use super::namespaces::{EndAddresses, Namespaces};
use super::report::{FarEnd, Report};
use super::spec::{self, DOWN, INSIDE, LinkDirection, OUTSIDE, UP};
use crate::cli::{BackendName, EmulateArgs};
use crate::fault::Fault;
use crate::machine::Machine;
use crate::recording_file;
use crate::running::{backend, node_fault};
use crate::signals::{self, forward, forward_to_group};
use crate::stderr;
use crate::stdout;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use weft_control::check::Accepted;
use weft_control::compile::Compiler;
use weft_control::recording;
use weft_control::recording::LinkSetup;
use weft_core::Interval;
use weft_core::hash::HashKey;
use weft_engine::Config;
use weft_engine::packet::plan::PacketPlan;
use weft_io::descriptors::Descriptors;
use weft_io::packet::port::OpenPort;
use weft_io::{BUSY_POLL_MAX, Node, NodeConfig, Ports};
use weft_lang::source::SourceMap;

/// Environment variables with the addresses of the world, for the command.
const WORLD: &str = "WEFT_WORLD";
const WORLD_V6: &str = "WEFT_WORLD6";
/// The interval between looks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs `weft link emulate`: starts the command in its namespace, and ends with its exit status.
pub(crate) fn run(args: &EmulateArgs) -> Result<(), Fault> {
    let (up, down) = LinkDirection::both(args)?;
    let (accepted, sources, program) = spec::program(&up, &down)?;
    args.record.as_deref().map(recording_file::claim).transpose()?;
    let namespaces = Namespaces::make()?;
    let asked = signals::forwarded_signals()?;
    let (ports, ends) = namespaces.open([INSIDE, OUTSIDE])?;
    let mut node = start((accepted, &sources), ports, &up, &down, args)?;
    print_addresses(&namespaces, ends, &up, &down);
    let begun = Instant::now();
    let mut far = args.far.as_deref().map(FarProcess::start).transpose()?;
    let guard = namespaces.inside.run(Guard::start).map_err(Fault::environment)??;
    let status = namespaces.inside.run(|| spawn(&args.command, ends)).map_err(Fault::environment)?;
    let status = status.and_then(|child| wait(child, far.as_mut(), &asked, &mut node))?;
    let took = begun.elapsed();
    let far_end = far.as_ref().and_then(|far| far.ended);
    drop(far);
    drop(guard);
    let stats = node.stats().map_err(|error| node_fault(&error))?;
    if let Some(file) = &args.record {
        let mut text = String::new();
        for (name, direction) in [(UP, &up), (DOWN, &down)] {
            let recorder = node.take_recording(name).map_err(|error| node_fault(&error))?;
            let recorder = recorder.expect("its plan has it recorded");
            let ran = LinkSetup {
                link: name,
                rate: direction.bits_per_s(),
                calls: None,
                program: &program,
                queue: None,
            };
            text.push_str(&recording::text(&ran, &recorder));
        }
        recording_file::write(file, &text)?;
    }
    node.stop(Duration::ZERO);
    let packets = stats.packets.unwrap_or_default();
    let report = Report { up: &up, down: &down, packets: &packets, took, status, far: far_end };
    if args.json {
        stdout::print(&format!("{}\n", report.data()))?;
    } else {
        stderr::print(&report.text());
    }
    match status_of(status) {
        0 => Ok(()),
        status => Err(Fault::ChildStatus(status)),
    }
}

/// Starts to forward packets in both directions.
fn start(
    (accepted, sources): (Accepted, &SourceMap),
    ports: [OpenPort; 2],
    up: &LinkDirection,
    down: &LinkDirection,
    args: &EmulateArgs,
) -> Result<Node, Fault> {
    let hash = HashKey::from_seed(args.seed);
    let compiler = Compiler::new(backend(BackendName::Jit)?, Box::new(Machine), 1, hash);
    let compiled = compiler.compile(&accepted.network, accepted.lowered, &[]).map_err(|diagnostics| {
        stderr::diagnostics(&diagnostics, sources);
        Fault::Reported
    })?;
    let packets = compiled.packets.expect("the program has ports");
    let mut links = packets.links.clone();
    for (name, path) in spec::paths(up, down) {
        let link = links.iter_mut().find(|link| link.name == name).expect("the program has both links");
        link.path = Some(path);
        link.is_recorded = args.record.is_some();
    }
    let PacketPlan { version, ports: names, chains, .. } = &*packets;
    let (version, chains) = (*version, chains.clone());
    let plan = PacketPlan { version, ports: names.clone(), chains, links, ..PacketPlan::default() };
    let config = NodeConfig {
        workers: 1,
        busy_poll: Interval(BUSY_POLL_MAX.0),
        coalesce: Interval::ZERO,
        engine: Config { seed: args.seed, ..Config::default() },
        descriptors: Descriptors::of_limit(None),
        tables: None,
        names: Arc::default(),
    };
    let ports = Ports { plan: Arc::new(plan), open: ports.into(), first: 0 };
    Node::start(&config, &compiled.plan, Some(ports)).map_err(|error| node_fault(&error))
}

/// Prints the addresses of both ends and the setting of each direction.
fn print_addresses(namespaces: &Namespaces, ends: EndAddresses, up: &LinkDirection, down: &LinkDirection) {
    let there = if namespaces.is_own { " (a namespace, as you are not root: see --far)" } else { "" };
    let [outside, inside] =
        ends.v6.map_or([String::new(), String::new()], |v6| v6.map(|address| format!(" and {address}")));
    let EndAddresses { outside: world, inside: command, .. } = ends;
    stderr::line(format_args!(
        "link: the world is {world}{outside}{there}, the command is {command}{inside}"
    ));
    stderr::line(format_args!("  up    {}\n  down  {}", up.summary(), down.summary()));
}

/// Starts the command in the current network namespace.
fn spawn(command: &[OsString], ends: EndAddresses) -> Result<Child, Fault> {
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments),
        None => (shell(), &[][..]),
    };
    let mut command = Command::new(&program);
    command.args(arguments).env(WORLD, ends.outside.to_string());
    if let Some([outside, _]) = ends.v6 {
        command.env(WORLD_V6, outside.to_string());
    }
    let child = command.spawn();
    child.map_err(|error| Fault::Input(format!("{}: {error}", program.display())))
}

/// Waits for the command, and forwards our signals to it. Also watches the process at the far end.
fn wait(
    mut child: Child,
    mut far: Option<&mut FarProcess>,
    asked: &Receiver<Signal>,
    node: &mut Node,
) -> Result<ExitStatus, Fault> {
    loop {
        // The far end first: if both have ended since the last look, it ended on its own.
        if let Some(far) = &mut far {
            far.poll_exit();
        }
        if let Some(status) = child.try_wait().map_err(Fault::environment)? {
            return Ok(status);
        }
        if let Ok(signal) = asked.recv_timeout(LOOK_EVERY) {
            forward(&child, signal);
        }
        if !node.is_alive() {
            forward(&child, Signal::TERM);
            let why = node.take_port_error().map_or("the link has failed".to_owned(), |why| why.to_string());
            return Err(Fault::environment(why));
        }
    }
}

/// The exit status as shells give it: 128 plus the signal, if one ended the process.
fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Ends all processes behind the link when this value is dropped, and also if this process is killed. Includes
/// processes that the command left behind.
struct Guard(Child);

impl Guard {
    /// Waits for the end of its input, which comes when this process is gone for any reason. Then terminates all
    /// processes in the network namespace, and kills those that are left after a second. It finds them by the namespace
    /// alone: they may be in groups and sessions of their own.
    const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM
read -r _
end() {
    found=1
    for net in /proc/[0-9]*/ns/net; do
        pid=${net#/proc/}; pid=${pid%%/*}
        if [ "$pid" != $$ ] && [ "$net" -ef /proc/$$/ns/net ]; then kill -s "$1" "$pid" && found=0; fi
    done 2>/dev/null
    return $found
}
for _ in 1 2 3 4 5 6 7 8 9 10; do
    end TERM || exit 0
    end CONT
    sleep 0.1
done
end KILL"#;

    /// Starts the guard in the current network namespace.
    fn start() -> Result<Self, Fault> {
        let mut shell = Command::new("sh");
        shell.args(["-c", Self::SCRIPT]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self).map_err(|error| Fault::environment(format!("sh: {error}")))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It cannot fail: it is our child, and has not been waited for.
        let _ = self.0.wait();
    }
}

/// The process at the far end; dropping this value ends it.
struct FarProcess {
    shell: Child,
    begun: Instant,
    /// How and when it ended on its own, if it did.
    ended: Option<FarEnd>,
}

impl FarProcess {
    /// Runs `$0`, and ends it with all processes that it has started, at the end of the input: that comes when this
    /// process is gone for any reason.
    const SCRIPT: &str = r#"exec 3<&0 </dev/null
{ read -r _ <&3; kill -s KILL 0; } &
exec 3<&-
exec sh -c "$0""#;

    fn start(command: &str) -> Result<Self, Fault> {
        let mut shell = Command::new("sh");
        shell.args(["-c", Self::SCRIPT, command]).stdin(Stdio::piped()).process_group(0);
        let shell = shell.spawn().map_err(|error| Fault::environment(format!("sh: {error}")))?;
        Ok(Self { shell, begun: Instant::now(), ended: None })
    }

    /// Notes whether it has ended. Leaves it as a zombie, so that its group keeps its number.
    fn poll_exit(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if self.ended.is_none()
            && let Ok(Some(found)) = waitid(WaitId::Pid(Pid::from_child(&self.shell)), options)
        {
            let (code, signal) = (found.exit_status(), found.terminating_signal());
            self.ended = Some(FarEnd { code, signal, after: self.begun.elapsed() });
        }
    }
}

impl Drop for FarProcess {
    fn drop(&mut self) {
        forward_to_group(&self.shell, Signal::TERM);
        // It cannot fail: it is our child, and has not been waited for.
        let _ = self.shell.wait();
    }
}
