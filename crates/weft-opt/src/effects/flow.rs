//! Analyses the control flow of a function: reachability and control dependence.

use weft_ir::graph;
use weft_ir::ir::{Function, Terminator, Value};

use super::known_values::KnownValues;

/// Maximum number of blocks for a detailed analysis. In a larger function every block is assumed to reach every other,
/// and every condition to decide about everything.
const BLOCKS_MAX: usize = 2048;

/// The control flow of a function, without jumps that no tuple takes.
pub(super) struct Flow {
    successors: Vec<Vec<usize>>,
    /// `leads[a][b]`: a path of at least one jump leads from a to b. None if the function is too large.
    leads: Option<Vec<Vec<bool>>>,
    /// By block: its predecessors, one entry per jump.
    entries: Vec<Vec<usize>>,
    /// The condition at the end of each block, if it has one.
    conditions: Vec<Option<Value>>,
}

impl Flow {
    /// Analyses the control flow of a function. Branches on known conditions count as jumps.
    pub(super) fn of(function: &Function) -> Self {
        let blocks = &function.blocks;
        let known = KnownValues::of(function);
        let successors: Vec<Vec<usize>> = blocks.iter().map(|block| taken(&block.end, &known)).collect();
        let condition = |end: &Terminator| match end {
            Terminator::Branch(by, ..) if known.truth(*by).is_none() => Some(*by),
            _ => None,
        };
        let is_large = blocks.len() > BLOCKS_MAX;
        Self {
            leads: (!is_large)
                .then(|| (0..blocks.len()).map(|from| graph::reached(&successors, from)).collect()),
            conditions: blocks.iter().map(|block| condition(&block.end)).collect(),
            entries: graph::predecessors(&successors),
            successors,
        }
    }

    /// The conditions at the ends of all blocks.
    pub(super) fn conditions(&self) -> Vec<Value> {
        self.conditions.iter().copied().flatten().collect()
    }

    /// Whether a block is reachable.
    pub(super) fn is_reached(&self, block: usize) -> bool {
        block == 0 || self.leads.as_ref().is_none_or(|leads| leads[0][block])
    }

    /// The predecessors of a block.
    pub(super) fn entries(&self, block: usize) -> impl Iterator<Item = usize> {
        self.entries[block].iter().copied().filter(|from| self.is_reached(*from))
    }

    /// Whether a path leads from a block to another, or they are the same.
    pub(super) fn leads_to(&self, from: usize, to: usize) -> bool {
        from == to || self.leads.as_ref().is_none_or(|leads| leads[from][to])
    }

    /// The conditions that decide whether a block runs: those of branches from which paths lead to it and past it. None
    /// means all.
    pub(super) fn deciding(&self, block: usize) -> Option<Vec<Value>> {
        let leads = self.leads.as_ref()?;
        let past = self.leading_past(block);
        Some(self.branches(|from| leads[from][block] && past[from]))
    }

    /// The conditions that decide by which jump a block is entered, and, for the head of a scan, how often. None means
    /// all.
    pub(super) fn choosing(&self, block: usize) -> Option<Vec<Value>> {
        if self.entries[block].len() < 2 {
            return Some(Vec::new());
        }
        let leads = self.leads.as_ref()?;
        Some(self.branches(|from| {
            let both = self.successors[from].iter().all(|&to| self.leads_to(to, block));
            both || (leads[from][block] && leads[block][from])
        }))
    }

    fn branches(&self, wanted: impl Fn(usize) -> bool) -> Vec<Value> {
        let branches = self.conditions.iter().enumerate().filter_map(|(from, by)| Some((from, (*by)?)));
        branches.filter(|(from, _)| wanted(*from)).map(|(_, by)| by).collect()
    }

    /// The blocks from which a path ends without passing `block`.
    fn leading_past(&self, block: usize) -> Vec<bool> {
        let is_end = |at: &usize| *at != block && self.successors[*at].is_empty();
        self.leading_to((0..self.successors.len()).filter(is_end), Some(block))
    }

    /// These blocks, and those with a path to one of them that avoids `without`.
    pub(super) fn leading_to(
        &self,
        blocks: impl Iterator<Item = usize>,
        without: Option<usize>,
    ) -> Vec<bool> {
        let mut leading = vec![false; self.successors.len()];
        let mut ahead: Vec<usize> = blocks.collect();
        while let Some(at) = ahead.pop() {
            if Some(at) != without && !core::mem::replace(&mut leading[at], true) {
                ahead.extend(&self.entries[at]);
            }
        }
        leading
    }
}

/// Returns the possible successors of a terminator.
fn taken(end: &Terminator, known: &KnownValues<'_>) -> Vec<usize> {
    match end {
        Terminator::Branch(by, yes, no) if known.truth(*by).is_some() => {
            let jump = if known.truth(*by) == Some(true) { yes } else { no };
            vec![jump.block.0 as usize]
        }
        other => other.targets(),
    }
}
