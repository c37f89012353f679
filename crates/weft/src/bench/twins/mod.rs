//! Hand-written Rust with the meaning of library elements: what compiled elements are measured against.
//!
//! A twin is what an engineer would write who wants exactly this element on this interface, and wants it fast. Its
//! state is in Rust's own collections, with the same bounds, expiry and eviction as the element's tables. Before a
//! twin is timed, it is held against the interpreter on random messages: verdicts, rows, edits and counters.

mod acl;
mod bounded;
mod fault;
mod logging;
mod metrics;
mod mutation;
mod shard_lb;
mod token_bucket;

use weft_core::abi::{Cell, Cx, SinkRow, Verdict};
use weft_core::{Status, Value};
use weft_ir::ir::Op;
use weft_ir::program::{ChainProgram, Direction, Meta, Place};

/// Makes a twin for a chain.
pub(super) type Make = fn(&ChainProgram) -> Box<dyn Twin>;

pub(super) const ACL: Make = one::<acl::Acl>;
/// An element that lets everything pass.
pub(super) const EMPTY: Make = one::<Empty>;
pub(super) const FAULT: Make = one::<fault::Fault>;
pub(super) const LOGGING: Make = one::<logging::Logging>;
pub(super) const METRICS: Make = one::<metrics::Metrics>;
pub(super) const MUTATION: Make = one::<mutation::Mutation>;
pub(super) const SHARD_LB: Make = one::<shard_lb::ShardLb>;
pub(super) const TOKEN_BUCKET: Make = one::<token_bucket::TokenBucket>;
/// logging -> acl -> fault
pub(super) const ADN: Make = three::<logging::Logging, acl::Acl, fault::Fault>;

/// A chain by hand.
pub(super) trait Twin {
    /// OPEN and REQUEST of all elements.
    fn request(&mut self, cx: &mut Cx<'_>);
    /// RESPONSE of all elements.
    fn response(&mut self, _cx: &mut Cx<'_>) {}
    /// CLOSE of the elements below `opened`.
    fn close(&mut self, _cx: &mut Cx<'_>, _opened: usize) {}
}

/// A twin of one element, at its place in a chain. Each pass says whether the call goes on.
pub(super) trait Element: Sized {
    /// What it knows of the program: where its columns are, and from which site it draws.
    fn new(program: &ChainProgram, at: u16) -> Self;
    /// OPEN and REQUEST.
    fn request(&mut self, cx: &mut Cx<'_>) -> bool;
    /// RESPONSE.
    #[inline(always)]
    fn response(&mut self, _cx: &mut Cx<'_>) -> bool {
        true
    }
    /// CLOSE.
    #[inline(always)]
    fn close(&mut self, _cx: &mut Cx<'_>) -> bool {
        true
    }
}

struct Empty(u16);

impl Element for Empty {
    fn new(_: &ChainProgram, at: u16) -> Self {
        Self(at)
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.0);
        true
    }
}

fn one<A: Element + 'static>(program: &ChainProgram) -> Box<dyn Twin> {
    Box::new(One(A::new(program, 0)))
}

fn three<A: Element + 'static, B: Element + 'static, C: Element + 'static>(
    program: &ChainProgram,
) -> Box<dyn Twin> {
    Box::new(Three(A::new(program, 0), B::new(program, 1), C::new(program, 2)))
}

/// A chain of one element.
struct One<A>(A);

impl<A: Element> Twin for One<A> {
    fn request(&mut self, cx: &mut Cx<'_>) {
        if self.0.request(cx) {
            forward(cx, 1);
        }
    }

    fn response(&mut self, cx: &mut Cx<'_>) {
        if self.0.response(cx) {
            forward(cx, 1);
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>, opened: usize) {
        if opened < 1 || self.0.close(cx) {
            forward(cx, 1);
        }
    }
}

/// A chain of three; responses and ends pass it backwards.
struct Three<A, B, C>(A, B, C);

impl<A: Element, B: Element, C: Element> Twin for Three<A, B, C> {
    fn request(&mut self, cx: &mut Cx<'_>) {
        if self.0.request(cx) && self.1.request(cx) && self.2.request(cx) {
            forward(cx, 3);
        }
    }

    fn response(&mut self, cx: &mut Cx<'_>) {
        if self.2.response(cx) && self.1.response(cx) && self.0.response(cx) {
            forward(cx, 3);
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>, opened: usize) {
        if (opened < 3 || self.2.close(cx))
            && (opened < 2 || self.1.close(cx))
            && (opened < 1 || self.0.close(cx))
        {
            forward(cx, 3);
        }
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
    cx.out.text.extend_from_slice(text);
    false
}

#[inline(always)]
fn seen(cx: &mut Cx<'_>, at: u16) {
    cx.counters[usize::from(at)].seen += 1;
}

/// Adds a row to a sink.
#[inline(always)]
fn emit<const N: usize>(cx: &mut Cx<'_>, sink: u16, cells: [Cell; N]) {
    cx.out.cells.extend_from_slice(&cells);
    cx.out.rows.push(SinkRow { sink, cells: N as u16 });
}

/// Bytes that a row or an edit refers to.
#[inline(always)]
fn keep(cx: &mut Cx<'_>, bytes: &[u8]) -> Cell {
    let (start, len) = cx.out.keep(bytes).expect("messages of the benchmark are short");
    Cell::Bytes(start, len)
}

/// A text column.
#[inline(always)]
fn text<'a>(cx: &Cx<'a>, region: usize, input: usize) -> &'a [u8] {
    let slot = cx.slots[input];
    &cx.regions[region][slot.a as usize..][..slot.b as usize]
}

fn place(direction: &Direction, is_it: impl Fn(&Place) -> bool) -> usize {
    direction.inputs.iter().position(|input| is_it(&input.place)).expect("a column that the element reads")
}

/// The input that is a field of the message.
fn field(direction: &Direction, name: &str) -> usize {
    place(direction, |place| matches!(place, Place::Body(path) if *path == [name]))
}

/// The input that is a header.
fn header(direction: &Direction, name: &str) -> usize {
    place(direction, |place| matches!(place, Place::Header(have) if have == name))
}

fn meta(direction: &Direction, meta: Meta) -> usize {
    place(direction, |place| *place == Place::Meta(meta))
}

/// The rows that the program gives to an element's table.
fn rows(program: &ChainProgram, at: u16) -> &[Vec<Value>] {
    let owner = &program.elements[usize::from(at)].name;
    program.tables.iter().find(|table| table.owner == *owner).map_or(&[], |table| &table.rows)
}

/// The sites from which an element's request handler draws, in order.
fn rand_sites(program: &ChainProgram, at: u16) -> Vec<u64> {
    let handlers = &program.elements[usize::from(at)].handlers;
    let insts = handlers.request.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.insts);
    insts.filter_map(|inst| if let Op::Rand(site) = inst.op { Some(site) } else { None }).collect()
}

/// The index of an element's sink.
fn sink(program: &ChainProgram, at: u16) -> u16 {
    let owner = &program.elements[usize::from(at)].name;
    program.sinks.iter().position(|sink| sink.owner == *owner).expect("the element has a sink") as u16
}
