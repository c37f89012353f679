//! The loop of a worker that carries frames: take a batch from each queue, run it, send what leaves.
//!
//! It knows all ports of a node, so that an element may send a frame from any to any, and has some queues of each, or
//! none: then it hands what leaves by the port to the worker that owns it ([`super::gate`]). It shares nothing else
//! with other workers but tables. Devices are polled level-triggered: a ring that was not emptied is readable at once.

#![expect(unsafe_code, reason = "poll(2) has no safe form in the standard library")]

use super::gate::{Bell, Gates, Taken};
use super::interface::LinkState;
use super::port::PortConfig;
use super::recovery::{Recovery, is_there};
use super::report::{LinkReport, PacketNodeStats, PortError, PortReport};
use super::{BATCH_MAX, Device, DeviceCounters, sys};
use crate::clock;
use crate::spin::Spin;
use crate::worker::Errand;
use crate::writer::RowSender;
use core::ffi::c_int;
use core::mem;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};
use weft_core::frame::{Frame, Pool, PoolConfig};
use weft_core::{Interval, Time};
use weft_engine::packet::impair::Impairments;
use weft_engine::packet::link::{Link, LinkPlan, OnFailure};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::{PacketConfig, PacketEngine};
use weft_engine::recording::{Limits, Recorder, RecordingProgress};
use weft_engine::rules::Swap;

/// Frames that may wait for a port that has no room for them; further ones are dropped, and counted as `port_full`.
pub const WAITING_MAX: usize = 1024;
/// Frames of a link that have buffers of their own, at most; the limits of queues may be higher, and are met when no
/// more than [`RESERVE`] buffers are left.
const HELD_MAX: u32 = 1 << 15;
/// Small buffers that links leave to drivers and chains: with all of them in a queue nothing would come in any more, by
/// ports that have no link either. A link that came by an update has no buffers of its own.
const RESERVE: usize = 1024;
/// A port that had no room is tried again after this time at the latest.
const RETRY: Interval = Interval::from_millis(1);
/// Devices are looked at so often even if nothing happens: one that was down and is removed says no word of it.
const LOOK_EVERY: Interval = Interval::from_secs(1);
/// Frames that come one behind the other, behind which a worker rests.
const BURST_MIN: usize = 8;
/// The links of ports that stand in a group are asked for so often: this long, frames still leave by one that is down.
const LINKS_EVERY: Interval = Interval::from_millis(20);
/// Rows of sinks leave after this time even if the batch is not full.
const ROWS_TIME_MAX: Interval = Interval::from_millis(20);

/// What a worker can be told.
pub(super) enum Mail {
    Apply {
        plan: Arc<PacketPlan>,
        done: Sender<Duration>,
    },
    TakeUp {
        swap: Arc<Swap>,
        done: Sender<()>,
    },
    Errand {
        errand: Errand,
        done: Sender<()>,
    },
    TakeCode {
        plan: Arc<PacketPlan>,
        done: Sender<()>,
    },
    Stats {
        to: Sender<PacketNodeStats>,
    },
    /// Note what a link is asked. Who has it says whether it was not noted already.
    Record {
        link: String,
        limits: Limits,
        to: Sender<Option<bool>>,
    },
    /// How far the recordings are, by link.
    Recordings {
        to: Sender<Vec<(String, RecordingProgress)>>,
    },
    /// Give what was noted of a link.
    TakeRecording {
        link: String,
        to: Sender<Option<Recorder>>,
    },
    /// Take no more frames from devices.
    Quiet {
        done: Sender<()>,
    },
    Stop,
}

/// How a worker is set up.
pub(super) struct WorkerConfig {
    pub(super) engine: PacketConfig,
    pub(super) spin: Spin,
    /// How long it rests behind a burst.
    pub(super) coalesce: Interval,
}

/// The other ends of what a worker is told by.
pub(super) struct Ears {
    pub(super) mail: Receiver<Mail>,
    pub(super) wake: UnixStream,
    pub(super) bell: Arc<Bell>,
}

/// A worker, with what it owns.
pub(super) struct Worker {
    engine: PacketEngine,
    pool: Pool,
    ports: Vec<Port>,
    ears: Ears,
    /// Nothing more is taken from devices: it is about to stop.
    is_quiet: bool,
    rows: RowSender,
    rows_since: Option<Time>,
    spin: Spin,
    coalesce: Interval,
    /// Frames on their way; empty between two batches.
    batch: Vec<Frame>,
    /// When links are asked for next; None where no port stands in a group.
    look_at_links: Option<Time>,
    polls: Vec<libc::pollfd>,
}

/// A device that is gone.
struct Gone {
    why: String,
    /// When it is looked for next.
    look_at: Time,
}

/// A port, as one worker has it.
pub(super) struct Port {
    config: PortConfig,
    /// Those of its queues that are this worker's.
    queues: Vec<Box<dyn Device>>,
    /// Of its device; None for a file.
    link: Option<Arc<LinkState>>,
    /// It has what there is one of: links, and the device for workers that have no queue of it.
    is_owner: bool,
    /// How all workers take up a device that was gone, which of them this is, and how far it is in that.
    recovery: Arc<Recovery>,
    worker: usize,
    turn: u32,
    /// To the owner; None where there is one worker alone.
    gates: Option<Arc<Gates>>,
    /// What the owner has taken out of them.
    arriving: Taken,
    leaving: Taken,
    /// What its links say is to be done without a device.
    on_failure: Option<OnFailure>,
    gone: Option<Gone>,
    /// The device is there, but down or without a carrier; when it is asked next, where a link says what is to be
    /// done meanwhile.
    is_down: bool,
    look_at: Time,
    /// What devices that are gone have counted, and what was dropped in front of one that is down.
    counted: DeviceCounters,
    /// Frames dropped for want of a device.
    lost: u64,
    /// What the device, or the owner, has no room for.
    waiting: Vec<Frame>,
    /// Where frames wait before they leave, and before the chains see them. The owner has them.
    egress: Option<Link>,
    ingress: Option<Link>,
    /// Somebody has such links.
    has_egress: bool,
    has_ingress: bool,
    full: u64,
    /// Why a capture ended before its end.
    broken: Option<String>,
}

impl Worker {
    /// A worker that runs `plan`. It makes its pool itself, so that the memory is near.
    ///
    /// # Errors
    /// A device has failed.
    pub(super) fn new(
        config: WorkerConfig,
        plan: Arc<PacketPlan>,
        ports: Vec<Port>,
        ears: Ears,
        rows: RowSender,
    ) -> Result<Self, PortError> {
        let links = plan.links.clone();
        let owned = links.iter().filter(|link| ports[usize::from(link.port)].is_owner);
        let mut worker = Self {
            pool: Pool::new(pool_for(owned)),
            engine: PacketEngine::new(clock::now(), config.engine, plan),
            ports,
            ears,
            is_quiet: false,
            rows,
            rows_since: None,
            spin: config.spin,
            coalesce: config.coalesce,
            batch: Vec::with_capacity(BATCH_MAX),
            look_at_links: None,
            polls: Vec::new(),
        };
        worker.look_at_links(clock::now());
        worker.take_links(&links).map(|()| worker)
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// A device has failed.
    pub(super) fn run(mut self) -> Result<(), PortError> {
        let (mut idle_since, mut looks_since) = (None, None);
        let mut burst = 0;
        // The kernel adds 50 us to each wait otherwise.
        sys::set_timer_slack(1);
        loop {
            let now = clock::now();
            let mut moved = self.receive(now)?;
            if self.engine.poll_timeout().is_some_and(|at| at <= now) {
                self.engine.handle_timeout(now, &mut self.pool, None);
                moved += self.leave()?;
            }
            moved += self.take_handed(now)?;
            if self.look_at_links.is_some_and(|at| at <= now) {
                self.look_at_links(now);
            }
            moved += self.run_links(now)?;
            moved += self.send()?;
            for (nth, port) in self.ports.iter_mut().enumerate() {
                port.mend(nth as u16, now);
            }
            self.hand_on_rows(now, false);
            if !self.read_mail()? {
                return self.finish();
            }
            if moved > 0 {
                (idle_since, looks_since) = (None, None);
                burst += moved;
                continue;
            }
            // How long nothing came is counted from here on, whether it rests meanwhile or looks.
            let idle = *idle_since.get_or_insert(now);
            if mem::take(&mut burst) >= BURST_MIN && self.coalesce > Interval::ZERO {
                self.flush()?;
                self.rest(now);
                continue;
            }
            if now - *looks_since.get_or_insert(now) < self.spin.window(0) {
                std::thread::yield_now();
                continue;
            }
            self.flush()?;
            self.sleep();
            self.spin.note_slept(clock::now() - idle);
            (idle_since, looks_since) = (None, None);
        }
    }

    /// Takes a batch from each queue and runs it; how many frames there were.
    fn receive(&mut self, now: Time) -> Result<usize, PortError> {
        let mut moved = 0;
        if self.is_quiet {
            return Ok(0);
        }
        let has_waiting = self.has_waiting();
        for port in 0..self.ports.len() {
            if !self.ports[port].is_read(has_waiting) {
                continue;
            }
            // If the device is gone, so are its queues.
            let mut queue = 0;
            while let Some(device) = self.ports[port].queues.get_mut(queue) {
                let received = device.receive(&mut self.pool, &mut self.batch, now);
                queue += 1;
                let from = &mut self.ports[port];
                match received {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if from.config.driver.is_file() => from.broken = Some(error.to_string()),
                    Err(error) => from.fail(error, now)?,
                }
                if !self.batch.is_empty() {
                    moved += self.batch.len();
                    if from.hold(&mut self.batch, &mut self.pool, now) {
                        continue;
                    }
                    self.engine.handle_batch(now, port as u16, &mut self.batch, &mut self.pool, None);
                    self.leave()?;
                }
            }
        }
        Ok(moved)
    }

    /// Sends what the engine has made; how many frames that were.
    fn leave(&mut self) -> Result<usize, PortError> {
        let mut moved = 0;
        while let Some(to) = self.engine.poll_output(&mut self.batch) {
            let port = &mut self.ports[usize::from(to)];
            moved += self.batch.len();
            if let Some(link) = &mut port.egress {
                let now = clock::now();
                self.batch.drain(..).for_each(|frame| hand_to(link, frame, &mut self.pool, now));
                port.run_egress(&mut self.pool, now)?;
                continue;
            }
            port.waiting.append(&mut self.batch);
            port.send(&mut self.pool)?;
            port.bound(&mut self.pool);
        }
        Ok(moved)
    }

    /// Goes on with what other workers have handed to the owner of a port; how many frames that were.
    fn take_handed(&mut self, now: Time) -> Result<usize, PortError> {
        let mut moved = 0;
        for port in 0..self.ports.len() {
            let at = &mut self.ports[port];
            let Some(gates) = at.gates.clone().filter(|_| at.is_owner) else { continue };
            gates.leaving.take(&mut at.leaving);
            while at.egress.is_some() || at.waiting.len() < BATCH_MAX {
                let Some(frame) = at.leaving.next(&mut self.pool) else { break };
                moved += 1;
                match &mut at.egress {
                    Some(link) => hand_to(link, frame, &mut self.pool, now),
                    None => at.waiting.push(frame),
                }
            }
            gates.arriving.take(&mut at.arriving);
            while self.batch.len() < BATCH_MAX {
                let Some(frame) = at.arriving.next(&mut self.pool) else { break };
                self.batch.push(frame);
            }
            moved += self.batch.len();
            // The link may be gone meanwhile.
            if !self.batch.is_empty() && !at.hold(&mut self.batch, &mut self.pool, now) {
                self.engine.handle_batch(now, port as u16, &mut self.batch, &mut self.pool, None);
                self.leave()?;
            }
        }
        Ok(moved)
    }

    /// Lets go what links let go now; how many frames that were.
    fn run_links(&mut self, now: Time) -> Result<usize, PortError> {
        let mut moved = 0;
        for port in 0..self.ports.len() {
            let from = &mut self.ports[port];
            moved += from.run_egress(&mut self.pool, now)?;
            let Some(link) = &mut from.ingress else { continue };
            link.handle_timeout(&mut self.pool, now);
            while self.batch.len() < BATCH_MAX {
                let Some(frame) = link.poll_frame(&mut self.pool, now) else { break };
                self.batch.push(frame);
            }
            if !self.batch.is_empty() {
                moved += self.batch.len();
                self.engine.handle_batch(now, port as u16, &mut self.batch, &mut self.pool, None);
                self.leave()?;
            }
        }
        Ok(moved)
    }

    /// Has ports go on with these links: what waits in one that is replaced stays, what waits in one that is gone goes
    /// on as if there had been none.
    fn take_links(&mut self, plans: &[LinkPlan]) -> Result<(), PortError> {
        let now = clock::now();
        let mut released = Vec::new();
        for (nth, port) in self.ports.iter_mut().enumerate() {
            let of_port = plans.iter().filter(|plan| usize::from(plan.port) == nth);
            port.on_failure = of_port.filter_map(|plan| plan.on_failure).next();
            port.is_down &= port.on_failure.is_some();
            for ingress in [false, true] {
                let seed = self.engine.link_seed(nth, ingress);
                let meant = |plan: &&LinkPlan| usize::from(plan.port) == nth && plan.ingress == ingress;
                let plan = plans.iter().find(meant);
                *(if ingress { &mut port.has_ingress } else { &mut port.has_egress }) = plan.is_some();
                let plan = plan.filter(|_| port.is_owner).cloned();
                let place = if ingress { &mut port.ingress } else { &mut port.egress };
                match (place.as_mut(), plan) {
                    (None, None) => {}
                    (None, Some(plan)) => *place = Some(Link::new(plan, now, seed)),
                    (Some(link), Some(plan)) => link.replace(plan, &mut self.pool, now, seed),
                    (Some(link), None) => {
                        let frames = link.take_all();
                        *place = None;
                        if ingress {
                            released.push((nth as u16, frames));
                        } else {
                            port.waiting.extend(frames);
                        }
                    }
                }
            }
        }
        for (port, frames) in released {
            let mut frames = frames.into_iter().peekable();
            while frames.peek().is_some() {
                self.batch.extend(frames.by_ref().take(BATCH_MAX));
                self.engine.handle_batch(now, port, &mut self.batch, &mut self.pool, None);
                self.leave()?;
            }
        }
        Ok(())
    }

    /// Tells the engine which of the ports that stand in a group have a link that is up.
    fn look_at_links(&mut self, now: Time) {
        let plan = Arc::clone(self.engine.plan());
        for member in plan.groups.iter().flat_map(|group| &group.members) {
            let link = &self.ports[usize::from(member.port)].link;
            self.engine.set_port_up(member.port, link.as_ref().is_none_or(|link| link.is_up()));
        }
        self.look_at_links = (!plan.groups.is_empty()).then(|| now + LINKS_EVERY);
    }

    /// Tries again what ports had no room for; how many frames left.
    fn send(&mut self) -> Result<usize, PortError> {
        let mut moved = 0;
        for port in &mut self.ports {
            if !port.waiting.is_empty() {
                moved += port.send(&mut self.pool)?;
            }
        }
        Ok(moved)
    }

    /// What devices keep leaves.
    fn flush(&mut self) -> Result<(), PortError> {
        for port in self.ports.iter_mut().filter(|port| port.gone.is_none()) {
            if let Err(error) = port.queues.iter_mut().try_for_each(|queue| queue.flush()) {
                port.fail(error, clock::now())?;
            }
        }
        Ok(())
    }

    /// Some port has no room for what leaves by it.
    fn has_waiting(&self) -> bool {
        self.ports.iter().any(|port| !port.waiting.is_empty())
    }

    /// Lets more come, so that it comes together.
    fn rest(&mut self, now: Time) {
        let until = self.look_for(now).min(now + self.coalesce);
        if let Ok(nanos) = u64::try_from((until - clock::now()).0) {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }

    /// Waits until a device is readable, mail has come, or it is time for something.
    fn sleep(&mut self) {
        let now = clock::now();
        let until = self.look_for(now);
        self.ears.bell.sleeps();
        // Whoever hands over a frame behind this look wakes it.
        let is_handed = |port: &Port| port.is_owner && port.gates.as_ref().is_some_and(|g| g.has_frames());
        let until = if self.ports.iter().any(is_handed) { now } else { until };
        let left = (until - now).0.clamp(0, LOOK_EVERY.0);
        let timeout = libc::timespec {
            tv_sec: (left / 1_000_000_000) as libc::time_t,
            tv_nsec: (left % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the list is writable for its length, the time is readable, and no signal mask is given.
        // An error is a signal, after which all is looked at as after an event.
        let n: c_int = unsafe {
            libc::ppoll(
                self.polls.as_mut_ptr(),
                self.polls.len() as libc::nfds_t,
                &timeout,
                core::ptr::null(),
            )
        };
        if n > 0 && self.polls[0].revents != 0 {
            // What was written says only that there is something.
            let _ = self.ears.wake.read(&mut [0; 64]);
        }
        self.ears.bell.wakes();
    }

    /// Notes in `polls` what can wake it; the time at which it is to look even if nothing does.
    fn look_for(&mut self, now: Time) -> Time {
        self.polls.clear();
        self.polls.push(libc::pollfd { fd: self.ears.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let has_waiting = self.has_waiting();
        let mut until = now + LOOK_EVERY;
        let mut no_later = |at: Time| until = until.min(at);
        if let Some(at) = self.engine.poll_timeout() {
            no_later(at);
        }
        if let Some(at) = self.look_at_links {
            no_later(at);
        }
        if let Some(since) = self.rows_since {
            no_later(since + ROWS_TIME_MAX);
        }
        for port in &self.ports {
            let is_tried = !port.waiting.is_empty() && !port.is_cut_off();
            if port.is_cut_off() && port.gone.is_none() {
                no_later(port.look_at);
            }
            if is_tried || port.arriving.has_frames() || port.leaving.has_frames() {
                no_later(now + RETRY);
            }
            // What is held for want of a device has no time.
            let egress = port.egress.as_ref().filter(|_| !port.is_holding()).and_then(Link::poll_timeout);
            // A link is not asked while what it let go last has no room, however late it is.
            let soonest = if port.has_room() { Time(0) } else { now + RETRY };
            egress.map(|at| at.max(soonest)).into_iter().for_each(&mut no_later);
            port.ingress.as_ref().and_then(Link::poll_timeout).into_iter().for_each(&mut no_later);
            for device in port.queues.iter().filter(|_| port.is_read(has_waiting)) {
                match device.fd() {
                    // Buffers become free without a word.
                    _ if device.is_starved() => no_later(now + RETRY),
                    Some(fd) => self.polls.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 }),
                    None => no_later(device.poll_timeout().unwrap_or(now)),
                }
            }
        }
        until
    }

    /// False: it is to stop.
    fn read_mail(&mut self) -> Result<bool, PortError> {
        loop {
            match self.ears.mail.try_recv() {
                Ok(Mail::Apply { plan, done }) => {
                    let begun = Instant::now();
                    self.take_links(&plan.links)?;
                    self.engine.apply(clock::now(), plan, &mut self.pool);
                    self.look_at_links(clock::now());
                    let _ = done.send(begun.elapsed());
                }
                Ok(Mail::TakeUp { swap, done }) => {
                    self.engine.apply_swap(&swap);
                    // Who answers has let go of it.
                    drop(swap);
                    let _ = done.send(());
                }
                Ok(Mail::Errand { errand, done }) => {
                    errand(self.engine.worker());
                    drop(errand);
                    let _ = done.send(());
                }
                Ok(Mail::TakeCode { plan, done }) => {
                    self.engine.apply_code(&plan);
                    let _ = done.send(());
                }
                Ok(Mail::Stats { to }) => {
                    let links = self.ports.iter().flat_map(Port::links).collect();
                    let ports = self.ports.iter_mut().map(Port::report).collect();
                    let _ = to.send(PacketNodeStats { stats: self.engine.stats(), ports, links });
                }
                Ok(Mail::Record { link, limits, to }) => {
                    let begin = |link: &mut Link| link.record(limits, clock::now());
                    let _ = to.send(self.link(&link).map(begin));
                }
                Ok(Mail::Recordings { to }) => {
                    let now = clock::now();
                    let links = self.ports.iter().flat_map(|port| [&port.egress, &port.ingress]).flatten();
                    let told = |link: &Link| Some((link.plan().name.clone(), link.recording(now)?));
                    let _ = to.send(links.filter_map(told).collect());
                }
                Ok(Mail::TakeRecording { link, to }) => {
                    let _ = to.send(self.link(&link).and_then(Link::take_recording));
                }
                Ok(Mail::Quiet { done }) => {
                    self.is_quiet = true;
                    let _ = done.send(());
                }
                Ok(Mail::Stop) | Err(TryRecvError::Disconnected) => return Ok(false),
                Err(TryRecvError::Empty) => return Ok(true),
            }
        }
    }

    /// A link that is here.
    fn link(&mut self, name: &str) -> Option<&mut Link> {
        let links = self.ports.iter_mut().flat_map(|port| [&mut port.egress, &mut port.ingress]).flatten();
        links.into_iter().find(|link| link.plan().name == name)
    }

    fn finish(mut self) -> Result<(), PortError> {
        self.take_handed(clock::now())?;
        self.run_links(clock::now())?;
        self.send()?;
        self.flush()?;
        self.hand_on_rows(clock::now(), true);
        Ok(())
    }

    fn hand_on_rows(&mut self, now: Time, is_last: bool) {
        let n = self.engine.rows().len();
        if n == 0 {
            return;
        }
        let since = *self.rows_since.get_or_insert(now);
        if !self.engine.rows().is_due() && now - since < ROWS_TIME_MAX && !is_last {
            return;
        }
        self.rows_since = None;
        if !self.rows.send(self.engine.rows()) {
            self.engine.note_rows_lost(n);
            self.engine.rows().clear();
        }
    }
}

/// Has a frame wait in a link, if there are buffers to spare for that.
fn hand_to(link: &mut Link, frame: Frame, pool: &mut Pool, now: Time) {
    match pool.free_small() < RESERVE {
        true => link.refuse_frame(frame, pool),
        false => link.handle_frame(frame, pool, now),
    }
}

/// Buffers for what drivers and chains have in hand, and for what waits in links.
fn pool_for<'l>(links: impl Iterator<Item = &'l LinkPlan>) -> PoolConfig {
    let plain = PoolConfig::default();
    let held = links.map(|link| link.program.packets_max().min(HELD_MAX) + on_the_way(link)).sum::<u32>();
    PoolConfig { small: plain.small + held.min(HELD_MAX * 4), ..plain }
}

/// Frames that the path of a link may have on it.
fn on_the_way(link: &LinkPlan) -> u32 {
    /// Mean bytes of a frame: acknowledgements are smaller, but each stands for two of full size.
    const FRAME_BYTES: u64 = 500;
    let Some(path) = &link.path else { return 0 };
    let of = |rate: Option<u64>, impair: &Impairments| {
        let longest_ns = match impair.longest_ns() {
            0 => return 0,
            longest_ns => u128::from(longest_ns),
        };
        let Some(rate) = rate.filter(|_| path.trace.is_none()) else { return HELD_MAX };
        let bytes = u128::from(rate) * longest_ns / 8_000_000_000;
        (bytes / u128::from(FRAME_BYTES)).clamp(64, u128::from(HELD_MAX)) as u32
    };
    let later = path.changes.iter().map(|change| of(change.rate, &change.impair));
    later.fold(of(link.rate, &path.impair), u32::max)
}

impl Port {
    /// A port with these of its queues.
    pub(super) fn new(
        config: PortConfig,
        queues: Vec<Box<dyn Device>>,
        link: Option<Arc<LinkState>>,
        gates: Option<Arc<Gates>>,
        (worker, recovery): (usize, Arc<Recovery>),
    ) -> Self {
        Self {
            config,
            queues,
            link,
            is_owner: recovery.owner() == worker,
            gates,
            recovery,
            worker,
            turn: 0,
            arriving: Taken::default(),
            leaving: Taken::default(),
            waiting: Vec::new(),
            egress: None,
            ingress: None,
            has_egress: false,
            has_ingress: false,
            on_failure: None,
            gone: None,
            is_down: false,
            look_at: Time(0),
            counted: DeviceCounters::default(),
            full: 0,
            lost: 0,
            broken: None,
        }
    }

    fn links(&self) -> Vec<LinkReport> {
        let report = |link: &Link| LinkReport { plan: link.plan().clone(), stats: link.stats() };
        [&self.egress, &self.ingress].into_iter().flatten().map(report).collect()
    }

    /// Puts frames that came in where they wait before the chains see them. False: there is no such place.
    fn hold(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool, now: Time) -> bool {
        if let Some(link) = &mut self.ingress {
            frames.drain(..).for_each(|frame| hand_to(link, frame, pool, now));
            return true;
        }
        let Some(gates) = self.gates.as_ref().filter(|_| self.has_ingress && !self.is_owner) else {
            return false;
        };
        gates.arriving.put(pool, frames);
        self.full += frames.len() as u64;
        frames.drain(..).for_each(|frame| pool.give(frame));
        true
    }

    /// What leaves goes to the owner: it has the link, or the only queues. While the device is gone, what waits stays
    /// with its worker, or the rest of its flow would be faster when the device is back.
    fn is_left_to_owner(&self) -> bool {
        !self.is_owner && (self.has_egress || self.queues.is_empty() && self.gone.is_none())
    }

    /// Sends what its link lets go, as long as the device takes it; how many frames that were.
    fn run_egress(&mut self, pool: &mut Pool, now: Time) -> Result<usize, PortError> {
        let (is_holding, is_lost) = (self.is_holding(), self.is_cut_off());
        let Some(link) = &mut self.egress else { return Ok(0) };
        link.handle_timeout(pool, now);
        if is_holding {
            return Ok(0);
        }
        let mut moved = 0;
        if is_lost {
            while moved < BATCH_MAX && link.drop_frame(pool, now) {
                moved += 1;
            }
            self.send(pool)?;
            return Ok(moved);
        }
        // What the device has no room for waits in the link, where the queue can still drop it.
        while self.has_room() {
            let Some(frame) = self.egress.as_mut().and_then(|link| link.poll_frame(pool, now)) else { break };
            self.waiting.push(frame);
            moved += 1;
        }
        if moved > 0 {
            self.send(pool)?;
        }
        Ok(moved)
    }

    /// Its link may let go more. What the device has no room for is to wait in the link.
    fn has_room(&self) -> bool {
        self.waiting.len() < BATCH_MAX
    }

    /// No frame will come any more.
    fn is_at_end(&self) -> bool {
        self.broken.is_some() || self.queues.iter().all(|device| device.is_finished())
    }

    /// It is asked for frames now. A capture loses nothing by waiting for ports that are full.
    fn is_read(&self, has_waiting: bool) -> bool {
        !(self.gone.is_some() || self.is_at_end() || has_waiting && self.config.driver.is_file())
    }

    /// Sends what waits; how many frames left. Of the queues that the worker has, one is enough to leave by.
    fn send(&mut self, pool: &mut Pool) -> Result<usize, PortError> {
        if self.is_left_to_owner()
            && let Some(gates) = &self.gates
        {
            return Ok(gates.leaving.put(pool, &mut self.waiting));
        }
        if self.is_cut_off() {
            if !self.is_holding() {
                self.lost += self.waiting.len() as u64;
                self.waiting.drain(..).for_each(|frame| pool.give(frame));
            }
            return Ok(0);
        }
        let mut moved = 0;
        while !self.waiting.is_empty() {
            match self.queues[0].send(pool, &mut self.waiting) {
                Ok(0) => break,
                Ok(n) => moved += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {
                    self.meet_down(pool);
                    break;
                }
                Err(error) => {
                    self.fail(error, clock::now())?;
                    return Ok(moved);
                }
            }
        }
        // A file is written in pieces; an interface has its packets at once.
        if moved > 0
            && !self.config.driver.is_file()
            && let Err(error) = self.queues[0].flush()
        {
            self.fail(error, clock::now())?;
        }
        Ok(moved)
    }

    /// Drops those that came last, if too many wait.
    fn bound(&mut self, pool: &mut Pool) {
        if self.waiting.len() > WAITING_MAX {
            self.full += (self.waiting.len() - WAITING_MAX) as u64;
            self.waiting.drain(WAITING_MAX..).for_each(|frame| pool.give(frame));
        }
    }

    /// A device has failed. Where a link says what is to be done then, the port is without it from now on.
    fn fail(&mut self, error: io::Error, now: Time) -> Result<(), PortError> {
        if self.on_failure.is_none() {
            return Err(self.failed(error));
        }
        let turn = self.recovery.lose(error.to_string());
        self.close(turn, now);
        Ok(())
    }

    /// The device is down. Where no link says what is to be done then, nothing leaves by it, as nothing would from the
    /// host.
    fn meet_down(&mut self, pool: &mut Pool) {
        if self.on_failure.is_some() {
            // It may be up again: a socket tells once that it was not.
            (self.is_down, self.look_at) = (true, Time(0));
            return;
        }
        self.counted.refused_out += self.waiting.len() as u64;
        self.waiting.drain(..).for_each(|frame| pool.give(frame));
    }

    /// Asks the device whether it is up, where a link says what is to be done while it is not.
    fn look_whether_up(&mut self, now: Time) {
        let is_asked = self.on_failure.is_some() && self.gone.is_none() && self.look_at <= now;
        let Some(link) = self.link.as_ref().filter(|_| is_asked) else { return };
        self.is_down = !link.is_up();
        self.look_at = now + if self.is_down { LINKS_EVERY } else { LOOK_EVERY };
    }

    /// Nothing can leave, and a link says what is to be done meanwhile.
    fn is_cut_off(&self) -> bool {
        self.gone.is_some() || self.is_down
    }

    /// What is to leave waits for the device to come back, or up.
    fn is_holding(&self) -> bool {
        self.is_cut_off() && self.on_failure == Some(OnFailure::Hold)
    }

    /// Follows the other workers when a device goes or comes back; the owner looks whether it is back.
    fn mend(&mut self, nth: u16, now: Time) {
        self.look_whether_up(now);
        let turn = self.recovery.turn();
        if turn != self.turn {
            if is_there(turn) {
                self.queues = self.recovery.take(self.worker);
                // It may have another MTU, for which there are other buffers.
                if let (Some(link), Some(first)) = (&self.link, self.queues.first()) {
                    link.set_mtu_max(Some(&**first));
                }
                (self.gone, self.turn) = (None, turn);
            } else {
                self.close(turn, now);
            }
            return;
        }
        let Some(gone) = self.gone.as_mut().filter(|gone| self.is_owner && gone.look_at <= now) else {
            return;
        };
        gone.look_at = now + LOOK_EVERY;
        // While it cannot be opened it is as good as gone.
        let _ = self.recovery.open(&self.config, nth);
    }

    /// Closes what it has of a device that is gone.
    fn close(&mut self, turn: u32, now: Time) {
        // What the device has counted stays counted when another takes its place.
        for mut device in self.queues.drain(..) {
            self.counted.add(&device.counters());
        }
        self.gone = Some(Gone { why: self.recovery.close(), look_at: now + LOOK_EVERY });
        self.is_down = false;
        self.turn = turn;
    }

    fn failed(&self, error: io::Error) -> PortError {
        PortError { port: self.config.name.clone(), device: self.config.device.clone(), error }
    }

    fn report(&mut self) -> PortReport {
        let mut device = self.counted;
        self.queues.iter_mut().for_each(|queue| device.add(&queue.counters()));
        PortReport {
            config: self.config.clone(),
            device,
            full: self.full,
            lost: self.lost,
            gone: self.gone.as_ref().map(|gone| (gone.why.clone(), self.on_failure)),
            down: self.on_failure.filter(|_| self.is_down),
            ended: (self.is_owner && self.gone.is_none() && self.is_at_end()).then(|| self.broken.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::file::Pace;
    use crate::packet::memory::Memory;
    use crate::packet::port::{Driver, Made};
    use crate::packet::{Link, Place};
    use crate::writer::Writer;
    use std::sync::mpsc::channel;
    use weft_engine::packet::link::Link as QueueLink;
    use weft_engine::queue::ProgramText;
    use weft_ir::queue::run::Interpreted;
    use weft_ir::queue::{Handlers, Level, Limit, Order, Overflow, PacketOrder, Partitions, QueueProgram};

    fn port(driver: Driver, device: Memory) -> Port {
        let (name, device_name) = ("p".to_owned(), "d".to_owned());
        let config = PortConfig {
            name,
            driver,
            device: device_name,
            namespace: None,
            queues: None,
            made: Made::default(),
        };
        let recovery = Arc::new(Recovery::new(Vec::new(), 0));
        Port::new(config, vec![Box::new(device)], None, None, (0, recovery))
    }

    /// One that has these ports, and what its rows go to.
    fn worker(ports: Vec<Port>) -> (Writer, Worker) {
        let (writer, mut senders) = Writer::start(1, None).expect("a thread");
        let (waker, wake) = UnixStream::pair().expect("two sockets");
        let ears = Ears { mail: channel().1, wake, bell: Arc::new(Bell::new(waker)) };
        let worker = Worker {
            engine: PacketEngine::new(Time(0), PacketConfig::default(), Arc::default()),
            pool: Pool::new(PoolConfig::default()),
            ports,
            ears,
            is_quiet: false,
            rows: senders.pop().expect("there is one"),
            rows_since: None,
            spin: Spin::new(Interval::ZERO, 1, 1),
            coalesce: Interval::ZERO,
            batch: Vec::new(),
            look_at_links: None,
            polls: Vec::new(),
        };
        (writer, worker)
    }

    /// A link of a bit a nanosecond, whose queue is a line without a limit.
    fn fast_link() -> QueueLink {
        let level = Level {
            name: "fifo".to_owned(),
            partitions: Partitions::One,
            vars: Vec::new(),
            partition_vars: Vec::new(),
            order: Order { bits: Some(0), by_least_packet: false },
            packets: PacketOrder::Arrival,
            limit: Limit { packets: None, bytes: None, overflow: Overflow::Arriving, batch: 1, line: 1 },
            handlers: Handlers::default(),
        };
        let program = QueueProgram { name: "fifo".to_owned(), levels: vec![level], fields: Vec::new() };
        let program = Arc::new(program);
        let plan = LinkPlan {
            name: "wan".to_owned(),
            port: 0,
            ingress: false,
            is_ip: false,
            rate: Some(1_000_000_000),
            path: None,
            on_failure: None,
            is_recorded: false,
            headers: None,
            code: Arc::new(Interpreted::new(Arc::clone(&program))),
            program,
            written: ProgramText::default(),
        };
        QueueLink::new(plan, Time(0), 1)
    }

    /// A core would be burnt while a port has no room for what a capture gives.
    #[test]
    fn a_capture_is_not_looked_at_while_a_port_is_full() {
        let capture = Memory::source(Link::Ethernet, Place::default(), [&[0; 60][..]], 9);
        let (_writer, mut worker) = worker(vec![
            port(Driver::Read(Pace::Full), capture),
            port(Driver::Tap, Memory::sink(Link::Ethernet)),
        ]);
        let now = Time(1_000_000_000);
        assert_eq!(worker.look_for(now), now);
        let frame = worker.pool.take_filled(&[0; 60]).expect("a buffer");
        worker.ports[1].waiting.push(frame);
        assert_eq!(worker.look_for(now), now + RETRY);
        assert_eq!(worker.receive(now).expect("nothing fails"), 0);
    }

    /// A core would be burnt while there are no buffers for what comes in.
    #[test]
    fn a_device_is_not_looked_at_while_there_are_no_buffers() {
        let device = Memory::source(Link::Ethernet, Place::default(), [&[0; 60][..]], 9);
        let (_writer, mut worker) = worker(vec![port(Driver::Tap, device)]);
        worker.pool = Pool::new(PoolConfig { small: 1, large: 0 });
        let frame = worker.pool.take_filled(&[0; 60]).expect("a buffer");
        let now = Time(1_000_000_000);
        assert_eq!(worker.look_for(now), now);
        assert_eq!(worker.receive(now).expect("nothing fails"), 0);
        assert_eq!(worker.look_for(now), now + RETRY);
        worker.pool.give(frame);
    }

    /// A long queue would take all buffers, and no port of the worker would be read any more.
    #[test]
    fn a_link_leaves_buffers_to_drivers() {
        let mut port = port(Driver::Tap, Memory::sink(Link::Ethernet));
        let mut pool = Pool::new(PoolConfig { small: RESERVE as u32 + 100, large: 0 });
        port.ingress = Some(fast_link());
        for _ in 0..200 {
            let mut frames = vec![pool.take_filled(&[0; 60]).expect("a buffer")];
            assert!(port.hold(&mut frames, &mut pool, Time(0)));
        }
        assert_eq!(pool.free_small(), RESERVE);
        let counts = port.links()[0].stats.counts;
        assert_eq!((counts.queued, counts.dropped_overflow), (100, 100));
        assert!(counts.is_conserved(), "{counts:?}");
    }

    /// A core would be burnt while a port has no room for what its link would let go.
    #[test]
    fn a_link_is_not_looked_at_while_its_port_is_full() {
        let (_writer, mut worker) = worker(vec![port(Driver::Tap, Memory::sink(Link::Ethernet))]);
        let mut link = fast_link();
        for _ in 0..3 {
            let frame = worker.pool.take_filled(&[0; 60]).expect("a buffer");
            link.handle_frame(frame, &mut worker.pool, Time(0));
        }
        let first = link.poll_frame(&mut worker.pool, Time(0)).expect("the link is free");
        worker.ports[0].egress = Some(link);
        // The link has been free again for long.
        let (now, free_at) = (Time(1_000_000_000), Time(480));
        assert_eq!(worker.look_for(now), free_at);
        worker.ports[0].waiting.push(first);
        assert_eq!(worker.look_for(now), free_at);
        for _ in 1..BATCH_MAX {
            worker.ports[0].waiting.push(worker.pool.take_filled(&[0; 60]).expect("a buffer"));
        }
        assert_eq!(worker.look_for(now), now + RETRY);
    }
}
