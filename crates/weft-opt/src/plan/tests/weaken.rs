//! Weaker analyses: each omits what one rule relies on, and must be detected.

use weft_ir::ir::{Function, InputId, Op};
use weft_ir::program::{ChainProgram, InputLocation, Meta, SinkTarget};

use super::generate::{LIST, SIZE, displaced_by};
use super::*;
use crate::plan::inverse::{Without, crossings_by, without_transform};

/// Changes a chain to what a weaker analysis would see.
type Weaken = fn(&mut ChainProgram);

const CHAINS: [(&str, Weaken); 5] = [
    ("rows of tables are rows of a log", forget_tables),
    ("members of a oneof stay", forget_oneof),
    ("a list is not read", forget_reads_of_lists),
    ("a list stays", forget_displaced_lists),
    ("the size is that of the message as it arrived", forget_size),
];

fn forget_size(chain: &mut ChainProgram) {
    for direction in [&mut chain.request, &mut chain.response] {
        direction.inputs[usize::from(SIZE.0)].place = InputLocation::Meta(Meta::Index);
    }
}

fn forget_tables(chain: &mut ChainProgram) {
    for sink in chain.sinks.iter_mut().filter(|sink| sink.target.table().is_some()) {
        sink.target = SinkTarget::File(sink.name.clone());
    }
}

fn forget_oneof(chain: &mut ChainProgram) {
    forget_displaced(chain, |_| true);
}

fn forget_displaced_lists(chain: &mut ChainProgram) {
    forget_displaced(chain, |displaced| displaced == LIST);
}

/// Omits what setting a member of the oneof displaces, for `forgotten` inputs.
fn forget_displaced(chain: &mut ChainProgram, forgotten: fn(InputId) -> bool) {
    each_function(chain, |function| {
        for block in &mut function.blocks {
            let mut displaced: Option<[InputId; 2]> = None;
            block.insts.retain(|inst| match inst.op {
                Op::ClearInput(id) if displaced.is_some_and(|displaced| displaced.contains(&id)) => {
                    !forgotten(id)
                }
                Op::SetInput(id, _) => {
                    displaced = displaced_by(id);
                    true
                }
                _ => {
                    displaced = None;
                    true
                }
            });
        }
    });
}

fn forget_reads_of_lists(chain: &mut ChainProgram) {
    each_function(chain, |function| {
        for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
            if inst.op == Op::Input(LIST) {
                inst.op = Op::BytesConst(Vec::new());
            }
        }
    });
}

fn each_function(chain: &mut ChainProgram, mut change: impl FnMut(&mut Function)) {
    for element in &mut chain.elements {
        let of = &mut element.handlers;
        let single = [&mut of.open, &mut of.request, &mut of.response, &mut of.close];
        single.into_iter().flatten().for_each(&mut change);
        of.every.iter_mut().for_each(|(_, function)| change(function));
    }
}

#[test]
fn weaker_effects_are_detected() {
    // A rule that no case distinguishes from a weaker one is untested.
    for (name, weaken) in CHAINS {
        let found = (0..CASES_MAX).find(|seed| {
            let mut case = Case::random(*seed, 3);
            let (pair, order) = case.neighbours();
            let mut known = (*case.chain).clone();
            weaken(&mut known);
            let weak = pairs(&known, &effects(&known), &Context::default());
            let is_it = |other: &&Pair| (other.first, other.second) == (pair.first, pair.second);
            let weak = weak.iter().find(is_it).expect("all pairs are analyzed");
            let levels: Vec<Level> =
                Level::ALL.into_iter().filter(|l| weak.may_swap(*l) && !pair.may_swap(*l)).collect();
            !levels.is_empty() && case.difference(&order, &levels, &mut Covered::default()).is_some()
        });
        println!("{name}: found out in case {found:?}");
        assert!(found.is_some(), "no case tells it apart: {name}");
    }
}

/// A handler without its transform, and without any other read of the field.
fn without_reads(chain: &ChainProgram, function: &Function, field: InputId, takes: bool) -> Option<Function> {
    let mut left = without_transform(chain, function, field, takes)?;
    for inst in left.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if inst.op == Op::Input(field) {
            inst.op = Op::BytesConst(Vec::new());
        }
    }
    Some(left)
}

/// A handler without its transform, and without the failures of all functions.
fn without_failures(
    chain: &ChainProgram,
    function: &Function,
    field: InputId,
    takes: bool,
) -> Option<Function> {
    let mut left = without_transform(chain, function, field, takes)?;
    for inst in left.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if matches!(inst.op, Op::NativeFailed(_)) {
            inst.op = Op::ScratchFull;
        }
    }
    Some(left)
}

/// A handler as if its transform, inverse or not, could fail only for lack of room.
fn without_ends(chain: &ChainProgram, function: &Function, field: InputId, takes: bool) -> Option<Function> {
    let mut left = without_transform(chain, function, field, takes)?;
    for block in &mut left.blocks {
        if matches!(block.end, weft_ir::ir::Terminator::Abort { .. }) {
            block.end = weft_ir::ir::Terminator::Forward;
        }
    }
    Some(left)
}

#[test]
fn weaker_inverses_are_detected() {
    // An element that uses the field beside its transform would be crossed as if it did not.
    let weak: [(&str, Without<'_>); 3] = [
        ("all reads of the field are set aside", &without_reads),
        ("all failures are set aside", &without_failures),
        ("all ends are set aside", &without_ends),
    ];
    for (name, without) in weak {
        let found = (0..CASES_MAX).find(|seed| {
            let mut case = Case::random(*seed, 5);
            let level = case.rng.pick(&[Level::Observable, Level::Output, Level::Relaxed]);
            let effects = effects(&case.chain);
            let context = Context::default();
            let weak = crossings_by(&case.chain, &effects, &context, level, without);
            let right = crossings(&case.chain, &effects, &context, level);
            if weak == right {
                return false;
            }
            let order = case.order_within(level, &weak);
            !case.constraints(level, &right).hold(&order)
                && case.difference(&order, &[level], &mut Covered::default()).is_some()
        });
        println!("{name}: found out in case {found:?}");
        assert!(found.is_some(), "no case tells it apart: {name}");
    }
}

#[test]
fn weaker_overwriting_is_detected() {
    // A field that is set and then cleared leaves more on the wire than one that is only cleared: its oneof is decided.
    let found = (0..CASES_MAX).find(|seed| {
        let mut case = Case::random(*seed, 3);
        let order: Vec<usize> = (0..case.chain.elements.len()).collect();
        let mut known = effects(&case.chain);
        let dead = |known: &ChainEffects| {
            dead_fields(&case.chain, known, &Context::default(), Level::Observable, &order)
        };
        let right = dead(&known);
        for request in known.elements.iter_mut().filter_map(|element| element.request.as_mut()) {
            request.writes.values_mut().for_each(|write| write.clears = false);
        }
        let weak = dead(&known);
        weak != right
            && case.difference_without(&weak, &order, &[Level::Observable], &mut Covered::default()).is_some()
    });
    println!("found out in case {found:?}");
    assert!(found.is_some(), "no case tells it apart");
}
