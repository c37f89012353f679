//! Header fields for queues: reads the fields that a queue program uses when a frame arrives at its link.
//!
//! The reader is the parser of a chain, compiled for these fields alone. A number is a word. A byte run (an address) is
//! hashed. A field that the frame lacks is 0; in a malformed frame all fields are 0.
//!
//! A later fragment has its own IP header. It takes the fields behind that from the first fragment of its packet, if
//! that one has arrived at the link before. It does not wait for the first one, and overlaps are not checked: chains do
//! that.

use super::fragments::FirstFragments;
use super::reader::{Reader, Scratch};
use crate::plan::ChainError;
use crate::state::Staged;
use weft_core::Time;
use weft_core::abi::Slot;
use weft_core::frame::{Frame, Pool};
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::types::Repr;
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;
use weft_ir::queue::HEADERS_MAX;

/// The fields that a program uses, as its queue sees them.
type Words = [u64; HEADERS_MAX];

/// Reads the fields that a link's queue uses.
#[derive(Debug)]
pub struct Headers {
    reader: Reader,
    /// Per field: the index of the program's input.
    inputs: Vec<u16>,
}

/// The state of a link's reader.
#[derive(Debug, Default)]
pub(super) struct Reading {
    scratch: Scratch,
    /// The fields of first fragments, for later ones.
    firsts: FirstFragments<Words>,
}

impl Headers {
    /// Binds and compiles a program whose parser finds the fields. `inputs` has for each field, at most
    /// [`HEADERS_MAX`], the index of the program's input.
    ///
    /// # Errors
    /// See [`ChainError`]. Abandon the update then.
    pub fn build(
        version: u64,
        program: ChainProgram,
        inputs: Vec<u16>,
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        Ok(Self { reader: Reader::build(version, program, state, backend)?, inputs })
    }

    /// The initial state of a link's reader.
    pub(super) fn reading(&self) -> Reading {
        Reading { scratch: self.reader.scratch(), firsts: FirstFragments::default() }
    }

    /// Carries the reading state over an update: fields of first fragments stay valid if they were read in the same
    /// way.
    pub(super) fn reading_on(&self, before: &Self, reading: Reading) -> Reading {
        let is_same =
            self.inputs == before.inputs && self.reader.program.frames == before.reader.program.frames;
        match is_same {
            true => Reading { firsts: reading.firsts, ..self.reading() },
            false => self.reading(),
        }
    }

    /// Reads the fields of a frame; a later fragment has those of its first one. Byte runs are hashed with this key.
    pub(super) fn read_fields(
        &self,
        reading: &mut Reading,
        by: HashKey,
        now: Time,
        frame: &Frame,
        pool: &Pool,
    ) -> Words {
        let Reading { scratch, firsts } = reading;
        let Some(present) = self.reader.parse(scratch, now, frame, pool) else { return Words::default() };
        let (bytes, slots) = (pool.bytes(frame), &scratch.slots[..]);
        let own = self.own_fields(by, bytes, slots, present);
        let Some((fragment, inherited)) = self.reader.code.fragment_in(slots, present, bytes) else {
            return own;
        };
        if !fragment.is_later() {
            firsts.record(now, &fragment, own);
            return own;
        }
        // Without the first fragment, its fields are absent.
        let Some(first) = firsts.of(now, &fragment) else { return own };
        let of_first = self.reader.code.of_first(inherited, present);
        let has_first = |input: u16| of_first.contains(input);
        let mut words = own;
        for ((word, first), input) in words.iter_mut().zip(first).zip(&self.inputs) {
            *word = if has_first(*input) { first } else { *word };
        }
        words
    }

    /// Returns the fields that a frame has itself.
    fn own_fields(&self, by: HashKey, bytes: &[u8], slots: &[Slot], present: InputSet) -> Words {
        let mut words = Words::default();
        for (word, input) in words.iter_mut().zip(&self.inputs) {
            if !present.contains(*input) {
                continue;
            }
            let slot = slots[usize::from(*input)];
            *word = match self.reader.program.request.inputs[usize::from(*input)].ty.repr() {
                Repr::Bytes => {
                    let run = bytes.get(slot.a as usize..).and_then(|rest| rest.get(..slot.b as usize));
                    by.hash_bytes(run.unwrap_or_default()) >> 32
                }
                _ => slot.a,
            };
        }
        words
    }
}
