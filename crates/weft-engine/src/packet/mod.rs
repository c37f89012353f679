//! The packet engine: one worker that runs frames through chains.
//!
//! A [`PacketEngine`] takes batches of frames that arrived at a port ([`PacketEngine::handle_batch`]) and gives batches
//! that leave by a port ([`PacketEngine::poll_output`]). Like the engine for calls it has no clock, no thread and no
//! socket. It runs on devices, on captures, and in tests.
//!
//! A batch passes in two phases. The first phase parses all frames and finds the chain of each. It reads the frames and
//! nothing else, so its order cannot be observed. In the second phase each frame, in order of arrival, passes its
//! chain, is rewritten, and leaves. Between the phases the engine prefetches the rows that the frames will look up, if
//! the tables are large.
//!
//! Some chains read fields that only the first fragment of a packet has. Later fragments inherit these fields
//! (`fragments`); a fragment that arrives before the first one waits for it. This happens before the first phase.
//!
//! * [`plan`]: ports, and chains with their code and state.
//! * [`link`], [`path`], [`trace`]: where frames wait before they leave, and the emulated path behind that.
//! * [`stats`]: counters. Each frame that does not leave has a counted reason.

mod active;
mod edit;
mod egress;
mod fragments;
pub mod group;
pub mod headers;
mod hold;
pub mod impair;
pub mod link;
pub mod path;
pub mod pipe;
pub mod plan;
pub mod port;
mod pseudo;
mod reader;
mod reshape;
mod stages;
pub mod stats;
pub mod trace;

use crate::expiry::{self, SWEEP_EVERY};
use crate::pass::clock_cost;
use crate::rules::Swap;
use crate::sinks::Batch;
use crate::timers::{Timers, goes_off};
use active::{ActivePacketChain, ArrivedBatch, ChainMatch, Ends, ParseOutput, UserMetadata};
use core::fmt;
use edit::{EditError, Edits};
use egress::{EgressPorts, RedirectTarget};
use fragments::{Fragment, FragmentDrop, FragmentInfo, Fragments, LinkFraming};
use hold::HeldFrames;
use plan::{Outlet, PacketPlan};
use stats::{DropReason, EndKind, PacketStats};
use std::sync::Arc;
use std::vec;
use weft_core::abi::{Cx, Outcome, REGIONS, Slot, Verdict};
use weft_core::frame::{BATCH_MAX, Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::table::Row;
use weft_core::{Interval, Time, hash};
use weft_ir::backend::Program;
use weft_ir::batch::{ExecBatch, FusedBatch, OutcomeSink, PrefetchBatch, Progress, RawBatch, StopReason};
use weft_ir::program::Check;

pub use egress::{ALL_OTHERS, HELD_MAX};
pub use fragments::{FRAGMENTED_MAX, FRAGMENTS_MAX, FRAGMENTS_TIME, FRAGMENTS_WAITING_MAX};
pub use hold::{HOLD_TIMES_MAX, HOLDS_MAX};

/// The configuration of a packet engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketConfig {
    /// The index of this worker, from 0.
    pub worker: usize,
    /// The first worker that carries frames; it runs `ON EVERY`. Workers with a lower index carry calls.
    pub first: usize,
    /// The seed of `rand()`. The same seed and the same frames give the same run.
    pub seed: u64,
    /// A clock in nanoseconds that times elements; None disables timing.
    pub clock: Option<fn() -> u64>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition<'a> {
    /// It leaves by the port with this name.
    Sent(&'a str),
    /// An element redirected it to this port; `*` means all other ports.
    Redirected {
        /// The port's name.
        to: &'a str,
        /// The element.
        by: &'a str,
        /// The source line of the REDIRECT.
        line: u32,
    },
    /// An element ended it.
    Ended {
        /// How it ended.
        how: EndKind,
        /// The element.
        by: &'a str,
        /// The source line that ended it.
        line: u32,
    },
    /// It breaks a check of a wire format.
    Malformed(&'a Check),
    /// The engine dropped it for another reason.
    Dropped(DropReason),
}

/// Receives the disposition of each frame, in order of arrival. There are two exceptions: a fragment that waits is
/// reported when the first fragment of its packet has arrived, and an abandoned fragment before its batch passes.
pub trait Watch {
    /// Reports a frame with its bytes: as they leave, or as they are when the frame ends.
    fn frame(&mut self, disposition: Disposition<'_>, frame: &Frame, bytes: &[u8]);
}

/// One worker of the packet path.
///
/// Poll for output and timeouts after each batch.
pub struct PacketEngine {
    config: PacketConfig,
    plan: Arc<PacketPlan>,
    /// The number of the current plan; timers of earlier plans are stale.
    plan_id: u32,
    chains: Vec<ActivePacketChain>,
    /// Per port: its chains in the order in which they are tried, and the number of frames parsed at once.
    chains_of_port: Vec<(Vec<u16>, usize)>,
    /// Per port: the link framing if its fragments are tracked, else None.
    framing_of_port: Vec<Option<LinkFraming>>,
    fragments: Fragments,
    /// Fragment information for each frame of the batch; empty if there are no fragments.
    fragment_info: Vec<FragmentInfo>,
    /// The batch index of the first frame of the current chunk. A chunk is the set of frames that are parsed at once.
    chunk_at: usize,
    egress: EgressPorts,
    holds: HeldFrames,
    /// The slots of a batch: `stride` per frame.
    slots: Vec<Slot>,
    stride: usize,
    /// Per frame: the inputs that are not NULL.
    present: [InputSet; BATCH_MAX],
    /// Per frame that breaks a check: the number of the check.
    checks: [u32; BATCH_MAX],
    matches: Vec<ChainMatch>,
    /// The egress of each frame that has passed and is still in the batch, in order.
    egresses: Vec<Egress>,
    outcome: Outcome,
    /// The name of the port that an element of an earlier stage redirected the frame to.
    target: Vec<u8>,
    /// The segments of a GSO frame.
    segments: Vec<Frame>,
    call: Vec<u64>,
    timers: Timers<Timer>,
    due: Vec<Timer>,
    /// Rows that have left a table, while ON TIMEOUT or ON EVICT runs.
    expired_rows: Vec<Row>,
    rows: Batch,
    rows_lost: u64,
    /// The time of the last pass: `now()` never goes back.
    now: Time,
    clock_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Every {
        plan: u32,
        chain: usize,
        nth: usize,
        due: Time,
    },
    /// Rows of a table may have expired or been evicted.
    Expire {
        plan: u32,
        chain: usize,
        nth: usize,
        /// The time of the check for such rows.
        look: Time,
    },
    Sweep {
        plan: u32,
    },
}

/// The context of one frame's pass.
#[derive(Clone, Copy)]
struct Pass {
    /// The ingress port.
    port: u16,
    /// The frame's index in the batch.
    nth: usize,
    /// The index of its chain.
    at: usize,
}

/// The egress of a frame whose outcome needs no further work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Egress {
    Port(u16),
    /// A group; it chooses the port when the frame leaves.
    Group(u16),
    /// An element dropped the frame; the drop is counted.
    Ended,
    Dropped(DropReason),
}

impl From<Outlet> for Egress {
    fn from(to: Outlet) -> Self {
        match to {
            Outlet::Port(to) => Self::Port(to),
            Outlet::Group(to) => Self::Group(to),
        }
    }
}

/// The result of a pass, by the work that it needs.
enum PassResult {
    /// The frame leaves there unchanged.
    Unedited(Egress),
    /// The frame leaves there with its edits.
    Edited(Egress),
    /// The outcome needs the full path.
    Other,
}

/// Receives the outcomes of a chain's passes. It accepts outcomes with an egress and edits alone.
struct EgressSink<'e> {
    chain: &'e plan::PacketChain,
    /// The egress of frames that no element redirects.
    forward: Egress,
    egress: &'e mut EgressPorts,
    ends: &'e mut Ends,
    /// The egress of each frame.
    egresses: &'e mut [Egress],
    /// An observer wants every disposition.
    is_watched: bool,
}

impl OutcomeSink for EgressSink<'_> {
    /// Records the egress of frame `nth`, if its outcome is only a redirect to a cached target. False: the outcome
    /// needs more.
    #[inline]
    fn accept_unedited(&mut self, out: &mut Outcome, nth: usize) -> bool {
        if self.is_watched || self.chain.code.leaves_more && !out.is_bare() {
            return false;
        }
        // Most redirected frames go to a target that is cached.
        if out.verdict != Verdict::Redirect || out.target.is_none() {
            return false;
        }
        let Some(to) = self.egress.cached_target(out.target) else { return false };
        self.egresses[nth] = to.into();
        out.clear_bare();
        true
    }

    /// Records the egress of frame `nth` and applies its edits, if the outcome has nothing else. False: the outcome
    /// needs more.
    fn accept(&mut self, cx: &mut Cx<'_>, nth: usize, frame: &mut Frame, pool: &mut Pool) -> bool {
        let code = &self.chain.code;
        if self.is_watched || code.leaves_more && !cx.out.is_bare() {
            return false;
        }
        self.egresses[nth] = match pass_result(cx.out, self.forward, self.egress) {
            PassResult::Unedited(Egress::Ended) => {
                self.ends.count(cx.out.element, cx.out.line, EndKind::Dropped);
                Egress::Ended
            }
            PassResult::Unedited(exit) => exit,
            // A GSO frame may have to be cut first, and a long packet fragmented.
            PassResult::Edited(exit) if frame.meta.offload.gso.is_none() && !code.fragments => {
                let changes = (&*code.stores, &*self.chain.program.header_changes);
                let slots = &cx.slots[..code.inputs];
                match edit::apply_all(changes, slots, cx.present, cx.out, frame, pool) {
                    Ok(()) => exit,
                    Err(error) => match self.chain.mismatch_origin(error, cx.out.element) {
                        Some((element, line)) => {
                            self.ends.count(element, line, EndKind::LengthMismatch);
                            Egress::Ended
                        }
                        None => Egress::Dropped(error.why),
                    },
                }
            }
            PassResult::Edited(_) | PassResult::Other => return false,
        };
        cx.out.clear_bare();
        true
    }
}

/// If most frames of a batch take the slow path, the next batches of the chain run in two phases: that many.
const SLOW_PATH_BATCHES: u32 = 64;

/// The observer of dispositions, if there is one.
type Watcher<'w, 'o> = &'w mut Option<&'o mut dyn Watch>;

impl PacketEngine {
    /// Creates an engine that runs `plan`.
    pub fn new(now: Time, config: PacketConfig, plan: Arc<PacketPlan>) -> Self {
        let mut engine = Self {
            config,
            plan: Arc::new(PacketPlan::default()),
            plan_id: 0,
            chains: Vec::new(),
            chains_of_port: Vec::new(),
            framing_of_port: Vec::new(),
            fragments: Fragments::default(),
            fragment_info: Vec::new(),
            chunk_at: 0,
            egress: EgressPorts::new(now),
            holds: HeldFrames::new(now),
            slots: Vec::new(),
            stride: 0,
            present: [InputSet::EMPTY; BATCH_MAX],
            checks: [0; BATCH_MAX],
            matches: Vec::with_capacity(BATCH_MAX),
            egresses: Vec::with_capacity(BATCH_MAX),
            outcome: Outcome::default(),
            target: Vec::new(),
            segments: Vec::new(),
            call: Vec::new(),
            timers: Timers::new(now),
            due: Vec::new(),
            expired_rows: Vec::new(),
            rows: Batch::default(),
            rows_lost: 0,
            now,
            clock_ns: config.clock.map_or(0, clock_cost),
        };
        engine.apply_plan(now, plan);
        engine
    }

    /// The seed for the queue and the path of a port's link.
    pub fn link_seed(&self, port: usize, ingress: bool) -> u64 {
        hash::stream(self.config.seed, "link", 2 * port as u64 + u64::from(ingress))
    }

    /// Applies a new plan to frames that arrive from now on. Frames that wait to leave keep their port, by its name; if
    /// the port is gone, they are dropped. Counters of elements continue by chain and instance name.
    pub fn apply(&mut self, now: Time, plan: Arc<PacketPlan>, pool: &mut Pool) {
        let are_ports_same = self.plan.ports == plan.ports;
        let followed = core::mem::take(&mut self.framing_of_port);
        let gone = self.apply_plan(now, plan);
        // Drop fragments held at ports that no longer track fragments: the first fragment of their packet passes
        // untracked, so they would wait forever.
        let is_other = |(old, new): (&Option<LinkFraming>, &Option<LinkFraming>)| old.is_some() && old != new;
        if !are_ports_same || followed.iter().zip(&self.framing_of_port).any(is_other) {
            self.fragments.clear();
            self.drop_fragments(pool, &mut None);
        }
        gone.into_iter().for_each(|frame| self.egress.drop_frame(DropReason::PortGone, frame, pool));
    }

    /// Makes all chains use other copies of tables from now on.
    pub fn apply_swap(&mut self, swap: &Swap) {
        self.chains.iter_mut().for_each(|active| active.apply_swap(swap));
    }

    /// Replaces the code of the current plan and keeps its state, counters and timers. Ignores the code of another
    /// plan.
    pub fn apply_code(&mut self, plan: &Arc<PacketPlan>) {
        let is_same = |(active, chain): (&ActivePacketChain, &Arc<plan::PacketChain>)| active.is_of(chain);
        let mut pairs = self.chains.iter().zip(&plan.chains);
        if plan.version != self.plan.version || plan.chains.len() != self.chains.len() || !pairs.all(is_same)
        {
            return;
        }
        for (active, chain) in self.chains.iter_mut().zip(&plan.chains) {
            active.chain = Arc::clone(chain);
        }
        self.plan = Arc::clone(plan);
    }

    /// Sets whether the link of a port is up: a group sends to those of its ports that are up. All are up at first.
    ///
    /// # Panics
    /// The plan has no such port.
    pub fn set_port_up(&mut self, port: u16, is_up: bool) {
        self.egress.set_up(port, is_up);
    }

    /// The plan that applies to arriving frames.
    pub fn plan(&self) -> &Arc<PacketPlan> {
        &self.plan
    }

    /// Takes all frames out of the vector; they arrived at this port. The time of a frame's pass is its arrival time,
    /// or `now` if its metadata has none. It never goes back.
    ///
    /// # Panics
    /// The plan has no such port.
    pub fn handle_batch(
        &mut self,
        now: Time,
        port: u16,
        frames: &mut Vec<Frame>,
        pool: &mut Pool,
        mut watch: Option<&mut dyn Watch>,
    ) {
        let arrived = &mut self.egress.ports[usize::from(port)];
        arrived.received += frames.len() as u64;
        arrived.received_bytes += frames.iter().map(|frame| frame.size() as u64).sum::<u64>();
        if let Some(begins) = self.framing_of_port[usize::from(port)] {
            self.track_fragments(now, (port, begins), frames, pool, &mut watch);
        }
        self.pass(now, port, frames, pool, &mut watch);
        self.fragment_info.clear();
    }

    /// Runs frames through their chains; fragments have been tracked before.
    fn pass(
        &mut self,
        now: Time,
        port: u16,
        frames: &mut Vec<Frame>,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let mut step = self.chains_of_port[usize::from(port)].1;
        self.chunk_at = 0;
        while !frames.is_empty() {
            let mut n = frames.len().min(step);
            // A batch that begins with a timed pass goes through both phases.
            if watch.is_none()
                && let Some(at) = self.fast_path_chain(port)
                && let untraced @ 1.. = self.chains[at].tracing.untraced(now, n)
            {
                self.run_fused(now, Pass { port, nth: 0, at }, untraced, frames, pool);
                continue;
            }
            self.parse(now, port, &frames[..n], pool);
            self.prefetch(port, &frames[..n], pool);
            let mut nth = 0;
            // The frames before `nth` have left the vector, several at a time where possible.
            while nth < n {
                let at = match self.matches[nth] {
                    ChainMatch::Chain { at } => usize::from(at),
                    ChainMatch::Fragment { .. } => {
                        self.track_carried_fragment(now, port, nth, frames.remove(0), pool, watch);
                        nth += 1;
                        // The parse results of later frames are stale now. They may be fragments, too, so they are
                        // parsed one by one.
                        (n, step) = (nth, 1);
                        continue;
                    }
                    ChainMatch::Unmatched | ChainMatch::Malformed { .. } => {
                        let refused =
                            self.matches[nth..n].iter().take_while(|found| found.is_refused()).count();
                        for frame in frames.drain(..refused) {
                            self.refuse(self.matches[nth], frame, pool, watch);
                            nth += 1;
                        }
                        continue;
                    }
                };
                if !self.chains[at].chain.code.stages.is_empty() {
                    let mine = self.matches[nth..n].iter().take_while(|found| found.is_of(at)).count();
                    for frame in frames.drain(..mine) {
                        self.pass_stages(now, Pass { port, nth, at }, frame, pool, watch);
                        nth += 1;
                    }
                    continue;
                }
                let stopped =
                    self.run(now, Pass { port, nth, at }, &mut frames[..n - nth], pool, watch.is_some());
                nth += self.egresses.len();
                match watch {
                    None => self.send_passed(frames, pool),
                    Some(_) => {
                        let to = self.chains[at].chain.to;
                        frames
                            .drain(..self.egresses.len())
                            .for_each(|frame| self.forward(to, Interval::ZERO, frame, pool, watch));
                    }
                }
                if stopped {
                    self.finish_pass(Pass { port, nth, at }, frames.remove(0), pool, watch);
                    nth += 1;
                }
            }
            self.chunk_at += n;
        }
    }

    /// The next port with output, in the order of the plan, and its frames in order. `frames` must be empty.
    pub fn poll_output(&mut self, frames: &mut Vec<Frame>) -> Option<u16> {
        self.egress.poll(frames)
    }

    /// The time of the next call of [`PacketEngine::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.frames_leave()).min()
    }

    /// The time at which the next waiting frame leaves or is abandoned.
    fn frames_leave(&self) -> Option<Time> {
        let waiting = [self.egress.poll_timeout(), self.fragments.poll_timeout(), self.holds.poll_timeout()];
        waiting.into_iter().flatten().min()
    }

    /// The time of the next timeout with an observable effect, and whether the effect is an `ON EVERY`. Other effects
    /// are an `ON TIMEOUT` or `ON EVICT` of a row, and a frame that leaves. All other timeouts that
    /// [`PacketEngine::poll_timeout`] requests may run late by any amount, as in a long gap between two packets of a
    /// capture.
    pub fn poll_effect(&self) -> Option<(Time, bool)> {
        let timed = self.timers.all().filter_map(|(at, timer)| match *timer {
            Timer::Every { plan, .. } => (plan == self.plan_id).then_some((at, true)),
            Timer::Sweep { .. } => None,
            Timer::Expire { plan, chain, nth, look } if plan == self.plan_id => {
                let active = &self.chains[chain];
                let (departs, _) = &active.chain.timeouts[nth];
                let table = &active.state.tables[usize::from(departs.table.0)];
                expiry::next_removal((table, departs.why), look).map(|at| (at, false))
            }
            Timer::Expire { .. } => None,
        });
        let effects = timed.chain(self.frames_leave().map(|at| (at, false)));
        effects.min_by_key(|(at, is_every)| (*at, !is_every))
    }

    /// Runs what is due: delayed frames leave, `ON EVERY`, `ON TIMEOUT` and `ON EVICT` run, and held frames return to
    /// their elements.
    pub fn handle_timeout(&mut self, now: Time, pool: &mut Pool, mut watch: Option<&mut dyn Watch>) {
        self.egress.handle_timeout(now);
        self.fragments.expire(now);
        self.run_held(now, pool, &mut watch);
        let mut due = core::mem::take(&mut self.due);
        self.timers.expire(now, &mut due);
        for timer in due.drain(..) {
            match timer {
                Timer::Every { plan, chain, nth, due } if plan == self.plan_id => {
                    self.run_every(now, (chain, nth), due);
                }
                Timer::Sweep { plan } if plan == self.plan_id => {
                    self.sweep(now);
                    self.timers.set(now + SWEEP_EVERY, timer);
                }
                Timer::Expire { plan, chain, nth, look } if plan == self.plan_id => {
                    self.run_timeouts(now, (chain, nth), look);
                }
                Timer::Every { .. } | Timer::Expire { .. } | Timer::Sweep { .. } => {}
            }
        }
        self.due = due;
    }

    /// Runs `ON TIMEOUT` and `ON EVICT` at once for rows that have left their tables, at the end of a run. Returns
    /// whether there were any; their handlers may remove further rows.
    pub fn run_expired(&mut self, now: Time) -> bool {
        let mut were_any = false;
        for at in 0..self.chains.len() {
            for nth in 0..self.chains[at].chain.timeouts.len() {
                let (n, is_more) = self.run_row_removals(now, at, nth);
                were_any |= n > 0 || is_more;
            }
        }
        were_any
    }

    /// The rows for sinks; take them with [`core::mem::swap`] or clear them.
    pub fn rows(&mut self) -> &mut Batch {
        &mut self.rows
    }

    /// Counts rows that were dropped because their writer is behind.
    pub fn note_rows_lost(&mut self, n: usize) {
        self.rows_lost += n as u64;
    }

    /// The number of waiting frames: for the end of their DELAY, for the first fragment of their packet, or held by an
    /// element.
    pub fn held(&self) -> usize {
        self.delayed() + self.holds.len() + self.fragments.waiting()
    }

    /// The number of frames that wait for the end of their DELAY.
    pub fn delayed(&self) -> usize {
        self.egress.held()
    }

    /// Drops the frames that elements hold, at the end of a run.
    pub fn drop_held(&mut self, pool: &mut Pool, mut watch: Option<&mut dyn Watch>) {
        for (_, held) in self.holds.take_all() {
            let mut unwatched = None;
            let watch = if held.history.is_copy { &mut unwatched } else { &mut watch };
            self.drop_frame(DropReason::HeldTooLong, held.frame, pool, watch);
        }
    }

    /// For the end of a run: drops fragments that wait for the first of their packet.
    pub fn expire_fragments(&mut self) {
        self.fragments.expire(Time(i64::MAX));
    }

    /// The index of this worker, from 0.
    pub fn worker(&self) -> usize {
        self.config.worker
    }

    /// A copy of the counters.
    pub fn stats(&self) -> PacketStats {
        PacketStats {
            version: self.plan.version,
            ports: self.egress.ports.clone(),
            groups: self.egress.group_stats(self.plan.ports.clone()),
            chains: self.chains.iter().map(|active| active.stats(self.clock_ns)).collect(),
            drops: self.egress.drops(self.fragments.given_up()),
            copies: self.egress.copies,
            rows_lost: self.rows_lost,
        }
    }

    /// Gives the buffers of all frames that have not left back to the pool.
    pub fn close(&mut self, pool: &mut Pool) {
        self.egress.close(pool);
        self.holds.take_all().into_iter().for_each(|(_, held)| pool.give(held.frame));
        self.fragments.clear();
        self.drop_fragments(pool, &mut None);
    }

    /// Applies a plan; returns the frames that waited for a port that is gone.
    fn apply_plan(&mut self, now: Time, plan: Arc<PacketPlan>) -> Vec<Frame> {
        let mut gone = Vec::new();
        self.egress.apply(&plan, &mut gone);
        let before = core::mem::take(&mut self.chains);
        let active = |chain| ActivePacketChain::new(chain, self.config.worker, &before);
        self.chains = plan.chains.iter().map(active).collect();
        let ended = before.iter().map(|active| active.ended_by_removed(&self.chains)).sum();
        self.egress.count_all(DropReason::ByGone, ended);
        self.framing_of_port =
            (0..plan.ports.len()).map(|port| plan.follows_fragments(port as u16)).collect();
        self.chains_of_port = (0..plan.ports.len()).map(|port| plan.classifiers(port as u16)).collect();
        self.stride = plan.chains.iter().map(|chain| chain.inputs()).max().unwrap_or(0).max(1);
        self.slots = vec![Slot::default(); self.stride * BATCH_MAX];
        self.call = vec![0; plan.chains.iter().map(|chain| chain.program.call_words()).max().unwrap_or(0)];
        let before_plan = core::mem::replace(&mut self.plan, plan);
        self.plan_id += 1;
        self.rebind_held(&before, &before_plan.ports, &mut gone);
        self.set_timers(now);
        gone
    }

    /// Sets the timers of the current plan: EVERY, and the checks for TIMEOUT and EVICT on the node's first worker;
    /// and the table sweep.
    fn set_timers(&mut self, now: Time) {
        let plan = self.plan_id;
        // ON EVERY, ON TIMEOUT and ON EVICT run once per node.
        let every = self.chains.iter().enumerate().filter(|_| self.config.worker == self.config.first);
        for (chain, active) in every {
            for (nth, (interval, _)) in active.chain.every.iter().enumerate() {
                let due = now + *interval;
                self.timers.set(due, Timer::Every { plan, chain, nth, due });
            }
            for (nth, (departs, _)) in active.chain.timeouts.iter().enumerate() {
                let at = now + expiry::removal_interval(departs.why);
                self.timers.set(at, Timer::Expire { plan, chain, nth, look: goes_off(at) });
            }
        }
        let mut tables = self.plan.chains.iter().flat_map(|chain| &chain.program.tables);
        if tables.any(|table| table.spec.expires()) {
            self.timers.set(now + SWEEP_EVERY, Timer::Sweep { plan });
        }
    }

    /// Runs before the first phase: fragments find the first of their packet, or wait for it.
    fn track_fragments(
        &mut self,
        now: Time,
        (port, begins): (u16, LinkFraming),
        frames: &mut Vec<Frame>,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let fragment = |frame: &Frame, pool: &Pool| Fragment::of(pool.bytes(frame), port, begins);
        if frames.iter().any(|frame| fragment(frame, pool).is_some()) {
            let mut coming = Vec::with_capacity(frames.len());
            for frame in frames.drain(..) {
                match fragment(&frame, pool) {
                    None => coming.push((frame, None)),
                    Some(fragment) => {
                        self.fragments.track(frame.arrived(now), fragment, frame, pool, &mut coming);
                    }
                }
            }
            for (frame, first) in coming {
                frames.push(frame);
                self.fragment_info.push(FragmentInfo { first, depth: 0 });
            }
        }
        if !self.fragments.is_empty() {
            self.drop_fragments(pool, watch);
        }
    }

    /// Handles frame `nth` of those that were parsed, in which a tunnel carries a fragment. It waits, or passes at once
    /// together with the fragments that waited for it.
    #[cold]
    fn track_carried_fragment(
        &mut self,
        now: Time,
        port: u16,
        nth: usize,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let ChainMatch::Fragment { at, in_condition } = self.matches[nth] else {
            unreachable!("it was found to carry one")
        };
        let present = self.present[nth];
        let code = self.chains[usize::from(at)].code(in_condition);
        let slots = &self.slots[nth * self.stride..][..self.stride];
        let begins = self.framing_of_port[usize::from(port)].unwrap_or_default();
        let known = self.fragment_info.get(self.chunk_at + nth).map_or(0, |followed| followed.depth);
        let found = code.carried_in((slots, present), pool.bytes(&frame), port, begins, known);
        let Some((fragment, depth)) = found else { unreachable!("it was found to carry one") };
        let mut coming = Vec::new();
        self.fragments.track(frame.arrived(now), fragment, frame, pool, &mut coming);
        self.drop_fragments(pool, watch);
        let known = |(frame, first)| (frame, FragmentInfo { first, depth });
        let (mut frames, followed): (Vec<_>, Vec<_>) = coming.into_iter().map(known).unzip();
        let (others, at) = (core::mem::replace(&mut self.fragment_info, followed), self.chunk_at);
        self.pass(now, port, &mut frames, pool, watch);
        (self.fragment_info, self.chunk_at) = (others, at);
    }

    /// Gives back the buffers of abandoned fragments.
    #[cold]
    fn drop_fragments(&mut self, pool: &mut Pool, watch: Watcher<'_, '_>) {
        for (why, frame) in self.fragments.take_given_up().collect::<Vec<_>>() {
            match why {
                FragmentDrop::Dropped(reason) => self.drop_frame(reason, frame, pool, watch),
                FragmentDrop::Overlaps { port, version } => {
                    self.refuse_overlapping(port, version, frame, pool, watch)
                }
            }
        }
    }

    /// Drops a fragment that overlaps another one. It counts as malformed for the first chain that needs fragments
    /// tracked.
    fn refuse_overlapping(
        &mut self,
        port: u16,
        version: u8,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let ways = self.chains_of_port.get(usize::from(port)).map_or(&[][..], |(chains, _)| chains);
        let broken = ways.iter().find_map(|&at| {
            let (in_condition, check) = self.chains[usize::from(at)].overlap(version)?;
            Some(ChainMatch::Malformed { at, in_condition, check })
        });
        match broken {
            Some(broken) => self.refuse(broken, frame, pool, watch),
            None => self.drop_frame(DropReason::FragmentsOverlap, frame, pool, watch),
        }
    }

    /// Runs the first phase: finds the chain and the slots of each frame. It reads nothing but the frames.
    fn parse(&mut self, now: Time, port: u16, frames: &[Frame], pool: &Pool) {
        self.matches.clear();
        self.matches.resize(frames.len(), ChainMatch::Unmatched);
        let followed = self.fragment_info.get(self.chunk_at..).unwrap_or_default();
        let batch = ArrivedBatch {
            now,
            frames,
            port: self.plan.ports[usize::from(port)].as_bytes(),
            pool,
            fragment_info: followed,
            user_metadata: UserMetadata::default(),
        };
        let mut finds = ParseOutput {
            matches: &mut self.matches,
            slots: &mut self.slots,
            stride: self.stride,
            present: &mut self.present,
            checks: &mut self.checks,
        };
        let mut open = active::all(frames.len());
        for &at in &self.chains_of_port[usize::from(port)].0 {
            let left = (&mut self.outcome, &mut self.call[..]);
            open &= !self.chains[usize::from(at)].claim(at, open, &batch, &mut finds, left);
            if open == 0 {
                break;
            }
        }
    }

    /// Runs between the phases: looks up rows for all frames at once, as far as their keys are known already.
    fn prefetch(&mut self, port: u16, frames: &[Frame], pool: &Pool) {
        for &at in &self.chains_of_port[usize::from(port)].0 {
            let active = &mut self.chains[usize::from(at)];
            let code = &active.chain.code;
            active.prefetch_slots.clear();
            let Some(request) = code.request.as_ref().filter(|request| request.prefetch_pays(&active.state))
            else {
                continue;
            };
            request.start_prefetch(&active.state, frames.len(), &mut active.prefetch_slots);
            let bit = |(nth, found): (usize, &ChainMatch)| u64::from(found.is_of(usize::from(at))) << nth;
            let wanted = self.matches.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
            self.outcome.clear();
            let mut cx = Cx {
                regions: [self.plan.ports[usize::from(port)].as_bytes(); REGIONS],
                ..Cx::new(self.now, &active.state, &mut self.call, &mut self.outcome, &mut active.counters)
            };
            let (slots, stride, present) = (&self.slots[..], self.stride, &self.present[..]);
            let batch = PrefetchBatch { frames, pool, wanted, slots, stride, present };
            request.prefetch_keys_batch(&mut cx, batch, &mut active.prefetch_slots);
            request.prefetch_rows(&active.state, &mut active.prefetch_slots);
        }
    }

    /// Runs the second phase: consecutive frames of one chain pass through it. It stops after a pass whose outcome
    /// has more than an egress and edits; with an observer, more than FORWARD. Returns whether one such frame has
    /// passed, beyond those in `egresses`.
    fn run(
        &mut self,
        now: Time,
        first: Pass,
        frames: &mut [Frame],
        pool: &mut Pool,
        is_watched: bool,
    ) -> bool {
        let Pass { port, nth, at } = first;
        let active = &mut self.chains[at];
        let chain = &*active.chain;
        let forward = chain.to.map_or(Egress::Dropped(DropReason::NoPort), Egress::from);
        self.egresses.clear();
        let found = &self.matches[nth..][..frames.len()];
        let mine = found.iter().take_while(|found| found.is_of(at)).count();
        self.egresses.resize(mine, forward);
        let Some(request) = &chain.code.request else {
            active.frames += mine as u64;
            return false;
        };
        self.outcome.clear();
        let seed = chain.code.draws.then(|| hash::hash_word(self.config.seed));
        let mut done = 0;
        while done < mine {
            // A timed pass is a batch of its own.
            let n = active.tracing.untraced(now, mine - done);
            let (is_traced, n) = (n == 0, n.max(1));
            let (from, stride) = (nth + done, self.stride);
            let mut cx = Cx {
                regions: [self.plan.ports[usize::from(port)].as_bytes(); REGIONS],
                trace: self.config.clock.filter(|_| is_traced),
                ..Cx::new(self.now, &active.state, &mut self.call, &mut self.outcome, &mut active.counters)
            };
            let batch = ExecBatch {
                frames: &mut frames[done..done + n],
                pool: &mut *pool,
                slots: &self.slots[from * stride..],
                stride,
                present: &self.present[from..],
                notes: (&active.prefetch_slots, from),
                now,
                seed,
                leaves_more: chain.code.leaves_more,
            };
            let (exits, ends, passed) = (&mut self.egress, &mut active.ends, &mut self.egresses[done..]);
            let mut leaving =
                EgressSink { chain, forward, egress: exits, ends, egresses: passed, is_watched };
            let passing = request.run_batch(&mut cx, batch, &mut leaving);
            self.now = cx.now;
            // The frame with the further outcome has passed, too.
            let begun = n.min(passing + 1);
            active.frames += begun as u64;
            active.tracing.began(now, begun, is_traced);
            done += passing;
            if passing < n {
                self.egresses.truncate(done);
                return true;
            }
        }
        false
    }

    /// Returns the chain with a fast path that takes all frames of a port, if there is one. Its code parses each
    /// frame and runs it through the chain at once; nothing happens in between.
    fn fast_path_chain(&mut self, port: u16) -> Option<usize> {
        let at = usize::from(*self.chains_of_port[usize::from(port)].0.first()?);
        let ActivePacketChain { chain, batches_in_phases: n_in_phases, .. } = &mut self.chains[at];
        let code = &chain.code;
        let is_alone =
            chain.condition.is_none() && self.fragment_info.is_empty() && code.has_no_carried_packets();
        let request = code.request.as_ref().filter(|_| is_alone && code.parse.is_some())?;
        if *n_in_phases > 0 {
            *n_in_phases -= 1;
            return None;
        }
        request.has_fast_path().then_some(at)
    }

    /// Runs both phases at once, for the first `n` frames of a batch, which all take one chain. Each frame is parsed,
    /// passes and leaves before the next one. It stops after a frame that is malformed, or whose outcome has more
    /// than an egress and edits; that frame is completed, too.
    fn run_fused(&mut self, now: Time, first: Pass, n: usize, frames: &mut Vec<Frame>, pool: &mut Pool) {
        let Pass { port, at, .. } = first;
        let name = self.plan.ports[usize::from(port)].as_bytes();
        let active = &mut self.chains[at];
        let chain = &*active.chain;
        let code = &chain.code;
        let Some((parser, request)) = code.parse.as_ref().zip(code.request.as_ref()) else {
            unreachable!("a chain that frames go through has both")
        };
        let (stride, user_metadata) = (self.stride, UserMetadata::default());
        let arrived =
            ArrivedBatch { now, frames: &frames[..n], port: name, pool, fragment_info: &[], user_metadata };
        let mut finds = ParseOutput {
            matches: &mut [],
            slots: &mut self.slots,
            stride,
            present: &mut self.present,
            checks: &mut self.checks,
        };
        let always = code.fill_known(&arrived, &mut finds);
        self.outcome.clear();
        active.prefetch_slots.clear();
        if request.prefetch_pays(&active.state) {
            request.start_prefetch(&active.state, n, &mut active.prefetch_slots);
            let mut cx = Cx {
                regions: [name; REGIONS],
                ..Cx::new(self.now, &active.state, &mut self.call, &mut self.outcome, &mut active.counters)
            };
            let batch = RawBatch { frames: &frames[..n], pool, slots: &mut self.slots, stride, always };
            request.prefetch_raw(&mut cx, batch, &mut active.prefetch_slots);
            request.prefetch_rows(&active.state, &mut active.prefetch_slots);
        }
        let forward = chain.to.map_or(Egress::Dropped(DropReason::NoPort), Egress::from);
        self.egresses.clear();
        self.egresses.resize(n, forward);
        let mut cx = Cx {
            regions: [name; REGIONS],
            ..Cx::new(self.now, &active.state, &mut self.call, &mut self.outcome, &mut active.counters)
        };
        let batch = FusedBatch {
            notes: &active.prefetch_slots,
            frames: &mut frames[..n],
            pool: &mut *pool,
            slots: &mut self.slots,
            stride,
            present: &mut self.present,
            always,
            now,
            seed: code.draws.then(|| hash::hash_word(self.config.seed)),
            leaves_more: code.leaves_more,
        };
        let (exits, ends, passed) = (&mut self.egress, &mut active.ends, &mut *self.egresses);
        let mut leaving =
            EgressSink { chain, forward, egress: exits, ends, egresses: passed, is_watched: false };
        let Progress { passed, n_slow_path: unusual, stop: halt } =
            request.run_fused(&**parser, &mut cx, batch, &mut leaving);
        self.now = cx.now;
        if unusual > n / 2 {
            active.batches_in_phases = SLOW_PATH_BATCHES;
        }
        let begun = passed + usize::from(halt == Some(StopReason::Unhandled));
        active.frames += begun as u64;
        active.tracing.began(now, begun, false);
        self.egresses.truncate(passed);
        self.send_passed(frames, pool);
        match halt {
            None => {}
            Some(StopReason::Unhandled) => {
                self.finish_pass(Pass { nth: passed, ..first }, frames.remove(0), pool, &mut None);
            }
            Some(StopReason::Malformed(check)) => {
                let found = ChainMatch::Malformed { at: at as u16, in_condition: false, check };
                self.refuse(found, frames.remove(0), pool, &mut None);
            }
        }
    }

    /// Sends the frames that have passed, which are the first of the batch. Neighbours with the same egress leave
    /// together.
    fn send_passed(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) {
        // Usually all have the same egress.
        if let Some(&Egress::Port(to)) = self.egresses.first()
            && self.egresses.len() == frames.len()
            && self.egresses.iter().all(|exit| *exit == Egress::Port(to))
        {
            return self.egress.send_all(to, frames);
        }
        let mut frames = frames.drain(..self.egresses.len());
        let mut rest = &self.egresses[..];
        while let Some(&exit) = rest.first() {
            let n = rest.iter().take_while(|other| **other == exit).count();
            rest = &rest[n..];
            if let Egress::Port(to) = exit {
                self.egress.send_next(to, n, &mut frames);
                continue;
            }
            for frame in frames.by_ref().take(n) {
                match exit {
                    Egress::Dropped(reason) => self.egress.drop_frame(reason, frame, pool),
                    Egress::Group(to) => {
                        self.egress.send_to(Outlet::Group(to), self.now, Interval::ZERO, frame, pool);
                    }
                    Egress::Port(_) | Egress::Ended => pool.give(frame),
                }
            }
        }
    }

    /// Applies the complete outcome of a pass: its effects, its edits and its verdict.
    fn finish_pass(&mut self, pass: Pass, mut frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let present = self.present[pass.nth];
        if self.is_to_be_cut(pass, &frame, pool) || self.fragments_to(pass).is_some() {
            let parts = self.apply_outcome_in_parts(pass, present, frame, pool, watch);
            return parts.into_iter().for_each(|part| self.apply_verdict(pass, part, pool, watch));
        }
        match self.apply_outcome(pass, present, &mut frame, pool) {
            Ok(()) => self.apply_verdict(pass, frame, pool, watch),
            Err(error) => self.fail_edit(pass, error, frame, pool, watch),
        }
    }

    /// Carries out the verdict of a pass: forwards, redirects or ends the frame.
    fn apply_verdict(&mut self, pass: Pass, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let delay = self.outcome.delay;
        match self.outcome.verdict {
            Verdict::Forward => self.forward(chain_to(&self.chains, pass), delay, frame, pool, watch),
            Verdict::Redirect => self.redirect(pass, frame, pool, watch),
            Verdict::Drop => self.end_frame(pass, EndKind::Dropped, frame, pool, watch),
            Verdict::Abort(status) => self.end_frame(pass, EndKind::Aborted(status), frame, pool, watch),
            Verdict::Reply => self.end_frame(pass, EndKind::Replied, frame, pool, watch),
            Verdict::Failed(fault) => self.end_frame(pass, EndKind::Failed(fault), frame, pool, watch),
        }
    }

    /// Applies the outcome of a pass except its verdict: rows, marks, copies, and, if the frame goes on, its edits.
    ///
    /// # Errors
    /// The edit of the frame, or of a copy of it, that failed, and the reason.
    fn apply_outcome(
        &mut self,
        pass: Pass,
        present: InputSet,
        frame: &mut Frame,
        pool: &mut Pool,
    ) -> Result<(), EditError> {
        self.collect_rows(pass.at);
        let mut held = Vec::new();
        let made = self.apply_edits(pass, present, frame, &mut held, pool);
        for copy in held {
            self.egress.copies += 1;
            if let Err((reason, copy)) = self.hold(pass, copy, true, pool) {
                self.egress.drop_frame(reason, copy, pool);
            }
        }
        made
    }

    /// Makes the copies that a pass asked for and applies the edits of its frame. Copies to be held go into `held`.
    fn apply_edits(
        &mut self,
        pass: Pass,
        present: InputSet,
        frame: &mut Frame,
        held: &mut Vec<Frame>,
        pool: &mut Pool,
    ) -> Result<(), EditError> {
        let (outcome, now) = (&self.outcome, self.now);
        let chain = &*self.chains[pass.at].chain;
        frame.meta.marks.merge(&outcome.marks);
        let slots = &self.slots[pass.nth * self.stride..][..chain.code.inputs];
        let changes = (&*chain.code.stores, &*chain.program.header_changes);
        let mut edits = Edits::new(changes, slots, present, outcome);
        for mirror in &outcome.mirrors {
            edits.apply(mirror.edits as usize, frame, pool)?;
            match self.egress.target(outcome.kept(mirror.target.0, mirror.target.1)) {
                RedirectTarget::By(to) => self.egress.mirror(to, now, outcome.delay, frame, pool),
                RedirectTarget::Others => {
                    let others = chain.other_ports(pass.port);
                    others.for_each(|to| self.egress.send_copy(to, now, outcome.delay, frame, pool));
                }
                RedirectTarget::Hold if !chain.code.tails.is_empty() => match pool.copy(frame) {
                    Some(copy) => held.push(copy),
                    None => self.egress.count(DropReason::NoBuffer),
                },
                RedirectTarget::Hold | RedirectTarget::Unknown => self.egress.count(DropReason::NoMirrorPort),
            }
        }
        match outcome.verdict {
            Verdict::Forward | Verdict::Redirect => edits.apply(outcome.edits.len(), frame, pool),
            _ => Ok(()),
        }
    }

    /// Copies the sink rows that the code of chain `at` emitted.
    #[inline]
    fn collect_rows(&mut self, at: usize) {
        if !self.outcome.rows.is_empty() {
            let program = &self.chains[at].chain.program;
            self.rows_lost += self.rows.take(self.now, program, &self.outcome) as u64;
        }
    }

    /// Sends a frame to the egress of its chain, and reports it to the observer. Drops the frame if there is no
    /// egress.
    #[inline]
    fn forward(
        &mut self,
        to: Option<Outlet>,
        delay: Interval,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let Some(to) = to else {
            return self.drop_frame(DropReason::NoPort, frame, pool, watch);
        };
        if let Some(watcher) = watch {
            let Some(name) = self.egress.name_of(to, self.now, &frame, pool) else {
                return self.drop_frame(DropReason::GroupDown, frame, pool, watch);
            };
            watcher.frame(Disposition::Sent(name), &frame, pool.bytes(&frame));
        }
        self.egress.send_to(to, self.now, delay, frame, pool);
    }

    /// Sends a frame where its REDIRECT says: a port, a group, all other ports, or the hold buffer. Ends it if the
    /// target is unknown.
    fn redirect(&mut self, pass: Pass, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        self.outcome.materialize();
        let (outcome, active) = (&self.outcome, &self.chains[pass.at]);
        let to = match self.egress.target(&outcome.text) {
            RedirectTarget::By(to) => Some(to),
            RedirectTarget::Others => None,
            RedirectTarget::Hold if self.may_hold(pass) => {
                let lost = self.hold(pass, frame, false, pool).err();
                return lost
                    .into_iter()
                    .for_each(|(reason, frame)| self.drop_frame(reason, frame, pool, watch));
            }
            RedirectTarget::Hold | RedirectTarget::Unknown => {
                return self.end_frame(pass, EndKind::NoSuchPort, frame, pool, watch);
            }
        };
        if let Some(watcher) = watch {
            let bytes = pool.bytes(&frame);
            let name = match to {
                Some(to) => self.egress.name_of(to, self.now, &frame, pool),
                None => Some(ALL_OTHERS),
            };
            let Some(to) = name else {
                return self.drop_frame(DropReason::GroupDown, frame, pool, watch);
            };
            let by = active.name(outcome.element);
            watcher.frame(Disposition::Redirected { to, by, line: outcome.line }, &frame, bytes);
        }
        match to {
            Some(to) => self.egress.send_to(to, self.now, outcome.delay, frame, pool),
            None => {
                let others = active.chain.other_ports(pass.port);
                self.egress.send_to_all(others, self.now, outcome.delay, frame, pool);
            }
        }
    }

    /// Handles a failed edit: the element of the edit ends the frame. If the element is unknown, the frame is
    /// dropped.
    #[cold]
    fn fail_edit(
        &mut self,
        pass: Pass,
        error: EditError,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        match self.chains[pass.at].chain.mismatch_origin(error, self.outcome.element) {
            Some((element, line)) => {
                (self.outcome.element, self.outcome.line) = (element, line);
                self.end_frame(pass, EndKind::LengthMismatch, frame, pool, watch);
            }
            None => self.drop_frame(error.why, frame, pool, watch),
        }
    }

    /// Ends a frame on behalf of the element that decided so: counts and reports it, and frees its buffer.
    fn end_frame(&mut self, pass: Pass, how: EndKind, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let (active, outcome) = (&mut self.chains[pass.at], &self.outcome);
        active.ends.count(outcome.element, outcome.line, how);
        if let Some(watch) = watch {
            let disposition =
                Disposition::Ended { how, by: active.name(outcome.element), line: outcome.line };
            watch.frame(disposition, &frame, pool.bytes(&frame));
        }
        pool.give(frame);
    }

    /// Drops a frame that no chain takes, or that is malformed: counts and reports it.
    #[cold]
    fn refuse(&mut self, found: ChainMatch, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let ChainMatch::Malformed { at, in_condition, check } = found else {
            return self.drop_frame(DropReason::NoChain, frame, pool, watch);
        };
        let active = &mut self.chains[usize::from(at)];
        active.frames += 1;
        let check = active.count_malformed(in_condition, check);
        if let Some(watch) = watch {
            watch.frame(Disposition::Malformed(check), &frame, pool.bytes(&frame));
        }
        pool.give(frame);
    }

    /// Drops a frame for a reason, and reports it to the observer.
    #[cold]
    fn drop_frame(&mut self, reason: DropReason, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        if let Some(watch) = watch {
            watch.frame(Disposition::Dropped(reason), &frame, pool.bytes(&frame));
        }
        self.egress.drop_frame(reason, frame, pool);
    }

    /// Runs the n-th EVERY of a chain, which was due at a time, and sets its next timer.
    fn run_every(&mut self, now: Time, (at, nth): (usize, usize), due: Time) {
        let chain = Arc::clone(&self.chains[at].chain);
        let (interval, code) = &chain.every[nth];
        self.run_timed(now, at, &**code, (u64::MAX, Row::NONE));
        let due = due.next_after(now, *interval);
        self.timers.set(due, Timer::Every { plan: self.plan_id, chain: at, nth, due });
    }

    /// Runs the n-th TIMEOUT or EVICT of a chain for rows that have left their table, and sets its next timer.
    fn run_timeouts(&mut self, now: Time, (at, nth): (usize, usize), look: Time) {
        let why = self.chains[at].chain.timeouts[nth].0.why;
        let look = expiry::last_check(why, look, now);
        let (_, is_more) = self.run_row_removals(look, at, nth);
        let next = if is_more { now } else { look } + expiry::next_removal_interval(why, is_more);
        let timer = Timer::Expire { plan: self.plan_id, chain: at, nth, look: goes_off(next) };
        self.timers.set(next, timer);
    }

    /// Runs the n-th TIMEOUT or EVICT of chain `at` for rows that have left their table. Returns the number of rows,
    /// and whether there may be more.
    fn run_row_removals(&mut self, now: Time, at: usize, nth: usize) -> (usize, bool) {
        let chain = Arc::clone(&self.chains[at].chain);
        let (departs, code) = &chain.timeouts[nth];
        let table = Arc::clone(&self.chains[at].state.tables[usize::from(departs.table.0)]);
        let mut rows = core::mem::take(&mut self.expired_rows);
        let mut n = 0;
        let run = |nth_row, row| {
            n += 1;
            self.run_timed(now, at, &**code, (u64::from(nth_row), row));
        };
        let is_more = expiry::run_removed_rows((&table, departs.why), now, &mut rows, run);
        self.expired_rows = rows;
        (n, is_more)
    }

    /// Runs code that no frame triggered, for a row that has left its table, if any. `rand()` draws from the number
    /// beside the row.
    fn run_timed(&mut self, now: Time, at: usize, code: &dyn Program, (drawn_from, expired_row): (u64, Row)) {
        self.now = self.now.max(now);
        let active = &mut self.chains[at];
        self.outcome.clear();
        let drawn_from = hash::stream(drawn_from, "worker", self.config.worker as u64);
        let mut cx = Cx {
            rand: rand_base(self.config.seed, hash::mix(drawn_from, now.0 as u64)),
            slots: &self.slots[..active.chain.code.inputs],
            expired_row,
            ..Cx::new(self.now, &active.state, &mut self.call, &mut self.outcome, &mut active.counters)
        };
        code.run(&mut cx, usize::MAX);
        self.collect_rows(at);
    }

    /// Removes expired rows from the tables of all chains, a few rows of each per call.
    fn sweep(&self, now: Time) {
        let is_first = self.config.worker == self.config.first;
        for active in &self.chains {
            expiry::sweep(now, &active.chain.program, &active.state, is_first);
        }
    }
}

impl fmt::Debug for PacketEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketEngine")
            .field("version", &self.plan.version)
            .field("ports", &self.egress.ports)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Disposition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(port) => write!(f, "forward to {port}"),
            Self::Redirected { to, by, line } => write!(f, "redirect to {to} by {by} line {line}"),
            Self::Ended { how, by, line } => write!(f, "{how} by {by} line {line}"),
            Self::Malformed(Check { protocol, what, line }) => {
                write!(f, "malformed by {protocol} line {line}: {what}")
            }
            Self::Dropped(reason) => write!(f, "drop: {reason}"),
        }
    }
}

/// The egress of a frame that no element redirects.
fn chain_to(active: &[ActivePacketChain], pass: Pass) -> Option<Outlet> {
    active[pass.at].chain.to
}

/// The base of `rand()` in a pass.
fn rand_base(seed: u64, packet: u64) -> u64 {
    hash::mix(hash::hash_word(seed), packet)
}

/// Classifies the outcome of a pass that has nothing beside a verdict and edits. `forward` is the egress of frames that
/// no element redirects.
#[inline]
fn pass_result(outcome: &Outcome, forward: Egress, exits: &EgressPorts) -> PassResult {
    let exit = match outcome.verdict {
        Verdict::Forward => forward,
        Verdict::Drop => return PassResult::Unedited(Egress::Ended),
        Verdict::Redirect if outcome.target.is_none() => return PassResult::Other,
        Verdict::Redirect => match exits.cached_target(outcome.target) {
            Some(to) => to.into(),
            None => return PassResult::Other,
        },
        Verdict::Abort(_) | Verdict::Reply | Verdict::Failed(_) => return PassResult::Other,
    };
    if outcome.edits.is_empty() { PassResult::Unedited(exit) } else { PassResult::Edited(exit) }
}
