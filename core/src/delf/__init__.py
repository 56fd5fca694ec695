"""delf: a task in plain words becomes a short script that calls your tools, safely.

Every public name is imported on first use, so that ``import delf`` stays quick. Installed plugins
give further ones: ``from delf import Gmail``.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from delf.errors import (
        AgentConfirmationError,
        AgentStateError,
        ApprovalRejectedError,
        BudgetExceededError,
        CodeGenerationError,
        ConfigurationError,
        ConnectionConfigurationError,
        ConnectionFileNotFoundError,
        ConnectionUnavailableError,
        DelfError,
        EnvironmentKeyError,
        LLMExecutionError,
        MemoryRetrievalError,
        MemorySetupError,
        ModelConfigurationError,
        OptionalDependencyError,
        PluginError,
        PrefilterError,
        ReplayMismatch,
        SandboxExecutionError,
        SandboxLimitError,
        SandboxUnavailableError,
        TaskStoppedError,
        TaskTimeoutError,
        ToolDefinitionError,
        ToolException,
        ToolExecutionError,
        ToolRefusedError,
        UnknownRequestError,
        UnknownTaskError,
        UnrecordedCallError,
    )
    from delf.llm import LLMConfig
    from delf.packages.exported import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary, reportMissingModuleSource]
    from delf.protocols.approval import AlreadyDone, ApprovalRequest, Approved, Edited, Rejected
    from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
    from delf.tools.action import Action, action
    from delf.tools.connection import Connection
    from delf.tools.context import CallContext
    from delf.tools.function import Tool, tool
    from delf_engine.agent import Agent
    from delf_engine.agent_context import plugin_context
    from delf_engine.config import AgentConfig
    from delf_engine.project.project import load_project
    from delf_engine.response import Response
    from delf_engine.views.records import StreamEvent
    from delf_engine.views.snapshot import StreamSnapshot
    from delf_engine.views.trace import Trace

_HOMES: Final = {
    "Action": "delf.tools.action",
    "Agent": "delf_engine.agent",
    "Allowed": "delf.protocols.connection",
    "ApprovalRequest": "delf.protocols.approval",
    "Approved": "delf.protocols.approval",
    "NeedsApproval": "delf.protocols.connection",
    "CallContext": "delf.tools.context",
    "Connection": "delf.tools.connection",
    "Edited": "delf.protocols.approval",
    "Verdict": "delf.protocols.connection",
    "AgentConfig": "delf_engine.config",
    "LLMConfig": "delf.llm",
    "Refused": "delf.protocols.connection",
    "Rejected": "delf.protocols.approval",
    "Response": "delf_engine.response",
    "AlreadyDone": "delf.protocols.approval",
    "StreamEvent": "delf_engine.views.records",
    "StreamSnapshot": "delf_engine.views.snapshot",
    "ProposedCall": "delf.protocols.connection",
    "Tool": "delf.tools.function",
    "Trace": "delf_engine.views.trace",
    "action": "delf.tools.action",
    "load_project": "delf_engine.project.project",
    "plugin_context": "delf_engine.agent_context",
    "tool": "delf.tools.function",
}

__all__ = [
    "Action",
    "Agent",
    "AgentConfig",
    "AgentConfirmationError",
    "AgentStateError",
    "Allowed",
    "AlreadyDone",
    "ApprovalRejectedError",
    "ApprovalRequest",
    "Approved",
    "BudgetExceededError",
    "CallContext",
    "CodeGenerationError",
    "ConfigurationError",
    "Connection",
    "ConnectionConfigurationError",
    "ConnectionFileNotFoundError",
    "ConnectionUnavailableError",
    "DelfError",
    "Edited",
    "EnvironmentKeyError",
    "LLMConfig",
    "LLMExecutionError",
    "MemoryRetrievalError",
    "MemorySetupError",
    "ModelConfigurationError",
    "NeedsApproval",
    "OptionalDependencyError",
    "PluginError",
    "PrefilterError",
    "ProposedCall",
    "Refused",
    "Rejected",
    "ReplayMismatch",
    "Response",
    "SandboxExecutionError",
    "SandboxLimitError",
    "SandboxUnavailableError",
    "StreamEvent",
    "StreamSnapshot",
    "TaskStoppedError",
    "TaskTimeoutError",
    "Tool",
    "ToolDefinitionError",
    "ToolException",
    "ToolExecutionError",
    "ToolRefusedError",
    "Trace",
    "UnknownRequestError",
    "UnknownTaskError",
    "UnrecordedCallError",
    "Verdict",
    "__version__",
    "action",
    "load_project",
    "plugin_context",
    "tool",
]


def _warn_of_namesake() -> None:
    from delf.packages import namesake

    if namesake.is_beside(__file__):
        import warnings

        warnings.warn(f"{namesake.TOLD}: {namesake.MENDED_BY}", stacklevel=3)


_warn_of_namesake()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name, "delf.errors" if name in __all__ else None)
    value = _exported(name) if home is None else getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _exported(name: str) -> Any:
    """A public name that an installed plugin gives."""
    if name[:1].isupper():  # others are asked for by tools that look at every module
        from delf.plugins.host import PluginHost

        with contextlib.suppress(AttributeError):
            return PluginHost.discover().exported(name)
    from delf.errors import did_you_mean

    raise AttributeError(f"module 'delf' has no attribute {name!r}{did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
