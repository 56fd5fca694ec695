"""Tests that slow imports of plugins are named while they run."""

from __future__ import annotations

import threading

import pytest

from delf.plugins import watch
from delf.plugins.discovery import Candidate
from delf.plugins.watch import watched_import
from support.until import until_now

SLOW = """
import gate_of_imports
from delf.hookspecs import hookimpl

gate_of_imports.may_end.wait(20)

@hookimpl
def delf_connections():
    return []
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SLOW_SECONDS", 0.02)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.01)


def test_hanging_import_is_named_with_the_variable_that_disables_it(site, caplog) -> None:
    site.module("gate_of_imports", "import threading\nmay_end = threading.Event()\n")
    site.add("delf-plugin-slow", SLOW)
    import gate_of_imports  # pyright: ignore[reportMissingImports]

    host = site.host()
    loading = threading.Thread(target=host.records)
    loading.start()
    until_now(lambda: "DELF_DISABLE_PLUGINS=slow leaves it out" in caplog.text)
    assert "the plugin 'slow' (delf-plugin-slow 1.0) is being imported" in caplog.text
    gate_of_imports.may_end.set()
    loading.join()
    assert len(caplog.records) == 1


def test_finished_import_is_not_reported(caplog) -> None:
    before = threading.active_count()
    with watched_import(Candidate(name="quick")), watched_import(None):
        pass
    until_now(lambda: threading.active_count() <= before)
    assert caplog.text == ""
