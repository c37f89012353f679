//! Checks the operands and results of operations and terminators, and the declarations that they name.

use super::{Check, Handler, Rule, blocks, key_ty, row_of};
use crate::ir::*;
use crate::program::{Input, InputLocation, Realisation};
use weft_core::matching::{MatchPart, Test};
use weft_core::native::Param;
use weft_core::table::TableSpec;
use weft_core::types::{Repr, Type};

/// The result of an operation: nothing, or a value of a type. The type None fits any type, because the check has
/// already reported an error.
enum OpResult {
    Nothing,
    Value(Option<Ty>),
}

impl<'a> Check<'a> {
    /// Checks rules 4, 6 and 8 to 11, and rule 2 for names that the chain declares.
    pub(super) fn types(&mut self) {
        for (id, block) in blocks(self.function) {
            self.at = Some(id);
            for inst in &block.insts {
                self.line = inst.line;
                let gives = self.check_op(&inst.op);
                self.check_result(inst, &gives);
                if self.handler == Handler::Parse && !may_parse(&inst.op) {
                    self.report(Rule::Parse, "PARSE only reads the frame".into());
                }
            }
            self.line = block.end.line();
            self.check_terminator(&block.end);
            let ends = matches!(
                block.end,
                Terminator::Jump(_) | Terminator::Branch(..) | Terminator::Forward | Terminator::Drop { .. }
            );
            if self.handler == Handler::Parse && !ends {
                self.report(Rule::Parse, "PARSE ends with FORWARD or DROP".into());
            }
        }
    }

    /// Checks the result of an instruction against what its operation gives.
    fn check_result(&mut self, inst: &Inst, gives: &OpResult) {
        match (inst.result, gives) {
            (None, OpResult::Nothing) | (Some(_), OpResult::Value(None)) => {}
            (Some(v), OpResult::Value(Some(ty))) => {
                if self.function.ty(v) != *ty {
                    self.report(
                        Rule::Type,
                        format!("v{} is {:?}, but gets {ty:?}", v.0, self.function.ty(v)),
                    );
                }
            }
            (Some(v), OpResult::Nothing) => self.report(Rule::Type, format!("v{} gets no value", v.0)),
            (None, OpResult::Value(_)) => self.report(Rule::Type, "the result is not named".into()),
        }
    }

    /// Checks that a value has this type.
    fn want(&mut self, value: Value, ty: Ty) {
        let is = self.function.ty(value);
        if is != ty {
            self.report(Rule::Type, format!("v{} is {is:?}; expected {ty:?}", value.0));
        }
    }

    /// Checks that all values have this type.
    fn want_all(&mut self, values: &[Value], ty: Ty) {
        values.iter().for_each(|&v| self.want(v, ty));
    }

    /// All values must have the type `takes`; the operation gives `gives`.
    fn maps(&mut self, values: &[Value], takes: Ty, gives: Ty) -> OpResult {
        self.want_all(values, takes);
        OpResult::Value(Some(gives))
    }

    /// Checks the operands of an operation; returns what it gives.
    fn check_op(&mut self, op: &Op) -> OpResult {
        use Ty::{Bool, Bytes, Float, Int, Row};
        if let Some((takes, gives)) = op.word_types() {
            let overflows = |op, signed| {
                matches!((op, signed), (IntOp::Add | IntOp::Sub | IntOp::Mul, _) | (IntOp::SDiv, Signed::Yes))
            };
            if let Op::Overflows(op, signed, ..) = *op
                && !overflows(op, signed)
            {
                self.report(Rule::Type, format!("{op:?} does not overflow"));
            }
            return self.maps(&op.operands(), takes, gives);
        }
        match *op {
            Op::ScratchFull => OpResult::Value(Some(Bool)),
            Op::Rand(_) => OpResult::Value(Some(Float)),
            Op::BytesConst(_) | Op::Egress => OpResult::Value(Some(Bytes)),
            Op::NoRow => OpResult::Value(Some(Row)),
            Op::Now => OpResult::Value(Some(Int)),
            Op::IntToText(_, a) => self.maps(&[a], Int, Bytes),
            Op::FloatToText(a) => self.maps(&[a], Float, Bytes),
            Op::IsIntText(_, a) | Op::IsFloatText(a) | Op::InPrefixes(a, _) => self.maps(&[a], Bytes, Bool),
            Op::TextToFloat(a) => self.maps(&[a], Bytes, Float),
            Op::TextToInt(_, a) | Op::Len(a) | Op::ByteAt(a, _) => self.maps(&[a], Bytes, Int),
            Op::WordAt(a, at) => {
                self.want(at, Int);
                self.maps(&[a], Bytes, Int)
            }
            Op::Select(by, a, b) => {
                self.want(by, Bool);
                let ty = self.function.ty(a);
                self.maps(&[b], ty, ty)
            }
            Op::BytesCompare(_, a, b) | Op::InPrefix(a, b) => self.maps(&[a, b], Bytes, Bool),
            Op::Concat(ref parts) => self.maps(parts, Bytes, Bytes),
            Op::Lower(a) | Op::Upper(a) => self.maps(&[a], Bytes, Bytes),
            Op::Slice(a, from, count) | Op::Part(a, from, count) => {
                self.want_all(&[from, count], Int);
                self.maps(&[a], Bytes, Bytes)
            }
            Op::Hash(a) => {
                if self.function.ty(a) != Int {
                    self.want(a, Bytes);
                }
                OpResult::Value(Some(Int))
            }
            Op::Native(id, ref args) => self.check_native(id, args),
            Op::NativeNull(a) | Op::NativeFailed(a) => {
                let insts = self.function.insts();
                let gives = |inst: &Inst| inst.result == Some(a) && matches!(inst.op, Op::Native(..));
                if !insts.into_iter().any(gives) {
                    self.report(Rule::Type, format!("v{} is not the result of a native function", a.0));
                }
                OpResult::Value(Some(Bool))
            }
            Op::Input(id) => OpResult::Value(self.input(id).map(|input| Ty::of(input.ty))),
            Op::Derived(id) => {
                let input = self.input(id);
                if let Some(other) = input.filter(|input| !input.place.is_derived()) {
                    self.report(Rule::Derived, format!("{} is not derived from the message", other.name));
                }
                OpResult::Value(input.map(|input| Ty::of(input.ty)))
            }
            Op::InputPresent(id) => {
                self.input(id);
                OpResult::Value(Some(Bool))
            }
            Op::SetInput(..)
            | Op::ClearInput(_)
            | Op::SetAnswer(..)
            | Op::SetReply(..)
            | Op::ChangeHeaders(..)
            | Op::Delay(_)
            | Op::Mark(..)
            | Op::Mirror(_)
            | Op::Emit(..) => self.check_output_op(op),
            Op::CallGet(_)
            | Op::CallSet(..)
            | Op::VarGet(_)
            | Op::VarSet(..)
            | Op::VarMerge(..)
            | Op::VarMerged(_)
            | Op::VarReset(_) => self.check_scalar_op(op),
            Op::Key(ref parts) => {
                if parts.is_empty() || parts.iter().any(|&v| self.function.ty(v) == Row) {
                    self.report(Rule::Type, "a key needs one or more values, and no rows".into());
                }
                OpResult::Value(Some(Bytes))
            }
            Op::IsRow(row) => self.maps(&[row], Row, Bool),
            Op::LockVars | Op::RollBack => OpResult::Nothing,
            Op::FrameLen | Op::FrameGet(..) | Op::FrameSum(..) | Op::Give(..) => self.check_frame_op(op),
            _ => self.check_table_op(op),
        }
    }

    /// Checks rule 15 for an operation on frame bytes or given inputs.
    fn check_frame_op(&mut self, op: &Op) -> OpResult {
        if self.handler != Handler::Parse {
            self.report(Rule::Parse, "only PARSE reads the bytes of a frame".into());
        }
        match *op {
            Op::FrameGet(at, bytes, _) => {
                if !(1..=8).contains(&bytes) {
                    self.report(Rule::Parse, format!("a number of {bytes} bytes; 1 to 8 can be read"));
                }
                self.maps(&[at], Ty::Int, Ty::Int)
            }
            Op::FrameSum(at, bytes) => self.maps(&[at, bytes], Ty::Int, Ty::Int),
            Op::Give(id, a, b) => {
                let input = self.input(id);
                if input.is_some_and(|input| {
                    !matches!(input.place, InputLocation::Frame(_) | InputLocation::Layer(_))
                }) {
                    self.report(Rule::Parse, format!("input {} is not of the frame", id.0));
                }
                if b.is_none() && input.is_some_and(|input| Ty::of(input.ty) == Ty::Bytes) {
                    self.report(Rule::Parse, format!("input {} is a run of bytes without its length", id.0));
                }
                self.want_all(&[a, b.unwrap_or(a)], Ty::Int);
                OpResult::Nothing
            }
            _ => OpResult::Value(Some(Ty::Int)),
        }
    }

    /// Checks rule 14: the arguments of a native function fit its parameters.
    fn check_native(&mut self, id: NativeId, args: &[Value]) -> OpResult {
        let Some(decl) = self.declared("native function", &self.chain.natives, id.0) else {
            return OpResult::Value(None);
        };
        let info = decl.native.info();
        let params: Vec<Param> = info.params.iter().copied().filter(|param| !param.is_constant()).collect();
        if params.len() != args.len() {
            let (n, name) = (args.len(), info.name);
            self.report(Rule::Type, format!("{n} values for the {} parameters of {name}", params.len()));
        }
        for (&arg, param) in args.iter().zip(params) {
            match param {
                Param::Int => self.want(arg, Ty::Int),
                Param::Scalar if self.function.ty(arg) == Ty::Row => self.want(arg, Ty::Bytes),
                Param::Scalar => {}
                _ => self.want(arg, Ty::Bytes),
            }
        }
        OpResult::Value(Some(Ty::of(info.result)))
    }

    /// Finds an input of the handler's direction; reports an error if there is none.
    fn input(&mut self, id: InputId) -> Option<&'a Input> {
        let Some(direction) = self.handler.direction(self.chain) else {
            self.report(Rule::NoTuple, "EVERY has no inputs".into());
            return None;
        };
        let input = direction.inputs.get(usize::from(id.0));
        if input.is_none() {
            self.report(Rule::Exists, format!("there is no input {}", id.0));
        }
        input
    }

    /// Finds an input; reports an error if it is not declared as written.
    fn written_input(&mut self, id: InputId) -> Option<&'a Input> {
        let input = self.input(id)?;
        if !input.written {
            self.report(Rule::Written, format!("input {} is changed, but not declared so", input.name));
        }
        Some(input)
    }

    /// Reports an error in handlers without a tuple.
    fn needs_tuple(&mut self, what: &str) {
        if self.handler.is_timed() {
            self.report(Rule::NoTuple, format!("{what} in EVERY or TIMEOUT, where there is no tuple"));
        }
    }

    /// Finds a declaration by its index; reports an error if there is none.
    fn declared<T>(&mut self, what: &str, list: &'a [T], index: u16) -> Option<&'a T> {
        let found = list.get(usize::from(index));
        if found.is_none() {
            self.report(Rule::Exists, format!("there is no {what} {index}"));
        }
        found
    }

    /// Checks an operation on the tuple or the outputs; returns what it gives.
    fn check_output_op(&mut self, op: &Op) -> OpResult {
        let chain = self.chain;
        match *op {
            Op::SetInput(id, value) => {
                if let Some(input) = self.written_input(id) {
                    self.want(value, Ty::of(input.ty));
                }
            }
            Op::ClearInput(id) => {
                let input = self.written_input(id);
                let clears = |i: &Input| {
                    i.nullable
                        || i.place.path().is_some()
                        || matches!(i.place, InputLocation::Header(_) | InputLocation::Trailer(_))
                };
                if input.is_some_and(|i| !clears(i)) {
                    self.report(Rule::Written, format!("input {} cannot be NULL", id.0));
                }
            }
            Op::SetAnswer(name, value) => {
                self.needs_tuple("an answer");
                self.declared("answer", &chain.answers, name.0);
                self.want(value, Ty::Bytes);
            }
            Op::SetReply(name, value) => {
                self.needs_tuple("a reply");
                if let Some(field) = self.declared("reply field", &chain.replies, name.0) {
                    self.want(value, Ty::of(field.ty));
                }
            }
            Op::ChangeHeaders(id, ref parts) => {
                self.needs_tuple("another frame");
                let Some(decl) = self.declared("change of structure", &chain.header_changes, id.0) else {
                    return OpResult::Nothing;
                };
                if decl.params.len() != parts.len() {
                    let (n, params) = (parts.len(), decl.params.len());
                    self.report(Rule::Type, format!("{n} values for {params} parameters of r{}", id.0));
                }
                for (ty, part) in decl.params.iter().zip(parts) {
                    self.want(*part, Ty::of(*ty));
                }
            }
            Op::Delay(value) | Op::Mark(_, value) => {
                self.needs_tuple("a delay or mark");
                self.want(value, Ty::Int);
            }
            Op::Mirror(value) => {
                self.needs_tuple("a mirror");
                self.want(value, Ty::Bytes);
            }
            Op::Emit(id, ref cells) => {
                let Some(sink) = self.declared("sink", &chain.sinks, id.0) else { return OpResult::Nothing };
                if sink.columns.len() != cells.len() {
                    let (n, columns) = (cells.len(), sink.columns.len());
                    self.report(Rule::Type, format!("{n} cells for the {columns} columns of {}", sink.name));
                }
                for (column, &(value, null)) in sink.columns.iter().zip(cells) {
                    self.want(value, Ty::of(column.ty));
                    null.into_iter().for_each(|null| self.want(null, Ty::Bool));
                }
            }
            _ => {}
        }
        OpResult::Nothing
    }

    /// Checks an operation on call cells or variables; returns what it gives.
    fn check_scalar_op(&mut self, op: &Op) -> OpResult {
        let chain = self.chain;
        match *op {
            Op::CallGet(id) => {
                OpResult::Value(self.declared("call cell", &chain.call, id.0).map(|c| Ty::of(c.ty)))
            }
            Op::CallSet(id, value, _) => {
                if let Some(cell) = self.declared("call cell", &chain.call, id.0) {
                    self.want(value, Ty::of(cell.ty));
                }
                OpResult::Nothing
            }
            Op::VarGet(id) => OpResult::Value(self.var(id, false)),
            Op::VarSet(id, value, _) => {
                if let Some(ty) = self.var(id, false) {
                    self.want(value, ty);
                }
                OpResult::Nothing
            }
            Op::VarMerge(id, value, _) => {
                self.var(id, true);
                self.want(value, Ty::Int);
                OpResult::Nothing
            }
            Op::VarMerged(id) => {
                self.merged(id);
                OpResult::Value(Some(Ty::Int))
            }
            Op::VarReset(id) => {
                self.merged(id);
                OpResult::Nothing
            }
            _ => OpResult::Nothing,
        }
    }

    /// Checks a use of a merged variable's value, which only EVERY may read or reset.
    fn merged(&mut self, id: VarId) {
        self.var(id, true);
        if self.handler != Handler::Every {
            self.report(Rule::Merge, "only EVERY reads merged values".into());
        }
    }

    /// The type of a variable; reports an error if it is MERGE and `merge` is false, or the reverse.
    fn var(&mut self, id: VarId, merge: bool) -> Option<Ty> {
        let chain = self.chain;
        let var = self.declared("variable", &chain.vars, id.0)?;
        if var.merge.is_some() != merge {
            let is = if merge { "is not" } else { "is" };
            self.report(Rule::Merge, format!("variable {} {is} declared MERGE", var.name));
        }
        Some(Ty::of(var.ty))
    }

    /// Checks an operation on a table; returns what it gives.
    fn check_table_op(&mut self, op: &Op) -> OpResult {
        let (table, row) = match *op {
            Op::Find(table, key) => return self.check_keyed_op(table, key, false),
            Op::Match(table, id, ref keys) => return self.check_match(table, id, keys),
            Op::Insert(table, key, _) => return self.check_keyed_op(table, key, true),
            Op::Lock(table, key) => {
                match key {
                    Some(key) => drop(self.check_keyed_op(table, key, false)),
                    None => drop(self.table(table)),
                }
                return OpResult::Nothing;
            }
            Op::Count(table) => {
                self.table(table);
                return OpResult::Value(Some(Ty::Int));
            }
            Op::ScanRow(table, cursor) => {
                self.table(table);
                return self.maps(&[cursor], Ty::Int, Ty::Row);
            }
            Op::ExpiredRow(table) => {
                self.table(table);
                if self.handler != Handler::Timeout {
                    self.report(Rule::ExpiredRow, "only TIMEOUT has an expired row".into());
                }
                return OpResult::Value(Some(Ty::Row));
            }
            Op::ScanNext(table, row) => {
                self.table(table);
                return self.maps(&[row], Ty::Row, Ty::Int);
            }
            _ => match row_of(op) {
                Some(found) => found,
                None => return OpResult::Nothing,
            },
        };
        self.want(row, Ty::Row);
        match *op {
            Op::Column(_, _, column) => {
                OpResult::Value(self.column(table, column).map(|(ty, ..)| Ty::of(ty)))
            }
            Op::ColumnIsNull(_, _, column) => {
                self.column(table, column);
                OpResult::Value(Some(Ty::Bool))
            }
            Op::SetColumn(_, _, column, value, _) => {
                self.check_writable(table);
                if let Some((ty, _, is_key)) = self.column(table, column) {
                    self.want(value, Ty::of(ty));
                    self.refuse_key_column(is_key);
                }
                OpResult::Value(Some(Ty::Bool))
            }
            Op::CountInto(_, _, column, bin, _) => {
                self.check_writable(table);
                self.want(bin, Ty::Int);
                if let Some((ty, _, is_key)) = self.column(table, column) {
                    self.refuse_key_column(is_key);
                    if Ty::of(ty) != Ty::Bytes {
                        self.report(Rule::Type, "counters are in a column of bytes".into());
                    }
                }
                OpResult::Nothing
            }
            Op::SetColumnNull(_, _, column, _) => {
                self.check_writable(table);
                if let Some((_, nullable, is_key)) = self.column(table, column) {
                    self.refuse_key_column(is_key);
                    if !nullable {
                        self.report(Rule::ReadOnly, "the column cannot be NULL".into());
                    }
                }
                OpResult::Nothing
            }
            // TouchRead marks the row in any copy of the table.
            Op::TouchRead(..) => OpResult::Nothing,
            _ => {
                self.check_writable(table);
                OpResult::Nothing
            }
        }
    }

    /// Checks an access by key; `writes` says whether it changes the table. It gives a row.
    fn check_keyed_op(&mut self, table: TableId, key: Value, writes: bool) -> OpResult {
        if let Some(spec) = self.table(table) {
            self.want(key, key_ty(spec));
        }
        if writes {
            self.check_writable(table);
        }
        OpResult::Value(Some(Ty::Row))
    }

    /// Checks rule 16: a match has a replicated table and a value of the right type for each part.
    fn check_match(&mut self, table: TableId, id: MatchId, keys: &[(Value, Option<Value>)]) -> OpResult {
        let gives = OpResult::Value(Some(Ty::Row));
        let Some(decl) = self.declared("match", &self.chain.matches, id.0) else { return gives };
        let Some(held) = self.declared("table", &self.chain.tables, table.0) else { return gives };
        if decl.table != table || held.realisation != Realisation::Replicated || !decl.spec.is_sound() {
            let what = format!("match {} is not on a replicated table {}", id.0, table.0);
            self.report(Rule::Match, what);
            return gives;
        }
        let types: Vec<Type> =
            held.spec.key.iter().chain(&held.spec.columns).map(|column| column.ty).collect();
        let fits = |column: u16, fits: &dyn Fn(Type) -> bool| {
            types.get(usize::from(column)).is_some_and(|ty| fits(*ty))
        };
        let is_ordered = fits(decl.spec.by, &|ty| ty.repr() == Repr::Int);
        let is_tested = |part: &MatchPart| {
            part.test.columns().all(|column| match part.test {
                Test::Within(_) => fits(column, &|ty| ty == Type::Cidr),
                Test::Masked { .. } => fits(column, &|ty| matches!(ty, Type::Int(_) | Type::Uint(_))),
                Test::Equal(_) | Test::Range { .. } => fits(column, &|ty| ty.repr() == part.ty.repr()),
            })
        };
        if !is_ordered || !decl.spec.parts.iter().all(is_tested) {
            self.report(Rule::Match, format!("match {} does not fit the columns of table {}", id.0, table.0));
        }
        if decl.spec.parts.len() != keys.len() {
            let (n, parts) = (keys.len(), decl.spec.parts.len());
            self.report(Rule::Match, format!("{n} values for the {parts} parts of match {}", id.0));
        }
        for (part, &(value, null)) in decl.spec.parts.iter().zip(keys) {
            self.want(value, Ty::of(part.ty));
            if null.is_some() && !part.nullable {
                self.report(Rule::Match, format!("v{} may be NULL, but its part may not", value.0));
            }
            null.into_iter().for_each(|null| self.want(null, Ty::Bool));
        }
        gives
    }

    /// The specification of a table; reports an error and returns None if it does not exist.
    fn table(&mut self, table: TableId) -> Option<&'a TableSpec> {
        let chain = self.chain;
        self.declared("table", &chain.tables, table.0).map(|decl| &decl.spec)
    }

    /// Finds a column: its type, whether it may be NULL, and whether it belongs to the key. Reports an error if there
    /// is none.
    fn column(&mut self, table: TableId, column: ColumnId) -> Option<(Type, bool, bool)> {
        let spec = self.table(table)?;
        let index = usize::from(column.0);
        let Some(found) = spec.key.iter().chain(&spec.columns).nth(index) else {
            self.report(Rule::Exists, format!("table {} has no column {index}", spec.name));
            return None;
        };
        Some((found.ty, found.nullable, index < spec.key.len()))
    }

    /// Reports an error if the table is replicated.
    fn check_writable(&mut self, table: TableId) {
        let decl = self.chain.tables.get(usize::from(table.0));
        if decl.is_some_and(|t| t.realisation == Realisation::Replicated) {
            self.report(Rule::ReadOnly, format!("table {} is replicated and cannot be written", table.0));
        }
    }

    /// Reports an error for a write to a key column.
    fn refuse_key_column(&mut self, is_key: bool) {
        if is_key {
            self.report(Rule::ReadOnly, "a key column cannot be set".into());
        }
    }

    /// Checks the operands and jumps of a terminator, and whether the handler allows it.
    fn check_terminator(&mut self, end: &Terminator) {
        match end {
            Terminator::Branch(by, ..) => self.want(*by, Ty::Bool),
            Terminator::Abort { status, text, .. } => {
                if let StatusOperand::Computed(code) = *status {
                    self.want(code, Ty::Int);
                }
                text.iter().for_each(|&text| self.want(text, Ty::Bytes));
            }
            Terminator::Redirect { to, .. } => self.want(*to, Ty::Bytes),
            Terminator::Fail { fault, .. } => self.want(*fault, Ty::Int),
            _ => {}
        }
        if matches!(
            end,
            Terminator::Drop { .. }
                | Terminator::Abort { .. }
                | Terminator::Reply { .. }
                | Terminator::Redirect { .. }
                | Terminator::Skip
                | Terminator::Steer { .. }
        ) {
            self.needs_tuple("a verdict");
        }
        for jump in end.jumps() {
            self.check_jump(jump);
        }
    }

    /// Checks that a jump passes values of the types that the block takes.
    fn check_jump(&mut self, jump: &Jump) {
        let params = &self.function.blocks[jump.block.0 as usize].params;
        let types = |values: &[Value]| values.iter().map(|&v| self.function.ty(v)).collect::<Vec<_>>();
        let (wanted, given) = (types(params), types(&jump.args));
        if wanted != given {
            self.report(Rule::Jump, format!("block{} takes {wanted:?}, but gets {given:?}", jump.block.0));
        }
    }
}

/// Whether the operation is allowed in PARSE.
fn may_parse(op: &Op) -> bool {
    use Op::{
        BoolBinary, BoolConst, BoolToInt, FrameGet, FrameLen, FrameSum, Give, InRange, IntBinary, IntCompare,
        IntConst, Not, Select,
    };
    matches!(
        op,
        BoolConst(_)
            | IntConst(_)
            | IntBinary(..)
            | IntCompare(..)
            | InRange(..)
            | BoolBinary(..)
            | Not(_)
            | Select(..)
            | BoolToInt(_)
            | FrameLen
            | FrameGet(..)
            | FrameSum(..)
            | Give(..)
    )
}
