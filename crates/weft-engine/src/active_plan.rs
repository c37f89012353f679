//! The active plan of a worker: route matching, and the retirement of earlier versions.

use crate::call::CallKey;
use crate::conn::{ConnKey, Side};
use crate::engine::Engine;
use crate::filter::{ActiveFilter, FilterStats};
use crate::headers::narrowed_offer;
use crate::pass::{ActiveChain, PassInputs};
use crate::plan::{Address, Chain, Plan, reads_body};
use crate::pool::{EndpointKey, Pool};
use crate::routes::{Refusal, check_request};
use crate::stats::{ChainStats, add_counters};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use weft_core::Time;
use weft_core::abi::{Counters, Verdict};
use weft_ir::program::{CallCell, cell_words};
use weft_proto::session::grpc::header::Codec;
use weft_proto::session::http2::Headers;

/// A plan on this worker.
pub(crate) struct ActivePlan {
    pub(crate) plan: Arc<Plan>,
    /// The number of the plan on this worker; header lists cache their route with it.
    pub(crate) id: u32,
    /// When it was applied.
    pub(crate) since: Time,
    pub(crate) chains: Vec<Rc<ActiveChain>>,
    /// Per cluster of the plan: its pool.
    pub(crate) pools: Vec<Rc<Pool>>,
    /// Redirect targets: clusters and endpoints by name.
    pub(crate) targets: FxHashMap<Vec<u8>, (Rc<Pool>, Option<EndpointKey>)>,
}

/// The route of a call: indices into the plan, and of the method in the chain's list.
#[derive(Clone, Copy)]
pub(crate) struct RouteMatch {
    pub(crate) route: usize,
    pub(crate) chain: Option<usize>,
    pub(crate) method: Option<usize>,
    /// The client offers an encoding that the chain cannot read, and the chain reads responses.
    pub(crate) is_offer_narrowed: bool,
}

impl Engine {
    /// Returns the route of a call: the first one of its listener whose methods and condition match. The result is
    /// cached with the header list. An error says why no route fits.
    pub(crate) fn match_route(
        &mut self,
        now: Time,
        conn: ConnKey,
        headers: &Rc<Headers>,
    ) -> Result<RouteMatch, Refusal> {
        let active = Rc::clone(&self.active);
        if let Some(matched) = active.cached_route(headers) {
            return Ok(matched);
        }
        let Some(Side::Downstream { listener, peer, .. }) = self.conns.get(conn).map(|c| &c.side) else {
            return Err(Refusal::NoRoute);
        };
        let (listener, peer) = (Rc::clone(listener), Rc::clone(peer));
        let (path, codec) = check_request(headers)?;
        for (index, route) in active.plan.routes.iter().enumerate() {
            let is_near =
                active.plan.listeners[route.listener].name == *listener && route.methods.contains(path);
            if !is_near || !self.condition_holds(now, route.condition, headers, &peer) {
                continue;
            }
            let chain = route.chain_for(path);
            // A schema cannot read a message that is not protobuf, so its method counts as unknown.
            let readable = chain.filter(|_| codec == Codec::Protobuf);
            let method = readable.and_then(|c| active.plan.chains[c].method(path));
            let reads_responses = chain.is_some_and(|c| active.chains[c].reads_responses());
            let is_offer_narrowed = reads_responses && narrowed_offer(headers).is_some();
            let matched = RouteMatch { route: index, chain, method, is_offer_narrowed };
            let reads = method.is_none() && chain.is_some_and(|c| reads_body(&active.plan.chains[c].program));
            if reads {
                return Err(Refusal::NoSchema);
            }
            active.cache_route(headers, matched);
            return Ok(matched);
        }
        Err(Refusal::NoRoute)
    }

    /// Runs the condition chain of a route on the headers of a call. True if there is no condition, or if the chain
    /// forwards.
    fn condition_holds(
        &mut self,
        now: Time,
        condition: Option<usize>,
        headers: &Headers,
        peer: &str,
    ) -> bool {
        let Some(condition) = condition else { return true };
        let active_chain = Rc::clone(&self.active.chains[condition]);
        let Some(open) = &active_chain.chain.segments.open else { return true };
        let path = headers.path().unwrap_or_default();
        let pass_inputs = PassInputs { headers: Some(headers), peer, path, ..PassInputs::of_node(now, 0) };
        let mut row = vec![0; active_chain.chain.program.call_words()];
        let ran = self.pass_scratch.run(&active_chain, open, &pass_inputs, &mut row, usize::MAX);
        ran.is_ok() && self.pass_scratch.outcome.verdict == Verdict::Forward
    }

    /// Moves a stream to the current version between two messages, if both versions have the same instances. Otherwise,
    /// or while its chain pins it, it stays.
    pub(crate) fn refresh_version(&mut self, now: Time, key: CallKey) {
        let call = self.calls.get_mut(key).expect("the caller has the call");
        let Some(old) = call.chain.as_ref().filter(|c| c.chain.version != self.active.plan.version) else {
            return;
        };
        let is_stream = call.method().is_some_and(|m| m.client_streaming || m.server_streaming);
        let is_pinned = old.chain.pin_stream.is_some_and(|drain| now - self.active.since < drain);
        if !is_stream || is_pinned {
            return;
        }
        let which = |c: &ActiveChain| (c.chain.program.name.clone(), c.chain.part);
        let same_name = |c: &&Rc<ActiveChain>| which(c) == which(old);
        let Some(new) = self.active.chains.iter().find(same_name).filter(|new| old.can_become(new)) else {
            return;
        };
        let Some(method) = new.chain.method(call.request_headers.path().unwrap_or_default()) else { return };
        old.calls_open.set(old.calls_open.get() - 1);
        new.calls_open.set(new.calls_open.get() + 1);
        call.row = old.carry_row(new, &call.row);
        call.method = Some(method);
        call.chain = Some(Rc::clone(new));
    }

    /// Drops chains of old versions without open calls.
    pub(crate) fn retire(&mut self) {
        let current = self.active.plan.version;
        let is_retired = |c: &mut Rc<ActiveChain>| c.chain.version != current && c.calls_open.get() == 0;
        let retired: Vec<_> = self.chains.extract_if(.., is_retired).collect();
        for chain in retired {
            self.count_retired(&chain);
        }
    }

    /// Adds the element counters of a retired chain to the totals that outlive its version.
    fn count_retired(&mut self, retired: &ActiveChain) {
        let program = &retired.chain.program;
        let at = self.retired.iter().position(|(name, _)| *name == program.name).unwrap_or_else(|| {
            self.retired.push((program.name.clone(), Vec::new()));
            self.retired.len() - 1
        });
        let totals = &mut self.retired[at].1;
        for (element, counters) in program.elements.iter().zip(retired.counters.borrow().iter()) {
            match totals.iter_mut().find(|(name, _)| *name == element.name) {
                Some((_, total)) => add_counters(total, counters),
                None => totals.push((element.name.clone(), *counters)),
            }
        }
    }

    /// Returns the counters of a running chain, by element.
    fn chain_stats(&self, active: &ActiveChain) -> ChainStats {
        let program = &active.chain.program;
        let counters = active.counters.borrow();
        let names = program.elements.iter().map(|e| e.name.clone());
        ChainStats {
            chain: program.name.clone(),
            version: active.chain.version,
            is_current: active.chain.version == self.active.plan.version,
            calls_open: active.calls_open.get(),
            elements: names.zip(counters.iter().map(|c| self.without_clock(c))).collect(),
        }
    }

    /// Statistics of the running chains, with the parts of a chain combined.
    pub(crate) fn stats_of_chains(&self) -> Vec<ChainStats> {
        let mut all: Vec<ChainStats> = Vec::new();
        for active in &self.chains {
            let stats = self.chain_stats(active);
            let first =
                all.iter_mut().find(|known| known.chain == stats.chain && known.version == stats.version);
            match first.filter(|_| active.chain.part > 0) {
                Some(first) => first.elements.extend(stats.elements),
                None => all.push(stats),
            }
        }
        all
    }

    /// Statistics of the filters of the current plan.
    pub(crate) fn filter_stats(&self) -> Vec<FilterStats> {
        let of_chain =
            |active: &Rc<ActiveChain>| Some(active.next.as_ref()?.stats(&active.chain.program.name));
        self.active.chains.iter().filter_map(of_chain).collect()
    }

    /// Counters without the time of the measurement itself.
    fn without_clock(&self, counters: &Counters) -> Counters {
        let measuring = counters.sampled * self.pass_scratch.clock_ns;
        Counters { sampled_ns: counters.sampled_ns.saturating_sub(measuring), ..*counters }
    }
}

impl ActivePlan {
    /// Returns the active plan of an engine before its first plan: no routes, chains or clusters.
    pub(crate) fn empty() -> Self {
        Self {
            plan: Arc::new(Plan::default()),
            id: 0,
            since: Time::default(),
            chains: Vec::new(),
            pools: Vec::new(),
            targets: FxHashMap::default(),
        }
    }

    /// Finds the pool of the cluster that a REDIRECT or MIRROR names, or the endpoint and its pool. An address may be
    /// written in any form. None if the name is unknown.
    pub(crate) fn target(&self, name: &[u8]) -> Option<(Rc<Pool>, Option<EndpointKey>)> {
        let as_address = || {
            let address: Address = core::str::from_utf8(name).ok()?.parse().ok()?;
            self.targets.get(address.to_string().as_bytes())
        };
        self.targets.get(name).or_else(as_address).cloned()
    }

    /// Returns the cached route of this header list under this plan. It depends only on the list and its connection,
    /// and connections do not share lists.
    pub(crate) fn cached_route(&self, headers: &Headers) -> Option<RouteMatch> {
        let tag = headers.tag.get();
        if (tag >> 32) as u32 != self.id {
            return None;
        }
        let index = |shift: u32, bits: u32| (tag >> shift & ((1 << bits) - 1)) as usize;
        Some(RouteMatch {
            is_offer_narrowed: index(31, 1) == 1,
            route: index(20, 11),
            chain: index(10, 10).checked_sub(1),
            method: index(0, 10).checked_sub(1),
        })
    }

    /// Caches the route of a header list. A route with larger numbers than fit is matched each time.
    pub(crate) fn cache_route(&self, headers: &Headers, matched: RouteMatch) {
        let [chain, method] = [matched.chain, matched.method].map(|index| index.map_or(0, |i| i as u64 + 1));
        if matched.route < 1 << 11 && chain < 1 << 10 && method < 1 << 10 {
            let narrowed = u64::from(matched.is_offer_narrowed) << 31;
            let found = narrowed | (matched.route as u64) << 20 | chain << 10 | method;
            headers.tag.set(u64::from(self.id) << 32 | found);
        }
    }
}

impl ActiveChain {
    /// Whether a call may continue under `new`. It must have the same instances in the same order, so that each sees
    /// one OPEN and one CLOSE; and read messages in the same directions, so that no message is split.
    pub(crate) fn can_become(&self, new: &Self) -> bool {
        let names = |c: &Self| c.chain.program.elements.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
        let reads = |c: &Self| (c.chain.segments.request.is_some(), c.chain.segments.response.is_some());
        let filter = |c: &Self| c.next.as_ref().map(|filter| Rc::clone(&filter.name));
        names(self) == names(new) && reads(self) == reads(new) && filter(self) == filter(new)
    }

    /// Whether this chain, or one behind its filter, reads response messages.
    pub(crate) fn reads_responses(&self) -> bool {
        let behind = || self.next.as_ref().is_some_and(|filter| filter.next.reads_responses());
        self.chain.segments.response.is_some() || behind()
    }

    /// Whether this chain reads request messages.
    pub(crate) fn reads_requests(&self) -> bool {
        let segments = &self.chain.segments;
        segments.request.is_some() || segments.open_request.is_some()
    }

    /// Converts a call's row to the layout of `new`: cells move by name, new ones are zero.
    pub(crate) fn carry_row(&self, new: &Self, row: &[u64]) -> Vec<u64> {
        let (old_cells, new_cells) = (&self.chain.program.call, &new.chain.program.call);
        let mut carried = vec![0; new.chain.program.call_words()];
        for cell in new_cells {
            let same = |c: &&CallCell| (&c.owner, &c.name, c.ty) == (&cell.owner, &cell.name, cell.ty);
            if let Some(old) = old_cells.iter().find(same) {
                let (from, to, n) = (old.word as usize, cell.word as usize, cell_words(cell.ty));
                carried[to..to + n].copy_from_slice(&row[from..from + n]);
            }
        }
        carried
    }

    /// Creates the chains of a plan on one worker.
    pub(crate) fn all(chains: &[Arc<Chain>], worker: usize, before: &[Rc<Self>]) -> Vec<Rc<Self>> {
        let before: Vec<_> = before.iter().filter_map(|chain| chain.next.clone()).collect();
        let mut active: Vec<Rc<Self>> = Vec::with_capacity(chains.len());
        // The chain behind a filter comes later in the list.
        for (at, chain) in chains.iter().enumerate().rev() {
            let next = chain.next.as_ref().map(|next| {
                let wrapped = Rc::clone(&active[chains.len() - 1 - next.chain]);
                assert!(next.chain > at, "a filter wraps a chain that comes later");
                Rc::new(ActiveFilter::new(&next.filter, wrapped, &before))
            });
            active.push(Rc::new(Self::new(chain, next, worker)));
        }
        active.reverse();
        active
    }

    /// Creates a worker's instance of a chain, with its own counters and state.
    fn new(chain: &Arc<Chain>, next: Option<Rc<ActiveFilter>>, worker: usize) -> Self {
        let n = chain.program.elements.len();
        Self {
            names: chain.program.elements.iter().map(|element| element.name.as_str().into()).collect(),
            next,
            state: RefCell::new(chain.state.for_worker(worker)),
            counters: RefCell::new(vec![Counters::default(); n]),
            calls_open: Cell::new(0),
            chain: Arc::clone(chain),
        }
    }
}
