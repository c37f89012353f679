//! Controlled delay: drops the head once sojourn times stay too long.

use std::collections::VecDeque;

use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, ECN_CE, Item};

/// The variant of CoDel. Variants differ in their arithmetic, and so in which packets they drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodelRules {
    /// RFC 8289, section 5, with the interval over the square root of the count rounded down to a nanosecond.
    Rfc8289,
    /// ns-3 and Linux: time in units of 1024 ns, the inverse square root in 16 bits with one Newton step per drop, and
    /// *after* where the RFC has *at or after*.
    Ns3,
    /// sfqCoDel for ns-2 of 2012, which "Extending SDN to the Data Plane" used: the state of the last 8 intervals
    /// counts for the first drop and for the following ones.
    Sfq2012,
}

/// The parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelSpec {
    /// The acceptable sojourn time.
    pub target_ns: u64,
    /// How long sojourn times may exceed the target.
    pub interval_ns: u64,
    /// Nothing is dropped while the backlog is at most this many bytes.
    pub mtu: u32,
    /// The variant.
    pub rules: CodelRules,
    /// Mark ECN-capable items instead of dropping them.
    pub ecn: bool,
}

/// CoDel on one FIFO queue.
///
/// Source: RFC 8289. `limit_packets` bounds the backlog; packets that arrive at a full queue are dropped.
#[derive(Clone, Debug)]
pub struct Codel {
    spec: CodelSpec,
    state: CodelState,
    items: VecDeque<Item>,
    limit_packets: u64,
    backlog: Backlog,
    drops: Drops,
}

/// The state of CoDel. Times are in the units of the variant; `above_at` is 0 if unset.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodelState {
    /// When sojourn times will have been too long for an interval.
    above_at: u64,
    /// When the next item is to be dropped.
    next_at: u64,
    /// Drops since this dropping state began.
    count: u32,
    count_before: u32,
    is_dropping: bool,
    /// The inverse square root of `count`, as a fraction of 2^16.
    root: u16,
}

impl Default for CodelSpec {
    /// 5 ms and 100 ms (RFC 8289, sections 4.2 and 4.3), and Ethernet frames.
    fn default() -> Self {
        Self {
            target_ns: 5_000_000,
            interval_ns: 100_000_000,
            mtu: 1514,
            rules: CodelRules::Rfc8289,
            ecn: false,
        }
    }
}

impl Default for CodelState {
    fn default() -> Self {
        Self { above_at: 0, next_at: 0, count: 0, count_before: 0, is_dropping: false, root: u16::MAX }
    }
}

impl Codel {
    /// A queue with a limit of packets.
    pub fn new(spec: CodelSpec, limit_packets: u64) -> Self {
        Self {
            spec,
            state: CodelState::default(),
            items: VecDeque::new(),
            limit_packets,
            backlog: Backlog::default(),
            drops: Drops::default(),
        }
    }
}

impl Discipline for Codel {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        if self.backlog.packets >= self.limit_packets {
            return self.drops.push(item, DropReason::Full);
        }
        self.backlog.add(&item);
        self.items.push_back(item);
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        let Self { spec, state, items, backlog, drops, .. } = self;
        let pop = || {
            let item = items.pop_front()?;
            backlog.remove(&item);
            Some((item, backlog.bytes))
        };
        state.dequeue(spec, now_ns, pop, drops)
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        self.drops.poll()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl CodelState {
    /// The next item to send. `pop` removes the queue's head and returns it with the remaining bytes.
    pub(super) fn dequeue(
        &mut self,
        spec: &CodelSpec,
        now_ns: u64,
        mut pop: impl FnMut() -> Option<(Item, u64)>,
        drops: &mut Drops,
    ) -> Option<Item> {
        let mut next = |state: &mut Self| {
            let popped = pop();
            let is_late = state.is_late(spec, popped.as_ref(), now_ns);
            (popped.map(|(item, _)| item), is_late)
        };
        let now = spec.units(now_ns);
        let (mut head, mut is_late) = next(self);
        if self.is_dropping {
            self.is_dropping = is_late;
            while self.is_dropping && now >= self.next_at {
                if spec.rules != CodelRules::Sfq2012 {
                    self.count_up();
                }
                if spec.marks(&mut head) {
                    self.next_at += self.gap(spec);
                    break;
                }
                drops.push(head?, DropReason::Late);
                (head, is_late) = next(self);
                self.is_dropping = is_late;
                if is_late {
                    if spec.rules == CodelRules::Sfq2012 {
                        self.count_up();
                    }
                    self.next_at += self.gap(spec);
                }
            }
        } else if is_late {
            if !spec.marks(&mut head) {
                drops.push(head?, DropReason::Late);
                (head, _) = next(self);
            }
            self.begin(spec, now);
        }
        head
    }

    /// Whether sojourn times are too long for an interval: `ok_to_drop` of the RFC.
    #[inline]
    fn is_late(&mut self, spec: &CodelSpec, popped: Option<&(Item, u64)>, now_ns: u64) -> bool {
        let Some((item, bytes_left)) = popped else {
            self.above_at = 0;
            return false;
        };
        let now = spec.units(now_ns);
        let waited = spec.units(now_ns - item.enqueued_at_ns);
        let few = match spec.rules {
            CodelRules::Ns3 => *bytes_left < u64::from(spec.mtu),
            CodelRules::Rfc8289 | CodelRules::Sfq2012 => *bytes_left <= u64::from(spec.mtu),
        };
        if waited < spec.units(spec.target_ns) || few {
            self.above_at = 0;
            return false;
        }
        if self.above_at == 0 {
            let knows = spec.rules == CodelRules::Sfq2012 && self.count > 1 && self.is_recent(spec, now, 8);
            self.above_at = now + if knows { self.gap(spec) } else { spec.units(spec.interval_ns) };
            return false;
        }
        if spec.rules == CodelRules::Ns3 { now > self.above_at } else { now >= self.above_at }
    }

    /// Starts the dropping state, after the first drop.
    fn begin(&mut self, spec: &CodelSpec, now: u64) {
        self.is_dropping = true;
        let learned = match spec.rules {
            CodelRules::Sfq2012 if self.count > 2 && self.is_recent(spec, now, 8) => self.count - 2,
            CodelRules::Sfq2012 => 1,
            CodelRules::Rfc8289 | CodelRules::Ns3 => {
                let new = self.count.wrapping_sub(self.count_before);
                if (2..=self.count).contains(&new) && self.is_recent(spec, now, 16) { new } else { 1 }
            }
        };
        self.count = learned;
        self.count_before = learned;
        if learned == 1 {
            self.root = u16::MAX;
        } else {
            self.newton();
        }
        self.next_at = now + self.gap(spec);
    }

    fn count_up(&mut self) {
        self.count = self.count.saturating_add(1);
        self.newton();
    }

    /// Whether the last drop was due within so many intervals.
    fn is_recent(&self, spec: &CodelSpec, now: u64, intervals: u64) -> bool {
        now < self.next_at + intervals * spec.units(spec.interval_ns)
    }

    /// The interval over the square root of the count: `control_law` of the RFC without the time.
    fn gap(&self, spec: &CodelSpec) -> u64 {
        if spec.rules == CodelRules::Ns3 {
            return (spec.units(spec.interval_ns) * (u64::from(self.root) << 16)) >> 32;
        }
        // The root of a square's integer part is the integer part of the root.
        let square = u128::from(spec.interval_ns) * u128::from(spec.interval_ns);
        (square / u128::from(self.count.max(1))).isqrt() as u64
    }

    /// A Newton step towards the inverse square root of the count: x (3 - count x x) / 2, in 32 bits, of which 16 are
    /// kept.
    fn newton(&mut self) {
        let root = u64::from(self.root) << 16;
        let square = (root * root) >> 32;
        let product = (3u64 << 32).wrapping_sub(u64::from(self.count).wrapping_mul(square)) >> 2;
        self.root = (product.wrapping_mul(root) >> 31 >> 16) as u16;
    }
}

impl CodelSpec {
    /// A time in the units of the variant.
    fn units(&self, ns: u64) -> u64 {
        if self.rules == CodelRules::Ns3 { ns >> 10 } else { ns }
    }

    /// Marks an item instead of dropping it, if it is ECN-capable.
    fn marks(&self, head: &mut Option<Item>) -> bool {
        match head {
            Some(item) if self.ecn && item.ecn != 0 => {
                item.ecn = ECN_CE;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Items of 1500 bytes arrive every `in_us` and leave every `out_us`. Returns the times of drops, in milliseconds.
    fn drops_at(spec: CodelSpec, in_us: u64, out_us: u64, ms: u64) -> Vec<f64> {
        let mut codel = Codel::new(spec, 100_000);
        let (mut arrival, mut departure, mut id) = (0, 0, 0);
        let mut times = Vec::new();
        while departure < ms * MS {
            if arrival <= departure {
                let item = Item { id, len: 1500, enqueued_at_ns: arrival, ecn: 1, ..Item::default() };
                codel.enqueue(item, arrival);
                (arrival, id) = (arrival + in_us * 1000, id + 1);
            } else {
                codel.dequeue(departure);
                while codel.poll_drop().is_some() {
                    times.push(departure as f64 / 1e6);
                }
                departure += out_us * 1000;
            }
        }
        times
    }

    /// If this fails, drop times do not match RFC 8289, section 5.3: an interval after sojourn times became too long,
    /// then at intervals over the square root of the count.
    #[test]
    fn drops_follow_inverse_square_root() {
        let times = drops_at(CodelSpec::default(), 1000, 1200, 2000);
        assert!(times[0] > 125.0 && times[0] < 135.0, "{}", times[0]);
        let mut due = times[0];
        for (nth, at) in times.iter().enumerate().take(20) {
            assert!((0.0..1.3).contains(&(at - due)), "drop {nth} at {at}, due at {due}");
            due += 100.0 / f64::from(nth as u32 + 1).sqrt();
        }
    }

    /// If this fails, a program with ns-3's arithmetic is compared with a twin of other arithmetic. 12 Mbit/s into 10
    /// Mbit/s drop more with Newton's roots than with exact ones, and at other times from the third drop on.
    #[test]
    fn arithmetic_decides_the_drops() {
        let exact = drops_at(CodelSpec::default(), 1000, 1200, 3000);
        let newton = drops_at(CodelSpec { rules: CodelRules::Ns3, ..CodelSpec::default() }, 1000, 1200, 3000);
        assert!(newton.len() > exact.len(), "{} {}", newton.len(), exact.len());
        // Newton's first step gives 1/2 for the root of 1/2.
        let second = |times: &[f64]| times[2] - times[1];
        assert!((second(&exact) - 70.7).abs() < 1.3 && (second(&newton) - 50.0).abs() < 1.3);
    }

    /// If this fails, a queue with short sojourn times drops, or an ECN-capable item is dropped instead of marked.
    #[test]
    fn good_queue_loses_nothing() {
        for rules in [CodelRules::Rfc8289, CodelRules::Ns3, CodelRules::Sfq2012] {
            let spec = CodelSpec { rules, ..CodelSpec::default() };
            assert!(drops_at(spec, 1200, 1200, 3000).is_empty());
            assert!(!drops_at(spec, 1000, 1200, 3000).is_empty());
            assert!(drops_at(CodelSpec { ecn: true, ..spec }, 1000, 1200, 3000).is_empty());
        }
    }

    /// If this fails, constants differ from RFC 8289, sections 4.4 and 4.5.
    #[test]
    fn constants_match_rfc_8289() {
        let spec = CodelSpec::default();
        assert_eq!((spec.target_ns, spec.interval_ns), (5 * MS, 100 * MS));
    }
}
