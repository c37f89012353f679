//! Responses: from a server's stream through the chain to the client's stream.

use crate::call::{CallKey, Caller, HeldItem, HeldMessage};
use crate::end::End;
use crate::engine::{Engine, Timer};
use crate::headers::{fault_of, readable_response, status_of, to_forward};
use crate::verdict::{MessageOutcome, Tuple};
use std::rc::Rc;
use weft_core::{Interval, Status, Time};
use weft_ir::program::Event;
use weft_proto::session::grpc::{Message, header as prefix_of};
use weft_proto::session::http2::Headers;

impl Engine {
    /// Handles the response headers of the server, or of the call behind a filter.
    pub(crate) fn response_begun(&mut self, now: Time, key: CallKey, headers: Rc<Headers>) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if let Some((status, text)) = fault_of(&headers).filter(|_| !call.is_ending) {
            return self.end_here(now, key, status, &text);
        }
        self.spare_bodies.give_back(call.sent.take());
        let mut headers = to_forward(&headers);
        if call.chain.as_ref().is_some_and(|chain| chain.reads_requests()) {
            headers = readable_response(headers);
        }
        call.response_headers = Some(headers);
        let response = call.chain.as_ref().and_then(|c| c.chain.segments.response.as_ref());
        if !response.is_some_and(|s| s.sets_headers) {
            self.send_response_headers(now, key);
        }
    }

    /// Handles DATA of a response; `end`: it is the last.
    pub(crate) fn response_data(&mut self, now: Time, key: CallKey, data: &[u8], flow_len: u32, end: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.response.owed += flow_len;
        let reads_messages = call.chain.as_ref().is_some_and(|c| c.chain.segments.response.is_some());
        if call.is_ending {
            self.grant_credit(key);
            return;
        }
        if reads_messages {
            self.response_messages(now, key, data);
        } else {
            self.send_response(now, key, &[], data, Interval::ZERO);
        }
        self.grant_credit(key);
        if end {
            // The server omitted the trailers that gRPC requires.
            self.response_ended(now, key, None, None);
        }
    }

    /// Splits response bytes into messages and passes each through the chain. Ends the call if they are malformed.
    fn response_messages(&mut self, now: Time, key: CallKey, mut data: &[u8]) {
        let call = self.call_mut(key);
        let awaits_status = call.awaits_status();
        let mut deframer = core::mem::take(&mut call.response.deframer);
        loop {
            match deframer.next(&mut data) {
                Ok(Some(message)) => {
                    if awaits_status {
                        if self.hold_answer(key, message) {
                            continue;
                        }
                        if !self.release_answer(now, key, None) {
                            return;
                        }
                    }
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

    /// Holds the first message of a call that awaits its status. If a second one arrives, which the method does not
    /// allow, both pass without a status.
    fn hold_answer(&mut self, key: CallKey, message: Message<'_>) -> bool {
        let call = self.call_mut(key);
        if call.response.index > 0 || call.answer.is_some() {
            return false;
        }
        call.answer = Some(HeldMessage { compressed: message.compressed, payload: message.payload.to_vec() });
        true
    }

    /// Passes the held message, with its status if known. False if the call has ended.
    fn release_answer(&mut self, now: Time, key: CallKey, status: Option<Status>) -> bool {
        let call = self.call_mut(key);
        let Some(HeldMessage { compressed, payload }) = call.answer.take() else { return true };
        call.answer_status = status;
        self.response_message(now, key, Message { compressed, payload: &payload })
    }

    /// Passes one message of the response through the chain and forwards it. False if the call has ended.
    fn response_message(&mut self, now: Time, key: CallKey, message: Message<'_>) -> bool {
        self.refresh_version(now, key);
        let Some(active) = self.call_mut(key).chain.clone() else { return true };
        let Some(segment) = &active.chain.segments.response else { return true };
        let passed = self.pass(now, key, &active, segment, Tuple::Message(message));
        if matches!(passed, MessageOutcome::Ended) {
            return false;
        }
        self.stats.messages += 1;
        let delay = core::mem::take(&mut self.pass_scratch.outcome.delay);
        let call = self.calls.get_mut(key).expect("the call has not ended");
        call.response.index += 1;
        let n_edits = self.pass_scratch.outcome.edits.len();
        if let Some(headers) = &call.response_headers
            && let Some(edited) =
                self.pass_scratch.edit_headers(&active, Event::Response, false, headers, n_edits)
        {
            call.response_headers = Some(edited);
        }
        if matches!(passed, MessageOutcome::Rewritten) {
            let rewritten = core::mem::take(&mut self.rewritten);
            let prefix = prefix_of(false, rewritten.len() as u32);
            self.send_response(now, key, &prefix, &rewritten, delay);
            self.rewritten = rewritten;
        } else {
            let prefix = prefix_of(message.compressed, message.payload.len() as u32);
            self.send_response(now, key, &prefix, message.payload, delay);
        }
        self.calls.get(key).is_some_and(|call| !call.is_ending)
    }

    /// Handles the end of the server's stream: runs the rest of the response and ends the call. With `by`: an element
    /// or filter behind a filter ended it, and these are its trailers.
    pub(crate) fn response_ended(
        &mut self,
        now: Time,
        key: CallKey,
        trailers: Option<Rc<Headers>>,
        by: Option<Rc<str>>,
    ) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if call.is_ending {
            return;
        }
        call.response.is_ended = true;
        let is_whole = call.response.deframer.is_empty();
        let Some(trailers) = trailers else {
            return self.end_here(now, key, Status::Internal, "the server sent no trailers");
        };
        if trailers.status().is_some()
            && trailers.get(b"grpc-status").is_none()
            && let Some((status, text)) = fault_of(&trailers)
        {
            return self.end_here(now, key, status, &text);
        }
        if !is_whole {
            return self.end_here(now, key, Status::Internal, "the response ended within a message");
        }
        if call.answer.is_some() && !self.release_answer(now, key, Some(status_of(&trailers))) {
            return;
        }
        let call = self.call_mut(key);
        let is_all = trailers.status().is_some();
        let trailers = match &call.chain {
            Some(chain) if is_all && chain.reads_requests() => readable_response(trailers),
            _ => trailers,
        };
        let end = End::Server { trailers, by };
        match call.response.held.back().map(|h| h.due) {
            None => self.end_call(now, key, end),
            Some(due) => {
                call.is_ending = true;
                self.hold_response(key, due, HeldItem::End(Box::new(end)));
            }
        }
    }

    /// Sends the response headers to the caller, unless they were sent.
    pub(crate) fn send_response_headers(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if core::mem::replace(&mut call.is_response_begun, true) {
            return;
        }
        let Some(headers) = call.response_headers.clone() else { return };
        match call.caller {
            Caller::Stream(down) => {
                if let Some(conn) = self.conns.get_mut(down.conn) {
                    let _ = conn.h2.send_headers(down.stream, &headers, false);
                }
                self.after_change(down.conn);
            }
            Caller::Filter(outer) => self.try_begun(now, outer, key, headers),
            Caller::Detached => {}
        }
    }

    /// Forwards bytes of the response, or holds them if they are delayed or others are held.
    fn send_response(&mut self, now: Time, key: CallKey, prefix: &[u8], data: &[u8], delay: Interval) {
        if !self.call_mut(key).response.held.is_empty() || delay > Interval::ZERO {
            let bytes = [prefix, data].concat();
            return self.hold_response(key, now + delay, HeldItem::Data(bytes, false));
        }
        self.send_response_headers(now, key);
        self.forward_response(now, key, prefix, data);
    }

    /// Forwards bytes of the response to the caller.
    pub(crate) fn forward_response(&mut self, now: Time, key: CallKey, prefix: &[u8], data: &[u8]) {
        match self.calls.get(key).map(|call| call.caller) {
            Some(Caller::Stream(down)) => self.write_stream(down, prefix, data, false),
            Some(Caller::Filter(outer)) => self.try_data(now, outer, key, prefix, data),
            Some(Caller::Detached) | None => {}
        }
    }

    pub(crate) fn hold_response(&mut self, key: CallKey, due: Time, what: HeldItem) {
        self.call_mut(key).response.hold(due, what);
        self.arm_held(key, false);
    }

    /// Sends held entries of a response that are due.
    pub(crate) fn flush_response(&mut self, now: Time, key: CallKey) {
        loop {
            let Some(call) = self.calls.get_mut(key) else { return };
            let Some(held) = call.response.held.pop_front_if(|h| h.due <= now) else { break };
            match held.what {
                HeldItem::Data(bytes, _) => {
                    self.send_response_headers(now, key);
                    self.forward_response(now, key, &[], &bytes);
                }
                HeldItem::End(end) => return self.end_call(now, key, *end),
            }
        }
        self.arm_held(key, false);
        self.grant_credit(key);
    }

    /// Sets the timer to the first held entry. An entry that waits for a server needs none.
    pub(crate) fn arm_held(&mut self, key: CallKey, is_request: bool) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let waits_for_server = is_request && !call.can_send_request();
        let flow = if is_request { &mut call.request } else { &mut call.response };
        if let Some(earlier) = flow.timer.take() {
            self.timers.cancel(earlier);
        }
        if let Some(first) = flow.held.front().filter(|_| !waits_for_server) {
            let timer = if is_request { Timer::HeldRequest(key) } else { Timer::HeldResponse(key) };
            flow.timer = Some(self.timers.set(first.due, timer));
        }
    }
}
