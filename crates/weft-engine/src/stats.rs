//! The counters of one worker, and how those of several are added.

use crate::call_queue::CallQueueStats;
use crate::filter::FilterStats;
use std::collections::BTreeMap;
use weft_core::abi::Counters;
use weft_core::{Interval, Status};

/// Counts of one worker since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// The version that applies to new calls.
    pub version: u64,
    /// Downstream connections.
    pub downstream: Connections,
    /// Upstream connections.
    pub upstream: Connections,
    /// Calls that have started.
    pub calls_begun: u64,
    /// Calls that have ended, by status code.
    pub calls_ended: [u64; Status::ALL.len()],
    /// Open calls.
    pub calls_open: u64,
    /// Calls and tries that were resent because their server had not processed them.
    pub calls_resent: u64,
    /// Messages of both directions, with or without a chain.
    pub messages: u64,
    /// From the call's headers to its end, as seen by this node.
    pub latency: Histogram,
    /// Passes that took longer than [`SLOW_PASS_NS`](crate::SLOW_PASS_NS), by chain.
    pub slow_passes: BTreeMap<String, u64>,
    /// Connections that were closed for a fault, and other refusals: (reason, count), in order of the reason.
    pub refusals: Vec<(String, u64)>,
    /// Rows that sinks did not accept.
    pub rows_lost: u64,
    /// Running chains, of each version with open calls.
    pub chains: Vec<ChainStats>,
    /// The filters of current chains.
    pub filters: Vec<FilterStats>,
    /// Upstream endpoints.
    pub endpoints: Vec<EndpointStats>,
    /// Call queues.
    pub call_queues: Vec<CallQueueStats>,
}

/// Connections of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Open now.
    pub open: u64,
    /// Opened since the start.
    pub total: u64,
}

/// Counts of a chain in one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainStats {
    /// The chain.
    pub chain: String,
    /// The version.
    pub version: u64,
    /// Whether new calls use it.
    pub is_current: bool,
    /// Its open calls.
    pub calls_open: u64,
    /// Its elements, in request order.
    pub elements: Vec<(String, Counters)>,
}

/// An upstream endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointStats {
    /// The cluster.
    pub cluster: String,
    /// The address.
    pub address: String,
    /// Open calls.
    pub active: u64,
    /// The streams of its connections, used and free.
    pub places: u64,
    /// Ready connections.
    pub connections: u64,
    /// Calls that wait for a stream.
    pub waiting: u64,
    /// Calls sent to it.
    pub calls: u64,
    /// Failed connection attempts.
    pub connect_failures: u64,
    /// Why it has no connection, if it has failed and is not back.
    pub down: Option<String>,
}

/// A histogram of times with a relative error below 1/16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u64,
}

const SUB_BITS: u32 = 4;
const BUCKETS: usize = 64 << SUB_BITS;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, sum_ns: 0 }
    }
}

impl Histogram {
    /// Records a time; a negative one counts as 0.
    #[inline]
    pub fn record(&mut self, time: Interval) {
        let ns = time.0.max(0) as u64;
        self.counts[bucket_of(ns)] += 1;
        self.total += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }

    /// The number of recorded times.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The mean; 0 if nothing was recorded.
    pub fn mean(&self) -> Interval {
        Interval(self.sum_ns.checked_div(self.total).unwrap_or(0) as i64)
    }

    /// The sum of all times, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The time that the share `q` (0 to 1) of all times does not exceed; 0 if nothing was recorded.
    pub fn quantile(&self, q: f64) -> Interval {
        let rank = (q.clamp(0.0, 1.0) * self.total as f64).ceil().max(1.0) as u64;
        let mut count = 0;
        for (bucket, n) in self.counts.iter().enumerate() {
            count += n;
            if count >= rank && *n > 0 {
                return Interval(upper_bound(bucket) as i64);
            }
        }
        Interval::ZERO
    }

    /// The number of times at or below `limit`, to the precision of the buckets.
    pub fn count_up_to(&self, limit: Interval) -> u64 {
        self.counts[..=bucket_of(limit.0.max(0) as u64)].iter().sum()
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// The times recorded after `earlier`, a previous copy of this histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        Self {
            counts: counts.collect(),
            total: self.total.saturating_sub(earlier.total),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
        }
    }
}

/// Returns the bucket of a time.
fn bucket_of(ns: u64) -> usize {
    let high = 63 - (ns | 1).leading_zeros();
    if high < SUB_BITS {
        return ns as usize;
    }
    let shift = high - SUB_BITS;
    (((shift + 1) << SUB_BITS) as u64 + ((ns >> shift) & ((1 << SUB_BITS) - 1))) as usize
}

/// Returns the largest time of a bucket, in nanoseconds.
fn upper_bound(bucket: usize) -> u64 {
    let (group, sub) = (bucket >> SUB_BITS, (bucket & ((1 << SUB_BITS) - 1)) as u64);
    if group == 0 {
        return sub;
    }
    let shift = group as u32 - 1;
    let low = ((1u64 << SUB_BITS) | sub) << shift;
    low + ((1u64 << shift) - 1)
}

impl Stats {
    /// Adds another worker's counts.
    pub fn merge(&mut self, other: &Self) {
        self.version = self.version.max(other.version);
        for (mine, theirs) in
            [(&mut self.downstream, &other.downstream), (&mut self.upstream, &other.upstream)]
        {
            mine.open += theirs.open;
            mine.total += theirs.total;
        }
        self.calls_begun += other.calls_begun;
        self.calls_open += other.calls_open;
        self.calls_resent += other.calls_resent;
        self.messages += other.messages;
        self.rows_lost += other.rows_lost;
        for (mine, theirs) in self.calls_ended.iter_mut().zip(other.calls_ended) {
            *mine += theirs;
        }
        self.latency.merge(&other.latency);
        for (chain, n) in &other.slow_passes {
            *self.slow_passes.entry(chain.clone()).or_default() += n;
        }
        for (reason, n) in &other.refusals {
            self.refuse(reason, *n);
        }
        for chain in &other.chains {
            self.merge_chain(chain);
        }
        for endpoint in &other.endpoints {
            self.merge_endpoint(endpoint);
        }
        for filter in &other.filters {
            self.merge_filter(filter);
        }
        for link in &other.call_queues {
            match self.call_queues.iter_mut().find(|mine| mine.name == link.name) {
                Some(mine) => mine.add(link),
                None => self.call_queues.push(link.clone()),
            }
        }
    }

    /// Counts refusals by reason.
    pub fn refuse(&mut self, reason: &str, n: u64) {
        match self.refusals.binary_search_by(|(have, _)| have.as_str().cmp(reason)) {
            Ok(at) => self.refusals[at].1 += n,
            Err(at) => self.refusals.insert(at, (reason.to_owned(), n)),
        }
    }

    /// Adds another worker's counts of a chain.
    fn merge_chain(&mut self, other: &ChainStats) {
        let same = |c: &&mut ChainStats| c.chain == other.chain && c.version == other.version;
        let Some(mine) = self.chains.iter_mut().find(same) else {
            self.chains.push(other.clone());
            return;
        };
        mine.calls_open += other.calls_open;
        mine.is_current |= other.is_current;
        for ((_, mine), (_, theirs)) in mine.elements.iter_mut().zip(&other.elements) {
            add_counters(mine, theirs);
        }
    }

    /// Adds another worker's counts of a filter. All workers share the filter's state, but each counts its own calls.
    fn merge_filter(&mut self, other: &FilterStats) {
        let same = |f: &&mut FilterStats| f.chain == other.chain && f.name == other.name;
        match self.filters.iter_mut().find(same) {
            Some(mine) => mine.counts.add(&other.counts),
            None => self.filters.push(other.clone()),
        }
    }

    /// Adds another worker's counts of an endpoint.
    fn merge_endpoint(&mut self, other: &EndpointStats) {
        let same = |e: &&mut EndpointStats| e.cluster == other.cluster && e.address == other.address;
        let Some(mine) = self.endpoints.iter_mut().find(same) else {
            self.endpoints.push(other.clone());
            return;
        };
        mine.active += other.active;
        mine.places += other.places;
        mine.connections += other.connections;
        mine.waiting += other.waiting;
        mine.calls += other.calls;
        mine.connect_failures += other.connect_failures;
        if mine.down.is_none() {
            mine.down.clone_from(&other.down);
        }
    }
}

/// Adds `other` to `counters`.
pub fn add_counters(counters: &mut Counters, other: &Counters) {
    counters.seen += other.seen;
    counters.dropped += other.dropped;
    counters.aborted += other.aborted;
    counters.diverted += other.diverted;
    counters.failed += other.failed;
    counters.sampled_ns += other.sampled_ns;
    counters.sampled += other.sampled;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it failed, percentiles would be wrong: the bound of a time's bucket is at most 1/16 above it.
    #[test]
    fn quantile_error_is_at_most_a_16th() {
        for ns in [0u64, 1, 15, 16, 17, 31, 32, 1_000, 65_535, 123_456_789, u64::MAX >> 1] {
            let mut histogram = Histogram::default();
            histogram.record(Interval(ns as i64));
            let quantile = histogram.quantile(0.5).0 as u64;
            assert!(quantile >= ns && quantile - ns <= ns / 16, "{ns} has the quantile {quantile}");
        }
    }

    #[test]
    fn quantiles_split_recorded_times() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|ms| histogram.record(Interval::from_millis(ms)));
        let p99 = histogram.quantile(0.99).as_secs_f64();
        assert!((0.099..0.106).contains(&p99), "{p99}");
        assert_eq!(histogram.count(), 100);
    }
}
