//! The measured chains, and the rules and routes in their tables.

use crate::machine::{Machine, accepted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_control::check::Accepted;
use weft_control::packets::PlanBuilder;
use weft_engine::state::Staged;
use weft_ir::backend::Backend;

use weft_core::classify::generate::{Family, prefixes, rules};
use weft_core::classify::{Pattern, Rule};
use weft_core::hash::HashKey;
use weft_core::types::Value;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::rules::TableName;
use weft_engine::state::StateStore;
use weft_ir::ir::{Function, Op};
use weft_ir::program::{ChainProgram, Event};
use weft_jit::Jit;

use super::rig::{Flow, UDP, all_flows, destinations, of_host};
use crate::refused;
use weft_io::parallel_backend::ParallelBackend;
use weft_opt::judge::Lowered;

/// A chain and its traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// Its name in figures.
    pub(super) name: &'static str,
    /// Its ports.
    on: &'static str,
    stages: &'static str,
    /// Routes in the table of a router, without the default route.
    pub(super) routes: usize,
    /// Rules of each firewall.
    rules: usize,
    /// Active flows.
    pub(super) flows: usize,
    /// Statements that insert rows into its tables.
    pub(super) inserts: &'static str,
    /// The case that its time is compared with.
    pub(super) beside: Option<&'static str>,
}

/// A case that is ready to run.
pub(super) struct PreparedCase {
    /// The running plan.
    pub(super) plan: Arc<PacketPlan>,
    /// Its state.
    pub(super) store: StateStore,
    /// The maximum number of table look-ups per packet.
    pub(super) lookups: usize,
    /// The rules of each firewall.
    pub(super) rules: Vec<Vec<Rule>>,
    /// The routes of the router.
    pub(super) routes: Vec<Rule>,
}

/// Rules of a firewall.
const RULES: usize = 200;
/// The element with a row for each flow.
const PER_FLOW: &str = "per_flow";
/// The imports of a program.
const LIBRARY: [&str; 18] = [
    "monitor",
    "l2_switch",
    "router",
    "firewall",
    "conntrack",
    "vlan_access",
    "vxlan_gateway",
    "gtpu_gateway",
    "nsh_classifier",
    "nsh_forwarder",
    "vlan_switch",
    "ruleset",
    "station",
    "meter",
    "tunnel_limit",
    "syn_guard",
    "flow_marker",
    "flow_export",
];

const fn case(name: &'static str, stages: &'static str) -> Case {
    Case { name, on: "lan -> wan", stages, routes: 0, rules: RULES, flows: 10_000, inserts: "", beside: None }
}

const TRACK: &str = "conntrack (inside = 'lan')";
const PIPELINE: &str = "conntrack (inside = 'lan') -> firewall -> router";
const GATEWAY: &str = "per_flow -> firewall AS f1 -> firewall AS f2 -> firewall AS f3";
const TAG: &str = "vlan_access (access = 'lan', trunk = 'wan', id = 7)";
const TUNNEL: &str = "vxlan_gateway (inside = 'lan', outside = 'wan', vni = 7, own_ip = '192.0.2.1', \
    peer = '192.0.2.2', own_mac = '02:00:00:00:00:01', next_mac = '02:00:00:00:00:02')";
const USERS: &str = "gtpu_gateway (core = 'lan', radio = 'wan', own_ip = '192.0.2.1', own_mac = '02:00:00:00:00:01', \
    core_mac = '02:00:00:00:00:02', radio_mac = '02:00:00:00:00:03')";
const CLASSIFY: &str =
    "nsh_classifier (fabric = 'wan', own_mac = '02:00:00:00:00:01', next_mac = '02:00:00:00:00:02')";
/// The case that is the baseline of all others.
pub(super) const IO: &str = "none";

/// Every case, in display order.
pub(super) const CASES: &[Case] = &[
    case(IO, ""),
    case("1 simple element", "count"),
    case("2 simple elements", "count -> check"),
    case("4 simple elements", "count -> check -> count AS c3 -> check AS c4"),
    case(
        "7 simple elements",
        "count -> check -> count AS c3 -> check AS c4 -> count AS c5 -> check AS c6 -> count AS c7",
    ),
    case("monitor", "monitor"),
    Case { on: "lan, wan", ..case("l2_switch", "l2_switch") },
    Case { on: "lan, wan", ..case("vlan_access", TAG) },
    Case { on: "lan, wan", ..case("vxlan_gateway", TUNNEL) },
    Case { on: "lan, wan", ..case("gtpu_gateway", USERS) },
    case("nsh_classifier", CLASSIFY),
    Case { routes: 1000, ..case("IPv4 route, 1k routes", "route") },
    Case { routes: 1000, ..case("router, 1k routes", "router") },
    Case { routes: 100_000, ..case("router, 100k routes", "router") },
    case("firewall of 200", "firewall"),
    Case { routes: 1000, ..case("firewall of 200 and router", "firewall -> router") },
    case("4 firewalls of 200", "firewall AS f1 -> firewall AS f2 -> firewall AS f3 -> firewall AS f4"),
    Case { flows: 1, ..case("conntrack, 1 flow", TRACK) },
    Case { beside: Some("conntrack, 1 flow"), ..case("conntrack, 10k flows", TRACK) },
    Case { flows: 100_000, beside: Some("conntrack, 1 flow"), ..case("conntrack, 100k flows", TRACK) },
    Case { flows: 1_000_000, beside: Some("conntrack, 1 flow"), ..case("conntrack, 10^6 flows", TRACK) },
    Case { flows: 1, routes: 1000, ..case("all three, 1 flow", PIPELINE) },
    Case { routes: 1000, beside: Some("all three, 1 flow"), ..case("all three, 10k flows", PIPELINE) },
    Case {
        flows: 100_000,
        routes: 1000,
        beside: Some("all three, 1 flow"),
        ..case("all three, 100k flows", PIPELINE)
    },
    Case {
        flows: 1_000_000,
        routes: 1000,
        beside: Some("all three, 1 flow"),
        ..case("all three, 10^6 flows", PIPELINE)
    },
    Case { flows: 100_000, ..case("gateway of 1 table, 100k flows", "per_flow") },
    Case { flows: 100_000, ..case("gateway of 2 tables, 100k flows", "per_flow -> firewall") },
    Case { flows: 1, ..case("gateway of 4 tables, 1 flow", GATEWAY) },
    Case { beside: Some("gateway of 4 tables, 1 flow"), ..case("gateway of 4 tables, 10k flows", GATEWAY) },
    Case {
        flows: 100_000,
        beside: Some("gateway of 4 tables, 1 flow"),
        ..case("gateway of 4 tables, 100k flows", GATEWAY)
    },
    Case {
        flows: 1_000_000,
        beside: Some("gateway of 4 tables, 1 flow"),
        ..case("gateway of 4 tables, 10^6 flows", GATEWAY)
    },
];

/// Elements of the library that are only counted, for the costs in their pages, and not timed.
pub(super) const COUNTED: &[Case] = &[
    Case {
        inserts: "INSERT INTO bench.nsh_forwarder.hops VALUES (42, 3, 'wan', '02:00:00:00:00:02');",
        ..case(
            "nsh_forwarder, behind what puts the header on",
            "in_nsh -> nsh_forwarder (own_mac = '02:00:00:00:00:01')",
        )
    },
    Case {
        on: "lan, wan",
        inserts: "INSERT INTO bench.vlan_switch.access VALUES ('lan', 7);
            INSERT INTO bench.vlan_switch.members VALUES (7, 'lan', FALSE), (7, 'wan', TRUE);
            INSERT INTO bench.vlan_switch.lans VALUES (7, 'wan', NULL);",
        ..case("vlan_switch", "vlan_switch")
    },
    Case {
        inserts: "INSERT INTO bench.ruleset.rules (rank, state, verdict) VALUES (10, 2, 1), (20, 1, 1);",
        ..case("ruleset", "ruleset")
    },
    case("station", "station"),
    case("meter", "meter (of := ip.src, rate = 1000000000.0, burst = 1000000000.0)"),
    case("tunnel_limit", "tunnel_limit"),
    case("syn_guard", "syn_guard (limit = 1000000000); syn_guard.suspect -> monitor"),
    case("flow_marker", "flow_marker"),
    case("flow_export", "flow_export"),
];

/// The chains whose rows change while packets pass, each with the changing table.
pub(super) const CHANGED: &[(Case, &str)] = &[
    (case("firewall of 200", "firewall"), "rules"),
    (Case { rules: 10_000, ..case("firewall of 10k", "firewall") }, "rules"),
    (Case { routes: 100_000, ..case("router, 100k routes", "router") }, "routes"),
    (Case { routes: 1_000_000, ..case("router, 10^6 routes", "router") }, "routes"),
];

impl Case {
    /// The table of its stage with this name.
    pub(super) fn table(&self, table: &str) -> TableName {
        TableName { chain: "bench".into(), instance: self.stages.into(), table: table.into() }
    }

    /// Whether it is big: it is skipped in a quick run, and its instructions are not counted.
    pub(super) fn is_big(&self) -> bool {
        self.flows > 100_000 || self.routes > 1000
    }

    /// Compiles it and fills its tables.
    ///
    /// # Errors
    /// The library lacks a file, or this machine has no machine code.
    pub(super) fn ready(&self) -> Result<PreparedCase, String> {
        let Accepted { network, mut lowered } = self.accepted()?;
        let (rules, routes) = fill(&mut lowered, self.rules, self.routes);
        admit_users(&mut lowered, || destinations(&rules, &routes, self.flows));
        admit_flows(&mut lowered, || all_flows(&rules, &routes, self.flows));
        let lookups = lowered.chains.iter().map(|lowered| most_lookups(&lowered.program)).sum();
        let jit = Jit::new().map_err(|why| why.to_string())?;
        let backend = ParallelBackend::new(Arc::new(jit));
        let mut store = StateStore::new(1, HashKey::from_seed(1));
        let mut staged = store.stage();
        let plan = plan_of(Accepted { network, lowered }, &mut staged, &backend)?;
        store.commit(staged);
        Ok(PreparedCase { plan: Arc::new(plan), store, lookups, rules, routes })
    }

    /// Its code, compiled for the current rows.
    ///
    /// # Errors
    /// As of [`Case::ready`].
    pub(super) fn code(&self, store: &mut StateStore) -> Result<Arc<PacketPlan>, String> {
        let accepted = self.accepted()?;
        let backend = ParallelBackend::new(Arc::new(Jit::new().map_err(|why| why.to_string())?));
        let mut staged = store.stage();
        staged.keep_rows();
        let mut plan = plan_of(accepted, &mut staged, &backend)?;
        plan.forget_rules();
        store.note_coded();
        Ok(Arc::new(plan))
    }

    /// Compiles the case's program, with the imports that it needs.
    fn accepted(&self) -> Result<Accepted, String> {
        let imports: String =
            LIBRARY.iter().map(|name| format!("IMPORT 'library/elements/{name}.weft';\n")).collect();
        let own =
            concat!(include_str!("simple.weft"), include_str!("route.weft"), include_str!("gateway.weft"));
        let (on, stages, inserts) = (self.on, self.stages, self.inserts);
        let end = if stages.is_empty() { "" } else { ";" };
        let text = format!(
            "{imports}{own}\nCREATE PORT lan ON memory;\nCREATE PORT wan ON memory;\n\
             CREATE CHAIN bench ON PORT {on} AS {stages}{end} END;\n{inserts}\n"
        );
        Ok(accepted([("bench.weft", text)])?.0)
    }
}

/// Compiles the chains on ports of a program.
///
/// # Errors
/// The back end refuses a chain.
pub(super) fn plan_of(
    Accepted { network, lowered }: Accepted,
    state: &mut Staged,
    backend: &dyn Backend,
) -> Result<PacketPlan, String> {
    let mut builder = PlanBuilder { network: &network, version: 1, state, backend, host: &Machine };
    builder.packets(lowered, |_| true).map_err(|diagnostics| refused(&diagnostics))
}

/// Moves a route to host addresses: a router does not forward to other addresses.
fn to_hosts(mut route: Rule) -> Rule {
    for pattern in &mut route.patterns {
        if let Pattern::Prefix { value, .. } = pattern {
            let first = (*value >> 24) as u8;
            *value = *value & 0xff_ffff | u128::from(of_host(first)) << 24;
        }
    }
    route
}

/// Puts this many rules into each firewall, a different set into each, and this many routes and a default route into
/// each router.
pub(super) fn fill(lowered: &mut Lowered, n_rules: usize, n_routes: usize) -> (Vec<Vec<Rule>>, Vec<Rule>) {
    let (mut filled, mut routes) = (Vec::new(), Vec::new());
    for program in lowered.chains.iter_mut().map(|chain| &mut chain.program) {
        let is_gateway = program.elements.iter().any(|element| element.element == PER_FLOW);
        for table in &mut program.tables {
            let of = program.elements.iter().find(|element| element.name == table.owner);
            match (of.map(|of| of.element.as_str()), table.spec.name.as_str()) {
                (Some("firewall"), "rules") if is_gateway => table.rows = gateway_rules(),
                (Some("firewall"), "rules") => {
                    let rules = rules(Family::Acl, n_rules, filled.len() as u64 + 1);
                    table.rows = rules.iter().map(rule_row).collect();
                    filled.push(rules);
                }
                (Some("router" | "route"), "routes") => {
                    routes = prefixes(n_routes, 32, 1).into_iter().map(to_hosts).collect();
                    let all = Rule { patterns: vec![Pattern::Any], priority: 0, id: u32::MAX };
                    table.rows = routes.iter().chain([&all]).map(route_row).collect();
                }
                // One path for all.
                (Some("nsh_classifier"), "rules") => {
                    let [id, priority, spi, si] = [1, 10, 42, 3].map(Value::Int);
                    table.rows = vec![vec![id, priority, Value::Null, Value::Null, Value::Null, spi, si]];
                }
                _ => {}
            }
        }
    }
    (filled, routes)
}

/// The rules of a gateway's tables after the table of flows, as in the tables of Open vSwitch in the comparison
/// (`benches/peers/packets.py`): one refused flow, so that all fields are read, and all others.
fn gateway_rules() -> Vec<Vec<Value>> {
    let host = |first: u8| Value::Bytes(vec![first, 255, 255, 255, 32]);
    let port = [Value::Int(u16::MAX.into()), Value::Int(u16::MAX.into())];
    let refused = [Value::Int(10), host(10), host(11), Value::Int(UDP.into())];
    let all = [Value::Int(20), Value::Null, Value::Null, Value::Null];
    let ports = [Value::Int(0), Value::Int(u16::MAX.into())];
    let row = |first: [Value; 4], ports: [Value; 2], allow: bool| {
        first.into_iter().chain(ports.clone()).chain(ports).chain([Value::Bool(allow)]).collect()
    };
    vec![row(refused, port, false), row(all, ports, true)]
}

/// Makes each of these hosts a user of a GTP-U gateway, in its own tunnel to one of 16 stations.
fn admit_users(lowered: &mut Lowered, hosts: impl Fn() -> BTreeSet<[u8; 4]>) {
    let user = |(at, host): (u8, [u8; 4])| {
        let [host, station] = [host, [192, 0, 2, 16 + at % 16]].map(|ip| Value::Bytes(ip.to_vec()));
        vec![host, station, Value::Int(at.into())]
    };
    let tables = lowered.chains.iter_mut().flat_map(|lowered| &mut lowered.program.tables);
    for table in tables.filter(|table| table.spec.name == "users") {
        table.rows = (0..=u8::MAX).cycle().zip(hosts()).map(user).collect();
    }
}

/// Gives each of these flows a row in the table of a gateway.
fn admit_flows(lowered: &mut Lowered, flows: impl Fn() -> Vec<Flow>) {
    let row = |flow: Flow| {
        let (dst, port) = (flow[8..12].to_vec(), u16::from_be_bytes([flow[12], flow[13]]));
        let next = Value::Bytes(vec![2, 0, 0, 0, 0, flow[11] % 64]);
        let own = Value::Bytes(vec![2, 0, 0, 0, 0, 1]);
        ((dst.clone(), port), vec![Value::Bytes(dst), Value::Int(port.into()), next, own])
    };
    let tables = lowered.chains.iter_mut().flat_map(|lowered| &mut lowered.program.tables);
    for table in tables.filter(|table| table.owner == PER_FLOW) {
        let rows: BTreeMap<_, _> = flows().into_iter().map(row).collect();
        table.rows = rows.into_values().collect();
    }
}

/// Converts a prefix to a `CIDR` value; NULL if it matches all addresses.
fn network_of(pattern: Pattern) -> Value {
    let (value, len) = match pattern {
        Pattern::Prefix { value, len } => (value, len),
        Pattern::Exact(value) => (value, 32),
        _ => return Value::Null,
    };
    Value::Bytes((value as u32).to_be_bytes().into_iter().chain([len]).collect())
}

/// The first rule of a set has the least rank. All rules pass: a dropped packet would not reach the next firewall.
pub(super) fn rule_row(rule: &Rule) -> Vec<Value> {
    let int = |n: u128| Value::Int(n as i64);
    let range = |pattern: Pattern| match pattern {
        Pattern::Range { lo, hi } => [int(lo), int(hi)],
        Pattern::Exact(value) => [int(value), int(value)],
        _ => [int(0), int(u16::MAX.into())],
    };
    let [src, dst, src_port, dst_port, protocol] = rule.patterns[..] else { return Vec::new() };
    let protocol = if let Pattern::Exact(value) = protocol { int(value) } else { Value::Null };
    let first = [int(rule.id.into()), network_of(src), network_of(dst), protocol];
    let ports = range(src_port).into_iter().chain(range(dst_port));
    first.into_iter().chain(ports).chain([Value::Bool(true)]).collect()
}

/// Converts a generated rule to a row of the router's table of routes.
pub(super) fn route_row(route: &Rule) -> Vec<Value> {
    let (net, bits) = match network_of(route.patterns[0]) {
        Value::Null => (Value::Bytes(vec![0; 5]), 0),
        net => (net, route.priority),
    };
    let mac = |last: u32| Value::Bytes(vec![2, 0, 0, 0, 0, last as u8]);
    let [id, bits] = [route.id, bits].map(|n| Value::Int(n.into()));
    vec![id, net, bits, Value::text("wan"), mac(route.id % 64), mac(1), Value::Int(1)]
}

/// The most look-ups on any path through the handlers of a packet.
fn most_lookups(program: &ChainProgram) -> usize {
    program.parts(Event::Request).iter().map(|part| most_of(part.function)).sum()
}

fn most_of(function: &Function) -> usize {
    most_from(0, function, &mut vec![None; function.blocks.len()])
}

/// The most look-ups from a block on. Results are memoised. A block in progress is reached again by a loop, which adds
/// no look-ups.
fn most_from(at: usize, function: &Function, known: &mut [Option<usize>]) -> usize {
    let Some(block) = function.blocks.get(at) else { return 0 };
    if let Some(most) = known[at] {
        return most;
    }
    known[at] = Some(0);
    let own = block.insts.iter().filter(|inst| matches!(inst.op, Op::Find(..) | Op::Match(..))).count();
    let next = block.end.jumps().into_iter().map(|jump| jump.block.0 as usize);
    let most = own + next.map(|to| most_from(to, function, known)).max().unwrap_or(0);
    known[at] = Some(most);
    most
}
