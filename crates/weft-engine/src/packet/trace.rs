//! Links with a varying rate, as a list of the times at which they can deliver 1500 bytes.
//!
//! Format and meaning are Mahimahi's (mm-link(1)): a line is the millisecond of an opportunity to deliver 1500 bytes.
//! Several small packets share an opportunity; a large packet uses several, and is delivered at the last. A repeated
//! line is another opportunity in that millisecond. The list repeats from the time of its last line. An opportunity
//! without a waiting packet is lost.

use core::fmt;

/// The most opportunities of a trace: about 8 hours of an LTE link.
pub const OPPORTUNITIES_MAX: usize = 16 << 20;
/// The largest millisecond in a line: a day.
pub const TRACE_MS_MAX: u32 = 86_400_000;

const NS_PER_MS: u64 = 1_000_000;
/// Bytes per opportunity.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// The times at which a link can deliver [`OPPORTUNITY_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds from the start, in order. Not empty.
    at_ms: Vec<u32>,
    /// The period after which the list repeats; not 0.
    period_ms: u32,
}

/// A trace that cannot be used: the line, counted from 1, and the reason.
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
    /// It is earlier than the line before.
    GoesBack {
        /// The millisecond of the line before.
        from: u32,
        /// The millisecond of this line.
        to: u32,
    },
    /// It is beyond [`TRACE_MS_MAX`].
    TooLate,
    /// There are more than [`OPPORTUNITIES_MAX`].
    TooMany,
    /// There is no line, or all lines are 0: the list would have no period.
    NoLength,
}

/// A position in a trace, which repeats forever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    next: usize,
    round: u64,
    /// The used bytes of the next opportunity.
    taken: u32,
}

impl Trace {
    /// Reads a trace file.
    ///
    /// # Errors
    /// The first line that is not a number, goes back in time or is too late; or a text without a period.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms: Vec<u32> = Vec::new();
        for (nth, line) in text.lines().enumerate() {
            let fault = |why| TraceError { line: nth + 1, why };
            let line = line.trim();
            if !line.bytes().all(|byte| byte.is_ascii_digit()) || line.is_empty() {
                return Err(fault(TraceFault::NotANumber(line.chars().take(32).collect())));
            }
            // Only digits: a number that does not parse is too long.
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

    /// A trace with opportunities at these milliseconds, in order. None if the last is 0, there is none, or one goes
    /// back.
    pub fn new(at_ms: Vec<u32>) -> Option<Self> {
        let is_ordered = at_ms.is_sorted();
        let period_ms = at_ms.last().copied().filter(|last| *last > 0 && is_ordered)?;
        Some(Self { at_ms, period_ms })
    }

    /// The average number of opportunities per second.
    pub fn rate(&self) -> f64 {
        self.at_ms.len() as f64 * 1e3 / f64::from(self.period_ms)
    }

    /// The average rate in bits per second.
    pub fn bits_per_s(&self) -> u64 {
        bits(self.rate())
    }

    /// The rate in bits per second around this time, as [`Trace::rate_around`].
    pub fn bits_per_s_around(&self, at_ns: u64) -> u64 {
        bits(self.rate_around(at_ns))
    }

    /// Opportunities per second around this time of the first round, over half a second each way.
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

    /// The period in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        u64::from(self.period_ms) * NS_PER_MS
    }

    /// Finds the first opportunity at or after `now_ns` that has room left; earlier ones are lost.
    pub fn next_at(&self, cursor: &mut Cursor, now_ns: u64) -> u64 {
        let round = now_ns / self.period_ns();
        // The last line of a round is at the time at which the next round begins, so a round is walked to its end.
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

    /// Uses opportunities for a packet from `now_ns` on; returns when its last byte is delivered.
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

/// The bits of that many opportunities.
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

    /// If it failed, a trace would be replayed wrongly: repeated lines are opportunities, and the last line starts the
    /// next round.
    #[test]
    fn trace_repeats_after_its_last_line() {
        let trace = Trace::parse("0\n5\n5\n10\n").unwrap();
        assert_eq!(times(&trace, 9), [0, 5, 5, 10, 10, 15, 15, 20, 20]);
        assert_eq!((trace.rate(), trace.period_ns()), (400.0, 10 * NS_PER_MS));
    }

    /// If it failed, an idle link would save up opportunities and send a burst.
    #[test]
    fn unused_opportunities_are_lost() {
        let trace = Trace::parse("0\n5\n5\n10\n").unwrap();
        let mut cursor = Cursor::default();
        assert_eq!(trace.next_at(&mut cursor, 6 * NS_PER_MS), 10 * NS_PER_MS);
        assert_eq!(trace.next_at(&mut cursor, 1_000_003 * NS_PER_MS), 1_000_005 * NS_PER_MS);
    }

    /// If it failed, small packets would take as long as large ones: another link than Mahimahi's.
    #[test]
    fn packets_share_1500_byte_opportunities() {
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
        // An opportunity without waiting packets leaves nothing for later.
        let mut cursor = Cursor::default();
        assert_eq!(trace.take(&mut cursor, 0, 100), NS_PER_MS);
        assert_eq!(trace.take(&mut cursor, NS_PER_MS, 100), NS_PER_MS);
        assert_eq!(trace.take(&mut cursor, NS_PER_MS + 1, 100), 2 * NS_PER_MS);
    }

    /// When each packet of a FIFO is delivered, opportunity by opportunity, as in Mahimahi. Packets have a time in
    /// milliseconds, and none arrives in a millisecond with an opportunity.
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

    /// If it failed, the same trace and packets would give another result than Mahimahi.
    #[test]
    fn trace_matches_mahimahi() {
        let mut rng = Rng::from_seed(9);
        for _ in 0..300 {
            let mut ms = 0;
            // Even milliseconds are the trace's, odd ones the packets'.
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

    /// If it failed, the error would not name the broken line.
    #[test]
    fn bad_line_is_named_with_reason() {
        let message = |text| Trace::parse(text).unwrap_err().to_string();
        assert_eq!(message("1\n2\nfast\n"), "line 3: `fast` is not a whole number of milliseconds");
        assert_eq!(message("1\n\n2\n"), "line 2: `` is not a whole number of milliseconds");
        assert_eq!(message("1\n-2\n"), "line 2: `-2` is not a whole number of milliseconds");
        assert_eq!(message("7\n3\n"), "line 2: time goes back from 7 ms to 3 ms");
        assert_eq!(message("99999999999999999999\n"), "line 1: no time beyond 86400000 ms, which is a day");
        for empty in ["", "0\n0\n"] {
            assert_eq!(message(empty), "the trace has no length: its last line must name a time above 0");
        }
    }

    /// If it failed, a damaged file would end the program, or be replayed backwards.
    #[test]
    fn damaged_trace_is_refused_or_ordered() {
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
