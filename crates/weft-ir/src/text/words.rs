//! Parts of the text form that are written and read alike.

use super::ParseError;
use super::source_lines::{SourceLine, quote, write_float};
use crate::ir::*;
use core::fmt::Write as _;
use weft_core::inputs::InputSet;

/// A field with one text.
pub(super) trait Item: Sized {
    fn put(&self, out: &mut String);
    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError>;
}

macro_rules! ids {
    ($($prefix:literal $of:ident),*) => {
        $(impl Item for $of {
            fn put(&self, out: &mut String) {
                let _ = write!(out, concat!($prefix, "{}"), self.0);
            }

            fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
                line.id($prefix).map(Self)
            }
        })*
    };
}
ids!("v" Value, "t" TableId, "c" ColumnId, "in" InputId, "call" CallId, "var" VarId, "s" SinkId, "n" NameId);
ids!("m" MatchId, "r" HeaderChangeId, "f" NativeId);

macro_rules! items {
    ($($of:ty: $item:ident, $out:ident => $put:expr, $line:ident => $take:expr;)*) => {
        $(impl Item for $of {
            fn put(&self, $out: &mut String) {
                let $item = self;
                let _ = $put;
            }

            fn take($line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
                $take
            }
        })*
    };
}
items! {
    bool: b, out => write!(out, "{b}"), line => line.one_of(&[("true", true), ("false", false)], "`true` or `false`");
    String: text, out => quote(out, text.as_bytes()), line => line.text();
    u8: n, out => write!(out, "{n}"), line => line.number();
    u16: n, out => write!(out, "{n}"), line => line.number();
    u32: n, out => write!(out, "{n}"), line => line.number();
    i64: n, out => write!(out, "{n}"), line => line.number();
    u64: n, out => write!(out, "{n}"), line => line.number();
    f64: x, out => write_float(out, *x), line => line.float();
    Vec<u8>: bytes, out => quote(out, bytes), line => line.bytes();
}

impl<T: Named> Item for T {
    fn put(&self, out: &mut String) {
        out.push_str(Named::name(*self));
    }

    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let names: Vec<String> = T::NAMES.iter().map(|(name, _)| format!("`{name}`")).collect();
        line.one_of(T::NAMES, &format!("one of {}", names.join(", ")))
    }
}

/// A part of a line: words that each follow a space.
pub(super) trait Words: Sized {
    fn write(&self, out: &mut String);
    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError>;
}

impl<T: Item> Words for T {
    fn write(&self, out: &mut String) {
        out.push(' ');
        self.put(out);
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        T::take(line)
    }
}

/// A flag, an option or a list. A word marks the flag or each item.
pub(super) trait Marked: Sized {
    fn write_marked(&self, out: &mut String, word: &str);
    fn read_marked(line: &mut SourceLine<'_>, word: &str) -> Result<Self, ParseError>;
}

impl Marked for bool {
    fn write_marked(&self, out: &mut String, word: &str) {
        if *self {
            out.extend([" ", word]);
        }
    }

    fn read_marked(line: &mut SourceLine<'_>, word: &str) -> Result<Self, ParseError> {
        Ok(line.eat_word(word))
    }
}

impl<T: Words> Marked for Option<T> {
    fn write_marked(&self, out: &mut String, word: &str) {
        if let Some(item) = self {
            out.extend([" ", word]);
            item.write(out);
        }
    }

    fn read_marked(line: &mut SourceLine<'_>, word: &str) -> Result<Self, ParseError> {
        line.eat_word(word).then(|| T::read(line)).transpose()
    }
}

impl<T: Words> Marked for Vec<T> {
    fn write_marked(&self, out: &mut String, word: &str) {
        for item in self {
            out.extend([" ", word]);
            item.write(out);
        }
    }

    fn read_marked(line: &mut SourceLine<'_>, word: &str) -> Result<Self, ParseError> {
        core::iter::from_fn(|| Option::read_marked(line, word).transpose()).collect()
    }
}

/// Numbers with a prefix, such as `in3`. A word marks each number of an option or a set.
pub(super) trait Ids: Sized {
    fn write_ids(&self, out: &mut String, word: Option<&str>, prefix: &str);
    fn read_ids(line: &mut SourceLine<'_>, word: Option<&str>, prefix: &str) -> Result<Self, ParseError>;
}

impl Ids for u16 {
    fn write_ids(&self, out: &mut String, word: Option<&str>, prefix: &str) {
        word.iter().for_each(|word| out.extend([" ", word]));
        _ = write!(out, " {prefix}{self}");
    }

    fn read_ids(line: &mut SourceLine<'_>, word: Option<&str>, prefix: &str) -> Result<Self, ParseError> {
        word.map_or(Ok(()), |word| line.keyword(word))?;
        line.id(prefix)
    }
}

impl Ids for Option<u16> {
    fn write_ids(&self, out: &mut String, word: Option<&str>, prefix: &str) {
        self.iter().for_each(|id| id.write_ids(out, word, prefix));
    }

    fn read_ids(line: &mut SourceLine<'_>, word: Option<&str>, prefix: &str) -> Result<Self, ParseError> {
        word.is_some_and(|word| line.eat_word(word)).then(|| line.id(prefix)).transpose()
    }
}

impl Ids for InputSet {
    fn write_ids(&self, out: &mut String, word: Option<&str>, prefix: &str) {
        self.into_iter().for_each(|at| (at as u16).write_ids(out, word, prefix));
    }

    fn read_ids(line: &mut SourceLine<'_>, word: Option<&str>, prefix: &str) -> Result<Self, ParseError> {
        let next = || Option::<u16>::read_ids(line, word, prefix).transpose();
        core::iter::from_fn(next).collect()
    }
}
