//! A link: what is queued at its head, how fast it sends, and what happens on the way.

use std::sync::Arc;

use super::discipline::{Backlog, Discipline, Item};
use super::measure::Histogram;
use super::tournament::NEVER;
use weft_engine::packet::impair::{Chances, Impairments, Loss, Reorder};
use weft_engine::packet::pipe::Pipe;
use weft_engine::packet::trace::{Cursor, Trace};

/// A queue that holds its items until a time that has passed is asked again after so long: it must not stop the clock.
const PATIENCE_NS: u64 = 1000;
/// So is one that was asked in vain so often in a row: it must not have the clock go by moments.
const IN_VAIN_MAX: u32 = 64;
const NS_PER_MS: u64 = 1_000_000;

/// How fast a link sends.
#[derive(Clone, Debug)]
pub enum Rate {
    /// At once: the link only takes time. Nothing is ever queued.
    Unlimited,
    /// So many bits a second.
    Fixed(u64),
    /// 1500 bytes at each opportunity, as [`Trace`] has it.
    Trace(Arc<Trace>),
}

/// What a link does to what is sent into it.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// How fast it sends.
    pub rate: Rate,
    /// From the last bit sent to the last bit received.
    pub delay_ns: u64,
    /// How much longer a packet may be on the way, by chance; each draws its own, and may overtake others.
    pub jitter_ns: u64,
    /// The share of packets that are lost on the way, by chance.
    pub loss: f64,
    /// The share of packets that take a tenth of the delay more, a millisecond at least; packets behind them overtake.
    pub reorder: f64,
}

/// What went through a link. `entered = sent + dropped + queued`, and `sent = arrived + lost + on the way`.
#[derive(Clone, Debug, Default)]
pub struct LinkStats {
    /// Packets that came to its head.
    pub entered: u64,
    /// Packets that it began to send.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that its queue dropped.
    pub dropped: u64,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// Packets that reached its end.
    pub arrived: u64,
    /// How long packets that were sent had waited.
    pub sojourn: Histogram,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InTransit {
    /// The packet.
    pub(super) handle: u32,
    /// It was lost, and does not arrive.
    pub(super) is_lost: bool,
}

/// A link in a network.
pub(super) struct Link {
    pub(super) spec: LinkSpec,
    pub(super) queue: Box<dyn Discipline>,
    pub(super) stats: LinkStats,
    /// What happens on the way, and what is there.
    impair: Impairments,
    chances: Chances,
    pipe: Pipe<InTransit>,
    /// When the next packet may be sent; [`NEVER`] while nothing waits.
    next_send_ns: u64,
    /// When the sender is free again.
    free_ns: u64,
    /// What the division of a packet's bits by the rate left over, so that the rate is exact.
    carry: u64,
    cursor: Cursor,
    /// The millisecond for which the queue was told the rate of a trace.
    rate_ms: u64,
    /// How often in a row the queue had nothing to give; and until when it is not asked, if that was too often.
    asked_in_vain: u32,
    patient_until_ns: u64,
}

impl LinkSpec {
    /// So many bits a second and a delay, without loss.
    pub fn fixed(bits_per_s: u64, delay_ns: u64) -> Self {
        Self { rate: Rate::Fixed(bits_per_s), ..Self::wire(delay_ns) }
    }

    /// A link that only takes time.
    pub fn wire(delay_ns: u64) -> Self {
        Self { rate: Rate::Unlimited, delay_ns, jitter_ns: 0, loss: 0.0, reorder: 0.0 }
    }

    /// A link that can send when its trace says so.
    pub fn trace(trace: Arc<Trace>, delay_ns: u64) -> Self {
        Self { rate: Rate::Trace(trace), ..Self::wire(delay_ns) }
    }
}

impl Link {
    /// A link on which nothing is; what happens on the way follows from the seed.
    pub(super) fn new(spec: LinkSpec, queue: Box<dyn Discipline>, seed: u64) -> Self {
        let impair = Impairments {
            jitter_ns: spec.jitter_ns,
            loss: Loss::Each(spec.loss),
            reorder: Reorder { share: spec.reorder, ..Reorder::default() },
            ..Impairments::delay(spec.delay_ns)
        };
        let mut link = Self {
            spec,
            queue,
            stats: LinkStats::default(),
            impair,
            chances: Chances::new(seed),
            pipe: Pipe::default(),
            next_send_ns: NEVER,
            free_ns: 0,
            carry: 0,
            cursor: Cursor::default(),
            rate_ms: 0,
            asked_in_vain: 0,
            patient_until_ns: 0,
        };
        link.report_rate(0);
        link
    }

    /// When this link wants to be called.
    pub(super) fn deadline(&self, now_ns: u64) -> u64 {
        let arrival = self.pipe.poll_timeout().unwrap_or(NEVER);
        let timer = match self.queue.poll_timeout() {
            None => NEVER,
            Some(at_ns) if at_ns > now_ns => at_ns.max(self.patient_until_ns),
            // It is asked when the link can send, and may have changed its mind by then.
            Some(_) if self.next_send_ns != NEVER => NEVER,
            Some(_) => now_ns + PATIENCE_NS,
        };
        arrival.min(self.next_send_ns).min(timer)
    }

    /// An item comes to the head.
    pub(super) fn enter(&mut self, mut item: Item, now_ns: u64) {
        self.stats.entered += 1;
        if matches!(self.spec.rate, Rate::Unlimited) {
            return self.send(item.handle, item.len, now_ns);
        }
        item.enqueued_at_ns = now_ns;
        self.queue.enqueue(item, now_ns);
        if self.next_send_ns == NEVER {
            self.next_send_ns = self.opportunity(now_ns);
        }
    }

    /// The next packet that has reached the end by now, or would have.
    #[inline]
    pub(super) fn poll_arrival(&mut self, now_ns: u64) -> Option<InTransit> {
        let first = self.pipe.poll(now_ns)?;
        if first.is_lost {
            self.stats.lost += 1;
        } else {
            self.stats.arrived += 1;
        }
        Some(first)
    }

    /// Lets the queue's timer run, and sends what may be sent by now. Gives the item that left the queue.
    pub(super) fn poll_send(&mut self, now_ns: u64) -> Option<Item> {
        if self.queue.poll_timeout().is_some_and(|at| at <= now_ns) {
            self.queue.handle_timeout(now_ns);
            // It may let go what it held.
            if self.next_send_ns == NEVER && self.queue.backlog().packets > 0 {
                self.next_send_ns = self.opportunity(now_ns);
            }
        }
        if self.next_send_ns > now_ns {
            return None;
        }
        let Some(item) = self.queue.dequeue(now_ns) else {
            // Empty, or held back: what comes next, an item or the queue's timer, starts it again.
            self.next_send_ns = NEVER;
            self.asked_in_vain = self.asked_in_vain.saturating_add(1);
            if self.asked_in_vain > IN_VAIN_MAX {
                self.patient_until_ns = now_ns + PATIENCE_NS;
            }
            return None;
        };
        self.asked_in_vain = 0;
        self.stats.sojourn.add(now_ns - item.enqueued_at_ns);
        self.free_ns = self.through_ns(now_ns, item.len);
        if matches!(self.spec.rate, Rate::Trace(_)) && now_ns / NS_PER_MS != self.rate_ms {
            self.report_rate(now_ns);
        }
        self.next_send_ns =
            if self.queue.backlog().packets > 0 { self.opportunity(self.free_ns) } else { NEVER };
        self.send(item.handle, item.len, self.free_ns);
        Some(item)
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// How many packets are on the way.
    pub(super) fn on_the_way(&self) -> usize {
        self.pipe.len()
    }

    /// The last bit of a packet leaves at `at_ns`.
    fn send(&mut self, handle: u32, len: u32, at_ns: u64) {
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(len);
        let passage = self.chances.next(&self.impair, at_ns);
        self.pipe.enter(InTransit { handle, is_lost: passage.is_lost }, &passage);
    }

    /// The first moment from `from_ns` at which a packet may be sent, if one waits.
    fn opportunity(&mut self, from_ns: u64) -> u64 {
        match &self.spec.rate {
            Rate::Unlimited => from_ns,
            Rate::Fixed(_) => from_ns.max(self.free_ns),
            Rate::Trace(trace) => trace.next_at(&mut self.cursor, from_ns),
        }
    }

    /// Tells the queue how fast the link is at this time, as links of a node do.
    fn report_rate(&mut self, now_ns: u64) {
        self.rate_ms = now_ns / NS_PER_MS;
        match &self.spec.rate {
            Rate::Unlimited => {}
            Rate::Fixed(bits_per_s) => self.queue.set_rate(*bits_per_s),
            Rate::Trace(trace) => self.queue.set_rate(trace.bits_per_s_around(now_ns)),
        }
    }

    /// When the last bit of a packet leaves that is sent from now on; takes opportunities of a trace.
    fn through_ns(&mut self, now_ns: u64, len: u32) -> u64 {
        match &self.spec.rate {
            Rate::Unlimited => now_ns,
            Rate::Fixed(bits_per_s) => {
                let bits = u64::from(len) * 8 * 1_000_000_000 + self.carry;
                self.carry = bits % bits_per_s;
                now_ns + bits / bits_per_s
            }
            Rate::Trace(trace) => trace.take(&mut self.cursor, now_ns, len),
        }
    }
}
