//! NULL narrowing: after a condition has excluded NULL, a value has a non-nullable type. It applies to LETs and to
//! frame fields, because no handler can set a frame field to NULL.

use super::scope::Scope;
use crate::hir::{ColumnLocation, Expr, ExprKind, LocalId};
use weft_core::wire::{FieldRef, LayerRef};

/// A value that is known not to be NULL at this point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NonNull {
    Local(LocalId),
    Column(usize),
}

impl Scope<'_, '_> {
    /// Whether the value is known not to be NULL here.
    pub(super) fn is_non_null(&self, of: NonNull) -> bool {
        self.non_null.contains(&of)
    }

    /// Assumes that a condition is true up to the end of the block, and marks its values as not NULL.
    pub(super) fn assume_true(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::And(left, right) => {
                self.assume_true(left);
                self.assume_true(right);
            }
            ExprKind::Not(inner) => match &inner.kind {
                ExprKind::IsNull(operand) => self.mark_non_null(operand),
                _ => self.assume_known(inner),
            },
            _ => self.assume_known(condition),
        }
    }

    /// Assumes that a condition is true or false: then its compared values are not NULL.
    fn assume_known(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::Compare { left, right, .. } => {
                self.mark_non_null(left);
                self.mark_non_null(right);
            }
            _ => self.mark_non_null(condition),
        }
    }

    /// Assumes that a condition is not true up to the end of the block: it is false, or NULL.
    pub(super) fn assume_not_true(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::Or(left, right) => {
                self.assume_not_true(left);
                self.assume_not_true(right);
            }
            ExprKind::IsNull(operand) => self.mark_non_null(operand),
            ExprKind::Not(inner) if !inner.nullable => self.assume_true(inner),
            _ => {}
        }
    }

    /// Whether a field of a frame is present because a condition has tested its layer.
    pub(super) fn is_in_known_layer(&self, field: &FieldRef) -> bool {
        let holds = |layer: &LayerRef| {
            layer.level == field.layer.level
                && layer.protocols.iter().all(|protocol| field.layer.protocols.contains(protocol))
        };
        let n_columns = self.element.columns.len();
        let mut known_layers = self.non_null.iter().filter_map(|known| match known {
            NonNull::Column(at) => self.frames.get(at.checked_sub(n_columns)?),
            NonNull::Local(_) => None,
        });
        let mut is_layer_known = || {
            known_layers.any(|(_, place)| {
                matches!(place, ColumnLocation::Frame(known) if known.fields.is_none() && holds(&known.layer))
            })
        };
        field.fields.is_some() && !self.cx.formats.may_lack(field) && is_layer_known()
    }

    /// Marks a local or a column of a packet element as not NULL. Ignores every other expression.
    fn mark_non_null(&mut self, expr: &Expr) {
        match expr.kind {
            ExprKind::Local(id) => self.non_null.push(NonNull::Local(id)),
            ExprKind::Column(at) if self.is_packet() => self.non_null.push(NonNull::Column(at)),
            _ => {}
        }
    }
}
