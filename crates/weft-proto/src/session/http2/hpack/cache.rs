//! Caches of whole header blocks.
//!
//! A client sends the same block call after call, and a proxy forwards it. So both directions remember whole
//! blocks: a hit costs one hash and one comparison to decode, and one copy to encode. Only what is seen twice
//! is stored, and a block that refers to the dynamic table is good only until the table changes.

use std::collections::VecDeque;
use std::rc::Rc;

use super::decoder::{Decoded, Decoder, HpackError};
use super::encoder::Encoder;
use super::hash_bytes;
use crate::session::http2::headers::Headers;

/// Number of blocks that each cache can hold.
pub const BLOCKS_MAX: usize = 256;
/// Largest block that is stored, in bytes.
pub const BLOCK_BYTES_MAX: usize = 512;
/// What each cache holds at most, in bytes, besides its table of slots; it is emptied when it would hold more.
pub const CACHE_BYTES_MAX: usize = 64 << 10;
/// Number of decoded lists that are kept to be used again when their owners have let go of them.
pub const SPARE_LISTS_MAX: usize = 64;
/// Number of block hashes that are remembered before there is a cache.
const N_RECENT: usize = 4;
/// The epoch of blocks that do not use the dynamic table.
const TIMELESS: u64 = u64::MAX;

/// A [`Decoder`] that gives the same list for the same block.
pub struct BlockDecoder {
    decoder: Decoder,
    cache: Option<Box<[DecodeSlot]>>,
    cache_bytes: usize,
    recent: [u64; N_RECENT],
    /// Lists that were handed out, in that order.
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
    /// As [`Decoder::new`].
    pub fn new(table_limit: u32, list_bytes_max: u32) -> Self {
        let decoder = Decoder::new(table_limit, list_bytes_max);
        Self { decoder, cache: None, cache_bytes: 0, recent: [0; N_RECENT], spares: VecDeque::new() }
    }

    /// As [`Decoder::set_table_limit`].
    pub fn set_table_limit(&mut self, table_limit: u32) {
        self.decoder.set_table_limit(table_limit);
        self.drop_cache();
    }

    /// Decodes one complete block; none if the list is larger than permitted (the table is in step).
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode(&mut self, block: &[u8]) -> Result<Option<Rc<Headers>>, HpackError> {
        let hash = hash_bytes(1, block) | 1;
        let epoch = self.decoder.epoch();
        if let Some(cache) = &self.cache {
            for place in [place(hash), place(hash) ^ 1] {
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
        let (headers, decoded) = self.decode_anew(block)?;
        if decoded.is_too_large {
            return Ok(None);
        }
        if !decoded.is_table_changed && block.len() <= BLOCK_BYTES_MAX {
            self.remember(hash, if decoded.is_timeless { TIMELESS } else { epoch }, block, &headers);
        }
        Ok(Some(headers))
    }

    /// Frees what only serves speed.
    pub fn trim(&mut self) {
        self.drop_cache();
        self.spares = VecDeque::new();
    }

    fn drop_cache(&mut self) {
        (self.cache, self.cache_bytes, self.recent) = (None, 0, [0; N_RECENT]);
    }

    fn decode_anew(&mut self, block: &[u8]) -> Result<(Rc<Headers>, Decoded), HpackError> {
        let mut headers = self.take_spare();
        // A spare has no other owner.
        let list = Rc::get_mut(&mut headers).expect("a list that nobody else holds");
        let decoded = self.decoder.decode(block, list)?;
        // Large lists are not worth keeping.
        if headers.heap_bytes() <= CACHE_BYTES_MAX / SPARE_LISTS_MAX {
            if self.spares.len() == SPARE_LISTS_MAX {
                self.spares.pop_front();
            }
            self.spares.push_back(headers.clone());
        }
        Ok((headers, decoded))
    }

    /// The list that was handed out longest ago, if it has come back, or a new one.
    fn take_spare(&mut self) -> Rc<Headers> {
        self.spares
            .pop_front_if(|spare| Rc::get_mut(spare).is_some())
            .unwrap_or_else(|| Rc::new(Headers::new()))
    }

    /// Stores the block if it was seen before, and else that it was seen.
    fn remember(&mut self, hash: u64, epoch: u64, block: &[u8], headers: &Rc<Headers>) {
        let Some(cache) = &mut self.cache else {
            if self.recent.contains(&hash) {
                self.cache = Some(std::iter::repeat_with(DecodeSlot::default).take(BLOCKS_MAX).collect());
                return self.remember(hash, epoch, block, headers);
            }
            self.recent.rotate_right(1);
            self.recent[0] = hash;
            return;
        };
        let now = self.decoder.epoch();
        let first = place(hash);
        let is_free = |s: &DecodeSlot| s.headers.is_none() || !(s.epoch == TIMELESS || s.epoch == now);
        let at = [first, first ^ 1].into_iter().find(|&p| cache[p].hash == hash);
        let at = at.or([first, first ^ 1].into_iter().find(|&p| is_free(&cache[p]))).unwrap_or(first);
        let slot = &mut cache[at];
        let was_seen = slot.hash == hash;
        self.cache_bytes -= slot.cost();
        (slot.hash, slot.epoch, slot.headers) = (hash, epoch, None);
        slot.block.clear();
        if was_seen {
            slot.block.extend_from_slice(block);
            slot.headers = Some(headers.clone());
        }
        self.cache_bytes += slot.cost();
        if self.cache_bytes > CACHE_BYTES_MAX {
            self.drop_cache();
        }
    }
}

impl DecodeSlot {
    fn cost(&self) -> usize {
        self.block.capacity() + self.headers.as_ref().map_or(0, |h| h.heap_bytes() + size_of::<Headers>())
    }
}

/// An [`Encoder`] that copies the block of a list that it has encoded before.
pub struct BlockEncoder {
    encoder: Encoder,
    cache: Option<Box<[EncodeSlot]>>,
    cache_bytes: usize,
    recent: [u64; N_RECENT],
}

#[derive(Default)]
struct EncodeSlot {
    id: u64,
    epoch: u64,
    /// Empty as long as the list was seen only once.
    block: Vec<u8>,
}

impl BlockEncoder {
    /// As [`Encoder::new`].
    pub fn new() -> Self {
        Self { encoder: Encoder::new(), cache: None, cache_bytes: 0, recent: [0; N_RECENT] }
    }

    /// As [`Encoder::set_peer_table_bytes`].
    pub fn set_peer_table_bytes(&mut self, bytes: u32) {
        self.encoder.set_peer_table_bytes(bytes);
    }

    /// Appends the block for `headers` to `out`.
    pub fn encode(&mut self, headers: &Headers, out: &mut Vec<u8>) {
        let (id, epoch) = (headers.id(), self.encoder.epoch());
        if let Some(cache) = &self.cache
            && !self.encoder.must_resize()
        {
            for place in [id_place(id), id_place(id) ^ 1] {
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

    /// Frees what only serves speed.
    pub fn trim(&mut self) {
        self.encoder.trim();
        (self.cache, self.cache_bytes, self.recent) = (None, 0, [0; N_RECENT]);
    }

    /// Stores the block if its list was seen before, and else that it was seen.
    fn remember(&mut self, id: u64, epoch: u64, block: &[u8]) {
        let Some(cache) = &mut self.cache else {
            if self.recent.contains(&id) {
                self.cache = Some(std::iter::repeat_with(EncodeSlot::default).take(BLOCKS_MAX).collect());
                return self.remember(id, epoch, block);
            }
            self.recent.rotate_right(1);
            self.recent[0] = id;
            return;
        };
        let now = self.encoder.epoch();
        let first = id_place(id);
        let is_free = |s: &EncodeSlot| s.block.is_empty() || !(s.epoch == TIMELESS || s.epoch == now);
        let at = [first, first ^ 1].into_iter().find(|&p| cache[p].id == id);
        let at = at.or([first, first ^ 1].into_iter().find(|&p| is_free(&cache[p]))).unwrap_or(first);
        let slot = &mut cache[at];
        let was_seen = slot.id == id;
        self.cache_bytes -= slot.block.capacity();
        (slot.id, slot.epoch) = (id, epoch);
        slot.block.clear();
        if was_seen {
            slot.block.extend_from_slice(block);
        }
        self.cache_bytes += slot.block.capacity();
        if self.cache_bytes > CACHE_BYTES_MAX {
            (self.cache, self.cache_bytes) = (None, 0);
        }
    }
}

impl Default for BlockEncoder {
    fn default() -> Self {
        Self::new()
    }
}

fn place(hash: u64) -> usize {
    (hash >> 1) as usize % BLOCKS_MAX
}

/// Spreads consecutive identities.
fn id_place(id: u64) -> usize {
    (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % BLOCKS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::http2::HeadersBuilder;

    #[test]
    fn a_repeated_block_gives_the_same_list_until_the_table_changes() {
        let mut decoder = BlockDecoder::new(4096, 1 << 16);
        let decode = |decoder: &mut BlockDecoder, block: &[u8]| decoder.decode(block).unwrap().unwrap();
        // An insertion, which is never cached, then a reference to it.
        decode(&mut decoder, &[0x40, 1, b'a', 1, b'1']);
        let ids: Vec<u64> = (0..5).map(|_| decode(&mut decoder, &[0xbe]).id()).collect();
        assert_eq!((ids[2], ids[3]), (ids[4], ids[4]));
        // The same bytes now mean another field.
        decode(&mut decoder, &[0x40, 1, b'a', 1, b'2']);
        let changed = decode(&mut decoder, &[0xbe]);
        assert_eq!(changed.get(b"a"), Some(&b"2"[..]));
    }

    #[test]
    fn a_list_that_is_still_held_is_not_used_again() {
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
    fn a_cached_block_is_what_the_encoder_would_write() {
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
    fn the_caches_stay_within_their_memory() {
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
