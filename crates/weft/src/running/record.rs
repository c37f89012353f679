//! Recordings of the links of a running node.

use super::{Refusal, Running, lock, refused_in_words};
use std::collections::BTreeMap;
use weft_api::{Bundle, RECORD_SECONDS_MAX, RECORDINGS_MAX, RecordRequest, Recording};
use weft_control::recording;
use weft_control::recording::{CallLink, LinkSetup};
use weft_engine::recording::{EndReason, Limits, RECORDING_BYTES_MAX};

/// The recordings, by link.
#[derive(Default)]
pub(super) struct Recordings {
    links: BTreeMap<String, OpenRecording>,
    /// The number of recordings so far.
    n: u64,
}

/// A link's program and settings when its recording began.
struct OpenRecording {
    id: u64,
    link: Link,
    program: Bundle,
}

#[derive(Clone, Copy)]
enum Link {
    /// A link of packets with this rate, in bits a second.
    OfPackets(Option<u64>),
    /// A link of calls: the maximum number of calls under way, and the nanoseconds between two calls.
    Calls(Option<u32>, Option<u64>),
}

impl Running {
    /// Starts to record a link; returns the id of the recording.
    pub(crate) fn record(&self, request: &RecordRequest) -> Result<u64, Refusal> {
        // Held so that the program does not change: the recording starts with the program that it contains.
        let control = lock(&self.parts.control);
        let refuse = |text: String| refused_in_words(&text, control.compiler.version());
        let limits = limits(request).map_err(&refuse)?;
        let name = &request.link;
        let links = control.packets.iter().flat_map(|plan| &plan.links);
        let links = links.map(|link| (&link.name, Link::OfPackets(link.rate)));
        let of_calls = control.network.call_links.iter();
        let of_calls = of_calls.map(|link| (&link.name, Link::Calls(link.concurrency, link.step_ns)));
        let links: Vec<_> = links.chain(of_calls).collect();
        let Some((_, link)) = links.iter().copied().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(refuse(format!("there is no link `{name}`; the node has {has}")));
        };
        let mut recorded = lock(&self.parts.recorded);
        if recorded.links.len() >= RECORDINGS_MAX && !recorded.links.contains_key(name) {
            return Err(refuse(format!("{RECORDINGS_MAX} links are being recorded, and no more can be")));
        }
        let node = lock(&self.parts.node);
        let node = node.as_ref().ok_or(Refusal::Stopping)?;
        let begun = match link {
            Link::OfPackets(_) => node.record(name, limits),
            Link::Calls(..) => node.record_calls(name, limits),
        };
        match begun.map_err(|_| Refusal::Stopping)? {
            Some(true) => {}
            Some(false) => return Err(refuse(format!("link `{name}` is already being recorded"))),
            None => return Err(refuse(format!("link `{name}` is about to change: try again"))),
        }
        recorded.n += 1;
        let (id, program) = (recorded.n, lock(&self.parts.program).clone());
        recorded.links.insert(name.clone(), OpenRecording { id, link, program });
        Ok(id)
    }

    /// The progress of the recordings.
    pub(crate) fn recordings(&self) -> Vec<Recording> {
        let recorded = lock(&self.parts.recorded);
        let node = lock(&self.parts.node);
        let found = node.as_ref().and_then(|node| node.recordings().ok()).unwrap_or_default();
        let of_calls =
            |link: &str| recorded.links.get(link).is_some_and(|begun| matches!(begun.link, Link::Calls(..)));
        let end_name = |ended| match ended {
            EndReason::Time => "time".to_owned(),
            EndReason::Full => "full".to_owned(),
            EndReason::Replaced => "replaced".to_owned(),
        };
        let one = |(link, progress): (String, weft_engine::recording::RecordingProgress)| Recording {
            of_calls: of_calls(&link),
            link,
            packets: progress.packets,
            bytes: progress.bytes as u64,
            missed: progress.missed,
            ended: progress.ended.map(end_name),
        };
        found.into_iter().map(one).collect()
    }

    /// Ends a recording, and returns its file. None if there is no recording, or its link is gone.
    pub(crate) fn take_recording(&self, link: &str) -> Option<String> {
        let OpenRecording { link: kind, program, .. } = lock(&self.parts.recorded).links.remove(link)?;
        let node = lock(&self.parts.node);
        let node = node.as_ref()?;
        let ran = LinkSetup { link, rate: None, calls: None, program: &program, queue: None };
        match kind {
            Link::OfPackets(rate) => {
                let recorder = node.take_recording(link).ok().flatten()?;
                Some(recording::text(&LinkSetup { rate, ..ran }, &recorder))
            }
            Link::Calls(concurrency, step_ns) => {
                let recorders: Option<Vec<_>> =
                    node.take_recordings_of_calls(link).ok()?.into_iter().collect();
                let rate = step_ns.map(|step_ns| 1e9 / step_ns as f64);
                let texts = recorders?.into_iter().zip(0..).map(|(recorder, worker)| {
                    let calls = Some(CallLink { worker, concurrency, rate });
                    recording::text(&LinkSetup { calls, ..ran }, &recorder)
                });
                Some(texts.collect())
            }
        }
    }

    /// Drops a recording that no client has fetched.
    pub(crate) fn forget_recording(&self, link: &str, id: u64) {
        if lock(&self.parts.recorded).links.get(link).is_some_and(|begun| begun.id == id) {
            self.take_recording(link);
        }
    }
}

/// Checks the limits of a requested recording, and converts them to the engine's form.
fn limits(request: &RecordRequest) -> Result<Limits, String> {
    let seconds = request.seconds;
    if !(seconds > 0.0 && seconds <= RECORD_SECONDS_MAX as f64) {
        return Err(format!("a recording takes between 0 and {RECORD_SECONDS_MAX} s, not {seconds}"));
    }
    let bytes = usize::try_from(request.bytes).unwrap_or(usize::MAX).min(RECORDING_BYTES_MAX);
    Ok(Limits { ns: (seconds * 1e9) as u64, packets: request.packets, bytes })
}
