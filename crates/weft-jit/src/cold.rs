//! Calls rarely used helpers without a cost to the hot path around the calls.
//!
//! A call clobbers registers, so all values that live across it are spilled, even if the call is on a rare path. Cold
//! helpers are therefore called through *thunks* that preserve all registers. Thunks are machine code, made once per
//! process. Where the calling convention does not exist, cold helpers are called like all others.

use crate::helpers::Cold;
use crate::memory::Code;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, InstBuilder as _, Signature};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::sync::OnceLock;

/// How a cold helper is called.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    pub(crate) address: usize,
    pub(crate) signature: Signature,
}

/// The thunks of this process.
struct Thunks {
    /// The code for each [`Cold`].
    code: Vec<Code>,
}

static THUNKS: OnceLock<Option<Thunks>> = OnceLock::new();

/// Makes the thunks early, so that the first segment compiles faster.
pub(crate) fn prepare(isa: &OwnedTargetIsa) {
    THUNKS.get_or_init(|| Thunks::new(isa));
}

/// Describes how compiled code calls `helper` on this machine.
pub(crate) fn callee(isa: &OwnedTargetIsa, helper: Cold) -> Callee {
    match THUNKS.get_or_init(|| Thunks::new(isa)) {
        Some(thunks) => Callee {
            address: thunks.code[helper as usize].entry().expose_provenance(),
            signature: signature(helper, CallConv::PreserveAll),
        },
        None => Callee { address: helper.address(), signature: signature(helper, isa.default_call_conv()) },
    }
}

/// The signature of a cold helper: it takes words and returns nothing.
fn signature(helper: Cold, convention: CallConv) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params = vec![AbiParam::new(I64); helper.params()];
    signature
}

impl Thunks {
    /// Returns None where the convention does not exist, or a step fails.
    fn new(isa: &OwnedTargetIsa) -> Option<Self> {
        let is_known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        let code = Cold::ALL.iter().map(|helper| is_known.then(|| thunk(isa, *helper)).flatten());
        Some(Self { code: code.collect::<Option<_>>()? })
    }
}

/// Compiles code that calls a helper and preserves the registers that it clobbers.
fn thunk(isa: &OwnedTargetIsa, helper: Cold) -> Option<Code> {
    let mut context = Context::new();
    context.func.signature = signature(helper, CallConv::PreserveAll);
    let mut builders = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut builders);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let args = builder.block_params(block).to_vec();
    let inner = builder.import_signature(signature(helper, isa.default_call_conv()));
    let address = builder.ins().iconst(I64, helper.address() as i64);
    builder.ins().call_indirect(inner, address, &args);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    let compiled = context.compile(&**isa, &mut ControlPlane::default()).ok()?;
    if !compiled.buffer.relocs().is_empty() {
        return None;
    }
    let align = u64::from(compiled.buffer.alignment).max(16);
    Code::new(compiled.code_buffer(), align).ok()
}
