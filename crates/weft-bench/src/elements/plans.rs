//! Chains of library elements in written order and in planned order, and the time of planning.

use crate::machine::Machine;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;
use weft_control::check::Accepted;
use weft_core::hash::HashKey;

use weft_ir::program::ChainProgram;
use weft_jit::Jit;
use weft_lang::hir::Network;
use weft_lang::source::SourceMap;

use super::cases::{self, permissions, replicas};
use super::rig::{Lane, Messages, Programs, USERS};
use super::{compiled, jit};
use crate::report::{Report, Row};
use crate::{progress, refused};
use weft_control::compile::Compiler;
use weft_control::explain;
use weft_control::ordering::{PlannedChain, ordered};
use weft_io::parallel_backend::ParallelBackend;

/// Rounds with timing. The planner uses the least of their figures, because other processes use the machine as well.
const TRACED: usize = 12;
/// Compilations of a network, and explanations of a chain.
const REPEATED: usize = 20;
/// Elements of the compiled network, in chains of ten.
const ELEMENTS: usize = 100;
/// Elements of the explained chain.
const EXPLAINED: usize = 16;

/// A chain to plan.
struct Case {
    name: &'static str,
    files: &'static [&'static str],
    text: &'static str,
    stages: &'static str,
    rows: fn() -> String,
}

const CASES: &[Case] = &[
    Case {
        name: "fault -> compress -> acl, half denied",
        files: &[
            "library/elements/fault.weft",
            "library/elements/compress.weft",
            "library/elements/acl.weft",
        ],
        text: "",
        stages: "fault (abort_percent = 1) -> compress (by = lz4, data := body) -> acl",
        rows: half_denied,
    },
    Case {
        name: "logging -> acl -> fault",
        files: &["library/elements/logging.weft", "library/elements/acl.weft", "library/elements/fault.weft"],
        text: "",
        stages: "logging -> acl -> fault (abort_percent = 1)",
        rows: permissions,
    },
    Case {
        name: "mutation -> shard_lb -> acl",
        files: &[
            "library/elements/mutation.weft",
            "library/elements/shard_lb.weft",
            "library/elements/acl.weft",
        ],
        text: "",
        stages: "mutation (value = 'blue', prefix = 'eu-', target := tenant) -> shard_lb (shards = 4) -> acl",
        rows: denied_and_replicas,
    },
    Case {
        name: "mutation -> acl",
        files: &["library/elements/mutation.weft", "library/elements/acl.weft"],
        text: "",
        stages: "mutation (value = 'blue', prefix = 'eu-', target := tenant) -> acl",
        rows: permissions,
    },
    Case {
        name: "metrics -> token_bucket -> mutation -> acl",
        files: &[
            "library/elements/metrics.weft",
            "library/elements/token_bucket.weft",
            "library/elements/mutation.weft",
            "library/elements/acl.weft",
        ],
        text: "",
        stages: "metrics -> token_bucket (rate = 1000000, burst = 1000000) \
                 -> mutation (value = 'blue', prefix = 'eu-', target := tenant) -> acl",
        rows: half_denied,
    },
    Case {
        name: "shard_lb -> mutation, nothing to gain",
        files: &["library/elements/mutation.weft", "library/elements/shard_lb.weft"],
        text: "",
        stages: "shard_lb (shards = 4) -> mutation (value = 'blue', target := tenant)",
        rows: replicas,
    },
];

/// Half of the users may not write.
fn half_denied() -> String {
    let permission = |user| format!("('u{user}', '{}')", if user % 2 == 1 { 'R' } else { 'W' });
    let rows: Vec<String> = (0..USERS).map(permission).collect();
    format!("INSERT INTO bench.acl.ac_tab (user, permission) VALUES {};\n", rows.join(", "))
}

fn denied_and_replicas() -> String {
    half_denied() + &replicas()
}

/// Measures every case, and then the time of planning.
pub(crate) fn run(quick: bool) -> Report {
    let rounds = if quick { 60 } else { 300 };
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let mut notes = vec![
        "ns/message: all passes of one unary call; planned by what the elements took and ended when the chain ran as \
         written"
            .to_owned(),
    ];
    for case in CASES {
        progress(case.name);
        match of_case(case, rounds) {
            Ok((figures, order)) => {
                rows.extend(figures);
                notes.push(format!("{}: {order}", case.name));
            }
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    match times() {
        Ok(figures) => rows.extend(figures),
        Err(why) => failures.push(why),
    }
    Report { bench: "plans", rows, notes, failures }
}

/// Measures a chain in its written order and in its planned order, and describes the plan in a line.
fn of_case(case: &Case, rounds: usize) -> Result<(Vec<Row>, String), String> {
    let (accepted, _) = cases::network(case.files, case.text, case.stages, &(case.rows)())?;
    let (network, written) = (accepted.network, accepted.lowered.chains[0].program.clone());
    let messages = Messages::new(&written, String::into_bytes, 1, 0);
    let mut lane = compiled(&messages, &written, &jit()?)?;
    let plan = measured(&network, &written, &mut lane, &messages);
    let mut planned = written.clone();
    planned.reorder(&plan.plan.order);
    let mut other = compiled(&Messages::new(&planned, String::into_bytes, 1, 0), &planned, &jit()?)?;
    let (mut written_ns, mut planned_ns) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (first, second) = if round % 2 == 0 {
            let first = lane.round(&messages);
            (first, other.round(&messages))
        } else {
            let second = other.round(&messages);
            (lane.round(&messages), second)
        };
        // One round of both fills tables and caches.
        if round > 0 {
            written_ns.push(first);
            planned_ns.push(second);
        }
    }
    let order: Vec<&str> = planned.elements.iter().map(|element| &*element.name).collect();
    let rows = vec![
        Row::new(case.name, "written", "ns/message", &written_ns),
        Row::new(case.name, "planned", "ns/message", &planned_ns).against(
            "written",
            &planned_ns,
            &written_ns,
        ),
    ];
    Ok((rows, order.join(" -> ")))
}

/// The plan from the measured cost and ends of the elements in written order.
fn measured(
    network: &Network,
    program: &ChainProgram,
    lane: &mut Lane<Programs>,
    messages: &Messages,
) -> PlannedChain {
    lane.round(messages);
    let mut counted = lane.traced(messages);
    for _ in 1..TRACED {
        let again = lane.traced(messages);
        for (best, counters) in
            counted.iter_mut().zip(again).filter(|(best, new)| new.sampled_ns < best.sampled_ns)
        {
            *best = counters;
        }
    }
    let names = program.elements.iter().map(|element| element.name.clone());
    ordered(network, 0, program, &names.zip(counted).collect::<Vec<_>>())
}

/// The time to compile a network, and to explain a chain.
fn times() -> Result<Vec<Row>, String> {
    let files =
        ["library/elements/acl.weft", "library/elements/fault.weft", "library/elements/mutation.weft"];
    progress("compiling 100 elements");
    let text = many(ELEMENTS / 10, 10);
    let (accepted, _) = cases::whole(&files, &text)?;
    let backend = ParallelBackend::new(Arc::new(Jit::new().map_err(|error| error.to_string())?));
    let compiler = Compiler::new(Box::new(backend), Box::new(Machine), 1, HashKey::from_seed(1));
    let compile = || {
        let (lowered, began) = (accepted.lowered.clone(), Instant::now());
        let compiled = compiler.compile(&accepted.network, lowered, &[]);
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        compiled.map(|_| took_ms).map_err(|diagnostics| refused(&diagnostics))
    };
    compile()?;
    let compile_ms = (0..REPEATED).map(|_| compile()).collect::<Result<Vec<f64>, _>>()?;
    let plan_ms: Vec<f64> = (0..REPEATED).map(|_| plan_ms(&accepted)).collect();
    progress("explaining 16 elements");
    let (accepted, sources) = cases::whole(&files, &many(1, EXPLAINED))?;
    let explain_ms =
        (0..REPEATED).map(|_| explain_ms(&accepted.network, &sources)).collect::<Result<Vec<f64>, _>>()?;
    Ok(vec![
        Row::new("100 elements in 10 chains", "compile", "ms", &compile_ms),
        Row::new("100 elements in 10 chains", "analyse and plan", "ms", &plan_ms),
        Row::new("a chain of 16", "explain", "ms", &explain_ms),
    ])
}

/// The time to analyse and plan all chains, which compiling includes.
fn plan_ms(Accepted { network, lowered }: &Accepted) -> f64 {
    let began = Instant::now();
    for (at, chain) in lowered.chains.iter().enumerate() {
        std::hint::black_box(ordered(network, at, &chain.program, &[]));
    }
    began.elapsed().as_secs_f64() * 1e3
}

fn explain_ms(network: &Network, sources: &SourceMap) -> Result<f64, String> {
    let began = Instant::now();
    let text = explain::text_of(network, 0, sources).map_err(|diagnostics| refused(&diagnostics))?;
    std::hint::black_box(text);
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// A program with this many chains, each on its own edge, of this many library elements.
fn many(chains: usize, elements: usize) -> String {
    let mut text = String::new();
    for chain in 0..chains {
        let stage = |at: usize| match at % 3 {
            0 => format!("acl AS acl_{at}"),
            1 => format!("fault (abort_percent = 1, delay_percent = 2, delay = '3 ms') AS fault_{at}"),
            _ => format!("mutation (value = 'v{at}', prefix = 'p', target := tenant) AS mutation_{at}"),
        };
        let stages: Vec<String> = (0..elements).map(stage).collect();
        let _ = writeln!(
            text,
            "CREATE LISTENER front_{chain} ON tcp '127.0.0.1:{}';
CREATE CHAIN c_{chain} ON front_{chain} -> back METHOD 'weft.bench.Elements/*' AS {}; END;",
            10 + chain,
            stages.join(" -> ")
        );
    }
    text
}
