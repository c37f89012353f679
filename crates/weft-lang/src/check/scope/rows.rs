//! The table rows that a handler reads.

use crate::hir::{Row, RowId, TableRef};

/// The rows of a handler, and the rows visible at a point.
#[derive(Debug, Default)]
pub(in crate::check) struct Rows {
    all: Vec<Row>,
    /// Innermost last.
    visible: Vec<VisibleRow>,
}

/// A row that can be seen.
#[derive(Clone, Debug)]
pub(in crate::check) struct VisibleRow {
    pub(in crate::check) alias: String,
    pub(in crate::check) row: RowId,
    pub(in crate::check) visibility: ColumnVisibility,
}

/// The meaning of an unqualified column name for a visible row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) enum ColumnVisibility {
    /// This row's column takes precedence over all other names: the table of an UPDATE.
    First,
    /// This row's column, if the name is unique; a column of USING is the same as that of `input`.
    Joined(Vec<String>),
    /// None: the columns must be qualified with the alias.
    Hidden,
}

impl Rows {
    pub(in crate::check) fn add(&mut self, table: TableRef, optional: bool) -> RowId {
        self.all.push(Row { table, optional });
        RowId(self.all.len() - 1)
    }

    pub(in crate::check) fn get(&self, row: RowId) -> &Row {
        &self.all[row.0]
    }

    pub(in crate::check) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Sets whether a row may be missing, by a LEFT JOIN.
    pub(in crate::check) fn set_optional(&mut self, row: RowId, optional: bool) {
        self.all[row.0].optional = optional;
    }

    /// Makes a row visible under this alias.
    pub(in crate::check) fn show(&mut self, alias: &str, row: RowId, visibility: ColumnVisibility) {
        self.visible.push(VisibleRow { alias: alias.to_owned(), row, visibility });
    }

    /// The visible rows, innermost last.
    pub(in crate::check) fn visible(&self) -> &[VisibleRow] {
        &self.visible
    }

    /// Makes all rows but the first `n` invisible.
    pub(in crate::check) fn hide_after(&mut self, n: usize) {
        self.visible.truncate(n);
    }

    /// The columns of all rows but the first `n` must be qualified from here on.
    pub(in crate::check) fn qualify_after(&mut self, n: usize) {
        self.visible[n..].iter_mut().for_each(|visible| visible.visibility = ColumnVisibility::Hidden);
    }

    pub(in crate::check) fn into_all(self) -> Vec<Row> {
        self.all
    }
}
