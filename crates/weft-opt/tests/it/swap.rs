//! The rules for swapping elements, each with programs that it refuses and programs that it allows.

use std::collections::BTreeSet;

use weft_core::schema::{Field, FieldKind, Presence, Schema};
use weft_ir::ir::Op;
use weft_ir::program::ChainProgram;
use weft_lang::Resolver;
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::resolve::{SchemaFault, SchemaSource};
use weft_opt::effects::{ChainEffects, effects};
use weft_opt::lower::{LowerOptions, lower_with_lines};
use weft_opt::plan::{Context, Level, Pair, Rule, Sharding, pairs, tables};

use crate::schema::Disk;

/// A program in memory. Its messages are those of the shop, with one more field.
pub(crate) struct Inline(pub(crate) String);

impl Resolver for Inline {
    fn text(&mut self, _path: &str, _from: Option<&str>) -> Result<String, String> {
        Ok(self.0.clone())
    }

    fn schema(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault> {
        let mut schema = Disk.schema(source, from)?;
        if source.path == "cart.proto" {
            let bytes = Field::new("digest", 30, FieldKind::Bytes, Presence::Implicit);
            schema.messages[0].fields.push(bytes);
        }
        Ok(schema)
    }

    fn name(&mut self, path: &str, _from: Option<&str>) -> String {
        path.to_owned()
    }
}

/// The analysis of a chain `a -> b` of elements with these bodies.
pub(crate) struct AnalyzedPair {
    pub(crate) chain: ChainProgram,
    pub(crate) effects: ChainEffects,
    pair: Pair,
    tables: Vec<(String, Sharding)>,
}

const COLUMNS: &str = "user TEXT, object_id I64, quantity I32, payload BYTES, address TEXT?, locker I64?";

/// As [`known`], for elements with only the column `user`: then `payload` is the whole message.
fn known_of_users(a: &str, b: &str) -> AnalyzedPair {
    known_with("user TEXT", "", a, b, "")
}

pub(crate) fn known(shared: &str, a: &str, b: &str, options: &str) -> AnalyzedPair {
    known_with(COLUMNS, shared, a, b, options)
}

fn known_with(columns: &str, shared: &str, a: &str, b: &str, options: &str) -> AnalyzedPair {
    let program = format!(
        "CREATE TYPE cart_msg FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:7070';
CREATE CLUSTER cart TO '127.0.0.1:7101';
{shared}
CREATE ELEMENT a ON rpc ({columns}) AS
{a}
END;
CREATE ELEMENT b ON rpc ({columns}) AS
{b}
END;
CREATE CHAIN t ON front -> cart METHOD 'shop.Cart/Add' AS a -> b; {options} END;
"
    );
    let (network, diagnostics, sources) = weft_lang::check("t.weft", &mut Inline(program));
    let show = |diagnostics: &[_]| render_all(diagnostics, &sources, RenderOptions::default());
    let network = network.unwrap_or_else(|| panic!("{}", show(&diagnostics)));
    let chain = lower_with_lines(&network, 0, &LowerOptions { workers: 2 }, &sources)
        .unwrap_or_else(|diagnostics| panic!("{}", show(&diagnostics)));
    let effects = effects(&chain);
    let context = Context::new(&network.chains[0]);
    let pair = pairs(&chain, &effects, &context).remove(0);
    let tables = tables(&chain, &effects);
    let name = |table: usize| chain.tables[table].spec.name.clone();
    let tables = tables.into_iter().map(|t| (name(t.table), t.sharding)).collect();
    AnalyzedPair { chain, effects, pair, tables }
}

/// Checks the rules that keep `a -> b` in order at a level.
#[track_caller]
fn check(level: Level, [a, b]: [&str; 2], expected: &[Rule]) {
    check_with(level, "", [a, b], "", expected);
}

#[track_caller]
fn check_with(level: Level, shared: &str, [a, b]: [&str; 2], options: &str, expected: &[Rule]) {
    let pair = known(shared, a, b, options).pair;
    let rules: BTreeSet<Rule> = pair.blocking(level).map(|clash| clash.rule).collect();
    assert_eq!(rules.into_iter().collect::<Vec<_>>(), expected, "{pair:#?}");
    assert_eq!(pair.may_swap(level), expected.is_empty());
    // If a level allows a swap, all weaker ones do.
    let allowed: Vec<bool> = Level::ALL.into_iter().map(|level| pair.may_swap(level)).collect();
    assert!(allowed.is_sorted(), "{pair:#?}");
}

use Level::{Observable, Output, Relaxed, Stochastic, Strict};

const DENY: &str = "ON REQUEST IF user = 'mallory' THEN ABORT PERMISSION_DENIED 'no'; END IF;";
const COUNT: &str = "VAR n U64 MERGE SUM; ON REQUEST ADD n, 1;";
const LOG: &str = "SINK log (id U64) TO FILE 'a.log'; ON CLOSE INSERT INTO log VALUES (call_id);";

#[test]
fn rule_1_payload_has_all_fields() {
    // An element that stores the message would store the other's changes, in the other order.
    let sums = "CALL (sum U64 = 0); ON REQUEST SET sum = hash(payload);";
    let rules = |a: &str, b: &str| {
        let pair = known_of_users(a, b).pair;
        pair.blocking(Relaxed).map(|clash| clash.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules(sums, "ON REQUEST SET user = 'x';"), [Rule::Fields]);
    assert_eq!(rules(sums, "ON REQUEST SET header['x'] = 'x';"), []);
    assert_eq!(rules(sums, "ON REQUEST IF user = 'x' THEN REDIRECT TO 'cart'; END IF;"), []);
}

#[test]
fn rule_1_fields() {
    // An element that reads what another rewrites would read something else in the other order.
    let rewrite = "ON REQUEST SET payload = payload || payload;";
    let hash = "ON REQUEST IF object_id > 5 THEN REDIRECT TO 'cart'; END IF;";
    let size = "ON REQUEST IF length(payload) > 100 THEN REDIRECT TO 'cart'; END IF;";
    let blank = "ON REQUEST SET payload = payload;";
    check(Relaxed, [rewrite, size], &[Rule::Fields]);
    check(Relaxed, [size, rewrite], &[Rule::Fields]);
    check(Relaxed, [rewrite, blank], &[Rule::Fields]);
    check(Observable, [rewrite, hash], &[]);
    // Requests and responses are different messages.
    let answers = "ON RESPONSE SET header['x-size'] = 'small';";
    let asks = "ON REQUEST IF header['x-size'] = 'small' THEN REDIRECT TO 'cart'; END IF;";
    check(Observable, [answers, asks], &[]);
    // Setting one member of a `oneof` clears the others.
    let address = "ON REQUEST SET address = 'here';";
    let locker = "ON REQUEST SET locker = 5;";
    check(Relaxed, [address, locker], &[Rule::Fields]);
    check(Observable, [address, rewrite], &[]);
    // So an element that reads one of them finds it missing after an element that sets another.
    let no_lockers = "ON REQUEST IF locker IS NOT NULL THEN ABORT INVALID_ARGUMENT 'no lockers'; END IF;";
    check(Relaxed, [address, no_lockers], &[Rule::Fields]);
    check(Relaxed, [no_lockers, address], &[Rule::Fields]);
    // The size of a message changes with each of its fields.
    let sized = "ON REQUEST IF size > '100 B' THEN ABORT RESOURCE_EXHAUSTED 'big'; END IF;";
    check(Relaxed, [address, sized], &[Rule::Fields]);
    check(Observable, ["ON REQUEST SET header['x'] = 'y';", sized], &[]);
}

/// Lowers a chain on methods of `mixed.proto`.
fn lower_mixed(methods: &str, columns: &str, stage: &str, body: &str) -> Result<ChainProgram, String> {
    let program = format!(
        "CREATE TYPE m FROM PROTO 'mixed.proto';
CREATE LISTENER front ON tcp '127.0.0.1:7070';
CREATE CLUSTER back TO '127.0.0.1:7101';
CREATE ELEMENT e ON rpc ({columns}) AS {body} END;
CREATE CHAIN t ON front -> back METHOD '{methods}' AS {stage}; END;
"
    );
    let (network, diagnostics, sources) = weft_lang::check("t.weft", &mut Inline(program));
    let show = |diagnostics: &[_]| render_all(diagnostics, &sources, RenderOptions::default());
    let network = network.unwrap_or_else(|| panic!("{}", show(&diagnostics)));
    lower_with_lines(&network, 0, &LowerOptions { workers: 1 }, &sources).map_err(|errors| show(&errors))
}

#[test]
fn displacement_is_same_in_all_messages() {
    // One handler for both messages would displace a field that stays, or keep one that goes.
    let body = "ON REQUEST SET a = 'x'; SET header['x-b'] = coalesce(b, '-');";
    let columns = "a TEXT?, b TEXT?";
    for method in ["mixed.One/Call", "mixed.Two/Call"] {
        let chain = lower_mixed(method, columns, "e", body).expect("the method has one message");
        let clears = |op: &Op| matches!(op, Op::ClearInput(_));
        let request = chain.elements[0].handlers.request.as_ref().expect("the element has a request handler");
        let n = request.insts().filter(|inst| clears(&inst.op)).count();
        assert_eq!(n, usize::from(method == "mixed.One/Call"), "{method}");
    }
    let error = lower_mixed("mixed.*", columns, "e", body).expect_err("the messages differ");
    assert!(error.contains("W0433"), "{error}");
    assert!(error.contains("chain `t` sets `a`, which displaces `b` in some messages only"), "{error}");
    assert!(error.contains("members of one oneof in `mixed.One`, and not in `mixed.Two`"), "{error}");
    lower_mixed("mixed.*", columns, "e", "ON REQUEST SET header['x-b'] = coalesce(b, '-');")
        .expect("none is set");
}

#[test]
fn oneof_member_displaces_others() {
    // A message in a oneof would exist beside the one that has displaced it.
    let columns = "a I64, b I64";
    let body = "ON REQUEST SET a = 1; IF b <> 0 THEN DROP; END IF;";
    let stage = "e (a := req.first.n, b := req.second.n)";
    let chain = lower_mixed("nested.Outer/Call", columns, stage, body).expect("the stage fits the method");
    let request = chain.elements[0].handlers.request.as_ref().expect("the element has a request handler");
    let cleared = request.insts().filter_map(|inst| match inst.op {
        Op::ClearInput(id) => Some(chain.request.inputs[usize::from(id.0)].name.clone()),
        _ => None,
    });
    assert_eq!(cleared.collect::<Vec<_>>(), ["second.n"]);
}

#[test]
fn rows_sent_to_a_table_are_state() {
    // A deleted row would stay, and a refused call would have left one.
    let table = "CREATE TABLE allowed (k TEXT(8) PRIMARY KEY, may TEXT(8)) MAX 10 ROWS FILLED BY CONTROLLER;
CREATE TABLE other (k TEXT(8) PRIMARY KEY, may TEXT(8)) MAX 10 ROWS FILLED BY CONTROLLER;";
    let learn = "SINK s1 (k TEXT, may TEXT) TO TABLE allowed; ON REQUEST INSERT INTO s1 VALUES ('k', 'one');";
    let forget = "SINK s2 (k TEXT) TO TABLE allowed DELETE; ON REQUEST INSERT INTO s2 VALUES ('k');";
    let elsewhere = "SINK s3 (k TEXT) TO TABLE other DELETE; ON REQUEST INSERT INTO s3 VALUES ('k');";
    let look = "ON REQUEST SET header['x'] = coalesce((SELECT may FROM allowed WHERE k = 'k'), '-');";
    for level in [Observable, Output, Stochastic, Relaxed] {
        check_with(level, table, [learn, forget], "", &[Rule::State]);
        check_with(level, table, [learn, look], "", &[Rule::State]);
    }
    check_with(Stochastic, table, [learn, DENY], "", &[Rule::Ends]);
    check_with(Stochastic, table, [DENY, learn], "", &[Rule::Ends]);
    check_with(Observable, table, [learn, elsewhere], "", &[]);
    let why = known(table, learn, forget, "").pair.clashes.remove(0).why;
    assert_eq!(why, "both change the rows of allowed");
}

#[test]
fn access_aging_reads_may_swap() {
    // Two elements that look up a session would keep their order because of the access time in its row.
    let table =
        "CREATE TABLE t (k TEXT(8) PRIMARY KEY, n I64 = 0) TTL '60 s' ON ACCESS MAX 10 ROWS EVICT LRU;
CREATE ELEMENT fills ON rpc (user TEXT) AS ON REQUEST UPSERT t KEY ('a') SET n = 1; END;";
    let read = |header: &str| {
        format!(
            "ON REQUEST SET header['{header}'] =
  CASE WHEN EXISTS (SELECT * FROM t WHERE k = 'k') THEN 'y' ELSE 'n' END;"
        )
    };
    check_with(Observable, table, [&read("a"), &read("b")], "", &[]);
    let writes = "ON REQUEST UPSERT t KEY ('b') SET n = 2;";
    check_with(Relaxed, table, [&read("a"), writes], "", &[Rule::State]);
}

#[test]
fn rule_2_state() {
    // Two elements on one row would find it as the other left it.
    let table = "CREATE TABLE t (k TEXT(8) PRIMARY KEY, n I64 = 0, m I64 = 0) MAX 10 ROWS EVICT REJECT;";
    let change = "ON REQUEST UPDATE t SET n = 1 WHERE k = 'a';";
    let double = "ON REQUEST UPDATE t SET n = n * 2 WHERE k = 'a';";
    let other_row = "ON REQUEST UPDATE t SET n = 2 WHERE k = 'b';";
    let other_column = "ON REQUEST UPDATE t SET m = 2 WHERE k = 'a';";
    let insert = "ON REQUEST UPSERT t KEY ('b') SET m = 2;";
    check_with(Relaxed, table, [change, double], "", &[Rule::State]);
    check_with(Relaxed, table, [change, insert], "", &[Rule::State]);
    check_with(Observable, table, [change, other_row], "", &[]);
    check_with(Observable, table, [change, other_column], "", &[]);
    // Each has a sum of its own.
    check(Observable, [COUNT, COUNT], &[]);
}

#[test]
fn rule_3_ends() {
    // An element after one that refuses calls does not see them; before it, it does.
    check(Stochastic, [DENY, COUNT], &[Rule::Ends]);
    check(Stochastic, [COUNT, DENY], &[Rule::Ends]);
    check(Observable, [DENY, LOG], &[Rule::Ends]);
    // At `output`, the rows of calls that end may differ.
    check(Output, [DENY, LOG], &[]);
    check(Relaxed, [DENY, COUNT], &[]);
    // A row that is sent when an answer arrives is not sent for a refused call in any order.
    let late = "SINK log (id U64) TO FILE 'a.log'; ON RESPONSE INSERT INTO log VALUES (call_id);";
    check(Observable, [DENY, late], &[]);
    // A CALL row of its own ends with the call.
    let own = "CALL (seen I64 = 0); ON REQUEST SET seen = object_id; ON RESPONSE SET header['x-seen'] = text(seen);";
    check(Observable, [DENY, own], &[]);
    // The caller sees what it adds to the end of the call.
    let trailer = "ON CLOSE SET trailer['x-by'] = 'b';";
    check(Stochastic, [DENY, trailer], &[Rule::Ends]);
    // A failing CLOSE does not hide the end of the call from others.
    let fails = "ON CLOSE IF int(micros(elapsed)) > 5 THEN FORWARD; END IF;";
    check(Observable, [DENY, fails], &[]);
}

#[test]
fn rule_4_statuses() {
    // A call that both refuse must get the same status in either order.
    let other = "ON REQUEST IF object_id < 0 THEN ABORT INVALID_ARGUMENT 'no'; END IF;";
    let same = "ON REQUEST IF object_id < 0 THEN ABORT PERMISSION_DENIED 'no'; END IF;";
    let other_text = "ON REQUEST IF object_id < 0 THEN ABORT PERMISSION_DENIED 'never'; END IF;";
    check(Stochastic, [DENY, other], &[Rule::Statuses]);
    check(Stochastic, [DENY, other_text], &[Rule::Statuses]);
    check(Strict, [DENY, same], &[]);
    check(Relaxed, [DENY, other], &[]);
    let why = |a: &str, b: &str| {
        let clashes = known("", a, b, "").pair.clashes;
        clashes.into_iter().find(|clash| clash.rule == Rule::Statuses).expect("the elements conflict").why
    };
    let told =
        "both may end the same call: a by ABORT PERMISSION_DENIED 'no', b by ABORT PERMISSION_DENIED 'never'";
    assert_eq!(why(DENY, other_text), told);
    // An element that reads which element ended the call would get another name.
    let asks = "SINK log (by TEXT) TO FILE 'a.log';
  ON REQUEST IF object_id < 0 THEN ABORT PERMISSION_DENIED 'no'; END IF;
  ON CLOSE INSERT INTO log VALUES (COALESCE(ended_by, ''));";
    check(Output, [DENY, asks], &[Rule::Statuses]);
    assert!(why(DENY, asks).ends_with("'no', and an element asks which of them it was"));
}

#[test]
fn exclusive_conditions_may_swap() {
    // Two elements that never act on the same call do not clash.
    let small = "ON REQUEST IF object_id < 10 THEN ABORT INVALID_ARGUMENT 'small'; END IF;";
    let large = "ON REQUEST IF object_id >= 10 THEN ABORT OUT_OF_RANGE 'large'; END IF;";
    let ten = "ON REQUEST IF object_id = 10 THEN ABORT NOT_FOUND 'ten'; END IF;";
    check(Strict, [small, large], &[]);
    check(Strict, [small, ten], &[]);
    check(Stochastic, [large, ten], &[Rule::Statuses]);
    let mallory = "ON REQUEST IF user = 'mallory' THEN ABORT NOT_FOUND 'no'; END IF;";
    let alice = "ON REQUEST IF user = 'alice' THEN ABORT INVALID_ARGUMENT 'no'; END IF;";
    check(Strict, [mallory, alice], &[]);
    check(Stochastic, [mallory, DENY], &[Rule::Statuses]);
    // State that is changed only for calls that the other lets pass.
    let count = "VAR n U64 MERGE SUM; ON REQUEST IF user <> 'mallory' THEN ADD n, 1; END IF;";
    check(Strict, [DENY, count], &[]);
    check(Strict, [count, DENY], &[]);
    let all = "VAR n U64 MERGE SUM; ON REQUEST IF user <> 'alice' THEN ADD n, 1; END IF;";
    check(Stochastic, [DENY, all], &[Rule::Ends]);
    let rows = "SINK log (id U64) TO FILE 'a.log';
  ON REQUEST IF user = 'alice' THEN INSERT INTO log VALUES (call_id); END IF;";
    check(Observable, [DENY, rows], &[]);
    // When the call ends, its fields are no longer available.
    let late = "SINK log (id U64) TO FILE 'a.log'; CALL (is_alice BOOL = FALSE);
  ON REQUEST IF user = 'alice' THEN SET is_alice = TRUE; END IF;
  ON CLOSE IF is_alice THEN INSERT INTO log VALUES (call_id); END IF;";
    check(Observable, [DENY, late], &[Rule::Ends]);
    // Lists, ranges and NULL are as informative.
    let listed = "ON REQUEST IF object_id IN (1, 2, 3) THEN ABORT INVALID_ARGUMENT 'listed'; END IF;";
    let between = "ON REQUEST IF object_id BETWEEN 10 AND 20 THEN ABORT NOT_FOUND 'between'; END IF;";
    let unlisted = "ON REQUEST IF object_id NOT IN (1, 2, 3, 10) THEN ABORT OUT_OF_RANGE 'unlisted'; END IF;";
    check(Strict, [listed, between], &[]);
    check(Strict, [listed, unlisted], &[]);
    check(Stochastic, [between, unlisted], &[Rule::Statuses]);
    check(Stochastic, [listed, small], &[Rule::Statuses]);
    let absent = "ON REQUEST IF address IS NULL THEN ABORT NOT_FOUND 'no address'; END IF;";
    let home = "ON REQUEST IF address = 'home' THEN ABORT INVALID_ARGUMENT 'home'; END IF;";
    let there = "ON REQUEST IF address IS NOT NULL THEN ABORT OUT_OF_RANGE 'there'; END IF;";
    check(Strict, [absent, home], &[]);
    check(Strict, [absent, there], &[]);
    check(Stochastic, [home, there], &[Rule::Statuses]);
    let users = "ON REQUEST IF user IN ('alice', 'bob') THEN ABORT NOT_FOUND 'no'; END IF;";
    check(Strict, [mallory, users], &[]);
    check(Stochastic, [alice, users], &[Rule::Statuses]);
    // A field that one of them changes is not informative.
    let renames = "ON REQUEST SET object_id = 10; IF object_id < 10 THEN ABORT NOT_FOUND 'no'; END IF;";
    check(Relaxed, [renames, ten], &[Rule::Fields]);
}

#[test]
fn rule_5_copies() {
    // A copy is of the tuple at the time of the statement.
    let mirror = "ON REQUEST MIRROR TO 'cart';";
    let rewrite = "ON REQUEST SET payload = payload || payload;";
    let look = "ON REQUEST IF object_id > 5 THEN REDIRECT TO 'cart'; END IF;";
    check(Relaxed, [mirror, rewrite], &[Rule::Copies]);
    check(Observable, [mirror, look], &[]);
    check(Stochastic, [mirror, DENY], &[Rule::Ends]);
    // Two copies use scratch, so they keep their order at `strict`.
    check(Strict, [mirror, mirror], &[Rule::Ends, Rule::Statuses, Rule::Room]);
    check(Observable, [mirror, mirror], &[]);
}

#[test]
fn rule_6_time() {
    // A refused caller would wait for the answer in one order, and not in the other.
    let delay = "ON REQUEST DELAY '5 ms';";
    check(Stochastic, [delay, DENY], &[Rule::Time]);
    check(Relaxed, [delay, DENY], &[]);
    // now() is the arrival time of the tuple, and two delays add up.
    let clock = "VAR last TIMESTAMP; ON REQUEST SET last = now();";
    check(Strict, [delay, clock], &[]);
    check(Strict, [delay, delay], &[]);
}

#[test]
fn rule_8_sinks() {
    // In one file, the rows of a call would be in another order.
    check(Strict, [LOG, LOG], &[Rule::Sinks]);
    check(Observable, [LOG, LOG], &[]);
    check(Strict, [LOG, &LOG.replace("a.log", "b.log")], &[]);
}

#[test]
fn rule_9_target() {
    // The last REDIRECT wins.
    let to = "ON REQUEST REDIRECT TO 'cart';";
    check(Relaxed, [to, to], &[Rule::Target]);
    check(Observable, [to, DENY], &[]);
}

#[test]
fn rule_10_room() {
    // If a pass makes too much text, the later element fails; only `strict` preserves that.
    let address = "ON REQUEST SET address = 'to: ' || user;";
    let payload = "ON REQUEST SET payload = payload || payload;";
    check(Strict, [address, payload], &[Rule::Statuses, Rule::Room]);
    check(Observable, [address, payload], &[]);
    let locker = "ON REQUEST SET locker = object_id;";
    check(Strict, [address, locker], &[Rule::Fields]);
}

#[test]
fn pinned_order_is_kept() {
    // A user knows reasons that no analysis finds.
    let (a, b) = ("ON REQUEST SET payload = payload;", "ON REQUEST SET locker = 5;");
    check_with(Relaxed, "", [a, b], "ORDER a BEFORE b;", &[Rule::Order]);
    check(Observable, [a, b], &[]);
}

#[test]
fn clash_lines_are_its_causes() {
    // A verdict without its cause does not help to improve a program.
    let pair = known("", "ON REQUEST\n    SET payload = payload || payload;", COUNT, "").pair;
    assert!(pair.may_swap(Observable), "{pair:#?}");
    let b = "ON REQUEST\n    IF length(payload) > 100 THEN\n      REDIRECT TO 'cart';\n    END IF;";
    let pair = known("", "ON REQUEST\n    SET payload = payload || payload;", b, "").pair;
    let clash = pair.blocking(Observable).next().expect("a writes what b reads");
    assert_eq!(clash.why, "a writes payload, which b reads");
    assert_eq!((&clash.first, &clash.second), (&[7].into(), &[11].into()), "{clash:?}");
}

#[test]
fn thousands_of_branches_are_fast() {
    // A generated program must not make the analysis run for minutes, nor lose precision.
    let branches: String =
        (0..1200).map(|n| format!("    IF object_id = {n} THEN SET locker = {n}; END IF;\n")).collect();
    let many = format!("ON REQUEST\n{branches}");
    check(Relaxed, [&many, "ON REQUEST SET object_id = 5;"], &[Rule::Fields]);
    check(Relaxed, [&many, "ON REQUEST SET address = 'here';"], &[Rule::Fields]);
    check(Observable, [&many, COUNT], &[]);
}

#[test]
fn tables_shard_by_request_keys() {
    // Tuples that share a row must not be sent to different nodes.
    let of = |a: &str, b: &str, table: &str| {
        let known = known(table, a, b, "");
        known.tables.into_iter().next().map(|(_, sharding)| sharding).expect("the program has a table")
    };
    let table = "TABLE t (k TEXT(8) PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT OLDEST;";
    let by_user = format!("{table} ON REQUEST UPSERT t KEY (user) SET n = n + 1;");
    assert_eq!(of(&by_user, COUNT, ""), Sharding::By("user".to_owned()));
    let why = |sharding: Sharding| match sharding {
        Sharding::No { why, .. } => why,
        other => panic!("{other:?}"),
    };
    let constant = format!("{table} ON REQUEST UPSERT t KEY ('all') SET n = n + 1;");
    assert_eq!(why(of(&constant, COUNT, "")), "its key is a constant, the same for all tuples");
    let two = format!(
        "{table} ON REQUEST UPSERT t KEY (user) SET n = n + 1; UPDATE t SET n = 0 WHERE k = 'x' || user;"
    );
    assert_eq!(why(of(&two, COUNT, "")), "it is looked at by more than one key");
    let late = format!("{table} CALL (u TEXT(8) = ''); ON RESPONSE UPDATE t SET n = n + 1 WHERE k = u;");
    assert_eq!(why(of(&late, COUNT, "")), "it is looked at when the request is gone");
    let changes = "ON REQUEST SET user = lower(user);";
    let changed = known("", changes, &by_user, "").tables.remove(0).1;
    assert_eq!(why(changed), "an element changes a field that its key is made of");
    let count = format!("{table} ON REQUEST IF COUNT(t) > 5 THEN REDIRECT TO 'cart'; END IF;");
    assert_eq!(why(of(&count, COUNT, "")), "all its rows are looked at");
}
