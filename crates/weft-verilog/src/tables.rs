//! Replaces floats by lookup tables.
//!
//! Gates do not compute with floats. If a number, a truth value or a stored float depends through floats on few bits,
//! its value for each state of these bits is computed here, with the interpreter's own operations, and the net looks it
//! up. So `interval * rsqrt(n)` is a table with one entry per value of `n`: exact to the bit, and without a multiplier.
//! An integer times a power of two needs no table: see [`fixed`]; for an `n` with too many bits see [`roots`].

use crate::fixed;
use crate::net::{Gate, Net, Wire};
use crate::roots;
use crate::share::{self, Path};
use crate::{GATES_MAX, TABLE_BITS_MAX, TABLES_MAX};
use rustc_hash::FxHashMap;
use weft_ir::backend::Unsupported;
use weft_ir::ir::IntOp;
use weft_ir::queue::Ty;

/// A net whose floats are only stored and moved.
pub(crate) struct Lowered {
    pub(crate) net: Net,
    pub(crate) roots: Vec<Wire>,
    /// See [`share::share`].
    pub(crate) paths: FxHashMap<Wire, Path>,
}

/// The same net without computations on floats.
///
/// `lines` has the source lines of gates on floats, `paths` the conditions under which gates are used.
///
/// # Errors
/// A value that depends through floats on more than [`TABLE_BITS_MAX`] bits, with its line.
pub(crate) fn lower(
    net: &Net,
    roots: &[Wire],
    lines: &FxHashMap<Wire, u32>,
    paths: &FxHashMap<Wire, Path>,
) -> Result<Lowered, Unsupported> {
    let mut lowering = Lowering {
        net: Net::default(),
        resolved: FxHashMap::default(),
        roots: FxHashMap::default(),
        line: 0,
    };
    let mut lowered = FxHashMap::default();
    for wire in net.cone(roots, |_| false) {
        lowering.line = lines.get(&wire).copied().unwrap_or(lowering.line);
        let gate = net.gate(wire);
        let table = |wire: Wire| lowered[&wire];
        let new = lowering.net.rebuild(gate, net.kind(wire), table);
        let mut new = lowering.net.narrowed(new, net.range(wire));
        if matches!(gate, Gate::ToInt(_) | Gate::FloatCompare(..)) {
            new = lowering.resolve(new)?;
        }
        if lowering.net.len() > GATES_MAX {
            let reason = format!("it takes more than {GATES_MAX} gates");
            return Err(Unsupported { reason, line: lowering.line });
        }
        lowered.insert(wire, new);
    }
    let mut paths_lowered: FxHashMap<Wire, Path> = FxHashMap::default();
    for (wire, path) in paths {
        let Some(new) = lowered.get(wire) else { continue };
        let path = share::rename(path.clone(), &lowered);
        share::add_path(&mut paths_lowered, *new, path);
    }
    let mut roots_lowered = Vec::with_capacity(roots.len());
    for root in roots {
        lowering.line = lines.get(root).copied().unwrap_or_default();
        roots_lowered.push(lowering.resolve(lowered[root])?);
    }
    Ok(Lowered { net: lowering.net, roots: roots_lowered, paths: paths_lowered })
}

struct Lowering {
    net: Net,
    resolved: FxHashMap<Wire, Wire>,
    /// By dividend and largest operand of a root: whether the division is exact.
    roots: FxHashMap<(u64, i64), bool>,
    line: u32,
}

impl Lowering {
    /// Replaces a wire by one with the same value that is computed without floats.
    fn resolve(&mut self, wire: Wire) -> Result<Wire, Unsupported> {
        if let Some(known) = self.resolved.get(&wire) {
            return Ok(*known);
        }
        let resolved = match self.net.gate(wire) {
            // Convert before selecting: each side may depend on few bits where both together depend on many.
            Gate::ToInt(a) => match self.net.gate(a) {
                Gate::Mux(by, x, y) => {
                    let [x, y] =
                        [x, y].map(|from| self.net.rebuild(Gate::ToInt(from), self.net.kind(wire), |w| w));
                    let (x, y) = (self.resolve(x)?, self.resolve(y)?);
                    self.net.mux(by, x, y)
                }
                _ => self.counted(wire)?,
            },
            Gate::Mux(by, x, y) if self.net.kind(wire).ty == Ty::Float => {
                let (x, y) = (self.resolve(x)?, self.resolve(y)?);
                self.net.mux(by, x, y)
            }
            Gate::FloatCompare(..) | Gate::FloatBinary(..) | Gate::FloatUnary(..) | Gate::ToFloat(_) => {
                self.counted(wire)?
            }
            _ => wire,
        };
        self.resolved.insert(wire, resolved);
        Ok(resolved)
    }

    /// Replaces a wire by integer operations if that is exact, else by a table.
    fn counted(&mut self, wire: Wire) -> Result<Wire, Unsupported> {
        match fixed::without_floats(&mut self.net, wire) {
            Some(new) => Ok(new),
            None => self.tabulate(wire),
        }
    }

    /// Replaces a wire by a table over the leaves that it depends on, or by a root unit. An error if the leaves have
    /// too many bits.
    fn tabulate(&mut self, wire: Wire) -> Result<Wire, Unsupported> {
        let line = self.line;
        let refused = |reason: String| Unsupported { reason, line };
        let near = self.leaves(wire, |net, at| net.kind(at).ty != Ty::Float);
        let leaves =
            [near, self.leaves(wire, |_, _| false)].into_iter().find(|leaves| self.bits_of(leaves).is_some());
        let Some(leaves) = leaves else {
            return self.by_root(wire).ok_or_else(|| {
                refused(format!(
                    "gates do not compute with floats; only what depends on at most {TABLE_BITS_MAX} bits can be a \
                     table, or a time by rsqrt of a number"
                ))
            });
        };
        if self.net.tables() >= TABLES_MAX {
            return Err(refused(format!("it takes more than {TABLES_MAX} tables")));
        }
        let entries = self.entries(wire, &leaves);
        let table = self.net.add_table(entries);
        let at = self.address(&leaves);
        Ok(self.net.look_up(table, at, self.net.kind(wire).ty))
    }

    /// Replaces a division by a square root by the root unit; None if the wire is not one, or the unit would not be
    /// exact.
    fn by_root(&mut self, wire: Wire) -> Option<Wire> {
        let (over, of) = roots::found(&self.net, wire)?;
        let most = self.net.range(of).hi;
        let is_exact = self.roots.entry((over, most)).or_insert_with(|| roots::is_exact(over, most as u64));
        is_exact.then(|| self.net.root(over, of))
    }

    /// The inputs that a wire depends on, or earlier wires for which `ends_here` holds.
    fn leaves(&self, wire: Wire, ends_here: impl Fn(&Net, Wire) -> bool) -> Vec<Wire> {
        let is_leaf =
            |at: Wire| at != wire && ends_here(&self.net, at) || matches!(self.net.gate(at), Gate::Input(_));
        let mut leaves = self.net.cone(&[wire], is_leaf);
        leaves.retain(|at| is_leaf(*at) && !matches!(self.net.gate(*at), Gate::Const(_)));
        leaves
    }

    /// Their total number of bits, if a table can have that many.
    fn bits_of(&self, leaves: &[Wire]) -> Option<u32> {
        let has_float = leaves.iter().any(|leaf| self.net.kind(*leaf).ty == Ty::Float);
        let bits = leaves.iter().map(|leaf| self.net.range(*leaf).bits()).sum();
        (!has_float && bits <= TABLE_BITS_MAX).then_some(bits)
    }

    /// The value of the wire for each state of the leaves' bits; those of the first are the lowest.
    fn entries(&self, wire: Wire, leaves: &[Wire]) -> Vec<u64> {
        let cone = self.net.cone(&[wire], |at| leaves.contains(&at));
        let bits = self.bits_of(leaves).unwrap_or_default();
        let mut values = Vec::new();
        let entry = |state: u64| {
            let mut below = 0;
            let mut given = FxHashMap::default();
            for leaf in leaves {
                given.insert(*leaf, state >> below);
                below += self.net.range(*leaf).bits();
            }
            self.net.evaluate(&cone, |at| given.get(&at).copied(), &mut values);
            values[wire.index()]
        };
        (0..1 << bits).map(entry).collect()
    }

    /// Concatenates the bits of the leaves to the address of a table.
    fn address(&mut self, leaves: &[Wire]) -> Wire {
        if let [only] = leaves {
            return *only;
        }
        let mut address = self.net.int(0);
        let mut below = 0;
        for leaf in leaves {
            let bits = self.net.range(*leaf).bits();
            let (mask, shift) = (self.net.int((1 << bits) - 1), self.net.int(below));
            let of = |net: &mut Net, op, a, b| net.rebuild(Gate::Int(op, a, b), net.kind(a), |w| w);
            let masked = of(&mut self.net, IntOp::And, *leaf, mask);
            let moved = of(&mut self.net, IntOp::Shl, masked, shift);
            address = of(&mut self.net, IntOp::Or, address, moved);
            below += i64::from(bits);
        }
        address
    }
}
