//! The memory of a table: geometry, stripes, and the segments that hold rows.

use super::TableSpec;
use super::index;
use super::layout::Layout;
use super::memory::{Memory, Piece};
use super::oldest::Oldest;
use core::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::OnceLock;

/// Maximum number of rows of a stripe, unless [`TableSpec::stripes`] asks for fewer stripes.
pub const STRIPE_ROWS_MAX: u64 = 1 << 14;
/// Bytes of a segment, the unit of row allocation; a longer row is a segment of its own.
pub const SEGMENT_BYTES_MAX: usize = 64 << 10;

/// Maximum number of rows of a table with one stripe, if the table chooses.
const ONE_STRIPE_ROWS_MAX: u64 = 4096;
/// Maximum number of rows of a segment: it bounds the dead rows that a scan steps over.
const SEGMENT_ROWS_MAX: u64 = 1024;
const SEGMENT_ROWS_MIN: u64 = 8;
const STRIPES_MAX: u64 = 1 << 16;

/// The bits of a row's number that are its first word in the segment.
pub(super) const WORD_BITS: u32 = 13;
const WORD_MASK: u64 = (1 << WORD_BITS) - 1;
/// Maximum number of segments of a stripe: a row's number in its stripe then has 31 bits.
const STRIPE_SEGMENTS_MAX: u64 = 1 << 18;
const _: () =
    assert!(SEGMENT_BYTES_MAX / 8 == 1 << WORD_BITS, "a row's first word has a number in its segment");
const _: () = assert!(STRIPE_SEGMENTS_MAX << WORD_BITS <= 1 << 31, "a row's number plus one has 32 bits");
const _: () = assert!(SEGMENT_ROWS_MIN <= SEGMENT_ROWS_MAX && STRIPES_MAX <= 1 << 32);

/// The structure of row numbers: stripe in the high bits, then segment, then the row's first word in the segment. A
/// number leads to the row without a multiplication; numbers are not dense.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    stripe_bits: u32,
    /// The bits of a row's number within its stripe.
    local_bits: u32,
    segment_rows: u32,
    /// Words of a row in the first group.
    row_words: u32,
    // Computed once: a variable shift is expensive in a look-up.
    stripe_mask: u64,
}

impl Geometry {
    /// Chooses the stripes and segments of a table from its limit and its row size.
    pub(super) fn of(spec: &TableSpec, row_words: usize) -> Self {
        assert!((1..=SEGMENT_BYTES_MAX / 8).contains(&row_words), "a row fits a segment");
        let rows = spec.max_rows.max(1);
        let row_bytes = (row_words * 8) as u64;
        // Twice the even share: keys do not spread evenly, and a hot update may raise the limit.
        let share = |stripes: u64| (rows.div_ceil(stripes) * 2).next_power_of_two().max(32);
        let segment = |local: u64| {
            let rows = (SEGMENT_BYTES_MAX as u64 / row_bytes)
                .min(local / 32)
                .clamp(SEGMENT_ROWS_MIN.min(SEGMENT_BYTES_MAX as u64 / row_bytes).max(1), SEGMENT_ROWS_MAX);
            1 << rows.ilog2()
        };
        let stripes = match spec.stripes {
            Some(n) => u64::from(n.max(1)),
            None if rows <= ONE_STRIPE_ROWS_MAX => 1,
            None => rows.div_ceil(STRIPE_ROWS_MAX / 2),
        };
        let mut stripes = stripes.next_power_of_two().min(STRIPES_MAX);
        while share(stripes) / segment(share(stripes)) > STRIPE_SEGMENTS_MAX {
            stripes *= 2;
        }
        let segment_rows = segment(share(stripes));
        let made = Self {
            stripe_bits: stripes.ilog2(),
            local_bits: (share(stripes) / segment_rows).ilog2() + WORD_BITS,
            segment_rows: segment_rows as u32,
            row_words: row_words as u32,
            stripe_mask: stripes - 1,
        };
        assert!(made.segment_words() as usize <= 1 << WORD_BITS, "a segment's words have numbers");
        assert!(made.local_bits <= 31 && made.stripe_bits + made.local_bits < 64, "so have the rows");
        assert!(made.rows_max() >= rows, "the stripes have room for all rows");
        made
    }

    pub(super) fn stripes(self) -> usize {
        1 << self.stripe_bits
    }

    /// The row capacity of a stripe.
    pub(super) fn stripe_rows(self) -> u64 {
        u64::from(self.segment_rows) << (self.local_bits - WORD_BITS)
    }

    /// The row capacity of the table.
    pub(super) fn rows_max(self) -> u64 {
        self.stripe_rows() << self.stripe_bits
    }

    /// The stripe of a key with this hash.
    #[inline(always)]
    pub(super) fn stripe_of(self, hash: u64) -> usize {
        ((hash >> 32) & self.stripe_mask) as usize
    }

    /// The stripe of a row number and the row's number in it.
    #[inline(always)]
    pub(super) fn split(self, at: u64) -> (usize, u32) {
        ((at >> self.local_bits) as usize, (at & ((1 << self.local_bits) - 1)) as u32)
    }

    /// The row number of a row in a stripe; the reverse of [`Geometry::split`].
    #[inline(always)]
    pub(super) fn join(self, stripe: usize, local: u32) -> u64 {
        (stripe as u64) << self.local_bits | u64::from(local)
    }

    /// The bits of a row's number within its stripe.
    pub(super) fn local_bits(self) -> u32 {
        self.local_bits
    }

    /// Whether a stripe has a row with this number.
    #[inline(always)]
    pub(super) fn has_local(self, local: u32) -> bool {
        local >> self.local_bits == 0
    }

    /// The number behind a row's, within its stripe or overall. 0 for the number in front of the first row.
    #[inline(always)]
    pub(super) fn after(self, at: u64) -> u64 {
        let next = (at & WORD_MASK) + u64::from(self.row_words);
        if next < u64::from(self.segment_words()) {
            at + u64::from(self.row_words)
        } else {
            (at | WORD_MASK).wrapping_add(1)
        }
    }

    /// The first row number from `at` on; the row may not exist.
    pub(super) fn round_up(self, at: u64) -> u64 {
        // A 32-bit division takes a third of the time.
        let word = ((at & WORD_MASK) as u32).next_multiple_of(self.row_words);
        if word < self.segment_words() {
            at & !WORD_MASK | u64::from(word)
        } else {
            (at | WORD_MASK).wrapping_add(1)
        }
    }

    /// The number of the first row of a segment.
    pub(super) fn segment_start(self, segment: usize) -> u64 {
        (segment as u64) << WORD_BITS
    }

    fn segments(self) -> usize {
        1 << (self.stripe_bits + self.local_bits - WORD_BITS)
    }

    pub(super) fn row_words(self) -> u32 {
        self.row_words
    }

    pub(super) fn segment_words(self) -> u32 {
        self.segment_rows * self.row_words
    }
}

/// The segment of a row number.
#[inline(always)]
pub(super) fn segment_of(at: u64) -> usize {
    (at >> WORD_BITS) as usize
}

/// The address of a row's first word in the first group, if its segment exists.
#[inline(always)]
pub(super) fn address_in(addresses: &[AtomicUsize], at: u64) -> Option<usize> {
    let words = addresses.get(segment_of(at))?.load(Acquire);
    (words != 0).then(|| words + (at & WORD_MASK) as usize * 8)
}

/// The data under one lock: an index, a free list, and the caches of the oldest rows.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Stripe {
    /// The number of its first row.
    pub(super) first: u64,
    pub(super) lock: AtomicU32,
    /// The element of `indexes` in use.
    pub(super) generation: AtomicU32,
    pub(super) rows: AtomicU32,
    /// Rows from here on were never used.
    pub(super) high: AtomicU32,
    /// The first free row plus one.
    pub(super) free: AtomicU32,
    /// The queues of expired and of evicted rows ([`super::Table::take_removed`]).
    pub(super) removed: [RowQueue; 2],
    pub(super) written: Oldest,
    pub(super) touched: Oldest,
    pub(super) inserted: Oldest,
    /// One index per size. Outgrown ones are kept, because a lock-free reader may be in them; together they are smaller
    /// than the one in use.
    pub(super) indexes: [OnceLock<Piece>; index::GENERATIONS_MAX],
    /// The usable length of `indexes`.
    pub(super) generations: usize,
    /// The most index slots that one operation has moved.
    pub(super) moved_max: AtomicU32,
}

/// A linked queue of removed rows: its first row plus one, and its last row plus one.
#[derive(Debug, Default)]
pub(super) struct RowQueue {
    pub(super) first: AtomicU32,
    pub(super) last: AtomicU32,
}

impl Stripe {
    /// Makes the empty stripe with index `at`.
    pub(super) fn new(at: usize, geometry: Geometry) -> Self {
        Self {
            first: geometry.join(at, 0),
            lock: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            rows: AtomicU32::new(0),
            high: AtomicU32::new(0),
            free: AtomicU32::new(0),
            removed: Default::default(),
            written: Oldest::new(geometry.stripe_rows()),
            touched: Oldest::new(geometry.stripe_rows()),
            inserted: Oldest::new(geometry.stripe_rows()),
            indexes: [const { OnceLock::new() }; index::GENERATIONS_MAX],
            generations: index::generations(geometry.stripe_rows()),
            moved_max: AtomicU32::new(0),
        }
    }

    /// Maximum size in bytes, with caches of the oldest rows in this many orders.
    pub(super) fn bytes_max(geometry: Geometry, orders: usize) -> u64 {
        let n = index::generations(geometry.stripe_rows());
        let slots: usize = (0..n).map(index::slots_len).sum();
        (size_of::<Self>() + slots * 8) as u64 + orders as u64 * Oldest::bytes_max(geometry.stripe_rows())
    }

    /// The memory of the stripe in bytes, without its rows.
    pub(super) fn bytes(&self) -> u64 {
        let slots: usize = self.indexes.iter().filter_map(OnceLock::get).map(|slots| slots.len()).sum();
        let kept: u64 = [&self.written, &self.touched, &self.inserted].map(Oldest::bytes).iter().sum();
        (size_of::<Self>() + slots * 8) as u64 + kept
    }
}

/// The rows' words of one column group.
#[derive(Debug)]
pub(super) struct Group {
    layout: Layout,
    row_words: usize,
    segments: Box<[Segment]>,
    /// The addresses of the segments' words, 0 before they exist; for compiled code ([`super::jit_layout`]).
    addresses: Box<[AtomicUsize]>,
}

#[derive(Debug, Default)]
pub(super) struct Segment {
    words: OnceLock<Piece>,
    /// The number of live rows; maintained in the first group only.
    live: AtomicU32,
}

/// The location of a row. A look-up reads two or three words of it, without a slice of the whole row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowLocation<'a> {
    segment: &'a [AtomicU64],
    start: usize,
}

impl<'a> RowLocation<'a> {
    /// A word of the row; None behind the end of the segment.
    #[inline(always)]
    pub(super) fn word(self, word: usize) -> Option<u64> {
        self.segment.get(self.start + word).map(|word| word.load(Relaxed))
    }

    /// The words from a word of the row to the end of the segment.
    pub(super) fn from(self, word: usize) -> &'a [AtomicU64] {
        self.segment.get(self.start + word..).unwrap_or_default()
    }
}

impl Group {
    /// Makes a column group without memory; segments are allocated when a row needs them.
    pub(super) fn new(layout: Layout, geometry: Geometry) -> Self {
        assert!(layout.words() > 0, "a group without columns is not added");
        let segments = (0..geometry.segments()).map(|_| Segment::default()).collect();
        let addresses = (0..geometry.segments()).map(|_| AtomicUsize::new(0)).collect();
        Self { row_words: layout.words(), layout, segments, addresses }
    }

    /// The address of the segment addresses.
    pub(super) fn addresses_at(&self) -> usize {
        self.addresses.as_ptr().expose_provenance()
    }

    /// The addresses of the segments.
    pub(super) fn addresses(&self) -> &[AtomicUsize] {
        &self.addresses
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The words of a row; allocates its segment if necessary.
    #[inline(always)]
    pub(super) fn row(&self, at: u64, geometry: Geometry, memory: &Memory) -> &[AtomicU64] {
        let words: &[AtomicU64] = match self.segments[segment_of(at)].words.get() {
            Some(words) => words,
            None => self.make(segment_of(at), geometry, memory),
        };
        let start = self.start(at, geometry);
        &words[start..start + self.row_words]
    }

    /// The words of a row if its segment exists.
    #[inline(always)]
    pub(super) fn resident_row(&self, at: u64, geometry: Geometry) -> Option<&[AtomicU64]> {
        let words = self.segments.get(segment_of(at))?.words.get()?;
        let start = self.start(at, geometry);
        words.get(start..start + self.row_words)
    }

    /// The location of a row, if its segment exists. For the first group only.
    #[inline(always)]
    pub(super) fn locate_row(&self, at: u64) -> Option<RowLocation<'_>> {
        let segment = self.segments.get(segment_of(at))?.words.get()?;
        Some(RowLocation { segment, start: (at & WORD_MASK) as usize })
    }

    /// The first word of a row in its segment. Only added groups of another width need a division.
    #[inline(always)]
    fn start(&self, at: u64, geometry: Geometry) -> usize {
        let (word, row_words) = ((at & WORD_MASK) as usize, geometry.row_words as usize);
        if self.row_words == row_words { word } else { word / row_words * self.row_words }
    }

    /// The words of the row at a location.
    #[inline(always)]
    pub(super) fn cut<'a>(&self, place: RowLocation<'a>) -> &'a [AtomicU64] {
        &place.segment[place.start..place.start + self.row_words]
    }

    /// Resets a row to the defaults, if its segment exists (a later allocation writes the defaults).
    pub(super) fn reset(&self, at: u64, geometry: Geometry) {
        if let Some(row) = self.resident_row(at, geometry) {
            self.write_defaults(row);
        }
    }

    /// Writes the defaults to the words of a row.
    pub(super) fn write_defaults(&self, row: &[AtomicU64]) {
        row.iter().zip(self.layout.template()).for_each(|(word, value)| word.store(*value, Relaxed));
    }

    /// Adds the row at `at` to its segment's count of live rows, or subtracts it.
    pub(super) fn count_live(&self, at: u64, more: bool) {
        let live = &self.segments[segment_of(at)].live;
        let n = live.load(Relaxed);
        live.store(if more { n + 1 } else { n.saturating_sub(1) }, Relaxed);
    }

    pub(super) fn has_live(&self, segment: usize) -> Option<bool> {
        self.segments.get(segment).map(|s| s.live.load(Relaxed) != 0)
    }

    /// The memory of the group in bytes with all rows allocated.
    pub(super) fn bytes_max(&self, geometry: Geometry) -> u64 {
        self.directory_bytes() + geometry.rows_max() * self.row_words as u64 * 8
    }

    pub(super) fn bytes(&self) -> u64 {
        let words: usize = self.segments.iter().filter_map(|s| s.words.get()).map(|words| words.len()).sum();
        self.directory_bytes() + words as u64 * 8
    }

    /// The memory of the lists of segments in bytes.
    fn directory_bytes(&self) -> u64 {
        (size_of_val(&*self.segments) + size_of_val(&*self.addresses)) as u64
    }

    /// Allocates a segment with default rows, unless that has been done; returns its words.
    #[cold]
    #[inline(never)]
    fn make(&self, nth: usize, geometry: Geometry, memory: &Memory) -> &[AtomicU64] {
        self.segments[nth].words.get_or_init(|| {
            let words = memory.take(self.row_words * geometry.segment_rows as usize);
            words.chunks_exact(self.row_words).for_each(|row| self.write_defaults(row));
            // A reader that finds the words also finds their address.
            self.addresses[nth].store(words.as_ptr().expose_provenance(), Release);
            words
        })
    }
}
