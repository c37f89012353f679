//! Decides whether two elements may swap, by the rules of the language.
//!
//! Two adjacent elements may swap if both orders do the same to every tuple, from every state, in both directions.
//! Handlers of different passes keep their order in any case: a RESPONSE runs after all REQUESTs. So the rules compare
//! the handlers of one pass. Only ends have a wider effect: later elements never see a call that an earlier one ends on
//! its way in, not even its CLOSE.
//!
//! Each rule returns its clashes, each with the weakest level at which it matters. Without a clash the elements may
//! swap.

use std::collections::{BTreeMap, BTreeSet};
use weft_core::inputs::InputSet;

use weft_ir::ir::{CallId, InputId, SinkId};
use weft_ir::program::{ChainProgram, Direction, InputLocation, Meta};

use super::{Clash, Clause, Context, Level, Pair, Side};
use crate::effects::{
    Cell, CellUse, ChainEffects, Condition, Effects, ElementEffects, EndKind, Ending, SourceLines,
};

/// All pairs of a chain, in the order of the chain.
pub fn pairs(chain: &ChainProgram, effects: &ChainEffects, context: &Context) -> Vec<Pair> {
    let n = chain.elements.len();
    let both = (0..n).flat_map(|first| (first + 1..n).map(move |second| (first, second)));
    both.map(|(first, second)| pair(chain, effects, context, first, second)).collect()
}

/// Applies all rules to two elements. Returns the pair with its clashes, sorted by rule and side.
pub(super) fn pair(
    chain: &ChainProgram,
    effects: &ChainEffects,
    context: &Context,
    first: usize,
    second: usize,
) -> Pair {
    let elements = &effects.elements;
    let shared_calls = shared_calls(elements);
    let of = |index: usize| Party {
        name: &chain.elements[index].name,
        effects: &elements[index],
        shared_calls: &shared_calls,
    };
    let mut found =
        ClashFinder { all: elements, chain, parties: [of(first), of(second)], clashes: Vec::new() };
    for side in [Side::Request, Side::Response, Side::Close] {
        found.in_one_pass(side);
    }
    found.every();
    if context.orders.contains(&(first, second)) {
        let why = format!("the chain says that {} comes before {}", found.name(0), found.name(1));
        found.clash(Clause::Order, Level::Relaxed, Side::Chain, why, SourceLines::new(), SourceLines::new());
    }
    if let Some((_, filter)) = context.filters.iter().find(|(at, _)| (first + 1..=second).contains(at)) {
        let why = format!("{filter} stands between them: a filter wraps what is behind it");
        found.clash(
            Clause::Filters,
            Level::Relaxed,
            Side::Chain,
            why,
            SourceLines::new(),
            SourceLines::new(),
        );
    }
    let mut clashes = found.clashes;
    clashes.sort_by_key(|clash| (clash.rule, clash.side));
    Pair { first, second, clashes }
}

/// The cells of the call's row that more than one element accesses.
fn shared_calls(elements: &[ElementEffects]) -> BTreeSet<CallId> {
    let mut owners: BTreeMap<CallId, BTreeSet<usize>> = BTreeMap::new();
    for (index, element) in elements.iter().enumerate() {
        for cell in element.handlers().flat_map(|(_, effects)| effects.cells.keys()) {
            if let Cell::Call(id) = cell {
                owners.entry(*id).or_default().insert(index);
            }
        }
    }
    owners.into_iter().filter(|(_, owners)| owners.len() > 1).map(|(id, _)| id).collect()
}

/// One of the two elements.
struct Party<'e> {
    name: &'e str,
    effects: &'e ElementEffects,
    shared_calls: &'e BTreeSet<CallId>,
}

/// A trace of an element, and the weakest level that promises it for calls that end.
struct Trace {
    clause: Clause,
    what: String,
    until: Level,
    lines: SourceLines,
    /// It is left only under one of these conditions.
    only: Vec<Condition>,
}

struct ClashFinder<'e> {
    /// The effects of all elements of the chain.
    all: &'e [ElementEffects],
    chain: &'e ChainProgram,
    parties: [Party<'e>; 2],
    clashes: Vec<Clash>,
}

impl<'e> Party<'e> {
    fn handlers(&self, side: Side) -> Vec<&'e Effects> {
        self.effects.of_side(side)
    }

    /// Returns a map of lines, merged over all handlers of one pass.
    fn lines<K: Ord + Copy + 'e>(
        &self,
        side: Side,
        of: impl Fn(&'e Effects) -> &'e BTreeMap<K, SourceLines>,
    ) -> BTreeMap<K, SourceLines> {
        let mut all: BTreeMap<K, SourceLines> = BTreeMap::new();
        for (key, lines) in self.handlers(side).into_iter().flat_map(of) {
            all.entry(*key).or_default().extend(lines);
        }
        all
    }

    /// Returns the inputs that the party's handlers write in this pass, with their lines.
    fn writes(&self, side: Side) -> BTreeMap<InputId, SourceLines> {
        let mut all: BTreeMap<InputId, SourceLines> = BTreeMap::new();
        for (id, write) in self.handlers(side).into_iter().flat_map(|effects| &effects.writes) {
            all.entry(*id).or_default().extend(&write.lines);
        }
        all
    }

    fn lines_of(&self, side: Side, of: impl Fn(&'e Effects) -> &'e SourceLines) -> SourceLines {
        self.handlers(side).into_iter().flat_map(of).copied().collect()
    }

    /// Returns the state that the party's handlers access in this pass, with all uses combined.
    fn cells(&self, side: Side) -> BTreeMap<Cell, CellUse> {
        let mut all: BTreeMap<Cell, CellUse> = BTreeMap::new();
        for (cell, used) in self.handlers(side).into_iter().flat_map(|effects| &effects.cells) {
            let known = all.entry(*cell).or_default();
            known.reads.extend(&used.reads);
            known.writes.extend(&used.writes);
            known.merges.extend(&used.merges);
            known.rows.add(&used.rows);
            known.given.extend(&used.given);
            known.moves.extend(&used.moves);
            known.is_changed |= used.is_changed;
            known.only.extend(used.only.iter().cloned());
        }
        all
    }

    /// The conditions under which it sends rows to a sink.
    fn rows_only(&self, side: Side, sink: SinkId) -> Vec<Condition> {
        let given = self.handlers(side).into_iter().filter_map(|effects| effects.sinks_only.get(&sink));
        given.flatten().cloned().collect()
    }

    fn ends(&self, side: Side) -> Vec<&'e Ending> {
        self.handlers(side).into_iter().flat_map(|effects| &effects.ends).collect()
    }

    /// The weakest level at which its ends matter, and their lines.
    fn ends_until(&self, side: Side) -> Option<(Level, SourceLines)> {
        until(&self.ends(side))
    }
}

impl<'e> ClashFinder<'e> {
    fn name(&self, which: usize) -> &'e str {
        self.parties[which].name
    }

    /// Records a clash with the lines of both parties.
    fn clash(
        &mut self,
        clause: Clause,
        until: Level,
        side: Side,
        why: String,
        first: SourceLines,
        second: SourceLines,
    ) {
        self.clashes.push(Clash { rule: clause.rule(), clause, until, side, why, first, second });
    }

    /// As [`ClashFinder::clash`], with the lines of party `who` first. Nothing clashes without lines of both.
    fn clash_of(
        &mut self,
        (clause, until, side): (Clause, Level, Side),
        who: usize,
        why: String,
        lines: [SourceLines; 2],
    ) {
        let [own, others] = lines;
        if own.is_empty() || others.is_empty() {
            return;
        }
        let (first, second) = if who == 0 { (own, others) } else { (others, own) };
        self.clash(clause, until, side, why, first, second);
    }

    /// Applies the rules that compare the handlers of one pass.
    fn in_one_pass(&mut self, side: Side) {
        self.both_write_fields(side);
        self.states(side);
        self.sinks(side);
        self.room(side);
        if side != Side::Close {
            // The call is over by then: a failing CLOSE has no caller to answer, and delays nothing.
            self.statuses(side);
            self.delays(side, 0);
            self.delays(side, 1);
        }
        if side == Side::Request {
            self.targets(side);
        }
        self.marks(side);
        for who in [0, 1] {
            self.writes_what_the_other_reads(side, who);
            self.answers(side, who);
            self.ends(side, who);
            self.copies(side, who);
        }
    }

    // ---- rule 1 ----

    /// Reports inputs that party `who` writes and the other party reads, in full or in part.
    fn writes_what_the_other_reads(&mut self, side: Side, who: usize) {
        let (writer, reader) = (&self.parties[who], &self.parties[1 - who]);
        let reads = reader.lines(side, |effects| &effects.reads);
        let mut both: Vec<(InputId, SourceLines, InputId, SourceLines)> = Vec::new();
        for (id, lines) in writer.writes(side) {
            let is_affected =
                |read| read == id || self.is_part_of(side, id, read) || self.overlap(side, id, read);
            let matching = reads.iter().filter(|(read, _)| is_affected(**read));
            both.extend(matching.map(|(read, read_lines)| (id, lines.clone(), *read, read_lines.clone())));
        }
        for (id, writes, read, reads) in both {
            let field = self.input(side, id);
            let (writer, reader) = (self.name(who), self.name(1 - who));
            let why = if read == id {
                format!("{writer} writes {field}, which {reader} reads")
            } else if self.overlap(side, id, read) {
                format!("{writer} writes {field}, which {reader} reads as {}", self.input(side, read))
            } else if self.direction(side).inputs[usize::from(read.0)].place
                == InputLocation::Meta(Meta::Size)
            {
                format!("{writer} writes {field}, and {reader} reads the size of the message")
            } else {
                format!("{writer} writes {field}, a part of the payload, which {reader} reads")
            };
            self.clash_of((Clause::WritesWhatIsRead, Level::Relaxed, side), who, why, [writes, reads]);
        }
    }

    /// Reports inputs that both parties write, or that share bytes.
    fn both_write_fields(&mut self, side: Side) {
        let [first, second] = [self.parties[0].writes(side), self.parties[1].writes(side)];
        for (a, a_lines) in &first {
            for (b, b_lines) in &second {
                let why = if a == b {
                    format!("both write {}", self.input(side, *a))
                } else if self.overlap(side, *a, *b) {
                    let [a, b] = [a, b].map(|id| self.input(side, *id));
                    let [first, second] = [self.name(0), self.name(1)];
                    format!("{first} writes {a} and {second} writes {b}, which share a place")
                } else {
                    continue;
                };
                let lines = [a_lines, b_lines].map(SourceLines::clone);
                self.clash_of((Clause::BothWrite, Level::Relaxed, side), 0, why, lines);
            }
        }
    }

    /// Whether `part` is a field of the message, and `whole` the message or its size.
    fn is_part_of(&self, side: Side, part: InputId, whole: InputId) -> bool {
        let place = |id: InputId| &self.direction(side).inputs[usize::from(id.0)].place;
        place(whole).is_derived() && matches!(place(part), InputLocation::Body(_))
    }

    /// Whether two inputs may be one field of a frame.
    fn overlap(&self, side: Side, a: InputId, b: InputId) -> bool {
        self.direction(side).overlapping(InputSet::of(a)).contains(b)
    }

    fn input(&self, side: Side, id: InputId) -> String {
        self.direction(side).inputs[usize::from(id.0)].name.clone()
    }

    fn direction(&self, side: Side) -> &Direction {
        if side == Side::Request { &self.chain.request } else { &self.chain.response }
    }

    /// Reports answers that conflict: one party sets parts of an answer and goes on; the other's ABORT or REPLY
    /// carries them, or it sets them, too.
    fn answers(&mut self, side: Side, who: usize) {
        let (one, other) = (&self.parties[who], &self.parties[1 - who]);
        let left = [
            (one.lines(side, |e| &e.answers_left), other.lines(side, |e| &e.answers), "an answer"),
            (one.lines(side, |e| &e.replies_left), other.lines(side, |e| &e.replies), "a reply"),
        ];
        let gives = |end: &&&Ending, reply: bool| match end.kind {
            EndKind::Reply => reply,
            EndKind::Abort(..) => !reply,
            EndKind::Drop | EndKind::Fail(_) => false,
        };
        let ends = other.ends(side);
        for (is_reply, (left, set, what)) in left.into_iter().enumerate() {
            let own: SourceLines = left.values().flatten().copied().collect();
            let given = ends.iter().filter(|end| gives(end, is_reply == 1)).map(|end| end.line);
            let same =
                set.iter().filter(|(name, _)| left.contains_key(name)).flat_map(|(_, l)| l.iter().copied());
            let others: SourceLines = given.chain(same).collect();
            let (name, other) = (self.name(who), self.name(1 - who));
            let why = format!("{name} sets parts of {what} and goes on, and {other} gives one");
            self.clash_of((Clause::Answers, Level::Relaxed, side), who, why, [own, others]);
        }
    }

    fn marks(&mut self, side: Side) {
        let why = "both mark the tuple, and the last mark stays";
        self.clash_if_both(Clause::Marks, Level::Relaxed, side, why, |effects| &effects.marks);
    }

    /// Records a clash if both do the same thing.
    fn clash_if_both(
        &mut self,
        clause: Clause,
        until: Level,
        side: Side,
        why: &str,
        of: fn(&Effects) -> &SourceLines,
    ) {
        let lines = [0, 1].map(|who| self.parties[who].lines_of(side, of));
        self.clash_of((clause, until, side), 0, why.to_owned(), lines);
    }

    // ---- rule 2 ----

    /// Reports state that one party changes and the other accesses. Merges commute, and so do updates of a row's age.
    fn states(&mut self, side: Side) {
        let [first, second] = [self.parties[0].cells(side), self.parties[1].cells(side)];
        for (cell, a) in &first {
            let Some(b) = second.get(cell) else { continue };
            if a.rows.is_apart_from(&b.rows) {
                continue;
            }
            let changed = |used: &CellUse| !used.writes.is_empty() || !used.merges.is_empty();
            let only_merges = |used: &CellUse| used.writes.is_empty() && used.reads.is_empty();
            // Reads of one pass store the same time in the row, and that time hides no row from another read.
            let only_touches = |used: &CellUse| used.merges.is_empty() && !used.is_changed;
            if !(changed(a) || changed(b)) || (only_merges(a) && only_merges(b)) {
                continue;
            }
            if only_touches(a) && only_touches(b) {
                continue;
            }
            let lines = |used: &CellUse| -> SourceLines {
                if changed(used) {
                    used.writes.union(&used.merges).copied().collect()
                } else {
                    used.reads.clone()
                }
            };
            let verb = |used: &CellUse| if changed(used) { "changes" } else { "reads" };
            let what = self.cell(*cell);
            let (clause, why) = match (verb(a), verb(b)) {
                (x, y) if x == y => (Clause::BothChange, format!("both change {what}")),
                (x, y) => {
                    let why = format!("{} {x} {what}, which {} {y}", self.name(0), self.name(1));
                    (Clause::ChangesWhatIsRead, why)
                }
            };
            self.clash(clause, Level::Relaxed, side, why, lines(a), lines(b));
        }
    }

    /// Describes a cell for the reason of a clash.
    fn cell(&self, cell: Cell) -> String {
        let name = cell.name(self.chain);
        match cell {
            Cell::Rows(_) | Cell::Sent(_) => format!("the rows of {name}"),
            Cell::Column(..) | Cell::Var(_) => name,
            Cell::Call(_) => format!("call.{name}"),
        }
    }

    // ---- rules 3 and 6 ----

    /// Reports traces that an end suppresses: if one ends the tuple, the other must leave no trace that depends on
    /// the order.
    fn ends(&mut self, side: Side, who: usize) {
        let ends = self.parties[who].ends(side);
        let changed = self.changed_inputs(side);
        for trace in self.traces(side, 1 - who) {
            // If the fields exclude that the call ended, the order does not matter.
            let may_meet = |end: &&&Ending| !trace.only.iter().all(|only| end.only.excludes(only, &changed));
            let meeting: Vec<&Ending> = ends.iter().filter(may_meet).copied().collect();
            let Some((until, ends)) = until(&meeting) else { continue };
            let why =
                format!("{} may end the call, and {} {}", self.name(who), self.name(1 - who), trace.what);
            let until = until.min(trace.until);
            self.clash_of((trace.clause, until, side), who, why, [ends, trace.lines]);
        }
    }

    /// Returns the traces of an element that are missing if the call ends before it.
    fn traces(&self, side: Side, who: usize) -> Vec<Trace> {
        let party = &self.parties[who];
        let sides: &[Side] = if side == Side::Request { &[Side::Request, Side::Close] } else { &[side] };
        let mut traces = Vec::new();
        let mut trace = |clause, what: String, lines: SourceLines, only: Vec<Condition>| {
            if !lines.is_empty() {
                let until = if clause == Clause::EndsRows { Level::Observable } else { Level::Stochastic };
                traces.push(Trace { clause, what, until, lines, only });
            }
        };
        let always = || vec![Condition::default()];
        for &of in sides {
            let when = if of == side { "" } else { " when it closes" };
            for clause in [Clause::EndsState, Clause::EndsSharedCell] {
                let (names, lines, only) = self.changed(party, of, clause == Clause::EndsSharedCell);
                // Conditions of another pass do not hold here.
                let only = if of == side { only } else { always() };
                trace(clause, format!("changes {}{when}", names.join(", ")), lines, only);
            }
            // Rows sent to a table are state.
            let is_log = |id: &SinkId| self.chain.sinks[usize::from(id.0)].target.table().is_none();
            let sinks = party.lines(of, |effects| &effects.sinks);
            for (id, lines) in sinks.into_iter().filter(|(id, _)| is_log(id)) {
                let sink = &self.chain.sinks[usize::from(id.0)].name;
                let only = if of == side { party.rows_only(of, id) } else { always() };
                trace(Clause::EndsRows, format!("gives {sink} a row{when}"), lines, only);
            }
            let copies = party.lines_of(of, |effects| &effects.mirrors);
            trace(Clause::EndsCopies, format!("copies the tuple{when}"), copies, always());
        }
        if side != Side::Response {
            let edits: SourceLines = party.writes(Side::Close).into_values().flatten().collect();
            trace(Clause::EndsTrailers, "changes the end of the call".to_owned(), edits, always());
        }
        traces
    }

    /// The inputs of a pass that some element changes: elements may find different values in them.
    fn changed_inputs(&self, side: Side) -> BTreeSet<InputId> {
        let sides: &[Side] = match side {
            Side::Request => &[Side::Request],
            _ => &[Side::Response, Side::Close],
        };
        let handlers =
            sides.iter().flat_map(|side| self.all.iter().flat_map(|effects| effects.of_side(*side)));
        handlers.flat_map(|handler| handler.writes.keys().copied()).collect()
    }

    /// Returns the state that a party changes in a pass, by owner: cells of the call's row that others read, or all
    /// other state.
    fn changed(
        &self,
        party: &Party<'_>,
        side: Side,
        shared_calls: bool,
    ) -> (Vec<String>, SourceLines, Vec<Condition>) {
        let is_wanted = |cell: &Cell| match cell {
            Cell::Call(id) => shared_calls && party.shared_calls.contains(id),
            _ => !shared_calls,
        };
        let (mut names, mut lines, mut only) = (BTreeSet::new(), SourceLines::new(), Vec::new());
        for (cell, used) in party.cells(side).into_iter().filter(|(cell, _)| is_wanted(cell)) {
            let changes: SourceLines = used.writes.union(&used.merges).copied().collect();
            if !changes.is_empty() {
                names.insert(self.owner_of(cell));
                lines.extend(changes);
                only.extend(used.only);
            }
        }
        (names.into_iter().collect(), lines, only)
    }

    /// The table, variable or cell.
    fn owner_of(&self, cell: Cell) -> String {
        match cell {
            Cell::Column(id, _) => Cell::Rows(id).name(self.chain),
            Cell::Rows(_) | Cell::Sent(_) | Cell::Var(_) => cell.name(self.chain),
            Cell::Call(_) => self.cell(cell),
        }
    }

    /// Reports that party `who` may end a call that the other party delays.
    fn delays(&mut self, side: Side, who: usize) {
        let Some((until, ends)) = self.parties[who].ends_until(side) else { return };
        let delays = self.parties[1 - who].lines_of(side, |effects| &effects.delays);
        let why = format!("{} may end the call, and {} holds it up", self.name(who), self.name(1 - who));
        let until = until.min(Level::Stochastic);
        self.clash_of((Clause::Delays, until, side), who, why, [ends, delays]);
    }

    // ---- rule 4 ----

    /// If both end a call, they must do it in the same way; ends for lack of room matter only at `strict`.
    fn statuses(&mut self, side: Side) {
        let _ =
            self.statuses_of(side, false, Level::Stochastic) || self.statuses_of(side, true, Level::Strict);
    }

    /// Reports conflicting statuses for all ends, or for those not caused by lack of room; returns whether they
    /// clash.
    fn statuses_of(&mut self, side: Side, with_room: bool, until: Level) -> bool {
        let wanted = |end: &&Ending| with_room || !end.is_room;
        let all: [Vec<&Ending>; 2] =
            [0, 1].map(|who| self.parties[who].ends(side).into_iter().filter(wanted).collect());
        // The order of two ends does not matter if no tuple satisfies both conditions.
        let changed = self.changed_inputs(side);
        let meeting = |who: usize| -> Vec<&Ending> {
            let meets =
                |end: &&&Ending| !all[1 - who].iter().all(|other| end.only.excludes(&other.only, &changed));
            all[who].iter().filter(meets).copied().collect()
        };
        let [first, second] = [meeting(0), meeting(1)];
        if first.is_empty() || second.is_empty() {
            return false;
        }
        let same = only_end(&first).filter(|one| only_end(&second) == Some(one));
        let clause = match same {
            None => Clause::Statuses,
            Some(_) if self.sets_answers(side) => Clause::StatusesAnswered,
            Some(_) if self.tells_who_ended_it() => Clause::StatusesAsked,
            Some(_) => return false,
        };
        let why = format!(
            "both may end the same call: {}{}",
            self.both_end(&first, &second),
            match clause {
                Clause::StatusesAnswered => ", and one sets what answers carry",
                Clause::StatusesAsked => ", and an element asks which of them it was",
                _ => "",
            }
        );
        let lines = |ends: &[&Ending]| ends.iter().map(|end| end.line).collect();
        self.clash(clause, until, side, why, lines(&first), lines(&second));
        true
    }

    /// Describes how each of the two ends calls; with equal statuses, by their texts.
    fn both_end(&self, first: &[&Ending], second: &[&Ending]) -> String {
        let told = |ends: &[&Ending], how: fn(&EndKind) -> String| {
            let names: BTreeSet<String> = ends.iter().map(|end| how(&end.kind)).collect();
            names.into_iter().collect::<Vec<_>>().join(" or ")
        };
        let short = [first, second].map(|ends| told(ends, EndKind::to_string));
        let [first, second] = match short[0] == short[1] {
            true => [first, second].map(|ends| told(ends, with_text)),
            false => short,
        };
        format!("{} by {first}, {} by {second}", self.name(0), self.name(1))
    }

    /// Whether one of the two sets something that answers carry.
    fn sets_answers(&self, side: Side) -> bool {
        self.parties.iter().any(|party| !party.lines(side, |effects| &effects.answers).is_empty())
    }

    /// Whether some element of the chain reads which element ended a call.
    fn tells_who_ended_it(&self) -> bool {
        self.chain.response.inputs.iter().any(|input| input.place == InputLocation::Meta(Meta::EndedBy))
    }

    // ---- rules 5, 8, 9 and 10 ----

    /// Reports that party `who` copies the tuple to another target and the other party changes it.
    fn copies(&mut self, side: Side, who: usize) {
        let mirrors = self.parties[who].lines_of(side, |effects| &effects.mirrors);
        let writes: SourceLines = self.parties[1 - who].writes(side).into_values().flatten().collect();
        let why = format!("{} copies the tuple, which {} changes", self.name(who), self.name(1 - who));
        self.clash_of((Clause::CopiesChanges, Level::Relaxed, side), who, why, [mirrors, writes]);
    }

    /// Reports sinks of both parties that write to the same log.
    fn sinks(&mut self, side: Side) {
        let [first, second] = [0, 1].map(|who| self.parties[who].lines(side, |effects| &effects.sinks));
        for (a, a_lines) in &first {
            for (b, b_lines) in &second {
                let sink = |id: SinkId| &self.chain.sinks[usize::from(id.0)];
                let is_log = sink(*a).target.table().is_none();
                if is_log && sink(*a).target == sink(*b).target {
                    let name = |who: usize, id: SinkId| format!("{}.{}", self.name(who), sink(id).name);
                    let why = format!("{} and {} go to the same place", name(0, *a), name(1, *b));
                    self.clash(Clause::Sinks, Level::Strict, side, why, a_lines.clone(), b_lines.clone());
                }
            }
        }
    }

    /// Reports that both parties set the target, or that one sets it and the other reads it.
    fn targets(&mut self, side: Side) {
        let why = "both name the target, and the last REDIRECT stays";
        self.clash_if_both(Clause::Targets, Level::Relaxed, side, why, |effects| &effects.redirects);
        for who in [0, 1] {
            let named = self.parties[who].lines_of(side, |effects| &effects.redirects);
            let asked = self.parties[1 - who].lines_of(side, |effects| &effects.egress);
            let why = format!("{} names the target, and {} asks for it", self.name(who), self.name(1 - who));
            self.clash_of((Clause::Targets, Level::Relaxed, side), who, why, [named, asked]);
        }
    }

    fn room(&mut self, side: Side) {
        let why = "both take room in the scratch of the pass";
        self.clash_if_both(Clause::Room, Level::Strict, side, why, |effects| &effects.room);
    }

    // ---- EVERY ----

    /// Timers due at the same time run in the chain's order.
    fn every(&mut self) {
        self.states(Side::Every);
        self.sinks(Side::Every);
    }
}

/// The weakest level at which ends matter, and their lines: an end for lack of room matters only at the strictest.
fn until(ends: &[&Ending]) -> Option<(Level, SourceLines)> {
    if ends.is_empty() {
        return None;
    }
    let own: SourceLines = ends.iter().filter(|end| !end.is_room).map(|end| end.line).collect();
    if own.is_empty() {
        return Some((Level::Strict, ends.iter().map(|end| end.line).collect()));
    }
    Some((Level::Relaxed, own))
}

/// How a call is ended, with the text for the caller.
fn with_text(kind: &EndKind) -> String {
    match kind {
        EndKind::Abort(_, Some(text)) if !text.is_empty() => {
            format!("{kind} '{}'", String::from_utf8_lossy(text).replace('\'', "''"))
        }
        EndKind::Abort(_, None) => format!("{kind} with a computed text"),
        _ => kind.to_string(),
    }
}

/// The single way in which these ends end calls, if the caller cannot tell them apart.
fn only_end<'a>(ends: &[&'a Ending]) -> Option<&'a EndKind> {
    let first = &ends.first()?.kind;
    let is_plain = match first {
        EndKind::Drop => true,
        EndKind::Abort(status, text) => status.is_some() && text.is_some(),
        EndKind::Reply | EndKind::Fail(_) => false,
    };
    (is_plain && ends.iter().all(|end| end.kind == *first)).then_some(first)
}
