//! Each object to its own replica.

use rustc_hash::FxHashMap;
use weft_core::abi::{Cx, Verdict};
use weft_core::hash::hash_word;
use weft_core::{Status, Value};
use weft_ir::program::ChainProgram;

use super::{Element, abort, field, rows, seen};

/// The parameter that the chain gives.
const SHARDS: u64 = 4;

pub(super) struct ShardLb {
    at: u16,
    object_id: usize,
    replicas: FxHashMap<i64, Box<[u8]>>,
}

impl Element for ShardLb {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let replicas = rows(program, at).iter().filter_map(|row| match &row[..] {
            [Value::Int(slot), Value::Bytes(endpoint)] => Some((*slot, endpoint[..].into())),
            _ => None,
        });
        Self { at, object_id: field(&program.request, "object_id"), replicas: replicas.collect() }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let slot = (hash_word(cx.slots[self.object_id].a) % SHARDS) as i64;
        let Some(endpoint) = self.replicas.get(&slot) else {
            return abort(cx, self.at, Status::Unavailable, b"no replica for this object");
        };
        cx.out.verdict = Verdict::Redirect;
        cx.out.element = self.at;
        cx.out.text.clear();
        cx.out.text.extend_from_slice(endpoint);
        cx.counters[usize::from(self.at)].diverted += 1;
        true
    }
}
