//! Name resolution: the meaning of a name at a point in a program.

mod locals;
mod rows;
mod unknown;

use weft_core::types::Type;
use weft_core::{Status, Value};

use super::binding::BindingContext;
use super::new_columns::NewColumns;
use super::null_narrowing::{NonNull, NonNulls};
use super::{Cx, binding, frame, table};
use crate::ast::{Ident, Path};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Column, ColumnLocation, Direction, Element, Expr, ExprKind, HandlerKind, Layer, Local, Meta, Row, RowId,
    Table, TableRef,
};
use crate::nearest::nearest;
use crate::source::Span;

use locals::Locals;
use rows::Rows;
pub(super) use rows::{ColumnVisibility, VisibleRow};
pub(super) use unknown::not_in_status_condition;

/// The set of names available at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Literals and parameters: values known before the program runs.
    Constant,
    /// Constants, `now()` and `rand()`: the value of a new row or cell.
    Start,
    /// A row in a table statement: its columns as parameters, and `now()`.
    Row,
    /// The data of a call that is known when it opens.
    Route,
    /// Literals, parameters and `status`: a condition on the status of a call.
    StatusCondition,
    /// All that a handler may read.
    Handler(HandlerKind),
}

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

/// The engine's metadata of a tuple: name, type, nullable.
pub(crate) const METAS: &[(&str, Meta, Type, bool)] = &[
    ("call_id", Meta::CallId, Type::Uint(64), false),
    ("elapsed", Meta::Elapsed, Type::Interval, false),
    ("ended_by", Meta::EndedBy, Type::Text(None), true),
    ("index", Meta::Index, Type::Uint(64), false),
    ("method", Meta::Method, Type::Text(None), false),
    ("payload", Meta::Payload, Type::Bytes(None), false),
    ("peer", Meta::Peer, Type::Text(None), false),
    ("size", Meta::Size, Type::Size, false),
    ("status", Meta::Status, Type::Status, false),
    ("upstream", Meta::Upstream, Type::Text(None), true),
    ("version", Meta::Version, Type::Uint(64), false),
];

/// Whether metadata may be NULL in a response handler: for streamed responses, the status arrives after the messages.
pub(super) fn is_nullable_in_response(meta: Meta) -> bool {
    meta == Meta::Status
}

impl View {
    /// Returns the direction whose columns are available.
    pub(super) fn direction(self) -> Option<Direction> {
        match self {
            // In ON OPEN, only columns bound to data that is known by then: see `check_open` of chains.
            Self::Handler(HandlerKind::Open | HandlerKind::Request) => Some(Direction::Request),
            Self::Handler(HandlerKind::Response) => Some(Direction::Response),
            _ => None,
        }
    }

    /// Whether there is a call.
    pub(super) fn has_call(self) -> bool {
        matches!(self, Self::Handler(kind) if !kind.is_timed())
    }

    /// Whether headers can be read here.
    pub(super) fn has_headers(self) -> bool {
        use HandlerKind as H;
        match self {
            Self::Handler(kind) => matches!(kind, H::Open | H::Request | H::Response | H::Close),
            Self::Route => true,
            Self::Constant | Self::Start | Self::Row | Self::StatusCondition => false,
        }
    }

    /// Whether this metadata exists here.
    pub(super) fn has_meta(self, meta: Meta) -> bool {
        use HandlerKind as H;
        let Self::Handler(kind) = self else {
            return match self {
                Self::Route => matches!(meta, Meta::Method | Meta::Peer),
                Self::StatusCondition => meta == Meta::Status,
                _ => false,
            };
        };
        match meta {
            Meta::EndedBy => kind == H::Close,
            Meta::Elapsed | Meta::Status | Meta::Upstream => matches!(kind, H::Response | H::Close),
            Meta::Size | Meta::Index | Meta::Payload => matches!(kind, H::Request | H::Response),
            Meta::Method | Meta::Peer | Meta::CallId | Meta::Version => !kind.is_timed(),
            Meta::Port | Meta::PacketSize | Meta::Flow => false,
            Meta::IsIcmpError | Meta::IsIntact | Meta::TunnelDepth => false,
            Meta::Tag | Meta::Label | Meta::Path => false,
        }
    }

    /// Describes the place for messages.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Constant => "a constant",
            Self::Start => "the value of a new row",
            Self::Row => "a statement on rows",
            Self::Route => "a route",
            Self::StatusCondition => "the condition of a policy",
            Self::Handler(HandlerKind::Open) => "ON OPEN",
            Self::Handler(HandlerKind::Request) => "ON REQUEST",
            Self::Handler(HandlerKind::Response) => "ON RESPONSE",
            Self::Handler(HandlerKind::Close) => "ON CLOSE",
            Self::Handler(HandlerKind::Error) => "ON ERROR",
            Self::Handler(HandlerKind::Every) => "ON EVERY",
            Self::Handler(HandlerKind::Timeout) => "ON TIMEOUT",
            Self::Handler(HandlerKind::Evict) => "ON EVICT",
        }
    }
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

    /// The column of a table; reports an error if it is unknown.
    pub(super) fn column_of(&mut self, table: TableRef, name: &Ident) -> Option<usize> {
        table::column_of(self.cx, self.table(table), name)
    }

    // ---- names -------------------------------------------------------------------------------------------------

    /// Resolves a path to its value. Reports an unknown one.
    pub(super) fn resolve(&mut self, path: &Path) -> Option<Expr> {
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

    /// Finds the column of a visible row; the inner None is a reported error.
    fn joined_column(&mut self, name: &Ident) -> Option<Option<Expr>> {
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
    fn element_column(&mut self, at: usize, span: Span) -> Option<Expr> {
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
            super::native::not_a_value(self.cx, param, name);
            return Some(None);
        }
        let expr = leaf(ExprKind::Param(at), param.ty, param.nullable, name.span);
        Some((!self.cx.is_broken(param.span)).then_some(expr))
    }

    /// Reads a variable. Reports a merged variable outside of ON EVERY.
    fn var(&mut self, at: usize, name: &Ident) -> Option<Expr> {
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

/// An expression without parts.
pub(super) fn leaf(kind: ExprKind, ty: Type, nullable: bool, span: Span) -> Expr {
    Expr { kind, ty, nullable, fallible: false, span }
}

/// The diagnostic for an unknown column of a table or sink.
pub(super) fn no_column<'n>(
    owner: &str,
    name: &Ident,
    columns: impl Iterator<Item = &'n str> + Clone,
) -> Diagnostic {
    let known: Vec<&str> = columns.clone().collect();
    let message = format!("{owner} has no column `{}`", name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_COLUMN, message)
        .at(name.span, "unknown column")
        .with_note(format!("it has: {}", known.join(", ")));
    with_nearest(diagnostic, name, columns)
}

/// Adds the nearest name as help and fix.
pub(super) fn with_nearest<'n>(
    diagnostic: Diagnostic,
    name: &Ident,
    known: impl IntoIterator<Item = &'n str>,
) -> Diagnostic {
    match nearest(&name.name, known) {
        Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(name.span, near),
        None => diagnostic,
    }
}

/// Adds a hint like [`with_nearest`]; if no known name is near, suggests the library file to import, or else lists
/// the known names.
pub(super) fn with_nearest_or_import<'n>(
    cx: &Cx<'_>,
    diagnostic: Diagnostic,
    name: &Ident,
    folder: &str,
    known: impl Iterator<Item = &'n str> + Clone,
) -> Diagnostic {
    if nearest(&name.name, known.clone()).is_some() {
        return with_nearest(diagnostic, name, known);
    }
    if let Some(help) = import_help(cx, folder, &name.name) {
        return diagnostic.with_help(help);
    }
    let known: Vec<&str> = known.take(NAMES_SHOWN_MAX).collect();
    if known.is_empty() {
        diagnostic
    } else {
        diagnostic.with_note(format!("there are: {}", known.join(", ")))
    }
}

/// The maximum number of names that a diagnostic lists.
const NAMES_SHOWN_MAX: usize = 12;

/// The IMPORT for the library file with this name or a similar name; None if the library has none.
pub(super) fn import_help(cx: &Cx<'_>, folder: &str, name: &str) -> Option<String> {
    let folder = format!("library/{folder}/");
    let names = cx.library.iter().filter_map(|path| path.strip_prefix(&folder)?.strip_suffix(".weft"));
    if names.clone().any(|known| known == name) {
        return Some(format!("import the file that defines it: `IMPORT '{folder}{name}.weft';`"));
    }
    let near = nearest(name, names)?;
    Some(format!("the library has `{near}`: `IMPORT '{folder}{near}.weft';`"))
}

/// The names of all statuses.
pub(super) fn status_names() -> impl Iterator<Item = &'static str> {
    Status::ALL.iter().map(|status| status.name())
}

/// `1 value for 2 columns`
pub(super) fn values_for_columns(n_values: usize, n_columns: usize) -> String {
    let of = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    format!("{} for {}", of(n_values, "value"), of(n_columns, "column"))
}

/// The type as a table or a CALL column stores it.
pub(super) fn with_length(ty: Type) -> Type {
    match ty {
        Type::Text(None) => Type::Text(Some(64)),
        Type::Bytes(None) => Type::Bytes(Some(64)),
        other => other,
    }
}
