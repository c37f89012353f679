//! Compares queue programs of the library with twins, written by hand from the same papers and RFCs: item for item, at
//! the same times.

use crate::queues::{library_queue, programs};
use std::sync::Arc;
use weft_core::rng::Rng;
use weft_ir::queue::QueueProgram;
use weft_ir::queue::run::Interpreted;
use weft_sim::net::silver_bullet::{COMPARISONS, Configuration, LinkKind, newreno_of_2013, synthetic_trace};
use weft_sim::net::twins::{Codel, CodelRules, CodelSpec, Drr, Fifo, FqCodel, Pfabric, Pifo};
use weft_sim::net::{Discipline, Item, Programmed, exponential};

/// The packet length of each flow: primes, so that no two queues have equally many bytes.
const LENGTHS: [u32; 6] = [1499, 1301, 1103, 907, 701, 503];

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    Sent(u64),
    Dropped(u64),
}

/// The operations on a queue, and their results.
#[derive(Default)]
pub(crate) struct Run {
    /// The time of each operation: an item's arrival, or a dequeue (`None`).
    pub(crate) calls: Vec<(u64, Option<Item>)>,
    pub(crate) dispositions: Vec<(u64, Disposition)>,
}

/// Runs a queue under a load that varies between 6 and 20 Mbit/s for a 10 Mbit/s link, with some pauses. Returns what
/// happened to each item and when.
pub(crate) fn run(queue: &mut dyn Discipline, seed: u64, items: u64) -> Run {
    let mut rng = Rng::from_seed(seed);
    let (mut arrival, mut departure, mut load) = (0, 500, 1.4);
    let mut id = 0;
    let mut run = Run::default();
    while id < items {
        let now = arrival.min(departure);
        if arrival <= departure {
            let flow = rng.within(&(0..=5)) as u32;
            let len = LENGTHS[flow as usize];
            let item = Item {
                id,
                handle: id as u32,
                len,
                flow,
                // All different: no paper specifies the order of ties.
                remaining: (rng.within(&(0..=1 << 20)) << 10) as u32 | (id % 1024) as u32,
                enqueued_at_ns: now,
                ..Item::default()
            };
            run.calls.push((now, Some(item)));
            queue.enqueue(item, now);
            load = (load + 0.02 * rng.normal()).clamp(0.6, 2.0);
            let silence = if rng.chance(1) { 50e6 } else { 0.0 };
            arrival +=
                (exponential(&mut rng, f64::from(len) * 800.0 / load) + rng.unit() * silence) as u64 + 1;
            id += 1;
        } else {
            run.calls.push((now, None));
            let sent = queue.dequeue(now);
            run.dispositions.extend(sent.map(|item| (now, Disposition::Sent(item.id))));
            departure = sent.map_or(arrival + 1, |item| now + u64::from(item.len) * 800);
        }
        while let Some(dropped) = queue.poll_drop() {
            run.dispositions.push((now, Disposition::Dropped(dropped.item.id)));
        }
    }
    run
}

/// Checks that a queue of the library equals its twin.
fn check(name: &str, args: &str, twin: fn() -> Box<dyn Discipline>) {
    check_program(name, &library_queue(name, args), twin);
}

/// Checks that a program equals its twin on 5 seeds, and that something is dropped or reordered.
fn check_program(name: &str, program: &Arc<QueueProgram>, twin: fn() -> Box<dyn Discipline>) {
    for seed in 0..5 {
        let program = program.clone();
        let mut program = Programmed::new(program.clone(), Interpreted::new(program), 1);
        let got = run(&mut program, seed, 6000).dispositions;
        let expected = run(&mut *twin(), seed, 6000).dispositions;
        let differs = got.iter().zip(&expected).position(|(got, expected)| got != expected);
        if let Some(at) = differs {
            panic!("{name}, seed {seed}, event {at}: {:?}, the twin {:?}", got[at], expected[at]);
        }
        assert_eq!(got.len(), expected.len(), "{name}, seed {seed}");
        let dropped =
            got.iter().filter(|(_, disposition)| matches!(disposition, Disposition::Dropped(_))).count();
        assert!(dropped > 20, "{name}, seed {seed}: the load drops {dropped}, which shows nothing");
    }
}

/// If this fails, a queue of the library is not the algorithm of its name.
#[test]
fn codel_matches_rfc_8289_twin() {
    check("codel", "", || Box::new(Codel::new(CodelSpec::default(), 1000)));
}

/// CoDel with the arithmetic of ns-3 and Linux: time in 1024 ns, square roots by a Newton step in 16 bits.
const NEWTON: &str = "
CREATE QUEUE newton (mtu SIZE = '1500 B', packets U32 = 1000) AS
  VAR above_at U64;
  VAR next_at U64;
  VAR count U32;
  VAR count_before U32;
  VAR root U16 = 65535;
  VAR dropping BOOL;
  VAR entering BOOL;
  LIMIT packets PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE
    LET ticks = shift_right(number(now()), 10);
    LET gap = 97656;
    LET bad = shift_right(number(p.sojourn), 10) >= 4882 AND queue.bytes >= mtu;
    LET late = bad AND above_at <> 0 AND ticks > above_at;
    SET above_at = CASE WHEN NOT bad THEN 0 WHEN above_at = 0 THEN ticks + gap ELSE above_at END;
    IF entering OR NOT late THEN
      SET dropping = dropping AND entering;
      SET entering = FALSE;
      SEND;
    END IF;
    IF dropping THEN
      IF drops > 0 THEN SET next_at = next_at + number(scale(interval(gap), root)); END IF;
      IF ticks < next_at THEN SEND; END IF;
      SET count = count + 1;
      SET root = rsqrt_step(root, count);
      DROP;
    END IF;
    LET again = count - count_before > 1 AND ticks - next_at < gap * 16;
    SET count = CASE WHEN again THEN count - count_before ELSE 1 END;
    SET root = CASE WHEN again THEN rsqrt_step(root, count) ELSE 65535 END;
    SET count_before = count;
    SET next_at = ticks + number(scale(interval(gap), root));
    SET dropping = TRUE;
    SET entering = TRUE;
    DROP;
  ON EMPTY
    SET above_at = 0;
    SET dropping = dropping AND entering;
    SET entering = FALSE;
    LEAVE;
END;
CREATE QUEUE newton_each AS
  fq EACH USING newton (packets = 10240);
END;
";

pub(crate) fn newton(name: &str) -> Arc<QueueProgram> {
    let all = programs(&format!("IMPORT 'library/queues/fq.weft';\n{NEWTON}"));
    Arc::new(all.into_iter().find(|program| program.name == name).expect("it is in the text"))
}

/// If this fails, a program cannot have the arithmetic of ns-3; its twin behaves like ns-3 (see `ns3.rs`).
#[test]
fn newton_codel_matches_ns_3_twin() {
    const SPEC: CodelSpec = CodelSpec {
        target_ns: 5_000_000,
        interval_ns: 100_000_000,
        mtu: 1500,
        rules: CodelRules::Ns3,
        ecn: false,
    };
    check_program("newton", &newton("newton"), || Box::new(Codel::new(SPEC, 1000)));
    check_program("newton_each", &newton("newton_each"), || Box::new(FqCodel::new(SPEC, 1024, 1514, 10_240)));
}

/// If this fails, a queue of the library is not the algorithm of its name.
#[test]
fn fq_codel_matches_rfc_8290_twin() {
    check("fq_codel", "", || Box::new(FqCodel::new(CodelSpec::default(), 1024, 1514, 10_240)));
}

/// If this fails, a queue of the library is not the algorithm of its name.
#[test]
fn drr_matches_paper_twin() {
    check("drr", " (packets = 60)", || Box::new(Drr::new(1024, 1514, 60)));
}

/// If this fails, a queue of the library is not the algorithm of its name.
#[test]
fn pfabric_matches_design_twin() {
    check("pfabric", " (buffer = '36 KB')", || Box::new(Pfabric::new(36 << 10)));
}

/// If this fails, a queue of the library is not the algorithm of its name.
#[test]
fn srpt_matches_pifo_twin() {
    check("srpt", " (packets = 60)", || Box::new(Pifo::new(|item| u64::from(item.remaining), 60)));
}

/// If this fails, a queue of the library is not the algorithm of its name.
#[test]
fn fifo_matches_twin() {
    check("fifo", " (packets = 60)", || Box::new(Fifo::new(60)));
}

/// If this fails, a configuration without knowledge of objectives beats the policy by objectives: deep buffers at
/// throughput, CoDel at power.
#[test]
fn objective_queue_matches_best() {
    for (name, best) in [("3a", Configuration::BufferbloatFq), ("2b", Configuration::CodelFq)] {
        let comparison =
            COMPARISONS.iter().find(|comparison| comparison.name == name).expect("it is one of six");
        let score = |queue: Box<dyn Discipline>| {
            let trace = (comparison.link == LinkKind::Lte).then(|| synthetic_trace(1, 0, 60));
            let outcome = comparison.run(queue, trace, newreno_of_2013(), 1, 60);
            outcome.score(comparison, comparison.applications[0])
        };
        let program = library_queue("objective", " (packets = 1000000)");
        let ours = score(Box::new(Programmed::new(program.clone(), Interpreted::new(program), 1)));
        let theirs = score(best.discipline().expect("it is one of the paper's"));
        assert!(ours > 0.98 * theirs, "{name}: {ours}, {best:?} {theirs}");
    }
}
