//! What a queue was asked, written down: the same questions give the same answers again.
//!
//! A [`Recorder`] stands beside a queue and notes each call in a line of text. Chance follows from a seed and time
//! comes with each call, so that the program, the seed and these lines are all that there is to know: whoever asks a
//! new queue the same finds each packet, each drop and each value of a variable again.
//!
//! | line | what it says |
//! | --- | --- |
//! | `e T LEN ECN DSCP FLOW SRC DST CLASS REMAINING SLACK DEADLINE` | a packet came; zeros at the end are left out |
//! | `d T` | the next packet was asked for |
//! | `t T` | the clock was asked about |
//! | `r T RATE` | the link has so many bits a second from now on |
//!
//! `T` is in nanoseconds since the line before.

use crate::queue::Packet;
use core::fmt::{self, Write as _};

/// Bytes that a recorder keeps at most; it stops then.
pub const RECORDING_BYTES_MAX: usize = 256 << 20;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A packet came. Its handle is not kept.
    Enqueue(Packet),
    /// The next packet was asked for.
    Dequeue,
    /// The clock was asked about.
    Timeout,
    /// The rate changed.
    Rate(u64),
}

/// Calls, noted as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorder {
    text: String,
    begun_ns: u64,
    last_ns: u64,
    seed: u64,
    is_cut: bool,
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
    pub fn new(begun_ns: u64, seed: u64) -> Self {
        Self { begun_ns, last_ns: begun_ns, seed, ..Self::default() }
    }

    /// When the queue began, in nanoseconds of its clock, and its seed.
    pub fn begun(&self) -> (u64, u64) {
        (self.begun_ns, self.seed)
    }

    /// It was full, or its queue was replaced: what came later is not in it.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The lines.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Notes nothing any more.
    pub fn end(&mut self) {
        self.is_cut = true;
    }

    /// Notes a call.
    pub fn note(&mut self, now_ns: u64, asked: &Asked) {
        /// The longest line.
        const LINE_BYTES: usize = 192;
        if self.text.len() + LINE_BYTES > RECORDING_BYTES_MAX {
            self.is_cut = true;
        }
        if self.is_cut {
            return;
        }
        let passed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let text = &mut self.text;
        // Writing to a text does not fail.
        let _ = match asked {
            Asked::Dequeue => writeln!(text, "d {passed}"),
            Asked::Timeout => writeln!(text, "t {passed}"),
            Asked::Rate(rate) => writeln!(text, "r {passed} {rate}"),
            Asked::Enqueue(packet) => {
                let words = words_of(packet);
                let n = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
                let _ = write!(text, "e {passed}");
                words[..n].iter().for_each(|word| {
                    let _ = write!(text, " {word}");
                });
                writeln!(text)
            }
        };
    }
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
        now_ns = now_ns.checked_add(passed).ok_or_else(|| fault("the time is too long"))?;
        let asked = match kind {
            "d" => Asked::Dequeue,
            "t" => Asked::Timeout,
            "r" => Asked::Rate(number()?.ok_or_else(|| fault("it has no rate"))?),
            "e" => {
                let mut found = [0; WORDS];
                for word in &mut found {
                    *word = number()?.unwrap_or(0);
                }
                Asked::Enqueue(packet_of(&found).ok_or_else(|| fault("a number is too great for its place"))?)
            }
            _ => return Err(fault("it begins with none of e, d, t, r")),
        };
        match number()? {
            None => Ok((now_ns, asked)),
            Some(_) => Err(fault("it has too many numbers")),
        }
    })
}

/// Numbers that a packet is told by.
const WORDS: usize = 10;

fn words_of(packet: &Packet) -> [u64; WORDS] {
    [
        packet.len.into(),
        packet.ecn.into(),
        packet.dscp.into(),
        packet.flow.into(),
        packet.src.into(),
        packet.dst.into(),
        packet.class.into(),
        packet.remaining,
        packet.slack_ns as u64,
        packet.deadline_ns,
    ]
}

fn packet_of(words: &[u64; WORDS]) -> Option<Packet> {
    let [len, ecn, dscp, flow, src, dst, class, remaining, slack, deadline_ns] = *words;
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
        slack_ns: slack as i64,
        deadline_ns,
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
    use weft_core::dice::Dice;

    /// What is explained would be another run than the one that was recorded.
    #[test]
    fn what_is_noted_is_read_again() {
        let mut recorder = Recorder::new(1_000, 7);
        let packet =
            Packet { len: 1500, ecn: 3, dscp: 63, flow: u32::MAX, slack_ns: -1, ..Packet::default() };
        let asked = [
            (1_000, Asked::Enqueue(packet)),
            (1_000, Asked::Dequeue),
            (5_000, Asked::Rate(u64::MAX)),
            (5_001, Asked::Timeout),
            (9_000, Asked::Enqueue(Packet { len: 60, ..Packet::default() })),
        ];
        asked.iter().for_each(|(now, asked)| recorder.note(*now, asked));
        let found: Result<Vec<_>, _> = read(recorder.text(), 1_000).collect();
        assert_eq!(found, Ok(asked.to_vec()));
        assert!(recorder.text().ends_with("e 3999 60\n"), "{}", recorder.text());
        let text = recorder.text().to_owned();
        recorder.end();
        recorder.note(9_001, &Asked::Dequeue);
        assert!(recorder.is_cut() && recorder.text() == text);
    }

    /// A file that somebody damaged would end the command.
    #[test]
    fn damaged_lines_are_told_by_number() {
        let told = |text| read(text, 0).find_map(Result::err).expect("it is wrong").to_string();
        assert_eq!(told("d 1\nx 1\n"), "line 2: it begins with none of e, d, t, r");
        assert_eq!(told("d\n"), "line 1: it has no time");
        assert_eq!(told("d one\n"), "line 1: a word is no number");
        assert_eq!(told("d 1 2\n"), "line 1: it has too many numbers");
        assert_eq!(told("r 1\n"), "line 1: it has no rate");
        assert_eq!(told("e 1 1500 4\n"), "line 1: a number is too great for its place");
        assert_eq!(told("d 18446744073709551615\nd 1\n"), "line 2: the time is too long");
        let mut dice = Dice::from_seed(3);
        for _ in 0..2_000 {
            let mut bytes = b"e 10 1500 2 0 77 5 6\nd 100\nt 5\nr 1 15000000\n".to_vec();
            for _ in 0..=dice.below(4) {
                let at = dice.below(bytes.len());
                bytes[at] = dice.pick(b"0123456789\n edtr-.\xff");
            }
            let _ = read(&String::from_utf8_lossy(&bytes), 0).count();
        }
    }
}
