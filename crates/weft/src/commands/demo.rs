//! `weft demo`: runs the example application behind a network, and changes the network while it runs.
//!
//! The client and the servers of the application are separate programs that know nothing of Weft.

use super::apply::summary;
use super::run::{Headline, LOOK_EVERY, Started, fail_if_unhealthy, headline, start};
use crate::cli::DemoArgs;
use crate::fault::Fault;
use crate::log::{Level, Log};
use crate::machine::check_files;
use crate::running::{Refusal, Running};
use crate::signals::{self};
use crate::source;
use crate::status_table::{Measured, StatusTable, short_time};
use crate::stdout;
use crate::watch::Watch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use weft_control::show::{count, grouped};
use weft_lang::hir::{Address, Network, SinkTarget};

/// The first program, and the one that replaces it.
const FIRST: &str = "network.weft";
const SECOND: &str = "network2.weft";
/// The latest time of the change, in seconds; it falls between two updates of the live table.
const CHANGE_AFTER_MAX_S: f64 = 8.0;
/// Servers that do not listen by then have failed.
const SERVER_START_MAX: Duration = Duration::from_secs(10);
/// The time that the front end gets to end after its calls.
const FRONTEND_END_MAX: Duration = Duration::from_secs(15);

/// Runs `weft demo`. Fails if a call is lost or wrongly answered.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Fault> {
    let stop = signals::stop_requests()?;
    let folder = example_folder(args)?;
    let first = folder.join(FIRST).display().to_string();
    // The servers must listen before the network sends them calls; `start` reports errors of the program.
    let checked = check_files(&first, &mut source::on_disk());
    let own_logs = checked.network().map(absent_logs).unwrap_or_default();
    let clusters = checked.accepted.map(|accepted| accepted.network.clusters).unwrap_or_default();
    let mut children = Children::default();
    for (at, endpoint) in clusters.iter().flat_map(|c| &c.endpoints).enumerate() {
        children.start_server(endpoint, &format!("cart-{}", at + 1))?;
    }
    // The demo prints these events itself.
    let log = Log::new(args.node.log, args.node.log_level.min(Level::Warn));
    let Started { running, admin, network } = start(&first, &args.node, log)?;
    let table = StatusTable::new(running.log().clone());
    let Headline { node, parts } = headline(&first, &running, &admin, &network);
    table.print(&format!("{node}\n  {}\n", parts.join("\n  ")));
    let target = running.listeners().first().map(|p| p.address.clone()).unwrap_or_default();
    let seconds = if args.forever { f64::from(u32::MAX) } else { args.seconds };
    let reports = children.start_frontend(&target, args.in_flight, seconds)?;
    let mut demo =
        Demo { table, watch: Watch::default(), running, measured: None, final_report: None, change_at: None };
    let until_change =
        Duration::try_from_secs_f64((seconds * 0.4).min(CHANGE_AFTER_MAX_S)).unwrap_or_default();
    demo.change_at = Some((Instant::now() + until_change, folder.join(SECOND)));
    let ended = demo.watch(&stop, &reports);
    children.end_frontend(FRONTEND_END_MAX);
    demo.drain(&reports);
    demo.running.stop(Duration::from_secs(5));
    drop(admin);
    let removed = remove_logs(&own_logs);
    ended?;
    demo.summarize()?;
    removed.iter().for_each(|line| demo.table.print(line));
    Ok(())
}

/// The log files that the demo will create in the system's folder for temporary files. An existing file belongs to
/// another program.
fn absent_logs(network: &Network) -> Vec<String> {
    let sinks = network.chains.iter().flat_map(|c| &c.instances).flat_map(|i| &i.sinks);
    let paths = sinks.filter_map(|sink| match sink {
        SinkTarget::File(path) => Some(path.clone()),
        SinkTarget::Stdout | SinkTarget::Metrics | SinkTarget::Table { .. } => None,
    });
    let is_own = |path: &String| {
        let path = Path::new(path);
        path.starts_with(std::env::temp_dir()) && std::fs::symlink_metadata(path).is_err()
    };
    paths.filter(is_own).collect()
}

/// Removes the files that the demo has created.
fn remove_logs(paths: &[String]) -> Vec<String> {
    let remove = |path: &String| {
        let bytes = std::fs::metadata(path).ok()?.len();
        std::fs::remove_file(path).ok()?;
        Some(format!("      the log had {:.1} MB; {path} is removed", bytes as f64 / 1e6))
    };
    paths.iter().filter_map(remove).collect()
}

struct Demo {
    table: StatusTable,
    watch: Watch,
    running: Running,
    measured: Option<Measured>,
    final_report: Option<Value>,
    change_at: Option<(Instant, PathBuf)>,
}

impl Demo {
    /// Waits until the front end has ended, or a stop request.
    fn watch(&mut self, stop: &Receiver<()>, reports: &Receiver<Value>) -> Result<(), Fault> {
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(LOOK_EVERY) {
            loop {
                match reports.try_recv() {
                    Ok(report) => self.store_report(report),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            if let Some((_, path)) = self.change_at.take_if(|(at, _)| *at <= Instant::now()) {
                self.change(&path)?;
            }
            fail_if_unhealthy(&self.running)?;
            self.watch.look(&self.running, Instant::now());
            self.table.tick(&self.running, self.measured);
        }
        Ok(())
    }

    fn drain(&mut self, reports: &Receiver<Value>) {
        while let Ok(report) = reports.recv_timeout(LOOK_EVERY) {
            self.store_report(report);
        }
    }

    /// Stores a report of the front end for the live table, and the final one for the summary.
    fn store_report(&mut self, report: Value) {
        let number = |name: &str| report[name].as_f64().unwrap_or_default();
        self.measured = Some(Measured { p50_us: number("p50_us"), p99_us: number("p99_us") });
        if report["final"] == Value::Bool(true) {
            self.final_report = Some(report);
        }
    }

    /// Applies the second program while calls are in flight.
    fn change(&mut self, path: &Path) -> Result<(), Fault> {
        let path = path.display().to_string();
        let mut files = source::on_disk();
        let checked = check_files(&path, &mut files);
        drop(checked);
        match self.running.apply(files.into_bundle(&path), false, "the demo") {
            Ok(applied) => {
                let text =
                    format!("{}  apply {path}: {}\n", self.table.clock(), summary(&applied, "       "));
                self.table.print(&text);
                Ok(())
            }
            Err(Refusal::Refused(refused)) => {
                self.table.print(&refused.text);
                Err(Fault::reported(refused.at_fault))
            }
            Err(Refusal::Stopping) => Ok(()),
        }
    }

    /// Prints the outcome of all calls. Fails unless each call had an answer, and each answer was right.
    fn summarize(&mut self) -> Result<(), Fault> {
        let Some(report) = &self.final_report else {
            return Err(Fault::environment("the front end ended without its summary"));
        };
        let outcome = Outcome::of(report);
        stdout::print(&format!("{}\n", outcome.summary_text()))?;
        outcome.verdict()
    }
}

/// The front end's counts over the whole run.
struct Outcome {
    sent: u64,
    answered: u64,
    /// Answers that the front end compared with its requests, and the number of wrong ones.
    checked: u64,
    wrong: u64,
    by_status: Vec<(String, u64)>,
    p50_us: f64,
    p99_us: f64,
}

impl Outcome {
    /// Reads the figures of the front end's final report.
    fn of(report: &Value) -> Self {
        let number = |name: &str| report[name].as_u64().unwrap_or_default();
        let by_status = report["by_status"].as_object().into_iter().flatten();
        Self {
            sent: number("sent"),
            answered: number("answered"),
            checked: number("checked"),
            wrong: number("wrong"),
            by_status: by_status.map(|(name, n)| (name.clone(), n.as_u64().unwrap_or_default())).collect(),
            p50_us: report["p50_us"].as_f64().unwrap_or_default(),
            p99_us: report["p99_us"].as_f64().unwrap_or_default(),
        }
    }

    fn lost(&self) -> u64 {
        self.sent.abs_diff(self.answered)
    }

    /// The demo's last lines: calls sent, answered, lost and compared.
    fn summary_text(&self) -> String {
        let by_status: Vec<_> =
            self.by_status.iter().map(|(name, n)| format!("{name} {}", grouped(*n))).collect();
        format!(
            "done: {} sent, {} answered, {} lost; {} compared with what was asked, {} wrong\n      {}; p50 {}, p99 {}",
            count(self.sent, "call"),
            grouped(self.answered),
            grouped(self.lost()),
            count(self.checked, "answer"),
            grouped(self.wrong),
            by_status.join(", "),
            short_time(self.p50_us),
            short_time(self.p99_us),
        )
    }

    /// A fault if calls were lost, or answers wrong or not compared.
    fn verdict(&self) -> Result<(), Fault> {
        if self.lost() > 0 {
            return Err(Fault::environment(format!("{} lost", count(self.lost(), "call"))));
        }
        let unchecked = self.answered.abs_diff(self.checked);
        if self.wrong > 0 || unchecked > 0 {
            let wrong = count(self.wrong, "wrong answer");
            return Err(Fault::environment(format!("{wrong}, {} not compared", count(unchecked, "answer"))));
        }
        Ok(())
    }
}

/// The application's processes; dropping this value ends them.
#[derive(Default)]
struct Children {
    servers: Vec<Child>,
    frontend: Option<Child>,
}

impl Children {
    /// Starts a server for the endpoint and waits until it listens. Fails if the address is in use.
    fn start_server(&mut self, endpoint: &Address, name: &str) -> Result<(), Fault> {
        let listen = match endpoint {
            Address::Tcp(address) => address.clone(),
            Address::Unix(path) => format!("unix:{path}"),
        };
        if let Address::Tcp(address) = endpoint
            && TcpStream::connect(address).is_ok()
        {
            return Err(Fault::environment(format!(
                "the demo's server cannot listen on {address}: it is in use"
            ))
            .with_help("is another demo running?"));
        }
        let mut command = program("shop-cart")?;
        command.args(["--listen", &listen, "--name", name]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| Fault::environment(format!("cannot start shop-cart: {error}")))?;
        self.servers.push(child);
        self.await_server(endpoint, &listen)
    }

    /// Waits until the endpoint accepts a connection, at most [`SERVER_START_MAX`].
    fn await_server(&mut self, endpoint: &Address, listen: &str) -> Result<(), Fault> {
        let until = Instant::now() + SERVER_START_MAX;
        loop {
            let is_up = match endpoint {
                Address::Tcp(address) => TcpStream::connect(address).is_ok(),
                Address::Unix(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
            };
            if is_up {
                return Ok(());
            }
            let child = self.servers.last_mut().expect("it was just started");
            let has_ended = child.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || Instant::now() > until {
                return Err(Fault::environment(format!("shop-cart does not listen on {listen}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the front end; its reports come line by line.
    fn start_frontend(
        &mut self,
        target: &str,
        in_flight: u32,
        seconds: f64,
    ) -> Result<Receiver<Value>, Fault> {
        let target = match target.strip_prefix("unix:") {
            Some(_) => target.to_owned(),
            None => format!("http://{target}"),
        };
        let mut command = program("shop-frontend")?;
        command
            .args([
                "--target",
                &target,
                "--in-flight",
                &in_flight.to_string(),
                "--duration",
                &seconds.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Fault::environment(format!("cannot start shop-frontend: {error}")))?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        self.frontend = Some(child);
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for report in lines.map_while(Result::ok).filter_map(|l| serde_json::from_str(&l).ok()) {
                if send.send(report).is_err() {
                    return;
                }
            }
        });
        Ok(receive)
    }

    /// Lets the front end finish its calls; kills it after a time.
    fn end_frontend(&mut self, within: Duration) {
        let Some(child) = &mut self.frontend else { return };
        terminate(child);
        let until = Instant::now() + within;
        while Instant::now() < until && child.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.frontend.iter_mut().chain(&mut self.servers) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Terminates a process with the signal of Ctrl-C. It may have ended already.
fn terminate(child: &Child) {
    let _ = kill_process(Pid::from_child(child), Signal::INT);
}

/// A program of the example, which is built beside this one.
fn program(name: &str) -> Result<Command, Fault> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(name)));
    match beside.filter(|path| path.exists()) {
        Some(path) => Ok(Command::new(path)),
        None => Err(Fault::environment(format!("the example's program `{name}` is not beside this one"))
            .with_help("build it: `make demo`, or `cargo build --release -p shop`")),
    }
}

/// The folder of the example: as given, in the working directory, or near the executable.
fn example_folder(args: &DemoArgs) -> Result<PathBuf, Fault> {
    let near = || {
        let exe = std::env::current_exe().ok()?;
        exe.ancestors().map(|a| a.join("examples/shop")).find(|f| f.join(FIRST).exists())
    };
    let here = Path::new("examples/shop");
    let found = match &args.example {
        Some(folder) => Some(folder.clone()).filter(|f| f.join(FIRST).exists()),
        None if here.join(FIRST).exists() => Some(here.to_owned()),
        None => near(),
    };
    found.ok_or_else(|| {
        Fault::environment(format!("there is no example with a {FIRST}"))
            .with_help("run the demo in Weft's own folder, or say where the example is with --example FOLDER")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weft_api::Bundle;
    use weft_control::files::Files;

    /// The demo would delete an old log file of the user's own example.
    #[test]
    fn demo_keeps_log_files_of_others() {
        let path = |name: &str| {
            let name = format!("weft-demo-{}-{name}", std::process::id());
            std::env::temp_dir().join(name).display().to_string()
        };
        let (kept, made) = (path("kept"), path("made"));
        std::fs::write(&kept, "long\n").expect("the temporary folder takes files");
        let text = format!(
            "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT note (path TEXT) ON rpc AS
  SINK calls (status STATUS) TO FILE path;
  ON CLOSE INSERT INTO calls VALUES (status);
END;
CREATE CHAIN shop ON front -> cart AS
  note (path = '{kept}') AS a -> note (path = '{made}') AS b -> note (path = '/var/log/weft.json') AS c;
END;
"
        );
        let bundle = Bundle {
            root: "a.weft".to_owned(),
            files: [("a.weft".to_owned(), text)].into(),
            ..Bundle::default()
        };
        let checked = check_files("a.weft", &mut Files::in_bundle(&bundle));
        let weft_control::check::Accepted { network, .. } =
            checked.accepted.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
        let own = absent_logs(&network);
        assert_eq!(own, std::slice::from_ref(&made));
        std::fs::write(&made, "new\n").expect("the temporary folder takes files");
        assert_eq!(remove_logs(&own).len(), 1);
        assert!(Path::new(&kept).exists() && !Path::new(&made).exists());
        std::fs::remove_file(&kept).expect("it is ours");
    }

    /// A demo that succeeds with a lost, a wrong or an unread answer would show nothing.
    #[test]
    fn demo_fails_on_any_bad_answer() {
        let report = |answered: u64, checked: u64, wrong: u64| {
            let by_status = json!({"OK": answered});
            Outcome::of(&json!({"sent": 9, "answered": answered, "checked": checked, "wrong": wrong,
                                "by_status": by_status, "p50_us": 1500, "p99_us": 2500}))
        };
        let good = report(9, 9, 0);
        assert!(good.verdict().is_ok());
        let summary_text = good.summary_text();
        assert!(
            summary_text.contains("9 calls sent, 9 answered, 0 lost; 9 answers compared"),
            "{summary_text}"
        );
        assert!(summary_text.ends_with("OK 9; p50 1.5 ms, p99 2.5 ms"), "{summary_text}");
        for bad in [report(8, 8, 0), report(9, 8, 0), report(9, 9, 1)] {
            assert!(bad.verdict().is_err());
        }
    }
}
