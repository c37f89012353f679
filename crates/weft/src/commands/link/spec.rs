//! The specification of an emulated link, from the command line.

use super::schedule::{self, Step};
use super::setting::{Setting, Side};
use crate::cli::EmulateArgs;
use crate::fault::Fault;
use crate::machine::check_files;
use crate::source::{self, read_lossy, require};
use crate::stderr;
use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weft_api::Bundle;
use weft_bench::networks::{TRACE_BYTES_MAX, parse_trace};
use weft_control::check::Accepted;
use weft_control::library;
use weft_control::missing_args;
use weft_control::units::{rate_text, rounded};
use weft_engine::packet::impair::{Impairments, Loss};
use weft_engine::packet::path::{Path, PathChange};
use weft_lang::ast::Item;
use weft_lang::parser::parse;
use weft_lang::source::SourceMap;
use weft_sim::net::Trace;

/// The default queue.
const PLAIN: &str = "fifo";
/// The library's folder of queues.
const LIBRARY: &str = "library/queues/";
/// The name in diagnostics of the program that joins both ends.
const PROGRAM: &str = "(weft link emulate)";
/// The ports of that program.
pub(super) const INSIDE: &str = "inside";
pub(super) const OUTSIDE: &str = "outside";
/// Its links; also their names in the summary.
pub(super) const UP: &str = "up";
pub(super) const DOWN: &str = "down";

/// One direction of a link.
pub(super) struct LinkDirection {
    pub(super) rate: Option<u64>,
    pub(super) path: Path,
    /// The file of the trace.
    trace: Option<PathBuf>,
    /// The queue, in the form of a link's declaration.
    pub(super) queue: String,
    /// The file of the queue.
    import: String,
    /// The parts of that file and of its imports that the link needs, by name, without the library.
    texts: BTreeMap<String, String>,
}

/// The settings of one direction.
#[derive(Clone, Debug, Default, PartialEq)]
struct DirectionSettings {
    rate: Option<u64>,
    trace: Option<PathBuf>,
    queue: Option<String>,
    impair: Impairments,
}

impl DirectionSettings {
    /// Later settings override: a rate replaces a trace, and losses replace bursts.
    fn set(&mut self, setting: &Setting) {
        let impair = &mut self.impair;
        match setting {
            Setting::Rate(rate) => (self.rate, self.trace) = (Some(*rate), None),
            Setting::Trace(trace) => (self.rate, self.trace) = (None, Some(trace.clone())),
            Setting::Queue(queue) => self.queue = Some(queue.clone()),
            Setting::Delay(ns) => impair.delay_ns = *ns,
            Setting::Jitter(ns) => impair.jitter_ns = *ns,
            Setting::KeepOrder(is_kept) => impair.keep_order = *is_kept,
            Setting::Loss(share) => impair.loss = Loss::Each(*share),
            Setting::LossBursts(bursts) => impair.loss = Loss::Bursts(*bursts),
            Setting::Duplicate(share) => impair.duplicate = *share,
            Setting::Corrupt(share) => impair.corrupt = *share,
            Setting::Reorder(share) => impair.reorder.share = *share,
            Setting::ReorderGap(n) => impair.reorder.gap = *n,
            Setting::ReorderDistance(n) => impair.reorder.distance = Some(*n),
        }
    }
}

/// Refuses settings without effect: details of reordering without reordering, and the order of jitter without jitter. A
/// setting for both directions has an effect if it has one in either.
fn refuse_idle_settings<'s>(
    settings: impl Iterator<Item = &'s (Side, Setting)>,
    up: &Path,
    down: &Path,
) -> Result<(), Fault> {
    let has = |path: &Path, is_used: fn(&Impairments) -> bool| {
        is_used(&path.impair) || path.changes.iter().any(|change| is_used(&change.impair))
    };
    for (side, setting) in settings {
        let (what, without, is_used): (_, _, fn(&Impairments) -> bool) = match setting {
            Setting::KeepOrder(true) => ("keep-order", "jitter", |of| of.jitter_ns > 0),
            Setting::ReorderGap(_) => ("reorder-gap", "reorder", |of| of.reorder.share > 0.0),
            Setting::ReorderDistance(_) => ("reorder-distance", "reorder", |of| of.reorder.share > 0.0),
            _ => continue,
        };
        let (of_up, of_down) = (has(up, is_used), has(down, is_used));
        let (is_used, prefix) = match side {
            Side::Both => (of_up || of_down, ""),
            Side::Up => (of_up, "up-"),
            Side::Down => (of_down, "down-"),
        };
        if !is_used {
            return Err(Fault::usage(format!(
                "--{prefix}{what} changes nothing without --{prefix}{without}"
            )));
        }
    }
    Ok(())
}

impl LinkDirection {
    /// Both directions, up and down.
    ///
    /// # Errors
    /// A trace or the schedule cannot be read or is wrong; a file has no queue; a setting has no effect.
    pub(super) fn both(args: &EmulateArgs) -> Result<(Self, Self), Fault> {
        let steps = args.schedule.as_deref().map(schedule::read).transpose()?.unwrap_or_default();
        let (up, down) = (Self::of(Side::Up, args, &steps)?, Self::of(Side::Down, args, &steps)?);
        let all_settings = args.settings.0.iter().chain(steps.iter().flat_map(|step| &step.settings));
        refuse_idle_settings(all_settings, &up.path, &down.path)?;
        Ok((up, down))
    }

    /// One direction, from the settings for both and for itself.
    fn of(own: Side, args: &EmulateArgs, steps: &[Step]) -> Result<Self, Fault> {
        let is_of_own = |side: Side| side == Side::Both || side == own;
        let mut settings = DirectionSettings::default();
        args.settings
            .0
            .iter()
            .filter(|(side, _)| is_of_own(*side))
            .for_each(|(_, setting)| settings.set(setting));
        let DirectionSettings { rate, trace, queue, impair } = settings.clone();
        let mut changes: Vec<PathChange> = Vec::new();
        for step in steps {
            let before = settings.clone();
            for (_, setting) in step.settings.iter().filter(|(side, _)| is_of_own(*side)) {
                if trace.is_some() && matches!(setting, Setting::Rate(_)) {
                    let path = args.schedule.as_deref().expect("its steps were read");
                    let name = if own == Side::Up { UP } else { DOWN };
                    let why = format!("a trace says when `{name}` sends, and no rate does");
                    return Err(schedule::fault(path, step.line, &why));
                }
                settings.set(setting);
            }
            if settings != before {
                let (rate, impair) = (settings.rate, settings.impair.clone());
                changes.push(PathChange { after_ns: step.after_ns, rate, impair });
            }
        }
        let (queue, import, texts) = queue_of(queue.as_deref().unwrap_or(PLAIN))?;
        let of_trace = trace.as_deref().map(read_trace).transpose()?;
        let path = Path { impair, trace: of_trace, changes: changes.into() };
        Ok(Self { rate, path, trace, queue, import, texts })
    }

    /// Describes the direction's settings in a line.
    pub(super) fn summary(&self) -> String {
        let mut parts = Vec::new();
        match (self.rate, &self.trace, &self.path.trace) {
            (_, Some(file), Some(trace)) => {
                parts.push(format!("{} ({})", file.display(), rate_text(trace.bits_per_s())));
            }
            (Some(rate), ..) => parts.push(rate_text(rate)),
            (None, ..) => parts.push("any rate".to_owned()),
        }
        let impair = &self.path.impair;
        parts.push(format!("{} ms", impair.delay_ns as f64 / 1e6));
        if impair.jitter_ns > 0 {
            let order = if impair.keep_order { " in order" } else { "" };
            parts.push(format!("up to {} ms more{order}", impair.jitter_ns as f64 / 1e6));
        }
        let lost = match impair.loss {
            Loss::Each(share) => share,
            Loss::Bursts(bursts) => {
                let bad = bursts.begin / (bursts.begin + bursts.end).max(f64::MIN_POSITIVE);
                parts.push(format!(
                    "{} % lost in bursts of {} packets",
                    rounded(100.0 * (bad * bursts.loss_bad + (1.0 - bad) * bursts.loss_good)),
                    rounded(1.0 / bursts.end.max(1e-9)),
                ));
                0.0
            }
        };
        let shares = [
            (lost, "lost"),
            (impair.duplicate, "twice"),
            (impair.corrupt, "with a flipped bit"),
            (impair.reorder.share, "overtaken"),
        ];
        for (share, what) in shares {
            if share > 0.0 {
                parts.push(format!("{} % {what}", share * 100.0));
            }
        }
        match self.path.changes.len() {
            0 => {}
            1 => parts.push("1 change".to_owned()),
            n => parts.push(format!("{n} changes")),
        }
        parts.push(self.queue.clone());
        parts.join(", ")
    }

    /// The rate in bits a second: of the link, or of its trace on average.
    pub(super) fn bits_per_s(&self) -> Option<u64> {
        self.rate.or(self.path.trace.as_deref().map(Trace::bits_per_s))
    }
}

/// The checked program that joins both ends by these directions.
///
/// # Errors
/// The program is wrong: a queue does not exist, or does not accept its arguments. The errors are already printed.
pub(super) fn program(
    up: &LinkDirection,
    down: &LinkDirection,
) -> Result<(Accepted, SourceMap, Bundle), Fault> {
    let mut text = String::new();
    for import in BTreeSet::from([&up.import, &down.import]) {
        let _ = writeln!(text, "IMPORT '{}';", import.replace('\'', "''"));
    }
    for port in [INSIDE, OUTSIDE] {
        let _ = writeln!(text, "CREATE PORT {port} ON tun '{port}';");
    }
    let _ = writeln!(text, "CREATE CHAIN outwards ON PORT {INSIDE} -> {OUTSIDE} AS END;");
    let _ = writeln!(text, "CREATE CHAIN inwards ON PORT {OUTSIDE} -> {INSIDE} AS END;");
    for (name, port, direction) in [(UP, OUTSIDE, up), (DOWN, INSIDE, down)] {
        let rate = direction.rate.map_or(String::new(), |rate| format!("RATE '{rate} bit/s' "));
        let _ = writeln!(text, "CREATE LINK {name} ON PORT {port} {rate}QUEUE {};", direction.queue);
    }
    let texts = [up, down].into_iter().flat_map(|direction| direction.texts.clone());
    let open: Arc<BTreeMap<_, _>> = Arc::new(texts.chain([(PROGRAM.to_owned(), text)]).collect());
    let mut files = source::with_open(&open);
    let checked = check_files(PROGRAM, &mut files);
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    match checked.accepted {
        None => Err(Fault::reported(checked.at_fault)),
        Some(accepted) => Ok((accepted, checked.sources, files.into_bundle(PROGRAM))),
    }
}

/// A queue in the form of a link's declaration, its file, and the needed parts of all files.
fn queue_of(named: &str) -> Result<(String, String, BTreeMap<String, String>), Fault> {
    let (name, arguments) = named.split_at(named.find('(').unwrap_or(named.len()));
    let name = name.trim();
    if !name.contains(['/', '.']) {
        let import = format!("{LIBRARY}{name}.weft");
        if library::text(&import).is_none() {
            let names = library::paths().filter_map(|path| path.strip_prefix(LIBRARY)?.strip_suffix(".weft"));
            let names: Vec<_> = names.collect();
            let what = format!("the library has no queue `{name}`; it has {}", names.join(", "));
            return Err(Fault::Input(what));
        }
        return Ok((named.to_owned(), import, BTreeMap::new()));
    }
    require(name)?;
    let mut files = source::on_disk();
    let checked = check_files(name, &mut files);
    // Warnings come from the check of the whole program, where they appear once for both directions.
    let Some(Accepted { network, .. }) = checked.accepted else {
        stderr::diagnostics(&checked.diagnostics, &checked.sources);
        return Err(Fault::reported(checked.at_fault));
    };
    let missing_args = missing_args::queues(&checked.sources);
    let queue = match (network.queues.last(), missing_args.last()) {
        (Some(queue), _) => &queue.name,
        (None, Some(missing_args)) if !arguments.is_empty() => &missing_args.name,
        (None, Some(missing_args)) => {
            return Err(missing_args.fault(name, |with| format!("name it with them: --queue \"{with}\"")));
        }
        (None, None) => return Err(Fault::Input(format!("{name}: it creates no queue"))),
    };
    let texts = files.into_bundle(name).files.into_iter().map(|(name, text)| {
        let queues = without_ports(&name, &text);
        (name, queues)
    });
    Ok((format!("{queue} {arguments}").trim().to_owned(), name.to_owned(), texts.collect()))
}

/// A file without its ports, chains and links, which the command makes itself. They become blanks, so that the rest
/// stays on its lines.
fn without_ports(name: &str, text: &str) -> String {
    let mut sources = SourceMap::new();
    let Ok(file) = sources.add(name, text) else { return text.to_owned() };
    let (ast, _) = parse(&sources, file);
    let is_for_queues =
        |item: &Item| matches!(item, Item::Import(_) | Item::Protocol(_) | Item::Union(_) | Item::Queue(_));
    let mut left = text.to_owned();
    for item in ast.items.iter().filter(|item| !is_for_queues(item)) {
        let span = item.span();
        let (start, end) = (span.start as usize, span.end as usize);
        let blank: String =
            text[start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        left.replace_range(start..end, &blank);
    }
    left
}

/// Both directions with the settings that a program cannot express.
pub(super) fn paths(up: &LinkDirection, down: &LinkDirection) -> [(&'static str, Path); 2] {
    [(UP, up.path.clone()), (DOWN, down.path.clone())]
}

/// Reads the trace in a file.
fn read_trace(path: &std::path::Path) -> Result<Arc<Trace>, Fault> {
    parse_trace(path, &read_lossy(path, TRACE_BYTES_MAX)?)
}
