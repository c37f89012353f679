//! `weft bench`, what this build costs on this machine, and `weft sim`, experiments in simulated networks.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `elements` | the library's elements, compiled and interpreted, beside hand-written Rust of the same meaning; and
//! | | chains of them as written and as planned |
//! | `twins` | that hand-written Rust |
//! | `functions` | the native functions, beside their libraries called by hand |
//! | `classify` | look-ups in flow tables, by family of rules, structure and number of flows |
//! | `matched` | a compiled handler that matches packets against rules, a part of `classify` |
//! | `markers` | how few bytes of a flow's histograms tell classes of traffic apart |
//! | `packets` | frames from memory through chains, to memory; and the same while rows of their tables change |
//! | `ports` | two namespaces through a node, with every driver |
//! | `queue` | queue programs, beside disciplines written by hand |
//! | `rpc` | a gRPC hop with and without a chain |
//! | `shaping` | how well a link keeps its rate, and how late it lets packets go |
//! | `sim` | the simulator of networks of packets |
//! | `update` | ten changes of a network under load |
//! | `memory` | a node that is idle, and one with idle connections |
//! | `load` | the client and the echo server that `rpc` measures with |
//! | `report` | medians, spreads, the table and the JSON |
//! | `process` | child processes, and what they used |

mod classify;
mod elements;
mod functions;
mod load;
mod markers;
mod matched;
mod memory;
pub mod networks;
mod packets;
mod ports;
mod process;
mod queue;
mod report;
mod rpc;
mod shaping;
mod sim;
mod twins;
mod update;

use clap::{Args, Subcommand, ValueEnum};

mod machine;

use report::Report;
use std::io::Write as _;
use weft_control::fault::Fault;
use weft_lang::diagnostic::Diagnostic;

/// The options of `weft bench`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weft bench elements\n  weft bench rpc\n  weft bench rpc --json --quick\n  \
    weft bench markers --capture web=a.pcap --capture bulk=b.pcap"
)]
pub struct BenchArgs {
    /// The benchmark
    #[arg(value_enum)]
    name: Bench,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Finish within 30 s; less precise
    #[arg(long)]
    quick: bool,
    /// For `markers`: a capture of a traffic class to distinguish from the others, instead of synthetic flows
    #[arg(long = "capture", value_name = "CLASS=FILE")]
    captures: Vec<markers::Labelled>,
    /// For `ports`: workers of the node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// Library elements in memory: compiled, interpreted, and hand-written
    Elements,
    /// Chains of library elements as written and as planned, and how long planning takes
    Plans,
    /// Native functions: nanoseconds per call and byte, beside direct calls of their libraries
    Functions,
    /// Flow tables: lookups among 200 to 10^6 rules, changes, building and memory
    Classify,
    /// Bytes of flow histograms needed to classify traffic, on synthetic or captured flows
    Markers,
    /// Chains of packet elements on frames in memory, on one core
    Packets,
    /// Table changes under load: rate, delay and cost
    Rules,
    /// Instructions per message of each element and per packet of each chain and queue, by valgrind
    Instructions,
    /// A node between two namespaces, with each driver and placement of ports; needs root
    Ports,
    /// Queue programs: nanoseconds and instructions per packet, beside hand-written disciplines
    Queue,
    /// A gRPC hop: direct, through Weft, and through Weft with a chain
    Rpc,
    /// A link between two namespaces: precision of its rate and of departure times; needs root
    Shaping,
    /// The simulator: packets per second on one core
    Sim,
    /// Ten changes of a network while 128 calls are in flight
    Update,
    /// An idle node, and one with 10,000 idle connections
    Memory,
}

/// Commands that the benchmarks start themselves in processes of their own.
#[derive(Clone, Debug, Subcommand)]
pub enum HiddenCommand {
    /// Make gRPC calls in a closed loop and print what came of it as JSON
    #[command(name = "bench-client", hide = true)]
    Client(load::ClientArgs),
    /// Answer gRPC calls with the message that came
    #[command(name = "bench-server", hide = true)]
    Server(load::ServerArgs),
    /// Run messages through one element
    #[command(name = "bench-element", hide = true)]
    Element(elements::ElementArgs),
    /// Run frames through one chain
    #[command(name = "bench-packets", hide = true)]
    Packets(packets::PacketsArgs),
    /// Run packets through one queue
    #[command(name = "bench-queue", hide = true)]
    Queue(queue::QueueArgs),
}

/// Runs a benchmark. Returns its result as text, and an error if a part was not measured.
///
/// # Errors
/// A process could not be started, or gave wrong answers.
pub fn run(args: &BenchArgs) -> Result<(String, Result<(), Fault>), Fault> {
    if !args.captures.is_empty() {
        return match args.name {
            Bench::Markers => Ok(printed(&markers::run_on(&args.captures, args.quick)?, args.json)),
            _ => Err(Fault::usage("--capture is for `weft bench markers`")),
        };
    }
    if args.workers != 1 && !matches!(args.name, Bench::Ports) {
        return Err(Fault::usage("--workers is for `weft bench ports`"));
    }
    let report = match args.name {
        Bench::Elements => Ok(elements::run(args.quick)),
        Bench::Plans => Ok(elements::plans::run(args.quick)),
        Bench::Functions => Ok(functions::run(args.quick)),
        Bench::Classify => Ok(classify::run(args.quick)),
        Bench::Markers => Ok(markers::run(args.quick)),
        Bench::Packets => Ok(packets::run(args.quick)),
        Bench::Rules => Ok(packets::changes::run(args.quick)),
        Bench::Instructions => instructions(),
        Bench::Ports => ports::run(args.quick, args.workers),
        Bench::Queue => Ok(queue::run(args.quick)),
        Bench::Rpc => rpc::run(args.quick),
        Bench::Shaping => shaping::run(args.quick),
        Bench::Sim => Ok(sim::run(args.quick)),
        Bench::Update => update::run(args.quick),
        Bench::Memory => memory::run(args.quick),
    };
    Ok(printed(&report.map_err(Fault::environment)?, args.json))
}

/// The counts that `cargo xtask bench-compare` compares: the machine's load hardly changes them.
fn instructions() -> Result<Report, String> {
    let rows = [elements::count()?, packets::count_all()?, queue::count_all()?].concat();
    let notes = vec![
        "compiled code with its part of the engine, source and sink; see the benchmarks of each".to_owned(),
    ];
    Ok(Report { bench: "instructions", rows, notes, failures: Vec::new() })
}

/// The reason of a refusal, in a line.
fn refused(diagnostics: &[Diagnostic]) -> String {
    let first = diagnostics.iter().find(|diagnostic| diagnostic.is_error()).or(diagnostics.first());
    first.map_or("no reason was given", |diagnostic| &diagnostic.message).to_owned()
}

/// Runs a command that a benchmark has started as a separate process; returns its output.
///
/// # Errors
/// An error of the system, such as an address in use or refused; a server that violates the protocol.
pub fn run_hidden(command: &HiddenCommand) -> Result<String, Fault> {
    let fault = |error: std::io::Error| Fault::environment(error);
    match command {
        HiddenCommand::Client(args) => {
            let result = load::run_client(args).map_err(fault)?;
            Ok(format!("{result}\n"))
        }
        HiddenCommand::Server(args) => load::run_server(args).map_err(fault).map(|()| String::new()),
        HiddenCommand::Element(args) => {
            elements::run_one(args).map_err(Fault::environment).map(|()| String::new())
        }
        HiddenCommand::Queue(args) => {
            queue::run_one(args).map_err(Fault::environment).map(|()| String::new())
        }
        HiddenCommand::Packets(args) => {
            let ns = packets::run_one(args).map_err(Fault::environment)?;
            Ok(format!("{ns:.1}\n"))
        }
    }
}

/// A report as text, and an error if a measurement failed.
fn printed(report: &Report, as_json: bool) -> (String, Result<(), Fault>) {
    let text = if as_json { format!("{:#}\n", report.to_json()) } else { report.to_table() };
    let outcome = match &report.failures[..] {
        [] => Ok(()),
        failures => Err(Fault::Input(format!("not measured: {}", failures.join("; ")))),
    };
    (text, outcome)
}

/// Prints the progress of a benchmark, when that does not disturb the figures.
fn progress(text: &str) {
    // A closed pipe does not end a benchmark.
    let _ = writeln!(std::io::stderr(), "# {text}");
}
