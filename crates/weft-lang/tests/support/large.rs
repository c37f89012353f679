//! Programs with very many of one thing: one program for each production of the grammar that repeats or nests.
//!
//! They cover the productions of `docs/src/reference/grammar.md`. Apart from its size, each program is valid, so only a
//! limit may reject it; `shop.proto` must have `shop.Cart` with `user` and `object_id` in its request.

/// A production that repeats or nests, and a program with many repetitions of it.
pub(crate) struct Large {
    /// Of what there are many.
    pub(crate) what: &'static str,
    /// Makes the program.
    pub(crate) program: fn(usize) -> String,
}

/// All of them.
pub(crate) const ALL: &[Large] = &[
    // Lists of expressions.
    large("IN of numbers", |n| {
        request("", &drop_if(&format!("object_id IN ({})", list(n, ", ", |i| i.to_string()))))
    }),
    large("NOT IN of texts", |n| {
        request("", &drop_if(&format!("user NOT IN ({})", list(n, ", ", |i| format!("'u{i}'")))))
    }),
    large("IN of what is computed", |n| {
        request("", &drop_if(&format!("object_id IN ({})", list(n, ", ", |i| format!("object_id / {i}")))))
    }),
    large("OR of IN", |n| {
        let one = |from: usize| format!("object_id IN ({})", list(n, ", ", |i| (from + i).to_string()));
        request("", &drop_if(&format!("{} OR {}", one(0), one(n))))
    }),
    large("arms of a CASE with an operand", |n| {
        request(
            "",
            &format!(
                "SET object_id = CASE object_id {} ELSE 0 END;",
                list(n, " ", |i| format!("WHEN {i} THEN {}", i + 1))
            ),
        )
    }),
    large("arms of a CASE of conditions", |n| {
        let arm = |i| format!("WHEN object_id > {i} THEN object_id / {}", i + 1);
        request("", &format!("SET object_id = CASE {} ELSE 0 END;", list(n, " ", arm)))
    }),
    large("arms of a CASE that fail", |n| {
        let arm = |i| format!("WHEN object_id / (object_id - {i}) > 1 THEN object_id / {}", i + 1);
        request("", &format!("SET object_id = CASE {} ELSE 0 END;", list(n, " ", arm)))
    }),
    large("arms of a CASE of texts", |n| {
        request(
            "",
            &format!(
                "SET user = CASE user {} ELSE 'x' END;",
                list(n, " ", |i| format!("WHEN 'a{i}' THEN 'b{i}'"))
            ),
        )
    }),
    large("arguments of coalesce", |n| {
        request("", &format!("SET user = coalesce({}, 'x');", list(n, ", ", |_| "header['x']".to_owned())))
    }),
    large("arguments of coalesce that cost", |n| {
        let look = |i| format!("(SELECT v FROM t WHERE k = {i})");
        request(TABLE, &format!("SET object_id = coalesce({}, 1);", list(n, ", ", look)))
    }),
    large("arguments of least", |n| {
        request("", &format!("SET object_id = least({});", list(n, ", ", |i| format!("object_id - {i}"))))
    }),
    large("operands of +", |n| {
        request("", &format!("SET object_id = {};", list(n, " + ", |_| "object_id".to_owned())))
    }),
    large("operands of OR", |n| request("", &drop_if(&list(n, " OR ", |i| format!("object_id = {i}"))))),
    large("operands of AND", |n| request("", &drop_if(&list(n, " AND ", |i| format!("object_id <> {i}"))))),
    large("operands of ||", |n| {
        request("", &format!("SET user = {};", list(n, " || ", |_| "user".to_owned())))
    }),
    large("wild cards of a LIKE", |n| request("", &drop_if(&format!("user LIKE '{}'", "%a".repeat(n))))),
    // What nests.
    large("parentheses", |n| {
        request("", &format!("SET object_id = {}object_id{};", "(".repeat(n), ")".repeat(n)))
    }),
    large("signs", |n| request("", &format!("SET object_id = {}object_id;", "- ".repeat(n)))),
    large("NOT in NOT", |n| request("", &drop_if(&format!("{}TRUE", "NOT ".repeat(n))))),
    large("calls in calls", |n| {
        request("", &format!("SET object_id = {}object_id{};", "abs(".repeat(n), ")".repeat(n)))
    }),
    large("CASE in THEN", |n| {
        request(
            "",
            &format!(
                "SET object_id = {}1{};",
                "CASE WHEN object_id > 1 THEN ".repeat(n),
                " ELSE 2 END".repeat(n)
            ),
        )
    }),
    large("CASE in ELSE", |n| {
        let open = list(n, "", |i| format!("CASE WHEN object_id > {i} THEN {i} ELSE "));
        request("", &format!("SET object_id = {open}2{};", " END".repeat(n)))
    }),
    large("CASE in WHEN", |n| {
        request(
            "",
            &drop_if(&format!("{}TRUE{}", "CASE WHEN ".repeat(n), " THEN 1 ELSE 2 END = 1".repeat(n))),
        )
    }),
    large("CAST in CAST", |n| {
        request("", &format!("SET object_id = {}object_id{};", "CAST(".repeat(n), " AS I64)".repeat(n)))
    }),
    large("looks in looks", |n| {
        let open = "(SELECT v FROM t WHERE k = ".repeat(n);
        request(TABLE, &format!("SET object_id = coalesce({open}1{}, 1);", ")".repeat(n)))
    }),
    large("IF in IF", |n| {
        request("", &format!("{}DROP;{}", "IF object_id > 1 THEN ".repeat(n), " END IF;".repeat(n)))
    }),
    large("IF in ELSE", |n| {
        request(
            "",
            &format!(
                "{}DROP;{}",
                "IF object_id > 1 THEN SET object_id = 1; ELSE ".repeat(n),
                " END IF;".repeat(n)
            ),
        )
    }),
    large("SCAN in SCAN", |n| {
        let open = list(n, "", |i| format!("SCAN t MAX 1 AS r{i} WHERE r{i}.v > 1 DO "));
        request(TABLE, &format!("{open}SET object_id = 1;{}", " END SCAN;".repeat(n)))
    }),
    large("UPDATE in its ELSE", |n| {
        let open = "UPDATE t SET v = 1 WHERE k = 1 ELSE ".repeat(n);
        request(TABLE, &format!("{open}DROP;"))
    }),
    large("UPDATE in its ELSE DO", |n| {
        let open = "UPDATE t SET v = 1 WHERE k = 1 ELSE DO ".repeat(n);
        request(TABLE, &format!("{open}DROP;{}", " END UPDATE;".repeat(n)))
    }),
    // Statements.
    large("ELSIFs", |n| {
        let more = list(n, "", |i| format!("ELSIF object_id = {i} THEN SET object_id = {}; ", i + 1));
        request("", &format!("IF object_id = -1 THEN DROP; {more}END IF;"))
    }),
    large("ELSIFs with verdicts", |n| {
        let more = list(n, "", |i| format!("ELSIF object_id = {i} THEN ABORT UNAVAILABLE 'x'; "));
        request("", &format!("IF object_id = -1 THEN FORWARD; {more}END IF;"))
    }),
    large("IFs", |n| {
        request("", &list(n, "\n", |i| format!("IF object_id = {i} THEN SET object_id = {}; END IF;", i + 1)))
    }),
    large("IFs with verdicts", |n| {
        request("", &list(n, "\n", |i| format!("IF object_id = {i} THEN ABORT UNAVAILABLE; END IF;")))
    }),
    large("SETs", |n| request("", &list(n, "\n", |i| format!("SET object_id = object_id + {i};")))),
    large("SETs of a text", |n| request("", &list(n, "\n", |_| "SET user = lower(user);".to_owned()))),
    large("SETs of a header", |n| request("", &list(n, "\n", |_| "SET header['x'] = user;".to_owned()))),
    large("LETs", |n| request("", &list(n, "\n", |i| format!("LET v{i} = object_id + {i};")))),
    large("guards", |n| {
        request(
            "",
            &list(n, "\n", |i| format!("SELECT * FROM input WHERE object_id <> {i} ELSE ABORT UNAVAILABLE;")),
        )
    }),
    large("joins in a row", |n| {
        request(
            TABLE,
            &list(n, "\n", |i| {
                format!(
                    "SELECT * FROM input JOIN t a{i} ON a{i}.k = {i} WHERE object_id > {i} ELSE ABORT UNAVAILABLE;"
                )
            }),
        )
    }),
    large("INSERTs", |n| {
        request(TABLE, &list(n, "\n", |i| format!("INSERT INTO t VALUES ({i}, object_id);")))
    }),
    large("UPSERTs", |n| request(TABLE, &list(n, "\n", |i| format!("UPSERT t KEY ({i}) SET v = v + 1;")))),
    large("UPDATEs", |n| {
        request(
            TABLE,
            &list(n, "\n", |i| format!("UPDATE t SET v = v + 1 WHERE k = {i} ELSE ABORT UNAVAILABLE;")),
        )
    }),
    large("DELETEs", |n| request(TABLE, &list(n, "\n", |i| format!("DELETE FROM t WHERE k = {i};")))),
    large("looks", |n| {
        request(
            TABLE,
            &list(n, "\n", |i| {
                format!("SET object_id = object_id + coalesce((SELECT v FROM t WHERE k = {i}), 1);")
            }),
        )
    }),
    large("SCANs", |n| {
        request(
            TABLE,
            &list(n, "\n", |i| {
                format!("SCAN t MAX 1 AS r WHERE r.v > {i} DO SET object_id = r.v; END SCAN;")
            }),
        )
    }),
    large("aggregates", |n| {
        request(
            TABLE,
            &list(n, "\n", |i| {
                format!("SET object_id = coalesce((SELECT sum(v) FROM SCAN t MAX 1 WHERE v > {i}), 1);")
            }),
        )
    }),
    large("ADDs", |n| request("VAR c I64 MERGE SUM;", &list(n, "\n", |_| "ADD c, object_id;".to_owned()))),
    large("SETs of a variable", |n| request("VAR c I64;", &list(n, "\n", |i| format!("SET c = c + {i};")))),
    large("rows of a sink", |n| {
        request(
            "SINK s (n I64) TO STDOUT;",
            &list(n, "\n", |_| "INSERT INTO s VALUES (object_id);".to_owned()),
        )
    }),
    large("MARKs", |n| request("", &list(n, "\n", |_| "MARK (class = 1);".to_owned()))),
    large("DELAYs", |n| request("", &list(n, "\n", |_| "DELAY '1 ms';".to_owned()))),
    // Lists in statements.
    large("joins of one SELECT", |n| {
        let joins = list(n, " ", |i| format!("JOIN t a{i} ON a{i}.k = object_id"));
        request(TABLE, &format!("SELECT * FROM input {joins} ELSE ABORT UNAVAILABLE;"))
    }),
    large("rows of an INSERT", |n| {
        request(TABLE, &format!("INSERT INTO t VALUES {};", list(n, ", ", |i| format!("({i}, object_id)"))))
    }),
    large("WITHs of an ABORT", |n| {
        request(
            "",
            &format!("ABORT UNAVAILABLE 'x' WITH {};", list(n, ", ", |_| "header['x'] = user".to_owned())),
        )
    }),
    large("conjuncts of a WHERE", |n| {
        request(
            TABLE,
            &format!("DELETE FROM t WHERE k = 1 AND {};", list(n, " AND ", |i| format!("v <> {i}"))),
        )
    }),
    // Declarations, handlers, items.
    large("columns of a table", |n| {
        request(
            &format!(
                "TABLE w (k I64 PRIMARY KEY, {}) MAX 2 ROWS EVICT OLDEST;",
                list(n, ", ", |i| format!("c{i} I64 = 0"))
            ),
            "UPSERT w KEY (1);",
        )
    }),
    large("CHECKs of a table", |n| {
        let checks = list(n, ", ", |i| format!("CHECK (v > {i})"));
        format!(
            "CREATE TABLE w (k I64 PRIMARY KEY, v I64, {checks}) MAX 2 ROWS FILLED BY CONTROLLER;\n{}",
            request("", "FORWARD;")
        )
    }),
    large("tables", |n| {
        request(
            &list(n, "\n", |i| format!("TABLE t{i} (k I64 PRIMARY KEY) MAX 1 ROWS EVICT OLDEST;")),
            "FORWARD;",
        )
    }),
    large("CALL columns", |n| {
        request(&format!("CALL ({});", list(n, ", ", |i| format!("c{i} I64"))), "FORWARD;")
    }),
    large("EVERY handlers", |n| {
        let every = list(n, "\n", |i| format!("ON EVERY '{} s' RESET c;", i + 1));
        element("VAR c I64 MERGE SUM;", &format!("ON REQUEST FORWARD;\n{every}"), "e")
    }),
    large("stages", |n| {
        element("", "ON REQUEST SET object_id = object_id + 1;", &list(n, " -> ", |i| format!("e AS e{i}")))
    }),
    large("long stages", |n| {
        let body =
            list(n / 60, "\n", |i| format!("IF object_id = {i} THEN SET object_id = {}; END IF;", i + 1));
        element("", &format!("ON REQUEST {body}"), &list(60, " -> ", |i| format!("e AS e{i}")))
    }),
    large("long chains", |n| {
        let set = |i| format!("IF object_id = {i} THEN SET object_id = {}; END IF;", i + 1);
        let chain = |i| {
            format!(
                "CREATE LISTENER l{i} ON tcp '127.0.0.1:0';\nCREATE CLUSTER k{i} TO '127.0.0.1:1';\n\
                 CREATE CHAIN c{i} ON l{i} -> k{i} AS e; END;"
            )
        };
        let body = list(n / 200, "\n", set);
        format!("{}{}", element("", &format!("ON REQUEST {body}"), "e"), list(60, "\n", chain))
    }),
    large("conditions of routes", |n| {
        let route = |i| {
            format!(
                "CREATE ROUTE r{i} ON front METHOD '/shop.Cart/Get' WHEN header['x'] IN ('a', 'b{i}') TO CLUSTER cart;"
            )
        };
        format!("{}{}", request("", "FORWARD;"), list(n, "\n", route))
    }),
    large("values of a route's condition", |n| {
        let values = list(n, ", ", |i| format!("'b{i}'"));
        format!(
            "{}CREATE ROUTE r ON front WHEN header['x'] IN ({values}) TO CLUSTER cart;",
            request("", "FORWARD;")
        )
    }),
    large("rows of a table", |n| {
        let rows = list(n, ", ", |i| format!("({i})"));
        let look = "IF EXISTS (SELECT * FROM w WHERE k = object_id) THEN ABORT UNAVAILABLE; END IF;";
        format!(
            "CREATE TABLE w (k I64 PRIMARY KEY) MAX 1000000 ROWS FILLED BY CONTROLLER;\n\
             INSERT INTO w VALUES {rows};\n{}",
            request("", look)
        )
    }),
    large("endpoints", |n| {
        let endpoints = list(n, ", ", |i| format!("'127.0.0.1:{}'", i + 1));
        format!("CREATE CLUSTER many TO {endpoints};\n{}", request("", "FORWARD;"))
    }),
    // Queues.
    large("ELSIFs of a queue", |n| {
        let more = list(n, "", |i| format!("ELSIF p.len > {i} THEN SET p.class = 1; "));
        queue(&format!("IF p.len > 100000 THEN SET p.class = 2; {more}END IF;"))
    }),
    large("IFs of a queue", |n| {
        queue(&list(n, "\n", |i| format!("IF p.len > {i} THEN SET p.class = 1; END IF;")))
    }),
    large("IF in IF of a queue", |n| {
        queue(&format!("{}SET p.class = 1;{}", "IF p.len > 1 THEN ".repeat(n), " END IF;".repeat(n)))
    }),
    large("arms of a CASE of a queue", |n| {
        queue(&format!(
            "LET x = CASE {} ELSE 0 END; SET p.class = x;",
            list(n, " ", |i| format!("WHEN p.len > {i} THEN {}", i % 7))
        ))
    }),
    large("values of an IN of a queue", |n| {
        queue(&format!("IF p.len IN ({}) THEN SET p.class = 1; END IF;", list(n, ", ", |i| i.to_string())))
    }),
    // Wire formats.
    large("fields of a header", |n| wire(&list(n, ", ", |i| format!("f{i} bit(8)")))),
    large("WHEN in WHEN", |n| {
        wire(&format!("a bit(8), {}b bit(8){}", "WHEN (a = 1) (".repeat(n), ")".repeat(n)))
    }),
    large("SWITCH in ELSE", |n| {
        wire(&format!("a bit(8), PAYLOAD {}bytes{}", "SWITCH (a) (1: bytes, ELSE ".repeat(n), ")".repeat(n)))
    }),
    large("arms of a SWITCH", |n| {
        wire(&format!(
            "a bit(32), PAYLOAD SWITCH (a) ({}, ELSE bytes)",
            list(n, ", ", |i| format!("{i}: bytes"))
        ))
    }),
    large("values of an IN of a header", |n| {
        wire(&format!("a bit(32), WHEN (a IN ({})) (b bit(8))", list(n, ", ", |i| i.to_string())))
    }),
    large("protocols in a row", |n| {
        let one =
            |i| format!("CREATE PROTOCOL p{i} (a bit(8), PAYLOAD SWITCH (a) (1: p{}, ELSE bytes));", i + 1);
        format!("{}\nCREATE PROTOCOL p{n} (a bit(8), PAYLOAD bytes);", list(n, "\n", one))
    }),
];

const TABLE: &str = "TABLE t (k I64 PRIMARY KEY, v I64 = 0) MAX 10 ROWS EVICT OLDEST;";

const fn large(what: &'static str, program: fn(usize) -> String) -> Large {
    Large { what, program }
}

fn list(n: usize, separator: &str, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(separator)
}

fn drop_if(condition: &str) -> String {
    format!("IF {condition} THEN ABORT UNAVAILABLE; END IF;")
}

fn request(decls: &str, body: &str) -> String {
    element(decls, &format!("ON REQUEST\n{body}"), "e")
}

fn element(decls: &str, handlers: &str, stages: &str) -> String {
    format!(
        "CREATE TYPE cart FROM PROTO 'shop.proto';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT e ON rpc (user TEXT, object_id I64) AS
{decls}
{handlers}
END;
CREATE CHAIN shop ON front -> cart AS {stages}; END;
"
    )
}

fn queue(body: &str) -> String {
    format!(
        "CREATE QUEUE q AS
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
  ON ENQUEUE
{body}
  ACCEPT;
END;
CREATE PORT lan ON memory;
CREATE LINK wan ON PORT lan QUEUE q;
"
    )
}

fn wire(header: &str) -> String {
    format!("CREATE PROTOCOL ethernet ({header});\n")
}
