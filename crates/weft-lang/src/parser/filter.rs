//! Parses filters: policies, each with its clauses in a fixed order.

use crate::ast::{
    BackoffClause, BudgetClause, CircuitPolicy, CongestionLaw, CongestionPolicy, Expr, Filter, HedgePolicy,
    Item, OutlierPolicy, Policy, PolicyKind, RatePolicy, RatioClause, RetryPolicy,
};

use super::cursor::{Parsed, Parser};
use super::{Create, Row};

pub(super) const FILTER_FORM: &str = "CREATE FILTER timeout (d INTERVAL) ON rpc AS TIMEOUT TOTAL d; END;";

type ReadPolicy = fn(&mut Parser<'_>) -> Parsed<PolicyKind>;

const POLICIES: &[Row<ReadPolicy>] = &[
    Row { keyword: "TIMEOUT", read: |p| p.timeout(), form: "TIMEOUT TOTAL '1 s';" },
    Row {
        keyword: "RETRY",
        read: |p| p.retry(),
        form: "RETRY UP TO 2 WHEN status = UNAVAILABLE BACKOFF EXPONENTIAL '5 ms' TO '250 ms' \
               JITTER 20 PERCENT BUDGET 20 PERCENT;",
    },
    Row {
        keyword: "HEDGE",
        read: |p| p.hedge(),
        form: "HEDGE AFTER '50 ms' UP TO 1 WHEN status = UNAVAILABLE BUDGET 5 PERCENT;",
    },
    Row {
        keyword: "PACE",
        read: |p| p.pace(),
        form: "PACE TO 100 PER SECOND PER tenant QUEUE 50 WAIT '1 s' KEYS 1000;",
    },
    Row {
        keyword: "RATE",
        read: |p| p.rate(),
        form: "RATE 100 PER SECOND BURST 10 PER tenant QUEUE 50 WAIT '1 s' KEYS 1000;",
    },
    Row { keyword: "ORDER", read: |p| p.order_per(), form: "ORDER PER tenant QUEUE 100 KEYS 1000;" },
    Row {
        keyword: "CIRCUIT",
        read: |p| p.circuit(),
        form: "CIRCUIT AFTER 5 ERRORS RATIO 50 PERCENT OF 20 IN '10 s' IN FLIGHT 100 \
               WHEN status = UNAVAILABLE OPEN FOR '5 s' PROBES 3;",
    },
    Row {
        keyword: "OUTLIER",
        read: |p| p.outlier(),
        form: "OUTLIER AFTER 5 ERRORS WHEN status = UNAVAILABLE EJECT FOR '30 s' UP TO 10 PERCENT;",
    },
    Row {
        keyword: "CONGESTION",
        read: |p| p.congestion(),
        form: "CONGESTION AIMD FROM 20 MIN 1 MAX 200 LATENCY '100 ms' BACKOFF 0.9;",
    },
    Row {
        keyword: "RELIABILITY",
        read: |p| p.reliability(),
        form: "RELIABILITY AT LEAST ONCE ID id WINDOW '60 s' CALLS 10000 ANSWERS UP TO '1 KB';",
    },
    Row {
        keyword: "OVER",
        read: |p| Ok(PolicyKind::Over { transport: p.ident("a transport, `tcp` or `unix`")? }),
        form: "OVER unix;",
    },
];

pub(super) fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    super::forms_of(POLICIES)
}

impl Parser<'_> {
    /// Parses `CREATE FILTER`.
    pub(super) fn filter(&mut self, create: Create) -> Parsed<Item> {
        let n_faults = self.n_faults;
        let name = self.ident("a name for the filter")?;
        let params = self.params(Self::param)?;
        self.layout.weak(self.index());
        self.clause("ON", "a filter needs a layer")?;
        let layer = self.ident("a layer, such as `rpc`")?;
        let fields = self.optional_fields()?;
        self.keyword("AS")?;
        self.layout.deeper();
        let policies = self.options(POLICIES, Self::policy);
        self.layout.shallower();
        self.end_of_item("filter", &name.name, create.start);
        let is_faulty = self.n_faults != n_faults;
        let span = self.span_from(create.start);
        let or_replace = create.or_replace;
        Ok(Item::Filter(Filter { or_replace, name, params, layer, fields, policies, is_faulty, span }))
    }

    /// Parses one policy.
    fn policy(&mut self) -> Parsed<Policy> {
        let start = self.token().span;
        let row = self.begin(POLICIES, "a filter", "or `END`")?;
        let kind = (row.read)(self)?;
        let span = self.span_from(start);
        self.semicolon()?;
        Ok(Policy { kind, span })
    }

    /// Parses TIMEOUT.
    fn timeout(&mut self) -> Parsed<PolicyKind> {
        if self.eat_keyword("TOTAL").is_some() {
            return Ok(PolicyKind::TimeoutTotal { after: self.amount()? });
        }
        if self.eat_keyword("TRY").is_some() {
            return Ok(PolicyKind::TimeoutTry { after: self.amount()? });
        }
        self.keyword("PROPAGATE")?;
        Ok(PolicyKind::TimeoutPropagate { less: self.optional("LESS", Self::amount)? })
    }

    /// Parses RETRY.
    fn retry(&mut self) -> Parsed<PolicyKind> {
        self.keywords(&["UP", "TO"])?;
        let up_to = self.amount()?;
        self.layout.weak(self.index());
        self.clause("WHEN", "a `RETRY` needs the statuses to retry")?;
        let when = self.expr()?;
        if self.peek_keyword(0, "BACKOFF") {
            self.layout.strong(self.index(), 1);
        }
        let backoff = self.optional_backoff()?;
        let jitter = self.optional("JITTER", Self::percent)?;
        let budget = self.optional_budget()?;
        Ok(PolicyKind::Retry(RetryPolicy { up_to, when, backoff, jitter, budget }))
    }

    /// Parses BACKOFF, if present.
    fn optional_backoff(&mut self) -> Parsed<Option<BackoffClause>> {
        let Some(start) = self.eat_keyword("BACKOFF") else { return Ok(None) };
        let (first, max) = if self.eat_keyword("CONSTANT").is_some() {
            (self.amount()?, None)
        } else {
            self.keyword("EXPONENTIAL")?;
            let first = self.amount()?;
            self.keyword("TO")?;
            (first, Some(self.amount()?))
        };
        Ok(Some(BackoffClause { first, max, span: self.span_from(start) }))
    }

    /// Parses BUDGET, if present.
    fn optional_budget(&mut self) -> Parsed<Option<BudgetClause>> {
        if self.peek_keyword(0, "BUDGET") {
            self.layout.weak(self.index());
        }
        let Some(start) = self.eat_keyword("BUDGET") else { return Ok(None) };
        let percent = self.percent()?;
        let per_second = self.optional("AND", Self::per_second)?;
        Ok(Some(BudgetClause { percent, per_second, span: self.span_from(start) }))
    }

    /// Parses HEDGE.
    fn hedge(&mut self) -> Parsed<PolicyKind> {
        self.keyword("AFTER")?;
        let after = self.amount()?;
        self.keywords(&["UP", "TO"])?;
        let up_to = self.amount()?;
        let when = self.optional("WHEN", Self::expr)?;
        let budget = self.optional_budget()?;
        Ok(PolicyKind::Hedge(HedgePolicy { after, up_to, when, budget }))
    }

    /// Parses PACE.
    fn pace(&mut self) -> Parsed<PolicyKind> {
        self.keyword("TO")?;
        let per_second = self.per_second()?;
        self.rest_of_rate(per_second, None).map(PolicyKind::Pace)
    }

    /// Parses RATE.
    fn rate(&mut self) -> Parsed<PolicyKind> {
        let per_second = self.per_second()?;
        let burst = self.optional("BURST", Self::amount)?;
        self.rest_of_rate(per_second, burst).map(PolicyKind::Rate)
    }

    /// Parses the clauses of RATE after its rate and burst.
    fn rest_of_rate(&mut self, per_second: Expr, burst: Option<Expr>) -> Parsed<RatePolicy> {
        let key = self.optional("PER", Self::keys)?.unwrap_or_default();
        let queue = self.optional("QUEUE", Self::amount)?;
        let wait = self.optional("WAIT", Self::amount)?;
        let keys = self.optional("KEYS", Self::amount)?;
        Ok(RatePolicy { per_second, burst, key, queue, wait, keys })
    }

    /// Parses ORDER PER.
    fn order_per(&mut self) -> Parsed<PolicyKind> {
        self.keyword("PER")?;
        let key = self.keys()?;
        let queue = self.optional("QUEUE", Self::amount)?;
        Ok(PolicyKind::Order { key, queue, keys: self.optional("KEYS", Self::amount)? })
    }

    /// Parses CIRCUIT.
    fn circuit(&mut self) -> Parsed<PolicyKind> {
        let errors = self.optional("AFTER", Self::errors)?;
        let ratio = self.optional_ratio()?;
        let in_flight = self.optional_two("IN", "FLIGHT", Self::amount)?;
        let when = self.optional("WHEN", Self::expr)?;
        let open_for = self.optional_two("OPEN", "FOR", Self::amount)?;
        let probes = self.optional("PROBES", Self::amount)?;
        Ok(PolicyKind::Circuit(CircuitPolicy { errors, ratio, in_flight, when, open_for, probes }))
    }

    /// Parses RATIO, if present.
    fn optional_ratio(&mut self) -> Parsed<Option<RatioClause>> {
        if self.peek_keyword(0, "RATIO") {
            self.layout.weak(self.index());
        }
        let Some(start) = self.eat_keyword("RATIO") else { return Ok(None) };
        let percent = self.percent()?;
        self.keyword("OF")?;
        let calls = self.amount()?;
        self.keyword("IN")?;
        let window = self.amount()?;
        Ok(Some(RatioClause { percent, calls, window, span: self.span_from(start) }))
    }

    /// Parses OUTLIER.
    fn outlier(&mut self) -> Parsed<PolicyKind> {
        self.keyword("AFTER")?;
        let errors = self.errors()?;
        let when = self.optional("WHEN", Self::expr)?;
        self.layout.weak(self.index());
        self.keywords(&["EJECT", "FOR"])?;
        let eject_for = self.amount()?;
        let up_to = self.optional_two("UP", "TO", Self::percent)?;
        Ok(PolicyKind::Outlier(OutlierPolicy { errors, when, eject_for, up_to }))
    }

    /// Parses CONGESTION.
    fn congestion(&mut self) -> Parsed<PolicyKind> {
        let law = self.choice(&[("AIMD", CongestionLaw::Aimd), ("GRADIENT", CongestionLaw::Gradient)])?;
        let from = self.optional("FROM", Self::amount)?;
        let min = self.optional("MIN", Self::amount)?;
        self.keyword("MAX")?;
        let max = self.amount()?;
        let latency = self.optional("LATENCY", Self::amount)?;
        let backoff = self.optional("BACKOFF", Self::amount)?;
        let tolerance = self.optional("TOLERANCE", Self::amount)?;
        let when = self.optional("WHEN", Self::expr)?;
        Ok(PolicyKind::Congestion(CongestionPolicy {
            law,
            from,
            min,
            max,
            latency,
            backoff,
            tolerance,
            when,
        }))
    }

    /// Parses RELIABILITY.
    fn reliability(&mut self) -> Parsed<PolicyKind> {
        self.keyword("AT")?;
        if self.eat_keyword("MOST").is_some() {
            self.keyword("ONCE")?;
            return Ok(PolicyKind::AtMostOnce);
        }
        self.keywords(&["LEAST", "ONCE", "ID"])?;
        let id = self.keys()?;
        self.layout.weak(self.index());
        self.clause("WINDOW", "answers need a retention time")?;
        let window = self.amount()?;
        let calls = self.optional("CALLS", Self::amount)?;
        let answers = self.optional("ANSWERS", |p| {
            p.keywords(&["UP", "TO"])?;
            p.amount()
        })?;
        Ok(PolicyKind::AtLeastOnce { id, window, calls, answers })
    }

    /// Parses `KEYWORD ...`, if present.
    fn optional<T>(
        &mut self,
        keyword: &'static str,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<Option<T>> {
        if !self.at_keyword(keyword) {
            return Ok(None);
        }
        self.layout.weak(self.index());
        self.bump_keyword();
        read(self).map(Some)
    }

    /// Parses a clause as [`Parser::optional`], for two keywords.
    fn optional_two<T>(
        &mut self,
        first: &'static str,
        second: &'static str,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<Option<T>> {
        let at = self.index();
        if self.eat_keywords(first, second).is_none() {
            return Ok(None);
        }
        self.layout.weak(at);
        read(self).map(Some)
    }

    fn keys(&mut self) -> Parsed<Vec<Expr>> {
        self.comma_list(Self::expr)
    }

    /// `n ERRORS`
    fn errors(&mut self) -> Parsed<Expr> {
        let n = self.amount()?;
        self.keyword("ERRORS")?;
        Ok(n)
    }

    /// `p PERCENT`
    fn percent(&mut self) -> Parsed<Expr> {
        let percent = self.amount()?;
        self.keyword("PERCENT")?;
        Ok(percent)
    }

    /// `r PER SECOND`
    fn per_second(&mut self) -> Parsed<Expr> {
        let rate = self.amount()?;
        self.keywords(&["PER", "SECOND"])?;
        Ok(rate)
    }
}
