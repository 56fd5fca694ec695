"""Reading lines from a person or a pipe."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delf.machine.folders import user_folder
from delf.machine.own_files import make_private_file
from delf_cli.errors import say

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_PROMPT: Final = "› "
_CONTINUATION_PROMPT: Final = "  "


def open_reader(commands: Mapping[str, str], history: Path) -> EditedLines | PipedLines:
    """Return a line editor if the program runs on a terminal, else a reader of plain lines."""
    if is_interactive() and sys.stderr.isatty():
        return EditedLines(commands, history)
    return PipedLines()


def is_interactive() -> bool:
    """Return whether the standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


class PipedLines:
    """Reads lines of the standard input in a thread. A line is read only when requested."""

    interactive = False

    def __init__(self) -> None:
        # Passes lines from the thread, which the first read() starts; None is the end of the input.
        self._queue: asyncio.Queue[str | None] | None = None
        # The number of lines that read() has requested and the thread has not yet read.
        self._requested_lines = threading.Semaphore(0)

    async def read(self) -> str | None:
        """Return the next line; None at the end of the input."""
        if self._queue is None:
            self._queue = asyncio.Queue()
            thread = threading.Thread(
                target=_read_lines,
                args=(asyncio.get_running_loop(), self._queue, self._requested_lines),
                name="delf-lines",
                daemon=True,
            )
            thread.start()
        # The thread reads no line ahead: the program itself may ask a question, whose answer is the
        # next line.
        self._requested_lines.release()
        return await self._queue.get()


def _read_lines(
    loop: asyncio.AbstractEventLoop,
    queue: asyncio.Queue[str | None],
    requested_lines: threading.Semaphore,
) -> None:
    """Read lines in a thread; put each line into a queue, and None at the end of the input.

    Args:
        loop: The event loop that uses the queue.
        queue: Gets the lines.
        requested_lines: Released once for each line to read, so that no line is read ahead.
    """
    encoding = "utf-8-sig"  # the first line may begin with a byte order mark
    while True:
        requested_lines.acquire()
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
    """A line editor with a history, completion of commands, and multi-line input.

    Args:
        commands: The commands to complete, with descriptions.
        history: The file that stores typed lines.
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
            key_bindings=_key_bindings(),
            multiline=True,  # _key_bindings() makes Enter submit nevertheless
            prompt_continuation=_CONTINUATION_PROMPT,
            style=Style.from_dict({"prompt": "bold ansicyan"}),
            enable_history_search=False,
            reserve_space_for_menu=4,
            output=create_output(sys.stderr),
        )

    async def read(self) -> str | None:
        """Return the next input; empty after Ctrl-C, None after Ctrl-D."""
        try:
            return await self._session.prompt_async()
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def _key_bindings() -> KeyBindings:
    """Create the key bindings.

    Enter submits. Alt-Enter, or Enter after a backslash, adds a line.
    """
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
    """Open the history file. If it is not writable, keep this session's lines in memory."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        make_private_file(path)
        with path.open("ab"):
            return FileHistory(path)
    except OSError as error:
        say("warning", f"what you type will not be remembered: {path}: {error.strerror}")
        return InMemoryHistory()


def history_file() -> Path:
    """Return the path of the file that stores typed lines."""
    return user_folder("data") / "chat_history"
