//! The project's own commands. `cargo xtask help` lists them; the Makefile gives them shorter names.
#![allow(clippy::print_stdout, reason = "a command's output is its purpose")]

mod book;
mod compare;
mod editors;
#[path = "../../crates/weft-control/library_folder.rs"]
mod library_folder;
mod lines;
mod prose;
mod run;
mod test;
mod tidy;
mod verilog;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

/// Name, arguments and purpose of each command, as `help` prints them and `tidy` checks the docs against.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("build", "", "build the release binaries, `weft` and the shop"),
    ("demo", "[OPTION...]", "build, then run `weft demo`: the shop on its network, with a live table"),
    ("test", "[STEP...]", "run everything that CI runs, or these steps of it, with the time of each"),
    ("tidy", "", "check the crate graph, file headers, dead files, docs and other house rules"),
    ("bench", "[NAME [OPTION...]]", "build, then run `weft bench NAME`; all of them without a name"),
    (
        "bench-compare",
        "[--update]",
        "build, count instructions, and compare with the stored counts, within 2 %",
    ),
    ("book", "", "write the generated pages of the book, and the syntax files of editors"),
    (
        "verilog",
        "",
        "run queues in gates under Verilator, count them with Yosys (both must be installed; 10 minutes)",
    ),
    ("prose", "[--list]", "measure how plain comments are and how long documents; list old words"),
    ("help", "", "print this"),
];

/// The benchmarks that `bench` runs without arguments.
const BENCHES: &[&str] = &["elements", "rpc"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let command = args.first().map_or("help", String::as_str);
    if matches!(command, "help" | "--help" | "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    if !COMMANDS.iter().any(|(name, _, _)| *name == command) {
        eprintln!("xtask: `{command}` is not a command\n\n{}", help());
        return ExitCode::from(2);
    }
    match dispatch(command, &args[1..]) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask {command}: {error}");
            ExitCode::from(3)
        }
    }
}

/// Runs one command. `Ok(false)` if its check or program failed, an error if the command itself failed.
fn dispatch(command: &str, args: &[String]) -> Result<bool, String> {
    let workspace = Workspace::load()?;
    match command {
        "build" => run::build(&workspace),
        "demo" => Ok(run::build(&workspace)? && run::weft(&workspace, &["demo"], args)?),
        "test" => test::run(&workspace, args),
        "tidy" => tidy::run(&workspace),
        "bench" => bench(&workspace, args),
        "bench-compare" => Ok(run::build(&workspace)? && compare::run(&workspace, args)?),
        "book" => book::run(&workspace),
        "prose" => prose::run(&workspace, args),
        "verilog" => verilog::run(&workspace),
        _ => unreachable!("`main` has looked the command up"),
    }
}

fn bench(workspace: &Workspace, args: &[String]) -> Result<bool, String> {
    if !run::build(workspace)? {
        return Ok(false);
    }
    if !args.is_empty() {
        return run::weft(workspace, &["bench"], args);
    }
    let mut all_ran = true;
    for name in BENCHES {
        all_ran &= run::weft(workspace, &["bench", name], &[])?;
    }
    Ok(all_ran)
}

fn help() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n\n");
    for (name, args, purpose) in COMMANDS {
        text += &format!("  {:<27} {purpose}\n", format!("{name} {args}"));
    }
    text
}
