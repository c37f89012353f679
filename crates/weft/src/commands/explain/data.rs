//! The same as data.

use super::report::{Chain, ClashTold, Element, Handler, Pair, TableTold};
use serde_json::{Value, json};

/// One object with all chains.
pub(super) fn of(chains: &[Chain]) -> Value {
    json!({ "chains": chains.iter().map(chain).collect::<Vec<_>>() })
}

fn chain(chain: &Chain) -> Value {
    let order: Vec<&str> = chain.elements.iter().map(|element| &*element.name).collect();
    json!({
        "chain": chain.name,
        "from": chain.from,
        "to": chain.to,
        "methods": chain.methods,
        "level": chain.level.name(),
        // What runs is what is written.
        "order": order,
        "reordered": false,
        "elements": chain.elements.iter().map(element).collect::<Vec<_>>(),
        "pairs": chain.pairs.iter().map(pair).collect::<Vec<_>>(),
        "tables": chain.tables.iter().map(table).collect::<Vec<_>>(),
        "columns": { "request": chain.request, "response": chain.response },
    })
}

fn element(element: &Element) -> Value {
    json!({
        "name": element.name,
        "element": element.element,
        "file": element.file,
        "mandatory": element.mandatory,
        "fail_open": element.fail_open,
        "handlers": element.handlers.iter().map(handler).collect::<Vec<_>>(),
        "table_bytes": element.table_bytes,
        "call_bytes": element.call_bytes,
    })
}

fn handler(handler: &Handler) -> Value {
    let effects = handler.effects.iter().map(|effect| {
        let lines: Vec<u32> = effect.lines.iter().copied().filter(|line| *line > 0).collect();
        json!({ "kind": effect.kind, "what": effect.what, "lines": lines })
    });
    json!({ "handler": handler.name, "ops": handler.ops, "effects": effects.collect::<Vec<_>>() })
}

fn pair(pair: &Pair) -> Value {
    json!({
        "first": pair.first,
        "second": pair.second,
        "may_swap": pair.may_swap,
        "allowed_from": pair.allowed_from.map(|level| level.name()),
        "clashes": pair.clashes.iter().map(clash).collect::<Vec<_>>(),
    })
}

fn clash(told: &ClashTold) -> Value {
    let places = told.places.iter().map(|place| {
        json!({ "element": place.element, "file": place.file, "line": place.line, "text": place.text })
    });
    json!({
        "rule": told.clash.rule.to_string(),
        "name": told.clash.rule.name(),
        "until": told.clash.until.name(),
        "blocking": told.is_blocking,
        "side": told.clash.side.name(),
        "why": told.clash.why,
        "places": places.collect::<Vec<_>>(),
    })
}

fn table(table: &TableTold) -> Value {
    json!({
        "name": table.name,
        "rows_max": table.rows_max,
        "bytes_max": table.bytes_max,
        "realisation": table.realisation,
        "shard_by": table.shard_by,
        "sharding": table.sharding,
    })
}
