"""A corpus of honest scripts behaves as it would outside: output, calls, files, mails, reruns."""

from delf_sandbox_local.backend import LocalBackend
from support.corpora import entries, need_corpora, run_honest

need_corpora()


async def test_honest_scripts_succeed():
    backend = LocalBackend()
    try:
        assert await run_honest(backend, entries("benign")) == {}
    finally:
        await backend.aclose()
