//! Chains in which frames are looked at several times, and packets that are cut before they get new headers.
//!
//! A chain is cut behind each element that changes the structure of frames, if another stands there. A frame passes one
//! stage, is changed, is parsed again if that did anything, and passes the next: so each element looks at the frame
//! that those before it have left.

use super::live::{Arrived, Code, Found, Said, Stage};
use super::reshape::{Bounds, cut_to, stack_for};
use super::stats::Lost;
use super::{PacketEngine, Pass, Watcher, rand_base};
use core::slice;
use weft_core::abi::{Cx, EditTarget, HOLD, REGION_BODY, REGIONS, TupleEdit, Verdict};
use weft_core::frame::{Frame, Pool, network_at, packet_size};
use weft_core::inputs::InputSet;
use weft_core::wire::header_change::{HeaderChange, Pop};
use weft_core::{Interval, Time};

/// A frame on its way through the stages of a chain.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pass: Pass,
    /// Which tail of the chain it passes, for one that was held; None: the whole chain.
    tail: Option<usize>,
    /// The next stage.
    nth: usize,
    /// The inputs that are there.
    present: InputSet,
    is_traced: bool,
    /// How long the stages so far hold it up.
    delay: Interval,
    /// What the stages so far have said of it.
    said: Said,
    /// The element that has sent it elsewhere, and the line; the port is in [`PacketEngine::target`].
    redirect: Option<(u16, u32)>,
}

impl Way {
    /// Through the tail of a chain, of a frame that was held.
    pub(super) fn of_tail(pass: Pass, tail: usize) -> Self {
        Self {
            pass,
            tail: Some(tail),
            nth: 0,
            present: InputSet::EMPTY,
            is_traced: false,
            delay: Interval::ZERO,
            said: Said::default(),
            redirect: None,
        }
    }

    fn stages<'c>(&self, code: &'c Code) -> &'c [Stage] {
        match self.tail {
            None => &code.stages,
            Some(tail) => &code.tails[tail].stages,
        }
    }
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
        let present = self.present[pass.nth];
        self.live[pass.at].frames += 1;
        self.now = frame.arrived(now).max(self.now);
        let is_traced = self.live[pass.at].tracing.begin(now);
        let said = Said::default();
        let way =
            Way { pass, tail: None, nth: 0, present, is_traced, delay: Interval::ZERO, said, redirect: None };
        self.go_on(now, way, frame, pool, watch);
    }

    /// Takes a frame that was held through the tail of its chain.
    pub(super) fn go_on_again(
        &mut self,
        now: Time,
        way: Way,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        match self.parse_again(now, &way, &frame, pool) {
            Ok(present) => self.go_on(now, Way { present, ..way }, frame, pool, watch),
            Err(check) => self.malformed(way.pass, check, frame, pool, watch),
        }
    }

    /// Whether a frame stands for several and the pass puts headers in front of it, or makes fragments of it: no device
    /// can cut what is in a tunnel, nor a fragment.
    #[inline]
    pub(super) fn is_to_be_cut(&self, pass: Pass, frame: &Frame, pool: &Pool) -> bool {
        frame.meta.offload.gso.is_some()
            && (self.fragments_to(pass).is_some_and(|to| self.packet_size(pass, frame, pool) > to)
                || self.puts_in_front(pass, frame, pool))
    }

    /// How long the fragments are at most in which the frame of a pass goes on.
    #[inline]
    pub(super) fn fragments_to(&self, pass: Pass) -> Option<usize> {
        let chain = &*self.live[pass.at].chain;
        let goes_on = matches!(self.outcome.verdict, Verdict::Forward | Verdict::Redirect);
        if !(chain.code.fragments && goes_on) {
            return None;
        }
        let edits = &self.outcome.edits;
        let is_fragment = |edit: &TupleEdit| match edit.target {
            EditTarget::HeaderChange(id) => chain.program.is_fragment(id),
            _ => false,
        };
        let at = edits.iter().rposition(is_fragment)?;
        cut_to(&edits[..at])
    }

    /// Puts the fragments of a frame that has its other changes into `parts`, or itself if it is not to be cut.
    #[cold]
    pub(super) fn fragment(
        &mut self,
        pass: Pass,
        to: usize,
        mut frame: Frame,
        parts: &mut Vec<Frame>,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        // What stands for several packets, each of which is short enough, is cut by a device.
        let network = self.network_of(pass, &frame, pool).filter(|_| frame.meta.offload.gso.is_none());
        match network.map(|network| pool.fragment(&mut frame, network, to, parts)) {
            Some(Ok(true)) => pool.give(frame),
            Some(Ok(false)) | None => parts.push(frame),
            Some(Err(_)) => self.lose(Lost::NotCut, frame, pool, watch),
        }
    }

    fn packet_size(&self, pass: Pass, frame: &Frame, pool: &Pool) -> usize {
        packet_size(pool.bytes(frame), &frame.meta.offload, self.is_ip(pass))
    }

    /// Where the packet of a frame begins.
    fn network_of(&self, pass: Pass, frame: &Frame, pool: &Pool) -> Option<usize> {
        if self.is_ip(pass) { Some(0) } else { network_at(pool.bytes(frame)) }
    }

    /// Whether the frames of a chain begin with IP.
    fn is_ip(&self, pass: Pass) -> bool {
        self.live[pass.at].chain.program.frames.as_ref().is_some_and(|frames| frames.is_ip)
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
        match self.network_of(pass, &frame, pool).map(|network| pool.segment(&frame, network, &mut segments))
        {
            Some(Ok(())) => pool.give(frame),
            _ => self.lose(Lost::NotCut, frame, pool, watch),
        }
        segments
    }

    /// Whether headers are put in front of all of a frame. What is cut to less than it is by then stands for itself.
    fn puts_in_front(&self, pass: Pass, frame: &Frame, pool: &Pool) -> bool {
        let all = &self.live[pass.at].chain.program.header_changes;
        let slots = &self.slots[pass.nth * self.stride..][..self.stride];
        let edits = &self.outcome.edits;
        let mut len = frame.len();
        for (at, edit) in edits.iter().enumerate() {
            let EditTarget::HeaderChange(id) = edit.target else { continue };
            match all.get(usize::from(id)).map(|decl| &decl.what) {
                Some(HeaderChange::Push { behind: None, .. }) => return true,
                Some(HeaderChange::Push { behind: Some(_), stacks }) => {
                    let stack = stack_for(stacks, pool.bytes(frame));
                    len += stack.map_or(0, |stack| stack.bytes.len());
                }
                Some(HeaderChange::Pop { layer, how, .. }) => {
                    let Some(layer) = slots.get(usize::from(*layer)).map(Bounds::of) else { continue };
                    len = match how {
                        Pop::To => layer.end.min(len).saturating_sub(layer.at),
                        Pop::Alone(_) => len.saturating_sub(layer.bytes),
                    };
                }
                Some(HeaderChange::Cut) if cut_to(&edits[..at]).is_some_and(|to| to < len) => return false,
                Some(HeaderChange::Cut | HeaderChange::Fragment) | None => {}
            }
        }
        false
    }

    /// Takes a frame through the rest of its stages.
    fn go_on(&mut self, now: Time, mut way: Way, mut frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        let pass = way.pass;
        let n = way.stages(&self.live[pass.at].chain.code).len();
        while way.nth < n {
            let may_have_changed = self.run_stage(&way, &frame, pool);
            if self.is_to_be_cut(pass, &frame, pool) || self.fragments_to(pass).is_some() {
                return self.go_on_in_parts(now, way, frame, pool, watch);
            }
            if let Err(undone) = self.carry_out(pass, way.present, &mut frame, pool) {
                return self.give_up(pass, undone, frame, pool, watch);
            }
            if !self.goes_on(&mut way) {
                return self.give_verdict(pass, frame, pool, watch);
            }
            if may_have_changed || !self.outcome.edits.is_empty() {
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

    /// Cuts a frame that a stage has passed, if it stands for several or goes on in fragments, and takes each packet
    /// through the rest.
    fn go_on_in_parts(
        &mut self,
        now: Time,
        mut way: Way,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let changed = self.carry_out_in_parts(way.pass, way.present, frame, pool, watch);
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

    /// The packets that a frame stands for, and the fragments of each, with the changes of a pass.
    pub(super) fn carry_out_in_parts(
        &mut self,
        pass: Pass,
        present: InputSet,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) -> Vec<Frame> {
        let mut segments = match self.is_to_be_cut(pass, &frame, pool) {
            true => self.cut(pass, frame, pool, watch),
            false => vec![frame],
        };
        let to = self.fragments_to(pass);
        let mut changed = Vec::with_capacity(segments.len());
        for mut segment in segments.drain(..) {
            match (self.carry_out(pass, present, &mut segment, pool), to) {
                (Ok(()), None) => changed.push(segment),
                (Ok(()), Some(to)) => self.fragment(pass, to, segment, &mut changed, pool, watch),
                (Err(undone), _) => self.give_up(pass, undone, segment, pool, watch),
            }
        }
        self.segments = segments;
        changed
    }

    /// Whether a frame goes on behind a stage, which is done with then.
    fn goes_on(&mut self, way: &mut Way) -> bool {
        way.nth += 1;
        way.delay = self.outcome.delay;
        self.live[way.pass.at].chain.code.note_said(&self.outcome.edits, &mut way.said);
        match self.outcome.verdict {
            Verdict::Forward => true,
            Verdict::Redirect => {
                self.outcome.materialize();
                if self.outcome.text == HOLD.as_bytes() {
                    return false;
                }
                way.redirect = Some((self.outcome.element, self.outcome.line));
                core::mem::swap(&mut self.outcome.text, &mut self.target);
                true
            }
            _ => false,
        }
    }

    /// Runs the code of a stage: whether that may have changed the frame. What it leaves is told as of the whole chain.
    fn run_stage(&mut self, way: &Way, frame: &Frame, pool: &mut Pool) -> bool {
        let Way { pass, nth, present, is_traced, delay, .. } = *way;
        let live = &mut self.live[pass.at];
        let code = &live.chain.code;
        let Stage { code: stage, first } = &way.stages(code)[nth];
        self.outcome.clear();
        let mut cx = Cx {
            rand: if code.draws { rand_base(self.config.seed, frame.id()) } else { 0 },
            slots: &self.slots[pass.nth * self.stride..][..code.inputs],
            present,
            regions: [self.plan.ports[usize::from(pass.port)].as_bytes(); REGIONS],
            offload: frame.meta.offload,
            egress: if way.redirect.is_some() { &self.target } else { &[] },
            trace: self.config.clock.filter(|_| is_traced),
            ..Cx::new(
                self.now,
                &live.state,
                &mut self.call,
                &mut self.outcome,
                &mut live.counters[usize::from(*first)..],
            )
        };
        stage.run_on(&mut cx, pool.bytes_mut(frame));
        self.outcome.element += first;
        // Only now: code that undoes all that it did goes back to an outcome that is clear.
        self.outcome.delay = Interval(delay.0.saturating_add(self.outcome.delay.0));
        stage.changes_frames()
    }

    /// Parses a frame into the slots of the one whose pass this is, if another stage looks at it.
    fn parse_again(&mut self, now: Time, way: &Way, frame: &Frame, pool: &Pool) -> Result<InputSet, u32> {
        let pass = way.pass;
        if way.nth == way.stages(&self.live[pass.at].chain.code).len() {
            return Ok(way.present);
        }
        let port = self.plan.ports[usize::from(pass.port)].as_bytes();
        let live = &mut self.live[pass.at];
        let followed = self.followed.get(self.chunk_at + pass.nth).map(slice::from_ref).unwrap_or_default();
        let batch = Arrived { now, frames: slice::from_ref(frame), port, pool, followed, said: way.said };
        self.outcome.clear();
        let mut cx = Cx {
            given: &mut self.slots[pass.nth * self.stride..][..self.stride],
            regions: [port; REGIONS],
            ..Cx::new(self.now, &live.state, &mut self.call, &mut self.outcome, &mut live.counters)
        };
        cx.regions[REGION_BODY] = pool.bytes(frame);
        live.chain.code.parse(&mut cx, &batch, 0)?;
        Ok(cx.present)
    }

    /// A frame breaks a rule of a wire format now that it has other headers. It is counted as one of the chain already.
    #[cold]
    fn malformed(&mut self, pass: Pass, check: u32, frame: Frame, pool: &mut Pool, watch: Watcher<'_, '_>) {
        self.live[pass.at].frames -= 1;
        let found = Found::Malformed { at: pass.at as u16, in_condition: false, check };
        self.refuse(found, frame, pool, watch);
    }
}
