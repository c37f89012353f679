//! Compares the counters of partitions with the packets that came out of the queue.

use crate::queues::programs;
use std::sync::Arc;
use weft_core::rng::Rng;
use weft_engine::queue::{Packet, PartitionState, Queue};
use weft_ir::queue::Verdict;
use weft_ir::queue::run::Interpreted;

const MS: u64 = 1_000_000;
const CLASSES: usize = 4;

/// Drops or marks on both levels: on arrival, on departure, and on overflow.
const BOTH_LEVELS: &str = "
IMPORT 'library/queues/codel.weft';
CREATE QUEUE classes AS
  PARTITION BY p.class INDEX 4;
  LIMIT 60 PACKETS ON OVERFLOW DROP TAIL OF PARTITION ORDER BY bytes DESC;
  ON ENQUEUE
    IF p.dscp = 1 THEN DROP; END IF;
    IF p.dscp = 2 THEN MARK OR DROP; END IF;
    ACCEPT;
  ON DEQUEUE
    IF p.dscp = 3 THEN DROP; END IF;
    ROTATE;
END;
CREATE QUEUE it AS classes EACH USING codel (target = '2 ms', interval = '20 ms'); END;
";

/// The counts and sojourn times of a class's packets.
#[derive(Default)]
struct ClassTotals {
    waits: Vec<u64>,
    dropped: u64,
    marked: u64,
}

/// If this fails, the counters of one flow are reported for another.
#[test]
fn partition_counters_add_up() {
    let program = programs(BOTH_LEVELS).into_iter().find(|program| program.name == "it");
    let program = Arc::new(program.expect("it is there"));
    let mut queue = Queue::new(Arc::clone(&program), Interpreted::new(program), 0, 1);
    queue.watch();
    let mut rng = Rng::from_seed(8);
    let mut seen: [ClassTotals; CLASSES] = Default::default();
    let class_of = |handle: u64| handle as usize % CLASSES;
    for handle in 0..40_000 {
        let now = handle * MS / 3;
        let class = class_of(handle) as u32;
        let dscp = if rng.percent(5) { 1 + rng.below(3) as u8 } else { 0 };
        let ecn = [0, 2][rng.below(2)];
        let len = 100 + 400 * class;
        queue.enqueue(&Packet { handle, class, dscp, ecn, len, ..Packet::default() }, now);
        // As fast as the arrivals at first, and slower now and then.
        if !rng.percent(if handle % 4_000 < 3_000 { 2 } else { 30 })
            && let Some(sent) = queue.dequeue(now)
        {
            queue.record_sent(&sent, now);
            let of = &mut seen[class_of(sent.handle)];
            of.waits.push(now - sent.arrived_ns);
            of.marked += u64::from(sent.ecn == 3);
        }
        while let Some(dropped) = queue.poll_dropped() {
            seen[class_of(dropped.handle)].dropped += 1;
        }
    }
    let states = queue.partitions(64);
    let of = |level, place: fn(&PartitionState) -> u32, class| {
        states.iter().find(|of| of.level == level && place(of) == class).expect("the class has a partition")
    };
    for (class, seen) in (0..).zip(&mut seen) {
        seen.waits.sort_unstable();
        let (classes, codel) = (of(0, |of| of.index, class), of(1, |of| of.node, class));
        let tally = &classes.tally;
        assert_eq!((tally.waits.count(), tally.dropped), (seen.waits.len() as u64, seen.dropped), "{class}");
        // Some of the marked packets were dropped later, or are still queued.
        assert!(tally.marked >= seen.marked && seen.marked > 100, "{class}: {}", tally.marked);
        for share in [0.5, 0.9, 0.99] {
            let exact = seen.waits[(seen.waits.len() as f64 * share) as usize];
            let ratio = tally.waits.quantile(share) as f64 / exact.max(256) as f64;
            assert!((0.8..1.26).contains(&ratio), "{class}, {share}: {ratio}");
        }
        let by = |of: &PartitionState, verdict| {
            let lines = of.tally.lines.iter().filter(|line| line.verdict == verdict);
            lines.map(|line| line.packets).sum::<u64>()
        };
        for (verdict, all) in [(Verdict::Drop, tally.dropped), (Verdict::Mark, tally.marked)] {
            assert!(by(codel, verdict) > 0, "{class}: codel drops and marks, too");
            assert_eq!(by(classes, verdict) + by(codel, verdict), all, "{class}: each by one line");
        }
    }
    let lines: u64 = queue.lines().iter().map(|line| line.packets).sum();
    assert_eq!(lines, states.iter().flat_map(|of| &of.tally.lines).map(|line| line.packets).sum::<u64>());
}
