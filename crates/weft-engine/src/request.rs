//! Requests: from a client's stream through a chain to a server's stream.
//!
//! A call with one request message ([`Call::is_single_request`]) enters its chain when the message is complete: OPEN
//! and REQUEST of each element are one pass, and the headers leave with the message. Other calls run OPEN when their
//! headers arrive. Only data that must wait is copied; its sender gets no credit for it.

use crate::active_plan::RouteMatch;
use crate::call::{Call, CallKey, Caller, HeldItem, Phase, StreamRef};
use crate::conn::{ConnKey, Side};
use crate::end::End;
use crate::engine::{Engine, Timer};
use crate::headers::{Form, narrowed_offer, not_grpc};
use crate::routes::{Refusal, RefusalResponse};
use crate::verdict::{MessageOutcome, Tuple};
use std::rc::Rc;
use weft_core::{Interval, Status, Time};
use weft_proto::session::grpc::header::parse_timeout;
use weft_proto::session::grpc::{Message, header as prefix_of};
use weft_proto::session::http2::{Headers, StreamId};

impl Engine {
    /// Begins the call of a client's new stream: checks its headers, matches its route, and opens it or refuses the
    /// stream.
    pub(crate) fn begin_call(
        &mut self,
        now: Time,
        conn: ConnKey,
        stream: StreamId,
        headers: Rc<Headers>,
        ended: bool,
    ) {
        let Some(Side::Downstream { peer, .. }) = self.conns.get(conn).map(|conn| &conn.side) else { return };
        let peer = Rc::clone(peer);
        let RouteMatch { route, chain, method, is_offer_narrowed } =
            match self.match_route(now, conn, &headers) {
                Ok(matched) => matched,
                Err(refusal) => return self.refuse(conn, stream, refusal),
            };
        let headers = match is_offer_narrowed {
            true => narrowed_offer(&headers).unwrap_or(headers),
            false => headers,
        };
        let active = Rc::clone(&self.active);
        let chain = chain.map(|c| Rc::clone(&active.chains[c]));
        let pool = &active.pools[active.plan.routes[route].cluster];
        let deadline = headers.get(b"grpc-timeout").and_then(parse_timeout).or(pool.cluster.options.deadline);
        let id = self.next_call;
        self.next_call += 1;
        self.stats.calls_begun += 1;
        let mut row = self.spare_rows.pop().unwrap_or_default();
        if let Some(chain) = &chain {
            chain.calls_open.set(chain.calls_open.get() + 1);
            row.resize(chain.chain.program.call_words(), 0);
        }
        let limit = match self.conns.get(conn).map(|conn| &conn.side) {
            Some(Side::Downstream { options, .. }) => options.message_size_max,
            _ => return,
        };
        let key = self.calls.insert(Call {
            caller: Caller::Stream(StreamRef { conn, stream }),
            due: deadline.map(|timeout| now + timeout),
            chain,
            method,
            row,
            ..Call::new(id, now, peer, Rc::clone(pool), headers, limit)
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

    /// Answers a stream that is not a call with the refusal, and counts it.
    fn refuse(&mut self, conn: ConnKey, stream: StreamId, refusal: Refusal) {
        self.stats.refuse(refusal.reason(), 1);
        let answer = match refusal.response() {
            RefusalResponse::Grpc(status, text) => {
                self.responses.end_headers(Form::TrailersOnly, status, text.as_bytes())
            }
            RefusalResponse::Http(status) => not_grpc(status),
        };
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.h2.refuse(stream, &answer);
        }
        self.after_change(conn);
    }

    /// Starts a call: runs OPEN and dispatches it. A single-request call first waits for its message; a chain whose
    /// REQUEST sets headers, keys or the target may delay the dispatch. `ended`: the client has ended its stream.
    pub(crate) fn open_call(&mut self, now: Time, key: CallKey, ended: bool) {
        let call = self.call_mut(key);
        call.request.is_ended = ended;
        if let Some(active) = call.chain.clone() {
            let segments = &active.chain.segments;
            if call.is_single_request() && segments.open_request.is_some() {
                if ended {
                    // A chain that reads messages must not be bypassed.
                    return self.end_here(now, key, Status::Internal, "the request has no message");
                }
                call.phase = Phase::AwaitMessage;
                return;
            }
            if let Some(open) = &segments.open {
                let passed = self.pass_request(now, key, &active, open, Tuple::Headers);
                if matches!(passed, MessageOutcome::Ended) {
                    return;
                }
            }
            let delay = core::mem::take(&mut self.pass_scratch.outcome.delay);
            let call = self.call_mut(key);
            if segments.open.is_some() && delay > Interval::ZERO {
                call.request.is_end_queued = ended;
                call.request.hold(now + delay, HeldItem::Data(Vec::new(), ended));
            }
            call.opened = active.chain.program.elements.len();
            let decides = segments.request.as_ref().is_some_and(|s| s.redirects || s.sets_headers);
            let gives_keys = segments.request.as_ref().is_some_and(|s| s.sets_keys);
            let is_asked_first = call.method().is_some_and(|m| !m.server_streaming);
            if (gives_keys || decides && is_asked_first) && !ended {
                call.phase = Phase::AwaitMessage;
                return;
            }
        }
        self.dispatch(now, key);
    }

    /// Handles DATA of a request, from the client or from the filter in front; `end`: it is the last.
    pub(crate) fn request_data(&mut self, now: Time, key: CallKey, data: &[u8], flow_len: u32, end: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.request.owed += flow_len;
        call.request.is_ended |= end;
        if call.is_ending {
            self.grant_credit(key);
            return;
        }
        let reads_messages = call.phase == Phase::AwaitMessage
            || call.chain.as_ref().is_some_and(|c| c.chain.segments.request.is_some());
        if reads_messages {
            self.request_messages(now, key, data, end);
        } else {
            self.send_request(now, key, &[], data, end, Interval::ZERO);
        }
        self.probe_length_again(now, key);
        self.grant_credit(key);
    }

    /// Splits request bytes into messages and passes each through the chain. Ends the call if they are malformed or
    /// incomplete.
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
            self.end_request(now, key);
        }
    }

    /// Handles the end of a request that came after its last message, or without a message.
    fn end_request(&mut self, now: Time, key: CallKey) {
        let call = self.call_mut(key);
        if call.phase == Phase::AwaitMessage && call.request.index == 0 {
            if call.opened == 0 {
                return self.open_call(now, key, true);
            }
            self.dispatch(now, key);
        }
        self.send_request(now, key, &[], &[], true, Interval::ZERO);
    }

    /// Trailers of a request: gRPC has none, so they only end it.
    pub(crate) fn request_ended(&mut self, now: Time, key: CallKey) {
        self.request_data(now, key, &[], 0, true);
    }

    /// Passes one message of the request through the chain and forwards it. False if the call has ended.
    fn request_message(&mut self, now: Time, key: CallKey, message: Message<'_>, last: bool) -> bool {
        self.refresh_version(now, key);
        let call = self.call_mut(key);
        let Some(active) = call.chain.clone() else { return true };
        let segments = &active.chain.segments;
        let is_first = call.phase == Phase::AwaitMessage;
        let segment = if is_first && call.opened == 0 { &segments.open_request } else { &segments.request };
        let mut passed = MessageOutcome::On;
        if let Some(segment) = segment {
            passed = self.pass_request(now, key, &active, segment, Tuple::Message(message));
        }
        if matches!(passed, MessageOutcome::Ended) {
            return false;
        }
        self.stats.messages += 1;
        let delay = core::mem::take(&mut self.pass_scratch.outcome.delay);
        // A try behind a filter passes its own chain directly.
        let rewritten =
            matches!(passed, MessageOutcome::Rewritten).then(|| core::mem::take(&mut self.rewritten));
        let call = self.call_mut(key);
        call.request.index += 1;
        if is_first {
            call.opened = active.chain.program.elements.len();
            call.phase = Phase::AwaitUpstream;
            self.dispatch(now, key);
        }
        if let Some(rewritten) = rewritten {
            let prefix = prefix_of(false, rewritten.len() as u32);
            self.send_request(now, key, &prefix, &rewritten, last, delay);
            self.rewritten = rewritten;
        } else {
            let prefix = prefix_of(message.compressed, message.payload.len() as u32);
            self.send_request(now, key, &prefix, message.payload, last, delay);
        }
        self.calls.get(key).is_some_and(|c| !c.is_ending)
    }

    /// Forwards bytes of the request, or holds them if they are delayed or others are held.
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
        if call.can_send_request() && call.request.held.is_empty() && delay <= Interval::ZERO {
            self.forward_request(now, key, prefix, data, end);
        } else {
            let bytes = [prefix, data].concat();
            call.request.hold(now + delay, HeldItem::Data(bytes, end));
            self.arm_held(key, true);
        }
    }

    /// Forwards bytes of the request to the next stage: the server, or the chain's filter.
    fn forward_request(&mut self, now: Time, key: CallKey, prefix: &[u8], data: &[u8], end: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        match (&call.filtered, call.up) {
            (Some(_), _) if prefix.is_empty() => self.filter_request(now, key, data, end),
            (Some(_), _) => self.filter_request(now, key, &[prefix, data].concat(), end),
            (None, Some(up)) => {
                if let Some(sent) = &mut call.sent
                    && !sent.push(prefix, data, end)
                {
                    call.sent = None;
                }
                self.write_stream(up, prefix, data, end);
            }
            (None, None) => {}
        }
    }

    /// Sends held entries of a request that are due.
    pub(crate) fn flush_request(&mut self, now: Time, key: CallKey) {
        loop {
            let Some(call) = self.calls.get_mut(key).filter(|call| call.can_send_request()) else { return };
            let Some(held) = call.request.held.pop_front_if(|h| h.due <= now) else { break };
            if let HeldItem::Data(bytes, end) = held.what {
                self.forward_request(now, key, &[], &bytes, end);
            }
        }
        self.arm_held(key, true);
        self.grant_credit(key);
    }

    /// Ends a call whose client has reset its stream, or whose connection is gone.
    pub(crate) fn client_left(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let owed = core::mem::take(&mut call.request.owed);
        if let Caller::Stream(down) = core::mem::replace(&mut call.caller, Caller::Detached)
            && let Some(conn) = self.conns.get_mut(down.conn)
        {
            // The stream is gone, but its data counts for the connection's window.
            conn.h2.release(down.stream, owed);
            self.after_change(down.conn);
        }
        self.end_call(now, key, End::ClientLeft);
    }

    pub(crate) fn call_mut(&mut self, key: CallKey) -> &mut Call {
        self.calls.get_mut(key).expect("the caller has looked")
    }
}
