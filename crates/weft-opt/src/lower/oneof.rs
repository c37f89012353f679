//! Setting a member of a oneof displaces the other members, for later elements as on the wire.
//!
//! Lowering makes this explicit: each SET of a member is followed by a clear of the other members that the chain uses.
//! So backends, effects and the planner see one more write, and need no rule of their own.

use std::collections::{BTreeMap, BTreeSet};

use weft_core::Type;
use weft_core::schema::{FieldKind, Schema};
use weft_ir::program::InputLocation;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Direction, HandlerKind, Network};

use super::places;

/// A field of a message, by its path from the root.
type Field = (Direction, Vec<String>);

/// For each field that a chain sets: the members that this displaces, and the messages that it creates.
#[derive(Debug, Default)]
pub(super) struct Displaced(BTreeMap<Field, (Vec<Member>, Vec<Vec<String>>)>);

/// A displaced part of the message, as an input of the chain.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) place: InputLocation,
    pub(super) ty: Type,
    pub(super) nullable: bool,
}

impl Displaced {
    /// Finds the displaced members for the fields that the elements of a chain read or write.
    ///
    /// # Errors
    /// Two fields displace each other in the messages of one method of the chain and not in those of another: no
    /// handler could be right for both.
    pub(super) fn of(network: &Network, chain: &hir::Chain) -> Result<Self, Vec<Diagnostic>> {
        let (touched, written) = fields(network, chain);
        let mut displaced: BTreeMap<Field, (Vec<Member>, Vec<Vec<String>>)> = BTreeMap::new();
        for field in written {
            let (direction, path) = &field;
            let messages: BTreeSet<usize> = chain.methods.iter().map(|m| m.message(*direction)).collect();
            for (_, place, ty, nullable) in touched.iter().filter(|(of, ..)| of == direction) {
                let Some(other) = place.path() else { continue };
                if matches!(place, InputLocation::Present(_))
                    && path.len() > other.len()
                    && path.starts_with(other)
                {
                    displaced.entry(field.clone()).or_default().1.push(other.to_vec());
                    continue;
                }
                let (with, without): (Vec<usize>, Vec<usize>) =
                    messages.iter().partition(|message| displaces(&network.schema, **message, path, other));
                match (with.first(), without.first()) {
                    (None, _) => {}
                    (Some(_), None) => {
                        let member = Member { place: place.clone(), ty: *ty, nullable: *nullable };
                        displaced.entry(field.clone()).or_default().0.push(member);
                    }
                    (Some(with), Some(without)) => {
                        let names = [with, without].map(|at| &*network.schema.messages[*at].name);
                        return Err(vec![differs(chain, names, [path, other])]);
                    }
                }
            }
        }
        Ok(Self(displaced))
    }

    /// The members that setting this field displaces, and the paths of messages that exist afterwards.
    pub(super) fn by(&self, direction: Direction, path: &[String]) -> (Vec<Member>, Vec<Vec<String>>) {
        self.0.get(&(direction, path.to_vec())).cloned().unwrap_or_default()
    }
}

/// A part of a message that handlers use: its place, its type, and whether it may be NULL.
type TouchedField = (Direction, InputLocation, Type, bool);

/// Collects the parts of messages that the handlers of a chain use, and the fields that they set.
fn fields(network: &Network, chain: &hir::Chain) -> (Vec<TouchedField>, BTreeSet<Field>) {
    let (mut touched, mut written): (Vec<TouchedField>, _) = (Vec::new(), BTreeSet::new());
    for instance in &chain.instances {
        let element = &network.elements[instance.element];
        for handler in element.handlers.iter() {
            let writes = handler.effects.columns_written.iter().map(|at| (at, true));
            let reads = handler.effects.columns_read.iter().map(|at| (at, false));
            for (&at, is_written) in writes.chain(reads) {
                let binding = &instance.bindings[at];
                let Some(path) = binding.place.path() else { continue };
                let column = &element.columns[at];
                if is_written && handler.kind != HandlerKind::Close {
                    written.insert((column.direction, path.to_vec()));
                }
                let place = places::bound(&binding.place);
                if touched.iter().all(|(of, known, ..)| (of, known) != (&column.direction, &place)) {
                    touched.push((column.direction, place, column.ty, binding.nullable));
                }
            }
        }
    }
    (touched, written)
}

/// Whether two paths diverge at members of one oneof.
fn displaces(schema: &Schema, message: usize, a: &[String], b: &[String]) -> bool {
    let (Some((a, a_rest)), Some((b, b_rest))) = (a.split_first(), b.split_first()) else { return false };
    let message = &schema.messages[message];
    let (Some(first), Some(second)) = (message.field(a), message.field(b)) else { return false };
    if a != b {
        return first.oneof.is_some() && first.oneof == second.oneof;
    }
    match first.kind {
        FieldKind::Message(inner) => displaces(schema, inner, a_rest, b_rest),
        _ => false,
    }
}

fn differs(chain: &hir::Chain, [with, without]: [&str; 2], paths: [&[String]; 2]) -> Diagnostic {
    let [a, b] = paths.map(|path| path.join("."));
    let message = format!("chain `{}` sets `{a}`, which displaces `{b}` in some messages only", chain.name);
    Diagnostic::error(code::ONEOF_DIFFERS, message)
        .at(chain.span, format!("members of one oneof in `{with}`, and not in `{without}`"))
        .with_help("give the methods of each message a chain of their own: `METHOD 'package.Service/Method'`")
}
