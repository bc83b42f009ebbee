#!/usr/bin/env python3
"""Sends the cases of the echo profile through nginx and haproxy to a shardlet that counts what it gets.

    differential.py BINARY [CATEGORY...]     default: framing chunked chunk-ext trailers smuggling headers host http10

A request that a proxy and the server behind it delimit differently is a smuggled one: then the server sees more (or
other) requests than the proxy forwarded. For each case, on a connection of its own: requests that the proxy says it
forwarded = requests that the server says it started or refused. A proxy that refuses forwards nothing, and then
nothing may arrive. Proxies that are not installed are left out with a word; exit status 1 if a count differs.
"""
import glob
import importlib.util
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT = ("framing", "chunked", "chunk-ext", "trailers", "smuggling", "headers", "host", "http10")
QUIET_SECONDS = (0.06, 1.0)
CASE_SECONDS = 2.0
SETTLE_SECONDS = 2.0
START_SECONDS = 10

NGINX = """daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.error;
events {{ worker_connections 256; }}
http {{
  log_format upstream '$upstream_addr'; access_log {log} upstream;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  upstream server {{ server 127.0.0.1:{server}; keepalive 4; }}
  server {{ listen 127.0.0.1:{port}; client_max_body_size 64m;
    location / {{ proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; }} }}
}}
"""
HAPROXY = """global
  maxconn 500
  log 127.0.0.1:{log_port} local0
defaults
  mode http
  timeout client 10s
  timeout server 10s
  timeout connect 5s
  retries 0
  log global
frontend f
  bind 127.0.0.1:{port}
  log-format "%b/%s"
  default_backend b
backend b
  http-reuse always
  server s 127.0.0.1:{server}
"""


def module(name):
    """Another script of this folder."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nginx:
    """Counts by its access log: one address for each request that it forwarded, several after a retry."""

    name = "nginx"

    def __init__(self, folder, server):
        self.port, self.log = free_port(), os.path.join(folder, "nginx.log")
        open(self.log, "w").close()
        config = os.path.join(folder, "nginx.conf")
        with open(config, "w") as file:
            file.write(NGINX.format(dir=folder, log=self.log, server=server, port=self.port))
        self.process = subprocess.Popen(["nginx", "-c", config], stderr=subprocess.DEVNULL)

    def forwarded(self):
        with open(self.log) as log:
            return sum(0 if line.strip() in ("", "-") else len(line.split(",")) for line in log)


class Haproxy:
    """Counts by the lines that it logs: they name the server if it forwarded."""

    name = "haproxy"

    def __init__(self, folder, server):
        self.port, self.count = free_port(), 0
        self.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.log.bind(("127.0.0.1", 0))
        config = os.path.join(folder, "haproxy.cfg")
        with open(config, "w") as file:
            file.write(HAPROXY.format(log_port=self.log.getsockname()[1], server=server, port=self.port))
        self.process = subprocess.Popen(["haproxy", "-f", config], stderr=subprocess.DEVNULL)

    def forwarded(self):
        while select.select([self.log], [], [], 0)[0]:
            self.count += self.log.recv(4096).rstrip(b"\n\0").endswith(b"b/s")
        return self.count


class Counted:
    """The server's own counters, asked for past the proxy. A refusal in the content belongs to a request that was
    started and is counted as that."""

    OF_CONTENT = ("body_timeout", "chunk_", "trailer")

    def __init__(self, port):
        self.port, self.asked = port, 0

    def requests(self):
        """Requests started and refused so far, without those that ask for the counters."""
        with socket.create_connection(("127.0.0.1", self.port), START_SECONDS) as client:
            client.sendall(b"GET /stats HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        self.asked += 1
        stats = json.loads(answer.split(b"\r\n\r\n", 1)[1])
        refused = sum(count for shard in stats["shards"] for reason, count in shard["rejected"].items()
                      if not reason.startswith(self.OF_CONTENT))
        return stats["started"] + refused - self.asked


def wait_until(holds, seconds):
    """Whether it held before the deadline."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def exchange(port, steps, expand, quiet):
    """Sends a case as it is, without its pauses, and reads until the proxy is quiet for so long or closes."""
    end = time.monotonic() + CASE_SECONDS
    with socket.create_connection(("127.0.0.1", port), CASE_SECONDS) as client:
        client.settimeout(CASE_SECONDS)
        try:
            for step in steps:
                if step == ["fin"]:
                    client.shutdown(socket.SHUT_WR)
                elif isinstance(step, str) or step[0] in ("rep", "seq", "cat"):
                    client.sendall(expand(step))
            while time.monotonic() < end and select.select([client], [], [], quiet)[0]:
                if not client.recv(65536):
                    return
        except OSError:
            return


def compare(proxy, counted, cases, expand):
    """Runs the cases; gives a line for each whose counts differ, and how many requests were forwarded. A client that
    gives up early looks like a difference on a slow machine, so such a case is repeated with more patience."""
    first = before = proxy.forwarded()
    arrived = counted.requests()
    differ = []
    for case in cases:
        for quiet in QUIET_SECONDS:
            exchange(proxy.port, case["send"], expand, quiet)
            agree = wait_until(lambda: proxy.forwarded() - before == counted.requests() - arrived, SETTLE_SECONDS)
            seen = (proxy.forwarded() - before, counted.requests() - arrived)
            before, arrived = before + seen[0], arrived + seen[1]
            if agree:
                break
        else:
            differ.append("%s %s: forwarded %d, arrived %d" % (proxy.name, case["id"], *seen))
    return differ, before - first


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    check, run = module("check"), module("run")
    wanted = sys.argv[2:] or DEFAULT
    cases = run.load(sorted(glob.glob(os.path.join(HERE, "cases", "*.jsonl"))))
    cases = [case for case in cases if case["cat"] in wanted and case["profile"] != "static" and not case.get("sweep")]
    server, port = check.start(sys.argv[1], ["demo"], "auto")
    differ = []
    try:
        for kind in (Nginx, Haproxy):
            if not shutil.which(kind.name):
                print("%s left out: it is not installed" % kind.name)
                continue
            differ += through(kind, port, cases, run.expand)
    finally:
        check.stop(server)
    print("\n".join(differ))
    sys.exit(1 if differ else 0)


def through(kind, port, cases, expand):
    """All cases through one proxy."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        proxy = kind(folder, port)
        try:
            if not wait_until(lambda: listens(proxy.port), START_SECONDS):
                return ["%s does not listen" % kind.name]
            start = time.monotonic()
            differ, forwarded = compare(proxy, Counted(port), cases, expand)
        finally:
            proxy.process.terminate()
            proxy.process.wait(START_SECONDS)
    print("%s: %d cases, %d requests forwarded, %d cases whose counts differ, %.0f s"
          % (kind.name, len(cases), forwarded, len(differ), time.monotonic() - start))
    return differ


if __name__ == "__main__":
    main()
