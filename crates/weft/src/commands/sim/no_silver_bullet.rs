//! `weft sim no-silver-bullet`: each seed of each comparison is a job, and jobs run on all cores. What they make is put
//! together in the order of their numbers, so that the result does not depend on which was done first.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::plot;
use super::program::Program;
use super::report::{Column, Links, Report};
use crate::cli::{SenderName, SilverBulletArgs};
use crate::fault::Fault;
use crate::progress::Progress;
use weft_sim::net::silver_bullet::{
    COMPARISONS, Comparison, Configuration, LinkKind, Outcome, made_trace, newreno_of_2013,
};
use weft_sim::net::{Algorithm, SenderSpec, Trace};

/// How many seeds the authors ran.
const SEEDS: u32 = 74;
/// With `--quick`: seeds, and the part of the time.
const QUICK_SEEDS: u32 = 4;
const QUICK_PART: u32 = 5;
/// Bytes that a trace file may have: more than the longest trace that is read.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// What is the same in all jobs.
struct Given<'g> {
    /// What stands at the bottleneck where it is none of the paper's configurations.
    program: &'g Program,
    /// Links whose rate changes; made if there are none.
    traces: &'g [Arc<Trace>],
    sender: SenderSpec,
}

/// One seed of one comparison with one configuration.
struct Job {
    comparison: Comparison,
    configuration: Configuration,
    seed: u64,
    seconds: u32,
}

pub(super) fn run(args: &SilverBulletArgs) -> Result<(), Fault> {
    let traces = args.traces.as_deref().map(read_traces).transpose()?;
    let program = args.queue.as_deref().map_or_else(Program::by_objective, Program::of_file)?;
    let seeds = args.seeds.unwrap_or(if args.quick { QUICK_SEEDS } else { SEEDS });
    let part = if args.quick { QUICK_PART } else { 1 };
    let began = Instant::now();
    let jobs = jobs(seeds, part);
    let given = Given {
        program: &program,
        traces: traces.as_deref().unwrap_or_default(),
        sender: sender(args.sender),
    };
    let outcomes = run_all(&jobs, &given, threads(args));
    let links = match &traces {
        None => Links::Made,
        Some(traces) => Links::Traces(traces.len()),
    };
    let report = Report {
        columns: columns(&jobs, &outcomes),
        seeds,
        part,
        sender: args.sender,
        links,
        took: began.elapsed(),
        program: program.name().to_owned(),
    };
    if let Some(path) = &args.svg {
        fs::write(path, plot::svg(&report))
            .map_err(|error| Fault::environment(format!("{}: {error}", path.display())))?;
    }
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.text() };
    io::stdout().write_all(text.as_bytes()).map_err(Fault::environment)
}

fn sender(name: SenderName) -> SenderSpec {
    let of_2013 = newreno_of_2013();
    let of_today = |algorithm| SenderSpec {
        algorithm,
        payload: of_2013.payload,
        header: of_2013.header,
        ..SenderSpec::default()
    };
    match name {
        SenderName::Paper => of_2013,
        SenderName::Newreno => of_today(Algorithm::NewReno),
        SenderName::Cubic => of_today(Algorithm::Cubic),
        SenderName::BbrLike => of_today(Algorithm::BbrLike),
    }
}

fn threads(args: &SilverBulletArgs) -> usize {
    args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// The traces of a folder, in order of their names.
fn read_traces(folder: &Path) -> Result<Vec<Arc<Trace>>, Fault> {
    let told = |path: &Path, error: io::Error| Fault::environment(format!("{}: {error}", path.display()));
    let entries = fs::read_dir(folder).map_err(|error| told(folder, error))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "down" || ending == "up"));
    paths.sort();
    if paths.is_empty() {
        return Err(Fault::Input(format!("{}: no file whose name ends in .down or .up", folder.display())));
    }
    let read = |path: &std::path::PathBuf| {
        let bytes = fs::metadata(path).map_err(|error| told(path, error))?.len();
        if bytes > TRACE_BYTES_MAX {
            return Err(Fault::Input(format!("{}: more than {TRACE_BYTES_MAX} bytes", path.display())));
        }
        let text = fs::read(path).map_err(|error| told(path, error))?;
        let trace = Trace::parse(&String::from_utf8_lossy(&text));
        trace.map(Arc::new).map_err(|error| Fault::Input(format!("{}: {error}", path.display())))
    };
    paths.iter().map(read).collect()
}

/// All jobs: those of a comparison and a configuration stand together, by seed.
fn jobs(seeds: u32, part: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for comparison in COMPARISONS {
        for configuration in Configuration::ALL {
            let seconds = comparison.seconds / part;
            let one = |seed| Job { comparison, configuration, seed: u64::from(seed), seconds };
            jobs.extend((1..=seeds).map(one));
        }
    }
    jobs
}

/// Runs the jobs on so many threads; the outcomes are in the order of the jobs.
fn run_all(jobs: &[Job], given: &Given<'_>, threads: usize) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let (send, receive) = channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some((number, job)) = take(jobs, next) {
                    // Nobody listens any more if the command is over.
                    let _ = send.send((number, run_one(job, given)));
                }
            });
        }
        drop(send);
        gather(jobs, &receive)
    })
}

fn take<'j>(jobs: &'j [Job], next: &AtomicUsize) -> Option<(usize, &'j Job)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(number).map(|job| (number, job))
}

fn run_one(job: &Job, given: &Given<'_>) -> Outcome {
    let trace = (job.comparison.link == LinkKind::Lte).then(|| match given.traces {
        [] => made_trace(job.seed, job.seconds),
        traces => traces[job.seed as usize % traces.len()].clone(),
    });
    let queue = job.configuration.discipline().unwrap_or_else(|| given.program.discipline(job.seed));
    job.comparison.run(queue, trace, given.sender, job.seed, job.seconds)
}

fn gather(jobs: &[Job], receive: &Receiver<(usize, Outcome)>) -> Vec<Outcome> {
    let all: u64 = jobs.iter().map(|job| u64::from(job.seconds)).sum();
    let mut progress = Progress::new(Instant::now());
    let (mut packets, mut seconds) = (0, 0);
    let mut outcomes = vec![Outcome::default(); jobs.len()];
    for (number, outcome) in receive {
        packets += outcome.packets;
        seconds += u64::from(jobs[number].seconds);
        progress.show(packets, (seconds, Some(all)));
        outcomes[number] = outcome;
    }
    progress.clear();
    outcomes
}

/// A column of figures for each comparison and configuration: the jobs of all its seeds together.
fn columns(jobs: &[Job], outcomes: &[Outcome]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        match columns.last_mut() {
            Some(last) if last.comparison == job.comparison && last.configuration == job.configuration => {
                last.outcome.merge(outcome);
            }
            _ => columns.push(Column {
                comparison: job.comparison,
                configuration: job.configuration,
                outcome: outcome.clone(),
            }),
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_sim::net::silver_bullet::Application;

    /// The result would depend on how many cores a machine has.
    #[test]
    fn threads_are_not_seen_in_the_result() {
        let mut jobs = jobs(2, 1);
        jobs.iter_mut().for_each(|job| job.seconds = 5);
        let program = Program::by_objective().expect("it compiles");
        let given = Given { program: &program, traces: &[], sender: newreno_of_2013() };
        let figures = |threads| {
            let outcomes = run_all(&jobs, &given, threads);
            let figure = |column: Column| {
                let application: Application = column.comparison.applications[0];
                (column.outcome.score(&column.comparison, application), column.outcome.packets)
            };
            columns(&jobs, &outcomes).into_iter().map(figure).collect::<Vec<_>>()
        };
        let (one, three) = (figures(1), figures(3));
        assert_eq!(one.len(), COMPARISONS.len() * Configuration::ALL.len());
        assert_eq!(one, three);
    }
}
