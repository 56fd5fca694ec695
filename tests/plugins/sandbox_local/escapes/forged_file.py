"""Write to the wire itself: an output file outside of its folder."""

json = real_import("json")
for name in ("../pwned", f"{FOLDER}/pwned", "a/../../pwned", "..\\pwned", "\0pwned"):
    text = json.dumps(["file", name, True, {"$t": "bytes", "v": "eA=="}]).encode()
    for fd in range(3, 20):
        try:
            posix.write(fd, len(text).to_bytes(4, "big") + text)
        except OSError:
            pass
await asyncio.sleep(0)
