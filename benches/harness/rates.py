"""Latency at a constant rate: the rate itself, or a share of what the slowest of the servers can do."""
from .generators import own_load
from .machine import say

STEP = 1000  # requests a second that a rate is rounded down to
SECONDS = 2  # of the closed loop that finds the highest load


def scenario(text):
    """The scenario of one word of --rate: `60000`, or `70%` to be settled once the servers run."""
    out = {"key": f"rate-{text.replace('%', 'pc')}", "tool": "load", "path": "/plaintext", "conns": 64, "depth": 1}
    if text.endswith("%"):
        return dict(out, share=float(text[:-1]) / 100, title=f"{text} of the highest load of the slowest")
    return dict(out, rate=int(text), title=f"{int(text):,} requests a second, 64 connections")


def settle(sc, live, opt):
    """Finds the rate of a scenario that is a share of the highest load of the slowest."""
    if "share" not in sc:
        return
    loop = {"path": sc["path"], "conns": sc["conns"], "depth": 1}
    highest = {}
    for srv in live:
        answers = own_load(srv.port, loop, SECONDS, opt)
        highest[srv.name] = answers["requests"] / answers["secs"]
    slowest = min(highest, key=highest.get)
    sc["rate"] = max(STEP, int(highest[slowest] * sc["share"]) // STEP * STEP)
    sc["highest"] = {name: round(rps) for name, rps in highest.items()}
    sc["title"] += f" ({slowest}): {sc['rate']:,} requests a second, 64 connections"
    say("highest loads:", sc["highest"], "rate:", sc["rate"])
