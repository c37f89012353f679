//! Checks aggregations: `SELECT link, sum(drops) FROM queues GROUP BY link`.

use weft_core::Type;

use super::{evaluates, outputs};
use crate::ast::{self, SelectItem};
use crate::check::Cx;
use crate::check::query::{self, is_aggregate};
use crate::check::scope::{Scope, View, with_nearest};
use crate::check::table::column_of;
use crate::check::walk::each_expr;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Aggregate, Element, Expr, ExprKind, Table};

/// A query with aggregates: one result row per group.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The GROUP BY columns. If empty, all rows form a single group, even if there are no rows.
    pub group: Vec<usize>,
    /// The items of a result row, each with its name.
    pub items: Vec<(String, Measure)>,
    /// The item to sort by, and whether in descending order.
    pub order: Option<(usize, bool)>,
}

/// A value of a group.
#[derive(Clone, Debug)]
pub enum Measure {
    /// An expression over columns that are equal within a group.
    Same(Expr),
    /// An aggregate over the group's rows, and its type.
    Aggregate(Aggregate, Type),
}

/// Whether a SELECT aggregates rows.
pub(super) fn is_summary(items: &[SelectItem], group: &[ast::Ident]) -> bool {
    let is_measure =
        |item: &SelectItem| matches!(item, SelectItem::Value { value, .. } if is_aggregate(value));
    !group.is_empty() || items.iter().any(is_measure)
}

/// The table of the query.
pub(super) struct QueriedTable<'a, 'c> {
    pub(super) cx: &'a mut Cx<'c>,
    pub(super) table: &'a Table,
    pub(super) row: &'a Element,
    pub(super) n_rand: &'a mut u32,
}

impl QueriedTable<'_, '_> {
    /// Checks a SELECT with aggregates or GROUP BY.
    pub(super) fn summary(
        &mut self,
        items: &[SelectItem],
        group: &[ast::Ident],
        order: Option<&(ast::Ident, bool)>,
    ) -> Option<Summary> {
        let columns = group.iter().map(|name| column_of(self.cx, self.table, name));
        let group: Vec<usize> = columns.collect::<Option<_>>()?;
        let items = items.iter().map(|item| self.measures(item, &group));
        let items = items.collect::<Option<Vec<_>>>()?.concat();
        let order = match order {
            Some((name, descending)) => Some((self.item_of(&items, name)?, *descending)),
            None => None,
        };
        Some(Summary { group, items, order })
    }

    /// Returns the measures of one SELECT item: an aggregate, or a grouped column.
    fn measures(&mut self, item: &SelectItem, group: &[usize]) -> Option<Vec<(String, Measure)>> {
        match item {
            SelectItem::Value { value, alias } if is_aggregate(value) => {
                let name = match alias {
                    Some(alias) => alias.name.clone(),
                    None => self.name_of(value),
                };
                Some(vec![(name, self.aggregate(value)?)])
            }
            _ => {
                let outputs = outputs(self.cx, self.table, self.row, item, self.n_rand)?;
                let same = |(name, expr): (String, Expr)| {
                    self.is_same_in_group(&expr, group).then_some((name, Measure::Same(expr)))
                };
                outputs.into_iter().map(same).collect()
            }
        }
    }

    /// Returns the name of a result column without an alias.
    fn name_of(&self, value: &ast::Expr) -> String {
        match &value.kind {
            ast::ExprKind::Call { star: Some(_), .. } => "count".to_owned(),
            _ => self.cx.sources.slice(value.span).to_owned(),
        }
    }

    /// Checks one aggregate. Sums have 64 bits.
    fn aggregate(&mut self, value: &ast::Expr) -> Option<Measure> {
        let mut scope = Scope::new(self.cx, self.row, &[], View::Row, self.n_rand);
        let (aggregate, ty, _) = query::aggregate_call(&mut scope, value)?;
        let ty = match (&aggregate, ty) {
            // Many small numbers can add up to a large one.
            (Aggregate::Sum(_), Type::Uint(_)) => Type::Uint(64),
            (Aggregate::Sum(_), Type::Int(_)) => Type::Int(64),
            (_, ty) => ty,
        };
        let is_told = aggregate.parts().into_iter().all(|part| evaluates(self.cx, self.row, part));
        is_told.then_some(Measure::Aggregate(aggregate, ty))
    }

    /// Whether an expression has one value per group; reports an error otherwise.
    fn is_same_in_group(&mut self, expr: &Expr, group: &[usize]) -> bool {
        let mut other = None;
        each_expr(expr, &mut |part| match part.kind {
            ExprKind::Param(at) if !group.contains(&at) => other = Some(at),
            _ => {}
        });
        let Some(at) = other else { return true };
        let name = &self.table.columns[at].name;
        let message = format!("`{name}` may differ between the rows of a group");
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
            .at(expr.span, "value of which row?")
            .with_help(format!("for one result row per value: `GROUP BY {name}`"))
            .with_help(format!("or aggregate it: `max({name})`, `min({name})`"));
        self.cx.report(diagnostic);
        false
    }

    /// Finds the result column with this name. Reports an unknown one.
    fn item_of(&mut self, items: &[(String, Measure)], name: &ast::Ident) -> Option<usize> {
        let at = items.iter().position(|(known, _)| *known == name.name);
        if at.is_none() {
            let message = format!("the result has no column `{}` to sort by", name.name);
            let names: Vec<&str> = items.iter().map(|(name, _)| name.as_str()).collect();
            let diagnostic = Diagnostic::error(code::UNKNOWN_COLUMN, message)
                .at(name.span, "not in the list of the SELECT")
                .with_note(format!("it has: {}", names.join(", ")))
                .with_help("name a call with AS: `SELECT sum(c) AS n ... ORDER BY n`");
            self.cx.report(with_nearest(diagnostic, name, names));
        }
        at
    }
}
