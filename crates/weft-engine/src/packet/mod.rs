//! Packets: one worker that runs frames through chains.
//!
//! A [`PacketEngine`] takes batches of frames that came in at a port ([`PacketEngine::handle_batch`]) and gives batches
//! that leave by one ([`PacketEngine::poll_output`]). Like the engine of calls it has no clock, no thread and no
//! socket: it runs behind devices, behind a capture, and in tests.
//!
//! A batch goes through it in two phases. First all of its frames are parsed, and each finds its chain: that reads the
//! frames and nothing else, so its order cannot be seen. Then each frame in the order of arrival passes its chain, is
//! rewritten, and leaves. Between the two, where tables are large, memory is asked for what the frames will look up.
//!
//! Where a chain asks for what only the first fragment of a packet has, later ones are given it (`fragments`), and
//! wait for it if they have come before: that is done in front of the first phase.
//!
//! * [`plan`]: ports, and chains with their code and state.
//! * [`link`], [`path`], [`trace`]: where frames wait before they leave, and what stands behind.
//! * [`stats`]: what was counted; each frame that does not leave has a counted reason.

mod edit;
mod exits;
mod fragments;
pub mod group;
pub mod headers;
mod hold;
pub mod impair;
pub mod link;
mod live;
pub mod path;
pub mod pipe;
pub mod plan;
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
use core::fmt;
use edit::{Edits, Undone};
use exits::{Exits, Target};
use fragments::{Begins, Followed, Fragment, Fragments, GivenUp};
use hold::Holds;
use live::{Arrived, Ends, Finds, Found, Live, Said};
use plan::{Outlet, PacketPlan};
use stats::{How, Lost, PacketStats};
use std::sync::Arc;
use std::vec;
use weft_core::abi::{Cx, Outcome, REGIONS, Slot, Verdict};
use weft_core::frame::{BATCH_MAX, Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::table::Row;
use weft_core::{Interval, Time, hash};
use weft_ir::backend::Program;
use weft_ir::batch::{Gone, Halt, Leave, Looking, Passing, Through, Unparsed};
use weft_ir::program::Check;

pub use exits::{ALL_OTHERS, HELD_MAX};
pub use fragments::{FRAGMENTED_MAX, FRAGMENTS_MAX, FRAGMENTS_TIME, FRAGMENTS_WAITING_MAX};
pub use hold::{HOLD_TIMES_MAX, HOLDS_MAX};

/// How a packet engine is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketConfig {
    /// Which worker this is, from 0.
    pub worker: usize,
    /// The first worker that carries frames, which runs `ON EVERY`: those in front of it carry calls.
    pub first: usize,
    /// What `rand()` draws from. The same seed and the same frames give the same run.
    pub seed: u64,
    /// Nanoseconds for timing elements; None leaves them untimed.
    pub clock: Option<fn() -> u64>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It leaves by the port with this name.
    Sent(&'a str),
    /// An element sent it to this port, `*` for all others.
    Redirected {
        /// The port's name.
        to: &'a str,
        /// The element.
        by: &'a str,
        /// The line of its REDIRECT.
        line: u32,
    },
    /// An element ended it.
    Ended {
        /// How.
        how: How,
        /// The element.
        by: &'a str,
        /// The line that did it.
        line: u32,
    },
    /// It breaks a rule of a wire format.
    Malformed(&'a Check),
    /// It went no further for another reason.
    Lost(Lost),
}

/// Is told what becomes of each frame, in the order of arrival; of a fragment that waits for the first of its packet,
/// when that has come, and of one that is given up before its batch passes.
pub trait Watch {
    /// The frame with these bytes (as they leave, or as they are when it ends) meets its fate.
    fn frame(&mut self, fate: Fate<'_>, frame: &Frame, bytes: &[u8]);
}

/// One worker of the packet path.
///
/// Ask for output and timeouts after each batch.
pub struct PacketEngine {
    config: PacketConfig,
    plan: Arc<PacketPlan>,
    /// Counts the plans; timers of earlier ones are stale.
    plan_id: u32,
    live: Vec<Live>,
    /// For each port, its chains in the order in which they are asked, and how many frames are parsed at once.
    ways: Vec<(Vec<u16>, usize)>,
    /// For each port, whether its fragments are followed, and then how its frames begin.
    follows: Vec<Option<Begins>>,
    fragments: Fragments,
    /// What is known of each frame of the batch; empty if there are no fragments.
    followed: Vec<Followed>,
    /// Which frame of the batch is the first of those that are parsed at once.
    chunk_at: usize,
    exits: Exits,
    holds: Holds,
    /// The slots of a batch: `stride` for each frame.
    slots: Vec<Slot>,
    stride: usize,
    /// Which inputs of each frame are not NULL.
    present: [InputSet; BATCH_MAX],
    /// Of each frame that breaks a check, its number.
    checks: [u32; BATCH_MAX],
    found: Vec<Found>,
    /// Where the frames go that have passed and are still in the batch, in their order.
    passed: Vec<Exit>,
    outcome: Outcome,
    /// Where an element of an earlier stage has sent a frame: the name of the port.
    target: Vec<u8>,
    /// What a frame was cut into that stood for several.
    segments: Vec<Frame>,
    call: Vec<u64>,
    timers: Timers<Timer>,
    due: Vec<Timer>,
    /// Rows that have left a table, while ON TIMEOUT or ON EVICT runs.
    departed: Vec<Row>,
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
    /// Rows of a table have expired or were evicted, perhaps.
    Expire {
        plan: u32,
        chain: usize,
        nth: usize,
        /// When it is looked for them.
        look: Time,
    },
    Sweep {
        plan: u32,
    },
}

/// A frame on its way: what is known of it.
#[derive(Clone, Copy)]
struct Pass {
    /// Where it came in.
    port: u16,
    /// Its place in the batch.
    nth: usize,
    /// Its chain.
    at: usize,
}

/// Where a frame goes whose pass left nothing that needs more than a look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exit {
    Port(u16),
    /// By what the group makes of the frame as it leaves.
    Group(u16),
    /// An element dropped it, which is counted.
    Ended,
    Lost(Lost),
}

impl From<Outlet> for Exit {
    fn from(to: Outlet) -> Self {
        match to {
            Outlet::Port(to) => Self::Port(to),
            Outlet::Group(to) => Self::Group(to),
        }
    }
}

/// What a pass has left, by what it takes to carry it out.
enum Left {
    /// The frame goes there.
    Way(Exit),
    /// It goes there with its changes.
    Edited(Exit),
    /// It asks for more.
    More,
}

/// What takes what passes of a chain leave, as long as it is no more than where their frames go and changes of them.
struct Leaving<'e> {
    chain: &'e plan::PacketChain,
    /// Where frames go that no element sends elsewhere.
    forward: Exit,
    exits: &'e mut Exits,
    ends: &'e mut Ends,
    /// Where the frames go.
    passed: &'e mut [Exit],
    /// Somebody is to be told of each.
    is_watched: bool,
}

impl Leave for Leaving<'_> {
    #[inline]
    fn take_way(&mut self, out: &mut Outcome, nth: usize) -> bool {
        if self.is_watched || self.chain.code.leaves_more && !out.is_bare() {
            return false;
        }
        // Most of what goes its way is sent where others were.
        if out.verdict != Verdict::Redirect || out.target.is_none() {
            return false;
        }
        let Some(to) = self.exits.target_lately(out.target) else { return false };
        self.passed[nth] = to.into();
        out.clear_bare();
        true
    }

    fn take(&mut self, cx: &mut Cx<'_>, nth: usize, frame: &mut Frame, pool: &mut Pool) -> bool {
        let code = &self.chain.code;
        if self.is_watched || code.leaves_more && !cx.out.is_bare() {
            return false;
        }
        self.passed[nth] = match left_by(cx.out, self.forward, self.exits) {
            Left::Way(Exit::Ended) => {
                self.ends.count(cx.out.element, cx.out.line, How::Dropped);
                Exit::Ended
            }
            Left::Way(exit) => exit,
            // A packet that stands for several may have to be cut first, or one be fragmented.
            Left::Edited(exit) if frame.meta.offload.gso.is_none() && !code.fragments => {
                let changes = (&*code.stores, &*self.chain.program.header_changes);
                let slots = &cx.slots[..code.inputs];
                match edit::make_all(changes, slots, cx.present, cx.out, frame, pool) {
                    Ok(()) => exit,
                    Err(undone) => match self.chain.unfit_at(undone, cx.out.element) {
                        Some((element, line)) => {
                            self.ends.count(element, line, How::Unfit);
                            Exit::Ended
                        }
                        None => Exit::Lost(undone.why),
                    },
                }
            }
            Left::Edited(_) | Left::More => return false,
        };
        cx.out.clear_bare();
        true
    }
}

/// How many batches of a chain are parsed and pass in phases when most frames of one have left the way of usual ones.
const IN_PHASES: u32 = 64;

/// Who is told what becomes of frames.
type Watcher<'w, 'o> = &'w mut Option<&'o mut dyn Watch>;

impl PacketEngine {
    /// An engine that runs `plan`.
    pub fn new(now: Time, config: PacketConfig, plan: Arc<PacketPlan>) -> Self {
        let mut engine = Self {
            config,
            plan: Arc::new(PacketPlan::default()),
            plan_id: 0,
            live: Vec::new(),
            ways: Vec::new(),
            follows: Vec::new(),
            fragments: Fragments::default(),
            followed: Vec::new(),
            chunk_at: 0,
            exits: Exits::new(now),
            holds: Holds::new(now),
            slots: Vec::new(),
            stride: 0,
            present: [InputSet::EMPTY; BATCH_MAX],
            checks: [0; BATCH_MAX],
            found: Vec::with_capacity(BATCH_MAX),
            passed: Vec::with_capacity(BATCH_MAX),
            outcome: Outcome::default(),
            target: Vec::new(),
            segments: Vec::new(),
            call: Vec::new(),
            timers: Timers::new(now),
            due: Vec::new(),
            departed: Vec::new(),
            rows: Batch::default(),
            rows_lost: 0,
            now,
            clock_ns: config.clock.map_or(0, clock_cost),
        };
        engine.take_on(now, plan);
        engine
    }

    /// What the queue and the path of a port's link draw from.
    pub fn link_seed(&self, port: usize, ingress: bool) -> u64 {
        hash::stream(self.config.seed, "link", 2 * port as u64 + u64::from(ingress))
    }

    /// Takes on a new plan: frames that come from now on enter under it. Frames that still wait to leave keep their
    /// port, by its name; those of a port that is gone are dropped. What elements counted goes on by chain and
    /// instance.
    pub fn apply(&mut self, now: Time, plan: Arc<PacketPlan>, pool: &mut Pool) {
        let are_ports_same = self.plan.ports == plan.ports;
        let followed = core::mem::take(&mut self.follows);
        let gone = self.take_on(now, plan);
        // Those that wait at a port that follows none any more would wait in vain: their first one passes.
        let is_other = |(old, new): (&Option<Begins>, &Option<Begins>)| old.is_some() && old != new;
        if !are_ports_same || followed.iter().zip(&self.follows).any(is_other) {
            self.fragments.clear();
            self.lose_fragments(pool, &mut None);
        }
        gone.into_iter().for_each(|frame| self.exits.lose(Lost::PortGone, frame, pool));
    }

    /// Has all chains look at other copies of tables from now on.
    pub fn take_up(&mut self, swap: &Swap) {
        self.live.iter_mut().for_each(|live| live.take_up(swap));
    }

    /// Runs other code of the plan that it runs, with all state, counters and timers as they are. Code of another plan
    /// is left.
    pub fn take_code(&mut self, plan: &Arc<PacketPlan>) {
        let is_same = |(live, chain): (&Live, &Arc<plan::PacketChain>)| live.is_of(chain);
        let mut pairs = self.live.iter().zip(&plan.chains);
        if plan.version != self.plan.version || plan.chains.len() != self.live.len() || !pairs.all(is_same) {
            return;
        }
        for (live, chain) in self.live.iter_mut().zip(&plan.chains) {
            live.chain = Arc::clone(chain);
        }
        self.plan = Arc::clone(plan);
    }

    /// The link of a port is up now, or down: groups take those ports that are up. All are, until somebody says
    /// otherwise.
    ///
    /// # Panics
    /// The plan has no such port.
    pub fn set_port_up(&mut self, port: u16, is_up: bool) {
        self.exits.set_up(port, is_up);
    }

    /// The plan that frames enter under.
    pub fn plan(&self) -> &Arc<PacketPlan> {
        &self.plan
    }

    /// Takes frames that came in at a port, all of which leave the vector. The time of a frame's pass is when it
    /// arrived, or `now` where its metadata does not say; it never goes back.
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
        let arrived = &mut self.exits.ports[usize::from(port)];
        arrived.received += frames.len() as u64;
        arrived.received_bytes += frames.iter().map(|frame| frame.size() as u64).sum::<u64>();
        if let Some(begins) = self.follows[usize::from(port)] {
            self.follow(now, (port, begins), frames, pool, &mut watch);
        }
        self.pass(now, port, frames, pool, &mut watch);
        self.followed.clear();
    }

    /// Frames of which it is known which are fragments pass their chains.
    fn pass(
        &mut self,
        now: Time,
        port: u16,
        frames: &mut Vec<Frame>,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let mut step = self.ways[usize::from(port)].1;
        self.chunk_at = 0;
        while !frames.is_empty() {
            let mut n = frames.len().min(step);
            // A batch that begins with one that is traced passes in phases.
            if watch.is_none()
                && let Some(at) = self.goes_through(port)
                && let untraced @ 1.. = self.live[at].tracing.untraced(now, n)
            {
                self.run_through(now, Pass { port, nth: 0, at }, untraced, frames, pool);
                continue;
            }
            self.parse(now, port, &frames[..n], pool);
            self.look_ahead(port, &frames[..n], pool);
            let mut nth = 0;
            // Those in front of `nth` have left the vector, several at a time where that is possible.
            while nth < n {
                let at = match self.found[nth] {
                    Found::Chain { at } => usize::from(at),
                    Found::Fragment { .. } => {
                        self.follow_carried(now, port, nth, frames.remove(0), pool, watch);
                        nth += 1;
                        // What was known of those behind it is not any more. Others may be fragments, too: one by one.
                        (n, step) = (nth, 1);
                        continue;
                    }
                    Found::Nothing | Found::Malformed { .. } => {
                        let refused =
                            self.found[nth..n].iter().take_while(|found| found.is_refused()).count();
                        for frame in frames.drain(..refused) {
                            self.refuse(self.found[nth], frame, pool, watch);
                            nth += 1;
                        }
                        continue;
                    }
                };
                if !self.live[at].chain.code.stages.is_empty() {
                    let mine = self.found[nth..n].iter().take_while(|found| found.is_of(at)).count();
                    for frame in frames.drain(..mine) {
                        self.pass_stages(now, Pass { port, nth, at }, frame, pool, watch);
                        nth += 1;
                    }
                    continue;
                }
                let stopped =
                    self.run(now, Pass { port, nth, at }, &mut frames[..n - nth], pool, watch.is_some());
                nth += self.passed.len();
                match watch {
                    None => self.leave(frames, pool),
                    Some(_) => {
                        let to = self.live[at].chain.to;
                        frames
                            .drain(..self.passed.len())
                            .for_each(|frame| self.forward(to, Interval::ZERO, frame, pool, watch));
                    }
                }
                if stopped {
                    self.settle(Pass { port, nth, at }, frames.remove(0), pool, watch);
                    nth += 1;
                }
            }
            self.chunk_at += n;
        }
    }

    /// The next port by which frames leave, in the order of the plan, and these frames, in theirs. `frames` is empty
    /// when it is given.
    pub fn poll_output(&mut self, frames: &mut Vec<Frame>) -> Option<u16> {
        self.exits.poll(frames)
    }

    /// When [`PacketEngine::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.frames_leave()).min()
    }

    /// When the next frame that waits leaves, or is given up.
    fn frames_leave(&self) -> Option<Time> {
        let waiting = [self.exits.poll_timeout(), self.fragments.poll_timeout(), self.holds.poll_timeout()];
        waiting.into_iter().flatten().min()
    }

    /// When [`PacketEngine::handle_timeout`] next does something that can be observed, and whether that is an `ON
    /// EVERY`: if not, an `ON TIMEOUT` or `ON EVICT` of a row, or a frame that leaves. What else
    /// [`PacketEngine::poll_timeout`] asks for may come late, however late, as in a long gap between two packets of a
    /// capture.
    pub fn poll_effect(&self) -> Option<(Time, bool)> {
        let timed = self.timers.all().filter_map(|(at, timer)| match *timer {
            Timer::Every { plan, .. } => (plan == self.plan_id).then_some((at, true)),
            Timer::Sweep { .. } => None,
            Timer::Expire { plan, chain, nth, look } if plan == self.plan_id => {
                let live = &self.live[chain];
                let (departs, _) = &live.chain.timeouts[nth];
                let table = &live.state.tables[usize::from(departs.table.0)];
                expiry::next_departure((table, departs.why), look).map(|at| (at, false))
            }
            Timer::Expire { .. } => None,
        });
        let effects = timed.chain(self.frames_leave().map(|at| (at, false)));
        effects.min_by_key(|(at, is_every)| (*at, !is_every))
    }

    /// Time has passed: delayed frames leave, `ON EVERY`, `ON TIMEOUT` and `ON EVICT` run, and frames come again to the
    /// elements that held them.
    pub fn handle_timeout(&mut self, now: Time, pool: &mut Pool, mut watch: Option<&mut dyn Watch>) {
        self.exits.handle_timeout(now);
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

    /// No packet comes any more: `ON TIMEOUT` and `ON EVICT` run for rows that have left their tables by now, without
    /// waiting for their time. Whether there were any: what they do may make others leave.
    pub fn tell_departed(&mut self, now: Time) -> bool {
        let mut were_any = false;
        for at in 0..self.live.len() {
            for nth in 0..self.live[at].chain.timeouts.len() {
                let (n, is_more) = self.run_departed(now, at, nth);
                were_any |= n > 0 || is_more;
            }
        }
        were_any
    }

    /// The rows that sinks wait for; take them with [`core::mem::swap`] or clear them.
    pub fn rows(&mut self) -> &mut Batch {
        &mut self.rows
    }

    /// Rows were given up because their writer is behind.
    pub fn note_rows_lost(&mut self, n: usize) {
        self.rows_lost += n as u64;
    }

    /// Frames that wait for the end of their DELAY, for the first fragment of their packet, or to come again.
    pub fn held(&self) -> usize {
        self.delayed() + self.holds.len() + self.fragments.waiting()
    }

    /// Frames that wait for the end of their DELAY.
    pub fn delayed(&self) -> usize {
        self.exits.held()
    }

    /// No packet comes any more: frames that elements hold are lost.
    pub fn give_up_held(&mut self, pool: &mut Pool, mut watch: Option<&mut dyn Watch>) {
        for (_, held) in self.holds.take_all() {
            let mut unwatched = None;
            let watch = if held.history.is_copy { &mut unwatched } else { &mut watch };
            self.lose(Lost::HeldTooLong, held.frame, pool, watch);
        }
    }

    /// No packet comes any more: fragments without the first of their packet are lost.
    pub fn give_up_fragments(&mut self) {
        self.fragments.expire(Time(i64::MAX));
    }

    /// Which worker this is, from 0.
    pub fn worker(&self) -> usize {
        self.config.worker
    }

    /// A copy of the counters.
    pub fn stats(&self) -> PacketStats {
        PacketStats {
            version: self.plan.version,
            ports: self.exits.ports.clone(),
            groups: self.exits.group_stats(self.plan.ports.clone()),
            chains: self.live.iter().map(|live| live.stats(self.clock_ns)).collect(),
            lost: self.exits.lost(self.fragments.given_up()),
            copies: self.exits.copies,
            rows_lost: self.rows_lost,
        }
    }

    /// Gives all frames that have not left back to the pool.
    pub fn close(&mut self, pool: &mut Pool) {
        self.exits.close(pool);
        self.holds.take_all().into_iter().for_each(|(_, held)| pool.give(held.frame));
        self.fragments.clear();
        self.lose_fragments(pool, &mut None);
    }

    /// Gives the frames that waited for a port that is gone.
    fn take_on(&mut self, now: Time, plan: Arc<PacketPlan>) -> Vec<Frame> {
        let mut gone = Vec::new();
        self.exits.take_on(&plan, &mut gone);
        let before = core::mem::take(&mut self.live);
        let live = |chain| Live::new(chain, self.config.worker, &before);
        self.live = plan.chains.iter().map(live).collect();
        let ended = before.iter().map(|live| live.ended_by_gone(&self.live)).sum();
        self.exits.count_all(Lost::ByGone, ended);
        self.follows = (0..plan.ports.len()).map(|port| plan.follows_fragments(port as u16)).collect();
        self.ways = (0..plan.ports.len()).map(|port| plan.ways(port as u16)).collect();
        self.stride = plan.chains.iter().map(|chain| chain.inputs()).max().unwrap_or(0).max(1);
        self.slots = vec![Slot::default(); self.stride * BATCH_MAX];
        self.call = vec![0; plan.chains.iter().map(|chain| chain.program.call_words()).max().unwrap_or(0)];
        let before_plan = core::mem::replace(&mut self.plan, plan);
        self.plan_id += 1;
        self.keep_held(&before, &before_plan.ports, &mut gone);
        self.set_timers(now);
        gone
    }

    fn set_timers(&mut self, now: Time) {
        let plan = self.plan_id;
        // ON EVERY, ON TIMEOUT and ON EVICT run once a node.
        let every = self.live.iter().enumerate().filter(|_| self.config.worker == self.config.first);
        for (chain, live) in every {
            for (nth, (interval, _)) in live.chain.every.iter().enumerate() {
                let due = now + *interval;
                self.timers.set(due, Timer::Every { plan, chain, nth, due });
            }
            for (nth, (departs, _)) in live.chain.timeouts.iter().enumerate() {
                let at = now + expiry::departs_every(departs.why);
                self.timers.set(at, Timer::Expire { plan, chain, nth, look: goes_off(at) });
            }
        }
        let mut tables = self.plan.chains.iter().flat_map(|chain| &chain.program.tables);
        if tables.any(|table| table.spec.expires()) {
            self.timers.set(now + SWEEP_EVERY, Timer::Sweep { plan });
        }
    }

    /// In front of the first phase: fragments wait, or find the first of their packet.
    fn follow(
        &mut self,
        now: Time,
        (port, begins): (u16, Begins),
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
                        self.fragments.take(frame.arrived(now), fragment, frame, pool, &mut coming);
                    }
                }
            }
            for (frame, first) in coming {
                frames.push(frame);
                self.followed.push(Followed { first, depth: 0 });
            }
        }
        if !self.fragments.is_empty() {
            self.lose_fragments(pool, watch);
        }
    }

    /// A tunnel carries a fragment in a frame, the `nth` of those that were parsed: it waits, or passes at once with
    /// what now may.
    #[cold]
    fn follow_carried(
        &mut self,
        now: Time,
        port: u16,
        nth: usize,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let Found::Fragment { at, in_condition } = self.found[nth] else {
            unreachable!("it was found to carry one")
        };
        let present = self.present[nth];
        let code = self.live[usize::from(at)].code(in_condition);
        let slots = &self.slots[nth * self.stride..][..self.stride];
        let begins = self.follows[usize::from(port)].unwrap_or_default();
        let known = self.followed.get(self.chunk_at + nth).map_or(0, |followed| followed.depth);
        let found = code.carried_in((slots, present), pool.bytes(&frame), port, begins, known);
        let Some((fragment, depth)) = found else { unreachable!("it was found to carry one") };
        let mut coming = Vec::new();
        self.fragments.take(frame.arrived(now), fragment, frame, pool, &mut coming);
        self.lose_fragments(pool, watch);
        let known = |(frame, first)| (frame, Followed { first, depth });
        let (mut frames, followed): (Vec<_>, Vec<_>) = coming.into_iter().map(known).unzip();
        let (others, at) = (core::mem::replace(&mut self.followed, followed), self.chunk_at);
        self.pass(now, port, &mut frames, pool, watch);
        (self.followed, self.chunk_at) = (others, at);
    }

    /// Gives back the buffers of fragments that were given up.
    #[cold]
    fn lose_fragments(&mut self, pool: &mut Pool, watch: Watcher<'_, '_>) {
        for (why, frame) in self.fragments.take_given_up().collect::<Vec<_>>() {
            match why {
                GivenUp::Lost(reason) => self.lose(reason, frame, pool, watch),
                GivenUp::Overlaps { port, version } => {
                    self.refuse_overlapping(port, version, frame, pool, watch)
                }
            }
        }
    }

    /// A fragment that overlaps another: malformed for the first chain that fragments are followed for.
    fn refuse_overlapping(
        &mut self,
        port: u16,
        version: u8,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let ways = self.ways.get(usize::from(port)).map_or(&[][..], |(chains, _)| chains);
        let broken = ways.iter().find_map(|&at| {
            let (in_condition, check) = self.live[usize::from(at)].overlap(version)?;
            Some(Found::Malformed { at, in_condition, check })
        });
        match broken {
            Some(broken) => self.refuse(broken, frame, pool, watch),
            None => self.lose(Lost::FragmentsOverlap, frame, pool, watch),
        }
    }

    /// The first phase: each frame finds its chain and its slots. Nothing but the frames is read.
    fn parse(&mut self, now: Time, port: u16, frames: &[Frame], pool: &Pool) {
        self.found.clear();
        self.found.resize(frames.len(), Found::Nothing);
        let followed = self.followed.get(self.chunk_at..).unwrap_or_default();
        let batch = Arrived {
            now,
            frames,
            port: self.plan.ports[usize::from(port)].as_bytes(),
            pool,
            followed,
            said: Said::default(),
        };
        let mut finds = Finds {
            found: &mut self.found,
            slots: &mut self.slots,
            stride: self.stride,
            present: &mut self.present,
            checks: &mut self.checks,
        };
        let mut open = live::all(frames.len());
        for &at in &self.ways[usize::from(port)].0 {
            let left = (&mut self.outcome, &mut self.call[..]);
            open &= !self.live[usize::from(at)].claim(at, open, &batch, &mut finds, left);
            if open == 0 {
                break;
            }
        }
    }

    /// Between the phases: what the frames will look up is looked up for all of them at once, as far as that is known
    /// of them now.
    fn look_ahead(&mut self, port: u16, frames: &[Frame], pool: &Pool) {
        for &at in &self.ways[usize::from(port)].0 {
            let live = &mut self.live[usize::from(at)];
            let code = &live.chain.code;
            live.notes.clear();
            let Some(request) = code.request.as_ref().filter(|request| request.pays_ahead(&live.state))
            else {
                continue;
            };
            request.start_prefetch(&live.state, frames.len(), &mut live.notes);
            let bit = |(nth, found): (usize, &Found)| u64::from(found.is_of(usize::from(at))) << nth;
            let wanted = self.found.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
            self.outcome.clear();
            let mut cx = Cx {
                regions: [self.plan.ports[usize::from(port)].as_bytes(); REGIONS],
                ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
            };
            let (slots, stride, present) = (&self.slots[..], self.stride, &self.present[..]);
            let batch = Looking { frames, pool, wanted, slots, stride, present };
            request.prefetch_keys_all(&mut cx, batch, &mut live.notes);
            request.prefetch_rows(&live.state, &mut live.notes);
        }
    }

    /// The second phase: frames pass their chain, from the first on, as long as it is the same and a pass leaves
    /// nothing but where its frame goes and changes of it; where somebody watches, nothing but FORWARD.
    /// Whether one more has passed, beyond those in `passed`, that left more.
    fn run(
        &mut self,
        now: Time,
        first: Pass,
        frames: &mut [Frame],
        pool: &mut Pool,
        is_watched: bool,
    ) -> bool {
        let Pass { port, nth, at } = first;
        let live = &mut self.live[at];
        let chain = &*live.chain;
        let forward = chain.to.map_or(Exit::Lost(Lost::NoPort), Exit::from);
        self.passed.clear();
        let found = &self.found[nth..][..frames.len()];
        let mine = found.iter().take_while(|found| found.is_of(at)).count();
        self.passed.resize(mine, forward);
        let Some(request) = &chain.code.request else {
            live.frames += mine as u64;
            return false;
        };
        self.outcome.clear();
        let seed = chain.code.draws.then(|| hash::hash_word(self.config.seed));
        let mut done = 0;
        while done < mine {
            // One that is traced is a batch of its own.
            let n = live.tracing.untraced(now, mine - done);
            let (is_traced, n) = (n == 0, n.max(1));
            let (from, stride) = (nth + done, self.stride);
            let mut cx = Cx {
                regions: [self.plan.ports[usize::from(port)].as_bytes(); REGIONS],
                trace: self.config.clock.filter(|_| is_traced),
                ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
            };
            let batch = Passing {
                frames: &mut frames[done..done + n],
                pool: &mut *pool,
                slots: &self.slots[from * stride..],
                stride,
                present: &self.present[from..],
                notes: (&live.notes, from),
                now,
                seed,
                leaves_more: chain.code.leaves_more,
            };
            let (exits, ends, passed) = (&mut self.exits, &mut live.ends, &mut self.passed[done..]);
            let mut leaving = Leaving { chain, forward, exits, ends, passed, is_watched };
            let passing = request.pass_all(&mut cx, batch, &mut leaving);
            self.now = cx.now;
            // One that left more has begun.
            let begun = n.min(passing + 1);
            live.frames += begun as u64;
            live.tracing.began(now, begun, is_traced);
            done += passing;
            if passing < n {
                self.passed.truncate(done);
                return true;
            }
        }
        false
    }

    /// The chain whose code parses the frames that come in at a port, and has each pass at once, if there is one: all
    /// of them take it, and nothing is to be done between.
    fn goes_through(&mut self, port: u16) -> Option<usize> {
        let at = usize::from(*self.ways[usize::from(port)].0.first()?);
        let Live { chain, n_in_phases, .. } = &mut self.live[at];
        let code = &chain.code;
        let is_alone = chain.condition.is_none() && self.followed.is_empty() && code.carries_nothing();
        let request = code.request.as_ref().filter(|_| is_alone && code.parse.is_some())?;
        if *n_in_phases > 0 {
            *n_in_phases -= 1;
            return None;
        }
        request.goes_through().then_some(at)
    }

    /// Both phases at once, for the first `n` frames of a batch that all take one chain: they are parsed, pass and
    /// leave one behind the other, until one is malformed or leaves more than where it goes and changes of it. That one
    /// meets its fate as well.
    fn run_through(&mut self, now: Time, first: Pass, n: usize, frames: &mut Vec<Frame>, pool: &mut Pool) {
        let Pass { port, at, .. } = first;
        let name = self.plan.ports[usize::from(port)].as_bytes();
        let live = &mut self.live[at];
        let chain = &*live.chain;
        let code = &chain.code;
        let Some((parser, request)) = code.parse.as_ref().zip(code.request.as_ref()) else {
            unreachable!("a chain that frames go through has both")
        };
        let (stride, said) = (self.stride, Said::default());
        let arrived = Arrived { now, frames: &frames[..n], port: name, pool, followed: &[], said };
        let mut finds = Finds {
            found: &mut [],
            slots: &mut self.slots,
            stride,
            present: &mut self.present,
            checks: &mut self.checks,
        };
        let always = code.fill_known(&arrived, &mut finds);
        self.outcome.clear();
        live.notes.clear();
        if request.pays_ahead(&live.state) {
            request.start_prefetch(&live.state, n, &mut live.notes);
            let mut cx = Cx {
                regions: [name; REGIONS],
                ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
            };
            let batch = Unparsed { frames: &frames[..n], pool, slots: &mut self.slots, stride, always };
            request.prefetch_unparsed(&mut cx, batch, &mut live.notes);
            request.prefetch_rows(&live.state, &mut live.notes);
        }
        let forward = chain.to.map_or(Exit::Lost(Lost::NoPort), Exit::from);
        self.passed.clear();
        self.passed.resize(n, forward);
        let mut cx = Cx {
            regions: [name; REGIONS],
            ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
        };
        let batch = Through {
            notes: &live.notes,
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
        let (exits, ends, passed) = (&mut self.exits, &mut live.ends, &mut *self.passed);
        let mut leaving = Leaving { chain, forward, exits, ends, passed, is_watched: false };
        let Gone { passed, unusual, halt } = request.pass_through(&**parser, &mut cx, batch, &mut leaving);
        self.now = cx.now;
        if unusual > n / 2 {
            live.n_in_phases = IN_PHASES;
        }
        let begun = passed + usize::from(halt == Some(Halt::LeftMore));
        live.frames += begun as u64;
        live.tracing.began(now, begun, false);
        self.passed.truncate(passed);
        self.leave(frames, pool);
        match halt {
            None => {}
            Some(Halt::LeftMore) => {
                self.settle(Pass { nth: passed, ..first }, frames.remove(0), pool, &mut None);
            }
            Some(Halt::Malformed(check)) => {
                let found = Found::Malformed { at: at as u16, in_condition: false, check };
                self.refuse(found, frames.remove(0), pool, &mut None);
            }
        }
    }

    /// Those that have passed leave the batch, of which they are the first, neighbours with the same way together.
    fn leave(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) {
        // In most cases all go one way.
        if let Some(&Exit::Port(to)) = self.passed.first()
            && self.passed.len() == frames.len()
            && self.passed.iter().all(|exit| *exit == Exit::Port(to))
        {
            return self.exits.send_all(to, frames);
        }
        let mut frames = frames.drain(..self.passed.len());
        let mut rest = &self.passed[..];
        while let Some(&exit) = rest.first() {
            let n = rest.iter().take_while(|other| **other == exit).count();
            rest = &rest[n..];
            if let Exit::Port(to) = exit {
                self.exits.send_next(to, n, &mut frames);
                continue;
            }
            for frame in frames.by_ref().take(n) {
                match exit {
                    Exit::Lost(reason) => self.exits.lose(reason, frame, pool),
                    Exit::Group(to) => {
                        self.exits.leave_by(Outlet::Group(to), self.now, Interval::ZERO, frame, pool);
                    }
                    Exit::Port(_) | Exit::Ended => pool.give(frame),
                }
            }
        }
    }

    /// Carries out all that a pass has left.
    fn settle(&mut self, pass: Pass, mut frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let present = self.present[pass.nth];
        if self.is_to_be_cut(pass, &frame, pool) || self.fragments_to(pass).is_some() {
            let parts = self.carry_out_in_parts(pass, present, frame, pool, watch);
            return parts.into_iter().for_each(|part| self.give_verdict(pass, part, pool, watch));
        }
        match self.carry_out(pass, present, &mut frame, pool) {
            Ok(()) => self.give_verdict(pass, frame, pool, watch),
            Err(undone) => self.give_up(pass, undone, frame, pool, watch),
        }
    }

    /// Sends a frame where the verdict of its pass says.
    fn give_verdict(&mut self, pass: Pass, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let delay = self.outcome.delay;
        match self.outcome.verdict {
            Verdict::Forward => self.forward(chain_to(&self.live, pass), delay, frame, pool, watch),
            Verdict::Redirect => self.redirect(pass, frame, pool, watch),
            Verdict::Drop => self.end(pass, How::Dropped, frame, pool, watch),
            Verdict::Abort(status) => self.end(pass, How::Aborted(status), frame, pool, watch),
            Verdict::Reply => self.end(pass, How::Replied, frame, pool, watch),
            Verdict::Failed(fault) => self.end(pass, How::Failed(fault), frame, pool, watch),
        }
    }

    /// Carries out what a pass has left but for its verdict: rows, marks, copies, and, if the frame goes on, its
    /// changes.
    ///
    /// # Errors
    /// Which change of the frame, or of a copy of it, was not made, and why.
    fn carry_out(
        &mut self,
        pass: Pass,
        present: InputSet,
        frame: &mut Frame,
        pool: &mut Pool,
    ) -> Result<(), Undone> {
        self.keep_rows(pass.at);
        let mut held = Vec::new();
        let made = self.make_changes(pass, present, frame, &mut held, pool);
        for copy in held {
            self.exits.copies += 1;
            if let Err((reason, copy)) = self.hold(pass, copy, true, pool) {
                self.exits.lose(reason, copy, pool);
            }
        }
        made
    }

    /// Makes the copies that a pass has left, those that are held into `held`, and the changes of its frame.
    fn make_changes(
        &mut self,
        pass: Pass,
        present: InputSet,
        frame: &mut Frame,
        held: &mut Vec<Frame>,
        pool: &mut Pool,
    ) -> Result<(), Undone> {
        let (outcome, now) = (&self.outcome, self.now);
        let chain = &*self.live[pass.at].chain;
        frame.meta.marks.merge(&outcome.marks);
        let slots = &self.slots[pass.nth * self.stride..][..chain.code.inputs];
        let changes = (&*chain.code.stores, &*chain.program.header_changes);
        let mut edits = Edits::new(changes, slots, present, outcome);
        for mirror in &outcome.mirrors {
            edits.make(mirror.edits as usize, frame, pool)?;
            match self.exits.target(outcome.kept(mirror.target.0, mirror.target.1)) {
                Target::By(to) => self.exits.mirror(to, now, outcome.delay, frame, pool),
                Target::Others => {
                    let others = chain.other_ports(pass.port);
                    others.for_each(|to| self.exits.leave_as_copy(to, now, outcome.delay, frame, pool));
                }
                Target::Hold if !chain.code.tails.is_empty() => match pool.copy(frame) {
                    Some(copy) => held.push(copy),
                    None => self.exits.count(Lost::NoBuffer),
                },
                Target::Hold | Target::Unknown => self.exits.count(Lost::NoMirrorPort),
            }
        }
        match outcome.verdict {
            Verdict::Forward | Verdict::Redirect => edits.make(outcome.edits.len(), frame, pool),
            _ => Ok(()),
        }
    }

    /// Takes the rows for sinks that a run of the code of chain `at` has left.
    #[inline]
    fn keep_rows(&mut self, at: usize) {
        if !self.outcome.rows.is_empty() {
            let program = &self.live[at].chain.program;
            self.rows_lost += self.rows.take(self.now, program, &self.outcome) as u64;
        }
    }

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
            return self.lose(Lost::NoPort, frame, pool, watch);
        };
        if let Some(watcher) = watch {
            let Some(name) = self.exits.name_of(to, self.now, &frame, pool) else {
                return self.lose(Lost::GroupDown, frame, pool, watch);
            };
            watcher.frame(Fate::Sent(name), &frame, pool.bytes(&frame));
        }
        self.exits.leave_by(to, self.now, delay, frame, pool);
    }

    fn redirect(&mut self, pass: Pass, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        self.outcome.materialize();
        let (outcome, live) = (&self.outcome, &self.live[pass.at]);
        let to = match self.exits.target(&outcome.text) {
            Target::By(to) => Some(to),
            Target::Others => None,
            Target::Hold if self.may_hold(pass) => {
                let lost = self.hold(pass, frame, false, pool).err();
                return lost.into_iter().for_each(|(reason, frame)| self.lose(reason, frame, pool, watch));
            }
            Target::Hold | Target::Unknown => return self.end(pass, How::NoSuchPort, frame, pool, watch),
        };
        if let Some(watcher) = watch {
            let bytes = pool.bytes(&frame);
            let name = match to {
                Some(to) => self.exits.name_of(to, self.now, &frame, pool),
                None => Some(ALL_OTHERS),
            };
            let Some(to) = name else {
                return self.lose(Lost::GroupDown, frame, pool, watch);
            };
            let by = live.name(outcome.element);
            watcher.frame(Fate::Redirected { to, by, line: outcome.line }, &frame, bytes);
        }
        match to {
            Some(to) => self.exits.leave_by(to, self.now, outcome.delay, frame, pool),
            None => {
                let others = live.chain.other_ports(pass.port);
                self.exits.leave_by_all(others, self.now, outcome.delay, frame, pool);
            }
        }
    }

    /// A change of a frame was not made: its element has ended it, if it is known which.
    #[cold]
    fn give_up(&mut self, pass: Pass, undone: Undone, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        match self.live[pass.at].chain.unfit_at(undone, self.outcome.element) {
            Some((element, line)) => {
                (self.outcome.element, self.outcome.line) = (element, line);
                self.end(pass, How::Unfit, frame, pool, watch);
            }
            None => self.lose(undone.why, frame, pool, watch),
        }
    }

    /// An element has ended a frame.
    fn end(&mut self, pass: Pass, how: How, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let (live, outcome) = (&mut self.live[pass.at], &self.outcome);
        live.ends.count(outcome.element, outcome.line, how);
        if let Some(watch) = watch {
            let fate = Fate::Ended { how, by: live.name(outcome.element), line: outcome.line };
            watch.frame(fate, &frame, pool.bytes(&frame));
        }
        pool.give(frame);
    }

    /// A frame that no chain takes, or that is malformed.
    #[cold]
    fn refuse(&mut self, found: Found, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let Found::Malformed { at, in_condition, check } = found else {
            return self.lose(Lost::NoChain, frame, pool, watch);
        };
        let live = &mut self.live[usize::from(at)];
        live.frames += 1;
        let check = live.count_malformed(in_condition, check);
        if let Some(watch) = watch {
            watch.frame(Fate::Malformed(check), &frame, pool.bytes(&frame));
        }
        pool.give(frame);
    }

    #[cold]
    fn lose(&mut self, reason: Lost, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        if let Some(watch) = watch {
            watch.frame(Fate::Lost(reason), &frame, pool.bytes(&frame));
        }
        self.exits.lose(reason, frame, pool);
    }

    /// Runs the n-th EVERY of a chain, which was due at a time, and sets its next one.
    fn run_every(&mut self, now: Time, (at, nth): (usize, usize), due: Time) {
        let chain = Arc::clone(&self.live[at].chain);
        let (interval, code) = &chain.every[nth];
        self.run_timed(now, at, &**code, (u64::MAX, Row::NONE));
        let due = due.next_after(now, *interval);
        self.timers.set(due, Timer::Every { plan: self.plan_id, chain: at, nth, due });
    }

    /// Runs the n-th TIMEOUT or EVICT of a chain for rows that have left their table, and sets its next time.
    fn run_timeouts(&mut self, now: Time, (at, nth): (usize, usize), look: Time) {
        let why = self.live[at].chain.timeouts[nth].0.why;
        let look = expiry::last_look(why, look, now);
        let (_, is_more) = self.run_departed(look, at, nth);
        let next = if is_more { now } else { look } + expiry::departs_again(why, is_more);
        let timer = Timer::Expire { plan: self.plan_id, chain: at, nth, look: goes_off(next) };
        self.timers.set(next, timer);
    }

    /// How many rows there were, and whether there may be more.
    fn run_departed(&mut self, now: Time, at: usize, nth: usize) -> (usize, bool) {
        let chain = Arc::clone(&self.live[at].chain);
        let (departs, code) = &chain.timeouts[nth];
        let table = Arc::clone(&self.live[at].state.tables[usize::from(departs.table.0)]);
        let mut rows = core::mem::take(&mut self.departed);
        let mut n = 0;
        let run = |nth_row, row| {
            n += 1;
            self.run_timed(now, at, &**code, (u64::from(nth_row), row));
        };
        let is_more = expiry::depart((&table, departs.why), now, &mut rows, run);
        self.departed = rows;
        (n, is_more)
    }

    /// Runs what no frame has brought about, for a row that has left its table, if any; `rand()` draws from the number
    /// beside it.
    fn run_timed(&mut self, now: Time, at: usize, code: &dyn Program, (drawn_from, departed): (u64, Row)) {
        self.now = self.now.max(now);
        let live = &mut self.live[at];
        self.outcome.clear();
        let drawn_from = hash::stream(drawn_from, "worker", self.config.worker as u64);
        let mut cx = Cx {
            rand: rand_base(self.config.seed, hash::mix(drawn_from, now.0 as u64)),
            slots: &self.slots[..live.chain.code.inputs],
            expired_row: departed,
            ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
        };
        code.run(&mut cx, usize::MAX);
        self.keep_rows(at);
    }

    fn sweep(&self, now: Time) {
        let is_first = self.config.worker == self.config.first;
        for live in &self.live {
            expiry::sweep(now, &live.chain.program, &live.state, is_first);
        }
    }
}

impl fmt::Debug for PacketEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketEngine")
            .field("version", &self.plan.version)
            .field("ports", &self.exits.ports)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Fate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(port) => write!(f, "forward to {port}"),
            Self::Redirected { to, by, line } => write!(f, "redirect to {to} by {by} line {line}"),
            Self::Ended { how, by, line } => write!(f, "{how} by {by} line {line}"),
            Self::Malformed(Check { protocol, what, line }) => {
                write!(f, "malformed by {protocol} line {line}: {what}")
            }
            Self::Lost(reason) => write!(f, "drop: {reason}"),
        }
    }
}

/// Where a frame goes that no element sends elsewhere.
fn chain_to(live: &[Live], pass: Pass) -> Option<Outlet> {
    live[pass.at].chain.to
}

/// What `rand()` of a pass draws from.
fn rand_base(seed: u64, packet: u64) -> u64 {
    hash::mix(hash::hash_word(seed), packet)
}

/// What it takes to carry out a pass that left nothing beside its verdict and its changes; `forward` is where its frame
/// goes that no element sends elsewhere.
#[inline]
fn left_by(outcome: &Outcome, forward: Exit, exits: &Exits) -> Left {
    let exit = match outcome.verdict {
        Verdict::Forward => forward,
        Verdict::Drop => return Left::Way(Exit::Ended),
        Verdict::Redirect if outcome.target.is_none() => return Left::More,
        Verdict::Redirect => match exits.target_lately(outcome.target) {
            Some(to) => to.into(),
            None => return Left::More,
        },
        Verdict::Abort(_) | Verdict::Reply | Verdict::Failed(_) => return Left::More,
    };
    if outcome.edits.is_empty() { Left::Way(exit) } else { Left::Edited(exit) }
}
