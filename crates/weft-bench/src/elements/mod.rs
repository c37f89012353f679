//! The cost of elements in memory, without sockets: compiled, interpreted and handwritten; as written and as planned.

mod cases;
mod instructions;
pub(super) mod plans;
mod rig;

use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use weft_core::abi::State;
use weft_ir::backend::Backend;
use weft_ir::interp::Interp;
use weft_ir::program::ChainProgram;
use weft_jit::Jit;

use super::progress;
use super::report::{Report, Row, median};
use cases::{CASES, Case};
use rig::{EmptyRunner, Lane, Messages, Programs, Runner};
use weft_io::parallel_backend::ParallelBackend;

/// Random messages on which twin and compiled code are compared with the interpreter.
const COMPARED: usize = 3 * rig::MESSAGES;
/// The interpreter runs in one of this many rounds: it is much slower, and only shown for information.
const INTERPRET_EVERY: usize = 8;

/// Compilations of a chain.
const COMPILED: usize = 20;

/// The runner of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RunnerKind {
    Jit,
    Interp,
    Twin,
    EmptyRunner,
}

/// The options of `weft bench-element`.
#[derive(Args, Clone, Debug)]
pub struct ElementArgs {
    /// The element, or the chain
    name: String,
    /// Who runs it
    #[arg(long, value_enum)]
    by: RunnerKind,
    /// How often all messages are run
    #[arg(long)]
    rounds: usize,
}

/// Measures every case. An element that does not compile, or code that disagrees with the interpreter, is a failure in
/// the report.
pub(super) fn run(quick: bool) -> Report {
    let rounds = if quick { 100 } else { 400 };
    let (mut rows, mut failures, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for case in CASES {
        progress(case.name);
        match of_case(case, rounds) {
            Ok(figures) => {
                rows.extend(figures);
                measured.push(case.name);
            }
            Err(why) => failures.push(why),
        }
    }
    let mut notes =
        vec!["ns/message: all passes of one unary call as the engine pays for them: the outcome is cleared, the inputs \
         are set, the program is entered; net: less what a program that does nothing takes"
            .to_owned()];
    let counted = if quick { Err("--quick".to_owned()) } else { instructions::count(&measured) };
    match counted {
        Ok(counted) => rows.extend(counted),
        Err(why) => notes.push(format!("instructions were not counted: {why}")),
    }
    Report { bench: "elements", rows, notes, failures }
}

/// Instructions per message of each compiled case.
///
/// # Errors
/// They cannot be counted.
pub(super) fn count() -> Result<Vec<Row>, String> {
    instructions::count_compiled(&CASES.iter().map(|case| case.name).collect::<Vec<_>>())
}

/// Compares an element with its handwritten twin, then measures both: times and lines of code.
fn of_case(case: &Case, rounds: usize) -> Result<Vec<Row>, String> {
    let program = case.program()?;
    compare(case, &program)?;
    let mut rows = times(case, &program, rounds)?;
    let [element, twin] = case.lines();
    if element > 0.0 {
        rows.push(Row::new(case.name, "lines", "", &[element]).against("by hand", &[element], &[twin]));
    }
    Ok(rows)
}

/// Runs one case for a tool that counts instructions.
///
/// # Errors
/// There is no such case, or it does not compile.
pub(crate) fn run_one(args: &ElementArgs) -> Result<(), String> {
    let case = CASES.iter().find(|case| case.name == args.name).ok_or("no such element")?;
    let program = case.program()?;
    let messages = Messages::new(&program, case.payload, 1, 0);
    match args.by {
        RunnerKind::Jit => repeat(jitted(&messages, &program)?, &messages, args.rounds),
        RunnerKind::Interp => repeat(interpreted(&messages, &program)?, &messages, args.rounds),
        RunnerKind::Twin => repeat(by_hand(&messages, case, &program)?, &messages, args.rounds),
        RunnerKind::EmptyRunner => {
            repeat(Lane::new(&messages, EmptyRunner, State::default()), &messages, args.rounds)
        }
    }
    Ok(())
}

fn repeat(mut lane: Lane<impl Runner>, messages: &Messages, rounds: usize) {
    (0..rounds).for_each(|_| {
        lane.round(messages);
    });
}

fn jitted(messages: &Messages, program: &ChainProgram) -> Result<Lane<Programs>, String> {
    compiled(messages, program, &jit()?)
}

fn interpreted(messages: &Messages, program: &ChainProgram) -> Result<Lane<Programs>, String> {
    compiled(messages, program, &Interp)
}

/// Compiles the program by a backend to a runner for the messages.
fn compiled(
    messages: &Messages,
    program: &ChainProgram,
    backend: &dyn Backend,
) -> Result<Lane<Programs>, String> {
    let (code, state) = Programs::compiled(program.clone(), backend)?;
    Ok(Lane::new(messages, code, state))
}

fn by_hand(messages: &Messages, case: &Case, program: &ChainProgram) -> Result<Lane<Programs>, String> {
    let (code, state) = Programs::by_hand(program.clone(), case.twin)?;
    Ok(Lane::new(messages, code, state))
}

fn jit() -> Result<Jit, String> {
    Jit::new().map_err(|error| error.to_string())
}

/// Compares compiled code and twin with the interpreter, which defines the meaning.
fn compare(case: &Case, program: &ChainProgram) -> Result<(), String> {
    let messages = Messages::new(program, case.payload, 7, 10);
    let expected = interpreted(&messages, program)?.observe(&messages, COMPARED);
    let code = jitted(&messages, program)?.observe(&messages, COMPARED);
    let twin = by_hand(&messages, case, program)?.observe(&messages, COMPARED);
    for (who, seen) in [("compiled code", code), ("twin", twin)] {
        if let Some(at) = (0..expected.0.len()).find(|at| seen.0.get(*at) != expected.0.get(*at)) {
            let (theirs, ours) = (&expected.0[at], seen.0.get(at));
            return Err(format!("{}: pass {at}: the {who} gave {ours:?}, and not {theirs:?}", case.name));
        }
        if seen.1 != expected.1 {
            return Err(format!("{}: the {who} left {:?}, and not {:?}", case.name, seen.1, expected.1));
        }
    }
    Ok(())
}

/// Times the runners in rounds, each once per round.
fn times(case: &Case, program: &ChainProgram, rounds: usize) -> Result<Vec<Row>, String> {
    let messages = Messages::new(program, case.payload, 1, 0);
    let backend = ParallelBackend::new(Arc::new(jit()?));
    let mut nothing = Lane::new(&messages, EmptyRunner, State::default());
    let mut jit = jitted(&messages, program)?;
    let mut twin = by_hand(&messages, case, program)?;
    let mut interp = interpreted(&messages, program)?;
    let (mut rig_ns, mut jit_ns, mut twin_ns, mut interp_ns) = (vec![], vec![], vec![], vec![]);
    // One round of each runner fills tables and caches.
    for lane_round in 0..=rounds {
        let rig = nothing.round(&messages);
        let (ours, theirs) = if lane_round % 2 == 0 {
            let ours = jit.round(&messages);
            (ours, twin.round(&messages))
        } else {
            let theirs = twin.round(&messages);
            (jit.round(&messages), theirs)
        };
        if lane_round == 0 {
            continue;
        }
        rig_ns.push(rig);
        jit_ns.push(ours);
        twin_ns.push(theirs);
        if lane_round % INTERPRET_EVERY == 0 {
            interp_ns.push(interp.round(&messages));
        }
    }
    let rig = median(&rig_ns);
    let net = |all: &[f64]| all.iter().map(|ns| ns - rig).collect::<Vec<f64>>();
    let (jit_net, twin_net) = (net(&jit_ns), net(&twin_ns));
    // As for an update in a running node: the first compilation has filled the compiler's caches.
    make_us(program, &backend)?;
    let made = (0..COMPILED).map(|_| make_us(program, &backend)).collect::<Result<Vec<[f64; 2]>, _>>()?;
    let [compile_us, bind_us] = [0, 1].map(|at| made.iter().map(|made| made[at]).collect::<Vec<f64>>());
    Ok(vec![
        Row::new(case.name, "compiled", "ns/message", &jit_ns).against("by hand", &jit_ns, &twin_ns),
        Row::new(case.name, "by hand", "ns/message", &twin_ns),
        Row::new(case.name, "compiled net", "ns/message", &jit_net).against("by hand", &jit_net, &twin_net),
        Row::new(case.name, "by hand net", "ns/message", &twin_net),
        Row::new(case.name, "interpreted", "ns/message", &interp_ns),
        Row::new(case.name, "rig", "ns/message", &rig_ns),
        Row::new(case.name, "compile", "us", &compile_us),
        Row::new(case.name, "state", "us", &bind_us),
    ])
}

/// Microseconds from the lowered chain to machine code for all its passes with their state, and the part of the state.
fn make_us(program: &ChainProgram, backend: &ParallelBackend) -> Result<[f64; 2], String> {
    let us = |began: Instant| began.elapsed().as_nanos() as f64 / 1e3;
    let [first, second] = [program.clone(), program.clone()];
    let began = Instant::now();
    let compiled = Programs::compiled(first, backend)?;
    let compile_us = us(began);
    drop(compiled);
    let began = Instant::now();
    let bound = rig::bind(second)?;
    let bind_us = us(began);
    drop(bound);
    Ok([compile_us, bind_us])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A twin that does other work than its element would not be comparable.
    #[test]
    fn twins_agree_with_elements() {
        let wrong = |case: &Case| case.program().and_then(|program| compare(case, &program)).err();
        let wrong: Vec<String> = CASES.iter().filter_map(wrong).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
