//! Chains as a worker runs them, and the first phase of a batch: which chain a frame takes, and its slots.

use super::fragments::{Begins, Followed, Fragment, Tunnel};
use super::hold::{Tail, holds};
use super::plan::PacketChain;
use super::stats::{End, How, PacketChainStats};
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
use weft_ir::batch::Parsing;
use weft_ir::ir::{InputId, Op};
use weft_ir::program::{
    Carried, ChainProgram, Check, Event, FieldWrite, Frames, Input, InputLocation, Meta, USER_META,
    overlaps_at,
};

/// The code of a chain or of a condition, and what it is given.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) parse: Option<Box<dyn Program>>,
    pub(super) request: Option<Box<dyn Program>>,
    /// Slots of a frame.
    pub(super) inputs: usize,
    /// The inputs that the engine knows and writes to slots.
    metas: Vec<(usize, Meta)>,
    /// The inputs that code has without a slot, which are always there ([`Meta::has_slot`]).
    given: InputSet,
    /// For each input, how it is written.
    pub(super) stores: Vec<Option<FieldWrite>>,
    /// The chain in parts, in the place of `request`, where some element changes the structure of frames: those behind
    /// it look at another frame.
    pub(super) stages: Vec<Stage>,
    /// What frames pass that an element held, for each that may.
    pub(super) tails: Vec<Tail>,
    /// It asks for `rand()`.
    pub(super) draws: bool,
    /// It may leave rows, marks, copies or a delay.
    pub(super) leaves_more: bool,
    /// Its frames may go on in fragments.
    pub(super) fragments: bool,
    /// Inputs that a later fragment has from the first of its packet, and how those are known that tunnels carry.
    inherited: InputSet,
    carried: Vec<Carried>,
    /// Inputs of the last header of some: of a packet's last header the first fragment alone can tell.
    last: InputSet,
    /// Where the packets are that tunnels carry.
    packets: InputSet,
    begins: Begins,
    /// Inputs that are bytes.
    bytes: InputSet,
    version: u64,
    /// Inputs that elements say, and which of [`USER_META`] each is.
    said: Vec<(usize, usize)>,
}

/// A part of a chain, between two looks at a frame.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) code: Box<dyn Program>,
    /// Its first element.
    pub(super) first: u16,
}

/// A chain on this worker.
pub(super) struct Live {
    pub(super) chain: Arc<PacketChain>,
    pub(super) state: State,
    /// By element, and at the end one for the parser.
    pub(super) counters: Vec<Counters>,
    pub(super) ends: Ends,
    /// Frames that took the chain.
    pub(super) frames: u64,
    /// What code that looks ahead has noted of the frames of the batch.
    pub(super) notes: PrefetchSlots,
    /// Its next batches are parsed and pass in phases: most frames are not usual.
    pub(super) n_in_phases: u32,
    /// Which of its passes is timed next: of each chain, since a worker's batches come at one time.
    pub(super) tracing: Tracing,
    malformed: Vec<u64>,
    condition: LiveCondition,
}

/// The condition of a chain on this worker; without one, nothing.
#[derive(Default)]
struct LiveCondition {
    state: State,
    counters: Vec<Counters>,
    malformed: Vec<u64>,
}

/// How elements ended frames, by line.
#[derive(Default)]
pub(super) struct Ends {
    all: Vec<(u16, u32, How, u64)>,
    /// The place of the one that was counted last.
    last: usize,
}

/// Frames that came in together.
pub(super) struct Arrived<'a> {
    pub(super) now: Time,
    pub(super) frames: &'a [Frame],
    /// The name of their port.
    pub(super) port: &'a [u8],
    pub(super) pool: &'a Pool,
    /// What is known of each frame; nothing at all where there are no fragments.
    pub(super) followed: &'a [Followed],
    /// What elements have said of them.
    pub(super) said: Said,
}

/// What elements of earlier stages have said of a frame, in the order of [`USER_META`].
pub(super) type Said = [u32; USER_META.len()];

impl Arrived<'_> {
    /// The first fragment of the packet that a frame is a later one of, and in how many tunnels that was.
    #[inline]
    fn first_of(&self, nth: usize) -> Option<(&[u8], usize)> {
        let followed = self.followed.get(nth)?;
        Some((followed.first.as_deref()?, followed.depth))
    }
}

/// Where a frame of a batch goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// No chain has taken it yet.
    Nothing,
    /// Through the chain `at`.
    Chain { at: u16 },
    /// Nowhere: it breaks a rule of the chain `at`, or of its condition.
    Malformed { at: u16, in_condition: bool, check: u32 },
    /// Nowhere yet: a tunnel carries a fragment in it, as the chain `at` or its condition has found, which is to be
    /// followed first.
    Fragment { at: u16, in_condition: bool },
}

impl Found {
    /// Whether the frame goes nowhere, and that is all.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Nothing | Self::Malformed { .. })
    }

    /// Whether the frame goes through this chain.
    pub(super) fn is_of(&self, chain: usize) -> bool {
        matches!(self, Self::Chain { at } if usize::from(*at) == chain)
    }
}

/// One word: one is written for each frame.
const _: () = assert!(size_of::<Found>() == 8);

/// What the first phase finds of the frames of a batch.
pub(super) struct Finds<'a> {
    /// Where each goes.
    pub(super) found: &'a mut [Found],
    /// Their slots: `stride` for each.
    pub(super) slots: &'a mut [Slot],
    pub(super) stride: usize,
    /// Which of their inputs are not NULL.
    pub(super) present: &'a mut [InputSet],
    /// Of those that break a check, its number.
    pub(super) checks: &'a mut [u32],
}

impl Code {
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
        let begins = frames.map_or_else(Begins::default, begins);
        let are_bytes = inputs.iter().enumerate().filter(|(_, input)| input.ty.repr() == Repr::Bytes);
        let bytes = are_bytes.map(|(at, _)| at).collect();
        let said = |(at, input): (usize, &Input)| match input.place {
            InputLocation::Meta(meta) => Some((at, meta.user_meta_index()?)),
            _ => None,
        };
        Ok(Self {
            inherited,
            last: inputs.iter().enumerate().filter(is_last).map(|(at, _)| at).collect(),
            packets: carried.iter().map(|carried| carried.packet).collect(),
            carried,
            begins,
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
            said: inputs.iter().enumerate().filter_map(said).collect(),
        })
    }

    /// Adds what a pass has said of its frame.
    pub(super) fn note_said(&self, edits: &[TupleEdit], said: &mut Said) {
        for edit in edits {
            let is_it = |(input, _): &&(usize, usize)| edit.target == EditTarget::Input(*input as u16);
            if let (Cell::Int(n), Some((_, at))) = (edit.value, self.said.iter().find(is_it)) {
                said[*at] = n as u32;
            }
        }
    }

    /// Fills the slots of a frame, the `nth` of its batch, and finds which inputs it has. `Err` has the check that it
    /// breaks.
    #[inline(always)]
    pub(super) fn parse(&self, cx: &mut Cx<'_>, batch: &Arrived<'_>, nth: usize) -> Result<(), u32> {
        cx.present = self.given;
        if let Some(parse) = &self.parse {
            parse.run(cx, usize::MAX);
            if cx.out.verdict != Verdict::Forward {
                cx.out.verdict = Verdict::Forward;
                return Err(cx.out.line);
            }
        }
        self.complete(cx, batch, nth)
    }

    /// Adds what the engine knows of a frame that has been parsed, the `nth` of its batch. `Err` as for
    /// [`Code::parse`].
    #[inline]
    fn complete(&self, cx: &mut Cx<'_>, batch: &Arrived<'_>, nth: usize) -> Result<(), u32> {
        for &(at, meta) in &self.metas {
            let Some(slot) = self.meta(meta, batch, &batch.frames[nth]) else { continue };
            cx.given[at] = slot;
            cx.present.insert(at);
        }
        self.inherit_first(cx, batch, nth)
    }

    /// Adds what the engine knows of the frames in `which`, which have been parsed, but for what fragments inherit.
    fn add_metas(&self, which: u64, batch: &Arrived<'_>, finds: &mut Finds<'_>) {
        for &(at, meta) in &self.metas {
            let slots = finds.slots.chunks_exact_mut(finds.stride).zip(&mut *finds.present);
            for (nth, (frame, (slots, present))) in batch.frames.iter().zip(slots).enumerate() {
                if which >> nth & 1 == 1
                    && let Some(slot) = self.meta(meta, batch, frame)
                {
                    slots[at] = slot;
                    present.insert(at);
                }
            }
        }
    }

    /// Adds what the engine knows of all frames of a batch before they are parsed; which inputs those have then.
    pub(super) fn fill_known(&self, batch: &Arrived<'_>, finds: &mut Finds<'_>) -> InputSet {
        self.add_metas(all(batch.frames.len()), batch, finds);
        self.given | self.metas.iter().map(|(at, _)| *at).collect()
    }

    /// Nobody asks for what is in a packet that a tunnel carries in fragments.
    pub(super) fn carries_nothing(&self) -> bool {
        self.carried.is_empty()
    }

    /// Gives a later fragment, the `nth` frame of its batch, what the first of its packet has.
    #[inline]
    fn inherit_first(&self, cx: &mut Cx<'_>, batch: &Arrived<'_>, nth: usize) -> Result<(), u32> {
        match batch.first_of(nth) {
            None => Ok(()),
            Some((first, 0)) => self.inherit(cx, first, self.inherited),
            Some(first) => self.inherit_carried(cx, first, batch.pool.bytes(&batch.frames[nth])),
        }
    }

    /// Whether a tunnel carries a fragment in a frame that has been parsed, which is to be followed.
    #[inline]
    fn carries_fragment(&self, cx: &Cx<'_>, batch: &Arrived<'_>, nth: usize) -> bool {
        if !cx.present.intersects(self.packets) {
            return false;
        }
        let known = batch.followed.get(nth).map_or(0, |followed| followed.depth);
        let frame = batch.pool.bytes(&batch.frames[nth]);
        self.depth_of(cx.given, cx.present, frame, known, |_| true).is_some()
    }

    /// In how many tunnels, more than `known`, a packet is that is such a fragment.
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

    /// Where the packet begins that is in so many tunnels in a frame with these slots.
    fn packet_at(&self, depth: usize, slots: &[Slot], present: InputSet) -> Option<usize> {
        let Carried { packet, .. } = self.carried.get(depth.checked_sub(1)?)?;
        given(*packet, slots, present).map(|slot| slot.b as usize)
    }

    /// The fragment that is in so many tunnels in a frame with these slots that came in at a port.
    fn in_tunnels(
        &self,
        depth: usize,
        (slots, present): (&[Slot], InputSet),
        frame: &[u8],
        port: u16,
        begins: Begins,
    ) -> Option<Fragment> {
        let mut tunnels = [None; CARRIED_MAX];
        let mut carrier = begins.packet_at(frame);
        for (at, (carried, tunnel)) in self.carried.iter().zip(&mut tunnels).take(depth).enumerate() {
            let number = carried.tunnel.and_then(|tunnel| given(tunnel, slots, present));
            let packet = carrier.and_then(|at| frame.get(at..));
            *tunnel = Some(Tunnel::new(packet, number.map_or(0, |number| number.a)));
            carrier = self.packet_at(at + 1, slots, present);
        }
        Fragment::in_tunnels(frame, carrier?, port, begins, tunnels)
    }

    /// The fragment that tunnels carry in a frame with these slots that came in at a port, and how many tunnels, more
    /// than `known`.
    #[cold]
    pub(super) fn carried_in(
        &self,
        (slots, present): (&[Slot], InputSet),
        frame: &[u8],
        port: u16,
        begins: Begins,
        known: usize,
    ) -> Option<(Fragment, usize)> {
        let depth = self.depth_of(slots, present, frame, known, |_| true)?;
        Some((self.in_tunnels(depth, (slots, present), frame, port, begins)?, depth))
    }

    /// The fragment that a frame with these slots is, or that a tunnel in it carries, with the inputs that later ones
    /// have from the first; None if that is nothing.
    pub(super) fn fragment_in(
        &self,
        slots: &[Slot],
        present: InputSet,
        frame: &[u8],
    ) -> Option<(Fragment, InputSet)> {
        let outside = if self.inherited.is_empty() { None } else { Fragment::of(frame, 0, self.begins) };
        match outside {
            Some(fragment) => Some((fragment, self.inherited)),
            None => {
                let (fragment, depth) = self.carried_in((slots, present), frame, 0, self.begins, 0)?;
                Some((fragment, self.inherited_in(depth)))
            }
        }
    }

    /// What a later fragment in so many tunnels has from the first.
    fn inherited_in(&self, depth: usize) -> InputSet {
        match depth.checked_sub(1) {
            None => self.inherited,
            Some(at) => self.carried.get(at).map_or(InputSet::EMPTY, |carried| carried.inherited),
        }
    }

    /// Gives a later fragment that came in so many tunnels what the first of its packet has.
    #[cold]
    fn inherit_carried(
        &self,
        cx: &mut Cx<'_>,
        (first, depth): (&[u8], usize),
        frame: &[u8],
    ) -> Result<(), u32> {
        let is_out = || Fragment::of(frame, 0, self.begins).is_some_and(|fragment| fragment.is_later());
        let here = match self.depth_of(cx.given, cx.present, frame, 0, Fragment::is_later) {
            Some(here) => here,
            None if is_out() => 0,
            None => return Ok(()),
        };
        if here == depth {
            return self.inherit(cx, first, self.inherited_in(here));
        }
        // Elements have taken it out of some, and what is in front of it may be new: the first as they would have left
        // it.
        let Some(out_of) = depth.checked_sub(here) else { return Ok(()) };
        let (slots, present) = self.parse_first(cx, first)?;
        let rest = self.packet_at(out_of, &slots, present).and_then(|at| first.get(at..));
        let link = self.begins.packet_at(frame).map(|at| &frame[..at]);
        match (link, rest) {
            (Some(link), Some(rest)) => self.inherit(cx, &[link, rest].concat(), self.inherited_in(here)),
            _ => Ok(()),
        }
    }

    /// Which of these inputs a later fragment that has some itself takes from the first of its packet.
    pub(super) fn of_first(&self, inherited: InputSet, present: InputSet) -> InputSet {
        inherited & (!present | self.last)
    }

    /// Gives a later fragment what the first of its packet has. Numbers lie at no place in the frame, and runs of bytes
    /// are empty, so that nothing is written.
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

    /// The slots of the first fragment of a packet, and which of them are there.
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

    #[inline]
    fn meta(&self, meta: Meta, batch: &Arrived<'_>, frame: &Frame) -> Option<Slot> {
        let number = |a: u64| Some(Slot { a, b: 0 });
        match meta {
            Meta::Size => number(frame.size() as u64),
            Meta::Index => number(frame.meta.sequence),
            Meta::CallId => number(frame.id()),
            Meta::Version => number(self.version),
            // A program has them without a slot.
            Meta::Port
            | Meta::PacketSize
            | Meta::Flow
            | Meta::IsIcmpError
            | Meta::IsIntact
            | Meta::TunnelDepth => None,
            Meta::Tag | Meta::Label | Meta::Path => {
                meta.user_meta_index().and_then(|at| number(batch.said[at].into()))
            }
            Meta::Method | Meta::Peer | Meta::Status | Meta::Elapsed | Meta::Upstream | Meta::EndedBy => None,
        }
    }
}

impl Live {
    /// A chain on a worker; what it counted under the version before goes on.
    pub(super) fn new(chain: &Arc<PacketChain>, worker: usize, before: &[Self]) -> Self {
        let program = &chain.program;
        let checks = |program: &ChainProgram| program.frames.as_ref().map_or(0, |f| f.checks.len());
        let condition = chain.condition.as_ref().map(|condition| LiveCondition {
            state: condition.state.for_worker(worker),
            counters: vec![Counters::default(); condition.program.elements.len() + 1],
            malformed: vec![0; checks(&condition.program)],
        });
        let mut live = Self {
            state: chain.state.for_worker(worker),
            counters: vec![Counters::default(); program.elements.len() + 1],
            ends: Ends::default(),
            frames: 0,
            notes: PrefetchSlots::default(),
            n_in_phases: 0,
            tracing: Tracing::default(),
            malformed: vec![0; checks(program)],
            condition: condition.unwrap_or_default(),
            chain: Arc::clone(chain),
        };
        if let Some(before) = before.iter().find(|before| before.chain.program.name == program.name) {
            live.go_on_from(before);
        }
        live
    }

    /// Its code, or that of its condition.
    pub(super) fn code(&self, in_condition: bool) -> &Code {
        match &self.chain.condition {
            Some(condition) if in_condition => &condition.code,
            _ => &self.chain.code,
        }
    }

    /// Whether it runs the program of a chain, perhaps with other code.
    pub(super) fn is_of(&self, chain: &PacketChain) -> bool {
        let ours = &self.chain;
        ours.program.name == chain.program.name
            && ours.program.elements.len() == chain.program.elements.len()
            && ours.inputs() == chain.inputs()
    }

    /// Looks at other copies of tables from now on.
    pub(super) fn take_up(&mut self, swap: &Swap) {
        swap.take_up(&mut self.state);
        swap.take_up(&mut self.condition.state);
    }

    fn go_on_from(&mut self, before: &Self) {
        self.frames = before.frames;
        let old = &before.chain.program.elements;
        for (at, element) in self.chain.program.elements.iter().enumerate() {
            let Some(known) = old.iter().position(|old| old.name == element.name) else { continue };
            add_counters(&mut self.counters[at], &before.counters[known]);
            let ends = before.ends.all.iter().filter(|(of, ..)| usize::from(*of) == known);
            self.ends.all.extend(ends.map(|(_, line, how, n)| (at as u16, *line, *how, *n)));
        }
        go_on(&mut self.malformed, checks_of(&self.chain.program), before.checked());
        if let Some(condition) = &self.chain.condition {
            let checks = checks_of(&condition.program);
            go_on(&mut self.condition.malformed, checks, before.checked_in_condition());
        }
    }

    /// Checks of wire formats, and how many frames broke each.
    fn checked(&self) -> impl Iterator<Item = (&Check, u64)> {
        checks_of(&self.chain.program).iter().zip(self.malformed.iter().copied())
    }

    /// As [`Live::checked`], of the condition.
    fn checked_in_condition(&self) -> impl Iterator<Item = (&Check, u64)> {
        let condition = self.chain.condition.as_ref();
        let checks = condition.map_or(&[][..], |condition| checks_of(&condition.program));
        checks.iter().zip(self.condition.malformed.iter().copied())
    }

    /// How many frames were ended by elements and checks that are not in what goes on.
    pub(super) fn ended_by_gone(&self, after: &[Self]) -> u64 {
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

    /// Takes those of the frames in `open` that meet the condition: their slots are filled. Which frames no chain
    /// behind is asked about: those, and others of which it is known now where they go.
    pub(super) fn claim(
        &mut self,
        at: u16,
        open: u64,
        batch: &Arrived<'_>,
        finds: &mut Finds<'_>,
        (out, call): (&mut Outcome, &mut [u64]),
    ) -> u64 {
        out.clear();
        let (met, decided) = self.ask(at, open, batch, finds, (&mut *out, &mut *call));
        let code = &self.chain.code;
        let Finds { slots, stride, present, checks, .. } = &mut *finds;
        let mut cx = Cx {
            regions: [batch.port; REGIONS],
            present: code.given,
            ..Cx::new(batch.now, &self.state, &mut *call, &mut *out, &mut self.counters)
        };
        let Arrived { frames, pool, .. } = *batch;
        let broken = match &code.parse {
            Some(parse) => {
                let (slots, stride, present, checks) = (&mut **slots, *stride, &mut **present, &mut **checks);
                parse
                    .parse_all(&mut cx, Parsing { frames, pool, wanted: met, slots, stride, present, checks })
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
        let Finds { found, slots, stride, present, checks } = finds;
        if parsed == all(frames.len()) {
            found.fill(Found::Chain { at });
        } else {
            for (nth, (found, check)) in found.iter_mut().zip(&**checks).enumerate() {
                match (met >> nth & 1, broken >> nth & 1) {
                    (0, _) => {}
                    (_, 0) => *found = Found::Chain { at },
                    _ => *found = Found::Malformed { at, in_condition: false, check: *check },
                }
            }
        }
        // Tunnels may carry fragments, and later ones inherit.
        let are_fragments = !batch.followed.is_empty();
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
                        found[nth] = Found::Fragment { at, in_condition: false };
                    }
                }
                Err(check) => found[nth] = Found::Malformed { at, in_condition: false, check },
            }
        }
        met | decided
    }

    /// Asks the condition about the frames in `open`: which meet it, and of which it is known now where they go.
    #[inline]
    fn ask(
        &mut self,
        at: u16,
        open: u64,
        batch: &Arrived<'_>,
        finds: &mut Finds<'_>,
        (out, call): (&mut Outcome, &mut [u64]),
    ) -> (u64, u64) {
        let Some(condition) = &self.chain.condition else { return (open, 0) };
        let (live, mut met, mut decided) = (&mut self.condition, 0, 0);
        let slots = finds.slots.chunks_exact_mut(finds.stride);
        for (nth, (frame, slots)) in batch.frames.iter().zip(slots).enumerate() {
            if open >> nth & 1 == 0 {
                continue;
            }
            let mut cx = Cx {
                given: slots,
                regions: [batch.port; REGIONS],
                ..Cx::new(batch.now, &live.state, &mut *call, &mut *out, &mut live.counters)
            };
            cx.regions[REGION_BODY] = batch.pool.bytes(frame);
            match condition.code.meets(cx, batch, nth) {
                Ok(true) => met |= 1 << nth,
                Ok(false) => {}
                Err(unmet) => {
                    decided |= 1 << nth;
                    finds.found[nth] = match unmet {
                        Unmet::Malformed(check) => Found::Malformed { at, in_condition: true, check },
                        Unmet::Fragment(present) => {
                            finds.present[nth] = present;
                            Found::Fragment { at, in_condition: true }
                        }
                    };
                }
            }
        }
        (met, decided)
    }

    /// The rule that fragments break which overlap another, and whether it is one of the condition.
    pub(super) fn overlap(&self, version: u8) -> Option<(bool, u32)> {
        let condition = self.chain.condition.as_ref().map(|condition| (true, &condition.program));
        let mut programs = condition.into_iter().chain([(false, &self.chain.program)]);
        programs.find_map(|(in_condition, program)| {
            Some((in_condition, program.frames.as_ref()?.overlaps[overlaps_at(version)]?))
        })
    }

    /// Counts a malformed frame; the rule that it breaks.
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

    pub(super) fn stats(&self, clock_ns: u64) -> PacketChainStats {
        let program = &self.chain.program;
        // Counters without the time that measuring took.
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
        let mut ends: Vec<End> = self.ends.all.iter().map(|end| self.end(end)).collect();
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

    fn end(&self, &(element, line, how, n): &(u16, u32, How, u64)) -> End {
        End { element: self.name(element).to_owned(), line, how, n }
    }
}

/// The parts of a chain from an element on, where one sees another frame than the one before it did, or that one may
/// hold frames; none of a whole chain that has one part.
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
    // What stands in front of the first is a part of its own.
    let parts = program.cut(&starts).into_iter().skip(1);
    for (first, part) in starts.iter().zip(parts) {
        if !part.parts(Event::Request).is_empty() {
            let code = backend.compile(&Arc::new(part), Event::Request, state)?;
            stages.push(Stage { code, first: *first as u16 });
        }
    }
    Ok(stages)
}

/// The tails of a chain, from each element on that may hold frames.
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

/// A bit for each of so many frames of a batch.
pub(super) fn all(frames: usize) -> u64 {
    u64::MAX.checked_shr((BATCH_MAX - frames.min(BATCH_MAX)) as u32).unwrap_or(0)
}

/// How frames begin that such a parser reads.
pub(super) fn begins(frames: &Frames) -> Begins {
    Begins { is_ip: frames.is_ip, has_labels: frames.has_labels }
}

/// What is known of an input, if it is there.
fn given(input: u16, slots: &[Slot], present: InputSet) -> Option<Slot> {
    present.contains(input).then(|| slots[usize::from(input)])
}

/// Why a condition cannot be asked.
enum Unmet {
    /// The frame breaks this check.
    Malformed(u32),
    /// A fragment that a tunnel carries is to be followed first: what is there of the frame.
    Fragment(InputSet),
}

/// Where in a frame a number lies that the frame does not have.
const NOWHERE: u64 = u64::MAX;

/// What stands for a check that a parser names and its chain does not have.
static NO_CHECK: Check = Check { protocol: String::new(), what: String::new(), line: 0 };

impl Code {
    /// Whether a frame meets this condition.
    fn meets(&self, mut cx: Cx<'_>, batch: &Arrived<'_>, nth: usize) -> Result<bool, Unmet> {
        self.parse(&mut cx, batch, nth).map_err(Unmet::Malformed)?;
        if self.carries_fragment(&cx, batch, nth) {
            return Err(Unmet::Fragment(cx.present));
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

/// What checks counted that are still there.
fn go_on<'c>(counts: &mut [u64], checks: &[Check], before: impl Iterator<Item = (&'c Check, u64)>) {
    for (check, n) in before {
        if let Some(at) = checks.iter().position(|of| of == check) {
            counts[at] = n;
        }
    }
}

impl Ends {
    /// Counts a frame. There are as many entries as the program has lines that end frames, and statuses.
    pub(super) fn count(&mut self, element: u16, line: u32, how: How) {
        let is_it = |(e, l, h, _): &(u16, u32, How, u64)| (*e, *l, *h) == (element, line, how);
        if !self.all.get(self.last).is_some_and(is_it) {
            self.last = self.all.iter().position(is_it).unwrap_or_else(|| {
                self.all.push((element, line, how, 0));
                self.all.len() - 1
            });
        }
        self.all[self.last].3 += 1;
    }
}
