#!/usr/bin/env python3
"""Relays between two network namespaces in a flood: DPDK's testpmd and Weft with four elements, in turn in one run.

usage: relays.py [--rounds 5] [--seconds 1] [--json]

A packet socket sends UDP packets of 64 B in bursts as fast as it can; between it and where they are counted is a veth pair
alone, the kernel's bridge, testpmd (`io`: it looks at nothing) over its drivers for AF_PACKET and AF_XDP, or a node with a
chain of four network functions over packet sockets and XDP. What is told is how many arrive, and for each the time of all
CPUs, soft interrupts included, and that of the relay's threads and the kernel's for soft interrupts. The first is counted by
the kernel's ticks, which overlook what begins and ends between two; the second by its scheduler. A round has all of them,
one behind the other; medians of rounds. Needs root, ip and
dpdk-testpmd, which `setup-packets.sh` installs; `WEFT` names another binary than target/release/weft.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time

import between
import peers

# What arrives later was on its way.
REST_S = 0.05
FIGURES = ["pps", "cpu_us", "relay_us"]
HZ = os.sysconf("SC_CLK_TCK")
CHAIN = "count -> check -> count AS c3 -> check AS c4"
SIMPLE = os.path.join(peers.ROOT, "crates/weft-bench/src/packets/simple.weft")


class Way(between.World):
    """What is between the two ends."""

    def __init__(self, set_up):
        super().__init__(is_wire=set_up is None)
        self.set_up = set_up
        # No hop has an address.
        self.to = between.STATION

    def __enter__(self):
        super().__enter__()
        if self.set_up:
            try:
                self.set_up(self)
            except BaseException:
                self.close()
                raise
        return self

    def bridge(self):
        self.middle("ip", "link", "add", "br0", "type", "bridge")
        for device in ("m0", "m1"):
            self.middle("ip", "link", "set", device, "master", "br0")
        self.middle("ip", "link", "set", "br0", "up")

    def testpmd(self, driver):
        devices = [f"--vdev=net_{driver}{n},iface=m{n}" for n in range(2)]
        before = ["--no-pci", "--no-huge", "-m", "512", "--no-telemetry", f"--file-prefix={self.names[2]}"]
        behind = ["--forward-mode=io", "--auto-start", "--nb-cores=1", "--total-num-mbufs=16384", "--stats-period=60"]
        self.start("dpdk-testpmd", "-l", "0,1", "--main-lcore", "0", *before, *devices, "--", *behind)

    def weft_chain(self, driver):
        with open(SIMPLE) as simple:
            text = f"IMPORT '{os.path.join(peers.ROOT, 'library/protocols/all.weft')}';\n{simple.read()}"
        text += f"CREATE CHAIN there ON PORT left -> right AS {CHAIN}; END;\n"
        text += f"CREATE CHAIN back ON PORT right -> left AS {CHAIN.replace('c3', 'c5').replace('c4', 'c6')}; END;\n"
        self.run_weft(peers.WEFT, driver, text)

    def flood(self, sender, seconds):
        """Packets a second that arrive, and for each CPU microseconds of all, and of the relay."""
        sender.send_all(0.2)
        came, cpu, own, began = self.arrived(), busy_s(), self.cpu_ns(), time.monotonic()
        sender.send_all(seconds)
        time.sleep(REST_S)
        came, cpu, own = self.arrived() - came, busy_s() - cpu, self.cpu_ns() - own
        took, came = time.monotonic() - began, max(came, 1)
        return came / took, cpu / came * 1e6, own / came / 1e3


class Flooder(between.Sender):
    """Sends bursts one behind the other."""

    def send_all(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            messages, _ = self.bursts[self.next]
            self.next = (self.next + 1) % len(self.bursts)
            # What finds no room is lost, as in any flood.
            between.LIBC.sendmmsg(self.socket.fileno(), messages, between.BURST, 0)


def busy_s():
    """What all CPUs have worked, soft interrupts included."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = (int(n) for n in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / HZ


WAYS = {
    "a wire": None,
    "kernel, a bridge": Way.bridge,
    "testpmd over AF_PACKET": lambda way: way.testpmd("af_packet"),
    "testpmd over AF_XDP": lambda way: way.testpmd("af_xdp"),
    "Weft over packet sockets, 4 elements": lambda way: way.weft_chain("packet"),
    "Weft over XDP, 4 elements": lambda way: way.weft_chain("xdp"),
}


def measure(name, args):
    with Way(WAYS[name]) as way:
        to = bytes.fromhex(way.to.replace(":", ""))
        with Flooder(way.names[0], "a0", between.frames(to), args.core) as sender:
            return way.flood(sender, args.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--seconds", type=float, default=1, help="how long a flood lasts")
    parser.add_argument("--core", type=int, default=1, help="the core of the sender")
    parser.add_argument("--json", action="store_true", help="as data")
    args = parser.parse_args()
    if os.geteuid():
        return "relays.py: it needs root"
    names = [name for name in WAYS if "testpmd" not in name or shutil.which("dpdk-testpmd")]
    found, refused = {name: [] for name in names}, {}
    for _ in range(args.rounds):
        for name in names:
            if name in refused:
                continue
            try:
                found[name].append(measure(name, args))
            except RuntimeError as why:
                refused[name] = str(why)
    rows = {
        name: {**dict(zip(FIGURES, map(statistics.median, zip(*all)))), "rounds": len(all)}
        for name, all in found.items()
        if all
    }
    if args.json:
        print(json.dumps({"rows": rows, "refused": refused, "load": os.getloadavg()[0]}))
    else:
        print(f"{'way':<38} {'Mpackets/s':>10} {'all CPU, us/packet':>19} {'relay, us/packet':>17}")
        for name, row in rows.items():
            print(f"{name:<38} {row['pps'] / 1e6:>10.2f} {row['cpu_us']:>19.2f} {row['relay_us']:>17.2f}")
        print(f"medians of {args.rounds} rounds of {args.seconds} s in turn; load {os.getloadavg()[0]:.1f}")
        for name, why in refused.items():
            print(f"{name}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
