//! Source texts, positions in them, and the limits of what the front end reads.
//!
//! A [`Span`] is three numbers and is only meaningful with the [`SourceMap`] that created its [`FileId`]. This keeps
//! syntax trees small and free of lifetimes. Offsets are bytes into the text, so every file is limited to
//! [`SOURCE_BYTES_MAX`], and a span never splits a character.

use std::fmt;

use crate::diagnostic::{Diagnostic, code};

/// Largest source file, in bytes. A network of ten thousand elements is about 2 MB of text.
pub const SOURCE_BYTES_MAX: usize = 4 << 20;

/// Most files in one program, imports included.
pub const SOURCE_FILES_MAX: usize = 4096;

/// The maximum number of syntax errors reported per file, and of semantic errors reported per program; at the limit,
/// parsing and checking stop.
pub const DIAGNOSTICS_MAX: usize = 100;

/// One file of a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId(pub u32);

/// A half-open range of bytes `start..end` in one file.
///
/// `{:?}` prints file and range. `{:#?}` prints `_`, so that the alternate debug form of a syntax tree is the tree
/// without its positions and two trees can be compared by shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// A span of `start..end` in `file`.
    pub const fn new(file: FileId, start: u32, end: u32) -> Self {
        Self { file, start, end }
    }

    /// The smallest span that covers both, which must be in the same file.
    pub fn to(self, other: Self) -> Self {
        debug_assert_eq!(self.file, other.file, "a span cannot cross files");
        Self { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The empty span before the first byte.
    pub const fn before(self) -> Self {
        Self { file: self.file, start: self.start, end: self.start }
    }

    /// The empty span after the last byte: the location of something missing.
    pub const fn after(self) -> Self {
        Self { file: self.file, start: self.end, end: self.end }
    }

    /// Length in bytes.
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// True if it covers no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes as an index range.
    pub const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.write_str("_");
        }
        write!(f, "{}:{}..{}", self.file.0, self.start, self.end)
    }
}

/// A line and column, both counted from 1. The column counts characters, not bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Line number from 1.
    pub line: u32,
    /// Column from 1, in characters.
    pub column: u32,
}

/// One named text with its line index.
#[derive(Clone, Debug)]
pub struct SourceFile {
    name: String,
    text: String,
    line_starts: Vec<u32>,
}

impl SourceFile {
    /// The name that diagnostics show, usually a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text, at most [`SOURCE_BYTES_MAX`] bytes.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte offset; an offset past the end counts as the end.
    pub fn position(&self, offset: u32) -> Position {
        let line = self.line_index(offset);
        let start = self.line_starts[line] as usize;
        let end = self.floor_char_boundary(offset).max(start);
        let column = self.text[start..end].chars().count();
        Position { line: line as u32 + 1, column: column as u32 + 1 }
    }

    /// The text of a line counted from 1, without its line break; empty if the line does not exist.
    pub fn line(&self, line: u32) -> &str {
        let range = self.line_range(line);
        self.text[range].trim_end_matches(['\n', '\r'])
    }

    /// The bytes of a line counted from 1, with its line break.
    pub fn line_range(&self, line: u32) -> std::ops::Range<usize> {
        let n_bytes = self.text.len();
        let start = |index: usize| self.line_starts.get(index).map_or(n_bytes, |start| *start as usize);
        start((line as usize).saturating_sub(1))..start(line as usize)
    }

    /// Number of lines; a text without a line break has one.
    pub fn n_lines(&self) -> u32 {
        self.line_starts.len() as u32
    }

    fn line_index(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    /// Returns the last character boundary at or before an offset.
    fn floor_char_boundary(&self, offset: u32) -> usize {
        let mut end = (offset as usize).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        end
    }
}

/// The files of one program. Append-only; a [`FileId`] stays valid.
#[derive(Clone, Default, Debug)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file and indexes its lines.
    ///
    /// # Errors
    /// A diagnostic without a span if the text is over [`SOURCE_BYTES_MAX`] or the map holds [`SOURCE_FILES_MAX`]
    /// files.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
    ) -> Result<FileId, Box<Diagnostic>> {
        let (name, text) = (name.into(), text.into());
        if text.len() > SOURCE_BYTES_MAX {
            let message =
                format!("`{name}` is too large: {} bytes; the limit is {SOURCE_BYTES_MAX}", text.len());
            let help = "split it and import the parts: `IMPORT 'part.weft';`";
            return Err(Box::new(Diagnostic::error(code::SOURCE_TOO_LARGE, message).with_help(help)));
        }
        if self.files.len() >= SOURCE_FILES_MAX {
            let message = format!("too many files at `{name}`: the limit is {SOURCE_FILES_MAX}");
            return Err(Box::new(Diagnostic::error(code::TOO_MANY_FILES, message)));
        }
        let id = FileId(self.files.len() as u32);
        let line_starts = line_starts(&text);
        self.files.push(SourceFile { name, text, line_starts });
        Ok(id)
    }

    /// The file of an id that this map gave.
    ///
    /// # Panics
    /// If the id comes from another map.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// The text of a span; empty if the span does not belong to this map.
    pub fn slice(&self, span: Span) -> &str {
        self.files.get(span.file.0 as usize).and_then(|file| file.text.get(span.range())).unwrap_or("")
    }

    /// The files in the order of their addition.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files.iter().enumerate().map(|(index, file)| (FileId(index as u32), file))
    }
}

fn line_starts(text: &str) -> Vec<u32> {
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0).chain(breaks.map(|(offset, _)| offset as u32 + 1)).collect()
}
