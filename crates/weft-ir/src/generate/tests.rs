use super::*;
use crate::backend::{Program, Unsupported};
use crate::interp::Interp;
use crate::ir::{Inst, Journal, Op, Ty};
use crate::verify::verify_program;
use weft_core::abi::State;

#[test]
fn generated_chains_verify() {
    for seed in 0..300 {
        let chain = chain(&mut Rng::from_seed(seed));
        if let Err(errors) = verify_program(&chain) {
            let functions: Vec<String> = functions(&chain).map(text::write).collect();
            panic!("seed {seed}: {}\n{}", errors[0], functions.join("\n"));
        }
    }
}

/// The mnemonics of well-formed handlers.
fn handler_mnemonics() -> impl Iterator<Item = String> {
    // Operations on frames are generated from random wire formats (`weft-opt/tests/it/wire.rs`).
    let is_of_frames = |m: &str| m.starts_with("frame_") || m == "give";
    let overflows =
        ["add.signed", "add.unsigned", "sub.signed", "sub.unsigned", "mul.signed", "mul.unsigned"];
    let is_malformed = move |m: &str| {
        let of = m.strip_prefix("overflows.");
        of.is_some_and(|of| of != "sdiv.signed" && !overflows.contains(&of))
    };
    text::mnemonics().into_iter().filter(move |m| !is_of_frames(m) && !is_malformed(m))
}

#[test]
fn every_operation_is_generated() {
    // Back ends are not compared on an operation that never occurs.
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..300 {
        for (name, n) in coverage(&chain(&mut Rng::from_seed(seed))) {
            *counts.entry(name).or_default() += n;
        }
    }
    let absent: Vec<_> = handler_mnemonics().filter(|m| !counts.contains_key(m)).collect();
    assert!(absent.is_empty(), "not generated: {absent:?}\ncoverage: {counts:?}");
}

#[test]
fn interpreter_is_deterministic() {
    // If a run depended on more than its arguments, comparisons would be meaningless.
    for seed in 0..200 {
        compare(seed, &Interp, &Interp).unwrap_or_else(|d| panic!("seed {}: {}", d.seed, d.what));
    }
}

#[test]
fn passes_reach_all_verdicts() {
    // If the programs did too little, comparisons would find nothing.
    use weft_core::abi::Verdict;
    let mut verdicts = [0; 6];
    let (mut rows, mut edits, mut rolled_back) = (0, 0, 0);
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let chain = Arc::new(chain(&mut rng));
        let mut world = World::new(&chain);
        for at in 0..PASSES {
            let pass = Pass::random(&mut rng, &chain, Time(at as i64 * 20));
            let program = Interp.compile(&chain, pass.event, &world.state).unwrap();
            let seen = world.run(&chain, &*program, &pass);
            rows += seen.tables[..5].iter().map(Vec::len).sum::<usize>();
            edits += seen.edits.len();
            rolled_back += seen.counters.iter().map(|c| c.failed).sum::<u64>();
            verdicts[match seen.verdict {
                Verdict::Forward => 0,
                Verdict::Drop => 1,
                Verdict::Abort(_) => 2,
                Verdict::Reply => 3,
                Verdict::Redirect => 4,
                Verdict::Failed(_) => 5,
            }] += 1;
        }
    }
    assert!(verdicts.iter().all(|&n| n > 20), "{verdicts:?}");
    assert!(rows > 1000 && edits > 300 && rolled_back > 100, "{rows} {edits} {rolled_back}");
}

/// A wrong back end: it replaces each instruction that has this mnemonic.
struct Spoiled {
    mnemonic: String,
    spoil: fn(&Function, &Inst) -> Option<Op>,
}

impl Backend for Spoiled {
    fn name(&self) -> &'static str {
        "spoiled"
    }

    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported> {
        let mut chain = (**chain).clone();
        for element in &mut chain.elements {
            let h = &mut element.handlers;
            let single = [&mut h.open, &mut h.request, &mut h.response, &mut h.close].into_iter().flatten();
            let timed = h.every.iter_mut().map(|(_, f)| f).chain(h.timeouts.iter_mut().map(|(_, f)| f));
            for function in single.chain(timed) {
                *function = self.spoiled(function);
            }
        }
        Interp.compile(&Arc::new(chain), event, state)
    }
}

impl Spoiled {
    fn spoiled(&self, function: &Function) -> Function {
        let mut new = function.clone();
        for block in &mut new.blocks {
            block.insts.retain_mut(|inst| {
                if text::mnemonic(&inst.op) != self.mnemonic {
                    return true;
                }
                let spoiled = (self.spoil)(function, inst);
                let stays = spoiled.is_some();
                inst.op = spoiled.unwrap_or(Op::NoRow);
                stays
            });
        }
        new
    }
}

/// A result of zero, or no effect.
fn zero(function: &Function, inst: &Inst) -> Option<Op> {
    Some(match function.ty(inst.result?) {
        Ty::Bool => Op::BoolConst(false),
        Ty::Int => Op::IntConst(0),
        Ty::Float => Op::FloatConst(0.0),
        Ty::Bytes => Op::BytesConst(Vec::new()),
        Ty::Row => Op::NoRow,
    })
}

/// The same write without its journal entry.
fn unjournalled(_: &Function, inst: &Inst) -> Option<Op> {
    Some(match inst.op.clone() {
        Op::CallSet(id, v, _) => Op::CallSet(id, v, Journal::No),
        Op::VarSet(id, v, _) => Op::VarSet(id, v, Journal::No),
        Op::VarMerge(id, v, _) => Op::VarMerge(id, v, Journal::No),
        Op::Insert(t, key, _) => Op::Insert(t, key, Journal::No),
        Op::Remove(t, row, _) => Op::Remove(t, row, Journal::No),
        Op::SetColumn(t, row, c, v, _) => Op::SetColumn(t, row, c, v, Journal::No),
        Op::SetColumnNull(t, row, c, _) => Op::SetColumnNull(t, row, c, Journal::No),
        Op::CountInto(t, row, c, v, _) => Op::CountInto(t, row, c, v, Journal::No),
        other => other,
    })
}

/// The first seed that detects the wrong back end. `covered` holds the operations of each seed's chain.
fn found_by(covered: &[BTreeMap<String, u64>], spoiled: &Spoiled) -> Option<u64> {
    let occurs = |seed: &u64| covered[*seed as usize].contains_key(&spoiled.mnemonic);
    (0..covered.len() as u64).filter(occurs).find(|&seed| compare(seed, &Interp, spoiled).is_err())
}

#[test]
#[ignore = "for --release: it runs thousands of chains"]
fn wrong_operation_is_detected() {
    // If no seed detects a wrong operation, the comparison does not test that operation.
    //
    // Exempt are locks, which do nothing on one thread, and terminators, which are not instructions. Scans count with
    // `add` and `int`, so they would not end. TouchRead shows only when a full LRU table evicts another row because of
    // it, which is too rare.
    let exempt = ["lock", "lock_vars", "add", "int", "no_row", "touch_read"];
    let ends = ["jump", "branch", "forward", "skip", "steer", "drop", "abort", "reply", "redirect", "fail"];
    let covered: Vec<_> = (0..6000).map(|seed| coverage(&chain(&mut Rng::from_seed(seed)))).collect();
    let mut unseen = Vec::new();
    for mnemonic in handler_mnemonics() {
        if exempt.contains(&&*mnemonic) || ends.contains(&&*mnemonic) {
            continue;
        }
        if found_by(&covered, &Spoiled { mnemonic: mnemonic.clone(), spoil: zero }).is_none() {
            unseen.push(mnemonic.clone());
        }
        let is_journalled = mnemonic.ends_with(".journal");
        if is_journalled
            && found_by(&covered, &Spoiled { mnemonic: mnemonic.clone(), spoil: unjournalled }).is_none()
        {
            unseen.push(format!("{mnemonic} without its journal"));
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}
