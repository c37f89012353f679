//! Compiles queue programs: one machine-code function per handler.
//!
//! A handler has neither calls nor loops, and accesses only words at offsets that are known at compile time. Cranelift
//! removes the loads of words that are known already.

use crate::arithmetic::Arithmetic;
use crate::memory::Code;
use crate::{Jit, WORKSPACE};
use core::fmt;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64, I8, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder as _, MemFlagsData};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::FunctionBuilder;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_ir::backend::Unsupported;
use weft_ir::queue::direct::{Direct, Entry, Fetch};
use weft_ir::queue::verify::verify;
use weft_ir::queue::{
    EventWords, Handler, Moment, Op, PacketWords, QueueCode, QueueProgram, RecordWords, Scope, Slot, Step,
    Ty, Value, Verdict, Words,
};

impl Jit {
    /// Compiles all handlers of a queue program.
    ///
    /// # Errors
    /// [`verify`] rejects the program, or this machine lacks instructions or memory for its code.
    pub fn compile_queue(&self, program: &Arc<QueueProgram>) -> Result<CompiledQueue, Unsupported> {
        let began = self.clock.map(|clock| clock());
        let refused = |reason: String| Unsupported { reason, line: 0 };
        verify(program).map_err(|why| refused(format!("not well-formed: {why}")))?;
        let mut machine_code = Vec::new();
        let mut made = Vec::new();
        for (level, decl) in program.levels.iter().enumerate() {
            for (moment, handler) in decl.handlers.iter() {
                made.push(((level, moment), self.append(&mut machine_code, handler)?));
            }
        }
        let code = (!machine_code.is_empty())
            .then(|| Code::new(&machine_code, CODE_ALIGN))
            .transpose()
            .map_err(refused)?;
        let code = code.map(Arc::new);
        let entry = |code: &Code, at| {
            // SAFETY: `append` put a function with this signature at offset `at`. It accesses only words of its
            // arguments (`slot_address`). Only `CompiledQueue` and `Direct` call it, and both own the code.
            unsafe { core::mem::transmute::<*const u8, Entry>(code.entry().add(at)) }
        };
        let handlers =
            code.iter().flat_map(|code| made.iter().map(|(of, at)| (*of, entry(code, *at)))).collect();
        let compile_ns = began.zip(self.clock).map_or(0, |(began, clock)| clock().saturating_sub(began));
        Ok(CompiledQueue { name: program.name.clone(), handlers, code, compile_ns })
    }

    /// Compiles a handler and appends its code to that of the others; returns its offset.
    fn append(&self, machine_code: &mut Vec<u8>, handler: &Handler) -> Result<usize, Unsupported> {
        let target = self.isa.frontend_config();
        WORKSPACE.with_borrow_mut(|workspace| {
            let (made, ()) = workspace.compile(&self.isa, |builder| translate(handler, builder, target))?;
            if made.align > CODE_ALIGN {
                let reason = "a handler needs constants that are aligned in an unusual way".into();
                return Err(Unsupported { reason, line: 0 });
            }
            let at = machine_code.len().next_multiple_of(CODE_ALIGN as usize);
            machine_code.resize(at, 0);
            machine_code.extend_from_slice(made.bytes);
            Ok(at)
        })
    }
}

/// The handlers of a queue program as machine code. Workers share it through an `Arc`.
pub struct CompiledQueue {
    name: String,
    /// The handlers by level and moment.
    handlers: BTreeMap<(usize, Moment), Entry>,
    /// The code of all handlers; None if there are none.
    code: Option<Arc<Code>>,
    compile_ns: u64,
}

impl CompiledQueue {
    /// Size of the machine code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.code.as_deref().map_or(0, Code::bytes)
    }

    /// Compile time; 0 if the backend has no clock.
    pub fn compile_ns(&self) -> u64 {
        self.compile_ns
    }
}

impl fmt::Debug for CompiledQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, compile_ns, .. } = self;
        write!(f, "{name}: {} bytes of code, compiled in {compile_ns} ns", self.code_bytes())
    }
}

impl QueueCode for CompiledQueue {
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        self.direct(level, moment).map_or(Verdict::Pass.word(0), |handler| handler.run(words))
    }

    fn direct(&self, level: usize, moment: Moment) -> Option<Direct> {
        Some(Direct::new(*self.handlers.get(&(level, moment))?, self.code.clone()?))
    }

    fn fetch(&self) -> Option<Fetch> {
        Some(crate::prefetch::fetch_queue_line)
    }
}

/// Alignment of handlers in their code: half a cache line.
const CODE_ALIGN: u64 = 32;

/// Translates a handler that the verifier accepted into `builder`'s function, an [`Entry`].
fn translate(
    handler: &Handler,
    mut builder: FunctionBuilder<'_>,
    target: TargetFrontendConfig,
) -> Result<(), Unsupported> {
    let signature = &mut builder.func.signature;
    signature.call_conv = target.default_call_conv;
    signature.params.extend([AbiParam::new(I64); 4]);
    signature.returns.push(AbiParam::new(I64));
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let bases = builder.block_params(entry).try_into().expect("four parameters were declared");
    Translator::new(handler, &mut builder, bases).all()?;
    builder.finalize(target);
    Ok(())
}

/// Words are 8 bytes, aligned and in bounds.
const WORD: MemFlagsData = MemFlagsData::trusted();

struct Translator<'t, 'f> {
    handler: &'t Handler,
    builder: &'t mut FunctionBuilder<'f>,
    /// The addresses of the words of each scope.
    bases: [clif::Value; 4],
    /// The handler's values as Cranelift values.
    values: Vec<Option<clif::Value>>,
}

impl<'f> Arithmetic<'f> for Translator<'_, 'f> {
    fn builder(&mut self) -> &mut FunctionBuilder<'f> {
        self.builder
    }

    fn word(&mut self, n: i64) -> clif::Value {
        self.builder.ins().iconst(I64, n)
    }

    fn operand(&mut self, value: Value) -> Result<clif::Value, Unsupported> {
        let undefined = || Unsupported { reason: format!("v{} is not defined here", value.0), line: 0 };
        self.values[value.0 as usize].ok_or_else(undefined)
    }
}

impl<'t, 'f> Translator<'t, 'f> {
    /// Makes a translator of a handler; `bases` are the addresses of the words of each scope.
    fn new(handler: &'t Handler, builder: &'t mut FunctionBuilder<'f>, bases: [clif::Value; 4]) -> Self {
        let values = vec![None; handler.types.len()];
        Self { handler, builder, bases, values }
    }

    /// Translates the whole handler.
    fn all(mut self) -> Result<(), Unsupported> {
        let handler = self.handler;
        assert!(self.block(&handler.body)?, "the verifier requires an end on each path");
        Ok(())
    }

    /// Translates a block; returns whether all its paths end.
    fn block(&mut self, steps: &[Step]) -> Result<bool, Unsupported> {
        for step in steps {
            match step {
                Step::Let(value, op) => self.values[value.0 as usize] = Some(self.op(op)?),
                Step::Load(value, slot) => {
                    self.values[value.0 as usize] = Some(self.load(*slot, self.ty(*value)));
                }
                Step::Store(slot, value) => self.store(*slot, *value)?,
                Step::If { by, then, otherwise } => {
                    if self.branch(*by, then, otherwise)? {
                        return Ok(true);
                    }
                }
                Step::End(verdict, line) => {
                    self.end(*verdict, *line);
                    return Ok(true);
                }
                Step::Give(value) => {
                    let value = self.operand(*value)?;
                    self.builder.ins().return_(&[value]);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Translates a branch; returns whether both sides end.
    fn branch(&mut self, by: Value, then: &[Step], otherwise: &[Step]) -> Result<bool, Unsupported> {
        let [yes, no, behind] = [(); 3].map(|()| self.builder.create_block());
        let by = self.operand(by)?;
        let (by, is_not) = self.without_not(by);
        let [first, second] = if is_not { [no, yes] } else { [yes, no] };
        self.builder.ins().brif(by, first, &[], second, &[]);
        let mut ends = true;
        for (at, steps) in [(yes, then), (no, otherwise)] {
            self.builder.switch_to_block(at);
            self.builder.seal_block(at);
            if !self.block(steps)? {
                self.builder.ins().jump(behind, &[]);
                ends = false;
            }
        }
        if ends {
            return Ok(true);
        }
        self.builder.switch_to_block(behind);
        self.builder.seal_block(behind);
        Ok(false)
    }

    /// Emits the end of the handler: a return of the verdict's word.
    fn end(&mut self, verdict: Verdict, line: u32) {
        let word = self.word(verdict.word(line) as i64);
        self.builder.ins().return_(&[word]);
    }

    /// Emits an operation. Truth values are bytes of 0 or 1.
    fn op(&mut self, op: &Op) -> Result<clif::Value, Unsupported> {
        Ok(match *op {
            Op::IntConst(n) => self.word(n),
            Op::FloatConst(x) => self.builder.ins().f64const(x),
            Op::BoolConst(b) => self.builder.ins().iconst(I8, i64::from(b)),
            Op::Select(by, a, b) => {
                let (by, a, b) = (self.operand(by)?, self.operand(a)?, self.operand(b)?);
                let (by, is_not) = self.without_not(by);
                let [a, b] = if is_not { [b, a] } else { [a, b] };
                self.builder.ins().select(by, a, b)
            }
            _ => {
                let other = || Unsupported { reason: format!("{op:?} is no operation of queues"), line: 0 };
                self.word_op(op)?.ok_or_else(other)?
            }
        })
    }

    /// Emits the load of a slot.
    fn load(&mut self, slot: Slot, ty: Ty) -> clif::Value {
        let (base, offset) = self.slot_address(slot);
        let held = if ty == Ty::Float { F64 } else { I64 };
        let word = self.builder.ins().load(held, WORD, base, offset);
        if ty != Ty::Bool {
            return word;
        }
        let zero = self.word(0);
        self.builder.ins().icmp(IntCC::NotEqual, word, zero)
    }

    /// Emits the store of a value to a slot.
    fn store(&mut self, slot: Slot, value: Value) -> Result<(), Unsupported> {
        let is_bool = self.ty(value) == Ty::Bool;
        let value = self.operand(value)?;
        let (base, offset) = self.slot_address(slot);
        let word = if is_bool { self.builder.ins().uextend(I64, value) } else { value };
        self.builder.ins().store(WORD, word, base, offset);
        Ok(())
    }

    /// The base address of a slot and its offset in bytes.
    fn slot_address(&self, slot: Slot) -> (clif::Value, i32) {
        let n_words = match slot.scope {
            Scope::Node | Scope::Partition => size_of::<RecordWords>() / 8,
            Scope::Packet => size_of::<PacketWords>() / 8,
            Scope::Event => size_of::<EventWords>() / 8,
        };
        assert!(usize::from(slot.word) < n_words, "the verifier limits the words of {slot:?}");
        (self.bases[slot.scope as usize], i32::from(slot.word) * 8)
    }

    /// The type of a value.
    fn ty(&self, value: Value) -> Ty {
        self.handler.types[value.0 as usize]
    }
}
