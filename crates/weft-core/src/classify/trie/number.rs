//! Values of a field, in one machine word or in two.

use super::super::key::ones;

/// Values of a field of up to 64 or of up to 128 bits.
pub(super) trait Number: Copy + Ord + From<u64> {
    fn of(low: u64, high: u64) -> Self;
    /// The `bits` bits from bit `shift` up.
    fn window(self, shift: u8, bits: u8) -> usize;
    /// The next value; None after the last.
    fn next(self) -> Option<Self>;
    /// Adds `cells << shift`.
    fn plus(self, cells: usize, shift: u8) -> Self;
    /// The last value of the block that begins with this one and spans `bits` bits.
    fn last(self, bits: u8) -> Self;
    /// Returns the upper 32 of the lowest `left` bits, padded with zeros below.
    fn top_word(self, left: u8) -> u32 {
        self.lifted(left).upper_word()
    }
    /// Whether the remaining bits below those are zero.
    fn fits_top_word(self, left: u8) -> bool;
    fn wide(self) -> u128;
    /// The value left-aligned from a width of `bits`.
    fn lifted(self, bits: u8) -> Self;
    /// The cell of a node for a left-aligned value; `down` is the node's entry from bit 25 up.
    fn cell(self, down: u32) -> usize;
    /// The rest of a left-aligned value below a node.
    fn below(self, down: u32) -> Self;
    /// The upper bits of a left-aligned value, as [`Number::top_word`].
    fn upper_word(self) -> u32;
}

impl Number for u64 {
    #[inline(always)]
    fn of(low: u64, _high: u64) -> Self {
        low
    }
    #[inline(always)]
    fn window(self, shift: u8, bits: u8) -> usize {
        (self >> (shift & 63)) as usize & ((1 << bits) - 1)
    }
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn plus(self, cells: usize, shift: u8) -> Self {
        self + ((cells as Self) << shift)
    }
    fn last(self, bits: u8) -> Self {
        self | ones(bits)
    }
    fn fits_top_word(self, left: u8) -> bool {
        self & ones(left.saturating_sub(32)) == 0
    }
    fn wide(self) -> u128 {
        u128::from(self)
    }
    #[inline(always)]
    fn lifted(self, bits: u8) -> Self {
        self << (64u8.wrapping_sub(bits) & 63)
    }
    #[inline(always)]
    fn cell(self, down: u32) -> usize {
        (self >> (down & 63)) as usize
    }
    #[inline(always)]
    fn below(self, down: u32) -> Self {
        self << (down.wrapping_neg() & 63)
    }
    #[inline(always)]
    fn upper_word(self) -> u32 {
        (self >> 32) as u32
    }
}

impl Number for u128 {
    #[inline(always)]
    fn of(low: u64, high: u64) -> Self {
        Self::from(high) << 64 | Self::from(low)
    }
    #[inline(always)]
    fn window(self, shift: u8, bits: u8) -> usize {
        (self >> (shift & 127)) as usize & ((1 << bits) - 1)
    }
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn plus(self, cells: usize, shift: u8) -> Self {
        self + ((cells as Self) << shift)
    }
    fn last(self, bits: u8) -> Self {
        self | !(Self::MAX << bits)
    }
    fn fits_top_word(self, left: u8) -> bool {
        self & !(Self::MAX << left.saturating_sub(32)) == 0
    }
    fn wide(self) -> u128 {
        self
    }
    #[inline(always)]
    fn lifted(self, bits: u8) -> Self {
        self << (128u8.wrapping_sub(bits) & 127)
    }
    #[inline(always)]
    fn cell(self, down: u32) -> usize {
        ((self >> 64) as u64).cell(down)
    }
    // In words: a shift by a variable number of bits would check for 64 and more.
    #[inline(always)]
    fn below(self, down: u32) -> Self {
        let (high, low) = ((self >> 64) as u64, self as u64);
        Self::of(low.below(down), high.below(down) | low >> (down & 63))
    }
    #[inline(always)]
    fn upper_word(self) -> u32 {
        (self >> 96) as u32
    }
}
