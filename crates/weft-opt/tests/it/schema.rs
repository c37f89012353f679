//! Files for the tests: programs and the library from disk, and the messages of `test.proto` and of the shop.

use std::path::{Path, PathBuf};

use weft_core::schema::{Field, FieldKind, Message, Method, Presence, Schema, Service};
use weft_lang::Resolver;

/// The folder that holds all crates.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files on disk; a path that begins with `library/` is found from the root of the repository.
pub(crate) struct Disk;

impl Resolver for Disk {
    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String> {
        let name = self.name(path, from);
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }

    fn proto(&mut self, path: &str, _from: Option<&str>) -> Result<Schema, String> {
        match path {
            "cart.proto" | "proto/cart.proto" => Ok(shop()),
            _ => Err("there is no such file".to_owned()),
        }
    }

    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        if path.starts_with("library/") {
            return root().join(path).display().to_string();
        }
        match from.and_then(|from| Path::new(from).parent()) {
            Some(folder) if !path.starts_with('/') => folder.join(path).display().to_string(),
            _ => path.to_owned(),
        }
    }
}

/// What `examples/shop/proto/cart.proto` says, with a few fields of other types more.
fn shop() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit};
    let field = |name: &str, number: u32, kind: FieldKind, presence: Presence| Field {
        name: name.to_owned(),
        number,
        kind,
        presence,
        oneof: None,
    };
    let request = vec![
        field("user", 1, F::String, Implicit),
        field("object_id", 2, F::Int64, Implicit),
        field("quantity", 3, F::Int32, Implicit),
        field("item", 4, F::Message(2), Explicit),
        field("coupon", 5, F::String, Explicit),
        field("address", 6, F::String, Explicit),
        field("locker", 7, F::Int64, Explicit),
        field("payload", 8, F::Bytes, Implicit),
        field("weight", 20, F::Double, Implicit),
        field("rush", 21, F::Bool, Explicit),
        field("points", 22, F::Uint64, Implicit),
        field("bonus", 23, F::Int64, Explicit),
    ];
    let reply = vec![
        field("server", 1, F::String, Implicit),
        field("object_id", 2, F::Int64, Implicit),
        field("quantity", 3, F::Int32, Implicit),
        field("note", 4, F::String, Explicit),
    ];
    let item = vec![field("sku", 1, F::String, Implicit), field("note", 2, F::String, Implicit)];
    let message = |name: &str, fields: Vec<Field>| Message { name: name.to_owned(), fields };
    let method = |name: &str, client_streaming: bool, server_streaming: bool| Method {
        name: name.to_owned(),
        input: 0,
        output: 1,
        client_streaming,
        server_streaming,
    };
    Schema {
        messages: vec![
            message("shop.CartRequest", request),
            message("shop.CartReply", reply),
            message("shop.Item", item),
        ],
        enums: Vec::new(),
        services: vec![Service {
            name: "shop.Cart".to_owned(),
            methods: vec![
                method("Add", false, false),
                method("Get", false, false),
                method("Watch", false, true),
                method("Upload", true, false),
                method("Chat", true, true),
            ],
        }],
    }
}
