//! Shared by the checker's tests: the shop's messages, and texts in memory.

use weft_core::schema::{Enum, Field, FieldKind, Message, Presence, Schema, Service};
use weft_lang::Resolver;
use weft_lang::resolve::{SchemaFault, SchemaLocation, SchemaSource};

/// Files in memory; `shop.proto` is [`shop`], and `order.proto` [`order`].
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

    fn schema(&mut self, source: &SchemaSource<'_>, _from: Option<&str>) -> Result<Schema, SchemaFault> {
        match source.path {
            "shop.proto" => Ok(shop()),
            "order.proto" => Ok(order()),
            "broken.proto" => Err(broken()),
            "damaged.binpb" => Err("it is damaged".to_owned().into()),
            _ => Err("there is no such file".to_owned().into()),
        }
    }

    fn library(&self) -> Vec<String> {
        let all = [
            "elements/mutation",
            "queues/codel",
            "queues/fq_codel",
            "queues/sfq",
            "protocols/ethernet",
            "protocols/ip",
        ];
        all.map(|path| format!("library/{path}.weft")).into()
    }
}

/// The error of a faulty `.proto` file.
fn broken() -> SchemaFault {
    let text = "syntax = \"proto3\";\nmessage M {\n  string user = 1\n}\n".to_owned();
    let (name, at) = ("broken.proto".to_owned(), text.rfind('}').expect("it is there"));
    let place = SchemaLocation { name, text, range: at..at + 1, line_and_column: (4, 1) };
    SchemaFault { why: "expected `;`, and found `}`".to_owned(), help: None, place: Some(Box::new(place)) }
}

/// The schema of `examples/shop/proto`, with an additional enum and repeated field.
pub(crate) fn shop() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
    let request = vec![
        Field::new("user", 1, F::String, Implicit),
        Field::new("object_id", 2, F::Int64, Implicit),
        Field::new("quantity", 3, F::Int32, Implicit),
        Field::new("item", 4, F::Message(2), Explicit),
        Field::new("coupon", 5, F::String, Explicit),
        Field::new("weight", 6, F::Float, Implicit),
        Field::new("payload", 8, F::Bytes, Implicit),
        Field::new("tags", 9, F::String, Repeated),
        Field::new("colour", 10, F::Enum(0), Implicit),
    ];
    let reply = vec![
        Field::new("server", 1, F::String, Implicit),
        Field::new("object_id", 2, F::Int64, Implicit),
        Field::new("quantity", 3, F::Int32, Implicit),
    ];
    let item = vec![Field::new("sku", 1, F::String, Implicit), Field::new("note", 2, F::String, Explicit)];
    let methods = [
        ("Add", false, false),
        ("Get", false, false),
        ("Watch", false, true),
        ("Upload", true, false),
        ("Chat", true, true),
    ];
    Schema {
        messages: vec![
            Message::new("shop.CartRequest", request),
            Message::new("shop.CartReply", reply),
            Message::new("shop.Item", item),
        ],
        enums: vec![Enum {
            name: "shop.Colour".to_owned(),
            values: vec![("RED".to_owned(), 0)],
            is_closed: false,
        }],
        services: vec![Service::new("shop.Cart", 0, 1, &methods)],
    }
}

/// A message with lists, a map and a nested message, and a different one in another method.
fn order() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
    let order = vec![
        Field::new("user", 1, F::String, Implicit),
        Field::new("lines", 2, F::Message(1), Repeated),
        Field::new("labels", 3, F::Message(2), Repeated),
        Field::new("tags", 4, F::String, Repeated),
        Field::new("filter", 5, F::Message(3), Explicit),
        Field::new("note", 6, F::String, Explicit),
        Field::new("n", 7, F::Int32, Implicit),
    ];
    let line = vec![
        Field::new("qty", 1, F::Int32, Implicit),
        Field::new("codes", 2, F::Int32, Repeated),
        Field::new("item", 3, F::Message(3), Explicit),
    ];
    let entry = vec![Field::new("key", 1, F::String, Implicit), Field::new("value", 2, F::String, Implicit)];
    let other = vec![Field::new("user", 1, F::Int64, Implicit), Field::new("n", 2, F::Int32, Implicit)];
    Schema {
        messages: vec![
            Message::new("order.Order", order),
            Message::new("order.Line", line),
            Message { is_map_entry: true, ..Message::new("order.Order.LabelsEntry", entry) },
            Message::new("order.Filter", vec![Field::new("name", 1, F::String, Implicit)]),
            Message::new("order.Other", other),
        ],
        enums: Vec::new(),
        services: vec![
            Service::new("order.Orders", 0, 0, &[("Put", false, false)]),
            Service::new("order.Others", 4, 4, &[("Put", false, false)]),
        ],
    }
}
