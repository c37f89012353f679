//! Links on listeners and clusters: calls wait in a queue program, and go on as others end.
//!
//! Both stand behind the chain, in front of the way to a server: a call waits in that of the listener by which it came,
//! then in that of the cluster to which it goes, and has a place in each until it is over.
//!
//! Each worker has a line of its own for each link: the [`Queue`] of its program, and the calls that wait in it. What
//! there is one of, how many calls are under way and when the next may go, is [`Shared`]. A worker takes a free place
//! if it has less than its part of them; beyond that only if no worker that has less waits for one. So a worker with
//! many clients does not keep another's waiting, and what one does not use the others may.
//!
//! To a queue a call is a packet of [`CALL_BYTES`], whatever its message is: a link gives out places, and each call
//! takes one. A turn of the library's programs, which count in full frames, is then a call.

use crate::call::{CallKey, Weighed};
use crate::conn::{ConnId, Side};
use crate::end::{Answer, End};
use crate::engine::{Action, Engine, Timer};
use crate::filter::Pending;
use crate::plan::Plan;
use crate::pool::Pool;
use crate::queue::{Counts, Dropped, FAR_NS, LineTotal, Lines, Packet, PartitionState, Queue, Why, Written};
use crate::recording::Asked;
use crate::stats::Histogram;
use crate::timers::TimerKey;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::rc::Rc;
use std::sync::Arc;
use weft_core::{Interval, Status, Time, hash};
use weft_ir::queue::{Field, QueueCode, QueueProgram};

mod record;

/// The length of a call for its queue, in bytes: a full frame of Ethernet, as the quantum of the library's programs.
pub const CALL_BYTES: u32 = 1514;

/// A link that was held up lets calls go so much faster than its rate afterwards, until it has made up for this time at
/// most. Timers have steps of a millisecond.
pub const CATCH_UP_NS: u64 = 10_000_000;

/// Calls that are over leave their places in a queue when they are half of it and this many, or all of it.
const LEFT_MIN: u64 = 64;

/// Partitions that statistics list, at most, of each worker.
const PARTITIONS_LISTED_MAX: usize = 64;

/// Whose calls wait in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsOf {
    /// Those that come by this one of [`Plan::listeners`].
    Listener(usize),
    /// Those that go to this one of [`Plan::clusters`].
    Cluster(usize),
}

impl CallsOf {
    /// Which of the places in links that a call may have.
    fn place(self) -> usize {
        usize::from(matches!(self, Self::Cluster(_)))
    }
}

/// What makes calls one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFlow {
    /// The client's address without its port.
    Host,
    /// The client's connection.
    Session,
    /// A header, by its name.
    Header(String),
}

/// A link of calls, as a plan has it.
#[derive(Clone)]
pub struct CallLink {
    /// Its name.
    pub name: String,
    /// Whose.
    pub of: CallsOf,
    /// Calls under way at most, on all workers; None: any number.
    pub concurrency: Option<u32>,
    /// Nanoseconds from one call that goes on to the next; None: any number goes on at once.
    pub step_ns: Option<u64>,
    /// What tells flows apart.
    pub key: CallFlow,
    /// The header that has the class of a call, a number.
    pub class: Option<String>,
    /// What all workers have in common. It goes on from plan to plan.
    pub shared: Arc<Shared>,
    /// How calls wait.
    pub program: Arc<QueueProgram>,
    /// The code of that.
    pub code: Arc<dyn QueueCode>,
    /// In which words it was written.
    pub written: Written,
}

impl fmt::Debug for CallLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} on {:?} with {}", self.name, self.of, self.program.name)
    }
}

/// What there is one of for all workers.
#[derive(Debug, Default)]
pub struct Shared {
    /// Calls under way.
    in_flight: AtomicU64,
    /// Workers on which calls wait for a place.
    blocked: AtomicU64,
    /// Turns that were given to those of them that have less than their part of the places.
    turns: AtomicU64,
    /// Of these turns, those that are over: a place was taken, or no call waits any more.
    over: AtomicU64,
    /// When the next call may go by the rate, in nanoseconds.
    next_ns: AtomicU64,
}

/// What a link of calls did, on one worker or on all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallLinkStats {
    /// Its name.
    pub name: String,
    /// Its listener or cluster.
    pub of: String,
    /// The queue that it runs.
    pub queue: String,
    /// The queues of the levels of that.
    pub levels: Vec<String>,
    /// Calls under way at most.
    pub concurrency: Option<u32>,
    /// Calls a second.
    pub rate: Option<f64>,
    /// Calls under way, on all workers.
    pub in_flight: u64,
    /// Calls that came, went on and were dropped; `taken` are those that left while they waited, for their client did
    /// or their deadline passed.
    pub counts: Counts,
    /// Of those dropped: a new queue refused them when it took over.
    pub swap_overflow: u64,
    /// Calls that waited when another plan took over, and went on waiting.
    pub swap_kept: u64,
    /// How long those waited that went on.
    pub waited: Histogram,
    /// Drops and marks by line, of all queues that it had.
    pub lines: Vec<LineTotal>,
    /// The versions of the program that had the levels of the queue at hand in their words first.
    pub versions: Vec<u64>,
    /// Its partitions, the first of each worker.
    pub partitions: Vec<PartitionState>,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtLink {
    line: u32,
    /// It waits, under this handle; None: it has gone on, and has a place.
    waits: Option<u32>,
}

/// Why no call goes on.
enum Stop {
    /// All places are taken, or others have a better claim.
    Full,
    /// By the rate, not before.
    Until(u64),
}

/// The calls of a link on one worker.
#[derive(Debug)]
pub(crate) struct Line {
    plan: Arc<CallLink>,
    name: Rc<str>,
    queue: Queue<Arc<dyn QueueCode>>,
    /// The calls that wait, by handle; None where a call has left before its turn.
    calls: Vec<Option<CallKey>>,
    free: Vec<u32>,
    /// How many of those in the queue have left.
    n_left: u64,
    /// Calls of this worker that have a place.
    n_own: u64,
    /// This worker's part of the places.
    share: u64,
    is_blocked: bool,
    /// Its turn among the workers that wait and have less than their part; none if it is not one of them.
    turn: Option<u64>,
    timer: Option<(u64, TimerKey)>,
    counts: Counts,
    swap_overflow: u64,
    swap_kept: u64,
    /// How long calls waited, in the queue at hand.
    waited: Histogram,
    /// What lines did, those of earlier queues as well.
    lines: Lines,
    /// Calls that were let go on; empty between two turns.
    passed: Vec<CallKey>,
    /// What the queue is asked, while that is recorded.
    noted: Option<Box<record::Noted>>,
}

impl Engine {
    /// Takes on the links of a plan: calls that wait in a link that goes on wait in its new queue.
    pub(crate) fn take_links(&mut self, now: Time, plan: &Plan, pools: &[Rc<Pool>]) {
        let mut before = core::mem::take(&mut self.lines);
        self.lines_of_listeners.clear();
        for link in &plan.links {
            let is_same =
                |line: &Line| line.plan.name == link.name && line.plan.of.place() == link.of.place();
            let same = before.iter().find(|(_, line)| is_same(line)).map(|(id, _)| *id);
            let id = same.unwrap_or(self.next_line);
            // Each worker has a queue of it, and each version may.
            let of_worker = hash::stream(self.config.seed, "call link", self.config.worker as u64);
            let of_link = hash::stream(of_worker, "id", id.into());
            let seed = |version| hash::stream(of_link, "version", version);
            let mut line = match before.remove(&id) {
                Some(line) => line,
                None => {
                    self.next_line += 1;
                    Line::new(link, now, seed(0))
                }
            };
            line.replace(link, now, seed(plan.version));
            line.share = link.concurrency.map_or(0, |n| u64::from(n).div_ceil(self.config.workers as u64));
            self.lines.insert(id, line);
            match link.of {
                CallsOf::Listener(at) => {
                    self.lines_of_listeners.insert(plan.listeners[at].name.clone(), id);
                }
                CallsOf::Cluster(at) => pools[at].line.set(Some(id)),
            }
            self.pending.push_back(Pending::Line(id));
        }
        for mut line in before.into_values() {
            line.note_wait(false);
            let place = line.plan.of.place();
            for (packet, _) in line.queue.take_all() {
                if let Some(call) = line.take(packet.handle) {
                    self.call_mut(call).at_links[place] = None;
                    self.pending.push_back(Pending::Pass(call));
                }
            }
        }
    }

    /// The line of the listener by which a call came, if that has a link.
    pub(crate) fn line_of_listener(&self, key: CallKey) -> Option<u32> {
        if self.lines_of_listeners.is_empty() {
            return None;
        }
        let conn = self.conns.get(self.root_of(key).down()?.conn)?;
        match &conn.side {
            Side::Downstream { listener, .. } => self.lines_of_listeners.get(&**listener).copied(),
            Side::Upstream { .. } => None,
        }
    }

    /// Whether a call is not to come to these links yet: the queue of one asks what is left of its request, and more
    /// will be known of that. It is sent here again then.
    pub(crate) fn is_weighed_first(&mut self, key: CallKey, lines: [Option<u32>; 2]) -> bool {
        let asks = |id: &u32| self.lines.get(id).is_some_and(Line::asks_for_remaining);
        if !lines.iter().flatten().any(asks) {
            return false;
        }
        let call = self.call_mut(key);
        let is_known = call.request.bytes_known().is_some();
        // Of a stream of both sides the client may wait for the server's headers.
        let speaks_first = call.method().is_some_and(|of| !(of.client_streaming && of.server_streaming));
        call.weighed = match call.weighed {
            Weighed::NotYet if !is_known => Weighed::Soon,
            Weighed::Soon if !is_known && speaks_first => Weighed::AwaitsMessage,
            _ => Weighed::Done,
        };
        let weighed = call.weighed;
        if weighed == Weighed::Soon {
            self.pending.push_back(Pending::Pass(key));
        }
        weighed != Weighed::Done
    }

    /// More of a request has come.
    pub(crate) fn weigh_again(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get(key) else { return };
        let is_known = call.weighed == Weighed::AwaitsMessage && call.request.bytes_known().is_some();
        if is_known && !call.is_ending {
            self.dispatch(now, key);
        }
    }

    /// A call has come to a link of its listener or cluster. Whether it goes on at once, or has been there before; if
    /// not, it is told later.
    pub(crate) fn enter_link(&mut self, now: Time, key: CallKey, id: u32) -> bool {
        let Some(line) = self.lines.get(&id) else { return true };
        let place = line.plan.of.place();
        if self.call_mut(key).at_links[place].is_some() {
            return true;
        }
        let packet = self.describe_call(now, key, id);
        let Some(line) = self.lines.get_mut(&id) else { return true };
        let handle = line.store(key);
        line.counts.arrived += 1;
        line.enqueue(&Packet { handle: u64::from(handle), ..packet }, nanos(now));
        self.call_mut(key).at_links[place] = Some(AtLink { line: id, waits: Some(handle) });
        self.pump(now, id, Some(key), false);
        self.call_mut(key).at_links[place].is_some_and(|at| at.waits.is_none())
    }

    /// A call is over: its place is free, or nobody waits in it any more.
    pub(crate) fn leave_link(&mut self, now: Time, at: AtLink) {
        let Some(line) = self.lines.get_mut(&at.line) else { return };
        match at.waits {
            Some(handle) => line.leave(handle, nanos(now)),
            None => {
                line.n_own -= 1;
                line.plan.shared.in_flight.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.pending.push_back(Pending::Line(at.line));
    }

    /// What a link waited for may have come.
    pub(crate) fn link_goes_on(&mut self, now: Time, id: u32) {
        self.pump(now, id, None, true);
    }

    /// The time has come that a link, or its queue, waited for.
    pub(crate) fn link_timeout(&mut self, now: Time, id: u32) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.timer = None;
        line.note(nanos(now), &Asked::Timeout);
        line.queue.handle_timeout(nanos(now));
        self.pump(now, id, None, false);
    }

    /// Another worker has let go of a place.
    pub(crate) fn wake_links(&mut self, now: Time) {
        let all: Vec<u32> = self.lines.keys().copied().collect();
        all.into_iter().for_each(|id| self.pump(now, id, None, false));
    }

    /// A call goes on.
    pub(crate) fn pass_link(&mut self, now: Time, key: CallKey) {
        if self.calls.get(key).is_some_and(|call| !call.is_ending) {
            self.dispatch(now, key);
        }
    }

    /// A queue has dropped a call.
    pub(crate) fn drop_at_link(&mut self, now: Time, key: CallKey, name: Rc<str>, line: u32) {
        let text = format!("link `{name}`: line {line} of its queue drops the call").into_bytes();
        let answer = Answer::Text(text);
        self.end(now, key, End::Here { status: Status::ResourceExhausted, answer, by: Some(name) });
    }

    pub(crate) fn call_link_stats(&self) -> Vec<CallLinkStats> {
        let plan = &self.live.plan;
        let of = |line: &Line| match line.plan.of {
            CallsOf::Listener(at) => plan.listeners[at].name.clone(),
            CallsOf::Cluster(at) => plan.clusters[at].name.clone(),
        };
        self.lines.values().map(|line| line.stats(of(line))).collect()
    }

    /// Lets go on who may. `entering` is told by its state, the others later; `freed`: a place of this worker is free.
    fn pump(&mut self, now: Time, id: u32, entering: Option<CallKey>, freed: bool) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let (mut until, mut passed) = (None, core::mem::take(&mut line.passed));
        let (was_blocked, had_turn) = (line.is_blocked, line.turn.is_some());
        loop {
            let stop = line.serve(nanos(now), &mut passed);
            let is_full = matches!(stop, Some(Stop::Full));
            until = if let Some(Stop::Until(at)) = stop { Some(at) } else { until };
            // A place that became free before the others could see that somebody waits is seen now.
            if !line.note_wait(is_full) {
                break;
            }
        }
        let has_room = freed || was_blocked && !line.is_blocked || had_turn && line.turn.is_none();
        if has_room && self.config.workers > 1 && line.keeps_others_waiting() {
            self.actions.push_back(Action::Wake);
        }
        let timeout = [until, line.queue.poll_timeout()].into_iter().flatten().min();
        let is_set = line.timer.is_some_and(|(at, _)| timeout.is_some_and(|wanted| at <= wanted));
        if let Some(at) = timeout.filter(|_| !is_set) {
            let timer = self.timers.set(Time(at as i64), Timer::Link(id));
            if let Some((_, earlier)) = line.timer.replace((at, timer)) {
                self.timers.cancel(earlier);
            }
        }
        let place = line.plan.of.place();
        while let Some((call, dropped)) = line.next_dropped() {
            if let Some(state) = self.calls.get_mut(call) {
                state.at_links[place] = None;
            }
            self.pending.push_back(Pending::Drop(call, Rc::clone(&line.name), dropped.line));
        }
        for key in passed.drain(..) {
            if let Some(call) = self.calls.get_mut(key) {
                call.at_links[place] = Some(AtLink { line: id, waits: None });
            }
            if entering != Some(key) {
                self.pending.push_back(Pending::Pass(key));
            }
        }
        line.passed = passed;
    }

    /// What a queue knows of a call.
    fn describe_call(&self, now: Time, key: CallKey, id: u32) -> Packet {
        let plan = &self.lines[&id].plan;
        let call = self.calls.get(key).expect("the caller has the call");
        let down = self.root_of(key).down().map(|down| down.conn);
        let peer = host_of(&call.peer);
        let headers = &call.request_headers;
        let header = |name: &str| headers.get(name.as_bytes());
        // They choose the partition: a peer could compute keys that meet in the partition of another's.
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
        packet.hear(&call.marks, now);
        packet
    }
}

impl CallLinkStats {
    /// Adds what another worker counted.
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

impl Line {
    fn new(plan: &Arc<CallLink>, now: Time, seed: u64) -> Self {
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
            lines: Lines::new(&plan.program, &plan.written),
            passed: Vec::new(),
            noted: None,
        }
    }

    /// Goes on with another plan. What waits enters the new queue as it came.
    fn replace(&mut self, plan: &Arc<CallLink>, now: Time, seed: u64) {
        if !Arc::ptr_eq(&plan.shared, &self.plan.shared) {
            self.note_wait(false);
            plan.shared.in_flight.fetch_add(self.n_own, Ordering::SeqCst);
        }
        if *plan.program != *self.plan.program {
            self.noted.iter_mut().for_each(|noted| noted.end());
            let packets = self.take_living();
            self.lines.replace(&self.queue, &plan.program, &plan.written);
            self.waited = Histogram::default();
            self.queue = queue_of(plan, now, seed);
            self.queue.adopt(&packets);
            self.swap_overflow += self.queue.counts().dropped();
        } else {
            self.lines.reword(&plan.program, &plan.written);
        }
        self.swap_kept += self.queue.counts().queued.saturating_sub(self.n_left);
        self.note(nanos(now), &Asked::Rate(bits_of(plan)));
        self.queue.set_rate(bits_of(plan));
        self.plan = Arc::clone(plan);
    }

    fn asks_for_remaining(&self) -> bool {
        self.plan.program.fields.contains(&Field::Remaining)
    }

    fn note(&mut self, now_ns: u64, asked: &Asked) {
        if let Some(noted) = &mut self.noted {
            noted.note(now_ns, asked);
        }
    }

    fn enqueue(&mut self, packet: &Packet, now_ns: u64) {
        if let Some(noted) = &mut self.noted {
            noted.came(packet, now_ns);
        }
        self.queue.enqueue(packet, now_ns);
    }

    /// A call leaves before its turn.
    fn leave(&mut self, handle: u32, now_ns: u64) {
        self.calls[handle as usize] = None;
        self.counts.taken += 1;
        self.n_left += 1;
        if let Some(noted) = &mut self.noted {
            noted.left(handle, now_ns);
        }
        self.clear_left(now_ns);
    }

    /// Takes calls out of the queue as long as they may go on; why not all of them did.
    fn serve(&mut self, now_ns: u64, passed: &mut Vec<CallKey>) -> Option<Stop> {
        while self.queue.counts().queued > 0 {
            if let Err(stop) = self.take_place(now_ns) {
                return Some(stop);
            }
            self.note(now_ns, &Asked::Dequeue);
            let Some(sent) = self.queue.dequeue(now_ns) else {
                self.give_back();
                return None;
            };
            match self.take(sent.handle) {
                Some(call) => {
                    self.n_own += 1;
                    self.counts.sent += 1;
                    self.waited.record(Interval(now_ns.saturating_sub(sent.arrived_ns) as i64));
                    self.queue.note_sent(&sent, now_ns);
                    passed.push(call);
                }
                None => {
                    self.n_left -= 1;
                    self.give_back();
                }
            }
        }
        None
    }

    /// Takes a place, and the time of one call.
    fn take_place(&self, now_ns: u64) -> Result<(), Stop> {
        let shared = &self.plan.shared;
        let next = shared.next_ns.load(Ordering::SeqCst);
        if self.plan.step_ns.is_some() && next > now_ns {
            return Err(Stop::Until(next));
        }
        if let Some(n) = self.plan.concurrency {
            if !self.is_its_turn(u64::from(n)) {
                return Err(Stop::Full);
            }
            let more = |taken| (taken < u64::from(n)).then_some(taken + 1);
            if shared.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err() {
                return Err(Stop::Full);
            }
        } else {
            shared.in_flight.fetch_add(1, Ordering::SeqCst);
        }
        let Some(step_ns) = self.plan.step_ns else { return Ok(()) };
        let later =
            |next: u64| (next <= now_ns).then(|| next.max(now_ns.saturating_sub(CATCH_UP_NS)) + step_ns);
        shared.next_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later).map(drop).map_err(|next| {
            shared.in_flight.fetch_sub(1, Ordering::SeqCst);
            Stop::Until(next)
        })
    }

    /// Whether a worker may take a place now, of so many: with its part or more if no other waits with less; with less,
    /// if there are free places for those whose turn was before. Turns that are over are counted, whichever they were,
    /// so the first of those that wait is never after all free places.
    fn is_its_turn(&self, places: u64) -> bool {
        let shared = &self.plan.shared;
        let [turns, over] = [&shared.turns, &shared.over].map(|of| of.load(Ordering::SeqCst));
        if self.n_own >= self.share {
            return turns.saturating_sub(over) == u64::from(self.turn.is_some());
        }
        let free = places.saturating_sub(shared.in_flight.load(Ordering::SeqCst));
        self.turn.unwrap_or(turns) < over + free
    }

    /// No call took the place, nor the time.
    fn give_back(&self) {
        let shared = &self.plan.shared;
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(step_ns) = self.plan.step_ns {
            shared.next_ns.fetch_sub(step_ns, Ordering::SeqCst);
        }
    }

    /// Tells the other workers whether calls wait here for a place. Whether that is new.
    fn note_wait(&mut self, is_full: bool) -> bool {
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

    /// Whether there is a free place, and another worker whose calls wait for one.
    fn keeps_others_waiting(&self) -> bool {
        let shared = &self.plan.shared;
        let others = shared.blocked.load(Ordering::SeqCst) - u64::from(self.is_blocked);
        let is_free = |n: u32| shared.in_flight.load(Ordering::SeqCst) < u64::from(n);
        others > 0 && self.plan.concurrency.is_some_and(is_free)
    }

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

    fn take(&mut self, handle: u64) -> Option<CallKey> {
        self.free.push(handle as u32);
        self.calls[handle as usize].take()
    }

    /// The next call that the queue dropped.
    fn next_dropped(&mut self) -> Option<(CallKey, Dropped)> {
        while let Some(dropped) = self.queue.poll_dropped() {
            let Some(call) = self.take(dropped.handle) else {
                self.n_left -= 1;
                continue;
            };
            match dropped.why {
                Why::Enqueue => self.counts.dropped_enqueue += 1,
                Why::Dequeue => self.counts.dropped_dequeue += 1,
                Why::Overflow => self.counts.dropped_overflow += 1,
            }
            return Some((call, dropped));
        }
        None
    }

    /// Takes those out of the queue that have left, once they are many.
    fn clear_left(&mut self, now_ns: u64) {
        let queued = self.queue.counts().queued;
        if self.n_left == queued || self.n_left >= LEFT_MIN && self.n_left > queued / 2 {
            let packets = self.take_living();
            if let Some(noted) = &mut self.noted {
                noted.refilled(&packets, now_ns);
            }
            self.queue.adopt(&packets);
        }
    }

    /// Empties the queue: those that still wait, in the order in which they came.
    fn take_living(&mut self) -> Vec<(Packet, u64)> {
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

    fn stats(&self, of: String) -> CallLinkStats {
        let of_queue = self.queue.counts();
        let queued = of_queue.queued.saturating_sub(self.n_left);
        CallLinkStats {
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

fn queue_of(plan: &CallLink, now: Time, seed: u64) -> Queue<Arc<dyn QueueCode>> {
    let mut queue = Queue::new(Arc::clone(&plan.program), Arc::clone(&plan.code), nanos(now), seed);
    queue.set_rate(bits_of(plan));
    queue.watch();
    queue
}

/// The rate that a program sees, in bits a second; 0: there is none.
fn bits_of(plan: &CallLink) -> u64 {
    plan.step_ns.map_or(0, |step| u64::from(CALL_BYTES) * 8_000_000_000 / step.max(1))
}

/// A client's address without its port: its connections are one flow.
fn host_of(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::headers::Answers;
    use crate::plan::{Balance, Cluster};
    use crate::slab::Slab;
    use weft_core::options::ClusterOptions;
    use weft_core::rng::Rng;
    use weft_ir::queue::run::Interpreted;
    use weft_ir::queue::{Handlers, Level, Limit, Order, Overflow, PacketOrder, Partitions};

    const NOW: u64 = 1_000_000_000;

    /// A link with four places, in whose queue calls stand as they came.
    fn link() -> Arc<CallLink> {
        let level = Level {
            name: "fifo".to_owned(),
            partitions: Partitions::One,
            vars: Vec::new(),
            partition_vars: Vec::new(),
            order: Order { bits: Some(0), by_least_packet: false },
            packets: PacketOrder::Arrival,
            limit: Limit { packets: Some(100), bytes: None, overflow: Overflow::Arriving, batch: 1, line: 1 },
            handlers: Handlers::default(),
        };
        let program = QueueProgram { name: "fifo".to_owned(), levels: vec![level], fields: Vec::new() };
        let program = Arc::new(program);
        Arc::new(CallLink {
            name: "line".to_owned(),
            of: CallsOf::Cluster(0),
            concurrency: Some(4),
            step_ns: None,
            key: CallFlow::Host,
            class: None,
            shared: Arc::new(Shared::default()),
            code: Arc::new(Interpreted::new(Arc::clone(&program))),
            program,
            written: Written::default(),
        })
    }

    /// The line of one worker of two, with calls that wait in it.
    fn line(link: &Arc<CallLink>, n_calls: usize) -> Line {
        let cluster = Arc::new(Cluster {
            name: "c".to_owned(),
            endpoints: Vec::new(),
            names: Vec::new(),
            balance: Balance::RoundRobin,
            weights: Vec::new(),
            options: ClusterOptions { connections: Some(1), ..ClusterOptions::default() },
        });
        let (pool, headers) = (Rc::new(Pool::new(cluster, Vec::new(), 0, 0)), Answers::default().response());
        let mut calls = Slab::new();
        let mut line = Line { share: 2, ..Line::new(link, Time(0), 1) };
        for id in 0..n_calls {
            let call = calls.insert(Call::new(
                id as u64,
                Time(0),
                "".into(),
                Rc::clone(&pool),
                Rc::clone(&headers),
                1,
            ));
            let handle = u64::from(line.store(call));
            line.queue.enqueue(&Packet { handle, len: CALL_BYTES, ..Packet::default() }, 0);
        }
        line
    }

    /// Lets go on who may: how many.
    fn serve(line: &mut Line) -> usize {
        let mut passed = Vec::new();
        let stop = line.serve(NOW, &mut passed);
        line.note_wait(matches!(stop, Some(Stop::Full)));
        passed.len()
    }

    fn end_one(line: &mut Line) {
        line.n_own -= 1;
        line.plan.shared.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// The calls of one worker's clients would wait for ever while another worker's go on, or places be left unused.
    #[test]
    fn workers_share_the_places_and_none_is_left_unused() {
        let link = link();
        let (mut busy, mut other) = (line(&link, 50), line(&link, 3));
        assert_eq!((serve(&mut busy), serve(&mut other)), (4, 0), "what nobody else uses");
        assert!(other.turn.is_some() && busy.is_blocked && busy.turn.is_none());
        end_one(&mut busy);
        assert_eq!(serve(&mut busy), 0, "it has its part, and another worker has less");
        assert!(busy.keeps_others_waiting());
        assert_eq!((serve(&mut other), other.turn.is_some()), (1, true));
        end_one(&mut busy);
        assert_eq!((serve(&mut busy), serve(&mut other)), (0, 1));
        // Both have their part, and one waits in each.
        end_one(&mut other);
        assert_eq!((serve(&mut busy), serve(&mut other)), (1, 0));
        end_one(&mut busy);
        assert_eq!((serve(&mut busy), serve(&mut other)), (0, 1));
        end_one(&mut other);
        end_one(&mut other);
        assert_eq!((serve(&mut other), serve(&mut busy)), (0, 2), "nobody waits at the other");
        assert_eq!(link.shared.in_flight.load(Ordering::SeqCst), 4);
        let of = |of: &AtomicU64| of.load(Ordering::SeqCst);
        assert_eq!((of(&link.shared.blocked), of(&link.shared.turns) - of(&link.shared.over)), (1, 0));
    }

    /// Of more workers than there are places, those that have one would keep it while calls wait elsewhere.
    #[test]
    fn fewer_places_than_workers_go_from_one_to_the_next() {
        let link = link();
        let mut lines: Vec<Line> = (0..7).map(|_| Line { share: 1, ..line(&link, 12) }).collect();
        let mut passed: Vec<usize> = lines.iter_mut().map(serve).collect();
        assert_eq!(passed, [4, 0, 0, 0, 0, 0, 0], "what nobody else uses");
        let mut rng = Rng::from_seed(1);
        for _ in 0..60 {
            let busy: Vec<usize> = (0..7).filter(|at| lines[*at].n_own > 0).collect();
            assert_eq!(lines.iter().map(|line| line.n_own).sum::<u64>(), 4, "no place is left unused");
            let ends = rng.pick(&busy);
            end_one(&mut lines[ends]);
            // The worker itself is the first to see that there is a place, and then they all look.
            for at in (ends..ends + 7).map(|at| at % 7) {
                passed[at] += serve(&mut lines[at]);
            }
        }
        assert!(passed.iter().all(|passed| (7..=12).contains(passed)), "{passed:?}");
        assert_eq!(passed.iter().sum::<usize>(), 64);
    }

    /// Each connection of a client would be a tenant of its own.
    #[test]
    fn a_client_is_its_address_without_the_port() {
        let hosts = ["10.0.0.1:50051", "[2001:db8::1]:80", "unix"].map(host_of);
        assert_eq!(hosts, ["10.0.0.1", "[2001:db8::1]", "unix"]);
    }
}
