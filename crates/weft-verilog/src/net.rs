//! Nets: combinational logic as a list of gates.
//!
//! Each gate comes after its operands. A gate that exists already is reused, and constants are folded. Each wire has
//! the range of its values, which determines its number of bits.

use crate::range::Range;
use crate::{TABLE_BITS_MAX, roots};
use rustc_hash::FxHashMap;
use weft_ir::interp::evaluate;
use weft_ir::ir::{BoolOp, FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Signed};
use weft_ir::queue::{Op, Ty, Value};

/// The output of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Wire(u32);

impl Wire {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A gate. Truth values are integers of one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Gate {
    Const(i64),
    Float(u64),
    Input(u32),
    Int(IntOp, Wire, Wire),
    Compare(IntCmp, Wire, Wire),
    Bool(BoolOp, Wire, Wire),
    Not(Wire),
    /// The second operand if the first is true, else the third.
    Mux(Wire, Wire, Wire),
    Hash(Wire),
    HashMix(Wire, Wire),
    Log2(Wire),
    /// The entry of a table.
    Table(u32, Wire),
    /// A constant divided by the root of a wire: [`roots::step`].
    Root(u64, Wire),
    // Not for gates: `crate::tables` replaces these by tables.
    FloatBinary(FloatOp, Wire, Wire),
    FloatUnary(FloatUnaryOp, Wire),
    FloatCompare(FloatCmp, Wire, Wire),
    ToFloat(Wire),
    ToInt(Wire),
}

impl Gate {
    /// The operands, and the operation of the interpreter on the first, second and third of them.
    fn parts(self) -> ([Option<Wire>; 3], Option<Op>) {
        let [a, b, c] = [Value(0), Value(1), Value(2)];
        let one = |x, op| ([Some(x), None, None], Some(op));
        let two = |x, y, op| ([Some(x), Some(y), None], Some(op));
        match self {
            Self::Input(_) => ([None; 3], None),
            Self::Table(_, x) | Self::Root(_, x) => ([Some(x), None, None], None),
            Self::Const(n) => ([None; 3], Some(Op::IntConst(n))),
            Self::Float(bits) => ([None; 3], Some(Op::FloatConst(f64::from_bits(bits)))),
            Self::Int(op, x, y) => two(x, y, Op::IntBinary(op, a, b)),
            Self::Compare(op, x, y) => two(x, y, Op::IntCompare(op, a, b)),
            Self::Bool(op, x, y) => two(x, y, Op::BoolBinary(op, a, b)),
            Self::Not(x) => one(x, Op::Not(a)),
            Self::Mux(by, x, y) => ([Some(by), Some(x), Some(y)], Some(Op::Select(a, b, c))),
            Self::Hash(x) => one(x, Op::Hash(a)),
            Self::HashMix(x, y) => two(x, y, Op::HashMix(a, b)),
            Self::Log2(x) => one(x, Op::Log2(a)),
            Self::FloatBinary(op, x, y) => two(x, y, Op::FloatBinary(op, a, b)),
            Self::FloatUnary(op, x) => one(x, Op::FloatUnary(op, a)),
            Self::FloatCompare(op, x, y) => two(x, y, Op::FloatCompare(op, a, b)),
            Self::ToFloat(x) => one(x, Op::IntToFloat(Signed::Yes, a)),
            Self::ToInt(x) => one(x, Op::FloatToInt(Signed::Yes, a)),
        }
    }

    /// Iterates over the operands of the gate.
    pub(crate) fn operands(self) -> impl Iterator<Item = Wire> {
        self.parts().0.into_iter().flatten()
    }
}

/// The type and range of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireType {
    pub(crate) ty: Ty,
    pub(crate) range: Range,
}

impl WireType {
    const BOOL: Self = Self { ty: Ty::Bool, range: Range::BIT };
    const FLOAT: Self = Self { ty: Ty::Float, range: Range::FULL };

    fn int(range: Range) -> Self {
        Self { ty: Ty::Int, range }
    }
}

/// Gates, and what is known of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net {
    gates: Vec<Gate>,
    kinds: Vec<WireType>,
    built: FxHashMap<Gate, Wire>,
    /// By [`Gate::Table`]: an entry for each value of the operand's bits.
    tables: Vec<Vec<u64>>,
    /// If one of two similar operations is selected, only one is built.
    shares: bool,
}

/// Depth of sharing: the operands of the selected operations, and theirs.
const SHARE_DEPTH: u32 = 2;

impl Net {
    /// A net without gates, with the tables of this one.
    pub(crate) fn emptied(&self) -> Self {
        Self { tables: self.tables.clone(), shares: self.shares, ..Self::default() }
    }

    /// The same net, with one operation on selected operands in place of two similar ones.
    pub(crate) fn sharing(&self, roots: &[Wire]) -> (Self, Vec<Wire>) {
        let mut new = Self { shares: true, ..self.emptied() };
        let mut wires = vec![Wire(0); self.len()];
        for wire in self.cone(roots, |_| false) {
            let rebuild = new.rebuild(self.gate(wire), self.kind(wire), |wire| wires[wire.index()]);
            wires[wire.index()] = new.narrowed(rebuild, self.range(wire));
        }
        (new, roots.iter().map(|root| wires[root.index()]).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.gates.len()
    }

    pub(crate) fn gate(&self, wire: Wire) -> Gate {
        self.gates[wire.index()]
    }

    pub(crate) fn kind(&self, wire: Wire) -> WireType {
        self.kinds[wire.index()]
    }

    pub(crate) fn range(&self, wire: Wire) -> Range {
        self.kind(wire).range
    }

    pub(crate) fn table(&self, table: u32) -> &[u64] {
        &self.tables[table as usize]
    }

    pub(crate) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// The wires that these depend on, in order, including themselves; stops at wires for which `ends_at` holds.
    pub(crate) fn cone(&self, roots: &[Wire], ends_at: impl Fn(Wire) -> bool) -> Vec<Wire> {
        let mut is_in = vec![false; self.len()];
        roots.iter().for_each(|root| is_in[root.index()] = true);
        for at in (0..self.len()).rev() {
            if is_in[at] && !ends_at(Wire(at as u32)) {
                self.gates[at].operands().for_each(|operand| is_in[operand.index()] = true);
            }
        }
        (0..self.len() as u32).map(Wire).filter(|wire| is_in[wire.index()]).collect()
    }

    /// The values of the wires of a cone, by [`Wire::index`]; given values are not computed.
    ///
    /// Values are cut to the bits of their wires, as in the module.
    pub(crate) fn evaluate(&self, cone: &[Wire], given: impl Fn(Wire) -> Option<u64>, values: &mut Vec<u64>) {
        values.resize(self.len(), 0);
        for wire in cone {
            let value = given(*wire).unwrap_or_else(|| self.computed(self.gate(*wire), values));
            values[wire.index()] = self.range(*wire).cut(value);
        }
    }

    /// Computes the value of a gate from the values of all wires.
    fn computed(&self, gate: Gate, values: &[u64]) -> u64 {
        let mut taken = [0; 3];
        gate.operands().zip(&mut taken).for_each(|(operand, value)| *value = values[operand.index()]);
        match gate {
            Gate::Table(table, at) => self.entry(table, at, taken[0]),
            Gate::Root(over, _) => roots::step(over, taken[0]),
            gate => gate.parts().1.map_or(0, |op| evaluate(&op, |value| taken[value.0 as usize])),
        }
    }

    /// The entry of a table for a value of this wire.
    pub(crate) fn entry(&self, table: u32, at: Wire, value: u64) -> u64 {
        let mask = u64::MAX >> (64 - self.range(at).bits());
        self.tables[table as usize].get((value & mask) as usize).copied().unwrap_or(0)
    }

    pub(crate) fn int(&mut self, n: i64) -> Wire {
        self.build(Gate::Const(n), WireType::int(Range::only(n)))
    }

    pub(crate) fn bool(&mut self, b: bool) -> Wire {
        self.build(Gate::Const(i64::from(b)), WireType::int(Range::only(i64::from(b))))
    }

    pub(crate) fn input(&mut self, nth: u32, ty: Ty, range: Range) -> Wire {
        self.build(Gate::Input(nth), WireType { ty, range })
    }

    /// Adds a gate of the same kind on other operands, simplified.
    pub(crate) fn rebuild(&mut self, gate: Gate, kind: WireType, on: impl Fn(Wire) -> Wire) -> Wire {
        match gate {
            Gate::Table(table, a) => self.build(Gate::Table(table, on(a)), kind),
            Gate::Root(over, a) => self.root(over, on(a)),
            Gate::Const(_) | Gate::Float(_) | Gate::Input(_) => self.build(gate, kind),
            _ => {
                let operands: Vec<Wire> = gate.operands().map(on).collect();
                let op = gate.parts().1.expect("all other gates are operations");
                self.op(&op, |value| operands[value.0 as usize])
            }
        }
    }

    /// Adds the gates of an operation on words; returns the result.
    pub(crate) fn op(&mut self, op: &Op, get: impl Fn(Value) -> Wire) -> Wire {
        match *op {
            Op::IntConst(n) => self.int(n),
            Op::BoolConst(b) => self.bool(b),
            Op::FloatConst(x) => self.build(Gate::Float(x.to_bits()), WireType::FLOAT),
            Op::IntBinary(op, a, b) => self.binary(op, get(a), get(b)),
            Op::IntCompare(op, a, b) => self.compare(op, get(a), get(b)),
            Op::BoolBinary(op, a, b) => self.logic(op, get(a), get(b)),
            Op::Not(a) => self.not(get(a)),
            Op::Select(by, a, b) => self.mux(get(by), get(a), get(b)),
            Op::Hash(a) => self.plain(Gate::Hash(get(a)), WireType::int(Range::FULL)),
            Op::HashMix(a, b) => self.plain(Gate::HashMix(get(a), get(b)), WireType::int(Range::FULL)),
            Op::Log2(a) => self.log2(get(a)),
            Op::FloatBinary(op, a, b) => self.plain(Gate::FloatBinary(op, get(a), get(b)), WireType::FLOAT),
            Op::FloatUnary(op, a) => self.plain(Gate::FloatUnary(op, get(a)), WireType::FLOAT),
            Op::FloatCompare(op, a, b) => self.plain(Gate::FloatCompare(op, get(a), get(b)), WireType::BOOL),
            Op::IntToFloat(_, a) => self.plain(Gate::ToFloat(get(a)), WireType::FLOAT),
            Op::FloatToInt(_, a) => self.plain(Gate::ToInt(get(a)), WireType::int(Range::FULL)),
            _ => unreachable!("the verifier refuses {op:?} in queues"),
        }
    }

    /// Adds an integer operation, simplified where an operand is constant.
    pub(crate) fn binary(&mut self, op: IntOp, a: Wire, b: Wire) -> Wire {
        let (ra, rb) = (self.range(a), self.range(b));
        match (op, ra.only_value(), rb.only_value()) {
            (IntOp::Add | IntOp::Or | IntOp::Xor, Some(0), _) => return b,
            (IntOp::Add | IntOp::Sub | IntOp::Or | IntOp::Xor | IntOp::Shl | IntOp::Shr, _, Some(0)) => {
                return a;
            }
            (IntOp::Mul, Some(1), _) | (IntOp::And, Some(-1), _) => return b,
            (IntOp::Mul | IntOp::SDiv | IntOp::UDiv, _, Some(1)) | (IntOp::And, _, Some(-1)) => return a,
            (IntOp::SDiv | IntOp::UDiv, _, Some(n)) if n > 1 && n & (n - 1) == 0 && ra.lo >= 0 => {
                let by = self.int(i64::from(n.trailing_zeros()));
                return self.binary(IntOp::Shr, a, by);
            }
            (IntOp::SRem | IntOp::URem, _, Some(n)) if n > 0 && n & (n - 1) == 0 && ra.lo >= 0 => {
                let mask = self.int(n - 1);
                return self.binary(IntOp::And, a, mask);
            }
            _ => {}
        }
        let lesser = match op {
            IntOp::SMin | IntOp::SMax => Some(IntCmp::SLe),
            IntOp::UMin | IntOp::UMax => Some(IntCmp::ULe),
            _ => None,
        };
        let (is_first, is_second) = match op {
            IntOp::SMin => (ra.hi <= rb.lo, rb.hi <= ra.lo),
            IntOp::SMax => (ra.lo >= rb.hi, rb.lo >= ra.hi),
            _ => (false, false),
        };
        if is_first || is_second {
            return if is_first { a } else { b };
        }
        if let Some(cmp) = lesser {
            let is_lesser = self.compare(cmp, a, b);
            let chosen = match op {
                IntOp::SMin | IntOp::UMin => self.mux(is_lesser, a, b),
                _ => self.mux(is_lesser, b, a),
            };
            return self.narrowed(chosen, Range::of(op, ra, rb));
        }
        self.plain(Gate::Int(op, a, b), WireType::int(Range::of(op, ra, rb)))
    }

    /// A wire whose range is known to be smaller than its gate implies. The narrowing applies everywhere, because it
    /// does not change the value.
    pub(crate) fn narrowed(&mut self, wire: Wire, range: Range) -> Wire {
        let is_computed = !matches!(self.gate(wire), Gate::Const(_) | Gate::Input(_) | Gate::Float(_));
        if is_computed && let Some(range) = self.range(wire).intersection(range) {
            self.kinds[wire.index()].range = range;
        }
        wire
    }

    /// Adds a comparison, or a constant if the ranges decide it.
    pub(crate) fn compare(&mut self, op: IntCmp, a: Wire, b: Wire) -> Wire {
        match Range::decides(op, self.range(a), self.range(b), a == b) {
            Some(known) => self.bool(known),
            None => self.plain(Gate::Compare(op, a, b), WireType::BOOL),
        }
    }

    /// Adds a binary logarithm, rounded down.
    fn log2(&mut self, a: Wire) -> Wire {
        let Range { lo, hi } = self.range(a);
        let log2 = |n: i64| i64::from(n.max(1).ilog2());
        self.plain(Gate::Log2(a), WireType::int(Range { lo: log2(lo), hi: log2(hi) }))
    }

    /// Adds a boolean operation, simplified where an operand is constant or both are equal.
    pub(crate) fn logic(&mut self, op: BoolOp, a: Wire, b: Wire) -> Wire {
        let (known_a, known_b) = (self.range(a).only_value(), self.range(b).only_value());
        match (op, known_a, known_b) {
            (BoolOp::And, Some(0), _)
            | (BoolOp::Or | BoolOp::Xor, _, Some(0))
            | (BoolOp::And, _, Some(1)) => a,
            (BoolOp::And, _, Some(0))
            | (BoolOp::Or | BoolOp::Xor, Some(0), _)
            | (BoolOp::And, Some(1), _) => b,
            (BoolOp::Or, Some(1), _) => a,
            (BoolOp::Or, _, Some(1)) => b,
            (BoolOp::Xor, _, Some(1)) => self.not(a),
            (BoolOp::Xor, Some(1), _) => self.not(b),
            (BoolOp::And | BoolOp::Or, ..) if a == b => a,
            (BoolOp::Xor, ..) if a == b => self.bool(false),
            _ => self.plain(Gate::Bool(op, a, b), WireType::BOOL),
        }
    }

    /// Adds a negation; a double one cancels out.
    pub(crate) fn not(&mut self, a: Wire) -> Wire {
        match self.gate(a) {
            Gate::Not(other) => other,
            _ => self.plain(Gate::Not(a), WireType::BOOL),
        }
    }

    /// A condition and its expected value, without a NOT in front: all selections by it drop the NOT as well, so the
    /// NOT may disappear from the net.
    pub(crate) fn condition(&self, by: Wire, side: bool) -> (Wire, bool) {
        match self.gate(by) {
            Gate::Not(other) => (other, !side),
            _ => (by, side),
        }
    }

    /// Selects one of two. If both are the same operation, selects the operands and builds the operation once.
    pub(crate) fn mux(&mut self, by: Wire, a: Wire, b: Wire) -> Wire {
        self.mux_to(SHARE_DEPTH, by, a, b)
    }

    /// Adds a choice of `a` if `by` is 1 and `b` if it is 0, simplified if possible. `depth` limits the recursion.
    fn mux_to(&mut self, depth: u32, by: Wire, a: Wire, b: Wire) -> Wire {
        match (self.gate(by), self.gate(a), self.gate(b)) {
            (Gate::Const(n), ..) => return if n != 0 { a } else { b },
            _ if a == b => return a,
            (Gate::Not(other), ..) => return self.mux_to(depth, other, b, a),
            (_, Gate::Mux(same, inner, _), _) if same == by => return self.mux_to(depth, by, inner, b),
            (_, _, Gate::Mux(same, _, inner)) if same == by => return self.mux_to(depth, by, a, inner),
            _ => {}
        }
        if [a, b].iter().all(|wire| self.range(*wire).is_within(Range::BIT))
            && let Some(wire) = self.truth_mux(by, a, b)
        {
            return wire;
        }
        if let Some(wire) = self.gated(depth, by, a, b) {
            return wire;
        }
        if self.shares
            && depth > 0
            && let Some(wire) = self.shared(depth - 1, by, a, b)
        {
            return wire;
        }
        let WireType { ty, .. } = self.kind(a);
        let range = self.range(a).either(self.range(b));
        self.plain(Gate::Mux(by, a, b), WireType { ty, range })
    }

    /// A number plus or minus another on a condition: adds the other, masked to 0 otherwise.
    fn gated(&mut self, depth: u32, by: Wire, a: Wire, b: Wire) -> Option<Wire> {
        let changed = |net: &Self, wire: Wire, from: Wire| match net.gate(wire) {
            Gate::Int(op @ (IntOp::Add | IntOp::Sub), x, y) if x == from => Some((op, y)),
            Gate::Int(IntOp::Add, x, y) if y == from => Some((IntOp::Add, x)),
            _ => None,
        };
        let zero = self.int(0);
        let (op, from, by_how_much) = match (changed(self, a, b), changed(self, b, a)) {
            (Some((op, more)), _) => (op, b, self.mux_to(depth, by, more, zero)),
            (_, Some((op, more))) => (op, a, self.mux_to(depth, by, zero, more)),
            (None, None) => return None,
        };
        let range = self.range(a).either(self.range(b));
        let result = self.binary(op, from, by_how_much);
        Some(self.narrowed(result, range))
    }

    /// Selects one of two truth values of which one is constant.
    fn truth_mux(&mut self, by: Wire, a: Wire, b: Wire) -> Option<Wire> {
        let (known_a, known_b) = (self.range(a).only_value(), self.range(b).only_value());
        Some(match (known_a, known_b) {
            (Some(0), Some(1)) => self.not(by),
            (Some(1), Some(0)) => by,
            (Some(1), _) => self.logic(BoolOp::Or, by, b),
            (_, Some(0)) => self.logic(BoolOp::And, by, a),
            (Some(0), _) => {
                let not = self.not(by);
                self.logic(BoolOp::And, not, b)
            }
            (_, Some(1)) => {
                let not = self.not(by);
                self.logic(BoolOp::Or, not, a)
            }
            _ => return None,
        })
    }

    /// Adds one operation in place of two similar ones; None if they are not similar.
    fn shared(&mut self, depth: u32, by: Wire, a: Wire, b: Wire) -> Option<Wire> {
        if self.are_alike(a, b) {
            return self.merged(depth, by, a, b);
        }
        let not_by = self.not(by);
        self.rotated(depth, by, not_by, a, b).or_else(|| self.rotated(depth, not_by, by, b, a))
    }

    /// As above, if one of them is behind another selection: `by ? A : (c ? x : B)` is `(!by && c) ? x : (by ? A : B)`.
    fn rotated(&mut self, depth: u32, by: Wire, not_by: Wire, a: Wire, b: Wire) -> Option<Wire> {
        let Gate::Mux(c, x, y) = self.gate(b) else { return None };
        let (aside, other, alike) = match () {
            () if self.are_alike(a, y) => (c, x, y),
            () if self.are_alike(a, x) => (self.not(c), y, x),
            () => return None,
        };
        let aside = self.logic(BoolOp::And, not_by, aside);
        let chosen = self.merged(depth, by, a, alike)?;
        Some(self.mux_to(0, aside, other, chosen))
    }

    /// Whether one gate can be either, on selected operands.
    pub(crate) fn are_alike(&self, a: Wire, b: Wire) -> bool {
        match (self.gate(a), self.gate(b)) {
            (Gate::Table(one, _), Gate::Table(other, _)) => self.longer_table(one, other).is_some(),
            // If one decision uses both, they are two gates: `crate::share` decides that.
            (Gate::Root(one, _), Gate::Root(other, _)) => !self.shares && one == other,
            (Gate::Int(one, ..), Gate::Int(other, ..)) => {
                one == other
                    && matches!(one, IntOp::Add | IntOp::Sub | IntOp::Mul | IntOp::SDiv | IntOp::UDiv)
            }
            _ => false,
        }
    }

    /// Adds the gate that replaces two similar ones; None if they are not similar.
    pub(crate) fn merged(&mut self, depth: u32, by: Wire, a: Wire, b: Wire) -> Option<Wire> {
        match (self.gate(a), self.gate(b)) {
            (Gate::Table(one, x), Gate::Table(other, y)) => {
                let table = self.longer_table(one, other)?;
                // The low bits select the entry, and they differ between negative numbers and others.
                if self.range(x).lo < 0 || self.range(y).lo < 0 {
                    return None;
                }
                let at = self.mux_to(depth, by, x, y);
                Some(self.look_up(table, at, self.kind(a).ty))
            }
            (Gate::Root(over, x), Gate::Root(_, y)) => {
                let of = self.mux_to(depth, by, x, y);
                Some(self.root(over, of))
            }
            (Gate::Int(op, x, y), Gate::Int(_, z, mut w)) => {
                let mut z = z;
                if matches!(op, IntOp::Add | IntOp::Mul) && (x == w || y == z) {
                    core::mem::swap(&mut z, &mut w);
                }
                let (left, right) = (self.mux_to(depth, by, x, z), self.mux_to(depth, by, y, w));
                let result = self.binary(op, left, right);
                // Selecting before an operation gives a smaller range than all operands together.
                let range = self.range(a).either(self.range(b));
                Some(self.narrowed(result, range))
            }
            _ => None,
        }
    }

    /// The longer of two tables, if it begins with the other.
    fn longer_table(&self, one: u32, other: u32) -> Option<u32> {
        let (a, b) = (self.table(one), self.table(other));
        match a.len() >= b.len() {
            true => a.starts_with(b).then_some(one),
            false => b.starts_with(a).then_some(other),
        }
    }

    /// Adds a table with these entries, or finds an equal one; returns its index.
    pub(crate) fn add_table(&mut self, entries: Vec<u64>) -> u32 {
        let found = self.tables.iter().position(|known| *known == entries);
        found.unwrap_or_else(|| {
            self.tables.push(entries);
            self.tables.len() - 1
        }) as u32
    }

    /// Adds a look-up in a table.
    pub(crate) fn look_up(&mut self, table: u32, at: Wire, ty: Ty) -> Wire {
        let Range { lo, hi } = self.range(at);
        assert!(
            self.range(at).bits() <= TABLE_BITS_MAX,
            "a table has an entry for each state of its address"
        );
        if ty == Ty::Float && lo == hi {
            return self.build(Gate::Float(self.entry(table, at, lo as u64)), WireType::FLOAT);
        }
        let entries = (lo..=hi).map(|value| self.entry(table, at, value as u64) as i64);
        let range = entries.map(Range::only).reduce(Range::either).unwrap_or(Range::FULL);
        let range = if ty == Ty::Float { Range::FULL } else { range };
        self.plain(Gate::Table(table, at), WireType { ty, range })
    }

    /// Adds a division of a constant by the root of a wire that is not negative.
    pub(crate) fn root(&mut self, over: u64, of: Wire) -> Wire {
        let Range { lo, hi } = self.range(of);
        assert!(lo >= 0, "a root has no negative operand");
        let [hi, lo] = [lo, hi].map(|of| roots::step(over, of as u64) as i64);
        match lo == hi {
            true => self.int(lo),
            false => self.build(Gate::Root(over, of), WireType::int(Range { lo, hi })),
        }
    }

    /// Adds a gate as it is, or its value if it is constant.
    fn plain(&mut self, gate: Gate, kind: WireType) -> Wire {
        let known = |wire: Wire| match self.gate(wire) {
            Gate::Const(n) => Some(n as u64),
            Gate::Float(bits) => Some(bits),
            _ => None,
        };
        let operands: Option<Vec<u64>> = gate.operands().map(known).collect();
        if let (Some(op), Some(operands)) = (gate.parts().1, operands) {
            let word = evaluate(&op, |value| operands[value.0 as usize]);
            return match kind.ty {
                Ty::Float => self.build(Gate::Float(word), WireType::FLOAT),
                _ => self.int(word as i64),
            };
        }
        match kind.range.only_value() {
            Some(n) if kind.ty != Ty::Float => self.int(n),
            _ => self.build(gate, kind),
        }
    }

    /// Adds a gate, or finds an equal one.
    fn build(&mut self, gate: Gate, kind: WireType) -> Wire {
        if let Some(wire) = self.built.get(&gate) {
            return *wire;
        }
        let wire = Wire(self.gates.len() as u32);
        assert!(gate.operands().all(|operand| operand < wire), "a gate comes after its operands");
        self.gates.push(gate);
        self.kinds.push(kind);
        self.built.insert(gate, wire);
        wire
    }
}
