//! A gRPC hop: the cost of a call without a proxy, through Weft without a chain, and with the ADN paper's chain and two
//! filters.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::load::{LoadResult, USERS};
use super::process::{self, Running};
use super::progress;
use super::report::{Report, Row};

pub(super) const PLAIN: &str = include_str!("plain.weft");
pub(super) const ADN: &str = include_str!("adn.weft");
const FILTERS: &str = include_str!("filters.weft");
const PROTO: &str = include_str!("echo.proto");

/// Numbers of calls in flight.
const IN_FLIGHT: [u32; 2] = [128, 1];
const CASES: [&str; 4] = ["direct", "Weft", "Weft, ADN chain", "Weft, two filters"];

/// The number and the duration of measurements.
pub(super) struct Effort {
    pub(super) rounds: usize,
    pub(super) duration_ms: u32,
    pub(super) warm_up_ms: u32,
}

const FULL: Effort = Effort { rounds: 5, duration_ms: 3000, warm_up_ms: 500 };
const QUICK: Effort = Effort { rounds: 3, duration_ms: 800, warm_up_ms: 200 };

/// Runs all cases in turn, round by round, so that load on the machine affects all equally.
///
/// # Errors
/// A process could not be started, or an answer was wrong.
pub(super) fn run(quick: bool) -> Result<Report, String> {
    let effort = if quick { QUICK } else { FULL };
    let folder = Folder::new()?;
    let (server, address) = Running::with_line(&["bench-server", "--end-with-stdin"])?;
    let server_address: SocketAddr = address.parse().map_err(|_| format!("an address, not `{address}`"))?;
    let proxies = [
        Proxy::start(&folder, "plain.weft", PLAIN, server_address)?,
        Proxy::start(&folder, "adn.weft", ADN, server_address)?,
        Proxy::start(&folder, "filters.weft", FILTERS, server_address)?,
    ];
    let idle: Vec<Option<u64>> = proxies.iter().map(|proxy| proxy.process.resident_bytes()).collect();
    let mut rows = Vec::new();
    for in_flight in IN_FLIGHT {
        let mut runs: [Vec<Run>; CASES.len()] = Default::default();
        for round in 1..=effort.rounds {
            progress(&format!("{in_flight} in flight, round {round} of {}", effort.rounds));
            for (case, runs) in runs.iter_mut().enumerate() {
                let proxy = case.checked_sub(1).map(|at| &proxies[at]);
                runs.push(measure(&server, server_address, proxy, in_flight, &effort)?);
            }
        }
        rows.extend(rows_of(in_flight, &runs));
    }
    for (name, bytes) in CASES[1..].iter().zip(idle) {
        if let Some(bytes) = bytes {
            rows.push(Row::new(format!("{name}, idle"), "memory", "MB", &[bytes as f64 / 1e6]));
        }
    }
    Ok(Report { bench: "rpc", rows, notes: Vec::new(), failures: Vec::new() })
}

/// One run of one case.
struct Run {
    load: LoadResult,
    server_us_per_call: f64,
    /// CPU time of the proxy per call, and calls per system call of the proxy.
    proxy: Option<(f64, Option<f64>)>,
}

/// A measured `weft run`.
pub(super) struct Proxy {
    pub(super) process: Running,
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Proxy {
    /// Starts a node with this program, with free ports for its listener and admin endpoint.
    pub(super) fn start(folder: &Folder, file: &str, text: &str, server: SocketAddr) -> Result<Self, String> {
        let address = SocketAddr::from(([127, 0, 0, 1], process::free_port()?));
        let admin = SocketAddr::from(([127, 0, 0, 1], process::free_port()?));
        let rows: Vec<String> = (0..USERS).map(permission).collect();
        let text = text
            .replace("{listen}", &address.to_string())
            .replace("{server}", &server.to_string())
            .replace("{log}", &folder.0.join("access.log").display().to_string())
            .replace("{permissions}", &rows.join(", "));
        let path = folder.write(file, &text)?;
        let admin_text = admin.to_string();
        let args = ["run", &path, "--admin", &admin_text, "--table", "never"];
        Ok(Self { process: Running::listening(&args, address)?, address, admin })
    }

    /// The data plane's own count of its system calls.
    fn syscalls(&self) -> Option<f64> {
        let mut response = ureq::get(format!("http://{}/metrics", self.admin)).call().ok()?;
        let text = response.body_mut().read_to_string().ok()?;
        let counts = text.lines().filter(|line| line.starts_with("weft_syscalls_total"));
        counts.map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// One user in a hundred may not write.
fn permission(user: usize) -> String {
    format!("('u{user}', '{}')", if user == 7 { 'R' } else { 'W' })
}

/// Runs the load against the server, by way of a proxy if there is one. Returns the results with the proxy's CPU time
/// and system calls.
fn measure(
    server: &Running,
    server_address: SocketAddr,
    proxy: Option<&Proxy>,
    in_flight: u32,
    effort: &Effort,
) -> Result<Run, String> {
    let target = proxy.map_or(server_address, |proxy| proxy.address);
    let syscalls = proxy.and_then(Proxy::syscalls);
    let cpu = proxy.map(|proxy| proxy.process.cpu_s());
    let server_cpu = server.cpu_s();
    let load = call(target, in_flight, effort)?;
    let per_call = |seconds: f64| seconds * 1e6 / load.calls_all.max(1) as f64;
    let server_us_per_call = per_call(server.cpu_s() - server_cpu);
    let proxy = proxy.zip(cpu).map(|(proxy, before)| {
        let cpu = per_call(proxy.process.cpu_s() - before);
        let syscalls = proxy.syscalls().zip(syscalls).map(|(after, before)| after - before);
        (cpu, syscalls.map(|n| load.calls_all as f64 / n.max(1.0)))
    });
    Ok(Run { load, server_us_per_call, proxy })
}

/// Runs `weft bench-client` against the target. Fails if there were no calls, or wrong answers.
pub(super) fn call(target: SocketAddr, in_flight: u32, effort: &Effort) -> Result<LoadResult, String> {
    let (target, in_flight) = (target.to_string(), in_flight.to_string());
    let (duration, warm_up) = (effort.duration_ms.to_string(), effort.warm_up_ms.to_string());
    let mut args = vec!["bench-client", "--target", &target, "--in-flight", &in_flight];
    args.extend(["--duration-ms", &duration, "--warm-up-ms", &warm_up]);
    let text = process::output(&args)?;
    let load = LoadResult::from_json(&text).ok_or_else(|| format!("no result in `{text}`"))?;
    if load.wrong > 0 || load.calls == 0 {
        return Err(format!("of {} calls to {target}, {} had a wrong answer", load.calls, load.wrong));
    }
    Ok(load)
}

/// The rows of all cases at this number of calls in flight.
fn rows_of(in_flight: u32, cases: &[Vec<Run>; CASES.len()]) -> Vec<Row> {
    type Figure = (&'static str, &'static str, fn(&Run) -> Option<f64>);
    const FIGURES: [Figure; 9] = [
        ("rate", "calls/s", |run| Some(run.load.calls_per_s)),
        ("mean", "us", |run| Some(run.load.mean_us)),
        ("p50", "us", |run| Some(run.load.p50_us)),
        ("p99", "us", |run| Some(run.load.p99_us)),
        ("CPU", "us/call", |run| Some(run.proxy?.0)),
        ("calls/syscall", "", |run| run.proxy?.1),
        ("client CPU", "us/call", |run| Some(run.load.cpu_us_per_call)),
        ("server CPU", "us/call", |run| Some(run.server_us_per_call)),
        ("not OK", "%", |run| Some(100.0 * run.load.not_ok as f64 / run.load.calls as f64)),
    ];
    let mut rows = Vec::new();
    for (name, runs) in CASES.iter().zip(cases) {
        for (metric, unit, figure) in FIGURES {
            let Some(samples) = runs.iter().map(figure).collect::<Option<Vec<f64>>>() else { continue };
            let row = Row::new(format!("{name}, {in_flight} in flight"), metric, unit, &samples);
            let is_compared = *name != CASES[0] && matches!(metric, "rate" | "mean" | "p50" | "p99");
            let direct = cases[0].iter().map(figure).collect::<Option<Vec<f64>>>();
            rows.push(match direct.filter(|_| is_compared) {
                Some(direct) => row.against("direct", &samples, &direct),
                None => row,
            });
        }
    }
    rows
}

/// A folder for the network files and the access log, removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// Creates the folder of this process, with the schema in it.
    pub(super) fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("weft-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| fault_at(&path, &error))?;
        let folder = Self(path);
        folder.write("echo.proto", PROTO)?;
        Ok(folder)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|error| fault_at(&path, &error))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fault_at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
