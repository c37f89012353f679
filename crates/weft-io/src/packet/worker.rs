//! The loop of a frame worker: receive a batch from each queue, run it, send the output.
//!
//! A worker knows all ports of a node, so an element may send a frame from any port to any other. It has some queues of
//! each port, or none; then it hands outgoing frames to the worker that owns the port ([`super::handoff`]). Workers
//! share nothing else but tables. Devices are polled level-triggered: a ring that was not emptied is readable at once.

#![expect(unsafe_code, reason = "poll(2) has no safe form in the standard library")]

use super::handoff::{Doorbell, HandoffBatch, PortHandoffs};
use super::interface::LinkState;
use super::recovery::{Recovery, is_there};
use super::report::PortError;
use super::{BATCH_MAX, Device, sys};
use crate::clock;
use crate::spin::Spin;
use crate::worker::Task;
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
use weft_engine::packet::port::DeviceCounters;
use weft_engine::packet::port::PortConfig;
use weft_engine::packet::{PacketConfig, PacketEngine};
use weft_engine::recording::{Limits, Recorder, RecordingProgress};
use weft_engine::report::{LinkReport, PacketNodeStats, PortReport};
use weft_engine::rules::Swap;

/// Largest number of frames that wait for a port without room; further ones are dropped, and counted as `port_full`.
pub const WAITING_MAX: usize = 1024;
/// Largest number of buffers that are allocated for a link's frames. Limits of queues may be higher; then [`RESERVE`]
/// is the limit.
const HELD_MAX: u32 = 1 << 15;
/// Small buffers that links leave to drivers and chains. If a queue held all of them, no port could receive. A link
/// added by an update has no buffers of its own.
const RESERVE: usize = 1024;
/// A port without room is retried after this time at the latest.
const RETRY: Interval = Interval::from_millis(1);
/// How often devices are polled even without events: the removal of a device that is down causes none.
const POLL_EVERY: Interval = Interval::from_secs(1);
/// Frames in a row after which a worker sleeps to coalesce.
const BURST_MIN: usize = 8;
/// How often the carrier of ports in a group is checked: this long, frames may leave by a port that is down.
const LINKS_EVERY: Interval = Interval::from_millis(20);
/// Rows of sinks are sent after this time even if the batch is not full.
const ROWS_TIME_MAX: Interval = Interval::from_millis(20);

/// Messages to a worker.
pub(super) enum Mail {
    Apply {
        plan: Arc<PacketPlan>,
        done: Sender<Duration>,
    },
    ApplySwap {
        swap: Arc<Swap>,
        done: Sender<()>,
    },
    Task {
        task: Task,
        done: Sender<()>,
    },
    ApplyCode {
        plan: Arc<PacketPlan>,
        done: Sender<()>,
    },
    Stats {
        to: Sender<PacketNodeStats>,
    },
    /// Start recording the operations on a link's queue. The worker with the link answers whether the recording is new.
    Record {
        link: String,
        limits: Limits,
        to: Sender<Option<bool>>,
    },
    /// Report the progress of the recordings, by link.
    Recordings {
        to: Sender<Vec<(String, RecordingProgress)>>,
    },
    /// End the recording of a link, and send it.
    TakeRecording {
        link: String,
        to: Sender<Option<Recorder>>,
    },
    /// Receive no more frames from devices.
    Quiet {
        done: Sender<()>,
    },
    Stop,
}

/// Configuration of a worker.
pub(super) struct WorkerConfig {
    pub(super) engine: PacketConfig,
    pub(super) spin: Spin,
    /// How long it sleeps after a burst.
    pub(super) coalesce: Interval,
}

/// The receiving ends of a worker's channels.
pub(super) struct WorkerChannels {
    pub(super) mail: Receiver<Mail>,
    pub(super) wake: UnixStream,
    pub(super) doorbell: Arc<Doorbell>,
}

/// A worker and what it owns.
pub(super) struct Worker {
    engine: PacketEngine,
    pool: Pool,
    ports: Vec<Port>,
    channels: WorkerChannels,
    /// The worker is about to stop and receives nothing from devices.
    is_quiet: bool,
    rows: RowSender,
    rows_since: Option<Time>,
    spin: Spin,
    coalesce: Interval,
    /// Frames in transit; empty between two batches.
    batch: Vec<Frame>,
    /// When the carriers are checked next; None if no port is in a group.
    next_link_poll: Option<Time>,
    polls: Vec<libc::pollfd>,
}

/// A device that is gone.
struct LostDevice {
    why: String,
    /// When the owner tries to open it again.
    retry_at: Time,
}

/// A port, as one worker sees it.
pub(super) struct Port {
    config: PortConfig,
    /// This worker's queues of the port.
    queues: Vec<Box<dyn Device>>,
    /// The device's interface; None for a file.
    link: Option<Arc<LinkState>>,
    /// This worker owns the port: its links, and the sending for workers without a queue.
    is_owner: bool,
    /// The recovery from a lost device, this worker's index, and its position in the recovery.
    recovery: Arc<Recovery>,
    worker: usize,
    turn: u32,
    /// Queues to the owner; None if there is only one worker.
    handoffs: Option<Arc<PortHandoffs>>,
    /// Frames that the owner has taken from them.
    arriving: HandoffBatch,
    leaving: HandoffBatch,
    /// What to do while the device is lost, as declared by its links.
    on_failure: Option<OnFailure>,
    gone: Option<LostDevice>,
    /// The device exists, but is down or without a carrier; and when the carrier is checked next, if a link declares
    /// what to do meanwhile.
    is_down: bool,
    next_carrier_check: Time,
    /// Counters of lost devices, and of frames dropped because the device was down.
    counted: DeviceCounters,
    /// Frames dropped because there was no device.
    lost: u64,
    /// Frames that the device, or the owner, had no room for.
    waiting: Vec<Frame>,
    /// The owner's links: for frames before they leave, and before the chains.
    egress: Option<Link>,
    ingress: Option<Link>,
    /// The port has such links, here or at its owner.
    has_egress: bool,
    has_ingress: bool,
    full: u64,
    /// Why a capture ended before its end.
    broken: Option<String>,
}

impl Worker {
    /// Creates a worker that runs `plan`. It allocates its own pool, so that the memory is on its NUMA node.
    ///
    /// # Errors
    /// A device has failed.
    pub(super) fn new(
        config: WorkerConfig,
        plan: Arc<PacketPlan>,
        ports: Vec<Port>,
        channels: WorkerChannels,
        rows: RowSender,
    ) -> Result<Self, PortError> {
        let links = plan.links.clone();
        let owned = links.iter().filter(|link| ports[usize::from(link.port)].is_owner);
        let mut worker = Self {
            pool: Pool::new(pool_for(owned)),
            engine: PacketEngine::new(clock::now(), config.engine, plan),
            ports,
            channels,
            is_quiet: false,
            rows,
            rows_since: None,
            spin: config.spin,
            coalesce: config.coalesce,
            batch: Vec::with_capacity(BATCH_MAX),
            next_link_poll: None,
            polls: Vec::new(),
        };
        worker.poll_links(clock::now());
        worker.apply_links(&links).map(|()| worker)
    }

    /// Runs until a request to stop.
    ///
    /// # Errors
    /// A device has failed.
    pub(super) fn run(mut self) -> Result<(), PortError> {
        let (mut idle_since, mut looks_since) = (None, None);
        let mut burst = 0;
        // Otherwise the kernel adds 50 us to each wait.
        sys::set_timer_slack(1);
        loop {
            let now = clock::now();
            let mut moved = self.receive(now)?;
            if self.engine.poll_timeout().is_some_and(|at| at <= now) {
                self.engine.handle_timeout(now, &mut self.pool, None);
                moved += self.send_outputs()?;
            }
            moved += self.receive_handoffs(now)?;
            if self.next_link_poll.is_some_and(|at| at <= now) {
                self.poll_links(now);
            }
            moved += self.run_links(now)?;
            moved += self.send()?;
            for (nth, port) in self.ports.iter_mut().enumerate() {
                port.recover(nth as u16, now);
            }
            self.send_rows(now, false);
            if !self.read_mail()? {
                return self.send_remaining();
            }
            if moved > 0 {
                (idle_since, looks_since) = (None, None);
                burst += moved;
                continue;
            }
            // The idle time counts from here, whether the worker sleeps or polls.
            let idle = *idle_since.get_or_insert(now);
            if mem::take(&mut burst) >= BURST_MIN && self.coalesce > Interval::ZERO {
                self.flush()?;
                self.sleep_to_coalesce(now);
                continue;
            }
            if now - *looks_since.get_or_insert(now) < self.spin.window(0) {
                std::thread::yield_now();
                continue;
            }
            self.flush()?;
            self.sleep();
            self.spin.record_sleep(clock::now() - idle);
            (idle_since, looks_since) = (None, None);
        }
    }

    /// Receives a batch from each queue and runs it; returns the number of frames.
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
            // Losing the device removes its queues.
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
                    if from.enqueue_on_ingress(&mut self.batch, &mut self.pool, now) {
                        continue;
                    }
                    self.engine.handle_batch(now, port as u16, &mut self.batch, &mut self.pool, None);
                    self.send_outputs()?;
                }
            }
        }
        Ok(moved)
    }

    /// Sends the engine's output; returns the number of frames.
    fn send_outputs(&mut self) -> Result<usize, PortError> {
        let mut moved = 0;
        while let Some(to) = self.engine.poll_output(&mut self.batch) {
            let port = &mut self.ports[usize::from(to)];
            moved += self.batch.len();
            if let Some(link) = &mut port.egress {
                let now = clock::now();
                self.batch.drain(..).for_each(|frame| enqueue_on(link, frame, &mut self.pool, now));
                port.run_egress(&mut self.pool, now)?;
                continue;
            }
            port.waiting.append(&mut self.batch);
            port.send(&mut self.pool)?;
            port.drop_excess(&mut self.pool);
        }
        Ok(moved)
    }

    /// Processes frames from other workers; returns their number. Only the owner of a port does that.
    fn receive_handoffs(&mut self, now: Time) -> Result<usize, PortError> {
        let mut moved = 0;
        for port in 0..self.ports.len() {
            let at = &mut self.ports[port];
            let Some(handoffs) = at.handoffs.clone().filter(|_| at.is_owner) else { continue };
            handoffs.leaving.take(&mut at.leaving);
            while at.egress.is_some() || at.waiting.len() < BATCH_MAX {
                let Some(frame) = at.leaving.next(&mut self.pool) else { break };
                moved += 1;
                match &mut at.egress {
                    Some(link) => enqueue_on(link, frame, &mut self.pool, now),
                    None => at.waiting.push(frame),
                }
            }
            handoffs.arriving.take(&mut at.arriving);
            while self.batch.len() < BATCH_MAX {
                let Some(frame) = at.arriving.next(&mut self.pool) else { break };
                self.batch.push(frame);
            }
            moved += self.batch.len();
            // The link may have been removed in the meantime.
            if !self.batch.is_empty() && !at.enqueue_on_ingress(&mut self.batch, &mut self.pool, now) {
                self.engine.handle_batch(now, port as u16, &mut self.batch, &mut self.pool, None);
                self.send_outputs()?;
            }
        }
        Ok(moved)
    }

    /// Releases frames that links let go now; returns their number.
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
                self.send_outputs()?;
            }
        }
        Ok(moved)
    }

    /// Applies new links to the ports: frames in a replaced link stay; frames in a removed one continue as if there had
    /// been none.
    fn apply_links(&mut self, plans: &[LinkPlan]) -> Result<(), PortError> {
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
                self.send_outputs()?;
            }
        }
        Ok(())
    }

    /// Reports to the engine which ports of groups have a carrier, and schedules the next check.
    fn poll_links(&mut self, now: Time) {
        let plan = Arc::clone(self.engine.plan());
        for member in plan.groups.iter().flat_map(|group| &group.members) {
            let link = &self.ports[usize::from(member.port)].link;
            self.engine.set_port_up(member.port, link.as_ref().is_none_or(|link| link.is_up()));
        }
        self.next_link_poll = (!plan.groups.is_empty()).then(|| now + LINKS_EVERY);
    }

    /// Retries frames that ports had no room for; returns the number sent.
    fn send(&mut self) -> Result<usize, PortError> {
        let mut moved = 0;
        for port in &mut self.ports {
            if !port.waiting.is_empty() {
                moved += port.send(&mut self.pool)?;
            }
        }
        Ok(moved)
    }

    /// Sends what devices have buffered.
    fn flush(&mut self) -> Result<(), PortError> {
        for port in self.ports.iter_mut().filter(|port| port.gone.is_none()) {
            if let Err(error) = port.queues.iter_mut().try_for_each(|queue| queue.flush()) {
                port.fail(error, clock::now())?;
            }
        }
        Ok(())
    }

    /// Some port has no room for its outgoing frames.
    fn has_waiting(&self) -> bool {
        self.ports.iter().any(|port| !port.waiting.is_empty())
    }

    /// Sleeps for the coalescing interval, or until the next timeout if that is sooner, so that more frames arrive
    /// together.
    fn sleep_to_coalesce(&mut self, now: Time) {
        let until = self.wakeup_time(now).min(now + self.coalesce);
        if let Ok(nanos) = u64::try_from((until - clock::now()).0) {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }

    /// Waits until a device is readable, mail has arrived, or a timeout is due.
    fn sleep(&mut self) {
        let now = clock::now();
        let until = self.wakeup_time(now);
        self.channels.doorbell.set_asleep();
        // A handoff after this check rings the doorbell.
        let has_handoffs = |port: &Port| {
            port.is_owner && port.handoffs.as_ref().is_some_and(|handoffs| handoffs.has_frames())
        };
        let until = if self.ports.iter().any(has_handoffs) { now } else { until };
        let left = (until - now).0.clamp(0, POLL_EVERY.0);
        let timeout = libc::timespec {
            tv_sec: (left / 1_000_000_000) as libc::time_t,
            tv_nsec: (left % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the list is writable for its length, the time is readable, and no signal mask is passed. An error is
        // a signal, after which everything is polled as after an event.
        let n: c_int = unsafe {
            libc::ppoll(
                self.polls.as_mut_ptr(),
                self.polls.len() as libc::nfds_t,
                &timeout,
                core::ptr::null(),
            )
        };
        if n > 0 && self.polls[0].revents != 0 {
            // The bytes have no meaning beyond the wake-up.
            let _ = self.channels.wake.read(&mut [0; 64]);
        }
        self.channels.doorbell.set_awake();
    }

    /// Fills `polls` with the descriptors that can wake the worker; returns the time at which it must wake even
    /// without an event.
    fn wakeup_time(&mut self, now: Time) -> Time {
        self.polls.clear();
        self.polls.push(libc::pollfd {
            fd: self.channels.wake.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let has_waiting = self.has_waiting();
        let mut until = now + POLL_EVERY;
        let mut no_later = |at: Time| until = until.min(at);
        if let Some(at) = self.engine.poll_timeout() {
            no_later(at);
        }
        if let Some(at) = self.next_link_poll {
            no_later(at);
        }
        if let Some(since) = self.rows_since {
            no_later(since + ROWS_TIME_MAX);
        }
        for port in &self.ports {
            let is_tried = !port.waiting.is_empty() && !port.is_cut_off();
            if port.is_cut_off() && port.gone.is_none() {
                no_later(port.next_carrier_check);
            }
            if is_tried || port.arriving.has_frames() || port.leaving.has_frames() {
                no_later(now + RETRY);
            }
            // Frames held because there is no device have no timeout.
            let egress = port.egress.as_ref().filter(|_| !port.is_holding()).and_then(Link::poll_timeout);
            // A link waits while its last frame has no room, even if it is late.
            let soonest = if port.has_room() { Time(0) } else { now + RETRY };
            egress.map(|at| at.max(soonest)).into_iter().for_each(&mut no_later);
            port.ingress.as_ref().and_then(Link::poll_timeout).into_iter().for_each(&mut no_later);
            for device in port.queues.iter().filter(|_| port.is_read(has_waiting)) {
                match device.fd() {
                    // Freed buffers cause no event.
                    _ if device.is_starved() => no_later(now + RETRY),
                    Some(fd) => self.polls.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 }),
                    None => no_later(device.poll_timeout().unwrap_or(now)),
                }
            }
        }
        until
    }

    /// Handles all mail. Returns false on a request to stop.
    fn read_mail(&mut self) -> Result<bool, PortError> {
        loop {
            match self.channels.mail.try_recv() {
                Ok(Mail::Apply { plan, done }) => {
                    let begun = Instant::now();
                    self.apply_links(&plan.links)?;
                    self.engine.apply(clock::now(), plan, &mut self.pool);
                    self.poll_links(clock::now());
                    let _ = done.send(begun.elapsed());
                }
                Ok(Mail::ApplySwap { swap, done }) => {
                    self.engine.apply_swap(&swap);
                    // The answer means that this worker has released it.
                    drop(swap);
                    let _ = done.send(());
                }
                Ok(Mail::Task { task, done }) => {
                    task(self.engine.worker());
                    drop(task);
                    let _ = done.send(());
                }
                Ok(Mail::ApplyCode { plan, done }) => {
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

    /// The link with this name, if this worker has it.
    fn link(&mut self, name: &str) -> Option<&mut Link> {
        let links = self.ports.iter_mut().flat_map(|port| [&mut port.egress, &mut port.ingress]).flatten();
        links.into_iter().find(|link| link.plan().name == name)
    }

    /// Sends what is left before the worker stops: handed-off frames, frames in links, buffered output and sink rows.
    fn send_remaining(mut self) -> Result<(), PortError> {
        self.receive_handoffs(clock::now())?;
        self.run_links(clock::now())?;
        self.send()?;
        self.flush()?;
        self.send_rows(clock::now(), true);
        Ok(())
    }

    /// Sends the sink rows to the writer, if they are due or `is_last`. Counts them as lost if the writer is behind.
    fn send_rows(&mut self, now: Time, is_last: bool) {
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

/// Enqueues a frame on a link, if enough buffers remain.
fn enqueue_on(link: &mut Link, frame: Frame, pool: &mut Pool, now: Time) {
    match pool.free_small() < RESERVE {
        true => link.refuse_frame(frame, pool),
        false => link.handle_frame(frame, pool, now),
    }
}

/// Computes the number of buffers for drivers and chains, and for frames in links.
fn pool_for<'l>(links: impl Iterator<Item = &'l LinkPlan>) -> PoolConfig {
    let plain = PoolConfig::default();
    let held = links.map(|link| link.program.packets_max().min(HELD_MAX) + in_flight_max(link)).sum::<u32>();
    PoolConfig { small: plain.small + held.min(HELD_MAX * 4), ..plain }
}

/// Returns the largest number of frames on the path of a link.
fn in_flight_max(link: &LinkPlan) -> u32 {
    /// Mean bytes of a frame: acknowledgements are smaller, but each stands for two full-size frames.
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
    /// Creates a worker's view of a port, with these of its queues.
    pub(super) fn new(
        config: PortConfig,
        queues: Vec<Box<dyn Device>>,
        link: Option<Arc<LinkState>>,
        handoffs: Option<Arc<PortHandoffs>>,
        (worker, recovery): (usize, Arc<Recovery>),
    ) -> Self {
        Self {
            config,
            queues,
            link,
            is_owner: recovery.owner() == worker,
            handoffs,
            recovery,
            worker,
            turn: 0,
            arriving: HandoffBatch::default(),
            leaving: HandoffBatch::default(),
            waiting: Vec::new(),
            egress: None,
            ingress: None,
            has_egress: false,
            has_ingress: false,
            on_failure: None,
            gone: None,
            is_down: false,
            next_carrier_check: Time(0),
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

    /// Enqueues received frames on the ingress link, or hands them to its owner. Returns false if there is none.
    fn enqueue_on_ingress(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool, now: Time) -> bool {
        if let Some(link) = &mut self.ingress {
            frames.drain(..).for_each(|frame| enqueue_on(link, frame, pool, now));
            return true;
        }
        let Some(handoffs) = self.handoffs.as_ref().filter(|_| self.has_ingress && !self.is_owner) else {
            return false;
        };
        handoffs.arriving.put(pool, frames);
        self.full += frames.len() as u64;
        frames.drain(..).for_each(|frame| pool.give(frame));
        true
    }

    /// Outgoing frames go to the owner: it has the link, or the only queues. While the device is gone, frames stay with
    /// their worker; otherwise the rest of their flow would overtake them when the device is back.
    fn sends_by_owner(&self) -> bool {
        !self.is_owner && (self.has_egress || self.queues.is_empty() && self.gone.is_none())
    }

    /// Sends frames that the link releases, as long as the device has room; returns their number.
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
        // Frames that the device has no room for wait in the link, where the queue can still drop them.
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

    /// The link may release more frames.
    fn has_room(&self) -> bool {
        self.waiting.len() < BATCH_MAX
    }

    /// No further frame will arrive.
    fn is_at_end(&self) -> bool {
        self.broken.is_some() || self.queues.iter().all(|device| device.is_finished())
    }

    /// The port is read now. A capture loses nothing by waiting for full ports.
    fn is_read(&self, has_waiting: bool) -> bool {
        !(self.gone.is_some() || self.is_at_end() || has_waiting && self.config.driver.is_file())
    }

    /// Sends waiting frames; returns their number. One of the worker's queues is enough to send by.
    fn send(&mut self, pool: &mut Pool) -> Result<usize, PortError> {
        if self.sends_by_owner()
            && let Some(handoffs) = &self.handoffs
        {
            return Ok(handoffs.leaving.put(pool, &mut self.waiting));
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
                    self.drop_or_hold(pool);
                    break;
                }
                Err(error) => {
                    self.fail(error, clock::now())?;
                    return Ok(moved);
                }
            }
        }
        // A file is written in pieces; an interface gets its packets at once.
        if moved > 0
            && !self.config.driver.is_file()
            && let Err(error) = self.queues[0].flush()
        {
            self.fail(error, clock::now())?;
        }
        Ok(moved)
    }

    /// Drops the newest frames if too many wait.
    fn drop_excess(&mut self, pool: &mut Pool) {
        if self.waiting.len() > WAITING_MAX {
            self.full += (self.waiting.len() - WAITING_MAX) as u64;
            self.waiting.drain(WAITING_MAX..).for_each(|frame| pool.give(frame));
        }
    }

    /// Handles a device error. If a link declares what to do, the port goes on without the device.
    fn fail(&mut self, error: io::Error, now: Time) -> Result<(), PortError> {
        if self.on_failure.is_none() {
            return Err(self.failed(error));
        }
        let turn = self.recovery.report_lost(error.to_string());
        self.close(turn, now);
        Ok(())
    }

    /// Handles a device that is down: drops the waiting frames, as the host would, unless a link declares what to do.
    fn drop_or_hold(&mut self, pool: &mut Pool) {
        if self.on_failure.is_some() {
            // It may be up again: a socket reports once that it was down.
            (self.is_down, self.next_carrier_check) = (true, Time(0));
            return;
        }
        self.counted.refused_out += self.waiting.len() as u64;
        self.waiting.drain(..).for_each(|frame| pool.give(frame));
    }

    /// Checks the carrier, if a link declares what to do without one.
    fn check_carrier(&mut self, now: Time) {
        let is_asked = self.on_failure.is_some() && self.gone.is_none() && self.next_carrier_check <= now;
        let Some(link) = self.link.as_ref().filter(|_| is_asked) else { return };
        self.is_down = !link.is_up();
        self.next_carrier_check = now + if self.is_down { LINKS_EVERY } else { POLL_EVERY };
    }

    /// Nothing can be sent, and a link declares what to do meanwhile.
    fn is_cut_off(&self) -> bool {
        self.gone.is_some() || self.is_down
    }

    /// Outgoing frames wait until the device is back or up.
    fn is_holding(&self) -> bool {
        self.is_cut_off() && self.on_failure == Some(OnFailure::Hold)
    }

    /// Follows the other workers of a port when its device is lost or recovered. The port's owner tries to open it
    /// again.
    fn recover(&mut self, nth: u16, now: Time) {
        self.check_carrier(now);
        let turn = self.recovery.turn();
        if turn != self.turn {
            if is_there(turn) {
                self.queues = self.recovery.take_queues(self.worker);
                // The new device may have another MTU, and other buffers.
                if let (Some(link), Some(first)) = (&self.link, self.queues.first()) {
                    link.set_mtu_max(Some(&**first));
                }
                (self.gone, self.turn) = (None, turn);
            } else {
                self.close(turn, now);
            }
            return;
        }
        let Some(gone) = self.gone.as_mut().filter(|gone| self.is_owner && gone.retry_at <= now) else {
            return;
        };
        gone.retry_at = now + POLL_EVERY;
        // A device that cannot be opened still counts as gone.
        let _ = self.recovery.open(&self.config, nth);
    }

    /// Closes this worker's queues of a lost device, and keeps their counters.
    fn close(&mut self, turn: u32, now: Time) {
        // Keep the counters of the lost device.
        for mut device in self.queues.drain(..) {
            self.counted.add(&device.counters());
        }
        self.gone = Some(LostDevice { why: self.recovery.close(), retry_at: now + POLL_EVERY });
        self.is_down = false;
        self.turn = turn;
    }

    fn failed(&self, error: io::Error) -> PortError {
        PortError { port: self.config.name.clone(), device: self.config.device.clone(), error }
    }

    /// Returns the counters and the state of the port.
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
    use crate::packet::memory::Memory;
    use crate::packet::{Link, QueueId};
    use crate::writer::Writer;
    use std::sync::mpsc::channel;
    use weft_engine::packet::link::Link as QueueLink;
    use weft_engine::packet::port::Pace;
    use weft_engine::packet::port::{DeviceSettings, Driver};
    use weft_engine::queue::ProgramText;
    use weft_ir::queue::generate;
    use weft_ir::queue::run::Interpreted;

    fn port(driver: Driver, device: Memory) -> Port {
        let (name, device_name) = ("p".to_owned(), "d".to_owned());
        let config = PortConfig {
            name,
            driver,
            device: device_name,
            namespace: None,
            queues: None,
            made: DeviceSettings::default(),
        };
        let recovery = Arc::new(Recovery::new(Vec::new(), 0));
        Port::new(config, vec![Box::new(device)], None, None, (0, recovery))
    }

    /// A worker with these ports, and the writer of its rows.
    fn worker(ports: Vec<Port>) -> (Writer, Worker) {
        let (writer, mut senders) = Writer::start(1, None).expect("the writer starts");
        let (waker, wake) = UnixStream::pair().expect("a socket pair can be opened");
        let channels = WorkerChannels { mail: channel().1, wake, doorbell: Arc::new(Doorbell::new(waker)) };
        let worker = Worker {
            engine: PacketEngine::new(Time(0), PacketConfig::default(), Arc::default()),
            pool: Pool::new(PoolConfig::default()),
            ports,
            channels,
            is_quiet: false,
            rows: senders.pop().expect("there is a sender"),
            rows_since: None,
            spin: Spin::new(Interval::ZERO, 1, 1),
            coalesce: Interval::ZERO,
            batch: Vec::new(),
            next_link_poll: None,
            polls: Vec::new(),
        };
        (writer, worker)
    }

    /// A link of one bit per nanosecond, with an unlimited FIFO.
    fn fast_link() -> QueueLink {
        let program = Arc::new(generate::fifo(None));
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

    /// A worker would spin while a port has no room for packets of a capture.
    #[test]
    fn full_port_stops_capture_polling() {
        let capture = Memory::source(Link::Ethernet, QueueId::default(), [&[0; 60][..]], 9);
        let (_writer, mut worker) = worker(vec![
            port(Driver::Read(Pace::Full), capture),
            port(Driver::Tap, Memory::sink(Link::Ethernet)),
        ]);
        let now = Time(1_000_000_000);
        assert_eq!(worker.wakeup_time(now), now);
        let frame = worker.pool.take_filled(&[0; 60]).expect("the pool has a buffer");
        worker.ports[1].waiting.push(frame);
        assert_eq!(worker.wakeup_time(now), now + RETRY);
        assert_eq!(worker.receive(now).expect("all ports work"), 0);
    }

    /// A worker would spin while there are no buffers for packets that arrive.
    #[test]
    fn no_buffers_stop_device_polling() {
        let device = Memory::source(Link::Ethernet, QueueId::default(), [&[0; 60][..]], 9);
        let (_writer, mut worker) = worker(vec![port(Driver::Tap, device)]);
        worker.pool = Pool::new(PoolConfig { small: 1, large: 0 });
        let frame = worker.pool.take_filled(&[0; 60]).expect("the pool has a buffer");
        let now = Time(1_000_000_000);
        assert_eq!(worker.wakeup_time(now), now);
        assert_eq!(worker.receive(now).expect("all ports work"), 0);
        assert_eq!(worker.wakeup_time(now), now + RETRY);
        worker.pool.give(frame);
    }

    /// A long queue would use all buffers, and no port of the worker could receive.
    #[test]
    fn link_leaves_buffers_to_drivers() {
        let mut port = port(Driver::Tap, Memory::sink(Link::Ethernet));
        let mut pool = Pool::new(PoolConfig { small: RESERVE as u32 + 100, large: 0 });
        port.ingress = Some(fast_link());
        for _ in 0..200 {
            let mut frames = vec![pool.take_filled(&[0; 60]).expect("the pool has a buffer")];
            assert!(port.enqueue_on_ingress(&mut frames, &mut pool, Time(0)));
        }
        assert_eq!(pool.free_small(), RESERVE);
        let counts = port.links()[0].stats.counts;
        assert_eq!((counts.queued, counts.dropped_overflow), (100, 100));
        assert!(counts.is_conserved(), "{counts:?}");
    }

    /// A worker would spin while a port has no room for frames that its link releases.
    #[test]
    fn full_port_stops_link_polling() {
        let (_writer, mut worker) = worker(vec![port(Driver::Tap, Memory::sink(Link::Ethernet))]);
        let mut link = fast_link();
        for _ in 0..3 {
            let frame = worker.pool.take_filled(&[0; 60]).expect("the pool has a buffer");
            link.handle_frame(frame, &mut worker.pool, Time(0));
        }
        let first = link.poll_frame(&mut worker.pool, Time(0)).expect("the link is free");
        worker.ports[0].egress = Some(link);
        // The link has been free for a long time.
        let (now, free_at) = (Time(1_000_000_000), Time(480));
        assert_eq!(worker.wakeup_time(now), free_at);
        worker.ports[0].waiting.push(first);
        assert_eq!(worker.wakeup_time(now), free_at);
        for _ in 1..BATCH_MAX {
            worker.ports[0].waiting.push(worker.pool.take_filled(&[0; 60]).expect("the pool has a buffer"));
        }
        assert_eq!(worker.wakeup_time(now), now + RETRY);
    }
}
