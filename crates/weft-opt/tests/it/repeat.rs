//! Which elements may see a message twice.

use weft_opt::effects::repeats;

use crate::swap::known;

/// Why an element with this body may not see a message twice; empty if it may.
fn why_not(shared: &str, body: &str) -> Vec<String> {
    let known = known(shared, body, "ON REQUEST SET quantity = quantity;", "");
    let found = repeats(&known.chain, &known.effects, 0).err().unwrap_or_default();
    assert!(found.iter().all(|found| found.lines.iter().all(|line| *line > 0)), "{found:?}");
    found.into_iter().map(|found| found.why).collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn traceless_chain_is_repeatable() {
    // A retry filter that refused such elements could wrap nothing.
    let rights = "TABLE t (k TEXT(8) PRIMARY KEY, n I64 = 0) MAX 10 ROWS FILLED BY CONTROLLER;";
    for body in [
        "ON REQUEST SET payload = payload || payload;",
        "ON REQUEST IF rand() < 0.5 THEN ABORT UNAVAILABLE 'drawn'; END IF;",
        "ON REQUEST DELAY '5 ms';",
        "CALL (seen I64 = 0); ON REQUEST SET seen = object_id; ON RESPONSE SET header['x-seen'] = text(seen);",
        "VAR last I64 = 0; ON REQUEST SET last = 7;",
        "VAR last I64 = 0; ON REQUEST IF object_id > 3 THEN SET last = object_id; END IF;",
    ] {
        assert_eq!(why_not("", body), NOTHING, "{body}");
    }
    let looks =
        format!("{rights} ON REQUEST SELECT * FROM input JOIN t ON t.k = user ELSE ABORT NOT_FOUND 'no';");
    assert_eq!(why_not("", &looks), NOTHING);
    let shared = "CREATE TABLE s (k TEXT(8) PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT REJECT;";
    assert_eq!(why_not(shared, "ON REQUEST UPDATE s SET n = object_id WHERE k = user;"), NOTHING);
}

#[test]
fn repeated_trace_is_reported() {
    // A retried call would be logged, copied and counted twice.
    let log = "SINK log (id U64) TO FILE 'a.log';";
    assert_eq!(
        why_not("", &format!("{log} ON CLOSE INSERT INTO log VALUES (call_id);")),
        ["gives log a row"]
    );
    assert_eq!(why_not("", "ON REQUEST MIRROR TO 'cart';"), ["copies the call to another target"]);
    assert_eq!(why_not("", "VAR n U64 MERGE SUM; ON REQUEST ADD n, 1;"), ["adds to n"]);
    assert_eq!(why_not("", "VAR n I64 = 0; ON REQUEST SET n = n + 1;"), ["changes n, which calls read"]);
    let table = "TABLE t (k TEXT(8) PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT OLDEST;";
    assert_eq!(
        why_not("", &format!("{table} ON REQUEST UPSERT t KEY (user) SET n = n + 1;")),
        ["adds rows to t, or takes them away", "changes t.n, which calls read"]
    );
}

#[test]
fn unrepeatable_write_is_reported() {
    // The second attempt would leave another value, on a path that the first did not take.
    let set = |value: &str| format!("VAR x F64 = 0; ON REQUEST IF {value} > 0.5 THEN SET x = 1; END IF;");
    assert_eq!(why_not("", &set("rand()")), ["changes x by chance"]);
    assert_eq!(why_not("", "VAR x TIMESTAMP; ON REQUEST SET x = now();"), ["changes x by the time"]);
    assert_eq!(
        why_not("", "VAR x STATUS = 'OK'; ON CLOSE IF status != 'OK' THEN SET x = status; END IF;"),
        ["changes x by the answer, of which each attempt has its own"]
    );
    let hidden = "VAR x F64 = 0; CALL (c F64 = 0); ON REQUEST SET c = rand(); ON CLOSE SET x = c;";
    assert_eq!(why_not("", hidden), ["changes x by call.c"]);
    let by_field = "VAR x I64 = 0; ON OPEN SET header['x-a'] = text(rand());
  ON REQUEST SET x = length(COALESCE(header['x-a'], ''));";
    assert_eq!(why_not("", by_field), ["changes x by header[x-a], which an element sets"]);
}
