"""Packets between two network namespaces of this machine: through the kernel's own gateways, and through Weft's.

A packet socket in one namespace sends bursts at a rate; in the other they are for nobody, so the kernel drops them as
soon as it has counted them. Between them is a wire (one veth pair), or a third namespace with a veth pair to each in
which the kernel or a node forwards. What is told is CPU time a packet beyond that of the wire: that of the system calls
that send, in which the kernel does all of its forwarding, of the node's threads, and of ksoftirqd, to which the kernel
leaves what becomes too much. Packets of others in ksoftirqd would count as well, so nothing else should use networks meanwhile.

Everything has the number of this process in its name and goes when a case ends, whatever comes of it.
"""

import ctypes
import glob
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import time

FRAME_BYTES = 60
BURST = 64
# A command may take so long.
RUN_MAX_S = 600
FLOWS = 4096
ROUTES = 1000
RULES = 200
# Below what the slowest way carries, and enough that a node does not wake for few.
PACKETS_A_SECOND = 400_000
BEHIND_S_MAX = 2e-3
LOST_MAX = 0.02
# Stretches of a round, of which the median counts: others use the machine as well.
STRETCH_S = 0.1
# Until a program has begun its work.
START_S = 2
# Until what is on its way has arrived.
REST_S = 0.02
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
NEXT_MAC = "02:00:00:00:00:99"
OWN = ("10.78.1.254", "10.78.2.254")
NEXT = "10.78.2.1"
STATION = "02:00:00:00:00:78"
NOBODY = bytes.fromhex("020000000077")


def prefix(at):
    """The network of a route: /24s that are spread like those of a routing table."""
    return f"{20 + at % 100}.{at * 37 % 251}.{at * 11 % 241}.0"


def frames(to_mac):
    """One of each flow, in an order that no table knows: UDP to addresses that all routes lead to."""
    dice, made = random.Random(1), []
    for flow in range(FLOWS):
        to = socket.inet_aton(prefix(flow % ROUTES))[:3] + bytes([1 + flow % 250])
        header = struct.pack("!BBHHHBBH", 0x45, 0, FRAME_BYTES - 14, 0, 0, 64, 17, 0) + b"\x0a\x4e\x01\x01" + to
        total = sum(struct.unpack("!10H", header))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        header = header[:10] + struct.pack("!H", ~total & 0xFFFF) + header[12:]
        udp = struct.pack("!HHHH", 1024 + flow, 5000 + flow % 16, FRAME_BYTES - 34, 0)
        made.append((to_mac + NOBODY + b"\x08\x00" + header + udp).ljust(FRAME_BYTES, b"\0"))
    dice.shuffle(made)
    return made


class Lost(Exception):
    """Not enough arrives to say what a packet costs: others use the machine."""


class World:
    """Two namespaces, and a third between them unless there is a wire."""

    def __init__(self, is_wire=False):
        ends = ("w", "x") if is_wire else ("a", "b", "m")
        self.names = [f"weft{os.getpid()}{end}" for end in ends]
        self.is_wire = is_wire
        self.node = None
        # Where the frames that are sent go; None is the middle itself.
        self.to = STATION if is_wire else None

    def __enter__(self):
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
                # What the kernel says of itself would be counted as packets.
                self.set(name, "net.ipv6.conf.default.disable_ipv6", 1)
            a, b = self.names[:2]
            if self.is_wire:
                run("ip", "-n", a, "link", "add", "a0", "type", "veth", "peer", "name", "b0", "netns", b)
            else:
                for end, inside, outside in ((a, "m0", "a0"), (b, "m1", "b0")):
                    run("ip", "-n", self.names[2], "link", "add", inside, "type", "veth", "peer", "name", outside, "netns", end)
                    run("ip", "-n", self.names[2], "link", "set", inside, "up")
            run("ip", "-n", a, "link", "set", "a0", "up")
            run("ip", "-n", b, "link", "set", "b0", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.node:
            self.node.terminate()
            try:
                self.node.wait(10)
            except subprocess.TimeoutExpired:
                self.node.kill()
                self.node.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.names = []

    def middle(self, *argv, **kind):
        return run("ip", "netns", "exec", self.names[2], *argv, **kind)

    def set(self, name, key, value):
        path = "/proc/sys/" + key.replace(".", "/")
        run("ip", "netns", "exec", name, "sh", "-c", f"[ ! -e {path} ] || echo {value} > {path}")

    def mac(self, device):
        return self.middle("cat", f"/sys/class/net/{device}/address").strip()

    # ---- what is between ----

    def kernel_router(self):
        """1,000 routes to one next hop, whose address is known."""
        for device, own in zip(("m0", "m1"), OWN):
            self.middle("ip", "addr", "add", f"{own}/24", "dev", device)
        self.set(self.names[2], "net.ipv4.ip_forward", 1)
        self.middle("ip", "neigh", "add", NEXT, "lladdr", NEXT_MAC, "dev", "m1", "nud", "permanent")
        lines = "".join(f"route add {prefix(at)}/24 via {NEXT} dev m1\n" for at in range(ROUTES))
        self.middle("ip", "-batch", "-", text=lines)

    def kernel_firewall(self):
        """The router, and 200 rules in front, of which the last lets all pass."""
        self.kernel_router()
        rules = [f"-A FORWARD -s 192.168.0.{at} -p udp --dport {6000 + at} -j DROP" for at in range(RULES - 1)]
        lines = ["*filter", ":FORWARD DROP [0:0]", *rules, "-A FORWARD -j ACCEPT", "COMMIT", ""]
        self.middle("iptables-legacy-restore", text="\n".join(lines))

    def kernel_vxlan(self):
        """A bridge with the one side and a VXLAN device, which sends all to one peer over the other."""
        self.to = STATION
        self.middle("ip", "addr", "add", f"{OWN[1]}/24", "dev", "m1")
        self.middle("ip", "neigh", "add", NEXT, "lladdr", NEXT_MAC, "dev", "m1", "nud", "permanent")
        kind = ["type", "vxlan", "id", "7", "local", OWN[1], "remote", NEXT, "dstport", "4789"]
        self.middle("ip", "link", "add", "vx0", *kind)
        self.middle("ip", "link", "add", "br0", "type", "bridge")
        for device in ("m0", "vx0"):
            self.middle("ip", "link", "set", device, "master", "br0")
        for device in ("vx0", "br0"):
            self.middle("ip", "link", "set", device, "up")

    def weft(self, binary, driver, element):
        """A node with one worker and a port on each side."""
        self.run_weft(binary, driver, getattr(self, f"weft_{element}")())

    def run_weft(self, binary, driver, text):
        """The same with this program, but for its ports."""
        path = f"/tmp/{self.names[2]}.weft"
        ports = f"CREATE PORT left ON {driver} 'm0';\nCREATE PORT right ON {driver} 'm1';\n"
        with open(path, "w") as file:
            file.write(ports + text)
        self.middle("ip", "link", "set", "lo", "up")
        try:
            self.start(binary, "run", path, "--workers", "1", "--table", "never")
        finally:
            os.remove(path)

    def start(self, *argv):
        """A program in the middle, which has begun its work."""
        begun = ["ip", "netns", "exec", self.names[2], *argv]
        kind = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.node = subprocess.Popen(begun, **kind)
        time.sleep(START_S)
        if self.node.poll() is not None:
            told = self.node.stdout.read().decode(errors="replace").strip()[-500:]
            raise RuntimeError(f"{os.path.basename(argv[0])}: {told}")

    def weft_router(self, before=""):
        rows = (
            f"({at}, '{prefix(at)}/24', 24, 'right', '{NEXT_MAC}', '{self.mac('m1')}')" for at in range(ROUTES)
        )
        text = "IMPORT 'library/elements/router.weft';\n"
        chain = f"CREATE CHAIN core ON PORT left AS {before}router; END;\n"
        return text + chain + "INSERT INTO core.router.routes VALUES " + ",\n".join(rows) + ";\n"

    def weft_firewall(self):
        columns = "(rank, src, protocol, dst_low, dst_high, allow)"
        rows = [f"({at}, '192.168.0.{at}/32', 17, {6000 + at}, {6000 + at}, FALSE)" for at in range(RULES - 1)]
        rows.append(f"({RULES}, NULL, NULL, 0, 65535, TRUE)")
        text = "IMPORT 'library/elements/firewall.weft';\n" + self.weft_router("firewall -> ")
        return text + f"INSERT INTO core.firewall.rules {columns} VALUES " + ",\n".join(rows) + ";\n"

    def weft_vxlan(self):
        self.to = STATION
        told = f"inside = 'left', outside = 'right', vni = 7, own_ip = '{OWN[1]}', peer = '{NEXT}'"
        told += f", own_mac = '{self.mac('m1')}', next_mac = '{NEXT_MAC}'"
        text = "IMPORT 'library/elements/vxlan_gateway.weft';\n"
        return text + f"CREATE CHAIN site ON PORT left, right AS vxlan_gateway ({told}); END;\n"

    # ---- what passes ----

    def sender(self, core):
        to = self.to or self.mac("m0")
        return Sender(self.names[0], "a0", frames(bytes.fromhex(to.replace(":", ""))), core)

    def stretch(self, sender):
        """CPU nanoseconds of a packet that arrives; None where too many are lost, which the others would pay for."""
        came, cpu = self.arrived(), self.cpu_ns()
        sent, sending = sender.send(STRETCH_S)
        time.sleep(REST_S)
        came, cpu = self.arrived() - came, self.cpu_ns() - cpu
        return (cpu + sending) / came if came >= sent * (1 - LOST_MAX) else None

    def arrived(self):
        path = "/sys/class/net/b0/statistics/rx_packets"
        return int(run("ip", "netns", "exec", self.names[1], "cat", path))

    def cpu_ns(self):
        # `ip` has become the node.
        tasks = glob.glob(f"/proc/{self.node.pid}/task/*") if self.node else []
        return sum(run_ns(task) for task in [*tasks, *soft_interrupts()])


class Sender:
    """Sends bursts from a namespace."""

    def __init__(self, namespace, device, made, core):
        self.socket = packet_socket(namespace, device)
        self.bursts = [burst(made[at : at + BURST]) for at in range(0, len(made), BURST)]
        self.cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        self.next = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.sched_setaffinity(0, self.cores)
        self.socket.close()

    def send(self, seconds):
        """Sends bursts at an even rate, which does not make up for a time without a core; gives how many packets went,
        and the CPU nanoseconds of the system calls."""
        began = due = time.monotonic()
        sent = cpu = 0
        while (now := time.monotonic()) < began + seconds:
            if now < due:
                time.sleep(due - now)
                continue
            due = max(due, now - BEHIND_S_MAX) + BURST / PACKETS_A_SECOND
            (messages, _), self.next = self.bursts[self.next], (self.next + 1) % len(self.bursts)
            cpu -= time.thread_time_ns()
            n = LIBC.sendmmsg(self.socket.fileno(), messages, BURST, 0)
            cpu += time.thread_time_ns()
            if n < 0:
                raise OSError(ctypes.get_errno(), "packets cannot be sent")
            sent += n
        return sent, cpu


def packet_socket(namespace, device, protocol=0):
    """A packet socket of this thread, which goes into the other namespace for as long as it takes to open it."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{namespace}") as there:
        enter(there)
        try:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, protocol)
            made.bind((device, 0))
            return made
        finally:
            enter(here)


def enter(file):
    if LIBC.setns(file.fileno(), CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a namespace cannot be entered")


class Piece(ctypes.Structure):
    _fields_ = [("start", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class Header(ctypes.Structure):
    """The kernel's `msghdr`, which is as long as its alignment makes it."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_len", ctypes.c_uint32),
        ("pieces", ctypes.POINTER(Piece)),
        ("n_pieces", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_len", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class Message(ctypes.Structure):
    """The kernel's `mmsghdr`."""

    _fields_ = [("header", Header), ("sent", ctypes.c_uint32)]


assert ctypes.sizeof(Message) == 64, "as the kernel has it"


def burst(made):
    """What sendmmsg(2) takes, and what has to stay as long."""
    messages, pieces = (Message * len(made))(), (Piece * len(made))()
    for at, frame in enumerate(made):
        pieces[at] = Piece(frame, len(frame))
        header = messages[at].header
        header.pieces, header.n_pieces = ctypes.pointer(pieces[at]), 1
    return messages, (pieces, made)


def soft_interrupts():
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            with open(path) as file:
                if file.read().startswith("ksoftirqd/"):
                    yield os.path.dirname(path)
        except OSError:
            pass


def run_ns(task):
    with open(f"{task}/schedstat") as file:
        return int(file.read().split()[0])


def run(*argv, text=None):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=RUN_MAX_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[:4])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def beyond_wire(args, set_up):
    """What a way costs beyond the wire: medians of stretches of both, in turn, so that who else uses the machine disturbs
    them alike."""
    with World(is_wire=True) as wire, World() as way:
        set_up(way)
        with wire.sender(args.core) as by_wire, way.sender(args.core) as by_way:
            way.stretch(by_way)
            both = [(wire.stretch(by_wire), way.stretch(by_way)) for _ in range(round(args.seconds / STRETCH_S))]
    costs = [[cost for cost in costs if cost] for costs in zip(*both)]
    if not all(costs):
        raise Lost("too many packets are lost")
    return statistics.median(costs[1]) - statistics.median(costs[0])


def missing():
    """Why the kernel cannot be measured, if it cannot; and its firewall."""
    absent = {}
    if not shutil.which("ip"):
        absent["kernel"] = "ip is not installed: benches/peers/setup-packets.sh"
    if not shutil.which("iptables-legacy-restore"):
        absent["iptables"] = "iptables is not installed: benches/peers/setup-packets.sh"
    return absent
