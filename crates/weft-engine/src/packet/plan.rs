//! The plan of a packet engine.
//!
//! Like [`crate::plan`] for calls, a [`PacketPlan`] never changes. A hot update publishes the next one between two
//! batches.

use super::active::{Code, begins};
use super::edit::EditError;
use super::fragments::LinkFraming;
use super::group::GroupPlan;
use super::link::LinkPlan;
use super::reader::Reader;
use super::stats::DropReason;
use crate::plan::ChainError;
use crate::state::{Bound, Staged};
use core::iter;
use std::collections::BTreeSet;
use std::sync::Arc;
use weft_core::Interval;
use weft_core::abi::EditTarget;
use weft_core::frame::BATCH_MAX;
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::ir::Op;
use weft_ir::program::{ChainProgram, Event, RowRemoval};

/// The most ports of a plan.
pub const PORTS_MAX: usize = 1024;

/// One version of the packet path of a network.
#[derive(Debug, Default)]
pub struct PacketPlan {
    /// The version, counted from 1.
    pub version: u64,
    /// The names of its ports, at most [`PORTS_MAX`].
    pub ports: Vec<String>,
    /// Port groups.
    pub groups: Vec<GroupPlan>,
    /// Its chains in source order: a frame takes the first chain of its port whose condition it meets.
    pub chains: Vec<Arc<PacketChain>>,
    /// The links, at most one per port and direction.
    pub links: Vec<LinkPlan>,
}

/// Where a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// An index into [`PacketPlan::ports`].
    Port(u16),
    /// An index into [`PacketPlan::groups`].
    Group(u16),
}

/// A chain and its location, before it is built.
#[derive(Clone, Debug)]
pub struct ChainOn {
    /// The program of its elements. Its inputs are those of the request.
    pub program: ChainProgram,
    /// `WHEN`: a program that forwards the matching frames, with its own name and inputs.
    pub condition: Option<ChainProgram>,
    /// Its ingress ports: indices into [`PacketPlan::ports`].
    pub ports: Vec<u16>,
    /// The egress of frames that no element redirects.
    pub to: Option<Outlet>,
}

/// A chain with its code and its state.
#[derive(Debug)]
pub struct PacketChain {
    /// The version of its plan.
    pub version: u64,
    /// The program of its elements.
    pub program: Arc<ChainProgram>,
    /// Its state.
    pub state: Bound,
    /// Its ingress ports.
    pub ports: Vec<u16>,
    /// The egress of frames that no element redirects.
    pub to: Option<Outlet>,
    pub(super) code: Code,
    /// The condition that its frames meet.
    pub(super) condition: Option<Reader>,
    pub(super) every: Every,
    pub(super) timeouts: Timeouts,
}

/// The programs that run once per node in each interval.
pub(super) type Every = Vec<(Interval, Box<dyn Program>)>;

/// The programs that run for rows that have left a table.
pub(super) type Timeouts = Vec<(RowRemoval, Box<dyn Program>)>;

impl PacketPlan {
    /// The index of the port with this name.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.ports.iter().position(|port| port == name).map(|at| at as u16)
    }

    /// Drops the rules and keeps the code made for them, for
    /// [`PacketEngine::apply_code`](super::PacketEngine::apply_code). While a plan holds rules, the next change copies
    /// all of them.
    ///
    /// # Panics
    /// If a chain is shared.
    pub fn forget_rules(&mut self) {
        for chain in &mut self.chains {
            let chain = Arc::get_mut(chain).expect("it is not shared yet");
            chain.state.forget_rules(&chain.program);
        }
    }

    /// Returns the chains of a port, and how many of its frames may be parsed before the first of them passes its
    /// chain. That is one if a condition reads state that a pass may change.
    pub(super) fn classifiers(&self, port: u16) -> (Vec<u16>, usize) {
        let of_port = self.chains.iter().enumerate().filter(|(_, chain)| chain.ports.contains(&port));
        let chains: Vec<u16> = of_port.map(|(at, _)| at as u16).collect();
        let mut conditions = chains.iter().filter_map(|at| self.chains[usize::from(*at)].condition.as_ref());
        let looks = conditions.any(|condition| {
            let program = &condition.program;
            !(program.tables.is_empty() && program.vars.is_empty())
        });
        (chains, if looks { 1 } else { BATCH_MAX })
    }

    /// Returns the link framing of a port whose chains read fields of later fragments that only the first one has.
    /// None for other ports.
    pub(super) fn follows_fragments(&self, port: u16) -> Option<LinkFraming> {
        let of_port = self.chains.iter().filter(|chain| chain.ports.contains(&port));
        let conditions = |chain: &PacketChain| chain.condition.as_ref().map(|c| Arc::clone(&c.program));
        let programs = of_port.flat_map(|chain| [Some(Arc::clone(&chain.program)), conditions(chain)]);
        let framings = programs.flatten().filter_map(|program| {
            let frames = program.frames.as_ref()?;
            (!frames.inherited.is_empty() || !frames.carried.is_empty()).then(|| begins(frames))
        });
        framings.reduce(|all, more| LinkFraming { has_labels: all.has_labels | more.has_labels, ..all })
    }
}

impl PacketChain {
    /// Finds the element and the line of the statement that caused an edit with a wrong length, if the elements
    /// behind `last` have not passed. None for other reasons, and where several statements may be the cause.
    pub(super) fn mismatch_origin(&self, error: EditError, last: u16) -> Option<(u16, u32)> {
        let is_it = |op: &Op| match (op, error.change) {
            (Op::SetInput(input, _), EditTarget::Input(of)) => input.0 == of,
            (Op::ChangeHeaders(reshape, _), EditTarget::HeaderChange(of)) => reshape.0 == of,
            _ => false,
        };
        let mut parts = self.program.parts(Event::Request);
        parts.retain(|part| error.why == DropReason::LengthMismatch && part.element <= last);
        let places = parts.iter().flat_map(|part| {
            let insts = part.function.blocks.iter().flat_map(|block| &block.insts);
            insts.filter(|inst| is_it(&inst.op)).map(|inst| (part.element, inst.line))
        });
        let mut places = places.collect::<BTreeSet<_>>().into_iter();
        places.next().filter(|_| places.next().is_none())
    }

    /// Binds a chain to the state of an update and compiles it.
    ///
    /// # Errors
    /// See [`ChainError`]. Abandon the update then.
    pub fn build(
        version: u64,
        on: ChainOn,
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        let ChainOn { program, condition, ports, to } = on;
        let condition = condition.map(|program| Reader::build(version, program, state, backend));
        let condition = condition.transpose()?;
        let (program, state) = state.bind(program).map_err(ChainError::State)?;
        let program = Arc::new(program);
        let code = Code::compile(version, &program, &state, backend).map_err(ChainError::Unsupported)?;
        let every = compile_every(&program, &state, backend).map_err(ChainError::Unsupported)?;
        let timeouts = compile_timeouts(&program, &state, backend).map_err(ChainError::Unsupported)?;
        Ok(Self { version, program, state, ports, to, code, condition, every, timeouts })
    }

    /// Returns all ports of the chain except one: the meaning of `*`. Groups are not among them.
    pub(super) fn other_ports(&self, port: u16) -> impl Iterator<Item = u16> {
        let to = match self.to {
            Some(Outlet::Port(to)) if !self.ports.contains(&to) => Some(to),
            _ => None,
        };
        self.ports.iter().copied().chain(to).filter(move |other| *other != port)
    }

    /// The number of slots that a frame needs in the chain and its condition.
    pub(super) fn inputs(&self) -> usize {
        let condition = self.condition.as_ref().map(|condition| condition.code.inputs);
        iter::once(self.code.inputs).chain(condition).max().unwrap_or(0)
    }
}

/// Compiles the ON EVERY handlers of a program, each with its interval.
fn compile_every(
    program: &Arc<ChainProgram>,
    state: &Bound,
    backend: &dyn Backend,
) -> Result<Every, Unsupported> {
    let mut all = Vec::new();
    for (at, element) in program.elements.iter().enumerate() {
        for (nth, (interval, _)) in element.handlers.every.iter().enumerate() {
            let event = Event::Every(at as u16, nth as u16);
            all.push((*interval, backend.compile(program, event, &state.for_worker(0))?));
        }
    }
    Ok(all)
}

/// Compiles the ON TIMEOUT and ON EVICT handlers of a program, each with its table.
fn compile_timeouts(
    program: &Arc<ChainProgram>,
    state: &Bound,
    backend: &dyn Backend,
) -> Result<Timeouts, Unsupported> {
    let state = state.for_worker(0);
    let compile = |(event, departs)| Ok((departs, backend.compile(program, event, &state)?));
    program.timeouts().map(compile).collect()
}
