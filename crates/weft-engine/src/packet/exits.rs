//! How frames leave, or do not.

use super::group::{Group, GroupPlan, GroupStats, Taker};
use super::plan::{Outlet, PacketPlan};
use super::stats::{Lost, PortStats};
use crate::timers::Timers;
use rustc_hash::FxHashMap;
use std::vec;
use weft_core::abi::{HOLD, ShortName};
use weft_core::frame::{Frame, Pool};
use weft_core::{Interval, Time};

/// Frames that one worker may hold for a DELAY; a further one is dropped.
pub const HELD_MAX: usize = 4096;
/// The name of a port that means all others of the chain.
pub const ALL_OTHERS: &str = "*";

/// The ports of a plan, as frames leave by them.
pub(super) struct Exits {
    by_name: FxHashMap<Box<[u8]>, Outlet>,
    /// The names that were asked for lately, by their first words: most packets go to few ports.
    lately: [(ShortName, Outlet); LATELY],
    /// For each port, the frames that are to be polled.
    waiting: Vec<Vec<Frame>>,
    pub(super) ports: Vec<PortStats>,
    /// For each port, whether its link is up.
    up: Vec<bool>,
    groups: Vec<Group>,
    /// Frames whose DELAY is not over.
    held: Timers<(u16, Frame)>,
    n_held: usize,
    due: Vec<(u16, Frame)>,
    lost: [u64; Lost::ALL.len()],
    pub(super) copies: u64,
}

/// How many of the names that were asked for lately are kept.
const LATELY: usize = 4;

/// Where a name sends a frame.
#[derive(Clone, Copy)]
pub(super) enum Target {
    By(Outlet),
    Others,
    /// It comes to the element again.
    Hold,
    Unknown,
}

impl Exits {
    pub(super) fn new(now: Time) -> Self {
        Self {
            by_name: FxHashMap::default(),
            lately: [(ShortName::default(), Outlet::Port(0)); LATELY],
            waiting: Vec::new(),
            ports: Vec::new(),
            up: Vec::new(),
            groups: Vec::new(),
            held: Timers::new(now),
            n_held: 0,
            due: Vec::new(),
            lost: [0; Lost::ALL.len()],
            copies: 0,
        }
    }

    /// Takes on the ports of a plan. What waits goes on to the port of the same name; what waits for one that is gone
    /// is handed out.
    pub(super) fn take_on(&mut self, plan: &PacketPlan, gone: &mut Vec<Frame>) {
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
        self.lately = [(ShortName::default(), Outlet::Port(0)); LATELY];
    }

    pub(super) fn target(&mut self, name: &[u8]) -> Target {
        let short = ShortName::of(name);
        if let Some(to) = short.and_then(|short| self.target_lately(short)) {
            return Target::By(to);
        }
        let target = self.target_of(name);
        if let (Some(short), Target::By(to)) = (short, target) {
            self.lately.rotate_right(1);
            self.lately[0] = (short, to);
        }
        target
    }

    /// Where a name sent a frame lately.
    #[inline(always)]
    pub(super) fn target_lately(&self, name: ShortName) -> Option<Outlet> {
        self.lately.iter().find(|(of, _)| *of == name).map(|(_, to)| *to)
    }

    fn target_of(&self, name: &[u8]) -> Target {
        if name == ALL_OTHERS.as_bytes() {
            return Target::Others;
        }
        if name == HOLD.as_bytes() {
            return Target::Hold;
        }
        self.by_name.get(name).map_or(Target::Unknown, |to| Target::By(*to))
    }

    /// The link of a port is up now, or down.
    pub(super) fn set_up(&mut self, port: u16, is_up: bool) {
        if core::mem::replace(&mut self.up[usize::from(port)], is_up) == is_up {
            return;
        }
        let names: Vec<String> = self.ports.iter().map(|port| port.name.clone()).collect();
        for group in self.groups.iter_mut().filter(|group| group.ports().any(|of| of == port)) {
            group.choose(&names, &self.up);
        }
    }

    pub(super) fn group_stats(&self, names: Vec<String>) -> Vec<GroupStats> {
        self.groups.iter().map(|group| group.stats(&names, &self.up)).collect()
    }

    /// By what a frame leaves, for people: the name of the group where it is all of it. None if no
    /// port is up.
    pub(super) fn name_of(&mut self, to: Outlet, now: Time, frame: &Frame, pool: &Pool) -> Option<&str> {
        let port = |port: u16| &*self.ports[usize::from(port)].name;
        match to {
            Outlet::Port(to) => Some(port(to)),
            Outlet::Group(at) => match self.groups[usize::from(at)].taker(now, frame, pool) {
                Taker::Port(to) => Some(port(to)),
                Taker::All => Some(&self.groups[usize::from(at)].plan().name),
                Taker::Nobody => None,
            },
        }
    }

    /// A frame leaves by a port, or by what a group makes of it.
    #[inline]
    pub(super) fn leave_by(&mut self, to: Outlet, now: Time, delay: Interval, frame: Frame, pool: &mut Pool) {
        match to {
            Outlet::Port(to) => self.leave(to, now, delay, frame, pool),
            Outlet::Group(at) => self.leave_by_group(usize::from(at), now, delay, frame, pool),
        }
    }

    fn leave_by_group(&mut self, at: usize, now: Time, delay: Interval, frame: Frame, pool: &mut Pool) {
        let group = &mut self.groups[at];
        match group.taker(now, &frame, pool) {
            Taker::Port(to) => {
                group.count(to, frame.len());
                self.leave(to, now, delay, frame, pool);
            }
            Taker::Nobody => self.lose(Lost::GroupDown, frame, pool),
            Taker::All => {
                // As with `*`, or a switch that floods would send a frame back to its sender.
                let others = group.ports().filter(|port| *port != frame.meta.port);
                let up: Vec<u16> = others.filter(|port| self.up[usize::from(*port)]).collect();
                up.iter().for_each(|port| group.count(*port, frame.len()));
                self.leave_by_all(up.into_iter(), now, delay, frame, pool);
            }
        }
    }

    /// A copy of a frame leaves by a port, or by what a group makes of it.
    pub(super) fn mirror(&mut self, to: Outlet, now: Time, delay: Interval, frame: &Frame, pool: &mut Pool) {
        match (to, pool.copy(frame)) {
            (_, None) => self.count(Lost::NoBuffer),
            (to, Some(copy)) => {
                self.copies += 1;
                self.leave_by(to, now, delay, copy, pool);
            }
        }
    }

    /// The next port with frames, and these.
    pub(super) fn poll(&mut self, frames: &mut Vec<Frame>) -> Option<u16> {
        let port = self.waiting.iter().position(|waiting| !waiting.is_empty())?;
        core::mem::swap(&mut self.waiting[port], frames);
        Some(port as u16)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.held.next()
    }

    /// What was held long enough leaves.
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

    /// A frame leaves now.
    #[inline]
    pub(super) fn send(&mut self, to: u16, mut frame: Frame) {
        frame.meta.port = to;
        let port = &mut self.ports[usize::from(to)];
        port.sent += 1;
        port.sent_bytes += frame.size() as u64;
        self.waiting[usize::from(to)].push(frame);
    }

    /// These frames leave now.
    pub(super) fn send_all(&mut self, to: u16, frames: &mut Vec<Frame>) {
        let before = self.waiting[usize::from(to)].len();
        self.waiting[usize::from(to)].append(frames);
        self.count_sent(to, before);
    }

    /// The next `n` frames leave now.
    pub(super) fn send_next(&mut self, to: u16, n: usize, frames: &mut vec::Drain<'_, Frame>) {
        let before = self.waiting[usize::from(to)].len();
        self.waiting[usize::from(to)].extend(frames.take(n));
        self.count_sent(to, before);
    }

    /// Those that wait behind so many have just been sent.
    fn count_sent(&mut self, to: u16, before: usize) {
        let (sent, port) = (&mut self.waiting[usize::from(to)][before..], &mut self.ports[usize::from(to)]);
        port.sent += sent.len() as u64;
        for frame in sent {
            frame.meta.port = to;
            port.sent_bytes += frame.size() as u64;
        }
    }

    /// A frame leaves, now or when its DELAY is over.
    pub(super) fn leave(&mut self, to: u16, now: Time, delay: Interval, mut frame: Frame, pool: &mut Pool) {
        if delay <= Interval::ZERO {
            self.send(to, frame);
        } else if self.n_held >= HELD_MAX {
            self.lose(Lost::HeldTooMany, frame, pool);
        } else {
            self.n_held += 1;
            // A capture that is written says when it left.
            frame.meta.arrived = now + delay;
            self.held.set(now + delay, (to, frame));
        }
    }

    /// A copy of a frame leaves.
    pub(super) fn leave_as_copy(
        &mut self,
        to: u16,
        now: Time,
        delay: Interval,
        frame: &Frame,
        pool: &mut Pool,
    ) {
        match pool.copy(frame) {
            Some(copy) => {
                self.copies += 1;
                self.leave(to, now, delay, copy, pool);
            }
            None => self.count(Lost::NoBuffer),
        }
    }

    /// A frame leaves by each of these ports.
    pub(super) fn leave_by_all(
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
                self.leave_as_copy(before, now, delay, &frame, pool);
            }
        }
        match last {
            Some(port) => self.leave(port, now, delay, frame, pool),
            None => self.lose(Lost::NoPort, frame, pool),
        }
    }

    /// A frame goes no further.
    pub(super) fn lose(&mut self, reason: Lost, frame: Frame, pool: &mut Pool) {
        self.count(reason);
        pool.give(frame);
    }

    pub(super) fn count(&mut self, reason: Lost) {
        self.count_all(reason, 1);
    }

    pub(super) fn count_all(&mut self, reason: Lost, frames: u64) {
        self.lost[reason as usize] += frames;
    }

    /// What was lost, and is about to be.
    pub(super) fn lost(&self, soon: impl Iterator<Item = Lost>) -> Vec<(Lost, u64)> {
        let mut lost = self.lost;
        soon.for_each(|reason| lost[reason as usize] += 1);
        let all = Lost::ALL.iter().map(|reason| (*reason, lost[*reason as usize]));
        all.filter(|(_, n)| *n > 0).collect()
    }

    /// Gives back all that has not left.
    pub(super) fn close(&mut self, pool: &mut Pool) {
        let mut held = Vec::new();
        self.held.drain(&mut held);
        self.n_held = 0;
        let held = held.into_iter().map(|(_, (_, frame))| frame);
        held.chain(self.waiting.iter_mut().flat_map(|frames| frames.drain(..)))
            .for_each(|frame| pool.give(frame));
    }
}
