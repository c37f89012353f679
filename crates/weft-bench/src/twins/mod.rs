//! Handwritten Rust with the meaning of library elements: the reference for compiled elements.
//!
//! A twin is the code of an engineer who wants exactly this element on this interface, as fast as possible. It is a
//! [`Program`], called like compiled code, through the same pointer, and has the same obligations to the engine:
//!
//! - **State is the engine's.** Persistent state is in the engine's tables ([`Table`]), merged variables and the call's
//!   row. So it survives an update, can be listed, has the declared limits, expiry and eviction, and is shared by all
//!   workers. A look-up returns the row's words, and a twin works on those; it locks the key if the table is shared. A
//!   private map behind `&mut self` would be less work, but another element: calls of one worker overlap, and workers
//!   share tables.
//! - **Handlers are atomic.** A twin computes first and writes last; an error leaves no change.
//! - **Output is bounded**: bytes of edits and rows count against the scratch of the pass.
//! - **Elements are counted**, and timed on sampled passes.
//!
//! It omits work that a compiler needs and an engineer does not: defaults that are overwritten at once, checks of sums
//! that cannot overflow, a second look-up of a known row. Its chain is fixed at compile time, so the elements of a
//! chain are one function. Before a twin is timed, it is compared with the interpreter on random messages: verdicts,
//! rows, edits, counters, and the final state.

mod ab_header;
mod ab_random;
mod acl;
mod admission_control;
mod bandwidth_limit;
mod cache;
mod circuit_breaker;
mod compress;
mod decompress;
mod decrypt;
mod encrypt;
mod fault;
mod hash_lb;
mod header_acl;
mod least_loaded_lb;
mod logging;
mod metrics;
mod mutation;
mod random_lb;
mod round_robin_lb;
mod shard_lb;
mod sticky_lb;
mod token_bucket;
mod traffic_mirror;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use weft_core::Status;
use weft_core::abi::{Cell, Cx, EditTarget, Fault as Fails, REGION_BODY, State, TupleEdit, Verdict};
use weft_core::limits::SCRATCH_BYTES_MAX;
use weft_core::table::Table;
use weft_ir::backend::Program;
use weft_ir::ir::Op;
use weft_ir::program::{ChainProgram, Direction, Event, InputLocation, Meta};
use weft_native::ENTROPY_BYTES;

/// Makes the twin of a chain for one event, on this state.
pub(super) type Make = fn(&ChainProgram, &State, Event) -> Box<dyn Program>;

pub(super) const AB_HEADER: Make = one::<ab_header::AbHeader>;
pub(super) const AB_RANDOM: Make = one::<ab_random::AbRandom>;
pub(super) const ACL: Make = one::<acl::Acl>;
pub(super) const ADMISSION_CONTROL: Make = one::<admission_control::AdmissionControl>;
pub(super) const BANDWIDTH_LIMIT: Make = one::<bandwidth_limit::BandwidthLimit>;
pub(super) const CACHE: Make = one::<cache::Cache>;
pub(super) const CIRCUIT_BREAKER: Make = one::<circuit_breaker::CircuitBreaker>;
pub(super) const COMPRESS: Make = one::<compress::Compress>;
pub(super) const DECOMPRESS: Make = one::<decompress::Decompress>;
pub(super) const DECRYPT: Make = one::<decrypt::Decrypt>;
pub(super) const ENCRYPT: Make = one::<encrypt::Encrypt>;
pub(super) const FAULT: Make = one::<fault::Fault>;
pub(super) const HASH_LB: Make = one::<hash_lb::HashLb>;
pub(super) const HEADER_ACL: Make = one::<header_acl::HeaderAcl>;
pub(super) const LEAST_LOADED_LB: Make = one::<least_loaded_lb::LeastLoadedLb>;
pub(super) const LOGGING: Make = one::<logging::Logging>;
pub(super) const METRICS: Make = one::<metrics::Metrics>;
pub(super) const MUTATION: Make = one::<mutation::Mutation>;
pub(super) const RANDOM_LB: Make = one::<random_lb::RandomLb>;
pub(super) const ROUND_ROBIN_LB: Make = one::<round_robin_lb::RoundRobinLb>;
pub(super) const SHARD_LB: Make = one::<shard_lb::ShardLb>;
pub(super) const STICKY_LB: Make = one::<sticky_lb::StickyLb>;
pub(super) const TOKEN_BUCKET: Make = one::<token_bucket::TokenBucket>;
pub(super) const TRAFFIC_MIRROR: Make = one::<traffic_mirror::TrafficMirror>;
/// An element that passes everything.
pub(super) const EMPTY: Make = one::<Empty>;
/// logging -> acl -> fault
pub(super) const ADN: Make = three::<logging::Logging, acl::Acl, fault::Fault>;

/// The encryption key, and the prefix of all nonces. Sealing and opening happen in memory only.
pub(super) const KEY: [u8; 32] = [9; 32];
pub(super) const ENTROPY: [u8; ENTROPY_BYTES] = [0; ENTROPY_BYTES];

/// A twin of one element, at its position in a chain. Each handler returns whether the call goes on.
trait Element: Send + Sync + Sized + 'static {
    /// Its tuples are counted in CLOSE: it has no other handler.
    const COUNTS_CLOSE: bool = false;

    /// Looks up its columns, tables and cells in the chain, and its random sites.
    fn new(site: &Site<'_>) -> Self;

    /// OPEN and REQUEST.
    #[inline(always)]
    fn request(&self, _cx: &mut Cx<'_>) -> bool {
        true
    }

    /// RESPONSE.
    #[inline(always)]
    fn response(&self, _cx: &mut Cx<'_>) -> bool {
        true
    }

    /// CLOSE.
    #[inline(always)]
    fn close(&self, _cx: &mut Cx<'_>) -> bool {
        true
    }
}

struct Empty(u16);

impl Element for Empty {
    fn new(site: &Site<'_>) -> Self {
        Self(site.at)
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.0);
        true
    }
}

/// A chain of elements.
trait Chain: Send + Sync + 'static {
    fn request(&self, cx: &mut Cx<'_>);
    fn response(&self, cx: &mut Cx<'_>);
    fn close(&self, cx: &mut Cx<'_>, opened: usize);
}

fn one<A: Element>(program: &ChainProgram, state: &State, event: Event) -> Box<dyn Program> {
    of_event(One(A::new(&Site { program, state, at: 0 })), event)
}

fn three<A: Element, B: Element, C: Element>(
    program: &ChainProgram,
    state: &State,
    event: Event,
) -> Box<dyn Program> {
    let site = |at| Site { program, state, at };
    of_event(Three(A::new(&site(0)), B::new(&site(1)), C::new(&site(2))), event)
}

fn of_event(chain: impl Chain, event: Event) -> Box<dyn Program> {
    match event {
        Event::Response => Box::new(OnResponse(chain)),
        Event::Close => Box::new(OnClose(chain)),
        _ => Box::new(OnRequest(chain)),
    }
}

struct OnRequest<C>(C);
struct OnResponse<C>(C);
struct OnClose<C>(C);

impl<C: Chain> Program for OnRequest<C> {
    fn run(&self, cx: &mut Cx<'_>, _: usize) {
        self.0.request(cx);
    }
}

impl<C: Chain> Program for OnResponse<C> {
    fn run(&self, cx: &mut Cx<'_>, _: usize) {
        self.0.response(cx);
    }
}

impl<C: Chain> Program for OnClose<C> {
    fn run(&self, cx: &mut Cx<'_>, opened: usize) {
        self.0.close(cx, opened);
    }
}

impl<C> fmt::Debug for OnRequest<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("requests by hand")
    }
}

impl<C> fmt::Debug for OnResponse<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("responses by hand")
    }
}

impl<C> fmt::Debug for OnClose<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ends by hand")
    }
}

/// A chain of one element.
struct One<A>(A);

impl<A: Element> Chain for One<A> {
    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) {
        let mut watch = Watch::start(cx);
        if watch.stop(cx, 0, true, |cx| self.0.request(cx)) {
            forward(cx, 1);
        }
    }

    #[inline(always)]
    fn response(&self, cx: &mut Cx<'_>) {
        let mut watch = Watch::start(cx);
        if watch.stop(cx, 0, false, |cx| self.0.response(cx)) {
            forward(cx, 1);
        }
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>, opened: usize) {
        let mut watch = Watch::start(cx);
        if opened < 1 || watch.stop(cx, 0, A::COUNTS_CLOSE, |cx| self.0.close(cx)) {
            forward(cx, 1);
        }
    }
}

/// A chain of three; responses and ends pass it backwards.
struct Three<A, B, C>(A, B, C);

impl<A: Element, B: Element, C: Element> Chain for Three<A, B, C> {
    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) {
        let mut watch = Watch::start(cx);
        if watch.stop(cx, 0, true, |cx| self.0.request(cx))
            && watch.stop(cx, 1, true, |cx| self.1.request(cx))
            && watch.stop(cx, 2, true, |cx| self.2.request(cx))
        {
            forward(cx, 3);
        }
    }

    #[inline(always)]
    fn response(&self, cx: &mut Cx<'_>) {
        let mut watch = Watch::start(cx);
        if watch.stop(cx, 2, false, |cx| self.2.response(cx))
            && watch.stop(cx, 1, false, |cx| self.1.response(cx))
            && watch.stop(cx, 0, false, |cx| self.0.response(cx))
        {
            forward(cx, 3);
        }
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>, opened: usize) {
        let mut watch = Watch::start(cx);
        if (opened < 3 || watch.stop(cx, 2, C::COUNTS_CLOSE, |cx| self.2.close(cx)))
            && (opened < 2 || watch.stop(cx, 1, B::COUNTS_CLOSE, |cx| self.1.close(cx)))
            && (opened < 1 || watch.stop(cx, 0, A::COUNTS_CLOSE, |cx| self.0.close(cx)))
        {
            forward(cx, 3);
        }
    }
}

/// Times the elements of a sampled pass.
struct Watch {
    began: u64,
}

impl Watch {
    #[inline(always)]
    fn start(cx: &Cx<'_>) -> Self {
        Self { began: cx.trace.map_or(0, |clock| clock()) }
    }

    /// Runs `handler`, timed as element `at`, and returns its result.
    #[inline(always)]
    fn stop(
        &mut self,
        cx: &mut Cx<'_>,
        at: usize,
        counts: bool,
        handler: impl FnOnce(&mut Cx<'_>) -> bool,
    ) -> bool {
        let goes_on = handler(cx);
        if let Some(clock) = cx.trace {
            self.stamp(cx, at, counts, clock);
        }
        goes_on
    }

    #[cold]
    fn stamp(&mut self, cx: &mut Cx<'_>, at: usize, counts: bool, clock: fn() -> u64) {
        let now = clock();
        let counters = &mut cx.counters[at];
        counters.sampled_ns += now.saturating_sub(self.began);
        counters.sampled += u64::from(counts);
        self.began = now;
    }
}

#[inline(always)]
fn forward(cx: &mut Cx<'_>, n_elements: u16) {
    if cx.out.verdict == Verdict::Forward {
        cx.out.element = n_elements;
    }
}

#[inline(always)]
fn abort(cx: &mut Cx<'_>, at: u16, status: Status, text: &[u8]) -> bool {
    cx.counters[usize::from(at)].aborted += 1;
    cx.out.verdict = Verdict::Abort(status);
    cx.out.element = at;
    cx.out.text.clear();
    cx.out.text.extend_from_slice(text);
    false
}

/// ABORT in ON OPEN.
#[inline(always)]
fn refuse(cx: &mut Cx<'_>, at: u16, status: Status, text: &[u8]) -> bool {
    cx.out.opening = true;
    abort(cx, at, status, text)
}

/// REDIRECT to the target in the outcome's text.
#[inline(always)]
fn redirected(cx: &mut Cx<'_>, at: u16) -> bool {
    (cx.out.verdict, cx.out.element) = (Verdict::Redirect, at);
    cx.counters[usize::from(at)].diverted += 1;
    true
}

#[inline(always)]
fn redirect_to(cx: &mut Cx<'_>, at: u16, target: &[u8]) -> bool {
    cx.out.text.clear();
    cx.out.text.extend_from_slice(target);
    redirected(cx, at)
}

/// Copies the text cell of a row to the target of a REDIRECT.
#[inline(always)]
fn redirect_row(cx: &mut Cx<'_>, cell: &[AtomicU64]) {
    cx.out.text.clear();
    cell_into(cell, &mut cx.out.text);
}

/// Runs `work` under the lock of a key, if the table is shared.
#[inline(always)]
fn with_lock<T>(table: &Table, key: &[u8], work: impl FnOnce() -> T) -> T {
    let hash = table.spec().shared.then(|| table.hash_bytes(key));
    hash.inspect(|hash| table.lock(*hash));
    let done = work();
    hash.inspect(|hash| table.unlock(*hash));
    done
}

/// Ends the handler with an error. `kept` is the length of the scratch at its start; the handler has written nothing
/// else.
#[cold]
fn fail(cx: &mut Cx<'_>, at: u16, fault: Fails, kept: usize) -> bool {
    cx.out.scratch.truncate(kept);
    cx.counters[usize::from(at)].failed += 1;
    cx.out.verdict = Verdict::Failed(fault);
    cx.out.element = at;
    false
}

#[inline(always)]
fn count_seen(cx: &mut Cx<'_>, at: u16) {
    cx.counters[usize::from(at)].seen += 1;
}

/// Stores bytes for a row or an edit; None if the scratch is full.
#[inline(always)]
fn keep(cx: &mut Cx<'_>, bytes: &[u8]) -> Option<Cell> {
    cx.out.keep(bytes).map(|(start, len)| Cell::Bytes(start, len))
}

/// Sets a field of the request to the bytes that `make` appends to the scratch; false if it fails.
#[inline(always)]
fn replace_field(
    cx: &mut Cx<'_>,
    input: usize,
    make: impl FnOnce(&[u8], &mut Vec<u8>) -> Option<()>,
) -> bool {
    let start = cx.out.scratch.len();
    let is_made = make(text(cx, REGION_BODY, input), &mut cx.out.scratch).is_some();
    if !is_made || cx.out.scratch.len() > SCRATCH_BYTES_MAX {
        cx.out.scratch.truncate(start);
        return false;
    }
    let value = Cell::Bytes(start as u32, (cx.out.scratch.len() - start) as u32);
    cx.out.edits.push(TupleEdit { target: EditTarget::Input(input as u16), value });
    true
}

/// A text column; empty if it does not lie in its region.
#[inline(always)]
fn text<'a>(cx: &Cx<'a>, region: usize, input: usize) -> &'a [u8] {
    let slot = cx.slots[input];
    let end = slot.a.saturating_add(slot.b);
    cx.regions[region].get(slot.a as usize..end as usize).unwrap_or_default()
}

/// Whether an input is not NULL.
#[inline(always)]
fn is_present(cx: &Cx<'_>, input: usize) -> bool {
    cx.present.contains(input)
}

/// Sets a text cell of the call's row, whose first word is `at`. The bytes fit.
#[inline(always)]
fn set_cell(call: &mut [u64], at: usize, bytes: &[u8]) {
    call[at] = bytes.len() as u64;
    let (chunks, rest) = bytes.as_chunks::<8>();
    let words = &mut call[at + 1..][..bytes.len().div_ceil(8)];
    words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u64::from_le_bytes(*chunk));
    if let (Some(last), false) = (words.last_mut(), rest.is_empty()) {
        *last = short_word(rest);
    }
}

/// One to seven bytes as a little-endian word.
#[inline(always)]
fn short_word(bytes: &[u8]) -> u64 {
    let byte = |at: usize| u64::from(bytes[at]) << (at * 8);
    let quad = |at: usize| {
        let quad = bytes[at..at + 4].try_into().expect("4 bytes were taken");
        u64::from(u32::from_le_bytes(quad)) << (at * 8)
    };
    match bytes.len() {
        len @ 4.. => quad(0) | quad(len - 4),
        len => byte(0) | byte(len / 2) | byte(len - 1),
    }
}

/// As [`keep`], for the bytes of a text cell of the call's row, whose first word is `at`.
#[inline(always)]
fn keep_cell(cx: &mut Cx<'_>, at: usize) -> Option<Cell> {
    let len = cx.call[at] as usize;
    let scratch = &mut cx.out.scratch;
    let start = scratch.len();
    if start + len > SCRATCH_BYTES_MAX {
        return None;
    }
    cx.call[at + 1..][..len.div_ceil(8)]
        .iter()
        .for_each(|word| scratch.extend_from_slice(&word.to_le_bytes()));
    scratch.truncate(start + len);
    Some(Cell::Bytes(start as u32, len as u32))
}

/// The bytes of a text cell of the call's row, at the start of `cell`.
#[inline(always)]
fn cell_bytes<'a, const N: usize>(cell: &[u64], out: &'a mut [u8; N]) -> &'a [u8] {
    let len = (cell[0] as usize).min(N);
    for (bytes, word) in out.chunks_mut(8).zip(&cell[1..=len.div_ceil(8)]) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
    &out[..len]
}

/// Appends the bytes of a text cell of a table's row: `cell` begins with their number.
#[inline(always)]
fn cell_into(cell: &[AtomicU64], out: &mut Vec<u8>) {
    let len = (cell[0].load(Relaxed) as usize).min((cell.len() - 1) * 8);
    let end = out.len() + len;
    out.reserve(len.next_multiple_of(8));
    cell[1..=len.div_ceil(8)]
        .iter()
        .for_each(|word| out.extend_from_slice(&word.load(Relaxed).to_le_bytes()));
    out.truncate(end);
}

/// The members of the cluster, in a table that the controller fills and swaps whole: no lock is needed.
struct Servers {
    table: usize,
    endpoint: usize,
}

impl Servers {
    fn new(site: &Site<'_>) -> Self {
        let (at, table) = site.table_of("servers");
        let endpoint = table.column("endpoint").expect("the table has the column");
        Self { table: at, endpoint: usize::from(endpoint.word) }
    }

    #[inline(always)]
    fn count(&self, cx: &Cx<'_>) -> u64 {
        cx.state.tables[self.table].len()
    }

    /// The cell of a slot's endpoint.
    #[inline(always)]
    fn endpoint<'a>(&self, cx: &Cx<'a>, slot: u64) -> Option<&'a [AtomicU64]> {
        let (_, words) = cx.state.tables[self.table].find_int_words(slot, cx.now)?;
        Some(&words[self.endpoint..])
    }

    /// REDIRECT to a slot.
    #[inline(always)]
    fn redirect(&self, cx: &mut Cx<'_>, at: u16, slot: u64) -> bool {
        match self.endpoint(cx, slot) {
            Some(endpoint) => {
                redirect_row(cx, endpoint);
                redirected(cx, at)
            }
            None => refuse(cx, at, Status::Unavailable, b"no server"),
        }
    }
}

/// An element's position in a chain.
struct Site<'a> {
    program: &'a ChainProgram,
    state: &'a State,
    at: u16,
}

impl Site<'_> {
    fn name(&self) -> &str {
        &self.program.elements[usize::from(self.at)].name
    }

    /// The input of the request for a field of the message.
    fn field(&self, name: &str) -> usize {
        input_at(&self.program.request, |place| matches!(place, InputLocation::Body(path) if *path == [name]))
    }

    /// The input of CLOSE and RESPONSE for the engine's metadata.
    fn meta(&self, meta: Meta) -> usize {
        input_at(&self.program.response, |place| *place == InputLocation::Meta(meta))
    }

    /// The index of the element's only table, and the table.
    fn table(&self) -> (usize, &Arc<Table>) {
        let tables = &self.program.tables;
        let at = tables.iter().position(|table| table.owner == self.name()).expect("the element has a table");
        (at, &self.state.tables[at])
    }

    /// The index of a table of the element, and the table.
    fn table_of(&self, name: &str) -> (usize, &Arc<Table>) {
        let is_it =
            |table: &weft_ir::program::TableDecl| table.owner == self.name() && table.spec.name == name;
        let at = self.program.tables.iter().position(is_it).expect("the element has the table");
        (at, &self.state.tables[at])
    }

    /// The first word of a column of the element's table in the words of a row.
    fn column(&self, name: &str) -> usize {
        let column = self.table().1.column(name).expect("the table has the column");
        usize::from(column.word)
    }

    /// The first word of a cell of the call's row.
    fn cell(&self, name: &str) -> usize {
        let is_it = |cell: &&weft_ir::program::CallCell| cell.owner == self.name() && cell.name == name;
        self.program.call.iter().find(is_it).expect("the element has the cell").word as usize
    }

    /// The word of a merged variable.
    fn variable(&self, name: &str) -> usize {
        let is_it = |var: &&weft_ir::program::VarDecl| var.owner == self.name() && var.name == name;
        self.program.vars.iter().find(is_it).expect("the element has the variable").word as usize
    }

    /// The index of the element's sink.
    fn sink(&self) -> u16 {
        let is_it = |sink: &weft_ir::program::SinkDecl| sink.owner == self.name();
        self.program.sinks.iter().position(is_it).expect("the element has a sink") as u16
    }

    /// The random sites of the element when a call opens or sends a message, in order.
    fn rand_sites(&self) -> Vec<u64> {
        let handlers = &self.program.elements[usize::from(self.at)].handlers;
        let functions = handlers.open.iter().chain(&handlers.request);
        let blocks = functions.flat_map(|function| &function.blocks);
        let ops = blocks.flat_map(|block| &block.insts).map(|inst| &inst.op);
        ops.filter_map(|op| if let Op::Rand(site) = op { Some(*site) } else { None }).collect()
    }
}

fn input_at(direction: &Direction, is_it: impl Fn(&InputLocation) -> bool) -> usize {
    direction.inputs.iter().position(|input| is_it(&input.place)).expect("a column that the element reads")
}

/// The input of the request for the engine's metadata.
fn request_meta(program: &ChainProgram, meta: Meta) -> usize {
    input_at(&program.request, |place| *place == InputLocation::Meta(meta))
}

/// The input for a header.
fn header(direction: &Direction, name: &str) -> usize {
    input_at(direction, |place| matches!(place, InputLocation::Header(have) if have == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A twin with wrong text storage would do other work than the element.
    #[test]
    fn call_cells_hold_text_of_any_length() {
        let text: Vec<u8> = (b'a'..=b'z').collect();
        for len in 0..text.len() {
            let mut call = [u64::MAX; 6];
            set_cell(&mut call, 1, &text[..len]);
            let bytes = call[2..].iter().flat_map(|word| word.to_le_bytes());
            assert_eq!((call[1], bytes.take(len).collect::<Vec<u8>>()), (len as u64, text[..len].to_vec()));
        }
    }
}
