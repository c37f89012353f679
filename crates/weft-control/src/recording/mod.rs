//! Files of recordings: the requests to the queues of links, with the program that answered them. A running node
//! returns the text of one; an emulated link and a simulated one write theirs. `weft link show` and `weft link explain`
//! read them.
//!
//! A line of JSON starts a link, and has everything that is needed to replay its queue. The lines after it are those of
//! [`weft_engine::recording`]. A link of calls has a queue for each worker: the recordings of the workers follow each
//! other, in order, each in the form of a link.

mod explain;
mod history;
mod show;

use crate::check::{Accepted, Checked};
use crate::fault::Fault;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weft_api::Bundle;
use weft_engine::queue::QueueProgram;
use weft_engine::recording::{EndReason, Recorder};
use weft_lang::hir;
use weft_lang::source::SourceMap;

pub use history::Link;

/// The version of the format. Version 1 had no lines for events on the path after a link, and used the seed
/// differently.
const VERSION: u32 = 2;
/// The oldest readable version.
const VERSION_MIN: u32 = 1;
/// The line before the requests of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    weft_recording: u32,
    /// The version of the program that wrote the file; its library answered the requests.
    weft: String,
    /// The link.
    pub link: String,
    /// The queue's text, if the program has no such link.
    #[serde(default)]
    queue: Option<String>,
    /// Bits a second, if the link has its own rate.
    pub rate: Option<u64>,
    /// Set for a link of calls.
    #[serde(default)]
    pub calls: Option<CallLink>,
    /// The start of the queue, in nanoseconds of its clock.
    pub begun_ns: u64,
    /// The seed of the queue's random numbers.
    pub seed: u64,
    /// Some later requests are not recorded.
    is_cut: bool,
    /// Packets within the requested time that are not recorded.
    #[serde(default)]
    pub missed: u64,
    /// The reason that the recording is cut. Older files lack it.
    #[serde(default)]
    ended: Option<EndedEarly>,
    /// Bytes of the requests after this line, to detect a truncated file. Older files lack it.
    #[serde(default)]
    bytes: Option<usize>,
    /// The program, without the library.
    #[serde(flatten)]
    program: Bundle,
}

/// Data of a link of calls. Each worker has a queue of the link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CallLink {
    /// The worker of this queue, from 0. The queues of a link follow each other.
    pub worker: u16,
    /// The maximum number of calls under way, over all workers.
    pub concurrency: Option<u32>,
    /// Calls a second, over all workers.
    pub rate: Option<f64>,
}

/// Why a recording ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedEarly {
    /// It had no more room.
    Full,
    /// The link got another queue.
    Replaced,
}

/// A recorded link, or one worker's part of it.
pub struct Recording {
    /// The line before the requests.
    pub head: Head,
    /// The requests.
    pub text: String,
    /// The line of the file before the requests, counted from 1.
    pub line: usize,
    /// The last whole line of a truncated file, counted from 1. A partial line after it is ignored.
    pub ends_in: Option<usize>,
}

/// The program of a recorded link.
pub struct Program {
    /// The queue of the link.
    pub queue: Arc<QueueProgram>,
    /// Its levels as checked.
    pub levels: Vec<hir::QueueLevel>,
    /// The header fields that the program reads.
    pub headers: Vec<String>,
    /// The texts of the program.
    pub sources: SourceMap,
    /// Remarks about the version that recorded it, a line each.
    pub remarks: Vec<String>,
}

/// A link's program and settings when its recording began.
#[derive(Clone, Copy)]
pub struct LinkSetup<'r> {
    /// The link.
    pub link: &'r str,
    /// Bits a second, if it had a rate.
    pub rate: Option<u64>,
    /// Set for a link of calls.
    pub calls: Option<CallLink>,
    /// The program with the link.
    pub program: &'r Bundle,
    /// The queue's text, if the program has no such link.
    pub queue: Option<&'r str>,
}

/// The text of a recorded link: a whole file, or a part of one.
pub fn text(ran: &LinkSetup<'_>, recorder: &Recorder) -> String {
    let (begun_ns, seed) = recorder.begun();
    let progress = recorder.progress(begun_ns);
    let text = recorder.text();
    let ended = match progress.ended {
        Some(EndReason::Full) => Some(EndedEarly::Full),
        Some(EndReason::Replaced) => Some(EndedEarly::Replaced),
        Some(EndReason::Time) | None => None,
    };
    let head = Head {
        weft_recording: VERSION,
        weft: env!("CARGO_PKG_VERSION").to_owned(),
        link: ran.link.to_owned(),
        queue: ran.queue.map(str::to_owned),
        rate: ran.rate,
        calls: ran.calls,
        begun_ns,
        seed,
        is_cut: ended.is_some(),
        missed: progress.missed,
        ended,
        bytes: Some(text.len()),
        program: ran.program.clone(),
    };
    let head = serde_json::to_string(&head).expect("it is data");
    format!("{head}\n{text}")
}

/// Parses the links of a file; `name` is the file's, for errors.
///
/// # Errors
/// The text is no recording of a readable version.
pub fn parse(text: &str, name: &str) -> Result<Vec<Recording>, Fault> {
    let mut links: Vec<Recording> = Vec::new();
    let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", text));
    for (nth, line) in whole.lines().enumerate() {
        let fault = |why: &str| Fault::Input(format!("{}: line {}: {why}", name, nth + 1));
        if line.starts_with('{') {
            let head: Head =
                serde_json::from_str(line).map_err(|error| fault(&format!("it begins no link: {error}")))?;
            if !(VERSION_MIN..=VERSION).contains(&head.weft_recording) {
                let versions = format!("{VERSION_MIN} to {VERSION} are read");
                return Err(fault(&format!("version {} of recordings; {versions}", head.weft_recording)));
            }
            if i64::try_from(head.begun_ns).is_err() {
                return Err(fault("it begins too late"));
            }
            links.push(Recording { head, text: String::new(), line: nth + 1, ends_in: None });
        } else {
            let link = links.last_mut().ok_or_else(|| fault("it is no recording of a link"))?;
            link.text.push_str(line);
            link.text.push('\n');
        }
    }
    let Some(last) = links.last_mut() else {
        return Err(Fault::Input(format!("{}: it has no link", name)));
    };
    let is_short = last.head.bytes.is_some_and(|bytes| last.text.len() < bytes);
    last.ends_in = (is_short || !rest.is_empty()).then(|| whole.lines().count());
    Ok(links)
}

impl Head {
    /// The name of a queued item.
    pub fn unit(&self) -> &'static str {
        if self.calls.is_some() { "call" } else { "packet" }
    }

    /// Why the recording ended early, if it did.
    pub fn ended_early(&self) -> Option<EndedEarly> {
        let guessed = || if self.missed > 0 { EndedEarly::Full } else { EndedEarly::Replaced };
        self.ended.or_else(|| self.is_cut.then(guessed))
    }
}

impl Recording {
    /// Whether `next` is the next worker's part of the same link.
    pub fn is_continued_by(&self, next: &Self) -> bool {
        let (here, there) = (&self.head, &next.head);
        let is_next = |of: &CallLink, then: &CallLink| then.worker == of.worker + 1;
        here.link == there.link
            && here.calls.as_ref().zip(there.calls.as_ref()).is_some_and(|(of, then)| is_next(of, then))
    }

    /// Checks the program of the recording with `check`.
    ///
    /// # Errors
    /// The program is wrong, or does not have the link.
    pub fn program(&self, check: &dyn Fn(&Bundle) -> Checked) -> Result<Program, RecordingError> {
        let mut checked = check(&self.head.program);
        let Some(Accepted { network, .. }) = checked.accepted.take() else {
            return Err(RecordingError::Program(Box::new(checked)));
        };
        let (name, links, of_calls) = (&self.head.link, network.links, network.call_links);
        let queue = match &self.head.queue {
            None if self.head.calls.is_some() => {
                of_calls.into_iter().find(|link| link.name == *name).map(|link| link.queue)
            }
            None => links.into_iter().find(|link| link.name == *name).map(|link| link.queue),
            Some(name) => network.queues.into_iter().find(|queue| queue.name == *name),
        };
        let queue = queue.ok_or_else(|| {
            let what = self.head.queue.as_ref().map_or(("link", &self.head.link), |queue| ("queue", queue));
            Fault::Input(format!("the program of the recording has no {} `{}`", what.0, what.1))
        })?;
        let Head { weft, weft_recording, .. } = &self.head;
        let mut remarks = Vec::new();
        if weft != env!("CARGO_PKG_VERSION") {
            remarks.push(format!("recorded with weft {weft}, whose library may be another"));
        }
        let lowered = Arc::new(weft_opt::lower::queue(&queue));
        if *weft_recording < VERSION && lowered.draws() {
            let what = "its queue draws in another way now, and may have done something else then";
            remarks.push(format!("recorded in version {weft_recording} of the format: {what}"));
        }
        let headers = queue.headers().iter().map(|header| header.name.clone()).collect();
        Ok(Program { queue: lowered, levels: queue.levels, headers, sources: checked.sources, remarks })
    }
}

/// Why a recording cannot be replayed.
pub enum RecordingError {
    /// It is at fault.
    Fault(Fault),
    /// Its program has errors.
    Program(Box<Checked>),
}

impl From<Fault> for RecordingError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::testing::BareHost;
    use std::collections::{BTreeMap, BTreeSet};
    use weft_engine::queue::snapshot::RowKind;
    use weft_engine::queue::{FAR_NS, NEVER_DUE_NS, Packet};
    use weft_engine::recording::{Limits, PathEvents, QueueEvent, read};

    const PAGE: &str = include_str!("../../../../docs/src/reference/recordings.md");

    /// The rows of the page's tables: the texts between backquotes in the first two columns.
    fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
        let quoted = |cell: &'static str| cell.trim().strip_prefix('`')?.strip_suffix('`');
        PAGE.lines().filter_map(move |line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((quoted(cells.next()?)?, cells.next().map(|cell| quoted(cell).unwrap_or(cell))?))
        })
    }

    /// Another tool that reads recordings by the page would miss keys or lines, or find unknown ones.
    #[test]
    fn docs_page_lists_head_keys() {
        let calls = Some(CallLink { worker: 0, concurrency: None, rate: None });
        let files = BTreeMap::from([("a.weft".to_owned(), String::new())]);
        let program = Bundle { root: "a.weft".to_owned(), files, ..Bundle::default() };
        let ran = LinkSetup { link: "wan", rate: Some(1), calls, program: &program, queue: None };
        let text = text(&ran, &Recorder::new(5, 7, Limits::NONE));
        let head: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text.trim_end()).expect("one line of JSON");
        let written: BTreeSet<&str> = head.keys().map(String::as_str).collect();
        let head = PAGE.split("## What the queue was asked").next().expect("a part").len();
        let keys = rows().filter(|(key, _)| PAGE.find(&format!("| `{key}` |")).is_some_and(|at| at < head));
        let mut described: BTreeSet<&str> = keys.map(|(key, _)| key).collect();
        assert!(
            described.remove("binary") && described.remove("proto_paths"),
            "those are left out where there are none"
        );
        assert_eq!(described, written);
        assert!(PAGE.contains(&format!("the version of the format, {VERSION} |")));
    }

    /// The page would not suffice to read the lines after the head. This test parses by the page alone.
    #[test]
    fn recording_parses_by_docs_page() {
        let lines: BTreeMap<&str, Vec<&str>> = rows()
            .filter(|(letter, _)| letter.len() == 1)
            .map(|(l, words)| (l, words.split(' ').collect()))
            .collect();
        let rows = RowKind::ALL.map(|(_, letter)| letter);
        assert!(
            rows.iter().chain(&["e", "d", "t", "r", "l", "f", "w"]).all(|letter| lines.contains_key(letter))
        );
        assert_eq!(lines.len(), rows.len() + 7);
        let packet = Packet {
            len: 1500,
            ecn: 1,
            dscp: 46,
            flow: 7,
            src: 8,
            dst: 9,
            class: 2,
            remaining: 3,
            slack_ns: 4,
            deadline_ns: 5,
            headers: [10, 11, 12, 13],
            framing: 14,
            ..Packet::default()
        };
        let way = PathEvents { is_lost: true, is_reordered: true, ..PathEvents::default() };
        let asked = [
            (1_000, QueueEvent::Enqueue(packet)),
            (1_500, QueueEvent::Enqueue(Packet { len: 60, ..Packet::default() })),
            (2_000, QueueEvent::Dequeue),
            (2_000, QueueEvent::Path(way)),
            (2_001, QueueEvent::Timeout),
            (2_001, QueueEvent::Rate(9_000)),
            (2_001, QueueEvent::Left(1)),
            (2_002, QueueEvent::Refilled(vec![1, 0])),
        ];
        let mut recorder = Recorder::new(900, 1, Limits::NONE);
        asked.iter().for_each(|(now, asked)| recorder.note(*now, asked));
        let mut now = 900;
        for (line, (at, meant)) in recorder.text().lines().zip(&asked) {
            let (letter, numbers) = line.split_once(' ').expect("a letter, and numbers");
            let mut names = lines[letter].iter().copied();
            let (mut found, mut last): (BTreeMap<&str, Vec<u64>>, &str) = Default::default();
            for number in numbers.split(' ') {
                // A `...` repeats the last name.
                last = names.next().filter(|name| *name != "...").unwrap_or(last);
                found.entry(last).or_default().push(number.parse().expect("a number"));
            }
            let one = |name: &str| found.get(name).map_or(0, |all| all[0]);
            now += one("T");
            assert_eq!(now, *at, "{line}");
            let read_by_page = match letter {
                "e" => QueueEvent::Enqueue(Packet {
                    len: one("LEN") as u32,
                    ecn: one("ECN") as u8,
                    dscp: one("DSCP") as u8,
                    flow: one("FLOW") as u32,
                    src: one("SRC") as u32,
                    dst: one("DST") as u32,
                    class: one("CLASS") as u32,
                    remaining: one("REMAINING"),
                    slack_ns: one("SLACK") as i64 ^ FAR_NS,
                    deadline_ns: one("DEADLINE") ^ NEVER_DUE_NS,
                    headers: ["H0", "H1", "H2", "H3"].map(one),
                    framing: one("FRAMING") as u32,
                    ..Packet::default()
                }),
                "d" => QueueEvent::Dequeue,
                "t" => QueueEvent::Timeout,
                "r" => QueueEvent::Rate(one("RATE")),
                "l" => QueueEvent::Left(one("N")),
                "f" => QueueEvent::Refilled(found["N"].clone()),
                _ => {
                    let bit = |at: u32| one("WHAT") >> at & 1 == 1;
                    let [is_lost, is_duplicated, is_corrupted, is_reordered] = [0, 1, 2, 3].map(bit);
                    QueueEvent::Path(PathEvents { is_lost, is_duplicated, is_corrupted, is_reordered })
                }
            };
            assert_eq!(&read_by_page, meant, "{line}");
        }
        assert_eq!(read(recorder.text(), 900).filter_map(Result::ok).count(), asked.len());
        assert_eq!((FAR_NS, NEVER_DUE_NS), (31_536_000_000_000_000, (1 << 63) - 1));
    }

    /// Recordings of the previous version would be unreadable, or those of a later version would be misread.
    #[test]
    fn previous_version_is_readable() {
        let file = |version: u32, queue: &str| {
            let program = Bundle {
                root: "a.weft".to_owned(),
                files: BTreeMap::from([(
                    "a.weft".to_owned(),
                    format!("IMPORT 'library/queues/{queue}.weft';"),
                )]),
                ..Bundle::default()
            };
            let ran = LinkSetup { link: "x", rate: None, calls: None, program: &program, queue: Some(queue) };
            let text = text(&ran, &Recorder::new(0, 1, Limits::NONE));
            text.replace("\"weft_recording\":2", &format!("\"weft_recording\":{version}"))
        };
        let check = |program: &Bundle| {
            let mut files = Files::in_bundle(program);
            crate::check::check(&program.root, &mut files, |_| 1, &BareHost)
        };
        let program = |version, queue| {
            let links = parse(&file(version, queue), "x.rec").map_err(|_| "not read")?;
            links[0].program(&check).map(drop).map_err(|_| "refused")
        };
        assert_eq!((program(2, "red"), program(1, "codel"), program(1, "red")), (Ok(()), Ok(()), Ok(())));
        assert_eq!(program(3, "codel"), Err("not read"));
    }
}
