"""The page among 100,000 tasks, and with tasks of 5,000 calls: the server's time and long tasks.

    python benchmarks/bench_page.py [--tasks 100000] [--calls 5000] [--turns 3] [--keep FOLDER]

It fills a journal (a minute or two; ``--keep`` uses the folder's journal again), starts a server,
and looks at each view with Chromium. Of each list it prints the quickest answer of some, and what
the server's processor worked for one. Of each view it prints the longest piece of work that held
the page, by the clock and by the processor, and how many elements the page had at its end; the
best of some turns counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.async_api import Browser, Page, async_playwright

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    Event,
    ModelReplied,
    ScriptGenerated,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf.messages import Usage
from delf_journal_sql import SqlJournal

ROOT = Path(__file__).parents[1]
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome")))
)
_DAY = 86_400.0
_AT_ONCE = 500
_WAITING = 200
_ASKED = 15
_SECONDS = 3
_PEOPLE = ("ada", "ben", "cy", "dee", "eve")
_CONNECTIONS = ("shop", "mail", "crm", "bank")
_MODELS = ("gpt-4o-mini", "claude-haiku", "llama")
_SERVER = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["DELF_JOURNAL_SQL_URL"] = sys.argv[2]
os.environ["DELF_SERVE_FILES_FOLDER"] = sys.argv[2] + ".files"
from delf_serve.app import make_app
from delf_serve.server import bind, serve
from support.serving import Outbox, make_agent
long = {"timeout": 36_000, "approval_timeout": 36_000}
agent = make_agent(os.path.dirname(sys.argv[2]), Outbox(), max_tasks=4, **long)
options = {"open_tasks": 1_000_000, "grace_seconds": 0, "access_log": False}
serve(make_app(agent, options, {}), bind("127.0.0.1", int(sys.argv[3])))
"""


def _events(number: int, at: float) -> list[Event]:
    """Return the events of a task: a model call, a script, two calls, and sometimes an approval."""
    common: dict[str, Any] = {"task_id": f"task_{number:016x}", "at": at}
    words = f"Send the reminders of customer {number % 977} who owes for order {number}"
    setup = {"serve": {"user": _PEOPLE[number % len(_PEOPLE)], "from": "10.0.0.7"}}
    action = f"{_CONNECTIONS[number % len(_CONNECTIONS)]}.find"
    events: list[Event] = [
        TaskQueued(**common, seq=1, task=words, setup=setup),
        TaskStarted(**common, seq=2, task=words, setup=setup),
        ModelReplied(
            **common,
            seq=3,
            model=_MODELS[number % len(_MODELS)],
            purpose="generate",
            text="…",
            usage=Usage(input_tokens=900, output_tokens=120),
            cost_usd=0.0001 * (number % 90),
            duration_ms=800.0,
            number=1,
        ),
        ScriptGenerated(**common, seq=4, attempt=1, code=f"print(await {action}({number}))\n"),
    ]
    seq = 5
    if number % 10 == 0:
        request: dict[str, Any] = {"request_id": f"req_{number:016x}", "task": words, "digest": "d"}
        call: dict[str, Any] = {"action": "mail.send", "effect": "write", "arguments": {"n": 1}}
        events.append(
            ApprovalRequested(**common, seq=seq, permission="mail.send", **request, **call)
        )
        decision: dict[str, Any] = {"request_id": request["request_id"], "decision": "approved"}
        common["at"] = at + 40
        events.append(ApprovalDecided(**common, seq=seq + 1, by="ada", via="page", **decision))
        seq += 2
    call_fields: dict[str, Any] = {"call_id": 1, "action": action}
    events += [
        CallStarted(
            **common, seq=seq, arguments={"id": number}, effect="read", digest="d", **call_fields
        ),
        CallFinished(
            **common, seq=seq + 1, status="ok", duration_ms=5.0, result=[number], **call_fields
        ),
    ]
    status = number % 20 != 0
    end: dict[str, Any] = {"text": f"sent {number}", "duration_ms": 900.0, "cost_usd": 0.004}
    error = None if status else "ValueError: no such customer"
    events.append(TaskFinished(**common, seq=seq + 2, status=status, error=error, **end))
    return events


async def fill(place: Path, tasks: int) -> None:
    """Create a journal with tasks of the last 28 days, and its index."""
    journal = SqlJournal(str(place))
    begun, start = time.perf_counter(), time.time() - 28 * _DAY

    async def keep(number: int) -> None:
        for event in _events(number, start + 28 * _DAY * number / tasks):
            await journal.append(event)

    for first in range(0, tasks, _AT_ONCE):
        await asyncio.gather(*map(keep, range(first, min(tasks, first + _AT_ONCE))))
    print(f"{tasks:,} tasks written in {time.perf_counter() - begun:.0f} s", flush=True)
    begun = time.perf_counter()
    while await journal.index(5.0):
        pass
    print(f"indexed in {time.perf_counter() - begun:.0f} s", flush=True)
    await journal.aclose()


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def server(place: Path) -> Any:
    """Start a server process; yield its address and the process."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(ROOT / "tests"), str(place), str(port)]
    )
    url = f"http://127.0.0.1:{port}"
    try:
        begun = time.perf_counter()
        while time.perf_counter() - begun < 60:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health").is_success:
                    break
            time.sleep(0.05)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def worked(pid: int) -> float:
    """Return the processor seconds of all threads of a process."""
    total = 0
    for path in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            total += int((path / "schedstat").read_text().split()[0])
    return total / 1e9


def prepare(url: str, calls: int) -> tuple[str, str]:
    """Create two tasks with many calls, and some that wait for a person; return the two ids."""
    with httpx.Client(base_url=url, timeout=300) as client:
        listed = client.get("/tasks", params={"text": "Look at all"}).json()["tasks"]
        names = [one["task_id"] for one in listed if one["state"] == "done"][:2]
        while len(names) < 2:
            code = f"for n in range({calls}):\n    row = await look(n + {len(names)})\n"
            code += "    if n % 50 == 0:\n        print(row['name'] * 20)\nprint('all seen')"
            task = f"Look at all {calls:,} things\n```run\n{code}\n```"
            answer = client.post("/run", json={"task": task}).raise_for_status()
            name = answer.json()["task_id"]
            while client.get(f"/tasks/{name}").json()["state"] != "done":
                time.sleep(0.2)
            names.append(name)
        for one in client.get("/tasks?state=waiting").json()["tasks"]:
            client.post(f"/tasks/{one['task_id']}/cancel")
        send = "import asyncio\nawait asyncio.gather(*(send(f'customer {n}') for n in range(%d)))"
        task = f"Write to all customers\n```run\n{send % _WAITING}\n```"
        client.post("/run", json={"task": task})
        while len(client.get("/approvals?limit=200").json()["approvals"]) < _WAITING:
            time.sleep(0.2)
        return names[0], names[1]


def lists(tasks: int, big: tuple[str, str]) -> dict[str, str]:
    """Return the requests of the views by name."""
    middle = f"task_{tasks // 2:016x}"
    deep = f"{time.time() - 14 * _DAY:.9f}~{middle}"
    since = int(time.time() - 7 * _DAY)
    queries: dict[str, tuple[str, dict[str, Any]]] = {
        "tasks": ("tasks", {"limit": 100}),
        "tasks, a page in the middle": ("tasks", {"limit": 100, "after": deep}),
        "tasks that failed": ("tasks", {"limit": 100, "state": "failed"}),
        "tasks that wait": ("tasks", {"limit": 100, "state": "waiting"}),
        "tasks with a rare text": ("tasks", {"limit": 100, "text": "order 77"}),
        "search, a frequent word": ("search", {"text": "customer"}),
        "search, a rare word": ("search", {"text": "5000"}),
        "search, two words": ("search", {"text": "reminders 977"}),
        "search, no word": ("search", {"text": "zebra"}),
        "search, a person": ("search", {"person": "ada"}),
        "search, a page in the middle": ("search", {"person": "ada", "before": middle}),
        "search, a connection": ("search", {"connection": "crm", "model": "llama"}),
        "search, what failed in a week": ("search", {"state": "failed", "since": since}),
        "search, a cost": ("search", {"least_cost": "1"}),
        "figures of a week by day": ("figures", {"by": "day", "since": since}),
        "figures of all by day": ("figures", {"by": "day"}),
        "figures of all by person": ("figures", {"by": "person"}),
        "figures of all by connection": ("figures", {"by": "connection"}),
        "figures of all by model": ("figures", {"by": "model"}),
        "approvals": ("approvals", {"mine": "true", "limit": 200}),
        "remembered": ("remembered", {}),
        "conversations": ("conversations", {}),
        "the large task": (f"tasks/{big[0]}", {}),
        "its prompts": (f"tasks/{big[0]}/prompts", {"limit": 20}),
        "two large tasks": (f"tasks/{big[0]}/compare/{big[1]}", {}),
    }
    return {name: f"/{path}?{urlencode(query)}" for name, (path, query) in queries.items()}


def ask(url: str, pid: int, path: str) -> tuple[float, float, int]:
    """Return the best response time and the processor time in ms, and the response's bytes."""
    times: list[float] = []
    used: list[float] = []
    with httpx.Client(base_url=url, timeout=120) as client:
        size = len(client.get(path).raise_for_status().content)
        while len(times) < _ASKED and sum(times) < _SECONDS * 1000:
            before, begun = worked(pid), time.perf_counter()
            client.get(path)
            times.append((time.perf_counter() - begun) * 1000)
            used.append((worked(pid) - before) * 1000)
    return min(times), min(used), size


# -- the page -----------------------------------------------------------------------------------

View = Callable[[Page], Awaitable[None]]
_TOKEN = "async () => (await (await fetch('session')).json()).csrf"
_OBSERVED = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
}).observe({ type: "longtask", buffered: true });
"""


async def _scroll(page: Page, place: str, times: int = 25) -> None:
    """Scroll to the end repeatedly, which may load more rows."""
    for _ in range(times):
        await page.locator(place).evaluate("node => node.scrollBy(0, 4000)")
        await page.wait_for_timeout(40)


def views(big: tuple[str, str], calls: int) -> dict[str, tuple[str, View]]:
    """Return the address and the interaction of each view by name."""

    async def look_list(page: Page) -> None:
        await page.locator(".row").first.wait_for()
        for _ in range(4):
            await _scroll(page, ".tasks")
            await page.locator(".tasks").evaluate("node => node.scrollTo(0, node.scrollHeight)")

    async def look_task(page: Page) -> None:
        await page.get_by_text(f"{calls:,} calls of look").first.wait_for()
        await page.locator(".replay").wait_for()
        for _ in range(6):
            await page.locator(".calls .link").first.click()
        await page.locator(".part summary", has_text="Timeline").click()
        await _scroll(page, ".detail")

    async def look_live(page: Page) -> None:
        task = f"Look again\n```run\nfor n in range({calls}):\n    await look(n)\n```"
        made = await page.request.post(
            page.url.partition("#")[0] + "run",
            data={"task": task},
            headers={"x-csrf-token": await page.evaluate(_TOKEN) or ""},
        )
        name = (await made.json())["task_id"]
        await page.evaluate("name => { location.hash = `#/${name}`; }", name)
        await page.locator(".state", has_text="done").wait_for(timeout=120_000)

    async def look_replay(page: Page) -> None:
        await page.locator(".replay").wait_for()
        for share in (0.5, 0.1, 0.9, 0.2):
            at = str(int(calls * 2 * share))
            await page.locator("#replay").fill(at)
            await page.wait_for_timeout(100)
        await page.locator(".replay button").first.click()
        await page.wait_for_timeout(3000)

    async def look_prompts(page: Page) -> None:
        await page.locator(".seen > summary").click()
        await page.locator(".prompt > summary").first.click()
        await page.locator(".prompt .sent").first.wait_for()
        await _scroll(page, ".detail")

    async def look_figures(page: Page) -> None:
        await page.locator(".tables table").last.wait_for()
        await _scroll(page, ".detail")

    async def look_inbox(page: Page) -> None:
        await page.locator(".inbox-row").first.wait_for()
        await _scroll(page, ".detail")
        await page.locator(".inbox-row").last.locator("button", has_text="Choose all").click()

    async def look_search(page: Page) -> None:
        box = page.locator("#search")
        await box.press_sequentially("customer 77", delay=60)
        await page.locator(".row .excerpt, .row").first.wait_for()
        await page.wait_for_timeout(500)
        await _scroll(page, ".tasks")

    async def look_compare(page: Page) -> None:
        await page.locator(".compared table").last.wait_for(timeout=60_000)
        await _scroll(page, ".detail")

    return {
        "list, 100 screens": ("", look_list),
        f"a task of {calls:,} calls": (f"#/{big[0]}", look_task),
        "one that runs": ("", look_live),
        "its replay": (f"#/{big[0]}", look_replay),
        "its prompt view": (f"#/{big[0]}", look_prompts),
        "figures": ("#/figures", look_figures),
        f"inbox, {_WAITING} requests": ("#/inbox", look_inbox),
        "search": ("", look_search),
        "compare": (f"#/compare/{big[0]}/{big[1]}", look_compare),
    }


def _longest_work(trace: bytes) -> float:
    """Return the processor time in ms of the page's longest task."""
    events = json.loads(trace)["traceEvents"]
    main = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"].get("name") == "CrRendererMain"
    }
    events = [one for one in events if (one["pid"], one["tid"]) in main and "dur" in one]
    asked = [one for one in events if "DevToolsSession" in json.dumps(one.get("args", {}))]
    times = [
        one.get("tdur", 0)
        for one in events
        if one["name"] in ("RunTask", "ThreadControllerImpl::RunTask")
        and not any(
            one["ts"] <= other["ts"] < one["ts"] + one["dur"] for other in asked
        )  # the program that looks
    ]
    return max(times, default=0) / 1000


async def look(browser: Browser, url: str, address: str, act: View) -> tuple[float, float, int]:
    """Return the longest task by clock and by processor, and the number of elements at the end."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    await page.add_init_script(_OBSERVED)
    await browser.start_tracing(
        page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"]
    )
    try:
        await page.goto(f"{url}/{address}")
        await act(page)
        await page.wait_for_timeout(300)
        longest = await page.evaluate("window.longest")
        nodes = await page.locator("*").count()
    finally:
        trace = await browser.stop_tracing()
        await context.close()
    return float(longest), _longest_work(trace), nodes


async def run(options: argparse.Namespace, folder: Path) -> None:
    """Run all measurements."""
    place = folder / "journal.db"
    if not place.exists():
        await fill(place, options.tasks)
    with server(place) as (url, pid):
        big = await asyncio.to_thread(prepare, url, options.calls)
        print("\n| the server | ms | processor ms | kB |\n|---|--:|--:|--:|")
        for name, path in lists(options.tasks, big).items():
            took, used, size = await asyncio.to_thread(ask, url, pid, path)
            print(f"| {name} | {took:.1f} | {used:.1f} | {size / 1000:.0f} |", flush=True)
        print("\n| the page | long task ms | processor ms | elements |\n|---|--:|--:|--:|")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox"]
            )
            for name, (address, act) in views(big, options.calls).items():
                if options.only and options.only not in name:
                    continue
                turns = [await look(browser, url, address, act) for _ in range(options.turns)]
                longest, used, nodes = (min(column) for column in zip(*turns, strict=True))
                print(f"| {name} | {longest:.0f} | {used:.0f} | {nodes:,} |", flush=True)
            await browser.close()


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="views with this in their name")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        asyncio.run(run(options, options.keep))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
