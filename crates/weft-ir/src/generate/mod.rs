//! Generates well-formed chains and passes, and observes what a pass does, to test back ends and passes.
//!
//! Everything follows from a [`Rng`], made from a seed or from bytes (so that a fuzzer can steer it). To compare two
//! back ends:
//!
//! ```
//! use weft_ir::{generate, interp::Interp};
//! generate::compare(7, &Interp, &Interp).unwrap();
//! ```
//!
//! The programs use every operation, tables with all key shapes, call cells, variables, sinks and inputs of all types;
//! values are often edge values. [`coverage`] counts operations. All NaNs in an [`Observation`] count as equal, since
//! their bits differ between machines.

mod function;
mod natives;
mod observe;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use crate::backend::Backend;
use crate::ir::{Block, Function, TableId};
use crate::program::*;
use crate::text;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::limits::{ELEMENTS_MAX, INPUTS_MAX};
use weft_core::matching::{MatchPart, MatchSpec, Test};
use weft_core::table::{ColumnSpec, Evict, RemovalReason, TableSpec};
use weft_core::types::{Type, Value};
use weft_core::wire::header_change::{HeaderChange, Pop, Pseudo};
use weft_core::{Interval, Time};

pub use weft_core::rng::Rng;

pub use observe::{Observation, Observed, Pass, RuleChange, World};

/// A difference between two back ends.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed.
    pub seed: u64,
    /// What differs, with the handlers of the segment in text form.
    pub what: String,
}

/// Runs a random chain and [`PASSES`] random passes on two back ends, each with its own state. Rules change between
/// passes.
///
/// # Errors
/// The first pass with different results, or an error of a back end.
pub fn compare(seed: u64, first: &dyn Backend, second: &dyn Backend) -> Result<(), Difference> {
    let mut rng = Rng::from_seed(seed);
    let chain = Arc::new(chain(&mut rng));
    let mut worlds = [World::new(&chain), World::new(&chain)];
    let mut now = Time(1_000_000_000);
    for nth in 0..PASSES {
        now += Interval(rng.pick(&[0, 1, 40, 1000]));
        if rng.percent(30) {
            let change = RuleChange::random(&mut rng);
            worlds.iter_mut().for_each(|world| world.change(&chain, &change));
        }
        let pass = Pass::random(&mut rng, &chain, now);
        let differs = |what: String| Difference { seed, what: format!("pass {nth}: {what}") };
        let mut seen = Vec::new();
        for (backend, world) in [first, second].into_iter().zip(&mut worlds) {
            let program = backend
                .compile(&chain, pass.event, &world.state)
                .map_err(|e| differs(format!("{} refuses: {e} (line {})", backend.name(), e.line)))?;
            seen.push(world.run(&chain, &*program, &pass));
        }
        if seen[0] != seen[1] {
            let (a, b) = (first.name(), second.name());
            let functions: Vec<String> =
                chain.parts(pass.event).iter().map(|part| text::write(part.function)).collect();
            return Err(differs(format!(
                "{pass:?}\n{}\n{a}: {:#?}\n{b}: {:#?}",
                functions.join("\n"),
                seen[0],
                seen[1]
            )));
        }
    }
    Ok(())
}

/// Passes in one [`compare`].
pub const PASSES: usize = 12;

/// The number of occurrences of each operation and terminator in a chain, by mnemonic.
pub fn coverage(chain: &ChainProgram) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for block in functions(chain).flat_map(|function| &function.blocks) {
        let ops = block.insts.iter().map(|inst| text::mnemonic(&inst.op));
        for name in ops.chain([text::end_mnemonic(&block.end)]) {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// The handlers of all elements.
fn functions(chain: &ChainProgram) -> impl Iterator<Item = &Function> {
    chain.elements.iter().flat_map(|element| element.handlers.all()).map(|(_, function)| function)
}

/// A random chain that [`crate::verify::verify_program`] accepts.
pub fn chain(rng: &mut Rng) -> ChainProgram {
    let mut chain = ChainProgram {
        name: "generated".into(),
        request: Direction { inputs: inputs(rng, false) },
        response: Direction { inputs: inputs(rng, true) },
        tables: tables(rng),
        matches: matches(rng),
        vars: vars(),
        sinks: sinks(),
        call: call_cells(),
        answers: ["x-reason", "x-retry"].map(|name| AnswerName { name: name.into() }).into(),
        replies: [Type::Bool, Type::Int(64), Type::F64, Type::Text(None)]
            .map(|ty| ReplyField { path: vec!["field".into(), ty.to_string()], ty })
            .into(),
        header_changes: vec![
            HeaderChangeDecl { params: vec![Type::Uint(32)], what: HeaderChange::Cut },
            HeaderChangeDecl { params: vec![Type::Uint(32)], what: HeaderChange::Fragment },
            HeaderChangeDecl {
                params: vec![Type::Bool, Type::Bytes(None), Type::Int(64)],
                what: HeaderChange::Push { behind: None, stacks: Vec::new() },
            },
            HeaderChangeDecl {
                params: Vec::new(),
                what: HeaderChange::Pop { layer: 0, how: Pop::To, pseudo: Pseudo::default() },
            },
        ],
        natives: natives::declared(),
        ..ChainProgram::default()
    };
    for index in 0..1 + rng.below(4) {
        let element = element(rng, &chain, index);
        chain.elements.push(element);
    }
    assert!(chain.elements.len() <= ELEMENTS_MAX, "a generated chain keeps the limits");
    chain
}

/// Generates an element with random handlers.
fn element(rng: &mut Rng, chain: &ChainProgram, index: usize) -> Element {
    use crate::verify::Handler::{Close, Every, Open, Request, Response, Timeout};
    let mut some = |handler, percent| {
        rng.percent(percent)
            .then(|| function::generate(rng, chain, handler, None, &format!("e{index}.{handler:?}")))
    };
    let handlers = Handlers {
        open: some(Open, 100),
        request: some(Request, 90),
        response: some(Response, 70),
        close: some(Close, 50),
        every: some(Every, 60).into_iter().map(|f| (Interval::from_millis(100), f)).collect(),
        timeouts: Vec::new(),
    };
    // All elements share the tables; each removed row goes to one element.
    let mut timeouts = Vec::new();
    for (table, decl) in (0..).map(TableId).zip(&chain.tables) {
        let ways = [
            (RemovalReason::Expired, decl.spec.expires()),
            (RemovalReason::Evicted, decl.spec.evict != Evict::Reject),
        ];
        for (why, _) in ways.into_iter().filter(|(_, leaves)| *leaves) {
            let removal = RowRemoval { table, why };
            let is_first = chain.timeouts().all(|(_, other)| other != removal);
            if is_first && rng.percent(60) {
                let name = format!("e{index}.{why:?}{}", table.0);
                timeouts.push((removal, function::generate(rng, chain, Timeout, Some(table), &name)));
            }
        }
    }
    let handlers = Handlers { timeouts, ..handlers };
    Element {
        name: format!("e{index}"),
        element: "generated".into(),
        handlers,
        mandatory: rng.percent(20),
        fail_open: rng.percent(40),
    }
}

/// Two columns of each type (in some chains many more), from all locations; the generator decides whether they are
/// nullable or written. Behind them are the columns derived from the message.
fn inputs(rng: &mut Rng, is_response: bool) -> Vec<Input> {
    let types = [Type::Bool, Type::Int(64), Type::F64, Type::Text(None), Type::Uint(32), Type::Bytes(None)];
    let mut inputs = Vec::new();
    let n_derived = 2;
    let n_more = if rng.percent(15) { rng.below(INPUTS_MAX - n_derived - 2 * types.len() + 1) } else { 0 };
    for (i, &ty) in types.iter().cycle().take(2 * types.len() + n_more).enumerate() {
        let is_bytes = Type::repr(ty) == weft_core::types::Repr::Bytes;
        let place = match rng.below(4) {
            0 if is_bytes => InputLocation::Header(format!("x-{i}")),
            1 if is_bytes && is_response => InputLocation::Trailer(format!("x-{i}")),
            2 if ty == Type::Text(None) => InputLocation::Meta(Meta::Peer),
            _ => InputLocation::Body(vec!["m".into(), format!("f{i}")]),
        };
        let (nullable, written) = (i % 2 == 0, i < types.len() || rng.percent(30));
        inputs.push(Input { name: format!("in{i}"), ty, nullable, place, written });
    }
    let derived =
        |name: &str, ty, place| Input { name: name.into(), ty, nullable: true, place, written: false };
    inputs.push(derived("payload", Type::Bytes(None), InputLocation::Body(Vec::new())));
    inputs.push(derived("size", Type::Size, InputLocation::Meta(Meta::Size)));
    assert!(inputs.len() <= INPUTS_MAX, "the derived inputs fit");
    inputs
}

/// Generates one table for each key shape, and a replicated one.
fn tables(rng: &mut Rng) -> Vec<TableDecl> {
    let keys: [(&str, &[Type]); 8] = [
        ("by_int", &[Type::Uint(64)]),
        ("by_text", &[Type::Text(Some(6))]),
        ("by_pair", &[Type::Int(32), Type::Text(Some(5))]),
        ("by_bool", &[Type::Bool]),
        ("by_float", &[Type::F64]),
        ("replicated", &[Type::Text(Some(8))]),
        ("by_peer", &[Type::IpAddr, Type::Uint(16)]),
        ("by_flow", &[Type::Uint(8), Type::IpAddr, Type::Mac, Type::IpAddr]),
    ];
    let mut tables: Vec<TableDecl> = keys.iter().map(|(name, key)| table(rng, name, key)).collect();
    assert_eq!(tables.len(), usize::from(RULES.0), "the table of rules is the last one");
    tables.push(rules(rng));
    tables
}

/// The id of the [`rules`] table.
const RULES: TableId = TableId(8);

/// Generates a replicated table for matches.
fn rules(rng: &mut Rng) -> TableDecl {
    let column =
        |name: &str, ty, nullable| ColumnSpec { name: name.into(), ty, nullable, default: Value::Null };
    let spec = TableSpec {
        name: "rules".into(),
        key: vec![column("id", Type::Int(64), false)],
        columns: vec![
            column("rank", Type::Int(64), true),
            column("net", Type::Cidr, true),
            column("low", Type::Int(64), true),
            column("high", Type::Int(64), true),
            column("n", Type::Uint(64), false),
            column("s", Type::Text(Some(8)), true),
            column("flag", Type::Bool, true),
            column("bits", Type::Uint(64), true),
        ],
        max_rows: 30,
        evict: Evict::Reject,
        ttl: None,
        ttl_on_access: false,
        ttl_on_insert: None,
        shared: false,
        stripes: None,
    };
    let rows: Vec<Vec<Value>> = (0..rng.below(20) as i64).map(|id| rule(rng, 9 - id)).collect();
    let n_columns = spec.key.len() + spec.columns.len();
    assert!(rows.iter().all(|row| row.len() == n_columns), "a rule has a value for each column");
    TableDecl { owner: "e0".into(), spec, realisation: Realisation::Replicated, rows }
}

/// Generates a row of [`rules`].
fn rule(rng: &mut Rng, id: i64) -> Vec<Value> {
    let number = |rng: &mut Rng| Value::Int(values::int(rng));
    let rank = Value::Int(rng.pick(&[-1, 0, i64::MAX]));
    let net = Value::Bytes(rng.pick(&NETS).to_vec());
    let (low, high, n) = (number(rng), number(rng), number(rng));
    let (s, flag) = (Value::Bytes(rng.pick(&["", "a", "bob"]).into()), Value::Bool(rng.percent(50)));
    // Some bits of the mask `n`, so that some values match.
    let Value::Int(mask) = n else { panic!("the value is a number") };
    let bits = Value::Int(mask & rng.pick(&[0, 3, -1]));
    let all = [rank, net, low, high, n, s, flag, bits].into_iter().enumerate();
    let all = all.map(|(at, value)| if at != 4 && rng.percent(30) { Value::Null } else { value });
    core::iter::once(Value::Int(id)).chain(all).collect()
}

/// Networks of both lengths, and an invalid one.
const NETS: [&[u8]; 5] = [
    &[10, 0, 0, 0, 8],
    &[0, 0, 0, 0, 0],
    &[10, 1, 0, 0, 16],
    &[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8],
    &[1, 33],
];

/// Generates declared matches over [`rules`].
fn matches(rng: &mut Rng) -> Vec<MatchDecl> {
    let part = |test, wildcard, ty, nullable| MatchPart { test, wildcard, ty, nullable };
    let mut decl = || {
        let all = [
            part(Test::Within(2), Some(2), Type::IpAddr, true),
            part(Test::Range { low: Some(3), high: Some(4) }, Some(4), Type::Int(64), false),
            part(Test::Range { low: None, high: Some(5) }, None, Type::Uint(64), true),
            part(Test::Equal(6), Some(6), Type::Text(None), true),
            part(Test::Equal(7), Some(7), Type::Bool, false),
            part(Test::Masked { mask: 5, bits: 8 }, Some(8), Type::Uint(64), true),
        ];
        let mut parts: Vec<MatchPart> = all.into_iter().filter(|_| rng.percent(40)).collect();
        if parts.is_empty() {
            parts.push(all[0]);
        }
        for part in &mut parts {
            part.wildcard = part.wildcard.filter(|_| rng.percent(80));
        }
        let spec = MatchSpec { by: rng.pick(&[0, 1, 3, 5]), descending: rng.percent(50), parts };
        MatchDecl { table: RULES, spec }
    };
    vec![decl(), decl()]
}

/// Generates a table with this key and a column for each representation.
fn table(rng: &mut Rng, name: &str, key: &[Type]) -> TableDecl {
    let column = |name: String, ty, nullable, default| ColumnSpec { name, ty, nullable, default };
    let is_replicated = name == "replicated";
    let mut ttl =
        |percent| (rng.percent(percent) && !is_replicated).then(|| Interval(rng.pick(&[1, 50, 900])));
    let (ttl, ttl_on_insert) = (ttl(30), ttl(15));
    let spec = TableSpec {
        name: name.into(),
        key: (0..).zip(key).map(|(i, &ty)| column(format!("k{i}"), ty, false, Value::Null)).collect(),
        columns: vec![
            column("flag".into(), Type::Bool, true, Value::Bool(true)),
            column("n".into(), Type::Int(64), false, Value::Int(-3)),
            column("maybe".into(), Type::Uint(16), true, Value::Null),
            column("x".into(), Type::F64, false, Value::Float(1.5)),
            column("s".into(), Type::Text(Some(11)), true, Value::text("start")),
            column("b".into(), Type::Bytes(Some(16)), false, Value::Null),
        ],
        max_rows: rng.pick(&[2, 4, 30]),
        evict: rng.pick(&[Evict::Reject, Evict::Oldest, Evict::Lru]),
        ttl,
        ttl_on_access: rng.percent(40),
        ttl_on_insert,
        shared: rng.percent(50),
        stripes: None,
    };
    let realisation = match is_replicated {
        true => Realisation::Replicated,
        false => rng.pick(&[Realisation::Striped, Realisation::Locked, Realisation::PerWorker]),
    };
    let row = |key: &str| {
        let n = key.len() as i64;
        let values = [Value::Bool(n > 2), Value::Int(n), Value::Null, Value::Float(0.5), Value::text(key)];
        [Value::text(key)].into_iter().chain(values).chain([Value::text("x")]).collect()
    };
    let rows = if is_replicated { vec![row("a"), row("bob")] } else { Vec::new() };
    TableDecl { owner: "e0".into(), spec, realisation, rows }
}

/// The variables of generated chains, with and without MERGE.
fn vars() -> Vec<VarDecl> {
    let var = |(word, (ty, start, merge)): (u32, (Type, Value, Option<Merge>))| VarDecl {
        owner: "e0".into(),
        name: format!("var{word}"),
        ty,
        word,
        start,
        merge,
    };
    let all = [
        (Type::Int(64), Value::Int(5), None),
        (Type::F64, Value::Float(0.25), None),
        (Type::Bool, Value::Bool(false), None),
        (Type::Uint(64), Value::Int(10), Some(Merge::Sum)),
        (Type::Int(64), Value::Int(-1), Some(Merge::Max)),
        (Type::Uint(64), Value::Int(7), Some(Merge::Min)),
        (Type::Int(64), Value::Int(0), Some(Merge::Min)),
        (Type::Uint(64), Value::Int(0), Some(Merge::Max)),
    ];
    (0..).zip(all).map(var).collect()
}

/// The sinks of generated chains.
fn sinks() -> Vec<SinkDecl> {
    let sink = |name: &str, types: &[Type]| SinkDecl {
        owner: "e0".into(),
        name: name.into(),
        columns: types.iter().map(|&ty| SinkColumn { name: ty.to_string(), ty }).collect(),
        target: SinkTarget::Stdout,
        format: SinkFormat::Json,
    };
    let to_table = SinkTarget::Table { owner: "e0".into(), table: "rules".into(), deletes: true };
    vec![
        sink("all", &[Type::Bool, Type::Int(64), Type::F64, Type::Text(None)]),
        SinkDecl { target: to_table, ..sink("one", &[Type::Bytes(None)]) },
    ]
}

/// The cells of the call's row in generated chains.
fn call_cells() -> Vec<CallCell> {
    let mut word = 0;
    let types = [Type::Int(64), Type::Text(Some(9)), Type::F64, Type::Bool, Type::Bytes(Some(8))];
    let cell = |ty| {
        let at = word;
        word += cell_words(ty) as u32;
        CallCell { owner: "e0".into(), name: format!("cell{at}"), ty, word: at }
    };
    types.into_iter().map(cell).collect()
}

/// The events that a chain handles.
pub fn events(chain: &ChainProgram) -> Vec<Event> {
    let mut events = vec![Event::Open, Event::OpenRequest, Event::Request, Event::Response, Event::Close];
    for (index, element) in chain.elements.iter().enumerate() {
        let every = (0..element.handlers.every.len()).map(|n| Event::Every(index as u16, n as u16));
        events.extend(every);
    }
    events.extend(chain.timeouts().map(|(event, _)| event));
    events
}

/// Adds an empty block.
fn new_block(function: &mut Function) -> usize {
    function.blocks.push(Block::default());
    function.blocks.len() - 1
}
