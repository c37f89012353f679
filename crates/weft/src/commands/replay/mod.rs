//! `weft replay`: what chains do with the packets of captures.

mod choice;
mod inputs;
pub(super) mod output;
mod report;
#[cfg(test)]
mod tests;

use crate::cli::{Output, ReplayArgs, Speed};
use crate::compile::check_files;
use crate::fault::Fault;
use crate::lines::Lines;
use crate::packets;
use crate::progress::Progress;
use crate::running::{RowsRefused, ask, backend, changes_of, note_refused};
use crate::source::{Files, require};
use crate::stderr;
use crate::stdout;
use choice::Choice;
use inputs::Inputs;
use output::{Annotated, Outputs, RowsFile, spare_input};
use report::Report;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_api::QueryResult;
use weft_core::frame::{Frame, Pool};
use weft_core::hash::HashKey;
use weft_core::{Interval, Time};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::{PacketConfig, PacketEngine, Watch};
use weft_engine::plan::SinkTarget;
use weft_engine::rules::{Change, TableName, TableView};
use weft_engine::state::StateStore;
use weft_io::packet::Link;
use weft_io::{TableRow, clock};
use weft_lang::hir::{Chain, Network, Port, PortKind};
use weft_lang::source::SourceMap;

/// How often ON EVERY runs between two packets, and how often all else happens by itself; what lies beyond in a longer
/// gap happens at once.
const CATCH_UP_MAX: usize = 10_000;
/// Packets of so much time of the capture do not see what the first of them has told a table of rules: a running node
/// takes as long to do it.
const LEARNS_WITHIN: Interval = Interval::from_millis(2);
/// Rows that are too old are looked for so often, as on a node.
const AGES_WITHIN: Interval = Interval::from_millis(100);
/// Seconds that are slept at once, at recorded speed.
const NAP_MAX: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Fault> {
    require(&args.file)?;
    let checked = check_files(&args.file, &mut Files::on_disk());
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(network) = &checked.network else { return Err(Fault::told(checked.at_fault)) };
    let choice = Choice::of(network, args)?;
    let tell = |diagnostics: Vec<_>| {
        stderr::diagnostics(&diagnostics, &checked.sources);
        Fault::told(crate::compile::at_fault(&diagnostics))
    };
    let is_meant = |chain: &Chain| choice.chains.iter().any(|meant| meant.name == chain.name);
    let lowered = packets::lower(network, &checked.sources, 1, is_meant).map_err(tell)?;
    let backend = backend(args.backend)?;
    let mut store = StateStore::new(1, HashKey::from_seed(args.seed));
    let mut staged = store.stage();
    let plan = packets::plan(network, lowered, 1, &mut staged, &*backend).map_err(tell)?;
    store.commit(staged);

    let links: Vec<Link> = network.ports.iter().map(link_of).collect();
    let inputs = Inputs::open(&choice.arrivals, &plan, &links, args)?;
    let tables = Tables::new(network, &checked.sources, store, &plan);
    // What is wrong with a question is told before a long capture is read.
    tables.ask(&args.query, Time::default())?;
    let mut replay = Replay::new(Arc::new(plan), &links, args, inputs)?;
    replay.tables = Some(tables);
    replay.make_cut_code = Some(Box::new(|store| {
        let lowered = packets::lower_cut(network, &checked.sources, is_meant).map_err(tell)?;
        let mut state = store.stage();
        state.keep_rows();
        let mut plan = packets::plan(network, lowered, 1, &mut state, &*backend).map_err(tell)?;
        plan.forget_rules();
        Ok(plan)
    }));
    let (report, ended) = replay.run()?;
    if let Some(link) = network.links.first() {
        let name = &link.name;
        stderr::line(format_args!(
            "weft: link `{name}` holds nothing up here: `weft sim run` and `weft link emulate` try queues"
        ));
    }
    stdout::print(&match args.output {
        Output::Json => format!("{}\n", report.json()),
        Output::Table => report.table(),
    })?;
    ended
}

/// What packets begin with at a port.
fn link_of(port: &Port) -> Link {
    if port.kind == PortKind::Tun { Link::Ip } else { Link::Ethernet }
}

/// Of two measures of the same work, that which will be at its end first.
fn nearer_end(bytes: (u64, Option<u64>), packets: (u64, Option<u64>)) -> (u64, Option<u64>) {
    let (Some(all_bytes), Some(all_packets)) = (bytes.1, packets.1) else {
        return if packets.1.is_some() { packets } else { bytes };
    };
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let is_limit_nearer = product(packets.0, all_bytes) > product(bytes.0, all_packets);
    if is_limit_nearer { packets } else { bytes }
}

/// What the engine tells the end of each frame, if the capture is annotated.
fn watched(annotated: &mut Option<Annotated>) -> Option<&mut dyn Watch> {
    annotated.as_mut().map(|annotated| annotated as &mut dyn Watch)
}

/// Makes code for frames that were cut, with the state that there is.
type MakeCutCode<'n> = Box<dyn Fn(&StateStore) -> Result<PacketPlan, Fault> + 'n>;

/// A replay under way.
struct Replay<'a, 'n> {
    args: &'a ReplayArgs,
    plan: Arc<PacketPlan>,
    inputs: Inputs,
    pool: Pool,
    /// It begins with the first packet: its time is that of the captures.
    engine: Option<PacketEngine>,
    outputs: Outputs,
    annotated: Option<Annotated>,
    /// Frames on their way; empty between two batches.
    frames: Vec<Frame>,
    /// What leaves by which port, until it is written.
    left: Vec<(u16, Frame)>,
    n: u64,
    rows: Vec<(String, u64)>,
    /// None: no row changes anything.
    tables: Option<Tables<'n>>,
    /// Makes code with the state of `plan` for frames of which the captures have only the beginning; without it these
    /// run as the others.
    make_cut_code: Option<MakeCutCode<'n>>,
    /// That code, since the first of them has come.
    cut_plan: Option<Arc<PacketPlan>>,
    /// It runs now.
    runs_cut_code: bool,
    /// Where rows go besides.
    rows_out: Option<RowsFile>,
    /// The times of the earliest packet and of the latest.
    times: Option<(Time, Time)>,
    /// Of the packet that came last.
    last: Time,
}

/// The tables, and what handlers tell those of rules.
struct Tables<'a> {
    network: &'a Network,
    sources: &'a SourceMap,
    store: StateStore,
    /// Chains have sinks `TO TABLE`.
    learns: bool,
    /// Rows that the tables did not take.
    refused: RowsRefused,
    /// When rows may be too old; None: there are none that age.
    look_at: Option<Time>,
}

impl<'a> Tables<'a> {
    fn new(network: &'a Network, sources: &'a SourceMap, mut store: StateStore, plan: &PacketPlan) -> Self {
        let mut sinks = plan.chains.iter().flat_map(|chain| &chain.program.sinks);
        let learns = sinks.any(|sink| matches!(sink.target, SinkTarget::Table { .. }));
        let look_at = store.ages().then(Time::default);
        Self { network, sources, store, learns, refused: RowsRefused::new(), look_at }
    }

    /// How many rows of each were given up untold, of those that were.
    fn evicted_untold(&self) -> BTreeMap<String, u64> {
        let of = |view: TableView| {
            let n = view.tables.iter().map(|table| table.evicted_untold()).sum();
            (view.name.to_string(), n)
        };
        self.store.tables().into_iter().map(of).filter(|(_, n)| *n > 0).collect()
    }

    /// What the tables answer.
    fn ask(&self, questions: &[String], now: Time) -> Result<Vec<QueryResult>, Fault> {
        let mut answers = Vec::new();
        for text in questions {
            let asked = ask((self.network, self.sources), &self.store, text, now);
            answers.extend(asked.map_err(|(diagnostics, sources)| {
                stderr::diagnostics(&diagnostics, &sources);
                Fault::told(crate::compile::at_fault(&diagnostics))
            })?);
        }
        Ok(answers)
    }

    /// Changes tables as a node does, and the engine sees it at once.
    fn take(&mut self, rows: Vec<TableRow>, now: Time, engine: &mut PacketEngine) {
        let (changes, refused) = changes_of(self.network, rows.into_iter());
        refused.into_iter().for_each(|(name, n)| note_refused(&mut self.refused, name, n));
        for (name, changes) in changes {
            let refused = self.change(&name, changes, now, engine);
            note_refused(&mut self.refused, name.to_string(), refused);
        }
    }

    /// Takes out rows that are too old.
    fn age(&mut self, now: Time, engine: &mut PacketEngine) {
        self.look_at = Some(now + AGES_WITHIN);
        for (name, changes) in self.store.expired(now) {
            self.change(&name, changes, now, engine);
        }
    }

    /// Says how many changes a table did not take.
    fn change(
        &mut self,
        name: &TableName,
        changes: Vec<Change>,
        now: Time,
        engine: &mut PacketEngine,
    ) -> u64 {
        let (pending, refused) = self.store.change_what_goes(name, changes, now);
        if let Some(pending) = pending {
            engine.take_up(&pending.swap);
            self.store.settle(pending);
        }
        refused
    }
}

impl<'a, 'n> Replay<'a, 'n> {
    fn new(
        plan: Arc<PacketPlan>,
        links: &[Link],
        args: &'a ReplayArgs,
        inputs: Inputs,
    ) -> Result<Self, Fault> {
        spare_input(args, &inputs, &plan)?;
        let (mut outputs, mut annotated) = (Outputs::nowhere(), None);
        match (&args.out, &args.out_dir) {
            (Some(path), _) if args.annotate => annotated = Some(Annotated::create(path, links, &plan)?),
            (Some(path), _) => outputs = Outputs::to_file(path, links, &inputs, &plan)?,
            (None, Some(folder)) => outputs = Outputs::to_folder(folder, links, &plan)?,
            (None, None) => {}
        }
        Ok(Self {
            args,
            plan,
            pool: inputs.pool(),
            inputs,
            engine: None,
            outputs,
            annotated,
            frames: Vec::new(),
            left: Vec::new(),
            n: 0,
            rows: Vec::new(),
            tables: None,
            make_cut_code: None,
            cut_plan: None,
            runs_cut_code: false,
            rows_out: args.rows.as_deref().map(RowsFile::create).transpose()?,
            times: None,
            last: Time::default(),
        })
    }

    /// What came of it, and whether the captures were whole.
    fn run(mut self) -> Result<(Report<'n>, Result<(), Fault>), Fault> {
        let begun = Instant::now();
        let mut progress = Progress::new(begun);
        let mut batch = Vec::new();
        loop {
            let left = self.args.limit.unwrap_or(u64::MAX) - self.n;
            if left == 0 || self.inputs.is_finished() {
                break;
            }
            self.inputs.receive(&mut self.pool, &mut batch, left, clock::now());
            match batch.is_empty() {
                true => self.wait()?,
                false => self.take(&mut batch)?,
            }
            progress.show(self.n, self.done());
        }
        self.finish()?;
        progress.clear();
        let tables = self.tables.as_ref();
        let answers = tables.map_or(Ok(Vec::new()), |tables| tables.ask(&self.args.query, self.last))?;
        let took = begun.elapsed();
        let stats = self.engine.as_ref().map(PacketEngine::stats).unwrap_or_default();
        let span = self.times.map_or(Interval::ZERO, |(earliest, latest)| latest - earliest);
        let (inputs, ended) = self.inputs.close(&self.plan);
        let report = Report {
            chains: self.plan.chains.iter().map(|chain| chain.program.name.clone()).collect(),
            inputs,
            packets: self.n,
            took,
            span,
            rows: self.rows,
            lines: self.tables.as_ref().map(|of| Lines { network: of.network, sources: of.sources }),
            evicted_untold: tables.map(Tables::evicted_untold).unwrap_or_default(),
            rows_refused: self.tables.map(|tables| tables.refused).unwrap_or_default(),
            answers,
            stats,
        };
        if let Some(note) = self.outputs.note() {
            stderr::line(format_args!("weft: {note}"));
        }
        Ok((report, ended))
    }

    /// How much of the work is done, and all of it: bytes of the files, or packets where their limit comes sooner.
    fn done(&self) -> (u64, Option<u64>) {
        nearer_end(self.inputs.progress(), (self.n, self.args.limit))
    }

    /// Runs a batch; timers that are due between its packets go off between them.
    fn take(&mut self, batch: &mut Vec<Frame>) -> Result<(), Fault> {
        let mut batch = batch.drain(..).peekable();
        while let Some(first) = batch.peek() {
            let (now, port, is_cut) = (first.meta.arrived, first.meta.port, first.cut > 0);
            self.catch_up(now)?;
            self.run_code_for(is_cut)?;
            // A node would have done by then what packets say to it.
            let learns = self.tables.as_ref().filter(|tables| tables.learns).map(|_| now + LEARNS_WITHIN);
            let ages = self.tables.as_ref().and_then(|tables| tables.look_at);
            let engine = self.engine.as_ref().and_then(PacketEngine::poll_timeout);
            let until = engine.into_iter().chain(learns).chain(ages).min();
            self.frames.extend(batch.next());
            // Fragments that are given up are told of before their batch passes: one by one, all stand in order.
            let is_alone = self.annotated.is_some();
            let is_with = |next: &Frame| {
                let is_alike = next.meta.port == port && (next.cut > 0) == is_cut;
                !is_alone && is_alike && until.is_none_or(|at| next.meta.arrived < at)
            };
            while let Some(frame) = batch.next_if(is_with) {
                self.frames.push(frame);
            }
            self.n += self.frames.len() as u64;
            for Frame { meta, .. } in &self.frames {
                let (earliest, latest) = self.times.unwrap_or((meta.arrived, meta.arrived));
                self.times = Some((earliest.min(meta.arrived), latest.max(meta.arrived)));
            }
            self.last = self.frames.last().map_or(now, |frame| frame.meta.arrived);
            let watch = watched(&mut self.annotated);
            let engine = self.engine.as_mut().expect("it has begun");
            engine.handle_batch(now, port, &mut self.frames, &mut self.pool, watch);
            self.send()?;
        }
        Ok(())
    }

    /// Has the engine run the code for frames that are whole, or for those that were cut.
    fn run_code_for(&mut self, is_cut: bool) -> Result<(), Fault> {
        let (Some(make), Some(tables)) = (&self.make_cut_code, &self.tables) else { return Ok(()) };
        if is_cut && self.cut_plan.is_none() {
            self.cut_plan = Some(Arc::new(make(&tables.store)?));
        }
        if core::mem::replace(&mut self.runs_cut_code, is_cut) != is_cut {
            let plan = self.cut_plan.as_ref().filter(|_| is_cut).unwrap_or(&self.plan);
            self.engine.as_mut().expect("it has begun").take_code(plan);
        }
        Ok(())
    }

    /// Lets the time of the capture pass.
    fn catch_up(&mut self, now: Time) -> Result<(), Fault> {
        let config = PacketConfig { seed: self.args.seed, ..PacketConfig::default() };
        let plan = &self.plan;
        let engine = self.engine.get_or_insert_with(|| PacketEngine::new(now, config, Arc::clone(plan)));
        if let Some(tables) = self.tables.as_mut().filter(|rows| rows.look_at.is_some_and(|at| at <= now)) {
            tables.age(now, engine);
        }
        // Between two packets the engine is woken for what can be observed alone, so that a gap costs what happens in
        // it. Where time ends, what is to come again is always due.
        let mut left = [CATCH_UP_MAX; 2];
        for _ in 0..4 * CATCH_UP_MAX {
            let engine = self.engine.as_mut().expect("it has begun");
            let Some((at, is_every)) = engine.poll_effect().filter(|(at, _)| *at <= now) else { break };
            let left = &mut left[usize::from(is_every)];
            let at = if *left > 0 { at } else { now };
            *left = left.saturating_sub(1);
            let watch = watched(&mut self.annotated);
            engine.handle_timeout(at, &mut self.pool, watch);
            self.send()?;
        }
        if let Some(engine) = self.engine.as_mut().filter(|of| of.poll_timeout().is_some_and(|at| at <= now))
        {
            let watch = watched(&mut self.annotated);
            engine.handle_timeout(now, &mut self.pool, watch);
            self.send()?;
        }
        Ok(())
    }

    /// Nothing has come: at recorded speed the next packet is still to come.
    fn wait(&mut self) -> Result<(), Fault> {
        let engine = self.engine.as_ref().and_then(PacketEngine::poll_timeout);
        let next = self.inputs.poll_timeout().into_iter().chain(engine).min();
        if self.inputs.is_finished() {
            return Ok(());
        }
        if let Some(next) = next {
            let left = Duration::from_nanos((next - clock::now()).0.max(0) as u64);
            std::thread::sleep(left.min(NAP_MAX));
        }
        if self.engine.is_some() && self.args.speed == Speed::Recorded {
            self.catch_up(clock::now())?;
        }
        Ok(())
    }

    /// What is delayed leaves, and handlers hear of rows that have left their tables by now.
    fn finish(&mut self) -> Result<(), Fault> {
        // A handler of rows that make room may make others go.
        for _ in 0..CATCH_UP_MAX {
            let is_more = self.engine.as_mut().is_some_and(|engine| engine.tell_departed(self.last));
            self.send()?;
            if !is_more {
                break;
            }
        }
        while let Some(engine) = self.engine.as_mut().filter(|engine| engine.delayed() > 0) {
            let Some(at) = engine.poll_timeout() else { break };
            let watch = watched(&mut self.annotated);
            engine.handle_timeout(at, &mut self.pool, watch);
            self.send()?;
        }
        // Nobody waits for what is not in the captures: time stays where it is.
        if let Some(engine) = &mut self.engine {
            engine.give_up_fragments();
            let watch = watched(&mut self.annotated);
            engine.give_up_held(&mut self.pool, watch);
        }
        if let (Some(annotated), Some(engine)) = (&mut self.annotated, &mut self.engine) {
            // Fragments that were given up since are told of with the next batch of a port that follows them.
            for port in self.inputs.ports() {
                engine.handle_batch(self.last, port, &mut self.frames, &mut self.pool, Some(annotated));
            }
        }
        if let Some(annotated) = &mut self.annotated {
            annotated.finish()?;
        }
        if let Some(file) = &mut self.rows_out {
            file.finish()?;
        }
        self.outputs.finish()
    }

    /// Takes what the engine has made.
    fn send(&mut self) -> Result<(), Fault> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let rows = engine.rows();
        let mut for_tables = Vec::new();
        for row in rows.rows() {
            for_tables.extend(TableRow::of(&row));
            if let Some(file) = &mut self.rows_out {
                file.write(&row)?;
            }
            let name = format!("{}.{}", row.sink.owner, row.sink.name);
            match self.rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, n)) => *n += 1,
                None => self.rows.push((name, 1)),
            }
        }
        rows.clear();
        if let Some(tables) = self.tables.as_mut().filter(|_| !for_tables.is_empty()) {
            tables.take(for_tables, self.last, engine);
        }
        // They come port by port; a file has them in the order of their times.
        while let Some(port) = engine.poll_output(&mut self.frames) {
            self.left.extend(self.frames.drain(..).map(|frame| (port, frame)));
        }
        self.left.sort_by_key(|(_, frame)| frame.meta.arrived);
        for (port, frame) in self.left.drain(..) {
            self.outputs.write(port, &frame, self.pool.bytes(&frame))?;
            self.pool.give(frame);
        }
        if let Some(annotated) = &mut self.annotated {
            annotated.flush()?;
        }
        Ok(())
    }
}
