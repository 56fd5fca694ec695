"""The log of a command, on stderr."""

from __future__ import annotations

import logging
from collections.abc import Callable

from delf.errors import without_passwords
from delf_cli import errors


def log_to_stderr(redact: Callable[[str], str], *, debug: bool) -> None:
    """Log warnings to stderr, redacted and one line each.

    Args:
        redact: Redacts secrets in a text.
        debug: Whether to log all messages, with tracebacks.
    """
    root = logging.getLogger()
    level = logging.DEBUG if debug else logging.WARNING
    installed = next((each for each in root.handlers if isinstance(each, _StderrHandler)), None)
    if installed is None:
        root.addHandler(_StderrHandler(level, redact))
    else:
        # Keep the handler of an earlier call, because its emit() may be running: emit() calls
        # redact(), which may load the project, which calls this function.
        installed.setLevel(level)
        installed.redact = redact
    logging.captureWarnings(True)
    logging.getLogger("delf").setLevel(logging.DEBUG if debug else logging.NOTSET)


class _StderrHandler(logging.Handler):
    def __init__(self, level: int, redact: Callable[[str], str]) -> None:
        super().__init__(level)
        self.redact = redact

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "in_events", False):
            return  # the command itself writes the message, for example as an event of the task
        if self.level <= logging.DEBUG:
            text = f"{record.name}: {self.format(record)}"
        else:
            text = " ".join(record.getMessage().split())
            error = record.exc_info[1] if record.exc_info is not None else None
            if error is not None:
                text += f" ({type(error).__name__}: {error})"
        errors.say(record.levelname.lower(), self.redact(without_passwords(text)))
