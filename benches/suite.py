#!/usr/bin/env python3
"""Everything that is claimed about the server's speed, measured part by part: one JSON, one Markdown page, one plot.

    suite.py [--quick] [--parts NAME,...] [--program FILE] [--out FOLDER] [OPTION OF compare.py ...]
    suite.py --render        the page and the plot again, from the parts that are there
    suite.py --docs          README.md, docs/performance.md and docs/performance.svg from them

Each part is a run of benches/compare.py, in the order of importance; a part that is measured again replaces its former
figures. Servers that are not on this machine are named and left out. scripts/bench --all builds first and then runs this.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time

from harness import pages
from harness.machine import BENCHES, LAB
from harness.report import replace

OURS = "shardlet,shardlet-epoll"
FLOORS = "floor-uring+httparse,epoll+httparse"
FAST = f"{OURS},{FLOORS},monoio-raw,tokio-raw,tokio-uring-raw,hyper,may_minihttp,xitca-uring,ntex-uring,nginx"
SLOW = ("shardlet,floor-uring+httparse,glommio-raw,actix-web,axum,h2o-lib,h2o,haproxy,go-fasthttp,bun-static-route,go-nethttp,node,"
        "jetty,tomcat")
LOADS = "--scenario 64:1,256:1,1024:1,64:16"
FILES = "shardlet-files,shardlet-files-epoll,shardlet-files-uncached,shardlet-files-epoll-uncached,nginx,h2o"
BUSY = f"{OURS},{FLOORS},hyper,nginx"
# What a part measures: options of compare.py, and the servers.
PARTS = {
    "cpu-load": (f"--gen load {LOADS}", FAST),
    "cpu-wrk": (f"--gen wrk {LOADS}", FAST),
    "rate": ("--no-load --rate 70% --secs 2", f"{OURS},nginx,hyper,xitca-uring"),
    "memory": ("--no-load --memory", f"{BUSY},h2o,haproxy,monoio-raw,ntex-uring,xitca-uring,axum,bun-static-route"),
    "growth": ("--scenario 256:1,256:1:9744 --shards", f"{OURS},floor-uring+httparse,hyper,nginx"),
    "cases": ("--scenario 64:1 --case echo,missing,async,worker", f"{OURS},hyper,axum,nginx,jetty-async,tomcat-async"),
    "files": ("--no-load --static --gen load", FILES),
    "start": ("--no-load --cold-start", f"{BUSY},monoio-raw,xitca-uring,ntex-uring,axum,h2o"),
    "one-load": ("--gen load --scenario 1:1", FAST),
    "one-wrk": ("--gen wrk --scenario 1:1", FAST),
    "slow-load": (f"--gen load {LOADS} --rounds 2", SLOW),
    "slow-wrk": (f"--gen wrk {LOADS} --rounds 2", SLOW),
}
QUICK = set(f"{BUSY},{FILES},xitca-uring,axum,jetty-async".split(","))
QUICK_OPTIONS = "--rounds 2 --secs 1 --idle 2000 --starts 3 --max-wait 2 --place any --foreign 0.9 --retries 0".split()


def arguments():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Other options go to benches/compare.py.")
    ap.add_argument("--quick", action="store_true", help="few servers, 2 rounds of 1 s: whether all works, not what is true")
    ap.add_argument("--parts", default=",".join(PARTS), help="of: " + ", ".join(PARTS))
    ap.add_argument("--program", help="the shardlet to measure; default: the release build")
    ap.add_argument("--out", default=os.path.join(LAB, "results"))
    ap.add_argument("--render", action="store_true", help="measure nothing; write the page and the plot")
    ap.add_argument("--docs", action="store_true", help="measure nothing; put the figures into the documents")
    opt, opt.others = ap.parse_known_args()
    unknown = [name for name in opt.parts.split(",") if name not in PARTS]
    return opt if not unknown else sys.exit(f"suite.py: no such part: {', '.join(unknown)}; known: {', '.join(PARTS)}")


def measure(name, opt):
    """One part by compare.py; gives whether it ended well."""
    options, servers = PARTS[name]
    options = options.replace(LOADS, "--scenario 64:1,64:16") if opt.quick else options
    chosen = [s for s in servers.split(",") if not opt.quick or s in QUICK]
    words = [sys.executable, os.path.join(BENCHES, "compare.py"), "--secs", "1", "--warm", "1", *options.split(), "--only", ",".join(chosen)]
    words += ["--label", name, "--out", os.path.join(opt.out, "parts")] + (QUICK_OPTIONS if opt.quick else [])
    words += (["--program", opt.program] if opt.program else []) + opt.others
    begun = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        child.wait()
    finally:
        if child.poll() is None:
            child.terminate()  # it stops the servers that it started
            child.wait()
    took = time.monotonic() - begun
    print(f"{name}: {'done' if child.returncode == 0 else 'FAILED'} in {took:.0f} s", flush=True)
    return child.returncode == 0


def parts(out):
    """The figures of every part that has been measured."""
    found = {}
    for name in PARTS:
        path = os.path.join(out, "parts", name + ".json")
        if os.path.exists(path):
            with open(path) as f:
                found[name] = json.load(f)
    return found


def render(opt, found):
    """all.json, all.md and all.svg."""
    replace(os.path.join(opt.out, "all.json"), json.dumps({"summary": pages.summary(found), "parts": found}, indent=1))
    replace(os.path.join(opt.out, "all.md"), pages.whole(found))
    replace(os.path.join(opt.out, "all.svg"), pages.picture(found))
    print(pages.whole(found))


def main():
    opt = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = []
    if not (opt.render or opt.docs):
        failed = [name for name in opt.parts.split(",") if not measure(name, opt)]
    found = parts(opt.out)
    if not found:
        sys.exit(f"suite.py: nothing measured in {opt.out}")
    if opt.docs:
        pages.publish(found)
    else:
        render(opt, found)
    if failed:
        sys.exit(f"suite.py: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
