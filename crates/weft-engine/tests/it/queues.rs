//! Compiled queues: machine code and interpreter agree.

use std::collections::VecDeque;
use std::sync::Arc;
use weft_engine::queue::{Packet, Queue};
use weft_ir::ir::IntCmp;
use weft_ir::queue::generate::{self, Rng};
use weft_ir::queue::run::Interpreted;
use weft_ir::queue::verify::verify;
use weft_ir::queue::{
    Field, Handler, Handlers, Level, Limit, Op, Order, Overflow, PacketOrder, Partitions, QueueProgram,
    Scope, Slot, Step, Ty, Value, VarDecl, Verdict, Victim, word,
};
use weft_jit::Jit;

/// Programs that are generated; steps that each takes.
const PROGRAMS: u64 = 60;
const STEPS: u64 = 300;

#[test]
fn compiled_queue_matches_interpreter() {
    // If it failed, a handler that is called directly would see words of another packet, node or partition.
    let jit = Jit::new().expect("this machine is one that code is generated for");
    for seed in 0..PROGRAMS {
        let mut rng = Rng::from_seed(seed);
        let mut program = generate::program(&mut rng);
        for level in &mut program.levels {
            // A handler that always says NEXT or STAY uses all turns.
            (level.handlers.select, level.handlers.empty) = (None, None);
            if level.partitions == Partitions::One {
                only_of_nodes(level);
            }
        }
        let program = Arc::new(program);
        let code = Arc::new(jit.compile_queue(&program).expect("it is well-formed"));
        let mut compiled = Queue::new(program.clone(), code, 0, seed);
        let mut interpreted = Queue::new(program.clone(), Interpreted::new(program.clone()), 0, seed);
        for step in 0..STEPS {
            let now = step * 10_000;
            if rng.percent(60) {
                let packet = packet(&mut rng, step);
                compiled.enqueue(&packet, now);
                interpreted.enqueue(&packet, now);
            } else {
                assert_eq!(
                    compiled.dequeue(now),
                    interpreted.dequeue(now),
                    "seed {seed}, step {step}\n{program}"
                );
            }
            let [ours, theirs]: [Vec<_>; 2] = [
                core::iter::from_fn(|| compiled.poll_dropped()).collect(),
                core::iter::from_fn(|| interpreted.poll_dropped()).collect(),
            ];
            assert_eq!(ours, theirs, "seed {seed}, step {step}\n{program}");
        }
        let counts = compiled.counts();
        assert_eq!(counts, interpreted.counts(), "seed {seed}");
        assert!(counts.is_conserved(), "seed {seed}: {counts:?}");
    }
}

#[test]
fn fifo_keeps_order_and_drop_end() {
    // If it failed, packets of a FIFO would be reordered or lost when its ring wraps or grows.
    let victim = |head| Overflow::Victim { partition: Victim::Own, head };
    for (overflow, field) in [
        (Overflow::Arriving, None),
        (victim(false), None),
        (victim(true), None),
        (victim(true), Some(Field::Flow)),
    ] {
        // Three fields and more take a second line of words.
        let fields = field.map_or(Vec::new(), |field| vec![field, Field::Src, Field::Dst, Field::Class]);
        let program = Arc::new(QueueProgram { name: "line".into(), levels: vec![line(overflow)], fields });
        let mut queue = Queue::new(program.clone(), Interpreted::new(program), 0, 0);
        let (mut rng, mut waiting) = (Rng::from_seed(3), VecDeque::new());
        for step in 0..20_000 {
            // Several come at one time.
            let now = step / 20;
            let lost = match rng.below(1_000) {
                // It grows and shrinks by turns.
                nth if nth < 400 + usize::from(step / 500 % 2 == 0) * 200 => {
                    let is_full = waiting.len() == LINE_MAX as usize;
                    queue.enqueue(&packet(&mut rng, step), now);
                    waiting.push_back(step);
                    match overflow {
                        _ if !is_full => None,
                        Overflow::Victim { head: true, .. } => waiting.pop_front(),
                        _ => waiting.pop_back(),
                    }
                }
                nth if nth < 999 => {
                    assert_eq!(queue.dequeue(now).map(|sent| sent.handle), waiting.pop_front());
                    None
                }
                _ => {
                    let all = queue.take_all();
                    assert!(all.iter().map(|(packet, _)| packet.handle).eq(waiting.iter().copied()));
                    queue.adopt(&all);
                    None
                }
            };
            assert_eq!(queue.poll_dropped().map(|dropped| dropped.handle), lost, "{overflow:?} at {step}");
            if step % 100 == 0 {
                assert!(queue.waiting().into_iter().eq(waiting.iter().copied()), "{overflow:?} at {step}");
            }
        }
        assert!(queue.counts().is_conserved());
    }
}

#[test]
fn compiled_turns_match_interpreter() {
    // If it failed, a queue whose partitions take turns would send or drop other packets when compiled, or reach
    // another state.
    let jit = Jit::new().expect("this machine is one that code is generated for");
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let program = turns(&mut rng);
        assert_eq!(verify(&program), Ok(()), "{program}");
        let program = Arc::new(program);
        let code = Arc::new(jit.compile_queue(&program).expect("it is well-formed"));
        let mut compiled = Queue::new(program.clone(), code, 0, seed);
        let mut interpreted = Queue::new(program.clone(), Interpreted::new(program), 0, seed);
        compiled.watch();
        interpreted.watch();
        for step in 0..2_000_u64 {
            let (now, grows) = (step / 3, step / 200 % 2 == 0);
            if rng.percent(if grows { 60 } else { 35 }) {
                let packet = packet(&mut rng, step);
                compiled.enqueue(&packet, now);
                interpreted.enqueue(&packet, now);
            } else {
                let sent = compiled.dequeue(now);
                assert_eq!(sent, interpreted.dequeue(now), "seed {seed}, step {step}");
                if let Some(sent) = sent {
                    compiled.record_sent(&sent, now);
                    interpreted.record_sent(&sent, now);
                }
            }
            let [ours, theirs]: [Vec<_>; 2] = [
                core::iter::from_fn(|| compiled.poll_dropped()).collect(),
                core::iter::from_fn(|| interpreted.poll_dropped()).collect(),
            ];
            assert_eq!(ours, theirs, "seed {seed}, step {step}");
            assert_eq!(compiled.partitions(100), interpreted.partitions(100), "seed {seed}, step {step}");
            if step % 10 == 0 {
                assert_eq!(compiled.snapshot(), interpreted.snapshot(), "seed {seed}, step {step}");
            }
        }
        assert_eq!(
            (compiled.counts(), compiled.lines()),
            (interpreted.counts(), interpreted.lines()),
            "seed {seed}"
        );
        assert!(compiled.counts().is_conserved(), "seed {seed}");
    }
}

#[test]
fn held_packet_regains_its_rank() {
    // If it failed, packets of a flow would be reordered in a program that paces and ranks them.
    let held = Slot::new(Scope::Node, word::NODE_VARS);
    let rank = Handler {
        body: vec![Step::Let(Value(0), Op::IntConst(1)), Step::Give(Value(0))],
        types: vec![Ty::Int],
    };
    for bits in [Some(0), Some(1), Some(10), None] {
        let mut level = line(Overflow::Arriving);
        level.packets = PacketOrder::Rank { bits };
        level.vars = vec![VarDecl { name: "held".into(), ty: Ty::Int, bits: 8, signed: false, start: 0 }];
        let mut dequeue = by_turns(held, Verdict::Hold, Verdict::Pass, false);
        let until = [
            Step::Let(Value(4), Op::IntConst(10)),
            Step::Store(Slot::new(Scope::Event, word::HOLD), Value(4)),
        ];
        dequeue.body.splice(0..0, until);
        dequeue.types.push(Ty::Int);
        level.handlers =
            Handlers { packet_rank: Some(rank.clone()), dequeue: Some(dequeue), ..Handlers::default() };
        let program = Arc::new(QueueProgram { name: "held".into(), levels: vec![level], fields: Vec::new() });
        assert_eq!(verify(&program), Ok(()), "{program}");
        let mut queue = Queue::new(program.clone(), Interpreted::new(program), 0, 0);
        (1..=3).for_each(|handle| queue.enqueue(&Packet { handle, ..Packet::default() }, 0));
        assert_eq!(queue.dequeue(5), None, "{bits:?}");
        let sent: Vec<_> =
            (10..16).filter_map(|now| queue.dequeue(now * 10)).map(|sent| sent.handle).collect();
        assert_eq!(sent, [1, 2, 3], "{bits:?}");
    }
}

#[test]
fn endless_turns_block_no_partition() {
    // If it failed, a quantum of one byte, or a partition that stays in the order without packets, would hold a link
    // forever.
    let jit = Jit::new().expect("this machine is one that code is generated for");
    let always = |verdict| Some(Handler { body: vec![Step::End(verdict, 1)], types: Vec::new() });
    let next = always(Verdict::Next);
    let cases =
        [(1, None, &next), (2, Some(0), &next), (3, Some(1), &next), (4, Some(1), &None), (5, None, &None)];
    for (seed, bits, select) in cases {
        let mut program = turns(&mut Rng::from_seed(seed));
        program.levels[0].order.bits = bits;
        (program.levels[0].handlers.select, program.levels[0].handlers.empty) =
            (select.clone(), always(Verdict::Stay));
        let program = Arc::new(program);
        let code = Arc::new(jit.compile_queue(&program).expect("it is well-formed"));
        let mut compiled = Queue::new(program.clone(), code, 0, seed);
        let mut interpreted = Queue::new(program.clone(), Interpreted::new(program), 0, seed);
        let mut rng = Rng::from_seed(seed);
        for handle in 0..7 {
            let packet = packet(&mut rng, handle);
            compiled.enqueue(&packet, handle);
            interpreted.enqueue(&packet, handle);
        }
        for nth in 0..9 {
            assert_eq!(compiled.dequeue(9), interpreted.dequeue(9), "{nth} of {bits:?}");
            assert_eq!(compiled.snapshot(), interpreted.snapshot(), "{nth} of {bits:?}");
            while compiled.poll_dropped().is_some() | interpreted.poll_dropped().is_some() {}
        }
        assert_eq!(compiled.counts(), interpreted.counts());
        assert_eq!(compiled.counts().queued, 0);
    }
}

/// Partitions that take turns, with or without FIFOs of their own, and handlers that alternate between allowed
/// verdicts.
fn turns(rng: &mut Rng) -> QueueProgram {
    let var = |name: &str| VarDecl { name: name.into(), ty: Ty::Int, bits: 8, signed: false, start: 0 };
    let overflow = [Victim::Own, Victim::MostBytes, Victim::HighestRank][rng.below(3)];
    let below = rng.percent(50).then(|| {
        let arriving = [Overflow::Arriving, Overflow::Victim { partition: Victim::Own, head: true }];
        let mut line = line(arriving[rng.below(2)]);
        line.limit.packets = Some(10);
        line.vars = vec![var("dequeued"), var("emptied")];
        let of_node = |nth| Slot::new(Scope::Node, word::NODE_VARS + nth);
        let ends = [Verdict::Mark, Verdict::Drop][rng.below(2)];
        line.handlers.dequeue = rng.percent(70).then(|| by_turns(of_node(0), Verdict::Pass, ends, false));
        line.handlers.empty =
            rng.percent(50).then(|| by_turns(of_node(1), Verdict::Pass, Verdict::Pass, false));
        line
    });
    let of_partition = |nth| Slot::new(Scope::Partition, word::PARTITION_VARS + nth);
    let mut level = line(Overflow::Victim { partition: overflow, head: rng.percent(50) });
    level.partitions = match rng.below(3) {
        0 => Partitions::Direct { n: 8 },
        1 => Partitions::Hash { n: 16, ways: 1 },
        _ => Partitions::Hash { n: 16, ways: 4 },
    };
    level.limit.packets = Some(40);
    level.limit.bytes = rng.percent(30).then_some(20_000);
    level.order.bits = [None, Some(0), Some(1), Some(4)][rng.below(4)];
    level.partition_vars = ["activated", "selected", "dequeued", "emptied"].map(var).into();
    let leaves = [Verdict::Mark, Verdict::Drop, Verdict::Rotate][rng.below(3)];
    let mut may = |nth, first, then, percent| {
        let ranks = rng.percent(50);
        rng.percent(percent).then(|| by_turns(of_partition(nth), first, then, ranks))
    };
    let flow = Slot::new(Scope::Packet, word::FIELDS);
    let key = vec![Step::Load(Value(0), flow), Step::Give(Value(0))];
    level.handlers = Handlers {
        key: Some(Handler { body: key, types: vec![Ty::Int] }),
        activate: may(0, Verdict::Pass, Verdict::Pass, 50),
        select: may(1, Verdict::Next, Verdict::Pass, 60),
        dequeue: may(2, Verdict::Pass, leaves, 80),
        empty: may(3, Verdict::Stay, Verdict::Pass, 50),
        ..Handlers::default()
    };
    let levels = [level].into_iter().chain(below).collect();
    let fields: [&[Field]; 3] = [&[Field::Flow], &[Field::Src], &[Field::Flow, Field::Remaining]];
    QueueProgram { name: "turns".into(), levels, fields: fields[rng.below(3)].into() }
}

/// A handler that alternates between two verdicts, and may change the rank of its partition.
fn by_turns(whose: Slot, first: Verdict, then: Verdict, ranks: bool) -> Handler {
    let [was, zero, one, is_zero] = [0, 1, 2, 3].map(Value);
    let end = |to, verdict| {
        let rank = ranks.then(|| Step::Store(Slot::new(Scope::Partition, word::RANK), to));
        [Step::Store(whose, to)].into_iter().chain(rank).chain([Step::End(verdict, 7)]).collect()
    };
    let body = vec![
        Step::Load(was, whose),
        Step::Let(zero, Op::IntConst(0)),
        Step::Let(one, Op::IntConst(1)),
        Step::Let(is_zero, Op::IntCompare(IntCmp::Eq, was, zero)),
        Step::If { by: is_zero, then: end(one, first), otherwise: end(zero, then) },
    ];
    Handler { body, types: vec![Ty::Int, Ty::Int, Ty::Int, Ty::Bool] }
}

/// Packets of that line.
const LINE_MAX: u32 = 100;

/// A FIFO.
fn line(overflow: Overflow) -> Level {
    Level {
        name: "line".into(),
        partitions: Partitions::One,
        vars: Vec::new(),
        partition_vars: Vec::new(),
        order: Order { bits: None, by_least_packet: false },
        packets: PacketOrder::Arrival,
        limit: Limit { packets: Some(LINE_MAX), bytes: None, overflow, batch: 1, line: 1 },
        handlers: Handlers::default(),
    }
}

/// A node that is one FIFO has no partition words, and no program of the language uses any.
fn only_of_nodes(level: &mut Level) {
    let Handlers { packet_rank, enqueue, activate, dequeue, .. } = &mut level.handlers;
    for handler in [&mut *packet_rank, enqueue, activate, dequeue] {
        handler.take_if(|handler| names_partition(&handler.body));
    }
    if packet_rank.is_none() {
        level.packets = PacketOrder::Arrival;
        level.order.by_least_packet = false;
    }
}

fn names_partition(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Load(_, slot) | Step::Store(slot, _) => slot.scope == Scope::Partition,
        Step::If { then, otherwise, .. } => names_partition(then) || names_partition(otherwise),
        _ => false,
    })
}

fn packet(rng: &mut Rng, handle: u64) -> Packet {
    let mut number = |n| rng.below(n) as u32;
    Packet {
        handle,
        len: 64 + number(1450),
        ecn: number(4) as u8,
        dscp: number(64) as u8,
        flow: number(20),
        src: number(5),
        dst: number(5),
        class: number(8),
        remaining: number(1 << 24).into(),
        slack_ns: number(1 << 30).into(),
        deadline_ns: number(1 << 30).into(),
        headers: [number(9).into(), 0, number(100).into(), 1],
        framing: number(40),
    }
}
