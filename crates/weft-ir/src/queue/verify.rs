//! The verifier of queue programs.

use super::{
    FIELDS_MAX, Field, Handler, LEVELS_MAX, Level, Moment, Op, Overflow, PARTITIONS_MAX, PacketOrder,
    Partitions, PartitionsBy, QueueProgram, RANK_BITS_MAX, STEPS_MAX, Scope, Slot, Step, TREE_MAX, Ty,
    VARS_MAX, Value, Verdict, word,
};
use crate::ir::Signed;
use crate::text::mnemonic;

/// Checks a program for all back ends.
///
/// # Errors
/// The first fault, in words.
pub fn verify(program: &QueueProgram) -> Result<(), String> {
    if program.levels.is_empty() || program.levels.len() > LEVELS_MAX {
        return Err(format!("a queue has 1 to {LEVELS_MAX} levels, not {}", program.levels.len()));
    }
    if program.fields.len() > FIELDS_MAX {
        return Err(format!("{} fields, and {FIELDS_MAX} at most", program.fields.len()));
    }
    let mut n_nodes = 1_u64;
    for (at, level) in program.levels.iter().enumerate() {
        let is_leaf = at + 1 == program.levels.len();
        verify_level(program, level, is_leaf).map_err(|why| format!("{}: {why}", level.name))?;
        n_nodes *= u64::from(level.partitions.n());
        if n_nodes > TREE_MAX {
            return Err(format!("{n_nodes} partitions in all, and {TREE_MAX} at most"));
        }
    }
    let mut n_counts = 0;
    for field in &program.fields {
        let Field::Partitions(by) = field else { continue };
        if !program.fields.contains(&by.field()) {
            return Err(format!("{} without that", by.name()));
        }
        n_counts += 1;
    }
    if n_counts > PartitionsBy::MAX {
        return Err(format!("partitions by {n_counts} fields, and {} at most", PartitionsBy::MAX));
    }
    Ok(())
}

/// Checks one level of a queue: partitions, variables, orders and handlers. The error says what is wrong.
fn verify_level(program: &QueueProgram, level: &Level, is_leaf: bool) -> Result<(), String> {
    let n = level.partitions.n();
    if n == 0 || n > PARTITIONS_MAX {
        return Err(format!("{n} partitions"));
    }
    if let Partitions::Hash { n, ways } = level.partitions
        && (ways == 0 || n % ways != 0)
    {
        return Err(format!("{n} partitions in sets of {ways}"));
    }
    if level.vars.len() > VARS_MAX || level.partition_vars.len() > VARS_MAX {
        return Err("too many variables".into());
    }
    let mut vars = level.vars.iter().chain(&level.partition_vars);
    if let Some(var) = vars.find(|var| matches!(var.ty, Ty::Bytes | Ty::Row)) {
        return Err(format!("variable {} is no word", var.name));
    }
    let packet_bits = match level.packets {
        PacketOrder::Rank { bits } => bits,
        PacketOrder::Arrival => None,
    };
    if [level.order.bits, packet_bits].into_iter().flatten().any(|bits| bits > RANK_BITS_MAX) {
        return Err("a rank of too many bits".into());
    }
    let ranks_packets = level.order.by_least_packet || matches!(level.packets, PacketOrder::Rank { .. });
    if ranks_packets && (!is_leaf || level.handlers.packet_rank.is_none()) {
        return Err("packets are ranked by the last level, and by a handler".into());
    }
    let is_ranked = matches!(level.packets, PacketOrder::Rank { .. });
    if is_ranked && level.partitions != Partitions::One {
        return Err("packets are ranked where there is one partition".into());
    }
    if !is_leaf && level.partitions == Partitions::One && level.handlers.key.is_some() {
        return Err("a key for one partition".into());
    }
    if level.limit.packets.is_none() && level.limit.bytes.is_none() {
        return Err("no limit".into());
    }
    if matches!(level.limit.overflow, Overflow::Victim { .. }) && level.limit.batch == 0 {
        return Err("an overflow that drops nothing".into());
    }
    if level.partitions != Partitions::One && level.handlers.key.is_none() {
        return Err("partitions without a key".into());
    }
    for (moment, handler) in level.handlers.iter() {
        verify_handler(program, level, moment, handler).map_err(|why| format!("{moment:?}: {why}"))?;
    }
    Ok(())
}

/// Checks the handler of one moment: types, slots, and a verdict on each path.
fn verify_handler(
    program: &QueueProgram,
    level: &Level,
    moment: Moment,
    handler: &Handler,
) -> Result<(), String> {
    let defined = vec![false; handler.types.len()];
    let mut verifying = Verifying { program, level, moment, handler, defined, n_steps: 0 };
    let ends = verifying.block(&handler.body)?;
    assert!(verifying.defined.iter().all(|is_defined| !is_defined), "each block forgets its values");
    assert!(handler.cost() as usize <= verifying.n_steps, "the longest path has some of all steps");
    if ends { Ok(()) } else { Err("a path without a verdict".into()) }
}

struct Verifying<'v> {
    program: &'v QueueProgram,
    level: &'v Level,
    moment: Moment,
    handler: &'v Handler,
    defined: Vec<bool>,
    n_steps: usize,
}

impl Verifying<'_> {
    /// Whether every path through the block ends.
    fn block(&mut self, steps: &[Step]) -> Result<bool, String> {
        let mut ended = false;
        let mut mine = Vec::new();
        for step in steps {
            self.n_steps += 1;
            if ended || self.n_steps > STEPS_MAX {
                return Err("steps that are never reached, or too many".into());
            }
            match step {
                Step::Let(value, op) => {
                    self.define(*value, self.op(op)?)?;
                    mine.push(*value);
                }
                Step::Load(value, slot) => {
                    self.define(*value, self.slot(*slot)?)?;
                    mine.push(*value);
                }
                Step::Store(slot, value) => self.store(*slot, *value)?,
                Step::If { by, then, otherwise } => {
                    self.want(*by, Ty::Bool)?;
                    let (then, otherwise) = (self.block(then)?, self.block(otherwise)?);
                    ended = then && otherwise;
                }
                Step::End(verdict, _) => {
                    if self.moment.gives() || !allowed(self.moment, *verdict) {
                        return Err(format!("{verdict:?} is no end of it"));
                    }
                    ended = true;
                }
                Step::Give(value) => {
                    self.want(*value, Ty::Int)?;
                    if !self.moment.gives() {
                        return Err("it gives a number".into());
                    }
                    ended = true;
                }
            }
        }
        for value in mine {
            self.defined[value.0 as usize] = false;
        }
        Ok(ended)
    }

    /// Checks the operands of an operation; returns the type of its result.
    fn op(&self, op: &Op) -> Result<Ty, String> {
        let [takes, gives] = match *op {
            Op::Select(by, a, b) => {
                self.want(by, Ty::Bool)?;
                let ty = self.ty(a)?;
                self.want(b, ty)?;
                return Ok(ty);
            }
            Op::Hash(_) => [Ty::Int; 2],
            _ => match op.word_types() {
                Some((takes, gives)) if is_in_profile(op) => [takes, gives],
                _ => return Err(format!("{} is no operation of queues", mnemonic(op))),
            },
        };
        op.operands().into_iter().try_for_each(|operand| self.want(operand, takes))?;
        Ok(gives)
    }

    /// Marks a value of this type as defined.
    fn define(&mut self, value: Value, ty: Ty) -> Result<(), String> {
        let at = value.0 as usize;
        if self.defined.get(at) != Some(&false) || self.handler.types[at] != ty {
            return Err(format!("value {at} is defined twice, or with another type"));
        }
        self.defined[at] = true;
        Ok(())
    }

    /// Checks that a value is defined and has this type.
    fn want(&self, value: Value, ty: Ty) -> Result<(), String> {
        if self.ty(value)? == ty { Ok(()) } else { Err(format!("value {} is no {ty:?}", value.0)) }
    }

    /// The type of a value; an error if it is not defined at this point.
    fn ty(&self, value: Value) -> Result<Ty, String> {
        match self.defined.get(value.0 as usize) {
            Some(true) => Ok(self.handler.types[value.0 as usize]),
            _ => Err(format!("value {} is not defined here", value.0)),
        }
    }

    /// The type of the word in a slot; an error if the moment does not have it.
    fn slot(&self, slot: Slot) -> Result<Ty, String> {
        let none = || format!("there is no {slot:?} here");
        let var = |vars: &[super::VarDecl], first: u16| match slot.word.checked_sub(first) {
            None => Ok(Ty::Int),
            Some(at) => vars.get(usize::from(at)).map(|var| var.ty).ok_or_else(none),
        };
        match slot.scope {
            Scope::Node => var(&self.level.vars, word::NODE_VARS),
            Scope::Partition if !self.moment.has_partition() => Err(none()),
            Scope::Partition => var(&self.level.partition_vars, word::PARTITION_VARS),
            Scope::Packet if !self.moment.has_packet() => Err(none()),
            Scope::Packet if usize::from(slot.word) + 1 < self.program.packet_words() => Ok(Ty::Int),
            Scope::Event if slot.word < word::EVENT_WORDS => Ok(Ty::Int),
            Scope::Packet | Scope::Event => Err(none()),
        }
    }

    /// Checks that a handler may write this value to this slot.
    fn store(&mut self, slot: Slot, value: Value) -> Result<(), String> {
        let ty = self.slot(slot)?;
        self.want(value, ty)?;
        if is_writable(slot) { Ok(()) } else { Err(format!("{slot:?} belongs to the queue")) }
    }
}

/// Whether handlers may write the slot; the others belong to the queue.
pub(super) fn is_writable(slot: Slot) -> bool {
    match slot.scope {
        Scope::Node => slot.word >= word::NODE_VARS,
        Scope::Partition => slot.word == word::RANK || slot.word >= word::PARTITION_VARS,
        Scope::Packet => slot.word == word::ECN || slot.word >= word::FIELDS,
        Scope::Event => matches!(slot.word, word::DRAWN | word::HOLD),
    }
}

/// Whether handlers may use the operation: their profile of [`crate::ir`]. It has operations on words only, with signed
/// conversions, and no predicates of errors, because a handler cannot fail.
pub fn is_in_profile(op: &Op) -> bool {
    match op {
        Op::Select(..) | Op::Hash(_) => true,
        Op::Overflows(..) | Op::InRange(..) | Op::FloatFits(..) | Op::FloatOfBits(_) | Op::BoolToInt(_) => {
            false
        }
        Op::IntToFloat(signed, _) | Op::FloatToInt(signed, _) => *signed == Signed::Yes,
        _ => op.word_types().is_some(),
    }
}

/// Whether a handler of this moment may end with this verdict.
pub fn allowed(moment: Moment, verdict: Verdict) -> bool {
    match verdict {
        Verdict::Pass => !moment.gives(),
        Verdict::Mark | Verdict::Drop => matches!(moment, Moment::Enqueue | Moment::Dequeue),
        Verdict::Next => moment == Moment::Select,
        Verdict::Hold => matches!(moment, Moment::Select | Moment::Dequeue),
        Verdict::Stay => moment == Moment::Empty,
        Verdict::Rotate => moment == Moment::Dequeue,
    }
}
