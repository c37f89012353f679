//! Handwritten handlers of some queues: they run in the engine's queue in place of compiled ones, by the same calls on
//! the same words. The comparison shows the cost of compiled handlers if they are called individually, and the gain if
//! the queue is compiled with them.

use std::sync::Arc;
use weft_ir::queue::direct::{Direct, Entry};
use weft_ir::queue::{EventWords, Moment, PacketWords, QueueCode, RecordWords, Verdict, Words, word};

const TARGET_NS: i64 = 5_000_000;
const INTERVAL_NS: i64 = 100_000_000;
const MTU: i64 = 1514;
const QUANTUM: i64 = 1514;

/// Handlers of a queue by level and moment. Without a handler, a packet passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandwrittenHandlers(pub(super) &'static [(usize, Moment, Entry)]);

impl QueueCode for HandwrittenHandlers {
    fn run(&self, _: usize, _: Moment, _: Words<'_>) -> u64 {
        Verdict::Pass.word(0)
    }

    fn direct(&self, level: usize, moment: Moment) -> Option<Direct> {
        let (.., entry) = self.0.iter().find(|(at, of, _)| (*at, *of) == (level, moment))?;
        Some(Direct::new(*entry, Arc::new(())))
    }
}

/// The handlers of `codel`.
pub(super) const CODEL: HandwrittenHandlers =
    HandwrittenHandlers(&[(0, Moment::Dequeue, codel_dequeue), (0, Moment::Empty, codel_empty)]);

/// The handlers of `drr`.
pub(super) const DRR: HandwrittenHandlers = HandwrittenHandlers(&[
    (0, Moment::Activate, drr_activate),
    (0, Moment::Select, drr_select),
    (0, Moment::Dequeue, deficit_dequeue),
]);

/// The handlers of `fq_codel`.
pub(super) const FQ_CODEL: HandwrittenHandlers = HandwrittenHandlers(&[
    (0, Moment::Activate, fq_activate),
    (0, Moment::Select, fq_select),
    (0, Moment::Dequeue, deficit_dequeue),
    (0, Moment::Empty, fq_empty),
    (1, Moment::Dequeue, codel_dequeue),
    (1, Moment::Empty, codel_empty),
]);

// ---- drr, and the flows of fq_codel ------------------------------------------------------------------------------

const DEFICIT: usize = word::PARTITION_VARS as usize;
const RANK: usize = word::RANK as usize;
const LEN: usize = word::LEN as usize;

extern "C" fn drr_activate(
    _: &mut RecordWords,
    own: &mut RecordWords,
    _: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    own[DEFICIT] = QUANTUM as u64;
    Verdict::Pass.word(0)
}

extern "C" fn drr_select(
    _: &mut RecordWords,
    own: &mut RecordWords,
    packet: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    if packet[LEN] as i64 <= own[DEFICIT] as i64 {
        return Verdict::Pass.word(0);
    }
    own[DEFICIT] = own[DEFICIT].wrapping_add(QUANTUM as u64);
    Verdict::Next.word(0)
}

extern "C" fn deficit_dequeue(
    _: &mut RecordWords,
    own: &mut RecordWords,
    packet: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    own[DEFICIT] = own[DEFICIT].wrapping_sub(packet[LEN]);
    Verdict::Pass.word(0)
}

extern "C" fn fq_activate(
    _: &mut RecordWords,
    own: &mut RecordWords,
    _: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    (own[DEFICIT], own[RANK]) = (QUANTUM as u64, 0);
    Verdict::Pass.word(0)
}

extern "C" fn fq_select(
    _: &mut RecordWords,
    own: &mut RecordWords,
    _: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    if own[DEFICIT] as i64 > 0 {
        return Verdict::Pass.word(0);
    }
    (own[DEFICIT], own[RANK]) = (own[DEFICIT].wrapping_add(QUANTUM as u64), 1);
    Verdict::Next.word(0)
}

extern "C" fn fq_empty(
    _: &mut RecordWords,
    own: &mut RecordWords,
    _: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    if own[DEFICIT] as i64 <= 0 {
        own[DEFICIT] = own[DEFICIT].wrapping_add(QUANTUM as u64);
    } else if own[RANK] == 1 {
        return Verdict::Pass.word(0);
    }
    own[RANK] = 1;
    Verdict::Stay.word(0)
}

// ---- codel -------------------------------------------------------------------------------------------------------

const BYTES: usize = word::BYTES as usize;
const ABOVE_AT: usize = word::NODE_VARS as usize;
const NEXT_AT: usize = ABOVE_AT + 1;
const COUNT: usize = ABOVE_AT + 2;
const COUNT_BEFORE: usize = ABOVE_AT + 3;
const DROPPING: usize = ABOVE_AT + 4;
const NOW: usize = word::NOW as usize;
const ARRIVED: usize = word::ARRIVED as usize;
const ECN: usize = word::ECN as usize;
const DROPS: usize = word::DROPS as usize;

extern "C" fn codel_empty(
    node: &mut RecordWords,
    _: &mut RecordWords,
    _: &mut PacketWords,
    _: &mut EventWords,
) -> u64 {
    node[ABOVE_AT] = 0;
    Verdict::Pass.word(0)
}

extern "C" fn codel_dequeue(
    node: &mut RecordWords,
    _: &mut RecordWords,
    packet: &mut PacketWords,
    event: &mut EventWords,
) -> u64 {
    let now = event[NOW] as i64;
    let is_bad = now - packet[ARRIVED] as i64 >= TARGET_NS && node[BYTES] as i64 > MTU;
    let above_at = node[ABOVE_AT] as i64;
    node[ABOVE_AT] = match (is_bad, above_at) {
        (false, _) => 0,
        (true, 0) => (now + INTERVAL_NS) as u64,
        (true, known) => known as u64,
    };
    let is_late = is_bad && above_at != 0 && now >= above_at;
    if !is_late {
        if node[DROPPING] != 0 {
            // The packet after the first dropped one is sent, however long it has waited.
            node[DROPPING] = u64::from(event[DROPS] > 0 && now < node[NEXT_AT] as i64);
        }
        return Verdict::Pass.word(0);
    }
    codel_late(node, packet, event)
}

/// A packet has waited too long, as the packets before it have.
#[cold]
fn codel_late(node: &mut RecordWords, packet: &mut PacketWords, event: &EventWords) -> u64 {
    let now = event[NOW] as i64;
    let later = |from: i64, count: u64| from + (INTERVAL_NS as f64 * (1.0 / (count as f64).sqrt())) as i64;
    if node[DROPPING] != 0 {
        if event[DROPS] > 0 && now >= node[NEXT_AT] as i64 {
            node[NEXT_AT] = later(node[NEXT_AT] as i64, node[COUNT]) as u64;
        }
        if now < node[NEXT_AT] as i64 {
            return Verdict::Pass.word(0);
        }
        node[COUNT] += 1;
        if packet[ECN] != 0 {
            node[NEXT_AT] = later(node[NEXT_AT] as i64, node[COUNT]) as u64;
        }
        return mark_or_drop(packet);
    }
    let since = node[COUNT] as i64 - node[COUNT_BEFORE] as i64;
    let is_again = since > 1 && now - (node[NEXT_AT] as i64) < INTERVAL_NS * 16;
    node[COUNT] = if is_again { since as u64 } else { 1 };
    node[COUNT_BEFORE] = node[COUNT];
    node[NEXT_AT] = later(now, node[COUNT]) as u64;
    node[DROPPING] = 1;
    mark_or_drop(packet)
}

/// Marks a packet that supports ECN, drops any other. Returns the word of the verdict.
fn mark_or_drop(packet: &mut PacketWords) -> u64 {
    if packet[ECN] == 0 {
        return Verdict::Drop.word(0);
    }
    packet[ECN] = 3;
    Verdict::Mark.word(0)
}

#[cfg(test)]
mod tests {
    use super::super::{packets, program};
    use super::{CODEL, DRR, FQ_CODEL, HandwrittenHandlers};
    use std::sync::Arc;
    use weft_engine::queue::{Packet, Queue};
    use weft_ir::queue::run::Interpreted;

    /// Compiled handlers would be compared with handlers that behave differently.
    #[test]
    fn handwritten_handlers_match_library() {
        let cases: [(&str, HandwrittenHandlers); 3] =
            [("codel", CODEL), ("drr", DRR), ("fq_codel", FQ_CODEL)];
        for (name, by_hand) in cases {
            let program =
                Arc::new(program(&format!("{name} (packets = 300)")).expect("it is in the library"));
            let mut ours = Queue::new(program.clone(), by_hand, 0, 1);
            let mut theirs = Queue::new(program.clone(), Interpreted::new(program), 0, 1);
            let mut n_dropped = 0;
            for (nth, packet) in packets(40).iter().enumerate() {
                // More packets arrive than leave, then fewer: they wait for up to half a second.
                let packet = Packet { handle: nth as u64, ecn: (nth % 3 == 0).into(), ..*packet };
                let now = nth as u64 * 1_000_000;
                ours.enqueue(&packet, now);
                theirs.enqueue(&packet, now);
                for _ in 0..[0, 1, 1, 2, 1, 1][nth / 500 % 6] + u64::from(nth % 25 == 0) {
                    assert_eq!(ours.dequeue(now), theirs.dequeue(now), "{name} at {nth}");
                }
                loop {
                    let [mine, other] = [
                        ours.poll_dropped().map(|gone| gone.handle),
                        theirs.poll_dropped().map(|gone| gone.handle),
                    ];
                    assert_eq!(mine, other, "{name} at {nth}");
                    if mine.is_none() {
                        break;
                    }
                    n_dropped += 1;
                }
            }
            assert_eq!(ours.counts(), theirs.counts(), "{name}");
            assert!(n_dropped > 100 && (name == "drr" || ours.counts().marked > 100), "{name}");
        }
    }
}
