//! Which blocks of a function lead where.

use weft_ir::ir::{Function, Terminator, Value};

use super::known::Known;

/// The control flow of a function, without jumps that no tuple takes.
pub(super) struct Flow {
    successors: Vec<Vec<usize>>,
    /// `leads[a][b]`: a way of one jump or more goes from a to b.
    leads: Vec<Vec<bool>>,
    /// How many jumps go to each block.
    n_entries: Vec<usize>,
    /// What the end of each block asks, if it asks.
    conditions: Vec<Option<Value>>,
}

impl Flow {
    pub(super) fn of(function: &Function) -> Self {
        let blocks = &function.blocks;
        let known = Known::of(function);
        let successors: Vec<Vec<usize>> = blocks.iter().map(|block| taken(&block.end, &known)).collect();
        let mut n_entries = vec![0; blocks.len()];
        successors.iter().flatten().for_each(|&to| n_entries[to] += 1);
        let condition = |end: &Terminator| match end {
            Terminator::Branch(by, ..) if known.truth(*by).is_none() => Some(*by),
            _ => None,
        };
        Self {
            leads: (0..blocks.len()).map(|from| reached(&successors, from)).collect(),
            conditions: blocks.iter().map(|block| condition(&block.end)).collect(),
            successors,
            n_entries,
        }
    }

    /// Whether a block runs on some way at all.
    pub(super) fn is_reached(&self, block: usize) -> bool {
        block == 0 || self.leads[0][block]
    }

    /// Whether a jump goes from a block to another.
    pub(super) fn enters(&self, from: usize, to: usize) -> bool {
        self.is_reached(from) && self.successors[from].contains(&to)
    }

    /// Whether a way goes from a block to another, or they are the same.
    pub(super) fn leads_to(&self, from: usize, to: usize) -> bool {
        from == to || self.leads[from][to]
    }

    /// The conditions that decide whether a block runs: those of branches that can lead there, and can lead past it.
    pub(super) fn deciding(&self, block: usize) -> Vec<Value> {
        let past = self.leading_past(block);
        self.branches(|from| self.leads[from][block] && past[from])
    }

    /// The conditions that decide by which jump a block is entered, and, for the head of a scan, how often.
    pub(super) fn choosing(&self, block: usize) -> Vec<Value> {
        if self.n_entries[block] < 2 {
            return Vec::new();
        }
        self.branches(|from| {
            let both = self.successors[from].iter().all(|&to| self.leads_to(to, block));
            both || (self.leads[from][block] && self.leads[block][from])
        })
    }

    fn branches(&self, wanted: impl Fn(usize) -> bool) -> Vec<Value> {
        let branches = self.conditions.iter().enumerate().filter_map(|(from, by)| Some((from, (*by)?)));
        branches.filter(|(from, _)| wanted(*from)).map(|(_, by)| by).collect()
    }

    /// The blocks from which a way ends elsewhere than behind `block`.
    fn leading_past(&self, block: usize) -> Vec<bool> {
        let n = self.successors.len();
        let mut past: Vec<bool> = (0..n).map(|at| at != block && self.successors[at].is_empty()).collect();
        loop {
            let mut changed = false;
            for at in (0..n).rev().filter(|&at| at != block) {
                if !past[at] && self.successors[at].iter().any(|&to| past[to]) {
                    past[at] = true;
                    changed = true;
                }
            }
            if !changed {
                return past;
            }
        }
    }
}

/// The blocks that a terminator can go to.
fn taken(end: &Terminator, known: &Known<'_>) -> Vec<usize> {
    match end {
        Terminator::Branch(by, yes, no) if known.truth(*by).is_some() => {
            let jump = if known.truth(*by) == Some(true) { yes } else { no };
            vec![jump.block.0 as usize]
        }
        other => crate::passes::targets(other),
    }
}

/// The blocks behind one, itself only if a way leads back.
fn reached(successors: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut reached = vec![false; successors.len()];
    let mut ahead = vec![from];
    while let Some(at) = ahead.pop() {
        for &to in &successors[at] {
            if !core::mem::replace(&mut reached[to], true) {
                ahead.push(to);
            }
        }
    }
    reached
}
