//! The state that a change leaves behind: what the program that runs keeps by a name that the new one does not have.

use std::collections::BTreeSet;
use weft_api::Dropped;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::plan::Plan;
use weft_engine::state::Bound;
use weft_ir::program::{ChainProgram, Realisation, TableDecl};

/// What runs of a program: on calls, and on ports.
pub(crate) type Plans<'a> = (&'a Plan, Option<&'a PacketPlan>);

/// A chain of either kind.
#[derive(Clone, Copy)]
struct Stateful<'a> {
    program: &'a ChainProgram,
    state: &'a Bound,
}

/// What of the state of `old` the plan `new` does not know: tables that have rows, and variables. Rows that a program
/// gives itself are no state.
pub(crate) fn dropped(old: Plans<'_>, new: Plans<'_>) -> Vec<Dropped> {
    let known: BTreeSet<String> = chains(new).flat_map(names).collect();
    let mut gone: Vec<Dropped> = chains(old).flat_map(held).collect();
    gone.retain(|state| !known.contains(&state.what) && state.rows != Some(0));
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

fn held(chain: Stateful<'_>) -> impl Iterator<Item = Dropped> {
    let tables = chain.program.tables.iter().enumerate();
    let kept = tables.filter(|(_, table)| table.realisation != Realisation::Replicated);
    let of_tables = kept.map(move |(at, table)| Dropped {
        what: table_name(chain, table),
        rows: Some(rows(chain, at, table.realisation)),
    });
    of_tables.chain(var_names(chain).map(|what| Dropped { what, rows: None }))
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

/// The rows of a table of all workers.
fn rows(chain: Stateful<'_>, table: usize, realisation: Realisation) -> u64 {
    let n = if realisation == Realisation::PerWorker { chain.state.workers() } else { 1 };
    (0..n).map(|worker| chain.state.table(table, worker).len()).sum()
}
