"""Tests of the minimum number of calls of a script, which counts certain calls only."""

from __future__ import annotations

import pytest

from delf_engine.forecast import least_calls

NAMES = ("work", "mail.send")


@pytest.mark.parametrize(
    ("code", "least"),
    [
        ("for n in range(200):\n    await work(n)", 200),
        ("print(await asyncio.gather(*(work(n) for n in range(3, 200, 2))))", 99),
        ("docs = [1, 2, 3]\nr = [await work(d) for d in docs]\nawait work(0)", 4),
        ("docs = [f'{n}.pdf' for n in range(200)]\nfor d in sorted(docs):\n    work(d)", 200),
        ("for a in range(20):\n    for b in (1, 2):\n        mail.send(a, b)", 40),
        (
            "async def one(n):\n    return await work(n)\nawait gather(*[one(n) for n in 'abcdefg'])",
            7,
        ),
        ("for n, d in enumerate(zip(range(9), range(5))):\n    work(n)", 5),
        ("for n in range(9):\n    try:\n        work(n)\n    except ToolError:\n        pass", 9),
        ("def both():\n    work(1)\n    work(2)\nboth()\nboth()", 4),
        ("x = {n: work(n) for n in 'abc'}\nwith open('f') as f:\n    work(1)", 4),
        # What may not happen, or what the text does not show, counts nothing.
        ("for n in docs:\n    work(n)", 0),
        ("for n in range(9):\n    if n > 5:\n        work(n)", 0),
        ("for n in range(9):\n    if work(n):\n        break", 0),
        ("[work(n) for n in range(9) if n]", 0),
        ("any(work(n) for n in range(9))", 0),
        ("later = (work(n) for n in range(9))", 0),
        ("for n in (work(n) for n in range(9)):\n    break", 0),
        ("any(n for n in [work(1)])", 1),
        ("ok = work(1) < work(2) < work(3)", 2),
        ("@cache\ndef one(n):\n    work(n)\nfor n in range(9):\n    one(0)", 0),
        ("while True:\n    work(1)", 0),
        ("docs = [1, 2]\ndocs.clear()\nfor d in docs:\n    work(d)", 0),
        ("docs = [1, 2]\nif x:\n    docs = []\nfor d in docs:\n    work(d)", 0),
        ("docs = [1, 2]\ndel docs[0]\nfor d in docs[:1]:\n    work(d)", 0),
        ("def one(docs=[1, 2]):\n    for d in docs:\n        work(d)\none([])", 0),
        ("ok and work(1)\nx = work(2) if ok else work(3)", 0),
        ("f = lambda: work(1)\nasync def g():\n    yield work(1)\ng()", 0),
        ("if done:\n    raise SystemExit\nwork(1)", 0),
        ("for n in range(9):\n    work(n)\n    if n > 2:\n        sys.exit()", 0),
        ("for n in range(9):\n    if work(n):\n        rerun('found', 'more')", 0),
        ("rerun('a', 'b')\nfor n in range(9):\n    work(n)", 0),
        ("def go(work):\n    for n in range(9):\n        work(n)\ngo(print)", 0),
        ("for n in {1, 1, 1}:\n    work(n)", 0),
        ("for n in {*docs}:\n    work(n)\nassert docs, work(1)", 0),
        ("docs = [1, 2]\ndel docs[0]\nfor d in docs:\n    work(d)", 0),
        ("def f():\n    f()\n    work(1)\nf()", 1),
        ("s = mail.send\ndef go(s):\n    s(1)\ngo(print)", 0),
        ("import work\nwork(1)", 0),
        ("from helpers import post as work\nwork(1)", 0),
        ("class work:\n    pass\nwork()", 0),
        ("try:\n    pass\nexcept ValueError as mail:\n    pass\nmail.send(1)", 0),
        ("match x:\n    case [work, *mail]:\n        pass\nwork(1)\nmail.send(1)", 0),
        ("match x:\n    case {1: 1, **work}:\n        pass\nwork(1)", 0),
        ("docs = [1, 2]\nimport a as docs\nfor d in docs:\n    work(d)", 0),
        ("mail.read(1)\nother.send(2)\nwork", 0),
        ("for in", 0),
    ],
)
def test_least_calls_counts_only_certain_calls(code: str, least: int) -> None:
    assert sum(least_calls(code, NAMES).values()) == least


def test_least_calls_is_as_fast_as_parsing() -> None:
    """The script's functions double at each level, as an attacker would write it."""
    functions = [f"def f{n}():\n    f{n + 1}()\n    f{n + 1}()" for n in range(60)]
    code = "\n".join([*functions, "def f60():\n    work(1)", "f0()"])
    assert least_calls(code, NAMES)["work"] == 2**60
