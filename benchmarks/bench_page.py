"""How fluid the page is while it shows a task of 5,000 calls and 2 MB of prints.

Needs Chromium (``CHROMIUM``, else /usr/bin/chromium). The tasks of the page's main thread are taken
from its trace, with their time on the wall and on the processor: on a machine that does nothing
else both are the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from pathlib import Path
from typing import Any

import bench_serve
from bench_serve import Server, hand_in
from playwright.async_api import async_playwright, expect

bench_serve.__file__ = str(Path(__file__).with_name("bench_serve.py"))
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
MEGABYTES = "print('x' * 20_000)"
QUICK = f"""
import asyncio
for first in range(0, 5000, 50):
    await asyncio.gather(*(look(first + n) for n in range(50)))
    {MEGABYTES}
"""
STEADY = f"""
for n in range(5000):
    await look(n)
    if n % 50 == 0:
        {MEGABYTES}
"""


def tasks_of(trace: bytes) -> list[tuple[float, float]]:
    """The main thread's tasks: milliseconds on the wall and on the processor."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        (event["dur"] / 1000, event.get("tdur", 0) / 1000)
        for event in events
        if event["name"] in ("RunTask", "ThreadControllerImpl::RunTask")
        and (event["pid"], event["tid"]) in main
        and "dur" in event
    ]


async def watch(browser: Any, server: Server, name: str, code: str) -> None:
    """Follow a task on the page to its end."""
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    task = await hand_in(server, f"run:{code}")
    await browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    await page.goto(f"http://{server.host}:{server.port}/#/{task}")
    await expect(page.locator(".state")).to_contain_text("done", timeout=300_000)
    await expect(page.locator(".calls-head")).to_contain_text("5,000 calls")
    tasks = tasks_of(await browser.stop_tracing())
    await page.close()
    wall, work = (sorted(times) for times in zip(*tasks, strict=True))
    print(
        f"{name}: {len(tasks):,} tasks of the page's main thread, {sum(work) / 1000:.1f} s of work"
    )
    for what, times in (("on the wall", wall), ("on the processor", work)):
        longest = ", ".join(f"{one:.0f}" for one in times[-3:][::-1])
        cut = statistics.quantiles(times, n=1000)[-1]
        over = sum(one > 50 for one in times)
        print(f"  {what}: longest {longest} ms, p99.9 {cut:.1f} ms, {over} over 50 ms")


async def main() -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with Server(places=4) as server:
            await watch(browser, server, "5,000 calls, 50 at once", QUICK)
            await watch(browser, server, "5,000 calls, one by one", STEADY)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
