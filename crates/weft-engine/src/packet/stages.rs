//! Chains in which frames are looked at several times, and packets that are cut before they get new headers.
//!
//! A chain is cut behind each element that changes the structure of frames, if another stands there. A frame passes one
//! stage, is changed, is parsed again if that did anything, and passes the next: so each element looks at the frame
//! that those before it have left.

use super::edit::{partial_at, write_patches};
use super::live::{Arrived, Found, Stage};
use super::reshape::{Bounds, cut_to, stack_for};
use super::stats::Lost;
use super::{PacketEngine, Pass, Watcher, begin, packet_id, rand_base};
use core::slice;
use weft_core::abi::{Cx, EditTarget, REGION_BODY, REGIONS, Verdict};
use weft_core::frame::{Frame, Pool, network_at};
use weft_core::wire::reshape::{Pop, Reshape};
use weft_core::{Interval, Time};

/// A frame on its way through the stages of a chain.
#[derive(Clone, Copy)]
struct Way {
    pass: Pass,
    /// The next stage.
    nth: usize,
    /// The inputs that are there.
    present: u64,
    is_traced: bool,
    /// How long the stages so far hold it up.
    delay: Interval,
    /// The element that has sent it elsewhere, and the line; the port is in [`PacketEngine::target`].
    redirect: Option<(u16, u32)>,
}

impl PacketEngine {
    /// Takes a frame through all stages of its chain, and to where they send it.
    pub(super) fn pass_stages(
        &mut self,
        now: Time,
        pass: Pass,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let Found::Chain { present, .. } = self.found[pass.nth] else {
            unreachable!("it has found its chain")
        };
        self.live[pass.at].frames += 1;
        let is_traced = begin(now, &frame, &mut self.now, &mut self.until_traced);
        let way = Way { pass, nth: 0, present, is_traced, delay: Interval::ZERO, redirect: None };
        self.go_on(now, way, frame, pool, watch);
    }

    /// Whether a frame stands for several and the pass puts headers in front of it: no device can cut what is in a
    /// tunnel.
    #[inline]
    pub(super) fn is_to_be_cut(&self, pass: Pass, frame: &Frame, pool: &Pool) -> bool {
        frame.meta.offload.gso.is_some() && self.puts_in_front(pass, frame, pool)
    }

    /// The packets that a frame stands for; none, and the frame is lost, if it cannot be cut. The rows of the pass are
    /// given once, for the frame that came.
    #[cold]
    pub(super) fn cut(
        &mut self,
        pass: Pass,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) -> Vec<Frame> {
        self.keep_rows(pass.at);
        self.outcome.rows.clear();
        self.outcome.cells.clear();
        let mut segments = core::mem::take(&mut self.segments);
        let frames = self.live[pass.at].chain.program.frames.as_ref();
        let is_ip = frames.is_some_and(|frames| frames.is_ip);
        let network = if is_ip { Some(0) } else { network_at(pool.bytes(&frame)) };
        match network.map(|network| pool.segment(&frame, network, &mut segments)) {
            Some(Ok(())) => pool.give(frame),
            _ => self.lose(Lost::NotCut, frame, pool, watch),
        }
        segments
    }

    /// Whether headers are put in front of all of a frame. What is cut to less than it is by then stands for itself.
    fn puts_in_front(&self, pass: Pass, frame: &Frame, pool: &Pool) -> bool {
        let all = &self.live[pass.at].chain.program.reshapes;
        let slots = &self.slots[pass.nth * self.stride..][..self.stride];
        let edits = &self.outcome.edits;
        let mut len = frame.len();
        for (at, edit) in edits.iter().enumerate() {
            let EditTarget::Reshape(id) = edit.target else { continue };
            match all.get(usize::from(id)).map(|decl| &decl.what) {
                Some(Reshape::Push { behind: None, .. }) => return true,
                Some(Reshape::Push { behind: Some(_), stacks }) => {
                    let stack = stack_for(stacks, pool.bytes(frame));
                    len += stack.map_or(0, |stack| stack.bytes.len());
                }
                Some(Reshape::Pop { layer, how }) => {
                    let Some(layer) = slots.get(usize::from(*layer)).map(Bounds::of) else { continue };
                    len = match how {
                        Pop::To => layer.end.min(len).saturating_sub(layer.at),
                        Pop::Alone(_) => len.saturating_sub(layer.bytes),
                    };
                }
                Some(Reshape::Cut) if cut_to(&edits[..at]).is_some_and(|to| to < len) => return false,
                Some(Reshape::Cut) | None => {}
            }
        }
        false
    }

    /// Takes a frame through the rest of its stages.
    fn go_on(&mut self, now: Time, mut way: Way, mut frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let pass = way.pass;
        let n = self.live[pass.at].chain.code.stages.len();
        while way.nth < n {
            self.run_stage(&way, &frame, pool);
            write_patches(&self.outcome.patches, &frame, pool);
            if self.is_to_be_cut(pass, &frame, pool) {
                return self.go_on_in_parts(now, way, frame, pool, watch);
            }
            if let Err(reason) = self.carry_out(pass, way.present, &mut frame, pool) {
                return self.lose(reason, frame, pool, watch);
            }
            if !self.goes_on(&mut way) {
                return self.give_verdict(pass, frame, pool, watch);
            }
            if !(self.outcome.edits.is_empty() && self.outcome.patches.is_empty()) {
                match self.parse_again(now, &way, &frame, pool) {
                    Ok(present) => way.present = present,
                    Err(check) => return self.malformed(pass, check, frame, pool, watch),
                }
            }
        }
        self.outcome.clear();
        self.outcome.delay = way.delay;
        if let Some((element, line)) = way.redirect {
            (self.outcome.element, self.outcome.line) = (element, line);
            self.outcome.verdict = Verdict::Redirect;
            core::mem::swap(&mut self.outcome.text, &mut self.target);
        }
        self.give_verdict(pass, frame, pool, watch);
    }

    /// Cuts a frame that a stage has passed, and takes each packet through the rest.
    fn go_on_in_parts(
        &mut self,
        now: Time,
        mut way: Way,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let mut segments = self.cut(way.pass, frame, pool, watch);
        let mut changed = Vec::with_capacity(segments.len());
        for mut segment in segments.drain(..) {
            match self.carry_out(way.pass, way.present, &mut segment, pool) {
                Ok(()) => changed.push(segment),
                Err(reason) => self.lose(reason, segment, pool, watch),
            }
        }
        self.segments = segments;
        if !self.goes_on(&mut way) {
            return changed.into_iter().for_each(|segment| self.give_verdict(way.pass, segment, pool, watch));
        }
        // Each may be sent elsewhere by a stage that is still to come, and those behind it not.
        let (target, call) = (self.target.clone(), self.call.clone());
        for segment in changed {
            self.target.clone_from(&target);
            self.call.clone_from(&call);
            match self.parse_again(now, &way, &segment, pool) {
                Ok(present) => self.go_on(now, Way { present, ..way }, segment, pool, watch),
                Err(check) => self.malformed(way.pass, check, segment, pool, watch),
            }
        }
    }

    /// Whether a frame goes on behind a stage, which is done with then.
    fn goes_on(&mut self, way: &mut Way) -> bool {
        way.nth += 1;
        way.delay = self.outcome.delay;
        match self.outcome.verdict {
            Verdict::Forward => true,
            Verdict::Redirect => {
                way.redirect = Some((self.outcome.element, self.outcome.line));
                core::mem::swap(&mut self.outcome.text, &mut self.target);
                true
            }
            _ => false,
        }
    }

    /// Runs the code of a stage. What it leaves is told as of the whole chain.
    fn run_stage(&mut self, way: &Way, frame: &Frame, pool: &Pool) {
        let Way { pass, nth, present, is_traced, delay, .. } = *way;
        let live = &mut self.live[pass.at];
        let code = &live.chain.code;
        let Stage { code: stage, first } = &code.stages[nth];
        self.outcome.clear();
        self.outcome.patches.clear();
        self.outcome.delay = delay;
        let mut regions: [&[u8]; REGIONS] = [self.plan.ports[usize::from(pass.port)].as_bytes(); REGIONS];
        regions[REGION_BODY] = pool.bytes(frame);
        let mut cx = Cx {
            rand: if code.draws { rand_base(self.config.seed, packet_id(frame)) } else { 0 },
            slots: &self.slots[pass.nth * self.stride..][..code.inputs],
            present,
            regions,
            partial: partial_at(frame.meta.offload.checksum),
            trace: self.config.clock.filter(|_| is_traced),
            ..Cx::new(
                self.now,
                &live.state,
                &mut self.call,
                &mut self.outcome,
                &mut live.counters[usize::from(*first)..],
            )
        };
        stage.run(&mut cx, usize::MAX);
        self.outcome.element += first;
    }

    /// Parses a frame into the slots of the one whose pass this is, if another stage looks at it.
    fn parse_again(&mut self, now: Time, way: &Way, frame: &Frame, pool: &Pool) -> Result<u64, u32> {
        let pass = way.pass;
        if way.nth == self.live[pass.at].chain.code.stages.len() {
            return Ok(way.present);
        }
        let port = self.plan.ports[usize::from(pass.port)].as_bytes();
        let live = &mut self.live[pass.at];
        let followed = self.followed.get(self.chunk_at + pass.nth).map(slice::from_ref).unwrap_or_default();
        let batch = Arrived { now, frames: slice::from_ref(frame), port, pool, followed };
        self.outcome.clear();
        let mut cx = Cx {
            given: &mut self.slots[pass.nth * self.stride..][..self.stride],
            regions: [port; REGIONS],
            ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
        };
        cx.regions[REGION_BODY] = pool.bytes(frame);
        live.chain.code.parse(&mut cx, &batch, 0)
    }

    /// A frame breaks a rule of a wire format now that it has other headers. It is counted as one of the chain already.
    #[cold]
    fn malformed(&mut self, pass: Pass, check: u32, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        self.live[pass.at].frames -= 1;
        let found = Found::Malformed { at: pass.at as u16, in_condition: false, check };
        self.refuse(found, frame, pool, watch);
    }
}
