"""A routine is saved while a person presses Ctrl-C, or the disk is full: whole or not at all."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ConfigurationError, FolderNotTrustedError
from delf.machine import own_files
from delf_routines.routine import Parameter, Routine, UsedAction

USED = {"look": UsedAction(effect="read", parameters=("n: int",), returns="int")}


def routine(script: str) -> Routine:
    parameter = Parameter(name="n", type="integer", default=1)
    given: dict[str, Any] = {"name": "report", "title": "Look.", "task": "Look at 1."}
    return Routine(**given, script=script, parameters={"n": parameter}, actions=USED)


OLD, NEW = routine("print(await look(n=n))"), routine("print(await look(n=n), 'new')")


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "full")])
def test_interrupted_save_keeps_the_old_or_new_routine(
    store: Any, monkeypatch: pytest.MonkeyPatch, place: int, error: Any
) -> None:
    """The steps of saving are: create, fill and rename the file, trust it, and save its run."""
    store.keep(OLD, "{}")
    steps = 0

    def counted(function: Any) -> Any:
        def step(*given: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == place + 1:
                raise error
            return function(*given, **more)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(own_files, "create_private", counted(own_files.create_private))
        patched.setattr(Path, "replace", counted(Path.replace))
        trust: Any = store.trust.__class__
        patched.setattr(trust, "keep", counted(trust.keep))
        with contextlib.suppress(KeyboardInterrupt, ConfigurationError, OSError):
            store.keep(NEW, "{}")
    assert store.names() == ["report"]
    assert not list(store.folder.rglob(".*")), "nothing is left over"
    text = store.path("report").read_text()
    assert text in (OLD.text(), NEW.text())
    with contextlib.suppress(FolderNotTrustedError):  # the person did not get to trust it
        assert store.find("report").script in (OLD.script, NEW.script)


def test_rename_keeps_every_recorded_run(store: Any) -> None:
    store.keep(OLD, "{}")
    runs = {"3f9a": '{"n": 1}', "2026.may": '{"n": 2}', "2026.june": '{"n": 3}'}
    for run, text in runs.items():
        store.add_case("report", run, text)
    store.rename("report", "income")
    texts_by_file = {path.name: path.read_text() for path in store.case_paths("income")}
    assert texts_by_file == {
        "income.json": "{}",
        **{f"income.{run}.json": text for run, text in runs.items()},
    }


def test_rename_keeps_the_proposal(store: Any) -> None:
    store.keep(OLD, "{}")
    store.propose(NEW, '{"n": 4}')
    store.rename("report", "income")
    assert store.proposed("income") == (replace(NEW, name="income"), b'{"n": 4}')
    assert not store.has_proposal("report")


@pytest.mark.parametrize("place", ["proposed/report.json", "cases/report.json"])
def test_rename_with_a_damaged_recorded_run_changes_nothing(store: Any, place: str) -> None:
    store.keep(OLD, "{}")
    store.propose(NEW, "{}")
    (store.folder / place).write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        store.rename("report", "income")
    assert store.names() == ["report"]
