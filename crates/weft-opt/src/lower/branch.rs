//! Branches of chains on frames: `STEER TO edge`, and `det.suspect -> sandbox;`.
//!
//! All stages of a chain run in sequence, those of branches last. A cell of the call's row, which lives for one pass,
//! holds the route of the frame: 0 for the main route, and a number for each branch. The first stage that may steer
//! sets it to 0, STEER sets it to a branch, and later stages let frames of other routes pass uncounted. So the analysis
//! only sees a cell that one stage writes and others read.

use super::Lowering;
use super::handler::Statements;
use weft_core::types::Type;
use weft_ir::ir::{CallId, IntCmp, Journal, Op, Ty};
use weft_ir::program::CallCell;
use weft_lang::hir;

/// The name of the cell, for people.
const CELL: &str = "way";

/// The routes of a chain.
pub(super) struct Steering<'n> {
    chain: &'n hir::Chain,
    cell: Option<CallId>,
}

/// The position of a stage among the routes of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StageRoute {
    /// All frames reach it.
    Only,
    /// All frames reach it, and it is the first that may steer them.
    First(Edges),
    /// Frames on the route with this number reach it.
    On(i64, Edges),
}

/// The cell, and the route of each edge of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edges {
    cell: CallId,
    to: Vec<Option<i64>>,
}

impl<'n> Steering<'n> {
    /// Plans the routes of a chain. A chain with branches gets a call cell for the number of the route.
    pub(super) fn of(chain: &'n hir::Chain, lowering: &mut Lowering<'n>) -> Self {
        let cell = (!chain.branches.is_empty()).then(|| {
            let call = &mut lowering.program.call;
            // Elements on frames have no cells.
            call.push(CallCell { owner: String::new(), name: CELL.to_owned(), ty: Type::Uint(8), word: 0 });
            CallId(call.len() as u16 - 1)
        });
        Self { chain, cell }
    }

    /// Returns the route of a stage, and the routes that its edges lead to.
    pub(super) fn route_of(&self, at: usize) -> StageRoute {
        let Some(cell) = self.cell else { return StageRoute::Only };
        let branches = &self.chain.branches;
        let first = branches.iter().map(|branch| branch.from).min().unwrap_or(0);
        let to = |edge: usize| branches.iter().position(|branch| (branch.from, branch.edge) == (at, edge));
        let n_edges = branches.iter().filter(|branch| branch.from == at).map(|branch| branch.edge + 1).max();
        let to = (0..n_edges.unwrap_or(0)).map(|edge| to(edge).map(number)).collect();
        let edges = Edges { cell, to };
        match at.cmp(&first) {
            core::cmp::Ordering::Less => StageRoute::Only,
            core::cmp::Ordering::Equal => StageRoute::First(edges),
            core::cmp::Ordering::Greater => {
                let own = branches.iter().position(|branch| branch.stages.contains(&at));
                StageRoute::On(own.map_or(0, number), edges)
            }
        }
    }
}

/// The number of a branch.
fn number(branch: usize) -> i64 {
    branch as i64 + 1
}

impl Statements<'_, '_> {
    /// Lets frames on other routes pass.
    pub(super) fn skip_other_routes(&mut self) {
        match self.body.lowering.route.clone() {
            StageRoute::Only => {}
            StageRoute::First(edges) => {
                let main = self.body.b.int(0);
                self.body.b.act(Op::CallSet(edges.cell, main, Journal::No));
            }
            StageRoute::On(own, edges) => {
                let route = self.body.b.get(Op::CallGet(edges.cell), Ty::Int);
                let own = self.body.b.int(own);
                let is_here = self.body.b.int_compare(IntCmp::Eq, route, own);
                self.skip_unless(is_here);
            }
        }
    }

    /// Sends the frame on by an edge of the element.
    pub(super) fn steer(&mut self, edge: usize) {
        let (StageRoute::First(edges) | StageRoute::On(_, edges)) = &self.body.lowering.route else { return };
        let cell = edges.cell;
        let Some(Some(route)) = edges.to.get(edge) else { return };
        let route = self.body.b.int(*route);
        self.body.b.act(Op::CallSet(cell, route, Journal::No));
    }
}
