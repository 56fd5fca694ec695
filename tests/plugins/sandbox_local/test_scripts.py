"""Scripts in the real sandbox: every shape of Python that models write."""

import unicodedata
from datetime import date, datetime
from textwrap import dedent

import pytest

from delf.protocols.sandbox import Done, Failed, Rerun, ScriptStart
from support.scripting import NotingHost, local_session, run_script, session_spec


def script(text: str) -> str:
    return dedent(text).strip("\n")


RETURNS = {
    "a return": ("x = 1\nreturn {'a': x}", {"a": 1}),
    "a return in an if": ("x = 1\nif x:\n    return 'early'\nprint('never')", "early"),
    "no value": ("x = 1\ndel x", None),
    "what was assigned last": ("x = 1\ny = x + 1", 2),
    "a last expression": ("x = 2\nx * 2", 4),
    "a last awaitable": ("async def f():\n    return 5\nf()", 5),
    "a last call": ("echo(7)", [7, {}]),
    "an expression ahead of a return": ("if False:\n    return 1\n'last'", "last"),
    "names with a return": (
        (
            "from math import *\nxs = [i for i in range(3)]\nn = 0\ndef f():\n    global n\n    n += 1\n"
            "f()\nif (y := 2): pass\ni = 9\ndel xs\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    m = str(e)\n"
            "match [1, 2]:\n    case [a, *b]: pass\nclass C:\n    z = 1\nreturn [n, y, i, m, a, b, C.z, floor(pi)]"
        ),
        [1, 2, 9, "division by zero", 1, [2], 1, 3],
    ),
    "a comprehension and a return": (
        "x = 'outer'\nl = [x for x in 'ab']\nreturn [x, l]",
        ["outer", ["a", "b"]],
    ),
    "a lambda and a return": ("k = 3\nf = lambda k: k\nreturn [f(1), k]", [1, 3]),
    "an annotated name and a return": ("n: int = 4\nreturn n", 4),
    "a global statement and a return": ("global q\nq = 1\nreturn q", 1),
    "a future import and a return": ("from __future__ import annotations\nx: Foo = 1\nreturn x", 1),
    "a return of a call": ("return await echo(2)", [2, {}]),
    "a return of an unawaited call": ("return echo(2)", [2, {}]),
    "an async for and a return": (
        "async def g():\n    yield 1\nasync for v in g():\n    return v",
        1,
    ),
    "only a comment": ("# nothing", None),
    "a value that cannot be passed": ("print", "<built-in function print>"),
}


@pytest.mark.parametrize("name", RETURNS)
async def test_script_returns_its_value(name):
    code, expected = RETURNS[name]
    outcome, host = await run_script(code)
    assert isinstance(outcome, Done), outcome
    assert outcome.value == expected
    assert host.text == ""


FAILS = {
    "an exception": ("x = 1\n\nraise ValueError('no')", "ValueError", "no", 3),
    "in a function": (
        "def f(a):\n    return 1 / a\nf(0)",
        "ZeroDivisionError",
        "division by zero",
        2,
    ),
    "in a class body": ("class A:\n    x = y", "NameError", "name 'y' is not defined", 2),
    "in a library": (
        "import json\njson.loads('{')",
        "JSONDecodeError",
        "Expecting property name",
        2,
    ),
    "a syntax error": ("x = 1\nif x\n    y", "SyntaxError", "expected ':' (line 2)", 2),
    "an indentation error": ("  x = 1\ny = 2", "IndentationError", "line 1", 1),
    "an await in a class": ("class A:\n    x = await echo(", "SyntaxError", "never closed", 2),
    "with a note": (
        "e = ValueError('a')\ne.add_note('a note')\nraise e",
        "ValueError",
        "a\na note",
        3,
    ),
    "a group": (
        "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
        "ExceptionGroup",
        "two",
        1,
    ),
    "a group of one": ("raise ExceptionGroup('one', [ValueError(1)])", "ValueError", "1", 1),
    "a separator in a string before it": (
        "x = 'a\u2028b\x0c'\ny = 1\n1 / 0",
        "ZeroDivisionError",
        "division",
        3,
    ),
    "a message that cannot be shown": (
        "class E(Exception):\n    def __str__(self):\n        raise TypeError\nraise E",
        "E",
        "cannot be shown",
        4,
    ),
    "with a return elsewhere": (
        "if False:\n    return\nx = 1\n1 / 0",
        "ZeroDivisionError",
        "division",
        4,
    ),
    "an import": (
        "import pickle\npickle.dumps(1)",
        "ImportError",
        "there is no 'pickle' in this sandbox: use json",
        1,
    ),
    "a submodule": (
        "import urllib.request as r\nr.urlopen('x')",
        "ImportError",
        "there is no network",
        1,
    ),
    "eval": ("eval('1')", "RuntimeError", "eval() is not available", 1),
    "input": ("input()", "RuntimeError", "nobody can answer", 1),
    "exit": ("exit(1)", "SystemExit", "ended itself: 1", 1),
    "SystemExit": ("raise SystemExit('no rows')", "SystemExit", "ended itself: no rows", 1),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt", "", 1),
    "CancelledError": ("raise asyncio.CancelledError()", "CancelledError", "cancelled itself", 1),
    "a task that cancels itself": (
        "asyncio.current_task().cancel()\nawait asyncio.sleep(1)",
        "CancelledError",
        "cancelled itself",
        None,
    ),
    "a base exception": ("class B(BaseException): pass\nraise B('b')", "B", "b", 2),
    "deep recursion": (
        "def f(n):\n    return f(n + 1)\nf(0)",
        "RecursionError",
        "maximum recursion",
        2,
    ),
    "a result that is taken for something else": (
        "rows = shop.find()\nrows.upper()",
        "AttributeError",
        "'list' object has no attribute 'upper'",
        2,
    ),
    "a call that nothing awaits": (
        "calls = [shop.send(1)]\nif not calls:\n    await asyncio.gather(*calls)",
        "NotAwaitedError",
        "shop.send(…) on line 1",
        None,
    ),
    "a call in a generator that nothing goes through": (
        "sent = (shop.send(n) for n in range(3))\nprint('sent')",
        "NotAwaitedError",
        "line 1",
        None,
    ),
    "a call in an async generator that nothing goes through": (
        "async def rows():\n    yield shop.send(1)\ndef f():\n    return (r async for r in rows())\nf()",
        "NotAwaitedError",
        "the generator on line 4",
        None,
    ),
    "too many functions that wait within one another": (
        "async def f(n):\n    return sorted([n], key=lambda n: shop.find(n)[0] + len(deep))\ndeep = []\nawait asyncio.gather(*map(f, range(50)))",
        "RecursionError",
        "make them async",
        2,
    ),
    "a file outside": ("open('/etc/passwd')", "PermissionError", "outside the folders", 1),
    "a descriptor": ("open(3)", "PermissionError", "not a descriptor", 1),
    "an output file's name": (
        "add_to_output_files('../a', 'x')",
        "ValueError",
        "cannot be an output file's name",
        1,
    ),
    "an output file's content": (
        "add_to_output_files('a', object())",
        "TypeError",
        "cannot write a object",
        1,
    ),
    "an argument that cannot be passed": (
        "await echo(object())",
        "UnsupportedValueError",
        "type object cannot be passed",
        1,
    ),
    "an open file as an argument": (
        "open('a', 'w').close()\nawait echo(open('a', 'rb'))",
        "UnsupportedValueError",
        "an open file cannot be passed; pass what its read() gives",
        2,
    ),
    "an attribute of a tool": ("echo.items()", "AttributeError", "no tool 'echo.items'", 1),
}


@pytest.mark.parametrize("name", FAILS)
async def test_script_failure_has_its_line(name):
    code, kind, message, line = FAILS[name]
    outcome, _host = await run_script(code)
    assert isinstance(outcome, Failed), outcome
    assert outcome.kind == kind
    assert message in outcome.message
    if line is not None:
        assert (outcome.line, outcome.source) == (line, code.split("\n")[line - 1].strip())


async def test_variables_of_a_failure_are_described():
    code = script("""
        import json
        rows = [{"a": 1}] * 24
        mixed = [None, *rows, 2.5]
        text, empty, _hidden = "abc", {}, 1
        def helper(part):
            total = sum(part)
            return total / 0
        helper([1, 2])
    """)
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Failed)
    assert outcome.variables == {
        "rows": "list of 24 dict, the first with 1 key: 'a'",
        "mixed": "list of 26 dict | float | NoneType",
        "text": "str of length 3",
        "empty": "empty dict",
        "helper": "function",
    }


UNBOUND = """
class Unbound:
    @property
    def __class__(self):
        raise RuntimeError("working outside of a context")
class Named(type):
    @property
    def __name__(self):
        raise RuntimeError("no name")
class Odd(metaclass=Named):
    pass
class Shape(tuple):
    def __repr__(self):
        raise RuntimeError("not shown")
class Shaped:
    shape = Shape((1, 2))
unbound, odd, shaped = Unbound(), Odd(), Shaped()
"""

STRANGE_ENDS = {
    "notes that are not a list": (
        "e = KeyError('a')\ne.__notes__ = 5\nraise e",
        "KeyError: 'a'\n5",
    ),
    "notes that cannot be shown": (
        (
            "class N:\n    def __str__(self): raise ValueError('no text')\n"
            "e = KeyError('a')\ne.__notes__ = [N(), 'b']\nraise e"
        ),
        "KeyError: 'a'\n(its message cannot be shown: ValueError: no text)\nb",
    ),
    "notes that cannot be read": (
        "class E(Exception):\n    @property\n    def __notes__(self): raise ValueError\nraise E('a')",
        "E: a",
    ),
    "a line that is not a number": (
        "e = SyntaxError('bad')\ne.filename, e.lineno = '<script 1>', '7'\nraise e",
        "SyntaxError: bad (line 7)",
    ),
    "a line that does not exist": (
        "e = SyntaxError('bad')\ne.filename, e.lineno = '<script 1>', 10**30\nraise e",
        f"SyntaxError: bad (line {10**30})",
    ),
    "a file that is not a name": (
        "e = SyntaxError('bad')\ne.filename = []\nraise e",
        "SyntaxError: bad (line None)",
    ),
    "an error whose class is computed": (
        "class E(Exception):\n    @property\n    def __class__(self): raise ValueError\nraise E('a')",
        "E: a",
    ),
    "an error whose name is computed": (
        "class M(type):\n    __name__ = 5\nclass E(Exception, metaclass=M): pass\nraise E('a')",
        "E: a",
    ),
}


@pytest.mark.parametrize("end", ["rerun('seen', 'go on', carry=['rows'])", "1 / 0"])
@pytest.mark.parametrize(
    "call", ["await main()", "asyncio.run(main())", "await asyncio.gather(main())"]
)
async def test_variables_of_main_remain_after_it_returns(end, call):
    code = f"""
async def main():
    rows = [n for n in range(3)]
    helper = await asyncio.gather(inner())
    {end}

async def inner():
    gone = 1

{call}
"""
    async with local_session() as session:
        outcome = await session.execute(code, NotingHost())
        assert "rows" in outcome.variables
        assert "gone" not in outcome.variables
        outcome = await session.execute("(rows, helper)", NotingHost())
        assert outcome.value == ([0, 1, 2], [None])


async def test_variables_of_other_functions_are_dropped():
    code = "def work():\n    gone = 1\n    1 / 0\nwork()"
    async with local_session() as session:
        outcome = await session.execute(code, NotingHost())
        assert "gone" not in outcome.variables


async def test_unreadable_variables_are_summarised():
    variables = {
        **dict.fromkeys(("Unbound", "Named", "Odd", "Shape", "Shaped"), "class"),
        "unbound": "Unbound",
        "odd": "Odd",
        "shaped": "Shaped",
    }
    async with local_session() as session:
        outcome = await session.execute(UNBOUND, NotingHost())
        assert outcome == Done(value=None, variables=variables)
        outcome = await session.execute("def f(given):\n    1 / 0\nf(unbound)", NotingHost())
        assert isinstance(outcome, Failed)
        assert outcome.variables == {**variables, "f": "function"}


@pytest.mark.parametrize("name", STRANGE_ENDS)
async def test_unusual_exceptions_are_reported(name):
    code, reported = STRANGE_ENDS[name]
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Failed), outcome
    assert f"{outcome.kind}: {outcome.message}" == reported
    assert outcome.line == len(code.splitlines())


async def test_failing_line_of_an_earlier_script_is_quoted():
    async with local_session() as session:
        await session.execute("def f():\n    return 1 / 0", NotingHost())
        outcome = await session.execute("f()", NotingHost())
        assert (outcome.line, outcome.source) == (2, "return 1 / 0")


async def test_rerun_ends_the_script():
    code = (
        "x = [1]\ntry:\n    rerun('saw x', 'print it', ['x'])\nexcept Exception:\n    print('no')"
    )
    outcome, host = await run_script(code)
    assert outcome == Rerun(
        context="saw x", remaining="print it", carry=("x",), variables={"x": "list of 1 int"}
    )
    assert host.text == ""


async def test_rerun_works_inside_functions_and_gather():
    code = "async def f():\n    rerun('a', 'b')\nawait asyncio.gather(f(), asyncio.sleep(0))"
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Rerun)


async def test_gather_returns_each_result_of_a_function_passed_twice():
    code = (
        "n = 0\nasync def f():\n    global n\n    n += 1\n    return n\nawait asyncio.gather(f, f)"
    )
    outcome, _ = await run_script(code)
    assert outcome.value == [1, 2]


async def test_background_tasks_end_with_the_script():
    host = NotingHost()
    async with local_session() as session:
        code = script("""
            ended = []
            async def stray():
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(1)
            task = asyncio.create_task(stray())
            await asyncio.sleep(0)
        """)
        assert isinstance(await session.execute(code, host), Done)
        outcome = await session.execute("[ended, task.cancelled()]", host)
        assert outcome.value == [[1], True]


@pytest.mark.parametrize("last_line", ["task", "1"])
async def test_failure_of_a_task_that_nobody_awaits_fails_the_script(last_line: str):
    code = (
        "async def fail():\n    raise ValueError('no')\n"
        f"task = asyncio.create_task(fail())\n{last_line}"
    )
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.message) == ("ValueError", "no")


async def test_task_whose_failure_was_handled_may_be_the_value_of_a_script():
    code = script("""
        async def fail():
            raise ValueError('no')
        task = asyncio.create_task(fail())
        try:
            await task
        except ValueError:
            pass
        task
    """)
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Done)


async def test_uncancellable_background_task_does_not_block_the_session():
    code = script("""
        async def stubborn():
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
    """)
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Done)


async def test_scripts_cannot_break_the_session_by_accident():
    host = NotingHost()
    async with local_session() as session:
        code = "for task in asyncio.all_tasks():\n    task.cancel()\nawait asyncio.sleep(0)"
        assert (await session.execute(code, host)).kind == "CancelledError"
        code = "asyncio.get_running_loop().stop()\nawait asyncio.sleep(0)\nprint('on')"
        assert isinstance(await session.execute(code, host), Done)
        code = "async def f():\n    raise SystemExit(1)\nawait asyncio.gather(f(), f())"
        assert (await session.execute(code, host)).kind == "SystemExit"
        code = "async def f():\n    raise KeyboardInterrupt\nasyncio.create_task(f())\nawait asyncio.sleep(0)"
        assert (await session.execute(code, host)).kind == "KeyboardInterrupt"
        code = "globals()[1] = 2\nclass A:\n    def __str__(self):\n        raise TypeError\nA()"
        assert (await session.execute(code, host)).value == "<A>"
        code = "async def f():\n    1 / 0\nasyncio.create_task(f())\nawait asyncio.sleep(0)\nimport warnings\nwarnings.warn('hm')"
        assert (await session.execute(code, host)).kind == "ZeroDivisionError"
        assert host.text == "on\n"


async def test_unawaited_coroutine_fails_every_script():
    code = "async def f(n): pass\nmade = list(map([f][0], [1]))\nmade.clear()"
    async with local_session() as session:
        for _ in range(2):
            outcome = await session.execute(code, NotingHost())
            assert outcome.kind == "NotAwaitedError"
        assert isinstance(await session.execute("made", NotingHost()), Done)


async def test_each_unawaited_coroutine_of_a_line_is_named_once():
    code = (
        "async def f(n): pass\nasync def g(n): pass\n"
        "made = list(map([f][0], [1, 2])) + list(map([g][0], [1]))\nmade.clear()"
    )
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Failed), outcome
    assert [outcome.message.count(f"{name}(…) on line 4") for name in "fg"] == [1, 1]


async def test_long_rerun_context_is_cut():
    outcome, _ = await run_script("rerun('c' * 100_000, 'r')", frame_bytes=60_000)
    assert isinstance(outcome, Rerun)


DATES = """
import copy, uuid
from datetime import date, datetime, timedelta
from abc import ABC

found = await shop.find()
at, day = found["at"], found["day"]


class Day(date, ABC):
    pass


class Moment(datetime, Day):
    pass


def kind(value):
    match value:
        case Moment(): return "Moment"
        case Day(): return "Day"
        case datetime(): return "datetime"
        case date(): return "date"


print([kind(v) for v in (at, day, Day.today(), Moment.now(), date.today(), datetime.now())])
print({type(v).__name__: type(v) in (date, datetime) for v in (at, day, at.date(), date.min)})
print(isinstance(date(2020, 1, 1), Day), isinstance(Day(2020, 1, 1), date), issubclass(datetime, date))
print(at < datetime.now(), datetime.now() - at > timedelta(0), copy.copy(at) == at)
print(type(datetime.max - timedelta(1)) is datetime, repr(Day(2020, 1, 2)), repr(at))
"""


async def test_dates_behave_as_in_plain_python():
    async def find() -> dict[str, object]:
        return {"at": datetime(2020, 5, 6, 7, 8), "day": date(2020, 5, 6)}

    outcome, host = await run_script(DATES, NotingHost({"shop.find": find}))
    assert isinstance(outcome, Done), outcome
    assert host.text.splitlines() == [
        "['datetime', 'date', 'Day', 'Moment', 'date', 'datetime']",
        "{'datetime': True, 'date': True}",
        "False True True",
        "True True True",
        "True Day(2020, 1, 2) datetime.datetime(2020, 5, 6, 7, 8)",
    ]


async def test_random_names_come_from_seed_and_clock():
    texts: list[str] = []
    for _ in range(2):
        host = NotingHost()
        host.script_start = ScriptStart(seed="s", clock=tuple(range(10**18, 10**18 + 9)))
        outcome, _ = await run_script("import uuid\nprint(uuid.uuid1(), uuid.getnode())", host)
        assert isinstance(outcome, Done), outcome
        texts.append(host.text)
    assert texts[0] == texts[1]


async def test_late_prints_of_a_thread_are_dropped():
    code = (
        "import asyncio, time\n"
        "def late():\n"
        "    time.sleep(0.3)\n"
        "    for _ in range(60): print('x' * 60_000)\n"
        "import re\nre.enum.sys.modules['_thread'].start_new_thread(late, ())\n"
        "print('first')"
    )
    async with local_session(session_spec(processes=2)) as session:
        host = NotingHost()
        await session.execute(code, host)
        await session.execute("import asyncio\nawait asyncio.sleep(0.6)", NotingHost())
        await session.execute("print('third')", host)
        assert host.text.startswith("first\n")
        assert host.text.endswith("third\n")
        assert session.alive


@pytest.mark.parametrize("given", ["", ", 'x'"])
async def test_file_with_a_decomposed_name_reaches_the_user(given):
    decomposed_name = unicodedata.normalize("NFD", "Müller.csv")
    code = f"open({decomposed_name!r}, 'w').write('x')"
    if given:
        code = f"add_to_output_files({decomposed_name!r}{given})"
    _, host = await run_script(code)
    assert host.files == {unicodedata.normalize("NFC", decomposed_name): b"x"}
