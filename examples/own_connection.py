"""A connection of one's own: several actions, settings, and a secret that no script sees."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from delf import Agent, Connection, ToolException, action
from delf.settings import PluginSettings, SecretStr
from delf.testing import ScriptedModel, TestHost


class DeskSettings(PluginSettings):
    """Read from code, ``delf.toml`` or ``DELF_DESK_TOKEN``."""

    token: SecretStr = Field(description="The key of the support desk.")


@dataclass
class Ticket:
    """The result that a script gets."""

    id: int
    title: str
    state: Literal["open", "closed"]


class Desk(Connection[DeskSettings]):
    """The support desk's tickets."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        # A real connection would hold a client here, made with
        # self.settings.token.get_secret_value().
        self._tickets = {
            7: Ticket(7, "The lamp flickers", "open"),
            6: Ticket(6, "No coffee", "open"),
        }

    async def context(self, task: str) -> str:
        """Live facts for the prompt."""
        return f"{len(self._tickets)} tickets, the newest is number {max(self._tickets)}"

    @action(effect="read")
    async def find(self, state: Literal["open", "closed"] = "open") -> list[Ticket]:
        """Tickets in a state, newest first."""
        return [ticket for ticket in self._tickets.values() if ticket.state == state]

    @action(effect="write")
    async def close(self, ticket_id: int) -> Ticket:
        """Close a ticket."""
        if ticket_id not in self._tickets:
            raise ToolException(f"there is no ticket {ticket_id}")
        self._tickets[ticket_id].state = "closed"
        return self._tickets[ticket_id]


ANSWER = """
for ticket in await desk.find():
    if "lamp" in ticket["title"]:
        await desk.close(ticket["id"], desc="it is about a lamp")
print("open:", [ticket["title"] for ticket in await desk.find()])
print("closed:", [ticket["title"] for ticket in await desk.find("closed")])
try:
    await desk.close(99)
except ToolError as error:
    print(error)
"""


def main() -> None:
    host = TestHost.discover()
    model = ScriptedModel().writes(ANSWER)
    host.provide(model.spec, model.factory)
    desk = Desk(token="tok-2c81", confirm=False)
    print(desk.inspect())
    with Agent(tools=[desk], llm="scripted", host=host) as agent:
        print(agent.run("Close the tickets about lamps.").raise_for_status().text)
    print("the model saw the token:", "tok-2c81" in model.prompts[0])


if __name__ == "__main__":
    main()
