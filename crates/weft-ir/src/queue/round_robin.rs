//! The fast path through a queue whose partitions take turns, as compiled code.
//!
//! Most packets need no decision: an arriving packet is appended to a known partition, and a departing one is sent
//! unchanged. [`RoundRobin`] describes the programs with such a fast path. A back end compiles it as a whole, with the
//! handlers and the queue operations between them ([`CompiledRoundRobin`]). The queue handles everything else. An
//! enqueue changes nothing before it is certain to succeed, and a dequeue reports how far it came ([`FastStop`]), so
//! that the queue continues from there.
//!
//! The slow path of the queue defines the meaning.

use super::layout::{CacheLine, NONE, SEEN_IN_HEAD, record_lines};
use super::{
    EventWords, Handler, Level, Moment, Op, PacketOrder, Partitions, QueueProgram, Scope, Slot, Step,
    Verdict, word,
};
use core::any::Any;
use core::fmt;
use std::sync::Arc;

/// The most ways of a set that are compared at once.
pub const WAYS_MAX: u32 = 16;

/// A program with a fast path.
#[derive(Clone, Copy, Debug)]
pub struct RoundRobin<'p> {
    /// The level of the partitions.
    pub level: &'p Level,
    /// If each partition is a node with a FIFO: the level of these nodes.
    pub fifo: Option<&'p Level>,
    /// The packet word that is its key.
    pub key_word: u16,
    /// A handler of the fast path may change the rank of a partition.
    pub ranks: bool,
    /// As above, at the start of a turn.
    pub reranks: bool,
    /// The order has at most two ranks: the code finds the first partition and keeps the order itself.
    pub finds_first: bool,
    /// Cache lines of a node's record.
    pub node_lines: usize,
    /// Cache lines of a partition's record.
    pub partition_lines: usize,
    /// Cache lines of a record of [`RoundRobin::fifo`].
    pub fifo_lines: usize,
}

impl<'p> RoundRobin<'p> {
    /// The fast path of a program, if it has one. The root must order its partitions, the key must be a packet word,
    /// and no handler may HOLD, rank packets or run at enqueue. A packet must fit one cache line.
    pub fn of(program: &'p QueueProgram) -> Option<Self> {
        let (level, line) = match &program.levels[..] {
            [level] => (level, None),
            [level, line] => (level, Some(line)),
            _ => return None,
        };
        let key_word = level.handlers.key.as_ref()?.given_word()?;
        let is_short = usize::from(key_word) < SEEN_IN_HEAD
            && may_round_robin(level)
            && line.is_none_or(is_plain_fifo)
            && program.packet_lines() == 1
            && program.counting_level().is_none()
            && program
                .levels
                .iter()
                .flat_map(|level| level.handlers.iter())
                .all(|(_, h)| may_take_fast_path(h));
        is_short.then(|| Self {
            level,
            fifo: line,
            key_word,
            ranks: [&level.handlers.dequeue, &level.handlers.select]
                .into_iter()
                .flatten()
                .any(Handler::ranks),
            // ACTIVATE sets the rank before the partition enters the order.
            reranks: level
                .handlers
                .iter()
                .any(|(moment, handler)| moment != Moment::Activate && handler.ranks()),
            finds_first: matches!(level.order.bits, Some(0..=1)),
            node_lines: record_lines(level.node_words()),
            partition_lines: record_lines(level.partition_words()),
            fifo_lines: line.map_or(0, |line| record_lines(line.node_words())),
        })
    }

    /// Whether the code handles packets of partitions outside the order, too: no timers start with such a partition.
    pub fn activates(&self) -> bool {
        self.fifo.is_none_or(|line| line.handlers.every.is_empty())
    }
}

/// Whether the partitions of a root can take turns on a fast path.
fn may_round_robin(level: &Level) -> bool {
    let ways = match level.partitions {
        Partitions::One => return false,
        Partitions::Hash { ways, .. } => ways,
        Partitions::Direct { .. } => 1,
    };
    ways <= WAYS_MAX && is_arrival_order(level)
}

/// Whether a level consists of FIFOs without handlers that run before a dequeue.
fn is_plain_fifo(line: &Level) -> bool {
    line.partitions == Partitions::One
        && is_arrival_order(line)
        && line.handlers.select.is_none()
        && line.handlers.iter().all(|(_, handler)| !handler.touches(Scope::Partition))
}

/// Whether packets keep their order of arrival, and no handler runs at enqueue.
fn is_arrival_order(level: &Level) -> bool {
    level.packets == PacketOrder::Arrival
        && !level.order.by_least_packet
        && level.handlers.enqueue.is_none()
        && level.handlers.packet_rank.is_none()
}

/// Whether a handler neither holds packets nor draws random numbers.
fn may_take_fast_path(handler: &Handler) -> bool {
    !handler.may_end_with(Verdict::Hold) && !handler.stores(Slot::new(Scope::Event, word::DRAWN))
}

impl Handler {
    /// Whether it changes the rank of its partition.
    pub fn ranks(&self) -> bool {
        self.stores(Slot::new(Scope::Partition, word::RANK))
    }

    /// Whether it writes a word.
    pub fn stores(&self, wanted: Slot) -> bool {
        any(&self.body, &mut |step| matches!(step, Step::Store(slot, _) if *slot == wanted))
    }

    /// Whether it reads a word.
    pub fn loads(&self, wanted: Slot) -> bool {
        any(&self.body, &mut |step| matches!(step, Step::Let(_, Op::Load(slot)) if *slot == wanted))
    }

    /// Whether it reads or writes a word of a scope.
    pub fn touches(&self, scope: Scope) -> bool {
        any(&self.body, &mut |step| match step {
            Step::Let(_, Op::Load(slot)) | Step::Store(slot, _) => slot.scope == scope,
            _ => false,
        })
    }

    /// Whether one of its paths ends with this verdict.
    pub fn may_end_with(&self, wanted: Verdict) -> bool {
        any(&self.body, &mut |step| matches!(step, Step::End(verdict, _) if *verdict == wanted))
    }

    /// The packet word that it returns, if it does nothing else.
    pub fn given_word(&self) -> Option<u16> {
        match self.body[..] {
            [Step::Let(loaded, Op::Load(Slot { scope: Scope::Packet, word })), Step::Give(given)]
                if loaded == given =>
            {
                Some(word)
            }
            _ => None,
        }
    }
}

/// Whether the predicate is true for some step.
fn any(steps: &[Step], is_it: &mut impl FnMut(&Step) -> bool) -> bool {
    steps.iter().any(|step| match step {
        Step::If { then, otherwise, .. } => is_it(step) || any(then, is_it) || any(otherwise, is_it),
        _ => is_it(step),
    })
}

// ---- compiled code -----------------------------------------------------------------------------------------------

/// Where a dequeue stopped; the first partition is still the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FastStop {
    /// No partition is in the order.
    Nothing = 0,
    /// A packet of the first partition, [`FastDequeue::end`], is sent. It has left its list and all counts. The
    /// partition keeps its position.
    Sent = 1,
    /// As above, but the partition's position has changed: DEQUEUE ended with [`FastDequeue::end`].
    Placed = 2,
    /// As above, but the packet is not sent unchanged: the partition's handler ended with that verdict, or the one of
    /// the FIFO below. [`FastDequeue::left`] turns are left, this one included.
    HandlerRan = 3,
    /// As above.
    HandlerRanBelow = 4,
    /// The first partition has no packet. [`FastDequeue::end`] turns are left.
    Empty = 5,
    /// SELECT skips the first partition. [`FastDequeue::end`] turns are left.
    Next = 6,
    /// There are fewer records than the program has, or an id has no record: an internal error of the queue.
    Missing = 7,
}

/// The result of a dequeue on the fast path.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FastDequeue {
    /// The packet, and the turns that are left after its handler.
    slot: u64,
    /// The stop, and the end in the higher bits.
    how: u64,
}

impl FastDequeue {
    /// Bits of the second word that hold the stop.
    pub const STOP_BITS: u8 = 8;

    /// Where it stopped.
    #[inline(always)]
    pub fn stop(&self) -> FastStop {
        match self.how as u8 {
            0 => FastStop::Nothing,
            1 => FastStop::Sent,
            2 => FastStop::Placed,
            3 => FastStop::HandlerRan,
            4 => FastStop::HandlerRanBelow,
            5 => FastStop::Empty,
            6 => FastStop::Next,
            _ => FastStop::Missing,
        }
    }

    /// The slot of the packet.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot as u32
    }

    /// The turns that are left after the packet's handler.
    #[inline(always)]
    pub fn left(&self) -> u32 {
        (self.slot >> 32) as u32
    }

    /// The word with which a handler ended, or the turns that are left, or a partition.
    #[inline(always)]
    pub fn end(&self) -> u64 {
        self.how >> Self::STOP_BITS
    }
}

/// The state that the code uses beside the records of the root, in a fixed layout.
#[derive(Debug)]
#[repr(C)]
pub struct FastPathState<'q> {
    /// [`Scope::Event`]
    pub event: &'q mut EventWords,
    /// The records of the FIFOs, if each partition is one.
    pub fifos: Option<&'q mut Vec<CacheLine>>,
}

/// The results of [`EnqueueFn`].
pub mod entered {
    /// The packet needs the slow path, and nothing has changed.
    pub const NOT: u64 = 0;
    /// It was appended to its partition.
    pub const DONE: u64 = 4;
    /// There are fewer records than the program has, or an id has no record: an internal error of the queue.
    pub const MISSING: u64 = 2;
    /// It was appended, and its partition, [`partition`], must enter the order.
    pub const NEW: u64 = 1;
    /// Bits of the result code.
    pub const BITS: u8 = 8;

    /// The partition that must enter the order.
    #[inline(always)]
    pub const fn partition(entered: u64) -> Option<u32> {
        if entered as u8 as u64 == NEW { Some((entered >> BITS) as u32) } else { None }
    }
}

/// Appends a stored packet to its partition. Parameters: the records of the root and of its partitions, the tags of the
/// partitions, all packets, and the slot.
pub type EnqueueFn = extern "C" fn(
    &mut Vec<CacheLine>,
    &mut Vec<CacheLine>,
    &mut Vec<u32>,
    &mut Vec<CacheLine>,
    usize,
    &mut FastPathState<'_>,
) -> u64;
/// Runs up to that many turns, at least one, until a packet leaves. Parameters: the records of the root and of its
/// partitions, all packets, the first partition unless [`RoundRobin::finds_first`], and the turns.
pub type DequeueFn = extern "C" fn(
    &mut Vec<CacheLine>,
    &mut Vec<CacheLine>,
    &mut Vec<CacheLine>,
    u64,
    u64,
    &mut FastPathState<'_>,
) -> FastDequeue;

/// The fast path of a program as machine code.
#[derive(Clone)]
pub struct CompiledRoundRobin {
    /// Enqueues a packet.
    pub enqueue: EnqueueFn,
    /// Dequeues a packet.
    pub dequeue: DequeueFn,
    /// Owns the memory of the code.
    _code: Arc<dyn Any + Send + Sync>,
}

impl CompiledRoundRobin {
    /// Creates it from two functions, and the owner of their code.
    pub fn new(enter: EnqueueFn, leave: DequeueFn, code: Arc<dyn Any + Send + Sync>) -> Self {
        Self { enqueue: enter, dequeue: leave, _code: code }
    }
}

/// For a program without a fast path; never called.
impl Default for CompiledRoundRobin {
    fn default() -> Self {
        Self::new(enters_not, nothing, Arc::new(()))
    }
}

extern "C" fn enters_not(
    _: &mut Vec<CacheLine>,
    _: &mut Vec<CacheLine>,
    _: &mut Vec<u32>,
    _: &mut Vec<CacheLine>,
    _: usize,
    _: &mut FastPathState<'_>,
) -> u64 {
    entered::NOT
}

extern "C" fn nothing(
    _: &mut Vec<CacheLine>,
    _: &mut Vec<CacheLine>,
    _: &mut Vec<CacheLine>,
    _: u64,
    _: u64,
    _: &mut FastPathState<'_>,
) -> FastDequeue {
    FastDequeue { slot: NONE.into(), how: FastStop::Nothing as u64 }
}

impl fmt::Debug for CompiledRoundRobin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("turns")
    }
}
