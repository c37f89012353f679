//! Files for the tests: programs and the library from disk, and the messages of `test.proto` and of the shop.

use std::path::{Path, PathBuf};

use weft_core::schema::{Field, FieldKind, Message, Presence, Schema, Service};
use weft_lang::Resolver;
use weft_lang::resolve::{SchemaFault, SchemaSource};

#[path = "../../../weft-control/library_folder.rs"]
mod library_folder;

/// The root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the standard library; programs always name it `library`.
pub(crate) fn library() -> PathBuf {
    library_folder::library_folder(&root())
}

/// Files on disk; a path that begins with `library/` is in the standard library.
pub(crate) struct Disk;

impl Resolver for Disk {
    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String> {
        let name = self.name(path, from);
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }

    fn schema(&mut self, source: &SchemaSource<'_>, _from: Option<&str>) -> Result<Schema, SchemaFault> {
        match source.path {
            "cart.proto" | "proto/cart.proto" | "../shop/proto/cart.proto" => Ok(shop()),
            "rides.proto" => Ok(rides()),
            "bank.proto" => Ok(bank()),
            "mixed.proto" => Ok(mixed()),
            "order.proto" => Ok(order()),
            "shop_orders.proto" => Ok(shop_orders()),
            _ => Err("there is no such file".to_owned().into()),
        }
    }

    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        if let Some(inside) = path.strip_prefix("library/") {
            return library().join(inside).display().to_string();
        }
        match from.and_then(|from| Path::new(from).parent()) {
            Some(folder) if !path.starts_with('/') => folder.join(path).display().to_string(),
            _ => path.to_owned(),
        }
    }
}

/// Messages with lists, maps, nested messages, and members of a oneof that hold lists.
fn order() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
    let order = vec![
        Field::new("user", 1, F::String, Implicit),
        Field::new("lines", 2, F::Message(1), Repeated),
        Field::new("labels", 3, F::Message(3), Repeated),
        Field::new("tags", 4, F::String, Repeated),
        Field::new("codes", 5, F::Int32, Repeated),
        Field::new("filter", 6, F::Message(5), Explicit),
        Field { oneof: Some(0), ..Field::new("parcel", 7, F::Message(6), Explicit) },
        Field { oneof: Some(0), ..Field::new("letter", 8, F::String, Explicit) },
        Field::new("stock", 9, F::Message(4), Repeated),
        Field::new("score", 10, F::Double, Implicit),
        Field::new("prices", 11, F::Double, Repeated),
        Field::new("flags", 12, F::Bool, Repeated),
        Field::new("limit", 13, F::Int32, Implicit),
        Field::new("rate", 14, F::Float, Explicit),
    ];
    let line = vec![
        Field::new("qty", 1, F::Int32, Implicit),
        Field::new("sku", 2, F::String, Explicit),
        Field::new("item", 3, F::Message(2), Explicit),
    ];
    let item = vec![Field::new("sku", 1, F::String, Implicit), Field::new("weight", 2, F::Double, Explicit)];
    let entry =
        |key, value| vec![Field::new("key", 1, key, Implicit), Field::new("value", 2, value, Implicit)];
    let filter = vec![Field::new("name", 1, F::String, Implicit)];
    let parcel =
        vec![Field::new("lines", 1, F::Message(1), Repeated), Field::new("size", 2, F::Int32, Implicit)];
    let map =
        |name: &str, key, value| Message { is_map_entry: true, ..Message::new(name, entry(key, value)) };
    Schema {
        messages: vec![
            Message::new("order.Order", order),
            Message::new("order.Line", line),
            Message::new("order.Item", item),
            map("order.Order.LabelsEntry", F::String, F::String),
            map("order.Order.StockEntry", F::Int32, F::Int64),
            Message::new("order.Filter", filter),
            Message::new("order.Parcel", parcel),
        ],
        enums: Vec::new(),
        services: vec![Service::new("order.Orders", 0, 0, &[("Put", false, false)])],
    }
}

/// The messages of `shop.Orders` on the page on programs.
fn shop_orders() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
    let order = vec![
        Field::new("user", 1, F::String, Implicit),
        Field::new("address", 2, F::Message(1), Explicit),
        Field::new("lines", 3, F::Message(2), Repeated),
        Field::new("labels", 4, F::Message(3), Repeated),
        Field::new("filter", 5, F::Message(4), Explicit),
    ];
    let text = |name: &str, number| Field::new(name, number, F::String, Implicit);
    let entry = Message::new("shop.Order.LabelsEntry", vec![text("key", 1), text("value", 2)]);
    Schema {
        messages: vec![
            Message::new("shop.Order", order),
            Message::new("shop.Address", vec![text("city", 1)]),
            Message::new("shop.Line", vec![Field::new("qty", 1, F::Int32, Implicit)]),
            Message { is_map_entry: true, ..entry },
            Message::new("shop.OrderFilter", vec![text("name", 1)]),
        ],
        enums: Vec::new(),
        services: vec![Service::new("shop.Orders", 0, 0, &[("Put", false, false)])],
    }
}

/// The messages of `examples/shop/proto/cart.proto`, with a few fields of other types.
fn shop() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit};
    let request = vec![
        Field::new("user", 1, F::String, Implicit),
        Field::new("object_id", 2, F::Int64, Implicit),
        Field::new("quantity", 3, F::Int32, Implicit),
        Field::new("item", 4, F::Message(2), Explicit),
        Field::new("coupon", 5, F::String, Explicit),
        Field { oneof: Some(0), ..Field::new("address", 6, F::String, Explicit) },
        Field { oneof: Some(0), ..Field::new("locker", 7, F::Int64, Explicit) },
        Field::new("payload", 8, F::Bytes, Implicit),
        Field::new("weight", 20, F::Double, Implicit),
        Field::new("rush", 21, F::Bool, Explicit),
        Field::new("points", 22, F::Uint64, Implicit),
        Field::new("bonus", 23, F::Int64, Explicit),
    ];
    let reply = vec![
        Field::new("server", 1, F::String, Implicit),
        Field::new("object_id", 2, F::Int64, Implicit),
        Field::new("quantity", 3, F::Int32, Implicit),
        Field::new("note", 4, F::String, Explicit),
    ];
    let item = vec![Field::new("sku", 1, F::String, Implicit), Field::new("note", 2, F::String, Implicit)];
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
        enums: Vec::new(),
        services: vec![Service::new("shop.Cart", 0, 1, &methods)],
    }
}

/// Two messages with the same fields, which are members of a oneof in one of them, and a third one with a oneof of
/// messages.
fn mixed() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit};
    let fields = |oneof: Option<u32>| {
        ["a", "b"]
            .map(|name| Field { oneof, ..Field::new(name, 1 + u32::from(name == "b"), F::String, Explicit) })
    };
    let inner = ["first", "second"].map(|name| {
        let number = 1 + u32::from(name == "second");
        Field { oneof: Some(0), ..Field::new(name, number, F::Message(3), Explicit) }
    });
    Schema {
        messages: vec![
            Message::new("mixed.One", fields(Some(0)).into()),
            Message::new("mixed.Two", fields(None).into()),
            Message::new("mixed.Nested", inner.into()),
            Message::new("mixed.Inner", vec![Field::new("n", 1, F::Int64, Implicit)]),
        ],
        enums: Vec::new(),
        services: vec![
            Service::new("mixed.One", 0, 0, &[("Call", false, false)]),
            Service::new("mixed.Two", 1, 1, &[("Call", false, false)]),
            Service::new("nested.Outer", 2, 2, &[("Call", false, false)]),
        ],
    }
}

/// `rides.Rides/Book`: the caller is two messages deep, and the zone is a narrow number.
fn rides() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit};
    let book =
        vec![Field::new("zone", 4, F::Sint32, Implicit), Field::new("rider", 5, F::Message(1), Explicit)];
    let rider = vec![Field::new("account", 1, F::Message(2), Explicit)];
    let account = vec![Field::new("id", 3, F::String, Implicit)];
    Schema {
        messages: vec![
            Message::new("rides.Book", book),
            Message::new("rides.Rider", rider),
            Message::new("rides.Account", account),
            Message::new("rides.Booked", vec![Field::new("car", 1, F::String, Implicit)]),
        ],
        enums: Vec::new(),
        services: vec![Service::new("rides.Rides", 0, 3, &[("Book", false, false)])],
    }
}

/// `bank.Bank/Pay`: other names, other field numbers, and an unsigned number.
fn bank() -> Schema {
    use FieldKind as F;
    use Presence::Implicit;
    let pay = vec![
        Field::new("amount", 1, F::Double, Implicit),
        Field::new("branch", 2, F::Fixed32, Implicit),
        Field::new("customer", 17, F::String, Implicit),
    ];
    let paid = vec![Field::new("receipt", 1, F::Uint64, Implicit)];
    Schema {
        messages: vec![Message::new("bank.Payment", pay), Message::new("bank.Receipt", paid)],
        enums: Vec::new(),
        services: vec![Service::new("bank.Bank", 0, 1, &[("Pay", false, false)])],
    }
}
