"""http.client against both servers; the addresses are the arguments."""
import http.client
import sys

TEXT = b"0123456789abcdefghij"
demo, files = (address.removeprefix("http://") for address in sys.argv[1:3])


def ask(connection, method, path, **more):
    connection.request(method, path, **more)
    answer = connection.getresponse()
    return answer, answer.read()


connection = http.client.HTTPConnection(demo, timeout=20)
assert ask(connection, "GET", "/plaintext")[1] == b"Hello, World!"
sock = connection.sock
pieces = [b"piece %d " % number for number in range(200)]
answer, body = ask(connection, "POST", "/echo", body=iter(pieces), encode_chunked=True,
                   headers={"Transfer-Encoding": "chunked"})
assert answer.status == 200 and body == b"".join(pieces), answer.status
assert ask(connection, "POST", "/echo", body=b"x" * 300_000)[1] == b"x" * 300_000
assert ask(connection, "GET", "/nothing")[0].status == 404
assert connection.sock is sock, "another connection was opened"

connection = http.client.HTTPConnection(files, timeout=20)
assert ask(connection, "GET", "/file.txt")[1] == TEXT
answer, body = ask(connection, "HEAD", "/file.txt")
assert (answer.status, answer.getheader("Content-Length"), body) == (200, "20", b"")
tag = answer.getheader("ETag")
answer, body = ask(connection, "GET", "/file.txt", headers={"Range": "bytes=5-9", "If-Range": tag})
assert (answer.status, body) == (206, b"56789")
assert ask(connection, "GET", "/file.txt", headers={"If-None-Match": tag})[0].status == 304
answer, _ = ask(connection, "POST", "/file.txt", body=b"x")
assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD, OPTIONS"), answer.getheader("Allow")
print("ok")
