#!/usr/bin/env python3
"""Runs the commands of README.md as written: every `sh` block, line by line.

    readme.py FOLDER        FOLDER holds the release build; it goes to the front of PATH

A server is started, must print its address, answer, and end with 0 on TERM. Every other command must end with 0.
`cargo test --workspace` is left to the last step of scripts/check, `git clone` and `cd` to the reader.
"""
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ELSEWHERE = ("cargo test --workspace", "git clone", "cd ", "scripts/check", "curl ", "cargo build")
SERVERS = ("demo", "serve", "respond")
COMMAND_SECONDS = 300
START_SECONDS = 120
STOP_SECONDS = 40


def commands(text):
    """The lines of all `sh` blocks, comments cut off."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def is_server(words):
    return words[:3] == ["cargo", "run", "--release"] or words == ["shardlet"] or (len(words) > 1 and words[1] in SERVERS)


def address(server):
    """The address that the server prints; nothing if it ends before."""
    watchdog = threading.Timer(START_SECONDS, server.kill)
    watchdog.start()
    try:
        for line in server.stdout:
            print("   ", line, end="")
            found = re.match(r"\s+http://(\S+)", line)
            if found:
                return found.group(1).replace("0.0.0.0", "127.0.0.1")
    finally:
        watchdog.cancel()
    return None


def answers(where):
    """Status and size of GET /; any HTTP status is an answer."""
    try:
        with urllib.request.urlopen("http://%s/" % where, timeout=10) as response:
            return response.status, len(response.read())
    except urllib.error.HTTPError as error:
        return error.code, len(error.read())


def run_server(words, environment, folder):
    start = time.monotonic()
    server = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    where = address(server)
    if where is None:
        return "printed no address and ended with %s" % server.wait()
    status, size = answers(where)
    print("    GET / gives %d with %d bytes after %.1f s" % (status, size, time.monotonic() - start))
    server.send_signal(signal.SIGTERM)
    try:
        code = server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        return "did not end on TERM in %d s" % STOP_SECONDS
    return None if code == 0 else "ended with %d on TERM" % code


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = os.path.abspath(sys.argv[1]) + os.pathsep + os.environ["PATH"]
    environment = dict(os.environ, PATH=path)
    with open(os.path.join(ROOT, "README.md")) as file:
        text = file.read()
    if "cargo test --workspace" not in text or "cargo run --release" not in text:
        sys.exit("README.md has lost its two commands")
    failed = ran = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "public"))
        with open(os.path.join(folder, "public", "index.html"), "w") as file:
            file.write("<!doctype html><title>public</title>")
        for words in commands(text):
            line = " ".join(words)
            if line.startswith(ELSEWHERE):
                continue
            print("$ " + line, flush=True)
            ran += 1
            where = ROOT if words[0] == "cargo" else folder
            if is_server(words):
                wrong = run_server([*words], environment, where)
            else:
                code = subprocess.run(words, cwd=where, env=environment, timeout=COMMAND_SECONDS).returncode
                wrong = None if code == 0 else "ended with %d" % code
            if wrong:
                failed += 1
                print("README.md: `%s` %s" % (line, wrong))
    print("%d commands of README.md ran, %d failed" % (ran, failed))
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
