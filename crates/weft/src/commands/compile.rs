//! `weft compile`

use super::{count, render_options};
use crate::cli::{CompileArgs, Target};
use crate::compile::check_files;
use crate::fault::Fault;
use crate::source::{Files, require};
use crate::stdout;
use std::path::Path;
use weft_ir::backend::Unsupported;
use weft_ir::queue::QueueProgram;
use weft_lang::diagnostic::render_all;
use weft_verilog::{Module, Widths};

pub(crate) fn run(args: &CompileArgs) -> Result<(), Fault> {
    let Target::Verilog = args.target;
    require(&args.file)?;
    let checked = check_files(&args.file, &mut Files::on_disk());
    eprint!("{}", render_all(&checked.diagnostics, &checked.sources, render_options()));
    let Some(network) = &checked.network else { return Err(Fault::told(checked.at_fault)) };
    let queues: Vec<QueueProgram> = network.queues.iter().map(weft_opt::lower::queue).collect();
    let queue = chosen(&queues, args.queue.as_deref(), &args.file)?;
    let module = module(queue, args).map_err(|refused| {
        let place = if refused.line == 0 { String::new() } else { format!(", line {}", refused.line) };
        Fault::Input(format!("{}: queue `{}`{place}: {}", args.file, queue.name, refused.reason))
    })?;
    match &args.output {
        None => stdout::print(&module.text),
        Some(folder) => write(folder, &module),
    }
}

/// The queue of this name; without a name, the only one.
fn chosen<'q>(queues: &'q [QueueProgram], name: Option<&str>, file: &str) -> Result<&'q QueueProgram, Fault> {
    let names = || queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, queues) {
        (_, []) => Err(Fault::Input(format!("{file}: there is no queue in it that needs no arguments"))),
        (Some(name), _) => queues.iter().find(|queue| queue.name == name).ok_or_else(|| {
            Fault::Input(format!("{file}: there is no queue `{name}`; there are {}", names()))
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(Fault::usage(format!("{file} has the queues {}: say which with --queue", names()))),
    }
}

fn module(queue: &QueueProgram, args: &CompileArgs) -> Result<Module, Unsupported> {
    let widths = Widths {
        time_bits: args.time_bits,
        len_bits: args.len_bits,
        remaining_bits: args.remaining_bits,
        ..Widths::default()
    };
    match args.entries {
        None => weft_verilog::compile(queue, &widths),
        Some(entries) => weft_verilog::compile_tree(queue, &widths, entries),
    }
}

fn write(folder: &Path, module: &Module) -> Result<(), Fault> {
    let unwritable =
        |path: &Path, error| Fault::environment(format!("cannot write `{}`: {error}", path.display()));
    std::fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    let path = folder.join(format!("{}.v", module.name));
    std::fs::write(&path, &module.text).map_err(|error| unwritable(&path, error))?;
    let ports = count(module.ports.len() as u64, "port");
    stdout::print(&format!("{}: module {}, {ports} beside clk and reset\n", path.display(), module.name))
}
