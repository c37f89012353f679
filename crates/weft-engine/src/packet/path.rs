//! What stands behind a link that is emulated: frames take time, some are lost, and a trace says when one can leave.

use super::trace::{Cursor, Trace};
use std::collections::VecDeque;
use std::sync::Arc;
use weft_core::frame::{Frame, Pool};
use weft_core::hash;

/// How much longer a detour takes at least; else it is a tenth of the delay.
const DETOUR_NS_MIN: u64 = 1_000_000;

/// A path that a link stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// From the last bit sent to the last bit received.
    pub delay_ns: u64,
    /// How much longer a frame may take, by chance. Frames keep their order.
    pub jitter_ns: u64,
    /// The share of frames that are lost on the way, by chance, 0 to 1.
    pub loss: f64,
    /// The share of frames that make a detour, by chance, so that later ones overtake them.
    pub reorder: f64,
    /// When a frame can leave; None: as the link's rate says.
    pub trace: Option<Arc<Trace>>,
}

/// A path with what is on it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) path: Path,
    /// When each frame arrives, the earliest first.
    pipe: VecDeque<(u64, Frame)>,
    /// When the last of those arrives that make no detour.
    latest_ns: u64,
    pub(super) lost: u64,
    /// Where chance comes from, and how often it was asked.
    seed: u64,
    drawn: u64,
    /// When the trace begins.
    begun_ns: u64,
    cursor: Cursor,
}

impl Wire {
    pub(super) fn new(path: Path, begun_ns: u64, seed: u64) -> Self {
        let (pipe, cursor) = (VecDeque::new(), Cursor::default());
        Self { path, pipe, latest_ns: 0, lost: 0, seed, drawn: 0, begun_ns, cursor }
    }

    /// Goes on with another path; another trace begins then.
    pub(super) fn follow(&mut self, path: Path, now_ns: u64) {
        if path.trace != self.path.trace {
            (self.begun_ns, self.cursor) = (now_ns, Cursor::default());
        }
        self.path = path;
    }

    /// The first opportunity of the trace from then on, if there is a trace.
    pub(super) fn opportunity(&mut self, from_ns: u64) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        Some(self.begun_ns + trace.next_at(&mut self.cursor, from_ns.saturating_sub(self.begun_ns)))
    }

    /// Takes the opportunity that [`Wire::opportunity`] gave.
    pub(super) fn take_opportunity(&mut self) {
        if let Some(trace) = &self.path.trace {
            trace.take(&mut self.cursor);
        }
    }

    /// Bits a second about that time, if there is a trace.
    pub(super) fn rate(&self, at_ns: u64) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        Some(trace.bits_per_s_around(at_ns.saturating_sub(self.begun_ns)))
    }

    /// The last bit of a frame has left.
    pub(super) fn enter(&mut self, frame: Frame, left_ns: u64, pool: &mut Pool) {
        if self.happens(self.path.loss) {
            self.lost += 1;
            return pool.give(frame);
        }
        let is_detoured = self.happens(self.path.reorder);
        let Path { delay_ns, jitter_ns, .. } = self.path;
        let jitter_ns = if jitter_ns > 0 { (self.draw() * (jitter_ns + 1) as f64) as u64 } else { 0 };
        // A path that became shorter, or that takes less by chance, does not change the order of what is on it.
        let mut at_ns = (left_ns + delay_ns + jitter_ns).max(self.latest_ns);
        if is_detoured {
            at_ns += (delay_ns / 10).max(DETOUR_NS_MIN);
        } else {
            self.latest_ns = at_ns;
        }
        let behind = self.pipe.iter().rev().take_while(|(other, _)| *other > at_ns).count();
        self.pipe.insert(self.pipe.len() - behind, (at_ns, frame));
    }

    /// Whether something happens that does to this share of frames.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.draw() < share
    }

    /// A number from 0 to below 1.
    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        (hash::draw(self.seed, self.drawn) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A frame that has arrived by now.
    pub(super) fn poll_frame(&mut self, now_ns: u64) -> Option<Frame> {
        self.pipe.pop_front_if(|(at_ns, _)| *at_ns <= now_ns).map(|(_, frame)| frame)
    }

    /// When the next frame arrives.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.pipe.front().map(|(at_ns, _)| *at_ns)
    }

    pub(super) fn on_the_way(&self) -> u64 {
        self.pipe.len() as u64
    }

    /// All that is on the way, in order.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        self.pipe.drain(..).map(|(_, frame)| frame).collect()
    }
}
