use std::sync::Arc;

use crate::backend::Backend;
use crate::generate::{self, Rng};
use crate::generate::{Pass, World};
use crate::interp::Interp;
use crate::program::{ChainProgram, Handlers};
use crate::verify::verify_program;
use weft_core::Time;
use weft_core::inputs::InputSet;

use super::{assume, blocks, branch_facts, clean, dead, journal, sink};
use crate::ir::Function;

const CHAINS: u64 = 60;
const PASSES: usize = 12;

/// Runs random chains before and after `pass` and compares the results.
fn check_law(pass: impl Fn(Function) -> Function) {
    check(|function, _| pass(function), |_, _| {});
}

/// As [`check_law`], for a pass that gets the inputs that nothing clears; `change` adapts the tuples to them.
fn check(pass: impl Fn(Function, InputSet) -> Function, change: impl Fn(&mut Pass, InputSet)) {
    for seed in 0..CHAINS {
        let mut rng = Rng::from_seed(seed);
        let before = generate::chain(&mut rng);
        let kept = !cleared(&before);
        let after = with_handlers(before.clone(), &|function| pass(function, kept));
        verify_program(&after).unwrap_or_else(|errors| panic!("seed {seed}: {}", errors[0]));
        let (before, after) = (Arc::new(before), Arc::new(after));
        let mut worlds = [World::new(&before), World::new(&after)];
        for nth in 0..PASSES {
            let now = Time(1_000_000_000 * (nth as i64 + 1));
            let mut tuple = Pass::random(&mut rng, &before, now);
            change(&mut tuple, kept);
            let mut seen = [&before, &after].into_iter().zip(&mut worlds).map(|(chain, world)| {
                let program = Interp.compile(chain, tuple.event, &world.state).unwrap();
                world.run(chain, &*program, &tuple)
            });
            assert_eq!(seen.next(), seen.next(), "seed {seed}, pass {nth}: {tuple:?}");
        }
    }
}

/// The inputs that some handler clears.
fn cleared(chain: &ChainProgram) -> InputSet {
    let all = core::cell::Cell::new(InputSet::EMPTY);
    with_handlers(chain.clone(), &|function: Function| {
        all.set(all.get() | assume::cleared(&function));
        function
    });
    all.get()
}

fn with_handlers(mut chain: ChainProgram, pass: &impl Fn(Function) -> Function) -> ChainProgram {
    for element in &mut chain.elements {
        let Handlers { open, request, response, close, every, timeouts } = &mut element.handlers;
        for handler in [open, request, response, close] {
            *handler = handler.take().map(pass);
        }
        for handler in every.iter_mut().map(|(_, f)| f).chain(timeouts.iter_mut().map(|(_, f)| f)) {
            *handler = pass(core::mem::take(handler));
        }
    }
    chain
}

fn by(change: impl Fn(&mut Function)) -> impl Fn(Function) -> Function {
    move |mut function| {
        change(&mut function);
        function
    }
}

#[test]
fn simplify_keeps_behaviour() {
    // A wrong join or skip would change what a chain does.
    check_law(by(blocks::simplify));
}

#[test]
fn dead_code_keeps_behaviour() {
    // An operation with an effect that counts as dead would change what a chain does.
    check_law(by(dead::remove));
}

#[test]
fn branch_facts_keep_behaviour() {
    // A wrong value of a flag would change the path.
    check_law(by(branch_facts::fold));
}

#[test]
fn present_inputs_are_not_checked() {
    // A decided test of an input that is absent, or may be cleared, would change the path.
    check(|function, kept| assume::present(&function, kept), |tuple, kept| tuple.present |= kept);
}

#[test]
fn sunk_writes_keep_behaviour() {
    // A write that moves past its observer, or is lost on a path, would change what a chain does.
    check_law(by(sink::writes));
}

#[test]
fn all_passes_keep_behaviour() {
    // A pass may rely on what another one has changed.
    check_law(clean);
}

#[test]
fn infallible_writes_skip_journal() {
    // An unjournalled write that must be undone would leave traces of a failed handler; needless journalling costs time
    // for each tuple.
    use crate::ir::Journal;
    let mut function = noted();
    journal::relax(&mut function);
    let journals: Vec<Journal> = function
        .insts()
        .filter_map(|inst| match inst.op {
            crate::ir::Op::CallSet(.., journal) => Some(journal),
            _ => None,
        })
        .collect();
    assert_eq!(journals, [Journal::Yes, Journal::No]);
}

/// `call.set; if x then fail else call.set; forward`
fn noted() -> Function {
    use crate::ir::{Block, BlockId, CallId, Inst, Journal, Jump, Op, Terminator, Ty, Value};
    let set = Inst { result: None, op: Op::CallSet(CallId(0), Value(0), Journal::Yes), line: 1 };
    let define = |value, op| Inst { result: Some(Value(value)), op, line: 1 };
    let to = |block| Jump { block: BlockId(block), args: Vec::new() };
    let entry = vec![define(0, Op::IntConst(1)), define(1, Op::BoolConst(true)), set.clone()];
    let block = |insts, end| Block { params: Vec::new(), insts, end, scan_rows_max: None };
    Function {
        name: "f".into(),
        blocks: vec![
            block(entry, Terminator::Branch(Value(1), to(1), to(2))),
            block(vec![], Terminator::Fail { fault: Value(0), line: 1 }),
            block(vec![set], Terminator::Forward),
        ],
        types: vec![Ty::Int, Ty::Bool],
    }
}
