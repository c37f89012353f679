//! `weft compile`: compiles a queue to a hardware module.

use crate::cli::{CompileArgs, Target};
use crate::fault::Fault;
use crate::machine::check_files;
use crate::source;
use crate::source::require;
use crate::stderr;
use crate::stdout;
use std::path::Path;
use weft_control::show::{count, grouped};
use weft_ir::backend::Unsupported;
use weft_ir::queue::QueueProgram;
use weft_lang::hir::{
    Queue, QueueExpr, QueueExprKind, QueueLevel, QueueLiteral, QueueStmt, QueueStmtKind, QueueType,
    QueueVerdict,
};
use weft_lang::source::{SourceMap, Span};
use weft_verilog::{Module, Widths};

/// Runs `weft compile`: prints the module, or writes it to the output folder.
pub(crate) fn run(args: &CompileArgs) -> Result<(), Fault> {
    let Target::Verilog = args.target;
    require(&args.file)?;
    let checked = check_files(&args.file, &mut source::on_disk());
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(network) = checked.network() else { return Err(Fault::reported(checked.at_fault)) };
    let queues: Vec<QueueProgram> = network.queues.iter().map(weft_opt::lower::queue).collect();
    let queue = select(&queues, args.queue.as_deref(), &args.file)?;
    let meant = network.queues.iter().find(|meant| meant.name == queue.name);
    if let Some(long) = meant.and_then(|meant| too_long(meant, args.time_bits, &checked.sources)) {
        return Err(Fault::Input(format!("{}: queue `{}`{long}", args.file, queue.name)));
    }
    let module = compile_module(queue, args).map_err(|refused| {
        let place = if refused.line == 0 { String::new() } else { format!(", line {}", refused.line) };
        let help = if args.entries.is_none() && ranks_packets(queue) { TREE_HELP } else { "" };
        Fault::Input(format!("{}: queue `{}`{place}: {}{help}", args.file, queue.name, refused.reason))
    })?;
    match &args.output {
        None => stdout::print(&module.text),
        Some(folder) => write(folder, &module),
    }
}

/// The queue of this name; without a name, the only one.
fn select<'q>(queues: &'q [QueueProgram], name: Option<&str>, file: &str) -> Result<&'q QueueProgram, Fault> {
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

/// Compiles a queue to Verilog: one level of it, or with `--entries` a tree of comparators for its packet ranks.
fn compile_module(queue: &QueueProgram, args: &CompileArgs) -> Result<Module, Unsupported> {
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

/// Help for a queue that orders packets by rank: gates find the first one with a tree.
const TREE_HELP: &str =
    "; for its ranks of packets, --entries 16 makes a tree of comparators with 16 entries";

fn ranks_packets(queue: &QueueProgram) -> bool {
    matches!(queue.levels.as_slice(), [level] if level.handlers.packet_rank.is_some())
}

/// Reports the first time constant that does not fit in `time_bits`, with its line and a help.
fn too_long(queue: &Queue, time_bits: u32, sources: &SourceMap) -> Option<String> {
    let mut found = None;
    for (nanoseconds, span) in queue.levels.iter().flat_map(times) {
        let bits = u64::BITS - nanoseconds.unsigned_abs().leading_zeros();
        if bits > time_bits && found.is_none() {
            found = Some((nanoseconds, bits, span));
        }
    }
    let (nanoseconds, bits, span) = found?;
    let file = sources.file(span.file);
    let line = file.position(span.start).line;
    let literal = sources.slice(span);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let time = format!("{sign}{} ns", grouped(nanoseconds.unsigned_abs()));
    Some(format!(
        ", line {line}: `{literal}` is {time}, which {time_bits} bits cannot hold; --time-bits {bits} has room for it"
    ))
}

/// The time constants of a level, in nanoseconds: in expressions, and as initial values of variables.
fn times(level: &QueueLevel) -> Vec<(i64, Span)> {
    let mut all = Vec::new();
    let key = level.partitions.as_ref().map(|(_, key)| key);
    let rank = level.packet_rank.as_ref().map(|(rank, _)| rank);
    key.into_iter().chain(&level.least).chain(rank).for_each(|expr| times_of(expr, &mut all));
    level.handlers.iter().for_each(|handler| times_in(&handler.body, &mut all));
    all
}

/// Collects the time constants of statements.
fn times_in(body: &[QueueStmt], all: &mut Vec<(i64, Span)>) {
    for statement in body {
        match &statement.kind {
            QueueStmtKind::Let { value, .. } | QueueStmtKind::Set { value, .. } => times_of(value, all),
            QueueStmtKind::Verdict(QueueVerdict::Hold(until)) => times_of(until, all),
            QueueStmtKind::Verdict(_) => {}
            QueueStmtKind::If { arms, otherwise } => {
                for (condition, then) in arms {
                    times_of(condition, all);
                    times_in(then, all);
                }
                times_in(otherwise, all);
            }
        }
    }
}

/// Collects the time constants of an expression.
fn times_of(expr: &QueueExpr, all: &mut Vec<(i64, Span)>) {
    match &expr.kind {
        QueueExprKind::Literal(QueueLiteral::Int(n))
            if matches!(expr.ty, QueueType::Interval | QueueType::Timestamp) =>
        {
            all.push((*n, expr.span));
        }
        QueueExprKind::Unary(_, of) => times_of(of, all),
        QueueExprKind::Binary(_, a, b) => [a, b].into_iter().for_each(|expr| times_of(expr, all)),
        QueueExprKind::Case(arms, otherwise) => {
            arms.iter().flat_map(|(when, then)| [when, then]).for_each(|expr| times_of(expr, all));
            times_of(otherwise, all);
        }
        QueueExprKind::Literal(_)
        | QueueExprKind::Operand(_)
        | QueueExprKind::Local(_)
        | QueueExprKind::Rand(_) => {}
    }
}

/// Writes the module to a file in the folder, and prints its path.
fn write(folder: &Path, module: &Module) -> Result<(), Fault> {
    let unwritable =
        |path: &Path, error| Fault::environment(format!("cannot write `{}`: {error}", path.display()));
    std::fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    let path = folder.join(format!("{}.v", module.name));
    std::fs::write(&path, &module.text).map_err(|error| unwritable(&path, error))?;
    let ports = count(module.ports.len() as u64, "port");
    stdout::print(&format!("{}: module {}, {ports} beside clk and reset\n", path.display(), module.name))
}
