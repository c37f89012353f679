//! Formats keys as expressions, and finds the rows that values may refer to.

use core::cell::Cell;

use weft_ir::ir::{Function, InputId, IntOp, Op, Ty, Value};
use weft_ir::program::{ChainProgram, Direction};

use super::source::Provenance;
use super::{Key, RowSet};

/// Largest number of operations in the text of an expression.
const OPERATIONS_MAX: usize = 48;
/// Largest length of the text of an expression.
const TEXT_BYTES_MAX: usize = 400;

/// The definitions of a function's values, and the names of its inputs.
pub(super) struct Names<'f> {
    chain: &'f ChainProgram,
    direction: Option<&'f Direction>,
    definitions: Vec<Option<&'f Op>>,
    /// By value: the arguments of its block's parameter, if it is one.
    given: Vec<Vec<Value>>,
    /// Inputs that the handler changes, so their names denote more than one value.
    changed: Vec<bool>,
}

impl<'f> Names<'f> {
    /// Collects the definitions, the arguments of block parameters, and the changed inputs of a function.
    pub(super) fn of(
        chain: &'f ChainProgram,
        direction: Option<&'f Direction>,
        function: &'f Function,
    ) -> Self {
        let n = function.types.len();
        let mut names = Self {
            chain,
            direction,
            definitions: function.definitions(),
            given: vec![Vec::new(); n],
            changed: vec![false; direction.map_or(0, |d| d.inputs.len())],
        };
        for block in &function.blocks {
            for inst in &block.insts {
                if let Op::SetInput(id, _) | Op::ClearInput(id) = inst.op {
                    names.changed[usize::from(id.0)] = true;
                }
            }
            for jump in block.end.jumps() {
                let params = &function.blocks[jump.block.0 as usize].params;
                for (param, arg) in params.iter().zip(&jump.args) {
                    names.given[param.0 as usize].push(*arg);
                }
            }
        }
        names
    }

    pub(super) fn definition(&self, value: Value) -> Option<&'f Op> {
        self.definitions[value.0 as usize]
    }

    /// Whether the handler does not change an input.
    pub(super) fn is_as_found(&self, input: InputId) -> bool {
        !self.changed[usize::from(input.0)]
    }

    /// The unchanged input that a value is.
    pub(super) fn as_found(&self, value: Value) -> Option<InputId> {
        match self.definition(value)? {
            Op::Input(id) if !self.changed[usize::from(id.0)] => Some(*id),
            _ => None,
        }
    }

    /// The key as an expression.
    pub(super) fn key(&self, value: Value, provenance: &Provenance) -> Key {
        Key {
            text: self.text(value, &Cell::new(OPERATIONS_MAX)).filter(|text| text.len() <= TEXT_BYTES_MAX),
            known: self.known(value),
            sources: provenance.sources(value).clone(),
        }
    }

    /// The bytes of a constant; for a number its word in little endian.
    fn known(&self, value: Value) -> Option<Vec<u8>> {
        match self.definition(value)? {
            Op::BytesConst(bytes) => Some(bytes.clone()),
            Op::IntConst(n) => Some(n.to_le_bytes().to_vec()),
            Op::FloatConst(x) => Some(x.to_bits().to_le_bytes().to_vec()),
            Op::BoolConst(b) => Some(u64::from(*b).to_le_bytes().to_vec()),
            _ => None,
        }
    }

    /// Formats an expression as text, within the budget `left`: a value may occur in it any number of times.
    fn text(&self, value: Value, left: &Cell<usize>) -> Option<String> {
        left.set(left.get().checked_sub(1)?);
        let of = |value: &Value| self.text(*value, left);
        let call = |name: &str, args: &[Value]| {
            let args: Option<Vec<String>> = args.iter().map(of).collect();
            Some(format!("{name}({})", args?.join(", ")))
        };
        Some(match self.definition(value)? {
            Op::BoolConst(b) => b.to_string(),
            Op::IntConst(n) => n.to_string(),
            Op::FloatConst(x) => format!("{x:?}"),
            Op::BytesConst(bytes) => format!("'{}'", bytes.escape_ascii()),
            Op::Input(id) if !self.changed[usize::from(id.0)] => {
                self.direction?.inputs[usize::from(id.0)].name.clone()
            }
            Op::CallGet(id) => format!("call.{}", self.chain.call[usize::from(id.0)].name),
            Op::VarGet(id) => self.chain.vars[usize::from(id.0)].name.clone(),
            Op::Now => "now()".to_owned(),
            Op::Key(parts) => call("", parts)?,
            Op::Hash(a) => call("hash", &[*a])?,
            Op::HashMix(a, b) => call("mix", &[*a, *b])?,
            Op::Lower(a) => call("lower", &[*a])?,
            Op::Upper(a) => call("upper", &[*a])?,
            Op::Slice(a, from, count) => call("slice", &[*a, *from, *count])?,
            Op::Concat(parts) => call("concat", parts)?,
            Op::Native(id, args) => call(&self.chain.natives[usize::from(id.0)].name, args)?,
            Op::IntToText(_, a) | Op::FloatToText(a) => call("text", &[*a])?,
            Op::IntToFloat(_, a) => of(a)?,
            Op::IntBinary(op, a, b) => match sign(*op) {
                Some(sign) => format!("({} {sign} {})", of(a)?, of(b)?),
                None => call(&format!("{op:?}").to_lowercase(), &[*a, *b])?,
            },
            _ => return None,
        })
    }

    /// Returns the constant faults that a code may be, and whether these are all.
    pub(super) fn constants(&self, value: Value) -> (Vec<i64>, bool) {
        let (mut found, mut all) = (Vec::new(), true);
        let mut seen = vec![value];
        let mut at = 0;
        while let Some(&value) = seen.get(at) {
            at += 1;
            let from: Vec<Value> = match self.definition(value) {
                Some(Op::IntConst(n)) => {
                    found.push(*n);
                    continue;
                }
                Some(Op::Select(_, a, b)) => vec![*a, *b],
                None if !self.given[value.0 as usize].is_empty() => self.given[value.0 as usize].clone(),
                _ => {
                    all = false;
                    continue;
                }
            };
            for next in from {
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
        }
        (found, all)
    }

    /// Returns the keys of the rows that a row value may refer to.
    pub(super) fn rows(&self, function: &Function, row: Value, provenance: &Provenance) -> RowSet {
        debug_assert_eq!(function.ty(row), Ty::Row);
        let mut rows = RowSet::default();
        let mut seen = vec![row];
        let mut at = 0;
        while let Some(&row) = seen.get(at) {
            at += 1;
            let from: &[Value] = match self.definition(row) {
                Some(Op::Find(_, key) | Op::Insert(_, key, _)) => {
                    rows.add(&RowSet::Keys(vec![self.key(*key, provenance)]));
                    continue;
                }
                Some(Op::NoRow) => continue,
                Some(Op::Select(_, a, b)) => &[*a, *b],
                None => &self.given[row.0 as usize],
                Some(_) => return RowSet::All,
            };
            for next in from {
                if !seen.contains(next) {
                    seen.push(*next);
                }
            }
        }
        rows
    }
}

/// Returns the sign of an operator in the text of a key; None if keys do not contain it.
fn sign(op: IntOp) -> Option<&'static str> {
    Some(match op {
        IntOp::Add => "+",
        IntOp::Sub => "-",
        IntOp::Mul => "*",
        IntOp::SDiv | IntOp::UDiv => "/",
        IntOp::SRem | IntOp::URem => "%",
        _ => return None,
    })
}
