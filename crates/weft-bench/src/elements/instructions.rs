//! Instructions per message, counted by valgrind if it is installed.
//!
//! Each runner is a process of its own. Counts hardly depend on the machine's load, so one pair of runs suffices, and
//! pairs run in parallel.

use std::thread;

use super::rig::MESSAGES;
use crate::process::{can_count, instructions_each};
use crate::report::Row;

/// The runners, and the rounds of their two runs.
const RUNNERS: [(&str, [usize; 2]); 4] =
    [("nothing", [1, 3]), ("jit", [1, 3]), ("twin", [1, 3]), ("interp", [1, 2])];

/// Counts these cases.
///
/// # Errors
/// Valgrind is missing, or could not count.
pub(super) fn count(cases: &[&str]) -> Result<Vec<Row>, String> {
    can_count()?;
    let mut rows = Vec::new();
    for &case in cases {
        crate::progress(&format!("{case}: instructions"));
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

/// Counts only the compiled code of these cases.
///
/// # Errors
/// As [`count`].
pub(super) fn count_compiled(cases: &[&'static str]) -> Result<Vec<Row>, String> {
    can_count()?;
    let row = |case: &&'static str| {
        crate::progress(case);
        Ok(Row::new(*case, "instr", "instr/message", &[difference(case, "jit", [1, 3])?]))
    };
    cases.iter().map(row).collect()
}

/// Counts a case's instructions per message, for each runner.
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

/// Messages with fewer instructions than this are counted over more rounds: the start of a process varies by some
/// 200,000.
const CHEAP: f64 = 5000.0;
const ROUNDS_OF_CHEAP: [usize; 2] = [1, 41];

fn difference(name: &str, by: &str, rounds: [usize; 2]) -> Result<f64, String> {
    let over = |rounds| instructions_each(&["bench-element", name, "--by", by], rounds, MESSAGES);
    let rough = over(rounds)?;
    if rough < CHEAP { over(ROUNDS_OF_CHEAP) } else { Ok(rough) }
}
