//! `weft`: check, run, update and measure an application-defined network.

#![warn(clippy::print_stderr, reason = "`eprint!` panics where nobody reads: `stderr` says what to do then")]

mod admin;
mod bench;
mod chance;
mod changes;
mod cli;
mod client;
mod commands;
mod compile;
mod dropped;
mod fault;
mod library;
mod lines;
mod live;
mod lsp;
mod metrics;
mod natives;
mod open_files;
mod ordering;
mod packets;
mod progress;
mod recording_file;
mod repeats;
mod running;
mod signals;
mod sink_files;
mod source;
mod stderr;
mod stdout;
mod svg;
mod table;
mod together;
mod token;
mod trace_file;
mod wanting;

use clap::CommandFactory as _;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    weft_io::memory::ask_for_huge_pages();
    let done = match Cli::of_process().command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Compile(args) => commands::compile::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Fmt(args) => commands::fmt::run(&args),
        Command::Lsp(_) => lsp::run(),
        Command::Run(args) => commands::run::run(&args),
        Command::Apply(args) => commands::apply::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Query(args) => commands::query::run(&args),
        Command::Load(args) => commands::load::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Hidden(command) => bench::run_hidden(&command),
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "weft", &mut script);
            stdout::offer(&script).map(drop)
        }
        Command::Replay(args) => commands::replay::run(&args),
        Command::Sim(args) => commands::sim::run(&args),
        Command::Link(args) => commands::link::run(&args),
        Command::Man(args) => commands::man::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.report(),
    }
}
