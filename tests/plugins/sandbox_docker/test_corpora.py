"""Honest scripts behave as outside; attempts to escape get nowhere."""

import asyncio

import pytest

from support.corpora import Targets, entries, need_corpora, run_benign, run_escapes

need_corpora()
pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE = 3
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
async def test_honest_scripts(make_backend, part):
    backend, turn, found = make_backend(pool_size=AT_ONCE), asyncio.Semaphore(AT_ONCE), {}

    async def one(entry):
        async with turn:
            problem = await run_benign(backend, entry)
        if problem:
            found[entry["file"]] = problem

    await asyncio.gather(*(one(entry) for entry in entries("benign")[part::PARTS]))
    assert found == {}


@pytest.mark.parametrize("part", range(PARTS))
async def test_attempts_to_escape(make_backend, part, tmp_path, monkeypatch, containers):
    backend = make_backend(pool_size=1)
    async with Targets(tmp_path, monkeypatch.setenv) as target:
        found = await run_escapes(backend, entries("escape")[part::PARTS], target)
        await backend.aclose()
    assert found == {}
    assert containers() == set()
