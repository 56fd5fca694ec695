"""Honest scripts behave as outside; attempts to escape get nowhere."""

import pytest

from support.corpora import Targets, entries, need_corpora, run_escapes, run_honest

need_corpora()
pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(300)]

PARTS = 4


async def test_honest_scripts_succeed(make_backend):
    assert await run_honest(make_backend(), entries("benign")) == {}


@pytest.mark.parametrize("part", range(PARTS))
async def test_escape_attempts_fail(make_backend, part, tmp_path, monkeypatch, containers):
    backend = make_backend()
    async with Targets(tmp_path, monkeypatch.setenv) as target:
        found = await run_escapes(backend, entries("escape")[part::PARTS], target)
        await backend.aclose()
    assert found == {}
    assert containers() == set()
