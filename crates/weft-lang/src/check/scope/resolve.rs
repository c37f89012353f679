//! The meaning of a name: bindings, rows, columns, declarations and fields of frames, in this order.

use weft_core::{Status, Type, Value};

use super::{Scope, VisibleRow, unknown};
use crate::ast::{Ident, Path};
use crate::check::null_narrowing::NonNull;
use crate::check::tree::leaf;
use crate::check::view::View;
use crate::check::{binding, frame, native, table};
use crate::hir::{Expr, ExprKind, HandlerKind, Local, TableRef};

impl Scope<'_, '_> {
    /// Resolves a path to its value. Reports an unknown one.
    pub(in crate::check) fn resolve(&mut self, path: &Path) -> Option<Expr> {
        if let Some(found) = binding::bound_path(self, path) {
            return found;
        }
        match path.segments.as_slice() {
            [name] => self.bare_name(name),
            [first, column] if first.name == "input" => self.input_column(column),
            [alias, column] => {
                match self.rows.visible().iter().rfind(|visible| visible.alias == alias.name) {
                    Some(&VisibleRow { row, .. }) => {
                        let column_index = self.column_of(self.rows.get(row).table, column)?;
                        self.row_column(row, column_index, path.span)
                    }
                    None => self.layer_path(path),
                }
            }
            _ => self.layer_path(path),
        }
    }

    /// A path that begins with a layer of a frame, or with an unknown name.
    fn layer_path(&mut self, path: &Path) -> Option<Expr> {
        match frame::frame_path(self, path) {
            Some(found) => found,
            None => unknown::unknown_path(self, path),
        }
    }

    /// Resolves a name without a dot: a LET, a column of a joined row, a column of the element, or a declaration.
    /// None if it is unknown.
    fn bare_name(&mut self, name: &Ident) -> Option<Expr> {
        if let Some((_, local)) = self.locals.find(&name.name) {
            let id = (*local)?;
            let Local { ty, nullable, .. } = *self.locals.get(id);
            let nullable = nullable && !self.non_null.contains(NonNull::Local(id));
            return Some(leaf(ExprKind::Local(id), ty, nullable, name.span));
        }
        if let Some(found) = self.joined_column(name) {
            return found;
        }
        if let Some(at) = self.own_column(&name.name) {
            return self.element_column(at, name.span);
        }
        if let Some(found) = self.declared(name) {
            return found;
        }
        if let Some(found) = self.read_meta(name) {
            return Some(found);
        }
        if name.name == "error" && self.view == View::Handler(HandlerKind::Error) {
            return Some(leaf(ExprKind::FaultName, Type::Text(None), false, name.span));
        }
        if name.name == frame::EGRESS && self.is_frame_here() {
            return Some(leaf(ExprKind::Egress, Type::Text(None), true, name.span));
        }
        let path = Path { segments: vec![name.clone()], span: name.span };
        if let Some(found) = frame::frame_path(self, &path) {
            return found;
        }
        if let Some(status) = Status::from_name(&name.name) {
            let value = Value::Int(i64::from(status.code()));
            return Some(leaf(ExprKind::Const(value), Type::Status, false, name.span));
        }
        unknown::unknown_name(self, name)
    }

    /// Resolves a CALL column, a variable, or a parameter.
    fn declared(&mut self, name: &Ident) -> Option<Option<Expr>> {
        let is_start = matches!(self.view, View::Constant | View::Start | View::Row | View::StatusCondition);
        let element = self.element;
        if let Some(at) = element.call.iter().position(|cell| cell.name == name.name)
            && self.view.has_call()
        {
            let cell = &element.call[at];
            let expr = leaf(ExprKind::Call(at), cell.ty, false, name.span);
            return Some((!self.cx.is_broken(cell.span)).then_some(expr));
        }
        if let Some(at) = element.vars.iter().position(|var| var.name == name.name)
            && !is_start
        {
            return Some(self.var(at, name));
        }
        let at = element.params.iter().position(|param| param.name == name.name)?;
        let param = &element.params[at];
        if param.function.is_some() {
            native::not_a_value(self.cx, param, name);
            return Some(None);
        }
        let expr = leaf(ExprKind::Param(at), param.ty, param.nullable, name.span);
        Some((!self.cx.is_broken(param.span)).then_some(expr))
    }

    /// The column of a table; reports an error if it is unknown.
    pub(in crate::check) fn column_of(&mut self, table: TableRef, name: &Ident) -> Option<usize> {
        table::column_of(self.cx, self.table(table), name)
    }
}
