"""Detection of actions that a script shows instead of calling.

Monty formats a function as a text with its name; in CPython, delf's actions raise an error instead.
So a text with an action's internal name comes from an action that was not called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from delf_sandbox.guest.misuse import misuse_message
from delf_sandbox_monty.lowering import method_name

_INTERNAL_PREFIX: Final = "__delf_"
_PARTS_OF_INTERNAL_NAMES: Final = (_INTERNAL_PREFIX, " external>")
_TYPE_NAME: Final = re.compile(r"__delf_tool_(\w+?)__")


def type_name(connection: str) -> str:
    """Return the name of a connection's type in Monty; no script has such a name by chance."""
    return f"__delf_tool_{connection}__"


def replace_type_names(text: str) -> str:
    """Replace the type name of each connection in Monty's error text by the connection's name."""
    return _TYPE_NAME.sub(r"\1", text) if _INTERNAL_PREFIX in text else text


class UncalledTools:
    """Finds actions and connections that a script outputs instead of calling them.

    An example is ``print(mail.read)`` instead of ``print(await mail.read())``.

    Args:
        tools: A mapping from the name of each connection or plain tool to its actions; a plain tool
            has none.
    """

    def __init__(self, tools: Mapping[str, Sequence[str]]) -> None:
        # The text that Monty shows for each connection, plain tool and action, such as
        # ``__delf_mail__send``, mapped to the name in the script and the actions of a connection.
        self._tool_by_shown_text: dict[str, tuple[str, Sequence[str]]] = {}
        for name, methods in tools.items():
            shown_text = type_name(name) if methods else f"<function '{name}' external>"
            self._tool_by_shown_text[shown_text] = (name, methods)
            for method in methods:
                self._tool_by_shown_text[method_name(name, method)] = (f"{name}.{method}", ())
        # The longest first, because the pattern takes the first text that fits.
        shown_texts = sorted(self._tool_by_shown_text, key=len, reverse=True)
        # Finds such a text in what a script outputs.
        self._pattern: re.Pattern[str] | None = None
        if shown_texts:
            self._pattern = re.compile("|".join(map(re.escape, shown_texts)))

    def raise_if_in(self, value: Any) -> None:
        """Raise if a string in a value contains the ``repr`` of an action or connection.

        The script then forgot to call the action, as in ``print(mail.read)``.

        Raises:
            TypeError: If a string contains such a ``repr``. The message says which call to write.
        """
        if (message := self.error_message(value)) is not None:
            raise TypeError(message)

    def raise_if_in_file(self, data: bytes) -> None:
        """Raise if the content of a file contains the ``repr`` of an action or connection.

        The script then forgot to call the action, as in ``file.write(mail.read)`` instead of
        ``file.write(mail.read())``.

        Raises:
            TypeError: If the file contains such a ``repr``. The message says which call to write.
        """
        # A quick test, because a file can be large.
        if any(mark.encode() in data for mark in _PARTS_OF_INTERNAL_NAMES):
            self.raise_if_in(data.decode("utf-8", "replace"))

    def error_message(self, value: Any) -> str | None:
        """Return an error message if a text in a value has the internal name of a tool, else None.

        Monty formats an action or a connection as a text with its internal name. A script that
        has such a text used the tool without calling it, as in ``f"{files.read}"``.
        """
        if self._pattern is None:
            return None
        for text in _texts(value):
            # A cheap test before the pattern.
            if not any(part in text for part in _PARTS_OF_INTERNAL_NAMES):
                continue
            match = self._pattern.search(text)
            if match is not None:
                return misuse_message(*self._tool_by_shown_text[match[0]])
        return None


def _texts(value: Any) -> Iterable[str]:
    """Yield the texts in a nested value; shared parts are visited once."""
    waiting: list[Any] = [value]
    visited: set[int] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        # Only built-in types are tested, which is fast: a list may have millions of numbers.
        if not isinstance(item, (dict, list, tuple, set, frozenset)):
            continue
        members = cast("Collection[Any]", item)
        if id(members) in visited:
            continue
        visited.add(id(members))
        waiting += members
        if isinstance(members, dict):
            waiting += cast("dict[Any, Any]", members).values()
