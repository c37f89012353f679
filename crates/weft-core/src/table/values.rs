//! Rows as lists of values, for controllers and queries. Handlers access columns directly, which is faster.

use super::{ColumnRef, Insert, KeyBuilder, Row, Table};
use crate::time::Time;
use crate::types::{Repr, Type, Value};

impl Table {
    /// The row with this key, given one value per key column. [`Row::NONE`] if there is none or it has expired.
    pub fn find_values(&self, key: &[Value], now: Time) -> Row {
        match key {
            [Value::Bytes(bytes)] => self.find_bytes(bytes, now),
            [number] => self.find_int(number.word(), now),
            parts => self.find_bytes(key_of(parts).as_bytes(), now),
        }
    }

    /// The hash of a key for [`Table::lock`], given one value per key column.
    pub fn hash_values(&self, key: &[Value]) -> u64 {
        match key {
            [Value::Bytes(bytes)] => self.hash_bytes(bytes),
            [number] => self.hash_int(number.word()),
            parts => self.hash_bytes(key_of(parts).as_bytes()),
        }
    }

    /// Inserts rows, each with one value per column, keys first. An existing row with the same key is replaced; a row
    /// that finds the table full is skipped. Bytes that are too long for a column leave its default.
    pub fn add_rows(&self, rows: &[Vec<Value>], now: Time) {
        for row in rows {
            self.insert_row(row, now);
        }
    }

    /// Inserts a row with one value per column, keys first; as [`Table::insert_int`].
    pub fn insert_row(&self, values: &[Value], now: Time) -> Insert {
        assert!(values.len() >= self.spec().key.len(), "a row has its key");
        let (key, _) = values.split_at(self.spec().key.len());
        let insert = match key {
            [Value::Bytes(bytes)] => self.insert_bytes(bytes, now),
            [number] => self.insert_int(number.word(), now),
            parts => self.insert_bytes(key_of(parts).as_bytes(), now),
        };
        if let Insert::New(row) = insert {
            self.set_values(row, values);
        }
        insert
    }

    /// Sets all columns of a row except its key. Bytes that are too long for a column leave it unchanged.
    pub fn set_values(&self, row: Row, values: &[Value]) {
        let n_keys = self.spec().key.len();
        for ((_, column), value) in self.columns().zip(values).skip(n_keys) {
            self.set_null(row, column, *value == Value::Null);
            match value {
                Value::Null => {}
                Value::Bytes(bytes) => _ = self.set_bytes(row, column, bytes),
                number => self.set_word(row, column, number.word()),
            }
        }
    }

    /// The values of a row, key columns first.
    pub fn values(&self, row: Row) -> Vec<Value> {
        self.columns().map(|(column, at)| self.value(row, at, column.ty)).collect()
    }

    /// The key of a row, one value per column.
    pub fn key_values(&self, row: Row) -> Vec<Value> {
        let keys = self.columns().take(self.spec().key.len());
        keys.map(|(column, at)| self.value(row, at, column.ty)).collect()
    }

    /// Reads a column of a row as a value.
    fn value(&self, row: Row, at: ColumnRef, ty: Type) -> Value {
        if self.is_null(row, at) {
            return Value::Null;
        }
        match ty.repr() {
            Repr::Bool => Value::Bool(self.word(row, at) != 0),
            Repr::Int => Value::Int(self.word(row, at) as i64),
            Repr::Float => Value::Float(f64::from_bits(self.word(row, at))),
            Repr::Bytes => {
                let mut bytes = Vec::new();
                self.bytes_into(row, at, &mut bytes);
                Value::Bytes(bytes)
            }
        }
    }
}

/// Encodes the values of a key with several columns.
fn key_of(parts: &[Value]) -> KeyBuilder {
    let mut key = KeyBuilder::default();
    for part in parts {
        match part {
            Value::Bytes(bytes) => key.bytes(bytes),
            number => key.int(number.word()),
        };
    }
    key
}
