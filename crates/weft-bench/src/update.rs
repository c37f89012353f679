//! Changes of a network under load: their duration, the pause of a worker, and lost calls.

use std::time::Duration;

use super::load::LoadResult;
use super::process::{self, Running};
use super::progress;
use super::report::{Report, Row};
use super::rpc::{ADN, Effort, Folder, Proxy, call};
use weft_api::Applied;

/// Changes in one run.
const CHANGES: usize = 10;
/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(300);

/// Applies two versions of the ADN chain in turn while calls are in flight, and counts the calls.
///
/// # Errors
/// A process could not be started, a change was refused, or a call was lost.
pub(super) fn run(quick: bool) -> Result<Report, String> {
    let rounds = if quick { 1 } else { 3 };
    let folder = Folder::new()?;
    let (_server, address) = Running::with_line(&["bench-server", "--end-with-stdin"])?;
    let server = address.parse().map_err(|_| format!("an address, not `{address}`"))?;
    let proxy = Proxy::start(&folder, "one.weft", ADN, server)?;
    // The running program is in the folder; the other version has a stricter element of the same name.
    let one = folder.0.join("one.weft").display().to_string();
    let text = std::fs::read_to_string(&one).map_err(|error| format!("{one}: {error}"))?;
    let two =
        folder.write("two.weft", &text.replace("permission = 'W'", "permission = 'W' AND user <> 'u8'"))?;
    let (mut applied, mut lost, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        progress(&format!("round {round} of {rounds}"));
        let (changes, load) = one_round(&proxy, [&two, &one])?;
        applied.extend(changes);
        lost.push(load.lost as f64);
        calls.push(load.calls_per_s);
    }
    let figure = |f: fn(&Applied) -> f64| applied.iter().map(f).collect::<Vec<_>>();
    const NAME: &str = "change under 128 in flight";
    let rows = vec![
        Row::new(NAME, "apply to live", "ms", &figure(|a| a.total_ms)),
        Row::new(NAME, "of that check", "ms", &figure(|a| a.check_ms)),
        Row::new(NAME, "of that compile", "ms", &figure(|a| a.compile_ms)),
        Row::new(NAME, "longest pause", "us", &[figure(|a| a.pause_us).into_iter().fold(0.0, f64::max)]),
        Row::new(NAME, "calls lost", "", &[lost.iter().sum()]),
        Row::new(NAME, "rate", "calls/s", &calls),
    ];
    Ok(Report { bench: "update", rows, notes: Vec::new(), failures: Vec::new() })
}

/// Runs the load, with ten changes during it.
fn one_round(proxy: &Proxy, programs: [&String; 2]) -> Result<(Vec<Applied>, LoadResult), String> {
    let target = proxy.address;
    let duration = (CHANGES as u32 + 2) * PAUSE.as_millis() as u32;
    let load = std::thread::spawn(move || {
        call(target, 128, &Effort { rounds: 1, duration_ms: duration, warm_up_ms: 100 })
    });
    let admin = proxy.admin.to_string();
    let mut changes = Vec::new();
    for change in 0..CHANGES {
        std::thread::sleep(PAUSE);
        let output = process::output(&["apply", "--json", "--admin", &admin, programs[change % 2]])?;
        changes.push(serde_json::from_str(&output).map_err(|error| format!("{error} in `{output}`"))?);
    }
    let load = load.join().map_err(|_| "the load's thread has ended badly".to_owned())??;
    Ok((changes, load))
}
