//! Tries of a call at a filter: how they start, and what their ends decide.
//!
//! A filter that never repeats a call has one try, and forwards its answer as it arrives. A filter that may repeat a
//! call examines the answer first: a unary response until it is complete, a stream until its first message. After that
//! the client has seen data, and the call cannot be repeated.

use super::admit::DeferredAction;
use super::{ActiveFilter, FilteredCall, endpoint_hash};
use crate::call::{Call, CallKey, Caller, Phase};
use crate::end::{Answer, End};
use crate::engine::{Engine, Timer};
use crate::filter::outlier::ejected_max;
use crate::headers::{with_header, without_header};
use crate::pool::EndpointKey;
use std::rc::Rc;
use weft_core::filter::{Backoff, Reliability, Retry, StatusSet, TRIES_MAX, Transport};
use weft_core::{Interval, Status, Time, hash};
use weft_proto::session::grpc::HEADER_BYTES;
use weft_proto::session::grpc::header::write_timeout;
use weft_proto::session::http2::{Headers, HeadersBuilder};

/// The caller's timeout (gRPC over HTTP/2).
const TIMEOUT: &[u8] = b"grpc-timeout";
/// The number of earlier tries, for servers (gRFC A6).
const PREVIOUS_ATTEMPTS: &[u8] = b"grpc-previous-rpc-attempts";
/// The server's pushback: milliseconds until the next try, or a negative number for none (gRFC A6).
const PUSHBACK: &[u8] = b"grpc-retry-pushback-ms";

/// Several filters may start tries of one call.
const TRIES_OF_TRY: u32 = 2 * TRIES_MAX + 1;

/// An open try.
pub(super) struct Try {
    pub(super) call: CallKey,
    answered: PartialResponse,
}

/// The response of a try, or of a server, so far.
#[derive(Default)]
pub(crate) struct PartialResponse {
    headers: Option<Rc<Headers>>,
    data: Vec<u8>,
}

/// An ended try.
pub(super) struct TryResult {
    end: End,
    answered: PartialResponse,
}

/// Constraints of filters on the choice of an endpoint.
#[derive(Clone, Default)]
pub(crate) struct EndpointConstraints {
    /// The filters whose OUTLIER counts this call.
    pub(crate) outliers: Vec<Rc<ActiveFilter>>,
    /// The required transport.
    pub(crate) over: Option<Transport>,
    /// Endpoints of other tries: others are preferred.
    pub(crate) tried: Vec<EndpointKey>,
}

/// How a call continues after a try has ended.
enum NextStep {
    /// This try's answer is the call's.
    Win,
    /// Another try may still answer.
    Await,
    /// Another try starts now.
    Hedge,
    /// Another try starts after this time.
    Retry(Interval),
}

impl Try {
    pub(super) fn held_bytes(&self) -> usize {
        self.answered.data.capacity()
    }
}

impl Engine {
    /// Handles bytes of the request from the elements in front of the filter: keeps them if the call may be sent more
    /// than once, otherwise forwards them to the try.
    pub(crate) fn filter_request(&mut self, now: Time, key: CallKey, data: &[u8], end: bool) {
        let Some(call) = self.calls.get(key) else { return };
        let bytes_max = call.request.deframer.limit() as usize + HEADER_BYTES;
        let Some(filtered) = self.filtered_mut(key) else { return };
        if filtered.gathers() {
            if filtered.request.len() + data.len() > bytes_max {
                return self.refuse_call(
                    now,
                    key,
                    Status::ResourceExhausted,
                    "the request is too large to be kept",
                );
            }
            filtered.request.extend_from_slice(data);
            if end && !core::mem::replace(&mut filtered.is_whole, true) {
                self.admit(now, key);
            }
        } else if let Some(child) = filtered.winner {
            self.request_data(now, child, data, 0, end);
        }
    }

    /// Starts the first try of an admitted call.
    pub(super) fn begin_tries(&mut self, now: Time, key: CallKey) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        if filtered.n_tries == 0 {
            filtered.sent = now;
            self.begin_try(now, key);
        }
    }

    /// Starts a try: creates its call, gives it the request as far as it has arrived, and sets the hedge timer.
    pub(super) fn begin_try(&mut self, now: Time, key: CallKey) {
        let Some(child) = self.make_try(now, key) else { return };
        let Some(filtered) = self.filtered_mut(key) else { return };
        let gathers = filtered.gathers();
        let request = core::mem::take(&mut filtered.request);
        let call = self.call_mut(key);
        let is_bare = !gathers && call.request.is_empty();
        call.request.is_end_queued |= is_bare;
        self.open_call(now, child, is_bare);
        if gathers {
            self.request_data(now, child, &request, 0, true);
            if let Some(filtered) = self.filtered_mut(key) {
                filtered.request = request;
            }
        } else {
            self.flush_request(now, key);
        }
        self.set_hedge_timer(now, key);
    }

    /// Creates the call of a try and its entry among the tries. None if the call is gone or no longer at a filter.
    fn make_try(&mut self, now: Time, key: CallKey) -> Option<CallKey> {
        let call = self.calls.get(key)?;
        let filtered = call.filtered.as_ref()?;
        let active = Rc::clone(&filtered.filter);
        let timeouts = active.policies().timeouts;
        let nth = filtered.n_tries;
        let per_try = timeouts.per_try.map(|limit| now + limit);
        let total = timeouts.total.map(|limit| filtered.began + limit);
        // A call that takes effect once continues after its caller's deadline, so the server does not get the deadline.
        let is_once = active.is_once();
        let due = [call.due.filter(|_| !is_once), per_try, total].into_iter().flatten().min();
        let mut headers = Rc::clone(&call.request_headers);
        if is_once && headers.get(TIMEOUT).is_some() {
            headers = without_header(&headers, TIMEOUT);
        }
        if let (Some(less), Some(due)) = (timeouts.propagate, due) {
            let mut left = Vec::new();
            write_timeout(due - (now + less), &mut left);
            headers = with_header(&headers, TIMEOUT, &left);
        }
        if nth > 0 {
            headers = with_header(&headers, PREVIOUS_ATTEMPTS, nth.to_string().as_bytes());
        }
        let mut choice = call.choice.as_deref().cloned().unwrap_or_default();
        if active.policies().outlier.is_some() {
            choice.outliers.push(Rc::clone(&active));
        }
        choice.over = active.policies().over.or(choice.over);
        let others = filtered.tries().filter_map(|one| self.calls.get(one)?.endpoint);
        choice.tried.extend(others.chain(call.served_by));
        let next = Rc::clone(&active.next);
        let mut row = self.spare_rows.pop().unwrap_or_default();
        row.resize(next.chain.program.call_words(), 0);
        next.calls_open.set(next.calls_open.get() + 1);
        let limit = call.request.deframer.limit();
        let child = Call {
            caller: Caller::Filter(key),
            chain: Some(next),
            method: call.method,
            row,
            endpoint: call.endpoint.filter(|_| call.is_redirected),
            is_redirected: call.is_redirected,
            // Tries of tries all differ: each draws its own random numbers.
            nth_try: call.nth_try.wrapping_mul(TRIES_OF_TRY) + nth,
            due,
            marks: call.marks,
            choice: (!choice.is_empty()).then(|| Box::new(choice)),
            ..Call::new(call.id, now, Rc::clone(&call.peer), Rc::clone(&call.pool), headers, limit)
        };
        let child = self.calls.insert(child);
        self.n_tries += 1;
        if let Some(due) = per_try {
            let timer = self.timers.set(due, Timer::Deadline(child));
            self.call_mut(child).deadline = Some(timer);
        }
        active.count(|c| c.tries += 1);
        let call = self.call_mut(key);
        call.phase = Phase::Open;
        let filtered = call.filtered.as_mut().expect("it was there above");
        filtered.n_tries += 1;
        filtered.tries.push(Try { call: child, answered: PartialResponse::default() });
        if !filtered.gathers {
            filtered.winner = Some(child);
        }
        Some(child)
    }

    // ---- responses ----

    /// Handles the response headers of a try.
    pub(crate) fn try_begun(&mut self, now: Time, key: CallKey, child: CallKey, headers: Rc<Headers>) {
        let served_by = self.calls.get(child).and_then(|child| child.endpoint.or(child.served_by));
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(filtered) = call.filtered.as_mut() else { return };
        if filtered.winner == Some(child) {
            call.served_by = served_by;
            self.response_begun(now, key, headers);
        } else if let Some(one) = filtered.tries.iter_mut().find(|one| one.call == child) {
            one.answered.headers = Some(headers);
        }
    }

    /// Handles response bytes of a try.
    pub(crate) fn try_data(&mut self, now: Time, key: CallKey, child: CallKey, prefix: &[u8], data: &[u8]) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let bytes_max = call.response.deframer.limit() as usize + HEADER_BYTES;
        let is_stream = call.method().is_some_and(|method| method.server_streaming);
        let Some(filtered) = call.filtered.as_mut() else { return };
        if filtered.winner == Some(child) {
            if !prefix.is_empty() {
                self.response_data(now, key, prefix, 0, false);
            }
            return self.response_data(now, key, data, 0, false);
        }
        let Some(one) = filtered.tries.iter_mut().find(|one| one.call == child) else { return };
        if one.answered.data.len() + prefix.len() + data.len() > bytes_max && !is_stream {
            let text = "the answer is too large to be kept";
            return self.end_here(now, child, Status::ResourceExhausted, text);
        }
        one.answered.data.extend_from_slice(prefix);
        one.answered.data.extend_from_slice(data);
        if is_stream {
            self.choose_winner(now, key, child);
        }
    }

    /// Handles the end of a try: decides whether its answer is the call's, or another try starts.
    pub(crate) fn try_ended(
        &mut self,
        now: Time,
        key: CallKey,
        child: CallKey,
        served: Option<EndpointKey>,
        end: End,
    ) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(filtered) = call.filtered.as_mut() else { return };
        let Some(at) = filtered.tries.iter().position(|one| one.call == child) else { return };
        let answered = filtered.tries.remove(at).answered;
        let active = Rc::clone(&filtered.filter);
        let was_winner = filtered.winner == Some(child);
        call.served_by = served.or(call.served_by);
        self.count_endpoint_result(now, key, &active, served, &end);
        if end.is_timeout_of(&active.name) {
            active.count(|c| c.timeouts += 1);
        }
        let ending = TryResult { end, answered };
        if was_winner {
            return self.finish_call(now, key, ending);
        }
        match self.decide_next_step(now, key, &ending) {
            NextStep::Win => self.accept_result(now, key, ending),
            NextStep::Await => {
                self.filtered_mut(key).expect("it was there above").failed = Some(Box::new(ending))
            }
            NextStep::Hedge => {
                active.count(|c| c.hedges += 1);
                self.filtered_mut(key).expect("it was there above").failed = Some(Box::new(ending));
                self.pending.push_back(DeferredAction::Try(key));
            }
            NextStep::Retry(wait) => {
                active.count(|c| c.retries += 1);
                let timer = (wait > Interval::ZERO).then(|| self.timers.set(now + wait, Timer::Turn(key)));
                let filtered = self.filtered_mut(key).expect("it was there above");
                filtered.failed = Some(Box::new(ending));
                filtered.turn = timer;
                if timer.is_none() {
                    self.pending.push_back(DeferredAction::Try(key));
                }
            }
        }
    }

    /// Decides how the call continues after this result of a try.
    fn decide_next_step(&mut self, now: Time, key: CallKey, ending: &TryResult) -> NextStep {
        let seed = self.config.seed;
        let Some(call) = self.calls.get(key) else { return NextStep::Win };
        let Some(filtered) = call.filtered.as_ref() else { return NextStep::Win };
        let (active, status) = (&filtered.filter, ending.end.status());
        let (policies, state) = (active.policies(), &active.filter.state);
        let pushback = ending.end.trailers().and_then(|trailers| trailers.get(PUSHBACK)).map(parse_pushback);
        let may_repeat = pushback != Some(None) && !matches!(ending.end, End::Dropped { .. });
        if let Some(hedge) = policies.hedge.filter(|hedge| hedge.not_final.contains(status)) {
            let has_more = filtered.n_tries <= hedge.extra_max && may_repeat;
            if has_more && within_budget(active, hedge.budget, |b| state.hedges(|spent| spent.spend(now, b)))
            {
                return NextStep::Hedge;
            }
            if !filtered.tries.is_empty() {
                return NextStep::Await;
            }
        }
        let Some(retry) = policies.retry.filter(|retry| retry.when.contains(status) && may_repeat) else {
            return NextStep::Win;
        };
        if !filtered.tries.is_empty() {
            return NextStep::Await;
        }
        let hedges_max = policies.hedge.map_or(0, |hedge| hedge.extra_max);
        let n_retries = filtered.n_tries.saturating_sub(1);
        if n_retries >= retry.retries_max + hedges_max
            || !within_budget(active, retry.budget, |b| state.retries(|spent| spent.spend(now, b)))
        {
            return NextStep::Win;
        }
        NextStep::Retry(
            pushback
                .flatten()
                .unwrap_or_else(|| wait_before(&retry, n_retries, hash::stream(seed, "backoff", call.id))),
        )
    }

    /// Makes a try the winner, after a stream's first message, and cancels the other tries.
    fn choose_winner(&mut self, now: Time, key: CallKey, child: CallKey) {
        let served_by = self.calls.get(child).and_then(|child| child.endpoint.or(child.served_by));
        let Some(call) = self.calls.get_mut(key) else { return };
        call.served_by = served_by.or(call.served_by);
        let Some(filtered) = call.filtered.as_mut() else { return };
        filtered.winner = Some(child);
        let Some(at) = filtered.tries.iter().position(|one| one.call == child) else { return };
        let answered = core::mem::take(&mut filtered.tries[at].answered);
        let others: Vec<CallKey> = filtered.tries().filter(|other| *other != child).collect();
        filtered.tries.retain(|one| one.call == child);
        filtered.request = Vec::new();
        let timers = [filtered.turn.take(), filtered.hedge.take()];
        timers.into_iter().flatten().for_each(|timer| self.timers.cancel(timer));
        others.into_iter().for_each(|other| self.end_call(now, other, End::ClientLeft));
        self.pass_response(now, key, answered);
    }

    /// Makes the result of an ended try the call's: cancels the other tries, passes the answer on and ends the call.
    fn accept_result(&mut self, now: Time, key: CallKey, mut ending: TryResult) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        let others: Vec<CallKey> = filtered.tries().collect();
        filtered.tries.clear();
        others.into_iter().for_each(|other| self.end_call(now, other, End::ClientLeft));
        self.keep_answer(now, key, &ending);
        let answered = core::mem::take(&mut ending.answered);
        self.pass_response(now, key, answered);
        self.finish_call(now, key, ending);
    }

    /// Passes the headers and the data of a try's response to the elements in front of the filter.
    fn pass_response(&mut self, now: Time, key: CallKey, answered: PartialResponse) {
        if let Some(headers) = answered.headers {
            self.response_begun(now, key, headers);
        }
        if !answered.data.is_empty() {
            self.response_data(now, key, &answered.data, 0, false);
        }
    }

    /// Ends a call for the elements in front of its filter, with this result.
    fn finish_call(&mut self, now: Time, key: CallKey, ending: TryResult) {
        let Some(mut filtered) = self.calls.get_mut(key).and_then(|call| call.filtered.take()) else {
            return;
        };
        self.leave_filter(now, &mut filtered, Some(ending.end.status()));
        match ending.end {
            End::Server { trailers, by } => self.response_ended(now, key, Some(trailers), by),
            End::Refused if filtered.filter.policies().once == Some(Reliability::AtMostOnce) => {
                // After a refused stream, the client's library would retry (RFC 9113 section 8.7).
                let answer = Answer::Text(b"the server has refused the call".to_vec());
                self.end_call(now, key, End::Here { status: Status::Unavailable, answer, by: None });
            }
            end => self.end_call(now, key, end),
        }
    }

    /// Cancels the tries of a call that ends for another reason, unless the call takes effect once and continues
    /// without its caller.
    pub(crate) fn abandon_filter(
        &mut self,
        now: Time,
        call: &Call,
        mut filtered: Box<FilteredCall>,
        status: Option<Status>,
    ) {
        if filtered.outlives_caller() && !call.is_detached {
            return self.detach(now, call, filtered);
        }
        let tries: Vec<CallKey> = filtered.tries().collect();
        filtered.tries.clear();
        self.leave_filter(now, &mut filtered, status);
        tries.into_iter().for_each(|one| self.end_call(now, one, End::ClientLeft));
    }

    /// RELIABILITY AT LEAST ONCE: continues a call that was sent without its caller. Otherwise the caller would
    /// repeat it while the first takes effect. A call without chain and caller replaces it at the filter. Its time
    /// limit is TIMEOUT TOTAL, or else the time for which its answer would be kept.
    fn detach(&mut self, now: Time, call: &Call, mut filtered: Box<FilteredCall>) {
        filtered.end_waiting();
        for timer in
            [filtered.total.take(), filtered.turn.take(), filtered.hedge.take()].into_iter().flatten()
        {
            self.timers.cancel(timer);
        }
        let policies = filtered.filter.policies();
        let Some(Reliability::AtLeastOnce { window, .. }) = policies.once else { return };
        let due = policies.timeouts.total.map(|total| filtered.began + total).filter(|due| *due > now);
        let due = due.unwrap_or(now + window);
        let limit = call.request.deframer.limit();
        let (peer, pool) = (Rc::clone(&call.peer), Rc::clone(&call.pool));
        let key = self.calls.insert(Call {
            method: call.method,
            phase: Phase::Open,
            is_detached: true,
            endpoint: call.endpoint.filter(|_| call.is_redirected),
            is_redirected: call.is_redirected,
            served_by: call.served_by,
            choice: call.choice.clone(),
            nth_try: call.nth_try,
            due: Some(due),
            marks: call.marks,
            ..Call::new(call.id, call.began, peer, pool, Rc::clone(&call.request_headers), limit)
        });
        filtered.total = Some(self.timers.set(due, Timer::Total(key)));
        for one in filtered.tries() {
            if let Some(one) = self.calls.get_mut(one) {
                one.caller = Caller::Filter(key);
            }
        }
        filtered.filter.count(|c| c.detached += 1);
        self.call_mut(key).filtered = Some(filtered);
    }

    // ---- time ----

    /// Ends a call whose TIMEOUT TOTAL has passed.
    pub(crate) fn total_passed(&mut self, now: Time, key: CallKey) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        filtered.total = None;
        filtered.filter.count(|c| c.timeouts += 1);
        let name = Rc::clone(&filtered.filter.name);
        let text = format!("filter `{name}`: the call has taken too long").into_bytes();
        let answer = Answer::Text(text);
        self.end_call(now, key, End::Here { status: Status::DeadlineExceeded, answer, by: Some(name) });
    }

    /// Sets the timer for the next extra try of HEDGE, unless one is set, a try has won, or all extra tries are made.
    fn set_hedge_timer(&mut self, now: Time, key: CallKey) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        let Some(hedge) = filtered.filter.policies().hedge else { return };
        if filtered.hedge.is_some() || filtered.winner.is_some() || filtered.n_tries > hedge.extra_max {
            return;
        }
        let timer = self.timers.set(now + hedge.after, Timer::Hedge(key));
        self.filtered_mut(key).expect("it was there above").hedge = Some(timer);
    }

    /// Starts an extra try, because no try has answered within the HEDGE time.
    pub(crate) fn hedge_passed(&mut self, now: Time, key: CallKey) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        filtered.hedge = None;
        let active = Rc::clone(&filtered.filter);
        let Some(hedge) = active.policies().hedge else { return };
        let may_go =
            filtered.winner.is_none() && !filtered.tries.is_empty() && filtered.n_tries <= hedge.extra_max;
        let state = &active.filter.state;
        if may_go && within_budget(&active, hedge.budget, |b| state.hedges(|spent| spent.spend(now, b))) {
            active.count(|c| c.hedges += 1);
            self.begin_try(now, key);
        }
    }

    // ---- state of filters ----

    /// Counts the result of a try for OUTLIER, if the endpoint caused it. Results of elements on the way do not
    /// count.
    fn count_endpoint_result(
        &mut self,
        now: Time,
        key: CallKey,
        active: &Rc<ActiveFilter>,
        served: Option<EndpointKey>,
        end: &End,
    ) {
        let (Some(outlier), Some(ejections)) = (active.policies().outlier, &active.filter.state.ejections)
        else {
            return;
        };
        let by_element = end.ended_by().is_some_and(|by| **by != *active.name);
        let Some(endpoint) = served.filter(|_| !by_element).and_then(|e| self.endpoints.get(e)) else {
            return;
        };
        let Some(call) = self.calls.get(key) else { return };
        let (members, endpoints) = (&call.pool.members, &self.endpoints);
        let may_eject = || {
            let names = members.iter().filter_map(|member| Some(&*endpoints.get(*member)?.name));
            let n_out = names.filter(|name| active.ejects(now, name)).count();
            n_out < ejected_max(&outlier, members.len())
        };
        let is_error = outlier.errors.contains(end.status());
        let ejected =
            ejections.count_result(now, &outlier, endpoint_hash(&endpoint.name), is_error, may_eject);
        active.count(|c| c.ejected += u64::from(ejected));
    }

    /// Keeps an answer that will not be retried, for later calls with the same id (RELIABILITY AT LEAST ONCE).
    fn keep_answer(&mut self, now: Time, key: CallKey, ending: &TryResult) {
        let Some(filtered) = self.calls.get_mut(key).and_then(|call| call.filtered.as_mut()) else { return };
        let active = Rc::clone(&filtered.filter);
        let (Some(known), Some(Reliability::AtLeastOnce { id, .. })) =
            (&active.filter.state.call_ids, active.policies().once)
        else {
            return;
        };
        let failures = active.policies().retry.map_or_else(StatusSet::server_errors, |retry| retry.when);
        let is_failure = failures.contains(ending.end.status());
        if filtered.admission.is_first && !is_failure {
            let answer = ending.to_bytes(&mut self.responses);
            known.keep_answer(now, active.filter.key(&filtered.keys, id), &answer);
        }
    }

    /// Answers a call with the kept answer of an earlier call with its id.
    pub(super) fn repeat_answer(&mut self, now: Time, key: CallKey, answer: &[u8]) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        let name = Rc::clone(&filtered.filter.name);
        filtered.filter.count(|c| c.repeated += 1);
        let Some(TryResult { end, answered }) = TryResult::from_bytes(answer, &name) else {
            return self.refuse_call(now, key, Status::Internal, "the answer that was kept cannot be read");
        };
        self.pass_response(now, key, answered);
        self.finish_call(now, key, TryResult { end, answered: PartialResponse::default() });
    }
}

impl EndpointConstraints {
    fn is_empty(&self) -> bool {
        self.outliers.is_empty() && self.over.is_none() && self.tried.is_empty()
    }
}

impl TryResult {
    /// Encodes a result for [`TryResult::from_bytes`]: the message, then the headers, then the trailers.
    fn to_bytes(&self, answers: &mut crate::headers::ResponseCache) -> Vec<u8> {
        let (headers, data, trailers) = match &self.end {
            End::Here { answer: Answer::Reply(message), .. } => {
                let trailers = answers.end_headers(crate::headers::Form::Trailers, Status::Ok, b"");
                (Some(answers.response()), message.as_slice(), Some(trailers))
            }
            end => (self.answered.headers.clone(), self.answered.data.as_slice(), end.trailers().cloned()),
        };
        let mut bytes = Vec::with_capacity(data.len() + 64);
        put(&mut bytes, data);
        for list in [headers, trailers] {
            let mut fields = Vec::new();
            for (name, value, _) in list.iter().flat_map(|list| list.iter()) {
                put(&mut fields, name);
                put(&mut fields, value);
            }
            put(&mut bytes, &fields);
        }
        bytes
    }

    /// Decodes a kept answer. None if the bytes are malformed.
    fn from_bytes(mut bytes: &[u8], by: &Rc<str>) -> Option<Self> {
        let data = split_field(&mut bytes)?.to_vec();
        let headers = split_headers(&mut bytes)?;
        let trailers = split_headers(&mut bytes)??;
        let end = End::Server { trailers, by: Some(Rc::clone(by)) };
        Some(Self { end, answered: PartialResponse { headers, data } })
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Splits a length-prefixed byte string off the front. None if the bytes are too short.
fn split_field<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (taken, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(taken)
}

/// Splits a header list off the front: `Some(None)` if it is empty, None if the bytes are malformed.
fn split_headers(bytes: &mut &[u8]) -> Option<Option<Rc<Headers>>> {
    let mut fields = split_field(bytes)?;
    if fields.is_empty() {
        return Some(None);
    }
    let mut builder = HeadersBuilder::new();
    while !fields.is_empty() {
        let (name, value) = (split_field(&mut fields)?, split_field(&mut fields)?);
        builder.push(name, value).ok()?;
    }
    Some(Some(builder.build()))
}

fn parse_pushback(value: &[u8]) -> Option<Interval> {
    let millis: i64 = core::str::from_utf8(value).ok()?.parse().ok()?;
    u32::try_from(millis).ok().map(|millis| Interval::from_millis(i64::from(millis)))
}

/// Whether a budget, if there is one, allows one more try. Counts the try as over budget if not.
fn within_budget<B>(active: &ActiveFilter, budget: Option<B>, take: impl FnOnce(&B) -> bool) -> bool {
    let has_room = budget.is_none_or(|budget| take(&budget));
    if !has_room {
        active.count(|c| c.over_budget += 1);
    }
    has_room
}

/// Returns the wait before retry `nth`, counted from 0. The jitter is a function of the call, so that runs can be
/// replayed.
fn wait_before(retry: &Retry, nth: u32, draw: u64) -> Interval {
    let Backoff { first, max, jitter_percent } = retry.backoff;
    let plain = first.0.saturating_mul(1 << nth.min(30)).min(max.0);
    let unit = hash::unit_float(hash::stream(draw, "wait", nth.into()));
    let factor = 1.0 + jitter_percent / 100.0 * (2.0 * unit - 1.0);
    Interval((plain as f64 * factor) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::filter::StatusSet;

    #[test]
    fn backoff_doubles_with_jitter() {
        // If it failed, clients would all return at once and cause the next outage.
        let backoff =
            Backoff { first: Interval::from_millis(5), max: Interval::from_millis(30), jitter_percent: 0.0 };
        let retry = Retry { retries_max: 9, when: StatusSet::NONE, backoff, budget: None };
        let waits = |retry: &Retry| (0..5).map(|nth| wait_before(retry, nth, 7).0 / 1000).collect::<Vec<_>>();
        assert_eq!(waits(&retry), [5000, 10_000, 20_000, 30_000, 30_000]);
        let spread = Retry { backoff: Backoff { jitter_percent: 20.0, ..backoff }, ..retry };
        for (plain, spread) in waits(&retry).into_iter().zip(waits(&spread)) {
            assert!(spread != plain && (spread - plain).abs() * 5 <= plain, "{plain} {spread}");
        }
    }

    #[test]
    fn kept_answer_round_trips() {
        // If it failed, a repeated answer could be incomplete.
        let mut headers = HeadersBuilder::new();
        headers.push(b":status", b"200").unwrap().push(b"x-a", b"1").unwrap();
        let mut trailers = HeadersBuilder::new();
        trailers.push(b"grpc-status", b"0").unwrap();
        let ending = TryResult {
            end: End::Server { trailers: trailers.build(), by: None },
            answered: PartialResponse { headers: Some(headers.build()), data: b"message".to_vec() },
        };
        let bytes = ending.to_bytes(&mut crate::headers::ResponseCache::default());
        let back = TryResult::from_bytes(&bytes, &"once".into()).unwrap();
        assert_eq!(back.answered.data, b"message");
        assert_eq!(back.answered.headers.unwrap().get(b"x-a"), Some(&b"1"[..]));
        assert_eq!(back.end.status(), Status::Ok);
        assert!((0..bytes.len()).all(|n| TryResult::from_bytes(&bytes[..n], &"once".into()).is_none()));
    }
}
