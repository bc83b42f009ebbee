#!/usr/bin/env python3
"""What a parked request costs: parks requests of the demo from several client addresses and reads memory and CPU.

benches/parking.py PROGRAM [PATH]      PATH: /delay?ms=600000 (default), /plaintext for idle connections, /chat/poll?after=0

For /chat/poll a message then wakes all that wait, and the time to the last of the answers is taken.
"""
import json, os, re, resource, signal, socket, subprocess, sys, time

STEPS = (500, 2000, 2500, 2500, 2300)  # for each of two client processes; the descriptor limit is for each process
CLIENT = """
import socket, sys, time
port, base, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sockets = []
for line in sys.stdin:
    if line == "read\\n":
        for s in sockets:
            assert s.recv(4096).startswith(b"HTTP/1.1 200"), "an answer"
        print(time.monotonic(), flush=True)
        continue
    for _ in range(int(line)):
        s = socket.socket()
        s.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: ip(7)
        s.bind((f"127.0.0.{base + len(sockets) // 10000}", 0))
        s.connect(("127.0.0.1", port))
        s.sendall(f"GET {path} HTTP/1.1\\r\\nHost: parking\\r\\n\\r\\n".encode())
        sockets.append(s)
    print(len(sockets), flush=True)
"""


def private_kib(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


def slab_kib():
    return int(re.search(r"Slab:\s+(\d+)", open("/proc/meminfo").read()).group(1))


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connections(port):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"GET /stats HTTP/1.1\r\nHost: parking\r\nConnection: close\r\n\r\n")
        answer = s.makefile("rb").read()
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["connections"] - 1


def wake_all(port, clients):
    """A message to the chat: every waiting poll is answered."""
    for client in clients:
        client.stdin.write("read\n")
        client.stdin.flush()
    time.sleep(1)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"POST /chat/send HTTP/1.1\r\nHost: parking\r\nContent-Length: 5\r\n\r\nhello")
        assert s.recv(4096).startswith(b"HTTP/1.1 2"), "the message is taken"
    sent = time.monotonic()
    last = max(float(client.stdout.readline()) for client in clients)
    print(f"one message wakes all: its sender is answered after {1000 * (sent - began):.0f} ms, "
          f"the last that waited after {1000 * (last - began):.0f} ms")


def main():
    program, path = sys.argv[1], (sys.argv[2:] or ["/delay?ms=600000"])[0]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = subprocess.Popen([program, "demo", "127.0.0.1:0", "--admin", "off"], stdout=subprocess.PIPE, text=True)
    clients = []
    try:
        address = next(filter(None, (re.search(r"http://127.0.0.1:(\d+)", line) for line in server.stdout)))
        port = int(address.group(1))
        for base in (2, 4):
            command = [sys.executable, "-c", CLIENT, str(port), str(base), path]
            clients.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        first = None
        for step in STEPS:
            for client in clients:
                client.stdin.write(f"{step}\n")
                client.stdin.flush()
            for client in clients:
                client.stdout.readline()
            time.sleep(1)  # the slab counters of the kernel follow late
            seen = (connections(port), private_kib(server.pid), slab_kib())
            first = first or seen
            more = max(seen[0] - first[0], 1)
            user, kernel = ((seen[i] - first[i]) * 1024 // more for i in (1, 2))
            print(f"{seen[0]} connections: {user} bytes of user memory, {kernel} of slab each", flush=True)
        before = cpu_seconds(server.pid)
        time.sleep(10)
        print(f"CPU in 10 s while all wait: {cpu_seconds(server.pid) - before:.2f} s")
        if path.startswith("/chat/poll"):
            wake_all(port, clients)
    finally:
        for client in clients:
            client.kill()
        server.send_signal(signal.SIGINT)
        server.wait(20)


main()
