//! `weft import`: rule lists of other firewalls, from outside.

use crate::node::{Folder, output, weft};

/// A firewall that is imported without its wrong line is another firewall.
#[test]
fn firewall_import_is_all_or_nothing() {
    let folder = Folder::new();
    let rules = "table inet f {\n chain c {\n  type filter hook forward priority 0; policy drop;\n  \
                 tcp dport 80 accept\n  tcp dport 81 quota 1 mbytes accept\n }\n}\n";
    let list = folder.write("rules.nft", rules);
    let list = list.to_str().expect("a path");
    let refused = output(weft(&folder).args(["import", list]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty());
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(printed.contains("rules.nft:5:16: `quota` is not supported in a rule"), "{printed}");
    let kept = output(weft(&folder).args(["import", list, "--keep-going", "--table", "edge.ruleset.rules"]));
    assert!(kept.status.success());
    let rows = String::from_utf8(kept.stdout).expect("it is text");
    // The output is a part of a program.
    let program = format!(
        "IMPORT 'library/elements/ruleset.weft';\nCREATE PORT wan ON memory;\nCREATE PORT lan ON memory;\n\
         CREATE CHAIN edge ON PORT wan -> lan AS ruleset; END;\n{rows}"
    );
    let program = folder.write("network.weft", &program);
    let checked = output(weft(&folder).arg("check").arg(program));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert_eq!(rows.matches("'line 4'").count(), 1);
    // An editor of another system puts a byte order mark first.
    let marked = folder.write("marked.nft", &format!("\u{feff}{rules}"));
    let kept = output(weft(&folder).arg("import").arg(marked).arg("--keep-going"));
    assert!(kept.status.success(), "{}", String::from_utf8_lossy(&kept.stderr));
}

/// A row for a port that no frame arrives at blocks nothing; interfaces have other names than ports.
#[test]
fn import_uses_program_port_names() {
    let folder = Folder::new();
    let list = folder.write(
        "list.nft",
        "table inet f {\n chain c {\n  type filter hook forward priority 0; policy accept;\n  \
         iifname \"br-lan\" oifname != \"br-lan\" drop\n }\n}\n",
    );
    let import = |more: &[&str]| {
        let ports = ["--out-port", "br-lan,eth0", "--in-port", "br-lan,eth0"];
        output(weft(&folder).arg("import").arg(&list).args(ports).args(more))
    };
    let rows = String::from_utf8(import(&["--port", "br-lan=lan,eth0=wan"]).stdout).expect("it is text");
    assert!(rows.contains("'lan', 'wan'") && !rows.contains("br-lan"), "{rows}");
    assert_eq!(import(&["--port", "br-lan"]).status.code(), Some(2));
    let unnamed = String::from_utf8(import(&[]).stdout).expect("it is text");
    let program = |rows: &str| {
        let program = format!(
            "IMPORT 'library/elements/ruleset.weft';\nCREATE PORT wan ON memory;\nCREATE PORT lan ON memory;\n\
             CREATE CHAIN edge ON PORT lan -> wan AS ruleset; END;\n{rows}"
        );
        let checked = output(weft(&folder).arg("check").arg(folder.write("network.weft", &program)));
        assert!(checked.status.success());
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    assert_eq!(program(&rows).matches("unknown port").count(), 0);
    assert!(program(&unnamed).contains("unknown port `br-lan`"));
}

/// Rows that no program can import would be written, or a changed meaning would not be reported.
#[test]
fn import_reports_limits_and_changes() {
    let folder = Folder::new();
    let list = |rule: &str| {
        let text = format!(
            "table inet f {{ chain c {{ type filter hook forward priority 0; policy drop;\n{rule}\n}} }}\n"
        );
        folder.write("list.nft", &text)
    };
    let printed = output(weft(&folder).arg("import").arg(list("th dport 80 accept\ntcp dport 80 accept")));
    assert!(printed.status.success());
    let warning = String::from_utf8_lossy(&printed.stderr);
    assert!(warning.contains("list.nft:2:1: warning: `th`"), "{warning}");
    assert!(String::from_utf8_lossy(&printed.stdout).contains("'line 3'"));
    let ports = |from: u16| (0..220).map(|nth| (from + 2 * nth).to_string()).collect::<Vec<_>>().join(", ");
    let rule = format!("tcp sport {{ {} }} tcp dport {{ {} }} accept", ports(20_000), ports(40_000));
    let refused = output(weft(&folder).arg("import").arg(list(&rule)));
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty());
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        printed.contains("the list becomes 48,400 rows") && printed.contains("4194304 bytes"),
        "{printed}"
    );
}
