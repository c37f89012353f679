//! Markers of flows: how few bytes a flow tell classes of traffic apart as well as all lengths and gaps do
//! (FlowLens, Barradas et al., NDSS 2021).
//!
//! A marker is a histogram of packet lengths, and of the gaps between packets, in 16-bit counters, as an element
//! keeps it with `counted`. It is made small in two ways: lengths and gaps are *quantised*, so that several share a
//! counter, and *truncated*: of the counters only those are kept that tell classes apart best. Which quantisation
//! and which counters those are is searched on a part of the flows that were given; how well they do is measured on
//! others, four times, so that each flow is judged once by what has not seen it. *Raw* is the same search without a
//! bound on the counters.

mod forest;
mod traffic;

use weft_core::dice::Dice;

use super::report::{Report, Row};
use forest::{Forest, Samples};
use traffic::Flow;

/// Bytes of a counter.
const COUNTER_BYTES: usize = 2;
/// Bytes a flow that markers may have.
const SIZES: [(usize, &str); 3] = [(20, "20 B"), (94, "94 B"), (302, "302 B")];
/// Lengths that are told apart without quantisation.
const LENGTHS: usize = 1501;
/// Gaps that are told apart without quantisation: the root of the microseconds, by 8. The last is all above a
/// minute.
const GAPS: usize = 1024;
const GAP_STEP: f64 = 8.0;
/// Parts into which flows are divided: each is judged by what was learned from the others.
const FOLDS: usize = 4;

/// Something that tells flows apart.
struct Detector {
    name: &'static str,
    flows: Vec<Flow>,
    /// Gaps count as well as lengths.
    with_gaps: bool,
    /// The marker with so many bytes may lose so many points of accuracy.
    goal: (usize, f64),
}

/// How finely lengths and gaps are told apart: so many of their lowest bits are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quantisation {
    lengths: u32,
    gaps: u32,
}

/// Measures all detectors.
pub(super) fn run(quick: bool) -> Report {
    let (n, n_trees) = if quick { (150, 15) } else { (800, 40) };
    let mut rows = Vec::new();
    let mut notes = vec![
        "the share of flows whose class is named, each by trees that have not seen it; flows are made from a seed"
            .to_owned(),
        "raw: all counters, of the steps that do best; markers: 16-bit counters that were searched for"
            .to_owned(),
    ];
    for detector in detectors(n) {
        let measured = measure(&detector, n_trees);
        let percent = |shares: &[f64]| shares.iter().map(|share| 100.0 * share).collect::<Vec<f64>>();
        rows.push(Row::new(detector.name, "raw", "%", &percent(&measured.raw)));
        for ((bytes, size), (shares, chosen)) in SIZES.iter().zip(&measured.markers) {
            let row = Row::new(detector.name, size, "%", &percent(shares));
            rows.push(row.against("raw", &percent(shares), &percent(&measured.raw)));
            if detector.goal.0 == *bytes {
                notes.push(told(&detector, size, measured.lost(shares), *chosen));
            }
        }
    }
    Report { bench: "markers", rows, notes, failures: Vec::new() }
}

/// Whether a detector's goal is met, in a sentence.
fn told(detector: &Detector, size: &str, lost: f64, chosen: Quantisation) -> String {
    let (name, may_lose) = (detector.name, detector.goal.1);
    let held = if lost <= may_lose { "as it may" } else { "too many" };
    let lengths = 1 << chosen.lengths;
    let gaps = if detector.with_gaps { format!(" and gaps by {}", 1 << chosen.gaps) } else { String::new() };
    format!(
        "{name}, {size}: {lost:.1} of {may_lose} points lost, {held}; lengths are told apart by {lengths}{gaps}"
    )
}

fn detectors(n: usize) -> [Detector; 3] {
    let dice = Dice::from_seed;
    [
        Detector {
            name: "covert channel",
            flows: traffic::covert_channel(n, &mut dice(1)),
            with_gaps: false,
            goal: (20, 3.0),
        },
        Detector {
            name: "botnet",
            flows: traffic::botnet(n, &mut dice(2)),
            with_gaps: true,
            goal: (302, 2.0),
        },
        Detector {
            name: "websites",
            flows: traffic::websites(20, n / 10, &mut dice(3)),
            with_gaps: false,
            goal: (94, 2.0),
        },
    ]
}

/// Accuracies by fold.
struct Measured {
    raw: Vec<f64>,
    /// For each of [`SIZES`]: and what the first fold chose.
    markers: Vec<(Vec<f64>, Quantisation)>,
}

impl Measured {
    /// Points of accuracy that a marker has lost.
    fn lost(&self, shares: &[f64]) -> f64 {
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        100.0 * (mean(&self.raw) - mean(shares))
    }
}

fn measure(detector: &Detector, n_trees: usize) -> Measured {
    let levels: Vec<(Quantisation, Samples)> =
        quantisations(detector).into_iter().map(|level| (level, samples(detector, level))).collect();
    let mut measured = Measured { raw: Vec::new(), markers: Vec::new() };
    for fold in 0..FOLDS {
        let (judged, known): (Vec<u32>, Vec<u32>) =
            (0..detector.flows.len() as u32).partition(|at| in_part(*at, 0, FOLDS) == fold);
        let dice = |what: u64| Dice::from_seed(what << 8 | fold as u64);
        // What is searched for is judged by a third of the known flows.
        let (tried, learned): (Vec<u32>, Vec<u32>) = known.iter().partition(|at| in_part(**at, 1, 3) == 0);
        let learn = |(_, samples): &(Quantisation, Samples)| {
            let forest = Forest::learn(samples, &learned, n_trees, &mut dice(1));
            (forest.accuracy(samples, &tried), forest.ranking())
        };
        let all: Vec<(f64, Vec<usize>)> = levels.iter().map(learn).collect();
        let (_, samples) = &levels[best(all.iter().map(|(accuracy, _)| *accuracy))];
        let forest = Forest::learn(samples, &known, n_trees, &mut dice(2));
        measured.raw.push(forest.accuracy(samples, &judged));
        for (at, (bytes, _)) in SIZES.iter().enumerate() {
            let n_counters = bytes / COUNTER_BYTES;
            let accuracies = levels.iter().zip(&all).map(|((_, samples), (_, ranked))| {
                let kept = samples.features(&ranked[..n_counters.min(ranked.len())]);
                Forest::learn(&kept, &learned, n_trees, &mut dice(3)).accuracy(&kept, &tried)
            });
            let (level, samples) = &levels[best(accuracies)];
            let ranked = Forest::learn(samples, &known, n_trees, &mut dice(4)).ranking();
            let kept = samples.features(&ranked[..n_counters.min(ranked.len())]);
            let marker = Forest::learn(&kept, &known, n_trees, &mut dice(5));
            if measured.markers.len() == at {
                measured.markers.push((Vec::new(), *level));
            }
            measured.markers[at].0.push(marker.accuracy(&kept, &judged));
        }
    }
    measured
}

/// Where the greatest is, the first of them.
fn best(accuracies: impl Iterator<Item = f64>) -> usize {
    let greater = |best: (usize, f64), next: (usize, f64)| if next.1 > best.1 { next } else { best };
    accuracies.enumerate().reduce(greater).map_or(0, |(at, _)| at)
}

/// In which of so many parts a flow is. Parts of other numbers are drawn apart.
fn in_part(flow: u32, number: u64, parts: usize) -> usize {
    (weft_core::hash::mix(number, u64::from(flow)) % parts as u64) as usize
}

/// The levels that are searched.
fn quantisations(detector: &Detector) -> Vec<Quantisation> {
    let gaps = if detector.with_gaps { vec![0, 3, 5] } else { vec![0] };
    let of_lengths = move |lengths| gaps.clone().into_iter().map(move |gaps| Quantisation { lengths, gaps });
    (0..8).flat_map(of_lengths).collect()
}

/// The counters of each flow, as an element with them would have counted.
fn samples(detector: &Detector, level: Quantisation) -> Samples {
    let n_lengths = ((LENGTHS - 1) >> level.lengths) + 1;
    let n_gaps = if detector.with_gaps { ((GAPS - 1) >> level.gaps) + 1 } else { 0 };
    let mut columns = vec![vec![0_u16; detector.flows.len()]; n_lengths + n_gaps];
    for (at, flow) in detector.flows.iter().enumerate() {
        let mut count = |column: usize| columns[column][at] = columns[column][at].saturating_add(1);
        for packet in &flow.packets {
            count(usize::from(packet.bytes).min(LENGTHS - 1) >> level.lengths);
            if detector.with_gaps {
                let gap = ((packet.gap_us as f64).sqrt() / GAP_STEP) as usize;
                count(n_lengths + (gap.min(GAPS - 1) >> level.gaps));
            }
        }
    }
    Samples { columns, classes: detector.flows.iter().map(|flow| flow.class).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_lose_as_little_as_they_may() {
        // A search that kept the wrong counters would recommend markers that tell nothing apart.
        for detector in detectors(TESTED) {
            let measured = measure(&detector, 9);
            let at = SIZES
                .iter()
                .position(|(bytes, _)| *bytes == detector.goal.0)
                .expect("a size that is measured");
            let lost = measured.lost(&measured.markers[at].0);
            assert!(lost <= detector.goal.1, "{}: {lost} points lost", detector.name);
            let raw = measured.raw.iter().sum::<f64>() / FOLDS as f64;
            assert!(raw > 0.7, "{}: {raw} of the flows are told from all that there is", detector.name);
        }
    }

    /// Flows of each class.
    const TESTED: usize = 100;
}
