#!/usr/bin/env python3
"""Black-box HTTP/1.x conformance runner (python3 standard library only).

    run.py --host 127.0.0.1 --port 8080 [--profile echo|static] [--only CAT]
           [--case ID] [--json OUT] [--jobs N] [--scale X]
    run.py --make-root DIR        create the folder that a `static` target serves
    run.py --list                 print every case id

Exit status 0 only if every case that ran passed.

A case (one JSON object a line in cases/*.jsonl) says which bytes to send and
which outcomes are allowed; see README.md for the fields.
"""
import argparse
import concurrent.futures
import email.utils
import glob
import json
import os
import re
import select
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
T_RESP = 2.5      # s without progress before a missing response counts as missing
T_CLOSE = 1.5     # s allowed for a required close
T_IDLE = 0.45     # s of silence that counts as "still waiting for the rest"
T_GRACE = 0.10    # s to see a close before probing an open connection
T_SEND = 10.0     # s allowed to push one step out

# ------------------------------------------------------------------ static root
FILE = "".join("%04d abcdefghijklmn\n" % i for i in range(100)).encode()   # 2000 octets
BIG = bytes((i * 31 + (i >> 8) * 7 + 5) & 0xFF for i in range(1 << 20))
FILES = {
    "index.html": b"<!doctype html>\n<title>index</title>\n<p>conformance index\n",
    "file.txt": FILE,
    "big.bin": BIG,
    "empty.txt": b"",
    "a b.txt": b"name with a space\n",
    "future.txt": b"modified in the future\n",
    "sub/index.html": b"<!doctype html>\n<title>sub</title>\n<p>sub index\n",
    "sub/inner.txt": b"inner\n",
}
SECRET = b"CONFORMANCE-SECRET-OUTSIDE-ROOT"
MTIME = 1577934245                         # Thu, 02 Jan 2020 03:04:05 GMT
LM = "Thu, 02 Jan 2020 03:04:05 GMT"


def make_root(d):
    """DIR/www is what the server serves, DIR/secret.txt must stay unreachable."""
    www = os.path.join(d, "www")
    for name, data in FILES.items():
        p = os.path.join(www, name)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(data)
        t = MTIME if name != "future.txt" else time.time() + 30 * 86400
        os.utime(p, (t, t))
    with open(os.path.join(d, "secret.txt"), "wb") as f:
        f.write(SECRET + b"\n")
    print("serve %s" % www)


# ------------------------------------------------------------------ responses
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
STATUS = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9][0-9]) ([^\x00-\x08\x0a-\x1f\x7f]*)\Z")
IMF = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|"
                 r"Oct|Nov|Dec) \d{4} \d\d:\d\d:\d\d GMT\Z")
ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"\Z')


class Resp:
    __slots__ = ("status", "version", "headers", "body", "complete", "interim", "errors", "lenmode")

    def __init__(self):
        self.status, self.version, self.headers = 0, "", []
        self.body, self.complete, self.interim, self.errors = bytearray(), False, [], []
        self.lenmode = ""

    def all(self, name):
        return [v for n, v in self.headers if n == name]

    def get(self, name):
        v = self.all(name)
        return ", ".join(v) if v else None


class Parser:
    """Strict incremental parser of a stream of responses."""

    def __init__(self, heads):
        self.buf, self.pos = bytearray(), 0
        self.heads = set(heads)
        self.finals, self.interim = [], []
        self.cur, self.state, self.need = None, "head", 0
        self.garbage = None
        self.eof = False

    def busy(self):
        return self.cur is not None or (self.garbage is None and self.pos < len(self.buf))

    def feed(self, data):
        self.buf += data
        self._run()

    def end(self):
        self.eof = True
        self._run()
        if self.cur is not None:
            if self.state == "eof":
                self.cur.complete = True
            self.finals.append(self.cur)
            self.cur = None
        elif self.garbage is None and self.pos < len(self.buf):
            self.garbage = bytes(self.buf[self.pos:])

    def _done(self):
        self.cur.complete = True
        self.finals.append(self.cur)
        self.cur, self.state = None, "head"

    def _run(self):
        while self.garbage is None:
            if self.state == "head":
                rest = self.buf[self.pos:self.pos + 9]
                if not rest:
                    return
                pat = b"HTTP/1."
                if rest[:len(pat)] != pat[:len(rest)]:
                    self.garbage = bytes(self.buf[self.pos:])
                    return
                e = self.buf.find(b"\r\n\r\n", self.pos)
                lf = self.buf.find(b"\n\n", self.pos, e if e >= 0 else len(self.buf))
                bad = None
                if lf >= 0:
                    head, nxt, bad = bytes(self.buf[self.pos:lf]), lf + 2, "bare LF ends the head"
                elif e >= 0:
                    head, nxt = bytes(self.buf[self.pos:e]), e + 4
                else:
                    return
                self.pos = nxt
                self._head(head, bad)
            elif self.state == "cl":
                n = min(self.need, len(self.buf) - self.pos)
                self.cur.body += self.buf[self.pos:self.pos + n]
                self.pos += n
                self.need -= n
                if self.need:
                    return
                self._done()
            elif self.state == "eof":
                self.cur.body += self.buf[self.pos:]
                self.pos = len(self.buf)
                return
            elif self.state == "csize":
                e = self.buf.find(b"\r\n", self.pos)
                if e < 0:
                    return
                line = bytes(self.buf[self.pos:e])
                m = re.match(rb"([0-9A-Fa-f]+)(?:[ \t]*;.*)?\Z", line)
                if not m:
                    self.cur.errors.append("bad chunk-size line %r" % line[:40])
                    self.garbage = bytes(self.buf[self.pos:])
                    return
                self.pos = e + 2
                self.need = int(m.group(1), 16)
                self.state = "cdata" if self.need else "ctrail"
            elif self.state == "cdata":
                n = min(self.need, len(self.buf) - self.pos)
                self.cur.body += self.buf[self.pos:self.pos + n]
                self.pos += n
                self.need -= n
                if self.need or len(self.buf) - self.pos < 2:
                    return
                if self.buf[self.pos:self.pos + 2] != b"\r\n":
                    self.cur.errors.append("chunk data not followed by CRLF")
                    self.garbage = bytes(self.buf[self.pos:])
                    return
                self.pos += 2
                self.state = "csize"
            elif self.state == "ctrail":
                e = self.buf.find(b"\r\n", self.pos)
                if e < 0:
                    return
                last = e == self.pos
                self.pos = e + 2
                if last:
                    self._done()

    def _head(self, head, bad):
        r = Resp()
        if bad:
            r.errors.append(bad)
        lines = head.split(b"\r\n") if not bad else head.replace(b"\r\n", b"\n").split(b"\n")
        m = STATUS.match(lines[0])
        if not m:
            r.errors.append("bad status-line %r" % lines[0][:60])
            m2 = re.match(rb"HTTP/(1\.\d) +(\d{3})", lines[0])
            if not m2:
                self.garbage = head
                return
            m = m2
        r.version, r.status = m.group(1).decode(), int(m.group(2))
        for ln in lines[1:]:
            n, sep, v = ln.partition(b":")
            if not sep or not TOKEN.match(n):
                r.errors.append("bad header line %r" % ln[:60])
                continue
            v = v.strip(b" \t")
            if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", v):
                r.errors.append("control octet in header %r" % ln[:60])
            r.headers.append((n.decode().lower(), v.decode("latin-1")))
        te, cl = r.all("transfer-encoding"), r.all("content-length")
        if cl and (len(cl) > 1 or not re.match(r"[0-9]+\Z", cl[0])):
            r.errors.append("bad Content-Length %r" % cl)
        if te and cl:
            r.errors.append("both Transfer-Encoding and Content-Length in the response")
        if r.status < 200 or r.status == 204:
            if te or cl:
                r.errors.append("%d with Content-Length or Transfer-Encoding" % r.status)
        if r.status < 200 and r.status != 101:
            self.interim.append(r)
            return
        r.interim = [i.status for i in self.interim]
        for i in self.interim:
            r.errors += i.errors
        self.interim = []
        self.cur = r
        idx = len(self.finals)
        if r.status in (204, 304) or idx in self.heads or r.status == 101:
            r.lenmode = "none"
            self._done()
        elif te:
            if [t.strip().lower() for t in ",".join(te).split(",")][-1] == "chunked":
                r.lenmode, self.state = "chunked", "csize"
            else:
                r.lenmode, self.state = "eof", "eof"
        elif cl and re.match(r"[0-9]+\Z", cl[0]):
            r.lenmode, self.state, self.need = "cl", "cl", int(cl[0])
            if self.need == 0:
                self._done()
        else:
            r.lenmode, self.state = "eof", "eof"


# ------------------------------------------------------------------ one connection
class Conn:
    def __init__(self, addr, heads, scale):
        self.p = Parser(heads)
        self.scale = scale
        self.closed = None            # None | "eof" | "reset"
        self.send_dead = False
        self.sent = 0
        self.last = time.monotonic()
        for attempt in range(40):
            try:
                self.s = socket.create_connection(addr, timeout=5 * scale)
                break
            except (ConnectionRefusedError, TimeoutError, ConnectionResetError):
                if attempt == 39:
                    raise
                time.sleep(0.05)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.setblocking(False)

    def close(self, rst=False):
        try:
            if rst:
                self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.s.close()
        except OSError:
            pass

    def pump(self, out=b"", until=None, limit=None):
        """Send `out` while receiving, then receive until until() holds or `limit` passes."""
        out = memoryview(out)
        end = time.monotonic() + (limit if limit is not None else T_SEND * self.scale)
        while True:
            if self.send_dead:
                out = out[:0]
            if not out and (until is None or until()):
                return True
            if self.closed and not out:
                return bool(until and until())
            now = time.monotonic()
            if now >= end:
                return False
            r, w, _ = select.select([] if self.closed else [self.s], [self.s] if out else [], [],
                                    min(end - now, 1.0))
            if w and not r:
                try:
                    n = self.s.send(out[:262144])
                    self.sent += n
                    out = out[n:]
                except BlockingIOError:
                    pass
                except OSError:
                    self.send_dead = True
            if r:
                try:
                    d = self.s.recv(262144)
                except BlockingIOError:
                    continue
                except OSError:
                    self.closed = "reset"
                    self.send_dead = True
                    self.p.end()
                    continue
                self.last = time.monotonic()
                if d:
                    self.p.feed(d)
                else:
                    self.closed = "eof"
                    self.p.end()
                    if out:                       # the peer closed while we still send
                        try:
                            self.s.send(out[:65536])
                        except OSError:
                            pass
                        out = out[:0]


def lat(s):
    return s.encode("latin-1")


def expand(step):
    if isinstance(step, str):
        return lat(step)
    if step[0] == "rep":
        return lat(step[1]) * step[2]
    if step[0] == "seq":
        return b"".join(lat(step[1].replace("@@@@", "%04d" % i)) for i in range(step[2], step[3]))
    if step[0] == "cat":
        return b"".join(expand(s) for s in step[1:])
    raise ValueError(step)


# ------------------------------------------------------------------ matching
def status_ok(pat, st):
    for p in pat.split("|"):
        if p == str(st) or (p.endswith("xx") and p[0] == str(st)[0]):
            return True
    return False


def known(spec):
    d = FILES[spec[0]]
    return d if len(spec) == 1 else d[spec[1]:spec[2] + 1]


def parse_date(v):
    try:
        return email.utils.parsedate_to_datetime(v).timestamp()
    except (TypeError, ValueError):
        return None


def check(name, r, prev):
    """Named checks; returns None or why it fails."""
    if name == "date":
        d = r.all("date")
        if len(d) != 1:
            return "%d Date fields" % len(d)
        if not IMF.match(d[0]):
            return "Date is not an IMF-fixdate: %r" % d[0]
        t = parse_date(d[0])
        if t is None or abs(t - time.time()) > 15:
            return "Date is off: %r" % d[0]
    elif name == "lm":
        d = r.all("last-modified")
        if len(d) != 1 or not IMF.match(d[0]):
            return "bad or missing Last-Modified %r" % d
    elif name == "lm_not_future":
        d, n = r.all("last-modified"), r.all("date")
        if d and n and (parse_date(d[0]) or 0) > (parse_date(n[0]) or 0):
            return "Last-Modified %s is later than Date %s" % (d[0], n[0])
    elif name == "etag":
        d = r.all("etag")
        if len(d) != 1 or not ETAG.match(d[0]):
            return "bad or missing ETag %r" % d
    elif name == "validator":
        if not r.all("etag") and not r.all("last-modified"):
            return "neither ETag nor Last-Modified"
    elif name == "close":
        if "close" not in [t.strip().lower() for t in (r.get("connection") or "").split(",")]:
            return "no `close` option in Connection: %r" % r.get("connection")
    elif name == "framed":
        if r.lenmode == "eof":
            return "neither Content-Length nor chunked on an HTTP/1.1 response"
    elif name == "cl_like_prev":
        if r.all("content-length") and r.all("content-length")[0] != str(len(prev.body)):
            return "Content-Length %s, GET had %d octets" % (r.get("content-length"), len(prev.body))
    elif name == "same_meta_as_prev":
        for h in ("content-type", "etag", "last-modified"):
            if r.get(h) != prev.get(h):
                return "%s differs between GET (%r) and HEAD (%r)" % (h, prev.get(h), r.get(h))
    elif name.startswith("multi:"):
        m = re.match(r"multipart/byteranges\s*;.*boundary=\"?([^\";,]+)\"?", r.get("content-type") or "", re.I)
        if not m:
            return "not multipart/byteranges: %r" % r.get("content-type")
        parts = bytes(r.body).split(b"--" + m.group(1).encode())
        got = []
        for p in parts[1:]:
            if p.startswith(b"--"):
                break
            h, _, b = p.partition(b"\r\n\r\n")
            cr = re.search(rb"content-range:\s*bytes (\d+)-(\d+)/(\d+)", h, re.I)
            if not cr:
                return "part without Content-Range"
            got.append((int(cr[1]), int(cr[2]), b[:-2] if b.endswith(b"\r\n") else b))
        want = [tuple(map(int, x.split("-"))) for x in name[6:].split(",")]
        if [g[:2] for g in got] != want:
            return "parts %r, wanted %r" % ([g[:2] for g in got], want)
        for a, b, d in got:
            if d != FILE[a:b + 1]:
                return "wrong octets in part %d-%d" % (a, b)
    else:
        return "unknown check " + name
    return None


def resp_ok(spec, r, prev):
    if not status_ok(spec["s"], r.status):
        return "status %d, wanted %s" % (r.status, spec["s"])
    if spec.get("partial"):
        return None if not r.complete else "response is complete, wanted an aborted one"
    if not r.complete:
        return "response is incomplete"
    if "b" in spec and bytes(r.body) != lat(spec["b"]):
        return "body %s, wanted %s" % (esc(r.body, 60), esc(lat(spec["b"]), 60))
    if "brep" in spec and bytes(r.body) != lat(spec["brep"][0]) * spec["brep"][1]:
        return "body of %d octets differs from the %d wanted" % (len(r.body), spec["brep"][1] * len(spec["brep"][0]))
    if "bf" in spec and bytes(r.body) != known(spec["bf"]):
        return "body (%d octets) is not %s" % (len(r.body), spec["bf"])
    if "bhas" in spec and lat(spec["bhas"]) not in r.body:
        return "body lacks %r" % spec["bhas"]
    if "blacks" in spec and lat(spec["blacks"]) in r.body:
        return "body has %r" % spec["blacks"]
    for h, rx in spec.get("h", {}).items():
        if r.get(h) is None or not re.search(rx, r.get(h), re.I):
            return "header %s is %r, wanted /%s/" % (h, r.get(h), rx)
    for h in spec.get("nh", []):
        if r.get(h) is not None:
            return "header %s: %s must be absent" % (h, r.get(h))
    if "v" in spec and r.version != spec["v"]:
        return "response version %s, wanted %s" % (r.version, spec["v"])
    if "i" in spec and r.interim != spec["i"]:
        return "interim responses %r, wanted %r" % (r.interim, spec["i"])
    for c in spec.get("ck", []):
        why = check(c, r, prev)
        if why:
            return why
    return None


class Want:
    def __init__(self, w):
        self.best = bool(w.get("best"))
        self.end = w.get("end", "any")
        self.raw = w.get("raw")
        self.min = w.get("min")
        self.specs = []
        for s in w.get("r", []):
            if "times" in s:
                for i in range(s["times"]):
                    t = dict(s)
                    if "b" in t:
                        t["b"] = t["b"].replace("@@@@", "%04d" % i)
                    self.specs.append(t)
            else:
                self.specs.append(s)
        self.checked, self.bad = 0, None
        self.j = w

    def prefix(self, finals):
        """Do all responses seen so far fit the head of this outcome?"""
        if self.bad is not None:
            return False
        if len(finals) > len(self.specs):
            self.bad = "%d responses, at most %d allowed" % (len(finals), len(self.specs))
            return False
        while self.checked < len(finals):
            i = self.checked
            why = resp_ok(self.specs[i], finals[i], finals[i - 1] if i else None)
            if why:
                self.bad = "response %d: %s" % (i + 1, why)
                return False
            self.checked += 1
        return True

    def text(self):
        out = []
        for s in self.j.get("r", []):
            t = s["s"] + ("(aborted)" if s.get("partial") else "")
            if "b" in s:
                t += " " + esc(lat(s["b"]), 40)
            if "bf" in s:
                t += " " + str(s["bf"])
            if "i" in s:
                t += " after %s" % s["i"]
            if "times" in s:
                t += " x%d" % s["times"]
            for k in ("ck", "h", "nh"):
                if k in s:
                    t += " %s=%s" % (k, s[k])
            out.append("[" + t + "]")
        if self.raw:
            out.append("raw /%s/" % self.raw)
        return " ".join(out or ["no response"]) + ", " + self.end


def esc(b, n=160):
    b = bytes(b)
    t = "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else
                {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 92: "\\\\"}.get(c, "\\x%02x" % c) for c in b[:n])
    return '"%s"%s' % (t, "..(%d)" % len(b) if len(b) > n else "")


# ------------------------------------------------------------------ running a case
class Runner:
    def __init__(self, a):
        self.addr = (a.host, a.port)
        self.profile = a.profile
        self.scale = a.scale
        self.vars = {}

    def sub(self, step):
        if isinstance(step, str):
            for k, v in self.vars.items():
                step = step.replace("${%s}" % k, v)
            return step
        if step[0] in ("drip", "cat", "rep", "seq"):
            return [self.sub(x) if isinstance(x, (str, list)) else x for x in step]
        return step

    def probe(self, token):
        if self.profile == "static":
            return (b"GET /file.txt HTTP/1.1\r\nHost: x.test\r\n\r\n", FILE)
        body = b"probe-" + token.encode()
        return (b"POST /echo HTTP/1.1\r\nHost: x.test\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), body)

    def preflight(self):
        """Learn validators of /file.txt; also the first liveness check."""
        if self.profile != "static":
            return
        c = Conn(self.addr, [], self.scale)
        c.pump(b"GET /file.txt HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n",
               until=lambda: bool(c.p.finals), limit=5 * self.scale)
        c.close()
        if not c.p.finals or c.p.finals[0].status != 200:
            raise SystemExit("GET /file.txt does not answer 200: not a `static` target (see --make-root)")
        r = c.p.finals[0]
        self.vars["LM"] = LM
        if r.get("last-modified") == LM:
            self.vars["HAS_LM"] = LM
        if r.get("etag"):
            self.vars["ETAG"] = r.get("etag")
            if not r.get("etag").startswith("W/"):
                self.vars["STRONG"] = r.get("etag")

    def run(self, case):
        t0 = time.monotonic()
        for n in case.get("needs", []):
            key = {"etag": "ETAG", "strong": "STRONG", "lm": "HAS_LM"}[n]
            if key not in self.vars:
                return self.result(case, None, False, "needs " + n, "", t0)
        try:
            if case.get("sweep"):
                return self.sweep(case, t0)
            ok, best, why, seen = self.once(case, [self.sub(s) for s in case["send"]])
        except OSError as e:
            ok, best, why, seen = False, False, "socket error: %s" % e, ""
        return self.result(case, ok, best, why, seen, t0)

    def result(self, case, ok, best, why, seen, t0):
        return {"id": case["id"], "cat": case["cat"], "level": case["level"],
                "rfc": case["rfc"], "title": case["title"], "ok": ok, "best": bool(best), "why": why,
                "seen": seen, "s": round(time.monotonic() - t0, 2)}

    def sweep(self, case, t0):
        data = expand(self.sub(case["send"][0]))
        best_all = True
        for i in range(1, len(data)):
            ok, best, why, seen = self.once(case, [data[:i].decode("latin-1"), ["delay", 3],
                                                   data[i:].decode("latin-1")], quick=True)
            if not ok:
                return self.result(case, False, False, "split at octet %d: %s" % (i, why), seen, t0)
            best_all = best_all and best
        return self.result(case, True, best_all, "", "%d splits" % (len(data) - 1), t0)

    def once(self, case, steps, quick=False):
        c = Conn(self.addr, case.get("heads", []), self.scale)
        try:
            return self.talk(c, case, steps, quick)
        finally:
            c.close()

    def talk(self, c, case, steps, quick):
        p = c.p
        for st in steps:
            kind = st[0] if isinstance(st, list) else None
            if kind == "delay":
                c.pump(until=lambda: False, limit=st[1] / 1000)
            elif kind == "wait":
                n = st[1]
                c.pump(until=lambda: len(p.finals) >= n or p.garbage is not None, limit=st[2] / 1000 * self.scale)
            elif kind == "wait100":
                c.pump(until=lambda: bool(p.interim) or bool(p.finals) or p.cur is not None,
                       limit=st[1] / 1000 * self.scale)
            elif kind == "fin":
                try:
                    c.s.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
            elif kind == "rst":
                c.close(rst=True)
                c.closed = "reset"
            elif kind == "drip":
                d = lat(st[1])
                for i in range(0, len(d), st[3]):
                    c.pump(d[i:i + st[3]])
                    c.pump(until=lambda: False, limit=st[2] / 1000)
            else:
                c.pump(expand(st))
        return self.finish(c, case, quick)

    def finish(self, c, case, quick):
        p = c.p
        wants = [Want(w) for w in case["want"]]
        raws = [w for w in wants if w.raw]
        if any(w.end == "alive" for w in wants):
            return self.alive(c, wants)
        start = time.monotonic()
        c.last = max(c.last, start)
        while True:
            if p.garbage is not None:
                break
            viable = [w for w in wants if not w.raw and w.prefix(p.finals)]
            n = len(p.finals)
            if not viable:
                c.pump(until=lambda: False, limit=0.05)
                break
            full = [w for w in viable if len(w.specs) == n]
            more = [w for w in viable if len(w.specs) > n]
            if c.closed or (not more and not p.busy()):
                break
            now = time.monotonic()
            idle_ok = any(w.end == "wait" for w in full) and not p.busy()
            lim = (max(c.last, start) + (T_IDLE if idle_ok else T_RESP) * self.scale) - now
            if lim <= 0:
                break
            k, m = len(p.finals), c.last
            c.pump(until=lambda: len(p.finals) != k or c.closed or p.garbage is not None or c.last != m, limit=lim)

        def fit(end_ok):
            return [w for w in wants if not w.raw and w.prefix(p.finals) and len(w.specs) == len(p.finals)
                    and w.end in end_ok]

        def verdict(hit, note):
            errs = [e for r in p.finals for e in r.errors]
            if hit and errs:
                return False, False, "malformed response: " + errs[0], self.seen(c)
            if hit:
                return True, any(w.best for w in hit), "", self.seen(c)
            if not note:
                note = next((w.bad for w in wants if w.bad), "no allowed outcome")
            return False, False, note, self.seen(c)

        if p.garbage is not None:
            for w in raws:
                if re.match(lat(w.raw), p.garbage, re.S):
                    return verdict([w], "")
            return verdict([], "octets that are no HTTP response: " + esc(p.garbage, 60))
        if c.closed:
            hit = fit(("close", "sync", "any"))
            if not hit:
                # a server may limit requests per connection: enough in order, then an announced close
                for w in wants:
                    if w.min and w.bad is None and len(p.finals) >= w.min and \
                            "close" in (p.finals[-1].get("connection") or "").lower():
                        hit = [w]
            return verdict(hit, "" if hit else self.whynot(wants, p, "closed"))
        full = fit(("close", "sync", "any", "keep", "wait"))
        if not full or p.busy():
            return verdict([], self.whynot(wants, p, "open"))
        ends = {w.end for w in full}
        if "wait" in ends:
            return verdict([w for w in full if w.end == "wait"], "")
        if ends == {"any"}:
            if not quick:
                c.pump(until=lambda: len(p.finals) > len(full[0].specs) or c.closed, limit=T_GRACE)
            return verdict(fit(("any",)), "")
        n = len(p.finals)
        if not ends & {"sync", "keep", "any"}:
            c.pump(until=lambda: c.closed or len(p.finals) != n, limit=T_CLOSE * self.scale)
            if c.closed and len(p.finals) == n and p.garbage is None:
                return verdict(fit(("close",)), "")
            if len(p.finals) != n or p.garbage is not None:
                return verdict([], "more came after the last allowed response")
            return verdict([], "the connection was left open")
        c.pump(until=lambda: c.closed or len(p.finals) != n or p.busy(), limit=T_GRACE * self.scale)
        if not c.closed and len(p.finals) == n and not p.busy():
            req, body = self.probe(case["id"])
            c.pump(req)
            c.pump(until=lambda: c.closed or len(p.finals) > n, limit=T_RESP * self.scale)
            if len(p.finals) > n:
                r = p.finals[n]
                if len(p.finals) == n + 1 and r.status == 200 and bytes(r.body) == body and p.garbage is None:
                    p.finals.pop()
                    hit = fit(("sync", "keep"))
                    return verdict(hit, "" if hit else "the connection was left open")
                return verdict([], "out of sync: a following valid request got %d %s" % (r.status, esc(r.body, 60)))
            if not c.closed:
                return verdict([], "a following valid request got no response")
        else:
            c.pump(until=lambda: c.closed, limit=0.3)
        if c.closed and len(p.finals) == n and p.garbage is None:
            hit = fit(("close", "sync", "any"))
            return verdict(hit, "" if hit else "the connection was closed")
        return verdict([], "more came after the last allowed response")

    def whynot(self, wants, p, state):
        if p.garbage is not None:
            return "octets that are no HTTP response"
        n = len(p.finals)
        if p.busy():
            return "a response stopped half-way, connection %s" % state
        viable = [w for w in wants if not w.raw and w.bad is None]
        if not viable:
            return next((w.bad for w in wants if w.bad), "no allowed outcome")
        if any(len(w.specs) > n for w in viable):
            return "%d responses, then %s" % (n, "closed" if state == "closed" else "silence")
        return "connection %s after %d responses, wanted %s" % (state, n, "/".join(sorted({w.end for w in viable})))

    def alive(self, c, wants):
        c.close()
        d = Conn(self.addr, [], self.scale)
        try:
            req, body = self.probe("alive")
            d.pump(req, until=lambda: d.closed or bool(d.p.finals), limit=T_RESP * self.scale)
            ok = bool(d.p.finals) and d.p.finals[0].status == 200 and bytes(d.p.finals[0].body) == body
            return ok, ok, "" if ok else "a new connection got no good answer", self.seen(d)
        finally:
            d.close()

    def seen(self, c):
        p, out = c.p, []
        for r in p.finals[:4]:
            out.append("[%s%d%s%s]" % ("".join("%d " % i for i in r.interim), r.status,
                                       "" if r.complete else " incomplete",
                                       " " + esc(r.body, 50) if r.body else ""))
        if len(p.finals) > 4:
            out.append("..%d responses" % len(p.finals))
        if p.cur is not None:
            out.append("[%d half-way]" % p.cur.status)
        if p.interim:
            out.append("(interim %s)" % [i.status for i in p.interim])
        if p.garbage is not None:
            out.append("raw " + esc(p.garbage, 60))
        out.append(c.closed or "open")
        return " ".join(out)


# ------------------------------------------------------------------ main
def load(paths):
    cases = []
    for path in paths:
        with open(path, encoding="ascii") as f:
            for line in f:
                if line.strip():
                    cases.append(json.loads(line))
    ids = [c["id"] for c in cases]
    assert len(ids) == len(set(ids)), "duplicate case ids"
    return cases


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--host", default="127.0.0.1")
    ap.add_argument("--port", type=int)
    ap.add_argument("--profile", choices=("echo", "static"), default="echo")
    ap.add_argument("--only", action="append", help="category (repeatable)")
    ap.add_argument("--case", action="append", help="case id or its beginning (repeatable)")
    ap.add_argument("--cases", action="append", help="case files (default: cases/*.jsonl beside this script)")
    ap.add_argument("--json")
    ap.add_argument("--jobs", type=int, default=24)
    ap.add_argument("--scale", type=float, default=1.0, help="multiplies every timeout")
    ap.add_argument("--quiet", action="store_true", help="table only")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--make-root")
    a = ap.parse_args()
    if a.make_root:
        make_root(a.make_root)
        return 0
    cases = load(a.cases or sorted(glob.glob(os.path.join(HERE, "cases", "*.jsonl"))))
    cases = [c for c in cases if c["profile"] in (a.profile, "both")
             and (not a.only or c["cat"] in a.only)
             and (not a.case or any(c["id"].startswith(x) for x in a.case))]
    if a.list:
        for c in cases:
            print("%-34s %-7s %-6s %-14s %s" % (c["id"], c["level"], c["profile"], c["rfc"], c["title"]))
        print(len(cases), "cases")
        return 0
    if not a.port:
        ap.error("--port is needed")
    if not cases:
        print("no case selected")
        return 2
    rn = Runner(a)
    t0 = time.monotonic()
    rn.preflight()
    # the slowest kinds first, so that the pool drains evenly; output keeps the file order
    order = sorted(range(len(cases)), key=lambda i: (not cases[i].get("sweep"), cases[i]["cat"] != "delivery"))
    res = [None] * len(cases)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as ex:
        futs = {ex.submit(rn.run, cases[i]): i for i in order}
        for f in concurrent.futures.as_completed(futs):
            res[futs[f]] = f.result()
    total = time.monotonic() - t0
    cats, by = [], {}
    for r in res:
        if r["cat"] not in by:
            cats.append(r["cat"])
            by[r["cat"]] = {"passed": 0, "total": 0, "best": 0, "must_failed": 0, "not_applicable": 0}
        b = by[r["cat"]]
        if r["ok"] is None:
            b["not_applicable"] += 1
            continue
        b["total"] += 1
        b["passed"] += r["ok"]
        b["best"] += r["best"]
        b["must_failed"] += (not r["ok"]) and r["level"] == "MUST"
    failed = [r for r in res if r["ok"] is False]
    if not a.quiet:
        for r in failed:
            w = next(c for c in cases if c["id"] == r["id"])["want"]
            print("FAIL %s [%s, RFC %s] %s\n     %s\n     seen:   %s" % (r["id"], r["level"], r["rfc"], r["title"], r["why"], r["seen"]))
            print("     wanted: " + "\n         or: ".join(Want(x).text() + (" (best)" if x.get("best") else "") for x in w))
        for r in res:
            if r["ok"] is None:
                print("N/A  %s %s (%s)" % (r["id"], r["title"], r["why"]))
    tot = {k: sum(by[c][k] for c in cats) for k in ("passed", "total", "best", "must_failed", "not_applicable")}
    print("%-14s %9s %9s %12s" % ("category", "passed", "best", "MUST failed"))
    for c in cats:
        b = by[c]
        print("%-14s %4d/%-4d %4d/%-4d %12d" % (c, b["passed"], b["total"], b["best"], b["total"], b["must_failed"]))
    print("%-14s %4d/%-4d %4d/%-4d %12d   (%d not applicable, %.1f s)" % (
        "total", tot["passed"], tot["total"], tot["best"], tot["total"], tot["must_failed"], tot["not_applicable"], total))
    print("%d passed, %d failed" % (tot["passed"], len(failed)))
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"profile": a.profile, "seconds": round(total, 1), "totals": tot,
                       "categories": by, "cases": res}, f, indent=1)
    return 0 if not failed else 1


if __name__ == "__main__":
    sys.exit(main())
