//! Editor features at a position of a program; `|` is the cursor.

#![allow(clippy::disallowed_methods, reason = "one test reads the parser's sources")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod support;

use support::Texts;
use weft_lang::check::analyse;
use weft_lang::editor::complete::complete;
use weft_lang::editor::hover::hover;
use weft_lang::editor::tokens::classes;
use weft_lang::editor::{Program, words};
use weft_lang::source::FileId;

const HEAD: &str = "CREATE TYPE shop FROM PROTO 'shop.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:6000';
CREATE CLUSTER cart TO '127.0.0.1:6001';
CREATE ELEMENT only (name TEXT = 'alice') ON rpc (user TEXT) AS
  TABLE seen (user TEXT(64) PRIMARY KEY, n I64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON REQUEST
    SELECT * FROM input WHERE user = name ELSE ABORT PERMISSION_DENIED;
END;
";

/// The program without its cursor, and the cursor's offset.
fn program(text: &str) -> (Program, u32) {
    let (before, after) = text.split_once('|').expect("a cursor");
    let files = [("a.weft".to_owned(), format!("{before}{after}"))];
    (Program::new(analyse("a.weft", &mut Texts::of(&files))), before.len() as u32)
}

fn offered(text: &str) -> Vec<String> {
    let (program, offset) = program(text);
    let found = complete(&program, FileId(0), offset);
    found.candidates.into_iter().map(|candidate| candidate.label).collect()
}

fn check(text: &str, wanted: &[&str], unwanted: &[&str]) {
    let found = offered(text);
    for label in wanted {
        assert!(found.iter().any(|found| found == label), "`{label}` is not offered in {text}: {found:?}");
    }
    for label in unwanted {
        assert!(!found.iter().any(|found| found == label), "`{label}` is offered in {text}");
    }
}

fn chain(stages: &str) -> String {
    format!("{HEAD}CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS {stages}\nEND;\n")
}

fn handler(body: &str) -> String {
    format!(
        "{HEAD}CREATE ELEMENT e (limit I64 = 1) ON rpc (user TEXT) RETURNS (server TEXT) AS
  TABLE t (user TEXT(8) PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT OLDEST;
  CALL (kept I64 = 0);
  ON REQUEST
    {body}
END;
"
    )
}

#[test]
fn top_level_completion_fits() {
    // If this fails, accepting a candidate causes an error.
    check("|", &["CREATE", "IMPORT"], &["SELECT", "ABORT"]);
    check("CREATE |", &["ELEMENT", "CHAIN", "OR"], &["CREATE"]);
    check("CREATE EL|", &["ELEMENT"], &[]);
    check("CREATE CLUSTER c TO 'a:1' |", &["USING", "WITH"], &["SELECT"]);
    check("CREATE CLUSTER c TO 'a:1' WITH (|", &["connections", "deadline"], &[]);
    check("CREATE LISTENER l ON tcp 'a:1' WITH (|", &["idle_timeout", "drain_delay"], &["deadline"]);
    check("CREATE LISTENER l ON |", &["tcp", "unix"], &[]);
    check("CREATE PORT p ON |", &["packet", "xdp", "memory"], &["tcp"]);
    let port = "CREATE PORT p ON packet 'eth0' WITH (";
    check(&format!("{port}|"), &["mtu", "queues"], &["speed", "connections"]);
    check(&format!("{port}queues = 2);\nCREATE CLUSTER c TO 'a:1' WITH (|"), &["deadline"], &["mtu"]);
    let frames = format!("{port}mtu = 9000);\nCREATE PROTOCOL eth (type bit(16), PAYLOAD bytes);\n");
    check(&format!("{frames}CREATE ELEMENT e ON |"), &["rpc", "packet", "eth"], &["p"]);
    check(&format!("{frames}CREATE CHAIN c ON PORT |"), &["p"], &["eth"]);
    let marks = format!("{frames}CREATE ELEMENT e ON eth AS ON PACKET MARK (");
    check(&format!("{marks}|"), &["class", "remaining", "slack", "deadline", "now"], &[]);
    check(&format!("{marks}class = |"), &["now"], &["slack"]);
    check(&format!("{marks}class = 3, |"), &["slack"], &["now"]);
    check(
        &format!("{HEAD}CREATE ROUTE r ON frontend WHEN |"),
        &["method", "peer", "header"],
        &["user", "status"],
    );
    check(&format!("{HEAD}CREATE ROUTE r ON |"), &["frontend"], &["cart"]);
    check(&format!("{HEAD}DROP |"), &["ELEMENT"], &["CREATE"]);
}

#[test]
fn chain_completion_fits() {
    check(&format!("{HEAD}CREATE CHAIN c ON |"), &["frontend"], &["cart"]);
    check(&format!("{HEAD}CREATE CHAIN c ON frontend -> |"), &["cart"], &["frontend"]);
    check(&chain("|"), &["only"], &["cart"]);
    check(&chain("only (|"), &["name", "user"], &["seen"]);
    check(&chain("only (user := |"), &["req", "user", "object_id"], &["only"]);
    check(&chain("only (user := req.|)"), &["user", "object_id", "item"], &["name"]);
    check(&chain("only (user := req.item.|)"), &["sku"], &["user"]);
    check(&chain("only |"), &["AS", "AT", "MANDATORY"], &["SELECT"]);
    check(&chain("only; ORDER |"), &["only"], &["frontend"]);
    check(&chain("only; |"), &["FAIL", "ORDER", "END"], &["SELECT"]);
    check(&chain("only; EQUIVALENCE |"), &["strict"], &["only"]);
    let methods = format!("{HEAD}CREATE CHAIN c ON frontend -> cart METHOD '|' AS only; END;");
    check(&methods, &["shop.Cart/*", "shop.Cart/Add"], &["only"]);
    check(&format!("{}INSERT INTO |", chain("only;")), &["shop"], &["cart"]);
    check(&format!("{}INSERT INTO shop.|", chain("only;")), &["only"], &["cart"]);
    check(&format!("{}INSERT INTO shop.only.|", chain("only;")), &["seen"], &["user"]);
}

#[test]
fn handler_completion_fits() {
    check(&handler("|"), &["SELECT", "LET", "ABORT", "END"], &["CREATE", "user"]);
    check(&handler("SELECT * FROM input |"), &["JOIN", "WHERE", "ELSE"], &["SELECT"]);
    check(&handler("SELECT * FROM input JOIN |"), &["t"], &["seen", "user"]);
    let names = ["user", "limit", "kept", "least", "NOT", "method", "header", "input"];
    check(&handler("SELECT * FROM input WHERE |"), &names, &["server", "LET", "name"]);
    check(&handler("SELECT * FROM input JOIN t USING (user) WHERE t.|"), &["user", "n"], &["limit"]);
    check(&handler("SELECT * FROM input JOIN t USING (user) WHERE |"), &["n"], &[]);
    check(&handler("SELECT * FROM input WHERE input.|"), &["user"], &["limit"]);
    check(&handler("LET x = 1;\n LET y = |"), &["x"], &["y"]);
    check(&handler("LET x = user |"), &["AND", "LIKE"], &["SELECT"]);
    check(&handler("UPDATE t SET |"), &["n"], &["limit"]);
    let on_frames = |text: &str| format!("{HEAD}CREATE ELEMENT e ON packet AS ON PACKET {text}");
    check(&on_frames("SET meta.|"), &["tag", "label", "path"], &["limit"]);
    check(&handler("SET |"), &["kept", "header"], &["limit", "SELECT"]);
    check(&handler("ABORT |"), &["UNAVAILABLE"], &["user"]);
    check(&handler("REPLY (|"), &["server"], &["user"]);
    check(&handler("REDIRECT TO |"), &["cart"], &[]);
    check(&handler("IF true THEN DROP; |"), &["ELSE", "ELSIF", "END"], &["ON"]);
    check(&handler("LET x |"), &["I64", "TEXT"], &["user"]);
    check(&handler("LET x = CAST(user AS |"), &["I64"], &["user"]);
    check(
        &format!("{HEAD}CREATE FILTER f (d INTERVAL) ON rpc (user TEXT) AS |"),
        &["RETRY", "TIMEOUT", "END"],
        &["SELECT"],
    );
    let retry = format!("{HEAD}CREATE FILTER f (d INTERVAL) ON rpc (user TEXT) AS RETRY UP TO 2 WHEN |");
    check(&retry, &["status", "UNAVAILABLE", "d"], &["SELECT"]);
    check(&handler("-- SELECT |"), &[], &["input", "SELECT"]);
    check(&handler("LET x = 'us|"), &[], &["user"]);
    check(&handler("SET header['x-a'] = 'b'; LET x = header['|'];"), &["x-a"], &[]);
    check(&format!("{HEAD}CREATE ELEMENT e ON rpc (a TEXT) AS ON |"), &["REQUEST", "CLOSE"], &["SELECT"]);
    check(&format!("{HEAD}CREATE ELEMENT e ON rpc (a TEXT) AS |"), &["TABLE", "ON", "END"], &["SELECT"]);
    check(&format!("{HEAD}CREATE ELEMENT e ON rpc (a TEXT) AS ON REQUEST LET x = |"), &["a"], &["user"]);
}

#[test]
fn queue_completion_fits() {
    // If this fails, candidates are offered that do not exist, or existing ones are missing.
    let queue = |body: &str| {
        format!(
            "{HEAD}CREATE PROTOCOL vlan (id bit(12), rest_ bit(4), PAYLOAD bytes);
CREATE QUEUE q (target INTERVAL = '5 ms') AS
  VAR n U32;
  LIMIT 10 PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE
    {body}
END;
"
        )
    };
    let names = ["n", "target", "p", "queue.bytes", "link.rate", "flow", "send_time", "vlan"];
    check(&queue("LET x = |"), &names, &["method", "header", "input", "UNAVAILABLE", "sha256"]);
    check(&queue("LET x = p.|"), &["sojourn", "class"], &["packets", "id_"]);
    check(&queue("LET x = queue.|"), &["packets", "bytes"], &["index"]);
    check(&queue("LET x = vlan.|"), &["id"], &["len"]);
    check(&queue("LET x = inner.vlan.|"), &["id"], &["len"]);
    let hover_at = |body: &str| {
        let (program, offset) = program(&queue(body));
        hover(&program, FileId(0), offset).map_or_else(String::new, |found| found.markdown)
    };
    assert!(
        hover_at("IF p.|sojourn > target THEN DROP; END IF;").contains("How long the packet has waited.")
    );
    assert!(
        hover_at("LET x = |send_time(p.len, 7);")
            .contains("send_time(SIZE, bits a second [, rest]) INTERVAL")
    );
    assert!(hover_at("SET |rank = 1;").contains("the lowest goes first"));
    assert!(hover_at("SET |n = 1;").contains("variable of queue `q`"));
}

#[test]
fn hover_describes_symbols() {
    // If this fails, a hover window contradicts the checker.
    let hover_at = |text: &str| {
        let (program, offset) = program(text);
        hover(&program, FileId(0), offset).map_or_else(String::new, |found| found.markdown)
    };
    let body = "UPSERT t KEY (user) SET n = n + 1; -- counted\n    LET twice = length(user) * 2;\n    \
                ABORT UNAVAILABLE text(twice);";
    let at = |word: &str| hover_at(&handler(&body.replacen(word, &format!("|{word}"), 1)));
    insta::assert_snapshot!(
        [
            at("UPSERT"),
            at("t KEY"),
            at("user"),
            at("n ="),
            at("twice"),
            at("length"),
            at("UNAVAILABLE"),
            hover_at(&handler(body).replace("ELEMENT e (", "ELEMENT |e (")),
            hover_at(&handler(body).replace("limit I64", "|limit I64")),
            hover_at(&chain("only (user := req.item.|sku) AS first;")),
            hover_at(&chain("only (user := req.|item.sku) AS first;")),
            hover_at(&chain("|only;")),
            hover_at(&handler("SET kept = kept + 1|;")),
        ]
        .join("\n--------\n")
    );
}

#[test]
fn name_index_finds_all_uses() {
    // If this fails, rename or highlight covers too few or too many names.
    let uses = |text: &str| {
        let (program, offset) = program(text);
        let at = program.index.at(FileId(0), offset).expect("a name");
        let sources = &program.analysis.sources;
        let lines = program
            .index
            .uses_of(at.symbol)
            .map(|found| sources.file(found.span.file).position(found.span.start));
        lines.map(|place| format!("{}:{}", place.line, place.column)).collect::<Vec<_>>().join(" ")
    };
    let body = [
        "SELECT * FROM input JOIN t ON t.user = input.user WHERE n < limit ELSE DROP;",
        "UPDATE t SET n = n + 1 WHERE user = input.user;",
        "LET user = 'x';",
        "SET kept = length(user);",
    ];
    let text = handler(&body.join("\n    "));
    // The column of the message, the table, its columns, and a local that hides the others.
    assert_eq!(uses(&text.replace("rpc (user TEXT) R", "rpc (|user TEXT) R")), "9:42 13:50 14:47");
    assert_eq!(uses(&text.replace("TABLE t", "TABLE |t")), "10:9 13:30 13:35 14:12");
    assert_eq!(uses(&text.replace("t (user TEXT(8)", "t (|user TEXT(8)")), "10:12 13:37 14:34");
    assert_eq!(
        uses(&text.replace("(8) PRIMARY KEY, n", "(8) PRIMARY KEY, |n")).as_str(),
        "10:38 13:61 14:18 14:22"
    );
    assert_eq!(uses(&text.replace("LET user", "LET |user")), "15:9 16:23");
    assert_eq!(uses(&text.replace("e (limit", "e (|limit")), "9:19 13:65");
    let stages = "only AS a -> only AS b; ORDER a BEFORE b;\n";
    assert_eq!(uses(&chain(&stages.replace("AS a", "AS |a"))), "9:71 9:93");
    assert_eq!(uses(&chain(&stages.replacen("only", "|only", 1))), "4:16 9:63 9:76");
}

#[test]
fn every_token_has_its_class() {
    let (program, _) = program(&handler("LET x = length(user) + 2; -- |note\n"));
    let sources = &program.analysis.sources;
    let shown = classes(&program, FileId(0))
        .into_iter()
        .filter(|token| sources.file(FileId(0)).position(token.span.start).line == 13);
    let shown: Vec<String> =
        shown.map(|token| format!("{}:{:?}", sources.slice(token.span), token.class)).collect();
    assert_eq!(
        shown.join(" "),
        "LET:Keyword x:Variable length:Function user:Column 2:Number -- note:Comment"
    );
}

/// The upper-case texts in the parser's sources: the keywords.
fn keywords_of_the_parser() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let parts = std::fs::read_dir(folder.join("parser")).expect("the parser has parts");
    let mut files: Vec<PathBuf> = parts.map(|entry| entry.expect("it can be listed").path()).collect();
    files.push(folder.join("parser.rs"));
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let source = std::fs::read_to_string(file).expect("it is text");
        let is_capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
        let is_word = |text: &&str| text.len() > 1 && text.starts_with(|c: char| c.is_ascii_uppercase());
        let texts = source.split('"').filter(is_word).filter(|text| text.chars().all(is_capital));
        found.extend(texts.map(str::to_owned));
    }
    found
}

#[test]
fn hover_explains_keywords_only() {
    // A keyword that the table lacks shows an empty window in editors, and has no colour: their grammars are generated
    // from the same table.
    let table: BTreeSet<String> = words::KEYWORDS.iter().map(|known| known.word.to_owned()).collect();
    assert_eq!(table, keywords_of_the_parser());
}

#[test]
fn words_have_examples() {
    assert_eq!(words::examples("drop").len(), 2, "at the top and in a handler");
    assert!(words::examples("nonsense").is_empty());
}
