"""Programs of users as a type checker sees them; a test has them checked, and nothing runs them."""

from collections.abc import Sequence
from typing import Any, assert_type

from delf import (
    Agent,
    AgentConfig,
    ApprovalRequest,
    Approved,
    Connection,
    LLMConfig,
    Response,
    StreamEvent,
    StreamSnapshot,
    TaskHandle,
    action,
    tool,
)
from delf.events import CallFinished, TaskFinished
from delf.messages import ModelDelta
from delf.settings import PluginSettings, SecretStr


@tool("lookup", effect="read")
def find(words: str) -> list[str]:
    """Find orders."""
    return [words]


@tool
async def pay(to: str, amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount:g} to {to}"


class DeskSettings(PluginSettings):
    """The place of the desk."""

    url: str
    token: SecretStr


class Desk(Connection[DeskSettings]):
    """The support desk."""

    @action("tickets", effect="read")
    async def open_tickets(self, limit: int = 10) -> Sequence[str]:
        """Open tickets."""
        assert_type(self.settings, DeskSettings)
        return [self.settings.url, self.settings.token.get_secret_value()][:limit]


def small_sums(request: ApprovalRequest) -> bool | None:
    return True if request.action == "pay" and request.arguments["amount"] < 50 else None


async def decide(request: ApprovalRequest) -> Approved:
    return Approved(remember="task", covers="action" if request.effect == "write" else "call")


def synchronous() -> None:
    with Agent(
        "gpt-4o-mini", tools=[find, pay, Desk(url="u", token="t")], on_confirm=small_sums
    ) as agent:
        assert_type(agent.run("Find orders."), Response[Any])
        handle = agent.submit("Pay Ada.")
        assert_type(handle, TaskHandle[Any])
        as_text: str = handle
        assert_type(handle.snapshot(), StreamSnapshot)
        for request in handle.approvals:
            agent.approve(request.request_id)
            print(request.to_dict()["action"], request.effect)
        assert_type(handle.result(10), Response[Any])
        print(as_text, handle.cancel(), agent.wait(handle).text, agent.poll(handle).state)


async def asynchronous() -> None:
    async with Agent(tools=[pay], llm=["gpt-4o-mini", "gpt-5.5"], on_confirm=decide) as agent:
        response = await agent.arun("Pay.", output=list[int])
        assert_type(response.value, list[int])
        handle = await agent.asubmit("Pay.", output=int)
        assert_type(await handle, Response[int])
        assert_type(await agent.apoll(handle), StreamSnapshot)
        for request in agent.get_pending_approvals():
            print(request.message)


async def streaming(agent: Agent) -> None:
    seen: list[StreamEvent] = []
    async for event in agent.stream("x", "token"):
        seen.append(event)
        match event:
            case ModelDelta():
                print(event.text)
            case CallFinished():
                print(event.status)
            case TaskFinished():
                print(event.text)
            case _:
                pass


def configured() -> None:
    config = AgentConfig(llm="gpt-4o-mini", timeout=30, wait_approvals=True)
    agent = Agent(config, tools=[find])
    assert_type(agent, Agent[Any])
    Agent(llm=LLMConfig("gpt-4o-mini", base_url="http://127.0.0.1:8000"), sandbox="local")
