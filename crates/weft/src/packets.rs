//! From a checked program to what the packet path runs.

use crate::compile::refused;
use crate::natives;
use std::sync::Arc;
use weft_engine::packet::plan::{ChainOn, PacketChain, PacketPlan};
use weft_engine::state::Staged;
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Edge};
use weft_lang::source::SourceMap;
use weft_opt::lower::{LowerOptions, lower_when, lower_with_lines};

/// Chains on ports, lowered: the index of the chain, its program and that of its condition.
pub(crate) struct Lowered {
    chain: usize,
    program: ChainProgram,
    condition: Option<ChainProgram>,
}

impl Lowered {
    /// What the chain does, to be given rows.
    pub(crate) fn program(&mut self) -> &mut ChainProgram {
        &mut self.program
    }
}

/// What is wrong with the conditions of chains on ports: the chains themselves are lowered with all others.
pub(crate) fn check(network: &hir::Network, sources: &SourceMap) -> Vec<Diagnostic> {
    let options = LowerOptions { workers: 1 };
    let conditions =
        (0..network.chains.len()).map(|chain| lower_when(network, chain, &options, Some(sources)));
    conditions.flatten().filter_map(Result::err).flatten().collect()
}

/// A node carries calls.
pub(crate) fn not_carried(chain: &hir::Chain) -> Diagnostic {
    let message =
        format!("chain `{}` is on ports, and a node of this version carries calls alone", chain.name);
    Diagnostic::error(code::BACKEND_UNSUPPORTED, message)
        .at(chain.span, "cannot be run here")
        .with_help("`weft replay` runs it over a capture; leave it out of a program that is to be run")
}

/// Lowers the chains on ports that are `wanted`, in their order.
///
/// # Errors
/// Diagnostics of the first that cannot be.
pub(crate) fn lower(
    network: &hir::Network,
    sources: &SourceMap,
    workers: usize,
    wanted: impl Fn(&hir::Chain) -> bool,
) -> Result<Vec<Lowered>, Vec<Diagnostic>> {
    let options = LowerOptions { workers };
    let is_meant = |chain: &hir::Chain| chain.edge.calls().is_none() && wanted(chain);
    let chains = network.chains.iter().enumerate().filter(|(_, chain)| is_meant(chain));
    let lower = |(chain, _): (usize, _)| {
        let condition = lower_when(network, chain, &options, Some(sources)).transpose()?;
        Ok(Lowered { chain, program: lower_with_lines(network, chain, &options, sources)?, condition })
    };
    chains.map(lower).collect()
}

/// Binds and compiles them. The ports of the plan are all those of the network, by their indices.
///
/// # Errors
/// Diagnostics: state cannot be carried over, the back end does not take a chain, or a function cannot be made ready.
pub(crate) fn plan(
    network: &hir::Network,
    lowered: Vec<Lowered>,
    version: u64,
    state: &mut Staged,
    backend: &dyn Backend,
) -> Result<PacketPlan, Vec<Diagnostic>> {
    let mut chains = Vec::new();
    for Lowered { chain, program, condition } in lowered {
        let chain = &network.chains[chain];
        let Edge::Packets { ports, to, .. } = &chain.edge else { continue };
        for program in [Some(&program), condition.as_ref()].into_iter().flatten() {
            state.give_natives(&program.name, natives::of(network, program, chain.span)?);
        }
        let ports = ports.iter().map(|port| *port as u16).collect();
        let on = ChainOn { program, condition, ports, to: to.map(|to| to as u16) };
        let built = PacketChain::build(version, on, state, backend);
        chains.push(Arc::new(built.map_err(|error| vec![refused(network, chain, &error)])?));
    }
    Ok(PacketPlan { version, ports: network.ports.iter().map(|port| port.name.clone()).collect(), chains })
}
