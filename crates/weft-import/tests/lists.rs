//! Lists as they are printed, and the rows that they become.

use weft_import::{Format, Hook, List, import, insert};

/// As `nft list ruleset` prints it.
const NFT: &str = include_str!("lists/office.nft");
/// As `iptables-save -c` prints it.
const IPTABLES: &str = include_str!("lists/office.iptables");

fn rows(list: &List) -> Vec<String> {
    assert_eq!(list.faults, [], "it is a list");
    list.rows.iter().map(ToString::to_string).collect()
}

/// A rule that becomes another opens a network, or closes it.
#[test]
fn a_list_of_nft_becomes_its_rows() {
    let list = import(NFT, None, &Hook { name: "forward".into(), out_port: Some("wan".into()) });
    assert_eq!(
        rows(&list),
        [
            "NULL, NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, 0, NULL, 2, 1, 'answers'",
            "'lan', '192.168.1.0/24', NULL, 6, 0, 65535, 80, 80, NULL, 0, NULL, 1, 1, 'line 16'",
            "'lan', '192.168.1.0/24', NULL, 6, 0, 65535, 443, 443, NULL, 0, NULL, 1, 1, 'line 16'",
            "'lan', '192.168.1.0/24', NULL, 6, 0, 65535, 8000, 8100, NULL, 0, NULL, 1, 1, 'line 16'",
            "NULL, NULL, '192.0.2.4/30', 17, 1024, 65535, 53, 53, NULL, 0, NULL, NULL, 1, 'line 17'",
            "NULL, NULL, '192.0.2.8/31', 17, 1024, 65535, 53, 53, NULL, 0, NULL, NULL, 1, 'line 17'",
            "NULL, '203.0.113.7/32', NULL, NULL, 0, 65535, 0, 65535, NULL, 0, NULL, NULL, 0, 'they''d scan'",
            "NULL, '198.51.100.0/24', NULL, NULL, 0, 65535, 0, 65535, NULL, 0, NULL, NULL, 0, 'they''d scan'",
            "NULL, '0.0.0.0/0', NULL, 1, 0, 65535, 0, 65535, 8, 0, NULL, NULL, 1, 'line 19'",
            "NULL, '::/0', NULL, 58, 0, 65535, 0, 65535, 128, 0, NULL, NULL, 1, 'line 20'",
            "NULL, '::/0', NULL, 58, 0, 65535, 0, 65535, 135, 0, NULL, NULL, 1, 'line 20'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 21, NULL, 0, NULL, NULL, 2, 'line 21'",
            "NULL, NULL, NULL, 6, 0, 65535, 23, 65535, NULL, 0, NULL, NULL, 2, 'line 21'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 65535, NULL, 2, 23, 1, 1, 'line 24'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 65535, NULL, 0, 3, NULL, 0, 'line 25'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 65535, NULL, 1, 1, NULL, 0, 'line 26'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 65535, NULL, 2, 3, NULL, 0, 'line 26'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 65535, NULL, 1, 1, NULL, 1, 'line 27'",
            "NULL, NULL, NULL, 6, 0, 65535, 0, 65535, NULL, 0, 3, NULL, 1, 'line 27'",
        ]
    );
}

/// The same for the other form, which most machines still have.
#[test]
fn a_list_of_iptables_becomes_its_rows() {
    let list = import(IPTABLES, None, &Hook { name: "forward".into(), out_port: Some("eth1".into()) });
    assert_eq!(
        rows(&list),
        [
            "NULL, '0.0.0.0/0', NULL, NULL, 0, 65535, 0, 65535, NULL, 0, NULL, 2, 1, 'line 7'",
            "'eth0', '10.1.0.0/16', NULL, 6, 0, 65535, 80, 80, NULL, 0, NULL, NULL, 1, 'the web'",
            "'eth0', '10.1.0.0/16', NULL, 6, 0, 65535, 8000, 8100, NULL, 0, NULL, NULL, 1, 'the web'",
            "NULL, '128.0.0.0/1', NULL, 17, 0, 65535, 53, 53, NULL, 0, NULL, NULL, 0, 'line 9'",
            "NULL, '64.0.0.0/2', NULL, 17, 0, 65535, 53, 53, NULL, 0, NULL, NULL, 0, 'line 9'",
            "NULL, '0.0.0.0/0', NULL, 1, 0, 65535, 0, 65535, 8, 0, NULL, NULL, 1, 'line 10'",
            "NULL, '0.0.0.0/0', NULL, 6, 0, 65535, 0, 65535, NULL, 2, 23, NULL, 1, 'line 12'",
            "NULL, '0.0.0.0/0', NULL, 6, 0, 65535, 0, 65535, NULL, 63, 63, NULL, 0, 'line 13'",
            "NULL, '0.0.0.0/0', '10.9.0.0/16', NULL, 0, 65535, 0, 65535, NULL, 0, NULL, NULL, 2, 'line 14'",
            "NULL, '0.0.0.0/0', NULL, NULL, 0, 65535, 0, 65535, NULL, 0, NULL, NULL, 1, 'policy'",
        ]
        .map(|row| row.replace("'0.0.0.0/0', '10.9.0.0/16'", "NULL, '10.9.0.0/16'"))
    );
    assert!(insert(&list, "edge.ruleset.rules").ends_with("1, 'policy');\n"));
}

/// Who does not see which line was left out trusts a list that is not there.
#[test]
fn what_is_not_understood_has_its_place() {
    let nft = |rule: &str| {
        let text = format!(
            "table inet f {{\n chain c {{\n  type filter hook forward priority 0; policy drop;\n  {rule}\n }}\n}}\n"
        );
        import(&text, Some(Format::Nft), &Hook::default())
            .faults
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(nft("tcp dport 80 limit rate 5/second accept"), ["4:16: `limit` is not read in a rule"]);
    assert_eq!(
        nft("ip saddr 10.0.0.0/33 drop"),
        ["4:12: `10.0.0.0/33` is no IPv4 address, network or range"]
    );
    assert_eq!(nft("tcp dport 99999 drop"), ["4:13: `99999` is no port or range of ports"]);
    assert_eq!(nft("ip saddr @bad drop"), ["4:12: there is no set `bad` in table `f`"]);
    assert_eq!(
        nft("oifname \"wan\" accept"),
        ["4:3: by which port a packet leaves is not known: say it with --out-port"]
    );
    assert_eq!(nft("tcp flags & (fin|sin) == fin drop"), ["4:15: `sin` is no flag of TCP"]);
    assert_eq!(nft("jump other"), ["4:3: `jump` is not read in a rule"]);
    assert_eq!(nft("accept drop"), ["4:10: nothing is read behind `accept`"]);
    let iptables = |rule: &str| {
        let text = format!("*filter\n:FORWARD DROP [0:0]\n-A FORWARD {rule}\nCOMMIT\n");
        import(&text, None, &Hook::default()).faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(iptables("-m limit --limit 5/s -j ACCEPT"), ["3:15: the match `limit` is not read"]);
    assert_eq!(
        iptables("-p tcp -j LOGDROP"),
        ["3:22: the target `LOGDROP` is not read: only ACCEPT, DROP, REJECT and LOG"]
    );
    assert_eq!(iptables("-s 10.0.0.0/8 --dport"), ["3:26: `--dport` needs a value"]);
    // Both would have to be true: with the last alone, the rule would let more through.
    assert_eq!(
        iptables("-s 10.0.0.0/8 -m iprange --src-range 10.0.0.1-10.0.0.9 -j ACCEPT"),
        ["3:37: `--src-range` is asked for twice in a rule"]
    );
    let out = Hook { out_port: Some("eth1".into()), ..Hook::default() };
    for text in [
        "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -o eth+ -j DROP\nCOMMIT\n",
        "table ip f { chain c { type filter hook forward priority 0; policy accept;\noifname \"eth*\" drop\n} }",
    ] {
        let faults = import(text, None, &out).faults;
        assert_eq!(faults[0].reason, "names with `*` or `+` are not read", "{text}");
    }
    assert_eq!(import("", None, &Hook::default()).faults.len(), 1, "an empty list would let nothing pass");
}

/// Half of a list lets pass what the whole would not, and nobody would know.
#[test]
fn a_list_that_is_cut_short_is_not_taken_for_a_whole_one() {
    let hook = Hook { name: "forward".into(), out_port: Some("wan".into()) };
    let ends = NFT.rfind('}').zip(IPTABLES.rfind("COMMIT")).expect("both are whole");
    let all = [(NFT, Format::Nft, ends.0), (IPTABLES, Format::Iptables, ends.1 + "COMMI".len())];
    for (text, format, end) in all {
        // Up to the end of a table it is a list of fewer tables.
        let is_cut = |at: &usize| text.is_char_boundary(*at) && !text[..*at].trim_end().ends_with("COMMIT");
        for cut in (0..=end).filter(is_cut) {
            let list = import(&text[..cut], Some(format), &hook);
            assert!(!list.faults.is_empty(), "{format:?} up to {cut}: {}", &text[..cut]);
        }
    }
    let told =
        |text: &str| import(text, None, &hook).faults.iter().map(ToString::to_string).collect::<Vec<_>>();
    let chain = "table inet f {\n chain x {\n  type filter hook forward priority 0; policy accept;\n";
    let ends = |line, column, what, of| {
        format!(
            "{line}:{column}: the list ends here without the `}}` of {what} of line {of}: \
             give all that `nft list ruleset` prints"
        )
    };
    assert_eq!(told(&format!("{chain}  tcp dport {{ 22,")), [ends(4, 18, "the set", 4)]);
    assert_eq!(told(&format!("{chain}  tcp dport 22")), [ends(4, 15, "the chain", 2)]);
    assert_eq!(told(&format!("{chain} }}\n")), [ends(4, 3, "the table", 1)]);
    assert_eq!(
        told(&format!("{chain}  accept comment \"abc\n }}\n}}\n")),
        ["4:18: the quote that begins here is not closed in its line"]
    );
    assert_eq!(
        told("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j ACCEPT\n"),
        [
            "3:21: the COMMIT of `*filter` of line 1 does not come before this: give all that iptables-save prints"
        ]
    );
    assert_eq!(told("*nat\n*filter\n:FORWARD DROP [0:0]\nCOMMIT\n").len(), 1);
}

/// What iptables-save prints is what people have.
#[test]
fn quotes_in_comments_and_rules_that_log_are_read() {
    let text = "*filter\n:FORWARD DROP [0:0]\n\
                -A FORWARD -m comment --comment \"a \\\"quote\\\" \\\\\" -j ACCEPT\n\
                -A FORWARD -p tcp -j LOG --log-prefix \"seen \" --log-level 4 --log-uid\n\
                -A FORWARD -j NFLOG --nflog-group 3\nCOMMIT\n";
    let all = "NULL, '0.0.0.0/0', NULL, NULL, 0, 65535, 0, 65535, NULL, 0, NULL, NULL, 1";
    assert_eq!(rows(&import(text, None, &Hook::default())), [format!("{all}, 'a \"quote\" \\'")]);
    let open = text.replace("\" -j ACCEPT", " -j ACCEPT");
    let told = import(&open, None, &Hook::default());
    assert_eq!(told.faults[0].to_string(), "3:33: the quote that begins here is not closed in its line");
    assert!(told.rows.is_empty(), "the rule is left out");
}

/// A rule with two long sets would fill the memory.
#[test]
fn a_rule_becomes_so_many_rows_and_no_more() {
    let ports: Vec<String> = (0..300).map(|port| (2 * port).to_string()).collect();
    let ports = ports.join(", ");
    let rule = format!("tcp sport {{ {ports} }} tcp dport {{ {ports} }} drop");
    let text =
        format!("table ip f {{ chain c {{ type filter hook forward priority 0; policy drop;\n{rule}\n}} }}");
    let list = import(&text, None, &Hook::default());
    assert_eq!(list.faults[0].reason, "the rule would be 90000 rows, and may be 65536");
}

/// Damaged lists are what people have when something is wrong already.
#[test]
fn damaged_lists_are_read_to_their_end() {
    for text in [NFT, IPTABLES] {
        for format in [Format::Nft, Format::Iptables, Format::Ip6tables] {
            for cut in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
                import(&text[..cut], Some(format), &Hook::default());
                let without = format!("{}{}", &text[..cut], text[cut..].chars().skip(1).collect::<String>());
                import(&without, Some(format), &Hook::default());
            }
        }
    }
}
