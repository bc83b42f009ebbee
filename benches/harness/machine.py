"""What this machine is doing: CPU time of process trees, placement of the two CPUs, and turns between measurements.
Linux and its /proc alone; nothing here knows a server."""
import fcntl
import json
import os
import resource
import subprocess
import sys
import time

BENCHES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(BENCHES)
LAB = os.environ.get("BENCH_LAB", os.path.join(ROOT, "bench-lab"))
LOCK = os.environ.get("BENCH_LOCK", os.path.join(LAB, "lock"))
BIN = os.path.join(LAB, "peers", "bin")
TICK = os.sysconf("SC_CLK_TCK")


def say(*a):
    print(*a, file=sys.stderr, flush=True)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode("latin-1")
    except OSError:
        return ""


def tree(pid):
    """pid and everything under it."""
    kids = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            s = read(f"/proc/{p}/stat")
            if s:
                kids.setdefault(int(s.rsplit(")", 1)[1].split()[1]), []).append(int(p))
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        if os.path.exists(f"/proc/{p}"):
            out.append(p)
        todo += kids.get(p, [])
    return out


def cpu(pids):
    """CPU use of these processes: ns by the scheduler per thread, ticks user, ticks system."""
    threads, ut, st = {}, 0, 0
    for p in pids:
        s = read(f"/proc/{p}/stat")
        if not s:
            continue
        f = s.rsplit(")", 1)[1].split()
        ut += int(f[11])
        st += int(f[12])
        try:
            tids = os.listdir(f"/proc/{p}/task")
        except OSError:
            tids = []
        for t in tids:
            v = read(f"/proc/{p}/task/{t}/schedstat").split()
            if v:
                threads[(p, t)] = int(v[0])
    return threads, ut, st


def cpu_diff(a, b):
    """Seconds of CPU between two readings: total, user, system."""
    ut, st = (b[1] - a[1]) / TICK, (b[2] - a[2]) / TICK
    if set(a[0]) <= set(b[0]):  # no thread ended meanwhile: nanosecond figures hold
        tot = sum(v - a[0].get(k, 0) for k, v in b[0].items()) / 1e9
    else:
        tot = ut + st
    return tot, ut, st


def resident(pids):
    """KiB of these processes: all, their share of what is shared; and what is their own (no file behind it, so that
    neither code that is paged in nor another process of the same program counts)."""
    whole = own = 0
    for p in pids:
        kib = {f[0]: int(f[1]) for f in map(str.split, read(f"/proc/{p}/smaps_rollup").splitlines()) if f[-1] == "kB"}
        whole += kib.get("Pss:", 0)
        own += kib.get("Pss_Anon:", 0) + kib.get("Pss_Shmem:", 0)
    return whole, own


def meminfo():
    return {k: int(v.split()[0]) for k, v in
            (l.split(":", 1) for l in read("/proc/meminfo").splitlines())}


def cpuline(n):
    for l in read("/proc/stat").splitlines():
        f = l.split()
        if f and f[0] == f"cpu{n}":
            v = [int(x) for x in f[1:9]]
            return {"busy": v[0] + v[1] + v[2] + v[5] + v[6] + v[7], "irq": v[5] + v[6],
                    "steal": v[7], "all": sum(v)}
    return {"busy": 0, "irq": 0, "steal": 0, "all": 0}


def kthread(name):
    for p in os.listdir("/proc"):
        if p.isdigit() and read(f"/proc/{p}/comm").strip() == name:
            return int(p)
    return None


def snapshot():
    """CPU ticks of every process, with its name."""
    out = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            s = read(f"/proc/{p}/stat")
            if s:
                f = s.rsplit(")", 1)[1].split()
                out[int(p)] = (int(f[11]) + int(f[12]), s[s.index("(") + 1:s.rindex(")")])
    return out


def running(own):
    """Other processes that run right now."""
    out = []
    for p in os.listdir("/proc"):
        if p.isdigit() and int(p) not in own:
            s = read(f"/proc/{p}/stat")
            if s and s.rsplit(")", 1)[1].split()[0] == "R":
                out.append(s[s.index("(") + 1:s.rindex(")")])
    return out


def quiet(limit=60):
    """Waits until the machine is idle; gives what it saw."""
    t0 = time.time()
    while True:
        a = [cpuline(n) for n in range(os.cpu_count())]
        time.sleep(0.25)
        b = [cpuline(n) for n in range(os.cpu_count())]
        busy = max((y["busy"] - x["busy"]) / max(1, y["all"] - x["all"]) for x, y in zip(a, b))
        if busy < 0.06 or time.time() - t0 > limit:
            return {"busy": round(busy, 3), "waited_s": round(time.time() - t0, 1),
                    "loadavg": read("/proc/loadavg").split()[0], "running": running({os.getpid()})}


def calibrate(cpu_no):
    """A fixed piece of work on one CPU, in ms: shows drift of the machine itself."""
    old = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu_no})
    best = 1e9
    for _ in range(3):
        t = time.perf_counter()
        x = 0
        for i in range(200_000):
            x += i * i
        best = min(best, time.perf_counter() - t)
    os.sched_setaffinity(0, old)
    return round(best * 1e3, 3)


def crosscpu(opt):
    """Round trip of a cache line between the two CPUs and so on, right now; None where the tool is not built."""
    try:
        cpus = {opt.server_cpu, opt.load_cpu}
        p = subprocess.run([os.path.join(BIN, "calib"), str(opt.server_cpu), str(opt.load_cpu)],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=20,
                           preexec_fn=lambda: (os.setsid(), os.sched_setaffinity(0, cpus), favour(opt.nice)))
        return json.loads(p.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def place(m):
    """How the host has laid the two CPUs: on one core, on cores that share a cache, or far apart.
    Far apart costs a server 30 to 50 % more CPU a request, so runs of one kind alone are compared."""
    if not m:
        return "?"
    return "core" if m["pingpong_ns"] < 45 else "near" if m["pingpong_ns"] < 130 else "far"


def settle(opt):
    """Waits (a while) for the wanted placement; gives the last reading."""
    end = time.time() + opt.place_wait
    while True:
        m = crosscpu(opt)
        if opt.place == "any" or place(m) in (opt.place, "?") or time.time() > end:
            return m
        time.sleep(0.4)


class Lock:
    """A turn: builds and measurements of one machine take it one after the other."""

    def __init__(self, on=True):
        self.on = on

    def __enter__(self):
        if self.on:
            os.makedirs(os.path.dirname(LOCK), exist_ok=True)
            self.f = open(LOCK, "a")
            fcntl.flock(self.f, fcntl.LOCK_EX)
        return self

    def __exit__(self, *a):
        if self.on:
            fcntl.flock(self.f, fcntl.LOCK_UN)
            self.f.close()
            time.sleep(0.3)  # lets another waiter have it


def favour(nice):
    """This process group (and only it) goes before others; best effort."""
    if nice:
        try:
            os.nice(nice)
            with open("/proc/self/autogroup", "w") as f:
                f.write(str(nice))
        except OSError:
            pass


def raise_limits():
    """Open files up to 65536, or as far as the hard limit goes."""
    for n in (65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
            return
        except (ValueError, OSError):
            pass

