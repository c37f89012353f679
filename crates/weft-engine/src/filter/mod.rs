//! Filters: policies that wrap the rest of a chain, such as RETRY, RATE and CIRCUIT.
//!
//! A filter splits its chain. The elements in front of it run once per call. The elements behind it form a chain of
//! their own, and each *try* of a call is a call of that chain whose caller is the outer call
//! ([`crate::call::Caller`]). So elements see one OPEN and one CLOSE for each try that reached them, filters nest, and
//! a call without filters pays nothing.
//!
//! * The policies, each a small state machine without I/O: [`rate`], [`circuit`], [`congestion`], [`budget`],
//!   [`outlier`], [`order`], [`once`] (RELIABILITY).
//! * [`state`]: their state, shared by all workers and carried over updates.
//! * [`admit`]: admission of a call; [`tries`]: how tries start, and what their ends decide.

mod admit;
mod budget;
mod cells;
mod circuit;
mod congestion;
mod once;
mod order;
mod outlier;
mod rate;
mod state;
mod tries;

use crate::call::CallKey;
use crate::pass::ActiveChain;
use crate::timers::TimerKey;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use weft_core::filter::{Policies, Reliability, Transport};
use weft_core::{Time, hash};

pub(crate) use admit::{DeferredAction, Waiters};
pub(crate) use state::{CELLS, State, table_decls};
pub(crate) use tries::EndpointConstraints;

/// A filter of a chain, with its state.
#[derive(Debug)]
pub struct Filter {
    /// The instance's name.
    pub name: String,
    /// Its policies.
    pub policies: Policies,
    pub(crate) state: State,
    /// The id of its state on the node; it stays from version to version.
    pub(crate) id: u32,
}

/// Counts of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Calls that reached it.
    pub calls: u64,
    /// Calls that waited: for their turn, or for other calls.
    pub waited: u64,
    /// Calls that it refused.
    pub refused: u64,
    /// Tries of all calls.
    pub tries: u64,
    /// Tries made because the one before had failed.
    pub retries: u64,
    /// Tries made because the one before had not answered yet.
    pub hedges: u64,
    /// Tries that were not made because the budget was spent.
    pub over_budget: u64,
    /// Tries and calls that timed out.
    pub timeouts: u64,
    /// Calls that got the answer of an earlier call.
    pub repeated: u64,
    /// Calls that continued without their caller, because they take effect once.
    pub detached: u64,
    /// How often the breaker opened.
    pub opened: u64,
    /// How often an endpoint was ejected.
    pub ejected: u64,
}

/// A filter of one chain: the counts of one worker, and its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterStats {
    /// Its chain.
    pub chain: String,
    /// The filter instance.
    pub name: String,
    /// Its counts.
    pub counts: FilterCounts,
    /// Calls that wait at it, on all workers.
    pub waiting: u64,
    /// Calls in flight for CIRCUIT or CONGESTION, on all workers.
    pub in_flight: u64,
    /// The limit of CONGESTION; 0 without one.
    pub limit: f64,
    /// CIRCUIT refuses calls.
    pub is_open: bool,
}

/// A filter on this worker, and the chain behind it.
#[derive(Debug)]
pub(crate) struct ActiveFilter {
    pub(crate) filter: Arc<Filter>,
    pub(crate) next: Rc<ActiveChain>,
    pub(crate) name: Rc<str>,
    counts: Rc<RefCell<FilterCounts>>,
}

/// A call at a filter.
pub(crate) struct FilteredCall {
    pub(crate) filter: Rc<ActiveFilter>,
    keys: Vec<Vec<u8>>,
    began: Time,
    stage: admit::Stage,
    admission: admit::AdmissionState,
    /// It may be sent more than once: the request is kept, and an answer is examined before it is forwarded.
    gathers: bool,
    /// The request, if it is kept.
    request: Vec<u8>,
    is_whole: bool,
    /// When it was first sent.
    sent: Time,
    tries: Vec<tries::Try>,
    n_tries: u32,
    /// The try whose answer goes to the caller.
    winner: Option<CallKey>,
    /// The best result of the ended tries.
    failed: Option<Box<tries::TryResult>>,
    total: Option<TimerKey>,
    /// The timer of a wait: for its turn, or before a retry.
    turn: Option<TimerKey>,
    hedge: Option<TimerKey>,
}

impl Filter {
    /// The key of a policy, among those of a call.
    fn key<'a>(&self, keys: &'a [Vec<u8>], key: weft_core::filter::KeyId) -> &'a [u8] {
        keys.get(usize::from(key.0)).map_or(&[], Vec::as_slice)
    }
}

impl ActiveFilter {
    /// Creates the filter of a new plan. Counts continue from the same filter in `before`.
    pub(crate) fn new(filter: &Arc<Filter>, next: Rc<ActiveChain>, before: &[Rc<Self>]) -> Self {
        let same = before.iter().find(|known| known.filter.id == filter.id);
        Self {
            name: filter.name.as_str().into(),
            filter: Arc::clone(filter),
            next,
            counts: same.map(|known| Rc::clone(&known.counts)).unwrap_or_default(),
        }
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.filter.policies
    }

    /// Returns the counters and the state of this filter in a chain.
    pub(crate) fn stats(&self, chain: &str) -> FilterStats {
        let state = &self.filter.state;
        let (is_open, in_circuit) =
            state.breaker(|breaker| (breaker.phase() != circuit::Phase::Closed, breaker.in_flight()));
        let (limit, in_limit) = state.limit(|limit| (limit.limit(), limit.in_flight()));
        FilterStats {
            chain: chain.to_owned(),
            name: self.filter.name.clone(),
            counts: *self.counts.borrow(),
            waiting: state.waiting(state::WaitKind::ForOthers) + state.waiting(state::WaitKind::ForTime),
            in_flight: u64::from(in_circuit.max(in_limit)),
            limit,
            is_open,
        }
    }

    fn count(&self, count: impl FnOnce(&mut FilterCounts)) {
        count(&mut self.counts.borrow_mut());
    }

    /// Whether calls with the same id are one call.
    fn is_once(&self) -> bool {
        matches!(self.policies().once, Some(Reliability::AtLeastOnce { .. }))
    }

    /// Whether OUTLIER has ejected an endpoint.
    pub(crate) fn ejects(&self, now: Time, endpoint: &str) -> bool {
        let ejections = self.filter.state.ejections.as_ref();
        ejections.is_some_and(|ejections| ejections.is_ejected(now, endpoint_hash(endpoint)))
    }
}

impl FilterCounts {
    /// All counts, each with its name.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("calls", self.calls),
            ("waited", self.waited),
            ("refused", self.refused),
            ("tries", self.tries),
            ("retries", self.retries),
            ("hedges", self.hedges),
            ("over_budget", self.over_budget),
            ("timeouts", self.timeouts),
            ("repeated", self.repeated),
            ("detached", self.detached),
            ("opened", self.opened),
            ("ejected", self.ejected),
        ]
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.waited += other.waited;
        self.refused += other.refused;
        self.tries += other.tries;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.over_budget += other.over_budget;
        self.timeouts += other.timeouts;
        self.repeated += other.repeated;
        self.detached += other.detached;
        self.opened += other.opened;
        self.ejected += other.ejected;
    }
}

impl FilteredCall {
    /// Creates the state of a call that has reached a filter, before its first check.
    pub(crate) fn new(filter: Rc<ActiveFilter>, keys: Vec<Vec<u8>>, now: Time) -> Self {
        Self {
            filter,
            keys,
            began: now,
            stage: admit::Stage::default(),
            admission: admit::AdmissionState::default(),
            gathers: false,
            request: Vec::new(),
            is_whole: false,
            sent: now,
            tries: Vec::new(),
            n_tries: 0,
            winner: None,
            failed: None,
            total: None,
            turn: None,
            hedge: None,
        }
    }

    /// The open tries.
    pub(crate) fn tries(&self) -> impl DoubleEndedIterator<Item = CallKey> {
        self.tries.iter().map(|one| one.call)
    }

    pub(crate) fn winner(&self) -> Option<CallKey> {
        self.winner
    }

    /// Whether the request is kept here, and not forwarded piece by piece.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers
    }

    /// Whether the call continues after its caller has left, because other calls with its id may wait for the result.
    fn outlives_caller(&self) -> bool {
        self.filter.is_once() && self.admission.is_first && !self.tries.is_empty()
    }

    /// The bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let answers = self.tries.iter().map(tries::Try::held_bytes);
        self.request.capacity() + answers.sum::<usize>()
    }
}

/// Whether an endpoint has the transport that a filter requires.
pub(crate) fn is_over(over: Option<Transport>, address: &crate::plan::Address) -> bool {
    use crate::plan::Address;
    match over {
        None => true,
        Some(Transport::Tcp) => matches!(address, Address::Tcp(_) | Address::Name(_)),
        Some(Transport::Unix) => matches!(address, Address::Unix(_)),
    }
}

fn endpoint_hash(name: &str) -> u64 {
    hash::hash_bytes(name.as_bytes())
}
