//! Frames that an element holds, and time in which nothing comes.

use crate::packets::{
    Rig, START, SentFrames, collect, element, engine, jit, one, packet, pool, program, run, ttl,
};
use std::sync::Arc;
use weft_core::frame::{Pool, PoolConfig};
use weft_core::{Interval, Time};
use weft_engine::packet::stats::DropReason;
use weft_engine::packet::{HOLD_TIMES_MAX, HOLDS_MAX, PacketEngine};
use weft_ir::backend::Backend;
use weft_ir::interp::Interp;

/// Holds frames until so long after [`START`].
fn waits(until: Interval) -> String {
    let until = (START + until).0;
    element(
        "waits",
        &format!(
            "block0:\n v0: int = now\n v1: int = int {until}\n v2: bool = icmp.slt v0, v1\n \
             branch v2, block1, block2\nblock1:\n v3: bytes = bytes \"@hold\"\n redirect v3 ; line 5\n\
             block2:\n forward"
        ),
    )
}

/// Counts frames in a mark, beside one of an element in front.
fn marks(name: &str) -> String {
    element(name, "block0:\n v0: int = int 7\n mark.class v0\n forward")
}

/// Advances time to this, by the engine's timeouts.
fn pass_time(engine: &mut PacketEngine, pool: &mut Pool, end: Time) -> SentFrames {
    let mut left = Vec::new();
    while let Some(at) = engine.poll_timeout().filter(|at| *at <= end) {
        engine.handle_timeout(at, pool, None);
        collect(engine, pool, &mut left);
    }
    left
}

/// If it failed, a packet to an unknown neighbour would be lost, or edited by the elements in front once per wait.
#[test]
fn held_frame_returns_to_its_element() {
    for backend in [&Interp as &dyn Backend, &jit()] {
        let until = Interval::from_millis(40);
        let chains = [vec![ttl(), waits(until), marks("m")], vec![waits(until), ttl(), marks("m")]];
        for elements in chains {
            let (mut engine, mut pool) = (one(backend, &elements), pool());
            let (left, seen) = run(&mut engine, &mut pool, &[packet(9), packet(1), packet(5)], 3);
            assert_eq!((left.len(), engine.stats().drops), (0, Vec::new()));
            let dropped = seen.iter().filter(|(fate, _)| fate.contains("drop")).count();
            assert_eq!(engine.held(), 3 - dropped);
            let left = pass_time(&mut engine, &mut pool, START + until);
            assert_eq!(left, [], "before its time");
            let left = pass_time(&mut engine, &mut pool, START + Interval::from_millis(200));
            assert_eq!(left, [9, 5].map(|ttl| (1, 7, packet(ttl - 1))));
            let stats = engine.stats();
            assert_eq!((stats.ports[0].received, stats.ports[1].sent), (3, 2));
            let seen: Vec<u64> = stats.chains[0].elements.iter().map(|(_, counters)| counters.seen).collect();
            assert!(elements[0] != ttl() || seen[0] == 3, "those in front have seen it: {seen:?}");
            assert_eq!((seen[2], engine.held(), pool.in_use()), (2, 0, 0), "{seen:?}");
        }
    }
}

/// A router asks for a neighbour with a copy of the frame, and would have nothing to send when the answer arrives.
#[test]
fn copy_is_held_while_frame_passes() {
    let until = (START + Interval::from_millis(6)).0;
    let asks = element(
        "asks",
        &format!(
            "block0:\n v0: int = now\n v1: int = int {until}\n v2: bool = icmp.slt v0, v1\n \
             branch v2, block1, block2\nblock1:\n v3: bytes = bytes \"@hold\"\n mirror v3\n v4: int = int 99\n \
             set_input in2, v4\n v5: bytes = bytes \"c\"\n redirect v5 ; line 5\nblock2:\n forward"
        ),
    );
    for backend in [&Interp as &dyn Backend, &jit()] {
        let (mut engine, mut pool) = (one(backend, core::slice::from_ref(&asks)), pool());
        let (left, _) = run(&mut engine, &mut pool, &[packet(9)], 1);
        assert_eq!((left, engine.held()), (vec![(2, 0, packet(99))], 1));
        let left = pass_time(&mut engine, &mut pool, START + Interval::from_millis(50));
        // It asks again after one millisecond, and after two more, and goes its way after four more.
        let wanted = [(2, 99), (2, 99), (1, 9)].map(|(port, ttl)| (port, 0, packet(ttl)));
        assert_eq!((left, engine.stats().copies, pool.in_use()), (wanted.to_vec(), 3, 0));
    }
}

/// If it failed, frames to missing neighbours would use up all buffers, or be held forever.
#[test]
fn hold_limits_bound_count_and_time() {
    let mut pool = Pool::new(PoolConfig { small: 4096, large: 1 });
    let mut engine = one(&jit(), &[waits(Interval::from_secs(100))]);
    run(&mut engine, &mut pool, &vec![packet(9); HOLDS_MAX + 3], 64);
    assert_eq!((engine.held(), engine.stats().drops), (HOLDS_MAX, vec![(DropReason::HeldTooMany, 3)]));
    let left = pass_time(&mut engine, &mut pool, START + Interval::from_secs(30));
    let lost = vec![(DropReason::HeldTooMany, 3), (DropReason::HeldTooLong, HOLDS_MAX as u64)];
    assert_eq!((left, engine.stats().drops, pool.in_use()), (Vec::new(), lost, 0));
    assert_eq!(
        engine.stats().chains[0].elements[0].1.seen,
        HOLDS_MAX as u64 * (u64::from(HOLD_TIMES_MAX) + 1) + 3
    );
    run(&mut engine, &mut pool, &[packet(9)], 1);
    engine.close(&mut pool);
    assert_eq!((engine.held(), pool.in_use()), (0, 0));
}

/// If it failed, a row with this name in place of a port would end a worker.
#[test]
fn computed_hold_needs_hold_element() {
    let computed = |what: &str| {
        let body = format!(
            "block0:\n v0: bytes = bytes \"@ho\"\n v1: bytes = bytes \"ld\"\n v2: bytes = concat v0, v1\n {what}"
        );
        element("e", &body)
    };
    for backend in [&Interp as &dyn Backend, &jit()] {
        let (mut engine, mut pool) = (one(backend, &[computed("redirect v2 ; line 5")]), pool());
        let (left, seen) = run(&mut engine, &mut pool, &[packet(9)], 1);
        assert_eq!(
            (left.len(), engine.held(), seen[0].0.as_str()),
            (0, 0, "redirect to no port by e line 5")
        );
        let mut engine = one(backend, &[computed("mirror v2\n forward")]);
        let (left, _) = run(&mut engine, &mut pool, &[packet(9)], 1);
        assert_eq!((left.len(), engine.held()), (1, 0));
        assert_eq!(engine.stats().drops, [(DropReason::NoMirrorPort, 1)]);
    }
}

/// If it failed, an update would lose waiting frames, or take them to another element.
#[test]
fn held_frames_survive_updates() {
    let (jit, until) = (jit(), Interval::from_millis(40));
    let mut rig = Rig::new(1);
    let first = rig.plan(&jit, vec![(program(&[waits(until)]), None)]);
    let (mut engine, mut pool) = (engine(&first), pool());
    run(&mut engine, &mut pool, &[packet(9)], 1);
    let second = rig.plan(&jit, vec![(program(&[ttl(), waits(until), marks("m")]), None)]);
    engine.apply(START, Arc::clone(&second), &mut pool);
    assert_eq!(engine.held(), 1);
    let left = pass_time(&mut engine, &mut pool, START + Interval::from_millis(200));
    assert_eq!(left, [(1, 7, packet(9))]);
    let mut engine = crate::packets::engine(&second);
    run(&mut engine, &mut pool, &[packet(9)], 1);
    let third = rig.plan(&jit, vec![(program(&[ttl()]), None)]);
    engine.apply(START, third, &mut pool);
    assert_eq!((engine.held(), engine.stats().drops, pool.in_use()), (0, vec![(DropReason::PortGone, 1)], 0));
}

/// If it failed, a capture of days would take a step for each of its seconds.
#[test]
fn poll_effect_skips_quiet_time() {
    let counts = |with_timeout: bool| {
        let counter = crate::packets::counter();
        let timeout = "handler departed t0 function \"gone\" {\nblock0:\n v0: bytes = bytes \"gone\"\n \
                       v1: int = int 1\n emit s0, v0, v1\n forward\n}\n";
        let mut program = program(&[if with_timeout { counter + timeout } else { counter }]);
        program.tables[0].spec.ttl = Some(Interval::from_secs(3600));
        program
    };
    for with_timeout in [false, true] {
        let plan = Rig::new(1).plan(&jit(), vec![(counts(with_timeout), None)]);
        let (mut engine, mut pool, mut others) = (engine(&plan), pool(), pool());
        // A table without known times is checked once.
        let (end, mut n) = (START + Interval::from_secs(86_400), 0);
        let mut step = |engine: &mut PacketEngine| {
            while let Some(at) = engine.poll_effect().map(|(at, _)| at).filter(|at| *at <= end) {
                engine.handle_timeout(at, &mut pool, None);
                n += 1;
            }
            let rows = engine.rows().len();
            (core::mem::take(&mut n), rows)
        };
        let before = step(&mut engine);
        assert!(before.0 <= 2 && before.1 == 0, "{before:?}");
        run(&mut engine, &mut others, &[packet(9)], 1);
        let (n, rows) = step(&mut engine);
        assert!(n <= 2, "{n} steps");
        assert_eq!(rows, usize::from(with_timeout));
    }
}
