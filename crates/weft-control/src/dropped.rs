//! The state that an update drops: tables and variables of the running program that the new one does not name.

use std::collections::BTreeSet;
use weft_api::Dropped;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::plan::Plan;
use weft_engine::rules::TableView;
use weft_engine::state::Bound;
use weft_ir::program::{ChainProgram, Realisation, TableDecl};

/// The running plans of a program: on calls, and on ports.
pub type Plans<'a> = (&'a Plan, Option<&'a PacketPlan>);

/// A chain of either kind.
#[derive(Clone, Copy)]
struct Stateful<'a> {
    program: &'a ChainProgram,
    state: &'a Bound,
}

/// The state of `old` that the plan `new` does not have: tables with rows, and variables. Rows in the program's text
/// are no state; rows that a controller's table got at run time are. `given` has these tables as they are now.
pub fn dropped(old: Plans<'_>, new: Plans<'_>, given: &[TableView]) -> Vec<Dropped> {
    let known: BTreeSet<String> = chains(new).flat_map(names).collect();
    let mut gone: Vec<Dropped> = chains(old).flat_map(|chain| state_without(chain, &known, given)).collect();
    gone.retain(|state| state.rows != Some(0));
    gone.sort_by(|a, b| a.what.cmp(&b.what));
    // Several chains may have the same shared table.
    gone.dedup();
    gone
}

fn chains((calls, packets): Plans<'_>) -> impl Iterator<Item = Stateful<'_>> {
    let calls = calls.chains.iter().map(|chain| Stateful { program: &chain.program, state: &chain.state });
    let packets = packets.into_iter().flat_map(|plan| &plan.chains);
    calls.chain(packets.map(|chain| Stateful { program: &chain.program, state: &chain.state }))
}

fn names(chain: Stateful<'_>) -> impl Iterator<Item = String> {
    let tables = chain.program.tables.iter().map(move |table| table_name(chain, table));
    tables.chain(var_names(chain))
}

/// The state of a chain whose names are not in `known`.
fn state_without<'a>(
    chain: Stateful<'a>,
    known: &'a BTreeSet<String>,
    given: &'a [TableView],
) -> impl Iterator<Item = Dropped> + 'a {
    let tables = chain.program.tables.iter().enumerate();
    let of_tables = tables.filter_map(move |(at, table)| {
        let what = table_name(chain, table);
        let n_rows = || match table.realisation {
            Realisation::Replicated => rows_given_later(chain, table, given),
            kept => rows(chain, at, kept),
        };
        (!known.contains(&what)).then(|| Dropped { rows: Some(n_rows()), what })
    });
    let vars = var_names(chain).filter(move |what| !known.contains(what));
    of_tables.chain(vars.map(|what| Dropped { what, rows: None }))
}

/// The number of rows of a controller's table that are not in its program's text.
fn rows_given_later(chain: Stateful<'_>, table: &TableDecl, given: &[TableView]) -> u64 {
    let is_it = |view: &&TableView| {
        let of_chain = if table.owner.is_empty() { "" } else { &chain.program.name };
        (&*view.name.chain, &*view.name.instance, &*view.name.table)
            == (of_chain, &*table.owner, &*table.spec.name)
    };
    given.iter().find(is_it).map_or(0, TableView::rows_given)
}

fn table_name(chain: Stateful<'_>, table: &TableDecl) -> String {
    match &*table.owner {
        "" => format!("table {}", table.spec.name),
        owner => format!("table {}.{owner}.{}", chain.program.name, table.spec.name),
    }
}

fn var_names(chain: Stateful<'_>) -> impl Iterator<Item = String> {
    let program = chain.program;
    program.vars.iter().map(move |var| format!("var {}.{}.{}", program.name, var.owner, var.name))
}

/// The rows of a table, summed over all workers.
fn rows(chain: Stateful<'_>, table: usize, realisation: Realisation) -> u64 {
    let n = if realisation == Realisation::PerWorker { chain.state.workers() } else { 1 };
    (0..n).map(|worker| chain.state.table(table, worker).len()).sum()
}
