//! Finds the order of least expected cost that satisfies the constraints.
//!
//! The problem is NP-hard in general (single-machine scheduling with precedence constraints, weighted by probability).
//! So the search is exact up to [`EXACT_MAX`] elements, by dynamic programming over sets of first elements, and a beam
//! search over [`BEAM_WIDTH`] such sets beyond. The cost of a set does not depend on what follows, nor its share of
//! passing calls on its order, so it is enough to keep one best order per set.

use super::figures::Figures;

/// Largest number of elements for an exact search. 2^16 sets take half a megabyte and a few milliseconds.
pub const EXACT_MAX: usize = 16;
/// Sets kept of each size with more elements.
pub const BEAM_WIDTH: usize = 128;
/// Relative difference below which costs are equal: then the written order wins.
const EQUAL: f64 = 1e-9;

/// The elements that must come before each element, as sets: bit i for element i.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Constraints {
    /// By element: those that come before it.
    pub(super) before: Vec<u64>,
    /// Two elements, and the set of those that must not be between them.
    pub(super) apart: Vec<([usize; 2], u64)>,
}

/// An order, and whether it is known to be the best.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchResult {
    pub(super) order: Vec<usize>,
    pub(super) is_exact: bool,
}

impl Constraints {
    /// Whether an element may follow this set of elements.
    pub(super) fn allow(&self, element: usize, set: u64) -> bool {
        let is_between = |([first, second], others): &([usize; 2], u64)| {
            others >> element & 1 != 0 && set >> first & 1 != set >> second & 1
        };
        set >> element & 1 == 0 && self.before[element] & !set == 0 && !self.apart.iter().any(is_between)
    }

    /// Whether an order satisfies all constraints.
    pub(super) fn hold(&self, order: &[usize]) -> bool {
        let mut set = 0;
        order.len() == self.before.len()
            && order.iter().all(|&element| {
                let fits = self.allow(element, set);
                set |= 1 << element;
                fits
            })
    }

    /// The places where every allowed order splits into independent parts.
    fn cuts(&self) -> Vec<usize> {
        let n = self.before.len();
        let is_cut = |at: &usize| {
            let front = (1u64 << at) - 1;
            (*at..n).all(|element| front & !self.before[element] == 0)
        };
        (1..n).filter(is_cut).chain([n]).collect()
    }
}

/// Searches for the best order.
pub(super) fn search(figures: &Figures, constraints: &Constraints) -> SearchResult {
    let mut found = SearchResult { order: Vec::new(), is_exact: true };
    let mut from = 0;
    for to in constraints.cuts() {
        let part = Part { figures, constraints, from, to, front: (1u64 << from) - 1 };
        if to - from <= EXACT_MAX {
            found.order.extend(part.exact());
        } else {
            found.order.extend(part.beam());
            found.is_exact = false;
        }
        from = to;
    }
    found
}

/// The elements between two cuts; sets contain only these, shifted down by `from`.
struct Part<'f> {
    figures: &'f Figures,
    constraints: &'f Constraints,
    from: usize,
    to: usize,
    /// The elements before the part.
    front: u64,
}

/// The best known order of a set of first elements.
#[derive(Clone, Copy)]
struct BestPrefix {
    cost: f64,
    /// The share of calls that pass.
    reach: f64,
    /// The last element.
    last: usize,
}

impl Part<'_> {
    fn len(&self) -> usize {
        self.to - self.from
    }

    fn allows(&self, element: usize, set: u64) -> bool {
        self.constraints.allow(self.from + element, set << self.from | self.front)
    }

    /// Extends a prefix by one element: adds its cost, weighted by the share of calls that reach it.
    fn append(&self, prefix: BestPrefix, element: usize) -> BestPrefix {
        let figures = &self.figures.elements[self.from + element];
        BestPrefix {
            cost: prefix.cost + prefix.reach * figures.ns,
            reach: prefix.reach * (1.0 - figures.ends),
            last: element,
        }
    }

    /// Whether a prefix is better than the known one. Of two equal ones, the one with the later last element wins, as
    /// in the written order.
    fn is_better(&self, prefix: &BestPrefix, known: &BestPrefix) -> bool {
        let slack = EQUAL * known.cost.max(1.0);
        prefix.cost < known.cost - slack || (prefix.cost <= known.cost + slack && prefix.last > known.last)
    }

    /// Dynamic programming over all sets, smaller sets first.
    fn exact(&self) -> Vec<usize> {
        let all = (1u64 << self.len()) - 1;
        let mut prefixes: Vec<Option<BestPrefix>> = vec![None; 1 << self.len()];
        prefixes[0] = Some(BestPrefix { cost: 0.0, reach: 1.0, last: 0 });
        for set in 0..=all {
            let Some(prefix) = prefixes[set as usize] else { continue };
            for element in (0..self.len()).filter(|element| self.allows(*element, set)) {
                let next = self.append(prefix, element);
                let known = &mut prefixes[(set | 1 << element) as usize];
                if known.as_ref().is_none_or(|known| self.is_better(&next, known)) {
                    *known = Some(next);
                }
            }
        }
        let last_of = |set: u64| prefixes[set as usize].map_or(0, |prefix| prefix.last);
        self.back(all, last_of)
    }

    /// Reconstructs the order that leads to a set, from its last element to its first.
    fn back(&self, mut set: u64, last_of: impl Fn(u64) -> usize) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.len());
        while set != 0 {
            let last = last_of(set);
            order.push(self.from + last);
            set &= !(1 << last);
        }
        order.reverse();
        order
    }

    /// Runs a beam search over sets of the same size, keeping those with the least promised cost. Elements that must
    /// not be between two others may leave all kept sets without a successor; then the written order is used.
    fn beam(&self) -> Vec<usize> {
        let rest: f64 = self.figures.elements[self.from..self.to].iter().map(|f| f.ns).sum();
        let mut beam =
            vec![BeamEntry { set: 0, prefix: BestPrefix { cost: 0.0, reach: 1.0, last: 0 }, rest, by: 0 }];
        let mut layers: Vec<Vec<BeamEntry>> = Vec::new();
        for _ in 0..self.len() {
            let mut next = self.layer(&beam);
            if next.is_empty() {
                return (self.from..self.to).collect();
            }
            next.sort_by(|a, b| a.promise().total_cmp(&b.promise()).then(a.set.cmp(&b.set)));
            next.truncate(BEAM_WIDTH);
            layers.push(core::mem::replace(&mut beam, next));
        }
        layers.push(beam);
        let mut order = Vec::with_capacity(self.len());
        let mut at = 0;
        for layer in layers.iter().skip(1).rev() {
            order.push(self.from + layer[at].prefix.last);
            at = layer[at].by;
        }
        order.reverse();
        order
    }

    /// Extends each set of the beam by one element. Sets that are reached twice are kept once.
    fn layer(&self, beam: &[BeamEntry]) -> Vec<BeamEntry> {
        let mut next: Vec<BeamEntry> = Vec::with_capacity(beam.len() * 4);
        for (by, entry) in beam.iter().enumerate() {
            for element in (0..self.len()).filter(|element| self.allows(*element, entry.set)) {
                let rest = entry.rest - self.figures.elements[self.from + element].ns;
                next.push(BeamEntry {
                    set: entry.set | 1 << element,
                    prefix: self.append(entry.prefix, element),
                    rest,
                    by,
                });
            }
        }
        next.sort_by_key(|entry| entry.set);
        next.dedup_by(|new, known| {
            let is_same = new.set == known.set;
            if is_same && self.is_better(&new.prefix, &known.prefix) {
                *known = *new;
            }
            is_same
        });
        next
    }
}

/// A set in the beam.
#[derive(Clone, Copy)]
struct BeamEntry {
    set: u64,
    prefix: BestPrefix,
    /// The cost of the remaining elements if a call reaches them all.
    rest: f64,
    /// The index of its predecessor in the previous layer.
    by: usize,
}

impl BeamEntry {
    /// The total cost if no remaining element ended a call.
    fn promise(&self) -> f64 {
        self.prefix.cost + self.prefix.reach * self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::figures::ElementFigures;
    use weft_ir::generate::Rng;

    fn random(rng: &mut Rng, n: usize, percent: usize) -> (Figures, Constraints) {
        let one = |rng: &mut Rng| ElementFigures {
            ns: 1.0 + rng.below(1000) as f64,
            ends: if rng.percent(40) { rng.below(100) as f64 / 100.0 } else { 0.0 },
            ..ElementFigures::default()
        };
        let figures = Figures { elements: (0..n).map(|_| one(rng)).collect() };
        let mut before = |element: usize| {
            (0..element).filter(|_| rng.percent(percent)).fold(0, |set, other| set | 1u64 << other)
        };
        let mut before: Vec<u64> = (0..n).map(&mut before).collect();
        // Predecessors are transitive.
        for element in 0..n {
            before[element] |=
                (0..element).filter(|o| before[element] >> o & 1 != 0).fold(0, |s, o| s | before[o]);
        }
        let mut apart = |_| {
            let first = rng.below(n - 1);
            let second = first + 1 + rng.below(n - first - 1);
            let outside = (0..n).filter(|other| !(first..=second).contains(other) && rng.percent(percent));
            ([first, second], outside.fold(0, |set, other| set | 1u64 << other))
        };
        let apart = (0..n / 5).map(&mut apart).collect();
        (figures, Constraints { before, apart })
    }

    fn all_orders(n: usize) -> Vec<Vec<usize>> {
        let mut orders = vec![Vec::new()];
        for _ in 0..n {
            let longer = |order: &Vec<usize>| -> Vec<Vec<usize>> {
                let free = (0..n).filter(|element| !order.contains(element));
                free.map(|element| order.iter().copied().chain([element]).collect()).collect()
            };
            orders = orders.iter().flat_map(longer).collect();
        }
        orders
    }

    #[test]
    fn exact_search_finds_the_best_order() {
        // A planner that misses the best order wastes time; one that violates a constraint breaks programs.
        for seed in 0..60 {
            let mut rng = Rng::from_seed(seed);
            let n = 2 + rng.below(5);
            let (figures, constraints) = random(&mut rng, n, 30);
            let found = search(&figures, &constraints);
            assert!(found.is_exact && constraints.hold(&found.order), "seed {seed}: {found:?}");
            let orders = all_orders(n);
            let costs = orders.iter().filter(|order| constraints.hold(order)).map(|o| figures.expected_ns(o));
            let best = costs.fold(f64::INFINITY, f64::min);
            let own = figures.expected_ns(&found.order);
            assert!(own <= best * (1.0 + 1e-6), "seed {seed}: {own} and not {best}");
        }
    }

    #[test]
    fn beam_keeps_constraints_and_is_close() {
        // Beyond the exact search, an order must still be valid, and should not be worse than the written one.
        for seed in 0..8 {
            let mut rng = Rng::from_seed(seed);
            let (figures, constraints) = random(&mut rng, 40, 2 + 4 * seed as usize);
            let found = search(&figures, &constraints);
            assert!(constraints.hold(&found.order), "seed {seed}");
            let written: Vec<usize> = (0..40).collect();
            assert!(
                figures.expected_ns(&found.order) <= figures.expected_ns(&written) * 1.000_001,
                "seed {seed}"
            );
            // With few elements the beam is exhaustive.
            let (figures, constraints) = random(&mut rng, 10, 20);
            let part = Part { figures: &figures, constraints: &constraints, from: 0, to: 10, front: 0 };
            let (beam, exact) = (part.beam(), part.exact());
            let ratio = figures.expected_ns(&beam) / figures.expected_ns(&exact);
            assert!(constraints.hold(&beam) && ratio < 1.01, "seed {seed}: {ratio}");
        }
    }

    #[test]
    fn stuck_beam_keeps_written_order() {
        // After the cheap first element the second must follow, but not before elements that may not be between them: a
        // beam of only such sets would get stuck.
        let n = 40;
        let figures = Figures {
            elements: (0..n)
                .map(|at| ElementFigures {
                    ns: if at < 30 { 1000.0 } else { 1.0 },
                    ends: if at < 30 { 0.0 } else { 0.9 },
                    ..ElementFigures::default()
                })
                .collect(),
        };
        let mut before = vec![0; n];
        before[39] = 1;
        let apart = (30..39).map(|first| ([first, 39], 1)).collect();
        let constraints = Constraints { before, apart };
        let found = search(&figures, &constraints);
        assert_eq!(found.order, (0..n).collect::<Vec<_>>());
        assert!(constraints.hold(&found.order));
    }

    #[test]
    fn equal_costs_keep_written_order() {
        // A change without gain confuses people.
        let element = ElementFigures { ns: 10.0, ends: 0.0, ..ElementFigures::default() };
        for n in [5, 20] {
            let figures = Figures { elements: vec![element; n] };
            let constraints = Constraints { before: vec![0; n], apart: Vec::new() };
            assert_eq!(search(&figures, &constraints).order, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn long_chains_split_at_walls() {
        // A long chain of short parts can be planned as well as a short one.
        let n = 40;
        let element = |at: usize| ElementFigures {
            ns: if usize::is_multiple_of(at, 4) { 1000.0 } else { 1.0 },
            ends: if at % 4 == 3 { 0.5 } else { 0.0 },
            ..ElementFigures::default()
        };
        let figures = Figures { elements: (0..n).map(element).collect() };
        let before = (0..n).map(|at| (1u64 << (at / 8 * 8)) - 1).collect();
        let found = search(&figures, &Constraints { before, apart: Vec::new() });
        assert!(found.is_exact);
        assert_eq!(found.order[..8], [3, 7, 0, 1, 2, 4, 5, 6]);
    }
}
