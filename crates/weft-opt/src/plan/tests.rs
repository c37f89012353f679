//! Compares allowed orders with the written one: pairs, and chains of up to eight elements.
//!
//! `WEFT_PLAN_CASES` sets the number of cases; the nightly run uses a million.

#![allow(clippy::print_stdout, reason = "how much the cases cover is for people")]
#![allow(clippy::disallowed_methods, reason = "the nightly run asks for more cases")]

mod cut;
mod generate;
mod node;
mod weaken;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_core::inputs::InputSet;
use weft_core::marks::Marks;

use weft_core::Time;
use weft_core::abi::{EditTarget, Fault, REGION_BODY, REGION_META, Slot, Verdict};
use weft_core::limits::SCRATCH_BYTES_MIN;
use weft_ir::generate::{Observation, Observed, Pass, Rng};
use weft_ir::interp::Access;
use weft_ir::ir::{Function, Op};
use weft_ir::program::{ChainProgram, Event, SinkTarget};

use super::figures::{ElementFigures, Figures};
use super::search::Constraints;
use super::{
    Clause, Context, Crossing, DeadField, Input, Level, Pair, Rule, choose, crossings, dead_fields,
    drop_dead_fields, order, pairs,
};
use crate::effects::{ChainEffects, Effects, ElementEffects, effects};
use node::Node;
use wire::Message;

/// The default number of cases.
const CASES: u64 = 6_000;
/// Number of cases within which the removal of a clause must be detected.
const CASES_MAX: u64 = 100_000;
const CALLS: usize = 3;
/// Elements of the longest chain.
const ELEMENTS: usize = 8;
/// The number of workers of a case; each has its part of the merged variables.
const WORKERS: [usize; 2] = [1, 4];

/// The number of cases of this run.
fn cases() -> u64 {
    let said = std::env::var("WEFT_PLAN_CASES").ok();
    said.map_or(CASES, |text| text.parse().expect("WEFT_PLAN_CASES is a number"))
}

/// A call, pass by pass.
struct Call {
    request: Pass,
    response: Pass,
    close: Pass,
}

impl Call {
    fn random(rng: &mut Rng, chain: &ChainProgram, nth: usize) -> Self {
        let mut of = |event| loop {
            let now = Time(1_000_000_000 * (nth as i64 + 1));
            let mut pass = Pass::random(rng, chain, now);
            if pass.event == event {
                one_member(&mut pass);
                return if rng.percent(25) { long(pass) } else { pass };
            }
        };
        Self { request: of(Event::OpenRequest), response: of(Event::Response), close: of(Event::Close) }
    }
}

/// A message has one member of a oneof.
fn one_member(pass: &mut Pass) {
    let [first, second] = generate::ONEOF;
    let gone = match [first, second].map(|member| pass.present.contains(member)) {
        [true, _] => &[second, generate::LIST][..],
        [false, true] => &[generate::LIST],
        [false, false] => &[],
    };
    for member in gone {
        pass.present.remove(*member);
        pass.slots[usize::from(member.0)] = Slot::default();
    }
}

/// A pass whose text uses half of the scratch.
fn long(mut pass: Pass) -> Pass {
    let body = &mut pass.regions[REGION_BODY];
    pass.slots[2] = Slot { a: body.len() as u64, b: (SCRATCH_BYTES_MIN / 3) as u64 };
    body.resize(body.len() + SCRATCH_BYTES_MIN / 3, b'z');
    pass
}

/// The observations of a call, pass by pass, and whether the scratch was full in one of them.
struct CallTrace {
    passes: Vec<(Pass, Observation)>,
    is_full: bool,
    /// The tables that sinks fill, after the call.
    tables: Vec<String>,
}

/// Runs a call on a worker, as the engine does.
fn run(node: &mut Node, chain: &Arc<ChainProgram>, call: &Call, worker: usize) -> CallTrace {
    node.begin(worker);
    let mut trace = CallTrace { passes: Vec::new(), is_full: false, tables: Vec::new() };
    let mut pass = |pass: &Pass| {
        let (seen, noted) = node.run(chain, pass);
        trace.is_full |= noted.iter().any(|(_, access)| *access == Access::Full);
        trace.passes.push((pass.clone(), seen.clone()));
        seen
    };
    let mut seen = pass(&call.request);
    let opened = opened_by(chain, &seen);
    if !is_ended(&seen) {
        seen = pass(&call.response);
    }
    pass(&closing(chain, call, &seen, opened));
    for (at, element) in chain.elements.iter().enumerate() {
        if !element.handlers.every.is_empty() {
            pass(&Pass {
                event: Event::Every(at as u16, 0),
                opened: chain.elements.len(),
                slots: Vec::new(),
                present: InputSet::EMPTY,
                ..call.close.clone()
            });
        }
    }
    trace.tables = node.sent();
    trace
}

/// The CLOSE of a call with these observations.
fn closing(chain: &ChainProgram, call: &Call, seen: &Observation, opened: usize) -> Pass {
    let mut close = Pass { opened, ..call.close.clone() };
    if let Some(slot) = close.slots.get_mut(generate::ENDED_BY) {
        let by = if is_ended(seen) { &*chain.elements[usize::from(seen.element)].name } else { "" };
        let meta = &mut close.regions[REGION_META];
        *slot = Slot { a: meta.len() as u64, b: by.len() as u64 };
        close.present.insert(generate::ENDED_BY);
        meta.extend_from_slice(by.as_bytes());
    }
    close
}

fn is_ended(seen: &Observation) -> bool {
    !matches!(seen.verdict, Verdict::Forward | Verdict::Redirect)
}

/// How many elements have let a call begin; each verdict has a line of its own.
fn opened_by(chain: &ChainProgram, seen: &Observation) -> usize {
    if !is_ended(seen) {
        return chain.elements.len();
    }
    let element = usize::from(seen.element);
    let open = chain.elements[element].handlers.open.as_ref();
    let in_open = open.is_some_and(|open| open.blocks.iter().any(|block| block.end.line() == seen.line));
    element + usize::from(!in_open)
}

/// The result of edits of an answer: the last edit of a target wins.
fn edits(edits: &[(EditTarget, Observed)], wanted: fn(&EditTarget) -> bool) -> Vec<(String, Observed)> {
    let mut last: BTreeMap<String, Observed> = BTreeMap::new();
    for (target, value) in edits.iter().filter(|(target, _)| wanted(target)) {
        last.insert(format!("{target:?}"), value.clone());
    }
    last.into_iter().collect()
}

/// The effects of a pass on its tuple that a level promises.
fn tuple(chain: &ChainProgram, pass: &Pass, seen: &Observation, level: Level) -> String {
    // A copy is of the tuple as it was then.
    let copy = |(target, n_edits): &(Vec<u8>, u32)| {
        format!("{target:?} {:?}", Message::of(pass, &seen.edits[..*n_edits as usize]))
    };
    let mut mirrors: Vec<String> = seen.mirrors.iter().map(copy).collect();
    if level > Level::Strict {
        mirrors.sort();
    }
    let inputs = Message::of(pass, &seen.edits);
    let how = (seen.verdict, String::from_utf8_lossy(&seen.text).into_owned());
    match seen.verdict {
        Verdict::Forward | Verdict::Redirect => {
            format!("{how:?} {inputs:?} {:?} {:?} {mirrors:?}", seen.marks, seen.delay)
        }
        _ if level == Level::Relaxed => "ended".to_owned(),
        // The text of a failure names the element.
        Verdict::Failed(_) => {
            format!("{how:?} {} by {}", seen.delay, chain.elements[usize::from(seen.element)].name)
        }
        Verdict::Abort(_) => {
            let answers = edits(&seen.edits, |target| matches!(target, EditTarget::Answer(_)));
            format!("{how:?} {} {answers:?} {mirrors:?}", seen.delay)
        }
        Verdict::Drop => format!("{how:?} {} {mirrors:?}", seen.delay),
        _ => {
            let replies = edits(&seen.edits, |target| matches!(target, EditTarget::Reply(_)));
            format!("{how:?} {} {replies:?} {mirrors:?}", seen.delay)
        }
    }
}

/// The sink rows of a call that a level promises.
fn rows(chain: &ChainProgram, trace: &CallTrace, level: Level) -> Vec<String> {
    let ended = trace.passes.iter().any(|(_, seen)| is_ended(seen));
    if level >= Level::Relaxed || (level >= Level::Output && ended) {
        return Vec::new();
    }
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (sink, cells) in trace.passes.iter().flat_map(|(_, seen)| &seen.rows) {
        let target: &SinkTarget = &chain.sinks[usize::from(*sink)].target;
        // Rows of tables are state.
        if target.table().is_some() {
            continue;
        }
        rows.entry(format!("{target:?}")).or_default().push(format!("{sink} {cells:?}"));
    }
    for rows in rows.values_mut().filter(|_| level > Level::Strict) {
        rows.sort();
    }
    rows.into_iter().map(|(target, rows)| format!("{target}: {rows:?}")).collect()
}

/// The tables that handlers write. Rows sent to a table are there after the pass.
fn own_tables(seen: &Observation) -> &[Vec<Vec<Observed>>] {
    &seen.tables[..usize::from(generate::SENT.0)]
}

/// The results of a call that a level promises.
fn promise(chain: &ChainProgram, trace: &CallTrace, level: Level) -> Vec<String> {
    let mut seen = rows(chain, trace, level);
    for (given, pass) in &trace.passes {
        match (given.event, level) {
            (Event::OpenRequest | Event::Response, _) => seen.push(tuple(chain, given, pass, level)),
            (_, Level::Relaxed) => {}
            // The call has been answered, so how these passes end does not matter.
            _ => seen.push(format!("{:?}", Message::of(given, &pass.edits))),
        }
        if is_ended(pass) && level == Level::Relaxed {
            return seen;
        }
    }
    if level < Level::Relaxed
        && let Some((_, last)) = trace.passes.last()
    {
        seen.push(format!("{:?} {:?}", own_tables(last), last.vars));
        seen.extend(trace.tables.iter().cloned());
    }
    seen
}

/// A chain, and the known conflicts of its elements.
struct Case {
    chain: Arc<ChainProgram>,
    /// Another chain on the same tables, which would observe differences in them.
    other: Arc<ChainProgram>,
    pairs: Vec<Pair>,
    workers: usize,
    rng: Rng,
}

impl Case {
    /// A chain of up to this many elements.
    fn random(seed: u64, n_max: usize) -> Self {
        let mut rng = Rng::from_seed(seed);
        let n = 2 + rng.below(n_max - 1);
        let chain = generate::chain(&mut rng, n);
        if let Err(errors) = weft_ir::verify::verify_program(&chain) {
            panic!("seed {seed}: {}", errors[0]);
        }
        let pairs = pairs(&chain, &effects(&chain), &Context::default());
        let workers = rng.pick(&WORKERS);
        let other = Arc::new(generate::chain(&mut rng, 2));
        Self { chain: Arc::new(chain), other, pairs, workers, rng }
    }

    /// Two neighbours, and the order in which they are swapped.
    fn neighbours(&mut self) -> (Pair, Vec<usize>) {
        let n = self.chain.elements.len();
        let first = self.rng.below(n - 1);
        let mut order: Vec<usize> = (0..n).collect();
        order.swap(first, first + 1);
        let pair = self.pairs.iter().find(|pair| (pair.first, pair.second) == (first, first + 1));
        (pair.expect("all pairs are analyzed").clone(), order)
    }

    /// A random order that the rules allow at a level.
    fn any_order(&mut self, level: Level) -> Vec<usize> {
        let crossings = crossings(&self.chain, &effects(&self.chain), &Context::default(), level);
        self.order_within(level, &crossings)
    }

    /// A random order that these crossings and the rules allow at a level.
    fn order_within(&mut self, level: Level, crossings: &[Crossing]) -> Vec<usize> {
        let n = self.chain.elements.len();
        let constraints = self.constraints(level, crossings);
        let (mut order, mut set) = (Vec::new(), 0);
        while order.len() < n {
            let free: Vec<usize> = (0..n).filter(|at| constraints.allow(*at, set)).collect();
            // Elements that must not be between two others may leave no successor.
            if free.is_empty() {
                return (0..n).collect();
            }
            let next = self.rng.pick(&free);
            set |= 1 << next;
            order.push(next);
        }
        order
    }

    fn constraints(&self, level: Level, crossings: &[Crossing]) -> Constraints {
        let figures = Figures { elements: vec![ElementFigures::default(); self.chain.elements.len()] };
        let (context, pairs) = (&Context::default(), &self.pairs);
        let input = Input { context, pairs, crossings, level, figures: &figures, running: None };
        order::constraints(&input, self.chain.elements.len())
    }

    /// The order that the planner chooses with random figures.
    fn planned(&mut self, level: Level) -> Vec<usize> {
        let mut one = || ElementFigures {
            ns: 1.0 + self.rng.below(1000) as f64,
            ends: self.rng.below(100) as f64 / 100.0,
            ..ElementFigures::default()
        };
        let figures = Figures { elements: self.chain.elements.iter().map(|_| one()).collect() };
        let context = Context::default();
        let crossings = crossings(&self.chain, &effects(&self.chain), &context, level);
        let input = Input {
            context: &context,
            pairs: &self.pairs,
            crossings: &crossings,
            level,
            figures: &figures,
            running: None,
        };
        choose(&input).order
    }

    /// The first call for which this order breaks the promise of one of these levels.
    fn difference(&mut self, order: &[usize], levels: &[Level], covered: &mut Covered) -> Option<String> {
        let dead = levels.iter().min().map(|strictest| {
            dead_fields(&self.chain, &effects(&self.chain), &Context::default(), *strictest, order)
        });
        let dead = dead.unwrap_or_default();
        covered.dead += dead.len();
        self.difference_without(&dead, order, levels, covered)
    }

    /// As [`Case::difference`], with these dead fields removed.
    fn difference_without(
        &mut self,
        dead: &[DeadField],
        order: &[usize],
        levels: &[Level],
        covered: &mut Covered,
    ) -> Option<String> {
        let chain = &self.chain;
        let mut other = (**chain).clone();
        drop_dead_fields(&mut other, dead);
        other.reorder(order);
        let other = Arc::new(other);
        let mut nodes = [chain, &other].map(|chain| Node::new(chain, &self.other, self.workers));
        let mut levels = levels.to_vec();
        for nth in 0..CALLS {
            let call = Call::random(&mut self.rng, chain, nth);
            let one = run(&mut nodes[0], chain, &call, nth);
            let two = run(&mut nodes[1], &other, &call, nth);
            covered.call(&one);
            if one.is_full || two.is_full {
                levels.retain(|level| *level == Level::Strict);
            }
            for &level in &levels {
                let (one, two) = (promise(chain, &one, level), promise(&other, &two, level));
                if one != two {
                    let level = level.name();
                    return Some(format!(
                        "{level}, {order:?}, call {nth}: {:#?}\n{one:#?}\n{two:#?}",
                        self.pairs
                    ));
                }
            }
            // From here on the state may differ.
            levels.retain(|level| *level != Level::Relaxed);
            if levels.is_empty() {
                return None;
            }
            let call = Call::random(&mut self.rng, &self.other, nth);
            let seen = nodes.each_mut().map(|node| {
                node.change_chain();
                let trace = run(node, &self.other, &call, nth);
                node.change_chain();
                promise(&self.other, &trace, Level::Strict)
            });
            if seen[0] != seen[1] {
                return Some(format!("another chain behind call {nth}, {order:?}: {seen:#?}"));
            }
        }
        None
    }
}

/// The coverage of a test's cases.
#[derive(Default)]
struct Covered {
    pairs: u64,
    clauses: BTreeMap<Clause, u64>,
    realisations: BTreeMap<String, u64>,
    calls: u64,
    ended: u64,
    verdicts: BTreeMap<String, u64>,
    actions: BTreeMap<&'static str, u64>,
    workers: BTreeMap<usize, u64>,
    /// Number of dead fields.
    dead: usize,
    /// Cases with rare features.
    features: BTreeMap<Feature, u64>,
    cases: u64,
}

/// A feature of a chain that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    /// Two elements send rows to one table.
    BothSend,
    /// An element sends rows to a table that another reads.
    SendsWhatIsRead,
    /// An element sets a member of the oneof, and another reads the displaced one.
    ReadsDisplaced,
    /// An element sets a member of the oneof, and another reads the list in the displaced one.
    ReadsDisplacedList,
    /// An element sets a field, and another reads the size of the message.
    ReadsSize,
    /// A pair of inverse elements.
    Inverse,
    /// One of them uses the field in other ways, too.
    InverseLooks,
    /// An element may cross the pair but not swap with each of the two.
    Crosses,
}

impl Feature {
    const ALL: [Self; 8] = [
        Self::BothSend,
        Self::SendsWhatIsRead,
        Self::ReadsDisplaced,
        Self::ReadsDisplacedList,
        Self::ReadsSize,
        Self::Inverse,
        Self::InverseLooks,
        Self::Crosses,
    ];

    /// The features of a case.
    fn of(case: &Case) -> BTreeSet<Self> {
        let effects = effects(&case.chain);
        let two = |a: &dyn Fn(&Effects) -> bool, b: &dyn Fn(&Effects) -> bool| {
            let touch = |of: &dyn Fn(&Effects) -> bool| -> Vec<bool> {
                let any = |element: &ElementEffects| element.handlers().any(|(_, handler)| of(handler));
                effects.elements.iter().map(any).collect()
            };
            let (a, b) = (touch(a), touch(b));
            (0..a.len()).any(|at| a[at] && (0..b.len()).any(|of| of != at && b[of]))
        };
        let sends = |handler: &Effects| {
            let mut sinks = handler.sinks.keys().map(|sink| &case.chain.sinks[usize::from(sink.0)]);
            sinks.any(|sink| sink.target.table().is_some())
        };
        let reads_of_table =
            |handler: &Effects| handler.table_reads.iter().any(|look| look.table == generate::SENT);
        let sets = |handler: &Effects| handler.writes.contains_key(&generate::ONEOF[0]);
        let reads = |handler: &Effects| handler.reads.contains_key(&generate::ONEOF[1]);
        let reads_list = |handler: &Effects| handler.reads.contains_key(&generate::LIST);
        let reads_size = |handler: &Effects| handler.reads.contains_key(&generate::SIZE);
        let crossings = crossings(&case.chain, &effects, &Context::default(), Level::Relaxed);
        let looks_besides = |crossing: &Crossing| {
            let handlers = [crossing.first, crossing.second].map(|at| &case.chain.elements[at].handlers);
            let reads = |function: &Function| {
                function.insts().filter(|inst| inst.op == Op::Input(generate::TEXT)).count()
            };
            handlers.iter().flat_map(|of| of.request.iter().chain(&of.response)).any(|of| reads(of) > 1)
        };
        let is_freed = |pair: &Pair| {
            !pair.may_swap(Level::Relaxed) && crossings.iter().any(|crossing| crossing.frees(pair))
        };
        let has = |feature: &Self| match feature {
            Self::BothSend => two(&sends, &sends),
            Self::SendsWhatIsRead => two(&sends, &reads_of_table),
            Self::ReadsDisplaced => two(&sets, &reads),
            Self::ReadsDisplacedList => two(&sets, &reads_list),
            Self::ReadsSize => two(&|handler| !handler.writes.is_empty(), &reads_size),
            Self::Inverse => !crossings.is_empty(),
            Self::InverseLooks => crossings.iter().any(looks_besides),
            Self::Crosses => case.pairs.iter().any(is_freed),
        };
        Self::ALL.into_iter().filter(has).collect()
    }
}

impl Covered {
    fn case(&mut self, case: &Case) {
        self.cases += 1;
        for feature in Feature::of(case) {
            *self.features.entry(feature).or_default() += 1;
        }
        for pair in &case.pairs {
            self.pairs += 1;
            let clauses: BTreeSet<Clause> = pair.clashes.iter().map(|clash| clash.clause).collect();
            clauses.into_iter().for_each(|clause| *self.clauses.entry(clause).or_default() += 1);
        }
        for table in &case.chain.tables {
            *self.realisations.entry(format!("{:?}", table.realisation)).or_default() += 1;
        }
        *self.workers.entry(case.workers).or_default() += 1;
    }

    fn call(&mut self, trace: &CallTrace) {
        self.calls += 1;
        self.ended += u64::from(trace.passes.iter().any(|(_, pass)| is_ended(pass)));
        for (_, pass) in &trace.passes {
            let verdict = match pass.verdict {
                Verdict::Abort(_) => "Abort".to_owned(),
                verdict => format!("{verdict:?}"),
            };
            *self.verdicts.entry(verdict).or_default() += 1;
            let actions = [
                ("delay", pass.delay > 0),
                ("mark", pass.marks != Marks::NONE),
                ("mirror", !pass.mirrors.is_empty()),
                ("row", !pass.rows.is_empty()),
                ("set", pass.edits.iter().any(|(target, _)| matches!(target, EditTarget::Input(_)))),
                ("answer", pass.edits.iter().any(|(target, _)| matches!(target, EditTarget::Answer(_)))),
                ("reply", pass.edits.iter().any(|(target, _)| matches!(target, EditTarget::Reply(_)))),
            ];
            for (action, _) in actions.into_iter().filter(|(_, is)| *is) {
                *self.actions.entry(action).or_default() += 1;
            }
        }
    }

    fn percent(&self, clause: Clause) -> f64 {
        100.0 * self.clauses.get(&clause).copied().unwrap_or(0) as f64 / self.pairs as f64
    }

    fn tell(&self) {
        println!("{} pairs, in percent: ", self.pairs);
        generated().for_each(|clause| println!("  {clause:?} {:.1}", self.percent(clause)));
        println!("{} calls, ended {:.0} %", self.calls, 100.0 * self.ended as f64 / self.calls as f64);
        println!("{} fields were set for nothing", self.dead);
        for (feature, n) in &self.features {
            println!("  {feature:?} in {:.1} % of the cases", 100.0 * *n as f64 / self.cases as f64);
        }
        println!("{:?}\n{:?}\n{:?}\n{:?}", self.verdicts, self.actions, self.realisations, self.workers);
    }

    /// A feature that is never generated would never be tested.
    fn demand(&self) {
        let is_rare = |feature: &Feature| self.features.get(feature).copied().unwrap_or(0) * 100 < self.cases;
        assert_eq!(Feature::ALL.into_iter().filter(is_rare).collect::<Vec<_>>(), []);
        assert!(self.ended * 10 >= self.calls * 3, "{} of {} calls end", self.ended, self.calls);
        // Forward, Drop, Abort, Reply, Redirect, and one for each kind of error.
        assert_eq!(self.verdicts.len(), 5 + Fault::ALL.len(), "{:?}", self.verdicts);
        assert_eq!(self.actions.len(), 7, "{:?}", self.actions);
        assert_eq!(self.realisations.len(), 4, "{:?}", self.realisations);
        assert_eq!(self.workers.len(), WORKERS.len(), "{:?}", self.workers);
    }
}

/// The clauses by which elements clash; the others are declarations of a chain.
fn generated() -> impl Iterator<Item = Clause> {
    Clause::all().filter(|clause| !matches!(clause, Clause::Order | Clause::Filters))
}

#[test]
fn swapped_orders_keep_level_promise() {
    // A swap that changes what calls observe, or the state left by them, must not be called harmless.
    let (mut swappable, mut covered) = (BTreeMap::new(), Covered::default());
    for seed in 0..cases() {
        let mut case = Case::random(seed, 3);
        let (pair, order) = case.neighbours();
        covered.case(&case);
        let levels: Vec<Level> = Level::ALL.into_iter().filter(|level| pair.may_swap(*level)).collect();
        levels.iter().for_each(|level| *swappable.entry(*level).or_insert(0u64) += 1);
        if let Some(found) = case.difference(&order, &levels, &mut covered) {
            panic!("seed {seed}, {found}");
        }
    }
    covered.tell();
    println!("may swap: {swappable:?}");
    covered.demand();
    let is_rare = |clause: &Clause| covered.percent(*clause) < 4.0;
    assert_eq!(generated().filter(is_rare).collect::<Vec<_>>(), []);
    let is_seen = |level: &Level| swappable.get(level).is_some_and(|n| n * 20 > cases());
    assert!(Level::ALL.iter().all(is_seen), "{swappable:?}");
}

#[test]
fn allowed_orders_keep_level_promise() {
    // A planned chain must be indistinguishable from the written one, however long it is.
    let (mut reordered, mut covered) = (BTreeMap::new(), Covered::default());
    for seed in 0..cases() {
        let mut case = Case::random(seed, ELEMENTS);
        covered.case(&case);
        let level = case.rng.pick(&Level::ALL);
        let order = if seed % 2 == 0 { case.any_order(level) } else { case.planned(level) };
        *reordered.entry((level, !order.is_sorted())).or_insert(0u64) += 1;
        if order.is_sorted() {
            continue;
        }
        if let Some(found) = case.difference(&order, &[level], &mut covered) {
            panic!("seed {seed}, {found}");
        }
    }
    covered.tell();
    println!("in another order: {reordered:?}");
    covered.demand();
    assert!(covered.dead as u64 * 200 > cases(), "{} fields were set for nothing", covered.dead);
    let is_seen = |level: &Level| reordered.get(&(*level, true)).is_some_and(|n| n * 50 > cases());
    assert!(Level::ALL.iter().all(is_seen), "{reordered:?}");
}

#[test]
fn every_clause_is_needed() {
    // A clause that no case needs is either wrong or untested.
    let mut missed: BTreeMap<Clause, u64> = BTreeMap::new();
    for seed in 0..CASES_MAX {
        let mut case = Case::random(seed, 3);
        let (pair, order) = case.neighbours();
        for level in Level::ALL {
            let mut blocking = pair.blocking(level).map(|clash| clash.clause);
            let Some(clause) = blocking.next() else { continue };
            // Only this clause forbids the swap.
            if missed.contains_key(&clause) || blocking.any(|other| other != clause) {
                continue;
            }
            let mut case = Case::random(seed, 3);
            case.neighbours();
            if case.difference(&order, &[level], &mut Covered::default()).is_some() {
                missed.insert(clause, seed);
            }
        }
        if missed.len() == generated().count() {
            println!("each clause was missed first in case {missed:?}");
            return;
        }
    }
    let lost: Vec<Clause> = generated().filter(|clause| !missed.contains_key(clause)).collect();
    panic!("no test detects the loss of {lost:?}");
}

#[test]
fn every_rule_has_a_clause() {
    // A rule without a clause forbids nothing.
    let rules: BTreeSet<Rule> = Clause::all().map(Clause::rule).collect();
    assert_eq!(rules.into_iter().collect::<Vec<_>>(), Rule::ALL);
}
