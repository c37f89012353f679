//! The graph of a function's blocks, by their indices.

use crate::ir::Function;

/// The blocks to which each block may jump.
pub fn successors(function: &Function) -> Vec<Vec<usize>> {
    function.blocks.iter().map(|block| block.end.targets()).collect()
}

/// The blocks that may jump to each block, one entry per jump.
pub fn predecessors(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut predecessors = vec![Vec::new(); successors.len()];
    for (from, all) in successors.iter().enumerate() {
        all.iter().for_each(|to| predecessors[*to].push(from));
    }
    predecessors
}

/// The reachable blocks, each after all its successors except by back edges; the entry comes last.
pub fn post_order(successors: &[Vec<usize>]) -> Vec<usize> {
    let mut entered = vec![false; successors.len()];
    let mut done = Vec::new();
    let mut path = vec![(0, 0)];
    entered[0] = true;
    while let Some((block, nth)) = path.pop() {
        let Some(&next) = successors[block].get(nth) else {
            done.push(block);
            continue;
        };
        path.push((block, nth + 1));
        if !core::mem::replace(&mut entered[next], true) {
            path.push((next, 0));
        }
    }
    assert!(done.len() <= successors.len(), "each block is visited once");
    assert_eq!(done.last(), Some(&0), "the entry comes last");
    done
}

/// The blocks reachable from one; itself only through a cycle.
pub fn reached(successors: &[Vec<usize>], from: usize) -> Vec<bool> {
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
