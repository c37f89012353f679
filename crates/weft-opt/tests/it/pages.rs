//! Examples of the reference that are parts of one program: together they must check.

use weft_lang::diagnostic::{RenderOptions, render_all};

use crate::programs::WithMain;
use crate::schema::root;

/// The declarations that the examples of the page on programs assume.
const AROUND: &str = "CREATE TYPE cart_msg FROM PROTO 'cart.proto';
CREATE TYPE orders_msg FROM PROTO 'shop_orders.proto';
IMPORT 'library/elements/logging.weft';
IMPORT 'library/elements/acl.weft';
IMPORT 'library/elements/token_bucket.weft';
CREATE CLUSTER next TO '127.0.0.1:7103';
CREATE ELEMENT order_acl ON rpc (bulk BOOL, team TEXT, filtered BOOL) AS
  ON REQUEST
    SELECT * FROM input WHERE NOT bulk OR (team = 'core' AND filtered) ELSE ABORT PERMISSION_DENIED 'too much';
END;
";

#[test]
fn program_page_examples_check() {
    // The first program that a reader copies would be refused.
    let page =
        std::fs::read_to_string(root().join("docs/src/reference/program.md")).expect("the page is there");
    let blocks: Vec<&str> =
        page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(blocks.len() >= 6, "{} examples", blocks.len());
    let program = format!("{AROUND}{}", blocks.concat());
    let (network, diagnostics, sources) = weft_lang::check("main.weft", &mut WithMain(program));
    let told = render_all(&diagnostics, &sources, RenderOptions::default());
    assert!(diagnostics.is_empty(), "{told}");
    assert_eq!(network.expect("the program has no errors").chains.len(), 2);
}
