//! Refuses elements with side effects that run again for each retry of a call.

use weft_ir::program::ChainProgram;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{Chain, FilterInstance, Instance, Network};
use weft_lang::source::{SourceMap, Span};
use weft_opt::effects::{Unrepeatable, effects, repeats};

/// Finds elements after a retrying filter that would leave something twice. `programs` are those of the chains, in
/// order and as written.
pub(crate) fn check(network: &Network, programs: &[ChainProgram], sources: &SourceMap) -> Vec<Diagnostic> {
    let chains = network.chains.iter().zip(programs);
    chains.flat_map(|(chain, program)| of_chain(network, chain, program, sources)).collect()
}

/// Finds elements behind a repeating filter that must not run twice for a call.
fn of_chain(
    network: &Network,
    chain: &Chain,
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
            Some(refused(filter, instance, &found, &place))
        })
        .collect()
}

/// The diagnostic of an element that must not run twice for a call.
fn refused(
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
