//! Judges a network that the front end accepts: lowers each of its programs once, and refuses what the lowered
//! programs show: limits of the IR, programs that are too large, and elements that must not run twice for a call.

use std::sync::Arc;

use weft_core::limits::PROGRAM_STEPS_MAX;
use weft_ir::program::ChainProgram;
use weft_ir::queue::{QueueProgram, STEPS_MAX};
use weft_ir::size;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, FilterInstance, Instance, Network};
use weft_lang::source::{SourceMap, Span};

use crate::effects::{Unrepeatable, effects, repeats};
use crate::lower::{
    LowerOptions, LoweredHeaders, TooLong, lower_condition, lower_for_cut_frames, lower_group, lower_headers,
    lower_queue, lower_when, lower_with_lines,
};

/// All programs of a network.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// By [`Network::chains`].
    pub chains: Vec<LoweredChain>,
    /// The condition of each route; None if it has none.
    pub routes: Vec<Option<ChainProgram>>,
    /// The key of each group; None if it has none.
    pub groups: Vec<Option<ChainProgram>>,
    /// By [`Network::links`].
    pub links: Vec<LoweredLink>,
    /// The queue of each of [`Network::call_links`].
    pub call_links: Vec<Arc<QueueProgram>>,
}

/// A chain, and its WHEN.
#[derive(Clone, Debug)]
pub struct LoweredChain {
    /// The chain.
    pub program: ChainProgram,
    /// The condition on the frames that take it, if it has one.
    pub condition: Option<ChainProgram>,
}

/// The queue of a link, and the headers that it reads.
#[derive(Clone, Debug)]
pub struct LoweredLink {
    /// The parser of the headers; None if the queue reads none.
    pub headers: Option<LoweredHeaders>,
    /// The queue.
    pub queue: Arc<QueueProgram>,
}

impl Lowered {
    /// The same programs, with parsers on ports for frames that a capture may have truncated. `workers` as in
    /// [`judge`].
    ///
    /// # Errors
    /// The parser of a chain exceeds a limit.
    pub fn for_cut_frames(
        mut self,
        network: &Network,
        sources: &SourceMap,
        workers: usize,
    ) -> Result<Self, Vec<Diagnostic>> {
        let options = LowerOptions { workers };
        for (at, _) in network.chains.iter().enumerate().filter(|(_, chain)| chain.edge.calls().is_none()) {
            let lowered = lower_for_cut_frames(network, at, &options, sources)?;
            self.chains[at] = LoweredChain { program: lowered.0, condition: lowered.1 };
        }
        Ok(self)
    }
}

/// Lowers a network for this many workers. With more than one, handlers also take locks.
///
/// # Errors
/// All faults of its programs.
pub fn judge(network: &Network, sources: &SourceMap, workers: usize) -> Result<Lowered, Vec<Diagnostic>> {
    let options = LowerOptions { workers };
    let mut refused = Vec::new();
    let calls = lower_calls(network, sources, &options);
    match &calls {
        Ok((chains, _)) => refused.extend(repeated_effects(network, chains, sources)),
        Err(found) => refused.extend_from_slice(found),
    }
    let mut keep = |lowered: Option<Result<ChainProgram, Vec<Diagnostic>>>| match lowered.transpose() {
        Ok(program) => program,
        Err(found) => {
            refused.extend(found);
            None
        }
    };
    let conditions: Vec<_> = (0..network.chains.len())
        .map(|chain| keep(lower_when(network, chain, &options, Some(sources))))
        .collect();
    let groups = (0..network.groups.len())
        .map(|group| keep(lower_group(network, group, &options, Some(sources))))
        .collect();
    let headers: Vec<_> = (0..network.links.len()).map(|at| lower_headers(network, at, &options)).collect();
    refused.extend(headers.iter().flatten().filter_map(|lowered| lowered.as_ref().err()).flatten().cloned());
    let mut queues = QueueJudge::default();
    for queue in &network.queues {
        queues.lower(queue, None);
    }
    let mut used = |queue: &hir::Queue| queues.lower(queue, Some(queue.span));
    let link_queues: Vec<_> = network.links.iter().map(|link| used(&link.queue)).collect();
    let call_links = network.call_links.iter().map(|link| used(&link.queue)).collect();
    refused.extend(queues.refused);
    match calls {
        Ok((chains, routes)) if refused.is_empty() => {
            let chains = chains.into_iter().zip(conditions);
            let links = link_queues.into_iter().zip(headers);
            Ok(Lowered {
                chains: chains.map(|(program, condition)| LoweredChain { program, condition }).collect(),
                routes,
                groups,
                links: links
                    .map(|(queue, headers)| LoweredLink { headers: headers.and_then(Result::ok), queue })
                    .collect(),
                call_links,
            })
        }
        _ => Err(refused),
    }
}

/// The programs of all chains, and the conditions of all routes.
type Calls = (Vec<ChainProgram>, Vec<Option<ChainProgram>>);

/// Lowers the chains and the conditions of routes, up to the first fault: together they have a limit.
fn lower_calls(
    network: &Network,
    sources: &SourceMap,
    options: &LowerOptions,
) -> Result<Calls, Vec<Diagnostic>> {
    let mut size = ProgramSize::default();
    let chains = network.chains.iter().enumerate().map(|(at, chain)| {
        let lowered = lower_with_lines(network, at, options, sources)?;
        size.add(&lowered, chain.span)?;
        Ok(lowered)
    });
    let chains = chains.collect::<Result<_, Vec<Diagnostic>>>()?;
    let routes = network.routes.iter().enumerate().map(|(at, route)| {
        let Some(_) = &route.when else { return Ok(None) };
        let lowered = lower_condition(network, at, options)?;
        size.add(&lowered, route.span)?;
        Ok(Some(lowered))
    });
    Ok((chains, routes.collect::<Result<_, Vec<Diagnostic>>>()?))
}

/// The number of steps that a back end compiles for a network.
#[derive(Default)]
struct ProgramSize {
    steps: usize,
}

impl ProgramSize {
    /// Counts the steps of a chain. Fails if the network exceeds [`PROGRAM_STEPS_MAX`].
    fn add(&mut self, chain: &ChainProgram, span: Span) -> Result<(), Vec<Diagnostic>> {
        self.steps += size::chain_steps(chain);
        if self.steps <= PROGRAM_STEPS_MAX {
            return Ok(());
        }
        let message =
            format!("the program takes more than {PROGRAM_STEPS_MAX} steps once it is compiled, up to here");
        let diagnostic = Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(span, "too long").with_help(
            "keep what long lists of cases say in tables, or run a part of the program on another node",
        );
        Err(vec![diagnostic])
    }
}

/// Lowers queues, and refuses handlers with more than [`STEPS_MAX`] steps for a packet.
#[derive(Default)]
struct QueueJudge {
    /// Most links use a queue unchanged, so the same report would come twice.
    known: Vec<TooLong>,
    refused: Vec<Diagnostic>,
}

impl QueueJudge {
    /// Lowers a queue. `used` is where a link uses it.
    fn lower(&mut self, queue: &hir::Queue, used: Option<Span>) -> Arc<QueueProgram> {
        let (lowered, found) = lower_queue(queue);
        for too_long in found {
            if self.known.contains(&too_long) {
                continue;
            }
            self.known.push(too_long);
            let TooLong { span, steps, is_all } = too_long;
            let steps = if is_all { format!("{steps} steps") } else { format!("{steps} steps and more") };
            let message = format!("this takes {steps} once it is compiled, and {STEPS_MAX} are the most");
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message).at(span, "too long").with_help(
                "keep what is computed twice in a LET, or let an element of the chain compute it and MARK packets \
                 by it: the queue sees `p.class`",
            );
            self.refused.push(match used {
                Some(used) => diagnostic.with_label(used, "used here"),
                None => diagnostic,
            });
        }
        Arc::new(lowered)
    }
}

/// Finds elements after a retrying filter that would leave something twice. `programs` are those of the chains, in
/// order and as written.
fn repeated_effects(network: &Network, programs: &[ChainProgram], sources: &SourceMap) -> Vec<Diagnostic> {
    let chains = network.chains.iter().zip(programs);
    chains.flat_map(|(chain, program)| chain_repeats(network, chain, program, sources)).collect()
}

/// Finds elements behind a repeating filter that must not run twice for a call.
fn chain_repeats(
    network: &Network,
    chain: &hir::Chain,
    program: &ChainProgram,
    sources: &SourceMap,
) -> Vec<Diagnostic> {
    // The first such filter wraps all later elements, with or without other filters.
    let Some(filter) = chain.filters.iter().find(|filter| filter.policies.repeats()) else {
        return Vec::new();
    };
    let effects = effects(program);
    let wrapped = chain.instances.iter().enumerate().skip(filter.at);
    let asked = wrapped.filter(|(_, instance)| !instance.per_try);
    asked
        .filter_map(|(at, instance)| {
            let found = repeats(program, &effects, at).err()?;
            let file = network.elements[instance.element].span.file;
            let place = |line: u32| {
                let range = sources.file(file).line_range(line);
                let text = sources.file(file).line(line);
                let indent = text.len() - text.trim_start().len();
                let start = range.start + indent;
                Span::new(file, start as u32, (start + text.trim().len()) as u32)
            };
            Some(not_repeatable(filter, instance, &found, &place))
        })
        .collect()
}

/// The diagnostic of an element that must not run twice for a call.
fn not_repeatable(
    filter: &FilterInstance,
    instance: &Instance,
    found: &[Unrepeatable],
    place: &dyn Fn(u32) -> Span,
) -> Diagnostic {
    let (name, before) = (&instance.name, &filter.name);
    let message = format!("`{before}` sends calls again, and `{name}` would do twice what it does for one");
    let mut diagnostic = Diagnostic::error(code::NOT_REPEATABLE, message)
        .at(instance.span, "runs once for each try")
        .with_label(filter.span, "tries again");
    for reason in found {
        diagnostic = match reason.lines.iter().find(|line| **line > 0) {
            Some(line) => diagnostic.with_label(place(*line), reason.why.clone()),
            None => diagnostic.with_note(reason.why.clone()),
        };
    }
    diagnostic.with_help(format!(
        "put `{name}` before `{before}`; or write `PER TRY` behind it, if it is to run once for each try"
    ))
}
