//! Links: frames that wait in a queue program and leave at a rate.
//!
//! A [`Link`] stands between the chains of a node and a port. It owns the waiting frames. Its [`Queue`] sees only what
//! [`describe`] reads from their headers. Frames enter by [`Link::handle_frame`] and leave by [`Link::poll_frame`];
//! [`Link::poll_timeout`] is the time of the next poll. A link with a [`Path`] emulates a path: frames that leave its
//! queue are in transit for a while, or lost.

use super::headers::{Headers, Reading};
use super::path::{Path, PathCounts, Wire};
use super::trace::Trace;
use crate::queue::{Counts, LineTotal, LineTotals, Packet, PartitionState, ProgramText, Queue, Sent};
use crate::recording::{Limits, QueueEvent, Recorder, RecordingProgress};
use crate::stats::Histogram;
use core::fmt;
use std::sync::Arc;
use weft_core::flow::{Flow, placed_flow_of};
use weft_core::frame::{Frame, Pool, ip_at, network_at};
use weft_core::hash::HashKey;
use weft_core::ip::{IpPacket, change_traffic_class};
use weft_core::{Interval, Time};
use weft_ir::queue::{Field, QueueCode, QueueProgram};

/// After a delay, a link sends faster than its rate until it has caught up by at most this time.
pub const CATCH_UP_NS: u64 = 10_000_000;

/// Below this rate, in bits per second, the link cuts GSO frames before they wait: on a slow link, a whole one would
/// block all others.
pub const CUT_BELOW: u64 = 1_000_000_000;

/// The minimum payload of an Ethernet frame; shorter packets are padded (IEEE 802.3).
const PADDED_TO: usize = 46;

/// What a link does with frames while its port has no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They wait until it is back, as many as the queue holds.
    Hold,
    /// They are dropped when they would leave, by [`Link::drop_frame`].
    Drop,
}

/// A link as a plan has it.
#[derive(Clone)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its port, an index into [`super::plan::PacketPlan::ports`].
    pub port: u16,
    /// It delays incoming frames instead of outgoing ones.
    pub ingress: bool,
    /// Frames of the port begin with the IP header.
    pub is_ip: bool,
    /// Bits per second; None: as fast as the port accepts them.
    pub rate: Option<u64>,
    /// The emulated path behind it; None: none.
    pub path: Option<Path>,
    /// What it does while the port has no device; None: it does not run on.
    pub on_failure: Option<OnFailure>,
    /// It records the operations on its queue, for [`Link::take_recording`].
    pub is_recorded: bool,
    /// The header fields that the queue reads, if any.
    pub headers: Option<Arc<Headers>>,
    /// The queue program.
    pub program: Arc<QueueProgram>,
    /// Its code.
    pub code: Arc<dyn QueueCode>,
    /// The program's source text.
    pub written: ProgramText,
}

impl fmt::Debug for LinkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} on port {} with {}", self.name, self.port, self.program.name)
    }
}

/// A running link.
#[derive(Debug)]
pub struct Link {
    plan: LinkPlan,
    queue: Queue<Arc<dyn QueueCode>>,
    /// The waiting frames, by their handle in the queue.
    frames: Vec<Option<Frame>>,
    free: Vec<u32>,
    /// The segments of a frame that is being cut; empty in between.
    segments: Vec<Frame>,
    /// The emulated path behind it, if any.
    wire: Option<Wire>,
    /// When the last frame sent is through; with a trace, the next opportunity.
    free_at: u64,
    /// The remainder of the division of a frame's bits by the rate, so that the rate is exact.
    carry: u64,
    /// The last rate that the queue got.
    reported_rate: u64,
    /// It has been idle since: there is nothing to catch up on.
    was_idle: bool,
    /// No frame has come since the queue was found empty.
    found_empty: bool,
    recorder: Option<Recorder>,
    /// Reads headers, if its queue uses any.
    reading: Reading,
    /// Hashes flows for its queue. It derives from the seed, so it stays when the link is replaced.
    hash: HashKey,
    /// How long frames waited, in the current queue.
    waits: Histogram,
    /// The counts of earlier queues of this link.
    before: Counts,
    /// Drops and marks by line, of all queues.
    lines: LineTotals,
    swap_overflow: u64,
    swap_kept: u64,
}

/// What a link counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Of all queues that it had.
    pub counts: Counts,
    /// Frames that a new queue refused when it replaced the old one.
    pub swap_overflow: u64,
    /// Frames that waited when a new plan was applied, and still wait.
    pub swap_kept: u64,
    /// Of those sent: what happened on the emulated path.
    pub path: PathCounts,
    /// Of those sent: frames in transit on that path.
    pub on_the_way: u64,
    /// The 50th, 90th and 99th percentile of the waiting time in the current queue, in nanoseconds.
    pub waited_ns: [u64; 3],
    /// Drops and marks by line, of all queues that it had.
    pub lines: Vec<LineTotal>,
    /// Per level of the current queue: the first program version with the same text.
    pub versions: Vec<u64>,
    /// Its first partitions.
    pub partitions: Vec<PartitionState>,
}

/// The most partitions in statistics.
const PARTITIONS_LISTED_MAX: usize = 64;

impl Link {
    /// Creates an empty link.
    pub fn new(plan: LinkPlan, now: Time, seed: u64) -> Self {
        let queue = queue_of(&plan, now, seed);
        let (frames, free, segments) = (Vec::new(), Vec::new(), Vec::new());
        let waits = Histogram::default();
        let before = Counts::default();
        let recorder = plan.is_recorded.then(|| {
            let mut recorder = Recorder::new(nanos(now), seed, Limits::NONE);
            recorder.note(nanos(now), &QueueEvent::Rate(rate_at_first(&plan)));
            recorder
        });
        let wire = plan.path.clone().map(|path| Wire::new(path, nanos(now), seed));
        let reading = reading_of(&plan);
        let lines = LineTotals::new(&plan.program, &plan.written);
        let told_rate = rate_at_first(&plan);
        Self {
            plan,
            reported_rate: told_rate,
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
            found_empty: false,
            recorder,
            waits,
            before,
            lines,
            swap_overflow: 0,
            swap_kept: 0,
        }
    }

    /// The current plan.
    pub fn plan(&self) -> &LinkPlan {
        &self.plan
    }

    /// Enqueues a frame. The queue may drop it, or others in its place.
    pub fn handle_frame(&mut self, frame: Frame, pool: &mut Pool, now: Time) {
        if frame.meta.offload.gso.is_none() || !self.cuts_gso() {
            return self.enqueue(frame, pool, now);
        }
        let network = if self.plan.is_ip { Some(0) } else { network_at(pool.bytes(&frame)) };
        let mut segments = core::mem::take(&mut self.segments);
        let is_cut = network.is_some_and(|at| pool.segment(&frame, at, &mut segments).is_ok());
        // A frame that cannot be cut now, for lack of buffers or because its headers are wrong, waits as it is.
        match is_cut {
            true => pool.give(frame),
            false => segments.push(frame),
        }
        segments.drain(..).for_each(|segment| self.enqueue(segment, pool, now));
        self.segments = segments;
    }

    /// Whether GSO frames are cut before they wait: on a slow link, an emulated path, or in front of a queue that
    /// shapes.
    fn cuts_gso(&self) -> bool {
        match self.plan.rate {
            // A packet on the wire is the unit of losses and opportunities.
            _ if self.wire.is_some() => true,
            Some(rate) => rate < CUT_BELOW,
            // A queue that holds packets back shapes them at its own rate, which includes the overhead per packet.
            None => self.plan.program.holds(),
        }
    }

    /// Drops a frame instead of enqueueing it, for lack of buffers. The queue counts it.
    pub fn refuse_frame(&mut self, frame: Frame, pool: &mut Pool) {
        self.queue.count_refused();
        pool.give(frame);
    }

    /// Stores a frame and enqueues its description; frees frames that the queue drops.
    fn enqueue(&mut self, frame: Frame, pool: &mut Pool, now: Time) {
        let mut packet = packet_for_queue(&frame, self.hash, &self.plan, &mut self.reading, pool, now);
        let handle = match self.free.pop() {
            Some(handle) => handle,
            None => {
                self.frames.push(None);
                self.frames.len() as u32 - 1
            }
        };
        packet.handle = u64::from(handle);
        self.frames[handle as usize] = Some(frame);
        self.found_empty = false;
        self.record_event(nanos(now), &QueueEvent::Enqueue(packet));
        self.queue.enqueue(&packet, nanos(now));
        self.free_dropped(pool);
    }

    /// Returns the next frame that leaves now.
    pub fn poll_frame(&mut self, pool: &mut Pool, now: Time) -> Option<Frame> {
        let now = nanos(now);
        if self.wire.is_none() {
            return self.send(pool, now).map(|(frame, _)| frame);
        }
        self.handle_changes(now);
        while let Some((frame, left_ns)) = self.send(pool, now) {
            let events = self.wire.as_mut()?.send_frame(frame, left_ns, pool);
            if !events.is_plain() {
                self.record_event(now, &QueueEvent::Path(events));
            }
        }
        self.wire.as_mut()?.poll_frame(now)
    }

    /// Drops the next frame that would leave now, since the port has no device. False: none would.
    ///
    /// On a link with a [`Path`], which no port has, frames in transit stay there.
    pub fn drop_frame(&mut self, pool: &mut Pool, now: Time) -> bool {
        let now = nanos(now);
        let Some(sent) = self.dequeue(pool, now) else { return false };
        self.queue.count_lost();
        self.account_sent(sent.len, now);
        if let Some(frame) = self.take_frame(sent.handle) {
            pool.give(frame);
        }
        true
    }

    /// Takes the next frame from the queue; the time is when its last bit is out.
    fn send(&mut self, pool: &mut Pool, now: u64) -> Option<(Frame, u64)> {
        let sent = self.dequeue(pool, now)?;
        let frame = self.take_frame(sent.handle)?;
        self.waits.record(Interval(now.saturating_sub(sent.arrived_ns) as i64));
        self.queue.record_sent(&sent, now);
        let left_ns = self.account_sent(sent.len, now);
        let dscp = self.queue.last_sent(Field::Dscp).map(|dscp| dscp as u8);
        set_codepoints(pool.bytes_mut(&frame), self.plan.is_ip, sent.ecn, dscp);
        Some((frame, left_ns))
    }

    /// Dequeues the next packet that the queue releases, if the link is free.
    fn dequeue(&mut self, pool: &mut Pool, now: u64) -> Option<Sent> {
        if let Some(wire) = self.wire.as_mut().filter(|_| self.was_idle && self.queue.counts().queued > 0)
            && let Some(at) = wire.opportunity(now)
        {
            self.free_at = at;
            self.was_idle = false;
        }
        if self.free_at > now {
            return None;
        }
        if self.found_empty {
            return None;
        }
        self.record_event(now, &QueueEvent::Dequeue);
        let sent = self.queue.dequeue(now);
        self.free_dropped(pool);
        if sent.is_none() {
            self.was_idle = true;
            self.found_empty = self.queue.counts().queued == 0;
        }
        sent
    }

    /// Accounts for a frame of that many bytes, which has left. Returns when its last bit is out.
    fn account_sent(&mut self, len: u32, now: u64) -> u64 {
        let late = if self.was_idle { 0 } else { CATCH_UP_NS };
        let from = self.free_at.max(now.saturating_sub(late));
        self.was_idle = self.queue.counts().queued == 0;
        if let Some(wire) = &mut self.wire
            && let Some(through) = wire.take_opportunities(from, len)
        {
            // The next frame, if one waits, may use the rest of that opportunity.
            self.free_at = wire.opportunity(through).unwrap_or(through);
            let rate = wire.rate(through).unwrap_or(0);
            self.update_rate(now, rate);
            return through;
        }
        let Some(rate) = self.plan.rate.filter(|rate| *rate > 0) else { return now };
        let bits = u64::from(len).saturating_mul(8_000_000_000).saturating_add(self.carry);
        self.carry = bits % rate;
        self.free_at = from + bits / rate;
        self.free_at
    }

    /// Returns when to poll again if no frame arrives.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waits = self.queue.counts().queued > 0;
        let rate = (waits && self.free_at > 0).then_some(self.free_at);
        let queue = self.queue.poll_timeout();
        // While a frame is on the link, a packet that the queue releases waits for it.
        let at = match (rate, queue) {
            (Some(rate), Some(queue)) if waits => Some(rate.max(queue)),
            (rate, queue) => rate.or(queue),
        };
        let arrival = self.wire.as_ref().and_then(Wire::poll_timeout);
        let at = [at, arrival].into_iter().flatten().min();
        at.map(|ns| Time(ns as i64))
    }

    /// Applies the rate changes of the path that are due.
    fn handle_changes(&mut self, now: u64) {
        while let Some(rate) = self.wire.as_mut().and_then(|wire| wire.poll_change(now)) {
            if rate != self.plan.rate {
                self.plan.rate = rate;
                self.leave_now(now);
                self.update_rate(now, rate_at_first(&self.plan));
            }
        }
    }

    /// The frame on the link is done now: it was sent at the old rate or by the old trace.
    fn leave_now(&mut self, now: u64) {
        self.free_at = self.free_at.min(now);
        self.carry = 0;
    }

    /// Reports the rate to the queue, if it is new.
    fn update_rate(&mut self, now: u64, rate: u64) {
        if rate != self.reported_rate {
            self.reported_rate = rate;
            self.record_event(now, &QueueEvent::Rate(rate));
            self.queue.set_rate(rate);
        }
    }

    /// Runs the due timers of the queue and of the path.
    pub fn handle_timeout(&mut self, pool: &mut Pool, now: Time) {
        let now = nanos(now);
        self.handle_changes(now);
        if self.queue.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        self.record_event(now, &QueueEvent::Timeout);
        self.queue.handle_timeout(now);
        self.free_dropped(pool);
    }

    /// Applies another plan. Waiting frames enter the new queue in order, with their arrival times. A queue with the
    /// same program is kept.
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
            self.found_empty = false;
            if let Some(recorder) = &mut self.recorder {
                recorder.end();
            }
            self.before.add_past(&counts);
            self.lines.replace(&self.queue, &plan.program, &plan.written);
            self.waits = Histogram::default();
            self.queue = queue_of(&plan, now, seed);
            self.queue.adopt(&packets);
            // They arrived at the link only once.
            self.before.arrived -= packets.len() as u64;
            self.before.taken -= packets.len() as u64;
            self.swap_overflow += self.queue.counts().dropped();
            self.free_dropped(pool);
        } else {
            self.lines.set_text(&plan.program, &plan.written);
        }
        self.swap_kept += self.queue.counts().queued;
        self.reading = reading;
        if plan.rate != self.plan.rate || trace_of(&plan) != trace_of(&self.plan) {
            self.leave_now(nanos(now));
        }
        self.reported_rate = rate_at_first(&plan);
        self.queue.set_rate(self.reported_rate);
        self.record_event(nanos(now), &QueueEvent::Rate(self.reported_rate));
        match (&mut self.wire, &plan.path) {
            (Some(wire), path) => wire.apply(path.clone().unwrap_or_default(), nanos(now)),
            (wire, Some(path)) => *wire = Some(Wire::new(path.clone(), nanos(now), seed)),
            (None, None) => {}
        }
        self.plan = plan;
    }

    /// Reads the fields from the frames that the new program uses and the old one did not. Fields that the old program
    /// may have changed stay.
    fn describe_again(
        &mut self,
        packets: &mut [(Packet, u64)],
        plan: &LinkPlan,
        reading: &mut Reading,
        pool: &Pool,
    ) {
        for (packet, came_ns) in packets {
            let Some(frame) = &self.frames[packet.handle as usize] else { continue };
            let mut fresh = packet_for_queue(frame, self.hash, plan, reading, pool, Time(*came_ns as i64));
            for (field, _) in
                Field::ALL.into_iter().filter(|(field, _)| self.plan.program.fields.contains(field))
            {
                fresh.copy(field, packet);
            }
            (fresh.handle, fresh.len, fresh.ecn) = (packet.handle, packet.len, packet.ecn);
            *packet = fresh;
        }
    }

    /// Takes all frames, in transit and waiting, in order of arrival: the link is removed.
    pub fn take_all(&mut self) -> Vec<Frame> {
        let packets = self.queue.take_all();
        let mut frames = self.wire.as_mut().map(Wire::take_all).unwrap_or_default();
        frames.extend(packets.iter().filter_map(|(packet, _)| self.take_frame(packet.handle)));
        frames
    }

    /// Starts to record the operations on its queue. False: it already records.
    pub fn record(&mut self, limits: Limits, now: Time) -> bool {
        if self.recorder.is_some() {
            return false;
        }
        self.recorder = Some(Recorder::resuming(nanos(now), &self.queue.snapshot(), limits));
        true
    }

    /// The progress of the recording.
    pub fn recording(&self, now: Time) -> Option<RecordingProgress> {
        self.recorder.as_ref().map(|recorder| recorder.progress(nanos(now)))
    }

    /// Takes the recording and stops it.
    pub fn take_recording(&mut self) -> Option<Recorder> {
        self.recorder.take()
    }

    /// Adds an operation to the recording of the queue, if there is one.
    fn record_event(&mut self, now_ns: u64, event: &QueueEvent) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now_ns, event);
        }
    }

    /// Returns the counters of the link.
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

    fn take_frame(&mut self, handle: u64) -> Option<Frame> {
        self.free.push(handle as u32);
        self.frames[handle as usize].take()
    }

    /// Frees the frames that the queue has dropped.
    fn free_dropped(&mut self, pool: &mut Pool) {
        while let Some(dropped) = self.queue.poll_dropped() {
            if let Some(frame) = self.take_frame(dropped.handle) {
                pool.give(frame);
            }
        }
    }
}

fn nanos(time: Time) -> u64 {
    time.0.max(0) as u64
}

/// Creates an empty queue for a plan, with its first rate set and its partitions tallied.
fn queue_of(plan: &LinkPlan, now: Time, seed: u64) -> Queue<Arc<dyn QueueCode>> {
    let mut queue = Queue::new(plan.program.clone(), plan.code.clone(), nanos(now), seed);
    queue.set_rate(rate_at_first(plan));
    queue.watch();
    queue
}

/// The initial rate for the queue: the average of a trace, if there is one. 0: no rate.
fn rate_at_first(plan: &LinkPlan) -> u64 {
    plan.rate.or(trace_of(plan).map(|trace| trace.bits_per_s())).unwrap_or(0)
}

fn trace_of(plan: &LinkPlan) -> Option<&Trace> {
    plan.path.as_ref()?.trace.as_deref()
}

/// Reads the header fields that the queue uses, if any.
fn reading_of(plan: &LinkPlan) -> Reading {
    plan.headers.as_ref().map(|headers| headers.reading()).unwrap_or_default()
}

/// Describes a frame that arrived at this time as a packet for the queue program.
fn packet_for_queue(
    frame: &Frame,
    by: HashKey,
    plan: &LinkPlan,
    reading: &mut Reading,
    pool: &Pool,
    came: Time,
) -> Packet {
    let mut packet = describe(by, pool.bytes(frame), plan.is_ip);
    packet.apply_marks(&frame.meta.marks, came);
    if plan.program.fields.contains(&Field::NetLen) {
        packet.framing = framing_bytes(pool.bytes(frame), plan.is_ip);
    }
    if let Some(headers) = &plan.headers {
        packet.headers = headers.read_fields(reading, by, came, frame, pool);
    }
    packet
}

/// A queue's view of a frame: its length, and for IPv4 and IPv6 the codepoints and [the flow](placed_flow_of). The hash
/// of the flow is keyed, since it chooses the partition: otherwise a peer could compute flows that share another's
/// partition.
pub fn describe(by: HashKey, frame: &[u8], is_ip: bool) -> Packet {
    let Flow { flow, src, dst, traffic_class } = placed_flow_of(by, frame, is_ip);
    let (ecn, dscp) = (traffic_class & 3, traffic_class >> 2);
    Packet { len: frame.len() as u32, flow, src, dst, ecn, dscp, ..Packet::default() }
}

/// Counts the bytes of a frame outside its packet: the link header, and the padding of a short frame according to the
/// length in its IP header. In longer frames, bytes behind the packet are the sender's and use the link.
fn framing_bytes(frame: &[u8], is_ip: bool) -> u32 {
    let at = if is_ip { 0 } else { network_at(frame).unwrap_or(0).min(frame.len()) };
    let packet = &frame[at..];
    let short = IpPacket::of_frame(frame, is_ip).filter(|_| packet.len() <= PADDED_TO);
    let length = short.and_then(IpPacket::length).unwrap_or(packet.len());
    (frame.len() - length.min(packet.len())) as u32
}

/// Writes the codepoints of an IP packet; None keeps its DSCP.
fn set_codepoints(frame: &mut [u8], is_ip: bool, ecn: u8, dscp: Option<u8>) {
    let Some(at) = ip_at(frame, is_ip) else { return };
    change_traffic_class(&mut frame[at..], |old| dscp.unwrap_or(old >> 2) << 2 | ecn);
}
