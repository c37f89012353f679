//! Rows on their way to sinks.
//!
//! A worker never writes a file. It packs rows into a [`Batch`], which a driver hands to a writer on another thread. If
//! the writer is behind, the batch is dropped and counted ([`crate::stats::Stats::rows_lost`]).

use std::sync::Arc;
use weft_core::abi::{Cell, Outcome};
use weft_core::{Time, Value};
use weft_ir::program::{ChainProgram, SinkDecl, SinkTarget};

/// The number of rows at which a batch is due.
pub const BATCH_ROWS_MAX: usize = 1024;
/// The bytes of text at which a batch is due.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// A batch may grow to that many times this size before it refuses further rows.
const TURN_BATCHES_MAX: usize = 16;

/// Rows of one worker, in the order of their emission.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Vec<PackedRow>,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
    /// Some row is for a table, where readers wait for it.
    is_urgent: bool,
}

#[derive(Clone, Debug)]
struct PackedRow {
    at: Time,
    program: Arc<ChainProgram>,
    sink: u16,
    cells: u32,
    n_cells: u16,
    bytes: u32,
}

/// A row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// `now()` of the pass that emitted it.
    pub at: Time,
    /// The chain that emitted it.
    pub chain: &'a str,
    /// Its sink.
    pub sink: &'a SinkDecl,
    cells: &'a [Cell],
    bytes: &'a [u8],
}

/// The value of one column of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellValue<'a> {
    /// NULL
    Null,
    /// A boolean.
    Bool(bool),
    /// 64 bits; the column's type says whether they are signed.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

impl From<CellValue<'_>> for Value {
    fn from(cell: CellValue<'_>) -> Self {
        match cell {
            CellValue::Null => Self::Null,
            CellValue::Bool(b) => Self::Bool(b),
            CellValue::Int(n) => Self::Int(n),
            CellValue::Float(x) => Self::Float(x),
            CellValue::Bytes(bytes) => Self::Bytes(bytes.into()),
        }
    }
}

impl Batch {
    /// Copies the sink rows of a pass; returns the number of rows without room.
    pub(crate) fn take(&mut self, at: Time, program: &Arc<ChainProgram>, outcome: &Outcome) -> usize {
        if self.is_full() {
            return outcome.rows.len();
        }
        let mut cells = &outcome.cells[..];
        for row in &outcome.rows {
            let (mine, rest) = cells.split_at(usize::from(row.cells));
            cells = rest;
            let target = &program.sinks[usize::from(row.sink)].target;
            self.is_urgent |= matches!(target, SinkTarget::Table { .. });
            self.rows.push(PackedRow {
                at,
                program: Arc::clone(program),
                sink: row.sink,
                cells: self.cells.len() as u32,
                n_cells: row.cells,
                bytes: self.bytes.len() as u32,
            });
            for cell in mine {
                let packed = match *cell {
                    Cell::Bytes(start, len) => {
                        let begin = self.bytes.len() - self.rows.last().map_or(0, |r| r.bytes as usize);
                        self.bytes.extend_from_slice(outcome.kept(start, len));
                        Cell::Bytes(begin as u32, len)
                    }
                    other => other,
                };
                self.cells.push(packed);
            }
        }
        0
    }

    /// Whether it should be handed to the writer.
    pub fn is_due(&self) -> bool {
        self.is_urgent || self.rows.len() >= BATCH_ROWS_MAX || self.bytes.len() >= BATCH_BYTES_MAX
    }

    /// Whether it refuses further rows. A worker hands a batch over at the end of a turn; within a turn it may grow.
    fn is_full(&self) -> bool {
        self.rows.len() >= TURN_BATCHES_MAX * BATCH_ROWS_MAX
            || self.bytes.len() >= TURN_BATCHES_MAX * BATCH_BYTES_MAX
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.is_urgent = false;
        self.rows.clear();
        self.cells.clear();
        self.bytes.clear();
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|row| Row {
            at: row.at,
            chain: &row.program.name,
            sink: &row.program.sinks[usize::from(row.sink)],
            cells: &self.cells[row.cells as usize..][..usize::from(row.n_cells)],
            bytes: &self.bytes[row.bytes as usize..],
        })
    }
}

impl<'a> Row<'a> {
    /// The values in the order of the sink's columns.
    pub fn values(&self) -> impl Iterator<Item = CellValue<'a>> + use<'a> {
        let bytes = self.bytes;
        self.cells.iter().map(move |cell| match *cell {
            Cell::Null => CellValue::Null,
            Cell::Bool(b) => CellValue::Bool(b),
            Cell::Int(n) => CellValue::Int(n),
            Cell::Float(x) => CellValue::Float(x),
            Cell::Bytes(start, len) => CellValue::Bytes(&bytes[start as usize..][..len as usize]),
        })
    }
}

/// A change of a table that the controller fills.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow {
    /// The chain that sends it.
    pub chain: String,
    /// The table's instance; empty for a table of the program.
    pub owner: String,
    /// The table.
    pub table: String,
    /// Delete the row with this key instead of writing it.
    pub deletes: bool,
    /// The values, by column name.
    pub values: Vec<(String, Value)>,
}

impl TableRow {
    /// Returns the change that a row of a sink requests; None if the sink is not for a table.
    pub fn of(row: &Row<'_>) -> Option<Self> {
        let SinkTarget::Table { owner, table, deletes } = &row.sink.target else { return None };
        let names = row.sink.columns.iter().map(|column| column.name.clone());
        Some(Self {
            chain: row.chain.to_owned(),
            owner: owner.clone(),
            table: table.clone(),
            deletes: *deletes,
            values: names.zip(row.values().map(Value::from)).collect(),
        })
    }
}
