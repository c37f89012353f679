//! Writes and parses the text form of declared header changes.
//!
//! ```text
//! reshape U32 cut
//! reshape pop in3 to addresses in5 from 12 to 20 sum in6 at 6 zero_is_none
//! reshape pop in4 alone bytes 2 back 2 within 2 value 33024
//! reshape U32 push
//! stack "\45\00..." begins 4 6 value 72 24 big length 16 16 big 0 sum header at 24 from 14 to 34 number 0
//! ```

use super::ParseError;
use super::name_of;
use super::source_lines::{SourceLine, quote};
use crate::program::HeaderChangeDecl;
use core::fmt::Write as _;
use weft_core::types::Type;
use weft_core::wire::header_change::{
    AddressesIn, BitsAt, HeaderChange, Pop, Pseudo, PseudoSumIn, Relink, SpreadAt, Stack, SumAt,
};
use weft_core::wire::{Checksum, Spread};

const SUMS: &[(&str, Checksum)] = &[
    ("header", Checksum::Header),
    ("layer", Checksum::Layer),
    ("pseudo", Checksum::Pseudo),
    ("pseudo_or_zero", Checksum::PseudoOrZero),
    ("crc32c", Checksum::Crc32c),
];

/// Writes the declaration of a header change, which the parser reads back.
pub(super) fn write(out: &mut String, decl: &HeaderChangeDecl) {
    out.push_str("reshape");
    for ty in &decl.params {
        let _ = write!(out, " {ty}");
    }
    match &decl.what {
        HeaderChange::Cut => out.push_str(" cut\n"),
        HeaderChange::Fragment => out.push_str(" fragment\n"),
        HeaderChange::Pop { layer, how, pseudo } => {
            let _ = write!(out, " pop in{layer}");
            match how {
                Pop::To => out.push_str(" to"),
                Pop::Alone(relink) => {
                    out.push_str(" alone");
                    write_relink(out, relink);
                }
            }
            for AddressesIn { layer, ranges } in &pseudo.addresses {
                let _ = write!(out, " addresses in{layer}");
                ranges.iter().for_each(|(from, to)| _ = write!(out, " from {from} to {to}"));
            }
            for PseudoSumIn { layer, at, zero_is_none } in &pseudo.sums {
                let zero = if *zero_is_none { " zero_is_none" } else { "" };
                let _ = write!(out, " sum in{layer} at {at}{zero}");
            }
            out.push('\n');
        }
        HeaderChange::Push { behind, stacks } => {
            out.push_str(" push");
            if let Some((header, relink)) = behind {
                let _ = write!(out, " behind {header}");
                write_relink(out, relink);
            }
            out.push('\n');
            stacks.iter().for_each(|stack| write_stack(out, stack));
        }
    }
}

fn write_relink(out: &mut String, relink: &Relink) {
    let Relink { bytes, back, within, value } = relink;
    let _ = write!(out, " bytes {bytes} back {back} within {within} value {value}");
}

/// Writes the bytes of a header stack and the positions of the fields to fill in.
fn write_stack(out: &mut String, stack: &Stack) {
    out.push_str("stack ");
    quote(out, &stack.bytes);
    if let Some((bits, value)) = stack.begins {
        let _ = write!(out, " begins {bits} {value}");
    }
    let endian = |place: &BitsAt| if place.little { "little" } else { "big" };
    for place in &stack.values {
        let _ = write!(out, " value {} {} {}", place.at, place.bits, endian(place));
    }
    for (place, add) in &stack.lengths {
        let _ = write!(out, " length {} {} {} {add}", place.at, place.bits, endian(place));
    }
    for SpreadAt { place, from, is_ip, spread } in &stack.spreads {
        let _ = write!(out, " spread {} {} {} from {from}", place.at, place.bits, endian(place));
        let _ = write!(out, "{} low {} of {}", if *is_ip { " ip" } else { "" }, spread.low, spread.n);
    }
    for sum in &stack.sums {
        write_sum(out, "sum", sum);
    }
    for (from, to) in &stack.pseudo {
        let _ = write!(out, " pseudo {from} {to}");
    }
    if let Some(sum) = &stack.owed {
        write_sum(out, "owed", sum);
    }
    out.push('\n');
}

/// Writes a checksum under the name `what`.
fn write_sum(out: &mut String, what: &str, sum: &SumAt) {
    let (from, to) = sum.header;
    let kind = name_of(SUMS, sum.sum);
    let _ = write!(out, " {what} {kind} at {} from {from} to {to} number {}", sum.at, sum.number);
    for (from, to) in &sum.addresses {
        let _ = write!(out, " address {from} {to}");
    }
}

/// Reads the rest of a line behind `reshape`. A stack has a line of its own.
pub(super) fn parse(
    line: &mut SourceLine<'_>,
    ty: impl Fn(&mut SourceLine<'_>) -> Result<Type, ParseError>,
) -> Result<HeaderChangeDecl, ParseError> {
    let mut params = Vec::new();
    while !matches!(line.peek_word(), "cut" | "fragment" | "pop" | "push") {
        params.push(ty(line)?);
    }
    let what = match line.word("what it does")?.as_str() {
        "cut" => HeaderChange::Cut,
        "fragment" => HeaderChange::Fragment,
        "pop" => {
            let layer = line.id("in")?;
            let error = line.error("`to` or `alone`");
            let how = match line.word("how much")?.as_str() {
                "to" => Pop::To,
                "alone" => Pop::Alone(parse_relink(line)?),
                _ => return Err(error),
            };
            HeaderChange::Pop { layer, how, pseudo: parse_pseudo(line)? }
        }
        _ => {
            let behind = match line.eat_word("behind") {
                true => Some((line.number()?, parse_relink(line)?)),
                false => None,
            };
            HeaderChange::Push { behind, stacks: Vec::new() }
        }
    };
    Ok(HeaderChangeDecl { params, what })
}

/// Parses the positions of addresses and checksums for pseudo headers.
fn parse_pseudo(line: &mut SourceLine<'_>) -> Result<Pseudo, ParseError> {
    let mut pseudo = Pseudo::default();
    while line.eat_word("addresses") {
        let (layer, mut ranges) = (line.id("in")?, Vec::new());
        while line.eat_word("from") {
            let from = line.number()?;
            line.keyword("to")?;
            ranges.push((from, line.number()?));
        }
        pseudo.addresses.push(AddressesIn { layer, ranges });
    }
    while line.eat_word("sum") {
        let layer = line.id("in")?;
        line.keyword("at")?;
        let at = line.number()?;
        pseudo.sums.push(PseudoSumIn { layer, at, zero_is_none: line.eat_word("zero_is_none") });
    }
    Ok(pseudo)
}

/// Parses the link of a lower header to the next one.
fn parse_relink(line: &mut SourceLine<'_>) -> Result<Relink, ParseError> {
    line.keyword("bytes")?;
    let bytes = line.number()?;
    line.keyword("back")?;
    let back = line.number()?;
    line.keyword("within")?;
    let within = line.number()?;
    line.keyword("value")?;
    Ok(Relink { bytes, back, within, value: line.number()? })
}

/// Reads the rest of a line behind `stack`.
pub(super) fn parse_stack(line: &mut SourceLine<'_>) -> Result<Stack, ParseError> {
    let mut stack = Stack { bytes: line.bytes()?, ..Stack::default() };
    if line.eat_word("begins") {
        stack.begins = Some((line.number()?, line.number()?));
    }
    let place = |line: &mut SourceLine<'_>| {
        let (at, bits) = (line.number()?, line.number()?);
        let little = line.eat_word("little");
        if !little {
            line.keyword("big")?;
        }
        Ok(BitsAt { at, bits, little })
    };
    while line.eat_word("value") {
        stack.values.push(place(line)?);
    }
    while line.eat_word("length") {
        stack.lengths.push((place(line)?, line.number()?));
    }
    while line.eat_word("spread") {
        let place = place(line)?;
        line.keyword("from")?;
        let (from, is_ip) = (line.number()?, line.eat_word("ip"));
        line.keyword("low")?;
        let low = line.number()?;
        line.keyword("of")?;
        let none = line.error("a number above 0");
        let n = line.number()?;
        if n == 0 {
            return Err(none);
        }
        stack.spreads.push(SpreadAt { place, from, is_ip, spread: Spread { low, n } });
    }
    while line.eat_word("sum") {
        stack.sums.push(parse_sum(line)?);
    }
    while line.eat_word("pseudo") {
        stack.pseudo.push((line.number()?, line.number()?));
    }
    if line.eat_word("owed") {
        stack.owed = Some(parse_sum(line)?);
    }
    Ok(stack)
}

/// Parses what `write_sum` writes after the name.
fn parse_sum(line: &mut SourceLine<'_>) -> Result<SumAt, ParseError> {
    let sum = line.one_of(SUMS, "a checksum")?;
    line.keyword("at")?;
    let at = line.number()?;
    line.keyword("from")?;
    let from = line.number()?;
    line.keyword("to")?;
    let header = (from, line.number()?);
    line.keyword("number")?;
    let number = line.number()?;
    let mut addresses = Vec::new();
    while line.eat_word("address") {
        addresses.push((line.number()?, line.number()?));
    }
    Ok(SumAt { at, sum, header, addresses, number })
}
