"""Every error that delf raises, in one tree; ``docs/errors.md`` lists all with their codes.

Packages add errors of their own to the tree, such as the errors of a service.

An error carries data and never logs or draws. ``code`` is stable, ``hint`` says what to do next,
``for_model()`` is the text that a model may read. No message holds a secret.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self, cast

from delf.packages.official import how_to_install

if TYPE_CHECKING:
    from pathlib import Path

_MAX_FILES: Final = 5


class DelfError(Exception):
    """Base class of the errors that delf raises.

    Args:
        message: The problem and its location.
        hint: The suggested next step; the class's own hint when omitted.
        can_retry: Whether another script could succeed; the class's default when omitted. If False
            (an unreachable service, a missing permission), the task fails at once and the model is
            not asked again.
    """

    code: ClassVar[str] = "ERR-DELF-001"
    default_hint: ClassVar[str | None] = None
    default_can_retry: ClassVar[bool] = True

    def __init__(
        self, message: str, *, hint: str | None = None, can_retry: bool | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        self.can_retry = self.default_can_retry if can_retry is None else can_retry
        if self.hint:
            self.add_note(f"hint: {self.hint}")

    def advise(self, advice: str) -> Self:
        """Put advice in front of this error's hint, and return the error.

        Args:
            advice: The likeliest cause or next step; an empty text changes nothing.
        """
        old_hint = self.hint
        if advice and advice not in (old_hint or ""):
            self.hint = f"{advice}; {old_hint}" if old_hint else advice
            notes: list[str] = getattr(self, "__notes__", [])
            self.__notes__ = [note for note in notes if note != f"hint: {old_hint}"]
            self.add_note(f"hint: {self.hint}")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the error from its state, without ``__init__``, whose arguments differ by class.

        Every error can thus be pickled and copied. A process pool sends errors to its parent, and
        the parent would wait forever for an error that cannot be unpickled.
        """
        return _rebuilt, (type(self), self.args), self.__dict__

    def for_model(self) -> str:
        """Return the text that a model may read: the message, without codes or user hints."""
        return self.message

    def describe(self) -> str:
        """Return the error in one line for people: code, message and hint."""
        text = f"{self.code}: {self.message}"
        return f"{text} (hint: {self.hint})" if self.hint else text


def _rebuilt(kind: type[DelfError], arguments: tuple[Any, ...]) -> DelfError:
    """Create an error without calling ``__init__``; pickle then sets the error's attributes."""
    return kind.__new__(kind, *arguments)


class ConfigurationError(DelfError):
    """A file, variable, flag or argument that the user set cannot be used."""

    code = "ERR-CONFIG-001"
    default_can_retry = False


class UnknownKeywordError(ConfigurationError, TypeError):
    """A method of the agent was called with an unknown keyword."""

    code = "ERR-CONFIG-002"

    @classmethod
    def check(
        cls, method: Callable[..., Any], options: Iterable[str], known: Iterable[str]
    ) -> None:
        """Check the names that a method collected in its parameter ``**options``.

        Args:
            method: The method.
            options: The names of the collected keywords.
            known: The names that are allowed.

        Raises:
            UnknownKeywordError: For the first name that is not allowed.
        """
        allowed_names = list(known)
        for name in options:
            if name not in allowed_names:
                all_names = [*_declared_keywords(method), *allowed_names]
                suggestion = did_you_mean(name, all_names)
                raise cls(
                    f"{method.__name__}() has no keyword {name!r}{suggestion}",
                    hint=f"it takes: {', '.join(all_names)}",
                )


class FixedAttributeError(ConfigurationError, AttributeError):
    """A program set an unknown attribute, or changed an attribute or table that is fixed."""

    code = "ERR-CONFIG-003"


class ModelConfigurationError(ConfigurationError):
    """No language model is configured, or its name or settings are invalid."""

    code = "ERR-MODEL-001"
    default_hint = 'name a model: llm = "NAME" for the agent, in delf.toml, or --llm NAME'


class AgentConfirmationError(ConfigurationError):
    """``confirm`` or ``on_confirm`` has a value that cannot be used."""

    code = "ERR-AGENT-001"


class EnvironmentKeyError(ConfigurationError):
    """A required environment variable is not set."""

    code = "ERR-ENV-001"

    def __init__(self, message: str, *, variable: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or key_hint(variable))
        self.variable = variable


def key_hint(variable: str) -> str:
    """Return a shell command that sets an environment variable, as the hint of an error."""
    return f"export {variable}=…"


class ConnectionConfigurationError(ConfigurationError):
    """A connection's settings or permissions are invalid."""

    code = "ERR-CONN-001"


class ConnectionFileNotFoundError(ConfigurationError):
    """A file that a connection needs (credentials, a specification) does not exist."""

    code = "ERR-CONN-002"
    default_hint = (
        "put the file there, or correct its path; in delf.toml a relative path starts at the "
        "folder of delf.toml"
    )


class ToolDefinitionError(ConfigurationError):
    """A function cannot become a tool or an action as it is written."""

    code = "ERR-TOOL-002"


class OptionalDependencyError(ConfigurationError, ImportError):
    """A package that this feature needs is not installed."""

    code = "ERR-REQ-001"

    def __init__(self, message: str, *, package: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or how_to_install(package))
        self.package = package


class JournalUnavailableError(ConfigurationError):
    """The journal cannot be written, so no task can start."""

    chosen = False
    """True if the user chose the journal, so delf must not fall back to no journal."""

    is_outage: bool = True
    """True if the journal may work again later, with the same settings."""

    code = "ERR-JOURNAL-004"
    default_hint = (
        'resume an interrupted task when the journal works again; journal = "none" keeps nothing'
    )


class FolderNotTrustedError(ConfigurationError):
    """A folder has files that decide what delf does, and the user has not trusted them.

    Args:
        folder: The folder's real path.
        files: The files that decide what delf does. If the folder was trusted before, only the
            files that have changed since.
        changed: Whether the folder was trusted before.
    """

    code = "ERR-TRUST-001"

    def __init__(self, folder: Path, files: tuple[str, ...], *, changed: bool) -> None:
        file_list = ", ".join(files[:_MAX_FILES])
        if len(files) > _MAX_FILES:
            file_list += f" and {len(files) - _MAX_FILES} more"
        reason = "has changed since you trusted it" if changed else "is not trusted yet"
        quoted_folder = shlex.quote(str(folder))
        super().__init__(
            f"{folder} {reason}, so its files have no effect: {file_list}",
            hint=f"look at it with: delf trust {quoted_folder}; for one process "
            f"DELF_TRUST={quoted_folder}",
        )
        self.folder = folder
        self.files = files
        self.changed = changed


class KeyAddressError(ConfigurationError):
    """A key would be sent to an address from an untrusted source."""

    code = "ERR-TRUST-002"


class PluginError(ConfigurationError):
    """A plugin is missing, broken, incompatible or named twice."""

    code = "ERR-PLUGIN-001"
    default_hint = "delf plugins shows every plugin with its state"


class ConnectionUnavailableError(DelfError):
    """The service behind a connection does not answer or refuses the login."""

    code = "ERR-CONN-003"
    default_can_retry = False


class ToolExecutionError(DelfError):
    """Base class of the errors of a tool that failed while it ran.

    Programs catch this class. An author of tools raises :class:`ToolException`.
    """

    code = "ERR-TOOL-001"


class ToolException(ToolExecutionError):  # noqa: N818 - part of the public API
    """The error that tools raise to report a failure to the script that called them.

    Functions, actions and file formats may raise it. A script that does not catch the error fails.
    If no retry is left, the message is the task's answer.
    """

    code = "ERR-TOOL-004"


class OutcomeUnknownError(ToolExecutionError):
    """A change was sent and its answer was lost: the change may or may not have been made.

    Raise this error in a tool that cannot find out and must not make the change twice. A repeated
    call in the same task then needs approval, even if the action needs none.
    """

    code = "ERR-TOOL-006"


class TaskLimitError(ToolExecutionError):
    """A call would exceed a limit of its task, such as ``max_children``; other calls continue."""

    code = "ERR-TOOL-007"


class ToolRefusedError(DelfError):
    """The gate refused a call: unknown action, not allowed, or invalid arguments."""

    code = "ERR-TOOL-005"


class LLMExecutionError(DelfError):
    """A model call failed, and retries did not help.

    Args:
        message: The provider's message, without credentials.
        provider: The provider's name, such as ``acme``.
        status: The HTTP status, if the provider answered: 401 for a refused key, 402 for an empty
            account and 404 for an unknown model, even if the provider answered 400.
        too_long: Whether the prompt was too long for the model.
    """

    code = "ERR-LLM-001"
    default_can_retry = False

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status: int | None = None,
        too_long: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider
        self.status = status
        self.too_long = too_long
        """True if the prompt was too long for the model."""


class CodeGenerationError(DelfError):
    """The model's answer contained no code to run."""

    code = "ERR-LLM-002"
    default_hint = "try a stronger model, or say the task more concretely"


class PrefilterError(DelfError):
    """The prefilter that the user named failed to select tools."""

    code = "ERR-LLM-003"


class SandboxExecutionError(DelfError):
    """A script failed in the sandbox, and retries did not help."""

    code = "ERR-SANDBOX-001"


class SandboxUnavailableError(SandboxExecutionError):
    """No sandbox with sufficient isolation is available on this machine."""

    code = "ERR-SANDBOX-002"
    default_hint = "install another sandbox, or ask for a lower min_isolation"


class SandboxLimitError(SandboxExecutionError):
    """A script went over one of its limits.

    Args:
        message: The limit, and the value that exceeded it.
        limit: The limit's name: ``cpu``, ``memory``, ``output``, ``file``, ``processes``.
    """

    code = "ERR-SANDBOX-003"

    def __init__(self, message: str, *, limit: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit


class ApprovalRejectedError(DelfError):
    """A person or the policy rejected an action."""

    code = "ERR-APPROVAL-001"
    default_hint = (
        "the settings confirm, approval_mode and approvals decide which calls need approval, "
        "and who is asked; approval_timeout, how long a person may take"
    )


class UnknownRequestError(DelfError):
    """No request for approval with this id is pending."""

    code = "ERR-APPROVAL-002"
    default_hint = "get_pending_approvals() lists the requests that wait"


class MemorySetupError(ConfigurationError):
    """A memory store could not be opened."""

    code = "ERR-MEM-001"


class MemoryRetrievalError(DelfError):
    """A search in a memory store failed."""

    code = "ERR-MEM-002"


class BudgetExceededError(DelfError):
    """The budget is exhausted, or the next model call would exceed it; that call was not made.

    Args:
        message: A sentence with the amounts, which the user sees.
        limit_usd: The budget.
        cost_usd: The cost so far.
        expected_usd: The expected cost of the call that was not made, if known.
    """

    code = "AGT-006"
    default_can_retry = False
    default_hint = (
        "the setting budget_usd is the limit; a task that the journal kept can be resumed with a "
        "larger one, and a running agent has reset_budget(limit)"
    )

    def __init__(
        self,
        message: str,
        *,
        limit_usd: float | None = None,
        cost_usd: float = 0.0,
        expected_usd: float | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.limit_usd = limit_usd
        self.cost_usd = cost_usd
        self.expected_usd = expected_usd


class TaskTimeoutError(DelfError):
    """A task reached its timeout; the task and its sandbox were stopped."""

    code = "ERR-AGENT-002"
    default_hint = (
        "allow more time with the setting timeout; a task that the journal kept can be resumed "
        "with more time"
    )


class UnknownTaskError(DelfError):
    """No task has this id."""

    code = "ERR-AGENT-003"


class AgentStateError(DelfError):
    """The agent is stopped, or the call would block the agent's own event loop."""

    code = "ERR-AGENT-004"


class TaskStoppedError(DelfError):
    """A task was cancelled: by Ctrl-C, ``agent.cancel()``, or the end of its agent."""

    code = "ERR-AGENT-005"
    default_hint = "the task's trace lists its changes"
    default_can_retry = False


class TaskLeftError(DelfError):
    """A task stopped before its end; its journal has no final event, so it can be resumed."""

    code = "ERR-AGENT-006"


class ReplayMismatch(TaskLeftError):  # noqa: N818 - a finding, not a fault
    """A resumed task differs from its journal."""

    code = "ERR-REPLAY-001"


class UndecidedCallError(TaskLeftError):
    """An interrupted call has an unknown outcome, and nobody could decide about the call."""

    code = "ERR-APPROVAL-003"
    default_hint = (
        "resume the task where a person can be asked; or say beforehand what to do with such "
        'calls: settle="again", or settle="done"'
    )


class JournalFailedError(DelfError):
    """A journal raised an exception of its own, such as an error of its database client."""

    is_outage: bool = True
    """True if the journal may work again later, with the same settings."""

    code = "ERR-JOURNAL-006"
    default_hint = (
        "the error comes from what keeps the events, such as a database: it has the reason"
    )


class UnreadableEventError(DelfError):
    """A stored event is damaged, or was written by a newer delf.

    The task of this event cannot be read; all other tasks can be read.
    """

    code = "ERR-JOURNAL-007"
    default_hint = "all other tasks can be read; an older backup may have this one"


class UnrecordedEventError(TaskLeftError):
    """The journal did not store a step of a task; the task can be resumed."""

    code = "ERR-JOURNAL-008"
    default_hint = "the task stopped there; resume it when the journal can be written"


class UnrecordedCallError(TaskLeftError):
    """A call was made, but the journal did not store its result; the task can be resumed."""

    code = "ERR-JOURNAL-005"
    default_hint = "the task stopped there; resume it when the journal can be written"


# Matches a URL with a password, from ``://`` to the ``@`` after the password.
#
# The password may contain a slash. A password that has been redacted already does not match.
_PASSWORD: Final = re.compile(r"(://[^\s/:@]*:)(?!\[redacted\]@)[^\s@]+@")
_WORD: Final = re.compile(r"\S+")


class ForeignError(Exception):
    """A replacement for an exception whose text contains a password.

    The message is the traceback of that exception, with the password removed.
    """


def without_passwords(text: str) -> str:
    """Replace the passwords in the URLs of a text."""
    if "://" not in text or "@" not in text:
        return text
    return _WORD.sub(_word_without_passwords, text)


def _word_without_passwords(word: re.Match[str]) -> str:
    # A password ends with "@", so the text after the last "@" has none. The pattern would take
    # quadratic time there: after each "://", it would read to the end in search of an "@".
    start, at_sign, text_without_passwords = word.group().rpartition("@")
    return _PASSWORD.sub(r"\1***@", start + at_sign) + text_without_passwords


def describe_exception(error: BaseException) -> str:
    """Return the type and message of a library's exception, without passwords.

    For an exception group, return the descriptions of its members. If the message is empty or
    ``str(error)`` fails, return only the type.
    """
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return "; ".join(map(describe_exception, members))
    try:
        text = without_passwords(str(error))
    except Exception:  # ``__str__`` of a library's class may raise anything
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def raise_because(error: DelfError, cause: BaseException) -> NoReturn:
    """Raise an error of delf whose cause is an exception of a plugin or library.

    Libraries quote the URL to which they connect. A cause whose traceback has a URL with a password
    becomes a :class:`ForeignError`, so that no log and no error tracker shows the password.

    Args:
        error: The error.
        cause: The exception.
    """
    import traceback

    formatted = "".join(traceback.format_exception(cause))
    safe = without_passwords(formatted)
    if safe == formatted:
        raise error from cause
    try:
        raise error from ForeignError(safe.rstrip())
    finally:
        error.__context__ = None  # else Python shows the original exception, with its password


def _declared_keywords(method: Callable[..., Any]) -> list[str]:
    """Return the names of a method's parameters, without ``*args`` and ``**options``."""
    import inspect

    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(method).parameters.values()
    return [each.name for each in parameters if each.kind not in variadic]


# Comparing long texts is slow, and a longer text is not a mistyped name.
_MAX_COMPARED: Final = 2000
_LONGEST_COMPARED: Final = 100
# Names that other libraries use for delf's options; a comparison of letters would not find them.
_SYNONYMS: Final = {
    **dict.fromkeys(("model", "model_name", "model_id", "language_model"), "llm"),
    **dict.fromkeys(("instructions", "system", "system_message", "prompt"), "system_prompt"),
    **dict.fromkeys(("budget", "max_cost", "cost_limit", "max_budget"), "budget_usd"),
    **dict.fromkeys(("retries", "max_retries"), "retry_count"),
    **dict.fromkeys(("functions", "toolsets", "connections"), "tools"),
    **dict.fromkeys(("output_type", "result_type", "response_model", "response_format"), "output"),
    **dict.fromkeys(("on_approval", "approval_callback"), "on_confirm"),
    **dict.fromkeys(("conversation", "history"), "chat"),
}


def check_one_of(subject: str, value: object, allowed: Iterable[str]) -> None:
    """Raise for a value that is not one of the allowed strings.

    Args:
        subject: The name of the value, for error messages.
        value: The value.
        allowed: The allowed strings.

    Raises:
        ConfigurationError: If the value is not allowed; the error lists the allowed strings.
    """
    words = list(allowed)
    if isinstance(value, str) and value in words:
        return
    suggestion = did_you_mean(value, words) if isinstance(value, str) else ""
    raise ConfigurationError(
        f"{subject} is {value!r}{suggestion}", hint=f"one of: {', '.join(words)}"
    )


def check_above_zero(subject: str, value: object) -> None:
    """Raise for a number, such as seconds or a price, that is not above zero.

    Args:
        subject: The name of the value, for the message.
        value: The value.

    Raises:
        ConfigurationError: If the value is not a number above zero.
    """
    # ``not value > 0`` is True for NaN; ``value <= 0`` would be False.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigurationError(f"{subject} is {value!r}", hint="give a number above 0")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a mistyped name, to append to the end of a message.

    Args:
        name: The name that the user wrote.
        known: The names that exist.

    Returns:
        ``"; did you mean 'x'?"``, or an empty string when nothing is close.
    """
    candidates = list(islice(known, _MAX_COMPARED))
    synonym = _SYNONYMS.get(name.lower())
    if synonym in candidates:
        return f"; did you mean {synonym!r}?"
    close_names = difflib.get_close_matches(name[:_LONGEST_COMPARED], candidates, n=1, cutoff=0.6)
    if close_names:
        return f"; did you mean {close_names[0]!r}?"
    return ""


def __getattr__(name: str) -> Any:
    """Import an error class that a plugin exports, such as ``SQLSchemaError``."""
    if not name.endswith("Error"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The package imports the plugin that exports the name; ``import delf`` here would be circular.
    return getattr(sys.modules["delf"], name)
