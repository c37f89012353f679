//! Verdicts: runs a call's message through its chain, and applies the result.

use crate::call::{Call, CallKey, HeldItem, Phase};
use crate::end::{Answer, End};
use crate::engine::{Engine, Timer};
use crate::headers::{ACCEPT_ENCODING, Form, end_builder};
use crate::pass::{ActiveChain, PassInputs, rand_base};
use crate::plan::Segment;
use crate::pool::EndpointKey;
use std::rc::Rc;
use weft_core::abi::{Cell, EditTarget, Outcome, TupleEdit, Verdict};
use weft_core::table::Row;
use weft_core::{Interval, Status, Time};
use weft_ir::program::Event;
use weft_proto::session::grpc::protobuf::{EditError, Malformed, encode};
use weft_proto::session::grpc::{
    ENCODINGS, HEADER_BYTES, InflateError, Message, header as prefix_of, inflate,
};
use weft_proto::session::http2::Headers;

/// The most mirrored calls of a worker; further ones are not started, and counted.
const MIRRORS_MAX: usize = 1024;
/// The longest time of a mirrored call; then it is abandoned.
const MIRROR_TIME_MAX: Interval = Interval::from_secs(10);

/// The result of a pass for its message.
pub(crate) enum MessageOutcome {
    /// It goes on.
    On,
    /// It goes on as in `Engine::rewritten`.
    Rewritten,
    /// The call has ended, or will after its delay.
    Ended,
}

/// The tuple of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Tuple<'a> {
    /// Its headers.
    Headers,
    /// A message.
    Message(Message<'a>),
    /// Its end, and the element that caused it.
    End { status: Status, by: Option<&'a str>, trailers: Option<&'a Headers> },
}

impl Engine {
    /// Runs a pass of the request direction, and applies its header edits while the headers are held.
    pub(crate) fn pass_request(
        &mut self,
        now: Time,
        key: CallKey,
        active: &Rc<ActiveChain>,
        segment: &Segment,
        tuple: Tuple<'_>,
    ) -> MessageOutcome {
        let passed = self.pass(now, key, active, segment, tuple);
        if matches!(passed, MessageOutcome::Ended) {
            return passed;
        }
        let marks = self.pass_scratch.outcome.marks;
        self.call_mut(key).marks.merge(&marks);
        if !self.pass_scratch.outcome.mirrors.is_empty()
            && let Tuple::Message(message) = tuple
        {
            self.mirror(now, key, active, segment.event, message);
        }
        let n_edits = self.pass_scratch.outcome.edits.len();
        let call = self.calls.get_mut(key).expect("the call has not ended");
        if active.next.is_some() {
            self.pass_scratch.take_keys(active, &mut call.keys);
        }
        if call.phase == Phase::AwaitMessage
            && let Some(edited) =
                self.pass_scratch.edit_headers(active, segment.event, false, &call.request_headers, n_edits)
        {
            call.request_headers = edited;
        }
        passed
    }

    /// Runs a segment and applies its outcome.
    pub(crate) fn pass(
        &mut self,
        now: Time,
        key: CallKey,
        active: &Rc<ActiveChain>,
        segment: &Segment,
        tuple: Tuple<'_>,
    ) -> MessageOutcome {
        let event = segment.event;
        let mut inflated = core::mem::take(&mut self.inflated);
        let payload = match self.plain_payload(key, event, tuple, &mut inflated) {
            Ok(payload) => payload,
            Err(error) => {
                self.end_unread(now, key, event, &error);
                return MessageOutcome::Ended;
            }
        };
        let ran = self.run(now, key, active, segment, tuple, payload);
        let rewritten = match (&ran, payload) {
            (Ok(()), Some(payload)) => {
                self.rewritten.clear();
                let method = self.calls.get(key).and_then(|call| call.method);
                let method = method.map(|m| &active.chain.methods[m]);
                let n_edits = self.pass_scratch.outcome.edits.len();
                self.pass_scratch.rewrite(active, event, method, payload, n_edits, &mut self.rewritten)
            }
            _ => None,
        };
        self.inflated = inflated;
        if let Err(malformed) = ran {
            self.stats.refuse("grpc_malformed_message", 1);
            self.end_here(now, key, Status::Internal, &format!("the message is malformed: {malformed}"));
            return MessageOutcome::Ended;
        }
        self.take_rows(now, active);
        if event == Event::Close {
            return MessageOutcome::On;
        }
        if matches!(self.pass_scratch.outcome.verdict, Verdict::Failed(_))
            && let Some(error) = self.pass_scratch.edit_error.take()
        {
            return self.end_unwritten(now, key, &error);
        }
        if event == Event::OpenRequest || event == Event::Open {
            self.call_mut(key).opened = opened_by(active, &self.pass_scratch.outcome);
        }
        if !self.apply_outcome(now, key, active) {
            return MessageOutcome::Ended;
        }
        match rewritten {
            None => MessageOutcome::On,
            Some(Ok(())) => MessageOutcome::Rewritten,
            Some(Err(error)) => self.end_unwritten(now, key, &error),
        }
    }

    /// Ends a call whose message cannot be written with the edits of its chain.
    fn end_unwritten(&mut self, now: Time, key: CallKey, error: &EditError) -> MessageOutcome {
        if matches!(error, EditError::Malformed(_)) {
            self.stats.refuse("grpc_malformed_message", 1);
        }
        self.end_here(now, key, Status::Internal, &format!("a column cannot be set: {error}"));
        MessageOutcome::Ended
    }

    /// Returns the message as the chain reads it, decompressed if necessary. If that fails, the message must not pass
    /// unread.
    fn plain_payload<'a>(
        &self,
        key: CallKey,
        event: Event,
        tuple: Tuple<'a>,
        inflated: &'a mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, InflateError> {
        let Tuple::Message(message) = tuple else { return Ok(None) };
        if !message.compressed {
            return Ok(Some(message.payload));
        }
        let call = self.calls.get(key).expect("the caller has the call");
        let headers =
            if event.is_request() { Some(&call.request_headers) } else { call.response_headers.as_ref() };
        let encoding = headers.and_then(|h| h.get(b"grpc-encoding")).unwrap_or_default();
        inflated.clear();
        let encoding = String::from_utf8_lossy(encoding);
        let flow = if event.is_request() { &call.request } else { &call.response };
        inflate(&encoding, message.payload, flow.deframer.limit() as usize, inflated)?;
        Ok(Some(inflated))
    }

    /// Ends a call whose message cannot be decompressed. If the client's encoding is unknown, the answer lists the
    /// known ones, so that it may choose another (gRPC's "Compression").
    fn end_unread(&mut self, now: Time, key: CallKey, event: Event, error: &InflateError) {
        let text = error.to_string();
        let status = match error {
            // A compressed message without an encoding breaks the protocol.
            InflateError::UnknownEncoding(name) if event.is_request() && !name.is_empty() => {
                Status::Unimplemented
            }
            InflateError::TooLong { .. } => Status::ResourceExhausted,
            InflateError::UnknownEncoding(_) | InflateError::Corrupt => Status::Internal,
        };
        if status != Status::Unimplemented {
            return self.end_here(now, key, status, &text);
        }
        let with_offer = |form| {
            let mut builder = end_builder(form, status, text.as_bytes());
            // The name and the value are valid.
            let _ = builder.set(ACCEPT_ENCODING, ENCODINGS.as_bytes());
            builder
        };
        let builders = Box::new((with_offer(Form::TrailersOnly), with_offer(Form::Trailers)));
        self.end_call(now, key, End::Here { status, answer: Answer::Edited(builders), by: None });
    }

    /// Runs a segment on the state of the call.
    fn run(
        &mut self,
        now: Time,
        key: CallKey,
        active: &ActiveChain,
        segment: &Segment,
        tuple: Tuple<'_>,
        payload: Option<&[u8]>,
    ) -> Result<(), Malformed> {
        let event = segment.event;
        let is_response = !event.is_request();
        let upstream = if is_response { self.endpoint_of(key) } else { None };
        let upstream = upstream.and_then(|endpoint| self.endpoints.get(endpoint)).map(|e| &*e.name);
        let call = self.calls.get_mut(key).expect("the caller has the call");
        let flow = if is_response { &call.response } else { &call.request };
        let headers = if is_response { call.response_headers.as_ref() } else { Some(&call.request_headers) };
        let (status, ended_by, trailers) = match tuple {
            Tuple::End { status, by, trailers } => (Some(status), by, trailers),
            Tuple::Message(_) => (call.answer_status.filter(|_| is_response), None, None),
            Tuple::Headers => (None, None, None),
        };
        let pass_inputs = PassInputs {
            now,
            rand: rand_base(self.config.seed, call.id, call.nth_try, flow.index, event),
            expired_row: Row::NONE,
            payload,
            method: call.method.map(|m| &active.chain.methods[m]),
            path: call.request_headers.path().unwrap_or_default(),
            peer: &call.peer,
            headers: headers.map(|h| &**h),
            trailers,
            size: if let Tuple::Message(message) = tuple { message.payload.len() as u64 } else { 0 },
            index: flow.index,
            call_id: call.id,
            status,
            elapsed: is_response.then(|| now - call.began),
            upstream,
            ended_by,
        };
        let opened = if event == Event::Close { call.opened } else { active.chain.program.elements.len() };
        self.pass_scratch.run(active, segment, &pass_inputs, &mut call.row, opened)
    }

    /// Returns the endpoint of a call. If the call is at a filter: the one that answered a try, or that of the latest
    /// open try.
    fn endpoint_of(&self, key: CallKey) -> Option<EndpointKey> {
        let call = self.calls.get(key)?;
        let of_try = || self.endpoint_of(call.filtered.as_ref()?.tries().last()?);
        call.endpoint.or(call.served_by).or_else(of_try)
    }

    /// Applies the outcome of the last pass. False if the call has ended.
    fn apply_outcome(&mut self, now: Time, key: CallKey, active: &Rc<ActiveChain>) -> bool {
        let element = usize::from(self.pass_scratch.outcome.element);
        let name = || Rc::clone(&active.names[element]);
        let end = match self.pass_scratch.outcome.verdict {
            Verdict::Forward => return true,
            Verdict::Redirect => return self.redirect(now, key),
            Verdict::Drop => End::Dropped { by: name() },
            Verdict::Abort(status) => {
                End::Here { status, answer: self.abort_answer(active, status), by: Some(name()) }
            }
            Verdict::Failed(fault) => {
                let text = format!("element `{}` failed: {}", name(), fault.name()).into_bytes();
                End::Here { status: Status::Internal, answer: Answer::Text(text), by: Some(name()) }
            }
            Verdict::Reply => match self.reply(key, active) {
                Ok(message) => {
                    End::Here { status: Status::Ok, answer: Answer::Reply(message), by: Some(name()) }
                }
                Err(text) => {
                    End::Here { status: Status::Internal, answer: Answer::Text(text), by: Some(name()) }
                }
            },
        };
        let delay = self.pass_scratch.outcome.delay;
        let call = self.call_mut(key);
        if delay > Interval::ZERO {
            call.is_ending = true;
            self.hold_response(key, now + delay, HeldItem::End(Box::new(end)));
        } else {
            self.end_call(now, key, end);
        }
        false
    }

    /// Sets the target of a call from its REDIRECT. False if the target is unknown and the call has ended.
    fn redirect(&mut self, now: Time, key: CallKey) -> bool {
        self.pass_scratch.outcome.materialize();
        let Some((pool, endpoint)) = self.active.target(&self.pass_scratch.outcome.text) else {
            let target = String::from_utf8_lossy(&self.pass_scratch.outcome.text).into_owned();
            let text = format!("REDIRECT names neither a cluster nor an endpoint of one: `{target}`");
            self.end_here(now, key, Status::Unavailable, &text);
            return false;
        };
        let call = self.call_mut(key);
        if call.phase == Phase::AwaitMessage {
            (call.pool, call.endpoint, call.is_redirected) = (pool, endpoint, endpoint.is_some());
            call.response.deframer.set_limit(call.pool.cluster.options.message_size_max);
        }
        true
    }

    /// Returns the answer to an ABORT: its status and text, with the headers that the program has set.
    fn abort_answer(&self, active: &ActiveChain, status: Status) -> Answer {
        let outcome = &self.pass_scratch.outcome;
        let answers = outcome.edits.iter().filter_map(|edit| match edit.target {
            EditTarget::Answer(id) => Some((&active.chain.program.answers[usize::from(id)].name, edit.value)),
            _ => None,
        });
        let mut builders = None;
        for (name, value) in answers {
            let (only, trailers) = builders.get_or_insert_with(|| {
                let of = |form| end_builder(form, status, &outcome.text);
                (of(Form::TrailersOnly), of(Form::Trailers))
            });
            self.pass_scratch.set_header(only, name.as_bytes(), value);
            self.pass_scratch.set_header(trailers, name.as_bytes(), value);
        }
        match builders {
            Some(builders) => Answer::Edited(Box::new(builders)),
            None => Answer::Text(outcome.text.clone()),
        }
    }

    /// Builds the message of a REPLY, with its prefix; an error is the text of the failure.
    fn reply(&self, key: CallKey, active: &ActiveChain) -> Result<Vec<u8>, Vec<u8>> {
        let call = self.calls.get(key).expect("the caller has the call");
        let outcome = &self.pass_scratch.outcome;
        let is_whole = |edit: &&TupleEdit| match edit.target {
            EditTarget::Reply(id) => active.chain.program.replies[usize::from(id)].path.is_empty(),
            _ => false,
        };
        if let Some(TupleEdit { value: Cell::Bytes(start, len), .. }) = outcome.edits.iter().find(is_whole) {
            return Ok([&prefix_of(false, *len)[..], outcome.kept(*start, *len)].concat());
        }
        let method = call.method().ok_or_else(|| b"REPLY: the method is not in the schemas".to_vec())?;
        let replies = &active.chain.program.replies;
        let paths: Vec<Vec<&str>> =
            replies.iter().map(|r| r.path.iter().map(String::as_str).collect()).collect();
        let values: Vec<_> = self
            .pass_scratch
            .outcome
            .edits
            .iter()
            .filter_map(|edit| match edit.target {
                EditTarget::Reply(id) => {
                    Some((&paths[usize::from(id)][..], self.pass_scratch.edit_value(edit.value)))
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

    /// Sends copies of a message, and of its call's headers, to the targets of MIRROR, each as it was when the
    /// statement ran. Responses are discarded.
    fn mirror(&mut self, now: Time, key: CallKey, active: &ActiveChain, event: Event, message: Message<'_>) {
        let call = self.calls.get(key).expect("the caller has the call");
        let (began, marks, method) = (call.began, call.marks, call.method.map(|m| &active.chain.methods[m]));
        let peer = Rc::clone(&call.peer);
        let original = Rc::clone(&call.request_headers);
        let limit = call.request.deframer.limit();
        for nth in 0..self.pass_scratch.outcome.mirrors.len() {
            let outcome = &self.pass_scratch.outcome;
            let mirror = outcome.mirrors[nth];
            let name = outcome.kept(mirror.target.0, mirror.target.1);
            let Some((pool, endpoint)) = self.active.target(name) else { continue };
            if self.n_mirrors >= MIRRORS_MAX {
                self.stats.refuse("mirrors_max", 1);
                continue;
            }
            let n_edits = mirror.edits as usize;
            let edited = self.pass_scratch.edit_headers(active, event, false, &original, n_edits);
            let headers = edited.unwrap_or_else(|| Rc::clone(&original));
            let plain = if message.compressed { &self.inflated[..] } else { message.payload };
            let mut rewritten = Vec::new();
            let bytes = match self.pass_scratch.rewrite(active, event, method, plain, n_edits, &mut rewritten)
            {
                Some(Ok(())) => [&prefix_of(false, rewritten.len() as u32)[..], &rewritten].concat(),
                // The pass fails for the same reason, and the call ends.
                Some(Err(_)) => continue,
                None => {
                    let prefix = prefix_of(message.compressed, message.payload.len() as u32);
                    [&prefix[..], message.payload].concat()
                }
            };
            self.n_mirrors += 1;
            let id = self.next_call;
            self.next_call += 1;
            let mut call = Call {
                endpoint,
                is_redirected: endpoint.is_some(),
                is_response_begun: true,
                is_mirror: true,
                marks,
                ..Call::new(id, began, Rc::clone(&peer), pool, headers, limit)
            };
            call.request.is_ended = true;
            call.request.is_end_queued = true;
            call.request.hold(now, HeldItem::Data(bytes, true));
            let mirror = self.calls.insert(call);
            let timer = self.timers.set(now + MIRROR_TIME_MAX, Timer::Deadline(mirror));
            self.call_mut(mirror).deadline = Some(timer);
            self.dispatch(now, mirror);
        }
    }
}

/// Counts the elements that forwarded the call in this pass: only they see its end. OPEN and REQUEST of an element
/// are two handlers of one pass, and an element whose REQUEST ended the call has opened it.
fn opened_by(active: &ActiveChain, outcome: &Outcome) -> usize {
    match outcome.verdict {
        Verdict::Forward | Verdict::Redirect => active.chain.program.elements.len(),
        _ => usize::from(outcome.element) + usize::from(!outcome.opening),
    }
}
