//! A random forest: the classifier that evaluates markers.
//!
//! Deterministic: all random choices come from a seed, and every comparison is of integers, or of sums in a fixed
//! order.

use weft_core::rng::Rng;

/// The maximum depth of a tree.
const DEPTH_MAX: usize = 14;
/// A node with at most this many samples is not split.
const LEAF_MIN: usize = 3;

/// Samples: a column for each feature, and the class of each sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// By feature: its value in each sample.
    pub(super) columns: Vec<Vec<u16>>,
    /// By sample.
    pub(super) classes: Vec<u8>,
}

/// Trees that vote.
#[derive(Debug)]
pub(super) struct Forest {
    trees: Vec<Vec<Node>>,
    n_classes: usize,
    /// By feature: how well its splits separate the classes.
    importance: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    /// Samples with at most this value go to the next node, the others to this one.
    Divide {
        feature: usize,
        at_most: u16,
        above: usize,
    },
    Class(u8),
}

/// A split of a node's samples.
struct Division {
    feature: usize,
    at_most: u16,
    gain: f64,
}

impl Samples {
    /// Only these features, in this order.
    pub(super) fn features(&self, which: &[usize]) -> Self {
        let columns = which.iter().map(|at| self.columns[*at].clone()).collect();
        Self { columns, classes: self.classes.clone() }
    }
}

impl Forest {
    /// Trains on these samples. Each tree gets as many, drawn with replacement.
    pub(super) fn learn(samples: &Samples, among: &[u32], n_trees: usize, rng: &mut Rng) -> Self {
        let n_classes = samples.classes.iter().map(|class| usize::from(*class) + 1).max().unwrap_or(1);
        // A constant feature splits nothing.
        let varies =
            |column: &&Vec<u16>| among.iter().any(|at| column[*at as usize] != column[among[0] as usize]);
        let useful: Vec<usize> =
            (0..).zip(&samples.columns).filter(|(_, column)| varies(column)).map(|(at, _)| at).collect();
        let mut learner = Learner {
            samples,
            useful,
            n_classes,
            importance: vec![0.0; samples.columns.len()],
            nodes: Vec::new(),
            rng,
        };
        let mut trees = Vec::new();
        for _ in 0..n_trees {
            let drawn = (0..among.len()).map(|_| learner.rng.pick(among)).collect();
            learner.grow(drawn, 0);
            trees.push(core::mem::take(&mut learner.nodes));
        }
        let importance = learner.importance;
        Self { trees, n_classes, importance }
    }

    /// The share of these samples whose class wins the vote.
    pub(super) fn accuracy(&self, samples: &Samples, among: &[u32]) -> f64 {
        let is_right = |at: &&u32| self.class(samples, **at as usize) == samples.classes[**at as usize];
        among.iter().filter(is_right).count() as f64 / among.len().max(1) as f64
    }

    /// Features by how well they separate classes, the best first.
    pub(super) fn ranking(&self) -> Vec<usize> {
        let mut ranked: Vec<usize> = (0..self.importance.len()).collect();
        ranked.sort_by(|a, b| self.importance[*b].total_cmp(&self.importance[*a]).then(a.cmp(b)));
        ranked
    }

    /// Classifies a sample by a majority of the trees.
    fn class(&self, samples: &Samples, at: usize) -> u8 {
        let mut votes = vec![0; self.n_classes];
        for nodes in &self.trees {
            let mut node = 0;
            let class = loop {
                match nodes[node] {
                    Node::Class(class) => break class,
                    Node::Divide { feature, at_most, above } => {
                        node = if samples.columns[feature][at] <= at_most { node + 1 } else { above };
                    }
                }
            };
            votes[usize::from(class)] += 1;
        }
        most(&votes)
    }
}

struct Learner<'a> {
    samples: &'a Samples,
    useful: Vec<usize>,
    n_classes: usize,
    importance: Vec<f64>,
    nodes: Vec<Node>,
    rng: &'a mut Rng,
}

impl Learner<'_> {
    /// Adds the node of these samples, and its subtree.
    fn grow(&mut self, among: Vec<u32>, depth: usize) {
        let counts = self.counts(&among);
        let is_pure = counts.iter().filter(|n| **n > 0).count() < 2;
        let division =
            (!is_pure && depth < DEPTH_MAX && among.len() >= LEAF_MIN).then(|| self.best(&among, &counts));
        let Some(Division { feature, at_most, gain }) = division.flatten() else {
            return self.nodes.push(Node::Class(most(&counts)));
        };
        self.importance[feature] += gain;
        let at = self.nodes.len();
        self.nodes.push(Node::Divide { feature, at_most, above: 0 });
        let column = &self.samples.columns[feature];
        let (below, above) = among.into_iter().partition(|sample| column[*sample as usize] <= at_most);
        self.grow(below, depth + 1);
        let next = self.nodes.len();
        self.nodes[at] = Node::Divide { feature, at_most, above: next };
        self.grow(above, depth + 1);
    }

    /// The best split by one of some randomly drawn features.
    fn best(&mut self, among: &[u32], counts: &[u32]) -> Option<Division> {
        let n_tried = ((self.useful.len() as f64).sqrt().ceil() as usize + 1).max(self.useful.len() / 8);
        let whole = impurity(counts, among.len());
        let mut best: Option<Division> = None;
        let mut values = Vec::with_capacity(among.len());
        for _ in 0..n_tried.min(self.useful.len()) {
            let feature = self.rng.pick(&self.useful);
            let column = &self.samples.columns[feature];
            values.clear();
            values.extend(among.iter().map(|at| (column[*at as usize], self.samples.classes[*at as usize])));
            values.sort_unstable();
            let mut below = vec![0; self.n_classes];
            let mut above = counts.to_vec();
            for at in 1..values.len() {
                let (value, class) = values[at - 1];
                below[usize::from(class)] += 1;
                above[usize::from(class)] -= 1;
                if value == values[at].0 {
                    continue;
                }
                let gain = whole - impurity(&below, at) - impurity(&above, values.len() - at);
                if best.as_ref().is_none_or(|best| gain > best.gain) {
                    // The midpoint, so that new values between the two may go either way.
                    best = Some(Division { feature, at_most: value + (values[at].0 - value) / 2, gain });
                }
            }
        }
        best.filter(|best| best.gain > 1e-9)
    }

    fn counts(&self, among: &[u32]) -> Vec<u32> {
        let mut counts = vec![0; self.n_classes];
        among.iter().for_each(|at| counts[usize::from(self.samples.classes[*at as usize])] += 1);
        counts
    }
}

/// Gini's impurity times the number of samples.
fn impurity(counts: &[u32], n: usize) -> f64 {
    let squares: f64 = counts.iter().map(|n| f64::from(*n) * f64::from(*n)).sum();
    n as f64 - squares / n as f64
}

fn most(counts: &[u32]) -> u8 {
    let most = (0..).zip(counts).max_by_key(|(class, n): &(usize, &u32)| (**n, core::cmp::Reverse(*class)));
    most.map_or(0, |(class, _)| class as u8)
}
