//! Collects what `weft explain` reports of a chain, independent of its output format.

use super::effect_names::{EffectNames, sharding};
use super::filters;
use crate::ordering::{CountedElements, PlannedChain, ordered};
use std::collections::BTreeSet;
use weft_core::Interval;
use weft_core::classify::Description;
use weft_core::hash::HashKey;
use weft_core::table::{Table, TableSpec};
use weft_engine::state::StateStore;
use weft_ir::program::{ChainProgram, Direction, Frames, Input, InputLocation, MatchDecl, Realisation};
use weft_lang::ast::Side;
use weft_lang::diagnostic::Diagnostic;
use weft_lang::hir::{self, Network};
use weft_lang::source::SourceMap;
use weft_opt::cost::{Cost, HandlerOps, cost};
use weft_opt::effects::{ChainEffects, Effects, SourceLines};
use weft_opt::lower::{LowerOptions, lower_with_lines};
use weft_opt::plan::{self, Clash, ElementFigures, Level, Licence, LicensedBy, ParallelStep, Rule};

pub(super) struct Chain {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) methods: String,
    /// Set for a chain on ports.
    pub(super) frames: Option<FramesReport>,
    /// The branches of steered frames: the edge, and the stages after it.
    pub(super) branches: Vec<(String, Vec<String>)>,
    pub(super) level: Level,
    pub(super) plan: PlanReport,
    /// In the order as written.
    pub(super) elements: Vec<Element>,
    /// In the order as written.
    pub(super) filters: Vec<Filter>,
    /// All pairs of elements.
    pub(super) pairs: Vec<Pair>,
    pub(super) tables: Vec<TableReport>,
    /// Fields, headers and metadata that are read or written, by direction.
    pub(super) request: Columns,
    pub(super) response: Columns,
    pub(super) parallel: Parallel,
    /// The header layout between adjacent elements of the planned order.
    pub(super) headers: Vec<HeaderReport>,
}

/// What a chain parses of frames.
pub(super) struct FramesReport {
    /// The parsed protocols, by name.
    pub(super) layers: Vec<String>,
    /// The number of their rules that can make a frame malformed.
    pub(super) n_checks: usize,
}

/// The columns that the whole chain extracts from a message.
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    /// The number of message fields among them, and of all fields of the message; None if methods have different
    /// messages.
    pub(super) fields: Option<(usize, usize)>,
}

/// The possible parallel execution.
pub(super) struct Parallel {
    /// Elements by step.
    pub(super) steps: Vec<Vec<String>>,
    /// The time that this would save per call, and that it would cost, in nanoseconds.
    pub(super) saves_ns: f64,
    pub(super) costs_ns: f64,
    /// All pairs, in the order that runs.
    pub(super) pairs: Vec<OverlapReport>,
}

/// A pair of elements that could run in parallel, or the reason against it.
pub(super) struct OverlapReport {
    pub(super) front: String,
    pub(super) behind: String,
    pub(super) verdict: Result<ParallelStep, String>,
}

/// The header layout in front of one element of the planned order, or behind the last.
pub(super) struct HeaderReport {
    /// The element behind this header; None behind the last one.
    pub(super) before: Option<String>,
    /// Names, bytes, and whether a text of variable length is added.
    pub(super) fields: Vec<(String, u64, bool)>,
    pub(super) bytes: u64,
}

/// The order that the chain runs in.
pub(super) struct PlanReport {
    /// The stages as written, and as planned, with filters.
    pub(super) written: Vec<String>,
    pub(super) order: Vec<String>,
    /// The expected time of a call in its elements, in nanoseconds.
    pub(super) written_ns: f64,
    pub(super) planned_ns: f64,
    /// No permitted order is cheaper.
    pub(super) is_exact: bool,
    /// A better order that would save too little, and its time.
    pub(super) not_taken: Option<(Vec<String>, f64)>,
    /// The cost of each element, in the planned order.
    pub(super) figures: Vec<(String, ElementFigures)>,
    /// Elements in an order that a rule forbids, and the construct that permits it.
    pub(super) licences: Vec<LicenceReport>,
    /// Fields that are set in vain: the element, the field, and the element that overwrites it.
    pub(super) dead: Vec<(String, String, String)>,
    /// Pairs of elements that undo each other, and the elements that may cross both.
    pub(super) crossings: Vec<(String, String, Vec<String>)>,
}

/// An order that the chain permits against a rule.
pub(super) struct LicenceReport {
    pub(super) front: String,
    pub(super) behind: String,
    pub(super) by: LicensedBy,
    /// The rules that do not apply.
    pub(super) rules: Vec<Rule>,
}

pub(super) struct Filter {
    pub(super) name: String,
    pub(super) filter: String,
    /// The file of its text.
    pub(super) file: String,
    /// The index of the element after it, in the order as written.
    pub(super) at: usize,
    pub(super) mandatory: bool,
    /// Each policy with its effect, seen from the caller.
    pub(super) policies: Vec<(&'static str, String)>,
    /// The handler that computes its keys.
    pub(super) keys: Option<Handler>,
    /// The stages that each try passes.
    pub(super) wraps: Vec<String>,
}

/// An instance of an element.
pub(super) struct Element {
    /// Its index in the order as written. Elements that compute keys of filters count, too.
    pub(super) at: usize,
    pub(super) name: String,
    pub(super) element: String,
    /// The file of its text.
    pub(super) file: String,
    pub(super) mandatory: bool,
    pub(super) fail_open: bool,
    pub(super) per_try: bool,
    /// `AT CLIENT` or `AT SERVER`.
    pub(super) side: Option<Side>,
    pub(super) handlers: Vec<Handler>,
    pub(super) table_bytes: u64,
    pub(super) call_bytes: u64,
}

pub(super) struct Handler {
    pub(super) name: &'static str,
    /// Worst-case operations; all EVERY handlers count as one.
    pub(super) ops: u64,
    /// Worst-case nanoseconds for each 1024 bytes of text arguments.
    pub(super) ns_per_kib: u64,
    pub(super) effects: Vec<Effect>,
}

/// One kind of effect of a handler.
pub(super) struct Effect {
    /// `reads`, `writes`, `may end`, ...
    pub(super) kind: &'static str,
    /// The object, in words.
    pub(super) what: String,
    /// The lines that cause it.
    pub(super) lines: SourceLines,
}

/// A pair of elements.
pub(super) struct Pair {
    pub(super) first: String,
    pub(super) second: String,
    /// At the chain's level.
    pub(super) may_swap: bool,
    /// The construct of the chain that permits the second in front.
    pub(super) licence: Option<LicensedBy>,
    /// The strictest level at which they may swap.
    pub(super) allowed_from: Option<Level>,
    pub(super) clashes: Vec<ClashReport>,
}

/// Why they may not swap.
pub(super) struct ClashReport {
    pub(super) clash: Clash,
    /// It matters at the chain's level.
    pub(super) is_blocking: bool,
    pub(super) places: Vec<ProgramLine>,
}

/// A line of a program.
pub(super) struct ProgramLine {
    /// The instance whose element the line belongs to.
    pub(super) element: String,
    /// The index of the line among the clash's lines of this element.
    pub(super) nth: usize,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) text: String,
}

pub(super) struct TableReport {
    pub(super) name: String,
    pub(super) rows_max: u64,
    pub(super) bytes_max: u64,
    /// The maximum ages of rows, by their start.
    pub(super) ages: Vec<(&'static str, Interval)>,
    pub(super) realisation: &'static str,
    /// The key by which nodes could share it, if there is one.
    pub(super) shard_by: Option<String>,
    /// In words.
    pub(super) sharding: String,
    /// The compiled form of its rows, for each way in which elements match them.
    pub(super) matched: Vec<Description>,
}

/// The maximum ages of a table's rows, by their start.
fn ages(spec: &TableSpec) -> Vec<(&'static str, Interval)> {
    let since_use = if spec.ttl_on_access { "access" } else { "write" };
    let ages = [(since_use, spec.ttl), ("insert", spec.ttl_on_insert)];
    ages.into_iter().filter_map(|(since, ttl)| Some((since, ttl?))).collect()
}

/// Builds the report of a chain, an index into [`Network::chains`]. `counted` are a running node's counters.
///
/// # Errors
/// The chain cannot be lowered.
pub(super) fn explain(
    network: &Network,
    index: usize,
    sources: &SourceMap,
    counted: CountedElements<'_>,
) -> Result<Chain, Vec<Diagnostic>> {
    // Locks are planned for more than one worker; costs are those of one, as in `check`.
    let program = lower_with_lines(network, index, &LowerOptions { workers: 2 }, sources)?;
    let alone = lower_with_lines(network, index, &LowerOptions { workers: 1 }, sources)?;
    let chain = &network.chains[index];
    let ordered = ordered(network, index, &alone, counted);
    let effects = &ordered.effects;
    let cost = cost(&alone);
    let builder = ReportBuilder { network, chain, program: &program, sources, cost: &cost };
    let (from, to) = network.ends(chain);
    Ok(Chain {
        name: chain.name.clone(),
        from,
        to,
        methods: chain.method_set.to_string(),
        frames: program.frames.as_ref().map(frames),
        branches: chain.branches.iter().map(|branch| builder.branch(branch)).collect(),
        level: ordered.level,
        plan: builder.plan(&ordered),
        elements: builder.elements(effects),
        filters: chain.filters.iter().map(|filter| builder.filter(filter, effects)).collect(),
        pairs: {
            let of_elements =
                |pair: &&plan::Pair| builder.is_element(pair.first) && builder.is_element(pair.second);
            ordered.pairs.iter().filter(of_elements).map(|pair| builder.pair(pair, &ordered)).collect()
        },
        tables: plan::tables(&program, effects).iter().map(|table| builder.table(table)).collect(),
        request: builder.columns(&program.request, |method| method.input),
        response: builder.columns(&program.response, |method| method.output),
        parallel: builder.parallel(&ordered),
        headers: builder.headers(&ordered),
    })
}

fn frames(frames: &Frames) -> FramesReport {
    let mut layers: Vec<String> = frames.checks.iter().map(|check| check.protocol.clone()).collect();
    let mut seen = BTreeSet::new();
    layers.retain(|layer| seen.insert(layer.clone()));
    FramesReport { layers, n_checks: frames.checks.len() }
}

struct ReportBuilder<'n> {
    network: &'n Network,
    chain: &'n hir::Chain,
    program: &'n ChainProgram,
    sources: &'n SourceMap,
    /// In the worst case.
    cost: &'n Cost,
}

impl ReportBuilder<'_> {
    /// The stages in an order of the elements. Nothing moves across a filter, so each keeps its position. A filter with
    /// keys has the name of the element that computes them.
    fn names(&self, order: &[usize]) -> Vec<String> {
        let filters = |at: usize| {
            let here = self.chain.filters.iter().filter(move |filter| filter.at == at && !filter.has_keys);
            here.map(|filter| filter.name.clone())
        };
        let stages = order
            .iter()
            .enumerate()
            .flat_map(|(place, at)| filters(place).chain([self.program.elements[*at].name.clone()]));
        stages.chain(filters(order.len())).collect()
    }

    /// A branch of steered frames: its edge, and the stages after it.
    fn branch(&self, branch: &hir::Branch) -> (String, Vec<String>) {
        let instance = |at: usize| &self.chain.instances[at];
        let from = instance(branch.from);
        let (edge, _) = &self.network.elements[from.element].edges[branch.edge];
        let stages = branch.stages.clone().map(|at| instance(at).name.clone());
        (format!("{}.{edge}", from.name), stages.collect())
    }

    /// Whether the program names the element. Elements that compute keys of filters are hidden.
    fn is_element(&self, at: usize) -> bool {
        self.chain.keys_of(at).is_none()
    }

    /// The report of a filter: its policies, and the handler that computes its keys.
    fn filter(&self, filter: &hir::FilterInstance, effects: &ChainEffects) -> Filter {
        let written: Vec<usize> = (0..self.program.elements.len()).collect();
        let all = self.names(&written);
        let behind = all.iter().skip_while(|name| **name != filter.name).skip(1);
        let keys = filter.has_keys.then(|| filter.at - 1);
        let handler = keys.and_then(|at| {
            let mut handlers = effects.elements[at].handlers();
            handlers.next().map(|handler| self.handler(at, handler))
        });
        Filter {
            name: filter.name.clone(),
            filter: filter.filter.clone(),
            file: self.sources.file(filter.declared.file).name().to_owned(),
            at: filter.at,
            mandatory: filter.mandatory,
            policies: filters::policies(&filter.policies, &keys.map_or(Vec::new(), |at| self.keys(at))),
            keys: handler,
            wraps: behind.cloned().collect(),
        }
    }

    /// The keys that an element computes, as written; in parentheses if a key is more than a name.
    fn keys(&self, at: usize) -> Vec<String> {
        let element = &self.network.elements[self.chain.instances[at].element];
        let stmts = element.handlers.iter().flat_map(|handler| &handler.body);
        let text = |span| self.sources.slice(span).split_whitespace().collect::<Vec<_>>().join(" ");
        let key = |text: String| if text.contains(' ') { format!("({text})") } else { text };
        stmts.map(|stmt| key(text(stmt.span))).collect()
    }

    /// The report of the planned order: costs, permitted exceptions to rules, fields set in vain, and a better order
    /// that is not taken.
    fn plan(&self, ordered: &PlannedChain) -> PlanReport {
        let PlannedChain { plan, figures, level, crossings, .. } = ordered;
        let written: Vec<usize> = (0..plan.order.len()).collect();
        let rules = |licence: &Licence| {
            let is_pair = |pair: &&plan::Pair| (pair.first, pair.second) == (licence.behind, licence.front);
            let pair = ordered.pairs.iter().find(is_pair).into_iter();
            let mut rules: Vec<Rule> =
                pair.flat_map(|p| p.blocking(*level)).map(|clash| clash.rule).collect();
            rules.dedup();
            rules
        };
        let name = |at: usize| self.program.elements[at].name.clone();
        let dead = |dead: &plan::DeadField| {
            let field = self.program.request.inputs[usize::from(dead.input.0)].name.clone();
            (name(dead.element), field, name(dead.by))
        };
        PlanReport {
            dead: ordered.dead.iter().map(dead).collect(),
            written: self.names(&written),
            order: self.names(&plan.order),
            written_ns: plan.written_ns,
            planned_ns: plan.planned_ns,
            is_exact: plan.is_exact,
            not_taken: plan.not_taken.as_ref().map(|other| (self.names(&other.order), other.ns)),
            figures: {
                let of_elements = plan.order.iter().filter(|at| self.is_element(**at));
                of_elements.map(|at| (name(*at), figures.elements[*at])).collect()
            },
            crossings: crossings
                .iter()
                .filter(|crossing| !crossing.others.is_empty())
                .map(|crossing| {
                    let others = crossing.others.iter().map(|other| name(*other)).collect();
                    (name(crossing.first), name(crossing.second), others)
                })
                .collect(),
            licences: plan
                .licences
                .iter()
                .map(|licence| LicenceReport {
                    front: name(licence.front),
                    behind: name(licence.behind),
                    by: licence.by,
                    rules: rules(licence),
                })
                .collect(),
        }
    }

    /// The columns of a direction, and the number of fields of its message.
    fn columns(&self, direction: &Direction, message: fn(&hir::Method) -> usize) -> Columns {
        let is_field = |input: &&Input| input.place.path().is_some();
        let is_taken = |input: &&Input| !matches!(input.place, InputLocation::Key(_));
        let mut messages: Vec<usize> = self.chain.methods.iter().map(message).collect();
        messages.dedup();
        let of = |index: &usize| self.network.schema.messages[*index].fields.len();
        let n_fields = direction.inputs.iter().filter(is_field).count();
        Columns {
            names: direction.inputs.iter().filter(is_taken).map(|input| input.name.clone()).collect(),
            fields: (messages.len() == 1).then(|| (n_fields, messages.first().map_or(0, of))),
        }
    }

    /// The report of the possible parallel execution.
    fn parallel(&self, ordered: &PlannedChain) -> Parallel {
        let PlannedChain { effects, pairs, figures, plan, level, .. } = ordered;
        let overlaps = plan::overlaps(self.program, effects, pairs, *level, &plan.order);
        let steps = plan::steps(&overlaps, &plan.order);
        let of_elements =
            |overlap: &plan::Overlap| self.is_element(overlap.front) && self.is_element(overlap.behind);
        let (saves_ns, costs_ns) = plan::gain_ns(figures, &overlaps, &steps);
        let name = |at: usize| self.program.elements[at].name.clone();
        let report = |overlap: plan::Overlap| OverlapReport {
            front: name(overlap.front),
            behind: name(overlap.behind),
            verdict: overlap.verdict,
        };
        Parallel {
            steps: self.steps(&steps),
            saves_ns,
            costs_ns,
            pairs: overlaps.into_iter().filter(of_elements).map(report).collect(),
        }
    }

    /// The names of each step. Elements inside a filter wait for it, so each filter is its own step; one with keys
    /// already is.
    fn steps(&self, steps: &[Vec<usize>]) -> Vec<Vec<String>> {
        let mut filters = self.chain.filters.iter().filter(|filter| !filter.has_keys).peekable();
        let mut named: Vec<Vec<String>> = Vec::new();
        for step in steps {
            let first = step.iter().min().copied().unwrap_or_default();
            while let Some(filter) = filters.next_if(|filter| filter.at <= first) {
                named.push(vec![filter.name.clone()]);
            }
            named.push(step.iter().map(|at| self.program.elements[*at].name.clone()).collect());
        }
        named.extend(filters.map(|filter| vec![filter.name.clone()]));
        named
    }

    /// The header layouts of the planned order; none for a chain on ports.
    fn headers(&self, ordered: &PlannedChain) -> Vec<HeaderReport> {
        if self.program.frames.is_some() {
            // Frames carry everything that later stages read.
            return Vec::new();
        }
        let order = &ordered.plan.order;
        let field = |field: &plan::HeaderField| {
            let name = self.program.request.inputs[usize::from(field.input.0)].name.clone();
            (name, field.bytes, field.is_text)
        };
        let report = |header: plan::Header| HeaderReport {
            before: order.get(header.at).map(|at| self.program.elements[*at].name.clone()),
            bytes: header.bytes(),
            fields: header.fields.iter().map(field).collect(),
        };
        plan::headers(self.program, &ordered.effects, order).into_iter().map(report).collect()
    }

    /// The reports of the elements, in the order as written.
    fn elements(&self, effects: &ChainEffects) -> Vec<Element> {
        let all = self.program.elements.iter().zip(&effects.elements).zip(&self.cost.elements).enumerate();
        all.filter(|(at, _)| self.is_element(*at))
            .map(|(at, ((element, effects), cost))| Element {
                at,
                name: element.name.clone(),
                element: element.element.clone(),
                file: self.file(at),
                mandatory: element.mandatory,
                fail_open: element.fail_open,
                per_try: self.chain.instances[at].per_try,
                side: self.chain.instances[at].side,
                handlers: effects.handlers().map(|handler| self.handler(at, handler)).collect(),
                table_bytes: cost.table_bytes,
                call_bytes: cost.call_bytes,
            })
            .collect()
    }

    /// The report of a handler: its cost and its effects, with their program lines.
    fn handler(&self, instance: usize, (name, effects): (&'static str, &Effects)) -> Handler {
        let of = |by: &HandlerOps| match name {
            "open" => by.open,
            "request" => by.request,
            "response" => by.response,
            "close" => by.close,
            "every" => by.every,
            _ => by.timeout,
        };
        let cost = &self.cost.elements[instance];
        let (ops, ns_per_kib) = (of(&cost.ops), of(&cost.ns_per_kib));
        let is_request = name == "open" || name == "request";
        let name = if name == "request" && self.program.frames.is_some() { "packet" } else { name };
        Handler {
            name,
            ops,
            ns_per_kib,
            effects: EffectNames { program: self.program, is_request }.of(effects),
        }
    }

    /// The file that an instance's element is written in.
    fn file(&self, instance: usize) -> String {
        let element = &self.network.elements[self.chain.instances[instance].element];
        self.sources.file(element.span.file).name().to_owned()
    }

    /// The report of a pair: whether it may be swapped, and the conflicts.
    fn pair(&self, pair: &plan::Pair, ordered: &PlannedChain) -> Pair {
        let level = ordered.level;
        let name = |index: usize| self.program.elements[index].name.clone();
        let report = |clash: &Clash| ClashReport {
            is_blocking: level <= clash.until,
            places: self.places(pair, clash),
            clash: clash.clone(),
        };
        Pair {
            first: name(pair.first),
            second: name(pair.second),
            may_swap: pair.may_swap(level),
            licence: pair.licence(&ordered.context),
            allowed_from: pair.allowed_from(),
            clashes: pair.clashes.iter().map(report).collect(),
        }
    }

    /// The lines that cause a clash; ORDER of a chain has no lines of its own.
    fn places(&self, pair: &plan::Pair, clash: &Clash) -> Vec<ProgramLine> {
        let of = |instance: usize, lines: &SourceLines| {
            let element = &self.network.elements[self.chain.instances[instance].element];
            let file = self.sources.file(element.span.file);
            let known: BTreeSet<u32> = lines.iter().copied().filter(|line| *line > 0).collect();
            let place = |(nth, line): (usize, u32)| ProgramLine {
                nth,
                element: self.program.elements[instance].name.clone(),
                file: file.name().to_owned(),
                line,
                text: file.line(line).trim().to_owned(),
            };
            known.into_iter().enumerate().map(place).collect::<Vec<_>>()
        };
        let first = of(pair.first, &clash.first);
        first.into_iter().chain(of(pair.second, &clash.second)).collect()
    }

    /// The report of a table: limits, memory and sharding.
    fn table(&self, table: &plan::TableSharding) -> TableReport {
        let decl = &self.program.tables[table.table];
        let owner = if decl.owner.is_empty() { String::new() } else { format!("{}.", decl.owner) };
        TableReport {
            name: format!("{owner}{}", decl.spec.name),
            rows_max: decl.spec.max_rows,
            bytes_max: Table::memory_bytes_max_of(&decl.spec),
            ages: ages(&decl.spec),
            realisation: match decl.realisation {
                Realisation::Replicated => "replicated",
                Realisation::Striped => "striped",
                Realisation::Locked => "locked",
                Realisation::PerWorker => "per worker",
            },
            shard_by: match &table.sharding {
                plan::Sharding::By(key) => Some(key.clone()),
                _ => None,
            },
            sharding: sharding(self.program, &table.sharding),
            matched: self.matched(table.table),
        }
    }

    /// Uses only rows of the program. A running node reports rows that cannot be compiled.
    fn matched(&self, table: usize) -> Vec<Description> {
        let is_of = |decl: &&MatchDecl| usize::from(decl.table.0) == table;
        let decls: Vec<MatchDecl> = self.program.matches.iter().filter(is_of).cloned().collect();
        if decls.is_empty() {
            return Vec::new();
        }
        let program = ChainProgram { matches: decls, ..self.program.clone() };
        let Ok((_, bound)) = StateStore::new(1, HashKey::from_seed(0)).stage().bind(program) else {
            return Vec::new();
        };
        bound.for_worker(0).matchers.iter().map(|matcher| matcher.describe()).collect()
    }
}
