//! Emits the parser of one header: the offsets of its fields, its rules, and its length.

use std::collections::{BTreeMap, BTreeSet};

use weft_core::wire::{
    BinaryOp, Checksum, Expr, Field, FieldId, Item, Protocol, Rule, Until, Width, bits_max,
};
use weft_ir::ir::{BlockId, Endian, IntCmp, IntOp, Op, Signed, Terminator, Ty, Value};
use weft_ir::program::Check;

use super::graph::{WantedField, WantedPart};
use super::stores::{Container, container};
use crate::lower::build::Builder;

/// Largest header whose checksum is computed inline, in bytes.
const SUM_INLINE_MAX: u32 = 64;
/// The inverse of 2^16 - 1 modulo 2^64.
const ONES_INVERSE: i64 = 0xfffe_fffe_fffe_ffff_u64.cast_signed();

/// The function under construction, and its checks.
pub(super) struct ParserBuilder {
    pub(super) b: Builder,
    pub(super) checks: Vec<Check>,
    /// The end of a frame that fails a check, by check.
    refusals: Vec<BlockId>,
    /// The end instead, while reading a header that may not be one.
    pub(super) payload: Option<BlockId>,
}

/// The extent of a layer in the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Its start.
    pub(super) at: Value,
    /// Its end.
    pub(super) end: Value,
}

/// The result of reading a header.
pub(super) struct HeaderResult {
    /// The given slack, reduced by this header.
    pub(super) slack: Option<Value>,
    /// The extent of its payload.
    pub(super) payload: Extent,
    /// The requested conditions of [`Protocol::next`], as Bools.
    pub(super) conditions: Vec<Value>,
}

/// A number with its range.
#[derive(Clone, Copy)]
struct Num {
    value: Value,
    min: u64,
    max: u64,
}

/// A position in the header: bits after an offset.
#[derive(Clone, Copy)]
struct Cursor {
    base: Value,
    bits: u64,
}

/// A parsed field.
#[derive(Clone, Copy)]
struct ParsedField {
    /// Its number, 0 if missing; for bytes, their start.
    value: Value,
    /// Whether it is present; None for always.
    present: Option<Value>,
    /// Its end.
    after: Cursor,
}

/// The state of parsing a header.
#[derive(Clone, Default)]
struct HeaderState {
    fields: BTreeMap<FieldId, ParsedField>,
    /// Iterations of each REPEAT.
    counts: BTreeMap<String, Value>,
    /// The start of the current iteration of a REPEAT.
    round: Option<Value>,
}

/// The parser of a header.
struct Header<'h, 'n> {
    out: &'h mut ParserBuilder,
    protocol: &'n Protocol,
    wanted: &'h [WantedField],
    slack: Option<Value>,
    /// In code for common-case frames: the target for frames with a longer header than necessary, or with more
    /// fragments. Inputs set before the jump do no harm there.
    unusual: Option<(BlockId, Vec<Value>)>,
    /// Fields of the first such layer are set only if this holds.
    is_first: Option<Value>,
    /// Inputs are set only if this holds.
    gives_if: Option<Value>,
    /// Fields whose numbers the chain or the header itself uses.
    needed: BTreeSet<FieldId>,
    layer: Extent,
    cursor: Cursor,
    /// Bytes before the cursor's base, as a sum; not after an optional or repeated part.
    passed: Option<Num>,
    known: HeaderState,
    /// The end of the header, once known, and its length as a sum.
    header_end: Option<Value>,
    header_bytes: Option<Num>,
    /// Inputs to set after the header has passed its checks.
    gives: Vec<(WantedField, Value, Value)>,
}

impl ParserBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self { b: Builder::new(name.to_owned()), checks: Vec::new(), refusals: Vec::new(), payload: None }
    }

    /// Rejects frames for which `is_bad` holds.
    pub(super) fn refuse_if(&mut self, is_bad: Value, protocol: &str, what: &str, line: u32) {
        if self.b.known_bool(is_bad) == Some(false) {
            return;
        }
        let refusal = self.payload.unwrap_or_else(|| self.refusal(protocol, what, line));
        let goes_on = self.b.block();
        self.b.branch(is_bad, refusal, goes_on);
        self.b.switch(goes_on);
    }

    /// The end of frames that fail this check.
    pub(super) fn refusal(&mut self, protocol: &str, what: &str, line: u32) -> BlockId {
        let check = Check { protocol: protocol.to_owned(), what: what.to_owned(), line };
        let at = self.checks.iter().position(|known| *known == check).unwrap_or_else(|| {
            let refusal = self.b.block_that(Terminator::Drop { line: self.checks.len() as u32 });
            self.checks.push(check);
            self.refusals.push(refusal);
            self.checks.len() - 1
        });
        self.refusals[at]
    }
}

/// Reads a header: sets the wanted inputs, rejects frames that break its rules, and returns its payload. `next` are the
/// relevant indexes of [`Protocol::next`]; `is_first` says whether this is the first such layer; `slack` is how many
/// bytes the layer may claim beyond the frame, if any. If there is an `unusual` target, reads only headers of
/// common-case frames.
pub(super) fn read(
    out: &mut ParserBuilder,
    protocol: &Protocol,
    layer: Extent,
    wanted: &[WantedField],
    next: &[usize],
    (is_first, slack): (Option<Value>, Option<Value>),
    unusual: Option<(BlockId, Vec<Value>)>,
) -> HeaderResult {
    let cursor = Cursor { base: layer.at, bits: 0 };
    let passed = Some(Num { value: out.b.int(0), min: 0, max: 0 });
    let mut header = Header {
        out,
        protocol,
        wanted,
        slack,
        unusual,
        is_first,
        gives_if: None,
        needed: needed(protocol, wanted, next, slack.is_some()),
        layer,
        cursor,
        passed,
        known: HeaderState::default(),
        header_end: None,
        header_bytes: None,
        gives: Vec::new(),
    };
    header.read(next)
}

/// Returns the fields whose values the parser computes: wanted ones, and those that the header's own expressions
/// read.
fn needed(
    protocol: &Protocol,
    wanted: &[WantedField],
    next: &[usize],
    follows_fragments: bool,
) -> BTreeSet<FieldId> {
    let mut needed: BTreeSet<FieldId> = wanted
        .iter()
        .filter_map(|wanted| if let WantedPart::Field(id) = wanted.what { Some(id) } else { None })
        .collect();
    let mut add = |expr: &Expr| {
        expr.each(&mut |e| {
            if let Expr::Field(field) | Expr::BytesAfter(field) | Expr::Present(field) = e {
                needed.insert(*field);
            }
        });
    };
    for (at, field) in protocol.fields.iter().enumerate() {
        let own = Expr::Field(FieldId(at as u16));
        if let Rule::Constant(_) = field.rule {
            add(&own);
        }
        if let Rule::Computed(expr) = &field.rule
            && expr.is_verified()
        {
            add(&own);
            add(expr);
        }
        field.check.iter().for_each(&mut add);
        if let Width::Bytes { count, .. } = &field.width {
            add(count);
        }
    }
    protocol.items.iter().for_each(|item| item.each_expr(&mut add));
    protocol.length.iter().for_each(&mut add);
    next.iter().for_each(|at| add(&protocol.next[*at].condition));
    if follows_fragments && !next.is_empty() {
        needed.extend(protocol.more_fragments());
    }
    needed
}

impl<'n> Header<'_, 'n> {
    /// Emits the whole parser of a header: bounds checks, fields, length, verification, and the conditions of next
    /// layers.
    fn read(&mut self, next: &[usize]) -> HeaderResult {
        let Extent { at, end } = self.layer;
        let first = self.after(at, u64::from(self.protocol.header_min));
        self.refuse_behind(first, end, "truncated", self.protocol.line);
        for wanted in self.wanted.iter().filter(|wanted| wanted.what == WantedPart::Presence) {
            let one = self.out.b.int(1);
            self.gives.push((*wanted, one, at));
        }
        let protocol = self.protocol;
        self.items(&protocol.items);
        let header_end = self.here();
        self.header_end = Some(header_end);
        self.header_bytes = self.passed_here();
        if protocol.header_max != protocol.header_min && header_end != first {
            self.refuse_behind(header_end, end, "truncated", protocol.line);
        }
        if let Some(length) = &protocol.length {
            let length = self.number(length);
            let stop = self.sum(at, length);
            self.refuse_behind(header_end, stop, "a length that is shorter than the header", protocol.line);
            let slack = self.slack.filter(|slack| self.out.b.known_int(*slack) != Some(0));
            let limit = slack.map_or(end, |value| self.sum(end, Num { value, min: 0, max: u64::MAX }));
            self.refuse_behind(stop, limit, "a length that is beyond the end", protocol.line);
            self.layer.end = match slack {
                Some(_) => self.out.b.int_binary(IntOp::UMin, stop, end),
                None => stop,
            };
        }
        for (at, field) in protocol.fields.iter().enumerate().filter(|(_, field)| !field.repeated) {
            self.verify(FieldId(at as u16), field);
        }
        for wanted in self.wanted.iter().filter(|wanted| wanted.what == WantedPart::Header) {
            let bytes = self.out.b.int_binary(IntOp::Sub, header_end, at);
            let by = self.out.b.int(32);
            let end = self.out.b.int_binary(IntOp::Shl, self.layer.end, by);
            let both = self.out.b.int_binary(IntOp::Or, bytes, end);
            self.gives.push((*wanted, at, both));
        }
        let conditions = next.iter().map(|at| self.truth(&protocol.next[*at].condition)).collect();
        let slack = self.slack_behind();
        let gives = core::mem::take(&mut self.gives);
        self.give_inputs(&gives);
        HeaderResult { slack, payload: Extent { at: header_end, end: self.layer.end }, conditions }
    }

    /// Returns the slack after this header: a first fragment has fewer bytes after it than the next header says.
    fn slack_behind(&mut self) -> Option<Value> {
        let slack = self.slack?;
        let field = self.protocol.more_fragments().and_then(|field| self.known.fields.get(&field).copied());
        let Some(more) = field else { return Some(slack) };
        if self.is_usual_if_zero(more.value) {
            return Some(slack);
        }
        let by = self.out.b.int(i64::from(SLACK_BITS));
        let more = self.out.b.int_binary(IntOp::Shl, more.value, by);
        Some(self.out.b.int_binary(IntOp::Or, slack, more))
    }

    /// In code for common-case frames: sends frames in which a number is not 0 to the `unusual` target.
    fn is_usual_if_zero(&mut self, number: Value) -> bool {
        let Some(unusual) = self.unusual.clone() else { return false };
        let (zero, goes_on) = (self.out.b.int(0), self.out.b.block());
        let is_zero = self.out.b.int_compare(IntCmp::Eq, number, zero);
        self.out.b.branch_with(is_zero, (goes_on, Vec::new()), unusual);
        self.out.b.switch(goes_on);
        true
    }

    // ---- items ----

    /// Emits the parsing of fields, WHENs and REPEATs in order.
    fn items(&mut self, items: &'n [Item]) {
        for item in items {
            match item {
                Item::Field(id) => self.field(*id),
                Item::When { condition, items } => self.when(condition, items),
                Item::Repeat { name, field, items, until, max, line } => {
                    let start = self.here();
                    self.repeat(name, items, until, u64::from(*max), *line);
                    if self.needed.contains(field) {
                        let len = self.out.b.int_binary(IntOp::Sub, self.cursor.base, start);
                        self.found(*field, start, (start, len));
                    }
                }
            }
        }
    }

    /// Emits the parsing of a field, and moves the cursor past it. The value is only computed if it is needed.
    fn field(&mut self, id: FieldId) {
        let field = &self.protocol.fields[usize::from(id.0)];
        let is_needed = self.needed.contains(&id);
        match &field.width {
            Width::Bits { n, little } => {
                let Container { first_byte, bytes, shift } = container(self.cursor.bits, *n);
                self.cursor.bits += u64::from(*n);
                if !is_needed {
                    return;
                }
                let place = self.after(self.cursor.base, first_byte);
                let endian = if *little { Endian::Little } else { Endian::Big };
                let held = self.out.b.get(Op::FrameGet(place, bytes, endian), Ty::Int);
                let value = self.bits_of(held, bytes, shift, *n);
                self.found(id, value, (value, place));
            }
            Width::Bytes { count, max } => {
                let mut count_value = self.number(count);
                if count_value.min == 0 && count_value.max > 0 && self.is_usual_if_zero(count_value.value) {
                    count_value = Num { value: self.out.b.int(0), min: 0, max: 0 };
                }
                let most = self.out.b.int(i64::from(*max));
                if count_value.max > u64::from(*max) {
                    let over = self.out.b.int_compare(IntCmp::ULt, most, count_value.value);
                    let what = format!("{} is too long", field.name);
                    self.out.refuse_if(over, &self.protocol.name, &what, field.line);
                }
                let start = self.here();
                let before = self.passed_here();
                self.passed = before.map(|before| {
                    let count = self.within_offsets(count_value);
                    self.arithmetic(BinaryOp::Add, before, count)
                });
                self.cursor = Cursor { base: self.sum(start, count_value), bits: 0 };
                if is_needed {
                    self.found(id, start, (start, count_value.value));
                }
            }
            Width::Rounds { .. } => {}
        }
    }

    /// Bits of a number that was read.
    fn bits_of(&mut self, held: Value, bytes: u8, shift: u8, n: u8) -> Value {
        let b = &mut self.out.b;
        let mut value = held;
        if shift > 0 {
            let by = b.int(i64::from(shift));
            value = b.int_binary(IntOp::Shr, value, by);
        }
        if u64::from(n) + u64::from(shift) < 8 * u64::from(bytes) {
            let mask = b.int(bits_max(n) as i64);
            value = b.int_binary(IntOp::And, value, mask);
        }
        value
    }

    /// Records a parsed field, and sets the inputs that want it.
    fn found(&mut self, id: FieldId, value: Value, slot: (Value, Value)) {
        let after = self.cursor;
        self.known.fields.insert(id, ParsedField { value, present: None, after });
        let field = &self.protocol.fields[usize::from(id.0)];
        let wanted: Vec<WantedField> =
            self.wanted.iter().filter(|wanted| wanted.what == WantedPart::Field(id)).copied().collect();
        for wanted in wanted {
            match field.optional || field.repeated {
                // Not on all paths to the end of the header.
                true => self.give_inputs(&[(wanted, slot.0, slot.1)]),
                false => self.gives.push((wanted, slot.0, slot.1)),
            }
        }
    }

    /// Sets inputs: those of the last such layer always, those of the first only in the first one.
    fn give_inputs(&mut self, gives: &[(WantedField, Value, Value)]) {
        let (of_last, of_first): (Vec<_>, Vec<_>) = gives.iter().partition(|(wanted, ..)| wanted.last);
        let if_first = match (self.is_first.filter(|_| !of_first.is_empty()), self.gives_if) {
            (Some(first), Some(condition)) => Some(self.out.b.and(first, condition)),
            (first, condition) => first.or(condition),
        };
        self.give_inputs_if(if_first, &of_first);
        self.give_inputs_if(self.gives_if, &of_last);
    }

    /// Sets inputs if a condition holds; None for always.
    fn give_inputs_if(&mut self, condition: Option<Value>, gives: &[(WantedField, Value, Value)]) {
        let all = |out: &mut ParserBuilder| {
            for (wanted, a, b) in gives {
                out.b.act(Op::Give(wanted.input, *a, wanted.place.then_some(*b)));
            }
        };
        let Some(condition) = condition.filter(|_| !gives.is_empty()) else { return all(self.out) };
        let [yes, goes_on] = [(); 2].map(|()| self.out.b.block());
        self.out.b.branch(condition, yes, goes_on);
        self.out.b.switch(yes);
        all(self.out);
        self.out.b.jump(goes_on, Vec::new());
        self.out.b.switch(goes_on);
    }

    /// Emits the parsing of items that are present only if a condition is true.
    fn when(&mut self, condition: &'n Expr, items: &'n [Item]) {
        let condition = self.truth(condition);
        let start = self.here();
        let before = self.known.clone();
        let [yes, after] = [(); 2].map(|()| self.out.b.block());
        let ids: Vec<FieldId> = self.fields_in(items);
        let (zero, no, truth) = (self.out.b.int(0), self.out.b.bool(false), self.out.b.bool(true));
        let mut missing = vec![start];
        ids.iter().for_each(|_| missing.extend([zero, no, start]));
        let repeats = repeats_in(items);
        repeats.iter().for_each(|_| missing.push(zero));
        self.out.b.branch_with(condition, (yes, Vec::new()), (after, missing));

        self.out.b.switch(yes);
        self.cursor = Cursor { base: start, bits: 0 };
        self.passed = None;
        self.items(items);
        let mut given = vec![self.here()];
        for id in &ids {
            let Some(found) = self.known.fields.get(id).copied() else {
                given.extend([zero, no, start]);
                continue;
            };
            let end = self.after(found.after.base, found.after.bits.div_ceil(8));
            given.extend([found.value, found.present.unwrap_or(truth), end]);
        }
        given.extend(repeats.iter().map(|name| self.known.counts.get(*name).copied().unwrap_or(zero)));
        self.out.b.jump(after, given);

        let base = self.out.b.param(after, Ty::Int);
        self.known = before;
        for id in ids {
            let [value, present, end] = [Ty::Int, Ty::Bool, Ty::Int].map(|ty| self.out.b.param(after, ty));
            let after = Cursor { base: end, bits: 0 };
            self.known.fields.insert(id, ParsedField { value, present: Some(present), after });
        }
        for name in repeats {
            let rounds = self.out.b.param(after, Ty::Int);
            self.known.counts.insert(name.to_owned(), rounds);
        }
        self.out.b.switch(after);
        self.cursor = Cursor { base, bits: 0 };
    }

    /// The fields of items that are read, except those in a REPEAT: they belong to its iterations.
    fn fields_in(&self, items: &[Item]) -> Vec<FieldId> {
        let mut ids = Vec::new();
        for item in items {
            match item {
                Item::Field(id) | Item::Repeat { field: id, .. } if self.needed.contains(id) => ids.push(*id),
                Item::When { items, .. } => ids.extend(self.fields_in(items)),
                Item::Field(_) | Item::Repeat { .. } => {}
            }
        }
        ids
    }

    /// Emits the loop of a REPEAT.
    fn repeat(&mut self, name: &str, items: &'n [Item], until: &'n Until, max: u64, line: u32) {
        let start = self.here();
        let zero = self.out.b.int(0);
        // The bound: iterations, or an offset.
        let bound = match until {
            Until::Condition(_) => None,
            Until::Count(count) => Some(self.number(count).value),
            Until::Bytes(bytes) => {
                let bytes = self.number(bytes);
                let stop = self.sum(start, bytes);
                self.refuse_behind(stop, self.layer.end, "truncated", line);
                Some(stop)
            }
        };
        let head = self.out.b.scan_block(max + 1);
        let [body, after] = [(); 2].map(|()| self.out.b.block());
        self.out.b.jump(head, vec![start, zero]);
        let [at, round] = [(); 2].map(|()| self.out.b.param(head, Ty::Int));
        let [end, rounds] = [(); 2].map(|()| self.out.b.param(after, Ty::Int));

        self.out.b.switch(head);
        let goes_on = match (until, bound) {
            (Until::Count(_), Some(count)) => self.out.b.int_compare(IntCmp::ULt, round, count),
            (Until::Bytes(_), Some(stop)) => self.out.b.int_compare(IntCmp::ULt, at, stop),
            _ => self.out.b.bool(true),
        };
        self.out.b.branch_with(goes_on, (body, Vec::new()), (after, vec![at, round]));

        self.out.b.switch(body);
        let most = self.out.b.int(max as i64);
        let over = self.out.b.int_compare(IntCmp::ULe, most, round);
        self.out.refuse_if(over, &self.protocol.name, &format!("more than {max} of {name}"), line);
        let outside = (self.known.clone(), self.gives_if);
        let is_first = self.out.b.int_compare(IntCmp::Eq, round, zero);
        self.gives_if = Some(match self.gives_if {
            Some(condition) => self.out.b.and(condition, is_first),
            None => is_first,
        });
        self.known.round = Some(at);
        self.cursor = Cursor { base: at, bits: 0 };
        self.passed = None;
        self.items(items);
        let next = self.here();
        let limit = if let Until::Bytes(_) = until { bound.unwrap_or(next) } else { self.layer.end };
        self.refuse_behind(next, limit, "truncated", line);
        for id in self.fields_in(items) {
            self.verify(id, &self.protocol.fields[usize::from(id.0)]);
        }
        let one = self.out.b.int(1);
        let done = self.out.b.int_binary(IntOp::Add, round, one);
        match until {
            Until::Condition(condition) => {
                let ends = self.truth(condition);
                self.out.b.branch_with(ends, (after, vec![next, done]), (head, vec![next, done]));
            }
            Until::Count(_) | Until::Bytes(_) => self.out.b.jump(head, vec![next, done]),
        }
        (self.known, self.gives_if) = outside;
        self.known.counts.insert(name.to_owned(), rounds);
        self.out.b.switch(after);
        self.cursor = Cursor { base: end, bits: 0 };
    }

    // ---- rules ----

    /// Rejects frames in which a field breaks its rule or its CHECK.
    fn verify(&mut self, id: FieldId, field: &'n Field) {
        let Some(found) = self.known.fields.get(&id).copied() else { return };
        let name = &field.name;
        if let Some((wrong, what)) = self.breaks_rule(id, field, found) {
            self.refuse_found(found, wrong, &what, field.line);
        }
        if let Some(check) = &field.check {
            let holds = self.truth(check);
            let unmet = self.out.b.not(holds);
            self.refuse_found(found, unmet, &format!("{name} does not pass its CHECK"), field.line);
        }
    }

    /// Rejects frames in which a field is present and wrong.
    fn refuse_found(&mut self, found: ParsedField, wrong: Value, what: &str, line: u32) {
        let wrong = match found.present {
            Some(present) => self.out.b.and(present, wrong),
            None => wrong,
        };
        self.out.refuse_if(wrong, &self.protocol.name, what, line);
    }

    /// Whether a field breaks its rule, and the message for that.
    fn breaks_rule(&mut self, id: FieldId, field: &'n Field, found: ParsedField) -> Option<(Value, String)> {
        let name = &field.name;
        match &field.rule {
            Rule::Constant(n) => {
                let wanted = self.out.b.int(*n as i64);
                let wrong = self.is_not(id, found, wanted);
                Some((wrong, format!("{name} is not {n}")))
            }
            Rule::Computed(Expr::Checksum(Checksum::Header)) => {
                Some((self.header_sum_is_wrong(), format!("{name} does not hold")))
            }
            // The end of the layer was computed from this field.
            Rule::Computed(expr) if self.is_own_length(id, expr) => None,
            Rule::Computed(expr) if expr.is_verified() => {
                let computed = self.number(expr).value;
                let slack = self.slack.filter(|slack| self.out.b.known_int(*slack) != Some(0));
                let wrong = match slack.filter(|_| expr.depends_on_end()) {
                    None => self.is_not(id, found, computed),
                    Some(slack) => {
                        let wrong = self.out.b.int_compare(IntCmp::Ne, found.value, computed);
                        let zero = self.out.b.int(0);
                        let is_whole = self.out.b.int_compare(IntCmp::Eq, slack, zero);
                        self.out.b.and(wrong, is_whole)
                    }
                };
                Some((wrong, format!("{name} is not what it says")))
            }
            _ => None,
        }
    }

    /// Whether a field has the wrong value, for which frames are rejected. A constant value is known afterwards.
    fn is_not(&mut self, id: FieldId, found: ParsedField, wanted: Value) -> Value {
        if found.present.is_none() && self.out.b.known_int(wanted).is_some() {
            self.known.fields.insert(id, ParsedField { value: wanted, ..found });
        }
        self.out.b.int_compare(IntCmp::Ne, found.value, wanted)
    }

    /// Whether a field gives the end of its layer, and is computed from just that.
    fn is_own_length(&self, id: FieldId, expr: &Expr) -> bool {
        let Expr::Binary(BinaryOp::Add, a, b) = expr else { return false };
        let is_whole = (&**a, &**b) == (&Expr::HeaderBytes, &Expr::PayloadBytes);
        self.protocol.length == Some(Expr::Field(id)) && is_whole
    }

    /// Whether the internet checksum of the header is wrong, that is, the sum is not all ones (RFC 1071). 2^16 is 1
    /// modulo 2^16 - 1, so words of any size may be added. Reversed bytes multiply the sum by 2^8, which keeps a
    /// correct sum correct. The sum is 0 only if all bytes are, which is wrong.
    fn header_sum_is_wrong(&mut self) -> Value {
        let Self { protocol, layer, .. } = self;
        let (at, min) = (layer.at, protocol.header_min);
        let inline = if min <= SUM_INLINE_MAX && min.is_multiple_of(4) { min } else { 0 };
        let mut sum = self.out.b.int(0);
        for offset in (0..inline).step_by(4) {
            let place = self.after(at, u64::from(offset));
            let word = self.out.b.get(Op::FrameGet(place, 4, Endian::Little), Ty::Int);
            sum = self.out.b.int_binary(IntOp::Add, sum, word);
        }
        if protocol_varies(self.protocol) || inline == 0 {
            let from = self.after(at, u64::from(inline));
            let end = self.header_end.unwrap_or(from);
            let len = self.out.b.int_binary(IntOp::Sub, end, from);
            // Most headers have only their minimum length.
            let [rests, done] = [(); 2].map(|()| self.out.b.block());
            let zero = self.out.b.int(0);
            let ends = self.out.b.int_compare(IntCmp::Eq, len, zero);
            self.out.b.branch_with(ends, (done, vec![sum]), (rests, Vec::new()));
            self.out.b.switch(rests);
            let rest = self.out.b.get(Op::FrameSum(from, len), Ty::Int);
            let byte = self.out.b.int(8);
            let rest = self.out.b.int_binary(IntOp::Shl, rest, byte);
            let both = self.out.b.int_binary(IntOp::Add, sum, rest);
            self.out.b.jump(done, vec![both]);
            sum = self.out.b.param(done, Ty::Int);
            self.out.b.switch(done);
        }
        // Only multiples of 2^16 - 1 become a quotient of at most 48 bits; zero becomes 0.
        let [inverse, one, places, zero] = [ONES_INVERSE, 1, 48, 0].map(|n| self.out.b.int(n));
        let quotient = self.out.b.int_binary(IntOp::Mul, sum, inverse);
        let less_one = self.out.b.int_binary(IntOp::Sub, quotient, one);
        let upper = self.out.b.int_binary(IntOp::Shr, less_one, places);
        self.out.b.int_compare(IntCmp::Ne, upper, zero)
    }

    // ---- expressions ----

    /// Lowers a numeric expression over the header, with the range of its value.
    fn number(&mut self, expr: &Expr) -> Num {
        match expr {
            Expr::Int(n) => Num { value: self.out.b.int(*n as i64), min: *n, max: *n },
            Expr::Field(id) => self.field_number(*id),
            Expr::Peek(bits) => self.peek(*bits),
            Expr::HeaderBytes => {
                self.header_bytes.unwrap_or_else(|| self.distance(self.layer.at, self.header_end))
            }
            // Headers lie within their layers: checked when the end was found.
            Expr::PayloadBytes => {
                let from = self.header_end.unwrap_or(self.layer.at);
                let value = self.out.b.int_binary(IntOp::Sub, self.layer.end, from);
                Num { value, min: 0, max: OFFSET_MAX as u64 }
            }
            Expr::BytesAfter(id) => {
                let after = self.known.fields.get(id).map(|found| found.after);
                let from =
                    after.map_or(self.layer.at, |after| self.after(after.base, after.bits.div_ceil(8)));
                self.distance(from, Some(self.layer.end))
            }
            Expr::RoundBytes => {
                let (from, to) = (self.known.round.unwrap_or(self.layer.at), self.here());
                self.distance(from, Some(to))
            }
            Expr::Rest => {
                let from = self.here();
                self.distance(from, Some(self.layer.end))
            }
            Expr::Count(name) => {
                let value = self.known.counts.get(name).copied().unwrap_or_else(|| self.out.b.int(0));
                Num { value, min: 0, max: u64::from(weft_core::wire::REPEATS_MAX) }
            }
            Expr::Binary(op, a, b) if op.is_arithmetic() => {
                let (a, b) = (self.number(a), self.number(b));
                self.arithmetic(*op, a, b)
            }
            Expr::If(by, yes, no) => {
                let by = self.truth(by);
                let (yes, no) = (self.number(yes), self.number(no));
                let value = self.out.b.select(by, yes.value, no.value);
                Num { value, min: yes.min.min(no.min), max: yes.max.max(no.max) }
            }
            Expr::Checksum(_) | Expr::Flow | Expr::Last => Num { value: self.out.b.int(0), min: 0, max: 0 },
            Expr::Present(_) | Expr::Binary(..) | Expr::Not(_) | Expr::In(..) => {
                let truth = self.truth(expr);
                let value = match self.out.b.known_bool(truth) {
                    Some(known) => self.out.b.int(i64::from(known)),
                    None => self.out.b.get(Op::BoolToInt(truth), Ty::Int),
                };
                Num { value, min: 0, max: 1 }
            }
        }
    }

    /// Lowers a condition over the header. A number is true if it is not 0.
    fn truth(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Binary(BinaryOp::And, a, b) => {
                let (a, b) = (self.truth(a), self.truth(b));
                self.out.b.and(a, b)
            }
            Expr::Binary(BinaryOp::Or, a, b) => {
                let (a, b) = (self.truth(a), self.truth(b));
                self.out.b.or(a, b)
            }
            Expr::Binary(op, a, b) if !op.is_arithmetic() => {
                let (a, b) = (self.number(a).value, self.number(b).value);
                let (compare, a, b) = match op {
                    BinaryOp::Eq => (IntCmp::Eq, a, b),
                    BinaryOp::Ne => (IntCmp::Ne, a, b),
                    BinaryOp::Lt => (IntCmp::ULt, a, b),
                    BinaryOp::Gt => (IntCmp::ULt, b, a),
                    BinaryOp::Ge => (IntCmp::ULe, b, a),
                    _ => (IntCmp::ULe, a, b),
                };
                self.out.b.int_compare(compare, a, b)
            }
            Expr::Not(a) => {
                let a = self.truth(a);
                self.out.b.not(a)
            }
            Expr::In(of, list) => {
                let of = self.number(of).value;
                let mut found = self.out.b.bool(false);
                for n in list {
                    let n = self.out.b.int(*n as i64);
                    let equal = self.out.b.int_compare(IntCmp::Eq, of, n);
                    found = self.out.b.or(found, equal);
                }
                found
            }
            Expr::Present(id) => match self.known.fields.get(id) {
                Some(found) => found.present.unwrap_or_else(|| self.out.b.bool(true)),
                None => self.out.b.bool(false),
            },
            _ => {
                let (number, zero) = (self.number(expr).value, self.out.b.int(0));
                self.out.b.int_compare(IntCmp::Ne, number, zero)
            }
        }
    }

    /// Returns the number of a parsed field; 0 if it is missing or has no number.
    fn field_number(&mut self, id: FieldId) -> Num {
        let max = match self.protocol.fields[usize::from(id.0)].width {
            Width::Bits { n, .. } => bits_max(n),
            Width::Bytes { .. } | Width::Rounds { .. } => 0,
        };
        let value = match self.known.fields.get(&id) {
            Some(found) if max > 0 => found.value,
            _ => self.out.b.int(0),
        };
        Num { value, min: 0, max }
    }

    /// The first bits after the header; 0 if there are fewer.
    fn peek(&mut self, bits: u8) -> Num {
        let at = self.header_end.unwrap_or(self.layer.at);
        let Container { bytes, shift, .. } = container(0, bits);
        let held = self.out.b.get(Op::FrameGet(at, bytes, Endian::Big), Ty::Int);
        let value = self.bits_of(held, bytes, shift, bits);
        let end = self.after(at, u64::from(bytes));
        let fits = self.out.b.int_compare(IntCmp::ULe, end, self.layer.end);
        let zero = self.out.b.int(0);
        Num { value: self.out.b.select(fits, value, zero), min: 0, max: bits_max(bits) }
    }

    /// Emits an operation on unsigned numbers that saturates, with the range of its result.
    fn arithmetic(&mut self, op: BinaryOp, a: Num, b: Num) -> Num {
        let out = &mut self.out.b;
        let zero = out.int(0);
        match op {
            BinaryOp::Add | BinaryOp::Mul => {
                let (op, least, exact) = match op {
                    BinaryOp::Add => (IntOp::Add, a.min.saturating_add(b.min), a.max.checked_add(b.max)),
                    _ => (IntOp::Mul, a.min.saturating_mul(b.min), a.max.checked_mul(b.max)),
                };
                let value = out.int_binary(op, a.value, b.value);
                let Some(max) = exact else {
                    let (over, most) = (out.overflows(op, Signed::No, a.value, b.value), out.int(-1));
                    return Num { value: out.select(over, most, value), min: least, max: u64::MAX };
                };
                Num { value, min: least, max }
            }
            BinaryOp::Sub => {
                let (min, max) = (a.min.saturating_sub(b.max), a.max.saturating_sub(b.min));
                let value = out.int_binary(IntOp::Sub, a.value, b.value);
                if a.min >= b.max {
                    return Num { value, min, max };
                }
                let under = out.int_compare(IntCmp::ULt, a.value, b.value);
                Num { value: out.select(under, zero, value), min, max }
            }
            // Division by a power of two is a shift.
            BinaryOp::Div => {
                let power = out.known_int(b.value).filter(|n| (*n as u64).is_power_of_two());
                let value = match power.map(|n| out.int(i64::from(n.trailing_zeros()))) {
                    Some(by) => out.int_binary(IntOp::Shr, a.value, by),
                    None => out.int_binary(IntOp::UDiv, a.value, b.value),
                };
                Num { value, min: a.min.checked_div(b.max).unwrap_or(0), max: a.max / b.min.max(1) }
            }
            _ => {
                let value = out.int_binary(IntOp::URem, a.value, b.value);
                Num { value, min: 0, max: b.max.min(a.max) }
            }
        }
    }

    // ---- positions ----

    /// The cursor's position, which is a byte boundary.
    fn here(&mut self) -> Value {
        self.after(self.cursor.base, self.cursor.bits.div_ceil(8))
    }

    /// The offset this many bytes later.
    fn after(&mut self, base: Value, bytes: u64) -> Value {
        if bytes == 0 {
            return base;
        }
        let bytes = self.out.b.int(bytes as i64);
        self.out.b.int_binary(IntOp::Add, base, bytes)
    }

    /// Bytes before the cursor, if they are a sum.
    fn passed_here(&mut self) -> Option<Num> {
        let passed = self.passed?;
        let bytes = self.cursor.bits.div_ceil(8);
        let bytes = Num { value: self.out.b.int(bytes as i64), min: bytes, max: bytes };
        Some(self.arithmetic(BinaryOp::Add, passed, bytes))
    }

    /// The sum of an offset and a length, clamped to the largest offset.
    fn sum(&mut self, at: Value, len: Num) -> Value {
        let len = self.within_offsets(len);
        self.out.b.int_binary(IntOp::Add, at, len.value)
    }

    /// Emits a clamp of a length to the largest offset.
    fn within_offsets(&mut self, len: Num) -> Num {
        let most = OFFSET_MAX as u64;
        if len.max <= most {
            return len;
        }
        let limit = self.out.b.int(OFFSET_MAX);
        let value = self.out.b.int_binary(IntOp::UMin, len.value, limit);
        Num { value, min: len.min.min(most), max: most }
    }

    /// Bytes from one position to another.
    fn distance(&mut self, from: Value, to: Option<Value>) -> Num {
        let to = to.unwrap_or(from);
        let max = OFFSET_MAX as u64;
        let [from, to] = [from, to].map(|value| Num { value, min: 0, max });
        self.arithmetic(BinaryOp::Sub, to, from)
    }

    /// Rejects frames in which a position is after its limit.
    fn refuse_behind(&mut self, at: Value, limit: Value, what: &str, line: u32) {
        if at == limit {
            return;
        }
        let behind = self.out.b.int_compare(IntCmp::ULt, limit, at);
        self.out.refuse_if(behind, &self.protocol.name, what, line);
    }
}

/// Lengths are clamped to this: it is after the end of any frame, and sums do not overflow.
const OFFSET_MAX: i64 = 1 << 40;
/// A fragmented layer may claim this many more bytes (as a power of two): more than any length field can.
const SLACK_BITS: u8 = 41;

fn protocol_varies(protocol: &Protocol) -> bool {
    protocol.header_min != protocol.header_max
}

/// The names of the REPEATs among items and within WHENs; nested REPEATs belong to the iterations of the outer one.
fn repeats_in(items: &[Item]) -> Vec<&str> {
    let mut names = Vec::new();
    for item in items {
        match item {
            Item::Repeat { name, .. } => names.push(name.as_str()),
            Item::When { items, .. } => names.extend(repeats_in(items)),
            Item::Field(_) => {}
        }
    }
    names
}
