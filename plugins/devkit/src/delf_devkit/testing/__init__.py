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

Every name here is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delf_devkit.testing.approvals import ScriptedApprovals
    from delf_devkit.testing.contracts.approval import ApprovalContract, Shown
    from delf_devkit.testing.contracts.command import CommandContract
    from delf_devkit.testing.contracts.connection import Call, ConnectionContract
    from delf_devkit.testing.contracts.conversation import ConversationContract
    from delf_devkit.testing.contracts.embedder import EmbedderContract
    from delf_devkit.testing.contracts.formats import FormatContract
    from delf_devkit.testing.contracts.journal import JournalContract
    from delf_devkit.testing.contracts.memory import MemoryContract
    from delf_devkit.testing.contracts.model import ModelContract
    from delf_devkit.testing.contracts.observer import ObserverContract
    from delf_devkit.testing.contracts.plugin import PluginContract
    from delf_devkit.testing.contracts.prefilter import PrefilterContract
    from delf_devkit.testing.contracts.sandbox import SandboxContract
    from delf_devkit.testing.contracts.shared_journal import SharedJournalContract
    from delf_devkit.testing.contracts.strategy import StrategyContract
    from delf_devkit.testing.contracts.tools import ToolsContract
    from delf_devkit.testing.events import every_event
    from delf_devkit.testing.hosts import TestHost
    from delf_devkit.testing.models import ScriptedModel, script
    from delf_devkit.testing.project import DelfProject, Outcome
    from delf_devkit.testing.requests import request_for
    from delf_devkit.testing.tasks import ScriptedTask

_HOMES: Final = {
    "ApprovalContract": "contracts.approval",
    "Call": "contracts.connection",
    "CommandContract": "contracts.command",
    "ConnectionContract": "contracts.connection",
    "ConversationContract": "contracts.conversation",
    "DelfProject": "project",
    "EmbedderContract": "contracts.embedder",
    "FormatContract": "contracts.formats",
    "JournalContract": "contracts.journal",
    "MemoryContract": "contracts.memory",
    "ModelContract": "contracts.model",
    "ObserverContract": "contracts.observer",
    "Outcome": "project",
    "PluginContract": "contracts.plugin",
    "PrefilterContract": "contracts.prefilter",
    "SandboxContract": "contracts.sandbox",
    "ScriptedApprovals": "approvals",
    "ScriptedModel": "models",
    "ScriptedTask": "tasks",
    "SharedJournalContract": "contracts.shared_journal",
    "Shown": "contracts.approval",
    "StrategyContract": "contracts.strategy",
    "TestHost": "hosts",
    "ToolsContract": "contracts.tools",
    "every_event": "events",
    "request_for": "requests",
    "script": "models",
}

__all__ = [
    "ApprovalContract",
    "Call",
    "CommandContract",
    "ConnectionContract",
    "ConversationContract",
    "DelfProject",
    "EmbedderContract",
    "FormatContract",
    "JournalContract",
    "MemoryContract",
    "ModelContract",
    "ObserverContract",
    "Outcome",
    "PluginContract",
    "PrefilterContract",
    "SandboxContract",
    "ScriptedApprovals",
    "ScriptedModel",
    "ScriptedTask",
    "SharedJournalContract",
    "Shown",
    "StrategyContract",
    "TestHost",
    "ToolsContract",
    "every_event",
    "request_for",
    "script",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'delf.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"delf_devkit.testing.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
