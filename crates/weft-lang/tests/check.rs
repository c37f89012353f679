//! Typed programs: the HIR of valid programs.

use weft_core::{Interval, Type, Value};
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::hir::{
    AssignTarget, ColumnLocation, ExprKind, FillTarget, Instance, Network, SinkTarget, StmtKind, TableRef,
    VerdictKind,
};
use weft_lang::ports::Device;

mod support;
use support::Texts;

const NETWORK: &str = "CREATE TYPE shop FROM PROTO 'shop.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:6000';
CREATE CLUSTER cart TO '127.0.0.1:6001', 'unix:/run/cart.sock' USING LEAST REQUEST WITH (deadline = '1 s');
";

/// One file, `main.weft`.
fn texts(text: &str) -> Texts {
    Texts::of(&[("main.weft".to_owned(), text.to_owned())])
}

/// The network of a valid program.
fn network(text: &str) -> Network {
    let (network, diagnostics, sources) = weft_lang::check("main.weft", &mut texts(text));
    let rendered = render_all(&diagnostics, &sources, RenderOptions::default());
    network.unwrap_or_else(|| panic!("refused:\n{rendered}"))
}

/// The codes of a program's diagnostics.
fn codes(text: &str) -> Vec<&'static str> {
    let (_, diagnostics, _) = weft_lang::check("main.weft", &mut texts(text));
    diagnostics.iter().map(|diagnostic| diagnostic.code.0).collect()
}

/// An element with these statements in ON REQUEST, and one declaration of each kind.
fn request(body: &str) -> String {
    format!(
        "CREATE ELEMENT e (p I64 = 3) ON rpc (user TEXT, id I64, small I32, coupon TEXT?, weight F64) AS
  TABLE t (k I64 PRIMARY KEY, n I64 = 0, name TEXT(16)?) MAX 10 ROWS EVICT OLDEST;
  CALL (c I64, f F64);
  VAR v I64;
  ON REQUEST
    {body}
END;"
    )
}

/// The type of an expression in ON REQUEST: `I64`, `TEXT?`.
fn type_of(expr: &str) -> String {
    let network = network(&request(&format!("LET x = {expr};")));
    let handler = network.elements[0].handlers.request.clone().expect("it has one");
    let StmtKind::Let { value, .. } = &handler.body[0].kind else { panic!("a LET stays a LET") };
    format!("{}{}", value.ty, if value.nullable { "?" } else { "" })
}

fn instance(network: &Network) -> &Instance {
    &network.chains[0].instances[0]
}

#[test]
fn paper_acl_is_a_join_by_key() {
    // The main use case: an ACL on a body field, in the design's form.
    let text = format!(
        "{NETWORK}
CREATE ELEMENT acl ON rpc (username TEXT) AS
  TABLE ac_tab (permission TEXT(1), username TEXT(64) PRIMARY KEY) MAX 100000 ROWS FILLED BY CONTROLLER;
  ON REQUEST
    SELECT * FROM input JOIN ac_tab USING (username) WHERE permission = 'W'
    ELSE ABORT PERMISSION_DENIED 'no write permission';
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS
  acl (username := req.user) AT SERVER MANDATORY;
END;
INSERT INTO shop.acl.ac_tab VALUES ('W', 'alice'), ('R', 'bob');"
    );
    let network = network(&text);
    let acl = &network.elements[0];
    let names: Vec<&str> = acl.tables[0].columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["username", "permission"], "keys come first");
    let handler = acl.handlers.request.as_ref().expect("it has one");
    let StmtKind::Guard { query, otherwise, .. } = &handler.body[0].kind else { panic!("a guard") };
    assert_eq!(query.joins[0].table, TableRef::Own(0));
    assert_eq!(query.joins[0].key[0].kind, ExprKind::Column(0));
    assert!(query.joins[0].condition.is_none() && query.filter.is_some());
    assert!(matches!(otherwise.kind, VerdictKind::Abort { .. }));
    assert!(handler.effects.aborts && !handler.effects.redirects && acl.columns[0].read);
    assert_eq!(instance(&network).bindings[0].place, ColumnLocation::Body(vec!["user".to_owned()]));
    assert!(instance(&network).mandatory);
    assert_eq!(network.chains[0].methods.len(), 5);
    assert_eq!(network.fills[0].table, FillTarget::Own { chain: 0, instance: 0, table: 0 });
    assert_eq!(network.fills[0].rows[1], [Value::text("bob"), Value::text("R")]);
}

#[test]
fn ports_fill_table_rows() {
    // If this fails, one row that does not fit keeps all others out of the table.
    let network = network(
        "CREATE PORT lan ON memory WITH (mtu = 1400, mac = '02:00:00:00:00:01');
CREATE PORT wan ON memory WITH (mtu = 1300);
CREATE PORT dmz ON memory;
CREATE PORT much_longer ON memory;
CREATE GROUP both ON PORT lan, wan, dmz ALL;
CREATE TABLE ports (mac MAC?, mtu U16?, port TEXT(4) PRIMARY KEY) MAX 9 ROWS FILLED BY PORTS;",
    );
    let row = |name: &str, mac: Value, mtu: Value| vec![Value::text(name), mac, mtu];
    let wanted = [
        row("lan", Value::Bytes(vec![2, 0, 0, 0, 0, 1]), Value::Int(1400)),
        row("wan", Value::Null, Value::Int(1300)),
        row("dmz", Value::Null, Value::Null),
        row("both", Value::Null, Value::Int(1300)),
    ];
    assert_eq!(network.fills[0].table, FillTarget::Shared(0));
    assert_eq!(network.fills[0].rows, wanted);
    let device = Device { mtu: Some(9000), mac: Some([2; 6]) };
    let known = weft_lang::ports::rows(&network.ports, &network.groups, &[device; 4], &network.tables[0]);
    assert_eq!(known[0], wanted[0], "what its options say holds");
    assert_eq!(known[2], row("dmz", Value::Bytes(vec![2; 6]), Value::Int(9000)));
}

#[test]
fn paper_insert_form_denies_nonmatches() {
    // On rpc, every call gets an answer: `INSERT INTO output` without ELSE aborts with a status.
    let network = network(&request("INSERT INTO output SELECT * FROM input WHERE user = 'a';"));
    let handler = network.elements[0].handlers.request.as_ref().expect("it has one");
    let StmtKind::Guard { otherwise, .. } = &handler.body[0].kind else { panic!("a guard") };
    let VerdictKind::Abort { status, text: Some(text), .. } = &otherwise.kind else { panic!("an abort") };
    assert_eq!(status.kind, ExprKind::Const(Value::Int(7)));
    assert_eq!(text.kind, ExprKind::Const(Value::text("no row of input left by e")));
}

#[test]
fn token_bucket_is_upsert_and_update() {
    // Defaults that need parameters and the time, RETURNING into a CALL column, and a header of the response.
    let text = format!(
        "{NETWORK}
CREATE ELEMENT token_bucket (rate F64 = 1000, burst F64 = 1000) ON rpc (tenant TEXT) AS
  TABLE b (tenant TEXT(64) PRIMARY KEY, tokens F64 = burst, last TIMESTAMP = now())
    TTL '60 s' MAX 1000000 ROWS EVICT OLDEST;
  CALL (remaining F64 = 0);
  ON REQUEST
    UPSERT b KEY (input.tenant) SET tokens = least(burst, tokens + rate * seconds(now() - last)), last = now();
    UPDATE b SET tokens = tokens - 1 WHERE tenant = input.tenant AND tokens >= 1
      RETURNING tokens INTO remaining
      ELSE ABORT RESOURCE_EXHAUSTED WITH header['X-Remaining'] = '0';
  ON RESPONSE
    SET header['x-remaining'] = text(floor(remaining));
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS
  token_bucket (rate = 5, tenant := req.item.sku) AS login_limit;
END;"
    );
    let network = network(&text);
    let handler = network.elements[0].handlers.request.as_ref().expect("it has one");
    let StmtKind::Upsert { key, set, .. } = &handler.body[0].kind else { panic!("an upsert") };
    assert_eq!((key.len(), set.len()), (1, 2));
    let StmtKind::Update { condition, returning, otherwise, .. } = &handler.body[1].kind else {
        panic!("an update")
    };
    assert!(condition.is_some(), "what is no key stays a condition");
    assert_eq!(returning[0], (1, AssignTarget::Call(0)));
    assert_eq!(otherwise.len(), 1);
    assert_eq!(handler.effects.headers_written, ["x-remaining"]);
    assert!(handler.effects.clock && handler.effects.fallible);
    let instance = instance(&network);
    assert_eq!(instance.name, "login_limit");
    assert_eq!(instance.params, [Value::Float(5.0), Value::Float(1000.0)]);
    assert_eq!(instance.tables[0].ttl, Some(Interval::from_secs(60)));
    assert!(!instance.bindings[0].nullable, "behind an absent message stands the leaf's default");
}

#[test]
fn shard_lookup_uses_table_key() {
    // Routing by a field: a scalar subselect by key, over a table that the controller fills.
    let text = format!(
        "{NETWORK}
CREATE ELEMENT shard_lb ON rpc (object_id I64) AS
  TABLE replica (slot I64 PRIMARY KEY, dst ENDPOINT) MAX 64 ROWS FILLED BY CONTROLLER;
  ON REQUEST REDIRECT TO (SELECT dst FROM replica WHERE slot = hash_slot(input.object_id, count(replica)));
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS shard_lb; END;
INSERT INTO shop.shard_lb.replica (slot, dst) VALUES (0, '127.0.0.1:6001'), (1, 'unix:/run/b');"
    );
    let network = network(&text);
    let effects = &network.elements[0].handlers.request.as_ref().expect("it has one").effects;
    assert!(effects.redirects && effects.tables_read == [TableRef::Own(0)] && effects.columns_read == [0]);
}

#[test]
fn reply_join_and_rand_sites_resolve() {
    // REPLY, a left join, ON ERROR, and a number for each call of rand().
    let text = format!(
        "{NETWORK}
CREATE ELEMENT fault (p F64 = 0.01, wait INTERVAL = '5 ms') ON rpc AS
  ON REQUEST
    IF rand() < p THEN ABORT UNAVAILABLE 'injected'; ELSIF rand() < p THEN DELAY wait; END IF;
END;
CREATE ELEMENT cache ON rpc (user TEXT) RETURNS (server TEXT) AS
  TABLE seen (user TEXT(64) PRIMARY KEY, server TEXT(64) = '') TTL '1 s' MAX 100 ROWS EVICT LRU;
  CALL (who TEXT(64));
  ON REQUEST
    SET who = user;
    SELECT * FROM input LEFT JOIN seen USING (user) WHERE user <> '' ELSE ABORT INVALID_ARGUMENT;
    IF seen.server IS NOT NULL THEN REPLY (server = seen.server); END IF;
  ON RESPONSE
    UPSERT seen KEY (who) SET server = input.server;
  ON ERROR ABORT INTERNAL error;
END;
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/Add' AS fault (p = 0.5) -> cache; END;"
    );
    let network = network(&text);
    let fault = &network.elements[0].handlers.request.as_ref().expect("it has one").effects;
    assert!(fault.random && fault.aborts && fault.delays);
    let cache = &network.elements[1];
    assert!(cache.handlers.request.as_ref().expect("it has one").effects.replies);
    assert!(cache.columns[1].replied && cache.columns[1].read && !cache.columns[1].written);
    let error = cache.handlers.error.as_ref().expect("it has one");
    assert!(error.effects.aborts && !error.effects.fallible);
}

#[test]
fn file_imported_twice_reads_once() {
    // Two element files that both import the shop's types are not duplicates.
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let mut files = Texts::of(&[
        file("main.weft", "IMPORT 'a.weft'; IMPORT 'b.weft';"),
        file("a.weft", "IMPORT 'shop.weft'; CREATE ELEMENT a ON rpc AS ON REQUEST FORWARD; END;"),
        file("b.weft", "IMPORT './shop.weft'; CREATE ELEMENT b ON rpc AS ON REQUEST FORWARD; END;"),
        file("shop.weft", "CREATE TYPE shop FROM PROTO 'shop.proto';"),
    ]);
    let (network, diagnostics, _) = weft_lang::check("main.weft", &mut files);
    assert_eq!(diagnostics, []);
    assert_eq!(network.map(|network| network.elements.len()), Some(2));
}

#[test]
fn sinks_and_merged_vars_check() {
    // A log line for each call, and a counter with a value per worker.
    let text = format!(
        "{NETWORK}
CREATE ELEMENT logging (path TEXT = '/tmp/log', period INTERVAL = '1 s') ON rpc (user TEXT) AS
  VAR calls U64 MERGE SUM;
  SINK lines (at TIMESTAMP, user TEXT, status STATUS) TO FILE path || '.json';
  SINK rates (calls U64) TO METRICS;
  CALL (who TEXT(32) = 'nobody');
  ON REQUEST
    SET who = user;
    INSERT INTO lines SELECT now(), user FROM input WHERE user <> '';
  ON CLOSE
    ADD calls;
    INSERT INTO lines (at, user, status) VALUES (now(), who, status);
  ON EVERY period
    INSERT INTO rates VALUES (calls);
    RESET calls;
END;
CREATE CHAIN shop ON frontend -> cart AS logging (period = '5 s'); END;"
    );
    let text = text.replace("SELECT now(), user FROM", "SELECT now(), user, OK FROM");
    let network = network(&text);
    assert_eq!(instance(&network).every, [Interval::from_secs(5)]);
    assert_eq!(instance(&network).sinks, [SinkTarget::File("/tmp/log.json".to_owned()), SinkTarget::Metrics]);
}

#[test]
fn literals_take_context_type() {
    // If literals had a fixed type, every mixed expression would be an error.
    for (expr, ty) in [
        ("id + 1", "I64"),
        ("1 + small", "I32"),
        ("small + id", "I64"),
        ("weight * 2", "F64"),
        ("1 + 2.5", "F64"),
        ("now() + '5 ms'", "TIMESTAMP"),
        ("now() - now()", "INTERVAL"),
        ("2 * (now() - now())", "INTERVAL"),
        ("(now() - now()) / '1 s'", "F64"),
        ("size > '36 KB'", "BOOL"),
        ("CASE WHEN id > 1 THEN 1 ELSE 2.5 END", "F64"),
        ("CASE user WHEN 'a' THEN 1 END", "I64?"),
        ("hash_slot(user, 8)", "I64"),
        ("hash(user, id)", "U64"),
        ("-9223372036854775808", "I64"),
        ("18446744073709551615", "U64"),
        ("least(id, 5, p)", "I64"),
        ("CAST(weight AS I32)", "I32"),
        ("'10.1.2.3' IN '10.0.0.0/8'", "BOOL"),
        ("user || '@' || text(id)", "TEXT"),
    ] {
        assert_eq!(type_of(expr), ty, "{expr}");
    }
}

#[test]
fn null_follows_three_valued_logic() {
    // A NULL that the types miss is an "unexpected null" error at run time.
    for (expr, ty) in [
        ("coupon = 'x'", "BOOL?"),
        ("coupon IS NULL", "BOOL"),
        ("coupon IS NOT DISTINCT FROM user", "BOOL"),
        ("coupon = 'x' AND id > 1", "BOOL?"),
        ("NOT coupon LIKE 'a%'", "BOOL?"),
        ("coupon IN ('a', 'b')", "BOOL?"),
        ("id IN (1, 2)", "BOOL"),
        ("coalesce(coupon, '')", "TEXT"),
        ("coalesce(coupon, header['x'])", "TEXT?"),
        ("nullif(user, '')", "TEXT?"),
        ("(SELECT n FROM t WHERE k = input.id)", "I64?"),
        ("EXISTS (SELECT n FROM t WHERE k = input.id)", "BOOL"),
        ("count(t)", "I64"),
        ("(SELECT count(*) FROM SCAN t MAX 10 WHERE n > 1)", "I64"),
        ("(SELECT argmin(name, n) FROM SCAN t MAX 10)", "TEXT(16)?"),
        ("length(coupon)", "I64?"),
        ("input.method", "TEXT"),
    ] {
        assert_eq!(type_of(expr), ty, "{expr}");
    }
}

#[test]
fn joined_columns_need_alias() {
    // After a guard, the row is named by its alias; a left join makes its columns nullable.
    let body = "SELECT *, coalesce(r.n, 0) AS id FROM input LEFT JOIN t r ON r.k = input.id AND r.n > 0
      WHERE user <> '' ELSE ABORT NOT_FOUND;
    LET x = r.name;
    SET c = coalesce(r.n, 1);";
    let network = network(&request(body));
    let handler = network.elements[0].handlers.request.as_ref().expect("it has one");
    let StmtKind::Guard { query, set, .. } = &handler.body[0].kind else { panic!("a guard") };
    assert!(query.joins[0].left && query.joins[0].condition.is_some());
    assert_eq!(set[0].0, AssignTarget::Column(1));
    assert!(handler.rows[0].optional);
    assert_eq!(
        codes(&request("SELECT * FROM input JOIN t ON k = id ELSE ABORT INTERNAL; LET x = n;")),
        ["W0205"]
    );
}

#[test]
fn one_fault_reports_once() {
    // Consequences of an error stay silent, or the first screen of output is noise.
    assert_eq!(
        codes(&request("LET a = nope; LET b = a + 1; SET c = b; IF a THEN SET v = b; END IF;")),
        ["W0205"]
    );
    assert_eq!(codes("CREATE ELEMENT e ON rpc (a STRNG) AS ON REQUEST SET a = a + 1; END;"), ["W0206"]);
    let quiet = "CREATE ELEMENT e ON tcp AS ON OPEN FORWARD; END;";
    assert_eq!(codes(&format!("{NETWORK}{quiet}CREATE CHAIN c ON frontend -> cart AS e; END;")), ["W0302"]);
    let ok = "CREATE ELEMENT e ON rpc AS ON REQUEST FORWARD; END;";
    let on = |name: &str, method: &str| {
        format!("CREATE CHAIN {name} ON frontend -> cart METHOD 'shop.Cart/{method}' AS e; END;")
    };
    assert_eq!(codes(&format!("{NETWORK}{ok}{}{}", on("a", "Add"), on("b", "Ad"))), ["W0403"]);
}

#[test]
fn body_routing_that_deadlocks_errs() {
    // Chat streams in both directions; Add does not; and OPEN waits for headers only.
    let text = |event: &str, method: &str| {
        format!(
            "{NETWORK}CREATE ELEMENT lb ON rpc AS ON {event} REDIRECT TO 'cart'; END;
CREATE CHAIN c ON frontend -> cart METHOD 'shop.Cart/{method}' AS lb; END;"
        )
    };
    assert_eq!(codes(&text("REQUEST", "Chat")), ["W0406"]);
    assert!(codes(&text("REQUEST", "Add")).is_empty());
    assert!(codes(&text("OPEN", "Chat")).is_empty());
}

#[test]
fn table_without_evict_warns() {
    // Tables that handlers insert into need EVICT; scans may change rows but not insert any.
    assert!(
        codes(&request("SCAN t MAX 10 AS r WHERE r.n > 1 DO UPDATE t SET n = 0 WHERE k = r.k; END SCAN;"))
            .is_empty()
    );
    assert_eq!(codes(&request("SCAN t MAX 10 DO UPSERT t KEY (1) SET n = 1; END SCAN;")), ["W0321"]);
}

#[test]
fn conditional_routes_come_first() {
    // If this fails, the order in the text decides between two routes for one call.
    let route = |name: &str, when: &str, to: &str| {
        format!("CREATE ROUTE {name} ON frontend {when} TO CLUSTER {to};\n")
    };
    let base = format!("{NETWORK}CREATE CLUSTER v2 TO '127.0.0.1:6002';\n");
    let (one, two) = ("WHEN header['v'] = '1'", "WHEN header['v'] = '2'");
    let text = |a: &str, b: &str| format!("{base}{}{}", route("a", a, "cart"), route("b", b, "v2"));
    assert!(codes(&text(one, two)).is_empty());
    assert!(codes(&text(one, "")).is_empty());
    assert_eq!(codes(&text("", "")), ["W0402"]);
    assert_eq!(codes(&text(one, "WHEN peer = 'x'")), ["W0402"]);
}

#[test]
fn replaced_and_dropped_items_vanish() {
    // If OR REPLACE kept both, the old element would run.
    let text = "CREATE ELEMENT e ON rpc AS ON REQUEST FORWARD; END;
CREATE OR REPLACE ELEMENT e ON rpc AS ON RESPONSE FORWARD; END;
CREATE ELEMENT f ON rpc AS ON REQUEST FORWARD; END;
DROP ELEMENT f;
CREATE ELEMENT f ON rpc AS ON CLOSE FORWARD; END;";
    let network = network(text);
    assert_eq!(network.elements.len(), 2);
    assert!(network.elements[1].handlers.close.is_some());
    assert!(
        network.elements[0].handlers.response.is_some() && network.elements[0].handlers.request.is_none()
    );
}

#[test]
fn on_error_cannot_read_message() {
    // ON ERROR is shared by all events, so it cannot read data of a single one.
    let text = |body: &str| {
        format!("CREATE ELEMENT e ON rpc (user TEXT) AS ON REQUEST FORWARD; ON ERROR {body} END;")
    };
    assert!(codes(&text("ABORT INTERNAL error;")).is_empty());
    assert_eq!(codes(&text("LET x = user;")), ["W0212"]);
    assert_eq!(network(&text("ABORT INTERNAL error;")).elements[0].columns[0].ty, Type::Text(None));
}

#[test]
fn largest_expression_fits_stack() {
    // The checker is recursive; the parser limits the height of trees.
    for (operand, operator) in [("id", " + "), ("user = 'a'", " AND "), ("user", " || "), ("1", " * ")] {
        let expr = vec![operand; 250].join(operator);
        assert!(codes(&request(&format!("LET x = {expr};"))).is_empty(), "{operator}");
    }
    let nested = format!("{}id{}", "abs(".repeat(60), ")".repeat(60));
    assert!(codes(&request(&format!("LET x = {nested};"))).is_empty());
    let nested = format!("{}id{}", "least(1, CASE WHEN id > 1 THEN ".repeat(30), " END)".repeat(30));
    assert!(codes(&request(&format!("LET x = {nested};"))).is_empty());
    let chain = vec!["user"; 180].join(" || ");
    let deep = format!("{}LET x = {chain};{}", "IF id > 1 THEN ".repeat(55), " END IF;".repeat(55));
    assert!(codes(&request(&deep)).is_empty());
}

#[test]
fn broken_programs_never_panic() {
    // The front end must handle incomplete programs.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/errors");
    #[allow(clippy::disallowed_methods, reason = "tests read the programs that they break")]
    let programs: Vec<String> = std::fs::read_dir(folder)
        .expect("tests/errors is part of the repository")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "weft"))
        .map(|path| std::fs::read_to_string(path).expect("it is text"))
        .collect();
    let mut rng = weft_core::rng::Rng::from_seed(1);
    let mut random = |below: usize| rng.below(below.max(1));
    for _ in 0..1500 {
        let mut text = programs[random(programs.len())].clone();
        let other = programs[random(programs.len())].clone();
        for _ in 0..=random(4) {
            let words: Vec<&str> = text.split_inclusive([' ', '\n', '(', ';']).collect();
            let others: Vec<&str> = other.split_inclusive([' ', '\n', '(', ';']).collect();
            let mut words: Vec<&str> = words.clone();
            let at = random(words.len());
            match random(4) {
                0 => drop(words.remove(at)),
                1 => words[at] = others[random(others.len())],
                2 => words.insert(at, others[random(others.len())]),
                _ => {
                    let with = random(words.len());
                    words.swap(at, with);
                }
            }
            text = words.concat();
            if text.is_empty() {
                text.push(' ');
            }
        }
        let (network, diagnostics, sources) = weft_lang::check("main.weft", &mut texts(&text));
        assert_eq!(network.is_none(), diagnostics.iter().any(|diagnostic| diagnostic.is_error()));
        render_all(&diagnostics, &sources, RenderOptions::default());
    }
}
