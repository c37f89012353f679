//! Measures the cost of the packet engine per packet, around the compiled code of a chain.
//!
//! Batches of 64 go from a port to a port, and their buffers are reused. For each chain its code also runs alone, on
//! the same frames with everything else prepared; the difference is the engine. Run it with `cargo run --release -p
//! weft-engine --example packet_cost`. Times are the minimum of many rounds in which both alternate, so that other load
//! on the machine affects both.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use weft_core::Time;
use weft_core::abi::{Counters, Cx, Outcome, Parts, REGION_BODY, REGIONS, Slot, State};
use weft_core::frame::build::ethernet;
use weft_core::frame::{BATCH_MAX, Frame, Pool, PoolConfig};
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::ip::DONT_FRAGMENT;
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain, PacketPlan};
use weft_engine::packet::{PacketConfig, PacketEngine};
use weft_engine::state::StateStore;
use weft_ir::backend::{Backend as _, Program};
use weft_ir::program::{ChainProgram, Event};
use weft_ir::text::parse_program;
use weft_jit::Jit;

const FRAMES: &str = include_str!("../../../tests/ir/frames.ir");
const ROUNDS: usize = 2000;
const BATCHES: usize = 32;
/// Bytes of a packet; its beginning is Ethernet, IPv4 and UDP.
const PACKET_BYTES: usize = 64;

const LOOK: &str = "block0:\n v0: int = input in7\n v1: int = int 99\n v2: bool = icmp.eq v0, v1\n \
                    branch v2, block1, block2\nblock1:\n drop ; line 1\nblock2:\n forward";
const HOP: &str = "block0:\n v0: int = input in2\n v1: int = int 1\n v2: bool = icmp.ule v0, v1\n \
                   branch v2, block1, block2\nblock1:\n drop ; line 7\nblock2:\n v3: int = sub v0, v1\n \
                   set_input in2, v3\n forward";
const DROP: &str = "block0:\n drop ; line 1";

fn main() {
    let looks = |n| vec![LOOK; n];
    let chains: [(&str, bool, Vec<&str>); 7] = [
        ("no parser, no element", false, vec![]),
        ("no element", true, vec![]),
        ("1 element that looks", true, looks(1)),
        ("4 elements that look", true, looks(4)),
        ("7 elements that look", true, looks(7)),
        ("1 element that sets the TTL", true, vec![HOP]),
        ("1 element that drops", true, vec![DROP]),
    ];
    println!("{:32}{:>12}{:>12}{:>12}", "chain", "all ns", "code ns", "engine ns");
    for (name, parses, elements) in chains {
        let program = program(parses, &elements);
        let mut whole = Whole::new(program.clone());
        let mut code = Code::new(&Arc::new(program), &whole.template);
        let (mut all, mut alone) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            all = all.min(whole.round());
            alone = alone.min(code.round());
        }
        println!("{name:32}{all:12.1}{alone:12.1}{:12.1}", all - alone);
    }
}

fn program(parses: bool, elements: &[&str]) -> ChainProgram {
    let element = |(n, body): (usize, &&str)| {
        format!("element \"e{n}\" \"e{n}\"\nhandler request function \"e{n}\" {{\n{body}\n}}\n")
    };
    let text: String = elements.iter().enumerate().map(element).collect();
    let mut program = parse_program(&format!("{FRAMES}{text}")).expect("it is in the form");
    if !parses {
        program.frames = None;
    }
    program
}

/// The engine with the chain.
struct Whole {
    engine: PacketEngine,
    pool: Pool,
    frames: Vec<Frame>,
    template: Vec<u8>,
    drops: bool,
}

impl Whole {
    fn new(program: ChainProgram) -> Self {
        let mut staged = StateStore::new(1, HashKey::from_seed(1)).stage();
        let on = ChainOn { program, condition: None, ports: vec![0], to: Some(Outlet::Port(1)) };
        let jit = Jit::new().expect("this machine is one that code is generated for");
        let chain = PacketChain::build(1, on, &mut staged, &jit).expect("it is well-formed");
        let ports = ["in", "out"].map(String::from).into();
        let plan = PacketPlan { version: 1, ports, chains: vec![Arc::new(chain)], ..PacketPlan::default() };
        let engine = PacketEngine::new(Time(1), PacketConfig::default(), Arc::new(plan));
        let mut pool = Pool::new(PoolConfig { small: 256, large: 0 });
        let template = packet();
        let frames: Vec<Frame> =
            (0..BATCH_MAX).map(|_| pool.take_filled(&template).expect("a buffer")).collect();
        let mut whole = Self { engine, pool, frames, template, drops: false };
        whole.engine.handle_batch(Time(1), 0, &mut whole.frames, &mut whole.pool, None);
        whole.drops = whole.engine.poll_output(&mut whole.frames).is_none();
        whole
    }

    /// Nanoseconds a packet.
    fn round(&mut self) -> f64 {
        let mut took = 0;
        for _ in 0..BATCHES {
            if self.drops {
                self.frames.extend((0..BATCH_MAX).filter_map(|_| self.pool.take_filled(&self.template)));
            }
            for frame in &self.frames {
                // The TTL of a packet that goes round would run out.
                self.pool.bytes_mut(frame)[22..26].copy_from_slice(&self.template[22..26]);
            }
            let begun = Instant::now();
            self.engine.handle_batch(Time(1), 0, &mut self.frames, &mut self.pool, None);
            self.engine.poll_output(&mut self.frames);
            took += begun.elapsed().as_nanos();
        }
        took as f64 / (BATCHES * BATCH_MAX) as f64
    }
}

/// The compiled code alone.
struct Code {
    parse: Option<Box<dyn Program>>,
    request: Option<Box<dyn Program>>,
    inputs: usize,
    template: Vec<u8>,
    counters: Vec<Counters>,
    outcome: Outcome,
    state: State,
    slots: Vec<Slot>,
}

impl Code {
    fn new(program: &Arc<ChainProgram>, template: &[u8]) -> Self {
        let jit = Jit::new().expect("this machine is one that code is generated for");
        let table = program
            .tables
            .iter()
            .map(|t| Arc::new(weft_core::table::Table::new(t.spec.clone(), HashKey::from_seed(1))));
        let state = State::from(Parts { tables: table.collect(), ..Parts::default() });
        let has = |event| !program.parts(event).is_empty();
        let compile = |event| has(event).then(|| jit.compile(program, event, &state).expect("well-formed"));
        let (parse, request) = (compile(Event::Parse), compile(Event::Request));
        Self {
            parse,
            request,
            inputs: program.request.inputs.len(),
            template: template.to_vec(),
            counters: vec![Counters::default(); program.elements.len() + 1],
            outcome: Outcome::default(),
            slots: vec![Slot::default(); program.request.inputs.len()],
            state,
        }
    }

    /// Nanoseconds a packet.
    fn round(&mut self) -> f64 {
        let begun = Instant::now();
        let mut cx = Cx {
            given: &mut self.slots,
            regions: [&self.template; REGIONS],
            ..Cx::new(Time(1), &self.state, &mut [], &mut self.outcome, &mut self.counters)
        };
        for _ in 0..BATCHES * BATCH_MAX {
            cx.present = InputSet::EMPTY;
            cx.regions[REGION_BODY] = black_box(&self.template);
            if let Some(parse) = &self.parse {
                parse.run(&mut cx, usize::MAX);
            }
        }
        let present = cx.present;
        let slots = self.slots[..self.inputs].to_vec();
        let mut frame = self.template.clone();
        let mut cx = Cx {
            slots: &slots,
            present,
            regions: [&self.template; REGIONS],
            ..Cx::new(Time(1), &self.state, &mut [], &mut self.outcome, &mut self.counters)
        };
        for _ in 0..BATCHES * BATCH_MAX {
            cx.out.edits.clear();
            if let Some(request) = &self.request {
                request.run_on(&mut cx, black_box(&mut frame));
            }
        }
        begun.elapsed().as_nanos() as f64 / (BATCHES * BATCH_MAX) as f64
    }
}

fn packet() -> Vec<u8> {
    let ip = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(1, DONT_FRAGMENT);
    ip.udp(5000, 53).checksum(0).payload([7; PACKET_BYTES - 42]).build()
}
