//! One worker: what comes in, what goes out, and what it holds.
//!
//! The handling of calls is in [`crate::rpc`]; here are connections, pools, timers and updates.

use crate::call::{Call, CallKey, Leg};
use crate::conn::{CloseReason, Conn, ConnId, ConnKey, OUTPUT_BYTES_LOW, PARTIAL_BYTES_MAX, Side};
use crate::headers::Answers;
use crate::pass::{LiveChain, Passes};
use crate::plan::{Address, Plan};
use crate::pool::Pool;
use crate::sinks::Batch;
use crate::slab::Slab;
use crate::stats::{ChainStats, Connections, EndpointStats, Stats, add_counters};
use crate::timers::Timers;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use weft_core::abi::Counters;
use weft_core::{Interval, Time};
use weft_ir::program::{CallCell, cell_words};
use weft_proto::session::http2::{self, Connection, ConnectionError, ErrorCode, Event, Headers, StreamId};

/// Downstream connections of one worker; further ones are refused.
pub const CONNECTIONS_MAX: usize = 64 << 10;
/// How often expired table rows are swept, and how many rows one sweep looks at.
const SWEEP_EVERY: Interval = Interval::from_millis(100);
const SWEEP_ROWS: usize = 512;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which worker this is, from 0. Worker 0 runs `ON EVERY`.
    pub worker: usize,
    /// How many there are.
    pub workers: usize,
    /// What `rand()` draws from. The same seed and the same input give the same run.
    pub seed: u64,
    /// Nanoseconds for timing elements; None leaves them untimed.
    pub clock: Option<fn() -> u64>,
    /// Bytes of one message, as it arrives and inflated. A larger one ends its call.
    pub message_bytes_max: usize,
    /// Limits of connections from clients.
    pub downstream: http2::Config,
    /// Limits of connections to servers.
    pub upstream: http2::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker: 0,
            workers: 1,
            seed: 0,
            clock: None,
            message_bytes_max: 4 << 20,
            downstream: http2::Config { max_concurrent_streams: 1000, ..http2::Config::server() },
            upstream: http2::Config::client(),
        }
    }
}

/// Something that a driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a connection, and report it by `handle_connected` or `handle_closed`.
    Connect {
        /// Under which id.
        conn: ConnId,
        /// Where to.
        address: Address,
    },
    /// Write what [`Engine::output`] still holds, if that can be done at once, and close. It is not reported back.
    Close {
        /// Which.
        conn: ConnId,
    },
}

/// One worker of the data plane.
///
/// Every `handle_*` may make output, actions and timeouts; poll for them after a batch of calls, not after each.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) live: Rc<Live>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) conns: Slab<Conn>,
    pub(crate) calls: Slab<Call>,
    pub(crate) spare_rows: Vec<Vec<u64>>,
    pub(crate) timers: Timers<Timer>,
    pub(crate) passes: Passes,
    pub(crate) answers: Answers,
    pub(crate) rewritten: Vec<u8>,
    pub(crate) inflated: Vec<u8>,
    pub(crate) batch: Batch,
    pub(crate) stats: Stats,
    pub(crate) next_call: u64,
    dirty: VecDeque<ConnKey>,
    actions: VecDeque<Action>,
    due: Vec<Timer>,
    /// Chains of all versions that still have calls, the current ones included.
    chains: Vec<Rc<LiveChain>>,
    /// What elements of retired versions counted.
    retired: Vec<(String, Vec<(String, Counters)>)>,
    n_downstream: usize,
}

/// A plan on this worker.
pub(crate) struct Live {
    pub(crate) plan: Arc<Plan>,
    /// Counts the plans of this worker; header lists remember their route under it.
    pub(crate) id: u32,
    /// When it was taken on.
    pub(crate) since: Time,
    pub(crate) chains: Vec<Rc<LiveChain>>,
    /// For each cluster of the plan, its pool.
    pub(crate) pools: Vec<usize>,
    /// Where a REDIRECT can go: clusters and endpoints by name.
    pub(crate) targets: FxHashMap<Vec<u8>, (usize, Option<usize>)>,
}

/// The way that a call takes: indices into the plan, and of the method in the chain's list.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) route: usize,
    pub(crate) chain: Option<usize>,
    pub(crate) method: Option<usize>,
}

#[derive(Clone, Copy)]
pub(crate) enum Timer {
    Conn(ConnKey),
    Connect(ConnKey),
    Deadline(CallKey),
    HeldRequest(CallKey),
    HeldResponse(CallKey),
    Every { live: u32, chain: usize, nth: usize },
    Sweep,
}

impl Engine {
    /// An engine that runs `plan`.
    pub fn new(now: Time, config: Config, plan: Arc<Plan>) -> Self {
        let mut engine = Self {
            live: Rc::new(Live::empty()),
            pools: Vec::new(),
            conns: Slab::new(),
            calls: Slab::new(),
            spare_rows: Vec::new(),
            timers: Timers::new(now),
            passes: Passes::new(config.clock),
            answers: Answers::default(),
            rewritten: Vec::new(),
            inflated: Vec::new(),
            batch: Batch::default(),
            stats: Stats::default(),
            // Ids of different workers never meet: the worker is in the upper bits.
            next_call: (config.worker as u64) << 48,
            dirty: VecDeque::new(),
            actions: VecDeque::new(),
            due: Vec::new(),
            chains: Vec::new(),
            retired: Vec::new(),
            n_downstream: 0,
            config,
        };
        engine.apply(now, plan);
        if engine.config.worker == 0 {
            engine.timers.set(now + SWEEP_EVERY, Timer::Sweep);
        }
        engine
    }

    /// Takes on a new plan: calls that begin from now on enter under it, those under way end on theirs.
    pub fn apply(&mut self, now: Time, plan: Arc<Plan>) {
        let worker = self.config.worker;
        let chains: Vec<_> = plan.chains.iter().map(|c| Rc::new(LiveChain::new(c, worker))).collect();
        let pools: Vec<_> = plan.clusters.iter().map(|c| self.pool_for(c)).collect();
        let mut targets = FxHashMap::default();
        for (cluster, pool) in plan.clusters.iter().zip(&pools) {
            for (endpoint, e) in self.pools[*pool].endpoints.iter().enumerate() {
                targets.entry(e.name.as_bytes().to_vec()).or_insert((*pool, Some(endpoint)));
            }
            targets.insert(cluster.name.as_bytes().to_vec(), (*pool, None));
        }
        self.drain_dropped_pools(now, &pools);
        self.chains.extend(chains.iter().cloned());
        self.stats.version = plan.version;
        self.live = Rc::new(Live { plan, id: self.live.id + 1, since: now, chains, pools, targets });
        if worker == 0 {
            self.set_every_timers(now);
        }
        self.retire();
    }

    /// The plan that new calls enter under.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.live.plan
    }

    /// A client has connected to the listener with this name. None if [`CONNECTIONS_MAX`] is reached: close it then.
    pub fn handle_accept(&mut self, now: Time, listener: &str, peer: &str) -> Option<ConnId> {
        if self.n_downstream >= CONNECTIONS_MAX {
            self.stats.refuse("connections_max", 1);
            return None;
        }
        self.n_downstream += 1;
        self.stats.downstream.open += 1;
        self.stats.downstream.total += 1;
        let h2 = Connection::new(self.config.downstream.clone(), now);
        let key = self
            .conns
            .insert(Conn::new(h2, Side::Downstream { listener: listener.into(), peer: peer.into() }));
        self.after_change(key);
        Some(key.into())
    }

    /// A connection that [`Action::Connect`] asked for is up: its preface can be written.
    pub fn handle_connected(&mut self, _now: Time, conn: ConnId) {
        self.after_change(conn.into());
    }

    /// A server's settings have come for the first time. Before, it would refuse streams beyond the number that it
    /// permits, and a listener that is no HTTP/2 server would take calls with it.
    fn upstream_ready(&mut self, key: ConnKey) {
        let Some(Conn { side: Side::Upstream { pool, endpoint, is_ready }, .. }) = self.conns.get_mut(key)
        else {
            return;
        };
        if core::mem::replace(is_ready, true) {
            return;
        }
        let (pool, endpoint) = (*pool, *endpoint);
        self.stats.upstream.open += 1;
        self.stats.upstream.total += 1;
        self.pools[pool].endpoints[endpoint].note_connected(key);
    }

    /// Bytes have come. All of them are taken.
    pub fn handle_input(&mut self, now: Time, conn: ConnId, input: &[u8]) {
        let key = conn.into();
        let Some(state) = self.conns.get_mut(key) else { return };
        if state.is_closing {
            return;
        }
        if state.partial.is_empty() {
            let taken = self.take_input(now, key, input);
            if let Some(state) = self.conns.get_mut(key) {
                state.partial.extend_from_slice(&input[taken..]);
            }
        } else {
            let mut partial = core::mem::take(&mut state.partial);
            partial.extend_from_slice(input);
            let taken = self.take_input(now, key, &partial);
            partial.drain(..taken);
            if let Some(state) = self.conns.get_mut(key) {
                // An idle connection holds no buffer.
                state.partial = if partial.is_empty() { Vec::new() } else { partial };
            }
        }
        if self.conns.get(key).is_some_and(|c| c.partial.len() > PARTIAL_BYTES_MAX) {
            self.stats.refuse("partial_bytes_max", 1);
            self.close(now, key);
        }
        self.close_if_drained(now, key);
        self.after_change(key);
    }

    /// The connection is gone: its calls end.
    pub fn handle_closed(&mut self, now: Time, conn: ConnId, reason: CloseReason) {
        self.drop_conn(now, conn.into(), reason);
    }

    /// What is to be written to a connection; empty if nothing, or if it is gone.
    pub fn output(&self, conn: ConnId) -> &[u8] {
        self.conns.get(conn.into()).map_or(&[], |c| c.h2.output())
    }

    /// So many bytes of the output were written.
    pub fn advance_output(&mut self, conn: ConnId, n: usize) {
        let key = conn.into();
        let Some(state) = self.conns.get_mut(key) else { return };
        state.h2.advance_output(n);
        if !state.waiting.is_empty() && state.h2.output().len() <= OUTPUT_BYTES_LOW {
            for call in core::mem::take(&mut state.waiting) {
                self.settle(call);
            }
        }
    }

    /// The next connection with output that was not reported yet. Write what [`Engine::output`] gives, and again
    /// whenever the connection can take more.
    pub fn poll_output(&mut self) -> Option<ConnId> {
        while let Some(key) = self.dirty.pop_front() {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.is_dirty = false;
                return Some(key.into());
            }
        }
        None
    }

    /// The next thing to do, if any.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The rows that sinks wait for; take them with [`core::mem::swap`] or clear them.
    pub fn rows(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Rows were given up because their writer is behind.
    pub fn note_rows_lost(&mut self, n: usize) {
        self.stats.rows_lost += n as u64;
    }

    /// When [`Engine::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let mut due = core::mem::take(&mut self.due);
        self.timers.expire(now, &mut due);
        for timer in due.drain(..) {
            self.handle_timer(now, timer);
        }
        self.due = due;
    }

    /// Begins to close: every connection takes the calls that are on their way, finishes them, and closes.
    pub fn close_gracefully(&mut self, now: Time) {
        let keys: Vec<_> = self.conns.iter().filter(|(_, c)| c.is_downstream()).map(|(k, _)| k).collect();
        for key in keys {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.h2.go_away(ErrorCode::NoError);
            self.close_if_drained(now, key);
            self.after_change(key);
        }
    }

    /// Calls under way.
    pub fn calls_open(&self) -> usize {
        self.calls.len()
    }

    /// Connections that are open, both sides.
    pub fn connections_open(&self) -> usize {
        self.conns.len()
    }

    /// Bytes of messages that wait for a window, a delay or an upstream, and bytes that wait to be written.
    ///
    /// Of one connection at most its peer's windows and some 256 KiB of output are held.
    pub fn bytes_held(&self) -> usize {
        let queued = |leg: Option<Leg>| {
            leg.and_then(|leg| Some(self.conns.get(leg.conn)?.h2.queued(leg.stream))).unwrap_or(0)
        };
        let of_calls = self.calls.iter().map(|(_, call)| {
            call.request.held_bytes() + call.response.held_bytes() + queued(call.up) + queued(call.down)
        });
        let of_conns = self.conns.iter().map(|(_, conn)| conn.h2.output().len() + conn.partial.len());
        of_calls.chain(of_conns).sum()
    }

    /// A copy of the counters.
    pub fn stats(&mut self) -> Stats {
        self.retire();
        let mut stats = self.stats.clone();
        stats.calls_open = self.calls.len() as u64;
        stats.chains = self.chains.iter().map(|c| self.chain_stats(c)).collect();
        stats.endpoints = self.endpoint_stats();
        for (_, conn) in self.conns.iter() {
            conn.h2.counters().iter().for_each(|(v, n)| stats.refuse(v.name(), u64::from(n)));
        }
        stats
    }

    /// What elements of retired versions counted: (chain, [(instance, counters)]).
    pub fn retired(&self) -> &[(String, Vec<(String, Counters)>)] {
        &self.retired
    }

    fn handle_timer(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Conn(key) => self.conn_timeout(now, key),
            Timer::Connect(key) => {
                let waits = |c: &Conn| matches!(c.side, Side::Upstream { is_ready: false, .. });
                if self.conns.get(key).is_some_and(waits) {
                    self.actions.push_back(Action::Close { conn: key.into() });
                    self.drop_conn(now, key, CloseReason::Refused);
                }
            }
            Timer::Deadline(call) => self.deadline_passed(now, call),
            Timer::HeldRequest(call) => self.flush_request(now, call),
            Timer::HeldResponse(call) => self.flush_response(now, call),
            Timer::Every { live, chain, nth } if live == self.live.id => self.run_every(now, chain, nth),
            Timer::Every { .. } => {}
            Timer::Sweep => {
                self.sweep(now);
                self.timers.set(now + SWEEP_EVERY, Timer::Sweep);
            }
        }
    }

    /// Takes whole frames from `input`; returns how many bytes they had.
    fn take_input(&mut self, now: Time, key: ConnKey, input: &[u8]) -> usize {
        let mut taken = 0;
        // Also once all is taken: one frame can make several events.
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return input.len() };
            if conn.is_closing {
                return input.len();
            }
            match conn.h2.handle_input(now, &input[taken..]) {
                Ok((0, None)) => break,
                Ok((n, event)) => {
                    taken += n;
                    if let Some(event) = event {
                        self.handle_event(now, key, event);
                    }
                }
                // The connection counts what its peer did wrong.
                Err(ConnectionError { .. }) => {
                    self.close(now, key);
                    return input.len();
                }
            }
        }
        taken
    }

    fn handle_event(&mut self, now: Time, key: ConnKey, event: Event<'_>) {
        let Some(conn) = self.conns.get(key) else { return };
        let is_downstream = conn.is_downstream();
        let call_of = |stream| conn.streams.get(&stream).copied();
        match event {
            Event::Headers { stream, headers, end_stream, trailers } => {
                match (is_downstream, call_of(stream)) {
                    (true, None) if !trailers => self.begin_call(now, key, stream, headers, end_stream),
                    (true, Some(call)) => self.request_ended(now, call),
                    (false, Some(call)) if end_stream => self.response_ended(now, call, Some(headers)),
                    (false, Some(call)) => self.response_begun(call, headers),
                    (_, None) => {}
                }
            }
            Event::Data { stream, data, flow_len, end_stream } => match (is_downstream, call_of(stream)) {
                (true, Some(call)) => self.request_data(now, call, data, flow_len, end_stream),
                (false, Some(call)) => self.response_data(now, call, data, flow_len, end_stream),
                (_, None) => {
                    if let Some(conn) = self.conns.get_mut(key) {
                        conn.h2.release(stream, flow_len);
                    }
                }
            },
            Event::Reset { stream, code, .. } => {
                let call = call_of(stream);
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.streams.remove(&stream);
                }
                match (is_downstream, call) {
                    (true, Some(call)) => self.client_left(now, call),
                    (false, Some(call)) => self.server_reset(now, call, code),
                    (_, None) => {}
                }
            }
            Event::Unblocked { stream } => {
                if let Some(call) = call_of(stream) {
                    self.settle(call);
                }
            }
            Event::GoAway { last_stream, .. } => self.upstream_drains(now, key, last_stream),
            Event::StreamsAvailable => {
                self.upstream_ready(key);
                if let Some((pool, endpoint)) = self.upstream_of(key) {
                    self.serve_waiting(now, pool, endpoint);
                }
            }
        }
    }

    /// Ends a connection from this side: its calls end, its output is still written.
    pub(crate) fn close(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.is_closing = true;
        conn.partial = Vec::new();
        self.end_calls_of(now, key);
        self.actions.push_back(Action::Close { conn: key.into() });
    }

    /// Closes a client's connection that takes no more calls and has none.
    pub(crate) fn close_if_drained(&mut self, now: Time, key: ConnKey) {
        let is_drained = |c: &Conn| c.is_downstream() && !c.is_closing && c.h2.is_closed();
        if self.conns.get(key).is_some_and(is_drained) {
            self.close(now, key);
        }
    }

    /// A closing connection's driver has let go of it.
    pub fn handle_released(&mut self, now: Time, conn: ConnId) {
        self.drop_conn(now, conn.into(), CloseReason::Eof);
    }

    fn drop_conn(&mut self, now: Time, key: ConnKey, reason: CloseReason) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.is_closing = true;
        }
        let upstream = self.upstream_of(key);
        let was_ready =
            !matches!(self.conns.get(key), Some(Conn { side: Side::Upstream { is_ready: false, .. }, .. }));
        if let Some((pool, endpoint)) = upstream {
            let endpoint = &mut self.pools[pool].endpoints[endpoint];
            endpoint.forget(key);
            if !was_ready || reason != CloseReason::Eof {
                endpoint.note_failure(now);
            }
        }
        self.end_calls_of(now, key);
        let Some(conn) = self.conns.remove(key) else { return };
        if let Some((_, timer)) = conn.timer {
            self.timers.cancel(timer);
        }
        conn.h2.counters().iter().for_each(|(v, n)| self.stats.refuse(v.name(), u64::from(n)));
        match upstream {
            None => {
                self.n_downstream -= 1;
                self.stats.downstream.open -= 1;
            }
            Some((pool, endpoint)) => {
                self.stats.upstream.open -= u64::from(was_ready);
                self.reassign_waiting(now, pool, endpoint, false);
            }
        }
    }

    fn end_calls_of(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let is_downstream = conn.is_downstream();
        let mut calls: Vec<_> = core::mem::take(&mut conn.streams).into_iter().collect();
        calls.sort_unstable_by_key(|(stream, _)| *stream);
        for (_, call) in calls {
            if is_downstream {
                self.client_left(now, call);
            } else {
                self.server_gone(now, call);
            }
        }
    }

    /// After a connection was worked on: it may have output, and another timeout.
    pub(crate) fn after_change(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !conn.is_dirty && !conn.h2.output().is_empty() {
            conn.is_dirty = true;
            self.dirty.push_back(key);
        }
        let Some(at) = conn.h2.poll_timeout() else { return };
        if conn.timer.is_none_or(|(set, _)| at < set) {
            if let Some((_, timer)) = conn.timer {
                self.timers.cancel(timer);
            }
            conn.timer = Some((at, self.timers.set(at, Timer::Conn(key))));
        }
    }

    fn conn_timeout(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.timer = None;
        if conn.h2.poll_timeout().is_some_and(|at| at <= now) && conn.h2.handle_timeout(now).is_err() {
            self.close(now, key);
        }
        while let Some(event) = self.conns.get_mut(key).and_then(|c| c.h2.poll_event()) {
            self.handle_event(now, key, event);
        }
        self.after_change(key);
    }

    /// The server takes no new streams on this connection; those above `last_stream` it has not touched.
    fn upstream_drains(&mut self, now: Time, key: ConnKey, last_stream: StreamId) {
        let Some((pool, endpoint)) = self.upstream_of(key) else { return };
        self.pools[pool].endpoints[endpoint].forget(key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut untouched: Vec<_> = conn.streams.extract_if(|stream, _| *stream > last_stream).collect();
        untouched.sort_unstable_by_key(|(stream, _)| *stream);
        for (_, call) in untouched {
            self.server_gone(now, call);
        }
        if self.conns.get(key).is_some_and(|c| c.streams.is_empty()) {
            self.close(now, key);
        }
        self.reassign_waiting(now, pool, endpoint, true);
    }

    pub(crate) fn upstream_of(&self, key: ConnKey) -> Option<(usize, usize)> {
        match self.conns.get(key)?.side {
            Side::Upstream { pool, endpoint, .. } => Some((pool, endpoint)),
            Side::Downstream { .. } => None,
        }
    }

    /// Begins to make a connection to an endpoint, unless one is being made.
    pub(crate) fn connect(&mut self, now: Time, pool: usize, endpoint: usize) {
        let timeout = self.pools[pool].cluster.connect_timeout;
        let target = &mut self.pools[pool].endpoints[endpoint];
        if target.connecting.is_some() {
            return;
        }
        let h2 = Connection::new(self.config.upstream.clone(), now);
        let key = self.conns.insert(Conn::new(h2, Side::Upstream { pool, endpoint, is_ready: false }));
        target.connecting = Some(key);
        self.actions.push_back(Action::Connect { conn: key.into(), address: target.address.clone() });
        self.timers.set(now + timeout, Timer::Connect(key));
    }

    /// The pool of a cluster: one that is there for the same members, or a new one.
    fn pool_for(&mut self, cluster: &Arc<crate::plan::Cluster>) -> usize {
        let same = |p: &Pool| p.cluster.name == cluster.name && p.cluster.endpoints == cluster.endpoints;
        if let Some(at) = self.pools.iter().position(same) {
            self.pools[at].cluster = Arc::clone(cluster);
            return at;
        }
        self.pools.push(Pool::new(Arc::clone(cluster)));
        self.pools.len() - 1
    }

    /// Connections of clusters that the new plan does not have finish their calls and close.
    fn drain_dropped_pools(&mut self, now: Time, kept: &[usize]) {
        let dropped = (0..self.pools.len()).filter(|at| !kept.contains(at));
        let ready: Vec<_> =
            dropped.flat_map(|at| &self.pools[at].endpoints).flat_map(|e| e.ready.clone()).collect();
        for key in ready {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.h2.go_away(ErrorCode::NoError);
            }
            self.upstream_drains(now, key, StreamId::MAX);
            self.after_change(key);
        }
    }

    fn set_every_timers(&mut self, now: Time) {
        let live = Rc::clone(&self.live);
        for (chain, live_chain) in live.chains.iter().enumerate() {
            for (nth, (interval, _)) in live_chain.chain.segments.every.iter().enumerate() {
                self.timers.set(now + *interval, Timer::Every { live: live.id, chain, nth });
            }
        }
    }

    fn sweep(&mut self, now: Time) {
        for table in self.live.chains.iter().flat_map(|c| &c.state.tables) {
            table.sweep(now, SWEEP_ROWS);
        }
    }

    /// Lets go of chains of old versions that have no call any more.
    fn retire(&mut self) {
        let current = self.live.plan.version;
        let (keep, gone) = core::mem::take(&mut self.chains)
            .into_iter()
            .partition::<Vec<_>, _>(|c| c.chain.version == current || c.calls_open.get() > 0);
        self.chains = keep;
        for chain in gone {
            self.count_retired(&chain);
        }
    }

    fn count_retired(&mut self, gone: &LiveChain) {
        let program = &gone.chain.program;
        let at = self.retired.iter().position(|(name, _)| *name == program.name).unwrap_or_else(|| {
            self.retired.push((program.name.clone(), Vec::new()));
            self.retired.len() - 1
        });
        let totals = &mut self.retired[at].1;
        for (element, counters) in program.elements.iter().zip(gone.counters.borrow().iter()) {
            match totals.iter_mut().find(|(name, _)| *name == element.name) {
                Some((_, total)) => add_counters(total, counters),
                None => totals.push((element.name.clone(), *counters)),
            }
        }
    }

    fn chain_stats(&self, live: &LiveChain) -> ChainStats {
        let program = &live.chain.program;
        let counters = live.counters.borrow();
        let names = program.elements.iter().map(|e| e.name.clone());
        ChainStats {
            chain: program.name.clone(),
            version: live.chain.version,
            is_current: live.chain.version == self.live.plan.version,
            calls_open: live.calls_open.get(),
            elements: names.zip(counters.iter().map(|c| self.without_clock(c))).collect(),
        }
    }

    /// Counters without the time that measuring took.
    fn without_clock(&self, counters: &Counters) -> Counters {
        let measuring = counters.sampled * self.passes.clock_ns;
        Counters { sampled_ns: counters.sampled_ns.saturating_sub(measuring), ..*counters }
    }

    fn endpoint_stats(&self) -> Vec<EndpointStats> {
        let of_pool = |at: &usize| {
            let pool = &self.pools[*at];
            pool.endpoints.iter().map(|e| EndpointStats {
                cluster: pool.cluster.name.clone(),
                address: e.name.to_string(),
                active: e.active,
                calls: e.calls,
                connect_failures: e.connect_failures,
            })
        };
        self.live.pools.iter().flat_map(of_pool).collect()
    }
}

impl Live {
    fn empty() -> Self {
        Self {
            plan: Arc::new(Plan::default()),
            id: 0,
            since: Time::default(),
            chains: Vec::new(),
            pools: Vec::new(),
            targets: FxHashMap::default(),
        }
    }

    /// The way that was found for this very list under this plan. It depends on nothing but the list and its
    /// connection, which never shares a list with another.
    pub(crate) fn remembered(&self, headers: &Headers) -> Option<Way> {
        let tag = headers.tag.get();
        if (tag >> 32) as u32 != self.id {
            return None;
        }
        let index = |shift: u32, bits: u32| (tag >> shift & ((1 << bits) - 1)) as usize;
        Some(Way {
            route: index(20, 12),
            chain: index(10, 10).checked_sub(1),
            method: index(0, 10).checked_sub(1),
        })
    }

    /// Keeps a way with the list; one whose numbers are too large is found anew each time.
    pub(crate) fn remember(&self, headers: &Headers, way: Way) {
        let [chain, method] = [way.chain, way.method].map(|index| index.map_or(0, |i| i as u64 + 1));
        if way.route < 1 << 12 && chain < 1 << 10 && method < 1 << 10 {
            headers.tag.set(u64::from(self.id) << 32 | (way.route as u64) << 20 | chain << 10 | method);
        }
    }
}

impl LiveChain {
    /// Whether a call may go on under `new`: it has the same instances in the same order, so that each sees one
    /// OPEN and one CLOSE, and looks at messages of the same directions, so that none is cut in the middle.
    pub(crate) fn can_become(&self, new: &Self) -> bool {
        let names = |c: &Self| c.chain.program.elements.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
        let reads = |c: &Self| (c.chain.segments.request.is_some(), c.chain.segments.response.is_some());
        names(self) == names(new) && reads(self) == reads(new)
    }

    /// A call's row in the layout of `new`: cells by name, new ones zero.
    pub(crate) fn carry_row(&self, new: &Self, row: &[u64]) -> Vec<u64> {
        let (old_cells, new_cells) = (&self.chain.program.call, &new.chain.program.call);
        let mut carried = vec![0; new.chain.program.call_words()];
        for cell in new_cells {
            let same = |c: &&CallCell| (&c.owner, &c.name, c.ty) == (&cell.owner, &cell.name, cell.ty);
            if let Some(old) = old_cells.iter().find(same) {
                let (from, to, n) = (old.word as usize, cell.word as usize, cell_words(cell.ty));
                carried[to..to + n].copy_from_slice(&row[from..from + n]);
            }
        }
        carried
    }

    fn new(chain: &Arc<crate::plan::Chain>, worker: usize) -> Self {
        let n = chain.program.elements.len();
        Self {
            state: chain.state.for_worker(worker),
            counters: RefCell::new(vec![Counters::default(); n]),
            calls_open: Cell::new(0),
            chain: Arc::clone(chain),
        }
    }
}

impl Connections {
    /// Whether none is open.
    pub fn is_idle(&self) -> bool {
        self.open == 0
    }
}
