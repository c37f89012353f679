//! Drives HTTP/2 connections: handles the events of their frames, their end, and the flow-control credit of senders.

use crate::call::{Call, CallKey, Caller, StreamRef};
use crate::conn::{Conn, ConnKey, LifeEnd, LifeLimits, OUTPUT_BYTES_HIGH, Side};
use crate::engine::{Action, Engine, Timer};
use crate::filter::FilteredCall;
use crate::pool::{DownReason, EndpointKey};
use crate::slab::Slab;
use weft_core::{Interval, Status, Time, hash};
use weft_proto::session::http2::{ConnectionError, ErrorCode, Event, ResetBy, Violation};

/// A closing connection is dropped if its peer has read nothing for this time.
const LINGER_TIME: Interval = Interval::from_secs(1);
/// The longest time that a PING answer waits for other output.
const PONG_DELAY_MAX: Interval = Interval::from_millis(1);

impl Engine {
    /// Reads whole frames from `input` and handles their events; returns the number of bytes read.
    pub(crate) fn take_input(&mut self, now: Time, key: ConnKey, input: &[u8]) -> usize {
        let mut taken = 0;
        // Continues after all bytes are taken: one frame can make several events.
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
                // The connection counts its peer's violations.
                Err(ConnectionError { violation }) => {
                    self.close_for(now, key, violation);
                    return input.len();
                }
            }
        }
        taken
    }

    /// Handles an HTTP/2 event: passes it to the call of its stream, or begins a call.
    fn handle_event(&mut self, now: Time, key: ConnKey, event: Event<'_>) {
        let Some(conn) = self.conns.get(key) else { return };
        let is_downstream = conn.is_downstream();
        let call_of = |stream| conn.streams.get(&stream).copied();
        match event {
            Event::Headers { stream, headers, end_stream, trailers } => {
                match (is_downstream, call_of(stream)) {
                    (true, None) if !trailers => self.begin_call(now, key, stream, headers, end_stream),
                    (true, Some(call)) => self.request_ended(now, call),
                    (false, Some(call)) if end_stream => self.response_ended(now, call, Some(headers), None),
                    (false, Some(call)) => self.response_begun(now, call, headers),
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
            Event::Reset { stream, by } => {
                let call = call_of(stream);
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.streams.remove(&stream);
                }
                match (is_downstream, call, by) {
                    (true, Some(call), _) => self.client_left(now, call),
                    (false, Some(call), ResetBy::Peer(code)) => self.server_reset(now, call, code),
                    (false, Some(call), ResetBy::Us(fault)) => self.server_at_fault(now, call, fault),
                    (_, None, _) => {}
                }
            }
            Event::Unblocked { stream } => {
                if let Some(call) = call_of(stream) {
                    self.grant_credit(call);
                }
            }
            Event::GoAway { last_stream, .. } => self.upstream_drains(now, key, last_stream),
            Event::StreamsAvailable => {
                self.upstream_ready(key);
                if let Some(endpoint) = self.upstream_of(key) {
                    self.serve_waiting(now, endpoint);
                }
            }
        }
    }

    /// Closes a connection: its calls end, and its output is still written.
    pub(crate) fn close(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.is_closing = true;
        conn.partial = Vec::new();
        self.end_calls_of(now, key);
        self.actions.push_back(Action::Close { conn: key.into() });
        self.linger(now, key);
    }

    /// Closes a connection for a violation of its peer.
    fn close_for(&mut self, now: Time, key: ConnKey, fault: Violation) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.fault = Some(fault);
        let upstream = self.upstream_of(key);
        if let Some(endpoint) = upstream {
            self.forget_conn(endpoint, key);
            self.record_failure(now, endpoint, DownReason::Fault(fault));
        }
        self.close(now, key);
        if let Some(endpoint) = upstream {
            self.reassign_waiting(now, endpoint, false);
        }
    }

    /// Removes a connection from its endpoint: it takes no further calls.
    fn forget_conn(&mut self, endpoint: EndpointKey, key: ConnKey) {
        if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
            endpoint.forget(key);
        }
    }

    /// Aborts a connection at once, without writing the rest.
    pub(crate) fn abort(&mut self, now: Time, key: ConnKey) {
        self.actions.push_back(Action::Abort { conn: key.into() });
        self.drop_conn(now, key, None);
    }

    fn linger(&mut self, now: Time, key: ConnKey) {
        let left = self.conns.get(key).map_or(0, |c| c.h2.output().len());
        self.timers.set(now + LINGER_TIME, Timer::Linger { conn: key, left });
    }

    /// Closes a connection whose linger time is over. It gets more time while its peer reads.
    pub(crate) fn linger_timeout(&mut self, now: Time, key: ConnKey, left: usize) {
        let Some(conn) = self.conns.get(key) else { return };
        if conn.h2.output().len() < left {
            self.linger(now, key);
        } else {
            self.abort(now, key);
        }
    }

    /// Closes a draining connection without calls.
    pub(crate) fn close_if_drained(&mut self, now: Time, key: ConnKey) {
        let is_drained = |c: &Conn| !c.is_closing && c.streams.is_empty() && c.h2.is_closed();
        if self.conns.get(key).is_some_and(is_drained) {
            self.close(now, key);
        }
    }

    /// Handles the end of a connection. `why` is what it means for the endpoint.
    pub(crate) fn drop_conn(&mut self, now: Time, key: ConnKey, why: Option<DownReason>) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.is_closing = true;
        }
        let upstream = self.upstream_of(key);
        let was_ready =
            !matches!(self.conns.get(key), Some(Conn { side: Side::Upstream { is_ready: false, .. }, .. }));
        if let Some(endpoint) = upstream {
            self.forget_conn(endpoint, key);
            let is_noted = self.conns.get(key).is_none_or(|conn| conn.fault.is_some());
            let why = why.or((!was_ready).then_some(DownReason::Lost));
            if let Some(why) = why.filter(|_| !is_noted) {
                self.record_failure(now, endpoint, why);
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
                if let Side::Downstream { listener, .. } = &conn.side
                    && let Some(n) = self.clients.get_mut(listener)
                {
                    *n -= 1;
                    if *n == 0 {
                        self.clients.remove(listener);
                    }
                }
            }
            Some(endpoint) => {
                self.stats.upstream.open -= u64::from(was_ready);
                self.reassign_waiting(now, endpoint, false);
            }
        }
    }

    /// Ends all calls with a stream on a connection that is gone, in order of their streams.
    fn end_calls_of(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (is_downstream, fault) = (conn.is_downstream(), conn.fault);
        let mut calls: Vec<_> = core::mem::take(&mut conn.streams).into_iter().collect();
        calls.sort_unstable_by_key(|(stream, _)| *stream);
        for (_, call) in calls {
            if is_downstream {
                self.client_left(now, call);
            } else {
                self.server_gone(now, call, fault);
            }
        }
    }

    /// Schedules the output and the timer of a connection. Call this after work on a connection.
    pub(crate) fn after_change(&mut self, key: ConnKey) {
        self.schedule_output(key, false);
        let now = self.now;
        let Some(conn) = self.conns.get_mut(key) else { return };
        let is_idle = conn.streams.is_empty();
        let has_turned = conn.life.idle_since.is_some() != is_idle;
        if has_turned {
            conn.life.idle_since = is_idle.then_some(now);
        }
        let is_life_due = has_turned || conn.timer.is_none();
        self.set_conn_timer(key, is_life_due);
    }

    /// Sets the timer of a connection for its next event. `with_life`: its lifetime limits may have changed.
    pub(crate) fn set_conn_timer(&mut self, key: ConnKey, with_life: bool) {
        let life = if with_life { self.life_end(key).map(|(at, _)| at) } else { None };
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(at) = conn.h2.poll_timeout().into_iter().chain(life).min() else { return };
        if conn.timer.is_none_or(|(set, _)| at < set) {
            if let Some((_, timer)) = conn.timer {
                self.timers.cancel(timer);
            }
            conn.timer = Some((at, self.timers.set(at, Timer::Conn(key))));
        }
    }

    /// Returns the time and the kind of the next event in a connection's life, such as its maximum age.
    fn life_end(&self, key: ConnKey) -> Option<(Time, LifeEnd)> {
        let conn = self.conns.get(key).filter(|conn| !conn.is_closing)?;
        let limits = match &conn.side {
            Side::Downstream { options, .. } => LifeLimits {
                idle_timeout: options.idle_timeout,
                age_max: options.connection_age_max,
                age_grace: options.connection_age_grace,
            },
            Side::Upstream { endpoint, is_ready: true } => {
                let options = &self.endpoints.get(*endpoint)?.cluster.options;
                LifeLimits {
                    idle_timeout: options.idle_timeout,
                    age_max: options.connection_age_max,
                    age_grace: options.connection_age_grace,
                }
            }
            // The connect timeout covers connections that are not ready.
            Side::Upstream { is_ready: false, .. } => return None,
        };
        conn.life.next_end(&limits, hash::stream(self.config.seed, "connection age", key.to_bits()) % 2001)
    }

    /// Drains a connection that is idle or old: it takes no further calls.
    fn drain_aged(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.life.aged_at = Some(now);
        if conn.is_downstream() {
            conn.h2.go_away(now, ErrorCode::NoError);
        } else {
            self.drain_upstream(now, key);
        }
    }

    /// Ends the remaining calls of an old connection, and closes it.
    fn cut_connection(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else { return };
        let mut calls: Vec<_> = conn.streams.iter().map(|(stream, call)| (*stream, *call)).collect();
        calls.sort_unstable_by_key(|(stream, _)| *stream);
        for (_, call) in calls {
            self.end_here(now, call, Status::Unavailable, "the connection has reached its greatest age");
        }
        self.close(now, key);
    }

    /// Schedules output that was not urgent and has waited long enough.
    pub(crate) fn flush(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.is_flush_set = false;
        self.schedule_output(key, true);
    }

    /// Schedules a connection's output: at the end of the turn or, if it is neither urgent nor due, a little later.
    fn schedule_output(&mut self, key: ConnKey, is_due: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.is_dirty || conn.h2.output().is_empty() {
            return;
        }
        if is_due || conn.is_closing || conn.h2.is_output_urgent() {
            conn.is_dirty = true;
            self.dirty.push_back(key);
        } else if !core::mem::replace(&mut conn.is_flush_set, true) {
            self.timers.set(self.now + PONG_DELAY_MAX, Timer::Flush(key));
        }
    }

    /// Handles the timer of a connection: HTTP/2 timeouts, and the end of a phase of its life.
    pub(crate) fn conn_timeout(&mut self, now: Time, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.timer = None;
        if conn.h2.poll_timeout().is_some_and(|at| at <= now)
            && let Err(ConnectionError { violation }) = conn.h2.handle_timeout(now)
        {
            self.close_for(now, key, violation);
        }
        while let Some(event) = self.conns.get_mut(key).and_then(|c| c.h2.poll_event()) {
            self.handle_event(now, key, event);
        }
        match self.life_end(key) {
            Some((at, LifeEnd::Leaves)) if at <= now => self.drain_aged(now, key),
            Some((at, LifeEnd::Cut)) if at <= now => self.cut_connection(now, key),
            _ => {}
        }
        self.close_if_drained(now, key);
        self.after_change(key);
    }

    /// Sends data on a stream; `end` ends it. Does nothing if the connection is gone or the stream was reset.
    pub(crate) fn write_stream(&mut self, stream_ref: StreamRef, prefix: &[u8], data: &[u8], end: bool) {
        if let Some(conn) = self.conns.get_mut(stream_ref.conn) {
            // A stream that was reset meanwhile takes no data; its reset is on its way to us.
            let _ = conn.h2.send_data(stream_ref.stream, prefix, data, end);
        }
        self.after_change(stream_ref.conn);
    }

    /// Grants flow-control credit to the senders of a call for data that can move on. Call this after data was taken or
    /// has left.
    pub(crate) fn grant_credit(&mut self, key: CallKey) {
        let mut outermost = key;
        while let Some(Call { caller: Caller::Filter(outer), .. }) = self.calls.get(outermost) {
            outermost = *outer;
        }
        self.grant_credit_with_tries(outermost);
    }

    /// Grants flow-control credit to the senders of a call and of all its tries.
    fn grant_credit_with_tries(&mut self, key: CallKey) {
        self.grant_flow_credit(key, true);
        self.grant_flow_credit(key, false);
        let nth_try = |calls: &Slab<Call>, nth| calls.get(key)?.filtered.as_ref()?.tries().nth(nth);
        let mut nth = 0;
        while let Some(one) = nth_try(&self.calls, nth) {
            self.grant_credit_with_tries(one);
            nth += 1;
        }
    }

    /// Grants the credit that one direction of a call owes, unless its data cannot move on.
    fn grant_flow_credit(&mut self, key: CallKey, is_request: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let from = if is_request { call.down() } else { call.up };
        let flow = if is_request { &mut call.request } else { &mut call.response };
        let Some(from) = from.filter(|_| flow.owed > 0) else { return };
        // Data further along never waits for more input of this side, so this cannot deadlock.
        if self.is_stuck(key, is_request) {
            return;
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        let flow = if is_request { &mut call.request } else { &mut call.response };
        let owed = core::mem::take(&mut flow.owed);
        if let Some(conn) = self.conns.get_mut(from.conn) {
            conn.h2.release(from.stream, owed);
        }
        self.after_change(from.conn);
    }

    /// Whether data of one direction of a call cannot move on now, so that its sender must wait.
    fn is_stuck(&mut self, key: CallKey, is_request: bool) -> bool {
        let Some(call) = self.calls.get(key).filter(|call| !call.is_ending && !call.is_mirror) else {
            return false;
        };
        let flow = if is_request { &call.request } else { &call.response };
        if !flow.held.is_empty() {
            return true;
        }
        let to = match (is_request, &call.filtered, call.caller) {
            (true, Some(filtered), _) => {
                return filtered.winner().is_some_and(|child| self.is_stuck(child, true));
            }
            (true, None, _) => call.up,
            (false, _, Caller::Filter(outer)) => {
                // An answer that is examined first is gathered, whether or not the client reads.
                let wins = |filtered: &FilteredCall| filtered.winner() == Some(key);
                let outer_call = self.calls.get(outer);
                let passes_on = outer_call.is_some_and(|call| call.filtered.as_deref().is_some_and(wins));
                return passes_on && self.is_stuck(outer, false);
            }
            (false, _, Caller::Stream(down)) => Some(down),
            (false, _, Caller::Detached) => None,
        };
        let Some(to) = to else { return false };
        let Some(conn) = self.conns.get_mut(to.conn).filter(|conn| conn.is_full(to.stream)) else {
            return false;
        };
        if conn.h2.output().len() > OUTPUT_BYTES_HIGH && !conn.waiting.contains(&key) {
            conn.waiting.push(key);
        }
        true
    }

    /// Returns the client's call of which this call is a try, or the call itself.
    pub(crate) fn root_of(&self, key: CallKey) -> &Call {
        let mut call = self.calls.get(key).expect("the caller has the call");
        while let Caller::Filter(outer) = call.caller {
            call = self.calls.get(outer).expect("tries end before their call");
        }
        call
    }
}
