//! Builds tables, roots, multipliers and dividers once if they are never used together.
//!
//! A value is used only under the conditions under which the program computes it. If two costly gates are on different
//! sides of one condition, one gate replaces both, and the condition selects its operands.

use crate::net::{Gate, Net, Wire};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use weft_ir::ir::{BoolOp, IntOp};

/// The conditions under which a value is used: wires, and their values.
pub(crate) type Path = BTreeSet<(Wire, bool)>;

/// Largest number of gates considered: each is compared with each.
const SHARED_MAX: usize = 128;

/// The same wires in a net with fewer costly gates. `paths` has the paths of those gates.
///
/// After the wires come, for each [`Gate::Root`], the gate and a wire that is true if its result is used.
pub(crate) fn share(net: &Net, roots: &[Wire], paths: &FxHashMap<Wire, Path>) -> (Net, Vec<Wire>) {
    let dear = net.cone(roots, |_| false).into_iter().filter(|wire| is_dear(net, *wire));
    let dear = dear.filter_map(|wire| Some(CostlyGate::new(wire, paths.get(&wire)?.clone())));
    let mut dear: Vec<CostlyGate> = dear.take(SHARED_MAX).collect();
    let mut shared = Shared { net: net.clone(), roots: roots.to_vec() };
    while let Some((one, other, by)) = shared.pair(&dear) {
        let (a, b) = (dear[one].clone(), dear[other].clone());
        dear.retain(|known| known.wire != a.wire && known.wire != b.wire);
        let renamed = shared.replace(a.wire, b.wire, by);
        dear.push(a.or(b));
        dear = dear.into_iter().filter_map(|known| known.renamed(&renamed)).collect();
    }
    for CostlyGate { wire, places, .. } in &dear {
        if matches!(shared.net.gate(*wire), Gate::Root(..)) {
            let is_seen = shared.any_of(places);
            shared.roots.extend([*wire, is_seen]);
        }
    }
    (shared.net, shared.roots)
}

/// A costly gate.
#[derive(Clone)]
struct CostlyGate {
    wire: Wire,
    /// The conditions that hold at all its uses.
    path: Path,
    /// The conditions of each use.
    places: Vec<Path>,
}

impl CostlyGate {
    fn new(wire: Wire, path: Path) -> Self {
        Self { wire, places: vec![path.clone()], path }
    }

    /// One gate in place of two.
    fn or(self, other: Self) -> Self {
        let path = self.path.intersection(&other.path).copied().collect();
        Self { wire: self.wire, path, places: [self.places, other.places].concat() }
    }

    /// Replaces all wires by their copies; None if the wire itself has none.
    fn renamed(self, renamed: &FxHashMap<Wire, Wire>) -> Option<Self> {
        let wire = *renamed.get(&self.wire)?;
        let places = self.places.into_iter().map(|path| rename(path, renamed)).collect();
        Some(Self { wire, path: rename(self.path, renamed), places })
    }
}

struct Shared {
    net: Net,
    roots: Vec<Wire>,
}

impl Shared {
    /// Whether a decision takes one of these paths.
    fn any_of(&mut self, places: &[Path]) -> Wire {
        let mut any = self.net.bool(false);
        for path in places {
            let mut all = self.net.bool(true);
            for (by, side) in path {
                let holds = if *side { *by } else { self.net.not(*by) };
                all = self.net.logic(BoolOp::And, all, holds);
            }
            any = self.net.logic(BoolOp::Or, any, all);
        }
        any
    }

    /// Two gates, by index, that can share one, and the wire that selects between them: true for the first.
    fn pair(&self, dear: &[CostlyGate]) -> Option<(usize, usize, Wire)> {
        for (one, CostlyGate { wire: a, path: path_a, .. }) in dear.iter().enumerate() {
            for (other, CostlyGate { wire: b, path: path_b, .. }) in dear.iter().enumerate().skip(one + 1) {
                let apart = path_a.iter().find(|(by, side)| path_b.contains(&(*by, !side)));
                let Some((by, side)) = apart else { continue };
                if !self.net.are_alike(*a, *b) || self.are_tied(*a, *b, *by) {
                    continue;
                }
                return Some(if *side { (one, other, *by) } else { (other, one, *by) });
            }
        }
        None
    }

    /// Whether the operands, or the selection, depend on one of them.
    fn are_tied(&self, a: Wire, b: Wire, by: Wire) -> bool {
        let taken: Vec<Wire> =
            [a, b].iter().flat_map(|wire| self.net.gate(*wire).operands()).chain([by]).collect();
        let cone = self.net.cone(&taken, |_| false);
        cone.contains(&a) || cone.contains(&b)
    }

    /// Builds one gate in place of two; returns the new wires of all.
    fn replace(&mut self, a: Wire, b: Wire, by: Wire) -> FxHashMap<Wire, Wire> {
        let old = core::mem::take(&mut self.net);
        self.net = old.emptied();
        let mut new = FxHashMap::default();
        // The operands of the gate come first, so that they exist before its users.
        let taken: Vec<Wire> =
            [a, b].iter().flat_map(|wire| old.gate(*wire).operands()).chain([by]).collect();
        let first = old.cone(&taken, |_| false);
        self.copy(&old, &first, &mut new);
        let [one, other] =
            [a, b].map(|wire| self.net.rebuild(old.gate(wire), old.kind(wire), |wire| new[&wire]));
        let one_for_both = self.net.merged(0, new[&by], one, other).unwrap_or(one);
        new.insert(a, one_for_both);
        new.insert(b, one_for_both);
        let all = old.cone(&self.roots, |_| false);
        self.copy(&old, &all, &mut new);
        self.roots.iter_mut().for_each(|root| *root = new[root]);
        new
    }

    /// Copies the wires of an old net that are not in `new` yet; `new` must have their operands.
    fn copy(&mut self, old: &Net, wires: &[Wire], new: &mut FxHashMap<Wire, Wire>) {
        for wire in wires {
            if !new.contains_key(wire) {
                let rebuild = self.net.rebuild(old.gate(*wire), old.kind(*wire), |wire| new[&wire]);
                new.insert(*wire, self.net.narrowed(rebuild, old.range(*wire)));
            }
        }
    }
}

/// Adds a path on which a gate is used: only what all its paths have in common is certain.
pub(crate) fn add_path(paths: &mut FxHashMap<Wire, Path>, wire: Wire, path: Path) {
    let known = paths.entry(wire).or_insert_with(|| path.clone());
    known.retain(|side| path.contains(side));
}

/// The same path in a net with other wires; wires without a counterpart are no longer needed.
pub(crate) fn rename(path: Path, renamed: &FxHashMap<Wire, Wire>) -> Path {
    path.into_iter().filter_map(|(by, side)| Some((*renamed.get(&by)?, side))).collect()
}

/// Whether a gate is costly enough to share.
pub(crate) fn is_dear(net: &Net, wire: Wire) -> bool {
    let is_known = |wire: Wire| net.range(wire).only_value().is_some();
    match net.gate(wire) {
        Gate::Table(..) | Gate::Root(..) => true,
        Gate::Int(IntOp::Mul, a, b) => !is_known(a) && !is_known(b),
        Gate::Int(IntOp::SDiv | IntOp::UDiv | IntOp::SRem | IntOp::URem, ..) => true,
        _ => false,
    }
}
