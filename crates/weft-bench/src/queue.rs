//! Queue programs: nanoseconds per packet, in and out, compiled and interpreted, compared with handwritten disciplines.
//!
//! A queue is filled with the row's number of packets and flows. Then each step enqueues one packet and dequeues one,
//! so the backlog stays. Programs and their twins run in the same rounds.

mod handlers;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use weft_core::rng::Rng;
use weft_engine::queue::{Packet, Queue};
use weft_ir::queue::run::Interpreted;
use weft_ir::queue::{QueueCode, QueueProgram};
use weft_jit::Jit;
use weft_sim::net::twins::{Codel, CodelSpec, Drr, Fifo, FqCodel, Pfabric, Pifo};
use weft_sim::net::{Discipline, Item};

use self::handlers::HandwrittenHandlers;
use super::process::{allocations_each, can_count, instructions_each};
use super::progress;
use super::report::{Report, Row};
use crate::machine::accepted;

/// Descriptions of packets that a run cycles through; a power of two.
const PACKETS: usize = 1 << 14;
/// The time between two packets, with a backlog short enough that no controller reacts.
const STEP_NS: u64 = 1_000;

/// Steps per round when counting instructions, and the rounds of the two runs whose difference counts them.
const COUNTED_STEPS: usize = 2_000;
const COUNTED: [usize; 2] = [5, 10];

/// The options of `weft bench-queue`.
#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    /// The queue, by its name in figures
    name: String,
    /// The discipline by hand in its place
    #[arg(long)]
    handwritten: bool,
    /// How many rounds of 2,000 packets are run
    #[arg(long)]
    rounds: usize,
}

/// Makes a handwritten discipline.
type Twin = fn(&Case, &[Packet]) -> Box<dyn Steps>;

/// A measured queue.
struct Case {
    name: String,
    /// The queue, in the form of a link's declaration.
    queue: String,
    /// Waiting packets.
    backlog: u64,
    flows: u32,
    twin: Option<(&'static str, Twin)>,
    /// Its handwritten handlers, for the engine's queue.
    handlers: Option<HandwrittenHandlers>,
    interpreted: bool,
    /// The backlog fills and drains as a whole, so that packets meet it at all sizes. Otherwise it stays; with ranks,
    /// it soon holds only the worst ones.
    in_bursts: bool,
    /// Two packets arrive for each that leaves: the queue is full, and drops every second one.
    is_flooded: bool,
}

/// A case with this queue, backlog and number of flows, without a twin.
fn case(name: &str, queue: &str, backlog: u64, flows: u32) -> Case {
    let (name, queue) = (name.to_owned(), queue.to_owned());
    Case {
        name,
        queue,
        backlog,
        flows,
        twin: None,
        handlers: None,
        interpreted: false,
        in_bursts: false,
        is_flooded: false,
    }
}

fn with(handlers: HandwrittenHandlers, case: Case) -> Case {
    Case { handlers: Some(handlers), ..case }
}

fn in_bursts(case: Case) -> Case {
    Case { in_bursts: true, ..case }
}

/// A library queue with this many packets, flooded.
fn flooded(queue: &str, packets: u64) -> Case {
    let name = format!("{queue} of {packets}, flooded");
    Case { is_flooded: true, ..case(&name, &format!("{queue} (packets = {packets})"), packets, 100) }
}

fn srpt_by_hand(case: &Case, packets: &[Packet]) -> Box<dyn Steps> {
    handwritten(Pifo::new(|item| u64::from(item.remaining), 4_000_000), case, packets)
}

fn ranked_by_hand(case: &Case, packets: &[Packet]) -> Box<dyn Steps> {
    handwritten(Pifo::new(|item| u64::from(item.remaining >> 6), 4_000_000), case, packets)
}

fn fq_codel_by_hand(case: &Case, packets: &[Packet]) -> Box<dyn Steps> {
    handwritten(FqCodel::new(CodelSpec::default(), 1024, 1514, 100_000), case, packets)
}

fn drr_by_hand(case: &Case, packets: &[Packet]) -> Box<dyn Steps> {
    handwritten(Drr::new(1024, 1514, 100_000), case, packets)
}

/// All measured cases; fewer if `quick`.
fn cases(quick: bool) -> Vec<Case> {
    let twin = |name: &str, queue: &str, backlog, flows, twin: Twin| Case {
        twin: Some(("twin", twin)),
        interpreted: true,
        ..case(name, queue, backlog, flows)
    };
    let mut all = vec![
        twin("fifo", "fifo (packets = 4000000)", 1_000, 100, |case, packets| {
            handwritten(Fifo::new(4_000_000), case, packets)
        }),
        with(
            handlers::CODEL,
            twin("codel", "codel (packets = 4000000)", 1_000, 100, |case, packets| {
                handwritten(Codel::new(CodelSpec::default(), 4_000_000), case, packets)
            }),
        ),
        with(
            handlers::FQ_CODEL,
            twin("fq_codel", "fq_codel (packets = 100000)", 1_000, 100, fq_codel_by_hand),
        ),
        with(handlers::DRR, twin("drr", "drr (packets = 100000)", 1_000, 100, drr_by_hand)),
        twin("pfabric", "pfabric (buffer = '100 MB')", 1_000, 100, |case, packets| {
            handwritten(Pfabric::new(100 << 20), case, packets)
        }),
        twin("srpt", "srpt (packets = 4000000)", 1_000, 100, srpt_by_hand),
        twin("ranked, 65,536 queued", "ranked", 65_536, 100, ranked_by_hand),
        case("wfq, 65,536 queued", "wfq (packets = 4000000)", 65_536, 100),
        case("proportional_fair, 65,536 queued", "proportional_fair (packets = 4000000)", 65_536, 100),
        twin("fq_codel, 65,536 queued", "fq_codel (packets = 100000)", 65_536, 100, fq_codel_by_hand),
        twin("drr, 65,536 queued", "drr (packets = 100000)", 65_536, 100, drr_by_hand),
        in_bursts(twin("srpt, bursts of 1,000", "srpt (packets = 4000000)", 1_000, 100, srpt_by_hand)),
        in_bursts(twin("srpt, bursts of 65,536", "srpt (packets = 4000000)", 65_536, 100, srpt_by_hand)),
        in_bursts(twin("ranked, bursts of 65,536", "ranked", 65_536, 100, ranked_by_hand)),
        in_bursts(case("lstf, bursts of 1,000", "lstf (packets = 4000000)", 1_000, 100)),
        flooded("fifo", 1_000),
        flooded("srpt", 1_000),
        flooded("srpt", 65_536),
    ];
    for name in [
        "red",
        "blue",
        "pie",
        "cobalt",
        "sfq",
        "fq",
        "fq_pie",
        "wfq",
        "hpfq",
        "priority",
        "lstf",
        "edf",
        "tbf",
        "htb",
        "proportional_fair",
        "pace",
        "dualpi2",
        "cake",
        "objective",
    ] {
        let args = match name {
            "tbf" | "pace" | "htb" | "cake" => " (rate = '1000 Gbit/s')",
            _ => "",
        };
        all.push(case(name, &format!("{name}{args}"), 500, 100));
    }
    let scales: &[u64] = if quick { &[100, 1_000_000] } else { &[100, 10_000, 65_536, 1_000_000] };
    for n in scales {
        let words = |what: &str| format!("{what}, {n} queued");
        all.push(case(&words("fifo"), "fifo (packets = 4000000)", *n, 100));
        all.push(case(&words("ranked"), "ranked", *n, 100));
    }
    let partitions: &[u32] = if quick { &[1, 100_000] } else { &[1, 1_000, 10_000, 100_000] };
    for n in partitions {
        all.push(case(&format!("turns, {n} partitions"), "turns", 200_000, *n));
        all.push(case(&format!("ranked partitions, {n}"), "shares", 200_000, *n));
    }
    all
}

/// Queues that the library lacks, to measure the cost by number.
const MORE: &str = "
CREATE QUEUE ranked AS
  ORDER PACKETS BY shift_right(number(p.remaining), 6) BITS 18;
  LIMIT 4000000 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE QUEUE turns AS
  PARTITION BY p.flow INDEX 100000;
  LIMIT 4000000 PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE ROTATE;
END;
CREATE QUEUE shares AS
  VAR clock I64;
  PARTITION VAR finish I64;
  PARTITION BY p.flow INDEX 100000;
  ORDER PARTITIONS BY rank;
  LIMIT 4000000 PACKETS ON OVERFLOW DROP TAIL;
  ON ACTIVATE SET rank = greatest(clock, finish);
  ON DEQUEUE
    SET clock = rank;
    SET finish = rank + number(p.len);
    SET rank = finish;
    SEND;
END;
";

/// Measures all queues.
pub(super) fn run(quick: bool) -> Report {
    let (rounds, steps) = if quick { (5, 200_000) } else { (15, 1_000_000) };
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let cases = cases(quick);
    for (nth, case) in cases.iter().enumerate() {
        progress(&format!("{} of {}: {}", nth + 1, cases.len(), case.name));
        match measure(case, rounds, steps) {
            Ok(found) => rows.extend(found),
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    let mut notes = vec![
        "one packet in and one out; the backlog stays, or comes and goes in bursts. Packets have no payload here, as \
         everywhere in queues"
            .to_owned(),
    ];
    match if quick { Err("--quick".to_owned()) } else { count() } {
        Ok(counts) => rows.extend(counts),
        Err(why) => notes.push(format!("instructions were not counted: {why}")),
    }
    Report { bench: "queue", rows, notes, failures }
}

/// Instructions per packet of each compiled library queue.
///
/// # Errors
/// They cannot be counted.
pub(super) fn count_all() -> Result<Vec<Row>, String> {
    can_count()?;
    counted().iter().map(|case| count_one(case, false, format!("queue {}", case.name))).collect()
}

/// As [`count_all`], with the handwritten disciplines.
fn count() -> Result<Vec<Row>, String> {
    can_count()?;
    let mut rows = Vec::new();
    for case in counted() {
        rows.push(count_one(&case, false, case.name.clone())?);
        let allocations = allocations_each(&["bench-queue", &case.name], COUNTED, COUNTED_STEPS)?;
        rows.push(Row::new(case.name.clone(), "allocs", "allocs/packet", &[allocations]));
        if case.twin.is_some() {
            rows.push(count_one(&case, true, format!("{}, by hand", case.name))?);
        }
    }
    Ok(rows)
}

/// The cases whose backlog fills quickly.
fn counted() -> Vec<Case> {
    cases(true).into_iter().filter(|case| case.backlog <= 1_000 && !case.name.contains(',')).collect()
}

/// Counts the instructions per packet of a queue, compiled or handwritten.
fn count_one(case: &Case, handwritten: bool, named: String) -> Result<Row, String> {
    progress(&format!("{named}: instructions"));
    let args = ["bench-queue", &case.name, "--handwritten"];
    let args = if handwritten { &args[..] } else { &args[..2] };
    let count = instructions_each(args, COUNTED, COUNTED_STEPS)?;
    Ok(Row::new(named, "instr", "instr/packet", &[count]))
}

/// Runs one queue for a tool that counts instructions.
///
/// # Errors
/// There is no such queue or twin, or too few packets were sent.
pub(crate) fn run_one(args: &QueueArgs) -> Result<(), String> {
    let cases = cases(true);
    let case = cases.iter().find(|case| case.name == args.name).ok_or("no such queue")?;
    let packets = packets(case.flows);
    let mut steps: Box<dyn Steps> = match (args.handwritten, case.twin) {
        (false, _) => Box::new(compiled(case, Arc::new(program(&case.queue)?), &packets)?),
        (true, Some((_, make))) => make(case, &packets),
        (true, None) => return Err("it has no twin".to_owned()),
    };
    steps.steps((args.rounds * COUNTED_STEPS) as u64, &packets).map(drop)
}

/// A queue as in a node: its caller does not know the type of its code.
fn compiled(
    case: &Case,
    program: Arc<QueueProgram>,
    packets: &[Packet],
) -> Result<Subject<Queue<Arc<dyn QueueCode>>>, String> {
    let jit = Jit::new().map_err(|refused| refused.to_string())?;
    let code = jit.compile_queue(&program).map_err(|refused| refused.to_string())?;
    let code: Arc<dyn QueueCode> = Arc::new(code);
    Ok(Subject::new(Queue::new(program, code, 0, 1), case, packets))
}

/// Measures a queue compiled, interpreted and handwritten, as far as the case has them.
fn measure(case: &Case, rounds: usize, steps: u64) -> Result<Vec<Row>, String> {
    let program = Arc::new(program(&case.queue)?);
    let packets = packets(case.flows);
    let mut compiled = compiled(case, program.clone(), &packets)?;
    let mut twin = case.twin.map(|(_, make)| make(case, &packets));
    let interpret = || {
        let code = Interpreted::new(program.clone());
        Subject::new(Queue::new(program.clone(), code, 0, 1), case, &packets)
    };
    let mut interpreted = case.interpreted.then(interpret);
    let handled = case.handlers.map(|handlers| -> Arc<dyn QueueCode> { Arc::new(handlers) });
    let mut handled =
        handled.map(|handlers| Subject::new(Queue::new(program.clone(), handlers, 0, 1), case, &packets));
    let (mut ours, mut theirs, mut slow, mut halves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(compiled.steps(steps, &packets)?);
        if let Some(twin) = &mut twin {
            theirs.push(twin.steps(steps, &packets)?);
        }
        if let Some(handled) = &mut handled {
            halves.push(handled.steps(steps, &packets)?);
        }
        if let Some(interpreted) = &mut interpreted {
            slow.push(interpreted.steps(steps / 8, &packets)?);
        }
    }
    let row = Row::new(&*case.name, "compiled", "ns/packet", &ours);
    let mut rows = vec![match case.twin {
        Some((name, _)) => row.against(name, &ours, &theirs),
        None => row,
    }];
    if !halves.is_empty() {
        let ratios: Vec<f64> =
            ours.iter().zip(&halves).map(|(ours, handwritten)| ours / handwritten).collect();
        rows.push(Row::new(&*case.name, "handlers by hand", "ns/packet", &halves));
        rows.push(Row::new(&*case.name, "compiled over those", "ratio", &ratios));
    }
    if !theirs.is_empty() {
        rows.push(Row::new(&*case.name, "by hand", "ns/packet", &theirs));
        rows.push(Row::new(&*case.name, "interpreted", "ns/packet", &slow));
    }
    Ok(rows)
}

/// Compiles the expression of a queue, as in a link, to a queue program.
fn program(queue: &str) -> Result<QueueProgram, String> {
    let name = queue.split(' ').next().unwrap_or_default();
    let import = match MORE.contains(&format!("CREATE QUEUE {name} AS")) {
        true => MORE.to_owned(),
        false => format!("IMPORT 'library/queues/{name}.weft';"),
    };
    let text = format!("{import}\nCREATE PORT p ON memory;\nCREATE LINK l ON PORT p QUEUE {queue};");
    let (accepted, _) = accepted([("bench.weft", text)])?;
    let link = accepted.lowered.links.first().ok_or("there is no link")?;
    Ok((*link.queue).clone())
}

/// Generates packets of these flows, of random lengths.
fn packets(flows: u32) -> Vec<Packet> {
    let mut rng = Rng::from_seed(9);
    let packet = |nth: usize| {
        // Numbers in the order of flows, and numbers far from it: partitions by hash and by index find both.
        let flow = nth as u32 % flows;
        Packet {
            len: 64 + rng.below(1450) as u32,
            flow,
            src: flow,
            dst: flow,
            dscp: rng.below(64) as u8,
            class: rng.below(8) as u32,
            remaining: rng.below(1 << 24) as u64,
            slack_ns: rng.below(1 << 30) as i64,
            deadline_ns: u64::MAX >> 2,
            ..Packet::default()
        }
    };
    (0..PACKETS.max(flows as usize)).map(packet).collect()
}

/// A filled queue: a program, or a handwritten discipline.
trait BenchQueue {
    fn enqueue(&mut self, packet: &Packet, now: u64);
    fn dequeue(&mut self, now: u64) -> bool;
}

impl<C: QueueCode> BenchQueue for Queue<C> {
    #[inline]
    fn enqueue(&mut self, packet: &Packet, now: u64) {
        Self::enqueue(self, packet, now);
    }

    #[inline]
    fn dequeue(&mut self, now: u64) -> bool {
        let sent = black_box(&Self::dequeue(self, now)).is_some();
        while let Some(dropped) = self.poll_dropped() {
            black_box(dropped);
        }
        sent
    }
}

/// A discipline that is written by hand.
struct Handwritten<D>(D);

impl<D: Discipline> BenchQueue for Handwritten<D> {
    #[inline]
    fn enqueue(&mut self, packet: &Packet, now: u64) {
        let item = Item {
            enqueued_at_ns: now,
            len: packet.len,
            flow: packet.flow,
            remaining: packet.remaining as u32,
            ..Item::default()
        };
        self.0.enqueue(item, now);
    }

    #[inline]
    fn dequeue(&mut self, now: u64) -> bool {
        let sent = black_box(&self.0.dequeue(now)).is_some();
        while let Some(dropped) = self.0.poll_drop() {
            black_box(dropped);
        }
        sent
    }
}

/// Runs steps on a queue, round after round.
struct Subject<L> {
    line: L,
    now: u64,
    step: u64,
    next: usize,
    /// Packets that arrive before as many leave.
    burst: u64,
    /// Two packets arrive for each that leaves.
    is_flooded: bool,
}

impl<L: BenchQueue> Subject<L> {
    /// Fills the queue with the case's backlog, unless its packets arrive in bursts.
    fn new(line: L, case: &Case, packets: &[Packet]) -> Self {
        // Short enough that no packet is late for a controller.
        let step = if case.backlog <= 1_000 { STEP_NS } else { 1 };
        let (backlog, burst) = if case.in_bursts { (0, case.backlog) } else { (case.backlog, 1) };
        let mut made = Self { line, now: 1, step, next: 0, burst, is_flooded: case.is_flooded };
        (0..backlog).for_each(|_| made.enqueue(packets));
        made
    }

    #[inline]
    fn enqueue(&mut self, packets: &[Packet]) {
        self.now += self.step;
        self.line.enqueue(&packets[self.next], self.now);
        self.next = if self.next + 1 == packets.len() { 0 } else { self.next + 1 };
    }
}

/// A measurable queue: one dynamic call per round, so that its cost does not matter.
trait Steps {
    /// Nanoseconds per step: a packet in, a packet out.
    fn steps(&mut self, n: u64, packets: &[Packet]) -> Result<f64, String>;
}

impl<L: BenchQueue> Steps for Subject<L> {
    fn steps(&mut self, n: u64, packets: &[Packet]) -> Result<f64, String> {
        let mut sent = 0_u64;
        let n = n.next_multiple_of(self.burst);
        let began = Instant::now();
        match self.burst {
            1 if self.is_flooded => (0..n).for_each(|_| {
                (0..2).for_each(|_| self.enqueue(packets));
                sent += u64::from(self.line.dequeue(self.now));
            }),
            1 => (0..n).for_each(|_| {
                self.enqueue(packets);
                sent += u64::from(self.line.dequeue(self.now));
            }),
            burst => (0..n / burst).for_each(|_| {
                (0..burst).for_each(|_| self.enqueue(packets));
                sent += (0..burst).map(|_| u64::from(self.line.dequeue(self.now))).sum::<u64>();
            }),
        }
        let ns = began.elapsed().as_nanos() as f64 / n as f64;
        // Otherwise the figure would be of something else.
        if sent * 10 < n * 9 {
            return Err(format!("{sent} of {n} steps sent a packet"));
        }
        Ok(ns)
    }
}

/// A filled handwritten discipline.
fn handwritten<D: Discipline + 'static>(line: D, case: &Case, packets: &[Packet]) -> Box<dyn Steps> {
    Box::new(Subject::new(Handwritten(line), case, packets))
}
