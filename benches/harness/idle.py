"""What a server costs while it does nothing: memory for each idle connection, and the time from its start to its
first answer."""
import socket
import statistics
import time

from .machine import cpu, meminfo, resident
from .servers import HEADERS, Server, hold_open, raw_request, read_responses


def memory(spec, port, opt):
    """Memory per idle kept-open connection, of a fresh instance."""
    n = min(opt.idle, spec.get("idle", opt.idle))
    srv = Server(spec, port, opt)
    srv.start()
    socks = []
    try:
        q = raw_request("/plaintext", HEADERS[opt.request])
        s = socket.create_connection(("127.0.0.1", port), 5)
        s.settimeout(10)
        for _ in range(300):
            s.sendall(q)
            read_responses(s, 1)
        s.close()
        time.sleep(1.0)
        p0, own0 = resident(srv.refresh())
        m0 = meminfo()
        socks, failed = hold_open(port, n, opt)
        time.sleep(2.0)
        k = max(1, len(socks))
        p1, own1 = resident(srv.refresh())
        m1 = meminfo()
        for s in socks:
            s.close()
        socks = []
        time.sleep(2.0)
        p2, _ = resident(srv.refresh())

        def each(key):
            return (m1[key] - m0[key]) * 1024 / k

        return {"conns": k, "failed": failed, "pss_start_kib": p0, "pss_full_kib": p1, "pss_after_close_kib": p2,
                "pss_per_conn": (p1 - p0) * 1024 / k, "user_per_conn": (own1 - own0) * 1024 / k,
                "slab_per_conn": each("Slab"), "free_per_conn": -each("MemAvailable"),
                "kernel_per_conn": each("Slab") + each("KernelStack") + each("PageTables")}
    finally:
        for s in socks:
            s.close()
        srv.stop()


def start_once(spec, port, opt):
    """From the start of the process to the last byte of its first answer: milliseconds, and those of CPU time."""
    srv = Server(spec, port, opt)
    q = raw_request("/plaintext", HEADERS[opt.request])
    begun = time.perf_counter()
    srv.spawn()
    try:
        while time.perf_counter() - begun < 20:
            s = socket.socket()
            s.settimeout(5)
            try:
                s.connect(("127.0.0.1", port))
                s.sendall(q)
                read_responses(s, 1)
                passed = time.perf_counter() - begun
                return passed * 1e3, sum(cpu(srv.refresh())[0].values()) / 1e6
            except OSError:
                time.sleep(0.0002)
            finally:
                s.close()
        raise RuntimeError("no answer within 20 s")
    finally:
        srv.stop()


def cold_start(spec, port, opt):
    """Starts it again and again; medians, with the least and the most. The time to make the process counts, some
    milliseconds for every server; the CPU time is that of the server after exec and of its threads."""
    starts = [start_once(spec, port + i % 2, opt) for i in range(opt.starts)]
    times = [wall for wall, _ in starts]
    return {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times), "starts": len(times),
            "cpu_ms": statistics.median([spent for _, spent in starts])}
