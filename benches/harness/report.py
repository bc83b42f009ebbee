"""Runs folded to medians, as Markdown, JSON and a plot."""
import json
import os
import statistics

from . import plot

LOAD_HEAD = ("| server | group | CPU µs/request | spread | × base | requests/s | server busy | p50 µs | p99 µs | p99.9 µs | errors "
             "| runs as placed |\n| --- | --- |" + " ---: |" * 10)
MEMORY_HEAD = ("| server | group | Pss at start MiB | user memory per connection B | Pss after close MiB | kernel per connection, both ends, B "
               "| connections |\n| --- | --- |" + " ---: |" * 5)
START_HEAD = "| server | group | median ms | least ms | most ms | CPU ms | starts |\n| --- | --- |" + " ---: |" * 5

SHARDS_HEAD = ("| server | one shard alone, µs/request | two processes of one shard | one process of two shards | ratio | least | most "
               "| rounds |\n| --- |" + " ---: |" * 7)


def fold(runs, want="any"):
    """Medians of the runs with the wanted placement; of all where fewer than two have it."""
    right = [r for r in runs if want == "any" or r["place"] in (want, "?")]
    placed, all_runs = len(right), len(runs)
    if placed >= 2:
        runs = right

    def each(key):
        return [r[key] for r in runs]

    def median(key):
        return statistics.median(each(key))

    cpu = each("cpu_us")
    out = {"rounds": len(runs), "placed": placed, "runs": all_runs, "cpu_us_min": min(cpu), "cpu_us_max": max(cpu),
           "spread": (max(cpu) - min(cpu)) / max(1e-9, median("cpu_us")), "errors": sum(each("errors")),
           "foreign": max(each("foreign")), "others_s": max(each("others_s")), "ksoftirqd_s": max(each("ksoftirqd_s")),
           "steal_s": sum(each("steal_s")), "lat": {k: statistics.median([r["lat"][k] for r in runs]) for k in runs[0]["lat"]}}
    out.update({k: median(k) for k in ("cpu_us", "rps", "mbps", "server_util", "load_util", "user_share")})
    return out


def load_table(title, rows, base):
    out = [f"### {title}", "", LOAD_HEAD]
    for name, group, f in sorted(rows, key=lambda r: r[2]["cpu_us"]):
        lat = " | ".join(f"{f['lat'][k]:,.0f}" if k in f["lat"] else "-" for k in ("p50", "p99", "p999"))
        out.append(f"| {name} | {group} | {f['cpu_us']:.2f} | ±{f['spread'] * 50:.0f}% | {f['cpu_us'] / base:.2f} | {f['rps']:,.0f} | "
                   f"{f['server_util'] * 100:.0f}% | {lat} | {f['errors']} | {f['placed']}/{f['runs']} |")
    return out + [""]


def memory_table(res):
    out = ["### Memory per idle connection", "", MEMORY_HEAD]
    for name, m in sorted(res["memory"].items(), key=lambda x: x[1]["user_per_conn"]):
        out.append(f"| {name} | {res['servers'][name]['group']} | {m['pss_start_kib'] / 1024:.1f} | {m['user_per_conn']:.0f} | "
                   f"{m['pss_after_close_kib'] / 1024:.1f} | {m['kernel_per_conn']:.0f} | {m['conns']} |")
    return out + [""]


def start_table(res):
    out = ["### From start to first answer", "", START_HEAD]
    for name, m in sorted(res["starts"].items(), key=lambda x: x[1]["median_ms"]):
        out.append(f"| {name} | {res['servers'][name]['group']} | {m['median_ms']:.1f} | {m['min_ms']:.1f} | {m['max_ms']:.1f} | "
                   f"{m['cpu_ms']:.1f} | {m['starts']} |")
    return out + [""]


def shards_table(res):
    out = ["### Two shards on two CPUs", "", SHARDS_HEAD]
    for name, m in res["shards"].items():
        out.append(f"| {name} | {m['alone']:.2f} | {m['processes']:.2f} | {m['shards']:.2f} | {m['ratio']:.2f} | {m['ratio_min']:.2f} | "
                   f"{m['ratio_max']:.2f} | {m['rounds']} |")
    return out + [""]


def markdown(res, opt):
    out = [f"# {opt.label}", "", f"`{res['command']}`", "",
           f"{res['date']}, commit {res['commit']}, kernel {res['kernel']}, {res['cpus']} CPUs ({res['cpu']}), rounds {opt.rounds} × "
           f"{opt.secs} s, generator {opt.gen}, CPUs placed '{opt.place}', headers '{opt.request}'. CPU µs/request is the "
           "server's process tree, user and system; medians over rounds; spread is half of (max − min)/median.", ""]
    for sc in res["scenarios"].values():
        rows = [(n, res["servers"][n]["group"], fold(r, opt.place)) for n, r in sc["runs"].items() if r]
        if rows:
            sc["folded"] = {n: f for n, _, f in rows}
            out += load_table(sc["title"], rows, plot.base_of(rows, opt.base))
    out += memory_table(res) if res["memory"] else []
    out += start_table(res) if res["starts"] else []
    out += shards_table(res) if res["shards"] else []
    if res["failed"]:
        out += ["### Not measured", ""] + [f"- {k}: {v}" for k, v in res["failed"].items()] + [""]
    return "\n".join(out)


def replace(path, text):
    """Whole or not at all: a reader never sees half a file."""
    with open(path + ".new", "w") as f:
        f.write(text)
    os.replace(path + ".new", path)


def write(res, opt):
    """LABEL.md, LABEL.json and LABEL.svg; gives the Markdown."""
    os.makedirs(opt.out, exist_ok=True)
    base = os.path.join(opt.out, opt.label)
    text = markdown(res, opt)
    replace(base + ".md", text)
    replace(base + ".json", json.dumps(res, indent=1))
    replace(base + ".svg", plot.svg(res, opt.base))
    return text
