//! Keeps tables that are `FILLED BY PORTS` up to date with the node's devices.

use super::rows::publish;
use super::{Control, Parts, lock};
use std::sync::{Arc, Weak};
use std::time::Duration;
use weft_control::tables::{changes_to, filled_by_ports};
use weft_core::Value;
use weft_engine::rules::TableName;
use weft_io::clock;
use weft_io::packet::interface::LinkState;
use weft_io::packet::port::OpenPort;
use weft_lang::hir::Network;
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
    let tables = filled_by_ports(&control.network);
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
        change(parts, control, &name, &wanted);
    }
}

/// Changes the table of ports to the wanted rows.
fn change(parts: &Parts, control: &mut Control, name: &TableName, wanted: &[Vec<Value>]) {
    let Some(view) = control.compiler.store().table(name) else { return };
    let changes = changes_to(&view, wanted);
    drop(view);
    if changes.is_empty() {
        return;
    }
    if let Ok(pending) = control.compiler.store().change(name, changes, clock::now()) {
        let _ = publish(parts, control, pending);
    }
}
