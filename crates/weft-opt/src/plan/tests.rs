//! Pairs that may change places are held against what both orders do.

#![allow(clippy::print_stdout, reason = "how much the cases cover is for people")]

mod generate;

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::Time;
use weft_core::abi::{EditTarget, REGION_BODY, Slot, Verdict};
use weft_core::limits::SCRATCH_BYTES_MAX;
use weft_ir::generate::{Dice, Observation, Pass, Seen, World};
use weft_ir::interp::Access;
use weft_ir::program::{ChainProgram, Event, SinkTarget};

use super::{Context, Level, Pair, Rule, pairs};
use crate::effects::effects;

/// Cases in which each rule is held.
const CASES: u64 = 10_000;
/// Cases within which a rule that is left out must be missed.
const CASES_MAX: u64 = 30_000;
const CALLS: usize = 3;

/// A call, pass by pass, as it comes to a chain.
struct Call {
    request: Pass,
    response: Pass,
    close: Pass,
}

impl Call {
    fn random(dice: &mut Dice, chain: &ChainProgram, nth: usize) -> Self {
        let mut of = |event| loop {
            let now = Time(1_000_000_000 * (nth as i64 + 1));
            let pass = Pass::random(dice, chain, now);
            if pass.event == event {
                return if dice.percent(25) { long(pass) } else { pass };
            }
        };
        Self { request: of(Event::OpenRequest), response: of(Event::Response), close: of(Event::Close) }
    }
}

/// A pass whose text takes half of the room that there is.
fn long(mut pass: Pass) -> Pass {
    let body = &mut pass.regions[REGION_BODY];
    pass.slots[2] = Slot { a: body.len() as u64, b: (SCRATCH_BYTES_MAX / 3) as u64 };
    body.resize(body.len() + SCRATCH_BYTES_MAX / 3, b'z');
    pass
}

/// What a call left behind, pass by pass, and whether the scratch was full in one of them.
struct Story {
    passes: Vec<(Event, Observation)>,
    is_full: bool,
}

/// Runs a call as the engine does.
fn run(world: &mut World, chain: &Arc<ChainProgram>, call: &Call) -> Story {
    let mut story = Story { passes: Vec::new(), is_full: false };
    let mut pass = |pass: &Pass| {
        let (seen, noted) = world.run_noting(chain, pass);
        story.is_full |= noted.iter().any(|(_, access)| *access == Access::Full);
        story.passes.push((pass.event, seen.clone()));
        seen
    };
    let seen = pass(&call.request);
    let opened = opened_by(chain, &seen);
    if !is_ended(&seen) {
        pass(&call.response);
    }
    pass(&Pass { opened, ..call.close.clone() });
    for (at, element) in chain.elements.iter().enumerate() {
        if !element.handlers.every.is_empty() {
            pass(&Pass {
                event: Event::Every(at as u16, 0),
                opened: chain.elements.len(),
                slots: Vec::new(),
                present: 0,
                ..call.close.clone()
            });
        }
    }
    story
}

fn is_ended(seen: &Observation) -> bool {
    !matches!(seen.verdict, Verdict::Forward | Verdict::Redirect)
}

/// How many elements have let a call begin; each verdict has a line of its own.
fn opened_by(chain: &ChainProgram, seen: &Observation) -> usize {
    if !is_ended(seen) {
        return chain.elements.len();
    }
    let element = usize::from(seen.element);
    let open = chain.elements[element].handlers.open.as_ref();
    let in_open = open.is_some_and(|open| open.blocks.iter().any(|block| block.end.line() == seen.line));
    element + usize::from(!in_open)
}

/// What edits come to: the last one of a target wins.
fn edits(edits: &[(EditTarget, Seen)], wanted: fn(&EditTarget) -> bool) -> Vec<(String, Seen)> {
    let edits = edits.iter().filter(|(target, _)| wanted(target));
    let last: BTreeMap<String, Seen> =
        edits.map(|(target, value)| (format!("{target:?}"), value.clone())).collect();
    last.into_iter().collect()
}

/// What a pass did to its tuple, as far as a level promises it.
fn tuple(chain: &ChainProgram, seen: &Observation, level: Level) -> String {
    // A copy is of the tuple as it was then.
    let copy = |(target, n_edits): &(Vec<u8>, u32)| {
        let before = edits(&seen.edits[..*n_edits as usize], |target| matches!(target, EditTarget::Input(_)));
        format!("{target:?} {before:?}")
    };
    let mut mirrors: Vec<String> = seen.mirrors.iter().map(copy).collect();
    if level > Level::Strict {
        mirrors.sort();
    }
    let inputs = edits(&seen.edits, |target| matches!(target, EditTarget::Input(_)));
    let how = (seen.verdict, String::from_utf8_lossy(&seen.text).into_owned());
    match seen.verdict {
        Verdict::Forward | Verdict::Redirect => {
            format!("{how:?} {inputs:?} {:?} {:?} {mirrors:?}", seen.mark, seen.delay)
        }
        _ if level == Level::Relaxed => "ended".to_owned(),
        // The text of a failure names the element.
        Verdict::Failed(_) => {
            format!("{how:?} {} by {}", seen.delay, chain.elements[usize::from(seen.element)].name)
        }
        Verdict::Abort(_) => {
            let answers = edits(&seen.edits, |target| matches!(target, EditTarget::Answer(_)));
            format!("{how:?} {} {answers:?} {mirrors:?}", seen.delay)
        }
        Verdict::Drop => format!("{how:?} {} {mirrors:?}", seen.delay),
        _ => {
            let replies = edits(&seen.edits, |target| matches!(target, EditTarget::Reply(_)));
            format!("{how:?} {} {replies:?} {mirrors:?}", seen.delay)
        }
    }
}

/// The sink rows of a call, as far as a level promises them.
fn rows(chain: &ChainProgram, story: &Story, level: Level) -> Vec<String> {
    let ended = story.passes.iter().any(|(_, seen)| is_ended(seen));
    if level >= Level::Relaxed || (level >= Level::Output && ended) {
        return Vec::new();
    }
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (sink, cells) in story.passes.iter().flat_map(|(_, seen)| &seen.rows) {
        let target: &SinkTarget = &chain.sinks[usize::from(*sink)].target;
        rows.entry(format!("{target:?}")).or_default().push(format!("{sink} {cells:?}"));
    }
    for rows in rows.values_mut().filter(|_| level > Level::Strict) {
        rows.sort();
    }
    rows.into_iter().map(|(target, rows)| format!("{target}: {rows:?}")).collect()
}

/// What a level promises of a call.
fn promise(chain: &ChainProgram, story: &Story, level: Level) -> Vec<String> {
    let mut seen = rows(chain, story, level);
    for (event, pass) in &story.passes {
        match (event, level) {
            (Event::OpenRequest | Event::Response, _) => seen.push(tuple(chain, pass, level)),
            (_, Level::Relaxed) => {}
            // Nobody is answered by then, so how they end is nobody's business.
            _ => seen
                .push(format!("{:?}", edits(&pass.edits, |target| matches!(target, EditTarget::Input(_))))),
        }
        if is_ended(pass) && level == Level::Relaxed {
            return seen;
        }
    }
    if level < Level::Relaxed
        && let Some((_, last)) = story.passes.last()
    {
        seen.push(format!("{:?} {:?}", last.tables, last.vars));
    }
    seen
}

/// What is known of one random case.
struct Case {
    chain: Arc<ChainProgram>,
    /// The same with two neighbours in the other order.
    swapped: Arc<ChainProgram>,
    pair: Pair,
    dice: Dice,
}

impl Case {
    fn random(seed: u64) -> Self {
        let mut dice = Dice::from_seed(seed);
        let chain = generate::chain(&mut dice);
        if let Err(errors) = weft_ir::verify::verify_program(&chain) {
            panic!("seed {seed}: {}", errors[0]);
        }
        let first = dice.below(chain.elements.len() - 1);
        let mut swapped = chain.clone();
        swapped.elements.swap(first, first + 1);
        let all = pairs(&chain, &effects(&chain), &Context::default());
        let pair = all.into_iter().find(|pair| (pair.first, pair.second) == (first, first + 1));
        let pair = pair.expect("all pairs are there");
        Self { chain: Arc::new(chain), swapped: Arc::new(swapped), pair, dice }
    }

    /// The first call of which the two orders do not what one of these levels promises.
    fn difference(&mut self, levels: &[Level]) -> Option<String> {
        let (chain, swapped) = (&self.chain, &self.swapped);
        let mut worlds = [World::new(chain), World::new(swapped)];
        let mut levels = levels.to_vec();
        for nth in 0..CALLS {
            let call = Call::random(&mut self.dice, chain, nth);
            let one = run(&mut worlds[0], chain, &call);
            let other = run(&mut worlds[1], swapped, &call);
            if one.is_full || other.is_full {
                levels.retain(|level| *level == Level::Strict);
            }
            for &level in &levels {
                let (one, other) = (promise(chain, &one, level), promise(swapped, &other, level));
                if one != other {
                    let level = level.name();
                    return Some(format!("{level}, call {nth}: {:#?}\n{one:#?}\n{other:#?}", self.pair));
                }
            }
            // From here on the state may differ.
            levels.retain(|level| *level != Level::Relaxed);
        }
        None
    }
}

#[test]
fn both_orders_do_what_the_level_promises() {
    // A swap that changes what calls see, or what is kept of them, must not be called harmless.
    let mut swappable = BTreeMap::new();
    let mut clashes = BTreeMap::new();
    for seed in 0..CASES {
        let mut case = Case::random(seed);
        let pair = case.pair.clone();
        let rules: std::collections::BTreeSet<Rule> = pair.clashes.iter().map(|clash| clash.rule).collect();
        rules.into_iter().for_each(|rule| *clashes.entry(rule).or_insert(0u64) += 1);
        let levels: Vec<Level> = Level::ALL.into_iter().filter(|level| pair.may_swap(*level)).collect();
        levels.iter().for_each(|level| *swappable.entry(*level).or_insert(0u64) += 1);
        if let Some(found) = case.difference(&levels) {
            panic!("seed {seed}, {found}");
        }
    }
    println!("of {CASES} pairs may swap: {swappable:?}; with a clash: {clashes:?}");
    assert!(
        Level::ALL.iter().all(|level| swappable.get(level).is_some_and(|n| n * 20 > CASES)),
        "{swappable:?}"
    );
    let generated = Rule::ALL.into_iter().filter(|rule| !matches!(rule, Rule::Order | Rule::Filters));
    assert!(
        generated.into_iter().all(|rule| clashes.get(&rule).is_some_and(|n| n * 20 > CASES)),
        "{clashes:?}"
    );
}

#[test]
fn no_rule_can_be_left_out() {
    // A rule that nothing needs is either wrong or not tested.
    let mut missed: BTreeMap<Rule, u64> = BTreeMap::new();
    let wanted = Rule::ALL.len() - 2;
    for seed in 0..CASES_MAX {
        let pair = Case::random(seed).pair;
        for level in Level::ALL {
            let mut blocking = pair.blocking(level).map(|clash| clash.rule);
            let Some(rule) = blocking.next() else { continue };
            // Without this one rule the swap would be allowed.
            if missed.contains_key(&rule) || blocking.any(|other| other != rule) {
                continue;
            }
            if Case::random(seed).difference(&[level]).is_some() {
                missed.insert(rule, seed);
            }
        }
        if missed.len() == wanted {
            println!("each rule was missed first in case {missed:?}");
            return;
        }
    }
    let lost: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| !missed.contains_key(rule)).collect();
    panic!("nobody misses {lost:?}");
}

#[test]
fn random_chains_end_in_all_ways() {
    // What is never generated is never tested.
    let mut kinds = BTreeMap::new();
    for seed in 0..200 {
        let chain = generate::chain(&mut Dice::from_seed(seed));
        let handlers = chain.elements.iter().filter_map(|element| element.handlers.request.as_ref());
        for block in handlers.flat_map(|handler| &handler.blocks) {
            *kinds.entry(weft_ir::text::end_mnemonic(&block.end)).or_insert(0) += 1;
        }
    }
    // Jump, Branch, Forward, Drop, Abort, Reply, Redirect, Fail.
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}
