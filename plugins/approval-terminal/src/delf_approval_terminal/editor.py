"""Editing of a call's arguments at a terminal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, Final

import click

from delf.errors import ToolRefusedError
from delf.protocols.approval import ApprovalRequest
from delf.values.encoding import is_same_data
from delf_approval_terminal.lines import Terminal
from delf_approval_terminal.render import escape, fold, value_part

_CHOOSE: Final = "number or name, empty when done: "


class Editor:
    """Lets a person change the arguments of a call, one by one.

    An invalid value is reported and not applied, so the arguments are always valid.

    Args:
        terminal: The terminal.
        request: The request, which validates new arguments.
    """

    def __init__(self, terminal: Terminal, request: ApprovalRequest) -> None:
        self._terminal = terminal
        self._request = request
        self.arguments: Mapping[str, Any] = dict(request.arguments)
        self._invalid_inputs: dict[str, str] = {}  # by argument, to be edited again

    @property
    def is_edited(self) -> bool:
        """True if an argument differs from the request's."""
        return not is_same_data(self.arguments, self._request.arguments)

    async def ask(self) -> None:
        """Ask which argument to change, until an empty line or Ctrl-D."""
        while True:
            values = {**self.arguments}
            # A person may also change an optional argument that the call omits.
            values |= {k: v for k, v in self._request.defaults.items() if k not in values}
            names = list(values)
            for number, name in enumerate(names, 1):
                first = value_part(values[name], whole=False).lines[0]
                line = f"{number} {escape(name)} = {first}"
                self._terminal.write(f"  {next(fold(line, self._terminal.width - 3))}\n")
            choice = await self._terminal.ask(_CHOOSE)
            if not choice:
                return
            if choice.isdecimal() and 1 <= int(choice) <= len(names):
                choice = names[int(choice) - 1]
            if choice in values:
                await self._change(choice, values[choice])
            else:
                self._terminal.complain(f"there is no argument {escape(choice)!r}")

    async def _change(self, name: str, old: Any) -> None:
        """Let the person edit an argument.

        After an invalid text, the argument keeps its value, and the next edit starts with the
        invalid text.
        """
        is_text = isinstance(old, str)
        text = old if is_text else json.dumps(old, ensure_ascii=False, indent=2, default=str)
        start_text = self._invalid_inputs.get(name, text)
        try:
            typed = await self._read_value(name, start_text, "text" if is_text else "JSON")
            if typed is None or typed == text:
                self._invalid_inputs.pop(name, None)
                return
            self._invalid_inputs[name] = typed  # stays stored if the next lines raise an error
            changed = {**self.arguments, name: typed if is_text else json.loads(typed)}
            fit = self._request.fit
            self.arguments = changed if fit is None else fit(changed)
            del self._invalid_inputs[name]
        except (ValueError, RecursionError) as error:
            self._terminal.complain(f"that is not JSON: {escape(str(error))}")
        except ToolRefusedError as error:
            self._terminal.complain(f"that does not fit: {escape(error.message)}")
        except click.ClickException as error:  # the editor did not start
            self._terminal.complain(escape(error.format_message()))

    async def _read_value(self, name: str, text: str, kind: str) -> str | None:
        """Let the person edit a text, in the editor of ``VISUAL`` or ``EDITOR`` if one is set.

        Returns:
            The new text; None to keep the old value.
        """
        if not (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
            return await self._terminal.edit(f"{escape(name)}, as {kind}: ", text)
        typed = await asyncio.to_thread(click.edit, text, require_save=False)
        if typed is None or text.endswith("\n"):
            return typed
        return typed.removesuffix("\n")  # editors add a newline at the end
