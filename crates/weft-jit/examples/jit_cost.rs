//! Compares compiled elements with hand-written twins, and measures compile times.
//!
//! Both sides are a [`Program`] behind a pointer, as the engine calls it, over the same tables, and have the same
//! outcome. Run it with `cargo run --release -p weft-jit --example jit_cost [CHAIN]`. Times are the least of many
//! rounds in which both sides alternate, so that other load affects both.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use weft_core::abi::{Cell, Counters, Cx, Outcome, Parts, REGION_BODY, SinkRow, Slot, State, Verdict};
use weft_core::hash;
use weft_core::hash::HashKey;
use weft_core::table::{ColumnRef, ColumnSpec, Evict, Insert, Scalars, Table, TableSpec};
use weft_core::{Interval, Status, Time, Type, Value};
use weft_ir::backend::Program;
use weft_ir::program::*;
use weft_ir::text;
use weft_jit::Jit;

const ROUNDS: usize = 300;
const PASSES: usize = 4096;
const USERS: usize = 1000;

const LOGGING: &str = r#"
function "logging" {
block0:
    v0: int = now
    v1: bytes = input in0
    v2: int = input in1
    emit s0, v0, v1, v2
    forward
}
"#;

const ACL: &str = r#"
function "acl" {
block0:
    v0: bytes = input in0
    v1: row = find t0, v0
    v2: bool = is_row v1
    branch v2, block1, block2
block1:
    v3: bytes = column t0, v1, c1
    v4: bytes = bytes "W"
    v5: bool = bcmp.eq v3, v4
    branch v5, block3, block2
block2:
    v6: bytes = bytes "no write permission"
    abort PERMISSION_DENIED, v6
block3:
    forward
}
"#;

const BUCKET: &str = r#"
function "bucket" {
block0:
    v0: bytes = input in0
    lock t1, v0
    v1: int = now
    v2: row = find t1, v0
    v3: bool = is_row v2
    branch v3, block3(v2), block1
block1:
    v4: row = insert t1, v0
    v5: bool = is_row v4
    branch v5, block2, block7
block2:
    v6: float = float 1000.0
    v7: bool = set_column t1, v4, c1, v6
    v8: bool = set_column t1, v4, c2, v1
    jump block3(v4)
block3(v9: row):
    v10: float = column t1, v9, c1
    v11: int = column t1, v9, c2
    v12: int = sub v1, v11
    v13: bool = overflows.sub.signed v1, v11
    branch v13, block7, block4
block4:
    v14: float = int_to_float.signed v12
    v15: float = float 0.000000001
    v16: float = fmul v14, v15
    v17: float = float 1000000000.0
    v18: float = fmul v16, v17
    v19: float = fadd v10, v18
    v20: float = float 1000.0
    v21: float = fmin v19, v20
    v22: bool = set_column t1, v9, c1, v21
    v23: bool = set_column t1, v9, c2, v1
    touch t1, v9
    v24: float = float 1.0
    v25: bool = fcmp.le v24, v21
    branch v25, block5, block6
block5:
    v26: float = fsub v21, v24
    v27: bool = set_column t1, v9, c1, v26
    forward
block6:
    abort RESOURCE_EXHAUSTED
block7:
    v28: int = int 1
    fail v28
}
"#;

const FAULT: &str = r#"
function "fault" {
block0:
    v0: float = rand 77
    v1: float = float 0.001
    v2: bool = fcmp.lt v0, v1
    branch v2, block1, block2
block1:
    abort UNAVAILABLE
block2:
    forward
}
"#;

const SHARD: &str = r#"
function "shard" {
block0:
    v0: int = input in1
    v1: int = hash v0
    v2: int = int 4
    v3: int = urem v1, v2
    v4: row = find t2, v3
    v5: bytes = column t2, v4, c1
    redirect v5
}
"#;

fn main() {
    let jit = Jit::new().expect("this machine is one that code is generated for").with_clock(clock);
    println!(
        "{:<12}{:>10}{:>10}{:>9}{:>12}{:>12}",
        "chain", "jit ns", "hand ns", "ratio", "compile us", "code bytes"
    );
    let acl: &[(&str, &str)] = &[("acl", ACL)];
    let all = [("logging", LOGGING), ("acl", ACL), ("bucket", BUCKET), ("fault", FAULT), ("shard", SHARD)];
    measure(&jit, "empty", &all[..0], |_, _| true);
    measure(&jit, "logging", &all[..1], logging);
    measure(&jit, "acl", acl, hand_acl);
    measure(&jit, "bucket", &all[2..3], bucket);
    measure(&jit, "fault", &all[3..4], fault);
    measure(&jit, "shard", &all[4..], shard);
    measure(&jit, "all five", &all, |twin, cx| {
        logging(twin, cx)
            && hand_acl(&twin.of(1), cx)
            && bucket(&twin.of(2), cx)
            && fault(&twin.of(3), cx)
            && shard(&twin.of(4), cx)
    });
}

fn clock() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// A hand-written element: its columns and its index.
#[derive(Clone, Copy)]
struct Twin {
    element: usize,
    permission: ColumnRef,
    tokens: ColumnRef,
    last: ColumnRef,
    target: ColumnRef,
}

impl Twin {
    #[inline(always)]
    fn of(&self, element: usize) -> Self {
        Self { element, ..*self }
    }
}

/// A chain written by hand.
struct HandWritten<F> {
    twin: Twin,
    n_elements: usize,
    run: F,
}

impl<F> fmt::Debug for HandWritten<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hand-written")
    }
}

impl<F: Fn(&Twin, &mut Cx<'_>) -> bool + Send + Sync> Program for HandWritten<F> {
    fn run(&self, cx: &mut Cx<'_>, _opened: usize) {
        let goes_on = (self.run)(&self.twin, cx);
        if goes_on && cx.out.verdict != Verdict::Redirect {
            cx.out.element = self.n_elements as u16;
        }
    }
}

fn measure<F>(jit: &Jit, name: &str, elements: &[(&str, &str)], hand: F)
where
    F: Fn(&Twin, &mut Cx<'_>) -> bool + Send + Sync,
{
    if std::env::args().nth(1).is_some_and(|only| only != name) {
        return;
    }
    let chain = Arc::new(chain(elements));
    let state = state(&chain);
    let mut compile_ns = u64::MAX;
    for _ in 0..20 {
        let segment = jit.compile_segment(&chain, Event::Request, &state).expect("it compiles");
        compile_ns = compile_ns.min(segment.compile_ns());
    }
    let segment = jit.compile_segment(&chain, Event::Request, &state).expect("it compiles");
    let column = |table: usize, name| state.tables[table].column(name).expect("a column of the table");
    let twin = Twin {
        element: 0,
        permission: column(0, "permission"),
        tokens: column(1, "tokens"),
        last: column(1, "last"),
        target: column(2, "target"),
    };
    let n_elements = elements.len();
    let twin = HandWritten { twin, n_elements, run: hand };
    let mut bench = Bench::new(n_elements);
    let (mut jit_ns, mut hand_ns) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        jit_ns = jit_ns.min(bench.round(&state, black_box(&segment)));
        hand_ns = hand_ns.min(bench.round(&state, black_box(&twin)));
    }
    println!(
        "{name:<12}{jit_ns:>10.1}{hand_ns:>10.1}{:>9.3}{:>12.1}{:>12}",
        jit_ns / hand_ns,
        compile_ns as f64 / 1e3,
        segment.code_bytes()
    );
}

/// A measurement: passes and their data.
struct Bench {
    body: Vec<u8>,
    slots: Vec<[Slot; 2]>,
    counters: Vec<Counters>,
    out: Outcome,
    now: i64,
}

impl Bench {
    fn new(n_elements: usize) -> Self {
        let mut body = Vec::new();
        let mut slots = Vec::new();
        for i in 0..PASSES {
            let name = user(hash::hash_word(i as u64) as usize % USERS);
            let at = body.len() as u64;
            body.extend_from_slice(name.as_bytes());
            slots.push([Slot { a: at, b: name.len() as u64 }, Slot { a: i as u64 * 31, b: 0 }]);
        }
        let counters = vec![Counters::default(); n_elements];
        Self { body, slots, counters, out: Outcome::default(), now: 1 << 60 }
    }

    /// Nanoseconds of a pass.
    fn round(&mut self, state: &State, program: &dyn Program) -> f64 {
        let began = Instant::now();
        for (i, slots) in self.slots.iter().enumerate() {
            self.out.clear();
            self.now += 1000;
            let mut cx = Cx {
                rand: i as u64,
                slots,
                present: (0..2_u8).collect(),
                regions: [&self.body, &[], &[]],
                ..Cx::new(Time(self.now), state, &mut [], &mut self.out, &mut self.counters)
            };
            program.run(&mut cx, usize::MAX);
            black_box(&mut self.out);
        }
        began.elapsed().as_nanos() as f64 / self.slots.len() as f64
    }
}

fn user(i: usize) -> String {
    format!("user-{i}@example.org")
}

fn chain(elements: &[(&str, &str)]) -> ChainProgram {
    let column = |name: &str, ty| ColumnSpec { name: name.into(), ty, nullable: false, default: Value::Null };
    let table = |name: &str, key, columns, evict, ttl| TableDecl {
        owner: name.into(),
        spec: TableSpec {
            name: name.into(),
            key: vec![column("key", key)],
            columns,
            max_rows: 100_000,
            evict,
            ttl,
            ttl_on_access: false,
            ttl_on_insert: None,
            shared: false,
            stripes: None,
        },
        realisation: Realisation::PerWorker,
        rows: Vec::new(),
    };
    let input = |name: &str, ty| Input {
        name: name.into(),
        ty,
        nullable: false,
        place: InputLocation::Body(vec![name.into()]),
        written: false,
    };
    let text = Type::Text(Some(64));
    let sink_columns = [("at", Type::Timestamp), ("user", Type::Text(None)), ("object", Type::Uint(64))];
    ChainProgram {
        name: "cost".into(),
        elements: elements
            .iter()
            .map(|(name, source)| Element {
                name: (*name).into(),
                element: (*name).into(),
                handlers: Handlers {
                    request: Some(text::parse(source).unwrap_or_else(|e| panic!("{name}: {e}"))),
                    ..Handlers::default()
                },
                ..Element::default()
            })
            .collect(),
        request: Direction { inputs: vec![input("user", Type::Text(None)), input("object", Type::Uint(64))] },
        tables: vec![
            table("acl", text, vec![column("permission", Type::Text(Some(1)))], Evict::Reject, None),
            table(
                "bucket",
                text,
                vec![column("tokens", Type::F64), column("last", Type::Timestamp)],
                Evict::Oldest,
                Some(Interval::from_secs(60)),
            ),
            table("replica", Type::Uint(64), vec![column("target", text)], Evict::Reject, None),
        ],
        sinks: vec![SinkDecl {
            owner: "logging".into(),
            name: "log".into(),
            columns: sink_columns.map(|(name, ty)| SinkColumn { name: name.into(), ty }).into(),
            target: SinkTarget::Stdout,
            format: SinkFormat::Json,
        }],
        ..ChainProgram::default()
    }
}

fn state(chain: &ChainProgram) -> State {
    let tables: Vec<_> =
        chain.tables.iter().map(|t| Arc::new(Table::new(t.spec.clone(), HashKey::from_seed(1)))).collect();
    let permission = tables[0].column("permission").expect("a column of the table");
    for i in 0..USERS {
        let Insert::New(row) = tables[0].insert_bytes(user(i).as_bytes(), Time(0)) else { continue };
        tables[0].set_bytes(row, permission, b"W");
    }
    let target = tables[2].column("target").expect("a column of the table");
    for i in 0..4 {
        let Insert::New(row) = tables[2].insert_int(i, Time(0)) else { continue };
        tables[2].set_bytes(row, target, format!("127.0.0.1:600{i}").as_bytes());
    }
    let scalars = || Arc::new(Scalars::new(0));
    State::from(Parts { tables, scalars: scalars(), merged: scalars(), ..Parts::default() })
}

// The twins: what an engineer would write against the same interface.

#[inline(always)]
fn text_of<'a>(cx: &Cx<'a>, input: usize) -> &'a [u8] {
    let slot = cx.slots[input];
    &cx.regions[REGION_BODY][slot.a as usize..][..slot.b as usize]
}

#[inline(always)]
fn abort(cx: &mut Cx<'_>, element: usize, status: Status, text: &[u8]) -> bool {
    cx.counters[element].aborted += 1;
    cx.out.verdict = Verdict::Abort(status);
    cx.out.element = element as u16;
    cx.out.text.clear();
    cx.out.text.extend_from_slice(text);
    false
}

#[inline(always)]
fn logging(twin: &Twin, cx: &mut Cx<'_>) -> bool {
    cx.counters[twin.element].seen += 1;
    let user = text_of(cx, 0);
    let (start, len) = cx.out.keep(user).unwrap_or((0, 0));
    let cells = [Cell::Int(cx.now.0), Cell::Bytes(start, len), Cell::Int(cx.slots[1].a as i64)];
    cx.out.cells.extend_from_slice(&cells);
    cx.out.rows.push(SinkRow { sink: 0, cells: 3 });
    true
}

#[inline(always)]
fn hand_acl(twin: &Twin, cx: &mut Cx<'_>) -> bool {
    cx.counters[twin.element].seen += 1;
    let table = &cx.state.tables[0];
    let row = table.find_bytes(text_of(cx, 0), cx.now);
    if row.is_some() && table.bytes_eq(row, twin.permission, b"W") {
        return true;
    }
    abort(cx, twin.element, Status::PermissionDenied, b"no write permission")
}

#[inline(always)]
fn bucket(twin: &Twin, cx: &mut Cx<'_>) -> bool {
    cx.counters[twin.element].seen += 1;
    let (user, now) = (text_of(cx, 0), cx.now);
    let table = &cx.state.tables[1];
    let hash = table.hash_bytes(user);
    if table.spec().shared {
        table.lock(hash);
    }
    let mut row = table.find_bytes(user, now);
    if row.is_none() {
        let Insert::New(new) = table.insert_bytes(user, now) else {
            return abort(cx, twin.element, Status::Internal, b"");
        };
        row = new;
        table.set_word(row, twin.tokens, 1000f64.to_bits());
        table.set_word(row, twin.last, now.0 as u64);
    }
    let words = table.row_words(row, 0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let (tokens, last) = (&words[twin.tokens.word as usize], &words[twin.last.word as usize]);
    let age = now.0.wrapping_sub(last.load(relaxed) as i64);
    let filled = (f64::from_bits(tokens.load(relaxed)) + age as f64 * 1e-9 * 1e9).min(1000.0);
    tokens.store(filled.to_bits(), relaxed);
    last.store(now.0 as u64, relaxed);
    table.touch(row, now);
    let has_token = filled >= 1.0;
    if has_token {
        tokens.store((filled - 1.0).to_bits(), relaxed);
    }
    if table.spec().shared {
        table.unlock(hash);
    }
    has_token || abort(cx, twin.element, Status::ResourceExhausted, b"")
}

#[inline(always)]
fn fault(twin: &Twin, cx: &mut Cx<'_>) -> bool {
    cx.counters[twin.element].seen += 1;
    if hash::unit_float(hash::draw(cx.rand, 77)) < 0.001 {
        return abort(cx, twin.element, Status::Unavailable, b"");
    }
    true
}

#[inline(always)]
fn shard(twin: &Twin, cx: &mut Cx<'_>) -> bool {
    cx.counters[twin.element].seen += 1;
    let table = &cx.state.tables[2];
    let row = table.find_int(hash::hash_word(cx.slots[1].a) % 4, cx.now);
    cx.out.text.clear();
    if row.is_some() {
        table.bytes_into(row, twin.target, &mut cx.out.text);
    }
    cx.counters[twin.element].diverted += 1;
    cx.out.verdict = Verdict::Redirect;
    cx.out.element = twin.element as u16;
    true
}
