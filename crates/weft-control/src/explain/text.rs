//! `weft explain` as text: the reports of chains, at most 100 columns wide.

use super::report::{
    Chain, ClashReport, Element, Filter, Handler, HeaderReport, Pair, Parallel, PlanReport, ProgramLine,
    TableReport,
};
use crate::show::{count, grouped};
use weft_lang::ast::Side;
use weft_opt::effects::SourceLines;
use weft_opt::plan::{Copied, ElementFigures, ID_BYTES, Level, LicensedBy, VERSION_BYTES};

/// The maximum width of a line.
const WIDTH: usize = 100;
/// The indentation after the label of a line about the plan.
const INDENT: &str = "               ";
/// The maximum number of lines per element for one clash.
const PLACES_MAX: usize = 2;

/// The text of a chain: its plan, and with `is_full` everything that the plan follows from.
pub(super) fn of(chain: &Chain, is_full: bool) -> String {
    let mut out = String::new();
    let (name, level) = (&chain.name, chain.level.name());
    let head = match (&chain.frames, chain.to.as_str()) {
        (None, to) => {
            format!("chain {name}  ({} -> {to}, METHOD {})   level {level}", chain.from, chain.methods)
        }
        (Some(_), "") => format!("chain {name}  (frames at {})   level {level}", chain.from),
        (Some(_), to) => format!("chain {name}  (frames at {}, on to {to})   level {level}", chain.from),
    };
    wrapped(&mut out, "", "    ", &head);
    for (edge, stages) in &chain.branches {
        wrapped(&mut out, "  steered      ", INDENT, &format!("{edge} -> {}", stages.join(" -> ")));
    }
    plan(&mut out, &chain.plan, chain.frames.is_some());
    if !is_full {
        out.push_str("what each element does, and which may change places: --full\n");
        return out;
    }
    stages(&mut out, chain);
    pairs(&mut out, chain);
    tables(&mut out, &chain.tables);
    columns(&mut out, chain);
    parallel(&mut out, &chain.parallel);
    headers(&mut out, chain);
    out
}

/// The order as written and as planned, with its figures.
fn plan(out: &mut String, plan: &PlanReport, is_on_frames: bool) {
    wrapped(out, "  as written   ", INDENT, &plan.written.join(" -> "));
    if plan.figures.is_empty() {
        // Filters alone cost no pass, and have no order to choose.
        return out.push('\n');
    }
    let ns = |ns: f64| grouped(ns.round() as u64);
    let source = if plan.figures.iter().any(|(_, figures)| figures.is_timed) { "measured" } else { "est." };
    let was =
        if plan.order == plan.written { String::new() } else { format!(", was {}", ns(plan.written_ns)) };
    let unit = if is_on_frames { "ns/packet" } else { "ns/msg" };
    let line = format!("{}   {source} {} {unit}{was}", plan.order.join(" -> "), ns(plan.planned_ns));
    wrapped(out, "  as planned   ", INDENT, &line);
    if let Some((order, other)) = &plan.not_taken {
        let line = format!("{}   {} {unit}: too little to gain", order.join(" -> "), ns(*other));
        wrapped(out, "  not taken    ", INDENT, &line);
    }
    if !plan.is_exact {
        let line = match is_on_frames {
            true => "not at all: chains on frames run in the order in which they are written",
            false => "too many elements to look at every order: a better one may exist",
        };
        wrapped(out, "  searched     ", INDENT, line);
    }
    let figures: Vec<String> = plan.figures.iter().map(|(name, figures)| figure(name, figures)).collect();
    wrapped(out, "  by           ", INDENT, &figures.join(", "));
    for (element, field, by) in &plan.dead {
        let line = format!("{element} sets {field}, which {by} sets anew before anybody looks: left out");
        wrapped(out, "  for nothing  ", INDENT, &line);
    }
    for (first, second, others) in &plan.crossings {
        let line = format!(
            "{} may cross {first} and {second} as one (swap.7): they take each other back",
            others.join(", ")
        );
        wrapped(out, "  inverse      ", INDENT, &line);
    }
    for licence in &plan.licences {
        let rules: Vec<String> = licence.rules.iter().map(ToString::to_string).collect();
        let words = match licence.by {
            LicensedBy::Braces => "the braces that hold both".to_owned(),
            LicensedBy::Priority => format!("PRIORITY {} > {}", licence.front, licence.behind),
        };
        let line = format!(
            "{} before {} by {words}, against {}: calls may see the difference",
            licence.front,
            licence.behind,
            rules.join(", ")
        );
        wrapped(out, "  licensed     ", INDENT, &line);
    }
    out.push('\n');
}

/// The assumed cost and ends of an element; marks figures that were not measured.
fn figure(name: &str, figures: &ElementFigures) -> String {
    let guess = |is_measured: bool| if is_measured { "" } else { "~" };
    let ns = grouped(figures.ns.round() as u64);
    let mut text = format!("{name} {}{ns} ns", guess(figures.is_timed));
    if figures.ends > 0.0 {
        text += &format!(" ending {}{:.0} %", guess(figures.is_counted), 100.0 * figures.ends);
    }
    text
}

/// Appends the elements and filters in their order.
fn stages(out: &mut String, chain: &Chain) {
    let mut filters = chain.filters.iter().peekable();
    for stage in &chain.elements {
        while let Some(before) = filters.next_if(|filter| filter.at <= stage.at) {
            filter(out, before);
        }
        element(out, stage);
    }
    filters.for_each(|stage| filter(out, stage));
}

/// Appends a filter: its name, policies and keys.
fn filter(out: &mut String, filter: &Filter) {
    let mut head = filter.name.clone();
    if filter.filter != filter.name {
        head += &format!(" is {}", filter.filter);
    }
    let mandatory = if filter.mandatory { "  MANDATORY" } else { "" };
    wrapped(out, "", "    ", &format!("{head}  FILTER{mandatory}   {}", filter.file));
    let indent = " ".repeat(14);
    if let Some(keys) = &filter.keys {
        let reads = keys.effects.iter().filter(|effect| effect.kind == "reads");
        let reads: Vec<String> =
            reads.map(|effect| format!("{}{}", effect.what, at(&effect.lines))).collect();
        let words = if keys.name == "open" { "when the call opens" } else { "with the message" };
        wrapped(out, "  keys        ", &indent, &format!("{words}: {}", reads.join(", ")));
    }
    for (name, text) in &filter.policies {
        wrapped(out, &format!("  {name:<11} "), &indent, text);
    }
    let wraps = match filter.wraps.as_slice() {
        [] => "the way to the server".to_owned(),
        stages => stages.join(", "),
    };
    wrapped(out, "  wraps       ", &indent, &wraps);
    if let Some(keys) = &filter.keys {
        let line = format!("operations: {} in {}", grouped(keys.ops), keys.name);
        wrapped(out, "  at most     ", &indent, &line);
    }
    out.push('\n');
}

/// Appends an element: its name, flags and handlers.
fn element(out: &mut String, element: &Element) {
    let mut head = element.name.clone();
    if element.element != element.name {
        head += &format!(" is {}", element.element);
    }
    let sides = [(Side::Client, "AT CLIENT"), (Side::Server, "AT SERVER")];
    let sides = sides.map(|(side, word)| (element.side == Some(side), word));
    // Nothing of this version runs in the application's process, and mandatory elements never will.
    let flags =
        [(element.mandatory, "MANDATORY"), (element.fail_open, "FAIL OPEN"), (element.per_try, "PER TRY")];
    for (is, word) in sides.into_iter().chain(flags) {
        if is {
            head += &format!("  {word}");
        }
    }
    wrapped(out, "", "    ", &format!("{head}   {}", element.file));
    element.handlers.iter().for_each(|one| handler(out, one));
    wrapped(out, "  at most   ", "            ", &costs(element));
    out.push('\n');
}

/// Formats the worst-case cost of an element.
fn costs(element: &Element) -> String {
    let mut counts: Vec<String> = Vec::new();
    for handler in element.handlers.iter().filter(|handler| handler.ops > 0) {
        counts.push(format!("{} in {}", grouped(handler.ops), handler.name));
    }
    counts.dedup();
    let mut text = format!("operations: {}", counts.join(", "));
    for handler in element.handlers.iter().filter(|handler| handler.ns_per_kib > 0) {
        let us = handler.ns_per_kib as f64 / 1e3;
        text += &format!("; {us:.1} us for each KiB of values in {}", handler.name);
    }
    for (n, what) in [(element.table_bytes, "of tables"), (element.call_bytes, "for each open call")] {
        if n > 0 {
            text += &format!("; {} {what}", bytes(n));
        }
    }
    text
}

/// Appends a handler's effects, a line each.
fn handler(out: &mut String, handler: &Handler) {
    let mut label = handler.name;
    for effect in &handler.effects {
        let first = format!("  {label:<9} {:<13} ", effect.kind);
        wrapped(out, &first, &" ".repeat(26), &format!("{}{}", effect.what, at(&effect.lines)));
        label = "";
    }
    if handler.effects.is_empty() {
        out.push_str(&format!("  {label:<9} does nothing\n"));
    }
}

/// The lines of an effect, in the file of its element.
fn at(lines: &SourceLines) -> String {
    let known: Vec<String> = lines.iter().filter(|line| **line > 0).map(|line| format!(":{line}")).collect();
    if known.is_empty() { String::new() } else { format!("   {}", known.join(" ")) }
}

/// Appends all pairs of elements and whether they may be swapped.
fn pairs(out: &mut String, chain: &Chain) {
    if chain.pairs.is_empty() {
        return;
    }
    wrapped(
        out,
        "",
        "",
        "may they change places? (of elements that are no neighbours: if all between them may, too)",
    );
    let names = chain.pairs.iter().map(|pair| format!("{}, {}", pair.first, pair.second));
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    chain.pairs.iter().for_each(|report| pair(out, report, width));
    out.push('\n');
}

/// Appends a pair: its verdict, and the conflicts that forbid the swap.
fn pair(out: &mut String, pair: &Pair, width: usize) {
    let names = format!("{}, {}", pair.first, pair.second);
    let first = format!("  {names:<width$}   ");
    let indent = " ".repeat(first.chars().count());
    wrapped(out, &first, &indent, &verdict(pair));
    let mut seen: Vec<&str> = Vec::new();
    for report in pair.clashes.iter().filter(|report| report.is_blocking) {
        // The same reason for another direction adds nothing.
        if !seen.contains(&&*report.clash.why) {
            seen.push(&report.clash.why);
            clash(out, report);
        }
    }
}

/// Whether a pair may be swapped, in words, with the rules that limit it.
fn verdict(pair: &Pair) -> String {
    match (pair.may_swap, pair.allowed_from) {
        (true, None | Some(Level::Strict)) => "yes".to_owned(),
        (true, Some(_)) => {
            let mut rules: Vec<String> =
                pair.clashes.iter().map(|report| report.clash.rule.to_string()).collect();
            rules.dedup();
            format!("yes; at strict no: {}", rules.join(", "))
        }
        (false, _) if pair.licence.is_some() => licensed(pair),
        (false, Some(level)) => format!("no; from level {} on", level.name()),
        (false, None) => "no, at no level".to_owned(),
    }
}

fn licensed(pair: &Pair) -> String {
    match pair.licence {
        Some(LicensedBy::Priority) => format!("yes, by PRIORITY {} > {}, against", pair.second, pair.first),
        _ => "yes, by the braces that hold both, against".to_owned(),
    }
}

/// Appends a conflict: its rule, the reason, and the program lines.
fn clash(out: &mut String, report: &ClashReport) {
    let rule = report.clash.rule;
    let first = format!("    {:<8} {:<9} ", rule.to_string(), rule.name());
    wrapped(out, &first, &" ".repeat(23), &report.clash.why);
    let shown: Vec<&ProgramLine> = report.places.iter().filter(|place| place.nth < PLACES_MAX).collect();
    let width = shown.iter().map(|place| label(place).chars().count()).max().unwrap_or(0);
    for place in &shown {
        let line = format!("             {:<width$} | {}", label(place), place.text);
        out.push_str(&cut(&line));
        out.push('\n');
    }
    let more = report.places.len() - shown.len();
    if more > 0 {
        out.push_str(&format!("             and {} more\n", count(more as u64, "line")));
    }
}

/// The file of an element is printed before.
fn label(place: &ProgramLine) -> String {
    format!("{}:{}", place.element, place.line)
}

/// Appends the tables: size, expiry and sharding.
fn tables(out: &mut String, tables: &[TableReport]) {
    for table in tables {
        let size = format!("{} rows, {} at most", grouped(table.rows_max), bytes(table.bytes_max));
        let first = format!("table {}   ", table.name);
        let since = |since: &str| match since {
            "insert" => "their insertion".to_owned(),
            since => format!("the last {since}"),
        };
        let ages = table.ages.iter().map(|(from, ttl)| format!(", gone {ttl} after {}", since(from)));
        let ages: String = ages.collect();
        wrapped(out, &first, "    ", &format!("{}, {size}{ages}; {}", table.realisation, table.sharding));
        for built in &table.matched {
            let size = format!("{} rows in {}", grouped(built.rules as u64), bytes(built.bytes as u64));
            let line = format!("{size}, {}; a look reads {:.1} places", built.kind, built.touches);
            wrapped(out, "    matched   ", "        ", &line);
        }
    }
}

/// Appends the fields that the chain parses or extracts.
fn columns(out: &mut String, chain: &Chain) {
    if let Some(frames) = &chain.frames {
        let line =
            format!("{}; {} rules that make a frame malformed", frames.layers.join(", "), frames.n_checks);
        wrapped(out, "layers looked at   ", "    ", &line);
    }
    let message = if chain.frames.is_some() { "frame" } else { "request" };
    for (name, columns) in [(message, &chain.request), ("response", &chain.response)] {
        if !columns.names.is_empty() {
            let first = format!("taken from the {name}, once   ");
            let of = columns.fields.filter(|(n, _)| *n > 0);
            let of = of.map(|(n, of)| format!(" ({n} of {of} fields)")).unwrap_or_default();
            wrapped(out, &first, "    ", &format!("{}{of}", columns.names.join(", ")));
        }
    }
}

/// Appends the possible parallel execution, or the reason against it.
fn parallel(out: &mut String, parallel: &Parallel) {
    if parallel.pairs.is_empty() {
        return;
    }
    let step =
        |step: &Vec<String>| if step.len() > 1 { format!("({})", step.join(" | ")) } else { step.join("") };
    let steps: Vec<String> = parallel.steps.iter().map(step).collect();
    if parallel.steps.iter().all(|step| step.len() == 1) {
        wrapped(out, "side by side   ", "    ", "nothing: each element waits for the one in front of it");
    } else {
        let line = format!(
            "{}   not done: one worker runs a call to its end; on more it would save {:.0} ns at most, and take {:.0} \
             ns to hand over, copy and merge",
            steps.join(" -> "),
            parallel.saves_ns,
            parallel.costs_ns
        );
        wrapped(out, "side by side   ", "    ", &line);
    }
    for pair in &parallel.pairs {
        let Ok(how) = &pair.verdict else { continue };
        let copy = match how.copy {
            Copied::Nothing => None,
            Copied::Headers => Some("works on a copy of the headers"),
            Copied::All => Some("works on a copy of the message"),
        };
        let commits = how.commits_at_merge.then_some("keeps what it leaves until the merge");
        let does: Vec<&str> = copy.into_iter().chain(commits).collect();
        if !does.is_empty() {
            let first = format!("    {} | {}   ", pair.front, pair.behind);
            wrapped(out, &first, "        ", &format!("{} {}", pair.behind, does.join(" and ")));
        }
    }
}

/// The header in front of a message at each cut.
fn headers(out: &mut String, chain: &Chain) {
    let is_stage = |name: &String| chain.plan.order.contains(name);
    let label = |header: &HeaderReport| match &header.before {
        Some(element) => format!("header to {element}"),
        None if is_stage(&chain.to) => format!("header to cluster {}", chain.to),
        None => format!("header to {}", chain.to),
    };
    let width = chain.headers.iter().map(|header| label(header).chars().count()).max().unwrap_or(0);
    for header in &chain.headers {
        let field = |(name, bytes, is_text): &(String, u64, bool)| {
            format!("{name}:{bytes}{}", if *is_text { "+text" } else { "" })
        };
        let fields = header.fields.iter().map(field);
        let own = [format!("id:{ID_BYTES}"), format!("version:{VERSION_BYTES}")];
        let all: Vec<String> = fields.chain(own).collect();
        let texts = header.fields.iter().any(|(_, _, is_text)| *is_text);
        let more = if texts { " and texts" } else { "" };
        let first = format!("{:<width$}   ", label(header));
        let indent = " ".repeat(width + 3);
        wrapped(out, &first, &indent, &format!("{}   {} bytes{more}", all.join(" "), header.bytes));
    }
}

/// Formats a number of bytes in B, KB or MB.
fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{} B", grouped(n)),
        10_000..10_000_000 => format!("{:.1} KB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

/// Wraps words into lines no wider than [`WIDTH`]: the first starts with `first`, the others with `indent`.
fn wrapped(out: &mut String, first: &str, indent: &str, text: &str) {
    let mut line = first.to_owned();
    let (mut is_begun, mut is_broken) = (false, false);
    for word in text.split_inclusive(' ') {
        let length = line.chars().count() + word.trim_end().chars().count();
        if length > WIDTH && is_begun {
            out.push_str(line.trim_end());
            out.push('\n');
            indent.clone_into(&mut line);
            is_broken = true;
        }
        // Several spaces between words vanish at a line break.
        is_broken &= word.trim().is_empty();
        if !is_broken {
            line.push_str(word);
            is_begun = true;
        }
    }
    out.push_str(&cut(line.trim_end()));
    out.push('\n');
}

/// Truncates a line to [`WIDTH`].
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal would break lines in the middle of a word.
    #[test]
    fn lines_fit_the_width() {
        let mut out = String::new();
        wrapped(&mut out, "  reads   ", "          ", &"column, ".repeat(40));
        wrapped(&mut out, "  reads   ", "          ", &"x".repeat(300));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert!(out.lines().nth(1).is_some_and(|line| line.starts_with("          column,")), "{out}");
        assert_eq!(out.matches("column").count(), 40);
    }
}
