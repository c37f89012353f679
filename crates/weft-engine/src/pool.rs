//! Upstream connections of one worker: a pool for each cluster.
//!
//! A pool is carried over a hot update while its cluster keeps its name and its members. An endpoint whose
//! connection fails is left out for a while that doubles with each failure.

use crate::call::CallKey;
use crate::conn::ConnKey;
use crate::plan::{Address, Balance, Cluster};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use weft_core::{Interval, Time, hash};

/// Calls that may wait for a connection to one endpoint.
pub(crate) const WAITING_MAX: usize = 16 << 10;
const BACKOFF_FIRST: Interval = Interval::from_millis(50);
const BACKOFF_MAX: Interval = Interval::from_secs(5);

pub(crate) struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) endpoints: Vec<Endpoint>,
    turn: usize,
}

pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) name: Rc<str>,
    /// Connections that are up.
    pub(crate) ready: Vec<ConnKey>,
    /// The connection that is being made.
    pub(crate) connecting: Option<ConnKey>,
    /// Calls that wait for a stream.
    pub(crate) waiting: VecDeque<CallKey>,
    /// Calls under way.
    pub(crate) active: u64,
    pub(crate) calls: u64,
    pub(crate) connect_failures: u64,
    failures_in_a_row: u32,
    retry_at: Time,
}

impl Pool {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        let endpoints = cluster.endpoints.iter().map(Endpoint::new).collect();
        Self { cluster, endpoints, turn: 0 }
    }

    /// Chooses an endpoint among those that are not left out; if all are, none.
    pub(crate) fn pick(&mut self, now: Time, call_id: u64) -> Option<usize> {
        let n = self.endpoints.len();
        let start = match self.cluster.balance {
            Balance::Random => (hash::hash_word(call_id) % n as u64) as usize,
            Balance::RoundRobin | Balance::LeastRequest => {
                self.turn = (self.turn + 1) % n;
                self.turn
            }
        };
        let mut fit = (0..n).map(|i| (start + i) % n).filter(|i| !self.endpoints[*i].is_left_out(now));
        match self.cluster.balance {
            Balance::LeastRequest => fit.min_by_key(|i| self.endpoints[*i].active),
            Balance::RoundRobin | Balance::Random => fit.next(),
        }
    }
}

impl Endpoint {
    fn new(address: &Address) -> Self {
        Self {
            address: address.clone(),
            name: address.to_string().into(),
            ready: Vec::new(),
            connecting: None,
            waiting: VecDeque::new(),
            active: 0,
            calls: 0,
            connect_failures: 0,
            failures_in_a_row: 0,
            retry_at: Time(i64::MIN),
        }
    }

    pub(crate) fn is_left_out(&self, now: Time) -> bool {
        self.ready.is_empty() && self.retry_at > now
    }

    pub(crate) fn note_connected(&mut self, conn: ConnKey) {
        self.connecting = None;
        self.failures_in_a_row = 0;
        self.ready.push(conn);
    }

    pub(crate) fn note_failure(&mut self, now: Time) {
        self.connect_failures += 1;
        let doubled = BACKOFF_FIRST.0 << self.failures_in_a_row.min(16);
        self.failures_in_a_row += 1;
        self.retry_at = now + Interval(doubled.min(BACKOFF_MAX.0));
    }

    pub(crate) fn forget(&mut self, conn: ConnKey) {
        self.ready.retain(|c| *c != conn);
        if self.connecting == Some(conn) {
            self.connecting = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(balance: Balance) -> Pool {
        let endpoints = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        Pool::new(Arc::new(Cluster {
            name: "c".to_owned(),
            endpoints: endpoints.iter().map(|e| e.parse().expect("an address")).collect(),
            balance,
            connections_max: 1,
            connect_timeout: Interval::from_secs(1),
            deadline: None,
        }))
    }

    /// An endpoint that refuses connections must not get calls while others are up.
    #[test]
    fn a_failed_endpoint_is_left_out_for_a_while() {
        let mut pool = pool(Balance::RoundRobin);
        pool.endpoints[1].note_failure(Time(0));
        let picked: Vec<_> = (0..4).filter_map(|id| pool.pick(Time(1), id)).collect();
        assert!(!picked.contains(&1), "{picked:?}");
        let later = Time(0) + BACKOFF_FIRST;
        assert!((0..3).any(|id| pool.pick(later, id) == Some(1)));
    }

    #[test]
    fn least_request_takes_the_idle_one() {
        let mut pool = pool(Balance::LeastRequest);
        (pool.endpoints[0].active, pool.endpoints[1].active) = (4, 2);
        assert_eq!(pool.pick(Time(0), 0), Some(2));
        pool.endpoints[2].active = 9;
        assert_eq!(pool.pick(Time(0), 1), Some(1));
    }

    #[test]
    fn none_is_picked_while_all_are_left_out() {
        let mut pool = pool(Balance::Random);
        pool.endpoints.iter_mut().for_each(|e| e.note_failure(Time(0)));
        assert_eq!(pool.pick(Time(1), 7), None);
    }
}
