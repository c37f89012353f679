//! `weft sim run`: runs queue programs in a network that the user chooses. Each job is one seed with one queue. All
//! queues get the same load, and the figures include only seeds that were completed with all queues.

mod meter;
mod report;
mod scenario;

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use clap::ValueEnum as _;

use self::report::Report;
use self::scenario::{Outcome, Scenario, Speed};
use super::args::{SimRunArgs, TopologyName, WorkloadName};
use super::program::Program;
use super::recorded::RecordedDiscipline;
use super::{Console, pool, queue_seed, read_trace, report_missing_seeds, sender};
use weft_control::fault::Fault;
use weft_control::recording;
use weft_control::recording::LinkSetup;
use weft_control::show::grouped;
use weft_sim::net::{Discipline, SenderSpec};

/// The maximum number of compared queues.
const QUEUES_MAX: usize = 8;
/// The maximum number of flows.
const FLOWS_MAX: u32 = 10_000;

/// A seed with a queue.
struct Job {
    seed: u64,
    queue: usize,
}

/// The inputs that all jobs share.
struct JobContext<'g> {
    scenario: &'g Scenario,
    programs: &'g [Program],
    /// Records the requests to the queues in this seed.
    recorded_seed: Option<u64>,
}

/// The outcome of a job, and the recording of its first link's queue if requested.
struct JobResult {
    /// None if the job was stopped.
    outcome: Option<Outcome>,
    recording: Option<String>,
}

/// The simulated time and packets so far, for the progress line.
#[derive(Default)]
struct Simulated {
    packets: AtomicU64,
    ns: AtomicU64,
}

/// Parses a number of flows of a workload: `bulk=4`, or `web` for one.
pub(super) fn flows(text: &str) -> Result<(WorkloadName, u32), String> {
    let (name, n) = text.split_once('=').unwrap_or((text, "1"));
    let name = WorkloadName::from_str(name.trim(), true);
    let n = n.trim().parse().ok().filter(|n| *n <= FLOWS_MAX);
    name.ok().zip(n).ok_or_else(|| {
        format!("flows are like bulk=4: bulk, web, interactive or rpc, and how many, {FLOWS_MAX} at most")
    })
}

/// Runs `weft sim run`.
pub(super) fn run(args: &SimRunArgs, console: &dyn Console) -> Result<(), Fault> {
    let scenario = scenario(args, console)?;
    if args.queues.len() > QUEUES_MAX {
        return Err(Fault::usage(format!(
            "{} queues, and {QUEUES_MAX} are compared at most",
            args.queues.len()
        )));
    }
    let programs = Program::chosen(args.file.as_deref(), &args.queues, console)?;
    args.output.claim_files(args.record.as_deref(), console)?;
    let stop = console.stop_requests()?;
    let begun = Instant::now();
    let last = args.seed.saturating_add(u64::from(args.seeds));
    let jobs: Vec<Job> = (args.seed..last)
        .flat_map(|seed| (0..programs.len()).map(move |queue| Job { seed, queue }))
        .collect();
    let recorded_seed = args.record.is_some().then_some(args.seed);
    let context = JobContext { scenario: &scenario, programs: &programs, recorded_seed };
    let done = run_all(&jobs, &context, pool::threads(args.output.jobs), (&stop, console))?;
    let (outcomes, recordings) = merged(done, programs.len());
    let seeds = outcomes.first().map_or(0, |outcome| outcome.seeds);
    report_missing_seeds(seeds, args.seeds, console)?;
    let names = programs.iter().map(|program| program.label().to_owned()).collect();
    let report = Report { scenario: &scenario, args, names, outcomes };
    write_all(&report, &recordings, begun, console)
}

/// Writes the report in the requested formats, and the recordings.
fn write_all(
    report: &Report<'_>,
    recordings: &str,
    begun: Instant,
    console: &dyn Console,
) -> Result<(), Fault> {
    let SimRunArgs { output, record, .. } = report.args;
    let recorded = (record.as_deref(), recordings);
    output.write_all(console, recorded, || report.chart().svg(), || report.json(), || report.text())?;
    if !output.json {
        let packets: u64 = report.outcomes.iter().map(|outcome| outcome.packets).sum();
        console.note(&format!(
            "simulated {} packets in {:.1} s",
            grouped(packets),
            begun.elapsed().as_secs_f64()
        ));
    }
    Ok(())
}

/// Builds the scenario from the options of the command line.
fn scenario(args: &SimRunArgs, console: &dyn Console) -> Result<Scenario, Fault> {
    let speed = match &args.trace {
        Some(path) => Speed::Trace(read_trace(path, console)?),
        None if args.lte => Speed::Lte,
        None => Speed::Fixed(args.rate),
    };
    let mut flows: Vec<(WorkloadName, u32)> = Vec::new();
    for (name, n) in &args.flows {
        match flows.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => *all += n,
            None => flows.push((*name, *n)),
        }
    }
    flows.retain(|(_, n)| *n > 0);
    match flows.iter().map(|(_, n)| n).sum() {
        0 => return Err(Fault::usage("there are no flows").with_help("for example --flows bulk=2,rpc=2")),
        1..=FLOWS_MAX => {}
        n => return Err(Fault::usage(format!("{n} flows, and {FLOWS_MAX} are simulated at most"))),
    }
    if args.record.is_some() && args.topology == TopologyName::FatTree {
        return Err(Fault::usage("of a fat tree no link is the bottleneck that --record could note")
            .with_help("--topology dumbbell, or parking-lot, of which it is the first link"));
    }
    Ok(Scenario {
        topology: args.topology,
        speed,
        delay_ns: args.delay,
        jitter_ns: args.jitter,
        loss: args.loss,
        reorder: args.reorder,
        flows,
        sender: SenderSpec { ecn: args.ecn, ..sender(args.sender, &SenderSpec::default()) },
        span_ns: args.span,
    })
}

/// Runs the jobs until a stop request; returns the results in order, None for jobs that did not start.
fn run_all(
    jobs: &[Job],
    context: &JobContext<'_>,
    threads: usize,
    (stop, console): (&Receiver<()>, &dyn Console),
) -> Result<Vec<Option<JobResult>>, Fault> {
    let simulated = Simulated::default();
    let all_ns = context.scenario.span_ns.saturating_mul(jobs.len() as u64);
    let mut progress = console.progress();
    let mut done: Vec<Option<JobResult>> = jobs.iter().map(|_| None).collect();
    let mut fault = None;
    let run = |job: &Job, is_stopped: &AtomicBool| {
        let result = context.run(job, is_stopped, &simulated);
        // A failure of one seed would be a failure of all.
        result.inspect_err(|_| is_stopped.store(true, Ordering::Relaxed))
    };
    pool::run_all(jobs, threads, stop, run, |event| {
        match event {
            Some((number, Ok(of_job))) => done[number] = Some(of_job),
            Some((_, Err(why))) => fault = Some(why),
            None => {}
        }
        let ns = simulated.ns.load(Ordering::Relaxed);
        progress(simulated.packets.load(Ordering::Relaxed), (ns, Some(all_ns)));
    });
    fault.map_or(Ok(done), Err)
}

impl JobContext<'_> {
    /// Simulates one seed with one queue, and records the first link if it is the recorded seed.
    fn run(&self, job: &Job, is_stopped: &AtomicBool, simulated: &Simulated) -> Result<JobResult, Fault> {
        let program = &self.programs[job.queue];
        let mut recorder = None;
        let queue = |link: usize| {
            let seed = queue_seed(job.seed, link as u64);
            let queue = program.discipline(seed);
            if link > 0 || self.recorded_seed != Some(job.seed) {
                return queue;
            }
            let (queue, noted) = RecordedDiscipline::new(queue, seed);
            recorder = Some(noted);
            Box::new(queue) as Box<dyn Discipline>
        };
        let goes_on = |ns, packets| {
            simulated.ns.fetch_add(ns, Ordering::Relaxed);
            simulated.packets.fetch_add(packets, Ordering::Relaxed);
            !is_stopped.load(Ordering::Relaxed)
        };
        let outcome = self.scenario.run(job.seed, queue, goes_on);
        let outcome = outcome.map_err(|why| {
            Fault::Input(format!("{}, seed {}: {why}", program.label(), job.seed))
                .with_help("a lower --rate, or a shorter --delay, has fewer packets under way")
        })?;
        let recording = recorder.map(|recorder| {
            let ran = LinkSetup {
                link: program.label(),
                rate: self.scenario.bits_per_s(),
                calls: None,
                program: program.bundle(),
                queue: Some(program.name()),
            };
            recording::text(&ran, &recorder.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(JobResult { outcome, recording })
    }
}

/// The merged outcome of each queue over the leading seeds that all queues completed, and all recordings.
fn merged(done: Vec<Option<JobResult>>, n_queues: usize) -> (Vec<Outcome>, String) {
    let mut outcomes = vec![Outcome::default(); n_queues];
    let mut recordings = String::new();
    let mut done =
        done.into_iter().map_while(|of_job| of_job.and_then(|of| Some((of.outcome?, of.recording))));
    loop {
        let of_seed: Vec<_> = done.by_ref().take(n_queues).collect();
        if of_seed.len() < n_queues {
            return (outcomes, recordings);
        }
        for (outcome, (of_job, recording)) in outcomes.iter_mut().zip(of_seed) {
            outcome.merge(&of_job);
            recordings.extend(recording);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stopped run would merge more seeds for one queue than for another.
    #[test]
    fn stopped_sim_merges_whole_seeds() {
        let done = |is_done| {
            let outcome = Outcome { seeds: 1, packets: 5, ..Outcome::default() };
            Some(JobResult { outcome: Some(outcome).filter(|_| is_done), recording: None })
        };
        let seeds_of = |all: Vec<Option<JobResult>>| {
            let (outcomes, _) = merged(all, 2);
            outcomes.iter().map(|outcome| (outcome.seeds, outcome.packets)).collect::<Vec<_>>()
        };
        assert_eq!(seeds_of(vec![done(true), done(true), done(true), done(true)]), [(2, 10), (2, 10)]);
        // The fourth was stopped, or the third did not start.
        assert_eq!(seeds_of(vec![done(true), done(true), done(true), done(false)]), [(1, 5), (1, 5)]);
        assert_eq!(seeds_of(vec![done(true), done(true), None, done(true)]), [(1, 5), (1, 5)]);
        assert_eq!(seeds_of(vec![done(true), None]), [(0, 0), (0, 0)]);
    }
}
