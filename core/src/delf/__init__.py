"""delf: a task in plain words becomes a short script that calls your tools, safely.

Every public name is imported on first use, so that ``import delf`` stays quick. The names here are
the contracts for plugins. Installed plugins give further ones by entry points: the engine
``from delf import Agent``, a connection ``from delf import Tickets``.
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
        UnrecordedEventError,
    )
    from delf.llm import LLMConfig
    from delf.packages import exported  # pyright: ignore[reportMissingModuleSource]
    from delf.packages.exported import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary, reportMissingModuleSource]
    from delf.protocols.approval import (
        AlreadyDone,
        Answered,
        ApprovalRequest,
        Approved,
        ChangesRequested,
        Edited,
        Rejected,
    )
    from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
    from delf.tools.action import Action, action
    from delf.tools.connection import Connection
    from delf.tools.context import CallContext
    from delf.tools.function import Tool, tool

_MODULE_OF_NAME: Final = {
    "Action": "delf.tools.action",
    "Allowed": "delf.protocols.connection",
    "Answered": "delf.protocols.approval",
    "ApprovalRequest": "delf.protocols.approval",
    "Approved": "delf.protocols.approval",
    "NeedsApproval": "delf.protocols.connection",
    "CallContext": "delf.tools.context",
    "Connection": "delf.tools.connection",
    "Edited": "delf.protocols.approval",
    "Verdict": "delf.protocols.connection",
    "LLMConfig": "delf.llm",
    "Refused": "delf.protocols.connection",
    "Rejected": "delf.protocols.approval",
    "ChangesRequested": "delf.protocols.approval",
    "AlreadyDone": "delf.protocols.approval",
    "ProposedCall": "delf.protocols.connection",
    "Tool": "delf.tools.function",
    "action": "delf.tools.action",
    "tool": "delf.tools.function",
}

__all__ = [
    "Action",
    "AgentConfirmationError",
    "AgentStateError",
    "Allowed",
    "AlreadyDone",
    "Answered",
    "ApprovalRejectedError",
    "ApprovalRequest",
    "Approved",
    "BudgetExceededError",
    "CallContext",
    "ChangesRequested",
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
    "SandboxExecutionError",
    "SandboxLimitError",
    "SandboxUnavailableError",
    "TaskStoppedError",
    "TaskTimeoutError",
    "Tool",
    "ToolDefinitionError",
    "ToolException",
    "ToolExecutionError",
    "ToolRefusedError",
    "UnknownRequestError",
    "UnknownTaskError",
    "UnrecordedCallError",
    "UnrecordedEventError",
    "Verdict",
    "__version__",
    "action",
    "tool",
]
if TYPE_CHECKING:
    __all__ += exported.__all__


def _warn_of_namesake() -> None:
    """Warn if the unrelated package ``delf`` is installed in the same folder as this package."""
    from delf.packages import namesake

    if namesake.is_installed_beside(__file__):
        import warnings

        # Level 3 shows the line that imports delf. Level 2 would show the call in this module.
        warnings.warn(f"{namesake.WARNING}: {namesake.REMEDY}", stacklevel=3)


_warn_of_namesake()


def _load_public_name(name: str) -> Any:
    """Import a public name, and store the object in this module so that it is imported once."""
    if name in _MODULE_OF_NAME:
        value = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
    elif name in __all__:  # an error class: these are too many to list in _MODULE_OF_NAME
        value = getattr(importlib.import_module("delf.errors"), name)
    else:
        value = _import_from_plugin(name)  # raises AttributeError for other names
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # a checker that saw __getattr__ would accept any name
    __getattr__ = _load_public_name


def _import_from_plugin(name: str) -> Any:
    """Return a public name that an installed plugin exports; raise AttributeError for others."""
    exports = list(__all__)
    # Tools that inspect modules ask for private names. No plugin exports these names, so such a
    # request does not discover the plugins.
    if not name.startswith("_"):
        from delf.packages.official import packages
        from delf.plugins.host import PluginHost

        with contextlib.suppress(AttributeError):
            return PluginHost.discover().load_export(name)
        exports += packages("exports")
    from delf.errors import did_you_mean

    raise AttributeError(f"module 'delf' has no attribute {name!r}{did_you_mean(name, exports)}")


def __dir__() -> list[str]:
    return sorted(__all__)
