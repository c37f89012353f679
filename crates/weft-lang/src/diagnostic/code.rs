//! The table of diagnostic codes. A code never changes its meaning and is never used again for another.

use super::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $title:literal;)*) => {
        $(#[doc = concat!("`", $code, "`: ", $title, ".")] pub const $name: Code = Code($code);)*

        /// Every code with its one-line title, in order.
        pub const ALL: &[(Code, &str)] = &[$(($name, $title)),*];
    };
}

codes! {
    // W00xx: what is read at all.
    SOURCE_TOO_LARGE = "W0001", "a source file is over the size limit";
    TOO_MANY_FILES = "W0002", "a program has too many files";
    NESTING_TOO_DEEP = "W0003", "the text nests deeper than the limit";
    EXPR_TOO_LARGE = "W0004", "an expression is larger than the limit";
    TOO_MANY_DIAGNOSTICS = "W0005", "more faults than are shown";

    // W01xx: syntax.
    BAD_CHARACTER = "W0101", "a character that has no meaning here";
    UNTERMINATED_STRING = "W0102", "a string without its closing quote";
    UNTERMINATED_COMMENT = "W0103", "a comment without its end";
    BAD_NUMBER = "W0104", "a number that cannot be read";
    UNEXPECTED = "W0105", "something else was expected here";
    UNKNOWN_KIND = "W0106", "there is no such kind of thing to create";
    KIND_NOT_IN_VERSION = "W0107", "a kind of the design that this version does not have";
    RESERVED_WORD = "W0108", "a keyword where a name must be";
    UNKNOWN_STATEMENT = "W0109", "there is no such statement";
    UNCLOSED_BLOCK = "W0110", "a block without its END";
    CHAINED_COMPARISON = "W0111", "comparisons do not chain";
    DECL_AFTER_HANDLER = "W0112", "a declaration after the first handler";
    MISSING_CLAUSE = "W0113", "a clause that must be written is missing";
    REPEATED_CLAUSE = "W0114", "a clause is written twice";
    BAD_TYPE_LENGTH = "W0115", "a length that this type does not take";
}

/// The title of a code, if it is in the table.
pub fn title(code: Code) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == code).map(|(_, title)| *title)
}
