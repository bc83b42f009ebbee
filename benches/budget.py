#!/usr/bin/env python3
"""Where the CPU time of a request goes: samples of the server's thread under load, by part of the program and the kernel.

    benches/budget.py [--driver uring|epoll] [--conns 64] [--depth 1] [--seconds 4] [--server NAME] [--program FILE]
    benches/budget.py --stages      the loop's own counters instead, of a build with --features stages

Needs `perf` (software event cpu-clock, so it works in virtual machines), the release build, and the generator of
benches/setup-peers.sh. Shares are of the samples; µs a request are shares of the CPU time that the server spent.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

from harness import generators, servers
from harness.machine import BIN, cpu, cpu_diff, read

# The first that fits a symbol; user first. Inlined functions count where they were put.
USER = [
    ("http1: parse", r"httparse|http1::(parse|scan|framing|target|grammar|head)"),
    ("http1: encode", r"http1::(encode|fields)"),
    ("http1: cycle", r"http1::"),
    ("routing", r"routing|matchit"),
    ("exchange", r"exchange"),
    ("handler", r"handlers"),
    ("connection", r"connection"),
    ("shards: driver", r"shards::driver|io_uring"),
    ("shards: loop, timers, tasks, net", r"shards::"),
    ("allocator", r"malloc|_int_free|\bfree\b|cfree|calloc|realloc|mi_|mimalloc|unlink_chunk|tcache"),
    ("copies, compares, searches", r"mem(move|cpy|chr|cmp|set|rchr)"),
    ("clock", r"clock_gettime|vdso"),
    ("other", r""),
]
KERNEL = [
    ("io_uring", r"\b_*io_"),
    ("epoll", r"\bep_|epoll"),
    ("copying", r"copy_(to|from)|_copy_|check_object|__virt_addr|csum"),
    ("system call entry", r"syscall|entry_SYSCALL|do_syscall"),
    ("tcp, ip, loopback", r"tcp|\bip_|__ip|inet|ipv4|sk_|sock|skb|netif|net_rx|loopback|dev_|backlog|dst_|bbr|nf_|eth_|napi|"
     r"softirq|local_bh|lock_sock|kmem|kfree|kmalloc|slab|page_frag|slub"),
    ("scheduler, interrupts, locks", r"sched|wake|switch|spin|irq|timer|rcu|futex|clock|tsc|msr|apic|pv_"),
    ("other", r""),
]


def group(table, symbol):
    return next(name for name, pattern in table if re.search(pattern, symbol))


def samples(data):
    """[(is_kernel, symbol, share)] of a recording."""
    out = subprocess.run(["perf", "report", "-i", data, "--no-children", "--stdio", "-F", "overhead,sym", "-t", "|", "--percent-limit", "0"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    rows = re.findall(r"^\s*([\d.]+)%?\s*\|\s*\[(.)\]\s*(.*?)\s*$", out, re.M)
    return [(kind == "k", symbol, float(share)) for share, kind, symbol in rows]


def record(opt, srv):
    """Samples the loaded server; gives them, its CPU µs a request, and requests a second."""
    scenario = {"path": "/plaintext", "conns": opt.conns, "depth": opt.depth}
    generators.own_load(srv.port, scenario, 1, opt)
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        pids = srv.refresh()
        perf = subprocess.Popen(["perf", "record", "-q", "-F", "3999", "-e", "cpu-clock", "-p", ",".join(map(str, pids)), "-o", data,
                                 "sleep", str(opt.seconds)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = cpu(pids)
        load = generators.own_load(srv.port, scenario, opt.seconds, opt)
        spent = cpu_diff(before, cpu(srv.refresh()))[0]
        perf.wait()
        return samples(data), spent / max(1, load["requests"]) * 1e6, load["requests"] / load["secs"]


def stages(opt, srv):
    """The line that each shard logs at its end, after a load."""
    generators.own_load(srv.port, {"path": "/plaintext", "conns": opt.conns, "depth": opt.depth}, opt.seconds, opt)
    srv.stop()
    lines = re.findall(r"stages of .*", read(srv.log.name))
    return "\n".join(lines) or "no counters: build with `cargo build --release --features stages`"


def table(rows, cost):
    total = sum(share for _, _, share in rows) or 1
    print("| part | share | µs a request |\n| --- | ---: | ---: |")
    for label, is_kernel, groups in (("user", False, USER), ("kernel", True, KERNEL)):
        mine = [(symbol, share / total) for kernel, symbol, share in rows if kernel == is_kernel]
        whole = sum(share for _, share in mine)
        print(f"| **{label}** | **{whole:.1%}** | **{whole * cost:.2f}** |")
        sums = {}
        for symbol, share in mine:
            name = group(groups, symbol)
            sums[name] = sums.get(name, 0) + share
        for name, share in sorted(sums.items(), key=lambda row: -row[1]):
            print(f"| {label}: {name} | {share:.1%} | {share * cost:.2f} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--driver", choices=("uring", "epoll"), default="uring")
    ap.add_argument("--server", help="a peer of servers.json instead")
    ap.add_argument("--conns", type=int, default=64)
    ap.add_argument("--depth", type=int, default=1)
    ap.add_argument("--seconds", type=int, default=4)
    ap.add_argument("--program", default=servers.program(), help="the shardlet; default: the release build")
    ap.add_argument("--stages", action="store_true", help="time of the stages of the loop, counted by the loop")
    ap.add_argument("--port", type=int, default=18600)
    ap.set_defaults(request="usual", server_cpu=0, load_cpu=1, nice=-15)
    opt = ap.parse_args()
    if not os.path.exists(os.path.join(BIN, "load")):
        sys.exit(f"budget.py: {BIN}/load is not built; run benches/setup-peers.sh")
    spec = servers.named(opt.server or ("shardlet" if opt.driver == "uring" else "shardlet-epoll"))
    srv = servers.Server(spec, opt.port, opt)
    srv.start()
    try:
        if opt.stages:
            print(stages(opt, srv))
            return
        rows, cost, rate = record(opt, srv)
    finally:
        srv.stop()
    print(f"{spec['name']}, {opt.conns} connections, {opt.depth} deep: {cost:.2f} µs of CPU a request, {rate:,.0f} requests/s\n")
    table(rows, cost)


if __name__ == "__main__":
    main()
