//! Applies edits to a message as the wire would have it.

use std::collections::BTreeMap;

use weft_core::abi::{EditTarget, REGION_BODY, Slot};
use weft_ir::generate::{Observed, Pass};
use weft_ir::ir::InputId;

use super::generate::displaced_by;

/// The changed fields of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    /// By input: the new value, NULL if it was removed from the wire.
    pub(super) fields: BTreeMap<u16, Observed>,
    /// The member of the oneof that no element knows was displaced.
    is_displaced: bool,
}

impl Message {
    /// The message of a pass after these edits, one by one: the last of a field wins, and setting a member of the oneof
    /// displaces the others.
    pub(super) fn of(pass: &Pass, edits: &[(EditTarget, Observed)]) -> Self {
        let mut message = Self::default();
        for (target, value) in edits {
            let EditTarget::Input(id) = *target else { continue };
            if let Some(others) = displaced_by(InputId(id)).filter(|_| *value != Observed::Null) {
                message.fields.extend(others.map(|other| (other.0, Observed::Null)));
                message.is_displaced = true;
            }
            message.fields.insert(id, value.clone());
        }
        message.fields.retain(|id, value| !is_as_before(pass, *id, value));
        message
    }

    /// Whether a member of the oneof was set.
    pub(super) fn displaces(&self) -> bool {
        self.is_displaced
    }

    /// A pass whose message has these edits.
    pub(super) fn write_to(&self, pass: &mut Pass) {
        for (id, value) in &self.fields {
            let at = usize::from(*id);
            pass.present.set(at, *value != Observed::Null);
            pass.slots[at] = match value {
                Observed::Null => Slot::default(),
                Observed::Word(word) => Slot { a: *word, b: 0 },
                Observed::Bytes(bytes) => {
                    let body = &mut pass.regions[REGION_BODY];
                    let a = body.len() as u64;
                    body.extend_from_slice(bytes);
                    Slot { a, b: bytes.len() as u64 }
                }
            };
        }
    }
}

/// Whether a field has its value at the start of the pass.
fn is_as_before(pass: &Pass, id: u16, value: &Observed) -> bool {
    let Some(slot) = pass.slots.get(usize::from(id)) else { return false };
    match (pass.present.contains(id), value) {
        (false, value) => *value == Observed::Null,
        (true, Observed::Null) => false,
        (true, Observed::Word(word)) => slot.a == *word,
        (true, Observed::Bytes(bytes)) => {
            let (from, len) = (slot.a as usize, slot.b as usize);
            pass.regions[REGION_BODY][from..from + len] == **bytes
        }
    }
}
