//! The column whose binding is checked.

use weft_core::Type;
use weft_core::schema::FieldKind;

use crate::check::chain::edge::Edge;
use crate::hir::Column;

/// The context of a binding's expression: the messages that it reads.
pub(in crate::check) struct BindingContext<'a> {
    pub(in crate::check) edge: &'a Edge<'a>,
    /// The bound column.
    pub(in crate::check) column: &'a Column,
    /// The element of the list expression whose condition is checked.
    pub(in crate::check) item: Option<ListElement>,
}

/// For each message: the method, and the type of the list's elements.
pub(in crate::check) type Lists = Vec<(usize, FieldKind)>;

/// The element of a list expression.
pub(in crate::check) struct ListElement {
    /// Its name in the condition.
    pub(in crate::check) name: String,
    pub(in crate::check) lists: Lists,
    /// The fields that are read.
    pub(in crate::check) members: Vec<(Vec<String>, Type, bool)>,
}
