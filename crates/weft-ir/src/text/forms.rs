//! The text form of declarations. Each form is described once, for the writer and the parser.
//!
//! ```text
//! match t0 by c1 desc
//!   part IPADDR nullable within c2 wild c2
//!   part U16 low c4 high c5
//! reshape U32 cut
//! reshape pop in3 to addresses in5 from 12 20 sum in6 at 6 zero_is_none
//! reshape pop in4 alone bytes 2 back 2 within 2 value 33024
//! reshape U32 push
//! stack "\45\00..." begins 4 6 value 72 24 big length 16 16 big 0 sum header at 24 from 14 to 34 number 0
//! ```

use super::ParseError;
use super::source_lines::{SourceLine, quote, write_float};
use super::words::{Ids, Item, Marked, Words};
use crate::ir::{Endian, named};
use crate::program::*;
use core::fmt::Write as _;
use weft_core::Interval;
use weft_core::list::EntryKey;
use weft_core::matching::{MatchPart, MatchSpec, Test};
use weft_core::native::{Native, NativeCost, NativeDecl};
use weft_core::table::{ColumnSpec, Evict, TableSpec};
use weft_core::types::{Type, Value};
use weft_core::wire::header_change::{
    AddressesIn, BitsAt, HeaderChange, Pop, Pseudo, PseudoSumIn, Relink, SpreadAt, Stack, SumAt,
};
use weft_core::wire::{Checksum, FieldId, FieldRef, LayerRef, ProtocolId, Spread};

/// Writes one part of a form.
macro_rules! write_part {
    ($out:ident, $word:literal) => {
        $out.extend([" ", $word]);
    };
    ($out:ident, ($word:literal {$prefix:literal $part:ident})) => {
        $part.write_ids($out, Some($word), $prefix);
    };
    ($out:ident, ($word:literal $part:ident)) => {
        $part.write_marked($out, $word);
    };
    ($out:ident, {$prefix:literal $part:ident}) => {
        $part.write_ids($out, None, $prefix);
    };
    ($out:ident, [$part:ident]) => {
        let _ = $part;
    };
    ($out:ident, $part:ident) => {
        $part.write($out);
    };
}

/// Reads one part of a form.
macro_rules! read_part {
    ($line:ident, $word:literal) => {
        $line.keyword($word)?;
    };
    ($line:ident, ($word:literal {$prefix:literal $part:ident})) => {
        let $part = Ids::read_ids($line, Some($word), $prefix)?;
    };
    ($line:ident, ($word:literal $part:ident)) => {
        let $part = Marked::read_marked($line, $word)?;
    };
    ($line:ident, {$prefix:literal $part:ident}) => {
        let $part = Ids::read_ids($line, None, $prefix)?;
    };
    ($line:ident, [$part:ident]) => {
        let $part = Default::default();
    };
    ($line:ident, $part:ident) => {
        let $part = Words::read($line)?;
    };
}

/// Describes the forms of types. The parts are, in order:
/// * `"word"`: this word;
/// * `part`: the form of the part;
/// * `{"in" part}`: a prefix and a number;
/// * `("word" part)`: the word if a flag is set; or, for an option or a list, the word in front of each item;
/// * `[part]`: nothing, because the part has lines of its own.
macro_rules! forms {
    ($($of:ty: [$($part:tt)*] => { $($build:tt)* })*) => {
        $(impl Words for $of {
            fn write(&self, out: &mut String) {
                let $($build)* = self;
                $(write_part!(out, $part);)*
            }

            fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
                $(read_part!(line, $part);)*
                Ok($($build)*)
            }
        })*
    };
}

/// Describes the forms of an enum, each with its first word.
macro_rules! variants {
    ($of:ty, $what:literal: $($word:literal [$($part:tt)*] => { $($build:tt)* })*) => {
        impl Words for $of {
            fn write(&self, out: &mut String) {
                match self {
                    $($($build)* => {
                        out.extend([" ", $word]);
                        $(write_part!(out, $part);)*
                    })*
                }
            }

            fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
                $(if line.eat_word($word) {
                    $(read_part!(line, $part);)*
                    return Ok($($build)*);
                })*
                Err(line.error($what))
            }
        }
    };
}

named! {
    Meta: "method" Method, "peer" Peer, "size" Size, "index" Index, "call_id" CallId, "status" Status,
        "elapsed" Elapsed, "upstream" Upstream, "ended_by" EndedBy, "version" Version, "port" Port,
        "packet_size" PacketSize, "flow" Flow, "is_icmp_error" IsIcmpError, "is_intact" IsIntact,
        "tunnel_depth" TunnelDepth, "tag" Tag, "label" Label, "path" Path;
    Evict: "reject" Reject, "oldest" Oldest, "lru" Lru;
    Realisation: "replicated" Replicated, "striped" Striped, "locked" Locked, "per_worker" PerWorker;
    Merge: "sum" Sum, "max" Max, "min" Min;
    Checksum: "header" Header, "layer" Layer, "pseudo" Pseudo, "pseudo_or_zero" PseudoOrZero, "crc32c" Crc32c;
}

variants! { InputLocation, "where the input is: `body`, `header`, `meta`, ...":
    "body" [path] => { Self::Body(path) }
    "entry" [path key] => { Self::Entry(path, key) }
    "present" [path] => { Self::Present(path) }
    "list" [path "max" elements_max ("of" members)] => { Self::List(ListLocation { path, elements_max, members }) }
    "header" [name] => { Self::Header(name) }
    "trailer" [name] => { Self::Trailer(name) }
    "key" [number] => { Self::Key(number) }
    "meta" [meta] => { Self::Meta(meta) }
    "frame" [field] => { Self::Frame(field) }
    "layer" [layer] => { Self::Layer(layer) }
}

variants! { EntryKey, "`number` or `key`":
    "number" [key] => { Self::Number(key) }
    "key" [key] => { Self::Text(key) }
}

variants! { SinkTarget, "`stdout`, `file`, `metric`, `put` or `delete`":
    "stdout" [] => { Self::Stdout }
    "metric" [] => { Self::Metrics }
    "file" [path] => { Self::File(path) }
    "put" [owner table] => { Self::Table { owner, table, deletes: false } }
    "delete" [owner table] => { Self::Table { owner, table, deletes: true } }
}

variants! { FieldLayout, "`bytes` or `bits`":
    "bytes" [] => { Self::Bytes }
    "bits" [bytes shift bits endian] => { Self::Bits { bytes, shift, bits, endian } }
}

variants! { HeaderChange, "`cut`, `fragment`, `pop` or `push`":
    "cut" [] => { Self::Cut }
    "fragment" [] => { Self::Fragment }
    "pop" [{"in" layer} how pseudo] => { Self::Pop { layer, how, pseudo } }
    "push" [("behind" behind) [stacks]] => { Self::Push { behind, stacks } }
}

variants! { Pop, "`to` or `alone`":
    "to" [] => { Self::To }
    "alone" [relink] => { Self::Alone(relink) }
}

forms! {
    Input: [name ty ("nullable" nullable) place ("written" written)] => {
        Input { name, ty, nullable, place, written }
    }
    TableDecl: [
        owner name "as" realisation "max" max_rows "evict" evict ("ttl" ttl) ("on_access" ttl_on_access)
        ("ttl_on_insert" ttl_on_insert) ("shared" shared) ("stripes" stripes) [key] [columns] [rows]
    ] => {
        TableDecl {
            owner,
            spec: TableSpec {
                name, key, columns, max_rows, evict, ttl, ttl_on_access, ttl_on_insert, shared, stripes,
            },
            realisation,
            rows,
        }
    }
    ColumnSpec: [name ty ("nullable" nullable) "=" default] => { ColumnSpec { name, ty, nullable, default } }
    MatchDecl: [table "by" {"c" by} ("desc" descending) [parts]] => {
        MatchDecl { table, spec: MatchSpec { by, descending, parts } }
    }
    MatchPart: [ty ("nullable" nullable) test ("wild" {"c" wildcard})] => {
        MatchPart { ty, nullable, test, wildcard }
    }
    VarDecl: [owner name ty "word" word "start" start ("merge" merge)] => {
        VarDecl { owner, name, ty, word, start, merge }
    }
    SinkDecl: [owner name target format [columns]] => { SinkDecl { owner, name, target, format, columns } }
    SinkColumn: [name ty] => { SinkColumn { name, ty } }
    CallCell: [owner name ty "word" word] => { CallCell { owner, name, ty, word } }
    AnswerName: [name] => { AnswerName { name } }
    ReplyField: [path ty] => { ReplyField { path, ty } }
    NativeDecl: [
        name native "site" site "cost" base_ns ns_per_kib ("constant" constants) ("option" options)
    ] => {
        NativeDecl { name, native, site, cost: NativeCost { base_ns, ns_per_kib }, constants, options }
    }
    (String, Value): [name set] => { (name, set) }
    Element: [name element ("mandatory" mandatory) ("fail_open" fail_open) [handlers]] => {
        Element { name, element, mandatory, fail_open, handlers }
    }
    Check: [protocol what "line" line] => { Check { protocol, what, line } }
    FieldWrite: [at ("sum" sums)] => { FieldWrite { at, sums } }
    Sum: [
        {"in" input} ("pseudo" pseudo) ("zero_is_none" zero_is_none) ("covers" {"in" covers})
    ] => {
        Sum { input, pseudo, zero_is_none, covers }
    }
    Carried: [{"in" packet} ("tunnel" {"in" tunnel}) ("gives" {"in" inherited})] => {
        Carried { packet, tunnel, inherited }
    }
    HeaderChangeDecl: [params what] => { HeaderChangeDecl { params, what } }
    Pseudo: [("addresses" addresses) ("sum" sums)] => { Pseudo { addresses, sums } }
    AddressesIn: [{"in" layer} ("from" ranges)] => { AddressesIn { layer, ranges } }
    PseudoSumIn: [{"in" layer} "at" at ("zero_is_none" zero_is_none)] => {
        PseudoSumIn { layer, at, zero_is_none }
    }
    (u16, Relink): [header relink] => { (header, relink) }
    Relink: ["bytes" bytes "back" back "within" within "value" value] => {
        Relink { bytes, back, within, value }
    }
    Stack: [
        bytes ("begins" begins) ("value" values) ("length" lengths) ("spread" spreads) ("sum" sums)
        ("pseudo" pseudo) ("owed" owed)
    ] => {
        Stack { bytes, begins, values, lengths, spreads, sums, pseudo, owed }
    }
    (u8, u64): [bits value] => { (bits, value) }
    (u32, u32): [from to] => { (from, to) }
    (BitsAt, i64): [place add] => { (place, add) }
    SpreadAt: [place "from" from ("ip" is_ip) spread] => { SpreadAt { place, from, is_ip, spread } }
    SumAt: [sum "at" at "from" from "to" to "number" number ("address" addresses)] => {
        SumAt { sum, at, header: (from, to), number, addresses }
    }
}

impl Words for BitsAt {
    fn write(&self, out: &mut String) {
        let endian = if self.little { Endian::Little } else { Endian::Big };
        _ = write!(out, " {} {}", self.at, self.bits);
        endian.write(out);
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let (at, bits) = (line.number()?, line.number()?);
        Ok(Self { at, bits, little: Endian::read(line)? == Endian::Little })
    }
}

impl Words for Spread {
    fn write(&self, out: &mut String) {
        _ = write!(out, " low {} of {}", self.low, self.n);
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        line.keyword("low")?;
        let low = line.number()?;
        line.keyword("of")?;
        let none = line.error("a number above 0");
        let n = line.number()?;
        if n == 0 { Err(none) } else { Ok(Self { low, n }) }
    }
}

impl Words for SinkFormat {
    fn write(&self, out: &mut String) {
        (*self == Self::Text).write_marked(out, "as_text");
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        Ok(if line.eat_word("as_text") { Self::Text } else { Self::Json })
    }
}

impl Words for Test {
    fn write(&self, out: &mut String) {
        _ = match self {
            Self::Equal(column) => write!(out, " equal c{column}"),
            Self::Within(column) => write!(out, " within c{column}"),
            Self::Masked { mask, bits } => write!(out, " mask c{mask} bits c{bits}"),
            Self::Range { low, high } => {
                low.write_ids(out, Some("low"), "c");
                high.write_ids(out, Some("high"), "c");
                Ok(())
            }
        };
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let mut column = |word| Ids::read_ids(line, Some(word), "c");
        Ok(match (column("equal")?, column("within")?, column("mask")?) {
            (Some(column), ..) => Self::Equal(column),
            (_, Some(column), _) => Self::Within(column),
            // A missing column gets a number that the verifier refuses.
            (.., Some(mask)) => Self::Masked { mask, bits: column("bits")?.unwrap_or(u16::MAX) },
            _ => Self::Range { low: column("low")?, high: column("high")? },
        })
    }
}

/// `0 p1 f4 p2 f3`; the layer itself has no fields. A trailing `last` refers to the last such layer.
impl Words for FieldRef {
    fn write(&self, out: &mut String) {
        _ = write!(out, " {}", self.layer.level);
        for (at, protocol) in self.layer.protocols.iter().enumerate() {
            _ = write!(out, " p{}", protocol.0);
            if let Some(field) = self.fields.as_ref().and_then(|fields| fields.get(at)) {
                _ = write!(out, " f{}", field.0);
            }
        }
        self.last.write_marked(out, "last");
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let (level, mut protocols, mut fields) = (line.number()?, Vec::new(), Vec::new());
        while line.peek_word().starts_with('p') {
            protocols.push(ProtocolId(line.id("p")?));
            if line.peek_word().starts_with('f') {
                fields.push(FieldId(line.id("f")?));
            }
        }
        let fields = (!fields.is_empty()).then_some(fields);
        Ok(Self { layer: LayerRef { level, protocols }, fields, last: line.eat_word("last") })
    }
}

impl Words for LayerRef {
    fn write(&self, out: &mut String) {
        FieldRef { layer: self.clone(), fields: None, last: false }.write(out);
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        FieldRef::read(line).map(|field| field.layer)
    }
}

/// A path: all quoted names that follow.
impl Words for Vec<String> {
    fn write(&self, out: &mut String) {
        self.iter().for_each(|name| name.write(out));
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let mut path = Self::new();
        while line.is_text() {
            path.push(line.text()?);
        }
        Ok(path)
    }
}

/// Types: all that follow, in upper case.
impl Words for Vec<Type> {
    fn write(&self, out: &mut String) {
        self.iter().for_each(|ty| ty.write(out));
    }

    fn read(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let mut types = Self::new();
        while line.peek_word().starts_with(|c: char| c.is_ascii_uppercase()) {
            types.push(Type::take(line)?);
        }
        Ok(types)
    }
}

impl Item for Native {
    fn put(&self, out: &mut String) {
        out.push_str(self.name());
    }

    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        let unknown = line.error("the name of a native function");
        line.word("the name of a native function")?.parse().map_err(|_| unknown)
    }
}

impl Item for Interval {
    fn put(&self, out: &mut String) {
        _ = write!(out, "{}", self.as_nanos());
    }

    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        line.number().map(Self)
    }
}

/// Types with a single-word name.
const TYPES: &[(&str, Type)] = &[
    ("BOOL", Type::Bool),
    ("F64", Type::F64),
    ("SIZE", Type::Size),
    ("INTERVAL", Type::Interval),
    ("TIMESTAMP", Type::Timestamp),
    ("IPADDR", Type::IpAddr),
    ("CIDR", Type::Cidr),
    ("MAC", Type::Mac),
    ("ENDPOINT", Type::Endpoint),
    ("STATUS", Type::Status),
];

impl Item for Type {
    fn put(&self, out: &mut String) {
        _ = write!(out, "{self}");
    }

    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        const EXPECTED: &str = "a type of the language";
        let bound = |line: &mut SourceLine<'_>| match line.eat('(') {
            true => line.number().and_then(|bound| line.expect(')').map(|()| Some(bound))),
            false => Ok(None),
        };
        if line.eat_word("TEXT") {
            return bound(line).map(Self::Text);
        }
        if line.eat_word("BYTES") {
            return bound(line).map(Self::Bytes);
        }
        let bits = |of: &str| of.parse().ok().filter(|bits| (1..=64).contains(bits));
        let integer = match line.peek_word().split_at_checked(1) {
            Some(("I", n)) => bits(n).map(Self::Int),
            Some(("U", n)) => bits(n).map(Self::Uint),
            _ => None,
        };
        match integer {
            Some(ty) => line.word(EXPECTED).map(|_| ty),
            None => line.one_of(TYPES, EXPECTED),
        }
    }
}

impl Item for Value {
    fn put(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(b) => _ = write!(out, "{b}"),
            Self::Int(n) => _ = write!(out, "{n}"),
            Self::Float(x) => {
                out.push_str("float ");
                write_float(out, *x);
            }
            Self::Bytes(bytes) => quote(out, bytes),
        }
    }

    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        if line.is_text() {
            return line.bytes().map(Self::Bytes);
        }
        let words = [("null", Self::Null), ("true", Self::Bool(true)), ("false", Self::Bool(false))];
        for (word, value) in words {
            if line.eat_word(word) {
                return Ok(value);
            }
        }
        match line.eat_word("float") {
            true => line.float().map(Self::Float),
            false => line.number().map(Self::Int),
        }
    }
}
