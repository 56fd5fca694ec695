"""Tests that actions which a script names as values and never calls are reported."""

from __future__ import annotations

import pytest

from delf_engine.mentions import never_called

NAMES = ("mail.send", "mail.read", "pay")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("jobs = [partial(mail.send, n) for n in rows]", {"mail.send": 1}),
        ("x = 1\njobs = [lambda n=n: mail.send(n) for n in rows]", {"mail.send": 2}),
        ("q.put(mail.send)\nq.put((pay, 1))", {"mail.send": 1, "pay": 2}),
        ("loop.call_later(1, mail.send)", {"mail.send": 1}),
        ("jobs = [\n    mail.send,\n    mail.send,\n]", {"mail.send": 2}),
        ("for n in rows:\n    jobs.append(getattr(mail, 'send'))", {"mail.send": 2}),
        ("try:\n    register(to=pay)\nexcept E:\n    pass", {"pay": 1 + 1}),
        # One that was called, a table of which one was, and what may not have run.
        ("jobs = [partial(mail.read, n) for n in rows]", {}),
        ("do = {'a': mail.send, 'b': mail.read}\ndo['b']()", {}),
        ("if late:\n    jobs.append(mail.send)", {}),
        ("f = mail.send if late else None", {}),
        ("def go():\n    return partial(mail.send, 1)", {}),
        ("await mail.send(1)\npay(2)", {}),
        ("def go(pay):\n    return pay\ngo(pay)", {}),
        ("other.send", {}),
        ("jobs = (", {}),
    ],
)
def test_never_called_finds_tools_that_are_only_named(code: str, found: dict[str, int]) -> None:
    assert never_called(code, NAMES, {"mail.read"}) == found
