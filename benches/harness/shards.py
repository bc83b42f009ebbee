"""Growth by shards: one process with two shards on two CPUs beside two processes with one shard each.

Both are driven alike, by a generator on each CPU for each of the two ports, so the difference is what the shards share.
A single shard with a CPU of its own is measured too; it has no generator beside it, so it is no base for the ratio.
"""
import copy
import statistics
import threading

from .generators import own_load
from .machine import cpu, cpu_diff
from .servers import Server

CONNECTIONS = 32  # of each of the four generators: 64 for each shard


def started(spec, port, opt, cpus, shards):
    srv = Server(dict(spec, cmd=spec["cmd"].replace("--shards 1", f"--shards {shards}"), cpus=cpus), port, opt)
    srv.start()
    return srv


def driven(servers, jobs, opt):
    """CPU µs per request of these servers under these generators: (port, CPU of the generator, connections)."""
    answers = []

    def drive(port, cpu_no, conns):
        its = copy.copy(opt)
        its.load_cpu = cpu_no
        answers.append(own_load(port, {"path": "/plaintext", "conns": conns, "depth": 1}, opt.secs, its)["requests"])

    threads = [threading.Thread(target=drive, args=job) for job in jobs]
    before = [cpu(srv.refresh()) for srv in servers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if len(answers) < len(jobs):
        raise RuntimeError("a generator failed")
    spent = sum(cpu_diff(b, cpu(srv.refresh()))[0] for srv, b in zip(servers, before))
    return spent / max(1, sum(answers)) * 1e6


def measure(spec, port, opt):
    """Medians of CPU µs per request, and the ratio that has to stay near one."""
    both = [opt.server_cpu, opt.load_cpu]
    servers = []
    try:
        two = started(spec, port, opt, both, 2)
        servers.append(two)
        for i, cpu_no in enumerate(both):
            servers.append(started(spec, port + 1 + i, opt, [cpu_no], 1))
        halves = servers[1:]

        def crossed(ports):
            return [(p, c, CONNECTIONS) for p in ports for c in both]

        runs = {"alone": [], "processes": [], "shards": []}
        for _ in range(opt.rounds):
            runs["alone"].append(driven(halves[:1], [(halves[0].port, opt.load_cpu, 2 * CONNECTIONS)], opt))
            runs["processes"].append(driven(halves, crossed([h.port for h in halves]), opt))
            runs["shards"].append(driven([two], crossed([two.port, two.port]), opt))
        out = {name: statistics.median(values) for name, values in runs.items()}
        ratios = [s / p for s, p in zip(runs["shards"], runs["processes"])]
        return dict(out, ratio=statistics.median(ratios), ratio_min=min(ratios), ratio_max=max(ratios), rounds=opt.rounds)
    finally:
        for srv in servers:
            srv.stop()
