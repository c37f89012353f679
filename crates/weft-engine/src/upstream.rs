//! Upstream: finds a server for a call, and handles the loss of the server or of the connection to it.

use crate::call::{Call, CallKey, Phase, StreamRef};
use crate::conn::{Conn, ConnKey, Life, Side};
use crate::end::End;
use crate::engine::{Action, Engine, Timer, upstream_config};
use crate::filter::is_over;
use crate::headers::to_forward;
use crate::plan::Cluster;
use crate::pool::{DownReason, Endpoint, EndpointKey, Pool, WAITING_TIME_MAX, WATCH_EVERY};
use crate::stats::EndpointStats;
use crate::waiting::{WAITING_MAX, Waiter};
use std::rc::Rc;
use std::sync::Arc;
use weft_core::{Interval, Status, Time, hash};
use weft_proto::session::http2::limits::HEADER_BLOCK_BYTES_MAX;
use weft_proto::session::http2::{Connection, ErrorCode, StreamId, Violation};

/// Connections that may drain before a call has found a stream on one.
const DRAINS_MAX: u32 = 4;

impl Engine {
    /// Finds a stream to a server, or makes the call wait for one.
    pub(crate) fn dispatch(&mut self, now: Time, key: CallKey) {
        let call = self.calls.get_mut(key).expect("the caller has looked");
        if let Some(filter) = call.chain.as_ref().and_then(|chain| chain.next.clone()) {
            return self.enter_filter(now, key, filter);
        }
        call.phase = Phase::AwaitUpstream;
        let of_cluster = call.pool.call_queue.get();
        let queues = [self.queue_of_listener(key), of_cluster];
        if self.needs_length_probe(key, queues) {
            return;
        }
        if !queues.into_iter().flatten().all(|id| self.enter_call_queue(now, key, id)) {
            return;
        }
        let call = self.calls.get_mut(key).expect("it has not ended");
        let choice = call.choice.as_deref();
        let conns = &self.conns;
        let has_place = |endpoint: &Endpoint| {
            let has_stream = |conn| conns.get(conn).is_some_and(|conn| conn.h2.available_streams() > 0);
            let mut ready = endpoint.ready.iter().copied();
            endpoint.ready.is_empty() || ready.any(has_stream) || endpoint.may_connect(now)
        };
        let chosen =
            call.endpoint.or_else(|| call.pool.pick(&self.endpoints, now, call.id, choice, has_place));
        let can_be_tried = |e: &EndpointKey| {
            let over = choice.and_then(|choice| choice.over);
            self.endpoints.get(*e).is_some_and(|e| !e.is_skipped(now) && is_over(over, &e.address))
        };
        let Some(chosen) = chosen.filter(can_be_tried) else {
            let pool = Rc::clone(&call.pool);
            let text = self.describe_no_endpoint(now, &pool, chosen);
            return self.end_here(now, key, Status::Unavailable, &text);
        };
        call.endpoint = Some(chosen);
        if !self.open_upstream(now, key, chosen) {
            self.await_upstream(now, key, chosen);
        }
    }

    /// Says why a call finds no endpoint in a pool, or not the one that it requires: the skipped endpoint that is
    /// tried next.
    fn describe_no_endpoint(&self, now: Time, pool: &Pool, of: Option<EndpointKey>) -> String {
        let all = of.as_slice().iter().chain(&pool.members).filter_map(|key| self.endpoints.get(*key));
        let all = all.take(of.map_or(usize::MAX, |_| 1));
        let next = all.filter(|endpoint| endpoint.is_skipped(now)).min_by_key(|endpoint| endpoint.retry_at());
        let cluster = &pool.cluster.name;
        match next.and_then(|endpoint| Some((endpoint, endpoint.why_down()?))) {
            None => format!("no endpoint of cluster `{cluster}` can be reached"),
            Some((next, why)) => format!("cluster `{cluster}`: {why}; {}", next.next_try(now)),
        }
    }

    /// Opens a stream on a connection with room, and sends the headers and held data.
    fn open_upstream(&mut self, now: Time, key: CallKey, endpoint: EndpointKey) -> bool {
        let Some(call) = self.calls.get_mut(key) else { return false };
        let Some(endpoint) = self.endpoints.get_mut(endpoint) else { return false };
        for conn_key in &endpoint.ready {
            let Some(conn) = self.conns.get_mut(*conn_key) else { continue };
            let Some(stream) = conn.h2.open() else { continue };
            let end = call.request.is_empty();
            let sent_at = conn.h2.n_sent() + conn.h2.output().len() as u64;
            if conn.h2.send_headers(stream, &to_forward(&call.request_headers), end).is_err() {
                // The server does not accept a header list of this size: waiting would not help.
                conn.h2.reset(stream, ErrorCode::Cancel);
                let text = "the request's headers are larger than the server permits";
                self.end_here(now, key, Status::ResourceExhausted, text);
                return true;
            }
            conn.streams.insert(stream, key);
            call.response.deframer.set_limit(endpoint.cluster.options.message_size_max);
            call.up = Some(StreamRef { conn: *conn_key, stream });
            call.phase = Phase::Open;
            call.request.is_end_queued |= end;
            endpoint.active += 1;
            endpoint.calls += 1;
            let conn_key = *conn_key;
            if !call.is_resent {
                call.sent = Some(self.spare_bodies.begin(sent_at));
            }
            if call.request.held.is_empty() {
                self.after_change(conn_key);
            } else {
                self.flush_request(now, key);
            }
            return true;
        }
        false
    }

    /// Makes a call wait for a stream to an endpoint. If too many wait, ends the last call of the client with the
    /// most, or this one.
    fn await_upstream(&mut self, now: Time, key: CallKey, at: EndpointKey) {
        let client = self.root_of(key).down().map(|down| down.conn);
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        if endpoint.n_gone > endpoint.waiting.len() / 2 {
            let calls = &self.calls;
            endpoint.waiting.retain(|waiter| calls.get(waiter.call).is_some_and(|call| call.waits_at(at)));
            endpoint.n_gone = 0;
        }
        let mut displaced = None;
        if endpoint.waiting.len() >= WAITING_MAX {
            displaced = endpoint.waiting.displace(client).map(|waiter| waiter.call).or(Some(key));
        }
        if displaced != Some(key) {
            endpoint.waiting.push(Waiter::new(key, client, now));
            let timers = &mut self.timers;
            endpoint.watch.get_or_insert_with(|| timers.set(now + WATCH_EVERY, Timer::Waiting(at)));
            self.connect(now, at);
        }
        if let Some(displaced) = displaced {
            self.stats.refuse("waiting_max", 1);
            self.end_without_stream(now, displaced, at, &format!("{WAITING_MAX} calls wait for one already"));
        }
    }

    /// Ends a call that has found no stream to its endpoint.
    fn end_without_stream(&mut self, now: Time, key: CallKey, at: EndpointKey, why: &str) {
        let Some(endpoint) = self.endpoints.get(at) else { return };
        if !self.calls.get(key).is_some_and(|call| call.waits_at(at)) {
            return;
        }
        let (name, cluster, n) = (&endpoint.name, &endpoint.cluster.name, endpoint.ready.len());
        let places = self.endpoint_positions(endpoint);
        let text = format!(
            "cluster `{cluster}` is full: {} of {places} streams to {name} are taken, on {n} connections; {why}",
            endpoint.active
        );
        self.end_here(now, key, Status::Unavailable, &text);
    }

    /// Checks calls that wait, or waited, for a stream to an endpoint. Ends calls that have waited too long, and adds
    /// connections where streams are long.
    pub(crate) fn watch_waiting(&mut self, now: Time, at: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        endpoint.watch = None;
        // Without a ready connection, the connect timeout bounds the wait.
        if !endpoint.ready.is_empty() {
            let late = endpoint.waiting.take_older(now - WAITING_TIME_MAX);
            for call in late.into_iter().map(|waiter| waiter.call) {
                if self.calls.get(call).is_some_and(|call| call.waits_at(at)) {
                    self.stats.refuse("waiting_time_max", 1);
                    self.end_without_stream(now, call, at, &format!("none came free in {WAITING_TIME_MAX}"));
                }
            }
        }
        let calls = &self.calls;
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        endpoint.waiting.retain(|waiter| calls.get(waiter.call).is_some_and(|call| call.waits_at(at)));
        endpoint.n_gone = 0;
        let Some(oldest) = endpoint.waiting.oldest() else { return endpoint.stop_growing() };
        if oldest + WATCH_EVERY <= now {
            endpoint.grow();
        }
        let due = (now + WATCH_EVERY).min((oldest + WAITING_TIME_MAX).max(now + Interval(1)));
        endpoint.watch = Some(self.timers.set(due, Timer::Waiting(at)));
        self.connect(now, at);
    }

    /// The streams of the connections to an endpoint, used and free.
    fn endpoint_positions(&self, endpoint: &Endpoint) -> u64 {
        let conns = endpoint.ready.iter().filter_map(|conn| self.conns.get(*conn));
        conns.map(|conn| conn.h2.active_streams() as u64 + u64::from(conn.h2.available_streams())).sum()
    }

    /// Gives the free streams of an endpoint to waiting calls. If they do not suffice, makes another connection.
    pub(crate) fn serve_waiting(&mut self, now: Time, at: EndpointKey) {
        while let Some(waiter) = self.endpoints.get_mut(at).and_then(|e| e.waiting.pop()) {
            if !self.calls.get(waiter.call).is_some_and(|call| call.waits_at(at)) {
                continue;
            }
            if !self.open_upstream(now, waiter.call, at) {
                if let Some(endpoint) = self.endpoints.get_mut(at) {
                    endpoint.waiting.put_back(waiter);
                }
                return self.connect(now, at);
            }
        }
    }

    /// Moves the waiting calls of an endpoint to others, each endpoint once, because its connection failed, is gone
    /// or drains. A draining one may be replaced, but not endlessly. Calls that have tried all endpoints end.
    pub(crate) fn reassign_waiting(&mut self, now: Time, at: EndpointKey, drains: bool) {
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        if !endpoint.ready.is_empty() || endpoint.connecting.is_some() {
            return;
        }
        let why = endpoint.why_down().unwrap_or_else(|| format!("cannot connect to {}", endpoint.name));
        let text = format!("{why}; {}", endpoint.next_try(now));
        for key in endpoint.waiting.drain().into_iter().map(|waiter| waiter.call) {
            let Some(call) = self.calls.get_mut(key).filter(|call| call.waits_at(at)) else { continue };
            call.attempts += 1;
            let n_members = call.pool.members.len() as u32;
            let attempts_max = if drains { n_members + DRAINS_MAX } else { n_members };
            if call.attempts >= attempts_max || (call.is_redirected && !drains) {
                self.end_here(now, key, Status::Unavailable, &text);
            } else {
                call.endpoint = call.endpoint.filter(|_| call.is_redirected);
                self.dispatch(now, key);
            }
        }
    }

    /// Starts a connection to an endpoint, unless one is in progress or it has enough.
    fn connect(&mut self, now: Time, at: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(at).filter(|e| e.may_connect(now)) else { return };
        let h2 = Connection::new(upstream_config(&self.config, &endpoint.cluster.options), now);
        let key = self.conns.insert(Conn::new(now, h2, Side::Upstream { endpoint: at, is_ready: false }));
        endpoint.connecting = Some(key);
        self.actions.push_back(Action::Connect { conn: key.into(), address: endpoint.address.clone() });
    }

    /// Records a failed connection to an endpoint: the endpoint is skipped for a while, and probed after that.
    pub(crate) fn record_failure(&mut self, now: Time, at: EndpointKey, why: DownReason) {
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        let due = endpoint.record_failure(now, why);
        let timer = self.timers.set(due, Timer::Probe(at));
        if let Some(before) = endpoint.probe.replace(timer) {
            self.timers.cancel(before);
        }
    }

    /// Probes an endpoint: makes a connection without a call.
    pub(crate) fn probe(&mut self, now: Time, at: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        endpoint.probe = None;
        if endpoint.is_in_doubt() && !self.is_stopping {
            self.connect(now, at);
        }
    }

    /// Closes a connection that was not ready within its cluster's timeout.
    pub(crate) fn connect_timed_out(&mut self, now: Time, key: ConnKey) {
        let Some(Conn { side: Side::Upstream { endpoint, is_ready: false }, .. }) = self.conns.get(key)
        else {
            return;
        };
        let limit = self.endpoints.get(*endpoint).map(|endpoint| endpoint.cluster.options.connect_timeout);
        self.actions.push_back(Action::Abort { conn: key.into() });
        self.drop_conn(now, key, limit.map(DownReason::TimedOut));
    }

    /// Starts the connect timeout of a connection.
    pub(crate) fn begin_connect_timeout(&mut self, now: Time, key: ConnKey) {
        let Some(Conn { side: Side::Upstream { endpoint, .. }, .. }) = self.conns.get(key) else { return };
        let Some(endpoint) = self.endpoints.get(*endpoint) else { return };
        self.timers.set(now + endpoint.cluster.options.connect_timeout, Timer::Connect(key));
    }

    /// Makes a connection available to calls, because the server's first settings have arrived. Before that the
    /// server would refuse streams beyond its limit, and a listener that is not an HTTP/2 server would take calls
    /// with it.
    pub(crate) fn upstream_ready(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Side::Upstream { endpoint, is_ready } = &mut conn.side else { return };
        if core::mem::replace(is_ready, true) {
            return;
        }
        // Its life starts; it turns idle with the next change.
        conn.life = Life { idle_since: None, ..Life::new(self.now) };
        self.stats.upstream.open += 1;
        self.stats.upstream.total += 1;
        if let Some(endpoint) = self.endpoints.get_mut(*endpoint) {
            endpoint.record_connected(key);
        }
    }

    /// Stops opening streams on a connection that the server drains; resends the calls above `last_stream`, which it
    /// has not processed.
    pub(crate) fn upstream_drains(&mut self, now: Time, key: ConnKey, last_stream: StreamId) {
        let Some(at) = self.upstream_of(key) else { return };
        if let Some(endpoint) = self.endpoints.get_mut(at) {
            endpoint.forget(key);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut untouched: Vec<_> = conn.streams.extract_if(|stream, _| *stream > last_stream).collect();
        untouched.sort_unstable_by_key(|(stream, _)| *stream);
        for (_, call) in untouched {
            self.server_refused(now, call);
        }
        self.close_if_drained(now, key);
        self.reassign_waiting(now, at, true);
    }

    /// Resends a call that the server has not processed (RFC 9113 section 8.7). If that is not possible, the client
    /// gets the same signal, so that its library may retry, as without this node.
    fn server_refused(&mut self, now: Time, key: CallKey) {
        self.forget_upstream(now, key);
        if !self.resend(now, key) && !self.has_answer(key) {
            self.end_call(now, key, End::Refused);
        }
    }

    /// Handles a reset of the server's stream: resends the call or ends it.
    pub(crate) fn server_reset(&mut self, now: Time, key: CallKey, code: ErrorCode) {
        if code == ErrorCode::RefusedStream {
            return self.server_refused(now, key);
        }
        self.forget_upstream(now, key);
        if self.has_answer(key) {
            return;
        }
        // gRPC over HTTP/2, "Errors".
        let status = match code {
            ErrorCode::Cancel => Status::Cancelled,
            ErrorCode::EnhanceYourCalm => Status::ResourceExhausted,
            ErrorCode::InadequateSecurity => Status::PermissionDenied,
            _ => Status::Internal,
        };
        self.end_here(now, key, status, &format!("the server reset the stream: {code:?}"));
    }

    /// Ends a call whose server stream this node has reset for a violation.
    pub(crate) fn server_at_fault(&mut self, now: Time, key: CallKey, fault: Violation) {
        let server = self.server_of(key);
        self.forget_upstream(now, key);
        if self.has_answer(key) {
            return;
        }
        let (status, what) = self.describe_fault(fault);
        self.end_here(now, key, status, &format!("the stream to {server} was ended here: {what}"));
    }

    /// Handles the loss of a call's server connection, or its closing for a violation: resends the call or ends it.
    pub(crate) fn server_gone(&mut self, now: Time, key: CallKey, fault: Option<Violation>) {
        let (server, is_unsent) = (self.server_of(key), self.is_unsent(key));
        self.forget_upstream(now, key);
        if self.has_answer(key) || (is_unsent && self.resend(now, key)) {
            return;
        }
        let (status, text) = match fault.map(|fault| self.describe_fault(fault)) {
            Some((status, what)) => (status, format!("the connection to {server} was ended here: {what}")),
            None => (Status::Unavailable, format!("the connection to {server} was lost")),
        };
        self.end_here(now, key, status, &text);
    }

    /// Returns the status and message of calls after this violation of a server.
    fn describe_fault(&self, fault: Violation) -> (Status, String) {
        let config = &self.config.upstream;
        match fault {
            Violation::HeaderList => {
                let max = config.max_header_list_size;
                (Status::ResourceExhausted, format!("the server sent a header list of more than {max} bytes"))
            }
            Violation::HeaderBlock => {
                let max = config.max_header_list_size.max(HEADER_BLOCK_BYTES_MAX);
                (
                    Status::ResourceExhausted,
                    format!("the server sent a header block of more than {max} bytes"),
                )
            }
            Violation::WindowStall => {
                (Status::Unavailable, format!("the server took no data for {}", config.stall_timeout))
            }
            Violation::KeepaliveTimeout => {
                (Status::Unavailable, "the server did not answer a PING in time".to_owned())
            }
            _ => (Status::Internal, format!("the server broke a rule of HTTP/2: {}", fault.description())),
        }
    }

    /// The server of a call, for messages.
    fn server_of(&self, key: CallKey) -> Rc<str> {
        let endpoint = self.calls.get(key).and_then(|call| self.endpoints.get(call.endpoint?));
        endpoint.map_or_else(|| "the server".into(), |endpoint| Rc::clone(&endpoint.name))
    }

    /// Forgets the upstream stream of a call, which has ended by itself.
    fn forget_upstream(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(up) = call.up.take() else { return };
        let owed = core::mem::take(&mut call.response.owed);
        let endpoint = call.endpoint;
        self.leave_upstream(now, up, endpoint, owed);
    }

    /// Releases the upstream stream of a call, which needs it no longer; `owed` bytes of it were not credited yet.
    pub(crate) fn leave_upstream(&mut self, now: Time, up: StreamRef, at: Option<EndpointKey>, owed: u32) {
        if let Some(endpoint) = at.and_then(|e| self.endpoints.get_mut(e)) {
            endpoint.active -= 1;
            endpoint.n_left += 1;
        }
        if let Some(conn) = self.conns.get_mut(up.conn) {
            conn.streams.remove(&up.stream);
            // Also if the stream is gone: its data counts for the connection's window.
            conn.h2.release(up.stream, owed);
            // Unless it has ended. The queued part of an answered request is useless now.
            conn.h2.reset(up.stream, ErrorCode::Cancel);
            self.after_change(up.conn);
            self.close_if_drained(now, up.conn);
        }
        if let Some(at) = at {
            self.serve_waiting(now, at);
            self.shrink(now, up.conn, at);
        }
    }

    /// Drains a connection that was added for long streams, if it has none any more and no call waits.
    fn shrink(&mut self, now: Time, key: ConnKey, at: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(at) else { return };
        let is_idle = self.conns.get(key).is_some_and(|conn| conn.streams.is_empty());
        if is_idle && endpoint.has_grown() && endpoint.waiting.is_empty() && endpoint.ready.contains(&key) {
            endpoint.forget(key);
            endpoint.stop_growing();
            self.drain_connection(now, key);
        }
    }

    /// Drains a connection to a server: it takes no further calls, and closes after its last one.
    pub(crate) fn drain_upstream(&mut self, now: Time, key: ConnKey) {
        let Some(at) = self.upstream_of(key) else { return };
        if let Some(endpoint) = self.endpoints.get_mut(at) {
            endpoint.forget(key);
        }
        self.drain_connection(now, key);
        self.reassign_waiting(now, at, true);
    }

    /// Closes a connection to a server in good order.
    fn drain_connection(&mut self, now: Time, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.h2.go_away(now, ErrorCode::NoError);
        }
        self.close_if_drained(now, key);
        self.after_change(key);
    }

    /// Returns the endpoint of a connection; None for a client's connection.
    pub(crate) fn upstream_of(&self, key: ConnKey) -> Option<EndpointKey> {
        match self.conns.get(key)?.side {
            Side::Upstream { endpoint, .. } => Some(endpoint),
            Side::Downstream { .. } => None,
        }
    }

    // ---- updates ----

    /// Creates the pool of a cluster; reuses existing endpoints.
    pub(crate) fn pool_for(&mut self, cluster: &Arc<Cluster>) -> Rc<Pool> {
        let mut members = Vec::new();
        for address in &cluster.endpoints {
            let is_it = |e: &Endpoint| e.cluster.name == cluster.name && e.address == *address;
            let known = self.endpoints.iter().find(|(_, e)| is_it(e)).map(|(key, _)| key);
            let key = known.unwrap_or_else(|| self.endpoints.insert(Endpoint::new(cluster, address)));
            if let Some(endpoint) = self.endpoints.get_mut(key) {
                endpoint.cluster = Arc::clone(cluster);
            }
            members.push(key);
        }
        // Continues the round robin of the earlier pool. Otherwise each worker and node starts with another endpoint.
        let before = self.active.pools.iter().find(|pool| pool.cluster.name == cluster.name);
        let draw = hash::stream(self.config.seed, &cluster.name, 0);
        let first = || (draw as u32 as usize).wrapping_add(self.config.worker);
        let turn = before.map_or_else(first, |pool| pool.turn());
        let pool = Rc::new(Pool::new(Arc::clone(cluster), members, turn, draw));
        self.pools.push(Rc::clone(&pool));
        pool
    }

    /// Drops pools of old versions without calls, and the endpoints that only they had.
    pub(crate) fn retire_pools(&mut self, now: Time) {
        let active = Rc::clone(&self.active);
        let is_live = |pool: &Rc<Pool>| active.pools.iter().any(|p| Rc::ptr_eq(p, pool));
        let n_pools = self.pools.len();
        self.pools.retain(|pool| is_live(pool) || Rc::strong_count(pool) > 1);
        if self.pools.len() == n_pools {
            return;
        }
        let keys: Vec<_> = self.endpoints.iter().map(|(key, _)| key).collect();
        for key in keys {
            if !self.pools.iter().any(|pool| pool.members.contains(&key)) {
                self.retire_endpoint(now, key);
            }
        }
    }

    /// Removes an endpoint of an old plan: cancels its timers and drains its connections.
    fn retire_endpoint(&mut self, now: Time, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.remove(key) else { return };
        if let Some(conn) = endpoint.connecting {
            self.abort(now, conn);
        }
        [endpoint.watch, endpoint.probe].into_iter().flatten().for_each(|timer| self.timers.cancel(timer));
        for conn in endpoint.ready {
            self.drain_connection(now, conn);
        }
    }

    /// Returns the counters of all endpoints of the current plan.
    pub(crate) fn endpoint_stats(&self) -> Vec<EndpointStats> {
        let of_pool = |pool: &Rc<Pool>| {
            let members = pool.members.iter().filter_map(|key| self.endpoints.get(*key));
            let stats = members.map(|e| EndpointStats {
                cluster: pool.cluster.name.clone(),
                address: e.name.to_string(),
                active: e.active,
                places: self.endpoint_positions(e),
                connections: e.ready.len() as u64,
                waiting: e.n_waiting(),
                calls: e.calls,
                connect_failures: e.connect_failures,
                down: e.why_down(),
            });
            stats.collect::<Vec<_>>()
        };
        self.active.pools.iter().flat_map(of_pool).collect()
    }
}

impl Call {
    /// Whether it waits for a stream to this endpoint.
    fn waits_at(&self, endpoint: EndpointKey) -> bool {
        self.phase == Phase::AwaitUpstream && self.endpoint == Some(endpoint) && !self.is_ending
    }
}
