"""Tests that a sandbox's isolation is measured before it is believed."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf.errors import SandboxUnavailableError
from delf.specs import SandboxSpec
from delf.testing import SandboxContract, TestHost
from delf_devkit.new import fields_of, render
from delf_engine.config import AgentConfig
from delf_engine.sandboxes.isolation import Measured, measure
from delf_engine.sandboxes.starting import choose_sandbox
from delf_sandbox_local.backend import LocalBackend
from delf_sandbox_monty.backend import MontyBackend

CONFINED = Measured(
    can_make_system_calls=True,
    protects_files=True,
    blocks_network=True,
    protects_processes=True,
    blocks_new_processes=True,
    has_own_kernel=False,
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")


def open_backend(isolation: str = "process") -> Any:
    """Open the backend that ``delf plugins new --kind sandbox`` writes: an unconfined process."""
    files = render("sandbox", fields_of("open", "sandbox"))
    code = next(text for path, text in files.items() if "class OpenBackend" in text)
    module = types.ModuleType("open_backend")
    sys.modules[module.__name__] = module
    exec(compile(code, "open_backend", "exec"), module.__dict__)
    backend = module.OpenBackend()
    backend.isolation = isolation
    return backend


async def measured(backend: Any, *, thorough: bool = False) -> Measured:
    try:
        return await measure(backend, thorough=thorough)
    finally:
        await backend.aclose()


# -- what is found --------------------------------------------------------------------------


@linux
@pytest.mark.slow
async def test_unconfined_sandbox_is_detected() -> None:
    found = await measured(open_backend(), thorough=True)
    assert found.can_make_system_calls
    assert not any((found.protects_files, found.blocks_network, found.protects_processes))
    assert not any((found.blocks_new_processes, found.limits_process_count))
    assert (found.limits_memory, found.limits_cpu) == (True, True)
    assert {
        "a file of the host",
        "an input file, to write",
        "a server of the host",
        "a process of the host",
    } <= set(found.reached)
    for claimed in ("vm", "container", "interpreter"):
        assert found.trusted_isolation(claimed) == "process"


@linux
async def test_local_sandbox_confines_every_attempt() -> None:
    found = await measured(LocalBackend(pool_size=0), thorough=True)
    assert found == replace(
        CONFINED, limits_memory=True, limits_cpu=True, limits_process_count=True
    )


async def test_monty_sandbox_confines_every_attempt() -> None:
    found = await measured(MontyBackend(), thorough=True)
    assert found == replace(
        CONFINED,
        can_make_system_calls=False,
        limits_memory=True,
        limits_cpu=True,
        limits_process_count=True,
    )
    assert found.trusted_isolation("interpreter") == "interpreter"
    assert found.trusted_isolation("container") == "interpreter"


async def test_isolation_measurement_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await measured(MontyBackend())
    assert list(tmp_path.iterdir()) == []


# -- what is chosen -------------------------------------------------------------------------


async def test_isolation_is_measured_if_more_than_a_process_is_required() -> None:
    host = TestHost.discover(environ={})
    for least, known in (("interpreter", "interpreter"), ("process", "process")):
        config = AgentConfig(sandbox="monty", min_isolation=least)
        chosen = await choose_sandbox(host, config, {})
        assert chosen.isolation == known
        await chosen.backend.aclose()


@linux
@pytest.mark.parametrize("claimed", ["interpreter", "container", "vm"])
async def test_third_party_isolation_claim_is_measured(claimed: Any) -> None:
    host = TestHost([])
    backend = open_backend(claimed)
    spec = SandboxSpec(name="boast", summary=".", factory="x:y", isolation=claimed)
    host.provide(spec, lambda: backend)
    for sandbox in ("auto", "boast"):
        with pytest.raises(SandboxUnavailableError, match="reached a file of the host"):
            await choose_sandbox(host, AgentConfig(sandbox=sandbox, min_isolation=claimed), {})
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.isolation == "process"
    await backend.aclose()


# -- what the suite says of it --------------------------------------------------------------


class Suite(SandboxContract):
    """The contract suite, whose tests this module calls."""

    __test__ = False


@linux
@pytest.mark.slow
async def test_suite_fails_for_an_unconfined_sandbox(tmp_path: Path) -> None:
    """The backend refuses Python's own open(), but not a system call."""
    with pytest.raises(AssertionError, match="`confines` says files, and a script reached"):
        await Suite().test_script_cannot_open_other_files(open_backend(), tmp_path)


@linux
@pytest.mark.parametrize("what", ["files", "network", "processes"])
async def test_contract_suite_attempts_raw_system_calls(what: str) -> None:
    backend = open_backend()
    with pytest.raises(AssertionError, match=f"`confines` says {what}, and a script reached"):
        await Suite()._check_unreachable_by_system_calls(backend, what)  # noqa: SLF001 - of a broken sandbox
    await backend.aclose()


@linux
@pytest.mark.parametrize("isolation", ["interpreter", "container", "vm"])
async def test_contract_suite_refuses_an_unproved_isolation_claim(isolation: str) -> None:
    with pytest.raises(
        pytest.fail.Exception, match=f"claims the isolation '{isolation}', but a script"
    ):
        await Suite().test_backend_works_on_this_machine(open_backend(isolation))
    await Suite().test_backend_works_on_this_machine(open_backend())
