//! What queues ask of headers: the fields that a program names, read as a frame comes to its link.
//!
//! The reader is the parser of a chain, compiled for these fields alone. A number is a word as it is, a run of bytes
//! (an address) is its hash, and what a frame does not have is 0; of one that is malformed, all of them are.
//!
//! A later fragment has its own header of IP, and of what stands behind that the fields of the first of its packet, if
//! that has come to the link before. It does not wait for it, and whether fragments overlap is not asked: that is for
//! chains.

use super::fragments::Firsts;
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

/// The fields that a program names, as its queue sees them.
type Words = [u64; HEADERS_MAX];

/// Reads the fields that the queue of a link names.
#[derive(Debug)]
pub struct Headers {
    reader: Reader,
    /// For each field, which input of the program it is.
    inputs: Vec<u16>,
}

/// What a link reads with.
#[derive(Debug, Default)]
pub(super) struct Reading {
    scratch: Scratch,
    /// What later fragments have of the first of their packet.
    firsts: Firsts<Words>,
}

impl Headers {
    /// Binds and compiles a program whose parser finds the fields: `inputs` says for each, [`HEADERS_MAX`] at most,
    /// which input of the program it is.
    ///
    /// # Errors
    /// See [`ChainError`]. The update is to be given up then.
    pub fn build(
        version: u64,
        program: ChainProgram,
        inputs: Vec<u16>,
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        Ok(Self { reader: Reader::build(version, program, state, backend)?, inputs })
    }

    /// What a link reads with.
    pub(super) fn reading(&self) -> Reading {
        Reading { scratch: self.reader.scratch(), firsts: Firsts::default() }
    }

    /// What a link goes on reading with that has read with others: what first fragments said still holds if it was read
    /// in the same way.
    pub(super) fn reading_on(&self, before: &Self, reading: Reading) -> Reading {
        let is_same =
            self.inputs == before.inputs && self.reader.program.frames == before.reader.program.frames;
        match is_same {
            true => Reading { firsts: reading.firsts, ..self.reading() },
            false => self.reading(),
        }
    }

    /// The fields of a frame; runs of bytes are hashed by this.
    pub(super) fn of(
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
        let own = self.words(by, bytes, slots, present);
        let Some((fragment, inherited)) = self.reader.code.fragment_in(slots, present, bytes) else {
            return own;
        };
        if !fragment.is_later() {
            firsts.note(now, &fragment, own);
            return own;
        }
        // Without it, what only the first has is not there.
        let Some(first) = firsts.of(now, &fragment) else { return own };
        let of_first = self.reader.code.of_first(inherited, present);
        let has_first = |input: u16| of_first.contains(input);
        let mut words = own;
        for ((word, first), input) in words.iter_mut().zip(first).zip(&self.inputs) {
            *word = if has_first(*input) { first } else { *word };
        }
        words
    }

    /// What a frame has itself.
    fn words(&self, by: HashKey, bytes: &[u8], slots: &[Slot], present: InputSet) -> Words {
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
