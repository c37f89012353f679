//! Sends frames to ports and groups, at once or after a delay, and counts dropped frames.

use super::group::{Group, GroupPlan, GroupStats, MemberChoice};
use super::plan::{Outlet, PacketPlan};
use super::stats::{DropReason, PortStats};
use crate::timers::Timers;
use rustc_hash::FxHashMap;
use std::vec;
use weft_core::abi::{HOLD, ShortName};
use weft_core::frame::{Frame, Pool};
use weft_core::{Interval, Time};

/// The number of frames that one worker may delay; a further one is dropped.
pub const HELD_MAX: usize = 4096;
/// The port name that means all other ports of the chain.
pub const ALL_OTHERS: &str = "*";

/// The ports of a plan on the sending side.
pub(super) struct EgressPorts {
    by_name: FxHashMap<Box<[u8]>, Outlet>,
    /// The latest redirect targets: most redirected frames go to few ports.
    cached: [(ShortName, Outlet); CACHED_TARGETS],
    /// Per port: the frames to be polled.
    waiting: Vec<Vec<Frame>>,
    pub(super) ports: Vec<PortStats>,
    /// Per port: whether its link is up.
    up: Vec<bool>,
    groups: Vec<Group>,
    /// Frames whose DELAY is not over.
    held: Timers<(u16, Frame)>,
    n_held: usize,
    due: Vec<(u16, Frame)>,
    drops: [u64; DropReason::ALL.len()],
    pub(super) copies: u64,
}

/// The number of cached redirect targets.
const CACHED_TARGETS: usize = 4;

/// The target of a redirect.
#[derive(Clone, Copy)]
pub(super) enum RedirectTarget {
    By(Outlet),
    Others,
    /// The frame returns to the element.
    Hold,
    Unknown,
}

impl EgressPorts {
    /// Creates an egress without ports.
    pub(super) fn new(now: Time) -> Self {
        Self {
            by_name: FxHashMap::default(),
            cached: [(ShortName::default(), Outlet::Port(0)); CACHED_TARGETS],
            waiting: Vec::new(),
            ports: Vec::new(),
            up: Vec::new(),
            groups: Vec::new(),
            held: Timers::new(now),
            n_held: 0,
            due: Vec::new(),
            drops: [0; DropReason::ALL.len()],
            copies: 0,
        }
    }

    /// Applies the ports of a plan. Waiting frames stay with the port of the same name; frames of a port that is gone
    /// are added to `gone`.
    pub(super) fn apply(&mut self, plan: &PacketPlan, gone: &mut Vec<Frame>) {
        let place = |before: &PortStats| plan.ports.iter().position(|name| *name == before.name);
        let places: Vec<Option<usize>> = self.ports.iter().map(place).collect();
        let is_up = |name: &String| self.ports.iter().position(|port| port.name == *name);
        let up = plan.ports.iter().map(|name| is_up(name).is_none_or(|port| self.up[port])).collect();
        let counted = self.group_stats(self.ports.iter().map(|port| port.name.clone()).collect());
        let known = |name: &String| self.ports.iter().find(|port| port.name == *name).cloned();
        let new = |name: &String| PortStats { name: name.clone(), ..PortStats::default() };
        self.ports = plan.ports.iter().map(|name| known(name).unwrap_or_else(|| new(name))).collect();
        let before = core::mem::take(&mut self.waiting);
        self.waiting = plan.ports.iter().map(|_| Vec::new()).collect();
        for (place, mut frames) in places.iter().zip(before) {
            match place {
                Some(port) => self.waiting[*port] = frames,
                None => gone.append(&mut frames),
            }
        }
        let mut held = Vec::new();
        self.held.drain(&mut held);
        for (at, (port, frame)) in held {
            match places[usize::from(port)] {
                Some(port) => {
                    self.held.set(at, (port as u16, frame));
                }
                None => {
                    self.n_held -= 1;
                    gone.push(frame);
                }
            }
        }
        self.up = up;
        let group = |plan_of: &GroupPlan| {
            let before = counted.iter().find(|known| known.name == plan_of.name);
            Group::new(plan_of, &plan.ports, before, &self.up)
        };
        self.groups = plan.groups.iter().map(group).collect();
        let ports = (0..).map(Outlet::Port).zip(&plan.ports);
        let groups = (0..).map(Outlet::Group).zip(plan.groups.iter().map(|group| &group.name));
        self.by_name = ports.chain(groups).map(|(to, name)| (name.as_bytes().into(), to)).collect();
        self.cached = [(ShortName::default(), Outlet::Port(0)); CACHED_TARGETS];
    }

    /// Returns the target that a REDIRECT or MIRROR names, from the cache if possible.
    pub(super) fn target(&mut self, name: &[u8]) -> RedirectTarget {
        let short = ShortName::of(name);
        if let Some(to) = short.and_then(|short| self.cached_target(short)) {
            return RedirectTarget::By(to);
        }
        let target = self.target_of(name);
        if let (Some(short), RedirectTarget::By(to)) = (short, target) {
            self.cached.rotate_right(1);
            self.cached[0] = (short, to);
        }
        target
    }

    /// The target of a name, if it is cached.
    #[inline(always)]
    pub(super) fn cached_target(&self, name: ShortName) -> Option<Outlet> {
        self.cached.iter().find(|(of, _)| *of == name).map(|(_, to)| *to)
    }

    /// Looks up the target that a REDIRECT or MIRROR names: a port, a group, all other ports, or the hold buffer.
    fn target_of(&self, name: &[u8]) -> RedirectTarget {
        if name == ALL_OTHERS.as_bytes() {
            return RedirectTarget::Others;
        }
        if name == HOLD.as_bytes() {
            return RedirectTarget::Hold;
        }
        self.by_name.get(name).map_or(RedirectTarget::Unknown, |to| RedirectTarget::By(*to))
    }

    /// Sets whether the link of a port is up.
    pub(super) fn set_up(&mut self, port: u16, is_up: bool) {
        if core::mem::replace(&mut self.up[usize::from(port)], is_up) == is_up {
            return;
        }
        let names: Vec<String> = self.ports.iter().map(|port| port.name.clone()).collect();
        for group in self.groups.iter_mut().filter(|group| group.ports().any(|of| of == port)) {
            group.compute_table(&names, &self.up);
        }
    }

    pub(super) fn group_stats(&self, names: Vec<String>) -> Vec<GroupStats> {
        self.groups.iter().map(|group| group.stats(&names, &self.up)).collect()
    }

    /// Returns the name of the egress for observers: the group's name if the frame leaves by all of its ports. None
    /// if no port is up.
    pub(super) fn name_of(&mut self, to: Outlet, now: Time, frame: &Frame, pool: &Pool) -> Option<&str> {
        let port = |port: u16| &*self.ports[usize::from(port)].name;
        match to {
            Outlet::Port(to) => Some(port(to)),
            Outlet::Group(at) => match self.groups[usize::from(at)].choose_member(now, frame, pool) {
                MemberChoice::Port(to) => Some(port(to)),
                MemberChoice::All => Some(&self.groups[usize::from(at)].plan().name),
                MemberChoice::None => None,
            },
        }
    }

    /// Sends a frame to a port, or to the port that a group chooses.
    #[inline]
    pub(super) fn send_to(&mut self, to: Outlet, now: Time, delay: Interval, frame: Frame, pool: &mut Pool) {
        match to {
            Outlet::Port(to) => self.send_or_delay(to, now, delay, frame, pool),
            Outlet::Group(at) => self.send_to_group(usize::from(at), now, delay, frame, pool),
        }
    }

    /// Sends a frame to the port that a group chooses, or to all of its ports that are up except the frame's own.
    fn send_to_group(&mut self, at: usize, now: Time, delay: Interval, frame: Frame, pool: &mut Pool) {
        let group = &mut self.groups[at];
        match group.choose_member(now, &frame, pool) {
            MemberChoice::Port(to) => {
                group.count(to, frame.len());
                self.send_or_delay(to, now, delay, frame, pool);
            }
            MemberChoice::None => self.drop_frame(DropReason::GroupDown, frame, pool),
            MemberChoice::All => {
                // As with `*`: otherwise a switch that floods would send a frame back to its sender.
                let others = group.ports().filter(|port| *port != frame.meta.port);
                let up: Vec<u16> = others.filter(|port| self.up[usize::from(*port)]).collect();
                up.iter().for_each(|port| group.count(*port, frame.len()));
                self.send_to_all(up.into_iter(), now, delay, frame, pool);
            }
        }
    }

    /// Sends a copy of a frame to a port, or to the port that a group chooses.
    pub(super) fn mirror(&mut self, to: Outlet, now: Time, delay: Interval, frame: &Frame, pool: &mut Pool) {
        match (to, pool.copy(frame)) {
            (_, None) => self.count(DropReason::NoBuffer),
            (to, Some(copy)) => {
                self.copies += 1;
                self.send_to(to, now, delay, copy, pool);
            }
        }
    }

    /// Returns the next port with output, and moves its frames to `frames`.
    pub(super) fn poll(&mut self, frames: &mut Vec<Frame>) -> Option<u16> {
        let port = self.waiting.iter().position(|waiting| !waiting.is_empty())?;
        core::mem::swap(&mut self.waiting[port], frames);
        Some(port as u16)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.held.next()
    }

    /// Sends the frames whose delay is over.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let mut due = core::mem::take(&mut self.due);
        self.held.expire(now, &mut due);
        self.n_held -= due.len();
        due.drain(..).for_each(|(port, frame)| self.send(port, frame));
        self.due = due;
    }

    pub(super) fn held(&self) -> usize {
        self.n_held
    }

    /// Sends a frame now.
    #[inline]
    pub(super) fn send(&mut self, to: u16, mut frame: Frame) {
        frame.meta.port = to;
        let port = &mut self.ports[usize::from(to)];
        port.sent += 1;
        port.sent_bytes += frame.size() as u64;
        self.waiting[usize::from(to)].push(frame);
    }

    /// Sends these frames now.
    pub(super) fn send_all(&mut self, to: u16, frames: &mut Vec<Frame>) {
        let before = self.waiting[usize::from(to)].len();
        self.waiting[usize::from(to)].append(frames);
        self.count_sent(to, before);
    }

    /// Sends the next `n` frames now.
    pub(super) fn send_next(&mut self, to: u16, n: usize, frames: &mut vec::Drain<'_, Frame>) {
        let before = self.waiting[usize::from(to)].len();
        self.waiting[usize::from(to)].extend(frames.take(n));
        self.count_sent(to, before);
    }

    /// Counts the frames behind the first `before`, which have just been sent.
    fn count_sent(&mut self, to: u16, before: usize) {
        let (sent, port) = (&mut self.waiting[usize::from(to)][before..], &mut self.ports[usize::from(to)]);
        port.sent += sent.len() as u64;
        for frame in sent {
            frame.meta.port = to;
            port.sent_bytes += frame.size() as u64;
        }
    }

    /// Sends a frame, now or when its DELAY is over.
    pub(super) fn send_or_delay(
        &mut self,
        to: u16,
        now: Time,
        delay: Interval,
        mut frame: Frame,
        pool: &mut Pool,
    ) {
        if delay <= Interval::ZERO {
            self.send(to, frame);
        } else if self.n_held >= HELD_MAX {
            self.drop_frame(DropReason::HeldTooMany, frame, pool);
        } else {
            self.n_held += 1;
            // A written capture shows when the frame left.
            frame.meta.arrived = now + delay;
            self.held.set(now + delay, (to, frame));
        }
    }

    /// Sends a copy of a frame.
    pub(super) fn send_copy(&mut self, to: u16, now: Time, delay: Interval, frame: &Frame, pool: &mut Pool) {
        match pool.copy(frame) {
            Some(copy) => {
                self.copies += 1;
                self.send_or_delay(to, now, delay, copy, pool);
            }
            None => self.count(DropReason::NoBuffer),
        }
    }

    /// Sends a frame to each of these ports.
    pub(super) fn send_to_all(
        &mut self,
        ports: impl Iterator<Item = u16>,
        now: Time,
        delay: Interval,
        frame: Frame,
        pool: &mut Pool,
    ) {
        let mut last = None;
        for port in ports {
            if let Some(before) = last.replace(port) {
                self.send_copy(before, now, delay, &frame, pool);
            }
        }
        match last {
            Some(port) => self.send_or_delay(port, now, delay, frame, pool),
            None => self.drop_frame(DropReason::NoPort, frame, pool),
        }
    }

    /// Drops a frame.
    pub(super) fn drop_frame(&mut self, reason: DropReason, frame: Frame, pool: &mut Pool) {
        self.count(reason);
        pool.give(frame);
    }

    pub(super) fn count(&mut self, reason: DropReason) {
        self.count_all(reason, 1);
    }

    pub(super) fn count_all(&mut self, reason: DropReason, frames: u64) {
        self.drops[reason as usize] += frames;
    }

    /// Returns the drops so far by reason, with drops that are not counted yet.
    pub(super) fn drops(&self, soon: impl Iterator<Item = DropReason>) -> Vec<(DropReason, u64)> {
        let mut lost = self.drops;
        soon.for_each(|reason| lost[reason as usize] += 1);
        let all = DropReason::ALL.iter().map(|reason| (*reason, lost[*reason as usize]));
        all.filter(|(_, n)| *n > 0).collect()
    }

    /// Gives back the buffers of all frames that have not left.
    pub(super) fn close(&mut self, pool: &mut Pool) {
        let mut held = Vec::new();
        self.held.drain(&mut held);
        self.n_held = 0;
        let held = held.into_iter().map(|(_, (_, frame))| frame);
        held.chain(self.waiting.iter_mut().flat_map(|frames| frames.drain(..)))
            .for_each(|frame| pool.give(frame));
    }
}
