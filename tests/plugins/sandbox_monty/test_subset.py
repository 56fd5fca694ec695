"""Errors about unsupported Python say what a model can write instead."""

import asyncio
import textwrap

import pytest

from delf.protocols.sandbox import Crashed, Done, Failed, LimitReached, Limits, Rerun
from delf_devkit.testing.contracts.bench import Bench, require_done, require_failed
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox.inputs import visible_path
from delf_sandbox_monty.backend import MontyBackend


@pytest.fixture
async def bench():
    async with Bench(MontyBackend()) as opened:
        yield opened


MISSING = {
    "yield": ("x = 1\ndef g():\n    y = yield 1", "build a list and return it", 3),
    "a generator that counts outside": (
        "n = 0\ndef ids():\n    global n\n    for i in range(5):\n        n += 1\n        yield i",
        "with each change of n: build a list",
        2,
    ),
    "a generator that adds outside": (
        "seen = []\ndef ids():\n    for i in range(5):\n        seen.append(i)\n        yield i",
        "with each change of seen: build a list",
        2,
    ),
    "a generator that sets an item outside": (
        "seen = {}\ndef ids():\n    for i in range(5):\n        seen[i] = 1\n        yield i",
        "with each change of seen: build a list",
        2,
    ),
    "a generator without an end": (
        "def ids():\n    n = 0\n    while True:\n        yield n\n        n += 1",
        "this loop has none: write a loop without a generator",
        3,
    ),
    "a generator that only ends an inner loop": (
        (
            "def primes():\n    n = 2\n    while True:\n        for p in range(2, n):\n"
            "            if n % p == 0:\n                break\n        else:\n            yield n\n"
            "        n += 1"
        ),
        "this loop has none: write a loop without a generator",
        3,
    ),
    "a generator that returns only after a loop without an end": (
        "def ids():\n    while True:\n        yield 1\n    else:\n        return",
        "this loop has none: write a loop without a generator",
        2,
    ),
    "a generator whose inner function returns": (
        "def ids():\n    while True:\n        def one():\n            return 1\n        yield one()",
        "this loop has none: write a loop without a generator",
        2,
    ),
    "importing all names of a replaced module": (
        "x = 1\nfrom asyncio import *",
        "without import *: import the names",
        2,
    ),
    "inheritance": ("class A(dict): pass", "without a base", 1),
    "del": ("class A:\n    pass\na = A()\na.x = 1\ndel a.x", "without the item", None),
    "a property": (
        "class A:\n    @property\n    def x(self): return 1",
        "plain method",
        None,
    ),
    "a method that Monty does not call": (
        "class A:\n    def __bool__(self): return False",
        "without __bool__ of classes: write a method of another name",
        2,
    ),
    "naming a function": (
        "def f(): pass\nf.__name__ = 'g'",
        "'function' object has no attribute '__name__'",
        2,
    ),
    "a module": (
        "import uuid\nuuid.uuid4()",
        "without 'uuid'; it has: asyncio",
        1,
    ),
    "a module of which others have a part": (
        "from urllib.parse import quote\nquote('a b')",
        "without 'urllib'; it has: asyncio",
        1,
    ),
    "a module that others replace": (
        "import threading\nthreading.Lock()",
        "without 'threading'; it has: asyncio",
        1,
    ),
    "a refused module": (
        "import subprocess\nsubprocess.run('ls')",
        "programs cannot be started",
        1,
    ),
    "a part of asyncio": (
        "import asyncio\nx = asyncio.Queue()",
        "without asyncio.Queue: write it another way",
        2,
    ),
    "cancelling": (
        "import asyncio\ntask = asyncio.create_task(desk.find())\n\ntask.cancel()",
        "without cancelling tasks: do not begin",
        4,
    ),
    "an exception of one's own": ("class A(ValueError): pass", "without a base", 1),
    "input": ("input()", "nobody can answer", 1),
    "the line of what was rewritten": (
        "x = [\n    1,\n]\nfor n in x:\n    y = desk.find() + n\n    y.z\n",
        "no attribute 'z'",
        6,
    ),
}


@pytest.mark.parametrize("name", MISSING)
async def test_missing_feature_is_reported(bench, name):
    code, words, line = MISSING[name]
    run = await bench.open(RecordingScriptHost({"desk.find": lambda: 1}))
    outcome = require_failed(await run(code))
    assert words in outcome.message
    if line is not None:
        assert outcome.line == line
    assert require_done(await run("1 + 1")).value == 2


# Each script fails with the error on the line that has the comment ``# here``.
LEAVES_A_TRY = {
    "another kind of error": """
        try:
            x = {}["a"]  # here
        except ToolError as error:
            print(error)
    """,
    "an error of several handlers": """
        try:
            x = {}["a"]  # here
        except ToolError as error:
            print(error)
        except (TypeError, ValueError):
            print(2)
            print(3)
    """,
    "finally": """
        try:
            x = {}["a"]  # here
        finally:
            print(1)
            print(2)
    """,
    "raised again": """
        try:
            x = {}["a"]  # here
        except KeyError:
            print(1)
            raise
    """,
    "raised again under a name": """
        try:
            x = {}["a"]  # here
        except Exception as error:
            if str(error) != "b":
                raise
            print(1)
    """,
    "a body of several statements": """
        try:  # here
            y = 1
            x = {}["a"]
        except ToolError as error:
            print(error)
    """,
    "a call": """
        try:
            x = await missing()  # here
        except ToolError as error:
            print(error)
    """,
    "in a function": """
        async def fetch():
            try:
                return {}["a"]  # here
            except ToolError as error:
                print(error)
        print(await fetch())
    """,
    "the handler": """
        try:
            x = {}["a"]
        except KeyError:
            print(1)
            print({}["b"])  # here
    """,
    "raised by the handler": """
        try:
            x = {}["a"]
        except KeyError as error:
            raise ValueError("no a") from error  # here
    """,
}


RERAISED_AFTER_ANOTHER = {
    "a bare raise in both": """
        try:
            raise ValueError("outer")
        except ValueError:
            try:
                int("x")
            except ValueError:
                if 1 > 2:
                    raise
            raise
    """,
    "one name for both": """
        try:
            raise ValueError("outer")
        except Exception as error:
            try:
                int("x")
            except Exception as error:
                print(error)
            raise
    """,
    "an inner error of another kind": """
        try:
            raise ValueError("outer")
        except ValueError:
            try:
                try:
                    raise TypeError("inner")
                except KeyError:
                    pass
            except Exception:
                pass
            raise
    """,
    "a deleted name": """
        try:
            raise ValueError("outer")
        except ValueError as error:
            del error
            raise
    """,
}


@pytest.mark.parametrize("name", RERAISED_AFTER_ANOTHER)
async def test_reraised_error_is_that_of_its_own_handler(bench, name):
    outcome = require_failed(await bench.run(textwrap.dedent(RERAISED_AFTER_ANOTHER[name])))
    assert (outcome.kind, outcome.message) == ("ValueError", "outer")


@pytest.mark.parametrize("name", LEAVES_A_TRY)
async def test_error_that_leaves_a_try_has_its_line(bench, name):
    code = textwrap.dedent(LEAVES_A_TRY[name]).strip()
    expected = [n for n, line in enumerate(code.splitlines(), 1) if "# here" in line]
    outcome = require_failed(await bench.run(code))
    assert [outcome.line] == expected
    assert "# here" in outcome.source


async def test_missing_file_named_like_an_input_is_reported_with_the_path(bench, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x")
    run = await bench.open(files=(str(path),))
    outcome = require_failed(await run("import pathlib\npathlib.Path('a.csv').read_text()"))
    assert outcome.message.endswith(f"; the input file is '{visible_path(str(path))}'")
    outcome = require_failed(await run("open('b.csv')"))
    assert (outcome.kind, outcome.line) == ("FileNotFoundError", 1)
    assert "input" not in outcome.message


async def test_written_file_hides_the_input_of_the_same_name(bench, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x")
    run = await bench.open(files=(str(path),))
    code = "with open('a.csv', 'w') as f:\n    f.write('y')\nprint(open('a.csv').read())"
    require_done(await run(code))
    assert run.host.text == "y\n"
    assert run.host.files == {"a.csv": b"y"}
    assert path.read_text() == "x"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("open('a')", "an open file cannot be passed; pass what its read() gives"),
        ("[len]", "len cannot be passed"),
    ],
)
async def test_value_that_is_no_data_is_refused(bench, value, message):
    host = RecordingScriptHost({"desk.add": lambda item: item})
    run = await bench.open(host)
    require_done(await run("with open('a', 'w') as f:\n    f.write('x')"))
    outcome = require_failed(await run(f"await desk.add({value})"))
    assert message in outcome.message
    outcome = require_failed(await run("add_to_output_files('b', open('a'))"))
    assert "open file cannot be passed" in outcome.message
    assert "b" not in host.files


async def test_unknown_action_is_reported_with_a_similar_one(bench):
    run = await bench.open(RecordingScriptHost({"desk.find": lambda: 1, "desk.close": lambda: 2}))
    outcome = require_failed(await run("await desk.find_all()"))
    assert outcome.message.endswith("it has: find, close; did you mean 'find'?")


async def test_generator_that_changes_a_variable_of_an_earlier_script_is_refused(bench):
    run = await bench.open()
    require_done(await run("seen = []"))
    code = (
        "def ids():\n    for i in range(5):\n        seen.append(i)\n        yield i\nnext(ids())"
    )
    assert "with each change of seen" in require_failed(await run(code)).message
    assert require_done(await run("seen")).value == []


async def test_script_error_resembling_an_unsupported_feature_is_unchanged(bench):
    outcome = require_failed(
        await bench.run("raise NotImplementedError('monty does not support refunds')")
    )
    words = (outcome.kind, outcome.message)
    assert words == ("NotImplementedError", "monty does not support refunds")


WORKS = {
    "a plain main forgotten": ("def main():\n    print(3)", "3\n"),
    "main forgotten": ("async def main():\n    print(await add(1, 2))", "3\n"),
    "main with starred parameters": (
        "def main(*names, **options):\n    names = list(names)\n    print(names)\nmain(1)",
        "[1]\n",
    ),
    "main with positional parameters": (
        "def main(name, /):\n    name = name + 1\n    print(name)\nmain(1)",
        "2\n",
    ),
    "main under dunder main": (
        "import asyncio\nasync def main():\n    print(1)\nif __name__ == '__main__':\n    asyncio.run(main())",
        "1\n",
    ),
    "awaits that are not needed": (
        "é = 1; await add_to_output_files('a', 'x'); await  add_to_output_files('b', 'y'); print(é)",
        "1\n",
    ),
    "next of a generator": (
        "print(next(x for x in [1, 2]), next((x for x in []), 'no'), next(iter([3])))",
        "1 no 3\n",
    ),
    "a generator that changes its own list": (
        (
            "def pages():\n    seen = []\n    while True:\n        seen.append(1)\n        yield len(seen)\n"
            "        if len(seen) == 3:\n            return\nprint(*pages())"
        ),
        "1 2 3\n",
    ),
    "a generator that ends after an inner loop": (
        (
            "def pages():\n    while True:\n        for n in [1, 2]:\n            yield n\n"
            "        else:\n            break\nprint(*pages())"
        ),
        "1 2\n",
    ),
    "a tool's exception under its own names": (
        "for kind in (ToolError, ApprovalRejected):\n    try:\n        await refused()\n    except kind as error:\n        print(error)",
        "no\nno\n",
    ),
    "print into a file of an object": (
        (
            "import io\nclass Report:\n    def __init__(self):\n        self.out = io.StringIO()\n"
            "    def add(self, text):\n        print(text, file=self.out)\n"
            "report = Report()\nreport.add('hidden')\nprint('read:', report.out.getvalue(), end='')"
        ),
        "read: hidden\n",
    ),
    "scratch files": ("open('a', 'w').write('x')\nprint(open('a').read())", "x\n"),
}


@pytest.mark.parametrize("name", WORKS)
async def test_subset_runs_supported_scripts(bench, name):
    from delf.protocols.sandbox import Raised

    code, printed = WORKS[name]
    tools = {"add": lambda a, b: a + b, "refused": lambda: Raised("ApprovalRejected", "no")}
    run = await bench.open(RecordingScriptHost(tools))
    require_done(await run(code))
    assert run.host.text == printed


async def test_dataclass_instance_is_returned_as_a_dict(bench):
    code = "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\n[P(1), print]"
    assert require_done(await bench.run(code)).value == [{"x": 1}, "print"]


async def test_variables_of_main_remain_after_it_returns(bench):
    code = """
async def main():
    import math
    rows = [n for n in range(3)]
    total = math.floor(3.5)
    rerun("seen", "go on", carry=["rows"])

await main()
"""
    run = await bench.open()
    outcome = await run(code)
    assert outcome.variables == {"main": "function", "rows": "list of 3 int", "total": "int"}
    assert require_done(await run("(rows, total)")).value == ([0, 1, 2], 3)


async def test_variables_are_described(bench):
    run = await bench.open()
    outcome = require_done(await run("import json\nrows = [1, 2]\nn = 1\n_hidden = 2"))
    assert outcome.variables == {"rows": "list of 2 int", "n": "int"}
    outcome = require_failed(await run("text = 'abc'\n1 / 0"))
    assert outcome.variables["text"] == "str of length 3"
    code = "row = {'id': 1, 'name': 'a'}\nlines = [row, row]\nempty = {}\nnone = []"
    outcome = require_done(await run(code))
    assert (
        outcome.variables
        | {
            "row": "dict with 2 keys: 'id', 'name'",
            "lines": "list of 2 dict, the first with 2 keys: 'id', 'name'",
            "empty": "empty dict",
            "none": "list of 0",
        }
        == outcome.variables
    )
    outcome = await run("rerun('c', 'r', ['rows'])")
    assert isinstance(outcome, Rerun)
    assert "rows" in outcome.variables


async def test_rerun_cannot_be_caught(bench):
    run = await bench.open()
    outcome = await run("try:\n    rerun('c', 'r')\nexcept Exception:\n    print('no')")
    assert isinstance(outcome, Rerun)
    assert run.host.text == ""


async def test_gather_of_thousands_of_calls_succeeds(bench):
    host = RecordingScriptHost({"double": lambda n: n * 2})
    run = await bench.open(host)
    code = "import asyncio\nsum(await asyncio.gather(*[double(n) for n in range(5_000)]))"
    assert require_done(await run(code)).value == sum(range(5_000)) * 2


async def test_uuid_and_path_arrive_as_text(bench):
    import uuid
    from pathlib import PurePosixPath

    host = RecordingScriptHost({"get": lambda: [uuid.UUID(int=7), PurePosixPath("/a/b")]})
    run = await bench.open(host)
    assert require_done(await run("await get()")).value == [str(uuid.UUID(int=7)), "/a/b"]


async def test_killed_guest_process_is_a_crash(bench):
    import os
    import signal

    begun = asyncio.Event()
    run = await bench.open(RecordingScriptHost({"begin": begun.set}))
    work = asyncio.ensure_future(run("await begin()\nwhile True: pass"))
    await begun.wait()
    os.kill(run.session.worker, signal.SIGKILL)
    outcome = await work
    assert isinstance(outcome, Crashed), outcome
    assert not run.session.alive
    assert isinstance(await run("1"), Crashed)


async def test_cpu_limit_ends_the_session(bench):
    run = await bench.open(limits=Limits(cpu_seconds=0.2))
    outcome = await run("while True: pass")
    assert isinstance(outcome, LimitReached)
    assert not run.session.alive


async def test_fifty_concurrent_sessions_succeed(bench):
    host = RecordingScriptHost({"double": lambda n: n * 2})
    runs = await asyncio.gather(*(bench.open(host) for _ in range(50)))
    outcomes = await asyncio.gather(*(run(f"await double({n})") for n, run in enumerate(runs)))
    assert [require_done(outcome).value for outcome in outcomes] == [n * 2 for n in range(50)]


@pytest.mark.parametrize("code", ["(" * 5000, "-" * 100_000 + "1", "\0", "x = 'a\ud800'"])
async def test_invalid_script_text_fails_without_a_crash(bench, code):
    run = await bench.open()
    outcome = await run(code)
    assert isinstance(outcome, Failed | Done), outcome
    assert require_done(await run("1 + 1")).value == 2


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("await refused()", 1),
        ("try:\n    await refused()\nexcept ToolError:\n    pass\nraise ValueError('no')", None),
    ],
    ids=["a call's", "its own"],
)
async def test_failure_carries_the_id_of_its_call(bench, code, call):
    from delf.protocols.sandbox import Raised

    run = await bench.open(
        RecordingScriptHost({"refused": lambda: Raised("ApprovalRejected", "no")})
    )
    outcome = await run(code)
    assert (outcome.message, outcome.call_id) == ("no", call)
