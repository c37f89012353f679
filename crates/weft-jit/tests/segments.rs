//! Promises of a compiled segment beside those of the interpreter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use weft_core::abi::{Counters, Cx, Outcome, Parts, REGIONS, Slot, State, Verdict};
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::prefetch::PrefetchSlots;
use weft_core::table::{ColumnSpec, Table, TableSpec};
use weft_core::{Status, Time, Type};
use weft_ir::backend::{Backend as _, Program};
use weft_ir::program::{
    ChainProgram, Element, Event, Handlers, Input, InputLocation, Meta, Realisation, TableDecl,
};
use weft_ir::text;
use weft_jit::Jit;

const COUNT: &str = "function \"f\" {\nblock0:\n    v0: int = count t0\n    v1: int = int 3\n    \
    v2: bool = icmp.ult v0, v1\n    branch v2, block1, block2\nblock1:\n    forward\nblock2:\n    \
    v3: bytes = bytes \"full\"\n    abort RESOURCE_EXHAUSTED, v3    ; line 9\n}\n";

fn jit() -> Jit {
    Jit::new().expect("this machine is one that code is generated for")
}

fn spec(column: Type) -> TableSpec {
    let key = vec![ColumnSpec::new("k", Type::Uint(64))];
    TableSpec::new("t", key, vec![ColumnSpec::new("c", column)], 100)
}

fn chain(source: &str, n_elements: usize) -> Arc<ChainProgram> {
    let function = text::parse(source).expect("the source is in the text form");
    let element = Element {
        handlers: Handlers {
            open: Some(function.clone()),
            request: Some(function.clone()),
            close: Some(function),
            ..Handlers::default()
        },
        ..Element::default()
    };
    let table = TableDecl {
        owner: String::new(),
        spec: spec(Type::F64),
        realisation: Realisation::PerWorker,
        rows: Vec::new(),
    };
    Arc::new(ChainProgram {
        elements: vec![element; n_elements],
        tables: vec![table],
        ..ChainProgram::default()
    })
}

fn state(column: Type) -> State {
    State::from(Parts {
        tables: vec![Arc::new(Table::new(spec(column), HashKey::from_seed(1)))],
        ..Parts::default()
    })
}

fn run(
    program: &dyn Program,
    state: &State,
    opened: usize,
    trace: Option<fn() -> u64>,
) -> (Outcome, Vec<Counters>) {
    let mut out = Outcome::default();
    let mut counters = vec![Counters::default(); 3];
    let mut cx = Cx { trace, ..Cx::new(Time(1), state, &mut [], &mut out, &mut counters) };
    program.run(&mut cx, opened);
    (out, counters)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "another thread runs the code")]
fn code_outlives_chain_and_backend() {
    // If code pointed into its source, a hot update would free it under running calls.
    let state = state(Type::F64);
    for i in 0..3 {
        state.tables[0].insert_int(i, Time(0));
    }
    let program = jit().compile(&chain(COUNT, 3), Event::Request, &state).expect("the chain compiles");
    let (out, counters) = std::thread::scope(|scope| {
        scope.spawn(|| run(&*program, &state, 3, None)).join().expect("the thread does not panic")
    });
    assert_eq!(out.verdict, Verdict::Abort(Status::ResourceExhausted));
    assert_eq!((out.element, out.line, out.text.as_slice()), (0, 9, &b"full"[..]));
    assert_eq!(counters[0].aborted, 1);
}

#[test]
fn close_starts_at_last_opened_element() {
    // The others would close a call that never reached them.
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NOW: AtomicU64 = AtomicU64::new(0);
    let state = state(Type::F64);
    let program = jit().compile(&chain(COUNT, 3), Event::Close, &state).expect("the chain compiles");
    for opened in 0..=3 {
        let (_, counters) = run(&*program, &state, opened, Some(|| NOW.fetch_add(10, Relaxed)));
        let ran: Vec<bool> = counters.iter().map(|c| c.sampled_ns > 0).collect();
        let wanted: Vec<bool> = (0..3).map(|element| element < opened).collect();
        assert_eq!(ran, wanted, "opened {opened}");
    }
}

#[test]
fn sampled_pass_times_element_once() {
    // If both parts of an element were counted, its mean time would be halved.
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NOW: AtomicU64 = AtomicU64::new(0);
    let state = state(Type::F64);
    let program = jit().compile(&chain(COUNT, 2), Event::OpenRequest, &state).expect("the chain compiles");
    let (_, counters) = run(&*program, &state, 2, Some(|| NOW.fetch_add(10, Relaxed)));
    for counters in &counters[..2] {
        assert_eq!((counters.seen, counters.sampled, counters.sampled_ns), (1, 1, 20));
    }
}

#[test]
fn state_of_other_layout_is_refused() {
    // Code would read a row at offsets of another layout.
    let program =
        jit().compile(&chain(COUNT, 1), Event::Request, &state(Type::F64)).expect("the chain compiles");
    let other = state(Type::Text(Some(9)));
    let ran = catch_unwind(AssertUnwindSafe(|| run(&*program, &other, 1, None)));
    assert!(ran.is_err());
}

#[test]
fn changed_state_is_checked_again() {
    // A cached check would hold for tables that the state no longer has, or for another chain's code.
    let [program, of_text] = [Type::F64, Type::Text(Some(9))].map(|column| {
        jit().compile(&chain(COUNT, 1), Event::Request, &state(column)).expect("the chain compiles")
    });
    let refuses = |program: &dyn Program, state: &State| {
        catch_unwind(AssertUnwindSafe(|| run(program, state, 1, None))).is_err()
    };
    let mut changes = state(Type::F64);
    assert!(!refuses(&*program, &changes) && !refuses(&*program, &changes));
    assert!(refuses(&*of_text, &changes) && !refuses(&*program, &changes));
    let before = changes.clone();
    changes.tables[0] = Arc::new(Table::new(spec(Type::Text(Some(9))), HashKey::from_seed(1)));
    assert!(refuses(&*program, &changes) && refuses(&*program, &changes));
    assert!(!refuses(&*of_text, &changes) && !refuses(&*program, &before));
}

#[test]
fn ill_formed_function_is_refused() {
    // A wrong type would become a wrong address.
    let source =
        "function \"f\" {\nblock0:\n    v0: int = int 1\n    v1: int = len v0    ; line 4\n    forward\n}\n";
    let refused = jit()
        .compile(&chain(source, 1), Event::Request, &state(Type::F64))
        .expect_err("the chain is not valid");
    assert!(refused.reason.contains("not well-formed"), "{refused}");
    assert_eq!(refused.line, 4);
    let none = State::default();
    let refused = jit().compile(&chain(COUNT, 1), Event::Request, &none).expect_err("the table is missing");
    assert!(refused.reason.contains("table"), "{refused}");
}

#[test]
fn prefetch_stops_at_unknown_flag() {
    // The code would jump to a missing block: no chain with such a handler would compile.
    let source = "function \"f\" {\nblock0:\n    v0: int = int 7\n    v1: row = find t0, v0\n    v2: int = now\n    \
        v3: float = int_to_float.signed v2\n    v4: float = float 1000.0\n    v5: float = fdiv v3, v4\n    \
        v6: bool = float_fits.signed v5\n    branch v6, block1, block2\nblock1:\n    forward\nblock2:\n    \
        v7: row = find t0, v2\n    forward\n}\n";
    let state = state(Type::F64);
    let program = jit().prefetching_always().compile(&chain(source, 2), Event::Request, &state);
    let mut notes = PrefetchSlots::default();
    program.expect("the chain compiles").start_prefetch(&state, 1, &mut notes);
    // One find per element: a hash, a row and its address.
    assert!(format!("{notes:?}").contains("each: 6"), "{notes:?}");
}

/// Code would assume that an address has its usual maximum length, and overrun its scratch.
#[test]
fn too_long_address_is_cut() {
    let source = "function \"f\" {\nblock0:\n    v0: bytes = input in0\n    \
        abort RESOURCE_EXHAUSTED, v0    ; line 9\n}\n";
    let mut chain = ChainProgram::clone(&chain(source, 1));
    let peer = InputLocation::Meta(Meta::Peer);
    let input = Input { name: "peer".into(), ty: Type::IpAddr, nullable: false, place: peer, written: false };
    chain.request.inputs.push(input);
    let state = state(Type::F64);
    let program = jit().compile(&Arc::new(chain), Event::Request, &state).expect("the chain compiles");
    for (len, read) in [(4, 4), (16, 16), (17, 16), (100, 16), (101, 0)] {
        let (mut out, mut counters) = (Outcome::default(), vec![Counters::default(); 1]);
        let mut cx = Cx {
            regions: [&[7; 100]; REGIONS],
            slots: &[Slot { a: 0, b: len }],
            present: InputSet::of(0_u8),
            ..Cx::new(Time(1), &state, &mut [], &mut out, &mut counters)
        };
        program.run(&mut cx, 0);
        assert_eq!(out.text, vec![7; read], "of {len} bytes");
    }
}
