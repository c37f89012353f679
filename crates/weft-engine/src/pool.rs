//! Upstream pools: the clusters and endpoints of one worker, with the connections to them.
//!
//! A call holds its [`Pool`], the members of a cluster in one plan; an update makes new pools. An [`Endpoint`] is
//! identified by cluster and address. It stays, with its connections, while a pool has it.
//!
//! An endpoint whose connection fails is skipped for a time that doubles with each failure. Then a connection is made
//! without calls, and calls use other endpoints until it is up: no call waits to find out whether a server is back.

use crate::conn::ConnKey;
use crate::filter::{EndpointConstraints, is_over};
use crate::plan::{Address, Balance, Cluster};
use crate::slab::{Key, Slab};
use crate::timers::TimerKey;
use crate::waiting::WaitingCalls;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use weft_core::options::ClusterOptions;
use weft_core::{Interval, Time, hash, round_robin};
use weft_proto::session::http2::Violation;

/// How long a call waits for a stream to its endpoint before it ends with UNAVAILABLE.
pub(crate) const WAITING_TIME_MAX: Interval = Interval::from_secs(10);
/// The period in which waiting calls are checked for progress.
pub(crate) const WATCH_EVERY: Interval = Interval::from_secs(1);

pub(crate) type EndpointKey = Key<Endpoint>;

/// A cluster in one plan.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) members: Vec<EndpointKey>,
    /// The id of its call queue, one of the [`crate::Engine`]'s.
    pub(crate) call_queue: Cell<Option<u32>>,
    turn: Cell<usize>,
    /// The members in round-robin order: each as often as its weight says, evenly spread.
    turns: Box<[u32]>,
    /// The seed of RANDOM, beside the call's id.
    draw: u64,
}

/// Why an endpoint has no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownReason {
    /// It could not be made.
    Refused,
    /// It was not ready within this time, including the server's settings.
    TimedOut(Interval),
    /// The server or the network closed it.
    Lost,
    /// This node closed it for this violation of the server.
    Fault(Violation),
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    /// As in the last plan that has it.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) address: Address,
    pub(crate) name: Rc<str>,
    /// Connections that are ready.
    pub(crate) ready: Vec<ConnKey>,
    /// The connection that is being made.
    pub(crate) connecting: Option<ConnKey>,
    /// Calls that wait for a stream; some may have ended since.
    pub(crate) waiting: WaitingCalls,
    /// An upper bound of the ended calls in `waiting`.
    pub(crate) n_gone: usize,
    /// The timer of the next progress check; None: no call waited.
    pub(crate) watch: Option<TimerKey>,
    /// Connections that are allowed beyond the cluster's guaranteed ones.
    n_grown: u32,
    /// Calls that have returned their stream, and their number at the last check.
    pub(crate) n_left: u64,
    n_left_before: u64,
    /// Open calls.
    pub(crate) active: u64,
    pub(crate) calls: u64,
    pub(crate) connect_failures: u64,
    failures_in_a_row: u32,
    retry_at: Time,
    /// Why the last connection failed or was lost.
    down: Option<DownReason>,
    /// The timer of the next probe.
    pub(crate) probe: Option<TimerKey>,
}

impl Pool {
    /// Creates a pool. Round robin starts behind `turn`, and `draw` seeds RANDOM: workers and nodes should not all
    /// start with the same endpoint.
    pub(crate) fn new(cluster: Arc<Cluster>, members: Vec<EndpointKey>, turn: usize, draw: u64) -> Self {
        let turns = round_robin::by_weight(&weights_of(&cluster, members.len())).into();
        Self { cluster, members, call_queue: Cell::new(None), turn: Cell::new(turn), turns, draw }
    }

    /// The round-robin position, for the pool that replaces it.
    pub(crate) fn turn(&self) -> usize {
        self.turn.get()
    }

    /// Picks an endpoint that is not skipped; None if all are. Prefers endpoints that are known to be up, have room,
    /// and meet the constraints of filters.
    pub(crate) fn pick(
        &self,
        endpoints: &Slab<Endpoint>,
        now: Time,
        call_id: u64,
        choice: Option<&EndpointConstraints>,
        has_place: impl Fn(&Endpoint) -> bool,
    ) -> Option<EndpointKey> {
        let start = self.next_start(call_id);
        let is_up = |endpoint: &Endpoint| !endpoint.is_in_doubt();
        let Some(choice) = choice else {
            return self
                .pick_of(endpoints, now, start, |_, endpoint| is_up(endpoint) && has_place(endpoint))
                .or_else(|| self.pick_of(endpoints, now, start, |_, endpoint| is_up(endpoint)))
                .or_else(|| self.pick_of(endpoints, now, start, |_, _| true));
        };
        let pick = |fits: &dyn Fn(EndpointKey, &Endpoint) -> bool| self.pick_of(endpoints, now, start, fits);
        let is_over = |endpoint: &Endpoint| is_over(choice.over, &endpoint.address);
        let is_in = |endpoint: &Endpoint| {
            is_over(endpoint) && !choice.outliers.iter().any(|filter| filter.ejects(now, &endpoint.name))
        };
        let is_new = |key: EndpointKey| !choice.tried.contains(&key);
        let is_best = |key, endpoint: &Endpoint| is_new(key) && is_in(endpoint) && is_up(endpoint);
        pick(&|key, endpoint| is_best(key, endpoint) && has_place(endpoint))
            .or_else(|| pick(&is_best))
            .or_else(|| pick(&|_, endpoint| is_in(endpoint) && is_up(endpoint)))
            .or_else(|| pick(&|key, endpoint| is_new(key) && is_in(endpoint)))
            .or_else(|| pick(&|_, endpoint| is_in(endpoint)))
            .or_else(|| pick(&|_, endpoint| is_over(endpoint)))
    }

    /// Returns the index of the member that balancing tries first.
    fn next_start(&self, call_id: u64) -> usize {
        let n = self.turns.len();
        let turn = match self.cluster.balance {
            Balance::Random => (hash::stream(self.draw, "call", call_id) % n as u64) as usize,
            Balance::RoundRobin | Balance::LeastRequest => {
                self.turn.set((self.turn.get() + 1) % n);
                self.turn.get()
            }
        };
        self.turns[turn] as usize
    }

    /// Picks an endpoint that fits and is not skipped, from member `start` on: the least loaded one, or the first.
    /// None if none fits.
    #[inline]
    fn pick_of(
        &self,
        endpoints: &Slab<Endpoint>,
        now: Time,
        start: usize,
        fits: impl Fn(EndpointKey, &Endpoint) -> bool,
    ) -> Option<EndpointKey> {
        let n = self.members.len();
        let members = (0..n).map(|i| (start + i) % n);
        let mut fit = members
            .filter_map(|at| Some((at, self.members[at], endpoints.get(self.members[at])?)))
            .filter(|(_, key, endpoint)| !endpoint.is_skipped(now) && fits(*key, endpoint));
        // The load after one more call, relative to its weight.
        let load = |at: usize, endpoint: &Endpoint| (endpoint.load() + 1, self.weight(at));
        let picked = match self.cluster.balance {
            Balance::LeastRequest => fit.min_by(|(a, _, one), (b, _, other)| {
                let ((calls_a, weight_a), (calls_b, weight_b)) = (load(*a, one), load(*b, other));
                (calls_a * weight_b).cmp(&(calls_b * weight_a))
            }),
            Balance::RoundRobin | Balance::Random => fit.next(),
        };
        picked.map(|(_, key, _)| key)
    }

    fn weight(&self, at: usize) -> u64 {
        self.cluster.weights.get(at).map_or(1, |weight| u64::from(*weight))
    }
}

/// The weights of a cluster's members; 1 by default.
fn weights_of(cluster: &Cluster, n_members: usize) -> Vec<u32> {
    (0..n_members).map(|at| cluster.weights.get(at).copied().unwrap_or(1).max(1)).collect()
}

impl Endpoint {
    /// Creates an endpoint of a cluster, without connections.
    pub(crate) fn new(cluster: &Arc<Cluster>, address: &Address) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            address: address.clone(),
            name: address.to_string().into(),
            ready: Vec::new(),
            connecting: None,
            waiting: WaitingCalls::default(),
            n_gone: 0,
            watch: None,
            n_grown: 0,
            n_left: 0,
            n_left_before: 0,
            active: 0,
            calls: 0,
            connect_failures: 0,
            failures_in_a_row: 0,
            retry_at: Time(i64::MIN),
            down: None,
            probe: None,
        }
    }

    /// Whether it has failed, and it is too early to try again.
    pub(crate) fn is_skipped(&self, now: Time) -> bool {
        self.ready.is_empty() && self.retry_at > now
    }

    /// Whether it has failed, and is not known to be back.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.ready.is_empty() && self.failures_in_a_row > 0
    }

    /// Open and waiting calls.
    fn load(&self) -> u64 {
        self.active + self.n_waiting()
    }

    /// Calls that wait for a stream.
    pub(crate) fn n_waiting(&self) -> u64 {
        self.waiting.len().saturating_sub(self.n_gone) as u64
    }

    /// Whether another connection may be made.
    pub(crate) fn may_connect(&self, now: Time) -> bool {
        self.connecting.is_none() && self.ready.len() < self.connections_allowed() && self.retry_at <= now
    }

    /// The connections that the cluster always allows.
    fn connections_few(&self) -> u32 {
        self.cluster.options.connections_allowed().0
    }

    /// The connections that it may have now.
    fn connections_allowed(&self) -> usize {
        (self.connections_few() + self.n_grown) as usize
    }

    /// Whether it has more connections than the cluster always allows.
    pub(crate) fn has_grown(&self) -> bool {
        self.ready.len() > self.connections_few() as usize
    }

    /// Allows more connections to an endpoint at which calls have waited for a stream for a while. If all connections
    /// are up, and calls have returned less than half of the streams since the last check, the calls are long: allows
    /// half as many connections more, up to the cluster's maximum.
    pub(crate) fn grow(&mut self) {
        let n_left = self.n_left - core::mem::replace(&mut self.n_left_before, self.n_left);
        let allowed = self.connections_allowed();
        if self.ready.len() < allowed || n_left * 2 >= self.active {
            return;
        }
        let (few, most) = self.cluster.options.connections_allowed();
        let allowed = (allowed + allowed.div_ceil(2)).min(most as usize);
        self.n_grown = (allowed as u32).saturating_sub(few);
    }

    /// It needs no further connections.
    pub(crate) fn stop_growing(&mut self) {
        self.n_left_before = self.n_left;
        self.n_grown = (self.ready.len() as u32).saturating_sub(self.connections_few());
    }

    /// Records that a connection is ready, and clears the endpoint's failures.
    pub(crate) fn record_connected(&mut self, conn: ConnKey) {
        self.connecting = None;
        self.failures_in_a_row = 0;
        self.down = None;
        self.ready.push(conn);
    }

    /// Records a failed connection; returns the time of the next attempt.
    pub(crate) fn record_failure(&mut self, now: Time, why: DownReason) -> Time {
        self.connect_failures += 1;
        self.down = Some(why);
        let ClusterOptions { backoff_base, backoff_max, .. } = &self.cluster.options;
        let doubled = backoff_base.0.saturating_mul(1 << self.failures_in_a_row.min(16));
        self.failures_in_a_row += 1;
        self.retry_at = now + Interval(doubled.min(backoff_max.0));
        self.retry_at
    }

    /// Says why an endpoint has no connection, for messages. None if it is not known to be down.
    pub(crate) fn why_down(&self) -> Option<String> {
        let name = &self.name;
        Some(match self.down.filter(|_| self.ready.is_empty())? {
            DownReason::Refused => format!("cannot connect to {name}"),
            DownReason::TimedOut(limit) => format!("{name} has not answered within {limit}"),
            DownReason::Lost => format!("the connection to {name} was lost"),
            DownReason::Fault(Violation::Http1) => {
                format!("{name} does not speak HTTP/2: it answers in HTTP/1.1")
            }
            DownReason::Fault(Violation::Tls) => {
                format!("{name} does not speak HTTP/2 without TLS: it answers in TLS")
            }
            DownReason::Fault(Violation::BadPreface) => format!("{name} does not speak HTTP/2"),
            DownReason::Fault(fault) => format!("{name} broke a rule of HTTP/2: {}", fault.description()),
        })
    }

    /// The time until the next attempt, in tenths of a second.
    pub(crate) fn next_try(&self, now: Time) -> String {
        let tenths = ((self.retry_at - now).0.max(0) as u64).div_ceil(100_000_000);
        format!("next try in {}.{} s", tenths / 10, tenths % 10)
    }

    /// The time of the next attempt.
    pub(crate) fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// Removes a connection from the endpoint.
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
    use crate::waiting::Waiter;

    fn pool(balance: Balance) -> (Pool, Slab<Endpoint>) {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let cluster = Arc::new(Cluster {
            name: "c".to_owned(),
            endpoints: addresses.iter().map(|e| e.parse().expect("an address")).collect(),
            names: Vec::new(),
            weights: vec![1; addresses.len()],
            balance,
            options: ClusterOptions { connections: Some(1), ..ClusterOptions::default() },
        });
        let mut endpoints = Slab::new();
        let members =
            cluster.endpoints.iter().map(|a| endpoints.insert(Endpoint::new(&cluster, a))).collect();
        (Pool::new(cluster, members, 0, 0), endpoints)
    }

    fn endpoint<'a>(pool: &Pool, endpoints: &'a mut Slab<Endpoint>, at: usize) -> &'a mut Endpoint {
        endpoints.get_mut(pool.members[at]).expect("a member")
    }

    /// If it failed, an endpoint that refuses connections would get calls while others are up.
    #[test]
    fn failed_endpoint_is_skipped_for_a_time() {
        let (pool, mut endpoints) = pool(Balance::RoundRobin);
        endpoint(&pool, &mut endpoints, 1).record_failure(Time(0), DownReason::Refused);
        let picked: Vec<_> =
            (0..4).filter_map(|id| pool.pick(&endpoints, Time(1), id, None, |_| true)).collect();
        assert!(picked.len() == 4 && !picked.contains(&pool.members[1]), "{picked:?}");
        // After that, others are picked while it is not known to be back.
        let later = Time(0) + pool.cluster.options.backoff_base;
        let picked = |endpoints: &Slab<Endpoint>| {
            (0..3).any(|id| pool.pick(endpoints, later, id, None, |_| true) == Some(pool.members[1]))
        };
        assert!(!picked(&endpoints));
        for at in [0, 2] {
            endpoint(&pool, &mut endpoints, at).record_failure(Time(0), DownReason::Lost);
        }
        assert!(picked(&endpoints), "there is no other");
        endpoint(&pool, &mut endpoints, 1).record_connected(Key::from_bits(1));
        assert!(picked(&endpoints));
    }

    #[test]
    fn least_request_picks_the_idle_endpoint() {
        let (pool, mut endpoints) = pool(Balance::LeastRequest);
        endpoint(&pool, &mut endpoints, 0).active = 4;
        endpoint(&pool, &mut endpoints, 1).active = 2;
        assert_eq!(pool.pick(&endpoints, Time(0), 0, None, |_| true), Some(pool.members[2]));
        endpoint(&pool, &mut endpoints, 2).active = 9;
        assert_eq!(pool.pick(&endpoints, Time(0), 1, None, |_| true), Some(pool.members[1]));
        // Waiting calls are as much load as open ones.
        for call in 0..3 {
            let waiter = Waiter::new(Key::from_bits(call), None, Time(0));
            endpoint(&pool, &mut endpoints, 1).waiting.push(waiter);
        }
        assert_eq!(pool.pick(&endpoints, Time(0), 2, None, |_| true), Some(pool.members[0]));
    }

    /// If it failed, a server of twice the weight would get as many calls as the others, or all its calls at once.
    #[test]
    fn weights_set_the_share_per_balancer() {
        for balance in [Balance::RoundRobin, Balance::Random, Balance::LeastRequest] {
            let (pool, mut endpoints) = pool(balance);
            let cluster = Cluster { weights: vec![4, 2, 2], ..(*pool.cluster).clone() };
            let pool = Pool::new(Arc::new(cluster), pool.members, 0, 7);
            assert_eq!(&*pool.turns, [0, 1, 2, 0]);
            let mut counts = [0u32; 3];
            for id in 0..4_000 {
                let picked = pool.pick(&endpoints, Time(0), id, None, |_| true).expect("all are up");
                let at = pool.members.iter().position(|key| *key == picked).expect("a member");
                counts[at] += 1;
                endpoint(&pool, &mut endpoints, at).active += 1;
            }
            let is_near = |count: u32, share: u32| count.abs_diff(share) < 120;
            assert!(is_near(counts[0], 2_000) && is_near(counts[1], 1_000), "{balance:?}: {counts:?}");
        }
    }

    #[test]
    fn no_pick_while_all_are_skipped() {
        let (pool, mut endpoints) = pool(Balance::Random);
        for at in 0..3 {
            endpoint(&pool, &mut endpoints, at).record_failure(Time(0), DownReason::Refused);
        }
        assert_eq!(pool.pick(&endpoints, Time(1), 7, None, |_| true), None);
    }
}
