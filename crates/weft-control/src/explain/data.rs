//! `weft explain --json`: the reports of chains as JSON.

use super::report::{
    Chain, ClashReport, Columns, Element, Filter, Handler, HeaderReport, Pair, Parallel, PlanReport,
    TableReport,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weft_core::classify::Description;
use weft_lang::ast::Side;
use weft_opt::plan::{Copied, LicensedBy};

/// One object with all chains, and the queues' data.
pub(super) fn of(chains: &[Chain], queues: Value) -> Value {
    json!({ "chains": chains.iter().map(chain).collect::<Vec<_>>(), "queues": queues })
}

/// A chain's report as JSON.
fn chain(chain: &Chain) -> Value {
    json!({
        "chain": chain.name,
        "from": chain.from,
        "to": chain.to,
        "methods": chain.methods,
        "frames": chain.frames.as_ref().map(|frames| json!({ "layers": frames.layers, "checks": frames.n_checks })),
        "branches": branches(chain),
        "level": chain.level.name(),
        "order": chain.plan.order,
        "reordered": chain.plan.order != chain.plan.written,
        "plan": plan(&chain.plan),
        "elements": chain.elements.iter().map(element).collect::<Vec<_>>(),
        "filters": chain.filters.iter().map(filter).collect::<Vec<_>>(),
        "pairs": chain.pairs.iter().map(pair).collect::<Vec<_>>(),
        "tables": chain.tables.iter().map(table).collect::<Vec<_>>(),
        "columns": { "request": columns(&chain.request), "response": columns(&chain.response) },
        "parallel": parallel(&chain.parallel),
        "headers": chain.headers.iter().map(header).collect::<Vec<_>>(),
    })
}

fn branches(chain: &Chain) -> Vec<Value> {
    let branch = |(edge, stages): &(String, Vec<String>)| json!({ "edge": edge, "stages": stages });
    chain.branches.iter().map(branch).collect()
}

fn columns(columns: &Columns) -> Value {
    let (n, of) = columns.fields.unzip();
    json!({ "names": columns.names, "fields": n, "fields_of_message": of })
}

/// The possible parallel execution as JSON.
fn parallel(parallel: &Parallel) -> Value {
    let pairs = parallel.pairs.iter().map(|pair| {
        let how = pair.verdict.as_ref();
        json!({
            "front": pair.front,
            "behind": pair.behind,
            "may_overlap": how.is_ok(),
            "copies": how.ok().map(|how| copied(how.copy)),
            "commits_at_merge": how.ok().map(|how| how.commits_at_merge),
            "why": how.err(),
        })
    });
    json!({
        "steps": parallel.steps,
        "saves_ns": parallel.saves_ns,
        "costs_ns": parallel.costs_ns,
        "pays": parallel.saves_ns > parallel.costs_ns,
        "pairs": pairs.collect::<Vec<_>>(),
    })
}

/// The source of a copy, in a word.
pub(super) fn copied(copied: Copied) -> &'static str {
    match copied {
        Copied::Nothing => "nothing",
        Copied::Headers => "headers",
        Copied::All => "all",
    }
}

/// A header layout as JSON.
fn header(header: &HeaderReport) -> Value {
    let fields = header
        .fields
        .iter()
        .map(|(name, bytes, is_text)| json!({ "name": name, "bytes": bytes, "is_text": is_text }));
    json!({ "before": header.before, "bytes": header.bytes, "fields": fields.collect::<Vec<_>>() })
}

/// The planned order and its costs as JSON.
fn plan(plan: &PlanReport) -> Value {
    let figures = plan.figures.iter().map(|(name, figures)| {
        json!({
            "element": name,
            "ns": figures.ns,
            "ends": figures.ends,
            "is_timed": figures.is_timed,
            "is_counted": figures.is_counted,
        })
    });
    let licences = plan.licences.iter().map(|licence| {
        let rules: Vec<String> = licence.rules.iter().map(ToString::to_string).collect();
        json!({ "front": licence.front, "behind": licence.behind, "by": by(licence.by), "rules": rules })
    });
    let crossings = plan
        .crossings
        .iter()
        .map(|(first, second, others)| json!({ "first": first, "second": second, "others": others }));
    let dead =
        plan.dead.iter().map(|(element, field, by)| json!({ "element": element, "field": field, "by": by }));
    let not_taken = plan.not_taken.as_ref().map(|(order, ns)| json!({ "order": order, "ns": ns }));
    json!({
        "written": plan.written,
        "order": plan.order,
        "written_ns": plan.written_ns,
        "planned_ns": plan.planned_ns,
        "is_exact": plan.is_exact,
        "not_taken": not_taken,
        "figures": figures.collect::<Vec<_>>(),
        "licences": licences.collect::<Vec<_>>(),
        "crossings": crossings.collect::<Vec<_>>(),
        "dead_fields": dead.collect::<Vec<_>>(),
    })
}

/// The construct of a chain that permits what a rule forbids.
pub(super) fn by(by: LicensedBy) -> &'static str {
    match by {
        LicensedBy::Braces => "braces",
        LicensedBy::Priority => "PRIORITY",
    }
}

/// A filter and its policies as JSON.
fn filter(filter: &Filter) -> Value {
    let policies = filter.policies.iter().map(|(name, text)| json!({ "policy": name, "text": text }));
    json!({
        "name": filter.name,
        "filter": filter.filter,
        "file": filter.file,
        "mandatory": filter.mandatory,
        "policies": policies.collect::<Vec<_>>(),
        "keys": filter.keys.as_ref().map(handler),
        "wraps": filter.wraps,
    })
}

/// An element and its handlers as JSON.
fn element(element: &Element) -> Value {
    json!({
        "name": element.name,
        "element": element.element,
        "file": element.file,
        "mandatory": element.mandatory,
        "fail_open": element.fail_open,
        "per_try": element.per_try,
        "at": element.side.map(|side| match side {
            Side::Client => "CLIENT",
            Side::Server => "SERVER",
        }),
        "handlers": element.handlers.iter().map(handler).collect::<Vec<_>>(),
        "table_bytes": element.table_bytes,
        "call_bytes": element.call_bytes,
    })
}

/// A handler, its cost and its effects as JSON.
fn handler(handler: &Handler) -> Value {
    let effects = handler.effects.iter().map(|effect| {
        let lines: Vec<u32> = effect.lines.iter().copied().filter(|line| *line > 0).collect();
        json!({ "kind": effect.kind, "what": effect.what, "lines": lines })
    });
    json!({
        "handler": handler.name,
        "ops": handler.ops,
        "ns_per_kib": handler.ns_per_kib,
        "effects": effects.collect::<Vec<_>>(),
    })
}

/// A pair of elements as JSON: whether it may be swapped, and the conflicts.
fn pair(pair: &Pair) -> Value {
    json!({
        "first": pair.first,
        "second": pair.second,
        "may_swap": pair.may_swap,
        "licence": pair.licence.map(by),
        "allowed_from": pair.allowed_from.map(|level| level.name()),
        "clashes": pair.clashes.iter().map(clash).collect::<Vec<_>>(),
    })
}

/// A conflict of two elements as JSON, with the program lines that cause it.
fn clash(report: &ClashReport) -> Value {
    let places = report.places.iter().map(|place| {
        json!({ "element": place.element, "file": place.file, "line": place.line, "text": place.text })
    });
    json!({
        "rule": report.clash.rule.to_string(),
        "name": report.clash.rule.name(),
        "clause": report.clash.clause.name(),
        "until": report.clash.until.name(),
        "blocking": report.is_blocking,
        "side": report.clash.side.name(),
        "why": report.clash.why,
        "places": places.collect::<Vec<_>>(),
    })
}

/// The search structure of a table's rules as JSON.
fn matched(built: &Description) -> Value {
    json!({
        "kind": built.kind.to_string(),
        "rows": built.rules,
        "parts": built.parts,
        "depth": built.depth,
        "bytes": built.bytes,
        "touches": built.touches,
    })
}

/// A table, its limits and its sharding as JSON.
fn table(table: &TableReport) -> Value {
    json!({
        "name": table.name,
        "rows_max": table.rows_max,
        "bytes_max": table.bytes_max,
        "ttl_ns": table.ages.iter().map(|(since, ttl)| (*since, ttl.0)).collect::<BTreeMap<_, _>>(),
        "realisation": table.realisation,
        "shard_by": table.shard_by,
        "sharding": table.sharding,
        "matched": table.matched.iter().map(matched).collect::<Vec<_>>(),
    })
}
