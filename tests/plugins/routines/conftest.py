"""The program, run in this process; routines of a project, and an agent with their tools."""

import pytest

from delf.trust.decisions import Trust
from delf_routines.store import RoutineStore
from support.cli_fixtures import *  # noqa: F403 - here, run


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The routines of an empty project, which the person trusts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_TRUST", str(tmp_path))
    (tmp_path / "delf.toml").write_text("")
    return RoutineStore(tmp_path, Trust.here())
