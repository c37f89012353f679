//! Compiles a checked program into a plan that a node can run.

use crate::host::Host;
use crate::memory::MemoryLimit;
use crate::ordering::{self, ordered};
use crate::packets::PlanBuilder;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_api::Planned;
use weft_core::Value;
use weft_core::hash::HashKey;
use weft_core::options::{ClusterOptions, ListenerOptions};
use weft_engine::call_queue::{CallQueue, QueueScope, SharedSlots};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::plan::{
    Address, Balance, Chain, ChainError, Cluster, FilterAt, Listener, MethodSet, Plan, Route,
};
use weft_engine::rules::TableView;
use weft_engine::state::{Staged, StateMismatch, StateStore};
use weft_engine::stats::ChainStats;
use weft_ir::backend::Backend;
use weft_lang::diagnostic::{Code, Diagnostic, code};
use weft_lang::hir;
use weft_lang::source::{SourceMap, Span};
use weft_opt::judge::{Lowered, judge};

/// Makes plans, and keeps the state that all plans share.
pub struct Compiler {
    store: StateStore,
    backend: Box<dyn Backend>,
    host: Box<dyn Host>,
    workers: usize,
    version: u64,
    /// The counters of call links in the last committed version, by name and whether the link is on a listener.
    links: BTreeMap<(String, bool), Arc<SharedSlots>>,
    /// The memory limit of a program, if there is one.
    memory: Option<MemoryLimit>,
}

/// A plan, and its future state.
pub struct Compiled {
    /// The plan for calls.
    pub plan: Arc<Plan>,
    /// The plan for ports, if there are any.
    pub packets: Option<Arc<PacketPlan>>,
    /// The chains whose elements run in another order than written.
    pub planned: Vec<Planned>,
    state: Staged,
}

impl Compiler {
    /// A compiler for a node with this number of workers; `hash` places keys in tables.
    pub fn new(backend: Box<dyn Backend>, host: Box<dyn Host>, workers: usize, hash: HashKey) -> Self {
        let (store, links) = (StateStore::new(workers, hash), BTreeMap::new());
        Self { store, backend, host, workers, version: 0, links, memory: None }
    }

    /// Sets the memory limit of programs.
    pub fn with_memory_limit(self, memory: Option<MemoryLimit>) -> Self {
        Self { memory, ..self }
    }

    /// The state that the chains share.
    pub fn store(&mut self) -> &mut StateStore {
        &mut self.store
    }

    /// The tables of the chains.
    pub fn tables(&self) -> Vec<TableView> {
        self.store.tables()
    }

    /// The last committed version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Compiles a checked program, with its lowered programs, into the next version. `counted` are the counters of the
    /// running version; they decide the order of elements. [`Compiler::commit`] makes the result current once it runs.
    /// Without that call nothing changes.
    ///
    /// # Errors
    /// Diagnostics: its state cannot be carried over, the back end refuses a chain, the program may use too much
    /// memory, or the name of a listener has no address.
    pub fn compile(
        &self,
        network: &hir::Network,
        mut lowered: Lowered,
        counted: &[ChainStats],
    ) -> Result<Compiled, Vec<Diagnostic>> {
        if let Some(limit) = &self.memory {
            limit.keep(network, &lowered, self.workers)?;
        }
        let version = self.version + 1;
        let mut state = self.store.stage();
        let mut builder = self.builder(network, version, &mut state);
        let (chains, routes, planned) = builder.calls(&mut lowered, counted)?;
        let links = |link: &hir::CallLink| {
            let is_on_listener = matches!(link.of, hir::CallsOf::Listener(_));
            self.links.get(&(link.name.clone(), is_on_listener)).cloned().unwrap_or_default()
        };
        let call_queues = builder.call_links(std::mem::take(&mut lowered.call_links), links)?;
        let packets = match network.ports.is_empty() {
            true => None,
            false => Some(Arc::new(builder.packets(lowered, |_| true)?)),
        };
        let listener = |listener| listener_of(listener, &*self.host);
        let plan = Plan {
            version,
            listeners: network.listeners.iter().map(listener).collect::<Result<_, _>>()?,
            clusters: network.clusters.iter().map(|cluster| Arc::new(cluster_of(cluster))).collect(),
            routes,
            chains,
            call_queues,
        };
        Ok(Compiled { plan: Arc::new(plan), packets, planned, state })
    }

    /// Compiles the chains on ports again, for the current rules. The rest of the version stays.
    ///
    /// # Errors
    /// As of [`Compiler::compile`].
    pub fn recompile_packets(
        &self,
        network: &hir::Network,
        sources: &SourceMap,
    ) -> Result<PacketPlan, Vec<Diagnostic>> {
        let lowered = judge(network, sources, self.workers)?;
        let mut state = self.store.stage();
        state.keep_rows();
        let mut plan = self.builder(network, self.version, &mut state).packets(lowered, |_| true)?;
        plan.forget_rules();
        Ok(plan)
    }

    /// The parts from which a version is built.
    fn builder<'a>(
        &'a self,
        network: &'a hir::Network,
        version: u64,
        state: &'a mut Staged,
    ) -> PlanBuilder<'a> {
        PlanBuilder { network, version, state, backend: &*self.backend, host: &*self.host }
    }

    /// Makes a plan current once it runs: its state is now the node's.
    pub fn commit(&mut self, compiled: Compiled) {
        self.version = compiled.plan.version;
        let links = compiled.plan.call_queues.iter();
        let key = |link: &CallQueue| (link.name.clone(), matches!(link.of, QueueScope::Listener(_)));
        self.links = links.map(|link| (key(link), Arc::clone(&link.shared))).collect();
        self.store.commit(compiled.state);
    }
}

/// The chains of a plan, its routes, and the chains that run in another order than written.
type BuiltCalls = (Vec<Arc<Chain>>, Vec<Route>, Vec<Planned>);

impl PlanBuilder<'_> {
    /// Compiles the chains on calls and the conditions of routes. Takes their programs out of `lowered`.
    fn calls(
        &mut self,
        lowered: &mut Lowered,
        counted: &[ChainStats],
    ) -> Result<BuiltCalls, Vec<Diagnostic>> {
        let network = self.network;
        let schema = Arc::new(network.schema.clone());
        let (mut chains, mut wrapped, mut planned) = (Vec::new(), Vec::new(), Vec::new());
        // Chains that filters wrap come after the chains and the conditions.
        let n_first = on_calls(network).count() + lowered.routes.iter().flatten().count();
        for (index, chain) in on_calls(network) {
            let mut program = std::mem::take(&mut lowered.chains[index].program);
            let ordered = ordered(network, index, &program, &ordering::counted(counted, &chain.name));
            weft_opt::plan::drop_dead_fields(&mut program, &ordered.dead);
            if ordered.plan.is_reordered() {
                planned.push(ordered.to_api(&program));
                program.reorder(&ordered.plan.order);
            }
            let methods: Vec<_> = chain.methods.iter().map(|m| m.path.clone()).collect();
            self.prepare(&program, chain.span)?;
            let (rest, filters) = (n_first + wrapped.len(), filters_of(chain));
            let (version, backend) = (self.version, self.backend);
            let built =
                Chain::build_parts(version, &program, &filters, rest, &schema, &methods, self.state, backend);
            let mut parts = built.map_err(|error| vec![refused(network, chain, &error)])?.into_iter();
            let pinned = |mut part: Chain| {
                part.pin_stream = chain.pin_stream_drain;
                Arc::new(part)
            };
            chains.extend(parts.next().map(pinned));
            wrapped.extend(parts.map(pinned));
        }
        let mut routes = Vec::new();
        for (route, condition) in network.routes.iter().zip(&mut lowered.routes) {
            let mut condition_at = None;
            if let Some(program) = condition.take() {
                self.prepare(&program, route.span)?;
                let built = Chain::build(self.version, program, &schema, &[], self.state, self.backend);
                let built = built.map_err(|error| vec![refused_route(route, &error)])?;
                condition_at = Some(chains.len());
                chains.push(Arc::new(built));
            }
            routes.push(Route {
                name: route.name.clone(),
                listener: route.listener,
                methods: route.method_set.clone(),
                condition: condition_at,
                cluster: route.cluster,
                chains: chains_of(network, route.listener, route.cluster),
            });
        }
        chains.extend(wrapped);
        // A route with a condition is narrower than one without, so it comes first.
        routes.sort_by_key(|route| route.condition.is_none());
        routes.extend(own_routes(network));
        Ok((chains, routes, planned))
    }
}

/// The filters of a chain in the engine's form.
fn filters_of(chain: &hir::Chain) -> Vec<FilterAt> {
    let filter = |filter: &hir::FilterInstance| FilterAt {
        at: filter.at,
        name: filter.name.clone(),
        policies: filter.policies.clone(),
    };
    chain.filters.iter().map(filter).collect()
}

fn is_on_calls(chain: &hir::Chain) -> bool {
    chain.edge.calls().is_some()
}

/// The chains that carry calls, with their indices in the network. They come first in a plan, in this order.
fn on_calls(network: &hir::Network) -> impl Iterator<Item = (usize, &hir::Chain)> {
    network.chains.iter().enumerate().filter(|(_, chain)| is_on_calls(chain))
}

/// The chains of an edge, each with its methods.
fn chains_of(network: &hir::Network, listener: usize, cluster: usize) -> Vec<(MethodSet, usize)> {
    let chains = on_calls(network).enumerate();
    let on_edge = chains.filter(|(_, (_, c))| c.edge.calls() == Some((listener, cluster)));
    on_edge.map(|(at, (_, c))| (c.method_set.clone(), at)).collect()
}

/// The default routes: a chain whose edge no ROUTE names is its own route.
fn own_routes(network: &hir::Network) -> impl Iterator<Item = Route> {
    let is_routed = |edge| network.routes.iter().any(|r| (r.listener, r.cluster) == edge);
    let chains = on_calls(network).enumerate();
    let chains = chains.filter_map(|(at, (_, chain))| Some((at, chain, chain.edge.calls()?)));
    let chains = chains.filter(move |(.., edge)| !is_routed(*edge));
    chains.map(|(index, chain, (listener, cluster))| Route {
        name: chain.name.clone(),
        listener,
        methods: chain.method_set.clone(),
        condition: None,
        cluster,
        chains: vec![(MethodSet::all(), index)],
    })
}

/// The diagnostic of a chain that cannot be bound or compiled.
pub fn refused(network: &hir::Network, chain: &hir::Chain, error: &ChainError) -> Diagnostic {
    match error {
        ChainError::State(unfit) => state_mismatch(network, chain, unfit),
        ChainError::Unsupported(_) | ChainError::Column { .. } => {
            Diagnostic::error(code_of(error), format!("chain `{}` cannot be run", chain.name))
                .at(chain.span, error.to_string())
        }
    }
}

/// Points at the declaration of the state, and at the stage if an element has several.
fn state_mismatch(network: &hir::Network, chain: &hir::Chain, unfit: &StateMismatch) -> Diagnostic {
    let instance = chain.instances.iter().find(|instance| instance.name == unfit.instance);
    let whose = match instance {
        Some(instance) => format!("{}.{}.{}", chain.name, instance.name, unfit.name),
        None => unfit.name.clone(),
    };
    let element = instance.map(|instance| &network.elements[instance.element]);
    let mut tables = element.map_or(&network.tables, |element| &element.tables).iter();
    let vars = element.map_or(&[][..], |element| &element.vars);
    let table = tables.find(|table| table.name == unfit.name).map(|table| table.span);
    let declared = table.or_else(|| vars.iter().find(|var| var.name == unfit.name).map(|var| var.span));
    let message = format!("the running state of `{whose}` cannot be taken over");
    let diagnostic = Diagnostic::error(code::STATE_MISMATCH, message)
        .at(declared.unwrap_or(chain.span), unfit.reason.clone())
        .with_help(unfit.help.clone());
    match instance {
        Some(instance) => diagnostic.with_label(instance.span, "of this stage"),
        None => diagnostic,
    }
}

/// The diagnostic of a group whose key cannot run.
pub fn refused_group(group: &hir::Group, error: &ChainError) -> Diagnostic {
    Diagnostic::error(code_of(error), format!("the key of group `{}` cannot be run", group.name))
        .at(group.span, error.to_string())
}

/// The diagnostic of a link whose queue reads fields that cannot be parsed.
pub fn refused_link(link: &hir::Link, error: &ChainError) -> Diagnostic {
    Diagnostic::error(
        code_of(error),
        format!("what the queue of link `{}` asks for cannot be read", link.name),
    )
    .at(link.span, error.to_string())
}

fn refused_route(route: &hir::Route, error: &ChainError) -> Diagnostic {
    Diagnostic::error(code_of(error), format!("the condition of route `{}` cannot be run", route.name))
        .at(route.span, error.to_string())
}

/// Converts a listener of the program to the engine's form.
fn listener_of(listener: &hir::Listener, host: &dyn Host) -> Result<Listener, Vec<Diagnostic>> {
    let mut options = ListenerOptions::default();
    set_all(&listener.options, |name, value| options.set(name, value));
    let address = bound_address(&listener.address, listener.span, host)?;
    Ok(Listener { name: listener.name.clone(), address, options: Arc::new(options) })
}

/// Converts a cluster of the program to the engine's form.
fn cluster_of(cluster: &hir::Cluster) -> Cluster {
    let mut options = ClusterOptions::default();
    set_all(&cluster.options, |name, value| options.set(name, value));
    Cluster {
        name: cluster.name.clone(),
        endpoints: cluster.endpoints.iter().map(endpoint_of).collect(),
        names: cluster.endpoints.iter().map(ToString::to_string).collect(),
        weights: cluster.weights.clone(),
        balance: match cluster.balance {
            hir::Balance::RoundRobin => Balance::RoundRobin,
            hir::Balance::LeastRequest => Balance::LeastRequest,
            hir::Balance::Random => Balance::Random,
        },
        options,
    }
}

/// Sets the options of a program; the check keeps them within their ranges.
fn set_all(settings: &[hir::Setting], mut set: impl FnMut(&str, i64)) {
    for setting in settings {
        if let Value::Int(value) = setting.value {
            set(setting.name, value);
        }
    }
}

/// Keeps the name of an endpoint: its addresses may change while the plan runs.
pub fn endpoint_of(address: &hir::Address) -> Address {
    match address {
        hir::Address::Unix(path) => Address::Unix(path.clone()),
        hir::Address::Tcp(text) => text.parse().map_or_else(|_| Address::Name(text.clone()), Address::Tcp),
    }
}

/// The address of a listener. A name is resolved once, here, and its first address counts.
fn bound_address(address: &hir::Address, span: Span, host: &dyn Host) -> Result<Address, Vec<Diagnostic>> {
    match address {
        hir::Address::Unix(path) => Ok(Address::Unix(path.clone())),
        hir::Address::Tcp(text) => host.resolve(text).map(Address::from).map_err(|why| {
            let message = format!("cannot resolve `{text}`: {why}");
            vec![Diagnostic::error(code::ADDRESS_UNRESOLVED, message).at(span, "used here")]
        }),
    }
}

fn code_of(error: &ChainError) -> Code {
    match error {
        ChainError::State(_) => code::STATE_MISMATCH,
        ChainError::Unsupported(_) | ChainError::Column { .. } => code::BACKEND_UNSUPPORTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Accepted, Checked, at_fault};
    use crate::testing::{BareHost, accepted, checked, compiler};
    use weft_api::AtFault;
    use weft_ir::interp::Interp;
    use weft_ir::program::ChainProgram;

    use weft_ir::queue::verify::verify;
    use weft_lang::diagnostic::{RenderOptions, render_all};

    fn codes(diagnostics: &[Diagnostic]) -> Vec<&'static str> {
        diagnostics.iter().map(|diagnostic| diagnostic.code.0).collect()
    }

    /// Tables allocate memory as they fill: the system would kill a node with too little memory for the MAX of its
    /// tables, in the middle of its traffic.
    #[test]
    fn program_over_its_memory_is_refused() {
        let text = COUNT.replace("MAX 10 ROWS", "MAX 1000000 ROWS");
        let (Accepted { network, lowered }, sources) = accepted(&text);
        let compile = |bytes: Option<u64>| {
            let compiler = compiler(Interp, 1).with_memory_limit(bytes.map(MemoryLimit::given));
            compiler.compile(&network, lowered.clone(), &[]).err()
        };
        assert!(compile(None).is_none() && compile(Some(1 << 30)).is_none());
        let refused = compile(Some(1 << 20)).expect("a million rows are more than a mebibyte");
        assert_eq!((codes(&refused), at_fault(&refused)), (vec!["W0507"], AtFault::Environment));
        let rendered = render_all(&refused, &sources, RenderOptions::default());
        assert!(
            rendered.contains("`--memory` allows 1.0 MiB") && rendered.contains("table `shop.count.seen`"),
            "{rendered}"
        );
    }

    /// A recursion as deep as a list is long would overflow the stack of a job, which ends the process. An exponential
    /// pass would never end.
    #[test]
    fn large_programs_run_or_hit_limits() {
        let jit = weft_jit::Jit::new().expect("tests run where code does");
        let backends: [&dyn Fn() -> Box<dyn Backend>; 2] = [&|| Box::new(Interp), &|| Box::new(jit.clone())];
        let mut faults = Vec::new();
        for large in crate::large::ALL {
            let mut was_good = true;
            for n in [30, 60, 20_000] {
                // A larger program of a refused kind is refused, too.
                if !was_good {
                    continue;
                }
                let checked = checked(&(large.program)(n).replace("'shop.proto'", "'cart.proto'"));
                let mut diagnostics = checked.diagnostics;
                was_good = checked.accepted.is_some();
                if let Some(Accepted { network, lowered }) = checked.accepted {
                    for backend in backends {
                        let compiler = Compiler::new(backend(), Box::new(BareHost), 2, HashKey::from_seed(1));
                        let compiled = compiler.compile(&network, lowered.clone(), &[]);
                        diagnostics.extend(compiled.err().into_iter().flatten());
                    }
                }
                let limits =
                    ["W0001", "W0003", "W0004", "W0005", "W0314", "W0413", "W0414", "W0431", "W0604"];
                let others = diagnostics.iter().filter(|d| d.is_error() && !limits.contains(&d.code.0));
                faults.extend(others.map(|d| format!("{n} {}: {} {}", large.what, d.code.0, d.message)));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// A number truncated to 32 bits would silently mean another number.
    #[test]
    fn connections_option_has_a_range() {
        let check = |n: &str| {
            let text = format!(
                "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1' WITH (connections = {n});
CREATE ROUTE all ON front TO CLUSTER cart;\n"
            );
            codes(&checked(&text).diagnostics)
        };
        assert_eq!(check("1"), [""; 0]);
        assert_eq!(check("16384"), [""; 0]);
        for n in ["0", "16385", "4294967297"] {
            assert_eq!(check(n), ["W0314"], "{n}");
        }
    }

    const COUNT: &str = "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT count ON rpc AS
  TABLE seen (size I64 PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT OLDEST;
  ON OPEN UPSERT seen KEY (1) SET n = n + 1;
END;
CREATE CHAIN shop ON front -> cart AS count; END;
";

    /// In a program with calls and frames, a call could run code for frames if chains were counted in text order.
    #[test]
    fn call_and_port_chains_both_found() {
        let text = format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON packet 'eth0';
CREATE PORT lan ON packet 'eth1';
CREATE ELEMENT pass ON packet AS ON PACKET FORWARD; END;
CREATE CHAIN edge ON PORT wan -> lan AS pass; END;
{COUNT}CREATE CHAIN back ON PORT lan -> wan AS pass; END;
"
        );
        let (Accepted { network, lowered }, _) = accepted(&text);
        let compiled = compiler(Interp, 2).compile(&network, lowered, &[]).expect("it is right");
        let chains: Vec<_> = compiled.plan.chains.iter().map(|chain| chain.program.name.as_str()).collect();
        assert_eq!(chains, ["shop"]);
        assert_eq!(compiled.plan.routes[0].chains[0].1, 0);
        let packets = compiled.packets.expect("there are ports");
        let chains: Vec<_> = packets.chains.iter().map(|chain| chain.program.name.as_str()).collect();
        assert_eq!((chains, packets.ports.len()), (vec!["edge", "back"], 2));
    }

    fn compile(compiler: &Compiler, text: &str) -> Result<Compiled, Vec<Diagnostic>> {
        let (Accepted { network, lowered }, _) = accepted(text);
        compiler.compile(&network, lowered, &[])
    }

    /// A dry run would be a change if a compilation left a trace before its commit.
    #[test]
    fn uncommitted_compile_leaves_no_trace() {
        let mut compiler = compiler(Interp, 1);
        let compiled = compile(&compiler, COUNT).expect("it is right");
        compiler.commit(compiled);
        let more = COUNT.replace("AS count;", "AS count -> count AS again;");
        assert_eq!(compile(&compiler, &more).expect("it fits").plan.version, 2);
        // If `again` had stayed, its table's key could not have another type now.
        let other = COUNT.replace("AS count;", "AS count AS again;").replace("size I64", "bytes I64");
        assert_eq!(compile(&compiler, &other).expect("it fits").plan.version, 2);
        let unfit = COUNT.replace("size I64 PRIMARY", "bytes I64 PRIMARY");
        let refused = compile(&compiler, &unfit).err().expect("the key is another");
        assert_eq!(codes(&refused), ["W0501"]);
        assert_eq!(compiler.version(), 1);
    }

    /// A retried call would be logged and counted twice, without any visible reason.
    #[test]
    fn side_effects_after_retry_are_refused() {
        let program = |stages: &str| {
            checked(&format!(
                "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT count ON rpc AS
  TABLE seen (method TEXT(64) PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT OLDEST;
  SINK log (method TEXT) TO STDOUT;
  ON OPEN
    UPSERT seen KEY (method) SET n = n + 1;
    INSERT INTO log VALUES (method);
END;
CREATE ELEMENT drawn ON rpc AS
  ON OPEN IF rand() < 0.5 THEN ABORT UNAVAILABLE 'drawn'; END IF;
END;
CREATE FILTER shaped ON rpc AS RATE 10 PER SECOND PER peer; END;
CREATE FILTER again ON rpc AS RETRY UP TO 2 WHEN status = UNAVAILABLE; END;
CREATE CHAIN shop ON front -> cart AS {stages}; END;
"
            ))
        };
        for good in [
            "count -> again -> drawn",
            "again -> count PER TRY -> drawn",
            "shaped -> count",
            "again -> shaped -> drawn",
        ] {
            let checked = program(good);
            let rendered = render_all(&checked.diagnostics, &checked.sources, RenderOptions::default());
            assert!(checked.diagnostics.is_empty(), "{good}:\n{rendered}");
        }
        let checked = program("count AS first -> again -> drawn -> shaped -> count");
        assert_eq!(codes(&checked.diagnostics), ["W0430"]);
        assert!(checked.accepted.is_none());
        insta::assert_snapshot!(render_all(&checked.diagnostics, &checked.sources, RenderOptions::default()));
    }

    /// All calls of a worker would wait for a handler that visits a million rows for each of a million rows. The cost
    /// for several workers counts, which includes a lock.
    #[test]
    fn slow_handler_is_refused() {
        let scans = |inner: u64| {
            checked(&format!(
                "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT looks ON rpc AS
  TABLE t (k U64 PRIMARY KEY, n U64 = 0) MAX 1000000 ROWS EVICT REJECT;
  ON OPEN
    SCAN t MAX 1000000 AS a WHERE a.n > 1 DO
      SCAN t MAX {inner} AS b WHERE b.n > a.n DO
        UPDATE t SET n = 0 WHERE k = b.k;
      END SCAN;
    END SCAN;
END;
CREATE CHAIN shop ON front -> cart AS looks; END;
"
            ))
        };
        let checked = scans(1_000_000);
        assert_eq!(codes(&checked.diagnostics), ["W0431"]);
        assert!(checked.accepted.is_none());
        insta::assert_snapshot!(render_all(&checked.diagnostics, &checked.sources, RenderOptions::default()));
        assert!(scans(1).accepted.is_some());
    }

    /// The back end would refuse a queue that the check accepted without counting its steps.
    #[test]
    fn queue_handler_steps_are_limited() {
        let queue = |n: usize| {
            let sums: String = (0..n)
                .map(|n| format!("    IF p.len > '{n} B' THEN SET seen = seen + {n}; END IF;\n"))
                .collect();
            checked(&format!(
                "CREATE QUEUE long AS
  VAR seen I64;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE
{sums}    SEND;
END;
CREATE PORT lan ON memory;
CREATE LINK wan ON PORT lan QUEUE long;
"
            ))
        };
        let codes_and_notes = |checked: &Checked| {
            let steps = checked.diagnostics.iter().map(|diagnostic| diagnostic.message.clone());
            (codes(&checked.diagnostics), steps.collect::<Vec<_>>())
        };
        let steps = |n: &str| format!("this takes {n} once it is compiled, and 4096 are the most");
        for (n, steps) in [(683, steps("4100 steps")), (5_000, steps("16385 steps and more"))] {
            let long = queue(n);
            assert_eq!(codes_and_notes(&long), (vec!["W0314"], vec![steps]));
            assert!(long.accepted.is_none());
        }
        let short = queue(682);
        assert!(short.diagnostics.is_empty());
        let Accepted { network, .. } = short.accepted.expect("it has fewer");
        assert_eq!(verify(&weft_opt::lower::queue(&network.queues[0])), Ok(()));
    }

    /// A back end may refuse a program; the message has to name the chain and the reason.
    #[test]
    fn backend_refusal_names_chain_and_why() {
        struct RefusingBackend;
        impl Backend for RefusingBackend {
            fn name(&self) -> &'static str {
                "refuses"
            }

            fn compile(
                &self,
                _chain: &Arc<ChainProgram>,
                _event: weft_ir::program::Event,
                _state: &weft_core::abi::State,
            ) -> Result<Box<dyn weft_ir::backend::Program>, weft_ir::backend::Unsupported> {
                Err(weft_ir::backend::Unsupported { reason: "it has no tables".to_owned(), line: 0 })
            }
        }
        let (Accepted { network, lowered }, sources) = accepted(COUNT);
        let refused = compiler(RefusingBackend, 1).compile(&network, lowered, &[]);
        let refused = refused.err().expect("the back end refuses");
        assert_eq!(codes(&refused), ["W0502"]);
        let rendered = render_all(&refused, &sources, RenderOptions::default());
        assert!(rendered.contains("chain `shop` cannot be run"), "{rendered}");
        assert!(rendered.contains("the back end cannot express it: it has no tables"), "{rendered}");
    }

    /// A refusal that points at the chain leaves its reader to search for the table.
    #[test]
    fn state_mismatch_points_at_declaration() {
        let text = COUNT.replace("  ON OPEN", "  VAR last I64;\n  ON OPEN UPSERT all KEY (1) SET n = n + 1;");
        let text =
            format!("CREATE TABLE all (user I64 PRIMARY KEY, n I64 = 0) MAX 9 ROWS EVICT OLDEST;\n{text}");
        let mut compiler = compiler(Interp, 1);
        let compiled = compile(&compiler, &text).expect("it is right");
        compiler.commit(compiled);
        for (from, to, whose) in [
            ("TABLE seen (size I64", "TABLE seen (bytes I64", "shop.count.seen"),
            ("VAR last I64", "VAR last F64", "shop.count.last"),
            ("all (user I64", "all (tenant I64", "all"),
        ] {
            let (Accepted { network, lowered }, sources) = accepted(&text.replace(from, to));
            let refused = compiler.compile(&network, lowered, &[]).err().expect("it does not fit");
            let rendered = render_all(&refused, &sources, RenderOptions::default());
            assert!(
                rendered.contains(&format!("the running state of `{whose}` cannot be taken over")),
                "{rendered}"
            );
            let at = refused[0].span().expect("it is somewhere");
            assert!(sources.slice(at).contains(to), "{rendered}");
        }
    }
}
