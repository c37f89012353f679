//! Holds frames for elements: each frame returns to its element after a while, perhaps several times.
//!
//! An element sends a frame, or a copy of it, to [`HOLD`] as to a port. Its pass ends there. When its time is over, the
//! frame is parsed again and passes that element and those behind it; the elements before have seen it.
//! See `docs/design/packet-io.md`.

use super::active::{ActivePacketChain, Stage};
use super::fragments::FragmentInfo;
use super::stages::StageCursor;
use super::stats::DropReason;
use super::{PacketEngine, Pass, Watcher};
use crate::timers::Timers;
use weft_core::abi::HOLD;
use weft_core::frame::{Frame, Pool, SMALL_PACKET_MAX};
use weft_core::{Interval, Time};
use weft_ir::ir::Op;
use weft_ir::program::Element;

/// Frames that one worker holds; a further one is dropped. So is a frame when three quarters of the buffers are in use.
pub const HOLDS_MAX: usize = 1024;
/// How often a frame returns before it is dropped: that is after about 16 seconds.
pub const HOLD_TIMES_MAX: u16 = 256;
/// The delay before a frame first returns. Each further delay is twice as long, up to 64 times this one.
const FIRST: Interval = Interval::from_millis(1);
const DOUBLINGS_MAX: u16 = 6;

/// The part of a chain that a held frame passes, from the element that held it.
#[derive(Debug)]
pub(super) struct Tail {
    /// The index of that element.
    pub(super) element: u16,
    pub(super) stages: Vec<Stage>,
}

/// A held frame.
#[derive(Debug)]
pub(super) struct HeldFrame {
    pub(super) frame: Frame,
    /// Its ingress port, and its chain.
    pub(super) port: u16,
    pub(super) at: usize,
    /// The index of the tail that it passes.
    pub(super) tail: usize,
    /// For a later fragment: the first fragment of its packet.
    pub(super) fragment_info: Option<FragmentInfo>,
    pub(super) history: History,
}

/// How often a frame was held, this time included, and whether it began as a copy: the end of a copy is not reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    pub(super) times: u16,
    pub(super) is_copy: bool,
}

/// The frames that a worker holds.
#[derive(Debug)]
pub(super) struct HeldFrames {
    timers: Timers<HeldFrame>,
    n: usize,
    /// The history of the frame that is passing now.
    pub(super) history: History,
}

/// Whether an element may hold frames.
pub(super) fn holds(element: &Element) -> bool {
    element.request_ops().any(|op| matches!(op, Op::BytesConst(name) if name == HOLD.as_bytes()))
}

/// Whether less than a quarter of the buffers of this frame's size are free: ports need those.
fn takes_last_buffers(frame: &Frame, pool: &Pool) -> bool {
    let (free, all) = match frame.len() > SMALL_PACKET_MAX {
        true => (pool.free_large(), pool.config().large),
        false => (pool.free_small(), pool.config().small),
    };
    free * 4 < all as usize
}

impl HeldFrames {
    pub(super) fn new(now: Time) -> Self {
        Self { timers: Timers::new(now), n: 0, history: History::default() }
    }

    /// Holds a frame; longer each time. `Err`: there is no room.
    pub(super) fn put(&mut self, now: Time, held: HeldFrame) -> Result<(), Frame> {
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

    /// Takes the frames whose time is over, in order.
    fn due(&mut self, now: Time) -> Vec<HeldFrame> {
        let mut due = Vec::new();
        self.timers.expire(now, &mut due);
        self.n -= due.len();
        due
    }

    /// Takes all frames.
    pub(super) fn take_all(&mut self) -> Vec<(Time, HeldFrame)> {
        let mut all = Vec::new();
        self.timers.drain(&mut all);
        self.n = 0;
        all
    }
}

impl PacketEngine {
    /// Whether some element of the chain holds frames. A computed port name may be HOLD in other chains, too.
    pub(super) fn may_hold(&self, pass: Pass) -> bool {
        !self.chains[pass.at].chain.code.tails.is_empty()
    }

    /// Holds a frame for the element that has ended its pass, or for an element of its chain that holds frames. `Err`:
    /// the frame and the reason for the drop.
    #[cold]
    pub(super) fn hold(
        &mut self,
        pass: Pass,
        frame: Frame,
        is_copy: bool,
        pool: &Pool,
    ) -> Result<(), (DropReason, Frame)> {
        let tails = &self.chains[pass.at].chain.code.tails;
        assert!(!tails.is_empty(), "the caller checks that an element holds frames");
        let tail = tails.iter().position(|tail| tail.element == self.outcome.element).unwrap_or(0);
        let History { times, is_copy: was_copy } = self.holds.history;
        if times >= HOLD_TIMES_MAX {
            return Err((DropReason::HeldTooLong, frame));
        }
        if takes_last_buffers(&frame, pool) {
            return Err((DropReason::HeldTooMany, frame));
        }
        let history = History { times: times + 1, is_copy: is_copy || was_copy };
        let followed = self.fragment_info.get(self.chunk_at + pass.nth).cloned();
        let held = HeldFrame { frame, port: pass.port, at: pass.at, tail, fragment_info: followed, history };
        self.holds.put(self.now, held).map_err(|frame| (DropReason::HeldTooMany, frame))
    }

    /// Runs frames whose time is over through the rest of their chains.
    pub(super) fn run_held(&mut self, now: Time, pool: &mut Pool, watch: Watcher<'_, '_>) {
        for held in self.holds.due(now) {
            let HeldFrame { mut frame, port, at, tail, fragment_info: followed, history } = held;
            self.now = self.now.max(now);
            frame.meta.arrived = self.now;
            self.holds.history = history;
            self.fragment_info.extend(followed);
            self.chunk_at = 0;
            let cursor = StageCursor::of_tail(Pass { port, nth: 0, at }, tail);
            let mut unwatched = None;
            let watch = if history.is_copy { &mut unwatched } else { &mut *watch };
            self.resume_stages(now, cursor, frame, pool, watch);
            self.fragment_info.clear();
            self.holds.history = History::default();
        }
    }

    /// Moves held frames to the elements of the same name after an update. Frames without such an element are added
    /// to `gone`.
    pub(super) fn rebind_held(
        &mut self,
        before: &[ActivePacketChain],
        ports: &[String],
        gone: &mut Vec<Frame>,
    ) {
        for (due, held) in self.holds.take_all() {
            let old = &before[held.at].chain;
            let element = &old.program.elements[usize::from(old.code.tails[held.tail].element)].name;
            let at = self.chains.iter().position(|active| active.chain.program.name == old.program.name);
            let tail = at.and_then(|at| {
                let chain = &self.chains[at].chain;
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
            self.holds.timers.set(due, HeldFrame { at, tail, port: port as u16, ..held });
        }
    }
}
