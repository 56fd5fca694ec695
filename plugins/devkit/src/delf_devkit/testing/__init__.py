"""The test kit for plugins and for programs that embed delf.

The fixtures ``scripted_model``, ``scripted_approvals``, ``delf_host`` and ``delf_project`` come
with the pytest plugin. A contract suite is taken by subclassing::

    import pytest
    from delf.testing import Call, ConnectionContract
    from delf_tickets.connection import Tickets

    class TestTickets(ConnectionContract):
        calls = (Call("find", status="open"),)

        @pytest.fixture
        def connection(self):
            return Tickets()

Every name here is imported on first use. The suite of a kind of plugin is ``KindContract`` in
``contracts/kind.py``; ``delf/testing.pyi`` tells type checkers about all names.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any, Final

_OTHERS: Final = {
    "Call": "contracts.connection",
    "ConversationContract": "contracts.conversation",
    "DelfProject": "project",
    "Outcome": "project",
    "PluginContract": "contracts.plugin",
    "ScriptedApprovals": "approvals",
    "ScriptedModel": "models",
    "ScriptedTask": "tasks",
    "SharedJournalContract": "contracts.shared_journal",
    "Shown": "contracts.approval",
    "TestHost": "hosts",
    "ToolsContract": "contracts.tools",
    "every_event": "events",
    "request_for": "requests",
    "script": "models",
}


@functools.cache
def _modules_by_name() -> Mapping[str, str]:
    """Return a mapping from each exported name to the module that defines the name."""
    from delf.hookspecs import HOOKS  # late: pytest imports this package in every run

    suites = {f"{spec.kind.title()}Contract": f"contracts.{spec.kind}" for spec in HOOKS.values()}
    return suites | _OTHERS


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_modules_by_name())
    if name.startswith("__") or name not in _modules_by_name():
        raise AttributeError(f"module 'delf.testing' has no attribute {name!r}")
    module = importlib.import_module(f"delf_devkit.testing.{_modules_by_name()[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_modules_by_name())
