//! Passes: runs one message through one segment. Fills the inputs, runs the code, and reads the outcome.

use crate::filter::ActiveFilter;
use crate::plan::{Chain, Columns, Method, Segment};
use crate::tracing::Tracing;
use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_core::abi::{
    self, Cell, Counters, Cx, EditTarget, Outcome, REGION_BODY, REGIONS, Rewrite, Slot, State, TupleEdit,
};
use weft_core::inputs::InputSet;
use weft_core::limits::INPUTS_MAX;
use weft_core::table::Row;
use weft_core::{Interval, Status, Time, hash};
use weft_ir::program::{Event, Input, InputLocation, Meta};
use weft_proto::session::grpc::protobuf::{EditError, EditValue, Malformed};
use weft_proto::session::http2::{Headers, HeadersBuilder};

/// Nanoseconds after which a pass counts as slow: all other calls of its worker wait that long.
pub const SLOW_PASS_NS: u64 = 10_000_000;

/// The tuple size below which a pass cannot be slow, unless its segment may be: compiled code takes a few nanoseconds
/// per byte. Such passes are not timed, since reading the clock is expensive for them.
const TIMED_BYTES_MIN: usize = 64 << 10;

/// A chain on this worker.
#[derive(Debug)]
pub(crate) struct ActiveChain {
    pub(crate) chain: std::sync::Arc<Chain>,
    /// Borrowed during a pass; table copies are swapped between two passes.
    pub(crate) state: RefCell<State>,
    pub(crate) counters: RefCell<Vec<Counters>>,
    pub(crate) calls_open: std::cell::Cell<u64>,
    /// The names of its elements.
    pub(crate) names: Vec<Rc<str>>,
    /// The filter behind its last element, and the chain behind that.
    pub(crate) next: Option<Rc<ActiveFilter>>,
}

/// The tuple of one pass, as the engine knows it.
#[derive(Clone, Copy)]
pub(crate) struct PassInputs<'a> {
    pub(crate) now: Time,
    /// The base of `rand()`.
    pub(crate) rand: u64,
    /// In TIMEOUT and EVICT: the row that has left its table.
    pub(crate) expired_row: Row,
    /// The message without its prefix, inflated.
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) method: Option<&'a Method>,
    pub(crate) path: &'a [u8],
    pub(crate) peer: &'a str,
    pub(crate) headers: Option<&'a Headers>,
    pub(crate) trailers: Option<&'a Headers>,
    /// The length of the message as it arrived, perhaps compressed.
    pub(crate) size: u64,
    pub(crate) index: u64,
    pub(crate) call_id: u64,
    pub(crate) status: Option<Status>,
    pub(crate) elapsed: Option<Interval>,
    pub(crate) upstream: Option<&'a str>,
    pub(crate) ended_by: Option<&'a str>,
}

impl PassInputs<'_> {
    /// Returns the inputs of a pass without a call, such as ON EVERY.
    pub(crate) const fn of_node(now: Time, rand: u64) -> Self {
        Self {
            now,
            rand,
            payload: None,
            expired_row: Row::NONE,
            method: None,
            path: b"",
            peer: "",
            headers: None,
            trailers: None,
            size: 0,
            index: 0,
            call_id: 0,
            status: None,
            elapsed: None,
            upstream: None,
            ended_by: None,
        }
    }
}

/// The scratch memory of passes; reused from pass to pass.
pub(crate) struct PassScratch {
    slots: [Slot; INPUTS_MAX],
    text: Vec<u8>,
    pub(crate) outcome: Outcome,
    clock: Option<fn() -> u64>,
    /// The cost of reading the clock in nanoseconds, which is part of each measured time.
    pub(crate) clock_ns: u64,
    tracing: Tracing,
    /// By chain: passes that took longer than [`SLOW_PASS_NS`].
    pub(crate) slow: BTreeMap<String, u64>,
    /// Why the last pass could not read the edited message, if it needed that.
    pub(crate) edit_error: Option<EditError>,
}

/// The message of a pass, for code that reads it with the edits so far.
#[derive(Debug)]
struct MessageView<'a> {
    inputs: &'a [Input],
    /// None if the schemas do not have the method: its message does not change.
    columns: Option<&'a Columns>,
    payload: &'a [u8],
    /// The last error.
    error: RefCell<Option<EditError>>,
}

impl<'a> MessageView<'a> {
    fn new(active: &'a ActiveChain, event: Event, method: Option<&'a Method>, payload: &'a [u8]) -> Self {
        let (inputs, columns) = (inputs(&active.chain, event), columns(method, event));
        Self { inputs, columns, payload, error: RefCell::new(None) }
    }

    /// Appends the message to `out` with those of `edits` that apply to its fields. None if none apply.
    fn rewrite(
        &self,
        edits: &[TupleEdit],
        scratch: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Result<(), EditError>> {
        let columns = self.columns?;
        let mut of_fields = Vec::new();
        for edit in edits {
            if let EditTarget::Input(id) = edit.target
                && matches!(self.inputs[usize::from(id)].place, InputLocation::Body(_))
            {
                of_fields.push((usize::from(id), edit_value(edit.value, scratch)));
            }
        }
        (!of_fields.is_empty()).then(|| columns.walk.rewrite(self.payload, &of_fields, out))
    }
}

impl abi::Message for MessageView<'_> {
    fn rewrite(&self, edits: &[TupleEdit], scratch: &[u8], out: &mut Vec<u8>) -> Rewrite {
        match self.rewrite(edits, scratch, out) {
            None => Rewrite::Unchanged,
            Some(Ok(())) => Rewrite::Changed,
            Some(Err(error)) => {
                *self.error.borrow_mut() = Some(error);
                Rewrite::Failed
            }
        }
    }
}

impl PassScratch {
    /// Creates the scratch memory of a worker's passes. `clock` measures the time of elements; None disables that.
    pub(crate) fn new(clock: Option<fn() -> u64>) -> Self {
        Self {
            slots: [Slot::default(); INPUTS_MAX],
            text: Vec::new(),
            outcome: Outcome::default(),
            clock,
            clock_ns: clock.map_or(0, clock_cost),
            tracing: Tracing::default(),
            slow: BTreeMap::new(),
            edit_error: None,
        }
    }

    /// Runs a segment; the outcome is in `self.outcome`. In CLOSE, only elements before `opened` run.
    ///
    /// # Errors
    /// The message is malformed where the segment reads it; nothing has run.
    pub(crate) fn run(
        &mut self,
        active: &ActiveChain,
        segment: &Segment,
        pass_inputs: &PassInputs<'_>,
        call: &mut [u64],
        opened: usize,
    ) -> Result<(), Malformed> {
        self.outcome.clear();
        let present = self.fill_slots(active, segment, pass_inputs)?;
        let message = pass_inputs
            .payload
            .map(|payload| MessageView::new(active, segment.event, pass_inputs.method, payload));
        let mut counters = active.counters.borrow_mut();
        let state = active.state.borrow();
        let mut cx = Cx {
            rand: pass_inputs.rand,
            slots: &self.slots[..inputs(&active.chain, segment.event).len()],
            present,
            regions: regions(pass_inputs.payload.unwrap_or_default(), &self.text),
            expired_row: pass_inputs.expired_row,
            trace: self.clock.filter(|_| self.tracing.begin(pass_inputs.now)),
            message: message.as_ref().map(|message| message as &dyn abi::Message),
            ..Cx::new(pass_inputs.now, &state, call, &mut self.outcome, &mut counters)
        };
        let n_bytes = pass_inputs.payload.map_or(0, <[u8]>::len) + self.text.len();
        let is_timed = segment.may_be_slow || n_bytes >= TIMED_BYTES_MIN;
        let timed = self.clock.filter(|_| is_timed).map(|clock| (clock, clock()));
        segment.code.run(&mut cx, opened);
        if timed.is_some_and(|(clock, began)| clock().saturating_sub(began) > SLOW_PASS_NS) {
            *self.slow.entry(active.chain.program.name.clone()).or_default() += 1;
        }
        self.edit_error = message.and_then(|message| message.error.into_inner());
        Ok(())
    }

    /// Fills the slots that the segment reads; returns the inputs that are not NULL.
    fn fill_slots(
        &mut self,
        active: &ActiveChain,
        segment: &Segment,
        pass_inputs: &PassInputs<'_>,
    ) -> Result<InputSet, Malformed> {
        let mut present = InputSet::EMPTY;
        self.text.clear();
        if segment.reads.is_empty() {
            return Ok(present);
        }
        let inputs = inputs(&active.chain, segment.event);
        if let (Some(columns), Some(payload)) =
            (columns(pass_inputs.method, segment.event), pass_inputs.payload)
        {
            let slots = &mut self.slots[..inputs.len()];
            if columns.walk.mask().intersects(segment.reads) {
                columns.walk.run(payload, slots, &mut present)?;
                present |= columns.implicit;
            }
            if columns.lists.mask().intersects(segment.reads) {
                columns.lists.run(payload, slots, &mut present, &mut self.text)?;
            }
        }
        for index in segment.reads {
            let slot = match &inputs[index].place {
                InputLocation::Body(path) if path.is_empty() => {
                    pass_inputs.payload.map(|payload| Slot { a: 0, b: payload.len() as u64 })
                }
                InputLocation::Body(_)
                | InputLocation::Entry(..)
                | InputLocation::Present(_)
                | InputLocation::List(_) => continue,
                InputLocation::Key(_) | InputLocation::Frame(_) | InputLocation::Layer(_) => continue,
                InputLocation::Header(name) => self.copy_header(pass_inputs.headers, name),
                InputLocation::Trailer(name) => self.copy_header(pass_inputs.trailers, name),
                InputLocation::Meta(meta) => self.meta_slot(*meta, active, pass_inputs),
            };
            present.set(index, slot.is_some());
            self.slots[index] = slot.unwrap_or_default();
        }
        Ok(present)
    }

    /// Copies all values of a header into the pass's text, joined with ", " (RFC 9110 section 5.3). None if absent or
    /// not UTF-8.
    fn copy_header(&mut self, headers: Option<&Headers>, name: &str) -> Option<Slot> {
        let start = self.text.len();
        let mut found = false;
        for (_, value, _) in headers?.iter().filter(|(n, ..)| *n == name.as_bytes()) {
            if found {
                self.text.extend_from_slice(b", ");
            }
            self.text.extend_from_slice(value);
            found = true;
        }
        let slot = Slot { a: start as u64, b: (self.text.len() - start) as u64 };
        // TEXT is UTF-8: another header has no value that a program could compare.
        (found && core::str::from_utf8(&self.text[start..]).is_ok()).then_some(slot)
    }

    /// Returns the slot of an input that describes the pass or its call, such as METHOD. None if it is NULL or
    /// belongs to packets.
    fn meta_slot(&mut self, meta: Meta, active: &ActiveChain, pass_inputs: &PassInputs<'_>) -> Option<Slot> {
        let number = |n: u64| Some(Slot { a: n, b: 0 });
        match meta {
            Meta::Method => self.copy_text(pass_inputs.path),
            Meta::Peer => self.copy_text(pass_inputs.peer.as_bytes()),
            Meta::Upstream => self.copy_text(pass_inputs.upstream?.as_bytes()),
            Meta::EndedBy => self.copy_text(pass_inputs.ended_by?.as_bytes()),
            Meta::Size => number(pass_inputs.size),
            Meta::Index => number(pass_inputs.index),
            Meta::CallId => number(pass_inputs.call_id),
            Meta::Status => number(u64::from(pass_inputs.status?.code())),
            Meta::Elapsed => number(pass_inputs.elapsed?.0 as u64),
            Meta::Version => number(active.chain.version),
            Meta::Port | Meta::PacketSize | Meta::Flow => None,
            Meta::IsIcmpError | Meta::IsIntact | Meta::TunnelDepth => None,
            Meta::Tag | Meta::Label | Meta::Path => None,
        }
    }

    /// Copies bytes into the pass's text; returns the slot of the copy.
    fn copy_text(&mut self, bytes: &[u8]) -> Option<Slot> {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        Some(Slot { a: start as u64, b: bytes.len() as u64 })
    }

    /// Appends `payload` with those of the last pass's first `n_edits` edits that apply to its fields. None if there
    /// are none.
    ///
    /// # Errors
    /// The message is malformed, or a value does not fit its field, which the checker excludes.
    pub(crate) fn rewrite(
        &self,
        active: &ActiveChain,
        event: Event,
        method: Option<&Method>,
        payload: &[u8],
        n_edits: usize,
        out: &mut Vec<u8>,
    ) -> Option<Result<(), EditError>> {
        if n_edits == 0 {
            return None;
        }
        let outcome = &self.outcome;
        match outcome.rewrite.filter(|(of, _)| *of == n_edits) {
            Some((_, Rewrite::Unchanged)) => None,
            // The pass has read it after its last change.
            Some((_, Rewrite::Changed)) => {
                out.extend_from_slice(&outcome.message);
                Some(Ok(()))
            }
            _ => {
                let written = MessageView::new(active, event, method, payload);
                written.rewrite(&outcome.edits[..n_edits], &outcome.scratch, out)
            }
        }
    }

    /// Takes the keys that the last pass of the request set for the filter behind the chain.
    pub(crate) fn take_keys(&self, active: &ActiveChain, keys: &mut Vec<Vec<u8>>) {
        let inputs = &active.chain.program.request.inputs;
        for edit in &self.outcome.edits {
            if let EditTarget::Input(id) = edit.target
                && let InputLocation::Key(nth) = inputs[usize::from(id)].place
                && let Cell::Bytes(start, len) = edit.value
            {
                let nth = usize::from(nth);
                keys.resize(keys.len().max(nth + 1), Vec::new());
                keys[nth] = self.outcome.kept(start, len).to_vec();
            }
        }
    }

    /// The value of an edit for the message writer.
    pub(crate) fn edit_value(&self, value: Cell) -> EditValue<'_> {
        edit_value(value, &self.outcome.scratch)
    }

    /// Applies those of the last pass's first `n_edits` edits that apply to `headers` (or trailers). None if there are
    /// none.
    pub(crate) fn edit_headers(
        &self,
        active: &ActiveChain,
        event: Event,
        trailers: bool,
        headers: &Headers,
        n_edits: usize,
    ) -> Option<Rc<Headers>> {
        if n_edits == 0 {
            return None;
        }
        let inputs = inputs(&active.chain, event);
        let mut builder: Option<HeadersBuilder> = None;
        for edit in &self.outcome.edits[..n_edits] {
            let EditTarget::Input(id) = edit.target else { continue };
            let name = match (&inputs[usize::from(id)].place, trailers) {
                (InputLocation::Header(name), false) | (InputLocation::Trailer(name), true) => {
                    name.as_bytes()
                }
                _ => continue,
            };
            let builder = builder.get_or_insert_with(|| HeadersBuilder::from_headers(headers));
            self.set_header(builder, name, edit.value);
        }
        builder.map(HeadersBuilder::build)
    }

    /// Sets or removes a header. A value that HTTP/2 does not permit, such as a line break, removes it, so that a
    /// program cannot be used to smuggle fields.
    pub(crate) fn set_header(&self, builder: &mut HeadersBuilder, name: &[u8], value: Cell) {
        let text;
        let bytes = match value {
            Cell::Bytes(start, len) => self.outcome.kept(start, len),
            Cell::Int(n) => {
                text = n.to_string();
                text.as_bytes()
            }
            _ => {
                builder.remove(name);
                return;
            }
        };
        if builder.set(name, bytes).is_err() {
            builder.remove(name);
        }
    }
}

/// Converts a cell to the value of a message edit; bytes are in `scratch`.
fn edit_value(value: Cell, scratch: &[u8]) -> EditValue<'_> {
    match value {
        Cell::Null => EditValue::Clear,
        Cell::Bool(b) => EditValue::Bits(u64::from(b)),
        Cell::Int(n) => EditValue::Bits(n as u64),
        Cell::Float(x) => EditValue::Bits(x.to_bits()),
        Cell::Bytes(start, len) => EditValue::Bytes(&scratch[start as usize..][..len as usize]),
    }
}

/// The least difference between two successive readings.
pub(crate) fn clock_cost(clock: fn() -> u64) -> u64 {
    (0..64).map(|_| clock().abs_diff(clock())).min().unwrap_or(0)
}

/// Returns the base of `rand()` in one pass: a hash of the seed, the call, the attempt, the index in the stream, and
/// the direction.
pub(crate) fn rand_base(seed: u64, call_id: u64, attempt: u32, index: u64, event: Event) -> u64 {
    let direction = u64::from(event.is_request());
    let message = hash::mix(hash::mix(hash::hash_word(seed), call_id), index);
    hash::mix(message, u64::from(attempt) << 1 | direction)
}

fn inputs(chain: &Chain, event: Event) -> &[Input] {
    let direction = if event.is_request() { &chain.program.request } else { &chain.program.response };
    &direction.inputs
}

fn columns(method: Option<&Method>, event: Event) -> Option<&Columns> {
    let method = method?;
    Some(if event.is_request() { &method.request } else { &method.response })
}

/// Returns the regions of bytes that slots point into: the message body, and otherwise the pass's text.
fn regions<'a>(body: &'a [u8], text: &'a [u8]) -> [&'a [u8]; REGIONS] {
    let mut regions = [text; REGIONS];
    regions[REGION_BODY] = body;
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it failed, runs with adjacent seeds would draw the same numbers for other calls: a fault at one percent of
    /// calls would hit the neighbours of the calls in the run before.
    #[test]
    fn rand_is_independent_between_calls() {
        const N: u64 = 4_000;
        let draws = |of: &dyn Fn(u64) -> u64| -> Vec<f64> {
            (0..N).map(|nth| hash::unit_float(hash::draw(of(nth), 7))).collect()
        };
        let base = |seed, call, attempt, index| rand_base(seed, call, attempt, index, Event::Request);
        let mut all = Vec::new();
        for seed in 0..4 {
            all.push(draws(&|nth| base(seed, nth, 0, 0)));
            all.push(draws(&|nth| base(seed, nth, 1, 0)));
            all.push(draws(&|nth| base(seed, nth, 0, 1)));
            all.push(draws(&|nth| base(seed, 1 << 48 | nth, 0, 0)));
        }
        // Messages of a stream, including those whose indexes agree in the lower half.
        all.push(draws(&|nth| base(0, N, 0, nth << 32)));
        let most = 5.5 / ((N - 16) as f64).sqrt();
        for (nth, one) in all.iter().enumerate() {
            for (other, draws) in all.iter().enumerate().skip(nth) {
                // Adjacent, shifted, and with neighbours exchanged, as with an exclusive or of seed and id.
                for step in 0..8_usize {
                    let pairs = (0..N as usize - 8)
                        .map(|at| [(one[at + step], draws[at]), (one[at ^ step], draws[at])]);
                    let sums = pairs.fold([0.0; 2], |sums, pairs| {
                        [0, 1].map(|way| sums[way] + (pairs[way].0 - 0.5) * (pairs[way].1 - 0.5))
                    });
                    let is_itself = nth == other && step == 0;
                    let found = sums.map(|sum: f64| sum * 12.0 / (N - 8) as f64);
                    assert!(
                        is_itself || found.iter().all(|c| c.abs() < most),
                        "{nth} {other} {step}: {found:?}"
                    );
                }
            }
        }
    }
}
