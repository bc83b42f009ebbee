#!/usr/bin/env python3
"""The conformance cases again, each sent octet by octet, and cut in two at its octets: no cut may change an outcome.

    cuts.py BINARY [DRIVER] [--every N]     DRIVER: auto (default), uring or epoll

A case is cut at every Nth octet (97: a sample of a few seconds; 1: all, some minutes), starting at another one in each
case, so that a sample reaches all places. Texts above 2,000 octets are cut at their beginning and their end.
Exit status 0 only if every outcome was allowed.
"""
import argparse
import concurrent.futures
import glob
import os
import sys
import tempfile
import types

import check
import run

WHOLE_MAX = 2000
PAUSE_MS = 2
JOBS = 48


def cut_places(length, first, every):
    """The offsets at which a text of this length is cut in two."""
    places = range(1, length) if length <= WHOLE_MAX else [*range(1, 400), *range(length - 400, length)]
    return list(places)[first % every::every]


def in_octets(step):
    """The step in writes of one octet; a step that is no short text stays as it is."""
    return ["drip", step, 0.2, 1] if isinstance(step, str) and len(step) <= WHOLE_MAX else step


def variants(steps, number, every):
    """The ways to send these steps: (what was done, steps)."""
    yield "octet by octet", [in_octets(step) for step in steps]
    for at, step in enumerate(steps):
        if not isinstance(step, str):
            continue
        for place in cut_places(len(step), number, every):
            halves = [step[:place], ["delay", PAUSE_MS], step[place:]]
            yield "step %d cut at octet %d" % (at, place), steps[:at] + halves + steps[at + 1:]


def attempt(runner, case, how, steps):
    """One way to send one case: None, or what was wrong."""
    try:
        ok, _, why, seen = runner.once(case, steps, quick=True)
    except OSError as error:
        ok, why, seen = False, "socket error: %s" % error, ""
    return None if ok else "FAIL %s, %s: %s\n     seen: %s" % (case["id"], how, why, seen)


def run_profile(profile, port, every):
    """All variants of a profile's cases; gives their number and the failures."""
    runner = run.Runner(types.SimpleNamespace(host="127.0.0.1", port=port, profile=profile, scale=2.0))
    runner.preflight()
    cases = run.load(sorted(glob.glob(os.path.join(check.HERE, "cases", "*.jsonl"))))
    needs = {"etag": "ETAG", "strong": "STRONG", "lm": "HAS_LM"}
    cases = [case for case in cases if case["profile"] in (profile, "both")
             and all(needs[need] in runner.vars for need in case.get("needs", []))]
    work = [(case, how, steps) for number, case in enumerate(cases)
            for how, steps in variants([runner.sub(step) for step in case["send"]], number, every)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        failures = [found for found in pool.map(lambda one: attempt(runner, *one), work) if found]
    return len(work), failures


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("binary")
    options.add_argument("driver", nargs="?", default="auto")
    options.add_argument("--every", type=int, default=97)
    options = options.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        run.make_root(folder)
        for profile, command in (("echo", ["demo"]), ("static", ["serve", os.path.join(folder, "www")])):
            server, port = check.start(options.binary, command, options.driver)
            try:
                count, failures = run_profile(profile, port, options.every)
            finally:
                code = check.stop(server)
            print("\n".join(failures[:20]) + "\n" if failures else "", end="")
            print("cuts: %s, driver %s: %d ways of sending, %d failed; the server ended with %s"
                  % (profile, options.driver, count, len(failures), code), flush=True)
            failed += len(failures) + (code != 0)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
