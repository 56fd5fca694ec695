"""A hundred pages of one site on loopback at once.

    python benchmarks/bench_web.py [PAGES] [PARAGRAPHS]

The site is a process of its own. ``pages`` have so many paragraphs of a hundred words, and a menu.
``links`` are their links, ``scrape`` their text; ``again`` is ``scrape`` from memory.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

SITE = """
import asyncio, sys
page = ("<html><head><title>Page</title></head><body><nav>"
        + "<a href=/x>menu</a>" * 50 + "</nav><article>"
        + f"<p>{'Some words of a <a href=/y>page</a> here. ' * 12}</p>" * int(sys.argv[1])
        + "</article></body></html>").encode()
head = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\nContent-Length: %d\\r\\n\\r\\n"
async def serve(reader, writer):
    try:
        while True:
            asked = await reader.readuntil(b"\\r\\n\\r\\n")
            if asked.startswith(b"GET /robots.txt"):
                writer.write(b"HTTP/1.1 404 No\\r\\nContent-Length: 0\\r\\n\\r\\n")
            else:
                writer.write(head % len(page) + page)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def measure(port: int, count: int) -> None:
    """One line for each way."""
    from delf_web import Web

    urls = [f"http://127.0.0.1:{port}/{number}" for number in range(count)]
    web = Web(private=["127.0.0.1"], ports=[], rate=0)
    await web.scrape(f"http://127.0.0.1:{port}/first")  # imports, robots.txt
    for name, work in (("links", web.links), ("scrape", web.scrape), ("again", web.scrape)):
        if name == "scrape":
            await web.aclose()
            await web.scrape(f"http://127.0.0.1:{port}/first")
        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(work, urls))
        taken, used = time.perf_counter() - start, time.process_time() - cpu
        print(f"{name:8} {count} pages  {taken:6.2f} s  {used:6.2f} s of the processor")
    await web.aclose()


def main() -> None:
    """Start the site, and read it."""
    count, paragraphs = (*map(int, sys.argv[1:]), *(100, 20)[len(sys.argv) - 1 :])
    site = subprocess.Popen(
        [sys.executable, "-c", SITE, str(paragraphs)], stdout=subprocess.PIPE, text=True
    )
    assert site.stdout is not None
    try:
        asyncio.run(measure(int(site.stdout.readline()), count))
    finally:
        site.kill()
        site.wait()
        site.stdout.close()


if __name__ == "__main__":
    main()
