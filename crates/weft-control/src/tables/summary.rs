//! Aggregates of a SELECT: its groups, and their sums.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use weft_core::{Time, Type, Value};
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::table_statement::{Measure, Summary};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{Aggregate, Expr};

use super::select::{compare, row_fault};

/// Rows, and the types of their columns.
type TypedRows = (Vec<Vec<Value>>, Vec<Type>);

/// The groups so far.
pub(crate) struct Groups<'a> {
    summary: &'a Summary,
    types: &'a [Type],
    now: Time,
    groups: BTreeMap<Key, Group>,
}

struct Group {
    /// One row of the group.
    row: Vec<Value>,
    /// The state of each item.
    sums: Vec<Sum>,
}

/// The values that a group's rows share; groups are sorted by it.
#[derive(PartialEq)]
struct Key(Vec<(Value, Type)>);

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let columns = self.0.iter().zip(&other.0).map(|((a, ty), (b, _))| compare(a, b, *ty));
        columns.fold(Ordering::Equal, Ordering::then)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Groups<'a> {
    /// Groups of rows with columns of these types.
    pub(crate) fn new(summary: &'a Summary, types: &'a [Type], now: Time) -> Self {
        let mut groups = BTreeMap::new();
        if summary.group.is_empty() {
            groups.insert(Key(Vec::new()), Group::new(summary, &vec![Value::Null; types.len()]));
        }
        Self { summary, types, now, groups }
    }

    /// Adds a row to its group.
    pub(crate) fn take(&mut self, row: &[Value]) -> Result<(), FoldError> {
        let key = self.summary.group.iter().map(|at| (row[*at].clone(), self.types[*at])).collect();
        let group = self.groups.entry(Key(key)).or_insert_with(|| Group::new(self.summary, row));
        for ((_, measure), sum) in self.summary.items.iter().zip(&mut group.sums) {
            if let Measure::Aggregate(aggregate, _) = measure {
                sum.take(aggregate, row, self.now)?;
            }
        }
        Ok(())
    }

    /// The rows of the answer in their order, and the types of their columns.
    pub(crate) fn rows(self) -> Result<TypedRows, Box<Diagnostic>> {
        let Self { summary, now, groups, .. } = self;
        let types: Vec<Type> = summary.items.iter().map(|(_, measure)| type_of(measure)).collect();
        let row = |group: Group| {
            let items = summary.items.iter().zip(&group.sums).map(|((_, measure), sum)| match measure {
                Measure::Same(expr) => fold_at(expr, &group.row, now).map_err(row_fault),
                Measure::Aggregate(aggregate, ty) => sum.value(aggregate, *ty),
            });
            items.collect::<Result<Vec<Value>, Box<Diagnostic>>>()
        };
        let mut rows = groups.into_values().map(row).collect::<Result<Vec<_>, Box<Diagnostic>>>()?;
        if let Some((at, descending)) = summary.order {
            rows.sort_by(|a, b| {
                let order = compare(&a[at], &b[at], types[at]);
                if descending { order.reverse() } else { order }
            });
        }
        Ok((rows, types))
    }
}

impl Group {
    fn new(summary: &Summary, row: &[Value]) -> Self {
        Self { row: row.to_vec(), sums: summary.items.iter().map(|_| Sum::default()).collect() }
    }
}

fn type_of(measure: &Measure) -> Type {
    match measure {
        Measure::Same(expr) => expr.ty,
        Measure::Aggregate(_, ty) => *ty,
    }
}

/// The state of an aggregate.
struct Sum {
    /// Rows with a value.
    n: u64,
    /// The sum of integers: no table has enough rows to overflow it.
    whole: i128,
    float: f64,
    /// The minimum or maximum so far, and the requested value of its row.
    best: Value,
    result: Value,
}

impl Default for Sum {
    fn default() -> Self {
        Self { n: 0, whole: 0, float: 0.0, best: Value::Null, result: Value::Null }
    }
}

impl Sum {
    /// Adds a row to an aggregate.
    fn take(&mut self, aggregate: &Aggregate, row: &[Value], now: Time) -> Result<(), FoldError> {
        match aggregate {
            Aggregate::Count | Aggregate::Any => self.n += 1,
            Aggregate::Sum(expr) | Aggregate::Avg(expr) => self.add(&fold_at(expr, row, now)?, expr.ty),
            Aggregate::Min(expr) => self.note((expr, expr), Ordering::Less, row, now)?,
            Aggregate::Max(expr) => self.note((expr, expr), Ordering::Greater, row, now)?,
            Aggregate::ArgMin { result, by } => self.note((result, by), Ordering::Less, row, now)?,
            Aggregate::ArgMax { result, by } => self.note((result, by), Ordering::Greater, row, now)?,
        }
        Ok(())
    }

    /// Adds a number to the sum; NULL does not count.
    fn add(&mut self, value: &Value, ty: Type) {
        match value {
            Value::Int(n) if ty.is_signed() => self.whole += i128::from(*n),
            Value::Int(n) => self.whole += i128::from(*n as u64),
            Value::Float(x) => self.float += x,
            _ => return,
        }
        self.n += 1;
    }

    /// Keeps `result` of the row if its `by` is less or greater than that of the kept row. Of equal rows the first
    /// stays.
    fn note(
        &mut self,
        (result, by): (&Expr, &Expr),
        better: Ordering,
        row: &[Value],
        now: Time,
    ) -> Result<(), FoldError> {
        let value = fold_at(by, row, now)?;
        let is_better = self.best == Value::Null || compare(&value, &self.best, by.ty) == better;
        if value != Value::Null && is_better {
            self.result = fold_at(result, row, now)?;
            self.best = value;
        }
        Ok(())
    }

    /// The aggregate's result. Fails if a sum does not fit its type.
    fn value(&self, aggregate: &Aggregate, ty: Type) -> Result<Value, Box<Diagnostic>> {
        match aggregate {
            Aggregate::Count | Aggregate::Any => Ok(Value::Int(self.n as i64)),
            Aggregate::Sum(_) | Aggregate::Avg(_) if self.n == 0 => Ok(Value::Null),
            Aggregate::Sum(expr) => self.sum(ty).ok_or_else(|| overflow(expr, ty)),
            Aggregate::Avg(_) => {
                let mean = (self.whole as f64 + self.float) / self.n as f64;
                Ok(Value::Float(mean))
            }
            _ => Ok(self.result.clone()),
        }
    }

    /// The sum; None if it does not fit the type.
    fn sum(&self, ty: Type) -> Option<Value> {
        match ty {
            Type::F64 => Some(Value::Float(self.float)),
            ty if ty.is_signed() => i64::try_from(self.whole).ok().map(Value::Int),
            _ => u64::try_from(self.whole).ok().map(|sum| Value::Int(sum as i64)),
        }
    }
}

/// The diagnostic of a sum that does not fit its type.
fn overflow(expr: &Expr, ty: Type) -> Box<Diagnostic> {
    let diagnostic =
        Diagnostic::error(code::OVER_LIMIT, format!("the sum of this is outside what {ty} holds"))
            .at(expr.span, "overflows")
            .with_help("take fewer rows: `WHERE ...`");
    let is_whole = ty != Type::F64 && ty != Type::Interval;
    Box::new(match is_whole {
        true => diagnostic.with_help("or add them as numbers that are rounded: `sum(float(c))`"),
        false => diagnostic,
    })
}
