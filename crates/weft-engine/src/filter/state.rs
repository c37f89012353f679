//! The state of filters, carried by chain and instance name from version to version like the tables of elements.

use super::budget::Spent;
use super::cells::Cells;
use super::circuit::Breaker;
use super::congestion::Limit;
use super::once::CallIds;
use super::order::OrderQueues;
use super::outlier::Ejections;
use std::sync::Arc;
use weft_core::filter::{ID_BYTES_MAX, Policies, Reliability};
use weft_core::hash::HashKey;
use weft_core::table::{ColumnSpec, Evict, Insert, Row, Scalars, Table, TableSpec};
use weft_core::types::Type;
use weft_core::{Interval, Time};
use weft_ir::program::{Realisation, TableDecl};

/// The most endpoints in OUTLIER.
const ENDPOINTS_MAX: u64 = 4096;

/// The words of policies without a table.
pub(crate) const CELLS: usize = AT_WAITING + 3;
const AT_BREAKER: usize = 0;
const AT_LIMIT: usize = AT_BREAKER + Breaker::WORDS;
const AT_RETRIES: usize = AT_LIMIT + Limit::WORDS;
const AT_HEDGES: usize = AT_RETRIES + Spent::WORDS;
/// The schedule of a RATE without a key.
pub(super) const AT_EXPECTED: usize = AT_HEDGES + Spent::WORDS;
/// Waiting calls, counted separately for ORDER, RATE and others.
const AT_WAITING: usize = AT_EXPECTED + 1;

/// The state of one filter instance.
#[derive(Clone, Debug)]
pub(crate) struct State {
    cells: Arc<Scalars>,
    hash: HashKey,
    rate: Option<Arc<Table>>,
    pub(super) orders: Option<OrderQueues>,
    pub(super) call_ids: Option<CallIds>,
    pub(crate) ejections: Option<Ejections>,
}

/// What a counted call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// For its turn in an order queue, or for another call with its id.
    ForOthers,
    /// For its time.
    ForTime,
    /// For its own answer, as the first with its id.
    IsFirst,
}

impl State {
    /// Creates the state of a filter. `tables` are the bound tables of [`table_decls`], in order; `hash` is the
    /// node's key.
    pub(crate) fn new(
        policies: &Policies,
        cells: Arc<Scalars>,
        tables: Vec<Arc<Table>>,
        hash: HashKey,
    ) -> Self {
        let mut tables = tables.into_iter();
        let mut next = |is_there: bool| if is_there { tables.next() } else { None };
        Self {
            rate: next(has_rate_keys(policies)),
            orders: next(policies.order.is_some()).map(OrderQueues::new),
            call_ids: next(once(policies).is_some()).map(CallIds::new),
            ejections: next(policies.outlier.is_some()).map(Ejections::new),
            cells,
            hash,
        }
    }

    /// The keyed hash of a call's key or id, here and in the tables of policies. With a known hash, a peer could
    /// compute keys that share another's schedule or order queue.
    pub(super) fn stand_in(&self, key: &[u8]) -> u64 {
        self.hash.hash_bytes(key)
    }

    pub(super) fn breaker<R>(&self, change: impl FnOnce(&mut Breaker) -> R) -> R {
        Breaker::change(&self.cells, AT_BREAKER, change)
    }

    pub(super) fn limit<R>(&self, change: impl FnOnce(&mut Limit) -> R) -> R {
        Limit::change(&self.cells, AT_LIMIT, change)
    }

    pub(super) fn retries<R>(&self, change: impl FnOnce(&mut Spent) -> R) -> R {
        Spent::change(&self.cells, AT_RETRIES, change)
    }

    pub(super) fn hedges<R>(&self, change: impl FnOnce(&mut Spent) -> R) -> R {
        Spent::change(&self.cells, AT_HEDGES, change)
    }

    /// Changes the schedule of a RATE: that of `key`, or the only one if `key` is None. Returns the result of
    /// `change`.
    pub(super) fn schedule<R>(&self, now: Time, key: Option<u64>, change: impl FnOnce(&mut Time) -> R) -> R {
        match (&self.rate, key) {
            (Some(table), Some(key)) => keyed_schedule(table, now, key, change),
            _ => {
                self.cells.lock();
                let mut expected = Time(self.cells.word(AT_EXPECTED) as i64);
                let result = change(&mut expected);
                self.cells.set_word(AT_EXPECTED, expected.0 as u64);
                self.cells.unlock();
                result
            }
        }
    }

    /// The number of waiting calls on all workers.
    pub(crate) fn waiting(&self, what: WaitKind) -> u64 {
        self.cells.word(AT_WAITING + what as usize)
    }

    /// Adds or removes a waiting call. False if there would be more than `max`.
    pub(crate) fn count_waiting(&self, what: WaitKind, more: bool, max: u32) -> bool {
        let at = AT_WAITING + what as usize;
        self.cells.lock();
        let n = self.cells.word(at);
        let fits = !more || n < u64::from(max);
        if fits {
            self.cells.set_word(at, if more { n + 1 } else { n.saturating_sub(1) });
        }
        self.cells.unlock();
        fits
    }
}

/// Returns the tables that a filter's policies need. Their owner is the filter instance.
pub(crate) fn table_decls(name: &str, policies: &Policies, is_shared: bool) -> Vec<TableDecl> {
    let rate = policies.rate.as_ref().filter(|rate| rate.key.is_some());
    let specs = [
        rate.map(|rate| rate_spec(u64::from(rate.keys_max), is_shared)),
        policies.order.map(|order| line_spec(u64::from(order.keys_max), is_shared)),
        once(policies).map(|(window, calls_max, bytes)| once_spec(window, calls_max, bytes, is_shared)),
        policies.outlier.map(|_| ejections_spec(is_shared)),
    ];
    let decl = |spec| TableDecl {
        owner: name.to_owned(),
        spec,
        realisation: Realisation::Striped,
        rows: Vec::new(),
    };
    specs.into_iter().flatten().map(decl).collect()
}

pub(super) fn line_spec(keys_max: u64, is_shared: bool) -> TableSpec {
    spec("line", Type::Uint(64), &OrderQueues::COLUMNS, keys_max, is_shared)
}

pub(super) fn ejections_spec(is_shared: bool) -> TableSpec {
    spec("endpoints", Type::Uint(64), &Ejections::COLUMNS, ENDPOINTS_MAX, is_shared)
}

/// Returns the spec of the table of call ids and kept answers.
pub(super) fn once_spec(
    window: Interval,
    calls_max: u32,
    answer_bytes_max: u32,
    is_shared: bool,
) -> TableSpec {
    let key = Type::Bytes(Some(ID_BYTES_MAX));
    let mut spec = spec("calls", key, &CallIds::COLUMNS, u64::from(calls_max), is_shared);
    spec.columns[1].ty = Type::Bytes(Some(answer_bytes_max.max(1)));
    spec.ttl = Some(window);
    spec
}

fn rate_spec(keys_max: u64, is_shared: bool) -> TableSpec {
    spec("rate", Type::Uint(64), &["expected"], keys_max, is_shared)
}

/// Returns the spec of a policy's table: one key column, and columns of 64 bits.
fn spec(name: &str, key: Type, columns: &[&str], max_rows: u64, shared: bool) -> TableSpec {
    let columns = columns.iter().map(|name| ColumnSpec::new(*name, Type::Uint(64))).collect();
    let spec = TableSpec::new(name, vec![ColumnSpec::new("key", key)], columns, max_rows);
    TableSpec { evict: Evict::Oldest, shared, ..spec }
}

fn has_rate_keys(policies: &Policies) -> bool {
    policies.rate.as_ref().is_some_and(|rate| rate.key.is_some())
}

/// Returns the window, the number of calls and the size of answers of RELIABILITY AT LEAST ONCE. None for other
/// policies.
fn once(policies: &Policies) -> Option<(Interval, u32, u32)> {
    match policies.once {
        Some(Reliability::AtLeastOnce { window, calls_max, answer_bytes_max, .. }) => {
            Some((window, calls_max, answer_bytes_max))
        }
        Some(Reliability::AtMostOnce) | None => None,
    }
}

/// Changes the schedule of a key in its table. Without room for the key, `change` sees a schedule that starts now.
fn keyed_schedule<R>(table: &Table, now: Time, key: u64, change: impl FnOnce(&mut Time) -> R) -> R {
    let column = table.column("expected").expect("the table was made with it");
    with_row(
        table,
        table.hash_int(key),
        || table.find_int(key, now),
        |found| {
            let inserted = || match table.insert_int(key, now) {
                Insert::New(row) => Some(row),
                Insert::Full | Insert::TooLong => None,
            };
            let row = found.or_else(inserted);
            let mut expected = row.map_or(now, |row| Time(table.word(row, column) as i64));
            let result = change(&mut expected);
            if let Some(row) = row {
                table.set_word(row, column, expected.0 as u64);
                table.touch(row, now);
            }
            result
        },
    )
}

/// Calls `work` atomically with the row of a key, or with None if there is none.
pub(super) fn with_row<R>(
    table: &Table,
    hash: u64,
    find: impl FnOnce() -> Row,
    work: impl FnOnce(Option<Row>) -> R,
) -> R {
    table.lock(hash);
    let row = find();
    let result = work(row.is_some().then_some(row));
    table.unlock(hash);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::hash;

    /// If it failed, a tenant that computes keys with equal hashes could use up another's rate, or precede all its
    /// calls.
    #[test]
    fn computed_keys_hash_apart() {
        let cells = Arc::new(Scalars::new(CELLS));
        let state = State::new(&Policies::default(), cells, Vec::new(), HashKey::from_seed(1));
        // One factor is 0 under the public hash.
        let zero = hash::KEYS[0].to_le_bytes();
        let keys: Vec<Vec<u8>> = (0..100_u64).map(|n| [zero, n.to_le_bytes()].concat()).collect();
        assert!(keys.iter().all(|key| hash::hash_bytes(key) == 0));
        let mut stand_ins: Vec<u64> = keys.iter().map(|key| state.stand_in(key)).collect();
        stand_ins.sort_unstable();
        stand_ins.dedup();
        assert_eq!(stand_ins.len(), keys.len());
        assert_eq!(
            state.stand_in(b"ann"),
            HashKey::from_seed(1).hash_bytes(b"ann"),
            "the same on all workers"
        );
    }
}
