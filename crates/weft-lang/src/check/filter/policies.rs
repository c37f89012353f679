//! Checks the numbers and conditions of policies, and their limits.

use std::ops::RangeInclusive;

use weft_core::filter::{
    ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX, BACKOFF_FIRST_DEFAULT, BACKOFF_MAX_DEFAULT,
    BUDGET_PER_SECOND_DEFAULT, Backoff, Budget, CALLS_DEFAULT, CONGESTION_BACKOFF_DEFAULT,
    CONGESTION_START_DEFAULT, COUNT_MAX, Circuit, Congestion, CongestionLaw, EJECTED_PERCENT_DEFAULT,
    ErrorRatio, Hedge, INTERVAL_MAX, JITTER_PERCENT_DEFAULT, KEYS_DEFAULT, KEYS_MAX, KeyId, OPEN_FOR_DEFAULT,
    Order, Outlier, PROBES_DEFAULT, Policies, RATE_PER_SECOND_MAX, RATE_PER_SECOND_MIN, Rate, Reliability,
    Retry, StatusSet, TOLERANCE_DEFAULT, TOLERANCE_MAX, TRIES_MAX, Transport, WAITING_DEFAULT, WAITING_MAX,
};
use weft_core::{Interval, Status, Type, Value};

use super::{Cx, in_force, of_stage};
use crate::ast::{self, PolicyKind};
use crate::check::expr::Environment;
use crate::check::fold::{FoldError, fold_for_status};
use crate::check::scope::{Scope, View, not_in_status_condition, with_nearest};
use crate::check::walk::each_expr;
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{Element, Expr, ExprKind};
use crate::source::Span;

/// The minimum burst: one call, so that calls leave evenly spaced.
const BURST_MIN: f64 = 1.0;

/// Checks everything that does not depend on parameters.
pub(super) fn check(cx: &mut Cx<'_>, element: &Element, ast: &ast::Filter) {
    PolicyReader { cx, element, params: None, stage: None, n_keys: 0 }.policies(ast);
}

/// The policies of a valid filter with the parameters of a stage; None if the parameters are invalid.
pub(super) fn with_params(
    cx: &mut Cx<'_>,
    element: &Element,
    ast: &ast::Filter,
    params: &[Value],
    stage: Span,
) -> Option<Policies> {
    PolicyReader { cx, element, params: Some(params), stage: Some(stage), n_keys: 0 }.policies(ast)
}

/// Reads the policies of a filter. Each None was reported, or depends on unknown parameters.
struct PolicyReader<'a, 'c> {
    cx: &'a mut Cx<'c>,
    element: &'a Element,
    /// None where the filter is written.
    params: Option<&'a [Value]>,
    stage: Option<Span>,
    n_keys: u16,
}

/// A value with its span.
#[derive(Clone, Copy)]
struct Spanned<T> {
    value: T,
    span: Span,
}

impl PolicyReader<'_, '_> {
    /// Reads all policies, so that all errors are reported; None after an error.
    fn policies(&mut self, ast: &ast::Filter) -> Option<Policies> {
        let mut policies = Policies::default();
        let mut is_whole = true;
        let (mut total, mut per_try) = (None, None);
        for policy in in_force(ast) {
            let done = match &policy.kind {
                PolicyKind::TimeoutTotal { after } => {
                    total = self.interval("TIMEOUT TOTAL", after);
                    policies.timeouts.total = total.map(|at| at.value);
                    total.map(|_| ())
                }
                PolicyKind::TimeoutTry { after } => {
                    per_try = self.interval("TIMEOUT TRY", after);
                    policies.timeouts.per_try = per_try.map(|at| at.value);
                    per_try.map(|_| ())
                }
                PolicyKind::TimeoutPropagate { less } => {
                    let less = match less {
                        Some(less) => self.interval("TIMEOUT PROPAGATE LESS", less).map(|at| at.value),
                        None => Some(Interval(0)),
                    };
                    policies.timeouts.propagate = less;
                    less.map(|_| ())
                }
                PolicyKind::Retry(retry) => set(&mut policies.retry, self.retry(retry)),
                PolicyKind::Hedge(hedge) => set(&mut policies.hedge, self.hedge(hedge)),
                PolicyKind::Pace(rate) => set(&mut policies.rate, self.pace(rate)),
                PolicyKind::Rate(rate) => set(&mut policies.rate, self.rate(rate)),
                PolicyKind::Order { queue, keys, .. } => {
                    set(&mut policies.order, self.order(queue.as_ref(), keys.as_ref()))
                }
                PolicyKind::Circuit(circuit) => {
                    set(&mut policies.circuit, self.circuit(circuit, policy.span))
                }
                PolicyKind::Outlier(outlier) => set(&mut policies.outlier, self.outlier(outlier)),
                PolicyKind::Congestion(congestion) => {
                    set(&mut policies.congestion, self.congestion(congestion))
                }
                PolicyKind::AtMostOnce => set(&mut policies.once, Some(Reliability::AtMostOnce)),
                PolicyKind::AtLeastOnce { window, calls, answers, .. } => {
                    let kept = self.at_least_once(window, calls.as_ref(), answers.as_ref());
                    set(&mut policies.once, kept)
                }
                PolicyKind::Over { transport } => set(&mut policies.over, self.transport(transport)),
            };
            is_whole &= done.is_some();
        }
        is_whole &= self.try_within_total(per_try, total).is_some();
        is_whole.then_some(policies)
    }

    /// Reports a try timeout that is not shorter than the total timeout: it would have no effect.
    fn try_within_total(
        &mut self,
        per_try: Option<Spanned<Interval>>,
        total: Option<Spanned<Interval>>,
    ) -> Option<()> {
        let (Some(per_try), Some(total)) = (per_try, total) else { return Some(()) };
        if per_try.value < total.value {
            return Some(());
        }
        let message =
            format!("a single try may take {}, but all tries together only {}", per_try.value, total.value);
        let help = "make TIMEOUT TRY shorter than TIMEOUT TOTAL, or remove it";
        self.contradict(message, (per_try.span, "limit of a try"), (total.span, "limit of all tries"), help)
    }

    /// Checks RETRY.
    fn retry(&mut self, ast: &ast::RetryPolicy) -> Option<Retry> {
        let retries_max = self.count("RETRY UP TO", &ast.up_to, 1..=TRIES_MAX);
        let when = self.failures("RETRY", Some(&ast.when), "repeat");
        let backoff = match &ast.backoff {
            Some(clause) => self.backoff(clause),
            None => Some((BACKOFF_FIRST_DEFAULT, BACKOFF_MAX_DEFAULT)),
        };
        let jitter = self.percent_or("RETRY JITTER", ast.jitter.as_ref(), JITTER_PERCENT_DEFAULT);
        let budget = self.budget("RETRY BUDGET", ast.budget.as_ref());
        let (first, max) = backoff?;
        Some(Retry {
            retries_max: retries_max?,
            when: when?,
            backoff: Backoff { first, max, jitter_percent: jitter? },
            budget: budget?,
        })
    }

    /// Checks BACKOFF: the first interval and the maximum.
    fn backoff(&mut self, clause: &ast::BackoffClause) -> Option<(Interval, Interval)> {
        let first = self.interval("BACKOFF", &clause.first);
        let max = match &clause.max {
            Some(max) => self.interval("BACKOFF", max),
            None => first,
        };
        let (first, max) = (first?, max?);
        if first.value > max.value {
            let message = format!("the backoff shrinks from {} to {}", first.value, max.value);
            let help = "write the shorter interval first";
            return self.contradict(message, (max.span, "the longest"), (first.span, "the first"), help);
        }
        Some((first.value, max.value))
    }

    /// Checks BUDGET. None after an error; Some(None) without a budget.
    fn budget(&mut self, what: &str, clause: Option<&ast::BudgetClause>) -> Option<Option<Budget>> {
        let Some(clause) = clause else { return Some(None) };
        let percent = self.percent(what, &clause.percent);
        let per_second_min = match &clause.per_second {
            Some(rate) => {
                let is_good = |rate| (0.0..=RATE_PER_SECOND_MAX).contains(&rate);
                let limits = format!("0 to {RATE_PER_SECOND_MAX:e} per second");
                self.real(&format!("{what} AND"), rate, &limits, is_good).map(|at| at.value)
            }
            None => Some(BUDGET_PER_SECOND_DEFAULT),
        };
        Some(Some(Budget { percent: percent?, per_second_min: per_second_min? }))
    }

    /// Checks HEDGE.
    fn hedge(&mut self, ast: &ast::HedgePolicy) -> Option<Hedge> {
        let after = self.interval("HEDGE AFTER", &ast.after);
        let extra_max = self.count("HEDGE UP TO", &ast.up_to, 1..=TRIES_MAX);
        let not_final = self.statuses("HEDGE", ast.when.as_ref(), "retry after");
        let budget = self.budget("HEDGE BUDGET", ast.budget.as_ref());
        Some(Hedge {
            after: after?.value,
            extra_max: extra_max?,
            not_final: not_final?.value,
            budget: budget?,
        })
    }

    /// Checks PACE.
    fn pace(&mut self, ast: &ast::RatePolicy) -> Option<Rate> {
        let per_second = self.per_second("PACE TO", &ast.per_second);
        let waiting_max = self.count_or("PACE QUEUE", ast.queue.as_ref(), 1..=WAITING_MAX, WAITING_DEFAULT);
        self.rest_of_rate("PACE", ast, (per_second, Some(BURST_MIN)), waiting_max)
    }

    /// Checks RATE. Without BURST, the burst is what one second allows.
    fn rate(&mut self, ast: &ast::RatePolicy) -> Option<Rate> {
        let per_second = self.per_second("RATE", &ast.per_second);
        let burst = match &ast.burst {
            Some(burst) => {
                let is_good = |burst| (BURST_MIN..=RATE_PER_SECOND_MAX).contains(&burst);
                let limits = format!("1 to {RATE_PER_SECOND_MAX:e}");
                let burst = self.real("RATE BURST", burst, &limits, is_good);
                self.burst_within_a_day(burst, per_second)
            }
            None => per_second.map(|rate| rate.value.max(BURST_MIN)),
        };
        let default = if ast.wait.is_some() { WAITING_DEFAULT } else { 0 };
        let waiting_max = self.count_or("RATE QUEUE", ast.queue.as_ref(), 0..=WAITING_MAX, default);
        self.rest_of_rate("RATE", ast, (per_second, burst), waiting_max)
    }

    /// Reports a burst that takes longer than [`INTERVAL_MAX`] to refill: it is no effective limit.
    fn burst_within_a_day(
        &mut self,
        burst: Option<Spanned<f64>>,
        per_second: Option<Spanned<f64>>,
    ) -> Option<f64> {
        let (burst, rate) = (burst?, per_second?);
        if burst.value / rate.value <= INTERVAL_MAX.as_secs_f64() {
            return Some(burst.value);
        }
        let message =
            format!("at {} per second, a burst of {} takes days to refill", rate.value, burst.value);
        self.contradict(
            message,
            (burst.span, "too large"),
            (rate.span, "for this rate"),
            "make BURST smaller",
        )
    }

    /// Checks the clauses that RATE and similar policies share: the key, the queue and the wait.
    fn rest_of_rate(
        &mut self,
        name: &str,
        ast: &ast::RatePolicy,
        (per_second, burst): (Option<Spanned<f64>>, Option<f64>),
        waiting_max: Option<u32>,
    ) -> Option<Rate> {
        let wait_max = match &ast.wait {
            Some(wait) => self.interval(&format!("{name} WAIT"), wait).map(|at| at.value),
            None => Some(INTERVAL_MAX),
        };
        let keys_max = self.count_or(&format!("{name} KEYS"), ast.keys.as_ref(), 1..=KEYS_MAX, KEYS_DEFAULT);
        let key = (!ast.key.is_empty()).then(|| self.next_key());
        if let (None, Some(keys)) = (key, &ast.keys) {
            let diagnostic =
                Diagnostic::error(code::MISSING_CLAUSE, "KEYS limits the keys of PER, but there is no PER")
                    .at(keys.span, "PER missing")
                    .with_help("add the key: `PER tenant`, or remove KEYS");
            self.cx.report(diagnostic);
            return None;
        }
        Some(Rate {
            per_second: per_second?.value,
            burst: burst?,
            key,
            keys_max: keys_max?,
            waiting_max: waiting_max?,
            wait_max: wait_max?,
        })
    }

    /// Checks ORDER PER.
    fn order(&mut self, queue: Option<&ast::Expr>, keys: Option<&ast::Expr>) -> Option<Order> {
        let key = self.next_key();
        let waiting_max = self.count_or("ORDER QUEUE", queue, 1..=WAITING_MAX, WAITING_DEFAULT);
        let keys_max = self.count_or("ORDER KEYS", keys, 1..=KEYS_MAX, KEYS_DEFAULT);
        Some(Order { key, keys_max: keys_max?, waiting_max: waiting_max? })
    }

    /// Checks CIRCUIT, which needs at least one condition to open.
    fn circuit(&mut self, ast: &ast::CircuitPolicy, span: Span) -> Option<Circuit> {
        let errors_max = ast.errors.as_ref().map(|errors| self.count("CIRCUIT AFTER", errors, 1..=COUNT_MAX));
        let ratio = ast.ratio.as_ref().map(|clause| self.ratio(clause));
        let in_flight_max =
            ast.in_flight.as_ref().map(|calls| self.count("CIRCUIT IN FLIGHT", calls, 1..=COUNT_MAX));
        let errors = self.failures("CIRCUIT", ast.when.as_ref(), "open");
        let open_for = self.interval_or("CIRCUIT OPEN FOR", ast.open_for.as_ref(), OPEN_FOR_DEFAULT);
        let probes = self.count_or("CIRCUIT PROBES", ast.probes.as_ref(), 1..=COUNT_MAX, PROBES_DEFAULT);
        if errors_max.is_none() && ratio.is_none() && in_flight_max.is_none() {
            let diagnostic = Diagnostic::error(code::MISSING_CLAUSE, "this CIRCUIT never opens")
                .at(span, "none of AFTER, RATIO and IN FLIGHT is given")
                .with_help("add a condition: `CIRCUIT AFTER 5 ERRORS`");
            self.cx.report(diagnostic);
            return None;
        }
        Some(Circuit {
            errors_max: within(errors_max)?,
            ratio: within(ratio)?,
            in_flight_max: within(in_flight_max)?,
            errors: errors?,
            open_for: open_for?,
            probes: probes?,
        })
    }

    /// Checks RATIO of a CIRCUIT.
    fn ratio(&mut self, clause: &ast::RatioClause) -> Option<ErrorRatio> {
        let percent = self.percent("CIRCUIT RATIO", &clause.percent);
        let calls_min = self.count("CIRCUIT RATIO OF", &clause.calls, 1..=COUNT_MAX);
        let window = self.interval("CIRCUIT RATIO IN", &clause.window);
        Some(ErrorRatio { percent: percent?, calls_min: calls_min?, window: window?.value })
    }

    /// Checks OUTLIER.
    fn outlier(&mut self, ast: &ast::OutlierPolicy) -> Option<Outlier> {
        let errors_max = self.count("OUTLIER AFTER", &ast.errors, 1..=COUNT_MAX);
        let errors = self.failures("OUTLIER", ast.when.as_ref(), "eject an endpoint after");
        let eject_for = self.interval("OUTLIER EJECT FOR", &ast.eject_for);
        let percent = self.percent_or("OUTLIER UP TO", ast.up_to.as_ref(), EJECTED_PERCENT_DEFAULT);
        Some(Outlier {
            errors_max: errors_max?,
            errors: errors?,
            eject_for: eject_for?.value,
            ejected_max_percent: percent?,
        })
    }

    /// Checks CONGESTION: its bounds, its start and its law.
    fn congestion(&mut self, ast: &ast::CongestionPolicy) -> Option<Congestion> {
        let bound = |reader: &mut Self, what, expr: Option<&ast::Expr>| {
            expr.map(|expr| reader.count_at(what, expr, 1..=COUNT_MAX))
        };
        let min = bound(self, "CONGESTION MIN", ast.min.as_ref());
        let max = self.count_at("CONGESTION MAX", &ast.max, 1..=COUNT_MAX);
        let start = bound(self, "CONGESTION FROM", ast.from.as_ref());
        let errors = self.statuses("CONGESTION", ast.when.as_ref(), "react to");
        let law = self.congestion_law(ast);
        let (min, max, start) = (within(min)?, max?, within(start)?);
        let lowest = min.or(start).filter(|low| low.value > max.value);
        if let Some(low) = lowest.or(start.filter(|start| start.value > max.value)) {
            let message = format!("a limit of at least {} exceeds the maximum {}", low.value, max.value);
            let help = "MIN must not exceed FROM, and FROM must not exceed MAX";
            return self.contradict(message, (low.span, "greater than MAX"), (max.span, "the maximum"), help);
        }
        if let (Some(min), Some(start)) = (min, start)
            && start.value < min.value
        {
            let message = format!("the initial limit {} is below the lower limit {}", start.value, min.value);
            let help = "MIN must not exceed FROM, and FROM must not exceed MAX";
            return self.contradict(message, (start.span, "less than MIN"), (min.span, "the minimum"), help);
        }
        let min = min.map_or(1, |min| min.value);
        let start = start.map_or(CONGESTION_START_DEFAULT.clamp(min, max.value), |start| start.value);
        Some(Congestion { law: law?, start, min, max: max.value, errors: errors?.value })
    }

    /// Checks the clauses of AIMD or GRADIENT. Reports clauses of the other law.
    fn congestion_law(&mut self, ast: &ast::CongestionPolicy) -> Option<CongestionLaw> {
        match ast.law {
            ast::CongestionLaw::Aimd => {
                self.refuse_clause(ast.tolerance.as_ref(), "TOLERANCE", "GRADIENT", "AIMD")?;
                let latency = ast.latency.as_ref().map(|d| {
                    let latency = self.interval("CONGESTION LATENCY", d);
                    latency.map(|at| at.value)
                });
                let backoff = match &ast.backoff {
                    Some(backoff) => {
                        let is_good = |x: f64| x > 0.0 && x < 1.0;
                        let limits = "more than 0 and less than 1";
                        self.real("CONGESTION BACKOFF", backoff, limits, is_good).map(|at| at.value)
                    }
                    None => Some(CONGESTION_BACKOFF_DEFAULT),
                };
                Some(CongestionLaw::Aimd { latency_max: within(latency)?, backoff: backoff? })
            }
            ast::CongestionLaw::Gradient => {
                self.refuse_clause(ast.latency.as_ref(), "LATENCY", "AIMD", "GRADIENT")?;
                self.refuse_clause(ast.backoff.as_ref(), "BACKOFF", "AIMD", "GRADIENT")?;
                let Some(tolerance) = &ast.tolerance else {
                    return Some(CongestionLaw::Gradient { tolerance: TOLERANCE_DEFAULT });
                };
                let is_good = |x: f64| (1.0..=TOLERANCE_MAX).contains(&x);
                let limits = format!("1 to {TOLERANCE_MAX}");
                let tolerance = self.real("CONGESTION TOLERANCE", tolerance, &limits, is_good)?;
                Some(CongestionLaw::Gradient { tolerance: tolerance.value })
            }
        }
    }

    /// Reports a clause that belongs to another law.
    fn refuse_clause(&mut self, clause: Option<&ast::Expr>, name: &str, of: &str, law: &str) -> Option<()> {
        let Some(clause) = clause else { return Some(()) };
        let diagnostic =
            Diagnostic::error(code::OPTION_CONFLICT, format!("{name} belongs to {of}, but this is {law}"))
                .at(clause.span, "has no meaning here")
                .with_help(format!("remove {name}, or write `CONGESTION {of}`"));
        self.cx.report(diagnostic);
        None
    }

    /// Checks RELIABILITY AT LEAST ONCE with its window and limits.
    fn at_least_once(
        &mut self,
        window: &ast::Expr,
        calls: Option<&ast::Expr>,
        answers: Option<&ast::Expr>,
    ) -> Option<Reliability> {
        let id = self.next_key();
        let window = self.interval("RELIABILITY WINDOW", window);
        let calls_max = self.count_or("RELIABILITY CALLS", calls, 1..=COUNT_MAX, CALLS_DEFAULT);
        let answer_bytes_max = match answers {
            Some(answers) => self.answer_bytes(answers),
            None => Some(ANSWER_BYTES_DEFAULT),
        };
        Some(Reliability::AtLeastOnce {
            id,
            window: window?.value,
            calls_max: calls_max?,
            answer_bytes_max: answer_bytes_max?,
        })
    }

    /// Computes the maximum size of remembered answers.
    fn answer_bytes(&mut self, ast: &ast::Expr) -> Option<u32> {
        let what = "RELIABILITY ANSWERS UP TO";
        let Value::Int(n) = self.value(what, ast, Type::Size)? else { return None };
        let found = u32::try_from(n).ok().filter(|n| *n <= ANSWER_BYTES_MAX);
        let limits = format!("0 to {ANSWER_BYTES_MAX} bytes");
        found.or_else(|| self.over_limit(what, &limits, &(n as u64).to_string(), ast.span))
    }

    /// Finds the transport with this name. Reports an unknown one.
    fn transport(&mut self, transport: &ast::Ident) -> Option<Transport> {
        const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Unix];
        let found = TRANSPORTS.into_iter().find(|known| known.name().eq_ignore_ascii_case(&transport.name));
        if found.is_none() {
            let message = format!("unknown transport `{}`", transport.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_OPTION, message)
                .at(transport.span, "unknown")
                .with_note("there are: tcp, unix");
            let names = TRANSPORTS.map(Transport::name);
            self.cx.report(with_nearest(diagnostic, transport, names));
        }
        found
    }

    // ---- numbers -----------------------------------------------------------------------------------------------

    /// The next key, in the order of the policies with keys.
    fn next_key(&mut self) -> KeyId {
        self.n_keys += 1;
        KeyId(self.n_keys - 1)
    }

    fn count(&mut self, what: &str, ast: &ast::Expr, limits: RangeInclusive<u32>) -> Option<u32> {
        self.count_at(what, ast, limits).map(|at| at.value)
    }

    /// Computes a count within limits, or returns the default.
    fn count_or(
        &mut self,
        what: &str,
        ast: Option<&ast::Expr>,
        limits: RangeInclusive<u32>,
        default: u32,
    ) -> Option<u32> {
        ast.map_or(Some(default), |ast| self.count(what, ast, limits))
    }

    /// Computes a count within limits, with its span.
    fn count_at(&mut self, what: &str, ast: &ast::Expr, limits: RangeInclusive<u32>) -> Option<Spanned<u32>> {
        let Value::Int(n) = self.value(what, ast, Type::Int(64))? else { return None };
        match u32::try_from(n).ok().filter(|n| limits.contains(n)) {
            Some(value) => Some(Spanned { value, span: ast.span }),
            None => {
                let limits = format!("{} to {}", limits.start(), limits.end());
                self.over_limit(what, &limits, &n.to_string(), ast.span)
            }
        }
    }

    /// Computes an interval of more than zero and at most one day.
    fn interval(&mut self, what: &str, ast: &ast::Expr) -> Option<Spanned<Interval>> {
        let Value::Int(nanos) = self.value(what, ast, Type::Interval)? else { return None };
        let value = Interval(nanos);
        if nanos > 0 && value <= INTERVAL_MAX {
            return Some(Spanned { value, span: ast.span });
        }
        self.over_limit(what, "more than zero and at most one day", &value.to_string(), ast.span)
    }

    fn interval_or(&mut self, what: &str, ast: Option<&ast::Expr>, default: Interval) -> Option<Interval> {
        ast.map_or(Some(default), |ast| self.interval(what, ast).map(|at| at.value))
    }

    fn percent(&mut self, what: &str, ast: &ast::Expr) -> Option<f64> {
        let is_good = |percent| (0.0..=100.0).contains(&percent);
        self.real(what, ast, "0 to 100 PERCENT", is_good).map(|at| at.value)
    }

    fn percent_or(&mut self, what: &str, ast: Option<&ast::Expr>, default: f64) -> Option<f64> {
        ast.map_or(Some(default), |ast| self.percent(what, ast))
    }

    /// Computes a rate per second within limits.
    fn per_second(&mut self, what: &str, ast: &ast::Expr) -> Option<Spanned<f64>> {
        let is_good = |rate| (RATE_PER_SECOND_MIN..=RATE_PER_SECOND_MAX).contains(&rate);
        let limits = format!("{RATE_PER_SECOND_MIN:e} to {RATE_PER_SECOND_MAX:e} PER SECOND");
        self.real(what, ast, &limits, is_good)
    }

    /// Computes a float within limits.
    fn real(
        &mut self,
        what: &str,
        ast: &ast::Expr,
        limits: &str,
        is_good: impl Fn(f64) -> bool,
    ) -> Option<Spanned<f64>> {
        let Value::Float(value) = self.value(what, ast, Type::F64)? else { return None };
        match is_good(value) {
            true => Some(Spanned { value, span: ast.span }),
            false => self.over_limit(what, limits, &value.to_string(), ast.span),
        }
    }

    /// Computes the value of a number or interval. None if it has an error, or needs parameters that are not known.
    fn value(&mut self, what: &str, ast: &ast::Expr, ty: Type) -> Option<Value> {
        let mut n_rand = 0;
        let mut scope = Scope::new(self.cx, self.element, &[], View::Constant, &mut n_rand);
        let expr = scope.value_for(ast, ty, false, what)?;
        match self.params {
            Some(params) => self.cx.folded(&expr, params),
            None if reads_params(&expr) => None,
            None => self.cx.folded(&expr, &[]),
        }
    }

    // ---- conditions --------------------------------------------------------------------------------------------

    /// The statuses that a policy counts as failures; at least one.
    fn failures(&mut self, name: &str, when: Option<&ast::Expr>, verb: &str) -> Option<StatusSet> {
        let set = self.statuses(name, when, verb)?;
        if !set.value.is_empty() {
            return Some(set.value);
        }
        let diagnostic = Diagnostic::error(
            code::POLICY_WITHOUT_EFFECT,
            format!("this {name} would never {verb} any call"),
        )
        .at(set.span, "matches no status")
        .with_help("name the statuses: `WHEN status IN (UNAVAILABLE, DEADLINE_EXCEEDED)`");
        self.refuse(diagnostic)
    }

    /// Returns the statuses that satisfy a condition; [`StatusSet::server_errors`] without a condition.
    fn statuses(&mut self, name: &str, when: Option<&ast::Expr>, verb: &str) -> Option<Spanned<StatusSet>> {
        let Some(when) = when else {
            return Some(Spanned { value: StatusSet::server_errors(), span: self.element.span });
        };
        let mut n_rand = 0;
        let mut scope = Scope::new(self.cx, self.element, &[], View::StatusCondition, &mut n_rand);
        let condition = scope.condition(when)?;
        let params = match self.params {
            Some(params) => params,
            None if reads_params(&condition) => return None,
            None => &[],
        };
        let mut set = Vec::new();
        for status in Status::ALL {
            match fold_for_status(&condition, params, *status) {
                Ok(Value::Bool(true)) => set.push(*status),
                Ok(_) => {}
                Err(error) => return self.not_folded(error),
            }
        }
        if set.contains(&Status::Ok) {
            let message = format!("this {name} would {verb} successful calls");
            let diagnostic = Diagnostic::error(code::POLICY_WITHOUT_EFFECT, message)
                .at(when.span, "matches OK")
                .with_help("exclude OK: `status <> OK AND ...`, or name the statuses: `status IN (...)`");
            return self.refuse(diagnostic);
        }
        Some(Spanned { value: set.into_iter().collect(), span: when.span })
    }

    /// Reports a condition on the status that is not constant or is an error.
    fn not_folded<T>(&mut self, error: FoldError) -> Option<T> {
        match error {
            FoldError::NotConstant(span) => not_in_status_condition(self.cx, self.element, "this", span),
            FoldError::Fault(fault, span) => {
                let message = format!("this condition is an error: {fault}");
                self.refuse(Diagnostic::error(code::BAD_LITERAL, message).at(span, fault))
            }
        }
    }

    // ---- faults ------------------------------------------------------------------------------------------------

    fn over_limit<T>(&mut self, what: &str, limits: &str, value: &str, span: Span) -> Option<T> {
        let message = format!("{what} must be {limits}, but this is {value}");
        self.refuse(Diagnostic::error(code::OVER_LIMIT, message).at(span, "outside the limits"))
    }

    /// Reports two clauses that contradict each other.
    fn contradict<T>(
        &mut self,
        message: String,
        at: (Span, &str),
        other: (Span, &str),
        help: &str,
    ) -> Option<T> {
        const CODE: Code = code::POLICY_CONTRADICTS;
        let diagnostic =
            Diagnostic::error(CODE, message).at(at.0, at.1).with_label(other.0, other.1).with_help(help);
        self.refuse(diagnostic)
    }

    fn refuse<T>(&mut self, diagnostic: Diagnostic) -> Option<T> {
        self.cx.report(of_stage(diagnostic, self.stage));
        None
    }
}

/// Stores a policy; None if there is none.
fn set<T>(slot: &mut Option<T>, policy: Option<T>) -> Option<()> {
    *slot = policy;
    slot.as_ref().map(|_| ())
}

/// An optional clause: None after an error in it.
#[allow(clippy::option_option, reason = "written or not, and right or not")]
fn within<T>(clause: Option<Option<T>>) -> Option<Option<T>> {
    match clause {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

/// Whether an expression reads a parameter.
fn reads_params(expr: &Expr) -> bool {
    let mut found = false;
    each_expr(expr, &mut |part| found |= matches!(part.kind, ExprKind::Param(_)));
    found
}
