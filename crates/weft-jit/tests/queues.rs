//! Compiled handlers of queues behave as the interpreter.

use std::sync::Arc;
use weft_ir::queue::generate::{self, HandlerWords};
use weft_ir::queue::{
    FIELDS_MAX, Field, Handler, Handlers, Level, Moment, PacketOrder, Partitions, QueueCode, Scope, Slot,
    Step, Ty, Value, Verdict, word,
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
            Ok(Arc::new(compiled) as Arc<dyn QueueCode>)
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
    let mut words = HandlerWords::at_start(&program.levels[0]);
    for moment in [Moment::Enqueue, Moment::Dequeue, Moment::Every(3)] {
        assert_eq!(compiled.run(0, moment, words.lend()), Verdict::Pass.word(0));
    }
}

#[test]
fn too_many_fields_are_refused() {
    // Code would write behind the words of a packet.
    let mut program = generate::program(&mut generate::Rng::from_seed(1));
    program.fields = vec![Field::Flow; FIELDS_MAX];
    let jit = Jit::new().expect("this machine is one that code is generated for");
    let last = Slot::new(Scope::Packet, word::FIELDS + FIELDS_MAX as u16 - 1);
    let body = vec![Step::Load(Value(0), last), Step::Store(last, Value(0)), Step::End(Verdict::Pass, 1)];
    program.levels[0].handlers.enqueue = Some(Handler { body, types: vec![Ty::Int] });
    let compiled = jit.compile_queue(&Arc::new(program.clone())).expect("the program is well-formed");
    compiled.run(0, Moment::Enqueue, HandlerWords::at_start(&program.levels[0]).lend());
    program.fields.push(Field::Flow);
    let refused = jit.compile_queue(&Arc::new(program)).expect_err("a packet has too few words");
    assert!(refused.reason.contains("18 fields, and 17 at most"), "{}", refused.reason);
}
