//! Name resolution: the meaning of a name at a point in a program.

mod bound;
mod locals;
mod resolve;
mod rows;
mod unknown;

use crate::check::tree::leaf;
use crate::check::view::View;

use super::Cx;
use super::new_columns::NewColumns;
use super::null_narrowing::NonNulls;
use crate::ast::Ident;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Column, ColumnLocation, Element, Expr, ExprKind, HandlerKind, Layer, Local, Row, RowId, Table, TableRef,
};
use crate::source::Span;

pub(super) use bound::{BindingContext, ListElement, Lists};
use locals::Locals;
use rows::Rows;
pub(super) use rows::{ColumnVisibility, VisibleRow};
pub(super) use unknown::not_in_status_condition;

/// The names and rows at a point, and the tables that they index.
pub(super) struct Scope<'a, 'c> {
    pub(super) cx: &'a mut Cx<'c>,
    pub(super) element: &'a Element,
    pub(super) shared: &'a [Table],
    pub(super) view: View,
    pub(super) locals: Locals,
    pub(super) rows: Rows,
    /// Call sites of `rand()` so far in this element.
    pub(super) n_rand: &'a mut u32,
    /// The merged column that a SET changes by its own operation; the operation may read it.
    pub(super) merging: Option<(RowId, usize)>,
    /// The column that a SET may count in: its value is a call of `counted`.
    pub(super) counting: Option<(RowId, usize)>,
    /// Columns that are declared by their first use here.
    pub(super) new_columns: NewColumns,
    pub(super) non_null: NonNulls,
    /// The column whose binding is checked.
    pub(super) bound: Option<BindingContext<'a>>,
}

impl<'a, 'c> Scope<'a, 'c> {
    /// Creates the scope of a handler or another place (`view`) in an element, without local names.
    pub(super) fn new(
        cx: &'a mut Cx<'c>,
        element: &'a Element,
        shared: &'a [Table],
        view: View,
        n_rand: &'a mut u32,
    ) -> Self {
        Self {
            cx,
            element,
            shared,
            view,
            locals: Locals::default(),
            rows: Rows::default(),
            n_rand,
            merging: None,
            counting: None,
            new_columns: NewColumns::after(element.columns.len(), Vec::new()),
            non_null: NonNulls::new(element.layer != Layer::Rpc),
            bound: None,
        }
    }

    /// The locals, the rows, and the columns that are declared here.
    pub(super) fn into_parts(self) -> (Vec<Local>, Vec<Row>, Vec<(Column, ColumnLocation)>) {
        (self.locals.into_all(), self.rows.into_all(), self.new_columns.into_all())
    }

    // ---- tables ------------------------------------------------------------------------------------------------

    /// The table with this name; reports an error if it is unknown or cannot be used here.
    pub(super) fn table_ref(&mut self, name: &Ident) -> Option<TableRef> {
        let own = self.element.tables.iter().position(|table| table.name == name.name).map(TableRef::Own);
        let shared = || self.shared.iter().position(|table| table.name == name.name).map(TableRef::Shared);
        let Some(found) = own.or_else(shared) else {
            unknown::report_unknown_table(self, name);
            return None;
        };
        let table = self.table(found);
        if table.per_worker && matches!(self.view, View::Handler(kind) if kind.is_timed()) {
            let message =
                format!("{} runs once per node, but each worker has its own `{}`", self.words(), name.name);
            return Diagnostic::error(code::PER_WORKER_IN_EVERY, message)
                .at(name.span, "which worker's table?")
                .with_label(table.span, "declared PER WORKER")
                .with_help("remove PER WORKER, or count in a `VAR ... MERGE SUM`")
                .refuse(self.cx);
        }
        Some(found)
    }

    pub(super) fn is_table(&self, name: &str) -> bool {
        let mut all = self.element.tables.iter().chain(self.shared);
        all.any(|table| table.name == name)
    }

    /// Returns the declaration of a table.
    pub(super) fn table(&self, table: TableRef) -> &'a Table {
        match table {
            TableRef::Own(index) => &self.element.tables[index],
            TableRef::Shared(index) => &self.shared[index],
        }
    }

    /// Finds the column of a visible row; the inner None is a reported error.
    pub(in crate::check) fn joined_column(&mut self, name: &Ident) -> Option<Option<Expr>> {
        let mut found: Vec<(RowId, usize, bool)> = Vec::new();
        for visible in self.rows.visible().iter().rev() {
            let table = self.table(self.rows.get(visible.row).table);
            let Some(at) = table.columns.iter().position(|column| column.name == name.name) else { continue };
            match &visible.visibility {
                ColumnVisibility::First if found.is_empty() => {
                    return Some(self.row_column(visible.row, at, name.span));
                }
                ColumnVisibility::Joined(using) => found.push((visible.row, at, using.contains(&name.name))),
                ColumnVisibility::First | ColumnVisibility::Hidden => {}
            }
        }
        // The columns of USING are equal, so any of them is correct; `input` has the column too.
        if let Some((row, at, _)) = found.iter().rev().find(|(.., is_using)| *is_using)
            && !self.rows.get(*row).optional
        {
            return Some(self.row_column(*row, *at, name.span));
        }
        if found.iter().any(|(.., is_using)| *is_using) {
            return None;
        }
        let (row, at, _) = *found.first()?;
        if found.len() > 1 || self.own_column(&name.name).is_some() {
            return Some(unknown::ambiguous(self, name));
        }
        Some(self.row_column(row, at, name.span))
    }

    /// Reads a column of a table row. Reports a merged column outside of ON EVERY.
    pub(super) fn row_column(&mut self, row: RowId, at: usize, span: Span) -> Option<Expr> {
        let &Row { table, optional } = self.rows.get(row);
        let table = self.table(table);
        let column = &table.columns[at];
        if self.cx.is_broken(column.span) {
            return None;
        }
        // A row that was removed from its table is not merged any more.
        let is_merged = match self.view {
            View::Handler(HandlerKind::Every) => true,
            View::Handler(kind) if kind.is_departure() => row == RowId::OLD,
            _ => false,
        };
        if column.merge.is_some() && !is_merged && self.merging != Some((row, at)) {
            let message =
                format!("`{}.{}` is merged, so it can only be read in ON EVERY", table.name, column.name);
            return Diagnostic::error(code::MERGE_MISUSE, message)
                .at(span, "read here")
                .with_label(column.span, "declared MERGE")
                .with_help("remove MERGE if other handlers must read it")
                .refuse(self.cx);
        }
        let nullable = column.nullable || optional;
        Some(leaf(ExprKind::RowColumn { row, column: at }, column.ty, nullable, span))
    }

    /// The element's column of this name in the direction of the handler.
    pub(super) fn own_column(&self, name: &str) -> Option<usize> {
        let direction = self.view.direction()?;
        self.element.columns.iter().position(|column| column.name == name && column.direction == direction)
    }

    /// Reads a column of the element.
    pub(in crate::check) fn element_column(&mut self, at: usize, span: Span) -> Option<Expr> {
        let column = &self.element.columns[at];
        let known = !self.cx.is_broken(column.span);
        known.then(|| leaf(ExprKind::Column(at), column.ty, column.nullable, span))
    }

    /// The meaning of `input.name`: a column, or metadata of the tuple.
    pub(super) fn input_column(&mut self, name: &Ident) -> Option<Expr> {
        if let Some(at) = self.own_column(&name.name) {
            return self.element_column(at, name.span);
        }
        match self.read_meta(name) {
            Some(found) => Some(found),
            None => unknown::unknown_column(self, name),
        }
    }

    /// Reads a variable. Reports a merged variable outside of ON EVERY.
    pub(in crate::check) fn var(&mut self, at: usize, name: &Ident) -> Option<Expr> {
        let var = &self.element.vars[at];
        if self.cx.is_broken(var.span) {
            return None;
        }
        if var.merge.is_some() && self.view != View::Handler(HandlerKind::Every) {
            let message = format!("`{}` is merged, so it can only be read in ON EVERY", var.name);
            return Diagnostic::error(code::MERGE_MISUSE, message)
                .at(name.span, "read here")
                .with_label(var.span, "declared MERGE")
                .with_help("remove MERGE if other handlers must read it")
                .refuse(self.cx);
        }
        Some(leaf(ExprKind::Var(at), var.ty, false, name.span))
    }
}
