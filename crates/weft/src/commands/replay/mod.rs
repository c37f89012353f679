//! `weft replay`: runs chains on the packets of captures.

mod choice;
mod inputs;
pub(super) mod output;
mod report;
#[cfg(test)]
mod tests;
use crate::machine::Machine;
use crate::machine::check_for;
use crate::source;
use weft_control::check::Accepted;
use weft_control::check::at_fault;
use weft_control::packets::PlanBuilder;
use weft_engine::state::Staged;
use weft_ir::backend::Backend;
use weft_lang::diagnostic::Diagnostic;
use weft_opt::judge::Lowered;

use crate::cli::{Output, ReplayArgs, Speed};
use crate::fault::Fault;
use crate::progress::Progress;
use crate::running::backend;
use crate::source::require;
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
use weft_control::definition_files::DefinitionFiles;
use weft_control::status::RowsRefused;
use weft_control::tables::{ask, note_refused, sent_changes};
use weft_core::frame::{Frame, Pool};
use weft_core::hash::HashKey;
use weft_core::{Interval, Time};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::{PacketConfig, PacketEngine, Watch};
use weft_engine::plan::SinkTarget;
use weft_engine::rules::{Change, TableName, TableView};
use weft_engine::sinks::TableRow;
use weft_engine::state::StateStore;
use weft_io::clock;
use weft_io::packet::Link;
use weft_lang::hir::{Chain, Network, Port, PortKind};
use weft_lang::source::SourceMap;

/// The maximum number of ON EVERY runs between two packets, and of other timers. The rest of a longer gap is one step.
const CATCH_UP_MAX: usize = 10_000;
/// A rule that a packet adds takes effect after this time of the capture: a running node takes that long.
const LEARNS_WITHIN: Interval = Interval::from_millis(2);
/// The interval between searches for expired rows, as on a node.
const AGES_WITHIN: Interval = Interval::from_millis(100);
/// The longest sleep, at recorded speed.
const NAP_MAX: Duration = Duration::from_millis(200);

/// Compiles the wanted chains for one worker.
fn compiled(
    network: &Network,
    lowered: Lowered,
    state: &mut Staged,
    backend: &dyn Backend,
    wanted: impl Fn(&Chain) -> bool,
) -> Result<PacketPlan, Vec<Diagnostic>> {
    let mut builder = PlanBuilder { network, version: 1, state, backend, host: &Machine };
    builder.packets(lowered, wanted)
}

/// Runs `weft replay`.
pub(crate) fn run(args: &ReplayArgs) -> Result<(), Fault> {
    require(&args.file)?;
    let mut checked = check_for(&args.file, &mut source::on_disk(), |_| 1);
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(Accepted { network, lowered }) = checked.accepted.take() else {
        return Err(Fault::reported(checked.at_fault));
    };
    let network = &network;
    let choice = Choice::of(network, args)?;
    let tell = |diagnostics: Vec<_>| {
        stderr::diagnostics(&diagnostics, &checked.sources);
        Fault::reported(at_fault(&diagnostics))
    };
    let is_meant = |chain: &Chain| choice.chains.iter().any(|meant| meant.name == chain.name);
    let backend = backend(args.backend)?;
    let mut store = StateStore::new(1, HashKey::from_seed(args.seed));
    let mut staged = store.stage();
    let plan = compiled(network, lowered.clone(), &mut staged, &*backend, is_meant).map_err(tell)?;
    store.commit(staged);

    let links: Vec<Link> = network.ports.iter().map(link_of).collect();
    let inputs = Inputs::open(&choice.arrivals, &plan, &links, args)?;
    let tables = Tables::new(network, &checked.sources, store, &plan);
    // Report a wrong query before reading a long capture.
    tables.ask(&args.query, Time::default())?;
    let mut replay = Replay::new(Arc::new(plan), &links, args, inputs)?;
    replay.tables = Some(tables);
    replay.make_cut_code = Some(Box::new(|store| {
        let lowered = lowered.clone().for_cut_frames(network, &checked.sources, 1).map_err(tell)?;
        let mut state = store.stage();
        state.keep_rows();
        let mut plan = compiled(network, lowered, &mut state, &*backend, is_meant).map_err(tell)?;
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

/// The link type of a port.
fn link_of(port: &Port) -> Link {
    if port.kind == PortKind::Tun { Link::Ip } else { Link::Ethernet }
}

/// The one of two progress measures that will end first.
fn nearer_limit(bytes: (u64, Option<u64>), packets: (u64, Option<u64>)) -> (u64, Option<u64>) {
    let (Some(all_bytes), Some(all_packets)) = (bytes.1, packets.1) else {
        return if packets.1.is_some() { packets } else { bytes };
    };
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let is_limit_nearer = product(packets.0, all_bytes) > product(bytes.0, all_packets);
    if is_limit_nearer { packets } else { bytes }
}

/// The observer of each frame's outcome, if the capture is annotated.
fn observer(annotated: &mut Option<Annotated>) -> Option<&mut dyn Watch> {
    annotated.as_mut().map(|annotated| annotated as &mut dyn Watch)
}

/// Compiles code for truncated frames, with the current state.
type MakeCutCode<'n> = Box<dyn Fn(&StateStore) -> Result<PacketPlan, Fault> + 'n>;

/// A replay in progress.
struct Replay<'a, 'n> {
    args: &'a ReplayArgs,
    plan: Arc<PacketPlan>,
    inputs: Inputs,
    pool: Pool,
    /// Starts with the first packet: its time is that of the captures.
    engine: Option<PacketEngine>,
    outputs: Outputs,
    annotated: Option<Annotated>,
    /// Frames under way; empty between two batches.
    frames: Vec<Frame>,
    /// Sent frames with their ports, until they are written.
    left: Vec<(u16, Frame)>,
    n: u64,
    rows: Vec<(String, u64)>,
    /// None if no row changes anything.
    tables: Option<Tables<'n>>,
    /// Compiles code for truncated frames, with the state of `plan`. Without it these frames run the normal code.
    make_cut_code: Option<MakeCutCode<'n>>,
    /// The code for truncated frames, once the first one has come.
    cut_plan: Option<Arc<PacketPlan>>,
    /// The code for truncated frames is active.
    runs_cut_code: bool,
    /// An extra output for rows.
    rows_out: Option<RowsFile>,
    /// The times of the earliest packet and of the latest.
    times: Option<(Time, Time)>,
    /// The time of the last packet.
    last: Time,
}

/// The tables, and the rows that handlers send to tables of rules.
struct Tables<'a> {
    network: &'a Network,
    sources: &'a SourceMap,
    store: StateStore,
    /// Chains have sinks `TO TABLE`.
    learns: bool,
    /// Rows that the tables refused.
    refused: RowsRefused,
    /// The time of the next search for expired rows; None if no table has expiry.
    look_at: Option<Time>,
}

impl<'a> Tables<'a> {
    fn new(network: &'a Network, sources: &'a SourceMap, mut store: StateStore, plan: &PacketPlan) -> Self {
        let mut sinks = plan.chains.iter().flat_map(|chain| &chain.program.sinks);
        let learns = sinks.any(|sink| matches!(sink.target, SinkTarget::Table { .. }));
        let look_at = store.has_expiring_rows().then(Time::default);
        Self { network, sources, store, learns, refused: RowsRefused::new(), look_at }
    }

    /// The number of unreported evictions of each table that has any.
    fn evicted_untold(&self) -> BTreeMap<String, u64> {
        let of = |view: TableView| {
            let n = view.tables.iter().map(|table| table.evicted_untold()).sum();
            (view.name.to_string(), n)
        };
        self.store.tables().into_iter().map(of).filter(|(_, n)| *n > 0).collect()
    }

    /// Executes queries on the tables, and returns the answers.
    fn ask(&self, questions: &[String], now: Time) -> Result<Vec<QueryResult>, Fault> {
        let mut answers = Vec::new();
        for text in questions {
            let asked = ask((self.network, self.sources), &self.store, text, now);
            answers.extend(asked.map_err(|(diagnostics, sources)| {
                stderr::diagnostics(&diagnostics, &sources);
                Fault::reported(at_fault(&diagnostics))
            })?);
        }
        Ok(answers)
    }

    /// Changes tables as a node does; the engine sees it at once.
    fn apply_rows(&mut self, rows: Vec<TableRow>, now: Time, engine: &mut PacketEngine) {
        let (changes, refused) = sent_changes(self.network, rows.into_iter());
        refused.into_iter().for_each(|(name, n)| note_refused(&mut self.refused, name, n));
        for (name, changes) in changes {
            let refused = self.change(&name, changes, now, engine);
            note_refused(&mut self.refused, name.to_string(), refused);
        }
    }

    /// Removes expired rows.
    fn expire_rows(&mut self, now: Time, engine: &mut PacketEngine) {
        self.look_at = Some(now + AGES_WITHIN);
        for (name, changes) in self.store.expired(now) {
            self.change(&name, changes, now, engine);
        }
    }

    /// Changes a table, and counts refused rows.
    fn change(
        &mut self,
        name: &TableName,
        changes: Vec<Change>,
        now: Time,
        engine: &mut PacketEngine,
    ) -> u64 {
        let (pending, refused) = self.store.change_where_possible(name, changes, now);
        if let Some(pending) = pending {
            engine.apply_swap(&pending.swap);
            self.store.settle(pending);
        }
        refused
    }
}

impl<'a, 'n> Replay<'a, 'n> {
    /// Opens the outputs of a replay and starts its engine.
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

    /// Runs the replay; returns the report, and a fault if a capture was not whole.
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
                false => self.run_batch(&mut batch)?,
            }
            progress.show(self.n, self.done());
        }
        self.finish()?;
        drop(progress);
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
            lines: self
                .tables
                .as_ref()
                .map(|of| DefinitionFiles { network: of.network, sources: of.sources }),
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

    /// The finished work, and the total: bytes of the files, or packets if their limit comes sooner.
    fn done(&self) -> (u64, Option<u64>) {
        nearer_limit(self.inputs.progress(), (self.n, self.args.limit))
    }

    /// Runs a batch; runs timers that are due between its packets.
    fn run_batch(&mut self, batch: &mut Vec<Frame>) -> Result<(), Fault> {
        let mut batch = batch.drain(..).peekable();
        while let Some(first) = batch.peek() {
            let (now, port, is_cut) = (first.meta.arrived, first.meta.port, first.cut > 0);
            self.catch_up(now)?;
            self.run_code_for(is_cut)?;
            // By then a node would have applied the rules that earlier packets add.
            let learns = self.tables.as_ref().filter(|tables| tables.learns).map(|_| now + LEARNS_WITHIN);
            let ages = self.tables.as_ref().and_then(|tables| tables.look_at);
            let engine = self.engine.as_ref().and_then(PacketEngine::poll_timeout);
            let until = engine.into_iter().chain(learns).chain(ages).min();
            self.frames.extend(batch.next());
            // Expired fragments are reported before the next batch passes; with one packet per batch everything is in
            // order.
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
            let watch = observer(&mut self.annotated);
            let engine = self.engine.as_mut().expect("it has begun");
            engine.handle_batch(now, port, &mut self.frames, &mut self.pool, watch);
            self.send()?;
        }
        Ok(())
    }

    /// Activates the code for whole frames, or for truncated ones.
    fn run_code_for(&mut self, is_cut: bool) -> Result<(), Fault> {
        let (Some(make), Some(tables)) = (&self.make_cut_code, &self.tables) else { return Ok(()) };
        if is_cut && self.cut_plan.is_none() {
            self.cut_plan = Some(Arc::new(make(&tables.store)?));
        }
        if core::mem::replace(&mut self.runs_cut_code, is_cut) != is_cut {
            let plan = self.cut_plan.as_ref().filter(|_| is_cut).unwrap_or(&self.plan);
            self.engine.as_mut().expect("it has begun").apply_code(plan);
        }
        Ok(())
    }

    /// Advances the engine to a time of the capture: expires rows, runs due timers, and collects output.
    fn catch_up(&mut self, now: Time) -> Result<(), Fault> {
        let config = PacketConfig { seed: self.args.seed, ..PacketConfig::default() };
        let plan = &self.plan;
        let engine = self.engine.get_or_insert_with(|| PacketEngine::new(now, config, Arc::clone(plan)));
        if let Some(tables) = self.tables.as_mut().filter(|rows| rows.look_at.is_some_and(|at| at <= now)) {
            tables.expire_rows(now, engine);
        }
        // Between two packets, wake the engine only for events that can be observed, so that a gap costs only these. At
        // the end of time, periodic events would be due for ever.
        let mut left = [CATCH_UP_MAX; 2];
        for _ in 0..4 * CATCH_UP_MAX {
            let engine = self.engine.as_mut().expect("it has begun");
            let Some((at, is_every)) = engine.poll_effect().filter(|(at, _)| *at <= now) else { break };
            let left = &mut left[usize::from(is_every)];
            let at = if *left > 0 { at } else { now };
            *left = left.saturating_sub(1);
            let watch = observer(&mut self.annotated);
            engine.handle_timeout(at, &mut self.pool, watch);
            self.send()?;
        }
        if let Some(engine) = self.engine.as_mut().filter(|of| of.poll_timeout().is_some_and(|at| at <= now))
        {
            let watch = observer(&mut self.annotated);
            engine.handle_timeout(now, &mut self.pool, watch);
            self.send()?;
        }
        Ok(())
    }

    /// No packet has come: at recorded speed the next one is not due yet.
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

    /// Sends delayed frames, and runs handlers for rows that have left their tables.
    fn finish(&mut self) -> Result<(), Fault> {
        // A handler that evicts rows may cause other evictions.
        for _ in 0..CATCH_UP_MAX {
            let is_more = self.engine.as_mut().is_some_and(|engine| engine.run_expired(self.last));
            self.send()?;
            if !is_more {
                break;
            }
        }
        while let Some(engine) = self.engine.as_mut().filter(|engine| engine.delayed() > 0) {
            let Some(at) = engine.poll_timeout() else { break };
            let watch = observer(&mut self.annotated);
            engine.handle_timeout(at, &mut self.pool, watch);
            self.send()?;
        }
        // Leave the time as it is: no later packet is in the captures.
        if let Some(engine) = &mut self.engine {
            engine.expire_fragments();
            let watch = observer(&mut self.annotated);
            engine.drop_held(&mut self.pool, watch);
        }
        if let (Some(annotated), Some(engine)) = (&mut self.annotated, &mut self.engine) {
            // Fragments that have expired since are reported with the next batch of a port that tracks fragments.
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

    /// Collects the engine's output.
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
            tables.apply_rows(for_tables, self.last, engine);
        }
        // Frames come port by port; a file has them in order of time.
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
