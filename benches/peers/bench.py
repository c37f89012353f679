#!/usr/bin/env python3
"""One gRPC client and server, directly and through Weft, HAProxy and Envoy, interleaved in one run.

usage: bench.py [--json FILE] [--seconds 5] [--rounds 3] [--in-flight 128,1] [NAME ...]

NAME is a part of a case's name; the direct case always runs, as the ratios are to it. A round runs every case once
(A B C A B C ...), so that a busy neighbour disturbs all alike; the table has medians over the rounds. Proxies have
one worker, client and server one thread each. CPU is user and system time of the proxy process a call. The calls
a system call come from Weft's own counter, and for the peers from a short run of its own under strace, which
slows them: read them as a hint.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

import peers

CASES = {
    "direct": None,
    "weft plain": lambda: peers.weft(chain=False),
    "weft adn": lambda: peers.weft(chain=True),
    "haproxy plain": lambda: peers.haproxy(chain=False),
    "haproxy chain": lambda: peers.haproxy(chain=True),
    "envoy plain": lambda: peers.envoy(chain=False),
    "envoy chain": lambda: peers.envoy(chain=True),
}
WARM_UP_S = 1
STRACE_S = 2
METRICS = {
    "calls_per_s": ("calls/s", "{:,.0f}"),
    "of_direct": ("of direct", "{:.2f}"),
    "mean_us": ("mean us", "{:,.0f}"),
    "mean_of_direct": ("x direct", "{:.2f}"),
    "p50_us": ("p50 us", "{:,.0f}"),
    "p99_us": ("p99 us", "{:,.0f}"),
    "cpu_us_per_call": ("CPU us/call", "{:.2f}"),
    "cpu_of_haproxy": ("x HAProxy", "{:.2f}"),
    "calls_per_syscall": ("calls/syscall", "{:.2f}"),
    "not_ok_percent": ("not OK %", "{:.1f}"),
    "spread_percent": ("spread %", "{:.0f}"),
}


def main():
    args = arguments()
    absent = peers.missing()
    for name, reason in absent.items():
        print(f"# {name}: skipped, {reason}", file=sys.stderr)
    cases = {name: start for name, start in CASES.items() if is_wanted(name, args.names, absent)}
    rows = []
    for in_flight in args.in_flight:
        rows += measure(cases, in_flight, args)
    result = {"bench": "peers", "machine": machine(), "rows": rows}
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)
    for in_flight in args.in_flight:
        print(f"\n{in_flight} in flight, {args.rounds} rounds of {args.seconds} s")
        print_table([row for row in rows if row["in_flight"] == in_flight])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-flight", type=lambda text: [int(n) for n in text.split(",")], default=[128, 1])
    return parser.parse_args()


def is_wanted(name, wanted, absent):
    if name == "direct":
        return True
    return name.split()[0] not in absent and (not wanted or any(part in name for part in wanted))


def measure(cases, in_flight, args):
    """Runs the rounds at one number of calls in flight; one row of medians a case."""
    runs = {name: [] for name in cases}
    with peers.server():
        for number in range(args.rounds):
            for name, start in cases.items():
                run = run_once(start, in_flight, args.seconds)
                runs[name].append(run)
                told = f"# {in_flight} in flight, round {number + 1}, {name}: {run['calls_per_s']:,.0f} calls/s"
                print(told, file=sys.stderr)
        syscalls = {name: strace(start, in_flight) for name, start in cases.items() if start}
    rows = [summary(name, in_flight, of_case, syscalls.get(name)) for name, of_case in runs.items()]
    compare(rows)
    return rows


def run_once(start, in_flight, seconds):
    if start is None:
        return load(peers.SERVER, in_flight, seconds)
    with start() as proxy:
        cpu, syscalls = proxy.cpu_s(), peers.weft_syscalls()
        run = load(peers.PROXY, in_flight, seconds)
        run["cpu_us_per_call"] = 1e6 * (proxy.cpu_s() - cpu) / run["calls"]
        if syscalls is not None:
            run["calls_per_syscall"] = run["calls"] / max(1, peers.weft_syscalls() - syscalls)
        return run


def load(port, in_flight, seconds):
    argv = [f"{peers.BIN}/echoload", "-target", f"127.0.0.1:{port}", "-in-flight", str(in_flight)]
    argv += ["-duration", f"{seconds}s", "-warm-up", f"{WARM_UP_S}s"]
    env = dict(os.environ, GOMAXPROCS="1")
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=seconds + WARM_UP_S + 60)
    if done.returncode != 0:
        raise RuntimeError(f"the load did not run: {done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout)


def strace(start, in_flight):
    """Calls for each system call of the proxy under strace; None where strace cannot attach."""
    if not shutil.which("strace"):
        return None
    path = os.path.join(peers.RUN, "strace.txt")
    with start() as proxy:
        argv = ["strace", "-f", "-c", "-o", path, "-p", str(proxy.child.pid)]
        tracer = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        if tracer.poll() is not None:
            return None
        run = load(peers.PROXY, in_flight, STRACE_S)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
    with open(path) as file:
        totals = [line.split() for line in file if line.rstrip().endswith(" total")]
    # "100.00 SECONDS USECS CALLS [ERRORS] total"
    return run["calls"] / int(totals[-1][3]) if totals else None


def summary(name, in_flight, runs, calls_per_syscall):
    def median(metric):
        return statistics.median(run[metric] for run in runs)

    rates = [run["calls_per_s"] for run in runs]
    n_calls = sum(run["measured"] for run in runs)
    n_ok = sum(run["statuses"].get("OK", 0) for run in runs)
    row = {"name": name, "in_flight": in_flight, "runs": len(runs)}
    row.update({metric: median(metric) for metric in ("calls_per_s", "mean_us", "p50_us", "p99_us")})
    for metric in ("cpu_us_per_call", "calls_per_syscall"):
        if all(metric in run for run in runs):
            row[metric] = median(metric)
    if calls_per_syscall is not None:
        row.setdefault("calls_per_syscall", calls_per_syscall)
    row["not_ok_percent"] = 100 * (n_calls - n_ok) / n_calls
    row["spread_percent"] = 100 * (max(rates) - min(rates)) / statistics.median(rates)
    return row


def compare(rows):
    """Adds the ratios to the direct row, and of Weft's rows to HAProxy's of the same kind."""
    by_name = {row["name"]: row for row in rows}
    direct = by_name["direct"]
    against = {"weft plain": "haproxy plain", "weft adn": "haproxy chain"}
    for row in rows:
        row["of_direct"] = row["calls_per_s"] / direct["calls_per_s"]
        row["mean_of_direct"] = row["mean_us"] / direct["mean_us"]
        peer = by_name.get(against.get(row["name"]))
        if peer:
            row["cpu_of_haproxy"] = row["cpu_us_per_call"] / peer["cpu_us_per_call"]


def machine():
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }


def print_table(rows):
    metrics = {metric: shown for metric, shown in METRICS.items() if any(metric in row for row in rows)}
    print("| through | " + " | ".join(title for title, _ in metrics.values()) + " |")
    print("|---" * (len(metrics) + 1) + "|")
    for row in rows:
        cells = [form.format(row[metric]) if metric in row else "" for metric, (_, form) in metrics.items()]
        print(f"| {row['name']} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"bench.py: {error}")
