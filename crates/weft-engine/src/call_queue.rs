//! Call queues: calls wait in a queue program in front of a server, and go on as others end.
//!
//! A queue belongs to a listener or to a cluster. Both come after the chain. A call waits in the queue of its listener,
//! then in that of its cluster, and occupies a slot of each until it ends.
//!
//! Each worker has its own `WorkerQueue` for each call queue: the [`Queue`] of its program, with the waiting calls.
//! The number of calls in flight and the time of the next call are common to all workers ([`SharedSlots`]). A worker
//! takes a free slot if it has less than its share. Beyond its share it takes one only if no worker with less waits for
//! one. So a worker with many clients does not block another one, and unused slots are available to all.
//!
//! In the queue, each call is a packet of [`CALL_BYTES`], whatever its message: a call queue gives out slots, and each
//! call takes one. The library's programs use full frames as their quantum, so a turn is one call.

use crate::call::{CallKey, LengthProbe};
use crate::conn::{ConnId, Side};
use crate::end::{Answer, End};
use crate::engine::{Action, Engine, Timer};
use crate::filter::DeferredAction;
use crate::plan::Plan;
use crate::pool::Pool;
use crate::queue::{
    Counts, DropCause, Dropped, FAR_NS, LineTotal, LineTotals, Packet, PartitionState, ProgramText, Queue,
};
use crate::recording::QueueEvent;
use crate::stats::Histogram;
use crate::timers::TimerKey;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::rc::Rc;
use std::sync::Arc;
use weft_core::{Interval, Status, Time, hash};
use weft_ir::queue::{Field, QueueCode, QueueProgram};

mod record;

/// The length of a call in its queue, in bytes: a full Ethernet frame, the quantum of the library's programs.
pub const CALL_BYTES: u32 = 1514;

/// After a delay, calls go on faster than the rate until it has caught up by at most this time. Timers have steps of a
/// millisecond.
pub const CATCH_UP_NS: u64 = 10_000_000;

/// Ended calls are removed from a queue when they are half of it and at least this many, or all of it.
const LEFT_MIN: u64 = 64;

/// The most partitions in statistics, per worker.
const PARTITIONS_LISTED_MAX: usize = 64;

/// Whose calls wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueScope {
    /// Calls of this listener, an index into [`Plan::listeners`].
    Listener(usize),
    /// Calls to this cluster, an index into [`Plan::clusters`].
    Cluster(usize),
}

impl QueueScope {
    /// The index into a call's `queue_slots`.
    fn slot_index(self) -> usize {
        usize::from(matches!(self, Self::Cluster(_)))
    }
}

/// The flow key of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFlow {
    /// The client's address without its port.
    Host,
    /// The client's connection.
    Session,
    /// A header, by name.
    Header(String),
}

/// A call queue in a plan.
#[derive(Clone)]
pub struct CallQueue {
    /// Its name.
    pub name: String,
    /// Its listener or cluster.
    pub of: QueueScope,
    /// The most calls in flight, on all workers; None: unlimited.
    pub concurrency: Option<u32>,
    /// The minimum time between two calls, in nanoseconds; None: no rate limit.
    pub step_ns: Option<u64>,
    /// The flow key.
    pub key: CallFlow,
    /// The header with the class of a call, a number.
    pub class: Option<String>,
    /// The state that all workers share. It continues from plan to plan.
    pub shared: Arc<SharedSlots>,
    /// The queue program.
    pub program: Arc<QueueProgram>,
    /// Its code.
    pub code: Arc<dyn QueueCode>,
    /// Its source text.
    pub written: ProgramText,
}

impl fmt::Debug for CallQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} on {:?} with {}", self.name, self.of, self.program.name)
    }
}

/// The state of a call queue that all workers share.
#[derive(Debug, Default)]
pub struct SharedSlots {
    /// Calls in flight.
    in_flight: AtomicU64,
    /// Workers whose calls wait for a slot.
    blocked: AtomicU64,
    /// Turns given to waiting workers with less than their share.
    turns: AtomicU64,
    /// Those turns that are over: a slot was taken, or no call waits any more.
    over: AtomicU64,
    /// When the rate allows the next call, in nanoseconds.
    next_ns: AtomicU64,
}

/// Counts of a call queue, on one worker or on all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallQueueStats {
    /// Its name.
    pub name: String,
    /// Its listener or cluster.
    pub of: String,
    /// The queue program.
    pub queue: String,
    /// The queues of its levels.
    pub levels: Vec<String>,
    /// The most calls in flight.
    pub concurrency: Option<u32>,
    /// Calls per second.
    pub rate: Option<f64>,
    /// Calls in flight, on all workers.
    pub in_flight: u64,
    /// Calls that arrived, went on and were dropped; `taken` are those that left while they waited, because the client
    /// left or the deadline passed.
    pub counts: Counts,
    /// Of those dropped: a new queue refused them when it replaced the old one.
    pub swap_overflow: u64,
    /// Calls that waited when a new plan was applied, and still wait.
    pub swap_kept: u64,
    /// The waiting times of calls that went on.
    pub waited: Histogram,
    /// Drops and marks by line, of all queues that it had.
    pub lines: Vec<LineTotal>,
    /// Per level of the current queue: the first program version with the same text.
    pub versions: Vec<u64>,
    /// Its partitions, the first of each worker.
    pub partitions: Vec<PartitionState>,
}

/// A call's slot in a call queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSlot {
    queue_id: u32,
    /// It waits under this handle; None: it has gone on, and occupies a slot.
    waits: Option<u32>,
}

/// Why no call goes on.
enum Blocked {
    /// No slot is free, or other workers have precedence.
    Full,
    /// The rate allows none before this time.
    Until(u64),
}

/// A call queue on one worker.
#[derive(Debug)]
pub(crate) struct WorkerQueue {
    plan: Arc<CallQueue>,
    name: Rc<str>,
    queue: Queue<Arc<dyn QueueCode>>,
    /// The waiting calls, by handle; None if a call has left the queue before its turn.
    calls: Vec<Option<CallKey>>,
    free: Vec<u32>,
    /// The number of calls that have left but are still in the queue.
    n_left: u64,
    /// Calls of this worker with a slot.
    n_own: u64,
    /// This worker's share of the slots.
    share: u64,
    is_blocked: bool,
    /// Its turn among the waiting workers with less than their share; None if it is not one of them.
    turn: Option<u64>,
    timer: Option<(u64, TimerKey)>,
    counts: Counts,
    swap_overflow: u64,
    swap_kept: u64,
    /// The waiting times of calls in the current queue.
    waited: Histogram,
    /// Drops and marks by line, of all queues.
    lines: LineTotals,
    /// Calls that went on; empty between two turns.
    passed: Vec<CallKey>,
    /// The recorder of the queue, while it is recorded.
    recorder: Option<Box<record::QueueRecorder>>,
}

impl Engine {
    /// Applies the call queues of a plan: waiting calls enter the new queue of the same name.
    pub(crate) fn apply_call_queues(&mut self, now: Time, plan: &Plan, pools: &[Rc<Pool>]) {
        let mut before = core::mem::take(&mut self.call_queues);
        self.queues_of_listeners.clear();
        for call_queue in &plan.call_queues {
            let is_same = |worker_queue: &WorkerQueue| {
                worker_queue.plan.name == call_queue.name
                    && worker_queue.plan.of.slot_index() == call_queue.of.slot_index()
            };
            let same = before.iter().find(|(_, worker_queue)| is_same(worker_queue)).map(|(id, _)| *id);
            let id = same.unwrap_or(self.next_queue);
            // Each worker has its own queue, and each version may have a new one.
            let of_worker = hash::stream(self.config.seed, "call link", self.config.worker as u64);
            let of_link = hash::stream(of_worker, "id", id.into());
            let seed = |version| hash::stream(of_link, "version", version);
            let mut worker_queue = match before.remove(&id) {
                Some(worker_queue) => worker_queue,
                None => {
                    self.next_queue += 1;
                    WorkerQueue::new(call_queue, now, seed(0))
                }
            };
            worker_queue.replace(call_queue, now, seed(plan.version));
            worker_queue.share =
                call_queue.concurrency.map_or(0, |n| u64::from(n).div_ceil(self.config.workers as u64));
            self.call_queues.insert(id, worker_queue);
            match call_queue.of {
                QueueScope::Listener(at) => {
                    self.queues_of_listeners.insert(plan.listeners[at].name.clone(), id);
                }
                QueueScope::Cluster(at) => pools[at].call_queue.set(Some(id)),
            }
            self.pending.push_back(DeferredAction::CallQueue(id));
        }
        for mut worker_queue in before.into_values() {
            worker_queue.update_wait(false);
            let slot = worker_queue.plan.of.slot_index();
            for (packet, _) in worker_queue.queue.take_all() {
                if let Some(call) = worker_queue.take_call(packet.handle) {
                    self.call_mut(call).queue_slots[slot] = None;
                    self.pending.push_back(DeferredAction::Pass(call));
                }
            }
        }
    }

    /// Returns the queue of the listener at which a call arrived, if the listener has one.
    pub(crate) fn queue_of_listener(&self, key: CallKey) -> Option<u32> {
        if self.queues_of_listeners.is_empty() {
            return None;
        }
        let conn = self.conns.get(self.root_of(key).down()?.conn)?;
        match &conn.side {
            Side::Downstream { listener, .. } => self.queues_of_listeners.get(&**listener).copied(),
            Side::Upstream { .. } => None,
        }
    }

    /// Whether a call must wait before it enters these queues: one uses the length of its request, and more will be
    /// known about it. The call is dispatched again then.
    pub(crate) fn needs_length_probe(&mut self, key: CallKey, queues: [Option<u32>; 2]) -> bool {
        let asks = |id: &u32| self.call_queues.get(id).is_some_and(WorkerQueue::asks_for_remaining);
        if !queues.iter().flatten().any(asks) {
            return false;
        }
        let call = self.call_mut(key);
        let is_known = call.request.bytes_known().is_some();
        // On a bidirectional stream the client may wait for the server's headers.
        let speaks_first = call.method().is_some_and(|of| !(of.client_streaming && of.server_streaming));
        call.length_probe = match call.length_probe {
            LengthProbe::NotYet if !is_known => LengthProbe::Scheduled,
            LengthProbe::Scheduled if !is_known && speaks_first => LengthProbe::AwaitsMessage,
            _ => LengthProbe::Done,
        };
        let weighed = call.length_probe;
        if weighed == LengthProbe::Scheduled {
            self.pending.push_back(DeferredAction::Pass(key));
        }
        weighed != LengthProbe::Done
    }

    /// Dispatches a call that waits to learn its request's length, once that length is known. Call this after more of
    /// the request has arrived.
    pub(crate) fn probe_length_again(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get(key) else { return };
        let is_known =
            call.length_probe == LengthProbe::AwaitsMessage && call.request.bytes_known().is_some();
        if is_known && !call.is_ending {
            self.dispatch(now, key);
        }
    }

    /// Enqueues a call that has reached a call queue. Returns whether it goes on at once, or has passed before. If not,
    /// it is dispatched later.
    pub(crate) fn enter_call_queue(&mut self, now: Time, key: CallKey, id: u32) -> bool {
        let Some(worker_queue) = self.call_queues.get(&id) else { return true };
        let slot = worker_queue.plan.of.slot_index();
        if self.call_mut(key).queue_slots[slot].is_some() {
            return true;
        }
        let packet = self.describe_call(now, key, id);
        let Some(worker_queue) = self.call_queues.get_mut(&id) else { return true };
        let handle = worker_queue.store(key);
        worker_queue.counts.arrived += 1;
        worker_queue.enqueue(&Packet { handle: u64::from(handle), ..packet }, nanos(now));
        self.call_mut(key).queue_slots[slot] = Some(QueueSlot { queue_id: id, waits: Some(handle) });
        self.release_calls(now, id, Some(key), false);
        self.call_mut(key).queue_slots[slot].is_some_and(|at| at.waits.is_none())
    }

    /// Frees the slot of a call that is over, or removes the call from the queue if it still waits.
    pub(crate) fn leave_call_queue(&mut self, now: Time, at: QueueSlot) {
        let Some(worker_queue) = self.call_queues.get_mut(&at.queue_id) else { return };
        match at.waits {
            Some(handle) => worker_queue.forget_call(handle, nanos(now)),
            None => {
                worker_queue.n_own -= 1;
                worker_queue.plan.shared.in_flight.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.pending.push_back(DeferredAction::CallQueue(at.queue_id));
    }

    /// Calls may go on again.
    pub(crate) fn call_queue_resumed(&mut self, now: Time, id: u32) {
        self.release_calls(now, id, None, true);
    }

    /// Runs the due timers of a call queue and of its program, and releases the calls that may go on.
    pub(crate) fn call_queue_timeout(&mut self, now: Time, id: u32) {
        let Some(worker_queue) = self.call_queues.get_mut(&id) else { return };
        worker_queue.timer = None;
        worker_queue.record_event(nanos(now), &QueueEvent::Timeout);
        worker_queue.queue.handle_timeout(nanos(now));
        self.release_calls(now, id, None, false);
    }

    /// Another worker has freed a slot.
    pub(crate) fn wake_call_queues(&mut self, now: Time) {
        let all: Vec<u32> = self.call_queues.keys().copied().collect();
        all.into_iter().for_each(|id| self.release_calls(now, id, None, false));
    }

    /// Continues with a call that has left its queue.
    pub(crate) fn dequeue_call(&mut self, now: Time, key: CallKey) {
        if self.calls.get(key).is_some_and(|call| !call.is_ending) {
            self.dispatch(now, key);
        }
    }

    /// Ends a call that a queue has dropped.
    pub(crate) fn drop_queued_call(&mut self, now: Time, key: CallKey, name: Rc<str>, line: u32) {
        let text = format!("link `{name}`: line {line} of its queue drops the call").into_bytes();
        let answer = Answer::Text(text);
        self.end_call(now, key, End::Here { status: Status::ResourceExhausted, answer, by: Some(name) });
    }

    /// Returns the counters of all call queues of the current plan on this worker.
    pub(crate) fn call_queue_stats(&self) -> Vec<CallQueueStats> {
        let plan = &self.active.plan;
        let of = |worker_queue: &WorkerQueue| match worker_queue.plan.of {
            QueueScope::Listener(at) => plan.listeners[at].name.clone(),
            QueueScope::Cluster(at) => plan.clusters[at].name.clone(),
        };
        self.call_queues.values().map(|worker_queue| worker_queue.stats(of(worker_queue))).collect()
    }

    /// Releases the calls that may go on. `entering` is reported by its state, others later. `freed`: this worker has a
    /// free slot.
    fn release_calls(&mut self, now: Time, id: u32, entering: Option<CallKey>, freed: bool) {
        let Some(worker_queue) = self.call_queues.get_mut(&id) else { return };
        let (mut until, mut passed) = (None, core::mem::take(&mut worker_queue.passed));
        let (was_blocked, had_turn) = (worker_queue.is_blocked, worker_queue.turn.is_some());
        loop {
            let stop = worker_queue.dequeue_ready(nanos(now), &mut passed);
            let is_full = matches!(stop, Some(Blocked::Full));
            until = if let Some(Blocked::Until(at)) = stop { Some(at) } else { until };
            // A slot that became free before other workers could see this one wait is found in the next round.
            if !worker_queue.update_wait(is_full) {
                break;
            }
        }
        let has_room =
            freed || was_blocked && !worker_queue.is_blocked || had_turn && worker_queue.turn.is_none();
        if has_room && self.config.workers > 1 && worker_queue.blocks_other_workers() {
            self.actions.push_back(Action::Wake);
        }
        let timeout = [until, worker_queue.queue.poll_timeout()].into_iter().flatten().min();
        let is_set = worker_queue.timer.is_some_and(|(at, _)| timeout.is_some_and(|wanted| at <= wanted));
        if let Some(at) = timeout.filter(|_| !is_set) {
            let timer = self.timers.set(Time(at as i64), Timer::CallQueue(id));
            if let Some((_, earlier)) = worker_queue.timer.replace((at, timer)) {
                self.timers.cancel(earlier);
            }
        }
        let slot = worker_queue.plan.of.slot_index();
        while let Some((call, dropped)) = worker_queue.next_dropped() {
            if let Some(state) = self.calls.get_mut(call) {
                state.queue_slots[slot] = None;
            }
            self.pending.push_back(DeferredAction::Drop(call, Rc::clone(&worker_queue.name), dropped.line));
        }
        for key in passed.drain(..) {
            if let Some(call) = self.calls.get_mut(key) {
                call.queue_slots[slot] = Some(QueueSlot { queue_id: id, waits: None });
            }
            if entering != Some(key) {
                self.pending.push_back(DeferredAction::Pass(key));
            }
        }
        worker_queue.passed = passed;
    }

    /// Describes a call as a packet for its queue program: hashes of flow, peer and method, its class, known length
    /// and deadline.
    fn describe_call(&self, now: Time, key: CallKey, id: u32) -> Packet {
        let plan = &self.call_queues[&id].plan;
        let call = self.calls.get(key).expect("the caller has the call");
        let down = self.root_of(key).down().map(|down| down.conn);
        let peer = host_of(&call.peer);
        let headers = &call.request_headers;
        let header = |name: &str| headers.get(name.as_bytes());
        // Keyed, since hashes choose the partition: otherwise a peer could compute keys that share another's partition.
        let hash = |run: &[u8]| self.config.hash.hash_bytes(run);
        let (src, dst) = (hash(peer.as_bytes()), hash(headers.path().unwrap_or_default()));
        let session = down.map_or(0, |conn| ConnId::from(conn).0);
        let flow = match &plan.key {
            CallFlow::Header(name) => hash(header(name).unwrap_or_default()),
            CallFlow::Session => self.config.hash.hash_word(session),
            CallFlow::Host => src,
        };
        let class = plan
            .class
            .as_deref()
            .and_then(header)
            .and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
        let length = header("content-length").and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
        let remaining = call.request.bytes_known().max(length);
        let slack = call.due.map_or(FAR_NS, |due| (due - now).0.max(0));
        let upper = |hash: u64| (hash >> 32) as u32;
        let mut packet = Packet {
            len: CALL_BYTES,
            flow: upper(flow),
            src: upper(src),
            dst: upper(dst),
            class: class.unwrap_or(0),
            remaining: remaining.unwrap_or(0),
            slack_ns: slack,
            deadline_ns: nanos(now).saturating_add(slack as u64),
            ..Packet::default()
        };
        packet.apply_marks(&call.marks, now);
        packet
    }
}

impl CallQueueStats {
    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        self.counts.add_past(&other.counts);
        self.counts.queued += other.counts.queued;
        self.counts.queued_bytes += other.counts.queued_bytes;
        self.swap_overflow += other.swap_overflow;
        self.swap_kept += other.swap_kept;
        self.waited.merge(&other.waited);
        LineTotal::add(&mut self.lines, &other.lines);
        for of in &other.partitions {
            let same =
                |at: &&mut PartitionState| (at.level, at.node, at.index) == (of.level, of.node, of.index);
            match self.partitions.iter_mut().find(same) {
                Some(at) => {
                    at.packets += of.packets;
                    at.bytes += of.bytes;
                    at.tally.merge(&of.tally);
                }
                None => self.partitions.push(of.clone()),
            }
        }
    }
}

impl WorkerQueue {
    /// Creates the worker's side of a call queue, empty.
    fn new(plan: &Arc<CallQueue>, now: Time, seed: u64) -> Self {
        Self {
            plan: Arc::clone(plan),
            name: plan.name.as_str().into(),
            queue: queue_of(plan, now, seed),
            calls: Vec::new(),
            free: Vec::new(),
            n_left: 0,
            n_own: 0,
            share: 0,
            is_blocked: false,
            turn: None,
            timer: None,
            counts: Counts::default(),
            swap_overflow: 0,
            swap_kept: 0,
            waited: Histogram::default(),
            lines: LineTotals::new(&plan.program, &plan.written),
            passed: Vec::new(),
            recorder: None,
        }
    }

    /// Applies another plan. Waiting calls enter the new queue in order.
    fn replace(&mut self, plan: &Arc<CallQueue>, now: Time, seed: u64) {
        if !Arc::ptr_eq(&plan.shared, &self.plan.shared) {
            self.update_wait(false);
            plan.shared.in_flight.fetch_add(self.n_own, Ordering::SeqCst);
        }
        if *plan.program != *self.plan.program {
            self.recorder.iter_mut().for_each(|recorder| recorder.end());
            let packets = self.take_waiting();
            self.lines.replace(&self.queue, &plan.program, &plan.written);
            self.waited = Histogram::default();
            self.queue = queue_of(plan, now, seed);
            self.queue.adopt(&packets);
            self.swap_overflow += self.queue.counts().dropped();
        } else {
            self.lines.set_text(&plan.program, &plan.written);
        }
        self.swap_kept += self.queue.counts().queued.saturating_sub(self.n_left);
        self.record_event(nanos(now), &QueueEvent::Rate(bits_of(plan)));
        self.queue.set_rate(bits_of(plan));
        self.plan = Arc::clone(plan);
    }

    fn asks_for_remaining(&self) -> bool {
        self.plan.program.fields.contains(&Field::Remaining)
    }

    /// Adds an operation to the recording of the queue, if there is one.
    fn record_event(&mut self, now_ns: u64, event: &QueueEvent) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now_ns, event);
        }
    }

    /// Enqueues a call, described as a packet, and records the operation.
    fn enqueue(&mut self, packet: &Packet, now_ns: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.entered(packet, now_ns);
        }
        self.queue.enqueue(packet, now_ns);
    }

    /// Forgets a call that leaves before its turn. Its packet stays in the queue until its turn, or until
    /// [`Self::remove_ended`].
    fn forget_call(&mut self, handle: u32, now_ns: u64) {
        self.calls[handle as usize] = None;
        self.counts.taken += 1;
        self.n_left += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.left(handle, now_ns);
        }
        self.remove_ended(now_ns);
    }

    /// Dequeues calls as long as they may go on; returns why it stopped before the queue was empty.
    fn dequeue_ready(&mut self, now_ns: u64, passed: &mut Vec<CallKey>) -> Option<Blocked> {
        while self.queue.counts().queued > 0 {
            if let Err(stop) = self.acquire_slot(now_ns) {
                return Some(stop);
            }
            self.record_event(now_ns, &QueueEvent::Dequeue);
            let Some(sent) = self.queue.dequeue(now_ns) else {
                self.release_slot();
                return None;
            };
            match self.take_call(sent.handle) {
                Some(call) => {
                    self.n_own += 1;
                    self.counts.sent += 1;
                    self.waited.record(Interval(now_ns.saturating_sub(sent.arrived_ns) as i64));
                    self.queue.record_sent(&sent, now_ns);
                    passed.push(call);
                }
                None => {
                    self.n_left -= 1;
                    self.release_slot();
                }
            }
        }
        None
    }

    /// Takes a slot, and the rate's allowance for one call.
    fn acquire_slot(&self, now_ns: u64) -> Result<(), Blocked> {
        let shared = &self.plan.shared;
        let next = shared.next_ns.load(Ordering::SeqCst);
        if self.plan.step_ns.is_some() && next > now_ns {
            return Err(Blocked::Until(next));
        }
        if let Some(n) = self.plan.concurrency {
            if !self.is_its_turn(u64::from(n)) {
                return Err(Blocked::Full);
            }
            let more = |taken| (taken < u64::from(n)).then_some(taken + 1);
            if shared.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err() {
                return Err(Blocked::Full);
            }
        } else {
            shared.in_flight.fetch_add(1, Ordering::SeqCst);
        }
        let Some(step_ns) = self.plan.step_ns else { return Ok(()) };
        let later =
            |next: u64| (next <= now_ns).then(|| next.max(now_ns.saturating_sub(CATCH_UP_NS)) + step_ns);
        shared.next_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later).map(drop).map_err(|next| {
            shared.in_flight.fetch_sub(1, Ordering::SeqCst);
            Blocked::Until(next)
        })
    }

    /// Whether a worker may take one of that many slots now. With its share or more: if no worker with less waits. With
    /// less: if there are free slots beyond those of earlier turns. Turns that are over count whichever they were, so
    /// the first waiting worker always gets a free slot.
    fn is_its_turn(&self, places: u64) -> bool {
        let shared = &self.plan.shared;
        let [turns, over] = [&shared.turns, &shared.over].map(|of| of.load(Ordering::SeqCst));
        if self.n_own >= self.share {
            return turns.saturating_sub(over) == u64::from(self.turn.is_some());
        }
        let free = places.saturating_sub(shared.in_flight.load(Ordering::SeqCst));
        self.turn.unwrap_or(turns) < over + free
    }

    /// Returns the slot and the allowance: no call used them.
    fn release_slot(&self) {
        let shared = &self.plan.shared;
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(step_ns) = self.plan.step_ns {
            shared.next_ns.fetch_sub(step_ns, Ordering::SeqCst);
        }
    }

    /// Tells the other workers whether calls wait here for a slot. Returns whether that is new.
    fn update_wait(&mut self, is_full: bool) -> bool {
        let shared = &self.plan.shared;
        match (self.is_blocked, is_full) {
            (false, true) => drop(shared.blocked.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(shared.blocked.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
        let is_hungry = is_full && self.n_own < self.share;
        let is_new = is_full && !self.is_blocked || is_hungry && self.turn.is_none();
        self.is_blocked = is_full;
        self.turn = match (self.turn, is_hungry) {
            (None, true) => Some(shared.turns.fetch_add(1, Ordering::SeqCst)),
            (Some(_), false) => {
                shared.over.fetch_add(1, Ordering::SeqCst);
                None
            }
            (turn, _) => turn,
        };
        is_new
    }

    /// Whether there is a free slot, and another worker whose calls wait for one.
    fn blocks_other_workers(&self) -> bool {
        let shared = &self.plan.shared;
        let others = shared.blocked.load(Ordering::SeqCst) - u64::from(self.is_blocked);
        let is_free = |n: u32| shared.in_flight.load(Ordering::SeqCst) < u64::from(n);
        others > 0 && self.plan.concurrency.is_some_and(is_free)
    }

    /// Stores a call and returns the handle that names it in the queue.
    fn store(&mut self, call: CallKey) -> u32 {
        match self.free.pop() {
            Some(handle) => {
                self.calls[handle as usize] = Some(call);
                handle
            }
            None => {
                self.calls.push(Some(call));
                self.calls.len() as u32 - 1
            }
        }
    }

    fn take_call(&mut self, handle: u64) -> Option<CallKey> {
        self.free.push(handle as u32);
        self.calls[handle as usize].take()
    }

    /// Returns the next call that the queue has dropped; skips calls that had left before.
    fn next_dropped(&mut self) -> Option<(CallKey, Dropped)> {
        while let Some(dropped) = self.queue.poll_dropped() {
            let Some(call) = self.take_call(dropped.handle) else {
                self.n_left -= 1;
                continue;
            };
            match dropped.why {
                DropCause::Enqueue => self.counts.dropped_enqueue += 1,
                DropCause::Dequeue => self.counts.dropped_dequeue += 1,
                DropCause::Overflow => self.counts.dropped_overflow += 1,
            }
            return Some((call, dropped));
        }
        None
    }

    /// Removes calls that have left from the queue, once they are many.
    fn remove_ended(&mut self, now_ns: u64) {
        let queued = self.queue.counts().queued;
        if self.n_left == queued || self.n_left >= LEFT_MIN && self.n_left > queued / 2 {
            let packets = self.take_waiting();
            if let Some(recorder) = &mut self.recorder {
                recorder.refilled(&packets, now_ns);
            }
            self.queue.adopt(&packets);
        }
    }

    /// Empties the queue; returns the calls that still wait, in order of arrival.
    fn take_waiting(&mut self) -> Vec<(Packet, u64)> {
        let mut packets = self.queue.take_all();
        packets.retain(|(packet, _)| {
            let waits = self.calls[packet.handle as usize].is_some();
            if !waits {
                self.free.push(packet.handle as u32);
                self.n_left -= 1;
            }
            waits
        });
        packets
    }

    /// Returns the counters of this queue on this worker; `of` is the name of its listener or cluster.
    fn stats(&self, of: String) -> CallQueueStats {
        let of_queue = self.queue.counts();
        let queued = of_queue.queued.saturating_sub(self.n_left);
        CallQueueStats {
            name: self.plan.name.clone(),
            of,
            queue: self.plan.program.name.clone(),
            levels: self.plan.program.levels.iter().map(|level| level.name.clone()).collect(),
            concurrency: self.plan.concurrency,
            rate: self.plan.step_ns.map(|step| 1e9 / step as f64),
            in_flight: self.plan.shared.in_flight.load(Ordering::SeqCst),
            counts: Counts {
                marked: of_queue.marked,
                queued,
                queued_bytes: queued * u64::from(CALL_BYTES),
                ..self.counts
            },
            swap_overflow: self.swap_overflow,
            swap_kept: self.swap_kept,
            waited: self.waited.clone(),
            lines: self.lines.totals(&self.queue),
            versions: self.lines.versions().to_vec(),
            partitions: self.queue.partitions(PARTITIONS_LISTED_MAX),
        }
    }
}

fn nanos(time: Time) -> u64 {
    time.0.max(0) as u64
}

/// Creates an empty queue for a plan, with its rate set and its partitions tallied.
fn queue_of(plan: &CallQueue, now: Time, seed: u64) -> Queue<Arc<dyn QueueCode>> {
    let mut queue = Queue::new(Arc::clone(&plan.program), Arc::clone(&plan.code), nanos(now), seed);
    queue.set_rate(bits_of(plan));
    queue.watch();
    queue
}

/// The rate that a program sees, in bits per second; 0: none.
fn bits_of(plan: &CallQueue) -> u64 {
    plan.step_ns.map_or(0, |step| u64::from(CALL_BYTES) * 8_000_000_000 / step.max(1))
}

/// A client's address without its port: all its connections are one flow.
fn host_of(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::headers::ResponseCache;
    use crate::plan::{Balance, Cluster};
    use crate::slab::Slab;
    use weft_core::options::ClusterOptions;
    use weft_core::rng::Rng;
    use weft_ir::queue::generate;
    use weft_ir::queue::run::Interpreted;

    const NOW: u64 = 1_000_000_000;

    /// A call queue with four slots and a FIFO program.
    fn call_queue() -> Arc<CallQueue> {
        let program = Arc::new(generate::fifo(Some(100)));
        Arc::new(CallQueue {
            name: "line".to_owned(),
            of: QueueScope::Cluster(0),
            concurrency: Some(4),
            step_ns: None,
            key: CallFlow::Host,
            class: None,
            shared: Arc::new(SharedSlots::default()),
            code: Arc::new(Interpreted::new(Arc::clone(&program))),
            program,
            written: ProgramText::default(),
        })
    }

    /// The queue of one of two workers, with waiting calls.
    fn worker_queue(plan: &Arc<CallQueue>, n_calls: usize) -> WorkerQueue {
        let cluster = Arc::new(Cluster {
            name: "c".to_owned(),
            endpoints: Vec::new(),
            names: Vec::new(),
            balance: Balance::RoundRobin,
            weights: Vec::new(),
            options: ClusterOptions { connections: Some(1), ..ClusterOptions::default() },
        });
        let (pool, headers) =
            (Rc::new(Pool::new(cluster, Vec::new(), 0, 0)), ResponseCache::default().response());
        let mut calls = Slab::new();
        let mut worker_queue = WorkerQueue { share: 2, ..WorkerQueue::new(plan, Time(0), 1) };
        for id in 0..n_calls {
            let call = calls.insert(Call::new(
                id as u64,
                Time(0),
                "".into(),
                Rc::clone(&pool),
                Rc::clone(&headers),
                1,
            ));
            let handle = u64::from(worker_queue.store(call));
            worker_queue.queue.enqueue(&Packet { handle, len: CALL_BYTES, ..Packet::default() }, 0);
        }
        worker_queue
    }

    /// Releases the calls that may go on; returns their number.
    fn serve(worker_queue: &mut WorkerQueue) -> usize {
        let mut passed = Vec::new();
        let stop = worker_queue.dequeue_ready(NOW, &mut passed);
        worker_queue.update_wait(matches!(stop, Some(Blocked::Full)));
        passed.len()
    }

    fn end_one(worker_queue: &mut WorkerQueue) {
        worker_queue.n_own -= 1;
        worker_queue.plan.shared.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// If it failed, the calls of one worker would wait forever while another's go on, or slots would stay unused.
    #[test]
    fn workers_share_all_slots() {
        let plan = call_queue();
        let (mut busy, mut other) = (worker_queue(&plan, 50), worker_queue(&plan, 3));
        assert_eq!((serve(&mut busy), serve(&mut other)), (4, 0), "slots that no other worker uses");
        assert!(other.turn.is_some() && busy.is_blocked && busy.turn.is_none());
        end_one(&mut busy);
        assert_eq!(serve(&mut busy), 0, "it has its part, and another worker has less");
        assert!(busy.blocks_other_workers());
        assert_eq!((serve(&mut other), other.turn.is_some()), (1, true));
        end_one(&mut busy);
        assert_eq!((serve(&mut busy), serve(&mut other)), (0, 1));
        // Both have their share, and one call waits in each.
        end_one(&mut other);
        assert_eq!((serve(&mut busy), serve(&mut other)), (1, 0));
        end_one(&mut busy);
        assert_eq!((serve(&mut busy), serve(&mut other)), (0, 1));
        end_one(&mut other);
        end_one(&mut other);
        assert_eq!((serve(&mut other), serve(&mut busy)), (0, 2), "no call waits at the other");
        assert_eq!(plan.shared.in_flight.load(Ordering::SeqCst), 4);
        let of = |of: &AtomicU64| of.load(Ordering::SeqCst);
        assert_eq!((of(&plan.shared.blocked), of(&plan.shared.turns) - of(&plan.shared.over)), (1, 0));
    }

    /// If it failed with more workers than slots, the workers with a slot would keep it while calls wait elsewhere.
    #[test]
    fn fewer_slots_than_workers_rotate() {
        let plan = call_queue();
        let mut queues: Vec<WorkerQueue> =
            (0..7).map(|_| WorkerQueue { share: 1, ..worker_queue(&plan, 12) }).collect();
        let mut passed: Vec<usize> = queues.iter_mut().map(serve).collect();
        assert_eq!(passed, [4, 0, 0, 0, 0, 0, 0], "slots that no other worker uses");
        let mut rng = Rng::from_seed(1);
        for _ in 0..60 {
            let busy: Vec<usize> = (0..7).filter(|at| queues[*at].n_own > 0).collect();
            assert_eq!(
                queues.iter().map(|worker_queue| worker_queue.n_own).sum::<u64>(),
                4,
                "no slot stays unused"
            );
            let ends = rng.pick(&busy);
            end_one(&mut queues[ends]);
            // The worker that freed the slot sees it first, then all look.
            for at in (ends..ends + 7).map(|at| at % 7) {
                passed[at] += serve(&mut queues[at]);
            }
        }
        assert!(passed.iter().all(|passed| (7..=12).contains(passed)), "{passed:?}");
        assert_eq!(passed.iter().sum::<usize>(), 64);
    }

    /// If it failed, each connection of a client would be a flow of its own.
    #[test]
    fn client_key_excludes_the_port() {
        let hosts = ["10.0.0.1:50051", "[2001:db8::1]:80", "unix"].map(host_of);
        assert_eq!(hosts, ["10.0.0.1", "[2001:db8::1]", "unix"]);
    }
}
