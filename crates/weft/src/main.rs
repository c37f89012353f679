//! `weft`: check, run, update and measure an application-defined network.

#![warn(clippy::print_stderr, reason = "`eprint!` panics on a closed pipe; `stderr` handles it")]

mod admin;
mod cli;
mod client;
mod commands;
mod fault;
mod job;
mod keys;
mod log;
mod lsp;
mod machine;
mod open_files;
mod private;
mod progress;
mod recording_file;
mod running;
mod seeds;
mod signals;
mod sink_files;
mod source;
mod status_table;
mod stderr;
mod stdout;
mod token;
mod watch;

use clap::CommandFactory as _;
use cli::{Cli, Command};
use fault::Fault;
use std::process::ExitCode;

/// Runs the command of the command line. Returns its exit status.
fn main() -> ExitCode {
    weft_io::memory::ask_for_huge_pages();
    let cli = Cli::of_process();
    source::set_proto_paths(cli.proto_paths);
    let done = match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Check(args) => in_job(|| commands::check::run(&args)),
        Command::Compile(args) => in_job(|| commands::compile::run(&args)),
        Command::Explain(args) => in_job(|| commands::explain::run(&args)),
        Command::Fmt(args) => in_job(|| commands::fmt::run(&args)),
        Command::Lsp(_) => in_job(lsp::run),
        Command::Run(args) => commands::run::run(&args),
        Command::Apply(args) => commands::apply::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Generate(args) => in_job(|| commands::generate::run(&args)),
        Command::Import(args) => in_job(|| commands::import::run(&args)),
        Command::Query(args) => commands::query::run(&args),
        Command::Load(args) => commands::load::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Bench(args) => bench(&args),
        Command::Hidden(command) => weft_bench::run_hidden(&command).and_then(|text| stdout::print(&text)),
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "weft", &mut script);
            stdout::print_bytes(&script)
        }
        Command::Replay(args) => in_job(|| commands::replay::run(&args)),
        Command::Sim(args) => in_job(|| commands::sim::run(&args)),
        Command::Link(args) => commands::link::run(&args),
        Command::Man(args) => commands::man::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault::report(&fault),
    }
}

/// Runs a benchmark and prints its result.
fn bench(args: &weft_bench::BenchArgs) -> Result<(), Fault> {
    let (text, outcome) = weft_bench::run(args)?;
    stdout::print(&text).and(outcome)
}

/// Runs a command that walks programs itself, as a [`job`].
fn in_job(command: impl FnOnce() -> Result<(), Fault> + Send) -> Result<(), Fault> {
    job::run(command).unwrap_or_else(|broken| Err(Fault::environment(broken.diagnostic().message)))
}
