//! A compiled chain that matches packets against rules: the cost of a match from the values of a tuple to its row.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use weft_core::Time;
use weft_core::abi::{Counters, Cx, Outcome, REGIONS, Slot, State};
use weft_core::classify::generate::{Family, five_tuple, flows, rules};
use weft_core::classify::{Layout, Pattern, Rule};
use weft_core::hash::HashKey;
use weft_core::types::Value;
use weft_engine::state::StateStore;
use weft_ir::backend::{Backend, Program};
use weft_ir::program::{ChainProgram, Event};
use weft_ir::text;
use weft_jit::Jit;

use super::report::{Row, median};

/// Packets of a stretch, each in another flow.
const PACKETS: usize = 4096;
/// Stretches per round; their median counts.
const STRETCHES: usize = 24;

/// The chain without its rows; it matches the five-tuple of [`five_tuple`].
const CHAIN: &str = r#"chain "acl"
request
  input "src" IPADDR body "src"
  input "dst" IPADDR body "dst"
  input "sport" U16 body "sport"
  input "dport" U16 body "dport"
  input "proto" U8 body "proto"
response
table "acl" "rules" as replicated max 1000000 evict reject
  key "id" U32 = null
  column "priority" U32 = null
  column "src" CIDR nullable = null
  column "dst" CIDR nullable = null
  column "slow" U16 = null
  column "shigh" U16 = null
  column "dlow" U16 = null
  column "dhigh" U16 = null
  column "proto" U8 nullable = null
match t0 by c1 desc
  part IPADDR within c2 wild c2
  part IPADDR within c3 wild c3
  part U16 low c4 high c5
  part U16 low c6 high c7
  part U8 equal c8 wild c8
"#;

/// A handler that drops unmatched packets, and one that reads the same fields without a match.
const HANDLERS: [&str; 2] = [
    "  v5: row = match t0, m0, v0, v1, v2, v3, v4
  v6: bool = is_row v5
  branch v6, block1, block2
block1:
  forward
block2:
  drop
",
    "  forward\n",
];

/// Nanoseconds per match, in a pass of its own.
///
/// # Errors
/// The back end cannot express the chain.
pub(super) fn rows(sizes: &[usize], rounds: usize) -> Result<Vec<Row>, String> {
    let jit = Jit::new().map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    for &n in sizes {
        let rules = rules(Family::Acl, n, 1);
        let layout = Layout::new(&five_tuple(), HashKey::from_seed(1)).map_err(|error| error.to_string())?;
        let packets = packets(&layout, &flows(&layout, &rules, PACKETS, 2));
        let [matches, none] = HANDLERS.map(|handler| compiled(&jit, &rules, handler));
        let (matches, none) = (matches?, none?);
        let times = (0..rounds).map(|_| ns_per_packet(&matches, &packets) - ns_per_packet(&none, &packets));
        rows.push(Row::new(format!("JOIN FIRST of {n}"), "compiled", "ns", &times.collect::<Vec<f64>>()));
    }
    Ok(rows)
}

/// Compiles a chain whose table has these rules and whose handler is this text of the IR.
fn compiled(jit: &Jit, rules: &[Rule], handler: &str) -> Result<(Box<dyn Program>, State), String> {
    let mut chain = CHAIN.to_owned();
    let _ = write!(chain, "element \"acl\" \"acl\"\nhandler request function \"acl.request\" {{\nblock0:\n");
    for (at, ty) in ["bytes", "bytes", "int", "int", "int"].into_iter().enumerate() {
        let _ = writeln!(chain, "  v{at}: {ty} = input in{at}");
    }
    let _ = writeln!(chain, "{handler}}}");
    let mut program: ChainProgram = text::parse_program(&chain).map_err(|error| error.to_string())?;
    program.tables[0].rows = rules.iter().map(row).collect();
    let bound = StateStore::new(1, HashKey::from_seed(1)).stage().bind(program);
    let (program, bound) = bound.map_err(|error| error.to_string())?;
    let state = bound.for_worker(0);
    let code = jit.compile(&Arc::new(program), Event::Request, &state).map_err(|error| error.to_string())?;
    Ok((code, state))
}

/// Converts a rule to a row of the table.
fn row(rule: &Rule) -> Vec<Value> {
    let int = |n: u128| Value::Int(n as i64);
    let net = |pattern: Pattern| match pattern {
        Pattern::Prefix { value, len } => {
            Value::Bytes((value as u32).to_be_bytes().into_iter().chain([len]).collect())
        }
        Pattern::Exact(value) => Value::Bytes((value as u32).to_be_bytes().into_iter().chain([32]).collect()),
        _ => Value::Null,
    };
    let range = |pattern: Pattern| match pattern {
        Pattern::Range { lo, hi } => [int(lo), int(hi)],
        Pattern::Exact(value) => [int(value), int(value)],
        _ => [int(0), int(u16::MAX.into())],
    };
    let [src, dst, sport, dport, proto] = rule.patterns[..] else { return Vec::new() };
    let proto = if let Pattern::Exact(value) = proto { int(value) } else { Value::Null };
    let ports = range(sport).into_iter().chain(range(dport));
    let first = [int(rule.id.into()), int(rule.priority.into()), net(src), net(dst)];
    first.into_iter().chain(ports).chain([proto]).collect()
}

/// The inputs of a packet, and the bytes of its addresses.
struct Packet {
    slots: [Slot; 5],
    body: [u8; 8],
}

/// Makes a packet for each key: its five fields as inputs of the handler.
fn packets(layout: &Layout, keys: &[u64]) -> Vec<Packet> {
    let packet = |key: &[u64]| {
        let [src, dst, sport, dport, proto] = [0, 1, 2, 3, 4].map(|field| layout.places(field).0.of(key));
        let mut body = [0; 8];
        body[..4].copy_from_slice(&(src as u32).to_be_bytes());
        body[4..].copy_from_slice(&(dst as u32).to_be_bytes());
        let number = |a: u64| Slot { a, b: 0 };
        let slots = [Slot { a: 0, b: 4 }, Slot { a: 4, b: 4 }, number(sport), number(dport), number(proto)];
        Packet { slots, body }
    };
    keys.chunks_exact(layout.words()).map(packet).collect()
}

/// Runs the handler on all packets, several times. Returns the median of nanoseconds per packet.
fn ns_per_packet((code, state): &(Box<dyn Program>, State), packets: &[Packet]) -> f64 {
    let (mut out, mut counters) = (Outcome::default(), [Counters::default()]);
    let stretches = (0..STRETCHES).map(|_| {
        let began = Instant::now();
        for Packet { slots, body } in packets {
            out.clear();
            let mut regions: [&[u8]; REGIONS] = [&[]; REGIONS];
            regions[0] = body;
            let mut cx = Cx {
                slots,
                present: (0..5_u8).collect(),
                regions,
                ..Cx::new(Time(0), state, &mut [], &mut out, &mut counters)
            };
            code.run(&mut cx, 1);
            black_box(&cx.out.verdict);
        }
        began.elapsed().as_nanos() as f64 / packets.len() as f64
    });
    median(&stretches.collect::<Vec<f64>>())
}
