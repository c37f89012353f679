//! Resolves the names of endpoints, at the start and at each change. A name without an address is resolved again until
//! it has one.

use super::{Parts, lock};
use crate::log::{Level, Log};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weft_api::ResolvedName;
use weft_io::names::{self, Name, Names};

/// The longest time that a start or a change waits for a resolver; the retry handles later answers.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);
/// A name without an address is resolved again after this time, which doubles with each failure,
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The interval between looks for names whose retry is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Resolves names; `known` are the earlier results.
pub(super) fn look_up(wanted: &BTreeSet<String>, known: &Names) -> Names {
    names::look_up(wanted, known, LOOKUP_TIME_MAX)
}

/// The results in the API's form, and whether they differ from the earlier ones.
pub(super) fn reports(names: &Names, known: &Names) -> Vec<ResolvedName> {
    let text = |name: &Name| name.addresses.iter().map(ToString::to_string).collect();
    let to_api = |(name, now): (&String, &Name)| ResolvedName {
        name: name.clone(),
        addresses: text(now),
        error: now.error.clone(),
        is_changed: known.get(name).map(set_of) != Some(set_of(now)),
    };
    names.iter().map(to_api).collect()
}

/// Resolvers rotate addresses: another order is no change.
fn set_of(name: &Name) -> BTreeSet<std::net::SocketAddr> {
    name.addresses.iter().copied().collect()
}

/// Logs names whose addresses have changed, and names that do not resolve.
pub(super) fn log_reports(log: &Log, found: &[ResolvedName]) {
    for name in found {
        let fields =
            [("name", json!(name.name)), ("addresses", json!(name.addresses)), ("error", json!(name.error))];
        if let Some(error) = &name.error {
            let kept = if name.addresses.is_empty() { "its endpoint is down" } else { "its addresses stay" };
            log.event(Level::Warn, "name", &format!("name {}: {error}; {kept}", name.name), &fields);
        } else if name.is_changed {
            let text = format!("name {}: {}", name.name, name.addresses.join(", "));
            log.event(Level::Info, "name", &text, &fields);
        }
    }
}

/// Resolves names without an address again, until the node is gone.
pub(super) fn retry_unresolved(parts: &Weak<Parts>) {
    let mut tries: BTreeMap<String, (Instant, Duration)> = BTreeMap::new();
    while let Some(parts) = parts.upgrade() {
        let now = Instant::now();
        let unknown = without_address(&parts);
        tries.retain(|name, _| unknown.contains(name));
        for name in unknown {
            tries.entry(name).or_insert((now + RETRY_FIRST, RETRY_FIRST));
        }
        let due: BTreeSet<String> =
            tries.iter().filter(|(_, (at, _))| *at <= now).map(|(name, _)| name.clone()).collect();
        if !due.is_empty() {
            retry_once(&parts, &due);
            for name in due {
                tries.entry(name).and_modify(|(at, pause)| {
                    *pause = (*pause * 2).min(RETRY_MAX);
                    *at = Instant::now() + *pause;
                });
            }
        }
        drop(parts);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The names of the running program that have no address.
fn without_address(parts: &Parts) -> BTreeSet<String> {
    let names = lock(&parts.names);
    names.iter().filter(|(_, name)| name.addresses.is_empty()).map(|(name, _)| name.clone()).collect()
}

/// Resolves names, and sends new addresses to the workers.
fn retry_once(parts: &Parts, due: &BTreeSet<String>) {
    let mut looked = look_up(due, &Names::new());
    looked.retain(|_, name| !name.addresses.is_empty());
    let node = lock(&parts.node);
    let mut names = lock(&parts.names);
    // A change may have removed a name, or found its addresses, meanwhile.
    looked.retain(|name, _| names.get(name).is_some_and(|known| known.addresses.is_empty()));
    if looked.is_empty() {
        return;
    }
    let report = reports(&looked, &names);
    let mut all = (**names).clone();
    all.extend(looked);
    *names = Arc::new(all);
    // A node that is gone, or that has lost a worker, needs no names.
    if let Some(node) = &*node {
        let _ = node.set_names(&names);
    }
    log_reports(&parts.log, &report);
}
