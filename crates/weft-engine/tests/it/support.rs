//! Networks, chains and messages for the tests.

use std::sync::Arc;
use weft_core::Interval;
use weft_core::hash::HashKey;
use weft_core::options::ClusterOptions;
use weft_core::schema::{Field, FieldKind, Message as Type, Method, Presence, Schema, Service};
use weft_engine::plan::{Balance, Chain, ChainError, Cluster, FilterAt, Listener, MethodSet, Plan, Route};
use weft_engine::state::{Staged, StateStore};
use weft_ir::interp::Interp;
use weft_ir::text::parse_program;
use weft_ir::verify::verify_program;

pub(crate) use weft_sim::*;

pub(crate) const ADD: &str = "/shop.Cart/Add";
pub(crate) const UP: &str = "/shop.Cart/Up";
pub(crate) const DOWN: &str = "/shop.Cart/Down";
pub(crate) const BOTH: &str = "/shop.Cart/Both";
pub(crate) const ALL: [&str; 4] = [ADD, UP, DOWN, BOTH];
/// The server of most tests.
pub(crate) const CART: &str = "10.0.0.1:50051";
pub(crate) const CART_2: &str = "10.0.0.2:50051";
pub(crate) const CART_3: &str = "10.0.0.3:50051";

pub(crate) const fn ms(n: i64) -> Interval {
    Interval::from_millis(n)
}

/// `shop.Item { string user = 1; int64 n = 2; bytes blob = 3; }` and a service with one method of each kind.
pub(crate) fn schema() -> Arc<Schema> {
    let field = |name: &str, number, kind| Field::new(name, number, kind, Presence::Implicit);
    let fields = vec![
        field("user", 1, FieldKind::String),
        field("n", 2, FieldKind::Int64),
        field("blob", 3, FieldKind::Bytes),
    ];
    let method = |name: &str, client_streaming, server_streaming| Method {
        name: name.to_owned(),
        input: 0,
        output: 0,
        client_streaming,
        server_streaming,
    };
    let methods = vec![
        method("Add", false, false),
        method("Up", true, false),
        method("Down", false, true),
        method("Both", true, true),
    ];
    let messages = vec![Type::new("shop.Item", fields)];
    Arc::new(Schema {
        messages,
        enums: Vec::new(),
        services: vec![Service { name: "shop.Cart".to_owned(), methods }],
    })
}

/// A `shop.Item` on the wire.
pub(crate) fn item(user: &str, n: u64, blob: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if !user.is_empty() {
        bytes_field(&mut out, 1, user.as_bytes());
    }
    if n != 0 {
        out.push(2 << 3);
        varint(&mut out, n);
    }
    if !blob.is_empty() {
        bytes_field(&mut out, 3, blob);
    }
    out
}

fn bytes_field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A stored (not squeezed) gzip member.
pub(crate) fn stored_gzip(payload: &[u8]) -> Vec<u8> {
    let n = payload.len() as u16;
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    out.extend_from_slice(&n.to_le_bytes());
    out.extend_from_slice(&(!n).to_le_bytes());
    out.extend_from_slice(payload);
    let mut crc = !0u32;
    for byte in payload {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    out.extend_from_slice(&(!crc).to_le_bytes());
    out.extend_from_slice(&u32::from(n).to_le_bytes());
    out
}

/// A node's state, and the plans that run on it.
pub(crate) struct Net {
    store: StateStore,
    version: u64,
    pub(crate) balance: Balance,
    pub(crate) connections: u32,
    /// Where streams are long; no fewer than `connections`.
    pub(crate) connections_max: u32,
    /// The filters of the chain.
    pub(crate) filters: Vec<FilterAt>,
}

impl Net {
    pub(crate) fn new() -> Self {
        let (store, filters) = (StateStore::new(1, HashKey::from_seed(1)), Vec::new());
        Self { store, version: 0, balance: Balance::RoundRobin, connections: 4, connections_max: 4, filters }
    }

    /// The next version: the listener `front`, whose calls go through the chain to the cluster `cart` of these
    /// endpoints; and a cluster `side` at [`CART_3`].
    pub(crate) fn plan(&mut self, chain: Option<&str>, endpoints: &[&str]) -> Plan {
        self.try_plan(chain, endpoints).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn try_plan(&mut self, chain: Option<&str>, endpoints: &[&str]) -> Result<Plan, ChainError> {
        self.version += 1;
        let mut state = self.store.stage();
        let chains = match chain {
            Some(text) => self.build(text, &mut state)?.into_iter().map(Arc::new).collect(),
            None => Vec::new(),
        };
        self.store.commit(state);
        let route = Route {
            name: "all".to_owned(),
            listener: 0,
            methods: MethodSet::all(),
            condition: None,
            cluster: 0,
            chains: chain.map(|_| (MethodSet::all(), 0)).into_iter().collect(),
        };
        Ok(Plan {
            version: self.version,
            listeners: vec![Listener {
                name: "front".to_owned(),
                address: address("10.0.0.9:80"),
                options: Arc::default(),
            }],
            clusters: vec![self.cluster("cart", endpoints), self.cluster("side", &[CART_3])],
            routes: vec![route],
            chains,
            call_queues: Vec::new(),
        })
    }

    fn cluster(&self, name: &str, endpoints: &[&str]) -> Arc<Cluster> {
        Arc::new(Cluster {
            name: name.to_owned(),
            endpoints: endpoints.iter().map(|e| address(e)).collect(),
            names: Vec::new(),
            balance: self.balance,
            weights: Vec::new(),
            options: ClusterOptions {
                connections: Some(self.connections),
                connections_max: Some(self.connections_max.max(self.connections)),
                ..ClusterOptions::default()
            },
        })
    }

    fn build(&self, text: &str, state: &mut Staged) -> Result<Vec<Chain>, ChainError> {
        let program = parse_program(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        verify_program(&program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let methods = ALL.map(|path| path[1..].to_owned());
        Chain::build_parts(self.version, &program, &self.filters, 1, &schema(), &methods, state, &Interp)
    }
}

fn address(text: &str) -> weft_engine::plan::Address {
    text.parse().expect("an address")
}

/// A chain's text: declarations, then elements.
pub(crate) fn chain(declarations: &str, elements: &[&str]) -> String {
    format!("chain \"c\"\n{declarations}\n{}", elements.join("\n"))
}

/// An element's text with one block for each handler: `("open", "forward")`.
pub(crate) fn element(name: &str, handlers: &[(&str, &str)]) -> String {
    let mut text = format!("element \"{name}\" \"{name}\"\n");
    for (handler, body) in handlers {
        let body = if body.contains("block0:") { (*body).to_owned() } else { format!("block0:\n{body}") };
        text += &format!("handler {handler} function \"{name}.{handler}\" {{\n{body}\n}}\n");
    }
    text
}

/// Adds one to a variable and goes on.
pub(crate) fn bump(var: usize) -> String {
    format!(
        "lock_vars\nv0: int = var_get var{var}\nv1: int = int 1\nv2: int = add v0, v1\nvar_set var{var}, v2\nforward"
    )
}

/// Variables 0 to n - 1 of an element.
pub(crate) fn vars(owner: &str, n: usize) -> String {
    (0..n).map(|at| format!("var \"{owner}\" \"v{at}\" I64 word {at} start 0\n")).collect()
}

/// The values of the first variables of a plan's only chain.
pub(crate) fn var_values(world: &mut World, n: usize) -> Vec<u64> {
    let state = world.engine().plan().chains[0].state.for_worker(0);
    (0..n).map(|at| state.scalars.word(at)).collect()
}

/// A chain that reads each message in both directions and changes nothing.
pub(crate) fn reading_chain() -> String {
    let reads = "v0: bytes = input in0\nv1: int = input in1\nforward";
    let inputs = "input \"user\" TEXT body \"user\"\ninput \"n\" I64 body \"n\"\n";
    chain(
        &format!("request\n{inputs}response\n{inputs}"),
        &[&element("reader", &[("request", reads), ("response", reads)])],
    )
}

/// The refusals that the engine has counted for a reason.
pub(crate) fn refusals(world: &mut World, reason: &str) -> u64 {
    let stats = world.engine().stats();
    stats.refusals.iter().find(|(name, _)| name == reason).map_or(0, |(_, n)| *n)
}
