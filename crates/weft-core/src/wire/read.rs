//! Reads a frame layer by layer by its protocol definitions, and keeps all fields.
//!
//! It serves inspection, the oracle of compiled parsers, and the [frame properties](super::Formats) that a chain reads
//! on demand. The packet path has parsers that are compiled for the fields that their chain reads.

use super::eval::{self, EvalContext};
use super::{
    Checksum, Expr, Field, FieldId, FieldValue, Item, LAYERS_MAX, Next, Protocol, ProtocolId, Rule, Until,
    Width, as_on_wire,
};
use crate::Type;
use crate::checksum::{fold, sum};

/// Maximum number of layers of a frame.
const WALKED_MAX: usize = 1024;

/// The layers of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The well-formed layers, from the outside in.
    pub layers: Vec<Layer>,
    /// The fault of the next layer, if it is malformed.
    pub malformed: Option<Malformed>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its protocol.
    pub protocol: ProtocolId,
    /// 0 for what arrived on the wire, plus one for each tunnel.
    pub level: u8,
    /// The offset of its first byte.
    pub start: usize,
    /// The end of its header.
    pub header_end: usize,
    /// The end of the layer.
    pub end: usize,
    /// Its fields in wire order; fields of a REPEAT once per round.
    pub fields: Vec<FoundField>,
}

/// A field that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundField {
    /// The field.
    pub field: FieldId,
    /// The byte in which it begins.
    pub at: usize,
    /// Its value.
    pub value: FieldValue,
}

/// A broken rule of a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The protocol.
    pub protocol: ProtocolId,
    /// The fault: `truncated`.
    pub what: String,
    /// The line of the rule.
    pub line: u32,
}

/// Reads a frame that begins with one of `roots`: the first one whose constant first field matches.
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
    /// Whether it is in the first fragment of a packet.
    pub(super) is_cut: bool,
    what: BrokenRule,
}

/// Walks the layers of a frame up to level `deepest` and calls `visit` for each, which returns whether to continue.
/// Returns the layer that breaks a rule, if that ends the walk.
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
        header.enter_next(next, of(next.to));
    }
    None
}

/// The fault and the line of the rule.
type BrokenRule = (String, u32);

/// A header during and after reading.
pub(super) struct Header<'a> {
    pub(super) id: ProtocolId,
    pub(super) protocol: &'a Protocol,
    /// The edge to it; None for the first header.
    pub(super) by: Option<&'a Next>,
    pub(super) level: u8,
    frame: &'a [u8],
    pub(super) start: usize,
    /// The end of the layer.
    pub(super) end: usize,
    /// Whether the layer continues in other frames.
    pub(super) is_cut: bool,
    /// The current position in bits.
    at: usize,
    seen: Vec<FieldSpan>,
    /// The first field of this round in `seen`, and the first byte of the round.
    round_from: usize,
    round_start: usize,
    counts: Vec<(&'a str, u64)>,
    header_end: usize,
}

struct FieldSpan {
    field: FieldId,
    /// The byte in which it begins, and the byte behind it.
    at: usize,
    after: usize,
    /// Its value, for bit fields.
    number: Option<u64>,
    /// Whether it is inside a REPEAT.
    repeated: bool,
}

impl<'a> Header<'a> {
    /// Makes a reader at the first header of a frame.
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

    /// Moves to the next header, which follows by the rule `by`.
    fn enter_next(&mut self, by: &'a Next, protocol: &'a Protocol) {
        (self.id, self.protocol, self.by) = (by.to, protocol, Some(by));
        self.level += u8::from(by.inner);
        (self.start, self.at, self.round_start) = (self.header_end, 8 * self.header_end, self.header_end);
        self.round_from = 0;
        self.seen.clear();
        self.counts.clear();
    }

    /// Copies the current layer with its fields.
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

    /// The bytes of a field; empty if it is cut.
    fn bytes_of(&self, seen: &FieldSpan) -> &'a [u8] {
        self.frame.get(seen.at..seen.after).unwrap_or_default()
    }

    /// The bytes of the layer, to its end.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.frame.get(self.start..self.end).unwrap_or_default()
    }

    /// The bytes of its fields of this type, in order.
    pub(super) fn fields_of(&self, ty: Type) -> impl Iterator<Item = &'a [u8]> {
        let is_one = move |seen: &&FieldSpan| self.protocol.fields[usize::from(seen.field.0)].ty == ty;
        self.seen.iter().filter(is_one).map(|seen| self.bytes_of(seen))
    }

    /// The offset of a field in the layer, and its value, for a bit field.
    pub(super) fn number_at(&self, id: FieldId) -> Option<(usize, u64)> {
        self.field_span(id).and_then(|seen| Some((seen.at - self.start, seen.number?)))
    }

    /// Reads the current header and finds the ends of header and layer. An error names the broken rule and its line.
    fn read(&mut self) -> Result<(), BrokenRule> {
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

    /// Reads items in order, with conditional and repeated ones.
    fn items(&mut self, items: &'a [Item]) -> Result<(), BrokenRule> {
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
                    self.record_field(*field, start, None);
                }
            }
        }
        Ok(())
    }

    /// Reads a field at the current position and moves behind it.
    fn field(&mut self, id: FieldId) -> Result<(), BrokenRule> {
        let field = &self.protocol.fields[usize::from(id.0)];
        let at = self.at / 8;
        match &field.width {
            Width::Bits { n, little } => {
                let number = eval::bits(self.frame, self.at, usize::from(*n));
                self.at += usize::from(*n);
                self.record_field(id, at, Some(as_on_wire(number, u32::from(*n), *little)));
            }
            Width::Bytes { count, max } => {
                let count = eval::value(count, self);
                if count > u64::from(*max) {
                    return Err((format!("{} is too long", field.name), field.line));
                }
                self.at += 8 * count as usize;
                self.record_field(id, at, None);
            }
            Width::Rounds { .. } => {}
        }
        Ok(())
    }

    /// Records a field that ends here.
    fn record_field(&mut self, field: FieldId, at: usize, number: Option<u64>) {
        let repeated = self.protocol.fields[usize::from(field.0)].repeated;
        self.seen.push(FieldSpan { field, at, after: self.at.div_ceil(8), number, repeated });
    }

    /// Reads the items again until the condition, the count or the size is reached; `max` limits the rounds.
    fn repeat(
        &mut self,
        name: &'a str,
        items: &'a [Item],
        until: &'a Until,
        max: u64,
        line: u32,
    ) -> Result<(), BrokenRule> {
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

    /// Checks the rule of a field, such as a constant or a checksum. Absent fields pass.
    fn verify(&self, id: FieldId, field: &Field) -> Result<(), BrokenRule> {
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
            // The layers behind a first fragment are longer than the frame.
            Rule::Computed(expr) if self.is_cut && expr.depends_on_end() => {}
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

    /// Finds a field read before; a repeated field only in the current round.
    fn field_span(&self, id: FieldId) -> Option<&FieldSpan> {
        let is_repeated = self.protocol.fields[usize::from(id.0)].repeated;
        let from = if is_repeated { self.round_from } else { 0 };
        self.seen[from..].iter().find(|seen| seen.field == id && seen.repeated == is_repeated)
    }

    fn field_of(&self, id: FieldId) -> u64 {
        self.field_span(id).and_then(|seen| seen.number).unwrap_or(0)
    }
}

impl EvalContext for Header<'_> {
    fn field(&self, id: FieldId) -> u64 {
        self.field_of(id)
    }

    fn is_present(&self, id: FieldId) -> bool {
        self.field_span(id).is_some()
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
        self.end.saturating_sub(self.field_span(id).map_or(self.start, |seen| seen.after)) as u64
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
