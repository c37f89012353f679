//! gRPC calls: from a client's stream through a chain to a server's stream, and back.
//!
//! A call with one request message ([`Call::is_single_request`]) enters its chain when that message is whole:
//! OPEN and REQUEST of each element are one pass, and the headers leave with the message. Other calls run OPEN
//! when their headers come. Nothing is copied but what must wait; what must wait is not credited to its sender.

use crate::call::{Call, CallKey, Flow, HeldItem, Leg, Phase};
use crate::conn::{ConnKey, OUTPUT_BYTES_HIGH, Side};
use crate::engine::{Engine, Timer, Way};
use crate::headers::{Form, end_builder, not_grpc, status_of};
use crate::pass::{Facts, LiveChain, rand_base};
use crate::plan::{Segment, reads_body};
use crate::pool::WAITING_MAX;
use std::rc::Rc;
use weft_core::abi::{EditTarget, Outcome, Verdict};
use weft_core::{Interval, Status, Time};
use weft_ir::ir::Terminator;
use weft_ir::program::Event;
use weft_proto::session::grpc::header::{Codec, parse_content_type, parse_timeout};
use weft_proto::session::grpc::protobuf::encode;
use weft_proto::session::grpc::{HEADER_BYTES, Message, MessageError, header as prefix_of, inflate};
use weft_proto::session::http2::{ErrorCode, Headers, HeadersBuilder, StreamId};

/// How a call ends.
pub(crate) enum End {
    /// The server ended it with these trailers, which may be its whole response.
    Server { trailers: Rc<Headers> },
    /// This node ends it.
    Here { status: Status, answer: Answer, by: Option<usize> },
    /// This node resets it without a word (`DROP`).
    Dropped { by: usize },
    /// The client has left.
    ClientLeft,
}

/// What this node says when it ends a call.
pub(crate) enum Answer {
    /// A message.
    Text(Vec<u8>),
    /// A message, and headers or trailers that `ABORT ... WITH` set.
    Edited(Box<(HeadersBuilder, HeadersBuilder)>),
    /// A response message, with its prefix (`REPLY`).
    Reply(Vec<u8>),
}

/// How long a mirrored call may take; then it is let go.
const MIRROR_TIME_MAX: Interval = Interval::from_secs(10);

/// Connections that may drain before a call has found a stream on one.
const DRAINS_MAX: u32 = 4;

/// Rows of ended calls that are kept for their memory.
const SPARE_ROWS_MAX: usize = 4096;

/// What a pass decided for its message.
enum Passed {
    /// On with it.
    On,
    /// On with what is in `Engine::rewritten`.
    Rewritten,
    /// The call has ended, or will when its delay is over.
    Ended,
}

impl Engine {
    // ---- the request ----

    /// A client has begun a stream.
    pub(crate) fn begin_call(
        &mut self,
        now: Time,
        conn: ConnKey,
        stream: StreamId,
        headers: Rc<Headers>,
        ended: bool,
    ) {
        let Some(Way { route, chain, method }) = self.find_way(now, conn, &headers) else {
            self.refuse(conn, stream, &headers, "no route takes this method");
            return;
        };
        let live = Rc::clone(&self.live);
        let chain = chain.map(|c| Rc::clone(&live.chains[c]));
        if method.is_none() && chain.as_ref().is_some_and(|c| reads_body(&c.chain.program)) {
            self.refuse(conn, stream, &headers, "the chain reads messages, and has no schema for these");
            return;
        }
        let id = self.next_call;
        self.next_call += 1;
        self.stats.calls_begun += 1;
        let cluster = &live.plan.clusters[live.plan.routes[route].cluster];
        let deadline = headers.get(b"grpc-timeout").and_then(parse_timeout).or(cluster.deadline);
        let mut row = self.spare_rows.pop().unwrap_or_default();
        if let Some(chain) = &chain {
            chain.calls_open.set(chain.calls_open.get() + 1);
            row.resize(chain.chain.program.call_words(), 0);
        }
        let limit = self.config.message_bytes_max as u32;
        let key = self.calls.insert(Call {
            id,
            began: now,
            down: Some(Leg { conn, stream }),
            up: None,
            pool: live.pools[live.plan.routes[route].cluster],
            endpoint: None,
            chain,
            method,
            request_headers: headers,
            phase: Phase::AwaitMessage,
            opened: 0,
            row,
            request: Flow::new(limit),
            response: Flow::new(limit),
            response_headers: None,
            is_response_begun: false,
            is_ending: false,
            is_mirror: false,
            is_redirected: false,
            deadline: None,
            attempts: 0,
        });
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.streams.insert(stream, key);
        }
        if let Some(timeout) = deadline {
            let timer = self.timers.set(now + timeout, Timer::Deadline(key));
            self.call_mut(key).deadline = Some(timer);
        }
        self.open_call(now, key, ended);
    }

    /// Runs OPEN, unless it waits for the message, and sends the headers on, unless they do.
    fn open_call(&mut self, now: Time, key: CallKey, ended: bool) {
        let call = self.call_mut(key);
        call.request.is_ended = ended;
        if let Some(live) = call.chain.clone() {
            let segments = &live.chain.segments;
            if call.is_single_request() && segments.open_request.is_some() {
                if ended {
                    // Nothing that the chain could look at may pass it.
                    return self.end_here(now, key, Status::Internal, "the request has no message");
                }
                call.phase = Phase::AwaitMessage;
                return;
            }
            if let Some(open) = &segments.open {
                let passed = self.pass_request(now, key, &live, open, None);
                if matches!(passed, Passed::Ended) {
                    return;
                }
            }
            let delay = core::mem::take(&mut self.passes.outcome.delay);
            let call = self.call_mut(key);
            if segments.open.is_some() && delay > Interval::ZERO {
                call.request.is_end_queued = ended;
                call.request.hold(now + delay, HeldItem::Data(Vec::new(), ended));
            }
            call.opened = live.chain.program.elements.len();
            let needs_message = segments.request.as_ref().is_some_and(|s| s.redirects || s.sets_headers);
            if needs_message && call.method().is_some_and(|m| !m.server_streaming) && !ended {
                call.phase = Phase::AwaitMessage;
                return;
            }
        }
        self.dispatch(now, key);
    }

    /// DATA from the client.
    pub(crate) fn request_data(&mut self, now: Time, key: CallKey, data: &[u8], flow_len: u32, end: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.request.owed += flow_len;
        call.request.is_ended |= end;
        if call.is_ending {
            self.settle(key);
            return;
        }
        let reads_messages = call.phase == Phase::AwaitMessage
            || call.chain.as_ref().is_some_and(|c| c.chain.segments.request.is_some());
        if reads_messages {
            self.request_messages(now, key, data, end);
        } else {
            self.send_request(now, key, &[], data, end, Interval::ZERO);
        }
        self.settle(key);
    }

    fn request_messages(&mut self, now: Time, key: CallKey, mut data: &[u8], end: bool) {
        let mut deframer = core::mem::take(&mut self.call_mut(key).request.deframer);
        loop {
            match deframer.next(&mut data) {
                Ok(Some(message)) => {
                    let last = end && data.is_empty();
                    if !self.request_message(now, key, message, last) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => return self.message_fault(now, key, error),
            }
        }
        let is_whole = deframer.is_empty();
        let Some(call) = self.calls.get_mut(key) else { return };
        call.request.deframer = deframer;
        if end && !is_whole {
            self.end_here(now, key, Status::Internal, "the request ended within a message");
        } else if end && !call.request.is_end_queued {
            self.request_without_rest(now, key);
        }
    }

    /// The client has ended its stream behind the last message, or without any.
    fn request_without_rest(&mut self, now: Time, key: CallKey) {
        let call = self.call_mut(key);
        if call.phase == Phase::AwaitMessage && call.request.index == 0 {
            if call.opened == 0 {
                return self.open_call(now, key, true);
            }
            self.dispatch(now, key);
        }
        self.send_request(now, key, &[], &[], true, Interval::ZERO);
    }

    /// Trailers of a request: gRPC knows none, so they only end it.
    pub(crate) fn request_ended(&mut self, now: Time, key: CallKey) {
        self.request_data(now, key, &[], 0, true);
    }

    /// One message of the request. False if the call has ended.
    fn request_message(&mut self, now: Time, key: CallKey, message: Message<'_>, last: bool) -> bool {
        self.refresh_version(now, key);
        let call = self.call_mut(key);
        let Some(live) = call.chain.clone() else { return true };
        let segments = &live.chain.segments;
        let is_first = call.phase == Phase::AwaitMessage;
        let segment = if is_first && call.opened == 0 { &segments.open_request } else { &segments.request };
        let mut passed = Passed::On;
        if let Some(segment) = segment {
            passed = self.pass_request(now, key, &live, segment, Some(message));
        }
        if matches!(passed, Passed::Ended) {
            return false;
        }
        self.stats.messages += 1;
        let delay = core::mem::take(&mut self.passes.outcome.delay);
        let call = self.call_mut(key);
        call.request.index += 1;
        if is_first {
            call.opened = live.chain.program.elements.len();
            call.phase = Phase::AwaitUpstream;
            self.dispatch(now, key);
        }
        if matches!(passed, Passed::Rewritten) {
            let rewritten = core::mem::take(&mut self.rewritten);
            let prefix = prefix_of(false, rewritten.len() as u32);
            self.send_request(now, key, &prefix, &rewritten, last, delay);
            self.rewritten = rewritten;
        } else {
            let prefix = prefix_of(message.compressed, message.payload.len() as u32);
            self.send_request(now, key, &prefix, message.payload, last, delay);
        }
        self.calls.get(key).is_some_and(|c| !c.is_ending)
    }

    /// Hands bytes of the request to the server's stream, or holds them.
    fn send_request(
        &mut self,
        now: Time,
        key: CallKey,
        prefix: &[u8],
        data: &[u8],
        end: bool,
        delay: Interval,
    ) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.request.is_end_queued |= end;
        match call.up {
            Some(up)
                if call.phase == Phase::Open && call.request.held.is_empty() && delay <= Interval::ZERO =>
            {
                call.request.is_sent |= end;
                self.write(up, prefix, data, end);
            }
            _ => {
                let bytes = [prefix, data].concat();
                call.request.hold(now + delay, HeldItem::Data(bytes, end));
                self.arm_held(key, true);
            }
        }
    }

    /// Sends what was held and is due.
    pub(crate) fn flush_request(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let (Phase::Open, Some(up)) = (call.phase, call.up) else { return };
        while let Some(held) = call.request.held.pop_front_if(|h| h.due <= now) {
            let HeldItem::Data(bytes, end) = held.what else { continue };
            call.request.is_sent |= end;
            if let Some(conn) = self.conns.get_mut(up.conn) {
                // A stream that was reset meanwhile takes nothing; its reset is on its way to us.
                let _ = conn.h2.send_data(up.stream, &[], &bytes, end);
            }
        }
        self.arm_held(key, true);
        self.after_change(up.conn);
        self.settle(key);
    }

    // ---- finding a server ----

    /// Finds a stream to a server, or has the call wait for one.
    fn dispatch(&mut self, now: Time, key: CallKey) {
        let call = self.call_mut(key);
        call.phase = Phase::AwaitUpstream;
        let (pool, id) = (call.pool, call.id);
        let chosen = call.endpoint.or_else(|| self.pools[pool].pick(now, id));
        let Some(endpoint) = chosen.filter(|e| !self.pools[pool].endpoints[*e].is_left_out(now)) else {
            let text = format!("no endpoint of cluster `{}` can be reached", self.pools[pool].cluster.name);
            return self.end_here(now, key, Status::Unavailable, &text);
        };
        self.call_mut(key).endpoint = Some(endpoint);
        if self.open_upstream(now, key, pool, endpoint) {
            return;
        }
        let connections_max = self.pools[pool].cluster.connections_max as usize;
        let target = &mut self.pools[pool].endpoints[endpoint];
        if target.waiting.len() >= WAITING_MAX {
            return self.end_here(now, key, Status::Unavailable, "too many calls wait for a connection");
        }
        target.waiting.push_back(key);
        if target.ready.len() < connections_max {
            self.connect(now, pool, endpoint);
        }
    }

    /// Opens a stream on a connection that has one to give, and sends headers and what was held.
    fn open_upstream(&mut self, now: Time, key: CallKey, pool: usize, endpoint: usize) -> bool {
        let Some(call) = self.calls.get_mut(key) else { return false };
        let target = &mut self.pools[pool].endpoints[endpoint];
        for conn_key in &target.ready {
            let Some(conn) = self.conns.get_mut(*conn_key) else { continue };
            let Some(stream) = conn.h2.open() else { continue };
            let end = call.request.is_ended && call.request.index == 0 && call.request.held.is_empty();
            let end = end && call.request.deframer.is_empty() && call.request.owed == 0;
            if conn.h2.send_headers(stream, &call.request_headers, end).is_err() {
                // The server permits no list of this size: waiting would not help.
                conn.h2.reset(stream, ErrorCode::Cancel);
                let text = "the request's headers are larger than the server permits";
                self.end_here(now, key, Status::ResourceExhausted, text);
                return true;
            }
            conn.streams.insert(stream, key);
            call.up = Some(Leg { conn: *conn_key, stream });
            call.phase = Phase::Open;
            call.request.is_sent |= end;
            call.request.is_end_queued |= end;
            target.active += 1;
            target.calls += 1;
            let conn_key = *conn_key;
            if call.request.held.is_empty() {
                self.after_change(conn_key);
            } else {
                self.flush_request(now, key);
            }
            return true;
        }
        false
    }

    /// A connection has streams to give.
    pub(crate) fn serve_waiting(&mut self, now: Time, pool: usize, endpoint: usize) {
        while let Some(key) = self.pools[pool].endpoints[endpoint].waiting.pop_front() {
            let waits = |c: &Call| c.phase == Phase::AwaitUpstream && c.endpoint == Some(endpoint);
            if !self.calls.get(key).is_some_and(waits) {
                continue;
            }
            if !self.open_upstream(now, key, pool, endpoint) {
                self.pools[pool].endpoints[endpoint].waiting.push_front(key);
                return;
            }
        }
    }

    /// A connection could not be made, is gone, or drains: calls that wait for it go elsewhere, each endpoint once.
    /// One that drains may be made anew, but not for ever.
    pub(crate) fn reassign_waiting(&mut self, now: Time, pool: usize, endpoint: usize, drains: bool) {
        let target = &mut self.pools[pool].endpoints[endpoint];
        if !target.ready.is_empty() || target.connecting.is_some() {
            return;
        }
        let (name, n_endpoints) = (Rc::clone(&target.name), self.pools[pool].endpoints.len() as u32);
        for key in core::mem::take(&mut self.pools[pool].endpoints[endpoint].waiting) {
            let Some(call) = self.calls.get_mut(key) else { continue };
            if call.phase != Phase::AwaitUpstream || call.is_ending {
                continue;
            }
            call.attempts += 1;
            let attempts_max = if drains { n_endpoints + DRAINS_MAX } else { n_endpoints };
            if call.attempts >= attempts_max || (call.is_redirected && !drains) {
                self.end_here(now, key, Status::Unavailable, &format!("cannot connect to {name}"));
            } else {
                call.endpoint = call.endpoint.filter(|_| call.is_redirected);
                self.dispatch(now, key);
            }
        }
    }

    // ---- the response ----

    /// Response headers from the server.
    pub(crate) fn response_begun(&mut self, key: CallKey, headers: Rc<Headers>) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.response_headers = Some(headers);
        let response = call.chain.as_ref().and_then(|c| c.chain.segments.response.as_ref());
        if !response.is_some_and(|s| s.sets_headers) {
            self.send_response_headers(key);
        }
    }

    /// DATA from the server.
    pub(crate) fn response_data(&mut self, now: Time, key: CallKey, data: &[u8], flow_len: u32, end: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.response.owed += flow_len;
        let reads_messages = call.chain.as_ref().is_some_and(|c| c.chain.segments.response.is_some());
        if call.is_ending {
            self.settle(key);
            return;
        }
        if reads_messages {
            self.response_messages(now, key, data);
        } else {
            self.send_response(now, key, &[], data, Interval::ZERO);
        }
        self.settle(key);
        if end {
            // The server left out the trailers that gRPC demands.
            self.response_ended(now, key, None);
        }
    }

    fn response_messages(&mut self, now: Time, key: CallKey, mut data: &[u8]) {
        let mut deframer = core::mem::take(&mut self.call_mut(key).response.deframer);
        loop {
            match deframer.next(&mut data) {
                Ok(Some(message)) => {
                    if !self.response_message(now, key, message) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => return self.message_fault(now, key, error),
            }
        }
        if let Some(call) = self.calls.get_mut(key) {
            call.response.deframer = deframer;
        }
    }

    /// One message of the response. False if the call has ended.
    fn response_message(&mut self, now: Time, key: CallKey, message: Message<'_>) -> bool {
        self.refresh_version(now, key);
        let Some(live) = self.call_mut(key).chain.clone() else { return true };
        let Some(segment) = &live.chain.segments.response else { return true };
        let passed = self.pass(now, key, &live, segment, Some(message), None, None);
        if matches!(passed, Passed::Ended) {
            return false;
        }
        self.stats.messages += 1;
        let delay = core::mem::take(&mut self.passes.outcome.delay);
        let call = self.calls.get_mut(key).expect("the call has not ended");
        call.response.index += 1;
        if let Some(headers) = &call.response_headers
            && let Some(edited) = self.passes.edit_headers(&live, Event::Response, false, headers)
        {
            call.response_headers = Some(edited);
        }
        if matches!(passed, Passed::Rewritten) {
            let rewritten = core::mem::take(&mut self.rewritten);
            let prefix = prefix_of(false, rewritten.len() as u32);
            self.send_response(now, key, &prefix, &rewritten, delay);
            self.rewritten = rewritten;
        } else {
            let prefix = prefix_of(message.compressed, message.payload.len() as u32);
            self.send_response(now, key, &prefix, message.payload, delay);
        }
        true
    }

    fn send_response_headers(&mut self, key: CallKey) {
        let call = self.call_mut(key);
        if call.is_response_begun {
            return;
        }
        call.is_response_begun = true;
        let (Some(down), Some(headers)) = (call.down, call.response_headers.clone()) else { return };
        if let Some(conn) = self.conns.get_mut(down.conn) {
            let _ = conn.h2.send_headers(down.stream, &headers, false);
        }
        self.after_change(down.conn);
    }

    fn send_response(&mut self, now: Time, key: CallKey, prefix: &[u8], data: &[u8], delay: Interval) {
        if !self.call_mut(key).response.held.is_empty() || delay > Interval::ZERO {
            let bytes = [prefix, data].concat();
            return self.hold_response(key, now + delay, HeldItem::Data(bytes, false));
        }
        self.send_response_headers(key);
        if let Some(down) = self.call_mut(key).down {
            self.write(down, prefix, data, false);
        }
    }

    fn hold_response(&mut self, key: CallKey, due: Time, what: HeldItem) {
        self.call_mut(key).response.hold(due, what);
        self.arm_held(key, false);
    }

    /// Sets the timer of what is held to the first of it. What waits for a server needs none.
    fn arm_held(&mut self, key: CallKey, is_request: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let waits_for_server = is_request && call.phase != Phase::Open;
        let flow = if is_request { &mut call.request } else { &mut call.response };
        if let Some(earlier) = flow.timer.take() {
            self.timers.cancel(earlier);
        }
        if let Some(first) = flow.held.front().filter(|_| !waits_for_server) {
            let timer = if is_request { Timer::HeldRequest(key) } else { Timer::HeldResponse(key) };
            flow.timer = Some(self.timers.set(first.due, timer));
        }
    }

    /// Sends what was held of a response and is due.
    pub(crate) fn flush_response(&mut self, now: Time, key: CallKey) {
        loop {
            let Some(call) = self.calls.get_mut(key) else { return };
            let Some(held) = call.response.held.pop_front_if(|h| h.due <= now) else { break };
            let down = call.down;
            match held.what {
                HeldItem::Data(bytes, _) => {
                    self.send_response_headers(key);
                    if let Some(down) = down {
                        self.write(down, &[], &bytes, false);
                    }
                }
                HeldItem::End(end) => return self.end(now, key, *end),
            }
        }
        self.arm_held(key, false);
        self.settle(key);
    }

    /// The server has ended its stream.
    pub(crate) fn response_ended(&mut self, now: Time, key: CallKey, trailers: Option<Rc<Headers>>) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if call.is_ending {
            return;
        }
        call.response.is_ended = true;
        let is_whole = call.response.deframer.is_empty();
        let Some(trailers) = trailers else {
            return self.end_here(now, key, Status::Internal, "the server sent no trailers");
        };
        if !is_whole {
            return self.end_here(now, key, Status::Internal, "the response ended within a message");
        }
        let end = End::Server { trailers };
        match call.response.held.back().map(|h| h.due) {
            None => self.end(now, key, end),
            Some(due) => {
                call.is_ending = true;
                self.hold_response(key, due, HeldItem::End(Box::new(end)));
            }
        }
    }

    // ---- what ends a call ----

    /// The client reset its stream, or its connection is gone.
    pub(crate) fn client_left(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let owed = core::mem::take(&mut call.request.owed);
        if let Some(down) = call.down.take()
            && let Some(conn) = self.conns.get_mut(down.conn)
        {
            // The stream is gone, but what came on it counts for the connection's window.
            conn.h2.release(down.stream, owed);
            self.after_change(down.conn);
        }
        self.end(now, key, End::ClientLeft);
    }

    /// The server reset its stream.
    pub(crate) fn server_reset(&mut self, now: Time, key: CallKey, code: ErrorCode) {
        self.forget_up(now, key);
        if self.has_answer(key) {
            return;
        }
        // gRPC over HTTP/2, "Errors".
        let status = match code {
            ErrorCode::RefusedStream => Status::Unavailable,
            ErrorCode::Cancel => Status::Cancelled,
            ErrorCode::EnhanceYourCalm => Status::ResourceExhausted,
            ErrorCode::InadequateSecurity => Status::PermissionDenied,
            _ => Status::Internal,
        };
        self.end_here(now, key, status, &format!("the server reset the stream: {code:?}"));
    }

    /// The server's connection is gone.
    pub(crate) fn server_gone(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get(key) else { return };
        let name = call.endpoint.map(|e| Rc::clone(&self.pools[call.pool].endpoints[e].name));
        self.forget_up(now, key);
        if self.has_answer(key) {
            return;
        }
        let text = format!("the connection to {} was lost", name.as_deref().unwrap_or("the server"));
        self.end_here(now, key, Status::Unavailable, &text);
    }

    pub(crate) fn deadline_passed(&mut self, now: Time, key: CallKey) {
        if let Some(call) = self.calls.get_mut(key) {
            call.deadline = None;
            self.end_here(now, key, Status::DeadlineExceeded, "the call's deadline has passed");
        }
    }

    fn message_fault(&mut self, now: Time, key: CallKey, error: MessageError) {
        let status = match error {
            MessageError::TooLong { .. } => Status::ResourceExhausted,
            MessageError::UnknownFlags(_) => Status::Internal,
        };
        self.stats.refuse("grpc_message", 1);
        self.end_here(now, key, status, &error.to_string());
    }

    fn end_here(&mut self, now: Time, key: CallKey, status: Status, text: &str) {
        let answer = Answer::Text(text.as_bytes().to_vec());
        self.end(now, key, End::Here { status, answer, by: None });
    }

    /// Ends a call: CLOSE of what was opened, the last bytes to the client, and everything that it held.
    pub(crate) fn end(&mut self, now: Time, key: CallKey, end: End) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let status = end.status();
        let by = end.ended_by();
        call.is_ending = true;
        let live = call.chain.clone();
        let form = if call.is_response_begun { Form::Trailers } else { Form::TrailersOnly };
        let mut last = match &end {
            End::Server { trailers } => Some(Rc::clone(trailers)),
            End::Here { status, answer: Answer::Text(text), .. } => {
                Some(self.answers.end(form, *status, text))
            }
            End::Here { answer: Answer::Reply(_), .. } => {
                Some(self.answers.end(Form::Trailers, Status::Ok, b""))
            }
            End::Here { answer: Answer::Edited(..), .. } => None,
            End::Dropped { .. } | End::ClientLeft => None,
        };
        let mut reply = None;
        if let End::Here { answer, .. } = end {
            match answer {
                Answer::Edited(builders) => {
                    let (only, trailers) = *builders;
                    let builder = if form == Form::TrailersOnly { only } else { trailers };
                    last = Some(builder.build());
                }
                Answer::Reply(message) => reply = Some(message),
                Answer::Text(_) => {}
            }
        }
        if let Some(live) = &live
            && let Some(close) = &live.chain.segments.close
            && self.call_mut(key).opened > 0
        {
            last = self.close_pass(now, key, live, close, status, by, last);
        }
        self.send_end(key, reply, last);
        self.release_call(now, key, status);
    }

    /// Runs CLOSE; gives the trailers as it leaves them.
    #[expect(clippy::too_many_arguments, reason = "all of them are facts of the one pass")]
    fn close_pass(
        &mut self,
        now: Time,
        key: CallKey,
        live: &Rc<LiveChain>,
        close: &Segment,
        status: Status,
        by: Option<usize>,
        trailers: Option<Rc<Headers>>,
    ) -> Option<Rc<Headers>> {
        let by = by.map(|e| live.chain.program.elements[e].name.as_str());
        // A CLOSE handler that fails has no one left to tell: it is counted, and the call ends as it would.
        let _ = self.pass(now, key, live, close, None, Some((status, by)), trailers.as_deref());
        let edited = trailers.as_ref().and_then(|t| self.passes.edit_headers(live, Event::Close, true, t));
        edited.or(trailers)
    }

    /// The last bytes to the client.
    fn send_end(&mut self, key: CallKey, reply: Option<Vec<u8>>, last: Option<Rc<Headers>>) {
        let call = self.call_mut(key);
        let Some(down) = call.down else { return };
        if let Some(message) = reply {
            let headers = self.answers.response();
            self.call_mut(key).response_headers = Some(headers);
            self.send_response_headers(key);
            self.write(down, &[], &message, false);
        } else if last.as_ref().is_some_and(|l| l.status().is_none()) {
            // Response headers that were held for a message that did not come.
            self.send_response_headers(key);
        }
        let is_request_over = self.call_mut(key).request.is_ended;
        let Some(conn) = self.conns.get_mut(down.conn) else { return };
        match last {
            Some(last) => {
                let _ = conn.h2.send_headers(down.stream, &last, true);
                // RFC 9113 section 8.1: a server that has answered in full may ask the client to stop sending.
                if !is_request_over && conn.h2.queued(down.stream) == 0 {
                    conn.h2.reset(down.stream, ErrorCode::NoError);
                }
            }
            None => conn.h2.reset(down.stream, ErrorCode::Cancel),
        }
        self.after_change(down.conn);
    }

    /// Lets go of everything that a call holds, and counts it.
    fn release_call(&mut self, now: Time, key: CallKey, status: Status) {
        let Some(mut call) = self.calls.remove(key) else { return };
        if let Some(down) = call.down
            && let Some(conn) = self.conns.get_mut(down.conn)
        {
            conn.streams.remove(&down.stream);
            conn.h2.release(down.stream, call.request.owed);
            self.after_change(down.conn);
            self.close_if_drained(now, down.conn);
        }
        if let Some(up) = call.up {
            self.release_up(now, &call, up);
        }
        for timer in [call.deadline, call.request.timer, call.response.timer].into_iter().flatten() {
            self.timers.cancel(timer);
        }
        if let Some(chain) = call.chain.take() {
            chain.calls_open.set(chain.calls_open.get() - 1);
        }
        call.row.clear();
        if call.row.capacity() > 0 && self.spare_rows.len() < SPARE_ROWS_MAX {
            self.spare_rows.push(call.row);
        }
        if !call.is_mirror {
            self.stats.calls_ended[usize::from(status.code())] += 1;
            self.stats.latency.record(now - call.began);
        }
    }

    fn release_up(&mut self, now: Time, call: &Call, up: Leg) {
        if let Some(endpoint) = call.endpoint {
            self.pools[call.pool].endpoints[endpoint].active -= 1;
        }
        let Some(conn) = self.conns.get_mut(up.conn) else { return };
        conn.streams.remove(&up.stream);
        conn.h2.release(up.stream, call.response.owed);
        // Unless both sides have ended it. What is queued of a request that was answered is of no use any more.
        conn.h2.reset(up.stream, ErrorCode::Cancel);
        let is_drained = conn.h2.is_draining() && conn.streams.is_empty();
        self.after_change(up.conn);
        if let (Some(endpoint), false) = (call.endpoint, is_drained) {
            self.serve_waiting(now, call.pool, endpoint);
        } else if is_drained {
            self.close(now, up.conn);
        }
    }

    /// Whether the end of a call is decided, and only held for a delay.
    fn has_answer(&self, key: CallKey) -> bool {
        self.calls.get(key).is_some_and(|call| call.is_ending)
    }

    /// The upstream leg of a call is gone without our doing.
    fn forget_up(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let (Some(up), Some(endpoint)) = (call.up.take(), call.endpoint) else { return };
        let (pool, owed) = (call.pool, core::mem::take(&mut call.response.owed));
        self.pools[pool].endpoints[endpoint].active -= 1;
        if let Some(conn) = self.conns.get_mut(up.conn) {
            // The stream is gone, but what came on it counts for the connection's window.
            conn.h2.release(up.stream, owed);
        }
        self.after_change(up.conn);
        self.serve_waiting(now, pool, endpoint);
    }

    // ---- passes ----

    /// A pass of the request direction; edits of headers are applied while they have not left.
    fn pass_request(
        &mut self,
        now: Time,
        key: CallKey,
        live: &Rc<LiveChain>,
        segment: &Segment,
        message: Option<Message<'_>>,
    ) -> Passed {
        let passed = self.pass(now, key, live, segment, message, None, None);
        if matches!(passed, Passed::Ended) {
            return passed;
        }
        let call = self.calls.get_mut(key).expect("the call has not ended");
        if call.phase == Phase::AwaitMessage
            && let Some(edited) = self.passes.edit_headers(live, segment.event, false, &call.request_headers)
        {
            call.request_headers = edited;
        }
        if !self.passes.outcome.mirrors.is_empty()
            && let Some(message) = message
        {
            self.mirror(now, key, message);
        }
        passed
    }

    /// Runs a segment and carries out its verdict.
    #[expect(clippy::too_many_arguments, reason = "all of them are facts of the one pass")]
    fn pass(
        &mut self,
        now: Time,
        key: CallKey,
        live: &Rc<LiveChain>,
        segment: &Segment,
        message: Option<Message<'_>>,
        closing: Option<(Status, Option<&str>)>,
        trailers: Option<&Headers>,
    ) -> Passed {
        let event = segment.event;
        let mut inflated = core::mem::take(&mut self.inflated);
        let call = self.calls.get_mut(key).expect("the caller has the call");
        let mut row = core::mem::take(&mut call.row);
        let flow = if event.is_request() { &call.request } else { &call.response };
        let (index, is_response) = (flow.index, !event.is_request());
        let headers =
            if is_response { call.response_headers.clone() } else { Some(Rc::clone(&call.request_headers)) };
        let path_of = Rc::clone(&call.request_headers);
        let payload = match message
            .map(|m| plain_payload(&m, headers.as_deref(), self.config.message_bytes_max, &mut inflated))
        {
            Some(Ok(payload)) => Some(payload),
            Some(Err(text)) => {
                call.row = row;
                self.end_here(now, key, Status::Internal, &text);
                return Passed::Ended;
            }
            None => None,
        };
        let peer = call.down.and_then(|d| match &self.conns.get(d.conn)?.side {
            Side::Downstream { peer, .. } => Some(Rc::clone(peer)),
            Side::Upstream { .. } => None,
        });
        let upstream = call.endpoint.map(|e| Rc::clone(&self.pools[call.pool].endpoints[e].name));
        let method = call.method.map(|m| &live.chain.methods[m]);
        let facts = Facts {
            now,
            rand: rand_base(self.config.seed, call.id, call.attempts, index, event),
            payload,
            method,
            path: path_of.path().unwrap_or_default(),
            peer: peer.as_deref().unwrap_or_default(),
            headers: headers.as_deref(),
            trailers,
            size: message.map_or(0, |m| m.payload.len() as u64),
            index,
            call_id: call.id,
            status: closing.map(|(status, _)| status),
            elapsed: is_response.then(|| now - call.began),
            upstream: upstream.as_deref().filter(|_| is_response),
            ended_by: closing.and_then(|(_, by)| by),
        };
        let n_elements = live.chain.program.elements.len();
        let opened = if event == Event::Close { call.opened } else { n_elements };
        let ran = self.passes.run(live, segment, &facts, &mut row, opened);
        let rewritten = match (&ran, payload) {
            (Ok(()), Some(payload)) => {
                self.rewritten.clear();
                self.passes.rewrite(live, event, method, payload, &mut self.rewritten)
            }
            _ => None,
        };
        if let Some(call) = self.calls.get_mut(key) {
            call.row = row;
        }
        self.inflated = inflated;
        if let Err(malformed) = ran {
            self.stats.refuse("grpc_malformed_message", 1);
            self.end_here(now, key, Status::Internal, &format!("the message is malformed: {malformed}"));
            return Passed::Ended;
        }
        self.batch.take(now, &live.chain.program, &self.passes.outcome);
        if closing.is_some() {
            return Passed::On;
        }
        if event == Event::OpenRequest || event == Event::Open {
            self.call_mut(key).opened = opened_by(live, event, &self.passes.outcome);
        }
        if !self.carry_out(now, key, live) {
            return Passed::Ended;
        }
        match rewritten {
            None => Passed::On,
            Some(Ok(())) => Passed::Rewritten,
            Some(Err(error)) => {
                self.end_here(now, key, Status::Internal, &format!("a column cannot be set: {error}"));
                Passed::Ended
            }
        }
    }

    /// Carries out the verdict of the last pass. False if the call has ended.
    fn carry_out(&mut self, now: Time, key: CallKey, live: &Rc<LiveChain>) -> bool {
        let element = usize::from(self.passes.outcome.element);
        let end = match self.passes.outcome.verdict {
            Verdict::Forward => return true,
            Verdict::Redirect => return self.redirect(now, key),
            Verdict::Drop => End::Dropped { by: element },
            Verdict::Abort(status) => {
                End::Here { status, answer: self.abort_answer(live, status), by: Some(element) }
            }
            Verdict::Failed(fault) => {
                let name = &live.chain.program.elements[element].name;
                let text = format!("element `{name}` failed: {}", fault.name()).into_bytes();
                End::Here { status: Status::Internal, answer: Answer::Text(text), by: Some(element) }
            }
            Verdict::Reply => match self.reply(key, live) {
                Ok(message) => {
                    End::Here { status: Status::Ok, answer: Answer::Reply(message), by: Some(element) }
                }
                Err(text) => {
                    End::Here { status: Status::Internal, answer: Answer::Text(text), by: Some(element) }
                }
            },
        };
        let delay = self.passes.outcome.delay;
        let call = self.call_mut(key);
        if delay > Interval::ZERO {
            call.is_ending = true;
            self.hold_response(key, now + delay, HeldItem::End(Box::new(end)));
        } else {
            self.end(now, key, end);
        }
        false
    }

    fn redirect(&mut self, now: Time, key: CallKey) -> bool {
        let Some((pool, endpoint)) = self.live.targets.get(&self.passes.outcome.text).copied() else {
            let target = String::from_utf8_lossy(&self.passes.outcome.text).into_owned();
            let text = format!("REDIRECT names neither a cluster nor an endpoint of one: `{target}`");
            self.end_here(now, key, Status::Unavailable, &text);
            return false;
        };
        let call = self.call_mut(key);
        if call.phase == Phase::AwaitMessage {
            (call.pool, call.endpoint, call.is_redirected) = (pool, endpoint, endpoint.is_some());
        }
        true
    }

    fn abort_answer(&self, live: &LiveChain, status: Status) -> Answer {
        let outcome = &self.passes.outcome;
        let answers = outcome.edits.iter().filter_map(|edit| match edit.target {
            EditTarget::Answer(id) => Some((&live.chain.program.answers[usize::from(id)].name, edit.value)),
            _ => None,
        });
        let mut builders = None;
        for (name, value) in answers {
            let (only, trailers) = builders.get_or_insert_with(|| {
                let of = |form| end_builder(form, status, &outcome.text);
                (of(Form::TrailersOnly), of(Form::Trailers))
            });
            self.passes.set_header(only, name.as_bytes(), value);
            self.passes.set_header(trailers, name.as_bytes(), value);
        }
        match builders {
            Some(builders) => Answer::Edited(Box::new(builders)),
            None => Answer::Text(outcome.text.clone()),
        }
    }

    /// The message of a REPLY, with its prefix.
    fn reply(&self, key: CallKey, live: &LiveChain) -> Result<Vec<u8>, Vec<u8>> {
        let call = self.calls.get(key).expect("the caller has the call");
        let method = call.method().ok_or_else(|| b"REPLY: the method is not in the schemas".to_vec())?;
        let replies = &live.chain.program.replies;
        let paths: Vec<Vec<&str>> =
            replies.iter().map(|r| r.path.iter().map(String::as_str).collect()).collect();
        let values: Vec<_> = self
            .passes
            .outcome
            .edits
            .iter()
            .filter_map(|edit| match edit.target {
                EditTarget::Reply(id) => {
                    Some((&paths[usize::from(id)][..], self.passes.edit_value(edit.value)))
                }
                _ => None,
            })
            .collect();
        let mut message = prefix_of(false, 0).to_vec();
        encode(&method.schema, method.output, &values, &mut message)
            .map_err(|e| format!("REPLY: {e}").into_bytes())?;
        let prefix = prefix_of(false, (message.len() - HEADER_BYTES) as u32);
        message[..prefix.len()].copy_from_slice(&prefix);
        Ok(message)
    }

    /// Sends a copy of a message, and of its call's headers, to each target; what comes back is let go.
    fn mirror(&mut self, now: Time, key: CallKey, message: Message<'_>) {
        let call = self.calls.get(key).expect("the caller has the call");
        let (headers, began) = (Rc::clone(&call.request_headers), call.began);
        let outcome = &self.passes.outcome;
        let targets: Vec<_> = outcome
            .mirrors
            .iter()
            .filter_map(|(start, len)| self.live.targets.get(outcome.kept(*start, *len)).copied())
            .collect();
        let bytes =
            [&prefix_of(message.compressed, message.payload.len() as u32)[..], message.payload].concat();
        let limit = self.config.message_bytes_max as u32;
        for (pool, endpoint) in targets {
            let id = self.next_call;
            self.next_call += 1;
            let mut request = Flow::new(limit);
            request.is_ended = true;
            request.is_end_queued = true;
            request.hold(now, HeldItem::Data(bytes.clone(), true));
            let mirror = self.calls.insert(Call {
                id,
                began,
                down: None,
                up: None,
                pool,
                endpoint,
                chain: None,
                method: None,
                request_headers: Rc::clone(&headers),
                phase: Phase::AwaitUpstream,
                opened: 0,
                row: Vec::new(),
                request,
                response: Flow::new(limit),
                response_headers: None,
                is_response_begun: true,
                is_ending: false,
                is_mirror: true,
                is_redirected: endpoint.is_some(),
                deadline: None,
                attempts: 0,
            });
            let timer = self.timers.set(now + MIRROR_TIME_MAX, Timer::Deadline(mirror));
            self.call_mut(mirror).deadline = Some(timer);
            self.dispatch(now, mirror);
        }
    }

    /// Runs the n-th EVERY of a chain, and sets its next time.
    pub(crate) fn run_every(&mut self, now: Time, chain: usize, nth: usize) {
        let live = Rc::clone(&self.live);
        let live_chain = &live.chains[chain];
        let (interval, segment) = &live_chain.chain.segments.every[nth];
        let facts =
            Facts::of_node(now, rand_base(self.config.seed, u64::MAX, 0, now.0 as u64, segment.event));
        // EVERY reads no message, so nothing can be malformed; and no call's row, but its shape is checked.
        let mut row = vec![0; live_chain.chain.program.call_words()];
        let _ = self.passes.run(live_chain, segment, &facts, &mut row, usize::MAX);
        self.batch.take(now, &live_chain.chain.program, &self.passes.outcome);
        self.timers.set(now + *interval, Timer::Every { live: live.id, chain, nth });
    }

    // ---- routes and versions ----

    /// The way that a call takes, found once for each header list.
    fn find_way(&mut self, now: Time, conn: ConnKey, headers: &Rc<Headers>) -> Option<Way> {
        let live = Rc::clone(&self.live);
        if let Some(way) = live.remembered(headers) {
            return Some(way);
        }
        let Side::Downstream { listener, peer } = &self.conns.get(conn)?.side else { return None };
        let (listener, peer) = (Rc::clone(listener), Rc::clone(peer));
        let path = headers.path()?;
        let codec = headers.get(b"content-type").and_then(parse_content_type)?;
        for (index, route) in live.plan.routes.iter().enumerate() {
            let is_near =
                live.plan.listeners[route.listener].name == *listener && route.methods.matches(path);
            if !is_near || !self.condition_holds(now, route.condition, headers, &peer) {
                continue;
            }
            let chain = route.chain_for(path);
            // A message that is not protobuf cannot be read by a schema, so its method is as good as unknown.
            let readable = chain.filter(|_| codec == Codec::Protobuf);
            let method = readable.and_then(|c| live.plan.chains[c].method(path));
            let way = Way { route: index, chain, method };
            live.remember(headers, way);
            return Some(way);
        }
        None
    }

    fn condition_holds(
        &mut self,
        now: Time,
        condition: Option<usize>,
        headers: &Headers,
        peer: &str,
    ) -> bool {
        let Some(condition) = condition else { return true };
        let live_chain = Rc::clone(&self.live.chains[condition]);
        let Some(open) = &live_chain.chain.segments.open else { return true };
        let path = headers.path().unwrap_or_default();
        let facts = Facts { headers: Some(headers), peer, path, ..Facts::of_node(now, 0) };
        let mut row = vec![0; live_chain.chain.program.call_words()];
        let ran = self.passes.run(&live_chain, open, &facts, &mut row, usize::MAX);
        ran.is_ok() && self.passes.outcome.verdict == Verdict::Forward
    }

    /// Answers a stream that becomes no call.
    fn refuse(&mut self, conn: ConnKey, stream: StreamId, headers: &Headers, text: &str) {
        let is_grpc = headers.get(b"content-type").is_some_and(|v| parse_content_type(v).is_some());
        let (reason, answer) = if is_grpc {
            ("no_route", self.answers.end(Form::TrailersOnly, Status::Unimplemented, text.as_bytes()))
        } else {
            ("not_grpc", not_grpc())
        };
        self.stats.refuse(reason, 1);
        if let Some(conn) = self.conns.get_mut(conn) {
            let _ = conn.h2.send_headers(stream, &answer, true);
            conn.h2.reset(stream, ErrorCode::NoError);
        }
        self.after_change(conn);
    }

    /// A stream goes on under the current version from message to message, if both versions have the same
    /// instances; otherwise, or while its chain pins it, it stays.
    fn refresh_version(&mut self, now: Time, key: CallKey) {
        let call = self.calls.get_mut(key).expect("the caller has the call");
        let Some(old) = call.chain.as_ref().filter(|c| c.chain.version != self.live.plan.version) else {
            return;
        };
        let is_stream = call.method().is_some_and(|m| m.client_streaming || m.server_streaming);
        let is_pinned = old.chain.pin_stream.is_some_and(|drain| now - self.live.since < drain);
        if !is_stream || is_pinned {
            return;
        }
        let same_name = |c: &&Rc<LiveChain>| c.chain.program.name == old.chain.program.name;
        let Some(new) = self.live.chains.iter().find(same_name).filter(|new| old.can_become(new)) else {
            return;
        };
        let Some(method) = new.chain.method(call.request_headers.path().unwrap_or_default()) else { return };
        old.calls_open.set(old.calls_open.get() - 1);
        new.calls_open.set(new.calls_open.get() + 1);
        call.row = old.carry_row(new, &call.row);
        call.method = Some(method);
        call.chain = Some(Rc::clone(new));
    }

    // ---- helpers ----

    /// Credits the senders of a call for what could go on. To be called when something was taken or has left.
    pub(crate) fn settle(&mut self, key: CallKey) {
        self.settle_flow(key, true);
        self.settle_flow(key, false);
    }

    fn settle_flow(&mut self, key: CallKey, is_request: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let passes_on = !call.is_ending && !call.is_mirror;
        let (from, to) = if is_request { (call.down, call.up) } else { (call.up, call.down) };
        let flow = if is_request { &mut call.request } else { &mut call.response };
        let Some(from) = from.filter(|_| flow.owed > 0) else { return };
        // Nothing that is ahead waits for more of what comes in here, so this cannot come to a standstill.
        if passes_on {
            if !flow.held.is_empty() {
                return;
            }
            if let Some(to) = to
                && let Some(conn) = self.conns.get_mut(to.conn)
                && conn.is_full(to.stream)
            {
                if conn.h2.output().len() > OUTPUT_BYTES_HIGH && !conn.waiting.contains(&key) {
                    conn.waiting.push(key);
                }
                return;
            }
        }
        let owed = core::mem::take(&mut flow.owed);
        if let Some(conn) = self.conns.get_mut(from.conn) {
            conn.h2.release(from.stream, owed);
        }
        self.after_change(from.conn);
    }

    fn write(&mut self, leg: Leg, prefix: &[u8], data: &[u8], end: bool) {
        if let Some(conn) = self.conns.get_mut(leg.conn) {
            // A stream that was reset meanwhile takes nothing; its reset is on its way to us.
            let _ = conn.h2.send_data(leg.stream, prefix, data, end);
        }
        self.after_change(leg.conn);
    }

    fn call_mut(&mut self, key: CallKey) -> &mut Call {
        self.calls.get_mut(key).expect("the caller has looked")
    }
}

impl End {
    fn status(&self) -> Status {
        match self {
            Self::Server { trailers } => status_of(trailers),
            Self::Here { status, .. } => *status,
            Self::Dropped { .. } | Self::ClientLeft => Status::Cancelled,
        }
    }

    /// The element that ended the call.
    fn ended_by(&self) -> Option<usize> {
        match self {
            Self::Here { by, .. } => *by,
            Self::Dropped { by } => Some(*by),
            Self::Server { .. } | Self::ClientLeft => None,
        }
    }
}

/// How many elements let a call go on in this pass: those, and no others, see its end.
///
/// OPEN and REQUEST of an element are two handlers of one pass, and an element whose REQUEST ended the call has let
/// it begin. Which of them it was is told by what each could have done.
fn opened_by(live: &LiveChain, event: Event, outcome: &Outcome) -> usize {
    let element = usize::from(outcome.element);
    let could_be = |end: &Terminator| match (outcome.verdict, end) {
        (Verdict::Drop, Terminator::Drop { line })
        | (Verdict::Abort(_), Terminator::Abort { line, .. })
        | (Verdict::Reply, Terminator::Reply { line })
        | (Verdict::Failed(_), Terminator::Fail { line, .. }) => *line == outcome.line,
        _ => false,
    };
    let elements = &live.chain.program.elements;
    match outcome.verdict {
        Verdict::Forward | Verdict::Redirect => elements.len(),
        _ if event == Event::Open => element,
        _ => {
            let open = elements[element].handlers.open.as_ref();
            let ended_in_open = open.is_none_or(|open| open.blocks.iter().any(|b| could_be(&b.end)));
            element + usize::from(!ended_in_open)
        }
    }
}

/// The message as the chain reads it. A message that cannot be inflated ends its call: it must not pass unread.
fn plain_payload<'a>(
    message: &Message<'a>,
    headers: Option<&Headers>,
    limit: usize,
    inflated: &'a mut Vec<u8>,
) -> Result<&'a [u8], String> {
    if !message.compressed {
        return Ok(message.payload);
    }
    let encoding = headers.and_then(|h| h.get(b"grpc-encoding")).unwrap_or_default();
    let encoding = core::str::from_utf8(encoding).map_err(|_| "the grpc-encoding is not text".to_owned())?;
    inflated.clear();
    inflate(encoding, message.payload, limit, inflated).map_err(|e| e.to_string())?;
    Ok(inflated)
}
