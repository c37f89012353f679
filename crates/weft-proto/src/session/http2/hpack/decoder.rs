//! Decodes HPACK header blocks into header lists.

use super::huffman;
use super::table::{DynamicTable, N_STATIC, TableField, static_field};
use crate::session::http2::headers::{
    FIELD_OVERHEAD_BYTES, Field, Headers, NAME_BYTES_MAX, NameId, is_valid_value,
};

/// Decodes the header blocks of one direction of a connection.
pub struct Decoder {
    table: DynamicTable,
    /// The maximum table size in our settings, in bytes.
    table_limit: usize,
    /// Our settings shrank the table, so the next block must begin with a size update.
    must_resize: bool,
    list_bytes_max: usize,
}

/// Why a block cannot be decoded. The table is then out of step, which ends the connection (COMPRESSION_ERROR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// An integer is larger than any table or string can be.
    Integer,
    /// An index that is in neither table.
    Index,
    /// A string is not a valid Huffman code.
    Huffman,
    /// A table size update is too large, misplaced, or missing.
    SizeUpdate,
}

/// The result of decoding a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The list exceeded the limit, and only its beginning was kept. The table is in step.
    pub is_too_large: bool,
    /// The block does not use the dynamic table, so its meaning never changes.
    pub is_timeless: bool,
    /// The block changed the dynamic table.
    pub is_table_changed: bool,
}

impl Decoder {
    /// A decoder whose table holds up to `table_limit` bytes, our SETTINGS_HEADER_TABLE_SIZE. Lists above
    /// `list_bytes_max` bytes (by RFC 7541 section 4.1) are cut.
    pub fn new(table_limit: u32, list_bytes_max: u32) -> Self {
        let table_limit = table_limit as usize;
        let table = DynamicTable::new(table_limit);
        Self { table, table_limit, must_resize: false, list_bytes_max: list_bytes_max as usize }
    }

    /// Sets the table size from the next block on: the peer has acknowledged our settings.
    pub fn set_table_limit(&mut self, table_limit: u32) {
        self.table_limit = table_limit as usize;
        self.must_resize = self.table_limit < self.table.size_max();
    }

    /// The number of changes of the dynamic table. Indexes in a block are valid for one epoch.
    pub fn epoch(&self) -> u64 {
        self.table.inserted()
    }

    /// Decodes a complete header block into `out`, which is emptied first.
    ///
    /// # Errors
    /// The block is not HPACK, or does not fit the state of the table.
    pub fn decode(&mut self, block: &[u8], out: &mut Headers) -> Result<Decoded, HpackError> {
        out.reset();
        let epoch = self.epoch();
        let mut input = Input { rest: block };
        let mut run = Run { out, list_bytes: 0, is_too_large: false, is_timeless: true };
        self.size_updates(&mut input)?;
        while let Some(&first) = input.rest.first() {
            match first {
                0x80.. => {
                    let index = input.integer(7)?;
                    let field = self.field(index, &mut run)?;
                    run.copy(field, self.list_bytes_max);
                }
                0x40.. => self.literal(&mut input, &mut run, 6, true, false)?,
                0x20.. => return Err(HpackError::SizeUpdate),
                0x10.. => self.literal(&mut input, &mut run, 4, false, true)?,
                _ => self.literal(&mut input, &mut run, 4, false, false)?,
            }
        }
        let Run { is_too_large, is_timeless, .. } = run;
        Ok(Decoded { is_too_large, is_timeless, is_table_changed: self.epoch() != epoch })
    }

    /// Table size updates, which are only permitted at the start of a block (RFC 7541 section 4.2).
    fn size_updates(&mut self, input: &mut Input<'_>) -> Result<(), HpackError> {
        while let [0x20..=0x3f, ..] = input.rest {
            let size = input.integer(5)?;
            if size > self.table_limit {
                return Err(HpackError::SizeUpdate);
            }
            self.table.resize(size);
            self.must_resize = false;
        }
        if self.must_resize { Err(HpackError::SizeUpdate) } else { Ok(()) }
    }

    /// Looks up a field in the static or the dynamic table. An index of the dynamic table clears `is_timeless`.
    #[inline]
    fn field(&self, index: usize, run: &mut Run<'_>) -> Result<TableField<'_>, HpackError> {
        match index {
            0 => Err(HpackError::Index),
            1..=N_STATIC => Ok(static_field(index)),
            _ => {
                run.is_timeless = false;
                self.table.get(index - N_STATIC - 1).ok_or(HpackError::Index)
            }
        }
    }

    /// Decodes a field with a literal value (RFC 7541 section 6.2). The index of its name has `prefix` bits.
    fn literal(
        &mut self,
        input: &mut Input<'_>,
        run: &mut Run<'_>,
        prefix: u32,
        indexed: bool,
        sensitive: bool,
    ) -> Result<(), HpackError> {
        let index = input.integer(prefix)?;
        let start = run.out.bytes_mut().len();
        let mut id = None;
        if index == 0 {
            input.string(run.out.bytes_mut())?;
        } else {
            let name = self.field(index, run)?;
            run.out.bytes_mut().extend_from_slice(name.name);
            id = Some(name.id);
        }
        let value_at = run.out.bytes_mut().len();
        input.string(run.out.bytes_mut())?;
        let (name, value) = run.out.bytes_mut()[start..].split_at(value_at - start);
        let (name_len, value_len) = (name.len(), value.len());
        let id = id.unwrap_or_else(|| NameId::of(name));
        let is_value_valid = is_valid_value(value);
        if indexed {
            // A name above the limit is never stored, because no table is that large.
            self.table.insert(TableField { name, value, id, is_value_valid });
        }
        if run.admit(name_len, value_len, self.list_bytes_max) {
            run.out.commit(
                Field {
                    start: start as u32,
                    value_len: value_len as u32,
                    name_len: name_len as u16,
                    name: id,
                    sensitive,
                },
                is_value_valid,
            );
        } else {
            run.out.bytes_mut().truncate(start);
        }
        Ok(())
    }
}

/// The list being decoded.
struct Run<'o> {
    out: &'o mut Headers,
    list_bytes: usize,
    is_too_large: bool,
    is_timeless: bool,
}

impl Run<'_> {
    /// Copies a table field to the output list, if the list has room for it.
    #[inline]
    fn copy(&mut self, field: TableField<'_>, list_bytes_max: usize) {
        if !self.admit(field.name.len(), field.value.len(), list_bytes_max) {
            return;
        }
        let bytes = self.out.bytes_mut();
        let start = bytes.len() as u32;
        bytes.extend_from_slice(field.name);
        bytes.extend_from_slice(field.value);
        let (name_len, value_len) = (field.name.len() as u16, field.value.len() as u32);
        let copy = Field { start, value_len, name_len, name: field.id, sensitive: false };
        self.out.commit(copy, field.is_value_valid);
    }

    /// Whether the list has room for another field. If not, the rest of the block only updates the table: a small block
    /// of indexes could otherwise expand to megabytes.
    #[inline]
    fn admit(&mut self, name_len: usize, value_len: usize, list_bytes_max: usize) -> bool {
        self.list_bytes =
            self.list_bytes.saturating_add(FIELD_OVERHEAD_BYTES).saturating_add(name_len + value_len);
        self.is_too_large |= self.list_bytes > list_bytes_max || name_len > NAME_BYTES_MAX;
        !self.is_too_large
    }
}

/// The rest of a block.
struct Input<'b> {
    rest: &'b [u8],
}

impl<'b> Input<'b> {
    /// An integer whose first byte has `prefix` bits (RFC 7541 section 5.1).
    #[inline]
    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let (&first, rest) = self.rest.split_first().ok_or(HpackError::Truncated)?;
        self.rest = rest;
        let mask = (1u32 << prefix) - 1;
        let value = u32::from(first) & mask;
        if value < mask { Ok(value as usize) } else { self.long_integer(value) }
    }

    /// Reads the rest of an integer that exceeds its prefix. Fails if it has more than 32 bits.
    #[cold]
    fn long_integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let mut value = u64::from(prefix);
        // Five bytes hold every 32-bit number; longer ones are too large or padded.
        for shift in [0, 7, 14, 21, 28] {
            let (&byte, rest) = self.rest.split_first().ok_or(HpackError::Truncated)?;
            self.rest = rest;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map(|v| v as usize).map_err(|_| HpackError::Integer);
            }
        }
        Err(HpackError::Integer)
    }

    /// Decodes a string (RFC 7541 section 5.2), appended to `out`.
    #[inline]
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), HpackError> {
        let is_huffman = self.rest.first().is_some_and(|b| b & 0x80 != 0);
        let len = self.integer(7)?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(HpackError::Truncated)?;
        self.rest = rest;
        if is_huffman {
            return huffman::decode(text, out).map_err(|_| HpackError::Huffman);
        }
        out.extend_from_slice(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|d| u8::from_str_radix(str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }

    fn shown(headers: &Headers) -> String {
        let fields = headers.iter().map(|(n, v, _)| format!("{}: {}", n.escape_ascii(), v.escape_ascii()));
        fields.collect::<Vec<_>>().join("; ")
    }

    /// Decodes blocks in order and compares the lists.
    #[track_caller]
    fn check(table: u32, blocks: &[(&str, &str)]) {
        let mut decoder = Decoder::new(table, 1 << 16);
        for (block, expected) in blocks {
            let mut out = Headers::new();
            decoder.decode(&hex(block), &mut out).unwrap();
            assert_eq!(shown(&out), *expected);
        }
    }

    #[track_caller]
    fn refuse(block: &[u8], expected: HpackError) {
        let mut out = Headers::new();
        assert_eq!(Decoder::new(4096, 1 << 16).decode(block, &mut out), Err(expected), "{block:02x?}");
    }

    #[test]
    fn appendix_c_2_each_representation() {
        let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        check(4096, &[(custom, "custom-key: custom-header")]);
        check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path")]);
        check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret")]);
        check(4096, &[("82", ":method: GET")]);
    }

    const REQUESTS: [&str; 3] = [
        ":method: GET; :scheme: http; :path: /; :authority: www.example.com",
        ":method: GET; :scheme: http; :path: /; :authority: www.example.com; cache-control: no-cache",
        ":method: GET; :scheme: https; :path: /index.html; :authority: www.example.com; custom-key: custom-value",
    ];

    #[test]
    fn appendix_c_3_and_c_4_requests() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let huffman = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, huffman] {
            check(4096, &std::array::from_fn::<_, 3, _>(|i| (blocks[i], REQUESTS[i])));
        }
    }

    #[test]
    fn appendix_c_5_and_c_6_responses() {
        let date = "date: Mon, 21 Oct 2013 20:13:21 GMT; location: https://www.example.com";
        let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        let lists = [
            format!(":status: 302; cache-control: private; {date}"),
            format!(":status: 307; cache-control: private; {date}"),
            format!(
                ":status: 200; cache-control: private; date: Mon, 21 Oct 2013 20:13:22 GMT; \
                 location: https://www.example.com; content-encoding: gzip; {cookie}"
            ),
        ];
        let plain = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
             3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
             7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
             6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ];
        let huffman = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
             1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
             e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ];
        for blocks in [plain, huffman] {
            check(256, &std::array::from_fn::<_, 3, _>(|i| (blocks[i], &*lists[i])));
        }
    }

    #[test]
    fn invalid_hpack_is_refused() {
        refuse(&[0x80], HpackError::Index);
        refuse(&[0xbe], HpackError::Index);
        refuse(&[0xff], HpackError::Truncated);
        refuse(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], HpackError::Integer);
        refuse(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], HpackError::Integer);
        refuse(&[0x40, 0x05, b'a'], HpackError::Truncated);
        refuse(&[0x40, 0x01, b'a', 0x81, 0x00], HpackError::Huffman);
        refuse(&[0x3f, 0xe2, 0x1f], HpackError::SizeUpdate);
        refuse(&[0x82, 0x20], HpackError::SizeUpdate);
    }

    #[test]
    fn shrunk_table_must_be_acknowledged() {
        let mut decoder = Decoder::new(4096, 1 << 16);
        let mut out = Headers::new();
        decoder.set_table_limit(100);
        assert_eq!(decoder.decode(&[0x82], &mut out), Err(HpackError::SizeUpdate));
        assert!(decoder.decode(&[0x20, 0x3f, 0x45, 0x82], &mut out).is_ok());
        assert!(decoder.decode(&[0x82], &mut out).is_ok());
    }

    #[test]
    fn bomb_is_cut_and_table_in_step() {
        // A block of one-byte references to a 4000-byte entry would otherwise expand to 64 MB.
        let mut decoder = Decoder::new(4096, 8192);
        let mut block = vec![0x40, 0x01, b'a', 0x7f, 0xa1, 0x1e];
        block.extend_from_slice(&[b'v'; 4000]);
        block.extend_from_slice(&[0xbe; 16_000]);
        let mut out = Headers::new();
        let decoded = decoder.decode(&block, &mut out).unwrap();
        assert!(decoded.is_too_large);
        assert!(out.heap_bytes() < 20_000, "{}", out.heap_bytes());
        let decoded = decoder.decode(&[0xbe], &mut out).unwrap();
        assert!(!decoded.is_too_large && !decoded.is_timeless);
        assert_eq!(out.get(b"a").map(<[u8]>::len), Some(4000));
    }
}
