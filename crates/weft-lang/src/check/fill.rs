//! Checks the rows that a program inserts into tables filled by the controller.

use std::collections::{BTreeMap, BTreeSet};

use weft_core::{Type, Value, round_robin};

use super::named_ports::port_columns;
use super::scope::{Scope, View, values_for_columns, with_nearest};
use super::table::{breaks, broken, column_of, written_order};
use super::{Cx, all, empty_element};
use crate::ast::{Filler, Ident, InsertRows, Path, Row};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Address, Chain, Check, Cluster, Element, Fill, FillTarget, Network, Table, TableRef};
use crate::ports;
use crate::source::Span;

/// The rows of all tables, in the order of the items.
#[derive(Debug, Default)]
pub(super) struct Fills {
    fills: Vec<Fill>,
    /// The span of each key.
    keys: BTreeMap<(FillTarget, String), Span>,
}

impl Fills {
    /// Checks the rows of one item and adds them to their table's.
    pub(super) fn add(
        &mut self,
        cx: &mut Cx<'_>,
        (shared, chains, elements): (&[Table], &[Chain], &[&Element]),
        item: &InsertRows,
    ) {
        let Some(target) = target(cx, shared, chains, elements, &item.table) else { return };
        let (table, limits) = match target {
            FillTarget::Shared(at) => (&shared[at], shared[at].limits),
            FillTarget::Own { chain, instance, table } => {
                let instance = &chains[chain].instances[instance];
                (&elements[instance.element].tables[table], instance.tables.get(table).copied())
            }
        };
        if table.filled != Some(Filler::Controller) {
            return not_fillable(cx, table, item);
        }
        let Some(columns) = columns(cx, table, item) else { return };
        let ports = port_columns_of(target, (chains, elements));
        let rows = item.rows.iter().filter_map(|row| {
            let values = values(cx, table, &columns, item, row)?;
            cx.warn_of_ports(table, &ports, &columns, (row, &values));
            self.claim_key(cx, target, table, &values, row.span).then_some(values)
        });
        let rows: Vec<Vec<Value>> = rows.collect();
        let n_rows = self.extend(target, rows, item.span);
        if let Some(limits) = limits
            && n_rows as u64 > limits.rows_max
        {
            too_many_rows(cx, table, n_rows, limits.rows_max, item);
        }
    }

    /// Adds the members of a chain's cluster to the tables of its stages that hold them.
    pub(super) fn add_members(
        &mut self,
        cx: &mut Cx<'_>,
        (chain, at): (&Chain, usize),
        clusters: &[Cluster],
        elements: &[&Element],
    ) {
        let cluster = chain.edge.calls().and_then(|(_, to)| clusters.get(to));
        // A member of double weight has two slots, so balancers that choose a slot give it twice as much.
        let turns = cluster.map(|cluster| round_robin::by_weight(&cluster.weights)).unwrap_or_default();
        let members: Vec<&Address> = cluster
            .iter()
            .flat_map(|cluster| turns.iter().map(|at| &cluster.endpoints[*at as usize]))
            .collect();
        let row = |(slot, address): (usize, &&Address)| {
            vec![Value::Int(slot as i64), Value::text(&address.to_string())]
        };
        for (instance_at, instance) in chain.instances.iter().enumerate() {
            let tables = elements[instance.element].tables.iter().zip(&instance.tables).enumerate();
            for (table_at, (table, limits)) in
                tables.filter(|(_, (table, _))| table.filled == Some(Filler::Cluster))
            {
                let held = ("the cluster", "member", "this chain's cluster");
                check_capacity(cx, (table, limits.rows_max), members.len(), held, instance.span);
                let target = FillTarget::Own { chain: at, instance: instance_at, table: table_at };
                self.extend(target, members.iter().enumerate().map(row).collect(), instance.span);
            }
        }
    }

    /// Adds the ports of a program to the element tables and shared tables that hold them.
    pub(super) fn add_ports(&mut self, cx: &mut Cx<'_>, network: &Network, elements: &[&Element]) {
        let holds_ports = |table: &Table| table.filled == Some(Filler::Ports);
        let mut found = Vec::new();
        for (at, table) in network.tables.iter().enumerate().filter(|(_, table)| holds_ports(table)) {
            found.push((FillTarget::Shared(at), table, table.limits, table.span));
        }
        for (chain, of_chain) in network.chains.iter().enumerate() {
            for (at, instance) in of_chain.instances.iter().enumerate() {
                let tables = elements[instance.element].tables.iter().zip(&instance.tables).enumerate();
                for (table_at, (table, limits)) in tables.filter(|(_, (table, _))| holds_ports(table)) {
                    let target = FillTarget::Own { chain, instance: at, table: table_at };
                    found.push((target, table, Some(*limits), instance.span));
                }
            }
        }
        for (target, table, limits, span) in found {
            let rows = ports::rows(&network.ports, &network.groups, &[], table);
            if let Some(limits) = limits {
                let held = ("the program", "port", "this program");
                check_capacity(cx, (table, limits.rows_max), rows.len(), held, span);
            }
            self.extend(target, rows, table.span);
        }
    }

    /// Records the key of a row; false, and an error, if another row has it.
    fn claim_key(
        &mut self,
        cx: &mut Cx<'_>,
        target: FillTarget,
        table: &Table,
        values: &[Value],
        span: Span,
    ) -> bool {
        let key = format!("{:?}", &values[..table.n_keys]);
        let Some(first) = self.keys.insert((target, key), span) else { return true };
        let message = format!("two rows of `{}` have the same key", table.name);
        let diagnostic = Diagnostic::error(code::DUPLICATE_KEY, message)
            .at(span, "the second")
            .with_label(first, "the first")
            .with_help("keep one of them");
        cx.report(diagnostic);
        false
    }

    /// Appends rows to a table; returns their number.
    fn extend(&mut self, target: FillTarget, rows: Vec<Vec<Value>>, span: Span) -> usize {
        match self.fills.iter_mut().find(|fill| fill.table == target) {
            Some(fill) => {
                fill.rows.extend(rows);
                fill.rows.len()
            }
            None => {
                let n_rows = rows.len();
                self.fills.push(Fill { table: target, rows, span });
                n_rows
            }
        }
    }

    /// All that was gathered.
    pub(super) fn finish(self) -> Vec<Fill> {
        self.fills
    }
}

/// The columns of a table whose values elements use as output ports.
pub(super) fn port_columns_of(
    target: FillTarget,
    (chains, elements): (&[Chain], &[&Element]),
) -> BTreeSet<usize> {
    let of = |element: &Element, wanted: TableRef| {
        let all = port_columns(element).into_iter();
        all.filter(move |(table, _)| *table == wanted).map(|(_, column)| column).collect::<Vec<_>>()
    };
    match target {
        FillTarget::Own { chain, instance, table } => {
            let element = elements[chains[chain].instances[instance].element];
            of(element, TableRef::Own(table)).into_iter().collect()
        }
        FillTarget::Shared(at) => {
            elements.iter().flat_map(|element| of(element, TableRef::Shared(at))).collect()
        }
    }
}

/// Reports rows for a table that the program does not fill.
fn not_fillable(cx: &mut Cx<'_>, table: &Table, item: &InsertRows) {
    let (by, label, help) = match table.filled {
        Some(Filler::Cluster) => (
            "from the members of the chain's cluster",
            "FILLED BY CLUSTER",
            "remove the rows, and give the cluster its members",
        ),
        Some(Filler::Ports) => (
            "from the ports of the program",
            "FILLED BY PORTS",
            "remove the rows; set properties on the port: `WITH (mtu = 1500)`",
        ),
        Some(Filler::Stage) => (
            "by another stage",
            "FILLED BY STAGE",
            "insert the rows into the table of the stage that it names",
        ),
        _ => ("by handlers", "not FILLED BY CONTROLLER", "declare it `FILLED BY CONTROLLER`"),
    };
    let message = format!("`{}` is filled {by}, not by INSERT in a program", table.name);
    let diagnostic = Diagnostic::error(code::NOT_FILLABLE, message)
        .at(item.table.span, "rows inserted here")
        .with_label(table.span, label)
        .with_help(help);
    cx.report(diagnostic);
}

/// Reports more rows than the table holds.
fn too_many_rows(cx: &mut Cx<'_>, table: &Table, n_rows: usize, rows_max: u64, item: &InsertRows) {
    let message = format!("`{}` gets {n_rows} rows, but holds at most {rows_max}", table.name);
    let diagnostic = Diagnostic::error(code::TOO_MANY_ROWS, message)
        .at(item.table.span, "too many rows")
        .with_label(table.span, "limit declared here")
        .with_help(format!("raise the limit: `MAX {n_rows} ROWS`"));
    cx.report(diagnostic);
}

/// Reports a table that is too small: owner, contents, and both in words.
fn check_capacity(
    cx: &mut Cx<'_>,
    (table, rows_max): (&Table, u64),
    n: usize,
    (whose, what, held): (&str, &str, &str),
    at: Span,
) {
    if n as u64 <= rows_max {
        return;
    }
    let message = format!("{whose} has {n} {what}s, but `{}` holds at most {rows_max} rows", table.name);
    let diagnostic = Diagnostic::error(code::TOO_MANY_ROWS, message)
        .at(at, format!("filled with the {what}s of {held}"))
        .with_label(table.span, "limit declared here")
        .with_help(format!("raise the limit: `MAX {n} ROWS`"));
    cx.report(diagnostic);
}

/// Finds the table that a path names. Reports an unknown table.
pub(super) fn target(
    cx: &mut Cx<'_>,
    shared: &[Table],
    chains: &[Chain],
    elements: &[&Element],
    path: &Path,
) -> Option<FillTarget> {
    let unknown = |cx: &mut Cx<'_>, name: &Ident, what: &str, names: Vec<&str>| {
        let message = format!("unknown {what} `{}`", name.name);
        let mut diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, message).at(name.span, "unknown");
        if !names.is_empty() {
            diagnostic = diagnostic.with_note(format!("there are: {}", names.join(", ")));
        }
        cx.report_missing(with_nearest(diagnostic, name, names));
    };
    match path.segments.as_slice() {
        [name] => {
            let found = shared.iter().position(|table| table.name == name.name);
            if found.is_none() {
                unknown(cx, name, "shared table", shared.iter().map(|table| table.name.as_str()).collect());
            }
            found.map(FillTarget::Shared)
        }
        [chain_name, instance_name, table_name] => {
            let Some(chain) = chains.iter().position(|chain| chain.name == chain_name.name) else {
                unknown(cx, chain_name, "chain", chains.iter().map(|chain| chain.name.as_str()).collect());
                return None;
            };
            let instances = &chains[chain].instances;
            let Some(instance) = instances.iter().position(|instance| instance.name == instance_name.name)
            else {
                unknown(
                    cx,
                    instance_name,
                    "stage",
                    instances.iter().map(|instance| instance.name.as_str()).collect(),
                );
                return None;
            };
            let tables = &elements[instances[instance].element].tables;
            let Some(table) = tables.iter().position(|table| table.name == table_name.name) else {
                unknown(cx, table_name, "table", tables.iter().map(|table| table.name.as_str()).collect());
                return None;
            };
            Some(FillTarget::Own { chain, instance, table })
        }
        _ => {
            let message = format!("`{}` does not name a table", path.to_dotted());
            let help = "write `chain.stage.table`, or the name of a shared table";
            cx.refuse(code::UNKNOWN_OBJECT, message, path.span, "table of which stage?", help)
        }
    }
}

/// Returns the columns that rows set, as indices into the table's columns.
pub(super) fn columns(cx: &mut Cx<'_>, table: &Table, item: &InsertRows) -> Option<Vec<usize>> {
    if item.columns.is_empty() {
        return Some(written_order(table));
    }
    all(item.columns.iter().map(|name| column_of(cx, table, name)))
}

/// The values of all rows, each with its span; None after an error.
pub(super) fn rows_of(
    cx: &mut Cx<'_>,
    table: &Table,
    columns: &[usize],
    item: &InsertRows,
) -> Option<Vec<(Vec<Value>, Span)>> {
    all(item.rows.iter().map(|row| Some((values(cx, table, columns, item, row)?, row.span))))
}

/// Computes the values of a row. Without column names, trailing columns may be left out.
fn values(
    cx: &mut Cx<'_>,
    table: &Table,
    columns: &[usize],
    item: &InsertRows,
    row: &Row,
) -> Option<Vec<Value>> {
    // Without names, trailing columns may be omitted, so that a table can get more columns.
    let least = if item.columns.is_empty() { 0 } else { columns.len() };
    if !(least..=columns.len()).contains(&row.values.len()) {
        let message = values_for_columns(row.values.len(), columns.len());
        return Diagnostic::error(code::BAD_ARGUMENTS, message)
            .at(row.span, "one value for each column")
            .refuse(cx);
    }
    let mut values: Vec<Option<Value>> = vec![None; table.columns.len()];
    let mut ok = true;
    for (&at, value) in columns.iter().zip(&row.values) {
        let column = &table.columns[at];
        let (element, mut n_rand) = (empty_element(), 0);
        let mut scope = Scope::new(cx, &element, &[], View::Constant, &mut n_rand);
        let whose = format!("column `{}`", column.name);
        let expr = if scope.cx.is_broken(column.span) {
            None
        } else {
            scope.value_for(value, column.ty, column.nullable, &whose)
        };
        values[at] = expr.and_then(|expr| cx.folded(&expr, &[]));
        ok &= values[at].is_some();
    }
    for (at, column) in table.columns.iter().enumerate() {
        if !ok || values[at].is_some() {
            continue;
        }
        // A default that needs parameters is unknown here; one that needs the time is known in statements only.
        let default = column.default.as_ref().and_then(|default| cx.value_of(default, &[]).ok());
        if default.is_none() {
            let message = format!("a row of `{}` has no value for `{}`", table.name, column.name);
            let diagnostic = Diagnostic::error(code::NO_VALUE, message)
                .at(row.span, format!("`{}` has no value", column.name))
                .with_label(column.span, "has no constant default")
                .with_help(format!("give it a value of type {}", type_words(column.ty)));
            cx.report(diagnostic);
            ok = false;
        }
        values[at] = default;
    }
    let values: Vec<Value> = values.into_iter().collect::<Option<_>>().filter(|_| ok)?;
    match broken(table, &values) {
        Some(check) => {
            report_broken(cx, table, &values, check, row.span);
            None
        }
        None => Some(values),
    }
}

/// Reports a row that violates a CHECK.
fn report_broken(cx: &mut Cx<'_>, table: &Table, values: &[Value], check: &Check, row: Span) {
    let diagnostic = Diagnostic::error(code::CHECK_BROKEN, breaks(table, check, values))
        .at(row, "this row")
        .with_label(check.span, "condition on every row");
    cx.report(diagnostic);
}

fn type_words(ty: Type) -> String {
    ty.to_string()
}
