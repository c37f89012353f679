//! What the tests of the checker share: the shop's messages, and texts in memory.

use weft_core::schema::{Enum, Field, FieldKind, Message, Method, Presence, Schema, Service};
use weft_lang::Resolver;

/// Files in memory; `shop.proto` is [`shop`].
#[derive(Default)]
pub(crate) struct Texts(Vec<(String, String)>);

impl Texts {
    /// Files by name and text.
    pub(crate) fn of(files: &[(String, String)]) -> Self {
        Self(files.to_vec())
    }
}

impl Resolver for Texts {
    fn text(&mut self, path: &str, _from: Option<&str>) -> Result<String, String> {
        let found = self.0.iter().find(|(name, _)| name == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| "there is no such file".to_owned())
    }

    fn proto(&mut self, path: &str, _from: Option<&str>) -> Result<Schema, String> {
        match path {
            "shop.proto" => Ok(shop()),
            "broken.proto" => Err("broken.proto:3:1: expected `;`".to_owned()),
            _ => Err("there is no such file".to_owned()),
        }
    }
}

/// What `examples/shop/proto` says, with an enum and a repeated field more.
pub(crate) fn shop() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
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
        field("weight", 6, F::Float, Implicit),
        field("payload", 8, F::Bytes, Implicit),
        field("tags", 9, F::String, Repeated),
        field("colour", 10, F::Enum(0), Implicit),
    ];
    let reply = vec![
        field("server", 1, F::String, Implicit),
        field("object_id", 2, F::Int64, Implicit),
        field("quantity", 3, F::Int32, Implicit),
    ];
    let item = vec![field("sku", 1, F::String, Implicit), field("note", 2, F::String, Explicit)];
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
        enums: vec![Enum { name: "shop.Colour".to_owned(), values: vec![("RED".to_owned(), 0)] }],
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
