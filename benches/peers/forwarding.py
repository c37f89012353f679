#!/usr/bin/env python3
"""The kernel's router and bridge beside the library's: the same frames, and what leaves by which port.

usage: forwarding.py [--packets 20000] [--seed 1] [-v] [SCENE...]

Two networks of two namespaces each, with four veth pairs between a middle and an outside. In the middle of one the kernel
routes, or is a bridge, or Open vSwitch is one with virtual LANs; in that of the other `weft run` has a program with `router`
and the same routes and neighbours, or with `l2_switch` and the same virtual LANs. A frame comes in by a port of both, and
behind it others that leave by all ports, so that whatever the first led to has left before. Compared are ports and bytes,
and of errors all but their numbers. Exits with 1 if something differs for which no reason stands beside the scene. Needs
root, ip and Open vSwitch, which `setup-packets.sh` installs; `WEFT` names another binary than target/release/weft.
"""

import argparse
import collections
import ipaddress
import itertools
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import between
import peers
from between import run
from firewall import checksum, packed, summed

PORTS = range(4)
SHORT_MTU = 1300
MTUS = [1500, 1500, 1500, SHORT_MTU]
OWN_MAC = "02:00:00:00:00:01"
OWN, OWN6 = "198.18.0.1", "2001:db8:ffff::1"
ETH_P_ALL, ETH_P_IP, ETH_P_IP6, ETH_P_VLAN, ETH_P_QINQ = 3, 0x0800, 0x86DD, 0x8100, 0x88A8
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
VLAN_VALID = 0x10
# How long the frames that come behind may take.
ARRIVES_S_MAX = 5
# Neither network may take long to come up.
UP_S_MAX = 10
# Of each kind of difference.
SHOWN_MAX = 3
SENDERS = itertools.count(1)
PROBE = b"forwarding probe"
Route = collections.namedtuple("Route", "net hops")
# `choice` says why both may be right, if there is a reason.
Case = collections.namedtuple("Case", "scene port frame choice", defaults=(None,))


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def neighbour(port, nth=1):
    """Those beyond a port; the first is the sender of what comes in there."""
    return f"02:00:00:00:{nth:02x}:{0x10 + port:02x}"


# ---- frames ----


def ethernet(packet, kind=None, to=OWN_MAC, port=0, tags=(), source=None):
    kind = kind or (ETH_P_IP6 if packet[:1] and packet[0] >> 4 == 6 else ETH_P_IP)
    inside = b"".join(struct.pack("!HH", tpid, tci) for tpid, tci in tags)
    return mac(to) + mac(source or neighbour(port)) + inside + struct.pack("!H", kind) + packet


def sender(port, is_6=False):
    """Another one each time: the kernel tells each sender of IPv4 but of a few packets a second that have no route."""
    nth = next(SENDERS) % 8000
    return f"2001:db8:{port + 1}::{nth:x}" if is_6 else f"10.{64 + port * 16}.{nth >> 8}.{nth & 255}"


def ipv4(src, dst, data, protocol=UDP, ttl=64, options=b"", tos=0, ident=7, fragment=0, **wrong):
    words = 5 + len(options) // 4
    total = wrong.get("total", 4 * words + len(data))
    first = wrong.get("version", 4) << 4 | wrong.get("words", words)
    header = struct.pack("!BBHHHBBH", first, tos, total, ident, fragment, ttl, protocol, 0) + packed(src) + packed(dst) + options
    return header[:10] + struct.pack("!H", checksum(header) ^ wrong.get("sum", 0)) + header[12:] + data


def ipv6(src, dst, data, protocol=UDP, ttl=64, tclass=0, flow=0, **wrong):
    first = wrong.get("version", 6) << 28 | tclass << 20 | flow
    header = struct.pack("!IHBB", first, wrong.get("total", len(data)), protocol, ttl)
    return header + packed(src) + packed(dst) + data


def ip(src, dst, data, **fields):
    return (ipv6 if ":" in src else ipv4)(src, dst, data, **fields)


def udp(src, dst, data=b"data", from_port=5000, to_port=9999):
    header = struct.pack("!HHHH", from_port, to_port, 8 + len(data), 0)
    return summed(src, dst, UDP, header + data, 6)


def icmp(src, dst, kind, code=0, rest=bytes(4), data=b"abcdefgh"):
    body = struct.pack("!BBH", kind, code, 0) + rest + data
    if ":" in src:
        return summed(src, dst, ICMP6, body, 2)
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def datagram(src, dst, data=b"data", **fields):
    return ip(src, dst, udp(src, dst, data), **fields)


# ---- what came out ----


def reading(frame):
    """What has to be equal of a frame: all of it, but padding, and of an error what the sender may choose."""
    at, tags = 12, frame[12:14]
    while tags in (b"\x81\x00", b"\x88\xa8"):
        at += 4
        tags = frame[at : at + 2]
    link, packet = frame[: at + 2], frame[at + 2 :]
    if tags == b"\x08\x00" and len(packet) >= 20:
        head, total = 4 * (packet[0] & 15), struct.unpack("!H", packet[2:4])[0]
        packet, sound = packet[:total], checksum(packet[:head]) == 0
        if packet[12:16] == packed(OWN) and packet[9] == ICMP:
            # Numbers are any, and the checksum is right or not.
            packet = packet[:4] + b"id" + packet[6:10] + b"ok" + packet[12:] if sound else packet
            sound = sound and checksum(packet[head:]) == 0
        return link, packet, sound
    if tags == b"\x86\xdd" and len(packet) >= 40:
        packet = packet[: 40 + struct.unpack("!H", packet[4:6])[0]]
        sound = True
        if packet[8:24] == packed(OWN6) and packet[6] == ICMP6:
            pseudo = packet[8:40] + struct.pack("!II", len(packet) - 40, ICMP6)
            sound = checksum(pseudo + packet[40:]) == 0
        return link, packet, sound
    return link, packet, True


def told(came):
    """For people."""
    lines = []
    for port, (link, packet, sound) in came:
        lines.append(f"    port {port}: {link.hex()} {packet.hex()}{'' if sound else ' with a wrong checksum'}")
    return "\n".join(lines) or "    nothing"


# ---- networks ----


class Network(between.World):
    """A middle with four ports, and what is beyond them; `set_up` says who forwards."""

    def __init__(self, set_up, nth):
        super().__init__()
        self.names = [f"weft{os.getpid()}{end}{nth}" for end in ("o", "m")]
        self.set_up, self.sockets, self.n_probes = set_up, [], 0
        self.children, self.folder = [], None

    def __enter__(self):
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
                self.set(name, "net.ipv6.conf.default.disable_ipv6", 1)
            for port in PORTS:
                self.join(port)
            self.set_up(self)
            self.sockets = [self.socket(port) for port in PORTS]
            self.wait_until_up()
        except BaseException:
            self.close()
            raise
        return self

    def join(self, port):
        outside, middle = self.names
        device = f"m{port}"
        run("ip", "-n", middle, "link", "add", device, "type", "veth", "peer", "name", f"o{port}", "netns", outside)
        run("ip", "-n", middle, "link", "set", device, "address", OWN_MAC)
        for name, end in ((middle, device), (outside, f"o{port}")):
            # Packets that come in are finished and cut: none is what a device would make of it.
            for way in ("tx", "tso", "gso", "gro"):
                subprocess.run(["ip", "netns", "exec", name, "ethtool", "-K", end, way, "off"], capture_output=True)
            run("ip", "-n", name, "link", "set", end, "mtu", str(MTUS[port] if name == middle else 9000), "up")

    def middle(self, *argv, **kind):
        return run("ip", "netns", "exec", self.names[1], *argv, **kind)

    def close(self):
        for end in self.sockets:
            end.close()
        for child in reversed(self.children):
            child.terminate()
            child.wait(10)
        super().close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def socket(self, port):
        end = between.packet_socket(self.names[0], f"o{port}", socket.htons(ETH_P_ALL))
        end.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        end.setblocking(False)
        return end

    def wait_until_up(self):
        end = time.monotonic() + UP_S_MAX
        while True:
            try:
                for port in PORTS:
                    self.through(port, None, 0.2)
                return
            except TimeoutError:
                if time.monotonic() > end or self.node and self.node.poll() is not None:
                    told = self.node and self.node.poll() is not None and self.node.stdout.read().decode(errors="replace")
                    raise RuntimeError(f"nothing passes: {told or ''}")

    def through(self, port, frame, wait_s=ARRIVES_S_MAX):
        """All that leaves because of a frame, as (port, reading)."""
        self.n_probes += 1
        token = PROBE + struct.pack("!I", self.n_probes)
        if frame is not None:
            self.sockets[port].send(frame)
        for probe in self.probes(port, token):
            self.sockets[port].send(probe)
        awaited, came, end = set(self.probed(port)), [], time.monotonic() + wait_s
        while awaited:
            ready = select.select(self.sockets, [], [], max(end - time.monotonic(), 0))[0]
            if not ready:
                raise TimeoutError(f"ports {sorted(awaited)} of {self.names[1]} are silent")
            for at, receiver in enumerate(self.sockets):
                for frame in received(receiver) if receiver in ready else ():
                    if token in frame:
                        awaited.discard(at)
                    elif PROBE not in frame and not is_noise(frame):
                        came.append((at, reading(frame)))
        return sorted(came)


class Routed(Network):
    def probes(self, port, token):
        for to in PORTS:
            yield ethernet(datagram("198.51.100.1", f"203.0.113.{to + 1}", token), port=port)

    def probed(self, _):
        return PORTS


def received(receiver):
    """Whole frames: the tag that the kernel took off is put on again."""
    while True:
        try:
            frame, told, _, _ = receiver.recvmsg(1 << 16, 64)
        except BlockingIOError:
            return
        for level, kind, data in told:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", data[:20])
                if status & VLAN_VALID:
                    frame = frame[:12] + struct.pack("!HH", tpid or ETH_P_VLAN, tci) + frame[12:]
        yield frame


def is_noise(frame):
    """Reports of groups: what a host says that listens."""
    return frame[12:14] == b"\x86\xdd" and frame[20:21] == b"\0" and frame[62:63] == b"\x8f"


# ---- routers ----


def router_of_kernel(routes):
    def set_up(network):
        middle = network.names[1]
        keys = {"net.ipv4.ip_forward": 1, "net.ipv4.icmp_ratelimit": 0, "net.ipv4.icmp_ratemask": 0}
        keys |= {"net.ipv4.icmp_msgs_per_sec": 1 << 30, "net.ipv4.icmp_msgs_burst": 1 << 30}
        keys |= {"net.ipv6.icmp.ratelimit": 0, "net.ipv6.auto_flowlabels": 0, "net.ipv6.conf.all.forwarding": 1}
        for device in ("all", "default", *(f"m{port}" for port in PORTS)):
            keys |= {f"net.ipv4.conf.{device}.{key}": 0 for key in ("rp_filter", "send_redirects", "log_martians")}
            keys |= {f"net.ipv6.conf.{device}.{key}": 0 for key in ("accept_dad", "accept_ra", "router_solicitations")}
            keys |= {f"net.ipv6.conf.{device}.addr_gen_mode": 1, f"net.ipv6.conf.{device}.forwarding": 1}
            # Last, so that what comes up has the rest.
            keys[f"net.ipv6.conf.{device}.disable_ipv6"] = 0
        network.set(middle, "net.ipv6.conf.lo.disable_ipv6", 0)
        for key, value in keys.items():
            network.set(middle, key, value)
        network.middle("ip", "link", "set", "lo", "up")
        network.middle("ip", "addr", "add", f"{OWN}/32", "dev", "lo")
        network.middle("ip", "-6", "addr", "add", f"{OWN6}/128", "dev", "lo")
        lines = []
        for port in PORTS:
            for nth in (1, 2):
                for gateway in (gateway_of(port, nth), gateway_of(port, nth, True)):
                    lines.append(f"neigh add {gateway} lladdr {neighbour(port, nth)} dev m{port} nud permanent")
        lines += [f"route append fe80::/64 dev m{port}" for port in PORTS]
        lines += [f"neigh add fe80::1 lladdr {neighbour(port)} dev m{port} nud permanent" for port in PORTS]
        lines += [route_of_kernel(route) for route in routes]
        network.middle("ip", "-batch", "-", text="\n".join(lines) + "\n")

    return set_up


def gateway_of(port, nth, is_6=False):
    return f"fe80::{port + 1}:{nth}" if is_6 else f"198.19.{port}.{nth}"


def route_of_kernel(route):
    is_6 = ":" in route.net
    ways = [f"via {gateway_of(port, nth, is_6)} dev m{port} onlink" for port, nth in route.hops]
    if len(ways) > 1:
        ways = [f"nexthop {way}" for way in ways]
    family, source = ("-6", OWN6) if is_6 else ("-4", OWN)
    return f"route add {route.net} src {source} {' '.join(ways)}"


def router_of_weft(routes):
    rows, hops = [], []
    for nth, route in enumerate(routes, 1):
        bits = route.net.split("/")[1]
        (port, way), paths = route.hops[0], len(route.hops)
        rows.append(f"({nth}, '{route.net}', {bits}, 'p{port}', '{neighbour(port, way)}', '{OWN_MAC}', {paths})")
        if paths > 1:
            hops += [f"({nth}, {at}, 'p{to}', '{neighbour(to, way)}', '{OWN_MAC}')" for at, (to, way) in enumerate(route.hops)]
    told = f"own_ip = '{OWN}', own_ip6 = '{OWN6}', own_mac = '{OWN_MAC}', errors_per_s = 1000000000"
    text = "IMPORT 'library/elements/router.weft';\n" + ports_of_weft()
    text += f"CREATE CHAIN core ON PORT p0, p1, p2, p3 AS router ({told}); END;\n"
    text += "INSERT INTO core.router.routes VALUES " + ",\n".join(rows) + ";\n"
    return text + "INSERT INTO core.router.hops VALUES " + ",\n".join(hops) + ";\n"


def ports_of_weft():
    return "".join(f"CREATE PORT p{port} ON packet 'm{port}';\n" for port in PORTS)


def weft(text):
    def set_up(network):
        network.middle("ip", "link", "set", "lo", "up")
        network.folder = tempfile.mkdtemp()
        path = os.path.join(network.folder, "network.weft")
        with open(path, "w") as file:
            file.write(text)
        argv = ["ip", "netns", "exec", network.names[1], peers.WEFT, "run", path, "--table", "never"]
        network.node = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    return set_up


def some_routes(dice, has_default):
    """Prefixes of all lengths within one another, those of several ways, and those by which answers and probes go."""
    hop = lambda: (dice.choice(PORTS), dice.choice((1, 2)))
    nets = {"0.0.0.0/0", "::/0"} if has_default else {"128.0.0.0/3", "2000::/4"}
    for _ in range(24):
        low, wide = dice.randrange(20 << 24, 120 << 24), 0x2600 << 112 | dice.getrandbits(112)
        for base, bits, least in ((low.to_bytes(4, "big"), 32, 4), (wide.to_bytes(16, "big"), 128, 8)):
            for length in [*dice.sample(range(least, bits), 8), bits]:
                nets.add(str(ipaddress.ip_network((base, length), strict=False)))
    routes = [Route(net, [hop()]) for net in sorted(nets)]
    routes += [Route(net, dice.sample([(0, 1), (1, 1), (2, 2), (3, 2)], 2 + nth % 3)) for nth, net in enumerate(MANY_WAYS)]
    routes += [Route(net, [(port, 1)]) for port in PORTS for net in (f"10.{64 + port * 16}.0.0/12", f"2001:db8:{port + 1}::/48")]
    return routes + [Route(f"203.0.113.{port + 1}/32", [(port, 2)]) for port in PORTS]


MANY_WAYS = ["121.1.0.0/16", "121.2.3.0/24", "121.3.3.128/25", "2001:db8:a::/48", "2001:db8:b:c::/64"]


def by_any_way(case, came, table):
    """Where the route has several hops, which it was is left out, if it is one of them."""
    kind, packet = case.frame[12:14], case.frame[14:]
    if kind == b"\x08\x00" and len(packet) >= 20 or kind == b"\x86\xdd" and len(packet) >= 40:
        to = ipaddress.ip_address(packet[16:20] if kind == b"\x08\x00" else packet[24:40])
        hops = table.hops(to)
        links = {(port, mac(neighbour(port, nth)) + mac(OWN_MAC) + kind) for port, nth in hops}
        return [(-1, ("one of them", *read[1:])) if (port, read[0]) in links else (port, read) for port, read in came]
    return came


class Table:
    """The hops of an address: those of the longest prefix."""

    def __init__(self, routes):
        self.nets = {}
        for route in routes:
            net = ipaddress.ip_network(route.net)
            self.nets[net.version, int(net.network_address), net.prefixlen] = route.hops
        self.lengths = sorted({(version, length) for version, _, length in self.nets}, reverse=True)

    def hops(self, to):
        for version, length in self.lengths:
            if version == to.version:
                shift = to.max_prefixlen - length
                found = self.nets.get((version, int(to) >> shift << shift, length))
                if found:
                    return found
        return []


# ---- what routers get ----


def within(dice, net):
    """An address in a network, or just beside it: the first and last are likely."""
    net = ipaddress.ip_network(net)
    first, last = int(net.network_address), int(net.broadcast_address)
    most = (1 << net.max_prefixlen) - 1
    value = dice.choice([first, last, first - 1, last + 1, dice.randint(first, last), dice.randint(first, last)])
    at = min(max(value, 0), most).to_bytes(net.max_prefixlen // 8, "big")
    return str(ipaddress.ip_address(at))


CLASS_E = "addresses of class E go nowhere (RFC 1812 section 5.3.7)"
NETWORK_0 = "addresses of network 0 go nowhere (RFC 1812 section 5.3.7)"
LINK_LOCAL = "addresses of one link go no further (RFC 3927 section 2.7)"
LINK_LOCAL6 = "addresses of one link go no further, nor back (RFC 4291 section 2.5.6)"
UNSPECIFIED = "nobody is told that the unspecified address is no destination (RFC 4291 section 2.5.2)"
NEVER_FORWARDED = "from the unspecified address nothing is forwarded (RFC 4291 section 2.5.2), not even back"
TAGS_STAY = "a packet leaves with the tags with which it came: the router has no interfaces of virtual LANs"
NO_STATION = "the router is no station: what is for itself is routed like all else, and others answer for its addresses"
OPTIONS_LEFT_OUT = "fragments behind the first have no room for options that are not theirs (RFC 791 section 3.1)"
IS_LATE = "a packet without hops that also has no route may be told of either (RFC 1812 section 5.2.1)"
MARTIANS = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8", "::ffff:0:0/96"]


def is_martian(address):
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(net) for net in MARTIANS)


def somewhere(dice, routes, is_6):
    """A destination by the routes that are there."""
    nets = [route.net for route in routes if (":" in route.net) == is_6]
    while is_martian(to := within(dice, dice.choice(nets))) or to.startswith("198.18."):
        pass
    return to


def destinations(dice, routes, n):
    table = Table(routes)
    for nth in range(n):
        port, is_6 = dice.choice(PORTS), nth % 2 == 1
        src, dst = sender(port, is_6), somewhere(dice, routes, is_6)
        from_port, size = dice.randrange(1024, 65536), dice.choice((0, 1, 4, 18, 100, 700, 1200))
        ttl = dice.choice((0, 1, 2, 3, 64, 64, 64, 255))
        made = dice.choice([
            lambda: (UDP, udp(src, dst, dice.randbytes(size), from_port)),
            lambda: (TCP, summed(src, dst, TCP, struct.pack("!HHIIBBHHH", from_port, 80, 1, 2, 0x50, 2, 9, 0, 0) + bytes(size), 16)),
            lambda: (ICMP6, icmp(src, dst, 128)) if is_6 else (ICMP, icmp(src, dst, 8)),
            lambda: (47, struct.pack("!HH", 0, 0x88B5) + bytes(size)),
            lambda: (dice.choice((50, 89, 103, 253)), dice.randbytes(size)),
        ])()
        packet = ip(src, dst, made[1], protocol=made[0], ttl=ttl)
        # A frame has 60 bytes at least, and may have more behind the packet.
        frame = ethernet(packet, port=port)
        choice = IS_LATE if ttl < 2 and not table.hops(ipaddress.ip_address(dst)) else None
        frame = frame.ljust(dice.choice((0, 60, 60, len(frame) + 7)), b"\0")
        yield Case(f"random destinations of IPv{6 if is_6 else 4}", port, frame, choice)


def hops_left(dice, routes):
    for is_6 in (False, True):
        for port in PORTS:
            good, lost = sender((port + 1) % 4, is_6), "3fff::1" if is_6 else "5.5.5.5"
            for ttl in (0, 1, 2, 64):
                for dst in (good, lost):
                    for size in (0, 8, 500, 520, 548, 1180, 1232, 1250):
                        src = sender(port, is_6)
                        choice = IS_LATE if ttl < 2 and dst == lost else None
                        frame = ethernet(datagram(src, dst, dice.randbytes(size), ttl=ttl), port=port)
                        yield Case("hops that are left, and what is quoted", port, frame.ljust(60, b"\0"), choice)
                for tos in range(0, 256, 5):
                    # Of an error, the kernel copies bits that were once the type of service.
                    choice = "errors are of class CS6, whatever their packets' class (RFC 2474)" if tos & 0x1E else None
                    src, made = sender(port, is_6), {"tclass" if is_6 else "tos": tos}
                    frame = ethernet(datagram(src, good, ttl=ttl, **made), port=port)
                    yield Case("classes of service", port, frame, None if is_6 else choice)


OPTIONS = {
    "nothing": b"\1\1\1\0",
    "router alert": b"\x94\4\0\0",
    "another": b"\x5e\4\0\0",
    "record route": b"\7\7\4\0\0\0\0\0",
    "record route, full": b"\7\7\x08\1\2\3\4\0",
    "time stamp": b"\x44\x08\5\0\0\0\0\0",
    "loose source route": b"\x83\7\4\x0a\x0a\2\7\0",
    "strict source route": b"\x89\7\4\x0a\x0a\2\7\0",
    "loose source route, used": b"\x83\7\x08\x0a\x0a\2\7\0",
    "a length of 0": b"\x07\0\4\0",
    "a length of 1": b"\x07\1\4\0",
    "too long": b"\x07\x0b\4\0",
    "too long, another": b"\x5e\x0b\4\0",
    "a wrong pointer": b"\7\7\3\0\0\0\0\0",
    "security": b"\x82\x04\0\0",
    "CIPSO": b"\x86\x06\0\0\0\1\0\0",
}
AS_THEY_ARE = {"nothing", "router alert", "another", "security", "record route, full"}
OPTIONS_PASS = "options are not looked at: what they ask for is not done, wrong ones are not told of, and errors have none"


def options(dice, routes):
    for name, text in OPTIONS.items():
        for ttl in (1, 9):
            for port in PORTS:
                src, dst = sender(port), sender((port + 1) % 4)
                frame = ethernet(ipv4(src, dst, udp(src, dst), options=text, ttl=ttl), port=port)
                is_equal = name in AS_THEY_ARE and (ttl > 1 or name != "record route, full")
                choice = None if is_equal else OPTIONS_PASS
                yield Case("options of IPv4", port, frame, choice)
    headers = {
        "hop by hop, padding": (0, b"\x11\0\1\4\0\0\0\0"), "router alert": (0, b"\x11\0\5\2\0\0\1\0"),
        "destination": (60, b"\x11\0\1\4\0\0\0\0"), "routing": (43, b"\x11\0\4\0\0\0\0\0"),
        "routing, 1 left": (43, b"\x11\2\4\1\0\0\0\0" + bytes(16)), "fragment": (44, b"\x11\0\0\0\0\0\0\7"),
        "mobility": (135, b"\x11\0\1\0\0\0\0\0"), "none": (59, b""),
        "hop by hop, unknown, skip": (0, b"\x11\0\x1e\4\0\0\0\0"),
        "hop by hop, unknown, drop": (0, b"\x11\0\x5e\4\0\0\0\0"),
        "hop by hop, unknown, tell": (0, b"\x11\0\x9e\4\0\0\0\0"),
        "hop by hop, too long": (0, b"\x11\7\1\4\0\0\0\0"), "destination, too long": (60, b"\x11\7\1\4\0\0\0\0"),
        "destination, unknown, tell": (60, b"\x11\0\x9e\4\0\0\0\0"),
        "destination, cut": (60, b"\x11"), "fragment, cut": (44, b"\x11\0\0"),
    }
    for name, (protocol, header) in headers.items():
        for ttl in (1, 9):
            for port in PORTS:
                src, dst = sender(port, True), sender((port + 1) % 4, True)
                inside = b"" if "cut" in name or name == "none" else udp(src, dst)
                frame = ethernet(ipv6(src, dst, header + inside, protocol=protocol, ttl=ttl), port=port)
                choice = "options of IPv6 are not looked at (RFC 8200 section 4)" if name in HOP_BY_HOP_ALONE else None
                yield Case(f"headers of IPv6: {name}", port, frame, choice)


HOP_BY_HOP_ALONE = {f"hop by hop, {which}" for which in ("unknown, drop", "unknown, tell", "too long")}


WRONG4 = [
    {"sum": 1}, {"sum": 0xFFFF}, {"sum": 0x100}, {"version": 5}, {"version": 6}, {"version": 0}, {"words": 4}, {"words": 0},
    {"words": 15}, {"words": 6}, {"total": 19}, {"total": 0}, {"total": 33}, {"total": 65535}, {"total": 20}, {"total": 24},
    {"total": 31}, {"fragment": 0x8000},
]
WRONG6 = [{"version": 4}, {"version": 0}, {"version": 7}, {"total": 13}, {"total": 65535}, {"total": 11}, {"total": 0}]


def damaged(dice, routes):
    """What is no packet of IP."""
    for port in PORTS:
        for is_6, name, kind, n_cut in ((False, "IPv4", ETH_P_IP, 34), (True, "IPv6", ETH_P_IP6, 54)):
            src, dst = sender(port, is_6), sender((port + 1) % 4, is_6)
            for made in WRONG6 if is_6 else WRONG4:
                for ttl in (1, 9):
                    frame = ethernet(datagram(src, dst, ttl=ttl, **made), kind, port=port)
                    yield Case(f"damaged {name}: {made}", port, frame)
                    yield Case(f"damaged {name}, longer: {made}", port, frame + bytes(40))
            for cut in range(n_cut):
                yield Case(f"{name} that is cut", port, ethernet(datagram(src, dst)[:cut], kind, port=port))


def payloads(dice, routes):
    """What a router carries is none of its business, however little sense it makes."""
    for nth in range(400):
        is_6, port = nth % 2 == 1, dice.choice(PORTS)
        src, dst = sender(port, is_6), sender(dice.choice(PORTS), is_6)
        protocol = dice.choice([TCP, UDP, ICMP, ICMP6, 132, 4, 41, 47, 51, 50, 115, 136, 137, 254])
        data = dice.randbytes(dice.choice((0, 1, 3, 4, 7, 8, 11, 12, 19, 20, 40, 80)))
        if dice.random() < 0.3:
            data = dice.choice([udp(src, dst), ip(src, dst, udp(src, dst))])[: len(data)] + data[:3]
        packet = ip(src, dst, data, protocol=protocol, ttl=dice.choice((1, 9, 9, 9)))
        yield Case(f"payloads of protocol {protocol}, IPv{6 if is_6 else 4}", port, ethernet(packet, port=port))


# The numbers of headers that may stand before ICMP, which each of them says is next.
BEFORE_ICMP = {
    "hop by hop": (0, b"\x3a\0\1\4\0\0\0\0"), "destination": (60, b"\x3a\0\1\4\0\0\0\0"),
    "routing": (43, b"\x3a\0\4\0\0\0\0\0"), "a fragment, the first": (44, b"\x3a\0\0\1\0\0\0\7"),
    "a fragment, a later one": (44, b"\x3a\0\0\x08\0\0\0\7"), "a proof": (51, b"\x3a\1" + bytes(10)),
    "a proof and options": (51, b"\x3c\1" + bytes(10) + b"\x3a\0\1\4\0\0\0\0"),
}


def errors(dice, routes):
    """Of what nobody is told, and of what all are."""
    for port in PORTS:
        for is_6 in (False, True):
            dst, protocol = "3fff::1" if is_6 else "5.5.5.5", ICMP6 if is_6 else ICMP
            for kind in range(256):
                for ttl, to in ((1, sender((port + 1) % 4, is_6)), (9, dst)):
                    src = sender(port, is_6)
                    made = icmp(src, to, kind, data=datagram(to, src))
                    yield Case(f"errors about {protocol}", port, ethernet(ip(src, to, made, protocol=protocol, ttl=ttl), port=port))
            src = sender(port, is_6)
            for head in (b"", b"\x03", b"\x80", b"\x08", b"\x08\0\0"):
                packet = ip(src, dst, head, protocol=protocol)
                yield Case(f"errors about cut {protocol}", port, ethernet(packet, port=port))
            for name, (number, head) in BEFORE_ICMP.items() if is_6 else ():
                for kind in (1, 3, 127, 128, 129):
                    src, to = sender(port, True), sender((port + 1) % 4, True)
                    made = head + icmp(src, to, kind, data=datagram(to, src))
                    frame = ethernet(ipv6(src, to, made, protocol=number, ttl=1), port=port)
                    yield Case(f"errors about ICMP behind {name}", port, frame)
            for to in ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01", "02:00:00:00:00:55", OWN_MAC):
                for ttl in (1, 9):
                    for where in (dst, sender((port + 1) % 4, is_6)):
                        choice = IS_LATE if ttl == 1 and where == dst else None
                        yield Case("stations", port, ethernet(datagram(sender(port, is_6), where, ttl=ttl), to=to, port=port), choice)
        for source in ("0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "240.0.0.1", "::", "::1", "ff02::1", "ff0e::1"):
            dst = "3fff::1" if ":" in source else "5.5.5.5"
            for where in (dst, sender((port + 1) % 4, ":" in source)):
                choice = {"240.0.0.1": CLASS_E, "::": NEVER_FORWARDED}.get(source)
                yield Case("sources that are nobody's", port, ethernet(datagram(source, where), port=port), choice)
        for where in ("0.0.0.0", "255.255.255.255", "224.0.0.1", "239.1.2.3", "127.0.0.1", "127.255.0.1", "::", "::1", "ff02::1", "ff0e::1"):
            for ttl in (1, 9):
                packet = datagram(sender(port, ":" in where), where, ttl=ttl)
                choice = UNSPECIFIED if where == "::" else None
                yield Case("destinations that are nobody's", port, ethernet(packet, port=port), choice)
                if where.startswith(("2", "ff")):
                    yield Case("groups", port, ethernet(packet, to="01:00:5e:00:00:01" if "." in where else "33:33:00:00:00:01", port=port))


def fragments(dice, routes):
    for port in PORTS:
        for is_6 in (False, True):
            src, dst, lost = sender(port, is_6), sender((port + 1) % 4, is_6), "3fff::1" if is_6 else "5.5.5.5"
            data = udp(src, dst, dice.randbytes(1000))
            piece = lambda at, end, ttl=9, to=dst, ident=7: fragment(src, to, data, at, end, ttl, ident)
            orders = {
                "in order": [piece(0, 400), piece(400, 800), piece(800, 1008)],
                "the last first": [piece(800, 1008, ident=8), piece(400, 800, ident=8), piece(0, 400, ident=8)],
                "without the first": [piece(400, 800, ident=9), piece(800, 1008, ident=9)],
                "twice the same": [piece(0, 400, ident=10), piece(400, 800, ident=10), piece(400, 800, ident=10), piece(800, 1008, ident=10)],
                "overlapping": [piece(0, 400, ident=11), piece(200, 800, ident=11), piece(800, 1008, ident=11)],
                "late": [piece(0, 400, 1, ident=12), piece(400, 800, 1, ident=12)],
                "lost": [piece(0, 400, to=lost, ident=13), piece(400, 800, to=lost, ident=13)],
                "tiny": [piece(0, 8, ident=14), piece(8, 1008, ident=14)],
            }
            for name, pieces in orders.items():
                for packet in pieces:
                    yield Case(f"fragments of IPv{6 if is_6 else 4}: {name}", port, ethernet(packet, port=port))


def fragment(src, dst, data, at, end, ttl, ident):
    more = end < len(data)
    if ":" in src:
        header = struct.pack("!BBHI", UDP, 0, at | more, ident)
        return ipv6(src, dst, header + data[at:end], protocol=44, ttl=ttl)
    return ipv4(src, dst, data[at:end], ttl=ttl, ident=ident, fragment=at // 8 | more << 13)


def unusual(dice, routes):
    """Addresses that RFCs say more of than one may follow."""
    cases = [
        ("240.0.0.1", None, CLASS_E),
        ("0.1.2.3", None, NETWORK_0),
        ("169.254.9.9", None, LINK_LOCAL),
        (None, "240.0.0.1", CLASS_E),
        (None, "0.1.2.3", NETWORK_0),
        (None, "169.254.9.9", LINK_LOCAL),
        ("fe80::1", "2001:db8:2::7", LINK_LOCAL6),
        ("fe80::1", "3fff::1", LINK_LOCAL6),
        (None, "fe80::9", LINK_LOCAL6),
        ("::ffff:1.2.3.4", "2001:db8:2::7", None),
        (None, "::ffff:1.2.3.4", None),
        ("fec0::1", "2001:db8:2::7", None),
        ("fc00::1", "2001:db8:2::7", None),
        ("2002:7f00:1::1", "2001:db8:2::7", None),
        (None, "fec0::1", None),
        (None, "fc00::1", None),
        ("10.64.1.255", "10.80.1.255", None),
        ("10.64.1.0", "10.80.1.0", None),
        (OWN, None, "that a packet says it is the router's own is not looked at"),
        (OWN6, "2001:db8:2::7", None),
        ("10.80.2.7", "10.80.2.7", None),
    ]
    for src, dst, choice in cases:
        for port in PORTS:
            for ttl in (2, 9):
                is_6 = ":" in f"{src}{dst}"
                packet = datagram(src or sender(port, is_6), dst or sender((port + 1) % 4), ttl=ttl)
                yield Case(f"from {src} to {dst}", port, ethernet(packet, port=port), choice)


def tags(_dice, _routes):
    for port in PORTS:
        for is_6 in (False, True):
            for kinds in ([(ETH_P_VLAN, 0)], [(ETH_P_VLAN, 7)], [(ETH_P_QINQ, 7)], [(ETH_P_VLAN, 0), (ETH_P_VLAN, 7)]):
                for ttl in (1, 9):
                    packet = datagram(sender(port, is_6), sender((port + 1) % 4, is_6), ttl=ttl)
                    yield Case("tags", port, ethernet(packet, port=port, tags=kinds), TAGS_STAY)


def for_itself(_dice, _routes):
    for port in PORTS:
        for own in (OWN, OWN6):
            is_6 = own == OWN6
            src, protocol, kind = sender(port, is_6), ICMP6 if is_6 else ICMP, 128 if is_6 else 8
            made = [(protocol, icmp(src, own, kind)), (UDP, udp(src, own)), (253, b"data")]
            for protocol, data in made:
                frame = ethernet(ip(src, own, data, protocol=protocol), port=port)
                yield Case("for the router itself", port, frame, NO_STATION)
        ask = struct.pack("!HHBBH", 1, ETH_P_IP, 6, 4, 1) + mac(neighbour(port)) + packed(sender(port)) + bytes(6) + packed(OWN)
        yield Case("who has its address", port, ethernet(ask, 0x0806, "ff:ff:ff:ff:ff:ff", port), NO_STATION)
        src, group = sender(port, True), "ff02::1:ff00:1"
        ask = icmp(src, group, 135, data=packed(OWN6) + b"\1\1" + mac(neighbour(port)))
        packet = ipv6(src, group, ask, protocol=ICMP6, ttl=255)
        yield Case("who has its address", port, ethernet(packet, to="33:33:ff:00:00:01", port=port), NO_STATION)


def too_long(dice, _routes):
    """For a port with a shorter MTU: what just fits, and what does not."""
    name = "packets as long as the link, and longer"
    for port in PORTS[:3]:
        for size in (1280, *range(SHORT_MTU - 2, SHORT_MTU + 10), 1499, 1500):
            for is_6 in (False, True):
                src, dst = sender(port, is_6), sender(3, is_6)
                data = dice.randbytes(size - (48 if is_6 else 28))
                for ttl in (1, 2, 64):
                    for fragment in (0,) if is_6 else (0, 0x4000, 0x2000, 0x2010, 0x10, 0x4010):
                        made = {"ttl": ttl} | ({} if is_6 else {"fragment": fragment})
                        yield Case(name, port, ethernet(datagram(src, dst, data, **made), port=port))
        yield from long_options(dice, port)
        yield from long_messages(dice, port)


def long_options(dice, port):
    src, dst = sender(port), sender(3)
    for options, choice in ((bytes([1] * 8), OPTIONS_LEFT_OUT), (b"\x94\4\0\0", None)):
        for size in (SHORT_MTU, SHORT_MTU + 1, 1500):
            data = dice.randbytes(size - 20 - len(options))
            for fragment in (0, 0x4000, 0x10):
                is_cut = size > SHORT_MTU and not fragment & 0x4000
                packet = ipv4(src, dst, data, options=options, fragment=fragment)
                # An error has no options, though the packet has.
                why = choice if is_cut else OPTIONS_PASS if size > SHORT_MTU else None
                yield Case("long packets with options", port, ethernet(packet, port=port), why)


def long_messages(dice, port):
    """Messages of ICMP, about errors of which nobody is told, and other things in long packets."""
    for is_6 in (False, True):
        src, dst, protocol = sender(port, is_6), sender(3, is_6), ICMP6 if is_6 else ICMP
        for kind in (1, 2, 3, 4, 128, 135, 200) if is_6 else (0, 3, 4, 5, 8, 11, 12, 13, 30):
            data = icmp(src, dst, kind, data=dice.randbytes(SHORT_MTU))
            for fragment in (0, 0x4000):
                made = {} if is_6 else {"fragment": fragment}
                frame = ethernet(ip(src, dst, data, protocol=protocol, **made), port=port)
                yield Case("long messages of ICMP", port, frame)
        for kind in (TCP, 47, 132, 253):
            frame = ethernet(ip(src, dst, dice.randbytes(SHORT_MTU), protocol=kind), port=port)
            yield Case("long packets of other protocols", port, frame)


SCENES = [destinations, hops_left, options, damaged, payloads, errors, fragments, unusual, tags, for_itself, too_long]


# ---- switches ----

AGE_S = 2
# Ports of each virtual LAN; that of frames without a tag is 0 here and has a number of its own in the kernel.
LANS = {0: (0, 1, 3), 7: (0, 1, 2), 8: (0, 3), 9: (2,), 4000: tuple(PORTS)}
LAN_WITHOUT_TAG = 1
PROBE_LAN, KIND = 4000, 0x88B5


class Switched(Network):
    """Frames that all others get tell when those before them have left."""

    is_tagged = True

    def probes(self, port, token):
        tags = [(ETH_P_VLAN, PROBE_LAN)] if self.is_tagged else []
        yield ethernet(token.ljust(46, b"\0"), KIND, "ff:ff:ff:ff:ff:ff", tags=tags, source=f"02:00:00:00:0f:{port:02x}")

    def probed(self, port):
        return [other for other in PORTS if other != port]


class Plain(Switched):
    is_tagged = False


def bridge_of_kernel(network):
    # A bridge is none that looks at what it carries.
    for family in ("ip", "ip6", "arp"):
        network.set(network.names[1], f"net.bridge.bridge-nf-call-{family}tables", 0)
    kind = ["type", "bridge", "stp_state", "0", "mcast_snooping", "0", "ageing_time", str(AGE_S * 100)]
    network.middle("ip", "link", "add", "br0", "address", "02:00:00:00:00:02", *kind)
    for port in PORTS:
        network.middle("ip", "link", "set", f"m{port}", "master", "br0")
    network.middle("ip", "link", "set", "br0", "up")


def bridge_of_open_vswitch(network):
    """In its user-space data path, without flows that it remembers: what it learned is asked for each frame."""
    folder = network.folder = tempfile.mkdtemp()
    places = [f"{name}={folder}" for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")]
    within = ["ip", "netns", "exec", network.names[1], "env", *places]
    base, control = f"unix:{folder}/db.sock", f"{folder}/switch.ctl"

    def spawn(*argv, awaited):
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        network.children.append(subprocess.Popen([*within, *argv], **silent))
        end = time.monotonic() + UP_S_MAX
        while not os.path.exists(awaited):
            if time.monotonic() > end:
                raise RuntimeError(f"{argv[0]} does not start")
            time.sleep(0.05)

    def tell(*argv):
        run(*within, "ovs-vsctl", f"--db={base}", "--timeout=10", *argv)

    run(*within, "ovsdb-tool", "create", f"{folder}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
    spawn("ovsdb-server", f"{folder}/conf.db", f"--remote=p{base}", f"--unixctl={folder}/db.ctl", awaited=f"{folder}/db.sock")
    tell("--no-wait", "init")
    tell("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-limit=0", "other_config:emc-insert-inv-prob=0")
    spawn("ovs-vswitchd", base, f"--unixctl={control}", f"--log-file={folder}/log", awaited=control)
    tell("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "other-config:disable-in-band=true")
    run(*within, "ovs-appctl", "-t", control, "upcall/disable-megaflows")
    for port in PORTS:
        lans = [lan for lan, members in LANS.items() if port in members]
        mode = ["vlan_mode=native-untagged", f"tag={LAN_WITHOUT_TAG}"] if 0 in lans else ["vlan_mode=trunk"]
        trunks = ",".join(str(lan or LAN_WITHOUT_TAG) for lan in lans)
        tell("add-port", "br0", f"m{port}", "--", "set", "port", f"m{port}", *mode, f"trunks={trunks}")


def bridge_of_weft(has_lans):
    text = "IMPORT 'library/elements/l2_switch.weft';\n" + ports_of_weft()
    for lan, members in LANS.items():
        text += f"CREATE GROUP lan{lan} ON PORT {', '.join(f'p{port}' for port in members)} ALL;\n"
    age = 300 if has_lans else AGE_S
    text += f"CREATE CHAIN bridge ON PORT p0, p1, p2, p3 AS l2_switch (age = '{age} s'); END;\n"
    rows = [f"({lan}, 'p{port}', 'lan{lan}')" for lan, members in LANS.items() for port in members]
    return text + (f"INSERT INTO bridge.l2_switch.members VALUES {', '.join(rows)};\n" if has_lans else "")


STATIONS = [f"02:00:00:00:0a:{at:02x}" for at in range(8)]
GROUPS = ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01", "01:80:c2:00:00:10", "01:80:c2:00:00:21", "03:00:00:00:00:01"]
RESERVED = [f"01:80:c2:00:00:{at:02x}" for at in range(16)]
PRIORITY_STAYS = "a tag without a virtual LAN stays on: tags are neither put on nor taken off"
PROVIDERS = "the first tag says the virtual LAN, be it a customer's or a provider's"
SPANNING_TREES = "frames of spanning trees pass, as in Linux, so that others see a loop through a switch that has none"
GROUPS_SEND = "a group sends nothing (IEEE 802.3 section 3.2.3), as in Linux"
NOBODY_SENDS = "a source of zeros is a station like others (IEEE 802.1Q section 8.7 knows none that is not)"


def tag(lan, priority=0, kind=ETH_P_VLAN):
    return kind, priority << 13 | lan


def l2(port, source, to, *tags, choice=None, scene, size=44):
    return Case(scene, port, ethernet(b"weft" * (size // 4), KIND, to, tags=tags, source=source), choice)


def learning(dice, has_lans, n):
    """Stations that speak, move and are spoken to, in all virtual LANs; what was learned stays for what follows."""
    # A switch that knows no virtual LANs learns in one what it then knows in all, in the kernel.
    lans = [0, 0, 7, 7, 8, 9, 10, 4094] if has_lans else [0]
    for _ in range(n):
        lan, source, to = dice.choice(lans), dice.choice(STATIONS), dice.choice(STATIONS + GROUPS)
        tags = [tag(lan, dice.choice((0, 0, 5)))] if lan else []
        if tags and dice.random() < 0.2:
            tags.append(tag(dice.choice((5, 8)), 3))
        # Most stations are where they were.
        port = STATIONS.index(source) % 4 if dice.random() < 0.8 else dice.choice(PORTS)
        yield l2(port, source, to, *tags, scene="learning and moving", size=dice.choice((44, 40, 100, 1200)))


def unusual_frames(dice, has_lans, _):
    for port in PORTS:
        for to in RESERVED:
            choice = SPANNING_TREES if has_lans and to == RESERVED[0] else None
            yield l2(port, STATIONS[port], to, scene="addresses of the link", choice=choice)
            yield l2(port, STATIONS[port], to, tag(7), scene="addresses of the link, tagged", choice=choice)
        for source in [*GROUPS, *RESERVED]:
            choice = GROUPS_SEND if has_lans else None
            yield l2(port, source, STATIONS[0], scene="sources that are groups", choice=choice)
            yield l2(port, source, STATIONS[0], tag(7), scene="sources that are groups", choice=choice)
        for to in (STATIONS[0], STATIONS[1], GROUPS[0]):
            yield l2(port, "00:00:00:00:00:00", to, scene="a source of zeros", choice=NOBODY_SENDS)
            yield l2(port, STATIONS[port], "00:00:00:00:00:00", scene="a destination of zeros", choice=NOBODY_SENDS)
            yield l2(port, STATIONS[port], STATIONS[port], scene="to itself")
            for priority in (0, 5):
                choice = PRIORITY_STAYS if has_lans else None
                yield l2(port, STATIONS[port], to, tag(0, priority), scene="tags without a virtual LAN", choice=choice)
                yield l2(port, STATIONS[port], to, tag(0, priority), tag(7), scene="tags without a virtual LAN", choice=choice)
            if has_lans:
                yield l2(port, STATIONS[port], to, tag(4095), scene="4095")
                yield l2(port, STATIONS[port], to, tag(7), tag(8), scene="two tags")
                yield l2(port, STATIONS[port], to, tag(8), tag(7), tag(9), scene="three tags")
                for kind in (ETH_P_QINQ, 0x9100):
                    yield l2(port, STATIONS[port], to, tag(7, 0, kind), scene="a provider's tag", choice=PROVIDERS)
        for kind in (0x0800, 0x0806, 0x86DD, 0x0026, 0x05DC, 0x0000, 0xFFFF):
            for size in (0, 1, 20, 46):
                frame = ethernet(dice.randbytes(size), kind, STATIONS[(port + 1) % 4], source=STATIONS[port])
                yield Case("what it carries", port, frame)


def ageing(_dice, _has_lans, _n):
    """Some stations speak again before they are forgotten."""
    say = lambda at, to: l2(at % 4, STATIONS[at], to, scene="ageing")
    for at in range(8):
        yield say(at, GROUPS[0])
    yield AGE_S * 0.6
    for at in range(4):
        yield say(at, GROUPS[0])
        # To be spoken to is not to speak.
        yield say(at, STATIONS[(at + 5) % 8])
    yield AGE_S * 0.7
    for at in range(8):
        yield say(0, STATIONS[at])
        yield say(1, STATIONS[at])


SWITCHED = [learning, unusual_frames, learning, ageing]


# ---- main ----


class Comparison:
    """How many frames had the same end, and which had not."""

    def __init__(self, args):
        self.args, self.equal = args, collections.Counter()
        # By reason, and by scene.
        self.choices, self.faults = collections.Counter(), collections.Counter()

    def of(self, case, theirs, ours, table=None):
        if theirs == ours or table and by_any_way(case, theirs, table) == by_any_way(case, ours, table):
            self.equal[case.scene] += 1
            return
        counted, key = (self.choices, case.choice) if case.choice else (self.faults, case.scene)
        counted[key] += 1
        if counted[key] <= SHOWN_MAX and (self.args.verbose or not case.choice):
            print(f"{case.scene}{': ' + case.choice if case.choice else ''}\n  in by port {case.port}: {case.frame.hex()}")
            print(f"  the peer:\n{told(theirs)}\n  Weft:\n{told(ours)}")

    def told(self):
        if self.args.verbose:
            for scene, n in self.equal.items():
                print(f"{n:7} {scene}")
        for reason, n in self.choices.items():
            print(f"{n:7} differ: {reason}")
        for scene, n in self.faults.items():
            print(f"{n:7} differ, and should not: {scene}")
        print(f"{self.equal.total()} frames had the same end, {self.choices.total()} another for a reason, "
              f"{self.faults.total()} for none")


def wanted(scenes, args):
    return [scene for scene in scenes if not args.scenes or scene.__name__ in args.scenes]


def route(args, has_default, comparison):
    dice = random.Random(args.seed * 2 + has_default)
    routes = some_routes(dice, has_default)
    table, ours = Table(routes), weft(router_of_weft(routes))
    with Routed(router_of_kernel(routes), 0) as kernel, Routed(ours, 1) as own:
        for scene in wanted(SCENES, args):
            for case in scene(dice, routes, *[args.packets // 2] if scene is destinations else []):
                theirs, ours = kernel.through(case.port, case.frame), own.through(case.port, case.frame)
                comparison.of(case, theirs, ours, table)


def switch(args, has_lans, comparison):
    dice = random.Random(args.seed * 2 + has_lans)
    kind, set_up = (Switched, bridge_of_open_vswitch) if has_lans else (Plain, bridge_of_kernel)
    # What Open vSwitch learned it keeps for 15 s at least.
    scenes = [scene for scene in wanted(SWITCHED, args) if not has_lans or scene is not ageing]
    with kind(set_up, 2) as peer, kind(weft(bridge_of_weft(has_lans)), 3) as own:
        for scene in scenes:
            for case in scene(dice, has_lans, args.packets // 8):
                if isinstance(case, float):
                    time.sleep(case)
                else:
                    comparison.of(case, peer.through(case.port, case.frame), own.through(case.port, case.frame))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=20000, help="how many packets to random destinations")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from")
    parser.add_argument("-v", "--verbose", action="store_true", help="show scenes that are equal, and choices, too")
    names = ", ".join(dict.fromkeys(scene.__name__ for scene in SCENES + SWITCHED))
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"all, or some of {names}")
    args = parser.parse_args()
    # However it is ended, its namespaces go with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("forwarding.py: ended"))
    # The kernel forwards on the core that sends, so that frames stay in order.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    comparison = Comparison(args)
    for which in (False, True):
        if wanted(SCENES, args):
            route(args, which, comparison)
        if which and not shutil.which("ovs-vswitchd"):
            print("virtual LANs are left out: Open vSwitch is not installed: benches/peers/setup-packets.sh")
        elif wanted(SWITCHED, args):
            switch(args, which, comparison)
    comparison.told()
    return 1 if comparison.faults else 0


if __name__ == "__main__":
    sys.exit(main())
