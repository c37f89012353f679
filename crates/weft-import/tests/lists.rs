//! Printed lists and the rows that they become.

use weft_import::{Format, Hook, List, Verdict, import, insert};

/// The output of `nft list ruleset`.
const NFT: &str = include_str!("lists/office.nft");
/// The output of `iptables-save -c`.
const IPTABLES: &str = include_str!("lists/office.iptables");

/// The rows, without the default reply.
fn rows(list: &List) -> Vec<String> {
    assert_eq!(list.faults, [], "it is a list");
    list.rows.iter().map(|row| row.to_string().replace(", 3, 4, '", ", '")).collect()
}

/// If this fails, a changed rule opens a network, or closes it.
#[test]
fn nft_list_becomes_rows() {
    let list =
        import(NFT, None, &Hook { name: "forward".into(), out_ports: vec!["wan".into()], ..Hook::default() });
    assert_eq!(
        rows(&list),
        [
            "NULL, NULL, NULL, NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, 2, 1, 'answers'",
            "NULL, NULL, NULL, NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, 3, 1, 'answers'",
            "'lan', 'wan', '192.168.1.0/24', NULL, 6, NULL, 0, 65535, 80, 80, NULL, NULL, 0, NULL, 1, 1, 'line 16'",
            "'lan', 'wan', '192.168.1.0/24', NULL, 6, NULL, 0, 65535, 443, 443, NULL, NULL, 0, NULL, 1, 1, 'line 16'",
            "'lan', 'wan', '192.168.1.0/24', NULL, 6, NULL, 0, 65535, 8000, 8100, NULL, NULL, 0, NULL, 1, 1, 'line 16'",
            "NULL, NULL, NULL, '192.0.2.4/30', 17, NULL, 1024, 65535, 53, 53, NULL, NULL, 0, NULL, NULL, 1, 'line 17'",
            "NULL, NULL, NULL, '192.0.2.8/31', 17, NULL, 1024, 65535, 53, 53, NULL, NULL, 0, NULL, NULL, 1, 'line 17'",
            "NULL, NULL, '203.0.113.7/32', NULL, \
             NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 0, 'they''d scan'",
            "NULL, NULL, '198.51.100.0/24', NULL, \
             NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 0, 'they''d scan'",
            "NULL, NULL, '0.0.0.0/0', NULL, 1, NULL, 0, 65535, 0, 65535, 8, NULL, 0, NULL, NULL, 1, 'line 19'",
            "NULL, NULL, '::/0', NULL, 58, NULL, 0, 65535, 0, 65535, 128, NULL, 0, NULL, NULL, 1, 'line 20'",
            "NULL, NULL, '::/0', NULL, 58, NULL, 0, 65535, 0, 65535, 135, NULL, 0, NULL, NULL, 1, 'line 20'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 21, NULL, NULL, 0, NULL, NULL, 3, 'line 21'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 23, 65535, NULL, NULL, 0, NULL, NULL, 3, 'line 21'",
            "NULL, NULL, NULL, NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, 4, 0, 'line 22'",
            "NULL, 'dmz', NULL, NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 1, 'line 23'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 2, 23, 1, 1, 'line 24'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, 3, NULL, 0, 'line 25'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 1, 1, NULL, 0, 'line 26'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 2, 3, NULL, 0, 'line 26'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 1, 1, NULL, 1, 'line 27'",
            "NULL, NULL, NULL, NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, 3, NULL, 1, 'line 27'",
        ]
    );
}

/// The same for iptables.
#[test]
fn iptables_list_becomes_rows() {
    let list = import(
        IPTABLES,
        None,
        &Hook { name: "forward".into(), out_ports: vec!["eth1".into()], ..Hook::default() },
    );
    assert_eq!(
        rows(&list),
        [
            "NULL, NULL, '0.0.0.0/0', NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, 2, 1, 'line 7'",
            "NULL, NULL, '0.0.0.0/0', NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, 3, 1, 'line 7'",
            "'eth0', 'eth1', '10.1.0.0/16', NULL, 6, NULL, 0, 65535, 80, 80, NULL, NULL, 0, NULL, NULL, 1, 'the web'",
            "'eth0', 'eth1', '10.1.0.0/16', NULL, 6, NULL, 0, 65535, 8000, 8100, \
             NULL, NULL, 0, NULL, NULL, 1, 'the web'",
            "NULL, NULL, '64.0.0.0/2', NULL, 17, NULL, 0, 65535, 53, 53, NULL, NULL, 0, NULL, NULL, 0, 'line 9'",
            "NULL, NULL, '128.0.0.0/1', NULL, 17, NULL, 0, 65535, 53, 53, NULL, NULL, 0, NULL, NULL, 0, 'line 9'",
            "NULL, NULL, '0.0.0.0/0', NULL, 1, NULL, 0, 65535, 0, 65535, 8, NULL, 0, NULL, NULL, 1, 'line 10'",
            "NULL, 'eth2', '0.0.0.0/0', NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 1, 'line 11'",
            "NULL, NULL, '0.0.0.0/0', NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 2, 23, NULL, 1, 'line 12'",
            "NULL, NULL, '0.0.0.0/0', NULL, 6, NULL, 0, 65535, 0, 65535, NULL, NULL, 63, 63, NULL, 0, 'line 13'",
            "NULL, NULL, '0.0.0.0/0', '10.9.0.0/16', \
             NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 2, 'line 14'",
            "NULL, NULL, '0.0.0.0/0', NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 1, 'policy'",
        ]
        .map(|row| row.replace("'0.0.0.0/0', '10.9.0.0/16'", "NULL, '10.9.0.0/16'"))
    );
    assert!(insert(&list, "edge.ruleset.rules").ends_with("1, 3, 4, 'policy');\n"));
}

/// If this fails, the user does not see which line was left out, and trusts an incomplete list.
#[test]
fn unknown_text_has_a_line() {
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
    assert_eq!(nft("tcp dport 80 quota 5 mbytes accept"), ["4:16: `quota` is not supported in a rule"]);
    assert_eq!(
        nft("ip saddr 10.0.0.0/33 drop"),
        ["4:12: `10.0.0.0/33` is not an IPv4 address, network or range"]
    );
    assert_eq!(nft("tcp dport 99999 drop"), ["4:13: `99999` is not a port or port range"]);
    assert_eq!(nft("ip saddr @bad drop"), ["4:12: there is no set `bad` in table `f`"]);
    assert_eq!(
        nft("oifname != \"wan\" accept"),
        ["4:3: the other ports are not known: list all ports with --out-port"]
    );
    assert_eq!(nft("tcp flags & (fin|sin) == fin drop"), ["4:15: `sin` is not a TCP flag"]);
    assert_eq!(nft("jump other"), ["4:8: there is no chain `other` in table `f`"]);
    assert_eq!(nft("jump c"), ["4:1: chains call each other more than 16 deep"]);
    assert_eq!(nft("accept drop"), ["4:10: unexpected text after `accept`"]);
    let iptables = |rule: &str| {
        let text = format!("*filter\n:FORWARD DROP [0:0]\n-A FORWARD {rule}\nCOMMIT\n");
        import(&text, None, &Hook::default()).faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(iptables("-m recent --set -j ACCEPT"), ["3:15: the match `recent` is not supported"]);
    let nat = "translates addresses, and belongs in";
    assert!(nft("masquerade")[0].contains(nat), "{:?}", nft("masquerade"));
    assert!(iptables("-j DNAT --to-destination 10.0.0.1")[0].contains(nat));
    assert_eq!(
        iptables("-p tcp -j LOGDROP"),
        [
            "3:22: the target `LOGDROP` is not supported: only ACCEPT, DROP, REJECT, RETURN, LOG and own chains"
        ]
    );
    assert_eq!(iptables("-s 10.0.0.0/8 --dport"), ["3:26: `--dport` needs a value"]);
    assert_eq!(import("", None, &Hook::default()).faults.len(), 1, "an empty list would let nothing pass");
}

/// If this fails, half of a list lets pass what the whole would drop.
#[test]
fn truncated_list_is_refused() {
    let hook = Hook { name: "forward".into(), out_ports: vec!["wan".into()], ..Hook::default() };
    let ends = NFT.rfind('}').zip(IPTABLES.rfind("COMMIT")).expect("both are whole");
    let all = [(NFT, Format::Nft, ends.0), (IPTABLES, Format::Iptables, ends.1 + "COMMI".len())];
    for (text, format, end) in all {
        // A text that ends after a table is a complete list of fewer tables.
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
            "{line}:{column}: the list ends without the `}}` of {what} of line {of}: \
             pass the complete output of `nft list ruleset`"
        )
    };
    assert_eq!(told(&format!("{chain}  tcp dport {{ 22,")), [ends(4, 18, "the set", 4)]);
    assert_eq!(told(&format!("{chain}  tcp dport 22")), [ends(4, 15, "the chain", 2)]);
    assert_eq!(told(&format!("{chain} }}\n")), [ends(4, 3, "the table", 1)]);
    assert_eq!(
        told(&format!("{chain}  accept comment \"abc\n }}\n}}\n")),
        ["4:18: this quote is not closed on its line"]
    );
    assert_eq!(
        told("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j ACCEPT\n"),
        [
            "3:21: the table `*filter` of line 1 has no COMMIT before this: pass the complete output of iptables-save"
        ]
    );
    assert_eq!(told("*nat\n*filter\n:FORWARD DROP [0:0]\nCOMMIT\n").len(), 1);
}

/// If this fails, common output of iptables-save is refused.
#[test]
fn quoted_and_log_text_is_read() {
    let text = "*filter\n:FORWARD DROP [0:0]\n\
                -A FORWARD -m comment --comment \"a \\\"quote\\\" \\\\\" -j ACCEPT\n\
                -A FORWARD -p tcp -j LOG --log-prefix \"seen \" --log-level 4 --log-uid\n\
                -A FORWARD -j NFLOG --nflog-group 3\nCOMMIT\n";
    let all = "NULL, NULL, '0.0.0.0/0', NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 1";
    assert_eq!(rows(&import(text, None, &Hook::default())), [format!("{all}, 'a \"quote\" \\'")]);
    let open = text.replace("\" -j ACCEPT", " -j ACCEPT");
    let told = import(&open, None, &Hook::default());
    assert_eq!(told.faults[0].to_string(), "3:33: this quote is not closed on its line");
    assert!(told.rows.is_empty(), "the rule is left out");
}

/// If this fails, a rule with two long sets fills the memory.
#[test]
fn rows_of_a_rule_are_limited() {
    let ports: Vec<String> = (0..300).map(|port| (2 * port).to_string()).collect();
    let ports = ports.join(", ");
    let rule = format!("tcp sport {{ {ports} }} tcp dport {{ {ports} }} drop");
    let text =
        format!("table ip f {{ chain c {{ type filter hook forward priority 0; policy drop;\n{rule}\n}} }}");
    let list = import(&text, None, &Hook::default());
    assert_eq!(list.faults[0].reason, "the rule would have 90000 rows; the limit is 65536");
}

/// If this fails, a damaged list stops the reader early.
#[test]
fn damaged_list_is_read_to_its_end() {
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

/// An nftables list with these rules in its chain, from line 4 on.
fn of_nft(policy: &str, rules: &str) -> String {
    format!(
        "table inet f {{\n chain c {{\n  type filter hook forward priority 0; policy {policy};\n{rules}\n }}\n}}\n"
    )
}

/// An iptables list with these rules, from line 3 on.
fn of_iptables(rules: &str) -> String {
    format!("*filter\n:FORWARD DROP [0:0]\n{rules}\nCOMMIT\n")
}

fn read(text: &str) -> List {
    import(text, None, &Hook { name: "forward".into(), out_ports: vec!["wan".into()], ..Hook::default() })
}

fn faults(text: &str) -> Vec<String> {
    read(text).faults.iter().map(ToString::to_string).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let list = read(text);
    assert_eq!(list.faults, [], "{text}");
    list.warnings.iter().map(ToString::to_string).collect()
}

/// The rows, without default columns.
fn short(text: &str) -> Vec<String> {
    let short = |row: String| row.replace(", 0, 65535", "").replace("NULL, ", "");
    rows(&read(text)).into_iter().map(short).collect()
}

/// If this fails, concatenated keys are read as single ones, and let other packets pass.
#[test]
fn concatenations_need_paired_keys() {
    let out = Hook { out_ports: vec!["wan".into()], ..Hook::default() };
    let pairs = import(
        &of_nft("drop", "iifname . oifname { \"lan\" . \"wan\", \"wan\" . \"lan\" } accept"),
        None,
        &out,
    );
    assert_eq!(
        rows(&pairs),
        [("'lan', 'wan'"), ("'wan', 'lan'")].map(|ports| format!(
            "{ports}, NULL, NULL, NULL, NULL, 0, 65535, 0, 65535, NULL, NULL, 0, NULL, NULL, 1, 'line 4'"
        ))
    );
    assert_eq!(
        short(&of_nft(
            "drop",
            "ip saddr . tcp dport { 10.0.0.1 . 22, 10.0.0.2 . 80-90 } comment \"a\" accept"
        )),
        ["'10.0.0.1/32', 6, 22, 22, 0, 1, 'a'", "'10.0.0.2/32', 6, 80, 90, 0, 1, 'a'"]
    );
    assert_eq!(
        short(&of_nft("drop", "ct state . meta l4proto { new . tcp } accept")),
        ["6, 0, 1, 1, 'line 4'"]
    );
    let set = "table inet f {\n set s {\n  type ifname . ipv4_addr\n  elements = { \"a\" . 10.0.0.1 }\n }\n \
               chain c {\n  type filter hook forward priority 0; policy drop;\n  iifname . ip daddr @s accept\n }\n}\n";
    assert_eq!(short(set), ["'a', '10.0.0.1/32', 0, 1, 'line 8'"]);

    let pair = |column| vec![format!("4:{column}: a concatenation `a . b` needs a concatenation of keys")];
    assert_eq!(faults(&of_nft("drop", "iifname { \"lan\" . \"wan\" } accept")), pair(11));
    assert_eq!(faults(&of_nft("drop", "iifname \"lan\" . \"wan\" accept")), pair(9));
    for (rule, fault) in [
        ("ip saddr . tcp dport { 10.0.0.1 } accept", "4:24: an element needs a value for each key"),
        (
            "ip saddr . tcp dport != { 10.0.0.1 . 22 } accept",
            "4:22: `!=` is not supported for concatenations",
        ),
        ("iifname { \"a\" : accept } drop", "4:17: an element has a verdict only after `vmap`"),
        ("iifname vmap { \"a\" : snat }", "4:22: `snat` is not supported in a map"),
    ] {
        let told = faults(&of_nft("drop", rule));
        assert!(matches!(&told[..], [one] if one.starts_with(fault)), "{rule}: {told:?}");
    }
    // These are not names either.
    for no_name in ["2", "<lan", "!lan", "\"e\\*\""] {
        let told = faults(&of_nft("drop", &format!("iif {no_name} accept")));
        let name = no_name.trim_matches('"');
        assert_eq!(told.len(), 1, "{no_name}");
        assert!(told[0].contains("is not an interface name") || name.ends_with('*'), "{told:?}");
    }
}

/// If this fails, `comment "lan"` opens the port `lan`.
#[test]
fn element_options_are_not_elements() {
    let list = |elements: &str| {
        format!(
            "table inet f {{\n set s {{\n  type ifname\n  counter\n  elements = {{ {elements} }}\n }}\n chain c {{\n  \
             type filter hook forward priority 0; policy drop;\n  iifname @s accept\n }}\n}}\n"
        )
    };
    assert_eq!(
        short(&list("\"dmz\" comment \"lan\",\n \"x\" counter packets 1 bytes 2 comment \"a, b\"")),
        ["'dmz', 0, 1, 'line 10'", "'x', 0, 1, 'line 10'"]
    );
    for gone in ["timeout 5s", "expires 3s", "timeout 5s expires 3s comment \"b\""] {
        let word = &gone[..7];
        assert_eq!(
            faults(&list(&format!("\"dmz\" {gone}"))),
            [
                format!("5:22: `{word}` is not supported for an element"),
                "9:11: the set `s` is not supported".into()
            ]
        );
    }
}

/// If this fails, a refused rule hides the next one, without a fault.
#[test]
fn refused_rule_does_not_stop_others() {
    let bad = [
        "tcp flags { syn, ack, 5 / 3 } drop",
        "ct state vmap { established : accept, invalid : jump bad }",
        "ct state vmap { established : accept, old : drop }",
        "ct state vmap { new : accept, new : drop }",
        "ct state vmap { established, invalid }",
        "ct state vmap { invalid : drop } counter accept",
        "ct state vmap @known",
        "tcp dport { 1, 99999, 5 } drop",
        "ip saddr { 10.0.0.1,\n 10.0.0.999,\n 10.0.0.2 } drop",
        "ip saddr . tcp dport { 10.0.0.1 . 22, 10.0.0.2 } drop",
        "ip saddr . tcp dport { 10.0.0.1 . 22 } tcp sport vmap { 1 : drop }",
        "tcp dport > 65535 drop",
        "tcp dport < 0 drop",
        "tcp dport >= high drop",
        "ip saddr > 10.0.0.1 drop",
        "tcp dport { 1 } limit rate 1/second burst { } drop",
        "meta mark { 1, no } drop",
        "limit over 1/second drop",
        "fib saddr . iif oif missing drop",
        "fib daddr type unspec drop",
        "ct status assured accept",
        "tcp option maxseg size 1-500 drop",
        "meta mark set meta mark | 1 accept",
        "reject with tcp host-unreachable",
        "reject with icmpx frag-needed",
        "icmp code port-unreachables drop",
        "snat to 10.0.0.1",
        "meta nfproto { ipv4 } drop",
        "jump { drop }",
        "log prefix",
        "ct",
        "\"accept\"",
        "reject with",
        "th dport { 1, 2 } meta l4proto 33 drop",
    ];
    for rule in bad {
        let list = read(&of_nft("drop", &format!("{rule}\nip saddr 10.0.0.66 drop\ntcp dport 22 drop")));
        assert_eq!(list.faults.len(), 1, "{rule}: {:?}", list.faults);
        assert_eq!(list.rows.len(), 2, "{rule}");
    }
    let text = "table inet f {\n set s { type inet_service; elements = { 1, { 2 } }; }\n \
                map m { type a : b; elements = { 1 : 2 }; }\n set t { type inet_service; elements = { 7 }; }\n \
                chain c {\n  type filter hook forward priority 0; \
                policy drop;\n  tcp dport @s drop\n  tcp dport @t drop\n }\n}\n";
    assert_eq!(read(text).rows.len(), 1);
    // No rule names the map.
    assert_eq!(read(text).faults.len(), 2, "{:?}", faults(text));
}

/// nft prints `meta nfproto ipv6 reject` as `reject with icmpv6 port-unreachable`.
#[test]
fn reject_kind_implies_protocol() {
    let of = |rule: &str| short(&of_nft("drop", rule));
    assert_eq!(of("reject with icmp host-unreachable"), ["'0.0.0.0/0', 0, 2, 1, 4, 'line 4'"]);
    assert_eq!(of("reject with icmpv6 type no-route comment \"x\""), ["'::/0', 0, 2, 3, 0, 'x'"]);
    assert_eq!(of("reject with icmpx admin-prohibited"), ["0, 2, 13, 1, 'line 4'"]);
    assert_eq!(of("reject with icmpx type host-unreachable"), ["0, 2, 1, 3, 'line 4'"]);
    assert_eq!(of("reject with tcp reset"), ["6, 0, 3, 'line 4'"]);
    assert_eq!(of("udp dport 22 reject"), ["17, 22, 22, 0, 2, 'line 4'"]);
    let saved = |rule: &str| short(&of_iptables(&format!("-A FORWARD {rule}")));
    assert_eq!(
        saved("-p udp -j REJECT --reject-with icmp-admin-prohibited"),
        ["'0.0.0.0/0', 17, 0, 2, 13, 4, 'line 3'"]
    );
    assert_eq!(saved("-p tcp -j REJECT --reject-with tcp-reset"), ["'0.0.0.0/0', 6, 0, 3, 'line 3'"]);
}

/// If this fails, a packet to several ports passes although one of the ports refuses it.
#[test]
fn output_interface_is_a_column() {
    let rules = "oifname \"wan\" drop\noifname { \"lan\", \"dmz\" } accept\niif \"lan\" oif \"wan\" reject";
    assert_eq!(
        short(&of_nft("drop", rules)),
        [
            "'wan', 0, 0, 'line 4'",
            "'*', 0, 0, 'line 4'",
            "'lan', 0, 1, 'line 5'",
            "'dmz', 0, 1, 'line 5'",
            "'lan', 'wan', 0, 2, 'line 6'",
            "'lan', '*', 0, 2, 'line 6'",
        ]
    );
    assert_eq!(short(&of_iptables("-A FORWARD -o wan -j ACCEPT")), ["'wan', '0.0.0.0/0', 0, 1, 'line 3'"]);
    let hook = Hook { out_ports: vec!["eth0".into(), "eth1".into(), "wan".into()], ..Hook::default() };
    let others = of_iptables("-A FORWARD ! -o eth+ -j ACCEPT\n-A FORWARD -o eth+ -j ACCEPT");
    let outs = |hook: &Hook| -> Vec<_> {
        import(&others, None, hook).rows.into_iter().filter_map(|row| row.out).collect()
    };
    assert_eq!(outs(&hook), ["wan", "eth0", "eth1"]);
    // The program may use other names for the ports.
    let names = vec![("eth0".to_owned(), "lan".to_owned()), ("wan".to_owned(), "up".to_owned())];
    assert_eq!(outs(&Hook { names, ..hook }), ["up", "lan", "eth1"]);
}

/// If this fails, a rule for the first next-header value matches later headers.
#[test]
fn icmp_types_and_codes_are_columns() {
    let of = |rule: &str| short(&of_nft("drop", rule));
    assert_eq!(
        of("ip6 nexthdr { tcp, 43 } accept"),
        ["'::/0', 6, 0, 1, 'line 4'", "'::/0', 43, 0, 1, 'line 4'"]
    );
    assert_eq!(of("icmp type 3 icmp code host-unreachable accept"), ["'0.0.0.0/0', 1, 3, 1, 0, 1, 'line 4'"]);
    assert_eq!(
        of("icmpv6 type . icmpv6 code { packet-too-big . no-route, 4 . admin-prohibited } accept"),
        ["'::/0', 58, 2, 0, 0, 1, 'line 4'", "'::/0', 58, 4, 1, 0, 1, 'line 4'"]
    );
    let saved = short(&of_iptables("-A FORWARD -p icmp -m icmp --icmp-type 3/13 -j ACCEPT"));
    assert_eq!(saved, ["'0.0.0.0/0', 1, 3, 13, 0, 1, 'line 3'"]);
}

/// If this fails, a rule that rows express only in part gets no warning.
#[test]
fn narrower_meaning_is_a_warning() {
    for (rule, rows, warns) in [
        ("tcp dport 80 limit rate 5/second burst 10 packets accept", 1, "rates are not supported"),
        ("limit rate over 10 mbytes/second burst 1 mbytes drop", 0, "rates are not supported"),
        ("limit rate 3/minute log prefix \"x\"", 0, ""),
        ("ct status dnat accept", 0, ""),
        ("meta mark 0x1 accept", 0, "all packets have the mark 0"),
        ("meta mark & 0xff != 0x1 accept", 1, "all packets have the mark 0"),
        ("meta mark set 0x1 accept", 1, "`meta mark set` is left out"),
        ("tcp flags syn tcp option maxseg size set rt mtu", 0, "the MSS"),
        ("fib daddr type local drop", 0, ""),
        ("meta nfproto ipv4 fib daddr type multicast accept", 1, ""),
        ("fib daddr type { multicast, broadcast } accept", 3, ""),
        ("ct helper set \"ftp\"", 0, "`ct helper set` is left out"),
        ("flow add @ft", 0, ""),
    ] {
        let list = read(&of_nft("drop", rule));
        assert_eq!(list.faults, [], "{rule}");
        assert_eq!(list.rows.len(), rows, "{rule}");
        let told: Vec<_> = list.warnings.iter().map(|warning| warning.reason.as_str()).collect();
        assert_eq!(told.len(), usize::from(!warns.is_empty()), "{rule}: {told:?}");
        assert!(told.iter().all(|reason| reason.contains(warns)), "{rule}: {told:?}");
    }
    for (rule, rows, n_warnings) in [
        ("-m limit --limit 5/min --limit-burst 10 -j ACCEPT", 1, 1),
        ("-m limit --limit 5/min -j LOG --log-prefix \"x \"", 0, 0),
        ("-m addrtype --dst-type LOCAL -j DROP", 0, 0),
        ("-m addrtype ! --dst-type MULTICAST,BROADCAST -j ACCEPT", 31, 0),
        ("-m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT", 2, 0),
        ("-m mark --mark 0x4000/0x4000 -j ACCEPT", 0, 1),
    ] {
        let list = read(&of_iptables(&format!("-A FORWARD {rule}")));
        assert_eq!(list.faults, [], "{rule}");
        assert_eq!(list.rows.len(), rows, "{rule}");
        let told = list.warnings.iter().filter(|warning| warning.line == 3);
        assert_eq!(told.count(), n_warnings, "{rule}: {:?}", list.warnings);
    }
}

/// If this fails, a list of the other IP version lets pass all packets of one version, and none of the other.
#[test]
fn iptables_list_states_ip_version() {
    let of = |header: &str, rules: &str| {
        let list = read(&format!("{header}{}", of_iptables(rules)));
        let row = list.rows.first().map(|row| row.src.map_or_else(String::new, |net| net.to_string()));
        (row.unwrap_or_default(), list.faults.len(), list.warnings.len())
    };
    let (v4, v6) = ("# Generated by iptables-save v1.8.9\n", "# Generated by ip6tables-save v1.8.9\n");
    let (is_v4, is_v6) = (|n| ("0.0.0.0/0".to_owned(), 0, n), |n| ("::/0".to_owned(), 0, n));
    let strings = "-A FORWARD -p tcp -m comment --comment a::b -j DROP\n-A FORWARD -j LOG --log-prefix \"ip6tables \"\n\
                   -A FORWARD -p tcp -m comment --comment \"-s ::1 icmp6-\" -j DROP";
    assert_eq!(of(v4, strings), is_v4(0));
    assert_eq!(of(v6, strings), is_v6(0));
    assert_eq!(of("", strings), is_v4(1));
    assert_eq!(of("", "-A FORWARD -p tcp -j REJECT --reject-with icmp6-port-unreachable"), is_v6(0));
    assert_eq!(of("", "-A FORWARD -p ipv6-icmp -j ACCEPT"), is_v6(0));
    assert_eq!(of("", "-A FORWARD -j ACCEPT\n-A FORWARD -s fe80::1 -j DROP"), is_v6(0));
    assert_eq!(of("", "-A FORWARD -j ACCEPT\n-A FORWARD -s 10.0.0.1 -j DROP"), is_v4(0));
    let both = of_iptables("-A FORWARD -s 10.0.0.1 -j DROP\n-A FORWARD -d ::1 -j DROP");
    let how = "give one list, and say with --format iptables or --format ip6tables which it is";
    assert_eq!(faults(&both), [format!("4:12: this is of IPv6, and line 3 of IPv4: {how}")]);
    let other = of_iptables("-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT");
    let told = import(&other, Some(Format::Iptables), &Hook::default()).faults;
    assert_eq!(told[0].to_string(), "3:34: this is of the other IP version: state the version with --format");
    let both = format!("{v6}{}{v4}", of_iptables(""));
    assert_eq!(faults(&both), [format!("6:1: this is of IPv4, and line 1 of IPv6: {how}")]);
}

/// If this fails, a rule matches other packets than in Linux: Linux sees AH where a row sees TCP.
#[test]
fn protocol_mismatch_is_refused() {
    let ah = "AH (51) is not supported: a packet in AH counts as its payload here, such as TCP";
    for (rule, column) in [
        ("ip protocol ah drop", 13),
        ("meta l4proto ah accept", 14),
        ("meta l4proto { tcp, 51 } accept", 21),
        ("meta l4proto != 51 accept", 17),
    ] {
        assert_eq!(faults(&of_nft("drop", rule)), [format!("4:{column}: {ah}")]);
    }
    assert_eq!(faults(&of_iptables("-A FORWARD -p ah -j DROP")), [format!("3:15: {ah}")]);
    for number in ["0", "43", "44", "60", "tcp", "ah"] {
        let list = read(&of_nft("drop", &format!("ip6 nexthdr {number} accept")));
        assert_eq!((list.faults.len(), list.rows.len()), (0, 1), "{number}");
        assert!(list.rows[0].next_header.is_some() && list.rows[0].protocol.is_none(), "{number}");
    }
}

/// If this fails, a rule for one state matches another, and lets in packets that Linux calls invalid.
#[test]
fn states_match_linux() {
    let states = |list: String| -> Vec<Option<u8>> {
        let list = read(&list);
        assert_eq!(list.faults, [], "it is a list");
        let decided = list.rows.iter().filter(|row| !row.note.starts_with("policy"));
        decided.map(|row| row.state).collect()
    };
    let of = |rule: &str| states(of_nft("drop", &format!("ct state {rule} accept")));
    assert_eq!(of("new"), [Some(1)]);
    assert_eq!(of("established"), [Some(2)]);
    assert_eq!(of("established,related"), [Some(2), Some(3)]);
    assert_eq!(of("{ new, established, related }"), [Some(1), Some(2), Some(3)]);
    assert_eq!(of("invalid"), [Some(4)]);
    assert_eq!(of("untracked"), [Some(5)]);
    assert_eq!(of("!= invalid"), [Some(1), Some(2), Some(3), Some(5)]);
    assert_eq!(of("{ new, established, related, invalid, untracked }"), [None]);
    assert_eq!(of("!= { new, established, related, invalid, untracked }"), []);
    // Packets whose state the map does not name go on to the next rule.
    let by_state = |rule: &str| -> Vec<(Option<u8>, Verdict)> {
        let list = read(&of_nft("drop", &format!("ct state vmap {rule}")));
        assert_eq!(list.faults, [], "it is a list");
        let decided = list.rows.iter().filter(|row| !row.note.starts_with("policy"));
        decided.map(|row| (row.state, row.verdict)).collect()
    };
    let (accept, drop) = (Verdict::Accept, Verdict::Drop);
    assert_eq!(
        by_state("{ invalid : drop, established : accept,\n related counter packets 3 bytes 9 : accept }"),
        [(Some(4), drop), (Some(2), accept), (Some(3), accept)]
    );
    assert_eq!(by_state("{ new : continue, untracked : drop }"), [(Some(5), drop)]);
    assert_eq!(by_state("{ new : continue }"), []);
    let all = "{ new : drop, established : accept, related : accept, invalid : drop, untracked : accept }";
    assert_eq!(by_state(all).iter().filter(|(_, verdict)| *verdict == accept).count(), 3);
    let of =
        |option: &str| states(of_iptables(&format!("-A FORWARD -s 10.0.0.1 -m conntrack {option} -j DROP")));
    assert_eq!(of("--ctstate INVALID"), [Some(4)]);
    assert_eq!(of("! --ctstate NEW"), [Some(2), Some(3), Some(4), Some(5)]);
    // nft requires both states at once.
    assert_eq!(faults(&of_nft("drop", "ct state != new,established drop")).len(), 1);
}

/// If this fails, a set that is empty in print, and filled at run time, makes the list fail.
#[test]
fn empty_set_matches_nothing() {
    let list = |rules: &str| {
        let set = "set s { type ipv4_addr; flags dynamic; }\n set p { type inet_service; }";
        let head = "type filter hook forward priority 0; policy accept;";
        format!("table inet f {{\n {set}\n chain c {{\n  {head}\n  {rules}\n }}\n}}\n")
    };
    for never in ["ip saddr @s drop", "tcp dport @p drop", "ip daddr @s tcp sport != 7 accept"] {
        assert_eq!(short(&list(never)), ["0, 1, 'policy'"], "{never}");
    }
    let always = short(&list("ip saddr != @s tcp dport != @p drop"));
    assert_eq!(always, ["'0.0.0.0/0', 6, 0, 0, 'line 6'", "0, 1, 'policy'"]);
    assert_eq!(faults(&list("ip saddr { } drop")).len(), 1);
    assert_eq!(faults(&list("ip saddr @nobody drop")).len(), 1);
}

/// If this fails, a list in several pieces means something else.
#[test]
fn split_chains_and_sets_are_joined() {
    let set = |port: u16| format!("set p {{ type inet_service; elements = {{ {port} }}; }}");
    let head = "type filter hook forward priority 0; policy accept;";
    let pieces = format!(
        "table inet f {{\n {}\n {}\n chain c {{\n  udp dport @p drop\n  {head}\n }}\n}}\n\
         table inet f {{\n chain c {{\n  tcp dport 7 drop\n }}\n}}\n\
         table ip6 f {{\n {}\n chain c {{\n  drop\n }}\n}}\n",
        set(22),
        set(80),
        set(443)
    );
    assert_eq!(
        short(&pieces),
        [
            "17, 22, 22, 0, 0, 'line 5'",
            "17, 80, 80, 0, 0, 'line 5'",
            "6, 7, 7, 0, 0, 'line 11'",
            "0, 1, 'policy'"
        ]
    );
    let comment = of_nft("accept", "ip saddr 1.2.3.4 counter # note \\\ndrop");
    assert_eq!(read(&comment).rows.len(), 2, "the `\\` is of the comment");
    let goes_on = of_nft("drop", "ip saddr 1.2.3.4 \\\ndrop");
    assert_eq!(short(&goes_on), ["'1.2.3.4/32', 0, 0, 'line 4'"]);
    let flushed = |what: &str| faults(&format!("{}flush {what}\n", of_nft("drop", "accept")));
    for what in ["set inet f p", "chain inet f c", "table inet f", "ruleset"] {
        assert!(
            flushed(what)[0]
                .starts_with("7:1: `flush` of all or of a table is only supported in front of a list"),
            "{what}"
        );
    }
    assert_eq!(faults(&format!("flush ruleset\n{}", of_nft("drop", "accept"))), [""; 0]);
    let two = format!("{0}{0}", of_iptables("-A FORWARD -s 10.0.0.1 -j ACCEPT"));
    assert_eq!(faults(&two), ["5:1: a second table filter, after the one on line 1: only one is supported"]);
    let outside = format!("-A FORWARD -s 10.0.0.1 -j DROP\n{}", of_iptables(""));
    assert_eq!(faults(&outside).len(), 1);
    assert_eq!(faults(&of_iptables("-A FORWARD -s 10.0.0.1 \\\n-j DROP")).len(), 2, "no line goes on");
}

/// If this fails, a number means something else than in the other program.
#[test]
fn numbers_match_the_other_program() {
    let octal = "`026` is not a port or port range: write numbers without 0 in front";
    assert_eq!(faults(&of_nft("drop", "tcp dport 026 accept")), [format!("4:11: {octal}")]);
    assert_eq!(faults(&of_iptables("-A FORWARD -p tcp --dport 026 -j ACCEPT")), [format!("3:27: {octal}")]);
    for rule in
        ["ip saddr 10.0.0.0/08 drop", "meta l4proto 017 drop", "icmp type 010 drop", "tcp dport +22 drop"]
    {
        assert_eq!(faults(&of_nft("drop", rule)).len(), 1, "{rule}");
    }
    let of = |rule: &str| short(&of_iptables(&format!("-A FORWARD {rule}")));
    assert_eq!(of("-p 0 -j ACCEPT"), ["'0.0.0.0/0', 0, 1, 'line 3'"]);
    assert_eq!(of("-p icmp --icmp-type 255 -j ACCEPT"), ["'0.0.0.0/0', 1, 0, 1, 'line 3'"]);
    assert_eq!(
        faults(&of_iptables("-A FORWARD ! -p 0 -j ACCEPT")),
        ["3:14: `!` is not supported for all protocols"]
    );
}

/// If this fails, a rule tests ports of a protocol whose ports a row does not know.
#[test]
fn ports_need_tcp_udp_or_sctp() {
    let only = "are not supported: only those of TCP, UDP and SCTP";
    let other = |at, protocol| vec![format!("{at}: ports of protocol {protocol} {only}")];
    assert_eq!(faults(&of_nft("drop", "meta l4proto udplite th dport 53 drop")), other("4:22", 136));
    assert_eq!(faults(&of_nft("drop", "th dport 53 meta l4proto 33 drop")), other("4:1", 33));
    assert_eq!(
        warnings(&of_nft("drop", "th dport 53 drop")),
        ["4:1: `th` is supported for TCP, UDP and SCTP only"]
    );
    assert_eq!(warnings(&of_nft("drop", "meta l4proto { tcp, udp } th dport 53 drop")), [""; 0]);
    let rule = "-A FORWARD -p udplite -m multiport --dports 53 -j DROP";
    assert_eq!(faults(&of_iptables(rule)), other("3:36", 136));
    let rule = "-A FORWARD --dport 53 -j DROP";
    assert_eq!(faults(&of_iptables(rule)), ["3:12: ports need `-p tcp`, `-p udp` or `-p sctp`"]);
}

/// If this fails, the user does not learn that a chain of another hook ends packets.
#[test]
fn skipped_chain_is_a_warning() {
    let chain = |family: &str, kind: &str, rule: &str| {
        let other =
            format!("table {family} o {{\n chain p {{\n  type {kind} priority 0;\n  {rule}\n }}\n}}\n");
        warnings(&format!("{other}{}", of_nft("drop", "accept")))
    };
    let out = "the chain `p` of hook prerouting is left out, and its `drop`: packets of hook forward pass it";
    let rule = "tcp dport { 22 } counter drop";
    assert_eq!(chain("inet", "filter hook prerouting", rule), [format!("4:28: {out}")]);
    assert_eq!(chain("netdev", "filter hook ingress device \"lan\"", "drop").len(), 1);
    assert_eq!(chain("ip", "filter hook prerouting", "udp dport 53 notrack").len(), 1);
    assert_eq!(chain("ip", "nat hook postrouting", "masquerade").len(), 1);
    assert_eq!(chain("inet", "filter hook postrouting", "accept; policy drop").len(), 1);
    assert_eq!(chain("inet", "filter hook prerouting", "counter accept comment \"drop\"").len(), 0);
    assert_eq!(chain("inet", "filter hook input", "drop").len(), 0);
    let other = |lines: &str| {
        warnings(&format!("{lines}\nCOMMIT\n{}", of_iptables("-A FORWARD -s 10.0.0.1 -j DROP")))
    };
    assert_eq!(
        other("*mangle\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -j DROP\n-A FORWARD -j DROP"),
        ["3:22: the chain FORWARD of `*mangle` is left out, and its `DROP`: packets of FORWARD pass it"]
    );
    assert_eq!(other("*raw\n[1:2] -A PREROUTING -p udp -j CT --notrack").len(), 1);
    assert_eq!(other("*raw\n:PREROUTING DROP [0:0]").len(), 1);
    assert_eq!(other("*mangle\n:INPUT DROP [0:0]\n-A FORWARD -j ACCEPT").len(), 0);
}

/// If this fails, a rule for all interfaces but one misses some of the known others.
#[test]
fn negated_interface_uses_known_ones() {
    let lan_is_not = of_nft("drop", "iifname != \"lan\" drop");
    let with = |ports: &[&str], text: &str| {
        let in_ports = ports.iter().map(|port| (*port).to_owned()).collect();
        import(text, None, &Hook { in_ports, ..Hook::default() })
    };
    let ports = |list: &List| -> Vec<Option<String>> {
        assert_eq!(list.faults, [], "it is a list");
        let decided = list.rows.iter().filter(|row| !row.note.starts_with("policy"));
        decided.map(|row| row.at.clone()).collect()
    };
    let port = |name: &str| Some(name.to_owned());
    assert_eq!(ports(&with(&["lan", "wan", "dmz"], &lan_is_not)), [port("wan"), port("dmz")]);
    assert_eq!(ports(&with(&["lan"], &lan_is_not)), []);
    let two = of_nft("drop", "iifname != { \"lan\", \"dmz\" } drop");
    assert_eq!(ports(&with(&["lan", "wan", "dmz"], &two)), [port("wan")]);
    let negated = of_iptables("-A FORWARD ! -i lan -s 10.0.0.1 -j DROP");
    assert_eq!(ports(&with(&["lan", "wan"], &negated)), [port("wan")]);
    let unknown = ["the other ports are not known: list all ports with --in-port"];
    for list in [lan_is_not, negated] {
        let faults = with(&[], &list).faults;
        let reasons: Vec<&str> = faults.iter().map(|fault| fault.reason.as_str()).collect();
        assert_eq!(reasons, unknown);
    }
}
