//! Checks statements on the tables of a running network.

mod summary;

use std::collections::BTreeSet;

use weft_core::{Time, Type, Value};

use super::expr::Environment;
use super::fill::{columns, port_columns_of, rows_of, target};
use super::scope::{Scope, View};
use super::table::column_of;
use super::{Cx, empty_element, frame};
pub use summary::{Measure, Summary};

use crate::ast::{self, Filler, SelectItem};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Element, Expr, ExprKind, FillTarget, Network, Param, Table, TableColumn};
use crate::parser::table_statement::{TableStatement, TableStatementKind, parse_table_statements};
use crate::source::{SourceMap, Span};

/// A statement on a table of a running network. In expressions, the columns of a row are parameters, in the order of
/// [`Table::columns`]: [`super::fold::fold_at`] evaluates them.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The table.
    pub table: FillTarget,
    /// The query or change.
    pub kind: StatementKind,
    /// The statement.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Clone, Debug)]
pub enum StatementKind {
    /// Reads rows.
    Select {
        /// The items, each with its name.
        items: Vec<(String, Expr)>,
        /// The condition on rows; None for all.
        filter: Option<Expr>,
        /// The column to sort by, and whether in descending order.
        order: Option<(usize, bool)>,
        /// The maximum number of result rows.
        limit: Option<u64>,
    },
    /// Aggregation of rows.
    Summary {
        /// The aggregates and groups.
        summary: Summary,
        /// The condition on rows; None for all.
        filter: Option<Expr>,
        /// The maximum number of result rows.
        limit: Option<u64>,
    },
    /// New rows: values in the order of [`Table::columns`].
    Insert {
        /// Replaces rows with the same keys.
        or_replace: bool,
        /// The rows, with their spans.
        rows: Vec<(Vec<Value>, Span)>,
    },
    /// Other values in rows.
    Update {
        /// Column and value.
        set: Vec<(usize, Expr)>,
        /// The condition on rows; None for all.
        filter: Option<Expr>,
    },
    /// Rows are taken out.
    Delete {
        /// The condition on rows; None for all.
        filter: Option<Expr>,
    },
}

/// Checks statements on the tables of a network that was checked from `sources`. Returns the statements if there is no
/// error, all errors and warnings, and the texts that their spans refer to: those of the network, and the statements.
/// `now()` in the rows of an INSERT is this time.
pub fn statements(
    network: &Network,
    sources: &SourceMap,
    text: &str,
    now: Time,
) -> (Vec<Statement>, Vec<Diagnostic>, SourceMap) {
    let mut sources = sources.clone();
    let file = match sources.add("<query>", text) {
        Ok(file) => file,
        Err(diagnostic) => return (Vec::new(), vec![*diagnostic], sources),
    };
    let (parsed, diagnostics) = parse_table_statements(&sources, file);
    let mut cx = Cx {
        library: Vec::new(),
        schema: &network.schema,
        sources: &sources,
        has_gaps: false,
        diagnostics,
        n_errors_reported: 0,
        n_warnings_reported: 0,
        now: Some(now),
        broken: BTreeSet::new(),
        layer_is_missing: false,
        returned: Vec::new(),
        skipped: BTreeSet::new(),
        functions: Vec::new(),
        broken_functions: Vec::new(),
        formats: frame::Formats::default(),
        ports: names_of_ports(network),
    };
    let statements: Vec<Statement> =
        parsed.iter().filter_map(|parsed| statement(&mut cx, network, parsed)).collect();
    let diagnostics = cx.diagnostics;
    let is_good = !diagnostics.iter().any(Diagnostic::is_error);
    (if is_good { statements } else { Vec::new() }, diagnostics, sources)
}

/// Where an element may send frames.
fn names_of_ports(network: &Network) -> Vec<String> {
    let ports = network.ports.iter().map(|port| port.name.clone());
    ports.chain(network.groups.iter().map(|group| group.name.clone())).collect()
}

/// Parses a column's value in a list file: text without quotes; an empty value is NULL if the column is nullable.
///
/// # Errors
/// Why it is no such value.
pub fn read_value(text: &str, ty: Type, nullable: bool) -> Result<Value, String> {
    if text.is_empty() && nullable {
        return Ok(Value::Null);
    }
    let number = |ok: Option<Value>| ok.ok_or_else(|| format!("`{text}` is not a valid {ty}"));
    match ty {
        Type::Bool => number(match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "1" => Some(Value::Bool(true)),
            "false" | "f" | "no" | "0" => Some(Value::Bool(false)),
            _ => None,
        }),
        Type::Int(_) | Type::Uint(_) => {
            let n = match text.strip_prefix("0x") {
                Some(digits) => i128::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number(n.ok().and_then(|n| crate::types::integer(n, ty)))
        }
        Type::F64 => number(text.parse().ok().filter(|x: &f64| x.is_finite()).map(Value::Float)),
        Type::Text(max) => match max {
            Some(max) if text.len() > max as usize => {
                Err(format!("it has {} bytes, but {ty} holds at most {max}", text.len()))
            }
            _ => Ok(Value::text(text)),
        },
        Type::Status => {
            number(weft_core::Status::from_name(text).map(|status| Value::Int(i64::from(status.code()))))
        }
        Type::Bytes(_) => match text.strip_prefix("0x").and_then(bytes_of) {
            Some(bytes) if ty.bytes_max().is_some_and(|max| bytes.len() > max as usize) => {
                Err(format!("it has {} bytes, more than {ty} holds", bytes.len()))
            }
            Some(bytes) => Ok(Value::Bytes(bytes)),
            None => crate::types::read_text(text, ty),
        },
        _ => crate::types::read_text(text, ty),
    }
}

/// The bytes of a string of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let byte = |two: &[u8]| u8::from_str_radix(core::str::from_utf8(two).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(byte).collect()).flatten()
}

/// The table of a fill target, with its chain and instance (both empty for a shared table).
pub fn table_of(network: &Network, target: FillTarget) -> (&str, &str, &Table) {
    match target {
        FillTarget::Shared(at) => ("", "", &network.tables[at]),
        FillTarget::Own { chain, instance, table } => {
            let chain = &network.chains[chain];
            let instance = &chain.instances[instance];
            (&chain.name, &instance.name, &network.elements[instance.element].tables[table])
        }
    }
}

/// Checks a statement on the tables of a running network.
fn statement(cx: &mut Cx<'_>, network: &Network, parsed: &TableStatement) -> Option<Statement> {
    let path = match &parsed.kind {
        TableStatementKind::Insert { rows, .. } => &rows.table,
        TableStatementKind::Select { table, .. }
        | TableStatementKind::Update { table, .. }
        | TableStatementKind::Delete { table, .. } => table,
    };
    let elements: Vec<&Element> = network.elements.iter().collect();
    let at = target(cx, &network.tables, &network.chains, &elements, path)?;
    let (.., table) = table_of(network, at);
    if !matches!(parsed.kind, TableStatementKind::Select { .. })
        && !is_changeable(cx, table, path, &parsed.kind)
    {
        return None;
    }
    let row = row_of(&table.columns);
    let mut n_rand = 0;
    let kind = match &parsed.kind {
        TableStatementKind::Insert { rows, or_replace } => {
            let columns = columns(cx, table, rows)?;
            let (written, rows) = (rows, rows_of(cx, table, &columns, rows)?);
            let ports = port_columns_of(at, (&network.chains, &elements));
            for (row, (values, _)) in written.rows.iter().zip(&rows) {
                cx.warn_of_ports(table, &ports, &columns, (row, values));
            }
            StatementKind::Insert { or_replace: *or_replace, rows }
        }
        TableStatementKind::Delete { filter, .. } => {
            StatementKind::Delete { filter: filter_of(cx, &row, filter.as_ref(), &mut n_rand)? }
        }
        TableStatementKind::Update { set, filter, .. } => {
            let filter = filter_of(cx, &row, filter.as_ref(), &mut n_rand)?;
            let set = set.iter().map(|assign| assignment(cx, table, &row, assign, &mut n_rand));
            StatementKind::Update { set: set.collect::<Option<_>>()?, filter }
        }
        TableStatementKind::Select { items, filter, group, order, limit, .. } => {
            let filter = filter_of(cx, &row, filter.as_ref(), &mut n_rand)?;
            let limit = match limit {
                Some(limit) => Some(limit_of(cx, limit)?),
                None => None,
            };
            if summary::is_summary(items, group) {
                let mut asked = summary::QueriedTable { cx, table, row: &row, n_rand: &mut n_rand };
                let summary = asked.summary(items, group, order.as_ref())?;
                StatementKind::Summary { summary, filter, limit }
            } else {
                let order = match order {
                    Some((column, descending)) => Some((column_of(cx, table, column)?, *descending)),
                    None => None,
                };
                let items = items.iter().map(|item| outputs(cx, table, &row, item, &mut n_rand));
                let items = items.collect::<Option<Vec<_>>>()?.concat();
                StatementKind::Select { items, filter, order, limit }
            }
        }
    };
    Some(Statement { table: at, kind, span: parsed.span })
}

/// Returns an element whose parameters are the columns, so that conditions over a row are checked like conditions
/// over parameters.
pub(super) fn row_of(columns: &[TableColumn]) -> Element {
    let mut row = empty_element();
    row.params = columns
        .iter()
        .map(|column| Param {
            name: column.name.clone(),
            ty: column.ty,
            nullable: column.nullable,
            function: None,
            default: None,
            span: column.span,
        })
        .collect();
    row
}

/// Whether a statement may change a table. If not, reports who fills it.
fn is_changeable(cx: &mut Cx<'_>, table: &Table, path: &ast::Path, kind: &TableStatementKind) -> bool {
    // A table owned by the node has no declaration.
    let is_system = table.span.start == table.span.end;
    let (by, help) = if is_system {
        ("by the node itself", "change the described object with `weft apply`")
    } else {
        match table.filled {
            None if table.per_worker && matches!(kind, TableStatementKind::Insert { .. }) => (
                "by each worker for itself",
                "only UPDATE and DELETE are possible; they change the rows of every worker",
            ),
            Some(Filler::Controller) | None => return true,
            Some(Filler::Cluster) => (
                "from the members of the chain's cluster",
                "give the cluster other members with `weft apply`",
            ),
            Some(Filler::Stage) => ("by another stage", "change the table of that stage"),
            Some(Filler::Ports) => (
                "from the ports of the program",
                "change the device (`ip link set ... mtu`), or the port's options",
            ),
        }
    };
    let message = format!("`{}` is filled {by}, and cannot be changed from outside", table.name);
    let diagnostic = Diagnostic::error(code::NOT_FILLABLE, message).at(path.span, "changed here");
    let diagnostic = if is_system { diagnostic } else { diagnostic.with_label(table.span, "declared here") };
    cx.report(diagnostic.with_help(help));
    false
}

/// Checks an optional condition over the row.
fn filter_of(
    cx: &mut Cx<'_>,
    row: &Element,
    filter: Option<&ast::Expr>,
    n_rand: &mut u32,
) -> Option<Option<Expr>> {
    filter.map_or(Some(None), |filter| condition(cx, row, filter, n_rand).map(Some))
}

/// A condition on the columns of a row that can be evaluated.
pub(super) fn condition(
    cx: &mut Cx<'_>,
    row: &Element,
    condition: &ast::Expr,
    n_rand: &mut u32,
) -> Option<Expr> {
    let condition = Scope::new(cx, row, &[], View::Row, n_rand).condition(condition)?;
    evaluates(cx, row, &condition).then_some(condition)
}

/// Whether an expression can be evaluated: tried on a row of placeholder values.
fn evaluates(cx: &mut Cx<'_>, row: &Element, expr: &Expr) -> bool {
    let nulls = vec![Value::Null; row.params.len()];
    let Err(super::fold::FoldError::NotConstant(span)) = super::fold::fold_at(expr, &nulls, Time(0)) else {
        return true;
    };
    let help = "compare columns with literals: `=`, `<`, BETWEEN, IN, IS NULL, AND, OR, NOT";
    cx.fault(code::NOT_CONSTANT, "this cannot be evaluated here", span, "available in handlers only", help);
    false
}

/// Checks an assignment to a column that is not part of the key.
fn assignment(
    cx: &mut Cx<'_>,
    table: &Table,
    row: &Element,
    assign: &ast::Assign,
    n_rand: &mut u32,
) -> Option<(usize, Expr)> {
    let at = column_of(cx, table, &assign.name)?;
    let column = &table.columns[at];
    if at < table.n_keys {
        let message = format!("`{}` is part of the key", column.name);
        let help = "DELETE the row and INSERT a new one";
        return cx.refuse(code::KEY_CHANGED, message, assign.name.span, "a key cannot be changed", help);
    }
    let whose = format!("column `{}`", column.name);
    let mut scope = Scope::new(cx, row, &[], View::Row, n_rand);
    let value = scope.value_for(&assign.value, column.ty, column.nullable, &whose)?;
    evaluates(cx, row, &value).then_some((at, value))
}

/// Returns the named values of a SELECT item; `*` gives all columns.
fn outputs(
    cx: &mut Cx<'_>,
    table: &Table,
    row: &Element,
    item: &SelectItem,
    n_rand: &mut u32,
) -> Option<Vec<(String, Expr)>> {
    match item {
        SelectItem::Star(span) => {
            let of = |at: usize| {
                let column = &table.columns[at];
                let (ty, nullable) = (column.ty, column.nullable);
                let kind = ExprKind::Param(at);
                (column.name.clone(), Expr { kind, ty, nullable, fallible: false, span: *span })
            };
            Some(super::table::written_order(table).into_iter().map(of).collect())
        }
        SelectItem::Value { value, alias } => {
            let name = match alias {
                Some(alias) => alias.name.clone(),
                None => cx.sources.slice(value.span).to_owned(),
            };
            let expr = Scope::new(cx, row, &[], View::Row, n_rand).expr(value, None)?;
            evaluates(cx, row, &expr).then(|| vec![(name, expr)])
        }
    }
}

/// Computes a LIMIT.
fn limit_of(cx: &mut Cx<'_>, limit: &ast::Expr) -> Option<u64> {
    let (element, mut n_rand) = (empty_element(), 0);
    let mut scope = Scope::new(cx, &element, &[], View::Constant, &mut n_rand);
    let expr = scope.value_for(limit, Type::Uint(64), false, "a limit")?;
    match cx.folded(&expr, &[])? {
        Value::Int(n) => Some(n as u64),
        _ => None,
    }
}
