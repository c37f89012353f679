//! Converts locations to the protocol's form: files to URIs, offsets to lines and UTF-16 units.

use lsp_types::{Position, Range, Uri};
use std::path::Path;
use std::str::FromStr as _;
use weft_lang::source::{SourceFile, Span};

/// The byte offset of a position. A position beyond its line, or the text, means the end; one inside a character means
/// its first byte.
pub(super) fn offset_of(file: &SourceFile, position: Position) -> u32 {
    if position.line >= file.n_lines() {
        return file.text().len() as u32;
    }
    let line = position.line + 1;
    let start = file.line_range(line).start;
    let mut units = 0;
    for (at, c) in file.line(line).char_indices() {
        units += c.len_utf16() as u32;
        if units > position.character {
            return (start + at) as u32;
        }
    }
    (start + file.line(line).len()) as u32
}

/// The position of a byte offset.
pub(super) fn position_of(file: &SourceFile, offset: u32) -> Position {
    let line = file.position(offset).line;
    let start = file.line_range(line).start;
    let mut end = (offset as usize).min(file.text().len());
    while !file.text().is_char_boundary(end) {
        end -= 1;
    }
    let units: usize = file.text()[start..end.max(start)].chars().map(char::len_utf16).sum();
    Position { line: line - 1, character: units as u32 }
}

/// The range of a span.
pub(super) fn range_of(file: &SourceFile, span: Span) -> Range {
    Range { start: position_of(file, span.start), end: position_of(file, span.end) }
}

/// The front end's name of a file: its path, or the whole URI if it is not a file URI.
pub(super) fn name_of(uri: &Uri) -> String {
    let Some(path) = uri.as_str().strip_prefix("file://") else { return uri.as_str().to_owned() };
    // `file://host/path`: the host is ignored.
    let path = path.find('/').map_or(path, |at| &path[at..]);
    decoded(path)
}

/// The URI of a file by its name.
pub(super) fn uri_of(name: &str) -> Option<Uri> {
    if !Path::new(name).is_absolute() {
        return Uri::from_str(name).ok();
    }
    let mut text = String::from("file://");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    Uri::from_str(&text).ok()
}

/// Decodes `%20` and the like in a path; an invalid result stays undecoded.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_lang::source::SourceMap;

    /// A position that is off by one unit puts an edit into the middle of a name.
    #[test]
    fn positions_count_utf16_units() {
        let mut sources = SourceMap::new();
        let id = sources.add("a.weft", "aé𝄞b\r\nx").expect("it is small");
        let file = sources.file(id);
        let at = |line, character| Position { line, character };
        for (offset, position) in
            [(0, at(0, 0)), (1, at(0, 1)), (3, at(0, 2)), (7, at(0, 4)), (8, at(0, 5)), (10, at(1, 0))]
        {
            assert_eq!(position_of(file, offset), position, "{offset}");
            assert_eq!(offset_of(file, position), offset, "{position:?}");
        }
        // Inside a surrogate pair; after the line; after the text.
        assert_eq!(offset_of(file, at(0, 3)), 3);
        assert_eq!(offset_of(file, at(0, 99)), 8);
        assert_eq!(offset_of(file, at(9, 0)), 11);
        assert_eq!(position_of(file, 99), at(1, 1));
    }

    /// Files with spaces or non-ASCII letters in their paths would be taken for other files.
    #[test]
    fn file_names_survive_uris() {
        for name in ["/a/b.weft", "/a b/ä%.weft", "/C:/x#y?.weft"] {
            let uri = uri_of(name).expect("it is a URI");
            assert_eq!(name_of(&uri), name, "{}", uri.as_str());
        }
        let uri = |text: &str| Uri::from_str(text).expect("it is a URI");
        assert_eq!(name_of(&uri("file:///a%20b/%C3%A4.weft")), "/a b/ä.weft");
        assert_eq!(name_of(&uri("untitled:Untitled-1")), "untitled:Untitled-1");
        assert_eq!(
            uri_of("untitled:Untitled-1").map(|uri| uri.as_str().to_owned()).as_deref(),
            Some("untitled:Untitled-1")
        );
    }
}
