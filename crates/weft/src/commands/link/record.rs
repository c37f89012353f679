//! `weft link record`: records the requests to a link's queue in a running node, for a while.

use crate::cli::LinkRecordArgs;
use crate::client::{Client, Outcome};
use crate::commands::query::refuse;
use crate::fault::Fault;
use crate::progress::Progress;
use crate::recording_file;
use crate::signals;
use crate::stderr;
use crate::stdout;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weft_api::{EndRecordingRequest, RecordRequest, Recording};
use weft_control::show::{count, grouped};

/// The interval between requests for the node's progress.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The interval after the requested time: the node's time begins a little before ours.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs `weft link record`. Removes a file that it has created and left empty.
pub(super) fn run(args: &LinkRecordArgs) -> Result<(), Fault> {
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.rec", args.link)));
    let is_new = !file.exists();
    recording_file::claim(&file)?;
    let done = record(args, &file);
    let is_empty = || std::fs::metadata(&file).is_ok_and(|found| found.len() == 0);
    if done.is_err() && is_new && is_empty() {
        // The file is empty, and this command has created it. Ignore errors: the fault is the other one.
        let _ = std::fs::remove_file(&file);
    }
    done
}

/// Starts the recording at the node, waits for its end or Ctrl-C, and writes the file.
fn record(args: &LinkRecordArgs, file: &Path) -> Result<(), Fault> {
    let client = Client::new(&args.admin)?;
    let stop = signals::stop_requests()?;
    let seconds = args.span as f64 / 1e9;
    let (link, packets, bytes) = (args.link.clone(), args.packets, args.mib << 20);
    let request = RecordRequest { link: link.clone(), seconds, packets, bytes };
    if let Outcome::Refused(refused) = client.record(&request)? {
        return Err(refuse(&refused, args.json));
    }
    let begun = Instant::now();
    let mut progress: Option<Progress> = None;
    let until = begun + Duration::from_nanos(args.span);
    let mut last = Recording::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let is_asked_to_stop = stop.recv_timeout(left.clamp(LOOK_AGAIN, LOOK_EVERY)).is_ok();
        let found = client.recordings()?.into_iter().find(|recording| recording.link == link);
        // The link is gone, and its recording with it.
        let Some(found) = found else { break };
        last = found;
        let done = begun.elapsed().as_millis() as u64;
        let what = if last.of_calls { "calls" } else { "packets" };
        let shown = progress.get_or_insert_with(|| Progress::of(what, begun));
        shown.show(last.packets, (done, Some(args.span / 1_000_000)));
        // When the recording is full, the node still counts for the requested time.
        let is_over = match last.ended.as_deref() {
            Some("full") => Instant::now() >= until,
            ended => ended.is_some(),
        };
        if is_asked_to_stop || is_over {
            break;
        }
    }
    drop(progress);
    let Some(text) = client.take_recording(&EndRecordingRequest { link: link.clone() })? else {
        return Err(Fault::environment(format!("link `{link}` is gone, and its recording with it")));
    };
    recording_file::write(file, &text)?;
    let took = begun.elapsed().as_secs_f64();
    let unit = if last.of_calls { "call" } else { "packet" };
    if args.json {
        let mut data = json!({
            "link": link, "file": file, "seconds": took, "bytes": text.len(),
            "missed": last.missed, "ended": last.ended.as_deref().unwrap_or("asked"),
        });
        data[format!("{unit}s")] = last.packets.into();
        return stdout::print(&format!("{data}\n"));
    }
    stderr::line(format_args!(
        "{}: {} of link {link} in {took:.1} s, {} KB",
        file.display(),
        count(last.packets, unit),
        grouped(text.len().div_ceil(1000) as u64),
    ));
    match last.ended.as_deref() {
        Some("full") => stderr::line(format_args!(
            "it was full: {} that came later are not in it; --packets and --mib give it more room",
            count(last.missed, unit)
        )),
        Some("replaced") => {
            stderr::line(format_args!("the link got another queue: what came later is not in it"))
        }
        _ => {}
    }
    Ok(())
}
