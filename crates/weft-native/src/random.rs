//! Ids that look random, from the draws of the message: repeating a run repeats them.

use crate::text::push_hex;
use weft_core::hash;
use weft_core::native::{Arg, Call, Ended, Prepared, RANDOM_BYTES_MAX};

/// `random_hex`.
#[derive(Debug)]
pub(crate) struct RandomHex {
    pub(crate) site: u64,
}

impl Prepared for RandomHex {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let &[Arg::Int(n @ 0..=RANDOM_BYTES_MAX)] = call.args else { return Ended::Failed };
        let base = hash::draw(call.rand, self.site);
        for at in 0..(n as u64).div_ceil(8) {
            push_hex(&hash::draw(base, at).to_le_bytes(), out);
        }
        out.truncate(2 * n as usize);
        Ended::Bytes
    }
}
