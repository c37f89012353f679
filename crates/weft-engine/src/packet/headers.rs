//! What queues ask of headers: the fields that a program names, read as a frame comes to its link.
//!
//! The reader is the parser of a chain, compiled for these fields alone. A number is a word as it is, a run of bytes
//! (an address) is its hash, and what a frame does not have is 0; of one that is malformed, all of them are.

use super::reader::{Reader, Scratch};
use crate::plan::ChainError;
use crate::state::Staged;
use weft_core::Time;
use weft_core::frame::{Frame, Pool};
use weft_core::hash::hash_bytes;
use weft_core::types::Repr;
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;
use weft_ir::queue::HEADERS_MAX;

/// Reads the fields that the queue of a link names.
#[derive(Debug)]
pub struct Headers {
    reader: Reader,
    /// For each field, which input of the program it is.
    inputs: Vec<u16>,
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

    /// What one worker reads with.
    pub(super) fn scratch(&self) -> Scratch {
        self.reader.scratch()
    }

    /// The fields of a frame.
    pub(super) fn of(
        &self,
        scratch: &mut Scratch,
        now: Time,
        frame: &Frame,
        pool: &Pool,
    ) -> [u64; HEADERS_MAX] {
        let (bytes, mut words) = (pool.bytes(frame), [0; HEADERS_MAX]);
        let Some(present) = self.reader.parse(scratch, now, frame, pool) else { return words };
        for (word, input) in words.iter_mut().zip(&self.inputs) {
            if present >> input & 1 == 0 {
                continue;
            }
            let slot = scratch.slots[usize::from(*input)];
            *word = match self.reader.program.request.inputs[usize::from(*input)].ty.repr() {
                Repr::Bytes => {
                    let run = bytes.get(slot.a as usize..).and_then(|rest| rest.get(..slot.b as usize));
                    hash_bytes(run.unwrap_or_default()) >> 32
                }
                _ => slot.a,
            };
        }
        words
    }
}
