"""One server under test: started pinned to its CPU, checked for the right answer, ended with all its children."""
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time

from .machine import BENCHES, BIN, LAB, ROOT, favour, raise_limits, read, tree

PEERS = os.path.join(BENCHES, "peers")
WWW = os.path.join(LAB, "www")

# The request line and headers of the well-known public benchmark, one smaller and one larger set.
HEADERS = {
    "minimal": [],
    "usual": ["Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7",
              "Connection: keep-alive"],
    "browser": ["User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
                "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
                "Accept-Language: en-GB,en;q=0.5", "Accept-Encoding: gzip, deflate, br",
                "Cookie: sid=0123456789abcdef0123456789abcdef; theme=dark", "Connection: keep-alive",
                "Upgrade-Insecure-Requests: 1", "Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate",
                "Sec-Fetch-Site: none"],
}


def target():
    """Where cargo puts the project's own build."""
    out = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        return json.loads(out.stdout)["target_directory"]
    except (ValueError, KeyError):
        return os.path.join(ROOT, "target")


def program():
    """The project's own release build."""
    return os.path.join(target(), "release", "shardlet")


def named(name, path=os.path.join(BENCHES, "servers.json")):
    """The entry of this name."""
    with open(path) as f:
        return next(s for s in json.load(f)["servers"] if s["name"] == name)


class Server:
    """A running server. `spec` is its entry of servers.json."""

    def __init__(self, spec, port, opt):
        self.spec, self.port, self.opt = spec, port, opt
        self.name, self.group = spec["name"], spec.get("group", "ours")
        self.proc = None
        self.pids = []

    def places(self, run):
        """What `{name}` stands for in a command."""
        jars = ("server", "servlet", "security", "util", "http", "io", "util-ajax")
        jetty = [f"/usr/share/java/jetty9-{jar}.jar" for jar in jars] + ["/usr/share/java/servlet-api-4.0.1.jar"]
        return {"lab": LAB, "bin": BIN, "run": run, "root": WWW, "port": str(self.port), "peers": PEERS,
                "shardlet": self.opt.program, "jetty_cp": ":".join(jetty), "tomcat_cp": "/usr/share/java/*"}

    def command(self):
        """The command line and the folder it runs in, configuration files written."""
        run = os.path.join(LAB, "run", re.sub(r"\W+", "-", self.name) + f"-{self.port}")
        os.makedirs(run, exist_ok=True)
        for out, src in self.spec.get("conf", {}).items():
            with open(os.path.join(PEERS, "conf", src)) as f:
                text = f.read()
            for k, x in (("@RUN@", run), ("@PORT@", str(self.port)), ("@ROOT@", WWW)):
                text = text.replace(k, x)
            with open(os.path.join(run, out), "w") as f:
                f.write(text)
        cmd = self.spec["cmd"]
        for k, x in self.places(run).items():
            cmd = cmd.replace("{" + k + "}", x)
        return shlex.split(cmd), run

    def missing(self):
        """The program that is not on this machine, or None."""
        program = self.command()[0][0]
        return None if shutil.which(program) else program

    def spawn(self):
        """Starts the process and does not wait for it to listen."""
        cmd, run = self.command()
        env = dict(os.environ, PORT=str(self.port), ROOT=WWW, RUN=run, **self.spec.get("env", {}))

        def pre():
            os.sched_setaffinity(0, set(self.spec.get("cpus", [self.opt.server_cpu])))
            raise_limits()
            favour(self.opt.nice)

        self.log = open(os.path.join(run, "out.log"), "w")
        self.proc = subprocess.Popen(cmd, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                     preexec_fn=pre, start_new_session=True, cwd=run)

    def start(self):
        self.spawn()
        end = time.time() + 20
        while time.time() < end and self.proc.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
                time.sleep(0.1)
                if self.proc.poll() is not None:
                    break  # somebody else answers on this port
                self.pids = tree(self.proc.pid)
                return
            except OSError:
                time.sleep(0.05)
        log = read(self.log.name)[-300:]
        self.stop()
        raise RuntimeError(f"{self.name}: did not start: {log}")

    def refresh(self):
        self.pids = tree(self.proc.pid)
        return self.pids

    def stop(self):
        if not self.proc:
            return
        pids = tree(self.proc.pid)
        for sig, wait in ((signal.SIGTERM, 1.5), (signal.SIGKILL, 3)):
            for p in pids:
                try:
                    os.kill(p, sig)
                except ProcessLookupError:
                    pass
            try:
                self.proc.wait(wait)
            except subprocess.TimeoutExpired:
                continue
            # children that outlive their parent are no longer under it: look by pid
            end = time.time() + wait
            while time.time() < end and any(os.path.exists(f"/proc/{p}") for p in pids):
                time.sleep(0.05)
            if not any(os.path.exists(f"/proc/{p}") for p in pids):
                break
        self.proc = None


def raw_request(path, headers):
    return ("GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n" % (path, "".join(h + "\r\n" for h in headers))).encode()


def read_responses(s, n):
    """Reads n responses that have a Content-Length; gives [(head, body)]."""
    buf, out = b"", []
    while len(out) < n:
        while b"\r\n\r\n" not in buf:
            d = s.recv(65536)
            if not d:
                raise OSError("closed early")
            buf += d
        head, buf = buf.split(b"\r\n\r\n", 1)
        m = re.search(rb"(?im)^content-length:\s*(\d+)", head)
        if not m:
            raise OSError("no Content-Length")
        k = int(m.group(1))
        while len(buf) < k:
            d = s.recv(65536)
            if not d:
                raise OSError("closed early")
            buf += d
        out.append((head, buf[:k]))
        buf = buf[k:]
    return out


def check(srv, opt):
    """Right answer, kept-open connection, pipelining?"""
    r = {"ok": False, "pipeline": False}
    try:
        s = socket.create_connection(("127.0.0.1", srv.port), 5)
        s.settimeout(5)
        q = raw_request("/plaintext", HEADERS[opt.request])
        for _ in range(2):
            s.sendall(q)
            (head, body), = read_responses(s, 1)
        t = head.decode("latin-1")
        ct = re.search(r"(?im)^content-type:\s*(\S+)", t)
        # A folder of ours knows no type of a name without an ending.
        types = ("text/plain", "application/octet-stream") if srv.spec.get("static") else ("text/plain",)
        right = t.startswith("HTTP/1.1 200") and body == b"Hello, World!"
        r.update(ok=right and bool(ct and ct.group(1).startswith(types)), bytes=len(head) + 4 + len(body),
                 date=bool(re.search(r"(?im)^date:", t)), server=bool(re.search(r"(?im)^server:", t)))
        s.sendall(q * 16)
        r["pipeline"] = all(b == b"Hello, World!" for _, b in read_responses(s, 16))
        s.close()
    except OSError as e:
        r["error"] = str(e)
    return r


def hold_open(port, count, opt):
    """Connections that have had one answer each and then stay open without a word, and how many could not be had."""
    request = raw_request("/plaintext", HEADERS[opt.request])
    held, failed = [], 0
    while len(held) < count and failed <= 50:
        s = socket.socket()
        s.settimeout(10)
        try:
            s.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            s.bind((f"127.0.0.{2 + len(held) % 8}", 0))
            s.connect(("127.0.0.1", port))
            s.sendall(request)
            read_responses(s, 1)
            held.append(s)
        except OSError:
            failed += 1
            s.close()
    return held, failed
