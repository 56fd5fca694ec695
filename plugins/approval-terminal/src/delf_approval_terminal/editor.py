"""Changes the arguments of a call at a terminal, one after another."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from delf.errors import ToolRefusedError
from delf.protocols.approval import ApprovalRequest
from delf_approval_terminal.edit import parse_arguments, parse_value
from delf_approval_terminal.lines import Terminal
from delf_approval_terminal.render import escape, fold, value_part

_CHOOSE: Final = "number or name, * for all at once, empty when done: "


class Editor:
    """Asks which argument is to change, and to what, until nothing more is.

    What cannot be used is told and asked for again, so that the arguments always fit the call.

    Args:
        terminal: Where it asks.
        request: Whose arguments they are; it says whether new ones fit.
    """

    def __init__(self, terminal: Terminal, request: ApprovalRequest) -> None:
        self._terminal = terminal
        self._request = request
        self.arguments: Mapping[str, Any] = dict(request.arguments)

    @property
    def edited(self) -> bool:
        """True if anything differs from the request."""
        return dict(self.arguments) != dict(self._request.arguments)

    async def ask(self) -> None:
        """Ask until an empty line, or Ctrl-D."""
        while True:
            names = list(self.arguments)
            for number, name in enumerate(names, 1):
                self._list(f"{number} {escape(name)}", self.arguments[name])
            choice = await self._terminal.ask(_CHOOSE)
            if not choice:
                return
            name = _chosen(choice, names)
            if choice == "*":
                await self._change("arguments = ", parse_arguments)
            elif name is None:
                self._terminal.complain(f"there is no argument {escape(choice)!r}; * adds one")
            else:
                await self._change_one(name)

    def _list(self, label: str, value: Any) -> None:
        first = value_part(value, whole=False).lines[0]
        line = next(fold(f"{label} = {first}", self._terminal.width - 3))
        self._terminal.write(f"  {line}\n")

    async def _change_one(self, name: str) -> None:
        old = self.arguments[name]
        if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
            await self._change_in_editor(name, old)
            return
        what = "text" if isinstance(old, str) else "JSON"
        prompt = f"{escape(name)}, new value as {what}, empty to keep it: "
        await self._change(prompt, lambda typed: {**self.arguments, name: parse_value(typed, old)})

    async def _change_in_editor(self, name: str, old: Any) -> None:
        """Let the person's own editor change a value, until it fits or is left as it was."""
        text = old if isinstance(old, str) else json.dumps(old, ensure_ascii=False, indent=2)
        while True:
            try:
                typed = await asyncio.to_thread(click.edit, text, require_save=False)
            except click.ClickException as error:
                self._terminal.complain(escape(error.format_message()))
                return
            # Editors end the last line, which the value need not have.
            typed = text if typed is None else typed
            typed = typed if text.endswith("\n") else typed.removesuffix("\n")
            if typed == text:
                return
            try:
                new = typed if isinstance(old, str) else json.loads(typed)
                self.arguments = self._fitting({**self.arguments, name: new})
            except ValueError as error:
                self._terminal.complain(f"that is not JSON: {escape(str(error))}")
            except ToolRefusedError as error:
                self._terminal.complain(f"that does not fit: {escape(error.message)}")
            else:
                return
            again = await self._terminal.ask("edit again? y/n: ")
            if (again or "").lower() not in ("y", "yes"):
                return
            text = typed

    async def _change(self, prompt: str, read: Callable[[str], Mapping[str, Any]]) -> None:
        """Ask for a change until it can be used, or for an empty line to leave all as it is."""
        while typed := await self._terminal.ask(prompt):
            try:
                self.arguments = self._fitting(read(typed))
            except ValueError as error:
                self._terminal.complain(str(error))
            except ToolRefusedError as error:
                self._terminal.complain(f"that does not fit: {escape(error.message)}")
            else:
                return

    def _fitting(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments if self._request.fit is None else self._request.fit(arguments)


def _chosen(choice: str, names: list[str]) -> str | None:
    if choice in names:
        return choice
    if choice.isdecimal() and 1 <= int(choice) <= len(names):
        return names[int(choice) - 1]
    return None
