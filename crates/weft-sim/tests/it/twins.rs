//! Queue programs of the library against twins that were written by hand from the same papers and RFCs: item for item,
//! at the same times.

use crate::queues::library_queue;
use weft_ir::queue::run::Interpreted;
use weft_sim::Dice;
use weft_sim::net::silver_bullet::{COMPARISONS, Configuration, LinkKind, made_trace, newreno_of_2013};
use weft_sim::net::twins::{Codel, CodelSpec, Drr, Fifo, FqCodel, Pfabric, Pifo};
use weft_sim::net::{Discipline, Item, Programmed};

/// Of each flow's items: primes, so that no two queues have as many bytes.
const LENGTHS: [u32; 6] = [1499, 1301, 1103, 907, 701, 503];

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent(u64),
    Dropped(u64),
}

/// What a queue was asked, and what came of it.
#[derive(Default)]
pub(crate) struct Run {
    /// When: an item came, or one was asked for.
    pub(crate) calls: Vec<(u64, Option<Item>)>,
    pub(crate) fates: Vec<(u64, Fate)>,
}

/// Runs a queue under a load that wanders between 6 and 20 Mbit/s for a link of 10, with some silence, and tells what
/// happened to which item and when.
pub(crate) fn run(queue: &mut dyn Discipline, seed: u64, items: u64) -> Run {
    let mut dice = Dice::new(seed);
    let (mut arrival, mut departure, mut load) = (0, 500, 1.4);
    let mut id = 0;
    let mut run = Run::default();
    while id < items {
        let now = arrival.min(departure);
        if arrival <= departure {
            let flow = dice.within(&(0..=5)) as u32;
            let len = LENGTHS[flow as usize];
            let item = Item {
                id,
                handle: id as u32,
                len,
                flow,
                // All different: which of two alike goes first no paper says.
                remaining: (dice.within(&(0..=1 << 20)) << 10) as u32 | (id % 1024) as u32,
                enqueued_at_ns: now,
                ..Item::default()
            };
            run.calls.push((now, Some(item)));
            queue.enqueue(item, now);
            load = (load + 0.02 * dice.normal()).clamp(0.6, 2.0);
            let silence = if dice.chance(1) { 50e6 } else { 0.0 };
            arrival += (dice.exponential(f64::from(len) * 800.0 / load) + dice.unit() * silence) as u64 + 1;
            id += 1;
        } else {
            run.calls.push((now, None));
            let sent = queue.dequeue(now);
            run.fates.extend(sent.map(|item| (now, Fate::Sent(item.id))));
            departure = sent.map_or(arrival + 1, |item| now + u64::from(item.len) * 800);
        }
        while let Some(dropped) = queue.poll_drop() {
            run.fates.push((now, Fate::Dropped(dropped.item.id)));
        }
    }
    run
}

/// A program and its twin do the same on 5 seeds, and something is dropped, or was not in order.
fn check(name: &str, args: &str, twin: fn() -> Box<dyn Discipline>) {
    for seed in 0..5 {
        let program = library_queue(name, args);
        let mut program = Programmed::new(program.clone(), Interpreted::new(program), 1);
        let got = run(&mut program, seed, 6000).fates;
        let expected = run(&mut *twin(), seed, 6000).fates;
        let differs = got.iter().zip(&expected).position(|(got, expected)| got != expected);
        if let Some(at) = differs {
            panic!("{name}, seed {seed}, event {at}: {:?}, the twin {:?}", got[at], expected[at]);
        }
        assert_eq!(got.len(), expected.len(), "{name}, seed {seed}");
        let dropped = got.iter().filter(|(_, fate)| matches!(fate, Fate::Dropped(_))).count();
        assert!(dropped > 20, "{name}, seed {seed}: the load drops {dropped}, which shows nothing");
    }
}

/// A queue of the library would not be the algorithm whose name it has.
#[test]
fn codel_is_that_of_rfc_8289() {
    check("codel", "", || Box::new(Codel::new(CodelSpec::default(), 1000)));
}

/// The same.
#[test]
fn fq_codel_is_that_of_rfc_8290() {
    check("fq_codel", "", || Box::new(FqCodel::new(CodelSpec::default(), 1024, 1514, 10_240)));
}

/// The same.
#[test]
fn drr_is_that_of_its_paper() {
    check("drr", " (packets = 60)", || Box::new(Drr::new(1024, 1514, 60)));
}

/// The same.
#[test]
fn pfabric_is_that_of_its_design() {
    check("pfabric", " (buffer = '36 KB')", || Box::new(Pfabric::new(36 << 10)));
}

/// The same.
#[test]
fn srpt_is_a_pifo_by_what_is_left() {
    check("srpt", " (packets = 60)", || Box::new(Pifo::new(|item| u64::from(item.remaining), 60)));
}

/// The same.
#[test]
fn fifo_is_in_order_and_full_at_its_limit() {
    check("fifo", " (packets = 60)", || Box::new(Fifo::new(60)));
}

/// The policy by objectives would be beaten by a configuration that knows nothing of them: deep buffers where
/// throughput is wanted, CoDel where power is.
#[test]
fn who_knows_objectives_is_beaten_by_nobody() {
    for (name, best) in [("3a", Configuration::BufferbloatFq), ("2b", Configuration::CodelFq)] {
        let comparison =
            COMPARISONS.iter().find(|comparison| comparison.name == name).expect("it is one of six");
        let score = |queue: Box<dyn Discipline>| {
            let trace = (comparison.link == LinkKind::Lte).then(|| made_trace(1, 60));
            let outcome = comparison.run(queue, trace, newreno_of_2013(), 1, 60);
            outcome.score(comparison, comparison.applications[0])
        };
        let program = library_queue("objective", " (packets = 1000000)");
        let ours = score(Box::new(Programmed::new(program.clone(), Interpreted::new(program), 1)));
        let theirs = score(best.discipline().expect("it is one of the paper's"));
        assert!(ours > 0.98 * theirs, "{name}: {ours}, {best:?} {theirs}");
    }
}
