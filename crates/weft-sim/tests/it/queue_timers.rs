//! Timer handlers of queues, which run for each partition.

use crate::queues::programs;
use std::sync::Arc;
use weft_engine::queue::{Packet, Queue};
use weft_ir::queue::QueueCode;
use weft_ir::queue::run::Interpreted;

const MS: u64 = 1_000_000;

/// Strict priorities with aging: a waiting packet's rank rises by one every 10 ms.
const RISING: &str = "
CREATE QUEUE rising AS
  PARTITION BY p.class INDEX 8;
  ORDER PARTITIONS BY rank BITS 3;
  LIMIT 1000 PACKETS ON OVERFLOW DROP TAIL;
  ON ACTIVATE
    SET rank = partition.index;
  ON DEQUEUE
    SET rank = partition.index;
    SEND;
  ON EVERY '10 ms' EACH PARTITION
    SET rank = greatest(rank - partition.packets, 0);
END;
";

fn rising() -> Queue<impl QueueCode> {
    let program = Arc::new(programs(RISING).remove(0));
    Queue::new(Arc::clone(&program), Interpreted::new(program), 0, 1)
}

fn drain(queue: &mut Queue<impl QueueCode>) -> Vec<u64> {
    std::iter::from_fn(|| queue.dequeue(30 * MS)).map(|sent| sent.handle).collect()
}

fn packet(handle: u64, class: u32) -> Packet {
    Packet { handle, class, len: 100, ..Packet::default() }
}

/// If this fails, a timer does not reorder partitions: a class that waits is never served while another keeps the link
/// busy.
#[test]
fn timer_ranks_partitions_in_order() {
    let mut queue = rising();
    let mut served_at = Vec::new();
    for (class, at) in [(3, 0), (5, 0)] {
        queue.enqueue(&packet(class, class as u32), at);
    }
    for at in 1..=80 {
        queue.enqueue(&packet(100 + at, 1), at * MS);
        let sent = queue.dequeue(at * MS).expect("there are packets");
        if sent.handle < 100 {
            served_at.push((sent.handle, at));
        }
    }
    // Class 1 has a queued packet since 3 took its turn: at 40 ms its rank rises, and it goes before 5 once more.
    assert_eq!(served_at, [(3, 20), (5, 41)], "3 - 1 and 5 - 1 steps of 10 ms");
}

/// If this fails, a timer runs for unused partitions, or not for each used one.
#[test]
fn timer_runs_for_busy_partitions() {
    let mut queue = rising();
    queue.enqueue(&packet(0, 2), 0);
    queue.enqueue(&packet(1, 2), 0);
    queue.enqueue(&packet(2, 7), 0);
    queue.handle_timeout(30 * MS);
    let ranks: Vec<(u32, i64)> = queue.partitions(10).iter().map(|of| (of.index, of.rank)).collect();
    assert_eq!(ranks, [(2, 0), (7, 4)], "2 - 3 * 2 and 7 - 3 * 1");
    assert_eq!(drain(&mut queue), [0, 1, 2]);
}
