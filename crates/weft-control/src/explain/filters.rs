//! Describes the policies of filters in words, for `weft explain`.

use crate::show::{count, grouped};
use std::fmt::Write as _;
use weft_core::Interval;
use weft_core::filter::{
    Budget, Circuit, Congestion, CongestionLaw, Hedge, INTERVAL_MAX, KeyId, Outlier, Policies, Rate,
    Reliability, Retry, StatusSet, Timeouts,
};

/// Each policy with its effect, seen from the caller. `keys` are the keys as the program writes them.
pub(super) fn policies(policies: &Policies, keys: &[String]) -> Vec<(&'static str, String)> {
    let key = |key: KeyId| keys.get(usize::from(key.0)).map_or("key", String::as_str);
    let mut rows: Vec<(&'static str, String)> = Vec::new();
    let mut add = |name, text: Option<String>| rows.extend(text.map(|text| (name, text)));
    add("RELIABILITY", policies.once.as_ref().map(|once| reliability(once, &key)));
    add(
        "ORDER",
        policies.order.map(|order| {
            let key = key(order.key);
            format!("one after the other for each {key}; {} may wait", calls(order.waiting_max))
        }),
    );
    add("RATE", policies.rate.as_ref().map(|limit| rate(limit, &key)));
    add("CIRCUIT", policies.circuit.as_ref().map(circuit));
    add("CONGESTION", policies.congestion.as_ref().map(congestion));
    add("TIMEOUT", timeouts(&policies.timeouts));
    add("RETRY", policies.retry.as_ref().map(retry));
    add("HEDGE", policies.hedge.as_ref().map(hedge));
    add("OUTLIER", policies.outlier.as_ref().map(outlier));
    add("OVER", policies.over.map(|transport| format!("endpoints of {} alone", transport.name())));
    rows
}

/// Describes the delivery guarantee in a sentence.
fn reliability<'k>(once: &Reliability, key: &dyn Fn(KeyId) -> &'k str) -> String {
    match once {
        Reliability::AtMostOnce => "a call is sent at most once".to_owned(),
        Reliability::AtLeastOnce { id, window, calls_max, answer_bytes_max } => format!(
            "calls of one method with the same {} are one; {} answers of up to {} bytes are kept for {window}",
            key(*id),
            grouped(u64::from(*calls_max)),
            grouped(u64::from(*answer_bytes_max))
        ),
    }
}

/// Describes the rate limit in a sentence.
fn rate<'k>(rate: &Rate, key: &dyn Fn(KeyId) -> &'k str) -> String {
    let mut text = format!("{} calls a second", rate.per_second);
    match rate.burst {
        burst if burst > 1.0 => _ = write!(text, ", {burst} at once"),
        _ => text += ", evenly",
    }
    if let Some(of) = rate.key {
        _ = write!(text, ", for each {} of {}", key(of), grouped(u64::from(rate.keys_max)));
    }
    match rate.waiting_max {
        0 => text += "; what comes sooner is refused",
        n => _ = write!(text, "; {} may wait{}", calls(n), no_longer_than(rate.wait_max)),
    }
    text
}

fn no_longer_than(wait: Interval) -> String {
    if wait == INTERVAL_MAX { String::new() } else { format!(", for {wait} at most") }
}

/// Describes the circuit breaker in a sentence.
fn circuit(circuit: &Circuit) -> String {
    let mut when = Vec::new();
    if let Some(n) = circuit.errors_max {
        when.push(format!("after {n} errors in a row"));
    }
    if let Some(ratio) = &circuit.ratio {
        when.push(format!(
            "when {} % of {} or more fail in {}",
            ratio.percent,
            calls(ratio.calls_min),
            ratio.window
        ));
    }
    let mut text = String::new();
    if !when.is_empty() {
        let probes = if circuit.probes == 1 { "one".to_owned() } else { circuit.probes.to_string() };
        _ = write!(
            text,
            "opens for {} {}, closes after {probes} that went well; counts {}",
            circuit.open_for,
            when.join(", or "),
            statuses(circuit.errors)
        );
    }
    if let Some(n) = circuit.in_flight_max {
        let and = if text.is_empty() { "" } else { "; " };
        _ = write!(text, "{and}{} under way at most", calls(n));
    }
    text
}

/// Describes the adaptive limit of calls in flight in a sentence.
fn congestion(congestion: &Congestion) -> String {
    let Congestion { start, min, max, .. } = congestion;
    let law = match congestion.law {
        CongestionLaw::Aimd { latency_max, backoff } => {
            let slow = latency_max.map_or(String::new(), |d| format!(" or more than {d}"));
            format!("one more each round, times {backoff} after {}{slow}", statuses(congestion.errors))
        }
        CongestionLaw::Gradient { tolerance } => {
            format!(
                "less where calls take {tolerance} times as long as they did, or end with {}",
                statuses(congestion.errors)
            )
        }
    };
    format!("{start} under way to begin with, {min} to {max}; {law}")
}

/// Describes the timeouts; None if there are none.
fn timeouts(timeouts: &Timeouts) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend(timeouts.total.map(|d| format!("{d} in all")));
    parts.extend(timeouts.per_try.map(|d| format!("{d} a try")));
    parts.extend(timeouts.propagate.map(|less| match less {
        Interval(0) => "servers get the time left".to_owned(),
        less => format!("servers get the time left, less {less}"),
    }));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Describes the retry policy in a sentence.
fn retry(retry: &Retry) -> String {
    let backoff = &retry.backoff;
    let wait = match backoff.first == backoff.max {
        true => backoff.first.to_string(),
        false => format!("{} to {}", backoff.first, backoff.max),
    };
    let jitter = match backoff.jitter_percent {
        0.0 => String::new(),
        percent => format!(", {percent} % more or less"),
    };
    format!(
        "up to {} more after {}; waits {wait}{jitter}{}",
        retry.retries_max,
        statuses(retry.when),
        budget(retry.budget)
    )
}

/// Describes the hedging policy in a sentence.
fn hedge(hedge: &Hedge) -> String {
    let losing = match hedge.not_final.is_empty() {
        true => String::new(),
        false => format!(" or {}", statuses(hedge.not_final)),
    };
    format!(
        "up to {} more, each after {} without an answer{losing}{}",
        hedge.extra_max,
        hedge.after,
        budget(hedge.budget)
    )
}

/// The end of a sentence that gives the budget of extra calls; empty without one.
fn budget(budget: Option<Budget>) -> String {
    match budget {
        None => String::new(),
        Some(budget) => format!(
            "; no more than {} of 100 calls, and {} a second in any case",
            budget.percent, budget.per_second_min
        ),
    }
}

/// Describes the ejection of failing endpoints in a sentence.
fn outlier(outlier: &Outlier) -> String {
    format!(
        "an endpoint is left out for {} after {} errors in a row, {} % of them at most; counts {}",
        outlier.eject_for,
        outlier.errors_max,
        outlier.ejected_max_percent,
        statuses(outlier.errors)
    )
}

/// `1 call`, `1,024 calls`.
fn calls(n: u32) -> String {
    count(u64::from(n), "call")
}

/// The statuses that a policy counts as failures, in the fewest words.
fn statuses(set: StatusSet) -> String {
    if set == StatusSet::server_errors() {
        return "errors of the server".to_owned();
    }
    let names: Vec<&str> = set.iter().map(|status| status.name()).collect();
    match names.as_slice() {
        [] => "no status".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
