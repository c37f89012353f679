//! Access by user: those with write permission pass.

use rustc_hash::FxHashMap;
use weft_core::Status;
use weft_core::abi::{Cx, REGION_BODY};
use weft_core::Value;
use weft_ir::program::ChainProgram;

use super::{Element, abort, field, seen, text};

pub(super) struct Acl {
    at: u16,
    username: usize,
    permissions: FxHashMap<Box<[u8]>, Box<[u8]>>,
}

impl Element for Acl {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let owner = &program.elements[usize::from(at)].name;
        let table = program.tables.iter().find(|table| table.owner == *owner).expect("the element has a table");
        let permissions = table.rows.iter().filter_map(|row| match &row[..] {
            [Value::Bytes(user), Value::Bytes(permission)] => Some((user[..].into(), permission[..].into())),
            _ => None,
        });
        Self { at, username: field(&program.request, "user"), permissions: permissions.collect() }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let permission = self.permissions.get(text(cx, REGION_BODY, self.username));
        if permission.is_some_and(|permission| **permission == *b"W") {
            return true;
        }
        abort(cx, self.at, Status::PermissionDenied, b"no write permission")
    }
}
