//! A link: its queue, its rate, and the impairments on its way.

use std::sync::Arc;

use super::discipline::{Backlog, Discipline, Item};
use super::measure::Histogram;
use super::tournament::NEVER;
use weft_engine::packet::impair::{Chances, Impairments, Loss, Reorder};
use weft_engine::packet::pipe::Pipe;
use weft_engine::packet::trace::{Cursor, Trace};

/// A queue whose timeout has passed is polled again after this time, so that it cannot stop the clock.
const RETRY_NS: u64 = 1000;
/// A queue that has returned nothing this many times in a row is polled again only after that time too.
const EMPTY_POLLS_MAX: u32 = 64;
const NS_PER_MS: u64 = 1_000_000;

/// The rate of a link.
#[derive(Clone, Debug)]
pub enum Rate {
    /// No limit: the link only delays. It never queues.
    Unlimited,
    /// Bits per second.
    Fixed(u64),
    /// 1500 bytes at each opportunity of a [`Trace`].
    Trace(Arc<Trace>),
}

/// The properties of a link.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// The rate.
    pub rate: Rate,
    /// Propagation delay: from the last bit sent to the last bit received.
    pub delay_ns: u64,
    /// Maximum random extra delay. Each packet draws its own, so packets may be reordered.
    pub jitter_ns: u64,
    /// The share of packets that are lost at random.
    pub loss: f64,
    /// The share of packets that take 10 % more delay, at least a millisecond; later packets overtake them.
    pub reorder: f64,
}

/// Counters of a link. `entered = sent + dropped + queued`, and `sent = arrived + lost + in transit`.
#[derive(Clone, Debug, Default)]
pub struct LinkStats {
    /// Packets that arrived at its queue.
    pub entered: u64,
    /// Packets that it started to send.
    pub sent: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets that its queue dropped.
    pub dropped: u64,
    /// Packets that were lost in transit.
    pub lost: u64,
    /// Packets that arrived at its far end.
    pub arrived: u64,
    /// Sojourn times of the sent packets in the queue.
    pub sojourn: Histogram,
}

/// A packet in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InTransit {
    /// The packet's handle.
    pub(super) handle: u32,
    /// It is lost, and does not arrive.
    pub(super) is_lost: bool,
}

/// A link in a network.
pub(super) struct Link {
    pub(super) spec: LinkSpec,
    pub(super) queue: Box<dyn Discipline>,
    pub(super) stats: LinkStats,
    /// The impairments, and the packets in transit.
    impair: Impairments,
    chances: Chances,
    pipe: Pipe<InTransit>,
    /// When the next packet may be sent; [`NEVER`] while none is queued.
    next_send_ns: u64,
    /// When the sender is free again.
    free_ns: u64,
    /// The remainder of the last division of bits by the rate, so that the rate is exact.
    carry: u64,
    cursor: Cursor,
    /// The millisecond of the last rate that the queue got from a trace.
    rate_ms: u64,
    /// How many times in a row the queue returned nothing, and until when it is not polled after too many.
    empty_polls: u32,
    retry_at_ns: u64,
}

impl LinkSpec {
    /// A link with a fixed rate in bits per second and a delay, without loss.
    pub fn fixed(bits_per_s: u64, delay_ns: u64) -> Self {
        Self { rate: Rate::Fixed(bits_per_s), ..Self::wire(delay_ns) }
    }

    /// A link that only delays.
    pub fn wire(delay_ns: u64) -> Self {
        Self { rate: Rate::Unlimited, delay_ns, jitter_ns: 0, loss: 0.0, reorder: 0.0 }
    }

    /// A link that sends at the opportunities of a trace.
    pub fn trace(trace: Arc<Trace>, delay_ns: u64) -> Self {
        Self { rate: Rate::Trace(trace), ..Self::wire(delay_ns) }
    }
}

impl Link {
    /// An idle link. The seed decides its impairments.
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
            empty_polls: 0,
            retry_at_ns: 0,
        };
        link.report_rate(0);
        link
    }

    /// The time at which the link must be called next.
    pub(super) fn deadline(&self, now_ns: u64) -> u64 {
        let arrival = self.pipe.poll_timeout().unwrap_or(NEVER);
        let timer = match self.queue.poll_timeout() {
            None => NEVER,
            Some(at_ns) if at_ns > now_ns => at_ns.max(self.retry_at_ns),
            // The link polls its queue when it can send; the queue's timer may have changed by then.
            Some(_) if self.next_send_ns != NEVER => NEVER,
            Some(_) => now_ns + RETRY_NS,
        };
        arrival.min(self.next_send_ns).min(timer)
    }

    /// Enqueues an arriving item.
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

    /// The next packet that has arrived at the end, or would have without loss.
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

    /// Runs the queue's timer and sends what may be sent. Returns the item that left the queue.
    pub(super) fn poll_send(&mut self, now_ns: u64) -> Option<Item> {
        if self.queue.poll_timeout().is_some_and(|at| at <= now_ns) {
            self.queue.handle_timeout(now_ns);
            // The queue may release items that it held.
            if self.next_send_ns == NEVER && self.queue.backlog().packets > 0 {
                self.next_send_ns = self.opportunity(now_ns);
            }
        }
        if self.next_send_ns > now_ns {
            return None;
        }
        let Some(item) = self.queue.dequeue(now_ns) else {
            // The queue is empty or holds its items: the next item or the queue's timer restarts the link.
            self.next_send_ns = NEVER;
            self.empty_polls = self.empty_polls.saturating_add(1);
            if self.empty_polls > EMPTY_POLLS_MAX {
                self.retry_at_ns = now_ns + RETRY_NS;
            }
            return None;
        };
        self.empty_polls = 0;
        self.stats.sojourn.add(now_ns - item.enqueued_at_ns);
        self.free_ns = self.departure_ns(now_ns, item.len);
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

    /// The number of packets in transit.
    pub(super) fn in_transit(&self) -> usize {
        self.pipe.len()
    }

    /// The last bit of a packet leaves at `at_ns`.
    fn send(&mut self, handle: u32, len: u32, at_ns: u64) {
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(len);
        let passage = self.chances.next(&self.impair, at_ns);
        self.pipe.enter(InTransit { handle, is_lost: passage.is_lost }, &passage);
    }

    /// The first time from `from_ns` on at which the link could send a packet.
    fn opportunity(&mut self, from_ns: u64) -> u64 {
        match &self.spec.rate {
            Rate::Unlimited => from_ns,
            Rate::Fixed(_) => from_ns.max(self.free_ns),
            Rate::Trace(trace) => trace.next_at(&mut self.cursor, from_ns),
        }
    }

    /// Sets the queue's rate to the current rate of the link, as links of a node do.
    fn report_rate(&mut self, now_ns: u64) {
        self.rate_ms = now_ns / NS_PER_MS;
        match &self.spec.rate {
            Rate::Unlimited => {}
            Rate::Fixed(bits_per_s) => self.queue.set_rate(*bits_per_s),
            Rate::Trace(trace) => self.queue.set_rate(trace.bits_per_s_around(now_ns)),
        }
    }

    /// When the last bit of a packet leaves that is sent from now on. Consumes opportunities of a trace.
    fn departure_ns(&mut self, now_ns: u64, len: u32) -> u64 {
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
