//! Ends calls: runs CLOSE, answers the client and releases what the call holds. Each call ends exactly once.

use crate::call::{CallKey, Caller, StreamRef};
use crate::engine::Engine;
use crate::headers::{Form, status_of};
use crate::verdict::Tuple;
use std::rc::Rc;
use weft_core::{Status, Time};
use weft_ir::program::Event;
use weft_proto::session::grpc::MessageError;
use weft_proto::session::http2::{ErrorCode, Headers, HeadersBuilder};

/// Rows of ended calls that are kept for reuse.
const SPARE_ROWS_MAX: usize = 4096;

/// How a call ends.
pub(crate) enum End {
    /// The server ended it with these trailers, which may be its whole response. They may also come from an element or
    /// a filter behind another filter, `by`.
    Server { trailers: Rc<Headers>, by: Option<Rc<str>> },
    /// This node ends it.
    Here { status: Status, answer: Answer, by: Option<Rc<str>> },
    /// This node resets it without an answer (`DROP`).
    Dropped { by: Rc<str> },
    /// The server has not processed it: the client may retry.
    Refused,
    /// The client has left.
    ClientLeft,
}

/// This node's answer when it ends a call.
pub(crate) enum Answer {
    /// A message.
    Text(Vec<u8>),
    /// A message, and headers or trailers that `ABORT ... WITH` set.
    Edited(Box<(HeadersBuilder, HeadersBuilder)>),
    /// A response message, with its prefix (`REPLY`).
    Reply(Vec<u8>),
}

impl Engine {
    /// Ends a call whose deadline has passed. If the call is a try of a filter, the timeout is TIMEOUT TRY.
    pub(crate) fn deadline_passed(&mut self, now: Time, key: CallKey) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.deadline = None;
        let Caller::Filter(outer) = call.caller else {
            return self.end_here(now, key, Status::DeadlineExceeded, "the call's deadline has passed");
        };
        // TIMEOUT TRY.
        let by =
            self.calls.get(outer).and_then(|outer| Some(Rc::clone(&outer.filtered.as_ref()?.filter.name)));
        let name = by.as_deref().unwrap_or_default();
        let answer = Answer::Text(format!("filter `{name}`: a try has taken too long").into_bytes());
        self.end_call(now, key, End::Here { status: Status::DeadlineExceeded, answer, by });
    }

    /// Ends a call whose byte stream is not a sequence of gRPC messages, and counts it as refused.
    pub(crate) fn message_fault(&mut self, now: Time, key: CallKey, error: MessageError) {
        let status = match error {
            MessageError::TooLong { .. } => Status::ResourceExhausted,
            MessageError::UnknownFlags(_) => Status::Internal,
        };
        self.stats.refuse("grpc_message", 1);
        self.end_here(now, key, status, &error.to_string());
    }

    pub(crate) fn end_here(&mut self, now: Time, key: CallKey, status: Status, text: &str) {
        let answer = Answer::Text(text.as_bytes().to_vec());
        self.end_call(now, key, End::Here { status, answer, by: None });
    }

    /// Ends a call: runs CLOSE of the opened elements, sends the last bytes to the client, and releases its resources.
    pub(crate) fn end_call(&mut self, now: Time, key: CallKey, end: End) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let status = end.status();
        let by = end.ended_by().cloned();
        let has_left = matches!(end, End::ClientLeft);
        let is_drop = matches!(end, End::Dropped { .. });
        call.is_ending = true;
        let active = call.chain.clone();
        let form = if call.is_response_begun { Form::Trailers } else { Form::TrailersOnly };
        let mut reset = ErrorCode::Cancel;
        let (reply, mut last) = match end {
            End::Server { trailers, .. } => (None, Some(trailers)),
            End::Here { answer: Answer::Text(text), .. } => {
                (None, Some(self.responses.end_headers(form, status, &text)))
            }
            End::Here { answer: Answer::Edited(builders), .. } => {
                let (only, trailers) = *builders;
                let builder = if form == Form::TrailersOnly { only } else { trailers };
                (None, Some(builder.build()))
            }
            End::Here { answer: Answer::Reply(message), .. } => {
                (Some(message), Some(self.responses.end_headers(Form::Trailers, Status::Ok, b"")))
            }
            End::Refused if form == Form::Trailers => {
                (None, Some(self.responses.end_headers(form, status, b"the server has refused the stream")))
            }
            End::Refused => {
                reset = ErrorCode::RefusedStream;
                (None, None)
            }
            End::Dropped { .. } | End::ClientLeft => (None, None),
        };
        if let Some(active) = &active
            && let Some(close) = &active.chain.segments.close
            && self.call_mut(key).opened > 0
        {
            let by = by.as_deref();
            // A failing CLOSE handler has no caller left to report to: it is counted, and the call ends normally.
            let _ = self.pass(now, key, active, close, Tuple::End { status, by, trailers: last.as_deref() });
            let edited = last.as_ref().and_then(|t| {
                let n_edits = self.pass_scratch.outcome.edits.len();
                self.pass_scratch.edit_headers(active, Event::Close, true, t, n_edits)
            });
            last = edited.or(last);
        }
        let Some(call) = self.calls.get(key) else { return };
        match call.caller {
            Caller::Stream(down) => {
                self.send_end(now, key, down, reply, last, reset);
                self.release_call(now, key, status, has_left);
            }
            Caller::Detached => self.release_call(now, key, status, has_left),
            Caller::Filter(outer) => {
                let served = call.endpoint.filter(|_| call.filtered.is_none()).or(call.served_by);
                self.release_call(now, key, status, has_left);
                let end = match (reply, last, by) {
                    (Some(message), _, by) => End::Here { status, answer: Answer::Reply(message), by },
                    (None, Some(trailers), by) => End::Server { trailers, by },
                    (None, None, Some(by)) if is_drop => End::Dropped { by },
                    (None, None, _) if has_left => return,
                    (None, None, _) => End::Refused,
                };
                self.try_ended(now, outer, key, served, end);
            }
        }
    }

    /// Sends the last bytes to the client: trailers, or a reset.
    fn send_end(
        &mut self,
        now: Time,
        key: CallKey,
        down: StreamRef,
        reply: Option<Vec<u8>>,
        last: Option<Rc<Headers>>,
        reset: ErrorCode,
    ) {
        if let Some(message) = reply {
            let headers = self.responses.response();
            self.call_mut(key).response_headers = Some(headers);
            self.send_response_headers(now, key);
            self.write_stream(down, &[], &message, false);
        } else if last.as_ref().is_some_and(|l| l.status().is_none()) {
            // Response headers were held for a message that did not arrive.
            self.send_response_headers(now, key);
        }
        let call = self.call_mut(key);
        let is_request_over = call.request.is_ended;
        // No server was chosen: it was refused before.
        let is_early = call.endpoint.is_none() && call.served_by.is_none() && !call.is_response_begun;
        let Some(conn) = self.conns.get_mut(down.conn) else { return };
        match last {
            Some(last) if is_early && last.status().is_some() => conn.h2.refuse(down.stream, &last),
            Some(last) => {
                let _ = conn.h2.send_headers(down.stream, &last, true);
                // RFC 9113 section 8.1: a server that has answered in full may ask the client to stop sending.
                if !is_request_over && conn.h2.queued(down.stream) == 0 {
                    conn.h2.reset(down.stream, ErrorCode::NoError);
                }
            }
            None => conn.h2.reset(down.stream, reset),
        }
        self.after_change(down.conn);
    }

    /// Releases the resources of a call, and counts it.
    fn release_call(&mut self, now: Time, key: CallKey, status: Status, has_left: bool) {
        let Some(mut call) = self.calls.remove(key) else { return };
        if let Some(down) = call.down()
            && let Some(conn) = self.conns.get_mut(down.conn)
        {
            conn.streams.remove(&down.stream);
            conn.h2.release(down.stream, call.request.owed);
            self.after_change(down.conn);
            self.close_if_drained(now, down.conn);
        }
        for at in core::mem::take(&mut call.queue_slots).into_iter().flatten() {
            self.leave_call_queue(now, at);
        }
        if let Some(up) = call.up {
            self.leave_upstream(now, up, call.endpoint, call.response.owed);
        } else if let Some(wrap) = call.filtered.take() {
            self.abandon_filter(now, &call, wrap, (!has_left).then_some(status));
        } else if let Some(endpoint) = call.endpoint.and_then(|e| self.endpoints.get_mut(e)) {
            // It may be among the waiting calls.
            endpoint.n_gone += 1;
        }
        for timer in [call.deadline, call.request.timer, call.response.timer].into_iter().flatten() {
            self.timers.cancel(timer);
        }
        if let Some(chain) = call.chain.take() {
            chain.calls_open.set(chain.calls_open.get() - 1);
        }
        self.spare_bodies.give_back(call.sent.take());
        let is_try = call.is_try();
        call.row.clear();
        if call.row.capacity() > 0 && self.spare_rows.len() < SPARE_ROWS_MAX {
            self.spare_rows.push(call.row);
        }
        if call.is_mirror {
            self.n_mirrors -= 1;
        } else if is_try {
            self.n_tries -= 1;
        } else if !call.is_detached {
            self.stats.calls_ended[usize::from(status.code())] += 1;
            self.stats.latency.record(now - call.began);
        }
    }

    /// Whether the end of a call is decided, and only delayed.
    pub(crate) fn has_answer(&self, key: CallKey) -> bool {
        self.calls.get(key).is_some_and(|call| call.is_ending)
    }
}

impl End {
    /// Returns the status that the client sees, or the one that stands for an end without an answer.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Server { trailers, .. } => status_of(trailers),
            Self::Here { status, .. } => *status,
            Self::Refused => Status::Unavailable,
            Self::Dropped { .. } | Self::ClientLeft => Status::Cancelled,
        }
    }

    /// Returns the trailers of the server, if the server ended the call.
    pub(crate) fn trailers(&self) -> Option<&Rc<Headers>> {
        match self {
            Self::Server { trailers, .. } => Some(trailers),
            _ => None,
        }
    }

    /// Returns the element or the filter that ended the call. None if neither did.
    pub(crate) fn ended_by(&self) -> Option<&Rc<str>> {
        match self {
            Self::Server { by, .. } | Self::Here { by, .. } => by.as_ref(),
            Self::Dropped { by } => Some(by),
            Self::Refused | Self::ClientLeft => None,
        }
    }

    /// Whether this filter's timeout ended it.
    pub(crate) fn is_timeout_of(&self, filter: &Rc<str>) -> bool {
        self.status() == Status::DeadlineExceeded && self.ended_by() == Some(filter)
    }
}
