#!/usr/bin/env python3
"""The kernel's firewall beside Weft's: the same list of rules, the same packets, which of them pass by which port, and what
their senders are told.

usage: firewall.py [--lists 100] [--seed 1] [-v]

Scenes are packets of one connection or of none, in their order, through a list that lets new ones out and established and
related ones in, and through another that says so by a map. Lists are random rules, in chains that call each other, of one or several base chains, by
ports of departure, and half of them by states; random packets are for them, and answers to these. The kernel has each list by
`nft -f`, as a router with two ways out; Weft has what `weft import` makes of what `nft list ruleset` prints, and runs the packets
by `weft replay`. Exits with 1 if a packet has another end or another answer in one than in the other, but for the scenes
that say why. Needs root, nft and ip, which `setup-packets.sh` installs; `WEFT` names another binary than
target/release/weft.
"""

import argparse
import os
import random
import re
import signal
import socket
import struct
import sys
import tempfile
import time

import between
import peers

TCP, UDP, ICMP, ICMP6, SCTP, GRE = 6, 17, 1, 58, 132, 47
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32}
ETH_P_ALL = 3
# Between two bursts, until the kernel has carried what it got.
BURST, REST_S = 64, 0.005
SETTLE_S = 0.1
PACKETS_OF_LIST = 100

A, B, X, OTHER = "10.0.0.1", "20.0.0.1", "20.0.0.66", "10.0.0.9"
A6, B6, X6, OTHER6 = "2001:db8::1", "2600::1", "2600::66", "2001:db8::77"


# ---- packets: (source, destination, protocol, payload); those of IPv6 may have extension headers ----


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def checksum(data):
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def summed(src, dst, protocol, data, at):
    """With its checksum at an offset, over the pseudo-header as well."""
    pseudo = packed(src) + packed(dst) + struct.pack("!II", len(data), protocol)
    return data[:at] + struct.pack("!H", checksum(pseudo + data) or 0xFFFF) + data[at + 2 :]


def tcp(src, dst, from_port, to_port, flags, seq=1000, ack=0, data=b""):
    bits = sum(FLAGS[flag] for flag in flags)
    header = struct.pack("!HHIIBBHHH", from_port, to_port, seq, ack, 0x50, bits, 65535, 0, 0)
    return src, dst, TCP, summed(src, dst, TCP, header + data, 16)


def udp(src, dst, from_port, to_port):
    return src, dst, UDP, summed(src, dst, UDP, struct.pack("!HHHH", from_port, to_port, 12, 0) + b"data", 6)


def sctp(src, dst, from_port, to_port, chunk=1, tag=0):
    chunks = struct.pack("!BBHIIHHI", chunk, 0, 20, 0x1234, 65535, 1, 1, 7)
    header = struct.pack("!HHI", from_port, to_port, tag)
    return src, dst, SCTP, header + struct.pack("<I", crc32c(header + bytes(4) + chunks)) + chunks


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def gre(src, dst):
    return src, dst, GRE, struct.pack("!HH", 0, 0x88B5) + b"data"


def icmp(src, dst, kind, code=0, ident=1, data=b"abcdefgh"):
    rest = struct.pack("!HH", ident, 1) if isinstance(ident, int) else ident
    body = struct.pack("!BBH", kind, code, 0) + rest + data
    if ":" in src:
        return src, dst, ICMP6, summed(src, dst, ICMP6, body, 2)
    return src, dst, ICMP, body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def error(src, dst, about, kind=None, code=None, cut=None):
    """An error of ICMP that quotes a packet: nobody listens at the port, unless another is named."""
    usual = (1, 4) if ":" in src else (3, 3)
    kind, code = usual[0] if kind is None else kind, usual[1] if code is None else code
    return icmp(src, dst, kind, code, bytes(4), ip(about, 7)[:cut])


def behind(packet, *headers):
    """A packet of IPv6 with extension headers: 0 and 60 are options, 44 is a fragment, the only one."""
    src, dst, protocol, data = packet
    for header in reversed(headers):
        body = b"\0" + struct.pack("!HI", 0, 7) if header == 44 else b"\0\1\4\0\0\0\0"
        protocol, data = header, bytes([protocol]) + body + data
    return src, dst, protocol, data


def ip(packet, nth):
    """On the wire; its number is where routers leave it alone."""
    src, dst, protocol, data = packet
    if ":" in src:
        return struct.pack("!IHBB", 0x60000000 | nth, len(data), protocol, 64) + packed(src) + packed(dst) + data
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(data), nth, 0, 64, protocol, 0) + packed(src) + packed(dst)
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + data


def number(frame):
    """That of a frame which came out; None if it is none of ours."""
    kind, packet = frame[12:14], frame[14:]
    if kind == b"\x08\x00":
        return struct.unpack("!H", packet[4:6])[0]
    return struct.unpack("!I", packet[:4])[0] & 0xFFFFF if kind == b"\x86\xdd" else None


# ---- scenes ----

NEW_OUT = [
    "ct state invalid drop",
    "ct state established,related accept",
    "ct state new ip saddr 10.0.0.0/8 accept",
    "ct state new ip6 saddr 2001:db8::/32 accept",
]
# The same as nft prints it where the states are looked up.
NEW_OUT_BY_MAP = ["ct state vmap { invalid : drop, established : accept, related : accept }", *NEW_OUT[2:]]
HANDSHAKE = [
    tcp(A, B, 1000, 80, "S", 100),
    tcp(B, A, 80, 1000, "SA", 500, 101),
    tcp(A, B, 1000, 80, "A", 101, 501),
]
DATAGRAM, DATAGRAM6 = udp(A, B, 9, 53), udp(A6, B6, 9, 53)


def begun_by(*flags):
    return [tcp(A, B, 2000 + at, 80, some) for at, some in enumerate(flags)]


SCENES = {
    "an echo, and what else comes back": [
        icmp(A, B, 8), icmp(B, A, 0), icmp(B, A, 0, ident=9), icmp(B, A, 8, ident=7),
        icmp(B, A, 13, data=bytes(12)), icmp(B, A, 9, data=bytes(8)), icmp(B, A, 10, data=b""),
    ],
    "the same of IPv6": [
        icmp(A6, B6, 128), icmp(B6, A6, 129), icmp(B6, A6, 128, ident=7), icmp(B6, A6, 134, data=bytes(8)),
    ],
    "an error for who sent, and for others": [
        DATAGRAM, udp(B, A, 53, 9), error(X, A, DATAGRAM), error(X, OTHER, DATAGRAM),
        error(B, "10.7.7.7", DATAGRAM, 11, 0), error(X, A, DATAGRAM, cut=20), error(X, A, udp(A, B, 9, 54)),
    ],
    "an error about an answer": [
        DATAGRAM, udp(B, A, 53, 9), error(A, B, udp(B, A, 53, 9)), error(X, A, udp(B, A, 53, 9)),
    ],
    "an error about an echo, and about another's": [
        icmp(A, B, 8), error(X, A, icmp(A, B, 8)), error(X, A, icmp(A, B, 8, ident=9)),
    ],
    "an answer on the way of its question": [icmp(A, B, 8), icmp(A, B, 0), icmp(B, A, 0), icmp(A, B, 0)],
    "answers of another kind": [
        icmp(A, B, 13, ident=11, data=bytes(12)), icmp(B, A, 0, ident=11), icmp(B, A, 14, ident=11, data=bytes(12)),
        icmp(A, B, 8, ident=8), icmp(B, A, 14, ident=8, data=bytes(12)), icmp(B, A, 0, ident=8),
    ],
    "an error about an echo's answer": [
        icmp(A, B, 8, ident=7), icmp(B, A, 0, ident=7), error(X, A, icmp(A, B, 0, ident=7), 11, 0),
        error(X, A, icmp(A, B, 8, ident=7), 11, 0), error(A, B, icmp(B, A, 0, ident=7), 3, 3),
    ],
    "the same of IPv6, of echoes": [
        icmp(A6, B6, 128, ident=7), icmp(A6, B6, 129, ident=7), icmp(B6, A6, 129, ident=7),
        error(X6, A6, icmp(A6, B6, 129, ident=7)), error(X6, A6, icmp(A6, B6, 128, ident=7)),
    ],
    "errors of IPv6, behind extension headers as well": [
        DATAGRAM6, error(X6, A6, DATAGRAM6), error(X6, A6, behind(DATAGRAM6, 44), 2, 0),
        error(X6, A6, behind(DATAGRAM6, 60), 2, 0), error(X6, OTHER6, DATAGRAM6),
    ],
    "flags that begin a connection, and others": begun_by("S", "A", "SA", "R", "FA", "", "FPU", "SF", "SR"),
    "answers to nothing": [icmp(A, B, 0), error(A, B, udp(B, A, 53, 9))],
    "a connection and its end": [
        *HANDSHAKE, tcp(B, A, 80, 1000, "PA", 501, 101, b"hi"), tcp(A, B, 1000, 80, "FA", 101, 503),
        tcp(B, A, 80, 1000, "FA", 503, 102), tcp(A, B, 1000, 80, "A", 102, 504),
    ],
    "a reset, and a SYN of the other side": [
        *HANDSHAKE, tcp(A, B, 1000, 80, "R", 101), tcp(B, A, 80, 1000, "PA", 501, 101, b"hi"),
        tcp(B, A, 80, 1000, "S", 77),
    ],
    "a reset of the other side, and what it sends": [
        *HANDSHAKE, tcp(B, A, 80, 1000, "R", 501), tcp(B, A, 80, 1000, "PA", 501, 101, b"hi"),
        tcp(A, B, 1000, 80, "S", 7000),
    ],
    "both begin at once": [
        tcp(A, B, 5, 6, "S", 100), tcp(B, A, 6, 5, "S", 200), tcp(A, B, 5, 6, "SA", 100, 201),
        tcp(B, A, 6, 5, "SA", 200, 101), tcp(A, B, 5, 6, "A", 101, 201),
    ],
    "SCTP, its ports and an error": [
        sctp(A, B, 5, 6), sctp(B, A, 6, 5, 2, 0x1234), sctp(B, A, 7, 5), sctp(B, A, 6, 8),
        error(X, A, sctp(A, B, 5, 6), 3, 4),
    ],
    "protocols without ports": [gre(A, B), gre(B, A), gre(X, A)],
    "numbers of sequence that are far off": [
        *HANDSHAKE, tcp(B, A, 80, 1000, "PA", 900000000, 101, b"no"), tcp(B, A, 80, 1000, "R", 900000000),
        tcp(B, A, 80, 1000, "PA", 501, 101, b"hi"),
    ],
}
# Where Weft is known to let more pass, and why.
KNOWN = {"numbers of sequence that are far off": "numbers of sequence are not followed"}


# ---- lists ----

NETS = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "192.168.1.0/24", "203.0.113.0/25", "198.51.100.7", "172.16.0.0/12"]
NETS6 = ["2001:db8::/32", "2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8::53", "2600::/16"]
HOSTS = [
    "10.0.0.1", "10.1.0.1", "10.1.2.255", "10.1.3.0", "192.168.1.7", "192.168.2.0", "203.0.113.127",
    "203.0.113.128", "198.51.100.7", "198.51.100.8", "172.31.255.255", "172.32.0.0",
]
HOSTS6 = ["2001:db8::53", "2001:db8::54", "2001:db8:1:2::9", "2001:db8:1:3::", "2001:db9::1", "2600::1", "2601::1"]
PORTS = [1, 21, 22, 23, 53, 80, 81, 443, 1023, 1024, 8000, 8080, 8100, 65535]


# Networks that are behind the second way out.
SECOND_WAY = ["192.168.0.0/16", "198.51.100.0/24", "2600::/16", "2001:db8:1::/48"]
WAYS = ["m1", "m2"]
ANSWERS = [
    "reject", "reject", "reject with icmpx admin-prohibited", "reject with icmpx no-route", "reject with icmpx host-unreachable",
    "reject with icmp net-prohibited", "reject with icmp prot-unreachable", "reject with icmpv6 addr-unreachable",
    "reject with tcp reset", "reject with tcp reset",
]


def some_ports(dice):
    several = ", ".join(map(str, sorted(dice.sample(PORTS, 3))))
    low, high = sorted(dice.sample(PORTS, 2))
    return dice.choice([
        f"{low}", f"{low}-{high}", f"{{ {several} }}", f"!= {high}", f"!= {low}-{high}", f"!= {{ {several} }}",
        f">= {low}", f"< {high}", f"> {low}",
    ])


def way_out(dice):
    return dice.choice(['oifname "m1"', 'oifname "m2"', 'oifname != "m1"', 'oifname { "m1", "m2" }', 'oif "m2"'])


def rule(dice, ends, has_states=False):
    """A rule that ends in one of these verdicts, or in a map of them."""
    parts, is_6 = [], dice.random() < 0.4
    if dice.random() < 0.2:
        parts.append(way_out(dice))
    if has_states and dice.random() < 0.4:
        several = ",".join(dice.sample(["new", "established", "related", "invalid", "untracked"], dice.randint(1, 2)))
        parts.append(f"ct state {several}")
    for side in ("saddr", "daddr"):
        if dice.random() < 0.4:
            net = dice.choice(NETS6 if is_6 else NETS)
            parts.append(f"{'ip6' if is_6 else 'ip'} {side} {dice.choice(['', '', '!= '])}{net}")
    kind = dice.choice(["", "", "tcp", "udp", "sctp", "icmp", "code", "flags", "protocol", "nexthdr"])
    if kind in ("tcp", "udp", "sctp"):
        parts.append(f"{kind} {dice.choice(['sport', 'dport', 'dport'])} {some_ports(dice)}")
    elif kind == "icmp":
        differs = dice.choice(["", "!= "])
        parts.append(f"icmpv6 type {differs}{{ echo-request, 2 }}" if is_6 else f"icmp type {differs}{{ echo-request, 3 }}")
    elif kind == "code":
        codes = "{ packet-too-big . no-route, parameter-problem . admin-prohibited, 1 . 4 }"
        parts.append(f"icmpv6 type . icmpv6 code {codes}" if is_6 else "icmp type 3 icmp code { 3, 4 }")
    elif kind == "nexthdr" and (is_6 or not any("ip " in part for part in parts)):
        parts.append(f"ip6 nexthdr {dice.choice(['tcp', 'udp', '!= tcp', '{ udp, ipv6-icmp }', '60', '0'])}")
    elif kind == "flags":
        parts.append(dice.choice([
            "tcp flags & (syn | ack) == syn", "tcp flags & (fin | rst) != 0x0", "tcp flags syn / syn,rst",
            "tcp flags { syn, syn | ack }", "tcp flags != { ack, psh | ack }",
        ]))
    elif kind == "protocol":
        parts.append(f"meta l4proto {dice.choice(['tcp', 'udp', '{ tcp, udp }', '!= tcp', '47'])}")
    if dice.random() < 0.1:
        parts.append("meta nfproto ipv6" if is_6 or kind == "nexthdr" else "meta nfproto ipv4")
    verdicts = [end for end in ends if not end.startswith("reject")]
    # nft takes a rule for one protocol alone.
    with_ports = kind if kind in ("tcp", "udp", "sctp") else dice.choice(["tcp", "udp"]) if not kind else None
    is_6 |= kind == "nexthdr"
    if with_ports and dice.random() < 0.25:
        ports = ", ".join(f"{port} : {dice.choice([*verdicts, 'continue'])}" for port in dice.sample(PORTS, 4))
        return " ".join([*parts, f"{with_ports} dport vmap {{ {ports} }}"])
    if with_ports and dice.random() < 0.25:
        hosts = HOSTS6 if is_6 else HOSTS
        pairs = ", ".join(f"{host} . {dice.choice(PORTS)}" for host in dice.sample(hosts, 4))
        parts.append(f"{'ip6' if is_6 else 'ip'} {dice.choice(['saddr', 'daddr'])} . {with_ports} sport {{ {pairs} }}")
    end = dice.choice(ends)
    if end == "reject":
        text = " ".join(parts)
        fits = lambda answer: not (
            ("tcp" in answer and any(other in text for other in ("udp", "sctp", "icmp", "l4proto", "nexthdr")))
            or ("icmp " in answer and ("ip6" in text or "ipv6" in text or "icmpv6" in text))
            or ("icmpv6" in answer and ("ip " in text or "ipv4" in text or "icmp type" in text))
        )
        end = dice.choice([answer for answer in ANSWERS if fits(answer)])
    return " ".join([*parts, dice.choice(["counter ", ""]) + end])


def packet_of_flow(dice, known):
    """One of those whose states rows tell as Linux does: an answer to one of these, an error about it, or another."""
    if known and dice.random() < 0.5:
        src, dst, protocol, data = about = dice.choice(known)
        if dice.random() < 0.3:
            return error(dst, src, about) if dice.random() < 0.7 else error(dice.choice(HOSTS6 if ":" in src else HOSTS), src, about)
        if protocol in (UDP,):
            ends = struct.unpack("!HH", data[:4])
            return udp(dst, src, ends[1], ends[0])
        if protocol in (ICMP, ICMP6):
            kind, code, _, ident = struct.unpack("!BBHH", data[:6])
            answers = {8: 0, 13: 14, 15: 16, 17: 18, 128: 129, 139: 140}
            # Shorter ones are malformed for Weft: a neighbour has an address.
            return icmp(dst, src, answers.get(kind, kind), dice.choice([code, code, 0]), ident, bytes(32))
        return dst, src, protocol, data
    hosts = HOSTS6 if dice.random() < 0.5 else HOSTS
    src, dst = dice.sample(hosts, 2)
    ends = dice.choice(PORTS), dice.choice(PORTS)
    kinds = [*range(128, 154), 1, 2, 3, 4] if hosts is HOSTS6 else [*range(0, 19), 30, 40]
    return dice.choice([
        lambda: udp(src, dst, *ends),
        lambda: icmp(src, dst, dice.choice(kinds), dice.choice([0, 0, 1]), dice.choice([1, 2]), bytes(32)),
        lambda: icmp(src, dst, dice.choice([8, 13, 15, 17] if hosts is HOSTS else [128, 139]), 0, dice.choice([1, 2])),
        lambda: gre(src, dst),
    ])()


def packets_of(dice, has_states):
    if not has_states:
        return [packet(dice) for _ in range(PACKETS_OF_LIST)]
    all_of = []
    for _ in range(PACKETS_OF_LIST):
        all_of.append(packet_of_flow(dice, all_of))
    return all_of


def packet(dice):
    hosts = HOSTS6 if dice.random() < 0.4 else HOSTS
    src, dst = dice.sample(hosts, 2)
    ends = dice.choice(PORTS), dice.choice(PORTS)
    made = dice.choice([
        lambda: tcp(src, dst, *ends, dice.choice(["S", "A", "SA", "FA", "R", "PA"])),
        lambda: udp(src, dst, *ends),
        lambda: sctp(src, dst, *ends),
        lambda: icmp(src, dst, dice.choice([8, 128, 3, 2])),
        lambda: error(src, dst, udp(dst, src, *ends)),
        lambda: gre(src, dst),
    ])()
    return behind(made, *dice.choice([(60,), (0, 60), (44,)])) if hosts is HOSTS6 and dice.random() < 0.3 else made


def table(rules, policy, chains=(), name="f", priority="filter"):
    """Rules of the base chain, and those of others that it may jump to."""
    lines = ["".join(f"    {rule}\n" for rule in rules) for rules in (*chains, rules)]
    others = "".join(f"  chain c{nth} {{\n{of_chain}  }}\n" for nth, of_chain in enumerate(lines[:-1]))
    hook = f"    type filter hook forward priority {priority}; policy {policy};\n"
    return f"table inet {name} {{\n{others}  chain c {{\n{hook}{lines[-1]}  }}\n}}\n"


def random_list(dice, has_states):
    """One table, or two whose base chains packets come through one behind the other."""
    text = random_table(dice, has_states)
    if dice.random() < 0.4:
        text += random_table(dice, has_states, "g", dice.choice(["mangle", "filter + 10", "-5"]), 4)
    return text


def random_table(dice, has_states=False, name="f", priority="filter", rules_max=12):
    """A base chain, and others that call those before them."""
    verdicts, chains = ["accept", "drop", "reject"], []
    for nth in range(dice.choice([0, 0, 1, 2, 3])):
        calls = [f"{how} c{other}" for other in range(nth) for how in ("jump", "goto")]
        chains.append([rule(dice, [*verdicts, "return", *calls], has_states) for _ in range(dice.randint(1, 5))])
    calls = [f"{how} c{other}" for other in range(len(chains)) for how in ("jump", "jump", "goto")]
    rules = [rule(dice, [*verdicts, *calls], has_states) for _ in range(dice.randint(1, rules_max))]
    return table(rules, dice.choice(["accept", "drop"]), chains, name, priority)


# ---- both ----


class Refused(Exception):
    """Weft does not read the list, and says why: it would be too many rows."""


class Kernel(between.World):
    """Routes all that comes by the one side to the other, through a list."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def __enter__(self):
        super().__enter__()
        try:
            self.set_up()
        except BaseException:
            self.close()
            raise
        return self

    def set_up(self):
        middle, b = self.names[2], self.names[1]
        for key, value in (
            ("net.ipv4.ip_forward", 1), ("net.ipv6.conf.all.forwarding", 1), ("net.ipv4.icmp_ratelimit", 0),
            ("net.ipv6.icmp.ratelimit", 0), ("net.ipv4.icmp_msgs_per_sec", 1000000), ("net.ipv4.icmp_msgs_burst", 1000000),
        ):
            self.set(middle, key, value)
        run = between.run
        run("ip", "-n", middle, "link", "add", "m2", "type", "veth", "peer", "name", "c0", "netns", b)
        run("ip", "-n", middle, "link", "set", "m2", "up")
        run("ip", "-n", b, "link", "set", "c0", "up")
        for device in ("all", "m0", "m1", "m2"):
            self.set(middle, f"net.ipv4.conf.{device}.rp_filter", 0)
            self.set(middle, f"net.ipv6.conf.{device}.disable_ipv6", 0)
        # Who is told has a way back, from an address of ours.
        for nth, mac in enumerate(("02:00:00:00:00:77", between.NEXT_MAC, between.NEXT_MAC)):
            self.middle("ip", "addr", "add", f"198.18.{nth}.1/24", "dev", f"m{nth}")
            self.middle("ip", "-6", "addr", "add", f"fd00:{nth}::1/64", "dev", f"m{nth}", "nodad")
            for family, gateway in (("-4", f"198.18.{nth}.2"), ("-6", "fe80::99")):
                self.middle("ip", "neigh", "add", gateway, "lladdr", mac, "dev", f"m{nth}", "nud", "permanent")
                where = ["table", "10"] if nth else []
                nets = SECOND_WAY if nth == 2 else ["default"]
                for net in nets:
                    if net == "default" or (":" in net) == (family == "-6"):
                        self.middle("ip", family, "route", "add", net, "via", gateway, "dev", f"m{nth}", "onlink", *where)
        for family in ("-4", "-6"):
            self.middle("ip", family, "rule", "add", "iif", "m0", "table", "10")
        self.middle("nft", "-f", "-", text=self.text)
        self.listed = self.middle("nft", "list", "ruleset")

    def passed(self, packets):
        """The numbers of packets that passed, with the way that each took, and what senders were told."""
        to = bytes.fromhex(self.mac("m0").replace(":", ""))
        came, told = set(), set()
        with self.socket(0, "a0") as sender, self.socket(1, "b0") as first, self.socket(1, "c0") as second:

            def take():
                for way, end in (("m1", first), ("m2", second)):
                    came.update((n, way) for n in map(number, arrived(end)) if n in range(1, len(packets) + 1))
                told.update(filter(None, map(answer, arrived(sender))))

            for nth, frame in enumerate(frames(packets, to)):
                sender.send(frame)
                if nth % BURST == BURST - 1:
                    time.sleep(REST_S)
                    take()
            time.sleep(SETTLE_S)
            take()
        return came, told

    def socket(self, nth, device):
        end = between.packet_socket(self.names[nth], device, socket.htons(ETH_P_ALL))
        end.setblocking(False)
        return end


def frames(packets, to):
    for nth, made in enumerate(packets, 1):
        kind = b"\x86\xdd" if ":" in made[0] else b"\x08\x00"
        yield to + between.NOBODY + kind + ip(made, nth)


def arrived(receiver):
    came = []
    while True:
        try:
            came.append(receiver.recv(1 << 16))
        except BlockingIOError:
            return came


def answer(frame):
    """What a sender is told: an error and the number of the packet that it is about, or a reset; None if it is neither."""
    if frame[:6] != between.NOBODY:
        return None
    is_6, packet = frame[12:14] == b"\x86\xdd", frame[14:]
    protocol, data = (packet[6], packet[40:]) if is_6 else (packet[9], packet[4 * (packet[0] & 15) :])
    if protocol == TCP:
        ends = packet[8:40] if is_6 else packet[12:20]
        seq, ack, bits = struct.unpack("!IIxB", data[4:14])
        return ("reset", ends.hex(), data[:4].hex(), seq, ack, bits)
    if protocol not in (ICMP, ICMP6):
        return None
    return ("error", number(bytes(12) + frame[12:14] + data[8:]), data[0], data[1])


def weft_passed(listed, packets, folder):
    """Those that pass what is made of the kernel's own print."""
    path = lambda name: os.path.join(folder, name)
    with open(path("list"), "w") as file:
        file.write(listed)
    try:
        rules = between.run(
            peers.WEFT, "import", path("list"), "--table", "core.ruleset.rules", "--out-port", "m1,m2", "--in-port", "m0"
        )
    except RuntimeError as why:
        if not any(much in str(why) for much in ("rows, and may be", "IMPORT and `weft query --file` read", "too often")):
            raise
        raise Refused(str(why)) from why
    with open(path("rules.weft"), "w") as file:
        file.write(rules)
    macs = f"'{between.NEXT_MAC}', '02:00:00:00:00:01'"
    routes = [("0.0.0.0/0", "m1"), ("::/0", "m1"), *((net, "m2") for net in SECOND_WAY)]
    rows = ", ".join(
        f"({at}, '{net}', {net.split('/')[1]}, '{way}', {macs})" for at, (net, way) in enumerate(routes, 1)
    )
    with open(path("net.weft"), "w") as file:
        file.write(
            "IMPORT 'library/elements/departure.weft';\nIMPORT 'library/elements/router.weft';\n"
            "IMPORT 'library/elements/ruleset.weft';\nIMPORT 'rules.weft';\n"
            + "".join(f"CREATE PORT {port} ON memory;\n" for port in ("m0", *WAYS))
            + "CREATE CHAIN core ON PORT m0 WHEN present(ip) AS\n"
            "  departure -> ruleset (errors_per_s = 1000000) -> router;\nEND;\n"
            f"INSERT INTO core.router.routes (id, net, bits, via_port, next_mac, own_mac) VALUES {rows};\n"
        )
    with open(path("in.pcap"), "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for nth, frame in enumerate(frames(packets, bytes.fromhex("020000000001"))):
            file.write(struct.pack("<IIII", 1_700_000_000, nth * 1000, len(frame), len(frame)) + frame)
    between.run(
        peers.WEFT, "replay", path("net.weft"), "--in", f"m0={path('in.pcap')}", "--out-dir", path("out"), "-o", "json"
    )
    came = {(number(frame), way) for way in WAYS for frame in captured(path(f"out/{way}.pcapng"))}
    return came, set(filter(None, map(answer, captured(path("out/m0.pcapng")))))


def captured(path):
    """The frames of a capture."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        kind, length = struct.unpack("<II", data[at : at + 8])
        if kind == 6:
            size = struct.unpack("<I", data[at + 20 : at + 24])[0]
            yield data[at + 28 : at + 28 + size]
        at += length


def compare(name, text, packets, args):
    """How many packets had the same end, and whether that is as it should be."""
    with Kernel(text) as kernel, tempfile.TemporaryDirectory() as folder:
        theirs, ours = kernel.passed(packets), weft_passed(kernel.listed, packets, folder)
    known, differ = KNOWN.get(name), (theirs[0] ^ ours[0]) | (theirs[1] ^ ours[1])
    if not differ and args.verbose:
        print(f"{name}: {len(packets)} packets, {len(theirs[0])} pass, {len(theirs[1])} are answered")
    if differ:
        for what, theirs, ours in zip(("lets pass", "answers"), theirs, ours):
            print(f"{name}: the kernel alone {what} {sorted(theirs - ours)}, Weft alone {sorted(ours - theirs)}")
        print(f"  known: {known}" if known else text)
    return len(packets) - len(differ), bool(known) or not differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=100, help="how many random lists")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell of those that are equal, too")
    args = parser.parse_args()
    dice, equal, is_right = random.Random(args.seed), 0, True
    lists = [table(rules, "drop") for rules in (NEW_OUT, NEW_OUT_BY_MAP)]
    cases = [(name, text, packets) for text in lists for name, packets in SCENES.items()]
    for nth in range(args.lists):
        has_states = nth % 2 == 1
        text = random_list(dice, has_states)
        cases.append((f"list {nth} of seed {args.seed}", text, packets_of(dice, has_states)))
    # Each type of ICMP, and whether it is in a state.
    for state in ("untracked", "new", "invalid"):
        text = table([f"ct state {state} accept"], "drop")
        all_types = [icmp(*ends, kind, data=bytes(64)) for ends in ((A, B), (A6, B6)) for kind in range(256)]
        cases.append((f"types of ICMP that are {state}", text, all_types))
    # Lists as routers have them, with the interfaces that there are here, and packets for what they say.
    for name, interfaces in (("openwrt", ("br-lan", "wan", "br-guest")), ("firewalld", ("eth1", "eth0", "none"))):
        with open(os.path.join(os.path.dirname(__file__), f"../../crates/weft-import/tests/lists/{name}.nft")) as file:
            text = file.read()
        for interface, device in zip(interfaces, ("m0", *WAYS)):
            text = text.replace(f'"{interface}"', f'"{device}"')
        # Weft leaves out what makes other addresses, and says so.
        text = re.sub(r"masquerade|dnat ip to \S+", "counter", text)
        cases.append((name, text, [packet(dice) for _ in range(4 * PACKETS_OF_LIST)]))
        cases.append((f"{name}, by states", text, packets_of(dice, True)))
    refused = 0
    # However it is ended, its namespaces go with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("firewall.py: ended"))
    for nth, case in enumerate(cases):
        if sys.stderr.isatty():
            print(f"\r{nth} of {len(cases)}", end="\r", file=sys.stderr)
        try:
            n, is_fine = compare(*case, args)
            equal, is_right = equal + n, is_right and is_fine
        except Refused as why:
            refused += 1
            if args.verbose:
                print(f"{case[0]}: {why}")
    print(f"{len(SCENES)} scenes and {args.lists} lists: {equal} packets had the same end; {refused} lists were refused")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
