//! `weft sim no-silver-bullet`: each job is one seed of one comparison, and results are merged by job number. Jobs of a
//! seed are adjacent, so that a stopped run has complete seeds.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::args::SilverBulletArgs;
use super::program::Program;
use super::recorded::RecordedDiscipline;
use super::report::{Column, Links, Report};
use super::{Console, pool, queue_seed, read_trace, report_missing_seeds, sender};
use weft_control::fault::Fault;
use weft_control::recording::LinkSetup;
use weft_sim::net::silver_bullet::{
    COMPARISONS, Comparison, Configuration, LinkKind, Outcome, newreno_of_2013, synthetic_trace,
};
use weft_sim::net::{SenderSpec, Trace};

/// The number of seeds of the authors.
const SEEDS: u32 = 74;
/// With `--quick`: the number of seeds, and the divisor of the time.
const QUICK_SEEDS: u32 = 4;
const QUICK_PART: u32 = 5;

/// The inputs that all jobs share.
struct JobContext<'g> {
    /// The queue at the bottleneck, in the configuration that is not the paper's.
    program: &'g Program,
    /// Links of variable rate; generated if there are none.
    traces: &'g [Arc<Trace>],
    sender: SenderSpec,
    /// Records the program's requests in the first seed.
    is_recorded: bool,
}

/// The outcome of a job, and the recording of the program's link if requested.
type JobResult = (Outcome, Option<String>);

/// One seed of one comparison with one configuration.
struct Job {
    comparison: Comparison,
    configuration: Configuration,
    seed: u64,
    seconds: u32,
}

/// The results of the complete seeds.
#[derive(Default)]
struct Figures {
    seeds: u32,
    /// One for each comparison and configuration.
    columns: Vec<Column>,
    /// Outcomes of incomplete seeds, by job.
    waiting: BTreeMap<usize, Outcome>,
    /// Recordings of the first seed, in the order of the comparisons.
    recordings: Vec<String>,
}

/// Runs `weft sim no-silver-bullet`.
pub(super) fn run(args: &SilverBulletArgs, console: &dyn Console) -> Result<(), Fault> {
    let traces = args.traces.as_deref().map(|folder| read_traces(folder, console)).transpose()?;
    let program = match args.queue.as_deref() {
        None => Program::by_objective(console)?,
        Some(file) => Program::of_file(file, console)?,
    };
    let seeds = args.seeds.unwrap_or(if args.quick { QUICK_SEEDS } else { SEEDS });
    let part = if args.quick { QUICK_PART } else { 1 };
    args.output.claim_files(args.record.as_deref(), console)?;
    let stop = console.stop_requests()?;
    let began = Instant::now();
    let jobs = jobs(seeds, part);
    let context = JobContext {
        program: &program,
        traces: traces.as_deref().unwrap_or_default(),
        sender: sender(args.sender, &newreno_of_2013()),
        is_recorded: args.record.is_some(),
    };
    let Figures { seeds: done, columns, recordings, .. } =
        run_all(&jobs, &context, pool::threads(args.output.jobs), (&stop, console));
    report_missing_seeds(done, seeds, console)?;
    let links = match &traces {
        None => Links::Made,
        Some(traces) => Links::Traces(traces.len()),
    };
    let report = Report {
        columns,
        seeds: done,
        part,
        sender: args.sender,
        links,
        took: began.elapsed(),
        program: program.name().to_owned(),
    };
    let recorded = (args.record.as_deref(), &*recordings.concat());
    args.output.write_all(console, recorded, || report.chart().svg(), || report.json(), || report.text())
}

/// The traces of a folder, in order of their names.
fn read_traces(folder: &Path, console: &dyn Console) -> Result<Vec<Arc<Trace>>, Fault> {
    let fault = |path: &Path, error: io::Error| Fault::environment(format!("{}: {error}", path.display()));
    let entries = fs::read_dir(folder).map_err(|error| fault(folder, error))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "down" || ending == "up"));
    paths.sort();
    if paths.is_empty() {
        return Err(Fault::Input(format!("{}: no file whose name ends in .down or .up", folder.display())));
    }
    paths.iter().map(|path| read_trace(path, console)).collect()
}

/// The number of jobs per seed.
const JOBS_A_SEED: usize = COMPARISONS.len() * Configuration::ALL.len();

/// Lists all jobs, seed by seed.
fn jobs(seeds: u32, part: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for seed in 1..=u64::from(seeds) {
        for comparison in COMPARISONS {
            let seconds = comparison.seconds / part;
            let one = |configuration| Job { comparison, configuration, seed, seconds };
            jobs.extend(Configuration::ALL.map(one));
        }
    }
    jobs
}

/// Runs the jobs on a number of threads until a stop request; returns the figures of all complete seeds.
fn run_all(
    jobs: &[Job],
    context: &JobContext<'_>,
    threads: usize,
    (stop, console): (&Receiver<()>, &dyn Console),
) -> Figures {
    let all: u64 = jobs.iter().map(|job| u64::from(job.seconds)).sum();
    let mut progress = console.progress();
    let (mut packets, mut seconds) = (0, 0);
    let (mut figures, mut recordings) = (Figures::default(), BTreeMap::new());
    let run = |job: &Job, _: &AtomicBool| run_one(job, context);
    pool::run_all(jobs, threads, stop, run, |done| {
        let Some((number, (outcome, recording))) = done else { return };
        packets += outcome.packets;
        seconds += u64::from(jobs[number].seconds);
        progress(packets, (seconds, Some(all)));
        figures.take(jobs, number, outcome);
        recordings.extend(recording.map(|text| (number, text)));
    });
    figures.recordings = recordings.into_values().collect();
    figures
}

/// Simulates one seed of one comparison with one configuration or the user's program.
fn run_one(job: &Job, context: &JobContext<'_>) -> JobResult {
    let trace = (job.comparison.link == LinkKind::Lte).then(|| match context.traces {
        [] => synthetic_trace(job.seed, 0, job.seconds),
        traces => traces[job.seed as usize % traces.len()].clone(),
    });
    let run = |queue| job.comparison.run(queue, trace, context.sender, job.seed, job.seconds);
    if let Some(queue) = job.configuration.discipline() {
        return (run(queue), None);
    }
    let seed = queue_seed(job.seed, 0);
    let queue = context.program.discipline(seed);
    if !(context.is_recorded && job.seed == 1) {
        return (run(queue), None);
    }
    let (queue, recorder) = RecordedDiscipline::new(queue, seed);
    let outcome = run(Box::new(queue));
    let ran = LinkSetup {
        link: job.comparison.name,
        rate: job.comparison.bits_per_s(),
        calls: None,
        program: context.program.bundle(),
        queue: Some(context.program.name()),
    };
    let recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    (outcome, Some(weft_control::recording::text(&ran, &recorder)))
}

impl Figures {
    /// Adds the outcome of a job. Seeds are merged in order, each when it is complete.
    fn take(&mut self, jobs: &[Job], number: usize, outcome: Outcome) {
        self.waiting.insert(number, outcome);
        loop {
            let first = self.seeds as usize * JOBS_A_SEED;
            if self.waiting.range(first..first + JOBS_A_SEED).count() < JOBS_A_SEED {
                return;
            }
            for nth in 0..JOBS_A_SEED {
                let Some(outcome) = self.waiting.remove(&(first + nth)) else { continue };
                let job = &jobs[first + nth];
                match self.columns.get_mut(nth) {
                    Some(column) => column.outcome.merge(&outcome),
                    None => self.columns.push(Column {
                        comparison: job.comparison,
                        configuration: job.configuration,
                        outcome,
                    }),
                }
            }
            self.seeds += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestConsole;
    use super::*;
    use crate::machine::Machine;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use weft_api::Bundle;
    use weft_control::check::check;
    use weft_control::files::Files;
    use weft_engine::queue::Queue;
    use weft_engine::recording;
    use weft_ir::queue::run::Interpreted;
    use weft_sim::net::silver_bullet::Application;

    /// The result would depend on the number of cores.
    #[test]
    fn thread_count_keeps_result() {
        let mut jobs = jobs(2, 1);
        jobs.iter_mut().for_each(|job| job.seconds = 5);
        let program = Program::by_objective(&TestConsole).expect("it compiles");
        let context =
            JobContext { program: &program, traces: &[], sender: newreno_of_2013(), is_recorded: false };
        let (_asks, stop) = channel();
        let figures = |threads| {
            let figure = |column: Column| {
                let application: Application = column.comparison.applications[0];
                (column.outcome.score(&column.comparison, application), column.outcome.packets)
            };
            let columns = run_all(&jobs, &context, threads, (&stop, &TestConsole)).columns;
            columns.into_iter().map(figure).collect::<Vec<_>>()
        };
        let (one, three) = (figures(1), figures(3));
        assert_eq!(one.len(), JOBS_A_SEED);
        assert_eq!(one, three);
    }

    /// A stopped run would have more seeds for some comparisons than for others, or would have to wait for all.
    #[test]
    fn stopped_run_has_whole_seeds() {
        let mut jobs = jobs(1000, 1);
        jobs.iter_mut().for_each(|job| job.seconds = 1);
        let program = Program::by_objective(&TestConsole).expect("it compiles");
        let context =
            JobContext { program: &program, traces: &[], sender: newreno_of_2013(), is_recorded: false };
        let (ask, stop) = channel();
        let asking = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            ask.send(())
        });
        let figures = run_all(&jobs, &context, 2, (&stop, &TestConsole));
        assert!(asking.join().expect("it only sends").is_ok());
        assert!(figures.seeds < 1000, "{}", figures.seeds);
        assert!(figures.columns.iter().all(|column| column.outcome.seeds == figures.seeds));
    }

    /// The explanation of a simulated link would not be what happened there.
    #[test]
    fn recorded_program_replays_same() {
        let program = Program::by_objective(&TestConsole).expect("it compiles");
        let context =
            JobContext { program: &program, traces: &[], sender: newreno_of_2013(), is_recorded: true };
        let of_program = |job: &Job| job.configuration == Configuration::Program;
        for mut job in jobs(1, 1).into_iter().filter(of_program) {
            job.seconds = 10;
            let (outcome, recording) = run_one(&job, &context);
            let recording = recording.expect("it was asked for");
            let recorded = weft_control::recording::parse(&recording, "it").expect("it is one");
            assert_eq!(recorded[0].head.link, job.comparison.name);
            let check =
                |program: &Bundle| check(&program.root, &mut Files::in_bundle(program), |_| 1, &Machine);
            let ran = recorded[0].program(&check).ok().expect("it was checked before");
            let code = Interpreted::new(ran.queue.clone());
            let mut queue = Queue::new(ran.queue, code, recorded[0].head.begun_ns, recorded[0].head.seed);
            for asked in recording::read(&recorded[0].text, 0) {
                let (now, asked) = asked.expect("it was written");
                recording::ask(&mut queue, now, &asked).expect("it names no packets");
            }
            let counts = queue.counts();
            let found = (counts.sent, counts.dropped());
            assert_eq!(found, (outcome.sojourn.len(), outcome.dropped), "{}", job.comparison.name);
            assert!(counts.sent > 100, "{counts:?}");
        }
    }
}
