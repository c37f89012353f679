//! The constants of RFC 8289, 8290, 8033 and 9332, tested where the behaviour of a library queue depends on them.

use crate::queues::{drain, packet, queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_engine::queue::{Packet, Queue};
use weft_ir::queue::run::Interpreted;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Handles of the packets dropped since the last call.
fn dropped(queue: &mut Queue<Interpreted>) -> Vec<u64> {
    std::iter::from_fn(|| queue.poll_dropped()).map(|dropped| dropped.handle).collect()
}

// ---- RFC 8289: CoDel, and that of the flows of RFC 8290 ----------------------------------------------------------

/// CoDel alone, and in one flow of FQ-CoDel.
const CODELS: [&str; 2] = ["codel", "fq_codel"];

/// Drop times with a constant sojourn time: a packet arrives each millisecond for half a second.
fn drops_of_a_constant_wait(name: &str, sojourn: u64) -> Vec<u64> {
    let mut queue = queue(name, "");
    let mut events: Vec<(u64, bool)> =
        (0..500).flat_map(|nth| [(nth * MS, true), (nth * MS + sojourn, false)]).collect();
    events.sort_unstable();
    let mut drops = Vec::new();
    for (now, comes) in events {
        if comes {
            queue.enqueue(&packet(now, 1, 1514), now);
        } else if drops.is_empty() {
            queue.dequeue(now);
            drops.extend(dropped(&mut queue).iter().map(|_| now));
        }
    }
    drops
}

/// If this fails, TARGET is not 5 ms (RFC 8289, section 5.3), or a sojourn time of exactly TARGET counts as good.
#[test]
fn codel_drops_from_5_ms() {
    for name in CODELS {
        assert_eq!(drops_of_a_constant_wait(name, 5 * MS - 1), [], "{name}");
        // Above TARGET since 5 ms: a whole INTERVAL has passed at 105 ms.
        assert_eq!(drops_of_a_constant_wait(name, 5 * MS), [105 * MS], "{name}");
    }
}

/// Dequeues at this time, and returns the number of drops.
fn drops_at(queue: &mut Queue<Interpreted>, now: u64) -> usize {
    assert!(queue.dequeue(now).is_some(), "there is a backlog");
    dropped(queue).len()
}

/// The time of the first drop from a standing queue that arrived at this time. It exceeds TARGET 5 ms later.
fn until_the_first_drop(queue: &mut Queue<Interpreted>, came: u64) -> u64 {
    (0..900).for_each(|handle| queue.enqueue(&packet(handle, 1, 1000), came));
    assert_eq!(drops_at(queue, came + 5 * MS), 0, "it has just become late");
    assert_eq!(drops_at(queue, came + 105 * MS - 1), 0, "not late for a whole INTERVAL");
    assert_eq!(drops_at(queue, came + 105 * MS), 1, "late for a whole INTERVAL");
    came + 105 * MS
}

/// `control_law` of RFC 8289, section 5.6: INTERVAL over the square root of the count.
fn gap(count: u64) -> u64 {
    (100 * MS * 100 * MS / count).isqrt()
}

/// If this fails, INTERVAL is not 100 ms (RFC 8289, section 5.3), or drops are not spaced by INTERVAL over the square
/// root of their count (5.5 and 5.6).
#[test]
fn codel_drop_spacing_matches_rfc() {
    for name in CODELS {
        let mut queue = queue(name, "");
        let mut due = until_the_first_drop(&mut queue, 0);
        for count in 1..=100 {
            due += gap(count);
            assert_eq!(drops_at(&mut queue, due - 1), 0, "{name}: drop {count} is early");
            assert_eq!(drops_at(&mut queue, due), 1, "{name}: drop {count} is due");
        }
        // A late dequeue makes all drops that were due: after the 100th they are 10 ms apart, and less.
        let late = due + gap(101) + gap(102) + gap(103);
        assert_eq!(drops_at(&mut queue, late), 3, "{name}");
    }
}

/// If this fails, the count restarts from one although the queue was good for less than 16 INTERVALs, or continues
/// although it was good for longer (RFC 8289, section 5.5).
#[test]
fn codel_resumes_within_16_intervals() {
    for name in CODELS {
        for (pause_less, count) in [(1, 4), (0, 1)] {
            let mut queue = queue(name, "");
            let mut due = until_the_first_drop(&mut queue, 0);
            for count in 1..=4 {
                due += gap(count);
                assert_eq!(drops_at(&mut queue, due), 1);
            }
            drain(&mut queue, due);
            // Five drops, four of them after the first; the next was due an INTERVAL over the square root of 5 later.
            let drop_next = due + gap(5);
            let first = until_the_first_drop(&mut queue, drop_next + 1_600 * MS - pause_less - 105 * MS);
            assert_eq!(drops_at(&mut queue, first + gap(count) - 1), 0, "{name}");
            assert_eq!(drops_at(&mut queue, first + gap(count)), 1, "{name}");
        }
    }
}

/// If this fails, CoDel drops although at most one MTU is left, or spares more than that (RFC 8289, section 5.6). An
/// Ethernet frame has 1514 bytes.
#[test]
fn codel_keeps_the_last_mtu() {
    for name in CODELS {
        let drops = |len: u32| {
            let mut queue = queue(name, "");
            queue.enqueue(&packet(0, 1, len), 0);
            (1..40)
                .map(|nth| {
                    queue.enqueue(&packet(nth, 1, len), nth * 20 * MS);
                    drops_at(&mut queue, nth * 20 * MS + 10 * MS)
                })
                .sum::<usize>()
        };
        assert_eq!(drops(1514), 0, "{name}");
        assert!(drops(1515) > 0, "{name}");
    }
}

// ---- RFC 8290: FQ-CoDel ------------------------------------------------------------------------------------------

/// If this fails, FQ-CoDel does not hold 10240 packets. With one more packet it must drop 64 from the head of the flow
/// with the most bytes (RFC 8290, sections 4.1 and 5.2.3).
#[test]
fn fq_codel_limits_match_rfc() {
    let mut queue = queue("fq_codel", "");
    (0..10_000).for_each(|handle| queue.enqueue(&packet(handle, 1, 100), 0));
    (10_000..10_240).for_each(|handle| queue.enqueue(&packet(handle, 2, 1000), 0));
    assert_eq!(dropped(&mut queue), []);
    queue.enqueue(&packet(10_240, 3, 1500), 0);
    assert_eq!(dropped(&mut queue), (0..64).collect::<Vec<_>>());
    assert_eq!(queue.counts().queued, 10_241 - 64);
}

/// If this fails, the largest flow loses more than half of its backlog (RFC 8290, section 4.1). With equal packet
/// sizes, half of the bytes, as in Linux, is half of the packets.
#[test]
fn fq_codel_halves_the_largest_flow() {
    for (n, half) in [(10, 5), (11, 6)] {
        let mut queue = queue("fq_codel", " (packets = 100)");
        (0..n).for_each(|handle| queue.enqueue(&packet(handle, 1, 1000), 0));
        (n..=100).for_each(|handle| queue.enqueue(&packet(handle, handle as u32, 64), 0));
        assert_eq!(dropped(&mut queue), (0..half).collect::<Vec<_>>());
    }
}

/// If this fails, there are fewer or more than 1024 queues (RFC 8290, section 5.2.5). With 10240 flows few queues are
/// empty.
#[test]
fn fq_codel_has_1024_queues() {
    let mut queue = queue("fq_codel", "");
    (0..10_240).for_each(|flow| queue.enqueue(&packet(flow, flow as u32, 100), 0));
    let n = queue.partitions(usize::MAX).iter().filter(|of| of.level == 0).count();
    assert!((1020..=1024).contains(&n), "{n}");
}

/// If this fails, the quantum is not 1514 bytes (RFC 8290, section 5.2.4), or a turn continues with a credit of 0:
/// section
/// 4.2 says "at least a quantum of bytes".
#[test]
fn fq_codel_quantum_is_1514_bytes() {
    for (len, turn) in [(757, 2), (756, 3), (1514, 1), (1513, 2)] {
        let mut queue = queue("fq_codel", "");
        (0..20).for_each(|nth| queue.enqueue(&packet(nth % 2, 1 + (nth % 2) as u32, len), 0));
        let order = drain(&mut queue, 1);
        let first = order.iter().take_while(|flow| **flow == 0).count();
        let second = order[first..].iter().take_while(|flow| **flow == 1).count();
        assert_eq!((first, second), (turn, turn), "{len} bytes: {order:?}");
    }
}

/// If this fails, a new flow waits behind old ones; or a flow that sends just its share is new again and again, and
/// starves the others (RFC 8290, section 4.2).
#[test]
fn fq_codel_serves_new_flows_once() {
    let mut queue = queue("fq_codel", "");
    let add = |queue: &mut Queue<Interpreted>, flow: u64, len: u32| {
        queue.enqueue(&packet(flow, flow as u32, len), 0);
    };
    for flow in [1, 2] {
        (0..4).for_each(|_| add(&mut queue, flow, 1514));
    }
    let next = |queue: &mut Queue<Interpreted>| queue.dequeue(1).map(|sent| sent.handle);
    assert_eq!((next(&mut queue), next(&mut queue)), (Some(1), Some(2)), "both have had their first turn");
    add(&mut queue, 3, 100);
    assert_eq!(next(&mut queue), Some(3), "a new flow goes first");
    assert_eq!(next(&mut queue), Some(1), "and is an old one when it was found empty");
    add(&mut queue, 3, 100);
    assert_eq!([(); 3].map(|()| next(&mut queue)), [Some(2), Some(3), Some(1)], "so it waits for its turn");
}

// ---- chance, as a test wants it ----------------------------------------------------------------------------------

/// The random numbers of a queue from now on; one earlier draw is still pending.
#[derive(Clone)]
struct FixedDraw(Arc<AtomicU64>);

impl FixedDraw {
    /// No random event happens, unless it is certain.
    const NEVER: f64 = 0.999_999_999;

    fn of(queue: &mut Queue<Interpreted>) -> Self {
        let fixed_draw = Self(Arc::new(AtomicU64::new(Self::NEVER.to_bits())));
        let drawn = fixed_draw.clone();
        queue.draw_from(move || f64::from_bits(drawn.0.load(Ordering::Relaxed)));
        fixed_draw
    }

    fn set(&self, draw: f64) {
        self.0.store(draw.to_bits(), Ordering::Relaxed);
    }
}

/// Whether a probability is this one, within a millionth: a draw below it makes the event happen, a draw above it does
/// not.
fn is_chance(expected: f64, happens: impl Fn(f64) -> bool) -> bool {
    happens(expected * (1.0 - 1e-6)) && !happens(expected * (1.0 + 1e-6))
}

// ---- RFC 8033: PIE -----------------------------------------------------------------------------------------------

/// PIE alone, and in one flow of FQ-PIE.
const PIES: [&str; 2] = ["pie", "fq_pie"];

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    In,
    Marked,
    Dropped,
}

/// A queue of RFC 8033 or 9332 with the update times of its controller.
struct ControlledQueue {
    queue: Queue<Interpreted>,
    fixed_draw: FixedDraw,
    update: u64,
    ecn: u8,
    n: u64,
}

impl ControlledQueue {
    fn new(name: &str, update: u64, ecn: u8) -> Self {
        let mut queue = queue(name, " (packets = 100000)");
        let fixed_draw = FixedDraw::of(&mut queue);
        Self { queue, fixed_draw, update, ecn, n: 0 }
    }

    fn come(&mut self, now: u64) {
        self.queue.enqueue(&Packet { ecn: self.ecn, ..packet(self.n, 1, 1000) }, now);
        self.n += 1;
    }

    /// Makes the controller measure these sojourn times, one at each update. Two packets arrive that long before; one
    /// leaves a millisecond before the update, and the other before the next one.
    fn find(&mut self, waits: &[u64]) {
        let mut events = Vec::new();
        for (nth, wait) in waits.iter().enumerate() {
            let leaves = (nth as u64 + 1) * self.update - MS;
            let came = leaves.checked_sub(*wait).expect("it came after the beginning");
            events.extend([(came, 1, true), (came, 1, true), (leaves, 2, false)]);
            if nth > 0 {
                // The second packet of the previous update.
                events.push((leaves - 1, 0, false));
            }
        }
        events.sort_unstable();
        for (now, _, comes) in events {
            if comes {
                self.come(now);
            } else {
                assert!(self.queue.dequeue(now).is_some(), "what is to leave is there");
            }
        }
        assert_eq!(dropped(&mut self.queue), [], "none of them is in the way of the drops that count");
    }

    /// The disposition of a packet that arrives now with this draw, after `n_more` packets, and after one that uses the
    /// pending draw.
    fn disposition(&mut self, now: u64, n_more: u64, draw: f64, ecn: u8) -> Disposition {
        (0..n_more).for_each(|_| self.come(now));
        self.fixed_draw.set(draw);
        self.come(now);
        dropped(&mut self.queue);
        self.ecn = ecn;
        let marked = self.queue.counts().marked;
        self.come(now);
        match (dropped(&mut self.queue).len(), self.queue.counts().marked - marked) {
            (0, 0) => Disposition::In,
            (0, _) => Disposition::Marked,
            _ => Disposition::Dropped,
        }
    }
}

/// The disposition in PIE after it measured these sojourn times, `after` nanoseconds after the last update.
fn pie_disposition(name: &str, waits: &[u64], after: u64, draw: f64, ecn: u8) -> Disposition {
    let mut pie = ControlledQueue::new(name, 15 * MS, 0);
    pie.find(waits);
    pie.disposition(waits.len() as u64 * 15 * MS + after, 5, draw, ecn)
}

/// The drop probability of RFC 8033, section 4.2, from its pseudocode, with the cap of 5.5.
#[derive(Default)]
struct DropProb {
    prob: f64,
    old: f64,
    /// The rows of the table that were used, and the cap.
    used: [bool; 8],
}

impl DropProb {
    fn update(&mut self, delay_ns: u64) {
        let delay = delay_ns as f64 / 1e9;
        let mut p = 0.125 * (delay - 0.015) + 1.25 * (delay - self.old);
        let table = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, f64::INFINITY];
        let row = table.iter().position(|below| self.prob < *below).unwrap_or(6);
        p /= [2048.0, 512.0, 128.0, 32.0, 8.0, 2.0, 1.0][row];
        self.used[row] = true;
        if self.prob >= 0.1 && p > 0.02 {
            p = 0.02;
            self.used[7] = true;
        }
        self.prob += p;
        if delay == 0.0 && self.old == 0.0 {
            self.prob *= 0.98;
        }
        self.prob = self.prob.clamp(0.0, 1.0);
        self.old = delay;
    }
}

/// A sojourn time that grows as fast as possible, up to this.
fn growing(to: u64, n: usize) -> Vec<u64> {
    (1..=n as u64).map(|nth| (nth * 15 * MS - MS).min(to)).collect()
}

/// If this fails, a constant is wrong: QDELAY_REF or T_UPDATE of 15 ms, alpha of 1/8, beta of 1 1/4, or a row of the
/// table (RFC 8033, section 4.2 and appendix A). Or an update adds more than 2 % above 10 % (5.5).
#[test]
fn pie_probability_matches_table() {
    // Near the target for long, then far above it: this uses all rows of the table.
    let near: Vec<u64> = [14, 15, 15, 16, 17, 15, 16, 17, 18, 19].map(|ms| ms * MS).to_vec();
    let slow = (0..30).map(|nth| 20 * MS + nth * 500 * US);
    let waits: Vec<u64> =
        near.into_iter().chain(slow).chain((0..40).map(|nth| (35 + nth * 5) * MS)).collect();
    let mut expected = DropProb::default();
    for (nth, wait) in waits.iter().enumerate() {
        expected.update(*wait);
        // Not before the burst allowance is used up.
        if nth >= 10 {
            for name in PIES {
                // Just after the update, and just before the next: the probability is the same.
                for after in [0, 15 * MS - 1] {
                    let drops =
                        |draw| pie_disposition(name, &waits[..=nth], after, draw, 0) == Disposition::Dropped;
                    assert!(is_chance(expected.prob, drops), "{name}, update {nth}: {}", expected.prob);
                }
            }
        }
    }
    assert_eq!(expected.used, [true; 8], "all of the table is tried, and the cap: {}", expected.prob);
}

/// If this fails, the probability does not decay by a fiftieth at each idle update (RFC 8033, section 4.2).
#[test]
fn pie_decays_while_idle() {
    let waits = growing(200 * MS, 40);
    let mut expected = DropProb::default();
    waits.iter().for_each(|wait| expected.update(*wait));
    let before = expected.prob;
    assert!(before > 0.3);
    // All packets leave after the last update without a sojourn time: the first zero follows a measurement of 200 ms.
    const IDLE: u64 = 6;
    (0..IDLE).for_each(|_| expected.update(0));
    assert!(expected.prob > 0.2, "{}", expected.prob);
    for name in PIES {
        let drops = |draw| {
            let mut pie = ControlledQueue::new(name, 15 * MS, 0);
            pie.find(&waits);
            let (begins, ends) = (40 * 15 * MS + 1, (40 + IDLE) * 15 * MS);
            drain(&mut pie.queue, begins);
            pie.disposition(ends, 5, draw, 0) == Disposition::Dropped
        };
        assert!(is_chance(expected.prob, drops), "{name}: {before}, then {}", expected.prob);
    }
}

/// If this fails, MAX_BURST is not 150 ms (RFC 8033, section 4.4): a packet of a shorter burst is dropped, or none
/// after it; or the allowance does not return after the queue was good.
#[test]
fn pie_allows_a_150_ms_burst() {
    for name in PIES {
        for (n, disposition) in [(8, Disposition::In), (9, Disposition::In), (10, Disposition::Dropped)] {
            let mut pie = ControlledQueue::new(name, 15 * MS, 0);
            pie.find(&growing(100 * MS, n));
            // Any event with a non-zero probability happens.
            assert_eq!(pie.disposition(n as u64 * 15 * MS, 5, 0.0, 0), disposition, "{name}, {n} updates");
        }
        let mut pie = ControlledQueue::new(name, 15 * MS, 0);
        pie.find(&growing(100 * MS, 11));
        drain(&mut pie.queue, 11 * 15 * MS + 1);
        assert_eq!(pie.disposition(2 * S, 5, 0.0, 0), Disposition::In, "{name}: a new burst");
    }
}

/// If this fails, PIE drops although the sojourn time is below half of QDELAY_REF and the probability below 0.2, or
/// spares a packet otherwise (RFC 8033, section 4.1).
#[test]
fn pie_spares_a_short_queue() {
    for name in PIES {
        for (wait, least, most, disposition) in [
            (7_500 * US - 1, 0.01, 0.2, Disposition::In),
            (7_500 * US, 0.01, 0.2, Disposition::Dropped),
            (7_500 * US - 1, 0.2, 0.25, Disposition::Dropped),
        ] {
            let found = |n| growing(200 * MS, n).into_iter().chain([wait]).collect::<Vec<_>>();
            let chance = |waits: &[u64]| {
                let mut chance = DropProb::default();
                waits.iter().for_each(|wait| chance.update(*wait));
                chance.prob
            };
            let waits = (11..100).map(found).find(|waits| (least..most).contains(&chance(waits)));
            let waits = waits.expect("such a probability comes up");
            assert_eq!(pie_disposition(name, &waits, 0, 0.0, 0), disposition, "{name}: {wait} ns, {least}");
        }
    }
}

/// If this fails, PIE drops with one or two packets queued (RFC 8033, section 4.1, in bytes: twice the mean size).
#[test]
fn pie_spares_two_packets() {
    for name in PIES {
        for (n_queued, disposition) in [(2, Disposition::In), (3, Disposition::Dropped)] {
            let mut pie = ControlledQueue::new(name, 15 * MS, 0);
            pie.find(&growing(200 * MS, 40));
            // One packet is still queued.
            assert_eq!(pie.queue.counts().queued, 1);
            (1..n_queued).for_each(|_| pie.come(40 * 15 * MS - 1));
            assert_eq!(pie.disposition(40 * 15 * MS, 0, 0.0, 0), disposition, "{name}: {n_queued}");
        }
    }
}

/// If this fails, an ECN-capable packet is dropped below 10 %, or marked above (`mark_ecnth` of RFC 8033, section 5.1).
#[test]
fn pie_marks_below_10_percent() {
    for name in PIES {
        let mut tried = [false; 2];
        for n in 11..35 {
            let waits = growing(200 * MS, n);
            let mut chance = DropProb::default();
            waits.iter().for_each(|wait| chance.update(*wait));
            let disposition = if chance.prob < 0.1 { Disposition::Marked } else { Disposition::Dropped };
            tried[usize::from(chance.prob < 0.1)] = true;
            assert_eq!(pie_disposition(name, &waits, 0, 0.0, 2), disposition, "{name}: {}", chance.prob);
            assert_eq!(
                pie_disposition(name, &waits, 0, 0.0, 0),
                Disposition::Dropped,
                "{name}: {}",
                chance.prob
            );
        }
        assert_eq!(tried, [true; 2]);
    }
}

// ---- RFC 9332: DualPI2 -------------------------------------------------------------------------------------------

/// The base probability of RFC 9332, appendix A.1, figure 6, with the gains of its text for a Tupdate of 16 ms, applied
/// unscaled at each update.
fn base_prob(waits: &[u64]) -> f64 {
    let (mut prob, mut before) = (0.0_f64, 0.0);
    for wait in waits {
        let wait = *wait as f64 / 1e9;
        prob = (prob + 0.16 * (wait - 0.015) + 3.2 * (wait - before)).clamp(0.0, 1.0);
        before = wait;
    }
    prob
}

/// The disposition of a packet with this codepoint that arrives some time after DualPI2 measured these sojourn times of
/// packets with the codepoint `found`.
fn dual_disposition(found: u8, waits: &[u64], after: u64, draw: f64, ecn: u8) -> Disposition {
    let mut dual = ControlledQueue::new("dualpi2", 16 * MS, found);
    dual.find(waits);
    let now = waits.len() as u64 * 16 * MS + after;
    // The remaining packet uses the pending draw.
    dual.fixed_draw.set(draw);
    drain(&mut dual.queue, now);
    dual.ecn = ecn;
    dual.come(now);
    let marked = dual.queue.counts().marked;
    dual.queue.dequeue(now);
    match (dropped(&mut dual.queue).len(), dual.queue.counts().marked - marked) {
        (0, 0) => Disposition::In,
        (0, _) => Disposition::Marked,
        _ => Disposition::Dropped,
    }
}

/// Sojourn times that lead to base probabilities from low to high.
fn dual_waits() -> [Vec<u64>; 5] {
    // The last two are just below and just above one half, where overload begins.
    let steep = |n: u64| (1..=n).map(|nth| nth * 15).collect();
    [vec![15, 15], vec![15, 17, 18, 20, 16], vec![15, 30, 45, 50, 45, 40], steep(8), steep(9)]
        .map(|waits: Vec<u64>| waits.into_iter().map(|ms| ms * MS).collect())
}

/// If this fails, a constant is wrong: the target of 15 ms, Tupdate of 16 ms, alpha of 0.16 or beta of 3.2 (RFC 9332,
/// appendix A.1). Or classic packets are not dropped by the square of the base probability, or L4S packets are not
/// marked by twice of it (k = 2).
#[test]
fn dualpi2_coupling_matches_rfc() {
    // A Tupdate of 16 ms is longer than a sojourn time of 15 ms from the queue's start.
    for waits in dual_waits() {
        let base = base_prob(&waits);
        assert!(base > 0.04, "{base}");
        for after in [0, 16 * MS - 1] {
            let drops = |draw| dual_disposition(0, &waits, after, draw, 0) == Disposition::Dropped;
            assert!(is_chance(base * base, drops), "{waits:?}: {base}");
            let marks = |draw| dual_disposition(0, &waits, after, draw, 1) == Disposition::Marked;
            if base < 0.5 {
                assert!(is_chance(2.0 * base, marks), "{waits:?}: {base}");
            }
        }
    }
}

/// If this fails, L4S packets are dropped before classic ones reach 25 %, or only marked after that; or ECN-capable
/// classic packets are (p_Cmax and p_Lmax of RFC 9332, appendix A.2).
#[test]
fn dualpi2_drops_in_overload() {
    let mut tried = [false; 2];
    for waits in dual_waits() {
        let base = base_prob(&waits);
        let is_overload = base >= 0.5;
        tried[usize::from(is_overload)] = true;
        for ecn in [1, 2, 3] {
            let disposition = match ecn {
                _ if is_overload => Disposition::Dropped,
                // It was marked on arrival.
                3 => Disposition::In,
                _ => Disposition::Marked,
            };
            assert_eq!(
                dual_disposition(0, &waits, 0, base * base * 0.999, ecn),
                disposition,
                "{base}, codepoint {ecn}"
            );
        }
        // All remaining L4S packets are marked.
        if is_overload {
            assert_eq!(dual_disposition(0, &waits, 0, FixedDraw::NEVER, 1), Disposition::Marked, "{base}");
            let drops = |draw| dual_disposition(0, &waits, 0, draw, 1) == Disposition::Dropped;
            assert!(is_chance(base * base, drops), "{base}");
        }
        assert_eq!(dual_disposition(0, &waits, 0, base * base * 0.999, 0), Disposition::Dropped, "{base}");
    }
    assert_eq!(tried, [true; 2]);
}

/// If this fails, unresponsive L4S traffic is not limited without classic traffic: the longer of both sojourn times
/// counts (RFC 9332, appendix A.2, figure 8).
#[test]
fn dualpi2_follows_longer_sojourn() {
    for waits in dual_waits() {
        let base = base_prob(&waits);
        let drops = |draw| dual_disposition(1, &waits, 0, draw, 0) == Disposition::Dropped;
        assert!(is_chance(base * base, drops), "{waits:?}: {base}");
    }
}

/// If this fails, L4S packets are not marked from 1 ms on, or a single queued packet is marked (Th_len in A.2). RFC
/// 9332, appendix A.1, has a ramp from 0.8 to 1.2 ms, which may be a step.
#[test]
fn dualpi2_marks_l4s_from_1_ms() {
    for (n, wait, disposition) in [(2, MS - 1, 0), (2, MS, 1), (1, 10 * MS, 0)] {
        let mut queue = queue("dualpi2", "");
        FixedDraw::of(&mut queue);
        (0..n).for_each(|handle| queue.enqueue(&Packet { ecn: 1, ..packet(handle, 1, 1000) }, 0));
        assert!(queue.dequeue(wait).is_some());
        assert_eq!(queue.counts().marked, disposition, "{n} packets, {wait} ns");
    }
}

/// If this fails, ECT(1) and CE are not separated from the other codepoints (RFC 9332, section 2.3), or L4S traffic
/// gets more or less than nine packets of ten while classic packets wait (4.2.2 and A.2: a small weight).
#[test]
fn dualpi2_serves_l4s_nine_of_ten() {
    for (l4s, classic) in [(1, 0), (3, 0), (1, 2), (3, 2)] {
        let mut queue = queue("dualpi2", "");
        for _ in 0..1_000 {
            queue.enqueue(&Packet { ecn: classic, ..packet(0, 2, 1000) }, 0);
            queue.enqueue(&Packet { ecn: l4s, ..packet(1, 1, 1000) }, 0);
        }
        let order: Vec<u64> = (0..500).filter_map(|_| queue.dequeue(0)).map(|sent| sent.handle).collect();
        for ten in order.chunks(10) {
            assert_eq!(ten.iter().sum::<u64>(), 9, "{l4s} and {classic}: {order:?}");
        }
    }
}

/// If this fails, a marked classic packet does not use up the classic turn, or a marked L4S packet not one of the nine:
/// flows that respond to marks would get more of the link than flows with drops.
#[test]
fn dualpi2_counts_marked_as_turns() {
    let mut marking = ControlledQueue::new("dualpi2", 16 * MS, 2);
    // Just below one half, so that no ECN-capable packet is dropped.
    let waits = &dual_waits()[3];
    marking.find(waits);
    let now = waits.len() as u64 * 16 * MS;
    marking.fixed_draw.set(FixedDraw::NEVER);
    drain(&mut marking.queue, now);
    for (classic, draws) in [(2, 0.0), (2, FixedDraw::NEVER)] {
        // A packet of its own uses up the pending draw.
        marking.fixed_draw.set(draws);
        marking.queue.enqueue(&Packet { ecn: classic, ..packet(0, 2, 1000) }, now);
        marking.queue.dequeue(now);
        let marked = marking.queue.counts().marked;
        for _ in 0..100 {
            marking.queue.enqueue(&Packet { ecn: classic, ..packet(0, 2, 1000) }, now);
            marking.queue.enqueue(&Packet { ecn: 1, ..packet(1, 1, 1000) }, now);
        }
        let order: Vec<u64> =
            (0..100).filter_map(|_| marking.queue.dequeue(now)).map(|sent| sent.handle).collect();
        for ten in order.chunks(10) {
            assert_eq!(ten.iter().sum::<u64>(), 9, "draws {draws}: {order:?}");
        }
        let expected = if draws == 0.0 { 100 } else { 0 };
        assert_eq!(marking.queue.counts().marked - marked, expected, "draws {draws}");
        drain(&mut marking.queue, now);
    }
}

/// If this fails, classic packets wait forever behind L4S packets that arrive one at a time (RFC 9332, section 4.2: the
/// scheduler must starve neither): the L4S queue is empty after each of them.
#[test]
fn dualpi2_serves_classic_beside_l4s() {
    let mut queue = queue("dualpi2", "");
    (0..20).for_each(|handle| queue.enqueue(&Packet { ecn: 2, ..packet(handle, 1, 1000) }, 0));
    let mut classic = 0;
    for nth in 0..100_u64 {
        queue.enqueue(&Packet { ecn: 1, ..packet(1_000 + nth, 2, 1000) }, nth);
        classic += u64::from(queue.dequeue(nth).is_some_and(|sent| sent.handle < 1_000));
    }
    assert_eq!(classic, 10, "one turn in ten");
}
