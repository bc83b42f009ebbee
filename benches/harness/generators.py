"""The load generators: one process, pinned to a CPU of its own, that reports requests, errors and latencies."""
import json
import os
import re
import subprocess

from .machine import BENCHES, BIN, favour, raise_limits
from .servers import HEADERS


def on_cpu(opt):
    def pre():
        os.setsid()
        os.sched_setaffinity(0, {opt.load_cpu})
        raise_limits()
        favour(opt.nice)
    return pre


def output(cmd, secs, opt, env=None):
    """What the generator printed."""
    p = subprocess.run(cmd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=secs + 120, preexec_fn=on_cpu(opt))
    return p.stdout


def fields(opt):
    """`-H` and each header of the request."""
    return [word for h in HEADERS[opt.request] for word in ("-H", h)]


def line_of_json(text):
    m = re.search(r"^JSON (\{.*\})$", text, re.M)
    if not m:
        raise RuntimeError(text[-400:])
    return json.loads(m.group(1))


LATENCIES = ("mean", "p50", "p90", "p99", "p999", "max")


def wrk(port, sc, secs, opt):
    cmd = ["wrk", "-t1", f"-c{sc['conns']}", f"-d{secs}s", "--timeout", "10s", "--latency",
           "-s", os.path.join(BENCHES, "wrk.lua"), *fields(opt), f"http://127.0.0.1:{port}{sc['path']}"]
    env = dict(os.environ, BENCH_PIPELINE=str(sc["depth"]), BENCH_BODY=str(sc.get("body", 0)))
    r = line_of_json(output(cmd, secs, opt, env))
    errors = r["connect"] + r["read"] + r["write"] + r["timeout"] + (r["status"] if sc.get("status", 200) == 200 else 0)
    return {"requests": r["requests"], "secs": r["duration_us"] / 1e6, "bytes": r["bytes"], "errors": errors,
            "lat": {k: r[k] for k in LATENCIES}}


def h2load(port, sc, secs, opt):
    # --duration with a warm-up would hide the count of requests: a fixed time without one.
    cmd = ["h2load", "--h1", "-t1", f"-c{sc['conns']}", f"-m{sc['depth']}", f"-D{secs}", *fields(opt),
           f"http://127.0.0.1:{port}{sc['path']}"]
    text = output(cmd, secs, opt)
    m = re.search(r"finished in ([\d.]+)(m?s), ([\d.]+) req/s", text)
    n = re.search(r"requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", text)
    if not (m and n):
        raise RuntimeError("h2load: " + text[-400:])
    return {"requests": int(n.group(2)), "secs": float(m.group(1)) * (1e-3 if m.group(2) == "ms" else 1),
            "errors": int(n.group(3)) + int(n.group(4)), "bytes": 0, "lat": {}}


def own_load(port, sc, secs, opt):
    """The bench's own generator: one thread, io_uring; closed loop, or at a rate with latency from when it was due."""
    cmd = [os.path.join(BIN, "load"), "-p", str(port), "-u", sc["path"], "-c", str(sc["conns"]), "-m", str(sc["depth"]),
           "-d", str(secs), *fields(opt)]
    for flag, key in (("-R", "rate"), ("-b", "body"), ("-s", "status")):
        if sc.get(key):
            cmd += [flag, str(sc[key])]
    if sc.get("static"):
        cmd += ["--bufsz", "65536", "--bufs", "128"]
    r = line_of_json(output(cmd, secs, opt))
    return {"requests": r["requests"], "secs": r["duration_us"] / 1e6, "bytes": r["bytes"],
            "errors": r["read"] + r["status"] + r["timeout"], "lat": {k: r[k] for k in LATENCIES}}


TOOLS = {"load": own_load, "wrk": wrk, "h2load": h2load}
