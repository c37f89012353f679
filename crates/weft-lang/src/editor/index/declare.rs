//! Declares the names of items.

use super::{Index, SymbolId, SymbolKind};
use crate::ast::{
    Chain, ChainOptionKind, Decl, Element, Field, Ident, Item, Kind, Param, QueueDecl, Stage, StageNode,
    Table, TypeExpr, WireItem,
};
use crate::hir::Direction;
use crate::resolve::named;
use crate::source::Span;

impl Index {
    /// Adds a symbol with the span of its type.
    fn declare_typed(
        &mut self,
        kind: SymbolKind,
        (name, ty, whole): (&Ident, &TypeExpr, Span),
        owner: SymbolId,
    ) {
        let id = self.declare_symbol(kind, name, whole, Some(owner));
        self.symbols[id.0].ty = Some(ty.span);
    }

    /// Declares the names of an item.
    pub(super) fn declare(&mut self, item: &Item) {
        let Some((kind, name, _)) = named(item) else { return };
        let id = self.declare_symbol(SymbolKind::Item(kind), name, item.span(), None);
        match item {
            Item::Table(item) => self.declare_columns(item, id),
            Item::Element(item) => self.declare_element(item, id),
            Item::Filter(item) => {
                self.declare_head(&item.params, &[(&item.fields, Direction::Request)], id);
            }
            Item::Chain(item) => {
                for stage in stages(item) {
                    let name = stage.instance.as_ref().unwrap_or(&stage.element);
                    self.declare_symbol(SymbolKind::Instance, name, stage.span, Some(id));
                    if stage.instance.is_none() {
                        // Without AS, its name is that of the element, which is the use recorded here.
                        self.uses.pop();
                    }
                }
            }
            Item::Queue(item) => {
                self.declare_head(&item.params, &[], id);
                for decl in &item.decls {
                    if let QueueDecl::Var { var, span, .. } = decl {
                        self.declare_typed(SymbolKind::Var, (&var.name, &var.ty, *span), id);
                    }
                }
            }
            Item::Protocol(item) => self.declare_wire(&item.items, id),
            Item::Union(item) => {
                for column in &item.columns {
                    self.declare_symbol(SymbolKind::WireField, &column.name, column.span, Some(id));
                }
            }
            _ => {}
        }
    }

    /// Declares the fields of a wire format.
    fn declare_wire(&mut self, items: &[WireItem], owner: SymbolId) {
        for item in items {
            match item {
                WireItem::Field(field) => {
                    self.declare_symbol(SymbolKind::WireField, &field.name, field.span, Some(owner));
                }
                WireItem::When { items, .. } | WireItem::Repeat { items, .. } => {
                    self.declare_wire(items, owner);
                }
            }
        }
    }

    /// Declares the parameters, columns and declarations of an element.
    fn declare_element(&mut self, element: &Element, id: SymbolId) {
        let columns = [(&element.fields, Direction::Request), (&element.returns, Direction::Response)];
        self.declare_head(&element.params, &columns, id);
        for decl in &element.decls {
            match decl {
                Decl::Table(table) => {
                    let kind = SymbolKind::Item(Kind::Table);
                    let table_id = self.declare_symbol(kind, &table.name, table.span, Some(id));
                    self.declare_columns(table, table_id);
                }
                Decl::Var(var) => self.declare_typed(SymbolKind::Var, (&var.name, &var.ty, var.span), id),
                Decl::Call(call) => {
                    for Param { name, ty, span, .. } in &call.columns {
                        self.declare_typed(SymbolKind::CallCell, (name, ty, *span), id);
                    }
                }
                Decl::Sink(sink) => {
                    let sink_id = self.declare_symbol(SymbolKind::Sink, &sink.name, sink.span, Some(id));
                    for Field { name, ty, span } in &sink.columns {
                        self.declare_typed(SymbolKind::SinkColumn, (name, ty, *span), sink_id);
                    }
                }
                Decl::Sketch(sketch) => {
                    self.declare_symbol(SymbolKind::Sketch, &sketch.name, sketch.span, Some(id));
                }
                Decl::Edge(edge) => {
                    self.declare_symbol(SymbolKind::Edge, &edge.name, edge.span, Some(id));
                }
            }
        }
    }

    /// Parameters and columns of an element or a filter.
    fn declare_head(&mut self, params: &[Param], columns: &[(&Vec<Field>, Direction)], owner: SymbolId) {
        for Param { name, ty, span, .. } in params {
            self.declare_typed(SymbolKind::Param, (name, ty, *span), owner);
        }
        for (fields, direction) in columns {
            for Field { name, ty, span } in *fields {
                self.declare_typed(SymbolKind::Column(*direction), (name, ty, *span), owner);
            }
        }
    }

    /// Declares the columns of a table.
    fn declare_columns(&mut self, table: &Table, id: SymbolId) {
        for column in &table.columns {
            self.declare_typed(SymbolKind::TableColumn, (&column.name, &column.ty, column.span), id);
        }
    }
}

/// Iterates over the stages of a chain and of its branches.
pub(super) fn stages(chain: &Chain) -> impl Iterator<Item = &Stage> {
    let branches = chain.options.iter().filter_map(|option| match &option.kind {
        ChainOptionKind::Branch { stages, .. } => Some(stages),
        _ => None,
    });
    chain.stages.iter().chain(branches.flatten()).flat_map(|node| match node {
        StageNode::One(stage) => std::slice::from_ref(stage),
        StageNode::Group { stages, .. } => stages,
    })
}
