//! The active chains of a packet worker, and the first phase of a batch: finds the chain and the slots of each frame.

use super::fragments::{Fragment, FragmentInfo, LinkFraming, Tunnel};
use super::hold::{Tail, holds};
use super::plan::PacketChain;
use super::stats::{End, EndKind, PacketChainStats};
use crate::rules::Swap;
use crate::state::Bound;
use crate::stats::add_counters;
use crate::tracing::Tracing;
use std::sync::Arc;
use weft_core::Time;
use weft_core::abi::{
    Cell, Counters, Cx, EditTarget, Outcome, REGION_BODY, REGIONS, Slot, State, TupleEdit, Verdict,
};
use weft_core::frame::{BATCH_MAX, Frame, Pool};
use weft_core::inputs::InputSet;
use weft_core::prefetch::PrefetchSlots;
use weft_core::types::Repr;
use weft_core::wire::CARRIED_MAX;
use weft_core::wire::header_change::HeaderChange;
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::batch::ParseBatch;
use weft_ir::ir::{InputId, Op};
use weft_ir::program::{
    Carried, ChainProgram, Check, Event, FieldWrite, Frames, Input, InputLocation, Meta, USER_META,
    overlaps_at,
};

/// The compiled code of a chain or of a condition, and its inputs.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) parse: Option<Box<dyn Program>>,
    pub(super) request: Option<Box<dyn Program>>,
    /// The number of slots per frame.
    pub(super) inputs: usize,
    /// The inputs that the engine writes to slots.
    metas: Vec<(usize, Meta)>,
    /// The inputs without a slot, which are always present ([`Meta::has_slot`]).
    given: InputSet,
    /// Per input: how it is written to the frame.
    pub(super) stores: Vec<Option<FieldWrite>>,
    /// The stages of the chain, in place of `request`. A chain has stages if an element changes the structure of
    /// frames; the elements behind it see another frame.
    pub(super) stages: Vec<Stage>,
    /// Per element that may hold frames: the rest of the chain, which held frames pass.
    pub(super) tails: Vec<Tail>,
    /// Calls `rand()`.
    pub(super) draws: bool,
    /// May emit rows, marks, copies or a delay.
    pub(super) leaves_more: bool,
    /// May fragment frames.
    pub(super) fragments: bool,
    /// Inputs that a later fragment inherits from the first of its packet, and how to find packets that tunnels carry.
    inherited: InputSet,
    carried: Vec<Carried>,
    /// Inputs of a last header: only the first fragment of a packet shows which header is the last.
    last: InputSet,
    /// Inputs that locate the packets carried by tunnels.
    packets: InputSet,
    framing: LinkFraming,
    /// Inputs of type bytes.
    bytes: InputSet,
    version: u64,
    /// Inputs that are user metadata, and the index of each in [`USER_META`].
    user_metadata: Vec<(usize, usize)>,
}

/// A stage of a chain: a frame is parsed again between two stages.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) code: Box<dyn Program>,
    /// The index of its first element.
    pub(super) first: u16,
}

/// A chain on this worker.
pub(super) struct ActivePacketChain {
    pub(super) chain: Arc<PacketChain>,
    pub(super) state: State,
    /// One for each element, and a last one for the parser.
    pub(super) counters: Vec<Counters>,
    pub(super) ends: Ends,
    /// The number of frames that took the chain.
    pub(super) frames: u64,
    /// The prefetch slots of the batch.
    pub(super) prefetch_slots: PrefetchSlots,
    /// The number of batches that still run in two phases, because most frames took the slow path.
    pub(super) batches_in_phases: u32,
    /// Selects the passes that are timed. Each chain has its own: all batches of a worker may arrive at the same time.
    pub(super) tracing: Tracing,
    malformed: Vec<u64>,
    condition: ActiveCondition,
}

/// The condition of a chain on this worker; empty if it has none.
#[derive(Default)]
struct ActiveCondition {
    state: State,
    counters: Vec<Counters>,
    malformed: Vec<u64>,
}

/// Frames that elements ended, by line.
#[derive(Default)]
pub(super) struct Ends {
    all: Vec<(u16, u32, EndKind, u64)>,
    /// The index of the entry that was counted last.
    last: usize,
}

/// A batch of frames that arrived together.
pub(super) struct ArrivedBatch<'a> {
    pub(super) now: Time,
    pub(super) frames: &'a [Frame],
    /// The name of their port.
    pub(super) port: &'a [u8],
    pub(super) pool: &'a Pool,
    /// Fragment information per frame; empty if there are no fragments.
    pub(super) fragment_info: &'a [FragmentInfo],
    /// User metadata that elements set.
    pub(super) user_metadata: UserMetadata,
}

/// User metadata that elements of earlier stages set on a frame, in the order of [`USER_META`].
pub(super) type UserMetadata = [u32; USER_META.len()];

impl ArrivedBatch<'_> {
    /// For a later fragment: the first fragment of its packet, and the number of tunnels around it.
    #[inline]
    fn first_of(&self, nth: usize) -> Option<(&[u8], usize)> {
        let followed = self.fragment_info.get(nth)?;
        Some((followed.first.as_deref()?, followed.depth))
    }
}

/// The result of classifying a frame of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChainMatch {
    /// No chain has taken it yet.
    Unmatched,
    /// It takes the chain `at`.
    Chain { at: u16 },
    /// It breaks a check of the chain `at`, or of that chain's condition.
    Malformed { at: u16, in_condition: bool, check: u32 },
    /// Not decided: the chain `at` or its condition has found a fragment in a tunnel, which must be tracked first.
    Fragment { at: u16, in_condition: bool },
}

impl ChainMatch {
    /// Whether the frame takes no chain and needs no further work.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Unmatched | Self::Malformed { .. })
    }

    /// Whether the frame takes this chain.
    pub(super) fn is_of(&self, chain: usize) -> bool {
        matches!(self, Self::Chain { at } if usize::from(*at) == chain)
    }
}

/// One word, since one is written per frame.
const _: () = assert!(size_of::<ChainMatch>() == 8);

/// The output of the first phase for a batch.
pub(super) struct ParseOutput<'a> {
    /// The result for each frame.
    pub(super) matches: &'a mut [ChainMatch],
    /// Their slots: `stride` per frame.
    pub(super) slots: &'a mut [Slot],
    pub(super) stride: usize,
    /// Per frame: the inputs that are not NULL.
    pub(super) present: &'a mut [InputSet],
    /// Per frame that breaks a check: the number of the check.
    pub(super) checks: &'a mut [u32],
}

impl Code {
    /// Compiles the code of a program: its parser, its elements in one part or in stages, and the facts that the
    /// engine needs per frame.
    pub(super) fn compile(
        version: u64,
        program: &Arc<ChainProgram>,
        state: &Bound,
        backend: &dyn Backend,
    ) -> Result<Self, Unsupported> {
        let state = state.for_worker(0);
        let parser = program.frames.as_ref().map(|_| backend.compile(program, Event::Parse, &state));
        let parts = program.parts(Event::Request);
        let stages = stages(program, 0, &state, backend)?;
        let tails = tails(program, &state, backend)?;
        let is_whole = stages.is_empty() && !parts.is_empty();
        let request = is_whole.then(|| backend.compile(program, Event::Request, &state));
        let ops =
            || parts.iter().flat_map(|part| &part.function.blocks).flat_map(|b| &b.insts).map(|i| &i.op);
        let is_read = |at: usize| {
            let reads = |op: &Op| match op {
                Op::Input(InputId(id)) | Op::InputPresent(InputId(id)) => usize::from(*id) == at,
                _ => false,
            };
            ops().any(reads)
        };
        let inputs = &program.request.inputs;
        let metas = inputs.iter().enumerate().filter_map(|(at, input)| match input.place {
            InputLocation::Meta(meta) if is_read(at) && meta.has_slot() => Some((at, meta)),
            _ => None,
        });
        let is_given = |input: &Input| matches!(input.place, InputLocation::Meta(meta) if !meta.has_slot());
        let given = inputs.iter().enumerate().filter(|(_, input)| is_given(input));
        let given = given.map(|(at, _)| at).collect();
        let frames = program.frames.as_ref();
        let sound = |store: &Option<FieldWrite>| store.clone().filter(|store| store.at.is_sound());
        let mut stores: Vec<_> =
            frames.into_iter().flat_map(|frames| &frames.field_writes).map(sound).collect();
        stores.resize(inputs.len(), None);
        let inherited = frames.map_or(InputSet::EMPTY, |frames| frames.inherited);
        let is_last =
            |(_, input): &(usize, &Input)| matches!(&input.place, InputLocation::Frame(field) if field.last);
        let carried: Vec<Carried> =
            frames.iter().flat_map(|frames| &frames.carried).copied().take(CARRIED_MAX).collect();
        let begins = frames.map_or_else(LinkFraming::default, begins);
        let are_bytes = inputs.iter().enumerate().filter(|(_, input)| input.ty.repr() == Repr::Bytes);
        let bytes = are_bytes.map(|(at, _)| at).collect();
        let user_metadata = |(at, input): (usize, &Input)| match input.place {
            InputLocation::Meta(meta) => Some((at, meta.user_meta_index()?)),
            _ => None,
        };
        Ok(Self {
            inherited,
            last: inputs.iter().enumerate().filter(is_last).map(|(at, _)| at).collect(),
            packets: carried.iter().map(|carried| carried.packet).collect(),
            carried,
            framing: begins,
            bytes,
            given,
            parse: parser.transpose()?,
            inputs: inputs.len(),
            metas: metas.collect(),
            stores,
            stages,
            tails,
            fragments: program.header_changes.iter().any(|decl| decl.what == HeaderChange::Fragment),
            draws: ops().any(|op| matches!(op, Op::Rand(_))),
            leaves_more: ops()
                .any(|op| matches!(op, Op::Emit(..) | Op::Mark(..) | Op::Mirror(_) | Op::Delay(_))),
            request: request.transpose()?,
            version,
            user_metadata: inputs.iter().enumerate().filter_map(user_metadata).collect(),
        })
    }

    /// Copies the user metadata that a pass has set to `user_metadata`.
    pub(super) fn record_user_metadata(&self, edits: &[TupleEdit], user_metadata: &mut UserMetadata) {
        for edit in edits {
            let is_it = |(input, _): &&(usize, usize)| edit.target == EditTarget::Input(*input as u16);
            if let (Cell::Int(n), Some((_, at))) = (edit.value, self.user_metadata.iter().find(is_it)) {
                user_metadata[*at] = n as u32;
            }
        }
    }

    /// Fills the slots of frame `nth` of the batch and determines its present inputs. `Err` holds the check that it
    /// breaks.
    #[inline(always)]
    pub(super) fn parse(&self, cx: &mut Cx<'_>, batch: &ArrivedBatch<'_>, nth: usize) -> Result<(), u32> {
        cx.present = self.given;
        if let Some(parse) = &self.parse {
            parse.run(cx, usize::MAX);
            if cx.out.verdict != Verdict::Forward {
                cx.out.verdict = Verdict::Forward;
                return Err(cx.out.line);
            }
        }
        self.add_engine_inputs(cx, batch, nth)
    }

    /// Adds the engine's inputs to frame `nth` of the batch, which has been parsed, and those that a later fragment
    /// inherits. `Err` as for [`Code::parse`].
    #[inline]
    fn add_engine_inputs(&self, cx: &mut Cx<'_>, batch: &ArrivedBatch<'_>, nth: usize) -> Result<(), u32> {
        for &(at, meta) in &self.metas {
            let Some(slot) = self.meta_slot(meta, batch, &batch.frames[nth]) else { continue };
            cx.given[at] = slot;
            cx.present.insert(at);
        }
        self.inherit_first(cx, batch, nth)
    }

    /// Adds the engine's inputs to the frames in `which`, which have been parsed; not those that fragments inherit.
    fn add_metas(&self, which: u64, batch: &ArrivedBatch<'_>, finds: &mut ParseOutput<'_>) {
        for &(at, meta) in &self.metas {
            let slots = finds.slots.chunks_exact_mut(finds.stride).zip(&mut *finds.present);
            for (nth, (frame, (slots, present))) in batch.frames.iter().zip(slots).enumerate() {
                if which >> nth & 1 == 1
                    && let Some(slot) = self.meta_slot(meta, batch, frame)
                {
                    slots[at] = slot;
                    present.insert(at);
                }
            }
        }
    }

    /// Adds the engine's inputs to all frames of a batch before they are parsed. Returns the inputs that are present
    /// then.
    pub(super) fn fill_known(&self, batch: &ArrivedBatch<'_>, finds: &mut ParseOutput<'_>) -> InputSet {
        self.add_metas(all(batch.frames.len()), batch, finds);
        self.given | self.metas.iter().map(|(at, _)| *at).collect()
    }

    /// Whether no element reads packets that tunnels carry in fragments.
    pub(super) fn has_no_carried_packets(&self) -> bool {
        self.carried.is_empty()
    }

    /// Copies inherited inputs from the first fragment of a packet to a later one, frame `nth` of the batch.
    #[inline]
    fn inherit_first(&self, cx: &mut Cx<'_>, batch: &ArrivedBatch<'_>, nth: usize) -> Result<(), u32> {
        match batch.first_of(nth) {
            None => Ok(()),
            Some((first, 0)) => self.inherit(cx, first, self.inherited),
            Some(first) => self.inherit_carried(cx, first, batch.pool.bytes(&batch.frames[nth])),
        }
    }

    /// Whether a tunnel in a parsed frame carries a fragment that must be tracked.
    #[inline]
    fn carries_fragment(&self, cx: &Cx<'_>, batch: &ArrivedBatch<'_>, nth: usize) -> bool {
        if !cx.present.intersects(self.packets) {
            return false;
        }
        let known = batch.fragment_info.get(nth).map_or(0, |followed| followed.depth);
        let frame = batch.pool.bytes(&batch.frames[nth]);
        self.depth_of(cx.given, cx.present, frame, known, |_| true).is_some()
    }

    /// Returns the number of tunnels, greater than `known`, around a packet for whose fragment `is_it` is true. None
    /// if there is none.
    fn depth_of(
        &self,
        slots: &[Slot],
        present: InputSet,
        frame: &[u8],
        known: usize,
        is_it: impl Fn(&Fragment) -> bool,
    ) -> Option<usize> {
        let is_here = |depth: &usize| {
            let packet = self.packet_at(*depth, slots, present).and_then(|at| frame.get(at..));
            packet.and_then(Fragment::of_carried).is_some_and(|fragment| is_it(&fragment))
        };
        (known + 1..=self.carried.len()).find(is_here)
    }

    /// Where the packet inside that many tunnels begins, in a frame with these slots.
    fn packet_at(&self, depth: usize, slots: &[Slot], present: InputSet) -> Option<usize> {
        let Carried { packet, .. } = self.carried.get(depth.checked_sub(1)?)?;
        present_slot(*packet, slots, present).map(|slot| slot.b as usize)
    }

    /// Describes the fragment inside that many tunnels of a frame, which arrived at this port and was parsed into
    /// these slots.
    fn in_tunnels(
        &self,
        depth: usize,
        (slots, present): (&[Slot], InputSet),
        frame: &[u8],
        port: u16,
        begins: LinkFraming,
    ) -> Option<Fragment> {
        let mut tunnels = [None; CARRIED_MAX];
        let mut carrier = begins.packet_at(frame);
        for (at, (carried, tunnel)) in self.carried.iter().zip(&mut tunnels).take(depth).enumerate() {
            let number = carried.tunnel.and_then(|tunnel| present_slot(tunnel, slots, present));
            let packet = carrier.and_then(|at| frame.get(at..));
            *tunnel = Some(Tunnel::new(packet, number.map_or(0, |number| number.a)));
            carrier = self.packet_at(at + 1, slots, present);
        }
        Fragment::in_tunnels(frame, carrier?, port, begins, tunnels)
    }

    /// Finds the fragment that tunnels carry in a parsed frame, and the number of tunnels around it, greater than
    /// `known`. The frame arrived at this port.
    #[cold]
    pub(super) fn carried_in(
        &self,
        (slots, present): (&[Slot], InputSet),
        frame: &[u8],
        port: u16,
        begins: LinkFraming,
        known: usize,
    ) -> Option<(Fragment, usize)> {
        let depth = self.depth_of(slots, present, frame, known, |_| true)?;
        Some((self.in_tunnels(depth, (slots, present), frame, port, begins)?, depth))
    }

    /// Finds the fragment that a parsed frame is, or that a tunnel in it carries; and the inputs that later fragments
    /// inherit. None if it is no fragment, or if nothing is inherited.
    pub(super) fn fragment_in(
        &self,
        slots: &[Slot],
        present: InputSet,
        frame: &[u8],
    ) -> Option<(Fragment, InputSet)> {
        let outside = if self.inherited.is_empty() { None } else { Fragment::of(frame, 0, self.framing) };
        match outside {
            Some(fragment) => Some((fragment, self.inherited)),
            None => {
                let (fragment, depth) = self.carried_in((slots, present), frame, 0, self.framing, 0)?;
                Some((fragment, self.inherited_in(depth)))
            }
        }
    }

    /// Returns the inputs that a later fragment inside that many tunnels inherits from the first.
    fn inherited_in(&self, depth: usize) -> InputSet {
        match depth.checked_sub(1) {
            None => self.inherited,
            Some(at) => self.carried.get(at).map_or(InputSet::EMPTY, |carried| carried.inherited),
        }
    }

    /// Copies inherited inputs from the first fragment to a later one that arrived in that many tunnels.
    #[cold]
    fn inherit_carried(
        &self,
        cx: &mut Cx<'_>,
        (first, depth): (&[u8], usize),
        frame: &[u8],
    ) -> Result<(), u32> {
        let is_out = || Fragment::of(frame, 0, self.framing).is_some_and(|fragment| fragment.is_later());
        let here = match self.depth_of(cx.given, cx.present, frame, 0, Fragment::is_later) {
            Some(here) => here,
            None if is_out() => 0,
            None => return Ok(()),
        };
        if here == depth {
            return self.inherit(cx, first, self.inherited_in(here));
        }
        // Elements have removed some of its tunnels, and the headers in front may be new: parse the first fragment as
        // they would have left it.
        let Some(out_of) = depth.checked_sub(here) else { return Ok(()) };
        let (slots, present) = self.parse_first(cx, first)?;
        let rest = self.packet_at(out_of, &slots, present).and_then(|at| first.get(at..));
        let link = self.framing.packet_at(frame).map(|at| &frame[..at]);
        match (link, rest) {
            (Some(link), Some(rest)) => self.inherit(cx, &[link, rest].concat(), self.inherited_in(here)),
            _ => Ok(()),
        }
    }

    /// Of these inputs, those that a later fragment takes from the first of its packet, given its own present inputs.
    pub(super) fn of_first(&self, inherited: InputSet, present: InputSet) -> InputSet {
        inherited & (!present | self.last)
    }

    /// Copies the inputs of the first fragment to a later one. Numbers get no location in the frame, and byte runs are
    /// empty, so that nothing is written to the frame.
    #[cold]
    fn inherit(&self, cx: &mut Cx<'_>, first: &[u8], inherited: InputSet) -> Result<(), u32> {
        if inherited.is_empty() {
            return Ok(());
        }
        let (slots, present) = self.parse_first(cx, first)?;
        let new = present & self.of_first(inherited, cx.present);
        for at in new {
            cx.given[at] = match self.bytes.contains(at) {
                true => Slot::default(),
                false => Slot { a: slots[at].a, b: NOWHERE },
            };
        }
        cx.present |= new;
        Ok(())
    }

    /// Parses the first fragment of a packet; returns its slots and its present inputs.
    fn parse_first(&self, cx: &mut Cx<'_>, first: &[u8]) -> Result<(Vec<Slot>, InputSet), u32> {
        let mut slots = vec![Slot::default(); self.inputs];
        let Some(parse) = &self.parse else { return Ok((slots, InputSet::EMPTY)) };
        let mut of_first = Cx {
            given: &mut slots,
            regions: [first; REGIONS],
            ..Cx::new(cx.now, cx.state, &mut *cx.call, &mut *cx.out, &mut *cx.counters)
        };
        parse.run(&mut of_first, usize::MAX);
        let present = of_first.present;
        if cx.out.verdict != Verdict::Forward {
            cx.out.verdict = Verdict::Forward;
            return Err(cx.out.line);
        }
        Ok((slots, present))
    }

    /// Returns the slot of a frame's metadata input. None if the input has no slot or belongs to calls.
    #[inline]
    fn meta_slot(&self, meta: Meta, batch: &ArrivedBatch<'_>, frame: &Frame) -> Option<Slot> {
        let number = |a: u64| Some(Slot { a, b: 0 });
        match meta {
            Meta::Size => number(frame.size() as u64),
            Meta::Index => number(frame.meta.sequence),
            Meta::CallId => number(frame.id()),
            Meta::Version => number(self.version),
            // These inputs have no slot.
            Meta::Port
            | Meta::PacketSize
            | Meta::Flow
            | Meta::IsIcmpError
            | Meta::IsIntact
            | Meta::TunnelDepth => None,
            Meta::Tag | Meta::Label | Meta::Path => {
                meta.user_meta_index().and_then(|at| number(batch.user_metadata[at].into()))
            }
            Meta::Method | Meta::Peer | Meta::Status | Meta::Elapsed | Meta::Upstream | Meta::EndedBy => None,
        }
    }
}

impl ActivePacketChain {
    /// Creates a chain on a worker; counters of the version before continue.
    pub(super) fn new(chain: &Arc<PacketChain>, worker: usize, before: &[Self]) -> Self {
        let program = &chain.program;
        let checks = |program: &ChainProgram| program.frames.as_ref().map_or(0, |f| f.checks.len());
        let condition = chain.condition.as_ref().map(|condition| ActiveCondition {
            state: condition.state.for_worker(worker),
            counters: vec![Counters::default(); condition.program.elements.len() + 1],
            malformed: vec![0; checks(&condition.program)],
        });
        let mut active = Self {
            state: chain.state.for_worker(worker),
            counters: vec![Counters::default(); program.elements.len() + 1],
            ends: Ends::default(),
            frames: 0,
            prefetch_slots: PrefetchSlots::default(),
            batches_in_phases: 0,
            tracing: Tracing::default(),
            malformed: vec![0; checks(program)],
            condition: condition.unwrap_or_default(),
            chain: Arc::clone(chain),
        };
        if let Some(before) = before.iter().find(|before| before.chain.program.name == program.name) {
            active.inherit_counters(before);
        }
        active
    }

    /// Returns the code of the chain, or of its condition.
    pub(super) fn code(&self, in_condition: bool) -> &Code {
        match &self.chain.condition {
            Some(condition) if in_condition => &condition.code,
            _ => &self.chain.code,
        }
    }

    /// Whether it runs the program of this chain; the code may differ.
    pub(super) fn is_of(&self, chain: &PacketChain) -> bool {
        let ours = &self.chain;
        ours.program.name == chain.program.name
            && ours.program.elements.len() == chain.program.elements.len()
            && ours.inputs() == chain.inputs()
    }

    /// Uses other copies of tables from now on.
    pub(super) fn apply_swap(&mut self, swap: &Swap) {
        swap.apply(&mut self.state);
        swap.apply(&mut self.condition.state);
    }

    /// Copies the counters of the version before to this one, for elements and checks with the same name.
    fn inherit_counters(&mut self, before: &Self) {
        self.frames = before.frames;
        let old = &before.chain.program.elements;
        for (at, element) in self.chain.program.elements.iter().enumerate() {
            let Some(known) = old.iter().position(|old| old.name == element.name) else { continue };
            add_counters(&mut self.counters[at], &before.counters[known]);
            let ends = before.ends.all.iter().filter(|(of, ..)| usize::from(*of) == known);
            self.ends.all.extend(ends.map(|(_, line, how, n)| (at as u16, *line, *how, *n)));
        }
        carry_counts(&mut self.malformed, checks_of(&self.chain.program), before.checked());
        if let Some(condition) = &self.chain.condition {
            let checks = checks_of(&condition.program);
            carry_counts(&mut self.condition.malformed, checks, before.checked_in_condition());
        }
    }

    /// The checks of wire formats, and how many frames broke each.
    fn checked(&self) -> impl Iterator<Item = (&Check, u64)> {
        checks_of(&self.chain.program).iter().zip(self.malformed.iter().copied())
    }

    /// Returns the checks of the condition with the numbers of frames that broke them.
    fn checked_in_condition(&self) -> impl Iterator<Item = (&Check, u64)> {
        let condition = self.chain.condition.as_ref();
        let checks = condition.map_or(&[][..], |condition| checks_of(&condition.program));
        checks.iter().zip(self.condition.malformed.iter().copied())
    }

    /// Counts the frames that were ended by elements and checks that `after` no longer has.
    pub(super) fn ended_by_removed(&self, after: &[Self]) -> u64 {
        let after = after.iter().find(|after| after.chain.program.name == self.chain.program.name);
        let has_element = |element: u16| {
            after.is_some_and(|after| {
                after.chain.program.elements.iter().any(|other| other.name == self.name(element))
            })
        };
        let by_elements =
            self.ends.all.iter().filter(|(element, ..)| !has_element(*element)).map(|(.., n)| *n);
        let has_check = |check: &Check| after.is_some_and(|after| after.checked().any(|(of, _)| of == check));
        let has_asked = |check: &Check| {
            after.is_some_and(|after| after.checked_in_condition().any(|(of, _)| of == check))
        };
        let by_checks = self.checked().filter(|(check, _)| !has_check(check));
        let by_asking = self.checked_in_condition().filter(|(check, _)| !has_asked(check));
        by_elements.chain(by_checks.chain(by_asking).map(|(_, n)| n)).sum()
    }

    /// The name of an element.
    pub(super) fn name(&self, element: u16) -> &str {
        self.chain.program.elements.get(usize::from(element)).map_or("", |element| &element.name)
    }

    /// Takes the frames in `open` that meet the condition, and fills their slots. Returns all frames that later chains
    /// need not try: these, and others that are decided now.
    pub(super) fn claim(
        &mut self,
        at: u16,
        open: u64,
        batch: &ArrivedBatch<'_>,
        finds: &mut ParseOutput<'_>,
        (out, call): (&mut Outcome, &mut [u64]),
    ) -> u64 {
        out.clear();
        let (met, decided) = self.test_condition(at, open, batch, finds, (&mut *out, &mut *call));
        let code = &self.chain.code;
        let ParseOutput { slots, stride, present, checks, .. } = &mut *finds;
        let mut cx = Cx {
            regions: [batch.port; REGIONS],
            present: code.given,
            ..Cx::new(batch.now, &self.state, &mut *call, &mut *out, &mut self.counters)
        };
        let ArrivedBatch { frames, pool, .. } = *batch;
        let broken = match &code.parse {
            Some(parse) => {
                let (slots, stride, present, checks) = (&mut **slots, *stride, &mut **present, &mut **checks);
                parse.parse_batch(
                    &mut cx,
                    ParseBatch { frames, pool, wanted: met, slots, stride, present, checks },
                )
            }
            None => {
                let met = |(nth, _): &(usize, &mut InputSet)| met >> nth & 1 == 1;
                let present = present.iter_mut().take(frames.len()).enumerate().filter(met);
                present.for_each(|(_, present)| *present = code.given);
                0
            }
        };
        let parsed = met & !broken;
        code.add_metas(parsed, batch, finds);
        let ParseOutput { matches: found, slots, stride, present, checks } = finds;
        if parsed == all(frames.len()) {
            found.fill(ChainMatch::Chain { at });
        } else {
            for (nth, (found, check)) in found.iter_mut().zip(&**checks).enumerate() {
                match (met >> nth & 1, broken >> nth & 1) {
                    (0, _) => {}
                    (_, 0) => *found = ChainMatch::Chain { at },
                    _ => *found = ChainMatch::Malformed { at, in_condition: false, check: *check },
                }
            }
        }
        // Tunnels may carry fragments, and later fragments inherit inputs.
        let are_fragments = !batch.fragment_info.is_empty();
        if !are_fragments && code.carried.is_empty() {
            return met | decided;
        }
        let mut cx = Cx {
            regions: [batch.port; REGIONS],
            ..Cx::new(batch.now, &self.state, call, out, &mut self.counters)
        };
        for (nth, slots) in slots.chunks_exact_mut(*stride).enumerate().take(frames.len()) {
            let may_be = are_fragments || present[nth].intersects(code.packets);
            if parsed >> nth & 1 == 0 || !may_be {
                continue;
            }
            (cx.given, cx.present) = (slots, present[nth]);
            cx.regions[REGION_BODY] = pool.bytes(&frames[nth]);
            match code.inherit_first(&mut cx, batch, nth) {
                Ok(()) => {
                    present[nth] = cx.present;
                    if code.carries_fragment(&cx, batch, nth) {
                        found[nth] = ChainMatch::Fragment { at, in_condition: false };
                    }
                }
                Err(check) => found[nth] = ChainMatch::Malformed { at, in_condition: false, check },
            }
        }
        met | decided
    }

    /// Evaluates the condition for the frames in `open`. Returns the frames that meet it, and those that are decided
    /// now: malformed ones, and tunnelled fragments.
    #[inline]
    fn test_condition(
        &mut self,
        at: u16,
        open: u64,
        batch: &ArrivedBatch<'_>,
        finds: &mut ParseOutput<'_>,
        (out, call): (&mut Outcome, &mut [u64]),
    ) -> (u64, u64) {
        let Some(condition) = &self.chain.condition else { return (open, 0) };
        let (active, mut met, mut decided) = (&mut self.condition, 0, 0);
        let slots = finds.slots.chunks_exact_mut(finds.stride);
        for (nth, (frame, slots)) in batch.frames.iter().zip(slots).enumerate() {
            if open >> nth & 1 == 0 {
                continue;
            }
            let mut cx = Cx {
                given: slots,
                regions: [batch.port; REGIONS],
                ..Cx::new(batch.now, &active.state, &mut *call, &mut *out, &mut active.counters)
            };
            cx.regions[REGION_BODY] = batch.pool.bytes(frame);
            match condition.code.meets_condition(cx, batch, nth) {
                Ok(true) => met |= 1 << nth,
                Ok(false) => {}
                Err(unmet) => {
                    decided |= 1 << nth;
                    finds.matches[nth] = match unmet {
                        ConditionError::Malformed(check) => {
                            ChainMatch::Malformed { at, in_condition: true, check }
                        }
                        ConditionError::Fragment(present) => {
                            finds.present[nth] = present;
                            ChainMatch::Fragment { at, in_condition: true }
                        }
                    };
                }
            }
        }
        (met, decided)
    }

    /// Returns the check for overlapping fragments, and whether it belongs to the condition. None if no program has
    /// it.
    pub(super) fn overlap(&self, version: u8) -> Option<(bool, u32)> {
        let condition = self.chain.condition.as_ref().map(|condition| (true, &condition.program));
        let mut programs = condition.into_iter().chain([(false, &self.chain.program)]);
        programs.find_map(|(in_condition, program)| {
            Some((in_condition, program.frames.as_ref()?.overlaps[overlaps_at(version)]?))
        })
    }

    /// Counts a malformed frame and returns the check that it breaks.
    pub(super) fn count_malformed(&mut self, in_condition: bool, check: u32) -> &Check {
        let (counts, program) = match (&self.chain.condition, in_condition) {
            (Some(condition), true) => (&mut self.condition.malformed, &condition.program),
            _ => (&mut self.malformed, &self.chain.program),
        };
        let checks = program.frames.as_ref().map_or(&[][..], |frames| &frames.checks);
        let at = (check as usize).min(checks.len().saturating_sub(1));
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
        checks.get(at).unwrap_or(&NO_CHECK)
    }

    /// Returns the counters of this chain; `clock_ns` per sample is the cost of reading the clock, and is subtracted.
    pub(super) fn stats(&self, clock_ns: u64) -> PacketChainStats {
        let program = &self.chain.program;
        // Subtract the time of the measurement itself.
        let without_clock = |c: &Counters| {
            let measuring = c.sampled * clock_ns;
            Counters { sampled_ns: c.sampled_ns.saturating_sub(measuring), ..*c }
        };
        let names = program.elements.iter().map(|element| element.name.clone());
        let counted = |program: &ChainProgram, counts: &[u64]| {
            let checks = program.frames.as_ref().map_or(&[][..], |frames| &frames.checks);
            let counted = checks.iter().cloned().zip(counts.iter().copied());
            counted.filter(|(_, n)| *n > 0).collect::<Vec<_>>()
        };
        let condition = self.chain.condition.as_ref();
        let mut malformed = condition.map_or(Vec::new(), |c| counted(&c.program, &self.condition.malformed));
        malformed.extend(counted(program, &self.malformed));
        let mut ends: Vec<End> = self.ends.all.iter().map(|end| self.describe_end(end)).collect();
        ends.sort_by(|a, b| (&a.element, a.line, a.how).cmp(&(&b.element, b.line, b.how)));
        PacketChainStats {
            chain: program.name.clone(),
            version: self.chain.version,
            frames: self.frames,
            elements: names.zip(self.counters.iter().map(without_clock)).collect(),
            ends,
            malformed,
        }
    }

    fn describe_end(&self, &(element, line, how, n): &(u16, u32, EndKind, u64)) -> End {
        End { element: self.name(element).to_owned(), line, how, n }
    }
}

/// Compiles the stages of a chain from an element on. A new stage begins where an element sees another frame than the
/// one before, and at the given element. Empty for a whole chain with one stage.
fn stages(
    program: &ChainProgram,
    from: usize,
    state: &State,
    backend: &dyn Backend,
) -> Result<Vec<Stage>, Unsupported> {
    let elements = &program.elements;
    let is_cut = |at: &usize| program.needs_reparse_after(at - 1) || holds(&elements[at - 1]);
    let starts: Vec<usize> = [from].into_iter().chain((from + 1..elements.len()).filter(is_cut)).collect();
    if starts == [0] {
        return Ok(Vec::new());
    }
    let mut stages = Vec::new();
    // The elements in front of the first start form a part of their own.
    let parts = program.cut(&starts).into_iter().skip(1);
    for (first, part) in starts.iter().zip(parts) {
        if !part.parts(Event::Request).is_empty() {
            let code = backend.compile(&Arc::new(part), Event::Request, state)?;
            stages.push(Stage { code, first: *first as u16 });
        }
    }
    Ok(stages)
}

/// Compiles the tails of a chain, one from each element that may hold frames.
fn tails(program: &ChainProgram, state: &State, backend: &dyn Backend) -> Result<Vec<Tail>, Unsupported> {
    let holding = program.elements.iter().enumerate().filter(|(_, element)| holds(element));
    let tail = |(at, _)| {
        let stages = match stages(program, at, state, backend)? {
            stages if stages.is_empty() => {
                let code = backend.compile(&Arc::new(program.clone()), Event::Request, state)?;
                vec![Stage { code, first: 0 }]
            }
            stages => stages,
        };
        Ok(Tail { element: at as u16, stages })
    };
    holding.map(tail).collect()
}

/// A bit for each frame of a batch.
pub(super) fn all(frames: usize) -> u64 {
    u64::MAX.checked_shr((BATCH_MAX - frames.min(BATCH_MAX)) as u32).unwrap_or(0)
}

/// The link framing of the frames that a parser reads.
pub(super) fn begins(frames: &Frames) -> LinkFraming {
    LinkFraming { is_ip: frames.is_ip, has_labels: frames.has_labels }
}

/// The slot of an input, if the input is present.
fn present_slot(input: u16, slots: &[Slot], present: InputSet) -> Option<Slot> {
    present.contains(input).then(|| slots[usize::from(input)])
}

/// Why a condition cannot be evaluated.
enum ConditionError {
    /// The frame breaks this check.
    Malformed(u32),
    /// A tunnel carries a fragment that must be tracked first; the present inputs of the frame.
    Fragment(InputSet),
}

/// The location of a number that is not in the frame.
const NOWHERE: u64 = u64::MAX;

/// Stands for a check that a parser names but its chain does not have.
static NO_CHECK: Check = Check { protocol: String::new(), what: String::new(), line: 0 };

impl Code {
    /// Parses a frame and tests whether it meets this condition. `Err`: malformed, or a tunnelled fragment that must
    /// be tracked first.
    fn meets_condition(
        &self,
        mut cx: Cx<'_>,
        batch: &ArrivedBatch<'_>,
        nth: usize,
    ) -> Result<bool, ConditionError> {
        self.parse(&mut cx, batch, nth).map_err(ConditionError::Malformed)?;
        if self.carries_fragment(&cx, batch, nth) {
            return Err(ConditionError::Fragment(cx.present));
        }
        let Some(request) = &self.request else { return Ok(true) };
        let mut cx = Cx { slots: cx.given, given: &mut [], ..cx };
        request.run(&mut cx, usize::MAX);
        let meets = cx.out.verdict == Verdict::Forward;
        cx.out.clear();
        Ok(meets)
    }
}

fn checks_of(program: &ChainProgram) -> &[Check] {
    program.frames.as_ref().map_or(&[], |frames| &frames.checks)
}

/// Copies the counts of checks that still exist from the version before.
fn carry_counts<'c>(counts: &mut [u64], checks: &[Check], before: impl Iterator<Item = (&'c Check, u64)>) {
    for (check, n) in before {
        if let Some(at) = checks.iter().position(|of| of == check) {
            counts[at] = n;
        }
    }
}

impl Ends {
    /// Counts a frame. The program's lines that end frames, and their statuses, bound the number of entries.
    pub(super) fn count(&mut self, element: u16, line: u32, how: EndKind) {
        let is_it = |(e, l, h, _): &(u16, u32, EndKind, u64)| (*e, *l, *h) == (element, line, how);
        if !self.all.get(self.last).is_some_and(is_it) {
            self.last = self.all.iter().position(is_it).unwrap_or_else(|| {
                self.all.push((element, line, how, 0));
                self.all.len() - 1
            });
        }
        self.all[self.last].3 += 1;
    }
}
