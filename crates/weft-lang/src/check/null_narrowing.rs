//! NULL narrowing: after a condition has excluded NULL, a value has a non-nullable type. It applies to LETs and to
//! frame fields, because no handler can set a frame field to NULL.

use crate::hir::{Expr, ExprKind, LocalId};

/// A value that is known not to be NULL at this point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NonNull {
    Local(LocalId),
    Column(usize),
}

/// The values that are known not to be NULL at this point.
#[derive(Debug)]
pub(super) struct NonNulls {
    known: Vec<NonNull>,
    /// Columns are fields of a frame.
    are_frames: bool,
}

impl NonNulls {
    pub(super) fn new(are_frames: bool) -> Self {
        Self { known: Vec::new(), are_frames }
    }

    /// Whether the value is known not to be NULL here.
    pub(super) fn contains(&self, of: NonNull) -> bool {
        self.known.contains(&of)
    }

    /// The columns that are known not to be NULL here.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        self.known.iter().filter_map(|known| if let NonNull::Column(at) = known { Some(*at) } else { None })
    }

    /// The number of facts, for [`Self::forget_after`].
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets all facts but the first `n`.
    pub(super) fn forget_after(&mut self, n: usize) {
        self.known.truncate(n);
    }

    /// Assumes that a condition is true up to the end of the block, and marks its values as not NULL.
    pub(super) fn assume_true(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::And(left, right) => {
                self.assume_true(left);
                self.assume_true(right);
            }
            ExprKind::Not(inner) => match &inner.kind {
                ExprKind::IsNull(operand) => self.mark(operand),
                _ => self.assume_known(inner),
            },
            _ => self.assume_known(condition),
        }
    }

    /// Assumes that a condition is true or false: then its compared values are not NULL.
    fn assume_known(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::Compare { left, right, .. } => {
                self.mark(left);
                self.mark(right);
            }
            _ => self.mark(condition),
        }
    }

    /// Assumes that a condition is not true up to the end of the block: it is false, or NULL.
    pub(super) fn assume_not_true(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::Or(left, right) => {
                self.assume_not_true(left);
                self.assume_not_true(right);
            }
            ExprKind::IsNull(operand) => self.mark(operand),
            ExprKind::Not(inner) if !inner.nullable => self.assume_true(inner),
            _ => {}
        }
    }

    /// Marks a local or a column of a packet element as not NULL. Ignores every other expression.
    fn mark(&mut self, expr: &Expr) {
        match expr.kind {
            ExprKind::Local(id) => self.known.push(NonNull::Local(id)),
            ExprKind::Column(at) if self.are_frames => self.known.push(NonNull::Column(at)),
            _ => {}
        }
    }
}
