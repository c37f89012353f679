//! Native functions that search text: regular expressions and sets of texts, compiled once.

use aho_corasick::AhoCorasick;
use regex::{Regex, RegexBuilder};
use weft_core::native::PrepareError;
use weft_core::native::{Arg, Call, Ended, NATIVE_BYTES_MAX, Prepared};

/// Largest size of a compiled pattern in bytes.
pub const PATTERN_MEMORY_MAX: usize = 1 << 20;

fn regex(pattern: &str) -> Result<Regex, PrepareError> {
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_MEMORY_MAX).build();
    built.map_err(|error| PrepareError::Constant(format!("the regular expression cannot be used: {error}")))
}

/// The text of the first argument. TEXT is UTF-8; invalid bytes from a peer would match nothing.
fn text<'a>(call: &Call<'a>) -> Option<&'a str> {
    core::str::from_utf8(call.data()).ok()
}

/// `matches_any`.
#[derive(Debug)]
pub(crate) struct MatchesAny(AhoCorasick);

impl MatchesAny {
    /// Compiles a search for any of these texts. An error if one is empty or the searcher would be too big.
    pub(crate) fn new(texts: &[String]) -> Result<Self, PrepareError> {
        let refused = |why: &dyn core::fmt::Display| {
            PrepareError::Constant(format!("the texts cannot be looked for: {why}"))
        };
        if texts.iter().any(String::is_empty) {
            return Err(refused(&"one is empty, and stands in everything"));
        }
        AhoCorasick::new(texts).map(Self).map_err(|error| refused(&error))
    }
}

impl Prepared for MatchesAny {
    fn call(&self, call: &Call<'_>, _out: &mut Vec<u8>) -> Ended {
        Ended::Bool(self.0.is_match(call.data()))
    }
}

/// `regex_match`.
#[derive(Debug)]
pub(crate) struct Matches(Regex);

impl Matches {
    pub(crate) fn new(pattern: &str) -> Result<Self, PrepareError> {
        regex(pattern).map(Self)
    }
}

impl Prepared for Matches {
    fn call(&self, call: &Call<'_>, _out: &mut Vec<u8>) -> Ended {
        Ended::Bool(text(call).is_some_and(|text| self.0.is_match(text)))
    }
}

/// `regex_capture`.
#[derive(Debug)]
pub(crate) struct Capture(Regex);

impl Capture {
    pub(crate) fn new(pattern: &str) -> Result<Self, PrepareError> {
        regex(pattern).map(Self)
    }
}

impl Prepared for Capture {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let Some(&Arg::Int(n)) = call.args.get(1) else { return Ended::Failed };
        let (Some(text), Ok(n)) = (text(call), usize::try_from(n)) else { return Ended::Null };
        let found = match n {
            // The whole match needs no search for groups.
            0 => self.0.find(text),
            n => self.0.captures(text).and_then(|groups| groups.get(n)),
        };
        match found {
            Some(found) if found.len() <= NATIVE_BYTES_MAX => {
                out.extend_from_slice(found.as_str().as_bytes());
                Ended::Bytes
            }
            Some(_) => Ended::Failed,
            None => Ended::Null,
        }
    }
}

/// `regex_replace`.
#[derive(Debug)]
pub(crate) struct Replace {
    regex: Regex,
    by: String,
    /// `by` refers to no group.
    is_literal: bool,
}

impl Replace {
    pub(crate) fn new(pattern: &str, by: &str) -> Result<Self, PrepareError> {
        Ok(Self { regex: regex(pattern)?, by: by.to_owned(), is_literal: !by.contains('$') })
    }
}

impl Prepared for Replace {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let Some(text) = text(call) else { return Ended::Failed };
        let mut at = 0;
        let mut expanded = String::new();
        let fits = |out: &Vec<u8>| out.len() <= NATIVE_BYTES_MAX;
        if self.is_literal {
            for found in self.regex.find_iter(text) {
                out.extend_from_slice(&text.as_bytes()[at..found.start()]);
                out.extend_from_slice(self.by.as_bytes());
                at = found.end();
                if !fits(out) {
                    return Ended::Failed;
                }
            }
        } else {
            for groups in self.regex.captures_iter(text) {
                let found = groups.get_match();
                expanded.clear();
                groups.expand(&self.by, &mut expanded);
                out.extend_from_slice(&text.as_bytes()[at..found.start()]);
                out.extend_from_slice(expanded.as_bytes());
                at = found.end();
                if !fits(out) {
                    return Ended::Failed;
                }
            }
        }
        out.extend_from_slice(&text.as_bytes()[at..]);
        if fits(out) { Ended::Bytes } else { Ended::Failed }
    }
}
