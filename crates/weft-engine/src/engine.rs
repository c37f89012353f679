//! The engine: one worker, with its inputs, its outputs and its state.
//!
//! This module has the driver's interface. [`crate::http2_events`] handles connections. [`crate::request`],
//! [`crate::upstream`], [`crate::response`] and [`crate::end`] handle calls, and [`crate::verdict`] applies what chains
//! decide.

use crate::active_plan::ActivePlan;
use crate::call::{Call, CallKey};
use crate::call_queue::WorkerQueue;
use crate::conn::{CloseReason, Conn, ConnId, ConnKey, OUTPUT_BYTES_LOW, PARTIAL_BYTES_MAX, Side};
use crate::expiry::{self, SWEEP_EVERY};
use crate::filter::{DeferredAction, Waiters};
use crate::headers::ResponseCache;
use crate::pass::{ActiveChain, PassInputs, PassScratch, rand_base};
use crate::plan::{Address, Plan};
use crate::pool::{Endpoint, EndpointKey, Pool};
use crate::resend::Spare;
use crate::rules::Swap;
use crate::sinks::Batch;
use crate::slab::Slab;
use crate::stats::{Connections, Stats};
use crate::timers::Timers;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use weft_core::abi::Counters;
use weft_core::hash::HashKey;
use weft_core::options::{CLIENTS_MAX, ClusterOptions, ListenerOptions};
use weft_core::table::Row;
use weft_core::{Interval, Status, Time};
use weft_proto::session::http2::{self, Connection, ErrorCode, Keepalive};

/// The most downstream connections of one worker; further ones are refused.
pub const CONNECTIONS_MAX: usize = CLIENTS_MAX as usize;
/// The default for the bytes of messages that the calls of one worker may hold together ([`Engine::bytes_held`]).
pub const HELD_BYTES_MAX: usize = 256 << 20;
/// The period of housekeeping: it sweeps expired table rows, checks memory, and releases retired chains and pools.
const HOUSEKEEPING_EVERY: Interval = SWEEP_EVERY;

/// The configuration of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The index of this worker, from 0. Worker 0 runs `ON EVERY`.
    pub worker: usize,
    /// The number of workers.
    pub workers: usize,
    /// The seed of `rand()`. The same seed and the same input give the same run.
    pub seed: u64,
    /// Hashes keys that peers choose, except in the tables of [`crate::state::StateStore`].
    pub hash: HashKey,
    /// A clock in nanoseconds that times elements; None disables timing.
    pub clock: Option<fn() -> u64>,
    /// The most bytes that calls may hold together. Beyond it, the calls that hold most end with RESOURCE_EXHAUSTED.
    pub held_bytes_max: usize,
    /// Limits of connections from clients; the options of a listener override some of them.
    pub downstream: http2::Config,
    /// Limits of connections to servers; the options of a cluster override some of them.
    pub upstream: http2::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker: 0,
            workers: 1,
            seed: 0,
            hash: HashKey::from_seed(0),
            clock: None,
            held_bytes_max: HELD_BYTES_MAX,
            downstream: http2::Config::server(),
            upstream: http2::Config::client(),
        }
    }
}

/// A task for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a connection, and report it by `handle_connected` or `handle_closed`.
    Connect {
        /// Its id.
        conn: ConnId,
        /// The address to connect to.
        address: Address,
    },
    /// Write the rest of [`Engine::output`], shut down the sending side, and close after the peer has closed, too. Then
    /// report `handle_released`. Discard further input.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Close now, without writing the rest. Do not report it back.
    Abort {
        /// Which.
        conn: ConnId,
    },
    /// Make the other workers call [`Engine::handle_wake`] soon: their calls may wait for a resource that is free now.
    Wake,
}

/// One worker of the data plane.
///
/// Each `handle_*` may produce output, actions and timeouts; poll for them after a batch of calls, not after each.
pub struct Engine {
    pub(crate) config: Config,
    /// The latest time from the driver.
    pub(crate) now: Time,
    pub(crate) active: Rc<ActivePlan>,
    /// The pools of the current plan, and of earlier plans while a call uses them.
    pub(crate) pools: Vec<Rc<Pool>>,
    pub(crate) endpoints: Slab<Endpoint>,
    pub(crate) conns: Slab<Conn>,
    pub(crate) calls: Slab<Call>,
    pub(crate) spare_rows: Vec<Vec<u64>>,
    pub(crate) spare_bodies: Spare,
    pub(crate) timers: Timers<Timer>,
    pub(crate) pass_scratch: PassScratch,
    pub(crate) responses: ResponseCache,
    pub(crate) rewritten: Vec<u8>,
    pub(crate) inflated: Vec<u8>,
    pub(crate) batch: Batch,
    pub(crate) stats: Stats,
    pub(crate) next_call: u64,
    pub(crate) dirty: VecDeque<ConnKey>,
    pub(crate) actions: VecDeque<Action>,
    due: Vec<Timer>,
    /// Rows that have left a table, while ON TIMEOUT or ON EVICT runs.
    expired_rows: Vec<Row>,
    /// Chains with open calls of all versions, and all current chains.
    pub(crate) chains: Vec<Rc<ActiveChain>>,
    /// Counters of elements of retired versions.
    pub(crate) retired: Vec<(String, Vec<(String, Counters)>)>,
    pub(crate) n_downstream: usize,
    /// Per listener: the number of its downstream connections, if any.
    pub(crate) clients: BTreeMap<Rc<str>, usize>,
    pub(crate) n_mirrors: usize,
    /// Calls that are tries of other calls.
    pub(crate) n_tries: usize,
    pub(crate) waiters: Waiters,
    pub(crate) pending: VecDeque<DeferredAction>,
    /// The call queues, by id.
    pub(crate) call_queues: BTreeMap<u32, WorkerQueue>,
    /// The ids of listeners' call queues, by the listener's name.
    pub(crate) queues_of_listeners: BTreeMap<String, u32>,
    pub(crate) next_queue: u32,
    /// No further connections are accepted.
    pub(crate) is_stopping: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Timer {
    Conn(ConnKey),
    Connect(ConnKey),
    /// Probe a failed endpoint.
    Probe(EndpointKey),
    Deadline(CallKey),
    /// TIMEOUT TOTAL of the call's filter.
    Total(CallKey),
    /// A call's turn at its filter, or its next try.
    Turn(CallKey),
    /// The next hedged try of a call without an answer.
    Hedge(CallKey),
    HeldRequest(CallKey),
    HeldResponse(CallKey),
    Flush(ConnKey),
    /// A call queue has work to do.
    CallQueue(u32),
    /// Calls wait for a stream to an endpoint.
    Waiting(EndpointKey),
    Linger {
        conn: ConnKey,
        left: usize,
    },
    Every {
        plan: u32,
        chain: usize,
        nth: usize,
        due: Time,
    },
    /// Rows of a table may have expired or been evicted.
    Expire {
        plan: u32,
        chain: usize,
        nth: usize,
    },
    Housekeeping,
}

impl Engine {
    /// Creates an engine that runs `plan`.
    pub fn new(now: Time, config: Config, plan: Arc<Plan>) -> Self {
        let mut engine = Self {
            now,
            active: Rc::new(ActivePlan::empty()),
            pools: Vec::new(),
            endpoints: Slab::new(),
            conns: Slab::new(),
            calls: Slab::new(),
            spare_rows: Vec::new(),
            spare_bodies: Spare::default(),
            timers: Timers::new(now),
            pass_scratch: PassScratch::new(config.clock),
            responses: ResponseCache::default(),
            rewritten: Vec::new(),
            inflated: Vec::new(),
            batch: Batch::default(),
            stats: Stats::default(),
            // Ids of different workers never collide: the worker is in the upper bits.
            next_call: (config.worker as u64) << 48,
            dirty: VecDeque::new(),
            actions: VecDeque::new(),
            due: Vec::new(),
            expired_rows: Vec::new(),
            chains: Vec::new(),
            retired: Vec::new(),
            n_downstream: 0,
            clients: BTreeMap::new(),
            n_mirrors: 0,
            n_tries: 0,
            waiters: Waiters::default(),
            pending: VecDeque::new(),
            call_queues: BTreeMap::new(),
            queues_of_listeners: BTreeMap::new(),
            next_queue: 0,
            is_stopping: false,
            config,
        };
        engine.apply(now, plan);
        engine.timers.set(now + HOUSEKEEPING_EVERY, Timer::Housekeeping);
        engine
    }

    /// Applies a new plan to calls that start from now on. Open calls finish under their own plan.
    pub fn apply(&mut self, now: Time, plan: Arc<Plan>) {
        let worker = self.config.worker;
        let chains = ActiveChain::all(&plan.chains, worker, &self.active.chains);
        let pools: Vec<_> = plan.clusters.iter().map(|c| self.pool_for(c)).collect();
        let mut targets = FxHashMap::default();
        for (cluster, pool) in plan.clusters.iter().zip(&pools) {
            for (address, endpoint) in cluster.endpoints.iter().zip(&pool.members) {
                let target = (Rc::clone(pool), Some(*endpoint));
                targets.entry(address.to_string().into_bytes()).or_insert(target);
            }
            for (name, endpoint) in cluster.names.iter().zip(&pool.members) {
                let target = (Rc::clone(pool), Some(*endpoint));
                targets.entry(name.clone().into_bytes()).or_insert(target);
            }
            targets.insert(cluster.name.as_bytes().to_vec(), (Rc::clone(pool), None));
        }
        self.chains.extend(chains.iter().cloned());
        self.stats.version = plan.version;
        self.apply_call_queues(now, &plan, &pools);
        let has_other_options = has_other_options(&self.active.plan, &plan);
        self.active =
            Rc::new(ActivePlan { plan, id: self.active.id + 1, since: now, chains, pools, targets });
        if worker == 0 {
            self.set_every_timers(now);
        }
        self.remove_listeners(now);
        if has_other_options {
            self.configure_connections();
        }
        self.run_pending(now);
    }

    /// Applies the options of the new plan to open connections, except those already announced to the peer.
    fn configure_connections(&mut self) {
        let keys: Vec<_> = self.conns.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            let config = match &mut conn.side {
                Side::Downstream { listener, options, .. } => {
                    let Some(at) = self.active.plan.listener(listener) else { continue };
                    let new = &self.active.plan.listeners[at].options;
                    if Arc::ptr_eq(options, new) || **options == **new {
                        continue;
                    }
                    *options = Arc::clone(new);
                    downstream_config(&self.config, new)
                }
                Side::Upstream { endpoint, .. } => {
                    let Some(endpoint) = self.endpoints.get(*endpoint) else { continue };
                    upstream_config(&self.config, &endpoint.cluster.options)
                }
            };
            conn.h2.configure(&config);
            self.set_conn_timer(key, true);
        }
    }

    /// Makes all chains, also those of earlier versions, use other copies of tables from now on.
    pub fn apply_swap(&mut self, swap: &Swap) {
        self.chains.iter().for_each(|chain| swap.apply(&mut chain.state.borrow_mut()));
    }

    /// Renames listeners (from, to), effective with the next plan.
    pub fn rename_listeners(&mut self, renamed: &[(String, String)]) {
        if renamed.is_empty() {
            return;
        }
        for conn in self.conns.values_mut() {
            if let Side::Downstream { listener, .. } = &mut conn.side
                && let Some((_, to)) = renamed.iter().find(|(from, _)| **from == **listener)
            {
                *listener = to.as_str().into();
            }
        }
        let clients = core::mem::take(&mut self.clients);
        for (name, n) in clients {
            let to = renamed.iter().find(|(from, _)| **from == *name).map(|(_, to)| to.as_str().into());
            *self.clients.entry(to.unwrap_or(name)).or_default() += n;
        }
    }

    /// Drains the clients of listeners that are gone.
    fn remove_listeners(&mut self, now: Time) {
        let plan = Arc::clone(&self.active.plan);
        self.drain_clients(now, |listener| plan.listener(listener).is_none());
    }

    /// Drains the client connections of all listeners whose name satisfies `is_gone`: sends GOAWAY, and closes each
    /// after its last call.
    fn drain_clients(&mut self, now: Time, is_gone: impl Fn(&str) -> bool) {
        let is_meant = |c: &Conn| matches!(&c.side, Side::Downstream { listener, .. } if is_gone(listener));
        let keys: Vec<_> = self.conns.iter().filter(|(_, c)| is_meant(c)).map(|(k, _)| k).collect();
        for key in keys {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.h2.go_away(now, ErrorCode::NoError);
            self.close_if_drained(now, key);
            self.after_change(key);
        }
    }

    /// The plan that applies to new calls.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.active.plan
    }

    /// Accepts a client of this listener. Close the connection if the result is None: the engine is stopping, or the
    /// listener or the worker ([`CONNECTIONS_MAX`]) has no room.
    pub fn handle_accept(&mut self, now: Time, listener: &str, peer: &str) -> Option<ConnId> {
        let wanted = self.active.plan.listener(listener).map(|at| &self.active.plan.listeners[at].options);
        let options = wanted.map(Arc::clone).unwrap_or_default();
        let n_clients = self.clients.get(listener).copied().unwrap_or(0);
        let is_full = self.n_downstream >= CONNECTIONS_MAX || n_clients >= options.connections_max as usize;
        if self.is_stopping || is_full {
            let reason = if self.is_stopping { "stopping" } else { "connections_max" };
            self.stats.refuse(reason, 1);
            return None;
        }
        self.clients.insert(listener.into(), n_clients + 1);
        self.n_downstream += 1;
        self.stats.downstream.open += 1;
        self.stats.downstream.total += 1;
        let h2 = Connection::new(downstream_config(&self.config, &options), now);
        let side = Side::Downstream { listener: listener.into(), peer: peer.into(), options };
        let key = self.conns.insert(Conn::new(now, h2, side));
        self.after_change(key);
        Some(key.into())
    }

    /// The driver starts to make a connection of [`Action::Connect`]. The connect timeout starts here and not with the
    /// action: the pass that needs the connection may have taken longer.
    pub fn handle_connecting(&mut self, now: Time, conn: ConnId) {
        self.begin_connect_timeout(now, conn.into());
    }

    /// A connection of [`Action::Connect`] is up: its preface can be written.
    pub fn handle_connected(&mut self, _now: Time, conn: ConnId) {
        self.after_change(conn.into());
    }

    /// Reads the bytes that have arrived on a connection, all of them, and handles their events. The start of an
    /// incomplete frame is kept until the rest arrives.
    pub fn handle_input(&mut self, now: Time, conn: ConnId, input: &[u8]) {
        self.now = now;
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
        self.run_pending(now);
    }

    /// The connection is closed: its calls end.
    pub fn handle_closed(&mut self, now: Time, conn: ConnId, reason: CloseReason) {
        self.drop_conn(now, conn.into(), reason.why_down());
        self.run_pending(now);
    }

    /// The driver has released a closing connection.
    pub fn handle_released(&mut self, now: Time, conn: ConnId) {
        self.drop_conn(now, conn.into(), None);
        self.run_pending(now);
    }

    /// The endpoint no longer has the address of this connection: it finishes its calls and takes no further ones.
    pub fn handle_moved(&mut self, now: Time, conn: ConnId) {
        self.drain_upstream(now, conn.into());
        self.run_pending(now);
    }

    /// The bytes to write to a connection; empty if there are none or the connection is gone.
    pub fn output(&self, conn: ConnId) -> &[u8] {
        self.conns.get(conn.into()).map_or(&[], |c| c.h2.output())
    }

    /// Removes the first `n` bytes of a connection's output, which the driver has written.
    pub fn advance_output(&mut self, conn: ConnId, n: usize) {
        let key = conn.into();
        let Some(state) = self.conns.get_mut(key) else { return };
        state.h2.advance_output(n);
        if !state.waiting.is_empty() && state.h2.output().len() <= OUTPUT_BYTES_LOW {
            for call in core::mem::take(&mut state.waiting) {
                self.grant_credit(call);
            }
        }
    }

    /// Returns the next connection with new output. Write [`Engine::output`], and again whenever the connection
    /// accepts more.
    pub fn poll_output(&mut self) -> Option<ConnId> {
        while let Some(key) = self.dirty.pop_front() {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.is_dirty = false;
                return Some(key.into());
            }
        }
        None
    }

    /// The next task for the driver, if any.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The rows for sinks; take them with [`core::mem::swap`] or clear them.
    pub fn rows(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Counts rows that were dropped because their writer is behind.
    pub fn note_rows_lost(&mut self, n: usize) {
        self.stats.rows_lost += n as u64;
    }

    /// The time of the next call of [`Engine::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        let mut due = core::mem::take(&mut self.due);
        self.timers.expire(now, &mut due);
        for timer in due.drain(..) {
            self.handle_timer(now, timer);
        }
        self.due = due;
        self.run_pending(now);
    }

    /// Drains a listener: its clients get a GOAWAY and finish their open calls.
    pub fn drain_listener(&mut self, now: Time, name: &str) {
        self.drain_clients(now, |listener| listener == name);
    }

    /// Starts to close: each connection finishes its open calls and closes, and no further connection is accepted. It
    /// is done when [`Engine::clients_open`] is 0.
    pub fn close_gracefully(&mut self, now: Time) {
        self.is_stopping = true;
        self.drain_clients(now, |_| true);
    }

    /// Ends what [`Engine::close_gracefully`] has left: calls with UNAVAILABLE, through their chains, and connections
    /// after their output. Returns the number of these calls.
    pub fn cut(&mut self, now: Time) -> usize {
        let mut n_cut = 0;
        // A call that takes effect once leaves a detached call behind, so two rounds are needed.
        for _ in 0..2 {
            let calls = self.calls.iter().filter(|(_, call)| !call.is_try()).map(|(key, _)| key);
            for key in calls.collect::<Vec<CallKey>>() {
                let is_clients = |call: &Call| !call.is_mirror && !call.is_detached;
                n_cut += usize::from(self.calls.get(key).is_some_and(is_clients));
                self.end_here(now, key, Status::Unavailable, "the node has stopped");
            }
        }
        let conns: Vec<ConnKey> =
            self.conns.iter().filter(|(_, c)| !c.is_closing).map(|(key, _)| key).collect();
        conns.into_iter().for_each(|key| self.close(now, key));
        n_cut
    }

    /// The number of open downstream connections.
    pub fn clients_open(&self) -> usize {
        self.n_downstream
    }

    /// The number of open calls.
    pub fn calls_open(&self) -> usize {
        self.calls.len() - self.n_tries
    }

    /// The number of open connections, downstream and upstream.
    pub fn connections_open(&self) -> usize {
        self.conns.len()
    }

    /// A copy of the counters.
    pub fn stats(&mut self) -> Stats {
        self.retire();
        let mut stats = self.stats.clone();
        stats.calls_open = self.calls_open() as u64;
        stats.chains = self.stats_of_chains();
        stats.filters = self.filter_stats();
        stats.endpoints = self.endpoint_stats();
        stats.call_queues = self.call_queue_stats();
        stats.slow_passes = self.pass_scratch.slow.clone();
        for (_, conn) in self.conns.iter() {
            conn.h2.counters().iter().for_each(|(v, n)| stats.refuse(v.name(), u64::from(n)));
        }
        stats
    }

    /// Counters of elements of retired versions: (chain, [(instance, counters)]).
    pub fn retired(&self) -> &[(String, Vec<(String, Counters)>)] {
        &self.retired
    }

    /// Handles a timer that has fired. Ignores the EVERY and TIMEOUT timers of earlier plans.
    fn handle_timer(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Conn(key) => self.conn_timeout(now, key),
            Timer::Connect(key) => self.connect_timed_out(now, key),
            Timer::Probe(endpoint) => self.probe(now, endpoint),
            Timer::Deadline(call) => self.deadline_passed(now, call),
            Timer::Total(call) => self.total_passed(now, call),
            Timer::Turn(call) => self.turn_timeout(now, call),
            Timer::Hedge(call) => self.hedge_passed(now, call),
            Timer::HeldRequest(call) => self.flush_request(now, call),
            Timer::HeldResponse(call) => self.flush_response(now, call),
            Timer::Every { plan, chain, nth, due } if plan == self.active.id => {
                self.run_every(now, (chain, nth), due);
            }
            Timer::Expire { plan, chain, nth } if plan == self.active.id => {
                self.run_timeouts(now, chain, nth)
            }
            Timer::Every { .. } | Timer::Expire { .. } => {}
            Timer::Flush(key) => self.flush(key),
            Timer::CallQueue(id) => self.call_queue_timeout(now, id),
            Timer::Waiting(endpoint) => self.watch_waiting(now, endpoint),
            Timer::Linger { conn, left } => self.linger_timeout(now, conn, left),
            Timer::Housekeeping => {
                self.housekeeping(now);
                self.timers.set(now + HOUSEKEEPING_EVERY, Timer::Housekeeping);
            }
        }
    }

    /// Replaces a call's id in `rand()` where there is no call.
    fn no_call(&self) -> u64 {
        u64::MAX - self.config.worker as u64
    }

    /// Runs the n-th EVERY of a chain, which was due at a time, and sets its next timer.
    fn run_every(&mut self, now: Time, (chain, nth): (usize, usize), due: Time) {
        let active = Rc::clone(&self.active);
        let active_chain = &active.chains[chain];
        let (interval, segment) = &active_chain.chain.segments.every[nth];
        let pass_inputs = PassInputs::of_node(
            now,
            rand_base(self.config.seed, self.no_call(), 0, now.0 as u64, segment.event),
        );
        // EVERY reads no message, so nothing can be malformed. It uses no call's row, but the row's size is checked.
        let mut row = vec![0; active_chain.chain.program.call_words()];
        let _ = self.pass_scratch.run(active_chain, segment, &pass_inputs, &mut row, usize::MAX);
        self.take_rows(now, active_chain);
        let due = due.next_after(now, *interval);
        self.timers.set(due, Timer::Every { plan: active.id, chain, nth, due });
    }

    /// Runs the n-th TIMEOUT or EVICT of a chain for rows that have left their table, and sets its next timer.
    fn run_timeouts(&mut self, now: Time, chain: usize, nth: usize) {
        let active = Rc::clone(&self.active);
        let active_chain = &active.chains[chain];
        let (departs, segment) = &active_chain.chain.segments.timeouts[nth];
        let table = Arc::clone(&active_chain.state.borrow().tables[usize::from(departs.table.0)]);
        let mut rows = core::mem::take(&mut self.expired_rows);
        let mut call = vec![0; active_chain.chain.program.call_words()];
        let is_more = expiry::run_removed_rows((&table, departs.why), now, &mut rows, |at, row| {
            let rand = rand_base(self.config.seed, self.no_call(), at, now.0 as u64, segment.event);
            let pass_inputs = PassInputs { expired_row: row, ..PassInputs::of_node(now, rand) };
            // As EVERY: there is no message.
            let _ = self.pass_scratch.run(active_chain, segment, &pass_inputs, &mut call, usize::MAX);
            self.take_rows(now, active_chain);
        });
        self.expired_rows = rows;
        let next = expiry::next_removal_interval(departs.why, is_more);
        self.timers.set(now + next, Timer::Expire { plan: active.id, chain, nth });
    }

    /// Takes the sink rows of the last pass.
    pub(crate) fn take_rows(&mut self, now: Time, active: &ActiveChain) {
        if !self.pass_scratch.outcome.rows.is_empty() {
            let lost = self.batch.take(now, &active.chain.program, &self.pass_scratch.outcome);
            self.stats.rows_lost += lost as u64;
        }
    }

    /// Sets the timers of the current plan: EVERY, and the checks for TIMEOUT and EVICT.
    fn set_every_timers(&mut self, now: Time) {
        let active = Rc::clone(&self.active);
        for (chain, active_chain) in active.chains.iter().enumerate() {
            for (nth, (interval, _)) in active_chain.chain.segments.every.iter().enumerate() {
                let due = now + *interval;
                self.timers.set(due, Timer::Every { plan: active.id, chain, nth, due });
            }
            for (nth, (departs, _)) in active_chain.chain.segments.timeouts.iter().enumerate() {
                self.timers.set(
                    now + expiry::removal_interval(departs.why),
                    Timer::Expire { plan: active.id, chain, nth },
                );
            }
        }
    }

    /// Runs periodic tasks that are not urgent: sweeps tables, checks memory limits, and retires old plans and pools.
    fn housekeeping(&mut self, now: Time) {
        self.sweep_tables(now);
        self.watch_memory(now);
        self.retire();
        self.retire_pools(now);
    }

    /// Removes expired rows from the tables of all chains, a few rows of each per call.
    fn sweep_tables(&self, now: Time) {
        // The parts of a chain have the same tables.
        for active in self.active.chains.iter().filter(|active| active.chain.part == 0) {
            expiry::sweep(now, &active.chain.program, &active.state.borrow(), self.config.worker == 0);
        }
    }
}

/// Whether the options of a listener or a cluster differ in the new plan, or its name is gone.
fn has_other_options(old: &Plan, new: &Plan) -> bool {
    let mut listeners = old.listeners.iter().map(|of| (&of.options, new.listener(&of.name)));
    let mut clusters = old.clusters.iter().map(|of| (&of.options, new.cluster(&of.name)));
    listeners.any(|(options, at)| at.is_none_or(|at| new.listeners[at].options != *options))
        || clusters.any(|(options, at)| at.is_none_or(|at| new.clusters[at].options != *options))
}

/// Returns the HTTP/2 limits of connections from clients of a listener.
fn downstream_config(config: &Config, options: &ListenerOptions) -> http2::Config {
    http2::Config {
        max_concurrent_streams: options.streams_max,
        max_header_list_size: options.header_size_max,
        keepalive: Some(Keepalive {
            interval: options.keepalive_time,
            timeout: options.keepalive_timeout,
            without_streams: true,
        }),
        resets_max: options.reset_budget,
        resets_per_s: options.reset_budget_per_s,
        ..config.downstream.clone()
    }
}

/// Returns the HTTP/2 limits of connections to servers of a cluster.
pub(crate) fn upstream_config(config: &Config, options: &ClusterOptions) -> http2::Config {
    http2::Config {
        max_concurrent_streams: options.streams_max,
        max_header_list_size: options.header_size_max,
        keepalive: Some(Keepalive {
            interval: options.keepalive_time,
            timeout: options.keepalive_timeout,
            // Common gRPC servers close connections that send needless PINGs: see `http2::Config::client`.
            without_streams: false,
        }),
        resets_max: options.reset_budget,
        resets_per_s: options.reset_budget_per_s,
        ..config.upstream.clone()
    }
}

impl Connections {
    /// Whether no connection is open.
    pub fn is_idle(&self) -> bool {
        self.open == 0
    }
}
