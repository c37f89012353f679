//! Lists of a message in the form that programs read: repeated fields and maps.
//!
//! A program does not decode a list. The engine collects each list once into one run of bytes. The program reads words
//! and parts of that run:
//!
//! | bytes | content |
//! | --- | --- |
//! | 8 | the number of elements |
//! | [`CELL_BYTES`] for each member of each element | the cells of the first element, then of the second, and so on |
//! | the rest | the bytes that cells point to |
//!
//! A cell has two words, little-endian. Bit 0 of the second word is set if the member is present. For a number, the
//! first word is its value (a BOOL is 0 or 1, an F64 its bits). For bytes, the first word is their offset in the run,
//! and the upper bits of the second word are their length.
//!
//! A list with more elements than its reader takes has only the number of elements, and that number is not exact. A
//! missing list is an empty list.

/// Bytes of a cell.
pub const CELL_BYTES: usize = 16;
/// Bytes before the cells.
pub const HEAD_BYTES: usize = 8;

/// The key of an entry of a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryKey {
    /// A number of any kind as 64 bits (signed ones sign-extended); a BOOL is 0 or 1.
    Number(u64),
    /// A `string`.
    Text(String),
}

/// A member of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListCell<'a> {
    /// The member is absent.
    Absent,
    /// A number, as stored in the cell.
    Number(u64),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// Appends a list to `out`: the number of elements, then all cells, or none if there are too many elements.
pub fn write<'a>(n_elements: u64, cells: impl ExactSizeIterator<Item = ListCell<'a>>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&n_elements.to_le_bytes());
    let (mut at, n_cells) = (out.len(), cells.len());
    out.resize(at + n_cells * CELL_BYTES, 0);
    for cell in cells {
        let (a, b) = match cell {
            ListCell::Absent => (0, 0),
            ListCell::Number(n) => (n, 1),
            ListCell::Bytes(bytes) => {
                let place = (out.len() - start) as u64;
                out.extend_from_slice(bytes);
                (place, (bytes.len() as u64) << 1 | 1)
            }
        };
        out[at..at + 8].copy_from_slice(&a.to_le_bytes());
        out[at + 8..at + CELL_BYTES].copy_from_slice(&b.to_le_bytes());
        at += CELL_BYTES;
    }
    assert_eq!(at, start + HEAD_BYTES + n_cells * CELL_BYTES, "there are as many cells as promised");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_list_has_expected_cells() {
        // Programs would read members of the wrong elements.
        let cells = [ListCell::Number(7), ListCell::Bytes(b"ab"), ListCell::Absent, ListCell::Bytes(b"")];
        let mut out = b"before".to_vec();
        write(2, cells.into_iter(), &mut out);
        let list = &out[6..];
        let word = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().expect("eight bytes"));
        let words: Vec<u64> = (0..9).map(|nth| word(nth * 8)).collect();
        let rest = (HEAD_BYTES + 4 * CELL_BYTES) as u64;
        assert_eq!(words, [2, 7, 1, rest, 2 << 1 | 1, 0, 0, rest + 2, 1]);
        assert_eq!(&list[rest as usize..], b"ab");
    }
}
