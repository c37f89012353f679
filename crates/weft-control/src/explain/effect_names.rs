//! Describes the effects of handlers in words, for `weft explain`.

use super::report::Effect;
use std::collections::BTreeMap;
use weft_core::table::TableSpec;
use weft_core::types::Repr;
use weft_ir::ir::{ColumnId, InputId, TableId};
use weft_ir::program::{ChainProgram, SinkTarget};
use weft_opt::effects::{Cell, Effects, Ending, Key, Source, SourceLines, Sources};
use weft_opt::plan::Sharding;

/// The most names listed for a key's parts, or for an end's conditions.
const SOURCES_MAX: usize = 6;

/// The program whose names describe a handler's effects.
pub(super) struct EffectNames<'p> {
    pub(super) program: &'p ChainProgram,
    /// The inputs are those of the request direction.
    pub(super) is_request: bool,
}

impl EffectNames<'_> {
    /// The effects of a handler: first those on the tuple, last its ends.
    pub(super) fn of(&self, effects: &Effects) -> Vec<Effect> {
        let mut named = Vec::new();
        let mut add = |kind, what: Vec<String>, lines: SourceLines| {
            if !what.is_empty() {
                named.push(Effect { kind, what: what.join(", "), lines });
            }
        };
        let (reads, lines) = self.reads(effects);
        add("reads", reads, lines);
        add("writes", self.writes(effects), all(effects.writes.values().map(|write| &write.lines)));
        add("looks at", self.looks(effects), effects.table_reads.iter().map(|look| look.line).collect());
        let (changed, lines) = self.changes(effects);
        add("changes", changed, lines);
        let answers = effects.answers.keys().map(|id| self.program.answers[usize::from(id.0)].name.clone());
        add("answers with", answers.collect(), all(effects.answers.values()));
        let replies = effects.replies.keys().map(|id| self.program.replies[usize::from(id.0)].path.join("."));
        add("replies with", replies.collect(), all(effects.replies.values()));
        add("gives rows to", self.sinks(effects), all(effects.sinks.values()));
        let flags = [
            ("copies", "the tuple to another target", &effects.mirrors),
            ("changes", "the headers of the frame", &effects.reshapes),
            ("delays", "the tuple", &effects.delays),
            ("marks", "the tuple", &effects.marks),
            ("redirects", "the tuple", &effects.redirects),
            ("asks for", "where the tuple leaves", &effects.egress),
            ("asks for", "the time", &effects.clock),
        ];
        for (kind, what, lines) in flags {
            if !lines.is_empty() {
                add(kind, vec![what.to_owned()], lines.clone());
            }
        }
        let draws = (!effects.draws.is_empty()).then(|| format!("{}", effects.draws.len()));
        add("draws", draws.into_iter().collect(), all(effects.draws.values()));
        named.extend(self.ends(effects));
        named
    }

    fn input(&self, id: InputId) -> String {
        let direction = if self.is_request { &self.program.request } else { &self.program.response };
        direction.inputs[usize::from(id.0)].name.clone()
    }

    fn table(&self, id: TableId) -> &TableSpec {
        &self.program.tables[usize::from(id.0)].spec
    }

    /// The names of the inputs, then of the state, that a handler reads, with the source lines.
    fn reads(&self, effects: &Effects) -> (Vec<String>, SourceLines) {
        let mut names: Vec<String> = Vec::new();
        for name in effects.reads.keys().map(|id| self.input(*id)) {
            // A layer has an input for each of its versions; name it once.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut lines = all(effects.reads.values());
        for (cell, used) in effects.cells.iter().filter(|(_, used)| !used.reads.is_empty()) {
            match *cell {
                // A look has its own effect, and tables that only receive rows are not read.
                Cell::Rows(_) | Cell::Sent(_) => continue,
                Cell::Column(id, column) => {
                    names.push(format!("{}.{}", self.table(id).name, self.column(id, column)));
                }
                Cell::Var(id) => names.push(self.program.vars[usize::from(id.0)].name.clone()),
                Cell::Call(id) => names.push(format!("call.{}", self.program.call[usize::from(id.0)].name)),
            }
            lines.extend(&used.reads);
        }
        (names, lines)
    }

    fn column(&self, table: TableId, column: ColumnId) -> String {
        let spec = self.table(table);
        let column = spec.key.iter().chain(&spec.columns).nth(usize::from(column.0));
        column.map_or_else(String::new, |column| column.name.clone())
    }

    /// The fields that a handler writes, each with how certainly it does.
    fn writes(&self, effects: &Effects) -> Vec<String> {
        let describe = |(id, write): (&InputId, &weft_opt::effects::Write)| {
            let how = match (write.blind, write.always) {
                (true, _) => " (always, unseen)",
                (_, true) => " (always)",
                _ => " (maybe)",
            };
            self.input(*id) + how
        };
        effects.writes.iter().map(describe).collect()
    }

    /// The tables that a handler reads, each with the key.
    fn looks(&self, effects: &Effects) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for look in &effects.table_reads {
            let spec = self.table(look.table);
            let table = &spec.name;
            let what =
                match look.key.as_ref().map(|key| (constant(key, spec).or(key.text.clone()), &key.sources)) {
                    None => format!("all of {table}"),
                    Some((Some(text), _)) => format!("{table} by {text}"),
                    Some((None, sources)) => format!("{table} by a key made of {}", self.sources(sources)),
                };
            if !names.contains(&what) {
                names.push(what);
            }
        }
        names
    }

    /// Tables with their columns, variables, cells of the call's row.
    fn changes(&self, effects: &Effects) -> (Vec<String>, SourceLines) {
        let mut tables: BTreeMap<TableId, Vec<String>> = BTreeMap::new();
        let (mut others, mut lines) = (Vec::new(), SourceLines::new());
        for (cell, used) in &effects.cells {
            let own: SourceLines = used.writes.union(&used.merges).copied().collect();
            if own.is_empty() {
                continue;
            }
            lines.extend(own);
            match *cell {
                Cell::Rows(id) => tables.entry(id).or_default().push("rows".to_owned()),
                Cell::Column(id, column) => {
                    tables.entry(id).or_default().push(self.column(id, column));
                }
                Cell::Var(id) => others.push(self.program.vars[usize::from(id.0)].name.clone()),
                Cell::Call(id) => others.push(format!("call.{}", self.program.call[usize::from(id.0)].name)),
                Cell::Sent(id) => {
                    others.push(format!("{} (rows)", self.program.sinks[usize::from(id.0)].sent_to()));
                }
            }
        }
        let tables =
            tables.iter().map(|(id, what)| format!("{} ({})", self.table(*id).name, what.join(", ")));
        (tables.chain(others).collect(), lines)
    }

    /// The targets of the sinks that a handler writes to.
    fn sinks(&self, effects: &Effects) -> Vec<String> {
        let describe = |id: &weft_ir::ir::SinkId| {
            let sink = &self.program.sinks[usize::from(id.0)];
            let target = match &sink.target {
                SinkTarget::Stdout => "standard output".to_owned(),
                SinkTarget::File(path) => path.clone(),
                SinkTarget::Metrics => "the metrics".to_owned(),
                SinkTarget::Table { table, deletes: false, .. } => format!("table {table}"),
                SinkTarget::Table { table, deletes: true, .. } => format!("out of table {table}"),
            };
            format!("{} ({target})", sink.name)
        };
        effects.sinks.keys().map(describe).collect()
    }

    /// One effect for each way to end; ends for lack of room are merged.
    fn ends(&self, effects: &Effects) -> Vec<Effect> {
        let describe = |end: &Ending| {
            // Nearly every end depends on room, so it says nothing.
            let when: Sources = end.when.iter().copied().filter(|source| *source != Source::Room).collect();
            let by = if when.is_empty() { String::new() } else { format!(", by {}", self.sources(&when)) };
            Effect { kind: "may end", what: format!("{}{by}", end.kind), lines: [end.line].into() }
        };
        let (room, own): (Vec<&Ending>, Vec<&Ending>) = effects.ends.iter().partition(|end| end.is_room);
        let mut ends: Vec<Effect> = Vec::new();
        for end in own.into_iter().map(describe) {
            match ends.iter_mut().find(|known| known.what == end.what) {
                Some(known) => known.lines.extend(end.lines),
                None => ends.push(end),
            }
        }
        let lines: SourceLines = room.iter().map(|end| end.line).collect();
        let what = "an error, where the pass has no room left".to_owned();
        ends.extend((!room.is_empty()).then_some(Effect { kind: "may end", what, lines }));
        ends
    }

    /// The names, or their number if there are too many: a handler's reads are listed elsewhere.
    fn sources(&self, sources: &Sources) -> String {
        if sources.len() > SOURCES_MAX {
            return format!("{} of what it reads", sources.len());
        }
        let describe = |source: &Source| match *source {
            Source::Input(id) => self.input(id),
            Source::Call(id) => format!("call.{}", self.program.call[usize::from(id.0)].name),
            Source::Var(id) => self.program.vars[usize::from(id.0)].name.clone(),
            Source::Table(id) => self.table(id).name.clone(),
            Source::Now => "the time".to_owned(),
            Source::Rand => "chance".to_owned(),
            Source::Room => "the room left".to_owned(),
            Source::Egress => "where the tuple leaves".to_owned(),
        };
        sources.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}

/// Whether, and by which key, a table can be spread over nodes.
pub(super) fn sharding(program: &ChainProgram, sharding: &Sharding) -> String {
    match sharding {
        Sharding::Replicated => "every node can have all of it: no handler writes it".to_owned(),
        Sharding::PerWorker => "each worker has its own, as the program says".to_owned(),
        Sharding::By(key) => format!("can be spread over nodes by {key}"),
        Sharding::No { why, element, lines } => {
            let element = program.elements.get(*element).map_or("", |element| &element.name);
            let line = lines.iter().next().filter(|line| **line > 0);
            let place = line.map_or_else(String::new, |line| format!(" (in {element}, :{line})"));
            format!("cannot be spread by key: {why}{place}")
        }
    }
}

fn all<'l>(lines: impl Iterator<Item = &'l SourceLines>) -> SourceLines {
    lines.flatten().copied().collect()
}

/// A key that is one constant of bytes, as programs write it: an address is not its bytes.
fn constant(key: &Key, table: &TableSpec) -> Option<String> {
    let ([column], Some(known)) = (&table.key[..], &key.known) else { return None };
    (column.ty.repr() == Repr::Bytes).then(|| format!("'{}'", column.ty.shown(known)))
}
