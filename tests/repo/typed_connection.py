"""The connection of a plugin's author as a type checker sees it; nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, assert_type

from pydantic import Field

from delf import (
    Allowed,
    CallContext,
    Connection,
    ConnectionUnavailableError,
    NeedsApproval,
    ProposedCall,
    Refused,
    ToolException,
    Verdict,
    action,
)
from delf.settings import LocalPath, PluginSettings, SecretStr, SentTo


class TicketsSettings(PluginSettings):
    """From code, delf.toml or DELF_TICKETS_…"""

    base_url: str = "https://tickets.example.org"
    token: Annotated[SecretStr, SentTo("base_url")] = Field(description="The key of the service.")
    cache: LocalPath | None = None


@dataclass(frozen=True)
class Ticket:
    """A ticket as a script gets it."""

    id: int
    title: str


class Tickets(Connection[TicketsSettings]):
    """Tickets of the desk."""

    @classmethod
    def type_name(cls) -> str:
        """The name in scripts."""
        return "tickets"

    @action(effect="read", trust="outside")
    async def find(self, state: Literal["open", "closed"] = "open") -> list[Ticket]:
        """Return the tickets in a state."""
        assert_type(self.settings, TicketsSettings)
        token: str = self.settings.token.get_secret_value()
        if not token:
            raise ConnectionUnavailableError("the service refuses the token", hint="set another")
        return [Ticket(7, state)]

    @action("reply", effect="irreversible", sinks=("to",))
    async def reply(self, ticket: int, to: str, text: str, *, context: CallContext) -> str:
        """Answer a ticket by mail."""
        if ticket != 7:
            raise ToolException(f"there is no ticket {ticket}")
        child = await context.delegate(f"Shorten: {text}")
        return f"{to}: {child}"

    async def check(self, call: ProposedCall) -> Verdict:
        """Judge a call by its arguments."""
        if call.action == "find":
            return Allowed()
        to = str(call.arguments["to"])
        if "@" not in to:
            return Refused(message=f"{to!r} is no address")
        return NeedsApproval(reason="a mail", preview=f"a mail to {to}")


def made() -> Tickets:
    return Tickets(token="t", base_url="http://127.0.0.1", name="desk", confirm=["reply"])
