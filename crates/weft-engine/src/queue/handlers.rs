//! Runs the handlers of a queue program, with the event words and the random numbers that they read.

use super::level::{Level, Visit, kept};
use super::packets::{KEPT, Record};
use super::{QueueCode, QueueProgram};
use weft_core::hash;
use weft_core::rng::next_bits;
use weft_ir::queue::direct::Direct;
use weft_ir::queue::{EventWords, LEVELS_MAX, Moment, Words, word};

/// What handlers need to run.
#[derive(Debug)]
pub(super) struct Handlers<C> {
    code: C,
    /// By level and moment: handlers that are called directly.
    direct: [[Option<Direct>; Moment::SINGLES]; LEVELS_MAX],
    pub(super) event: EventWords,
    pub(super) random: Random,
    /// The record of handlers that run without a packet.
    no_packet: Record,
}

/// The source of random numbers.
pub(super) enum Random {
    /// No handler draws.
    Unused,
    /// The state of a generator.
    Seeded(u64),
    Given(Box<dyn FnMut() -> f64 + Send>),
}

impl core::fmt::Debug for Random {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("random")
    }
}

impl<C: QueueCode> Handlers<C> {
    /// Creates the handlers of a program; the seed determines all draws.
    pub(super) fn new(program: &QueueProgram, code: C, seed: u64) -> Self {
        let random =
            if program.draws() { Random::Seeded(hash::stream(seed, "queue", 0)) } else { Random::Unused };
        let mut direct = [const { [const { None }; Moment::SINGLES] }; LEVELS_MAX];
        for (at, level) in program.levels.iter().enumerate() {
            for (moment, _) in level.handlers.iter() {
                if let Ok(nth) = moment.single() {
                    direct[at][nth] = code.direct(at, moment);
                }
            }
        }
        let (event, nobody) = (EventWords::default(), Record::default());
        let mut handlers = Self { code, direct, event, random, no_packet: nobody };
        handlers.draw_random();
        handlers
    }

    /// Runs a handler of a level, on a packet if there is one.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        at: usize,
        moment: Moment,
        visit: Visit<'_>,
        packet: Option<&mut Record>,
    ) -> u64 {
        let direct = moment.single().ok().and_then(|nth| self.direct[at % LEVELS_MAX][nth].as_ref());
        let Visit { node, own } = visit;
        let words = Words {
            node: words::<_, { kept::WORDS }>(node.as_flattened_mut()),
            partition: words::<_, { kept::WORDS }>(own.as_flattened_mut()),
            packet: words::<_, KEPT>(packet.unwrap_or(&mut self.no_packet).as_flattened_mut()),
            event: &mut self.event,
        };
        let end = match direct {
            Some(direct) => direct.run(words),
            None => run_by_name(&self.code, at, moment, words),
        };
        if self.event[usize::from(word::DRAWN)] != 0 {
            self.draw_random();
        }
        end
    }

    /// Runs a timer for each partition of a node that is in use, in order of index. A partition whose rank changes
    /// moves in the order.
    pub(super) fn run_for_each_partition(&mut self, level: &mut Level, node: u32, moment: Moment) {
        let first = node * level.shape.n;
        for partition in first..first + level.shape.n {
            if !level.is_in_use(partition) {
                continue;
            }
            self.run(level.shape.at, moment, level.visit(node, partition), None);
            if level.partitions.head(partition)[kept::PLACE] >= kept::IN_ORDER {
                level.rerank(node, partition);
            }
        }
    }

    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.event[usize::from(word::NOW)]
    }

    #[inline(always)]
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.event[usize::from(word::NOW)] = now_ns;
    }

    pub(super) fn set_rate(&mut self, bits_per_s: u64) {
        self.event[usize::from(word::RATE)] = bits_per_s;
    }

    /// The time until which HOLD waits. If that is past, it is the next nanosecond: otherwise a dequeue would run the
    /// handler forever.
    pub(super) fn held_until(&self) -> u64 {
        let until = self.event[usize::from(word::HOLD)] as i64;
        until.max(0).cast_unsigned().max(self.now() + 1)
    }

    pub(super) fn set_held_until(&mut self, until_ns: u64) {
        self.event[usize::from(word::HOLD)] = until_ns;
    }

    /// Resets the number of packets that ON DEQUEUE dropped in a row.
    #[inline(always)]
    pub(super) fn no_drops(&mut self) {
        self.event[usize::from(word::DROPS)] = 0;
    }

    /// Adds one to that number.
    pub(super) fn add_drop(&mut self) {
        self.event[usize::from(word::DROPS)] += 1;
    }

    /// Draws the next random number for a handler, if the program uses any.
    #[cold]
    fn draw_random(&mut self) {
        const UNIT: f64 = (1_u64 << 53) as f64;
        self.event[usize::from(word::DRAWN)] = 0;
        self.event[usize::from(word::RANDOM)] = match &mut self.random {
            Random::Unused => 0,
            Random::Seeded(state) => next_bits(state) >> 11,
            Random::Given(next) => (next().clamp(0.0, 1.0) * UNIT) as u64,
        };
    }

    /// Uses another source of random numbers, if some handler draws.
    pub(super) fn draw_from(&mut self, random: impl FnMut() -> f64 + Send + 'static) {
        if !matches!(self.random, Random::Unused) {
            self.random = Random::Given(Box::new(random));
            self.draw_random();
        }
    }
}

/// Runs a handler that has no direct call: of a timer, or interpreted. It is not inlined, to keep the callers small.
#[inline(never)]
fn run_by_name(code: &impl QueueCode, at: usize, moment: Moment, words: Words<'_>) -> u64 {
    code.run(at, moment, words)
}

/// The words of a record that handlers see; the first words are the queue's own.
#[inline(always)]
fn words<const N: usize, const KEPT: usize>(record: &mut [u64]) -> &mut [u64; N] {
    record[KEPT..].first_chunk_mut().expect("a record has room for all words of a handler")
}
