//! Infers the effects of a handler in one walk over its function.

use std::collections::BTreeMap;

use weft_core::Status;
use weft_core::abi::{Fault, HOLD};
use weft_core::inputs::InputSet;
use weft_core::native::Effect;
use weft_ir::ir::{
    Block, BoolOp, ColumnId, Function, InputId, Inst, NameId, Op, SinkId, StatusOperand, TableId, Terminator,
    Value,
};
use weft_ir::program::{ChainProgram, Direction, Event, InputLocation, Meta, TableDecl};
use weft_ir::verify::Handler;

use super::condition::{Condition, conditions};
use super::flow::Flow;
use super::key::Names;
use super::source::Provenance;
use super::{Cell, CellUse, Effects, EndKind, Ending, RowSet, SourceLines, Sources, TableRead};

/// The effects of a handler. A failure of an element that fails open ends no tuple.
pub(super) fn infer(chain: &ChainProgram, event: Event, fail_open: bool, function: &Function) -> Effects {
    let flow = Flow::of(function);
    let provenance = Provenance::of(function, &flow, &chain.natives);
    let names = Names::of(chain, Handler::of(event).direction(chain), function);
    let own = own_writes(function);
    let ends = (0..function.blocks.len()).filter(|at| function.blocks[*at].end.continues());
    let going_on = flow.leading_to(ends, None);
    let conditions = conditions(function, &flow, &names);
    let effects = Effects::default();
    let of_frame = of_frame(Handler::of(event).direction(chain));
    let mut walk = Walk { function, chain, of_frame, flow, provenance, names, going_on, conditions, effects };
    for (at, block) in function.blocks.iter().enumerate() {
        if walk.flow.is_reached(at) {
            walk.block(at, block, own[at]);
            walk.end(at, &block.end, fail_open);
        }
    }
    walk.mark_certain_writes(&own);
    walk.effects
}

/// Returns the inputs whose value depends on the frame's headers.
fn of_frame(direction: Option<&Direction>) -> Vec<InputId> {
    let is_of_frame = |place: &InputLocation| match place {
        InputLocation::Frame(_) | InputLocation::Layer(_) => true,
        InputLocation::Meta(meta) => *meta == Meta::Size || meta.is_computed(),
        _ => false,
    };
    let inputs = direction.into_iter().flat_map(|direction| &direction.inputs).enumerate();
    inputs.filter(|(_, input)| is_of_frame(&input.place)).map(|(at, _)| InputId(at as u16)).collect()
}

/// Returns the rows of the table that a sink sends to; None if it sends to no table.
fn sink_table(chain: &ChainProgram, sink: SinkId) -> Option<Cell> {
    let wanted = chain.sinks[usize::from(sink.0)].target.table()?;
    let is_it = |decl: &TableDecl| (&*decl.owner, &*decl.spec.name) == wanted;
    let known = chain.tables.iter().position(is_it).map(|at| Cell::Rows(TableId(at as u16)));
    let first = chain.sinks.iter().position(|other| other.target.table() == Some(wanted));
    known.or(first.map(|at| Cell::Sent(SinkId(at as u16))))
}

/// Collects the effects of a handler, block by block.
struct Walk<'f> {
    function: &'f Function,
    chain: &'f ChainProgram,
    /// The inputs whose value depends on the frame's headers.
    of_frame: Vec<InputId>,
    flow: Flow,
    provenance: Provenance,
    names: Names<'f>,
    /// The blocks from which some path lets the tuple go on.
    going_on: Vec<bool>,
    /// The condition of each block.
    conditions: Vec<Condition>,
    effects: Effects,
}

impl Walk<'_> {
    /// Records the effects of a block's instructions. `own` are the inputs that the handler has certainly set before.
    fn block(&mut self, at: usize, block: &Block, mut own: InputSet) {
        let goes_on = self.going_on[at];
        for inst in &block.insts {
            self.tuple(at, inst, own);
            self.answer(inst, goes_on);
            self.state(at, inst);
            self.rest(at, inst);
            own = own_after(own, &inst.op);
        }
    }

    /// Records a read or write of the tuple. A read of an input that the handler has set itself does not count.
    fn tuple(&mut self, at: usize, inst: &Inst, own: InputSet) {
        let line = inst.line;
        match inst.op {
            Op::Input(id) | Op::InputPresent(id) if !own.contains(id) => {
                self.effects.reads.entry(id).or_default().insert(line);
            }
            // The element sees the message with its own changes.
            Op::Derived(id) => {
                self.effects.reads.entry(id).or_default().insert(line);
            }
            Op::SetInput(id, _) | Op::ClearInput(id) => {
                let given = self.sources_of(at, inst);
                let write = self.effects.writes.entry(id).or_default();
                write.lines.insert(line);
                write.given.extend(given);
                write.clears |= matches!(inst.op, Op::ClearInput(_));
            }
            _ => {}
        }
    }

    /// Records a field of an answer or reply. `goes_on`: the tuple may go on after this block.
    fn answer(&mut self, inst: &Inst, goes_on: bool) {
        let effects = &mut self.effects;
        let (name, all, left): (NameId, &mut BTreeMap<_, SourceLines>, &mut BTreeMap<_, SourceLines>) =
            match inst.op {
                Op::SetAnswer(name, _) => (name, &mut effects.answers, &mut effects.answers_left),
                Op::SetReply(name, _) => (name, &mut effects.replies, &mut effects.replies_left),
                _ => return,
            };
        all.entry(name).or_default().insert(inst.line);
        if goes_on {
            left.entry(name).or_default().insert(inst.line);
        }
    }

    /// Records a read or write of state: variables, the call's row, tables.
    fn state(&mut self, at: usize, inst: &Inst) {
        let line = inst.line;
        match inst.op {
            Op::CallGet(id) => self.reads(Cell::Call(id), line, None),
            Op::CallSet(id, ..) => self.writes(at, inst, Cell::Call(id), None),
            Op::VarGet(id) | Op::VarMerged(id) => self.reads(Cell::Var(id), line, None),
            Op::VarSet(id, ..) | Op::VarReset(id) => self.writes(at, inst, Cell::Var(id), None),
            Op::VarMerge(id, ..) => {
                let only = self.conditions[at].clone();
                let used = self.effects.cells.entry(Cell::Var(id)).or_default();
                used.merges.insert(line);
                used.only.push(only);
            }
            Op::Find(table, key) => self.look(table, Some(key), line),
            Op::Match(table, id, _) => {
                self.look(table, None, line);
                for column in self.chain.matches[usize::from(id.0)].spec.columns() {
                    self.reads(Cell::Column(table, ColumnId(column)), line, None);
                }
            }
            Op::Count(table) | Op::ScanRow(table, _) | Op::ExpiredRow(table) => self.look(table, None, line),
            Op::Insert(table, key, _) => {
                self.look(table, Some(key), line);
                self.writes(at, inst, Cell::Rows(table), None);
                self.moves(table, line);
            }
            Op::Remove(table, ..) => {
                self.writes(at, inst, Cell::Rows(table), None);
                self.moves(table, line);
            }
            Op::Touch(table, _) | Op::TouchRead(table, _) => {
                self.writes(at, inst, Cell::Rows(table), None);
            }
            Op::Column(table, row, column) | Op::ColumnIsNull(table, row, column) => {
                self.reads(Cell::Column(table, column), line, Some(row));
            }
            // A full table accepts no new key, so rows of different keys conflict as well.
            Op::Emit(sink, _) => {
                if let Some(cell) = sink_table(self.chain, sink) {
                    self.writes(at, inst, cell, None);
                    self.effects.cells.entry(cell).or_default().moves.insert(line);
                }
            }
            Op::SetColumn(table, row, column, ..)
            | Op::SetColumnNull(table, row, column, _)
            | Op::CountInto(table, row, column, ..) => {
                self.writes(at, inst, Cell::Column(table, column), Some(row));
            }
            _ => {}
        }
    }

    fn moves(&mut self, table: TableId, line: u32) {
        self.effects.cells.entry(Cell::Rows(table)).or_default().moves.insert(line);
    }

    /// Records a test for the existence of rows. It may find an expired or evicted row of any key, so it covers all
    /// rows.
    fn look(&mut self, table: TableId, key: Option<Value>, line: u32) {
        let key = key.map(|key| self.names.key(key, &self.provenance));
        let look = TableRead { table, key, line };
        if !self.effects.table_reads.contains(&look) {
            self.effects.table_reads.push(look);
        }
        self.reads(Cell::Rows(table), line, None);
    }

    fn reads(&mut self, cell: Cell, line: u32, row: Option<Value>) {
        self.use_of(cell, row).reads.insert(line);
    }

    /// Records a write by an instruction of block `at`.
    fn writes(&mut self, at: usize, inst: &Inst, cell: Cell, row: Option<Value>) {
        let (given, only) = (self.sources_of(at, inst), self.conditions[at].clone());
        let used = self.use_of(cell, row);
        used.writes.insert(inst.line);
        used.given.extend(given);
        used.only.push(only);
        used.is_changed |= !matches!(inst.op, Op::TouchRead(..));
    }

    /// The sources of an instruction's operands in block `at`, and of whether it runs.
    fn sources_of(&self, at: usize, inst: &Inst) -> Sources {
        let deciding = self.provenance.of_conditions(self.flow.deciding(at).as_deref());
        deciding.into_iter().chain(self.provenance.of_all(&inst.op.operands())).collect()
    }

    /// The entry for a use of a cell, with its rows recorded.
    fn use_of(&mut self, cell: Cell, row: Option<Value>) -> &mut CellUse {
        let rows = row.map_or(RowSet::All, |row| self.names.rows(self.function, row, &self.provenance));
        let used = self.effects.cells.entry(cell).or_default();
        used.rows.add(&rows);
        used
    }

    /// Records all other effects: sinks, copies, header changes, delays, marks, the clock, random numbers, scratch.
    fn rest(&mut self, at: usize, inst: &Inst) {
        let (line, function) = (inst.line, self.function);
        let effects = &mut self.effects;
        match inst.op {
            Op::Emit(sink, _) => {
                effects.sinks.entry(sink).or_default().insert(line);
                effects.sinks_only.entry(sink).or_default().push(self.conditions[at].clone());
            }
            Op::Mirror(_) => {
                effects.mirrors.insert(line);
            }
            Op::ChangeHeaders(..) => {
                effects.reshapes.insert(line);
                for id in &self.of_frame {
                    effects.reads.entry(*id).or_default().insert(line);
                    effects.writes.entry(*id).or_default().lines.insert(line);
                }
            }
            Op::Delay(_) => {
                effects.delays.insert(line);
            }
            Op::Mark(..) => {
                effects.marks.insert(line);
            }
            Op::Egress => {
                effects.egress.insert(line);
            }
            Op::Now => {
                effects.clock.insert(line);
            }
            Op::Rand(site) => {
                effects.draws.entry(site).or_default().insert(line);
            }
            Op::Native(id, ..) => {
                let decl = &self.chain.natives[usize::from(id.0)];
                match decl.native.info().effect {
                    Effect::Pure => {}
                    Effect::Clock => drop(effects.clock.insert(line)),
                    Effect::Random | Effect::Nonce => {
                        effects.draws.entry(decl.site).or_default().insert(line);
                    }
                }
            }
            _ => {}
        }
        let ty = |value: Value| function.ty(value);
        if inst.op == Op::ScratchFull || inst.op.takes_scratch(inst.result.map(ty), ty) {
            effects.room.insert(line);
        }
    }

    /// Records how a block ends the tuple, if it does.
    fn end(&mut self, at: usize, end: &Terminator, fail_open: bool) {
        let kind = match *end {
            Terminator::Redirect { to, line } => {
                self.effects.redirects.insert(line);
                // Later elements do not see the tuple now, and perhaps never.
                if self.known_text(Some(to)).is_none_or(|to| to != HOLD.as_bytes()) {
                    return;
                }
                EndKind::Drop
            }
            Terminator::Drop { .. } => EndKind::Drop,
            Terminator::Reply { .. } => EndKind::Reply,
            Terminator::Abort { status, text, .. } => {
                EndKind::Abort(self.status(status), self.known_text(text))
            }
            Terminator::Fail { fault, .. } if !fail_open => EndKind::Fail(self.faults(fault)),
            _ => return,
        };
        let deciding = self.provenance.of_conditions(self.flow.deciding(at).as_deref());
        self.effects.ends.push(Ending {
            when: deciding.into_iter().chain(self.provenance.of_all(&end.operands())).collect(),
            is_room: matches!(kind, EndKind::Fail(_)) && self.is_room(at),
            kind,
            only: self.conditions[at].clone(),
            line: end.line(),
        });
    }

    /// Returns the status of an ABORT, if it is constant.
    fn status(&self, status: StatusOperand) -> Option<Status> {
        match status {
            StatusOperand::Known(status) => Some(status),
            StatusOperand::Computed(_) => None,
        }
    }

    /// Returns a text if it is a constant. No text counts as empty.
    fn known_text(&self, text: Option<Value>) -> Option<Vec<u8>> {
        let Some(text) = text else { return Some(Vec::new()) };
        match self.names.definition(text)? {
            Op::BytesConst(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Returns the faults that a code may stand for, sorted. Empty if they are not all known.
    fn faults(&self, code: Value) -> Vec<Fault> {
        let (codes, is_all) = self.names.constants(code);
        let fault = |code: &i64| u8::try_from(*code).ok().and_then(Fault::from_code);
        let mut faults: Vec<Fault> = codes.iter().filter_map(fault).collect();
        faults.sort_by_key(|fault| fault.code());
        faults.dedup();
        if is_all && codes.iter().all(|code| fault(code).is_some() || *code == 0) {
            faults
        } else {
            Vec::new()
        }
    }

    /// Whether a value is true only if the scratch is full, or a result was too long.
    fn is_full(&self, by: Value) -> bool {
        // Without recursion: a statement may test as many flags as it has parts.
        let mut left = vec![by];
        while let Some(by) = left.pop() {
            let is_full = match self.names.definition(by) {
                Some(Op::ScratchFull) => true,
                Some(Op::NativeFailed(result)) => match self.names.definition(*result) {
                    Some(Op::Native(id, _)) => {
                        self.chain.natives[usize::from(id.0)].native.info().fails_for_length()
                    }
                    _ => false,
                },
                Some(Op::BoolBinary(BoolOp::Or, a, b)) => {
                    left.extend([*a, *b]);
                    true
                }
                _ => false,
            };
            if !is_full {
                return false;
            }
        }
        true
    }

    /// Whether a block is entered only for lack of room.
    fn is_room(&self, at: usize) -> bool {
        let is_full = |by: Value| self.is_full(by);
        let mut entries = self.flow.entries(at).map(|from| &self.function.blocks[from]).peekable();
        entries.peek().is_some()
            && entries.all(|block| match &block.end {
                Terminator::Branch(by, _, no) => is_full(*by) && no.block.0 as usize != at,
                _ => false,
            })
    }

    /// Marks the writes that happen on all paths that go on.
    fn mark_certain_writes(&mut self, own: &[InputSet]) {
        let paths = self
            .function
            .blocks
            .iter()
            .zip(own)
            .enumerate()
            .filter(|(at, (block, _))| block.end.continues() && self.flow.is_reached(*at));
        let behind = |(_, (block, own)): (usize, (&Block, &InputSet))| {
            block.insts.iter().fold(*own, |own, inst| own_after(own, &inst.op))
        };
        let always = paths.map(behind).reduce(|a, b| a & b).unwrap_or_default();
        for (id, write) in &mut self.effects.writes {
            write.always = always.contains(*id);
            write.blind = write.always && !self.effects.reads.contains_key(id);
        }
    }
}

/// Returns, for each block, the inputs that the handler has set on every path to it.
fn own_writes(function: &Function) -> Vec<InputSet> {
    let mut before = vec![InputSet::ALL; function.blocks.len()];
    before[0] = InputSet::EMPTY;
    loop {
        let mut changed = false;
        for (at, block) in function.blocks.iter().enumerate() {
            let behind = block.insts.iter().fold(before[at], |own, inst| own_after(own, &inst.op));
            for to in block.end.targets() {
                changed |= before[to] & behind != before[to];
                before[to] &= behind;
            }
        }
        if !changed {
            return before;
        }
    }
}

/// Returns the inputs that the handler has set, after this operation.
fn own_after(own: InputSet, op: &Op) -> InputSet {
    match *op {
        Op::SetInput(id, _) | Op::ClearInput(id) => own | InputSet::of(id),
        Op::RollBack => InputSet::EMPTY,
        _ => own,
    }
}
