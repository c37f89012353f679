//! Specializes a function for tuples that are known to have certain inputs.
//!
//! It keeps the law for these tuples: an input that is present at the start stays present until it is cleared.

use crate::ir::{Function, Op};
use weft_core::inputs::InputSet;

use super::clean;

/// Specializes a function for tuples with all inputs of `present`, if no code before it clears them.
pub fn present(function: &Function, present: InputSet) -> Function {
    let mut function = function.clone();
    let present = present & !cleared(&function);
    assert!(!present.intersects(cleared(&function)), "a cleared input may be absent later");
    for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let Op::InputPresent(input) = inst.op
            && present.contains(input)
        {
            inst.op = Op::BoolConst(true);
        }
    }
    clean(function)
}

/// The inputs that the function may clear.
pub fn cleared(function: &Function) -> InputSet {
    let insts = function.insts();
    let cleared = insts.filter_map(|inst| match inst.op {
        Op::ClearInput(input) => Some(input),
        _ => None,
    });
    cleared.collect()
}
