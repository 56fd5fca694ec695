"""Honest scripts behave as outside; attempts to escape get nowhere."""

import asyncio

import pytest

from support.corpora import Targets, entries, need_corpora, run_benign, run_escape

need_corpora()
pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE = 3
PARTS = 4
HEAVY = ("exhaust_memory", "exhaust_disk", "exhaust_pids", "exhaust_output", "kill_host", "crash")


async def run_all(chosen, run):
    """What each entry did that it should not, by its file."""
    turn, found = asyncio.Semaphore(AT_ONCE), {}

    async def one(entry):
        async with turn:
            problem = await run(entry)
        if problem:
            found[entry["file"]] = problem

    await asyncio.gather(*(one(entry) for entry in chosen if entry.get("goal") not in HEAVY))
    for entry in chosen:
        if entry.get("goal") in HEAVY:
            await one(entry)
    return found


@pytest.mark.parametrize("part", range(PARTS))
async def test_honest_scripts(make_backend, part):
    backend = make_backend(pool_size=AT_ONCE)
    chosen = entries("benign")[part::PARTS]
    assert await run_all(chosen, lambda entry: run_benign(backend, entry)) == {}


@pytest.mark.parametrize("part", range(PARTS))
async def test_attempts_to_escape(make_backend, part, tmp_path, monkeypatch, containers):
    backend = make_backend(pool_size=AT_ONCE)
    chosen = entries("escape")[part::PARTS]
    async with Targets(tmp_path, monkeypatch) as target:
        found = await run_all(chosen, lambda entry: run_escape(backend, entry, target))
        await backend.aclose()
    assert found == {}
    assert containers() == set()
