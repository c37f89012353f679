//! The static and the dynamic table (RFC 7541 section 2.3 and appendix A).

use std::collections::VecDeque;

use crate::session::http2::headers::{FIELD_OVERHEAD_BYTES, NameId};

/// Number of entries of the static table.
pub(crate) const N_STATIC: usize = 61;

/// RFC 7541 appendix A. Index 1 of the standard is index 0 here.
#[rustfmt::skip]
const STATIC: [(&str, &str); N_STATIC] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""),
    ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""),
    ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""),
    ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""), ("retry-after", ""),
    ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""), ("transfer-encoding", ""),
    ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// By index in the static table: the first index with the same name.
const FIRST_WITH_NAME: [u8; N_STATIC + 1] = {
    let (mut first, mut i) = ([0u8; N_STATIC + 1], 1usize);
    while i <= N_STATIC {
        first[i] = match i {
            2..=3 => 2,
            4..=5 => 4,
            6..=7 => 6,
            8..=14 => 8,
            _ => i as u8,
        };
        i += 1;
    }
    first
};

/// Number of buckets for the names of the static table.
const N_BUCKETS: usize = 128;
/// By [`name_bucket`]: the index of its first name, or 0; and by index: that of the next name in the bucket.
const BUCKETS: ([u8; N_BUCKETS], [u8; N_STATIC + 1]) = buckets();

/// Builds the hash table of the static names: the first name of each bucket, and the next name for each name.
const fn buckets() -> ([u8; N_BUCKETS], [u8; N_STATIC + 1]) {
    let (mut heads, mut nexts) = ([0u8; N_BUCKETS], [0u8; N_STATIC + 1]);
    let mut i = 1;
    while i <= N_STATIC {
        if FIRST_WITH_NAME[i] as usize == i {
            let bucket = name_bucket(STATIC[i - 1].0.as_bytes());
            nexts[i] = heads[bucket];
            heads[bucket] = i as u8;
        }
        i += 1;
    }
    (heads, nexts)
}

/// Hashes a name by its length and three of its characters. `name` is not empty.
const fn name_bucket(name: &[u8]) -> usize {
    let n = name.len();
    let (first, middle, last) = (name[0] as usize, name[n / 2] as usize, name[n - 1] as usize);
    (n * 7 + first * 5 + middle * 3 + last) % N_BUCKETS
}

/// The first index of `name` in the static table.
pub(crate) fn static_name_index(name: &[u8]) -> Option<u8> {
    if name.is_empty() {
        return None;
    }
    let mut i = BUCKETS.0[name_bucket(name)];
    while i != 0 {
        if STATIC[i as usize - 1].0.as_bytes() == name {
            return Some(i);
        }
        i = BUCKETS.1[i as usize];
    }
    None
}

/// The index of the field in the static table, given the first index of its name.
#[inline]
pub(crate) fn static_field_index(name_index: u8, value: &[u8]) -> Option<u8> {
    let last = match name_index {
        2 | 4 | 6 => name_index + 1,
        8 => 14,
        16 => 16,
        // All others have an empty value, which is not worth a search.
        _ => return None,
    };
    (name_index..=last).find(|&i| STATIC[i as usize - 1].1.as_bytes() == value)
}

/// A field of either table.
#[derive(Clone, Copy)]
pub(crate) struct TableField<'t> {
    pub(crate) name: &'t [u8],
    pub(crate) value: &'t [u8],
    pub(crate) id: NameId,
    pub(crate) is_value_valid: bool,
}

/// The field at `index` of the static table, 1 to 61.
#[inline]
pub(crate) fn static_field(index: usize) -> TableField<'static> {
    let (name, value) = STATIC[index - 1];
    let id = NameId::of_static(FIRST_WITH_NAME[index]);
    TableField { name: name.as_bytes(), value: value.as_bytes(), id, is_value_valid: true }
}

/// A FIFO of fields that is bounded in bytes.
pub(crate) struct DynamicTable {
    /// Names and values of all entries, oldest first, after those of removed entries.
    bytes: Vec<u8>,
    /// Number of bytes ever removed from the front of `bytes`.
    removed: u64,
    entries: VecDeque<Entry>,
    /// The size by RFC 7541 section 4.1.
    size: usize,
    size_max: usize,
    inserted: u64,
}

struct Entry {
    /// The start of the name, counted from the first byte ever.
    start: u64,
    value_len: u32,
    name_len: u16,
    id: NameId,
    is_value_valid: bool,
}

impl Entry {
    fn len(&self) -> usize {
        self.name_len as usize + self.value_len as usize
    }
}

impl DynamicTable {
    pub(crate) fn new(size_max: usize) -> Self {
        let (bytes, entries) = (Vec::new(), VecDeque::new());
        Self { bytes, removed: 0, entries, size: 0, size_max, inserted: 0 }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of changes of the table; indexes into it are valid for one epoch.
    pub(crate) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The maximum size in bytes.
    pub(crate) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Whether a field of this size fits without an eviction.
    pub(crate) fn has_room_for(&self, name_len: usize, value_len: usize) -> bool {
        self.size + name_len + value_len + FIELD_OVERHEAD_BYTES <= self.size_max
    }

    /// The entry that is `age` insertions old; the newest is 0.
    #[inline]
    pub(crate) fn get(&self, age: usize) -> Option<TableField<'_>> {
        let place = self.entries.len().checked_sub(age + 1)?;
        let entry = &self.entries[place];
        let start = (entry.start - self.removed) as usize;
        let (name, value) = self.bytes[start..start + entry.len()].split_at(entry.name_len as usize);
        Some(TableField { name, value, id: entry.id, is_value_valid: entry.is_value_valid })
    }

    /// Adds a field and evicts the oldest ones until it fits. A field that never fits empties the table (RFC 7541
    /// section 4.4).
    pub(crate) fn insert(&mut self, field: TableField<'_>) {
        let len = field.name.len() + field.value.len();
        self.inserted += 1;
        self.shrink_to(self.size_max.saturating_sub(len + FIELD_OVERHEAD_BYTES));
        if len + FIELD_OVERHEAD_BYTES > self.size_max {
            return;
        }
        self.reserve(len);
        let start = self.removed + self.bytes.len() as u64;
        self.bytes.extend_from_slice(field.name);
        self.bytes.extend_from_slice(field.value);
        let (name_len, value_len) = (field.name.len() as u16, field.value.len() as u32);
        self.entries.push_back(Entry {
            start,
            value_len,
            name_len,
            id: field.id,
            is_value_valid: field.is_value_valid,
        });
        self.size += len + FIELD_OVERHEAD_BYTES;
    }

    /// Changes the maximum size, and evicts entries that no longer fit.
    pub(crate) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.inserted += 1;
        self.shrink_to(size_max);
    }

    /// Evicts the oldest entries until the table has at most `size` bytes.
    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            // The size is that of the entries, so there is one as long as it is not 0.
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size -= oldest.len() + FIELD_OVERHEAD_BYTES;
        }
    }

    /// Makes room after the last byte. Dead bytes in front are reclaimed once they equal the live ones, so that each
    /// byte moves about once and the buffer stays below twice the table's size.
    fn reserve(&mut self, len: usize) {
        if self.bytes.len() + len <= self.bytes.capacity() {
            return;
        }
        let live_from = self.entries.front().map_or(self.bytes.len(), |e| (e.start - self.removed) as usize);
        if live_from * 2 >= self.bytes.len() {
            self.bytes.drain(..live_from);
            self.removed += live_from as u64;
        }
        self.bytes.reserve(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field<'t>(name: &'t str, value: &'t str) -> TableField<'t> {
        let id = NameId::of(name.as_bytes());
        TableField { name: name.as_bytes(), value: value.as_bytes(), id, is_value_valid: true }
    }

    #[test]
    fn static_name_has_first_index() {
        for i in 1..=N_STATIC {
            let found = static_name_index(STATIC[i - 1].0.as_bytes());
            assert_eq!(found, Some(FIRST_WITH_NAME[i]), "{}", STATIC[i - 1].0);
            assert_eq!(STATIC[found.unwrap() as usize - 1].0, STATIC[i - 1].0);
        }
        assert_eq!(static_name_index(b"grpc-status"), None);
        assert_eq!(static_field_index(8, b"404"), Some(13));
        assert_eq!(static_field_index(8, b"418"), None);
    }

    #[test]
    fn oldest_entry_is_evicted() {
        let mut table = DynamicTable::new(100);
        for i in 0..10_000 {
            let value = format!("{i:08}");
            table.insert(field("x", &value));
            assert_eq!(table.get(0).unwrap().value, value.as_bytes());
        }
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(1).unwrap().value, b"00009998");
        assert!(table.get(2).is_none());
        assert!(table.bytes.capacity() <= 200, "{}", table.bytes.capacity());
    }

    #[test]
    fn oversized_field_empties_table() {
        let mut table = DynamicTable::new(64);
        table.insert(field("a", "b"));
        table.insert(field("a", &"b".repeat(40)));
        assert_eq!((table.len(), table.size), (0, 0));
    }
}
