"""Google's services with much in them: time, memory, calls and bytes, at half size and at full.

    python benchmarks/bench_google.py [--scale 1.0]

The server (`tests/support/google`, without its checks of what it answers itself) runs in a process
of its own. `cpu` is this process's own time, which a busy machine disturbs less, `MB` what it grew
by at its peak. A time that grows fourfold from half to full would be quadratic.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
USER = "ada@example.com"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
END = START + dt.timedelta(days=400)


def serve(scale: float) -> None:
    """A server with its world, until its standard input ends."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.google import google_server
    from support.google.docs import Char, Document, Paragraph
    from support.google.fixtures import ALL

    with google_server(checked=False) as google:
        for number in range(int(10_000 * scale)):
            raw = f"From: bob@example.com\r\nSubject: No {number}\r\n\r\nText {number}".encode()
            google.gmail.deliver(USER, raw, when=1_760_000_000 + number)
        for number in range(int(50_000 * scale)):
            google.drive.add(f"file {number}.txt", "text/plain", b"x")
        line = "A line of some eighty letters, of which a page has forty, and a book has many."
        blocks = [Paragraph([Char(c) for c in line]) for _ in range(int(500 * 40 * scale))]
        google.docs.documents["document"] = Document("document", "Book", blocks)
        google.sheets._new("sheet-1", {})
        events = google.calendar.calendar(USER).events
        for number in range(int(5_000 * scale)):
            begin = (START + dt.timedelta(hours=number)).isoformat()
            end = (START + dt.timedelta(hours=number, minutes=30)).isoformat()
            events[f"e{number:05d}"] = {
                "id": f"e{number:05d}", "status": "confirmed", "summary": f"No {number}",
                "start": {"dateTime": begin}, "end": {"dateTime": end},
                "organizer": {"email": USER},
            }  # fmt: skip
        told = {"url": google.url, "token": google.logins.token_for(USER, ALL)}
        print(json.dumps(told), flush=True)
        for line in sys.stdin:  # each line asks for what was seen, and forgets it
            found = [len(google.seen), sum(s.sent + s.received for s in google.seen)]
            google.seen.clear()
            print(json.dumps(found if line else None), flush=True)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def works(told: Any, scale: float) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    from delf_calendar import Calendar
    from delf_docs import Docs
    from delf_drive import Drive
    from delf_gmail import Gmail
    from delf_sheets import Sheets

    made = [
        kind(base_url=told["url"], token=told["token"], timeout=300)
        for kind in (Gmail, Drive, Sheets, Docs, Calendar)
    ]
    gmail, drive, sheets, docs, calendar = made
    rows = [[r, f"row {r}", r / 7, True, START.date()] * 2 for r in range(int(10_000 * scale))]
    return [
        ("first call (login, imports)", gmail.labels),
        ("500 of 10,000 mails", lambda: gmail.search(limit=500)),
        ("1,000 of 50,000 files", lambda: drive.search(limit=1000)),
        ("write 100,000 cells", lambda: sheets.write("sheet-1", "A1", rows)),
        ("read 100,000 cells", lambda: sheets.read("sheet-1", header=False)),
        ("read 500 pages", lambda: docs.read("document")),
        ("append to 500 pages", lambda: docs.append("document", "# End\n\ntext")),
        ("2,500 of 5,000 events", lambda: calendar.list(START, END, limit=2500)),
        ("store 40 MB", lambda: drive.create("big.bin", b"x" * int(40e6 * scale))),
        ("fetch 40 MB", lambda: drive.download("big.bin")),
    ]  # fmt: skip


Row = tuple[str, float, float, float, int, int, str]


def measure(scale: float) -> list[Row]:
    command = [sys.executable, __file__, "--serve", "--scale", str(scale)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        return asyncio.run(run(process, scale))
    finally:
        process.communicate()


async def run(process: Any, scale: float) -> list[Row]:
    told = json.loads(process.stdout.readline())
    found: list[Row] = []
    for name, work in await works(told, scale):
        before, start, own = peak(), time.perf_counter(), time.process_time()
        result = await work()
        seconds, cpu = time.perf_counter() - start, time.process_time() - own
        grown = peak() - before
        process.stdin.write("seen\n")
        process.stdin.flush()
        calls, size = json.loads(process.stdout.readline())
        notice = (result.get("notice") or "") if isinstance(result, dict) else ""
        found.append((name, seconds, cpu, grown, calls, size, notice))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve(options.scale)
        return
    full = measure(options.scale)  # first: a peak never falls
    half = measure(options.scale / 2)
    print(f"{'':28}{'half cpu':>9}{'cpu s':>7}{'s':>7}{'MB':>6}{'calls':>7}{'kB':>8}  notice")
    for (name, _, before, *_), row in zip(half, full, strict=True):
        _, seconds, cpu, grown, calls, size, notice = row
        figures = f"{before:9.2f}{cpu:7.2f}{seconds:7.2f}{grown:6.0f}{calls:7d}{size / 1000:8.0f}"
        print(f"{name:28}{figures}  {notice}")


if __name__ == "__main__":
    main()
