"""A corpus of honest scripts behaves as it would outside: output, calls, files, mails, reruns."""

from pathlib import Path

import pytest

from delf_sandbox_local.backend import LocalBackend
from support.corpora import entries, need_corpora, run_benign

need_corpora()


@pytest.mark.parametrize("entry", entries("benign"), ids=lambda entry: Path(entry["file"]).stem)
async def test_behaves_as_outside(entry):
    backend = LocalBackend(pool_size=0)
    try:
        assert await run_benign(backend, entry) == []
    finally:
        await backend.aclose()
