#!/usr/bin/env python3
"""Measures HTTP servers side by side: the same machine, the same minute, the same load. Python standard library only.

Rounds are interleaved (A B C, B C A, ...) so that noise is shared. The server is pinned to one CPU and the generator to
another. The main figure is the CPU time of the server's whole process tree for each answered request: it holds where
the generator is the one that is full. docs/performance.md says how to read it; scripts/bench builds and runs it all.
"""
import argparse
import datetime
import json
import os
import platform
import re
import resource
import shlex
import signal
import subprocess
import sys
import time

from harness import idle, rates, report, shards
from harness.generators import own_load, wrk
from harness.machine import (BENCHES, BIN, LAB, ROOT, Lock, calibrate, kthread, quiet, raise_limits, read, say)
from harness.runs import one
from harness.servers import HEADERS, WWW, Server, check, program

# Scenarios beside GET /plaintext. A server takes part in those that its entry of servers.json has a path for.
CASES = {
    "echo": {"title": "POST of 100 bytes, echoed, 64 connections", "body": 100},
    "missing": {"title": "404, 64 connections", "status": 404},
    "async": {"title": "asynchronous answer, 64 connections"},
    "worker": {"title": "answer from a worker thread, 64 connections"},
}


def arguments():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = ap.add_argument_group("what is measured")
    what.add_argument("--servers", default=os.path.join(BENCHES, "servers.json"))
    what.add_argument("--only", help="names, comma-separated")
    what.add_argument("--group", help="groups, comma-separated: ours, floor, raw, peer")
    what.add_argument("--add", action="append", default=[], metavar="NAME=COMMAND",
                      help="another server: gets PORT and ROOT, may hold {port} {root} {lab} {run} {shardlet}")
    what.add_argument("--scenario", default="64:1,256:1,1024:1,64:16", help="CONNECTIONS:PIPELINE,...; a third number is "
                      "connections that are open and idle beside them")
    what.add_argument("--case", default="", help="comma-separated: " + ", ".join(CASES))
    what.add_argument("--static", action="store_true", help="files of 4 KiB, 64 KiB and 1 MiB, of the servers that can")
    what.add_argument("--rate", default="", help="requests a second, comma-separated: latency at a constant rate; 70%% is that "
                      "share of the highest load of the slowest server")
    what.add_argument("--h2load", action="store_true", help="h2load too, as a cross-check")
    what.add_argument("--memory", action="store_true", help="memory for each idle connection")
    what.add_argument("--idle", type=int, default=10000, help="connections of --memory")
    what.add_argument("--cold-start", action="store_true", help="from start to first answer")
    what.add_argument("--starts", type=int, default=11, help="starts of --cold-start")
    what.add_argument("--shards", action="store_true", help="two shards on two CPUs beside two processes of one shard")
    what.add_argument("--no-load", action="store_true", help="leave GET /plaintext under load out")
    how = ap.add_argument_group("how")
    how.add_argument("--program", help="the shardlet to measure; default: the release build")
    how.add_argument("--gen", choices=("load", "wrk"), default="load", help="load is the bench's own; wrk fills up earlier")
    how.add_argument("--rounds", type=int, help="default: 5")
    how.add_argument("--secs", type=int, help="of one run; default: 2")
    how.add_argument("--warm", type=int, default=2, help="seconds of load before the first round")
    how.add_argument("--quick", action="store_true", help="3 rounds of 1 s")
    how.add_argument("--request", choices=sorted(HEADERS), default="usual")
    how.add_argument("--base", default="floor-uring+httparse", help="the server that ratios are taken to")
    how.add_argument("--foreign", type=float, default=0.04, help="share of both CPUs that others may take in a run that counts")
    how.add_argument("--place", choices=("near", "far", "core", "any"), default="near", help="placement of the CPUs that counts")
    how.add_argument("--place-wait", type=float, default=10, help="seconds to wait for it before a run")
    how.add_argument("--max-wait", type=int, default=60, help="seconds to wait for an idle machine before a round")
    how.add_argument("--retries", type=int, default=2, help="repeats of a run that was disturbed or wrongly placed")
    how.add_argument("--nice", type=int, default=-15, help="niceness of servers and generator; 0 leaves it")
    how.add_argument("--server-cpu", type=int, default=0)
    how.add_argument("--load-cpu", type=int, default=1)
    how.add_argument("--port", type=int, default=12000 + os.getpid() % 40 * 400, help="the first of some hundreds; by default "
                     "another for each measurement, so that two of them do not meet")
    how.add_argument("--no-lock", action="store_true", help="do not take turns with other measurements")
    how.add_argument("--out", default=os.path.join(LAB, "results"))
    how.add_argument("--label", default="compare")
    opt = ap.parse_args()
    opt.rounds = opt.rounds or (3 if opt.quick else 5)
    opt.secs = opt.secs or (1 if opt.quick else 2)
    return opt


def specs(opt):
    """The servers that were asked for."""
    with open(opt.servers) as f:
        out = json.load(f)["servers"]
    if opt.group:
        out = [s for s in out if s["group"] in opt.group.split(",")]
    if opt.only is not None:
        by = {s["name"]: s for s in out}
        unknown = [n for n in opt.only.split(",") if n and n not in by]
        if unknown:
            sys.exit(f"compare.py: no such server: {', '.join(unknown)}; known: {', '.join(by)}")
        out = [by[n] for n in opt.only.split(",") if n]
    for a in opt.add:
        name, _, cmd = a.partition("=")
        out.append({"name": name, "group": "ours", "cmd": cmd})
    return out


def scenarios(opt):
    """What is run against the servers, in order."""
    out = []
    for text in opt.scenario.split(",") if not opt.no_load else []:
        numbers = [int(n) for n in text.split(":")]
        conns, depth, still = numbers + [1, 0][len(numbers) - 1:]
        title = f"{conns:,} connection{'s' if conns > 1 else ''}" + (f", pipelined {depth} deep" if depth > 1 else "")
        title += f", {still:,} more open and idle" if still else ""
        out.append({"key": f"c{conns}-p{depth}" + (f"-i{still}" if still else ""), "title": title, "tool": opt.gen, "path": "/plaintext",
                    "conns": conns, "depth": depth, "idle": still})
    for name in filter(None, opt.case.split(",")):
        if name not in CASES:
            sys.exit(f"compare.py: no such case: {name}; known: {', '.join(CASES)}")
        out.append({"key": name, "case": name, "tool": opt.gen, "conns": 64, "depth": 1, **CASES[name]})
    if opt.h2load:
        out.append({"key": "h2load-c64", "title": "h2load, 64 connections", "tool": "h2load", "path": "/plaintext",
                    "conns": 64, "depth": 1})
    for size in ("4k", "64k", "1m") if opt.static else ():
        out.append({"key": f"static-{size}", "title": f"file of {size}, 64 connections", "tool": opt.gen,
                    "path": f"/file-{size}.bin", "conns": 64, "depth": 1, "static": True})
    return out + [rates.scenario(rate) for rate in filter(None, opt.rate.split(","))]


def takes_part(srv, sc, checks):
    if sc.get("static") and not srv.spec.get("static"):
        return False
    if sc.get("case") and sc["case"] not in srv.spec.get("paths", {}):
        return False
    return sc["depth"] == 1 or checks[srv.name]["check"]["pipeline"]


def files():
    """What the servers of static files serve."""
    os.makedirs(WWW, exist_ok=True)
    contents = {"plaintext": b"Hello, World!"}
    contents.update({f"file-{name}.bin": os.urandom(size) for name, size in (("4k", 4096), ("64k", 65536), ("1m", 1 << 20))})
    for name, content in contents.items():
        path = os.path.join(WWW, name)
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.write(content)


def facts(opt):
    """Where and of what the figures are."""
    cpu = re.search(r"(?m)^model name\s*:\s*(.*)$", read("/proc/cpuinfo"))
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True).stdout.strip()
    words = ["benches/compare.py"] + sys.argv[1:]
    return {"label": opt.label, "command": " ".join(map(shlex.quote, words)), "commit": commit or "?",
            "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"), "kernel": platform.release().split("-")[0],
            "cpus": os.cpu_count(), "cpu": cpu.group(1) if cpu else "?", "rounds": opt.rounds, "secs": opt.secs,
            "gen": opt.gen, "request": opt.request, "servers": {}, "scenarios": {}, "memory": {}, "starts": {}, "shards": {},
            "failed": {}, "sweeps": []}


def start_all(wanted, res, opt):
    """Those that start and answer as they should, warmed up."""
    live = []
    for i, spec in enumerate(wanted):
        srv = Server(spec, opt.port + i, opt)
        try:
            srv.start()
        except (OSError, RuntimeError) as e:
            say("!!", e)
            res["failed"][srv.name] = str(e)[:300]
            continue
        live.append(srv)
        found = check(srv, opt)
        res["servers"][srv.name] = {"group": srv.group, "check": found}
        if not found["ok"]:
            say("!!", srv.name, found)
            res["failed"][srv.name] = "wrong answer: " + json.dumps(found)
            srv.stop()
            live.remove(srv)
    generator = own_load if opt.gen == "load" else wrk
    for srv in live:
        generator(srv.port, {"path": "/plaintext", "conns": 64, "depth": 1}, max(opt.warm, srv.spec.get("warm", 0)), opt)
        srv.refresh()
    say("up:", " ".join(s.name for s in live))
    return live


def disturbed(run, opt):
    """How far from what counts: placement, other work, and how much of it."""
    return (opt.place != "any" and run["place"] not in (opt.place, "?"), run["foreign"] > opt.foreign, run["foreign"])


def careful(srv, live, sc, opt, sweep):
    """One run; again where something else ran meanwhile or the host moved a CPU, and then the better one."""
    ksoft = kthread(f"ksoftirqd/{opt.server_cpu}")
    run = one(srv, live, sc, opt.secs, opt, ksoft)
    for _ in range(opt.retries):
        if not any(disturbed(run, opt)[:2]):
            break
        sweep.setdefault("again", []).append(f"{srv.name} {run['place']} {run['foreign']:.3f} {run['foreign_top'][:2]}")
        quiet(opt.max_wait / 4)
        run = min(run, one(srv, live, sc, opt.secs, opt, ksoft), key=lambda r: disturbed(r, opt))
    return run


def sweep(rnd, use, live, sc, res, opt):
    """One round of one scenario over all its servers."""
    with Lock(not opt.no_lock):
        log = {"scenario": sc["key"], "round": rnd, "quiet": quiet(opt.max_wait), "calib_ms": calibrate(opt.server_cpu)}
        first = rnd % max(1, len(use))
        for srv in use[first:] + use[:first]:
            its = dict(sc, path=srv.spec["paths"][sc["case"]]) if sc.get("case") else sc
            try:
                res["scenarios"][sc["key"]]["runs"][srv.name].append(careful(srv, live, its, opt, log))
            except Exception as e:  # one server's trouble is no other's
                say("!!", srv.name, sc["key"], str(e)[:300])
                res["failed"][f"{srv.name} {sc['key']}"] = str(e)[:300]
                if srv.proc is None or srv.proc.poll() is not None:
                    srv.stop()
                    srv.start()
            time.sleep(0.1)
        log["calib_after_ms"] = calibrate(opt.server_cpu)
        res["sweeps"].append(log)
    say(f"{sc['key']} round {rnd + 1}/{opt.rounds}", json.dumps(log))


def alone(wanted, res, opt):
    """Memory, cold start, more shards: fresh instances of each server, alone."""
    jobs = [("memory", idle.memory, opt.memory), ("starts", idle.cold_start, opt.cold_start),
            ("shards", shards.measure, opt.shards)]
    for name, measure, is_wanted in jobs:
        for i, spec in enumerate(wanted if is_wanted else []):
            if name == "shards" and spec.get("group") != "ours":
                continue
            res["servers"].setdefault(spec["name"], {"group": spec.get("group", "ours")})
            try:
                with Lock(not opt.no_lock):
                    quiet(opt.max_wait)
                    res[name][spec["name"]] = measure(spec, opt.port + 200 + 4 * i, opt)
                say(name, spec["name"], json.dumps(res[name][spec["name"]]))
            except (OSError, RuntimeError) as e:
                say("!!", name, spec["name"], str(e)[:300])
                res["failed"][f"{spec['name']} {name}"] = str(e)[:300]


def main():
    opt = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    raise_limits()
    opt.idle = min(opt.idle, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    opt.program = os.path.abspath(opt.program) if opt.program else program()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("compare.py: two CPUs are needed, one for the server and one for the generator")
    os.sched_setaffinity(0, {opt.load_cpu})
    if opt.gen == "load" and not os.path.exists(os.path.join(BIN, "load")):
        sys.exit(f"compare.py: {BIN}/load is not built; run benches/setup-peers.sh, or use --gen wrk")
    files()
    res, wanted = facts(opt), []
    for spec in specs(opt):
        absent = Server(spec, 0, opt).missing()
        if absent:
            res["failed"][spec["name"]] = f"{absent} is not there; benches/setup-peers.sh builds and installs the peers"
        else:
            wanted.append(spec)
    if res["failed"]:
        say("not on this machine, left out:", ", ".join(res["failed"]), "(benches/setup-peers.sh)")
    live, plan = [], scenarios(opt)
    try:
        if plan:
            with Lock(not opt.no_lock):
                live = start_all(wanted, res, opt)
        for sc in plan:
            rates.settle(sc, live, opt)
            res["scenarios"][sc["key"]] = dict(sc, runs={s.name: [] for s in live if takes_part(s, sc, res["servers"])})
        # Every scenario in every round: what the machine does meanwhile is shared by all of them.
        for rnd in range(opt.rounds):
            for sc in plan:
                use = [s for s in live if s.name in res["scenarios"][sc["key"]]["runs"]]
                sweep(rnd, use, live, sc, res, opt)
            report.write(res, opt)
    finally:
        for srv in live:
            srv.stop()
    alone(wanted, res, opt)
    print(report.write(res, opt))


if __name__ == "__main__":
    main()
