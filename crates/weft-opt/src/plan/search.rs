//! The order of least expected cost among those that keep what must be kept.
//!
//! Finding it is NP-hard in general (scheduling on one machine with precedence, weighted by chance), so it is exact up
//! to [`EXACT_MAX`] elements, by dynamic programming over the sets of elements that may stand in front, and a beam of
//! [`BEAM_WIDTH`] such sets beyond. What a set costs does not depend on what follows, and how many calls it lets pass
//! does not depend on its order, so one best order for each set is all that there is to keep.

use super::figures::Figures;

/// Elements up to which the order is the best there is. 2^16 sets take half a megabyte and a few milliseconds.
pub const EXACT_MAX: usize = 16;
/// Sets that are kept of each size where there are more elements.
pub const BEAM_WIDTH: usize = 128;
/// Costs that differ by less of the whole are equal: then the written order holds.
const EQUAL: f64 = 1e-9;

/// What must stand in front of each element, as sets of elements: bit i for element i.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Constraints {
    /// By element: those that stand in front of it.
    pub(super) before: Vec<u64>,
    /// Two elements, and a set of those that never stand between them.
    pub(super) apart: Vec<([usize; 2], u64)>,
}

/// An order, and whether it is known to be the best.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchResult {
    pub(super) order: Vec<usize>,
    pub(super) is_exact: bool,
}

impl Constraints {
    /// Whether an element may stand right behind this set of elements.
    pub(super) fn allow(&self, element: usize, set: u64) -> bool {
        let is_between = |([first, second], others): &([usize; 2], u64)| {
            others >> element & 1 != 0 && set >> first & 1 != set >> second & 1
        };
        set >> element & 1 == 0 && self.before[element] & !set == 0 && !self.apart.iter().any(is_between)
    }

    /// Whether an order keeps them all.
    pub(super) fn hold(&self, order: &[usize]) -> bool {
        let mut set = 0;
        order.len() == self.before.len()
            && order.iter().all(|&element| {
                let fits = self.allow(element, set);
                set |= 1 << element;
                fits
            })
    }

    /// Where the written order falls into parts that stand one behind the other whatever is chosen.
    fn cuts(&self) -> Vec<usize> {
        let n = self.before.len();
        let is_cut = |at: &usize| {
            let front = (1u64 << at) - 1;
            (*at..n).all(|element| front & !self.before[element] == 0)
        };
        (1..n).filter(is_cut).chain([n]).collect()
    }
}

/// The best order that is found.
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

/// Elements that stand between two cuts; sets are of these alone, moved down by `from`.
struct Part<'f> {
    figures: &'f Figures,
    constraints: &'f Constraints,
    from: usize,
    to: usize,
    /// Those in front of all of them.
    front: u64,
}

/// The best way that is known to have a set of elements in front.
#[derive(Clone, Copy)]
struct BestPrefix {
    cost: f64,
    /// The share of calls that come through.
    reach: f64,
    /// The element that is last.
    last: usize,
}

impl Part<'_> {
    fn len(&self) -> usize {
        self.to - self.from
    }

    fn allows(&self, element: usize, set: u64) -> bool {
        self.constraints.allow(self.from + element, set << self.from | self.front)
    }

    fn append(&self, prefix: BestPrefix, element: usize) -> BestPrefix {
        let figures = &self.figures.elements[self.from + element];
        BestPrefix {
            cost: prefix.cost + prefix.reach * figures.ns,
            reach: prefix.reach * (1.0 - figures.ends),
            last: element,
        }
    }

    /// Whether a way is better than the one that is known. Of two that cost the same, the one that ends like the
    /// written order is.
    fn is_better(&self, prefix: &BestPrefix, known: &BestPrefix) -> bool {
        let slack = EQUAL * known.cost.max(1.0);
        prefix.cost < known.cost - slack || (prefix.cost <= known.cost + slack && prefix.last > known.last)
    }

    /// By dynamic programming over all sets, the lesser first.
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

    /// The order that leads to a set.
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

    /// Set by set of the same size, keeping those that promise the least cost. Elements that must not stand between
    /// two others may leave every set that is kept without a way on: then the written order is it.
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

    /// Each set with one more element, once.
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
    /// What the elements that are left cost if a call reaches them all.
    rest: f64,
    /// The set in the layer before that it was made of.
    by: usize,
}

impl BeamEntry {
    /// What the whole would cost if nothing that is left ended a call.
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
        // What stands in front of what stands in front stands in front.
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
        // A planner that misses the best order gives speed away; one that breaks a constraint breaks programs.
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
        // Beyond what is exact, a chain must still be right, and should not be worse than it was written.
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
            // What a beam finds of few elements is what there is.
            let (figures, constraints) = random(&mut rng, 10, 20);
            let part = Part { figures: &figures, constraints: &constraints, from: 0, to: 10, front: 0 };
            let (beam, exact) = (part.beam(), part.exact());
            let ratio = figures.expected_ns(&beam) / figures.expected_ns(&exact);
            assert!(constraints.hold(&beam) && ratio < 1.01, "seed {seed}: {ratio}");
        }
    }

    #[test]
    fn stuck_beam_keeps_written_order() {
        // Once the cheap first element is in front, the second must follow, and cannot before what may not stand
        // between them: a beam that kept only such sets would have nothing to go on with.
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
        // Whoever changes nothing for a gain of nothing makes people wonder.
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
