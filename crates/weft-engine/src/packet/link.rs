//! Links: frames that wait in a queue program, and leave at a rate.
//!
//! A [`Link`] stands between the chains of a node and a port. It owns the frames that wait; its [`Queue`] knows of each
//! what [`describe`] reads from its headers, and never the rest. Frames come in by [`Link::handle_frame`], those that
//! may leave come out by [`Link::poll_frame`], and [`Link::poll_timeout`] says when to ask again. A link with a
//! [`Path`] stands for another: what leaves its queue is then on the way for a while, or lost.

use super::headers::{Headers, Reading};
use super::path::{Path, PathCounts, Wire};
use super::trace::Trace;
use crate::queue::{Counts, LineTotal, Lines, Packet, PartitionState, Queue, Sent, Written};
use crate::recording::{Asked, Limits, Progress, Recorder};
use crate::stats::Histogram;
use core::fmt;
use std::sync::Arc;
use weft_core::flow::{Flow, placed_flow_of};
use weft_core::frame::{Frame, Pool, ip_at, network_at};
use weft_core::hash::HashKey;
use weft_core::ip::{IpPacket, change_traffic_class};
use weft_core::{Interval, Time};
use weft_ir::queue::{Field, QueueCode, QueueProgram};

/// A link that was held up sends so much faster than its rate afterwards, until it has made up for this time at most.
pub const CATCH_UP_NS: u64 = 10_000_000;

/// Below this rate, in bits a second, packets that the kernel has not cut yet are cut before they wait: on a slow link
/// the whole of one would be in the way of all others.
pub const CUT_BELOW: u64 = 1_000_000_000;

/// The least that a frame of Ethernet carries: shorter packets are filled up (IEEE 802.3).
const PADDED_TO: usize = 46;

/// What is done with frames while the port of a link has no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They wait until it is back, as many as the queue holds.
    Hold,
    /// They are dropped as they come to leave, by [`Link::lose_frame`].
    Drop,
}

/// A link as a plan has it.
#[derive(Clone)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its port, an index into [`super::plan::PacketPlan::ports`].
    pub port: u16,
    /// It holds up what comes in and not what goes out.
    pub ingress: bool,
    /// Frames of the port begin with the IP header.
    pub is_ip: bool,
    /// Bits a second; None is as fast as the port takes them.
    pub rate: Option<u64>,
    /// What stands behind it; None: the port's own.
    pub path: Option<Path>,
    /// What is done while the port has no device; None: there is no going on.
    pub on_failure: Option<OnFailure>,
    /// What its queue is asked is noted, for [`Link::take_recording`].
    pub is_recorded: bool,
    /// What the queue asks of headers, if it does.
    pub headers: Option<Arc<Headers>>,
    /// How frames wait.
    pub program: Arc<QueueProgram>,
    /// The code of that.
    pub code: Arc<dyn QueueCode>,
    /// In which words it was written.
    pub written: Written,
}

impl fmt::Debug for LinkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} on port {} with {}", self.name, self.port, self.program.name)
    }
}

/// A link that runs.
#[derive(Debug)]
pub struct Link {
    plan: LinkPlan,
    queue: Queue<Arc<dyn QueueCode>>,
    /// The frames that wait, by the handle that the queue has of them.
    frames: Vec<Option<Frame>>,
    free: Vec<u32>,
    /// Of a packet that is being cut; empty between two.
    segments: Vec<Frame>,
    /// What stands behind it, if it is not the port alone.
    wire: Option<Wire>,
    /// When the frame that was sent last is through; with a trace, the opportunity that is next.
    free_at: u64,
    /// What the division of a frame's bits by the rate left over, so that the rate is exact.
    carry: u64,
    /// The rate that the queue was told last.
    told_rate: u64,
    /// It had nothing to send since: there is nothing to make up for.
    was_idle: bool,
    /// Since the queue was found empty, no frame has come.
    asked_in_vain: bool,
    recorder: Option<Recorder>,
    /// For reading headers, if its queue asks for any.
    reading: Reading,
    /// What tells flows apart for its queue: of the seed, and so the same when the link is replaced.
    hash: HashKey,
    /// How long frames waited, in the queue at hand.
    waits: Histogram,
    /// What earlier queues of this link counted.
    before: Counts,
    /// What the lines of all of them did.
    lines: Lines,
    swap_overflow: u64,
    swap_kept: u64,
}

/// What a link counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Of all queues that it had.
    pub counts: Counts,
    /// Frames that a new queue refused when it took over.
    pub swap_overflow: u64,
    /// Frames that waited when another plan took over, and went on waiting.
    pub swap_kept: u64,
    /// Of those sent: what happened to them on the path behind it.
    pub path: PathCounts,
    /// Of those sent: on that path.
    pub on_the_way: u64,
    /// Half, nine in ten, and 99 in 100 of the frames that the queue at hand sent waited no longer, in nanoseconds.
    pub waited_ns: [u64; 3],
    /// Drops and marks by line, of all queues that it had.
    pub lines: Vec<LineTotal>,
    /// The versions of the program that had the levels of the queue at hand in their words first.
    pub versions: Vec<u64>,
    /// Its partitions, the first of them.
    pub partitions: Vec<PartitionState>,
}

/// Partitions that statistics list, at most.
const PARTITIONS_LISTED_MAX: usize = 64;

impl Link {
    /// A link with nothing in it.
    pub fn new(plan: LinkPlan, now: Time, seed: u64) -> Self {
        let queue = queue_of(&plan, now, seed);
        let (frames, free, segments) = (Vec::new(), Vec::new(), Vec::new());
        let waits = Histogram::default();
        let before = Counts::default();
        let recorder = plan.is_recorded.then(|| {
            let mut recorder = Recorder::new(nanos(now), seed, Limits::NONE);
            recorder.note(nanos(now), &Asked::Rate(rate_at_first(&plan)));
            recorder
        });
        let wire = plan.path.clone().map(|path| Wire::new(path, nanos(now), seed));
        let reading = reading_of(&plan);
        let lines = Lines::new(&plan.program, &plan.written);
        let told_rate = rate_at_first(&plan);
        Self {
            plan,
            told_rate,
            reading,
            hash: HashKey::from_seed(seed),
            queue,
            frames,
            free,
            segments,
            wire,
            free_at: 0,
            carry: 0,
            was_idle: true,
            asked_in_vain: false,
            recorder,
            waits,
            before,
            lines,
            swap_overflow: 0,
            swap_kept: 0,
        }
    }

    /// What it runs.
    pub fn plan(&self) -> &LinkPlan {
        &self.plan
    }

    /// A frame is to be sent. The queue may drop it, or others for it.
    pub fn handle_frame(&mut self, frame: Frame, pool: &mut Pool, now: Time) {
        if frame.meta.offload.gso.is_none() || !self.cuts() {
            return self.enqueue(frame, pool, now);
        }
        let network = if self.plan.is_ip { Some(0) } else { network_at(pool.bytes(&frame)) };
        let mut segments = core::mem::take(&mut self.segments);
        let is_cut = network.is_some_and(|at| pool.segment(&frame, at, &mut segments).is_ok());
        // What cannot be cut now, for want of buffers or because it is not what it says, waits as it is.
        match is_cut {
            true => pool.give(frame),
            false => segments.push(frame),
        }
        segments.drain(..).for_each(|segment| self.enqueue(segment, pool, now));
        self.segments = segments;
    }

    /// Whether what the kernel has not cut yet is cut before it waits.
    fn cuts(&self) -> bool {
        match self.plan.rate {
            // What is lost, or takes an opportunity, is a packet as it is on the wire.
            _ if self.wire.is_some() => true,
            Some(rate) => rate < CUT_BELOW,
            // A queue that holds packets back shapes them at a rate of its own, with what a line adds to each.
            None => self.plan.program.holds(),
        }
    }

    /// A frame was to be sent, but is dropped instead of waiting, for want of buffers. The queue counts it.
    pub fn refuse_frame(&mut self, frame: Frame, pool: &mut Pool) {
        self.queue.note_refused();
        pool.give(frame);
    }

    fn enqueue(&mut self, frame: Frame, pool: &mut Pool, now: Time) {
        let mut packet = seen(&frame, self.hash, &self.plan, &mut self.reading, pool, now);
        let handle = match self.free.pop() {
            Some(handle) => handle,
            None => {
                self.frames.push(None);
                self.frames.len() as u32 - 1
            }
        };
        packet.handle = u64::from(handle);
        self.frames[handle as usize] = Some(frame);
        self.asked_in_vain = false;
        self.note(nanos(now), &Asked::Enqueue(packet));
        self.queue.enqueue(&packet, nanos(now));
        self.drop_dropped(pool);
    }

    /// A frame that leaves now.
    pub fn poll_frame(&mut self, pool: &mut Pool, now: Time) -> Option<Frame> {
        let now = nanos(now);
        if self.wire.is_none() {
            return self.send(pool, now).map(|(frame, _)| frame);
        }
        self.handle_changes(now);
        while let Some((frame, left_ns)) = self.send(pool, now) {
            let way = self.wire.as_mut()?.enter(frame, left_ns, pool);
            if !way.is_plain() {
                self.note(now, &Asked::Path(way));
            }
        }
        self.wire.as_mut()?.poll_frame(now)
    }

    /// A frame that would leave now is dropped: the port has no device. False: none would.
    ///
    /// Of a link with a [`Path`], which no port has, those on the way stay there.
    pub fn lose_frame(&mut self, pool: &mut Pool, now: Time) -> bool {
        let now = nanos(now);
        let Some(sent) = self.next(pool, now) else { return false };
        self.queue.note_lost();
        self.note_sent(sent.len, now);
        if let Some(frame) = self.take(sent.handle) {
            pool.give(frame);
        }
        true
    }

    /// A frame that leaves the queue, and when its last bit is out.
    fn send(&mut self, pool: &mut Pool, now: u64) -> Option<(Frame, u64)> {
        let sent = self.next(pool, now)?;
        let frame = self.take(sent.handle)?;
        self.waits.record(Interval(now.saturating_sub(sent.arrived_ns) as i64));
        self.queue.note_sent(&sent, now);
        let left_ns = self.note_sent(sent.len, now);
        let dscp = self.queue.last_sent(Field::Dscp).map(|dscp| dscp as u8);
        set_codepoints(pool.bytes_mut(&frame), self.plan.is_ip, sent.ecn, dscp);
        Some((frame, left_ns))
    }

    /// What the queue lets go, if the link is free.
    fn next(&mut self, pool: &mut Pool, now: u64) -> Option<Sent> {
        if let Some(wire) = self.wire.as_mut().filter(|_| self.was_idle && self.queue.counts().queued > 0)
            && let Some(at) = wire.opportunity(now)
        {
            self.free_at = at;
            self.was_idle = false;
        }
        if self.free_at > now {
            return None;
        }
        if self.asked_in_vain {
            return None;
        }
        self.note(now, &Asked::Dequeue);
        let sent = self.queue.dequeue(now);
        self.drop_dropped(pool);
        if sent.is_none() {
            self.was_idle = true;
            self.asked_in_vain = self.queue.counts().queued == 0;
        }
        sent
    }

    /// A frame of so many bytes has left: it is not free until later. When its last bit is out.
    fn note_sent(&mut self, len: u32, now: u64) -> u64 {
        let late = if self.was_idle { 0 } else { CATCH_UP_NS };
        let from = self.free_at.max(now.saturating_sub(late));
        self.was_idle = self.queue.counts().queued == 0;
        if let Some(wire) = &mut self.wire
            && let Some(through) = wire.take_opportunities(from, len)
        {
            // What is left of that opportunity is for the next, if one waits.
            self.free_at = wire.opportunity(through).unwrap_or(through);
            let rate = wire.rate(through).unwrap_or(0);
            self.tell_rate(now, rate);
            return through;
        }
        let Some(rate) = self.plan.rate.filter(|rate| *rate > 0) else { return now };
        let bits = u64::from(len).saturating_mul(8_000_000_000).saturating_add(self.carry);
        self.carry = bits % rate;
        self.free_at = from + bits / rate;
        self.free_at
    }

    /// When to ask again though no frame comes.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waits = self.queue.counts().queued > 0;
        let rate = (waits && self.free_at > 0).then_some(self.free_at);
        let queue = self.queue.poll_timeout();
        // While a frame is on the link, what the queue lets go has to wait for it.
        let at = match (rate, queue) {
            (Some(rate), Some(queue)) if waits => Some(rate.max(queue)),
            (rate, queue) => rate.or(queue),
        };
        let arrival = self.wire.as_ref().and_then(Wire::poll_timeout);
        let at = [at, arrival].into_iter().flatten().min();
        at.map(|ns| Time(ns as i64))
    }

    /// The path is another from now on, if it is time.
    fn handle_changes(&mut self, now: u64) {
        while let Some(rate) = self.wire.as_mut().and_then(|wire| wire.poll_change(now)) {
            if rate != self.plan.rate {
                self.plan.rate = rate;
                self.leave_now(now);
                self.tell_rate(now, rate_at_first(&self.plan));
            }
        }
    }

    /// What is on the link is through at the old rate, or with the old trace, in no time of the new one.
    fn leave_now(&mut self, now: u64) {
        self.free_at = self.free_at.min(now);
        self.carry = 0;
    }

    /// Tells the queue how fast the link is, if that is news.
    fn tell_rate(&mut self, now: u64, rate: u64) {
        if rate != self.told_rate {
            self.told_rate = rate;
            self.note(now, &Asked::Rate(rate));
            self.queue.set_rate(rate);
        }
    }

    /// Runs what is due by the clock.
    pub fn handle_timeout(&mut self, pool: &mut Pool, now: Time) {
        let now = nanos(now);
        self.handle_changes(now);
        if self.queue.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        self.note(now, &Asked::Timeout);
        self.queue.handle_timeout(now);
        self.drop_dropped(pool);
    }

    /// Goes on with another plan. What waits enters the new queue as it came, with the time at which it did; a queue
    /// whose program is the same goes on as it is.
    pub fn replace(&mut self, plan: LinkPlan, pool: &mut Pool, now: Time, seed: u64) {
        let before = core::mem::take(&mut self.reading);
        let mut reading = match (&plan.headers, &self.plan.headers) {
            (Some(headers), Some(known)) => headers.reading_on(known, before),
            _ => reading_of(&plan),
        };
        if *plan.program != *self.plan.program {
            let mut packets = self.queue.take_all();
            self.describe_again(&mut packets, &plan, &mut reading, pool);
            let counts = self.queue.counts();
            self.asked_in_vain = false;
            if let Some(recorder) = &mut self.recorder {
                recorder.end();
            }
            self.before.add_past(&counts);
            self.lines.replace(&self.queue, &plan.program, &plan.written);
            self.waits = Histogram::default();
            self.queue = queue_of(&plan, now, seed);
            self.queue.adopt(&packets);
            // They came once, to the link.
            self.before.arrived -= packets.len() as u64;
            self.before.taken -= packets.len() as u64;
            self.swap_overflow += self.queue.counts().dropped();
            self.drop_dropped(pool);
        } else {
            self.lines.reword(&plan.program, &plan.written);
        }
        self.swap_kept += self.queue.counts().queued;
        self.reading = reading;
        if plan.rate != self.plan.rate || trace_of(&plan) != trace_of(&self.plan) {
            self.leave_now(nanos(now));
        }
        self.told_rate = rate_at_first(&plan);
        self.queue.set_rate(self.told_rate);
        self.note(nanos(now), &Asked::Rate(self.told_rate));
        match (&mut self.wire, &plan.path) {
            (Some(wire), path) => wire.follow(path.clone().unwrap_or_default(), nanos(now)),
            (wire, Some(path)) => *wire = Some(Wire::new(path.clone(), nanos(now), seed)),
            (None, None) => {}
        }
        self.plan = plan;
    }

    /// Another program asks for what this one did not: that is read from the frames. What this one may have changed
    /// stays as it is.
    fn describe_again(
        &mut self,
        packets: &mut [(Packet, u64)],
        plan: &LinkPlan,
        reading: &mut Reading,
        pool: &Pool,
    ) {
        for (packet, came_ns) in packets {
            let Some(frame) = &self.frames[packet.handle as usize] else { continue };
            let mut fresh = seen(frame, self.hash, plan, reading, pool, Time(*came_ns as i64));
            for (field, _) in
                Field::ALL.into_iter().filter(|(field, _)| self.plan.program.fields.contains(field))
            {
                fresh.copy(field, packet);
            }
            (fresh.handle, fresh.len, fresh.ecn) = (packet.handle, packet.len, packet.ecn);
            *packet = fresh;
        }
    }

    /// All that is on the way and all that waits, in the order in which it came: the link goes.
    pub fn take_all(&mut self) -> Vec<Frame> {
        let packets = self.queue.take_all();
        let mut frames = self.wire.as_mut().map(Wire::take_all).unwrap_or_default();
        frames.extend(packets.iter().filter_map(|(packet, _)| self.take(packet.handle)));
        frames
    }

    /// Notes from now on what its queue is asked. False: it does already.
    pub fn record(&mut self, limits: Limits, now: Time) -> bool {
        if self.recorder.is_some() {
            return false;
        }
        self.recorder = Some(Recorder::resuming(nanos(now), &self.queue.snapshot(), limits));
        true
    }

    /// How far that is.
    pub fn recording(&self, now: Time) -> Option<Progress> {
        self.recorder.as_ref().map(|recorder| recorder.progress(nanos(now)))
    }

    /// What was noted; nothing is from now on.
    pub fn take_recording(&mut self) -> Option<Recorder> {
        self.recorder.take()
    }

    fn note(&mut self, now_ns: u64, asked: &Asked) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now_ns, asked);
        }
    }

    /// What it counted.
    pub fn stats(&self) -> LinkStats {
        let mut counts = self.queue.counts();
        counts.add_past(&self.before);
        LinkStats {
            counts,
            swap_overflow: self.swap_overflow,
            swap_kept: self.swap_kept,
            path: self.wire.as_ref().map(|wire| wire.counts).unwrap_or_default(),
            on_the_way: self.wire.as_ref().map_or(0, Wire::on_the_way),
            waited_ns: [0.5, 0.9, 0.99].map(|share| self.waits.quantile(share).0 as u64),
            lines: self.lines.totals(&self.queue),
            versions: self.lines.versions().to_vec(),
            partitions: self.queue.partitions(PARTITIONS_LISTED_MAX),
        }
    }

    fn take(&mut self, handle: u64) -> Option<Frame> {
        self.free.push(handle as u32);
        self.frames[handle as usize].take()
    }

    fn drop_dropped(&mut self, pool: &mut Pool) {
        while let Some(dropped) = self.queue.poll_dropped() {
            if let Some(frame) = self.take(dropped.handle) {
                pool.give(frame);
            }
        }
    }
}

fn nanos(time: Time) -> u64 {
    time.0.max(0) as u64
}

fn queue_of(plan: &LinkPlan, now: Time, seed: u64) -> Queue<Arc<dyn QueueCode>> {
    let mut queue = Queue::new(plan.program.clone(), plan.code.clone(), nanos(now), seed);
    queue.set_rate(rate_at_first(plan));
    queue.watch();
    queue
}

/// The rate of which the queue is told at first: that of a trace on average. 0: there is none.
fn rate_at_first(plan: &LinkPlan) -> u64 {
    plan.rate.or(trace_of(plan).map(|trace| trace.bits_per_s())).unwrap_or(0)
}

fn trace_of(plan: &LinkPlan) -> Option<&Trace> {
    plan.path.as_ref()?.trace.as_deref()
}

/// What the headers of frames are read with, if the queue asks for any.
fn reading_of(plan: &LinkPlan) -> Reading {
    plan.headers.as_ref().map(|headers| headers.reading()).unwrap_or_default()
}

/// What the queue of a link sees of a frame that came to it at this time.
fn seen(
    frame: &Frame,
    by: HashKey,
    plan: &LinkPlan,
    reading: &mut Reading,
    pool: &Pool,
    came: Time,
) -> Packet {
    let mut packet = describe(by, pool.bytes(frame), plan.is_ip);
    packet.hear(&frame.meta.marks, came);
    if plan.program.fields.contains(&Field::NetLen) {
        packet.framing = framing_bytes(pool.bytes(frame), plan.is_ip);
    }
    if let Some(headers) = &plan.headers {
        packet.headers = headers.of(reading, by, came, frame, pool);
    }
    packet
}

/// What a queue knows of a frame: its length, and of IPv4 and IPv6 the codepoints and [the flow](placed_flow_of). It is
/// under a secret, as it chooses the partition: a peer could compute flows that meet in the partition of another's.
pub fn describe(by: HashKey, frame: &[u8], is_ip: bool) -> Packet {
    let Flow { flow, src, dst, traffic_class } = placed_flow_of(by, frame, is_ip);
    let (ecn, dscp) = (traffic_class & 3, traffic_class >> 2);
    Packet { len: frame.len() as u32, flow, src, dst, ecn, dscp, ..Packet::default() }
}

/// Bytes of a frame that are not of its packet: the header of its link, and what fills a short one up, by what IP
/// says of its length. In longer ones bytes behind the packet are the sender's, and take their time on the link.
fn framing_bytes(frame: &[u8], is_ip: bool) -> u32 {
    let at = if is_ip { 0 } else { network_at(frame).unwrap_or(0).min(frame.len()) };
    let packet = &frame[at..];
    let short = IpPacket::of_frame(frame, is_ip).filter(|_| packet.len() <= PADDED_TO);
    let said = short.and_then(IpPacket::length).unwrap_or(packet.len());
    (frame.len() - said.min(packet.len())) as u32
}

/// Writes the codepoints of an IP packet; None is the DSCP that it has.
fn set_codepoints(frame: &mut [u8], is_ip: bool, ecn: u8, dscp: Option<u8>) {
    let Some(at) = ip_at(frame, is_ip) else { return };
    change_traffic_class(&mut frame[at..], |old| dscp.unwrap_or(old >> 2) << 2 | ecn);
}
