//! Encodes header lists as HPACK header blocks.

use super::table::{DynamicTable, N_STATIC, TableField, static_field_index};
use super::{TABLE_BYTES_INITIAL, hash_bytes, huffman};
use crate::session::http2::headers::{Field, Headers};

/// Maximum use of the peer's table, in bytes. The repeated fields of calls need much less.
pub const TABLE_BYTES_MAX: u32 = 4096;
/// Once the table is full, one field in this many blocks may evict old ones. A stable table keeps whole blocks valid in
/// the caches of both ends, which is worth more than the bytes of one field.
pub const BLOCKS_PER_EVICTION: u32 = 1 << 14;
/// Maximum size of a field in the table, as a fraction of its size: one in this many.
const FIELD_SHARE: usize = 4;

/// Encodes the header blocks of one direction of a connection.
///
/// A field enters the dynamic table when it repeats soon, so unique values do not displace repeated ones. Sensitive
/// fields never enter it.
pub struct Encoder {
    table: DynamicTable,
    /// The smallest table size since the last block, to announce at the start of the next one together with the current
    /// size (RFC 7541 section 4.2).
    resized: Option<usize>,
    /// An index of fields; created by the first block.
    index: Option<Box<Index>>,
    /// Blocks since the last eviction from the table.
    blocks_since_eviction: u32,
}

/// Slots by hash. A newer field replaces an older one, which is then not found; that does no harm.
struct Index {
    /// The insertion that added the field with this hash to the table.
    fields: [u32; N_FIELD_SLOTS],
    /// The same for the name alone.
    names: [u32; N_NAME_SLOTS],
    /// Hashes of fields that were sent as literals.
    seen: [u32; N_SEEN_SLOTS],
}

/// Four times the entries of a table of 4096 bytes, so that few fields lose their slot.
const N_FIELD_SLOTS: usize = 512;
const N_NAME_SLOTS: usize = 64;
const N_SEEN_SLOTS: usize = 256;

impl Encoder {
    /// An encoder that assumes the peer's initial table size.
    pub fn new() -> Self {
        let table = DynamicTable::new(TABLE_BYTES_INITIAL as usize);
        Self { table, resized: None, index: None, blocks_since_eviction: 0 }
    }

    /// Sets the peer's SETTINGS_HEADER_TABLE_SIZE; the encoder uses up to [`TABLE_BYTES_MAX`] of it.
    pub fn set_peer_table_bytes(&mut self, bytes: u32) {
        let size = bytes.min(TABLE_BYTES_MAX) as usize;
        if size != self.table.size_max() {
            self.resized = Some(self.resized.unwrap_or(usize::MAX).min(size));
            self.table.resize(size);
        }
    }

    /// The number of changes of the dynamic table. Indexes in a block are valid for one epoch.
    pub fn epoch(&self) -> u64 {
        self.table.inserted()
    }

    /// Whether the next block must begin with a table size update, and so cannot come from a cache.
    pub fn must_resize(&self) -> bool {
        self.resized.is_some()
    }

    /// Appends the block for `headers` to `out`. Returns true if it does not use the dynamic table, so its meaning
    /// never changes.
    pub fn encode(&mut self, headers: &Headers, out: &mut Vec<u8>) -> bool {
        if let Some(smallest) = self.resized.take() {
            if smallest < self.table.size_max() {
                integer(smallest, 5, 0x20, out);
            }
            integer(self.table.size_max(), 5, 0x20, out);
        }
        self.blocks_since_eviction = self.blocks_since_eviction.saturating_add(1);
        let mut is_timeless = true;
        for field in headers.fields() {
            is_timeless &= self.encode_field(headers, field, out);
        }
        is_timeless
    }

    /// Releases memory that only serves speed.
    pub fn trim(&mut self) {
        if self.table.len() == 0 {
            self.index = None;
        }
    }

    /// Appends a field. Returns true if it does not use the dynamic table.
    fn encode_field(&mut self, headers: &Headers, field: &Field, out: &mut Vec<u8>) -> bool {
        let (name, value) = (headers.name_of(field), headers.value_of(field));
        let static_name = field.name.static_index();
        if let Some(index) = static_name.and_then(|i| static_field_index(i, value)) {
            out.push(0x80 | index);
            return true;
        }
        let name_hash = hash_bytes(0, name);
        let hash = hash_bytes(name_hash, value);
        if !field.sensitive
            && let Some(index) = self.find_field(hash, name, value)
        {
            integer(index, 7, 0x80, out);
            return false;
        }
        let name_index = static_name.map(usize::from).or_else(|| self.find_name(name_hash, name));
        let is_timeless = name_index.is_none_or(|i| i <= N_STATIC);
        if field.sensitive {
            literal(0x10, 4, name_index, name, value, out);
            return is_timeless;
        }
        if self.is_worth_inserting(hash, name.len(), value.len()) {
            literal(0x40, 6, name_index, name, value, out);
            self.insert(field, hash, name_hash, name, value);
            return false;
        }
        literal(0x00, 4, name_index, name, value, out);
        is_timeless
    }

    /// The index of the whole field in the dynamic table.
    #[inline]
    fn find_field(&self, hash: u64, name: &[u8], value: &[u8]) -> Option<usize> {
        let insertion = self.index.as_ref()?.fields[hash as usize % N_FIELD_SLOTS];
        let (index, found) = self.entry(insertion)?;
        (found.value == value && found.name == name).then_some(index)
    }

    /// The index of a field with that name in the dynamic table.
    #[inline]
    fn find_name(&self, name_hash: u64, name: &[u8]) -> Option<usize> {
        let insertion = self.index.as_ref()?.names[name_hash as usize % N_NAME_SLOTS];
        let (index, found) = self.entry(insertion)?;
        (found.name == name).then_some(index)
    }

    /// The entry of this insertion, and its current index.
    #[inline]
    fn entry(&self, insertion: u32) -> Option<(usize, TableField<'_>)> {
        // A number that has wrapped around names another entry or none; the caller compares the entry.
        let age = (self.table.inserted() as u32).wrapping_sub(insertion) as usize;
        self.table.get(age).map(|field| (N_STATIC + 1 + age, field))
    }

    /// Whether the field repeats soon enough to enter the table; records it.
    fn is_worth_inserting(&mut self, hash: u64, name_len: usize, value_len: usize) -> bool {
        if name_len + value_len > self.table.size_max() / FIELD_SHARE {
            return false;
        }
        let index = self.index.get_or_insert_with(|| {
            Box::new(Index { fields: [0; N_FIELD_SLOTS], names: [0; N_NAME_SLOTS], seen: [0; N_SEEN_SLOTS] })
        });
        let seen = &mut index.seen[hash as usize % N_SEEN_SLOTS];
        let tag = (hash >> 32) as u32 | 1;
        if std::mem::replace(seen, tag) != tag {
            return false;
        }
        if self.table.has_room_for(name_len, value_len) {
            return true;
        }
        if self.blocks_since_eviction < BLOCKS_PER_EVICTION {
            return false;
        }
        self.blocks_since_eviction = 0;
        true
    }

    /// Adds a field to the dynamic table, and to the index of recent fields if there is one.
    fn insert(&mut self, field: &Field, hash: u64, name_hash: u64, name: &[u8], value: &[u8]) {
        self.table.insert(TableField { name, value, id: field.name, is_value_valid: true });
        if let Some(index) = &mut self.index {
            index.fields[hash as usize % N_FIELD_SLOTS] = self.table.inserted() as u32;
            index.names[name_hash as usize % N_NAME_SLOTS] = self.table.inserted() as u32;
        }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// A field with a literal value: `pattern` and, in `prefix` bits, the index of the name.
fn literal(pattern: u8, prefix: u32, index: Option<usize>, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    integer(index.unwrap_or(0), prefix, pattern, out);
    if index.is_none() {
        string(name, out);
    }
    string(value, out);
}

/// Appends a string, with Huffman coding if that is shorter (RFC 7541 section 5.2).
fn string(text: &[u8], out: &mut Vec<u8>) {
    let code_len = huffman::encoded_bytes(text);
    if code_len < text.len() {
        integer(code_len, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// Appends an integer. Its first byte has `prefix` bits under `pattern` (RFC 7541 section 5.1).
#[inline]
fn integer(value: usize, prefix: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1usize << prefix) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::http2::HeadersBuilder;
    use crate::session::http2::hpack::Decoder;
    use proptest::prelude::*;
    use std::rc::Rc;

    fn list(fields: &[(&str, &str)]) -> Rc<Headers> {
        let mut builder = HeadersBuilder::new();
        for (name, value) in fields {
            builder.push(name.as_bytes(), value.as_bytes()).unwrap();
        }
        builder.build()
    }

    fn block(encoder: &mut Encoder, headers: &Headers) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.encode(headers, &mut out);
        out
    }

    #[test]
    fn integers_match_appendix_c_1() {
        let encoded = |value, prefix| {
            let mut out = Vec::new();
            integer(value, prefix, 0, &mut out);
            out
        };
        assert_eq!(encoded(10, 5), [0x0a]);
        assert_eq!(encoded(1337, 5), [0x1f, 0x9a, 0x0a]);
        assert_eq!(encoded(42, 8), [0x2a]);
        assert_eq!(encoded(31, 5), [0x1f, 0x00]);
    }

    #[test]
    fn second_sighting_enters_table() {
        let mut encoder = Encoder::new();
        let headers = list(&[(":method", "POST"), ("user", "alice")]);
        let first = block(&mut encoder, &headers);
        assert_eq!((first[0], first[1], encoder.epoch()), (0x83, 0x00, 0));
        let second = block(&mut encoder, &headers);
        assert_eq!((second[1], encoder.epoch()), (0x40, 1));
        assert_eq!(block(&mut encoder, &headers), [0x83, 0xbe]);
    }

    #[test]
    fn sensitive_value_is_never_indexed() {
        let mut encoder = Encoder::new();
        let mut builder = HeadersBuilder::new();
        builder.push_sensitive(b"authorization", b"secret").unwrap();
        let headers = builder.build();
        for _ in 0..3 {
            assert_eq!(block(&mut encoder, &headers)[..2], [0x1f, 23 - 15]);
        }
        assert_eq!(encoder.epoch(), 0);
    }

    #[test]
    fn distinct_values_do_not_thrash() {
        let mut encoder = Encoder::new();
        for round in 0..50 {
            for i in 0..100 {
                let headers = list(&[("user", &format!("user-number-{i}-of-a-hundred"))]);
                let before = encoder.epoch();
                block(&mut encoder, &headers);
                let changed = encoder.epoch() - before;
                assert!(changed == 0 || round < 4 || i == 0 || encoder.blocks_since_eviction < 2);
            }
        }
        let changes = encoder.epoch();
        assert!(changes < 100, "{changes} changes");
    }

    #[test]
    fn smallest_table_size_comes_first() {
        let mut encoder = Encoder::new();
        encoder.set_peer_table_bytes(0);
        encoder.set_peer_table_bytes(100);
        assert_eq!(block(&mut encoder, &list(&[(":method", "GET")])), [0x20, 0x3f, 0x45, 0x82]);
        assert_eq!(block(&mut encoder, &list(&[(":method", "GET")])), [0x82]);
    }

    /// Names and values from a small alphabet, so that they repeat.
    fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>, bool)>> {
        let name = prop_oneof!["[a-c]{1,3}", Just("user-agent".to_owned()), Just("cookie".to_owned())];
        let value = prop_oneof![
            "[a-d]{0,2}".prop_map(String::into_bytes),
            proptest::collection::vec(0x21u8..=0xff, 0..80)
        ];
        proptest::collection::vec((name, value, proptest::bool::weighted(0.1)), 0..12)
    }

    proptest! {
        #[test]
        fn hpack_round_trips_at_any_size(
            lists in proptest::collection::vec((fields(), proptest::option::weighted(0.2, 0u32..6000)), 1..40)
        ) {
            let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096, 1 << 20));
            for (fields, resize) in lists {
                if let Some(size) = resize {
                    encoder.set_peer_table_bytes(size);
                    decoder.set_table_limit(size);
                    // The peer's size may exceed 4096, which the encoder does not use.
                }
                let mut builder = HeadersBuilder::new();
                for (name, value, sensitive) in &fields {
                    if *sensitive {
                        builder.push_sensitive(name.as_bytes(), value).unwrap();
                    } else {
                        builder.push(name.as_bytes(), value).unwrap();
                    }
                }
                let headers = builder.build();
                let mut out = Headers::new();
                decoder.decode(&block(&mut encoder, &headers), &mut out).unwrap();
                prop_assert!(headers.iter().eq(out.iter()));
            }
        }
    }
}
