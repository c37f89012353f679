//! The state that a change leaves behind: what the program that runs keeps by a name that the new one does not have.

use std::collections::BTreeSet;
use weft_api::Dropped;
use weft_engine::plan::{Chain, Plan};
use weft_ir::program::{Realisation, TableDecl};

/// What of the state of `old` the plan `new` does not know: tables that have rows, and variables. Rows that a program
/// gives itself are no state.
pub(crate) fn dropped(old: &Plan, new: &Plan) -> Vec<Dropped> {
    let known: BTreeSet<String> = new.chains.iter().flat_map(|chain| names(chain)).collect();
    let mut gone: Vec<Dropped> = old.chains.iter().flat_map(|chain| held(chain)).collect();
    gone.retain(|state| !known.contains(&state.what) && state.rows != Some(0));
    gone.sort_by(|a, b| a.what.cmp(&b.what));
    // Several chains may have the same shared table.
    gone.dedup();
    gone
}

fn names(chain: &Chain) -> impl Iterator<Item = String> {
    let tables = chain.program.tables.iter().map(|table| table_name(chain, table));
    tables.chain(var_names(chain))
}

fn held(chain: &Chain) -> impl Iterator<Item = Dropped> {
    let tables = chain.program.tables.iter().enumerate();
    let kept = tables.filter(|(_, table)| table.realisation != Realisation::Replicated);
    let of_tables = kept.map(|(at, table)| Dropped {
        what: table_name(chain, table),
        rows: Some(rows(chain, at, table.realisation)),
    });
    of_tables.chain(var_names(chain).map(|what| Dropped { what, rows: None }))
}

fn table_name(chain: &Chain, table: &TableDecl) -> String {
    match &*table.owner {
        "" => format!("table {}", table.spec.name),
        owner => format!("table {}.{owner}.{}", chain.program.name, table.spec.name),
    }
}

fn var_names(chain: &Chain) -> impl Iterator<Item = String> {
    let program = &chain.program;
    program.vars.iter().map(|var| format!("var {}.{}.{}", program.name, var.owner, var.name))
}

/// The rows of a table of all workers.
fn rows(chain: &Chain, table: usize, realisation: Realisation) -> u64 {
    // Only tables `PER WORKER` are several; the parts of variables tell how many workers there are.
    let n = match realisation {
        Realisation::PerWorker => chain.state.for_worker(0).merged_parts.len(),
        _ => 1,
    };
    (0..n).map(|worker| chain.state.for_worker(worker).tables[table].len()).sum()
}
