"""One run of one scenario against one server: CPU time of its process tree for each answered request."""
import os
import resource

from .generators import TOOLS
from .machine import TICK, cpu, cpu_diff, cpuline, crosscpu, place, read, settle, snapshot
from .servers import hold_open


class Reading:
    """Everything that is counted, at one moment."""

    def __init__(self, srv, others, opt, ksoft):
        self.server = cpu(srv.refresh())
        self.others = cpu([p for o in others if o is not srv for p in o.pids])
        self.ksoft = cpu([ksoft] if ksoft else [])
        self.server_cpu, self.load_cpu = cpuline(opt.server_cpu), cpuline(opt.load_cpu)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.generator = children.ru_utime + children.ru_stime
        self.processes = snapshot()


def strangers(srv, a, b):
    """Names of the processes beside server and harness that took most CPU time between two readings."""
    spent = [(v[0] - a.processes.get(k, (0,))[0], v[1]) for k, v in b.processes.items()
             if k not in srv.pids and k != os.getpid()]
    return [f"{name} {ticks / TICK:.2f}s" for ticks, name in sorted(spent, reverse=True)[:3] if ticks > 2]


def one(srv, others, sc, secs, opt, ksoft):
    """One run of one scenario against one server."""
    if srv.proc.poll() is not None:
        raise RuntimeError("server died: " + read(srv.log.name)[-200:])
    before = settle(opt)
    still, _ = hold_open(srv.port, sc.get("idle", 0), opt)
    a = Reading(srv, others, opt, ksoft)
    r = TOOLS[sc["tool"]](srv.port, sc, secs, opt)
    b = Reading(srv, others, opt, ksoft)
    for connection in still:
        connection.close()
    after = crosscpu(opt)
    total, user, system = cpu_diff(a.server, b.server)
    requests, span = max(1, r["requests"]), r["secs"]

    def spent(which, key):
        return (getattr(b, which)[key] - getattr(a, which)[key]) / TICK

    busy = spent("server_cpu", "busy") + (spent("load_cpu", "busy") if opt.load_cpu != opt.server_cpu else 0)
    foreign = max(0.0, busy - total - (b.generator - a.generator))
    return {
        "place": place(before) if place(before) == place(after) else "mixed", "machine": before, "machine_after": after,
        "requests": r["requests"], "errors": r["errors"], "rps": r["requests"] / span, "mbps": r["bytes"] / span / 1e6,
        "cpu_us": total / requests * 1e6, "user_share": user / max(1e-9, user + system), "server_util": total / span,
        "steal_s": spent("server_cpu", "steal") + spent("load_cpu", "steal"),
        "load_util": spent("load_cpu", "busy") / max(1e-9, spent("load_cpu", "all")),
        "foreign": foreign / (2 * span), "foreign_top": strangers(srv, a, b),
        "others_s": cpu_diff(a.others, b.others)[0], "ksoftirqd_s": cpu_diff(a.ksoft, b.ksoft)[0], "lat": r["lat"],
    }
