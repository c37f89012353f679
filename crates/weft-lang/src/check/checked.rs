//! A checked element.

use crate::hir::{ColumnLocation, Element, Expr, TableRef};
use crate::source::Span;

/// An element, and the parts that depend on an instance's parameters.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) element: Element,
    /// The limits of each table.
    pub(super) bounds: Vec<Bounds>,
    /// The interval of each `ON EVERY`.
    pub(super) every: Vec<Option<Expr>>,
    /// The destination of each sink.
    pub(super) targets: Vec<SinkDestination>,
    /// Columns that have a fixed location in or beside the frame: index into [`Element::columns`], and the location.
    pub(super) frames: Vec<(usize, ColumnLocation)>,
}

impl Checked {
    /// An element without declarations.
    pub(super) fn empty(name: &str, span: Span) -> Self {
        let element = Element::empty(name, span);
        Self { element, bounds: Vec::new(), every: Vec::new(), targets: Vec::new(), frames: Vec::new() }
    }
}

/// The destination of a sink's rows, as written.
#[derive(Clone, Debug)]
pub(super) enum SinkDestination {
    Stdout,
    Metrics,
    /// None after an error.
    File(Option<Expr>),
    /// None after an error.
    Table {
        table: Option<TableRef>,
        deletes: bool,
    },
}

/// The limits of a table as expressions; parameters determine their values.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    pub(super) rows: Option<Expr>,
    pub(super) ttl: Option<Expr>,
    pub(super) ttl_on_insert: Option<Expr>,
}

impl Bounds {
    /// Whether rows expire.
    pub(super) fn expires(&self) -> bool {
        self.ttl.is_some() || self.ttl_on_insert.is_some()
    }
}
