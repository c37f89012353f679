//! Admission: the checks that a call passes before a filter sends it: RELIABILITY, ORDER, RATE, CIRCUIT, CONGESTION, in
//! this order.

use super::circuit::{CallResult, PassKind, Rejection};
use super::congestion::Sample;
use super::once::IdStatus;
use super::order::Ticket;
use super::rate::{self, RateDecision};
use super::state::WaitKind;
use super::{ActiveFilter, FilteredCall};
use crate::call::{CallKey, Phase};
use crate::end::{Answer, End};
use crate::engine::{Action, Engine, Timer};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft_core::filter::{Reliability, StatusSet, WAITING_DEFAULT};
use weft_core::{Status, Time};

const TOO_MANY_WAIT: &str = "too many calls wait";

/// The next check of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Once,
    Order,
    Rate,
    Circuit,
    Congestion,
    /// All checks are passed.
    Ready,
}

/// What a call has acquired at a filter.
#[derive(Debug, Default)]
pub(super) struct AdmissionState {
    /// It is the first with its id.
    pub(super) is_first: bool,
    ticket: Option<Ticket>,
    pass: Option<PassKind>,
    is_in_limit: bool,
    waits: Option<WaitKind>,
}

/// The result of a check.
enum Step {
    On,
    Wait,
    Refuse(Status, &'static str),
    /// It gets the answer of another call with its id.
    Repeat(Vec<u8>),
}

/// Calls of this worker that wait for others, by filter and key, in order of arrival.
#[derive(Default)]
pub(crate) struct Waiters(BTreeMap<(u32, u64), VecDeque<Waiter>>);

struct Waiter {
    call: CallKey,
    filter: Rc<ActiveFilter>,
    /// Its ticket of ORDER; None if it waits for another call with its id.
    ticket: Option<Ticket>,
}

impl Engine {
    /// Starts the checks of a call at a filter, after all elements in front of the filter have forwarded it.
    pub(crate) fn enter_filter(&mut self, now: Time, key: CallKey, filter: Rc<ActiveFilter>) {
        filter.count(|c| c.calls += 1);
        if filter.policies().retry.is_some_and(|retry| retry.budget.is_some()) {
            filter.filter.state.retries(|spent| spent.note_call(now));
        }
        if filter.policies().hedge.is_some_and(|hedge| hedge.budget.is_some()) {
            filter.filter.state.hedges(|spent| spent.note_call(now));
        }
        let total = filter.policies().timeouts.total;
        let call = self.call_mut(key);
        call.phase = Phase::AwaitUpstream;
        let keys = core::mem::take(&mut call.keys);
        let mut filtered = Box::new(FilteredCall::new(filter, keys, now));
        filtered.total = total.map(|total| self.timers.set(now + total, Timer::Total(key)));
        let policies = filtered.filter.policies();
        let is_once = filtered.filter.is_once();
        // The checker ensures that methods of the schemas have one request. A method without a schema is sent once, as
        // a stream.
        let call = self.call_mut(key);
        filtered.gathers = policies.gathers() && call.is_single_request();
        let gathers = filtered.gathers;
        call.filtered = Some(filtered);
        if is_once && !gathers {
            let why = "no schema says that the call's method has one request, so it cannot be kept";
            self.refuse_call(now, key, Status::Unimplemented, why);
        } else if !gathers {
            self.admit(now, key);
        }
    }

    /// Runs the checks of a call as far as it gets.
    pub(crate) fn admit(&mut self, now: Time, key: CallKey) {
        loop {
            let Some(filtered) = self.filtered_mut(key) else { return };
            let next = match filtered.stage {
                Stage::Once => Stage::Order,
                Stage::Order => Stage::Rate,
                Stage::Rate => Stage::Circuit,
                Stage::Circuit => Stage::Congestion,
                Stage::Congestion => Stage::Ready,
                Stage::Ready => return self.begin_tries(now, key),
            };
            match self.pass_stage(now, key) {
                Step::On => self.filtered_mut(key).expect("it has passed a stage").stage = next,
                Step::Wait => return self.count_waiting_call(key, next),
                Step::Refuse(status, why) => return self.refuse_call(now, key, status, why),
                Step::Repeat(answer) => return self.repeat_answer(now, key, &answer),
            }
        }
    }

    /// Runs the check of a call's current stage.
    fn pass_stage(&mut self, now: Time, key: CallKey) -> Step {
        let Some(filtered) = self.filtered_mut(key) else { return Step::Wait };
        let active = Rc::clone(&filtered.filter);
        match filtered.stage {
            Stage::Once => self.pass_once(now, key, &active),
            Stage::Order => self.pass_order(now, key, &active),
            Stage::Rate => self.pass_rate(now, key, &active),
            Stage::Circuit => filtered.pass_circuit(now),
            Stage::Congestion => filtered.pass_congestion(),
            Stage::Ready => Step::On,
        }
    }

    /// RELIABILITY AT LEAST ONCE: admits the first call with an id. Later ones wait for its result or get the kept
    /// answer.
    fn pass_once(&mut self, now: Time, key: CallKey, active: &Rc<ActiveFilter>) -> Step {
        let (Some(known), Some(Reliability::AtLeastOnce { id, calls_max, .. })) =
            (&active.filter.state.call_ids, active.policies().once)
        else {
            return Step::On;
        };
        let filtered = self.filtered_mut(key).expect("the caller has looked");
        let id = active.filter.key(&filtered.keys, id);
        // With one more, an id under way would be evicted, and its call made twice.
        let may_begin = || active.filter.state.count_waiting(WaitKind::IsFirst, true, calls_max);
        match known.look_up(now, id, may_begin) {
            IdStatus::First => {
                filtered.admission.is_first = true;
                Step::On
            }
            IdStatus::UnderWay => {
                let at = active.filter.state.stand_in(id);
                if !self.may_wait_for_others(key, active, WAITING_DEFAULT) {
                    return Step::Refuse(Status::ResourceExhausted, TOO_MANY_WAIT);
                }
                self.wait_for_others(now, key, active, at, None)
            }
            IdStatus::Answered(answer) => Step::Repeat(answer),
            IdStatus::AnsweredAtLength => Step::Refuse(
                Status::AlreadyExists,
                "the call was answered, and its answer was too long to keep",
            ),
            IdStatus::TooMany => {
                Step::Refuse(Status::ResourceExhausted, "as many calls are under way as are kept")
            }
            IdStatus::TooLong => Step::Refuse(Status::InvalidArgument, "the call's id is too long"),
        }
    }

    /// ORDER: admits a call if it is first in the queue of its key; otherwise it waits, or is refused if too many
    /// wait.
    fn pass_order(&mut self, now: Time, key: CallKey, active: &Rc<ActiveFilter>) -> Step {
        let (Some(orders), Some(order)) = (&active.filter.state.orders, active.policies().order) else {
            return Step::On;
        };
        let filtered = self.filtered_mut(key).expect("the caller has looked");
        let at = active.filter.state.stand_in(active.filter.key(&filtered.keys, order.key));
        // Only a call that may wait gets a ticket: otherwise those behind it would wait forever.
        let counts = !orders.is_free(now, at);
        if counts && !self.may_wait_for_others(key, active, order.waiting_max) {
            return Step::Refuse(Status::ResourceExhausted, TOO_MANY_WAIT);
        }
        let ticket = orders.join(now, at);
        let is_up = orders.is_up(now, ticket);
        let filtered = self.filtered_mut(key).expect("the caller has looked");
        filtered.admission.ticket = Some(ticket);
        if is_up {
            filtered.end_waiting();
            return Step::On;
        }
        if !counts {
            // Another worker's call was faster.
            self.may_wait_for_others(key, active, u32::MAX);
        }
        self.wait_for_others(now, key, active, at, Some(ticket))
    }

    /// RATE: admits a call at its time in the schedule of its key. It waits until then, or is refused if too many
    /// wait.
    fn pass_rate(&mut self, now: Time, key: CallKey, active: &Rc<ActiveFilter>) -> Step {
        let Some(rate) = active.policies().rate else { return Step::On };
        let state = &active.filter.state;
        let filtered = self.filtered_mut(key).expect("the caller has looked");
        let at = rate.key.map(|key| state.stand_in(active.filter.key(&filtered.keys, key)));
        let may_wait = state.waiting(WaitKind::ForTime) < u64::from(rate.waiting_max);
        match state.schedule(now, at, |expected| rate::reserve_turn(expected, now, &rate, may_wait)) {
            RateDecision::Now => Step::On,
            RateDecision::Refused => Step::Refuse(Status::ResourceExhausted, "too many calls"),
            RateDecision::At(at) => {
                state.count_waiting(WaitKind::ForTime, true, u32::MAX);
                let timer = self.timers.set(at, Timer::Turn(key));
                let filtered = self.filtered_mut(key).expect("the caller has looked");
                (filtered.admission.waits, filtered.turn) = (Some(WaitKind::ForTime), Some(timer));
                Step::Wait
            }
        }
    }

    /// Counts a call that waits for other calls. False if `max` calls wait already.
    fn may_wait_for_others(&mut self, key: CallKey, active: &ActiveFilter, max: u32) -> bool {
        let fits = active.filter.state.count_waiting(WaitKind::ForOthers, true, max);
        let filtered = self.filtered_mut(key).expect("the caller has looked");
        filtered.admission.waits = fits.then_some(WaitKind::ForOthers);
        fits
    }

    /// Appends a call to the waiters of `at`, a hash of what it waits for. Checks them at once, since another worker
    /// may have finished meanwhile.
    fn wait_for_others(
        &mut self,
        now: Time,
        call: CallKey,
        active: &Rc<ActiveFilter>,
        at: u64,
        ticket: Option<Ticket>,
    ) -> Step {
        let queue = self.waiters.0.entry((active.filter.id, at)).or_default();
        queue.push_back(Waiter { call, filter: Rc::clone(active), ticket });
        // Another worker may have finished before it could see this one wait.
        self.wake(now, (active.filter.id, at));
        Step::Wait
    }

    /// Counts a call that waits. Afterwards it continues with stage `next`, or repeats the check of its id.
    fn count_waiting_call(&mut self, key: CallKey, next: Stage) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        filtered.filter.count(|c| c.waited += 1);
        // A call that waits for another one with its id repeats the check; all others have what they waited for.
        if filtered.stage != Stage::Once {
            filtered.stage = next;
        }
    }

    /// Ends the wait of a call and continues its checks.
    fn end_wait(&mut self, now: Time, key: CallKey) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        filtered.end_waiting();
        self.admit(now, key);
    }

    /// Continues a waiting call whose timer has fired: it is its turn in the schedule, or the time of its next try.
    pub(crate) fn turn_timeout(&mut self, now: Time, key: CallKey) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        filtered.turn = None;
        if filtered.stage == Stage::Ready && filtered.admission.waits.is_none() {
            self.begin_try(now, key);
        } else {
            self.end_wait(now, key);
        }
    }

    /// Checks the waiting calls again: another worker may have freed what they wait for.
    pub fn handle_wake(&mut self, now: Time) {
        let all: Vec<(u32, u64)> = self.waiters.0.keys().copied().collect();
        all.into_iter().for_each(|at| self.wake(now, at));
        self.wake_call_queues(now);
        self.run_pending(now);
    }

    /// Schedules the admission of calls that wait for `at`, in order, up to the first that must still wait.
    fn wake(&mut self, now: Time, at: (u32, u64)) {
        let Some(mut queue) = self.waiters.0.remove(&at) else { return };
        while let Some(first) = queue.front() {
            let state = &first.filter.filter.state;
            let is_gone = self.calls.get(first.call).is_none();
            let is_over = match (first.ticket, &state.orders, &state.call_ids) {
                (Some(ticket), Some(orders), _) => orders.is_up(now, ticket),
                (None, _, Some(known)) => is_gone || self.is_settled(now, first.call, known),
                _ => true,
            };
            if !is_over {
                break;
            }
            let waiter = queue.pop_front().expect("there is a first");
            if !is_gone {
                self.pending.push_back(DeferredAction::Admit(waiter.call));
            } else if let (Some(ticket), Some(orders)) = (waiter.ticket, &waiter.filter.filter.state.orders) {
                orders.end_turn(now, ticket);
            }
        }
        if !queue.is_empty() {
            self.waiters.0.insert(at, queue);
        }
    }

    /// Whether a call with this id no longer needs to wait: the first call with the id is over, or the waiting call
    /// is gone.
    fn is_settled(&self, now: Time, call: CallKey, known: &super::once::CallIds) -> bool {
        let Some(filtered) = self.calls.get(call).and_then(|call| call.filtered.as_ref()) else {
            return true;
        };
        match filtered.filter.policies().once {
            Some(Reliability::AtLeastOnce { id, .. }) => {
                known.is_settled(now, filtered.filter.filter.key(&filtered.keys, id))
            }
            _ => true,
        }
    }

    /// Runs deferred actions. They are deferred so that calls do not end inside each other.
    pub(crate) fn run_pending(&mut self, now: Time) {
        while let Some(pending) = self.pending.pop_front() {
            match pending {
                DeferredAction::Admit(call) => self.end_wait(now, call),
                DeferredAction::Try(call) => self.begin_try(now, call),
                DeferredAction::CallQueue(id) => self.call_queue_resumed(now, id),
                DeferredAction::Pass(call) => self.dequeue_call(now, call),
                DeferredAction::Drop(call, link, line) => self.drop_queued_call(now, call, link, line),
            }
        }
    }

    /// Ends a call that its filter refuses, with this status and reason, and counts it.
    pub(super) fn refuse_call(&mut self, now: Time, key: CallKey, status: Status, why: &str) {
        let Some(filtered) = self.filtered_mut(key) else { return };
        filtered.filter.count(|c| c.refused += 1);
        let name = Rc::clone(&filtered.filter.name);
        let text = format!("filter `{name}`: {why}").into_bytes();
        self.end_call(now, key, End::Here { status, answer: Answer::Text(text), by: Some(name) });
    }

    /// Releases what a call has acquired from its filter, when the call is over or needs the filter no longer.
    /// `status` is None if it was abandoned without a result.
    pub(super) fn leave_filter(&mut self, now: Time, filtered: &mut FilteredCall, status: Option<Status>) {
        let active = Rc::clone(&filtered.filter);
        let (policies, state) = (active.policies(), &active.filter.state);
        for timer in
            [filtered.total.take(), filtered.turn.take(), filtered.hedge.take()].into_iter().flatten()
        {
            self.timers.cancel(timer);
        }
        filtered.end_waiting();
        let held = core::mem::take(&mut filtered.admission);
        if let (Some(circuit), Some(pass)) = (policies.circuit, held.pass) {
            let ended = match status {
                None => CallResult::Unknown,
                Some(status) if circuit.errors.contains(status) => CallResult::WithError,
                Some(_) => CallResult::Well,
            };
            let opened = state.breaker(|breaker| breaker.end_call(now, &circuit, pass, ended));
            active.count(|c| c.opened += u64::from(opened));
        }
        if let Some(congestion) = policies.congestion.filter(|_| held.is_in_limit) {
            let sample = sample(congestion.errors, status, now - filtered.sent);
            state.limit(|limit| limit.end_call(now, &congestion, filtered.sent, sample));
        }
        if let (Some(ticket), Some(orders), Some(order)) = (held.ticket, &state.orders, policies.order) {
            // If it is not its turn yet, its entry among the waiters handles it.
            if orders.is_up(now, ticket) {
                orders.end_turn(now, ticket);
                let at = state.stand_in(active.filter.key(&filtered.keys, order.key));
                self.wake_all(now, &active, at);
            }
        }
        if let (true, Some(known), Some(Reliability::AtLeastOnce { id, .. })) =
            (held.is_first, &state.call_ids, policies.once)
        {
            state.count_waiting(WaitKind::IsFirst, false, 0);
            let id = active.filter.key(&filtered.keys, id);
            known.forget(now, id);
            self.wake_all(now, &active, state.stand_in(id));
        }
    }

    /// Wakes the calls that wait for `at` on this worker and on others.
    fn wake_all(&mut self, now: Time, active: &ActiveFilter, at: u64) {
        self.wake(now, (active.filter.id, at));
        if self.config.workers > 1 && active.filter.state.waiting(WaitKind::ForOthers) > 0 {
            self.actions.push_back(Action::Wake);
        }
    }

    pub(super) fn filtered_mut(&mut self, key: CallKey) -> Option<&mut FilteredCall> {
        self.calls.get_mut(key)?.filtered.as_deref_mut()
    }
}

impl FilteredCall {
    /// CIRCUIT: admits a call if the breaker is closed, or if it lets probes pass.
    fn pass_circuit(&mut self, now: Time) -> Step {
        let Some(circuit) = self.filter.policies().circuit else { return Step::On };
        match self.filter.filter.state.breaker(|breaker| breaker.admit(now, &circuit)) {
            Ok(pass) => {
                self.admission.pass = Some(pass);
                Step::On
            }
            Err(Rejection::Open) => Step::Refuse(Status::Unavailable, "the circuit is open"),
            Err(Rejection::TooMany) => Step::Refuse(Status::Unavailable, "too many calls are under way"),
        }
    }

    /// CONGESTION: admits a call if the adaptive limit allows one more in flight.
    fn pass_congestion(&mut self) -> Step {
        let Some(congestion) = self.filter.policies().congestion else { return Step::On };
        if !self.filter.filter.state.limit(|limit| limit.admit(&congestion)) {
            return Step::Refuse(Status::Unavailable, "the limit on calls under way is reached");
        }
        self.admission.is_in_limit = true;
        Step::On
    }

    /// Ends the wait of this call, if it waits: it no longer counts as waiting.
    pub(super) fn end_waiting(&mut self) {
        if let Some(waits) = self.admission.waits.take() {
            self.filter.filter.state.count_waiting(waits, false, 0);
        }
    }
}

/// An action that runs at the end of a turn.
#[derive(Clone, Debug)]
pub(crate) enum DeferredAction {
    /// A call's wait is over.
    Admit(CallKey),
    /// The next try of a call starts.
    Try(CallKey),
    /// A call queue checks whether calls may go on.
    CallQueue(u32),
    /// A call has left its call queue.
    Pass(CallKey),
    /// The call queue with this name has dropped a call, at this line.
    Drop(CallKey, Rc<str>, u32),
}

/// Classifies the end of a call for CONGESTION: congested if its status is among `errors`, otherwise its duration.
fn sample(errors: StatusSet, status: Option<Status>, took: weft_core::Interval) -> Sample {
    match status {
        None => Sample::None,
        Some(status) if errors.contains(status) => Sample::Congested,
        Some(_) => Sample::Took(took),
    }
}
