//! Columns that a handler or a binding declares by their first use: fields of a frame or a message.

use crate::hir::{Column, ColumnLocation, Direction};

/// The declared columns. They follow the columns of the element.
#[derive(Debug)]
pub(super) struct NewColumns {
    /// The number of the element's own columns.
    n_before: usize,
    all: Vec<(Column, ColumnLocation)>,
}

impl NewColumns {
    /// Columns after the first `n_before`; some may be declared already.
    pub(super) fn after(n_before: usize, all: Vec<(Column, ColumnLocation)>) -> Self {
        Self { n_before, all }
    }

    /// The column with this name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|(column, _)| column.name == name).map(|at| self.n_before + at)
    }

    /// The column at this location of the messages in one direction.
    pub(super) fn at(&self, direction: Direction, place: &ColumnLocation) -> Option<usize> {
        let is_same = |(column, known): &(Column, _)| column.direction == direction && known == place;
        self.all.iter().position(is_same).map(|at| self.n_before + at)
    }

    /// The location of a column, if it is declared here.
    pub(super) fn location(&self, column: usize) -> Option<&ColumnLocation> {
        self.all.get(column.checked_sub(self.n_before)?).map(|(_, place)| place)
    }

    /// Declares a column. Nothing reads or writes it yet.
    pub(super) fn add(&mut self, column: Column, place: ColumnLocation) -> usize {
        self.all.push((column, place));
        self.n_before + self.all.len() - 1
    }

    pub(super) fn into_all(self) -> Vec<(Column, ColumnLocation)> {
        self.all
    }
}
