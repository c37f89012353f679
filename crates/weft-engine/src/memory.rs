//! Bounds the memory of calls: above the limit, ends the calls that hold most.
//!
//! A sender gets no credit for data that waits. So a connection holds at most its peer's windows, and one message
//! gathered for a chain is bounded by itself. Many of either could still exceed the machine's memory.

use crate::call::{Call, CallKey, Flow, HeldItem, StreamRef};
use crate::conn::{ConnId, ConnKey};
use crate::engine::Engine;
use crate::resend::Spare;
use std::collections::BTreeMap;
use weft_core::{Status, Time};

/// The share of the limit that the calls of one client connection may hold, so that no client uses all of it.
const CLIENT_SHARE: usize = 4;

/// A call, and the bytes that it holds.
type Holder = (usize, CallKey);

impl Engine {
    /// Returns the bytes that this worker holds: gathered messages, output, and data that waits for a window, a delay
    /// or an upstream.
    pub fn bytes_held(&self) -> usize {
        let of_calls = self.calls.iter().map(|(_, call)| call.held_bytes());
        let of_conns = self.conns.iter().map(|(_, conn)| conn.held_bytes());
        of_calls.chain(of_conns).sum()
    }

    /// Ends the calls that hold most, until each client, and all clients together, are within their limits.
    pub(crate) fn watch_memory(&mut self, now: Time) {
        let limit = self.config.held_bytes_max;
        let client_limit = limit / CLIENT_SHARE;
        let held = self.bytes_held();
        if held <= client_limit {
            return;
        }
        // Requests kept for resending go first.
        self.calls.values_mut().for_each(|call| call.sent = None);
        self.spare_bodies = Spare::default();
        let mut by_client: BTreeMap<Option<ConnId>, Vec<Holder>> = BTreeMap::new();
        // Tries hold memory on behalf of their call.
        for (key, call) in self.calls.iter().filter(|(_, call)| !call.is_try()) {
            let client = call.down().map(|down| ConnId::from(down.conn));
            by_client.entry(client).or_default().push((self.held_for(call), key));
        }
        for calls in by_client.into_values() {
            let held = calls.iter().map(|(bytes, _)| bytes).sum();
            self.end_largest(now, calls, held, client_limit);
        }
        let calls = self.calls.iter().filter(|(_, call)| !call.is_try());
        let calls = calls.map(|(key, call)| (self.held_for(call), key)).collect();
        self.end_largest(now, calls, self.bytes_held(), limit);
        self.abort_largest(now, limit);
    }

    /// Ends those of `calls` that hold most, until `held` is at most `limit` bytes.
    fn end_largest(&mut self, now: Time, mut calls: Vec<Holder>, mut held: usize, limit: usize) {
        if held <= limit {
            return;
        }
        calls.sort_unstable_by_key(|(bytes, _)| core::cmp::Reverse(*bytes));
        for (bytes, key) in calls {
            if held <= limit {
                return;
            }
            held = held.saturating_sub(bytes);
            self.stats.refuse("held_bytes_max", 1);
            self.end_here(now, key, Status::ResourceExhausted, "the node holds more than it may");
        }
    }

    /// Aborts the connections that hold most, until the worker holds at most `limit` bytes. Output of ended calls
    /// belongs to their connection.
    fn abort_largest(&mut self, now: Time, limit: usize) {
        let mut held = self.bytes_held();
        if held <= limit {
            return;
        }
        let mut conns: Vec<(usize, ConnKey)> =
            self.conns.iter().map(|(key, conn)| (conn.held_bytes(), key)).collect();
        conns.sort_unstable_by_key(|(bytes, _)| core::cmp::Reverse(*bytes));
        for (bytes, key) in conns {
            if held <= limit {
                return;
            }
            held = held.saturating_sub(bytes);
            self.stats.refuse("held_bytes_max", 1);
            self.abort(now, key);
        }
    }

    /// Returns the bytes that the end of a call would free.
    fn held_for(&self, call: &Call) -> usize {
        let queued = |stream_ref: Option<StreamRef>| {
            stream_ref
                .and_then(|stream_ref| Some(self.conns.get(stream_ref.conn)?.h2.queued(stream_ref.stream)))
                .unwrap_or(0)
        };
        let of_tries = call.filtered.iter().flat_map(|wrap| wrap.tries());
        let of_tries = of_tries.filter_map(|one| Some(self.held_for(self.calls.get(one)?)));
        call.held_bytes() + queued(call.up) + queued(call.down()) + of_tries.sum::<usize>()
    }
}

impl Call {
    /// Returns the bytes that a call holds: data of both directions, of its filter, and the request kept for
    /// resending.
    fn held_bytes(&self) -> usize {
        let filter = self.filtered.as_ref().map_or(0, |wrap| wrap.held_bytes());
        let sent = self.sent.as_ref().map_or(0, |sent| sent.body.len());
        self.request.held_bytes() + self.response.held_bytes() + filter + sent
    }
}

impl Flow {
    /// Returns the bytes that one direction of a call holds.
    fn held_bytes(&self) -> usize {
        let waiting = self.held.iter().map(|held| match &held.what {
            HeldItem::Data(bytes, _) => bytes.len(),
            HeldItem::End(_) => 0,
        });
        waiting.sum::<usize>() + self.deframer.held_bytes()
    }
}

impl crate::conn::Conn {
    fn held_bytes(&self) -> usize {
        self.h2.output().len() + self.h2.queued_bytes() + self.partial.capacity()
    }
}
