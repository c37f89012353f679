//! The short way through a queue of partitions that take turns, as code of its own.
//!
//! Most packets have nothing in their way: what comes goes behind the others of a partition that is known, and what
//! leaves is sent as it is. [`Turns`] tells for which programs there is such a way, and of what it
//! is made; a back end compiles it as a whole, handlers and what the queue does between them alike ([`CompiledTurns`]).
//! All else is left to the queue. What comes has changed nothing until it is known that there is nothing in its way,
//! and what leaves tells how far it came ([`Stop`]), so that the queue goes on from there.
//!
//! The queue's own long way is what all this means.

use super::layout::{Line, NONE, SEEN_IN_HEAD, record_lines};
use super::{
    EventWords, Handler, Level, Moment, Op, PacketOrder, Partitions, QueueProgram, Scope, Slot, Step,
    Verdict, word,
};
use core::any::Any;
use core::fmt;
use std::sync::Arc;

/// Ways of a key, at most, that are looked through all at once.
pub const WAYS_MAX: u32 = 16;

/// A program whose packets have a short way.
#[derive(Clone, Copy, Debug)]
pub struct RoundRobin<'p> {
    /// The level of the partitions.
    pub level: &'p Level,
    /// Where each of them is a queue of its own: its level, which is of lines of packets as they came.
    pub line: Option<&'p Level>,
    /// The word of a packet that is its key.
    pub key_word: u16,
    /// A partition may have another rank than that under which it stands, after a handler of this way.
    pub ranks: bool,
    /// As above, when a turn begins.
    pub reranks: bool,
    /// The order is by two ranks at most: code finds the first, and keeps the order, by itself.
    pub finds_first: bool,
    /// Lines of a record.
    pub node_lines: usize,
    /// As above.
    pub partition_lines: usize,
    /// As above, of [`Turns::line`].
    pub line_lines: usize,
}

impl<'p> RoundRobin<'p> {
    /// That of a program, if it has one: the root has partitions in an order, packets know their own by a word, and
    /// nothing waits, is ranked by packets or is asked when it comes. A packet is one line.
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
            line,
            key_word,
            ranks: [&level.handlers.dequeue, &level.handlers.select]
                .into_iter()
                .flatten()
                .any(Handler::ranks),
            // ACTIVATE ranks what is put into the order behind it.
            reranks: level
                .handlers
                .iter()
                .any(|(moment, handler)| moment != Moment::Activate && handler.ranks()),
            finds_first: matches!(level.order.bits, Some(0..=1)),
            node_lines: record_lines(level.node_words()),
            partition_lines: record_lines(level.partition_words()),
            line_lines: line.map_or(0, |line| record_lines(line.node_words())),
        })
    }

    /// The code takes packets of partitions that are not in the order, too: no timers begin with one.
    pub fn activates(&self) -> bool {
        self.line.is_none_or(|line| line.handlers.every.is_empty())
    }
}

/// Whether a root has turns that packets go a short way through.
fn may_round_robin(level: &Level) -> bool {
    let ways = match level.partitions {
        Partitions::One => return false,
        Partitions::Hash { ways, .. } => ways,
        Partitions::Direct { .. } => 1,
    };
    ways <= WAYS_MAX && takes_packets_as_they_come(level)
}

/// Whether a level is of lines of packets as they came, of which nothing is asked before they leave.
fn is_plain_fifo(line: &Level) -> bool {
    line.partitions == Partitions::One
        && takes_packets_as_they_come(line)
        && line.handlers.select.is_none()
        && line.handlers.iter().all(|(_, handler)| !handler.touches(Scope::Partition))
}

/// Whether packets that come are not asked, and ranked nowhere.
fn takes_packets_as_they_come(level: &Level) -> bool {
    level.packets == PacketOrder::Arrival
        && !level.order.by_least_packet
        && level.handlers.enqueue.is_none()
        && level.handlers.packet_rank.is_none()
}

/// Whether a handler lets nothing wait and does not ask for chance.
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

    /// Whether a path of it ends so.
    pub fn may_end_with(&self, wanted: Verdict) -> bool {
        any(&self.body, &mut |step| matches!(step, Step::End(verdict, _) if *verdict == wanted))
    }

    /// The word of the packet that it gives, if it does no more than that.
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

/// Whether this is so of some step.
fn any(steps: &[Step], is_it: &mut impl FnMut(&Step) -> bool) -> bool {
    steps.iter().any(|step| match step {
        Step::If { then, otherwise, .. } => is_it(step) || any(then, is_it) || any(otherwise, is_it),
        _ => is_it(step),
    })
}

// ---- the code ----------------------------------------------------------------------------------------------------

/// Where the turns of partitions stopped, of which the one that is first stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FastStop {
    /// No partition is in the order.
    Nothing = 0,
    /// A packet of the first partition, which is [`Turn::end`], is sent. It has left its line and all counts; its place
    /// is still its own.
    Sent = 1,
    /// As above, and the partition is not where it belongs any more: DEQUEUE ended with [`Turn::end`].
    Placed = 2,
    /// As above, but the packet is not to be sent as it is: that of the partition ended so, or that of the line below
    /// it. There are [`Turn::left`] turns left, this one included.
    Asked = 3,
    /// As above.
    AskedBelow = 4,
    /// The first partition has no packet. There are [`Turn::end`] turns left.
    Empty = 5,
    /// SELECT passes the first partition over. There are [`Turn::end`] turns left.
    Next = 6,
    /// There are fewer records than the program has, or an id is that of none: an error of the queue itself.
    Missing = 7,
}

/// What came of partitions that took turns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FastDequeue {
    /// The packet, and the turns that are left where it was asked for.
    slot: u64,
    /// The stop, and the end behind it.
    how: u64,
}

impl FastDequeue {
    /// Bits of the second word that are the stop.
    pub const STOP_BITS: u8 = 8;

    /// Where it stopped.
    #[inline(always)]
    pub fn stop(&self) -> FastStop {
        match self.how as u8 {
            0 => FastStop::Nothing,
            1 => FastStop::Sent,
            2 => FastStop::Placed,
            3 => FastStop::Asked,
            4 => FastStop::AskedBelow,
            5 => FastStop::Empty,
            6 => FastStop::Next,
            _ => FastStop::Missing,
        }
    }

    /// The packet.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot as u32
    }

    /// Turns that are left, where the packet was asked for.
    #[inline(always)]
    pub fn left(&self) -> u32 {
        (self.slot >> 32) as u32
    }

    /// The word with which a handler ended, or turns that are left, or a partition.
    #[inline(always)]
    pub fn end(&self) -> u64 {
        self.how >> Self::STOP_BITS
    }
}

/// What the code asks for beside the records of the root, as it lies in memory.
#[derive(Debug)]
#[repr(C)]
pub struct FastPathState<'q> {
    /// [`Scope::Event`]
    pub event: &'q mut EventWords,
    /// Where each partition is a queue of its own: the records of these.
    pub lines: Option<&'q mut Vec<Line>>,
}

/// What [`Enter`] gives.
pub mod entered {
    /// The packet needs more than that, and nothing has changed.
    pub const NOT: u64 = 0;
    /// It was put behind those of its partition.
    pub const DONE: u64 = 4;
    /// There are fewer records than the program has, or an id is that of none: an error of the queue itself.
    pub const MISSING: u64 = 2;
    /// It was put there, and its partition, which is [`partition`], is to be put into the order.
    pub const NEW: u64 = 1;
    /// Bits of these.
    pub const BITS: u8 = 8;

    /// The partition that is new.
    #[inline(always)]
    pub const fn partition(entered: u64) -> Option<u32> {
        if entered as u8 as u64 == NEW { Some((entered >> BITS) as u32) } else { None }
    }
}

/// Puts a packet, whose words are in its place, behind those of its partition: the records of the root and of its
/// partitions, the keys that these are for where keys have ways, all packets, and the place.
pub type EnqueueFn = extern "C" fn(
    &mut Vec<Line>,
    &mut Vec<Line>,
    &mut Vec<u32>,
    &mut Vec<Line>,
    usize,
    &mut FastPathState<'_>,
) -> u64;
/// Lets partitions take so many turns at most, of which there is one at least, until a packet leaves: the records of
/// the root and of its partitions, all packets, the first partition if not [`Turns::finds_first`], and the turns.
pub type DequeueFn = extern "C" fn(
    &mut Vec<Line>,
    &mut Vec<Line>,
    &mut Vec<Line>,
    u64,
    u64,
    &mut FastPathState<'_>,
) -> FastDequeue;

/// The short way of a program as machine code.
#[derive(Clone)]
pub struct CompiledRoundRobin {
    /// How packets come.
    pub enqueue: EnqueueFn,
    /// How they leave.
    pub dequeue: DequeueFn,
    /// What the code lies in.
    _code: Arc<dyn Any + Send + Sync>,
}

impl CompiledRoundRobin {
    /// That of two functions, and what has to be kept as long as they may be called.
    pub fn new(enter: EnqueueFn, leave: DequeueFn, code: Arc<dyn Any + Send + Sync>) -> Self {
        Self { enqueue: enter, dequeue: leave, _code: code }
    }
}

/// That of a program that has none: nobody goes it.
impl Default for CompiledRoundRobin {
    fn default() -> Self {
        Self::new(enters_not, nothing, Arc::new(()))
    }
}

extern "C" fn enters_not(
    _: &mut Vec<Line>,
    _: &mut Vec<Line>,
    _: &mut Vec<u32>,
    _: &mut Vec<Line>,
    _: usize,
    _: &mut FastPathState<'_>,
) -> u64 {
    entered::NOT
}

extern "C" fn nothing(
    _: &mut Vec<Line>,
    _: &mut Vec<Line>,
    _: &mut Vec<Line>,
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
