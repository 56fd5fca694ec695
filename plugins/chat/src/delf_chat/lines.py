"""Reading lines from a person or a pipe."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from delf.machine.own_files import make_private_file
from delf_cli.errors import say

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_PROMPT: Final = "› "
_MORE: Final = "  "


class LineReader(Protocol):
    """A source of tasks."""

    interactive: bool

    async def read(self) -> str | None:
        """Return the next text, which may have several lines.

        Empty after Ctrl-C, None at the end.
        """
        ...


def open_reader(commands: Mapping[str, str], history: Path) -> LineReader:
    """Return a line editor on a terminal, plain lines elsewhere."""
    if is_interactive() and sys.stderr.isatty():
        return EditedLines(commands, history)
    return PipedLines()


def is_interactive() -> bool:
    """Return whether the standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


class PipedLines:
    """Reads lines of the standard input in a thread, one at a time."""

    interactive = False

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] | None = None
        self._wanted = threading.Semaphore(0)

    async def read(self) -> str | None:
        """Return the next line; None at the end."""
        if self._queue is None:
            self._queue = asyncio.Queue()
            feeding = (asyncio.get_running_loop(), self._queue, self._wanted)
            threading.Thread(target=_feed, args=feeding, name="delf-lines", daemon=True).start()
        self._wanted.release()
        return await self._queue.get()


def _feed(
    loop: asyncio.AbstractEventLoop,
    queue: asyncio.Queue[str | None],
    wanted: threading.Semaphore,
) -> None:
    encoding = "utf-8-sig"  # the first line may begin with a byte order mark
    while True:
        wanted.acquire()
        try:
            data = b"" if sys.stdin is None else sys.stdin.buffer.readline()
        except OSError as error:
            say("error", f"the standard input cannot be read: {error.strerror}")
            data = b""
        line = data.decode(encoding, "replace") if data else None
        encoding = "utf-8"
        try:
            loop.call_soon_threadsafe(queue.put_nowait, line)
        except RuntimeError:  # the loop was closed: nobody reads any more
            return


class EditedLines:
    """A line editor: history, completion of commands, several lines.

    Args:
        commands: The completable commands, with descriptions.
        history: The file that remembers what was typed.
    """

    interactive = True

    def __init__(self, commands: Mapping[str, str], history: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.output import create_output
        from prompt_toolkit.styles import Style

        words = WordCompleter(list(commands), meta_dict=dict(commands), sentence=True)
        self._session: PromptSession[str] = PromptSession(
            [("class:prompt", _PROMPT)],
            completer=words,
            complete_while_typing=True,
            history=_history(history),
            key_bindings=_keys(),
            multiline=True,  # Enter is bound to "done"; see _keys
            prompt_continuation=_MORE,
            style=Style.from_dict({"prompt": "bold ansicyan"}),
            enable_history_search=False,
            reserve_space_for_menu=4,
            output=create_output(sys.stderr),
        )

    async def read(self) -> str | None:
        """Return the next text; empty after Ctrl-C, None at Ctrl-D."""
        try:
            return await self._session.prompt_async()
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def _keys() -> KeyBindings:
    """Make key bindings: Enter submits; Alt-Enter, or Enter after a backslash, adds a line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    def another_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    keys.add("enter")(enter)
    keys.add("escape", "enter")(another_line)
    return keys


def _history(path: Path) -> History:
    """Read the history file; use only this session's lines if it is not writable."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        make_private_file(path)
        with path.open("ab"):
            return FileHistory(path)
    except OSError as error:
        say("warning", f"what you type will not be remembered: {path}: {error.strerror}")
        return InMemoryHistory()


def history_file() -> Path:
    """Return the file of earlier lines."""
    from platformdirs import user_data_path

    return user_data_path("delf") / "chat_history"
