//! Decides which tables may be sharded over nodes by the key of their rows.

use std::collections::BTreeSet;

use weft_ir::ir::TableId;
use weft_ir::program::{ChainProgram, Realisation};

use crate::effects::{ChainEffects, Effects, Key, Source, SourceLines, TableRead};

/// How a table may be sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSharding {
    /// An index into [`ChainProgram::tables`].
    pub table: usize,
    /// The result.
    pub sharding: Sharding,
}

/// How a table may be sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Every node has all of it: the controller, the ports or the members of a cluster fill it, not the handlers.
    Replicated,
    /// Each worker has its own, as declared.
    PerWorker,
    /// By this expression over the request: tuples with different values never access the same row.
    By(String),
    /// Not at all, for this reason in these lines of an element.
    No {
        /// The reason.
        why: String,
        /// The element.
        element: usize,
        /// The lines.
        lines: SourceLines,
    },
}

/// A read of a table: the element, whether it is of the request direction, the read.
type TableAccess<'e> = (usize, bool, &'e TableRead);

/// Returns, for each table of a chain, how it may be sharded.
pub fn tables(chain: &ChainProgram, effects: &ChainEffects) -> Vec<TableSharding> {
    let one = |table: usize| {
        let sharding = match chain.tables[table].realisation {
            Realisation::Replicated => Sharding::Replicated,
            Realisation::PerWorker => Sharding::PerWorker,
            Realisation::Striped | Realisation::Locked => by_key(effects, TableId(table as u16)),
        };
        TableSharding { table, sharding }
    };
    (0..chain.tables.len()).map(one).collect()
}

/// Decides whether a table can be sharded: every read must be by one key that the request determines.
fn by_key(effects: &ChainEffects, table: TableId) -> Sharding {
    let reads_of_table = reads_of_table(effects, table);
    let Some(&(owner, _, _)) = reads_of_table.first() else {
        return no(0, "no handler of a tuple looks at it", None);
    };
    let mut by: Option<&str> = None;
    for &(element, is_request, look) in &reads_of_table {
        let Some(key) = &look.key else { return no(element, "all its rows are looked at", Some(look)) };
        if !is_request {
            return no(element, "it is looked at when the request is gone", Some(look));
        }
        let text = match over_request(key, effects, element) {
            Ok(text) => text,
            Err(why) => return no(element, &why, Some(look)),
        };
        if by.is_some_and(|by| by != text) {
            return no(element, "it is looked at by more than one key", Some(look));
        }
        by = Some(text);
    }
    by.map_or_else(|| no(owner, "it has no key", None), |by| Sharding::By(by.to_owned()))
}

/// Returns the reason against sharding, with the lines of the read that causes it.
fn no(element: usize, why: &str, look: Option<&TableRead>) -> Sharding {
    Sharding::No { why: why.to_owned(), element, lines: look.map(|look| look.line).into_iter().collect() }
}

/// The reads of handlers that process tuples. EVERY runs on each shard separately.
fn reads_of_table(effects: &ChainEffects, table: TableId) -> Vec<TableAccess<'_>> {
    let mut reads_of_table = Vec::new();
    for (index, element) in effects.elements.iter().enumerate() {
        for (name, handler) in element.handlers().filter(|(name, _)| *name != "every") {
            let is_request = name == "open" || name == "request";
            let own = handler.table_reads.iter().filter(|look| look.table == table);
            reads_of_table.extend(own.map(|look| (index, is_request, look)));
        }
    }
    reads_of_table
}

/// The text of a key made of fields of the request that no element has changed before.
fn over_request<'k>(key: &'k Key, effects: &ChainEffects, element: usize) -> Result<&'k str, String> {
    let changed: BTreeSet<_> = effects.elements[..=element]
        .iter()
        .flat_map(|element| element.open.iter().chain(&element.request))
        .flat_map(|handler: &Effects| handler.writes.keys().copied())
        .collect();
    for source in &key.sources {
        match source {
            Source::Input(id) if changed.contains(id) => {
                return Err("an element changes a field that its key is made of".to_owned());
            }
            Source::Input(_) => {}
            _ => return Err("its key is not made of the request alone".to_owned()),
        }
    }
    if key.sources.is_empty() {
        return Err("its key is a constant, the same for all tuples".to_owned());
    }
    key.text.as_deref().ok_or_else(|| "its key is not the same expression on all ways".to_owned())
}
