//! Reports a field that a chain sets and cannot set: where, what else uses it by another name, and which name
//! works.

use weft_core::wire::{FieldId, FieldRef, LayerRef, ProtocolId};
use weft_ir::program::{ChainProgram, InputLocation};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Network, Stmt, StmtKind};
use weft_lang::source::Span;

use super::{places, wire};

/// An element of a chain, and its instance in it.
pub(super) type Stage<'n> = (&'n hir::Element, &'n hir::Instance);

/// Returns the diagnostic for frames that cannot be read and written as the chain wants.
pub(super) fn refusal(
    network: &Network,
    program: &ChainProgram,
    stages: &[Stage<'_>],
    (why, span): (String, Span),
) -> Diagnostic {
    let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, why);
    let unfit = wire::unfit(&network.protocols, &program.request.inputs, &program.elements);
    let found = unfit.and_then(|(input, other)| {
        stages.iter().find_map(|stage| {
            let set = set_in(*stage, &input.place)?;
            let used = match other {
                Some(other) => Some((other, used_in(*stage, &other.place)?)),
                None => None,
            };
            Some((input, set, used))
        })
    });
    let Some((input, set, used)) = found else {
        return diagnostic.at(span, "in this chain");
    };
    let mut diagnostic = diagnostic.at(set, "set here").with_label(span, "in this chain");
    if let Some((other, used)) = used {
        diagnostic = diagnostic.with_label(used, format!("`{}` here", other.name));
    }
    let InputLocation::Frame(field) = &input.place else { return diagnostic };
    let names = settable_names(network, field);
    if names.is_empty() {
        return match wire::settable(&network.protocols, field) {
            Err(why) => diagnostic.with_note(format!("by no name can it be set: {why}")),
            Ok(()) => diagnostic,
        };
    }
    diagnostic.with_help(advice(network, field, &names))
}

/// Which name to use instead, and what that excludes.
fn advice(network: &Network, field: &FieldRef, names: &[FieldRef]) -> String {
    let written: Vec<String> = names.iter().map(|name| format!("`{}`", network.field_name(name))).collect();
    let mut advice = format!("write {} in all of the element", written.join(" and "));
    let is_left_out = |id: &&ProtocolId| !names.iter().any(|name| name.layer.protocols.contains(id));
    let left_out = field.layer.protocols.iter().filter(is_left_out);
    let left_out: Vec<String> =
        left_out.map(|id| format!("`{}`", network.protocols[usize::from(id.0)].name)).collect();
    if !left_out.is_empty() {
        advice += &format!(", which leaves {} as it is", left_out.join(" and "));
    }
    advice
}

/// The names by which a field can be set, without duplicates; those that cover most of its protocols come first.
fn settable_names(network: &Network, field: &FieldRef) -> Vec<FieldRef> {
    let own = parts(field);
    let of_unions = network.unions.iter().flat_map(|union| &union.columns).filter(|column| !column.last);
    let of_unions = of_unions.map(|column| (column.protocols.clone(), column.fields.clone()));
    let of_one = own.iter().map(|(protocol, field)| (vec![*protocol], vec![*field]));
    let names = of_unions.chain(of_one).map(|(protocols, fields)| {
        let layer = LayerRef { level: field.layer.level, protocols };
        FieldRef { layer, fields: Some(fields), last: false }
    });
    let is_of_it = |name: &FieldRef| parts(name).iter().any(|part| own.contains(part));
    let mut names: Vec<FieldRef> =
        names.filter(|name| is_of_it(name) && wire::settable(&network.protocols, name).is_ok()).collect();
    names.sort_by_key(|name| std::cmp::Reverse(parts(name).len()));
    let mut found: Vec<FieldRef> = Vec::new();
    for name in names {
        let is_new = |part| !found.iter().any(|known| parts(known).contains(part));
        if parts(&name).iter().all(is_new) {
            found.push(name);
        }
    }
    found
}

fn parts(field: &FieldRef) -> Vec<(ProtocolId, FieldId)> {
    field.layer.protocols.iter().copied().zip(field.fields.iter().flatten().copied()).collect()
}

/// Where an element sets this place.
fn set_in(stage: Stage<'_>, place: &InputLocation) -> Option<Span> {
    let column = column_of(stage, place).filter(|at| stage.0.columns[*at].written)?;
    let set = stage.0.handlers.iter().find_map(|handler| set_by(&handler.body, column));
    set.or(Some(stage.0.columns[column].span))
}

/// Where an element first uses this place.
fn used_in(stage: Stage<'_>, place: &InputLocation) -> Option<Span> {
    column_of(stage, place).map(|at| stage.0.columns[at].span)
}

fn column_of((_, instance): Stage<'_>, place: &InputLocation) -> Option<usize> {
    instance.bindings.iter().position(|binding| places::bound(&binding.place) == *place)
}

fn set_by(stmts: &[Stmt], column: usize) -> Option<Span> {
    stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Set { target: hir::AssignTarget::Column(at), .. } if *at == column => Some(stmt.span),
        StmtKind::If { arms, otherwise } => {
            arms.iter().find_map(|(_, body)| set_by(body, column)).or_else(|| set_by(otherwise, column))
        }
        StmtKind::Update { otherwise, .. } => set_by(otherwise, column),
        StmtKind::Scan { body, .. } => set_by(body, column),
        _ => None,
    })
}
