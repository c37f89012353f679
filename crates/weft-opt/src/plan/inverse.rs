//! Rule 7: inverse pairs of elements, and the elements that may cross them.
//!
//! `compress` and `decompress` in one chain leave the field as it was. An element that reads the field must not move
//! between the two, but it sees the same before both and after both. So it may swap with the pair if it may swap with
//! each of them once the two transforms are removed from their handlers: the statement that sets the field, the read of
//! its argument, and the failure of that one call. All other uses of the field stay.

use std::collections::BTreeMap;

use weft_core::native::NativeDecl;
use weft_ir::ir::{Function, InputId, Inst, NativeId, Op, Ty, Value};
use weft_ir::passes;
use weft_ir::program::{ChainProgram, Event, Input};

use super::swap::pair;
use super::{Context, Level, Pair, Side};
use crate::effects::{ChainEffects, ElementEffects, of_handler};

/// Two elements of which one undoes the other, and the elements that may cross them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The one that comes first as written.
    pub first: usize,
    /// The other.
    pub second: usize,
    /// Elements that may be before both or after both, whichever is cheaper, and never between them.
    pub others: Vec<usize>,
}

impl Crossing {
    /// Whether two elements may swap because one of them may cross the pair with the other.
    pub fn frees(&self, pair: &Pair) -> bool {
        let is_of = |element: usize| element == self.first || element == self.second;
        let crosses = |element: usize| self.others.contains(&element);
        is_of(pair.first) && crosses(pair.second) || is_of(pair.second) && crosses(pair.first)
    }
}

/// All pairs of inverse elements of a chain, with the elements that may cross them at a level.
pub fn crossings(
    chain: &ChainProgram,
    effects: &ChainEffects,
    context: &Context,
    level: Level,
) -> Vec<Crossing> {
    crossings_by(chain, effects, context, level, &without_transform)
}

/// Removes the transform of a field from a handler; `is_inverse` if it undoes another.
pub(super) type Without<'w> = &'w dyn Fn(&ChainProgram, &Function, InputId, bool) -> Option<Function>;

/// Finds crossings as [`crossings`], with another function to remove the transforms.
pub(super) fn crossings_by(
    chain: &ChainProgram,
    effects: &ChainEffects,
    context: &Context,
    level: Level,
    without_transform: Without<'_>,
) -> Vec<Crossing> {
    let n = chain.elements.len();
    let both = (0..n).flat_map(|first| (first + 1..n).map(move |second| (first, second)));
    let found = both.flat_map(|(first, second)| {
        let sides = [Side::Request, Side::Response].into_iter();
        sides.filter_map(move |side| Some((first, second, side, inverted_field(chain, first, second, side)?)))
    });
    let crossing = |(first, second, side, field): (usize, usize, Side, InputId)| {
        let is_kept = (first + 1..second).all(|at| !writes(&effects.elements[at], side, field));
        let without = without(chain, effects, ([first, second], side, field), without_transform)?;
        let may_cross = |other: &usize| {
            let stands_outside = *other < first || *other > second;
            let may_pass = |of: usize| {
                let (front, behind) = (of.min(*other), of.max(*other));
                pair(chain, &without, context, front, behind).may_swap(level)
            };
            // A rewritten message may have another length although its fields have the same values.
            let asks = reads_whole_message(chain, &effects.elements[*other], side);
            stands_outside && !asks && may_pass(first) && may_pass(second)
        };
        let others = (0..n).filter(may_cross).collect();
        is_kept.then_some(Crossing { first, second, others })
    };
    found.filter_map(crossing).collect()
}

/// The field that both transform, if the second to run undoes the first.
fn inverted_field(chain: &ChainProgram, first: usize, second: usize, side: Side) -> Option<InputId> {
    // Responses pass the chain in reverse.
    let (does, undoes) = if side == Side::Request { (first, second) } else { (second, first) };
    let inputs = inputs(chain, side);
    let done = transforms(handler(chain, does, side)?);
    let taken_back = transforms(handler(chain, undoes, side)?);
    let is_undone = |(field, function): (&InputId, &NativeId)| {
        let by = taken_back.get(field)?;
        let decl = |id: &NativeId| &chain.natives[usize::from(id.0)];
        let is_there = !inputs[usize::from(field.0)].nullable;
        (is_there && is_inverse(decl(by), decl(function))).then_some(*field)
    };
    done.iter().find_map(is_undone)
}

/// Whether `by` returns the argument of `function`. If they use a key, both must have it from the same place.
fn is_inverse(by: &NativeDecl, function: &NativeDecl) -> bool {
    let keys = |decl: &NativeDecl| {
        let is_key = |(name, _): &&(String, weft_core::Value)| name.starts_with("key");
        decl.options.iter().filter(is_key).cloned().collect::<Vec<_>>()
    };
    by.native.info().inverse == Some(function.native)
        && by.constants == function.constants
        && keys(by) == keys(function)
}

/// Returns the request or response handler of an element, if it has one.
fn handler(chain: &ChainProgram, element: usize, side: Side) -> Option<&Function> {
    let handlers = &chain.elements[element].handlers;
    match side {
        Side::Request => handlers.request.as_ref(),
        _ => handlers.response.as_ref(),
    }
}

/// Fields that a handler sets once, each to a function of its old value.
fn transforms(function: &Function) -> BTreeMap<InputId, NativeId> {
    let made = function.definitions();
    let mut found: BTreeMap<InputId, Option<NativeId>> = BTreeMap::new();
    for inst in function.insts() {
        let (field, by) = match &inst.op {
            Op::SetInput(field, value) => (*field, function_of(&made, *value, *field)),
            Op::ClearInput(field) => (*field, None),
            _ => continue,
        };
        // A second write sets another value.
        found.entry(field).and_modify(|known| *known = None).or_insert(by);
    }
    found.into_iter().filter_map(|(field, by)| Some((field, by?))).collect()
}

/// Returns the native function that a value applies to a field's old value; None for every other value.
fn function_of(made: &[Option<&Op>], value: Value, field: InputId) -> Option<NativeId> {
    let Some(Op::Native(function, args)) = made[value.0 as usize] else { return None };
    let [arg] = args.as_slice() else { return None };
    matches!(made[arg.0 as usize], Some(Op::Input(of)) if *of == field).then_some(*function)
}

fn writes(element: &ElementEffects, side: Side, field: InputId) -> bool {
    element.of_side(side).into_iter().any(|effects| effects.writes.contains_key(&field))
}

/// Whether an element reads the whole message, or its size.
fn reads_whole_message(chain: &ChainProgram, element: &ElementEffects, side: Side) -> bool {
    let inputs = inputs(chain, side);
    let is_of_message = |id: &InputId| inputs[usize::from(id.0)].place.is_derived();
    element.of_side(side).into_iter().any(|effects| effects.reads.keys().any(is_of_message))
}

fn inputs(chain: &ChainProgram, side: Side) -> &[Input] {
    if side == Side::Request { &chain.request.inputs } else { &chain.response.inputs }
}

/// Returns the effects of a chain without the transforms of a field by two elements. None if one of them does not
/// always set the field, or lets a tuple pass after a failure.
fn without(
    chain: &ChainProgram,
    effects: &ChainEffects,
    (pair, side, field): ([usize; 2], Side, InputId),
    without_transform: Without<'_>,
) -> Option<ChainEffects> {
    let event = if side == Side::Request { Event::Request } else { Event::Response };
    let mut without = effects.clone();
    for at in pair {
        let element = &mut without.elements[at];
        let handler =
            if side == Side::Request { element.request.as_mut()? } else { element.response.as_mut()? };
        if !handler.writes.get(&field)?.always || chain.fails_open(at as u16, event) {
            return None;
        }
        // Requests reach the first element first, responses the last.
        let is_inverse = (at == pair[1]) == (side == Side::Request);
        let left = without_transform(chain, self::handler(chain, at, side)?, field, is_inverse)?;
        *handler = of_handler(chain, at as u16, event, &left);
    }
    Some(without)
}

/// Returns a handler without the transform of a field. If the transform undoes another, it can fail only for lack of
/// room.
///
/// The call itself stays, with a constant argument, because it uses scratch. If something else uses its result, or it
/// may fail because of the field's value, the handler stays as it is.
pub(super) fn without_transform(
    chain: &ChainProgram,
    function: &Function,
    field: InputId,
    is_inverse: bool,
) -> Option<Function> {
    let mut left = function.clone();
    let set = |op: &Op| match op {
        Op::SetInput(of, value) if *of == field => Some(*value),
        _ => None,
    };
    let result = left.insts().find_map(|inst| set(&inst.op))?;
    let made_by = left.insts().find(|inst| inst.result == Some(result)).map(|inst| &inst.op);
    let Some(Op::Native(by, _)) = made_by else { return None };
    let (by, fails_for_length) = (*by, chain.natives[usize::from(by.0)].native.info().fails_for_length());
    for block in &mut left.blocks {
        block.insts.retain(|inst| set(&inst.op).is_none());
        for inst in &mut block.insts {
            if inst.op == Op::NativeFailed(result) && (is_inverse || fails_for_length) {
                inst.op = Op::ScratchFull;
            }
        }
    }
    let operands = left.insts().flat_map(|inst| inst.op.operands());
    let ends = left.blocks.iter().flat_map(|block| block.end.operands());
    if !operands.chain(ends).any(|operand| operand == result) {
        let constant = Value(left.types.len() as u32);
        left.types.push(Ty::Bytes);
        for block in &mut left.blocks {
            let Some(at) = block.insts.iter().position(|inst| inst.result == Some(result)) else { continue };
            block.insts[at].op = Op::Native(by, vec![constant]);
            let line = block.insts[at].line;
            block.insts.insert(at, Inst { result: Some(constant), op: Op::BytesConst(Vec::new()), line });
        }
    }
    Some(passes::clean(left))
}
