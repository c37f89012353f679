//! Modules in other tools: run by Verilator, synthesised by Yosys.
//!
//! Both must be installed (`apt-get install verilator yosys`), so these tests are ignored by default; `cargo xtask
//! verilog` runs them.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "these tests run other programs")]
#![allow(clippy::print_stdout, reason = "what modules cost is for people to read")]

mod bench;
mod programs;

use bench::{Area, Bench, Events, area};
use weft_core::rng::Rng;
use weft_ir::queue::{Handlers, Level, PacketOrder, Partitions, QueueProgram, generate};
use weft_verilog::{Module, PortRole, Widths, compile, compile_tree};

/// Number of events per program.
const EVENTS: usize = 1_000_000;
/// The LUTs of the paper's CoDel, without a multiplier.
const PAPER_LUTS: u32 = 1256;

fn module(program: &QueueProgram, widths: &Widths) -> Module {
    compile(program, widths).unwrap_or_else(|refused| panic!("{}, line {}", refused.reason, refused.line))
}

#[test]
#[ignore = "needs verilator"]
fn codel_and_red_gates_match_interpreter() {
    // A queue on a network card would drop other packets than one in a host.
    for program in [programs::codel(), programs::red()] {
        for time_bits in [63, 48] {
            let module = module(&program, &Widths { time_bits, ..Widths::default() });
            let bench = Bench::build(&[&module]);
            let told = bench.run(0, &program, &module, Events::Traffic, EVENTS);
            assert!(
                told.verdicts[2] > EVENTS as u64 / 1000,
                "{}: too few drops to tell: {told:?}",
                program.name
            );
            println!("{}, time of {time_bits} bits: {EVENTS} events alike, {told:?}", program.name);
        }
    }
}

#[test]
#[ignore = "needs verilator"]
fn library_codel_gates_match_interpreter() {
    // A chip would need a queue of its own, which drops other packets than one in a host.
    let program = programs::library_codel();
    for time_bits in [63, 48] {
        let module = module(&program, &Widths { time_bits, ..Widths::default() });
        let told = Bench::build(&[&module]).run(0, &program, &module, Events::Traffic, EVENTS);
        assert!(told.verdicts[1..3].iter().all(|n| *n > 500), "too few marks or drops to tell: {told:?}");
        println!("codel of the library, time of {time_bits} bits: {EVENTS} events alike, {told:?}");
    }
}

#[test]
#[ignore = "needs verilator"]
fn root_gates_match_interpreter() {
    // A queue after very many drops in a row would continue at another rate than in a host.
    let program = programs::roots();
    let module = module(&program, &Widths::default());
    let told = Bench::build(&[&module]).run(0, &program, &module, Events::Edges, EVENTS);
    println!("roots of 32 bits: {EVENTS} events alike, {told:?}");
}

#[test]
#[ignore = "needs verilator"]
fn generated_gates_match_interpreter() {
    // An operation that CoDel and RED do not use would be wrong.
    let mut made = Vec::new();
    for seed in 0..12 {
        for (nth, program) in alone(seed).into_iter().enumerate() {
            let program = QueueProgram { name: format!("seed{seed}_{nth}"), ..program };
            match compile(&program, &Widths::default()) {
                Ok(module) if !module.moments.is_empty() => made.push((program, module)),
                _ => {}
            }
        }
    }
    let modules: Vec<&Module> = made.iter().map(|(_, module)| module).collect();
    let bench = Bench::build(&modules);
    let each = EVENTS / made.len() + 1;
    for (nth, (program, module)) in made.iter().enumerate() {
        bench.run(nth, program, module, Events::Edges, each);
    }
    println!("{} programs, {each} events each", made.len());
}

/// A generated program for each level, with all its handlers on one partition.
fn alone(seed: u64) -> Vec<QueueProgram> {
    let program = generate::program(&mut Rng::from_seed(seed));
    let one = |level: &Level, handlers: Handlers| {
        let mut level = Level { handlers, partitions: Partitions::One, ..level.clone() };
        level.order.by_least_packet = false;
        level.packets = PacketOrder::Arrival;
        QueueProgram { levels: vec![level], ..program.clone() }
    };
    program
        .levels
        .iter()
        .flat_map(|level| {
            // Two at once, so that several handlers write a register; floats that fit in no table spoil few programs.
            let Handlers { key, packet_rank, enqueue, activate, select, dequeue, empty, every } =
                level.handlers.clone();
            let first = Handlers { key, enqueue, empty, ..Handlers::default() };
            let second = Handlers { packet_rank, activate, dequeue, ..Handlers::default() };
            let third = Handlers { select, every, ..Handlers::default() };
            [first, second, third].map(|handlers| one(level, handlers))
        })
        .collect()
}

#[test]
#[ignore = "needs verilator"]
fn hand_written_gates_match() {
    // The price of flexibility would be that of something else.
    for (program, text) in [(programs::codel(), codel_by_hand()), (programs::red(), RED_BY_HAND.to_owned())] {
        let made = module(&program, &Widths::default());
        let by_hand =
            Module { name: format!("{}_by_hand", program.name.trim_end_matches("_gates")), text, ..made };
        Bench::build(&[&by_hand]).run(0, &program, &by_hand, Events::Traffic, EVENTS);
    }
}

#[test]
#[ignore = "needs verilator"]
fn tree_finds_first_and_last() {
    // Another flow than the most urgent would be served, or the wrong one would lose packets.
    for program in [programs::srpt(), programs::pfabric()] {
        for entries in [16, 64] {
            let made = tree(&program, entries);
            Bench::build(&[&made]).compare(0, &made, EVENTS, Entries::new(entries, &made).records());
            let by_hand = tree_by_hand(&made, entries);
            Bench::build(&[&by_hand]).compare(0, &by_hand, EVENTS, Entries::new(entries, &made).records());
        }
    }
}

/// The entries of a tree with ranks of 16 bits.
struct Entries {
    ranks: Vec<Option<u64>>,
    has_last: bool,
    rng: Rng,
}

impl Entries {
    fn new(entries: u32, module: &Module) -> Self {
        let has_last = module.ports.iter().any(|port| port.role == PortRole::Last);
        Self { ranks: vec![None; entries as usize], has_last, rng: Rng::from_seed(3) }
    }

    /// Insertions and removals, with the first and the last entry before each; of equal ranks the lower index.
    fn records(mut self) -> impl FnMut() -> Vec<u64> {
        move || {
            let (push, pop) = (self.rng.percent(55), self.rng.percent(50));
            let [push_at, pop_at] = [(); 2].map(|()| self.rng.below(self.ranks.len()));
            let few = self.rng.percent(50);
            let rank = if few { self.rng.below(4) as u64 } else { self.rng.bits() & 0xffff };
            let there = || self.ranks.iter().enumerate().filter_map(|(at, rank)| Some((*rank.as_ref()?, at)));
            let first = there().min().map(|(_, at)| at);
            let last = there().max_by_key(|(rank, at)| (*rank, usize::MAX - at)).map(|(_, at)| at);
            let mut record = vec![u64::from(push), push_at as u64, u64::from(pop), pop_at as u64, rank];
            record.extend([u64::from(first.is_some()), 1]);
            record.extend([first.unwrap_or(0) as u64, u64::from(first.is_some())]);
            if self.has_last {
                record.extend([last.unwrap_or(0) as u64, u64::from(last.is_some())]);
            }
            if pop {
                self.ranks[pop_at] = None;
            }
            if push {
                self.ranks[push_at] = Some(rank);
            }
            record
        }
    }
}

const NARROW: Widths = Widths { time_bits: 63, len_bits: 16, rate_bits: 40, remaining_bits: 16 };

fn tree(program: &QueueProgram, entries: u32) -> Module {
    compile_tree(program, &NARROW, entries).unwrap_or_else(|refused| panic!("{}", refused.reason))
}

fn tree_by_hand(made: &Module, entries: u32) -> Module {
    let has_last = made.ports.iter().any(|port| port.role == PortRole::Last);
    let ports: Vec<&str> = made.ports.iter().map(|port| port.name.as_str()).collect();
    let lines = made.ports.iter().map(|port| {
        let direction = if port.role.is_input() { "input" } else { "output" };
        format!("{direction} wire [{}:0] {}", port.bits - 1, port.name)
    });
    let lines: Vec<String> = lines.collect();
    let joined = ports.iter().map(|name| format!(".{name}({name})")).collect::<Vec<_>>().join(", ");
    let joined = if has_last { joined } else { joined + ", .last(unused)" };
    let text = format!(
        "{TREE_BY_HAND}\nmodule {0}_by_hand (input wire clk, input wire reset, {1});\n  wire [{2}-1:0] unused;\n  \
         tree_by_hand #(.N({entries}), \
         .K({2}), .LAST({3})) tree (.clk(clk), .reset(reset), {joined});\nendmodule\n",
        made.name,
        lines.join(", "),
        entries.ilog2(),
        u8::from(has_last),
    );
    Module { name: format!("{}_by_hand", made.name), text, ..made.clone() }
}

const CODEL_BY_HAND: &str = include_str!("by_hand/codel.v");
const RED_BY_HAND: &str = include_str!("by_hand/red.v");
const TREE_BY_HAND: &str = include_str!("by_hand/tree.v");

/// With the generated table of the control law.
fn codel_by_hand() -> String {
    let mut text = String::from(
        "module codel_step (input wire [7:0] n, output reg [62:0] step);\n  always @*\n    case (n)\n",
    );
    for n in 1..256 {
        text +=
            &format!("      8'd{n}: step = 63'd{};\n", (100_000_000.0 * (1.0 / f64::from(n).sqrt())) as i64);
    }
    text += &format!("      default: step = 63'd{};\n    endcase\nendmodule\n", i64::MAX);
    text + CODEL_BY_HAND
}

#[test]
#[ignore = "needs yosys"]
fn area_is_close_to_hand_written() {
    // A much larger area would be a price for programmability that the paper did not pay.
    println!("| module | LUT | FF | CARRY4 | DSP | by hand: LUT | FF | CARRY4 | DSP | LUT, ratio |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let codel = programs::codel();
    for time_bits in [63, 48, 32] {
        let made = module(&codel, &Widths { time_bits, ..Widths::default() });
        let by_hand = Module { name: "codel_by_hand".into(), text: codel_by_hand(), ..made.clone() };
        let by_hand = (time_bits == 63).then_some(&by_hand);
        let luts = row(&format!("CoDel, time of {time_bits} bits"), &made, by_hand, WITHOUT_DSP);
        assert!(luts <= PAPER_LUTS, "{luts}");
    }
    for time_bits in [63, 48, 32] {
        let made = module(&programs::library_codel(), &Widths { time_bits, ..Widths::default() });
        let luts = row(&format!("CoDel of the library, time of {time_bits} bits"), &made, None, WITHOUT_DSP);
        assert!(luts <= PAPER_LUTS, "{luts}");
    }
    let made = module(&programs::red(), &Widths::default());
    let by_hand = Module { name: "red_by_hand".into(), text: RED_BY_HAND.into(), ..made.clone() };
    for time_bits in [63, 48, 32] {
        let narrow = module(&programs::red(), &Widths { time_bits, ..Widths::default() });
        let by_hand = (time_bits == 63).then_some(&by_hand);
        row(&format!("RED, time of {time_bits} bits"), &narrow, by_hand, WITHOUT_DSP);
    }
    row("RED, multipliers allowed", &made, Some(&by_hand), &["-nobram"]);
    for entries in [16, 64] {
        for program in [programs::srpt(), programs::pfabric()] {
            let made = tree(&program, entries);
            let what = format!("{}, {entries} ranks of 16 bits", program.name);
            row(&what, &made, Some(&tree_by_hand(&made, entries)), WITHOUT_DSP);
        }
    }
}

const WITHOUT_DSP: &[&str] = &["-nodsp", "-nobram"];

/// Prints a row, and returns the LUTs of the generated module.
fn row(what: &str, made: &Module, by_hand: Option<&Module>, options: &[&str]) -> u32 {
    let mine = area(&made.name, &made.text, options);
    let cells =
        |area: Area| format!("{} | {} | {} | {}", area.luts, area.flip_flops, area.carries, area.dsps);
    let beside = by_hand.map(|module| area(&module.name, &module.text, options));
    let ratio = beside.map(|theirs| format!("{:.2}", f64::from(mine.luts) / f64::from(theirs.luts)));
    let beside = beside.map_or_else(|| "| | |".into(), cells);
    println!("| {what} | {} | {beside} | {} |", cells(mine), ratio.unwrap_or_default());
    mine.luts
}

#[test]
fn examples_compile_to_gates() {
    // The first thing that a user tries would be refused.
    for program in [programs::codel(), programs::red()] {
        let made = module(&program, &Widths::default());
        assert!(made.text.contains(&format!("module {} (", made.name)));
    }
    for program in [programs::srpt(), programs::pfabric()] {
        assert_eq!(tree(&program, 16).ports.len(), if program.name == "srpt" { 7 } else { 8 });
    }
    // The library's computation with a counter of 32 bits is too large for a table, and takes several clocks.
    let made = module(&programs::library_codel(), &Widths::default());
    assert!(made.ports.iter().any(|port| port.role == PortRole::Ready && port.name == "ready"));
    // Gates do not support a stored float.
    let refused = compile(&programs::queue("library/queues/blue.weft", "blue"), &Widths::default());
    let refused = refused.expect_err("floats that are kept are not for gates");
    assert!(
        refused.reason.contains("gates do not compute with floats") && refused.line > 0,
        "{}",
        refused.reason
    );
    let refused = compile(&programs::queue("library/queues/fifo.weft", "fifo"), &Widths::default());
    assert!(refused.is_err_and(|refused| refused.reason.contains("nothing for gates to decide")));
}
