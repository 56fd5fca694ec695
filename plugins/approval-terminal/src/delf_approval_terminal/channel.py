"""The approval channel ``terminal``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from delf.protocols.approval import ApprovalRequest, Approved, Decision, Edited, Rejected, Settled
from delf_approval_terminal.edit import parse_arguments, parse_value
from delf_approval_terminal.lines import LineCutError, Terminal
from delf_approval_terminal.render import (
    escape,
    fold,
    help_text,
    request_text,
    style,
    value_lines,
)
from delf_approval_terminal.turns import Turns

_PROMPT: Final = "> "
_RESULT: Final = "what it returned, as JSON (empty for null): "
_CUT: Final = "that line was longer than a terminal can take; nothing was changed"

# A process has one terminal, whatever the number of its agents and event loops.
_TURNS: Final = Turns()


class TerminalChannel:
    """Implements :class:`delf.protocols.approval.ApprovalChannel`.

    Requests are shown one after another. Waiting for an answer blocks no other task.
    """

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """What the person at the terminal says; None where there is no terminal."""
        async with _TURNS.turn():
            with Terminal.standard() as terminal:
                if terminal is None:
                    return None
                try:
                    decision = await _Question(terminal, request).ask()
                except asyncio.CancelledError:
                    terminal.write(f"\n{style('no answer is needed any more', 'dim')}\n")
                    raise
                terminal.write(f"{_outcome(decision)}\n")
                return decision


class _Question:
    """One request on a terminal, until it is decided."""

    def __init__(self, terminal: Terminal, request: ApprovalRequest) -> None:
        self._terminal = terminal
        self._request = request
        self._arguments: Mapping[str, Any] = dict(request.arguments)
        self._edited = False
        self._is_call = request.code is None and not request.unsettled

    async def ask(self) -> Decision:
        self._terminal.forget_typed()
        self._show()
        while True:
            answer = await self._line(_PROMPT)
            decision = await self._take("r" if answer is None else answer, ended=answer is None)
            if decision is not None:
                return decision

    async def _take(self, answer: str, *, ended: bool) -> Decision | None:
        """The decision that an answer means, or None to ask on."""
        match answer.lower():
            case "a" | "y" | "yes" | "approve":
                return Edited(arguments=self._arguments) if self._edited else Approved()
            case "t" | "task" if self._is_call and not self._edited:
                return Approved(remember="task")
            case "s" | "session" if self._is_call and not self._edited:
                return Approved(remember="session")
            case "r" | "n" | "no" | "reject":
                reason = None if ended else await self._line("reason (may be empty): ")
                return Rejected(reason=reason or "rejected on the terminal")
            case "h" | "happened" if self._request.unsettled:
                return await self._settle()
            case "e" | "edit" if self._is_call:
                await self._edit()
                self._show()
            case "v" | "view":
                self._show(whole=True)
            case _:
                self._terminal.write(f"{help_text(self._request)}\n")
        return None

    def _show(self, *, whole: bool = False) -> None:
        text = request_text(
            self._request,
            self._arguments,
            width=self._terminal.width,
            edited=self._edited,
            waiting=_TURNS.waiting,
            whole=whole,
        )
        self._terminal.write(f"\n{text}")

    async def _line(self, prompt: str) -> str | None:
        while True:
            try:
                return await self._terminal.read(prompt)
            except LineCutError:
                self._complain(_CUT)

    async def _settle(self) -> Settled | None:
        """What the call returned when it happened; None at Ctrl-D, to ask on."""
        while (typed := await self._line(_RESULT)) is not None:
            try:
                return Settled(result=json.loads(typed or "null"))
            except (ValueError, RecursionError):
                self._complain('write JSON, with text in "quotes"')
        self._show()
        return None

    async def _edit(self) -> None:
        """Change arguments until an empty line, or Ctrl-D."""
        while True:
            names = list(self._arguments)
            for number, name in enumerate(names, 1):
                first = value_lines(self._arguments[name], whole=False)[0]
                line = next(fold(f"{number} {escape(name)} = {first}", self._terminal.width - 3))
                self._terminal.write(f"  {line}\n")
            choice = await self._line("number or name, * for all at once, empty when done: ")
            if not choice:
                return
            name = _chosen(choice, names)
            if choice == "*":
                await self._edit_all()
            elif name is None:
                self._complain(f"there is no argument {escape(choice)!r}")
            else:
                await self._edit_one(name)

    async def _edit_one(self, name: str) -> None:
        typed = await self._line(f"{escape(name)} = ")
        if not typed:
            return
        try:
            value = parse_value(typed, self._arguments[name])
        except ValueError as error:
            self._complain(str(error))
        else:
            self._arguments = {**self._arguments, name: value}
            self._edited = True

    async def _edit_all(self) -> None:
        typed = await self._line("arguments = ")
        if not typed:
            return
        try:
            self._arguments = parse_arguments(typed)
            self._edited = True
        except ValueError as error:
            self._complain(str(error))

    def _complain(self, text: str) -> None:
        self._terminal.write(f"{style(text, 'yellow')}\n")


def _chosen(choice: str, names: list[str]) -> str | None:
    if choice in names:
        return choice
    if choice.isdecimal() and 1 <= int(choice) <= len(names):
        return names[int(choice) - 1]
    return None


def _outcome(decision: Decision) -> str:
    match decision:
        case Approved(remember="task"):
            return style("approved for this task", "green")
        case Approved(remember="session"):
            return style("approved for this session", "green")
        case Approved():
            return style("approved", "green")
        case Settled():
            return style("it did happen; it is not made again", "green")
        case Edited():
            return style("approved as edited", "green")
        case _:
            return style("rejected", "red")
