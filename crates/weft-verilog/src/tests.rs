//! The net of a handler behaves as the interpreter.

use crate::Widths;
use crate::circuit::{Circuit, PortRole};
use crate::convert::{Converter, Source};
use crate::net::Gate;
use crate::range::Range;
use std::collections::BTreeMap;
use weft_core::rng::Rng;
use weft_ir::ir::{FloatOp, FloatUnaryOp, IntCmp, Signed};
use weft_ir::queue::generate::HandlerWords;
use weft_ir::queue::run::handle;
use weft_ir::queue::verify::verify;
use weft_ir::queue::{
    Handler, Handlers, Level, Moment, Op, PacketOrder, Partitions, QueueProgram, Scope, Slot, Step, Timer,
    Ty, Value, VarDecl, Verdict, generate, word,
};

/// Draws new inputs of a handler.
fn draw(words: &mut HandlerWords, rng: &mut Rng, converter: &Converter<'_>, program: &QueueProgram) {
    let level = &program.levels[0];
    for (scope, n) in [
        (Scope::Node, level.node_words()),
        (Scope::Partition, level.partition_words()),
        (Scope::Packet, program.packet_words() - 1),
        (Scope::Event, word::EVENT_WORDS.into()),
    ] {
        for slot in (0..n as u16).map(|at| Slot::new(scope, at)) {
            if converter.var(slot).is_none() {
                *words.lend().word(slot) = within(rng, converter.type_and_range(slot).1);
            }
        }
    }
}

fn within(rng: &mut Rng, range: Range) -> u64 {
    let reach = range.hi.wrapping_sub(range.lo) as u64;
    let near = rng.below(3) as u64;
    (match rng.below(5) {
        0 => range.lo.saturating_add(near as i64).min(range.hi),
        1 => range.hi.saturating_sub(near as i64).max(range.lo),
        2 => (rng.pick(&[0, 1, 1000, 1500, 5_000_000, 100_000_000]) as i64).clamp(range.lo, range.hi),
        _ if reach == u64::MAX => rng.bits() as i64,
        _ => range.lo.wrapping_add((rng.bits() >> rng.below(64)).checked_rem(reach + 1).unwrap_or(0) as i64),
    }) as u64
}

/// Runs the circuit beside the interpreter; returns the first difference, or None.
fn differs(
    program: &QueueProgram,
    circuit: &Circuit,
    widths: &Widths,
    seed: u64,
    runs: usize,
) -> Option<String> {
    let level = &program.levels[0];
    let converter = Converter::new(program, level, widths);
    let mut rng = Rng::from_seed(seed);
    let mut words = HandlerWords::at_start(level);
    let mut registers: BTreeMap<Slot, u64> = circuit.registers.iter().map(|r| (r.slot, r.start)).collect();
    let roots: Vec<_> = circuit.driven.iter().map(|driven| driven.wire).collect();
    let roots = [roots, circuit.registers.iter().filter_map(|register| register.next).collect()].concat();
    let cone = circuit.net.cone(&roots, |_| false);
    let mut values = Vec::new();
    for nth in 0..runs {
        let moment = rng.below(circuit.moments.len());
        draw(&mut words, &mut rng, &converter, program);
        let before = words.clone();
        circuit.net.evaluate(
            &cone,
            |wire| match circuit.net.gate(wire) {
                Gate::Input(nth) => Some(match circuit.inputs[nth as usize].0 {
                    Source::Moment => moment as u64 + 1,
                    Source::Slot(slot) if converter.var(slot).is_some() => registers[&slot],
                    Source::Slot(slot) => before.get(slot),
                }),
                _ => None,
            },
            &mut values,
        );
        let handler =
            level.handlers.get(circuit.moments[moment]).expect("the moments are those with a handler");
        let result = handle(handler, &mut words.lend());
        let told = |what: String| Some(format!("run {nth}, {:?}: {what}", circuit.moments[moment]));
        for driven in &circuit.driven {
            let expected = match driven.role {
                PortRole::NewWord(slot) => words.get(slot),
                PortRole::Verdict if !circuit.moments[moment].gives() => Verdict::of_word(result) as u64,
                PortRole::Given if circuit.moments[moment].gives() => result,
                _ => continue,
            };
            if values[driven.wire.index()] != expected {
                return told(format!(
                    "{} is {} and not {expected}",
                    driven.name,
                    values[driven.wire.index()]
                ));
            }
        }
        for register in &circuit.registers {
            let Some(next) = register.next else { continue };
            let (is, expected) = (register.range.cut(values[next.index()]), words.get(register.slot));
            let are_nan = f64::from_bits(is).is_nan() && f64::from_bits(expected).is_nan();
            if is != expected && !are_nan {
                return told(format!("{} is {is} and not {expected}, of {before:?}", register.name));
            }
            registers.insert(register.slot, expected);
        }
    }
    None
}

/// A program with only this handler.
fn alone(of: &QueueProgram, level: &Level, moment: Moment, handler: &Handler) -> QueueProgram {
    let mut handlers = Handlers::default();
    let handler = Some(handler.clone());
    match moment {
        Moment::Key => handlers.key = handler,
        Moment::PacketRank => handlers.packet_rank = handler,
        Moment::Enqueue => handlers.enqueue = handler,
        Moment::Activate => handlers.activate = handler,
        Moment::Select => handlers.select = handler,
        Moment::Dequeue => handlers.dequeue = handler,
        Moment::Empty => handlers.empty = handler,
        Moment::Every(_) | Moment::EachPartition(_) => {
            let each_partition = moment.has_partition();
            let timer = |handler| Timer { interval_ns: 1, each_partition, handler };
            handlers.every = handler.into_iter().map(timer).collect();
        }
    }
    let mut level = Level { handlers, partitions: Partitions::One, ..level.clone() };
    level.order.by_least_packet = false;
    level.packets = PacketOrder::Arrival;
    QueueProgram { levels: vec![level], ..of.clone() }
}

#[test]
fn net_matches_interpreter() {
    // A queue in gates would drop other packets than one on a processor.
    let widths = Widths::default();
    let (mut n_built, mut n_refused) = (0, 0);
    for seed in 0..600 {
        let program = generate::program(&mut Rng::from_seed(seed));
        for level in &program.levels {
            for (moment, handler) in level.handlers.iter() {
                let alone = alone(&program, level, moment, handler);
                let circuit = match Circuit::new(&alone, &alone.levels[0], &widths) {
                    Ok(circuit) => circuit,
                    Err(refused) => {
                        assert!(refused.reason.contains("floats"), "{}", refused.reason);
                        n_refused += 1;
                        continue;
                    }
                };
                n_built += 1;
                if let Some(what) = differs(&alone, &circuit, &widths, seed, 20) {
                    panic!("seed {seed}: {what}\n{alone}");
                }
            }
        }
    }
    assert!(n_built > 3000, "{n_built} built, {n_refused} refused");
}

#[test]
fn many_ends_do_not_overflow_stack() {
    // A long list of cases would overflow the compiler's stack.
    let enough = (0..800).flat_map(|nth| {
        let [loaded, bound, by] = [0, 1, 2].map(|of| Value(3 * nth + of));
        [
            Step::Let(bound, Op::IntConst(i64::from(nth) + 1)),
            Step::Load(loaded, Slot::new(Scope::Packet, word::LEN)),
            Step::Let(by, Op::IntCompare(IntCmp::Eq, loaded, bound)),
            Step::If { by, then: vec![Step::End(Verdict::Drop, nth)], otherwise: Vec::new() },
        ]
    });
    let body: Vec<Step> = enough.chain([Step::End(Verdict::Pass, 0)]).collect();
    let handler = Handler { body, types: [Ty::Int, Ty::Int, Ty::Bool].repeat(800) };
    let any = generate::program(&mut Rng::from_seed(1));
    let program = alone(&any, &any.levels[0], Moment::Enqueue, &handler);
    assert_eq!(verify(&program), Ok(()));
    let circuit = Circuit::new(&program, &program.levels[0], &Widths::default());
    let circuit = circuit.unwrap_or_else(|refused| panic!("{}", refused.reason));
    assert_eq!(differs(&program, &circuit, &Widths::default(), 1, 50), None);
}

/// Steps for `100 ms` divided by the root of a loaded word, as values from `first` on; the last of them is the result.
fn by_root(first: u32, of: Slot) -> Vec<Step> {
    let [over, one, loaded, float, root, inverse, product, step] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|nth| Value(first + nth));
    vec![
        Step::Let(over, Op::FloatConst(100_000_000.0)),
        Step::Let(one, Op::FloatConst(1.0)),
        Step::Load(loaded, of),
        Step::Let(float, Op::IntToFloat(Signed::Yes, loaded)),
        Step::Let(root, Op::FloatUnary(FloatUnaryOp::Sqrt, float)),
        Step::Let(inverse, Op::FloatBinary(FloatOp::Div, one, root)),
        Step::Let(product, Op::FloatBinary(FloatOp::Mul, over, inverse)),
        Step::Let(step, Op::FloatToInt(Signed::Yes, product)),
    ]
}

#[test]
fn wide_roots_match_floats() {
    // CoDel on a chip would drop at other times; with one unit per root it would not fit.
    let types = [Ty::Float, Ty::Float, Ty::Int, Ty::Float, Ty::Float, Ty::Float, Ty::Float, Ty::Int];
    let [at, n, rate] =
        [(Scope::Node, word::NODE_VARS), (Scope::Node, word::NODE_VARS + 1), (Scope::Event, word::RATE)]
            .map(|(scope, at)| Slot::new(scope, at));
    let way = |first: u32, of: Slot| {
        let mut steps = by_root(first, of);
        steps.extend([Step::Store(at, Value(first + 7)), Step::End(Verdict::Pass, 3)]);
        steps
    };
    let [by, limit, now] = [Value(16), Value(17), Value(18)];
    let body = vec![
        Step::Load(now, Slot::new(Scope::Packet, word::LEN)),
        Step::Store(n, now),
        Step::Let(limit, Op::IntConst(700)),
        Step::Let(by, Op::IntCompare(IntCmp::SLt, now, limit)),
        Step::If { by, then: way(0, rate), otherwise: way(8, n) },
    ];
    let types = [&types[..], &types, &[Ty::Bool, Ty::Int, Ty::Int]].concat();
    let handler = Handler { body, types };
    let any = generate::program(&mut Rng::from_seed(1));
    let var =
        |name: &str, bits| VarDecl { name: name.into(), ty: Ty::Int, bits, signed: bits == 64, start: 0 };
    let level = Level { vars: vec![var("at", 64), var("n", 32)], ..any.levels[0].clone() };
    let program = alone(&any, &level, Moment::Enqueue, &handler);
    assert_eq!(verify(&program), Ok(()));
    let widths = Widths { rate_bits: 32, ..Widths::default() };
    let circuit = Circuit::new(&program, &program.levels[0], &widths);
    let circuit = circuit.unwrap_or_else(|refused| panic!("{}", refused.reason));
    assert_eq!(circuit.roots.as_ref().map(|roots| (roots.over, roots.each.len())), Some((100_000_000, 1)));
    assert_eq!(differs(&program, &circuit, &widths, 1, 20_000), None);
    // It is checked for 32 bits at most.
    let wide = Widths { rate_bits: 33, ..Widths::default() };
    let refused =
        Circuit::new(&program, &program.levels[0], &wide).err().expect("the circuit has too many bits");
    assert!(refused.reason.contains("floats") && refused.line == 3, "{}", refused.reason);
}

#[test]
fn root_waits_only_where_it_is_used() {
    // Otherwise CoDel would take 26 clocks per packet instead of one: `IF NOT late THEN SEND` comes before its roots.
    let [by, limit, len, not] = [Value(8), Value(9), Value(10), Value(11)];
    let of_len = Slot::new(Scope::Packet, word::LEN);
    let mut body = vec![
        Step::Load(len, of_len),
        Step::Let(limit, Op::IntConst(700)),
        Step::Let(by, Op::IntCompare(IntCmp::SLt, len, limit)),
        Step::Let(not, Op::Not(by)),
        Step::If { by: not, then: vec![Step::End(Verdict::Pass, 2)], otherwise: Vec::new() },
    ];
    body.extend(by_root(0, Slot::new(Scope::Event, word::RATE)));
    let at = Slot::new(Scope::Node, word::NODE_VARS);
    body.extend([Step::Store(at, Value(7)), Step::End(Verdict::Pass, 3)]);
    let types = [Ty::Float, Ty::Float, Ty::Int, Ty::Float, Ty::Float, Ty::Float, Ty::Float, Ty::Int];
    let handler = Handler { body, types: [&types[..], &[Ty::Bool, Ty::Int, Ty::Int, Ty::Bool]].concat() };
    let any = generate::program(&mut Rng::from_seed(1));
    let var = VarDecl { name: "at".into(), ty: Ty::Int, bits: 64, signed: true, start: 0 };
    let level = Level { vars: vec![var], ..any.levels[0].clone() };
    let program = alone(&any, &level, Moment::Enqueue, &handler);
    assert_eq!(verify(&program), Ok(()));
    let widths = Widths { rate_bits: 32, ..Widths::default() };
    let circuit = Circuit::new(&program, &program.levels[0], &widths);
    let circuit = circuit.unwrap_or_else(|refused| panic!("{}", refused.reason));
    let (_, seen) = circuit.roots.as_ref().expect("the circuit has roots").each[0];
    let asked = circuit.net.cone(&[seen], |_| false).into_iter().filter_map(|wire| {
        let Gate::Input(nth) = circuit.net.gate(wire) else { return None };
        Some(circuit.inputs[nth as usize].0)
    });
    assert!(asked.into_iter().any(|source| source == Source::Slot(of_len)), "{:?}", circuit.inputs);
    assert_eq!(differs(&program, &circuit, &widths, 1, 20_000), None);
}
