//! Links whose rate changes, as a list of the moments at which they can deliver 1500 bytes.
//!
//! The format, and its meaning, is that of Mahimahi (mm-link(1)): a line is a number, the millisecond of an opportunity
//! to deliver 1500 bytes. Several small packets share one; a large one takes several, and is through with the last. A
//! repeated line is another opportunity in that millisecond; the list begins anew at the time of its last line. What is
//! left of an opportunity when nothing waits is lost.

use core::fmt;

/// Opportunities that a trace may have: some 8 hours of an LTE link.
pub const OPPORTUNITIES_MAX: usize = 16 << 20;
/// The last millisecond that a line may name: a day.
pub const TRACE_MS_MAX: u32 = 86_400_000;

const NS_PER_MS: u64 = 1_000_000;
/// The bytes of an opportunity.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// Moments at which a link can deliver [`OPPORTUNITY_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds from the beginning, never going back. Not empty.
    at_ms: Vec<u32>,
    /// When the list begins anew; not 0.
    period_ms: u32,
}

/// A trace that cannot be used: the line, counted from 1, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line; 0 for the whole text.
    pub line: usize,
    /// What is wrong with it.
    pub why: TraceFault,
}

/// What is wrong with a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceFault {
    /// The line, shortened, is not a whole number.
    NotANumber(String),
    /// It goes back from the millisecond of the line before.
    GoesBack {
        /// Of the line before.
        from: u32,
        /// Of this one.
        to: u32,
    },
    /// It is beyond [`TRACE_MS_MAX`].
    TooLate,
    /// There are more than [`OPPORTUNITIES_MAX`].
    TooMany,
    /// There is no line, or all name millisecond 0: the list would have no length.
    NoLength,
}

/// A place in a trace that is repeated for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    next: usize,
    round: u64,
    /// Bytes of the next opportunity that are taken.
    taken: u32,
}

impl Trace {
    /// Reads a trace file.
    ///
    /// # Errors
    /// The first line that is not a number, goes back in time or is too late; a text without a length.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms: Vec<u32> = Vec::new();
        for (nth, line) in text.lines().enumerate() {
            let fault = |why| TraceError { line: nth + 1, why };
            let line = line.trim();
            if !line.bytes().all(|byte| byte.is_ascii_digit()) || line.is_empty() {
                return Err(fault(TraceFault::NotANumber(line.chars().take(32).collect())));
            }
            // Digits alone: what does not parse is too long.
            let to = line.parse().ok().filter(|ms| *ms <= TRACE_MS_MAX);
            let Some(to) = to else { return Err(fault(TraceFault::TooLate)) };
            let from = at_ms.last().copied().unwrap_or(0);
            if to < from {
                return Err(fault(TraceFault::GoesBack { from, to }));
            }
            if at_ms.len() == OPPORTUNITIES_MAX {
                return Err(fault(TraceFault::TooMany));
            }
            at_ms.push(to);
        }
        Self::new(at_ms).ok_or(TraceError { line: 0, why: TraceFault::NoLength })
    }

    /// Opportunities at these milliseconds, in order; none if the last is 0 or there is none, or one goes back.
    pub fn new(at_ms: Vec<u32>) -> Option<Self> {
        let is_ordered = at_ms.is_sorted();
        let period_ms = at_ms.last().copied().filter(|last| *last > 0 && is_ordered)?;
        Some(Self { at_ms, period_ms })
    }

    /// How many opportunities a second there are on average.
    pub fn rate(&self) -> f64 {
        self.at_ms.len() as f64 * 1e3 / f64::from(self.period_ms)
    }

    /// Bits a second on average.
    pub fn bits_per_s(&self) -> u64 {
        bits(self.rate())
    }

    /// Bits a second about this time, as [`Trace::rate_around`] has it.
    pub fn bits_per_s_around(&self, at_ns: u64) -> u64 {
        bits(self.rate_around(at_ns))
    }

    /// How many opportunities a second there are about this time of the first round, half a second each way.
    pub fn rate_around(&self, at_ns: u64) -> f64 {
        const HALF_MS: u32 = 500;
        let at_ms = ((at_ns % self.period_ns()) / NS_PER_MS) as u32;
        let (from, to) = (at_ms.saturating_sub(HALF_MS), (at_ms + HALF_MS).min(self.period_ms));
        let n = self.at_ms.partition_point(|ms| *ms <= to) - self.at_ms.partition_point(|ms| *ms < from);
        n as f64 * 1e3 / f64::from((to - from).max(1))
    }

    /// The milliseconds of all opportunities, in order.
    pub fn at_ms(&self) -> &[u32] {
        &self.at_ms
    }

    /// After how many nanoseconds the list begins anew.
    pub fn period_ns(&self) -> u64 {
        u64::from(self.period_ms) * NS_PER_MS
    }

    /// The first opportunity that has room left and is not before `now_ns`; those before are lost.
    pub fn next_at(&self, cursor: &mut Cursor, now_ns: u64) -> u64 {
        let round = now_ns / self.period_ns();
        // The last line of a round is at the time at which the next one begins, so that round is walked to its end.
        if round > cursor.round + 1 {
            *cursor = Cursor { next: 0, round: round - 1, taken: 0 };
        }
        loop {
            let Some(at_ms) = self.at_ms.get(cursor.next) else {
                *cursor = Cursor { next: 0, round: cursor.round + 1, taken: 0 };
                continue;
            };
            let at_ns = cursor.round * self.period_ns() + u64::from(*at_ms) * NS_PER_MS;
            if at_ns >= now_ns {
                return at_ns;
            }
            (cursor.next, cursor.taken) = (cursor.next + 1, 0);
        }
    }

    /// Takes room for a packet from `now_ns` on: when its last byte is delivered.
    pub fn take(&self, cursor: &mut Cursor, now_ns: u64, bytes: u32) -> u64 {
        let mut left = bytes;
        loop {
            let at_ns = self.next_at(cursor, now_ns);
            let fits = left.min(OPPORTUNITY_BYTES - cursor.taken);
            cursor.taken += fits;
            if cursor.taken == OPPORTUNITY_BYTES {
                (cursor.next, cursor.taken) = (cursor.next + 1, 0);
            }
            left -= fits;
            if left == 0 {
                return at_ns;
            }
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.why {
            TraceFault::NotANumber(line) => {
                write!(f, "`{}` is not a whole number of milliseconds", line.escape_debug())
            }
            TraceFault::GoesBack { from, to } => write!(f, "time goes back from {from} ms to {to} ms"),
            TraceFault::TooLate => write!(f, "no time beyond {TRACE_MS_MAX} ms, which is a day"),
            TraceFault::TooMany => write!(f, "more than {OPPORTUNITIES_MAX} opportunities"),
            TraceFault::NoLength => {
                f.write_str("the trace has no length: its last line must name a time above 0")
            }
        }
    }
}

impl core::error::Error for TraceError {}

/// The bits of so many opportunities.
fn bits(opportunities: f64) -> u64 {
    (opportunities * f64::from(OPPORTUNITY_BYTES * 8)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    fn times(trace: &Trace, n: usize) -> Vec<u64> {
        let mut cursor = Cursor::default();
        (0..n).map(|_| trace.take(&mut cursor, 0, OPPORTUNITY_BYTES) / NS_PER_MS).collect()
    }

    /// A trace would be played wrong: repeated lines are opportunities of their own, and the end is the beginning.
    #[test]
    fn a_trace_is_played_again_from_its_last_line() {
        let trace = Trace::parse("0\n5\n5\n10\n").unwrap();
        assert_eq!(times(&trace, 9), [0, 5, 5, 10, 10, 15, 15, 20, 20]);
        assert_eq!((trace.rate(), trace.period_ns()), (400.0, 10 * NS_PER_MS));
    }

    /// A link that was idle would send a burst of opportunities that it had saved up.
    #[test]
    fn opportunities_that_nobody_took_are_lost() {
        let trace = Trace::parse("0\n5\n5\n10\n").unwrap();
        let mut cursor = Cursor::default();
        assert_eq!(trace.next_at(&mut cursor, 6 * NS_PER_MS), 10 * NS_PER_MS);
        assert_eq!(trace.next_at(&mut cursor, 1_000_003 * NS_PER_MS), 1_000_005 * NS_PER_MS);
    }

    /// Small packets would each take as long as large ones, and large ones no longer: another link than in Mahimahi.
    #[test]
    fn packets_share_opportunities_of_1500_bytes() {
        let trace = Trace::parse("1\n2\n2\n10\n").unwrap();
        let sent = |sizes: &[u32]| {
            let mut cursor = Cursor::default();
            let mut free = 0;
            let mut send = |bytes: &u32| {
                free = trace.take(&mut cursor, free, *bytes);
                free / NS_PER_MS
            };
            sizes.iter().map(&mut send).collect::<Vec<_>>()
        };
        assert_eq!(sent(&[100; 16]), [vec![1; 15], vec![2]].concat());
        // The third begins in the second opportunity and ends in the one behind it.
        assert_eq!(sent(&[1500, 1000, 1000, 1000, 1]), [1, 2, 2, 2, 10]);
        assert_eq!(sent(&[9000, 1500, 40]), [12, 12, 20]);
        // Of one at which nothing more waited, nothing is left later.
        let mut cursor = Cursor::default();
        assert_eq!(trace.take(&mut cursor, 0, 100), NS_PER_MS);
        assert_eq!(trace.take(&mut cursor, NS_PER_MS, 100), NS_PER_MS);
        assert_eq!(trace.take(&mut cursor, NS_PER_MS + 1, 100), 2 * NS_PER_MS);
    }

    /// When each packet of a queue in order of arrival is through: opportunity by opportunity, as Mahimahi goes through
    /// them. Packets have a time in milliseconds, and none comes in one in which there is an opportunity.
    fn as_in_mahimahi(at_ms: &[u64], packets: &[(u64, u32)]) -> Vec<u64> {
        let (mut out, mut left) = (Vec::new(), packets.first().map_or(0, |first| first.1));
        for round in 0.. {
            for ms in at_ms {
                let now = round * at_ms[at_ms.len() - 1] + ms;
                let mut room = OPPORTUNITY_BYTES;
                while let Some((came, _)) =
                    packets.get(out.len()).filter(|(came, _)| *came <= now && room > 0)
                {
                    assert!(*came < now);
                    let fits = left.min(room);
                    (left, room) = (left - fits, room - fits);
                    if left == 0 {
                        out.push(now);
                        left = packets.get(out.len()).map_or(0, |next| next.1);
                    }
                }
                if out.len() == packets.len() {
                    return out;
                }
            }
        }
        out
    }

    /// The same file and the same packets would give another link here than in Mahimahi.
    #[test]
    fn a_trace_is_played_as_in_mahimahi() {
        let mut rng = Rng::from_seed(9);
        for _ in 0..300 {
            let mut ms = 0;
            // Even milliseconds are the trace's, and odd ones the packets'.
            let mut step = |rng: &mut Rng, most| {
                ms += 2 * rng.below(most) as u32;
                ms
            };
            let at_ms: Vec<u32> = (0..=rng.below(20)).map(|_| step(&mut rng, 6)).chain([220]).collect();
            let mut came = 1;
            let mut packet = |rng: &mut Rng| {
                came += 2 * rng.below(10) as u64;
                (came, if rng.percent(30) { 1 + rng.below(9_000) } else { 1 + rng.below(200) } as u32)
            };
            let packets: Vec<(u64, u32)> = (0..100).map(|_| packet(&mut rng)).collect();
            let trace = Trace::new(at_ms.clone()).unwrap();
            let (mut cursor, mut free) = (Cursor::default(), 0);
            let mut send = |(came, bytes): &(u64, u32)| {
                free = trace.take(&mut cursor, free.max(came * NS_PER_MS), *bytes);
                free / NS_PER_MS
            };
            let sent: Vec<u64> = packets.iter().map(&mut send).collect();
            let at_ms: Vec<u64> = at_ms.into_iter().map(u64::from).collect();
            assert_eq!(sent, as_in_mahimahi(&at_ms, &packets), "{at_ms:?} {packets:?}");
        }
    }

    /// A user with a broken file would not be told where it is broken.
    #[test]
    fn a_bad_line_is_named_with_its_reason() {
        let told = |text| Trace::parse(text).unwrap_err().to_string();
        assert_eq!(told("1\n2\nfast\n"), "line 3: `fast` is not a whole number of milliseconds");
        assert_eq!(told("1\n\n2\n"), "line 2: `` is not a whole number of milliseconds");
        assert_eq!(told("1\n-2\n"), "line 2: `-2` is not a whole number of milliseconds");
        assert_eq!(told("7\n3\n"), "line 2: time goes back from 7 ms to 3 ms");
        assert_eq!(told("99999999999999999999\n"), "line 1: no time beyond 86400000 ms, which is a day");
        for empty in ["", "0\n0\n"] {
            assert_eq!(told(empty), "the trace has no length: its last line must name a time above 0");
        }
    }

    /// A file that somebody damaged would end the program, or be played backwards.
    #[test]
    fn damaged_traces_are_refused_or_played_in_order() {
        let mut rng = Rng::from_seed(6);
        let sound: String = (1..200).map(|n| format!("{}\n", n * n / 7)).collect();
        for _ in 0..2000 {
            let mut bytes = sound.clone().into_bytes();
            for _ in 0..=rng.below(4) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.pick(b"0123456789\n\r -+.x\xff");
            }
            let Ok(trace) = Trace::parse(&String::from_utf8_lossy(&bytes)) else { continue };
            let (mut cursor, mut now) = (Cursor::default(), 0);
            for _ in 0..1000 {
                let at = trace.next_at(&mut cursor, now);
                assert!(at >= now);
                let done = trace.take(&mut cursor, now, rng.below(5000) as u32);
                assert!(done >= at);
                if rng.percent(1) {
                    now = at + rng.below(2 * trace.period_ns() as usize) as u64;
                } else {
                    now = at;
                }
            }
        }
    }
}
