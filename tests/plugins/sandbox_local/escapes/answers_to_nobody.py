"""Write frames that only a host sends, and outcomes while calls are under way."""

json = real_import("json")


def write(text):
    data = text.encode()
    for fd in range(3, 20):
        try:
            posix.write(fd, len(data).to_bytes(4, "big") + data)
        except OSError:
            continue


waiting = asyncio.ensure_future(add(1, 2))
await asyncio.sleep(0)
for frame in (
    ["return", 1, "pwned"],
    ["raise", 1, "ToolError", "pwned"],
    ["init", {"tools": []}],
    ["exec", 1, "1", None],
    ["cancel", -1],
    ["cancel", 10**4000],
    ["cancel", [1]],
    ["done", "pwned", {}, {}],
):
    write(json.dumps(frame))
