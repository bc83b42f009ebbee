"""What the server is to reach, each beside what was measured: rows of (what, target, measured, reached or not)."""

FLOOR = {"shardlet": "floor-uring+httparse", "shardlet-epoll": "epoll+httparse"}
ALONE, PIPELINED = 1.12, 1.25  # times the floor
LOADS = ("cpu-load", "cpu-wrk", "one-load", "one-wrk", "slow-load", "slow-wrk")
FILE_SIZES = {"4k": ("nginx", "h2o"), "64k": ("nginx", "h2o"), "1m": ("nginx",)}  # whom a file of this size is compared with
IDLE_BYTES, GROWTH, ASYNC, START_MS = 512, 1.05, 1.25, 20


def folded(found, part, key):
    """Medians of the servers of one scenario."""
    return found.get(part, {}).get("scenarios", {}).get(key, {}).get("folded", {})


def cheaper(res, medians, cost):
    """Peers that need less than `cost`, cheapest first."""
    groups = res["servers"]
    less = [(f["cpu_us"], name) for name, f in medians.items() if groups[name]["group"] in ("peer", "raw") and f["cpu_us"] < cost]
    return [f"{name} {value:.2f}" for value, name in sorted(less)]


def processor(found):
    """CPU time a request, by generator and scenario."""
    for part in LOADS:
        for key, sc in found.get(part, {}).get("scenarios", {}).items():
            medians = sc.get("folded", {})
            for name, floor in FLOOR.items():
                if name in medians and floor in medians:
                    most = PIPELINED if sc["depth"] > 1 else ALONE
                    mine = medians[name]["cpu_us"]
                    ratio = mine / medians[floor]["cpu_us"]
                    ahead = cheaper(found[part], medians, mine) if name == "shardlet" else []
                    note = f"{mine:.2f} µs, {ratio:.2f} × floor" + (f"; cheaper: {', '.join(ahead)}" if ahead else "")
                    if part.startswith("slow") and not ahead:
                        continue  # the ratio is that of the part with more rounds
                    also = ", below every peer" if name == "shardlet" else ""
                    yield (f"{name}, {sc['title']}, {found[part]['gen']}", f"≤ {most} × floor{also}", note,
                           ratio <= most and not ahead)


def latency(found):
    """p50, p99, p99.9 at the constant rate, none above any peer's."""
    for sc in found.get("rate", {}).get("scenarios", {}).values():
        medians = sc.get("folded", {})
        for name in FLOOR:
            others = {n: f for n, f in medians.items() if n not in FLOOR}
            for quantile, label in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")):
                if name in medians and others:
                    mine = medians[name]["lat"][quantile]
                    best = min(others, key=lambda n: others[n]["lat"][quantile])
                    least = others[best]["lat"][quantile]
                    yield (f"{name}, {label} at {sc['rate']:,} requests/s", "not above any of nginx, hyper, xitca",
                           f"{mine:,.0f} µs; least of them {least:,.0f} ({best})", mine <= least)


def files(found):
    """CPU time for a file, none above that of the peers."""
    for size, peers in FILE_SIZES.items():
        medians = folded(found, "files", f"static-{size}")
        for name in (n for n in medians if n.startswith("shardlet")):
            mine, others = medians[name]["cpu_us"], {n: medians[n]["cpu_us"] for n in peers if n in medians}
            if others:
                yield (f"{name}, file of {size}", f"not above {' and '.join(others)}", f"{mine:.2f} µs; " + ", ".join(
                    f"{peer} {value:.2f}" for peer, value in others.items()), mine <= min(others.values()))


def rest(found):
    """Memory, growth, the asynchronous path, the start."""
    for name in FLOOR:
        memory = found.get("memory", {}).get("memory", {}).get(name)
        if memory:
            yield (f"{name}, user memory of an idle connection ({memory['conns']:,} of them)", f"≤ {IDLE_BYTES} bytes",
                   f"{memory['user_per_conn']:.0f} bytes, kernel {memory['kernel_per_conn']:,.0f}", memory["user_per_conn"] <= IDLE_BYTES)
        few, many = (folded(found, "growth", key).get(name) for key in ("c256-p1", "c256-p1-i9744"))
        if few and many:
            ratio = many["cpu_us"] / few["cpu_us"]
            yield (f"{name}, 256 of 10,000 connections active", f"≤ {GROWTH} × 256 alone", f"{ratio:.2f}", ratio <= GROWTH)
        shards = found.get("growth", {}).get("shards", {}).get(name)
        if shards:
            yield (f"{name}, two shards on two cores", f"≤ {GROWTH} × one shard's",
                   f"{shards['ratio']:.2f} ({shards['ratio_min']:.2f} to {shards['ratio_max']:.2f})", shards["ratio"] <= GROWTH)
        plain, later = (folded(found, "cases", key).get(name) for key in ("c64-p1", "async"))
        if plain and later:
            ratio = later["cpu_us"] / plain["cpu_us"]
            yield f"{name}, asynchronous answer", f"≤ {ASYNC} × synchronous", f"{ratio:.2f}", ratio <= ASYNC
        start = found.get("start", {}).get("starts", {}).get(name)
        if start:
            yield (f"{name}, start to first answer", f"≤ {START_MS} ms", f"{start['median_ms']:.1f} ms", start["median_ms"] <= START_MS)


def rows(found):
    return [*processor(found), *latency(found), *files(found), *rest(found)]
