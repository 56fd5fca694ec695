"""The approval channel of a plugin's author as a type checker sees it; nothing runs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_type

from delf import AlreadyDone, ApprovalRequest, Approved, ChangesRequested, Edited, Rejected
from delf.hookspecs import hookimpl
from delf.protocols.approval import ApprovalChannel, DecidedBy, Decider, Decision
from delf.protocols.context import PluginContext
from delf.protocols.facts import facts, plain_lines
from delf.specs import ApprovalSpec


class Phone:
    """Asks a person on the phone."""

    def __init__(self, number: str) -> None:
        self._number = number

    async def decide(self, request: ApprovalRequest) -> Decision | DecidedBy | None:
        """Ask, and understand the answer."""
        lines: list[str] = list(plain_lines(facts(request)))
        word = await self._asked("\n".join(lines))
        match word:
            case None:
                return None
            case "yes":
                return Approved(remember="task", covers="call")
            case "it happened":
                return AlreadyDone(result=None)
            case "less":
                return Edited(arguments={**request.arguments, "amount": 1})
            case "change it":
                return ChangesRequested(reason="another account")
            case _:
                return DecidedBy(decision=Rejected(reason=word), who=Decider(name=self._number))

    async def _asked(self, question: str) -> str | None:
        return question.partition("\n")[0] or None


def make(context: PluginContext, number: str = "112") -> ApprovalChannel:
    assert_type(context.environ.get("PHONE"), str | None)
    return Phone(number)


@hookimpl
def delf_approval_channels() -> Iterable[ApprovalSpec]:
    yield ApprovalSpec(name="phone", summary="Asks on the phone.", factory="delf_phone:make")
