//! Recordings of queues: the same operations give the same results again.
//!
//! A [`Recorder`] writes each operation on a queue as a line of text. Random numbers follow from a seed and each
//! operation has its time. So the program, the seed and these lines determine everything: a replay reproduces each
//! packet, each drop and each variable.
//!
//! A recorder may start while the queue runs: then the state of the queue ([`Snapshot`]) precedes the operations, one
//! row per line.
//!
//! If several workers each have a queue of a link, each has a recorder, and they share the limits ([`SharedUsage`]).
//!
//! | line | meaning |
//! | --- | --- |
//! | `E`, `N`, `P`, `Q`, `O`, `H`, `S`, `T`, `U`, and numbers | a row of the snapshot, see [`RowKind`] |
//! | `e T LEN ECN DSCP FLOW SRC DST CLASS REMAINING SLACK DEADLINE HEADERS FRAMING` | enqueue, no trailing zeros |
//! | `d T` | dequeue |
//! | `t T` | timeout |
//! | `r T RATE` | the rate of the link in bits per second |
//! | `l T N` | packet `N` no longer waits, and stays in the queue until its turn |
//! | `f T N N ...` | the queue was emptied and refilled with these packets in this order |
//! | `w T WHAT` | events on the path behind the link, for the last dequeued packet: [`PathEvents`] |
//!
//! `T` is in nanoseconds since the line before. `N` is the number of a packet: the first to arrive is 0.

use crate::queue::snapshot::{RowKind, Snapshot};
use crate::queue::{FAR_NS, NEVER_DUE_NS, Packet, Queue, QueueCode, Sent};
use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_ir::queue::HEADERS_MAX;

/// The most bytes that a recorder keeps; it stops then.
pub const RECORDING_BYTES_MAX: usize = 256 << 20;

/// The limits of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nanoseconds from its start.
    pub ns: u64,
    /// Packets that arrive.
    pub packets: u64,
    /// Bytes of text, at most [`RECORDING_BYTES_MAX`].
    pub bytes: usize,
}

impl Limits {
    /// Only the limit of memory.
    pub const NONE: Self = Self { ns: u64::MAX, packets: u64::MAX, bytes: RECORDING_BYTES_MAX };
}

/// The usage of limits that the recorders of one link share.
#[derive(Debug, Default)]
pub struct SharedUsage {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its time is over.
    Time,
    /// A limit of packets or bytes is reached.
    Full,
    /// Its queue was replaced.
    Replaced,
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingProgress {
    /// Nanoseconds from its start to the last operation.
    pub ns: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes of text.
    pub bytes: usize,
    /// Packets that arrived in its time but after its end, and are not in it.
    pub missed: u64,
    /// Why it ended, as of the time of the query.
    pub ended: Option<EndReason>,
}

/// An operation on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// Enqueue. The handle is not recorded: a replay uses the packet's number.
    Enqueue(Packet),
    /// Dequeue.
    Dequeue,
    /// Timeout.
    Timeout,
    /// The rate changed.
    Rate(u64),
    /// The packet with this number no longer waits. Not a queue operation: the packet stays in the queue until its
    /// turn.
    Left(u64),
    /// All packets were taken out, and those with these numbers enqueued again.
    Refilled(Vec<u64>),
    /// Path events of the last dequeued packet. Not a queue operation.
    Path(PathEvents),
}

/// Events of a packet on the emulated path behind a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathEvents {
    /// Lost: bit 0 in a recording.
    pub is_lost: bool,
    /// Duplicated: bit 1.
    pub is_duplicated: bool,
    /// Corrupted: bit 2.
    pub is_corrupted: bool,
    /// Delayed so that later packets overtook it: bit 3.
    pub is_reordered: bool,
}

/// Records operations as lines of text.
#[derive(Debug)]
pub struct Recorder {
    text: String,
    begun_ns: u64,
    last_ns: u64,
    seed: u64,
    limits: Limits,
    taken: Arc<SharedUsage>,
    packets: u64,
    missed: u64,
    ended: Option<EndReason>,
}

/// A line that cannot be read: its number, counted from 1, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError {
    /// The line.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Recorder {
    /// Creates a recorder of a queue that starts now with this seed.
    pub fn new(begun_ns: u64, seed: u64, limits: Limits) -> Self {
        let limits = Limits { bytes: limits.bytes.min(RECORDING_BYTES_MAX), ..limits };
        let (text, last_ns, taken) = (String::new(), begun_ns, Arc::default());
        Self { text, begun_ns, last_ns, seed, limits, taken, packets: 0, missed: 0, ended: None }
    }

    /// Creates a recorder of a running queue in this state.
    pub fn resuming(begun_ns: u64, snapshot: &Snapshot, limits: Limits) -> Self {
        let mut recorder = Self::new(begun_ns, 0, limits);
        for (kind, numbers) in &snapshot.rows {
            // Writing to a string does not fail.
            let _ = write!(recorder.text, "{}", letter(*kind));
            numbers.iter().for_each(|number| {
                let _ = write!(recorder.text, " {number}");
            });
            recorder.text.push('\n');
        }
        recorder.taken.bytes.fetch_add(recorder.text.len() as u64, Relaxed);
        recorder
    }

    /// Shares the limits with all recorders of the same usage.
    pub fn sharing(mut self, taken: &Arc<SharedUsage>) -> Self {
        taken.bytes.fetch_add(self.text.len() as u64, Relaxed);
        taken.packets.fetch_add(self.packets, Relaxed);
        self.taken = Arc::clone(taken);
        self
    }

    /// The start of the recording, in nanoseconds of the queue's clock, and the seed of a queue that started then.
    pub fn begun(&self) -> (u64, u64) {
        (self.begun_ns, self.seed)
    }

    /// The progress at this time.
    pub fn progress(&self, now_ns: u64) -> RecordingProgress {
        let is_over = now_ns.saturating_sub(self.begun_ns) >= self.limits.ns;
        RecordingProgress {
            ns: self.last_ns - self.begun_ns,
            packets: self.packets,
            bytes: self.text.len(),
            missed: self.missed,
            ended: self.ended.or(is_over.then_some(EndReason::Time)),
        }
    }

    /// The lines.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Stops: the queue was replaced.
    pub fn end(&mut self) {
        self.ended.get_or_insert(EndReason::Replaced);
    }

    /// Records an operation.
    pub fn note(&mut self, now_ns: u64, event: &QueueEvent) {
        let is_packet = matches!(event, QueueEvent::Enqueue(_));
        if now_ns.saturating_sub(self.begun_ns) > self.limits.ns {
            self.ended.get_or_insert(EndReason::Time);
            return;
        }
        let bytes = line_bytes(event);
        if self.ended.is_none() && !self.reserve(bytes, is_packet) {
            self.ended = Some(EndReason::Full);
        }
        if self.ended.is_some() {
            self.missed += u64::from(is_packet);
            return;
        }
        self.packets += u64::from(is_packet);
        let passed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let before = self.text.len();
        // Writing to a string does not fail.
        let _ = write_line(&mut self.text, passed, event);
        let left = bytes - (self.text.len() - before) as u64;
        self.taken.bytes.fetch_sub(left, Relaxed);
    }

    /// Reserves room for a line of that many bytes. False if the recording is full.
    fn reserve(&self, bytes: u64, is_packet: bool) -> bool {
        let SharedUsage { packets, bytes: of_bytes } = &*self.taken;
        let more = |limit: u64, n: u64| move |taken: u64| (taken + n <= limit).then_some(taken + n);
        if of_bytes.fetch_update(Relaxed, Relaxed, more(self.limits.bytes as u64, bytes)).is_err() {
            return false;
        }
        let has_place =
            !is_packet || packets.fetch_update(Relaxed, Relaxed, more(self.limits.packets, 1)).is_ok();
        if !has_place {
            of_bytes.fetch_sub(bytes, Relaxed);
        }
        has_place
    }
}

/// Returns the upper bound of the length of an operation's line.
fn line_bytes(event: &QueueEvent) -> u64 {
    /// The longest line of an operation without a list.
    const LINE_BYTES: u64 = 320;
    /// A number and a space.
    const NUMBER_BYTES: u64 = 21;
    match event {
        QueueEvent::Refilled(numbers) => LINE_BYTES + NUMBER_BYTES * numbers.len() as u64,
        _ => LINE_BYTES,
    }
}

/// Writes the line of an operation, `passed` nanoseconds after the one before.
fn write_line(text: &mut String, passed: u64, event: &QueueEvent) -> fmt::Result {
    let with_numbers = |text: &mut String, letter: char, numbers: &[u64]| {
        write!(text, "{letter} {passed}")?;
        numbers.iter().try_for_each(|number| write!(text, " {number}"))?;
        writeln!(text)
    };
    match event {
        QueueEvent::Dequeue => with_numbers(text, 'd', &[]),
        QueueEvent::Timeout => with_numbers(text, 't', &[]),
        QueueEvent::Rate(rate) => with_numbers(text, 'r', &[*rate]),
        QueueEvent::Left(number) => with_numbers(text, 'l', &[*number]),
        QueueEvent::Path(events) => with_numbers(text, 'w', &[events.bits()]),
        QueueEvent::Refilled(numbers) => with_numbers(text, 'f', numbers),
        QueueEvent::Enqueue(packet) => {
            let words = words_of(packet);
            let n = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            with_numbers(text, 'e', &words[..n])
        }
    }
}

impl PathEvents {
    /// Each event with its name, in the order of its bits.
    pub fn named(self) -> [(bool, &'static str); 4] {
        [
            (self.is_lost, "lost"),
            (self.is_duplicated, "duplicated"),
            (self.is_corrupted, "corrupted"),
            (self.is_reordered, "reordered"),
        ]
    }

    /// Whether no event occurred.
    pub fn is_plain(self) -> bool {
        self == Self::default()
    }

    fn bits(self) -> u64 {
        self.named().into_iter().enumerate().map(|(at, (is, _))| u64::from(is) << at).sum()
    }

    /// Decodes the bits of path events. None if they are no valid combination.
    fn from_bits(bits: u64) -> Option<Self> {
        let bit = |at: u32| bits >> at & 1 == 1;
        let events =
            Self { is_lost: bit(0), is_duplicated: bit(1), is_corrupted: bit(2), is_reordered: bit(3) };
        (events.bits() == bits && !events.is_plain()).then_some(events)
    }
}

impl RecordingProgress {
    /// The combined progress of two recorders of one link.
    pub fn and(self, other: Self) -> Self {
        let ended = match (self.ended, other.ended) {
            // The shared limit applies to both.
            (Some(EndReason::Full), _) | (_, Some(EndReason::Full)) => Some(EndReason::Full),
            (Some(EndReason::Replaced), _) | (_, Some(EndReason::Replaced)) => Some(EndReason::Replaced),
            (Some(EndReason::Time), Some(EndReason::Time)) => Some(EndReason::Time),
            _ => None,
        };
        Self {
            ns: self.ns.max(other.ns),
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            missed: self.missed + other.missed,
            ended,
        }
    }
}

/// Replays an operation on a queue; returns the packet that leaves. The handles of packets are their numbers.
///
/// # Errors
/// It names a packet that is not in the queue.
pub fn ask<C: QueueCode>(
    queue: &mut Queue<C>,
    now_ns: u64,
    event: &QueueEvent,
) -> Result<Option<Sent>, &'static str> {
    match event {
        QueueEvent::Enqueue(packet) => queue.enqueue(packet, now_ns),
        QueueEvent::Dequeue => return Ok(queue.dequeue(now_ns)),
        QueueEvent::Timeout => queue.handle_timeout(now_ns),
        QueueEvent::Rate(rate) => queue.set_rate(*rate),
        QueueEvent::Left(_) | QueueEvent::Path(_) => {}
        QueueEvent::Refilled(numbers) => {
            let mut all: BTreeMap<u64, (Packet, u64)> =
                queue.take_all().into_iter().map(|one| (one.0.handle, one)).collect();
            let stay: Option<Vec<_>> = numbers.iter().map(|number| all.remove(number)).collect();
            queue.adopt(&stay.ok_or("it names a packet that does not wait")?);
        }
    }
    Ok(None)
}

/// Reads the state of the queue at the start of the recording, if it was running. Also returns the number of lines
/// that the state takes, and the text of the operations behind it.
///
/// # Errors
/// The first of these lines that cannot be read.
pub fn read_snapshot(text: &str) -> Result<(Option<Snapshot>, usize, &str), RecordingError> {
    let (mut snapshot, mut n, mut rest) = (Snapshot::default(), 0, text);
    while rest.starts_with(|first: char| first.is_ascii_uppercase()) {
        let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
        let fault = |why| RecordingError { line: n + 1, why };
        let mut words = line.split(' ');
        let head = words.next().unwrap_or_default();
        let (kind, _) =
            RowKind::ALL.into_iter().find(|(_, letter)| *letter == head).ok_or(fault("it is no row"))?;
        let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
        snapshot.rows.push((kind, numbers.map_err(|_| fault("a word is no number"))?));
        (n, rest) = (n + 1, behind);
    }
    Ok(((n > 0).then_some(snapshot), n, rest))
}

/// Reads the operations of a recording with their times, from its start.
///
/// # Errors
/// Each line that cannot be read.
pub fn read(text: &str, begun_ns: u64) -> impl Iterator<Item = Result<(u64, QueueEvent), RecordingError>> {
    let mut now_ns = begun_ns;
    text.lines().enumerate().map(move |(nth, line)| {
        let fault = |why| RecordingError { line: nth + 1, why };
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let mut number = || match words.next() {
            None => Ok(None),
            Some(word) => word.parse::<u64>().map(Some).map_err(|_| fault("a word is no number")),
        };
        let passed = number()?.ok_or_else(|| fault("it has no time"))?;
        let is_time = |at: &u64| *at <= i64::MAX as u64;
        now_ns = now_ns.checked_add(passed).filter(is_time).ok_or_else(|| fault("the time is too long"))?;
        let event = match kind {
            "d" => QueueEvent::Dequeue,
            "t" => QueueEvent::Timeout,
            "r" => QueueEvent::Rate(number()?.ok_or_else(|| fault("it has no rate"))?),
            "l" => QueueEvent::Left(number()?.ok_or_else(|| fault("it names no packet"))?),
            "f" => {
                QueueEvent::Refilled(core::iter::from_fn(|| number().transpose()).collect::<Result<_, _>>()?)
            }
            "e" => {
                let mut found = [0; WORDS];
                for word in &mut found {
                    *word = number()?.unwrap_or(0);
                }
                QueueEvent::Enqueue(
                    packet_of(&found).ok_or_else(|| fault("a number is too great for its place"))?,
                )
            }
            "w" => QueueEvent::Path(
                number()?.and_then(PathEvents::from_bits).ok_or_else(|| fault("it says nothing"))?,
            ),
            _ => return Err(fault("it begins with none of e, d, t, r, l, f, w")),
        };
        match number()? {
            None => Ok((now_ns, event)),
            Some(_) => Err(fault("it has too many numbers")),
        }
    })
}

fn letter(kind: RowKind) -> &'static str {
    RowKind::ALL.iter().find(|(known, _)| *known == kind).map_or("", |(_, letter)| letter)
}

/// The numbers of a packet. Default values are 0: slack and deadline are stored as the bits that differ from the
/// default.
const WORDS: usize = 11 + HEADERS_MAX;

/// Returns the words of a packet as they are recorded.
fn words_of(packet: &Packet) -> [u64; WORDS] {
    let [a, b, c, d] = packet.headers;
    [
        packet.len.into(),
        packet.ecn.into(),
        packet.dscp.into(),
        packet.flow.into(),
        packet.src.into(),
        packet.dst.into(),
        packet.class.into(),
        packet.remaining,
        (packet.slack_ns ^ FAR_NS) as u64,
        packet.deadline_ns ^ NEVER_DUE_NS,
        a,
        b,
        c,
        d,
        packet.framing.into(),
    ]
}

/// Decodes the words of a recorded packet. None if a word does not fit its field.
fn packet_of(words: &[u64; WORDS]) -> Option<Packet> {
    let [len, ecn, dscp, flow, src, dst, class, remaining, slack, deadline, a, b, c, d, framing] = *words;
    Some(Packet {
        handle: 0,
        len: len.try_into().ok()?,
        ecn: u8::try_from(ecn).ok().filter(|ecn| *ecn < 4)?,
        dscp: u8::try_from(dscp).ok().filter(|dscp| *dscp < 64)?,
        flow: flow.try_into().ok()?,
        src: src.try_into().ok()?,
        dst: dst.try_into().ok()?,
        class: class.try_into().ok()?,
        remaining,
        slack_ns: slack as i64 ^ FAR_NS,
        deadline_ns: deadline ^ NEVER_DUE_NS,
        headers: [a, b, c, d],
        framing: framing.try_into().ok()?,
    })
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl core::error::Error for RecordingError {}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    /// If it failed, `link explain` would show another run than the recorded one.
    #[test]
    fn recording_round_trips() {
        let mut recorder = Recorder::new(1_000, 7, Limits::NONE);
        let packet = Packet {
            len: 1500,
            ecn: 3,
            dscp: 63,
            flow: u32::MAX,
            slack_ns: -1,
            headers: [0, 7, 0, u64::MAX],
            framing: 18,
            ..Packet::default()
        };
        let event = [
            (1_000, QueueEvent::Enqueue(packet)),
            (1_000, QueueEvent::Dequeue),
            (5_000, QueueEvent::Rate(u64::MAX)),
            (5_001, QueueEvent::Timeout),
            (5_001, QueueEvent::Left(1)),
            (5_001, QueueEvent::Path(PathEvents { is_lost: true, ..PathEvents::default() })),
            (
                5_001,
                QueueEvent::Path(PathEvents {
                    is_duplicated: true,
                    is_reordered: true,
                    ..PathEvents::default()
                }),
            ),
            (5_001, QueueEvent::Refilled(vec![0, 2])),
            (5_001, QueueEvent::Refilled(Vec::new())),
            (9_000, QueueEvent::Enqueue(Packet { len: 60, ..Packet::default() })),
        ];
        event.iter().for_each(|(now, event)| recorder.note(*now, event));
        let found: Result<Vec<_>, _> = read(recorder.text(), 1_000).collect();
        assert_eq!(found, Ok(event.to_vec()));
        assert!(recorder.text().ends_with("e 3999 60\n"), "{}", recorder.text());
        let text = recorder.text().to_owned();
        recorder.end();
        recorder.note(9_001, &QueueEvent::Dequeue);
        assert_eq!(recorder.progress(9_001).ended, Some(EndReason::Replaced));
        assert_eq!(recorder.text(), text);
    }

    /// If it failed, a recording would use all memory, or end without counting what it misses.
    #[test]
    fn limits_hold_and_misses_are_counted() {
        let packet = QueueEvent::Enqueue(Packet { len: 1500, ..Packet::default() });
        let fill = |limits: Limits| {
            let mut recorder = Recorder::new(0, 0, limits);
            (0..1_000_u64).for_each(|nth| recorder.note(nth * 10, &packet));
            (recorder.progress(10_000), recorder.text().lines().count())
        };
        let (progress, n) = fill(Limits { packets: 10, ..Limits::NONE });
        assert_eq!(
            (progress.packets, progress.missed, progress.ended, n),
            (10, 990, Some(EndReason::Full), 10)
        );
        let (progress, n) = fill(Limits { bytes: 1_000, ..Limits::NONE });
        assert!(progress.bytes <= 1_000 && n > 50 && progress.missed == 1_000 - n as u64, "{progress:?}");
        let (progress, n) = fill(Limits { ns: 99, ..Limits::NONE });
        assert_eq!(
            (progress.packets, progress.missed, progress.ended, n),
            (10, 0, Some(EndReason::Time), 10)
        );
        // Two workers with different loads.
        let limits = Limits { packets: 10, bytes: 10_000, ..Limits::NONE };
        let taken = Arc::default();
        let mut both = [0; 2].map(|_| Recorder::new(0, 0, limits).sharing(&taken));
        (0..30_u64).for_each(|nth| both[usize::from(nth % 3 == 0)].note(nth, &packet));
        let [busy, other] = both.map(|recorder| recorder.progress(100));
        assert_eq!((busy.packets, other.packets), (6, 4));
        let sum = busy.and(other);
        assert_eq!((sum.packets, sum.missed, sum.ended), (10, 20, Some(EndReason::Full)));
        assert_eq!(taken.bytes.load(Relaxed), sum.bytes as u64);
        let quiet = Recorder::new(5, 0, Limits { ns: 10, ..Limits::NONE });
        assert_eq!((quiet.progress(14).ended, quiet.progress(15).ended), (None, Some(EndReason::Time)));
    }

    /// If it failed, a damaged file would end the command.
    #[test]
    fn damaged_line_is_named_by_number() {
        let message = |text| read(text, 0).find_map(Result::err).expect("it is wrong").to_string();
        assert_eq!(message("d 1\nx 1\n"), "line 2: it begins with none of e, d, t, r, l, f, w");
        assert_eq!(message("d\n"), "line 1: it has no time");
        assert_eq!(message("d one\n"), "line 1: a word is no number");
        assert_eq!(message("d 1 2\n"), "line 1: it has too many numbers");
        assert_eq!(message("r 1\n"), "line 1: it has no rate");
        assert_eq!(message("l 1\n"), "line 1: it names no packet");
        assert_eq!(message("f 1 0 x\n"), "line 1: a word is no number");
        assert_eq!(message("e 1 1500 4\n"), "line 1: a number is too great for its place");
        assert_eq!(message("d 9223372036854775807\nd 1\n"), "line 2: the time is too long");
        let rows = |text| read_snapshot(text).err().map(|error| error.to_string());
        assert_eq!(rows("E 1 2\nX 1\n").as_deref(), Some("line 2: it is no row"));
        assert_eq!(rows("E 1 2\nP one\n").as_deref(), Some("line 2: a word is no number"));
        let mut rng = Rng::from_seed(3);
        for _ in 0..2_000 {
            let mut bytes = b"e 10 1500 2 0 77 5 6\nd 100\nt 5\nr 1 15000000\nl 1 0\nf 1 1 2\n".to_vec();
            for _ in 0..=rng.below(4) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.pick(b"0123456789\n edtrlfw-.\xff");
            }
            let _ = read(&String::from_utf8_lossy(&bytes), 0).count();
        }
    }
}
