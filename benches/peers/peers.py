"""The programs under measurement: how each is configured and started, and what it has used."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
INTO = os.environ.get("WEFT_PEERS", "/tmp/weft-peers")
BIN = os.path.join(INTO, "bin")
RUN = os.path.join(INTO, "run")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
WEFT = os.environ.get("WEFT", os.path.join(TARGET, "release", "weft"))

# Below the ephemeral ports. The network files say the first two again.
SERVER, PROXY, ADMIN = 7151, 7162, 7190
STREAMS_MAX = 1000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_S_MAX = 10


class Process:
    """A program in a process group of its own, ended with it when the `with` block ends."""

    def __init__(self, argv, port, env=None, log="log"):
        if _answers(port):
            raise RuntimeError(f"another program answers on port {port}; end it first")
        self.log_path = os.path.join(RUN, f"{os.path.basename(argv[0])}.{log}")
        with open(self.log_path, "wb") as log_file:
            env = dict(os.environ, **(env or {}))
            self.child = subprocess.Popen(
                argv, stdout=log_file, stderr=log_file, cwd=RUN, start_new_session=True, env=env
            )
        try:
            self._wait_for(port)
        except BaseException:
            self.__exit__()
            raise

    def _wait_for(self, port):
        end = time.monotonic() + START_S_MAX
        while time.monotonic() < end and self.child.poll() is None:
            if _answers(port):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.child.args[0]} does not answer on port {port}; see {self.log_path}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, sent)
                self.child.wait(3)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.child.wait()

    def cpu_s(self):
        """User and system time of the process and its threads so far, in seconds."""
        with open(f"/proc/{self.child.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def server():
    return Process([f"{BIN}/echoserver", "-listen", f"127.0.0.1:{SERVER}"], SERVER, {"GOMAXPROCS": "1"})


def haproxy(chain):
    rules = """
  log stdout len 512 format raw local0
  log-format "%t %[capture.req.hdr(0)] %HM %HP req=%U resp=%B %ST %Ta %s"
  capture request header user len 16
  http-request return status 403 if { req.hdr(user) -m str u7 }
  http-request return status 503 if { rand(100) lt 5 }
"""
    config = f"""global
  nbthread 1
  tune.h2.max-concurrent-streams {STREAMS_MAX}
defaults
  mode http
  timeout connect 5s
  timeout client 120s
  timeout server 120s
frontend in
  bind 127.0.0.1:{PROXY} proto h2{rules if chain else ""}
  default_backend echo
backend echo
  server echo 127.0.0.1:{SERVER} proto h2
"""
    return Process(["haproxy", "-db", "-f", _write("haproxy.cfg", config)], PROXY, log="access.log")


def envoy(chain):
    def typed(name, **fields):
        return {"@type": f"type.googleapis.com/envoy.{name}", **fields}

    def address(port):
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    http2 = {"max_concurrent_streams": STREAMS_MAX}
    deny = {
        "permissions": [{"any": True}],
        "principals": [{"header": {"name": "user", "string_match": {"exact": "u7"}}}],
    }
    abort = {"grpc_status": 14, "percentage": {"numerator": 5, "denominator": "HUNDRED"}}
    filters = [
        typed("extensions.filters.http.rbac.v3.RBAC", rules={"action": "DENY", "policies": {"deny": deny}}),
        typed("extensions.filters.http.fault.v3.HTTPFault", abort=abort),
    ]
    line = "%START_TIME% %REQ(USER)% %REQ(:PATH)% req=%BYTES_RECEIVED% resp=%BYTES_SENT% %GRPC_STATUS% %DURATION%\n"
    log = typed(
        "extensions.access_loggers.file.v3.FileAccessLog",
        path=os.path.join(RUN, "envoy.access.log"),
        log_format={"text_format_source": {"inline_string": line}},
    )
    router = typed("extensions.filters.http.router.v3.Router")
    route = {"match": {"prefix": "/"}, "route": {"cluster": "echo", "timeout": "0s"}}
    manager = typed(
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="in",
        codec_type="HTTP2",
        http2_protocol_options=http2,
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=[{"name": f["@type"], "typed_config": f} for f in (filters if chain else []) + [router]],
        access_log=[{"name": "file", "typed_config": log}] if chain else [],
    )
    protocol = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = typed("extensions.upstreams.http.v3.HttpProtocolOptions")
    options["explicit_http_config"] = {"http2_protocol_options": http2}
    limits = {"max_connections": 10000, "max_requests": 10000, "max_pending_requests": 10000}
    cluster = {
        "name": "echo",
        "type": "STATIC",
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [limits]},
        "typed_extension_protocol_options": {protocol: options},
        "load_assignment": {
            "cluster_name": "echo",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(SERVER)}}]}],
        },
    }
    chains = [{"filters": [{"name": "http", "typed_config": manager}]}]
    listener = {"name": "in", "address": address(PROXY), "filter_chains": chains}
    config = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    path = _write("envoy.json", json.dumps(config, indent=1))
    argv = [f"{BIN}/envoy", "-c", path, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    return Process(argv, PROXY)


def weft(chain):
    network = os.path.join(HERE, "adn.weft" if chain else "plain.weft")
    return Process([WEFT, "run", network, "--admin", f"127.0.0.1:{ADMIN}"], PROXY)


def missing():
    """What cannot be measured here: the name of each program and why."""
    reasons = {}
    if not shutil.which("haproxy"):
        reasons["haproxy"] = "not installed (setup.sh installs it with root and apt)"
    if not os.access(f"{BIN}/envoy", os.X_OK):
        reasons["envoy"] = "not installed (setup.sh installs it)"
    if not os.access(WEFT, os.X_OK):
        reasons["weft"] = f"there is no {WEFT}: `make build`, or set WEFT"
    elif "run" not in subprocess.run([WEFT, "help"], capture_output=True, text=True).stdout:
        reasons["weft"] = f"{WEFT} cannot run a network"
    return reasons


def weft_syscalls():
    """System calls that Weft counts itself, or None where it does not say."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN}/metrics", timeout=2) as metrics:
            lines = metrics.read().decode().splitlines()
    except OSError:
        return None
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("weft_syscalls_total")]
    return sum(values) if values else None


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
        return True
    except OSError:
        return False


def _write(name, text):
    path = os.path.join(RUN, name)
    with open(path, "w") as file:
        file.write(text)
    return path
