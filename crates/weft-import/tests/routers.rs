//! Lists like those of real routers and hosts, as nft and iptables-save print them.

use weft_import::{Hook, List, Row, Verdict, import};

const OPENWRT: &str = include_str!("lists/openwrt.nft");
const FIREWALLD: &str = include_str!("lists/firewalld.nft");
const DOCKER: &str = include_str!("lists/docker.iptables");
const UFW: &str = include_str!("lists/ufw.iptables");

/// Reads the list for a hook of a host with these interfaces, without faults.
fn read(text: &str, hook: &str, ports: &str) -> List {
    let ports: Vec<String> = ports.split(' ').map(str::to_owned).collect();
    let list = import(
        text,
        None,
        &Hook { name: hook.to_owned(), out_ports: ports.clone(), in_ports: ports, ..Hook::default() },
    );
    assert_eq!(list.faults, [], "{hook}");
    list
}

/// An IPv4 packet, by the fields that these lists test.
#[derive(Clone, Copy, Default)]
struct Packet {
    at: &'static str,
    out: &'static str,
    src: [u8; 4],
    dst: [u8; 4],
    protocol: u8,
    dst_port: u16,
    icmp: Option<u8>,
    state: u8,
}

const NEW: u8 = 1;
const LAN: [u8; 4] = [192, 168, 1, 5];
const WORLD: [u8; 4] = [192, 0, 2, 1];

/// The first packet of a TCP connection.
fn opening(src: [u8; 4], dst: [u8; 4], dst_port: u16) -> Packet {
    Packet { src, dst, protocol: 6, dst_port, state: NEW, ..Packet::default() }
}

fn is_in(net: &str, address: [u8; 4]) -> bool {
    let Some((base, len)) = net.split_once('/') else { return false };
    let (Ok(base), Ok(len)) = (base.parse::<std::net::Ipv4Addr>(), len.parse::<u32>()) else { return false };
    let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
    (u32::from(base) ^ u32::from_be_bytes(address)) & mask == 0
}

fn is_of(row: &Row, packet: &Packet) -> bool {
    let in_net =
        |net: Option<weft_import::Net>, address| net.is_none_or(|net| is_in(&net.to_string(), address));
    row.at.as_deref().is_none_or(|at| at == packet.at)
        && row.out.as_deref().is_none_or(|out| out == packet.out)
        && in_net(row.src, packet.src)
        && in_net(row.dst, packet.dst)
        && row.protocol.is_none_or(|protocol| protocol == packet.protocol)
        && row.next_header.is_none()
        && (row.src_ports.0..=row.src_ports.1).contains(&5000)
        && (row.dst_ports.0..=row.dst_ports.1).contains(&packet.dst_port)
        && row.icmp.is_none_or(|icmp| packet.icmp == Some(icmp))
        && row.state.is_none_or(|state| state == packet.state)
}

/// The verdict of the first matching row, and the code of its ICMP error.
fn verdict(list: &List, packet: Packet) -> (Verdict, u8) {
    let row = list.rows.iter().find(|row| is_of(row, &packet));
    row.map_or((Verdict::Drop, 0), |row| {
        (row.verdict, if row.verdict == Verdict::Reject { row.answer.code } else { 0 })
    })
}

/// The key word of each warning, with its line.
fn warned_words(list: &List) -> Vec<(u32, &str)> {
    let words = ["rates are not", "MSS", "left out", "own addresses"];
    list.warnings
        .iter()
        .map(|warning| {
            let word = words.iter().find(|word| warning.reason.contains(**word));
            (warning.line, *word.unwrap_or_else(|| panic!("{warning}")))
        })
        .collect()
}

/// OpenWrt: zones with output ports, a second base chain, NAT chains, rates, and MSS clamping.
#[test]
fn openwrt_list_is_read_whole() {
    let list = read(OPENWRT, "forward", "br-lan br-guest wan");
    let tcp = |at, out| Packet { at, out, ..opening(LAN, WORLD, 443) };
    assert_eq!(verdict(&list, tcp("br-lan", "wan")).0, Verdict::Accept);
    assert_eq!(verdict(&list, tcp("br-lan", "br-lan")).0, Verdict::Accept);
    assert_eq!(verdict(&list, tcp("br-guest", "wan")).0, Verdict::Accept);
    // Guests do not reach other zones: TCP is reset, other packets are unreachable.
    assert_eq!(verdict(&list, tcp("br-guest", "br-lan")).0, Verdict::Reset);
    assert_eq!(verdict(&list, Packet { protocol: 17, ..tcp("br-guest", "br-lan") }), (Verdict::Reject, 3));
    assert_eq!(
        verdict(&list, Packet { protocol: 17, dst_port: 53, ..tcp("br-guest", "wan") }).0,
        Verdict::Drop
    );
    assert_eq!(verdict(&list, Packet { state: 4, ..tcp("br-lan", "wan") }).0, Verdict::Drop);
    assert_eq!(verdict(&list, tcp("wan", "br-lan")).0, Verdict::Reset);
    assert_eq!(verdict(&list, Packet { protocol: 50, ..tcp("wan", "br-lan") }).0, Verdict::Accept);
    assert_eq!(verdict(&list, Packet { state: 2, ..tcp("wan", "br-lan") }).0, Verdict::Accept);
    assert_eq!(verdict(&list, Packet { src: [198, 51, 100, 9], ..tcp("wan", "br-lan") }).0, Verdict::Drop);
    // A packet to several ports leaves only if it may leave by each.
    assert_ne!(verdict(&list, tcp("br-guest", "*")).0, Verdict::Accept);
    let kinds: Vec<&str> = warned_words(&list).into_iter().map(|(_, word)| word).collect();
    assert_eq!(
        kinds,
        ["left out", "rates are not", "rates are not", "left out", "left out", "left out", "MSS"]
    );
    for hook in ["input", "output"] {
        assert!(!read(OPENWRT, hook, "br-lan br-guest wan lo").rows.is_empty());
    }
}

/// firewalld: zones by source and interface, in chains that use goto.
#[test]
fn firewalld_list_is_read_whole() {
    let list = read(FIREWALLD, "forward", "eth0 eth1 lo");
    let tcp = |at, out| Packet { at, out, ..opening([10, 0, 0, 1], WORLD, 443) };
    assert_eq!(verdict(&list, tcp("eth1", "eth0")).0, Verdict::Accept);
    assert_eq!(verdict(&list, Packet { state: 4, ..tcp("eth1", "eth0") }).0, Verdict::Drop);
    assert_eq!(verdict(&list, tcp("eth0", "eth1")), (Verdict::Reject, 13));
    assert_eq!(verdict(&list, Packet { src: [192, 168, 100, 7], ..tcp("eth0", "eth1") }).0, Verdict::Accept);
    assert_eq!(verdict(&list, Packet { src: [198, 51, 100, 3], ..tcp("eth0", "eth0") }).0, Verdict::Drop);
    assert_eq!(verdict(&list, tcp("eth0", "eth0")).0, Verdict::Accept);
    // Rows have no IPv4-mapped addresses.
    assert!(list.warnings.iter().any(|warning| warning.reason.contains("::ffff:0:0/96")));
    assert!(list.rows.iter().all(|row| !row.to_string().contains("ffff")));
    for hook in ["input", "output"] {
        assert!(!read(FIREWALLD, hook, "eth0 eth1 lo").rows.is_empty());
    }
}

/// Docker: bridges that may only use their own ports.
#[test]
fn docker_list_is_read_whole() {
    let list = read(DOCKER, "forward", "eth0 docker0 br-3f2a");
    let tcp = |at, out| Packet { at, out, ..opening([172, 17, 0, 2], [172, 18, 0, 2], 80) };
    assert_eq!(verdict(&list, tcp("docker0", "eth0")).0, Verdict::Accept);
    assert_eq!(verdict(&list, tcp("docker0", "docker0")).0, Verdict::Accept);
    assert_eq!(verdict(&list, tcp("docker0", "br-3f2a")).0, Verdict::Drop);
    assert_eq!(verdict(&list, tcp("br-3f2a", "docker0")).0, Verdict::Drop);
    assert_eq!(verdict(&list, tcp("eth0", "br-3f2a")).0, Verdict::Accept);
    assert_eq!(verdict(&list, Packet { dst_port: 81, ..tcp("eth0", "br-3f2a") }).0, Verdict::Drop);
    assert_eq!(verdict(&list, Packet { src: [203, 0, 113, 5], ..tcp("eth0", "br-3f2a") }).0, Verdict::Drop);
    // The NAT rules are left out with a warning.
    assert_eq!(warned_words(&list).len(), 2);
}

/// ufw: chains before and after the user's, with rate limits for logging.
#[test]
fn ufw_list_is_read_whole() {
    let list = read(UFW, "forward", "eth0 eth1");
    assert_eq!(list.warnings, []);
    let tcp = |at, out| Packet { at, out, ..opening([10, 0, 0, 1], WORLD, 443) };
    assert_eq!(verdict(&list, tcp("eth1", "eth0")).0, Verdict::Accept);
    assert_eq!(verdict(&list, tcp("eth0", "eth1")).0, Verdict::Drop);
    assert_eq!(
        verdict(&list, Packet { dst: [192, 168, 1, 9], dst_port: 22, ..tcp("eth0", "eth1") }).0,
        Verdict::Reset
    );
    assert_eq!(verdict(&list, Packet { dst: [192, 168, 1, 9], ..tcp("eth0", "eth1") }), (Verdict::Reject, 3));
    assert_eq!(
        verdict(&list, Packet { protocol: 1, dst_port: 0, icmp: Some(8), ..tcp("eth0", "eth1") }).0,
        Verdict::Accept
    );
    let input = read(UFW, "input", "eth0 eth1 lo");
    assert_eq!(verdict(&input, Packet { dst_port: 22, ..tcp("eth0", "") }).0, Verdict::Accept);
    assert_eq!(verdict(&input, tcp("eth0", "")).0, Verdict::Drop);
}
