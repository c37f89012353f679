//! Instructions a message, counted by valgrind where it is installed.
//!
//! Each runner runs as a process of its own, once with few rounds and once with more; the difference is what the rounds
//! take, whatever the rest of the process does. Counts hardly depend on what else the machine does, so one pair
//! suffices, and pairs run side by side.

use std::process::{Command, Stdio};
use std::thread;

use super::rig::MESSAGES;
use crate::bench::report::Row;

/// Who is counted, and with which rounds.
const RUNNERS: [(&str, [usize; 2]); 4] =
    [("nothing", [1, 3]), ("jit", [1, 3]), ("twin", [1, 3]), ("interp", [1, 2])];

/// Counts these cases.
///
/// # Errors
/// Valgrind is not there, or it could not count.
pub(super) fn count(cases: &[&str]) -> Result<Vec<Row>, String> {
    let is_there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return Err("valgrind is not installed".to_owned());
    }
    let mut rows = Vec::new();
    for &case in cases {
        crate::bench::progress(&format!("{case}: instructions"));
        let counts = of_case(case)?;
        let [nothing, jit, twin, interp] = counts[..] else { continue };
        let unit = "instr/message";
        rows.push(Row::new(case, "compiled instr", unit, &[jit]).against("by hand", &[jit], &[twin]));
        rows.push(Row::new(case, "by hand instr", unit, &[twin]));
        let net = [jit, twin].map(|count| [count - nothing]);
        rows.push(Row::new(case, "compiled net instr", unit, &net[0]).against("by hand", &net[0], &net[1]));
        rows.push(Row::new(case, "interpreted instr", unit, &[interp]));
    }
    Ok(rows)
}

/// Instructions a message for each runner.
fn of_case(name: &str) -> Result<Vec<f64>, String> {
    thread::scope(|scope| {
        let started: Vec<_> =
            RUNNERS.iter().map(|(by, rounds)| scope.spawn(move || difference(name, by, *rounds))).collect();
        started
            .into_iter()
            .map(|counting| counting.join().map_err(|_| "a count failed".to_owned())?)
            .collect()
    })
}

fn difference(name: &str, by: &str, [few, more]: [usize; 2]) -> Result<f64, String> {
    let (low, high) = (executed(name, by, few)?, executed(name, by, more)?);
    Ok((high - low) as f64 / ((more - few) * MESSAGES) as f64)
}

/// Instructions of a whole process.
fn executed(name: &str, by: &str, rounds: usize) -> Result<i64, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--branch-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["bench-element", name, "--by", by, "--rounds", &rounds.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    // ==123== I   refs:      1,234,567
    let count = told.lines().filter(|line| line.contains("refs:")).find_map(|line| {
        let digits: String = line.rsplit("refs:").next()?.chars().filter(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    count.filter(|_| output.status.success()).ok_or_else(|| {
        let last = told.lines().last().unwrap_or_default();
        format!("valgrind gave no count for {name}: {last}")
    })
}
