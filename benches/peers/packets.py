#!/usr/bin/env python3
"""Chains over packets in memory: Weft beside DPDK testpmd, Open vSwitch with DPDK and FastClick, interleaved in one run;
and gateways between network namespaces: the kernel's own beside Weft's on packet sockets and XDP (between.py).

usage: packets.py [--json FILE] [--seconds 2] [--rounds 3] [--core 1] [--fastclick PATH] [NAME ...]

NAME is a part of a case's name. A round runs every case once (A B C A B C ...), each in processes of its own; the table
has medians over the rounds. All figures are CPU time of the one core that does the work, a packet of 64 B, with the
program's own source and sink in memory: the schedulers' count of the worker thread (testpmd, OVS), and of the
process while packets run (Weft, FastClick); between namespaces, what a packet costs beyond a wire. FastClick runs if it is
given: the user-level binary, with the elements of its DPDK-less build. Needs root, and 1,024 huge pages of 2 MiB for the peers in memory, which it asks the kernel
for and gives back; `setup-packets.sh` installs the peers.
"""

import argparse
import contextlib
import glob
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import bench
import between
import peers

INTO = os.path.join(peers.INTO, "packets")
HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
HUGE_PAGES_MIN = 1024
OVS = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
FRAME_BYTES = 60
# The network outside of the tunnel, which no machine has: RFC 2544, appendix C.2.2.
OUTSIDE = "198.18.77"
WARM_UP_S = 5
ANSWER_S_MAX = 40
# Batches of 64 that Weft runs a second and more, roughly.
BATCHES_A_SECOND = 60_000
# Packets that FastClick runs a second of measuring.
CLICK_PACKETS_A_SECOND = 2_000_000

BETWEEN = {"router": "1,000 routes", "firewall": "firewall of 200 and 1,000 routes", "vxlan": "VXLAN gateway"}

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
        case(f"fastclick, {n} Counter{plural}", "fastclick")(lambda args, n=n: click(args, ["Counter"] * n))
    for n, name in ((1, "firewall of 200"), (4, "4 firewalls of 200")):
        case(f"weft, {name}", "weft")(lambda args, name=name: weft(args, name))
        case(f"fastclick, {name}", "fastclick")(lambda args, n=n: click(args, [ip_filter(at) for at in range(n)]))
    case("weft, vxlan_gateway", "weft")(lambda args: weft(args, "vxlan_gateway"))
    case("ovs, vxlan push", "ovs")(lambda args: ovs_tunnel(args, "vxlan"))
    case("weft, gtpu_gateway", "weft")(lambda args: weft(args, "gtpu_gateway"))
    case("ovs, gtpu push", "ovs")(lambda args: ovs_tunnel(args, "gtpu"))
    case("weft, nsh_classifier", "weft")(lambda args: weft(args, "nsh_classifier"))
    case("ovs, nsh push", "ovs")(lambda args: ovs_with(args, 10_000, Switch.classify))
    for flows, told in ((1, "1 flow"), (10_000, "10k flows"), (100_000, "100k flows")):
        name = f"gateway of 4 tables, {told}"
        case(f"weft, {name}", "weft")(lambda args, name=name: weft(args, name))
        case(f"ovs, {name}", "ovs")(lambda args, flows=flows: ovs(args, 4, flows))
    for kind, told in BETWEEN.items():
        needs = "iptables" if kind == "firewall" else "kernel"
        name = f"kernel_{kind}"
        case(f"kernel, {told}", needs)(
            lambda args, name=name: between.beyond_wire(args, lambda world: getattr(world, name)())
        )
        for driver, on in (("packet", "packet sockets"), ("xdp", "XDP")):
            case(f"weft on {on}, {told}", "between")(
                lambda args, kind=kind, driver=driver: between.beyond_wire(
                    args, lambda world: world.weft(peers.WEFT, driver, kind)
                )
            )


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


# ---- FastClick: a source that makes packets, elements, a sink ----


def click(args, elements):
    """Processor time of a long run less that of a short one, a packet: starting and reading the text cancel out."""
    short = int(CLICK_PACKETS_A_SECOND * args.seconds / 10)
    (cpu, out), (cpu_short, out_short) = (click_run(args, elements, n) for n in (10 * short, short))
    if out <= out_short:
        raise RuntimeError(f"fastclick let {out} packets pass, and {out_short} of a tenth of them")
    return 1e9 * (cpu - cpu_short) / (out - out_short)


def click_run(args, elements, packets):
    with tempfile.NamedTemporaryFile("w", suffix=".click", dir=INTO) as file:
        file.write(click_text(elements, packets))
        file.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = pinned(args, [args.fastclick, file.name, "-h", "out.count"])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = done.stdout + done.stderr
    counts = [int(word) for word in done.stdout.split() if word.isdigit()]
    if done.returncode or not counts:
        raise RuntimeError(f"{args.fastclick}: {told.strip()[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, counts[-1]


def click_text(elements, packets):
    """10,000 flows of UDP over IPv4, and a header that is marked once for all elements."""
    source = f"FastUDPFlows(RATE 0, LIMIT {packets}, LENGTH {FRAME_BYTES}, SRCETH 02:00:00:00:00:01, "
    source += "DSTETH 02:00:00:00:00:02, SRCIP 10.0.0.1, DSTIP 11.0.0.1, FLOWS 10000, FLOWSIZE 1000000000, STOP true)"
    chain = " -> ".join([source, "MarkIPHeader(14)", *elements, "out :: Counter", "Discard"])
    return f"{chain};\n"


def ip_filter(nth):
    """200 rules, another set for each place of a chain, of which the last lets all pass."""
    deny = (f"deny src host 192.168.{nth}.{at} and dst port {6000 + at}" for at in range(199))
    return f"IPFilter({', '.join(deny)}, allow all)"


# ---- OVS: packets of a file in memory, tables of which the first has a rule for each flow ----


def ovs(args, tables, flows):
    return ovs_with(args, flows, lambda switch: switch.fill(tables, flows))


def ovs_tunnel(args, kind):
    """10,000 flows, all in one tunnel to one peer."""
    return ovs_with(args, 10_000, lambda switch: switch.tunnel(kind), sink="br-phy")


def ovs_with(args, flows, set_up, sink="br0"):
    switch = Switch(args)
    try:
        switch.start()
        packets = os.path.join(INTO, f"{flows}.pcap")
        write_flows(packets, flows)
        return switch.run(packets, args.seconds, lambda: set_up(switch), sink)
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

    def tunnel(self, kind):
        """All that comes leaves in a tunnel, by a bridge that has the address outside and the sink."""
        bridge = ["set", "bridge", "br-phy", "datapath_type=netdev", "fail-mode=standalone"]
        self.vsctl("--may-exist", "add-br", "br-phy", "--", *bridge)
        for argv in (["ip", "addr", "replace", f"{OUTSIDE}.1/24", "dev", "br-phy"], ["ip", "link", "set", "br-phy", "up"]):
            self.do(*argv)
        to = [f"options:remote_ip={OUTSIDE}.2", "options:key=7", "ofport_request=3"]
        self.vsctl("add-port", "br0", "tun0", "--", "set", "interface", "tun0", f"type={kind}", *to)
        control = f"{self.folder}/ovs-vswitchd.ctl"
        self.do("ovs-appctl", "-t", control, "tnl/arp/set", "br-phy", f"{OUTSIDE}.2", "02:00:00:00:00:02")
        self.do("ovs-ofctl", "add-flow", f"{self.folder}/br0.mgmt", "actions=output:3")
        self.do("ovs-ofctl", "add-flow", f"{self.folder}/br-phy.mgmt", "in_port=LOCAL,actions=output:2")

    def classify(self):
        """All that comes gets a network service header of one path."""
        then = ["encap(nsh(md_type=2))", "set_field:42->nsh_spi", "set_field:3->nsh_si", "encap(ethernet)"]
        then += ["set_field:02:00:00:00:00:02->eth_dst", "set_field:02:00:00:00:00:01->eth_src", "output:2"]
        flow = f"udp,actions={','.join(then)}"
        self.do("ovs-ofctl", "-O", "OpenFlow13", "add-flow", f"{self.folder}/br0.mgmt", flow)

    def run(self, packets, seconds, set_up, to):
        if to != "br0":
            bridge = ["set", "bridge", to, "datapath_type=netdev", "fail-mode=standalone"]
            self.vsctl("add-br", to, "--", *bridge)
        sink = "options:dpdk-devargs=net_null9,no-rx=1,size=64"
        self.vsctl("add-port", to, "s0", "--", "set", "interface", "s0", "type=dpdk", sink, "ofport_request=2")
        set_up()
        source = f"options:dpdk-devargs=net_pcap0,rx_pcap={packets},infinite_rx=1"
        self.vsctl("add-port", "br0", "p0", "--", "set", "interface", "p0", "type=dpdk", source, "ofport_request=1")
        time.sleep(WARM_UP_S)
        worker = worker_of(self.daemon.pid, "pmd-c")
        cpu, count = run_ns(worker), self.received()
        time.sleep(seconds)
        cpu, count = run_ns(worker) - cpu, self.received() - count
        if count <= 0:
            raise RuntimeError("ovs receives nothing")
        # To drop is cheaper than to send.
        told = self.do("ovs-ofctl", "-O", "OpenFlow15", "dump-ports", f"{self.folder}/{to}.mgmt", "2")
        sent = int(re.search(r"tx pkts=(\d+)", told).group(1))
        if sent < count / 2:
            raise RuntimeError(f"ovs sent {sent} packets of {count}")
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
        # The devices of bridges outlive the switch, with their addresses.
        for bridge in ("br-phy", "br0"):
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                self.vsctl("--if-exists", "del-br", bridge)
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


def missing(args):
    absent = {}
    if not args.fastclick:
        absent["fastclick"] = "give its binary: --fastclick PATH"
    elif not shutil.which(args.fastclick):
        absent["fastclick"] = f"{args.fastclick} cannot be run"
    if not os.access(peers.WEFT, os.X_OK):
        absent["weft"] = f"there is no {peers.WEFT}: make build"
    if os.geteuid():
        return absent | dict.fromkeys(("testpmd", "ovs", "kernel", "iptables", "between"), "it needs root")
    absent |= between.missing()
    absent |= {"between": absent[name] for name in ("weft", "kernel") if name in absent}
    if not shutil.which("dpdk-testpmd"):
        absent["testpmd"] = "dpdk-testpmd is not installed: benches/peers/setup-packets.sh"
    if not os.path.exists(OVS):
        absent["ovs"] = f"{OVS} is not installed: benches/peers/setup-packets.sh"
    return absent


# ---- the rounds ----


def main():
    args = arguments()
    # Namespaces and huge pages go however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("packets.py: ended"))
    add_cases()
    os.makedirs(INTO, exist_ok=True)
    absent = missing(args)
    for name, reason in absent.items():
        print(f"# {name}: skipped, {reason}", file=sys.stderr)
    wanted = {
        name: measure
        for name, (measure, needs) in CASES.items()
        if needs not in absent and (not args.names or any(part in name for part in args.names))
    }
    if "between" in {CASES[name][1] for name in wanted}:
        print("# between namespaces: nothing else should use networks meanwhile", file=sys.stderr)
    needs_pages = any(CASES[name][1] in ("testpmd", "ovs") for name in wanted)
    runs = {name: [] for name in wanted}
    with huge_pages() if needs_pages else contextlib.nullcontext():
        for number in range(args.rounds):
            for name, measure in wanted.items():
                try:
                    ns = measure(args)
                except between.Lost as why:
                    print(f"# round {number + 1}, {name}: left out, {why}", file=sys.stderr)
                    continue
                runs[name].append(ns)
                print(f"# round {number + 1}, {name}: {ns:.1f} ns", file=sys.stderr)
    rows = [row(name, samples) for name, samples in runs.items() if samples]
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"bench": "peers packets", "machine": bench.machine(), "rows": rows}, file, indent=1)
    print(f"\nns of CPU a packet of 64 B, {args.rounds} rounds of {args.seconds:g} s, load {os.getloadavg()[0]:.1f}")
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
    parser.add_argument("--fastclick", metavar="PATH", help="the user-level binary of FastClick")
    parser.add_argument("--core", type=int, default=(os.cpu_count() or 1) - 1)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        sys.exit(f"packets.py: {error}")
