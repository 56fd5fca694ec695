"""Calls of a script to its tools: a part of the suite of sandboxes."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from delf.protocols.sandbox import Raised, ToolMessage
from delf_devkit.testing.contracts.bench import Bench, require_done, require_failed
from delf_devkit.testing.contracts.sandbox_limits import SandboxLimits
from delf_devkit.testing.scripts import RecordingScriptHost

VALUES: tuple[Any, ...] = (
    None,
    True,
    -7,
    2**70,
    1.5,
    "Grüße 🦊 \u2028 \x00 ``` \\n",
    b"\x00\xff",
    [1, [2, {"a": None}]],
    (1, "b"),
    {1, 2},
    {"$t": "no tag", "": []},
    {1: "one", (2, 3): "pair"},
    dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.timezone.utc),  # noqa: UP017 - reads plainly
    dt.date(2026, 3, 1),
    dt.time(9, 30),
    dt.timedelta(days=1, microseconds=5),
    Decimal("12.50"),
    uuid.UUID(int=7),
)
"""Values that must reach a script from a tool, and a tool from a script, unchanged."""
_BIG = 5_000_000
MISUSES: tuple[str, ...] = (
    'mail("x")',
    'await mail("x")',
    'mail(to="x")',
    "mail()",
    "m = mail()",
    'm = mail\nm("x")',
    'with mail("x") as m:\n    pass',
    'mail.to = "x"',
    'mail.send = "x"',
    'mail.send.to = "x"',
    'setattr(mail, "to", "x")',
    'm = mail\nm.to = "x"',
    "mail.send += 1",
    'mail["send"]',
    'mail["send"] = "x"',
    "for m in mail:\n    print(m)",
    "for m in mail.read:\n    print(m)",
    "[m for m in mail.read]",
    "list(mail)",
    "len(mail.read)",
    "await mail",
    "await mail.send",
    "if mail:\n    pass",
    "if not mail.read:\n    pass",
    "x = 1 if mail.read else 2",
    "[n for n in [1] if mail.read]",
    "m = mail.read\nif m:\n    pass",
    "bool(mail.send)",
    "ok = mail.send and True",
    'print(f"{mail}")',
    'print(f"there are {mail.read} mails")',
    "print(mail)",
    "print(mail.read)",
    'print("there are " + str(mail.read))',
    'print("there are %s mails" % mail.read)',
    'print("there are {} mails".format(mail.read))',
    'print(mail.read == "x")',
    'if mail.read != "x":\n    pass',
    "mail.send",
    "mail",
    'mail.send, "x"',
    "x = mail.send",
    "send = mail.send\nsend",
    "pay",
    "x = pay",
    'print(f"{pay}")',
    "if pay:\n    pass",
    "await pay",
    "getattr(mail, 'send')",
    "print([mail.read])",
    "print({'mails': (mail.read,)})",
    "mail.send(mail.read)",
    "mail.send(to=[mail.read])",
    "pay(mail)",
    "@mail.send\ndef go():\n    pass",
    "class Mail(mail):\n    pass",
    "print((send := mail.send))",
    "def go():\n    mail.send\ngo()",
    "async def go():\n    await mail.send\ngo()",
    "def go():\n    try:\n        mail(1)\n    except Exception:\n        pass\ngo()",
    "import pprint\npprint.pprint(mail.read)",
    'import json\nprint(json.dumps({"mails": mail.read}, default=str))',
    "both = [mail.read, mail.send]\nprint(both)",
    'held = {}\nheld["mails"] = mail.read\nprint(held)',
    "held = []\nheld.append(mail)\nprint(held)",
    'print("%s" % (mail.read,))',
    "from collections import deque\nprint(list(deque([mail.send])))",
    'add_to_output_files("mails.json", {"mails": [mail.read]})',
    "held = [mail.read]\nmail.send(held)",
    "held = [mail.read]\nrerun(f'{held}', 'more')",
    "import itertools\nitertools.starmap(mail.send, [(1,), (2,)])",
    "from itertools import starmap as each\nsent = each(mail.send, [(1,), (2,)])",
    "sent = map(mail.send, [1, 2])",
    "send = mail.send\nsent = filter(send, [1, 2])",
    "import functools\nfunctools.partial(mail.send, 1)",
    "from functools import partial\nsend = partial(mail.send, 1)",
    "from functools import partial\nif partial(mail.send, 1):\n    pass",
    "from functools import partial\nprint(partial(pay, 1))",
    "from itertools import starmap\nstarmap(lambda n: mail.send(n), [(1,), (2,)])",
    "sent = map(lambda n: mail.send(n), [1, 2])",
    "def send(n):\n    return mail.send(n)\nsent = map(send, [1, 2])",
    "async def send(n):\n    await mail.send(n)\nfilter(send, [1, 2])",
)
"""Scripts that use a connection, an action or a tool as a value and call nothing."""
CALLED_TOOL_BY_SCRIPT: Mapping[str, str] = {
    'm = mail()\nm.send("x")': "mail.send",
    'm = mail\nm.send("x")': "mail.send",
    "mail is not None and mail.send(1)": "mail.send",
    'f = mail.send\nf("x")': "mail.send",
    '(f := mail.send)("x")': "mail.send",
    'def go(f=mail.send):\n    return f("x")\ngo()': "mail.send",
    'f = {"send": mail.send, "read": mail.read}\nf["send"]("x")': "mail.send",
    'def go(f, *given):\n    return f(*given)\ngo(mail.send, "x")': "mail.send",
    'def go(m):\n    return m.send("x")\ngo(mail)': "mail.send",
    "(mail.send if 1 else mail.read)(1)": "mail.send",
    'sorted(["x"], key=mail.send)': "mail.send",
    'sent = map(mail.send, ["x"])\nprint(list(sent))': "mail.send",
    'map(mail.send, ["x"])': "mail.send",
    'from functools import partial\nsend = partial(mail.send, "x")\nsend()': "mail.send",
    'import functools\nfor send in [functools.partial(mail.send, "x")]:\n    send()': "mail.send",
    'callable(mail.send) and hasattr(mail, "send")\nmail.send(1)': "mail.send",
}
"""Scripts that refer to an action before they call it, each with the action's name."""


def _add(a: int, b: int) -> int:
    return a + b


def _identity(value: Any) -> Any:
    return value


def _value_at(number: int) -> Any:
    """Return a value of ``VALUES`` to a script, which returns the value for comparison."""
    return VALUES[number]


def _return_arguments(**arguments: Any) -> list[dict[str, Any]]:
    """Stand in for a search: return the arguments that arrive, so that a test sees them."""
    return [arguments]


class SandboxCalls(SandboxLimits):
    """Tests for tool calls: their values, their errors, and their cancellation."""

    async def test_calls_reach_the_host(self, backend: Any) -> None:
        host = RecordingScriptHost({"add": _add, "desk.find": _return_arguments})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            code = "[await add(1, b=2), await desk.find(state='open', limit=5)]"
            value = require_done(await run(code)).value
        assert value == [3, [{"state": "open", "limit": 5}]]
        assert [(call.connection, call.method) for call in host.calls] == [
            ("add", ""),
            ("desk", "find"),
        ]
        assert (list(host.calls[0].args), dict(host.calls[0].kwargs)) == ([1], {"b": 2})

    async def test_values_round_trip(self, backend: Any) -> None:
        host = RecordingScriptHost({"give": _value_at, "take": _identity})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            for number, value in enumerate(VALUES):
                outcome = await run(f"await take(await give({number}))")
                back = require_done(outcome).value
                assert (back, type(back)) == (value, type(value))
                assert host.calls[-1].args[0] == value

    async def test_large_values_round_trip(self, backend: Any) -> None:
        host = RecordingScriptHost({"give": lambda: "é" * _BIG, "take": len})
        async with Bench(backend) as bench:
            outcome = await bench.run("await take((await give()) + 'x')", host)
            assert require_done(outcome).value == _BIG + 1

    async def test_gathered_calls_overlap(self, backend: Any) -> None:
        everyone, waiting = asyncio.Event(), 0

        async def meet(number: int) -> int:
            nonlocal waiting
            waiting += 1
            if waiting == 50:
                everyone.set()
            await everyone.wait()
            return number

        code = "import asyncio\nawait asyncio.gather(*(meet(n) for n in range(50)))"
        async with Bench(backend) as bench:
            outcome = await bench.run(code, RecordingScriptHost({"meet": meet}))
        assert list(require_done(outcome).value) == list(range(50))

    async def test_errors_of_calls_can_be_caught(self, backend: Any) -> None:
        host = RecordingScriptHost(
            {
                "broken": lambda: Raised("ToolError", "the desk burns", http_status=503),
                "refused": lambda: Raised("ApprovalRejected", "Ann wrote no"),
                "bad": lambda: Raised("ToolArgumentError", "limit must be a number"),
                "answered": lambda: ToolMessage("not today"),
                "desk.find": lambda: 1,
            }
        )
        code = """
texts = []
for call, kind in ((broken, ToolError), (refused, ApprovalRejected), (bad, ToolArgumentError)):
    try:
        await call()
    except kind as error:
        # A sandbox may implement getattr() by itself.
        texts.append((str(error), error.status, getattr(error, "status", "none")))
texts.append(str(await answered()))
texts
"""
        async with Bench(backend) as bench:
            run = await bench.open(host)
            value = require_done(await run(code)).value
            assert value == [
                ("the desk burns", 503, 503),
                ("Ann wrote no", None, None),
                ("limit must be a number", None, None),
                "not today",
            ]
            assert "desk.burn" in require_failed(await run("await desk.burn()")).message
            outcome = require_failed(await run("x = 1\nawait refused()"), "ApprovalRejected")
            assert (outcome.line, outcome.message) == (2, "Ann wrote no")

    async def test_call_works_without_await(self, backend: Any) -> None:
        host = RecordingScriptHost({"pay": _identity})
        code = "def paid(n):\n    return pay(n) + 1\npay(1)\n"
        code += "print(paid(2), sum([pay(n) for n in range(3, 203)]))"
        async with Bench(backend) as bench:
            require_done(await bench.run(code, host))
        assert host.text == "3 20500\n"
        assert [call.args[0] for call in host.calls] == list(range(1, 203))

    async def test_tool_used_as_a_value_is_an_error(self, backend: Any) -> None:
        tools = {"mail.send": _identity, "mail.read": list, "pay": _identity}
        async with Bench(backend) as bench:
            session = (await bench.open(RecordingScriptHost(tools))).session
            for script in MISUSES:
                host = RecordingScriptHost(tools)
                code = f"{script}\nprint('Mail was sent.')"
                outcome = await session.execute(code, host)
                failure = require_failed(outcome)
                assert (host.text, host.calls) == ("", []), f"{script} went on"
                names_tool = any(name in failure.message for name in tools)
                assert names_tool, f"{script}: {failure.message}"

    async def test_tool_in_a_variable_can_be_called(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            tools = {"mail.send": _identity, "mail.read": list}
            session = (await bench.open(RecordingScriptHost(tools))).session
            for script, called_tool in CALLED_TOOL_BY_SCRIPT.items():
                host = RecordingScriptHost(tools)
                require_done(await session.execute(script, host))
                assert [f"{call.connection}.{call.method}" for call in host.calls] == [called_tool]

    async def test_unencodable_result_is_an_error_in_the_script(self, backend: Any) -> None:
        host = RecordingScriptHost({"get": object})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            assert "object" in require_failed(await run("await get()"), "ToolError").message
            assert require_done(await run("1")).value == 1

    async def test_script_can_cancel_a_call(self, backend: Any) -> None:
        call_began = asyncio.Event()

        async def wait() -> None:
            call_began.set()
            await asyncio.Event().wait()

        async def ok() -> str:
            await call_began.wait()  # a call that is cancelled earlier never reaches the host
            return "ok"

        host = RecordingScriptHost({"wait": wait, "ok": ok})
        # The host sees the cancellation before the last call. That call shows that the session
        # still works.
        code = """
import asyncio
task = asyncio.ensure_future(wait())
await ok()
task.cancel()
try:
    await task
except asyncio.CancelledError:
    pass
await ok()
"""
        async with Bench(backend) as bench:
            assert require_done(await bench.run(code, host)).value == "ok"
        assert host.cancelled == ["wait"]

    async def test_session_makes_no_call_after_its_end(self, backend: Any) -> None:
        host = RecordingScriptHost({"pay": _identity, "ok": lambda: "ok"})
        code = """
import asyncio
async def later():
    while True:
        await asyncio.sleep(0)
        await pay(1)
task = asyncio.ensure_future(later())
await ok()
"""
        async with Bench(backend) as bench:
            run = await bench.open(host)
            await run(code)
            before = len(host.calls)
            for _ in range(5):
                require_done(await run("await ok()"))
            assert len(host.calls) == before + 5, "a task of an earlier script still calls"
