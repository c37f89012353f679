//! Lowers operations on lists of a message: `ANY`, `ALL` and `COUNT`, each a loop over the cells of the elements
//! ([`weft_core::list`]).

use weft_core::Type;
use weft_core::abi::Fault;
use weft_core::list::{CELL_BYTES, HEAD_BYTES};
use weft_ir::ir::{IntCmp, IntOp, Op, Ty, Value};
use weft_lang::ast::ListForm;
use weft_lang::hir::{ColumnLocation, Expr};

use super::body::Body;
use super::logic::{RaisedFault, Val};

/// The current list element of a condition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    list: Value,
    /// The address of its cells in the list.
    cells: Value,
}

impl Body<'_, '_> {
    /// Lowers an operation on a list. A list with more than `elements_max` elements is an error, whatever they are.
    ///
    /// `ANY` is the OR of the conditions and `ALL` their AND, with unknown taken as false: an error counts only if no
    /// element decides.
    pub(super) fn list(
        &mut self,
        form: ListForm,
        column: usize,
        elements_max: u64,
        filter: Option<&Expr>,
    ) -> Val {
        let ColumnLocation::List(place) = &self.scope.instance.bindings[column].place else {
            unreachable!("the checker declares the column of a list")
        };
        let stride = (place.members.len() * CELL_BYTES) as i64;
        let list = self.column(column).value;
        let (zero, one) = (self.b.int(0), self.b.int(1));
        let n = self.b.get(Op::WordAt(list, zero), Ty::Int);
        let most = self.b.int(elements_max as i64);
        let fits = self.b.int_compare(IntCmp::ULe, n, most);
        let too_many = self.b.not(fits);
        let too_many = self.b.raise(too_many, Fault::TooMany);
        let Some(filter) = filter else { return Val { value: n, null: None, fault: too_many } };
        // A list with too many elements has no cells.
        let n = self.b.select(fits, n, zero);

        let path = self.path.clone();
        let head = self.b.scan_block(elements_max);
        let (body, exit) = (self.b.block(), self.b.block());
        let at = self.b.param(head, Ty::Int);
        let (ty, start) = match form {
            ListForm::Count => (Ty::Int, zero),
            // Whether an element has decided.
            ListForm::Any | ListForm::All => (Ty::Bool, self.b.bool(false)),
        };
        let state = self.b.param(head, ty);
        let known = RaisedFault { is: self.b.param(head, Ty::Bool), code: self.b.param(head, Ty::Int) };
        let no = self.b.bool(false);
        self.b.jump(head, vec![zero, start, no, zero]);

        self.b.switch(head);
        let more = self.b.int_compare(IntCmp::SLt, at, n);
        let goes_on = match form {
            ListForm::Count => more,
            ListForm::Any | ListForm::All => self.b.unless(more, Some(state)),
        };
        self.b.branch(goes_on, body, exit);

        self.b.switch(body);
        let (stride, first) = (self.b.int(stride), self.b.int(HEAD_BYTES as i64));
        let cells = self.b.int_binary(IntOp::Mul, at, stride);
        let cells = self.b.int_binary(IntOp::Add, cells, first);
        self.item = Some(Item { list, cells });
        let holds = self.expr(filter);
        self.item = None;
        let is_true = self.b.is_true(holds);
        let failed = holds.fault.map(|fault| fault.is);
        let next_state = match form {
            ListForm::Count => {
                let counts = self.b.unless(is_true, failed);
                let more = self.b.get(Op::BoolToInt(counts), Ty::Int);
                self.b.int_binary(IntOp::Add, state, more)
            }
            ListForm::Any => self.b.unless(is_true, failed),
            ListForm::All => {
                let is_not = self.b.not(is_true);
                self.b.unless(is_not, failed)
            }
        };
        let next = self.b.int_binary(IntOp::Add, at, one);
        let raised = self.b.first(Some(known), holds.fault).unwrap_or(known);
        self.b.jump(head, vec![next, next_state, raised.is, raised.code]);

        self.path = path;
        self.b.switch(exit);
        let (value, fault) = match form {
            ListForm::Count => (state, Some(known)),
            ListForm::Any | ListForm::All => {
                let open = self.b.not(state);
                let value = if form == ListForm::Any { state } else { open };
                (value, self.b.fault_when(Some(known), open))
            }
        };
        Val { value, null: None, fault: self.b.first(too_many, fault) }
    }

    /// Reads a member of the current list element. NULL outside of a list expression.
    pub(super) fn member(&mut self, member: usize, ty: Type, nullable: bool) -> Val {
        let Some(Item { list, cells }) = self.item else { return self.absent(ty) };
        let offset = self.b.int((member * CELL_BYTES) as i64);
        let place = self.b.int_binary(IntOp::Add, cells, offset);
        let word = self.b.int(8);
        let behind = self.b.int_binary(IntOp::Add, place, word);
        let first = self.b.get(Op::WordAt(list, place), Ty::Int);
        let (zero, one) = (self.b.int(0), self.b.int(1));
        let value = match Ty::of(ty) {
            Ty::Bytes => {
                let second = self.b.get(Op::WordAt(list, behind), Ty::Int);
                let len = self.b.int_binary(IntOp::Shr, second, one);
                self.b.get(Op::Part(list, first, len), Ty::Bytes)
            }
            Ty::Bool => self.b.int_compare(IntCmp::Ne, first, zero),
            Ty::Float => self.b.get(Op::FloatOfBits(first), Ty::Float),
            Ty::Int | Ty::Row => first,
        };
        let null = nullable.then(|| {
            let second = self.b.get(Op::WordAt(list, behind), Ty::Int);
            let present = self.b.int_binary(IntOp::And, second, one);
            self.b.int_compare(IntCmp::Eq, present, zero)
        });
        Val { value, null, fault: None }
    }
}
