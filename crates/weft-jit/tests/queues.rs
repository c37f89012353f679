//! Compiled handlers of queues behave as the interpreter.

use std::sync::Arc;
use weft_core::hash::hash_word;
use weft_ir::queue::layout::{CacheLine, NO_PACKETS, NONE, kept, paired, record_lines};
use weft_ir::queue::round_robin::{FastPathState, FastStop, RoundRobin, entered};
use weft_ir::queue::{
    Field, Handler, Handlers, Level, Moment, Op, PacketOrder, Partitions, QueueCode, Scope, Slot, Step, Ty,
    Value, Verdict, Words, generate, word,
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
            Step::Let(Value(0), Op::Int(1)),
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

#[test]
fn fast_path_skips_missing_records() {
    // A queue with inconsistent records would make code write outside them.
    let key =
        vec![Step::Let(Value(0), Op::Load(Slot::new(Scope::Packet, word::FIELDS))), Step::Give(Value(0))];
    let key = Some(Handler { body: key, types: vec![Ty::Int] });
    let mut program = generate::program(&mut generate::Rng::from_seed(1));
    program.levels.truncate(1);
    let level = &mut program.levels[0];
    (level.partitions, level.packets) = (Partitions::Hash { n: 8, ways: 4 }, PacketOrder::Arrival);
    (level.order.bits, level.order.by_least_packet) = (Some(0), false);
    level.limit.packets = Some(1_000);
    level.handlers = Handlers { key, ..Handlers::default() };
    program.fields = vec![Field::Flow];
    let (node_lines, partition_lines) =
        (record_lines(level.node_words()), record_lines(level.partition_words()));
    let program = Arc::new(program);
    let compiled =
        Jit::new().and_then(|jit| jit.compile_queue(&program)).expect("the program is well-formed");
    let turns = compiled.turns().expect("packets have a short way");

    let lines = |n: usize| vec![[0; 8]; n];
    // One ordered partition whose FIFO has no packet.
    let one = || {
        let mut partitions = lines(8 * partition_lines);
        partitions[0][kept::PLACE] = kept::IN_ORDER;
        partitions[0][kept::LINE] = NO_PACKETS;
        partitions
    };
    let enter =
        |mut node: Vec<CacheLine>, mut partitions: Vec<CacheLine>, mut tags: Vec<u32>, mut packets, slot| {
            let mut aside = FastPathState { event: &mut [0; 6], fifos: None };
            (turns.enqueue)(&mut node, &mut partitions, &mut tags, &mut packets, slot, &mut aside)
        };
    // The tag: the lower half of the hash of key 0.
    let tags = || vec![hash_word(0) as u32; 8];
    assert_eq!(enter(lines(node_lines), one(), tags(), lines(1), 0), entered::DONE);
    assert_eq!(enter(lines(node_lines), one(), vec![0; 8], lines(1), 0), entered::NOT);
    let mut wrong = lines(8 * partition_lines);
    wrong.iter_mut().for_each(|line| (line[kept::PLACE], line[kept::LINE]) = (kept::IN_ORDER, paired(0, 7)));
    for (node, partitions, tags, packets, slot) in [
        (lines(node_lines - 1), one(), tags(), lines(1), 0),
        (lines(node_lines), lines(8 * partition_lines - 1), tags(), lines(1), 0),
        (lines(node_lines), one(), vec![0; 7], lines(1), 0),
        (lines(node_lines), one(), tags(), lines(1), 1),
        (lines(node_lines), wrong.clone(), tags(), lines(1), 0),
    ] {
        assert_eq!(enter(node, partitions, tags, packets, slot), entered::MISSING);
    }

    let leave = |mut node: Vec<CacheLine>, mut partitions: Vec<CacheLine>, mut packets, first| {
        let mut aside = FastPathState { event: &mut [0; 6], fifos: None };
        if let [line, ..] = &mut node[..] {
            line[kept::FIRSTS] = paired(first, NONE);
        }
        (turns.dequeue)(&mut node, &mut partitions, &mut packets, 0, 9, &mut aside).stop()
    };
    let stands = |slot| {
        let mut partitions = one();
        partitions[0][kept::LINE] = paired(slot, slot);
        partitions
    };
    assert_eq!(leave(lines(node_lines), stands(0), lines(1), 0), FastStop::Sent);
    assert_eq!(leave(lines(node_lines), one(), lines(1), 0), FastStop::Nothing);
    for (node, partitions, first) in [
        (lines(node_lines - 1), stands(0), 0),
        (lines(node_lines), lines(8 * partition_lines - 1), 0),
        (lines(node_lines), stands(0), 8),
        (lines(node_lines), stands(1), 0),
    ] {
        assert_eq!(leave(node, partitions, lines(1), first), FastStop::Missing);
    }
}

#[test]
fn named_partitions_have_no_fast_path() {
    // Code would use the words of a FIFO as those of a partition, and write outside them.
    let rank = Slot::new(Scope::Partition, word::RANK);
    let flow = Slot::new(Scope::Packet, word::FIELDS);
    let key = vec![Step::Let(Value(0), Op::Load(flow)), Step::Give(Value(0))];
    let names =
        vec![Step::Let(Value(0), Op::Int(1)), Step::Store(rank, Value(0)), Step::End(Verdict::Pass, 1)];
    let [key, names] = [key, names].map(|body| Some(Handler { body, types: vec![Ty::Int] }));
    let mut program = generate::program(&mut generate::Rng::from_seed(1));
    program.levels.truncate(1);
    program.fields = vec![Field::Flow];
    let plain =
        Level { packets: PacketOrder::Arrival, handlers: Handlers::default(), ..program.levels[0].clone() };
    let mut root = Level { partitions: Partitions::Direct { n: 2 }, ..plain.clone() };
    let mut line = Level { partitions: Partitions::One, ..plain };
    (root.order.by_least_packet, line.order.by_least_packet) = (false, false);
    root.handlers.key = key;
    program.levels = vec![root, line];
    assert!(RoundRobin::of(&program).is_some());
    program.levels[1].handlers.empty.clone_from(&names);
    assert!(RoundRobin::of(&program).is_none());
    (program.levels[1].handlers.empty, program.levels[1].handlers.dequeue) = (None, names);
    assert!(RoundRobin::of(&program).is_none());
}
