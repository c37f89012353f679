//! The header of a message where a chain is cut over two nodes: the fields that later stages read, and no more.

use weft_core::types::{Repr, Type};
use weft_ir::ir::InputId;
use weft_ir::program::{ChainProgram, InputLocation, Meta};

use crate::effects::{ChainEffects, Effects};

/// Bytes of a message's id: the numbers of its call and of itself in it.
pub const ID_BYTES: u64 = 8;
/// Bytes of the version under which the call began.
pub const VERSION_BYTES: u64 = 2;
/// Bytes of the length prefix of text and bytes.
const LENGTH_BYTES: u64 = 2;

/// The header at one cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of elements before the cut, in the planned order.
    pub at: usize,
    /// The fields of a request that later elements read before they are written there, in the order of use: the
    /// beginning of a header is enough for the first elements.
    pub fields: Vec<HeaderField>,
}

/// A field of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// The input of the request.
    pub input: InputId,
    /// The first element that reads it.
    pub element: usize,
    /// Its fixed size in bytes.
    pub bytes: u64,
    /// It also has a variable part.
    pub is_text: bool,
}

impl Header {
    /// Bytes with id and version; texts count only their length prefix.
    pub fn bytes(&self) -> u64 {
        ID_BYTES + VERSION_BYTES + self.fields.iter().map(|field| field.bytes).sum::<u64>()
    }
}

/// The header at each cut of an order: before its first element, before its second, and so on, and after its last.
pub fn headers(chain: &ChainProgram, effects: &ChainEffects, order: &[usize]) -> Vec<Header> {
    (0..=order.len()).map(|at| Header { at, fields: fields(chain, effects, &order[at..]) }).collect()
}

/// Returns the inputs that the elements beyond a cut read, except those that they always write first.
fn fields(chain: &ChainProgram, effects: &ChainEffects, beyond: &[usize]) -> Vec<HeaderField> {
    let mut fields: Vec<HeaderField> = Vec::new();
    let mut written: Vec<InputId> = Vec::new();
    for &element in beyond {
        let of = &effects.elements[element];
        for handler in of.open.iter().chain(&of.request) {
            for id in needed(chain, handler) {
                if !written.contains(&id) && fields.iter().all(|field| field.input != id) {
                    fields.push(field(chain, id, element));
                }
            }
            // Effects of a pass that ends the call are not needed by later elements.
            let always = handler.writes.iter().filter(|(_, write)| write.always);
            written.extend(always.map(|(id, _)| *id));
        }
    }
    fields
}

/// Returns the inputs that a handler reads and that the next node does not have anyway.
fn needed(chain: &ChainProgram, handler: &Effects) -> impl Iterator<Item = InputId> {
    let travels = |id: &&InputId| {
        let place = &chain.request.inputs[usize::from(id.0)].place;
        match place {
            InputLocation::Body(_)
            | InputLocation::Entry(..)
            | InputLocation::Present(_)
            | InputLocation::List(_)
            | InputLocation::Header(_) => true,
            // They are the id and the version, which are sent anyway, or part of the frame.
            InputLocation::Meta(meta) => {
                !matches!(meta, Meta::CallId | Meta::Index | Meta::Version) && !meta.is_computed()
            }
            // A frame is sent unchanged.
            InputLocation::Trailer(_)
            | InputLocation::Key(_)
            | InputLocation::Frame(_)
            | InputLocation::Layer(_) => false,
        }
    };
    handler.reads.keys().filter(travels).copied()
}

/// Describes an input as a header field: its size on the wire, and the first element that reads it.
fn field(chain: &ChainProgram, input: InputId, element: usize) -> HeaderField {
    let ty = chain.request.inputs[usize::from(input.0)].ty;
    let is_text = ty.repr() == Repr::Bytes;
    let bytes = match ty {
        _ if is_text => LENGTH_BYTES,
        Type::Bool | Type::Status => 1,
        Type::Int(bits) | Type::Uint(bits) => u64::from(bits) / 8,
        _ => 8,
    };
    HeaderField { input, element, bytes, is_text }
}
