"""The approval channel ``terminal``."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from abc import ABC, abstractmethod
from typing import Final

from delf.errors import DelfError
from delf.events import Remember
from delf.protocols.approval import (
    NO_REASON,
    AlreadyDone,
    Answered,
    ApprovalRequest,
    Approved,
    ChangesRequested,
    Decision,
    Edited,
    Rejected,
)
from delf.protocols.facts import value_text
from delf_approval_terminal.editor import Editor
from delf_approval_terminal.lines import CtrlCError, Terminal, has_terminal
from delf_approval_terminal.render import escape, help_text, request_text, style
from delf_approval_terminal.terminal_lock import TerminalLock

_PROMPT: Final = "> "
_RESULT: Final = "what it returned, as JSON (empty for null): "

# A process has one terminal, whatever the number of its agents and event loops.
TERMINAL_LOCK: Final = TerminalLock()


class TerminalChannel:
    """Implements :class:`delf.protocols.approval.ApprovalChannel` and ``SupportsQuestions``.

    Requests are shown one after another. Waiting for an answer blocks no other task.
    """

    def can_ask(self) -> bool:
        """Return whether there is a terminal."""
        return has_terminal()

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Ask the person at the terminal for a decision; None if there is no terminal."""
        return await self._ask_person(request, _Approval)

    async def answer(self, request: ApprovalRequest) -> Decision | None:
        """Ask the person at the terminal a script's question; None if there is no terminal."""
        return await self._ask_person(request, _Question)

    async def _ask_person(
        self, request: ApprovalRequest, request_class: type[_Approval | _Question]
    ) -> Decision | None:
        async with TERMINAL_LOCK.hold():
            with Terminal.standard() as terminal:
                if terminal is None:
                    return None
                try:
                    decision = await request_class(terminal, request).ask()
                except asyncio.CancelledError:
                    terminal.write(f"\n{style('no answer is needed any more', 'dim')}\n")
                    raise
                terminal.write(f"{_outcome(decision)}\n")
                return decision


class _Request(ABC):
    """A request at a terminal, shown until a person decides."""

    def __init__(self, terminal: Terminal, request: ApprovalRequest) -> None:
        self._terminal = terminal
        self._request = request
        self._editor = Editor(terminal, request)

    async def ask(self) -> Decision:
        """Return the person's decision.

        Ctrl-C rejects the request. If the last request was also rejected by Ctrl-C, Ctrl-C
        interrupts the program instead.
        """
        # Keys typed before the question could approve a call that nobody has read.
        self._terminal.forget_typed()
        self._show_request()
        while True:
            try:
                decision = await self._ask_once()
            except CtrlCError:
                is_first_in_a_row = not TERMINAL_LOCK.interrupted
                if is_first_in_a_row:
                    TERMINAL_LOCK.interrupted = True
                    return Rejected()
                os.kill(os.getpid(), signal.SIGINT)
                continue  # a program that handles SIGINT and goes on still needs a decision
            TERMINAL_LOCK.interrupted = False
            if decision is not None:
                return decision

    async def _ask_once(self) -> Decision | None:
        answer = await self._terminal.ask(_PROMPT)
        input_ended = answer is None
        return await self._handle_answer("r" if input_ended else answer, input_ended=input_ended)

    @abstractmethod
    async def _handle_answer(self, answer: str, *, input_ended: bool) -> Decision | None:
        """Return the decision for a typed line; None if the person must be asked again.

        Args:
            answer: The typed line. If the input has ended, ``r``, which rejects the request.
            input_ended: Whether the input has ended, as after Ctrl-D.
        """

    async def _reject(self, *, input_ended: bool) -> Rejected:
        reason = None if input_ended else await self._terminal.ask("reason (may be empty): ")
        return Rejected(reason=reason or NO_REASON)

    def _show_request(self, *, whole: bool = False) -> None:
        text = request_text(
            self._request,
            self._editor.arguments,
            width=self._terminal.width,
            edited=self._editor.is_edited,
            waiting=TERMINAL_LOCK.waiting_count,
            whole=whole,
        )
        self._terminal.write(f"\n{text}")


class _Question(_Request):
    """A script's question at a terminal."""

    async def _handle_answer(self, answer: str, *, input_ended: bool) -> Decision | None:
        """Return the decision that answers the question; None if the person must be asked again."""
        question = self._request.question
        assert question is not None  # noqa: S101 - only questions come here
        is_free_text = question.answer == "text" and not question.options
        # A line that answers the question is not taken for a key: in a free text, any line is an
        # answer, even "r"; otherwise, "R" is an answer if an option has this name.
        is_answer = is_free_text or answer in question.options
        key = "" if is_answer else answer.lower()
        if input_ended or key in ("r", "reject"):
            return await self._reject(input_ended=input_ended)
        if key in ("v", "view"):
            self._show_request(whole=True)
            return None
        if answer in ("", "?"):
            self._terminal.say(help_text(self._request))
            return None
        options_by_number = {
            str(number): option for number, option in enumerate(question.options, 1)
        }
        # The answer "2" is the second option, unless an option is itself named "2".
        if answer in options_by_number and answer not in question.options:
            return Answered(options_by_number[answer])
        try:
            return Answered(question.read(answer))
        except DelfError as error:
            self._terminal.complain(f"{error.message}: {error.hint}")
            return None


class _Approval(_Request):
    """A request for approval at a terminal."""

    def __init__(self, terminal: Terminal, request: ApprovalRequest) -> None:
        super().__init__(terminal, request)
        # Only a new call can be edited, and only its approval can cover further calls.
        is_script = request.code is not None
        self._is_new_call = not is_script and not request.outcome_unknown

    async def _handle_answer(self, answer: str, *, input_ended: bool) -> Decision | None:
        """Return the decision about the call or script; None if the person must be asked again."""
        edited = self._editor.is_edited
        if self._is_new_call and not edited:
            # A and U approve every call of the action; t and u approve only the same call again.
            # A and t apply to this task; U and u apply until a person revokes the approval.
            match answer:
                case "A":
                    return await self._approve_action("task")
                case "U":
                    return await self._approve_action("until_revoked")
                case "t" | "task":
                    return Approved(remember="task")
                case "u":
                    return Approved(remember="until_revoked")
                case _:
                    pass
        match answer.lower():
            case "a" | "y" | "yes" | "approve":
                if edited:
                    return Edited(arguments=self._editor.arguments)
                return Approved()
            case "r" | "n" | "no" | "reject":
                return await self._reject(input_ended=input_ended)
            case "c" | "changes" if self._request.takes_changes:
                return await self._ask_changes()
            case "h" | "happened" if self._request.outcome_unknown:
                return await self._ask_result()
            case "e" | "edit" if self._is_new_call:
                await self._editor.ask()
                self._show_request()
            case "v" | "view":
                self._show_request(whole=True)
            case _:
                self._terminal.say(help_text(self._request))
        return None

    async def _approve_action(self, remember: Remember) -> Approved | None:
        """Approve every call of the action if the person confirms; otherwise, show the request."""
        when = "in this task" if remember == "task" else "from now on, until it is revoked"
        name = escape(self._request.action)
        prompt = f"approve every {name} {when}, whatever its arguments? y/n: "
        if (await self._terminal.ask(prompt) or "").lower() not in ("y", "yes"):
            self._show_request()
            return None
        return Approved(remember=remember, covers="action")

    async def _ask_changes(self) -> ChangesRequested | None:
        """Ask what the model should change; without an answer, show the request again."""
        wanted = (await self._terminal.ask("what should change? (for the model): ") or "").strip()
        if wanted:
            return ChangesRequested(reason=wanted)
        self._show_request()
        return None

    async def _ask_result(self) -> AlreadyDone | None:
        """Ask for the result of a call that did happen; at Ctrl-D, show the request again."""
        while (typed := await self._terminal.ask(_RESULT)) is not None:
            try:
                return AlreadyDone(result=json.loads(typed or "null"))
            except (ValueError, RecursionError):
                self._terminal.complain('write JSON, with text in "quotes"')
        self._show_request()
        return None


def _outcome(decision: Decision) -> str:
    match decision:
        case Approved(remember="task" | "until_revoked" as remember, covers=covers):
            what = "every call of this action" if covers == "action" else "the same call"
            when = "in this task" if remember == "task" else "until it is revoked"
            return style(f"approved, and {what} {when}", "green")
        case Approved():
            return style("approved", "green")
        case Answered(answer=answer):
            return style(f"answered: {escape(value_text(answer))}", "green")
        case ChangesRequested():
            return style("changes requested", "yellow")
        case AlreadyDone():
            return style("the call had already happened; it is not repeated", "green")
        case Edited():
            return style("approved as edited", "green")
        case _:
            return style("rejected", "red")
