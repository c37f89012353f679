//! Plans as a worker runs them: the way that a call takes, and what is left of earlier versions.

use crate::call::CallKey;
use crate::conn::{ConnKey, Side};
use crate::engine::Engine;
use crate::filter::{FilterStats, LiveFilter};
use crate::headers::narrowed_offer;
use crate::pass::{Facts, LiveChain};
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
pub(crate) struct Live {
    pub(crate) plan: Arc<Plan>,
    /// Counts the plans of this worker; header lists remember their route under it.
    pub(crate) id: u32,
    /// When it was taken on.
    pub(crate) since: Time,
    pub(crate) chains: Vec<Rc<LiveChain>>,
    /// For each cluster of the plan, its pool.
    pub(crate) pools: Vec<Rc<Pool>>,
    /// Where a REDIRECT can go: clusters and endpoints by name.
    pub(crate) targets: FxHashMap<Vec<u8>, (Rc<Pool>, Option<EndpointKey>)>,
}

/// The way that a call takes: indices into the plan, and of the method in the chain's list.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) route: usize,
    pub(crate) chain: Option<usize>,
    pub(crate) method: Option<usize>,
    /// The client offers an encoding that the chain, which reads responses, cannot read.
    pub(crate) is_offer_narrowed: bool,
}

impl Engine {
    /// The way that a call takes, found once for each header list.
    pub(crate) fn find_way(
        &mut self,
        now: Time,
        conn: ConnKey,
        headers: &Rc<Headers>,
    ) -> Result<Way, Refusal> {
        let live = Rc::clone(&self.live);
        if let Some(way) = live.remembered(headers) {
            return Ok(way);
        }
        let Some(Side::Downstream { listener, peer, .. }) = self.conns.get(conn).map(|c| &c.side) else {
            return Err(Refusal::NoRoute);
        };
        let (listener, peer) = (Rc::clone(listener), Rc::clone(peer));
        let (path, codec) = check_request(headers)?;
        for (index, route) in live.plan.routes.iter().enumerate() {
            let is_near =
                live.plan.listeners[route.listener].name == *listener && route.methods.contains(path);
            if !is_near || !self.condition_holds(now, route.condition, headers, &peer) {
                continue;
            }
            let chain = route.chain_for(path);
            // A message that is not protobuf cannot be read by a schema, so its method is as good as unknown.
            let readable = chain.filter(|_| codec == Codec::Protobuf);
            let method = readable.and_then(|c| live.plan.chains[c].method(path));
            let reads_responses = chain.is_some_and(|c| live.chains[c].reads_responses());
            let is_offer_narrowed = reads_responses && narrowed_offer(headers).is_some();
            let way = Way { route: index, chain, method, is_offer_narrowed };
            let reads = method.is_none() && chain.is_some_and(|c| reads_body(&live.plan.chains[c].program));
            if reads {
                return Err(Refusal::NoSchema);
            }
            live.remember(headers, way);
            return Ok(way);
        }
        Err(Refusal::NoRoute)
    }

    fn condition_holds(
        &mut self,
        now: Time,
        condition: Option<usize>,
        headers: &Headers,
        peer: &str,
    ) -> bool {
        let Some(condition) = condition else { return true };
        let live_chain = Rc::clone(&self.live.chains[condition]);
        let Some(open) = &live_chain.chain.segments.open else { return true };
        let path = headers.path().unwrap_or_default();
        let facts = Facts { headers: Some(headers), peer, path, ..Facts::of_node(now, 0) };
        let mut row = vec![0; live_chain.chain.program.call_words()];
        let ran = self.passes.run(&live_chain, open, &facts, &mut row, usize::MAX);
        ran.is_ok() && self.passes.outcome.verdict == Verdict::Forward
    }

    /// A stream goes on under the current version from message to message, if both versions have the same
    /// instances; otherwise, or while its chain pins it, it stays.
    pub(crate) fn refresh_version(&mut self, now: Time, key: CallKey) {
        let call = self.calls.get_mut(key).expect("the caller has the call");
        let Some(old) = call.chain.as_ref().filter(|c| c.chain.version != self.live.plan.version) else {
            return;
        };
        let is_stream = call.method().is_some_and(|m| m.client_streaming || m.server_streaming);
        let is_pinned = old.chain.pin_stream.is_some_and(|drain| now - self.live.since < drain);
        if !is_stream || is_pinned {
            return;
        }
        let which = |c: &LiveChain| (c.chain.program.name.clone(), c.chain.part);
        let same_name = |c: &&Rc<LiveChain>| which(c) == which(old);
        let Some(new) = self.live.chains.iter().find(same_name).filter(|new| old.can_become(new)) else {
            return;
        };
        let Some(method) = new.chain.method(call.request_headers.path().unwrap_or_default()) else { return };
        old.calls_open.set(old.calls_open.get() - 1);
        new.calls_open.set(new.calls_open.get() + 1);
        call.row = old.carry_row(new, &call.row);
        call.method = Some(method);
        call.chain = Some(Rc::clone(new));
    }

    /// Lets go of chains of old versions that have no call any more.
    pub(crate) fn retire(&mut self) {
        let current = self.live.plan.version;
        let is_gone = |c: &mut Rc<LiveChain>| c.chain.version != current && c.calls_open.get() == 0;
        let gone: Vec<_> = self.chains.extract_if(.., is_gone).collect();
        for chain in gone {
            self.count_retired(&chain);
        }
    }

    fn count_retired(&mut self, gone: &LiveChain) {
        let program = &gone.chain.program;
        let at = self.retired.iter().position(|(name, _)| *name == program.name).unwrap_or_else(|| {
            self.retired.push((program.name.clone(), Vec::new()));
            self.retired.len() - 1
        });
        let totals = &mut self.retired[at].1;
        for (element, counters) in program.elements.iter().zip(gone.counters.borrow().iter()) {
            match totals.iter_mut().find(|(name, _)| *name == element.name) {
                Some((_, total)) => add_counters(total, counters),
                None => totals.push((element.name.clone(), *counters)),
            }
        }
    }

    fn chain_stats(&self, live: &LiveChain) -> ChainStats {
        let program = &live.chain.program;
        let counters = live.counters.borrow();
        let names = program.elements.iter().map(|e| e.name.clone());
        ChainStats {
            chain: program.name.clone(),
            version: live.chain.version,
            is_current: live.chain.version == self.live.plan.version,
            calls_open: live.calls_open.get(),
            elements: names.zip(counters.iter().map(|c| self.without_clock(c))).collect(),
        }
    }

    /// The chains that are run, the parts of each as one.
    pub(crate) fn stats_of_chains(&self) -> Vec<ChainStats> {
        let mut all: Vec<ChainStats> = Vec::new();
        for live in &self.chains {
            let stats = self.chain_stats(live);
            let first =
                all.iter_mut().find(|known| known.chain == stats.chain && known.version == stats.version);
            match first.filter(|_| live.chain.part > 0) {
                Some(first) => first.elements.extend(stats.elements),
                None => all.push(stats),
            }
        }
        all
    }

    /// The filters of the current plan.
    pub(crate) fn filter_stats(&self) -> Vec<FilterStats> {
        let of_chain = |live: &Rc<LiveChain>| Some(live.next.as_ref()?.stats(&live.chain.program.name));
        self.live.chains.iter().filter_map(of_chain).collect()
    }

    /// Counters without the time that measuring took.
    fn without_clock(&self, counters: &Counters) -> Counters {
        let measuring = counters.sampled * self.passes.clock_ns;
        Counters { sampled_ns: counters.sampled_ns.saturating_sub(measuring), ..*counters }
    }
}

impl Live {
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

    /// Where a REDIRECT or MIRROR to this name goes. An address may be written in any form.
    pub(crate) fn target(&self, name: &[u8]) -> Option<(Rc<Pool>, Option<EndpointKey>)> {
        let as_address = || {
            let address: Address = core::str::from_utf8(name).ok()?.parse().ok()?;
            self.targets.get(address.to_string().as_bytes())
        };
        self.targets.get(name).or_else(as_address).cloned()
    }

    /// The way that was found for this very list under this plan. It depends on nothing but the list and its
    /// connection, which never shares a list with another.
    pub(crate) fn remembered(&self, headers: &Headers) -> Option<Way> {
        let tag = headers.tag.get();
        if (tag >> 32) as u32 != self.id {
            return None;
        }
        let index = |shift: u32, bits: u32| (tag >> shift & ((1 << bits) - 1)) as usize;
        Some(Way {
            is_offer_narrowed: index(31, 1) == 1,
            route: index(20, 11),
            chain: index(10, 10).checked_sub(1),
            method: index(0, 10).checked_sub(1),
        })
    }

    /// Keeps a way with the list; one whose numbers are too large is found anew each time.
    pub(crate) fn remember(&self, headers: &Headers, way: Way) {
        let [chain, method] = [way.chain, way.method].map(|index| index.map_or(0, |i| i as u64 + 1));
        if way.route < 1 << 11 && chain < 1 << 10 && method < 1 << 10 {
            let narrowed = u64::from(way.is_offer_narrowed) << 31;
            let found = narrowed | (way.route as u64) << 20 | chain << 10 | method;
            headers.tag.set(u64::from(self.id) << 32 | found);
        }
    }
}

impl LiveChain {
    /// Whether a call may go on under `new`: it has the same instances in the same order, so that each sees one
    /// OPEN and one CLOSE, and looks at messages of the same directions, so that none is cut in the middle.
    pub(crate) fn can_become(&self, new: &Self) -> bool {
        let names = |c: &Self| c.chain.program.elements.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
        let reads = |c: &Self| (c.chain.segments.request.is_some(), c.chain.segments.response.is_some());
        let filter = |c: &Self| c.next.as_ref().map(|filter| Rc::clone(&filter.name));
        names(self) == names(new) && reads(self) == reads(new) && filter(self) == filter(new)
    }

    /// Whether it reads messages of responses, here or behind its filter.
    pub(crate) fn reads_responses(&self) -> bool {
        let behind = || self.next.as_ref().is_some_and(|filter| filter.next.reads_responses());
        self.chain.segments.response.is_some() || behind()
    }

    /// Whether it reads messages of requests, here.
    pub(crate) fn reads_requests(&self) -> bool {
        let segments = &self.chain.segments;
        segments.request.is_some() || segments.open_request.is_some()
    }

    /// A call's row in the layout of `new`: cells by name, new ones zero.
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

    /// The chains of a plan on one worker.
    pub(crate) fn all(chains: &[Arc<Chain>], worker: usize, before: &[Rc<Self>]) -> Vec<Rc<Self>> {
        let before: Vec<_> = before.iter().filter_map(|chain| chain.next.clone()).collect();
        let mut live: Vec<Rc<Self>> = Vec::with_capacity(chains.len());
        // What a filter wraps stands behind its chain in the list.
        for (at, chain) in chains.iter().enumerate().rev() {
            let next = chain.next.as_ref().map(|next| {
                let wrapped = Rc::clone(&live[chains.len() - 1 - next.chain]);
                assert!(next.chain > at, "a filter wraps a chain that comes later");
                Rc::new(LiveFilter::new(&next.filter, wrapped, &before))
            });
            live.push(Rc::new(Self::new(chain, next, worker)));
        }
        live.reverse();
        live
    }

    fn new(chain: &Arc<Chain>, next: Option<Rc<LiveFilter>>, worker: usize) -> Self {
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
