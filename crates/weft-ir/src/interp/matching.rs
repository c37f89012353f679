//! Finds the first matching row for the interpreter, by a walk through all rows.

use super::bytes::in_prefix;
use super::{Handling, Val};
use crate::ir::*;
use core::cmp::Ordering;
use weft_core::matching::{MatchPart, MatchSpec, Test};
use weft_core::table::{Row, Table};
use weft_core::types::Type;

impl Handling<'_, '_> {
    /// Finds the first row, in the order of the match, that matches the keys; [`Row::NONE`] if no row does.
    pub(super) fn first(&self, table: TableId, id: MatchId, keys: &[(Value, Option<Value>)]) -> Row {
        let spec = &self.program.chain.matches[usize::from(id.0)].spec;
        let rows = &*self.cx.state.tables[usize::from(table.0)];
        let key = |&(value, null): &(Value, Option<Value>)| {
            let is_null = null.is_some_and(|null| self.bool(null));
            (!is_null).then(|| self.get(value).clone())
        };
        assert_eq!(keys.len(), spec.parts.len(), "the verifier requires a value for each part");
        let keys: Vec<Option<Val>> = keys.iter().map(key).collect();
        let (mut best, mut cursor) = (Row::NONE, 0);
        while let Some((row, next)) = rows.scan(cursor, self.cx.now) {
            let matches = spec
                .parts
                .iter()
                .zip(&keys)
                .all(|(part, key)| self.passes_test(table, row, part, key.as_ref()));
            if matches && (best == Row::NONE || self.comes_before(table, spec, row, best)) {
                best = row;
            }
            cursor = next;
        }
        best
    }

    /// Whether a test is true; with a NULL it is not.
    fn passes_test(&self, table: TableId, row: Row, part: &MatchPart, key: Option<&Val>) -> bool {
        let cell = |column: u16| self.cell_of(table, row, column);
        if part.wildcard.is_some_and(|column| cell(column).is_none()) {
            return true;
        }
        let Some(key) = key else { return false };
        let at_most = |low: &Val, high: &Val| order(part.ty, low, high) != Ordering::Greater;
        match part.test {
            Test::Equal(column) => cell(column).is_some_and(|value| value == *key),
            Test::Within(column) => match (key, cell(column)) {
                (Val::Bytes(address), Some(Val::Bytes(net))) => in_prefix(address, &net),
                _ => false,
            },
            Test::Masked { mask, bits } => {
                let holds = |mask: Val, bits: Val| key.word() & mask.word() == bits.word();
                cell(mask).zip(cell(bits)).is_some_and(|(mask, bits)| holds(mask, bits))
            }
            Test::Range { low, high } => {
                low.is_none_or(|low| cell(low).is_some_and(|low| at_most(&low, key)))
                    && high.is_none_or(|high| cell(high).is_some_and(|high| at_most(key, &high)))
            }
        }
    }

    /// Whether a row precedes another: by the ordering column, NULL last, then by the key.
    fn comes_before(&self, table: TableId, spec: &MatchSpec, row: Row, other: Row) -> bool {
        let decl = &self.program.chain.tables[usize::from(table.0)].spec;
        let [by, other_by] = [row, other].map(|row| self.cell_of(table, row, spec.by));
        let by_order = match (by, other_by) {
            (Some(a), Some(b)) if spec.descending => order(self.type_of_column(table, spec.by), &b, &a),
            (Some(a), Some(b)) => order(self.type_of_column(table, spec.by), &a, &b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        };
        let by_key = || {
            let columns = (0..).zip(&decl.key).map(|(at, column)| {
                let [a, b] = [row, other].map(|row| self.cell_of(table, row, at));
                a.zip(b).map_or(Ordering::Equal, |(a, b)| order(column.ty, &a, &b))
            });
            columns.fold(Ordering::Equal, Ordering::then)
        };
        by_order.then_with(by_key) == Ordering::Less
    }

    fn type_of_column(&self, table: TableId, column: u16) -> Type {
        self.column(table, ColumnId(column)).1
    }

    /// Reads a column of a row; None for NULL.
    fn cell_of(&self, table: TableId, row: Row, column: u16) -> Option<Val> {
        let rows: &Table = &self.cx.state.tables[usize::from(table.0)];
        let (at, ty) = self.column(table, ColumnId(column));
        if rows.is_null(row, at) {
            return None;
        }
        Some(match Ty::of(ty) {
            Ty::Bytes => {
                let mut bytes = Vec::new();
                rows.bytes_into(row, at, &mut bytes);
                Val::Bytes(bytes.into())
            }
            ty => Val::of_word(ty, rows.word(row, at)),
        })
    }
}

/// Compares two values of a type: bytes by content, integers by their sign.
fn order(ty: Type, a: &Val, b: &Val) -> Ordering {
    match (a, b) {
        (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
        (a, b) if ty.is_signed() => (a.word() as i64).cmp(&(b.word() as i64)),
        (a, b) => a.word().cmp(&b.word()),
    }
}
