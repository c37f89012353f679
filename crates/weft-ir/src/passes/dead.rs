//! Removes dead code: operations with unused results, and unused block parameters.
//!
//! It keeps the law because the removed operations have no effect besides their result. Operations that allocate
//! scratch have one (a later operation may find the scratch full), so they stay.

use std::collections::BTreeSet;

use crate::ir::{Function, Inst, Op, Ty, Value};

/// Removes the unused pure operations and the unused block parameters of a function.
pub fn remove(function: &mut Function) {
    let used = used_values(function);
    for at in 0..function.blocks.len() {
        let types = &function.types;
        let block = &mut function.blocks[at];
        block
            .insts
            .retain(|inst| inst.result.is_none_or(|result| used.contains(&result)) || !is_pure(types, inst));
    }
    remove_unused_params(function, &used);
}

/// The values that effects, terminators or used operations use.
fn used_values(function: &Function) -> BTreeSet<Value> {
    let mut used = BTreeSet::new();
    loop {
        let before = used.len();
        for block in function.blocks.iter().rev() {
            used.extend(block.end.own_operands());
            for jump in block.end.jumps() {
                let params = &function.blocks[jump.block.0 as usize].params;
                let read = params.iter().zip(&jump.args).filter(|(param, _)| used.contains(param));
                let read: Vec<Value> = read.map(|(_, arg)| *arg).collect();
                used.extend(read);
            }
            for inst in block.insts.iter().rev() {
                if inst.result.is_some_and(|v| used.contains(&v)) || !is_pure(&function.types, inst) {
                    used.extend(inst.op.operands());
                }
            }
        }
        if used.len() == before {
            return used;
        }
    }
}

/// Removes the block parameters that are not in `used`, and their arguments in jumps.
fn remove_unused_params(function: &mut Function, used: &BTreeSet<Value>) {
    let keep: Vec<Vec<bool>> = function
        .blocks
        .iter()
        .map(|block| block.params.iter().map(|param| used.contains(param)).collect())
        .collect();
    for (block, keep_own) in function.blocks.iter_mut().zip(&keep) {
        let mut keep_param = keep_own.iter();
        block.params.retain(|_| keep_param.next().is_some_and(|keep| *keep));
        block.end.each_jump_mut(|jump| {
            let keep = &keep[jump.block.0 as usize];
            assert_eq!(jump.args.len(), keep.len(), "each parameter gets an argument");
            let mut keep_arg = keep.iter();
            jump.args.retain(|_| keep_arg.next().is_some_and(|keep| *keep));
        });
    }
}

/// Whether an instruction has no effect besides its result.
fn is_pure(types: &[Ty], inst: &Inst) -> bool {
    let ty = |value: Value| types[value.0 as usize];
    let has_effect = matches!(inst.op, Op::Insert(..) | Op::SetColumn(..));
    inst.result.is_some() && !has_effect && !inst.op.takes_scratch(inst.result.map(ty), ty)
}
