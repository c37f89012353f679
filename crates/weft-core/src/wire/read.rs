//! Reads a frame layer by layer, as its definitions say, and remembers all that it sees.
//!
//! This is for those who look at a frame, and the oracle of compiled parsers. The path of frames has a parser that is
//! compiled for what its chain asks.

use super::eval::{self, Sight};
use super::{
    Checksum, Expr, Field, FieldId, FieldValue, Item, LAYERS_MAX, Protocol, ProtocolId, Rule, Until, Width,
    as_on_wire,
};
use crate::checksum::{fold, sum};

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
    let Some((last, others)) = roots.split_last() else { return reading };
    let begins = |root: &&ProtocolId| {
        let begins = protocols[usize::from(root.0)].begins();
        begins.is_none_or(|(n, value)| eval::bits(frame, 0, usize::from(n)) == value)
    };
    let root = *others.iter().find(begins).unwrap_or(last);
    let mut here = Some((root, 0, 0, frame.len()));
    let mut is_cut = false;
    let mut n_layers = 0;
    while let Some((protocol, level, start, end)) = here.take() {
        n_layers += 1;
        if n_layers > usize::from(u16::MAX).min(LAYERS_MAX as usize * usize::from(super::LEVELS_MAX)) {
            break;
        }
        let definition = &protocols[usize::from(protocol.0)];
        let mut header = Header {
            protocol: definition,
            frame,
            start,
            end,
            is_cut,
            at: 8 * start,
            seen: Vec::new(),
            round_from: 0,
            round_start: start,
            counts: Vec::new(),
            header_end: start,
        };
        match header.read() {
            Err(_) if definition.malformed_is_payload => return reading,
            Err((what, line)) => {
                reading.malformed = Some(Malformed { protocol, what, line });
                return reading;
            }
            Ok(()) => {
                is_cut |= definition.more_fragments().is_some_and(|field| header.field_of(field) != 0);
                let next = definition.next.iter().find(|next| eval::value(&next.condition, &header) != 0);
                here = next
                    .map(|next| (next.to, level + u8::from(next.inner), header.header_end, header.end))
                    .filter(|(_, level, ..)| *level < super::LEVELS_MAX);
                let Header { end, header_end, seen, .. } = header;
                let fields = seen.into_iter().map(|seen| seen.found).collect();
                reading.layers.push(Layer { protocol, level, start, header_end, end, fields });
            }
        }
    }
    reading
}

/// What is wrong, and the line of the rule.
type Wrong = (String, u32);

/// A header that is being read.
struct Header<'a> {
    protocol: &'a Protocol,
    frame: &'a [u8],
    start: usize,
    /// Where the layer ends.
    end: usize,
    /// More of it is in other frames.
    is_cut: bool,
    /// Where it is, in bits.
    at: usize,
    seen: Vec<Seen>,
    /// Where the fields of this round begin in `seen`, and its bytes in the frame.
    round_from: usize,
    round_start: usize,
    counts: Vec<(String, u64)>,
    header_end: usize,
}

struct Seen {
    found: FoundField,
    after: usize,
    /// In which round of a REPEAT it stands.
    repeated: bool,
}

impl<'a> Header<'a> {
    fn read(&mut self) -> Result<(), Wrong> {
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
        Ok(())
    }

    fn items(&mut self, items: &'a [Item]) -> Result<(), Wrong> {
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
                    self.bytes(*field, start, self.at / 8);
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, id: FieldId) -> Result<(), Wrong> {
        let field = &self.protocol.fields[usize::from(id.0)];
        let at = self.at / 8;
        let value = match &field.width {
            Width::Bits { n, little } => {
                let number = eval::bits(self.frame, self.at, usize::from(*n));
                let number = as_on_wire(number, u32::from(*n), *little);
                self.at += usize::from(*n);
                FieldValue::Number(number)
            }
            Width::Bytes { count, max } => {
                let count = eval::value(count, self);
                if count > u64::from(*max) {
                    return Err((format!("{} is too long", field.name), field.line));
                }
                self.at += 8 * count as usize;
                self.bytes(id, at, self.at / 8);
                return Ok(());
            }
            Width::Rounds { .. } => return Ok(()),
        };
        self.note(FoundField { field: id, at, value });
        Ok(())
    }

    /// Notes a field of bytes; what is cut off is none of it.
    fn bytes(&mut self, id: FieldId, at: usize, end: usize) {
        let value = FieldValue::Bytes(self.frame.get(at..end).unwrap_or_default().to_vec());
        self.note(FoundField { field: id, at, value });
    }

    fn note(&mut self, found: FoundField) {
        let repeated = self.protocol.fields[usize::from(found.field.0)].repeated;
        self.seen.push(Seen { found, after: self.at.div_ceil(8), repeated });
    }

    fn repeat(
        &mut self,
        name: &str,
        items: &'a [Item],
        until: &'a Until,
        max: u64,
        line: u32,
    ) -> Result<(), Wrong> {
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
        self.counts.push((name.to_owned(), n));
        Ok(())
    }

    fn verify(&self, id: FieldId, field: &Field) -> Result<(), Wrong> {
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

    fn seen(&self, id: FieldId) -> Option<&Seen> {
        let is_repeated = self.protocol.fields[usize::from(id.0)].repeated;
        let from = if is_repeated { self.round_from } else { 0 };
        self.seen[from..].iter().find(|seen| seen.found.field == id && seen.repeated == is_repeated)
    }

    fn field_of(&self, id: FieldId) -> u64 {
        match self.seen(id).map(|seen| &seen.found.value) {
            Some(FieldValue::Number(number)) => *number,
            _ => 0,
        }
    }
}

impl Sight for Header<'_> {
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
        self.counts.iter().rev().find(|(known, _)| known == name).map_or(0, |(_, n)| *n)
    }

    fn is_last(&self) -> bool {
        false
    }

    fn checksum(&self, _: Checksum) -> u64 {
        0
    }
}
