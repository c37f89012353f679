//! Rows as bytes, for snapshots, migration and queries.
//!
//! A chunk describes itself. It begins with `WFTR`, a version byte, and the numbers of key columns and of columns
//! (u16). For each column follow whether it is nullable (u8), its name and its type (u16 length, text). The number of
//! rows (u32) and the rows end the chunk. A row is the times of its last write, touch and insertion (i64), then its
//! columns. A byte precedes each nullable column: 1 for NULL, and no value follows. A word takes 8 bytes; bytes are a
//! length (u32) and the bytes. All numbers are little endian.

use super::{Age, ColumnRef, ColumnSpec, Insert, KeyBuilder, KeyShape, Row, Table};
use crate::time::Time;
use core::fmt;

/// The version of the format that [`Table::export`] writes.
pub const EXPORT_VERSION: u8 = 2;

const MAGIC: &[u8] = b"WFTR";

/// Why [`Table::import`] refused a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The bytes are not rows, or not all of them.
    Malformed,
    /// The format version is unknown to this build.
    Version(u8),
    /// The key columns differ in number, order, name or type.
    Key,
    /// A column has another type in this table; the bound of a text may differ.
    Type {
        /// The column.
        column: String,
        /// Its type in the chunk.
        from: String,
        /// Its type here.
        to: String,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("not a chunk of table rows"),
            Self::Version(v) => write!(f, "rows in format {v}; this build reads {EXPORT_VERSION}"),
            Self::Key => f.write_str("the rows have another key than the table"),
            Self::Type { column, from, to } => {
                write!(f, "column {column} is {from} in the rows and {to} in the table")
            }
        }
    }
}

impl core::error::Error for ImportError {}

impl Table {
    /// Appends a chunk to `out`, with up to `rows_max` live rows from `cursor` on (0 to start), in slab order. Returns
    /// the cursor of the next chunk, None after the last row. It takes no locks.
    pub fn export(&self, cursor: u64, now: Time, rows_max: u32, out: &mut Vec<u8>) -> Option<u64> {
        let columns: Vec<(&ColumnSpec, ColumnRef)> = self.columns().collect();
        out.extend_from_slice(MAGIC);
        out.push(EXPORT_VERSION);
        put_u16(out, self.spec.key.len());
        put_u16(out, columns.len());
        for (spec, _) in &columns {
            out.push(u8::from(spec.nullable));
            put_text(out, &spec.name);
            put_text(out, &spec.ty.to_string());
        }
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut n = 0u32;
        let mut next = Some(cursor);
        while n < rows_max
            && let Some(at) = next
        {
            let found = self.scan(at, now);
            if let Some((row, _)) = found {
                self.export_row(row, &columns, out);
                n += 1;
            }
            next = found.map(|(_, next)| next);
        }
        out[count_at..count_at + 4].copy_from_slice(&n.to_le_bytes());
        next
    }

    /// Inserts the rows of a chunk, each with its age, and returns their number.
    ///
    /// An existing row with the same key is replaced. Rows that have expired or find the table full are skipped.
    /// Columns that this table lacks are skipped; columns that the chunk lacks hold their defaults. An import into an
    /// empty table keeps the eviction order. It takes its locks itself; the caller must hold none.
    ///
    /// # Errors
    /// See [`ImportError`]. A malformed chunk may have been imported up to the fault.
    pub fn import(&self, chunk: &[u8], now: Time) -> Result<u64, ImportError> {
        let mut bytes = Reader(chunk);
        let columns = self.import_header(&mut bytes)?;
        let n = bytes.u32()?;
        // A row has at least 24 bytes, so the count cannot reserve more than the chunk's own size.
        let mut rows = Vec::with_capacity((n as usize).min(bytes.0.len() / 24));
        for _ in 0..n {
            rows.push(RowBytes::read(&mut bytes, &columns)?);
        }
        if !bytes.0.is_empty() {
            return Err(ImportError::Malformed);
        }
        rows.sort_by_key(|row| row.written);
        let mut imported = 0;
        for row in &rows {
            imported += u64::from(self.import_row(row, &columns, now)?);
        }
        rows.sort_by_key(|row| row.touched);
        for row in &rows {
            self.import_age(row);
        }
        Ok(imported)
    }

    /// Appends a row to an export: its times, then its columns.
    fn export_row(&self, row: Row, columns: &[(&ColumnSpec, ColumnRef)], out: &mut Vec<u8>) {
        let (written, touched) = self.stamps(row);
        let inserted = self.header.inserted.map_or(written, |_| self.age(row).inserted);
        for stamp in [written, touched, inserted] {
            out.extend_from_slice(&stamp.0.to_le_bytes());
        }
        for (spec, at) in columns {
            if spec.nullable {
                out.push(u8::from(self.is_null(row, *at)));
                if self.is_null(row, *at) {
                    continue;
                }
            }
            if at.bytes_max == 0 {
                out.extend_from_slice(&self.word(row, *at).to_le_bytes());
            } else {
                let len_at = out.len();
                out.extend_from_slice(&[0; 4]);
                self.bytes_into(row, *at, out);
                let len = (out.len() - len_at - 4) as u32;
                out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
            }
        }
    }

    /// Reads the header of an export, and matches its columns to those of the table. An error if they do not fit.
    fn import_header(&self, bytes: &mut Reader<'_>) -> Result<Vec<ChunkColumn>, ImportError> {
        if bytes.take(MAGIC.len())? != MAGIC {
            return Err(ImportError::Malformed);
        }
        match bytes.take(1)?[0] {
            EXPORT_VERSION => {}
            other => return Err(ImportError::Version(other)),
        }
        let (n_key, n) = (bytes.u16()?, bytes.u16()?);
        let mut columns = Vec::new();
        for i in 0..n {
            let nullable = bytes.take(1)?[0] != 0;
            let (name, ty) = (bytes.text()?, bytes.text()?);
            let here = self.columns().enumerate().find(|(_, (c, _))| c.name == name);
            let is_key = i < n_key;
            if is_key && here.as_ref().is_none_or(|(at, _)| *at != i) {
                return Err(ImportError::Key);
            }
            if let Some((_, (spec, _))) = &here {
                let here = spec.ty.to_string();
                if family(&here) != family(ty) {
                    return Err(ImportError::Type { column: name.into(), from: ty.into(), to: here });
                }
            }
            columns.push(ChunkColumn {
                nullable,
                is_key,
                is_bytes: matches!(family(ty), "TEXT" | "BYTES" | "IPADDR" | "CIDR" | "MAC" | "ENDPOINT"),
                at: here.map(|(_, (_, at))| at),
            });
        }
        if n_key != self.spec.key.len() || n < n_key {
            return Err(ImportError::Key);
        }
        Ok(columns)
    }

    /// Inserts an exported row with its times; false if it has expired or is not inserted.
    fn import_row(
        &self,
        row: &RowBytes<'_>,
        columns: &[ChunkColumn],
        now: Time,
    ) -> Result<bool, ImportError> {
        let used = if self.header.age_by_touch() { row.touched } else { row.written };
        if self.is_over(Age { used: Time(used), inserted: Time(row.inserted) }, now) {
            return Ok(false);
        }
        let hash = self.import_hash(row);
        self.lock(hash);
        let insert = match (&self.key, row.word_key()) {
            (KeyShape::Int { .. }, Some(word)) => self.insert_int(word, Time(row.written)),
            (KeyShape::Bytes { .. }, _) => self.insert_bytes(row.bytes_key(), Time(row.written)),
            _ => self.insert_bytes(row.key.as_bytes(), Time(row.written)),
        };
        let mut fits = true;
        if let Insert::New(new) = insert {
            let values = columns.iter().zip(&row.values).filter(|(column, _)| !column.is_key);
            for (column, value) in values {
                fits &= column.at.is_none_or(|at| self.import_value(new, at, *value));
            }
        }
        self.unlock(hash);
        match insert {
            Insert::New(_) if fits => Ok(true),
            Insert::Full => Ok(false),
            _ => Err(ImportError::Malformed),
        }
    }

    /// Writes a value to a column; false if its bytes do not fit.
    fn import_value(&self, row: Row, at: ColumnRef, value: ChunkValue<'_>) -> bool {
        self.set_null(row, at, matches!(value, ChunkValue::Null));
        match value {
            ChunkValue::Null => true,
            ChunkValue::Word(word) => {
                self.set_word(row, at, word);
                true
            }
            ChunkValue::Bytes(bytes) => self.set_bytes(row, at, bytes),
        }
    }

    /// Sets the read and insertion times of an imported row to the exported ones; its writes have changed them.
    fn import_age(&self, row: &RowBytes<'_>) {
        let hash = self.import_hash(row);
        self.lock(hash);
        let found = match (&self.key, row.word_key()) {
            (KeyShape::Int { .. }, Some(word)) => self.find_int(word, Time(i64::MIN)),
            (KeyShape::Bytes { .. }, _) => self.find_bytes(row.bytes_key(), Time(i64::MIN)),
            _ => self.find_bytes(row.key.as_bytes(), Time(i64::MIN)),
        };
        if found.is_some() {
            self.touch_read(found, Time(row.touched));
            self.set_inserted(found, Time(row.inserted));
        }
        self.unlock(hash);
    }

    /// The hash of an exported row's key.
    fn import_hash(&self, row: &RowBytes<'_>) -> u64 {
        match (&self.key, row.word_key()) {
            (KeyShape::Int { .. }, Some(word)) => self.hash_int(word),
            (KeyShape::Bytes { .. }, _) => self.hash_bytes(row.bytes_key()),
            _ => self.hash_bytes(row.key.as_bytes()),
        }
    }
}

/// A column of a chunk.
struct ChunkColumn {
    nullable: bool,
    is_key: bool,
    is_bytes: bool,
    /// The column of this table, if it has one.
    at: Option<ColumnRef>,
}

#[derive(Clone, Copy)]
enum ChunkValue<'a> {
    Null,
    Word(u64),
    Bytes(&'a [u8]),
}

/// A row of a chunk.
struct RowBytes<'a> {
    written: i64,
    touched: i64,
    inserted: i64,
    key: KeyBuilder,
    values: Vec<ChunkValue<'a>>,
}

impl<'a> RowBytes<'a> {
    /// Reads a row of an export; an error if it is malformed.
    fn read(bytes: &mut Reader<'a>, columns: &[ChunkColumn]) -> Result<Self, ImportError> {
        let [written, touched, inserted] = [bytes.u64()?, bytes.u64()?, bytes.u64()?].map(|time| time as i64);
        let mut row = Self { written, touched, inserted, key: KeyBuilder::default(), values: Vec::new() };
        for column in columns {
            let value = if column.nullable && bytes.take(1)?[0] != 0 {
                ChunkValue::Null
            } else if column.is_bytes {
                let len = bytes.u32()? as usize;
                ChunkValue::Bytes(bytes.take(len)?)
            } else {
                ChunkValue::Word(bytes.u64()?)
            };
            match value {
                ChunkValue::Word(word) if column.is_key => _ = row.key.int(word),
                ChunkValue::Bytes(part) if column.is_key => _ = row.key.bytes(part),
                ChunkValue::Null if column.is_key => return Err(ImportError::Malformed),
                _ => {}
            }
            row.values.push(value);
        }
        Ok(row)
    }

    /// The key, if it is one word.
    fn word_key(&self) -> Option<u64> {
        match self.values.first() {
            Some(ChunkValue::Word(word)) => Some(*word),
            _ => None,
        }
    }

    /// The key, if it is one column of bytes; else empty.
    fn bytes_key(&self) -> &'a [u8] {
        match self.values.first() {
            Some(ChunkValue::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Takes the next `n` bytes; an error if there are fewer.
    fn take(&mut self, n: usize) -> Result<&'a [u8], ImportError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(ImportError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<usize, ImportError> {
        let bytes = self.take(2)?;
        Ok(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn u32(&mut self) -> Result<u32, ImportError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("the slice has 4 bytes")))
    }

    fn u64(&mut self) -> Result<u64, ImportError> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("the slice has 8 bytes")))
    }

    fn text(&mut self) -> Result<&'a str, ImportError> {
        let len = self.u16()?;
        core::str::from_utf8(self.take(len)?).map_err(|_| ImportError::Malformed)
    }
}

/// A type's name without its bound.
fn family(ty: &str) -> &str {
    ty.split('(').next().unwrap_or(ty)
}

fn put_u16(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&(n.min(usize::from(u16::MAX)) as u16).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u16(out, text.len());
    out.extend_from_slice(&text.as_bytes()[..text.len().min(usize::from(u16::MAX))]);
}
