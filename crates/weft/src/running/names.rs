//! The names of endpoints: they are looked up at the start and at each change, and one that has no address is looked up
//! again until it has.

use super::{Parts, lock};
use crate::log::{Level, Log};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weft_api::ResolvedName;
use weft_io::names::{self, Name, Names};

/// A start, or a change, waits no longer than this for a resolver; what comes later is looked up again.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);
/// A name without an address is looked up again after this time, which doubles with each failure,
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How often names are looked through for those whose time has come.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What resolvers say of names now; `known` is what was known before.
pub(super) fn look_up(wanted: &BTreeSet<String>, known: &Names) -> Names {
    names::look_up(wanted, known, LOOKUP_TIME_MAX)
}

/// What was found, and how it differs from what was known.
pub(super) fn found(names: &Names, known: &Names) -> Vec<ResolvedName> {
    let text = |name: &Name| name.addresses.iter().map(ToString::to_string).collect();
    let told = |(name, now): (&String, &Name)| ResolvedName {
        name: name.clone(),
        addresses: text(now),
        error: now.error.clone(),
        is_changed: known.get(name).map(set_of) != Some(set_of(now)),
    };
    names.iter().map(told).collect()
}

/// Resolvers give addresses in turns: another order is no change.
fn set_of(name: &Name) -> BTreeSet<std::net::SocketAddr> {
    name.addresses.iter().copied().collect()
}

/// Writes what was found: names that have other addresses, and those that have none.
pub(super) fn log_found(log: &Log, found: &[ResolvedName]) {
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

/// Looks up names that have no address, until the node is gone.
pub(super) fn retry(parts: &Weak<Parts>) {
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
            look_again(&parts, &due);
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

fn without_address(parts: &Parts) -> BTreeSet<String> {
    let names = lock(&parts.names);
    names.iter().filter(|(_, name)| name.addresses.is_empty()).map(|(name, _)| name.clone()).collect()
}

/// Looks names up, and tells the workers of those that have an address now.
fn look_again(parts: &Parts, due: &BTreeSet<String>) {
    let mut looked = look_up(due, &Names::new());
    looked.retain(|_, name| !name.addresses.is_empty());
    let node = lock(&parts.node);
    let mut names = lock(&parts.names);
    // A change may have taken a name out, or found its addresses, since.
    looked.retain(|name, _| names.get(name).is_some_and(|known| known.addresses.is_empty()));
    if looked.is_empty() {
        return;
    }
    let told = found(&looked, &names);
    let mut all = (**names).clone();
    all.extend(looked);
    *names = Arc::new(all);
    // A node that is gone, or that has lost a worker, needs no names.
    if let Some(node) = &*node {
        let _ = node.set_names(&names);
    }
    log_found(&parts.log, &told);
}
