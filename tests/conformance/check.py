#!/usr/bin/env python3
"""Runs both conformance profiles against a shardlet binary; not one case may fail.

    check.py BINARY [DRIVER]        DRIVER: auto (default), uring or epoll

Exit status 0 only if every case of every category passes.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
RUNNER = os.path.join(HERE, "run.py")
START_SECONDS = 20
RUN_SECONDS = 300
STOP_SECONDS = 40

# Categories that must be there. In none of them may a case fail.
FLOOR = {
    "echo": ("request-line", "headers", "framing", "chunked", "smuggling"),
    "static": ("request-line", "headers", "smuggling", "range", "conditional"),
}


def start(binary, command, driver):
    """Starts a server on any port; gives the process and the port that it printed."""
    line = [binary, *command, "--listen", "127.0.0.1:0", "--admin", "off", "--driver", driver]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(START_SECONDS, server.kill)
    watchdog.start()
    try:
        for text in server.stdout:
            found = re.match(r"\s+http://127\.0\.0\.1:(\d+)", text)
            if found:
                threading.Thread(target=server.stdout.read, daemon=True).start()
                return server, int(found.group(1))
    finally:
        watchdog.cancel()
    sys.exit("%s printed no address and ended with %s" % (" ".join(line), server.wait()))


def stop(server):
    """Ends a server by its own pid; a server that has to be killed is a failure."""
    server.send_signal(signal.SIGTERM)
    try:
        return server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


def run(profile, port, folder):
    """Runs one profile; gives its categories."""
    result = os.path.join(folder, profile + ".json")
    line = [sys.executable, RUNNER, "--port", str(port), "--profile", profile, "--json", result]
    report = subprocess.run(line, timeout=RUN_SECONDS, check=False, stdout=subprocess.PIPE, text=True).stdout
    print("".join("  " + text for text in report.splitlines(keepends=True)), end="", flush=True)
    with open(result) as file:
        return json.load(file)["categories"]


def complaints(profile, categories):
    """What is below the floor."""
    for name in sorted({*FLOOR[profile], *categories}):
        counted = categories.get(name, {"passed": 0, "total": 0})
        if counted["total"] == 0 or counted["passed"] < counted["total"]:
            yield "%s: %s has %d of %d" % (profile, name, counted["passed"], counted["total"])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    binary, driver = sys.argv[1], (sys.argv + ["auto"])[2]
    below = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, RUNNER, "--make-root", folder], check=True)
        for profile, command in (("echo", ["demo"]), ("static", ["serve", os.path.join(folder, "www")])):
            print("conformance: %s against %s, driver %s" % (profile, command[0], driver), flush=True)
            server, port = start(binary, command, driver)
            try:
                below += complaints(profile, run(profile, port, folder))
            finally:
                code = stop(server)
            if code != 0:
                below.append("%s: the server ended with %s" % (profile, code))
    for line in below:
        print("below the floor: " + line)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
