//! The output of `weft explain`, as text and as JSON.

use crate::node::{Folder, output, weft};
use std::path::Path;
use std::process::Command;

/// The running example of the ADN paper (section 2 and figure 2): requests for an object go to its replica, are
/// compressed, and are admitted by user and object.
const PAPER: &str = "CREATE TYPE cart_msg FROM PROTO 'cart.proto';
IMPORT 'library/elements/compress.weft';
IMPORT 'library/elements/shard_lb.weft';
CREATE LISTENER a ON tcp '127.0.0.1:7070';
CREATE CLUSTER b TO '127.0.0.1:7101', '127.0.0.1:7102';

-- Compresses the payload as `compress` does, and the field that the balancer reads as well.
CREATE ELEMENT squeeze_all ON rpc (payload BYTES, object_id I64) AS
  ON REQUEST
    SET payload = gzip(payload);
    SET object_id = object_id % 1000;
END;

CREATE ELEMENT object_acl ON rpc (user TEXT, object_id I64) AS
  TABLE rights (user TEXT(64), object_id I64, permission TEXT(1), PRIMARY KEY (user, object_id))
    MAX 100000 ROWS FILLED BY CONTROLLER;
  ON REQUEST
    SELECT * FROM input JOIN rights USING (user, object_id) WHERE permission = 'W'
    ELSE ABORT PERMISSION_DENIED 'no right to this object';
END;

CREATE CHAIN paper ON a -> b METHOD 'shop.Cart/Add' AS
  compress (data := payload) -> shard_lb -> object_acl;
END;

CREATE CHAIN squeezed_key ON a -> b METHOD 'shop.Cart/Get' AS
  squeeze_all -> shard_lb -> object_acl;
END;
";

fn stdout_of(command: &mut Command) -> String {
    let done = output(command);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn explained(folder: &Folder, args: &[&str]) -> String {
    stdout_of(weft(folder).current_dir(&folder.0).args(["explain", "--full"]).args(args))
}

fn assert_narrow(text: &str) {
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

/// The balancer and the ACL may come before the compression, as in the paper, but only if it does not change what they
/// read. Without this, the compiler cannot reorder anything.
#[test]
fn paper_example_reorders_as_in_paper() {
    let folder = Folder::new();
    folder.write("paper.weft", PAPER);
    let text = explained(&folder, &["paper.weft"]);
    assert_narrow(&text);
    insta::assert_snapshot!("paper", text);
    let data = explained(&folder, &["paper.weft", "--json"]);
    let data: serde_json::Value = serde_json::from_str(&data).expect("one JSON object");
    let pair = |chain: usize, nth: usize| data["chains"][chain]["pairs"][nth].clone();
    for nth in [0, 1] {
        assert_eq!(pair(0, nth)["may_swap"], true, "{}", pair(0, nth));
        assert_eq!(pair(1, nth)["may_swap"], false, "{}", pair(1, nth));
    }
    let clashes = pair(1, 0)["clashes"].clone();
    let clash = clashes.as_array().expect("a list").iter().find(|clash| clash["blocking"] == true);
    let clash = clash.expect("it must stay");
    assert_eq!(clash["rule"], "swap.1");
    assert_eq!(clash["why"], "squeeze_all writes object_id, which shard_lb reads");
    assert_eq!(clash["places"][0]["text"], "SET object_id = object_id % 1000;");
    assert_eq!(data["chains"][0]["order"], serde_json::json!(["shard_lb", "object_acl", "compress"]));
    assert_eq!(data["chains"][1]["reordered"], false);
}

/// A reader of a chain must see which stages a filter retries, and how often, without reading the filters.
#[test]
fn explain_shows_filters_in_place() {
    let folder = Folder::new();
    let filters = [
        "timeout",
        "deadline_propagation",
        "retry",
        "hedge",
        "outlier",
        "circuit",
        "shape",
        "ordered",
        "congestion",
        "gradient",
        "once",
    ];
    let imports: String =
        filters.iter().map(|name| format!("IMPORT 'library/filters/{name}.weft';\n")).collect();
    let program = format!(
        "{}{imports}IMPORT 'library/elements/logging.weft';
CREATE FILTER quick ON rpc (object_id I64) AS
  RATE 5 PER SECOND PER peer;
  CIRCUIT IN FLIGHT 1;
  RETRY UP TO 1 WHEN status = ABORTED BACKOFF CONSTANT '1 ms' JITTER 0 PERCENT;
  RELIABILITY AT LEAST ONCE ID object_id WINDOW '1 s';
  OVER tcp;
END;
CREATE CHAIN filtered ON a -> b METHOD 'shop.Cart/Get' AS
  logging -> shape (tenant := user) -> once (id := header.\"x-id\") MANDATORY -> ordered (key := user) -> timeout
    -> deadline_propagation AS deadline -> circuit -> congestion -> gradient AS slope -> retry (n = 3) -> hedge
    -> compress (data := payload) PER TRY -> outlier -> quick;
END;
",
        PAPER.split("CREATE CHAIN").next().unwrap_or_default()
    );
    folder.write("filtered.weft", &program);
    let text = explained(&folder, &["filtered.weft"]);
    assert_narrow(&text);
    insta::assert_snapshot!("filters", text);
    let data = explained(&folder, &["filtered.weft", "--json"]);
    let data: serde_json::Value = serde_json::from_str(&data).expect("one JSON object");
    let printed = &data["chains"][0]["filters"];
    assert_eq!(printed.as_array().map(Vec::len), Some(12));
    assert_eq!(printed[0]["policies"][0]["policy"], "RATE");
    assert_eq!(printed[11]["wraps"], serde_json::json!([]));
}

/// Most users try `explain` first on this example.
#[test]
fn explain_prints_shop() {
    let folder = Folder::new();
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop");
    let text = stdout_of(weft(&folder).current_dir(shop).args(["explain", "network.weft", "shop", "--full"]));
    assert_narrow(&text);
    insta::assert_snapshot!("shop", text);
}

/// An unknown chain is the input's fault, and the message must list the known ones.
#[test]
fn unknown_chain_lists_known_ones() {
    let folder = Folder::new();
    let file = folder.write("paper.weft", PAPER);
    let done = output(weft(&folder).arg("explain").arg(&file).arg("pepper"));
    assert_eq!(done.status.code(), Some(1));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(
        text,
        "weft: there is no chain, link or queue `pepper`; the program has paper, squeezed_key\n"
    );
    // A queue that needs arguments is listed, too.
    let text = "CREATE QUEUE w (n U32 = 5, t INTERVAL) AS LIMIT n PACKETS ON OVERFLOW DROP TAIL; END;\n";
    let missing_args = folder.write("wanting.weft", text);
    for name in [&[][..], &["w"]] {
        let done = output(weft(&folder).arg("explain").arg(&missing_args).args(name));
        let printed = String::from_utf8_lossy(&done.stderr).into_owned();
        let needs = "weft: queue `w` needs an argument for `t`\n  help: explain a queue with a value for each: \
                     `CREATE QUEUE mine AS w (t = ...); END;`\n";
        assert_eq!((done.status.code(), printed.as_str()), (Some(1), needs));
    }
    let bad = folder.write("bad.weft", "CREATE ELEMENT");
    assert_eq!(output(weft(&folder).arg("explain").arg(&bad)).status.code(), Some(1));
    assert_eq!(output(weft(&folder).args(["explain", "absent.weft"])).status.code(), Some(3));
}

/// A picture that a viewer refuses, or that lacks an element, explains nothing.
#[test]
fn svg_draws_elements_and_edges() {
    let folder = Folder::new();
    folder.write("paper.weft", PAPER);
    explained(&folder, &["paper.weft", "--svg", "paper.svg", "--dot", "paper.dot"]);
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect("it was written");
    let svg = read("paper.svg");
    assert_eq!(svg.matches("rx=\"6\"").count(), 6, "{svg}");
    for what in ["1. shard_lb", "3. compress", "swap.4", "swap.1", "squeezed_key: a -&gt; b"] {
        assert!(svg.contains(what), "{what}: {svg}");
    }
    for tag in ["<svg ", "<g ", "<text ", "<path ", "<rect "] {
        assert!(svg.contains(tag), "{tag}");
    }
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    let dot = read("paper.dot");
    assert!(
        dot.contains("\"squeezed_key.squeeze_all\" -> \"squeezed_key.shard_lb\" [label=\"swap.1\"];"),
        "{dot}"
    );
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

/// A user would get an empty picture, without a word on how to get a useful one.
#[test]
fn svg_of_link_is_refused() {
    let folder = Folder::new();
    let link = "IMPORT 'library/queues/fifo.weft';
CREATE PORT lan ON packet 'eth0';
CREATE LINK wan ON PORT lan QUEUE fifo;
";
    folder.write("link.weft", link);
    folder.write("both.weft", &format!("{PAPER}{link}"));
    folder.write("queue.weft", "IMPORT 'library/queues/fifo.weft';\n");
    let refused = |args: &[&str]| {
        let done = output(weft(&folder).current_dir(&folder.0).arg("explain").args(args));
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{text}");
        assert!(done.stdout.is_empty() && !folder.0.join("wan.svg").exists(), "{text}");
        text
    };
    let shown = "`weft link record wan` and `weft link show wan.rec --svg wan.svg`";
    let link = refused(&["both.weft", "wan", "--svg", "wan.svg"]);
    assert!(link.starts_with("weft: `wan` is a link: --svg and --dot draw the plans of chains\n"), "{link}");
    assert!(link.contains(shown) && link.contains("the chains paper, squeezed_key"), "{link}");
    let queue = refused(&["queue.weft", "fifo", "--dot", "wan.svg"]);
    assert!(queue.contains("`fifo` is a queue") && !queue.contains("help"), "{queue}");
    let all = refused(&["link.weft", "--svg", "wan.svg"]);
    assert!(all.contains("the program has no chains") && all.contains(shown), "{all}");
    explained(&folder, &["both.weft", "--svg", "all.svg"]);
}

/// A user who asks about a packet would be told to look for a program of that name.
#[test]
fn explain_packet_shows_hint() {
    let folder = Folder::new();
    let asked = || {
        let done = output(weft(&folder).current_dir(&folder.0).args(["explain", "packet", "467"]));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, text) = asked();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.starts_with("weft: cannot read `packet`: there is no such file\n  help: "), "{text}");
    assert!(text.contains("`weft link explain FILE N`"), "{text}");
    folder.write("packet", "CREATE NOTHING;");
    let (code, text) = asked();
    assert_eq!(code, Some(1), "{text}");
    assert!(!text.contains("weft link explain"), "{text}");
}

/// A user who asks about a packet of a recording would only read that there is one word too many.
#[test]
fn explain_recording_shows_hint() {
    let folder = Folder::new();
    let asked = |words: &[&str]| {
        let done = output(weft(&folder).current_dir(&folder.0).arg("explain").args(words));
        assert_eq!(done.status.code(), Some(2), "{words:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let packet = asked(&["packet", "run.rec", "467"]);
    assert!(packet.ends_with("  help: write `weft link explain run.rec 467`\n"), "{packet}");
    let other = asked(&["a.weft", "shop", "more", "words"]);
    assert!(
        other.starts_with("weft: unexpected argument `more`\n  help: write `weft explain FILE`"),
        "{other}"
    );
}

/// Four stages, of which two are filters, one with a key.
const TRIED: &str = "CREATE FILTER patient ON rpc AS TIMEOUT TRY '50 ms'; END;
CREATE FILTER inorder ON rpc (user TEXT) AS ORDER PER user; END;
CREATE ELEMENT tells_user ON rpc (user TEXT) AS ON REQUEST SET header['x-user'] = user; END;
CREATE ELEMENT tells_object ON rpc (object_id I64) AS ON REQUEST SET header['x-object'] = text(object_id); END;
CREATE CHAIN tried ON a -> b METHOD 'shop.Cart/Get' AS
  inorder -> tells_user AS early -> patient -> tells_user -> tells_object AS b;
END;
";

/// A reader would take calls that a filter holds for calls in progress if the filter seemed to run in parallel.
#[test]
fn svg_filter_has_own_column() {
    let folder = Folder::new();
    let program = format!("{}{TRIED}", PAPER.split("-- Compresses").next().unwrap_or_default());
    folder.write("tried.weft", &program);
    let text = explained(&folder, &["tried.weft", "--svg", "tried.svg", "--dot", "tried.dot"]);
    let steps = "side by side   inorder -> early -> patient -> (tells_user | b)   not done";
    assert!(text.contains(steps), "{text}");
    // A stage may have the name of the cluster.
    for cut in ["header to inorder", "header to b  ", "header to cluster b  "] {
        assert_eq!(text.matches(cut).count(), 1, "{cut}: {text}");
    }
    assert!(text.contains("  at most     operations: 7 in request"), "{text}");
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect("it was written");
    let (svg, dot) = (read("tried.svg"), read("tried.dot"));
    assert_eq!(svg.matches("rx=\"6\"").count(), 5, "{svg}");
    assert_eq!(svg.matches("stroke-dasharray").count(), 2, "{svg}");
    for line in [
        "\"tried.patient\" [label=\"3. patient\\nTIMEOUT\" style=dashed];",
        "\"tried.early\" -> \"tried.patient\" [label=\"swap.12\"];",
        "\"tried.patient\" -> \"tried.b\" [label=\"swap.12\"];",
    ] {
        assert!(dot.contains(line), "{line}: {dot}");
    }
    assert!(!dot.contains("\"tried.early\" -> \"tried.b\""), "{dot}");
}

/// `explain` must agree with `check`: the keys of a filter are no element, and have a cost.
#[test]
fn filter_keys_are_not_elements() {
    let folder = Folder::new();
    let program = format!("{}{TRIED}", PAPER.split("-- Compresses").next().unwrap_or_default());
    folder.write("tried.weft", &program);
    let check = |args: &[&str]| stdout_of(weft(&folder).current_dir(&folder.0).arg("check").args(args));
    let text = check(&["tried.weft", "--cost"]);
    assert!(text.contains("inorder (keys of a filter)"), "{text}");
    let data: serde_json::Value =
        serde_json::from_str(&check(&["tried.weft", "--cost", "--json"])).expect("JSON");
    let printed = data["costs"].as_array().expect("a list");
    let filters: Vec<_> = printed.iter().filter(|cost| cost["is_filter"] == true).collect();
    assert_eq!((printed.len(), filters.len()), (4, 1), "{data}");
    let explained = explained(&folder, &["tried.weft", "--json"]);
    let explained: serde_json::Value = serde_json::from_str(&explained).expect("JSON");
    assert_eq!(filters[0]["request"], explained["chains"][0]["filters"][0]["keys"]["ops"], "{data}");
}

const RULES: &str = "CREATE LISTENER l ON tcp '127.0.0.1:7070';
CREATE CLUSTER c TO '127.0.0.1:7101';
IMPORT 'library/elements/rule_acl.weft';
CREATE CHAIN t ON l -> c AS rule_acl (user := header.\"x-user\"); END;
INSERT INTO t.rule_acl.rules VALUES (1, 1, '/a/B', NULL, NULL, 'allow'), (2, 1, NULL, '10.0.0.0/8', 'ann', 'allow');
";

/// The cost of a rule look-up is shown nowhere else.
#[test]
fn explain_shows_compiled_rules() {
    let folder = Folder::new();
    folder.write("net.weft", RULES);
    let text = explained(&folder, &["net.weft"]);
    assert_narrow(&text);
    assert!(text.contains("matched   2 rows in "), "{text}");
}

/// A user who asks about a link would see a queue without its location.
#[test]
fn explain_shows_link_location() {
    let folder = Folder::new();
    folder.write(
        "net.weft",
        "IMPORT 'library/queues/fifo.weft';
CREATE PORT wan ON packet 'eth0';
CREATE LINK uplink ON PORT wan RATE '15 Mbit/s' QUEUE fifo;
CREATE LINK downlink ON PORT wan INGRESS QUEUE fifo;
",
    );
    let printed = explained(&folder, &["net.weft", "uplink"]);
    assert!(printed.starts_with("link uplink on port wan, 15 Mbit/s\nqueue fifo\n"), "{printed}");
    let all = explained(&folder, &["net.weft"]);
    assert!(all.contains("link downlink on port wan, ingress, as fast as that takes packets\n"), "{all}");
    let data = explained(&folder, &["net.weft", "uplink", "--json"]);
    let data: serde_json::Value = serde_json::from_str(&data).expect("it is data");
    let link = &data["queues"][0]["link"];
    assert_eq!(
        (&link["name"], &link["port"], &link["rate_bits_per_s"]),
        (&"uplink".into(), &"wan".into(), &15_000_000.into())
    );
    let queue = explained(&folder, &["net.weft", "fifo"]);
    assert!(queue.starts_with("queue fifo\n"), "{queue}");
}

/// A user would have to read every element of the chain to find the branches.
#[test]
fn explain_lists_branches() {
    let folder = Folder::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/uplinks/network.weft");
    let printed = explained(&folder, &[example, "out"]);
    assert!(printed.contains("steered      syn_guard.suspect -> meter"), "{printed}");
    assert!(printed.contains("chains on frames run in the order in which they are written"), "{printed}");
    assert_narrow(&printed);
    let data: serde_json::Value =
        serde_json::from_str(&explained(&folder, &[example, "out", "--json"])).expect("it is data");
    let branch = &data["chains"][0]["branches"][0];
    assert_eq!((&branch["edge"], &branch["stages"][0]), (&"syn_guard.suspect".into(), &"meter".into()));
}
