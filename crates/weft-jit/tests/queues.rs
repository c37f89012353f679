//! Compiled handlers of queues behave as the interpreter.

use std::sync::Arc;
use weft_ir::queue::{
    Handler, Handlers, Level, Moment, Op, PacketOrder, Partitions, QueueCode, Scope, Slot, Step, Ty, Value,
    Verdict, Words, generate, word,
};
use weft_jit::Jit;

/// Number of generated programs; `WEFT_QUEUE_SEEDS` overrides it.
const SEEDS: u64 = if cfg!(debug_assertions) { 650 } else { 20_000 };

#[test]
fn compiled_handlers_match_interpreter() {
    // A queue would drop other packets on a link than in the simulator.
    let jit = Jit::new().expect("this machine is one that code is generated for");
    #[allow(clippy::disallowed_methods, reason = "the one setting of a test that may take hours")]
    let said = std::env::var("WEFT_QUEUE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut n_handlers = 0;
    for seed in 0..said.unwrap_or(SEEDS) {
        let compared = generate::compare(seed, |program| {
            let compiled = jit.compile_queue(program).map_err(|refused| refused.to_string())?;
            Ok(Box::new(Arc::new(compiled)) as Box<dyn QueueCode>)
        });
        n_handlers += compared.unwrap_or_else(|d| panic!("seed {}: {}", d.seed, d.what));
    }
    assert!(said.is_some() || n_handlers >= 10_000, "{n_handlers} handlers");
}

#[test]
fn missing_handlers_pass() {
    // A queue that only orders would lose packets.
    let program = Arc::new(generate::program(&mut generate::Rng::from_seed(1)));
    let mut bare = (*program).clone();
    bare.levels.truncate(1);
    bare.levels[0] =
        Level { partitions: Partitions::One, packets: PacketOrder::Arrival, ..bare.levels[0].clone() };
    bare.levels[0].order.by_least_packet = false;
    bare.levels[0].handlers = Handlers::default();
    let compiled =
        Jit::new().and_then(|jit| jit.compile_queue(&Arc::new(bare))).expect("an empty program compiles");
    assert_eq!(compiled.code_bytes(), 0);
    for moment in [Moment::Enqueue, Moment::Dequeue, Moment::Every(3)] {
        let words = Words { node: &mut [], partition: &mut [], packet: &mut [], event: &mut [] };
        assert_eq!(compiled.run(0, moment, words), Verdict::Pass.word(0));
    }
}

#[test]
#[should_panic(expected = "there are fewer event words than the queue program has")]
fn too_few_words_are_refused() {
    // Code would write outside its words.
    let mut program = generate::program(&mut generate::Rng::from_seed(1));
    let one = Handler {
        body: vec![
            Step::Let(Value(0), Op::IntConst(1)),
            Step::Store(Slot::new(Scope::Event, word::HOLD), Value(0)),
            Step::End(Verdict::Pass, 1),
        ],
        types: vec![Ty::Int],
    };
    program.levels[0].handlers.activate = Some(one);
    let compiled =
        Jit::new().and_then(|jit| jit.compile_queue(&Arc::new(program))).expect("the program is well-formed");
    let event = &mut [0; word::HOLD as usize];
    compiled.run(0, Moment::Activate, Words { node: &mut [], partition: &mut [], packet: &mut [], event });
}
