//! Checks the header of a protocol: fields in whole bytes, and a maximum size.

use weft_core::types::Type;
use weft_core::wire::{
    BinaryOp, Expr, FIELDS_MAX, Field, FieldId, HEADER_BYTES_MAX, Item, Protocol, REPEATS_MAX, Rule, Until,
    Width, bits_max,
};

use super::computed;
use super::expr::{self, ExprContext, Purpose, Typed};
use crate::ast::{
    self, ExprKind as Ast, Ident, ProtocolClause, WireField, WireItem, WireRuleKind, WireUntil, WireWidth,
};
use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;

/// A protocol whose header is known.
pub(super) struct Header<'a> {
    pub(super) ast: &'a ast::Protocol,
    pub(super) protocol: Protocol,
    /// The properties of each of [`Protocol::fields`].
    pub(super) infos: Vec<FieldInfo>,
    pub(super) repeats: Vec<Repeat>,
    /// `PAYLOAD ... WHEN (e)`: otherwise the payload is only bytes.
    pub(super) gate: Option<Expr>,
    /// Part of it is omitted because of an error, so a missing name may be declared there.
    pub(super) is_gappy: bool,
}

/// The properties of a field during checking.
pub(super) struct FieldInfo {
    pub(super) span: Span,
    pub(super) is_bytes: bool,
    /// The field has an error: checks that depend on it stay silent.
    pub(super) is_broken: bool,
    /// The minimum and the maximum of its value.
    pub(super) range: (u64, u64),
    /// The surrounding repetition, an index into [`Header::repeats`].
    pub(super) repeat: Option<usize>,
}

/// A repetition.
pub(super) struct Repeat {
    pub(super) name: String,
    span: Span,
    /// The maximum number of iterations.
    pub(super) max: u32,
    /// Fields up to its end.
    pub(super) n_before: usize,
}

/// Names with a different meaning in an expression.
const WORDS: [&str; 6] = ["header_bytes", "last", "payload_bytes", "peek", "rest", "round_bytes"];

impl Header<'_> {
    /// The declaration of a field that is not checked yet.
    pub(super) fn later(&self, name: &str) -> Option<Span> {
        fn find(items: &[WireItem], name: &str) -> Option<Span> {
            items.iter().find_map(|item| match item {
                WireItem::Field(field) => (field.name.name == name).then_some(field.name.span),
                WireItem::When { items, .. } | WireItem::Repeat { items, .. } => find(items, name),
            })
        }
        find(&self.ast.items, name)
    }
}

/// Checks the fields of a protocol, their rules, and its LENGTH.
pub(super) fn header<'a>(cx: &mut Cx<'_>, ast: &'a ast::Protocol) -> Header<'a> {
    let line = cx.line(ast.span);
    let is_clause = |clause: &ProtocolClause| matches!(clause, ProtocolClause::MalformedIsPayload { .. });
    let malformed_is_payload = ast.clauses.iter().any(is_clause);
    let protocol =
        Protocol { name: ast.name.name.clone(), malformed_is_payload, line, ..Protocol::default() };
    let (infos, repeats) = (Vec::new(), Vec::new());
    let header = Header { ast, protocol, infos, repeats, gate: None, is_gappy: false };
    let mut builder = Builder { cx, header, pending: Vec::new() };
    let place = ItemContext { repeat: None, is_optional: false };
    let (items, size) = builder.items(&ast.items, place);
    builder.header.protocol.items = items;
    builder.sizes(size);
    let rules = builder.rules();
    computed::check(builder.cx, &builder.header.protocol, &rules);
    builder.payload();
    builder.header
}

struct Builder<'b, 'c, 'a> {
    cx: &'b mut Cx<'c>,
    header: Header<'a>,
    /// Fields whose rules are checked when all fields are known.
    pending: Vec<(FieldId, &'a WireField, Option<usize>)>,
}

/// The context of items.
#[derive(Clone, Copy)]
struct ItemContext {
    repeat: Option<usize>,
    is_optional: bool,
}

/// How many bytes some items take.
#[derive(Clone, Copy, Default)]
struct ByteRange {
    min: u64,
    max: u64,
}

/// The bits since the last byte boundary.
#[derive(Default)]
struct PartialBytes {
    bits: u64,
    /// The first and the last field of these bits.
    spans: Option<(Span, Span)>,
    /// One of the fields has an error, so the number of bits is unknown.
    is_broken: bool,
}

impl<'a> Builder<'_, '_, 'a> {
    // ---- items -------------------------------------------------------------------------------------------------

    /// Checks the items of a header. Returns them with their possible size in bytes.
    fn items(&mut self, items: &'a [WireItem], place: ItemContext) -> (Vec<Item>, ByteRange) {
        let (mut done, mut size, mut open) = (Vec::new(), ByteRange::default(), PartialBytes::default());
        for item in items {
            let is_bits =
                matches!(item, WireItem::Field(field) if matches!(field.width, WireWidth::Bits { .. }));
            if !is_bits {
                self.close(&mut open, &mut size, Some(item.span()));
            }
            let added = match item {
                WireItem::Field(field) => {
                    if self.header.protocol.fields.len() >= FIELDS_MAX {
                        self.too_many_fields(field.span);
                        break;
                    }
                    let (id, added) = self.field(field, place, &mut open);
                    done.push(Item::Field(id));
                    added
                }
                WireItem::When { condition, items, .. } => {
                    let condition = self.condition(condition, place.repeat, Purpose::Before);
                    let (items, inner) = self.items(items, ItemContext { is_optional: true, ..place });
                    if let Some(condition) = condition {
                        done.push(Item::When { condition, items });
                    }
                    ByteRange { min: 0, max: inner.max }
                }
                WireItem::Repeat { name, items, until, max, span } => {
                    match self.repeat(name, items, until, max.as_ref(), *span, place) {
                        Some((item, added)) => {
                            done.push(item);
                            added
                        }
                        None => {
                            self.header.is_gappy = true;
                            ByteRange::default()
                        }
                    }
                }
            };
            size.min = size.min.saturating_add(added.min);
            size.max = size.max.saturating_add(added.max);
        }
        self.close(&mut open, &mut size, None);
        (done, size)
    }

    /// Ends a run of bit fields: it must fill whole bytes.
    fn close(&mut self, open: &mut PartialBytes, size: &mut ByteRange, before: Option<Span>) {
        let PartialBytes { bits, spans, is_broken } = core::mem::take(open);
        size.min = size.min.saturating_add(bits.div_ceil(8));
        size.max = size.max.saturating_add(bits.div_ceil(8));
        let (Some((first, last)), 1.., false) = (spans, bits % 8, is_broken) else { return };
        let missing = 8 - bits % 8;
        let message = format!("{bits} bits do not fill whole bytes");
        let mut diagnostic =
            Diagnostic::error(code::WIRE_ALIGNMENT, message).at(last, format!("{missing} more bits would"));
        if first != last {
            diagnostic = diagnostic.with_label(first, "first of these bits");
        }
        if let Some(before) = before {
            diagnostic = diagnostic.with_label(before, "must start at a byte boundary");
        }
        let help = format!("add `r{} bit({missing}) RESERVED`", self.header.protocol.fields.len());
        self.cx.report(diagnostic.with_help(help));
    }

    /// Checks a condition that reads the fields so far.
    fn condition(&mut self, ast: &ast::Expr, repeat: Option<usize>, purpose: Purpose) -> Option<Expr> {
        let at = ExprContext { purpose, n_before: self.header.infos.len(), repeat };
        let condition = expr::condition(self.cx, &self.header, at, ast);
        self.header.is_gappy |= condition.is_none();
        condition
    }

    fn before(&mut self, ast: &ast::Expr, repeat: Option<usize>) -> Option<Typed> {
        let at = ExprContext { purpose: Purpose::Before, n_before: self.header.infos.len(), repeat };
        expr::number(self.cx, &self.header, at, ast)
    }

    /// Reports more fields than the limit.
    fn too_many_fields(&mut self, span: Span) {
        let message = format!("a protocol has at most {FIELDS_MAX} fields");
        let help = "merge fields that are not read: `rest_of_it bytes(n)`";
        self.cx.fault(code::OVER_LIMIT, message, span, "one too many", help);
        self.header.is_gappy = true;
    }

    /// Checks a REPEAT. Nested ones are not supported.
    fn repeat(
        &mut self,
        name: &Ident,
        items: &'a [WireItem],
        until: &WireUntil,
        max: Option<&ast::Expr>,
        span: Span,
        place: ItemContext,
    ) -> Option<(Item, ByteRange)> {
        if let Some(outer) = place.repeat {
            return Diagnostic::error(
                code::NOT_IN_VERSION,
                "a nested REPEAT is not supported in this version",
            )
            .at(name.span, "the inner one")
            .with_label(self.header.repeats[outer].span, "the outer one")
            .with_help("declare the inner part as bytes: `options bytes(len)`")
            .refuse(self.cx);
        }
        // The COUNT is read before the first round.
        let early = match until {
            WireUntil::Count(e) | WireUntil::Bytes(e) => Some(self.before(e, None)),
            WireUntil::Condition(_) => None,
        };
        let at = self.header.repeats.len();
        let n_before = usize::MAX;
        self.header.repeats.push(Repeat { name: name.name.clone(), span: name.span, max: 0, n_before });
        let may_be_none = early.as_ref().is_some_and(|e| e.as_ref().is_none_or(|e| e.range.0 == 0));
        let inner = ItemContext { repeat: Some(at), is_optional: place.is_optional || may_be_none };
        let (items, round) = self.items(items, inner);
        let until = match (until, early) {
            (WireUntil::Condition(e), _) => self
                .condition(e, Some(at), Purpose::Until)
                .map(|e| (Until::Condition(e), u64::MAX, u64::MAX, 1)),
            (WireUntil::Count(_), Some(Some(e))) => {
                Some((Until::Count(e.expr), e.range.1, u64::MAX, e.range.0))
            }
            (WireUntil::Bytes(_), Some(Some(e))) => {
                let rounds = e.range.1.checked_div(round.min).unwrap_or(u64::MAX);
                Some((Until::Bytes(e.expr), rounds, e.range.1, u64::from(e.range.0 > 0)))
            }
            _ => None,
        };
        let field = self.rounds(name, place);
        self.header.repeats[at].n_before = self.header.infos.len();
        if round.min == 0 {
            let message = format!("a round of `{}` may be empty", name.name);
            let diagnostic = Diagnostic::error(code::WIRE_UNBOUNDED, message)
                .at(name.span, "would repeat without consuming any bytes")
                .with_help("add a field that is always present, outside of WHEN");
            self.cx.report(diagnostic);
        }
        let (until, rounds, bytes, rounds_min) = until?;
        let max = self.rounds_max(name, max, rounds)?;
        self.header.repeats[at].max = max;
        let size = ByteRange {
            min: round.min.saturating_mul(rounds_min.min(u64::from(max))),
            max: round.max.saturating_mul(u64::from(max)).min(bytes),
        };
        let (line, field) = (self.cx.line(span), field?);
        self.header.protocol.fields[usize::from(field.0)].width = Width::Rounds { max: size.max as u32 };
        Some((Item::Repeat { name: name.name.clone(), field, items, until, max, line }, size))
    }

    /// Reports a field whose name is already used.
    fn report_duplicate_name(&mut self, name: &Ident) {
        if let Some(first) = self.header.protocol.field(&name.name) {
            let first = self.header.infos[usize::from(first.0)].span;
            self.cx.report_duplicate("field", name, first);
        }
    }

    /// Adds the field that all rounds of a REPEAT form, with its name; its length is not known yet.
    fn rounds(&mut self, name: &Ident, place: ItemContext) -> Option<FieldId> {
        let id = FieldId(self.header.protocol.fields.len() as u16);
        if usize::from(id.0) >= FIELDS_MAX {
            self.too_many_fields(name.span);
            return None;
        }
        self.report_duplicate_name(name);
        let info = FieldInfo {
            span: name.span,
            is_bytes: true,
            is_broken: false,
            range: (0, 0),
            repeat: place.repeat,
        };
        self.header.infos.push(info);
        self.header.protocol.fields.push(Field {
            name: name.name.clone(),
            width: Width::Rounds { max: 0 },
            ty: Type::Bytes(None),
            rule: Rule::Plain,
            check: None,
            optional: place.is_optional,
            repeated: true,
            line: self.cx.line(name.span),
        });
        Some(id)
    }

    /// Returns the maximum number of rounds: as written, or as implied.
    fn rounds_max(&mut self, name: &Ident, max: Option<&ast::Expr>, rounds: u64) -> Option<u32> {
        let limit = u64::from(REPEATS_MAX);
        let Some(max) = max else {
            if rounds <= limit {
                return Some(rounds as u32);
            }
            let message = format!("`{}` may repeat more than {REPEATS_MAX} times", name.name);
            return Diagnostic::error(code::WIRE_UNBOUNDED, message)
                .at(name.span, "maximum missing")
                .with_help(format!(
                    "add `MAX 16`, or another number up to {REPEATS_MAX}: a header with more is malformed"
                ))
                .refuse(self.cx);
        };
        let n = self.int(max, "the MAX of a REPEAT")?;
        if !(1..=limit).contains(&n) {
            let message = format!("a REPEAT must have a MAX of 1 to {REPEATS_MAX}");
            let help = "declare longer parts as bytes: `options bytes(len)`";
            return self.cx.refuse(code::OVER_LIMIT, message, max.span, "outside the limits", help);
        }
        Some(n.min(rounds.max(1)) as u32)
    }

    /// Reads a literal number. `what` describes it in the error.
    fn int(&mut self, ast: &ast::Expr, what: &str) -> Option<u64> {
        if let Ast::Int(n) = ast.kind {
            return Some(n);
        }
        let help = "write a literal: a definition is the same for all frames";
        self.cx.refuse(code::NOT_CONSTANT, format!("{what} must be a number"), ast.span, "not a number", help)
    }

    // ---- fields ------------------------------------------------------------------------------------------------

    /// Checks a field: its name, width, type and rule.
    fn field(
        &mut self,
        field: &'a WireField,
        place: ItemContext,
        open: &mut PartialBytes,
    ) -> (FieldId, ByteRange) {
        let name = &field.name;
        let id = FieldId(self.header.protocol.fields.len() as u16);
        self.report_duplicate_name(name);
        if WORDS.contains(&name.name.as_str()) {
            let message = format!("`{}` is reserved in a wire format and cannot name a field", name.name);
            let help = format!("name it `{}_`", name.name);
            self.cx.fault(code::RESERVED_WORD, message, name.span, "taken", help);
        }
        let (width, size) = match &field.width {
            WireWidth::Bits { n, little } => (self.bits(field, n, *little, open), ByteRange::default()),
            WireWidth::Bytes { count, max } => match self.bytes(field, count, max.as_ref(), place) {
                Some((width, size)) => (Some(width), size),
                None => (None, ByteRange::default()),
            },
        };
        let is_broken = width.is_none();
        let width = width.unwrap_or(Width::Bits { n: 1, little: false });
        let ty = self.ty(field, &width, size);
        let range = match width {
            Width::Bits { n, .. } => (0, bits_max(n)),
            Width::Bytes { .. } | Width::Rounds { .. } => (0, 0),
        };
        let range = match &field.rule {
            Some(ast::WireRule {
                kind: WireRuleKind::Constant(ast::Expr { kind: Ast::Int(n), .. }), ..
            }) if *n <= range.1 && !place.is_optional => (*n, *n),
            _ => range,
        };
        let is_bytes = matches!(field.width, WireWidth::Bytes { .. });
        self.header.infos.push(FieldInfo {
            span: name.span,
            is_bytes,
            is_broken,
            range,
            repeat: place.repeat,
        });
        self.header.protocol.fields.push(Field {
            name: name.name.clone(),
            width,
            ty,
            rule: Rule::Plain,
            check: None,
            optional: place.is_optional,
            repeated: place.repeat.is_some(),
            line: self.cx.line(field.span),
        });
        self.pending.push((id, field, place.repeat));
        (id, size)
    }

    /// Checks the width of a bit field, and adds it to the open bytes.
    fn bits(
        &mut self,
        field: &WireField,
        n: &ast::Expr,
        little: Option<Span>,
        open: &mut PartialBytes,
    ) -> Option<Width> {
        let count = self.int(n, "the width of a field")?;
        let at = if open.is_broken { 0 } else { open.bits % 8 };
        let fault = if !(1..=64).contains(&count) {
            Some((
                format!("a field must have 1 to 64 bits, but this has {count}"),
                "use `bytes(n)` for wider fields",
            ))
        } else if at + count > 64 {
            let message = format!(
                "`{}` spans {} bytes; at most 8 are allowed",
                field.name.name,
                (at + count).div_ceil(8)
            );
            Some((message, "start it at a byte boundary, or split it"))
        } else if little.is_some() && (at != 0 || count % 8 != 0) {
            let message = "LITTLE is a byte order, but this field does not fill whole bytes".to_owned();
            Some((message, "use 16, 24, 32, ... bits, and start at a byte boundary"))
        } else {
            None
        };
        if let Some((message, help)) = fault {
            self.cx.fault(code::WIRE_WIDTH, message, field.span, "cannot be", help);
            open.is_broken = true;
            return None;
        }
        open.bits += count;
        let first = open.spans.map_or(field.span, |(first, _)| first);
        open.spans = Some((first, field.span));
        Some(Width::Bits { n: count as u8, little: little.is_some() && count > 8 })
    }

    /// Checks the length of a byte field and its maximum.
    fn bytes(
        &mut self,
        field: &WireField,
        count: &ast::Expr,
        max: Option<&ast::Expr>,
        place: ItemContext,
    ) -> Option<(Width, ByteRange)> {
        let limit = u64::from(HEADER_BYTES_MAX);
        let count_span = count.span;
        let count = self.before(count, place.repeat)?;
        let max = match max {
            Some(max) => self.int(max, "the length of a field")?,
            None => count.range.1,
        };
        let fault = if max > limit && count.range.1 == max {
            let message = format!("`{}` may be as long as {} bytes", field.name.name, count.range.1);
            let help = "add `MAX n`: a header with more is malformed";
            Some((code::WIRE_UNBOUNDED, message, count_span, "maximum missing", help))
        } else if max > limit || max == 0 {
            let message = format!("a field must have 1 to {limit} bytes");
            let help = "longer data belongs to the payload";
            Some((code::WIRE_WIDTH, message, field.span, "cannot be", help))
        } else {
            None
        };
        if let Some((code, message, span, label, help)) = fault {
            return Diagnostic::error(code, message).at(span, label).with_help(help).refuse(self.cx);
        }
        let max = max.min(count.range.1).max(1);
        let size = ByteRange { min: count.range.0.min(max), max };
        Some((Width::Bytes { count: count.expr, max: max as u32 }, size))
    }

    /// Returns the type of a field as a column: the declared one, or that of its width.
    fn ty(&mut self, field: &WireField, width: &Width, size: ByteRange) -> Type {
        let own = match width {
            Width::Bits { n: 1, .. } => Type::Bool,
            Width::Bits { n, .. } => Type::Uint(n.next_power_of_two().max(8)),
            Width::Bytes { .. } | Width::Rounds { .. } => Type::Bytes(None),
        };
        let Some(ast) = &field.ty else { return own };
        let Some(ty) = self.cx.type_expr(ast) else { return own };
        let is_exact = |n: u64| size.min == n && size.max == n;
        let (fits, help) = match (width, ty) {
            (Width::Bits { .. }, Type::Mac) => (false, "an address is `bytes(6) AS MAC`"),
            (Width::Bits { .. }, Type::IpAddr) => (false, "an address is `bytes(4) AS IPADDR`"),
            (Width::Bits { n, .. }, Type::Uint(bits)) if *n > 1 => (bits >= *n, "use that many bits"),
            (Width::Bits { .. }, ty) => (ty == own, "`bit(n)` is a number, and `bit(1)` may be BOOL"),
            (_, Type::Mac) => (is_exact(6), "a MAC is `bytes(6)`"),
            (_, Type::IpAddr) => (is_exact(4) || is_exact(16), "an IPADDR is `bytes(4)` or `bytes(16)`"),
            (_, Type::Text(None) | Type::Bytes(None)) => (true, ""),
            _ => (false, "bytes can be MAC, IPADDR, TEXT or BYTES"),
        };
        if !fits {
            let message = format!("`{}` cannot be {ty}", field.name.name);
            let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message).at(ast.span, "out of range");
            self.cx.report(diagnostic.with_help(help));
            return own;
        }
        ty
    }

    // ---- what holds of all -------------------------------------------------------------------------------------

    /// Stores the minimum and maximum size of the header. Reports one that is too long.
    fn sizes(&mut self, size: ByteRange) {
        let protocol = &mut self.header.protocol;
        let limit = u64::from(HEADER_BYTES_MAX);
        protocol.header_min = size.min.min(limit) as u32;
        protocol.header_max = size.max.min(limit) as u32;
        let name = &self.header.ast.name;
        if size.max > limit {
            let message = format!("the header of `{}` may be {} bytes long", name.name, size.max);
            let diagnostic = Diagnostic::error(code::WIRE_HEADER_TOO_LONG, message)
                .at(name.span, format!("the limit is {limit}"))
                .with_help("lower the MAX of its longest part, or move that part to the payload");
            self.cx.report(diagnostic);
        }
    }

    /// The rules of all fields, with their spans.
    fn rules(&mut self) -> Vec<(FieldId, Span)> {
        let mut spans = Vec::new();
        for (id, field, repeat) in core::mem::take(&mut self.pending) {
            if self.cx.is_at_limit() {
                break;
            }
            let rule = field.rule.as_ref().and_then(|rule| self.rule(id, field, rule, repeat));
            let at = ExprContext { repeat, ..ExprContext::whole(Purpose::Check) };
            let check = field.check.as_ref().and_then(|e| expr::condition(self.cx, &self.header, at, e));
            spans.extend(field.rule.as_ref().map(|rule| (id, rule.span)));
            let known = &mut self.header.protocol.fields[usize::from(id.0)];
            known.rule = rule.unwrap_or(Rule::Plain);
            known.check = check;
        }
        spans
    }

    /// Checks the rule of a field: a constant, DEFAULT, COMPUTED or RESERVED.
    fn rule(
        &mut self,
        id: FieldId,
        field: &WireField,
        rule: &ast::WireRule,
        repeat: Option<usize>,
    ) -> Option<Rule> {
        let info = &self.header.infos[usize::from(id.0)];
        let (is_bytes, is_broken) = (info.is_bytes, info.is_broken);
        if is_bytes && !matches!(rule.kind, WireRuleKind::Reserved) {
            let message = format!("`{}` is bytes, but a rule needs a number", field.name.name);
            let help = "bytes default to zero; use `bit(n)` for a rule, or mark the bytes RESERVED";
            return self.cx.refuse(code::WIRE_RULE, message, rule.span, "not for bytes", help);
        }
        let most = match self.header.protocol.fields[usize::from(id.0)].width {
            Width::Bits { n, .. } => bits_max(n),
            Width::Bytes { .. } | Width::Rounds { .. } => 0,
        };
        let fits = |n: u64| is_broken || n <= most;
        match &rule.kind {
            WireRuleKind::Reserved => Some(Rule::Reserved),
            WireRuleKind::Constant(e) => {
                let n = self.int(e, "the fixed value of a field")?;
                if !fits(n) {
                    self.too_large(field, n, e.span);
                    return None;
                }
                Some(Rule::Constant(n))
            }
            WireRuleKind::Default(e) => {
                let at = ExprContext { purpose: Purpose::Default, n_before: usize::from(id.0), repeat };
                let value = expr::number(self.cx, &self.header, at, e)?;
                if !self.fits_checksum(id, field, rule, &value.expr, most, repeat) {
                    return None;
                }
                if !fits(value.range.0) {
                    self.too_large(field, value.range.0, e.span);
                    return None;
                }
                Some(Rule::Default(value.expr))
            }
            WireRuleKind::Computed(e) => {
                let at = ExprContext { repeat, ..ExprContext::whole(Purpose::Computed) };
                let value = expr::number(self.cx, &self.header, at, e)?;
                let has_room = self.fits_checksum(id, field, rule, &value.expr, most, repeat);
                has_room.then_some(Rule::Computed(value.expr))
            }
        }
    }

    /// Whether a field has the exact width of its checksum, and is not in a REPEAT; reports an error otherwise.
    fn fits_checksum(
        &mut self,
        id: FieldId,
        field: &WireField,
        rule: &ast::WireRule,
        value: &Expr,
        most: u64,
        repeat: Option<usize>,
    ) -> bool {
        let wanted = match value {
            Expr::Checksum(weft_core::wire::Checksum::Crc32c) => u64::from(u32::MAX),
            Expr::Checksum(_) => u64::from(u16::MAX),
            _ => return true,
        };
        if wanted == most && repeat.is_none() {
            return wanted != u64::from(u16::MAX) || self.is_at_even_byte(id, field, rule);
        }
        let bits = 64 - wanted.leading_zeros();
        let message = format!("a checksum of {bits} bits does not fit `{}`", field.name.name);
        let diagnostic = Diagnostic::error(code::WIRE_RULE, message)
            .at(rule.span, "needs a field of its exact size, outside of a REPEAT")
            .with_help(format!("write `{} bit({bits}) COMPUTED (...)`", field.name.name));
        self.cx.report(diagnostic);
        false
    }

    /// Whether a 16-bit checksum starts at a 16-bit word boundary; reports an error otherwise. At another offset, the
    /// sum would not be what its receiver expects.
    fn is_at_even_byte(&mut self, id: FieldId, field: &WireField, rule: &ast::WireRule) -> bool {
        let Protocol { items, fields, .. } = &self.header.protocol;
        let mut at = Some(0);
        reach(items, fields, id, &mut at);
        // After a field with an error, the offset is unknown.
        let before = &self.header.infos[..usize::from(id.0)];
        let is_unknown = self.header.is_gappy || before.iter().any(|info| info.is_broken);
        if at == Some(0) || is_unknown {
            return true;
        }
        let name = &field.name.name;
        let (message, label, help) = match at {
            Some(_) => (
                format!("the checksum `{name}` begins at an odd byte"),
                "adds 16-bit words",
                format!("insert a byte before it: `pad bit(8) RESERVED, {name} bit(16) ...`"),
            ),
            None => (
                format!("the checksum `{name}` may begin at an odd byte"),
                "after a part that may have odd length",
                format!(
                    "declare `{name}` before the variable-length part, or make that part even: `bytes(2 * n)`"
                ),
            ),
        };
        let diagnostic = Diagnostic::error(code::WIRE_RULE, message).at(rule.span, label);
        self.cx.report(diagnostic.with_help(help));
        false
    }

    /// Reports a number that does not fit its field.
    fn too_large(&mut self, field: &WireField, n: u64, span: Span) {
        let message = format!("{n} does not fit `{}`", field.name.name);
        let help = "give the field more bits, or a smaller value";
        self.cx.fault(code::BAD_LITERAL, message, span, "too large", help);
    }

    /// Checks `LENGTH` and `WHEN` of the PAYLOAD.
    fn payload(&mut self) {
        let Some(payload) = &self.header.ast.payload else { return };
        if let Some(length) = &payload.length {
            let value =
                expr::number(self.cx, &self.header, ExprContext::whole(Purpose::Length), &length.value);
            self.header.protocol.length = value.map(|value| match length.of_layer {
                true => value.expr,
                false => expr::binary(BinaryOp::Add, Expr::HeaderBytes, value.expr),
            });
        }
        if let Some(when) = &payload.when {
            self.header.gate =
                expr::condition(self.cx, &self.header, ExprContext::whole(Purpose::Next), when);
        }
    }
}

/// Returns the offset of a field in bits, modulo a 16-bit word; None if it is unknown. Also returns whether the field
/// was reached.
fn reach(items: &[Item], fields: &[Field], wanted: FieldId, at: &mut Option<u64>) -> bool {
    const WORD: u64 = 16;
    for item in items {
        match item {
            Item::Field(id) if *id == wanted => return true,
            Item::Field(id) => {
                let bits = match &fields[usize::from(id.0)].width {
                    Width::Bits { n, .. } => Some(u64::from(*n)),
                    Width::Bytes { count, .. } => bytes_of(count).map(|n| 8 * (n % 2)),
                    Width::Rounds { .. } => None,
                };
                *at = at.zip(bits).map(|(at, bits)| (at + bits) % WORD);
            }
            Item::When { items, .. } | Item::Repeat { items, .. } => {
                let before = *at;
                if reach(items, fields, wanted, at) {
                    // Earlier rounds may have odd length, but no checksum is in a REPEAT.
                    return true;
                }
                *at = at.filter(|at| Some(*at) == before);
            }
        }
    }
    false
}

/// The number of bytes of a width, as far as needed for its parity.
fn bytes_of(count: &Expr) -> Option<u64> {
    match count {
        Expr::Int(n) => Some(*n),
        Expr::Binary(BinaryOp::Mul, a, b) => {
            [a, b].into_iter().find_map(|e| bytes_of(e).filter(|n| n % 2 == 0))
        }
        _ => None,
    }
}
