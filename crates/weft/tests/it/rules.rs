//! `weft query`, `weft load`, `weft import`: rows of tables, from outside.

use crate::node::{Folder, Node, output, weft};
use serde_json::{Value, json};
use std::process::Output;

const NETWORK: &str = "IMPORT 'library/elements/rule_acl.weft';
CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE CHAIN shop ON front -> cart AS rule_acl (user := header.\"x-user\"); END;
INSERT INTO shop.rule_acl.rules VALUES (1, 10, '/shop.Cart/Get', NULL, NULL, 'allow');
";

fn ran(folder: &Folder, node: &Node, args: &[&str]) -> Output {
    output(weft(folder).args(args).args(["--admin", &node.admin]))
}

fn said(folder: &Folder, node: &Node, args: &[&str]) -> String {
    let done = ran(folder, node, args);
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("it is text")
}

fn refused(folder: &Folder, node: &Node, args: &[&str]) -> String {
    let done = ran(folder, node, args);
    assert_eq!(done.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&done.stdout));
    String::from_utf8(done.stderr).expect("it is text")
}

/// A rule that is put in and is not there, or one that an update loses, lets calls through that must not pass.
#[test]
fn rows_of_a_running_node_are_asked_and_changed() {
    let folder = Folder::new();
    let program = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &program, &[]);
    let query = |text: &str| said(&folder, &node, &["query", text]);
    let ids = || -> Value {
        let text =
            said(&folder, &node, &["query", "SELECT id FROM shop.rule_acl.rules ORDER BY id", "-o", "json"]);
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
    assert!(fault.contains("there is no table `ruls`"), "{fault}");
    // The same text again: what came at run time stays; a row that the text drops goes.
    said(&folder, &node, &["apply", program.to_str().expect("a path")]);
    assert_eq!(ids(), json!([[1], [2], [3]]));
    let other = folder.write("network.weft", &NETWORK.replace("(1, 10", "(7, 10"));
    said(&folder, &node, &["apply", other.to_str().expect("a path")]);
    assert_eq!(ids(), json!([[2], [3], [7]]));
    assert!(query("DELETE FROM shop.rule_acl.rules WHERE id <> 7").starts_with("2 rows deleted"));
    assert_eq!(ids(), json!([[7]]));
    let tables = said(&folder, &node, &["query"]);
    assert!(tables.contains("shop.rule_acl.rules  controller     1  1,000,000"), "{tables}");
    assert_eq!(node.stop(), Some(0));
}

/// A list that is put in by halves, without a word of where it is wrong, is worse than none.
#[test]
fn lists_are_loaded_and_their_faults_have_a_place() {
    let folder = Folder::new();
    let program = folder.write("network.weft", NETWORK);
    let node = Node::start(&folder, &program, &[]);
    let many: String =
        (10..5_010).map(|id| format!("{id},1,,10.{}.{}.0/24,,deny\n", id / 256, id % 256)).collect();
    let list = folder.write("rules.csv", &format!("id,priority,path,net,who,action\n{many}"));
    let list = list.to_str().expect("a path");
    let loaded = said(&folder, &node, &["load", "shop.rule_acl.rules", list]);
    assert!(loaded.starts_with("shop.rule_acl.rules: 5,000 rows inserted"), "{loaded}");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", list]);
    assert!(fault.contains("row 1 of shop.rule_acl.rules: a row with this key is there already"), "{fault}");
    let again = said(&folder, &node, &["load", "shop.rule_acl.rules", list, "--replace"]);
    assert!(again.contains("5,000 rows updated"), "{again}");
    let wrong =
        folder.write("wrong.csv", "id,priority,net,action\n1,1,10.0.0.0/8,deny\n2,1,10.0.0.0/33,deny\n");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", wrong.to_str().expect("a path")]);
    assert!(fault.contains("row 2, column `net`: a CIDR is"), "{fault}");
    let unknown = folder.write("unknown.csv", "id,prio\n1,1\n");
    let fault = refused(&folder, &node, &["load", "shop.rule_acl.rules", unknown.to_str().expect("a path")]);
    assert!(fault.contains("has no column `prio`"), "{fault}");
    assert_eq!(node.stop(), Some(0));
}

/// A firewall that is taken over without its wrong line is another firewall.
#[test]
fn a_list_of_a_firewall_is_imported_whole_or_not_at_all() {
    let folder = Folder::new();
    let rules = "table inet f {\n chain c {\n  type filter hook forward priority 0; policy drop;\n  \
                 tcp dport 80 accept\n  tcp dport 81 limit rate 1/second accept\n }\n}\n";
    let list = folder.write("rules.nft", rules);
    let list = list.to_str().expect("a path");
    let refused = output(weft(&folder).args(["import", list]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("rules.nft:5:16: `limit` is not read in a rule"), "{told}");
    let kept = output(weft(&folder).args(["import", list, "--keep-going", "--table", "edge.ruleset.rules"]));
    assert!(kept.status.success());
    let rows = String::from_utf8(kept.stdout).expect("it is text");
    // What it gives is a part of a program.
    let program = format!(
        "IMPORT 'library/elements/ruleset.weft';\nCREATE PORT wan ON memory;\nCREATE PORT lan ON memory;\n\
         CREATE CHAIN edge ON PORT wan -> lan AS ruleset; END;\n{rows}"
    );
    let program = folder.write("network.weft", &program);
    let checked = output(weft(&folder).arg("check").arg(program));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert_eq!(rows.matches("'line 4'").count(), 1);
}
