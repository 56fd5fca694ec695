"""Error output of the program: one line on stderr, a hint, and an exit status."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Final

import click

from delf.errors import (
    BudgetExceededError,
    ConfigurationError,
    DelfError,
    EnvironmentKeyError,
    JournalUnavailableError,
    SandboxUnavailableError,
    TaskTimeoutError,
    UndecidedCallError,
    UnknownRequestError,
    without_passwords,
)
from delf.terminal import visible
from delf_cli import colours, streams
from delf_cli.json_encoding import encode_json

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNDECIDED: Final = 3
BROKEN_PIPE: Final = 128 + 13
INTERRUPTED: Final = 130
_COLOURS: Final = {"error": "red", "warning": "yellow", "hint": "cyan"}
# Hints for users of the command line, by error code; the errors' own hints are for Python.
_HINTS: Final = {
    JournalUnavailableError.code: "--journal none does the task and keeps nothing of it",
    SandboxUnavailableError.code: "delf doctor says which sandboxes work on this machine and why "
    "others do not",
    UnknownRequestError.code: "delf approvals list shows what waits",
    BudgetExceededError.code: "the setting budget_usd is the limit; delf resume ID --budget USD "
    "goes on with a task that the journal kept",
    TaskTimeoutError.code: "allow more time: the setting timeout, or --timeout SECONDS; delf "
    "resume ID --timeout SECONDS goes on with a task that the journal kept",
    UndecidedCallError.code: "resume the task where a person can be asked, as on a terminal; or "
    "say beforehand what to do with such calls: delf resume ID --settle again, or --settle done",
}
INDENT: Final = 2
"""The spaces before further lines of a message."""
_INTERRUPTED: Final = "interrupted"
TRACE: Final = "the task's trace"
"""The beginning of hints at the trace, which ``delf runs show`` prints."""
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


class InterruptedRunError(Exception):
    """A signal asked the program to stop, and all running work was stopped.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def exit_status(error: BaseException) -> int:
    """Return the exit status for an error."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, InterruptedRunError):
        return error.status
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    if isinstance(error, UndecidedCallError):
        return UNDECIDED
    return USAGE if isinstance(error, ConfigurationError) else FAILED


def report(
    error: BaseException,
    *,
    debug: bool = False,
    redact: Callable[[str], str] = str,
    hint_to_omit: str | None = None,
) -> int:
    """Print an error to stderr; return the exit status.

    Args:
        error: The raised exception, or the error of a task.
        debug: Whether to print the traceback.
        redact: Redacts secrets in a text to print.
        hint_to_omit: The beginning of a hint to omit, because the caller prints a better one.

    Returns:
        The exit status.
    """
    message, hint = _message_and_hint(error)
    try:
        if debug:
            trace = without_passwords("".join(traceback.format_exception(error)))
            click.echo(redact(trace), err=True, nl=False)
        # The user interrupted the program on purpose, so the message is not labelled as an error.
        label = "" if message == _INTERRUPTED else "error"
        say(label, redact(message))
        is_omitted = hint_to_omit is not None and (hint or "").startswith(hint_to_omit)
        if hint and not is_omitted:
            say("hint", redact(hint))
    except BrokenPipeError:
        streams.ignore_broken_pipe()
        return BROKEN_PIPE
    except OSError:  # such as a full disk: the exit status still reports the error
        streams.flush_or_drop()
    return exit_status(error)


def report_json(error: BaseException, *, redact: Callable[[str], str] = str) -> None:
    """Print an error to stdout as JSON, redacted by ``redact``."""
    message, hint = _message_and_hint(error)
    code = error.code if isinstance(error, DelfError) else None
    report = {"message": redact(message), "hint": redact(hint) if hint else None, "code": code}
    try:
        click.echo(encode_json({"error": report}))
    except OSError:
        streams.ignore_broken_pipe()


def _message_and_hint(error: BaseException) -> tuple[str, str | None]:
    """Return the text that the command line shows for an error, and the hint, if any."""
    if isinstance(error, DelfError):
        return error.message, hint_of(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return f"{_typed_command(error)} needs a command", f"{_typed_command(error)} --help"
    if isinstance(error, click.UsageError):
        return error.format_message(), f"{_typed_command(error)} --help"
    if isinstance(error, click.ClickException):
        return error.format_message(), None
    if isinstance(error, (KeyboardInterrupt, click.Abort, InterruptedRunError)):
        return _INTERRUPTED, None
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return f"{error.filename or 'the output'} cannot be written: {error.strerror}", None
    text = " ".join(without_passwords(str(error)).split())
    name = type(error).__name__
    return (
        f"unexpected {name}: {text}" if text else f"unexpected {name}",
        "this is a defect in delf or in a plugin; --debug shows where",
    )


def hint_of(error: DelfError) -> str | None:
    """Return an error's hint for the command line.

    The hint of an error may show Python code. If a command does the same, the command is returned
    instead.
    """
    # The default hint of this error is a command for the shell: export NAME=…
    if isinstance(error, EnvironmentKeyError) and (error.hint or "").startswith("export "):
        name = error.variable
        return f"delf keys set {name}, which asks for it and keeps it; or export {name}=…"
    hint = error.hint
    if hint == error.default_hint:
        hint = _HINTS.get(error.code, hint)
    if not hint:
        return hint
    return hint.replace(TRACE, "delf runs show", 1)


def _typed_command(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx is not None else "delf"


def say(label: str, message: str) -> None:
    """Print a labelled line to stderr: ``error: …``, ``hint: …``, ``warning: …``.

    Further lines of the message are indented, so that a text that the message quotes, such as a
    mail, cannot look like a line of delf's own, such as a hint.
    """
    head = ""
    head_width = 0
    if label:
        head = click.style(f"{label}:", fg=_COLOURS.get(label), bold=True) + " "
        head_width = len(f"{label}: ")
    text = visible(message).rstrip("\n")
    text = head + streams.wrap_text(text, indent=INDENT, head=head_width, stream=sys.stderr)
    click.echo(
        text,
        # While rich shows a live status, sys.stderr is rich's stream, which writes above the
        # status. With err=True, click would write to the terminal itself.
        file=sys.stderr,
        # By default, click looks up the choice in a context, which may not exist yet.
        color=colours.explicit_choice(),
    )
