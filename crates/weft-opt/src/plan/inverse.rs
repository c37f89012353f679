//! Rule 7: elements of which one takes back what the other did to a field, and those that may cross both.
//!
//! `compress` and `decompress` in one chain leave the field as it was. An element that looks at the field must not come
//! to stand between the two, but in front of both and behind both it sees the same. So it may change places with the
//! pair if it may with each of them once what they do to the field, and how taking it back could fail, is left out.

use std::collections::BTreeMap;

use weft_core::abi::Fault;
use weft_core::native::NativeDecl;
use weft_ir::ir::{Function, InputId, NativeId, Op, Value};
use weft_ir::program::ChainProgram;

use super::swap::pair;
use super::{Context, Level, Pair, Side};
use crate::effects::{ChainEffects, Effects, ElementEffects, EndKind, Ending, Source};

/// Two elements of which one takes back what the other does, and who may cross them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The one that comes first as written.
    pub first: usize,
    /// The other.
    pub second: usize,
    /// Elements that stand in front of both or behind both, whichever is cheaper, and never between them.
    pub others: Vec<usize>,
}

impl Crossing {
    /// Whether two elements need not keep their order because one of them may cross the pair that the other is of.
    pub fn frees(&self, pair: &Pair) -> bool {
        let is_of = |element: usize| element == self.first || element == self.second;
        let crosses = |element: usize| self.others.contains(&element);
        is_of(pair.first) && crosses(pair.second) || is_of(pair.second) && crosses(pair.first)
    }
}

/// All pairs of inverse elements of a chain, with those that may cross them at a level.
pub fn crossings(
    chain: &ChainProgram,
    effects: &ChainEffects,
    context: &Context,
    level: Level,
) -> Vec<Crossing> {
    let n = chain.elements.len();
    let both = (0..n).flat_map(|first| (first + 1..n).map(move |second| (first, second)));
    let found = both.flat_map(|(first, second)| {
        let sides = [Side::Request, Side::Response].into_iter();
        sides.filter_map(move |side| Some((first, second, side, undone(chain, first, second, side)?)))
    });
    let crossing = |(first, second, side, field): (usize, usize, Side, InputId)| {
        let is_kept = (first + 1..second).all(|at| !writes(&effects.elements[at], context, side, field));
        let without = without(effects, [first, second], side, field)?;
        let may_cross = |other: &usize| {
            let stands_outside = *other < first || *other > second;
            let may_pass = |of: usize| {
                let (front, behind) = (of.min(*other), of.max(*other));
                pair(chain, &without, context, front, behind).may_swap(level)
            };
            stands_outside && may_pass(first) && may_pass(second)
        };
        let others = (0..n).filter(may_cross).collect();
        is_kept.then_some(Crossing { first, second, others })
    };
    found.filter_map(crossing).collect()
}

/// The field that both work on, if what the one that runs first does to it is taken back by the other.
fn undone(chain: &ChainProgram, first: usize, second: usize, side: Side) -> Option<InputId> {
    // Responses pass the chain the other way.
    let (does, undoes) = if side == Side::Request { (first, second) } else { (second, first) };
    let inputs = if side == Side::Request { &chain.request.inputs } else { &chain.response.inputs };
    let done = transforms(handler(chain, does, side)?);
    let taken_back = transforms(handler(chain, undoes, side)?);
    let is_undone = |(field, function): (&InputId, &NativeId)| {
        let by = taken_back.get(field)?;
        let decl = |id: &NativeId| &chain.natives[usize::from(id.0)];
        let is_there = !inputs[usize::from(field.0)].nullable;
        (is_there && takes_back(decl(by), decl(function))).then_some(*field)
    };
    done.iter().find_map(is_undone)
}

/// Whether `by` gives back what `function` was given. Where a key is involved, both must have it from the same place.
fn takes_back(by: &NativeDecl, function: &NativeDecl) -> bool {
    let keys = |decl: &NativeDecl| {
        let is_key = |(name, _): &&(String, weft_core::Value)| name.starts_with("key");
        decl.options.iter().filter(is_key).cloned().collect::<Vec<_>>()
    };
    by.native.info().inverse == Some(function.native)
        && by.constants == function.constants
        && keys(by) == keys(function)
}

fn handler(chain: &ChainProgram, element: usize, side: Side) -> Option<&Function> {
    let handlers = &chain.elements[element].handlers;
    match side {
        Side::Request => handlers.request.as_ref(),
        _ => handlers.response.as_ref(),
    }
}

/// Fields that a handler sets once, each to a function of what it held.
fn transforms(function: &Function) -> BTreeMap<InputId, NativeId> {
    let insts = || function.blocks.iter().flat_map(|block| &block.insts);
    let made: BTreeMap<Value, &Op> = insts().filter_map(|inst| Some((inst.result?, &inst.op))).collect();
    let mut found: BTreeMap<InputId, Option<NativeId>> = BTreeMap::new();
    for inst in insts() {
        let (field, by) = match &inst.op {
            Op::SetInput(field, value) => (*field, function_of(&made, *value, *field)),
            Op::ClearInput(field) => (*field, None),
            _ => continue,
        };
        // A second write is another value.
        found.entry(field).and_modify(|known| *known = None).or_insert(by);
    }
    found.into_iter().filter_map(|(field, by)| Some((field, by?))).collect()
}

fn function_of(made: &BTreeMap<Value, &Op>, value: Value, field: InputId) -> Option<NativeId> {
    let Some(Op::Native(function, args)) = made.get(&value) else { return None };
    let [arg] = args.as_slice() else { return None };
    matches!(made.get(arg), Some(Op::Input(of)) if *of == field).then_some(*function)
}

fn writes(element: &ElementEffects, context: &Context, side: Side, field: InputId) -> bool {
    let of_side = handlers(element, side);
    of_side
        .into_iter()
        .flat_map(|effects| effects.writes.keys())
        .any(|written| *written == field || context.is_tied(side, *written, field))
}

fn handlers(element: &ElementEffects, side: Side) -> Vec<&Effects> {
    match side {
        Side::Request => element.open.iter().chain(&element.request).collect(),
        _ => element.response.iter().collect(),
    }
}

/// The effects of a chain without what two elements do to a field. None if one of them does not always write it.
fn without(effects: &ChainEffects, pair: [usize; 2], side: Side, field: InputId) -> Option<ChainEffects> {
    let mut effects = effects.clone();
    for at in pair {
        let element = &mut effects.elements[at];
        let handler =
            if side == Side::Request { element.request.as_mut()? } else { element.response.as_mut()? };
        if !handler.writes.remove(&field)?.always {
            return None;
        }
        handler.reads.remove(&field);
        // Requests come to the first element first, responses to the last.
        if (at == pair[1]) == (side == Side::Request) {
            handler.ends.iter_mut().for_each(|end| cannot_fail(end, field));
        }
    }
    Some(effects)
}

/// What one of the pair made, the other can take back: what is left of its error is that the result may be too long,
/// which is a want of room.
fn cannot_fail(end: &mut Ending, field: InputId) {
    let by_field = |of: &Source| *of == Source::Input(field) || *of == Source::Room;
    if let EndKind::Fail(faults) = &mut end.kind
        && faults.iter().all(|fault| matches!(fault, Fault::FunctionFailed | Fault::TooLong))
        && end.when.iter().all(by_field)
    {
        *faults = vec![Fault::TooLong];
        end.is_room = true;
    }
}
