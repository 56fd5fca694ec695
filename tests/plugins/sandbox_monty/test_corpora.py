"""Honest scripts within the subset behave as outside; attempts to escape get nowhere."""

import pytest

from delf_sandbox_monty.backend import MontyBackend
from support.corpora import Targets, entries, need_corpora, run_escapes, run_honest

need_corpora()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HONEST_SHARE = 0.75
"""The share of honest scripts that run as outside. The others use modules that Monty does not have (string,
contextlib, difflib …), base classes, properties, cancelling, or rare methods of built-in types."""

PRINTS_WITHOUT_DOING = {
    "098_copy_reduce_call.py": "copy() does not call __reduce__: what is printed is the object",
    "303_cpu_regex_catastrophic.py": "expressions take linear time: it is over at once",
}


async def test_most_honest_scripts_succeed():
    backend = MontyBackend()
    scripts = entries("benign")
    others = await run_honest(backend, scripts)
    await backend.aclose()
    assert len(others) / len(scripts) <= 1 - HONEST_SHARE


async def test_escape_attempts_fail(tmp_path, monkeypatch):
    backend = MontyBackend()
    async with Targets(tmp_path, monkeypatch.setenv) as target:
        found = await run_escapes(backend, entries("escape"), target)
        await backend.aclose()
    assert {name: found[name] for name in found if name not in PRINTS_WITHOUT_DOING} == {}
