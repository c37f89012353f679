//! Records the uses of names in wire formats.

use super::{Index, SymbolId, SymbolKind};
use crate::ast::{
    EncapSet, Expr, ExprKind, Kind, Path, PayloadChoice, Protocol, ProtocolClause, WireItem, WireRuleKind,
    WireUntil, WireWidth,
};

impl Index {
    /// Records the uses in a wire format.
    pub(super) fn protocol(&mut self, protocol: &Protocol) {
        let Some(&id) = self.declared.get(&protocol.name.span) else { return };
        self.wire_items(&protocol.items, id);
        if let Some(payload) = &protocol.payload {
            self.payload(&payload.choice, id);
            payload.length.iter().for_each(|length| self.wire_expr(&length.value, id));
            payload.when.iter().for_each(|when| self.wire_expr(when, id));
        }
        for clause in &protocol.clauses {
            match clause {
                ProtocolClause::Bind { lower, condition, otherwise, .. } => {
                    if let Some(lower) = self.record_member(None, lower, SymbolKind::Item(Kind::Protocol)) {
                        self.wire_expr(condition, lower);
                        otherwise.iter().for_each(|otherwise| self.wire_expr(otherwise, lower));
                    }
                }
                ProtocolClause::Encap { set, .. } => {
                    for EncapSet { field, value, .. } in set {
                        self.wire_path(field, None);
                        self.wire_expr(value, id);
                    }
                }
                ProtocolClause::SessionKey { fields, .. } => {
                    fields.iter().for_each(|path| self.wire_path(path, Some(id)));
                }
                ProtocolClause::Error { condition, .. } => self.wire_expr(condition, id),
                ProtocolClause::MalformedIsPayload { .. } => {}
            }
        }
    }

    /// Records the uses in the items of a wire format.
    fn wire_items(&mut self, items: &[WireItem], id: SymbolId) {
        for item in items {
            match item {
                WireItem::Field(field) => {
                    if let WireWidth::Bytes { count, .. } = &field.width {
                        self.wire_expr(count, id);
                    }
                    if let Some(WireRuleKind::Default(e) | WireRuleKind::Computed(e)) =
                        field.rule.as_ref().map(|rule| &rule.kind)
                    {
                        self.wire_expr(e, id);
                    }
                    field.check.iter().for_each(|check| self.wire_expr(check, id));
                }
                WireItem::When { condition, items, .. } => {
                    self.wire_expr(condition, id);
                    self.wire_items(items, id);
                }
                WireItem::Repeat { items, until, .. } => {
                    let (WireUntil::Condition(e) | WireUntil::Count(e) | WireUntil::Bytes(e)) = until;
                    self.wire_expr(e, id);
                    self.wire_items(items, id);
                }
            }
        }
    }

    /// Records the protocols that a payload names.
    fn payload(&mut self, choice: &PayloadChoice, id: SymbolId) {
        match choice {
            PayloadChoice::Bytes(_) => {}
            PayloadChoice::Protocol { name, .. } => {
                _ = self.record_member(None, name, SymbolKind::Item(Kind::Protocol))
            }
            PayloadChoice::Switch { on, arms, otherwise, .. } => {
                self.wire_expr(on, id);
                arms.iter().for_each(|arm| self.payload(&arm.choice, id));
                otherwise.iter().for_each(|choice| self.payload(choice, id));
            }
        }
    }

    /// Records the uses in `protocol.field`, `inner.protocol.field`, or `field` of a protocol.
    pub(super) fn wire_path(&mut self, path: &Path, own: Option<SymbolId>) {
        let names = match path.segments.as_slice() {
            [inner, rest @ ..] if inner.name == "inner" => rest,
            names => names,
        };
        let (owner, field) = match (names, own) {
            ([field], Some(own)) => (Some(own), Some(field)),
            ([protocol], None) => {
                (self.record_member(None, protocol, SymbolKind::Item(Kind::Protocol)), None)
            }
            ([protocol, field], _) => {
                (self.record_member(None, protocol, SymbolKind::Item(Kind::Protocol)), Some(field))
            }
            _ => (None, None),
        };
        if let (Some(owner), Some(field)) = (owner, field) {
            self.record_member(Some(owner), field, SymbolKind::WireField);
        }
    }

    /// Records the uses of a header's fields in an expression over it.
    fn wire_expr(&mut self, expr: &Expr, id: SymbolId) {
        match &expr.kind {
            ExprKind::Path(path) => self.wire_path(path, Some(id)),
            _ => expr.children().into_iter().for_each(|part| self.wire_expr(part, id)),
        }
    }
}
