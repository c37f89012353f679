//! A schedule: changes of a link while it runs.
//!
//! A line has a time since the start of the link, and the new settings, in the words of the options: `5s rate=1mbit
//! up-loss=2%`. Text after a `#` is a comment.

use super::setting::{Setting, Side, of_schedule};
use crate::fault::Fault;
use crate::source::unreadable;
use std::path::Path;
use weft_control::units::since_begin;
use weft_io::file::read_regular;

/// The largest schedule, in bytes.
const SCHEDULE_BYTES_MAX: u64 = 16 << 20;
/// The maximum number of lines with changes: one each 10 ms for a quarter of an hour.
const CHANGES_MAX: usize = 100_000;

/// A change of settings at a time.
pub(super) struct Step {
    /// Its line, counted from 1.
    pub(super) line: usize,
    pub(super) after_ns: u64,
    pub(super) settings: Vec<(Side, Setting)>,
}

/// The steps of a file, in order of time.
///
/// # Errors
/// The file cannot be read, or has a wrong line; the error names it.
pub(super) fn read(path: &Path) -> Result<Vec<Step>, Fault> {
    let fault_of = |error| unreadable(&format!("`{}`", path.display()), error);
    let bytes = read_regular(path, SCHEDULE_BYTES_MAX).map_err(fault_of)?;
    parse(&String::from_utf8_lossy(&bytes)).map_err(|(line, why)| fault(path, line, &why))
}

/// A fault in a line of a schedule.
pub(super) fn fault(path: &Path, line: usize, why: &str) -> Fault {
    Fault::Input(format!("{}: line {line}: {why}", path.display()))
}

/// Parses a schedule: a time and settings per line. An error has its line number.
fn parse(text: &str) -> Result<Vec<Step>, (usize, String)> {
    let mut steps: Vec<Step> = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let fault = |why: String| (nth + 1, why);
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let Some(time) = words.next() else { continue };
        let after_ns = since_begin(time).map_err(fault)?;
        let settings: Vec<_> = words.map(of_schedule).collect::<Result<_, _>>().map_err(fault)?;
        if settings.is_empty() {
            return Err(fault("it says nothing that changes then, as in `5s rate=1mbit`".to_owned()));
        }
        if steps.last().is_some_and(|last| last.after_ns > after_ns) {
            return Err(fault(format!("time goes back to {time}")));
        }
        if steps.len() == CHANGES_MAX {
            return Err(fault(format!("there are more than {CHANGES_MAX} changes")));
        }
        steps.push(Step { line: nth + 1, after_ns, settings });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link would change at another time, or the wrong line of a long file would be hard to find.
    #[test]
    fn schedule_parses_line_by_line() {
        let steps = parse("# a train\n0s rate=10mbit\n\n 1.5s down-rate=1mbit  up-loss=2% # a tunnel\n").ok();
        let steps = steps.expect("it is one");
        assert_eq!(
            steps.iter().map(|step| (step.line, step.after_ns)).collect::<Vec<_>>(),
            [(2, 0), (4, 1_500_000_000)]
        );
        assert_eq!(
            steps[1].settings,
            [(Side::Down, Setting::Rate(1_000_000)), (Side::Up, Setting::Loss(0.02))]
        );
        let error_of =
            |text| parse(text).err().map(|(line, why)| format!("{line}: {why}")).unwrap_or_default();
        assert_eq!(error_of("1s rate=1mbit\n0s rate=2mbit\n"), "2: time goes back to 0s");
        assert_eq!(error_of("\n1s\n"), "2: it says nothing that changes then, as in `5s rate=1mbit`");
        assert!(
            error_of("soon rate=1mbit").starts_with("1: a time is like 10s"),
            "{}",
            error_of("soon rate=1mbit")
        );
        assert!(
            error_of("1s rate=often").starts_with("1: rate: a rate is like 15mbit"),
            "{}",
            error_of("1s rate=often")
        );
    }
}
