//! What a filter does to the calls that pass it, with all values known.
//!
//! A filter wraps everything to its right in the chain: it may hold a call back, refuse it, begin it
//! anew, or end it before its time. It has at most one policy of each kind. Seen from the caller they are nested in the
//! order of the fields of [`Policies`], whatever the order in which they were written; whoever wants another order
//! writes two filters.

use crate::Status;
use crate::time::Interval;

/// Calls that wait at one filter of one node, unless the policy says.
pub const WAITING_DEFAULT: u32 = 1024;
/// Calls that may wait at one filter of one node at most.
pub const WAITING_MAX: u32 = 1 << 20;
/// Keys that one filter tells apart, unless the policy says; the one that was silent longest makes room.
pub const KEYS_DEFAULT: u32 = 65_536;
/// Keys that one filter may tell apart at most.
pub const KEYS_MAX: u32 = 16 << 20;
/// Bytes of an answer that `RELIABILITY AT LEAST ONCE` keeps, unless it says.
pub const ANSWER_BYTES_DEFAULT: u32 = 1024;
/// Bytes of an answer that it may keep at most: a row of a table is no longer.
pub const ANSWER_BYTES_MAX: u32 = 32 << 10;
/// Bytes of an id that it takes at most.
pub const ID_BYTES_MAX: u32 = 128;
/// Tries of one call beyond the first, by RETRY and by HEDGE each.
pub const TRIES_MAX: u32 = 16;
/// Filters in one chain.
pub const FILTERS_MAX: usize = 16;
/// The longest interval that a policy takes: a day. Nothing that a call waits for is further away.
pub const INTERVAL_MAX: Interval = Interval::from_secs(86_400);
/// The least rate, about one call a day.
pub const RATE_PER_SECOND_MIN: f64 = 1e-5;
/// The greatest rate: one call a nanosecond.
pub const RATE_PER_SECOND_MAX: f64 = 1e9;
/// Calls, errors or probes that a policy counts at most.
pub const COUNT_MAX: u32 = 1 << 20;
/// Answers that `RELIABILITY AT LEAST ONCE` keeps, unless it says.
pub const CALLS_DEFAULT: u32 = 65_536;
/// The wait before the first retry, unless RETRY says.
pub const BACKOFF_FIRST_DEFAULT: Interval = Interval::from_millis(25);
/// The longest wait before a retry, unless RETRY says.
pub const BACKOFF_MAX_DEFAULT: Interval = Interval::from_millis(250);
/// How much a wait before a retry is drawn to either side, of 100, unless RETRY says.
pub const JITTER_PERCENT_DEFAULT: f64 = 20.0;
/// Further tries a second that a budget always permits, unless it says. Without any, a node with few calls would never
/// try again.
pub const BUDGET_PER_SECOND_DEFAULT: f64 = 1.0;
/// How long a circuit stays open, unless it says.
pub const OPEN_FOR_DEFAULT: Interval = Interval::from_secs(5);
/// Probes that must succeed before a circuit closes, unless it says.
pub const PROBES_DEFAULT: u32 = 1;
/// Of 100 endpoints, how many may be left out at once, unless OUTLIER says.
pub const EJECTED_PERCENT_DEFAULT: f64 = 10.0;
/// The limit that a congestion control begins with, unless it says; within its own bounds.
pub const CONGESTION_START_DEFAULT: u32 = 20;
/// What the limit is multiplied with on a sign of congestion, unless CONGESTION AIMD says.
pub const CONGESTION_BACKOFF_DEFAULT: f64 = 0.9;
/// How much longer than usual a call may take, unless CONGESTION GRADIENT says.
pub const TOLERANCE_DEFAULT: f64 = 1.5;
/// The greatest tolerance of CONGESTION GRADIENT.
pub const TOLERANCE_MAX: f64 = 100.0;

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
    /// `TIMEOUT`. The total counts from the moment at which the call reaches the filter, waiting included.
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
    /// Whether one call may be sent more than once, so that elements further on may see its messages again.
    pub fn repeats(&self) -> bool {
        self.retry.is_some() || self.hedge.is_some()
    }

    /// Whether a call must be whole before it is sent on: it may be sent again, or its answer is kept for others.
    pub fn gathers(&self) -> bool {
        self.repeats() || matches!(self.once, Some(Reliability::AtLeastOnce { .. }))
    }

    /// How many keys of the messages the policies look at.
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

/// A key of a message: which of those that the filter computes, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub u16);

/// A set of statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(u32);

impl StatusSet {
    /// What counts as an error of the server, where a policy says nothing: UNKNOWN, DEADLINE_EXCEEDED,
    /// RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS. The others are answers to a caller who asked amiss.
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

    /// No status.
    pub const NONE: Self = Self(0);

    /// Whether a status is in the set.
    pub fn contains(self, status: Status) -> bool {
        self.0 & (1 << status.code()) != 0
    }

    /// The statuses of the set, in the order of their codes.
    pub fn iter(self) -> impl Iterator<Item = Status> {
        Status::ALL.iter().copied().filter(move |status| self.contains(*status))
    }

    /// Whether it has none.
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
    /// A call is sent once: not even one that the server says it has not touched is sent again.
    AtMostOnce,
    /// Calls with the same id are one call: whoever comes while it is under way waits for its end, whoever comes later
    /// is given the same answer. A call that failed in a way that RETRY repeats (without one: with an error of the
    /// server, [`StatusSet::server_errors`]) is forgotten. With RETRY, at least once on this side and not twice on the
    /// other.
    AtLeastOnce {
        /// What tells one call from another.
        id: KeyId,
        /// How long an answer is kept.
        window: Interval,
        /// How many answers are kept; the oldest makes room.
        calls_max: u32,
        /// Bytes of an answer that is kept, message and trailers. Of a longer one it is only known that it was given:
        /// whoever asks again gets ALREADY_EXISTS.
        answer_bytes_max: u32,
    },
}

/// Calls with the same key one after the other, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What tells one line of calls from another.
    pub key: KeyId,
    /// Keys that are told apart.
    pub keys_max: u32,
    /// Calls that may wait at the filter; further ones are refused with RESOURCE_EXHAUSTED.
    pub waiting_max: u32,
}

/// So many calls a second: the generic cell rate algorithm (ITU-T I.371, annex A), which is a token bucket that needs
/// one time stamp a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls a second, positive.
    pub per_second: f64,
    /// Calls that may come at once after a silence, at least 1. With 1 calls leave evenly spaced (`PACE`).
    pub burst: f64,
    /// Apart for each value of this key; None is one rate for all.
    pub key: Option<KeyId>,
    /// Keys that are told apart.
    pub keys_max: u32,
    /// Calls that may wait for their turn; further ones are refused with RESOURCE_EXHAUSTED. 0 refuses all that come
    /// too early.
    pub waiting_max: u32,
    /// How long a call may wait; one whose turn is later is refused at once.
    pub wait_max: Interval,
}

/// A breaker: while it is open, calls are refused with UNAVAILABLE without being sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circuit {
    /// It opens after so many errors in a row.
    pub errors_max: Option<u32>,
    /// It opens when too many of the calls of a window fail.
    pub ratio: Option<ErrorRatio>,
    /// Calls that may be under way; further ones are refused, and the breaker stays closed.
    pub in_flight_max: Option<u32>,
    /// What is an error.
    pub errors: StatusSet,
    /// How long it stays open before it lets probes through.
    pub open_for: Interval,
    /// Probes that must succeed, one after the other or side by side, before it closes.
    pub probes: u32,
}

/// A share of failed calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorRatio {
    /// Of 100.
    pub percent: f64,
    /// Only judged where a window has had so many calls.
    pub calls_min: u32,
    /// The window, which tumbles.
    pub window: Interval,
}

/// A limit on calls under way that follows what the servers can take; further ones are refused with UNAVAILABLE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Congestion {
    /// How it follows.
    pub law: CongestionLaw,
    /// The limit at the start.
    pub start: u32,
    /// It never falls below, at least 1.
    pub min: u32,
    /// It never rises above.
    pub max: u32,
    /// Statuses that are a sign of congestion.
    pub errors: StatusSet,
}

/// How a limit of [`Congestion`] follows what happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CongestionLaw {
    /// One more for each round of calls that went well, times `backoff` on an error, or on a call that took longer than
    /// `latency_max` (Chiu and Jain 1989).
    Aimd {
        /// A call that takes longer is a sign of congestion.
        latency_max: Option<Interval>,
        /// Between 0 and 1.
        backoff: f64,
    },
    /// Times the ratio of what calls took for long to what they take now, at least a half, plus room for a queue of
    /// the square root of the limit.
    Gradient {
        /// How much longer than usual a call may take before the limit falls, at least 1.
        tolerance: f64,
    },
}

/// When a call has taken too long. It ends with DEADLINE_EXCEEDED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// All tries together.
    pub total: Option<Interval>,
    /// One try.
    pub per_try: Option<Interval>,
    /// The server is told in `grpc-timeout` what is left of the caller's deadline and of these, less this.
    pub propagate: Option<Interval>,
}

/// Another try after one that failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Tries beyond the first, 1 to [`TRIES_MAX`].
    pub retries_max: u32,
    /// After which statuses.
    pub when: StatusSet,
    /// How long before.
    pub backoff: Backoff,
    /// Limits the retries of all calls together.
    pub budget: Option<Budget>,
}

/// The wait before a retry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Before the first.
    pub first: Interval,
    /// Twice as long each time, up to this; as `first` for a constant wait.
    pub max: Interval,
    /// Of 100: the wait is drawn evenly from this much less to this much more, and never exceeds `max` but by that.
    pub jitter_percent: f64,
}

/// Further tries are given up when they would be more than this share of the calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Of 100 calls that came in the last ten seconds.
    pub percent: f64,
    /// So many a second are always permitted.
    pub per_second_min: f64,
}

/// A second try before the first has failed; the first answer wins, and the others are cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hedge {
    /// How long to wait for an answer before each further try.
    pub after: Interval,
    /// Tries beyond the first, 1 to [`TRIES_MAX`].
    pub extra_max: u32,
    /// Statuses that do not win while another try may still answer, and that start the next try at once.
    pub not_final: StatusSet,
    /// Limits the further tries of all calls together.
    pub budget: Option<Budget>,
}

/// Endpoints that fail again and again are left out for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Errors in a row.
    pub errors_max: u32,
    /// What is an error.
    pub errors: StatusSet,
    /// How long an endpoint is left out for the first time; so much longer each further time.
    pub eject_for: Interval,
    /// Of 100 endpoints of the cluster: so many may be left out at once, but always one if there are two.
    pub ejected_max_percent: f64,
}

/// The transport that a filter rests on: calls go to endpoints of this kind alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// Unix stream sockets.
    Unix,
}

impl Transport {
    /// The word that the language has for it.
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
        // A status too many would repeat calls that took effect; one too few would give up too early.
        let set: StatusSet = [Status::Ok, Status::Unauthenticated].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Status::Ok, Status::Unauthenticated]);
        assert!(!set.contains(Status::Internal) && StatusSet::default().is_empty());
        assert!(StatusSet::server_errors().contains(Status::Unavailable));
        assert!(!StatusSet::server_errors().contains(Status::PermissionDenied));
    }

    #[test]
    fn filter_policies_report_needs() {
        // A filter that does not gather could not send a call again.
        let id = KeyId(1);
        let window = Interval::from_secs(1);
        let once = Some(Reliability::AtLeastOnce { id, window, calls_max: 1, answer_bytes_max: 0 });
        let kept = Policies { once, ..Policies::default() };
        assert!(kept.gathers() && !kept.repeats());
        assert_eq!((kept.n_keys(), Policies::default().n_keys()), (2, 0));
        assert!(!Policies::default().gathers());
    }
}
