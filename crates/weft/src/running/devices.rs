//! Keeps tables that are `FILLED BY PORTS` up to date with the node's devices.

use super::rows::publish;
use super::{Control, Parts, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weft_core::table::Table as Rows;
use weft_core::{Time, Value};
use weft_engine::rules::{Change, TableName};
use weft_io::clock;
use weft_io::packet::interface::LinkState;
use weft_io::packet::port::OpenPort;
use weft_lang::ast::Filler;
use weft_lang::hir::{Network, Table};
use weft_lang::ports::{self, Device};

/// The interval between looks at devices: people change an MTU by hand.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The devices of a node, by the names of their ports.
pub(super) type Devices = Vec<(String, Arc<LinkState>)>;

/// The devices of open ports. A capture has none.
pub(super) fn of(open: &[OpenPort]) -> Devices {
    let device = |port: &OpenPort| Some((port.config().name.clone(), Arc::clone(port.link()?)));
    open.iter().filter_map(device).collect()
}

/// Keeps the tables up to date until the node is gone.
pub(super) fn watch(parts: &Weak<Parts>) {
    while let Some(parts) = parts.upgrade() {
        update_tables(&parts);
        drop(parts);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Updates tables that differ from the devices. If this fails, the node is about to end or has lost a worker; other
/// code reports that.
pub(super) fn update_tables(parts: &Parts) {
    update_tables_locked(parts, &mut lock(&parts.control));
}

/// As [`update_tables`], for a caller that holds the lock.
pub(super) fn update_tables_locked(parts: &Parts, control: &mut Control) {
    let tables = tables_of(&control.network);
    if tables.is_empty() {
        return;
    }
    let device = |name: &String| match parts.devices.iter().find(|(known, _)| known == name) {
        Some((_, link)) => Device { mtu: link.mtu(), mac: link.mac() },
        None => Device::default(),
    };
    let known: Vec<Device> = control.network.ports.iter().map(|port| device(&port.name)).collect();
    for (name, table) in tables {
        let Network { ports, groups, .. } = &control.network;
        let wanted = ports::rows(ports, groups, &known, &table);
        change(parts, control, &name, wanted);
    }
}

/// The tables of a program that its ports fill.
pub(super) fn tables_of(network: &Network) -> Vec<(TableName, Table)> {
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

/// Changes the table of ports to the wanted rows: adds, replaces and removes.
fn change(parts: &Parts, control: &mut Control, name: &TableName, wanted: Vec<Vec<Value>>) {
    let Some(view) = control.compiler.store().table(name) else { return };
    let held: Vec<Vec<Value>> = view.tables.first().map(|table| values(table)).unwrap_or_default();
    drop(view);
    let (before, after) = (by_port(&held), by_port(&wanted));
    let gone = before.iter().filter(|(port, _)| !after.contains_key(*port));
    let gone = gone.map(|(_, row)| Change::Remove(row[..1].to_vec()));
    let new = after.iter().filter(|(port, row)| before.get(*port) != Some(row));
    let changes: Vec<Change> = gone.chain(new.map(|(_, row)| Change::Put(row.to_vec()))).collect();
    if changes.is_empty() {
        return;
    }
    if let Ok(pending) = control.compiler.store().change(name, changes, clock::now()) {
        let _ = publish(parts, control, pending);
    }
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
