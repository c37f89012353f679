//! Frames that an element holds: they come to it again after a while, and perhaps again.
//!
//! An element sends a frame, or a copy of it, to [`HOLD`] as to a port. Its pass ends there. When its time is over, it
//! is parsed anew and passes that element and those behind it; those in front have seen it.
//! See `docs/design/packet-io.md`.

use super::fragments::Followed;
use super::live::{Live, Stage};
use super::stages::Way;
use super::stats::Lost;
use super::{PacketEngine, Pass, Watcher};
use crate::timers::Timers;
use weft_core::abi::HOLD;
use weft_core::frame::{Frame, Pool, SMALL_PACKET_MAX};
use weft_core::{Interval, Time};
use weft_ir::ir::Op;
use weft_ir::program::Element;

/// Frames that one worker holds so; a further one is dropped, as is one when three quarters of the buffers are taken.
pub const HOLDS_MAX: usize = 1024;
/// Times that a frame comes again; then it is dropped. That is after some 16 seconds.
pub const HOLD_TIMES_MAX: u16 = 256;
/// A frame comes again after this time at first, then after twice as long each time, up to 64 times as long.
const FIRST: Interval = Interval::from_millis(1);
const DOUBLINGS_MAX: u16 = 6;

/// The part of a chain that a held frame passes: from the element that held it on.
#[derive(Debug)]
pub(super) struct Tail {
    /// That element.
    pub(super) element: u16,
    pub(super) stages: Vec<Stage>,
}

/// A frame that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) frame: Frame,
    /// Where it came in, and its chain.
    pub(super) port: u16,
    pub(super) at: usize,
    /// Which tail of the chain it passes.
    pub(super) tail: usize,
    /// The first fragment of its packet, if it is a later one.
    pub(super) followed: Option<Followed>,
    pub(super) history: History,
}

/// How often a frame was held, this time included, and whether it was a copy at first: its end is not reported then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    pub(super) times: u16,
    pub(super) is_copy: bool,
}

/// The frames that a worker holds.
#[derive(Debug)]
pub(super) struct Holds {
    timers: Timers<Held>,
    n: usize,
    /// Of the frame whose pass this is.
    pub(super) history: History,
}

/// Whether an element may hold frames.
pub(super) fn holds(element: &Element) -> bool {
    element.request_ops().any(|op| matches!(op, Op::BytesConst(name) if name == HOLD.as_bytes()))
}

/// Whether so few buffers like that of a frame are free that ports need them: a quarter.
fn takes_last_buffers(frame: &Frame, pool: &Pool) -> bool {
    let (free, all) = match frame.len() > SMALL_PACKET_MAX {
        true => (pool.free_large(), pool.config().large),
        false => (pool.free_small(), pool.config().small),
    };
    free * 4 < all as usize
}

impl Holds {
    pub(super) fn new(now: Time) -> Self {
        Self { timers: Timers::new(now), n: 0, history: History::default() }
    }

    /// Holds a frame. `Err`: there is no room for it.
    pub(super) fn put(&mut self, now: Time, held: Held) -> Result<(), Frame> {
        if self.n >= HOLDS_MAX {
            return Err(held.frame);
        }
        self.n += 1;
        let after = FIRST.as_nanos() << (held.history.times - 1).min(DOUBLINGS_MAX);
        self.timers.set(now + Interval(after), held);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.n
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Those whose time is over.
    fn due(&mut self, now: Time) -> Vec<Held> {
        let mut due = Vec::new();
        self.timers.expire(now, &mut due);
        self.n -= due.len();
        due
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> Vec<(Time, Held)> {
        let mut all = Vec::new();
        self.timers.drain(&mut all);
        self.n = 0;
        all
    }
}

impl PacketEngine {
    /// Whether some element of the chain of a pass holds frames. A name that was computed may say so where none does.
    pub(super) fn may_hold(&self, pass: Pass) -> bool {
        !self.live[pass.at].chain.code.tails.is_empty()
    }

    /// Holds a frame for the element that has ended its pass, or for the one that holds frames in its chain. `Err`: it
    /// is lost, and why.
    #[cold]
    pub(super) fn hold(
        &mut self,
        pass: Pass,
        frame: Frame,
        is_copy: bool,
        pool: &Pool,
    ) -> Result<(), (Lost, Frame)> {
        let tails = &self.live[pass.at].chain.code.tails;
        assert!(!tails.is_empty(), "the caller has asked whether one holds frames");
        let tail = tails.iter().position(|tail| tail.element == self.outcome.element).unwrap_or(0);
        let History { times, is_copy: was_copy } = self.holds.history;
        if times >= HOLD_TIMES_MAX {
            return Err((Lost::HeldTooLong, frame));
        }
        if takes_last_buffers(&frame, pool) {
            return Err((Lost::HeldTooMany, frame));
        }
        let history = History { times: times + 1, is_copy: is_copy || was_copy };
        let followed = self.followed.get(self.chunk_at + pass.nth).cloned();
        let held = Held { frame, port: pass.port, at: pass.at, tail, followed, history };
        self.holds.put(self.now, held).map_err(|frame| (Lost::HeldTooMany, frame))
    }

    /// Takes those whose time is over through the rest of their chains.
    pub(super) fn run_held(&mut self, now: Time, pool: &mut Pool, watch: Watcher<'_, '_>) {
        for held in self.holds.due(now) {
            let Held { mut frame, port, at, tail, followed, history } = held;
            self.now = self.now.max(now);
            frame.meta.arrived = self.now;
            self.holds.history = history;
            self.followed.extend(followed);
            self.chunk_at = 0;
            let way = Way::of_tail(Pass { port, nth: 0, at }, tail);
            let mut unwatched = None;
            let watch = if history.is_copy { &mut unwatched } else { &mut *watch };
            self.go_on_again(now, way, frame, pool, watch);
            self.followed.clear();
            self.holds.history = History::default();
        }
    }

    /// After an update frames wait on for the element of the same name; those for which there is none any more are
    /// given.
    pub(super) fn keep_held(&mut self, before: &[Live], ports: &[String], gone: &mut Vec<Frame>) {
        for (due, held) in self.holds.take_all() {
            let old = &before[held.at].chain;
            let element = &old.program.elements[usize::from(old.code.tails[held.tail].element)].name;
            let at = self.live.iter().position(|live| live.chain.program.name == old.program.name);
            let tail = at.and_then(|at| {
                let chain = &self.live[at].chain;
                let mut tails = chain.code.tails.iter();
                tails.position(|tail| chain.program.elements[usize::from(tail.element)].name == *element)
            });
            let name = &ports[usize::from(held.port)];
            let port = self.plan.ports.iter().position(|port| port == name);
            let (Some(at), Some(tail), Some(port)) = (at, tail, port) else {
                gone.push(held.frame);
                continue;
            };
            self.holds.n += 1;
            self.holds.timers.set(due, Held { at, tail, port: port as u16, ..held });
        }
    }
}
