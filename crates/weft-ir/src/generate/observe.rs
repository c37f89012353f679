//! Generates random passes, and observes their results.

use super::Rng;
use crate::backend::Program;
use crate::interp::{self, AccessAt};
use crate::ir::Ty;
use crate::program::{
    ChainProgram, Direction, Event, InputLocation, ListLocation, RowRemoval, TableDecl, cell_words,
};
use crate::verify::Handler;
use std::sync::Arc;
use weft_core::abi::{
    Cell, Counters, Cx, EditTarget, Message, Outcome, Parts, REGION_BODY, REGIONS, Rewrite, Slot, State,
    TupleEdit, Verdict,
};
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::limits::SCRATCH_BYTES_MIN;
use weft_core::list::{self, ListCell};
use weft_core::marks::Marks;
use weft_core::matching::Matcher;
use weft_core::native::Prepared;
use weft_core::table::{Insert, RemovalReason, Row, Scalars, Table};
use weft_core::{Time, Value};

/// The inputs of one pass, as from the engine.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The segment's event.
    pub event: Event,
    /// Only elements with an index below this take part.
    pub opened: usize,
    /// `now()`.
    pub now: Time,
    /// The base of `rand()`.
    pub rand: u64,
    /// One for each input.
    pub slots: Vec<Slot>,
    /// The inputs that are not NULL.
    pub present: InputSet,
    /// The bytes that slots point into.
    pub regions: [Vec<u8>; REGIONS],
}

/// The private state of one chain.
#[derive(Debug)]
pub struct World {
    /// Tables and variables; merged variables have the parts of two workers.
    pub state: State,
    /// The call's row.
    pub call: Vec<u64>,
    /// By element.
    pub counters: Vec<Counters>,
    out: Outcome,
}

/// An observed value: floats by their bits, with all NaNs equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observed {
    /// NULL.
    Null,
    /// A number or a boolean, as a word.
    Word(u64),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// All results of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// How it ended.
    pub verdict: Verdict,
    /// See [`Outcome::element`].
    pub element: u16,
    /// See [`Outcome::line`].
    pub line: u32,
    /// See [`Outcome::text`].
    pub text: Vec<u8>,
    /// The edits, in order.
    pub edits: Vec<(EditTarget, Observed)>,
    /// The frame of the pass, with the changes that code made in place of edits.
    pub frame: Vec<u8>,
    /// The rows for sinks, in order.
    pub rows: Vec<(u16, Vec<Observed>)>,
    /// Nanoseconds.
    pub delay: i64,
    /// The marks.
    pub marks: Marks,
    /// See [`Outcome::opening`].
    pub opening: bool,
    /// The targets of MIRROR, with the number of edits before each.
    pub mirrors: Vec<(Vec<u8>, u32)>,
    /// The live rows of each table after the pass, in scan order, with columns in order.
    pub tables: Vec<Vec<Vec<Observed>>>,
    /// The variables in the order of the chain: the word, or the parts of a MERGE variable.
    pub vars: Vec<Vec<u64>>,
    /// The cells of the call's row.
    pub call: Vec<Observed>,
    /// By element, without the sampled times.
    pub counters: Vec<Counters>,
    /// Whether a row had expired, for a TIMEOUT.
    pub had_expired_row: bool,
}

/// An external change of the table with rules.
#[derive(Clone, Debug)]
pub struct RuleChange {
    /// The row.
    row: Vec<Value>,
    /// Whether the row exists from now on; otherwise no row has its key.
    is_there: bool,
    /// Whether the structure of the rules is rebuilt.
    is_built: bool,
}

/// Generates a list of numbers and bytes, sometimes with too many elements.
fn random_list(rng: &mut Rng, place: &ListLocation) -> Vec<u8> {
    let n = rng.below(place.elements_max as usize + 2) as u64;
    let n_cells = if n > place.elements_max { 0 } else { n as usize * place.members.len() };
    let kinds: Vec<usize> = (0..n_cells).map(|_| rng.below(4)).collect();
    let bytes = super::values::bytes(rng);
    let cells = kinds.into_iter().map(|kind| match kind {
        0 => ListCell::Absent,
        1 => ListCell::Bytes(&bytes),
        _ => ListCell::Number(rng.below(20) as u64),
    });
    let mut out = Vec::new();
    list::write(n, cells, &mut out);
    out
}

impl RuleChange {
    /// Generates a random change.
    pub fn random(rng: &mut Rng) -> Self {
        let id = rng.below(30) as i64 - 10;
        Self { row: super::rule(rng, id), is_there: rng.percent(60), is_built: rng.percent(40) }
    }
}

impl Pass {
    /// Generates a random pass through a chain.
    pub fn random(rng: &mut Rng, chain: &ChainProgram, now: Time) -> Self {
        let event = rng.pick(&super::events(chain));
        let n_elements = chain.elements.len();
        let opened = if event == Event::Close { rng.below(n_elements + 1) } else { n_elements };
        let mut pass = Self {
            event,
            opened,
            now,
            rand: rng.bits(),
            slots: Vec::new(),
            present: InputSet::EMPTY,
            regions: [b"ab".to_vec(), Vec::new(), b"/m/".to_vec()],
        };
        let inputs = Handler::of(event).direction(chain).map_or(&[][..], |direction| &direction.inputs);
        for (index, input) in inputs.iter().enumerate() {
            let is_present = !input.nullable || rng.percent(60);
            pass.present.set(index, is_present);
            let slot = pass.slot(rng, Ty::of(input.ty), &input.place);
            // The slot of a NULL is undefined; the engine gives zeros.
            pass.slots.push(if is_present { slot } else { Slot::default() });
        }
        assert_eq!(pass.slots.len(), inputs.len(), "each input has a slot");
        pass
    }

    /// Generates the slot of an input; bytes go to the region of its location.
    fn slot(&mut self, rng: &mut Rng, ty: Ty, place: &InputLocation) -> Slot {
        let a = match ty {
            Ty::Bool => rng.below(2) as u64,
            Ty::Float => super::values::float(rng).to_bits(),
            Ty::Int | Ty::Row => super::values::int(rng) as u64,
            Ty::Bytes => {
                let region = &mut self.regions[place.region()];
                let bytes = match place {
                    InputLocation::List(place) => random_list(rng, place),
                    _ => super::values::bytes(rng),
                };
                let at = region.len();
                region.extend_from_slice(&bytes);
                return Slot { a: at as u64, b: bytes.len() as u64 };
            }
        };
        Slot { a, b: 0 }
    }
}

impl World {
    /// The initial state: tables with their declared rows, variables at their start values, stand-ins for native
    /// functions, and the smallest scratch.
    pub fn new(chain: &ChainProgram) -> Self {
        Self::with_natives(chain, super::natives::stand_ins(&chain.natives))
    }

    /// As [`World::new`], with these native functions.
    pub fn with_natives(chain: &ChainProgram, natives: Vec<Arc<dyn Prepared>>) -> Self {
        let n_words = chain.vars.iter().map(|var| var.word as usize + 1).max().unwrap_or(0);
        let parts = [(); 2].map(|()| Arc::new(Scalars::new(n_words)));
        let scalars = Scalars::new(n_words);
        for var in &chain.vars {
            let (at, start) = (var.word as usize, var.start.word());
            match var.merge {
                None => scalars.set_word(at, start),
                Some(crate::program::Merge::Sum) => parts[0].set_word(at, start),
                Some(_) => parts.iter().for_each(|part| part.set_word(at, start)),
            }
        }
        let tables: Vec<Arc<Table>> = chain.tables.iter().map(filled).collect();
        let matcher = |decl: &crate::program::MatchDecl| {
            let matcher = Matcher::new(&decl.spec, &tables[usize::from(decl.table.0)]);
            Arc::new(matcher.expect("a generated table has few rows"))
        };
        for (_, removal) in chain.timeouts() {
            tables[usize::from(removal.table.0)].keep_removed(removal.why, true);
        }
        let state = State::from(Parts {
            matchers: chain.matches.iter().map(matcher).collect(),
            tables,
            scalars: Arc::new(scalars),
            merged: parts[0].clone(),
            merged_parts: parts.into(),
            natives,
        });
        Self {
            state,
            call: vec![0; chain.call_words()],
            counters: vec![Counters::default(); chain.elements.len()],
            out: Outcome { scratch_max: SCRATCH_BYTES_MIN, ..Outcome::default() },
        }
    }

    /// Changes the rules of the chain.
    ///
    /// # Panics
    /// If the world belongs to another chain.
    pub fn change(&mut self, chain: &ChainProgram, change: &RuleChange) {
        let table = &self.state.tables[usize::from(super::RULES.0)];
        let anew = |at: usize| {
            Matcher::changeable(&chain.matches[at].spec, table).expect("the table fits a changeable matcher")
        };
        let mut matchers: Vec<Matcher> = Vec::new();
        for (at, matcher) in self.state.matchers.iter().enumerate() {
            matchers.push(if matcher.is_changeable() { Matcher::clone(matcher) } else { anew(at) });
        }
        let mut row = table.find_values(&change.row[..1], Time(0));
        if row.is_some() {
            matchers.iter_mut().for_each(|matcher| matcher.remove(&[row]));
        }
        match (change.is_there, row.is_some()) {
            (true, true) => table.set_values(row, &change.row),
            (true, false) => {
                if let Insert::New(new) = table.insert_row(&change.row, Time(0)) {
                    row = new;
                }
            }
            (false, _) => {
                table.remove(row);
                row = Row::NONE;
            }
        }
        for (at, matcher) in matchers.iter_mut().enumerate() {
            if row.is_some() && matcher.insert(&[row]).is_err() {
                *matcher = anew(at);
            }
            if change.is_built {
                let built = matcher.snapshot().rebuild();
                matcher.adopt(built).expect("the matcher has not changed since the snapshot");
            }
        }
        assert_eq!(matchers.len(), chain.matches.len(), "the world belongs to this chain");
        self.state.matchers = matchers.into_iter().map(Arc::new).collect();
    }

    /// Runs a pass and returns its results. After changes of fields, a stand-in with a simple format replaces the
    /// message.
    pub fn run(&mut self, chain: &ChainProgram, program: &dyn Program, pass: &Pass) -> Observation {
        let expired_row = self.take_expired_row(chain, pass);
        let mut frame = Vec::new();
        if chain.frames.is_some() && pass.event == Event::Request {
            frame.clone_from(&pass.regions[REGION_BODY]);
            program.run_on(&mut self.cx(pass, expired_row, None), &mut frame);
        } else {
            let message = StandIn::of(chain, pass);
            program.run(&mut self.cx(pass, expired_row, Some(&message)), pass.opened);
        }
        self.free_expired_row(chain, pass, expired_row);
        Observation { frame, ..self.observe(chain, pass.now, expired_row) }
    }

    /// Runs a pass on the interpreter and returns its results and accesses.
    ///
    /// # Panics
    /// If the world belongs to another chain.
    pub fn run_with_accesses(
        &mut self,
        chain: &Arc<ChainProgram>,
        pass: &Pass,
    ) -> (Observation, Vec<AccessAt>) {
        let expired_row = self.take_expired_row(chain, pass);
        let message = StandIn::of(chain, pass);
        let mut cx = self.cx(pass, expired_row, Some(&message));
        let noted = interp::run_with_accesses(chain, pass.event, &mut cx, pass.opened);
        self.free_expired_row(chain, pass, expired_row);
        (self.observe(chain, pass.now, expired_row), noted.expect("the world has the chain's tables"))
    }

    /// Takes a row for a TIMEOUT pass; [`Row::NONE`] if none has expired.
    fn take_expired_row(&self, chain: &ChainProgram, pass: &Pass) -> Row {
        let mut rows = Vec::new();
        if let Some((table, why)) = self.removal(chain, pass) {
            while rows.is_empty() && table.take_removed(why, pass.now, 1, &mut rows) {}
        }
        rows.pop().unwrap_or_default()
    }

    /// Frees the removed row of a TIMEOUT pass, if there was one.
    fn free_expired_row(&self, chain: &ChainProgram, pass: &Pass, expired_row: Row) {
        if let Some((table, _)) = self.removal(chain, pass).filter(|_| expired_row.is_some()) {
            table.free_removed(&[expired_row]);
        }
    }

    /// The table and reason of a TIMEOUT pass; None for other events.
    fn removal(&self, chain: &ChainProgram, pass: &Pass) -> Option<(&Table, RemovalReason)> {
        let (_, RowRemoval { table, why }) = chain.timeouts().find(|(event, _)| *event == pass.event)?;
        Some((&self.state.tables[usize::from(table.0)], why))
    }

    /// Makes the context of a pass over this state.
    fn cx<'w>(&'w mut self, pass: &'w Pass, expired_row: Row, message: Option<&'w dyn Message>) -> Cx<'w> {
        self.out.clear();
        Cx {
            message,
            rand: pass.rand,
            slots: &pass.slots,
            present: pass.present,
            regions: [&pass.regions[0], &pass.regions[1], &pass.regions[2]],
            expired_row,
            ..Cx::new(pass.now, &self.state, &mut self.call, &mut self.out, &mut self.counters)
        }
    }

    /// Records the results of a pass and the state after it, for comparison.
    fn observe(&self, chain: &ChainProgram, now: Time, expired_row: Row) -> Observation {
        let out = &self.out;
        let (verdict, text, target) = (out.verdict, out.text.clone(), out.target);
        let mut spelled = Outcome { verdict, text, target, ..Outcome::default() };
        spelled.materialize();
        let mut cells = out.cells.iter().map(|cell| self.observe_cell(*cell));
        let rows =
            out.rows.iter().map(|row| (row.sink, cells.by_ref().take(usize::from(row.cells)).collect()));
        Observation {
            verdict: out.verdict,
            element: out.element,
            line: out.line,
            text: spelled.text,
            edits: out.edits.iter().map(|edit| (edit.target, self.observe_cell(edit.value))).collect(),
            rows: rows.collect(),
            delay: out.delay.as_nanos(),
            marks: out.marks,
            opening: out.opening,
            frame: Vec::new(),
            mirrors: out
                .mirrors
                .iter()
                .map(|m| (out.kept(m.target.0, m.target.1).to_vec(), m.edits))
                .collect(),
            tables: self.state.tables.iter().map(|table| rows_of(table, now)).collect(),
            vars: chain.vars.iter().map(|var| self.var(var)).collect(),
            call: chain.call.iter().map(|cell| self.call_cell(cell)).collect(),
            counters: self.counters.clone(),
            had_expired_row: expired_row.is_some(),
        }
    }

    /// Records a cell, with its bytes if it has any.
    fn observe_cell(&self, cell: Cell) -> Observed {
        match cell {
            Cell::Null => Observed::Null,
            Cell::Bool(b) => Observed::Word(u64::from(b)),
            Cell::Int(n) => Observed::Word(n as u64),
            Cell::Float(f) => observed_word(Ty::Float, f.to_bits()),
            Cell::Bytes(start, len) => Observed::Bytes(self.out.kept(start, len).to_vec()),
        }
    }

    /// Records a variable: all parts if it is merged, else its word.
    fn var(&self, var: &crate::program::VarDecl) -> Vec<u64> {
        let at = var.word as usize;
        match (var.merge, observed_word(Ty::of(var.ty), self.state.scalars.word(at))) {
            (Some(_), _) => self.state.merged_parts.iter().map(|part| part.word(at)).collect(),
            (None, Observed::Word(word)) => vec![word],
            (None, _) => Vec::new(),
        }
    }

    /// Records a cell of the call's row.
    fn call_cell(&self, cell: &crate::program::CallCell) -> Observed {
        let words = &self.call[cell.word as usize..][..cell_words(cell.ty)];
        match Ty::of(cell.ty) {
            Ty::Bytes => {
                let bytes = words[1..].iter().flat_map(|word| word.to_le_bytes());
                Observed::Bytes(bytes.take(words[0] as usize).collect())
            }
            ty => observed_word(ty, words[0]),
        }
    }
}

/// A message in a simple format: the payload, then ` name=value` for the last change of each field, in order. NULL is `
/// -name`. It cannot be written with bytes that are not text.
#[derive(Debug)]
struct StandIn<'p> {
    payload: &'p [u8],
    /// The names of the fields, by input.
    fields: Vec<Option<&'p str>>,
}

impl<'p> StandIn<'p> {
    /// Makes the message of a pass: its payload and the names of its body fields.
    fn of(chain: &'p ChainProgram, pass: &'p Pass) -> Self {
        let inputs = Handler::of(pass.event).direction(chain).map_or(&[][..], |Direction { inputs }| inputs);
        let payload = inputs.iter().zip(&pass.slots).enumerate().find_map(|(at, (input, slot))| {
            let is_there = input.place == InputLocation::Body(Vec::new()) && pass.present.contains(at);
            is_there.then(|| &pass.regions[REGION_BODY][slot.a as usize..][..slot.b as usize])
        });
        let field = |place: &InputLocation| matches!(place, InputLocation::Body(path) if !path.is_empty());
        let fields = inputs.iter().map(|input| field(&input.place).then_some(&*input.name));
        Self { payload: payload.unwrap_or_default(), fields: fields.collect() }
    }
}

impl Message for StandIn<'_> {
    fn rewrite(&self, edits: &[TupleEdit], scratch: &[u8], out: &mut Vec<u8>) -> Rewrite {
        let mut rewrite = Rewrite::Unchanged;
        out.extend_from_slice(self.payload);
        for (at, edit) in edits.iter().enumerate() {
            let EditTarget::Input(input) = edit.target else { continue };
            if edits[at + 1..].iter().any(|later| later.target == edit.target) {
                continue;
            }
            let Some(name) = self.fields[usize::from(input)] else { continue };
            rewrite = Rewrite::Changed;
            let said = match edit.value {
                Cell::Null => format!(" -{name}"),
                Cell::Bool(value) => format!(" {name}={value}"),
                Cell::Int(value) => format!(" {name}={value}"),
                Cell::Float(value) => format!(" {name}={value}"),
                Cell::Bytes(start, len) => {
                    match core::str::from_utf8(&scratch[start as usize..][..len as usize]) {
                        Ok(value) => format!(" {name}={value}"),
                        Err(_) => return Rewrite::Failed,
                    }
                }
            };
            out.extend_from_slice(said.as_bytes());
        }
        rewrite
    }
}

/// Makes a table with the initial rows of its declaration.
fn filled(decl: &TableDecl) -> Arc<Table> {
    let table = Table::new(decl.spec.clone(), HashKey::from_seed(1));
    table.add_rows(&decl.rows, Time(0));
    Arc::new(table)
}

/// Records a word; all NaNs are recorded as equal.
fn observed_word(ty: Ty, word: u64) -> Observed {
    let is_nan = ty == Ty::Float && f64::from_bits(word).is_nan();
    Observed::Word(if is_nan { f64::NAN.to_bits() } else { word })
}

/// Records all live rows of a table.
fn rows_of(table: &Table, now: Time) -> Vec<Vec<Observed>> {
    let mut rows = Vec::new();
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, now) {
        let seen = table.columns().map(|(spec, at)| match Ty::of(spec.ty) {
            _ if table.is_null(row, at) => Observed::Null,
            Ty::Bytes => {
                let mut bytes = Vec::new();
                table.bytes_into(row, at, &mut bytes);
                Observed::Bytes(bytes)
            }
            ty => observed_word(ty, table.word(row, at)),
        });
        rows.push(seen.collect());
        cursor = next;
    }
    rows
}
