//! The policies of a filter: what it does to the calls that pass it, with all values resolved.
//!
//! A filter wraps everything to its right in the chain: it can delay a call, refuse it, retry it, or end it early. It
//! has at most one policy of each kind. From the caller's view, policies nest in the order of the fields of
//! [`Policies`], in whatever order the program lists them. For another order, write two filters.

use crate::Status;
use crate::time::Interval;

/// Default number of calls that wait at one filter of one node.
pub const WAITING_DEFAULT: u32 = 1024;
/// Maximum number of calls that may wait at one filter of one node.
pub const WAITING_MAX: u32 = 1 << 20;
/// Default number of keys that one filter tracks; the key that was idle longest is evicted.
pub const KEYS_DEFAULT: u32 = 65_536;
/// Maximum number of keys that one filter may track.
pub const KEYS_MAX: u32 = 16 << 20;
/// Default number of bytes of an answer that `RELIABILITY AT LEAST ONCE` stores.
pub const ANSWER_BYTES_DEFAULT: u32 = 1024;
/// Maximum number of bytes of a stored answer; a table row is no longer.
pub const ANSWER_BYTES_MAX: u32 = 32 << 10;
/// Maximum number of bytes of a call id.
pub const ID_BYTES_MAX: u32 = 128;
/// Maximum number of extra tries of one call, for RETRY and for HEDGE each.
pub const TRIES_MAX: u32 = 16;
/// Filters in one chain.
pub const FILTERS_MAX: usize = 16;
/// The longest interval of a policy: one day.
pub const INTERVAL_MAX: Interval = Interval::from_secs(86_400);
/// The lowest rate, about one call per day.
pub const RATE_PER_SECOND_MIN: f64 = 1e-5;
/// The highest rate: one call per nanosecond.
pub const RATE_PER_SECOND_MAX: f64 = 1e9;
/// Maximum number of calls, errors or probes that a policy counts.
pub const COUNT_MAX: u32 = 1 << 20;
/// Default number of answers that `RELIABILITY AT LEAST ONCE` stores.
pub const CALLS_DEFAULT: u32 = 65_536;
/// Default wait before the first retry.
pub const BACKOFF_FIRST_DEFAULT: Interval = Interval::from_millis(25);
/// Default limit of the wait before a retry.
pub const BACKOFF_MAX_DEFAULT: Interval = Interval::from_millis(250);
/// Default jitter of the wait before a retry, in percent to either side.
pub const JITTER_PERCENT_DEFAULT: f64 = 20.0;
/// Default number of retries per second that a budget always permits. Without it, a node with few calls would never
/// retry.
pub const BUDGET_PER_SECOND_DEFAULT: f64 = 1.0;
/// Default time for which a circuit stays open.
pub const OPEN_FOR_DEFAULT: Interval = Interval::from_secs(5);
/// Default number of probes that must succeed before a circuit closes.
pub const PROBES_DEFAULT: u32 = 1;
/// Default maximum percentage of endpoints that OUTLIER ejects at once.
pub const EJECTED_PERCENT_DEFAULT: f64 = 10.0;
/// Default initial limit of a congestion control, within its bounds.
pub const CONGESTION_START_DEFAULT: u32 = 20;
/// Default factor by which CONGESTION AIMD reduces the limit.
pub const CONGESTION_BACKOFF_DEFAULT: f64 = 0.9;
/// Default tolerance of CONGESTION GRADIENT: the ratio of the current to the usual duration of a call.
pub const TOLERANCE_DEFAULT: f64 = 1.5;
/// Maximum tolerance of CONGESTION GRADIENT.
pub const TOLERANCE_MAX: f64 = 100.0;

const _: () =
    assert!(WAITING_DEFAULT <= WAITING_MAX && KEYS_DEFAULT <= KEYS_MAX && CALLS_DEFAULT <= COUNT_MAX);
const _: () =
    assert!(ANSWER_BYTES_DEFAULT <= ANSWER_BYTES_MAX && BACKOFF_FIRST_DEFAULT.0 <= BACKOFF_MAX_DEFAULT.0);
const _: () = assert!(OPEN_FOR_DEFAULT.0 <= INTERVAL_MAX.0 && BACKOFF_MAX_DEFAULT.0 <= INTERVAL_MAX.0);
const _: () = assert!(RATE_PER_SECOND_MIN < RATE_PER_SECOND_MAX && TOLERANCE_DEFAULT <= TOLERANCE_MAX);

/// The policies of one filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    /// `RELIABILITY`
    pub once: Option<Reliability>,
    /// `ORDER PER key`
    pub order: Option<Order>,
    /// `RATE` or `PACE`
    pub rate: Option<Rate>,
    /// `CIRCUIT`
    pub circuit: Option<Circuit>,
    /// `CONGESTION`
    pub congestion: Option<Congestion>,
    /// `TIMEOUT`. The total time counts from the arrival of the call at the filter, waiting included.
    pub timeouts: Timeouts,
    /// `RETRY`
    pub retry: Option<Retry>,
    /// `HEDGE`
    pub hedge: Option<Hedge>,
    /// `OUTLIER`
    pub outlier: Option<Outlier>,
    /// `OVER`
    pub over: Option<Transport>,
}

impl Policies {
    /// Whether one call may be sent more than once, so that elements behind may see its messages again.
    pub fn repeats(&self) -> bool {
        self.retry.is_some() || self.hedge.is_some()
    }

    /// Whether a call must be complete before it is sent: it may be sent again, or its answer is stored for other
    /// calls.
    pub fn gathers(&self) -> bool {
        self.repeats() || matches!(self.once, Some(Reliability::AtLeastOnce { .. }))
    }

    /// The number of message keys that the policies read.
    pub fn n_keys(&self) -> usize {
        let once = match self.once {
            Some(Reliability::AtLeastOnce { id, .. }) => Some(id),
            _ => None,
        };
        let rate = self.rate.as_ref().and_then(|rate| rate.key);
        let order = self.order.as_ref().map(|order| order.key);
        [once, rate, order].into_iter().flatten().map(|key| usize::from(key.0) + 1).max().unwrap_or(0)
    }
}

/// A key of a message: an index into the keys that the filter computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub u16);

/// A set of statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(u32);

impl StatusSet {
    /// The default set of server errors: UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE,
    /// DATA_LOSS. The other statuses blame the caller.
    pub fn server_errors() -> Self {
        [
            Status::Unknown,
            Status::DeadlineExceeded,
            Status::ResourceExhausted,
            Status::Internal,
            Status::Unavailable,
            Status::DataLoss,
        ]
        .into_iter()
        .collect()
    }

    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Whether the set contains a status.
    pub fn contains(self, status: Status) -> bool {
        self.0 & (1 << status.code()) != 0
    }

    /// The statuses of the set in the order of their codes.
    pub fn iter(self) -> impl Iterator<Item = Status> {
        Status::ALL.iter().copied().filter(move |status| self.contains(*status))
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Status> for StatusSet {
    fn from_iter<I: IntoIterator<Item = Status>>(statuses: I) -> Self {
        Self(statuses.into_iter().fold(0, |bits, status| bits | 1 << status.code()))
    }
}

/// How often a call may take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// A call is sent once. It is not sent again even if the server reports that it did not process it.
    AtMostOnce,
    /// Calls with the same id are one call. A duplicate that arrives during the call waits for its end; a later
    /// duplicate gets the same answer.
    ///
    /// A call that fails in a way that RETRY repeats is forgotten (without RETRY: with a server error,
    /// [`StatusSet::server_errors`]). With RETRY, a call takes effect at least once on this side and at most once on
    /// the other.
    AtLeastOnce {
        /// The id of a call.
        id: KeyId,
        /// How long an answer is stored.
        window: Interval,
        /// The number of stored answers; the oldest is evicted.
        calls_max: u32,
        /// Maximum size of a stored answer in bytes, message and trailers. For a longer answer, the filter stores only
        /// that it was given; a duplicate then gets ALREADY_EXISTS.
        answer_bytes_max: u32,
    },
}

/// Calls with the same key run one after the other, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The key of a sequence of calls.
    pub key: KeyId,
    /// The number of keys to track.
    pub keys_max: u32,
    /// Maximum number of calls that wait at the filter; more calls are refused with RESOURCE_EXHAUSTED.
    pub waiting_max: u32,
}

/// A rate limit: the generic cell rate algorithm (ITU-T I.371, annex A), a token bucket with one time stamp per key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls per second, positive.
    pub per_second: f64,
    /// Calls that may pass at once after an idle time, at least 1. With 1, calls leave evenly spaced (`PACE`).
    pub burst: f64,
    /// The key of separate rates; None for a single rate.
    pub key: Option<KeyId>,
    /// The number of keys to track.
    pub keys_max: u32,
    /// Maximum number of calls that wait for their turn; more calls are refused with RESOURCE_EXHAUSTED. 0 refuses all
    /// early calls.
    pub waiting_max: u32,
    /// The longest wait of a call; a call with a later turn is refused at once.
    pub wait_max: Interval,
}

/// A circuit breaker: while it is open, it refuses calls with UNAVAILABLE without sending them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circuit {
    /// It opens after this many errors in a row.
    pub errors_max: Option<u32>,
    /// It opens when too many calls of a window fail.
    pub ratio: Option<ErrorRatio>,
    /// Maximum number of calls in flight; more calls are refused, and the breaker stays closed.
    pub in_flight_max: Option<u32>,
    /// The statuses that count as errors.
    pub errors: StatusSet,
    /// How long it stays open before it sends probes.
    pub open_for: Interval,
    /// The number of probes that must succeed before it closes, in sequence or in parallel.
    pub probes: u32,
}

/// A limit on the share of failed calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorRatio {
    /// The share in percent.
    pub percent: f64,
    /// The minimum number of calls in a window; smaller windows are not judged.
    pub calls_min: u32,
    /// The length of the tumbling window.
    pub window: Interval,
}

/// An adaptive limit on calls in flight; more calls are refused with UNAVAILABLE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Congestion {
    /// The control law.
    pub law: CongestionLaw,
    /// The initial limit.
    pub start: u32,
    /// The lower bound of the limit, at least 1.
    pub min: u32,
    /// The upper bound of the limit.
    pub max: u32,
    /// The statuses that signal congestion.
    pub errors: StatusSet,
}

/// The control law of [`Congestion`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CongestionLaw {
    /// Adds one for each round of successful calls (Chiu and Jain 1989). Multiplies by `backoff` on an error or on a
    /// call longer than `latency_max`.
    Aimd {
        /// A longer call signals congestion.
        latency_max: Option<Interval>,
        /// The factor, between 0 and 1.
        backoff: f64,
    },
    /// Multiplies by the ratio of the long-term to the current duration of calls, at least one half, and adds room for
    /// a queue: the square root of the limit.
    Gradient {
        /// The ratio of durations at which the limit begins to fall, at least 1.
        tolerance: f64,
    },
}

/// The timeouts of a call. A call that exceeds one ends with DEADLINE_EXCEEDED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// The time for all tries together.
    pub total: Option<Interval>,
    /// The time for one try.
    pub per_try: Option<Interval>,
    /// Sends the remaining time to the server in `grpc-timeout`: the least of the caller's deadline and these timeouts,
    /// minus this margin.
    pub propagate: Option<Interval>,
}

/// Retries of failed tries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// The number of retries, 1 to [`TRIES_MAX`].
    pub retries_max: u32,
    /// The statuses to retry.
    pub when: StatusSet,
    /// The wait before a retry.
    pub backoff: Backoff,
    /// The budget for the retries of all calls.
    pub budget: Option<Budget>,
}

/// The wait before a retry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait before the first retry.
    pub first: Interval,
    /// The wait doubles with each retry up to this limit; it is constant if the limit equals `first`.
    pub max: Interval,
    /// The jitter in percent: the wait is drawn uniformly from this much less to this much more. Only jitter may exceed
    /// `max`.
    pub jitter_percent: f64,
}

/// A budget for extra tries, as a share of all calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The share in percent of the calls in the last ten seconds.
    pub percent: f64,
    /// The number of extra tries per second that is always permitted.
    pub per_second_min: f64,
}

/// Hedging: a further try starts before the first one has failed. The first answer wins, and the other tries are
/// cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hedge {
    /// The wait for an answer before each further try.
    pub after: Interval,
    /// The number of further tries, 1 to [`TRIES_MAX`].
    pub extra_max: u32,
    /// Statuses that do not win while another try may still answer; they start the next try at once.
    pub not_final: StatusSet,
    /// The budget for the further tries of all calls.
    pub budget: Option<Budget>,
}

/// Ejects endpoints that fail repeatedly for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// The number of errors in a row that ejects an endpoint.
    pub errors_max: u32,
    /// The statuses that count as errors.
    pub errors: StatusSet,
    /// The time of the first ejection; each further ejection lasts that much longer.
    pub eject_for: Interval,
    /// The maximum percentage of endpoints of a cluster that are ejected at once; one is always allowed if there are
    /// two.
    pub ejected_max_percent: f64,
}

/// The transport that a filter requires: calls go only to endpoints of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// Unix stream sockets.
    Unix,
}

impl Transport {
    /// The keyword in the language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_set_holds_its_members() {
        // An extra status would repeat calls that took effect; a missing one would give up too early.
        let set: StatusSet = [Status::Ok, Status::Unauthenticated].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Status::Ok, Status::Unauthenticated]);
        assert!(!set.contains(Status::Internal) && StatusSet::default().is_empty());
        assert!(StatusSet::server_errors().contains(Status::Unavailable));
        assert!(!StatusSet::server_errors().contains(Status::PermissionDenied));
    }

    #[test]
    fn filter_policies_report_needs() {
        // A filter that does not collect the whole call could not send it again.
        let id = KeyId(1);
        let window = Interval::from_secs(1);
        let once = Some(Reliability::AtLeastOnce { id, window, calls_max: 1, answer_bytes_max: 0 });
        let kept = Policies { once, ..Policies::default() };
        assert!(kept.gathers() && !kept.repeats());
        assert_eq!((kept.n_keys(), Policies::default().n_keys()), (2, 0));
        assert!(!Policies::default().gathers());
    }
}
