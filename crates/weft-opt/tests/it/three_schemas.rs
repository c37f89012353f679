//! Elements of the library on messages of three applications: only the binding differs.

use std::path::Path;
use std::sync::Arc;

use weft_core::schema::Schema;
use weft_lang::Resolver;
use weft_lang::resolve::{SchemaFault, SchemaSource};

use crate::programs::{Test, chain_by};
use crate::schema::Disk;
use crate::vectors::lines;

/// An application: its messages, a method, and the places of a caller and a number in its message.
struct App {
    proto: &'static str,
    method: &'static str,
    who: &'static str,
    number: &'static str,
}

const APPS: [App; 3] = [
    App { proto: "cart.proto", method: "shop.Cart/Add", who: "user", number: "object_id" },
    App { proto: "rides.proto", method: "rides.Rides/Book", who: "rider.account.id", number: "zone" },
    App { proto: "bank.proto", method: "bank.Bank/Pay", who: "customer", number: "branch" },
];

/// Runs vectors of an element on all applications. `WHO` and `NUMBER` stand for the application's places.
fn on_all(name: &str, stage: &str, rows: &str, vectors: &str) {
    for app in APPS {
        let put = |text: &str| text.replace("WHO", app.who).replace("NUMBER", app.number);
        let App { proto, method, .. } = app;
        let program = format!(
            "CREATE TYPE messages FROM PROTO '{proto}';
CREATE LISTENER front ON tcp '127.0.0.1:7070';
CREATE CLUSTER back TO '127.0.0.1:7101', '127.0.0.1:7102';
IMPORT 'library/elements/{name}.weft';
CREATE CHAIN t ON front -> back METHOD '{method}' AS {}; END;
{rows}",
            put(stage)
        );
        for workers in [1, 4] {
            let chain = Arc::new(chain_by(&mut Inline(&program), "t.weft", workers));
            Test::new(Path::new(proto), chain).run(&lines(&put(vectors)));
        }
    }
}

/// A program in memory, which imports the library from disk.
struct Inline<'a>(&'a str);

impl Resolver for Inline<'_> {
    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String> {
        if from.is_none() { Ok(self.0.to_owned()) } else { Disk.text(path, from) }
    }

    fn schema(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault> {
        Disk.schema(source, from)
    }

    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        if from.is_none() { path.to_owned() } else { Disk.name(path, from) }
    }
}

#[test]
fn acl_fits_each() {
    // An element that depended on one application would not be reusable.
    on_all(
        "acl",
        "acl (user := req.WHO)",
        "INSERT INTO t.acl.ac_tab VALUES ('ann', 'W'), ('bob', 'R');",
        "--@ in: request WHO='ann'
         --@ out: forward
         --@ in: request WHO='bob'
         --@ out: abort PERMISSION_DENIED 'no write permission'
         --@ in: request
         --@ out: abort PERMISSION_DENIED 'no write permission'",
    );
}

#[test]
fn cache_fits_each() {
    // An answer would be cached under another key, or not at all.
    on_all(
        "cache",
        "cache (shared = TRUE, key := req.WHO)",
        "",
        "--@ in: request WHO='ann' method='/m'
         --@ out: forward
         --@ in: response payload='bytes' method='/m'
         --@ in: close status=OK method='/m'
         --@ in: request WHO='bob' method='/m'
         --@ out: forward
         --@ in: request WHO='ann' method='/m'
         --@ out: reply
         --@ set: reply[]='bytes'",
    );
}

#[test]
fn hash_lb_fits_each() {
    // The same key would go to different servers in two applications.
    on_all(
        "hash_lb",
        "hash_lb (key := req.WHO)",
        "",
        "--@ in: request WHO='k1'
         --@ out: redirect '127.0.0.1:7101'
         --@ in: request WHO='k2'
         --@ out: redirect '127.0.0.1:7102'",
    );
}

#[test]
fn token_bucket_fits_each() {
    // A tenant would spend another's tokens.
    on_all(
        "token_bucket",
        "token_bucket (rate = 1, burst = 1, tenant := req.WHO)",
        "",
        "--@ in: request WHO='ann'
         --@ out: forward
         --@ in: request WHO='bob'
         --@ out: forward
         --@ in: request WHO='ann'
         --@ out: abort RESOURCE_EXHAUSTED 'rate limit'
         --@ set: answer[x-remaining]='0'",
    );
}

#[test]
fn shard_lb_fits_each() {
    // A narrower or unsigned number would not widen to the element's type.
    on_all(
        "shard_lb",
        "shard_lb (shards = 2, object_id := req.NUMBER)",
        "INSERT INTO t.shard_lb.replica VALUES (0, '127.0.0.1:7101');",
        "--@ in: request NUMBER=7
         --@ out: abort UNAVAILABLE 'no replica for this object'
         --@ in: request NUMBER=8
         --@ out: redirect '127.0.0.1:7101'",
    );
}
