//! A queue that is restored from a snapshot continues like the original.

use crate::queues::{ALL, library_queue, programs};
use std::sync::Arc;
use weft_core::rng::Rng;
use weft_engine::queue::snapshot::RowKind;
use weft_engine::queue::{Dropped, Packet, Queue, QueueProgram, Sent};
use weft_engine::recording::{Limits, QueueEvent, Recorder, ask, read, read_snapshot};
use weft_ir::queue::run::Interpreted;

/// Nested queues: a packet that waits below also waits above, and timers of inner nodes begin with their packets.
const TREES: &str = "
IMPORT 'library/queues/fq.weft';
IMPORT 'library/queues/priority.weft';
IMPORT 'library/queues/tbf.weft';
IMPORT 'library/queues/pie.weft';
IMPORT 'library/queues/srpt.weft';
CREATE QUEUE held AS fq EACH USING tbf (rate = '1 Mbit/s') EACH USING pie; END;
CREATE QUEUE timed AS priority EACH USING fq EACH USING pie; END;
CREATE QUEUE ranked AS fq EACH USING srpt; END;
";

/// The queues under test: the library, and trees of it.
fn all() -> Vec<(String, Arc<QueueProgram>)> {
    let of_library = ALL.into_iter().map(|name| (name.to_owned(), library_queue(name, "")));
    let trees = programs(TREES).into_iter().filter(|one| ["held", "timed", "ranked"].contains(&&*one.name));
    of_library.chain(trees.map(|one| (one.name.clone(), Arc::new(one)))).collect()
}

fn queue(program: &Arc<QueueProgram>) -> Queue<Interpreted> {
    Queue::new(program.clone(), Interpreted::new(program.clone()), 0, 7)
}

fn packet(rng: &mut Rng, handle: u64, now: u64) -> Packet {
    Packet {
        handle,
        len: 64 + rng.below(1450) as u32,
        ecn: rng.below(4) as u8,
        dscp: rng.below(64) as u8,
        flow: rng.below(40) as u32,
        src: rng.below(7) as u32,
        dst: rng.below(9) as u32,
        class: rng.below(9) as u32,
        remaining: rng.below(1 << 20) as u64,
        slack_ns: rng.below(1 << 30) as i64,
        deadline_ns: now + rng.below(1 << 28) as u64,
        headers: [rng.below(9) as u64, 0, 0, u64::MAX],
        framing: rng.below(40) as u32,
    }
}

/// A queue's response to an operation: the sent packet, dropped packets, and the next poll time. Handles are cleared.
type DequeueResult = (Option<Sent>, Vec<Dropped>, Option<u64>);

fn answer(queue: &mut Queue<Interpreted>, now: u64, asked: &QueueEvent) -> DequeueResult {
    let sent = ask(queue, now, asked).expect("it names no packets").map(|sent| Sent { handle: 0, ..sent });
    let dropped = std::iter::from_fn(|| queue.poll_dropped());
    let dropped = dropped.map(|dropped| Dropped { handle: 0, ..dropped }).collect();
    (sent, dropped, queue.poll_timeout())
}

/// Operates a queue at random, and from the middle on its copy as well.
fn try_program(name: &str, program: &Arc<QueueProgram>, seed: u64, n: u64) {
    let mut rng = Rng::from_seed(seed);
    let (mut queue, mut now) = (queue(program), 0);
    let mut ask = |queue: &mut Queue<Interpreted>, recorder: &mut Option<Recorder>, handle: u64| {
        now += rng.below(400_000) as u64;
        let asked = match rng.below(100) {
            0..49 => QueueEvent::Enqueue(packet(&mut rng, handle, now)),
            49..94 => QueueEvent::Dequeue,
            94..99 => QueueEvent::Timeout,
            _ => QueueEvent::Rate(rng.below(1 << 30) as u64),
        };
        recorder.iter_mut().for_each(|recorder| recorder.note(now, &asked));
        (now, answer(queue, now, &asked))
    };
    for handle in 0..n / 2 {
        ask(&mut queue, &mut None, handle);
    }
    let (begun, _) = ask(&mut queue, &mut None, n);
    let snapshot = queue.snapshot();
    let mut recorder = Some(Recorder::resuming(begun, &snapshot, Limits::NONE));
    let answers: Vec<_> = (n / 2..n).map(|handle| ask(&mut queue, &mut recorder, handle)).collect();
    let recorder = recorder.expect("it was put there");
    let (read_again, _, calls) = read_snapshot(recorder.text()).expect("it was written");
    assert_eq!(read_again.as_ref(), Some(&snapshot), "{name}");
    let code = Interpreted::new(program.clone());
    let copy = Queue::restore(program.clone(), code, &snapshot);
    let mut copy = copy.unwrap_or_else(|why| panic!("{name}: {why:?}"));
    assert!(copy.snapshot() == snapshot, "{name}: the copy differs from its snapshot");
    for (asked, (now, expected)) in read(calls, begun).zip(answers) {
        let (at, asked) = asked.expect("it was written");
        assert_eq!(at, now);
        assert_eq!(answer(&mut copy, now, &asked), expected, "{name} at {now}: {asked:?}");
    }
    assert_eq!(copy.partitions(1000), queue.partitions(1000), "{name}");
}

/// If this fails, an explanation of a running node's link differs from what happened there.
#[test]
fn queue_resumes_from_snapshot() {
    for (name, program) in all() {
        try_program(&name, &program, 3, 4_000);
    }
}

/// If this fails, the timers of an inner queue stop below an outer queue with one FIFO per flow.
#[test]
fn timers_run_on_all_levels() {
    for (name, program) in all() {
        let timed = program.levels.iter().rposition(|level| !level.handlers.every.is_empty());
        let Some(level) = timed else { continue };
        let mut queue = queue(&program);
        let mut rng = Rng::from_seed(5);
        (0..20).for_each(|handle| queue.enqueue(&packet(&mut rng, handle, 10), 10));
        let is_of_level =
            |(kind, row): &(RowKind, Vec<u64>)| *kind == RowKind::Timer && row[1] == level as u64;
        assert!(queue.snapshot().rows.iter().any(is_of_level), "{name}: no timer of level {level} runs");
    }
}

/// If this fails, a damaged file panics or hangs the command that reads it.
#[test]
fn mismatched_snapshot_is_refused() {
    let mut n_refused = 0;
    for (seed, (_, program)) in (0..).zip(all()) {
        let mut rng = Rng::from_seed(seed);
        let mut one = queue(&program);
        let mut now = 0;
        for handle in 0..200 {
            now += rng.below(1 << 20) as u64;
            one.enqueue(&packet(&mut rng, handle, now), now);
            if rng.below(2) == 0 {
                one.dequeue(now);
            }
        }
        while one.poll_dropped().is_some() {}
        let whole = one.snapshot();
        for _ in 0..40 {
            let mut snapshot = whole.clone();
            for _ in 0..=rng.below(2) {
                let row = rng.below(snapshot.rows.len());
                let at = rng.below(snapshot.rows[row].1.len());
                match rng.below(5) {
                    0 => drop(snapshot.rows.remove(row)),
                    1 => snapshot.rows[row].0 = rng.pick(&RowKind::ALL).0,
                    2 => drop(snapshot.rows[row].1.remove(at)),
                    3 => snapshot.rows.push(snapshot.rows[row].clone()),
                    _ => snapshot.rows[row].1[at] = rng.pick(&[0, 1, 40, 1 << 33, u64::MAX]),
                }
                if snapshot.rows.iter().any(|(_, numbers)| numbers.is_empty()) || snapshot.rows.is_empty() {
                    break;
                }
            }
            let code = Interpreted::new(program.clone());
            let Ok(mut copy) = Queue::restore(program.clone(), code, &snapshot) else {
                n_refused += 1;
                continue;
            };
            for handle in 0..10 {
                copy.enqueue(&packet(&mut rng, handle, now), now);
                copy.dequeue(now);
                copy.handle_timeout(now);
                now += 1 << 20;
            }
        }
    }
    assert!(n_refused > 100, "{n_refused}");
}
