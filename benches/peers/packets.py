#!/usr/bin/env python3
"""Chains over packets in memory: Weft beside DPDK testpmd and Open vSwitch with DPDK, interleaved in one run.

usage: packets.py [--json FILE] [--seconds 2] [--rounds 3] [--core 1] [NAME ...]

NAME is a part of a case's name. A round runs every case once (A B C A B C ...), each in processes of its own; the table
has medians over the rounds. All figures are CPU time of the one core that does the work, a packet of 64 B, with the
program's own source and sink in memory: the schedulers' count of the worker thread (testpmd, OVS), and of the
process while packets run (Weft). Needs root and 1,024 huge pages of 2 MiB for the peers, which it asks the kernel for
and gives back; `setup-packets.sh` installs them.
"""

import argparse
import contextlib
import glob
import json
import os
import pty
import random
import re
import select
import shutil
import statistics
import struct
import subprocess
import sys
import time

import bench
import peers

INTO = os.path.join(peers.INTO, "packets")
HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
HUGE_PAGES_MIN = 1024
OVS = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
FRAME_BYTES = 60
WARM_UP_S = 5
ANSWER_S_MAX = 40
# Batches of 64 that Weft runs a second and more, roughly.
BATCHES_A_SECOND = 60_000

CASES = {}


def case(name, needs):
    """Registers what measures a case: a function of the arguments that gives nanoseconds a packet."""

    def register(measure):
        CASES[name] = (measure, needs)

    return register


def add_cases():
    for n in (1, 4, 7):
        plural = "s" if n > 1 else ""
        case(f"weft, {n} simple element{plural}", "weft")(lambda args, name=f"{n} simple element{plural}": weft(args, name))
        case(f"testpmd, {n} hop{plural} of macswap", "testpmd")(lambda args, n=n: testpmd(args, n))
    for name in ("firewall of 200", "4 firewalls of 200"):
        case(f"weft, {name}", "weft")(lambda args, name=name: weft(args, name))
    for flows, told in ((1, "1 flow"), (10_000, "10k flows"), (100_000, "100k flows")):
        case(f"weft, three tables, {told}", "weft")(lambda args, told=told: weft(args, f"all three, {told}"))
        case(f"ovs, three tables, {told}", "ovs")(lambda args, flows=flows: ovs(args, 3, flows))


def weft(args, name):
    argv = [peers.WEFT, "bench-packets", name, "--rounds", str(int(BATCHES_A_SECOND * args.seconds))]
    done = subprocess.run(pinned(args, argv), capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"weft: {done.stderr.strip()}")
    return float(done.stdout)


# ---- testpmd: a source that makes packets, n - 1 rings, a sink ----


def testpmd(args, hops):
    devices = ["--vdev=net_null0,size=64"]
    devices += [f"--vdev=net_ring{n}" for n in range(1, hops)]
    devices += ["--vdev=net_null9,size=64,no-rx=1"]
    other = 0 if args.core else 1
    argv = ["dpdk-testpmd", "-l", f"{other},{args.core}", "--main-lcore", str(other), "--no-pci", "--in-memory"]
    argv += ["--file-prefix", f"weft{os.getpid()}", "--log-level=lib.eal:error", *devices, "--", "-i"]
    argv += ["--forward-mode=macswap", "--nb-cores=1", "--port-topology=chained", "--total-num-mbufs=65536"]
    with Terminal(argv) as terminal:
        terminal.until(b"testpmd> ")
        worker = worker_of(terminal.child.pid, "worker")
        cpu = run_ns(worker)
        terminal.say("start")
        terminal.until(b"testpmd> ")
        time.sleep(args.seconds)
        terminal.say("stop")
        told = terminal.until(b"Accumulated forward statistics for all ports")
        cpu = run_ns(worker) - cpu
        last = told[told.index(f"statistics for port {hops} ") :]
        return cpu / int(re.search(r"TX-packets:\s+(\d+)", last).group(1))


class Terminal:
    """A program that wants to talk to a person."""

    def __init__(self, argv):
        self.side, other = pty.openpty()
        self.child = subprocess.Popen(argv, stdin=other, stdout=other, stderr=other, start_new_session=True)
        os.close(other)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.child)
        os.close(self.side)

    def say(self, text):
        os.write(self.side, text.encode() + b"\n")

    def until(self, wanted):
        told, until = b"", time.monotonic() + ANSWER_S_MAX
        while wanted not in told and time.monotonic() < until:
            if select.select([self.side], [], [], 1)[0]:
                with contextlib.suppress(OSError):
                    told += os.read(self.side, 65536)
            if self.child.poll() is not None:
                break
        if wanted not in told:
            raise RuntimeError(f"testpmd said: {told.decode(errors='replace')[-500:].strip()}")
        return told.decode(errors="replace")


# ---- OVS: packets of a file in memory, tables of which the first has a rule for each flow ----


def ovs(args, tables, flows):
    switch = Switch(args)
    try:
        switch.start()
        switch.fill(tables, flows)
        packets = os.path.join(INTO, f"{flows}.pcap")
        write_flows(packets, flows)
        return switch.run(packets, args.seconds)
    finally:
        switch.stop()


class Switch:
    """Open vSwitch in its user-space data path, in a folder of its own."""

    def __init__(self, args):
        self.core = args.core
        self.folder = os.path.join(INTO, "ovs")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        names = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        self.env = dict(os.environ, **dict.fromkeys(names, self.folder))
        self.data_base = f"unix:{self.folder}/db.sock"
        self.children = []

    def start(self):
        self.do("ovsdb-tool", "create", f"{self.folder}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        control = f"--unixctl={self.folder}/ovsdb.ctl"
        self.spawn("ovsdb-server", f"{self.folder}/conf.db", f"--remote=p{self.data_base}", control, "-vconsole:off")
        wait_for(f"{self.folder}/db.sock")
        options = {
            "dpdk-init": "true",
            "dpdk-socket-mem": "1024",
            "dpdk-extra": "--no-pci --in-memory --file-prefix=weftovs",
            "pmd-cpu-mask": f"{1 << self.core:#x}",
            "dpdk-lcore-mask": "0x1" if self.core else "0x2",
        }
        self.vsctl("--no-wait", "init")
        told = [f'other_config:{name}="{value}"' for name, value in options.items()]
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *told)
        control = f"{self.folder}/ovs-vswitchd.ctl"
        log = ["-vconsole:off", f"--log-file={self.folder}/log"]
        self.daemon = self.spawn(OVS, self.data_base, f"--unixctl={control}", *log)
        wait_for(control)
        bridge = ["set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure"]
        self.vsctl("add-br", "br0", "--", *bridge)

    def fill(self, tables, flows):
        """A rule for each of up to 20,000 flows in the first table, and rules that look at all fields in each."""
        lines = ["table=0,priority=0,actions=drop"]
        for table in range(tables):
            then = f"goto_table:{table + 1}" if table + 1 < tables else "output:2"
            never = "nw_src=10.255.255.255,nw_dst=11.255.255.255,tp_src=65535,tp_dst=65535"
            lines.append(f"table={table},priority=10,udp,{never},actions=drop")
            if table == 0:
                for at in range(min(flows, 20_000)):
                    match = f"nw_dst={address(11, at)},tp_src={1024 + at % 50_000}"
                    lines.append(f"table=0,priority=20,udp,{match},actions={then}")
            lines.append(f"table={table},priority=1,udp,actions={then}")
        path = f"{self.folder}/rules"
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
        self.do("ovs-ofctl", "-O", "OpenFlow15", "add-flows", f"{self.folder}/br0.mgmt", path)

    def run(self, packets, seconds):
        sink = "options:dpdk-devargs=net_null9,no-rx=1,size=64"
        self.vsctl("add-port", "br0", "s0", "--", "set", "interface", "s0", "type=dpdk", sink, "ofport_request=2")
        source = f"options:dpdk-devargs=net_pcap0,rx_pcap={packets},infinite_rx=1"
        self.vsctl("add-port", "br0", "p0", "--", "set", "interface", "p0", "type=dpdk", source, "ofport_request=1")
        time.sleep(WARM_UP_S)
        worker = worker_of(self.daemon.pid, "pmd-c")
        cpu, count = run_ns(worker), self.received()
        time.sleep(seconds)
        cpu, count = run_ns(worker) - cpu, self.received() - count
        if count <= 0:
            raise RuntimeError("ovs receives nothing")
        return cpu / count

    def received(self):
        told = self.do("ovs-appctl", "-t", f"{self.folder}/ovs-vswitchd.ctl", "dpif-netdev/pmd-stats-show")
        told = told[told.index("pmd thread") :].split("main thread")[0]
        return int(re.search(r"packets received:\s*(\d+)", told).group(1))

    def vsctl(self, *argv):
        return self.do("ovs-vsctl", f"--db={self.data_base}", "--timeout=30", *argv)

    def do(self, *argv):
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=90)
        if done.returncode:
            raise RuntimeError(f"{argv[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def spawn(self, *argv):
        child = subprocess.Popen(argv, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def stop(self):
        for child in reversed(self.children):
            end(child)


def write_flows(path, flows):
    """A packet of each flow, in an order that no table knows; some hundreds at least."""
    order = list(range(flows))
    random.Random(1).shuffle(order)
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        record = struct.pack("<IIII", 0, 0, FRAME_BYTES, FRAME_BYTES)
        for _ in range(max(1, 512 // flows)):
            for at in order:
                file.write(record + frame(at))


def frame(flow):
    header = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, FRAME_BYTES - 14, 0, 0, 64, 17, 0))
    header += struct.pack("!II", 0x0A000000 + (flow >> 8), 0x0B000000 + flow)
    total = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", header, 10, ~total & 0xFFFF)
    udp = struct.pack("!HHHH", 1024 + flow % 50_000, 5000 + flow % 16, FRAME_BYTES - 34, 0)
    ethernet = bytes.fromhex("0200000000020200000000010800")
    return (ethernet + header + udp).ljust(FRAME_BYTES, b"\0")


def address(first, at):
    return f"{first}.{at >> 16}.{at >> 8 & 255}.{at & 255}"


# ---- processes ----


def pinned(args, argv):
    return ["taskset", "-c", str(args.core), *argv] if shutil.which("taskset") else argv


def worker_of(pid, name):
    for path in glob.glob(f"/proc/{pid}/task/*"):
        with open(f"{path}/comm") as file:
            if name in file.read():
                return path
    raise RuntimeError(f"process {pid} has no thread {name}")


def run_ns(thread):
    with open(f"{thread}/schedstat") as file:
        return int(file.read().split()[0])


def wait_for(path):
    until = time.monotonic() + ANSWER_S_MAX
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise RuntimeError(f"{path} does not appear")
        time.sleep(0.1)


def end(child):
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextlib.contextmanager
def huge_pages():
    """As many as the peers need, and afterwards what there was."""
    with open(HUGE_PAGES) as file:
        before = int(file.read())
    set_huge_pages(max(before, HUGE_PAGES_MIN))
    try:
        yield
    finally:
        set_huge_pages(before)


def set_huge_pages(count):
    with open(HUGE_PAGES, "w") as file:
        file.write(str(count))


def missing():
    absent = {}
    if not os.access(peers.WEFT, os.X_OK):
        absent["weft"] = f"there is no {peers.WEFT}: make build"
    if os.geteuid():
        return absent | dict.fromkeys(("testpmd", "ovs"), "it needs root")
    if not shutil.which("dpdk-testpmd"):
        absent["testpmd"] = "dpdk-testpmd is not installed: benches/peers/setup-packets.sh"
    if not os.path.exists(OVS):
        absent["ovs"] = f"{OVS} is not installed: benches/peers/setup-packets.sh"
    return absent


# ---- the rounds ----


def main():
    args = arguments()
    add_cases()
    os.makedirs(INTO, exist_ok=True)
    absent = missing()
    for name, reason in absent.items():
        print(f"# {name}: skipped, {reason}", file=sys.stderr)
    wanted = {
        name: measure
        for name, (measure, needs) in CASES.items()
        if needs not in absent and (not args.names or any(part in name for part in args.names))
    }
    needs_pages = any(CASES[name][1] != "weft" for name in wanted)
    runs = {name: [] for name in wanted}
    with huge_pages() if needs_pages else contextlib.nullcontext():
        for number in range(args.rounds):
            for name, measure in wanted.items():
                ns = measure(args)
                runs[name].append(ns)
                print(f"# round {number + 1}, {name}: {ns:.1f} ns", file=sys.stderr)
    rows = [row(name, samples) for name, samples in runs.items()]
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"bench": "peers packets", "machine": bench.machine(), "rows": rows}, file, indent=1)
    print(f"\nns a packet of 64 B, {args.rounds} rounds of {args.seconds:g} s, load {os.getloadavg()[0]:.1f}")
    print("| case | ns | Mpackets/s | spread % |\n|---|---|---|---|")
    for one in rows:
        print(f"| {one['name']} | {one['ns']:.1f} | {1e3 / one['ns']:.2f} | {one['spread_percent']:.0f} |")


def row(name, samples):
    ns = statistics.median(samples)
    return {"name": name, "ns": ns, "runs": len(samples), "spread_percent": 100 * (max(samples) - min(samples)) / ns}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=(os.cpu_count() or 1) - 1)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        sys.exit(f"packets.py: {error}")
