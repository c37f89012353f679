//! Tables `FILLED BY PORTS`.

use std::collections::BTreeMap;
use weft_core::table::Table as Rows;
use weft_core::{Time, Value};
use weft_engine::rules::{Change, TableName, TableView};
use weft_lang::ast::Filler;
use weft_lang::hir::{Network, Table};

/// The tables of a program that its ports fill.
pub fn filled_by_ports(network: &Network) -> Vec<(TableName, Table)> {
    let is_meant = |table: &&Table| table.filled == Some(Filler::Ports);
    let name = |chain: &str, instance: &str, table: &Table| {
        let (chain, instance, name) = (chain.to_owned(), instance.to_owned(), table.name.clone());
        (TableName { chain, instance, table: name }, table.clone())
    };
    let shared = network.tables.iter().filter(is_meant).map(|table| name("", "", table));
    let own = network.chains.iter().flat_map(|chain| {
        chain.instances.iter().flat_map(move |instance| {
            let tables = network.elements[instance.element].tables.iter().filter(is_meant);
            tables.map(move |table| name(&chain.name, &instance.name, table))
        })
    });
    shared.chain(own).collect()
}

/// The changes that turn the rows of a table of ports into the wanted rows: adds, replaces and removes.
pub fn changes_to(view: &TableView, wanted: &[Vec<Value>]) -> Vec<Change> {
    let held: Vec<Vec<Value>> = view.tables.first().map(|table| values(table)).unwrap_or_default();
    let (before, after) = (by_port(&held), by_port(wanted));
    let gone = before.iter().filter(|(port, _)| !after.contains_key(*port));
    let gone = gone.map(|(_, row)| Change::Remove(row[..1].to_vec()));
    let new = after.iter().filter(|(port, row)| before.get(*port) != Some(row));
    gone.chain(new.map(|(_, row)| Change::Put(row.to_vec()))).collect()
}

/// The rows of a table by the names of their ports. A map, because a thousand rows are looked at four times a second.
fn by_port(rows: &[Vec<Value>]) -> BTreeMap<&[u8], &[Value]> {
    let mut named = BTreeMap::new();
    for row in rows {
        if let Some(Value::Bytes(name)) = row.first() {
            named.insert(&name[..], &row[..]);
        }
    }
    named
}

/// The values of all rows of a table.
fn values(table: &Rows) -> Vec<Vec<Value>> {
    let mut cursor = 0;
    core::iter::from_fn(|| {
        let (row, next) = table.scan(cursor, Time(0))?;
        cursor = next;
        Some(table.values(row))
    })
    .collect()
}
