"""Reach a server of the host over TCP, by asyncio and below it."""

try:
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", PORT), 1)
    print("ESCAPED connected")
except (OSError, TimeoutError) as error:
    print("refused", error)
_socket = real_import("_socket")
for family in (_socket.AF_INET, _socket.AF_INET6, _socket.AF_UNIX, 16, 17):
    attempt(f"socket {family}", lambda family=family: _socket.socket(family, 3))
attempt("names", lambda: _socket.getaddrinfo("localhost", 80, 0, 1) and -1)
