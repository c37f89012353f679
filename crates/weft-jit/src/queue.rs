//! Queue programs: one machine-code function for each handler, and two for the short way of packets if the program has
//! one.
//!
//! A handler has neither calls nor ways back, and all that it touches are words at offsets that are known when it is
//! compiled. So its code is the plainest that there is: each word is loaded once at most on a path, and stored where
//! the program stores it.

mod round_robin;

use crate::arithmetic::{Arithmetic, float_cc, int_cc};
use crate::memory::Code;
use crate::{Jit, WORKSPACE};
use core::fmt;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64, I8, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder as _, MemFlagsData};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, Variable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_ir::backend::Unsupported;
use weft_ir::queue::direct::{self, Direct, PacketWords, RecordWords};
use weft_ir::queue::layout::Fetch;
use weft_ir::queue::round_robin::{CompiledRoundRobin, DequeueFn, EnqueueFn, RoundRobin};
use weft_ir::queue::verify::verify;
use weft_ir::queue::{
    EventWords, Handler, LEVELS_MAX, Moment, Op, QueueCode, QueueProgram, Scope, Slot, Step, Ty, Value,
    Verdict, Words,
};

impl Jit {
    /// Compiles all handlers of a queue program.
    ///
    /// # Errors
    /// The program is not one that [`verify`] accepts, or this machine lacks instructions or memory for its code.
    pub fn compile_queue(&self, program: &Arc<QueueProgram>) -> Result<CompiledQueue, Unsupported> {
        let began = self.clock.map(|clock| clock());
        let refused = |reason: String| Unsupported { reason, line: 0 };
        verify(program).map_err(|why| refused(format!("not well-formed: {why}")))?;
        let mut machine_code = Vec::new();
        let mut made = Vec::new();
        for (level, decl) in program.levels.iter().enumerate() {
            for (moment, handler) in decl.handlers.iter() {
                let at =
                    self.append(&mut machine_code, |builder, target| translate(handler, builder, target))?;
                made.push((level, moment, Needs::of(handler), at));
            }
        }
        let short = RoundRobin::of(program).map(|short| {
            let words = self.vec_words;
            let enter =
                self.append(&mut machine_code, |b, target| round_robin::enqueue(&short, words, b, target))?;
            let leave =
                self.append(&mut machine_code, |b, target| round_robin::dequeue(&short, words, b, target))?;
            Ok((enter, leave))
        });
        let short = short.transpose()?;
        let code = (!machine_code.is_empty())
            .then(|| Code::new(&machine_code, CODE_ALIGN))
            .transpose()
            .map_err(refused)?;
        let code = code.map(Arc::new);
        let mut functions = Functions::default();
        for (level, moment, needs, at) in made {
            let Some(code) = &code else { continue };
            // SAFETY: `append` put a function with this signature `at` bytes behind the first one. It is handed out by
            // `CompiledQueue` alone, which keeps the code as long.
            let entry = unsafe { core::mem::transmute::<*const u8, Entry>(code.entry().add(at)) };
            functions.set(level, moment, Function { entry, needs });
        }
        let turns = short.zip(code.clone()).map(|((enter, leave), code)| {
            // SAFETY: `append` put functions with these signatures there. They touch no record before they know that
            // its vector has it, and `CompiledTurns` keeps the code as long as it has them.
            let (enter, leave) = unsafe {
                (
                    core::mem::transmute::<*const u8, EnqueueFn>(code.entry().add(enter)),
                    core::mem::transmute::<*const u8, DequeueFn>(code.entry().add(leave)),
                )
            };
            CompiledRoundRobin::new(enter, leave, code)
        });
        let compile_ns = began.zip(self.clock).map_or(0, |(began, clock)| clock().saturating_sub(began));
        Ok(CompiledQueue { name: program.name.clone(), functions, turns, code, compile_ns })
    }

    /// Compiles a function and puts its code behind that of the others; returns where it begins.
    fn append(
        &self,
        machine_code: &mut Vec<u8>,
        translate: impl FnOnce(FunctionBuilder<'_>, TargetFrontendConfig),
    ) -> Result<usize, Unsupported> {
        let target = self.isa.frontend_config();
        WORKSPACE.with_borrow_mut(|workspace| {
            let (made, ()) = workspace.compile(&self.isa, |builder| {
                translate(builder, target);
                Ok(())
            })?;
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

/// The handlers of a queue program as machine code. Workers share it by an `Arc`.
pub struct CompiledQueue {
    name: String,
    functions: Functions,
    turns: Option<CompiledRoundRobin>,
    /// Where the functions are; None if there are none.
    code: Option<Arc<Code>>,
    compile_ns: u64,
}

impl CompiledQueue {
    /// Bytes of machine code.
    pub fn code_bytes(&self) -> usize {
        self.code.as_deref().map_or(0, Code::bytes)
    }

    /// How long it took to compile; 0 if the back end has no clock.
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
    #[inline]
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        let Some(function) = self.functions.get(level, moment) else { return Verdict::Pass.word(0) };
        function.needs.check(&words);
        let Words { node, partition, packet, event } = words;
        // SAFETY: the code is made by `translate` from a handler that the verifier accepted. It reads and writes the
        // words that `Needs::of` counted and no others; they are there, and borrowed for the time of the call.
        unsafe {
            (function.entry)(
                node.as_mut_ptr(),
                partition.as_mut_ptr(),
                packet.as_mut_ptr(),
                event.as_mut_ptr(),
            )
        }
    }

    fn direct(&self, level: usize, moment: Moment) -> Option<Direct> {
        let (function, code) = (self.functions.get(level, moment)?, self.code.clone()?);
        function.needs.fit_direct().then(|| {
            // SAFETY: a function takes pointers to words, of which it touches no more than the arrays have. It is
            // called by `Direct` alone, which keeps the code as long.
            let entry = unsafe { core::mem::transmute::<Entry, direct::Entry>(function.entry) };
            Direct::new(entry, code)
        })
    }

    fn turns(&self) -> Option<CompiledRoundRobin> {
        self.turns.clone()
    }

    fn fetch(&self) -> Option<Fetch> {
        Some(crate::ahead::fetch)
    }
}

/// How handlers are aligned in their code: half a line of the cache.
const CODE_ALIGN: u64 = 32;

/// Code of a handler: on the words of the node, the partition, the packet and the event.
type Entry = unsafe extern "C" fn(*mut u64, *mut u64, *mut u64, *mut u64) -> u64;

/// The code where a program has none.
extern "C" fn passes(_: *mut u64, _: *mut u64, _: *mut u64, _: *mut u64) -> u64 {
    Verdict::Pass.word(0)
}

#[derive(Clone, Copy)]
struct Function {
    entry: Entry,
    needs: Needs,
}

impl Default for Function {
    fn default() -> Self {
        Self { entry: passes, needs: Needs::default() }
    }
}

/// The functions of a program. What has none passes.
#[derive(Default)]
struct Functions {
    /// By moment and level: a fixed place, so that it is found without a look at how many there are.
    singles: [[Function; LEVELS_MAX]; Moment::SINGLES],
    /// Those of timers, by level.
    every: [Vec<Function>; LEVELS_MAX],
}

impl Functions {
    #[inline(always)]
    fn get(&self, level: usize, moment: Moment) -> Option<&Function> {
        match moment.single() {
            Ok(nth) => self.singles[nth].get(level),
            Err(nth) => self.every.get(level)?.get(nth),
        }
    }

    fn set(&mut self, level: usize, moment: Moment, function: Function) {
        match moment.single() {
            Ok(nth) => self.singles[nth][level] = function,
            Err(nth) => {
                let every = &mut self.every[level];
                every.resize(every.len().max(nth + 1), Function::default());
                every[nth] = function;
            }
        }
    }
}

/// How many words of each scope a handler touches, the untouched ones before the last included.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    node: usize,
    partition: usize,
    packet: usize,
    event: usize,
}

impl Needs {
    fn of(handler: &Handler) -> Self {
        let mut needs = Self::default();
        needs.add(&handler.body);
        needs
    }

    fn add(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Let(_, Op::Load(slot)) | Step::Store(slot, _) => {
                    let needed = match slot.scope {
                        Scope::Node => &mut self.node,
                        Scope::Partition => &mut self.partition,
                        Scope::Packet => &mut self.packet,
                        Scope::Event => &mut self.event,
                    };
                    *needed = (*needed).max(usize::from(slot.word) + 1);
                }
                Step::If { then, otherwise, .. } => {
                    self.add(then);
                    self.add(otherwise);
                }
                Step::Let(..) | Step::End(..) | Step::Give(_) => {}
            }
        }
    }

    /// Whether those are no more than a [`Direct`] has.
    fn fit_direct(self) -> bool {
        self.node.max(self.partition) <= size_of::<RecordWords>() / 8
            && self.packet <= size_of::<PacketWords>() / 8
            && self.event <= size_of::<EventWords>() / 8
    }

    /// # Panics
    /// If there are fewer words than needed. Each has a branch of its own, which costs less than one for all of them.
    #[inline(always)]
    fn check(self, words: &Words<'_>) {
        if words.node.len() < self.node {
            misfit("node");
        }
        if words.partition.len() < self.partition {
            misfit("partition");
        }
        if words.packet.len() < self.packet {
            misfit("packet");
        }
        if words.event.len() < self.event {
            misfit("event");
        }
    }
}

#[cold]
#[inline(never)]
fn misfit(whose: &str) -> ! {
    panic!("there are fewer words than the queue program has: of the {whose}")
}

/// Translates a handler that the verifier accepts into `builder`'s function, an [`Entry`].
fn translate(handler: &Handler, mut builder: FunctionBuilder<'_>, target: TargetFrontendConfig) {
    let signature = &mut builder.func.signature;
    signature.call_conv = target.default_call_conv;
    signature.params.extend([AbiParam::new(I64); 4]);
    signature.returns.push(AbiParam::new(I64));
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let bases = builder.block_params(entry).try_into().expect("four parameters were declared");
    Translator::new(handler, &mut builder, bases, Ends::Return).all();
    builder.finalize(target);
}

/// Words are 8 bytes, aligned, and there.
const WORD: MemFlagsData = MemFlagsData::trusted();

/// What the end of a handler is.
#[derive(Clone, Copy)]
enum Ends {
    /// The end of the function, which returns the word of it.
    Return,
    /// The beginning of a block for each verdict. It may have the word as its parameter.
    GoOn([clif::Block; Verdict::ALL.len()]),
}

struct Translator<'t, 'f> {
    handler: &'t Handler,
    builder: &'t mut FunctionBuilder<'f>,
    ends: Ends,
    /// Where the words of each scope begin.
    bases: [clif::Value; 4],
    /// What the values of the handler are here.
    values: Vec<Option<clif::Value>>,
    /// What is in a word that was loaded or stored. Nobody else writes while a handler runs.
    slots: BTreeMap<Slot, Variable>,
    /// Of which words that is known on all paths to here.
    known: BTreeSet<Slot>,
}

impl<'f> Arithmetic<'f> for Translator<'_, 'f> {
    fn builder(&mut self) -> &mut FunctionBuilder<'f> {
        self.builder
    }

    fn word(&mut self, n: i64) -> clif::Value {
        self.builder.ins().iconst(I64, n)
    }
}

impl<'t, 'f> Translator<'t, 'f> {
    fn new(
        handler: &'t Handler,
        builder: &'t mut FunctionBuilder<'f>,
        bases: [clif::Value; 4],
        ends: Ends,
    ) -> Self {
        let values = vec![None; handler.types.len()];
        Self { handler, builder, ends, bases, values, slots: BTreeMap::new(), known: BTreeSet::new() }
    }

    /// All of the handler.
    fn all(mut self) {
        let handler = self.handler;
        if !self.block(&handler.body) {
            self.end(Verdict::Pass, 0);
        }
    }

    /// Whether all paths through the block end.
    fn block(&mut self, steps: &[Step]) -> bool {
        for step in steps {
            match step {
                Step::Let(value, op) => {
                    let made = self.op(op, self.handler.types[usize::from(value.0)]);
                    self.values[usize::from(value.0)] = Some(made);
                }
                Step::Store(slot, value) => self.store(*slot, *value),
                Step::If { by, then, otherwise } => {
                    if self.branch(*by, then, otherwise) {
                        return true;
                    }
                }
                Step::End(verdict, line) => {
                    self.end(*verdict, *line);
                    return true;
                }
                Step::Give(value) => {
                    let value = self.get(*value);
                    self.builder.ins().return_(&[value]);
                    return true;
                }
            }
        }
        false
    }

    /// Whether both blocks end.
    fn branch(&mut self, by: Value, then: &[Step], otherwise: &[Step]) -> bool {
        let [yes, no, behind] = [(); 3].map(|()| self.builder.create_block());
        let by = self.get(by);
        let (by, is_not) = self.without_not(by);
        let [first, second] = if is_not { [no, yes] } else { [yes, no] };
        self.builder.ins().brif(by, first, &[], second, &[]);
        let known_before = self.known.clone();
        let mut known_behind: Option<BTreeSet<Slot>> = None;
        for (at, steps) in [(yes, then), (no, otherwise)] {
            self.builder.switch_to_block(at);
            self.builder.seal_block(at);
            self.known.clone_from(&known_before);
            if self.block(steps) {
                continue;
            }
            self.builder.ins().jump(behind, &[]);
            known_behind = Some(match known_behind {
                Some(other) => other.intersection(&self.known).copied().collect(),
                None => self.known.clone(),
            });
        }
        let Some(known) = known_behind else { return true };
        self.known = known;
        self.builder.switch_to_block(behind);
        self.builder.seal_block(behind);
        false
    }

    fn end(&mut self, verdict: Verdict, line: u32) {
        let word = self.word(verdict.word(line) as i64);
        match self.ends {
            Ends::Return => self.builder.ins().return_(&[word]),
            Ends::GoOn(blocks) => {
                let block = blocks[verdict as usize];
                let n_given = self.builder.block_params(block).len();
                self.builder.ins().jump(block, &[clif::BlockArg::Value(word)][..n_given])
            }
        };
    }

    /// Truths are bytes of 0 or 1.
    fn op(&mut self, op: &Op, ty: Ty) -> clif::Value {
        match *op {
            Op::Int(n) => self.word(n),
            Op::Float(x) => self.builder.ins().f64const(x),
            Op::Bool(b) => self.builder.ins().iconst(I8, i64::from(b)),
            Op::Load(slot) => self.load(slot, ty),
            Op::IntBinary(op, a, b) => self.int_binary(op, self.get(a), self.get(b)),
            Op::IntCompare(cmp, a, b) => {
                let (a, b) = (self.get(a), self.get(b));
                self.builder.ins().icmp(int_cc(cmp), a, b)
            }
            Op::FloatBinary(op, a, b) => self.float_binary(op, self.get(a), self.get(b)),
            Op::FloatUnary(op, a) => self.float_unary(op, self.get(a)),
            Op::FloatCompare(cmp, a, b) => {
                let (a, b) = (self.get(a), self.get(b));
                self.builder.ins().fcmp(float_cc(cmp), a, b)
            }
            Op::IntToFloat(a) => {
                let a = self.get(a);
                self.builder.ins().fcvt_from_sint(F64, a)
            }
            Op::FloatToInt(a) => {
                let a = self.get(a);
                self.builder.ins().fcvt_to_sint_sat(I64, a)
            }
            Op::BoolBinary(op, a, b) => self.bool_binary(op, self.get(a), self.get(b)),
            Op::Not(a) => {
                let a = self.get(a);
                self.not(a)
            }
            Op::Select(by, a, b) => {
                let (by, a, b) = (self.get(by), self.get(a), self.get(b));
                let (by, is_not) = self.without_not(by);
                let [a, b] = if is_not { [b, a] } else { [a, b] };
                self.builder.ins().select(by, a, b)
            }
            Op::Hash(a) => {
                let hash = self.hash_word(self.get(a));
                self.upper_half(hash)
            }
            Op::HashMix(a, b) => {
                let hash = self.hash_mix(self.get(a), self.get(b));
                self.upper_half(hash)
            }
            Op::Log2(a) => self.log2(self.get(a)),
        }
    }

    fn upper_half(&mut self, word: clif::Value) -> clif::Value {
        let half = self.word(32);
        self.builder.ins().ushr(word, half)
    }

    fn log2(&mut self, word: clif::Value) -> clif::Value {
        let (one, highest) = (self.word(1), self.word(63));
        let word = self.builder.ins().smax(word, one);
        let above = self.builder.ins().clz(word);
        self.builder.ins().isub(highest, above)
    }

    fn load(&mut self, slot: Slot, ty: Ty) -> clif::Value {
        let variable = self.variable(slot, ty);
        if self.known.insert(slot) {
            let (base, offset) = self.place(slot);
            let held = match ty {
                Ty::Float => self.builder.ins().load(F64, WORD, base, offset),
                Ty::Int => self.builder.ins().load(I64, WORD, base, offset),
                Ty::Bool => {
                    let word = self.builder.ins().load(I64, WORD, base, offset);
                    let zero = self.word(0);
                    self.builder.ins().icmp(IntCC::NotEqual, word, zero)
                }
            };
            self.builder.def_var(variable, held);
        }
        self.builder.use_var(variable)
    }

    fn store(&mut self, slot: Slot, value: Value) {
        let ty = self.handler.types[usize::from(value.0)];
        let value = self.get(value);
        let variable = self.variable(slot, ty);
        self.builder.def_var(variable, value);
        self.known.insert(slot);
        let (base, offset) = self.place(slot);
        let word = if ty == Ty::Bool { self.builder.ins().uextend(I64, value) } else { value };
        self.builder.ins().store(WORD, word, base, offset);
    }

    /// The verifier sees to it that a word has one type.
    fn variable(&mut self, slot: Slot, ty: Ty) -> Variable {
        let clif_ty = match ty {
            Ty::Bool => I8,
            Ty::Int => I64,
            Ty::Float => F64,
        };
        *self.slots.entry(slot).or_insert_with(|| self.builder.declare_var(clif_ty))
    }

    fn place(&self, slot: Slot) -> (clif::Value, i32) {
        (self.bases[slot.scope as usize], i32::from(slot.word) * 8)
    }

    /// The verifier sees to it that what is used is defined.
    fn get(&self, value: Value) -> clif::Value {
        self.values[usize::from(value.0)].expect("a value is defined before it is used")
    }
}
