//! Caches whole header blocks, encoded and decoded.
//!
//! A client sends the same block call after call, and a proxy forwards it. So both directions cache whole blocks: a hit
//! costs one hash and one comparison to decode, and one copy to encode. Only repeated blocks are stored. A block that
//! refers to the dynamic table is valid only until the table changes.

use std::collections::VecDeque;
use std::rc::Rc;

use super::decoder::{Decoded, Decoder, HpackError};
use super::encoder::Encoder;
use super::hash_bytes;
use crate::session::http2::headers::Headers;

/// Maximum number of blocks in a cache.
pub const BLOCKS_MAX: usize = 256;
/// Maximum size of a cached block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 512;
/// Maximum size of a cache in bytes, without its table of slots. A full cache stores nothing more.
pub const CACHE_BYTES_MAX: usize = 96 << 10;
/// Number of blocks without room before the cache is emptied, to make room for current blocks.
const REFUSALS_MAX: u32 = 1 << 14;
/// One in this many blocks that find only valid entries in their slots replaces one anyway.
const REFUSALS_PER_EVICTION: u32 = 64;
/// Maximum size of a list that is kept for reuse, in bytes.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// Number of decoded lists that are kept for reuse once their owners drop them.
pub const SPARE_LISTS_MAX: usize = 64;
/// A cache is created when a block repeats after fewer than this many others, or when this many blocks came, which
/// shows a busy connection. A connection with few calls has no cache.
const N_RECENT: usize = 4;
const N_BLOCKS_BUSY: u32 = 64;
/// The number of slots for a block (associativity), so that blocks rarely displace each other.
const N_WAYS: usize = 4;
/// The epoch of blocks that do not use the dynamic table.
const TIMELESS: u64 = u64::MAX;

/// A [`Decoder`] that returns the same list for the same block.
pub struct BlockDecoder {
    decoder: Decoder,
    cache: Option<Box<[DecodeSlot]>>,
    cache_bytes: usize,
    refusals: u32,
    recent: Recent,
    /// Lists that were handed out, oldest first.
    spares: VecDeque<Rc<Headers>>,
}

#[derive(Default)]
struct DecodeSlot {
    hash: u64,
    epoch: u64,
    block: Vec<u8>,
    headers: Option<Rc<Headers>>,
}

impl BlockDecoder {
    /// Creates a decoder with an empty cache; the parameters are those of [`Decoder::new`].
    pub fn new(table_limit: u32, list_bytes_max: u32) -> Self {
        Self {
            decoder: Decoder::new(table_limit, list_bytes_max),
            cache: None,
            cache_bytes: 0,
            refusals: 0,
            recent: Recent::default(),
            spares: VecDeque::new(),
        }
    }

    /// Changes the limit of the dynamic table, as [`Decoder::set_table_limit`].
    pub fn set_table_limit(&mut self, table_limit: u32) {
        self.decoder.set_table_limit(table_limit);
        self.drop_cache();
    }

    /// Decodes a complete block; `None` if the list exceeds the limit (the table is in step).
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode(&mut self, block: &[u8]) -> Result<Option<Rc<Headers>>, HpackError> {
        let hash = hash_bytes(1, block) | 1;
        let epoch = self.decoder.epoch();
        if let Some(cache) = &self.cache {
            for place in places(hash) {
                let slot = &cache[place];
                if slot.hash == hash
                    && (slot.epoch == TIMELESS || slot.epoch == epoch)
                    && let Some(headers) = &slot.headers
                    && slot.block == block
                {
                    return Ok(Some(headers.clone()));
                }
            }
        }
        let (mut headers, decoded) = self.decode_uncached(block)?;
        if decoded.is_too_large {
            return Ok(None);
        }
        let is_cacheable = !decoded.is_table_changed && block.len() <= BLOCK_BYTES_MAX;
        let epoch = if decoded.is_timeless { TIMELESS } else { epoch };
        if !(is_cacheable && self.remember(hash, epoch, block, &mut headers)) {
            self.keep_spare(&headers);
        }
        Ok(Some(headers))
    }

    /// Releases memory that only serves speed.
    pub fn trim(&mut self) {
        self.drop_cache();
        self.spares = VecDeque::new();
    }

    fn drop_cache(&mut self) {
        (self.cache, self.cache_bytes, self.refusals, self.recent) = (None, 0, 0, Recent::default());
    }

    /// Decodes a block into a reused list.
    fn decode_uncached(&mut self, block: &[u8]) -> Result<(Rc<Headers>, Decoded), HpackError> {
        let mut headers = self.take_spare();
        // A spare has no other owner.
        let list = Rc::get_mut(&mut headers).expect("a spare has no other owner");
        let decoded = self.decoder.decode(block, list)?;
        Ok((headers, decoded))
    }

    /// Keeps a list that was handed out, to reuse its memory.
    fn keep_spare(&mut self, headers: &Rc<Headers>) {
        if headers.heap_bytes() > SPARE_BYTES_MAX {
            return;
        }
        if self.spares.len() == SPARE_LISTS_MAX {
            self.spares.pop_front();
        }
        self.spares.push_back(headers.clone());
    }

    /// The oldest list, if its owners have dropped it, or a new one.
    fn take_spare(&mut self) -> Rc<Headers> {
        self.spares
            .pop_front_if(|spare| Rc::get_mut(spare).is_some())
            .unwrap_or_else(|| Rc::new(Headers::new()))
    }

    /// Stores a repeated block, and records a new one. Returns true if it was stored.
    fn remember(&mut self, hash: u64, epoch: u64, block: &[u8], headers: &mut Rc<Headers>) -> bool {
        let Some(cache) = &mut self.cache else {
            if self.recent.is_worth_a_cache(hash) {
                self.cache = Some(std::iter::repeat_with(DecodeSlot::default).take(BLOCKS_MAX).collect());
            }
            return false;
        };
        let now = self.decoder.epoch();
        let claim = |s: &DecodeSlot| match s {
            s if s.hash == hash => Claim::Same,
            s if s.hash == 0 || !(s.epoch == TIMELESS || s.epoch == now) => Claim::Free,
            s if s.headers.is_none() => Claim::Seen,
            _ => Claim::Stored,
        };
        let Some(at) = places(hash).min_by_key(|&p| claim(&cache[p])) else { return false };
        if claim(&cache[at]) == Claim::Stored && !self.refusals.is_multiple_of(REFUSALS_PER_EVICTION) {
            self.refusals += 1;
            return false;
        }
        let slot = &mut cache[at];
        let was_seen = slot.hash == hash;
        self.refusals += u32::from(slot.headers.is_some());
        self.cache_bytes -= slot.cost();
        *slot = DecodeSlot { hash, epoch, ..DecodeSlot::default() };
        if !was_seen {
            return false;
        }
        if let Some(list) = Rc::get_mut(headers) {
            list.shrink();
        }
        let full = DecodeSlot { hash, epoch, block: block.to_vec(), headers: Some(headers.clone()) };
        if self.cache_bytes + full.cost() > CACHE_BYTES_MAX {
            self.refusals += 1;
            if self.refusals > REFUSALS_MAX {
                self.drop_cache();
            }
            return false;
        }
        self.cache_bytes += full.cost();
        *slot = full;
        true
    }
}

impl DecodeSlot {
    fn cost(&self) -> usize {
        self.block.capacity() + self.headers.as_ref().map_or(0, |h| h.heap_bytes() + size_of::<Headers>())
    }
}

/// An [`Encoder`] that copies the cached block of a repeated list.
pub struct BlockEncoder {
    encoder: Encoder,
    cache: Option<Box<[EncodeSlot]>>,
    cache_bytes: usize,
    refusals: u32,
    recent: Recent,
}

#[derive(Default)]
struct EncodeSlot {
    id: u64,
    epoch: u64,
    /// Empty until the list repeats.
    block: Vec<u8>,
}

impl BlockEncoder {
    /// Creates an encoder with an empty cache, as [`Encoder::new`].
    pub fn new() -> Self {
        Self { encoder: Encoder::new(), cache: None, cache_bytes: 0, refusals: 0, recent: Recent::default() }
    }

    /// Sets the peer's table limit, as [`Encoder::set_peer_table_bytes`].
    pub fn set_peer_table_bytes(&mut self, bytes: u32) {
        self.encoder.set_peer_table_bytes(bytes);
    }

    /// Appends the block for `headers` to `out`.
    pub fn encode(&mut self, headers: &Headers, out: &mut Vec<u8>) {
        let (id, epoch) = (headers.id(), self.encoder.epoch());
        if let Some(cache) = &self.cache
            && !self.encoder.must_resize()
        {
            for place in places(spread(id)) {
                let slot = &cache[place];
                if slot.id == id && !slot.block.is_empty() && (slot.epoch == TIMELESS || slot.epoch == epoch)
                {
                    out.extend_from_slice(&slot.block);
                    return;
                }
            }
        }
        let start = out.len();
        let is_update = self.encoder.must_resize();
        let is_timeless = self.encoder.encode(headers, out);
        let is_repeatable = epoch == self.encoder.epoch() && !is_update;
        if is_repeatable && out.len() - start <= BLOCK_BYTES_MAX {
            self.remember(id, if is_timeless { TIMELESS } else { epoch }, &out[start..]);
        }
    }

    /// Releases memory that only serves speed.
    pub fn trim(&mut self) {
        self.encoder.trim();
        self.drop_cache();
    }

    /// Stores the block of a repeated list, and records a new list.
    fn remember(&mut self, id: u64, epoch: u64, block: &[u8]) {
        let Some(cache) = &mut self.cache else {
            if self.recent.is_worth_a_cache(id) {
                self.cache = Some(std::iter::repeat_with(EncodeSlot::default).take(BLOCKS_MAX).collect());
            }
            return;
        };
        let now = self.encoder.epoch();
        let claim = |s: &EncodeSlot| match s {
            s if s.id == id => Claim::Same,
            s if s.id == 0 || !(s.epoch == TIMELESS || s.epoch == now) => Claim::Free,
            s if s.block.is_empty() => Claim::Seen,
            _ => Claim::Stored,
        };
        let Some(at) = places(spread(id)).min_by_key(|&p| claim(&cache[p])) else { return };
        if claim(&cache[at]) == Claim::Stored && !self.refusals.is_multiple_of(REFUSALS_PER_EVICTION) {
            self.refusals += 1;
            return;
        }
        let slot = &mut cache[at];
        let was_seen = slot.id == id;
        self.refusals += u32::from(!slot.block.is_empty());
        self.cache_bytes -= slot.block.len();
        *slot = EncodeSlot { id, epoch, block: Vec::new() };
        if !was_seen {
            return;
        }
        if self.cache_bytes + block.len() > CACHE_BYTES_MAX {
            self.refusals += 1;
            if self.refusals > REFUSALS_MAX {
                self.drop_cache();
            }
            return;
        }
        slot.block = block.to_vec();
        self.cache_bytes += block.len();
    }

    fn drop_cache(&mut self) {
        (self.cache, self.cache_bytes, self.refusals, self.recent) = (None, 0, 0, Recent::default());
    }
}

/// The value of a slot's content, from the best slot to replace to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It has the same key.
    Same,
    /// It is empty, or its epoch has passed.
    Free,
    /// Another block, recorded once.
    Seen,
    /// Another block, stored and valid.
    Stored,
}

/// The keys before there is a cache.
#[derive(Default)]
struct Recent {
    keys: [u64; N_RECENT],
    n_blocks: u32,
}

impl Recent {
    /// Records a block. Returns true if it repeats, or enough others came.
    fn is_worth_a_cache(&mut self, key: u64) -> bool {
        let was_seen = self.keys.contains(&key);
        self.keys.rotate_right(1);
        self.keys[0] = key;
        self.n_blocks += 1;
        was_seen || self.n_blocks >= N_BLOCKS_BUSY
    }
}

impl Default for BlockEncoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The slots of a block.
#[inline]
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let first = (hash >> 1) as usize % BLOCKS_MAX;
    (0..N_WAYS).map(move |way| first ^ way)
}

/// Scatters consecutive identities.
fn spread(id: u64) -> u64 {
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::http2::HeadersBuilder;

    #[test]
    fn repeated_block_gives_cached_list() {
        let mut decoder = BlockDecoder::new(4096, 1 << 16);
        let decode = |decoder: &mut BlockDecoder, block: &[u8]| decoder.decode(block).unwrap().unwrap();
        // An insertion, which is never cached, then a reference to it.
        decode(&mut decoder, &[0x40, 1, b'a', 1, b'1']);
        let ids: Vec<u64> = (0..6).map(|_| decode(&mut decoder, &[0xbe]).id()).collect();
        assert_eq!((ids[3], ids[4]), (ids[5], ids[5]));
        // The same bytes now mean another field.
        decode(&mut decoder, &[0x40, 1, b'a', 1, b'2']);
        let changed = decode(&mut decoder, &[0xbe]);
        assert_eq!(changed.get(b"a"), Some(&b"2"[..]));
    }

    #[test]
    fn held_list_is_not_reused() {
        let mut decoder = BlockDecoder::new(4096, 1 << 16);
        let held: Vec<_> = (0..300u32)
            .map(|i| {
                let value = format!("{i:03}");
                let block = [&[0x00, 1, b'a', 3][..], value.as_bytes()].concat();
                (value, decoder.decode(&block).unwrap().unwrap())
            })
            .collect();
        assert!(held.iter().all(|(value, list)| list.get(b"a") == Some(value.as_bytes())));
    }

    #[test]
    fn cached_block_equals_fresh_block() {
        let mut builder = HeadersBuilder::new();
        builder.push(b":method", b"POST").unwrap().push(b"user", b"alice").unwrap();
        let headers = builder.build();
        let (mut cached, mut plain) = (BlockEncoder::new(), Encoder::new());
        for round in 0..10 {
            if round == 6 {
                cached.set_peer_table_bytes(0);
                plain.set_peer_table_bytes(0);
            }
            let (mut a, mut b) = (Vec::new(), Vec::new());
            cached.encode(&headers, &mut a);
            plain.encode(&headers, &mut b);
            assert_eq!(a, b, "round {round}");
        }
    }

    #[test]
    fn hundred_repeated_lists_are_cached() {
        let lists: Vec<_> = (0..100)
            .map(|i| {
                let mut builder = HeadersBuilder::new();
                builder.push(b":path", b"/shop.Cart/AddItem").unwrap();
                builder.push(b"user", format!("u{i}").as_bytes()).unwrap();
                builder.build()
            })
            .collect();
        let (mut encoder, mut decoder) = (BlockEncoder::new(), BlockDecoder::new(4096, 1 << 16));
        let mut ids = std::collections::BTreeSet::new();
        for round in 0..100 {
            for list in &lists {
                let mut block = Vec::new();
                encoder.encode(list, &mut block);
                let decoded = decoder.decode(&block).unwrap().unwrap();
                assert!(decoded.iter().eq(list.iter()));
                if round >= 90 {
                    ids.insert(decoded.id());
                }
            }
        }
        assert!(ids.len() < 200, "{} distinct lists", ids.len());
        let cached = encoder.cache.iter().flatten().filter(|s| !s.block.is_empty()).count();
        assert!(cached > 90, "{cached} cached blocks");
    }

    #[test]
    fn caches_stay_within_memory() {
        let mut decoder = BlockDecoder::new(4096, 1 << 16);
        for i in 0..20_000u32 {
            let mut block = vec![0x00, 4];
            block.extend_from_slice(format!("{:04}", i % 400).as_bytes());
            block.extend_from_slice(&[0x7f, 0x81, 0x02]);
            block.extend_from_slice(&[b'v'; 384]);
            decoder.decode(&block).unwrap();
            assert!(decoder.cache_bytes <= CACHE_BYTES_MAX);
        }
    }
}
