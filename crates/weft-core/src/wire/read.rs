//! Reads a frame layer by layer, as its definitions say, and remembers all that it sees.
//!
//! This is for those who look at a frame, the oracle of compiled parsers, and what finds the [facts](super::Formats)
//! that a chain asks for now and then. The path of frames has a parser that is compiled for what its chain asks.

use super::eval::{self, EvalContext};
use super::{
    Checksum, Expr, Field, FieldId, FieldValue, Item, LAYERS_MAX, Next, Protocol, ProtocolId, Rule, Until,
    Width, as_on_wire,
};
use crate::Type;
use crate::checksum::{fold, sum};

/// Layers of a frame that are gone through.
const WALKED_MAX: usize = 1024;

/// What a frame is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Its layers from the outside in, as far as they are well-formed.
    pub layers: Vec<Layer>,
    /// What is wrong with the next, if something is.
    pub malformed: Option<Malformed>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its protocol.
    pub protocol: ProtocolId,
    /// 0 for what arrived on the wire, one more for each tunnel around it.
    pub level: u8,
    /// Where it begins.
    pub start: usize,
    /// Where its header ends.
    pub header_end: usize,
    /// Where it ends.
    pub end: usize,
    /// Its fields in the order of the wire; those of a REPEAT once for each round.
    pub fields: Vec<FoundField>,
}

/// A field that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundField {
    /// Which.
    pub field: FieldId,
    /// Where the byte is in which it begins.
    pub at: usize,
    /// What it holds.
    pub value: FieldValue,
}

/// A frame breaks a rule of a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Which protocol.
    pub protocol: ProtocolId,
    /// What is wrong: `truncated`.
    pub what: String,
    /// The line of the rule.
    pub line: u32,
}

/// Reads a frame that begins with one of `roots`: the first whose first field, if it is a constant, is right.
pub fn read(protocols: &[Protocol], roots: &[ProtocolId], frame: &[u8]) -> Reading {
    let mut reading = Reading::default();
    let levels = 0..super::LEVELS_MAX;
    let malformed = walk(protocols, roots, frame, levels.end - 1, &mut |header: &Header<'_>| {
        reading.layers.push(header.layer());
        reading.layers.len() < LAYERS_MAX as usize * levels.len()
    });
    reading.malformed =
        malformed.map(|BrokenLayer { protocol, what: (what, line), .. }| Malformed { protocol, what, line });
    reading
}

/// A layer that breaks a rule.
pub(super) struct BrokenLayer {
    pub(super) protocol: ProtocolId,
    /// It stands in the first fragment of a packet.
    pub(super) is_cut: bool,
    what: Breach,
}

/// Goes through the layers of a frame, as deep as level `deepest`, and shows each to `visit`, which says whether to go
/// on; what breaks a rule, if that ends it.
pub(super) fn walk(
    protocols: &[Protocol],
    roots: &[ProtocolId],
    frame: &[u8],
    deepest: u8,
    visit: &mut impl FnMut(&Header<'_>) -> bool,
) -> Option<BrokenLayer> {
    let (last, others) = roots.split_last()?;
    let of = |id: ProtocolId| &protocols[usize::from(id.0)];
    let begins = |root: &&ProtocolId| {
        let begins = of(**root).begins();
        begins.is_none_or(|(n, value)| eval::bits(frame, 0, usize::from(n)) == value)
    };
    let root = *others.iter().find(begins).unwrap_or(last);
    let mut header = Header::at_start(root, of(root), frame);
    for _ in 0..WALKED_MAX {
        if let Err(what) = header.read() {
            let is_payload = header.protocol.malformed_is_payload || header.by.is_some_and(|by| by.or_bytes);
            let Header { id, is_cut, .. } = header;
            return (!is_payload).then_some(BrokenLayer { protocol: id, is_cut, what });
        }
        if !visit(&header) {
            return None;
        }
        let nexts = header.protocol.next.iter();
        let next = nexts.clone().find(|next| eval::value(&next.condition, &header) != 0)?;
        if next.inner && header.level == deepest {
            return None;
        }
        header.go_on(next, of(next.to));
    }
    None
}

/// What is wrong, and the line of the rule.
type Breach = (String, u32);

/// A header that is being read, or was.
pub(super) struct Header<'a> {
    pub(super) id: ProtocolId,
    pub(super) protocol: &'a Protocol,
    /// By which way it was come to; None of the first.
    pub(super) by: Option<&'a Next>,
    pub(super) level: u8,
    frame: &'a [u8],
    pub(super) start: usize,
    /// Where the layer ends.
    pub(super) end: usize,
    /// More of it is in other frames.
    pub(super) is_cut: bool,
    /// Where it is, in bits.
    at: usize,
    seen: Vec<FieldSpan>,
    /// Where the fields of this round begin in `seen`, and its bytes in the frame.
    round_from: usize,
    round_start: usize,
    counts: Vec<(&'a str, u64)>,
    header_end: usize,
}

struct FieldSpan {
    field: FieldId,
    /// Where the byte is in which it begins, and that behind it.
    at: usize,
    after: usize,
    /// What it holds, of bits.
    number: Option<u64>,
    /// In which round of a REPEAT it stands.
    repeated: bool,
}

impl<'a> Header<'a> {
    fn at_start(id: ProtocolId, protocol: &'a Protocol, frame: &'a [u8]) -> Self {
        Self {
            id,
            protocol,
            by: None,
            level: 0,
            frame,
            start: 0,
            end: frame.len(),
            is_cut: false,
            at: 0,
            seen: Vec::new(),
            round_from: 0,
            round_start: 0,
            counts: Vec::new(),
            header_end: 0,
        }
    }

    /// On to the header behind it.
    fn go_on(&mut self, by: &'a Next, protocol: &'a Protocol) {
        (self.id, self.protocol, self.by) = (by.to, protocol, Some(by));
        self.level += u8::from(by.inner);
        (self.start, self.at, self.round_start) = (self.header_end, 8 * self.header_end, self.header_end);
        self.round_from = 0;
        self.seen.clear();
        self.counts.clear();
    }

    /// What was found.
    fn layer(&self) -> Layer {
        let found = |seen: &FieldSpan| {
            let bytes = || FieldValue::Bytes(self.bytes_of(seen).to_vec());
            FoundField {
                field: seen.field,
                at: seen.at,
                value: seen.number.map_or_else(bytes, FieldValue::Number),
            }
        };
        Layer {
            protocol: self.id,
            level: self.level,
            start: self.start,
            header_end: self.header_end,
            end: self.end,
            fields: self.seen.iter().map(found).collect(),
        }
    }

    /// The bytes of a field; what is cut off is none of it.
    fn bytes_of(&self, seen: &FieldSpan) -> &'a [u8] {
        self.frame.get(seen.at..seen.after).unwrap_or_default()
    }

    /// The bytes of the layer, to its end.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.frame.get(self.start..self.end).unwrap_or_default()
    }

    /// Where its fields of this type lie, in order.
    pub(super) fn fields_of(&self, ty: Type) -> impl Iterator<Item = &'a [u8]> {
        let is_one = move |seen: &&FieldSpan| self.protocol.fields[usize::from(seen.field.0)].ty == ty;
        self.seen.iter().filter(is_one).map(|seen| self.bytes_of(seen))
    }

    /// Where a field lies in the layer, and what it holds, if it is of bits.
    pub(super) fn number_at(&self, id: FieldId) -> Option<(usize, u64)> {
        self.seen(id).and_then(|seen| Some((seen.at - self.start, seen.number?)))
    }

    fn read(&mut self) -> Result<(), Breach> {
        let protocol = self.protocol;
        let truncated = || ("truncated".to_owned(), protocol.line);
        if self.start + protocol.header_min as usize > self.end {
            return Err(truncated());
        }
        self.items(&protocol.items)?;
        self.header_end = self.at / 8;
        if self.header_end > self.end {
            return Err(truncated());
        }
        if let Some(length) = &protocol.length {
            let stop =
                self.start.saturating_add(usize::try_from(eval::value(length, self)).unwrap_or(usize::MAX));
            if stop < self.header_end {
                return Err(("a length that is shorter than the header".to_owned(), protocol.line));
            }
            if stop > self.end && !self.is_cut {
                return Err(("a length that is beyond the end".to_owned(), protocol.line));
            }
            self.end = stop.min(self.end);
        }
        for (at, field) in protocol.fields.iter().enumerate().filter(|(_, field)| !field.repeated) {
            self.verify(FieldId(at as u16), field)?;
        }
        self.is_cut |= protocol.more_fragments().is_some_and(|field| self.field_of(field) != 0);
        Ok(())
    }

    fn items(&mut self, items: &'a [Item]) -> Result<(), Breach> {
        for item in items {
            match item {
                Item::Field(id) => self.field(*id)?,
                Item::When { condition, items } => {
                    if eval::value(condition, self) != 0 {
                        self.items(items)?;
                    }
                }
                Item::Repeat { name, field, items, until, max, line } => {
                    let start = self.at / 8;
                    self.repeat(name, items, until, u64::from(*max), *line)?;
                    self.note(*field, start, None);
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, id: FieldId) -> Result<(), Breach> {
        let field = &self.protocol.fields[usize::from(id.0)];
        let at = self.at / 8;
        match &field.width {
            Width::Bits { n, little } => {
                let number = eval::bits(self.frame, self.at, usize::from(*n));
                self.at += usize::from(*n);
                self.note(id, at, Some(as_on_wire(number, u32::from(*n), *little)));
            }
            Width::Bytes { count, max } => {
                let count = eval::value(count, self);
                if count > u64::from(*max) {
                    return Err((format!("{} is too long", field.name), field.line));
                }
                self.at += 8 * count as usize;
                self.note(id, at, None);
            }
            Width::Rounds { .. } => {}
        }
        Ok(())
    }

    /// Notes a field that ends here.
    fn note(&mut self, field: FieldId, at: usize, number: Option<u64>) {
        let repeated = self.protocol.fields[usize::from(field.0)].repeated;
        self.seen.push(FieldSpan { field, at, after: self.at.div_ceil(8), number, repeated });
    }

    fn repeat(
        &mut self,
        name: &'a str,
        items: &'a [Item],
        until: &'a Until,
        max: u64,
        line: u32,
    ) -> Result<(), Breach> {
        let truncated = || ("truncated".to_owned(), line);
        let start = self.at / 8;
        let (mut n_max, mut stop) = (u64::MAX, self.end);
        match until {
            Until::Condition(_) => {}
            Until::Count(count) => n_max = eval::value(count, self),
            Until::Bytes(bytes) => {
                let bytes = usize::try_from(eval::value(bytes, self)).unwrap_or(usize::MAX);
                stop = start.saturating_add(bytes);
                if stop > self.end {
                    return Err(truncated());
                }
            }
        }
        let outside = (self.round_from, self.round_start);
        let mut n = 0;
        while n < n_max && (!matches!(until, Until::Bytes(_)) || self.at / 8 < stop) {
            if n >= max {
                return Err((format!("more than {max} of {name}"), line));
            }
            (self.round_from, self.round_start) = (self.seen.len(), self.at / 8);
            self.items(items)?;
            if self.at / 8 > stop {
                return Err(truncated());
            }
            for item in items {
                if let Item::Field(id) = item {
                    self.verify(*id, &self.protocol.fields[usize::from(id.0)])?;
                }
            }
            n += 1;
            if let Until::Condition(condition) = until
                && eval::value(condition, self) != 0
            {
                break;
            }
        }
        (self.round_from, self.round_start) = outside;
        self.counts.push((name, n));
        Ok(())
    }

    fn verify(&self, id: FieldId, field: &Field) -> Result<(), Breach> {
        if !self.is_present(id) {
            return Ok(());
        }
        let name = &field.name;
        let wrong = |what: String| Err((what, field.line));
        match &field.rule {
            Rule::Constant(n) if self.field_of(id) != *n => return wrong(format!("{name} is not {n}")),
            Rule::Computed(Expr::Checksum(Checksum::Header)) => {
                let header = &self.frame[self.start..self.header_end];
                if fold(sum(header)) != 0xffff {
                    return wrong(format!("{name} does not hold"));
                }
            }
            // What is behind a first fragment is longer than what is here.
            Rule::Computed(expr) if self.is_cut && expr.looks_behind() => {}
            Rule::Computed(expr) if expr.is_verified() && eval::value(expr, self) != self.field_of(id) => {
                return wrong(format!("{name} is not what it says"));
            }
            _ => {}
        }
        match &field.check {
            Some(check) if eval::value(check, self) == 0 => wrong(format!("{name} does not pass its CHECK")),
            _ => Ok(()),
        }
    }

    fn seen(&self, id: FieldId) -> Option<&FieldSpan> {
        let is_repeated = self.protocol.fields[usize::from(id.0)].repeated;
        let from = if is_repeated { self.round_from } else { 0 };
        self.seen[from..].iter().find(|seen| seen.field == id && seen.repeated == is_repeated)
    }

    fn field_of(&self, id: FieldId) -> u64 {
        self.seen(id).and_then(|seen| seen.number).unwrap_or(0)
    }
}

impl EvalContext for Header<'_> {
    fn field(&self, id: FieldId) -> u64 {
        self.field_of(id)
    }

    fn is_present(&self, id: FieldId) -> bool {
        self.seen(id).is_some()
    }

    fn peek(&self, bits: u8) -> u64 {
        let fits = self.header_end + usize::from(bits).div_ceil(8) <= self.end;
        if fits { eval::bits(self.frame, 8 * self.header_end, usize::from(bits)) } else { 0 }
    }

    fn header_bytes(&self) -> u64 {
        (self.header_end - self.start) as u64
    }

    fn payload_bytes(&self) -> u64 {
        self.end.saturating_sub(self.header_end) as u64
    }

    fn bytes_after(&self, id: FieldId) -> u64 {
        self.end.saturating_sub(self.seen(id).map_or(self.start, |seen| seen.after)) as u64
    }

    fn round_bytes(&self) -> u64 {
        (self.at / 8 - self.round_start) as u64
    }

    fn rest(&self) -> u64 {
        self.end.saturating_sub(self.at / 8) as u64
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.iter().rev().find(|(known, _)| *known == name).map_or(0, |(_, n)| *n)
    }

    fn is_last(&self) -> bool {
        false
    }

    fn checksum(&self, _: Checksum) -> u64 {
        0
    }
}
