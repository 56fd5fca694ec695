# Generated: cd tests && python -m support.exported
from delf_devkit.testing.approvals import ScriptedApprovals
from delf_devkit.testing.contracts.approval import ApprovalContract, Shown
from delf_devkit.testing.contracts.command import CommandContract
from delf_devkit.testing.contracts.connection import Call, ConnectionContract
from delf_devkit.testing.contracts.conversation import ConversationContract
from delf_devkit.testing.contracts.embedder import EmbedderContract
from delf_devkit.testing.contracts.format import FormatContract
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
