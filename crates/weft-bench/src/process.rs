//! Child processes of this binary, and the resource usage of processes.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time that a child has until it answers.
const START_MAX: Duration = Duration::from_secs(10);
/// The time that a child has to end after a request, before it is killed.
const END_MAX: Duration = Duration::from_secs(2);

/// A child process; dropping this value ends it.
pub(super) struct Running {
    child: Child,
}

impl Running {
    /// Starts `weft` with these arguments and waits for its first line of output.
    pub(super) fn with_line(args: &[&str]) -> Result<(Self, String), String> {
        let mut child = weft(args)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start `weft {}`: {error}", args.join(" ")))?;
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        let running = Self { child };
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            return Err(format!("`weft {}` ended before it began to listen", args.join(" ")));
        }
        Ok((running, line.trim_end().to_owned()))
    }

    /// Starts `weft` with these arguments and waits until it listens on `address`.
    pub(super) fn listening(args: &[&str], address: SocketAddr) -> Result<Self, String> {
        // The node's messages matter only if it ends; they fit into a pipe's buffer.
        let child = weft(args)?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start `weft {}`: {error}", args.join(" ")))?;
        let mut running = Self { child };
        let end = Instant::now() + START_MAX;
        while Instant::now() < end {
            if let Ok(Some(status)) = running.child.try_wait() {
                let mut errors = String::new();
                let _ = running.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut errors));
                return Err(format!(
                    "`weft {}` ended at its start: {status}: {}",
                    args.join(" "),
                    errors.trim()
                ));
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(running);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("`weft {}` does not listen on {address}", args.join(" ")))
    }

    /// CPU time of the process and its threads so far, in seconds.
    pub(super) fn cpu_s(&self) -> f64 {
        cpu_s(&self.child.id().to_string())
    }

    /// Resident memory, in bytes.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Closing its standard input ends the echo server; other children are killed.
        drop(self.child.stdin.take());
        let end = Instant::now() + if self.child.stdout.is_none() { Duration::ZERO } else { END_MAX };
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `weft` with these arguments to its end, and returns its output.
pub(super) fn output(args: &[&str]) -> Result<String, String> {
    let output = weft(args)?
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start `weft {}`: {error}", args.join(" ")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("`weft {}` failed: {}", args.join(" "), errors.trim()))
}

/// CPU time of this process so far, in seconds.
pub(super) fn own_cpu_s() -> f64 {
    cpu_s("self")
}

/// A port of the loopback that was free a moment ago.
pub(super) fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| format!("no free port on 127.0.0.1: {error}"))
}

/// Checks that instructions can be counted.
///
/// # Errors
/// Valgrind is missing.
pub(super) fn can_count() -> Result<(), String> {
    let is_there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return Err("valgrind is not installed".to_owned());
    }
    Ok(())
}

/// The instructions of one of the `each` units of a round. Runs `weft` with these arguments with few rounds, and again
/// with more: the difference excludes the rest of the process.
///
/// # Errors
/// Valgrind is missing, or could not count.
pub(super) fn instructions_each(args: &[&str], rounds: [usize; 2], each: usize) -> Result<f64, String> {
    const TOOL: [&str; 4] =
        ["--tool=cachegrind", "--cache-sim=no", "--branch-sim=no", "--cachegrind-out-file=/dev/null"];
    // ==123== I   refs:      1,234,567
    each_takes(args, rounds, each, &TOOL, "refs:")
}

/// As [`instructions_each`], for the number of allocations.
///
/// # Errors
/// As above.
pub(super) fn allocations_each(args: &[&str], rounds: [usize; 2], each: usize) -> Result<f64, String> {
    const TOOL: [&str; 3] = ["--tool=memcheck", "--leak-check=no", "--undef-value-errors=no"];
    // ==123==   total heap usage: 1,234 allocs, 1,200 frees, 1,234,567 bytes allocated
    each_takes(args, rounds, each, &TOOL, "total heap usage:")
}

/// Counts an event of a child process in runs of few and of more rounds. Returns the difference per single operation.
fn each_takes(
    args: &[&str],
    [few, more]: [usize; 2],
    each: usize,
    tool: &[&str],
    behind: &str,
) -> Result<f64, String> {
    let counted = |rounds: usize| counted(&[args, &["--rounds", &rounds.to_string()]].concat(), tool, behind);
    let (low, high) = (counted(few)?, counted(more)?);
    Ok((high - low) as f64 / ((more - few) * each) as f64)
}

/// The number after these words in the output of a valgrind tool, for a whole run of `weft` with these arguments.
fn counted(args: &[&str], tool: &[&str], behind: &str) -> Result<i64, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let output = Command::new("valgrind")
        .args(tool)
        .arg(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let count = errors.lines().find_map(|line| {
        let (_, number) = line.split_once(behind)?;
        let number = number.trim_start().split(|c: char| c != ',' && !c.is_ascii_digit()).next()?;
        number.replace(',', "").parse().ok()
    });
    count.filter(|_| output.status.success()).ok_or_else(|| {
        let last = errors.lines().last().unwrap_or_default();
        format!("valgrind gave no count for {}: {last}", args.join(" "))
    })
}

fn weft(args: &[&str]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

/// The scheduler counts nanoseconds for each thread; without them, there are ticks for the process.
fn cpu_s(pid: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let run_ns = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    let ns: u64 = run_ns.sum();
    if ns > 0 { ns as f64 / 1e9 } else { ticks_s(pid).unwrap_or(0.0) }
}

/// proc_pid_stat(5): `utime` and `stime` are the 12th and 13th fields after the name, in ticks of 10 ms.
fn ticks_s(pid: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = text.rsplit_once(')')?;
    let ticks = behind_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok());
    Some(ticks.sum::<u64>() as f64 / 100.0)
}
