//! Compares imported chains that call each other with a direct evaluation of the chains, packet by packet.

use weft_core::rng::Rng;
use weft_import::{Hook, List, Row, Verdict, import};

/// The packet fields that random rules test.
#[derive(Clone, Copy, Debug)]
struct Packet {
    src: u8,
    dst_port: u16,
    is_udp: bool,
    /// Index into [`OUTS`].
    out: usize,
}

/// Output ports: ports that rules name, another one, and several at once.
const OUTS: [&str; 4] = ["wan", "lan", "dmz", "*"];
const SEVERAL: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Action {
    Count,
    Of(Verdict),
    Jump(usize),
    Goto(usize),
    Return,
}

#[derive(Clone, Debug)]
struct Rule {
    /// The first byte of the network (10 for 10.0.0.0/8), and whether the test is `!=`.
    src: Option<(u8, bool)>,
    dst_ports: Option<(u16, u16, bool)>,
    is_udp: bool,
    out: Option<usize>,
    action: Action,
}

/// Chains that each call earlier ones; the last is the base chain.
#[derive(Clone, Debug)]
struct Chains {
    chains: Vec<Vec<Rule>>,
    policy: Verdict,
}

/// How a packet leaves a chain.
enum ChainExit {
    Decided(Verdict),
    /// It goes on at the caller.
    Return,
}

impl Rule {
    fn random(rng: &mut Rng, nth: usize, is_base: bool) -> Self {
        let src = rng.percent(50).then(|| (10 + rng.below(3) as u8, rng.percent(30)));
        let ports = |rng: &mut Rng| {
            let low = rng.below(6) as u16;
            (low, low + rng.below(3) as u16, rng.percent(30))
        };
        let dst_ports = if rng.percent(50) { Some(ports(rng)) } else { None };
        let action = match rng.below(8) {
            0 => Action::Count,
            1 | 2 => Action::Of(Verdict::Accept),
            3 => Action::Of(Verdict::Drop),
            4 | 5 if nth > 0 => Action::Jump(rng.below(nth)),
            6 if nth > 0 => Action::Goto(rng.below(nth)),
            _ if is_base => Action::Of(Verdict::Reject),
            _ => Action::Return,
        };
        let out = rng.percent(25).then(|| rng.below(2));
        Self { src, dst_ports, is_udp: rng.percent(50), out, action }
    }

    fn is_of(&self, packet: Packet) -> bool {
        let src = self.src.is_none_or(|(src, differs)| (packet.src == src) != differs);
        // A test of a port implies a test of the protocol.
        let ports = self.dst_ports.is_none_or(|(low, high, differs)| {
            packet.is_udp == self.is_udp && (low..=high).contains(&packet.dst_port) != differs
        });
        src && ports && self.out.is_none_or(|out| out == packet.out)
    }

    fn nft(&self) -> String {
        let not = |differs: bool| if differs { "!= " } else { "" };
        let mut text = String::new();
        if let Some((src, differs)) = self.src {
            text += &format!("ip saddr {}{src}.0.0.0/8 ", not(differs));
        }
        if let Some((low, high, differs)) = self.dst_ports {
            let protocol = if self.is_udp { "udp" } else { "tcp" };
            text += &format!("{protocol} dport {}{low}-{high} ", not(differs));
        }
        if let Some(out) = self.out {
            text += &format!("oifname \"{}\" ", OUTS[out]);
        }
        text + &match self.action {
            Action::Count => "counter".to_owned(),
            Action::Of(Verdict::Accept) => "accept".to_owned(),
            Action::Of(Verdict::Drop) => "drop".to_owned(),
            Action::Of(_) => "reject".to_owned(),
            Action::Jump(chain) => format!("jump c{chain}"),
            Action::Goto(chain) => format!("goto c{chain}"),
            Action::Return => "return".to_owned(),
        }
    }

    fn iptables(&self) -> String {
        let not = |differs: bool| if differs { "! " } else { "" };
        let mut text = String::new();
        if let Some((src, differs)) = self.src {
            text += &format!("{}-s {src}.0.0.0/8 ", not(differs));
        }
        if let Some((low, high, differs)) = self.dst_ports {
            let protocol = if self.is_udp { "udp" } else { "tcp" };
            text += &format!("-p {protocol} -m {protocol} {}--dport {low}:{high} ", not(differs));
        }
        if let Some(out) = self.out {
            text += &format!("-o {} ", OUTS[out]);
        }
        text + &match self.action {
            Action::Count => "-j LOG".to_owned(),
            Action::Of(Verdict::Accept) => "-j ACCEPT".to_owned(),
            Action::Of(Verdict::Drop) => "-j DROP".to_owned(),
            Action::Of(_) => "-j REJECT".to_owned(),
            Action::Jump(chain) => format!("-j c{chain}"),
            Action::Goto(chain) => format!("-g c{chain}"),
            Action::Return => "-j RETURN".to_owned(),
        }
    }
}

impl Chains {
    fn random(rng: &mut Rng) -> Self {
        let n = 1 + rng.below(4);
        let chain = |rng: &mut Rng, nth: usize| {
            (0..1 + rng.below(5)).map(|_| Rule::random(rng, nth, nth + 1 == n)).collect()
        };
        let chains = (0..n).map(|nth| chain(rng, nth)).collect();
        Self { chains, policy: rng.pick(&[Verdict::Accept, Verdict::Drop]) }
    }

    /// Evaluates a chain like the kernel.
    fn through(&self, chain: usize, packet: Packet) -> ChainExit {
        for rule in self.chains[chain].iter().filter(|rule| rule.is_of(packet)) {
            match rule.action {
                Action::Count => {}
                Action::Of(verdict) => return ChainExit::Decided(verdict),
                Action::Jump(to) => {
                    if let ChainExit::Decided(verdict) = self.through(to, packet) {
                        return ChainExit::Decided(verdict);
                    }
                }
                Action::Goto(to) => return self.through(to, packet),
                Action::Return => return ChainExit::Return,
            }
        }
        ChainExit::Return
    }

    fn verdict(&self, packet: Packet) -> Verdict {
        match self.through(self.chains.len() - 1, packet) {
            ChainExit::Decided(verdict) => verdict,
            ChainExit::Return => self.policy,
        }
    }

    fn nft(&self, table: &str, priority: &str) -> String {
        let (last, others) = self.chains.split_last().expect("there is a base chain");
        let lines =
            |rules: &[Rule]| rules.iter().map(|rule| format!("  {}\n", rule.nft())).collect::<String>();
        let chains: String = others
            .iter()
            .enumerate()
            .map(|(n, rules)| format!(" chain c{n} {{\n{} }}\n", lines(rules)))
            .collect();
        let policy = if self.policy == Verdict::Accept { "accept" } else { "drop" };
        let head = format!("  type filter hook forward priority {priority}; policy {policy};\n");
        format!("table ip {table} {{\n chain base {{\n{head}{} }}\n{chains}}}\n", lines(last))
    }

    fn iptables(&self) -> String {
        let (last, others) = self.chains.split_last().expect("there is a base chain");
        let policy = if self.policy == Verdict::Accept { "ACCEPT" } else { "DROP" };
        let names: String = (0..others.len()).map(|n| format!(":c{n} - [0:0]\n")).collect();
        let lines = |name: &str, rules: &[Rule]| {
            rules.iter().map(|rule| format!("-A {name} {}\n", rule.iptables())).collect::<String>()
        };
        let of_others: String =
            others.iter().enumerate().map(|(n, rules)| lines(&format!("c{n}"), rules)).collect();
        format!("*filter\n:FORWARD {policy} [0:0]\n{names}{}{of_others}COMMIT\n", lines("FORWARD", last))
    }
}

/// Whether a row matches a packet, by the columns that these rules fill.
fn is_of(row: &Row, packet: Packet) -> bool {
    let net = row.src.map(|net| net.to_string());
    let src = net.is_none_or(|net| {
        let (address, len) = net.split_once('/').expect("a network has a length");
        let address: std::net::Ipv4Addr = address.parse().expect("it is an address");
        let len: u32 = len.parse().expect("it is a number");
        let ours = u32::from(packet.src) << 24 | 7;
        (u64::from(ours) >> (32 - len)) == (u64::from(u32::from(address)) >> (32 - len))
    });
    let protocol = row.protocol.is_none_or(|protocol| protocol == if packet.is_udp { 17 } else { 6 });
    let out = row.out.as_deref().is_none_or(|out| out == OUTS[packet.out]);
    src && protocol && out && (row.dst_ports.0..=row.dst_ports.1).contains(&packet.dst_port)
}

fn verdict(list: &List, packet: Packet) -> Verdict {
    list.rows.iter().find(|row| is_of(row, packet)).map_or(Verdict::Drop, |row| row.verdict)
}

/// All packets that the check evaluates.
fn packets() -> Vec<Packet> {
    let packets = (9..14).flat_map(|src| {
        (0..9).flat_map(move |dst_port| {
            (0..OUTS.len())
                .flat_map(move |out| [true, false].map(|is_udp| Packet { src, dst_port, is_udp, out }))
        })
    });
    packets.collect()
}

/// Checks the verdict of the rows for all packets. A packet to several ports passes only if it may leave by each of
/// them.
fn check(text: &str, right: impl Fn(Packet) -> Verdict, seed: u64) -> usize {
    let list = import(text, None, &Hook::default());
    assert_eq!(list.faults, [], "{text}");
    for packet in packets() {
        let given = verdict(&list, packet);
        if packet.out != SEVERAL {
            assert_eq!(given, right(packet), "seed {seed}: {packet:?} of\n{text}");
        } else if given == Verdict::Accept {
            for out in 0..SEVERAL {
                let one = Packet { out, ..packet };
                assert_eq!(right(one), Verdict::Accept, "seed {seed}: {one:?} of\n{text}");
            }
        }
    }
    list.rows.len()
}

/// If this fails, a packet that returns from a chain passes a rule that should stop it.
#[test]
fn calling_chains_match_list_walk() {
    let mut rows = 0;
    for seed in 0..400 {
        let chains = Chains::random(&mut Rng::from_seed(seed));
        for text in [chains.nft("f", "filter"), chains.iptables()] {
            rows += check(&text, |packet| chains.verdict(packet), seed);
        }
    }
    assert!(rows > 5_000, "{rows}");
}

/// If this fails, a packet that one base chain accepts is not dropped by the next.
#[test]
fn base_chains_run_by_priority() {
    for seed in 1_000..1_250 {
        let mut rng = Rng::from_seed(seed);
        let [first, second] = [Chains::random(&mut rng), Chains::random(&mut rng)];
        // The order in the text does not matter.
        let text = second.nft("late", "filter + 10") + &first.nft("early", "mangle");
        let right = |packet: Packet| match first.verdict(packet) {
            Verdict::Accept => second.verdict(packet),
            ended => ended,
        };
        check(&text, right, seed);
    }
}

fn of_nft(rules: &str, others: &str) -> List {
    let head = "type filter hook forward priority filter; policy drop;";
    import(
        &format!("table inet f {{\n{others}\nchain c {{\n{head}\n{rules}\n}}\n}}\n"),
        None,
        &Hook::default(),
    )
}

fn short(list: &List) -> Vec<String> {
    assert_eq!(list.faults, [], "it is a list");
    list.rows
        .iter()
        .map(|row| row.to_string().replace(", 0, 65535", "").replace(", 3, 4, ", ", ").replace("NULL, ", ""))
        .collect()
}

/// If this fails, a chain that only a map names is not read.
#[test]
fn verdict_map_jumps_to_chains() {
    let others = "map services { type inet_service : verdict; elements = { 22 : jump admin, 80 : accept } }\n\
                  chain admin { ip saddr 10.0.0.0/8 accept\n }\nchain nobody { broken rule\n }\n";
    let expected = [
        "'10.0.0.0/8', 6, 22, 22, 0, 1, 'line 3'",
        "6, 80, 80, 0, 1, 'line 10'",
        "6, 443, 443, 0, 0, 'line 10'",
    ];
    let named = of_nft("tcp dport vmap @services", others);
    assert_eq!(short(&named), expected[..2]);
    let spelled_out = of_nft("tcp dport vmap { 22 : jump admin, 80 : accept, 443 : drop }", others);
    assert_eq!(short(&spelled_out), expected);
    let by_port = of_nft("iifname vmap { \"lan\" : goto admin, \"wan\" : drop }", others);
    assert_eq!(
        short(&by_port),
        ["'lan', '10.0.0.0/8', 0, 1, 'line 3'", "'lan', 0, 0, 'policy'", "'wan', 0, 0, 'line 10'"]
    );
}

/// If this fails, such a list keeps the reader busy for hours, or its rows fill the memory.
#[test]
fn exploding_chains_are_refused() {
    let chain = |n: usize| {
        let calls = format!("ip saddr 10.0.0.0/8 jump c{}\n", n + 1).repeat(8);
        format!("chain c{n} {{\n{calls}}}\n")
    };
    let others: String = (0..12).map(chain).chain(["chain c12 {\naccept\n}\n".to_owned()]).collect();
    let list = of_nft("jump c0", &others);
    assert!(list.rows.len() <= weft_import::ROWS_MAX && list.faults.len() <= weft_import::FAULTS_MAX);
    assert!(!list.faults.is_empty());
    let set = (0..9_000).map(|n| format!("10.{}.{}.0/24", n / 250, n % 250)).collect::<Vec<_>>().join(", ");
    let long = format!("chain c0 {{\nip saddr {{ {set} }} ip daddr 192.0.2.1 accept\n}}\n");
    let jumps = "ip saddr 10.0.0.0/8 ip daddr 10.0.0.0/8 jump c0\n".repeat(5_000);
    let list = of_nft(&jumps, &long);
    assert!(list.faults.iter().any(|fault| fault.reason.contains("with too long sets")), "{:?}", list.faults);
    let around = of_nft("jump c0", "chain c0 {\njump c1\n}\nchain c1 {\njump c0\n}");
    assert!(
        around.faults[0].reason.starts_with("chains call each other more than 16 deep"),
        "{:?}",
        around.faults
    );
}

fn of_iptables(rules: &str) -> List {
    import(
        &format!("*filter\n:FORWARD ACCEPT [0:0]\n:block - [0:0]\n{rules}\nCOMMIT\n"),
        None,
        &Hook::default(),
    )
}

fn reasons(list: &List) -> String {
    list.faults.iter().map(|fault| fault.reason.clone()).collect::<Vec<_>>().join("\n")
}

/// If this fails, a rule whose comment looks like a target loses the chain that it jumps to.
#[test]
fn comment_words_are_not_targets() {
    let list = of_iptables(
        "-A FORWARD -m comment --comment -j -j block\n-A block -s 10.0.0.0/8 -j DROP\n-A other -j NOWHERE",
    );
    assert_eq!(short(&list), ["'10.0.0.0/8', 0, 0, 'line 5'", "'0.0.0.0/0', 0, 1, 'policy'"]);
    for (rule, reason) in [
        (
            "-A FORWARD -p tcp -m multiport --ports 22 -m multiport --ports 80 -j ACCEPT",
            "`--ports` is given twice",
        ),
        ("-A FORWARD ! -j ACCEPT", "`!` is not supported for `-j`"),
        ("-A FORWARD -j ACCEPT -j LOG", "a rule has one target"),
    ] {
        assert!(reasons(&of_iptables(rule)).contains(reason), "{rule}");
    }
}

/// If this fails, each chain with an early return doubles the number of rows.
#[test]
fn decided_packet_is_not_matched() {
    let chain = |n: u32| format!("chain a{n} {{\nip saddr 10.0.0.1 return\ntcp dport {n} drop\n}}\n");
    let others: String = (1..=400).map(chain).collect();
    let jumps: String = (1..=400).map(|n| format!("jump a{n}\n")).collect();
    let list = of_nft(&jumps, &others);
    assert_eq!(list.faults, [], "it is one deep");
    assert_eq!(list.rows.len(), 401);
    // As deep as possible, with a return from each chain.
    let chain = |n: u32| {
        let lines: String =
            (0..20).map(|m| format!("ip saddr 10.{n}.{m}.0/24 return\ntcp dport {m} drop\n")).collect();
        format!("chain a{n} {{\n{lines}jump a{}\n}}\n", n + 1)
    };
    let others: String = (1..=15).map(chain).chain(["chain a16 {\ndrop\n}\n".to_owned()]).collect();
    let list = of_nft("jump a1\njump a1", &others);
    assert_eq!(list.faults, [], "they are left by other packets each");
    assert!((300..100_000).contains(&list.rows.len()), "{}", list.rows.len());
}

/// If this fails, a rule for ports of any protocol is read although rows only know the ports of some.
#[test]
fn generic_ports_need_protocols() {
    assert!(
        reasons(&of_nft("meta l4proto . th dport { 33 . 53 } drop", "")).contains("ports of protocol 33")
    );
    let list = of_nft("ip saddr . th dport { 10.0.0.1 . 53 } accept", "");
    assert_eq!(short(&list).len(), 3, "TCP, UDP and SCTP");
    assert_eq!(list.warnings.len(), 1);
}

/// If this fails, another table makes a list fail, or the list does not state which packets it is for.
#[test]
fn other_tables_are_ignored() {
    let text = "table ip nat {\nmap m { type inet_service : ipv4_addr; elements = { 80 : 10.0.0.1 }\n}\n}\n\
                table inet other {\nmap m { type inet_service : verdict; elements = { 22 : jump x }\n}\n\
                chain x {\ndrop\n}\n}\n\
                table ip f {\nchain c {\ntype filter hook forward priority 0; policy drop;\n\
                tcp dport 22 accept\n}\n}\n";
    let list = import(text, None, &Hook::default());
    assert_eq!(short(&list), ["'0.0.0.0/0', 6, 22, 22, 0, 1, 'line 15'"]);
    assert!(list.warnings[0].reason.contains("IPv6 match no row"), "{:?}", list.warnings);
}

/// If this fails, a wildcard of one program is read as a wildcard of the other.
#[test]
fn interface_patterns_match_nft() {
    let hook = Hook { in_ports: ["eth0", "eth+", "eth*"].map(String::from).to_vec(), ..Hook::default() };
    let ports = |text: &str| -> Vec<String> {
        import(text, None, &hook).rows.iter().filter_map(|row| row.at.clone()).collect()
    };
    let iptables = |name: &str| {
        ports(&format!("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i {name} -s 10.0.0.1 -j ACCEPT\nCOMMIT\n"))
    };
    let nft = |name: &str| {
        let head = "type filter hook forward priority 0; policy drop;";
        ports(&format!("table inet f {{\nchain c {{\n{head}\niifname \"{name}\" accept\n}}\n}}\n"))
    };
    assert_eq!((iptables("eth*"), iptables("eth+").len()), (vec!["eth*".to_owned()], 3));
    assert_eq!((nft("eth+"), nft("eth*").len()), (vec!["eth+".to_owned()], 3));
}

/// If this fails, syntax that no program prints becomes rows that were not intended.
#[test]
fn handwritten_syntax_is_refused() {
    for (rule, reason) in [
        ("tcp dport > 22-30 accept", "expected a single port"),
        ("tcp dport vmap < 1024", "a map follows `vmap`"),
        ("ip saddr 10.0.0.1 continue drop", "unexpected text after `continue`"),
        ("ct state vmap { invalid : drop } accept", "unexpected text after `vmap`"),
        ("tcp dport vmap { 22, 23 : drop }", "`22` has no verdict"),
    ] {
        assert!(reasons(&of_nft(rule, "")).contains(reason), "{rule}: {}", reasons(&of_nft(rule, "")));
    }
    assert_eq!(short(&of_nft("icmpv6 type { mld-listener-report, nd-redirect } accept", "")).len(), 2);
    let set = (0..2_000).map(|n| format!("10.{}.{}.0/24", n / 250, n % 250)).collect::<Vec<_>>().join(", ");
    let twice = of_nft(
        "ip saddr 10.0.0.0/8 ip saddr @s ip saddr @s ip saddr @s accept",
        &format!("set s {{ type ipv4_addr; elements = {{ {set} }}\n}}"),
    );
    assert!(reasons(&twice).contains("sets that are too large to combine"), "{}", reasons(&twice));
}
