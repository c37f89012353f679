//! What a queue was asked, written down: the same questions give the same answers again.
//!
//! A [`Recorder`] stands beside a queue and notes each call in a line of text. Chance follows from a seed and time
//! comes with each call, so that the program, the seed and these lines are all that there is to know: whoever asks a
//! new queue the same finds each packet, each drop and each value of a variable again.
//!
//! A recorder may begin while the queue runs: what the queue remembers then ([`Snapshot`]) stands in front of the
//! calls, a row a line.
//!
//! Where several workers each have a queue of a link, each has a recorder, and they share what the limits leave
//! ([`Taken`]).
//!
//! | line | what it says |
//! | --- | --- |
//! | `E`, `N`, `P`, `Q`, `O`, `H`, `S`, `T`, `U`, and numbers | a row of the snapshot, as [`Kind`] has them |
//! | `e T LEN ECN DSCP FLOW SRC DST CLASS REMAINING SLACK DEADLINE HEADERS FRAMING` | a packet, without last zeros |
//! | `d T` | the next packet was asked for |
//! | `t T` | the clock was asked about |
//! | `r T RATE` | the link has so many bits a second from now on |
//! | `l T N` | packet `N` waits no longer, and stays in the queue until its turn |
//! | `f T N N ...` | the queue was emptied, and filled anew with these packets in this order |
//! | `w T WHAT` | on the way behind the link something happened to the packet that left last: [`PathEvents`] |
//!
//! `T` is in nanoseconds since the line before, `N` the number of a packet: the one that came first is 0.

use crate::queue::snapshot::{Kind, Snapshot};
use crate::queue::{FAR_NS, NEVER_DUE_NS, Packet, Queue, QueueCode, Sent};
use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_ir::queue::HEADERS_MAX;

/// Bytes that a recorder keeps at most; it stops then.
pub const RECORDING_BYTES_MAX: usize = 256 << 20;

/// How long a recorder notes, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nanoseconds from its beginning on.
    pub ns: u64,
    /// Packets that come.
    pub packets: u64,
    /// Bytes of text, [`RECORDING_BYTES_MAX`] at most.
    pub bytes: usize,
}

impl Limits {
    /// As long as there is room.
    pub const NONE: Self = Self { ns: u64::MAX, packets: u64::MAX, bytes: RECORDING_BYTES_MAX };
}

/// What recorders of one link have taken of their limits, all together.
#[derive(Debug, Default)]
pub struct Taken {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// Why a recorder notes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time is over.
    Time,
    /// It has as many packets, or bytes, as it may.
    Full,
    /// Its queue was replaced.
    Replaced,
}

/// How far a recorder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Nanoseconds from its beginning to the last call.
    pub ns: u64,
    /// Packets that came.
    pub packets: u64,
    /// Bytes of text.
    pub bytes: usize,
    /// Packets that came in its time behind its end, and are not in it.
    pub missed: u64,
    /// It notes no more, as its clock was read last.
    pub ended: Option<Ended>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A packet came. Its handle is not kept: whoever asks again gives it its number.
    Enqueue(Packet),
    /// The next packet was asked for.
    Dequeue,
    /// The clock was asked about.
    Timeout,
    /// The rate changed.
    Rate(u64),
    /// The packet with this number waits no longer. The queue was not told.
    Left(u64),
    /// All packets were taken out, and those with these numbers put in again.
    Refilled(Vec<u64>),
    /// Something happened to the packet that left last. The queue was not told.
    Path(PathEvents),
}

/// What happened to a packet on the way behind an emulated link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathEvents {
    /// It was lost: bit 0 of the number in a recording.
    pub is_lost: bool,
    /// It arrived twice: bit 1.
    pub is_duplicated: bool,
    /// One of its bits was flipped: bit 2.
    pub is_corrupted: bool,
    /// It was held up so that later ones overtook it: bit 3.
    pub is_reordered: bool,
}

/// Calls, noted as they come.
#[derive(Debug)]
pub struct Recorder {
    text: String,
    begun_ns: u64,
    last_ns: u64,
    seed: u64,
    limits: Limits,
    taken: Arc<Taken>,
    packets: u64,
    missed: u64,
    ended: Option<Ended>,
}

/// A line that cannot be read: which, counted from 1, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError {
    /// The line.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Recorder {
    /// Of a queue that begins now with this seed.
    pub fn new(begun_ns: u64, seed: u64, limits: Limits) -> Self {
        let limits = Limits { bytes: limits.bytes.min(RECORDING_BYTES_MAX), ..limits };
        let (text, last_ns, taken) = (String::new(), begun_ns, Arc::default());
        Self { text, begun_ns, last_ns, seed, limits, taken, packets: 0, missed: 0, ended: None }
    }

    /// Of a queue that has been running, and remembers this.
    pub fn resuming(begun_ns: u64, snapshot: &Snapshot, limits: Limits) -> Self {
        let mut recorder = Self::new(begun_ns, 0, limits);
        for (kind, numbers) in &snapshot.rows {
            // Writing to a text does not fail.
            let _ = write!(recorder.text, "{}", letter(*kind));
            numbers.iter().for_each(|number| {
                let _ = write!(recorder.text, " {number}");
            });
            recorder.text.push('\n');
        }
        recorder.taken.bytes.fetch_add(recorder.text.len() as u64, Relaxed);
        recorder
    }

    /// The same, with limits that hold for all recorders that take of the same.
    pub fn sharing(mut self, taken: &Arc<Taken>) -> Self {
        taken.bytes.fetch_add(self.text.len() as u64, Relaxed);
        taken.packets.fetch_add(self.packets, Relaxed);
        self.taken = Arc::clone(taken);
        self
    }

    /// When the recording began, in nanoseconds of the queue's clock, and the seed of a queue that began then.
    pub fn begun(&self) -> (u64, u64) {
        (self.begun_ns, self.seed)
    }

    /// How far it is at this time.
    pub fn progress(&self, now_ns: u64) -> Progress {
        let is_over = now_ns.saturating_sub(self.begun_ns) >= self.limits.ns;
        Progress {
            ns: self.last_ns - self.begun_ns,
            packets: self.packets,
            bytes: self.text.len(),
            missed: self.missed,
            ended: self.ended.or(is_over.then_some(Ended::Time)),
        }
    }

    /// The lines.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Notes nothing any more: the queue is another.
    pub fn end(&mut self) {
        self.ended.get_or_insert(Ended::Replaced);
    }

    /// Notes a call.
    pub fn note(&mut self, now_ns: u64, asked: &Asked) {
        let is_packet = matches!(asked, Asked::Enqueue(_));
        if now_ns.saturating_sub(self.begun_ns) > self.limits.ns {
            self.ended.get_or_insert(Ended::Time);
            return;
        }
        let bytes = line_bytes(asked);
        if self.ended.is_none() && !self.take(bytes, is_packet) {
            self.ended = Some(Ended::Full);
        }
        if self.ended.is_some() {
            self.missed += u64::from(is_packet);
            return;
        }
        self.packets += u64::from(is_packet);
        let passed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let before = self.text.len();
        // Writing to a text does not fail.
        let _ = write_line(&mut self.text, passed, asked);
        let left = bytes - (self.text.len() - before) as u64;
        self.taken.bytes.fetch_sub(left, Relaxed);
    }

    /// Takes room for a line of so many bytes, if there is any.
    fn take(&self, bytes: u64, is_packet: bool) -> bool {
        let Taken { packets, bytes: of_bytes } = &*self.taken;
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

/// The most that the line of a call takes.
fn line_bytes(asked: &Asked) -> u64 {
    /// The longest line of what is no list.
    const LINE_BYTES: u64 = 320;
    /// A number, with the space in front of it.
    const NUMBER_BYTES: u64 = 21;
    match asked {
        Asked::Refilled(numbers) => LINE_BYTES + NUMBER_BYTES * numbers.len() as u64,
        _ => LINE_BYTES,
    }
}

fn write_line(text: &mut String, passed: u64, asked: &Asked) -> fmt::Result {
    let with_numbers = |text: &mut String, letter: char, numbers: &[u64]| {
        write!(text, "{letter} {passed}")?;
        numbers.iter().try_for_each(|number| write!(text, " {number}"))?;
        writeln!(text)
    };
    match asked {
        Asked::Dequeue => with_numbers(text, 'd', &[]),
        Asked::Timeout => with_numbers(text, 't', &[]),
        Asked::Rate(rate) => with_numbers(text, 'r', &[*rate]),
        Asked::Left(number) => with_numbers(text, 'l', &[*number]),
        Asked::Path(events) => with_numbers(text, 'w', &[events.bits()]),
        Asked::Refilled(numbers) => with_numbers(text, 'f', numbers),
        Asked::Enqueue(packet) => {
            let words = words_of(packet);
            let n = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            with_numbers(text, 'e', &words[..n])
        }
    }
}

impl PathEvents {
    /// Each by its name, in the order of its bits.
    pub fn named(self) -> [(bool, &'static str); 4] {
        [
            (self.is_lost, "lost"),
            (self.is_duplicated, "duplicated"),
            (self.is_corrupted, "corrupted"),
            (self.is_reordered, "reordered"),
        ]
    }

    /// Nothing happened to it.
    pub fn is_plain(self) -> bool {
        self == Self::default()
    }

    fn bits(self) -> u64 {
        self.named().into_iter().enumerate().map(|(at, (is, _))| u64::from(is) << at).sum()
    }

    fn of_bits(bits: u64) -> Option<Self> {
        let bit = |at: u32| bits >> at & 1 == 1;
        let events =
            Self { is_lost: bit(0), is_duplicated: bit(1), is_corrupted: bit(2), is_reordered: bit(3) };
        (events.bits() == bits && !events.is_plain()).then_some(events)
    }
}

impl Progress {
    /// How far two recorders of one link are.
    pub fn and(self, other: Self) -> Self {
        let ended = match (self.ended, other.ended) {
            // What one has no room for, the other has not.
            (Some(Ended::Full), _) | (_, Some(Ended::Full)) => Some(Ended::Full),
            (Some(Ended::Replaced), _) | (_, Some(Ended::Replaced)) => Some(Ended::Replaced),
            (Some(Ended::Time), Some(Ended::Time)) => Some(Ended::Time),
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

/// Asks a queue what another was asked; what leaves it. The handles of its packets are their numbers.
///
/// # Errors
/// It names a packet that is not in the queue.
pub fn ask<C: QueueCode>(
    queue: &mut Queue<C>,
    now_ns: u64,
    asked: &Asked,
) -> Result<Option<Sent>, &'static str> {
    match asked {
        Asked::Enqueue(packet) => queue.enqueue(packet, now_ns),
        Asked::Dequeue => return Ok(queue.dequeue(now_ns)),
        Asked::Timeout => queue.handle_timeout(now_ns),
        Asked::Rate(rate) => queue.set_rate(*rate),
        Asked::Left(_) | Asked::Path(_) => {}
        Asked::Refilled(numbers) => {
            let mut all: BTreeMap<u64, (Packet, u64)> =
                queue.take_all().into_iter().map(|one| (one.0.handle, one)).collect();
            let stay: Option<Vec<_>> = numbers.iter().map(|number| all.remove(number)).collect();
            queue.adopt(&stay.ok_or("it names a packet that does not wait")?);
        }
    }
    Ok(None)
}

/// What the queue remembered when the recording began, if it had been running; how many lines that took, and the text
/// of the calls behind them.
///
/// # Errors
/// Of the first of these lines that cannot be read.
pub fn read_snapshot(text: &str) -> Result<(Option<Snapshot>, usize, &str), RecordingError> {
    let (mut snapshot, mut n, mut rest) = (Snapshot::default(), 0, text);
    while rest.starts_with(|first: char| first.is_ascii_uppercase()) {
        let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
        let fault = |why| RecordingError { line: n + 1, why };
        let mut words = line.split(' ');
        let head = words.next().unwrap_or_default();
        let (kind, _) =
            Kind::ALL.into_iter().find(|(_, letter)| *letter == head).ok_or(fault("it is no row"))?;
        let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
        snapshot.rows.push((kind, numbers.map_err(|_| fault("a word is no number"))?));
        (n, rest) = (n + 1, behind);
    }
    Ok(((n > 0).then_some(snapshot), n, rest))
}

/// The calls of a recording, with their times, from the time at which it begins.
///
/// # Errors
/// Of each line that cannot be read.
pub fn read(text: &str, begun_ns: u64) -> impl Iterator<Item = Result<(u64, Asked), RecordingError>> {
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
        let asked = match kind {
            "d" => Asked::Dequeue,
            "t" => Asked::Timeout,
            "r" => Asked::Rate(number()?.ok_or_else(|| fault("it has no rate"))?),
            "l" => Asked::Left(number()?.ok_or_else(|| fault("it names no packet"))?),
            "f" => Asked::Refilled(core::iter::from_fn(|| number().transpose()).collect::<Result<_, _>>()?),
            "e" => {
                let mut found = [0; WORDS];
                for word in &mut found {
                    *word = number()?.unwrap_or(0);
                }
                Asked::Enqueue(packet_of(&found).ok_or_else(|| fault("a number is too great for its place"))?)
            }
            "w" => {
                Asked::Path(number()?.and_then(PathEvents::of_bits).ok_or_else(|| fault("it says nothing"))?)
            }
            _ => return Err(fault("it begins with none of e, d, t, r, l, f, w")),
        };
        match number()? {
            None => Ok((now_ns, asked)),
            Some(_) => Err(fault("it has too many numbers")),
        }
    })
}

fn letter(kind: Kind) -> &'static str {
    Kind::ALL.iter().find(|(known, _)| *known == kind).map_or("", |(_, letter)| letter)
}

/// Numbers that a packet is told by. What nobody says is 0: of slack and deadline those bits are told that are others
/// then.
const WORDS: usize = 11 + HEADERS_MAX;

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

    /// What is explained would be another run than the one that was recorded.
    #[test]
    fn what_is_noted_is_read_again() {
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
        let asked = [
            (1_000, Asked::Enqueue(packet)),
            (1_000, Asked::Dequeue),
            (5_000, Asked::Rate(u64::MAX)),
            (5_001, Asked::Timeout),
            (5_001, Asked::Left(1)),
            (5_001, Asked::Path(PathEvents { is_lost: true, ..PathEvents::default() })),
            (
                5_001,
                Asked::Path(PathEvents { is_duplicated: true, is_reordered: true, ..PathEvents::default() }),
            ),
            (5_001, Asked::Refilled(vec![0, 2])),
            (5_001, Asked::Refilled(Vec::new())),
            (9_000, Asked::Enqueue(Packet { len: 60, ..Packet::default() })),
        ];
        asked.iter().for_each(|(now, asked)| recorder.note(*now, asked));
        let found: Result<Vec<_>, _> = read(recorder.text(), 1_000).collect();
        assert_eq!(found, Ok(asked.to_vec()));
        assert!(recorder.text().ends_with("e 3999 60\n"), "{}", recorder.text());
        let text = recorder.text().to_owned();
        recorder.end();
        recorder.note(9_001, &Asked::Dequeue);
        assert_eq!(recorder.progress(9_001).ended, Some(Ended::Replaced));
        assert_eq!(recorder.text(), text);
    }

    /// A recording would take all memory, or end without a word of what it lacks.
    #[test]
    fn limits_hold_and_what_is_missed_is_counted() {
        let packet = Asked::Enqueue(Packet { len: 1500, ..Packet::default() });
        let fill = |limits: Limits| {
            let mut recorder = Recorder::new(0, 0, limits);
            (0..1_000_u64).for_each(|nth| recorder.note(nth * 10, &packet));
            (recorder.progress(10_000), recorder.text().lines().count())
        };
        let (progress, n) = fill(Limits { packets: 10, ..Limits::NONE });
        assert_eq!((progress.packets, progress.missed, progress.ended, n), (10, 990, Some(Ended::Full), 10));
        let (progress, n) = fill(Limits { bytes: 1_000, ..Limits::NONE });
        assert!(progress.bytes <= 1_000 && n > 50 && progress.missed == 1_000 - n as u64, "{progress:?}");
        let (progress, n) = fill(Limits { ns: 99, ..Limits::NONE });
        assert_eq!((progress.packets, progress.missed, progress.ended, n), (10, 0, Some(Ended::Time), 10));
        // Two workers, of which one has more to do.
        let limits = Limits { packets: 10, bytes: 10_000, ..Limits::NONE };
        let taken = Arc::default();
        let mut both = [0; 2].map(|_| Recorder::new(0, 0, limits).sharing(&taken));
        (0..30_u64).for_each(|nth| both[usize::from(nth % 3 == 0)].note(nth, &packet));
        let [busy, other] = both.map(|recorder| recorder.progress(100));
        assert_eq!((busy.packets, other.packets), (6, 4));
        let sum = busy.and(other);
        assert_eq!((sum.packets, sum.missed, sum.ended), (10, 20, Some(Ended::Full)));
        assert_eq!(taken.bytes.load(Relaxed), sum.bytes as u64);
        let quiet = Recorder::new(5, 0, Limits { ns: 10, ..Limits::NONE });
        assert_eq!((quiet.progress(14).ended, quiet.progress(15).ended), (None, Some(Ended::Time)));
    }

    /// A file that somebody damaged would end the command.
    #[test]
    fn damaged_lines_are_told_by_number() {
        let told = |text| read(text, 0).find_map(Result::err).expect("it is wrong").to_string();
        assert_eq!(told("d 1\nx 1\n"), "line 2: it begins with none of e, d, t, r, l, f, w");
        assert_eq!(told("d\n"), "line 1: it has no time");
        assert_eq!(told("d one\n"), "line 1: a word is no number");
        assert_eq!(told("d 1 2\n"), "line 1: it has too many numbers");
        assert_eq!(told("r 1\n"), "line 1: it has no rate");
        assert_eq!(told("l 1\n"), "line 1: it names no packet");
        assert_eq!(told("f 1 0 x\n"), "line 1: a word is no number");
        assert_eq!(told("e 1 1500 4\n"), "line 1: a number is too great for its place");
        assert_eq!(told("d 9223372036854775807\nd 1\n"), "line 2: the time is too long");
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
