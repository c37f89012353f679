//! Resolves the names of endpoints to addresses.
//!
//! Lookups run on threads of their own, because a resolver may take seconds. A worker gets the results by mail, and
//! chooses among the addresses of a name for each connection.

use crate::privileges::{self, KeptCapabilities};
use crate::race::interleave;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft_engine::plan::{Address, Plan};

/// Largest number of addresses of a name; further ones are ignored.
pub const ADDRESSES_MAX: usize = 16;
/// Largest number of concurrent lookups.
pub const LOOKUPS_MAX: usize = 16;

/// The addresses of names; a name without an address is included.
pub type Names = BTreeMap<String, Name>;

/// The result for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Its addresses, in the order of attempts.
    pub addresses: Vec<SocketAddr>,
    /// Why the last lookup found none.
    pub error: Option<String>,
}

/// Returns the names of a plan's endpoints.
pub fn names_of(plan: &Plan) -> BTreeSet<String> {
    let endpoints = plan.clusters.iter().flat_map(|cluster| &cluster.endpoints);
    endpoints
        .filter_map(|address| if let Address::Name(name) = address { Some(name.clone()) } else { None })
        .collect()
}

/// Looks names up, and waits this long for answers. Names without an answer keep their entry in `known`.
pub fn look_up(names: &BTreeSet<String>, known: &Names, within: Duration) -> Names {
    let until = Instant::now() + within;
    let waiting = Arc::new(Mutex::new(names.iter().cloned().collect::<Vec<_>>()));
    let (found, founds) = channel();
    for _ in 0..names.len().min(LOOKUPS_MAX) {
        let (waiting, found) = (Arc::clone(&waiting), found.clone());
        let work = move || {
            // A resolver is a lot of code, and needs none of the node's capabilities.
            let _ = privileges::reduce(KeptCapabilities::Nothing);
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            while let Some(name) = next() {
                let looked = resolve(&name);
                if found.send((name, looked)).is_err() {
                    return;
                }
            }
        };
        // Without a thread the names stay unresolved until the next lookup.
        let _ = std::thread::Builder::new().name("weft-lookup".to_owned()).spawn(work);
    }
    drop(found);
    let unanswered = || Err(format!("no answer within {} s", within.as_secs_f64()));
    let mut answers: BTreeMap<String, Result<Vec<SocketAddr>, String>> =
        names.iter().map(|name| (name.clone(), unanswered())).collect();
    for _ in names {
        match founds.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((name, looked)) => {
                answers.insert(name, looked);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    let told = |(name, answer): (String, Result<Vec<SocketAddr>, String>)| {
        let name_now = match answer {
            Ok(addresses) => Name { addresses, error: None },
            // A failing name server must not remove servers that work.
            Err(error) => {
                let before = known.get(&name).map(|name| name.addresses.clone()).unwrap_or_default();
                Name { addresses: before, error: Some(error) }
            }
        };
        (name, name_now)
    };
    answers.into_iter().map(told).collect()
}

/// Resolves a name to its addresses, without duplicates and alternating between families. An error says why there are
/// none.
fn resolve(name: &str) -> Result<Vec<SocketAddr>, String> {
    let all: Vec<SocketAddr> = name.to_socket_addrs().map_err(|error| reason(&error))?.collect();
    let mut seen = BTreeSet::new();
    // An IPv4 address may also come as `::ffff:10.0.0.1`.
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let all: Vec<SocketAddr> = all.into_iter().map(plain).filter(|address| seen.insert(*address)).collect();
    let mut addresses = interleave(&all);
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() { Err("it has no address".to_owned()) } else { Ok(addresses) }
}

/// The resolver's message, without the prefix of the standard library.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("failed to lookup address information: ").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_lookup_keeps_addresses() {
        // A temporary failure of the name server would cut a node off from servers that work.
        let name = "absent.invalid:80".to_owned();
        let before = Name { addresses: vec![SocketAddr::from(([10, 0, 0, 1], 80))], error: None };
        let known = Names::from([(name.clone(), before.clone())]);
        let names = BTreeSet::from([name.clone(), "127.0.0.9:80".to_owned()]);
        let found = look_up(&names, &known, Duration::from_secs(20));
        assert_eq!(found[&name].addresses, before.addresses);
        assert!(found[&name].error.is_some());
        assert_eq!(found["127.0.0.9:80"].addresses, [SocketAddr::from(([127, 0, 0, 9], 80))]);
    }
}
