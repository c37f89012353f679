//! What is known not to be NULL, because a condition was asked: of LETs, and of fields of frames, which no handler can
//! set to NULL.

use super::scope::Scope;
use crate::hir::{ColumnLocation, Expr, ExprKind, LocalId};
use weft_core::wire::{FieldRef, LayerRef};

/// Something that is not NULL where it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NonNull {
    Local(LocalId),
    Column(usize),
}

impl Scope<'_, '_> {
    /// Whether this is known not to be NULL here.
    pub(super) fn is_non_null(&self, of: NonNull) -> bool {
        self.non_null.contains(&of)
    }

    /// From here to the end of the block a condition is known to be true.
    pub(super) fn note_true(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::And(left, right) => {
                self.note_true(left);
                self.note_true(right);
            }
            ExprKind::Not(inner) => match &inner.kind {
                ExprKind::IsNull(operand) => self.note(operand),
                _ => self.note_known(inner),
            },
            _ => self.note_known(condition),
        }
    }

    /// A condition is known to be true or false: what is compared with NULL is neither.
    fn note_known(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::Compare { left, right, .. } => {
                self.note(left);
                self.note(right);
            }
            _ => self.note(condition),
        }
    }

    /// From here to the end of the block a condition is known not to be true: it is false, or NULL.
    pub(super) fn note_untrue(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::Or(left, right) => {
                self.note_untrue(left);
                self.note_untrue(right);
            }
            ExprKind::IsNull(operand) => self.note(operand),
            ExprKind::Not(inner) if !inner.nullable => self.note_true(inner),
            _ => {}
        }
    }

    /// Whether a field of a frame is there because its layer is, which was asked.
    pub(super) fn is_in_known_layer(&self, field: &FieldRef) -> bool {
        let holds = |layer: &LayerRef| {
            layer.level == field.layer.level
                && layer.protocols.iter().all(|protocol| field.layer.protocols.contains(protocol))
        };
        let n_columns = self.element.columns.len();
        let mut asked = self.non_null.iter().filter_map(|known| match known {
            NonNull::Column(at) => self.frames.get(at.checked_sub(n_columns)?),
            NonNull::Local(_) => None,
        });
        let mut is_asked = || {
            asked.any(|(_, place)| {
                matches!(place, ColumnLocation::Frame(known) if known.fields.is_none() && holds(&known.layer))
            })
        };
        field.fields.is_some() && !self.cx.formats.may_lack(field) && is_asked()
    }

    fn note(&mut self, expr: &Expr) {
        match expr.kind {
            ExprKind::Local(id) => self.non_null.push(NonNull::Local(id)),
            ExprKind::Column(at) if self.is_packet() => self.non_null.push(NonNull::Column(at)),
            _ => {}
        }
    }
}
