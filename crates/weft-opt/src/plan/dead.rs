//! Finds dead fields: fields that are set and then set again by another element before anything reads them.

use weft_core::types::Repr;
use weft_ir::ir::{Function, InputId, Op};
use weft_ir::program::{ChainProgram, InputLocation};

use super::{Context, Level};
use crate::effects::{ChainEffects, Effects};
use weft_ir::passes;

/// A dead field of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadField {
    /// The element that sets it.
    pub element: usize,
    /// The element that sets it again.
    pub by: usize,
    /// The field.
    pub input: InputId,
}

/// Finds the dead fields in an order of the elements, at a level.
///
/// Only fields of the message count, set while a request passes: a header may leave before the message comes. The other
/// element sets them and never clears them, so it repeats the effects on the other members of its oneof and on the
/// messages around it. Nothing crosses a filter, because behind it each attempt runs separately.
pub fn dead_fields(
    chain: &ChainProgram,
    effects: &ChainEffects,
    context: &Context,
    level: Level,
    order: &[usize],
) -> Vec<DeadField> {
    let mut found = Vec::new();
    for (at, &element) in order.iter().enumerate() {
        let Some(function) = &chain.elements[element].handlers.request else { continue };
        let Some(handler) = &effects.elements[element].request else { continue };
        // A copy has the field as it was then.
        if !handler.mirrors.is_empty() {
            continue;
        }
        for &input in handler.writes.keys() {
            let is_candidate = is_plain(chain, level, input) && !reads_field(chain, function, input);
            let by = || overwriter(chain, effects, context, &order[at..], input);
            if let Some(by) = is_candidate.then(by).flatten() {
                found.push(DeadField { element, by, input });
            }
        }
    }
    found
}

/// Removes the statements that set these fields, and the computations for them alone.
pub fn drop_dead_fields(chain: &mut ChainProgram, dead: &[DeadField]) {
    for field in dead {
        let request = &mut chain.elements[field.element].handlers.request;
        if let Some(mut function) = request.take() {
            for block in &mut function.blocks {
                block.insts.retain(|inst| !sets(&inst.op, field.input));
            }
            *request = Some(passes::clean(function));
        }
    }
}

fn sets(op: &Op, input: InputId) -> bool {
    matches!(op, Op::SetInput(id, _) | Op::ClearInput(id) if *id == input)
}

/// Whether an input of the request is the whole message, or derived from it.
fn is_whole(chain: &ChainProgram, input: InputId) -> bool {
    chain.request.inputs[usize::from(input.0)].place.is_derived()
}

/// Whether a handler reads a field, before or after setting it, directly or as a part of the message.
fn reads_field(chain: &ChainProgram, function: &Function, input: InputId) -> bool {
    function.insts().any(|inst| match inst.op {
        Op::Input(id) | Op::InputPresent(id) | Op::Derived(id) => id == input || is_whole(chain, id),
        _ => false,
    })
}

/// Whether an input is a field of the message whose write may be left out at this level.
fn is_plain(chain: &ChainProgram, level: Level, input: InputId) -> bool {
    let column = &chain.request.inputs[usize::from(input.0)];
    // Setting bytes uses scratch, and `strict` promises which element runs out of it.
    let takes_no_room = level > Level::Strict || column.ty.repr() != Repr::Bytes;
    matches!(column.place, InputLocation::Body(_)) && takes_no_room
}

/// Finds the element that overwrites a field before anything reads it; the first of `order` is the one with the dead
/// field.
fn overwriter(
    chain: &ChainProgram,
    effects: &ChainEffects,
    context: &Context,
    order: &[usize],
    input: InputId,
) -> Option<usize> {
    let (first, behind) = order.split_first()?;
    for &element in behind {
        let is_walled = |(at, _): &(usize, String)| (*first < *at) != (element < *at);
        if context.filters.iter().any(is_walled) {
            return None;
        }
        let of = &effects.elements[element];
        let mut handlers = of.open.iter().chain(&of.request);
        let sees =
            |handler: &Effects| handler.reads.keys().any(|read| *read == input || is_whole(chain, *read));
        if handlers.any(|handler| sees(handler) || !handler.mirrors.is_empty()) {
            return None;
        }
        let write = of.request.as_ref().and_then(|handler| handler.writes.get(&input));
        // The effects of an element that fails open are undone.
        if write.is_some_and(|write| write.always && !write.clears) && !chain.elements[element].fail_open {
            return Some(element);
        }
    }
    None
}
