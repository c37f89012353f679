//! Access by user: those with write permission pass.

use rustc_hash::FxHashMap;
use weft_core::abi::{Cx, REGION_BODY};
use weft_core::{Status, Value};
use weft_ir::program::ChainProgram;

use super::{Element, abort, field, rows, seen, text};

pub(super) struct Acl {
    at: u16,
    user: usize,
    permissions: FxHashMap<Box<[u8]>, Box<[u8]>>,
}

impl Element for Acl {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let permissions = rows(program, at).iter().filter_map(|row| match &row[..] {
            [Value::Bytes(user), Value::Bytes(permission)] => Some((user[..].into(), permission[..].into())),
            _ => None,
        });
        Self { at, user: field(&program.request, "user"), permissions: permissions.collect() }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let permission = self.permissions.get(text(cx, REGION_BODY, self.user));
        if permission.is_some_and(|permission| **permission == *b"W") {
            return true;
        }
        abort(cx, self.at, Status::PermissionDenied, b"no write permission")
    }
}
