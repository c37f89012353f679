//! Divides the values of a field into intervals with one best rule each.

use std::collections::{BTreeMap, BinaryHeap};

use super::super::NOTHING;
use super::super::rule_store::{Rank, id_of};
use super::number::Number;
use super::{FEW, Span, Values};

/// The starts of the intervals from `first` to `end`, each with its best rule; the first one begins at `first`.
pub(super) fn intervals<K: Number>(spans: &mut [Span<K>], first: K, end: u128) -> Vec<(K, u32)> {
    spans.sort_unstable_by_key(|&(lo, _, _)| lo);
    let mut intervals: Vec<(K, u32)> = Vec::with_capacity(2 * spans.len() + 1);
    intervals.push((first, NOTHING));
    let mut change = |at: K, id: u32| {
        let (last, best) = intervals.last_mut().expect("the list starts with one interval");
        if *best == id {
            return;
        }
        if *last == at {
            *best = id;
        } else {
            intervals.push((at, id));
        }
    };
    let mut open: BinaryHeap<(Rank, K)> = BinaryHeap::new();
    let mut spans = spans.iter().peekable();
    let mut at = first;
    loop {
        while let Some(&&(lo, hi, rank)) = spans.peek()
            && lo <= at
        {
            open.push((rank, hi));
            spans.next();
        }
        while open.peek().is_some_and(|&(_, hi)| hi < at) {
            open.pop();
        }
        let best = open.peek().copied();
        change(at, best.map_or(NOTHING, |(rank, _)| id_of(rank)));
        let ends = best.and_then(|(_, hi)| hi.next());
        let begins = spans.peek().map(|(lo, _, _)| *lo);
        at = match (ends, begins) {
            (Some(ends), Some(begins)) => ends.min(begins),
            (Some(next), None) | (None, Some(next)) => next,
            (None, None) => return intervals,
        };
        if at.wide() > end {
            return intervals;
        }
    }
}

/// As [`intervals`], for up to [`FEW`] rules, which are compared in each interval: faster than sorting.
pub(super) fn intervals_of_few<K: Number>(spans: &[Span<K>], first: K, last: K) -> Vec<(K, u32)> {
    let mut begins = [first; 1 + 2 * FEW];
    let mut n = 1;
    for &(lo, hi, _) in spans {
        for at in [Some(lo), hi.next()].into_iter().flatten().filter(|at| first < *at && *at <= last) {
            begins[n] = at;
            n += 1;
        }
    }
    let begins = &mut begins[..n];
    begins.sort_unstable();
    let mut intervals: Vec<(K, u32)> = Vec::with_capacity(n);
    for &at in &*begins {
        let holds = |&&(lo, hi, _): &&Span<K>| lo <= at && at <= hi;
        let best = spans.iter().filter(holds).map(|&(.., rank)| rank).max().unwrap_or_default();
        if intervals.last().is_none_or(|&(_, id)| id != id_of(best)) {
            intervals.push((at, id_of(best)));
        }
    }
    intervals
}

/// Copies the intervals, with [`NOTHING`] where the best rule is a short prefix that covers whole entries (`held`).
pub(super) fn without_short_prefixes<K: Number>(
    intervals: &[(K, u32)],
    held: &BTreeMap<u32, Values<K>>,
) -> Vec<(K, u32)> {
    let mut left: Vec<(K, u32)> = Vec::with_capacity(intervals.len());
    let mut add = |begins: K, ends: Option<K>, id: u32| {
        let is_empty = ends.is_some_and(|ends| ends <= begins);
        if !is_empty && left.last().is_none_or(|(_, last)| *last != id) {
            left.push((begins, id));
        }
    };
    for (at, &(begins, id)) in intervals.iter().enumerate() {
        let ends = intervals.get(at + 1).map(|(begins, _)| *begins);
        let Some(&(first, end)) = held.get(&id) else {
            add(begins, ends, id);
            continue;
        };
        let sooner = |one: Option<K>, other: Option<K>| one.into_iter().chain(other).min();
        add(begins, sooner(Some(first), ends), id);
        add(begins.max(first), sooner(end, ends), NOTHING);
        if let Some(end) = end {
            add(begins.max(end), ends, id);
        }
    }
    left
}
