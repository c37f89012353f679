//! `weft query`, `weft load`, `weft import`: rows of tables, from outside.

use crate::node::{Folder, Node, output, runtime, shop_server, weft};
use serde_json::{Value, json};
use shop::pb::CartRequest;
use shop::pb::cart_client::CartClient;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;
use weft_core::Time;
use weft_core::frame::build::ethernet;
use weft_proto::capture::{LinkType, Packet, Style, Writer};

const NETWORK: &str = "IMPORT 'library/elements/rule_acl.weft';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE CHAIN shop ON front -> cart AS rule_acl (user := header.\"x-user\"); END;
INSERT INTO shop.rule_acl.rules VALUES (1, 10, '/shop.Cart/Get', NULL, NULL, 'allow');
";

fn ran(folder: &Folder, node: &Node, args: &[&str]) -> Output {
    output(weft(folder).args(args).args(["--admin", &node.admin]))
}

fn stdout_of(folder: &Folder, node: &Node, args: &[&str]) -> String {
    let done = ran(folder, node, args);
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("it is text")
}

fn refused(folder: &Folder, node: &Node, args: &[&str]) -> String {
    let done = ran(folder, node, args);
    assert_eq!(done.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&done.stdout));
    String::from_utf8(done.stderr).expect("it is text")
}

/// A rule that is inserted but missing, or lost in an update, would admit forbidden calls.
#[test]
fn live_rows_are_read_and_changed() {
    let folder = Folder::new();
    let program = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &program, &[]);
    let query = |text: &str| stdout_of(&folder, &node, &["query", text]);
    let ids = || -> Value {
        let text = stdout_of(
            &folder,
            &node,
            &["query", "SELECT id FROM shop.rule_acl.rules ORDER BY id", "-o", "json"],
        );
        let answers: Value = serde_json::from_str(&text).expect("it is data");
        answers[0]["rows"].clone()
    };
    let inserted = query(
        "INSERT INTO shop.rule_acl.rules VALUES (2, 20, NULL, '10.0.0.0/8', 'ann', 'allow'), \
         (3, 5, NULL, '2001:db8::/32', NULL, 'deny')",
    );
    assert!(inserted.starts_with("2 rows inserted; visible in "), "{inserted}");
    let shown = query("SELECT id, net, who FROM shop.rule_acl.rules WHERE net IS NOT NULL ORDER BY id DESC");
    assert_eq!(shown, "id  net            who\n 3  2001:db8::/32  -\n 2  10.0.0.0/8     ann\n2 rows\n");
    let updated = query("UPDATE shop.rule_acl.rules SET priority = priority + 1 WHERE id BETWEEN 2 AND 3");
    assert!(updated.starts_with("2 rows updated"), "{updated}");
    assert_eq!(
        query("SELECT count(*) FROM shop.rule_acl.rules WHERE priority > 10"),
        "count\n    1\n1 row\n"
    );
    let fault = refused(
        &folder,
        &node,
        &[
            "query",
            "INSERT INTO shop.rule_acl.rules VALUES (9, 1, NULL, NULL, NULL, \
        'deny'), (2, 1, NULL, NULL, NULL, 'deny')",
        ],
    );
    assert!(
        fault.contains("a row with this key is there already") && fault.contains("INSERT OR REPLACE"),
        "{fault}"
    );
    assert_eq!(ids(), json!([[1], [2], [3]]), "all or none");
    let fault = refused(&folder, &node, &["query", "SELECT nett FROM shop.rule_acl.rules"]);
    assert!(fault.contains("`nett`"), "{fault}");
    let fault = refused(&folder, &node, &["query", "DELETE FROM shop.rule_acl.ruls"]);
    assert!(fault.contains("unknown table `ruls`"), "{fault}");
    // The same text again: run-time rows stay; a row that the text drops goes.
    stdout_of(&folder, &node, &["apply", program.to_str().expect("a path")]);
    assert_eq!(ids(), json!([[1], [2], [3]]));
    let other = folder.write("network.weft", &NETWORK.replace("(1, 10", "(7, 10"));
    stdout_of(&folder, &node, &["apply", other.to_str().expect("a path")]);
    assert_eq!(ids(), json!([[2], [3], [7]]));
    assert!(query("DELETE FROM shop.rule_acl.rules WHERE id <> 7").starts_with("2 rows deleted"));
    assert_eq!(ids(), json!([[7]]));
    let tables = stdout_of(&folder, &node, &["query"]);
    assert!(tables.contains("shop.rule_acl.rules  controller     1  1,000,000"), "{tables}");
    assert_eq!(node.stop(), Some(0));
}

/// A temporary rule would stay for good.
#[test]
fn live_row_expires_after_ttl() {
    let folder = Folder::new();
    let program = folder.write(
        "network.weft",
        "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT shut (lasting INTERVAL = '1 s') ON rpc (user TEXT?) AS
  TABLE users (name TEXT(32) PRIMARY KEY) TTL lasting MAX 1000 ROWS FILLED BY CONTROLLER;
  ON REQUEST IF EXISTS (SELECT * FROM users WHERE name = user) THEN ABORT PERMISSION_DENIED; END IF;
END;
CREATE CHAIN shop ON front -> cart AS shut (user := header.\"x-user\"); END;
INSERT INTO shop.shut.users VALUES ('ann');
",
    );
    let node = Node::start(&folder, &program, &[]);
    let query = |text: &str| stdout_of(&folder, &node, &["query", text]);
    query("INSERT INTO shop.shut.users VALUES ('bob')");
    assert!(query("SELECT name FROM shop.shut.users").contains("bob"));
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !stdout_of(&folder, &node, &["query"]).contains("shop.shut.users: its TTL took out 2 rows\n") {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(query("SELECT name FROM shop.shut.users").ends_with("0 rows\n"));
    assert_eq!(node.stop(), Some(0));
}

/// A user who needs a total would have to fetch every row and add them up.
#[test]
fn select_aggregates_rows() {
    let folder = Folder::new();
    let tables =
        "CREATE TABLE sold (id U64 PRIMARY KEY, shop TEXT(9), n U8?, price F64, owed U64, waited INTERVAL,
            seen TIMESTAMP) MAX 100 ROWS FILLED BY CONTROLLER;
        CREATE TABLE empty (id U64 PRIMARY KEY, n I8) MAX 100 ROWS FILLED BY CONTROLLER;
        CREATE ELEMENT asks ON rpc AS ON REQUEST
            IF EXISTS (SELECT * FROM sold WHERE id = 1) OR EXISTS (SELECT * FROM empty WHERE id = 1) THEN
                ABORT UNAVAILABLE;
            END IF;
        END;
        CREATE CLUSTER other TO '127.0.0.1:1';
        CREATE LISTENER second ON tcp '127.0.0.1:0';
        CREATE CHAIN asked ON second -> other AS asks; END;
        INSERT INTO sold VALUES
            (1, 'ann', 250, 1.5, 18446744073709551615, '2 s', '2020-01-01T00:00:00Z'),
            (2, 'bob', NULL, 2.5, 1, '1 s', '2020-01-01T00:00:00Z'),
            (3, 'ann', 9, 5.0, 2, '4 s', '2200-01-01T00:00:00Z');";
    let program = folder.write("network.weft", &format!("{NETWORK}{tables}"));
    let node = Node::start(&folder, &program, &[]);
    let rows = |text: &str| -> Value {
        let text = stdout_of(&folder, &node, &["query", text, "-o", "json"]);
        let answers: Value = serde_json::from_str(&text).expect("it is data");
        json!([answers[0]["columns"], answers[0]["rows"]])
    };
    // NULL does not count, and a sum of small integers may be large.
    assert_eq!(
        rows("SELECT count(*), sum(n), min(n), max(n) AS most, avg(n), sum(price), sum(waited) FROM sold"),
        json!([
            ["count", "sum(n)", "min(n)", "most", "avg(n)", "sum(price)", "sum(waited)"],
            [[3, 259, 9, 250, 129.5, 9.0, "7 s"]]
        ])
    );
    assert_eq!(
        rows("SELECT shop, count(*) AS n, sum(n) FROM sold GROUP BY shop"),
        json!([["shop", "n", "sum(n)"], [["ann", 2, 259], ["bob", 1, null]]])
    );
    assert_eq!(
        rows(
            "SELECT shop, sum(price) AS paid, argmax(id, price) FROM sold GROUP BY shop ORDER BY paid LIMIT 1"
        ),
        json!([["shop", "paid", "argmax(id, price)"], [["bob", 2.5, 2]]])
    );
    let of_none = rows("SELECT count(*), sum(n), max(n), avg(n) FROM empty");
    assert_eq!(of_none[1], json!([[0, null, null, null]]));
    assert_eq!(rows("SELECT n, count(*) FROM empty GROUP BY n")[1], json!([]));
    assert_eq!(rows("SELECT id FROM sold WHERE seen > now() - '1 min'")[1], json!([[3]]));
    let wrong = |text: &str, wanted: &str| {
        let fault = refused(&folder, &node, &["query", text]);
        assert!(fault.contains(wanted), "{text}: {fault}");
    };
    wrong("SELECT sum(owed) FROM sold", "the sum of this is outside what U64 holds");
    wrong("SELECT shop, sum(n) FROM sold", "`GROUP BY shop`");
    wrong("SELECT id FROM sold WHERE n > avg(n)", "a whole item of a SELECT: `SELECT avg(c) FROM t`");
    wrong(
        "SELECT shop, sum(n) FROM sold GROUP BY shop ORDER BY sum(n)",
        "`SELECT sum(c) AS n ... ORDER BY n`",
    );
    wrong(
        "SELECT shop, sum(n) FROM sold GROUP BY shop ORDER BY n",
        "the result has no column `n` to sort by",
    );
    wrong("SELECT sum(n)", "<query>:1:");
    assert_eq!(node.stop(), Some(0));
}

/// A list would be loaded in part, without the location of its error.
#[test]
fn load_error_has_line() {
    let folder = Folder::new();
    let program = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &program, &[]);
    let many: String =
        (10..5_010).map(|id| format!("{id},1,,10.{}.{}.0/24,,deny\n", id / 256, id % 256)).collect();
    let list = folder.write("rules.csv", &format!("id,priority,path,net,who,action\n{many}"));
    let list = list.to_str().expect("a path");
    let loaded = stdout_of(&folder, &node, &["load", "shop.rule_acl.rules", list]);
    assert!(loaded.starts_with("shop.rule_acl.rules: 5,000 rows inserted"), "{loaded}");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", list]);
    assert!(fault.contains("row 1 of shop.rule_acl.rules: a row with this key is there already"), "{fault}");
    let again = stdout_of(&folder, &node, &["load", "shop.rule_acl.rules", list, "--replace"]);
    assert!(again.contains("5,000 rows updated"), "{again}");
    // In the form that spreadsheets write.
    let marked = folder.write("marked.csv", "\u{feff}id,priority,net,action\n9999,1,10.0.0.0/8,deny\n");
    let loaded =
        stdout_of(&folder, &node, &["load", "shop.rule_acl.rules", marked.to_str().expect("a path")]);
    assert!(loaded.starts_with("shop.rule_acl.rules: 1 row inserted"), "{loaded}");
    let wrong =
        folder.write("wrong.csv", "id,priority,net,action\n1,1,10.0.0.0/8,deny\n2,1,10.0.0.0/33,deny\n");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", wrong.to_str().expect("a path")]);
    assert!(fault.contains("row 2, column `net`: a CIDR is"), "{fault}");
    let unknown = folder.write("unknown.csv", "id,prio\n1,1\n");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", unknown.to_str().expect("a path")]);
    assert!(fault.contains("has no column `prio`"), "{fault}");
    // In the form of spreadsheets without UTF-8.
    let foreign = folder.0.join("foreign.csv");
    std::fs::write(&foreign, b"id,priority,who,action\n1,1,Andr\xe9,deny\n").expect("the folder takes files");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", foreign.to_str().expect("a path")]);
    assert!(fault.contains("foreign.csv`: it is not UTF-8 text"), "{fault}");
    assert_eq!(node.stop(), Some(0));
}

/// A statement that names a few of many keys would scan all rows, or change others.
#[test]
fn key_lookup_finds_rows() {
    let folder = Folder::new();
    let program = folder.write(
        "network.weft",
        "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT some ON rpc (who TEXT?) AS
  TABLE known (id U32 PRIMARY KEY, n I64) MAX 1000 ROWS FILLED BY CONTROLLER;
  TABLE pairs (a U32, name TEXT(9), PRIMARY KEY (a, name)) MAX 1000 ROWS FILLED BY CONTROLLER;
  TABLE names (name TEXT(9) PRIMARY KEY, n I64) MAX 1000 ROWS FILLED BY CONTROLLER;
  ON REQUEST
    IF NOT EXISTS (SELECT * FROM known WHERE id = 1) THEN ABORT NOT_FOUND 'none'; END IF;
    IF EXISTS (SELECT * FROM names WHERE name = who) THEN ABORT NOT_FOUND 'none'; END IF;
    IF EXISTS (SELECT * FROM pairs WHERE a = 1 AND name = who) THEN ABORT NOT_FOUND 'none'; END IF;
END;
CREATE CHAIN shop ON front -> cart AS some (who := header.\"x-user\"); END;
INSERT INTO shop.some.known VALUES (1, -1), (2, 0), (3, 1), (4, 0), (5, 5), (4294967295, 9);
INSERT INTO shop.some.pairs VALUES (1, 'a'), (1, 'b'), (2, 'a');
INSERT INTO shop.some.names VALUES ('a', 1), ('b', 2), ('', 3);
",
    );
    let node = Node::start(&folder, &program, &[]);
    let ids = |condition: &str| {
        let text = format!("SELECT id FROM shop.some.known WHERE {condition} ORDER BY id");
        let printed = stdout_of(&folder, &node, &["query", &text]);
        printed
            .lines()
            .skip(1)
            .map(str::trim)
            .filter(|line| !line.contains("row"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (condition, found) in [
        ("id = 3", "3"),
        ("4 = id AND n = 0", "4"),
        ("id IN (5, 1, 5, 77, 5)", "1 5"),
        ("id IN (1, 3) AND 10 / n > 0", "3"),
        ("10 / n > 0 AND id IN (3, 5)", "3 5"),
        ("id IN (1, 2) OR n > 4", "1 2 5 4294967295"),
        ("NOT id IN (1, 2, 3, 4)", "5 4294967295"),
        ("id IN (1, 2) AND id IN (2, 3)", "2"),
        ("id = 4294967295", "4294967295"),
        ("id - 1 = 0", "1"),
    ] {
        assert_eq!(ids(condition), found, "{condition}");
    }
    let pairs =
        stdout_of(&folder, &node, &["query", "SELECT name FROM shop.some.pairs WHERE a = 1 ORDER BY name"]);
    assert_eq!(pairs, "name\na\nb\n2 rows\n");
    let names = stdout_of(
        &folder,
        &node,
        &["query", "DELETE FROM shop.some.names WHERE name IN ('', 'b', 'much too long')"],
    );
    assert!(names.starts_with("2 rows deleted"), "{names}");
    let changed =
        stdout_of(&folder, &node, &["query", "UPDATE shop.some.known SET n = 7 WHERE id IN (1, 4, 4)"]);
    assert!(changed.starts_with("2 rows updated"), "{changed}");
    assert_eq!(ids("n = 7"), "1 4");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn rows_breaking_check_are_refused() {
    let folder = Folder::new();
    let program = folder.write(
        "network.weft",
        "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT nets ON rpc (who TEXT) AS
  TABLE known (net CIDR PRIMARY KEY, bits U8, until TIMESTAMP?, cost U8 = 5, CHECK (bits = prefix_bits(net)),
    CHECK (until > '2001-01-01T00:00:00Z'), CHECK (100 / cost > 1)) MAX 1000 ROWS FILLED BY CONTROLLER;
  ON REQUEST
    IF NOT EXISTS (SELECT * FROM known WHERE net = '10.0.0.0/8') THEN ABORT NOT_FOUND 'none'; END IF;
END;
CREATE CHAIN shop ON front -> cart AS nets (who := header.\"x-user\"); END;
INSERT INTO shop.nets.known VALUES ('10.0.0.0/8', 8, NULL, 5);
",
    );
    let node = Node::start(&folder, &program, &[]);
    let no = |args: &[&str]| refused(&folder, &node, args);
    let wrong =
        "`bits = prefix_bits(net)` is not satisfied by a row of `known`: bits is 7, net is '10.0.0.0/8'";
    for text in [
        "UPDATE shop.nets.known SET bits = bits - 1",
        "INSERT OR REPLACE INTO shop.nets.known VALUES ('192.0.2.0/24', 24, NULL, 5), ('10.0.0.0/8', 7, NULL, 5)",
    ] {
        let fault = no(&["query", text]);
        assert!(fault.contains("W0432") && fault.contains(wrong), "{text}: {fault}");
    }
    let fault = no(&["query", "INSERT INTO shop.nets.known VALUES ('::/0', 0, '2000-01-01T00:00:00Z', 5)"]);
    let broken = "`until > '2001-01-01T00:00:00Z'` is not satisfied by a row of `known`: until is \
                  '2000-01-01 00:00:00', net is '::/0'";
    assert!(fault.contains(broken), "{fault}");
    let fault = no(&["query", "UPDATE shop.nets.known SET cost = 0"]);
    let broken = "`100 / cost > 1` has no value for a row of `known`, division by zero: cost is 0, net is \
                  '10.0.0.0/8'";
    assert!(fault.contains(broken), "{fault}");
    let list = folder.write("nets.csv", "net,bits\n192.0.2.0/24,24\n198.51.100.0/24,25\n");
    let fault = no(&["load", "shop.nets.known", list.to_str().expect("a path")]);
    assert!(
        fault.contains("row 2 of shop.nets.known: `bits = prefix_bits(net)` is not satisfied by a row"),
        "{fault}"
    );
    let rows = stdout_of(&folder, &node, &["query", "SELECT net, bits FROM shop.nets.known"]);
    assert_eq!(rows, "net         bits\n10.0.0.0/8     8\n1 row\n", "nothing has changed");
    let inserted = "INSERT INTO shop.nets.known VALUES ('::/0', 0, now() + '1 h', 5)";
    assert!(stdout_of(&folder, &node, &["query", inserted]).starts_with("1 row inserted"));
    assert_eq!(node.stop(), Some(0));
}

/// A worker that misses a change would go on to admit forbidden calls.
#[test]
fn row_changes_reach_all_workers() {
    const CONNECTIONS: usize = 8;
    let server = shop_server("cart-1");
    for workers in ["1", "4"] {
        let folder = Folder::new();
        let program = format!(
            "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE TABLE users (name TEXT(16) PRIMARY KEY, may BOOL) MAX 100 ROWS FILLED BY CONTROLLER;
CREATE ELEMENT known ON rpc (user TEXT) AS
  ON REQUEST SELECT * FROM input JOIN users ON user = users.name WHERE users.may ELSE ABORT UNAUTHENTICATED;
END;
CREATE ELEMENT ranked ON rpc (user TEXT) AS
  TABLE rules (rank U32 PRIMARY KEY, who TEXT(16)?, may BOOL) MAX 100 ROWS FILLED BY CONTROLLER;
  ON REQUEST
    SELECT * FROM input JOIN FIRST rules r BY rank ASC ON (r.who IS NULL OR user = r.who) WHERE r.may
    ELSE ABORT PERMISSION_DENIED;
END;
CREATE CHAIN shop ON front -> cart METHOD 'shop.Cart/Add' AS
  known (user := req.user) -> ranked (user := req.user);
END;
"
        );
        let program = folder.write("network.weft", &program);
        let node = Node::start(&folder, &program, &["--workers", workers]);
        let change = |text: &str| stdout_of(&folder, &node, &["query", text]);
        let allow = "INSERT OR REPLACE INTO users VALUES ('ann', TRUE); \
                     INSERT OR REPLACE INTO shop.ranked.rules VALUES (9, NULL, TRUE)";
        let steps = [
            ("DELETE FROM users", tonic::Code::Unauthenticated),
            (allow, tonic::Code::Ok),
            ("UPDATE users SET may = FALSE", tonic::Code::Unauthenticated),
            ("UPDATE users SET may = TRUE", tonic::Code::Ok),
            ("INSERT INTO shop.ranked.rules VALUES (1, 'ann', FALSE)", tonic::Code::PermissionDenied),
            ("UPDATE shop.ranked.rules SET who = 'bob' WHERE rank = 1", tonic::Code::Ok),
            ("DELETE FROM shop.ranked.rules", tonic::Code::PermissionDenied),
        ];
        runtime().block_on(async {
            let mut clients = Vec::new();
            for _ in 0..CONNECTIONS {
                let client = CartClient::connect(format!("http://{}", node.listener)).await;
                clients.push(client.expect("it listens"));
            }
            for (text, code) in steps.iter().cycle().take(5 * steps.len()) {
                change(text);
                for client in &mut clients {
                    let request = CartRequest { user: "ann".into(), ..CartRequest::default() };
                    let got =
                        client.add(request).await.map_or_else(|status| status.code(), |_| tonic::Code::Ok);
                    assert_eq!(got, *code, "{workers} workers, after {text}");
                }
            }
        });
        assert_eq!(node.stop(), Some(0));
    }
}

/// To admit a locked-out user again, an operator would have to restart the program, which forgets all others.
#[test]
fn handler_rows_change_from_outside() {
    const CONNECTIONS: usize = 8;
    let server = shop_server("cart-1");
    for workers in ["1", "4"] {
        let folder = Folder::new();
        let program = format!(
            "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
CREATE ELEMENT guard ON rpc (user TEXT) AS
  TABLE calls (name TEXT(16) PRIMARY KEY, n U8 = 0, why TEXT(4)?, at TIMESTAMP = now(), raw BYTES(4) = '')
    MAX 100 ROWS EVICT REJECT;
  TABLE seen (name TEXT(16), nth U64, n U64 = 0, PRIMARY KEY (name, nth)) MAX 100 ROWS EVICT OLDEST PER WORKER;
  TABLE many (id U32 PRIMARY KEY, n U64 = 0) MAX 2100 ROWS EVICT REJECT;
  ON REQUEST
    UPSERT many KEY (9999) SET n = n + 1;
    UPSERT seen KEY (user, 1) SET n = n + 1;
    UPSERT calls KEY (user) SET n = n + 1;
    IF (SELECT n FROM calls WHERE name = user) > {CONNECTIONS} THEN ABORT RESOURCE_EXHAUSTED; END IF;
END;
CREATE CHAIN shop ON front -> cart METHOD 'shop.Cart/Add' AS guard (user := req.user); END;
"
        );
        let program = folder.write("network.weft", &program);
        let node = Node::start(&folder, &program, &["--workers", workers]);
        let query = |text: &str| stdout_of(&folder, &node, &["query", text]);
        let mut others = vec!["name,n".to_owned()];
        others.extend((0..99).map(|n| format!("u{n},{n}")));
        let others = folder.write("others.csv", &others.join("\n"));
        runtime().block_on(async {
            let mut clients = Vec::new();
            for _ in 0..CONNECTIONS {
                let client = CartClient::connect(format!("http://{}", node.listener)).await;
                clients.push(client.expect("it listens"));
            }
            let mut pass = async |is_meant: bool, behind: &str| {
                for client in &mut clients {
                    let request = CartRequest { user: "ann".into(), ..CartRequest::default() };
                    let got = client.add(request).await;
                    assert_eq!(got.is_ok(), is_meant, "{workers} workers, {behind}: {got:?}");
                }
            };
            pass(true, "none has called").await;
            pass(false, "all have called once").await;
            assert!(
                query("DELETE FROM shop.guard.calls WHERE n > 8").starts_with("1 row deleted; visible in ")
            );
            pass(true, "the row is gone").await;
            assert!(
                query("UPDATE shop.guard.calls SET n = n - 8 WHERE name = 'ann'")
                    .starts_with("1 row updated")
            );
            pass(true, "the row counts from 0").await;
            query("DELETE FROM shop.guard.calls");
            let inserted = query("INSERT INTO shop.guard.calls VALUES ('ann', 8, 'me', now() - '1 d', 'qq')");
            assert!(inserted.contains("1 row inserted"), "{inserted}");
            pass(false, "the row says so").await;
            // The output can be loaded again.
            let row = query("SELECT at, raw FROM shop.guard.calls");
            let row: Vec<&str> = row.lines().nth(1).expect("a row").split_whitespace().collect();
            assert_eq!((row.len(), row[1]), (2, "0x7171"), "{row:?}");
            let again = folder.write("again.csv", &format!("name,n,at,raw\nann,8,{},{}", row[0], row[1]));
            let loaded =
                ran(&folder, &node, &["load", "--replace", "shop.guard.calls", &again.display().to_string()]);
            assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
            let shown = query("SELECT at, raw FROM shop.guard.calls WHERE at < now() - '23 h'");
            assert_eq!(shown.lines().nth(1).map(|line| line.split_whitespace().collect()), Some(row));
            let replaced = query("INSERT OR REPLACE INTO shop.guard.calls (name) VALUES ('ann')");
            assert!(replaced.starts_with("1 row updated"), "{replaced}");
            pass(true, "the row is as new").await;
        });
        // Each worker has counted in rows of its own.
        let sum = |text: &str| query(&format!("SELECT sum(n) AS n FROM shop.guard.seen {text}"));
        assert_eq!(sum(""), " n\n48\n1 row\n");
        query("UPDATE shop.guard.seen SET n = 0");
        assert_eq!(sum("WHERE n > 0"), "n\n-\n1 row\n");
        query("DELETE FROM shop.guard.seen");
        assert_eq!(query("SELECT count(*) FROM shop.guard.seen"), "count\n    0\n1 row\n");
        let no = |text: &str| refused(&folder, &node, &["query", text]);
        let fault = no("INSERT INTO shop.guard.seen (name, nth) VALUES ('ann', 1)");
        assert!(fault.contains("is filled by each worker for itself"), "{fault}");
        let fault = no("INSERT INTO shop.guard.calls (name) VALUES ('bob'), ('ann')");
        assert!(fault.contains("a row with this key is there already"), "{fault}");
        let fault = no("UPDATE shop.guard.calls SET n = n + 250");
        assert!(fault.contains("this is an error for a row"), "{fault}");
        let fault =
            no("DELETE FROM shop.guard.calls WHERE name = 'me'; UPDATE shop.guard.calls SET n = n + 250");
        assert!(fault.contains("the statement in front of it is done"), "{fault}");
        let fault = no("UPDATE shop.guard.calls SET n = n / (n - n)");
        assert!(fault.contains("this is an error for a row"), "{fault}");
        let load = |folder: &Folder| {
            ran(folder, &node, &["load", "shop.guard.calls", &others.display().to_string()])
        };
        assert!(load(&folder).status.success());
        assert_eq!(
            query("SELECT count(*), sum(n) FROM shop.guard.calls WHERE name <> 'ann'"),
            "count  sum(n)\n   99    4851\n1 row\n"
        );
        let fault = no("INSERT INTO shop.guard.calls (name) VALUES ('one too many')");
        assert!(fault.contains("the table is full: it has at most 100 rows"), "{fault}");
        // A list is sent in parts; the part that finds no room is inserted up to there.
        let ids: String = (0..2_500).map(|id| format!("{id}\n")).collect();
        let ids = folder.write("ids.csv", &format!("id\n{ids}"));
        let fault = refused(&folder, &node, &["load", "shop.guard.many", ids.to_str().expect("a path")]);
        assert!(fault.contains("row 2100 of shop.guard.many: the table is full"), "{fault}");
        assert!(fault.contains("the 2099 rows before are in"), "{fault}");
        assert_eq!(query("SELECT count(*) FROM shop.guard.many"), "count\n 2100\n1 row\n");
        query("DELETE FROM shop.guard.many WHERE id <> 9999 AND id > 1");
        let fault = no(&format!("INSERT INTO shop.guard.many VALUES {}", {
            let rows: Vec<String> = (2..2_200).map(|id| format!("({id}, 0)")).collect();
            rows.join(", ")
        }));
        assert!(fault.contains("the 2097 rows in front of it are in"), "{fault}");
        assert_eq!(node.stop(), Some(0));
    }
}

/// A handler adds rules: a user who knocks is admitted.
const KNOCK: &str = "CREATE ELEMENT knock ON rpc (user TEXT, object_id I64) AS
  TABLE rules (who TEXT(16) PRIMARY KEY, rank U32 = 10, may BOOL) MAX 2 ROWS FILLED BY CONTROLLER;
  SINK allow (who TEXT, may BOOL) TO TABLE rules;
  SINK forget (who TEXT) TO TABLE rules DELETE;
  ON REQUEST
    IF object_id = 1 OR object_id = 3 THEN INSERT INTO allow VALUES (user, TRUE); END IF;
    IF object_id = 2 THEN INSERT INTO forget VALUES (user); END IF;
    LET rest = 1 / (3 - object_id);
    SELECT * FROM input JOIN FIRST rules r BY rank ASC ON (user = r.who) WHERE r.may AND rest <= 1
    ELSE ABORT PERMISSION_DENIED;
END;
";

/// A handler's rule would admit no user, or admit one by a pass that was rolled back.
#[test]
fn handlers_insert_into_rule_tables() {
    let server = shop_server("cart-1");
    for workers in ["1", "3"] {
        let folder = Folder::new();
        let program = format!(
            "CREATE TYPE cart FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '{server}';
{KNOCK}CREATE CHAIN shop ON front -> cart METHOD 'shop.Cart/Add' AS
  knock (user := req.user, object_id := req.object_id);
END;
"
        );
        let program = folder.write("network.weft", &program);
        let node = Node::start(&folder, &program, &["--workers", workers]);
        runtime().block_on(async {
            let client = CartClient::connect(format!("http://{}", node.listener)).await;
            let client = client.expect("it listens");
            let call = |user: &str, object_id: i64| {
                let mut client = client.clone();
                let request = CartRequest { user: user.into(), object_id, ..CartRequest::default() };
                async move { client.add(request).await.map_or_else(|s| s.code(), |_| tonic::Code::Ok) }
            };
            let comes = async |user: &str, wanted: tonic::Code| {
                for _ in 0..500 {
                    if call(user, 0).await == wanted {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                panic!("{user} is not told {wanted:?}");
            };
            let denied = tonic::Code::PermissionDenied;
            assert_eq!(call("ann", 0).await, denied);
            assert_eq!(call("ann", 1).await, denied, "the pass that sends a row does not see it");
            comes("ann", tonic::Code::Ok).await;
            assert_eq!(call("bob", 0).await, denied);
            assert_eq!(call("ann", 2).await, tonic::Code::Ok);
            comes("ann", denied).await;
            // A failed pass sends no row; the row of the next one arrives.
            assert_ne!(call("eve", 3).await, tonic::Code::Ok);
            assert_eq!(call("bob", 1).await, denied);
            comes("bob", tonic::Code::Ok).await;
            assert_eq!(call("eve", 0).await, denied);
            // There is room for two rules. The same one again changes nothing.
            assert_eq!(call("bob", 1).await, tonic::Code::Ok);
            assert_eq!(call("cid", 1).await, denied);
            comes("cid", tonic::Code::Ok).await;
            assert_eq!(call("dan", 1).await, denied);
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(call("dan", 0).await, denied);
        });
        let rows =
            stdout_of(&folder, &node, &["query", "SELECT who, rank, may FROM shop.knock.rules ORDER BY who"]);
        assert_eq!(rows, "who  rank  may\nbob    10  true\ncid    10  true\n2 rows\n");
        let status = stdout_of(&folder, &node, &["status"]);
        assert!(status.contains("shop.knock.rules refused 1 row of sinks TO TABLE"), "{status}");
        assert_eq!(node.stop(), Some(0));
    }
}

/// A learning firewall would block a flow for good, or pass unrequested packets.
#[test]
fn frames_add_rules_for_later_frames() {
    let folder = Folder::new();
    let (program, kept) = between_captures(
        &folder,
        100,
        "learning",
        "CREATE ELEMENT learning ON ip AS
  TABLE allowed (src IPADDR PRIMARY KEY, rank U32 = 10, may BOOL) MAX 100 ROWS FILLED BY CONTROLLER;
  SINK learn (src IPADDR, may BOOL) TO TABLE allowed;
  ON PACKET
    INSERT INTO learn VALUES (ip.src, TRUE);
    SELECT * FROM input JOIN FIRST allowed r BY rank ASC ON (ip.src = r.src) WHERE r.may ELSE DROP;
END;
",
    );
    let node = Node::start(&folder, &program, &[]);
    let rows = || stdout_of(&folder, &node, &["query", "SELECT src FROM edge.learning.allowed"]);
    let begun = std::time::Instant::now();
    while !rows().contains("10.0.0.1") {
        assert!(begun.elapsed() < Duration::from_secs(20), "no rule was learnt");
    }
    std::thread::sleep(Duration::from_millis(1500));
    let status: Value =
        serde_json::from_str(&stdout_of(&folder, &node, &["status", "-o", "json"])).expect("it is data");
    assert_eq!(status["rows_refused"], serde_json::json!({}));
    assert_eq!(node.stop(), Some(0));
    // Each packet of the capture has its own length in the file; at least the first was dropped.
    let (all, kept) = (capture(100).len(), std::fs::metadata(&kept).expect("it was written").len() as usize);
    assert!(kept < all && kept > all / 2, "{kept} bytes of {all}");
}

/// A program that plays recorded frames through an element at their times, and captures what passes; and the path of
/// that capture.
fn between_captures(folder: &Folder, frames: i64, name: &str, element: &str) -> (PathBuf, String) {
    let [from, to] = ["in.pcapng", "out.pcapng"].map(|name| folder.0.join(name).display().to_string());
    std::fs::write(&from, capture(frames)).expect("the folder is ours");
    let text = format!(
        "IMPORT 'library/protocols/all.weft';
CREATE PORT past ON pcap '{from}' WITH (speed = 'recorded');
CREATE PORT kept ON pcap '{to}' WITH (write = TRUE);
{element}
CREATE CHAIN edge ON PORT past -> kept AS {name}; END;
"
    );
    (folder.write("network.weft", &text), to)
}

/// A capture of this many frames, ten milliseconds apart, all of one flow.
fn capture(frames: i64) -> Vec<u8> {
    let ip = ethernet().macs([2; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(1, 0).ttl(9);
    let frame = ip.udp(7, 8).checksum(0).payload([0; 18]).build();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "", &mut bytes);
    for n in 0..frames {
        let at = Time(1_000_000_000 + n * 10_000_000);
        writer.write(&Packet { at, bytes: &frame, ..Packet::default() }, &mut bytes).expect("short");
    }
    bytes
}

/// Code for outdated rules would pass forbidden frames, or a recompilation at run time would.
#[test]
fn row_changes_respecialize_code() {
    let folder = Folder::new();
    let (program, _) = between_captures(
        &folder,
        2_000,
        "ranked",
        "CREATE ELEMENT ranked ON ip AS
  TABLE rules (rank U32 PRIMARY KEY, net CIDR?, may BOOL) MAX 100 ROWS FILLED BY CONTROLLER;
  TABLE seen (src IPADDR PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON PACKET
    UPSERT seen KEY (ip.src) SET n = n + 1;
    SELECT * FROM input JOIN FIRST rules r BY rank ASC ON (r.net IS NULL OR ip.src IN r.net) WHERE r.may
    ELSE DROP;
END;
",
    );
    let node = Node::start(&folder, &program, &[]);
    let change = |text: &str| stdout_of(&folder, &node, &["query", text]);
    let frames = || -> [u64; 2] {
        let status: Value =
            serde_json::from_str(&stdout_of(&folder, &node, &["status", "--json"])).expect("data");
        assert_eq!(status["version"], 1, "rows are no other version");
        let ports = &status["packets"]["ports"];
        [&ports[0]["received"], &ports[1]["sent"]].map(|n| n.as_u64().expect("a number"))
    };
    // Waits until many frames have come, and counts those that left.
    let left_of_next = || {
        let [before, left] = frames();
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let [come, left_now] = frames();
            if come >= before + 10 {
                return left_now - left;
            }
        }
    };
    assert_eq!(left_of_next(), 0, "no row lets pass");
    // Keys are longer from here on.
    change(
        "INSERT INTO edge.ranked.rules VALUES (9, NULL, TRUE); \
         INSERT INTO edge.ranked.rules VALUES (5, '2001:db8::/32', FALSE)",
    );
    assert!(left_of_next() >= 10);
    // A second later the code is recompiled for them.
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(left_of_next() >= 10);
    change("INSERT INTO edge.ranked.rules VALUES (1, '10.0.0.0/8', FALSE)");
    assert_eq!(left_of_next(), 0);
    change("UPDATE edge.ranked.rules SET net = '2001:db8::/32' WHERE rank = 1");
    assert!(left_of_next() >= 10);
    // A new program that may not know the learned rows is about to replace this one.
    let text = std::fs::read_to_string(&program).expect("it was written");
    stdout_of(&folder, &node, &["apply", program.to_str().expect("a path")]);
    assert!(change("SELECT count(*) FROM edge.ranked.rules").contains("    3\n"), "rows of run time stay");
    std::thread::sleep(Duration::from_millis(1_500));
    let other = folder.write("other.weft", &text.replace("seen", "known"));
    let printed = stdout_of(&folder, &node, &["apply", "--dry-run", other.to_str().expect("a path")]);
    assert!(printed.contains("edge.ranked.seen"), "{printed}");
    assert_eq!(node.stop(), Some(0));
}

/// A wrong name in a program gives an error; in a run-time row it would silently lose frames.
#[test]
fn row_with_unknown_port_warns() {
    let folder = Folder::new();
    let (program, _) = between_captures(
        &folder,
        1,
        "sent",
        "CREATE ELEMENT sent ON ip AS
  TABLE ways (src IPADDR PRIMARY KEY, via TEXT(32)) MAX 100 ROWS FILLED BY CONTROLLER;
  ON PACKET
    SELECT * FROM input JOIN ways ON ways.src = ip.src ELSE DROP;
    REDIRECT TO ways.via;
END;
",
    );
    let node = Node::start(&folder, &program, &[]);
    let ask = |row: &str, more: &[&str]| {
        let text = format!("INSERT INTO edge.sent.ways VALUES {row}");
        let done = ran(&folder, &node, &[&["query", &text], more].concat());
        assert_eq!(done.status.code(), Some(0), "a warning is no fault");
        [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"))
    };
    let [printed, warned] = ask("('10.0.0.1', 'kept')", &[]);
    assert!(printed.starts_with("1 row inserted") && warned.is_empty(), "{warned}");
    let [printed, warned] = ask("('10.0.0.2', 'kpet')", &[]);
    assert!(printed.starts_with("1 row inserted"), "{printed}");
    assert!(warned.contains("unknown port `kpet`") && warned.contains("write 'kept'"), "{warned}");
    let [printed, warned] = ask("('10.0.0.3', 'kpet')", &["-o", "json"]);
    let answers: Value = serde_json::from_str(&printed).expect("it is data");
    assert!(
        warned.is_empty() && answers[0]["warnings"].as_str().is_some_and(|w| w.contains("`kpet`")),
        "{printed}"
    );
    assert_eq!(node.stop(), Some(0));
}

/// A node's own state could not be queried, only the tables of its program.
#[test]
fn system_tables_describe_node() {
    let folder = Folder::new();
    let program = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &program, &[]);
    let elements =
        stdout_of(&folder, &node, &["query", "SELECT chain, name, seen FROM elements ORDER BY name"]);
    assert!(elements.contains("shop") && elements.contains("rule_acl"), "{elements}");
    let none = stdout_of(&folder, &node, &["query", "SELECT count(*) FROM links"]);
    assert!(none.contains('0'), "{none}");
    let fault = refused(&folder, &node, &["query", "DELETE FROM elements WHERE name = 'rule_acl'"]);
    assert!(fault.contains("`elements` is filled by the node itself"), "{fault}");
    assert_eq!(node.stop(), Some(0));
}
