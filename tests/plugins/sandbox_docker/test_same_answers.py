"""One series of scripts gives the same answers in every sandbox."""

import asyncio
from typing import Any

import pytest

from delf.protocols.sandbox import Done, Failed, Raised, Rerun
from delf_devkit.testing.contracts.bench import Bench
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox_local.backend import LocalBackend
from delf_sandbox_monty.backend import MontyBackend

pytestmark = [pytest.mark.services, pytest.mark.timeout(90)]

SCRIPTS = (
    "rows = await sql.query('select')\nprint(len(rows), rows[0]['name'], '→ é 🦊')",
    "import asyncio\ntotals = await asyncio.gather(*[add(r['n'], b=1) for r in rows])\nsum(totals)",
    "import json, re\nfrom datetime import date\nprint(json.dumps({'d': str(date(2026, 3, 1)), 'w': re.findall('[0-9]+', 'a1b22')}))",
    "try:\n    await refused()\nexcept ApprovalRejected as error:\n    print('said:', error)",
    "x = 1\nawait refused()",
    "rows[10]",
    "if x\n    y",
    "await add_to_output_files('r.csv', [{'a': 1, 'b': 'x,y'}])\nadd_to_output_files('t', 'é')",
    "from decimal import Decimal\n{'d': Decimal('1.50'), 's': {1, 2}, 't': (1, 'b'), 'n': 2**70, 'b': b'\\xff'}",
    "def f(n):\n    return n / 0\n\nf(1)",
    "rerun('saw rows', 'print them', ['rows'])",
    "sql.query('as the value')",
    "add(1, 1)\nNone",
    "async def main():\n    print('main', await add(1, 2))",
    "await add('x', 1)",
    "len(rows), totals",
)


def tools():
    rows: list[dict[str, Any]] = [{"name": f"n{number}", "n": number} for number in range(5)]

    def query(_: str) -> list[dict[str, Any]]:
        return rows

    return RecordingScriptHost(
        {
            "sql.query": query,
            "add": lambda a, b: a + b,
            "refused": lambda: Raised("ApprovalRejected", "Ann said no"),
        }
    )


def text_of(outcome: Any):
    """Return the parts of an outcome that must be the same in every sandbox."""
    match outcome:
        case Done(value=value):
            return "done", value
        case Rerun(context=context, remaining=remaining, carry=carry):
            return "rerun", context, remaining, carry
        case Failed(kind=kind, line=line, source=source):
            return "failed", kind, "" if kind == "NotAwaitedError" else (line, source)
        case _:
            return outcome


async def drive(backend: Any):
    async with Bench(backend) as bench:
        run = await bench.open(tools())
        answers = [text_of(await run(code)) for code in SCRIPTS]
    calls = [(c.connection, c.method, list(c.args), dict(c.kwargs)) for c in run.host.calls]
    return answers, run.host.text, run.host.files, calls


async def test_all_sandboxes_give_the_same_answers(make_backend: Any):
    everywhere = await asyncio.gather(
        *(drive(backend) for backend in (LocalBackend(), make_backend(), MontyBackend()))
    )
    local, docker, monty = everywhere
    assert docker == local
    assert monty == local
