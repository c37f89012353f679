//! Logs the changes of a running node since the last look: endpoints, devices, limits, lost rows.

use crate::log::{Level, Log};
use crate::open_files;
use crate::running::Running;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_api::Endpoint;
use weft_control::show::{count, grouped};
use weft_control::status::{RowsRefused, device_failure};
use weft_io::descriptors::Descriptors;
use weft_io::node::OUT_OF_DESCRIPTORS;

/// The interval between looks at endpoints, limits and sinks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The interval between looks at devices.
const DEVICES_EVERY: Duration = Duration::from_millis(500);
/// The least interval between two log lines of one limit, reason or table.
const COUNTS_EVERY: Duration = Duration::from_secs(10);

/// The state as last logged.
#[derive(Default)]
pub(crate) struct Watch {
    next: Option<Instant>,
    next_devices: Option<Instant>,
    gone: BTreeMap<String, String>,
    outgrown: BTreeMap<String, String>,
    endpoints: BTreeMap<(String, String), State>,
    counts: BTreeMap<String, LoggedCount>,
    /// Files of sinks that cannot be written, and why.
    files: BTreeMap<String, String>,
}

/// An event for the log.
#[derive(Debug, PartialEq)]
pub(crate) struct Event {
    level: Level,
    event: &'static str,
    text: String,
    fields: Vec<(&'static str, Value)>,
}

/// The outcome of the last connection attempt to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Down,
}

/// A count as last logged.
struct LoggedCount {
    logged: u64,
    next: Instant,
}

impl Watch {
    /// Logs the changes of the node since the last look.
    pub(crate) fn look(&mut self, running: &Running, now: Instant) {
        let mut events = Vec::new();
        if self.next_devices.is_none_or(|next| next <= now) && !running.ports().is_empty() {
            self.next_devices = Some(now + DEVICES_EVERY);
            events.extend(self.devices(running));
        }
        if self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + LOOK_EVERY);
            if let Some(state) = running.watched_state() {
                events.extend(self.endpoints(&state.endpoints));
                events.extend(self.refusals(&state.refusals, now));
                events.extend(self.files(state.sink_errors));
                events.extend(self.rows(state.rows_lost, &state.rows_refused, now));
            }
        }
        events.iter().for_each(|event| event.write(running.log()));
    }

    /// Devices that are gone, back, or have longer packets than their buffers hold.
    fn devices(&mut self, running: &Running) -> Vec<Event> {
        let packets = running.stats().and_then(|stats| stats.packets).unwrap_or_default();
        let mut events = Vec::new();
        for port in &packets.ports {
            let name = &port.config.name;
            match device_failure(port) {
                Some(why) if self.gone.get(name) != Some(&why) => {
                    events.push(of_port(Level::Warn, name, &why));
                    self.gone.insert(name.clone(), why);
                }
                None if self.gone.remove(name).is_some() => {
                    events.push(of_port(Level::Info, name, &format!("`{}` is back", port.config.device)));
                }
                _ => {}
            }
        }
        let outgrown = running.outgrown();
        let is_new = |(port, _): &(&String, &String)| !self.outgrown.contains_key(*port);
        events.extend(outgrown.iter().filter(is_new).map(|(port, why)| of_port(Level::Warn, port, why)));
        self.outgrown = outgrown;
        events
    }

    /// Endpoints that are down, or up again.
    fn endpoints(&mut self, endpoints: &[Endpoint]) -> Vec<Event> {
        let mut events = Vec::new();
        let known = core::mem::take(&mut self.endpoints);
        for endpoint in endpoints {
            let key = (endpoint.cluster.clone(), endpoint.address.clone());
            let before = known.get(&key).copied();
            let state = match &endpoint.down {
                Some(_) => Some(State::Down),
                None if endpoint.connections > 0 => Some(State::Up),
                // The endpoint was not tried, or its connection was idle: its state is unchanged.
                None => before,
            };
            let Some(state) = state else { continue };
            self.endpoints.insert(key, state);
            if before == Some(state) {
                continue;
            }
            let Endpoint { cluster, address, down, .. } = endpoint;
            let (level, text) = match down {
                Some(why) => (Level::Warn, format!("endpoint {address} of {cluster} is down: {why}")),
                None => (Level::Info, format!("endpoint {address} of {cluster} is up")),
            };
            let fields = vec![
                ("cluster", json!(cluster)),
                ("endpoint", json!(address)),
                ("up", json!(down.is_none())),
                ("why", json!(down)),
            ];
            events.push(Event { level, event: "endpoint", text, fields });
        }
        events
    }

    /// Limits that were reached, and peers that were refused.
    fn refusals(&mut self, refusals: &BTreeMap<String, u64>, now: Instant) -> Vec<Event> {
        let event = |(reason, n): (&String, &u64)| {
            let n_new = self.count(&format!("refused {reason}"), *n, now)?;
            let text = match reason.as_str() {
                OUT_OF_DESCRIPTORS => out_of_descriptors(n_new),
                "http1" => format!("refused clients that speak HTTP/1.1: {}", count(n_new, "time")),
                "tls" => format!("refused clients that speak TLS: {}", count(n_new, "time")),
                _ => format!("refused: {reason}, {}", count(n_new, "time")),
            };
            let fields = vec![("reason", json!(reason)), ("n", json!(n_new)), ("in_all", json!(n))];
            Some(Event { level: Level::Warn, event: "exhausted", text, fields })
        };
        refusals.iter().filter_map(event).collect()
    }

    /// Files of sinks that cannot be written, or can be again.
    fn files(&mut self, errors: BTreeMap<String, String>) -> Vec<Event> {
        let event = |level, path: &str, text: String| Event {
            level,
            event: "lost",
            text,
            fields: vec![("file", json!(path))],
        };
        let is_new = |(path, why): &(&String, &String)| self.files.get(*path) != Some(*why);
        let failed = errors.iter().filter(is_new).map(|(path, why)| {
            let text =
                format!("cannot write to sink file {path}: {why}; rows are lost until it can be written");
            event(Level::Warn, path, text)
        });
        let again = self
            .files
            .keys()
            .filter(|path| !errors.contains_key(*path))
            .map(|path| event(Level::Info, path, format!("sink file {path} is written again")));
        let events = failed.chain(again).collect();
        self.files = errors;
        events
    }

    /// Rows of sinks that no reader or table accepted.
    fn rows(&mut self, lost: u64, refused: &RowsRefused, now: Instant) -> Vec<Event> {
        let event = |text: String, n: u64, table: Option<&str>| Event {
            level: Level::Warn,
            event: "lost",
            text,
            fields: vec![("rows", json!(n)), ("table", json!(table))],
        };
        let lost = self.count("rows lost", lost, now).map(|n| {
            event(format!("{} of sinks lost: no file or stream took them", count(n, "row")), n, None)
        });
        let refused = refused.iter().filter_map(|(table, n)| {
            let n = self.count(&format!("rows refused {table}"), *n, now)?;
            let why = "it is full, a value does not fit, or a CHECK does not hold";
            Some(event(format!("{table} refused {} of sinks: {why}", count(n, "row")), n, Some(table)))
        });
        let refused: Vec<Event> = refused.collect();
        lost.into_iter().chain(refused).collect()
    }

    /// The growth of a count since it was logged, if it may be logged again.
    fn count(&mut self, name: &str, n: u64, now: Instant) -> Option<u64> {
        let counted = self.counts.entry(name.to_owned()).or_insert(LoggedCount { logged: 0, next: now });
        let n_new = n.saturating_sub(counted.logged);
        if n_new == 0 || now < counted.next {
            return None;
        }
        (counted.logged, counted.next) = (n, now + COUNTS_EVERY);
        Some(n_new)
    }
}

impl Event {
    fn write(&self, log: &Log) {
        log.event(self.level, self.event, &self.text, &self.fields);
    }
}

fn of_port(level: Level, port: &str, what: &str) -> Event {
    let text = format!("port `{port}`: {what}");
    Event { level, event: "port", text, fields: vec![("port", json!(port))] }
}

/// The message for connections that were refused for want of file descriptors.
fn out_of_descriptors(n_refused: u64) -> String {
    let limit = open_files::limit().unwrap_or(u64::MAX);
    format!(
        "{} refused: the process has no more file descriptors for calls ({} at most, {} of them kept for the admin \
         endpoint and files); raise the limit with `ulimit -n` or LimitNOFILE=",
        count(n_refused, "connection"),
        grouped(limit),
        grouped(Descriptors::reserved(limit)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(connections: u64, down: Option<&str>) -> Endpoint {
        let (cluster, address, down) = ("back".to_owned(), "a:1".to_owned(), down.map(str::to_owned));
        Endpoint { cluster, address, connections, down, ..Endpoint::default() }
    }

    /// An operator would not see that a server is gone, or see the same line each second.
    #[test]
    fn endpoint_changes_are_logged() {
        let mut watch = Watch::default();
        let mut events = |endpoint| {
            watch
                .endpoints(&[endpoint])
                .into_iter()
                .map(|event| (event.level, event.text))
                .collect::<Vec<_>>()
        };
        assert_eq!(events(endpoint(0, None)), [], "it was not tried");
        let up = || vec![(Level::Info, "endpoint a:1 of back is up".to_owned())];
        assert_eq!(events(endpoint(1, None)), up());
        assert_eq!(events(endpoint(0, None)), [], "an idle connection has closed");
        let down = (Level::Warn, "endpoint a:1 of back is down: refused".to_owned());
        assert_eq!(events(endpoint(0, Some("refused"))), [down]);
        assert_eq!(events(endpoint(0, Some("refused"))), []);
        assert_eq!(events(endpoint(2, None)), up());
    }

    #[test]
    fn counts_are_logged_rate_limited() {
        // An operator would see clients fail without a reason, or clients could fill the log.
        let (mut watch, begun) = (Watch::default(), Instant::now());
        let mut events = |n: u64, after: Duration| {
            let refusals = BTreeMap::from([(OUT_OF_DESCRIPTORS.to_owned(), n)]);
            watch.refusals(&refusals, begun + after).pop().map(|event| event.text)
        };
        assert_eq!(events(0, Duration::ZERO), None);
        let first = events(2, Duration::ZERO).expect("it is reported");
        assert!(first.starts_with("2 connections refused: ") && first.contains("descriptors"), "{first}");
        assert_eq!(events(3, COUNTS_EVERY / 2), None);
        let next = events(900, COUNTS_EVERY).expect("it is logged again");
        assert!(next.starts_with("898 connections refused: "), "{next}");
        assert_eq!(events(900, 3 * COUNTS_EVERY), None);
    }
}
