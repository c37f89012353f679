//! Filters: timeouts, retries, rate limits and other policies of calls.

use super::{Expr, Field, Ident, Param};
use crate::source::Span;

/// `CREATE FILTER name [(params)] ON layer [(fields)] AS policies END;`
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// Parameters, bound at each stage.
    pub params: Vec<Param>,
    /// `rpc`; a word, not checked here.
    pub layer: Ident,
    /// Request columns that keys use.
    pub fields: Vec<Field>,
    /// Policies in source order, repetitions included.
    pub policies: Vec<Policy>,
    /// Part of the body is omitted because of an error.
    pub is_faulty: bool,
    /// The whole item.
    pub span: Span,
}

/// One policy of a filter.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// The kind.
    pub kind: PolicyKind,
    /// Without the `;`.
    pub span: Span,
}

/// The policies.
#[derive(Clone, PartialEq, Debug)]
pub enum PolicyKind {
    /// `TIMEOUT TOTAL d`
    TimeoutTotal {
        /// The maximum time of all tries together.
        after: Expr,
    },
    /// `TIMEOUT TRY d`
    TimeoutTry {
        /// How long one try may take.
        after: Expr,
    },
    /// `TIMEOUT PROPAGATE [LESS d]`
    TimeoutPropagate {
        /// The margin between the remaining time and the time announced to the server.
        less: Option<Expr>,
    },
    /// `RETRY ...`
    Retry(RetryPolicy),
    /// `HEDGE ...`
    Hedge(HedgePolicy),
    /// `PACE TO ...`
    Pace(RatePolicy),
    /// `RATE ...`
    Rate(RatePolicy),
    /// `ORDER PER key, ... [QUEUE n] [KEYS n]`
    Order {
        /// The key that separates sequences of calls, at least one part.
        key: Vec<Expr>,
        /// The maximum number of waiting calls.
        queue: Option<Expr>,
        /// The maximum number of distinct keys.
        keys: Option<Expr>,
    },
    /// `CIRCUIT ...`
    Circuit(CircuitPolicy),
    /// `OUTLIER ...`
    Outlier(OutlierPolicy),
    /// `CONGESTION ...`
    Congestion(CongestionPolicy),
    /// `RELIABILITY AT MOST ONCE`
    AtMostOnce,
    /// `RELIABILITY AT LEAST ONCE ID key, ... WINDOW d [CALLS n] [ANSWERS UP TO s]`
    AtLeastOnce {
        /// The key that identifies a call of a method, at least one part.
        id: Vec<Expr>,
        /// How long an answer is kept.
        window: Expr,
        /// How many answers are kept.
        calls: Option<Expr>,
        /// The maximum length of a stored response.
        answers: Option<Expr>,
    },
    /// `OVER tcp | unix`
    Over {
        /// A word, not checked here.
        transport: Ident,
    },
}

/// `RETRY UP TO n WHEN e [BACKOFF ...] [JITTER p PERCENT] [BUDGET ...]`
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    /// Tries beyond the first.
    pub up_to: Expr,
    /// After which statuses.
    pub when: Expr,
    /// `BACKOFF ...`.
    pub backoff: Option<BackoffClause>,
    /// `JITTER p PERCENT`.
    pub jitter: Option<Expr>,
    /// `BUDGET ...`.
    pub budget: Option<BudgetClause>,
}

/// `BACKOFF EXPONENTIAL a TO b`, `BACKOFF CONSTANT a`
#[derive(Clone, PartialEq, Debug)]
pub struct BackoffClause {
    /// Before the first retry.
    pub first: Expr,
    /// The maximum wait; None for a constant one.
    pub max: Option<Expr>,
    /// The clause.
    pub span: Span,
}

/// `BUDGET p PERCENT [AND r PER SECOND]`
#[derive(Clone, PartialEq, Debug)]
pub struct BudgetClause {
    /// Of 100 calls.
    pub percent: Expr,
    /// The rate that is always permitted.
    pub per_second: Option<Expr>,
    /// The clause.
    pub span: Span,
}

/// `HEDGE AFTER d UP TO n [WHEN e] [BUDGET ...]`
#[derive(Clone, PartialEq, Debug)]
pub struct HedgePolicy {
    /// Before each further try.
    pub after: Expr,
    /// Tries beyond the first.
    pub up_to: Expr,
    /// The statuses that do not end the race.
    pub when: Option<Expr>,
    /// `BUDGET ...`.
    pub budget: Option<BudgetClause>,
}

/// `r PER SECOND [BURST b] [PER key, ...] [QUEUE n] [WAIT d] [KEYS n]`
#[derive(Clone, PartialEq, Debug)]
pub struct RatePolicy {
    /// Calls a second.
    pub per_second: Expr,
    /// The number of calls allowed at once after idle time; never for `PACE`.
    pub burst: Option<Expr>,
    /// `PER key, ...`; empty if left out.
    pub key: Vec<Expr>,
    /// The maximum number of waiting calls.
    pub queue: Option<Expr>,
    /// How long a call may wait.
    pub wait: Option<Expr>,
    /// The maximum number of distinct keys.
    pub keys: Option<Expr>,
}

/// `CIRCUIT [AFTER n ERRORS] [RATIO ...] [IN FLIGHT n] [WHEN e] [OPEN FOR d] [PROBES n]`
#[derive(Clone, PartialEq, Debug)]
pub struct CircuitPolicy {
    /// Errors in a row.
    pub errors: Option<Expr>,
    /// `RATIO ...`.
    pub ratio: Option<RatioClause>,
    /// Calls under way.
    pub in_flight: Option<Expr>,
    /// The condition for an error.
    pub when: Option<Expr>,
    /// The time that it stays open.
    pub open_for: Option<Expr>,
    /// The number of successful calls before the circuit closes.
    pub probes: Option<Expr>,
}

/// `RATIO p PERCENT OF n IN d`
#[derive(Clone, PartialEq, Debug)]
pub struct RatioClause {
    /// Of 100.
    pub percent: Expr,
    /// Fewer calls are not judged.
    pub calls: Expr,
    /// The window.
    pub window: Expr,
    /// The clause.
    pub span: Span,
}

/// `OUTLIER AFTER n ERRORS [WHEN e] EJECT FOR d [UP TO p PERCENT]`
#[derive(Clone, PartialEq, Debug)]
pub struct OutlierPolicy {
    /// Errors in a row.
    pub errors: Expr,
    /// The condition for an error.
    pub when: Option<Expr>,
    /// The duration of an endpoint's first ejection.
    pub eject_for: Expr,
    /// Of 100 endpoints.
    pub up_to: Option<Expr>,
}

/// `CONGESTION AIMD|GRADIENT [FROM a] [MIN m] MAX b [LATENCY d] [BACKOFF x] [TOLERANCE t] [WHEN e]`
#[derive(Clone, PartialEq, Debug)]
pub struct CongestionPolicy {
    /// The control law.
    pub law: CongestionLaw,
    /// The limit at the start.
    pub from: Option<Expr>,
    /// The minimum of the limit.
    pub min: Option<Expr>,
    /// The maximum of the limit.
    pub max: Expr,
    /// A slower call is a sign of congestion.
    pub latency: Option<Expr>,
    /// The factor for the limit after a sign of congestion.
    pub backoff: Option<Expr>,
    /// How much slower than the baseline a call may be.
    pub tolerance: Option<Expr>,
    /// The statuses that are a sign of congestion.
    pub when: Option<Expr>,
}

/// The control law for the limit on calls in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CongestionLaw {
    /// Additive increase per round, multiplicative decrease after a sign of congestion.
    Aimd,
    /// Follows the ratio of call time to the baseline.
    Gradient,
}
