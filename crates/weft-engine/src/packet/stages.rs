//! Runs chains with several stages, and cuts packets before they get new headers.
//!
//! A chain is split behind each element that changes the structure of frames, unless it is the last. A frame passes a
//! stage, is edited, is parsed again if the edits changed it, and passes the next stage. So each element sees the frame
//! as the elements before have left it.

use super::active::{ArrivedBatch, ChainMatch, Code, Stage, UserMetadata};
use super::reshape::{Bounds, cut_to, stack_for};
use super::stats::DropReason;
use super::{PacketEngine, Pass, Watcher, rand_base};
use core::slice;
use weft_core::abi::{Cx, EditTarget, HOLD, REGION_BODY, REGIONS, TupleEdit, Verdict};
use weft_core::frame::{Frame, Pool, network_at, packet_size};
use weft_core::inputs::InputSet;
use weft_core::wire::header_change::{HeaderChange, Pop};
use weft_core::{Interval, Time};

/// A frame's position in the stages of a chain.
#[derive(Clone, Copy)]
pub(super) struct StageCursor {
    pass: Pass,
    /// For a held frame: the tail that it passes; None: the whole chain.
    tail: Option<usize>,
    /// The next stage.
    nth: usize,
    /// The present inputs.
    present: InputSet,
    is_traced: bool,
    /// The sum of the delays so far.
    delay: Interval,
    /// The user metadata that the stages so far have set.
    user_metadata: UserMetadata,
    /// The element that redirected it, and the line; the port is in [`PacketEngine::target`].
    redirect: Option<(u16, u32)>,
}

impl StageCursor {
    /// Returns the start of a tail, for a frame that was held.
    pub(super) fn of_tail(pass: Pass, tail: usize) -> Self {
        Self {
            pass,
            tail: Some(tail),
            nth: 0,
            present: InputSet::EMPTY,
            is_traced: false,
            delay: Interval::ZERO,
            user_metadata: UserMetadata::default(),
            redirect: None,
        }
    }

    /// Returns the stages that the cursor walks: those of the whole chain, or of a tail.
    fn stages<'c>(&self, code: &'c Code) -> &'c [Stage] {
        match self.tail {
            None => &code.stages,
            Some(tail) => &code.tails[tail].stages,
        }
    }
}

impl PacketEngine {
    /// Runs a frame through all stages of its chain, and sends it.
    pub(super) fn pass_stages(
        &mut self,
        now: Time,
        pass: Pass,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let present = self.present[pass.nth];
        self.chains[pass.at].frames += 1;
        self.now = frame.arrived(now).max(self.now);
        let is_traced = self.chains[pass.at].tracing.begin(now);
        let user_metadata = UserMetadata::default();
        let cursor = StageCursor {
            pass,
            tail: None,
            nth: 0,
            present,
            is_traced,
            delay: Interval::ZERO,
            user_metadata,
            redirect: None,
        };
        self.run_stages(now, cursor, frame, pool, watch);
    }

    /// Runs a held frame through the tail of its chain.
    pub(super) fn resume_stages(
        &mut self,
        now: Time,
        cursor: StageCursor,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        match self.parse_again(now, &cursor, &frame, pool) {
            Ok(present) => self.run_stages(now, StageCursor { present, ..cursor }, frame, pool, watch),
            Err(check) => self.drop_malformed(cursor.pass, check, frame, pool, watch),
        }
    }

    /// Whether a GSO frame must be cut here: the pass adds headers in front or fragments it. No device can cut a packet
    /// inside a tunnel, or a fragment.
    #[inline]
    pub(super) fn is_to_be_cut(&self, pass: Pass, frame: &Frame, pool: &Pool) -> bool {
        frame.meta.offload.gso.is_some()
            && (self.fragments_to(pass).is_some_and(|to| self.packet_size(pass, frame, pool) > to)
                || self.puts_in_front(pass, frame, pool))
    }

    /// Returns the maximum length of the fragments in which the frame of a pass leaves. None if the pass does not
    /// fragment it.
    #[inline]
    pub(super) fn fragments_to(&self, pass: Pass) -> Option<usize> {
        let chain = &*self.chains[pass.at].chain;
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

    /// Appends the fragments of an edited frame to `parts`, or the frame itself if it is short enough.
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
        // A device cuts a GSO frame whose packets are short enough.
        let network = self.network_of(pass, &frame, pool).filter(|_| frame.meta.offload.gso.is_none());
        match network.map(|network| pool.fragment(&mut frame, network, to, parts)) {
            Some(Ok(true)) => pool.give(frame),
            Some(Ok(false)) | None => parts.push(frame),
            Some(Err(_)) => self.drop_frame(DropReason::NotCut, frame, pool, watch),
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
        self.chains[pass.at].chain.program.frames.as_ref().is_some_and(|frames| frames.is_ip)
    }

    /// Cuts a GSO frame into its packets. Returns none if that is not possible, and the frame is dropped. The rows of
    /// the pass are emitted once, for the frame that arrived.
    #[cold]
    pub(super) fn cut_frame(
        &mut self,
        pass: Pass,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) -> Vec<Frame> {
        self.collect_rows(pass.at);
        self.outcome.rows.clear();
        self.outcome.cells.clear();
        let mut segments = core::mem::take(&mut self.segments);
        match self.network_of(pass, &frame, pool).map(|network| pool.segment(&frame, network, &mut segments))
        {
            Some(Ok(())) => pool.give(frame),
            _ => self.drop_frame(DropReason::NotCut, frame, pool, watch),
        }
        segments
    }

    /// Whether headers are added in front of the whole frame. A frame that was cut to less than its length is one
    /// packet.
    fn puts_in_front(&self, pass: Pass, frame: &Frame, pool: &Pool) -> bool {
        let all = &self.chains[pass.at].chain.program.header_changes;
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

    /// Runs a frame through its remaining stages.
    fn run_stages(
        &mut self,
        now: Time,
        mut cursor: StageCursor,
        mut frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let pass = cursor.pass;
        let n = cursor.stages(&self.chains[pass.at].chain.code).len();
        while cursor.nth < n {
            let may_have_changed = self.run_stage(&cursor, &frame, pool);
            if self.is_to_be_cut(pass, &frame, pool) || self.fragments_to(pass).is_some() {
                return self.run_stages_in_parts(now, cursor, frame, pool, watch);
            }
            if let Err(error) = self.apply_outcome(pass, cursor.present, &mut frame, pool) {
                return self.fail_edit(pass, error, frame, pool, watch);
            }
            if !self.continue_to_next_stage(&mut cursor) {
                return self.apply_verdict(pass, frame, pool, watch);
            }
            if may_have_changed || !self.outcome.edits.is_empty() {
                match self.parse_again(now, &cursor, &frame, pool) {
                    Ok(present) => cursor.present = present,
                    Err(check) => return self.drop_malformed(pass, check, frame, pool, watch),
                }
            }
        }
        self.outcome.clear();
        self.outcome.delay = cursor.delay;
        if let Some((element, line)) = cursor.redirect {
            (self.outcome.element, self.outcome.line) = (element, line);
            self.outcome.verdict = Verdict::Redirect;
            core::mem::swap(&mut self.outcome.text, &mut self.target);
        }
        self.apply_verdict(pass, frame, pool, watch);
    }

    /// Cuts a GSO frame, or a frame to be fragmented, after a stage, and runs each packet through the remaining stages.
    fn run_stages_in_parts(
        &mut self,
        now: Time,
        mut cursor: StageCursor,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        let changed = self.apply_outcome_in_parts(cursor.pass, cursor.present, frame, pool, watch);
        if !self.continue_to_next_stage(&mut cursor) {
            return changed
                .into_iter()
                .for_each(|segment| self.apply_verdict(cursor.pass, segment, pool, watch));
        }
        // A later stage may redirect some of the packets and not others.
        let (target, call) = (self.target.clone(), self.call.clone());
        for segment in changed {
            self.target.clone_from(&target);
            self.call.clone_from(&call);
            match self.parse_again(now, &cursor, &segment, pool) {
                Ok(present) => self.run_stages(now, StageCursor { present, ..cursor }, segment, pool, watch),
                Err(check) => self.drop_malformed(cursor.pass, check, segment, pool, watch),
            }
        }
    }

    /// Cuts a GSO frame into packets if necessary, applies the outcome of a pass to each, and fragments them. Returns
    /// the edited frames.
    pub(super) fn apply_outcome_in_parts(
        &mut self,
        pass: Pass,
        present: InputSet,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) -> Vec<Frame> {
        let mut segments = match self.is_to_be_cut(pass, &frame, pool) {
            true => self.cut_frame(pass, frame, pool, watch),
            false => vec![frame],
        };
        let to = self.fragments_to(pass);
        let mut changed = Vec::with_capacity(segments.len());
        for mut segment in segments.drain(..) {
            match (self.apply_outcome(pass, present, &mut segment, pool), to) {
                (Ok(()), None) => changed.push(segment),
                (Ok(()), Some(to)) => self.fragment(pass, to, segment, &mut changed, pool, watch),
                (Err(error), _) => self.fail_edit(pass, error, segment, pool, watch),
            }
        }
        self.segments = segments;
        changed
    }

    /// Completes a stage and returns whether the frame goes on to the next one.
    fn continue_to_next_stage(&mut self, cursor: &mut StageCursor) -> bool {
        cursor.nth += 1;
        cursor.delay = self.outcome.delay;
        self.chains[cursor.pass.at]
            .chain
            .code
            .record_user_metadata(&self.outcome.edits, &mut cursor.user_metadata);
        match self.outcome.verdict {
            Verdict::Forward => true,
            Verdict::Redirect => {
                self.outcome.materialize();
                if self.outcome.text == HOLD.as_bytes() {
                    return false;
                }
                cursor.redirect = Some((self.outcome.element, self.outcome.line));
                core::mem::swap(&mut self.outcome.text, &mut self.target);
                true
            }
            _ => false,
        }
    }

    /// Runs the code of a stage; returns whether it may have changed the frame. Its outcome counts as one of the whole
    /// chain.
    fn run_stage(&mut self, cursor: &StageCursor, frame: &Frame, pool: &mut Pool) -> bool {
        let StageCursor { pass, nth, present, is_traced, delay, .. } = *cursor;
        let active = &mut self.chains[pass.at];
        let code = &active.chain.code;
        let Stage { code: stage, first } = &cursor.stages(code)[nth];
        self.outcome.clear();
        let mut cx = Cx {
            rand: if code.draws { rand_base(self.config.seed, frame.id()) } else { 0 },
            slots: &self.slots[pass.nth * self.stride..][..code.inputs],
            present,
            regions: [self.plan.ports[usize::from(pass.port)].as_bytes(); REGIONS],
            offload: frame.meta.offload,
            egress: if cursor.redirect.is_some() { &self.target } else { &[] },
            trace: self.config.clock.filter(|_| is_traced),
            ..Cx::new(
                self.now,
                &active.state,
                &mut self.call,
                &mut self.outcome,
                &mut active.counters[usize::from(*first)..],
            )
        };
        stage.run_on(&mut cx, pool.bytes_mut(frame));
        self.outcome.element += first;
        // Only now: code that rolls back returns to a clear outcome.
        self.outcome.delay = Interval(delay.0.saturating_add(self.outcome.delay.0));
        stage.changes_frames()
    }

    /// Parses a frame into its slots again, if another stage reads it. Returns its present inputs; `Err` holds the
    /// check that the frame breaks.
    fn parse_again(
        &mut self,
        now: Time,
        cursor: &StageCursor,
        frame: &Frame,
        pool: &Pool,
    ) -> Result<InputSet, u32> {
        let pass = cursor.pass;
        if cursor.nth == cursor.stages(&self.chains[pass.at].chain.code).len() {
            return Ok(cursor.present);
        }
        let port = self.plan.ports[usize::from(pass.port)].as_bytes();
        let active = &mut self.chains[pass.at];
        let followed =
            self.fragment_info.get(self.chunk_at + pass.nth).map(slice::from_ref).unwrap_or_default();
        let batch = ArrivedBatch {
            now,
            frames: slice::from_ref(frame),
            port,
            pool,
            fragment_info: followed,
            user_metadata: cursor.user_metadata,
        };
        self.outcome.clear();
        let mut cx = Cx {
            given: &mut self.slots[pass.nth * self.stride..][..self.stride],
            regions: [port; REGIONS],
            ..Cx::new(self.now, &active.state, &mut self.call, &mut self.outcome, &mut active.counters)
        };
        cx.regions[REGION_BODY] = pool.bytes(frame);
        active.chain.code.parse(&mut cx, &batch, 0)?;
        Ok(cx.present)
    }

    /// Drops a frame that breaks a check after its headers changed. It is already counted as a frame of the chain.
    #[cold]
    fn drop_malformed(
        &mut self,
        pass: Pass,
        check: u32,
        frame: Frame,
        pool: &mut Pool,
        watch: Watcher<'_, '_>,
    ) {
        self.chains[pass.at].frames -= 1;
        let found = ChainMatch::Malformed { at: pass.at as u16, in_condition: false, check };
        self.refuse(found, frame, pool, watch);
    }
}
