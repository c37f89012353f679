//! Runs a chain between a source and a sink in memory, for benchmarks.
//!
//! The source takes a buffer from the pool for each packet, copies a template into it, and sets the addresses and ports
//! of a flow; the sink returns the buffers. Both count in the times, as the sources of other packet processors count in
//! their figures.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use weft_core::checksum::{fold, sum};
use weft_core::classify::Layout;
use weft_core::classify::Rule;
use weft_core::classify::generate::{five_tuple, flows};
use weft_core::frame::build::ethernet;
use weft_core::frame::{BATCH_MAX, Frame, Pool, PoolConfig, copy};
use weft_core::hash::HashKey;
use weft_core::ip::DONT_FRAGMENT;
use weft_core::rng::Rng;
use weft_core::{Interval, Time};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::{PacketConfig, PacketEngine};
use weft_engine::rules::Swap;
use weft_engine::sinks::Batch;

use super::cases::{Case, PreparedCase};
use crate::report::median;

/// Batches per stretch; the clock is read before and after each stretch.
const STRETCH: usize = 64;
/// Stretches per round. Their median counts, because other processes use the machine as well.
const STRETCHES: usize = 16;
/// Batches that are timed individually.
const TIMED: usize = 2_000;
/// Buffers in circulation, more than a batch.
const BUFFERS: u32 = 256;
/// The time that passes with each batch: 64 packets at 10^7 a second.
const BATCH_TIME: Interval = Interval::from_micros(6);

/// The offsets of the flow in a frame: from TTL to the ports.
const FLOW_AT: core::ops::Range<usize> = 22..38;
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// The offset of TCP's flags, and two of them.
const FLAGS_AT: usize = 47;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// TTL, protocol, checksum, addresses and ports of a flow, as in the frame.
pub(super) type Flow = [u8; 16];

/// The rig. Packets cycle through all flows from round to round.
pub(super) struct Rig {
    engine: PacketEngine,
    pool: Pool,
    now: Time,
    flows: Vec<Flow>,
    next: usize,
    /// For TCP and for UDP.
    templates: [Vec<u8>; 2],
    frames: Vec<Frame>,
    rows: Batch,
    sent: usize,
    left: usize,
    /// The maximum number of table look-ups per packet.
    pub(super) lookups: usize,
}

impl Rig {
    /// A rig for this case. All flows have begun, and the stations of both ports are known.
    ///
    /// # Errors
    /// The case cannot be compiled, or drops packets.
    pub(super) fn new(case: &Case) -> Result<Self, String> {
        Self::of(case, &case.ready()?)
    }

    /// A rig for a prepared case.
    ///
    /// # Errors
    /// The case drops packets.
    pub(super) fn of(case: &Case, ready: &PreparedCase) -> Result<Self, String> {
        let flows = all_flows(&ready.rules, &ready.routes, case.flows);
        let now = Time(1_000_000_000);
        let engine = PacketEngine::new(now, PacketConfig::default(), Arc::clone(&ready.plan));
        let mut rig = Self {
            engine,
            pool: Pool::new(PoolConfig { small: BUFFERS, large: 0 }),
            now,
            flows,
            next: 0,
            templates: Default::default(),
            frames: Vec::with_capacity(BATCH_MAX),
            rows: Batch::default(),
            sent: 0,
            left: 0,
            lookups: ready.lookups,
        };
        rig.set_bytes(64);
        rig.announce();
        rig.templates[0][FLAGS_AT] = SYN;
        (0..case.flows.div_ceil(BATCH_MAX)).for_each(|_| rig.batch());
        rig.set_bytes(64);
        rig.batches(1);
        match rig.sent == rig.left {
            true => Ok(rig),
            false => Err(format!(
                "{} of {} packets do not leave: {:?}",
                rig.sent - rig.left,
                rig.sent,
                rig.engine.stats()
            )),
        }
    }

    /// Sets the length of packets.
    pub(super) fn set_bytes(&mut self, bytes: usize) {
        self.templates = [TCP, UDP].map(|protocol| template(protocol, bytes));
        for flow in &mut self.flows {
            let template = &self.templates[usize::from(flow[1] == UDP)];
            let mut header = template[14..34].to_vec();
            header[8..].copy_from_slice(&flow[..12]);
            flow[2..4].copy_from_slice(&checksum(&header).to_be_bytes());
        }
    }

    /// Runs one round of batches. Returns nanoseconds per packet.
    pub(super) fn round(&mut self) -> f64 {
        let stretches = (0..STRETCHES).map(|_| {
            let began = Instant::now();
            self.batches(STRETCH);
            began.elapsed().as_nanos() as f64 / (STRETCH * BATCH_MAX) as f64
        });
        median(&stretches.collect::<Vec<f64>>())
    }

    /// Microseconds from the first packet at the source until the sink has all of them: the median, and the 99th
    /// percentile.
    pub(super) fn latency(&mut self, n: usize) -> [f64; 2] {
        let timed = |_| {
            let began = Instant::now();
            self.batch_of(n);
            began.elapsed().as_nanos() as f64 / 1_000.0
        };
        let mut took: Vec<f64> = (0..TIMED).map(timed).collect();
        took.sort_by(f64::total_cmp);
        [TIMED / 2, TIMED * 99 / 100].map(|nth| took[nth])
    }

    /// Applies a change of tables.
    pub(super) fn apply(&mut self, swap: &Swap) {
        self.engine.apply_swap(swap);
    }

    /// Replaces the code of the chain.
    pub(super) fn apply_code(&mut self, plan: &Arc<PacketPlan>) {
        self.engine.apply_code(plan);
    }

    /// Runs this many batches.
    pub(super) fn batches(&mut self, n: usize) {
        (0..n).for_each(|_| self.batch());
    }

    fn batch(&mut self) {
        self.batch_of(BATCH_MAX);
    }

    /// Fills the batch with `n` frames of the next flows.
    fn batch_of(&mut self, n: usize) {
        let Self { flows, next, templates, pool, .. } = self;
        self.frames.extend((0..n).map(|_| {
            let flow = &flows[*next];
            *next = if *next + 1 == flows.len() { 0 } else { *next + 1 };
            let template = &templates[usize::from(flow[1] == UDP)];
            let make = |bytes: &mut [u8]| {
                copy(template, bytes);
                bytes[FLOW_AT].copy_from_slice(flow);
            };
            pool.take_made(template.len(), make).expect("the sink gives all back")
        }));
        self.sent += n;
        self.pass(0);
    }

    /// Passes the frames from this port, and takes the output.
    fn pass(&mut self, port: u16) {
        self.now += BATCH_TIME;
        self.engine.handle_batch(self.now, port, &mut self.frames, &mut self.pool, None);
        while self.engine.poll_output(&mut self.frames).is_some() {
            self.left += self.frames.len();
            self.frames.drain(..).for_each(|frame| self.pool.give(frame));
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.engine.handle_timeout(self.now, &mut self.pool, None);
            core::mem::swap(self.engine.rows(), &mut self.rows);
            self.rows.clear();
        }
    }

    /// Makes the station that frames go to known at the other port, if the chain is on it.
    fn announce(&mut self) {
        let plan = self.engine.plan();
        if !plan.chains[0].ports.contains(&1) {
            return;
        }
        let mut frame = self.templates[1].clone();
        let (to, from) = frame[..12].split_at_mut(6);
        to.swap_with_slice(from);
        self.frames.extend(self.pool.take_filled(&frame));
        self.pass(1);
        self.left = 0;
    }
}

/// The destinations of this many flows.
pub(super) fn destinations(rules: &[Vec<Rule>], routes: &[Rule], n: usize) -> BTreeSet<[u8; 4]> {
    all_flows(rules, routes, n).iter().map(|flow| [flow[8], flow[9], flow[10], flow[11]]).collect()
}

/// The flows: equally many from each list of rules and routes, in an order that no table has.
pub(super) fn all_flows(rules: &[Vec<Rule>], routes: &[Rule], n: usize) -> Vec<Flow> {
    let layout = Layout::new(&five_tuple(), HashKey::from_seed(1)).expect("the fields fit");
    let routes: Vec<Rule> = routes.iter().map(route_rule).collect();
    let mut lists: Vec<&[Rule]> = rules.iter().map(Vec::as_slice).collect();
    lists.extend((!routes.is_empty()).then_some(&routes[..]));
    if lists.is_empty() {
        lists.push(&[]);
    }
    let of_list = n.div_ceil(lists.len());
    let drawn = lists.iter().zip(1..).map(|(rules, seed)| flows(&layout, rules, of_list, seed));
    let keys: Vec<u64> = drawn.flatten().collect();
    let mut all: Vec<Flow> = keys.chunks_exact(layout.words()).map(|key| flow(&layout, key)).collect();
    let mut rng = Rng::from_seed(7);
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at + 1));
    }
    all.truncate(n);
    if !routes.is_empty() {
        for flow in &mut all {
            [flow[4], flow[8]] = [flow[4], flow[8]].map(of_host);
        }
    }
    all
}

/// The first byte of a forwardable address: not loopback, link-local, multicast or reserved.
pub(super) fn of_host(first: u8) -> u8 {
    match first {
        0 | 127 | 169 | 224.. => first % 100 + 1,
        first => first,
    }
}

/// A route as a rule of all five fields.
fn route_rule(route: &Rule) -> Rule {
    use weft_core::classify::Pattern::Any;
    Rule { patterns: vec![Any, route.patterns[0], Any, Any, Any], ..*route }
}

/// Makes the flow of a generated key. A flow without ports becomes UDP.
fn flow(layout: &Layout, key: &[u64]) -> Flow {
    let [src, dst, sport, dport, protocol] = [0, 1, 2, 3, 4].map(|field| layout.places(field).0.of(key));
    let mut flow = [0; 16];
    flow[0] = 64;
    flow[1] = if protocol == u64::from(TCP) { TCP } else { UDP };
    flow[4..8].copy_from_slice(&(src as u32).to_be_bytes());
    flow[8..12].copy_from_slice(&(dst as u32).to_be_bytes());
    flow[12..14].copy_from_slice(&(sport as u16).to_be_bytes());
    flow[14..].copy_from_slice(&(dport as u16).to_be_bytes());
    flow
}

/// Makes a frame of `bytes` bytes: Ethernet, IPv4 and TCP or UDP.
fn template(protocol: u8, bytes: usize) -> Vec<u8> {
    let link = ethernet().macs([2, 0, 0, 0, 0, 0x22], [2, 0, 0, 0, 0, 0x11]);
    let ip = link.ipv4([0; 4], [0; 4]).fragment(1, DONT_FRAGMENT);
    // A UDP checksum of 0 is none (RFC 768).
    match protocol {
        UDP => ip.udp(0, 0).checksum(0).payload(vec![0; bytes - 42]).build(),
        _ => ip.tcp(0, 0).seq(0, ACK).checksum(0).payload(vec![0; bytes - 54]).build(),
    }
}

/// The checksum of a header without its checksum field (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    !fold(sum(&[&header[..10], &[0; 2], &header[12..]].concat()))
}
