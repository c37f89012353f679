//! Flow markers: the fewest bytes per flow that separate classes of traffic as well as all lengths and gaps do
//! (FlowLens, Barradas et al., NDSS 2021).
//!
//! A marker is a histogram of packet lengths, and of the gaps between packets, in 16-bit counters, as an element keeps
//! it with `counted`. Two steps make it small: lengths and gaps are *quantised*, so that several share a counter, and
//! *truncated*, so that only the counters that separate classes best are kept. A search on one part of the flows
//! selects the quantisation and the counters. Four tests on the other flows measure their accuracy, so that each flow
//! is tested once by a forest that has not seen it. *Raw* is the same search without a limit on the counters.

mod captures;
mod forest;
mod traffic;

use weft_core::rng::Rng;

use super::report::{Report, Row};
use captures::Class;
pub(super) use captures::Labelled;
use forest::{Forest, Samples};
use traffic::Flow;
use weft_control::fault::Fault;

/// Bytes per counter.
const COUNTER_BYTES: usize = 2;
/// Sizes of markers in bytes per flow, for generated flows and for captures.
const SIZES: [(usize, &str); 3] = [(20, "20 B"), (94, "94 B"), (302, "302 B")];
const CAPTURE_SIZES: [(usize, &str); 6] =
    [(10, "10 B"), (20, "20 B"), (46, "46 B"), (94, "94 B"), (190, "190 B"), (302, "302 B")];
/// Counters that `flow_marker` keeps.
const COUNTERS_OF_ELEMENT: usize = 302 / COUNTER_BYTES;
/// A marker of captures that loses this many points counts as equal to all counters.
const LOSES_MAX: f64 = 2.0;
/// Distinct lengths without quantisation.
const LENGTHS: usize = 1501;
/// Distinct gaps without quantisation: the root of the microseconds, over 8. The last is everything above a minute.
const GAPS: usize = 1024;
const GAP_STEP: f64 = 8.0;
/// Folds of the flows: each is tested by a forest trained on the others.
const FOLDS: usize = 4;

/// A classification task.
struct Detector {
    name: &'static str,
    /// The sizes to try.
    sizes: &'static [(usize, &'static str)],
    flows: Vec<Flow>,
    /// Uses gaps as well as lengths.
    with_gaps: bool,
    /// The maximum number of counters that an element can keep.
    counters_max: usize,
    /// The marker with this many bytes may lose this many points of accuracy; None for captures.
    goal: Option<(usize, f64)>,
}

/// The resolution of lengths and gaps: the number of dropped low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quantisation {
    lengths: u32,
    gaps: u32,
}

impl Quantisation {
    /// The number of counters of lengths, and of gaps.
    fn counters(self, with_gaps: bool) -> (usize, usize) {
        let of = |values: usize, dropped: u32| ((values - 1) >> dropped) + 1;
        (of(LENGTHS, self.lengths), if with_gaps { of(GAPS, self.gaps) } else { 0 })
    }
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
        rows.extend(rows_of(&detector, &measured));
        for ((bytes, size), (shares, chosen)) in detector.sizes.iter().zip(&measured.markers) {
            if let Some((_, may_lose)) = detector.goal.filter(|(of, _)| of == bytes) {
                notes.push(verdict(&detector, size, measured.lost(shares), may_lose, *chosen));
            }
        }
    }
    Report { bench: "markers", rows, notes, failures: Vec::new() }
}

/// Measures how well the classes of captures can be separated.
///
/// # Errors
/// See [`captures::read`].
pub(super) fn run_on(captures: &[Labelled], quick: bool) -> Result<Report, Fault> {
    let (flows, classes) = captures::read(captures)?;
    let detector = Detector {
        name: "captures",
        sizes: &CAPTURE_SIZES,
        flows,
        with_gaps: true,
        counters_max: COUNTERS_OF_ELEMENT,
        goal: None,
    };
    let measured = measure(&detector, if quick { 15 } else { 40 });
    let mut notes = vec![
        "the share of flows whose class is named, each by trees that have not seen it; a flow is one direction of a \
         connection"
            .to_owned(),
        format!(
            "raw: all counters, of the steps that do best of those with which `flow_marker` has room for them \
             ({COUNTERS_OF_ELEMENT}); markers: 16-bit counters that were searched for"
        ),
    ];
    notes.extend(classes.iter().map(described));
    let most = classes.iter().map(|class| class.flows).max().unwrap_or(0);
    let by_guess = share(most, detector.flows.len());
    notes.push(format!("who names the largest class always is right for {by_guess:.1} %"));
    notes.push(advice(&measured, by_guess));
    Ok(Report { bench: "markers", rows: rows_of(&detector, &measured), notes, failures: Vec::new() })
}

fn share(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len().max(1) as f64
}

/// The rows of a detector: its accuracy with raw lengths, and with markers of each size.
fn rows_of(detector: &Detector, measured: &Measured) -> Vec<Row> {
    let percent = |shares: &[f64]| shares.iter().map(|share| 100.0 * share).collect::<Vec<f64>>();
    let raw = percent(&measured.raw);
    // Each fold tests other flows, so the mean covers all flows.
    let of = |size: &'static str, shares: &[f64]| Row {
        value: 100.0 * mean(shares),
        ..Row::new(detector.name, size, "%", &percent(shares))
    };
    let row = |((_, size), (shares, _)): (&(usize, &'static str), &(Vec<f64>, Quantisation))| {
        of(size, shares).against("raw", &percent(shares), &raw)
    };
    let markers = detector.sizes.iter().zip(&measured.markers).map(row);
    [of("raw", &measured.raw)].into_iter().chain(markers).collect()
}

/// Describes a class in a sentence.
fn described(class: &Class) -> String {
    let Class { label, flows, left_out, short, others } = class;
    let rest = [
        (*left_out as u64, "flows for which there was no room"),
        (*short as u64, "flows that are too short"),
    ]
    .into_iter()
    .chain([(*others, "packets that are not IP")])
    .filter(|(n, _)| *n > 0);
    let rest: Vec<String> = rest.map(|(n, what)| format!("{n} {what}")).collect();
    let without = if rest.is_empty() { String::new() } else { format!(", without {}", rest.join(" and ")) };
    format!("{label}: {flows} flows{without}")
}

/// The smallest sufficient marker, as parameters of `flow_marker`, with the share that guessing gets right.
fn advice(measured: &Measured, by_guess: f64) -> String {
    let raw = 100.0 * mean(&measured.raw);
    if raw <= by_guess + LOSES_MAX {
        return format!(
            "lengths and gaps do not tell these classes apart: all counters are right for {raw:.1} %"
        );
    }
    let all = CAPTURE_SIZES.iter().zip(&measured.markers);
    let does = all.map(|(size, (shares, chosen))| (size.1, measured.lost(shares), chosen));
    let found = does.into_iter().find(|(_, lost, _)| *lost <= LOSES_MAX);
    let Some((size, lost, chosen)) = found else {
        return format!("no marker of these sizes loses {LOSES_MAX} points or less");
    };
    let (length_step, gap_step) = (1 << chosen.lengths, GAP_STEP as u32 * (1 << chosen.gaps));
    let (gaps_at, of_gaps) = chosen.counters(true);
    let lost = lost.max(0.0);
    format!(
        "{size} are enough: {lost:.1} points lost, by flow_marker (length_step = {length_step}, gap_step = {gap_step}, \
         gaps_at = {gaps_at}), of the {} counters that it keeps those that tell most",
        gaps_at + of_gaps
    )
}

/// Whether a detector meets its goal, in a sentence.
fn verdict(detector: &Detector, size: &str, lost: f64, may_lose: f64, chosen: Quantisation) -> String {
    let name = detector.name;
    let held = if lost <= may_lose { "as it may" } else { "too many" };
    let lengths = 1 << chosen.lengths;
    let gaps = if detector.with_gaps { format!(" and gaps by {}", 1 << chosen.gaps) } else { String::new() };
    format!(
        "{name}, {size}: {lost:.1} of {may_lose} points lost, {held}; lengths are told apart by {lengths}{gaps}"
    )
}

/// The three detectors, each with `n` generated flows.
fn detectors(n: usize) -> [Detector; 3] {
    let rng = Rng::from_seed;
    [
        Detector {
            name: "covert channel",
            sizes: &SIZES,
            flows: traffic::covert_channel(n, &mut rng(1)),
            with_gaps: false,
            counters_max: usize::MAX,
            goal: Some((20, 3.0)),
        },
        Detector {
            name: "botnet",
            sizes: &SIZES,
            flows: traffic::botnet(n, &mut rng(2)),
            with_gaps: true,
            counters_max: usize::MAX,
            goal: Some((302, 2.0)),
        },
        Detector {
            name: "websites",
            sizes: &SIZES,
            flows: traffic::websites(20, n / 10, &mut rng(3)),
            with_gaps: false,
            counters_max: usize::MAX,
            goal: Some((94, 2.0)),
        },
    ]
}

/// Accuracies by fold.
struct Measured {
    raw: Vec<f64>,
    /// For each size: the accuracies, and the choice of the first fold.
    markers: Vec<(Vec<f64>, Quantisation)>,
}

impl Measured {
    /// Points of accuracy that a marker loses.
    fn lost(&self, shares: &[f64]) -> f64 {
        100.0 * (mean(&self.raw) - mean(shares))
    }
}

/// Measures a detector by cross-validation: the accuracy with all features, and with the best few that fit each marker
/// size.
fn measure(detector: &Detector, n_trees: usize) -> Measured {
    let levels: Vec<(Quantisation, Samples)> =
        quantisations(detector).into_iter().map(|level| (level, samples(detector, level))).collect();
    let mut measured = Measured { raw: Vec::new(), markers: Vec::new() };
    for fold in 0..FOLDS {
        let (judged, known): (Vec<u32>, Vec<u32>) =
            (0..detector.flows.len() as u32).partition(|at| in_part(*at, 0, FOLDS) == fold);
        let rng = |what: u64| Rng::of_stream(what, "fold", fold as u64);
        // A third of the training flows evaluates the candidates of the search.
        let (tried, learned): (Vec<u32>, Vec<u32>) = known.iter().partition(|at| in_part(**at, 1, 3) == 0);
        let learn = |(_, samples): &(Quantisation, Samples)| {
            let forest = Forest::learn(samples, &learned, n_trees, &mut rng(1));
            (forest.accuracy(samples, &tried), forest.ranking())
        };
        let all: Vec<(f64, Vec<usize>)> = levels.iter().map(learn).collect();
        let (_, samples) = &levels[best(all.iter().map(|(accuracy, _)| *accuracy))];
        let forest = Forest::learn(samples, &known, n_trees, &mut rng(2));
        measured.raw.push(forest.accuracy(samples, &judged));
        for (at, (bytes, _)) in detector.sizes.iter().enumerate() {
            let n_counters = bytes / COUNTER_BYTES;
            let accuracies = levels.iter().zip(&all).map(|((_, samples), (_, ranked))| {
                let kept = samples.features(&ranked[..n_counters.min(ranked.len())]);
                Forest::learn(&kept, &learned, n_trees, &mut rng(3)).accuracy(&kept, &tried)
            });
            let (level, samples) = &levels[best(accuracies)];
            let ranked = Forest::learn(samples, &known, n_trees, &mut rng(4)).ranking();
            let kept = samples.features(&ranked[..n_counters.min(ranked.len())]);
            let marker = Forest::learn(&kept, &known, n_trees, &mut rng(5));
            if measured.markers.len() == at {
                measured.markers.push((Vec::new(), *level));
            }
            measured.markers[at].0.push(marker.accuracy(&kept, &judged));
        }
    }
    measured
}

/// The index of the first maximum.
fn best(accuracies: impl Iterator<Item = f64>) -> usize {
    let greater = |best: (usize, f64), next: (usize, f64)| if next.1 > best.1 { next } else { best };
    accuracies.enumerate().reduce(greater).map_or(0, |(at, _)| at)
}

/// The part of a flow among this many parts. Different numbers give independent partitions.
fn in_part(flow: u32, number: u64, parts: usize) -> usize {
    (weft_core::hash::mix(number, u64::from(flow)) % parts as u64) as usize
}

/// Lists the quantisations to search for a detector.
fn quantisations(detector: &Detector) -> Vec<Quantisation> {
    let gaps = if detector.with_gaps { vec![0, 3, 5] } else { vec![0] };
    let of_lengths = move |lengths| gaps.clone().into_iter().map(move |gaps| Quantisation { lengths, gaps });
    let has_room = |level: &Quantisation| {
        let (lengths, gaps) = level.counters(detector.with_gaps);
        lengths + gaps <= detector.counters_max
    };
    (0..8).flat_map(of_lengths).filter(has_room).collect()
}

/// The counters of each flow, as an element would have them.
fn samples(detector: &Detector, level: Quantisation) -> Samples {
    let (n_lengths, n_gaps) = level.counters(detector.with_gaps);
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
    use crate::rpc::Folder;

    #[test]
    fn search_finds_best_markers() {
        // A wrong search would recommend markers that separate nothing.
        for detector in detectors(TESTED) {
            let measured = measure(&detector, 9);
            let (size, may_lose) = detector.goal.expect("what is made has a goal");
            let at = SIZES.iter().position(|(bytes, _)| *bytes == size).expect("a size that is measured");
            let lost = measured.lost(&measured.markers[at].0);
            assert!(lost <= may_lose, "{}: {lost} points lost", detector.name);
            let raw = measured.raw.iter().sum::<f64>() / FOLDS as f64;
            assert!(raw > 0.7, "{}: {raw} of the flows are told from all that there is", detector.name);
        }
    }

    /// A capture of UDP flows: packets of these lengths in turn.
    fn capture(path: &std::path::Path, n: u8, lengths: [u16; 2]) {
        use weft_core::Time;
        use weft_core::frame::build::ipv4;
        use weft_proto::capture::{LinkType, Packet, Style, Writer};
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Style::default(), LinkType::RAW, "", &mut bytes);
        for flow in 0..n {
            for nth in 0..20_i64 {
                let length = lengths[nth as usize % 2] + u16::from(flow);
                let ip = ipv4([10, 0, 0, flow], [10, 0, 0, 2]).ttl(9);
                let packet = ip.udp(7, 9).checksum(0).payload(vec![0; usize::from(length) - 28]).build();
                let at = Time(1_000_000 * (1 + nth + 100 * i64::from(flow)));
                writer
                    .write(&Packet { bytes: &packet, at, ..Packet::default() }, &mut bytes)
                    .expect("it is short");
            }
        }
        std::fs::write(path, bytes).expect("the folder is ours");
    }

    #[test]
    fn labelled_captures_train_or_refused() {
        // A user who sizes a marker by own captures would get advice for other traffic.
        let folder = Folder::new().expect("a folder");
        let [small, large, few] = ["small", "large", "few"].map(|name| folder.0.join(name));
        capture(&small, 40, [60, 120]);
        capture(&large, 60, [900, 1400]);
        capture(&few, 3, [60, 60]);
        std::fs::write(folder.0.join("text"), "this is none").expect("the folder is ours");
        let labelled = |all: &[(&str, &std::path::Path)]| -> Vec<Labelled> {
            let one = |(label, path): &(&str, &std::path::Path)| format!("{label}={}", path.display());
            all.iter().map(|of| one(of).parse().expect("it is one")).collect()
        };
        let report = run_on(&labelled(&[("talk", &small), ("bulk", &large)]), true).expect("they are sound");
        let right: Vec<(&str, f64)> = report.rows.iter().map(|row| (row.metric, row.value)).collect();
        assert_eq!(right.len(), 1 + CAPTURE_SIZES.len());
        assert!(right.iter().all(|(_, share)| *share > 99.0), "{right:?}");
        let notes = report.notes.join("\n");
        for wanted in
            ["talk: 40 flows", "bulk: 60 flows", "right for 60.0 %", "10 B are enough: 0.0 points lost"]
        {
            assert!(notes.contains(wanted), "{notes}");
        }
        let number_behind = |what: &str| -> Option<usize> {
            let rest = notes.split_once(what)?.1;
            rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
        };
        let [gaps_at, kept] = ["gaps_at = ", "), of the "].map(number_behind).map(Option::unwrap_or_default);
        assert!(0 < gaps_at && gaps_at < kept && kept <= COUNTERS_OF_ELEMENT, "{notes}");
        let same = run_on(&labelled(&[("a", &small), ("b", &small)]), true).expect("they are sound");
        assert!(same.notes.join("\n").contains("do not tell these classes apart"), "{:?}", same.notes);
        let refused =
            |all: &[(&str, &std::path::Path)]| run_on(&labelled(all), true).expect_err("it is not").text();
        assert!(refused(&[("talk", &small)]).contains("2 to 16 classes"));
        assert!(refused(&[("talk", &small), ("rare", &few)]).contains("`rare` has 3 flows"));
        let text = folder.0.join("text");
        assert!(refused(&[("talk", &small), ("text", &text)]).contains("text: "));
        let gone = folder.0.join("gone");
        assert!(refused(&[("talk", &small), ("gone", &gone)]).contains("No such file"));
        assert!("talk".parse::<Labelled>().is_err() && "=a".parse::<Labelled>().is_err());
    }

    /// Flows of each class.
    const TESTED: usize = 150;
}
