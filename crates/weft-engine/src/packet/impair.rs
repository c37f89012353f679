//! Impairments: the delay of packets on a path, and whether they are lost, duplicated, corrupted or reordered.
//!
//! Emulated links and the simulator share this module. Each impairment draws from its own stream, so that losses do not
//! depend on delays. Names and parameters are those of netem, tc-netem(8).

use weft_core::hash;
use weft_core::rng::Rng;

/// The minimum detour of a reordered packet; otherwise it is a tenth of the delay.
const DETOUR_NS_MIN: u64 = 1_000_000;
/// The longest time for which a packet waits to be overtaken.
pub const HOLD_NS_MAX: u64 = 100_000_000;
/// The most packets that may overtake one.
pub const REORDER_DISTANCE_MAX: u32 = 1000;
/// If the order is kept, the delay changes at most by this fraction of the elapsed time.
const WANDERS: f64 = 0.5;

/// The impairments of a path; its rate is separate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairments {
    /// From the last bit sent to the last bit received.
    pub delay_ns: u64,
    /// The upper bound of the additional random delay, which is uniform.
    pub jitter_ns: u64,
    /// Jitter changes slowly, so that packets keep their order. Otherwise each packet draws its own delay.
    pub keep_order: bool,
    /// Which packets are lost.
    pub loss: Loss,
    /// The share of packets that are duplicated.
    pub duplicate: f64,
    /// The share of packets in which one bit is flipped.
    pub corrupt: f64,
    /// Which packets are reordered.
    pub reorder: Reorder,
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// This share, independently.
    Each(f64),
    /// In bursts.
    Bursts(Bursts),
}

/// Bursty losses: a path is in a good or a bad state, and the loss rate depends on that alone. Source: Gilbert and
/// Elliott, as in `loss gemodel p r 1-h 1-k` of netem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// `p`: the probability per packet that a good path turns bad.
    pub begin: f64,
    /// `r`: the probability per packet that a bad path turns good. A burst has 1 / `r` packets on average.
    pub end: f64,
    /// `1-h`: the loss rate in the bad state.
    pub loss_bad: f64,
    /// `1-k`: the loss rate in the good state.
    pub loss_good: f64,
}

/// Which packets are reordered, and by how many they are overtaken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// The share of packets.
    pub share: f64,
    /// `gap`: at most one packet in that many is reordered. 0 means 1.
    pub gap: u32,
    /// The number of packets that overtake it; it waits for them, up to [`HOLD_NS_MAX`]. None: it takes a tenth of the
    /// delay longer, at least a millisecond, and packets that arrive meanwhile overtake it.
    pub distance: Option<u32>,
}

impl Default for Loss {
    fn default() -> Self {
        Self::Each(0.0)
    }
}

impl Impairments {
    /// A path with a delay and nothing else.
    pub fn delay(delay_ns: u64) -> Self {
        Self { delay_ns, ..Self::default() }
    }

    /// The longest transit time of a packet.
    pub fn longest_ns(&self) -> u64 {
        let detour_ns = match (self.reorder.share > 0.0, self.reorder.distance) {
            (false, _) => 0,
            (true, None) => self.detour_ns(),
            (true, Some(_)) => HOLD_NS_MAX,
        };
        self.delay_ns + self.jitter_ns + detour_ns
    }

    fn detour_ns(&self) -> u64 {
        (self.delay_ns / 10).max(DETOUR_NS_MIN)
    }
}

/// The fate of one packet on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// When its last bit arrives, or would arrive.
    pub at_ns: u64,
    /// It is lost.
    pub is_lost: bool,
    /// It arrives twice.
    pub is_duplicated: bool,
    /// One of its bits is flipped: 64 random bits that choose it.
    pub corrupt: Option<u64>,
    /// It is overtaken, or would be if a packet followed it.
    pub is_reordered: bool,
    /// It waits until that many others have overtaken it.
    pub overtakers: u32,
}

/// The random state of a path from packet to packet.
#[derive(Clone, Debug)]
pub struct Chances {
    loss: Rng,
    is_bad: bool,
    jitter: Rng,
    wander: Wander,
    duplicate: Rng,
    corrupt: Rng,
    reorder: Rng,
    /// Packets since the last reordered one.
    in_order: u32,
    /// The latest arrival among the packets that keep their order.
    latest_ns: u64,
}

/// A delay that rises and falls between two bounds at constant speed and turns at random times. The times do not depend
/// on its value, and it is reflected at the bounds; so all values are equally likely at all times.
#[derive(Clone, Copy, Debug, Default)]
struct Wander {
    /// From 0 to 2: rises up to 1, then falls until 2, which is 0 again.
    at: f64,
    is_forward: bool,
    /// The time of that value, and of the next turn.
    since_ns: u64,
    turns_ns: u64,
}

impl Chances {
    /// The initial state of a path; the seed determines everything.
    pub fn new(seed: u64) -> Self {
        let stream = |name| Rng::from_seed(hash::stream(seed, name, 0));
        Self {
            loss: stream("loss"),
            is_bad: false,
            jitter: stream("jitter"),
            wander: Wander::default(),
            duplicate: stream("duplicate"),
            corrupt: stream("corrupt"),
            reorder: stream("reorder"),
            in_order: 0,
            latest_ns: 0,
        }
    }

    /// Draws what happens to a packet whose last bit leaves at `left_ns`.
    pub fn next(&mut self, path: &Impairments, left_ns: u64) -> Passage {
        let mut passage = Passage { is_lost: self.is_lost(path.loss), ..Passage::default() };
        let jitter_ns = self.jitter_ns(path, left_ns);
        passage.at_ns = left_ns + path.delay_ns + jitter_ns;
        // A path that became shorter keeps the order of packets in transit; jitter keeps it only on request.
        if path.jitter_ns == 0 || path.keep_order {
            passage.at_ns = passage.at_ns.max(self.latest_ns);
        }
        passage.is_reordered = !passage.is_lost && self.is_reordered(&path.reorder);
        match path.reorder.distance {
            _ if !passage.is_reordered => self.latest_ns = self.latest_ns.max(passage.at_ns),
            Some(distance) => passage.overtakers = distance,
            None => passage.at_ns += path.detour_ns(),
        }
        passage.is_duplicated = !passage.is_lost && self.duplicate.happens(path.duplicate);
        passage.corrupt =
            (!passage.is_lost && self.corrupt.happens(path.corrupt)).then(|| self.corrupt.bits());
        passage
    }

    /// Draws whether the next packet is lost.
    fn is_lost(&mut self, loss: Loss) -> bool {
        match loss {
            Loss::Each(share) => self.loss.happens(share),
            Loss::Bursts(bursts) => {
                let (share, turns) = match self.is_bad {
                    true => (bursts.loss_bad, bursts.end),
                    false => (bursts.loss_good, bursts.begin),
                };
                // The current state decides; the transition applies to the next packet.
                let is_lost = self.loss.happens(share);
                self.is_bad ^= self.loss.happens(turns);
                is_lost
            }
        }
    }

    /// Draws whether the next packet is reordered; never sooner than `gap` packets after the last one.
    fn is_reordered(&mut self, reorder: &Reorder) -> bool {
        let may_be = self.in_order + 1 >= reorder.gap;
        let is_reordered = may_be && self.reorder.happens(reorder.share);
        self.in_order = if is_reordered { 0 } else { self.in_order.saturating_add(1) };
        is_reordered
    }

    /// Draws the jitter of a packet, in nanoseconds. With `keep_order` it changes smoothly over time.
    fn jitter_ns(&mut self, path: &Impairments, left_ns: u64) -> u64 {
        if path.jitter_ns == 0 {
            return 0;
        }
        let share = match path.keep_order {
            true => self.wander.at(&mut self.jitter, path.jitter_ns, left_ns),
            false => self.jitter.unit(),
        };
        (share * (path.jitter_ns + 1) as f64) as u64
    }
}

impl Wander {
    /// Returns the value of the wander, scaled to `span_ns`, at a time not before that of the last call.
    fn at(&mut self, rng: &mut Rng, span_ns: u64, now_ns: u64) -> f64 {
        let pace = WANDERS / span_ns as f64;
        // Long after the last packet, all values are equally likely.
        if now_ns > self.since_ns.saturating_add(span_ns.saturating_mul(64)) || self.turns_ns == 0 {
            *self = Self { at: 2.0 * rng.unit(), since_ns: now_ns, turns_ns: now_ns, ..*self };
        }
        loop {
            let until_ns = now_ns.min(self.turns_ns).max(self.since_ns);
            let by = (until_ns - self.since_ns) as f64 * pace;
            self.at = (self.at + if self.is_forward { by } else { -by }).rem_euclid(2.0);
            self.since_ns = until_ns;
            if now_ns < self.turns_ns {
                break;
            }
            self.is_forward = rng.bits() & 1 == 0;
            self.turns_ns = until_ns + 1 + (rng.unit() * 4.0 * span_ns as f64) as u64;
        }
        if self.at <= 1.0 { self.at } else { 2.0 - self.at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The fates of `n` packets, one every `gap_ns`.
    fn pass(path: &Impairments, seed: u64, n: u64, gap_ns: u64) -> Vec<(u64, Passage)> {
        let mut chances = Chances::new(seed);
        (0..n).map(|nth| (nth * gap_ns, chances.next(path, nth * gap_ns))).collect()
    }

    fn share(passages: &[(u64, Passage)], is: impl Fn(&Passage) -> bool) -> f64 {
        passages.iter().filter(|(_, passage)| is(passage)).count() as f64 / passages.len() as f64
    }

    /// If it failed, programs would be tested with other losses, duplicates or damage than requested.
    #[test]
    fn impairment_rates_match_the_plan() {
        let path = Impairments {
            loss: Loss::Each(0.1),
            duplicate: 0.05,
            corrupt: 0.02,
            reorder: Reorder { share: 0.25, ..Reorder::default() },
            ..Impairments::delay(10 * MS)
        };
        let all = pass(&path, 1, 100_000, MS);
        let (of_all, of_rest) = (share(&all, |p| p.is_lost), 0.9);
        assert!((of_all - 0.1).abs() < 0.004, "{of_all}");
        let close = |found: f64, meant: f64| (found - meant * of_rest).abs() < 0.005;
        assert!(close(share(&all, |p| p.is_duplicated), 0.05));
        assert!(close(share(&all, |p| p.corrupt.is_some()), 0.02));
        assert!(close(share(&all, |p| p.is_reordered), 0.25));
        // Losses do not depend on the other impairments.
        let alone = pass(&Impairments { loss: Loss::Each(0.1), ..Impairments::default() }, 1, 100_000, MS);
        assert!(all.iter().zip(&alone).all(|((_, a), (_, b))| a.is_lost == b.is_lost));
    }

    /// If it failed, losses would be independent instead of bursty, or their rate would be wrong.
    #[test]
    fn losses_come_in_bursts() {
        let bursts = Bursts { begin: 0.01, end: 0.25, loss_bad: 1.0, loss_good: 0.0 };
        let lost = |bursts| {
            let path = Impairments { loss: Loss::Bursts(bursts), ..Impairments::default() };
            pass(&path, 7, 200_000, MS).iter().map(|(_, passage)| passage.is_lost).collect::<Vec<_>>()
        };
        let all = lost(bursts);
        let n_lost = all.iter().filter(|lost| **lost).count() as f64;
        let n_bursts = all.windows(2).filter(|two| !two[0] && two[1]).count() as f64;
        // It is bad for p / (p + r) of the time, 4 packets in a row.
        assert!((n_lost / 200_000.0 - 0.01 / 0.26).abs() < 0.003, "{n_lost}");
        assert!((n_lost / n_bursts - 4.0).abs() < 0.2, "{n_lost} in {n_bursts} bursts");
        let mild = lost(Bursts { loss_bad: 0.5, loss_good: 0.01, ..bursts });
        let share = mild.iter().filter(|lost| **lost).count() as f64 / 200_000.0;
        assert!((share - (0.01 * 0.5 + 0.25 * 0.01) / 0.26).abs() < 0.003, "{share}");
    }

    /// The median and the bounds of the jitter, in milliseconds.
    fn spread(path: &Impairments, n: u64, gap_ns: u64) -> [f64; 5] {
        let all = pass(path, 3, n, gap_ns);
        let mut took: Vec<u64> = all.iter().map(|(left, passage)| passage.at_ns - left).collect();
        took.sort_unstable();
        let at = |share: f64| took[(share * (took.len() - 1) as f64) as usize] as f64 / MS as f64;
        [at(0.0), at(0.25), at(0.5), at(0.75), at(1.0)]
    }

    /// If it failed, jitter would only add delay at high packet rates: each packet would wait for the slowest before
    /// it.
    #[test]
    fn jitter_median_holds_at_any_rate() {
        for pps in [5, 50, 500, 3_000, 100_000] {
            for keep_order in [false, true] {
                let path = Impairments { jitter_ns: 50 * MS, keep_order, ..Impairments::delay(10 * MS) };
                // A thousand seconds of the varying delay, which turns about ten times per second.
                let n = if keep_order { (1_000 * pps).min(500_000) } else { 20_000 };
                let seconds = n / pps;
                let [least, q1, median, q3, most] = spread(&path, n, 1_000_000_000 / pps);
                assert!(least >= 10.0 && most <= 60.001, "{pps}: {least} to {most}");
                // In a short time it visits few values.
                let off = if keep_order && seconds < 100 { 12.0 } else { 2.5 };
                assert!((median - 35.0).abs() < off, "{pps} a second, {keep_order}: {median} ms");
                assert!((q1 - 22.5).abs() < off && (q3 - 47.5).abs() < off, "{pps}: {q1} {q3}");
            }
        }
    }

    /// If it failed, packets would be reordered despite `keep_order`, or netem's jitter would not reorder.
    #[test]
    fn keep_order_prevents_reordering() {
        let overtaken = |keep_order, delays: [u64; 2]| {
            let (mut chances, mut before, mut n) = (Chances::new(5), 0, 0);
            for nth in 0..20_000 {
                let path = Impairments {
                    jitter_ns: 50 * MS,
                    keep_order,
                    ..Impairments::delay(delays[nth as usize / 1_000 % 2])
                };
                let at_ns = chances.next(&path, nth * MS / 10).at_ns;
                n += u64::from(at_ns < before);
                before = at_ns;
            }
            n
        };
        assert_eq!(overtaken(true, [10 * MS, 10 * MS]), 0);
        assert_eq!(overtaken(true, [90 * MS, 10 * MS]), 0, "a path that gets shorter");
        assert!(overtaken(false, [10 * MS, 10 * MS]) > 8_000);
    }

    /// If it failed, more packets in a row would be reordered than the gap allows.
    #[test]
    fn reorder_gap_is_kept() {
        let reorder = Reorder { share: 0.9, gap: 5, distance: None };
        let all = pass(&Impairments { reorder, ..Impairments::delay(10 * MS) }, 1, 10_000, MS);
        let nth: Vec<usize> =
            all.iter().enumerate().filter(|(_, (_, p))| p.is_reordered).map(|(nth, _)| nth).collect();
        assert!(nth.windows(2).all(|two| two[1] - two[0] >= 5));
        let mean = 10_000.0 / nth.len() as f64;
        assert!((mean - (4.0 + 1.0 / 0.9)).abs() < 0.05, "{mean}");
    }

    /// If it failed, runs with adjacent seeds would lose the same packets.
    #[test]
    fn adjacent_seeds_lose_other_packets() {
        let path = Impairments { loss: Loss::Each(0.01), jitter_ns: MS, ..Impairments::default() };
        let lost = |seed| -> Vec<usize> {
            let all = pass(&path, seed, 20_000, MS);
            all.iter().enumerate().filter(|(_, (_, p))| p.is_lost).map(|(nth, _)| nth).collect()
        };
        let (one, two) = (lost(1), lost(2));
        for shift in 0..20 {
            let same = one.iter().filter(|nth| two.binary_search(&(**nth + shift)).is_ok()).count();
            assert!(same < 15, "{same} of {} are the same, {shift} later", one.len());
        }
    }
}
