"""The measured parts as Markdown: the page of a run, and the sections of README.md and docs/performance.md."""
import collections
import os
import re

from . import plot, targets
from .machine import ROOT
from .report import memory_table, replace, shards_table, start_table

COLUMNS = ("c1-p1", "c64-p1", "c256-p1", "c1024-p1", "c64-p16")
SHORT = ("1", "64", "256", "1,024", "64, 16 deep")
CASES = (("c64-p1", "GET /plaintext"), ("echo", "POST of 100 bytes, echoed"), ("missing", "404"),
         ("async", "asynchronous: a timer of 0 ms"), ("worker", "answered by another thread"))


def summary(found):
    return [dict(zip(("what", "target", "measured", "reached"), row)) for row in targets.rows(found)]


def facts(found):
    """Where, when and of what the figures are."""
    first = next(iter(found.values()))
    dates = sorted(res["date"] for res in found.values())
    span = dates[0] if dates[0][:10] == dates[-1][:10] else f"{dates[0]} to {dates[-1]}"
    return (f"`scripts/bench --all`, {span[:10]}, commit {first['commit']}, kernel {first['kernel']}, {first['cpus']} CPUs "
            f"({first['cpu']}), {first['rounds']} interleaved rounds of {first['secs']} s, medians, ± half of the range, headers "
            f"'{first['request']}'{placement(found)}.")


def placement(found):
    """How the host had laid the two CPUs in how many of the runs."""
    seen = collections.Counter(run["place"] for res in found.values() for sc in res["scenarios"].values()
                               for runs in sc["runs"].values() for run in runs)
    total = sum(seen.values())
    return "; CPUs " + ", ".join(f"{place} in {count / total:.0%}" for place, count in seen.most_common()) if total else ""


def target_table(found):
    out = ["| what | target | measured | |", "| --- | --- | --- | --- |"]
    for row in summary(found):
        out.append(f"| {row['what']} | {row['target']} | {row['measured']} | {'reached' if row['reached'] else '**missed**'} |")
    return out + [""]


def medians(found, generator, prefix):
    """{server: {scenario: median}} of the parts that begin with one of `prefix`."""
    out = {}
    for name in prefix:
        for key, sc in found.get(f"{name}-{generator}", {}).get("scenarios", {}).items():
            for server, fold in sc.get("folded", {}).items():
                out.setdefault(server, {}).setdefault(key, fold)
    return out


def cell(fold, with_spread):
    return "" if fold is None else f"{fold['cpu_us']:.2f}" + (f" ±{fold['spread'] * 50:.0f}%" if with_spread else "")


def cpu_table(found, generator, prefix=("one", "cpu"), with_spread=True):
    """Servers down, connections across, CPU µs a request; the cheapest at 64 connections first."""
    table = medians(found, generator, prefix)
    if not table:
        return []
    keys = [(key, short) for key, short in zip(COLUMNS, SHORT) if any(key in row for row in table.values())]
    order = sorted(table, key=lambda server: table[server].get("c64-p1", {"cpu_us": 1e9})["cpu_us"])
    out = [f"| {generator} | " + " | ".join(short for _, short in keys) + " |", "| --- |" + " ---: |" * len(keys)]
    for server in order:
        name = f"**{server}**" if server in targets.FLOOR else server
        out.append(f"| {name} | " + " | ".join(cell(table[server].get(key), with_spread) for key, _ in keys) + " |")
    return out + [""]


def latency_table(found):
    out = []
    for sc in found.get("rate", {}).get("scenarios", {}).values():
        out += [f"{sc['title']}; latency from when a request was due, of the generator that never sleeps:", "",
                "| server | CPU µs/request | p50 µs | p99 µs | p99.9 µs | not sent in time |", "| --- |" + " ---: |" * 5]
        for name, f in sorted(sc.get("folded", {}).items(), key=lambda item: item[1]["lat"]["p99"]):
            out.append(f"| {name} | {cell(f, True)} | {f['lat']['p50']:,.0f} | {f['lat']['p99']:,.0f} | {f['lat']['p999']:,.0f} | {f['errors']} |")
    return out + [""] if out else []


def growth_table(found):
    few, many = (targets.folded(found, "growth", key) for key in ("c256-p1", "c256-p1-i9744"))
    if not few:
        return []
    out = ["| server | 256 alone, µs/request | beside 9,744 idle | ratio |", "| --- | ---: | ---: | ---: |"]
    out += [f"| {name} | {cell(few[name], True)} | {cell(many[name], True)} | {many[name]['cpu_us'] / few[name]['cpu_us']:.2f} |"
            for name in few if name in many]
    return out + [""] + (shards_table(found["growth"]) if found["growth"].get("shards") else [])


def case_table(found):
    by_case = {key: targets.folded(found, "cases", key) for key, _ in CASES}
    servers = list(dict.fromkeys(name for folded in by_case.values() for name in folded))
    if not servers:
        return []
    out = ["| CPU µs/request | " + " | ".join(servers) + " |", "| --- |" + " ---: |" * len(servers)]
    for key, title in CASES:
        out.append(f"| {title} | " + " | ".join(cell(by_case[key].get(name), True) for name in servers) + " |")
    return out + [""]


def file_table(found):
    """Servers down, sizes across."""
    by_size = {size: targets.folded(found, "files", f"static-{size}") for size in targets.FILE_SIZES}
    servers = sorted(by_size["4k"], key=lambda name: by_size["4k"][name]["cpu_us"])
    if not servers:
        return []
    out = ["| CPU µs/request, 64 connections | 4 KiB | 64 KiB | 1 MiB |", "| --- |" + " ---: |" * len(by_size)]
    out += [f"| {name} | " + " | ".join(cell(folded.get(name), True) for folded in by_size.values()) + " |" for name in servers]
    return out + [""]


def absent(found):
    """What could not be measured, each once."""
    gone = {name: why.splitlines()[0][:90] for res in found.values() for name, why in res["failed"].items()}
    return ["Not measured: " + "; ".join(f"{name} ({why})" for name, why in gone.items()), ""] if gone else []


def sections(found):
    """(title, lines) of everything but the targets."""
    rest = {"Memory per idle connection": memory_table(found["memory"])[2:] if "memory" in found else [],
            "Start to first answer": start_table(found["start"])[2:] if "start" in found else []}
    return [("CPU time per request", cpu_table(found, "load") + cpu_table(found, "wrk")),
            ("CPU time per request, the slower peers in a run of their own", cpu_table(found, "load", ("slow",)) + cpu_table(found, "wrk", ("slow",))),
            ("Latency at a constant rate", latency_table(found)), ("Growth", growth_table(found)),
            ("Other paths", case_table(found)), ("Files", file_table(found)), *rest.items()]


def whole(found):
    """The page of a run."""
    out = ["# What was measured", "", facts(found), "", "## Targets", "", *target_table(found)]
    for title, lines in sections(found):
        out += [f"## {title}", "", *lines] if lines else []
    return "\n".join(out + absent(found))


def picture(found):
    """CPU time by scenario, the generators side by side."""
    columns = []
    for generator in ("load", "wrk"):
        runs = [found[name] for name in (f"one-{generator}", f"cpu-{generator}") if name in found]
        panels = [(f"{generator}, {sc['title']}", plot.rows_of(res, sc)) for res in runs for sc in res["scenarios"].values() if sc.get("folded")]
        columns += [panels] if panels else []
    return plot.grid(columns, targets.FLOOR["shardlet"], facts(found).replace("`", ""))


def put(path, mark, lines):
    """Replaces what stands between `<!-- MARK -->` and `<!-- end of MARK -->`."""
    with open(path) as f:
        text = f.read()
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    text, times = re.subn(re.escape(begin) + ".*?" + re.escape(end), lambda _: "\n".join([begin, *lines]) + end, text, flags=re.S)
    if times != 1:
        raise SystemExit(f"{path}: {times} places marked {mark}, one is needed")
    replace(path, text)


def missed(found):
    """The rows that lose, as a list."""
    return [f"- {row['what']}: {row['measured']} (target {row['target']})." for row in summary(found) if not row["reached"]]


def publish(found):
    """The figures into the documents: README.md the fast servers and what is missed, docs/performance.md all of it."""
    docs = os.path.join(ROOT, "docs")
    replace(os.path.join(docs, "performance.svg"), picture(found))
    short = [facts(found), "", *cpu_table(found, "load", with_spread=False), *cpu_table(found, "wrk", with_spread=False),
             "![CPU time per request, both generators](docs/performance.svg)", ""]
    losing = missed(found)
    put(os.path.join(ROOT, "README.md"), "figures", short + (["Losing rows:", "", *losing, ""] if losing else []))
    full = [facts(found), "", "### Targets", "", *target_table(found)]
    for title, lines in sections(found):
        full += [f"### {title}", "", *lines] if lines else []
    put(os.path.join(docs, "performance.md"), "figures", full + absent(found))
